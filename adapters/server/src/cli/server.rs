//! `punctual server`: one scheduler replica of a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::ReplicaId;
use punctual_core::limits;
use punctual_core::scheduler::Config;
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::logs::{KEEP_DAYS_DEFAULT, KEEP_DAYS_MAX};
use punctual_driver::ports::{Catalog, Clock, ReplicaView, Signals, Store, StoreError, Wake};
use punctual_grpc::{ServerOptions, ServerTls, Timing, Tokens};
use punctual_signals::{Address, LocalSignals, RedisSignals, State};
use punctual_spec::zones::Zones;
use punctual_store::{MySqlOptions, MySqlStore};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::Exit;
use super::oidc::OidcArgs;
use super::output::Output;
use super::reach::{self, ReachArgs};
use crate::api::listener;
use crate::api::{self, Api};
use crate::feed::Feed;
use crate::logs::Logs;
use crate::printer::Printer;
use crate::sign_in::access::Access;
use crate::{open, tokens, upkeep};

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The database: mysql://user:password@host:port/name
    #[arg(long, env = "PUNCTUAL_DATABASE", hide_env_values = true, value_name = "URL")]
    database: String,
    /// Redis, for quicker wake-ups between replicas; without it they look every half second
    #[arg(long, env = "PUNCTUAL_REDIS", hide_env_values = true, value_name = "URL")]
    redis: Option<Address>,
    /// What this cluster is called on a Redis that others use as well
    #[arg(long, default_value = "punctual", value_name = "NAME")]
    cluster: String,
    /// What this replica is called; each start adds something that tells it from the one before
    #[arg(long, value_name = "NAME", value_parser = super::node_name)]
    name: Option<String>,
    /// Where the API listens, port 0 for a free one; beyond this machine only with TLS before it
    #[arg(long, default_value = "127.0.0.1:8650", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    oidc: OidcArgs,
    /// Where workers connect; beyond loopback only with tokens
    #[arg(long, default_value = "127.0.0.1:8651", value_name = "ADDRESS")]
    listen_workers: SocketAddr,
    /// Where workers reach this replica, as they see it; left out, it is where it listens
    #[arg(long, value_name = "HOST:PORT", value_parser = super::host_and_port)]
    advertise: Option<String>,
    /// The file with the workers' tokens: a line for each, and behind it the workers that may show it
    #[arg(long, value_name = "FILE")]
    worker_tokens: Option<PathBuf>,
    /// The certificate that workers are shown, with its chain, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Drop the history of months that ended so many months ago; left out, it is kept for ever
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_200))]
    keep_months: Option<u32>,
    /// Keep the lines that attempts log for so many days, today among them
    #[arg(long, default_value_t = KEEP_DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(KEEP_DAYS_MAX)), value_name = "DAYS")]
    keep_log_days: u32,
    /// Print nothing about what happens
    #[arg(long)]
    quiet: bool,
}

/// How often a database that can't be reached is tried again at the start.
const REACH_AGAIN: Duration = Duration::from_secs(2);
/// How often the addresses of the replicas are read.
const REPLICAS_INTERVAL: Duration = Duration::from_secs(2);
/// How long the hand-over may take. What is not written by then is in the store as it was, and its next owner goes on from there.
const HAND_OVER_TIME_MAX: Duration = Duration::from_secs(15);
/// How long the end waits for a slow terminal.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);

/// Wake-ups as this replica sends them.
enum Wakes {
    Redis(RedisSignals),
    Local(LocalSignals),
}

impl Signals for Wakes {
    fn wake(&self, wake: Wake) {
        match self {
            Wakes::Redis(signals) => signals.wake(wake),
            Wakes::Local(signals) => signals.wake(wake),
        }
    }
}

/// Prints a line, where lines are wanted.
#[derive(Clone)]
struct Say(Option<Printer>);

impl Say {
    fn line(&self, text: impl std::fmt::Display) {
        if let Some(console) = &self.0 {
            console.print(format!("{text}\n"));
        }
    }
}

