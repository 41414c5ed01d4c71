//! Attempts that workers hold: their accounts, results, losing workers and finding them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::AttemptOutput;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{ConnectionId, Fence, InstanceId, WorkerLife};
use crate::instance::{Cause, Part, State};
use crate::limits;
use crate::probe;
use crate::protocol::{End, Hello, Report, Running, ToScheduler, ToWorker};
use crate::retry::{self, Failure, Next, Score};
use crate::scheduler::{Alert, Command, Scheduler, Sent};
use crate::text::cut;
use crate::time::{Millis, Monotonic};

/// A report that waits for fire times that have come. Nobody is told that it is taken before it is written, so it may be lost.
#[derive(Debug)]
pub(super) struct PutOff {
    until: Monotonic,
    connection: ConnectionId,
    report: Report,
}

/// So long after a partition was taken over, what the owner before has sent may still be on its way to a worker that does not know of it.
const IN_FLIGHT_GRACE: Millis = Millis(5_000);

/// How long a report waits at most for fire times that have come: what is late to begin comes before what has ended.
const REPORT_WAIT_MAX: Millis = Millis(300);

/// How long a worker that gave an assignment back gets nothing more; each further time twice as long, up to 32 times this.
const RETURN_PAUSE: Millis = Millis(500);

impl Scheduler {
    pub(super) fn send(&mut self, connection: ConnectionId, message: ToWorker) {
        if self.workers.by_connection.contains_key(&connection) {
            self.outgoing.entry(connection).or_default().push(message);
        }
    }

    pub(super) fn worker_message(&mut self, connection: ConnectionId, message: ToScheduler) {
        if let ToScheduler::Hello(hello) = message {
            return self.hello(connection, hello);
        }
        let lease_until = self.now.monotonic + limits::WORKER_LEASE;
        // Nothing is taken from a connection that has not said whose it is, or that another one has taken the place of.
        let Some(worker) = self.workers.of_connection(connection) else { return };
        worker.lease_until = lease_until;
        match message {
            ToScheduler::Hello(_) => unreachable!("handled above"),
            ToScheduler::Heartbeat => self.send(connection, ToWorker::Alive),
            ToScheduler::Draining => {
                worker.draining = true;
                self.workers.generation += 1;
            }
            ToScheduler::Started { instance, fence } => {
                (worker.returns, worker.full_until) = (0, Monotonic(0));
                self.started(connection, instance, fence);
            }
            ToScheduler::Returned { instance, fence } => {
                // It has its reasons, and they won't have gone by the time that it would get the next one.
                worker.full_until = self.now.monotonic + RETURN_PAUSE.saturating_mul(1 << worker.returns.min(5));
                worker.returns = worker.returns.saturating_add(1);
                if guard!(Guard::FenceOnProgress, self.is_current(instance, fence)) {
                    probe!("attempt.returned");
                    self.take_back(instance);
                }
            }
            ToScheduler::Finished(report) => {
                (worker.returns, worker.full_until) = (0, Monotonic(0));
                if self.reports_wait() {
                    let until = self.now.monotonic + REPORT_WAIT_MAX;
                    return self.put_off.push_back(PutOff { until, connection, report });
                }
                self.finished(connection, report);
            }
        }
    }

    fn hello(&mut self, connection: ConnectionId, hello: Hello) {
        let index = self.workers.index_of(&hello.worker);
        if self.workers.list[index].connection.is_some_and(|newer| newer > connection) {
            // The rest of a connection that the worker has given up.
            return;
        }
        if let Some(other) = self.workers.by_connection.get(&connection).copied().filter(|other| *other != index) {
            // A connection is one worker's: whoever said hello on it before is gone.
            self.workers.list[other].connection = None;
        }
        let worker = &mut self.workers.list[index];
        if let Some(before) = worker.connection.filter(|before| *before != connection) {
            self.workers.by_connection.remove(&before);
        }
        let worker = &mut self.workers.list[index];
        if worker.connection != Some(connection) {
            (worker.assigned, worker.account_from) = (0, 0);
        }
        // It may say so because it keeps a slot for this replica.
        (worker.returns, worker.full_until) = (0, Monotonic(0));
        worker.life = hello.life;
        worker.connection = Some(connection);
        worker.slots = hello.slots as usize;
        worker.handlers = hello.handlers.into_iter().collect();
        worker.traits = hello.traits;
        worker.draining = hello.draining;
        worker.is_drained = self.pauses.drain(&worker.id);
        worker.lease_until = self.now.monotonic + limits::WORKER_LEASE;
        let mut held: Vec<_> = worker.held.iter().copied().collect();
        held.sort_unstable();
        self.workers.by_connection.insert(connection, index);
        self.workers.generation += 1;
        let heartbeat = match guard!(Guard::HeartbeatsWithinLease, false) {
            false => limits::HEARTBEAT_INTERVAL,
            true => limits::WORKER_LEASE,
        };
        self.send(connection, ToWorker::Welcome { heartbeat, lease: limits::WORKER_LEASE });
        self.join();

        let running: BTreeSet<_> = hello.running.iter().map(|running| (running.instance, running.fence)).collect();
        for id in held {
            self.account_for(id, connection, hello.life, hello.received, &running);
        }
        for Running { instance, fence } in hello.running {
            self.judge_claim(connection, index, instance, fence);
        }
    }

