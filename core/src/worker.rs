//! The worker node: a worker's mind.
//!
//! A machine like the scheduler, and as much part of safety: it keeps each result until a scheduler has acknowledged it, ends its
//! attempts when no scheduler has been heard of for its lease, and tells every scheduler the same truth about what it holds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::batch::Output;
use crate::definition::TimeoutAction;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{ConnectionId, Fence, InstanceId, WorkerId, WorkerLife};
use crate::limits;
use crate::probe;
use crate::protocol::{Assignment, End, Hello, Report, Running, ToScheduler, ToWorker};
use crate::routing::WorkerTraits;
use crate::time::{Millis, Monotonic};
use crate::wheel::{TimerKey, Wheel};

/// What a worker is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its id, stable over restarts.
    pub worker: WorkerId,
    /// This life of it: another one after each start.
    pub life: WorkerLife,
    /// How many attempts it runs at once.
    pub slots: u32,
    /// The handlers that it knows.
    pub handlers: Vec<Arc<str>>,
    /// What routing goes by.
    pub traits: WorkerTraits,
}

/// Everything that can happen to a worker.
#[derive(Debug)]
pub enum Event {
    /// Nothing but the passing of time.
    Tick,
    /// A scheduler can be talked to.
    Connected(ConnectionId),
    /// A scheduler can't be talked to any more.
    Disconnected(ConnectionId),
    /// Messages of a scheduler, in order.
    Messages {
        /// The connection to it.
        connection: ConnectionId,
        /// The messages.
        messages: Vec<ToWorker>,
    },
    /// A handler has ended.
    Ended {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
        /// How, by the handler's own account.
        end: End,
        /// The exit code of a command or the status of an HTTP call.
        code: Option<i32>,
        /// In words.
        detail: Option<Arc<str>>,
        /// What it wrote.
        output: Output,
        /// What it answers.
        result: Option<Arc<str>>,
        /// The items that it lists.
        items: Option<Arc<str>>,
        /// How long the next attempt is to wait at least, where it met something that said so.
        retry_after: Option<Millis>,
    },
    /// Take nothing more, finish what is there.
    Drain,
    /// Ask everything that runs to end.
    CancelAll,
}

/// Everything that a worker can ask of the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send these messages, in this order.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// The messages.
        messages: Vec<ToScheduler>,
    },
    /// Run this attempt.
    Start(Arc<Assignment>),
    /// Ask an attempt to end.
    Cancel {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// End an attempt now.
    Kill {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// After a drain: nothing is left, and every report was acknowledged.
    Drained,
}

/// A report that was not acknowledged is repeated this often.
const REPORT_REPEAT: Millis = Millis::from_secs(5);

/// A scheduler that was turned away for so long, and begun nothing here meanwhile, gets the next slot that is free.
const TURNED_AWAY_MAX: Millis = Millis::from_secs(5);
/// How long a slot is kept for it: there and back, with a commit or two between.
const SLOT_KEPT: Millis = Millis::from_secs(3);
/// One that has not come again for so long has found another worker: longer than any scheduler waits before it tries again.
const TURNED_AWAY_FORGOTTEN: Millis = Millis::from_secs(30);

type Key = (InstanceId, Fence);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The attempt's time is over.
    Timeout(InstanceId, Fence),
    /// The grace is over.
    Kill(InstanceId, Fence),
}

#[derive(Debug)]
struct Attempt {
    assignment: Arc<Assignment>,
    /// Over which connection it came.
    from: ConnectionId,
    /// Set once it was asked to end.
    stopped: Option<Why>,
    timer: Option<TimerKey>,
    /// It ran longer than it should and was let go on.
    overran: bool,
}

impl Attempt {
    fn key(&self) -> Key {
        (self.assignment.instance, self.assignment.fence)
    }
}

/// Why an attempt was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Cancelled,
    TimedOut,
    SelfFenced,
}

