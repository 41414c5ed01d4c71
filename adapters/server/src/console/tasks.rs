//! Tasks: list, detail, what changed between versions, and what people do with one.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::Version;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Clock, InstanceFilter, PauseTarget, PauseView, TaskView, VersionView};
use punctual_spec::emit;
use punctual_spec::spec::{Handler, TaskSpec};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::Console;
use super::call::{Call, reason};
use super::edit::is_console_source;
use super::error::{Answer, ConsoleError, answered};
use super::fires::{self, Fires};
use super::form::{self, Form, Query, address, segment};
use super::health::{self, Health};
use super::instances::{Row, confirm, row};
use super::lists::{BackfillLine, backfill_line};
use super::page::{Nav, Page, Viewer};
use super::runs::{Drawn, draw};
use super::show::{Dot, MaybeTime, Time};
use super::terms;
use super::words::Words;
use crate::api::ApiError;
use crate::api::fires::{ComingOf, tasks_until, times};
use crate::api::tasks::{Filter, page_of};
use crate::identity::Role;

/// Tasks of a page.
const PAGE: usize = 40;
/// Results that stand beside a task.
const RESULTS: usize = 12;
/// Tasks whose fire times the overview compares, and how far ahead.
const COMPARED_MAX: usize = 500;
const AHEAD_MAX: Millis = Millis::from_secs(93 * 86_400);
/// Fire times that are shown ahead.
const AHEAD: usize = 10;
/// A fire time that came so lately is still being fired.
const JUST_DUE_MS: i64 = 10_000;
const RECENT: usize = 12;
const OCCURRENCES: usize = 12;
const BACKFILLS: usize = 5;

/// A result beside a task, as a mark that leads to its instance.
struct Outcome {
    address: String,
    dot: Dot,
}

/// A task in the list.
struct Line {
    name: Arc<str>,
    address: String,
    description: Option<String>,
    trigger: String,
    zone: String,
    next: MaybeTime,
    group: Option<String>,
    owner: Option<String>,
    is_workflow: bool,
    is_enabled: bool,
    is_paused: bool,
    results: Vec<Outcome>,
    health: Health,
}

#[derive(Template)]
#[template(path = "console/tasks.html")]
struct TasksPage {
    p: Page,
    w: &'static Words,
    q: String,
    group: String,
    owner: String,
    state: String,
    tasks: Vec<Line>,
    next: Option<String>,
    /// Whether the page has fewer than fit, with more behind it.
    is_short: bool,
    is_filtered: bool,
    is_first: bool,
}

pub(super) fn is_paused(pauses: &[PauseView], name: &str, group: Option<&str>) -> bool {
    pauses.iter().any(|pause| match &pause.target {
        PauseTarget::All => true,
        PauseTarget::Group(paused) => Some(&**paused) == group,
        PauseTarget::Task(paused) => &**paused == name,
        PauseTarget::Worker(_) => false,
    })
}

pub(super) async fn list<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show_list(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

async fn show_list<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &super::form::Fields) -> Answer {
    let w = viewer.words();
    let text = |name: &str| query.get(name).unwrap_or_default().trim().to_owned();
    let (q, group, owner, state) = (text("q"), text("group"), text("owner"), text("state"));
    let asked = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let filter = Filter {
        after: query.get("after").map(str::to_owned),
        limit: Some(PAGE),
        text: asked(&q),
        group: asked(&group),
        owner: asked(&owner),
        enabled: matches!(&*state, "enabled" | "disabled").then_some(state == "enabled"),
        paused: matches!(&*state, "enabled" | "paused").then_some(state == "paused"),
        workflow: (state == "workflow").then_some(true),
        ..Filter::default()
    };
    let (found, pauses, next) = page_of(&console.api, &viewer.identity, &filter).await?;
    let mut tasks = Vec::with_capacity(found.len());
    for view in found {
        // What this program can't read is shown by its name.
        let spec = TaskSpec::from_json(&view.document).ok();
        let is_paused = is_paused(&pauses, &view.name, spec.as_ref().and_then(|spec| spec.group.as_deref()));
        tasks.push(line(console, viewer, view, spec, is_paused).await?);
    }
    let is_filtered = [&q, &group, &owner, &state].iter().any(|text| !text.is_empty());
    let next =
        next.map(|after| address("/tasks", &[("q", &q), ("group", &group), ("owner", &owner), ("state", &state), ("after", &after)]));
    let page = TasksPage {
        p: viewer.page(Nav::Tasks, w.tasks),
        w,
        is_short: next.is_some() && tasks.len() < PAGE,
        is_filtered,
        q,
        group,
        owner,
        state,
        tasks,
        next,
        is_first: !query.has("after"),
    };
    Ok(viewer.show(&page))
}