    /// Compares what this replica thinks a worker holds with the worker's account.
    fn account_for(
        &mut self,
        id: InstanceId,
        connection: ConnectionId,
        life: WorkerLife,
        received: u64,
        running: &BTreeSet<(InstanceId, Fence)>,
    ) {
        let account_from = self.workers.of_connection(connection).map_or(0, |worker| worker.account_from);
        let Some(fence) = self.instances.get(&id).map(|live| live.row.fence) else { return };
        let now = self.now.monotonic;
        let partition = self.partition(id.partition());
        let (is_ours, settles_at) = (partition.gave_out(fence), partition.loaded_at() + IN_FLIGHT_GRACE);
        let Some(live) = self.instances.get_mut(&id) else { return };
        if running.contains(&(id, live.row.fence)) {
            return;
        }
        let is_same_life = guard!(Guard::WorkerLivesApart, live.row.worker.as_ref().is_some_and(|worker| worker.life == life));
        let may_be_on_its_way = match live.sent {
            Sent::NotYet => return,
            Sent::Over(over, place) => over == connection && place > received,
            // The owner before may have sent it just before it handed over. It will have come by the time that is asked again.
            Sent::Unknown if !is_ours && is_same_life && now < settles_at => {
                let again_at = &mut self.workers.account_again_at;
                *again_at = Some(again_at.map_or(settles_at, |at| at.max(settles_at)));
                true
            }
            Sent::Unknown => received < account_from,
        };
        if !guard!(Guard::AccountCoversAssignment, !may_be_on_its_way) {
            return;
        }
        // An assignment that another owner sent may still be on its way, over a connection that this replica knows nothing of. What is
        // idempotent is given out again, and the fence sorts out the rest.
        let is_sure = live.sent != Sent::Unknown || live.definition.idempotent || is_ours;
        if is_sure && is_same_life && live.row.state == State::Dispatched {
            // In one life a worker forgets nothing, so it never had this.
            probe!("attempt.never_received");
            self.take_back(id);
        } else {
            self.lose(id, "its worker started anew without it");
        }
    }

    /// A worker says that it holds this attempt.
    fn judge_claim(&mut self, connection: ConnectionId, index: usize, id: InstanceId, fence: Fence) {
        if self.is_current(id, fence) {
            probe!("attempt.adopted");
            let live = self.instances.get_mut(&id).expect("current instances are live");
            self.workers.hold(index, id, live.definition.band);
            live.sent = Sent::Over(connection, 0);
            if live.cancel.is_some() {
                self.send(connection, ToWorker::Cancel { instance: id, fence });
            }
        } else if let Some(live) = self.instances.get_mut(&id).filter(|live| live.row.fence == fence && !live.row.state.is_terminal()) {
            live.stray = Some(connection);
        } else if self.is_owned(id.partition())
            && !self.lanes.is_ending(id)
            && self.instances.get(&id).is_none_or(|live| live.row.fence != fence)
        {
            self.fence_seen(id.partition(), fence);
            self.send(connection, ToWorker::Cancel { instance: id, fence });
        }
    }

    pub(super) fn ask_workers_for_accounts(&mut self) {
        self.workers.list.iter_mut().for_each(|worker| worker.account_from = worker.assigned);
        let connections: Vec<_> = self.workers.list.iter().filter_map(|worker| worker.connection).collect();
        for connection in connections {
            self.send(connection, ToWorker::GiveAccount);
        }
    }