#[derive(Debug)]
struct Link {
    heard_at: Monotonic,
    heartbeat_at: Monotonic,
    /// Assignments received over it.
    received: u64,
    /// Accounts given over it that no welcome has answered.
    unanswered: u64,
    /// So many welcomes have to come before its assignments are fresh: it was silent for the lease, and what comes first may have been
    /// sent before that. Its scheduler has given this worker up meanwhile, and may have given the same to another one.
    stale_for: u64,
    /// When it was turned away first, and last, because there was no slot, since it began something here.
    turned_away: Option<(Monotonic, Monotonic)>,
    /// Until then a slot is kept for it.
    slot_until: Option<Monotonic>,
}

impl Link {
    fn new(now: Monotonic, heartbeat: Millis) -> Link {
        Link { heard_at: now, heartbeat_at: now + heartbeat, received: 0, unanswered: 0, stale_for: 0, turned_away: None, slot_until: None }
    }
}

/// A report that was not acknowledged.
#[derive(Debug)]
struct Kept {
    report: Report,
    since: Monotonic,
}

/// A worker's mind.
#[derive(Debug)]
pub struct WorkerNode {
    config: Config,
    now: Monotonic,
    heartbeat: Millis,
    lease: Millis,
    links: BTreeMap<ConnectionId, Link>,
    /// When any scheduler was last heard of.
    heard_at: Monotonic,
    /// No scheduler was heard of for the lease, and everything was asked to end.
    is_fenced: bool,
    /// One attempt of an instance at a time: two never run side by side here.
    running: FxHashMap<InstanceId, Attempt>,
    /// When to look for reports to repeat.
    repeat_at: Monotonic,
    reports: BTreeMap<Key, Kept>,
    timers: Wheel<Timer>,
    draining: bool,
    drained: bool,
    commands: VecDeque<Command>,
    outgoing: BTreeMap<ConnectionId, Vec<ToScheduler>>,
}

impl WorkerNode {
    /// A worker that knows no scheduler yet.
    pub fn new(config: Config, now: Monotonic) -> Self {
        assert!(config.slots >= 1);
        WorkerNode {
            config,
            now,
            heartbeat: limits::HEARTBEAT_INTERVAL,
            lease: limits::WORKER_LEASE,
            links: BTreeMap::new(),
            heard_at: now,
            is_fenced: false,
            running: FxHashMap::default(),
            repeat_at: now + REPORT_REPEAT,
            reports: BTreeMap::new(),
            timers: Wheel::new(now.0),
            draining: false,
            drained: false,
            commands: VecDeque::new(),
            outgoing: BTreeMap::new(),
        }
    }

    /// Takes one event in. Afterwards ask for commands until there are none.
    pub fn handle_event(&mut self, now: Monotonic, event: Event) {
        self.now = self.now.max(now);
        // What is heard now doesn't make up for the silence before.
        self.fence_self();
        match event {
            Event::Tick => {}
            Event::Connected(connection) => {
                self.links.insert(connection, Link::new(self.now, self.heartbeat));
                self.give_account(connection);
            }
            Event::Disconnected(connection) => {
                self.links.remove(&connection);
                self.outgoing.remove(&connection);
            }
            Event::Messages { connection, messages } => {
                self.heard_of(connection);
                for message in messages {
                    self.message(connection, message);
                }
            }
            Event::Ended { instance, fence, end, code, detail, output, result, items, retry_after } => {
                self.ended(Report { instance, fence, end, code, detail, output, result, items, retry_after });
            }
            Event::Drain => {
                self.draining = true;
                self.tell_everyone(&ToScheduler::Draining);
            }
            Event::CancelAll => self.stop_all(Why::Cancelled),
        }
        self.run_timers();
        self.keep_in_touch();
        if self.draining && !self.drained && self.running.is_empty() && self.reports.is_empty() {
            self.drained = true;
            self.commands.push_back(Command::Drained);
        }
    }

    /// The next thing to do, where there is one.
    pub fn poll_command(&mut self) -> Option<Command> {
        if let Some(command) = self.commands.pop_front() {
            return Some(command);
        }
        let (connection, messages) = self.outgoing.pop_first()?;
        Some(Command::Send { connection, messages })
    }

