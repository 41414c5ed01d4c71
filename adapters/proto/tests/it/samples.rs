//! One message of each kind, with something in every field.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutAction, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, PartitionId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::protocol::{Assignment, End, Hello, MapRole, Node, Report, Running, Shard, ToScheduler, ToWorker};
use punctual_core::routing::{WorkerTraits, WorkerVersion};
use punctual_core::time::{Millis, Timestamp};
use punctual_proto::connection::WorkerSide;
use punctual_proto::convert;
use punctual_proto::version::PROTOCOL_VERSION;
use punctual_proto::wire::ToWorkerFrame;

/// An instance of partition 43.
pub(crate) fn instance() -> InstanceId {
    InstanceId::new(PartitionId(43), 17)
}

/// An assignment.
pub(crate) fn assignment() -> Assignment {
    Assignment {
        instance: instance(),
        attempt: 2,
        fence: Fence(18),
        task: TaskId(5),
        task_name: Arc::from("每日对账"),
        version: Version(3),
        fire_time: Timestamp(-1),
        ordinal: 9,
        run: 2,
        shard: Some(Shard { index: 1, count: 3, key: Some(Arc::from("eu")) }),
        map: Some(MapRole::Reduce { results: Arc::from("1\n") }),
        node: Some(Node { name: Arc::from("load"), inputs: Arc::from(r#"{"extract":7}"#) }),
        handler: Handler { name: Arc::from("command"), config: Arc::from(r#"{"shell":"true"}"#) },
        payload: Some(Arc::from("payload")),
        timeout: TimeoutPolicy { after: Some(Millis(60_000)), grace: Millis(10_000), action: TimeoutAction::Wait },
    }
}

/// A worker's account of one attempt.
pub(crate) fn hello() -> Hello {
    Hello {
        worker: WorkerId(Arc::from("worker-1")),
        life: WorkerLife(7),
        slots: 4,
        handlers: vec![Arc::from("command"), Arc::from("http")],
        draining: true,
        running: vec![Running { instance: instance(), fence: Fence(18) }],
        received: 11,
        traits: WorkerTraits {
            tags: vec![Arc::from("gpu=true"), Arc::from("zone=eu")],
            version: WorkerVersion::parse("1.4.0-rc.1").ok(),
            reserved: [1, 2],
            ..WorkerTraits::default()
        },
    }
}

/// A report of a failure.
pub(crate) fn report() -> Report {
    Report {
        instance: instance(),
        fence: Fence(18),
        end: End::Failed,
        code: Some(-9),
        detail: Some(Arc::from("killed")),
        output: Output { bytes: vec![0, 255], dropped: 6 },
        result: Some(Arc::from("[1]")),
        items: Some(Arc::from("1\n2")),
        retry_after: Some(Millis(90_000)),
    }
}

/// All that a scheduler says.
pub(crate) fn to_worker() -> Vec<ToWorker> {
    let (instance, fence) = (instance(), Fence(18));
    vec![
        ToWorker::Welcome { heartbeat: Millis(10_000), lease: Millis(30_000) },
        ToWorker::Assign(Arc::new(assignment())),
        ToWorker::Cancel { instance, fence },
        ToWorker::Acknowledge { instance, fence },
        ToWorker::Alive,
        ToWorker::GiveAccount,
    ]
}

/// All that a worker says, a hello first.
pub(crate) fn to_scheduler() -> Vec<ToScheduler> {
    let (instance, fence) = (instance(), Fence(18));
    vec![
        ToScheduler::Hello(hello()),
        ToScheduler::Heartbeat,
        ToScheduler::Started { instance, fence },
        ToScheduler::Finished(report()),
        ToScheduler::Returned { instance, fence },
        ToScheduler::Draining,
    ]
}

/// A worker's side that a scheduler of this version has welcomed.
pub(crate) fn welcomed() -> WorkerSide {
    let mut worker = WorkerSide::default();
    let welcome = ToWorker::Welcome { heartbeat: Millis(10_000), lease: Millis(30_000) };
    let welcome = convert::worker_message_into_wire(welcome, PROTOCOL_VERSION).unwrap();
    worker.receive(ToWorkerFrame { sequence: 1, messages: vec![welcome] }).unwrap();
    worker
}
