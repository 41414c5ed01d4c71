//! Faults: beginning, ending, and for whom.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use madsim::net::NetSim;
use punctual_core::ids::PartitionId;
use punctual_core::inbox::Submission;
use punctual_core::instance::State;
use punctual_core::limits;

use crate::history::{What, Who};
use crate::plan::{Family, Fault, FaultKind, Selector};
use crate::world::env::{Env, lock};
use crate::world::nodes::{Node, Nodes};
use crate::world::people::Caller;

/// How long a node that is stopped in good order has for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets each fault happen at its time. What would last longer is right again when the world heals.
pub(super) fn start(env: &Arc<Env>, nodes: &Arc<Nodes>) {
    for (index, fault) in env.plan.faults.iter().enumerate() {
        if fault.at_ms >= env.plan.heal_at_ms {
            continue;
        }
        let (env, nodes, fault) = (env.clone(), nodes.clone(), fault.clone());
        madsim::task::spawn(async move {
            env.sleep_until(fault.at_ms).await;
            let on = select(&env, &nodes, fault.on);
            env.record(Who::World, What::FaultBegan(index));
            record_links(&env, &on, &fault, What::Cut);
            begin(&env, &on, index, &fault);
            // The world heals a moment later, when all is right again.
            env.sleep_until((fault.at_ms + fault.lasts_ms).min(env.plan.heal_at_ms - 1)).await;
            end(&env, &on, &fault);
            record_links(&env, &on, &fault, What::Mended);
            env.record(Who::World, What::FaultEnded(index));
        });
    }
}

/// From here on handlers succeed.
pub(super) fn heal(env: &Arc<Env>, nodes: &Nodes) {
    lock(&env.trouble).is_healed = true;
    debug_assert!(nodes.all().all(|node| node.is_up()), "a fault outlasted the healing");
    if !env.plan.faults.is_empty() {
        env.probe("everything.healed");
    }
}

/// For whom a fault is, as things stand now.
fn select(env: &Env, nodes: &Nodes, on: Selector) -> Vec<Arc<Node>> {
    let one = |list: &[Arc<Node>], index: usize| vec![list[index % list.len()].clone()];
    match on {
        Selector::World => Vec::new(),
        Selector::Scheduler(index) => one(&nodes.schedulers, index),
        Selector::Worker(index) => one(&nodes.workers, index),
        Selector::Owner(partition) => {
            let database = lock(&env.database);
            let partition = PartitionId((partition % usize::from(env.plan.shape.partitions)) as u16);
            let owner = database.data().lease(partition).owner.as_ref().and_then(|owner| {
                let number = owner.0.strip_prefix('s')?.split('-').next()?;
                number.parse::<usize>().ok()
            });
            one(&nodes.schedulers, owner.map_or(0, |number| number - 1))
        }
        Selector::Busy(nth) => {
            let busy = lock(&env.busy);
            let busy: Vec<_> = (0..busy.len()).filter(|index| busy[*index] > 0).collect();
            one(&nodes.workers, if busy.is_empty() { nth } else { busy[nth % busy.len()] })
        }
        Selector::Minority => nodes.schedulers[..(nodes.schedulers.len() - 1) / 2].to_vec(),
        Selector::AllSchedulers => nodes.schedulers.clone(),
        Selector::AllWorkers => nodes.workers.clone(),
        Selector::Everybody => nodes.all().cloned().collect(),
    }
}

fn record_links(env: &Env, on: &[Arc<Node>], fault: &Fault, what: What) {
    // A connection that breaks is made again at once, and a frame that comes twice is dropped.
    let is_harmless = matches!(fault.kind, FaultKind::Reset | FaultKind::Duplicate { .. });
    if fault.kind.family(true) == Family::Network && !is_harmless {
        on.iter().for_each(|node| env.record(node.who, what.clone()));
    }
}