async fn line<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    viewer: &Viewer,
    view: TaskView,
    spec: Option<TaskSpec>,
    is_paused: bool,
) -> Result<Line, ConsoleError> {
    let w = viewer.words();
    let filter = InstanceFilter { task: Some(view.name.clone()), whole: true, limit: RESULTS, ..InstanceFilter::default() };
    let latest = console.api.store.instances(filter).await?;
    let results = latest
        .iter()
        .rev()
        .map(|latest| Outcome { address: format!("/instances/{}", latest.row.id), dot: Dot(latest.row.state, viewer.lang) });
    let results = results.collect();
    let health = health::of(console, viewer, view.task).await?;
    let next = next_fire(console, &view, spec.as_ref()).filter(|_| !is_paused);
    let name = view.name;
    let address = format!("/tasks/{}", segment(&name));
    Ok(match spec {
        None => Line {
            name,
            address,
            description: None,
            trigger: w.unreadable.to_owned(),
            zone: String::new(),
            next: MaybeTime(next),
            group: None,
            owner: None,
            is_workflow: false,
            is_enabled: true,
            is_paused,
            results,
            health,
        },
        Some(spec) => Line {
            name,
            address,
            trigger: fires::trigger_in_short(&spec, w),
            zone: match &spec.trigger {
                punctual_spec::spec::Trigger::Cron(cron) => cron.timezone.clone(),
                _ => String::new(),
            },
            next: MaybeTime(next),
            is_workflow: !spec.nodes.is_empty(),
            is_enabled: spec.enabled,
            is_paused,
            results,
            health,
            description: spec.description,
            group: spec.group,
            owner: spec.owner,
        },
    })
}

/// When a task fires next: its cursor, unless that stands on a fire time that the task leaves out.
fn next_fire<S, C>(console: &Console<S, C>, view: &TaskView, spec: Option<&TaskSpec>) -> Option<Timestamp> {
    let cursor = view.next_fire?;
    let leaves_out = spec.is_some_and(|spec| spec.timing.calendar.is_some() || !spec.timing.blackouts.is_empty());
    if !leaves_out {
        return Some(cursor);
    }
    let definition = punctual_spec::decode(&view.document, &console.api.zones).ok()?;
    fires::next_of(&definition, Some(cursor))
}

/// A fire time to come.
pub(super) struct Coming {
    pub(super) name: Arc<str>,
    pub(super) address: String,
    pub(super) at: Time,
    pub(super) trigger: String,
}

/// What fires next, of what somebody sees.
pub(super) async fn coming<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    viewer: &Viewer,
    now: Timestamp,
    count: usize,
) -> Result<Vec<Coming>, ConsoleError> {
    let until = now.saturating_add(AHEAD_MAX);
    let (known, ..) = tasks_until(&console.api, &viewer.identity, now, until, COMPARED_MAX).await?;
    let behind = Timestamp(now.0.saturating_sub(JUST_DUE_MS));
    let mut coming = Vec::new();
    for ComingOf { task, definition, paused } in known {
        let Some(spec) = TaskSpec::from_json(&task.document).ok().filter(|spec| spec.enabled && !paused) else { continue };
        let Some(at) = times(&definition.trigger, Some(task.next_fire), behind).next() else { continue };
        let trigger = fires::trigger_in_short(&spec, viewer.words());
        coming.push((at, Coming { address: format!("/tasks/{}", segment(&task.name)), name: task.name, at: Time(at), trigger }));
    }
    coming.sort_by_key(|(at, _)| *at);
    Ok(coming.into_iter().take(count).map(|(_, coming)| coming).collect())
}

