//! The immediate dominator of each node: the last root or block that all paths to a block go
//! through. What it dominates would be free without it.
//!
//! SEMI-NCA (Georgiadis, Tarjan, Werneck: Finding Dominators in Practice, 2006). It takes nearly
//! linear time; the iterative algorithm of Cooper, Harvey and Kennedy needs as many passes as a
//! doubly linked list has nodes.

use crate::graph::{Edge, Graph};

/// No number.
const NONE: u32 = u32::MAX;

/// Nodes in depth-first order from a node before all roots, which has number 0.
pub(crate) struct Dominators {
    /// The node with each number; that of number 0 is the number of nodes of the graph.
    pub(crate) nodes: Vec<u32>,
    /// The number of the immediate dominator of each number.
    pub(crate) of: Vec<u32>,
}

/// A graph with a node before its roots.
struct Rooted<'a, K> {
    graph: &'a Graph,
    blocks: usize,
    keeps: K,
}

impl<K: Fn(usize, Edge) -> bool> Rooted<'_, K> {
    fn first(&self) -> usize {
        self.graph.nodes()
    }

    /// Returns the successor with an index; `None` within it for one that keeps nothing.
    #[inline]
    fn successor(&self, node: usize, index: usize) -> Option<Option<usize>> {
        if node == self.first() {
            let root = self.blocks + index;
            return (root < self.first()).then_some(Some(root));
        }
        let edge = self.graph.edges(node).get(index)?;
        Some((self.keeps)(node, *edge).then(|| edge.to()))
    }
}

impl Dominators {
    /// Computes the dominators of the blocks that can be reached from roots, which are the nodes
    /// from `blocks` on. `keeps` returns whether an edge of a node counts.
    pub(crate) fn of(
        graph: &Graph,
        blocks: usize,
        keeps: impl Fn(usize, Edge) -> bool,
    ) -> Dominators {
        let rooted = Rooted { graph, blocks, keeps };
        let (nodes, numbers, parents) = depth_first(&rooted);
        let (ends, predecessors) = predecessors(&rooted, &nodes, &numbers);
        let of = semi_nca(&parents, &ends, &predecessors);
        Dominators { nodes, of }
    }

    /// Returns for each number the sum of what it dominates, including its own.
    pub(crate) fn sums(&self, own: impl Fn(u32) -> u64) -> Vec<u64> {
        let mut sums: Vec<u64> = self.nodes.iter().map(|&node| own(node)).collect();
        for number in (1..sums.len()).rev() {
            sums[self.of[number] as usize] += sums[number];
        }
        sums
    }
}

/// Returns the nodes in depth-first order, the number of each node, and the number of the parent of
/// each number.
fn depth_first(rooted: &Rooted<impl Fn(usize, Edge) -> bool>) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let first = rooted.first();
    let mut numbers = vec![NONE; first + 1];
    let (mut nodes, mut parents) = (vec![first as u32], vec![0]);
    numbers[first] = 0;
    // A node, and the index of its next successor.
    let mut stack = vec![(first as u32, 0u32)];
    while let Some((node, next)) = stack.last_mut() {
        let node = *node as usize;
        let Some(to) = rooted.successor(node, *next as usize) else {
            stack.pop();
            continue;
        };
        *next += 1;
        if let Some(to) = to
            && numbers[to] == NONE
        {
            numbers[to] = nodes.len() as u32;
            parents.push(numbers[node]);
            nodes.push(to as u32);
            stack.push((to as u32, 0));
        }
    }
    (nodes, numbers, parents)
}

/// Returns the numbers of the predecessors of each number, and where they end.
fn predecessors(
    rooted: &Rooted<impl Fn(usize, Edge) -> bool>,
    nodes: &[u32],
    numbers: &[u32],
) -> (Vec<u32>, Vec<u32>) {
    let each = |mut found: Box<dyn FnMut(u32, u32) + '_>| {
        for (number, &node) in (0u32..).zip(nodes) {
            let successors = (0..).map_while(|index| rooted.successor(node as usize, index));
            successors.flatten().for_each(|to| found(number, numbers[to]));
        }
    };
    let mut ends = vec![0u32; nodes.len() + 1];
    each(Box::new(|_, to| ends[to as usize + 1] += 1));
    for index in 1..ends.len() {
        ends[index] += ends[index - 1];
    }
    let mut next = ends.clone();
    let mut all = vec![0; ends.last().copied().unwrap_or(0) as usize];
    each(Box::new(|from, to| {
        let place = &mut next[to as usize];
        all[*place as usize] = from;
        *place += 1;
    }));
    (ends, all)
}

