//! Making and changing a task: its document in YAML or JSON, what is wrong with it, and when it would fire, before it is saved.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use punctual_driver::ports::{Catalog, Clock};
use punctual_spec::file::{FileTask, read_text};
use punctual_spec::problem::Problem;
use punctual_spec::spec::TaskSpec;

use sha2::{Digest, Sha256};

use super::Console;
use super::error::{Answer, ConsoleError, answered};
use super::fires::{self, Fires};
use super::form::{Fields, Form, Query, segment};
use super::instances::confirm;
use super::page::{Nav, Page, Viewer};
use super::runs::{Drawn, draw};
use super::tasks::{find, yaml};
use super::words::Words;
use crate::api::ApiError;
use crate::api::rules::group_in;
use crate::identity::Role;

/// Tasks that are made here have a source each, so that changing one says nothing of the others.
const CONSOLE_SOURCE: &str = "console/";
/// Longest name that is part of its source as it is, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Fire times that are shown ahead.
const AHEAD: usize = 10;

pub(super) fn is_console_source(source: &str) -> bool {
    source.starts_with(CONSOLE_SOURCE)
}

/// A long name goes by its digest: sources are shorter than names may be.
fn source_of(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return format!("{CONSOLE_SOURCE}{name}");
    }
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().fold(CONSOLE_SOURCE.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Something that is wrong, with its place in what was typed.
struct Wrong {
    code: &'static str,
    line: u32,
    column: u32,
    field: String,
    message: String,
    help: Option<String>,
}

/// What a document comes to.
struct Checked {
    wrong: Vec<Wrong>,
    /// How many there are, with those that are not listed.
    wrong_count: usize,
    refused: Option<(String, String)>,
    name: String,
    words: Vec<String>,
    fires: Fires,
    /// The nodes of a workflow, as they hang together.
    graph: Option<Drawn>,
}

#[derive(Template)]
#[template(path = "console/edit.html")]
struct EditPage {
    p: Page,
    w: &'static Words,
    /// The task that is changed; `None`: a new one.
    name: Option<String>,
    action: String,
    back: String,
    /// The version that is edited.
    version: u32,
    document: String,
    reason: String,
    checked: Option<Checked>,
    /// Who made the task, where that was not the console.
    source: Option<String>,
    may_remove: bool,
}

/// What a new task looks like.
const EXAMPLE: &str = "name: hello
description: Says hello each minute
trigger: {cron: \"* * * * *\", timezone: UTC}
command: echo hello
retry: {max_attempts: 3, first: 10s}
timeout: 1m
";

pub(super) async fn new<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show_new(&console, &viewer, query.get("like")).await;
    answered(&viewer, answer)
}

async fn show_new<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, like: Option<&str>) -> Answer {
    viewer.require(Role::Editor, None)?;
    let document = match like {
        Some(name) => find(console, name)
            .await
            .map(|(view, _)| TaskSpec::from_json(&view.document).map_or_else(|_| view.document.to_string(), |spec| yaml(&spec)))?,
        None => EXAMPLE.to_owned(),
    };
    let checked = Some(look(console, viewer, &document).1);
    Ok(viewer.show_form(&page(viewer, None, document, String::new(), checked, None)))
}

pub(super) async fn edit<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Path(name): Path<String>) -> Response {
    let answer = show_edit(&console, &viewer, &name).await;
    answered(&viewer, answer)
}

async fn show_edit<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, name: &str) -> Answer {
    let (view, _) = find(console, name).await?;
    let spec = TaskSpec::from_json(&view.document);
    viewer.require(Role::Editor, spec.as_ref().ok().and_then(|spec| spec.group.as_deref()))?;
    let document = spec.map_or_else(|_| view.document.to_string(), |spec| yaml(&spec));
    let source = foreign_source(console, viewer, name).await?;
    let checked = Some(look(console, viewer, &document).1);
    Ok(viewer.show_form(&EditPage { version: view.version.0, ..page(viewer, Some(name), document, String::new(), checked, source) }))
}

/// Nothing is said of a task that they don't see: whatever name may be asked for.
async fn foreign_source<S: Catalog, C: Clock>(
    console: &Console<S, C>,
    viewer: &Viewer,
    name: &str,
) -> Result<Option<String>, ConsoleError> {
    let task = console.api.store.task_now(Arc::from(name)).await?;
    let is_seen = |document: &str| viewer.identity.may(Role::Viewer, group_in(document).as_deref());
    Ok(task
        .filter(|task| is_seen(&task.document))
        .map(|task| task.source)
        .filter(|source| !is_console_source(source))
        .map(|source| source.to_string()))
}

