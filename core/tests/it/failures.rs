//! What follows failures: waits, lists of what is retried, budgets and circuit breakers, on a scheduler that is driven by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::batch::{CommitOutcome, Output, Snapshot, TaskRecord};
use punctual_core::breaker::BreakerState;
use punctual_core::definition::{
    Blocking, BreakerPolicy, CodeSet, ConcurrencyPolicy, Policies, RetryBudget, RetryOn, TaskDefinition, Trigger,
};
use punctual_core::ids::{ConnectionId, Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::limits;
use punctual_core::protocol::{Assignment, End, Hello, Report, ToScheduler, ToWorker};
use punctual_core::scheduler::{Alert, Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_sim::tabletop::{START, task};

const PARTITION: PartitionId = PartitionId(0);
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

/// How an attempt ends: end, code and what it asks for.
type Reply = (End, Option<i32>, Option<Millis>);

const SUCCEEDS: Reply = (End::Succeeded, None, None);
const FAILS: Reply = (End::Failed, Some(1), None);
const TIMES_OUT: Reply = (End::TimedOut, None, None);

fn answers(status: i32) -> Reply {
    (End::Failed, Some(status), None)
}

fn now(time: u64) -> Now {
    Now { wall: Timestamp(START + time as i64), monotonic: Monotonic(time) }
}

/// One scheduler with one partition, a store that carries everything out at once, and one worker whose attempts end as they are told.
struct Bench {
    scheduler: Scheduler,
    time: u64,
    slots: u32,
    /// The connection of the worker's life.
    connection: ConnectionId,
    entries: u64,
    inbox: Vec<InboxEntry>,
    rows: BTreeMap<InstanceId, InstanceRow>,
    /// What was begun: when, and what.
    begun: Vec<(u64, Arc<Assignment>)>,
    /// Attempts that run, oldest first.
    running: Vec<Arc<Assignment>>,
    alerts: Vec<Alert>,
    acknowledged: usize,
    /// How attempts end as soon as they have begun; `None`: they run on.
    reply: Option<Reply>,
    names: Vec<Arc<str>>,
}

impl Bench {
    fn new(slots: u32, tasks: Vec<TaskDefinition>) -> Bench {
        let config = Config { replica: ReplicaId(Arc::from("s")), partitions: 1, commits_at_once: 1, misfire_threshold: Millis(5_000) };
        let scheduler = Scheduler::new(config, now(0));
        let (names, tasks): (Vec<_>, Vec<_>) = tasks
            .into_iter()
            .enumerate()
            .map(|(index, definition)| {
                let record = TaskRecord {
                    task: TaskId(index as u64),
                    version: Version(1),
                    definition: Arc::new(definition.clone()),
                    next_fire: None,
                    fired_until: None,
                };
                (definition.name, record)
            })
            .unzip();
        let (begun, running, alerts, inbox, rows) = Default::default();
        let mut bench = Bench {
            scheduler,
            time: 0,
            slots,
            connection: ConnectionId(0),
            entries: 0,
            inbox,
            rows,
            begun,
            running,
            alerts,
            acknowledged: 0,
            reply: None,
            names,
        };
        bench.connect(1);
        let (partition, epoch) = (PARTITION, Epoch(1));
        bench.tell(Event::LeaseGranted { partition, epoch, commit_seq: 0, sequence: 0, requested_at: Monotonic(0) });
        bench.tell(Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot { tasks, ..Snapshot::default() } });
        bench.run(SECOND);
        bench
    }

    /// The worker begins a new life, in which it knows nothing of what it ran before.
    fn connect(&mut self, life: u64) {
        self.tell(Event::WorkerDisconnected { connection: self.connection });
        self.connection = ConnectionId(life);
        let handlers = vec![Arc::from("command")];
        let (worker, life) = (WorkerId(Arc::from("w")), WorkerLife(life));
        let traits = Default::default();
        let hello = Hello { worker, life, slots: self.slots, handlers, traits, draining: false, running: vec![], received: 0 };
        self.tell(Event::WorkerMessages { connection: self.connection, messages: vec![ToScheduler::Hello(hello)] });
    }

    /// Takes an event in, and does what the scheduler asks for.
    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.scheduler.handle_event(now(self.time), event);
            while let Some(command) = self.scheduler.poll_command() {
                match command {
                    Command::Commit(batch) => {
                        let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row));
                        self.rows.extend(rows.map(|row| (row.id, row.clone())));
                        events.insert(0, Event::CommitFinished { commit: batch.id, outcome: CommitOutcome::Committed });
                    }
                    Command::RenewLeases(asked) => {
                        events.insert(0, Event::LeasesRenewed { requested_at: Monotonic(self.time), asked, lost: vec![] });
                    }
                    Command::ReadInbox { .. } => {
                        events.insert(0, Event::InboxRead { entries: std::mem::take(&mut self.inbox), more: false });
                    }
                    Command::Alert(alert) => self.alerts.push(alert),
                    Command::Send { messages, .. } => {
                        for message in messages {
                            self.acknowledged += usize::from(matches!(message, ToWorker::Acknowledge { .. }));
                            if let ToWorker::Assign(assignment) = message {
                                self.begun.push((self.time, assignment.clone()));
                                match self.reply {
                                    Some(reply) => events.insert(0, self.reported(&assignment, reply)),
                                    None => self.running.push(assignment),
                                }
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Lets time pass: from timer to timer, with a heartbeat of the worker every few seconds.
    fn run(&mut self, millis: u64) {
        let until = self.time + millis;
        loop {
            let timer = self.scheduler.poll_timeout().map_or(until, |at| at.0.max(self.time + 1));
            self.time = timer.min(self.time + 5 * SECOND).min(until);
            self.tell(Event::WorkerMessages { connection: self.connection, messages: vec![ToScheduler::Heartbeat] });
            if self.time == until {
                return;
            }
        }
    }

    fn trigger(&mut self, name: &str, times: usize) {
        let task = TaskId(self.names.iter().position(|known| &**known == name).expect("it is defined") as u64);
        for _ in 0..times {
            self.entries += 1;
            let request = Request::Trigger { task, submissions: vec![Submission::default()] };
            let at = now(self.time).wall;
            self.inbox.push(InboxEntry { id: InboxId(self.entries), partition: PARTITION, at, by: Arc::from("ops"), request });
        }
        self.tell(Event::InboxSignalled);
    }

    fn cancel(&mut self, instance: InstanceId) {
        self.entries += 1;
        let request = Request::Cancel { instance, reason: None };
        let at = now(self.time).wall;
        self.inbox.push(InboxEntry { id: InboxId(self.entries), partition: PARTITION, at, by: Arc::from("ops"), request });
        self.tell(Event::InboxSignalled);
    }

    /// The oldest attempt of this task that runs comes to its end.
    fn ends(&mut self, name: &str, reply: Reply) {
        let place = self.running.iter().position(|assignment| &*assignment.task_name == name).expect("one runs");
        let assignment = self.running.remove(place);
        self.tell(self.reported(&assignment, reply));
    }

    fn reported(&self, assignment: &Assignment, (end, code, retry_after): Reply) -> Event {
        let (instance, fence) = (assignment.instance, assignment.fence);
        let report = Report { instance, fence, end, code, detail: None, output: Output::default(), retry_after, result: None, items: None };
        Event::WorkerMessages { connection: self.connection, messages: vec![ToScheduler::Finished(report)] }
    }

    fn begun_of(&self, name: &str) -> Vec<u64> {
        self.begun.iter().filter(|(_, assignment)| &*assignment.task_name == name).map(|(at, _)| *at).collect()
    }

    fn running_of(&self, name: &str) -> usize {
        self.running.iter().filter(|assignment| &*assignment.task_name == name).count()
    }

    fn last(&self, instance: InstanceId) -> (State, Cause) {
        let last = self.rows[&instance].transitions.last().expect("never empty");
        (last.to, last.cause)
    }

    fn count(&self, state: State) -> usize {
        self.rows.values().filter(|row| row.state == state).count()
    }

    fn breaker_alerts(&self) -> Vec<&'static str> {
        let name = |alert: &Alert| match alert {
            Alert::BreakerOpened { .. } => Some("opened"),
            Alert::BreakerClosed { .. } => Some("closed"),
            _ => None,
        };
        self.alerts.iter().filter_map(name).collect()
    }
}

/// A task that may run as often at once as it likes, with these policies.
fn with(name: &str, change: impl FnOnce(&mut Policies)) -> TaskDefinition {
    let mut definition = task(name, Trigger::Manual);
    let policies = Arc::make_mut(&mut definition.policies);
    policies.concurrency = ConcurrencyPolicy { max_running: limits::MAX_RUNNING_MAX, blocking: Blocking::Discard };
    policies.retry.max_attempts = Some(10);
    policies.retry.backoff = fixed(5);
    change(policies);
    definition
}

fn fixed(secs: u64) -> BackoffPolicy {
    BackoffPolicy { kind: Backoff::Fixed, first: Millis::from_secs(secs), cap: Millis::from_secs(1_800), jitter: Jitter::None }
}

fn behind(label: &str, mut definition: TaskDefinition) -> TaskDefinition {
    definition.downstream = Some(Arc::from(label));
    definition
}

fn breaker(failures: u32, within: u64, open: u64) -> BreakerPolicy {
    BreakerPolicy { failures, within: Millis::from_secs(within), open: Millis::from_secs(open) }
}

/// C330: three retries are four attempts, and these are the gaps between them.
#[test]
fn gaps_between_attempts_are_those_of_the_backoff() {
    let kinds = [
        (Backoff::Fixed, 5, [5, 5, 5]),
        (Backoff::Linear, 5, [5, 10, 15]),
        (Backoff::Exponential { factor_permille: 2_000 }, 2, [2, 4, 8]),
    ];
    for (kind, first, gaps) in kinds {
        let backoff = BackoffPolicy { kind, first: Millis::from_secs(first), ..fixed(0) };
        let mut bench = Bench::new(
            1,
            vec![with("a", |policies| {
                policies.retry.max_attempts = Some(4);
                policies.retry.backoff = backoff;
            })],
        );
        bench.reply = Some(FAILS);
        bench.trigger("a", 1);
        bench.run(10 * MINUTE);
        let began = bench.begun_of("a");
        let seen: Vec<_> = began.windows(2).map(|pair| (pair[1] - pair[0]) / SECOND).collect();
        assert_eq!(seen, gaps, "{kind:?}");
        assert_eq!(bench.last(bench.begun[0].1.instance), (State::DeadLettered, Cause::AttemptsExhausted));
    }
}

/// C335: the longest text of a failure, said again and again.
#[test]
fn a_huge_failure_that_is_repeated_ends_its_instance_once() {
    let mut bench = Bench::new(1, vec![with("a", |policies| policies.retry.max_attempts = Some(2))]);
    bench.trigger("a", 1);
    bench.ends("a", FAILS);
    bench.run(6 * SECOND);
    let assignment = bench.running.remove(0);
    let (instance, fence) = (assignment.instance, assignment.fence);
    let detail = Some(Arc::from("x".repeat(limits::DETAIL_BYTES_MAX)));
    let report = Report {
        instance,
        fence,
        end: End::Failed,
        code: None,
        detail,
        output: Output::default(),
        retry_after: None,
        result: None,
        items: None,
    };
    for _ in 0..3 {
        let messages = vec![ToScheduler::Finished(report.clone())];
        bench.tell(Event::WorkerMessages { connection: bench.connection, messages });
    }
    bench.run(SECOND);
    assert_eq!(bench.last(instance), (State::DeadLettered, Cause::AttemptsExhausted));
    assert_eq!(bench.rows[&instance].transitions.last().and_then(|last| last.detail.as_ref()).map(|detail| detail.len()), Some(4 << 10));
    let dead = bench.alerts.iter().filter(|alert| matches!(alert, Alert::DeadLettered { .. })).count();
    assert_eq!((dead, bench.acknowledged), (1, 4), "each is acknowledged, so that it is not repeated for ever");
}

fn on(codes: &[(u16, u16)], timeouts: bool) -> RetryOn {
    RetryOn { codes: Some(CodeSet::of(codes.iter().copied())), timeouts }
}

#[test]
fn only_listed_failures_are_retried() {
    let cases = [
        (on(&[(75, 75), (100, 110)], true), answers(75), State::Retrying, Cause::Finished),
        (on(&[(75, 75), (100, 110)], true), answers(110), State::Retrying, Cause::Finished),
        (on(&[(75, 75), (100, 110)], true), answers(111), State::Failed, Cause::NotRetried),
        (on(&[(429, 429), (500, 599)], true), answers(404), State::Failed, Cause::NotRetried),
        (on(&[(429, 429), (500, 599)], true), answers(503), State::Retrying, Cause::Finished),
        (on(&[(429, 429)], true), (End::Failed, None, None), State::Retrying, Cause::Finished),
        (on(&[(429, 429)], true), TIMES_OUT, State::Retrying, Cause::TimedOut),
        (on(&[(429, 429)], false), TIMES_OUT, State::TimedOut, Cause::NotRetried),
        (RetryOn::default(), answers(404), State::Retrying, Cause::Finished),
        (RetryOn::default(), TIMES_OUT, State::Retrying, Cause::TimedOut),
        (RetryOn::default(), (End::FailedForGood, Some(503), None), State::Failed, Cause::Finished),
    ];
    for (on, reply, state, cause) in cases {
        let mut bench = Bench::new(1, vec![with("a", |policies| policies.retry.on = on)]);
        bench.reply = Some(reply);
        bench.trigger("a", 1);
        assert_eq!(bench.last(bench.begun[0].1.instance), (state, cause), "{reply:?}");
    }
}

#[test]
fn the_next_attempt_waits_as_long_as_the_downstream_asks() {
    let asks = |secs| (End::Failed, Some(429), Some(Millis::from_secs(secs)));
    // Beyond the cap, but not beyond a day; and never less than the backoff.
    for (asked, waited) in [(120, 120), (3 * 3_600, 3 * 3_600), (30 * 86_400, 86_400), (1, 5), (0, 5)] {
        let mut bench = Bench::new(1, vec![with("a", |_| {})]);
        bench.reply = Some(asks(asked));
        bench.trigger("a", 1);
        bench.reply = Some(SUCCEEDS);
        bench.run((waited + 1) * SECOND);
        let began = bench.begun_of("a");
        assert_eq!(began.len(), 2, "asked for {asked} s");
        assert_eq!((began[1] - began[0]) / SECOND, waited, "asked for {asked} s");
    }
}

/// So many failing instances of a task with a budget, and how many retries they had.
pub(crate) fn retries_on_a_budget(instances: usize) -> (usize, usize) {
    let budget = RetryBudget { ratio_permille: 200, min_per_minute: 10 };
    let mut bench = Bench::new(10_000, vec![with("a", |policies| policies.retry.budget = Some(budget))]);
    bench.reply = Some(FAILS);
    bench.trigger("a", instances);
    bench.run(50 * SECOND);
    let exhausted = bench.rows.values().filter(|row| bench.last(row.id) == (State::DeadLettered, Cause::RetryBudgetExhausted)).count();
    let told = bench.alerts.iter().filter(|alert| matches!(alert, Alert::DeadLettered { cause: Cause::RetryBudgetExhausted, .. })).count();
    assert_eq!(exhausted, told, "never silently");
    (bench.begun.len() - instances, exhausted)
}

#[test]
fn a_task_that_has_used_up_its_retries_has_no_more() {
    // Each instance has one first attempt, and the ten retries of a minute are for all of them.
    assert_eq!(retries_on_a_budget(20), (10, 20));
    assert_eq!(retries_on_a_budget(1_000), (200, 1_000));
    // Of its own ten attempts it has no use for more.
    assert_eq!(retries_on_a_budget(1), (9, 0));
}

#[test]
fn a_budget_comes_back_and_lost_workers_do_not_use_it() {
    let budget = RetryBudget { ratio_permille: 0, min_per_minute: 1 };
    let mut bench = Bench::new(
        4,
        vec![with("a", |policies| {
            policies.retry.budget = Some(budget);
            policies.retry.max_losses = 5;
        })],
    );
    for life in 2..5 {
        bench.trigger("a", usize::from(life == 2));
        assert_eq!(bench.running_of("a"), 1);
        bench.running.clear();
        bench.connect(life);
        bench.run(6 * SECOND);
    }
    let instance = bench.begun[0].1.instance;
    assert_eq!(bench.rows[&instance].losses, 3);
    bench.run(SECOND * 90);
    bench.ends("a", FAILS);
    assert_eq!(bench.last(instance), (State::Retrying, Cause::Finished), "its one retry was still there");
    bench.run(6 * SECOND);
    bench.ends("a", FAILS);
    assert_eq!(bench.last(instance), (State::DeadLettered, Cause::RetryBudgetExhausted));
    bench.run(71 * SECOND);
    bench.trigger("a", 1);
    bench.ends("a", FAILS);
    assert_eq!(bench.count(State::Retrying), 1);
}

#[test]
fn tasks_do_not_share_their_budgets() {
    let budget = |name: &str| with(name, |policies| policies.retry.budget = Some(RetryBudget { ratio_permille: 0, min_per_minute: 1 }));
    let mut bench = Bench::new(4, vec![budget("a"), budget("b")]);
    bench.reply = Some(FAILS);
    bench.trigger("a", 2);
    bench.trigger("b", 1);
    assert_eq!((bench.count(State::Retrying), bench.count(State::DeadLettered)), (2, 1));
}

/// A bench whose task `a` has opened the breaker of `mail`, with `b` behind the same one and `c` behind none.
fn opened() -> Bench {
    let policy = |policies: &mut Policies| policies.breaker = breaker(3, 60, 30);
    let tasks = vec![behind("mail", with("a", policy)), behind("mail", with("b", policy)), with("c", |_| {})];
    let mut bench = Bench::new(4, tasks);
    bench.reply = Some(answers(503));
    bench.trigger("a", 3);
    assert_eq!(bench.breaker_alerts(), ["opened"]);
    bench.reply = None;
    bench.begun.clear();
    bench
}

#[test]
fn what_waits_behind_an_open_breaker_costs_no_attempt_and_blocks_nobody() {
    let mut bench = opened();
    bench.trigger("b", 50);
    bench.trigger("c", 2);
    bench.run(20 * SECOND);
    assert_eq!((bench.running_of("b"), bench.running_of("c")), (0, 2));
    let waiting: Vec<_> = bench.rows.values().filter(|row| row.task == TaskId(1)).collect();
    assert!(waiting.len() == 50 && waiting.iter().all(|row| row.state == State::Created && row.attempt == 0));
    let view = &bench.scheduler.breakers()[0];
    assert_eq!((&*view.downstream, view.failures, view.held), ("mail", 3, 53), "with the three retries of a");
    assert!(matches!(view.state, BreakerState::Open { .. }) && view.opens_in.is_some_and(|wait| wait < Millis::from_secs(11)));
}

#[test]
fn one_probe_passes_and_its_success_lets_all_go_on_in_order() {
    let mut bench = opened();
    bench.trigger("b", 5);
    bench.run(29 * SECOND);
    assert!(bench.begun.is_empty());
    bench.run(2 * SECOND);
    assert_eq!(bench.begun.len(), 1, "one probe");
    assert_eq!(bench.scheduler.breakers()[0].state, BreakerState::HalfOpen { is_probed: true });
    bench.run(5 * MINUTE);
    assert_eq!(bench.begun.len(), 1, "however long it takes");
    let probe = bench.begun[0].1.task_name.clone();
    bench.reply = Some(SUCCEEDS);
    bench.ends(&probe, SUCCEEDS);
    assert_eq!(bench.count(State::Succeeded), 8);
    assert_eq!(bench.breaker_alerts(), ["opened", "closed"]);
    let of_b: Vec<_> = bench.begun.iter().filter(|(_, assignment)| assignment.task == TaskId(1)).map(|(_, one)| one.instance).collect();
    assert!(of_b.is_sorted(), "{of_b:?}");
    assert_eq!(bench.scheduler.breakers()[0].held, 0);
}

#[test]
fn a_probe_that_fails_keeps_it_open_and_says_nothing_more() {
    let mut bench = opened();
    bench.trigger("b", 5);
    bench.reply = Some(answers(503));
    bench.run(10 * MINUTE);
    let gaps: Vec<_> = bench.begun.windows(2).map(|pair| (pair[1].0 - pair[0].0) / SECOND).collect();
    assert!(gaps.len() >= 17 && gaps.iter().all(|gap| *gap >= 30), "{gaps:?}");
    assert_eq!(bench.breaker_alerts(), ["opened"]);
}

#[test]
fn a_probe_that_is_cancelled_or_lost_makes_room_for_the_next() {
    let mut bench = opened();
    bench.trigger("b", 5);
    bench.run(31 * SECOND);
    let (lost, _) = (bench.running.remove(0).instance, bench.connect(2));
    assert_eq!(bench.rows[&lost].losses, 1);
    bench.run(SECOND);
    assert_eq!(bench.running.len(), 1);
    let cancelled = bench.running[0].instance;
    let name = bench.running[0].task_name.clone();
    bench.cancel(cancelled);
    bench.ends(&name, (End::Cancelled, None, None));
    assert_eq!(bench.last(cancelled), (State::Cancelled, Cause::CancelRequested));
    bench.run(SECOND);
    assert_eq!(bench.running.len(), 1, "the next probe");
    let name = bench.running[0].task_name.clone();
    bench.ends(&name, (End::FailedForGood, None, None));
    bench.run(SECOND);
    assert_eq!(bench.running.len(), 1, "one that would fail again says nothing of the downstream");
}

#[test]
fn one_that_is_cancelled_behind_a_breaker_is_no_probe() {
    let mut bench = opened();
    bench.trigger("b", 2);
    let waiting: Vec<_> = bench.rows.values().filter(|row| row.state == State::Created).map(|row| row.id).collect();
    bench.cancel(waiting[0]);
    assert_eq!(bench.last(waiting[0]), (State::Cancelled, Cause::CancelRequested));
    bench.run(31 * SECOND);
    assert_eq!(bench.begun.iter().map(|(_, assignment)| assignment.instance).collect::<Vec<_>>(), [waiting[1]]);
}

#[test]
fn what_had_begun_before_it_opened_does_not_close_it() {
    let policy = |policies: &mut Policies| policies.breaker = breaker(2, 60, 30);
    let mut bench = Bench::new(8, vec![behind("mail", with("a", policy))]);
    bench.trigger("a", 4);
    bench.ends("a", FAILS);
    bench.ends("a", TIMES_OUT);
    bench.ends("a", SUCCEEDS);
    bench.ends("a", FAILS);
    bench.trigger("a", 1);
    bench.run(20 * SECOND);
    assert_eq!((bench.running.len(), bench.breaker_alerts()), (0, vec!["opened"]));
}

#[test]
fn successes_cancellations_and_what_is_not_retried_open_nothing() {
    let policy = |policies: &mut Policies| {
        policies.breaker = breaker(2, 60, 30);
        policies.retry.on = on(&[(500, 599)], true);
    };
    let mut bench = Bench::new(8, vec![behind("mail", with("a", policy)), behind("post", with("b", policy))]);
    for reply in [answers(503), SUCCEEDS, answers(503), answers(404), (End::FailedForGood, Some(503), None)] {
        bench.trigger("a", 1);
        bench.ends("a", reply);
    }
    bench.trigger("b", 1);
    bench.ends("b", answers(503));
    assert!(bench.breaker_alerts().is_empty());
    bench.trigger("a", 1);
    bench.ends("a", answers(500));
    assert_eq!(bench.breaker_alerts(), ["opened"], "the second in a row");
    bench.trigger("b", 1);
    assert_eq!(bench.running_of("b"), 1, "another downstream");
}

/// How many attempts a thousand instances make within an hour, all of which fail.
pub(crate) fn storm() -> usize {
    let mut bench = Bench::new(16, vec![behind("mail", with("a", |policies| policies.breaker = breaker(5, 60, 30)))]);
    bench.trigger("a", 16);
    for _ in 0..5 {
        bench.ends("a", FAILS);
    }
    bench.reply = Some(FAILS);
    while !bench.running.is_empty() {
        bench.ends("a", FAILS);
    }
    bench.trigger("a", 984);
    bench.run(60 * MINUTE);
    assert_eq!(bench.count(State::Created) + bench.count(State::Retrying) + bench.count(State::DeadLettered), 1_000);
    bench.begun.len()
}

#[test]
fn a_retry_storm_ends_at_the_breaker() {
    let attempts = storm();
    // As many as there are slots, and two probes a minute.
    assert!((100..=16 + 5 + 120).contains(&attempts), "{attempts}");
}

#[test]
fn breakers_that_have_nothing_to_remember_are_forgotten() {
    let mut bench = opened();
    bench.reply = Some(SUCCEEDS);
    bench.run(MINUTE);
    assert_eq!(bench.breaker_alerts(), ["opened", "closed"]);
    bench.run(SECOND);
    assert!(bench.scheduler.breakers().is_empty());
}

#[test]
fn a_partition_that_is_read_again_does_not_come_twice() {
    let mut bench = opened();
    bench.trigger("b", 3);
    let tasks: Vec<_> = (0..3_u64)
        .map(|task| TaskRecord {
            task: TaskId(task),
            version: Version(1),
            definition: Arc::new(behind("mail", with(&bench.names[task as usize], |_| {}))),
            next_fire: None,
            fired_until: None,
        })
        .collect();
    let definition = tasks[1].definition.clone();
    let live = bench.rows.values().filter(|row| !row.state.is_terminal());
    let instances: Vec<_> = live.map(|row| (row.clone(), definition.clone())).collect();
    let waiting = instances.len();
    // Nobody confirms its lease any more, until it is given it anew.
    bench.time += 15 * SECOND;
    let (partition, epoch) = (PARTITION, Epoch(2));
    bench.tell(Event::Tick);
    assert!(bench.alerts.iter().any(|alert| matches!(alert, Alert::PartitionReloaded { .. })));
    assert_eq!(bench.scheduler.breakers()[0].held, 0, "nothing of it is held any more");
    let requested_at = Monotonic(bench.time);
    bench.tell(Event::LeaseGranted { partition, epoch, commit_seq: 100, sequence: 10_000, requested_at });
    bench.tell(Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot { tasks, instances, ..Snapshot::default() } });
    bench.run(2 * SECOND);
    bench.reply = Some(SUCCEEDS);
    bench.run(2 * MINUTE);
    assert_eq!(bench.begun.len(), waiting);
    assert_eq!(bench.breaker_alerts(), ["opened", "closed"]);
}
