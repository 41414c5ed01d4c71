//! Instances: list, the whole story of one, and what people do with one.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use punctual_core::batch::Output;
use punctual_core::instance::{InstanceRow, Part, State as InstanceState};
use punctual_core::text::cut_to_width;
use punctual_core::time::Millis;
use punctual_driver::ports::{Catalog, Clock, InstanceCursor, InstanceFilter, InstanceView};
use punctual_spec::spec::TaskSpec;
use serde_json::json;

use super::Console;
use super::call::reason;
use super::error::{Answer, ConsoleError, answered};
use super::fires;
use super::form::{self, Fields, Form, Query, address, segment};
use super::logs::{Log, SHOWN};
use super::page::{Lang, Nav, Page, Viewer};
use super::runs::{Drawn, NodeLine, draw, node_lines};
use super::show::{Badge, MaybeTime, Span, Time};
use super::terms;
use super::words::Words;
use crate::api::instances::{Filter, page_of};
use crate::api::{self, ApiError, views};
use crate::identity::Role;

/// Instances of a page.
const PAGE: usize = 50;
/// Most bytes of an attempt's output that a page shows: the end of it.
const OUTPUT_SHOWN: usize = 64 << 10;

/// An instance in a list.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) badge: Badge,
    pub(super) task: Arc<str>,
    pub(super) task_address: String,
    pub(super) fire_time: Time,
    pub(super) origin: &'static str,
    pub(super) attempt: u32,
    pub(super) run: u32,
    pub(super) took: Span,
    pub(super) ended: MaybeTime,
    pub(super) detail: String,
    pub(super) part: String,
}

/// How long it took from its first assignment, so far or in all.
fn took(row: &InstanceRow) -> Option<Millis> {
    let begun =
        row.transitions.iter().find(|transition| transition.to == InstanceState::Dispatched || transition.to == InstanceState::Running)?;
    Some(row.ended_at()?.since(begun.at))
}

pub(super) fn row(view: &InstanceView, lang: Lang) -> Row {
    let row = &view.row;
    let last = row.transitions.last();
    let detail = match last.and_then(|last| last.detail.as_deref()) {
        Some(detail) => cut_to_width(detail.lines().next().unwrap_or_default(), 140),
        None if row.state == InstanceState::Succeeded => String::new(),
        None => last.map_or("", |last| terms::cause(last.cause, lang)).to_owned(),
    };
    Row {
        id: row.id.to_string(),
        address: format!("/instances/{}", row.id),
        badge: Badge(row.state, lang),
        task: view.task_name.clone(),
        task_address: format!("/tasks/{}", segment(&view.task_name)),
        fire_time: Time(row.fire_time),
        origin: terms::origin(row.origin, lang),
        attempt: row.attempt,
        run: row.run,
        took: Span(took(row)),
        ended: MaybeTime(row.ended_at()),
        detail,
        part: part(row),
    }
}

