//! Plans in which a certain guard matters.

use serde_json::json;

use crate::load;
use crate::plan::{Call, CallKind, Fault, FaultKind, Plan, Selector};

/// What is done to a drawn plan, so that a guard matters in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Nothing.
    None,
    /// Handlers run for minutes, and workers that run some are cut off for longer than a lease.
    LongHandlersCutOff,
    /// Workers stand still for longer than a lease, with assignments on their way, and wake up while the database is too slow for anybody
    /// to own anything.
    PausedWorkers,
    /// Messages of workers take longer than a lease, now and then.
    SlowMessages,
    /// Workers die just after they have begun, before anybody knows, and come back at once.
    DeadOnArrival,
    /// Owners stand still for longer than their leases.
    PausedOwners,
    /// Owners that have nothing to do are cut off from the database, and workers connect anew all the time.
    IdleStaleOwners,
    /// Each task is fired once, by hand, and the database forgets the end of that: nothing more is written that would show it.
    ForgottenEnds,
    /// Tasks of all bands, each with as much work as there are slots, and nothing goes wrong.
    MixedBands,
    /// The database's answers come late or not at all, and workers connect anew all the time.
    DoubtfulLeases,
    /// There is a worker from before there were shards, and tasks have some.
    OldWorkers,
    /// Nodes call a task that takes long, its owner dies meanwhile, and somebody cancels what called it.
    CalledTakenOver,
}

impl Aim {
    /// Changes the plan.
    pub fn take(self, plan: &mut Plan) {
        match self {
            Aim::None => return,
            Aim::OldWorkers => {
                plan.shape.workers = plan.shape.workers.max(4);
                every(plan, |task| {
                    task.insert("shards".into(), json!(4));
                });
            }
            Aim::CalledTakenOver => called_taken_over(plan),
            Aim::LongHandlersCutOff => {
                plan.shape.workers = plan.shape.workers.max(2);
                plan.shape.slots = 8;
                every(plan, |task| {
                    task.remove("timeout");
                    task.insert("idempotent".into(), json!(true));
                });
                for task in &mut plan.tasks {
                    task.handler.takes_ms = (90_000, 150_000);
                    task.handler.obeys_after_ms = Some(0);
                }
                plan.calls.clear();
                plan.faults.clear();
                repeat(plan, 60_000, |number| (FaultKind::Isolate, 55_000, Selector::Busy(number)));
            }
            Aim::PausedWorkers => {
                plan.shape.workers = plan.shape.workers.max(2);
                plan.shape.slots = 8;
                every(plan, |task| {
                    task.remove("timeout");
                    task.insert("idempotent".into(), json!(true));
                    task.insert("concurrency".into(), json!({ "max_running": 20 }));
                });
                for task in &mut plan.tasks {
                    task.handler.takes_ms = (60_000, 90_000);
                    task.handler.obeys_after_ms = Some(0);
                }
                plan.calls.clear();
                plan.faults.clear();
                repeat(plan, 100_000, |number| (FaultKind::Pause, 45_000, Selector::Worker(number)));
                // Just after the paused worker was given up, so that what it held is with another one.
                let pauses: Vec<u64> = plan.faults.iter().map(|fault| fault.at_ms).collect();
                for at_ms in pauses.iter().map(|at_ms| at_ms + 31_000).filter(|at_ms| at_ms + 45_000 < plan.heal_at_ms) {
                    let kind = FaultKind::DatabaseSlow { ms: 9_500 };
                    plan.faults.push(Fault { at_ms, lasts_ms: 45_000, kind, on: Selector::World });
                }
            }
            Aim::SlowMessages => {
                plan.shape.workers = plan.shape.workers.max(2);
                every(plan, |task| _ = task.remove("nodes"));
                plan.faults.clear();
                repeat(plan, 50_000, |number| (FaultKind::Delay { ms: 32_000 }, 40_000, Selector::Busy(number)));
            }
            Aim::DeadOnArrival => {
                every(plan, |task| {
                    task.insert("idempotent".into(), json!(false));
                });
                plan.calls.clear();
                plan.faults.clear();
                repeat(plan, 8_000, |number| (FaultKind::Crash, 500, Selector::Busy(number)));
                let lasts_ms = plan.heal_at_ms - 10_000;
                plan.faults.push(Fault { at_ms: 5_000, lasts_ms, kind: FaultKind::Delay { ms: 3_000 }, on: Selector::AllWorkers });
            }
            Aim::PausedOwners => {
                plan.shape.schedulers = 3;
                plan.calls.clear();
                plan.faults.clear();
                repeat(plan, 18_000, |number| (FaultKind::Pause, 13_000, Selector::Owner(number)));
            }
            Aim::IdleStaleOwners => {
                by_hand_only(plan);
                repeat(plan, 50_000, |number| (FaultKind::CutFromDatabase, 45_000, Selector::Owner(number)));
                repeat(plan, 3_000, |_| (FaultKind::Reset, 0, Selector::AllWorkers));
            }
            Aim::ForgottenEnds => {
                by_hand_only(plan);
                plan.shape.partitions = 8;
                plan.knobs.replica_lag_ms = 500;
                for task in &mut plan.tasks {
                    task.handler.takes_ms = (100, 300);
                }
                let times = (10_000..plan.heal_at_ms - 10_000).step_by(20_000).take(plan.tasks.len()).enumerate();
                let what = |task| CallKind::Trigger { task, delay_ms: None, key: None };
                plan.calls = times.map(|(task, at_ms)| Call { at_ms, what: what(task) }).collect();
                let ends = plan.calls.iter().map(|call| call.at_ms + 400 + call.at_ms / 100 % 300);
                let forgets = |at_ms| Fault { at_ms, lasts_ms: 0, kind: FaultKind::Failover, on: Selector::World };
                plan.faults = ends.map(forgets).collect();
            }
            Aim::MixedBands => {
                (plan.shape.workers, plan.shape.slots) = (1, 2);
                let bands = ["urgent", "low", "normal"];
                for (index, task) in plan.tasks.iter_mut().enumerate() {
                    let Some(document) = task.document.as_object_mut() else { continue };
                    let (name, handler) = (document["name"].clone(), document["handler"].clone());
                    document.clear();
                    document.extend([
                        ("name".into(), name),
                        ("handler".into(), handler),
                        ("trigger".into(), json!({ "fixed_rate": "500ms" })),
                    ]);
                    document.insert("concurrency".into(), json!({ "max_running": 20, "max_queue": 20 }));
                    if bands[index % bands.len()] != "normal" {
                        document.insert("priority".into(), json!(bands[index % bands.len()]));
                    }
                    task.handler.takes_ms = (900, 1_000);
                    task.handler.fails_per_mille = 0;
                    task.handler.downstream = None;
                }
                plan.calls.clear();
                plan.faults.clear();
            }
            Aim::DoubtfulLeases => {
                plan.shape.schedulers = 3;
                plan.shape.workers = plan.shape.workers.max(2);
                plan.calls.clear();
                plan.faults.clear();
                let lasts_ms = plan.heal_at_ms - 30_000;
                let lossy = FaultKind::CommitNotAppliedAnswerLost { per_mille: 550 };
                plan.faults.push(Fault { at_ms: 20_000, lasts_ms, kind: lossy, on: Selector::World });
                plan.faults.push(Fault { at_ms: 20_000, lasts_ms, kind: FaultKind::DatabaseSlow { ms: 1_500 }, on: Selector::World });
                repeat(plan, 2_500, |_| (FaultKind::Reset, 0, Selector::AllWorkers));
            }
        }
        plan.horizon_ms = plan.heal_at_ms + load::settling_ms(plan);
    }
}

