//! Scripts as data: what happens, line by line, then `----`, then what comes of it. `UPDATE_EXPECT=1` writes the second part anew.
//!
//! Messages and the store take no time here, so every time in the outcome is one that somebody decided. Times count from the moment at
//! which the scheduler was ready, on the wall clock.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::{Blocking, MisfireAction, TaskDefinition, TimeoutAction, Trigger};
use punctual_core::ids::PartitionId;
use punctual_core::limits;
use punctual_core::protocol::End;
use punctual_core::scheduler::{Alert, Event};
use punctual_core::time::{Millis, Timestamp};
use punctual_core::worker;

use punctual_sim::tabletop::{Fate, Run, START, World, minutely, task};

fn millis(text: &str) -> u64 {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_else(|| panic!("a duration has a unit: {text}"));
    let number: u64 = text[..unit].parse().unwrap_or_else(|_| panic!("not a duration: {text}"));
    number
        * match &text[unit..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            unit => panic!("unknown unit {unit}"),
        }
}

fn definition(words: &[&str]) -> TaskDefinition {
    let mut definition = task(words[0], Trigger::Manual);
    Arc::make_mut(&mut definition.policies).retry.backoff =
        BackoffPolicy { kind: Backoff::Fixed, first: Millis(5_000), cap: Millis(60_000), jitter: Jitter::None };
    for word in &words[1..] {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "every" => definition.trigger = Trigger::FixedRate { interval: Millis(millis(value)) },
            "after" => definition.trigger = Trigger::FixedDelay { interval: Millis(millis(value)) },
            "delay" => definition.trigger = Trigger::Delay { delay: Millis(millis(value)) },
            "minutely" => definition.trigger = minutely(),
            "manual" => definition.trigger = Trigger::Manual,
            "disabled" => definition.enabled = false,
            "max_running" => Arc::make_mut(&mut definition.policies).concurrency.max_running = value.parse().expect("a number"),
            "queue" => {
                Arc::make_mut(&mut definition.policies).concurrency.blocking =
                    Blocking::Queue { max_queue: value.parse().expect("a number") }
            }
            "discard" => Arc::make_mut(&mut definition.policies).concurrency.blocking = Blocking::Discard,
            "replace" => Arc::make_mut(&mut definition.policies).concurrency.blocking = Blocking::Replace,
            "skip" => Arc::make_mut(&mut definition.policies).misfire.action = MisfireAction::Skip,
            "fire_once" => Arc::make_mut(&mut definition.policies).misfire.action = MisfireAction::FireOnce,
            "fire_all" => {
                Arc::make_mut(&mut definition.policies).misfire.action = MisfireAction::FireAll { limit: value.parse().expect("a number") }
            }
            "deadline" => Arc::make_mut(&mut definition.policies).misfire.deadline = Some(Millis(millis(value))),
            "attempts" => Arc::make_mut(&mut definition.policies).retry.max_attempts = Some(value.parse().expect("a number")),
            "losses" => Arc::make_mut(&mut definition.policies).retry.max_losses = value.parse().expect("a number"),
            "backoff" => Arc::make_mut(&mut definition.policies).retry.backoff.first = Millis(millis(value)),
            "not_idempotent" => definition.idempotent = false,
            "timeout" => Arc::make_mut(&mut definition.policies).timeout.after = Some(Millis(millis(value))),
            "grace" => Arc::make_mut(&mut definition.policies).timeout.grace = Millis(millis(value)),
            "overrun" => Arc::make_mut(&mut definition.policies).timeout.action = TimeoutAction::Wait,
            _ => panic!("unknown word {word}"),
        }
    }
    definition
}

/// `takes 8s, fails` for the first attempt, then the same for the next ones behind a `;`.
fn runs(text: &str) -> Vec<Run> {
    let run = |text: &str| {
        let mut run = Run::default();
        for word in text.split_whitespace() {
            match word {
                "fails" => run.end = End::Failed,
                "fails_for_good" => run.end = End::FailedForGood,
                "succeeds" => run.end = End::Succeeded,
                "stubborn" => run.obeys_after = None,
                word => match word.strip_prefix("obeys_after=") {
                    Some(after) => run.obeys_after = Some(millis(after)),
                    None => run.takes = millis(word),
                },
            }
        }
        run
    };
    text.split(';').map(run).collect()
}

