//! Where the nodes of a workflow go in a drawing: in layers from left to right, each node right of all that it comes after.
//!
//! Layers by the longest way from a beginning; edges that pass layers get a place in each of them; the order inside the layers by the mean of
//! the neighbours, sweeping to and fro; then heights that are as near to those of the neighbours as the distances allow.

/// A node's box.
pub(super) const WIDTH: f64 = 168.0;
pub(super) const HEIGHT: f64 = 46.0;
const GAP_ACROSS: f64 = 64.0;
const GAP_DOWN: f64 = 18.0;
/// What an edge that passes by takes of a layer's height.
const PASSING: f64 = 10.0;
const MARGIN: f64 = 10.0;
const SWEEPS: usize = 8;
/// Most nodes, and most edges, that are drawn: more than that nobody can follow.
pub(super) const NODES_MAX: usize = 400;
pub(super) const EDGES_MAX: usize = 2_000;

/// A drawing, in pixels from the upper left.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The upper left corner of each node.
    pub(super) nodes: Vec<(f64, f64)>,
    pub(super) edges: Vec<Edge>,
}

/// A line from a node to one that comes after it.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    /// What an SVG path takes for `d`.
    pub(super) path: String,
}

/// A place in a layer: a node, or an edge that passes by.
struct Place {
    layer: usize,
    before: Vec<usize>,
    behind: Vec<usize>,
    is_node: bool,
}

impl Place {
    fn height(&self) -> f64 {
        if self.is_node { HEIGHT } else { PASSING }
    }
}

/// Lays out nodes that are numbered from 0, each behind all of its `upstreams` in `order`.
pub(super) fn lay_out(order: &[usize], upstreams: &[Vec<usize>]) -> Drawing {
    let count = upstreams.len();
    let mut layer_of = vec![0; count];
    for &node in order {
        layer_of[node] = upstreams[node].iter().map(|upstream| layer_of[*upstream] + 1).max().unwrap_or(0);
    }
    let mut places: Vec<Place> =
        layer_of.iter().map(|layer| Place { layer: *layer, before: Vec::new(), behind: Vec::new(), is_node: true }).collect();
    // Each edge as the places that it goes through.
    let mut ways: Vec<Vec<usize>> = Vec::new();
    for node in 0..count {
        for &upstream in &upstreams[node] {
            let mut way = vec![upstream];
            for layer in layer_of[upstream] + 1..layer_of[node] {
                places.push(Place { layer, before: Vec::new(), behind: Vec::new(), is_node: false });
                way.push(places.len() - 1);
            }
            way.push(node);
            for step in way.windows(2) {
                places[step[0]].behind.push(step[1]);
                places[step[1]].before.push(step[0]);
            }
            ways.push(way);
        }
    }
    let layers = ordered(&places);
    let tops = heights(&places, &layers);
    let bottom = |place: usize| tops[place] + places[place].height();
    let lowest = (0..places.len()).map(bottom).fold(0.0, f64::max);
    let x = |layer: usize| MARGIN + layer as f64 * (WIDTH + GAP_ACROSS);
    let middle = |place: usize| tops[place] + places[place].height() / 2.0;
    let edges = ways.iter().map(|way| Edge { from: way[0], path: path(way, &places, &x, &middle) }).collect();
    Drawing {
        width: x(layers.len().saturating_sub(1)) + WIDTH + MARGIN,
        height: lowest + MARGIN,
        nodes: (0..count).map(|node| (x(places[node].layer), tops[node])).collect(),
        edges,
    }
}

/// The places of each layer, from top to bottom.
fn ordered(places: &[Place]) -> Vec<Vec<usize>> {
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); places.iter().map(|place| place.layer + 1).max().unwrap_or(0)];
    for (index, place) in places.iter().enumerate() {
        layers[place.layer].push(index);
    }
    let mut rank = vec![0.0; places.len()];
    let number = |layer: &[usize], rank: &mut [f64]| layer.iter().enumerate().for_each(|(at, place)| rank[*place] = at as f64);
    layers.iter().for_each(|layer| number(layer, &mut rank));
    for sweep in 0..SWEEPS {
        let is_forward = sweep % 2 == 0;
        for step in 0..layers.len() {
            let at = if is_forward { step } else { layers.len() - 1 - step };
            let wanted = |place: &usize| {
                mean(if is_forward { &places[*place].before } else { &places[*place].behind }, &rank).unwrap_or(rank[*place])
            };
            let mut keyed: Vec<(f64, usize)> = layers[at].iter().map(|place| (wanted(place), *place)).collect();
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
            layers[at] = keyed.into_iter().map(|(_, place)| place).collect();
            number(&layers[at], &mut rank);
        }
    }
    layers
}

fn mean(of: &[usize], values: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().map(|place| values[*place]).sum::<f64>() / of.len() as f64)
}

