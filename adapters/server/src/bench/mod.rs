//! The load generator behind `punctual bench`: a no-op handler, a real database, and the workers' own records as the judge.
//!
//! What ran is what the handlers wrote down when they began, not what the store or the scheduler says. *Lost* is what was accepted, or was
//! due, and has no record; *duplicated* is an instance with more than one.

mod processes;
mod record;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::ids::InboxId;
use punctual_core::inbox::{Submission, ordinal_of};
use punctual_core::limits;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Catalog, Clock, Store, Submitted, TaskDocument};
use punctual_spec::spec::{Concurrency, CronTrigger, CustomHandler, Handler, TaskSpec, Trigger};
use punctual_spec::zones::Zones;
use punctual_store::{MySqlOptions, MySqlStore};
use tokio::sync::mpsc;

use crate::embedded::Embedded;
use crate::open;
use processes::Processes;
pub(crate) use processes::work;
use record::{Counter, Recorder};
pub(crate) use report::Report;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Manual triggers as fast as they are taken: whole life cycles a second.
    FlatOut,
    /// Manual triggers at a rate: the time from the call to the handler's begin.
    Rate,
    /// Cron tasks that fire each second, `rate` of them: lateness.
    Cron,
    /// All tasks due in one and the same second.
    Burst,
    /// Many cron tasks that hardly ever fire: memory, and the time from the start to the first fire.
    Idle,
}

/// What to measure with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) scenario: Scenario,
    pub(crate) tasks: u32,
    /// Cron tasks besides, which fire once a day.
    pub(crate) idle: u32,
    pub(crate) instances: u64,
    pub(crate) rate: u32,
    pub(crate) seconds: u32,
    pub(crate) slots: u32,
    pub(crate) db: PathBuf,
    /// Instead of the file: a MySQL or MariaDB.
    pub(crate) database: Option<String>,
    /// Replica and worker are processes of their own; `db` is then in a folder for what they write.
    pub(crate) processes: bool,
    /// For wake-ups between processes.
    pub(crate) redis: Option<String>,
}

/// Triggers in one call of the flat-out scenario.
const SUBMISSIONS: usize = 500;
/// Instances that have not ended while idle tasks fire now and then.
const FEW: u64 = 500;
/// Instances that may be under way in the flat-out scenario.
const WINDOW: u64 = 20_000;
/// How long a scenario waits for what is still missing before it counts it as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a scenario on a store of its own.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<Report> {
    if settings.scenario == Scenario::Idle {
        return idle(settings).await;
    }
    let zones = Arc::new(Zones::load());
    match &settings.database {
        None => on(Arc::new(open::store(&settings.db, &zones)?), &zones, settings).await,
        Some(url) => on(Arc::new(MySqlStore::open(MySqlOptions::new(url, open::decode(&zones))).await?), &zones, settings).await,
    }
}

async fn on<S: Store + Catalog>(store: Arc<S>, zones: &Zones, settings: &Settings) -> anyhow::Result<Report> {
    let clock = Arc::new(SystemClock::new());
    let documents = match settings.scenario {
        Scenario::FlatOut | Scenario::Rate => tasks(settings.tasks, zones, |_| Trigger::Manual)?,
        Scenario::Cron => tasks(settings.rate, zones, |_| Trigger::Cron(CronTrigger::new("* * * * * *")))?,
        Scenario::Burst => {
            // Far enough ahead that all are loaded by then.
            let second = (clock.now().wall.0 / 1_000 + 8 + i64::from(settings.tasks) / 20_000) % 86_400;
            let cron = format!("{} {} {} * * *", second % 60, second / 60 % 60, second / 3_600);
            tasks(settings.tasks, zones, |_| Trigger::Cron(CronTrigger::new(&*cron)))?
        }
        Scenario::Idle => unreachable!("handled above"),
    };
    let names: Vec<Arc<str>> = documents.iter().map(|document| document.definition.name.clone()).collect();
    let by: Arc<str> = Arc::from("bench");
    store.apply(by.clone(), by.into(), documents, false, clock.now().wall).await?;
    add_idle(&store, zones, settings.idle, clock.now().wall).await?;
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let counter = Arc::new(Counter::default());
    let node = match (&settings.database, settings.processes) {
        (Some(database), true) => {
            let folder = settings.db.parent().unwrap_or(Path::new("."));
            let (store, counter) = (store.clone(), counter.clone());
            let started = Processes::start(database, settings.redis.as_deref(), settings.slots, folder, store, counter).await?;
            Node::Processes(Box::new(started))
        }
        _ => Node::Embedded(Embedded::start(store.clone(), recorder.clone(), clock.clone(), counter.clone(), settings.slots)),
    };
    let mut bench = Bench { store, clock, recorder, counter, node, expected: Vec::new() };
    match settings.scenario {
        Scenario::FlatOut => bench.flat_out(&names, settings.instances).await?,
        Scenario::Rate => bench.rate(&names, settings.rate, settings.seconds).await?,
        Scenario::Cron => bench.cron(u64::from(settings.rate), settings.seconds).await,
        Scenario::Burst => bench.burst(u64::from(settings.tasks)).await,
        Scenario::Idle => unreachable!("handled above"),
    }
    bench.finish(settings).await
}

