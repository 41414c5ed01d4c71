//! Drawn plans: the same for ever, valid, and with everything in them that can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use punctual_core::limits;
use punctual_sim::load::settling_ms;
use punctual_sim::plan::{CallKind, Family, FaultKind, Plan, Selector};
use punctual_sim::swarm::{Profile, Swarm, swarm};
use punctual_sim::workload::{document, spec, zones};
use punctual_spec::decode;
use punctual_spec::spec::Trigger;
use rand_core::RngCore;
use serde_json::Value;

const SEEDS: u64 = 2_000;

/// The plans of the first seeds by the default profile.
fn plans() -> &'static [Plan] {
    static PLANS: LazyLock<Vec<Plan>> = LazyLock::new(|| (0..SEEDS).map(|seed| swarm(seed, &Swarm::default())).collect());
    &PLANS
}

/// Some plans of every profile.
fn plans_of_all_profiles() -> impl Iterator<Item = (Profile, Plan)> {
    Profile::ALL.into_iter().flat_map(|profile| (0..20).map(move |seed| (profile, swarm(seed, &profile.swarm()))))
}

fn families_of(plan: &Plan) -> BTreeSet<Family> {
    plan.faults.iter().map(|fault| fault.kind.family(plan.knobs.semi_synchronous)).collect()
}

fn documents_of(plan: &Plan) -> impl Iterator<Item = &Value> {
    let edits = plan.calls.iter().filter_map(|call| match &call.what {
        CallKind::Edit { document, .. } => Some(document),
        _ => None,
    });
    plan.tasks.iter().map(|task| &task.document).chain(edits)
}

#[test]
fn a_seed_has_one_plan() {
    for (seed, plan) in plans().iter().enumerate().take(50) {
        assert_eq!(swarm(seed as u64, &Swarm::default()), *plan);
    }
    assert_ne!(plans()[0], plans()[1]);
}

/// Everything that is kept by its seed alone becomes something else when this changes: that has to be meant.
#[test]
fn a_seed_has_the_same_plan_as_ever() {
    let text = serde_json::to_string(&plans()[..100]).unwrap();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    expect_test::expect!["b21396e608d771e0"].assert_eq(&format!("{hash:016x}"));
}

#[test]
fn documents_compile_and_are_canonical() {
    let others: Vec<Plan> = plans_of_all_profiles().map(|(_, plan)| plan).collect();
    for text in plans().iter().chain(&others).flat_map(documents_of) {
        decode(&text.to_string(), zones()).unwrap_or_else(|findings| panic!("{text}: {findings:?}"));
        assert_eq!(document(spec(text).unwrap()), *text);
    }
}