fn begin(env: &Arc<Env>, on: &[Arc<Node>], index: usize, fault: &Fault) {
    let network = NetSim::current();
    let change = |change: &dyn Fn(&mut crate::world::env::NodeTrouble)| on.iter().for_each(|node| env.change_node(node.who, change));
    match fault.kind {
        FaultKind::Crash => on.iter().for_each(|node| node.crash(env)),
        FaultKind::Restart => {
            for node in on {
                let (env, node) = (env.clone(), node.clone());
                // As long as it takes, but not beyond the fault's own time.
                let patience = PATIENCE.min(Duration::from_millis(fault.lasts_ms / 2));
                madsim::task::spawn(async move { node.stop(&env, patience).await });
            }
        }
        FaultKind::Pause => on.iter().for_each(|node| node.pause(env)),
        FaultKind::Isolate => {
            change(&|node| {
                node.outgoing_cut += 1;
                node.incoming_cut += 1;
            });
            on.iter().for_each(|node| network.clog_node(node.id()));
        }
        FaultKind::CutOutgoing => {
            change(&|node| node.outgoing_cut += 1);
            on.iter().for_each(|node| network.clog_node_out(node.id()));
        }
        FaultKind::CutIncoming => {
            change(&|node| node.incoming_cut += 1);
            on.iter().for_each(|node| network.clog_node_in(node.id()));
        }
        FaultKind::CutFromDatabase => change(&|node| node.database_cut += 1),
        FaultKind::Delay { ms } => change(&|node| node.delay_ms += ms),
        FaultKind::Lose { per_mille } => change(&|node| node.lose_per_mille += per_mille),
        FaultKind::Duplicate { per_mille } => change(&|node| node.duplicate_per_mille += per_mille),
        FaultKind::Reset => on.iter().for_each(|node| env.reset(node.who)),
        FaultKind::ClockStep { by } => {
            change(&|node| node.offset_ms += by);
            on.iter().for_each(|node| env.record(node.who, What::ClockStepped { by }));
        }
        FaultKind::ClockDrift { per_mille } => {
            let at = env.at();
            change(&|node| {
                // One drift at a time: a second one takes the place of the first.
                node.drift = Some((per_mille, at));
            });
        }
        FaultKind::HandlersHang => change(&|node| node.hang += 1),
        FaultKind::HandlersSlow { times } => change(&|node| node.slow_times += times),
        FaultKind::HandlersPanic => change(&|node| node.panics += 1),
        FaultKind::DatabaseSlow { ms } => lock(&env.trouble).database_slow_ms += ms,
        FaultKind::DatabaseDown => lock(&env.trouble).database_down += 1,
        FaultKind::DatabaseAborts { per_mille } => lock(&env.trouble).aborts_per_mille += per_mille,
        FaultKind::CommitAppliedAnswerLost { per_mille } => lock(&env.trouble).applied_lost_per_mille += per_mille,
        FaultKind::CommitNotAppliedAnswerLost { per_mille } => lock(&env.trouble).not_applied_lost_per_mille += per_mille,
        FaultKind::Failover => {
            let at = env.at();
            let lost = lock(&env.database).fail_over(at);
            env.probe("database.failed_over");
            if lost > 0 {
                env.probe("database.lost_its_tail");
            }
        }
        FaultKind::DatabaseClockStep { by } => {
            let at = env.at();
            lock(&env.database).step_clock(at, by);
        }
        FaultKind::WakeUpsDown => {
            let has_delayed = {
                let database = lock(&env.database);
                let data = database.data();
                data.live.iter().any(|id| data.instances[id].state == State::Waiting && data.instances[id].due_at.is_some())
            };
            if has_delayed {
                env.probe("wake_ups.flushed_with_work_waiting");
            }
            lock(&env.trouble).wake_ups_down += 1;
        }
        FaultKind::WakeUpsLost { per_mille } => lock(&env.trouble).wake_ups_lost_per_mille += per_mille,
        FaultKind::WakeUpsDoubled => lock(&env.trouble).wake_ups_doubled += 1,
        FaultKind::RetryStorm { downstream } => *lock(&env.trouble).storms.entry(downstream).or_default() += 1,
        FaultKind::Flood { task, count } => flood(env, index, task, count),
    }
}

