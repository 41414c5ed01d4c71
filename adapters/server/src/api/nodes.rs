//! Nodes of workflows: how those of a run stand, and what people say of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::Version;
use punctual_core::inbox::{NodeMark, RerunFrom, called_ordinal};
use punctual_core::instance::{CallLink, InstanceRow, State as InstanceState};
use punctual_core::workflow::{Graph, NodeIndex, NodeState};
use punctual_driver::ports::{Catalog, Clock, InstanceView, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asker, Body, Client, Named, NamedTwo, check_length};
use super::instances::find;
use super::openapi::Done;
use super::reruns::Reason;
use super::{Api, ApiError, veil, views};
use crate::identity::Identity;

/// Of so many nodes of a run that are called tasks and have not ended the instance is looked up, at most.
const CALLS_LOOKED_UP_MAX: usize = 50;
/// Most nodes that a rerun names.
const FROM_MAX: usize = 1_000;

/// The definition of a version of a view's task; the newest one where none is named.
async fn definition<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    view: &InstanceView,
    version: Option<Version>,
) -> Result<Option<TaskDefinition>, ApiError> {
    let Some((task, versions)) = api.store.task(Arc::clone(&view.task_name)).await? else { return Ok(None) };
    let document = match version {
        None => Some(task.document),
        Some(version) => versions.into_iter().find(|known| known.version == version).and_then(|known| known.document),
    };
    Ok(document.and_then(|document| punctual_spec::decode(&document, &api.zones).ok()))
}

/// What the nodes of a run have come to, those that wait included: in the order of the workflow. `None`: the instance is no run of one.
pub(crate) async fn of_run<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    run: &InstanceView,
) -> Result<Option<Vec<NodeShown>>, ApiError> {
    if !run.row.is_run() {
        return Ok(None);
    }
    let Some(workflow) = definition(api, run, Some(run.row.version)).await?.and_then(|definition| definition.workflow) else {
        return Ok(None);
    };
    let graph = workflow.graph();
    let mut nodes: Vec<NodeShown> = graph.nodes().map(|node| waiting(graph, node)).collect();
    let mut lookups = CALLS_LOOKED_UP_MAX;
    let mut views = api.store.nodes(run.row.id).await?;
    veil::instances(api, identity, &mut views).await?;
    for view in views {
        let Some(shown) = view.row.part.node_index().and_then(|node| nodes.get_mut(node as usize)) else { continue };
        let last = view.row.transitions.last();
        shown.state = view.row.state.name();
        shown.instance = Some(view.row.id.to_string());
        shown.attempt = Some(view.row.attempt);
        shown.cause = last.map(|last| last.cause.name());
        shown.detail = last.and_then(|last| last.detail.as_deref().map(str::to_owned));
        shown.ended_at = views::instant(view.row.ended_at());
        shown.calls = calls(api, &view.row, lookups > 0).await?;
        lookups -= usize::from(lookups > 0 && view.row.calls().is_some() && !view.row.state.is_terminal());
    }
    Ok(Some(nodes))
}

/// A node of a workflow's run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NodeShown {
    node: String,
    /// The nodes that it comes after.
    after: Vec<String>,
    state: &'static str,
    /// Its instance, once it has started, or is known not to.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<CallShown>,
}

/// What a node calls.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallShown {
    /// The task.
    task: String,
    /// The instance of it, once there is one.
    instance: Option<String>,
}

/// The task that a node calls, and the instance of it: the row has that once it has ended. Nothing where it calls none.
pub(crate) async fn calls<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    row: &InstanceRow,
    is_looked_up: bool,
) -> Result<Option<CallShown>, ApiError> {
    let Some(CallLink::Calls { task, instance }) = row.links.as_ref().and_then(|links| links.call.as_deref()) else {
        return Ok(None);
    };
    let instance = match instance {
        None if is_looked_up && !row.state.is_terminal() => {
            api.store.instance_of_submission(called_ordinal(row.id)).await?.map(|view| view.row.id)
        }
        known => *known,
    };
    Ok(Some(CallShown { task: task.to_string(), instance: instance.map(|id| id.to_string()) }))
}

fn waiting(graph: &Graph, node: NodeIndex) -> NodeShown {
    let after = graph.upstreams(node).iter().map(|upstream| graph.name(*upstream).to_string()).collect();
    let (node, state) = (graph.name(node).to_string(), InstanceState::Waiting.name());
    NodeShown { node, after, state, instance: None, attempt: None, cause: None, detail: None, ended_at: None, calls: None }
}

/// The nodes of a run, in the order of the workflow.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Nodes {
    run: String,
    state: &'static str,
    nodes: Vec<NodeShown>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Named(id): Named,
) -> Result<Json<Nodes>, ApiError> {
    let run = find(&api, &id).await?;
    let nodes = of_run(&api, &identity, &run).await?.ok_or(ApiError::NoWorkflow { id: run.row.id })?;
    Ok(Json(Nodes { run: run.row.id.to_string(), state: run.row.state.name(), nodes }))
}

/// The name of the node that an instance is, or is a shard of.
pub(crate) async fn name<S: Catalog, C: Clock>(api: &Api<S, C>, view: &InstanceView) -> Result<Option<String>, ApiError> {
    let Some(node) = view.row.part.node_index().map(NodeIndex) else { return Ok(None) };
    let workflow = definition(api, view, Some(view.row.version)).await?.and_then(|definition| definition.workflow);
    Ok(workflow.filter(|workflow| workflow.graph().contains(node)).map(|workflow| workflow.graph().name(node).to_string()))
}

