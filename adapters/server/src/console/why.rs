//! Why something ran or did not, as the API says it.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use punctual_driver::ports::{Catalog, Clock};
use serde_json::Value;

use super::Console;
use super::accounts::time;
use super::error::{Answer, answered};
use super::form::{Fields, Query, segment};
use super::page::{Nav, Page, Viewer};
use super::show::MaybeTime;
use super::words::Words;

#[derive(Template)]
#[template(path = "console/why.html")]
struct WhyPage {
    p: Page,
    w: &'static Words,
    task: String,
    task_address: String,
    /// The instance that is explained; `None`: a time of the task.
    instance: Option<String>,
    /// The time that was asked for.
    at: String,
    says: Vec<String>,
    steps: Vec<Step>,
    /// Instances of the time.
    instances: Vec<String>,
}

/// A step of an instance's story.
struct Step {
    at: MaybeTime,
    says: String,
    then: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

pub(super) async fn instance<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Response {
    let answer = show_instance(&console, &viewer, &id).await;
    answered(&viewer, answer)
}

async fn show_instance<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, id: &str) -> Answer {
    let w = viewer.words();
    let explained = console.get(viewer, &["instances", id, "explain"], &[]).await?;
    let steps = explained["steps"].as_array().into_iter().flatten();
    let task = text(&explained["task"]);
    let page = WhyPage {
        p: viewer.page(Nav::Instances, format!("{id}: {}", w.why)),
        w,
        task_address: format!("/tasks/{}", segment(&task)),
        task,
        instance: Some(text(&explained["instance"])),
        at: String::new(),
        says: texts(&explained["summary"]),
        steps: steps
            .map(|step| Step { at: MaybeTime(time(&step["at"])), says: text(&step["says"]), then: text(&step["then_says"]) })
            .collect(),
        instances: Vec::new(),
    };
    Ok(viewer.show(&page))
}

pub(super) async fn task<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    viewer: Viewer,
    Path(name): Path<String>,
    Query(query): Query,
) -> Response {
    let answer = show_task(&console, &viewer, &name, &query).await;
    answered(&viewer, answer)
}

/// Without a time it is of the present.
async fn show_task<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, name: &str, query: &Fields) -> Answer {
    let w = viewer.words();
    let asked = query.get("at").map(str::trim).filter(|at| !at.is_empty());
    let at: Vec<_> = asked.map(|at| ("at", at)).into_iter().collect();
    let explained = console.get(viewer, &["tasks", name, "explain"], &at).await?;
    let page = WhyPage {
        p: viewer.page(Nav::Tasks, format!("{name}: {}", w.why)),
        w,
        task: name.to_owned(),
        task_address: format!("/tasks/{}", segment(name)),
        instance: None,
        at: asked.map_or_else(|| text(&explained["at"]), str::to_owned),
        says: texts(&explained["says"]),
        steps: Vec::new(),
        instances: texts(&explained["instances"]),
    };
    Ok(viewer.show(&page))
}
