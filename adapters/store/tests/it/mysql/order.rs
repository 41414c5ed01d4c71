//! Several replicas at once on a few partitions, and callers with idempotency keys, while their connections are killed: there is one order in
//! which each answer is right, and it is the recorded one.
//!
//! Looked at one by one are a partition's lease, its fence and a key: what is in order for each is so for all. A record has to lie between the
//! calls that had ended before its own began and those that began after its own had ended. An answer that left no record has to be
//! right at some place between the same bounds. Of a call whose outcome nobody knows there may be a record or none.

mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_core::batch::{Batch, CommitOutcome, LeaseCheck, Renewal, TaskWrite};
use punctual_core::ids::{Epoch, InboxId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::Submission;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, LeaseAnswer, Store, StoreError, Submitted};
use punctual_store::MySqlStore;
use punctual_store::conformance::{self, START, document};
use punctual_store::recorder::{self, Seen};
use tokio::runtime::Builder;

use self::judge::{judge, objects};
use super::{database, options, server};

const PARTITIONS: u16 = 3;
const REPLICAS: u64 = 6;
const KEYS: u64 = 150;
const KILLS: usize = 120;
/// In calls: each call's time is one later than the one's before.
const TTL: Millis = Millis(30);

/// What was asked for.
#[derive(Clone, Debug)]
enum Ask {
    Acquire(Vec<PartitionId>, usize),
    Renew(Vec<Renewal>),
    Release(PartitionId, Epoch),
    Commit(Box<Batch>),
    Trigger { key: Arc<str>, submissions: usize },
}

/// What came back.
#[derive(Clone, Debug)]
enum Answer {
    Leases(Vec<LeaseAnswer>),
    Lost(Vec<PartitionId>),
    Done,
    Committed,
    Refused,
    /// Surely nothing was written.
    Failed,
    Submitted(Submitted),
    Unknown,
}

#[derive(Clone, Debug)]
struct Call {
    replica: ReplicaId,
    /// Places in one order of all beginnings and ends. The beginning is the call's time, too.
    began: u64,
    ended: u64,
    ask: Ask,
    answer: Answer,
}

impl Call {
    fn now(&self) -> Timestamp {
        Timestamp(START.0 + self.began.cast_signed())
    }

    fn until(&self) -> Timestamp {
        self.now().saturating_add(TTL)
    }
}

/// Draws numbers: xorshift, the same ones in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A replica that believes what it was told, for too long at times.
struct Replica {
    store: Arc<MySqlStore>,
    name: ReplicaId,
    clock: Arc<AtomicU64>,
    dice: Dice,
    leases: BTreeMap<PartitionId, LeaseCheck>,
    calls: Vec<Call>,
}

impl Replica {
    async fn run(mut self, stop: Arc<AtomicBool>) -> Vec<Call> {
        while !stop.load(Ordering::Relaxed) {
            let began = self.clock.fetch_add(1, Ordering::SeqCst);
            let ask = self.ask(began);
            let mut call = Call { replica: self.name.clone(), began, ended: 0, ask, answer: Answer::Unknown };
            call.answer = match self.carry_out(&call).await {
                Ok(answer) => answer,
                Err(error) => {
                    assert!(error.is_passing(), "{error}");
                    // Only of a commit it is said that nothing was written.
                    if matches!(call.ask, Ask::Commit(_)) { Answer::Failed } else { Answer::Unknown }
                }
            };
            call.ended = self.clock.fetch_add(1, Ordering::SeqCst);
            self.learn(&call);
            self.calls.push(call);
        }
        self.calls
    }

