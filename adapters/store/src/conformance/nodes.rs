//! Runs of workflows and their nodes.

use std::sync::Arc;

use punctual_core::definition::{TaskDefinition, Workflow};
use punctual_core::ids::{InboxId, InstanceId, PartitionId};
use punctual_core::inbox::{EndedNode, NodeMark, Request, RerunFrom};
use punctual_core::instance::{InstanceRow, Links, Part, State};
use punctual_core::workflow::{Graph, NodeIndex, NodeSpec};
use punctual_driver::ports::{Actor, AuditAction, AuditFilter, Catalog, InstanceFilter, Rerunning, Store, Submitted, TaskDocument};

use super::{Factory, Owner, START, all_partitions, apply, apply_inbox, commit, definition, document, ended, entry_ids, open};

/// A workflow of these nodes, none of which comes after another. `a>b`: the node `a` calls the task `b`.
pub(super) fn workflow(name: &str, payload: &str, nodes: &[&str]) -> TaskDefinition {
    let plain = definition(name, payload);
    let nodes: Vec<_> =
        nodes.iter().map(|node| node.split_once('>').map_or((*node, None), |(node, called)| (node, Some(called)))).collect();
    let graph = Graph::new(nodes.iter().map(|(node, _)| NodeSpec::new(node, [])).collect()).expect("a graph");
    let nodes = nodes.iter().map(|(_, called)| Arc::new(TaskDefinition { calls: called.map(Arc::from), ..plain.clone() })).collect();
    TaskDefinition { workflow: Some(Arc::new(Workflow::new(graph, nodes))), ..plain }
}

pub(super) fn workflow_document(name: &str, nodes: &[&str]) -> TaskDocument {
    let document = serde_json::json!({ "name": name, "payload": "v1", "nodes": nodes }).to_string();
    TaskDocument { definition: Arc::new(workflow(name, "v1", nodes)), document: document.into() }
}

/// A run that goes on, and its rows: the run itself, two nodes that have ended, what was said of one of them, one that runs, and a shard.
async fn with_run<S: Store + Catalog>(store: &S, owner: &mut Owner) -> (InstanceRow, Vec<InstanceRow>) {
    apply(store, vec![workflow_document("flow", &["a", "b", "c"])], START).await;
    apply_inbox(store, owner, None).await;
    let (view, _) = store.task("flow".into()).await.expect("an answer").expect("the task");
    let partition = punctual_core::ids::partition_of("flow", super::PARTITIONS);
    let of_run = |row: InstanceRow| InstanceRow { ordinal: 7 << 10, worker: None, ..row };
    let links = Links { nodes: 3, hops: 2, ..Links::default() };
    let run = owner.dispatched(partition, view.task, START);
    let run = InstanceRow { state: State::Running, links: Some(Box::new(links)), ..of_run(run) };
    let mut part = |part: Part, parent: InstanceId, shards: u32| {
        let links = Links { parent: Some(parent), shards, ..Links::default() };
        InstanceRow { part, links: Some(Box::new(links)), ..of_run(owner.dispatched(partition, view.task, START)) }
    };
    let (a, b, c) = (part(Part::node(0), run.id, 0), part(Part::node(1), run.id, 0), part(Part::node(2), run.id, 2));
    let said = InstanceRow { state: State::Succeeded, ..part(Part::node(1).amended(), run.id, 0) };
    let shards = [0, 1].map(|index| part(Part::node(2).and_shard(index), c.id, 2));
    let mut batch = owner.batch();
    batch.inserts = vec![run.clone(), a.clone(), b.clone(), said.clone(), c.clone()];
    batch.inserts.extend(shards.clone());
    commit(store, batch).await;
    let mut batch = owner.batch();
    let a = ended(&a, State::Succeeded, START);
    let a = punctual_core::batch::InstanceUpdate { row: InstanceRow { result: Some("{\"rows\": 3}".into()), ..a.row }, ..a };
    let b = ended(&b, State::Failed, START);
    batch.updates = vec![a.clone(), b.clone(), ended(&shards[0], State::Succeeded, START)];
    commit(store, batch).await;
    (run, vec![a.row, b.row, c, said])
}