/// Which part of a firing it is, in short.
fn part(row: &InstanceRow) -> String {
    let shard = row.part.shard_index().zip(row.links.as_deref());
    let shard = shard.map(|(index, links)| match &links.shard_key {
        Some(key) => format!("{}/{} {key}", index + 1, links.shards),
        None => format!("{}/{}", index + 1, links.shards),
    });
    let node = row.part.node_index().map(|node| format!("#{}", node + 1));
    [node, shard].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A choice of a field.
pub(super) struct Choice {
    pub(super) value: &'static str,
    pub(super) label: &'static str,
    pub(super) is_chosen: bool,
}

#[derive(Template)]
#[template(path = "console/instances.html")]
struct InstancesPage {
    p: Page,
    w: &'static Words,
    task: String,
    group: String,
    key: String,
    states: Vec<Choice>,
    parts: bool,
    /// What the page wants to hear of.
    events: String,
    rows: Vec<Row>,
    next: Option<String>,
    newest: Option<String>,
}

pub(super) async fn list<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show_list(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_list<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let (w, lang) = (viewer.words(), viewer.lang);
    let text = |name: &str| query.get(name).unwrap_or_default().trim().to_owned();
    let (task, group, key, state, parts) = (text("task"), text("group"), text("key"), text("state"), query.has("parts"));
    let asked = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let filter = Filter {
        task: asked(&task),
        group: asked(&group),
        key: asked(&key),
        state: asked(&state),
        after: query.get("before").map(str::to_owned),
        limit: Some(PAGE),
        parts,
        ..Filter::default()
    };
    let (found, next) = page_of(&console.api, &viewer.identity, filter).await?;
    let parts_text = if parts { "1" } else { "" };
    let kept =
        [("task", task.as_str()), ("group", group.as_str()), ("state", state.as_str()), ("key", key.as_str()), ("parts", parts_text)];
    let next = next.map(|next| {
        let before = api::cursor(next);
        address("/instances", &[kept.as_slice(), &[("before", &before)]].concat())
    });
    let choice =
        |known: &InstanceState| Choice { value: known.name(), label: terms::state(*known, lang), is_chosen: known.name() == state };
    let page = InstancesPage {
        p: viewer.page(Nav::Instances, w.instances),
        w,
        newest: query.has("before").then(|| address("/instances", &kept)),
        events: form::events("task", &task),
        states: InstanceState::ALL.iter().map(choice).collect(),
        task,
        group,
        key,
        parts,
        rows: found.iter().map(|view| row(view, lang)).collect(),
        next,
    };
    Ok(viewer.show(&page))
}

/// A line of the timeline.
struct Step {
    at: Time,
    badge: Badge,
    kind: &'static str,
    cause: &'static str,
    detail: Option<Arc<str>>,
    worker: Option<String>,
    code: Option<i32>,
}

/// An attempt with what it wrote.
struct AttemptLine {
    number: u32,
    worker: String,
    took: Span,
    badge: Badge,
    code: Option<i32>,
}

struct OutputBlock {
    attempt: u32,
    text: String,
    /// Bytes that are not shown, at the beginning or in between.
    missing: u64,
}

#[derive(Template)]
#[template(path = "console/instance.html")]
struct InstancePage {
    p: Page,
    w: &'static Words,
    id: String,
    address: String,
    row: Row,
    is_live: bool,
    /// What the page wants to hear of: nodes and shards are of the same task.
    events: String,
    is_terminal: bool,
    version: u32,
    fire_local: Option<String>,
    created: Time,
    due: MaybeTime,
    worker: Option<String>,
    payload: Option<Arc<str>>,
    result: Option<Arc<str>>,
    key: Option<Arc<str>>,
    parent: Option<String>,
    caused_by: Option<String>,
    node: Option<String>,
    losses: u32,
    failures: u32,
    steps: Vec<Step>,
    attempts: Vec<AttemptLine>,
    log: Log,
    outputs: Vec<OutputBlock>,
    nodes: Vec<NodeLine>,
    graph: Option<Drawn>,
    /// Shards and items, the last ones first, where there are any.
    parts: Vec<Row>,
    parts_address: String,
    is_run: bool,
    may_operate: bool,
    may_skip: bool,
    is_part: bool,
    /// Most lines of the log that are shown.
    log_shown: usize,
    /// What may be said of a node, with the words for it.
    marks: [(&'static str, &'static str); 3],
}

pub(super) async fn detail<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Path(id): Path<String>,
    Query(query): Query,
) -> Response {
    let answer = show(&console, &viewer, &id, &query).await;
    answered(&viewer, answer)
}

pub(super) async fn find<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str) -> Result<InstanceView, ConsoleError> {
    let gone = || ApiError::NoSuchInstance { id: id.to_owned() };
    let parsed = id.parse().map_err(|()| gone())?;
    Ok(console.api.store.instance(parsed).await?.ok_or_else(gone)?)
}

