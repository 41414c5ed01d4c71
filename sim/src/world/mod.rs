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

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use madsim::runtime::Runtime;
use madsim::time::sleep;
use punctual_core::{guard, probe};

use crate::bank::Flaw;
use crate::history::{History, What, Who};
use crate::plan::Plan;
use crate::world::env::Env;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was seen.
    pub history: History,
    /// How often each probe was hit, the world's own included.
    pub probes: BTreeMap<&'static str, u64>,
    /// How often the guards that were switched off had something to hold back.
    pub hits: BTreeMap<Flaw, u64>,
    /// Set where the run broke an assertion.
    pub crash: Option<String>,
}

/// Carries a plan out, with these guards switched off. Each run has a thread of its own: what is random in a thread begins anew.
pub fn run(plan: &Plan, flaws: &[Flaw]) -> Outcome {
    let plan = Arc::new(plan.clone());
    let flaws = flaws.to_vec();
    let recorder = crate::history::Recorder::default();
    let thread = std::thread::Builder::new().name("world".into()).stack_size(8 << 20);
    let counted = Arc::new(std::sync::Mutex::new((BTreeMap::new(), BTreeMap::new())));
    let running = {
        let (recorder, counted) = (recorder.clone(), counted.clone());
        thread.spawn(move || {
            prepare(&flaws);
            // Counts are taken also where the run breaks off.
            let env = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulate(plan, &flaws, recorder)));
            let mut counted = counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            counted.0 = probe::CATALOGUE.iter().map(|name| (*name, probe::hits(name))).collect();
            counted.1 = core_hits(&flaws);
            match env {
                Ok(env) => {
                    counted.0.extend(env.probes());
                    counted.1.extend(env.store_hits(&flaws));
                    None
                }
                Err(panic) => Some(words_of(&*panic)),
            }
        })
    };
    let crash = match running.expect("a thread").join() {
        Ok(crash) => crash,
        Err(panic) => Some(words_of(&*panic)),
    };
    let (probes, hits) = std::mem::take(&mut *counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    Outcome { history: recorder.take(), probes, hits, crash }
}

fn prepare(flaws: &[Flaw]) {
    guard::reset();
    probe::reset();
    for flaw in flaws {
        if let Flaw::Core(guard) = flaw {
            guard::switch_off(*guard);
        }
    }
}

fn core_hits(flaws: &[Flaw]) -> BTreeMap<Flaw, u64> {
    let of_core = |flaw: &Flaw| match flaw {
        Flaw::Core(guard) => Some((*flaw, guard::hits(*guard))),
        Flaw::Store(_) => None,
    };
    flaws.iter().filter_map(of_core).collect()
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

fn simulate(plan: Arc<Plan>, flaws: &[Flaw], recorder: crate::history::Recorder) -> Arc<Env> {
    let mut config = madsim::Config::default();
    let (shortest, longest) = plan.knobs.network_ms;
    config.net.send_latency = Duration::from_millis(shortest)..Duration::from_millis(longest.max(shortest + 1));
    let mut runtime = Runtime::with_seed_and_config(plan.seed, config);
    // What goes on after the horizon is a fault of the world's own.
    runtime.set_time_limit(Duration::from_millis(plan.horizon_ms) + Duration::from_secs(3_600));
    let flaws = flaws.to_vec();
    runtime.block_on(async move {
        let env = Env::new(plan, recorder, &flaws);
        people::define_tasks(&env);
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
        env
    })
}
