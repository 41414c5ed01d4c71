//! What is started, and in which order.

use std::path::{Path, PathBuf};
use std::process::Command as Once;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use punctual_core::ids::PartitionId;
use punctual_sim::draw::Draw;
use punctual_sim::history::{Left, What, Who};
use punctual_sim::plan::{FaultKind, Plan};
use punctual_testbed::{Redis, free_port};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clock::Origin;
use crate::database::{Pair, plain};
use crate::http::request;
use crate::nodes::{Command, Node};
use crate::people::People;
use crate::proxy::{self, Link, Pids};
use crate::told::Notes;
use crate::truth::{self, Told};
use crate::weather::{Sky, Weather};

/// How long the whole may take to be ready.
const READY_TIME_MAX: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often clocks that run wrong are put on.
const CLOCK_INTERVAL: Duration = Duration::from_millis(50);
/// Where Debian has the library that makes clocks run wrong.
const FAKETIME: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"];

/// The programs that are run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `punctual`, as it is shipped.
    pub punctual: PathBuf,
    /// This crate's, for workers.
    pub chaos: PathBuf,
}

/// A scheduler replica.
#[derive(Debug)]
pub struct Replica {
    /// Its process.
    pub node: Arc<Node>,
    /// The port of its API.
    pub api: u16,
}

/// All that runs, and all that is known of it while it does.
#[derive(Debug)]
pub struct Cluster {
    /// What happens.
    pub plan: Arc<Plan>,
    /// When the run began.
    pub origin: Origin,
    /// What is written down.
    pub notes: Notes,
    /// What is wrong just now.
    pub sky: Sky,
    /// The database servers.
    pub pair: Arc<Mutex<Pair>>,
    /// Redis.
    pub redis: Arc<Mutex<Redis>>,
    /// The schedulers.
    pub replicas: Vec<Replica>,
    /// The workers.
    pub workers: Vec<Arc<Node>>,
    /// Those who use the API.
    pub people: People,
    /// Where everything is that is kept.
    pub folder: PathBuf,
    /// Why clocks of nodes can't be set, where they can't.
    pub clocks: Result<(), String>,
    /// What is wrong with the system by itself: processes that ended unasked.
    pub findings: Mutex<Vec<String>>,
    background: Mutex<JoinSet<()>>,
}

impl Cluster {
    /// Starts everything, and comes back when partitions have owners and workers are connected.
    ///
    /// # Errors
    ///
    /// Something can't be started.
    pub async fn start(plan: Arc<Plan>, programs: &Programs, folder: &Path) -> anyhow::Result<Arc<Cluster>> {
        let may_fill = plan.faults.iter().any(|fault| fault.kind == FaultKind::DatabaseFull);
        let logs = folder.to_owned();
        let starting = tokio::task::spawn_blocking(move || Pair::start(may_fill, &logs).and_then(|pair| Ok((pair, Redis::start()?))));
        let (pair, redis) = starting.await??;
        migrate(&programs.punctual, &pair.url(), plan.shape.partitions)?;
        punctual_store::recorder::install(&pair.url()).await.context("the recorder")?;
        std::fs::write(folder.join("plan.json"), serde_json::to_string_pretty(&*plan)? + "\n")?;
        let sky = Sky::new(Weather::fine(plan.shape, pair.port(), redis.port()));
        let notes = Notes::default();
        let clocks = faketime(&plan);
        let mut making = Making { plan: &plan, programs, folder, notes: &notes, sky: &sky, clocks: &clocks, background: JoinSet::new() };
        let pids: Pids = Arc::new(Mutex::new(vec![None; plan.shape.workers]));
        let (mut replicas, mut addresses) = (Vec::new(), Vec::new());
        for index in 0..plan.shape.schedulers {
            let (replica, address) = making.replica(index, &pids).await?;
            replicas.push(replica);
            addresses.push(address);
        }
        let workers = (0..plan.shape.workers).map(|index| making.worker(index, &addresses, &pids)).collect::<anyhow::Result<_>>()?;
        let background = Mutex::new(making.background);
        let mut cluster = Cluster {
            origin: Origin::now(),
            people: People::default(),
            folder: folder.to_owned(),
            clocks: clocks.map(drop),
            findings: Mutex::default(),
            pair: Arc::new(Mutex::new(pair)),
            redis: Arc::new(Mutex::new(redis)),
            plan,
            notes,
            sky,
            replicas,
            workers,
            background,
        };
        cluster.put_on_forecasts()?;
        cluster.put_on_clocks(0)?;
        for node in cluster.nodes() {
            node.start()?;
        }
        cluster.ready().await?;
        cluster.origin = Origin::now();
        let cluster = Arc::new(cluster);
        cluster.look_after();
        Ok(cluster)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.replicas.iter().map(|replica| &replica.node).chain(&self.workers)
    }

