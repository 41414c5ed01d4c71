//! The loop of a scheduler node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use punctual_core::batch::{Batch, CommitOutcome, Renewal};
use punctual_core::guard;
use punctual_core::guard::Guard;
use punctual_core::ids::PartitionId;
use punctual_core::limits;
use punctual_core::protocol::ToWorker;
use punctual_core::scheduler::{Command, Config, Event, PageRead, Scheduler};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::alarm::Alarm;
use crate::clock::StoreClock;
use crate::link::{CutOff, Links, SchedulerStatus, ToSchedulerNode};
use crate::ports::{Clock, LeaseAnswer, Observer, Signals, Store, StoreError, Wake};

/// Batches and signals that may wait for the loop.
pub const QUEUE_MAX: usize = 1_024;
/// Events that are taken in before commands are looked at: one commit and one message then serve them all.
const EVENTS_AT_ONCE: usize = 64;
/// First and longest wait before the store is tried again.
const STORE_RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// A replica that doesn't know the time within a second asks so often before it makes do with what it knows.
const BEATS_FOR_THE_TIME: u32 = 10;

/// Reading the store fails.
const READS: u8 = 1;
/// Writing to the store fails.
const WRITES: u8 = 2;

/// A scheduler node: the machine and what it is connected to.
pub struct SchedulerNode<S, C, G, O> {
    machine: Scheduler,
    world: World<S, C, G, O>,
    links: Links<ToWorker>,
    /// The last call that gives leases up: whoever waits for the partitions must not wait for their time to run out.
    releasing: Option<JoinHandle<()>>,
}

struct World<S, C, G, O> {
    config: Config,
    store: Arc<S>,
    clock: Arc<StoreClock<C>>,
    signals: Arc<G>,
    observer: Arc<O>,
    answers: mpsc::UnboundedSender<Event>,
    /// What of the store has failed last: [`READS`] and [`WRITES`].
    store_fails: Arc<AtomicU8>,
    /// Beats that were too slow to tell the time well.
    beats: Arc<AtomicU32>,
}

impl<S, C, G, O> Clone for World<S, C, G, O> {
    fn clone(&self) -> Self {
        World {
            config: self.config.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            signals: self.signals.clone(),
            observer: self.observer.clone(),
            answers: self.answers.clone(),
            store_fails: self.store_fails.clone(),
            beats: self.beats.clone(),
        }
    }
}

/// Runs a scheduler node until it has shut down, or until everybody who could talk to it is gone.
pub async fn run<S: Store, C: Clock, G: Signals, O: Observer>(
    config: Config,
    store: Arc<S>,
    clock: Arc<C>,
    signals: Arc<G>,
    observer: Arc<O>,
    mut inbound: mpsc::Receiver<ToSchedulerNode>,
) {
    // Bounded by what the machine has asked for: at most a handful of calls are under way.
    let (answers, mut answered) = mpsc::unbounded_channel();
    let clock = Arc::new(StoreClock::new(clock));
    let machine = Scheduler::new(config.clone(), clock.now());
    let world = World { config, store, clock, signals, observer, answers, store_fails: Arc::default(), beats: Arc::default() };
    let mut node = SchedulerNode { machine, world, links: Links::default(), releasing: None };
    let mut alarm = Alarm::default();
    node.handle(Event::Tick);
    loop {
        if node.carry_out() {
            if let Some(releasing) = node.releasing.take() {
                // It fails only where it has panicked, and that has been said.
                let _ = releasing.await;
            }
            return;
        }
        let now = node.world.clock.now().monotonic;
        let at = node.links.come_round(now, node.machine.poll_timeout().unwrap_or(now));
        tokio::select! {
            biased;
            event = answered.recv() => match event {
                Some(event) => node.handle(event),
                None => return,
            },
            message = inbound.recv() => match message {
                Some(message) => node.take(message),
                None => return,
            },
            () = alarm.rings(now, at) => node.handle(Event::Tick),
        }
        for _ in 1..EVENTS_AT_ONCE {
            if let Ok(event) = answered.try_recv() {
                node.handle(event);
            } else if let Ok(message) = inbound.try_recv() {
                node.take(message);
            } else {
                break;
            }
        }
    }
}

impl<S: Store, C: Clock, G: Signals, O: Observer> SchedulerNode<S, C, G, O> {
    fn handle(&mut self, event: Event) {
        self.machine.handle_event(self.world.clock.now(), event);
    }