fn semi_nca(parents: &[u32], ends: &[u32], predecessors: &[u32]) -> Vec<u32> {
    let count = parents.len();
    let mut ancestors = parents.to_vec();
    let mut labels: Vec<u32> = (0..count as u32).collect();
    let mut semi: Vec<u32> = labels.clone();
    let mut path = Vec::new();
    for number in (1..count).rev() {
        let mut least = parents[number];
        let range = ends[number] as usize..ends[number + 1] as usize;
        for &from in &predecessors[range] {
            if from as usize > number {
                compress(&mut ancestors, &mut labels, &mut path, from, number as u32);
            }
            least = least.min(labels[from as usize]);
        }
        (semi[number], labels[number]) = (least, least);
    }
    let mut of = vec![0; count];
    for number in 1..count {
        let mut dominator = parents[number];
        while dominator > semi[number] {
            dominator = of[dominator as usize];
        }
        of[number] = dominator;
    }
    of
}

/// Gives the nodes from `from` up to the last one above `until` the least label on their paths.
fn compress(ancestors: &mut [u32], labels: &mut [u32], path: &mut Vec<u32>, from: u32, until: u32) {
    let mut at = from;
    while ancestors[at as usize] > until {
        path.push(at);
        at = ancestors[at as usize];
    }
    while let Some(below) = path.pop() {
        labels[below as usize] = labels[below as usize].min(labels[at as usize]);
        ancestors[below as usize] = ancestors[at as usize];
        at = below;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Target;

    /// Computes dominators by removing each node in turn.
    fn by_removal(edges: &[Vec<u32>], blocks: usize) -> Vec<Option<usize>> {
        let nodes = edges.len();
        let reachable = |without: Option<usize>| {
            let mut seen = vec![false; nodes];
            let mut stack: Vec<usize> =
                (blocks..nodes).filter(|node| Some(*node) != without).collect();
            while let Some(node) = stack.pop() {
                if !std::mem::replace(&mut seen[node], true) {
                    let to = edges[node].iter().map(|&to| to as usize);
                    stack.extend(to.filter(|to| Some(*to) != without && !seen[*to]));
                }
            }
            seen
        };
        let all = reachable(None);
        let dominated: Vec<Vec<bool>> = (0..nodes).map(|node| reachable(Some(node))).collect();
        let dominates = |by: usize, node: usize| by != node && all[node] && !dominated[by][node];
        let of = |node: usize| {
            // The nearest one is dominated by all others.
            let all: Vec<usize> = (0..nodes).filter(|&by| dominates(by, node)).collect();
            all.iter()
                .copied()
                .find(|&near| all.iter().all(|&other| other == near || dominates(other, near)))
        };
        (0..nodes).map(of).collect()
    }

    #[test]
    fn dominators_are_those_found_by_removal() {
        let mut state = 1u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % below
        };
        for _ in 0..200 {
            let (blocks, roots) = (random(20) + 1, random(3) + 1);
            let edges: Vec<Vec<u32>> = (0..blocks + roots)
                .map(|_| (0..random(4)).map(|_| random(blocks)).collect())
                .collect();
            let mut graph = Graph::of_blocks(blocks as usize);
            for of in &edges {
                of.iter().for_each(|to| graph.add(Edge::new(*to, Target::Start)));
                graph.end_node();
            }
            let found = Dominators::of(&graph, blocks as usize, |_, _| true);
            let expected = by_removal(&edges, blocks as usize);
            for (number, &node) in found.nodes.iter().enumerate().skip(1) {
                let by = found.nodes[found.of[number] as usize] as usize;
                assert_eq!((by < edges.len()).then_some(by), expected[node as usize], "{edges:?}");
            }
        }
    }

    #[test]
    fn sums_contain_all_that_is_dominated() {
        // root → 0 → 1, 2 → 3; root → 4
        let mut graph = Graph::of_blocks(5);
        for of in [&[1, 2][..], &[3], &[3], &[], &[], &[0, 4]] {
            of.iter().for_each(|to| graph.add(Edge::new(*to, Target::Start)));
            graph.end_node();
        }
        let found = Dominators::of(&graph, 5, |_, _| true);
        let sums = found.sums(|node| if node < 5 { 1 << node } else { 0 });
        let of = |node| sums[found.nodes.iter().position(|&n| n == node).expect("reached")];
        assert_eq!([0, 1, 2, 3, 4, 5].map(of), [15, 2, 4, 8, 16, 31]);
    }
}
