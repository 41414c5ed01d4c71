//! `punctual worker`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::definition::Band;
use punctual_core::ids::{WorkerId, WorkerLife};
use punctual_core::routing::{TagSyntax, VersionSyntax, WorkerTraits, WorkerVersion, check_tag};
use punctual_core::worker::Config;
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToWorkerNode;
use punctual_driver::logs::{FLUSH_TIME_MAX, LogBuffer};
use punctual_driver::ports::{Clock, Executor};
use punctual_grpc::{ClientOptions, ClientTls, LinkState, dial};
use punctual_worker::{BuiltIn, InternalAddresses, Options};
use tokio::sync::mpsc;

use super::Exit;
use super::internal::InternalArgs;
use super::output::Output;
use crate::printer::Printer;

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// Where schedulers listen for workers; one is enough, it names the others
    #[arg(long = "server", env = "PUNCTUAL_SERVERS", value_delimiter = ',', default_value = "127.0.0.1:8651", value_name = "ADDRESS")]
    servers: Vec<String>,
    /// What this worker is called; no two that run may have one name
    #[arg(long, value_name = "NAME", value_parser = super::node_name)]
    name: Option<String>,
    /// Attempts that run at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    slots: u32,
    /// What tasks may ask for that need a worker of a kind, such as zone=eu; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<Arc<str>>,
    /// The version that tasks compare with their min_worker_version; by default this program's
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"), value_parser = version)]
    worker_version: WorkerVersion,
    /// Keep so many of the slots for a band of tasks and those above it: urgent=2, normal=1
    #[arg(long = "reserve", value_name = "BAND=SLOTS", value_parser = reserved)]
    reserved: Vec<(Band, u32)>,
    /// Run commands, as the user who starts this
    #[arg(long)]
    allow_commands: bool,
    #[command(flatten)]
    internal: InternalArgs,
    /// The file with this worker's token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Speak TLS, and trust the system's roots
    #[arg(long)]
    tls: bool,
    /// Speak TLS, and trust the roots in this PEM file
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Print nothing about what happens
    #[arg(long)]
    quiet: bool,
}

/// From the stop signal to the kill of what an earlier life has left behind.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// How long the end waits for a slow terminal.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);

impl WorkerArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        super::block_on(self.serve(), output)
    }

    async fn serve(self) -> anyhow::Result<Exit> {
        let traits = traits(self.tags, self.worker_version, &self.reserved);
        traits.check(self.slots).map_err(|error| anyhow::anyhow!("PUN-331: {error}"))?;
        let console = if self.quiet { None } else { Some(Printer::start()?) };
        let said = console.clone();
        let say = move |text: &str| {
            if let Some(console) = &said {
                console.print(format!("{text}\n"));
            }
        };
        let name: Arc<str> = Arc::from(self.name.unwrap_or_else(super::host_name));
        let marker = format!("worker {name}");
        match punctual_worker::end_orphans(&marker, ORPHAN_GRACE).await {
            Ok(orphans) if orphans.is_empty() => {}
            Ok(orphans) => say(&format!("Ended {} processes that an earlier life had left behind.", orphans.len())),
            Err(error) => say(&format!("! processes that an earlier life may have left behind can't be looked for: {error}")),
        }
        let worker = WorkerId(name.clone());
        let (allow_commands, internal) = (self.allow_commands, self.internal.or(InternalAddresses::default()));
        let clock = Arc::new(SystemClock::new());
        let logs = LogBuffer::new(worker.clone(), clock.clone());
        let options = Options { allow_commands, worker: worker.clone(), marker, internal, logs: Some(logs.clone()) };
        let executor = Arc::new(BuiltIn::new(&options));
        let life = WorkerLife(clock.now().wall.0.unsigned_abs());
        let config = Config { worker, life, slots: self.slots, handlers: executor.handlers(), traits };

        let roots_pem = self.tls_roots.as_deref().map(read).transpose()?;
        let tls = (self.tls || roots_pem.is_some()).then_some(ClientTls { roots_pem, domain: None });
        let token = self.token_file.as_deref().map(read).transpose()?.map(|token| String::from_utf8_lossy(&token).trim().to_owned());
        let watcher = {
            let say = say.clone();
            move |address: &str, state: &LinkState| match state {
                LinkState::Connected => say(&format!("  {address}: connected")),
                LinkState::Disconnected { reason } => say(&format!("! {address}: {reason}")),
                LinkState::SameReplica { replica } => say(&format!("  {address}: leads to {replica} as well")),
                LinkState::Dropped => say(&format!("  {address}: gone for good")),
            }
        };
        let options = ClientOptions {
            seeds: self.servers,
            tls,
            token,
            watcher: Some(Arc::new(watcher)),
            logs: Some(logs.clone()),
            ..ClientOptions::default()
        };
        let (node, inbound) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
        let mut dialling = tokio::spawn(dial(options, node.clone())?);
        let mut interrupts = super::interrupts()?;
        let commands = if self.allow_commands { "" } else { " No commands are run here; --allow-commands would let them." };
        say(&format!("Punctual {}, worker {name}, {} slots.{commands} Ctrl-C stops.", env!("CARGO_PKG_VERSION"), self.slots));
        let mut running = tokio::spawn(punctual_driver::worker::run(config, executor, clock, inbound));
        let urges = [
            ("\nStopping: what runs may end. Ctrl-C again cancels it.", Some(ToWorkerNode::Drain)),
            ("Cancelling what runs. Ctrl-C again stops at once.", Some(ToWorkerNode::CancelAll)),
            ("", None),
        ];
        let mut urges = urges.into_iter();
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut running => break ended,
                ended = &mut dialling => match ended {
                    Ok(()) => break (&mut running).await,
                    Err(error) => break Err(error),
                },
                _ = interrupts.recv() => match urges.next() {
                    Some((text, Some(message))) => {
                        say(text);
                        let _ = node.send(message).await;
                    }
                    _ => std::process::exit(130),
                },
            }
        };
        // It ends by itself once the last lines of attempts are sent, or can't be.
        let last_lines = Duration::from_millis(FLUSH_TIME_MAX.0) + LAST_WORDS_TIME_MAX;
        if ended.is_ok() && !dialling.is_finished() {
            let _ = tokio::time::timeout(last_lines, &mut dialling).await;
        }
        dialling.abort();
        if logs.dropped() > 0 {
            say(&format!("! {} lines that attempts wrote were dropped, and are counted in their logs", logs.dropped()));
        }
        if ended.is_ok() {
            say("Stopped; every result was taken.");
        }
        if let Some(console) = &console {
            console.flush(LAST_WORDS_TIME_MAX).await;
        }
        ended.map_err(|_| {
            anyhow::anyhow!(
                "PUN-313: the worker has met a state that it holds for impossible and has stopped. Start it again, and please report what it said above"
            )
        })?;
        Ok(Exit::Done)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| anyhow::anyhow!("PUN-323: {} can't be read: {error}", path.display()))
}