/// A new owner makes the run anew from them; shards that have ended it needs no more.
pub async fn a_snapshot_has_the_nodes_that_have_ended_of_runs_that_have_not<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (run, nodes) = with_run(&store, &mut owner).await;
    let mut snapshot = store.snapshot(run.id.partition()).await.expect("a snapshot");
    snapshot.ended_nodes.sort_by_key(|row| row.part);
    assert_eq!(snapshot.ended_nodes, [nodes[0].clone(), nodes[1].clone(), nodes[3].clone()]);
    let live: Vec<_> = snapshot.instances.iter().map(|(row, _)| row.part).collect();
    assert_eq!(live, [Part::WHOLE, Part::node(2), Part::node(2).and_shard(1)]);
    assert!(snapshot.instances.iter().all(|(_, definition)| definition.workflow.is_some()), "the task's own");
    let mut batch = owner.batch();
    batch.updates = vec![ended(&run, State::Cancelled, START)];
    commit(&store, batch).await;
    assert_eq!(store.snapshot(run.id.partition()).await.expect("a snapshot").ended_nodes, [], "the run has ended");
}

/// In the order of the workflow, what was said of them behind them; nothing of a run of something else.
pub async fn the_nodes_of_a_run_are_listed<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (run, nodes) = with_run(&store, &mut owner).await;
    let listed: Vec<_> = store.nodes(run.id).await.expect("an answer").into_iter().map(|view| (view.row, view.task_name)).collect();
    assert_eq!(listed, nodes.iter().map(|row| (row.clone(), Arc::from("flow"))).collect::<Vec<_>>());
    for other in [nodes[2].id, InstanceId::new(PartitionId(1), 999)] {
        assert!(store.nodes(other).await.expect("an answer").is_empty());
    }
    for (whole, count) in [(true, 1), (false, 7)] {
        for task in [None, Some("flow".into())] {
            let filter = InstanceFilter { whole, task, limit: 100, ..InstanceFilter::default() };
            assert_eq!(store.instances(filter).await.expect("an answer").len(), count);
        }
        let filter = InstanceFilter { whole, state: Some(State::Running), limit: 100, ..InstanceFilter::default() };
        assert_eq!(store.instances(filter).await.expect("an answer").len(), 1);
        let filter = InstanceFilter { whole, state: Some(State::Failed), limit: 100, ..InstanceFilter::default() };
        assert_eq!(store.instances(filter).await.expect("an answer").len(), usize::from(!whole));
    }
}

/// Its owner remembers nothing of what has ended; what was said of a node counts.
pub async fn a_rerun_from_nodes_comes_with_what_the_nodes_have_come_to<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (run, nodes) = with_run(&store, &mut owner).await;
    let from = RerunFrom { nodes: vec!["c".into(), "new".into()], cascade: true, ended: Vec::new() };
    let rerun = async |id: InstanceId| store.rerun(id, "me".into(), Rerunning::From(from.clone()), START).await.expect("an answer");
    assert_eq!(rerun(run.id).await, Submitted::StillRuns);
    let mut batch = owner.batch();
    batch.updates = vec![ended(&run, State::Failed, START), ended(&nodes[2], State::Cancelled, START)];
    commit(&store, batch).await;
    // The run's own version has the names, whatever is in force.
    apply(&store, vec![workflow_document("flow", &["new", "a"])], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let Submitted::Accepted { entry } = rerun(run.id).await else { panic!("it is accepted") };
    assert_eq!(rerun(run.id).await, Submitted::Repeated { entry });
    for other in [
        Rerunning::Unsuccessful,
        Rerunning::From(RerunFrom { nodes: vec!["a".into()], ..from.clone() }),
        Rerunning::From(RerunFrom { cascade: false, ..from.clone() }),
    ] {
        let answer = store.rerun(run.id, "me".into(), other, START).await.expect("an answer");
        assert_eq!(answer, Submitted::NotNewest, "something else runs again");
    }
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let [entry] = &page.entries[..] else { panic!("{page:?}") };
    let Request::Rerun { of } = &entry.request else { panic!("{entry:?}") };
    let end = |name: &str, row: &InstanceRow, state| EndedNode { name: name.into(), instance: row.id, state, result: row.result.clone() };
    let ends = vec![end("a", &nodes[0], State::Succeeded), end("b", &nodes[3], State::Succeeded), end("c", &nodes[2], State::Cancelled)];
    assert_eq!((of.instance, of.run, of.hops, of.from.as_deref()), (run.id, 1, 2, Some(&RerunFrom { ended: ends, ..from.clone() })));
}

