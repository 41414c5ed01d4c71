//! Workflows: the graph as a drawing, with how the nodes of a run stand, and what people say of a node.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, State as InstanceState};
use punctual_core::workflow::{Graph, NodeIndex};
use punctual_driver::ports::{Catalog, Clock, InstanceView};
use serde_json::json;

use super::Console;
use super::call::reason;
use super::error::{Answer, ConsoleError, answered};
use super::form::Form;
use super::graph::{self, HEIGHT, WIDTH, lay_out};
use super::instances::{confirm, find, require};
use super::page::Lang;
use super::show::{Badge, Span};
use super::{form, terms};

/// Characters of a name that fit into a box.
const NAME_CHARS: usize = 19;
/// Most nodes that are listed.
const LISTED_MAX: usize = 1_000;

/// A node's box.
struct NodeBox {
    x: f64,
    y: f64,
    name: String,
    full: String,
    state: &'static str,
    label: &'static str,
    address: String,
}

/// A line between boxes.
struct Line {
    path: String,
    /// The state that it comes from.
    state: &'static str,
}

/// A workflow as an image.
#[derive(Template)]
#[template(path = "console/graph.html")]
pub(super) struct Drawn {
    width: f64,
    height: f64,
    box_width: f64,
    box_height: f64,
    boxes: Vec<NodeBox>,
    lines: Vec<Line>,
    label: &'static str,
}

impl askama::filters::HtmlSafe for Drawn {}

/// The row that counts of a node: what was said of it last, or else its own.
fn row_of(nodes: &[InstanceView], node: NodeIndex) -> Option<&InstanceRow> {
    nodes.iter().rev().map(|view| &view.row).find(|row| row.part.node_index() == Some(node.0))
}

/// Draws a workflow, where it is one that anybody can follow.
pub(super) fn draw(definition: &TaskDefinition, nodes: &[InstanceView], run: Option<InstanceId>, lang: Lang) -> Option<Drawn> {
    let graph = definition.workflow.as_ref()?.graph();
    if graph.len() > graph::NODES_MAX || graph.edges() > graph::EDGES_MAX {
        return None;
    }
    let order: Vec<usize> = graph.order().iter().map(|node| node.place()).collect();
    let upstreams: Vec<Vec<usize>> =
        graph.nodes().map(|node| graph.upstreams(node).iter().map(|upstream| upstream.place()).collect()).collect();
    let drawing = lay_out(&order, &upstreams);
    let state_of = |node: NodeIndex| row_of(nodes, node).map(|row| row.state);
    let states: Vec<Option<InstanceState>> = graph.nodes().map(state_of).collect();
    // Of a run, what has not begun waits; of the workflow itself nothing does.
    let shown = |place: usize| match (states[place], run) {
        (Some(state), _) => (state.name(), terms::state(state, lang)),
        (None, Some(_)) => (InstanceState::Waiting.name(), terms::state(InstanceState::Waiting, lang)),
        (None, None) => ("plain", ""),
    };
    let boxes = graph.nodes().map(|node| {
        let (state, label) = shown(node.place());
        let full = graph.name(node).to_string();
        let name = match full.char_indices().nth(NAME_CHARS) {
            Some((end, _)) => format!("{}…", &full[..end]),
            None => full.clone(),
        };
        let (x, y) = drawing.nodes[node.place()];
        let address = row_of(nodes, node).map_or_else(String::new, |row| format!("/instances/{}", row.id));
        NodeBox { x, y, name, full, state, label, address }
    });
    Some(Drawn {
        width: drawing.width,
        height: drawing.height,
        box_width: WIDTH,
        box_height: HEIGHT,
        boxes: boxes.collect(),
        lines: drawing.edges.iter().map(|edge| Line { path: edge.path.clone(), state: shown(edge.from).0 }).collect(),
        label: lang.pick("graph of the workflow", "工作流图"),
    })
}

/// A node of a run in the table.
pub(super) struct NodeLine {
    pub(super) name: String,
    pub(super) after: String,
    pub(super) badge: Badge,
    pub(super) cause: &'static str,
    pub(super) detail: String,
    pub(super) took: Span,
    pub(super) address: Option<String>,
    pub(super) mark_address: String,
    /// It waits or has failed: people may say what it has come to.
    pub(super) may_be_marked: bool,
    pub(super) may_run_again: bool,
}

pub(super) fn node_lines(graph: &Graph, nodes: &[InstanceView], run: InstanceId, may_operate: bool, lang: Lang) -> Vec<NodeLine> {
    let line = |node: NodeIndex| {
        let row = row_of(nodes, node);
        let state = row.map_or(InstanceState::Waiting, |row| row.state);
        let last = row.and_then(|row| row.transitions.last());
        let upstreams: Vec<_> = graph.upstreams(node).iter().map(|upstream| &**graph.name(*upstream)).collect();
        let begun = row.and_then(|row| row.transitions.iter().find(|step| step.to == InstanceState::Dispatched));
        let is_open = matches!(
            state,
            InstanceState::Waiting
                | InstanceState::Failed
                | InstanceState::TimedOut
                | InstanceState::DeadLettered
                | InstanceState::Cancelled
        );
        NodeLine {
            name: graph.name(node).to_string(),
            after: upstreams.join(", "),
            badge: Badge(state, lang),
            // That the handler has ended is what everybody expects.
            cause: last.filter(|last| last.cause != Cause::Finished).map_or("", |last| terms::cause(last.cause, lang)),
            detail: last.and_then(|last| last.detail.as_deref()).unwrap_or_default().to_owned(),
            took: Span(row.and_then(InstanceRow::ended_at).zip(begun).map(|(ended, begun)| ended.since(begun.at))),
            address: row.map(|row| format!("/instances/{}", row.id)),
            mark_address: format!("/instances/{run}/nodes/{}", form::segment(graph.name(node))),
            may_be_marked: may_operate && is_open,
            may_run_again: may_operate,
        }
    };
    graph.nodes().take(LISTED_MAX).map(line).collect()
}

pub(super) async fn mark<S: Catalog, C: Clock>(
    State(console): State<Console<S, C>>,
    Path((id, node)): Path<(String, String)>,
    form: Form,
) -> Response {
    let answer = do_mark(&console, &id, &node, &form).await;
    answered(&form.viewer, answer)
}

async fn do_mark<S: Catalog, C: Clock>(console: &Console<S, C>, id: &str, node: &str, form: &Form) -> Answer {
    let Form { viewer, fields } = form;
    let w = viewer.words();
    let view = find(console, id).await?;
    require(console, viewer, &view).await?;
    let state = fields.get("state").unwrap_or_default();
    let (label, shown) = match state {
        "succeeded" => (w.mark_succeeded, terms::state(InstanceState::Succeeded, viewer.lang)),
        "failed" => (w.mark_failed, terms::state(InstanceState::Failed, viewer.lang)),
        "skipped" => (w.skip, terms::state(InstanceState::Skipped, viewer.lang)),
        other => return Err(ConsoleError::BadForm { field: w.state.to_owned(), problem: other.to_owned() }),
    };
    let back = format!("/instances/{}", view.row.id);
    let filled = |text: &str| text.replace("{node}", node).replace("{state}", shown);
    if !fields.has("confirmed") {
        return Ok(confirm(viewer, fields, &filled(w.ask_mark), label, &back));
    }
    let mut body = reason(fields);
    body["state"] = json!(state);
    console.post(viewer, &["instances", id, "nodes", node], body).await?;
    Ok(viewer.go(&back, true, &filled(w.done_marked)))
}