    pub(super) fn worker_disconnected(&mut self, connection: ConnectionId) {
        self.outgoing.remove(&connection);
        if let Some(index) = self.workers.by_connection.remove(&connection) {
            self.workers.list[index].connection = None;
            self.workers.generation += 1;
        }
    }

    /// Workers that have not been heard of for their lease have lost what they held.
    pub(super) fn look_after_workers(&mut self) {
        let now = self.now.monotonic;
        if self.workers.account_again_at.take_if(|at| *at <= now).is_some() {
            self.ask_workers_for_accounts();
        }
        let silent: Vec<_> = (0..self.workers.list.len())
            .filter(|index| !self.workers.list[*index].held.is_empty() && self.workers.list[*index].lease_until <= now)
            .collect();
        for index in silent {
            let worker = &self.workers.list[index];
            let mut held: Vec<_> = worker.held.iter().copied().collect();
            held.sort_unstable();
            let alert = Alert::WorkerLost { worker: worker.id.clone(), attempts: held.len() };
            self.commands.push_back(Command::Alert(alert));
            for id in held {
                self.lose(id, "its worker was not heard of for its lease");
            }
        }
        self.workers.forget_gone(now);
    }

    fn started(&mut self, connection: ConnectionId, id: InstanceId, fence: Fence) {
        if !self.is_owned(id.partition()) {
            return;
        }
        if !guard!(Guard::FenceOnProgress, self.is_current(id, fence)) {
            self.judge_claim(connection, usize::MAX, id, fence);
            return;
        }
        let Some(live) = self.instances.get_mut(&id) else { return };
        if live.row.state == State::Dispatched {
            live.change(State::Running, Cause::Started, self.now.wall);
            self.mark_instance(id);
        }
    }

    /// Takes a result in. It is acknowledged when its commit is through, or the one that made it count for nothing.
    /// What has come due and not begun is more urgent than what has ended, unless it is for that that it waits.
    fn reports_wait(&self) -> bool {
        self.fires_wait && self.ready.is_empty()
    }

    /// Takes up the reports that were put off, where nothing waits to be fired any more, or where they have waited for long. Answers whether
    /// there were any.
    pub(super) fn take_up_reports(&mut self) -> bool {
        let before = self.put_off.len();
        while self.put_off.front().is_some_and(|first| !self.reports_wait() || first.until <= self.now.monotonic)
            && let Some(PutOff { connection, report, .. }) = self.put_off.pop_front()
        {
            // The worker repeats what it has said over a connection that is gone.
            if self.workers.of_connection(connection).is_some() {
                self.finished(connection, report);
            }
        }
        self.put_off.len() < before
    }

    fn finished(&mut self, connection: ConnectionId, report: Report) {
        let Report { instance: id, fence, end, code, detail, output, result, items, retry_after } = report;
        let partition = id.partition();
        if !self.is_owned(partition) || self.lanes.is_ending(id) {
            // Another owner's, still being read, or on its way into the store: the worker will repeat it if need be.
            return;
        }
        let acknowledge = ToWorker::Acknowledge { instance: id, fence };
        let Some(live) = self.instances.get(&id) else {
            self.fence_seen(partition, fence);
            self.hold_alert(partition, Alert::LateResult { instance: id, fence });
            return self.send(connection, acknowledge);
        };
        if live.row.state.is_terminal() && live.row.fence == fence {
            // A repetition of what is about to be written.
            return;
        }
        if !guard!(Guard::FenceOnResult, live.row.fence == fence) {
            probe!("result.refused_by_fence");
            self.hold_alert(partition, Alert::LateResult { instance: id, fence });
            // What took its place may not be written yet, and if it never is, this result still counts.
            return self.hold_message(partition, connection, acknowledge);
        }
        let state = live.row.state;
        let was_returned = live.row.transitions.last().is_some_and(|last| last.cause == Cause::Returned);
        let is_late_success = end == End::Succeeded && !state.is_terminal() && !state.is_with_worker();
        self.hold_message(partition, connection, acknowledge);
        if !state.is_with_worker() && !is_late_success {
            // It was taken for lost and did fail, or says so again: what follows is under way.
            return;
        }
        let live = self.instances.get_mut(&id).expect("looked up above");
        // It was taken for never received and has run all the same.
        live.row.attempt += u32::from(was_returned);
        if !output.bytes.is_empty() || output.dropped > 0 {
            self.lanes.pending(partition).put_output(AttemptOutput { instance: id, attempt: live.row.attempt, output });
        }
        if end == End::Succeeded {
            live.row.result = result;
            self.take_items(id, items);
        }
        if is_late_success {
            // It was taken for lost, but nobody has taken over: its fence still holds, so its success counts.
            self.breaker_sees_success(id);
            self.end(id, State::Succeeded, Cause::Finished, code, detail);
        } else {
            self.take_result(id, end, code, detail, retry_after);
        }
    }

