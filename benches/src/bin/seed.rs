//! Makes a database with many instances that have ended, as a scheduler would have written them, only faster:
//! `cargo run --release -p punctual-benches --bin seed -- --instances 10000000 --store sqlite:PATH`, or `--store mysql://...`.
//!
//! Tasks of fifty groups, with instances over the last thirty days: 97% succeeded, the rest failed, ran out of time, was given up or
//! cancelled. A few thousand wait. The listing bench measures lists on it.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use punctual_core::batch::{Batch, CommitOutcome, LeaseCheck, TaskWrite};
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, partition_of};
use punctual_core::inbox::Request;
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition};
use punctual_core::limits;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, LeaseAnswer, Store, TaskDocument};
use punctual_spec::spec::TaskSpec;
use punctual_spec::zones::Zones;
use punctual_store::{Decode, MySqlOptions, MySqlStore, Options, SqliteStore};

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// Instances of a commit.
const BATCH: usize = 4_000;
/// The instances lie within so many days.
const DAYS: i64 = 30;
const DAY_MS: i64 = 86_400_000;
/// Of a thousand instances so many end so; the others succeed.
const TROUBLED: [(State, Cause, u64); 4] = [
    (State::Failed, Cause::AttemptsExhausted, 20),
    (State::TimedOut, Cause::TimedOut, 5),
    (State::DeadLettered, Cause::AttemptsExhausted, 2),
    (State::Cancelled, Cause::CancelRequested, 3),
];

struct Wanted {
    instances: u64,
    tasks: u64,
    waiting: u64,
    store: String,
}

fn wanted() -> Anyhow<Wanted> {
    let mut wanted = Wanted { instances: 10_000_000, tasks: 10_000, waiting: 5_000, store: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--instances" => wanted.instances = value.parse()?,
            "--tasks" => wanted.tasks = value.parse()?,
            "--waiting" => wanted.waiting = value.parse()?,
            "--store" => wanted.store = value,
            _ => return Err(format!("there is no {name}; there are --instances, --tasks, --waiting and --store").into()),
        }
    }
    if wanted.tasks == 0 {
        return Err("--tasks: at least one".into());
    }
    Ok(wanted)
}

fn main() -> Anyhow<()> {
    let wanted = wanted()?;
    let zones = Arc::new(Zones::load());
    let decode: Decode = {
        let zones = zones.clone();
        Arc::new(move |document| punctual_spec::decode(document, &zones).map_err(|findings| format!("{findings:?}")))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match wanted.store.strip_prefix("sqlite:") {
            Some(path) => fill(&SqliteStore::open(Options::new(path, decode))?, &wanted, &zones).await,
            None if wanted.store.starts_with("mysql://") => {
                fill(&MySqlStore::open(MySqlOptions::new(&wanted.store, decode)).await?, &wanted, &zones).await
            }
            None => Err("--store sqlite:PATH or --store mysql://user@host:port/database".into()),
        }
    })
}

/// Numbers that look drawn, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % end
    }
}

