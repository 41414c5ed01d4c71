//! Links between scheduler nodes and worker nodes, as both loops see them: batches of messages over bounded channels.
//!
//! A transport is whoever fills and empties those channels. [`in_process`] joins two nodes of one process; others carry the same batches
//! over sockets.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_core::ids::{ConnectionId, PartitionId};
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_core::scheduler::{BreakerView, WaitingView, WorkerView};
use punctual_core::time::{Millis, Monotonic};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// Batches that may wait in one direction of a link.
pub const LINK_BATCHES_MAX: usize = 64;
/// Messages that may wait for room in a link besides. A peer that lets more pile up is cut off.
pub const HELD_MESSAGES_MAX: usize = 1 << 20;
/// How soon to try again to get rid of messages that wait for room.
const FLUSH_INTERVAL: Millis = Millis(1);
/// How soon nodes that were cut off from each other are joined again.
const REJOIN_AFTER: Duration = Duration::from_millis(100);

/// The sending end of a link, as a loop has it: it never waits. What finds no room is held and goes out as one batch when there is some.
#[derive(Debug)]
struct Outbox<M> {
    link: mpsc::Sender<Vec<M>>,
    held: Vec<M>,
}

/// The peer is gone, or was so far behind that it had better start anew.
#[derive(Debug)]
pub(crate) struct CutOff;

impl<M> Outbox<M> {
    fn send(&mut self, messages: Vec<M>) -> Result<(), CutOff> {
        match self.held.is_empty() {
            true => self.held = messages,
            false => self.held.extend(messages),
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CutOff> {
        if self.held.is_empty() {
            return Ok(());
        }
        match self.link.try_send(std::mem::take(&mut self.held)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(messages)) if messages.len() <= HELD_MESSAGES_MAX => {
                self.held = messages;
                Ok(())
            }
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => Err(CutOff),
        }
    }
}

/// The links of a loop. Who is cut off has no link any more.
#[derive(Debug)]
pub(crate) struct Links<M>(BTreeMap<ConnectionId, Outbox<M>>);

impl<M> Default for Links<M> {
    fn default() -> Self {
        Links(BTreeMap::new())
    }
}

impl<M> Links<M> {
    pub(crate) fn add(&mut self, connection: ConnectionId, link: mpsc::Sender<Vec<M>>) {
        self.0.insert(connection, Outbox { link, held: Vec::new() });
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) {
        self.0.remove(&connection);
    }

    /// Sends, where there is such a link.
    pub(crate) fn send(&mut self, connection: ConnectionId, messages: Vec<M>) -> Result<(), CutOff> {
        let Some(link) = self.0.get_mut(&connection) else { return Ok(()) };
        link.send(messages).inspect_err(|_| self.remove(connection))
    }

    /// Sends what had found no room; answers who was cut off.
    pub(crate) fn flush(&mut self) -> Vec<ConnectionId> {
        let cut_off: Vec<_> = self.0.iter_mut().filter_map(|(connection, link)| link.flush().err().map(|CutOff| *connection)).collect();
        for connection in &cut_off {
            self.0.remove(connection);
        }
        cut_off
    }

    /// When to come round where the loop itself would at `at`: sooner while messages wait for room.
    pub(crate) fn come_round(&self, now: Monotonic, at: Monotonic) -> Monotonic {
        let is_behind = self.0.values().any(|link| !link.held.is_empty());
        if is_behind { at.min(now + FLUSH_INTERVAL) } else { at }
    }
}

/// What reaches a scheduler node from outside.
#[derive(Debug)]
pub enum ToSchedulerNode {
    /// A worker has connected; what is sent to it goes here.
    Connected(ConnectionId, mpsc::Sender<Vec<ToWorker>>),
    /// Messages of a worker.
    Messages(ConnectionId, Vec<ToScheduler>),
    /// A worker is gone.
    Disconnected(ConnectionId),
    /// Something was written to an inbox.
    InboxSignalled,
    /// Partitions may have become free.
    LeasesSignalled,
    /// Somebody wants to know how it stands.
    Status(oneshot::Sender<SchedulerStatus>),
    /// Fire and assign nothing more.
    Quiesce,
    /// Write what there is to write, give everything up, stop.
    Shutdown,
}

/// How a scheduler node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerStatus {
    /// The partitions that it owns.
    pub partitions: Vec<PartitionId>,
    /// Tasks in its memory.
    pub tasks: usize,
    /// Instances in its memory that are written.
    pub instances: usize,
    /// The workers that it knows.
    pub workers: Vec<WorkerView>,
    /// What waits for a worker.
    pub waiting: Vec<WaitingView>,
    /// The circuit breakers that have seen failures lately.
    pub breakers: Vec<BreakerView>,
    /// Instances that wait for the rate of their task.
    pub throttled: usize,
}

/// How a worker node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Attempts that it runs.
    pub running: usize,
    /// Results that nobody has acknowledged yet.
    pub reports: usize,
}

/// What reaches a worker node from outside.
#[derive(Debug)]
pub enum ToWorkerNode {
    /// A scheduler has been reached; what is sent to it goes here.
    Connected(ConnectionId, mpsc::Sender<Vec<ToScheduler>>),
    /// Messages of a scheduler.
    Messages(ConnectionId, Vec<ToWorker>),
    /// A scheduler is gone.
    Disconnected(ConnectionId),
    /// Somebody wants to know how it stands.
    Status(oneshot::Sender<WorkerStatus>),
    /// Take nothing more, finish what is there, stop.
    Drain,
    /// Ask everything that runs to end.
    CancelAll,
}

