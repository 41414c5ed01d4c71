//! The worker's process: built with the worker crate, with one handler that behaves as the plan says and tells what it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use punctual_core::protocol::End;
use punctual_sim::behaviour::{Behaviours, HANG_STEP_MS, end_of};
use punctual_sim::features;
use punctual_sim::plan::{HandlerPlan, Plan};
use punctual_worker::{HandlerError, TaskContext, Worker};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::truth::{Account, Told, name_of};
use crate::weather::Forecast;

/// What tasks name as their handler here.
pub const HANDLER: &str = "chaos";

/// One life of a worker.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Its name.
    #[arg(long)]
    name: String,
    /// Which life of it this is, counted from 1.
    #[arg(long)]
    life: u64,
    /// Attempts that it runs at once.
    #[arg(long)]
    slots: u32,
    /// Addresses of schedulers.
    #[arg(long = "server")]
    servers: Vec<String>,
    /// The plan.
    #[arg(long)]
    plan: PathBuf,
    /// Where its handlers look what is wrong.
    #[arg(long)]
    forecast: PathBuf,
    /// Where its handlers tell what they do.
    #[arg(long)]
    account: PathBuf,
}

struct Handlers {
    behaviours: Behaviours,
    life: u64,
    forecast: PathBuf,
    account: Account,
}

/// A run that tells its end, also where it is cut off.
struct Running {
    account: Account,
    context: TaskContext,
    end: Option<End>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped on the way it was killed, and whoever kills has asked before; or its process ends.
        let cut_off = if std::thread::panicking() { Some(End::Failed) } else { self.context.is_cancelled().then_some(End::Cancelled) };
        let end = self.end.or(cut_off).map(|end| name_of(end).to_owned());
        self.account.tell(Told::Ended { instance: self.context.instance().0, fence: self.context.fence().0, end });
    }
}

/// Works until it is asked to end, and then drains.
///
/// # Errors
///
/// A file can't be read, or the worker can't be built.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let plan: Plan = serde_json::from_str(&std::fs::read_to_string(&arguments.plan)?)?;
    let account = Account::open(&arguments.account)?;
    let handlers = Arc::new(Handlers { behaviours: Behaviours::new(&plan), life: arguments.life, forecast: arguments.forecast, account });
    // w1 is the first.
    let number = arguments.name.strip_prefix('w').and_then(|number| number.parse::<usize>().ok()).and_then(|number| number.checked_sub(1));
    let number = number.with_context(|| format!("{} is not a worker of a plan", arguments.name))?;
    let mut builder = Worker::builder().name(arguments.name).slots(arguments.slots);
    let traits = features::traits(number);
    for tag in &traits.tags {
        let (key, value) = tag.split_once('=').context("a tag has a key and a value")?;
        builder = builder.tag(key, value);
    }
    if let Some(version) = &traits.version {
        builder = builder.version(version.to_string());
    }
    if let Some(newest) = features::newest_version(number) {
        builder = builder.speaking_up_to(newest);
    }
    for server in arguments.servers {
        builder = builder.server(server);
    }
    // What payload a task has is nothing to its handler.
    let worker = builder.handler(HANDLER, move |context: TaskContext, _: Option<Value>| {
        let handlers = handlers.clone();
        async move { handlers.run(context).await }
    });
    let mut asked = signal(SignalKind::terminate())?;
    println!("begins");
    worker
        .build()?
        .run_until(async move {
            asked.recv().await;
        })
        .await?;
    println!("has drained");
    Ok(())
}

impl Handlers {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let (instance, fence) = (context.instance().0, context.fence().0);
        let mut running = Running { account: self.account.clone(), context: context.clone(), end: None };
        self.account.tell(Told::Began {
            life: self.life,
            instance,
            fence,
            attempt: context.attempt(),
            task: context.task().0,
            version: context.task_version().0,
            fire_time: context.fire_time().0,
            ordinal: context.ordinal(),
        });
        let (end, detail) = self.perform(&context).await;
        if end == End::Succeeded {
            self.account.tell(Told::Effect { instance, fence });
        }
        running.end = Some(end);
        drop(running);
        let detail = detail.unwrap_or_default();
        match end {
            End::Succeeded => Ok(()),
            End::FailedForGood => Err(HandlerError::permanent(detail)),
            End::Failed | End::TimedOut | End::Cancelled => Err(HandlerError::retry(detail)),
        }
    }

    async fn perform(&self, context: &TaskContext) -> (End, Option<&'static str>) {
        let name = context.task_name();
        let (handler, downstream) = self.behaviours.of(name);
        let attempt = self.behaviours.attempt(name, context.fire_time(), context.ordinal(), context.attempt(), context.node());
        let forecast = self.forecast();
        let fails = attempt.fails && !forecast.world.is_healed;
        assert!(forecast.node.panics == 0, "the handler panicked");
        let ends_at = Instant::now() + Duration::from_millis(attempt.takes_ms * forecast.node.slow_times.max(1));
        let by_itself = async {
            sleep_until(ends_at).await;
            while self.forecast().node.hang > 0 {
                sleep(Duration::from_millis(HANG_STEP_MS)).await;
            }
        };
        tokio::select! {
            biased;
            () = obeyed(context, handler) => (End::Cancelled, Some("cancelled")),
            () = by_itself => end_of(handler, fails, self.forecast().world.rages(*downstream)),
        }
    }

    /// What is wrong just now. Whoever writes it puts a whole file in place.
    fn forecast(&self) -> Forecast {
        read_forecast(&self.forecast).expect("the run keeps the file")
    }
}

/// Ends when a handler that was asked to end does.
async fn obeyed(context: &TaskContext, handler: &HandlerPlan) {
    context.cancelled().await;
    match handler.obeys_after_ms {
        Some(after_ms) => sleep(Duration::from_millis(after_ms)).await,
        None => std::future::pending().await,
    }
}

fn read_forecast(path: &Path) -> anyhow::Result<Forecast> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}
