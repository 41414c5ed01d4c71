//! The loop of a worker node.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::protocol::{Assignment, End, ToScheduler};
use punctual_core::time::Millis;
use punctual_core::worker::{Command, Config, Event, WorkerNode};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};

use crate::alarm::Alarm;
use crate::link::{CutOff, Links, ToWorkerNode, WorkerStatus};
use crate::ports::{Clock, Ended, Executor, Stop};

/// Batches that may wait for the loop.
pub const QUEUE_MAX: usize = 1_024;
const EVENTS_AT_ONCE: usize = 256;
/// A node that waits for nothing comes round all the same.
const IDLE_MAX: Millis = Millis(60_000);

/// Runs a worker node until it has drained, or until everybody who could talk to it is gone.
pub async fn run<E: Executor, C: Clock>(config: Config, executor: Arc<E>, clock: Arc<C>, mut inbound: mpsc::Receiver<ToWorkerNode>) {
    // Bounded by the worker's slots.
    let (ended, mut has_ended) = mpsc::unbounded_channel();
    let machine = WorkerNode::new(config, clock.now().monotonic);
    let (links, running) = (Links::default(), FxHashMap::default());
    let mut node = Node { machine, executor, clock, ended, links, running };
    let mut alarm = Alarm::default();
    loop {
        if node.carry_out() {
            return;
        }
        let now = node.clock.now().monotonic;
        let at = node.machine.poll_timeout().unwrap_or(now + IDLE_MAX);
        let at = node.links.come_round(now, at);
        tokio::select! {
            biased;
            event = has_ended.recv() => node.handle(event.expect("the node holds a sender")),
            message = inbound.recv() => match message {
                Some(message) => node.take(message),
                None => return,
            },
            () = alarm.rings(now, at) => node.handle(Event::Tick),
        }
        for _ in 1..EVENTS_AT_ONCE {
            if let Ok(event) = has_ended.try_recv() {
                node.handle(event);
            } else if let Ok(message) = inbound.try_recv() {
                node.take(message);
            } else {
                break;
            }
        }
    }
}

struct Node<E, C> {
    machine: WorkerNode,
    executor: Arc<E>,
    clock: Arc<C>,
    ended: mpsc::UnboundedSender<Event>,
    links: Links<ToScheduler>,
    running: FxHashMap<(InstanceId, Fence), Running>,
}

/// An attempt that runs.
struct Running {
    stop: watch::Sender<Stop>,
}

impl<E: Executor, C: Clock> Node<E, C> {
    fn handle(&mut self, event: Event) {
        if let Event::Ended { instance, fence, .. } = &event {
            self.running.remove(&(*instance, *fence));
        }
        self.machine.handle_event(self.clock.now().monotonic, event);
    }

    fn take(&mut self, message: ToWorkerNode) {
        let event = match message {
            ToWorkerNode::Connected(connection, link) => {
                self.links.add(connection, link);
                Event::Connected(connection)
            }
            ToWorkerNode::Messages(connection, messages) => Event::Messages { connection, messages },
            ToWorkerNode::Disconnected(connection) => {
                self.links.remove(connection);
                Event::Disconnected(connection)
            }
            ToWorkerNode::Status(asker) => {
                // Who doesn't want to know any more has gone.
                let _ = asker.send(WorkerStatus { running: self.machine.running_count(), reports: self.machine.report_count() });
                return;
            }
            ToWorkerNode::Drain => Event::Drain,
            ToWorkerNode::CancelAll => Event::CancelAll,
        };
        self.handle(event);
    }

    /// Carries out all commands; answers whether the node has drained.
    fn carry_out(&mut self) -> bool {
        for connection in self.links.flush() {
            self.handle(Event::Disconnected(connection));
        }
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Send { connection, messages } => {
                    if let Err(CutOff) = self.links.send(connection, messages) {
                        self.handle(Event::Disconnected(connection));
                    }
                }
                Command::Start(assignment) => self.start(assignment),
                Command::Cancel { instance, fence } => self.stop(instance, fence, Stop::Cancel),
                Command::Kill { instance, fence } => self.stop(instance, fence, Stop::Kill),
                Command::Drained => return true,
            }
        }
        false
    }

    fn start(&mut self, assignment: Arc<Assignment>) {
        let (stop, stopped) = watch::channel(Stop::No);
        let (instance, fence) = (assignment.instance, assignment.fence);
        self.running.insert((instance, fence), Running { stop });
        let report = ReportOnDrop { instance, fence, ended: self.ended.clone(), how: None };
        let executor = self.executor.clone();
        tokio::spawn(async move {
            let how = executor.run(assignment, stopped).await;
            report.ended(how);
        });
    }

    fn stop(&self, instance: InstanceId, fence: Fence, how: Stop) {
        if let Some(running) = self.running.get(&(instance, fence)) {
            let _ = running.stop.send(how);
        }
    }
}

/// Tells the loop how an attempt ended, also where its handler panicked.
struct ReportOnDrop {
    instance: InstanceId,
    fence: Fence,
    ended: mpsc::UnboundedSender<Event>,
    how: Option<Ended>,
}

impl ReportOnDrop {
    fn ended(mut self, how: Ended) {
        self.how = Some(how);
    }
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        let how = self.how.take();
        let Ended { end, code, detail, output, result, items, retry_after } = how.unwrap_or_else(|| Ended {
            end: End::Failed,
            code: None,
            detail: Some(Arc::from("the handler panicked")),
            output: Output::default(),
            result: None,
            items: None,
            retry_after: None,
        });
        let (instance, fence) = (self.instance, self.fence);
        let _ = self.ended.send(Event::Ended { instance, fence, end, code, detail, output, result, items, retry_after });
    }
}