fn page(
    viewer: &Viewer,
    name: Option<&str>,
    document: String,
    reason: String,
    checked: Option<Checked>,
    source: Option<String>,
) -> EditPage {
    let w = viewer.words();
    let title = name.map_or_else(|| w.new_task.to_owned(), |name| format!("{name}: {}", w.edit));
    let (action, back) = match name {
        Some(name) => (format!("/tasks/{}/edit", segment(name)), format!("/tasks/{}", segment(name))),
        None => ("/tasks".to_owned(), "/tasks".to_owned()),
    };
    EditPage {
        p: viewer.page(Nav::Tasks, title),
        w,
        may_remove: name.is_some() && source.is_none(),
        name: name.map(str::to_owned),
        action,
        back,
        version: 0,
        document,
        reason,
        checked,
        source,
    }
}

/// The version that a form says it edits; 0 where it doesn't.
fn version_of(fields: &Fields) -> u32 {
    fields.get("version").and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Reads the document of one task: the entry of a task file, or a file with that one task.
fn read<S, C>(console: &Console<S, C>, document: &str) -> Result<FileTask, Result<(Vec<Problem>, usize), ConsoleError>> {
    let is_file = document.lines().any(|line| line.starts_with("tasks:"));
    // As a list of one entry: the entry's first line stands behind its dash, all others below it.
    let text = if is_file { document.to_owned() } else { entry(document) };
    match read_text("", &text, &console.api.zones) {
        Ok(mut file) if file.tasks.len() == 1 => Ok(file.tasks.remove(0)),
        Ok(file) => Err(Err(ConsoleError::NotOneTask { count: file.tasks.len() })),
        Err(mut problems) => {
            if !is_file {
                for problem in &mut problems.problems {
                    problem.line = problem.line.saturating_sub(1);
                    problem.column = problem.column.saturating_sub(4);
                    problem.field = problem.field.trim_start_matches("tasks[0].").trim_start_matches("tasks[0]").to_owned();
                }
            }
            Err(Ok((problems.problems, problems.left_out)))
        }
    }
}

fn entry(document: &str) -> String {
    let mut text = String::from("tasks:\n");
    let mut is_first = true;
    for line in document.lines() {
        let is_blank = line.trim().is_empty() || line.trim_start().starts_with('#');
        text.push_str(if is_first && !is_blank { "  - " } else { "    " });
        is_first &= is_blank;
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What is wrong with a document, or what it comes to.
fn look<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, document: &str) -> (Option<FileTask>, Checked) {
    let (w, lang) = (viewer.words(), viewer.lang);
    let nothing = || Checked {
        wrong: Vec::new(),
        wrong_count: 0,
        refused: None,
        name: String::new(),
        words: Vec::new(),
        fires: Fires::default(),
        graph: None,
    };
    match read(console, document) {
        Ok(task) => {
            let now = console.api.clock.now().wall;
            let checked = Checked {
                name: task.spec.name.clone(),
                words: fires::trigger_in_words(&task.spec, &task.definition, lang, w),
                fires: fires::fires(&task.definition, None, now, AHEAD, lang),
                graph: draw(&task.definition, &[], None, lang),
                ..nothing()
            };
            (Some(task), checked)
        }
        Err(Ok((problems, more))) => {
            let wrong = |problem: Problem| Wrong {
                code: problem.code.as_str(),
                line: problem.line,
                column: problem.column,
                field: problem.field,
                message: problem.message,
                help: problem.help,
            };
            let wrong: Vec<_> = problems.into_iter().map(wrong).collect();
            (None, Checked { wrong_count: wrong.len() + more, wrong, ..nothing() })
        }
        Err(Err(error)) => (None, Checked { refused: Some((error.code().to_owned(), error.reason(w))), ..nothing() }),
    }
}

/// Checks and shows what was typed; nothing is saved.
pub(super) async fn check<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Form { viewer, fields }: Form) -> Response {
    let document = newlines(fields.text("document"));
    let (_, checked) = look(&console, &viewer, &document);
    let name = fields.get("name");
    let source = match name {
        Some(name) => match foreign_source(&console, &viewer, name).await {
            Ok(source) => source,
            Err(error) => return error.page(&viewer),
        },
        None => None,
    };
    viewer.show_form(&EditPage {
        version: version_of(&fields),
        ..page(&viewer, name, document, fields.text("reason").to_owned(), Some(checked), source)
    })
}

/// A form ends its lines as the protocol of old wants it.
fn newlines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

pub(super) async fn create<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, form: Form) -> Response {
    let answer = store(&console, &form, None).await;
    answered(&form.viewer, answer)
}

pub(super) async fn save<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = store(&console, &form, Some(&name)).await;
    answered(&form.viewer, answer)
}

