//! Marks the blocks that can be reached from roots, in the order of how certain that is, and
//! divides the others as LeakSanitizer and memcheck do.

use crate::graph::Graph;
use heaptide_analysis::views::retained::{Root, RootKind, State};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// The state of each block, and the node from which it was reached first.
pub(crate) struct Reached {
    pub(crate) states: Vec<Option<State>>,
    /// The node before a block on a shortest path from a root; [`NONE`] for lost blocks.
    pub(crate) from: Vec<u32>,
    queue: Vec<u32>,
}

impl Reached {
    /// Marks all blocks of a graph.
    pub(crate) fn of(graph: &Graph, blocks: usize, roots: &[Root]) -> Reached {
        let mut reached = Reached {
            states: vec![None; blocks],
            from: vec![NONE; blocks],
            queue: Vec::with_capacity(blocks),
        };
        let exact = [
            (RootKind::is_certain as fn(RootKind) -> bool, State::Reachable),
            (|kind| kind == RootKind::Stack, State::OnlyFromStack),
            (|kind| kind == RootKind::Mapping, State::OnlyFromMapping),
        ];
        for (is_of, state) in exact {
            reached.mark_from(graph, blocks, roots, is_of, state, false);
        }
        // Interior pointers of blocks that were reached, then of roots.
        reached.follow(graph, 0, State::OnlyByInterior, true);
        let is_alive = |kind| kind != RootKind::DeadStack;
        reached.mark_from(graph, blocks, roots, is_alive, State::OnlyByInterior, true);
        let is_dead = |kind| kind == RootKind::DeadStack;
        reached.mark_from(graph, blocks, roots, is_dead, State::OnlyFromDeadStack, true);
        reached.divide_lost(graph);
        reached
    }

    fn mark_from(
        &mut self,
        graph: &Graph,
        blocks: usize,
        roots: &[Root],
        is_of: fn(RootKind) -> bool,
        state: State,
        interior: bool,
    ) {
        let begin = self.queue.len();
        for (index, _) in roots.iter().enumerate().filter(|(_, root)| is_of(root.kind)) {
            self.push_all(graph, blocks + index, state, interior);
        }
        self.follow(graph, begin, state, interior);
    }

    /// Marks what the nodes of the queue from `begin` on lead to.
    fn follow(&mut self, graph: &Graph, begin: usize, state: State, interior: bool) {
        let mut at = begin;
        while at < self.queue.len() {
            self.push_all(graph, self.queue[at] as usize, state, interior);
            at += 1;
        }
    }

    fn push_all(&mut self, graph: &Graph, node: usize, state: State, interior: bool) {
        for edge in graph.edges(node).iter().filter(|edge| interior || !edge.is_interior()) {
            self.push(edge.to(), node as u32, state);
        }
    }

    fn push(&mut self, block: usize, from: u32, state: State) {
        if self.states[block].is_none() {
            (self.states[block], self.from[block]) = (Some(state), from);
            self.queue.push(block as u32);
        }
    }

    /// Divides the blocks that were not reached: first those that no lost block leads to, then one
    /// of each cycle. A cycle that a later block leads to begins with that block.
    fn divide_lost(&mut self, graph: &Graph) {
        let blocks = self.states.len();
        let mut is_led_to = vec![false; blocks];
        for block in (0..blocks).filter(|&block| self.states[block].is_none()) {
            for edge in graph.edges(block).iter().filter(|edge| edge.to() != block) {
                is_led_to[edge.to()] = true;
            }
        }
        let begin = self.queue.len();
        for block in (0..blocks).filter(|&block| !is_led_to[block]) {
            self.push(block, NONE, State::Lost);
        }
        self.follow(graph, begin, State::LostIndirectly, true);
        for block in 0..blocks {
            if self.states[block].is_some() {
                continue;
            }
            let mut at = self.queue.len();
            self.push(block, NONE, State::Lost);
            while at < self.queue.len() {
                let node = self.queue[at] as usize;
                for edge in graph.edges(node) {
                    let to = edge.to();
                    if self.states[to] == Some(State::Lost) && to != block {
                        (self.states[to], self.from[to]) =
                            (Some(State::LostIndirectly), node as u32);
                    }
                    self.push(to, node as u32, State::LostIndirectly);
                }
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Edge;

    /// Returns the states of blocks with these edges, `true` for interior ones. `roots`: the kind
    /// and the edges of each root.
    fn states(of: &[&[(u32, bool)]], roots: &[(RootKind, &[(u32, bool)])]) -> Vec<State> {
        let mut graph = Graph::of_blocks(of.len());
        for edges in of.iter().chain(roots.iter().map(|(_, edges)| edges)) {
            edges.iter().for_each(|(to, interior)| graph.add(Edge::new(*to, *interior)));
            graph.end_node();
        }
        let roots: Vec<Root> = roots
            .iter()
            .map(|(kind, _)| Root { kind: *kind, name: String::new(), module: None })
            .collect();
        let states = Reached::of(&graph, of.len(), &roots).states;
        states.into_iter().map(|state| state.expect("a state")).collect()
    }

    #[test]
    fn states_are_the_most_certain_ones() {
        use RootKind::{DeadStack, Mapping, Stack, Variable};
        use State::{OnlyByInterior, OnlyFromDeadStack, OnlyFromMapping, OnlyFromStack, Reachable};
        let blocks: &[&[(u32, bool)]] =
            &[&[(1, false), (3, true)], &[], &[(1, false)], &[(4, false)], &[], &[], &[]];
        let roots: &[(RootKind, &[(u32, bool)])] = &[
            (DeadStack, &[(0, false), (6, false)]),
            (Mapping, &[(2, false), (5, false)]),
            (Stack, &[(2, false)]),
            (Variable, &[(0, false)]),
        ];
        let expected = [
            Reachable,
            Reachable,
            OnlyFromStack,
            OnlyByInterior,
            OnlyByInterior,
            OnlyFromMapping,
            OnlyFromDeadStack,
        ];
        assert_eq!(states(blocks, roots), expected);
    }

    #[test]
    fn a_lost_cycle_has_one_head() {
        use State::{Lost, LostIndirectly};
        // A list of two, a ring of three, a block that points to itself, and a ring behind a block
        // with a higher address.
        let blocks: &[&[(u32, bool)]] = &[
            &[(1, false)],
            &[],
            &[(3, false)],
            &[(4, false)],
            &[(2, false)],
            &[(5, false)],
            &[(7, false)],
            &[(6, false)],
            &[(6, true)],
        ];
        let expected = [
            Lost,
            LostIndirectly,
            Lost,
            LostIndirectly,
            LostIndirectly,
            Lost,
            LostIndirectly,
            LostIndirectly,
            Lost,
        ];
        assert_eq!(states(blocks, &[]), expected);
    }
}
