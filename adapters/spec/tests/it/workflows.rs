//! Workflows in task files: what a node has, and what is refused.

use std::fmt::Write;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use punctual_core::definition::{Sharding, TaskDefinition};
use punctual_core::workflow::NodeIndex;

use crate::read;

fn refused(nodes: &str, expected: Expect) {
    match read(&format!("tasks:\n- name: w\n  trigger: manual\n  nodes:\n{nodes}")) {
        Ok(file) => panic!("accepted: {file:?}"),
        Err(problems) => expected.assert_eq(&problems.to_string()),
    }
}

fn definition(text: &str) -> TaskDefinition {
    let file = read(text).unwrap_or_else(|problems| panic!("{problems}"));
    (*file.tasks[0].definition).clone()
}

#[test]
fn a_node_has_of_its_task_what_it_does_not_say_itself() {
    let task = definition(
        "
tasks:
- name: w
  trigger: {cron: '0 2 * * *'}
  command: shared
  payload: of the task
  retry: {max_attempts: 4, on: {exit_codes: [7]}}
  timeout: 5m
  nodes:
  - {name: a}
  - {name: b, after: a, http: 'http://x', payload: [1], retry: {max_attempts: 2}, shards: 3, idempotent: false, priority: urgent}
  - {name: c, after: [a, b], http: 'http://y', timeout: 7s}
",
    );
    let workflow = task.workflow.as_ref().unwrap();
    let [a, b, c] = [0, 1, 2].map(|node| workflow.node(NodeIndex(node)));
    assert!([a, b, c].iter().all(|node| node.name == task.name && node.workflow.is_none() && node.chains.is_none()));
    assert_eq!((&*a.handler.name, a.payload.as_deref()), ("command", Some("of the task")));
    assert_eq!(a.policies.retry, task.policies.retry);
    assert_eq!((&*b.handler.name, b.payload.as_deref(), b.idempotent), ("http", Some("[1]"), false));
    assert_eq!((b.policies.retry.max_attempts, &b.policies.sharding), (Some(2), &Sharding::Count(3)));
    assert_eq!((c.policies.retry.max_attempts, c.policies.retry.on.codes), (Some(4), None), "a call has no exit codes");
    assert_eq!(
        (c.policies.timeout.after.map(|after| after.0), a.policies.timeout.after.map(|after| after.0)),
        (Some(7_000), Some(300_000))
    );
    assert_eq!(workflow.graph().upstreams(NodeIndex(2)), [NodeIndex(0), NodeIndex(1)]);
}

