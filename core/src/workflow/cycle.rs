//! Cycles, in a workflow and across definitions.

/// How far the search has come with a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Unseen,
    OnPath,
    Done,
}

/// One cycle of a directed graph, if it has any: its nodes in the order of the edges, each once, the last with an edge to the first. A node
/// with an edge to itself is a cycle of one.
///
/// `nodes` is how many nodes there are, and `next` answers with those that a node has an edge to, all of them below `nodes`. Iterative, in
/// the order of nodes and edges, and in time of their number: the depth of the graph costs no stack.
pub fn find_cycle<Next: IntoIterator<Item = usize>>(nodes: usize, next: impl Fn(usize) -> Next) -> Option<Vec<usize>> {
    let mut marks = vec![Mark::Unseen; nodes];
    let mut path: Vec<(usize, Next::IntoIter)> = Vec::new();
    for root in 0..nodes {
        if marks[root] != Mark::Unseen {
            continue;
        }
        marks[root] = Mark::OnPath;
        path.push((root, next(root).into_iter()));
        while let Some((node, edges)) = path.last_mut() {
            let Some(follower) = edges.next() else {
                marks[*node] = Mark::Done;
                path.pop();
                continue;
            };
            match marks[follower] {
                Mark::Done => {}
                Mark::OnPath => return Some(path.iter().map(|(node, _)| *node).skip_while(|node| *node != follower).collect()),
                Mark::Unseen => {
                    marks[follower] = Mark::OnPath;
                    path.push((follower, next(follower).into_iter()));
                }
            }
        }
    }
    None
}
