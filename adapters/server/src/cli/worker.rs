//! `punctual worker`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::{WorkerId, WorkerLife};
use punctual_core::worker::Config;
use punctual_driver::clock::SystemClock;
use punctual_driver::link::ToWorkerNode;
use punctual_driver::ports::{Clock, Executor};
use punctual_grpc::{ClientOptions, ClientTls, LinkState, dial};
use punctual_worker::{BuiltIn, Options};
use tokio::sync::mpsc;

use super::Exit;
use super::output::Output;
use crate::console::Console;

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
    /// Run commands, as the user who starts this
    #[arg(long)]
    allow_commands: bool,
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
        let console = if self.quiet { None } else { Some(Console::start()?) };
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
        let executor = Arc::new(BuiltIn::new(&Options { allow_commands: self.allow_commands, worker: worker.clone(), marker }));
        let clock = Arc::new(SystemClock::new());
        let life = WorkerLife(clock.now().wall.0.unsigned_abs());
        let config = Config { worker, life, slots: self.slots, handlers: executor.handlers() };

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
        let options = ClientOptions { seeds: self.servers, tls, token, watcher: Some(Arc::new(watcher)), ..ClientOptions::default() };
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
        dialling.abort();
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
