//! The worker's side: a connection to every replica.
//!
//! Each address has a task of its own (`replica`), which dials it again for as long as it is worth it. Seeds always are. Others are while
//! a replica that is connected lists them, or while they are connected; where nobody is connected nobody knows better, and all stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_driver::link::ToWorkerNode;
use punctual_driver::logs::{FLUSH_TIME_MAX, LogBuffer};
use punctual_proto::version::Versions;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tonic::transport::{Certificate, ClientTlsConfig};

use crate::address::Address;
use crate::limits::{REPLICAS_MAX, TOKEN_BYTES_MAX, Timing};
use crate::replica::{self, Common, News};
use crate::tokens;

/// The number before the first connection's.
const CONNECTIONS_BEHIND: u64 = (1 << 32) - 1;
/// News of replicas that may wait.
const NEWS_MAX: usize = 64;

/// Is told how it stands with an address, whenever that changes: not once more for each try that fails in the same way. Must not block.
pub type LinkWatcher = dyn Fn(&str, &LinkState) + Send + Sync;

/// How it stands with the replica behind an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// There is a stream.
    Connected,
    /// There is none, for this reason. It is dialled again.
    Disconnected {
        /// In words.
        reason: String,
    },
    /// It leads to a replica to which there is a stream by way of another address.
    SameReplica {
        /// The replica's id.
        replica: String,
    },
    /// It is no longer listed and can't be reached: it is not dialled again.
    Dropped,
}

/// What a worker needs to be told to find its schedulers.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// Where to begin: `host:port`, or URLs with http or https. One that is up is enough, the others are learned from it.
    pub seeds: Vec<String>,
    /// How to check replicas; where it is set, addresses without a scheme are https, and no learned one is dialled in the clear. `None`:
    /// those without a scheme are http, and https goes by the system's roots.
    pub tls: Option<ClientTls>,
    /// The worker's token.
    pub token: Option<String>,
    /// How patient it is.
    pub timing: Timing,
    /// Is told of changes, which are also logged.
    pub watcher: Option<Arc<LinkWatcher>>,
    /// Lines of attempts that are to be sent to some replica.
    pub logs: Option<Arc<LogBuffer>>,
    /// The versions of the protocol that it speaks; fewer than this crate does only where an older worker is to be played.
    pub speaks: Versions,
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions").field("seeds", &self.seeds).field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// How a replica's certificate is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The roots, in PEM. `None`: the system's.
    pub roots_pem: Option<Vec<u8>>,
    /// The name that certificates have to have. `None`: the host that was dialled.
    pub domain: Option<String>,
}

impl ClientTls {
    pub(crate) fn config(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new();
        let config = match &self.roots_pem {
            Some(roots) => config.ca_certificate(Certificate::from_pem(roots)),
            None => config.with_native_roots(),
        };
        match &self.domain {
            Some(domain) => config.domain_name(domain),
            None => config,
        }
    }
}

/// Options that can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// There is nowhere to begin.
    #[error("PUN-504: no scheduler is named. Give the address of one, such as 127.0.0.1:8651")]
    NoSeed,
    /// A seed that is no address.
    #[error("PUN-505: {seed:?} is not the address of a scheduler: {reason}. Write it as host:port or https://host:port")]
    Seed {
        /// The seed.
        seed: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A token that can't be sent.
    #[error("PUN-506: the worker's token is empty, too long (at most {TOKEN_BYTES_MAX} bytes) or has characters that can't be sent")]
    Token,
}

