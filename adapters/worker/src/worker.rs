//! A worker with handlers of its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub use punctual_core::definition::Band;
use punctual_core::ids::{WorkerId, WorkerLife};
use punctual_core::protocol::Assignment;
use punctual_core::routing::WorkerTraits;
pub use punctual_core::routing::{TraitsError, VersionSyntax, WorkerVersion};
use punctual_core::worker::Config;
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToWorkerNode;
use punctual_driver::logs::LogBuffer;
use punctual_driver::ports::{Ended, Executor, Stop};
use punctual_grpc::{ClientOptions, ClientTls, DialError, dial};
use punctual_spec::handler::{COMMAND, HTTP, NOOP};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::handler::{self, Erased};
use crate::{BuiltIn, HandlerError, InternalAddresses, Options, TaskContext};

/// How many attempts a worker runs at once that doesn't say.
const SLOTS_DEFAULT: u32 = 16;

/// What can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A worker is known by its name, over restarts too.
    #[error("PUN-511: the worker has no name. Give it one that no other worker has and that stays the same over restarts")]
    NoName,
    /// There is nothing that it could run.
    #[error("PUN-512: the worker has no handler, or not one slot to run one in")]
    NothingToDo,
    /// Two handlers of one name, or the name of a built-in one.
    #[error("PUN-513: there is a handler {name:?} already. Give each a name of its own")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Tags, version or reserved slots.
    #[error("PUN-514: what the worker says of itself makes no sense: {0}")]
    Traits(#[from] TraitsError),
    /// Slots for the low band and those above it.
    #[error("PUN-514: slots are reserved for the urgent band, or for the normal one and above; what is not reserved is for all bands")]
    ReservedForAll,
    /// Not a version.
    #[error("PUN-515: the worker's version {version:?} is {problem}")]
    Version {
        /// What was given.
        version: String,
        /// What is wrong with it.
        problem: VersionSyntax,
    },
    /// It could not reach a scheduler.
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Makes a [`Worker`].
#[derive(Default)]
pub struct Builder {
    client: ClientOptions,
    name: Option<String>,
    slots: Option<u32>,
    traits: WorkerTraits,
    version: Option<String>,
    reserves_low: bool,
    handlers: BTreeMap<Arc<str>, Erased>,
    taken: Option<String>,
    allow_commands: bool,
    allow_http: bool,
    internal: InternalAddresses,
}

impl Builder {
    /// A scheduler's address, `host:port` or a URL. One is enough, more help while that one is down.
    pub fn server(mut self, address: impl Into<String>) -> Self {
        self.client.seeds.push(address.into());
        self
    }

    /// The worker's token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.client.token = Some(token.into());
        self
    }

    /// How schedulers' certificates are checked.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.client.tls = Some(tls);
        self
    }

    /// The worker's name: no other worker's, and the same over restarts.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How many attempts it runs at once; 16 where it isn't said.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// A tag, for tasks that ask for workers of a kind: `routing: {tags: {zone: eu}}` comes only to those that have `.tag("zone", "eu")`.
    pub fn tag(mut self, key: &str, value: &str) -> Self {
        self.traits.tags.push(Arc::from(format!("{key}={value}")));
        self
    }

    /// The version of the program, for tasks that ask for a [newer one](WorkerVersion::is_at_least) by `min_worker_version`. A worker that says
    /// none is too old for all of those.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Keeps so many of the slots for this band and those above it. For [`Band::Low`] nothing can be kept: what is not reserved is for all, it
    /// included.
    pub fn reserve(mut self, band: Band, slots: u32) -> Self {
        match self.traits.reserved.get_mut(band.index()) {
            Some(reserved) => *reserved = slots,
            None => self.reserves_low = true,
        }
        self
    }

    /// Plays a worker of before that speaks this version of the protocol at the most, for tests of what it is given.
    #[doc(hidden)]
    pub fn speaking_up_to(mut self, newest: u32) -> Self {
        self.client.speaks.newest = newest;
        self
    }

    /// A handler: a function of the attempt and its payload. A payload that it can't be read from fails the attempt for good. What it
    /// returns becomes the attempt's output, as JSON, and its result, which tasks that fire after this one are given: where it has at most
    /// [`RESULT_BYTES_MAX`](punctual_core::limits::RESULT_BYTES_MAX) bytes and is not `null`.
    pub fn handler<P, R, F, H>(mut self, name: &str, handler: H) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Future<Output = Result<R, HandlerError>> + Send + 'static,
        H: Fn(TaskContext, P) -> F + Send + Sync + 'static,
    {
        let is_built_in = [COMMAND, HTTP, NOOP].contains(&name);
        if is_built_in || self.handlers.insert(Arc::from(name), handler::erase(handler)).is_some() {
            self.taken = Some(name.to_owned());
        }
        self
    }

    /// Whether tasks may run commands on this machine, as this process's user. They may not where it isn't said.
    pub fn commands(mut self, are_allowed: bool) -> Self {
        self.allow_commands = are_allowed;
        self
    }

    /// Whether tasks may make HTTP calls from this machine.
    pub fn http(mut self, are_allowed: bool) -> Self {
        self.allow_http = are_allowed;
        self
    }

    /// Which internal addresses HTTP calls may go to: of this machine, of private networks and the like. None where it isn't said.
    pub fn internal_addresses(mut self, allowed: InternalAddresses) -> Self {
        self.internal = allowed;
        self
    }

    /// Checks all of it. Nothing is started yet.
    ///
    /// # Errors
    ///
    /// Where the worker could not work.
    pub fn build(self) -> Result<Worker, BuildError> {
        let name = self.name.filter(|name| !name.is_empty()).ok_or(BuildError::NoName)?;
        if let Some(name) = self.taken {
            return Err(BuildError::NameTaken { name });
        }
        let slots = self.slots.unwrap_or(SLOTS_DEFAULT);
        if slots == 0 || (self.handlers.is_empty() && !self.allow_commands && !self.allow_http) {
            return Err(BuildError::NothingToDo);
        }
        let mut traits = self.traits;
        if let Some(version) = self.version {
            traits.version = Some(WorkerVersion::parse(&version).map_err(|problem| BuildError::Version { version, problem })?);
        }
        if self.reserves_low {
            return Err(BuildError::ReservedForAll);
        }
        traits.check(slots)?;
        // The same checks as when it dials, before anything is started.
        let (node, _inbound) = mpsc::channel(1);
        drop(dial(self.client.clone(), node)?);
        let worker = WorkerId(Arc::from(name));
        let (allow_commands, marker) = (self.allow_commands, worker.0.to_string());
        let logs = LogBuffer::new(worker.clone(), Arc::new(SystemClock::new()));
        let options = Options { allow_commands, worker: worker.clone(), marker, internal: self.internal, logs: Some(logs.clone()) };
        let built_in = (self.allow_commands || self.allow_http).then(|| BuiltIn::new(&options));
        let handlers = Handlers { own: self.handlers, built_in, allow_http: self.allow_http, logs };
        Ok(Worker { client: self.client, worker, slots, traits, handlers: Arc::new(handlers) })
    }
}