    fn ask(&mut self, began: u64) -> Ask {
        let some = self.dice.below(1 << PARTITIONS);
        let is_in = |partition: PartitionId| some & (1 << partition.0) != 0;
        let mut leases: Vec<_> = self.leases.values().copied().collect();
        match self.dice.below(10) {
            0 | 1 => {
                let (key, submissions) = (self.dice.below(KEYS), 1 + self.dice.below(4) as usize / 3);
                return Ask::Trigger { key: format!("key-{key}").into(), submissions };
            }
            2 if !leases.is_empty() => {
                let renewal = |lease: LeaseCheck| Renewal { partition: lease.partition, epoch: lease.epoch, commit_seq: lease.commit_seq };
                return Ask::Renew(leases.into_iter().map(renewal).collect());
            }
            3 if !leases.is_empty() => {
                let lease = leases[some as usize % leases.len()];
                return Ask::Release(lease.partition, lease.epoch);
            }
            4.. if leases.iter().any(|lease| is_in(lease.partition)) => {
                leases.retain(|lease| is_in(lease.partition));
                let mut batch = Batch { replica: self.name.clone(), ..Batch::default() };
                for lease in leases {
                    let lease = LeaseCheck { commit_seq: lease.commit_seq + 1, sequence: lease.sequence + 1, ..lease };
                    batch.leases.push(lease);
                    // It names the batch: no two have the same.
                    let fired_until = Some(Timestamp(began.cast_signed()));
                    let (partition, version) = (lease.partition, Some(Version(1)));
                    batch.tasks.push(TaskWrite { task: TaskId(9), partition, version, next_fire: None, fired_until });
                }
                return Ask::Commit(Box::new(batch));
            }
            _ => {}
        }
        let asked: Vec<_> = (0..PARTITIONS).map(PartitionId).filter(|partition| is_in(*partition)).collect();
        Ask::Acquire(asked, 1 + self.dice.below(2) as usize)
    }

    async fn carry_out(&self, call: &Call) -> Result<Answer, StoreError> {
        let (store, me, now) = (&self.store, self.name.clone(), call.now());
        Ok(match call.ask.clone() {
            Ask::Acquire(partitions, most) => Answer::Leases(store.acquire(me, partitions, most, TTL, now).await?),
            Ask::Renew(renewals) => Answer::Lost(store.renew(me, renewals, TTL, now).await?),
            Ask::Release(partition, epoch) => {
                store.release(me, vec![(partition, epoch)], false).await?;
                Answer::Done
            }
            Ask::Commit(batch) => match store.commit(Arc::new(*batch)).await? {
                CommitOutcome::Committed => Answer::Committed,
                CommitOutcome::Refused { .. } => Answer::Refused,
                CommitOutcome::Unknown { .. } => Answer::Unknown,
            },
            Ask::Trigger { key, submissions } => {
                let submissions = vec![Submission::default(); submissions];
                Answer::Submitted(store.trigger("task".into(), "me".into(), Some(key), submissions, now).await?)
            }
        })
    }

    fn learn(&mut self, call: &Call) {
        match (&call.ask, &call.answer) {
            (_, Answer::Leases(answers)) => {
                for answer in answers {
                    if let LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } = *answer {
                        self.leases.insert(partition, LeaseCheck { partition, epoch, commit_seq, sequence });
                    }
                }
            }
            (Ask::Commit(batch), Answer::Committed) => self.leases.extend(batch.leases.iter().map(|lease| (lease.partition, *lease))),
            (Ask::Commit(batch), Answer::Refused | Answer::Unknown) if self.dice.below(3) > 0 => {
                batch.leases.iter().for_each(|lease| _ = self.leases.remove(&lease.partition));
            }
            (Ask::Release(partition, _), Answer::Done) if self.dice.below(2) == 0 => _ = self.leases.remove(partition),
            _ => {}
        }
    }
}

/// Kills connections to a database, those that are in the middle of something first.
fn kill_connections(database: &str) {
    for _ in 0..KILLS {
        let sql = format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{database}' ORDER BY command = 'Sleep' AND RAND() < 0.8, RAND() LIMIT 1;"
        );
        let victim = server().run(&sql).expect("a list");
        if let Ok(victim) = victim.trim().parse::<u64>() {
            // It may have gone by itself.
            let _ = server().run(&format!("KILL {victim};"));
        }
    }
}