fn node_state(state: InstanceState) -> NodeState {
    match state {
        InstanceState::Succeeded => NodeState::Succeeded,
        InstanceState::Failed | InstanceState::TimedOut | InstanceState::DeadLettered => NodeState::Failed,
        InstanceState::Cancelled => NodeState::Cancelled,
        InstanceState::Skipped => NodeState::Skipped,
        _ => NodeState::Started,
    }
}

/// From where a run is to run again, where that can be by the workflow in force. The owner, which goes by what is in force then, has the
/// last word.
pub(crate) async fn rerun_from<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    run: &InstanceView,
    nodes: Vec<String>,
    cascade: bool,
) -> Result<RerunFrom, ApiError> {
    let id = run.row.id;
    if nodes.len() > FROM_MAX {
        return Err(ApiError::BadRequest { field: "from", problem: format!("{} nodes; at most {FROM_MAX}", nodes.len()) });
    }
    let before = definition(api, run, Some(run.row.version)).await?.and_then(|definition| definition.workflow);
    let now = definition(api, run, None).await?.and_then(|definition| definition.workflow);
    let Some((before, now)) = before.zip(now).filter(|_| run.row.is_run()) else { return Err(ApiError::NoWorkflow { id }) };
    let graph = now.graph();
    let index =
        |name: &String| graph.node(name).ok_or_else(|| ApiError::NoSuchNode { node: name.clone(), task: run.task_name.to_string() });
    let from = nodes.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let mut states = vec![NodeState::Waiting; graph.len()];
    for view in api.store.nodes(id).await? {
        let node = view.row.part.node_index().map(NodeIndex).filter(|node| before.graph().contains(*node));
        if let Some(node) = node.and_then(|node| graph.node(before.graph().name(node))) {
            states[node.place()] = node_state(view.row.state);
        }
    }
    match graph.rerun_set(&states, &from, cascade) {
        Ok(_) => Ok(RerunFrom { nodes: nodes.into_iter().map(Arc::from).collect(), cascade, ended: Vec::new() }),
        Err(why) => Err(ApiError::RerunRefused { why: why.to_string() }),
    }
}

/// What is said of a node.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// `skipped`, `succeeded` or `failed`.
    #[schemars(regex(pattern = "^(skipped|succeeded|failed)$"))]
    state: String,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

/// What became of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MarkSaid {
    run: String,
    node: String,
    /// The node's instance; null: its owner has not written it yet.
    instance: Option<views::InstanceShown>,
}

/// Answers with the node once its owner has written down what was said.
pub(crate) async fn mark<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    NamedTwo(id, name): NamedTwo,
    client: Client,
    Body(said): Body<Mark>,
) -> Result<Done<MarkSaid>, ApiError> {
    check_length("state", Some(&said.state), 64)?;
    let Some(mark) = NodeMark::ALL.into_iter().find(|mark| mark.state().name() == said.state) else {
        let problem = format!("{:?} is not one of skipped, succeeded, failed", said.state);
        return Err(ApiError::BadRequest { field: "state", problem });
    };
    let actor = Reason { reason: said.reason, by: said.by }.actor(client)?;
    let run = find(&api, &id).await?;
    let instance = run.row.id;
    let workflow = definition(&api, &run, Some(run.row.version)).await?.and_then(|definition| definition.workflow);
    let Some(workflow) = workflow.filter(|_| run.row.is_run()) else { return Err(ApiError::NoWorkflow { id: instance }) };
    let Some(node) = workflow.graph().node(&name) else {
        return Err(ApiError::NoSuchNode { node: name, task: run.task_name.to_string() });
    };
    let stands = last_of(&api.store.nodes(instance).await?, node).map(|row| row.state);
    if let Some(state) = stands.filter(|state| !matches!(node_state(*state), NodeState::Failed | NodeState::Cancelled)) {
        return Err(ApiError::NodeStands { node: name, state: state.name() });
    }
    let subject = Arc::from(format!("{name}: {}", mark.state().name()));
    let entry = match api.store.mark_node(instance, node, mark, subject, actor, api.clock.now().wall).await? {
        Submitted::Accepted { entry } | Submitted::Repeated { entry } => entry,
        Submitted::HasEnded => return Err(ApiError::RunHasEnded { id: instance }),
        Submitted::NoWorkflow | Submitted::NoSuchNode | Submitted::IsPart { .. } => return Err(ApiError::NoWorkflow { id: instance }),
        _ => return Err(ApiError::NoSuchInstance { id }),
    };
    api.signal();
    let store = &api.store;
    let written = api
        .when_applied(entry, || async move {
            let nodes = store.nodes(instance).await?;
            Ok(nodes.into_iter().rev().find(|view| view.row.part.node_index() == Some(node.0)).filter(|view| view.row.state.is_terminal()))
        })
        .await?;
    let said = MarkSaid { run: instance.to_string(), node: name, instance: written.as_ref().map(views::instance) };
    Ok(Done(StatusCode::ACCEPTED, Json(said)))
}

/// The row that counts of a node: what was said of it last, or else its own.
fn last_of(nodes: &[InstanceView], node: NodeIndex) -> Option<&InstanceRow> {
    nodes.iter().rev().map(|view| &view.row).find(|row| row.part.node_index() == Some(node.0))
}
