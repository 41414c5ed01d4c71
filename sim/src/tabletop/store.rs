//! The way to the database and back.
//!
//! A request that has left is carried out whatever becomes of its sender. What becomes of answers that don't come is what the driver makes
//! of them.

use std::sync::Arc;

use punctual_core::batch::{CommitOutcome, Snapshot};
use punctual_core::guard;
use punctual_core::guard::Guard;
use punctual_core::ids::{PartitionId, ReplicaId};
use punctual_core::inbox::InboxEntry;
use punctual_core::limits;
use punctual_core::scheduler::{Command, Event, PageRead};
use punctual_core::time::Monotonic;
use punctual_driver::ports::{Beat, LeaseAnswer, Submitted, Wake};

use crate::calls::Failed;
use crate::history::Who;
use crate::model::Refusal;
use crate::tabletop::{Delivery, World};
use crate::trouble::{ANSWER_TIMEOUT_MS, NOTICED_AFTER_MS, Way};

/// First and longest wait before a commit that surely did nothing is tried again, as in the driver.
const AGAIN_AFTER_MS: [u64; 2] = [50, 2_000];

/// What becomes of a commit, driven by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out, or refused by the database.
    Carried,
    /// It is refused, whatever the database thinks.
    Refused,
    /// It is carried out, and the answer is lost.
    UnknownApplied,
    /// It is not carried out, and nobody says so.
    UnknownNotApplied,
}

/// Somebody's question to the database.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) asker: Asker,
    /// When it was asked first, by the asker's monotonic clock.
    asked_at: u64,
    sent_at: u64,
    again_after: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Asker {
    Replica {
        index: usize,
        life: u64,
        id: ReplicaId,
        command: Command,
    },
    /// One of the plan's callers.
    Caller(usize),
}

/// A question that is on its way.
#[derive(Debug)]
pub(super) struct Request {
    ask: Ask,
    way: Way,
    /// Nobody waits for the answer any more.
    is_given_up: bool,
}

/// What was asked for was done.
#[derive(Debug)]
pub(super) enum Done {
    Beat(Beat),
    Leases(Vec<LeaseAnswer>),
    Renewed { lost: Vec<PartitionId> },
    Released,
    Snapshot(Snapshot),
    Commit(Result<(), Refusal>),
    Page(Vec<InboxEntry>, bool),
    Items(Option<Arc<str>>),
    Results(Vec<Option<Arc<str>>>),
    Submitted(Submitted),
}

/// An answer that is on its way.
#[derive(Debug)]
pub(super) struct Reply {
    ask: Box<Ask>,
    done: Result<Done, Failed>,
    generation: u64,
    is_lost: bool,
}

impl Ask {
    pub(super) fn of_replica(index: usize, life: u64, id: ReplicaId, command: Command, now: u64) -> Ask {
        let asker = Asker::Replica { index, life, id, command };
        Ask { asker, asked_at: now, sent_at: now, again_after: AGAIN_AFTER_MS[0] }
    }

    pub(super) fn of_caller(caller: usize, now: u64) -> Ask {
        Ask { asker: Asker::Caller(caller), asked_at: now, sent_at: now, again_after: AGAIN_AFTER_MS[0] }
    }

    pub(super) fn who(&self) -> Who {
        match self.asker {
            Asker::Replica { index, .. } => Who::Scheduler(index),
            Asker::Caller(_) => Who::Client,
        }
    }

    fn writes(&self) -> bool {
        !matches!(
            self.asker,
            Asker::Replica {
                command: Command::LoadSnapshot { .. } | Command::ReadInbox { .. } | Command::ReadItems { .. } | Command::ReadResults { .. },
                ..
            }
        )
    }
}

impl World {
    /// A question leaves.
    pub(super) fn ask(&mut self, mut ask: Box<Ask>) {
        if let Asker::Replica { index, life, .. } = ask.asker {
            let node = &mut self.replicas[index];
            if node.life != life || node.scheduler.is_none() {
                return;
            }
            if node.paused {
                return node.waiting.push_back(Delivery::Again(ask));
            }
        }
        ask.sent_at = self.time;
        let way = match &mut self.play {
            Some(play) => play.way_to_database(&ask.asker, ask.who(), ask.writes()),
            None => Way { there_ms: self.store_latency, back_ms: self.store_latency, ..Way::default() },
        };
        let is_given_up = self.play.is_some() && way.there_ms > ANSWER_TIMEOUT_MS;
        if is_given_up {
            self.send(ANSWER_TIMEOUT_MS, Delivery::Unheard(ask.clone()));
        }
        self.send(way.there_ms, Delivery::Request(Box::new(Request { ask: *ask, way, is_given_up })));
    }

