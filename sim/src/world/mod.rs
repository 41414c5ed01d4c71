//! The rehearsal world: the production loops on simulated time and network. Only under `--cfg madsim`.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `env` | what all actors share: time, the history, the state of what is wrong just now |
//! | `store` | the way to the database: latencies, lost answers, and the store's port on top |
//! | `transport` | frames over simulated TCP, with loss, repetition, delay and resets |
//! | `nodes` | scheduler and worker nodes, and what is left of them at the end |
//! | `handlers` | what handlers do, and their own account of it |
//! | `people` | those who use the API |
//! | `trouble` | faults: beginning, ending, and for whom |

mod env;
mod handlers;
mod nodes;
mod people;
mod store;
mod transport;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use madsim::runtime::{Handle, Runtime};
use madsim::time::sleep;

use crate::bank::Flaw;
use crate::calls;
use crate::history::{Recorder, What, Who};
use crate::outcome::{Counted, Outcome, store_hits, words_of};
use crate::plan::Plan;
use crate::world::env::{Env, lock};

/// Carries a plan out, with these guards switched off. Each run has a thread of its own: what is random in a thread begins anew.
pub fn run(plan: &Plan, flaws: &[Flaw]) -> Outcome {
    let plan = Arc::new(plan.clone());
    let flaws = flaws.to_vec();
    let recorder = Recorder::default();
    let thread = std::thread::Builder::new().name("world".into()).stack_size(8 << 20);
    let running = {
        let recorder = recorder.clone();
        thread.spawn(move || {
            Outcome::of(&flaws, &recorder, || {
                let env = simulate(plan, &flaws, recorder.clone());
                Counted { probes: env.probes(), hits: store_hits(&lock(&env.database), &flaws) }
            })
        })
    };
    match running.expect("a thread").join() {
        Ok(outcome) => outcome,
        Err(panic) => Outcome { history: recorder.take(), probes: BTreeMap::new(), hits: BTreeMap::new(), crash: Some(words_of(&*panic)) },
    }
}

fn simulate(plan: Arc<Plan>, flaws: &[Flaw], recorder: Recorder) -> Arc<Env> {
    let mut config = madsim::Config::default();
    let (shortest, longest) = plan.knobs.network_ms;
    config.net.send_latency = Duration::from_millis(shortest)..Duration::from_millis(longest.max(shortest + 1));
    let mut runtime = Runtime::with_seed_and_config(plan.seed, config);
    // What goes on after the horizon is a fault of the world's own.
    runtime.set_time_limit(Duration::from_millis(plan.horizon_ms) + Duration::from_secs(3_600));
    let flaws = flaws.to_vec();
    runtime.block_on(async move {
        let env = Env::new(plan, recorder, &flaws);
        calls::define_tasks(&env.plan, &mut lock(&env.database), env.at());
        let nodes = nodes::start(&env).await;
        trouble::start(&env, &nodes);
        people::start(&env);
        env.sleep_until(env.plan.heal_at_ms).await;
        trouble::heal(&env, &nodes);
        env.record(Who::World, What::Healed);
        env.sleep_until(env.plan.horizon_ms).await;
        nodes::record_what_is_left(&env, &nodes).await;
        // Answers that are under way come to nothing.
        sleep(Duration::from_millis(1)).await;
        // The tasks of a runtime outlive it, with all that they hold, unless they were killed.
        env.close();
        nodes.all().for_each(|node| Handle::current().kill(node.id()));
        Handle::current().kill(env.database_node.id());
        sleep(Duration::from_millis(1)).await;
        env
    })
}
