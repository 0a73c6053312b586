//! Which roots count when it is asked what keeps a block: those of the first tier that leads to it.
//!
//! Stacks and registers contain old pointers. A single one to a node of a tree or list leads to all
//! of that, by way of links to its parents, so that no root would keep it alone.

use heaptide_analysis::model::retained::{Root, RootKind};

use crate::graph::{Edge, Graph, Target};

/// The tiers, from the first to the last.
const TIERS: [&[RootKind]; 6] = [
    &[RootKind::Variable, RootKind::ThreadLocal],
    &[RootKind::Mapping],
    &[RootKind::Stack],
    &[RootKind::Registers],
    &[RootKind::Unrecorded],
    &[RootKind::DeadStack],
];
/// No tier.
const NONE: u8 = 0xf;

/// The tiers that lead to each node: the first one in the lower four bits, and in the upper ones
/// the first later one that does so from outside of what the first one leads to.
pub(crate) struct Tiers(Vec<u8>);

impl Tiers {
    /// Finds them. Links of garbage collectors do not count.
    pub(crate) fn of(graph: &Graph, blocks: usize, roots: &[Root]) -> Tiers {
        let mut tiers = Tiers(vec![NONE << 4 | NONE; blocks + roots.len()]);
        let mut queue: Vec<u32> = Vec::new();
        for (kinds, tier) in TIERS.into_iter().zip(0..) {
            for (index, _) in roots.iter().enumerate().filter(|(_, of)| kinds.contains(&of.kind)) {
                tiers.0[blocks + index] = NONE << 4 | tier;
                queue.push((blocks + index) as u32);
            }
            while let Some(node) = queue.pop() {
                let edges = graph.edges(node as usize).iter();
                for to in edges.filter(|edge| !edge.is_to(Target::Link)).map(|edge| edge.to()) {
                    let first = tiers.first(to);
                    if first == NONE {
                        tiers.0[to] = NONE << 4 | tier;
                        queue.push(to as u32);
                    } else if first < tier && tiers.0[to] >> 4 == NONE {
                        tiers.0[to] = tier << 4 | first;
                    }
                }
            }
        }
        tiers
    }

    #[inline]
    fn first(&self, node: usize) -> u8 {
        self.0[node] & 0xf
    }

    /// Returns whether an edge of a node counts for what keeps the block that it leads to.
    #[inline]
    pub(crate) fn keeps(&self, node: usize, edge: Edge) -> bool {
        !edge.is_to(Target::Link) && self.first(node) == self.first(edge.to())
    }

    /// Returns the kind of roots of a later tier that lead to a block, too, from outside of what
    /// its own tier leads to.
    pub(crate) fn also(&self, block: usize) -> Option<RootKind> {
        TIERS.get(usize::from(self.0[block] >> 4)).map(|kinds| kinds[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dominators::Dominators;

    /// A tree of three nodes with links to their parents behind a variable, and an old pointer on a
    /// stack to one of them; and a block that only the stack has.
    #[test]
    fn an_old_pointer_does_not_take_a_tree_from_its_variable() {
        let mut graph = Graph::of_blocks(4);
        let edges: [&[u32]; 6] = [&[1, 2], &[0], &[0], &[], &[0], &[1, 3]];
        for of in edges {
            of.iter().for_each(|to| graph.add(Edge::new(*to, Target::Start)));
            graph.end_node();
        }
        let root = |kind| Root { kind, name: String::new(), module: None, declared: None };
        let roots = [root(RootKind::Variable), root(RootKind::Stack)];
        let tiers = Tiers::of(&graph, 4, &roots);
        let found = Dominators::of(&graph, 4, |node, edge| tiers.keeps(node, edge));
        let sums = found.sums(|node| u64::from(node < 4));
        let of = |node| sums[found.nodes.iter().position(|&n| n == node).expect("reached")];
        assert_eq!((of(4), of(5)), (3, 1), "kept by the variable, and by the stack");
        let also = [0, 1, 2, 3].map(|block| tiers.also(block));
        assert_eq!(also, [None, Some(RootKind::Stack), None, None]);
    }
}
