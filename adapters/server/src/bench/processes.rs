//! A replica and a worker as processes of their own, as people run them: `punctual server` and a worker that writes down what begins.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::{WorkerId, WorkerLife};
use punctual_core::worker::Config;
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToWorkerNode;
use punctual_driver::ports::{Catalog, Clock, Executor, Signals, Store, Wake};
use punctual_grpc::{ClientOptions, dial};
use punctual_signals::{Address, RedisSignals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::record::{Counter, Recorder};
use super::report::rss_bytes_max;
use crate::cli::client::{ApiArgs, Client};

/// How often the ended instances are counted.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);
/// How long the replica may take to read millions of tasks.
const LOAD_TIME_MAX: Duration = Duration::from_secs(300);
/// How long a process may take to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// The two processes, running.
pub(crate) struct Processes {
    server: Child,
    worker: Child,
    client: Arc<Client>,
    records: PathBuf,
    /// To say that something has come into the inbox.
    signals: Option<RedisSignals>,
    counting: tokio::task::JoinHandle<()>,
}

impl Processes {
    /// Starts both on the database. What is counted from now on is what the store says.
    pub(crate) async fn start<S: Store + Catalog>(
        database: &str,
        redis: Option<&str>,
        slots: u32,
        folder: &Path,
        store: Arc<S>,
        counter: Arc<Counter>,
    ) -> anyhow::Result<Processes> {
        let program = std::env::current_exe()?;
        let (api, workers) = (free_address().await?, free_address().await?);
        let mut server = Command::new(&program);
        server.args(["server", "--quiet", "--name", "bench", "--listen", &api.to_string(), "--listen-workers", &workers.to_string()]);
        server.env("PUNCTUAL_DATABASE", database).stdin(Stdio::null()).kill_on_drop(true);
        if let Some(redis) = redis {
            server.env("PUNCTUAL_REDIS", redis);
        }
        let server = server.spawn()?;
        let records = folder.join("begun");
        let mut worker = Command::new(&program);
        worker.args(["bench", "--worker-of", &workers.to_string(), "--slots", &slots.to_string(), "--records"]).arg(&records);
        // Its command line takes neither.
        worker.env_remove("PUNCTUAL_DATABASE").env_remove("PUNCTUAL_REDIS");
        let worker = worker.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        // A wake-up of this process's own concerns nobody here.
        let signals =
            redis.map(|redis| anyhow::Ok(RedisSignals::connect(redis.parse::<Address>()?, "punctual", mpsc::channel(1).0))).transpose()?;
        let counting = tokio::spawn(count(store.clone(), counter));
        let client = Arc::new(Client::new(&ApiArgs { api: Some(format!("http://{api}")), json: true, ..ApiArgs::default() }));
        let partitions = store.partitions();
        let processes = Processes { server, worker, client, records, signals, counting };
        processes.wait_until_ready(usize::from(partitions)).await?;
        Ok(processes)
    }

    /// Something has come into the inbox.
    pub(crate) fn wake(&self) {
        if let Some(signals) = &self.signals {
            signals.wake(Wake::Inbox);
        }
    }

    /// The replica's API.
    pub(crate) fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    /// Waits until the replica has read everything, and has its worker.
    async fn wait_until_ready(&self, partitions: usize) -> anyhow::Result<()> {
        let client = &self.client;
        let is_ready = async {
            loop {
                if let Ok(cluster) = client.get(&["cluster"], &[]).await
                    && cluster["workers"].as_array().is_some_and(|workers| workers.iter().any(|worker| worker["connected"] == json!(true)))
                    && cluster["memory"]["partitions"].as_array().is_some_and(|owned| owned.len() == partitions)
                {
                    return;
                }
                tokio::time::sleep(COUNT_INTERVAL).await;
            }
        };
        tokio::time::timeout(LOAD_TIME_MAX, is_ready)
            .await
            .map_err(|_| anyhow::anyhow!("the replica is not ready, or has no worker, after {} s", LOAD_TIME_MAX.as_secs()))
    }

    /// Stops both in good order. Answers with the largest resident memory of the replica.
    pub(crate) async fn stop(mut self, recorder: &Recorder) -> anyhow::Result<u64> {
        let rss_bytes_max = self.server.id().map_or(0, rss_bytes_max);
        self.counting.abort();
        for child in [&mut self.worker, &mut self.server] {
            if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                kill_process(pid, Signal::TERM)?;
            }
            let status = tokio::time::timeout(STOP_TIME_MAX, child.wait()).await??;
            anyhow::ensure!(status.success(), "a process of the bench failed: {status}");
        }
        recorder.read(&self.records)?;
        Ok(rss_bytes_max)
    }
}

/// Triggers a task over the API; answers with the number of its inbox entry.
pub(crate) async fn trigger(client: &Client, task: &str) -> anyhow::Result<u64> {
    let answer: Value = client.post(&["tasks", task, "trigger"], None, &json!({})).await?;
    let entry = answer["submission"].as_str().and_then(|entry| entry.parse().ok());
    entry.ok_or_else(|| anyhow::anyhow!("the trigger of {task} was answered with {answer}"))
}

async fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

async fn count<S: Catalog>(store: Arc<S>, counter: Arc<Counter>) {
    loop {
        if let Ok(counts) = store.counts().await {
            counter.ended(counts.iter().filter(|(state, _)| state.is_terminal()).map(|(_, count)| count).sum());
        }
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

/// What `punctual bench --worker-of` does: runs the no-op handler until it is told to stop, then writes down what began and when.
pub(crate) async fn work(server: String, slots: u32, records: &Path, mut interrupts: mpsc::Receiver<()>) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock::new());
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let life = WorkerLife(clock.now().wall.0.unsigned_abs());
    let config = Config { worker: WorkerId(Arc::from("bench")), life, slots, handlers: recorder.handlers(), traits: Default::default() };
    let (node, inbound) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
    let dialling = tokio::spawn(dial(ClientOptions { seeds: vec![server], ..ClientOptions::default() }, node.clone())?);
    let running = tokio::spawn(punctual_driver::worker::run(config, recorder.clone(), clock, inbound));
    interrupts.recv().await;
    let _ = node.send(ToWorkerNode::Drain).await;
    running.await?;
    dialling.abort();
    recorder.write(records)
}