#[test]
fn names_of_tasks_are_unique() {
    for plan in plans() {
        let names: BTreeSet<&str> = plan.tasks.iter().map(|task| task.document["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), plan.tasks.len());
    }
}

#[test]
fn each_family_is_in_about_half_of_the_plans() {
    let mut counts: BTreeMap<Family, u64> = BTreeMap::new();
    for family in plans().iter().flat_map(families_of) {
        *counts.entry(family).or_default() += 1;
    }
    assert_eq!(counts.keys().copied().collect::<BTreeSet<_>>(), Swarm::default().families);
    for (family, count) in counts {
        let percent = count * 100 / SEEDS;
        assert!((35..=65).contains(&percent), "{family:?} is in {percent} % of the plans");
    }
}

#[test]
fn some_plans_have_no_faults() {
    let calm = plans().iter().filter(|plan| plan.faults.is_empty()).count();
    assert!((20..200).contains(&calm), "{calm} are calm");
}

#[test]
fn a_choice_of_families_leaves_the_rest_alone() {
    for seed in 0..50 {
        let all = swarm(seed, &Swarm::default());
        let pauses = swarm(seed, &Swarm { families: BTreeSet::from([Family::NodePause]), ..Swarm::default() });
        assert_eq!((&all.shape, &all.calls, all.heal_at_ms), (&pauses.shape, &pauses.calls, pauses.heal_at_ms));
        let documents = |plan: &Plan| plan.tasks.iter().map(|task| task.document.clone()).collect::<Vec<_>>();
        assert_eq!(documents(&all), documents(&pauses));
        let of_pauses: Vec<_> = all.faults.into_iter().filter(|fault| fault.kind == FaultKind::Pause).collect();
        assert_eq!(of_pauses, pauses.faults);
    }
}

#[test]
fn taking_a_fault_out_leaves_the_streams_alone() {
    let plan = plans().iter().find(|plan| plan.faults.len() > 3).unwrap();
    let mut without = plan.clone();
    without.faults.remove(1);
    for actor in ["worker 0", "network", "database"] {
        assert_eq!(plan.stream(actor).next_u64(), without.stream(actor).next_u64());
    }
    assert_ne!(plan.stream("worker 0").next_u64(), plan.stream("worker 1").next_u64());
}

#[test]
fn everything_is_over_when_the_world_heals() {
    let default = plans().iter().map(|plan| (Profile::Default, plan.clone()));
    for (profile, plan) in default.chain(plans_of_all_profiles()) {
        assert!((120_000..=480_000).contains(&plan.heal_at_ms));
        for fault in &plan.faults {
            assert!(fault.at_ms < plan.heal_at_ms && fault.at_ms + fault.lasts_ms <= plan.heal_at_ms, "{profile:?} {fault:?}");
            assert_eq!(fault.lasts_ms == 0, fault.kind.is_instant(), "{fault:?}");
        }
        for call in &plan.calls {
            let delay_ms = if let CallKind::Trigger { delay_ms, .. } = call.what { delay_ms.unwrap_or(0) } else { 0 };
            assert!(call.at_ms + delay_ms < plan.heal_at_ms, "{call:?}");
        }
        assert!(plan.faults.is_sorted_by_key(|fault| fault.at_ms) && plan.calls.is_sorted_by_key(|call| call.at_ms));
    }
}

#[test]
fn a_healed_world_has_time_to_settle() {
    let mut settling = Vec::new();
    for plan in plans() {
        let settles_ms = plan.horizon_ms - plan.heal_at_ms;
        assert_eq!(settles_ms, settling_ms(plan));
        let longest_ms = plan.tasks.iter().map(|task| task.handler.takes_ms.0).max().unwrap();
        assert!(settles_ms >= limits::WORKER_LEASE.0 + limits::PARTITION_LEASE.0 + 60_000, "seed {}", plan.seed);
        assert!(settles_ms <= 45 * 60_000, "seed {}: {settles_ms} ms, the longest handler at least {longest_ms}", plan.seed);
        settling.push(settles_ms);
    }
    settling.sort_unstable();
    let median = settling[settling.len() / 2];
    assert!(median <= 5 * 60_000, "half of the plans need more than {median} ms to settle");
}

#[test]
fn numbers_of_any_size_settle_some_time() {
    let mut plan = plans()[0].clone();
    plan.tasks[0].handler.takes_ms = (u64::MAX, u64::MAX);
    plan.knobs.network_ms = (u64::MAX, u64::MAX);
    plan.shape.workers = usize::MAX;
    plan.heal_at_ms = u64::MAX;
    assert_eq!(settling_ms(&plan), u64::MAX);
}

/// The names of the variants in what serde writes.
fn variant<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value).unwrap() {
        Value::String(name) => name,
        Value::Object(map) => map.keys().next().unwrap().clone(),
        other => panic!("{other} is no enum"),
    }
}

#[test]
fn everything_that_can_be_drawn_is() {
    let mut seen = BTreeSet::new();
    let profiles: Vec<Plan> = plans_of_all_profiles().map(|(_, plan)| plan).collect();
    for plan in plans().iter().chain(&profiles) {
        seen.extend(plan.faults.iter().flat_map(|fault| [variant(&fault.kind), variant(&fault.on)]));
        seen.extend(plan.calls.iter().map(|call| variant(&call.what)));
        for text in documents_of(plan) {
            let spec = spec(text).unwrap();
            seen.insert(match &spec.trigger {
                Trigger::Cron(cron) => format!("cron {:?} {:?} {:?}", cron.dialect, cron.gap, cron.overlap),
                Trigger::Manual => "by hand".to_owned(),
                other => variant(other),
            });
            seen.insert(format!("{:?} with deadline {}", spec.misfire.action, spec.misfire.deadline.is_some()));
            seen.insert(format!("{:?} {:?}", spec.concurrency.when_full, spec.concurrency.max_running));
            seen.insert(format!("{:?} {:?}", spec.retry.backoff, spec.retry.jitter));
            seen.insert(format!("attempts {:?}", spec.retry.max_attempts));
            seen.insert(format!("losses {:?}", spec.retry.max_losses));
            seen.insert(format!("timeout {:?}", spec.timeout.after.map(|_| spec.timeout.action)));
            seen.insert(format!("{:?}", spec.priority.band));
            seen.insert(format!("idempotent {}", spec.idempotent));
            seen.insert(format!("enabled {}", spec.enabled));
        }
    }
    let kinds = "crash restart pause isolate cut_outgoing cut_incoming delay lose duplicate reset clock_step clock_drift database_slow \
                 database_down database_aborts commit_applied_answer_lost commit_not_applied_answer_lost failover database_clock_step \
                 wake_ups_down wake_ups_lost wake_ups_doubled handlers_hang handlers_slow handlers_panic retry_storm flood";
    let selectors = "world scheduler worker owner busy minority all_schedulers all_workers everybody";
    let calls = "trigger cancel edit remove";
    let triggers = "fixed_rate fixed_delay delay";
    let mut wanted: Vec<String> =
        [kinds, selectors, calls, triggers].iter().flat_map(|names| names.split(' ')).map(str::to_owned).collect();
    wanted.retain(|name| !name.is_empty());
    wanted.push("by hand".to_owned());
    for dialect in ["None", "Some(Seconds6)", "Some(Quartz)"] {
        for gap in ["AfterGap", "Skip", "ShiftForward"] {
            wanted.extend(["First", "Both", "Last"].map(|overlap| format!("cron {dialect} {gap} {overlap}")));
        }
    }
    for action in ["FireOnce", "FireAll", "Skip"] {
        wanted.extend([true, false].map(|deadline| format!("{action} with deadline {deadline}")));
    }
    for when_full in ["Queue", "Discard", "Replace"] {
        wanted.extend([1, 2, 3, 5].map(|max_running| format!("{when_full} {max_running}")));
    }
    for backoff in ["Fixed", "Linear", "Exponential"] {
        wanted.extend(["Full", "Equal", "None"].map(|jitter| format!("{backoff} {jitter}")));
    }
    wanted.extend((1..=6).map(|attempts| format!("attempts Some({attempts})")));
    wanted.extend((0..=3).map(|losses| format!("losses {losses}")));
    wanted.extend(
        ["attempts None", "timeout None", "timeout Some(Kill)", "timeout Some(Wait)", "Urgent", "Normal", "Low"].map(str::to_owned),
    );
    wanted.extend([true, false].iter().flat_map(|truth| [format!("idempotent {truth}"), format!("enabled {truth}")]));
    let missing: Vec<_> = wanted.iter().filter(|wanted| !seen.contains(*wanted)).collect();
    assert!(missing.is_empty(), "never drawn: {missing:?}");
}