/// A fire time that was not fired.
struct Missed {
    first: Time,
    last: Option<Time>,
    count: u64,
    why: &'static str,
    instance: Option<String>,
}

/// A version.
struct VersionLine {
    number: u32,
    at: Time,
    by: Arc<str>,
    is_removal: bool,
    /// Where its changes are shown.
    changes: Option<String>,
}

/// A pause that holds a task.
struct Held {
    what: String,
    by: Arc<str>,
    why: Option<Arc<str>>,
    since: Time,
    is_own: bool,
}

/// A fact about a task, in words.
struct Fact {
    label: &'static str,
    value: String,
}

#[derive(Template)]
#[template(path = "console/task.html")]
struct TaskPage {
    p: Page,
    w: &'static Words,
    name: Arc<str>,
    address: String,
    description: Option<String>,
    version: u32,
    is_removed: bool,
    is_enabled: bool,
    is_workflow: bool,
    /// What this program can't read of it.
    unreadable: Option<String>,
    is_own_pause: bool,
    held: Vec<Held>,
    words: Vec<String>,
    zone: String,
    next: MaybeTime,
    next_local: Option<String>,
    fires: Fires,
    facts: Vec<Fact>,
    health: Health,
    /// What the page wants to hear of.
    events: String,
    instances: Vec<Row>,
    instances_address: String,
    missed: Vec<Missed>,
    backfills: Vec<BackfillLine>,
    graph: Option<Drawn>,
    yaml: String,
    versions: Vec<VersionLine>,
    source: Option<String>,
    payload: String,
    key: String,
    has_timetable: bool,
    may_operate: bool,
    may_edit: bool,
}

pub(super) async fn detail<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let answer = show(&console, &viewer, &name).await;
    answered(&viewer, answer)
}

/// A task, also a removed one.
pub(super) async fn find<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str) -> Result<(TaskView, Vec<VersionView>), ConsoleError> {
    let found = console.api.store.task(Arc::from(name)).await?;
    found.ok_or_else(|| ApiError::NoSuchTask { name: name.to_owned() }.into())
}

/// The group of a task, for whoever asks whether somebody may act on it.
pub(super) async fn group_of<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str) -> Result<Option<String>, ConsoleError> {
    let (view, _) = find(console, name).await?;
    Ok(TaskSpec::from_json(&view.document).ok().and_then(|spec| spec.group))
}

