//! Workers of Punctual.
//!
//! [`Worker`] runs your own handlers: name them, give it the address of a scheduler, and let it run. [`testing`] runs a handler with no
//! scheduler at all. With one of the features `once-mysql`, `once-postgres`, `once-sqlite` and `once-redis` there is `once`, for effects in
//! a database that happen once an instance.
//!
//! # The built-in handlers
//!
//! Programs, HTTP calls, and nothing at all for measurements.
//!
//! [`BuiltIn`] is the [`Executor`] of a worker that needs no code of its own. It runs one attempt at a time to its end; when to start
//! one, when to end one and what becomes of its report is decided elsewhere.
//!
//! What each end means:
//!
//! | end | `command` | `http` |
//! | --- | --- | --- |
//! | succeeded | ended by itself, and the exit code is one of `success_codes` | the status is one of `success_statuses` |
//! | failed | another exit code; a signal that nobody here sent; not started because the machine is short of something | another status; no answer, or half of one |
//! | failed for good | not to be started: no such program, user or working directory, not executable, commands not allowed, configuration not readable | malformed URL, header or configuration; an internal address that is not allowed |
//! | cancelled | asked to end, and then ended, whatever its exit code | asked to end: the call is broken off at once |
//!
//! The code is the program's exit code or the answer's status. A program that a signal killed has no exit code, and the report has none
//! either, not 128 and something, which a program may also exit with; the detail names the signal.
//!
//! A command that is asked to end gets SIGTERM, one that is to end now gets SIGKILL: with it its whole process group, for which the
//! command's end is the end too. Processes that made a session or group of their own (`setsid`, a shell's job control) are out of reach of
//! both. Should this process itself be killed, [`end_orphans`] finds what it left.
//!
//! Output is captured up to [`OUTPUT_BYTES_MAX`](punctual_core::limits::OUTPUT_BYTES_MAX): of a command, which can't be stopped from
//! writing, the beginning and the end; of an answer the beginning, after which the connection is closed and, where the length was not
//! announced, only what had come is counted as dropped.
//!
//! An attempt that succeeds may have a result, which is kept with its instance and handed to those that come after it: what a command wrote
//! into the file that `PUNCTUAL_RESULT` names, an answer in JSON, what a handler of your own returns; at most
//! [`RESULT_BYTES_MAX`](punctual_core::limits::RESULT_BYTES_MAX) bytes.

#![forbid(unsafe_code)]

mod command;
mod handler;
mod http;
mod http_date;
mod internal;
mod items;
mod noop;
#[cfg(any(feature = "once-mysql", feature = "once-postgres", feature = "once-redis", feature = "once-sqlite"))]
pub mod once;
pub mod orphans;
pub mod output;
#[cfg(target_os = "linux")]
mod proc;
mod process;
mod result_file;
mod task_context;
pub mod testing;
mod user;
mod worker;

use std::future::Future;
use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::WorkerId;
use punctual_core::protocol::{Assignment, End};
use punctual_driver::logs::LogBuffer;
use punctual_driver::ports::{Ended, Executor, Stop};
use punctual_spec::handler::{COMMAND, HTTP, NOOP};
use tokio::sync::watch;

pub use handler::HandlerError;
pub use http::{CONNECT_TIME_MAX, REDIRECTS_MAX};
pub use internal::InternalAddresses;
pub use orphans::{Orphan, end_orphans};
pub use output::cut_detail;
pub use punctual_core::protocol::Shard;
pub use punctual_driver::logs::Level;
pub use task_context::TaskContext;
pub use worker::{Band, BuildError, Builder, TraitsError, VersionSyntax, Worker, WorkerVersion};

/// What [`BuiltIn`] needs to be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether commands may be run. Where not, the handler isn't announced, and an assignment that comes all the same fails for good.
    pub allow_commands: bool,
    /// The worker's id; commands get it as `PUNCTUAL_WORKER`.
    pub worker: WorkerId,
    /// Stands in the environment of every command, for [`end_orphans`] to find it by. The same for each life of this worker and for no
    /// other worker on this machine, such as the path of its database.
    pub marker: String,
    /// Which internal addresses HTTP calls may go to.
    pub internal: InternalAddresses,
    /// Where the lines go that commands write, as they write them. `None`: nowhere; their output is kept all the same.
    pub logs: Option<Arc<LogBuffer>>,
}

/// Runs the built-in handlers: `command` where allowed, `http` and `noop`.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    world: Arc<World>,
}

#[derive(Debug)]
struct World {
    /// `None`: not allowed.
    command: Option<command::CommandWorld>,
    http: http::HttpWorld,
    logs: Option<Arc<LogBuffer>>,
}

impl BuiltIn {
    /// Makes one. It starts nothing.
    pub fn new(options: &Options) -> Self {
        let command = options.allow_commands.then(|| command::CommandWorld::new(&options.worker.0, &options.marker));
        BuiltIn { world: Arc::new(World { command, http: http::HttpWorld::new(options.internal.clone()), logs: options.logs.clone() }) }
    }
}

impl Executor for BuiltIn {
    fn handlers(&self) -> Vec<Arc<str>> {
        let command = self.world.command.as_ref().map(|_| COMMAND);
        command.into_iter().chain([HTTP, NOOP]).map(Arc::from).collect()
    }

    fn run(&self, assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static {
        let world = self.world.clone();
        async move {
            if *stop.borrow() != Stop::No {
                return stopped_before_start();
            }
            match (&*assignment.handler.name, &world.command) {
                (COMMAND, Some(command)) => {
                    let log = world.logs.as_ref().map(|logs| logs.attempt(&assignment));
                    command::run(command, &assignment, stop, log).await
                }
                (COMMAND, None) => failed_for_good(
                    "this worker was not started to run commands. Start it with commands allowed, or send the task elsewhere",
                ),
                (HTTP, _) => http::run(&world.http, &assignment, stop).await,
                (NOOP, _) => noop::run(),
                (name, _) => {
                    failed_for_good(format!("this worker knows no handler {name:?}. Correct the task, or start a worker that knows it"))
                }
            }
        }
    }
}

fn ended(end: End, detail: &str) -> Ended {
    Ended { end, code: None, detail: Some(cut_detail(detail)), output: Output::default(), result: None, items: None, retry_after: None }
}

fn failed(detail: impl AsRef<str>) -> Ended {
    ended(End::Failed, detail.as_ref())
}

fn failed_for_good(detail: impl AsRef<str>) -> Ended {
    ended(End::FailedForGood, detail.as_ref())
}

fn stopped_before_start() -> Ended {
    ended(End::Cancelled, "asked to end before it had started")
}