    /// When to come back with [`Event::Tick`] at the latest; `None`: not before something happens.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let heartbeats = self.links.values().map(|link| link.heartbeat_at).min();
        let timers = self.timers.next_deadline().map(Monotonic);
        let repeats = (!self.reports.is_empty()).then_some(self.repeat_at);
        let fencing = (!self.running.is_empty() && !self.is_fenced).then(|| self.heard_at + self.lease);
        [heartbeats, timers, repeats, fencing].into_iter().flatten().min().map(|at| at.max(self.now + Millis(1)))
    }

    /// Attempts that run.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Reports that were not acknowledged.
    pub fn report_count(&self) -> usize {
        self.reports.len()
    }

    fn heard_of(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let was_silent = self.now.since(link.heard_at) >= self.lease;
        link.heard_at = self.now;
        self.heard_at = self.now;
        self.is_fenced = false;
        if was_silent {
            self.give_account(connection);
            let link = self.links.get_mut(&connection).expect("looked up above");
            link.stale_for = link.unanswered;
        }
    }

    fn message(&mut self, connection: ConnectionId, message: ToWorker) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        match message {
            ToWorker::Welcome { heartbeat, lease } => {
                link.unanswered = link.unanswered.saturating_sub(1);
                link.stale_for = link.stale_for.saturating_sub(1);
                self.heartbeat = heartbeat.max(limits::HEARTBEAT_INTERVAL_MIN);
                self.lease = lease.max(self.heartbeat);
                link.heartbeat_at = self.now + self.heartbeat;
            }
            ToWorker::Alive => {}
            ToWorker::GiveAccount => self.give_account(connection),
            ToWorker::Assign(assignment) => {
                link.received += 1;
                self.assigned(connection, assignment);
            }
            ToWorker::Cancel { instance, fence } => self.stop((instance, fence), Why::Cancelled),
            ToWorker::Kill { instance, fence } => self.kill((instance, fence)),
            ToWorker::Acknowledge { instance, fence } => {
                self.reports.remove(&(instance, fence));
            }
        }
    }

    /// All that this worker holds, and all that it has to report.
    fn give_account(&mut self, connection: ConnectionId) {
        let running = self.running.values().map(Attempt::key);
        let mut running: Vec<_> =
            running.chain(self.reports.keys().copied()).map(|(instance, fence)| Running { instance, fence }).collect();
        running.sort_unstable_by_key(|running| (running.instance, running.fence));
        let link = self.links.get_mut(&connection).expect("there is such a link");
        link.unanswered += 1;
        let hello = Hello {
            worker: self.config.worker.clone(),
            life: self.config.life,
            slots: self.config.slots,
            handlers: self.config.handlers.clone(),
            draining: self.draining,
            running,
            received: link.received,
            traits: self.config.traits.clone(),
        };
        self.send(connection, ToScheduler::Hello(hello));
        let reports: Vec<_> = self.reports.values().map(|kept| kept.report.clone()).collect();
        for report in reports {
            self.send(connection, ToScheduler::Finished(report));
        }
    }

    fn assigned(&mut self, connection: ConnectionId, assignment: Arc<Assignment>) {
        let key @ (instance, fence) = (assignment.instance, assignment.fence);
        if self.attempt(key).is_some() || self.reports.contains_key(&key) {
            return;
        }
        let is_fresh = guard!(Guard::LateAssignmentReturned, self.links[&connection].stale_for == 0);
        // One under another fence is still being ended.
        if !is_fresh || self.running.contains_key(&instance) || self.draining || !self.config.handlers.contains(&assignment.handler.name) {
            self.send(connection, ToScheduler::Returned { instance, fence });
            return;
        }
        let is_full = self.running.len() + self.kept_slots(Some(connection)) >= self.config.slots as usize;
        let (now, link) = (self.now, self.links.get_mut(&connection).expect("the message came over it"));
        if is_full {
            let first = link.turned_away.filter(|(_, last)| now.since(*last) < TURNED_AWAY_FORGOTTEN).map_or(now, |(first, _)| first);
            link.turned_away = Some((first, now));
            self.send(connection, ToScheduler::Returned { instance, fence });
            return;
        }
        (link.turned_away, link.slot_until) = (None, None);
        let timer = assignment.timeout.after.map(|after| self.timers.insert((self.now + after).0, Timer::Timeout(instance, fence)));
        let attempt = Attempt { assignment: assignment.clone(), from: connection, stopped: None, timer, overran: false };
        self.running.insert(instance, attempt);
        self.commands.push_back(Command::Start(assignment));
        // Not only to the one that sent it: it may have handed the partition over, and its new owner may have taken this attempt for lost.
        self.tell_everyone(&ToScheduler::Started { instance, fence });
    }

    /// How many slots are kept, those for this one left out. Whoever has not come for its slot does not want it.
    fn kept_slots(&mut self, but_for: Option<ConnectionId>) -> usize {
        for link in self.links.values_mut() {
            if link.slot_until.take_if(|until| *until <= self.now).is_some() {
                link.turned_away = None;
            }
        }
        self.links.iter().filter(|(connection, link)| Some(**connection) != but_for && link.slot_until.is_some()).count()
    }

    /// A slot is free. Whoever had what ran there knows it first and fills it again, so it is kept for the one that has been turned away
    /// for longest, where that is too long.
    fn keep_slot(&mut self) {
        let (now, kept) = (self.now, self.kept_slots(None));
        if self.draining || self.running.len() + kept >= self.config.slots as usize {
            return;
        }
        let is_waiting =
            |(first, last): (Monotonic, Monotonic)| now.since(first) >= TURNED_AWAY_MAX && now.since(last) < TURNED_AWAY_FORGOTTEN;
        let waiting = self.links.iter().filter(|(_, link)| link.slot_until.is_none());
        let waiting = waiting.filter_map(|(connection, link)| Some((link.turned_away.filter(|away| is_waiting(*away))?, *connection)));
        let Some((_, longest)) = waiting.min() else { return };
        probe!("worker.slot_kept");
        self.links.get_mut(&longest).expect("looked up above").slot_until = Some(now + SLOT_KEPT);
        // An account says that it is worth trying again.
        self.give_account(longest);
    }

    fn stop(&mut self, key: Key, why: Why) {
        let Some(attempt) = self.attempt(key) else { return };
        if attempt.stopped.is_some() {
            return;
        }
        attempt.stopped = Some(why);
        let (timer, grace) = (attempt.timer.take(), attempt.assignment.timeout.grace);
        timer.map(|timer| self.timers.cancel(timer));
        let timer = self.timers.insert((self.now + grace).0, Timer::Kill(key.0, key.1));
        self.attempt(key).expect("looked up above").timer = Some(timer);
        self.commands.push_back(Command::Cancel { instance: key.0, fence: key.1 });
    }

    /// Ends an attempt at once, also one that was asked to end and has its grace.
    fn kill(&mut self, key: Key) {
        let Some(attempt) = self.attempt(key) else { return };
        attempt.stopped.get_or_insert(Why::Cancelled);
        attempt.timer.take().map(|timer| self.timers.cancel(timer));
        self.commands.push_back(Command::Kill { instance: key.0, fence: key.1 });
    }

    fn attempt(&mut self, key: Key) -> Option<&mut Attempt> {
        self.running.get_mut(&key.0).filter(|attempt| attempt.assignment.fence == key.1)
    }

    fn stop_all(&mut self, why: Why) {
        let mut keys: Vec<_> = self.running.values().map(Attempt::key).collect();
        keys.sort_unstable();
        for key in keys {
            self.stop(key, why);
        }
    }

    fn run_timers(&mut self) {
        while let Some((_, timer)) = self.timers.pop_due(self.now.0) {
            match timer {
                Timer::Timeout(instance, fence) => {
                    let Some(attempt) = self.attempt((instance, fence)) else { continue };
                    attempt.timer = None;
                    match attempt.assignment.timeout.action {
                        TimeoutAction::Kill => self.stop((instance, fence), Why::TimedOut),
                        TimeoutAction::Wait => attempt.overran = true,
                    }
                }
                Timer::Kill(instance, fence) => {
                    if let Some(attempt) = self.attempt((instance, fence)) {
                        attempt.timer = None;
                        self.commands.push_back(Command::Kill { instance, fence });
                    }
                }
            }
        }
    }

    /// A handler has ended; this is how, by its own account.
    fn ended(&mut self, report: Report) {
        let Report { instance, fence, end, ref detail, .. } = report;
        let detail = detail.clone();
        let key = (instance, fence);
        if self.attempt(key).is_none() {
            return;
        }
        let attempt = self.running.remove(&instance).expect("looked up above");
        if let Some(timer) = attempt.timer {
            self.timers.cancel(timer);
        }
        let limit = attempt.assignment.timeout.after.map_or(0, |after| after.0);
        let (end, detail) = match (attempt.stopped, end) {
            (None, end) if attempt.overran => {
                let text = format!(
                    "ran longer than its timeout of {limit} ms and was let go on{}",
                    detail.map(|detail| format!("; {detail}")).unwrap_or_default()
                );
                (end, Some(Arc::from(text)))
            }
            (None, end) => (end, detail),
            (Some(Why::TimedOut), _) => (End::TimedOut, Some(Arc::from(format!("ended after its timeout of {limit} ms")))),
            // It was done before it was told.
            (Some(_), End::Succeeded) => (End::Succeeded, detail),
            (Some(Why::SelfFenced), _) => (End::Cancelled, Some(Arc::from("ended because no scheduler was heard of"))),
            (Some(Why::Cancelled), _) => (End::Cancelled, detail),
        };
        let report = Report { end, detail, ..report };
        match self.links.contains_key(&attempt.from) {
            true => self.send(attempt.from, ToScheduler::Finished(report.clone())),
            false => self.tell_everyone(&ToScheduler::Finished(report.clone())),
        }
        if guard!(Guard::ResultKeptUntilAcknowledged, false) {
            return;
        }
        self.reports.insert(key, Kept { report, since: self.now });
        self.keep_slot();
    }

    fn keep_in_touch(&mut self) {
        let now = self.now;
        let mut quiet = Vec::new();
        for (connection, link) in &mut self.links {
            if link.heartbeat_at <= now {
                link.heartbeat_at = now + self.heartbeat;
                quiet.push(*connection);
            }
        }
        for connection in quiet {
            self.send(connection, ToScheduler::Heartbeat);
        }
        if now < self.repeat_at {
            return;
        }
        self.repeat_at = now + REPORT_REPEAT;
        let old = self.reports.values().filter(|kept| now.since(kept.since) >= REPORT_REPEAT);
        let again: Vec<_> = old.map(|kept| kept.report.clone()).collect();
        for report in again {
            self.tell_everyone(&ToScheduler::Finished(report));
        }
    }

    /// Somebody else may have been given what this worker runs.
    fn fence_self(&mut self) {
        if self.running.is_empty() || self.is_fenced {
            return;
        }
        if !guard!(Guard::WorkerSelfFences, self.now.since(self.heard_at) < self.lease) {
            probe!("worker.self_fenced");
            self.is_fenced = true;
            self.stop_all(Why::SelfFenced);
        }
    }

    fn send(&mut self, connection: ConnectionId, message: ToScheduler) {
        if self.links.contains_key(&connection) {
            self.outgoing.entry(connection).or_default().push(message);
        }
    }

    fn tell_everyone(&mut self, message: &ToScheduler) {
        let connections: Vec<_> = self.links.keys().copied().collect();
        for connection in connections {
            self.send(connection, message.clone());
        }
    }
}
