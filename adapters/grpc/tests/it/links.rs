//! Messages over links that work, and links that break in ordinary ways.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerLife};
use punctual_core::protocol::{Assignment, End, Hello, Report, ToScheduler, ToWorker};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode};
use punctual_grpc::LinkState;

use crate::harness::{Dialling, Listening, hello, in_time, options};

const INSTANCE: InstanceId = InstanceId(7);
const FENCE: Fence = Fence(3);

pub(crate) fn assignment(payload: &str) -> ToWorker {
    ToWorker::Assign(Arc::new(Assignment {
        instance: INSTANCE,
        attempt: 1,
        fence: FENCE,
        task: TaskId(5),
        task_name: "每日对账".into(),
        version: Version(1),
        fire_time: Timestamp(1_700_000_000_500),
        ordinal: 0,
        run: 1,
        shard: None,
        map: None,
        node: None,
        handler: Handler { name: "noop".into(), config: "{}".into() },
        payload: Some(payload.into()),
        timeout: TimeoutPolicy::default(),
    }))
}

#[tokio::test]
async fn every_kind_of_message_goes_both_ways() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, to_scheduler) = worker.connected("w1").await;
    let (down, to_worker) = scheduler.connected().await;
    assert_eq!(scheduler.messages(down, 1).await, [hello("w1")]);
    let downwards = [
        ToWorker::Welcome { heartbeat: Millis(1_000), lease: Millis(3_000) },
        assignment("{\"a\": 1}"),
        ToWorker::Cancel { instance: INSTANCE, fence: FENCE },
        ToWorker::Acknowledge { instance: INSTANCE, fence: FENCE },
        ToWorker::Alive,
        ToWorker::GiveAccount,
    ];
    for message in &downwards {
        to_worker.send(vec![message.clone()]).await.expect("the link is open");
    }
    assert_eq!(worker.messages(up, downwards.len()).await, downwards);
    let report = Report {
        instance: INSTANCE,
        fence: FENCE,
        end: End::Succeeded,
        code: Some(-1),
        detail: Some("fine".into()),
        output: Output { bytes: vec![0, 255, 10], dropped: 9 },
        result: Some("{}".into()),
        items: None,
        retry_after: Some(Millis(1_500)),
    };
    let upwards = [
        ToScheduler::Heartbeat,
        ToScheduler::Started { instance: INSTANCE, fence: FENCE },
        ToScheduler::Finished(report),
        ToScheduler::Returned { instance: INSTANCE, fence: FENCE },
        ToScheduler::Draining,
        hello("w1"),
    ];
    to_scheduler.send(upwards.to_vec()).await.expect("the link is open");
    assert_eq!(scheduler.messages(down, upwards.len()).await, upwards);
    assert_eq!(worker.state().await.1, LinkState::Connected);
    worker.end().await;
    scheduler.disconnected(down).await;
}

#[tokio::test]
async fn a_scheduler_that_is_killed_and_comes_back_is_found_again() {
    let mut scheduler = Listening::start(options("a")).await;
    let address = scheduler.address;
    let mut worker = Dialling::start(&[address.to_string()], |_| {});
    let (first, _link) = worker.connected("w1").await;
    scheduler.connected().await;
    scheduler.kill().await;
    worker.disconnected(first).await;
    assert_eq!(worker.state().await.1, LinkState::Connected);
    let reason = worker.reason().await;
    let mut scheduler = Listening::start_at(address, options("a")).await;
    let (second, _link) = worker.connected("w1").await;
    assert!(second > first, "{second:?} after {first:?}");
    let _to_worker = scheduler.welcomed().await;
    // However often it tried: what failed in one way was told once.
    let mut told = vec![reason];
    loop {
        match worker.state().await.1 {
            LinkState::Disconnected { reason } => told.push(reason),
            state => break assert_eq!(state, LinkState::Connected),
        }
    }
    told.dedup();
    assert!(told.len() <= 3, "{told:?}");
}

#[tokio::test]
async fn a_scheduler_that_shuts_down_says_so() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, _link) = worker.connected("w1").await;
    let _to_worker = scheduler.welcomed().await;
    worker.messages(up, 1).await;
    scheduler.shut_down().await.expect("nothing is wrong");
    worker.disconnected(up).await;
    let reason = worker.reason().await;
    assert!(reason.contains("shutting down"), "{reason}");
}

