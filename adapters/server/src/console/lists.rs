//! Dead letters, backfills, pauses, and what is on record of people.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use punctual_core::backfill::{BackfillRow, BackfillState};
use punctual_driver::ports::{Catalog, Clock, PauseTarget, PauseView};
use serde_json::{Value, json};

use super::call::reason;
use super::error::{Answer, ConsoleError, answered};
use super::form::{Fields, Form, Query, address, segment};
use super::instances::{Row, confirm, row};
use super::page::{Lang, Nav, Page, Viewer};
use super::show::{MaybeTime, Time};
use super::tasks::group_of;
use super::words::Words;
use super::{Console, terms};
use crate::api::sight::Sight;
use crate::api::{self, audit, backfills, dead_letters, pauses};
use crate::identity::Role;

/// Rows of a page.
const PAGE: usize = 50;
/// Backfills that are shown.
const BACKFILLS: usize = 100;

#[derive(Template)]
#[template(path = "console/dead_letters.html")]
struct DeadLettersPage {
    p: Page,
    /// Of one group at least.
    may_settle: bool,
    w: &'static Words,
    task: String,
    rows: Vec<Row>,
    next: Option<String>,
    newest: Option<String>,
}

pub(super) async fn dead_letters_page<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Query(query): Query,
) -> Response {
    let answer = show_dead_letters(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_dead_letters<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let w = viewer.words();
    let task = query.get("task").unwrap_or_default().trim().to_owned();
    let asked = Some(task.clone()).filter(|task| !task.is_empty());
    let filter =
        dead_letters::Filter { task: asked, after: query.get("before").map(str::to_owned), limit: Some(PAGE), ..Default::default() };
    let (found, next) = dead_letters::page_of(&console.api, &viewer.identity, filter).await?;
    let next = next.map(|next| address("/dead-letters", &[("task", &task), ("before", &api::cursor(next))]));
    let page = DeadLettersPage {
        p: viewer.page(Nav::DeadLetters, w.dead_letters),
        may_settle: viewer.identity.may_somewhere(Role::Operator),
        w,
        newest: query.has("before").then(|| address("/dead-letters", &[("task", &task)])),
        task,
        rows: found.iter().map(|view| row(view, viewer.lang)).collect(),
        next,
    };
    Ok(viewer.show(&page))
}

pub(super) async fn replay<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = settle(&console, &form, "replay").await;
    answered(&form.viewer, answer)
}

pub(super) async fn discard<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = settle(&console, &form, "discard").await;
    answered(&form.viewer, answer)
}

/// Those that are ticked, or all of a task.
async fn settle<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form, verb: &str) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let mut body = reason(fields);
    let ids: Vec<_> = fields.all("id").filter(|id| !id.is_empty()).collect();
    let count = match (fields.get("task"), fields.has("all")) {
        (Some(task), true) => {
            viewer.require(Role::Operator, group_of(console, task).await?.as_deref())?;
            body["task"] = json!(task);
            w.all_of_task.replace("{}", task)
        }
        (None, true) => {
            viewer.require(Role::Operator, None)?;
            body["all"] = json!(true);
            w.all.to_owned()
        }
        _ if ids.is_empty() => {
            return Err(ConsoleError::BadForm { field: w.selection.to_owned(), problem: w.error_nothing_selected.to_owned() });
        }
        _ => {
            for id in &ids {
                let view = super::instances::find(console, id).await?;
                super::instances::require(console, viewer, &view).await?;
            }
            body["instances"] = json!(ids);
            ids.len().to_string()
        }
    };
    let (ask, label) = match verb {
        "replay" => (w.ask_replay, w.replay),
        _ => (w.ask_discard, w.discard),
    };
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &ask.replace("{}", &count), label, "/dead-letters"));
    }
    let answer = console.post(viewer, &["dead-letters", verb], body).await?;
    let length = |field: &str| answer[field].as_array().map_or(0, Vec::len);
    let done = length("replayed") + length("repeated") + length("discarded");
    let told = if verb == "replay" { w.done_replayed } else { w.done_discarded };
    let mut text = told.replace("{}", &done.to_string());
    let refused = answer["refused"].as_array().cloned().unwrap_or_default();
    if let Some(first) = refused.first() {
        let first = format!("{}: {}", first["code"].as_str().unwrap_or_default(), first["detail"].as_str().unwrap_or_default());
        text = format!("{text} {}", w.done_refused.replace("{n}", &refused.len().to_string()).replace("{first}", &first));
    }
    if answer["more"] == Value::Bool(true) {
        text = format!("{text} {}", w.done_more);
    }
    Ok(viewer.go("/dead-letters", refused.is_empty(), &text))
}

