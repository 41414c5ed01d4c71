//! The handlers' own records, and a count of what has been committed.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_core::batch::{Batch, Output};
use punctual_core::ids::InstanceId;
use punctual_core::protocol::{Assignment, End};
use punctual_core::time::Timestamp;
use punctual_driver::clock::SystemClock;
use punctual_driver::ports::{Clock, Ended, Executor, Observer, Stop};
use tokio::sync::watch;

/// A handler has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) instance: InstanceId,
    pub(crate) ordinal: u64,
    pub(crate) fire_time: Timestamp,
    pub(crate) at: Timestamp,
}

/// Runs the no-op handler and writes each begin down.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Arc<SystemClock>,
    begun: Mutex<Vec<Begun>>,
    judged_from: AtomicI64,
}

impl Recorder {
    pub(crate) fn new(clock: Arc<SystemClock>) -> Self {
        Recorder { clock, begun: Mutex::default(), judged_from: AtomicI64::new(i64::MIN) }
    }

    /// Fire times before this are not judged.
    pub(crate) fn judge_from(&self, first: Timestamp) {
        self.judged_from.store(first.0, Ordering::Relaxed);
    }

    /// What is judged, in the order of its begin.
    pub(crate) fn judged(&self) -> Vec<Begun> {
        let from = self.judged_from.load(Ordering::Relaxed);
        self.begun.lock().expect("no holder panics").iter().copied().filter(|begun| begun.fire_time.0 >= from).collect()
    }
}

/// The records of a process as a file: a line for each, its numbers in the order of [`Begun`].
impl Recorder {
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for Begun { instance, ordinal, fire_time, at } in &*self.begun.lock().expect("no holder panics") {
            writeln!(file, "{} {ordinal} {} {}", instance.0, fire_time.0, at.0)?;
        }
        Ok(file.flush()?)
    }

    pub(crate) fn read(&self, path: &Path) -> anyhow::Result<()> {
        let mut begun = self.begun.lock().expect("no holder panics");
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            let mut numbers = line.split(' ');
            let mut next = || numbers.next().ok_or_else(|| anyhow::anyhow!("{} is cut off: {line:?}", path.display()));
            let (instance, ordinal) = (InstanceId(next()?.parse()?), next()?.parse()?);
            let (fire_time, at) = (Timestamp(next()?.parse()?), Timestamp(next()?.parse()?));
            begun.push(Begun { instance, ordinal, fire_time, at });
        }
        Ok(())
    }
}

impl Executor for Recorder {
    fn handlers(&self) -> Vec<Arc<str>> {
        vec![Arc::from("noop")]
    }

    fn run(&self, assignment: Arc<Assignment>, _stop: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static {
        let begun = Begun {
            instance: assignment.instance,
            ordinal: assignment.ordinal,
            fire_time: assignment.fire_time,
            at: self.clock.now().wall,
        };
        self.begun.lock().expect("no holder panics").push(begun);
        std::future::ready(Ended {
            end: End::Succeeded,
            code: None,
            detail: None,
            output: Output::default(),
            result: None,
            items: None,
            retry_after: None,
        })
    }
}

/// Counts ended instances as they are committed.
#[derive(Debug)]
pub(crate) struct Counter {
    ended: watch::Sender<u64>,
    tasks: watch::Sender<u64>,
    commits: AtomicU64,
    window: Mutex<Option<Window>>,
}

/// From when on is counted, and when the last end was committed.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    ended_before: u64,
    last: Instant,
}

impl Default for Counter {
    fn default() -> Self {
        Counter { ended: watch::Sender::new(0), tasks: watch::Sender::new(0), commits: AtomicU64::new(0), window: Mutex::default() }
    }
}

impl Counter {
    /// Measures from now on.
    pub(crate) fn begin(&self) {
        let now = Instant::now();
        *self.window.lock().expect("no holder panics") = Some(Window { began: now, ended_before: *self.ended.borrow(), last: now });
    }

    /// Ended instances since the beginning, and the seconds from then to the last of them.
    pub(crate) fn measured(&self) -> (u64, f64) {
        match *self.window.lock().expect("no holder panics") {
            Some(window) => (*self.ended.borrow() - window.ended_before, window.last.duration_since(window.began).as_secs_f64()),
            None => (0, 0.0),
        }
    }

    /// So many have ended in all.
    pub(crate) fn ended(&self, count: u64) {
        if count > *self.ended.borrow() {
            if let Some(window) = &mut *self.window.lock().expect("no holder panics") {
                window.last = Instant::now();
            }
            self.ended.send_replace(count);
        }
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Waits until so many have ended, or no more end for `patience`; answers whether they have.
    pub(crate) async fn wait_until(&self, count: u64, patience: Duration) -> bool {
        wait(self.ended.subscribe(), count, patience).await
    }

    /// Waits until so many tasks were taken over.
    pub(crate) async fn wait_for_tasks(&self, count: u64, patience: Duration) {
        wait(self.tasks.subscribe(), count, patience).await;
    }
}

async fn wait(mut counter: watch::Receiver<u64>, count: u64, patience: Duration) -> bool {
    while *counter.borrow_and_update() < count {
        if tokio::time::timeout(patience, counter.changed()).await.is_err() {
            return false;
        }
    }
    true
}

impl Observer for Counter {
    fn committed(&self, batch: &Arc<Batch>) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row));
        let ended = rows.filter(|row| row.state.is_terminal()).count() as u64;
        let before = *self.ended.borrow();
        self.ended(before + ended);
        if !batch.tasks.is_empty() {
            self.tasks.send_modify(|count| *count += batch.tasks.len() as u64);
        }
    }
}
