//! Attempts to run, and waiting for things with a deadline.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId};
use punctual_core::protocol::{Assignment, MapRole, Node, Shard};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Ended, Executor, Stop};
use punctual_worker::{BuiltIn, InternalAddresses, Options};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Nothing here takes this long unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn built_in(marker: &str, allow_commands: bool) -> BuiltIn {
    let (worker, internal) = (WorkerId("w1".into()), InternalAddresses::loopback());
    BuiltIn::new(&Options { allow_commands, worker, marker: marker.to_owned(), internal, logs: None })
}

pub(crate) fn assignment(handler: &str, config: &Value, payload: Option<&str>) -> Arc<Assignment> {
    Arc::new(Assignment {
        instance: InstanceId(42),
        attempt: 3,
        fence: Fence(77),
        task: TaskId(5),
        task_name: "每日对账 \u{7}".into(),
        version: Version(1),
        fire_time: Timestamp(1_700_000_000_500),
        ordinal: 0,
        run: 1,
        shard: None,
        map: None,
        node: None,
        handler: Handler { name: handler.into(), config: config.to_string().into() },
        payload: payload.map(Arc::from),
        timeout: TimeoutPolicy::default(),
    })
}

/// An attempt that is under way.
pub(crate) struct Attempt {
    pub(crate) stop: watch::Sender<Stop>,
    pub(crate) task: JoinHandle<Ended>,
}

impl Attempt {
    pub(crate) fn begin(executor: &BuiltIn, handler: &str, config: &Value, payload: Option<&str>) -> Attempt {
        let (stop, receiver) = watch::channel(Stop::No);
        Attempt { stop, task: tokio::spawn(executor.run(assignment(handler, config, payload), receiver)) }
    }

    pub(crate) async fn end(self) -> Ended {
        tokio::time::timeout(DEADLINE, self.task).await.expect("the attempt hangs").expect("the attempt panicked")
    }
}

pub(crate) async fn run_on(executor: &BuiltIn, handler: &str, config: Value, payload: Option<&str>) -> Ended {
    Attempt::begin(executor, handler, &config, payload).end().await
}

/// Runs an attempt of a shard, in its second run.
pub(crate) async fn run_shard(handler: &str, config: Value, shard: Shard) -> Ended {
    let mut assignment = assignment(handler, &config, None);
    *Arc::make_mut(&mut assignment) = Assignment { run: 2, shard: Some(shard), ..(*assignment).clone() };
    let (_stop, receiver) = watch::channel(Stop::No);
    let running = built_in("m", true).run(assignment, receiver);
    tokio::time::timeout(DEADLINE, running).await.expect("the attempt hangs")
}

/// Runs an attempt of what lists or reduces for a map.
pub(crate) async fn run_for_map(handler: &str, config: Value, role: MapRole) -> Ended {
    let mut assignment = assignment(handler, &config, None);
    *Arc::make_mut(&mut assignment) = Assignment { map: Some(role), ..(*assignment).clone() };
    let (_stop, receiver) = watch::channel(Stop::No);
    let running = built_in("m", true).run(assignment, receiver);
    tokio::time::timeout(DEADLINE, running).await.expect("the attempt hangs")
}

/// An attempt of a workflow's node that was given this.
pub(crate) async fn run_node(handler: &str, config: Value, inputs: &str) -> Ended {
    let mut assignment = assignment(handler, &config, None);
    let node = Some(Node { name: "lädt".into(), inputs: inputs.into() });
    *Arc::make_mut(&mut assignment) = Assignment { node, ..(*assignment).clone() };
    let (_stop, receiver) = watch::channel(Stop::No);
    let running = built_in("m", true).run(assignment, receiver);
    tokio::time::timeout(DEADLINE, running).await.expect("the attempt hangs")
}

pub(crate) async fn run(handler: &str, config: Value) -> Ended {
    run_on(&built_in("punctual-tests", true), handler, config, None).await
}

pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a file with a number and a line feed in it, as `echo $!` writes it.
pub(crate) async fn pid_in(file: &Path) -> i32 {
    let read = || std::fs::read_to_string(file).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
    until(&format!("a number in {}", file.display()), || read().is_some()).await;
    read().expect("a number")
}

/// The one-letter state of a process; `None` where it is gone. One that only waits for its parent to notice is gone.
pub(crate) fn process_state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn lives(pid: i32) -> bool {
    process_state(pid).is_some()
}

pub(crate) async fn gone(pid: i32) {
    until(&format!("process {pid} is gone"), || !lives(pid)).await;
}

/// Kills a process when dropped, so that a failed test leaves nothing behind.
pub(crate) struct KillOnDrop(pub(crate) i32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(self.0).expect("a number"), rustix::process::Signal::KILL);
    }
}

pub(crate) fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.bytes).expect("UTF-8")
}