/// A plain instance has no nodes.
pub async fn only_runs_of_workflows_are_run_again_from_nodes<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    apply(&store, vec![document("plain", "v1")], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let (view, _) = store.task("plain".into()).await.expect("an answer").expect("the task");
    let row = owner.dispatched(punctual_core::ids::partition_of("plain", super::PARTITIONS), view.task, START);
    let mut batch = owner.batch();
    batch.inserts = vec![row.clone()];
    batch.updates = vec![ended(&row, State::Failed, START)];
    commit(&store, batch).await;
    let from = RerunFrom { nodes: vec!["a".into()], ..RerunFrom::default() };
    assert_eq!(store.rerun(row.id, "me".into(), Rerunning::From(from), START).await.expect("an answer"), Submitted::NoWorkflow);
    assert_eq!(mark(&store, row.id, 0, NodeMark::Skipped).await, Submitted::NoWorkflow);
    assert_eq!(entry_ids(&store).await, []);
}

async fn mark(store: &impl Catalog, run: InstanceId, node: u32, mark: NodeMark) -> Submitted {
    let by = Actor { why: Some("by hand".into()), ..Actor::from("me") };
    store.mark_node(run, NodeIndex(node), mark, format!("node {node}").into(), by, START).await.expect("an answer")
}

/// Each time anew: what comes of it is the owner's affair.
pub async fn what_is_said_of_a_node_comes_to_the_owner_of_its_run<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (run, nodes) = with_run(&store, &mut owner).await;
    assert_eq!(mark(&store, InstanceId::new(PartitionId(1), 999), 0, NodeMark::Failed).await, Submitted::NoSuchInstance);
    assert_eq!(mark(&store, nodes[0].id, 0, NodeMark::Failed).await, Submitted::IsPart { whole: run.id });
    assert_eq!(mark(&store, run.id, 3, NodeMark::Failed).await, Submitted::NoSuchNode);
    assert_eq!(entry_ids(&store).await, []);
    for (node, said) in [(2, NodeMark::Skipped), (2, NodeMark::Succeeded), (0, NodeMark::Failed)] {
        assert!(matches!(mark(&store, run.id, node, said).await, Submitted::Accepted { .. }));
    }
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let said = |node, mark| Request::MarkNode { instance: run.id, node: NodeIndex(node), mark, reason: Some("by hand".into()) };
    let requests: Vec<_> = page.entries.iter().map(|entry| entry.request.clone()).collect();
    assert_eq!(requests, [said(2, NodeMark::Skipped), said(2, NodeMark::Succeeded), said(0, NodeMark::Failed)]);
    assert!(page.entries.iter().all(|entry| entry.partition == run.id.partition() && &*entry.by == "me"));
    let filter = AuditFilter { instance: Some(run.id), limit: 1, ..AuditFilter::default() };
    let audited = store.audit(filter).await.expect("an answer");
    assert_eq!((audited[0].action, audited[0].subject.as_deref()), (AuditAction::MarkNode, Some("node 0")));
    apply_inbox(&store, &mut owner, None).await;
    let mut batch = owner.batch();
    batch.updates = vec![ended(&run, State::Failed, START)];
    commit(&store, batch).await;
    assert_eq!(mark(&store, run.id, 0, NodeMark::Failed).await, Submitted::HasEnded);
    assert_eq!(entry_ids(&store).await, []);
}
