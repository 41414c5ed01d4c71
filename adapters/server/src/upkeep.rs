//! What a replica does now and then for as long as it runs.

use std::time::Duration;

use punctual_driver::ports::StoreError;

/// How often the parts of the history for coming and past months are looked after.
const INTERVAL: Duration = Duration::from_secs(6 * 3_600);
/// How soon they are looked after again where that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// Looks after the history for ever. `work`: makes what is missing, drops what is old, and answers with the names of what it has dropped.
pub(crate) async fn of_history<F>(mut work: impl FnMut() -> F, say: impl Fn(String))
where
    F: Future<Output = Result<Vec<String>, StoreError>>,
{
    let mut next = tokio::time::interval(INTERVAL);
    loop {
        next.tick().await;
        match work().await {
            Ok(dropped) if dropped.is_empty() => {}
            Ok(dropped) => say(format!("  history dropped: {}", dropped.join(", "))),
            Err(error) => {
                say(format!("! the history could not be looked after: {error}; it is tried again in a minute"));
                next.reset_after(AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    /// C374: what failed is tried again in a minute, until it has succeeded, and not only at its next time.
    #[tokio::test(start_paused = true)]
    async fn what_failed_is_tried_again_soon() {
        let begun = Instant::now();
        let (tried, said) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let work = || {
            let mut tried = tried.lock().unwrap();
            tried.push(begun.elapsed().as_secs());
            let answer = match tried.len() {
                1 | 2 | 5 => Err(StoreError::Unreachable { database: "there".into(), reason: "it is away".to_owned() }),
                3 => Ok(vec!["m202611".to_owned()]),
                _ => Ok(Vec::new()),
            };
            std::future::ready(answer)
        };
        let upkeep = of_history(work, |line| said.lock().unwrap().push(line));
        let six_hours = 6 * 3_600;
        assert!(tokio::time::timeout(Duration::from_secs(3 * six_hours), upkeep).await.is_err(), "it has no end");
        let third = 120 + six_hours;
        assert_eq!(*tried.lock().unwrap(), [0, 60, 120, third, third + six_hours, third + six_hours + 60]);
        let said = said.lock().unwrap();
        assert_eq!((said.len(), said[2].as_str()), (4, "  history dropped: m202611"));
        assert!(said[0].contains("it is away") && said[0].ends_with("; it is tried again in a minute"), "{}", said[0]);
    }
}