    fn take_result(&mut self, id: InstanceId, end: End, code: Option<i32>, detail: Option<Arc<str>>, retry_after: Option<Millis>) {
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let cancel = live.cancel.take();
        let (failures, losses) = (live.row.failures, live.row.losses);
        if failures == 0 && losses == 0 {
            self.budget_sees_first_end(id);
        }
        if end == End::Succeeded && cancel.is_some() {
            probe!("cancel.raced_with_success");
        }
        match (end, cancel) {
            (End::Succeeded, _) => {
                self.breaker_sees_success(id);
                self.end(id, State::Succeeded, Cause::Finished, code, detail);
            }
            (_, Some((cause, why))) => self.end(id, State::Cancelled, cause, code, joined(why, detail)),
            (End::FailedForGood, None) => {
                self.breaker_sees_nothing(id);
                let live = self.instances.get_mut(&id).expect("checked by the caller");
                live.row.failures += 1;
                self.end(id, State::Failed, Cause::Finished, code, detail);
            }
            (End::Failed, None) => self.fail(id, Failure { how: State::Failed, code, retry_after }, detail),
            (End::TimedOut, None) => self.fail(id, Failure { how: State::TimedOut, code, retry_after }, detail),
            // The worker ended it of its own accord: for the instance that is a lost worker.
            (End::Cancelled, None) => self.lose(id, "its worker ended it before it was done"),
        }
    }

    fn fail(&mut self, id: InstanceId, failure: Failure, detail: Option<Arc<str>>) {
        self.breaker_sees_failure(id, failure);
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        live.row.failures += 1;
        let score = Score { failures: live.row.failures, losses: live.row.losses };
        let mut next = retry::after_failure(&live.definition, id, score, failure);
        if matches!(next, Next::Again(_)) && !guard!(Guard::RetryBudget, self.budget_allows_retry(id)) {
            next = Next::End(State::DeadLettered, Cause::RetryBudgetExhausted);
        }
        self.go_on(id, next, failure.cause(), failure.code, detail);
    }

    /// An attempt's worker is lost, and with it all knowledge of how far it got.
    fn lose(&mut self, id: InstanceId, why: &str) {
        probe!("attempt.lost");
        let Some(live) = self.instances.get_mut(&id) else {
            return self.workers.release(id);
        };
        if !live.row.state.is_with_worker() {
            return self.workers.release(id);
        }
        let may_have_begun = live.sent != Sent::NotYet;
        let detail = Some(Arc::from(why));
        if let Some((cause, asked)) = live.cancel.take() {
            return self.end(id, State::Cancelled, cause, None, joined(asked, detail));
        }
        live.row.losses += 1;
        let score = Score { failures: live.row.failures, losses: live.row.losses };
        let next = retry::after_loss(&live.definition, id, score, may_have_begun);
        self.go_on(id, next, Cause::WorkerLost, None, detail);
    }

    fn go_on(&mut self, id: InstanceId, next: Next, cause: Cause, code: Option<i32>, detail: Option<Arc<str>>) {
        match next {
            // What runs when its task is removed may end, not begin again.
            Next::Again(_) if !self.tasks.contains_key(&self.instances[&id].row.task) => {
                self.end(id, State::Cancelled, Cause::TaskRemoved, code, detail);
            }
            Next::End(state, cause) => {
                match cause {
                    Cause::AttemptsExhausted => probe!("retry.exhausted"),
                    Cause::Quarantined => probe!("instance.quarantined"),
                    _ => {}
                }
                self.end(id, state, cause, code, detail);
            }
            Next::Again(wait) => {
                let due_at = self.now.wall.saturating_add(wait);
                let now = self.now.wall;
                let live = self.instances.get_mut(&id).expect("checked by the caller");
                let transition = live.change(State::Retrying, cause, now);
                transition.code = code;
                transition.detail = detail;
                live.row.worker = None;
                live.row.due_at = Some(due_at);
                self.workers.release(id);
                self.mark_instance(id);
                self.arm_instance(id, wait);
            }
        }
    }

