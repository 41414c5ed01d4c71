//! Nodes of workflows that call other tasks.
//!
//! Such a node is no attempt of its own: it is `running` while an instance of the called task is, and ends with that. Who calls and who is
//! called may have different owners, which talk through inboxes: the call is written in the batch that has the node's start, its answer in the
//! batch that has the instance's end, and both are applied once. The instance's row says which node has called it, so whoever takes over
//! answers; the node's row says that it calls, so whoever takes over waits for the answer and gives it to no worker.
//!
//! A call whose node is cancelled is cancelled in turn. That may come when the instance has ended, or the answer when the node has: then it
//! changes nothing. The called task's own limits, retries and bounds in time hold for the instance, as for any other of its firings.
//!
//! A run keeps its place of its own task's limit while it waits. Tasks call each other in no ring, so those that wait for each other's places
//! don't either; and a task that calls is in no group that has a `max_running`, which would make a ring of them.

use std::sync::Arc;

use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, partition_of};
use crate::inbox::{InboxEntry, Notice, called_ordinal};
use crate::instance::{CallLink, Cause, Links, Origin, State};
use crate::limits;
use crate::probe;
use crate::scheduler::Scheduler;
use crate::scheduler::attempts::joined;
use crate::scheduler::requests::{Asked, by_whom};
use crate::text::cut;

impl Scheduler {
    /// A node has its turn: makes the call, unless its task is paused; then it waits for the end of that. False: it calls nobody.
    pub(super) fn call_if_due(&mut self, id: InstanceId) -> bool {
        let Some(name) = self.instances[&id].definition.calls.clone() else { return false };
        if self.instances[&id].row.state != State::Created || self.is_held_by_pause(id) {
            return true;
        }
        probe!("call.made");
        let (payload, now) = (self.payload_of(id), self.now.wall);
        let live = self.instances.get_mut(&id).expect("looked at above");
        let links = live.row.links.get_or_insert_default();
        links.call = Some(Box::new(CallLink::Calls { task: Arc::clone(&name), instance: None }));
        let hops = links.hops + 1;
        live.change(State::Running, Cause::Calls, now).detail = Some(Arc::from(format!("`{name}`")));
        let (caller_task, by) = (live.row.task, Arc::clone(&live.definition.name));
        self.mark_instance(id);
        let to = partition_of(&name, self.config.partitions);
        let call = Notice::Called { name, task: None, caller: id, caller_task, hops, payload };
        self.tell(id.partition(), to, by, call);
        true
    }

    /// A node that calls is to end: whatever it has called is.
    pub(super) fn cancel_call(&mut self, id: InstanceId, is_killed: bool) {
        let Some(live) = self.instances.get(&id) else { return };
        let Some(name) = live.row.calls().cloned() else { return };
        let by = Arc::clone(&live.definition.name);
        let to = partition_of(&name, self.config.partitions);
        self.tell(id.partition(), to, by, Notice::CallCancelled { name, task: None, caller: id, is_killed });
    }

    /// A node of another task's run calls a task of this replica.
    pub(super) fn called(&mut self, entry: &InboxEntry, call: &Notice) {
        let Notice::Called { name, task, caller, caller_task, hops, payload } = call else { return };
        let (task, caller, caller_task, hops) = (*task, *caller, *caller_task, *hops);
        if self.calls.contains_key(&caller) {
            return;
        }
        let why = match task.and_then(|task| self.tasks.get(&task)) {
            None => Some("there is no such task any more".to_owned()),
            Some(known) if !known.definition.enabled => Some("it is not enabled, and fires by hand only".to_owned()),
            Some(_) if !guard!(Guard::ChainsEnd, hops <= limits::CHAIN_HOPS_MAX) => {
                Some(format!("{} tasks fire or call each other before it, and no more may", limits::CHAIN_HOPS_MAX))
            }
            Some(known) => {
                let definition = &known.definition;
                let payload = payload.as_deref().or(definition.payload.as_deref());
                let problem = definition.takes.as_ref().and_then(|takes| takes.0.problem(payload));
                problem.map(|problem| format!("PUN-154: the payload is not as the task's schema says: {problem}"))
            }
        };
        let Some(task) = task.filter(|_| why.is_none()) else {
            probe!("call.impossible");
            let (instance, result, detail) = (None, None, why.map(Arc::from));
            let answer = Notice::CallEnded { task: caller_task, caller, instance, state: State::Skipped, result, detail };
            return self.tell(entry.partition, caller.partition(), Arc::clone(name), answer);
        };
        probe!("call.fired");
        let call = Some(Box::new(CallLink::CalledBy { task: caller_task }));
        self.fire_for(Asked {
            task,
            partition: entry.partition,
            origin: Origin::Call,
            ordinal: called_ordinal(caller),
            at: entry.at,
            by: Arc::clone(&entry.by),
            payload: payload.clone(),
            key: None,
            delay: None,
            links: Some(Box::new(Links { cause: Some(caller), hops, call, ..Links::default() })),
        });
    }

