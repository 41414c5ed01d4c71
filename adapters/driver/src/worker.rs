//! The loop of a worker node.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::limits;
use punctual_core::protocol::{Assignment, End, ToScheduler};
use punctual_core::time::{Millis, Monotonic};
use punctual_core::worker::{Command, Config, Event, WorkerNode};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, watch};

use crate::alarm::Alarm;
use crate::link::{CutOff, Links, ToWorkerNode, WorkerStatus};
use crate::ports::{Clock, Ended, Executor, Stop, Window};

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
    let opened = Arc::new(Notify::new());
    let (links, running) = (Links::default(), FxHashMap::default());
    let mut node = Node { machine, executor, clock, ended, links, running, opened: opened.clone(), look_at: None };
    let mut alarm = Alarm::default();
    loop {
        node.look();
        if node.carry_out() {
            return;
        }
        let now = node.clock.now().monotonic;
        let at = node.machine.poll_timeout().into_iter().chain(node.look_at).min().unwrap_or(now + IDLE_MAX);
        let at = node.links.come_round(now, at);
        tokio::select! {
            biased;
            event = has_ended.recv() => node.handle(event.expect("the node holds a sender")),
            message = inbound.recv() => match message {
                Some(message) => node.take(message),
                None => return,
            },
            () = opened.notified() => {
                node.look_at.get_or_insert(now + limits::PROGRESS_INTERVAL);
            }
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
    /// Told when a handler has opened its window.
    opened: Arc<Notify>,
    /// When to look through the windows; `None`: none is open.
    look_at: Option<Monotonic>,
}

/// An attempt that runs.
struct Running {
    stop: watch::Sender<Stop>,
    window: Window,
    /// The mark of what was last told of it, and when.
    told: (u64, Monotonic),
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
        let window = Window::telling(self.opened.clone());
        self.running.insert((instance, fence), Running { stop, window: window.clone(), told: (0, Monotonic(0)) });
        let report = ReportOnDrop { instance, fence, ended: self.ended.clone(), how: None };
        let executor = self.executor.clone();
        tokio::spawn(async move {
            let how = executor.run_in(assignment, stopped, window).await;
            report.ended(how);
        });
    }

    fn stop(&self, instance: InstanceId, fence: Fence, how: Stop) {
        if let Some(running) = self.running.get(&(instance, fence)) {
            let _ = running.stop.send(how);
        }
    }

    /// Looks through the windows, where it is time, and tells what is new: of the attempt first of which was told longest ago, and no more
    /// than fits. The rest has its turn the next time.
    fn look(&mut self) {
        let now = self.clock.now().monotonic;
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let mut news = Vec::new();
        for (key, Running { window, told: (mark, at), .. }) in &self.running {
            let Some(written) = window.written() else { continue };
            self.look_at = Some(now + limits::PROGRESS_INTERVAL);
            if written.mark() != *mark {
                news.push((*at, *key));
            }
        }
        news.sort_unstable();
        let mut room = limits::PROGRESS_BYTES_MAX;
        for (_, key) in news {
            let running = self.running.get_mut(&key).expect("found above");
            let written = running.window.written().expect("it is open");
            // What is written in between is told twice rather than never.
            let (mark, output) = (written.mark(), written.output());
            let Some(left) = room.checked_sub(output.bytes.len() + limits::PROGRESS_ROW_BYTES) else { break };
            room = left;
            running.told = (mark, now);
            self.handle(Event::Wrote { instance: key.0, fence: key.1, output });
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