/// Keeps a worker node connected to every replica, until the node has ended. Dropping the future ends all connections.
///
/// # Errors
///
/// At once, where the options can't work. Whatever else goes wrong may pass: it is told to the watcher and tried again.
pub fn dial(options: ClientOptions, node: mpsc::Sender<ToWorkerNode>) -> Result<impl Future<Output = ()> + Send + 'static, DialError> {
    let with_tls = options.tls.is_some();
    let read = |seed: &String| Address::parse(seed, with_tls).map_err(|reason| DialError::Seed { seed: seed.clone(), reason });
    let seeds = options.seeds.iter().map(read).collect::<Result<BTreeSet<_>, _>>()?;
    if seeds.is_empty() {
        return Err(DialError::NoSeed);
    }
    let token = match &options.token {
        Some(token) => Some(tokens::metadata_of(token).ok_or(DialError::Token)?),
        None => None,
    };
    let (news, has_news) = mpsc::channel(NEWS_MAX);
    let (freed, _) = watch::channel(());
    let last_connection = AtomicU64::new(CONNECTIONS_BEHIND);
    let common =
        Arc::new(Common { options, token, node, news, last_connection, reached: Mutex::default(), freed, shipping: Default::default() });
    Ok(Dialler { common, known: BTreeMap::new(), tasks: JoinSet::new() }.run(seeds, has_news))
}

/// Who is dialled.
struct Dialler {
    common: Arc<Common>,
    known: BTreeMap<Address, Known>,
    tasks: JoinSet<()>,
}

struct Known {
    task: AbortHandle,
    is_seed: bool,
    is_connected: bool,
    /// When it went, if it was ever connected.
    lost_at: Option<Instant>,
    /// The replicas that it listed last, while it is connected.
    lists: BTreeSet<Address>,
}

impl Dialler {
    async fn run(mut self, seeds: BTreeSet<Address>, mut has_news: mpsc::Receiver<News>) {
        for seed in seeds {
            self.begin(seed, true);
        }
        let node = self.common.node.clone();
        let mut settles = tokio::time::interval(self.common.options.timing.redial_eager_for);
        loop {
            tokio::select! {
                biased;
                () = node.closed() => {
                    if let Some(logs) = &self.common.options.logs {
                        let _ = timeout(Duration::from_millis(FLUSH_TIME_MAX.0), logs.emptied()).await;
                    }
                    return;
                }
                news = has_news.recv() => match news {
                    Some(news) => self.take(news),
                    None => return,
                },
                // Tasks end only when they are dropped from here.
                Some(_) = self.tasks.join_next() => {}
                _ = settles.tick() => self.settle(),
            }
        }
    }

    fn begin(&mut self, address: Address, is_seed: bool) {
        let task = self.tasks.spawn(replica::keep(self.common.clone(), address.clone()));
        self.known.insert(address, Known { task, is_seed, is_connected: false, lost_at: None, lists: BTreeSet::new() });
    }

    fn take(&mut self, news: News) {
        match news {
            News::Listed { by, addresses } => {
                let lists = addresses.iter().take(REPLICAS_MAX).filter_map(|address| self.common.learn(address)).collect();
                let Some(known) = self.known.get_mut(&by) else { return };
                known.is_connected = true;
                known.lists = lists;
            }
            News::Disconnected { from } => {
                let Some(known) = self.known.get_mut(&from) else { return };
                if std::mem::take(&mut known.is_connected) {
                    known.lost_at = Some(Instant::now());
                }
                known.lists.clear();
            }
        }
        self.settle();
    }

    /// Begins with who is new, and drops who is neither listed nor connected, nor was lately.
    fn settle(&mut self) {
        let listed: BTreeSet<Address> = self.known.values().flat_map(|known| known.lists.iter().cloned()).collect();
        if self.known.values().any(|known| known.is_connected) {
            let common = &self.common;
            let forgets_after = common.options.timing.redial_eager_for;
            self.known.retain(|address, known| {
                let may_be_back = known.lost_at.is_some_and(|lost_at| lost_at.elapsed() < forgets_after);
                let stays = known.is_seed || known.is_connected || may_be_back || listed.contains(address);
                if !stays {
                    known.task.abort();
                    common.tell(address, &LinkState::Dropped);
                }
                stays
            });
        }
        for address in listed {
            if self.known.len() < REPLICAS_MAX && !self.known.contains_key(&address) {
                self.begin(address, false);
            }
        }
    }
}