fn tag(text: &str) -> Result<Arc<str>, TagSyntax> {
    check_tag(text).map(|()| Arc::from(text))
}

fn version(text: &str) -> Result<WorkerVersion, VersionSyntax> {
    WorkerVersion::parse(text)
}

/// `urgent=2` or `normal=1`.
fn reserved(text: &str) -> Result<(Band, u32), String> {
    let parsed = text.split_once('=').and_then(|(band, slots)| {
        let band = match band {
            "urgent" => Band::Urgent,
            "normal" => Band::Normal,
            _ => return None,
        };
        Some((band, slots.parse().ok()?))
    });
    parsed.ok_or_else(|| "write urgent=SLOTS or normal=SLOTS, such as urgent=2; what is not reserved is for all bands".to_owned())
}

/// What is said twice of a band counts as it was said last.
fn traits(tags: Vec<Arc<str>>, version: WorkerVersion, reserved: &[(Band, u32)]) -> WorkerTraits {
    let of = |band| reserved.iter().rev().find(|(named, _)| *named == band).map_or(0, |(_, slots)| *slots);
    WorkerTraits { tags, version: Some(version), reserved: [of(Band::Urgent), of(Band::Normal)], ..WorkerTraits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reserved_by_band() {
        assert_eq!(reserved("urgent=2"), Ok((Band::Urgent, 2)));
        assert_eq!(reserved("normal=0"), Ok((Band::Normal, 0)));
        for bad in ["", "urgent", "urgent=", "urgent=-1", "low=1", "2", "urgent=two", "urgent=4294967296"] {
            assert!(reserved(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_reserved_is_part_of_the_slots() {
        let version = WorkerVersion::parse(env!("CARGO_PKG_VERSION")).expect("the program has a version");
        let traits = |reserved: &[(Band, u32)]| traits(Vec::new(), version.clone(), reserved);
        assert_eq!(traits(&[(Band::Urgent, 9), (Band::Normal, 1), (Band::Urgent, 3)]).reserved, [3, 1]);
        assert!(traits(&[(Band::Urgent, 3), (Band::Normal, 1)]).check(4).is_ok());
        let error = traits(&[(Band::Urgent, 4), (Band::Normal, 1)]).check(4).expect_err("more than there are");
        assert_eq!(error.to_string(), "5 slots are reserved and the worker has 4: reserve no more than it has, or give it more slots");
    }
}
