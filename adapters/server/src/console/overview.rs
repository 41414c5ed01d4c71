//! The overview: what needs attention, and how things go.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use punctual_core::breaker::BreakerState;
use punctual_core::instance::State as InstanceState;
use punctual_core::scheduler::BreakerView;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::link::{SchedulerStatus, ToSchedulerNode};
use punctual_driver::ports::{Catalog, Clock, InstanceView, PauseTarget, PauseView};
use tokio::sync::oneshot;

use super::error::{Answer, answered};
use super::form::segment;
use super::instances::{Row, row};
use super::page::{Lang, Nav, Page, Viewer};
use super::pulse::{self, Minute};
use super::show::{Count, Span, Time};
use super::tasks::{Coming, coming};
use super::words::Words;
use super::{Console, terms};
use crate::api::{dead_letters, failures, instances, pauses};
use crate::identity::Role;

/// Failures that are shown.
const FAILURES: usize = 8;
/// Dead letters that are counted.
const LETTERS: usize = 100;
/// Groups whose failures are shown to somebody who sees no more.
const GROUPS: usize = 20;
/// Fire times that are shown.
const COMING: usize = 8;
/// Somebody should look at what has failed since then.
const FAILED_JUST_NOW: Millis = Millis::from_secs(3_600);
/// A replica that has been silent for this long doesn't come back by itself.
const SILENT_FOR_LONG: Millis = Millis::from_secs(3_600);

/// Something that a person should look at.
struct Concern {
    /// `bad` or `warn`.
    kind: &'static str,
    text: String,
    detail: String,
    address: String,
    since: Option<Time>,
}

/// A bar of the chart, in its own units.
struct Bar {
    x: usize,
    succeeded_y: f64,
    succeeded: f64,
    failed_y: f64,
    failed: f64,
    label: String,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct OverviewPage {
    p: Page,
    w: &'static Words,
    concerns: Vec<Concern>,
    is_down: bool,
    running: Count,
    waiting: Count,
    retrying: Count,
    inbox: Count,
    ended: Count,
    failed: Count,
    success: String,
    delay: Span,
    delay_most: Span,
    bars: Vec<Bar>,
    peak: u64,
    failures: Vec<Row>,
    coming: Vec<Coming>,
    workers: usize,
    slots: usize,
    held: usize,
    replicas: usize,
    is_cluster: bool,
}

pub(super) async fn page<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    // What is counted is of everything; who sees some groups sees what is of theirs.
    let answer = match viewer.identity.may(Role::Viewer, None) {
        true => show(&console, &viewer).await,
        false => show_groups(&console, &viewer).await,
    };
    answered(&viewer, answer)
}

impl<S: Catalog, C: Clock> Console<S, C> {
    /// How this replica's scheduler stands; nothing where it has stopped.
    pub(super) async fn status(&self) -> Option<SchedulerStatus> {
        let (asker, answer) = oneshot::channel();
        let _ = self.api.scheduler.send(ToSchedulerNode::Status(asker)).await;
        answer.await.ok()
    }
}

/// The overview of somebody whose roles are for groups.
#[derive(Template)]
#[template(path = "console/overview_groups.html")]
struct GroupsPage {
    p: Page,
    w: &'static Words,
    groups: String,
    concerns: Vec<Concern>,
    failures: Vec<Row>,
    coming: Vec<Coming>,
}

async fn show_groups<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let (w, lang) = (viewer.words(), viewer.lang);
    let now = console.api.clock.now().wall;
    let mut concerns = Vec::new();
    let filter = dead_letters::Filter { limit: Some(LETTERS), ..Default::default() };
    let (letters, more) = dead_letters::page_of(&console.api, &viewer.identity, filter).await?;
    concerns.extend(of_letters(&letters, more.is_some(), w));
    let mut groups: Vec<&str> = viewer.identity.grants.iter().filter_map(|grant| grant.group.as_deref()).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut failures = Vec::new();
    // By the index of a group's tasks; of many groups the first.
    for group in groups.iter().take(GROUPS) {
        let filter = instances::Filter {
            group: Some((*group).to_owned()),
            state: Some(failures::FAILED.map(InstanceState::name).join(",")),
            limit: Some(FAILURES),
            ..Default::default()
        };
        failures.extend(instances::page_of(&console.api, &viewer.identity, filter).await?.0);
    }
    failures.sort_by_key(|view| std::cmp::Reverse(view.row.ended_at()));
    failures.truncate(FAILURES);
    concerns.extend(of_failures(&failures, now, w));
    concerns.extend(pauses::seen(&console.api, &viewer.identity).await?.iter().map(|pause| of_pause(pause, w)));
    let page = GroupsPage {
        p: viewer.page(Nav::Overview, w.overview),
        w,
        groups: groups.join(", "),
        concerns,
        failures: failures.iter().map(|view| row(view, lang)).collect(),
        coming: coming(console, viewer, now, COMING).await?,
    };
    Ok(viewer.show(&page))
}