#[tokio::test]
async fn a_node_that_lets_go_of_a_link_ends_the_stream() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, _to_scheduler) = worker.connected("w1").await;
    let (down, to_worker) = scheduler.welcomed().await;
    drop(to_worker);
    scheduler.disconnected(down).await;
    worker.messages(up, 1).await;
    worker.disconnected(up).await;
    let reason = worker.reason().await;
    assert!(reason.contains("let go"), "{reason}");
    // It comes back by itself, and this time the worker lets go.
    let (_, to_scheduler) = worker.connected("w1").await;
    let (down, _to_worker) = scheduler.welcomed().await;
    drop(to_scheduler);
    scheduler.disconnected(down).await;
}

#[tokio::test]
async fn of_two_workers_under_one_id_the_older_is_told_and_comes_back_slowly() {
    let mut scheduler = Listening::start(options("a")).await;
    let seeds = [scheduler.address.to_string()];
    let mut older = Dialling::start(&seeds, |_| {});
    let (_, _older_link) = older.connected("w1").await;
    let (first, _to_older) = scheduler.welcomed().await;
    let mut newer = Dialling::start(&seeds, |_| {});
    let (_, _newer_link) = newer.connected("w1").await;
    // The node knows the newer one before it loses the older one.
    let (second, _to_newer) = scheduler.welcomed().await;
    scheduler.disconnected(first).await;
    let reason = older.reason().await;
    assert!(reason.contains("replaced") && reason.contains("\"w1\""), "{reason}");
    // For now the newer one has the place to itself.
    let turn = punctual_grpc::limits::REDIAL_REPLACED[0] / 2;
    let nobody = tokio::time::timeout(turn, scheduler.node.recv()).await;
    assert!(nobody.is_err(), "{nobody:?} although {second:?} is there");
}

#[tokio::test]
async fn an_older_life_waits_until_the_newer_one_has_gone() {
    let mut scheduler = Listening::start(options("a")).await;
    let seeds = [scheduler.address.to_string()];
    let mut newer = Dialling::start(&seeds, |_| {});
    let ToWorkerNode::Connected(_, link) = newer.next().await else { panic!("it connects first") };
    let ToScheduler::Hello(hello) = hello("w1") else { panic!("a hello") };
    link.send(vec![ToScheduler::Hello(Hello { life: WorkerLife(2), ..hello })]).await.expect("the link is open");
    let (first, _to_newer) = scheduler.welcomed().await;
    let mut older = Dialling::start(&seeds, |_| {});
    let (refused, _refused_link) = older.connected("w1").await;
    older.disconnected(refused).await;
    let reason = older.reason().await;
    assert!(reason.contains("a newer worker runs under the id \"w1\""), "{reason}");
    // The scheduler has not heard of it; it does when the newer one has gone.
    drop(link);
    newer.end().await;
    scheduler.disconnected(first).await;
    let (_, _older_link) = older.connected("w1").await;
    scheduler.welcomed().await;
}

#[tokio::test]
async fn many_batches_come_in_order() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, _to_scheduler) = worker.connected("w1").await;
    let (_down, to_worker) = scheduler.welcomed().await;
    const COUNT: u64 = 5_000;
    let sending = tokio::spawn(async move {
        for number in 1..=COUNT {
            to_worker.send(vec![ToWorker::Acknowledge { instance: INSTANCE, fence: Fence(number) }]).await.expect("the link is open");
        }
        to_worker
    });
    let messages = worker.messages(up, 1 + COUNT as usize).await;
    let fences = messages.iter().filter_map(|message| match message {
        ToWorker::Acknowledge { fence, .. } => Some(fence.0),
        _ => None,
    });
    assert!(fences.eq(1..=COUNT));
    drop(in_time("sending", sending).await);
}

#[tokio::test]
async fn numbers_of_connections_are_not_those_of_links_in_the_process() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, _link) = worker.connected("w1").await;
    let ToSchedulerNode::Connected(down, _) = scheduler.next().await else { panic!("not connected") };
    assert!(up.0 > u64::from(u32::MAX) && down.0 > u64::from(u32::MAX));
}
