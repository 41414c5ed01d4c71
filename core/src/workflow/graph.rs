//! The structure of a workflow, checked once.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::condition::Condition;
use super::cycle::find_cycle;
use super::rule::{FailurePolicy, TriggerRule};
use crate::limits;

/// A node of a graph: its place among the nodes that the graph was made of, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// Its place in lists that have one element for each node.
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    /// The node at this place; the [limit](limits::WORKFLOW_NODES_MAX) on nodes keeps it within 32 bits.
    fn at(place: usize) -> Self {
        NodeIndex(place as u32)
    }
}

impl fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node as it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name, unique in the workflow.
    pub name: Arc<str>,
    /// The names of its upstreams.
    pub after: Vec<Arc<str>>,
    /// When it starts.
    pub rule: TriggerRule,
    /// What follows when it fails.
    pub on_failure: FailurePolicy,
    /// What must hold besides for it to start.
    pub when: Option<Condition>,
}

impl NodeSpec {
    /// A node with these upstreams, by default for the rest.
    pub fn new<'a>(name: &str, after: impl IntoIterator<Item = &'a str>) -> Self {
        NodeSpec {
            name: Arc::from(name),
            after: after.into_iter().map(Arc::from).collect(),
            rule: TriggerRule::default(),
            on_failure: FailurePolicy::default(),
            when: None,
        }
    }
}

/// Why nodes make no workflow. The message names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There is no node.
    #[error("the workflow has no nodes: give it at least one")]
    Empty,
    /// More than [`WORKFLOW_NODES_MAX`](limits::WORKFLOW_NODES_MAX). Nothing else was looked at.
    #[error("the workflow has {nodes} nodes, at most {} are allowed: make parts of it workflows of their own", limits::WORKFLOW_NODES_MAX)]
    TooManyNodes {
        /// How many there are.
        nodes: usize,
    },
    /// More than [`WORKFLOW_EDGES_MAX`](limits::WORKFLOW_EDGES_MAX). Nothing else was looked at.
    #[error(
        "the workflow has {edges} edges, at most {} are allowed: put a node between many upstreams and many dependants",
        limits::WORKFLOW_EDGES_MAX
    )]
    TooManyEdges {
        /// How many there are.
        edges: usize,
    },
    /// Two nodes of one name.
    #[error("more than one node is called `{name}`: each needs a name of its own")]
    DuplicateName {
        /// The name.
        name: Arc<str>,
    },
    /// A node comes after itself.
    #[error("node `{node}` comes after itself: it could never start")]
    SelfEdge {
        /// The node.
        node: Arc<str>,
    },
    /// An edge is there twice.
    #[error("node `{node}` names `{upstream}` more than once among the nodes that it comes after")]
    DuplicateEdge {
        /// The node at the end of the edge.
        node: Arc<str>,
        /// The node at its beginning.
        upstream: Arc<str>,
    },
    /// An edge begins at a node that does not exist.
    #[error("node `{node}` comes after `{upstream}`, which does not exist")]
    MissingUpstream {
        /// The node at the end of the edge.
        node: Arc<str>,
        /// The name that no node has.
        upstream: Arc<str>,
    },
    /// Nodes wait for each other in a circle.
    #[error("nodes wait for each other in a circle: {}", circle(path))]
    Cycle {
        /// The nodes of one cycle in the order of the edges, each once.
        path: Vec<Arc<str>>,
    },
    /// A condition reads the result of a node that does not exist.
    #[error("the condition of node `{node}` reads the result of `{reads}`, which does not exist")]
    ConditionOnMissing {
        /// The node with the condition.
        node: Arc<str>,
        /// The name that no node has.
        reads: Arc<str>,
    },
    /// A condition reads the result of a node that need not have ended by then. Only looked for where there is no cycle.
    #[error("the condition of node `{node}` reads the result of `{reads}`, which is not upstream of it: let `{node}` come after it")]
    ConditionNotUpstream {
        /// The node with the condition.
        node: Arc<str>,
        /// The node whose result it reads.
        reads: Arc<str>,
    },
    /// A condition's pointer is no JSON pointer.
    #[error(
        "the condition of node `{node}` has the pointer `{pointer}`: a JSON pointer is empty or begins with `/`, and has `~0` for `~` and `~1` for `/` in a name"
    )]
    Pointer {
        /// The node with the condition.
        node: Arc<str>,
        /// The pointer.
        pointer: Arc<str>,
    },
}