fn of_letters(letters: &[InstanceView], is_more: bool, w: &Words) -> Option<Concern> {
    let newest = letters.first()?;
    let count = if is_more { format!("{}+", letters.len()) } else { letters.len().to_string() };
    let text = if letters.len() == 1 { w.concern_letter.to_owned() } else { w.concern_letters.replace("{}", &count) };
    let (address, since) = ("/dead-letters".to_owned(), newest.row.ended_at().map(Time));
    Some(Concern { kind: "warn", text, detail: String::new(), address, since })
}

/// Dead letters have a line of their own.
fn of_failures(failures: &[InstanceView], now: Timestamp, w: &Words) -> Option<Concern> {
    let has_just_failed = |view: &&InstanceView| {
        view.row.state != InstanceState::DeadLettered && view.row.ended_at().is_some_and(|at| now.since(at) < FAILED_JUST_NOW)
    };
    let just_failed: Vec<_> = failures.iter().filter(has_just_failed).collect();
    let last = just_failed.first()?;
    let text = w.concern_failed.replace("{n}", &just_failed.len().to_string()).replace("{task}", &last.task_name);
    let (address, since) = (format!("/instances/{}", last.row.id), last.row.ended_at().map(Time));
    Some(Concern { kind: "warn", text, detail: String::new(), address, since })
}

fn of_pause(pause: &PauseView, w: &Words) -> Concern {
    let text = match &pause.target {
        PauseTarget::All => w.concern_paused_all.to_owned(),
        PauseTarget::Group(group) => w.concern_paused_group.replace("{}", group),
        PauseTarget::Task(task) => w.concern_paused_task.replace("{}", task),
        PauseTarget::Worker(worker) => w.concern_drained.replace("{}", worker),
    };
    let detail = match &pause.actor.why {
        Some(why) => format!("{}: {why}", pause.actor.by),
        None => pause.actor.by.to_string(),
    };
    let address = match &pause.target {
        PauseTarget::Task(task) => format!("/tasks/{}", segment(task)),
        PauseTarget::Worker(_) => "/workers".to_owned(),
        _ => "/pauses".to_owned(),
    };
    Concern { kind: "warn", text, detail, address, since: Some(Time(pause.since)) }
}

