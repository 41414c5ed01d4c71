//! Frames over simulated TCP. Loss, repetition, delay and resets are done to whole frames, on the sender's side; cuts are the network's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use madsim::net::{TcpListener, TcpStream};
use madsim::time::sleep;
use punctual_core::ids::ConnectionId;
use punctual_core::time::{Millis, Monotonic};
use punctual_driver::alarm::Alarm;
use punctual_driver::link::{LINK_BATCHES_MAX, ToSchedulerNode, ToWorkerNode};
use punctual_proto::connection::{SchedulerSide, Side, WorkerSide};
use punctual_proto::frame::{decode, encode};
use punctual_proto::version::Versions;
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::history::Who;
use crate::trouble::{REDIAL_AFTER_MS, SILENCE_MAX_MS, chance};
use crate::world::env::Env;

const SILENCE_MAX: Millis = Millis(SILENCE_MAX_MS);
const REDIAL_AFTER: Duration = Duration::from_millis(REDIAL_AFTER_MS);

/// Where a scheduler listens.
pub(super) fn address(scheduler: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1 + scheduler as u8], 7_000))
}

/// Takes workers' connections in, for as long as the node lives.
pub(super) async fn listen(env: Arc<Env>, scheduler: usize, life: u64, node: mpsc::Sender<ToSchedulerNode>) {
    let listener = TcpListener::bind(address(scheduler)).await.expect("the address is free");
    let numbers = Arc::new(AtomicU64::new(0));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (env, node) = (env.clone(), node.clone());
        let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::spawn(async move {
            let connection = ConnectionId(number);
            let (link, outgoing) = mpsc::channel(LINK_BATCHES_MAX);
            if node.send(ToSchedulerNode::Connected(connection, link)).await.is_err() {
                return;
            }
            let random = env.plan.stream(&format!("frames/scheduler/{scheduler}/{life}/{number}"));
            let deliver = |messages| node.send(ToSchedulerNode::Messages(connection, messages));
            pump(&env, Who::Scheduler(scheduler), SchedulerSide::default(), stream, outgoing, random, deliver).await;
            let _ = node.send(ToSchedulerNode::Disconnected(connection)).await;
        });
    }
}

/// What a worker speaks.
fn versions(worker: usize) -> Versions {
    let newest = crate::features::newest_version(worker).unwrap_or(Versions::OURS.newest);
    Versions { newest, ..Versions::OURS }
}

/// Keeps a worker connected to a scheduler, for as long as the node lives.
pub(super) async fn dial(
    env: Arc<Env>,
    worker: usize,
    life: u64,
    scheduler: usize,
    numbers: Arc<AtomicU64>,
    node: mpsc::Sender<ToWorkerNode>,
) {
    loop {
        if let Ok(stream) = TcpStream::connect(address(scheduler)).await {
            let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
            let connection = ConnectionId(number);
            let (link, outgoing) = mpsc::channel(LINK_BATCHES_MAX);
            if node.send(ToWorkerNode::Connected(connection, link)).await.is_err() {
                return;
            }
            let random = env.plan.stream(&format!("frames/worker/{worker}/{life}/{number}"));
            let deliver = |messages| node.send(ToWorkerNode::Messages(connection, messages));
            let side = WorkerSide::speaking(versions(worker));
            pump(&env, Who::Worker(worker), side, stream, outgoing, random, deliver).await;
            if node.send(ToWorkerNode::Disconnected(connection)).await.is_err() {
                return;
            }
        }
        sleep(REDIAL_AFTER).await;
    }
}

/// Carries messages both ways until something breaks.
async fn pump<S, D, F, E>(
    env: &Env,
    who: Who,
    mut side: S,
    mut stream: TcpStream,
    mut outgoing: mpsc::Receiver<Vec<S::Out>>,
    mut random: ChaCha8Rng,
    mut deliver: D,
) where
    S: Side,
    D: FnMut(Vec<S::In>) -> F,
    F: Future<Output = Result<(), E>>,
{
    let mut arrived = BytesMut::with_capacity(4_096);
    let mut resets = env.resets_of(who);
    let reset = resets.recv();
    tokio::pin!(reset);
    let now = || Monotonic(env.at());
    let mut heard_at = now();
    // The silence is measured when it may have lasted too long, not whenever something is heard.
    let (mut silence, mut look_at) = (Alarm::default(), heard_at + SILENCE_MAX);
    let (mut sending, mut on_its_way) = (Alarm::default(), VecDeque::<(Monotonic, BytesMut)>::new());
    loop {
        let at = now();
        tokio::select! {
            biased;
            _ = &mut reset => return,
            read = stream.read_buf(&mut arrived) => {
                // The end of a stream is never a success: whoever is at the other end may have crashed.
                if !matches!(read, Ok(count) if count > 0) {
                    return;
                }
                heard_at = now();
                loop {
                    let frame = match decode::<S::Incoming>(&mut arrived) {
                        Ok(Some(frame)) => frame,
                        Ok(None) => break,
                        Err(_) => return,
                    };
                    let repeated = side.dropped().repeated_frames;
                    let Ok(messages) = side.receive(frame) else {
                        env.probe("frame.missed");
                        return;
                    };
                    if side.dropped().repeated_frames > repeated {
                        env.probe("frame.repeated");
                    }
                    if !messages.is_empty() && deliver(messages).await.is_err() {
                        return;
                    }
                }
            }
            messages = outgoing.recv() => {
                let Some(messages) = messages else { return };
                let Ok(frames) = side.send(messages) else { return };
                let mut bytes = BytesMut::new();
                let node = env.node(who);
                for frame in frames {
                    // Drawn in any case, so that what comes later is the same with and without.
                    let (is_lost, is_doubled) = (chance(&mut random, node.lose_per_mille.max(1)), chance(&mut random, node.duplicate_per_mille.max(1)));
                    if is_lost && node.lose_per_mille > 0 {
                        continue;
                    }
                    for _ in 0..1 + usize::from(is_doubled && node.duplicate_per_mille > 0) {
                        if encode(&frame, &mut bytes).is_err() {
                            return;
                        }
                    }
                }
                let due_at = now() + Millis(node.delay_ms);
                // Never past what went before.
                let due_at = on_its_way.back().map_or(due_at, |(before, _)| due_at.max(*before));
                on_its_way.push_back((due_at, bytes));
            }
            () = sending.rings(at, on_its_way.front().map_or(at, |(due_at, _)| *due_at)), if !on_its_way.is_empty() => {}
            () = silence.rings(at, look_at) => {
                look_at = heard_at + SILENCE_MAX;
                if look_at <= now() {
                    return;
                }
            }
        }
        while on_its_way.front().is_some_and(|(due_at, _)| *due_at <= now()) {
            let (_, bytes) = on_its_way.pop_front().expect("looked at");
            if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }
}