/// A worker that dials its schedulers and runs what they assign.
///
/// ```no_run
/// use punctual_worker::{HandlerError, TaskContext, Worker};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let worker = Worker::builder()
///     .server("http://127.0.0.1:8651")
///     .name("w1")
///     .handler("greet", |context: TaskContext, name: String| async move {
///         context.log(format!("attempt {}", context.attempt()));
///         Ok::<_, HandlerError>(format!("hello {name}"))
///     })
///     .build()?;
/// worker.run_until(async { let _ = tokio::signal::ctrl_c().await; }).await?;
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    client: ClientOptions,
    worker: WorkerId,
    slots: u32,
    traits: WorkerTraits,
    handlers: Arc<Handlers>,
}

impl Worker {
    /// Begins one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Works until `shutdown` ends; then takes nothing more, and comes back when what runs has ended and every result is acknowledged.
    /// Dropping the future ends everything at once.
    ///
    /// # Errors
    ///
    /// None that [`build`](Builder::build) would not have found.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), BuildError> {
        let (node, inbound) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
        let client = ClientOptions { logs: Some(self.handlers.logs.clone()), ..self.client };
        let dialling = dial(client, node.clone())?;
        // Another number after each start: schedulers learn by it that what the last life ran is lost.
        let life = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let (life, handlers) = (WorkerLife(life), self.handlers.handlers());
        let config = Config { worker: self.worker, life, slots: self.slots, handlers, traits: self.traits };
        let working = punctual_driver::worker::run(config, self.handlers, Arc::new(SystemClock::new()), inbound);
        let draining = async {
            shutdown.await;
            // Fails only when the node has ended.
            let _ = node.send(ToWorkerNode::Drain).await;
            std::future::pending::<()>().await;
        };
        let working = async {
            tokio::select! {
                biased;
                () = working => {}
                () = draining => {}
            }
        };
        // Dialling ends behind it, once what its attempts have logged last is sent, or can't be.
        tokio::join!(working, dialling);
        Ok(())
    }
}

/// Handlers of its own, and the built-in ones that are allowed.
struct Handlers {
    own: BTreeMap<Arc<str>, Erased>,
    built_in: Option<BuiltIn>,
    allow_http: bool,
    logs: Arc<LogBuffer>,
}

impl Handlers {
    fn of_built_in(&self, name: &str) -> Option<&BuiltIn> {
        self.built_in.as_ref().filter(|_| name != HTTP || self.allow_http)
    }
}

impl Executor for Handlers {
    fn handlers(&self) -> Vec<Arc<str>> {
        let built_in = self.built_in.iter().flat_map(Executor::handlers).filter(|name| self.of_built_in(name).is_some());
        self.own.keys().cloned().chain(built_in).collect()
    }

    fn run(&self, assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static {
        let name = assignment.handler.name.clone();
        let own = self.own.get(&name).cloned();
        let built_in = self.of_built_in(&name).cloned();
        let logs = self.logs.clone();
        async move {
            match (own, built_in) {
                (Some(own), _) => {
                    let log = logs.attempt(&assignment);
                    handler::run(own, assignment, stop, Some(log)).await
                }
                (None, Some(built_in)) => built_in.run(assignment, stop).await,
                (None, None) => crate::failed_for_good(format!(
                    "this worker knows no handler {name:?}. Correct the task, or start a worker that knows it"
                )),
            }
        }
    }
}