/// `a > b > a`, and no more of a long one than fits into a message.
fn circle(path: &[Arc<str>]) -> String {
    let mut named: Vec<&str> = path.iter().take(limits::WORKFLOW_CYCLE_NAMED_MAX).map(|name| &**name).collect();
    let left_out = format!("... {} more ...", path.len() - named.len());
    if named.len() < path.len() {
        named.push(&left_out);
    }
    named.extend(path.first().map(|name| &**name));
    named.join(" > ")
}

/// Lists of nodes, one for each node, in two arrays.
#[derive(Clone, Debug, PartialEq)]
struct Adjacency {
    /// Where each node's list begins; one more, where the last one ends.
    starts: Vec<u32>,
    targets: Vec<NodeIndex>,
}

impl Adjacency {
    /// The lists of these pairs of a node and an element of its list, each list in the order of the pairs.
    fn new(nodes: usize, pairs: impl Iterator<Item = (NodeIndex, NodeIndex)> + Clone) -> Self {
        let mut starts = vec![0; nodes + 1];
        for (node, _) in pairs.clone() {
            starts[node.place() + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut free = starts.clone();
        let mut targets = vec![NodeIndex(0); starts[nodes] as usize];
        for (node, target) in pairs {
            targets[free[node.place()] as usize] = target;
            free[node.place()] += 1;
        }
        Adjacency { starts, targets }
    }

    fn of(&self, node: NodeIndex) -> &[NodeIndex] {
        &self.targets[self.starts[node.place()] as usize..self.starts[node.place() + 1] as usize]
    }
}

/// A condition, and the node that it reads.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    condition: Condition,
    reads: NodeIndex,
}

/// The structure of a workflow: at least one node, and no cycle. It never changes; a changed workflow is another graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    names: Vec<Arc<str>>,
    by_name: FxHashMap<Arc<str>, NodeIndex>,
    rules: Vec<TriggerRule>,
    policies: Vec<FailurePolicy>,
    readings: Vec<Option<Box<Reading>>>,
    upstreams: Adjacency,
    dependants: Adjacency,
    /// The nodes whose condition reads a node that is no direct upstream of theirs.
    far_readers: Adjacency,
    /// Each node after all its upstreams.
    order: Vec<NodeIndex>,
}

impl Graph {
    /// The graph of these nodes.
    ///
    /// # Errors
    ///
    /// All that is wrong, at least one thing.
    pub fn new(nodes: Vec<NodeSpec>) -> Result<Graph, Vec<GraphError>> {
        check_limits(&nodes)?;
        let mut errors = Vec::new();
        let by_name = index_names(&nodes, &mut errors);
        let edges = resolve_edges(&nodes, &by_name, &mut errors);
        let count = nodes.len();
        let upstreams = Adjacency::new(count, edges.iter().copied());
        let dependants = Adjacency::new(count, edges.iter().map(|(node, upstream)| (*upstream, *node)));
        let names = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let rules = nodes.iter().map(|node| node.rule).collect();
        let policies = nodes.iter().map(|node| node.on_failure).collect();
        let readings = resolve_conditions(nodes, &by_name, &mut errors);
        let far_readers = Adjacency::new(0, std::iter::empty());
        let mut graph = Graph { names, by_name, rules, policies, readings, upstreams, dependants, far_readers, order: Vec::new() };
        match find_cycle(count, |node| graph.dependants.of(NodeIndex::at(node)).iter().map(|node| node.place())) {
            Some(path) => errors.push(GraphError::Cycle { path: path.into_iter().map(|node| Arc::clone(&graph.names[node])).collect() }),
            None => {
                graph.order = graph.sorted();
                graph.check_far_reads(&mut errors);
            }
        }
        if errors.is_empty() { Ok(graph) } else { Err(errors) }
    }