async fn run(url: &str) -> (Vec<Call>, Vec<Seen>) {
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let stores =
        [MySqlStore::open(options(url)).await, MySqlStore::open(options(url)).await].map(|store| Arc::new(store.expect("a store")));
    conformance::apply(&*stores[0], vec![document("task", "v1")], START).await;
    recorder::install(url).await.expect("it records");
    let (clock, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let replicas: Vec<_> = (0..REPLICAS)
        .map(|number| {
            let replica = Replica {
                store: Arc::clone(&stores[number as usize % 2]),
                name: ReplicaId(format!("r{number}").into()),
                clock: Arc::clone(&clock),
                dice: Dice(0x9e37_79b9_7f4a_7c15 ^ (number << 32)),
                leases: BTreeMap::new(),
                calls: Vec::new(),
            };
            tokio::spawn(replica.run(Arc::clone(&stop)))
        })
        .collect();
    tokio::task::spawn_blocking(move || kill_connections(&name)).await.expect("the killer");
    stop.store(true, Ordering::Relaxed);
    let mut calls = Vec::new();
    for replica in replicas {
        calls.extend(replica.await.expect("a replica"));
    }
    calls.sort_by_key(|call| call.began);
    for store in stores {
        store.close().await;
    }
    let logged = recorder::read(url, conformance::decode()).await.expect("what was recorded");
    (calls, logged.into_iter().map(|logged| logged.seen).collect())
}

/// How often each answer was given.
fn answers(calls: &[Call]) -> BTreeMap<&'static str, usize> {
    let mut answers = BTreeMap::new();
    for call in calls {
        let kinds: Vec<_> = match &call.answer {
            Answer::Leases(leases) => {
                let kind = |lease: &LeaseAnswer| if matches!(lease, LeaseAnswer::Granted { .. }) { "granted" } else { "held" };
                leases.iter().map(kind).collect()
            }
            Answer::Lost(lost) => vec![if lost.is_empty() { "renewed" } else { "lost" }],
            Answer::Done => vec!["released"],
            Answer::Committed => vec!["committed"],
            Answer::Refused => vec!["refused"],
            Answer::Submitted(Submitted::Accepted { .. }) => vec!["accepted"],
            Answer::Submitted(Submitted::Repeated { .. }) => vec!["repeated"],
            Answer::Submitted(_) => vec!["key taken"],
            Answer::Failed | Answer::Unknown => vec!["doubt"],
        };
        kinds.into_iter().for_each(|kind| *answers.entry(kind).or_default() += 1);
    }
    answers
}

#[test]
fn answers_are_right_in_the_order_of_the_records() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (calls, records) = runtime.block_on(run(&database()));
    if let Err(wrong) = judge(&calls, &records) {
        panic!("{wrong}");
    }
    let answers = answers(&calls);
    for kind in ["granted", "held", "renewed", "lost", "released", "committed", "refused", "accepted", "repeated", "key taken", "doubt"] {
        assert!(answers.get(kind).is_some_and(|count| *count > 2), "{kind}: {answers:?}");
    }
    let partitions: BTreeSet<_> = records.iter().flat_map(objects).collect();
    assert!(partitions.len() > usize::from(PARTITIONS) * 2, "{partitions:?}");
    what_is_wrong_is_noticed(&calls, &records);
}

/// The judge is one: of what was seen, whatever is changed makes it say no.
fn what_is_wrong_is_noticed(calls: &[Call], records: &[Seen]) {
    let changed = |is_it: &dyn Fn(&Call) -> bool, change: &dyn Fn(&mut Call)| {
        let mut calls = calls.to_vec();
        let last = calls.iter_mut().rev().find(|call| is_it(call)).expect("there is one");
        change(last);
        judge(&calls, records)
    };
    let committed = |call: &Call| matches!(call.answer, Answer::Committed);
    changed(&committed, &|call| call.answer = Answer::Failed).expect_err("it was carried out");
    changed(&committed, &|call| call.answer = Answer::Refused).expect_err("it was carried out");
    changed(&|call| matches!(call.answer, Answer::Refused), &|call| call.answer = Answer::Committed).expect_err("it was not");
    let all_lost = |call: &Call| matches!((&call.ask, &call.answer), (Ask::Renew(all), Answer::Lost(lost)) if lost.len() == all.len());
    changed(&all_lost, &|call| call.answer = Answer::Lost(vec![])).expect_err("they were lost");
    changed(&|call| matches!(call.answer, Answer::Submitted(Submitted::Repeated { .. })), &|call| {
        call.answer = Answer::Submitted(Submitted::Repeated { entry: InboxId(u64::MAX) });
    })
    .expect_err("it is another entry");
    let places = |is_it: &dyn Fn(&Seen) -> bool| (0..records.len()).filter(|place| is_it(&records[*place])).collect::<Vec<_>>();
    let commits = places(&|record| matches!(record, Seen::Committed(batch) if batch.leases.len() == usize::from(PARTITIONS) - 1));
    let mut one_less = records.to_vec();
    one_less.remove(commits[0]);
    judge(calls, &one_less).expect_err("one is not recorded");
    let submitted = places(&|record| matches!(record, Seen::Submitted { .. }));
    let mut twice = records.to_vec();
    twice.push(records[submitted[0]].clone());
    judge(calls, &twice).expect_err("one is recorded twice");
}
