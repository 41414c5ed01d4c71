//! What has been committed, for whoever listens: a bounded queue each, and a memory of the last batches for those who come back.
//!
//! Every change has a number, counted from the start of the process. Who is too slow, or comes back too late, learns how many changes were
//! lost to him in between. The scheduler waits for nobody: it hands a batch over, and only while somebody listens, or has done so a moment
//! ago.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_core::batch::Batch;
use tokio::sync::broadcast;

use crate::seats::{Seat, Seats};

/// Most listeners at once.
pub(crate) const LISTENERS_MAX: usize = 64;
/// Batches that may wait for a listener.
const QUEUE_MAX: usize = 256;
/// Batches that are remembered for those who come back.
const REMEMBERED_MAX: usize = 256;
/// For so long after the last listener has gone.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// A batch, and how many changes there were before it.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    /// Changes before those of the batch.
    pub(crate) before: u64,
    /// The batch.
    pub(crate) batch: Arc<Batch>,
}

impl Numbered {
    /// How many changes it has.
    pub(crate) fn count(&self) -> u64 {
        count(&self.batch)
    }
}

fn count(batch: &Batch) -> u64 {
    (batch.inserts.len() + batch.updates.len() + batch.tasks.len()) as u64
}

/// The changes that this process commits. Clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Tells this process's numbers from those of the one before.
    life: u64,
    seats: Seats,
    batches: broadcast::Sender<Numbered>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    changes: u64,
    batches: VecDeque<Numbered>,
    /// When somebody last listened.
    heard: Option<Instant>,
}

impl Events {
    /// The changes of a process that began then.
    pub(crate) fn new(life: u64) -> Self {
        let batches = broadcast::Sender::new(QUEUE_MAX);
        Events(Arc::new(Inner { life, seats: Seats::new(LISTENERS_MAX), batches, memory: Mutex::default() }))
    }

    /// Tells this process from the one before.
    pub(crate) fn life(&self) -> u64 {
        self.0.life
    }

    /// A batch is durable.
    pub(crate) fn committed(&self, batch: &Arc<Batch>) {
        let mut memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = Numbered { before: memory.changes, batch: batch.clone() };
        memory.changes += numbered.count();
        if !self.0.seats.are_free() {
            memory.heard = Some(Instant::now());
        } else if memory.heard.is_none_or(|heard| heard.elapsed() > REMEMBERED_FOR) {
            memory.batches.clear();
            return;
        }
        memory.batches.push_back(numbered.clone());
        if memory.batches.len() > REMEMBERED_MAX {
            memory.batches.pop_front();
        }
        // Under the lock: who comes meanwhile gets it once, from here or from the memory.
        let _ = self.0.batches.send(numbered);
    }

    /// Begins to listen, behind the change of this number where it is given. `None`: too many do already.
    pub(crate) fn listen(&self, who: &Arc<str>, after: Option<u64>) -> Option<Listener> {
        let seat = self.0.seats.take(who)?;
        let memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, now) = (self.0.batches.subscribe(), memory.changes);
        let expected = after.map_or(now, |after| after.min(now));
        let missed = memory.batches.iter().filter(|numbered| numbered.before + numbered.count() > expected).cloned().collect();
        Some(Listener { missed, queue, expected, until: now, _seat: seat })
    }
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A batch; of its changes the first `skip` were told before.
    Batch(Numbered, u64),
    /// So many changes were lost.
    Lost(u64),
}

/// Somebody who listens.
pub(crate) struct Listener {
    missed: VecDeque<Numbered>,
    queue: broadcast::Receiver<Numbered>,
    /// The number of the change that comes next.
    expected: u64,
    /// How many changes there were when it began.
    until: u64,
    _seat: Seat,
}

impl Listener {
    /// How many changes it has heard of, those before it included.
    pub(crate) fn heard(&self) -> u64 {
        self.expected
    }

    /// Waits for the next batch; `None`: the process ends.
    pub(crate) async fn next(&mut self) -> Option<Next> {
        loop {
            let numbered = match self.missed.pop_front() {
                Some(numbered) => numbered,
                // What was forgotten before it came back.
                None if self.expected < self.until => Numbered { before: self.until, batch: Arc::default() },
                None => match self.queue.recv().await {
                    Ok(numbered) => numbered,
                    // The number of the one that comes next says how many changes that were.
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            };
            if numbered.before > self.expected {
                let lost = numbered.before - self.expected;
                self.expected = numbered.before;
                if numbered.count() > 0 {
                    self.missed.push_front(numbered);
                }
                return Some(Next::Lost(lost));
            }
            let skip = self.expected - numbered.before;
            if skip >= numbered.count() {
                continue;
            }
            self.expected = numbered.before + numbered.count();
            return Some(Next::Batch(numbered, skip));
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::batch::TaskWrite;
    use punctual_core::ids::{PartitionId, TaskId};

    use super::*;

    fn batch(changes: usize) -> Arc<Batch> {
        let write = TaskWrite { task: TaskId(1), partition: PartitionId(0), version: None, next_fire: None, fired_until: None };
        Arc::new(Batch { tasks: vec![write; changes], ..Batch::default() })
    }

    fn now(next: impl Future<Output = Option<Next>>) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), next).await.unwrap() }) {
            Some(Next::Batch(numbered, skip)) => format!("{}..{}", numbered.before + skip, numbered.before + numbered.count()),
            Some(Next::Lost(count)) => format!("lost {count}"),
            None => "end".to_owned(),
        }
    }

    #[test]
    fn who_comes_back_goes_on_behind_what_he_has() {
        let events = Events::new(1);
        events.committed(&batch(5));
        let mut first = events.listen(&"ann".into(), None).unwrap();
        events.committed(&batch(3));
        events.committed(&batch(2));
        assert_eq!((now(first.next()), now(first.next())), ("5..8".into(), "8..10".into()));
        drop(first);
        events.committed(&batch(4));
        let mut again = events.listen(&"ann".into(), Some(7)).unwrap();
        events.committed(&batch(1));
        let told: Vec<_> = (0..4).map(|_| now(again.next())).collect();
        assert_eq!(told, ["7..8", "8..10", "10..14", "14..15"]);
        // What came before anybody listened is not there: it is said how much that is.
        let mut old = events.listen(&"ann".into(), Some(2)).unwrap();
        assert_eq!((now(old.next()), now(old.next())), ("lost 3".into(), "5..8".into()));
    }

    #[test]
    fn who_is_too_slow_learns_how_much_he_missed() {
        let events = Events::new(1);
        let mut slow = events.listen(&"ann".into(), None).unwrap();
        for _ in 0..QUEUE_MAX + 10 {
            events.committed(&batch(2));
        }
        assert_eq!((now(slow.next()), now(slow.next())), ("lost 20".into(), "20..22".into()));
        // And who comes back when all is forgotten.
        let forgetful = Events::new(1);
        forgetful.committed(&batch(9));
        let mut late = forgetful.listen(&"ann".into(), Some(4)).unwrap();
        assert_eq!(now(late.next()), "lost 5");
    }

    #[test]
    fn nothing_is_kept_while_nobody_listens() {
        let events = Events::new(1);
        events.committed(&batch(1));
        assert!(events.0.memory.lock().unwrap().batches.is_empty());
        let listener = events.listen(&"ann".into(), None).unwrap();
        (0..REMEMBERED_MAX + 5).for_each(|_| events.committed(&batch(1)));
        drop(listener);
        assert_eq!(events.0.memory.lock().unwrap().batches.len(), REMEMBERED_MAX);
    }
}
