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
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Body, Client, NamedNode, check_length};
use super::instances::find;
use super::reruns::Reason;
use super::{Api, ApiError, views};

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
pub(crate) async fn of_run<S: Catalog, C: Clock>(api: &Api<S, C>, run: &InstanceView) -> Result<Option<Value>, ApiError> {
    if !run.row.is_run() {
        return Ok(None);
    }
    let Some(workflow) = definition(api, run, Some(run.row.version)).await?.and_then(|definition| definition.workflow) else {
        return Ok(None);
    };
    let graph = workflow.graph();
    let mut nodes: Vec<Value> = graph.nodes().map(|node| waiting(graph, node)).collect();
    let mut lookups = CALLS_LOOKED_UP_MAX;
    for view in api.store.nodes(run.row.id).await? {
        let Some(shown) = view.row.part.node_index().and_then(|node| nodes.get_mut(node as usize)) else { continue };
        let last = view.row.transitions.last();
        shown["state"] = json!(view.row.state.name());
        shown["instance"] = json!(view.row.id.to_string());
        shown["attempt"] = json!(view.row.attempt);
        shown["cause"] = json!(last.map(|last| last.cause.name()));
        shown["detail"] = json!(last.and_then(|last| last.detail.as_deref()));
        shown["ended_at"] = json!(view.row.ended_at().map(|at| at.to_string()));
        shown["calls"] = calls(api, &view.row, lookups > 0).await?;
        lookups -= usize::from(lookups > 0 && view.row.calls().is_some() && !view.row.state.is_terminal());
    }
    Ok(Some(Value::Array(nodes)))
}

/// The task that a node calls, and the instance of it: the row has that once it has ended. Nothing where it calls none.
pub(crate) async fn calls<S: Catalog, C: Clock>(api: &Api<S, C>, row: &InstanceRow, is_looked_up: bool) -> Result<Value, ApiError> {
    let Some(CallLink::Calls { task, instance }) = row.links.as_ref().and_then(|links| links.call.as_deref()) else {
        return Ok(Value::Null);
    };
    let instance = match instance {
        None if is_looked_up && !row.state.is_terminal() => {
            api.store.instance_of_submission(called_ordinal(row.id)).await?.map(|view| view.row.id)
        }
        known => *known,
    };
    Ok(json!({ "task": &**task, "instance": instance.map(|id| id.to_string()) }))
}

fn waiting(graph: &Graph, node: NodeIndex) -> Value {
    let after: Vec<_> = graph.upstreams(node).iter().map(|upstream| &**graph.name(*upstream)).collect();
    json!({ "node": &**graph.name(node), "after": after, "state": InstanceState::Waiting.name() })
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
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mark {
    state: String,
    reason: Option<String>,
    by: Option<String>,
}

/// Answers with the node once its owner has written down what was said.
pub(crate) async fn mark<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    NamedNode(id, name): NamedNode,
    client: Client,
    Body(said): Body<Mark>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
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
    let entry = match api.store.mark_node(instance, node, mark, actor, api.clock.now().wall).await? {
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
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({ "run": instance.to_string(), "node": name, "instance": written.as_ref().map(views::instance) })),
    ))
}

/// The row that counts of a node: what was said of it last, or else its own.
fn last_of(nodes: &[InstanceView], node: NodeIndex) -> Option<&InstanceRow> {
    nodes.iter().rev().map(|view| &view.row).find(|row| row.part.node_index() == Some(node.0))
}
