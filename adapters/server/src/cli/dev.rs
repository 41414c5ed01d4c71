//! `punctual dev`: everything in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::{InboxId, PartitionId, WorkerId};
use punctual_core::inbox::{InboxEntry, Request};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_driver::clock::SystemClock;
use punctual_driver::logs::{FLUSH_TIME_MAX, KEEP_DAYS_DEFAULT, KEEP_DAYS_MAX, LogBuffer, buffer};
use punctual_driver::ports::{Applied, Applying, Catalog, Clock, Store, TaskDocument};
use punctual_signals::LocalSignals;
use punctual_spec::file::{FileTask, TaskFile};
use punctual_spec::zones::Zones;
use punctual_store::SqliteLogs;
use punctual_worker::{BuiltIn, InternalAddresses, Options};
use rustls::ServerConfig;
use tokio::sync::{mpsc, watch};

use super::Exit;
use super::internal::InternalArgs;
use super::oidc::OidcArgs;
use super::output::Output;
use super::reach::{self, ReachArgs};
use crate::api::listener;
use crate::api::{self, Api};
use crate::embedded::Embedded;
use crate::feed::Feed;
use crate::logs::Logs;
use crate::open;
use crate::printer::Printer;
use crate::sign_in::access::Access;

#[derive(clap::Args, Debug)]
pub(crate) struct DevArgs {
    /// The task file
    file: PathBuf,
    /// The database file; made where it is missing
    #[arg(long, default_value = "punctual.db", value_name = "FILE")]
    db: PathBuf,
    /// Where the API listens, port 0 for a free one; beyond this machine only with TLS before it
    #[arg(long, default_value = "127.0.0.1:8650", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    oidc: OidcArgs,
    /// Attempts that run at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    slots: u32,
    #[command(flatten)]
    internal: InternalArgs,
    /// Keep the lines that attempts log for so many days, today among them
    #[arg(long, default_value_t = KEEP_DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(KEEP_DAYS_MAX)), value_name = "DAYS")]
    keep_log_days: u32,
    /// Remove tasks of the database's that were applied from files and are not in this one; without this they are left, and named
    #[arg(long)]
    remove: bool,
    /// Print nothing about what happens
    #[arg(long)]
    quiet: bool,
}

/// From the stop signal to the kill of what an earlier run has left behind.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// How long the start waits for the scheduler to take the file's tasks over.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(10);
/// So many tasks are named.
const NAMES_SHOWN: usize = 20;
/// How long the end waits for a slow terminal.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);

