//! The threads that own the connections. A job is a closure that runs on one of them, start to end; the caller awaits its answer.
//!
//! One thread writes. History is read on others, so that a long page never holds a commit up. The log is copied into the database
//! by a thread of its own, which leaves the writer only what came in meanwhile: a commit waits for a small remainder instead of the whole.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

/// Most jobs that wait for a thread; further callers wait before they hand theirs over.
const JOBS_MAX: usize = 1_024;
/// Pages in the log from which it is copied into the database: 16 MiB.
const CHECKPOINT_PAGES: u32 = 4_096;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

thread_local! {
    /// Pages in the log after the last commit of this thread.
    static LOG_PAGES: Cell<u32> = const { Cell::new(0) };
}

/// The job was lost: it panicked, or the thread has ended. It may have done its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobLost;

/// Threads with a connection each, and the queue before them.
#[derive(Debug)]
pub(crate) struct Threads {
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A thread for each connection.
    pub(crate) fn start(name: &str, connections: Vec<Connection>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for mut connection in connections {
            let queue = Arc::clone(&queue);
            threads.push(spawn(name, move || while run_next(&queue, &mut connection) {})?);
        }
        Ok(Threads { jobs: Some(jobs), threads })
    }

    /// The writer, with a second thread that copies the log into the database over a connection of its own.
    pub(crate) fn start_writer(mut connection: Connection, copier: Connection) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>(JOBS_MAX);
        let queue = Mutex::new(queue);
        let (copy, copy_asked) = std::sync::mpsc::sync_channel::<()>(1);
        let finish = jobs.downgrade();
        connection.wal_hook(Some(|_, pages| {
            LOG_PAGES.set(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }));
        let writer = spawn("store-writer", move || {
            let mut asked_at = 0;
            while run_next(&queue, &mut connection) {
                let pages = LOG_PAGES.get();
                // Fewer than when last asked: the log has begun anew since.
                if pages < asked_at {
                    asked_at = 0;
                }
                if pages >= asked_at + CHECKPOINT_PAGES && copy.try_send(()).is_ok() {
                    asked_at = pages;
                }
            }
        })?;
        let copier = spawn("store-checkpoint", move || {
            while copy_asked.recv().is_ok() {
                checkpoint(&copier);
                // The writer copies what came in meanwhile, and with nothing left its next commit begins the log anew.
                let Some(jobs) = finish.upgrade() else { return };
                if jobs.blocking_send(Box::new(|connection: &mut Connection| checkpoint(connection))).is_err() {
                    return;
                }
            }
        })?;
        Ok(Threads { jobs: Some(jobs), threads: vec![writer, copier] })
    }

    /// Runs a job and awaits its answer. It runs to its end even if nobody awaits it any longer.
    pub(crate) async fn call<T: Send + 'static>(&self, job: impl FnOnce(&mut Connection) -> T + Send + 'static) -> Result<T, JobLost> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(JobLost)?;
        let job: Job = Box::new(move |connection| {
            // Nobody may be listening any more.
            let _ = answer.send(job(connection));
        });
        jobs.send(job).await.map_err(|_| JobLost)?;
        answered.await.map_err(|_| JobLost)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs the next job; false when there will be none.
fn run_next(queue: &Mutex<mpsc::Receiver<Job>>, connection: &mut Connection) -> bool {
    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
    let Some(job) = job else { return false };
    if catch_unwind(AssertUnwindSafe(|| job(connection))).is_err() {
        tracing::error!("a job of the store panicked; its transaction is rolled back");
    }
    true
}

/// Copies what it can of the log without waiting for anybody. A failure is tried again after the next commits.
fn checkpoint(connection: &Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        tracing::warn!(%error, "the log could not be copied into the database");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_is_lost_with_its_transaction_and_the_next_one_runs() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let connection = || Connection::open_in_memory().expect("a database");
        let threads = Threads::start_writer(connection(), connection()).expect("threads");
        runtime.block_on(async {
            let made = threads.call(|connection| connection.execute_batch("CREATE TABLE t (x)")).await;
            made.expect("an answer").expect("a table");
            let lost = threads.call(|connection| {
                crate::sqlite::commit::begin(connection).expect("a transaction");
                connection.execute_batch("INSERT INTO t VALUES (1)").expect("a row");
                panic!("on purpose");
            });
            let lost: Result<(), JobLost> = lost.await;
            assert!(lost.is_err());
            let count = threads.call(|connection| {
                crate::sqlite::commit::transaction(connection, |connection| {
                    connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, u32>(0))
                })
            });
            assert_eq!(count.await.expect("an answer"), Ok(0));
        });
    }
}
