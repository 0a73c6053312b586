//! Marks the blocks that can be reached from roots, in the order of how certain that is, and
//! divides the others as LeakSanitizer and memcheck do.

use crate::graph::{Edge, Graph, Target};
use heaptide_analysis::model::retained::{Root, RootKind, State};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// Returns whether an edge counts.
type Counts = fn(Edge) -> bool;

fn to_starts(edge: Edge) -> bool {
    edge.is_to(Target::Start)
}

fn to_memory(edge: Edge) -> bool {
    !edge.is_to(Target::Link)
}

fn to_anything(_: Edge) -> bool {
    true
}

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
            (|kind| kind == RootKind::Unrecorded, State::OnlyFromUnrecorded),
        ];
        for (is_of, state) in exact {
            reached.mark_from(graph, blocks, roots, is_of, state, to_starts);
        }
        // Interior pointers of blocks that were reached, then of roots.
        reached.follow(graph, 0, State::OnlyByInterior, to_memory);
        let is_alive = |kind| kind != RootKind::DeadStack;
        reached.mark_from(graph, blocks, roots, is_alive, State::OnlyByInterior, to_memory);
        let is_dead = |kind| kind == RootKind::DeadStack;
        reached.mark_from(graph, blocks, roots, is_dead, State::OnlyFromDeadStack, to_memory);
        reached.follow(graph, 0, State::OnlyByCollector, to_anything);
        reached.mark_from(graph, blocks, roots, |_| true, State::OnlyByCollector, to_anything);
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
        counts: Counts,
    ) {
        let begin = self.queue.len();
        for (index, _) in roots.iter().enumerate().filter(|(_, root)| is_of(root.kind)) {
            self.push_all(graph, blocks + index, state, counts);
        }
        self.follow(graph, begin, state, counts);
    }

    /// Marks what the nodes of the queue from `begin` on lead to.
    fn follow(&mut self, graph: &Graph, begin: usize, state: State, counts: Counts) {
        let mut at = begin;
        while at < self.queue.len() {
            self.push_all(graph, self.queue[at] as usize, state, counts);
            at += 1;
        }
    }

    fn push_all(&mut self, graph: &Graph, node: usize, state: State, counts: Counts) {
        for edge in graph.edges(node).iter().filter(|edge| counts(**edge)) {
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
        self.follow(graph, begin, State::LostIndirectly, to_anything);
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
    use crate::graph::Target::{Inside, Link, Start};

    /// Returns the states of blocks with these edges. `roots`: the kind
    /// and the edges of each root.
    fn states(of: &[&[(u32, Target)]], roots: &[(RootKind, &[(u32, Target)])]) -> Vec<State> {
        let mut graph = Graph::of_blocks(of.len());
        for edges in of.iter().chain(roots.iter().map(|(_, edges)| edges)) {
            edges.iter().for_each(|(to, target)| graph.add(Edge::new(*to, *target)));
            graph.end_node();
        }
        let roots: Vec<Root> = roots
            .iter()
            .map(|(kind, _)| Root {
                kind: *kind,
                name: String::new(),
                module: None,
                declared: None,
            })
            .collect();
        let states = Reached::of(&graph, of.len(), &roots).states;
        states.into_iter().map(|state| state.expect("a state")).collect()
    }

    #[test]
    fn states_are_the_most_certain_ones() {
        use RootKind::{DeadStack, Mapping, Stack, Variable};
        use State::{
            OnlyByCollector, OnlyByInterior, OnlyFromDeadStack, OnlyFromMapping, OnlyFromStack,
            Reachable,
        };
        let blocks: &[&[(u32, Target)]] = &[
            &[(1, Start), (3, Inside)],
            &[],
            &[(1, Start)],
            &[(4, Start)],
            &[],
            &[],
            &[(7, Link)],
            &[],
        ];
        let roots: &[(RootKind, &[(u32, Target)])] = &[
            (DeadStack, &[(0, Start), (6, Start)]),
            (Mapping, &[(2, Start), (5, Start)]),
            (Stack, &[(2, Start)]),
            (Variable, &[(0, Start)]),
        ];
        let expected = [
            Reachable,
            Reachable,
            OnlyFromStack,
            OnlyByInterior,
            OnlyByInterior,
            OnlyFromMapping,
            OnlyFromDeadStack,
            OnlyByCollector,
        ];
        assert_eq!(states(blocks, roots), expected);
    }

    #[test]
    fn a_lost_cycle_has_one_head() {
        use State::{Lost, LostIndirectly};
        // A list of two, a ring of three, a block that points to itself, and a ring behind a block
        // with a higher address.
        let blocks: &[&[(u32, Target)]] = &[
            &[(1, Start)],
            &[],
            &[(3, Start)],
            &[(4, Start)],
            &[(2, Start)],
            &[(5, Start)],
            &[(7, Start)],
            &[(6, Start)],
            &[(6, Inside)],
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