async fn show<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let (w, lang, store) = (viewer.words(), viewer.lang, &console.api.store);
    let now = console.api.clock.now().wall;
    let (counts, partitions, replicas) = (store.counts().await?, store.partition_views().await?, store.replicas().await?);
    let (pauses, status) = (store.pauses().await?, console.status().await);
    let filter = dead_letters::Filter { limit: Some(LETTERS), ..Default::default() };
    let (letters, _) = dead_letters::page_of(&console.api, &viewer.identity, filter).await?;
    let failures = failures::latest(&**store, FAILURES).await?;
    let trouble = console.api.trouble.borrow().clone();
    let mut concerns = Vec::new();
    let mut add = |kind, text: String, detail: String, address: String, since: Option<Timestamp>| {
        concerns.push(Concern { kind, text, detail, address, since: since.map(Time) });
    };
    if let Some(reason) = &trouble {
        add("bad", w.concern_store.to_owned(), reason.to_string(), "/replicas".to_owned(), None);
    }
    if status.is_none() {
        add("bad", w.concern_scheduler.to_owned(), String::new(), "/replicas".to_owned(), None);
    }
    let unowned = partitions.iter().filter(|partition| partition.owner.is_none() || partition.expires_at < now).count();
    if unowned > 0 {
        add("bad", w.concern_unowned.replace("{}", &unowned.to_string()), String::new(), "/replicas".to_owned(), None);
    }
    let silent = |at: Timestamp| at < now && now.since(at) < SILENT_FOR_LONG;
    for replica in replicas.iter().filter(|replica| silent(replica.expires_at)) {
        add("warn", w.concern_replica.replace("{}", &replica.id.0), String::new(), "/replicas".to_owned(), Some(replica.expires_at));
    }
    for waiting in status.iter().flat_map(|status| &status.waiting) {
        let Some(nobody) = waiting.nobody else { continue };
        let text = w.concern_nobody.replace("{n}", &waiting.waiting.to_string()).replace("{needs}", &waiting.needs.to_string());
        add("bad", text, terms::nobody(nobody, lang).to_owned(), "/workers".to_owned(), None);
    }
    for breaker in status.iter().flat_map(|status| &status.breakers).filter(|breaker| breaker.state != BreakerState::Closed) {
        add("warn", w.concern_breaker.replace("{}", &breaker.downstream), breaker_detail(breaker, lang, w), "/workers".to_owned(), None);
    }
    concerns.extend(of_letters(&letters, letters.len() == LETTERS, w));
    concerns.extend(of_failures(&failures, now, w));
    concerns.extend(pauses.iter().map(|pause| of_pause(pause, w)));

    let of = |state: InstanceState| counts.iter().find(|(known, _)| *known == state).map_or(0, |(_, count)| *count);
    let minutes = console.api.pulse.hour(now);
    let (ended, failed): (u64, u64) = (minutes.iter().map(Minute::ended).sum(), minutes.iter().map(|minute| minute.failed).sum());
    let succeeded: u64 = minutes.iter().map(|minute| minute.succeeded).sum();
    let (bars, peak) = bars(&minutes, w);
    let page = OverviewPage {
        p: viewer.page(Nav::Overview, w.overview),
        w,
        is_down: concerns.iter().any(|concern| concern.kind == "bad"),
        concerns,
        running: Count(of(InstanceState::Running) + of(InstanceState::Dispatched)),
        waiting: Count(of(InstanceState::Waiting) + of(InstanceState::Created)),
        retrying: Count(of(InstanceState::Retrying)),
        inbox: Count(partitions.iter().map(|partition| partition.inbox).sum()),
        ended: Count(ended),
        failed: Count(failed),
        success: percent(succeeded, succeeded + failed),
        delay: Span(pulse::delay(&minutes, 50)),
        delay_most: Span(pulse::delay(&minutes, 99)),
        bars,
        peak,
        failures: failures.iter().map(|view| row(view, lang)).collect(),
        coming: coming(console, viewer, now, COMING).await?,
        workers: status.iter().flat_map(|status| &status.workers).filter(|worker| worker.is_connected).count(),
        slots: status.iter().flat_map(|status| &status.workers).map(|worker| worker.slots).sum(),
        held: status.iter().flat_map(|status| &status.workers).map(|worker| worker.held).sum(),
        is_cluster: replicas.len() > 1,
        replicas: replicas.iter().filter(|replica| replica.expires_at >= now).count(),
    };
    Ok(viewer.show(&page))
}

/// A share in percent; a dash where there is nothing to share.
fn percent(part: u64, all: u64) -> String {
    match all {
        0 => "–".to_owned(),
        // Not all of it is never 100 %.
        all if part < all => format!("{:.1} %", ((part * 1_000 / all) as f64 / 10.0)),
        _ => "100 %".to_owned(),
    }
}

pub(super) fn breaker_detail(breaker: &BreakerView, lang: Lang, w: &Words) -> String {
    let state = terms::breaker(&breaker.state, lang);
    w.breaker_detail
        .replace("{state}", state)
        .replace("{failures}", &breaker.failures.to_string())
        .replace("{held}", &breaker.held.to_string())
}

/// Bars on a field of 60 by 100, and what a full one stands for.
fn bars(minutes: &[Minute], w: &Words) -> (Vec<Bar>, u64) {
    let peak = minutes.iter().map(Minute::ended).max().unwrap_or(0);
    let scale = 100.0 / peak.max(1) as f64;
    let bar = |(place, minute): (usize, &Minute)| {
        let good = minute.succeeded + minute.left;
        // What is there can be seen.
        let height = |count: u64| if count == 0 { 0.0 } else { (count as f64 * scale).max(2.0) };
        let (succeeded, failed) = (height(good), height(minute.failed));
        let label = w.chart_bar.replace("{ago}", &(minutes.len() - 1 - place).to_string());
        let label = label.replace("{good}", &good.to_string()).replace("{bad}", &minute.failed.to_string());
        Bar { x: place, succeeded, succeeded_y: 100.0 - succeeded, failed, failed_y: (100.0 - succeeded - failed).max(0.0), label }
    };
    (minutes.iter().enumerate().map(bar).collect(), peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_whole_only_where_it_is() {
        assert_eq!((percent(0, 0).as_str(), percent(1, 1).as_str()), ("–", "100 %"));
        assert_eq!((percent(99_999, 100_000).as_str(), percent(1, 3).as_str()), ("99.9 %", "33.3 %"));
    }
}
