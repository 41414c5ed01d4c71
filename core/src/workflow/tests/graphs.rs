//! What is a workflow, and what is not.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::super::{GraphError, find_cycle};
use super::*;
use crate::limits;

fn errors(nodes: impl IntoIterator<Item = NodeSpec>) -> Vec<GraphError> {
    Graph::new(nodes.into_iter().collect()).expect_err("the graph is not sound")
}

fn messages(nodes: impl IntoIterator<Item = NodeSpec>) -> Vec<String> {
    errors(nodes).iter().map(ToString::to_string).collect()
}

fn chain(length: usize) -> Vec<NodeSpec> {
    let name = |place: usize| format!("n{place}");
    (0..length).map(|place| node(&name(place), &place.checked_sub(1).map(name).unwrap_or_default())).collect()
}

#[test]
fn a_self_edge_names_its_node() {
    assert_eq!(messages([node("a", ""), node("b", "a b")]), ["node `b` comes after itself: it could never start"]);
}

/// C344: s1>s3, s2>s3, s3>s4, s4>s2, s4>s1.
#[test]
fn a_cycle_is_told_as_one_path() {
    let nodes = [node("s1", "s4"), node("s2", "s4"), node("s3", "s1 s2"), node("s4", "s3")];
    assert_eq!(messages(nodes), ["nodes wait for each other in a circle: s1 > s3 > s4 > s1"]);
}

/// C344: a ring of ten thousand.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn a_ring_of_all_nodes_that_there_may_be_is_found_in_no_time() {
    let mut ring = chain(limits::WORKFLOW_NODES_MAX);
    let last = Arc::clone(&ring[limits::WORKFLOW_NODES_MAX - 1].name);
    ring[0].after.push(last);
    let begun = std::time::Instant::now();
    let errors = errors(ring);
    assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
    let [GraphError::Cycle { path }] = &errors[..] else { panic!("one error, of another kind: {}", errors[0]) };
    assert_eq!(path.len(), limits::WORKFLOW_NODES_MAX);
    let message = errors[0].to_string();
    assert!(message.contains("n0 > n1 > n2 > ") && message.ends_with("> n15 > ... 9984 more ... > n0"), "{message}");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let nodes = [
        node("a", "a nowhere"),
        node("b", "c a c"),
        node("c", "b"),
        node("a", ""),
        node("a", ""),
        if_equal("gone", "", json!(1), node("d", "")),
        if_equal("a", "rows/~2", json!(1), node("e", "a")),
    ];
    assert_eq!(
        messages(nodes),
        [
            "more than one node is called `a`: each needs a name of its own",
            "node `a` comes after itself: it could never start",
            "node `a` comes after `nowhere`, which does not exist",
            "node `b` names `c` more than once among the nodes that it comes after",
            "the condition of node `d` reads the result of `gone`, which does not exist",
            "the condition of node `e` has the pointer `rows/~2`: a JSON pointer is empty or begins with `/`, and has `~0` for `~` and `~1` \
             for `/` in a name",
            "nodes wait for each other in a circle: b > c > b",
        ]
    );
}

#[test]
fn limits_come_first() {
    assert_eq!(errors([]), [GraphError::Empty]);
    let nodes = limits::WORKFLOW_NODES_MAX + 1;
    assert_eq!(errors(chain(nodes)), [GraphError::TooManyNodes { nodes }]);
    let wide = |upstreams: usize| {
        let roots = (0..400).map(|place| node(&format!("r{place}"), ""));
        let after = (0..upstreams).map(|place| format!("r{place}")).collect::<Vec<_>>().join(" ");
        roots.chain((0..250).map(move |place| node(&format!("j{place}"), &after))).collect::<Vec<_>>()
    };
    assert_eq!(graph(wide(400)).edges(), limits::WORKFLOW_EDGES_MAX);
    let mut more = wide(400);
    more.push(node("one_more", "r0"));
    assert_eq!(errors(more), [GraphError::TooManyEdges { edges: limits::WORKFLOW_EDGES_MAX + 1 }]);
}

#[test]
fn a_condition_reads_what_is_upstream_and_nothing_else() {
    let reading = |reads| [node("a", ""), node("b", "a"), node("c", ""), node("e", "d"), if_equal(reads, "", json!(1), node("d", "b"))];
    assert!(Graph::new(reading("b").into()).is_ok());
    assert!(Graph::new(reading("a").into()).is_ok());
    for stranger in ["c", "d", "e"] {
        let expected =
            format!("the condition of node `d` reads the result of `{stranger}`, which is not upstream of it: let `d` come after it");
        assert_eq!(messages(reading(stranger)), [expected]);
    }
}