    /// How many nodes there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty graph")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.upstreams.targets.len()
    }

    /// All nodes, as they were defined.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.names.len()).map(NodeIndex::at)
    }

    /// All nodes, each after all its upstreams.
    pub fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    /// Whether there is this node.
    pub fn contains(&self, node: NodeIndex) -> bool {
        node.place() < self.names.len()
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    /// A node's name.
    pub fn name(&self, node: NodeIndex) -> &Arc<str> {
        &self.names[node.place()]
    }

    /// When a node starts.
    pub fn rule(&self, node: NodeIndex) -> TriggerRule {
        self.rules[node.place()]
    }

    /// What follows when a node fails.
    pub fn on_failure(&self, node: NodeIndex) -> FailurePolicy {
        self.policies[node.place()]
    }

    /// A node's condition and the node whose result it reads.
    pub fn condition(&self, node: NodeIndex) -> Option<(&Condition, NodeIndex)> {
        self.readings[node.place()].as_deref().map(|reading| (&reading.condition, reading.reads))
    }

    /// The nodes that a node comes after, as it names them.
    pub fn upstreams(&self, node: NodeIndex) -> &[NodeIndex] {
        self.upstreams.of(node)
    }

    /// The nodes that come after a node, as they were defined.
    pub fn dependants(&self, node: NodeIndex) -> &[NodeIndex] {
        self.dependants.of(node)
    }

    /// The nodes whose condition reads a node that is not among their upstreams.
    pub(crate) fn far_readers(&self, node: NodeIndex) -> &[NodeIndex] {
        self.far_readers.of(node)
    }

    /// Kahn's order, in the order of the nodes where edges leave a choice. There is no cycle.
    fn sorted(&self) -> Vec<NodeIndex> {
        let mut unsorted: Vec<usize> = self.nodes().map(|node| self.upstreams(node).len()).collect();
        let mut order: Vec<NodeIndex> = self.nodes().filter(|node| unsorted[node.place()] == 0).collect();
        let mut next = 0;
        while let Some(node) = order.get(next).copied() {
            for dependant in self.dependants(node) {
                unsorted[dependant.place()] -= 1;
                if unsorted[dependant.place()] == 0 {
                    order.push(*dependant);
                }
            }
            next += 1;
        }
        assert_eq!(order.len(), self.len(), "a graph without a cycle can be sorted");
        order
    }

    /// Finds the readers of results of nodes further up, and complains of those that read what is not upstream of them.
    fn check_far_reads(&mut self, errors: &mut Vec<GraphError>) {
        let reads = self.nodes().filter_map(|node| self.condition(node).map(|(_, reads)| (reads, node)));
        let far: Vec<(NodeIndex, NodeIndex)> = reads.filter(|(reads, node)| !self.upstreams(*node).contains(reads)).collect();
        self.far_readers = Adjacency::new(self.len(), far.iter().copied());
        let read: Vec<NodeIndex> = self.nodes().filter(|node| !self.far_readers(*node).is_empty()).collect();
        for block in read.chunks(u64::BITS as usize) {
            let below = self.downstream_of(block);
            for (bit, reads) in block.iter().enumerate() {
                let strangers = self.far_readers(*reads).iter().filter(|node| below[node.place()] >> bit & 1 == 0);
                errors.extend(strangers.map(|node| GraphError::ConditionNotUpstream {
                    node: Arc::clone(self.name(*node)),
                    reads: Arc::clone(self.name(*reads)),
                }));
            }
        }
    }

    /// For each node, which of at most 64 nodes are upstream of it: a bit for each, in the order given. One way through all edges answers
    /// for all of them.
    fn downstream_of(&self, block: &[NodeIndex]) -> Vec<u64> {
        let mut own = vec![0_u64; self.len()];
        for (bit, node) in block.iter().enumerate() {
            own[node.place()] |= 1 << bit;
        }
        let mut above = vec![0_u64; self.len()];
        for node in &self.order {
            above[node.place()] =
                self.upstreams(*node).iter().fold(0, |bits, upstream| bits | above[upstream.place()] | own[upstream.place()]);
        }
        above
    }
}