/// Tasks that are applied at once.
const APPLIED_AT_ONCE: u32 = 50_000;

/// Adds tasks that hardly ever fire, and lets a scheduler take them over once, as after any other deployment.
async fn add_idle<S: Store + Catalog>(store: &Arc<S>, zones: &Zones, count: u32, now: Timestamp) -> anyhow::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let clock = Arc::new(SystemClock::new());
    let counter = Arc::new(Counter::default());
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let node = Embedded::start(store.clone(), recorder, clock, counter.clone(), 1);
    for first in (0..count).step_by(APPLIED_AT_ONCE as usize) {
        let some = APPLIED_AT_ONCE.min(count - first);
        let documents = (first..first + some).map(|index| idle_task(index, zones)).collect::<anyhow::Result<Vec<_>>>()?;
        store.apply(Arc::from(format!("idle-{first}")), "bench".into(), documents, false, now).await?;
        counter.wait_for_tasks(u64::from(first + some), PATIENCE).await;
    }
    let (_never, interrupts) = mpsc::channel(1);
    node.drain(interrupts).await;
    Ok(())
}

/// One that fires once a day; all of them spread over it.
fn idle_task(index: u32, zones: &Zones) -> anyhow::Result<TaskDocument> {
    let cron = format!("{} {} {} * * *", index % 60, index / 60 % 60, index / 3_600 % 24);
    let trigger = Trigger::Cron(CronTrigger { timezone: "Europe/Berlin".to_owned(), ..CronTrigger::new(cron) });
    open::document(&TaskSpec::new(format!("idle-{index:08}"), trigger, noop()), zones)
}

fn noop() -> Handler {
    Handler::Custom(CustomHandler { name: "noop".to_owned(), config: serde_json::Map::new() })
}

fn tasks(count: u32, zones: &Zones, trigger: impl Fn(u32) -> Trigger) -> anyhow::Result<Vec<TaskDocument>> {
    (0..count)
        .map(|index| {
            let mut spec = TaskSpec::new(format!("bench-{index:07}"), trigger(index), noop());
            spec.concurrency = Concurrency { max_running: limits::MAX_RUNNING_MAX, ..Concurrency::default() };
            open::document(&spec, zones)
        })
        .collect()
}

struct Bench<S> {
    store: Arc<S>,
    clock: Arc<SystemClock>,
    recorder: Arc<Recorder>,
    counter: Arc<Counter>,
    node: Node,
    /// What must have run: (task name, fire time, ordinal) as far as each scenario knows them.
    expected: Vec<Expected>,
}

/// What schedules and works.
enum Node {
    Embedded(Embedded),
    Processes(Box<Processes>),
}

impl Node {
    /// Something has come into the inbox.
    fn wake(&self) {
        match self {
            Node::Embedded(node) => {
                let _ = node.scheduler.try_send(ToSchedulerNode::InboxSignalled);
            }
            Node::Processes(processes) => processes.wake(),
        }
    }
}