async fn show<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, name: &str) -> Answer {
    let (w, lang, store) = (viewer.words(), viewer.lang, &console.api.store);
    let (view, versions) = find(console, name).await?;
    let now = console.api.clock.now().wall;
    let spec = TaskSpec::from_json(&view.document).ok();
    let (definition, unreadable) = match punctual_spec::decode(&view.document, &console.api.zones) {
        Ok(definition) => (Some(definition), None),
        Err(findings) => (None, Some(findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    };
    let group = spec.as_ref().and_then(|spec| spec.group.clone());
    let held: Vec<_> = held(&store.pauses().await?, name, group.as_deref(), w);
    let filter = InstanceFilter { task: Some(view.name.clone()), whole: true, limit: RECENT, ..InstanceFilter::default() };
    let mut instances = store.instances(filter).await?;
    crate::api::veil::instances(&console.api, &viewer.identity, &mut instances).await?;
    let occurrences = store.occurrences(view.name.clone(), OCCURRENCES).await?;
    let backfills = store.backfills(Some(view.task), BACKFILLS).await?;
    let zone = definition.as_ref().and_then(fires::zone);
    let next = next_fire(console, &view, spec.as_ref()).filter(|_| held.is_empty() && !view.removed);
    let may_operate = viewer.identity.may(Role::Operator, group.as_deref());
    let page = TaskPage {
        p: viewer.page(Nav::Tasks, name),
        w,
        address: format!("/tasks/{}", segment(name)),
        description: spec.as_ref().and_then(|spec| spec.description.clone()),
        version: view.version.0,
        is_removed: view.removed,
        is_enabled: spec.as_ref().is_none_or(|spec| spec.enabled),
        is_workflow: spec.as_ref().is_some_and(|spec| !spec.nodes.is_empty()),
        unreadable,
        is_own_pause: held.iter().any(|held| held.is_own),
        held,
        words: spec
            .as_ref()
            .zip(definition.as_ref())
            .map(|(spec, definition)| fires::trigger_in_words(spec, definition, lang, w))
            .unwrap_or_default(),
        zone: zone.and_then(|zone| zone.iana_name()).unwrap_or_default().to_owned(),
        next: MaybeTime(next),
        next_local: next.zip(zone).and_then(|(next, zone)| fires::in_zone(next, zone)),
        fires: definition
            .as_ref()
            .filter(|_| !view.removed)
            .map(|definition| fires::fires(definition, view.next_fire, now, AHEAD, lang))
            .unwrap_or_default(),
        facts: spec.as_ref().map(|spec| facts(spec, w)).unwrap_or_default(),
        health: health::of(console, viewer, view.task).await?,
        events: form::events("task", name),
        instances: instances.iter().map(|view| row(view, lang)).collect(),
        instances_address: address("/instances", &[("task", name)]),
        missed: occurrences
            .iter()
            .map(|occurrence| Missed {
                first: Time(occurrence.first),
                last: (occurrence.count > 1).then_some(Time(occurrence.last)),
                count: occurrence.count,
                why: terms::outcome(occurrence.outcome, lang),
                instance: occurrence.instance.map(|id| id.to_string()),
            })
            .collect(),
        backfills: backfills.iter().map(|row| backfill_line(row, view.name.clone(), lang, may_operate)).collect(),
        graph: definition.as_ref().and_then(|definition| draw(definition, &[], None, lang)),
        yaml: spec.as_ref().map(yaml).unwrap_or_default(),
        versions: version_lines(name, &versions),
        source: (!is_console_source(&view.source)).then(|| view.source.to_string()),
        payload: spec.as_ref().and_then(|spec| spec.payload.clone()).unwrap_or_default(),
        key: format!("console-{}", now.0),
        has_timetable: definition.as_ref().is_some_and(has_timetable),
        may_operate: may_operate && !view.removed,
        may_edit: viewer.identity.may(Role::Editor, group.as_deref()),
        name: view.name,
    };
    Ok(viewer.show(&page))
}

fn has_timetable(definition: &TaskDefinition) -> bool {
    use punctual_core::definition::Trigger;
    match &definition.trigger {
        Trigger::Cron(_) | Trigger::FixedRate { .. } => true,
        Trigger::Timetable(_) => definition.trigger.fixed_delay().is_none(),
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => false,
    }
}

fn held(pauses: &[PauseView], name: &str, group: Option<&str>, w: &Words) -> Vec<Held> {
    let holds = pauses.iter().filter(|pause| is_paused(std::slice::from_ref(pause), name, group));
    let held = holds.map(|pause| Held {
        what: match &pause.target {
            PauseTarget::All => w.concern_paused_all.to_owned(),
            PauseTarget::Group(group) => w.concern_paused_group.replace("{}", group),
            PauseTarget::Task(_) | PauseTarget::Worker(_) => w.task_is_paused.to_owned(),
        },
        by: pause.actor.by.clone(),
        why: pause.actor.why.clone(),
        since: Time(pause.since),
        is_own: matches!(pause.target, PauseTarget::Task(_)),
    });
    held.collect()
}

fn facts(spec: &TaskSpec, w: &Words) -> Vec<Fact> {
    let document = serde_json::to_value(spec).unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{key} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    };
    let handler = match &spec.handler {
        Handler::Command(_) => w.handler_command.to_owned(),
        Handler::Http(_) => w.handler_http.to_owned(),
        Handler::Custom(custom) => custom.name.clone(),
        Handler::None => w.handler_nodes.replace("{}", &spec.nodes.len().to_string()),
    };
    let mut facts = vec![Fact { label: w.fact_handler, value: handler }];
    let fields = [
        (w.fact_owner, "owner"),
        (w.fact_group, "group"),
        (w.fact_retry, "retry"),
        (w.fact_timeout, "timeout"),
        (w.fact_concurrency, "concurrency"),
        (w.fact_misfire, "misfire"),
        (w.fact_priority, "priority"),
        (w.fact_rate, "rate_limit"),
        (w.fact_routing, "routing"),
        (w.fact_downstream, "downstream"),
        (w.fact_shards, "shards"),
    ];
    facts.extend(
        fields
            .into_iter()
            .filter_map(|(label, field)| Some(Fact { label, value: text(document.get(field)?) }))
            .filter(|fact| !fact.value.is_empty()),
    );
    facts
}

/// A task as its author may write it: the one entry of a task file, without the list around it.
pub(super) fn yaml(spec: &TaskSpec) -> String {
    let file = emit::to_yaml(std::slice::from_ref(spec), &[]);
    let lines = file.lines().skip(1).map(|line| line.get(4..).unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn version_lines(name: &str, versions: &[VersionView]) -> Vec<VersionLine> {
    let line = |version: &VersionView| VersionLine {
        number: version.version.0,
        at: Time(version.at),
        by: version.by.clone(),
        is_removal: version.document.is_none(),
        changes: (version.version.0 > 1).then(|| {
            let to = version.version.0;
            address(&format!("/tasks/{}/changes", segment(name)), &[("from", &(to - 1).to_string()), ("to", &to.to_string())])
        }),
    };
    versions.iter().map(line).collect()
}

/// A line of a comparison.
struct DiffLine {
    kind: &'static str,
    sign: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "console/changes.html")]
struct ChangesPage {
    p: Page,
    w: &'static Words,
    name: String,
    address: String,
    from: u32,
    to: u32,
    numbers: Vec<u32>,
    by: Arc<str>,
    at: Time,
    lines: Vec<DiffLine>,
    is_same: bool,
}

pub(super) async fn changes<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Path(name): Path<String>,
    Query(query): Query,
) -> Response {
    let answer = show_changes(&console, &viewer, &name, &query).await;
    answered(&viewer, answer)
}

async fn show_changes<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, name: &str, query: &super::form::Fields) -> Answer {
    let w = viewer.words();
    let (_, versions) = find(console, name).await?;
    let newest = versions.first().map_or(1, |version| version.version.0);
    let number = |field: &str, default: u32| query.get(field).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (from, to) = (number("from", newest.saturating_sub(1).max(1)), number("to", newest));
    let of = |wanted: u32| versions.iter().find(|version| version.version == Version(wanted));
    let missing = |field: &str| ConsoleError::BadForm { field: field.to_owned(), problem: w.error_no_version.to_owned() };
    let (older, newer) = (of(from).ok_or_else(|| missing("from"))?, of(to).ok_or_else(|| missing("to"))?);
    let text = |version: &VersionView| match &version.document {
        Some(document) => TaskSpec::from_json(document).map_or_else(|_| document.to_string(), |spec| yaml(&spec)),
        None => String::new(),
    };
    let (before, after) = (text(older), text(newer));
    let diff = TextDiff::from_lines(&before, &after);
    let lines = diff.iter_all_changes().map(|change| {
        let (kind, sign) = match change.tag() {
            ChangeTag::Equal => ("same", " "),
            ChangeTag::Delete => ("gone", "−"),
            ChangeTag::Insert => ("new", "+"),
        };
        DiffLine { kind, sign, text: change.value().trim_end_matches('\n').to_owned() }
    });
    let page = ChangesPage {
        p: viewer.page(Nav::Tasks, format!("{name}: {}", w.changes)),
        w,
        address: format!("/tasks/{}", segment(name)),
        name: name.to_owned(),
        from,
        to,
        numbers: versions.iter().map(|version| version.version.0).collect(),
        by: newer.by.clone(),
        at: Time(newer.at),
        lines: lines.collect(),
        is_same: before == after,
    };
    Ok(viewer.show(&page))
}