impl ServerArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let (reach, oidc, tls) = match self.reach.of(self.listen).and_then(|reach| Ok((reach, self.oidc.provider()?, self.reach.tls()?))) {
            Ok(both) => both,
            Err(refusal) => {
                output.remark(refusal);
                return Exit::Refused;
            }
        };
        super::block_on(self.serve(Access::new(reach, oidc), tls), output)
    }

    async fn serve(self, access: Access, tls: Option<Arc<ServerConfig>>) -> anyhow::Result<Exit> {
        let say = Say(if self.quiet { None } else { Some(Printer::start()?) });
        let mut interrupts = super::interrupts()?;
        let api_listener = bound(self.listen, "PUN-311: the API", "--listen")?;
        let worker_listener = bound(self.listen_workers, "PUN-321: the gRPC server for workers", "--listen-workers")?;
        let api_address = api_listener.local_addr()?;
        let advertised = match &self.advertise {
            Some(address) => address.clone(),
            None => worker_listener.local_addr()?.to_string(),
        };
        let clock = Arc::new(SystemClock::new());
        let zones = Arc::new(Zones::load());
        let replica = replica_id(self.name.as_deref(), &*clock);
        let worker_options = self.worker_options(replica.clone())?;

        let mut options = MySqlOptions::new(&self.database, open::decode(&zones));
        options.address = Some(advertised.clone());
        let opened = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(Exit::Done),
            opened = reached(options, &say) => opened?,
        };
        let store = Arc::new(opened);
        for warning in store.warnings().await? {
            say.line(format_args!("! {warning}"));
        }

        let (scheduler, inbound) = mpsc::channel(punctual_driver::scheduler::QUEUE_MAX);
        let signals = Arc::new(self.signals(&scheduler, &say));
        let feed = Arc::new(say.0.clone().map_or_else(Feed::quiet, |console| Feed::of_alerts(store.clone(), console)));
        let (applied, events, trouble, pulse) = (feed.applied(), feed.events(), feed.trouble(), feed.pulse());
        let config = Config {
            replica: replica.clone(),
            partitions: store.partitions(),
            commits_at_once: store.commits_at_once(),
            misfire_threshold: limits::MISFIRE_THRESHOLD,
        };
        let mut scheduling =
            tokio::spawn(punctual_driver::scheduler::run(config, store.clone(), clock.clone(), signals.clone(), feed, inbound));
        let (stop_workers, workers_stop) = oneshot::channel::<()>();
        let (told, replicas) = watch::channel(vec![advertised.clone()]);
        let logs = Logs::start(Arc::new(store.logs()), clock.clone(), self.keep_log_days, Printer::sayer(say.0.clone()));
        let worker_options = ServerOptions { replicas, logs: Some(logs.clone()), ..worker_options };
        let serving_workers = tokio::spawn(punctual_grpc::serve(worker_listener, worker_options, scheduler.clone(), async {
            let _ = workers_stop.await;
        }));
        let looking_after = tokio::spawn(look_after(store.clone(), told, self.keep_months, say.clone()));
        let (scheduler_of_api, partitions) = (scheduler.clone(), store.partitions());
        let access = Arc::new(access);
        let api_address = format!("{}://{api_address}", self.reach.scheme());
        let first_run = reach::first_run_line(&access, &*store, &*clock, &api_address).await?;
        let api = Api {
            store: store.clone(),
            clock,
            signals,
            zones: zones.clone(),
            scheduler: scheduler_of_api,
            applied,
            events,
            partitions,
            trouble,
            access,
            pulse,
            logs,
            checkups: api::one_checkup(),
        };
        let serving_api = tokio::spawn(listener::serve(api_listener, tls, api::router(api)));
        say.line(format_args!(
            "Punctual {}, replica {}, {} partitions, time zones {}\nAPI on {api_address}, workers on {advertised}. Ctrl-C hands over and stops.",
            env!("CARGO_PKG_VERSION"),
            replica.0,
            store.partitions(),
            zones.version()
        ));
        if let Some(line) = first_run {
            say.line(line);
        }

        let mut serving_workers = serving_workers;
        let failed = tokio::select! {
            biased;
            _ = interrupts.recv() => None,
            _ = &mut scheduling => Some(anyhow::anyhow!(
                "PUN-313: the scheduler has met a state that it holds for impossible and has stopped. Start it again: it reads everything anew. \
                 Please report what it said above"
            )),
            ended = &mut serving_workers => Some(match ended {
                Ok(Ok(())) => anyhow::anyhow!("PUN-503: the listener for workers has ended"),
                Ok(Err(error)) => error.into(),
                Err(error) => error.into(),
            }),
        };
        if failed.is_none() {
            say.line("\nHanding over. Ctrl-C again stops at once; others make up for it.");
            hand_over(&scheduler, &mut scheduling, &mut interrupts).await;
        }
        let _ = stop_workers.send(());
        if !serving_workers.is_finished() {
            let _ = tokio::time::timeout(LAST_WORDS_TIME_MAX, serving_workers).await;
        }
        serving_api.abort();
        looking_after.abort();
        store.close().await;
        match failed {
            Some(error) => Err(error),
            None => {
                say.line("Stopped; everything is written down and handed over.");
                if let Some(console) = &say.0 {
                    console.flush(LAST_WORDS_TIME_MAX).await;
                }
                Ok(Exit::Done)
            }
        }
    }

    fn worker_options(&self, replica: ReplicaId) -> anyhow::Result<ServerOptions> {
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(ServerTls { certificate_pem: read(certificate)?, key_pem: read(key)? }),
            _ => None,
        };
        let tokens = self.worker_tokens.as_deref().map_or(Ok(Tokens::Unchecked), tokens::read)?;
        Ok(ServerOptions { tls, tokens, timing: Timing::default(), ..ServerOptions::for_loopback(replica) })
    }

    fn signals(&self, scheduler: &mpsc::Sender<ToSchedulerNode>, say: &Say) -> Wakes {
        let Some(address) = &self.redis else { return Wakes::Local(LocalSignals::new(scheduler.clone())) };
        let signals = RedisSignals::connect(address.clone(), &self.cluster, scheduler.clone());
        tokio::spawn(tell_state(signals.state(), say.clone()));
        Wakes::Redis(signals)
    }
}

