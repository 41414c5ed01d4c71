//! Workflows: what checking a large one costs, and what the end of one node costs in runs of different sizes.
//!
//! The claim is that a node's end costs its own edges and nothing else: the figures for runs of 100 and of 10 000 nodes are to be alike.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use punctual_core::limits;
use punctual_core::workflow::{Graph, NodeIndex, NodeSpec, NodeState, Run};

/// Edges out of each node that is not in the last layer.
const DEGREE: usize = 5;
const LAYER: usize = 20;

/// Layers of 20 nodes, each of which comes after five of the layer before.
fn layered(nodes: usize) -> Vec<NodeSpec> {
    let spec = |place: usize| {
        let layer = place / LAYER;
        let upstreams =
            (0..if layer == 0 { 0 } else { DEGREE }).map(|step| format!("n{}", (layer - 1) * LAYER + (place + 3 * step) % LAYER));
        let upstreams: Vec<String> = upstreams.collect();
        NodeSpec::new(&format!("n{place}"), upstreams.iter().map(String::as_str))
    };
    (0..nodes).map(spec).collect()
}

fn ring(nodes: usize) -> Vec<NodeSpec> {
    (0..nodes).map(|place| NodeSpec::new(&format!("n{place}"), [&*format!("n{}", (place + nodes - 1) % nodes)])).collect()
}

fn end(run: &mut Run, graph: &Graph, node: NodeIndex) {
    black_box(run.node_ended(graph, node, NodeState::Succeeded, &|_| None));
}

fn checking(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("workflow/check");
    group.sample_size(20);
    let nodes = limits::WORKFLOW_NODES_MAX;
    group.throughput(Throughput::Elements(nodes as u64));
    let specs = layered(nodes);
    group.bench_function("layers_10000", |bencher| {
        bencher.iter_batched(|| specs.clone(), |specs| Graph::new(specs).expect("a sound graph"), BatchSize::LargeInput);
    });
    let specs = ring(nodes);
    group.bench_function("ring_10000", |bencher| {
        bencher.iter_batched(|| specs.clone(), |specs| Graph::new(specs).expect_err("a cycle"), BatchSize::LargeInput);
    });
    group.finish();
}

fn ending_one_node(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("workflow/one_end");
    for nodes in [100, 1_000, limits::WORKFLOW_NODES_MAX] {
        let graph = Graph::new(layered(nodes)).expect("a sound graph");
        // Half of the run is over: the next end is in its middle, and the last of its layer, so that all of its dependants start.
        let middle = nodes / 2 / LAYER * LAYER;
        let (mut run, _) = Run::begin(&graph);
        (0..middle - 1).for_each(|place| end(&mut run, &graph, NodeIndex(place as u32)));
        let last = NodeIndex(middle as u32 - 1);
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter_batched_ref(|| run.clone(), |run| end(run, &graph, last), BatchSize::NumIterations(50));
        });
    }
    group.finish();
}

fn whole_runs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("workflow/whole_run");
    group.sample_size(20);
    for nodes in [100, 1_000, limits::WORKFLOW_NODES_MAX] {
        let graph = Graph::new(layered(nodes)).expect("a sound graph");
        group.throughput(Throughput::Elements(nodes as u64));
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| {
                let (mut run, _) = Run::begin(&graph);
                graph.order().iter().for_each(|node| end(&mut run, &graph, *node));
                assert!(run.end().is_some());
            });
        });
    }
    group.finish();
}

fn joining_many(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("workflow/fan_in");
    group.sample_size(20);
    let upstreams = limits::WORKFLOW_NODES_MAX - 1;
    let names: Vec<String> = (0..upstreams).map(|place| format!("n{place}")).collect();
    let mut specs: Vec<NodeSpec> = names.iter().map(|name| NodeSpec::new(name, [])).collect();
    specs.push(NodeSpec::new("join", names.iter().map(String::as_str)));
    let graph = Graph::new(specs).expect("a sound graph");
    let (run, _) = Run::begin(&graph);
    group.throughput(Throughput::Elements(upstreams as u64));
    group.bench_function("9999_ends", |bencher| {
        let all = |run: &mut Run| (0..upstreams).for_each(|place| end(run, &graph, NodeIndex(place as u32)));
        bencher.iter_batched_ref(|| run.clone(), all, BatchSize::LargeInput);
    });
    group.bench_function("taken_up_again", |bencher| {
        bencher.iter(|| Run::restore(&graph, graph.nodes().zip(run.states()), false, &|_| None));
    });
    group.finish();
}

criterion_group!(benches, checking, ending_one_node, whole_runs, joining_many);
criterion_main!(benches);
