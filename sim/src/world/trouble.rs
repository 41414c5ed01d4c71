//! Faults: beginning, ending, and for whom.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use madsim::net::NetSim;
use punctual_core::inbox::Submission;
use punctual_core::instance::State;
use punctual_core::limits;

use crate::calls;
use crate::history::{What, Who};
use crate::plan::{Fault, FaultKind, Selector};
use crate::trouble::{self, PATIENCE_MS, is_on_record_as_cut};
use crate::world::env::{Env, lock};
use crate::world::nodes::{Node, Nodes};
use crate::world::people::Caller;

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
    let owner = |partition| lock(&env.database).data().lease(partition).owner.clone();
    let chosen = trouble::select(on, env.plan.shape, owner, &lock(&env.busy));
    chosen.into_iter().map(|who| nodes.get(who).clone()).collect()
}

fn record_links(env: &Env, on: &[Arc<Node>], fault: &Fault, what: What) {
    if is_on_record_as_cut(fault.kind) {
        on.iter().for_each(|node| env.record(node.who, what.clone()));
    }
}

fn begin(env: &Arc<Env>, on: &[Arc<Node>], index: usize, fault: &Fault) {
    let network = NetSim::current();
    let at = env.at();
    on.iter().for_each(|node| env.change_node(node.who, |trouble| trouble.begin(fault.kind, at)));
    lock(&env.trouble).begin(fault.kind);
    match fault.kind {
        FaultKind::Crash => on.iter().for_each(|node| node.crash(env)),
        FaultKind::Restart => {
            for node in on {
                let (env, node) = (env.clone(), node.clone());
                // As long as it takes, but not beyond the fault's own time.
                let patience = Duration::from_millis(PATIENCE_MS.min(fault.lasts_ms / 2));
                madsim::task::spawn(async move { node.stop(&env, patience).await });
            }
        }
        FaultKind::Pause => on.iter().for_each(|node| node.pause(env)),
        FaultKind::Isolate => on.iter().for_each(|node| network.clog_node(node.id())),
        FaultKind::CutOutgoing => on.iter().for_each(|node| network.clog_node_out(node.id())),
        FaultKind::CutIncoming => on.iter().for_each(|node| network.clog_node_in(node.id())),
        FaultKind::Reset => on.iter().for_each(|node| env.reset(node.who)),
        FaultKind::ClockStep { by } => on.iter().for_each(|node| env.record(node.who, What::ClockStepped { by })),
        FaultKind::Failover => {
            let lost = lock(&env.database).fail_over(at);
            env.probe("database.failed_over");
            if lost > 0 {
                env.probe("database.lost_its_tail");
            }
        }
        FaultKind::DatabaseClockStep { by } => lock(&env.database).step_clock(at, by),
        FaultKind::WakeUpsDown => {
            let has_delayed = {
                let database = lock(&env.database);
                let data = database.data();
                data.live.iter().any(|id| data.instances[id].state == State::Waiting && data.instances[id].due_at.is_some())
            };
            if has_delayed {
                env.probe("wake_ups.flushed_with_work_waiting");
            }
        }
        FaultKind::Flood { task, count } => flood(env, index, task, count),
        _ => {}
    }
}

fn end(env: &Arc<Env>, on: &[Arc<Node>], fault: &Fault) {
    let network = NetSim::current();
    on.iter().for_each(|node| env.change_node(node.who, |trouble| trouble.end(fault.kind)));
    lock(&env.trouble).end(fault.kind);
    match fault.kind {
        FaultKind::Crash | FaultKind::Restart => on.iter().for_each(|node| node.start_again()),
        FaultKind::Pause => on.iter().for_each(|node| node.resume(env)),
        FaultKind::Isolate | FaultKind::CutOutgoing | FaultKind::CutIncoming => {
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
        FaultKind::ClockStep { by } => on.iter().for_each(|node| env.record(node.who, What::ClockStepped { by: -by })),
        FaultKind::DatabaseClockStep { by } => {
            let at = env.at();
            lock(&env.database).step_clock(at, -by);
        }
        _ => {}
    }
}

/// So many submissions at once.
fn flood(env: &Arc<Env>, index: usize, task: usize, count: usize) {
    let name = calls::name_of(&env.plan, task);
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
