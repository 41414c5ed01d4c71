//! Lines of attempts in a replica: from workers into the store, and to whoever watches.
//!
//! Batches that come meanwhile are written together, one writing at a time, so workers of any number cost the database a bounded number of
//! transactions. What finds no room in the queue is not taken: its worker keeps it, sends it again, and counts what it has to drop. So a
//! store that is slow or full costs lines, and nothing else.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_core::ids::InstanceId;
use punctual_driver::logs::{BATCH_BYTES_MAX, LogBatch, LogLine, LogSink, LogStore, NotTaken};
use punctual_driver::ports::Clock;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::seats::{Seat, Seats};
use crate::upkeep::{self, Upkeep};

/// Batches that may wait to be written.
const QUEUE_MAX: usize = 64;
/// What is written at once, in bytes: it ends with the batch that reaches it.
const WRITE_BYTES: usize = 4 * BATCH_BYTES_MAX;
/// Most that may watch at once.
pub(crate) const WATCHERS_MAX: usize = 256;
/// Old days, and those to come.
const UPKEEP: Upkeep = Upkeep { every: Duration::from_secs(3_600), dropped: "logs", failed: "PUN-461: the days of the logs" };

type Waiting = (Arc<LogBatch>, oneshot::Sender<bool>);

/// Says something to whoever runs this.
pub(crate) type Say = Arc<dyn Fn(String) + Send + Sync>;

/// The lines of a replica.
pub(crate) struct Logs {
    store: Arc<dyn LogStore>,
    queue: mpsc::Sender<Waiting>,
    watched: Mutex<FxHashMap<InstanceId, Vec<Arc<Notify>>>>,
    seats: Seats,
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logs")
    }
}

impl Logs {
    /// Begins to write to this store, and to keep so many days of it.
    pub(crate) fn start(store: Arc<dyn LogStore>, clock: Arc<dyn Clock>, keep_days: u32, say: Say) -> Arc<Logs> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let (watched, seats) = (Mutex::default(), Seats::new(WATCHERS_MAX));
        let logs = Arc::new(Logs { store: store.clone(), queue, watched, seats });
        tokio::spawn(write(logs.store.clone(), clock.clone(), Arc::downgrade(&logs), waiting, say.clone()));
        tokio::spawn(look_after(store, clock, keep_days, say));
        logs
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn LogStore {
        &*self.store
    }

    /// Watches an instance; `None`: too many watch.
    pub(crate) fn watch(self: &Arc<Self>, who: &Arc<str>, instance: InstanceId) -> Option<Watch> {
        let seat = self.seats.take(who)?;
        let came = Arc::new(Notify::new());
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).entry(instance).or_default().push(came.clone());
        Some(Watch { logs: self.clone(), instance, came, _seat: seat })
    }

    fn stored(&self, batches: &[Arc<LogBatch>]) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.is_empty() {
            return;
        }
        let attempts = batches.iter().flat_map(|batch| &batch.attempts);
        attempts.filter_map(|attempt| watched.get(&attempt.instance)).flatten().for_each(|came| came.notify_one());
    }
}

impl LogSink for Logs {
    fn take(&self, batch: Arc<LogBatch>) -> Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>> {
        let (stored, is_stored) = oneshot::channel();
        let is_queued = self.queue.try_send((batch, stored)).is_ok();
        Box::pin(async move {
            match is_queued && is_stored.await.unwrap_or(false) {
                true => Ok(()),
                false => Err(NotTaken::Busy),
            }
        })
    }
}

/// Somebody who watches an instance.
pub(crate) struct Watch {
    logs: Arc<Logs>,
    instance: InstanceId,
    came: Arc<Notify>,
    _seat: Seat,
}

impl Watch {
    /// Ends when this replica has stored lines of it, since it ended last.
    pub(crate) async fn came(&self) {
        self.came.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.logs.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = watched.get_mut(&self.instance) {
            of.retain(|came| !Arc::ptr_eq(came, &self.came));
            if of.is_empty() {
                watched.remove(&self.instance);
            }
        }
    }
}

async fn write(
    store: Arc<dyn LogStore>,
    clock: Arc<dyn Clock>,
    logs: std::sync::Weak<Logs>,
    mut waiting: mpsc::Receiver<Waiting>,
    say: Say,
) {
    let mut fails = false;
    while let Some(first) = waiting.recv().await {
        let bytes = |batch: &LogBatch| batch.attempts.iter().flat_map(|attempt| &attempt.lines).map(LogLine::cost).sum::<usize>();
        let mut size = bytes(&first.0);
        let (mut batches, mut answers) = (vec![first.0], vec![first.1]);
        while size < WRITE_BYTES
            && let Ok((batch, answer)) = waiting.try_recv()
        {
            size += bytes(&batch);
            batches.push(batch);
            answers.push(answer);
        }
        let written = store.append(batches.clone(), clock.now().wall).await;
        let is_written = written.is_ok();
        match written {
            Ok(()) => {
                if std::mem::take(&mut fails) {
                    say("  lines of attempts are stored again".to_owned());
                }
                if let Some(logs) = logs.upgrade() {
                    logs.stored(&batches);
                }
            }
            Err(error) if !std::mem::replace(&mut fails, true) => {
                say(format!(
                    "! PUN-460: lines of attempts can't be stored: {error}. Workers keep what fits and count the rest; fires go on"
                ));
            }
            Err(_) => {}
        }
        for answer in answers {
            // Whoever waited for it may have given up.
            let _ = answer.send(is_written);
        }
    }
}

