//! A short run on real processes: crashes, pauses, a failover and a cut, and everything holds. And what was really seen is enough to notice
//! that something does not.

use std::path::PathBuf;
use std::process::Command;

use punctual_chaos::cluster::Programs;
use punctual_chaos::run::{Ran, judge, run, verdicts};
use punctual_core::instance::State;
use punctual_core::time::Millis;
use punctual_sim::check::Verdict;
use punctual_sim::history::{History, What, Who};
use punctual_sim::plan::{Call, CallKind, Fault, FaultKind, HandlerPlan, Knobs, Plan, STARTS_AT, Selector, Shape, TaskPlan};
use punctual_sim::problems::problems;
use punctual_sim::workload::document;
use punctual_spec::handler::NOOP;
use punctual_spec::spec::{Concurrency, CustomHandler, Handler, TaskSpec, Trigger, WhenFull};
use serde_json::Map;

/// Nothing goes wrong from then on; a minute later everything must have come to its end.
const HEAL_AT_MS: u64 = 34_000;
const HORIZON_MS: u64 = HEAL_AT_MS + 63_000;

fn task(name: &str, trigger: Trigger, takes_ms: (u64, u64), fails_per_mille: u32) -> TaskPlan {
    let noop = Handler::Custom(CustomHandler { name: NOOP.to_owned(), config: Map::new() });
    let mut spec = TaskSpec::new(name, trigger, noop);
    spec.concurrency = Concurrency { max_running: 3, when_full: WhenFull::Queue, max_queue: Some(20), key: None };
    spec.retry.first = Millis(200);
    let handler = HandlerPlan { takes_ms, fails_per_mille, fails_for_good: false, obeys_after_ms: Some(100), downstream: None };
    TaskPlan { document: document(spec), handler }
}

fn plan() -> Plan {
    let fault = |at_ms, lasts_ms, kind, on| Fault { at_ms, lasts_ms, kind, on };
    let trigger = |at_ms, key: Option<&str>| {
        let key = key.map(str::to_owned);
        Call { at_ms, what: CallKind::Trigger { task: 2, delay_ms: None, key } }
    };
    Plan {
        seed: 1,
        shape: Shape { schedulers: 2, workers: 2, slots: 4, partitions: 4 },
        knobs: Knobs::default(),
        tasks: vec![
            task("each-second", Trigger::FixedRate(Millis(1_000)), (5, 50), 100),
            task("loop", Trigger::FixedDelay(Millis(500)), (500, 3_000), 0),
            task("by-hand", Trigger::Manual, (1, 5), 0),
        ],
        calls: vec![
            trigger(2_000, Some("a")),
            trigger(4_000, Some("a")),
            trigger(9_000, None),
            Call { at_ms: 14_000, what: CallKind::Cancel { nth: 0 } },
            trigger(20_000, Some("b")),
        ],
        faults: vec![
            fault(3_000, 4_000, FaultKind::Crash, Selector::Scheduler(0)),
            fault(6_000, 3_000, FaultKind::Crash, Selector::Busy(0)),
            fault(11_000, 0, FaultKind::Failover, Selector::World),
            fault(13_000, 12_000, FaultKind::Pause, Selector::Owner(0)),
            fault(18_000, 6_000, FaultKind::Isolate, Selector::Worker(1)),
            fault(27_000, 0, FaultKind::Reset, Selector::Scheduler(1)),
        ],
        heal_at_ms: HEAL_AT_MS,
        horizon_ms: HORIZON_MS,
        starts_at: STARTS_AT,
    }
}

/// The shipped program, built by itself.
fn punctual() -> PathBuf {
    let chaos = PathBuf::from(env!("CARGO_BIN_EXE_punctual-chaos"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "punctual", "--bin", "punctual"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    // The folder of the profile lies in the target folder.
    let target = chaos.parent().and_then(|profile| profile.parent()).expect("a target folder");
    assert!(build.env("CARGO_TARGET_DIR", target).status().expect("cargo runs").success());
    chaos.with_file_name("punctual")
}

fn violated(history: &History) -> Vec<&'static str> {
    let judged = judge(&plan(), history);
    judged.iter().filter(|judged| matches!(judged.verdict, Verdict::Violated { .. })).map(|judged| judged.property).collect()
}

/// The records without those that these are.
fn without(history: &History, is_left_out: impl Fn(&What) -> bool) -> History {
    History { records: history.records.iter().filter(|record| !is_left_out(&record.what)).cloned().collect() }
}

#[test]
fn a_short_run_holds_what_is_promised_and_would_show_it_if_not() {
    let plan = plan();
    assert_eq!(problems(&plan), []);
    let programs = Programs { punctual: punctual(), chaos: PathBuf::from(env!("CARGO_BIN_EXE_punctual-chaos")) };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let ran = runtime.block_on(run(plan, &programs, folder.path())).unwrap();
    if !ran.is_good() {
        panic!("{}\n{}", folder.keep().display(), verdicts(&ran).join("\n"));
    }
    something_has_happened(&ran);
    mutilated(&ran.history);
}

fn something_has_happened(ran: &Ran) {
    let count = |is_it: fn(&What) -> bool| ran.history.records.iter().filter(|record| is_it(&record.what)).count();
    assert!(count(|what| matches!(what, What::Began { .. })) > 60);
    assert!(count(|what| matches!(what, What::Effect { .. })) > 50);
    assert!(count(|what| matches!(what, What::Crashed)) >= 2);
    assert!(count(|what| matches!(what, What::LeaseGranted { .. })) > 4);
    assert!(ran.faults.iter().all(|done| done.skipped.is_none()), "{:#?}", ran.faults);
    let ended = ran.history.records.iter().filter_map(|record| if let What::Committed(batch) = &record.what { Some(batch) } else { None });
    let ended = ended.flat_map(|batch| &batch.updates).filter(|update| update.row.state == State::Succeeded).count();
    assert!(ended > 50, "{ended}");
}

/// What was seen, with something wrong in it.
fn mutilated(history: &History) {
    assert_eq!(violated(history), [] as [&str; 0]);
    let place = |is_it: fn(&What) -> bool| history.records.iter().rposition(|record| is_it(&record.what)).expect("there is one");

    let mut doubled = history.clone();
    let effect = place(|what| matches!(what, What::Effect { .. }));
    doubled.records.insert(effect, doubled.records[effect].clone());
    assert!(violated(&doubled).contains(&"effect.once"));

    let began = place(|what| matches!(what, What::Began { .. }));
    let What::Began { instance, fence, .. } = history.records[began].what else { unreachable!() };
    let gives_it = |what: &What| match what {
        What::Committed(batch) => {
            let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row));
            rows.into_iter().any(|row| row.id == instance && row.fence == fence)
        }
        _ => false,
    };
    assert!(violated(&without(history, gives_it)).contains(&"speak.after_commit"));

    let begins = |what: &What| matches!(what, What::Began { .. });
    assert!(violated(&without(history, begins)).contains(&"state.begun"));

    let succeeds = |what: &What| matches!(what, What::Effect { .. });
    assert!(violated(&without(history, succeeds)).contains(&"effect.once"));

    let accepted = |what: &What| matches!(what, What::Submitted { .. });
    assert!(violated(&without(history, accepted)).contains(&"submit.durable"));

    let mut early = history.clone();
    early.records.iter_mut().filter(|record| matches!(record.who, Who::Worker(_))).for_each(|record| record.at = 0);
    assert!(violated(&early).contains(&"fire.never_early"));
}