pub(super) async fn trigger<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = do_trigger(&console, &name, &form).await;
    answered(&form.viewer, answer)
}

async fn do_trigger<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    viewer.require(Role::Operator, group_of(console, name).await?.as_deref())?;
    let mut body = reason(fields);
    if let Some(payload) = fields.get("payload") {
        body["payload"] = json!(payload);
    }
    if let Some(seconds) = fields.get("delay_s") {
        let bad = || ConsoleError::BadForm { field: w.delay_seconds.to_owned(), problem: w.error_number.replace("{}", seconds) };
        let seconds: u64 = seconds.trim().parse().map_err(|_| bad())?;
        body["delay_ms"] = json!(seconds.saturating_mul(1_000));
    }
    // A second click on the same page is the same trigger.
    let call = Call { viewer, method: Method::POST, path: &["tasks", name, "trigger"], query: &[], body, key: fields.get("key") };
    let answer = console.call(call).await?;
    let to = match answer["instance"]["id"].as_str() {
        Some(id) => format!("/instances/{id}"),
        None => format!("/tasks/{}", segment(name)),
    };
    Ok(viewer.go(&to, true, &w.done_triggered.replace("{}", name)))
}

pub(super) async fn pause<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = set_pause(&console, &name, &form, true).await;
    answered(&form.viewer, answer)
}