#[test]
fn the_structure_can_be_read_back() {
    let nodes = [node("d", "b c"), node("b", "a"), node("c", "a"), if_equal("d", "", json!(1), node("e", "d")), node("a", "")];
    let graph = graph(nodes.clone());
    let names = |nodes: &[NodeIndex]| nodes.iter().map(|node| graph.name(*node).to_string()).collect::<Vec<_>>().join(" ");
    for (place, spec) in nodes.iter().enumerate() {
        let node = graph.node(&spec.name).expect("the node is there");
        assert_eq!(node.place(), place);
        assert_eq!(names(graph.upstreams(node)), spec.after.join(" "));
    }
    assert_eq!(names(graph.dependants(NodeIndex(4))), "b c");
    assert_eq!(names(graph.dependants(NodeIndex(0))), "e");
    assert_eq!(names(graph.order()), "a b c d e");
    assert_eq!((graph.len(), graph.edges(), graph.node("f")), (5, 5, None));
    assert_eq!(graph.condition(NodeIndex(3)).map(|(_, reads)| reads), Some(NodeIndex(0)));
}

#[test]
fn cycles_of_anything_that_triggers_are_found() {
    let starts: [&[usize]; 4] = [&[3], &[0], &[1], &[2]];
    let cycle = find_cycle(4, |workflow| starts[workflow].iter().copied());
    assert_eq!(cycle, Some(vec![0, 3, 2, 1]));
    assert_eq!(find_cycle(2, |task| (task == 1).then_some(1)), Some(vec![1]), "a task that is its own child");
    assert_eq!(find_cycle(0, |_| None), None);
}

proptest! {
    /// A cycle is found if and only if there is one, and it is one.
    #[test]
    fn a_cycle_is_found_where_there_is_one(nodes in 1_usize..12, edges in proptest::collection::vec((0_usize..12, 0_usize..12), 0..20)) {
        let next = |node: usize| edges.iter().filter(move |(from, to)| *from == node && *to < nodes).map(|(_, to)| *to).collect::<Vec<_>>();
        // Taking away nodes that nothing leads to, again and again, leaves nothing if and only if there is no cycle.
        let mut left: BTreeSet<usize> = (0..nodes).collect();
        while let Some(free) = left.iter().copied().find(|node| !left.iter().any(|other| next(*other).contains(node))) {
            left.remove(&free);
        }
        match find_cycle(nodes, next) {
            None => prop_assert!(left.is_empty()),
            Some(path) => {
                prop_assert!(!path.is_empty());
                prop_assert_eq!(path.iter().collect::<BTreeSet<_>>().len(), path.len());
                for (place, node) in path.iter().enumerate() {
                    prop_assert!(next(*node).contains(&path[(place + 1) % path.len()]));
                }
            }
        }
    }

    /// In a graph with more readers than one look through the edges answers for, exactly those are refused that read what is not upstream.
    #[test]
    fn far_reads_are_told_apart(
        parents in proptest::collection::vec(proptest::collection::vec(0_usize..150, 0..3), 150),
        reads in proptest::collection::vec(0_usize..150, 150),
    ) {
        let mut above: Vec<BTreeSet<usize>> = Vec::new();
        let mut nodes = Vec::new();
        let mut expected = BTreeSet::new();
        for place in 0..150 {
            let upstreams: BTreeSet<usize> = parents[place].iter().copied().filter(|parent| *parent < place).collect();
            let ancestors = upstreams.iter().flat_map(|parent| above[*parent].iter().copied()).chain(upstreams.iter().copied()).collect();
            above.push(ancestors);
            let after: Vec<String> = upstreams.iter().map(|parent| format!("n{parent}")).collect();
            nodes.push(if_equal(&format!("n{}", reads[place]), "", json!(1), node(&format!("n{place}"), &after.join(" "))));
            if !above[place].contains(&reads[place]) {
                expected.insert((format!("n{place}"), format!("n{}", reads[place])));
            }
        }
        let told: BTreeSet<_> = match Graph::new(nodes) {
            Ok(_) => BTreeSet::new(),
            Err(errors) => errors.into_iter().map(|error| match error {
                GraphError::ConditionNotUpstream { node, reads } => (node.to_string(), reads.to_string()),
                other => panic!("{other}"),
            }).collect(),
        };
        prop_assert_eq!(told, expected);
    }
}