async fn look_after(store: Arc<dyn LogStore>, clock: Arc<dyn Clock>, keep_days: u32, say: Say) {
    let work = || async {
        let dropped = store.keep(keep_days, clock.now().wall).await?;
        let ends = dropped.first().zip(dropped.last());
        Ok(ends.map(|(first, last)| format!("{} days, {first} to {last}", dropped.len())).into_iter().collect())
    };
    upkeep::look_after(UPKEEP, work, |line| say(line)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use punctual_core::ids::{Fence, TaskId, WorkerId};
    use punctual_core::time::Timestamp;
    use punctual_driver::clock::SystemClock;
    use punctual_driver::logs::{Answer, AttemptLines, Day, Level, LogPage, LogQuery, TraceId};
    use punctual_driver::ports::StoreError;
    use tokio::sync::Semaphore;

    use super::*;

    /// Stores nothing, and fails while it is told to; holds each writing up until it is let go on.
    #[derive(Default)]
    struct Fake {
        is_full: AtomicBool,
        written: Mutex<Vec<usize>>,
        may_write: Option<Semaphore>,
    }

    impl LogStore for Fake {
        fn append(&self, batches: Vec<Arc<LogBatch>>, _: Timestamp) -> Answer<'_, ()> {
            Box::pin(async move {
                if let Some(may_write) = &self.may_write {
                    may_write.acquire().await.expect("open").forget();
                }
                if self.is_full.load(Ordering::Relaxed) {
                    return Err(StoreError::Full { database: "d".into(), reason: "r".into() });
                }
                self.written.lock().unwrap().push(batches.len());
                Ok(())
            })
        }

        fn lines(&self, _: LogQuery) -> Answer<'_, LogPage> {
            Box::pin(std::future::ready(Ok(LogPage::default())))
        }

        fn keep(&self, _: u32, _: Timestamp) -> Answer<'_, Vec<Day>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    fn batch(instance: u64) -> Arc<LogBatch> {
        let line = LogLine { seq: 1, at: Timestamp(0), level: Level::Info, dropped: 0, message: "x".into() };
        let (instance, fence, trace) = (InstanceId(instance), Fence(1), TraceId([1; 16]));
        let attempt = AttemptLines { instance, fence, attempt: 1, task: TaskId(1), trace, lines: vec![line] };
        Arc::new(LogBatch { worker: WorkerId("w".into()), attempts: vec![attempt] })
    }

    fn started(fake: &Arc<Fake>) -> (Arc<Logs>, Arc<Mutex<Vec<String>>>) {
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let saying = said.clone();
        let say = Arc::new(move |line| saying.lock().unwrap().push(line));
        (Logs::start(fake.clone(), Arc::new(SystemClock::new()), 1, say), said)
    }

    #[tokio::test]
    async fn a_store_that_fails_is_said_once_and_costs_lines_only() {
        let fake = Arc::new(Fake::default());
        let (logs, said) = started(&fake);
        assert_eq!(logs.take(batch(1)).await, Ok(()));
        fake.is_full.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(logs.take(batch(1)).await, Err(NotTaken::Busy));
        }
        fake.is_full.store(false, Ordering::Relaxed);
        assert_eq!(logs.take(batch(1)).await, Ok(()));
        let said = said.lock().unwrap().clone();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("PUN-460") && said[0].contains("PUN-203") && said[1].contains("again"));
    }

    #[tokio::test]
    async fn what_comes_meanwhile_is_written_together_and_the_queue_is_bounded() {
        let fake = Arc::new(Fake { may_write: Some(Semaphore::new(0)), ..Fake::default() });
        let (logs, _) = started(&fake);
        let taking: Vec<_> = (0..200).map(|_| logs.take(batch(1))).collect();
        fake.may_write.as_ref().unwrap().add_permits(1_000);
        let mut taken = 0;
        for answer in taking {
            taken += usize::from(answer.await.is_ok());
        }
        assert_eq!(taken, QUEUE_MAX);
        let written = fake.written.lock().unwrap().clone();
        assert_eq!((written.len(), written.iter().sum::<usize>()), (1, QUEUE_MAX), "{written:?}");
    }

    #[tokio::test]
    async fn whoever_watches_is_woken_by_lines_of_that_instance() {
        let (logs, _) = started(&Arc::default());
        let [one, again, other] = [1, 1, 2].map(|instance| logs.watch(&"ann".into(), InstanceId(instance)).unwrap());
        assert_eq!(logs.take(batch(1)).await, Ok(()));
        // Also who began to wait only now.
        one.came().await;
        again.came().await;
        tokio::select! {
            biased;
            () = other.came() => panic!("nothing came of it"),
            () = std::future::ready(()) => {}
        }
        drop((one, again, other));
        assert!(logs.watched.lock().unwrap().is_empty());
        let anns: Vec<_> = (0..WATCHERS_MAX / 2).map(|_| logs.watch(&"ann".into(), InstanceId(1)).unwrap()).collect();
        assert!(logs.watch(&"ann".into(), InstanceId(1)).is_none());
        assert!(logs.watch(&"bob".into(), InstanceId(1)).is_some(), "others have their share");
        drop(anns);
        assert!(logs.watch(&"ann".into(), InstanceId(1)).is_some());
    }
}