pub(super) async fn resume<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = set_pause(&console, &name, &form, false).await;
    answered(&form.viewer, answer)
}

async fn set_pause<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str, form: &Form, is_paused: bool) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    viewer.require(Role::Operator, group_of(console, name).await?.as_deref())?;
    if is_paused && !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &w.ask_pause.replace("{}", name), w.pause, &format!("/tasks/{}", segment(name))));
    }
    let verb = if is_paused { "pause" } else { "resume" };
    console.post(viewer, &["tasks", name, verb], reason(fields)).await?;
    let told = if is_paused { w.done_paused } else { w.done_resumed };
    Ok(viewer.go(&format!("/tasks/{}", segment(name)), true, &told.replace("{}", name)))
}

#[derive(Template)]
#[template(path = "console/backfill.html")]
struct BackfillPage {
    p: Page,
    w: &'static Words,
    name: String,
    address: String,
    count: u64,
    passed_over: u64,
    times: Vec<Time>,
    is_more: bool,
    fields: Vec<(String, String)>,
}

pub(super) async fn backfill<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = do_backfill(&console, &name, &form).await;
    answered(&form.viewer, answer)
}

/// First what it would do, then it.
async fn do_backfill<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    viewer.require(Role::Operator, group_of(console, name).await?.as_deref())?;
    // The browser's field has neither seconds nor a zone: it is UTC, as its label says.
    let instant = |field: &str| match fields.text(field).trim() {
        text if text.ends_with('Z') || text.is_empty() => text.to_owned(),
        text if text.len() == "2026-11-01T00:00".len() => format!("{text}:00Z"),
        text => format!("{text}Z"),
    };
    let mut body = reason(fields);
    body["from"] = json!(instant("from"));
    body["to"] = json!(instant("to"));
    body["order"] = json!(fields.get("order").unwrap_or("oldest"));
    body["again"] = json!(fields.has("again"));
    if let Some(text) = fields.get("concurrency") {
        let bad = || ConsoleError::BadForm { field: w.concurrency.to_owned(), problem: w.error_number.replace("{}", text) };
        body["concurrency"] = json!(text.trim().parse::<u32>().map_err(|_| bad())?);
    }
    let address = format!("/tasks/{}", segment(name));
    if fields.has("confirmed") {
        console.post(viewer, &["tasks", name, "backfills"], body).await?;
        return Ok(viewer.go(&address, true, &w.done_backfill.replace("{}", name)));
    }
    body["dry_run"] = json!(true);
    let answer = console.post(viewer, &["tasks", name, "backfills"], body).await?;
    let times = answer["fire_times"].as_array().into_iter().flatten().filter_map(|at| at.as_str()?.parse::<jiff::Timestamp>().ok());
    let page = BackfillPage {
        p: viewer.page(Nav::Tasks, format!("{name}: {}", w.backfill)),
        w,
        name: name.to_owned(),
        address,
        count: answer["count"].as_u64().unwrap_or(0),
        passed_over: answer["passed_over"].as_u64().unwrap_or(0),
        times: times.map(|at| Time(Timestamp(at.as_millisecond()))).collect(),
        is_more: !answer["next"].is_null(),
        fields: fields.others(),
    };
    Ok(viewer.show(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_reads_as_it_may_be_written() {
        let mut spec = TaskSpec::new("a: b", punctual_spec::spec::Trigger::Manual, Handler::None);
        spec.description = Some("two\nlines".to_owned());
        let text = yaml(&spec);
        assert!(text.starts_with("name:"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("- ")), "{text}");
    }
}