    fn take(&mut self, message: ToSchedulerNode) {
        let event = match message {
            ToSchedulerNode::Connected(connection, link) => {
                self.links.add(connection, link);
                return;
            }
            ToSchedulerNode::Messages(connection, messages) => Event::WorkerMessages { connection, messages },
            ToSchedulerNode::Disconnected(connection) => {
                self.links.remove(connection);
                Event::WorkerDisconnected { connection }
            }
            ToSchedulerNode::InboxSignalled => Event::InboxSignalled,
            ToSchedulerNode::LeasesSignalled => Event::LeasesSignalled,
            ToSchedulerNode::Status(asker) => {
                let machine = &self.machine;
                let (partitions, tasks, instances) = (machine.owned_partitions(), machine.task_count(), machine.written_count());
                // Who doesn't want to know any more has gone.
                let _ = asker.send(SchedulerStatus {
                    partitions,
                    tasks,
                    instances,
                    workers: machine.workers(),
                    waiting: machine.waiting_for(),
                    breakers: machine.breakers(),
                    throttled: machine.throttled_count(),
                });
                return;
            }
            ToSchedulerNode::Quiesce => Event::Quiesce,
            ToSchedulerNode::Shutdown => Event::Shutdown,
        };
        self.handle(event);
    }

    /// Carries out all commands; answers whether the node has stopped.
    fn carry_out(&mut self) -> bool {
        for connection in self.links.flush() {
            self.handle(Event::WorkerDisconnected { connection });
        }
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Send { connection, messages } => {
                    if let Err(CutOff) = self.links.send(connection, messages) {
                        self.handle(Event::WorkerDisconnected { connection });
                    }
                }
                Command::Alert(alert) => self.world.observer.alerted(&alert),
                Command::Stopped => return true,
                command => {
                    let world = self.world.clone();
                    let releases = matches!(command, Command::ReleaseLeases { .. });
                    let call = tokio::spawn(async move { world.call(command).await });
                    if releases {
                        self.releasing = Some(call);
                    }
                }
            }
        }
        false
    }
}

impl<S: Store, C: Clock, G: Signals, O: Observer> World<S, C, G, O> {
    /// Carries out a command that asks the store, and answers the machine.
    async fn call(self, command: Command) {
        match command {
            Command::Beat => self.beat().await,
            Command::AcquireLeases { partitions, most } => self.acquire(partitions, most).await,
            Command::RenewLeases(leases) => self.renew(leases).await,
            Command::ReleaseLeases { leases, leaves } => match self.store.release(self.config.replica.clone(), leases, leaves).await {
                Ok(()) => self.signals.wake(Wake::Leases),
                Err(error) => self.failed(WRITES, &error),
            },
            Command::LoadSnapshot { partition, epoch } => {
                let event = match self.store.snapshot(partition).await {
                    Ok(snapshot) => {
                        self.recovered(READS);
                        Event::SnapshotLoaded { partition, epoch, snapshot }
                    }
                    Err(error) => {
                        self.failed(READS, &error);
                        Event::SnapshotFailed { partition, epoch }
                    }
                };
                self.answer(event);
            }
            Command::Commit(batch) => self.commit(batch).await,
            Command::ReadInbox { partitions, after } => {
                let page = self.store.read_inbox(partitions, after, limits::INBOX_READ_MAX).await;
                let page = page.inspect(|_| self.recovered(READS)).inspect_err(|error| self.failed(READS, error)).unwrap_or_default();
                self.answer(Event::InboxRead { entries: page.entries, more: page.more });
            }
            Command::ReadItems { whole, page } => {
                let read = match self.reading(self.store.output(whole, page + 1).await) {
                    Some(Some(output)) => PageRead::Found(Arc::from(String::from_utf8_lossy(&output.bytes))),
                    Some(None) => PageRead::Missing,
                    None => PageRead::Failed,
                };
                self.answer(Event::ItemsRead { whole, page, read });
            }
            Command::ReadResults { of, from, until } => {
                let read = self.reading(self.store.results(of, from, until, limits::MAP_PAGE_ITEMS).await);
                self.answer(Event::ResultsRead { whole: of.whole, from, read: read.map_or(PageRead::Failed, PageRead::Found) });
            }
            Command::Send { .. } | Command::Alert(_) | Command::Stopped => unreachable!("carried out by the loop itself"),
        }
    }