impl DevArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let (reach, oidc, tls) = match self.reach.of(self.listen).and_then(|reach| Ok((reach, self.oidc.provider()?, self.reach.tls()?))) {
            Ok(both) => both,
            Err(refusal) => {
                output.remark(refusal);
                return Exit::Refused;
            }
        };
        let zones = Arc::new(Zones::load());
        match punctual_spec::file::read_file(&self.file, &zones) {
            Ok(file) => super::block_on(self.serve(&file, zones, (Access::new(reach, oidc), tls)), output),
            Err(problems) => {
                output.remark(problems);
                Exit::Refused
            }
        }
    }

    /// Applies the file, but for tasks that others have taken over since: those, of which source, come second.
    async fn apply<S: Catalog>(&self, store: &S, file: &TaskFile, now: Timestamp) -> anyhow::Result<(Applied, Vec<(Arc<str>, Arc<str>)>)> {
        let document = |task: &FileTask| TaskDocument { definition: task.definition.clone(), document: Arc::from(task.spec.to_json()) };
        let mut documents: Vec<_> = file.tasks.iter().map(document).collect();
        let by: Arc<str> = Arc::from(format!("file {}", self.file.display()));
        let how = Applying { expected: None, remove: self.remove, take_over: false, dry_run: false };
        let mut others = Vec::new();
        loop {
            let asked = store.apply_to(Arc::from("file"), how, by.clone().into(), documents.clone(), now).await?;
            let applied = asked.map_err(|_| anyhow::anyhow!("the tasks were changed meanwhile; start it again"))?;
            if applied.taken.is_empty() || !applied.refused.is_empty() {
                return Ok((applied, others));
            }
            documents.retain(|document| applied.taken.iter().all(|(name, _)| *name != document.definition.name));
            others.extend(applied.taken);
        }
    }

    async fn serve(&self, file: &TaskFile, zones: Arc<Zones>, (access, tls): (Access, Option<Arc<ServerConfig>>)) -> anyhow::Result<Exit> {
        let said = if self.quiet { None } else { Some(Printer::start()?) };
        let say = |text: &str| {
            if let Some(console) = &said {
                console.print(format!("{text}\n"))
            }
        };
        let listener = listener::bind(self.listen).map_err(|error| {
            anyhow::anyhow!(
                "PUN-311: the API can't listen on {}: {error}. Stop what listens there, or name another address with --listen",
                self.listen
            )
        })?;
        let address = listener.local_addr()?;
        let store = Arc::new(open::store(&self.db, &zones)?);
        let clock = Arc::new(SystemClock::new());
        let marker = marker(&self.db);
        end_orphans(&marker, say).await;

        let (applied, others) = self.apply(&*store, file, clock.now().wall).await?;
        if !applied.refused.is_empty() {
            anyhow::bail!("{}", api::describe_chains(&applied.refused));
        }
        say(&format!("Punctual {}, time zones {}, database {}", env!("CARGO_PKG_VERSION"), zones.version(), self.db.display()));
        say(&describe(&applied, &others, &self.file));

        let feed = Arc::new(said.clone().map_or_else(Feed::quiet, |console| Feed::printing(store.clone(), console)));
        let (commits, applied) = (feed.commits(), feed.applied());
        let (events, trouble, pulse) = (feed.events(), feed.trouble(), feed.pulse());
        // What runs here is this machine's own.
        let internal = self.internal.clone().or(InternalAddresses::loopback());
        let worker = WorkerId(Arc::from("local"));
        let written = LogBuffer::new(worker.clone(), clock.clone());
        let logs = Logs::start(Arc::new(SqliteLogs::beside(&self.db)), clock.clone(), self.keep_log_days, Printer::sayer(said.clone()));
        let (from, to) = (written.clone(), logs.clone());
        tokio::spawn(async move { buffer::ship_to(&from, &*to).await });
        let executor = BuiltIn::new(&Options { allow_commands: true, worker, marker, internal, logs: Some(written.clone()) });
        let interrupts = super::interrupts()?;
        let node = Embedded::start(store.clone(), Arc::new(executor), clock.clone(), feed, self.slots);
        // Who is told of the API may ask it for what the file says.
        let _ = tokio::time::timeout(TAKEOVER_TIME_MAX, definitions_taken_over(&*store, commits)).await;
        let signals = Arc::new(LocalSignals::new(node.scheduler.clone()));
        let (scheduler, partitions) = (node.scheduler.clone(), store.partitions());
        let access = Arc::new(access);
        let address = format!("{}://{address}", self.reach.scheme());
        let first_run = reach::first_run_line(&access, &*store, &*clock, &address).await?;
        let checkups = api::one_checkup();
        let router = api::router(Api {
            store,
            clock,
            scheduler,
            signals,
            zones,
            applied,
            events,
            partitions,
            trouble,
            access,
            pulse,
            logs,
            checkups,
        });
        let serving = tokio::spawn(listener::serve(listener, tls, router));
        say(&format!("API on {address}; try `punctual instances`. Ctrl-C stops.\n"));
        if let Some(line) = first_run {
            say(&line);
        }

        let ended = wait_and_drain(node, interrupts, say).await;
        let _ = tokio::time::timeout(Duration::from_millis(FLUSH_TIME_MAX.0), written.emptied()).await;
        serving.abort();
        if ended.is_ok() {
            say("Stopped; everything is written down.");
        }
        if let Some(console) = &said {
            console.flush(LAST_WORDS_TIME_MAX).await;
        }
        ended.map(|()| Exit::Done)
    }
}

