//! Scheduler and worker in one process, on one store.

use std::sync::Arc;

use punctual_core::ids::{ReplicaId, WorkerId, WorkerLife};
use punctual_core::limits;
use punctual_core::{scheduler, worker};
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode, in_process};
use punctual_driver::ports::{Alone, Clock, Executor, Observer, Store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The two nodes, running.
pub(crate) struct Embedded {
    /// To the scheduler node.
    pub(crate) scheduler: mpsc::Sender<ToSchedulerNode>,
    /// To the worker node.
    pub(crate) worker: mpsc::Sender<ToWorkerNode>,
    scheduler_task: JoinHandle<()>,
    worker_task: JoinHandle<()>,
}

impl Embedded {
    /// Starts both. The worker keeps its id over restarts and has a new life each time, so that the scheduler learns at once what the
    /// last life has left unfinished.
    pub(crate) fn start<S: Store, E: Executor, C: Clock, O: Observer>(
        store: Arc<S>,
        executor: Arc<E>,
        clock: Arc<C>,
        observer: Arc<O>,
        slots: u32,
    ) -> Self {
        let now = clock.now();
        let (scheduler, to_scheduler) = mpsc::channel(punctual_driver::scheduler::QUEUE_MAX);
        let (worker, to_worker) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
        let config = scheduler::Config {
            replica: ReplicaId(Arc::from(format!("local-{}", std::process::id()))),
            partitions: store.partitions(),
            commits_at_once: store.commits_at_once(),
            misfire_threshold: limits::MISFIRE_THRESHOLD,
        };
        let scheduler_task =
            tokio::spawn(punctual_driver::scheduler::run(config, store, clock.clone(), Arc::new(Alone), observer, to_scheduler));
        let config = worker::Config {
            worker: WorkerId(Arc::from("local")),
            life: WorkerLife(now.wall.0.unsigned_abs()),
            slots,
            handlers: executor.handlers(),
            traits: Default::default(),
        };
        let worker_task = tokio::spawn(punctual_driver::worker::run(config, executor, clock, to_worker));
        tokio::spawn(in_process(scheduler.clone(), worker.clone()));
        Embedded { scheduler, worker, scheduler_task, worker_task }
    }

    /// Waits for one of the nodes to end, which none does unless it is told to: it has broken an assertion.
    pub(crate) async fn failed(&mut self) {
        tokio::select! {
            biased;
            _ = &mut self.scheduler_task => {}
            _ = &mut self.worker_task => {}
        }
    }

    /// Lets what runs end, writes everything down and stops. Each `interrupts` asks more urgently: the first one cancels what runs.
    pub(crate) async fn drain(mut self, mut interrupts: mpsc::Receiver<()>) {
        let _ = self.scheduler.send(ToSchedulerNode::Quiesce).await;
        let _ = self.worker.send(ToWorkerNode::Drain).await;
        loop {
            tokio::select! {
                biased;
                _ = &mut self.worker_task => break,
                interrupt = interrupts.recv() => match interrupt {
                    Some(()) => { let _ = self.worker.send(ToWorkerNode::CancelAll).await; }
                    None => { let _ = (&mut self.worker_task).await; break; }
                },
            }
        }
        let _ = self.scheduler.send(ToSchedulerNode::Shutdown).await;
        let _ = self.scheduler_task.await;
    }
}
