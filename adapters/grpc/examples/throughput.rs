//! How many messages a second go through one stream: assignments down, and for each a started and a finished up.
//! `taskset -c 0 cargo run --release -p punctual-grpc --example throughput -- [seconds] [messages in a batch]`

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::protocol::{Assignment, End, Hello, Report, ToScheduler, ToWorker};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode};
use punctual_grpc::{ClientOptions, ServerOptions, dial, serve};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

fn assignment(number: u64) -> ToWorker {
    ToWorker::Assign(Arc::new(Assignment {
        instance: InstanceId(number),
        attempt: 1,
        fence: Fence(number),
        task: TaskId(5),
        task_name: "nightly-report".into(),
        version: Version(1),
        fire_time: Timestamp(1_790_000_000_000),
        ordinal: 0,
        run: 1,
        shard: None,
        map: None,
        node: None,
        handler: Handler { name: "report".into(), config: "{}".into() },
        payload: Some("{\"customer\": 4711, \"month\": \"2026-10\"}".into()),
        timeout: TimeoutPolicy::default(),
    }))
}

fn answers(assignment: &Assignment) -> [ToScheduler; 2] {
    let (instance, fence) = (assignment.instance, assignment.fence);
    let output = Output { bytes: b"{\"sent\": true}".to_vec(), dropped: 0 };
    [
        ToScheduler::Started { instance, fence },
        ToScheduler::Finished(Report {
            instance,
            fence,
            end: End::Succeeded,
            code: None,
            detail: None,
            output,
            result: None,
            items: None,
            retry_after: None,
        }),
    ]
}

/// Answers whatever it is assigned.
async fn work(mut inbound: mpsc::Receiver<ToWorkerNode>) {
    let mut link = None;
    while let Some(message) = inbound.recv().await {
        match message {
            ToWorkerNode::Connected(_, to_scheduler) => {
                let hello = Hello {
                    worker: WorkerId("w1".into()),
                    life: WorkerLife(1),
                    slots: 1,
                    handlers: Vec::new(),
                    draining: false,
                    running: Vec::new(),
                    received: 0,
                    traits: Default::default(),
                };
                let _ = to_scheduler.send(vec![ToScheduler::Hello(hello)]).await;
                link = Some(to_scheduler);
            }
            ToWorkerNode::Messages(_, messages) => {
                let assigned = messages.iter().filter_map(|message| match message {
                    ToWorker::Assign(assignment) => Some(answers(assignment)),
                    _ => None,
                });
                let answers: Vec<_> = assigned.flatten().collect();
                if let Some(link) = &link {
                    let _ = link.send(answers).await;
                }
            }
            _ => return,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let (seconds, batch) = (arguments.next().unwrap_or(5), arguments.next().unwrap_or(16));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    let seeds = vec![listener.local_addr().expect("an address").to_string()];
    let (node, mut inbound) = mpsc::channel(punctual_driver::scheduler::QUEUE_MAX);
    tokio::spawn(serve(listener, ServerOptions::for_loopback(ReplicaId("a".into())), node, std::future::pending()));
    let (worker, to_worker) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
    tokio::spawn(dial(ClientOptions { seeds, ..ClientOptions::default() }, worker).expect("options that can work"));
    tokio::spawn(work(to_worker));

    let Some(ToSchedulerNode::Connected(_, link)) = inbound.recv().await else { panic!("no worker") };
    let _hello = inbound.recv().await;
    link.send(vec![ToWorker::Welcome { heartbeat: Millis(10_000), lease: Millis(30_000) }]).await.expect("a link");
    let begun = Instant::now();
    let sending = tokio::spawn(async move {
        let mut number = 0;
        while begun.elapsed() < Duration::from_secs(seconds) {
            let messages = (number..number + batch).map(assignment).collect();
            number += batch;
            link.send(messages).await.expect("a link");
        }
        (number, link)
    });
    let mut finished = 0;
    let mut expected = None;
    // Held to the end: a link that is dropped is a connection that is over.
    let mut link = None;
    let mut sending = Some(sending);
    while expected != Some(finished) {
        let Some(ToSchedulerNode::Messages(_, messages)) = inbound.recv().await else { panic!("cut off") };
        finished += messages.iter().filter(|message| matches!(message, ToScheduler::Finished(_))).count() as u64;
        if sending.as_ref().is_some_and(tokio::task::JoinHandle::is_finished)
            && let Some(sending) = sending.take()
        {
            let (sent, held) = sending.await.expect("it does not panic");
            (expected, link) = (Some(sent), Some(held));
        }
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let rate = |count: u64| (count as f64 / elapsed).round();
    println!("{finished} assignments, each with its start and its result, in {elapsed:.2} s, batches of {batch}:");
    drop(link);
    println!("{} assignments a second, {} messages a second", rate(finished), rate(3 * finished));
}