async fn show<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, id: &str, query: &Fields) -> Answer {
    let (w, lang, store) = (viewer.words(), viewer.lang, &console.api.store);
    let mut view = find(console, id).await?;
    api::veil::instances(&console.api, &viewer.identity, std::slice::from_mut(&mut view)).await?;
    let log = Log::of(console, &view, query).await?;
    let outputs = store.outputs(view.row.id).await?;
    let instance = &view.row;
    let versions = store.task(view.task_name.clone()).await?.map(|(_, versions)| versions).unwrap_or_default();
    let document = versions.iter().find(|version| version.version == instance.version).and_then(|version| version.document.clone());
    let group = document.as_deref().and_then(|document| TaskSpec::from_json(document).ok()).and_then(|spec| spec.group);
    let definition = document.as_deref().and_then(|document| punctual_spec::decode(document, &console.api.zones).ok());
    let mut nodes = if instance.is_run() { store.nodes(instance.id).await? } else { Vec::new() };
    api::veil::instances(&console.api, &viewer.identity, &mut nodes).await?;
    let workflow = definition.as_ref().and_then(|definition| definition.workflow.as_ref());
    let node = instance.part.node_index().zip(workflow).and_then(|(node, workflow)| {
        let node = punctual_core::workflow::NodeIndex(node);
        workflow.graph().contains(node).then(|| workflow.graph().name(node).to_string())
    });
    let zone = definition.as_ref().and_then(fires::zone);
    let steps = instance.transitions.iter().map(|step| Step {
        at: Time(step.at),
        badge: Badge(step.to, lang),
        kind: step.to.name(),
        cause: terms::cause(step.cause, lang),
        detail: step.detail.clone(),
        worker: step.worker.as_ref().map(ToString::to_string),
        code: step.code,
    });
    let attempts = views::attempts(instance).into_iter().map(|attempt| AttemptLine {
        number: attempt.number,
        worker: attempt.assigned.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        took: Span(attempt.ended.map(|ended| ended.at.since(attempt.assigned.at))),
        badge: Badge(attempt.ended.map_or(instance.state, |ended| ended.to), lang),
        code: attempt.ended.and_then(|ended| ended.code),
    });
    let (parts, parts_address) = parts_of(console, &view, lang).await?;
    let is_terminal = instance.state.is_terminal();
    let may_operate = viewer.identity.may(Role::Operator, group.as_deref());
    let page = InstancePage {
        p: viewer.page(Nav::Instances, format!("{} {}", view.task_name, instance.id)),
        w,
        id: instance.id.to_string(),
        address: format!("/instances/{}", instance.id),
        row: row(&view, lang),
        is_live: !is_terminal,
        events: match instance.has_parts() {
            true => form::events("task", &view.task_name),
            false => form::events("instance", &instance.id.to_string()),
        },
        is_terminal,
        version: instance.version.0,
        fire_local: zone.and_then(|zone| fires::in_zone(instance.fire_time, zone)),
        created: Time(instance.created_at()),
        due: MaybeTime(instance.due_at.filter(|_| !is_terminal)),
        worker: instance.worker.as_ref().map(|worker| worker.id.to_string()),
        payload: instance.payload.clone(),
        result: instance.result.clone(),
        key: instance.key.clone(),
        parent: instance.parent().map(|id| id.to_string()),
        caused_by: instance.links.as_deref().and_then(|links| links.cause).map(|id| id.to_string()),
        node,
        losses: instance.losses,
        failures: instance.failures,
        steps: steps.collect(),
        attempts: attempts.collect(),
        outputs: outputs
            .iter()
            .filter(|(attempt, _)| !log.attempts.contains(attempt) && !log.is_chosen)
            .map(|(attempt, output)| block(*attempt, output))
            .collect(),
        log,
        nodes: workflow
            .map(|workflow| node_lines(workflow.graph(), &nodes, instance.id, may_operate, lang))
            .filter(|_| instance.is_run())
            .unwrap_or_default(),
        graph: definition.as_ref().filter(|_| instance.is_run()).and_then(|definition| draw(definition, &nodes, Some(instance.id), lang)),
        parts,
        parts_address,
        is_run: instance.is_run(),
        may_operate,
        may_skip: instance.attempt == 0 && matches!(instance.state, InstanceState::Waiting | InstanceState::Created),
        is_part: instance.parent().is_some(),
        log_shown: SHOWN,
        marks: [("succeeded", w.mark_succeeded), ("failed", w.mark_failed), ("skipped", w.skip)],
    };
    Ok(viewer.show(&page))
}

/// The shards and items of a firing or of a node, and where all of them are: in the list they come right before the whole.
async fn parts_of<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    view: &InstanceView,
    lang: Lang,
) -> Result<(Vec<Row>, String), ConsoleError> {
    let whole = InstanceCursor::of(&view.row);
    if !view.row.has_parts() || view.row.is_run() {
        return Ok((Vec::new(), String::new()));
    }
    let end = view.row.part.node_index().map_or(Part(i64::MAX as u64), |node| Part::node(node.saturating_add(1)));
    let before = InstanceCursor { part: end, ..whole };
    let filter = InstanceFilter { task: Some(view.task_name.clone()), before: Some(before), limit: PAGE, ..InstanceFilter::default() };
    let found = console.api.store.instances(filter).await?;
    let parts = found.iter().take_while(|found| InstanceCursor::of(&found.row) > whole).map(|found| row(found, lang)).collect();
    Ok((parts, address("/instances", &[("task", &view.task_name), ("parts", "1"), ("before", &api::cursor(before))])))
}

