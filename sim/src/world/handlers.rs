//! What handlers do, and their own account of it.

use std::sync::Arc;
use std::time::Duration;

use madsim::time::{Instant, sleep, sleep_until};
use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::protocol::{Assignment, End};
use punctual_driver::ports::{Ended, Executor, Stop};
use tokio::sync::watch;

use crate::behaviour::{HANDLERS, HANG_STEP_MS, answers, end_of};
use crate::history::{What, Who};
use crate::world::env::{Env, lock};

/// The handlers of one life of a worker.
pub(super) struct Handlers {
    pub(super) env: Arc<Env>,
    pub(super) index: usize,
    pub(super) life: u64,
}

/// A run that writes down its end, also where it is cut off.
struct Running {
    env: Arc<Env>,
    index: usize,
    instance: InstanceId,
    fence: Fence,
    end: Option<End>,
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.env.busy)[self.index] -= 1;
        let (instance, fence) = (self.instance, self.fence);
        self.env.record(Who::Worker(self.index), What::Ended { instance, fence, end: self.end });
    }
}

impl Executor for Handlers {
    fn handlers(&self) -> Vec<Arc<str>> {
        HANDLERS.iter().map(|name| Arc::from(*name)).collect()
    }

    fn run(&self, assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static {
        let (env, index, life) = (self.env.clone(), self.index, self.life);
        async move {
            let (instance, fence) = (assignment.instance, assignment.fence);
            lock(&env.busy)[index] += 1;
            let began = What::Began {
                life,
                instance,
                fence,
                attempt: assignment.attempt,
                task: assignment.task,
                version: assignment.version,
                fire_time: assignment.fire_time,
                ordinal: assignment.ordinal,
            };
            env.record(Who::Worker(index), began);
            let mut running = Running { env: env.clone(), index, instance, fence, end: None };
            let (end, detail) = perform(&env, index, &assignment, stop).await;
            if end == End::Succeeded {
                env.record(Who::Worker(index), What::Effect { instance, fence });
            }
            let (result, items) = if end == End::Succeeded { answers(&assignment, None) } else { (None, None) };
            running.end = Some(end);
            drop(running);
            Ended { end, code: None, detail: detail.map(Arc::from), output: Output::default(), result, items, retry_after: None }
        }
    }
}

async fn perform(env: &Env, index: usize, assignment: &Assignment, mut stop: watch::Receiver<Stop>) -> (End, Option<&'static str>) {
    let (handler, downstream) = env.behaviours.of(&assignment.task_name);
    let who = Who::Worker(index);
    let of_node = assignment.node.as_ref().map(|node| &*node.name);
    let Assignment { task_name, fire_time, ordinal, attempt: number, .. } = assignment;
    let attempt = env.behaviours.attempt(task_name, *fire_time, *ordinal, *number, of_node);
    let fails = attempt.fails && !env.is_healed();
    let node = env.node(who);
    if node.panics > 0 {
        return (End::Failed, Some("the handler panicked"));
    }
    let ends_at = Instant::now() + Duration::from_millis(attempt.takes_ms * node.slow_times.max(1));
    loop {
        tokio::select! {
            biased;
            changed = stop.changed() => {
                // Whoever could stop it is gone only with its worker.
                let how = if changed.is_ok() { *stop.borrow_and_update() } else { Stop::Kill };
                match (how, handler.obeys_after_ms) {
                    (Stop::No, _) => {}
                    (Stop::Kill, _) => return (End::Cancelled, Some("killed")),
                    (Stop::Cancel, None) => {}
                    (Stop::Cancel, Some(after)) => {
                        let obeyed = sleep(Duration::from_millis(after));
                        tokio::select! {
                            biased;
                            _ = stop.wait_for(|how| *how == Stop::Kill) => {}
                            () = obeyed => {}
                        }
                        return (End::Cancelled, Some("cancelled"));
                    }
                }
            }
            () = sleep_until(ends_at) => break,
        }
    }
    while env.node(who).hang > 0 {
        tokio::select! {
            biased;
            killed = stop.wait_for(|how| *how == Stop::Kill) => { let _ = killed; return (End::Cancelled, Some("killed")); }
            () = sleep(Duration::from_millis(HANG_STEP_MS)) => {}
        }
    }
    let rages = lock(&env.trouble).rages(*downstream);
    end_of(handler, fails, rages)
}