fn perform(world: &mut World, line: &str) {
    let words: Vec<_> = line.split_whitespace().collect();
    let worker = || words.last().expect("a worker").parse::<usize>().expect("a number") - 1;
    match words[..] {
        ["task", ..] => {
            world.define(definition(&words[1..]));
        }
        ["handler", name, ..] => world.script(name, &runs(line.splitn(3, ' ').nth(2).expect("what it does"))),
        ["remove", name] => world.remove(name),
        ["trigger", name] => _ = world.trigger(name, None),
        ["trigger", name, "in", delay] => _ = world.trigger(name, Some(millis(delay))),
        ["cancel", name, nth] => {
            let id = world.rows(name)[nth.parse::<usize>().expect("a number") - 1].id;
            world.cancel(id);
        }
        ["pass", time] => world.run(millis(time)),
        ["until", time] => world.run_until(millis(time)),
        ["clock", by] => match by.split_at(1) {
            ("+", by) => world.step_wall(millis(by) as i64),
            ("-", by) => world.step_wall(-(millis(by) as i64)),
            _ => panic!("forward or back? {by}"),
        },
        ["add", "worker"] => world.add_worker(),
        ["crash", "worker", _] => world.crash_worker(worker()),
        ["start", "worker", _] => world.start_worker(worker()),
        ["disconnect", "worker", _] => world.disconnect(worker()),
        ["connect", "worker", _] => world.connect(worker()),
        ["silence", "worker", _] => world.silence(worker()),
        ["unsilence", "worker", _] => world.unsilence(worker()),
        ["hold", "messages", "to", "worker", _] => world.hold_messages_to(worker()),
        ["let", "messages", "through", "to", "worker", _] => world.let_messages_through_to(worker()),
        ["drain", "worker", _] => world.drain(worker()),
        ["cancel", "all", "on", "worker", _] => world.tell_worker(worker(), worker::Event::CancelAll),
        ["crash", "scheduler"] => world.crash_replica(0),
        ["start", "scheduler"] => world.start_replica(0),
        ["pause", "scheduler"] => world.pause_replica(0),
        ["resume", "scheduler"] => world.resume_replica(0),
        ["quiesce"] => world.tell_replica(0, Event::Quiesce),
        ["shut", "down"] => world.tell_replica(0, Event::Shutdown),
        ["next", "commit", "is", "refused"] => world.fates.push_back(Fate::Refused),
        ["next", "commit", "is", "carried", "out"] => world.fates.push_back(Fate::Carried),
        ["next", "commit", "is", "unknown", "and", "applied"] => world.fates.push_back(Fate::UnknownApplied),
        ["next", "commit", "is", "unknown", "and", "not", "applied"] => world.fates.push_back(Fate::UnknownNotApplied),
        ["hold", "store"] => world.store_is_held = true,
        ["release", "store"] => world.release_store(),
        // The same replica's, so that it may have it back at once.
        ["steal", "lease"] => world.steal_lease(PartitionId(0), "s1", limits::PARTITION_LEASE),
        _ => panic!("unknown line: {line}"),
    }
    // Whatever takes no time happens now.
    world.run(0);
}

fn shown(at: Timestamp) -> String {
    let millis = at.0 - START;
    match millis % 1_000 {
        0 => format!("{}s", millis / 1_000),
        _ => format!("{}s", millis as f64 / 1_000.0),
    }
}

fn outcome(world: &World) -> String {
    let mut text = String::new();
    let mut names: Vec<_> = world.data().names.keys().cloned().collect();
    names.sort();
    for name in names {
        for row in world.rows(&name) {
            _ = writeln!(text, "{name} {} ({}): {}", shown(row.fire_time), row.origin.name(), row.state.name());
            for transition in &row.transitions {
                let who =
                    transition.worker.as_ref().map(|worker| format!(", attempt {} on {worker}", transition.attempt)).unwrap_or_default();
                let detail = transition.detail.as_ref().map(|detail| format!(", {detail}")).unwrap_or_default();
                _ = writeln!(text, "  {} {} ({}){who}{detail}", shown(transition.at), transition.to.name(), transition.cause.name());
            }
        }
        let task = world.task_id(&name);
        for run in world.data().occurrences.iter().filter(|run| run.task == task) {
            let (first, last, count) = (shown(run.first), shown(run.last), run.count);
            let (outcome, at) = (run.outcome.name(), shown(run.at));
            _ = match count {
                1 => writeln!(text, "{name} {first}: {outcome}, decided {at}"),
                _ => writeln!(text, "{name} {first} to {last}, {count} fire times: {outcome}, decided {at}"),
            };
        }
        if let Some(stored) = world.data().tasks.get(&task).filter(|stored| stored.version.is_some()) {
            _ = writeln!(text, "{name} next: {}", stored.next_fire.map_or("never".into(), shown));
        }
    }
    for (at, alert) in &world.alerts {
        let at = shown(world.wall_at(*at));
        let what = match alert {
            Alert::PartitionReloaded { reason, .. } => format!("partition reloaded, {reason}"),
            Alert::TailLost { partition, known, found } => {
                format!("the tail of partition {partition} was lost: {found} commits, not {known}")
            }
            Alert::LateResult { instance, .. } => format!("late result for {instance}"),
            Alert::Failed { instance, state, cause } => format!("instance {instance} has {} ({})", state.name(), cause.name()),
            Alert::DeadLettered { instance, cause } => format!("{instance} is a dead letter ({})", cause.name()),
            Alert::WorkerLost { worker, attempts } => format!("{worker} lost with {attempts} attempts"),
            Alert::ClockSteppedBack { by } => format!("clock set back by {} ms", by.0),
            Alert::FiredAhead { tasks, until, .. } => format!("{tasks} tasks were fired ahead, until {}", shown(*until)),
            Alert::ChainTooLong { task, cause } => format!("task {task} was not fired after {cause}"),
            Alert::NobodyFor { needs, reason } => format!("nobody for {needs}: {}", reason.reason()),
            Alert::BreakerOpened { downstream, .. } => format!("the breaker of {downstream} is open"),
            Alert::BreakerClosed { downstream } => format!("the breaker of {downstream} is closed"),
        };
        _ = writeln!(text, "alert {at}: {what}");
    }
    if world.replicas[0].stopped {
        _ = writeln!(
            text,
            "the scheduler has stopped, its leases {}",
            if world.data().leases[0].owner.is_none() { "given up" } else { "kept" }
        );
    }
    text
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a readable script");
    let (script, expected) = text.split_once("----\n").expect("a script has an outcome");
    let mut world = World::settled(1);
    (world.network_latency, world.store_latency) = (0, 0);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        perform(&mut world, line);
    }
    world.assert_sound();
    let found = outcome(&world);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, format!("{script}----\n{found}")).expect("a writable script");
        return;
    }
    assert!(found == expected, "{}\n--- expected\n{expected}\n--- found\n{found}", path.display());
}

#[test]
fn every_script_ends_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scripts");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the folder of scripts").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "{} scripts", paths.len());
    paths.iter().for_each(|path| check(path));
}