/// The upper edge of each place.
fn heights(places: &[Place], layers: &[Vec<usize>]) -> Vec<f64> {
    let mut middles = vec![0.0; places.len()];
    for layer in layers {
        let all: f64 = layer.iter().map(|place| places[*place].height() + GAP_DOWN).sum();
        let mut top = -all / 2.0;
        for place in layer {
            let height = places[*place].height();
            middles[*place] = top + height / 2.0;
            top += height + GAP_DOWN;
        }
    }
    for sweep in 0..SWEEPS {
        let is_forward = sweep % 2 == 0;
        for step in 0..layers.len() {
            let layer = &layers[if is_forward { step } else { layers.len() - 1 - step }];
            let wanted: Vec<f64> = layer
                .iter()
                .map(|place| {
                    let Place { before, behind, .. } = &places[*place];
                    let (first, second) = if is_forward { (before, behind) } else { (behind, before) };
                    mean(first, &middles).or_else(|| mean(second, &middles)).unwrap_or(middles[*place])
                })
                .collect();
            let sizes: Vec<f64> = layer.iter().map(|place| places[*place].height()).collect();
            for (place, middle) in layer.iter().zip(apart(&wanted, &sizes)) {
                middles[*place] = middle;
            }
        }
    }
    let top = |place: usize| middles[place] - places[place].height() / 2.0;
    let highest = (0..places.len()).map(top).fold(f64::INFINITY, f64::min);
    (0..places.len()).map(|place| top(place) - highest + MARGIN).collect()
}

/// The middles nearest to those that are wanted, in the same order, so far apart as their sizes and the gap ask: neighbours that would be
/// too near are put together and share the mean of what they want.
fn apart(wanted: &[f64], sizes: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(wanted.len());
    let mut offset = 0.0;
    for (at, size) in sizes.iter().enumerate() {
        if at > 0 {
            offset += sizes[at - 1] / 2.0 + GAP_DOWN + size / 2.0;
        }
        offsets.push(offset);
    }
    // Groups: the sum of what is wanted, and how many.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (want, offset) in wanted.iter().zip(&offsets) {
        groups.push((want - offset, 1));
        while let [.., (sum, count), (next, more)] = groups[..]
            && sum / count as f64 > next / more as f64
        {
            groups.truncate(groups.len() - 2);
            groups.push((sum + next, count + more));
        }
    }
    let bases = groups.iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / *count as f64, *count));
    bases.zip(&offsets).map(|(base, offset)| base + offset).collect()
}

fn path(way: &[usize], places: &[Place], x: &impl Fn(usize) -> f64, middle: &impl Fn(usize) -> f64) -> String {
    let mut text = String::new();
    let mut from = (x(places[way[0]].layer) + WIDTH, middle(way[0]));
    text.push_str(&format!("M{:.0} {:.1}", from.0, from.1));
    for (step, place) in way.iter().enumerate().skip(1) {
        // An arrow has its head before the box.
        let head = if step + 1 == way.len() { 3.0 } else { 0.0 };
        let to = (x(places[*place].layer) - head, middle(*place));
        let half = (from.0 + to.0) / 2.0;
        text.push_str(&format!(" C{half:.0} {:.1} {half:.0} {:.1} {:.0} {:.1}", from.1, to.1, to.0, to.1));
        from = to;
        if step + 1 < way.len() {
            from.0 += WIDTH;
            text.push_str(&format!(" H{:.0}", from.0));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
        (1..40usize).prop_flat_map(|count| {
            let upstreams = (0..count).map(|node| proptest::collection::btree_set(0..node.max(1), 0..4.min(node + 1)));
            upstreams.collect::<Vec<_>>().prop_map(|all| {
                let own =
                    |(node, set): (usize, std::collections::BTreeSet<usize>)| set.into_iter().filter(|upstream| *upstream < node).collect();
                all.into_iter().enumerate().map(own).collect()
            })
        })
    }

    proptest! {
        #[test]
        fn nodes_lie_apart_inside_the_drawing_and_right_of_what_they_come_after(upstreams in graphs()) {
            let order: Vec<usize> = (0..upstreams.len()).collect();
            let drawing = lay_out(&order, &upstreams);
            prop_assert_eq!(drawing.edges.len(), upstreams.iter().map(Vec::len).sum::<usize>());
            for (node, (x, y)) in drawing.nodes.iter().enumerate() {
                prop_assert!(*x >= 0.0 && *y >= 0.0 && x + WIDTH <= drawing.width && y + HEIGHT <= drawing.height);
                for (other_x, other_y) in &drawing.nodes[..node] {
                    prop_assert!((x - other_x).abs() > 1.0 || (y - other_y).abs() >= HEIGHT + GAP_DOWN - 0.001);
                }
                for upstream in &upstreams[node] {
                    prop_assert!(drawing.nodes[*upstream].0 + WIDTH < *x);
                }
            }
        }

        #[test]
        fn places_that_want_to_be_near_each_other_are_still_apart(wanted in proptest::collection::vec(-500.0..500.0f64, 1..20)) {
            let placed = apart(&wanted, &vec![HEIGHT; wanted.len()]);
            for pair in placed.windows(2) {
                prop_assert!(pair[1] - pair[0] >= HEIGHT + GAP_DOWN - 0.001);
            }
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            prop_assert!((mean(&placed) - mean(&wanted)).abs() < 0.001, "what one gives up another gains");
        }
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let drawing = lay_out(&[0, 1, 2], &[vec![], vec![0], vec![1]]);
        assert!(drawing.nodes.iter().all(|(_, y)| (y - drawing.nodes[0].1).abs() < 0.001));
        assert_eq!(drawing.edges[0].path, "M178 33.0 C208 33.0 208 33.0 239 33.0");
    }
}
