//! Any message that may be sent.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutAction, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, PartitionId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::limits::{
    DELAY_MAX, DETAIL_BYTES_MAX, INPUTS_BYTES_MAX, OUTPUT_BYTES_MAX, PARTITIONS_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, RETRY_AFTER_MAX,
    SHARD_KEY_BYTES_MAX, SHARDS_MAX,
};
use punctual_core::protocol::{Assignment, End, Hello, MapRole, Node, Report, Running, Shard, ToScheduler, ToWorker};
use punctual_core::routing::{WorkerTraits, WorkerVersion};
use punctual_core::time::{Millis, Timestamp};
use punctual_proto::limits::SLOTS_MAX;

/// A number, the ends of its range more often than chance has them.
fn number(least: u64, most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![Just(least), Just(most), least..=most, least..=least.saturating_add(300).min(most)]
}

/// A text of up to so many bytes, short ones and the longest more often.
fn text(bytes_max: usize) -> impl Strategy<Value = Arc<str>> {
    prop_oneof![
        8 => any::<String>().prop_map(|text| Arc::from(text.as_str())),
        1 => Just(Arc::from("x".repeat(bytes_max))),
        1 => Just(Arc::from("")),
    ]
}

fn name() -> impl Strategy<Value = Arc<str>> {
    "\\PC{1,128}".prop_map(Arc::from)
}

fn instance() -> impl Strategy<Value = InstanceId> {
    (0..PARTITIONS_MAX, number(0, (1 << 48) - 1)).prop_map(|(partition, sequence)| InstanceId::new(PartitionId(partition), sequence))
}

fn attempt() -> impl Strategy<Value = (InstanceId, Fence)> {
    (instance(), number(0, u64::MAX).prop_map(Fence))
}

fn millis() -> impl Strategy<Value = Millis> {
    number(0, DELAY_MAX.0).prop_map(Millis)
}

fn timeout() -> impl Strategy<Value = TimeoutPolicy> {
    let action = prop_oneof![Just(TimeoutAction::Kill), Just(TimeoutAction::Wait)];
    (option::of(millis()), millis(), action).prop_map(|(after, grace, action)| TimeoutPolicy { after, grace, action })
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let fire_time = prop_oneof![Just(Timestamp::MIN.0), Just(Timestamp::MAX.0), Just(0), Timestamp::MIN.0..=Timestamp::MAX.0];
    let numbers = (1..=u32::MAX, 1..=u32::MAX, number(0, u64::MAX), fire_time, number(0, u64::MAX));
    let texts = (name(), name(), text(4_096), option::of(text(PAYLOAD_BYTES_MAX)));
    let shard = option::of((number(0, 9_999), option::of(text(SHARD_KEY_BYTES_MAX))))
        .prop_map(|shard| shard.map(|(index, key)| Shard { index: index as u32, count: SHARDS_MAX, key }));
    let map = option::of(option::of(text(1_000)).prop_map(|results| match results {
        Some(results) => MapRole::Reduce { results },
        None => MapRole::List,
    }));
    let node = option::of((name(), text(INPUTS_BYTES_MAX))).prop_map(|node| node.map(|(name, inputs)| Node { name, inputs }));
    let parts = (attempt(), numbers, texts, timeout(), (1..=u32::MAX, shard, map, node));
    parts.prop_map(|((instance, fence), numbers, (task_name, name, config, payload), timeout, (run, shard, map, node))| {
        let (attempt, version, task, fire_time, ordinal) = numbers;
        Assignment {
            instance,
            attempt,
            fence,
            task: TaskId(task),
            task_name,
            version: Version(version),
            fire_time: Timestamp(fire_time),
            ordinal,
            run,
            shard,
            map,
            node,
            handler: Handler { name, config },
            payload,
            timeout,
        }
    })
}

