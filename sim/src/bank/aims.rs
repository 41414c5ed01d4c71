//! Plans in which a certain guard matters.

use serde_json::json;

use crate::load;
use crate::plan::{Fault, FaultKind, Plan, Selector};

/// What is done to a drawn plan, so that a guard matters in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Nothing.
    None,
    /// Handlers run for minutes, and workers that run some are cut off for longer than a lease.
    LongHandlersCutOff,
    /// Messages of workers take longer than a lease, now and then.
    SlowMessages,
    /// Workers die just after they have begun, before anybody knows, and come back at once.
    DeadOnArrival,
    /// The database's answers come late or not at all, and workers connect anew all the time.
    DoubtfulLeases,
}

impl Aim {
    /// Changes the plan.
    pub fn take(self, plan: &mut Plan) {
        match self {
            Aim::None => return,
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
            Aim::SlowMessages => {
                plan.shape.workers = plan.shape.workers.max(2);
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