#[test]
fn some_keys_come_twice_and_some_removed_tasks_come_back() {
    let is_repeated = |plan: &Plan| {
        let keys: Vec<&String> =
            plan.calls.iter().filter_map(|call| if let CallKind::Trigger { key, .. } = &call.what { key.as_ref() } else { None }).collect();
        keys.iter().collect::<BTreeSet<_>>().len() < keys.len()
    };
    let comes_back = |plan: &Plan| {
        let removed = plan.calls.iter().position(|call| matches!(call.what, CallKind::Remove { .. }));
        removed.is_some_and(|at| match plan.calls[at].what {
            CallKind::Remove { task } => {
                plan.calls[at..].iter().any(|call| matches!(call.what, CallKind::Edit { task: other, .. } if other == task))
            }
            _ => false,
        })
    };
    assert!(plans().iter().filter(|plan| is_repeated(plan)).count() > 200);
    assert!(plans().iter().filter(|plan| comes_back(plan)).count() > 200);
}

#[test]
fn many_faults_last_longer_than_a_lease() {
    let faults: Vec<_> = plans().iter().flat_map(|plan| &plan.faults).filter(|fault| !fault.kind.is_instant()).collect();
    let longer_than = |ms: u64| faults.iter().filter(|fault| fault.lasts_ms > ms).count() * 100 / faults.len();
    assert!((50..90).contains(&longer_than(limits::PARTITION_LEASE.0)), "{} %", longer_than(limits::PARTITION_LEASE.0));
    assert!((20..60).contains(&longer_than(limits::WORKER_LEASE.0)), "{} %", longer_than(limits::WORKER_LEASE.0));
}

#[test]
fn a_minority_has_somebody_in_it() {
    for plan in plans() {
        let has_minority = plan.faults.iter().any(|fault| fault.on == Selector::Minority);
        assert!(!has_minority || plan.shape.schedulers >= 3, "seed {}", plan.seed);
    }
}

#[test]
fn a_day_has_more_faults_than_minutes_and_given_tasks_stay_as_they_are() {
    let tasks = swarm(1, &Swarm::default()).tasks;
    let day = Swarm { workload: Some(tasks.clone()), heal_at_ms: (86_400_000, 86_400_000), ..Swarm::default() };
    for plan in (0..20).map(|seed| swarm(seed, &day)).filter(|plan| !plan.faults.is_empty()) {
        assert_eq!(plan.tasks, tasks);
        assert!(plan.faults.len() >= 180 && plan.faults.iter().any(|fault| fault.at_ms > 70_000_000), "{}", plan.faults.len());
    }
}

#[test]
fn profiles_are_what_their_names_say() {
    for (profile, plan) in plans_of_all_profiles() {
        assert_eq!(Profile::from_name(profile.name()), Some(profile));
        let families = families_of(&plan);
        assert_eq!(families.contains(&Family::DbLostTail), profile == Profile::LostTail, "{profile:?} {}", plan.seed);
        assert_eq!(families.contains(&Family::DatabaseClock), profile == Profile::DatabaseClock, "{profile:?} {}", plan.seed);
        assert_eq!(families.contains(&Family::Flood), profile == Profile::Flood, "{profile:?} {}", plan.seed);
        assert_eq!(plan.knobs.semi_synchronous, profile != Profile::LostTail);
        match profile {
            Profile::Calm => assert!(plan.faults.is_empty()),
            Profile::Rehearsal => assert_eq!((plan.shape.workers, plan.shape.partitions, plan.tasks.len()), (8, 64, 200)),
            _ => {}
        }
    }
    for family in Family::ALL {
        assert_eq!(Family::from_name(family.name()), Some(family));
        assert_eq!(serde_json::to_value(family).unwrap(), family.name());
    }
}