    /// An assignment comes back unbegun: it costs no attempt, and it keeps its place.
    pub(super) fn take_back(&mut self, id: InstanceId) {
        let now = self.now.wall;
        let Some(live) = self.instances.get_mut(&id) else { return };
        if live.row.state != State::Dispatched {
            return;
        }
        if let Some((cause, detail)) = live.cancel.take() {
            return self.end(id, State::Cancelled, cause, None, detail);
        }
        // What waits when its task is removed is cancelled, and this would wait again. Shards belong to what has begun.
        if !live.row.part.is_shard() && !self.tasks.contains_key(&live.row.task) {
            return self.end(id, State::Cancelled, Cause::TaskRemoved, None, None);
        }
        live.change(State::Created, Cause::Returned, now);
        live.row.attempt -= 1;
        live.row.worker = None;
        self.make_ready(id);
        self.workers.release(id);
        self.mark_instance(id);
    }

    /// Ends an instance.
    pub(super) fn end(&mut self, id: InstanceId, state: State, cause: Cause, code: Option<i32>, detail: Option<Arc<str>>) {
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let transition = live.change(state, cause, now);
        transition.code = code;
        transition.detail = detail;
        let was_created = transition.from == Some(State::Created);
        live.row.due_at = None;
        let applied = std::mem::take(&mut live.cancel_requests);
        self.lanes.pending(id.partition()).applied.extend(applied.into_iter().map(|entry| (id.partition(), entry)));
        if let Some(key) = live.timer.take() {
            self.instance_timers.cancel(key);
        }
        self.workers.release(id);
        self.mark_instance(id);
        self.tell_chained(id);
        self.tell_caller(id);
        self.give_slot_back(id);
        self.backfilled_one_ended(id);
        if was_created {
            self.forget_ready(id);
        }
        self.alert_of_end(id, state, cause);
        self.leave_progress(id);
    }

    /// Somebody has to know of a firing that came to no good end. Of a part of one that is said with the end of the whole.
    fn alert_of_end(&mut self, id: InstanceId, state: State, cause: Cause) {
        let alert = match state {
            State::DeadLettered => Alert::DeadLettered { instance: id, cause },
            State::Failed | State::TimedOut => Alert::Failed { instance: id, state, cause },
            _ => return,
        };
        if self.instances[&id].row.part == Part::WHOLE {
            self.hold_alert(id.partition(), alert);
        }
    }

    /// An instance that waits for a worker has ended. It is passed over when its turn comes, unless they become too many.
    pub(super) fn forget_ready(&mut self, id: InstanceId) {
        if !self.pauses.let_go(id) && !self.leaves_throttled(id) && self.ready.forget_one() {
            let instances = &self.instances;
            self.ready.retain(|id| instances.get(&id).is_some_and(|live| live.row.state == State::Created));
        }
    }

    /// Asks the worker to end the current attempt; one that has not left yet is ended when it would leave.
    pub(super) fn ask_to_cancel(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        if live.sent == Sent::NotYet {
            return;
        }
        let fence = live.row.fence;
        let connection = self.workers.holder(id).and_then(|worker| worker.connection);
        if let Some(connection) = connection {
            let is_killed = matches!(live.cancel, Some((Cause::KillRequested, _)));
            let message = if is_killed { ToWorker::Kill { instance: id, fence } } else { ToWorker::Cancel { instance: id, fence } };
            self.send(connection, message);
        }
    }
}

/// Who asked for the end, and how the attempt then ended.
pub(super) fn joined(asked: Option<Arc<str>>, how: Option<Arc<str>>) -> Option<Arc<str>> {
    match (asked, how) {
        (Some(asked), Some(how)) => Some(Arc::from(cut(format!("{asked}; {how}"), limits::DETAIL_BYTES_MAX))),
        (asked, how) => asked.or(how),
    }
}
