//! The nodes of a task that is a workflow: as they are written, read, checked and followed.
//!
//! What a node doesn't say for itself it has of its task. A document has of each node only what it says itself.

use std::borrow::Cow;
use std::sync::Arc;

use punctual_core::definition::{self, TaskDefinition};
use punctual_core::limits as core_limits;
use punctual_core::workflow::{Comparison, Condition, FailurePolicy, Graph, GraphError, NodeSpec, TriggerRule};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::choice::choices;
use crate::compile::name_problem;
use crate::fields;
use crate::handler::{CommandConfig, HttpConfig};
use crate::node::{Kind, Node};
use crate::problem::{Code, FieldPath, Finding, Step, quoted};
use crate::read::Cursor;
use crate::spec::{CircuitBreaker, CustomHandler, Handler, Priority, Retry, Routing, Shards, TaskSpec, Timeout, Trigger, normalise_retry};
use crate::task::{names, put};
use crate::timing::Timing;
use crate::zones::Zones;

/// A node of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct WorkflowNode {
    /// Its name.
    pub name: String,
    /// The nodes that it comes after.
    pub after: Vec<String>,
    /// When it starts, by what those came to.
    pub rule: Rule,
    /// What follows when it fails.
    pub on_failure: OnFailure,
    /// What must hold besides for it to start.
    pub when: Option<When>,
    /// What it runs; what its task does where it is left out.
    pub handler: Option<Handler>,
    /// In place of that, another task: the node is a firing of it.
    pub task: Option<String>,
    /// What the handler is given.
    pub payload: Option<String>,
    /// Into how many instances it is divided.
    pub shards: Shards,
    /// What follows a failed attempt.
    pub retry: Option<Retry>,
    /// What it depends on.
    pub downstream: Option<String>,
    /// When the circuit breaker of that opens.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// What bounds an attempt.
    pub timeout: Option<Timeout>,
    /// Whether an attempt may be repeated when nobody knows how far the last one got.
    pub idempotent: Option<bool>,
    /// Where it stands among what waits for a worker.
    pub priority: Option<Priority>,
    /// Which workers may have it.
    pub routing: Option<Routing>,
}

choices! {
    /// When a node starts, by what the nodes before it came to.
    Rule {
        /// All have succeeded.
        AllSucceeded = "all_succeeded",
        /// All have ended.
        AllDone = "all_done",
        /// One has failed.
        OneFailed = "one_failed",
        /// One has succeeded.
        OneSucceeded = "one_succeeded",
        /// All have ended, and none has failed.
        NoneFailed = "none_failed",
    }
}