pub(crate) fn hello() -> impl Strategy<Value = Hello> {
    let running = vec(attempt().prop_map(|(instance, fence)| Running { instance, fence }), 0..20);
    let numbers = (number(0, u64::MAX), 1..=SLOTS_MAX, number(0, u64::MAX));
    let said = (name(), numbers, vec(name(), 0..5), any::<bool>(), running, traits());
    said.prop_map(|(worker, numbers, handlers, draining, running, mut traits)| {
        let (life, slots, received) = numbers;
        traits.reserved = [traits.reserved[0] % (slots + 1), 0];
        traits.reserved[1] = slots - traits.reserved[0];
        Hello { worker: WorkerId(worker), life: WorkerLife(life), slots, handlers, draining, running, received, traits }
    })
}

fn traits() -> impl Strategy<Value = WorkerTraits> {
    let tag = "[a-zA-Z0-9_./-]{1,20}=[a-zA-Z0-9_./:-]{1,20}".prop_map(Arc::from);
    let version = option::of("[0-9]{1,4}([.][0-9]{1,4}){0,3}(-[a-z0-9.]{1,8})?([+][a-z0-9.]{0,8})?");
    (vec(tag, 0..4), version, any::<u32>()).prop_map(|(tags, version, reserved)| WorkerTraits {
        tags,
        version: version.map(|text| WorkerVersion::parse(&text).expect("a version")),
        reserved: [reserved, 0],
        ..WorkerTraits::default()
    })
}

fn output() -> impl Strategy<Value = Output> {
    let long = any::<u8>().prop_map(|byte| vec![byte; OUTPUT_BYTES_MAX]);
    let bytes = prop_oneof![9 => vec(any::<u8>(), 0..64), 1 => long];
    (bytes, number(0, u64::MAX)).prop_map(|(bytes, dropped)| Output { bytes, dropped })
}

fn report() -> impl Strategy<Value = Report> {
    let end = prop::sample::select(vec![End::Succeeded, End::Failed, End::FailedForGood, End::TimedOut, End::Cancelled]);
    let result = option::of(text(RESULT_BYTES_MAX));
    let parts = (attempt(), end, option::of(any::<i32>()), option::of(text(DETAIL_BYTES_MAX)), output(), result);
    let retry_after = option::of((0..=RETRY_AFTER_MAX.0).prop_map(Millis));
    let items = option::of(text(1_000));
    (parts, retry_after, items).prop_map(|(((instance, fence), end, code, detail, output, result), retry_after, items)| Report {
        instance,
        fence,
        end,
        code,
        detail,
        output,
        result,
        items,
        retry_after,
    })
}

fn welcome() -> impl Strategy<Value = ToWorker> {
    number(3, DELAY_MAX.0).prop_flat_map(|lease| {
        number(1, lease / 3).prop_map(move |heartbeat| ToWorker::Welcome { heartbeat: Millis(heartbeat), lease: Millis(lease) })
    })
}

/// What a scheduler may say.
pub(crate) fn to_worker() -> impl Strategy<Value = ToWorker> {
    prop_oneof![
        welcome(),
        assignment().prop_map(|assignment| ToWorker::Assign(Arc::new(assignment))),
        attempt().prop_map(|(instance, fence)| ToWorker::Cancel { instance, fence }),
        attempt().prop_map(|(instance, fence)| ToWorker::Kill { instance, fence }),
        attempt().prop_map(|(instance, fence)| ToWorker::Acknowledge { instance, fence }),
        Just(ToWorker::Alive),
        Just(ToWorker::GiveAccount),
    ]
}

/// What a worker may say.
pub(crate) fn to_scheduler() -> impl Strategy<Value = ToScheduler> {
    prop_oneof![
        hello().prop_map(ToScheduler::Hello),
        Just(ToScheduler::Heartbeat),
        attempt().prop_map(|(instance, fence)| ToScheduler::Started { instance, fence }),
        report().prop_map(ToScheduler::Finished),
        attempt().prop_map(|(instance, fence)| ToScheduler::Returned { instance, fence }),
        Just(ToScheduler::Draining),
    ]
}