async fn fill<S: Store + Catalog>(store: &S, wanted: &Wanted, zones: &Arc<Zones>) -> Anyhow<()> {
    let begun = Instant::now();
    let now = Timestamp(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?);
    let document = |number: u64| {
        let trigger = if number.is_multiple_of(10) { r#"{"cron":"0 3 * * *"}"# } else { r#""manual""# };
        let name = name(number);
        let document = format!(
            r#"{{"name":"{name}","trigger":{trigger},"http":{{"url":"http://127.0.0.1:9/"}},"group":"group-{:02}","owner":"seed"}}"#,
            number % 50
        );
        let spec = TaskSpec::from_json(&document).map_err(|finding| format!("{document}: {finding}"))?;
        let definition = spec.to_definition(zones).map_err(|findings| format!("{document}: {findings:?}"))?;
        Ok::<_, Box<dyn Error>>(TaskDocument { definition: Arc::new(definition), document: spec.to_json().into() })
    };
    let documents = (0..wanted.tasks).map(document).collect::<Anyhow<Vec<_>>>()?;
    store.apply("seed".into(), "seed".into(), documents, false, now).await?;
    let mut owner = Owner::of(store, now).await?;
    owner.take_over(store, now).await?;
    let mut tasks = Vec::new();
    for number in 0..wanted.tasks {
        let name = name(number);
        let (view, _) = store.task(name.as_str().into()).await?.ok_or("a task is missing")?;
        tasks.push((view.task, partition_of(&name, store.partitions())));
    }
    println!("{} tasks in {:.1} s", tasks.len(), begun.elapsed().as_secs_f64());
    let mut draw = Draw(1);
    let mut made = 0;
    while made < wanted.instances {
        let count = (wanted.instances - made).min(BATCH as u64);
        let mut rows = Vec::with_capacity(BATCH);
        for number in made..made + count {
            // Evenly over the days, the oldest first.
            let offset = (DAYS * DAY_MS) as i128 * i128::from(number) / i128::from(wanted.instances);
            let fire_time = Timestamp(now.0 - DAYS * DAY_MS + i64::try_from(offset)?);
            let (task, partition) = tasks[draw.below(wanted.tasks) as usize];
            rows.push(owner.ended(task, partition, fire_time, number, &mut draw));
        }
        owner.commit(store, rows).await?;
        if made / 1_000_000 < (made + count) / 1_000_000 {
            println!("{} instances in {:.1} s", made + count, begun.elapsed().as_secs_f64());
        }
        made += count;
    }
    let mut left = wanted.waiting;
    while left > 0 {
        let count = left.min(BATCH as u64);
        let rows = (0..count).map(|number| {
            let (task, partition) = tasks[draw.below(wanted.tasks) as usize];
            owner.waiting(task, partition, now, left - number)
        });
        let rows = rows.collect();
        owner.commit(store, rows).await?;
        left -= count;
    }
    println!("{} instances and {} that wait in {:.1} s", wanted.instances, wanted.waiting, begun.elapsed().as_secs_f64());
    owner.leave(store).await
}

fn name(number: u64) -> String {
    format!("seed-{number:06}")
}

/// Holds all partitions.
struct Owner {
    replica: ReplicaId,
    leases: BTreeMap<PartitionId, LeaseCheck>,
    renewed: Instant,
}

/// How long leases last; they are renewed long before.
const TTL: Millis = Millis::from_secs(60);

impl Owner {
    async fn of(store: &impl Store, now: Timestamp) -> Anyhow<Self> {
        let replica = ReplicaId("seed".into());
        let partitions: Vec<_> = (0..store.partitions()).map(PartitionId).collect();
        let most = partitions.len();
        let mut leases = BTreeMap::new();
        for answer in store.acquire(replica.clone(), partitions, most, TTL, now).await? {
            let LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } = answer else {
                return Err("somebody schedules on this database: stop that first".into());
            };
            leases.insert(partition, LeaseCheck { partition, epoch, commit_seq, sequence });
        }
        Ok(Owner { replica, leases, renewed: Instant::now() })
    }

    /// Applies the definitions of all tasks.
    async fn take_over(&mut self, store: &impl Store, now: Timestamp) -> Anyhow<()> {
        let partitions: Vec<_> = self.leases.keys().copied().collect();
        loop {
            let page = store.read_inbox(partitions.clone(), InboxId(0), limits::INBOX_READ_MAX).await?;
            let mut batch = self.batch();
            for entry in page.entries {
                batch.applied.push(entry.id);
                if let Request::DefinitionChanged { task, version, definition: Some(definition), .. } = entry.request {
                    let next_fire = punctual_core::misfire::first(&definition.trigger, now);
                    let (partition, version) = (entry.partition, Some(version));
                    batch.tasks.push(TaskWrite { task, partition, version, next_fire, fired_until: Some(now) });
                }
            }
            self.carry_out(store, batch).await?;
            if !page.more {
                return Ok(());
            }
        }
    }

    fn batch(&mut self) -> Batch {
        for lease in self.leases.values_mut() {
            lease.commit_seq += 1;
        }
        Batch { replica: self.replica.clone(), leases: self.leases.values().copied().collect(), ..Batch::default() }
    }

    async fn commit(&mut self, store: &impl Store, inserts: Vec<InstanceRow>) -> Anyhow<()> {
        let batch = Batch { inserts, ..self.batch() };
        self.carry_out(store, batch).await
    }

    async fn carry_out(&mut self, store: &impl Store, batch: Batch) -> Anyhow<()> {
        if self.renewed.elapsed().as_secs() > 10 {
            self.renewed = Instant::now();
            let renewal = |lease: &LeaseCheck| punctual_core::batch::Renewal {
                partition: lease.partition,
                epoch: lease.epoch,
                commit_seq: lease.commit_seq - 1,
            };
            let now = Timestamp(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?);
            store.renew(self.replica.clone(), self.leases.values().map(renewal).collect(), TTL, now).await?;
        }
        match store.commit(Arc::new(batch)).await? {
            CommitOutcome::Committed => Ok(()),
            outcome => Err(format!("a batch was not written: {outcome:?}").into()),
        }
    }

    async fn leave(self, store: &impl Store) -> Anyhow<()> {
        let leases = self.leases.values().map(|lease| (lease.partition, lease.epoch)).collect();
        Ok(store.release(self.replica, leases, true).await?)
    }

    fn next(&mut self, partition: PartitionId) -> u64 {
        let lease = self.leases.get_mut(&partition).expect("all partitions are held");
        lease.sequence += 1;
        lease.sequence
    }

    fn ended(&mut self, task: TaskId, partition: PartitionId, fire_time: Timestamp, number: u64, draw: &mut Draw) -> InstanceRow {
        let mut drawn = draw.below(1_000);
        let mut end = (State::Succeeded, Cause::Finished);
        for (state, cause, share) in TROUBLED {
            if drawn < share {
                end = (state, cause);
                break;
            }
            drawn -= share;
        }
        let worker = WorkerId(format!("worker-{}", draw.below(20)).into());
        let took = draw.below(30_000) as i64;
        let fence = Fence(self.next(partition));
        let mut row = self.waiting(task, partition, fire_time, number);
        let mut step = |from, to, cause, after: i64, has_worker: bool| {
            row.transitions.push(Transition {
                from: Some(from),
                to,
                cause,
                at: Timestamp(fire_time.0 + after),
                attempt: 1,
                fence,
                worker: has_worker.then(|| worker.clone()),
                code: None,
                detail: (to == State::Failed).then(|| "exit code 1".into()),
            });
        };
        step(State::Waiting, State::Created, Cause::SlotFree, 1, false);
        step(State::Created, State::Dispatched, Cause::Assigned, 2, true);
        step(State::Dispatched, State::Running, Cause::Started, 4, true);
        step(State::Running, end.0, end.1, 4 + took, true);
        InstanceRow { state: end.0, fence, attempt: 1, due_at: None, failures: u32::from(end.0 != State::Succeeded), ..row }
    }

    fn waiting(&mut self, task: TaskId, partition: PartitionId, fire_time: Timestamp, number: u64) -> InstanceRow {
        InstanceRow {
            id: InstanceId::new(partition, self.next(partition)),
            task,
            version: Version(1),
            fire_time,
            ordinal: number + 1,
            run: 1,
            part: Part::WHOLE,
            links: None,
            result: None,
            origin: Origin::Manual,
            state: State::Waiting,
            fence: Fence(0),
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: Some(Timestamp(fire_time.0 + 365 * DAY_MS)),
            payload: None,
            key: None,
            transitions: vec![Transition {
                from: None,
                to: State::Waiting,
                cause: Cause::Triggered,
                at: fire_time,
                attempt: 0,
                fence: Fence(0),
                worker: None,
                code: None,
                detail: None,
            }],
        }
    }
}