choices! {
    /// What follows when a node fails.
    OnFailure {
        /// Those after it go by their rule, the run fails at its end.
        SkipDownstream = "skip_downstream",
        /// The run is ended.
        FailRun = "fail_run",
        /// The run goes on as if it had succeeded.
        Continue = "continue",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes the enum marks no default")]
impl Default for Rule {
    fn default() -> Self {
        Rule::AllSucceeded
    }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes the enum marks no default")]
impl Default for OnFailure {
    fn default() -> Self {
        OnFailure::SkipDownstream
    }
}

impl From<Rule> for TriggerRule {
    fn from(rule: Rule) -> TriggerRule {
        match rule {
            Rule::AllSucceeded => TriggerRule::AllSucceeded,
            Rule::AllDone => TriggerRule::AllDone,
            Rule::OneFailed => TriggerRule::OneFailed,
            Rule::OneSucceeded => TriggerRule::OneSucceeded,
            Rule::NoneFailed => TriggerRule::NoneFailed,
        }
    }
}

impl From<OnFailure> for FailurePolicy {
    fn from(policy: OnFailure) -> FailurePolicy {
        match policy {
            OnFailure::SkipDownstream => FailurePolicy::SkipDownstream,
            OnFailure::FailRun => FailurePolicy::FailRun,
            OnFailure::Continue => FailurePolicy::Continue,
        }
    }
}

/// What the result of a node before it must be like for a node to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct When {
    /// The node whose result is looked at.
    pub node: String,
    /// Where in it: a JSON pointer, the empty one for all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// What to look for.
    #[serde(flatten)]
    pub test: Test,
}

/// What to look for in a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// This value.
    Equals(Value),
    /// Any other value.
    NotEquals(Value),
    /// A number above this one.
    GreaterThan(Number),
    /// A number below this one.
    LessThan(Number),
    /// Any value.
    Exists(bool),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    rule: Rule,
    #[serde(default, skip_serializing_if = "is_default")]
    on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<When>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::wire::command")]
    command: Option<CommandConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<HttpConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handler: Option<CustomHandler>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    shards: Shards,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    downstream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    circuit_breaker: Option<CircuitBreaker>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Timeout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotent: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    routing: Option<Routing>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TryFrom<Wire> for WorkflowNode {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<Self, Self::Error> {
        let handler = match (wire.command, wire.http, wire.handler) {
            (None, None, None) => None,
            (Some(config), None, None) => Some(Handler::Command(config)),
            (None, Some(config), None) => Some(Handler::Http(config)),
            (None, None, Some(custom)) => Some(Handler::Custom(custom)),
            _ => return Err("at most one of command, http and handler is wanted"),
        };
        let Wire { name, after, rule, on_failure, when, task, payload, shards, retry, downstream, circuit_breaker, .. } = wire;
        let (timeout, idempotent, priority, routing) = (wire.timeout, wire.idempotent, wire.priority, wire.routing);
        Ok(WorkflowNode {
            name,
            after,
            rule,
            on_failure,
            when,
            handler,
            task,
            payload,
            shards,
            retry,
            downstream,
            circuit_breaker,
            timeout,
            idempotent,
            priority,
            routing,
        })
    }
}

impl From<WorkflowNode> for Wire {
    fn from(node: WorkflowNode) -> Wire {
        let (command, http, handler) = match node.handler {
            Some(Handler::Command(config)) => (Some(config), None, None),
            Some(Handler::Http(config)) => (None, Some(config), None),
            Some(Handler::Custom(custom)) => (None, None, Some(custom)),
            Some(Handler::None) | None => (None, None, None),
        };
        let WorkflowNode { name, after, rule, on_failure, when, task, payload, shards, retry, downstream, circuit_breaker, .. } = node;
        let (timeout, idempotent, priority, routing) = (node.timeout, node.idempotent, node.priority, node.routing);
        Wire {
            name,
            after,
            rule,
            on_failure,
            when,
            command,
            http,
            handler,
            task,
            payload,
            shards,
            retry,
            downstream,
            circuit_breaker,
            timeout,
            idempotent,
            priority,
            routing,
        }
    }
}

impl WorkflowNode {
    /// A node that comes after these and has all else of its task.
    pub fn new(name: impl Into<String>, after: impl IntoIterator<Item = String>) -> Self {
        WorkflowNode {
            name: name.into(),
            after: after.into_iter().collect(),
            rule: Rule::default(),
            on_failure: OnFailure::default(),
            when: None,
            handler: None,
            task: None,
            payload: None,
            shards: Shards::None,
            retry: None,
            downstream: None,
            circuit_breaker: None,
            timeout: None,
            idempotent: None,
            priority: None,
            routing: None,
        }
    }

    /// Brings what may be said in several ways into one.
    pub(crate) fn normalise(&mut self) {
        self.handler.iter_mut().for_each(Handler::normalise);
        self.retry.iter_mut().for_each(normalise_retry);
    }

    /// Whether the node says this for itself.
    fn says(&self, field: &str) -> bool {
        match field {
            "command" | "http" | "handler" => self.handler.is_some(),
            "payload" => self.payload.is_some(),
            "shards" => self.shards != Shards::None,
            "retry" => self.retry.is_some(),
            "downstream" => self.downstream.is_some(),
            "circuit_breaker" => self.circuit_breaker.is_some(),
            "timeout" => self.timeout.is_some(),
            "priority" => self.priority.is_some(),
            "routing" => self.routing.is_some(),
            _ => false,
        }
    }

    /// What it says itself of how an attempt is made, which one that is another task can't.
    fn says_of_attempts(&self) -> impl Iterator<Item = &'static str> {
        let handler = self.handler.as_ref().map(|handler| match handler {
            Handler::Command(_) => "command",
            Handler::Http(_) => "http",
            Handler::Custom(_) | Handler::None => "handler",
        });
        let fields = ["shards", "retry", "downstream", "circuit_breaker", "timeout", "priority", "routing"];
        let said = fields.into_iter().filter(|field| self.says(field));
        handler.into_iter().chain(said).chain(self.idempotent.map(|_| "idempotent"))
    }

    /// What is wrong with it as a node that is another task.
    fn check_call(&self, task: &str, at: &FieldPath, findings: &mut Vec<Finding>) {
        if let Some((message, help)) = name_problem(task) {
            findings.push(Finding::new(Code::Name, at.clone().field("task"), message).help(help));
        }
        for field in self.says_of_attempts() {
            let (message, help) = match field {
                "command" | "http" | "handler" => {
                    ("a node runs one thing: this one is another task", format!("keep one of `task` and `{field}`, or make two nodes"))
                }
                _ => {
                    ("a node that is another task makes no attempts of its own", format!("say `{field}` of that task, or take it out here"))
                }
            };
            findings.push(Finding::new(Code::Conflict, at.clone().field(field), message).help(help));
        }
    }

    /// The node as a task of its own: what it says itself, and what it has of its task.
    fn as_task(&self, task: &TaskSpec) -> TaskSpec {
        let inherited = || if self.task.is_some() { Handler::None } else { task.handler.clone() };
        let handler = self.handler.clone().unwrap_or_else(inherited);
        let mut retry = self.retry.clone().unwrap_or_else(|| task.retry.clone());
        if self.retry.is_none() {
            // What was inherited gives way where it has nothing to say about this node.
            retry.on.exit_codes.take_if(|_| !matches!(handler, Handler::Command(_)));
            retry.on.statuses.take_if(|_| !matches!(handler, Handler::Http(_)));
        }
        TaskSpec {
            name: task.name.clone(),
            description: None,
            owner: None,
            enabled: true,
            trigger: Trigger::Manual,
            timing: Timing::default(),
            after: Vec::new(),
            handler,
            nodes: Vec::new(),
            map: None,
            payload_schema: None,
            payload: self.payload.clone().or_else(|| task.payload.clone()),
            misfire: task.misfire.clone(),
            concurrency: task.concurrency.clone(),
            shards: self.shards.clone(),
            retry,
            downstream: self.downstream.clone().or_else(|| task.downstream.clone()),
            circuit_breaker: self.circuit_breaker.clone().or_else(|| task.circuit_breaker.clone()),
            timeout: self.timeout.clone().unwrap_or_else(|| task.timeout.clone()),
            idempotent: self.idempotent.unwrap_or(task.idempotent),
            priority: self.priority.unwrap_or(task.priority),
            rate_limit: task.rate_limit.clone(),
            group: task.group.clone(),
            group_limits: None,
            routing: self.routing.clone().unwrap_or_else(|| task.routing.clone()),
        }
    }

    /// The definition of one that is another task says which.
    fn calling(&self, definition: TaskDefinition) -> TaskDefinition {
        match &self.task {
            Some(called) => TaskDefinition { calls: Some(Arc::from(called.as_str())), routing: None, ..definition },
            None => definition,
        }
    }

    fn as_node_of_graph(&self) -> NodeSpec {
        let text = |text: &String| Arc::from(text.as_str());
        let condition = |when: &When| Condition {
            node: text(&when.node),
            pointer: text(&when.pointer),
            test: match &when.test {
                Test::Equals(value) => Comparison::Equals(value.clone()),
                Test::NotEquals(value) => Comparison::NotEquals(value.clone()),
                Test::GreaterThan(number) => Comparison::GreaterThan(number.clone()),
                Test::LessThan(number) => Comparison::LessThan(number.clone()),
                Test::Exists(_) => Comparison::Exists,
            },
        };
        NodeSpec {
            name: text(&self.name),
            after: self.after.iter().map(text).collect(),
            rule: self.rule.into(),
            on_failure: self.on_failure.into(),
            when: self.when.as_ref().map(condition),
        }
    }
}

/// The workflow that a task's nodes make; `None` where it has none.
///
/// # Errors
///
/// Everything that is wrong with them.
pub(crate) fn workflow(task: &TaskSpec, zones: &Zones) -> Result<Option<Arc<definition::Workflow>>, Vec<Finding>> {
    if task.nodes.is_empty() {
        return Ok(None);
    }
    let mut findings = Vec::new();
    if task.shards != Shards::None {
        let finding = Finding::new(Code::Conflict, FieldPath::of(&["shards"]), "a workflow is not divided, its nodes can be");
        findings.push(finding.help("move `shards` to the nodes that are to be divided"));
    }
    let calls = task.nodes.iter().find_map(|node| node.task.as_ref());
    if let Some(called) = calls.filter(|_| task.group_limits.as_ref().is_some_and(|limits| limits.max_running.is_some())) {
        // A run would keep its slot while it waits for what may wait for one itself, through whatever tasks.
        let message = format!("a run that waits for {} can't be one of those that `max_running` of its group counts", quoted(called));
        let finding = Finding::new(Code::Conflict, FieldPath::of(&["group"]), message);
        findings.push(finding.help("take it out of the group; the tasks that its nodes are can be in it"));
    }
    let nodes = task.nodes.iter().map(WorkflowNode::as_node_of_graph).collect();
    let graph = Graph::new(nodes).map_err(|errors| errors.iter().for_each(|error| findings.push(graph_finding(error, &task.nodes)))).ok();
    let too_many = task.nodes.len() > core_limits::WORKFLOW_NODES_MAX;
    let mut definitions: Vec<Arc<TaskDefinition>> = Vec::with_capacity(task.nodes.len());
    for (index, node) in task.nodes.iter().enumerate().filter(|_| !too_many) {
        let at = FieldPath::of(&["nodes"]).index(index);
        if let Some((message, help)) = name_problem(&node.name) {
            findings.push(Finding::new(Code::Name, at.clone().field("name"), message).help(help));
        }
        if let Some(called) = &node.task {
            node.check_call(called, &at, &mut findings);
        } else if node.handler.is_none() && task.handler == Handler::None {
            let message = format!("the node {} runs nothing", quoted(&node.name));
            let help = "add one of command, http, handler, task to it, or one of the first three to the task for all nodes that have none";
            findings.push(Finding::new(Code::MissingField, at.clone(), message).help(help));
            continue;
        }
        if let Some(When { test: Test::Exists(false), .. }) = node.when {
            let finding = Finding::new(Code::NodeCondition, at.clone().field("when").field("exists"), "it can only be true");
            findings.push(finding.help("write `exists: true`, or compare with `equals: null`"));
        }
        match node.as_task(task).to_definition(zones) {
            Ok(definition) => definitions.push(Arc::new(node.calling(definition))),
            Err(of_node) => findings.extend(of_node.into_iter().filter_map(|finding| finding_in_node(finding, node, &at))),
        }
    }
    match graph {
        Some(graph) if findings.is_empty() => Ok(Some(Arc::new(definition::Workflow::new(graph, definitions)))),
        _ => Err(findings),
    }
}

/// What is wrong with what a node says itself; what it has of its task is said there.
fn finding_in_node(finding: Finding, node: &WorkflowNode, at: &FieldPath) -> Option<Finding> {
    let is_own = matches!(finding.path.0.first(), Some(Step::Field(field)) if node.says(field));
    let mut path = at.clone();
    path.0.extend(finding.path.0);
    is_own.then_some(Finding { path, ..finding })
}

/// What is wrong with how nodes hang together, where it was written.
fn graph_finding(error: &GraphError, nodes: &[WorkflowNode]) -> Finding {
    let last_of = |name: &str| nodes.iter().rposition(|node| node.name == name).unwrap_or_default();
    let node_at = |index: usize| FieldPath::of(&["nodes"]).index(index);
    let edge = |node: &str, upstream: &str| {
        let index = last_of(node);
        let place = nodes[index].after.iter().rposition(|after| after == upstream).unwrap_or_default();
        node_at(index).field("after").index(place)
    };
    let (code, path) = match error {
        GraphError::Empty | GraphError::TooManyNodes { .. } | GraphError::TooManyEdges { .. } => {
            (Code::WorkflowSize, FieldPath::of(&["nodes"]))
        }
        GraphError::DuplicateName { name } => (Code::NodeDuplicate, node_at(last_of(name)).field("name")),
        GraphError::SelfEdge { node } => (Code::NodeCycle, edge(node, node)),
        GraphError::DuplicateEdge { node, upstream } => (Code::NodeEdge, edge(node, upstream)),
        GraphError::MissingUpstream { node, upstream } => (Code::NodeMissing, edge(node, upstream)),
        GraphError::Cycle { path } => {
            // Where the edge is written that leads from its end to its beginning.
            let (first, last) = (path.first().map_or("", |name| name), path.last().map_or("", |name| name));
            (Code::NodeCycle, edge(first, last))
        }
        GraphError::ConditionOnMissing { node, .. } => (Code::NodeMissing, node_at(last_of(node)).field("when").field("node")),
        GraphError::ConditionNotUpstream { node, .. } => (Code::NodeCondition, node_at(last_of(node)).field("when").field("node")),
        GraphError::Pointer { node, .. } => (Code::NodeCondition, node_at(last_of(node)).field("when").field("pointer")),
    };
    let message = error.to_string();
    // What is wrong, and behind it what to do.
    match message.rsplit_once(": ").filter(|_| !matches!(error, GraphError::Cycle { .. })) {
        Some((what, help)) => Finding::new(code, path, what).help(help),
        None => Finding::new(code, path, message).help(match error {
            GraphError::Cycle { .. } => "take one of them out of another one's `after`",
            GraphError::DuplicateEdge { .. } => "name it once",
            _ => "name a node of this task, letter by letter",
        }),
    }
}

impl Cursor<'_> {
    /// The nodes of a task. What one says of retries and the like is taken whole: its document is no other than what it says.
    pub(crate) fn workflow_nodes(&mut self, node: &Node) -> Vec<WorkflowNode> {
        let nodes = self.list(node, |cursor, entry| cursor.workflow_node(entry)).unwrap_or_default();
        if matches!(&node.kind, Kind::List(list) if list.is_empty()) {
            self.refuse(Code::WorkflowSize, node.place, "the workflow has no nodes", "give it at least one, or leave `nodes` out");
        }
        nodes
    }

    fn workflow_node(&mut self, node: &Node) -> Option<WorkflowNode> {
        let entries = self.map(node, fields::NODE)?;
        self.one_handler(&entries);
        let mut read = WorkflowNode::new("unnamed", None);
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "name" => put(cursor.text(node), &mut read.name),
                "after" => put(cursor.names_of_nodes(node), &mut read.after),
                "rule" => put(cursor.choice(node), &mut read.rule),
                "on_failure" => put(cursor.choice(node), &mut read.on_failure),
                "when" => read.when = cursor.when(node),
                "command" => read.handler = cursor.command(node).map(Handler::Command),
                "http" => read.handler = cursor.http(node).map(Handler::Http),
                "handler" => read.handler = cursor.custom_handler(node).map(Handler::Custom),
                "task" => cursor.put_some(node, &mut read.task),
                "payload" => read.payload = cursor.payload(node),
                "shards" => put(cursor.shards(node), &mut read.shards),
                "retry" => cursor.retry(node, read.retry.insert(Retry::default())),
                "downstream" => cursor.put_some(node, &mut read.downstream),
                "circuit_breaker" => cursor.circuit_breaker(node, read.circuit_breaker.insert(CircuitBreaker::default())),
                "timeout" => cursor.timeout(node, read.timeout.insert(Timeout::default())),
                "idempotent" => read.idempotent = cursor.truth(node),
                "priority" => cursor.priority(node, read.priority.insert(Priority::default())),
                _ => cursor.routing(node, read.routing.insert(Routing::default())),
            });
        }
        if !names(&entries, "name") {
            self.refuse(Code::MissingField, node.place, "the node has no `name`", "add `name: ...`");
        }
        Some(read)
    }

    /// One name or several.
    fn names_of_nodes(&mut self, node: &Node) -> Option<Vec<String>> {
        match &node.kind {
            Kind::List(_) => self.list(node, |cursor, name| cursor.text(name)),
            _ => self.text(node).map(|name| vec![name]),
        }
    }

    fn when(&mut self, node: &Node) -> Option<When> {
        let entries = self.map(node, fields::WHEN)?;
        let (mut of_node, mut pointer, mut tests) = (None, String::new(), Vec::new());
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "node" => of_node = cursor.text(node),
                "pointer" => put(cursor.text(node), &mut pointer),
                "equals" => tests.extend(cursor.json(node).map(Test::Equals)),
                "not_equals" => tests.extend(cursor.json(node).map(Test::NotEquals)),
                "greater_than" => tests.extend(cursor.number_of_json(node).map(Test::GreaterThan)),
                "less_than" => tests.extend(cursor.number_of_json(node).map(Test::LessThan)),
                _ => tests.extend(cursor.truth(node).map(Test::Exists)),
            });
        }
        if !names(&entries, "node") {
            self.refuse(Code::MissingField, node.place, "the condition doesn't say of which node", "add `node:` with its name");
        }
        let said = entries.iter().filter(|(field, _)| fields::TESTS.contains(field)).count();
        if said != 1 {
            let what = if said == 0 { "the condition doesn't say what to look for" } else { "a condition looks for one thing" };
            self.refuse(Code::NodeCondition, node.place, what, format!("one of {}", fields::TESTS.join(", ")));
        }
        Some(When { node: of_node?, pointer, test: tests.into_iter().next().filter(|_| said == 1)? })
    }

    fn number_of_json(&mut self, node: &Node) -> Option<Number> {
        match self.json(node)? {
            Value::Number(number) => Some(number),
            _ => {
                let message = format!("{} where a number is wanted", node.description());
                self.refuse(Code::Number, node.place, message, "a number such as 100 or 0.5");
                None
            }
        }
    }
}