    pub(super) fn reach_database(&mut self, request: Request) {
        let Request { ask, way, is_given_up } = request;
        let ask = Box::new(ask);
        if self.play.is_none() {
            return self.reach_database_by_hand(ask);
        }
        let is_cut = self.play.as_ref().is_some_and(|play| play.is_cut_off(ask.who(), true));
        if !is_cut && let Some(failed) = way.surely_fails() {
            if !is_given_up {
                self.finish(*ask, Err(failed));
            }
            return;
        }
        if is_cut || way.request_is_lost {
            if !is_cut {
                self.probe("commit.unknown_not_applied");
            }
            if !is_given_up {
                self.send(NOTICED_AFTER_MS, Delivery::Unheard(ask));
            }
            return;
        }
        let done = self.carry_out(&ask);
        if is_given_up {
            return;
        }
        let generation = self.database.generation();
        let give_up_at = ask.sent_at + ANSWER_TIMEOUT_MS;
        if self.time + way.back_ms > give_up_at {
            self.queue.push(give_up_at, Delivery::Unheard(ask));
        } else {
            let reply = Reply { ask, done: Ok(done), generation, is_lost: way.answer_is_lost };
            self.send(way.back_ms, Delivery::Reply(Box::new(reply)));
        }
    }

    fn reach_database_by_hand(&mut self, ask: Box<Ask>) {
        let Asker::Replica { command, .. } = &ask.asker else { unreachable!("by hand only replicas ask this way") };
        let done = match command {
            Command::LoadSnapshot { .. } if self.failing_snapshots > 0 => {
                self.failing_snapshots -= 1;
                Err(Failed::NoAnswer)
            }
            Command::Commit(batch) => {
                let fate = self.fates.pop_front().unwrap_or(Fate::Carried);
                if self.keeps_commits {
                    self.commits.push(batch.clone());
                }
                match fate {
                    Fate::Carried => Ok(self.carry_out(&ask)),
                    Fate::Refused => Ok(Done::Commit(Err(Refusal::Lease("refused by the test".into())))),
                    Fate::UnknownApplied => {
                        self.carry_out(&ask);
                        Err(Failed::NoAnswer)
                    }
                    Fate::UnknownNotApplied => Err(Failed::NoAnswer),
                }
            }
            _ => Ok(self.carry_out(&ask)),
        };
        if matches!(done, Ok(Done::Released)) {
            self.wake(Wake::Leases);
        }
        let generation = self.database.generation();
        let reply = Reply { ask, done, generation, is_lost: false };
        self.send(self.store_latency, Delivery::Reply(Box::new(reply)));
    }

    fn carry_out(&mut self, ask: &Ask) -> Done {
        self.steps += 1;
        let at = self.at();
        let (id, command, index) = match &ask.asker {
            Asker::Replica { id, command, index, .. } => (id, command, *index),
            Asker::Caller(caller) => return Done::Submitted(self.carry_out_call(*caller)),
        };
        let ttl = limits::PARTITION_LEASE;
        match command {
            Command::Beat => Done::Beat(self.database.beat(at, id, ttl)),
            Command::AcquireLeases { partitions, most } => {
                // What a node that trusts its own wall clock would say.
                let own_clock = self.wall(Who::Scheduler(index));
                Done::Leases(self.database.acquire(at, id, partitions, *most, ttl, own_clock))
            }
            Command::RenewLeases(leases) => Done::Renewed { lost: self.database.renew(at, id, leases, ttl) },
            Command::ReleaseLeases { leases, leaves } => {
                self.database.release(at, id, leases, *leaves);
                Done::Released
            }
            Command::LoadSnapshot { partition, .. } => Done::Snapshot(self.database.snapshot(at, *partition)),
            Command::Commit(batch) => {
                let done = self.database.commit(at, batch);
                self.commit_count += u64::from(done.is_ok());
                Done::Commit(done)
            }
            Command::ReadInbox { partitions, after } => {
                let (entries, more) = self.database.read_inbox(at, partitions, *after, self.inbox_page);
                Done::Page(entries, more)
            }
            Command::ReadItems { whole, page } => {
                let output = self.database.data().output_of(*whole, page + 1);
                Done::Items(output.map(|output| Arc::from(String::from_utf8_lossy(&output.bytes))))
            }
            Command::ReadResults { of, from, until } => {
                Done::Results(self.database.data().results_of(*of, *from, *until, limits::MAP_PAGE_ITEMS))
            }
            Command::Send { .. } | Command::Alert(_) | Command::Stopped => unreachable!("not for the database"),
        }
    }

    pub(super) fn reach_asker(&mut self, reply: Reply) {
        let Reply { ask, done, generation, is_lost } = reply;
        let is_cut = self.play.as_ref().is_some_and(|play| play.is_cut_off(ask.who(), false));
        if is_lost {
            self.probe("commit.unknown_applied");
        }
        if is_lost || is_cut || generation != self.database.generation() {
            return self.send(NOTICED_AFTER_MS, Delivery::Unheard(ask));
        }
        self.finish(*ask, done);
    }