/// Says when Redis is gone, and when it is back.
async fn tell_state(mut state: watch::Receiver<State>, say: Say) {
    let mut was_down = false;
    while state.changed().await.is_ok() {
        let now = state.borrow_and_update().clone();
        match now {
            State::Up if was_down => say.line("  Redis is back"),
            State::Down { reason } if !was_down => {
                say.line(format_args!("! {reason}: wake-ups between replicas take up to half a second longer"));
            }
            State::Up | State::Down { .. } => {}
        }
        was_down = *state.borrow() != State::Up;
    }
}

/// Writes everything down and gives all partitions up, unless somebody is in a hurry.
async fn hand_over(scheduler: &mpsc::Sender<ToSchedulerNode>, scheduling: &mut JoinHandle<()>, interrupts: &mut mpsc::Receiver<()>) {
    let _ = scheduler.send(ToSchedulerNode::Shutdown).await;
    tokio::select! {
        biased;
        _ = scheduling => {}
        _ = interrupts.recv() => std::process::exit(130),
        () = tokio::time::sleep(HAND_OVER_TIME_MAX) => {}
    }
}

/// Opens the store, as soon as the database can be reached.
async fn reached(options: MySqlOptions, say: &Say) -> Result<MySqlStore, StoreError> {
    let mut has_said = false;
    loop {
        match MySqlStore::open(options.clone()).await {
            Err(error @ StoreError::Unreachable { .. }) => {
                if !std::mem::replace(&mut has_said, true) {
                    say.line(format_args!("! {error}. It is tried again"));
                }
                tokio::time::sleep(REACH_AGAIN).await;
            }
            answer => return answer,
        }
    }
}

/// Keeps the list of replicas, and the parts of the history.
async fn look_after(store: Arc<MySqlStore>, told: watch::Sender<Vec<String>>, keep_months: Option<u32>, say: Say) {
    let months = &store;
    let history = || async move {
        let made = months.make_months().await;
        // What is old makes room also where nothing new can be made.
        let dropped = match keep_months {
            Some(keep) => months.drop_months(keep).await,
            None => Ok(Vec::new()),
        };
        made.and(dropped)
    };
    // What takes long with the history does not hold the replicas up.
    tokio::join!(upkeep::look_after(upkeep::HISTORY, history, |line| say.line(line)), list_replicas(&store, told));
}

async fn list_replicas(store: &MySqlStore, told: watch::Sender<Vec<String>>) {
    let mut next = tokio::time::interval(REPLICAS_INTERVAL);
    loop {
        next.tick().await;
        // Where that fails, the scheduler has said so.
        if let Ok(views) = store.replicas().await {
            let addresses = alive(&views);
            told.send_if_modified(|known| {
                if *known == addresses {
                    false
                } else {
                    *known = addresses;
                    true
                }
            });
        }
    }
}

/// The addresses of replicas that are alive: that have said so about as lately as the latest.
fn alive(views: &[ReplicaView]) -> Vec<String> {
    let latest = views.iter().map(|view| view.expires_at).max();
    let is_alive = |view: &&ReplicaView| latest.is_some_and(|latest| latest.since(view.expires_at) < limits::PARTITION_LEASE);
    views.iter().filter(is_alive).filter_map(|view| view.address.as_deref().map(str::to_owned)).collect()
}

/// Tells each start from all others: a replica that comes back must not be taken for the one that was paused.
fn replica_id(name: Option<&str>, clock: &impl Clock) -> ReplicaId {
    let name = name.map_or_else(super::host_name, str::to_owned);
    ReplicaId(Arc::from(format!("{name}-{}-{:x}", std::process::id(), clock.now().wall.0)))
}

fn bound(address: SocketAddr, who: &str, flag: &str) -> anyhow::Result<TcpListener> {
    listener::bind(address).map_err(|error| {
        anyhow::anyhow!("{who} can't listen on {address}: {error}. Stop what listens there, or name another address with {flag}")
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| anyhow::anyhow!("PUN-323: {} can't be read: {error}", path.display()))
}