    /// An instance is this replica's: remembers who has called it.
    pub(super) fn take_up_call(&mut self, id: InstanceId) {
        let row = &self.instances[&id].row;
        if let Some((caller, _)) = row.caller()
            && !row.state.is_terminal()
        {
            self.calls.insert(caller, id);
        }
    }

    /// A node is to end, and with it what it has called here. Answers whether the entry stays in the inbox.
    pub(super) fn call_cancelled(&mut self, entry: &InboxEntry, caller: InstanceId, is_killed: bool) -> bool {
        let Some(called) = self.calls.get(&caller).copied() else { return false };
        probe!("call.cancelled");
        let (cause, how) = match is_killed {
            true => (Cause::KillRequested, "killed"),
            false => (Cause::CancelRequested, "cancelled"),
        };
        let why = format!("the node {caller} that called it was {how}");
        self.cancel_instance(called, cause, Some(by_whom(&entry.by, Some(&why))));
        self.is_kept_until_end(called, entry.id)
    }

    /// An instance has ended: the node that called it is told, in the batch that has the end.
    pub(super) fn tell_caller(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        let Some((caller, task)) = live.row.caller() else { return };
        let (state, result, by) = (live.row.state, live.row.result.clone(), Arc::clone(&live.definition.name));
        let detail = live.row.transitions.last().and_then(|last| last.detail.clone());
        self.calls.remove(&caller);
        let answer = Notice::CallEnded { task, caller, instance: Some(id), state, result, detail };
        self.tell(id.partition(), caller.partition(), by, answer);
    }

    /// What a node has called has ended, or can't be fired. One that has ended itself stays as it is.
    pub(super) fn call_ended(
        &mut self,
        caller: InstanceId,
        called: Option<InstanceId>,
        state: State,
        result: Option<Arc<str>>,
        why: Option<&str>,
    ) {
        let Some(live) = self.instances.get_mut(&caller).filter(|live| live.row.state == State::Running) else { return };
        let Some(CallLink::Calls { task, instance }) = live.row.links.as_mut().and_then(|links| links.call.as_deref_mut()) else { return };
        probe!("call.ended");
        *instance = called;
        let mut words = match called {
            Some(called) => format!("instance {called} of `{task}` is {}", state.name()),
            None => format!("`{task}` was not fired"),
        };
        if let Some(why) = why.filter(|_| state != State::Succeeded) {
            words.push_str(": ");
            words.push_str(why);
        }
        let words = Some(Arc::from(cut(words, limits::DETAIL_BYTES_MAX)));
        match (state, live.cancel.take()) {
            (State::Succeeded, _) => {
                live.row.result = result;
                self.end(caller, State::Succeeded, Cause::CallEnded, None, words);
            }
            (_, Some((cause, why))) => self.end(caller, State::Cancelled, cause, None, joined(why, words)),
            (_, None) => {
                live.row.failures += 1;
                self.end(caller, State::Failed, Cause::CallEnded, None, words);
            }
        }
    }
}
