use std::sync::Arc;

use punctual_core::ids::{Epoch, PartitionId, ReplicaId, TaskId, Version, WorkerId};
use punctual_core::routing::{Needs, Nobody, Understanding, WorkerTraits, WorkerVersion};
use punctual_core::scheduler::{BreakerView, WaitingView, WorkerView};
use punctual_driver::ports::Actor;
use punctual_spec::file::read_text;
use punctual_spec::zones::Zones;

use super::*;

/// 2026-11-29T17:00:00Z.
const NOW: Timestamp = Timestamp(1_795_971_600_000);

/// A cluster in which all is well, until a test changes something.
struct World {
    machine_now: Timestamp,
    replicas: Vec<ReplicaView>,
    partitions: Vec<PartitionView>,
    own: Option<SchedulerStatus>,
    trouble: Option<&'static str>,
    tasks: Vec<KnownTask>,
    in_progress: FxHashMap<Arc<str>, u32>,
    pauses: Vec<PauseView>,
    inconsistencies: Vec<Inconsistency>,
}

fn worker(name: &str, version: &str) -> WorkerView {
    let version = Some(WorkerVersion::parse(version).unwrap());
    WorkerView {
        is_drained: false,
        worker: WorkerId(name.into()),
        slots: 4,
        held: 0,
        is_connected: true,
        is_draining: false,
        handlers: vec!["command".into(), "http".into()],
        traits: WorkerTraits { version, ..WorkerTraits::default() },
    }
}

fn task(fields: &str, next_fire: Option<i64>) -> KnownTask {
    let file = format!("tasks:\n  - {{name: a, {fields}}}\n");
    let task = read_text("t", &file, &Zones::load()).unwrap_or_else(|problems| panic!("{problems}")).tasks.remove(0);
    let view = TaskView {
        task: TaskId(1),
        name: "a".into(),
        version: Version(1),
        document: task.spec.to_json().into(),
        removed: false,
        next_fire: next_fire.map(|ms| Timestamp(NOW.0 + ms)),
        source: "file".into(),
    };
    KnownTask { view, definition: Ok((*task.definition).clone()), is_paused: false }
}

const MINUTELY: &str = "trigger: {cron: \"* * * * *\"}, command: x";

impl World {
    fn new() -> World {
        let expires_at = Timestamp(NOW.0 + 5_000);
        let replica = |id: &str| ReplicaView { id: ReplicaId(id.into()), address: None, since: NOW, expires_at };
        let partition = |number: u16, owner: &str| PartitionView {
            partition: PartitionId(number),
            owner: Some(ReplicaId(owner.into())),
            epoch: Epoch(1),
            expires_at,
            commit_seq: 0,
            inbox: 0,
            live: 0,
        };
        World {
            machine_now: NOW,
            replicas: vec![replica("a"), replica("b")],
            partitions: vec![partition(0, "a"), partition(1, "b")],
            own: Some(SchedulerStatus {
                partitions: vec![PartitionId(0)],
                tasks: 1,
                instances: 0,
                workers: vec![worker("w1", "1.0.0"), worker("w2", "1.0.0")],
                waiting: Vec::new(),
                breakers: Vec::new(),
                throttled: 0,
            }),
            trouble: None,
            tasks: vec![task(MINUTELY, Some(60_000)), task("trigger: manual, command: x", None)],
            in_progress: FxHashMap::default(),
            pauses: Vec::new(),
            inconsistencies: Vec::new(),
        }
    }

    fn own(&mut self) -> &mut SchedulerStatus {
        self.own.as_mut().unwrap()
    }

    fn found(&self) -> Vec<Finding> {
        examine(&Facts {
            now: NOW,
            machine_now: self.machine_now,
            replicas: &self.replicas,
            partitions: &self.partitions,
            own: self.own.as_ref(),
            is_served: true,
            trouble: self.trouble,
            tasks: &self.tasks,
            in_progress: &self.in_progress,
            pauses: &self.pauses,
            inconsistencies: &self.inconsistencies,
        })
    }
}

#[test]
fn where_all_is_well_nothing_is_found() {
    assert_eq!(World::new().found(), []);
}