    /// What was read; `None`: the store failed, which is told.
    fn reading<T>(&self, read: Result<T, StoreError>) -> Option<T> {
        read.inspect(|_| self.recovered(READS)).inspect_err(|error| self.failed(READS, error)).ok()
    }

    /// A beat that fails changes nothing: the next one follows soon.
    async fn beat(&self) {
        let before = self.clock.now();
        match self.store.beat(self.config.replica.clone(), limits::PARTITION_LEASE, before.wall).await {
            Ok(beat) => {
                self.recovered(WRITES);
                if let Some(now) = beat.now {
                    self.clock.told(now, before.monotonic);
                    // Nothing is owned, and so nothing fired, before the time is known; but a store that is always slow is no reason to
                    // do nothing for ever.
                    if !self.clock.is_known_well() && self.beats.fetch_add(1, Ordering::Relaxed) < BEATS_FOR_THE_TIME {
                        return;
                    }
                }
                self.answer(Event::MembersSeen { members: beat.members });
            }
            Err(error) => self.failed(WRITES, &error),
        }
    }

    async fn acquire(&self, mut asked: Vec<PartitionId>, most: usize) {
        let now = self.clock.now();
        match self.store.acquire(self.config.replica.clone(), asked.clone(), most, limits::PARTITION_LEASE, now.wall).await {
            Ok(answers) => {
                self.recovered(WRITES);
                for answer in answers {
                    if let LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } = answer {
                        asked.retain(|asked| *asked != partition);
                        self.answer(Event::LeaseGranted { partition, epoch, commit_seq, sequence, requested_at: now.monotonic });
                    }
                }
            }
            Err(error) => self.failed(WRITES, &error),
        }
        if !asked.is_empty() {
            self.answer(Event::LeaseRefused { partitions: asked });
        }
    }

    async fn renew(&self, leases: Vec<Renewal>) {
        let now = self.clock.now();
        match self.store.renew(self.config.replica.clone(), leases.clone(), limits::PARTITION_LEASE, now.wall).await {
            Ok(lost) => {
                self.recovered(WRITES);
                self.answer(Event::LeasesRenewed { requested_at: now.monotonic, asked: leases, lost });
            }
            // No answer is no renewal: the machine stops trusting its leases in time.
            Err(error) => self.failed(WRITES, &error),
        }
    }

    /// Carries a batch out. While the store surely does nothing, the same batch is tried again.
    async fn commit(&self, batch: Arc<Batch>) {
        let mut wait = STORE_RETRY[0];
        let outcome = loop {
            match self.store.commit(batch.clone()).await {
                Ok(CommitOutcome::Unknown { .. }) if guard!(Guard::UnknownCommitNotRepeated, false) => sleep(wait).await,
                Ok(outcome) => break outcome,
                Err(error) if error.is_passing() => {
                    self.failed(WRITES, &error);
                    sleep(wait).await;
                    wait = (wait * 2).min(STORE_RETRY[1]);
                }
                Err(error) => {
                    self.failed(WRITES, &error);
                    break CommitOutcome::Unknown { reason: Arc::from(error.to_string()) };
                }
            }
        };
        if outcome == CommitOutcome::Committed {
            self.recovered(WRITES);
            self.observer.committed(&batch);
        }
        let commit = batch.id;
        let has_told = outcome == CommitOutcome::Committed && !batch.messages.is_empty();
        // The rows are freed here, not on the loop's time.
        drop(batch);
        self.answer(Event::CommitFinished { commit, outcome });
        if has_told {
            // Some of it may be for this replica itself.
            self.answer(Event::InboxSignalled);
            self.signals.wake(Wake::Inbox);
        }
    }

    fn answer(&self, event: Event) {
        // Fails only when the loop has ended, and then nobody wants the answer.
        let _ = self.answers.send(event);
    }

    /// A trouble is told once. Reads and writes fail and recover apart from each other: a write that works says nothing about reads.
    fn failed(&self, what: u8, error: &StoreError) {
        if self.store_fails.fetch_or(what, Ordering::Relaxed) == 0 {
            self.observer.store_failed(error);
        }
    }

    fn recovered(&self, what: u8) {
        if self.store_fails.load(Ordering::Relaxed) & what != 0 && self.store_fails.fetch_and(!what, Ordering::Relaxed) == what {
            self.observer.store_recovered();
        }
    }
}