fn end(env: &Arc<Env>, on: &[Arc<Node>], fault: &Fault) {
    let network = NetSim::current();
    let change = |change: &dyn Fn(&mut crate::world::env::NodeTrouble)| on.iter().for_each(|node| env.change_node(node.who, change));
    match fault.kind {
        FaultKind::Crash | FaultKind::Restart => on.iter().for_each(|node| node.start_again()),
        FaultKind::Pause => on.iter().for_each(|node| node.resume(env)),
        FaultKind::Isolate | FaultKind::CutOutgoing | FaultKind::CutIncoming => {
            change(&|node| {
                node.outgoing_cut -= u32::from(fault.kind != FaultKind::CutIncoming);
                node.incoming_cut -= u32::from(fault.kind != FaultKind::CutOutgoing);
            });
            for node in on {
                let state = env.node(node.who);
                if state.outgoing_cut == 0 {
                    network.unclog_node_out(node.id());
                }
                if state.incoming_cut == 0 {
                    network.unclog_node_in(node.id());
                }
            }
        }
        FaultKind::CutFromDatabase => change(&|node| node.database_cut -= 1),
        FaultKind::Delay { ms } => change(&|node| node.delay_ms -= ms),
        FaultKind::Lose { per_mille } => change(&|node| node.lose_per_mille -= per_mille),
        FaultKind::Duplicate { per_mille } => change(&|node| node.duplicate_per_mille -= per_mille),
        FaultKind::ClockStep { by } => {
            change(&|node| node.offset_ms -= by);
            on.iter().for_each(|node| env.record(node.who, What::ClockStepped { by: -by }));
        }
        FaultKind::ClockDrift { .. } => change(&|node| node.drift = None),
        FaultKind::HandlersHang => change(&|node| node.hang -= 1),
        FaultKind::HandlersSlow { times } => change(&|node| node.slow_times -= times),
        FaultKind::HandlersPanic => change(&|node| node.panics -= 1),
        FaultKind::DatabaseSlow { ms } => lock(&env.trouble).database_slow_ms -= ms,
        FaultKind::DatabaseDown => lock(&env.trouble).database_down -= 1,
        FaultKind::DatabaseAborts { per_mille } => lock(&env.trouble).aborts_per_mille -= per_mille,
        FaultKind::CommitAppliedAnswerLost { per_mille } => lock(&env.trouble).applied_lost_per_mille -= per_mille,
        FaultKind::CommitNotAppliedAnswerLost { per_mille } => lock(&env.trouble).not_applied_lost_per_mille -= per_mille,
        FaultKind::DatabaseClockStep { by } => {
            let at = env.at();
            lock(&env.database).step_clock(at, -by);
        }
        FaultKind::WakeUpsDown => lock(&env.trouble).wake_ups_down -= 1,
        FaultKind::WakeUpsLost { per_mille } => lock(&env.trouble).wake_ups_lost_per_mille -= per_mille,
        FaultKind::WakeUpsDoubled => lock(&env.trouble).wake_ups_doubled -= 1,
        FaultKind::RetryStorm { downstream } => *lock(&env.trouble).storms.entry(downstream).or_default() -= 1,
        FaultKind::Failover | FaultKind::Reset | FaultKind::Flood { .. } => {}
    }
}

/// So many submissions at once.
fn flood(env: &Arc<Env>, index: usize, task: usize, count: usize) {
    let name: Arc<str> = Arc::from(env.plan.tasks[task].document["name"].as_str().unwrap_or_default());
    let numbers = Arc::new(AtomicU64::new((index as u64 + 1) << 32));
    let calls = (0..count).step_by(limits::SUBMISSIONS_MAX).map(|begun| limits::SUBMISSIONS_MAX.min(count - begun));
    for (number, size) in calls.enumerate() {
        let (env, name, numbers) = (env.clone(), name.clone(), numbers.clone());
        madsim::task::spawn(async move {
            let caller = Caller::new(&env, numbers, &format!("flood/{index}/{number}"));
            caller.trigger(&name, None, vec![Submission::default(); size]).await;
        });
    }
}
