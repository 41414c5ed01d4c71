//! Gathers what a checkup looks at.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use punctual_core::instance::State as InstanceState;
use punctual_core::time::Timestamp;
use punctual_driver::link::SchedulerStatus;
use punctual_driver::ports::{Catalog, Clock, InstanceFilter, InstanceQuery, StoreError, TaskView};
use punctual_spec::zones::Zones;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::Asked;
use super::{Api, ApiError, cluster, pauses, rules};
use crate::doctor::{self, Facts, Finding, KnownTask, Severity};

/// Tasks that are looked at.
const TASKS_MAX: usize = 20_000;
/// Instances in progress that are looked at.
const IN_PROGRESS_MAX: usize = 10_000;
const PAGE: usize = 1_000;

/// How thoroughly.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct How {
    /// Also what takes a look at every instance that there is: minutes, where there are millions.
    #[serde(default)]
    thorough: bool,
}

/// What was found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Checkup {
    /// The store's clock.
    now: String,
    version: &'static str,
    /// Whether nothing is wrong; warnings may be there.
    ok: bool,
    /// What is worst first.
    findings: Vec<Finding>,
    /// How many tasks were looked at; of more than 20,000 not all are.
    tasks: usize,
}

pub(crate) async fn checkup<S: Catalog, C: Clock>(State(api): State<Api<S, C>>, Asked(how): Asked<How>) -> Result<Json<Checkup>, ApiError> {
    let own = cluster::own_status(&api).await;
    let trouble = api.trouble.borrow().clone();
    let now = api.clock.now().wall;
    let trouble = trouble.as_deref().map(str::to_owned);
    let seen = Seen { own, is_served: true, trouble, thorough: how.thorough };
    let (findings, tasks) = findings(&*api.store, &api.zones, now, seen).await?;
    let ok = is_ok(&findings);
    Ok(Json(Checkup { now: now.to_string(), version: env!("CARGO_PKG_VERSION"), ok, findings, tasks }))
}

/// Whether nothing is wrong.
pub(crate) fn is_ok(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.severity != Severity::Wrong)
}

/// What is known besides the store.
pub(crate) struct Seen {
    pub(crate) own: Option<SchedulerStatus>,
    pub(crate) is_served: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) thorough: bool,
}

/// All that is wrong, and how many tasks were looked at. What takes the processor long has a thread of its own: leases are renewed meanwhile.
pub(crate) async fn findings<S: Catalog>(
    store: &S,
    zones: &Arc<Zones>,
    now: Timestamp,
    seen: Seen,
) -> Result<(Vec<Finding>, usize), StoreError> {
    let held = store.pauses().await?;
    let (mut tasks, mut after) = (Vec::new(), None::<Arc<str>>);
    while tasks.len() < TASKS_MAX {
        let page = store.tasks(after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|last| last.name.clone());
        tasks.extend(page);
        if is_last {
            break;
        }
    }
    let mut in_progress: FxHashMap<Arc<str>, u32> = FxHashMap::default();
    let states: Vec<_> = InstanceState::ALL.into_iter().filter(|state| state.is_in_progress()).collect();
    let (mut before, mut looked_at) = (None, 0);
    while looked_at < IN_PROGRESS_MAX {
        let filter = InstanceFilter { whole: true, before, limit: PAGE, ..InstanceFilter::default() };
        let query = InstanceQuery { filter, states: states.clone(), look_at: IN_PROGRESS_MAX, ..InstanceQuery::default() };
        let page = store.instance_page(query).await?;
        looked_at += PAGE;
        page.instances.iter().for_each(|view| *in_progress.entry(view.task_name.clone()).or_default() += 1);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let (replicas, partitions) = (store.replicas().await?, store.partition_views().await?);
    let inconsistencies = store.inconsistencies(now, seen.thorough).await?;
    let machine_now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(now, |since| Timestamp(since.as_millis() as i64));
    let (zones, count) = (zones.clone(), tasks.len());
    let examining = tokio::task::spawn_blocking(move || {
        let known = |view: TaskView| {
            let group = rules::group_in(&view.document);
            let is_paused = !pauses::of_task(&held, &view.name, group.as_deref()).is_empty();
            let definition = punctual_spec::decode(&view.document, &zones);
            let definition = definition.map_err(|findings| findings.first().map(ToString::to_string).unwrap_or_default());
            KnownTask { view, definition, is_paused }
        };
        let tasks: Vec<_> = tasks.into_iter().map(known).collect();
        doctor::examine(&Facts {
            now,
            machine_now,
            replicas: &replicas,
            partitions: &partitions,
            own: seen.own.as_ref(),
            is_served: seen.is_served,
            trouble: seen.trouble.as_deref(),
            tasks: &tasks,
            in_progress: &in_progress,
            pauses: &held,
            inconsistencies: &inconsistencies,
        })
    });
    // A panic in there is one here.
    Ok((examining.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())), count))
}
