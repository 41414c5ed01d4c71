//! Single tasks: made, changed and removed through the API, their versions, and what differs between two.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_core::ids::{TaskId, Version};
use punctual_driver::ports::{Applied, Catalog, Clock, Edited, TaskEdit};
use punctual_driver::reading::{TASK_DAYS, TaskDay};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::extract::{Asked, Asker, Client, Document, IfMatch, Named, NamedVersion, check_characters};
use super::handed::check_handed;
use super::openapi::Tagged;
use super::reruns::Reason;
use super::tasks::{checked_limit, find};
use super::{Api, ApiError, fires, veil, views};
use crate::identity::Identity;

/// The source of tasks that are edited one by one.
const SOURCE: &str = "api";
/// Longest name of a source, in characters.
const SOURCE_CHARACTERS_MAX: usize = 256;
/// Fire times that the answer to an edit shows.
const SHOWN: usize = 10;
/// Differences that an answer names.
const DIFFERENCES_MAX: usize = 1_000;

/// How a task is edited.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct How {
    /// Only says what would be done, and when the task would fire.
    #[serde(default)]
    dry_run: bool,
    /// Also where another source has the task, such as a file: that one's next application takes it back.
    #[serde(default)]
    take_over: bool,
    /// The source that has the task afterwards; `api` where it is left out.
    #[schemars(length(min = 1, max = 256))]
    source: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
}

/// What became of an edit.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EditSaid {
    name: String,
    /// `created`, `changed`, `unchanged` or `removed`.
    outcome: &'static str,
    dry_run: bool,
    /// The version that is in force now; null where the task is not there.
    version: Option<u32>,
    /// The document in its one form, as it is kept.
    definition: Option<Value>,
    /// When it fires next by what it is now; fire times around which the clock is moved are marked.
    next_fires: Vec<views::FireShown>,
}

/// The ETag of a task, without its quotes.
pub(super) fn tag(version: Version) -> String {
    format!("v{}", version.0)
}

/// Makes a task, or changes it.
pub(crate) async fn put<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asker(identity): Asker,
    Asked(how): Asked<How>,
    IfMatch(expected): IfMatch,
    client: Client,
    Document(text): Document,
) -> Result<Tagged<EditSaid>, ApiError> {
    let document = super::sources::read(&api, &text).map_err(|problem| ApiError::BadRequest { field: "document", problem })?;
    if *document.definition.name != *name {
        let problem = format!("it is of the task {:?}, and the address of {name:?}", document.definition.name);
        return Err(ApiError::BadRequest { field: "name", problem });
    }
    super::sources::may_edit(&api, &identity, std::slice::from_ref(&document), &[]).await?;
    check_handed(&api, std::slice::from_ref(&document)).await?;
    let definition = document.definition.clone();
    let shown = serde_json::from_str(&document.document).ok();
    let edit = TaskEdit { source: source(&how)?, name: name.as_str().into(), document: Some(document), expected, take_over: how.take_over };
    let (dry_run, applied) = carry_out(&api, &identity, edit, how, client).await?;
    let now = api.clock.now().wall;
    let cursor = punctual_core::misfire::first(&definition.trigger, now).filter(|_| definition.enabled);
    let next_fires = if definition.enabled { fires::next(&definition.trigger, cursor, now, SHOWN) } else { Vec::new() };
    let version = api.store.task(name.as_str().into()).await?.map(|(view, _)| view).filter(|view| !view.removed);
    let version = version.map(|view| view.version);
    let outcome = match &applied {
        Applied { created, .. } if !created.is_empty() => "created",
        Applied { changed, .. } if !changed.is_empty() => "changed",
        _ => "unchanged",
    };
    let said = EditSaid { name, outcome, dry_run, version: version.map(|version| version.0), definition: shown, next_fires };
    Ok(Tagged { tag: tag(version.unwrap_or(Version(0))), is_known: false, body: Json(said) })
}