/// What an attempt wrote, the end of it where it is long. Bytes that are not UTF-8 show as replacement characters.
fn block(attempt: u32, output: &Output) -> OutputBlock {
    let begin = output.bytes.len().saturating_sub(OUTPUT_SHOWN);
    let text = String::from_utf8_lossy(&output.bytes[begin..]).into_owned();
    OutputBlock { attempt, text, missing: begin as u64 + output.dropped }
}

#[derive(Template)]
#[template(path = "console/confirm.html")]
struct ConfirmPage<'a> {
    p: Page,
    w: &'static Words,
    question: &'a str,
    verb: &'a str,
    /// Where the form goes: to where it came from.
    action: String,
    back: &'a str,
    fields: Vec<(String, String)>,
}

/// Asks again before something is done that can't be undone: for browsers that run no script, which asks on the page itself.
pub(super) fn confirm(viewer: &Viewer, fields: &Fields, question: &str, verb: &str, back: &str) -> Response {
    let w = viewer.words();
    let (p, action) = (viewer.page(Nav::None, w.confirm), viewer.address.clone());
    viewer.show_form(&ConfirmPage { p, w, question, verb, action, back, fields: fields.others() })
}

macro_rules! endings {
    ($($handler:ident, $verb:literal, $ask:ident, $label:ident, $done:ident;)*) => { $(
        pub(super) async fn $handler<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(id): Path<String>, form: Form) -> Response {
            let w = form.viewer.words();
            let answer = end(&console, &id, &form, $verb, [w.$ask, w.$label, w.$done]).await;
            answered(&form.viewer, answer)
        }
    )* };
}
endings! {
    cancel, "cancel", ask_cancel, cancel_yes, done_cancelled;
    kill, "kill", ask_kill, kill, done_killed;
    skip, "skip", ask_skip, skip, done_skipped;
}

/// Whether somebody may act on an instance goes by the group of its task.
pub(super) async fn require<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    viewer: &Viewer,
    view: &InstanceView,
) -> Result<(), ConsoleError> {
    let task = console.api.store.task(view.task_name.clone()).await?;
    let group = task.and_then(|(task, _)| TaskSpec::from_json(&task.document).ok()).and_then(|spec| spec.group);
    viewer.require(Role::Operator, group.as_deref())
}

async fn end<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str, form: &Form, verb: &str, [ask, label, done]: [&str; 3]) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let view = find(console, id).await?;
    require(console, viewer, &view).await?;
    let back = format!("/instances/{}", view.row.id);
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &ask.replace("{}", id), label, &back));
    }
    let answer = console.post(viewer, &["instances", id, verb], reason(fields)).await?;
    Ok(match answer["cancelled"].as_bool() {
        Some(false) => viewer.go(&back, false, &w.done_ended_before.replace("{}", id)),
        _ => viewer.go(&back, true, &done.replace("{}", id)),
    })
}

pub(super) async fn rerun<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(id): Path<String>, form: Form) -> Response {
    let answer = do_rerun(&console, &id, &form).await;
    answered(&form.viewer, answer)
}

async fn do_rerun<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let view = find(console, id).await?;
    require(console, viewer, &view).await?;
    let mut body = reason(fields);
    let from: Vec<_> = fields.all("from").filter(|node| !node.is_empty()).collect();
    if !from.is_empty() {
        body["from"] = json!(from);
        body["cascade"] = json!(fields.has("cascade"));
    }
    if fields.has("all") {
        body["all"] = json!(true);
    }
    let answer = console.post(viewer, &["instances", id, "rerun"], body).await?;
    let to = answer["instance"]["id"].as_str().unwrap_or(id);
    Ok(viewer.go(&format!("/instances/{to}"), true, &w.done_rerun.replace("{}", id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_output_the_end_is_shown() {
        let output = Output { bytes: [vec![b'a'; 10], vec![b'b'; OUTPUT_SHOWN]].concat(), dropped: 5 };
        let shown = block(1, &output);
        assert_eq!((shown.text.len(), shown.missing, shown.text.starts_with('b')), (OUTPUT_SHOWN, 15, true));
        assert_eq!(block(1, &Output { bytes: vec![0xff, b'x'], dropped: 0 }).text, "\u{fffd}x");
    }
}