/// A backfill in a list.
pub(super) struct BackfillLine {
    pub(super) id: String,
    pub(super) task: Arc<str>,
    pub(super) task_address: String,
    pub(super) state: &'static str,
    pub(super) is_running: bool,
    pub(super) total: usize,
    pub(super) ended: u32,
    pub(super) first: MaybeTime,
    pub(super) last: MaybeTime,
    pub(super) at: Time,
    pub(super) by: Arc<str>,
    pub(super) reason: Option<Arc<str>>,
    pub(super) address: String,
    pub(super) may_cancel: bool,
}

pub(super) fn backfill_line(row: &BackfillRow, task: Arc<str>, lang: Lang, may_operate: bool) -> BackfillLine {
    let times = || row.plan.fire_times.iter().copied();
    BackfillLine {
        id: row.id.to_string(),
        task_address: format!("/tasks/{}", segment(&task)),
        task,
        state: terms::backfill(row.state, lang),
        may_cancel: may_operate && row.state == BackfillState::Running,
        is_running: row.state == BackfillState::Running,
        total: row.plan.fire_times.len(),
        ended: row.ended,
        first: MaybeTime(times().min()),
        last: MaybeTime(times().max()),
        at: Time(row.at),
        by: row.by.clone(),
        reason: row.plan.reason.clone(),
        address: format!("/backfills/{}/cancel", row.id),
    }
}

#[derive(Template)]
#[template(path = "console/backfills.html")]
struct BackfillsPage {
    p: Page,
    w: &'static Words,
    rows: Vec<BackfillLine>,
    is_live: bool,
}

pub(super) async fn backfills<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    let answer = show_backfills(&console, &viewer).await;
    answered(&viewer, answer)
}

async fn show_backfills<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let w = viewer.words();
    let (mut rows, mut acts) = (Vec::new(), Sight::new(&console.api, &viewer.identity, Role::Operator));
    for (row, task) in backfills::of_all(&console.api, &viewer.identity, BACKFILLS).await? {
        let may_operate = acts.task(&task).await?;
        rows.push(backfill_line(&row, task, viewer.lang, may_operate));
    }
    let is_live = rows.iter().any(|row| row.is_running);
    Ok(viewer.show(&BackfillsPage { p: viewer.page(Nav::Backfills, w.backfills), w, rows, is_live }))
}

pub(super) async fn cancel_backfill<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    Path(id): Path<String>,
    form: Form,
) -> Response {
    let answer = do_cancel_backfill(&console, &id, &form).await;
    answered(&form.viewer, answer)
}

async fn do_cancel_backfill<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &w.ask_cancel_backfill.replace("{}", id), w.cancel_yes, "/backfills"));
    }
    console.post(viewer, &["backfills", id, "cancel"], reason(fields)).await?;
    Ok(viewer.go("/backfills", true, &w.done_backfill_cancelled.replace("{}", id)))
}

/// A pause in the list.
struct PauseLine {
    what: &'static str,
    name: String,
    address: Option<String>,
    kind: &'static str,
    since: Time,
    by: Arc<str>,
    why: Option<Arc<str>>,
    may_resume: bool,
}

#[derive(Template)]
#[template(path = "console/pauses.html")]
struct PausesPage {
    p: Page,
    /// Of one group at least.
    may_pause: bool,
    w: &'static Words,
    rows: Vec<PauseLine>,
    is_all_paused: bool,
}

pub(super) async fn pauses<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    let answer = show_pauses(&console, &viewer).await;
    answered(&viewer, answer)
}

async fn show_pauses<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let w = viewer.words();
    let pauses = pauses::seen(&console.api, &viewer.identity).await?;
    let line = |pause: &PauseView, may_resume: bool| {
        let (what, kind, address) = match &pause.target {
            PauseTarget::All => (w.everything, "all", None),
            PauseTarget::Group(group) => (w.fact_group, "group", Some(super::form::address("/tasks", &[("group", group)]))),
            PauseTarget::Task(task) => (w.task, "task", Some(format!("/tasks/{}", segment(task)))),
            PauseTarget::Worker(_) => (w.worker, "worker", Some("/workers".to_owned())),
        };
        let (by, why) = (pause.actor.by.clone(), pause.actor.why.clone());
        PauseLine { what, name: pause.target.name().to_owned(), address, kind, since: Time(pause.since), by, why, may_resume }
    };
    let mut acts = Sight::new(&console.api, &viewer.identity, Role::Operator);
    let mut rows = Vec::with_capacity(pauses.len());
    for pause in &pauses {
        let may_resume = match &pause.target {
            PauseTarget::All | PauseTarget::Worker(_) => acts.is_whole(),
            PauseTarget::Group(group) => acts.group(Some(group)),
            PauseTarget::Task(task) => acts.task(task).await?,
        };
        rows.push(line(pause, may_resume));
    }
    let page = PausesPage {
        p: viewer.page(Nav::Pauses, w.pauses),
        w,
        is_all_paused: pauses.iter().any(|pause| pause.target == PauseTarget::All),
        rows,
        may_pause: viewer.identity.may_somewhere(Role::Operator),
    };
    Ok(viewer.show(&page))
}