/// One thing at a time: each is named, with what it is about and what to do.
#[test]
fn each_thing_that_is_wrong_is_named() {
    use Severity::{Warning, Wrong};
    type Change = fn(&mut World);
    let cases: [(&str, Severity, &str, Change); 19] = [
        ("trouble", Wrong, "", |world| world.trouble = Some("disk full")),
        ("no_replica", Wrong, "", |world| world.replicas.clear()),
        ("replica_silent", Warning, "b (since 2026-11-29T16:59:59.999Z)", |world| world.replicas[1].expires_at = Timestamp(NOW.0 - 1)),
        ("partition_unowned", Wrong, "1", |world| world.partitions[1].owner = None),
        ("partition_unowned", Wrong, "0", |world| world.partitions[0].expires_at = Timestamp(NOW.0 - 1)),
        ("owner_silent", Wrong, "1", |world| drop(world.replicas.remove(1))),
        ("scheduler_stopped", Wrong, "", |world| world.own = None),
        ("clock", Warning, "", |world| world.machine_now = Timestamp(NOW.0 - 3_000)),
        ("no_worker", Wrong, "", |world| world.own().workers.clear()),
        ("worker_away", Warning, "w2", |world| world.own().workers[1].is_connected = false),
        ("nobody_for", Wrong, "", |world| {
            let needs = Needs { handler: "mail".into(), routing: None, understands: Understanding::Firings, worker: None };
            world.own().waiting.push(WaitingView { needs, waiting: 2, nobody: Some(Nobody::UnknownHandler) });
        }),
        ("handler_unknown", Warning, "a (mail)", |world| world.tasks.push(task("trigger: manual, handler: mail", None))),
        ("worker_versions", Warning, "2.0.0", |world| world.own().workers.push(worker("w3", "2.0.0"))),
        ("breaker_open", Warning, "db", |world| {
            let state = BreakerState::Open { until: punctual_core::time::Monotonic(9) };
            world.own().breakers.push(BreakerView { downstream: "db".into(), state, opens_in: None, failures: 5, held: 0 });
        }),
        ("task_unreadable", Wrong, "a: why", |world| world.tasks[0].definition = Err("why".to_owned())),
        ("cursor_missing", Wrong, "a: due at 2026-11-29T17:01:00Z", |world| world.tasks[0].view.next_fire = None),
        ("cursor_ahead", Wrong, "a: at 2026-11-29T19:00:00Z, due at 2026-11-29T17:01:00Z", |world| {
            world.tasks[0].view.next_fire = Some(Timestamp(NOW.0 + 7_200_000));
        }),
        ("cursor_behind", Wrong, "a: due at 2026-11-29T16:54:00Z", |world| {
            world.tasks[0].view.next_fire = Some(Timestamp(NOW.0 - 360_000))
        }),
        ("over_limit", Warning, "a: 2 of 1", |world| _ = world.in_progress.insert("a".into(), 2)),
    ];
    for (check, severity, example, change) in cases {
        let mut world = World::new();
        change(&mut world);
        let found = world.found();
        let named = found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("{check}: {found:?}"));
        assert_eq!(named.severity, severity, "{check}");
        assert!(example.is_empty() || named.examples.iter().any(|is| is == example), "{named:?}");
        assert!(named.says.ends_with('.') || check == "trouble", "{named:?}");
        assert!(!named.fix.is_empty(), "{named:?}");
    }
}

#[test]
fn what_is_meant_so_is_nothing_wrong() {
    let mut world = World::new();
    // Disabled, paused, fired by hand, or over.
    world.tasks = vec![
        task(&format!("{MINUTELY}, enabled: false"), None),
        task("trigger: {fixed_delay: 1m}, command: x", None),
        task("trigger: {delay: 1m}, command: x", None),
        task("trigger: {cron: \"* * * * *\", ends_at: 2026-01-01T00:00:00Z}, command: x", None),
        // The first fire time that is left out, which is passed by with the last.
        task("trigger: {cron: \"* * * * *\", blackouts: [{from: \"10:00\", to: \"23:00\"}]}, command: x", Some(-3_600_000)),
        task("trigger: {fixed_rate: 1h}, command: x", Some(3_600_000)),
        // It has fired since the time was read.
        task(MINUTELY, Some(120_000)),
    ];
    let mut held = task(MINUTELY, Some(-3_600_000));
    held.is_paused = true;
    world.tasks.push(held);
    assert_eq!(world.found(), []);
    world.pauses = vec![PauseView { target: PauseTarget::Task("a".into()), since: NOW, actor: Actor::default() }];
    let found = world.found();
    assert_eq!((found.len(), found[0].check, found[0].severity), (1, "paused", Severity::Warning));
    world.pauses[0].target = PauseTarget::Worker("w1".into());
    let found = world.found();
    assert_eq!((found.len(), found[0].check, &*found[0].examples), (1, "worker_drained", &["w1".to_owned()][..]));
    assert!(found[0].fix.contains("undrain"), "{found:?}");
}

/// Where nobody serves, replicas and workers are no matter, and clocks are.
#[test]
fn the_clock_is_looked_at_also_where_nobody_serves() {
    let in_progress = FxHashMap::default();
    let facts = |machine_now| Facts {
        now: NOW,
        machine_now,
        replicas: &[],
        partitions: &[],
        own: None,
        is_served: false,
        trouble: None,
        tasks: &[],
        in_progress: &in_progress,
        pauses: &[],
        inconsistencies: &[],
    };
    assert_eq!(examine(&facts(NOW)), []);
    let found = examine(&facts(Timestamp(NOW.0 + 300_000)));
    assert_eq!((found.len(), found[0].check), (1, "clock"));
}

#[test]
fn every_contradiction_has_words_of_its_own_and_a_fix() {
    let mut told = std::collections::BTreeSet::new();
    for check in Check::ALL {
        let finding = of_store(&Inconsistency { check, examples: vec!["43-17".to_owned()], has_more: true });
        assert!(told.insert(finding.check) && told.insert(finding.says.clone().leak()), "{finding:?}");
        assert!(finding.says.ends_with('.') && finding.fix.len() > 20 && finding.more, "{finding:?}");
    }
    let mut world = World::new();
    world.pauses = vec![PauseView { target: PauseTarget::All, since: NOW, actor: Actor::default() }];
    world.inconsistencies = vec![Inconsistency { check: Check::Lease, examples: vec!["64".to_owned()], has_more: false }];
    let order: Vec<_> = world.found().iter().map(|finding| finding.check).collect();
    assert_eq!(order, ["lease_missing", "paused"], "what is worst comes first");
}