    /// A node.
    pub fn node(&self, who: Who) -> Option<&Arc<Node>> {
        match who {
            Who::Scheduler(index) => self.replicas.get(index).map(|replica| &replica.node),
            Who::Worker(index) => self.workers.get(index),
            Who::World | Who::Database | Who::Client => None,
        }
    }

    /// Whether nothing is wrong any more.
    pub fn is_healed(&self) -> bool {
        self.sky.borrow().world.is_healed
    }

    /// Something that nobody did to the system.
    pub fn find(&self, what: String) {
        eprintln!("found: {what}");
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Who owns this partition, by what replicas say.
    pub async fn owner(&self, partition: PartitionId) -> Option<punctual_core::ids::ReplicaId> {
        for replica in self.replicas.iter().filter(|replica| replica.node.is_well()) {
            let Some(said) = request(replica.api, "GET", "/api/v1/cluster", &[], None).await else { continue };
            let owner = said.body["partitions"].get(usize::from(partition.0)).and_then(|view| view["owner"].as_str());
            if said.status == 200 {
                return owner.map(|owner| punctual_core::ids::ReplicaId(Arc::from(owner)));
            }
        }
        None
    }

    /// How many attempts each worker runs, by its own account.
    pub fn busy(&self) -> Vec<usize> {
        let of_worker = |index: usize| {
            let lines = truth::read(&account(&self.folder, index)).unwrap_or_default();
            let (began, ended) = lines.iter().fold((0_usize, 0_usize), |(began, ended), line| match line.told {
                Told::Began { .. } => (began + 1, ended),
                Told::Ended { .. } => (began, ended + 1),
                Told::Effect { .. } => (began, ended),
            });
            began.saturating_sub(ended)
        };
        (0..self.workers.len()).map(of_worker).collect()
    }

    /// What each scheduler holds in memory. Workers don't say: what they run is in their accounts.
    pub async fn note_what_is_left(&self) {
        for (index, replica) in self.replicas.iter().enumerate() {
            let said = request(replica.api, "GET", "/api/v1/cluster", &[], None).await.filter(|said| said.status == 200);
            let memory = said.map(|said| said.body["memory"].clone()).filter(|memory| !memory.is_null());
            let partitions = memory.iter().flat_map(|memory| memory["partitions"].as_array().cloned().unwrap_or_default());
            let left = Left::InScheduler {
                is_up: memory.is_some(),
                instances: memory.as_ref().and_then(|memory| memory["instances"].as_u64()).unwrap_or(0) as usize,
                partitions: partitions.filter_map(|number| Some(PartitionId(u16::try_from(number.as_u64()?).ok()?))).collect(),
            };
            self.notes.note(Who::Scheduler(index), What::Left(left));
        }
    }

    /// Waits until all partitions have owners and all workers are connected to all schedulers.
    async fn ready(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let mut owned = 0;
            let mut connected = 0;
            for replica in &self.replicas {
                let Some(said) = request(replica.api, "GET", "/api/v1/cluster", &[], None).await else { continue };
                owned += said.body["memory"]["partitions"].as_array().map_or(0, Vec::len);
                let workers = said.body["workers"].as_array().cloned().unwrap_or_default();
                connected += workers.iter().filter(|worker| worker["connected"] == Value::Bool(true)).count();
            }
            if owned == usize::from(self.plan.shape.partitions) && connected == self.replicas.len() * self.workers.len() {
                return Ok(());
            }
            if began.elapsed() > READY_TIME_MAX {
                bail!("after {READY_TIME_MAX:?} {owned} partitions have owners and {connected} workers are connected");
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Keeps what processes look at as it should be, and starts again what ended unasked.
    fn look_after(self: &Arc<Self>) {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Arc::downgrade(self);
        let mut weather = self.sky.subscribe();
        background.spawn(async move {
            while weather.changed().await.is_ok() {
                let Some(cluster) = cluster.upgrade() else { return };
                if let Err(error) = cluster.put_on_forecasts() {
                    cluster.find(format!("the forecasts can't be written: {error}"));
                }
            }
        });
        let cluster = Arc::downgrade(self);
        background.spawn(async move {
            while let Some(cluster) = cluster.upgrade() {
                if let Err(error) = cluster.put_on_clocks(cluster.origin.at_ms()) {
                    cluster.find(format!("the clocks can't be set: {error}"));
                }
                drop(cluster);
                sleep(CLOCK_INTERVAL).await;
            }
        });
        let cluster = Arc::downgrade(self);
        background.spawn(async move {
            while let Some(cluster) = cluster.upgrade() {
                for node in cluster.nodes() {
                    match node.look_after() {
                        Ok(None) => {}
                        Ok(Some(code)) => {
                            let (who, at, log) = (node.who, cluster.origin.at_ms(), node.log().display());
                            cluster.find(format!("{who:?} ended by itself with {code} at {at} ms; see {log}"));
                        }
                        Err(problem) => cluster.find(format!("{:?} can't be started again: {problem}", node.who)),
                    }
                }
                drop(cluster);
                sleep(LOOK_AGAIN).await;
            }
        });
    }

    fn put_on_forecasts(&self) -> anyhow::Result<()> {
        let weather = self.sky.borrow().clone();
        for index in 0..self.workers.len() {
            put(&self.folder.join(format!("forecast-{index}.json")), &serde_json::to_string(&weather.forecast(index))?)?;
        }
        Ok(())
    }

    fn put_on_clocks(&self, at_ms: u64) -> anyhow::Result<()> {
        if self.clocks.is_err() {
            return Ok(());
        }
        let weather = self.sky.borrow().clone();
        for node in self.nodes() {
            let ahead_ms = weather.node(node.who).ahead_ms(at_ms);
            let text = format!("{}{}.{:03}\n", if ahead_ms < 0 { '-' } else { '+' }, ahead_ms.abs() / 1_000, ahead_ms.abs() % 1_000);
            let path = clock_of(&self.folder, node.who);
            if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                put(&path, &text)?;
            }
        }
        Ok(())
    }

    /// Ends everything that was started here but the database.
    pub fn end(&self) {
        self.nodes().for_each(|node| node.kill());
        self.background.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// What nodes are made from.
struct Making<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    folder: &'a Path,
    notes: &'a Notes,
    sky: &'a Sky,
    clocks: &'a Result<PathBuf, String>,
    background: JoinSet<()>,
}

impl Making<'_> {
    /// A scheduler, and where workers reach it.
    async fn replica(&mut self, index: usize, pids: &Pids) -> anyhow::Result<(Replica, String)> {
        let (api, workers) = (free_port(), free_port());
        let database = self.proxy(Link::Database { scheduler: index }, &format!("database {index}")).await?;
        let link = Link::Workers { scheduler: index, port: workers, pids: pids.clone() };
        let address = format!("127.0.0.1:{}", self.proxy(link, &format!("workers {index}")).await?);
        let mut arguments = ["server", "--listen", &format!("127.0.0.1:{api}"), "--listen-workers", &format!("127.0.0.1:{workers}")]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(["--advertise", &address, "--name", &format!("s{}", index + 1)].map(str::to_owned));
        let url = plain(&format!("mysql://punctual:private@127.0.0.1:{database}/chaos"));
        let mut environment = vec![("PUNCTUAL_DATABASE".to_owned(), url)];
        if self.plan.knobs.wake_ups {
            let redis = self.proxy(Link::Redis { scheduler: index }, &format!("redis {index}")).await?;
            environment.push(("PUNCTUAL_REDIS".to_owned(), format!("redis://127.0.0.1:{redis}/")));
        }
        let who = Who::Scheduler(index);
        environment.extend(self.clock(who));
        let log = self.folder.join(format!("scheduler-{index}.log"));
        let command = Command { program: self.programs.punctual.clone(), arguments, environment, log };
        Ok((Replica { node: Arc::new(Node::new(who, command, self.notes.clone(), None)), api }, address))
    }

    fn worker(&self, index: usize, addresses: &[String], pids: &Pids) -> anyhow::Result<Arc<Node>> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut arguments = vec!["worker".to_owned(), "--name".to_owned(), format!("w{}", index + 1)];
        arguments.extend(["--life", "LIFE", "--slots", &self.plan.shape.slots.to_string()].map(str::to_owned));
        arguments.extend(["--plan", &file("plan.json"), "--forecast", &file(&format!("forecast-{index}.json"))].map(str::to_owned));
        arguments.extend(["--account".to_owned(), account(self.folder, index).display().to_string()]);
        arguments.extend(addresses.iter().flat_map(|address| ["--server".to_owned(), address.clone()]));
        let (who, log) = (Who::Worker(index), self.folder.join(format!("worker-{index}.log")));
        let command = Command { program: self.programs.chaos.clone(), arguments, environment: self.clock(who), log };
        Ok(Arc::new(Node::new(who, command, self.notes.clone(), Some(pids.clone()))))
    }

    /// A proxy; its port.
    async fn proxy(&mut self, link: Link, name: &str) -> anyhow::Result<u16> {
        let listener = proxy::listener().await?;
        let port = listener.local_addr()?.port();
        let (draw, weather) = (Draw::new(self.plan.seed, &format!("chaos {name}")), self.sky.subscribe());
        self.background.spawn(async move { drop(proxy::serve(listener, link, draw, weather).await) });
        Ok(port)
    }

    /// What makes a process's wall clock another one's: only where the plan wants that, since it costs a file read each time.
    fn clock(&self, who: Who) -> Vec<(String, String)> {
        let Ok(library) = self.clocks else { return Vec::new() };
        let settings = [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", clock_of(self.folder, who).display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

/// Where a worker's handlers tell what they do.
pub fn account(folder: &Path, worker: usize) -> PathBuf {
    folder.join(format!("account-{worker}.jsonl"))
}

fn clock_of(folder: &Path, who: Who) -> PathBuf {
    let name = match who {
        Who::Scheduler(index) => format!("clock-scheduler-{index}"),
        Who::Worker(index) => format!("clock-worker-{index}"),
        Who::World | Who::Database | Who::Client => "clock".to_owned(),
    };
    folder.join(name)
}

/// The library that makes clocks run wrong; or why there is none.
fn faketime(plan: &Plan) -> Result<PathBuf, String> {
    let is_wanted = |kind| matches!(kind, FaultKind::ClockStep { .. } | FaultKind::ClockDrift { .. });
    if !plan.faults.iter().any(|fault| is_wanted(fault.kind)) {
        return Err("no fault of the plan sets one".to_owned());
    }
    let found = FAKETIME.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| "there is no libfaketime; it comes with Debian's faketime".to_owned())
}

fn migrate(punctual: &Path, url: &str, partitions: u16) -> anyhow::Result<()> {
    let mut command = Once::new(punctual);
    command.args(["migrate", "--partitions", &partitions.to_string()]).env("PUNCTUAL_DATABASE", url);
    let ran = command.output().with_context(|| format!("{} can't be run", punctual.display()))?;
    if !ran.status.success() {
        bail!("punctual migrate: {}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    }
    Ok(())
}

/// Puts a whole file in place of what is there.
fn put(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}
