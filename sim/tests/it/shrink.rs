//! Shrinking finds what a failure needs, and nothing else stays.

use punctual_sim::load::settling_ms;
use punctual_sim::plan::{CallKind, Family, Fault, FaultKind, HandlerPlan, Knobs, Plan, Selector, Shape};
use punctual_sim::problems::problems;
use punctual_sim::shrink::shrink;
use punctual_sim::swarm::{Profile, Swarm, swarm};
use punctual_sim::workload::spec;
use punctual_spec::spec::{TimeoutAction, Trigger};
use serde_json::json;

const BUDGET: usize = 10_000;

/// Shrinks the first drawn plans that fail; each result still fails and can be carried out.
fn shrunk(swarm_options: &Swarm, fails: impl Fn(&Plan) -> bool) -> Vec<Plan> {
    let found: Vec<Plan> = (0..2_000).map(|seed| swarm(seed, swarm_options)).filter(|plan| fails(plan)).take(5).collect();
    assert_eq!(found.len(), 5, "the failure is too rare");
    let small = |plan: &Plan| {
        let small = shrink(plan, BUDGET, &fails, |_| {});
        assert!(fails(&small), "seed {}", plan.seed);
        assert_eq!(problems(&small), [], "seed {}", plan.seed);
        assert!(small.horizon_ms >= small.heal_at_ms + settling_ms(&small));
        small
    };
    found.iter().map(small).collect()
}

fn max_running(plan: &Plan, task: usize) -> u32 {
    spec(&plan.tasks[task].document).unwrap().concurrency.max_running
}

#[test]
fn a_pause_and_a_task_are_what_is_left() {
    let fails = |plan: &Plan| {
        let is_long = |fault: &Fault| fault.kind == FaultKind::Pause && fault.lasts_ms >= 12_000 && matches!(fault.on, Selector::Owner(_));
        plan.faults.iter().any(is_long) && (0..plan.tasks.len()).any(|task| max_running(plan, task) == 1)
    };
    for small in shrunk(&Swarm::default(), fails) {
        assert_eq!(small.faults, [Fault { at_ms: 0, lasts_ms: 12_000, kind: FaultKind::Pause, on: Selector::Owner(0) }]);
        assert_eq!((small.tasks.len(), small.calls.len()), (1, 0));
        let name = small.tasks[0].document["name"].clone();
        assert_eq!(small.tasks[0].document, json!({"name": name, "trigger": "manual", "handler": {"name": "noop"}}));
        let quiet = HandlerPlan { takes_ms: (0, 0), fails_per_mille: 0, fails_for_good: false, obeys_after_ms: Some(0), downstream: None };
        assert_eq!(small.tasks[0].handler, quiet);
        assert_eq!(small.shape, Shape { schedulers: 1, workers: 1, slots: 1, partitions: 1 });
        assert_eq!(small.knobs, Knobs::default());
        assert_eq!(small.heal_at_ms, 12_000);
        assert_eq!(small.horizon_ms - small.heal_at_ms, settling_ms(&small));
    }
}

#[test]
fn faults_that_must_overlap_stay_both() {
    let overlap = |one: &Fault, other: &Fault| one.at_ms < other.at_ms + other.lasts_ms && other.at_ms < one.at_ms + one.lasts_ms;
    let fails = |plan: &Plan| {
        let slow: Vec<&Fault> = plan.faults.iter().filter(|fault| fault.kind == FaultKind::DatabaseDown).collect();
        let crashed = plan.faults.iter().filter(|fault| fault.kind == FaultKind::Crash);
        crashed.clone().any(|crash| slow.iter().any(|slow| overlap(crash, slow)))
    };
    for small in shrunk(&Swarm::default(), fails) {
        assert_eq!((small.faults.len(), small.tasks.len(), small.calls.len()), (2, 0, 0), "{:?}", small.faults);
        assert!(small.faults.iter().all(|fault| fault.at_ms + fault.lasts_ms <= 10), "{:?}", small.faults);
    }
}

#[test]
fn calls_follow_their_task_to_its_new_place() {
    let name = |plan: &Plan, task: usize| plan.tasks[task].document["name"].as_str().unwrap().to_owned();
    let fails = |plan: &Plan| {
        plan.calls.iter().any(|call| match call.what {
            CallKind::Trigger { task, delay_ms: Some(_), .. } => name(plan, task).starts_with("cron") && name(plan, task) != "cron-0",
            _ => false,
        })
    };
    for small in shrunk(&Swarm::default(), fails) {
        assert_eq!((small.faults.len(), small.tasks.len(), small.calls.len()), (0, 1, 1));
        assert!(matches!(&small.calls[0].what, CallKind::Trigger { task: 0, delay_ms: Some(_), key: None }), "{:?}", small.calls);
        assert_eq!(small.calls[0].at_ms, 0);
    }
}

#[test]
fn a_retry_storm_stays_with_its_service() {
    let fails = |plan: &Plan| {
        let services = plan.downstreams();
        plan.faults.iter().any(|fault| match fault.kind {
            FaultKind::RetryStorm { downstream } => services[downstream] == "search",
            _ => false,
        })
    };
    for small in shrunk(&Swarm::default(), fails) {
        assert_eq!(small.downstreams(), ["search"]);
        assert_eq!(small.tasks.len(), 1);
        assert_eq!(small.faults.len(), 1);
        assert_eq!(small.faults[0].kind, FaultKind::RetryStorm { downstream: 0 });
    }
}

