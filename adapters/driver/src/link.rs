//! Links between scheduler nodes and worker nodes, as both loops see them: batches of messages over bounded channels.
//!
//! A transport is whoever fills and empties those channels. [`in_process`] joins two nodes of one process; others carry the same batches
//! over sockets.

use punctual_core::ids::ConnectionId;
use punctual_core::protocol::{ToScheduler, ToWorker};
use tokio::sync::mpsc;

/// Batches that may wait in one direction of a link. A peer that lets more pile up is cut off.
pub const LINK_BATCHES_MAX: usize = 4_096;

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
    /// Fire and assign nothing more.
    Quiesce,
    /// Write what there is to write, give everything up, stop.
    Shutdown,
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
    /// Take nothing more, finish what is there, stop.
    Drain,
    /// Ask everything that runs to end.
    CancelAll,
}

/// Joins a scheduler node and a worker node of one process. Ends when either of them does.
pub async fn in_process(connection: ConnectionId, scheduler: mpsc::Sender<ToSchedulerNode>, worker: mpsc::Sender<ToWorkerNode>) {
    let (to_worker, mut from_scheduler) = mpsc::channel(LINK_BATCHES_MAX);
    let (to_scheduler, mut from_worker) = mpsc::channel(LINK_BATCHES_MAX);
    if scheduler.send(ToSchedulerNode::Connected(connection, to_worker)).await.is_err() {
        return;
    }
    if worker.send(ToWorkerNode::Connected(connection, to_scheduler)).await.is_err() {
        return;
    }
    let up = scheduler.clone();
    let upwards = async {
        while let Some(messages) = from_worker.recv().await {
            if up.send(ToSchedulerNode::Messages(connection, messages)).await.is_err() {
                return;
            }
        }
    };
    let downwards = async {
        while let Some(messages) = from_scheduler.recv().await {
            if worker.send(ToWorkerNode::Messages(connection, messages)).await.is_err() {
                return;
            }
        }
    };
    // A link of which one direction has gone is no link.
    tokio::pin!(upwards, downwards);
    tokio::select! {
        biased;
        () = &mut upwards => {}
        () = &mut downwards => {}
    }
    // Whoever is still there learns that the other is not.
    let _ = worker.send(ToWorkerNode::Disconnected(connection)).await;
    let _ = scheduler.send(ToSchedulerNode::Disconnected(connection)).await;
}
