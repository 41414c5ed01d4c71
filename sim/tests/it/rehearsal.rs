//! Plans for rehearsals.

use std::collections::BTreeSet;

use punctual_sim::plan::{CallKind, Family, FaultKind, Plan, STARTS_AT, Selector};
use punctual_sim::rehearsal::{FAMILIES_DEFAULT, Options, families_of, plan_of};
use punctual_spec::file::{FileTask, read_text};
use punctual_spec::zones::Zones;

const HOUR: u64 = 3_600_000;

fn tasks() -> Vec<FileTask> {
    let text = "tasks:\n\
        - {name: report, trigger: {cron: '0 2 * * *', timezone: Europe/Berlin}, command: x}\n\
        - {name: capture, trigger: {fixed_rate: 1m}, command: x, rehearsal: {takes: [2s, 20s], fails: 0.5%, obeys_after: 3s, downstream: payments}}\n\
        - {name: remind, trigger: {delay: 30m}, command: x, rehearsal: {stubborn: true, fails_for_good: true, downstream: mail}}\n\
        - {name: by-hand, trigger: manual, command: x}\n\
        - {name: resting, enabled: false, trigger: {fixed_rate: 1m}, command: x}\n";
    read_text("tasks.yaml", text, &Zones::bundled()).unwrap().tasks
}

fn plan(options: &Options) -> Plan {
    plan_of(&tasks(), options)
}

#[test]
fn the_same_options_give_the_same_plan() {
    let options = Options { seed: 42, ..Options::default() };
    assert_eq!(plan(&options), plan(&options));
    assert_ne!(plan(&options), plan(&Options { seed: 43, ..options }));
}

#[test]
fn handlers_behave_as_the_file_says() {
    let plan = plan(&Options::default());
    assert_eq!(plan.tasks[1].document["name"], "capture");
    assert!(plan.tasks[1].document.get("rehearsal").is_none());
    let handler = &plan.tasks[1].handler;
    assert_eq!((handler.takes_ms, handler.fails_per_mille, handler.obeys_after_ms), ((2_000, 20_000), 5, Some(3_000)));
    assert_eq!((handler.fails_for_good, handler.downstream.as_deref()), (false, Some("payments")));
    let handler = &plan.tasks[2].handler;
    assert_eq!((handler.fails_for_good, handler.obeys_after_ms), (true, None));
    assert_eq!(plan.downstreams(), ["payments", "mail"]);
}

#[test]
fn what_does_not_fire_by_itself_is_triggered_now_and_then() {
    let plan = plan(&Options::default());
    let triggers_of =
        |task: usize| plan.calls.iter().filter(|call| matches!(call.what, CallKind::Trigger { task: other, .. } if other == task)).count();
    assert_eq!((triggers_of(0), triggers_of(1)), (0, 0));
    for task in [2, 3, 4] {
        assert!((12..=100).contains(&triggers_of(task)), "{} triggers", triggers_of(task));
    }
    assert!(plan.calls.iter().all(|call| call.at_ms < plan.heal_at_ms));
}

#[test]
fn faults_come_a_few_an_hour_over_the_whole_time_and_some_last() {
    for seed in 0..20 {
        let plan = plan(&Options { seed, ..Options::default() });
        let count = plan.faults.len();
        assert!((24..=140).contains(&count), "{count} faults in a day");
        for hours in (0..24).step_by(4) {
            let (from, until) = (hours * HOUR, (hours + 4) * HOUR);
            assert!(plan.faults.iter().any(|fault| (from..until).contains(&fault.at_ms)), "no fault from hour {hours} on");
        }
        assert!(plan.faults.iter().any(|fault| fault.lasts_ms >= 3 * 60_000), "nothing lasts");
        assert!(plan.faults.iter().all(|fault| fault.at_ms + fault.lasts_ms <= plan.heal_at_ms), "all have ended when it heals");
        assert!(plan.faults.is_sorted_by_key(|fault| fault.at_ms));
        assert!(plan.heal_at_ms == 24 * HOUR && plan.horizon_ms > plan.heal_at_ms + 60_000 && plan.horizon_ms <= 26 * HOUR);
    }
}

#[test]
fn only_families_that_were_asked_for_come_and_all_of_them() {
    let families = BTreeSet::from([Family::NodeCrash, Family::DbJitter, Family::RetryStorm]);
    for hours in [1, 24] {
        let plan = plan(&Options { seed: 7, hours, families: families.clone(), ..Options::default() });
        let seen: BTreeSet<Family> = plan.faults.iter().map(|fault| fault.kind.family(plan.knobs.semi_synchronous)).collect();
        assert_eq!(seen, families);
    }
    assert!(plan(&Options { families: BTreeSet::new(), ..Options::default() }).faults.is_empty());
    let lossy = plan(&Options { families: BTreeSet::from([Family::DbLostTail]), ..Options::default() });
    assert!(!lossy.knobs.semi_synchronous && lossy.faults.iter().all(|fault| fault.kind == FaultKind::Failover));
}

#[test]
fn every_fault_names_something_that_is_there() {
    let plan = plan(&Options { families: Family::ALL.into(), ..Options::default() });
    for fault in &plan.faults {
        match fault.kind {
            FaultKind::RetryStorm { downstream } => assert!(downstream < plan.downstreams().len()),
            FaultKind::Flood { task, .. } => assert!(task < plan.tasks.len()),
            _ => {}
        }
        match fault.on {
            Selector::Scheduler(index) => assert!(index < plan.shape.schedulers),
            Selector::Worker(index) => assert!(index < plan.shape.workers),
            _ => {}
        }
    }
}

#[test]
fn a_run_begins_when_it_is_told_to_and_older_plans_have_a_beginning_too() {
    let night = 1_792_886_400_000;
    assert_eq!(plan(&Options { starts_at: night, ..Options::default() }).starts_at, night);
    let mut json = serde_json::to_value(plan(&Options::default())).unwrap();
    json.as_object_mut().unwrap().remove("starts_at");
    assert_eq!(serde_json::from_value::<Plan>(json).unwrap().starts_at, STARTS_AT);
}

#[test]
fn families_are_named() {
    assert_eq!(families_of("node-crash, db-jitter"), Ok(BTreeSet::from([Family::NodeCrash, Family::DbJitter])));
    assert_eq!(families_of("none"), Ok(BTreeSet::new()));
    assert_eq!(families_of("all"), Ok(BTreeSet::from(Family::ALL)));
    let error = families_of("node-crash,meteor").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no family of faults `meteor`; use `all`, `none` or some of node-crash, rolling-restart"),
        "{error}"
    );
}

#[test]
fn the_command_that_does_it_again_says_everything_that_is_not_usual() {
    let usual = Options { seed: 42, ..Options::default() };
    let families = FAMILIES_DEFAULT.map(Family::name).join(",");
    assert_eq!(
        usual.command("examples/shop.yaml"),
        format!("punctual rehearse examples/shop.yaml --seed 42 --hours 24 --faults {families}")
    );
    let mut other = Options { seed: 1, hours: 3, families: BTreeSet::new(), starts_at: 1_792_886_400_000, ..usual };
    other.shape.workers = 9;
    let command = "punctual rehearse 'it'\\''s here.yaml' --seed 1 --hours 3 --faults none --workers 9 --start 2026-10-25T00:00:00Z";
    assert_eq!(other.command("it's here.yaml"), command);
    assert!(other.command("-x.yaml").contains(" './-x.yaml' "));
}