/// Joins a scheduler node and a worker node of one process, again if one cuts the other off. Ends when either of them does.
pub async fn in_process(scheduler: mpsc::Sender<ToSchedulerNode>, worker: mpsc::Sender<ToWorkerNode>) {
    for number in 1.. {
        let connection = ConnectionId(number);
        if join(connection, &scheduler, &worker).await.is_none() {
            return;
        }
        // Whoever is still there learns that the other is not.
        let worker_is_gone = worker.send(ToWorkerNode::Disconnected(connection)).await.is_err();
        let scheduler_is_gone = scheduler.send(ToSchedulerNode::Disconnected(connection)).await.is_err();
        if worker_is_gone || scheduler_is_gone {
            return;
        }
        sleep(REJOIN_AFTER).await;
    }
}

/// Carries messages until one of the two lets go of the link; `None`: one of them has ended.
async fn join(connection: ConnectionId, scheduler: &mpsc::Sender<ToSchedulerNode>, worker: &mpsc::Sender<ToWorkerNode>) -> Option<()> {
    let (to_worker, mut from_scheduler) = mpsc::channel(LINK_BATCHES_MAX);
    let (to_scheduler, mut from_worker) = mpsc::channel(LINK_BATCHES_MAX);
    scheduler.send(ToSchedulerNode::Connected(connection, to_worker)).await.ok()?;
    worker.send(ToWorkerNode::Connected(connection, to_scheduler)).await.ok()?;
    let upwards = async {
        while let Some(messages) = from_worker.recv().await {
            scheduler.send(ToSchedulerNode::Messages(connection, messages)).await.ok()?;
        }
        Some(())
    };
    let downwards = async {
        while let Some(messages) = from_scheduler.recv().await {
            worker.send(ToWorkerNode::Messages(connection, messages)).await.ok()?;
        }
        Some(())
    };
    tokio::select! {
        biased;
        end = upwards => end,
        end = downwards => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);

    #[tokio::test]
    async fn what_finds_no_room_is_held_and_comes_in_order() {
        let (link, mut peer) = mpsc::channel(1);
        let mut links = Links::default();
        links.add(ONE, link);
        for number in 0..5 {
            links.send(ONE, vec![number]).expect("held, not cut off");
        }
        assert_eq!(links.come_round(Monotonic(7), Monotonic(100)), Monotonic(8), "something waits");
        assert_eq!(peer.recv().await, Some(vec![0]));
        assert_eq!(links.flush(), [], "there is room now");
        assert_eq!(links.come_round(Monotonic(7), Monotonic(100)), Monotonic(100));
        assert_eq!(peer.recv().await, Some(vec![1, 2, 3, 4]));
    }

    #[tokio::test]
    async fn a_peer_that_never_reads_is_cut_off_in_the_end() {
        let (link, _peer) = mpsc::channel(1);
        let mut links = Links::default();
        links.add(ONE, link);
        links.send(ONE, vec![0]).expect("there is room");
        links.send(ONE, vec![0; HELD_MESSAGES_MAX]).expect("held");
        links.send(ONE, vec![0]).expect_err("too much");
        links.send(ONE, vec![0]).expect("there is no such link any more");
    }

    #[test]
    fn a_peer_that_is_gone_is_noticed_when_what_was_held_goes_out() {
        let (link, peer) = mpsc::channel(1);
        let mut links = Links::default();
        links.add(ONE, link);
        links.send(ONE, vec![0]).expect("there is room");
        links.send(ONE, vec![0]).expect("held");
        drop(peer);
        assert_eq!(links.flush(), [ONE]);
        assert_eq!(links.flush(), []);
    }

    #[tokio::test]
    async fn nodes_that_were_cut_off_are_joined_again() {
        let (to_scheduler, mut scheduler) = mpsc::channel(8);
        let (to_worker, mut worker) = mpsc::channel(8);
        let joined = tokio::spawn(in_process(to_scheduler, to_worker));
        for number in 1..=3 {
            let expected = ConnectionId(number);
            let Some(ToSchedulerNode::Connected(connection, _link)) = scheduler.recv().await else { panic!("not joined") };
            assert_eq!(connection, expected);
            let Some(ToWorkerNode::Connected(connection, link)) = worker.recv().await else { panic!("not joined") };
            assert_eq!(connection, expected);
            link.send(vec![ToScheduler::Heartbeat]).await.expect("joined");
            let Some(ToSchedulerNode::Messages(connection, messages)) = scheduler.recv().await else { panic!("no message") };
            assert_eq!((connection, messages), (expected, vec![ToScheduler::Heartbeat]));
            // The worker lets go: both learn of it.
            drop(link);
            assert!(matches!(worker.recv().await, Some(ToWorkerNode::Disconnected(gone)) if gone == expected));
            assert!(matches!(scheduler.recv().await, Some(ToSchedulerNode::Disconnected(gone)) if gone == expected));
        }
        drop((scheduler, worker));
        joined.await.expect("it ends when the nodes do");
    }
}