/// Removes a task. Its history stays.
pub(crate) async fn delete<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asker(identity): Asker,
    Asked(how): Asked<How>,
    IfMatch(expected): IfMatch,
    client: Client,
) -> Result<Json<EditSaid>, ApiError> {
    let edit = TaskEdit { source: source(&how)?, name: name.as_str().into(), document: None, expected, take_over: how.take_over };
    let (dry_run, _) = carry_out(&api, &identity, edit, how, client).await?;
    Ok(Json(EditSaid { name, outcome: "removed", dry_run, version: None, definition: None, next_fires: Vec::new() }))
}

fn source(how: &How) -> Result<Arc<str>, ApiError> {
    check_characters("source", how.source.as_deref(), SOURCE_CHARACTERS_MAX)?;
    match how.source.as_deref() {
        Some("") => Err(ApiError::BadRequest { field: "source", problem: "is empty".to_owned() }),
        source => Ok(Arc::from(source.unwrap_or(SOURCE))),
    }
}

async fn carry_out<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    edit: TaskEdit,
    how: How,
    client: Client,
) -> Result<(bool, Applied), ApiError> {
    let (task, own) = (edit.name.to_string(), [edit.name.clone()]);
    let actor = Reason { reason: how.reason, by: how.by }.actor(client)?;
    match api.store.edit(edit, actor, how.dry_run, api.clock.now().wall).await? {
        Edited::Done(applied) => {
            if !how.dry_run {
                api.signal();
            }
            Ok((how.dry_run, applied))
        }
        Edited::NoSuchTask => Err(ApiError::NoSuchTask { name: task }),
        Edited::OwnedBy { source } => Err(ApiError::OwnedBy { task, source_name: source }),
        Edited::Unexpected { is } => Err(ApiError::Unexpected { is }),
        Edited::Refused(problems) => Err(ApiError::Chains(veil::chains(api, identity, &own, problems).await?)),
    }
}

/// Which versions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// The `next` of the page before: versions below this one.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    after: Option<u32>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// Versions of a task, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Versions {
    versions: Vec<views::VersionShown>,
    next: Option<u32>,
}

/// Versions are counted from 1.
fn from_one(field: &'static str, version: Option<u32>) -> Result<(), ApiError> {
    match version {
        Some(0) => Err(ApiError::BadRequest { field, problem: "versions are counted from 1".to_owned() }),
        _ => Ok(()),
    }
}

pub(crate) async fn versions<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(page): Asked<Page>,
) -> Result<Json<Versions>, ApiError> {
    let limit = checked_limit(page.limit)?;
    from_one("after", page.after)?;
    let (_, versions) = find(&api, &name).await?;
    let behind: Vec<_> = versions.iter().filter(|version| page.after.is_none_or(|after| version.version.0 < after)).collect();
    let shown = &behind[..limit.min(behind.len())];
    let next = shown.last().map(|last| last.version.0).filter(|_| shown.len() < behind.len());
    Ok(Json(Versions { versions: shown.iter().copied().map(views::version).collect(), next }))
}

pub(crate) async fn version<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    NamedVersion(name, version): NamedVersion,
) -> Result<Json<views::VersionShown>, ApiError> {
    let (_, versions) = find(&api, &name).await?;
    let found = versions.iter().find(|known| known.version.0 == version);
    found.map(|known| Json(views::version(known))).ok_or(ApiError::NoSuchVersion { task: name, version })
}

/// Between which versions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Between {
    /// The older one, 0 for before there was one; the one before `to` where it is left out.
    #[schemars(range(max = 4_294_967_295_u32))]
    from: Option<u32>,
    /// The newer one; the newest where it is left out.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    to: Option<u32>,
}

/// What differs between two versions of a task.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Diff {
    /// 0: before there was one.
    from: u32,
    to: u32,
    differences: Vec<Difference>,
    /// Whether there are more than an answer names.
    more: bool,
}

/// A place of a document that differs.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Difference {
    /// Where: a JSON pointer (RFC 6901).
    path: String,
    /// What was there; null where nothing was.
    before: Option<Value>,
    /// What is there now; null where nothing is.
    after: Option<Value>,
}