    /// Whoever asked knows what became of it.
    pub(super) fn finish(&mut self, ask: Ask, done: Result<Done, Failed>) {
        let Ask { asker, asked_at, again_after, sent_at } = ask;
        let (index, life, id, command) = match asker {
            Asker::Replica { index, life, id, command } => (index, life, id, command),
            Asker::Caller(caller) => {
                let done = done.map(|done| match done {
                    Done::Submitted(submitted) => submitted,
                    done => unreachable!("{done:?} is no answer to a caller"),
                });
                return self.caller_hears(caller, done);
            }
        };
        let node = &mut self.replicas[index];
        if node.life != life || node.scheduler.is_none() {
            return;
        }
        if node.paused {
            let asker = Asker::Replica { index, life, id, command };
            let ask = Box::new(Ask { asker, asked_at, sent_at, again_after });
            // It has arrived: neither a cut nor a failover takes it back.
            let delivery = match done {
                Err(Failed::NoAnswer) => Delivery::Unheard(ask),
                done => Delivery::Reply(Box::new(Reply { ask, done, generation: self.database.generation(), is_lost: false })),
            };
            return self.replicas[index].waiting.push_back(delivery);
        }
        let requested_at = Monotonic(asked_at);
        match (command, done) {
            (Command::Beat, Ok(Done::Beat(beat))) => {
                if !self.clock_told(index, beat.now, requested_at) {
                    return;
                }
                self.tell_replica(index, Event::MembersSeen { members: beat.members });
            }
            (Command::AcquireLeases { partitions: mut asked, .. }, done) => {
                let answers = if let Ok(Done::Leases(answers)) = done { answers } else { Vec::new() };
                for answer in answers {
                    if let LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } = answer {
                        asked.retain(|asked| *asked != partition);
                        self.tell_replica(index, Event::LeaseGranted { partition, epoch, commit_seq, sequence, requested_at });
                    }
                }
                if !asked.is_empty() {
                    self.tell_replica(index, Event::LeaseRefused { partitions: asked });
                }
            }
            (Command::RenewLeases(asked), Ok(Done::Renewed { lost })) => {
                self.tell_replica(index, Event::LeasesRenewed { requested_at, asked, lost });
            }
            // Driven by hand they are woken when it is carried out.
            (Command::ReleaseLeases { .. }, Ok(_)) if self.play.is_some() => self.wake(Wake::Leases),
            (Command::LoadSnapshot { partition, epoch }, Ok(Done::Snapshot(snapshot))) => {
                self.tell_replica(index, Event::SnapshotLoaded { partition, epoch, snapshot });
            }
            (Command::LoadSnapshot { partition, epoch }, _) => self.tell_replica(index, Event::SnapshotFailed { partition, epoch }),
            (Command::ReadInbox { .. }, done) => {
                let (entries, more) = if let Ok(Done::Page(entries, more)) = done { (entries, more) } else { (Vec::new(), false) };
                self.tell_replica(index, Event::InboxRead { entries, more });
            }
            (Command::ReadItems { whole, page }, done) => {
                let read = match done {
                    Ok(Done::Items(Some(items))) => PageRead::Found(items),
                    Ok(_) => PageRead::Missing,
                    Err(_) => PageRead::Failed,
                };
                self.tell_replica(index, Event::ItemsRead { whole, page, read });
            }
            (Command::ReadResults { of, from, .. }, done) => {
                let read = if let Ok(Done::Results(results)) = done { PageRead::Found(results) } else { PageRead::Failed };
                self.tell_replica(index, Event::ResultsRead { whole: of.whole, from, read });
            }
            (Command::Commit(batch), done) => {
                let outcome = match done {
                    Ok(Done::Commit(Ok(()))) => CommitOutcome::Committed,
                    Ok(Done::Commit(Err(refusal))) => CommitOutcome::Refused { reason: Arc::from(refusal.reason()) },
                    Err(Failed::NoAnswer) if !guard!(Guard::UnknownCommitNotRepeated, false) => {
                        CommitOutcome::Unknown { reason: Arc::from("no answer came") }
                    }
                    // While it surely did nothing, it is tried again.
                    _ => {
                        let asker = Asker::Replica { index, life, id, command: Command::Commit(batch) };
                        let next = Ask { asker, asked_at, sent_at, again_after: (again_after * 2).min(AGAIN_AFTER_MS[1]) };
                        return self.send(again_after, Delivery::Again(Box::new(next)));
                    }
                };
                self.tell_replica(index, Event::CommitFinished { commit: batch.id, outcome });
            }
            _ => {}
        }
    }
}
