//! Who waits for an inbox entry to be applied.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_core::ids::InboxId;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::oneshot;

/// So many entries that were applied are remembered: whoever waits begins to after the entry is in the inbox.
const REMEMBERED_MAX: usize = 10_000;

/// The entries that this replica has applied, and who waits for one. Clones are of the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    recent: FxHashSet<InboxId>,
    in_order: VecDeque<InboxId>,
    waiting: FxHashMap<InboxId, Vec<oneshot::Sender<()>>>,
}

impl Applied {
    /// These entries have been applied, and their commit is through.
    pub(crate) fn tell(&self, entries: &[InboxId]) {
        if entries.is_empty() {
            return;
        }
        let Entries { recent, in_order, waiting } = &mut *self.lock();
        for entry in entries {
            for waiter in waiting.remove(entry).into_iter().flatten() {
                // Who has given up waiting needs no answer.
                let _ = waiter.send(());
            }
            if recent.insert(*entry) {
                in_order.push_back(*entry);
            }
        }
        while in_order.len() > REMEMBERED_MAX
            && let Some(oldest) = in_order.pop_front()
        {
            recent.remove(&oldest);
        }
    }

    /// Ends when the entry has been applied by this replica. One that another replica applies it never hears of.
    pub(crate) async fn wait(&self, entry: InboxId) {
        // Dropped last: what it looks for is gone by then.
        let _goes = Goes { applied: self, entry };
        let applied = {
            let mut entries = self.lock();
            if entries.recent.contains(&entry) {
                return;
            }
            let (waiter, applied) = oneshot::channel();
            entries.waiting.entry(entry).or_default().push(waiter);
            applied
        };
        if applied.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits for the entry may go at any time.
struct Goes<'a> {
    applied: &'a Applied,
    entry: InboxId,
}

impl Drop for Goes<'_> {
    fn drop(&mut self) {
        let waiting = &mut self.applied.lock().waiting;
        if let Some(waiters) = waiting.get_mut(&self.entry) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                waiting.remove(&self.entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_before_and_after() {
        let applied = Applied::default();
        applied.tell(&[InboxId(1)]);
        applied.wait(InboxId(1)).await;
        let (one, other) = (applied.clone(), applied.clone());
        let waiting = [tokio::spawn(async move { one.wait(InboxId(2)).await }), tokio::spawn(async move { other.wait(InboxId(2)).await })];
        while applied.lock().waiting.get(&InboxId(2)).is_none_or(|waiters| waiters.len() < 2) {
            tokio::task::yield_now().await;
        }
        applied.tell(&[InboxId(2)]);
        for waiting in waiting {
            waiting.await.unwrap();
        }
        assert!(applied.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn nothing_piles_up() {
        let applied = Applied::default();
        for entry in 0..3 * REMEMBERED_MAX as u64 {
            applied.tell(&[InboxId(entry)]);
        }
        assert_eq!(applied.lock().recent.len(), REMEMBERED_MAX);
        assert_eq!(applied.lock().in_order.len(), REMEMBERED_MAX);
        let given_up = tokio::time::timeout(Duration::ZERO, applied.wait(InboxId(u64::MAX))).await;
        assert!(given_up.is_err());
        assert!(applied.lock().waiting.is_empty());
    }
}