pub(crate) async fn diff<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(between): Asked<Between>,
) -> Result<Json<Diff>, ApiError> {
    let (view, versions) = find(&api, &name).await?;
    from_one("to", between.to)?;
    let to = between.to.unwrap_or(view.version.0);
    let from = between.from.unwrap_or(to.saturating_sub(1));
    let document = |version: u32| -> Result<Value, ApiError> {
        // Before the first there was none.
        if version == 0 {
            return Ok(Value::Null);
        }
        let found = versions.iter().find(|known| known.version.0 == version);
        let found = found.ok_or_else(|| ApiError::NoSuchVersion { task: name.clone(), version })?;
        Ok(found.document.as_deref().and_then(|document| serde_json::from_str(document).ok()).unwrap_or(Value::Null))
    };
    let mut differences = Vec::new();
    compare(&document(from)?, &document(to)?, &mut String::new(), &mut differences);
    let more = differences.len() > DIFFERENCES_MAX;
    differences.truncate(DIFFERENCES_MAX);
    Ok(Json(Diff { from, to, differences, more }))
}

/// Objects are compared field by field; everything else as a whole. Documents are checked to be no deeper than this may go.
fn compare(before: &Value, after: &Value, path: &mut String, differences: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        let there = |value: &Value| Some(value.clone()).filter(|value| !value.is_null());
        differences.push(Difference { path: path.clone(), before: there(before), after: there(after) });
        return;
    };
    let mut names: Vec<_> = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).collect();
    names.sort_unstable();
    for name in names {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
        compare(&of(old), &of(new), path, differences);
        path.truncate(length);
    }
}

/// How many days.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Days {
    /// 30 where it is left out.
    #[schemars(range(min = 1, max = 30))]
    days: Option<i64>,
}

/// How the firings of a task ended, a day each.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskHealth")]
pub(crate) struct Health {
    task: String,
    /// The oldest first; days without any are left out.
    days: Vec<DayShown>,
}

/// A day, in UTC.
#[derive(Serialize, JsonSchema)]
struct DayShown {
    /// Such as 2026-11-29.
    day: String,
    succeeded: u64,
    /// Failed, ran out of time, or given up.
    failed: u64,
    /// Cancelled or left out.
    stopped: u64,
}

pub(crate) async fn health<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(asked): Asked<Days>,
) -> Result<Json<Health>, ApiError> {
    let days = asked.days.unwrap_or(30);
    if !(1..=TASK_DAYS - 2).contains(&days) {
        return Err(ApiError::BadRequest { field: "days", problem: format!("{days} is not within 1 to {}", TASK_DAYS - 2) });
    }
    let (view, _) = find(&api, &name).await?;
    let shown = days_of(&api, view.task, days).await?.into_iter().map(|day| DayShown {
        day: punctual_core::time::Timestamp(day.day * 86_400_000).to_string().chars().take(10).collect(),
        succeeded: day.succeeded,
        failed: day.failed,
        stopped: day.stopped,
    });
    Ok(Json(Health { task: name, days: shown.collect() }))
}

/// The last days of a task, the oldest first; those without any are left out.
pub(crate) async fn days_of<S: Catalog, C: Clock>(api: &Api<S, C>, task: TaskId, days: i64) -> Result<Vec<TaskDay>, ApiError> {
    Ok(api.store.task_days(task, TaskDay::of(api.clock.now().wall) - days + 1).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_by_their_place() {
        let differing = |before: Value, after: Value| {
            let mut differences = Vec::new();
            compare(&before, &after, &mut String::new(), &mut differences);
            let line = |one: Difference| format!("{} {} {}", one.path, one.before.unwrap_or_default(), one.after.unwrap_or_default());
            differences.into_iter().map(line).collect::<Vec<_>>()
        };
        let before = json!({ "name": "a", "retry": { "first": "1s", "cap": "1m" }, "a/b": { "~": 1 }, "tags": [1, 2] });
        let after = json!({ "name": "a", "retry": { "first": "2s" }, "a/b": { "~": 2 }, "tags": [1], "owner": "me" });
        let expected = ["/a~1b/~0 1 2", "/owner null \"me\"", "/retry/cap \"1m\" null", "/retry/first \"1s\" \"2s\"", "/tags [1,2] [1]"];
        assert_eq!(differing(before.clone(), after), expected);
        assert!(differing(before.clone(), before.clone()).is_empty());
        assert_eq!(differing(Value::Null, json!({ "name": "a" })), [" null {\"name\":\"a\"}"]);
    }
}
