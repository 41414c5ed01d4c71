//! `punctual dev`: everything in one process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::WorkerId;
use punctual_driver::clock::SystemClock;
use punctual_driver::ports::{Applied, Catalog, Clock, TaskDocument};
use punctual_spec::zones::Zones;
use punctual_worker::{BuiltIn, Options};
use tokio::sync::mpsc;

use super::Exit;
use super::output::Output;
use crate::api::{self, Api};
use crate::embedded::Embedded;
use crate::feed::Feed;
use crate::open;

#[derive(clap::Args, Debug)]
pub(crate) struct DevArgs {
    /// The task file
    file: PathBuf,
    /// The database file; made where it is missing
    #[arg(long, default_value = "punctual.db", value_name = "FILE")]
    db: PathBuf,
    /// Where the API listens; a loopback address, port 0 for a free one
    #[arg(long, default_value = "127.0.0.1:8650", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Attempts that run at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    slots: u32,
    /// Print nothing about what happens
    #[arg(long)]
    quiet: bool,
}

/// From the stop signal to the kill of what an earlier run has left behind.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);

impl DevArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        super::block_on(self.serve(), output)
    }

    async fn serve(&self) -> anyhow::Result<Exit> {
        if !is_loopback(self.listen.ip()) {
            anyhow::bail!(
                "PUN-310: the API has no sign-in yet, so it listens on loopback only; use --listen 127.0.0.1:{}",
                self.listen.port()
            );
        }
        let zones = Arc::new(Zones::load());
        let file = match punctual_spec::file::read_file(&self.file, &zones) {
            Ok(file) => file,
            Err(problems) => {
                eprintln!("{problems}");
                return Ok(Exit::Refused);
            }
        };
        let listener = tokio::net::TcpListener::bind(self.listen).await.map_err(|error| {
            anyhow::anyhow!(
                "PUN-311: the API can't listen on {}: {error}. Stop what listens there, or name another address with --listen",
                self.listen
            )
        })?;
        let address = listener.local_addr()?;
        let store = Arc::new(open::store(&self.db, &zones)?);
        let clock = Arc::new(SystemClock::new());
        let marker = marker(&self.db);
        self.end_orphans(&marker).await;

        let documents =
            file.tasks.iter().map(|task| TaskDocument { definition: task.definition.clone(), document: Arc::from(task.spec.to_json()) });
        let source: Arc<str> = Arc::from("file");
        let by = Arc::from(format!("file {}", self.file.display()));
        let applied = store.apply(source, by, documents.collect(), false, clock.now().wall).await?;
        self.say(&format!("Punctual {}, time zones {}, database {}", env!("CARGO_PKG_VERSION"), zones.version(), self.db.display()));
        self.say(&describe(&applied));

        let feed = Arc::new(if self.quiet { Feed::quiet() } else { Feed::printing(store.clone()) });
        let commits = feed.commits();
        let executor = BuiltIn::new(&Options { allow_commands: true, worker: WorkerId(Arc::from("local")), marker });
        let node = Embedded::start(store.clone(), Arc::new(executor), clock.clone(), feed, self.slots);
        let tzdata = Arc::from(zones.version());
        let router = api::router(Api { store, clock, scheduler: node.scheduler.clone(), commits, tzdata });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        self.say(&format!("API on http://{address}; try `punctual instances`. Ctrl-C stops.\n"));

        let interrupts = interrupts()?;
        self.wait_and_drain(node, interrupts).await;
        serving.abort();
        self.say("Stopped; everything is written down.");
        Ok(Exit::Done)
    }

    async fn wait_and_drain(&self, node: Embedded, mut interrupts: mpsc::Receiver<()>) {
        let _ = interrupts.recv().await;
        self.say("\nStopping: what runs may end. Ctrl-C again cancels it.");
        let (urge, urged) = mpsc::channel(1);
        let draining = node.drain(urged);
        tokio::pin!(draining);
        let mut urge = Some(urge);
        loop {
            tokio::select! {
                biased;
                () = &mut draining => return,
                _ = interrupts.recv() => match urge.take() {
                    Some(urge) => {
                        self.say("Cancelling what runs. Ctrl-C again stops at once; the next start makes up for it.");
                        let _ = urge.send(()).await;
                    }
                    None => std::process::exit(130),
                },
            }
        }
    }

    /// An earlier run that was killed may have left commands running: they are ended before anything is started again.
    async fn end_orphans(&self, marker: &str) {
        match punctual_worker::end_orphans(marker, ORPHAN_GRACE).await {
            Ok(orphans) if orphans.is_empty() => {}
            Ok(orphans) => self.say(&format!("Ended {} processes that an earlier run had left behind.", orphans.len())),
            Err(error) => eprintln!("Processes that an earlier run may have left behind can't be looked for: {error}"),
        }
    }

    fn say(&self, text: &str) {
        use std::io::Write;
        if !self.quiet {
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

/// Tells the commands of this database from those of any other.
fn marker(db: &std::path::Path) -> String {
    db.canonicalize().unwrap_or_else(|_| db.to_owned()).display().to_string()
}

fn describe(applied: &Applied) -> String {
    let Applied { created, changed, unchanged, removed } = applied;
    let mut text = format!("Tasks: {} new, {} changed, {unchanged} unchanged, {} removed", created.len(), changed.len(), removed.len());
    for (label, names) in [("new", created), ("changed", changed), ("removed", removed)] {
        if !names.is_empty() && names.len() <= 20 {
            text += &format!("\n  {label}: {}", names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "));
        }
    }
    text
}

/// A message for each Ctrl-C or termination signal.
fn interrupts() -> std::io::Result<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = mpsc::channel(4);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind)?;
        let send = send.clone();
        tokio::spawn(async move { while signals.recv().await.is_some() && send.send(()).await.is_ok() {} });
    }
    Ok(receive)
}