/// Waits until the scheduler has applied every definition in its inbox.
async fn definitions_taken_over<S: Store>(store: &S, mut commits: watch::Receiver<u64>) {
    let is_definition = |entry: &InboxEntry| matches!(entry.request, Request::DefinitionChanged { .. });
    loop {
        commits.mark_unchanged();
        let mut after = InboxId(0);
        let has_definition = loop {
            let partitions = (0..store.partitions()).map(PartitionId).collect();
            let Ok(page) = store.read_inbox(partitions, after, limits::INBOX_READ_MAX).await else { break true };
            match page.entries.last() {
                _ if page.entries.iter().any(is_definition) => break true,
                Some(last) if page.more => after = last.id,
                _ => break false,
            }
        };
        if !has_definition || commits.changed().await.is_err() {
            return;
        }
    }
}

async fn wait_and_drain(mut node: Embedded, mut interrupts: mpsc::Receiver<()>, say: impl Fn(&str)) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        _ = interrupts.recv() => {}
        () = node.failed() => anyhow::bail!(
            "PUN-313: the scheduler has met a state that it holds for impossible and has stopped. Start it again: it reads everything anew. \
             Please report what it said above"
        ),
    }
    say("\nStopping: what runs may end. Ctrl-C again cancels it.");
    let (urge, urged) = mpsc::channel(1);
    let draining = node.drain(urged);
    tokio::pin!(draining);
    let mut urge = Some(urge);
    loop {
        tokio::select! {
            biased;
            () = &mut draining => return Ok(()),
            _ = interrupts.recv() => match urge.take() {
                Some(urge) => {
                    say("Cancelling what runs. Ctrl-C again stops at once; the next start makes up for it.");
                    let _ = urge.send(()).await;
                }
                None => std::process::exit(130),
            },
        }
    }
}

/// An earlier run that was killed may have left commands running: they are ended before anything is started again.
async fn end_orphans(marker: &str, say: impl Fn(&str)) {
    match punctual_worker::end_orphans(marker, ORPHAN_GRACE).await {
        Ok(orphans) if orphans.is_empty() => {}
        Ok(orphans) => say(&format!("Ended {} processes that an earlier run had left behind.", orphans.len())),
        Err(error) => say(&format!("! processes that an earlier run may have left behind can't be looked for: {error}")),
    }
}

/// Tells the commands of this database from those of any other.
fn marker(db: &std::path::Path) -> String {
    db.canonicalize().unwrap_or_else(|_| db.to_owned()).display().to_string()
}

fn describe(applied: &Applied, others: &[(Arc<str>, Arc<str>)], file: &std::path::Path) -> String {
    let Applied { created, changed, unchanged, removed, left, .. } = applied;
    let mut text = format!("Tasks: {} new, {} changed, {unchanged} unchanged, {} removed", created.len(), changed.len(), removed.len());
    for (label, names) in [("new", created), ("changed", changed), ("removed", removed)] {
        if !names.is_empty() && names.len() <= 20 {
            text += &format!("\n  {label}: {}", names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "));
        }
    }
    if !left.is_empty() {
        text += &format!("\n  not in the file, and left: {}; --remove removes such", first_of(left.iter().map(AsRef::as_ref)));
    }
    if !others.is_empty() {
        let shown = others.iter().map(|(name, source)| format!("{name} (of {source})"));
        let shown = first_of(shown.collect::<Vec<_>>().iter().map(String::as_str));
        text += &format!("\n  somebody else's, and left: {shown}; `punctual apply {} --take-over` takes them", file.display());
    }
    text
}

/// The first of these, and how many more there are.
fn first_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let shown = names.take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