/// The limits come first: what is beyond them is not looked at.
fn check_limits(nodes: &[NodeSpec]) -> Result<(), Vec<GraphError>> {
    if nodes.is_empty() {
        return Err(vec![GraphError::Empty]);
    }
    if nodes.len() > limits::WORKFLOW_NODES_MAX {
        return Err(vec![GraphError::TooManyNodes { nodes: nodes.len() }]);
    }
    let edges = nodes.iter().map(|node| node.after.len()).sum();
    if edges > limits::WORKFLOW_EDGES_MAX {
        return Err(vec![GraphError::TooManyEdges { edges }]);
    }
    Ok(())
}

/// The first node of each name.
fn index_names(nodes: &[NodeSpec], errors: &mut Vec<GraphError>) -> FxHashMap<Arc<str>, NodeIndex> {
    let mut by_name = FxHashMap::default();
    let mut reported = FxHashMap::default();
    for (place, node) in nodes.iter().enumerate() {
        if by_name.contains_key(&node.name) {
            if reported.insert(&node.name, ()).is_none() {
                errors.push(GraphError::DuplicateName { name: Arc::clone(&node.name) });
            }
        } else {
            by_name.insert(Arc::clone(&node.name), NodeIndex::at(place));
        }
    }
    by_name
}

/// The edges that are sound, each as the node at its end and the one at its beginning.
fn resolve_edges(
    nodes: &[NodeSpec],
    by_name: &FxHashMap<Arc<str>, NodeIndex>,
    errors: &mut Vec<GraphError>,
) -> Vec<(NodeIndex, NodeIndex)> {
    let mut edges = Vec::with_capacity(nodes.iter().map(|node| node.after.len()).sum());
    // The last node that named each one among its upstreams: finds duplicates in one step.
    let mut named_by: Vec<Option<usize>> = vec![None; nodes.len()];
    for (place, node) in nodes.iter().enumerate() {
        for upstream in &node.after {
            let (name, upstream_name) = (Arc::clone(&node.name), Arc::clone(upstream));
            match by_name.get(upstream) {
                None => errors.push(GraphError::MissingUpstream { node: name, upstream: upstream_name }),
                Some(_) if *upstream == node.name => errors.push(GraphError::SelfEdge { node: name }),
                Some(found) if named_by[found.place()] == Some(place) => {
                    errors.push(GraphError::DuplicateEdge { node: name, upstream: upstream_name });
                }
                Some(found) => {
                    named_by[found.place()] = Some(place);
                    edges.push((NodeIndex::at(place), *found));
                }
            }
        }
    }
    edges
}

/// The conditions that read a node that exists. Whether that node is upstream is seen later.
fn resolve_conditions(
    nodes: Vec<NodeSpec>,
    by_name: &FxHashMap<Arc<str>, NodeIndex>,
    errors: &mut Vec<GraphError>,
) -> Vec<Option<Box<Reading>>> {
    let resolve = |spec: NodeSpec| {
        let condition = spec.when?;
        if !condition.has_valid_pointer() {
            errors.push(GraphError::Pointer { node: Arc::clone(&spec.name), pointer: Arc::clone(&condition.pointer) });
        }
        let reads = by_name.get(&condition.node).copied();
        if reads.is_none() {
            errors.push(GraphError::ConditionOnMissing { node: spec.name, reads: Arc::clone(&condition.node) });
        }
        reads.map(|reads| Box::new(Reading { condition, reads }))
    };
    nodes.into_iter().map(resolve).collect()
}