/// Makes a pause, or lifts it: `verb` says which, `kind` and `name` of what.
pub(super) async fn set_pause<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = do_set_pause(&console, &form).await;
    answered(&form.viewer, answer)
}

async fn do_set_pause<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let is_paused = fields.get("verb") != Some("resume");
    let verb = if is_paused { "pause" } else { "resume" };
    let name = fields.get("name").unwrap_or_default();
    let (path, shown): (Vec<&str>, String) = match fields.get("kind") {
        Some("task") => (vec!["tasks", name, verb], name.to_owned()),
        Some("group") => (vec!["groups", name, verb], format!("{} {name}", w.fact_group)),
        Some("worker") => (vec!["workers", name, if is_paused { "drain" } else { "undrain" }], name.to_owned()),
        _ => (vec![verb], w.everything.to_owned()),
    };
    let group = match fields.get("kind") {
        Some("task") => group_of(console, name).await?,
        Some("group") => Some(name.to_owned()),
        _ => None,
    };
    viewer.require(Role::Operator, group.as_deref())?;
    let (page, asked, verb) = match fields.get("kind") {
        Some("worker") => ("/workers", w.ask_drain, w.drain),
        _ => ("/pauses", w.ask_pause, w.pause),
    };
    if is_paused && !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &asked.replace("{}", &shown), verb, page));
    }
    console.post(viewer, &path, reason(fields)).await?;
    let told = match (fields.get("kind"), is_paused) {
        (Some("worker"), true) => w.done_drained,
        (Some("worker"), false) => w.done_undrained,
        (_, true) => w.done_paused,
        (_, false) => w.done_resumed,
    };
    Ok(viewer.go(page, true, &told.replace("{}", &shown)))
}

/// A write by a person.
struct AuditLine {
    at: Time,
    by: Arc<str>,
    from: Option<Arc<str>>,
    why: Option<Arc<str>>,
    action: &'static str,
    task: Option<(Arc<str>, String)>,
    instance: Option<String>,
    subject: Option<Arc<str>>,
}

#[derive(Template)]
#[template(path = "console/audit.html")]
struct AuditPage {
    p: Page,
    w: &'static Words,
    task: String,
    rows: Vec<AuditLine>,
    next: Option<String>,
    newest: Option<String>,
}

pub(super) async fn audit_page<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Query(query): Query,
) -> Response {
    let answer = show_audit(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_audit<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let w = viewer.words();
    let task = query.get("task").unwrap_or_default().trim().to_owned();
    let number = |text: &str| text.parse().map_err(|_| ConsoleError::BadForm { field: "before".to_owned(), problem: text.to_owned() });
    let before = query.get("before").map(number).transpose()?;
    let asked = Some(task.clone()).filter(|task| !task.is_empty());
    let filter = audit::Filter { task: asked, after: before, limit: Some(PAGE), ..Default::default() };
    let (found, next) = audit::page_of(&console.api, &viewer.identity, filter).await?;
    let next = next.map(|next| address("/audit", &[("task", &task), ("before", &next.to_string())]));
    let rows = found.into_iter().map(|audit| AuditLine {
        at: Time(audit.at),
        by: audit.actor.by,
        from: audit.actor.from,
        why: audit.actor.why,
        action: terms::action(audit.action, viewer.lang),
        task: audit.task.map(|task| {
            let address = format!("/tasks/{}", segment(&task));
            (task, address)
        }),
        instance: audit.instance.map(|id| id.to_string()),
        subject: audit.subject,
    });
    let page = AuditPage {
        p: viewer.page(Nav::Audit, w.audit),
        w,
        newest: query.has("before").then(|| address("/audit", &[("task", &task)])),
        task,
        rows: rows.collect(),
        next,
    };
    Ok(viewer.show(&page))
}
