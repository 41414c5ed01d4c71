//! The one timer of a loop.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use punctual_core::time::Monotonic;
use tokio::time::{Sleep, sleep};

/// Rings at a time that can be moved. A loop that comes round for other reasons, and wants to be woken when it wanted to be before, costs
/// the runtime's timers nothing.
pub struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// When it rings; `None`: it has rung.
    at: Option<Monotonic>,
    /// Who was told to the timer last.
    waiter: Option<Waker>,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { sleep: Box::pin(sleep(Duration::ZERO)), at: None, waiter: None }
    }
}

impl Alarm {
    /// Waits until `at`, where it is `now`. Dropping the future leaves the alarm set.
    pub async fn rings(&mut self, now: Monotonic, at: Monotonic) {
        if self.at != Some(at) {
            self.at = Some(at);
            self.waiter = None;
            self.sleep.set(sleep(Duration::from_millis(at.since(now).0)));
        }
        std::future::poll_fn(|context| self.poll(context)).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.sleep.is_elapsed() {
            if self.waiter.as_ref().is_some_and(|waiter| waiter.will_wake(context.waker())) {
                return Poll::Pending;
            }
            self.waiter = Some(context.waker().clone());
            if self.sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.at = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const NOW: Monotonic = Monotonic(1_000);

    async fn is_quiet_for(alarm: &mut Alarm, ms: u64, at: u64) -> bool {
        timeout(Duration::from_millis(ms), alarm.rings(NOW, Monotonic(at))).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_its_time_however_often_it_is_asked() {
        let began = Instant::now();
        let mut alarm = Alarm::default();
        assert!(is_quiet_for(&mut alarm, 30, 1_100).await && is_quiet_for(&mut alarm, 30, 1_100).await);
        alarm.rings(NOW, Monotonic(1_100)).await;
        assert_eq!(began.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_moved_both_ways() {
        let mut alarm = Alarm::default();
        assert!(is_quiet_for(&mut alarm, 1, 1_010).await && is_quiet_for(&mut alarm, 50, 1_100).await, "later");
        let moved = Instant::now();
        alarm.rings(NOW, Monotonic(1_005)).await;
        assert_eq!(moved.elapsed().as_millis(), 5, "sooner");
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_who_waits_now() {
        let began = Instant::now();
        let mut alarm = Alarm::default();
        assert!(is_quiet_for(&mut alarm, 10, 1_100).await);
        // Another task has another waker.
        tokio::spawn(async move { alarm.rings(NOW, Monotonic(1_100)).await }).await.expect("it rings");
        assert_eq!(began.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_passed_rings_at_once_and_rings_again() {
        let mut alarm = Alarm::default();
        for _ in 0..3 {
            assert!(!is_quiet_for(&mut alarm, 5, 900).await);
        }
    }
}
