//! What a replica does now and then for as long as it runs.

use std::time::Duration;

use punctual_driver::ports::StoreError;

/// How soon something is looked after again where that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// What is looked after.
pub(crate) struct Upkeep {
    pub(crate) every: Duration,
    /// What it says that it has dropped.
    pub(crate) dropped: &'static str,
    /// What it says that could not be looked after, with its code.
    pub(crate) failed: &'static str,
}

/// The parts of the history for coming and past months.
pub(crate) const HISTORY: Upkeep =
    Upkeep { every: Duration::from_secs(6 * 3_600), dropped: "history", failed: "PUN-462: the months of the history" };

/// Looks after something for ever. `work`: makes what is missing, drops what is old, and answers with what it has dropped.
pub(crate) async fn look_after<F>(what: Upkeep, mut work: impl FnMut() -> F, say: impl Fn(String))
where
    F: Future<Output = Result<Vec<String>, StoreError>>,
{
    let mut next = tokio::time::interval(what.every);
    // One that fails for hours is not made up for by trying without end.
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        match work().await {
            Ok(dropped) if dropped.is_empty() => {}
            Ok(dropped) => say(format!("  {} dropped: {}", what.dropped, dropped.join(", "))),
            Err(error) => {
                say(format!("! {} could not be looked after: {error}; it is tried again in a minute", what.failed));
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
        let upkeep = look_after(HISTORY, work, |line| said.lock().unwrap().push(line));
        let six_hours = 6 * 3_600;
        assert!(tokio::time::timeout(Duration::from_secs(3 * six_hours), upkeep).await.is_err(), "it has no end");
        let third = 120 + six_hours;
        assert_eq!(*tried.lock().unwrap(), [0, 60, 120, third, third + six_hours, third + six_hours + 60]);
        let said = said.lock().unwrap();
        assert_eq!((said.len(), said[2].as_str()), (4, "  history dropped: m202611"));
        assert!(
            said[0].contains("PUN-462") && said[0].contains("it is away") && said[0].ends_with("; it is tried again in a minute"),
            "{}",
            said[0]
        );
    }
}