/// C343 and C344: a node after itself, a circle with what leads to it, an edge twice, an edge from nowhere, two of one name: named, with the
/// line.
#[test]
fn graphs_that_make_no_sense_are_refused() {
    refused(
        "  - {name: s1, after: s4, command: x}
  - {name: s2, after: s4, command: x}
  - {name: s3, after: [s1, s2], command: x}
  - {name: s4, after: [s3], command: x}
  - {name: self, after: [s1, self], command: x}
  - {name: twice, after: [s1, s2, s1], command: x}
  - name: lost
    after:
    - s1
    - nowhere
    command: x
  - {name: s2, command: x}
",
        expect![[r#"
            tasks.yaml:5:23: PUN-162 tasks[0].nodes[0].after[0]: nodes wait for each other in a circle: s1 > s3 > s4 > s1
                take one of them out of another one's `after`
            tasks.yaml:9:30: PUN-162 tasks[0].nodes[4].after[1]: node `self` comes after itself
                it could never start
            tasks.yaml:10:35: PUN-163 tasks[0].nodes[5].after[2]: node `twice` names `s1` more than once among the nodes that it comes after
                name it once
            tasks.yaml:14:7: PUN-161 tasks[0].nodes[6].after[1]: node `lost` comes after `nowhere`, which does not exist
                name a node of this task, letter by letter
            tasks.yaml:16:12: PUN-160 tasks[0].nodes[7].name: more than one node is called `s2`
                each needs a name of its own
        "#]],
    );
}

#[test]
fn what_a_node_says_is_checked_where_it_stands() {
    refused(
        "  - {name: a, command: x, retry: {max_attempts: 0}, shards: 20000}
  - {name: b, after: a}
  - {name: c, after: a, command: x, http: 'http://x'}
  - {name: d, after: a, http: 'http://x', when: {node: a, pointer: rows, equals: 1}}
  - {name: e, command: x, when: {node: a, exists: true}}
  - {name: f, after: a, command: x, when: {node: a}}
  - {name: g, after: a, command: x, when: {node: gone, exists: false}}
  - {command: x, rule: some, colour: red}
",
        expect![[r#"
            tasks.yaml:5:49: PUN-111 tasks[0].nodes[0].retry.max_attempts: 0 is out of range
                1 to 1000
            tasks.yaml:5:61: PUN-111 tasks[0].nodes[0].shards: 20000 is out of range
                1 to 10000
            tasks.yaml:6:5: PUN-107 tasks[0].nodes[1]: the node `b` runs nothing
                add one of command, http, handler, task to it, or one of the first three to the task for all nodes that have none
            tasks.yaml:7:37: PUN-116 tasks[0].nodes[2]: a task runs one thing: it has `command` and `http`
                keep one of command, http, handler, or make two tasks
            tasks.yaml:8:68: PUN-164 tasks[0].nodes[3].when.pointer: the condition of node `d` has the pointer `rows`
                a JSON pointer is empty or begins with `/`, and has `~0` for `~` and `~1` for `/` in a name
            tasks.yaml:9:40: PUN-164 tasks[0].nodes[4].when.node: the condition of node `e` reads the result of `a`, which is not upstream of it
                let `e` come after it
            tasks.yaml:10:43: PUN-164 tasks[0].nodes[5].when: the condition doesn't say what to look for
                one of equals, not_equals, greater_than, less_than, exists
            tasks.yaml:11:50: PUN-161 tasks[0].nodes[6].when.node: the condition of node `g` reads the result of `gone`, which does not exist
                name a node of this task, letter by letter
            tasks.yaml:11:64: PUN-164 tasks[0].nodes[6].when.exists: it can only be true
                write `exists: true`, or compare with `equals: null`
            tasks.yaml:12:5: PUN-107 tasks[0].nodes[7]: the node has no `name`
                add `name: ...`
            tasks.yaml:12:24: PUN-109 tasks[0].nodes[7].rule: `some` is not one of the values
                allowed: all_succeeded, all_done, one_failed, one_succeeded, none_failed
            tasks.yaml:12:30: PUN-106 tasks[0].nodes[7]: there is no field `colour`
                allowed: name, after, rule, on_failure, when, command, http, handler, task, payload, shards, retry, downstream, circuit_breaker, timeout, idempotent, priority, routing
        "#]],
    );
}

#[test]
fn a_node_can_be_another_task() {
    let task = definition(
        "
tasks:
- name: w
  trigger: manual
  command: shared
  payload: of the task
  retry: {max_attempts: 4, on: {exit_codes: [7]}}
  nodes:
  - {name: a}
  - {name: b, after: a, task: another one, payload: [1]}
  - {name: c, after: b, task: another one, rule: all_done, on_failure: continue, when: {node: b, exists: true}}
",
    );
    let workflow = task.workflow.as_ref().unwrap();
    let [a, b, c] = [0, 1, 2].map(|node| workflow.node(NodeIndex(node)));
    assert_eq!([a, b, c].map(|node| node.calls.as_deref()), [None, Some("another one"), Some("another one")]);
    assert_eq!([a, b, c].map(|node| &*node.handler.name), ["command", "", ""]);
    assert_eq!((b.payload.as_deref(), c.payload.as_deref()), (Some("[1]"), Some("of the task")));
    assert_eq!(task.called_tasks().iter().map(|(name, times)| (&**name, *times)).collect::<Vec<_>>(), [("another one", 2)]);
}

/// It makes no attempts of its own, so it has nothing to say about them.
#[test]
fn a_node_that_is_another_task_is_nothing_else() {
    refused(
        "  - {name: a, task: b, command: x, shards: 3, retry: {max_attempts: 2}, timeout: 5s, idempotent: true}
  - {name: b, task: b, handler: own, downstream: d, circuit_breaker: {failures: 3}, priority: urgent, routing: {tags: {a: b}}}
  - {name: c, task: ''}
",
        expect![[r#"
            tasks.yaml:5:33: PUN-116 tasks[0].nodes[0].command: a node runs one thing: this one is another task
                keep one of `task` and `command`, or make two nodes
            tasks.yaml:5:44: PUN-116 tasks[0].nodes[0].shards: a node that is another task makes no attempts of its own
                say `shards` of that task, or take it out here
            tasks.yaml:5:54: PUN-116 tasks[0].nodes[0].retry: a node that is another task makes no attempts of its own
                say `retry` of that task, or take it out here
            tasks.yaml:5:82: PUN-116 tasks[0].nodes[0].timeout: a node that is another task makes no attempts of its own
                say `timeout` of that task, or take it out here
            tasks.yaml:5:98: PUN-116 tasks[0].nodes[0].idempotent: a node that is another task makes no attempts of its own
                say `idempotent` of that task, or take it out here
            tasks.yaml:6:33: PUN-116 tasks[0].nodes[1].handler: a node runs one thing: this one is another task
                keep one of `task` and `handler`, or make two nodes
            tasks.yaml:6:50: PUN-116 tasks[0].nodes[1].downstream: a node that is another task makes no attempts of its own
                say `downstream` of that task, or take it out here
            tasks.yaml:6:70: PUN-116 tasks[0].nodes[1].circuit_breaker: a node that is another task makes no attempts of its own
                say `circuit_breaker` of that task, or take it out here
            tasks.yaml:6:95: PUN-116 tasks[0].nodes[1].priority: a node that is another task makes no attempts of its own
                say `priority` of that task, or take it out here
            tasks.yaml:6:112: PUN-116 tasks[0].nodes[1].routing: a node that is another task makes no attempts of its own
                say `routing` of that task, or take it out here
            tasks.yaml:7:21: PUN-112 tasks[0].nodes[2].task: it is empty
                1 to 255 characters, none of them control characters
        "#]],
    );
    refused(
        "  - {name: a, task: [b]}\n",
        expect![[r#"
        tasks.yaml:5:5: PUN-107 tasks[0].nodes[0]: the node `a` runs nothing
            add one of command, http, handler, task to it, or one of the first three to the task for all nodes that have none
        tasks.yaml:5:21: PUN-108 tasks[0].nodes[0].task: a list where a text is wanted
            a text
    "#]],
    );
}

/// Or a run could wait for what waits for its own slot, through whatever tasks.
#[test]
fn a_task_that_waits_for_others_is_in_no_group_that_counts_it() {
    let file = |limits: &str| {
        read(&format!(
            "groups: {{g: {{{limits}}}}}
tasks:
- {{name: w, trigger: manual, group: g, nodes: [{{name: n, task: sub}}]}}
- {{name: sub, trigger: manual, group: g, command: x}}
"
        ))
    };
    expect![[r#"
        tasks.yaml:3:37: PUN-116 tasks[0].group: a run that waits for `sub` can't be one of those that `max_running` of its group counts
            take it out of the group; the tasks that its nodes are can be in it
    "#]]
    .assert_eq(&file("max_running: 2").unwrap_err().to_string());
    file("rate_limit: {starts: 1, per: 1s}").unwrap_or_else(|problems| panic!("{problems}"));
}

/// Rings over ends and calls, of one file; the store sees the others.
#[test]
fn tasks_that_call_each_other_for_ever_are_refused() {
    refused(
        "  - {name: a, task: w}\n",
        expect![[r#"
        tasks.yaml:5:21: PUN-152 tasks[0].nodes[0].task: these tasks would fire each other for ever: `w`, then `w`
            take one of them out of another one's `after`, or out of its nodes
    "#]],
    );
    let ring = "
tasks:
- {name: a, trigger: manual, nodes: [{name: n, task: b}]}
- {name: b, trigger: manual, command: x}
- {name: c, trigger: manual, after: b, nodes: [{name: m, command: x}, {name: n, task: a}]}
";
    expect![[r#"
        tasks.yaml:5:87: PUN-152 tasks[2].nodes[1].task: these tasks would fire each other for ever: `b`, then `c`, then `a`, then `b`
            take one of them out of another one's `after`, or out of its nodes
    "#]]
    .assert_eq(&read(ring).unwrap_err().to_string());
}

#[test]
fn a_task_is_a_workflow_or_it_is_not() {
    let problems = read("tasks:\n- {name: w, trigger: manual, nodes: []}\n").unwrap_err();
    expect![[r#"
        tasks.yaml:2:37: PUN-165 tasks[0].nodes: the workflow has no nodes
            give it at least one, or leave `nodes` out
    "#]]
    .assert_eq(&problems.to_string());
    let problems = read("defaults:\n  nodes: [{name: a, command: x}]\ntasks:\n- {name: w, trigger: manual, command: x}\n").unwrap_err();
    expect![[r#"
        tasks.yaml:2:10: PUN-116 defaults.nodes: nodes are a task's own
            move them to the task; what its nodes have in common can stand here
    "#]]
    .assert_eq(&problems.to_string());
    let problems = read("tasks:\n- {name: w, trigger: manual, shards: 3, nodes: [{name: a, command: x}]}\n").unwrap_err();
    expect![[r#"
        tasks.yaml:2:38: PUN-116 tasks[0].shards: a workflow is not divided, its nodes can be
            move `shards` to the nodes that are to be divided
    "#]]
    .assert_eq(&problems.to_string());
}

fn file_of(nodes: usize, after: impl Fn(usize) -> Option<usize>) -> String {
    let mut text = String::from("tasks:\n- name: w\n  trigger: manual\n  command: x\n  nodes:\n");
    for node in 0..nodes {
        let after = after(node).map(|before| format!(", after: n{before}")).unwrap_or_default();
        let _ = writeln!(text, "  - {{name: n{node}{after}}}");
    }
    text
}

/// C344: ten thousand nodes, in a row and in a ring.
#[test]
fn the_largest_workflows_are_checked_in_no_time() {
    let started = Instant::now();
    let task = definition(&file_of(10_000, |node| node.checked_sub(1)));
    assert_eq!(task.workflow.unwrap().graph().len(), 10_000);
    let problems = read(&file_of(10_000, |node| Some((node + 9_999) % 10_000))).unwrap_err();
    assert!(problems.to_string().contains("PUN-162"), "{problems}");
    let problems = read(&file_of(10_001, |node| node.checked_sub(1))).unwrap_err();
    assert!(problems.to_string().contains("PUN-165"), "{problems}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}, without optimisation", started.elapsed());
}

/// In a file the task that is called may be below the one that calls.
#[test]
fn what_a_node_hands_over_is_what_the_called_task_takes() {
    let file = |payload: &str| {
        read(&format!(
            "tasks:\n- {{name: w, trigger: manual, nodes: [{{name: c, task: sub, payload: {payload}}}, {{name: d, task: elsewhere, payload: 1}}]}}\n\
             - {{name: sub, trigger: manual, command: x, payload_schema: {{type: object, required: [id]}}}}\n"
        ))
    };
    assert!(file("{id: 1}").is_ok());
    let problems = file("{no: 1}").unwrap_err().to_string();
    assert!(problems.contains("PUN-154") && problems.contains("nodes[0].payload") && problems.contains(":2:"), "{problems}");
}