/// Something that must have run.
enum Expected {
    /// These submissions of an inbox entry, and when the call was made.
    Submissions { first_ordinal: u64, count: u64, called_at: Timestamp },
    /// Each of `tasks` tasks at each second from `first` to `last`.
    EachSecond { tasks: u64, first: Timestamp, last: Timestamp },
    /// So many instances.
    Instances(u64),
}

impl Expected {
    /// The call for a single submission.
    fn call(&self) -> Option<(u64, Timestamp)> {
        match *self {
            Expected::Submissions { first_ordinal, count: 1, called_at } => Some((first_ordinal, called_at)),
            _ => None,
        }
    }
}

impl<S: Store + Catalog> Bench<S> {
    async fn submit(&mut self, task: &Arc<str>, count: usize) -> anyhow::Result<()> {
        let submissions = vec![Submission::default(); count];
        let called_at = self.clock.now().wall;
        let submitted = self.store.trigger(task.clone(), "bench".into(), None, submissions, self.clock.now().wall).await?;
        let Submitted::Accepted { entry } = submitted else { anyhow::bail!("the trigger of {task} was not accepted: {submitted:?}") };
        self.expected.push(Expected::Submissions { first_ordinal: ordinal_of(entry, 0), count: count as u64, called_at });
        self.node.wake();
        Ok(())
    }

    /// Submits in batches as fast as they are taken, with a bound on what is under way.
    async fn flat_out(&mut self, names: &[Arc<str>], instances: u64) -> anyhow::Result<()> {
        let mut submitted = 0;
        self.counter.begin();
        for name in names.iter().cycle() {
            if submitted >= instances {
                break;
            }
            let count = SUBMISSIONS.min(usize::try_from(instances - submitted).unwrap_or(SUBMISSIONS));
            self.submit(name, count).await?;
            submitted += count as u64;
            if !self.counter.wait_until(submitted.saturating_sub(WINDOW), PATIENCE).await {
                // Nothing moves any more: what is missing is counted as lost.
                return Ok(());
            }
        }
        self.counter.wait_until(submitted, PATIENCE).await;
        self.until_few_are_left().await
    }

    /// Idle tasks fire as well, now and then, and were counted with what was submitted.
    async fn until_few_are_left(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let counts = self.store.counts().await?;
            let left: u64 = counts.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, count)| count).sum();
            if left <= FEW {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// One submission at a time, evenly spread.
    async fn rate(&mut self, names: &[Arc<str>], rate: u32, seconds: u32) -> anyhow::Result<()> {
        let pause = Duration::from_secs(1) / rate.max(1);
        let mut next = tokio::time::Instant::now() + Duration::from_secs(1);
        self.counter.begin();
        let count = u64::from(rate) * u64::from(seconds);
        let mut calls = tokio::task::JoinSet::new();
        for name in names.iter().cycle().take(usize::try_from(count)?) {
            tokio::time::sleep_until(next).await;
            next += pause;
            let Node::Processes(processes) = &self.node else {
                self.submit(name, 1).await?;
                continue;
            };
            let (client, name, called_at) = (processes.client(), name.clone(), self.clock.now().wall);
            calls.spawn(async move { anyhow::Ok((processes::trigger(&client, &name).await?, called_at)) });
        }
        while let Some(called) = calls.join_next().await {
            let (entry, called_at) = called??;
            self.expected.push(Expected::Submissions { first_ordinal: ordinal_of(InboxId(entry), 0), count: 1, called_at });
        }
        self.counter.wait_until(count, PATIENCE).await;
        Ok(())
    }

    /// Lets cron tasks fire each second, and counts the seconds between the first and the last full one.
    async fn cron(&mut self, tasks: u64, seconds: u32) {
        self.counter.wait_until(tasks, PATIENCE).await;
        // The one in which the tasks were loaded is not judged.
        let first = Timestamp((self.clock.now().wall.0 / 1_000 + 2) * 1_000);
        let last = first.saturating_add(Millis::from_secs(u64::from(seconds.max(1)) - 1));
        self.sleep_until(first.saturating_sub(Millis(300))).await;
        self.counter.begin();
        self.recorder.judge_from(first);
        self.sleep_until(last.saturating_add(Millis(2_900))).await;
        self.expected.push(Expected::EachSecond { tasks, first, last });
    }

    async fn burst(&mut self, tasks: u64) {
        self.counter.begin();
        self.counter.wait_until(tasks, PATIENCE * 2).await;
        self.expected.push(Expected::Instances(tasks));
    }

    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(Duration::from_millis(at.since(self.clock.now().wall).0)).await;
    }

    async fn finish(self, settings: &Settings) -> anyhow::Result<Report> {
        let (_never, interrupts) = mpsc::channel(1);
        let rss_bytes_max = match self.node {
            Node::Embedded(node) => {
                let rss_bytes_max = report::rss_bytes_max(std::process::id());
                node.drain(interrupts).await;
                rss_bytes_max
            }
            Node::Processes(processes) => processes.stop(&self.recorder).await?,
        };
        Ok(Report::new(settings, &self.recorder, &self.counter, &self.expected, rss_bytes_max))
    }
}