#[test]
fn a_flood_stays_with_its_task() {
    let fails = |plan: &Plan| {
        plan.faults.iter().any(|fault| match fault.kind {
            FaultKind::Flood { task, count } => count >= 3_000 && plan.tasks[task].document["name"] == "flooded",
            _ => false,
        })
    };
    for small in shrunk(&Profile::Flood.swarm(), fails) {
        assert_eq!(small.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [FaultKind::Flood { task: 0, count: 3_000 }]);
        assert_eq!(small.tasks.len(), 1);
    }
}

#[test]
fn fields_that_matter_stay() {
    let fails = |plan: &Plan| {
        plan.tasks.iter().any(|task| {
            let spec = spec(&task.document).unwrap();
            let overruns = spec.timeout.after.is_some_and(|after| after.0 < task.handler.takes_ms.1);
            overruns && spec.timeout.action == TimeoutAction::Wait && matches!(spec.trigger, Trigger::Cron(_))
        })
    };
    for small in shrunk(&Swarm::default(), fails) {
        let fields: Vec<&String> = small.tasks[0].document.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["handler", "name", "timeout", "trigger"]);
        assert_eq!(
            small.tasks[0].document["trigger"].as_object().unwrap().len(),
            1 + usize::from(small.tasks[0].document["trigger"]["dialect"] == "quartz"),
            "{small:?}"
        );
        let (low, high) = small.tasks[0].handler.takes_ms;
        assert_eq!(low, high);
    }
}

#[test]
fn edits_get_simpler_too() {
    let fails = |plan: &Plan| {
        plan.calls.iter().any(|call| match &call.what {
            CallKind::Edit { document, .. } => document["enabled"] == false,
            _ => false,
        })
    };
    for small in shrunk(&Swarm::default(), fails) {
        let [call] = &small.calls[..] else { panic!("{:?}", small.calls) };
        let CallKind::Edit { task: 0, document } = &call.what else { panic!("{call:?}") };
        let expected = json!({"name": document["name"], "enabled": false, "trigger": "manual", "handler": {"name": "noop"}});
        assert_eq!(*document, expected);
    }
}

#[test]
fn signs_and_families_are_kept() {
    let fails = |plan: &Plan| plan.faults.iter().any(|fault| matches!(fault.kind, FaultKind::ClockStep { by } if by <= -1_000));
    for small in shrunk(&Swarm::default(), fails) {
        assert_eq!(small.faults[0].kind, FaultKind::ClockStep { by: -1_000 });
    }
    let lost = |plan: &Plan| plan.faults.iter().any(|fault| fault.kind.family(plan.knobs.semi_synchronous) == Family::DbLostTail);
    for small in shrunk(&Profile::LostTail.swarm(), lost) {
        assert_eq!(small.knobs, Knobs { semi_synchronous: false, ..Knobs::default() });
    }
}

#[test]
fn the_budget_is_kept_and_the_smallest_so_far_comes_back() {
    let plan = (0..).map(|seed| swarm(seed, &Swarm::default())).find(|plan| plan.faults.len() > 10 && plan.tasks.len() > 5).unwrap();
    let fails = |plan: &Plan| plan.faults.len() >= 3;
    let mut last = plan.faults.len();
    for budget in [0, 1, 5, 20, 100, 1_000] {
        let (mut runs, mut told) = (0, 0);
        let small = shrink(
            &plan,
            budget,
            |plan| {
                runs += 1;
                fails(plan)
            },
            |progress| {
                told += 1;
                assert_eq!((progress.tried, progress.budget), (told, budget));
                assert!(fails(progress.smallest) && !progress.step.is_empty());
            },
        );
        assert!(runs <= budget && told == runs, "{runs} runs of {budget}");
        assert!(fails(&small) && small.faults.len() <= last);
        last = small.faults.len();
        if budget == 0 {
            assert_eq!(small, plan);
        }
    }
    assert_eq!(last, 3);
}

#[test]
fn no_candidate_is_run_twice_and_none_is_invalid() {
    let plan = (0..).map(|seed| swarm(seed, &Swarm::default())).find(|plan| plan.faults.len() > 10 && plan.tasks.len() > 5).unwrap();
    let mut run: Vec<Plan> = vec![plan.clone()];
    // Fails as it likes: candidates of all kinds are kept.
    let fails = |candidate: &Plan| {
        assert_eq!(problems(candidate), []);
        assert!(!run.contains(candidate));
        run.push(candidate.clone());
        let text = serde_json::to_string(candidate).unwrap();
        text.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte))).is_multiple_of(20)
    };
    shrink(&plan, 1_500, fails, |_| {});
    assert!(run.len() > 200, "only {} candidates", run.len());
}

#[test]
fn shrinking_is_the_same_each_time() {
    let plan = swarm(11, &Swarm::default());
    let fails = |plan: &Plan| plan.tasks.iter().any(|task| task.handler.takes_ms.1 > 300) || plan.faults.len() > 2;
    let runs: Vec<Plan> = (0..2).map(|_| shrink(&plan, BUDGET, fails, |_| {})).collect();
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn what_only_happens_in_the_given_plan_leaves_it_as_it_is() {
    let plan = swarm(5, &Swarm::default());
    assert_eq!(shrink(&plan, BUDGET, |_| false, |_| {}), plan);
}