fn called_taken_over(plan: &mut Plan) {
    by_hand_only(plan);
    if plan.tasks.len() < 2 {
        let mut caller = plan.tasks[0].clone();
        caller.document["name"] = json!("caller");
        plan.tasks.push(caller);
    }
    plan.tasks.truncate(2);
    let called = plan.tasks[0].document["name"].clone();
    plan.tasks[0].handler.takes_ms = (30_000, 40_000);
    if let Some(document) = plan.tasks[1].document.as_object_mut() {
        document.remove("handler");
        document.insert("nodes".into(), json!([{ "name": "n", "task": called }]));
    }
    plan.calls.clear();
    let trigger = CallKind::Trigger { task: 1, delay_ms: None, key: None };
    for (number, at_ms) in (5_000..plan.heal_at_ms - 60_000).step_by(50_000).enumerate() {
        plan.calls.push(Call { at_ms, what: trigger.clone() });
        // Before its lease is over nobody takes over.
        plan.calls.push(Call { at_ms: at_ms + 20_000, what: CallKind::Cancel { nth: number % 2 } });
        plan.faults.push(Fault { at_ms: at_ms + 4_000, lasts_ms: 1_000, kind: FaultKind::Crash, on: Selector::Owner(number) });
    }
}

/// Several schedulers, tasks that are fired by hand all the time and run for a while, and nothing else.
fn by_hand_only(plan: &mut Plan) {
    plan.shape.schedulers = 3;
    plan.shape.workers = plan.shape.workers.max(2);
    plan.shape.slots = 16;
    every(plan, |task| {
        let name = task["name"].clone();
        let handler = task["handler"].clone();
        task.clear();
        task.extend([("name".into(), name), ("handler".into(), handler), ("trigger".into(), json!("manual"))]);
        task.insert("concurrency".into(), json!({ "max_running": 50 }));
    });
    for task in &mut plan.tasks {
        task.handler.takes_ms = (6_000, 15_000);
        task.handler.fails_per_mille = 0;
        task.handler.obeys_after_ms = Some(0);
    }
    let tasks = plan.tasks.len();
    let times = (1_000..plan.heal_at_ms).step_by(1_000).enumerate();
    let what = |number: usize| CallKind::Trigger { task: number % tasks, delay_ms: None, key: None };
    plan.calls = times.map(|(number, at_ms)| Call { at_ms, what: what(number) }).collect();
    plan.faults.clear();
}

fn every(plan: &mut Plan, change: impl Fn(&mut serde_json::Map<String, serde_json::Value>)) {
    for task in &mut plan.tasks {
        if let Some(document) = task.document.as_object_mut() {
            change(document);
        }
    }
}

/// The same fault again and again, until the world heals.
fn repeat(plan: &mut Plan, interval_ms: u64, fault: impl Fn(usize) -> (FaultKind, u64, Selector)) {
    for number in 1.. {
        let (kind, lasts_ms, on) = fault(number);
        let at_ms = number as u64 * interval_ms;
        if at_ms + lasts_ms >= plan.heal_at_ms {
            return;
        }
        plan.faults.push(Fault { at_ms, lasts_ms, kind, on });
    }
}