/// Seeds a store in a process of its own, so that this one's memory is a scheduler's only, then loads it.
async fn idle(settings: &Settings) -> anyhow::Result<Report> {
    let seeding = Instant::now();
    let seeder = std::env::current_exe()?;
    let status = tokio::process::Command::new(seeder)
        .args(["bench", "--scenario", "idle", "--seed-only", "--tasks", &settings.tasks.to_string(), "--db"])
        .arg(&settings.db)
        .status()
        .await?;
    anyhow::ensure!(status.success(), "the store could not be seeded: {status}");
    let seed_seconds = seeding.elapsed().as_secs_f64();

    let started = Instant::now();
    let zones = Arc::new(Zones::load());
    let store = Arc::new(open::store(&settings.db, &zones)?);
    let clock = Arc::new(SystemClock::new());
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let counter = Arc::new(Counter::default());
    let node = Embedded::start(store.clone(), recorder.clone(), clock.clone(), counter.clone(), settings.slots);
    counter.begin();
    counter.wait_until(1, PATIENCE * 5).await;
    let first_fire_seconds = started.elapsed().as_secs_f64();
    // The tasks that fire each minute go on while the rest is idle.
    tokio::time::sleep(Duration::from_secs(u64::from(settings.seconds))).await;
    let bench = Bench { store, clock, recorder, counter, node: Node::Embedded(node), expected: Vec::new() };
    let mut report = bench.finish(settings).await?;
    report.first_fire_seconds = Some(first_fire_seconds);
    report.seed_seconds = Some(seed_seconds);
    Ok(report)
}

/// Makes the store of the idle scenario: one task fires each second, all others once a day, spread over it.
pub(crate) async fn seed_idle(tasks_wanted: u32, db: &Path) -> anyhow::Result<()> {
    let zones = Arc::new(Zones::load());
    let store = Arc::new(open::store(db, &zones)?);
    let clock = Arc::new(SystemClock::new());
    let documents = tasks(tasks_wanted, &zones, |index| {
        let cron = match index {
            0 => "* * * * * *".to_owned(),
            _ => format!("{} {} {} * * *", index % 60, index / 60 % 60, index / 3_600 % 24),
        };
        Trigger::Cron(CronTrigger { timezone: "Europe/Berlin".to_owned(), ..CronTrigger::new(cron) })
    })?;
    let by: Arc<str> = Arc::from("bench");
    store.apply(by.clone(), by.into(), documents, false, clock.now().wall).await?;
    // A scheduler takes them over once, as after any other deployment.
    let counter = Arc::new(Counter::default());
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let node = Embedded::start(store.clone(), recorder, clock, counter.clone(), 1);
    counter.wait_for_tasks(u64::from(tasks_wanted), PATIENCE * 10).await;
    let (_never, interrupts) = mpsc::channel(1);
    node.drain(interrupts).await;
    Ok(())
}