async fn store<S: Catalog, C: Clock>(console: &Console<S, C>, form: &Form, name: Option<&str>) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let document = newlines(fields.text("document"));
    let source = match name {
        Some(name) => foreign_source(console, viewer, name).await?,
        None => None,
    };
    let again = |checked: Checked, source: Option<String>| {
        let page = page(viewer, name, document.clone(), fields.text("reason").to_owned(), Some(checked), source);
        let page = EditPage { version: version_of(fields), ..page };
        Ok(viewer.show_as(StatusCode::UNPROCESSABLE_ENTITY, &page))
    };
    let refuse = |mut checked: Checked, error: ConsoleError, source| {
        checked.refused = Some((error.code().to_owned(), error.reason(w)));
        again(checked, source)
    };
    let (task, checked) = look(console, viewer, &document);
    let Some(task) = task else { return again(checked, source) };
    let spec = &task.spec;
    viewer.require(Role::Editor, spec.group.as_deref())?;
    let existing = console.api.store.task(Arc::from(spec.name.as_str())).await?.filter(|(view, _)| !view.removed);
    if let Some((view, _)) = &existing
        && !viewer.identity.may(Role::Viewer, group_in(&view.document).as_deref())
    {
        return refuse(checked, ApiError::OutOfReach.into(), source);
    }
    match name {
        None if existing.is_some() => return refuse(checked, ConsoleError::NameTaken { name: spec.name.clone() }, source),
        // Another name would be another task.
        Some(name) if name != spec.name => {
            let problem = w.error_renamed.replace("{}", name);
            return refuse(checked, ConsoleError::BadForm { field: "name".to_owned(), problem }, source);
        }
        _ => {}
    }
    if let Some((view, _)) = &existing {
        let old = TaskSpec::from_json(&view.document).ok().and_then(|spec| spec.group);
        viewer.require(Role::Editor, old.as_deref())?;
    }
    let own = source_of(&spec.name);
    let take_over = if fields.has("take_over") { "true" } else { "" };
    let query = [("source", &*own), ("take_over", take_over), ("by", &*viewer.identity.name), ("reason", fields.text("reason").trim())];
    // What was read must still be what is there.
    let condition = match name {
        None => (header::IF_NONE_MATCH, "*".to_owned()),
        Some(_) => match version_of(fields) {
            0 => (header::IF_MATCH, "*".to_owned()),
            version => (header::IF_MATCH, format!("\"v{version}\"")),
        },
    };
    match console.put_task(viewer, &spec.name, &query, condition, spec.to_json()).await {
        Ok(answer) => {
            let told = match answer["outcome"].as_str() {
                Some("created") => w.done_created,
                // One of that name was removed before.
                Some("changed") if existing.is_none() => w.done_created,
                Some("changed") => w.done_saved,
                _ => w.done_unchanged,
            };
            Ok(viewer.go(&format!("/tasks/{}", segment(&spec.name)), true, &told.replace("{}", &spec.name)))
        }
        Err(error) => match others_task(error, &spec.name, source.as_deref()) {
            error if matches!(error.status(), StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED) => {
                refuse(checked, error, source)
            }
            error => Err(error),
        },
    }
}

/// That the task is of another source, in words for people: the API's speak of a parameter.
fn others_task(error: ConsoleError, name: &str, source: Option<&str>) -> ConsoleError {
    match (error.code(), source) {
        ("PUN-441", Some(source)) => ConsoleError::OthersTask { name: name.to_owned(), source: source.to_owned() },
        _ => error,
    }
}

pub(super) async fn remove<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, Path(name): Path<String>, form: Form) -> Response {
    let answer = do_remove(&console, &name, &form).await;
    answered(&form.viewer, answer)
}

async fn do_remove<S: Catalog, C: Clock>(console: &Console<S, C>, name: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let (view, _) = find(console, name).await?;
    viewer.require(Role::Editor, TaskSpec::from_json(&view.document).ok().and_then(|spec| spec.group).as_deref())?;
    if view.removed {
        return Err(ApiError::NoSuchTask { name: name.to_owned() }.into());
    }
    let source = foreign_source(console, viewer, name).await?;
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &w.ask_remove.replace("{}", name), w.remove, &format!("/tasks/{}", segment(name))));
    }
    let own = source_of(name);
    let query = [("source", &*own), ("by", &*viewer.identity.name), ("reason", fields.text("reason").trim())];
    let removed = console.delete_task(viewer, name, &query).await;
    removed.map_err(|error| others_task(error, name, source.as_deref()))?;
    Ok(viewer.go("/tasks", true, &w.done_removed.replace("{}", name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_a_task_is_an_entry_of_a_file() {
        assert_eq!(
            entry("# why\n\nname: a\ncommand: |\n  x\n\n  y\n"),
            "tasks:\n    # why\n    \n  - name: a\n    command: |\n      x\n    \n      y\n"
        );
        assert_eq!(entry("{\"name\": \"a\",\n \"command\": \"b\"}"), "tasks:\n  - {\"name\": \"a\",\n     \"command\": \"b\"}\n");
    }
}
