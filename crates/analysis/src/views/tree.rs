//! The call tree for one metric, merged by function, top-down or bottom-up.

use super::aggregate::by_stack;
use crate::attribution::{FunctionId, Functions, Owners, Role, owners_in_tree};
use crate::collections::trie::{Trie, TrieNode};
use crate::model::{Measure, Process, StackId};

/// The treatment of functions that call themselves directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recursion {
    /// Each call is a separate node.
    Keep,
    /// The calls are merged into one node.
    Fold,
}

/// A function at the end of one call path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Index of the parent; the root's is its own.
    pub parent: u32,
    /// The function; `None` for the root, which represents the whole process.
    pub function: Option<FunctionId>,
    /// Top-down: bytes allocated in the function itself. Bottom-up: the part of stacks that start
    /// here, or whose callers are too small to show. For the root: allocations without a stack, and
    /// functions too small to show.
    pub own: u64,
    /// The value including all nodes below.
    pub inclusive: u64,
}

/// A tree of functions. Node 0 is the root; nodes follow their parents.
#[derive(Debug)]
pub struct Tree {
    /// The metric of the values.
    pub measure: Measure,
    /// The nodes, excluding those of value 0.
    pub nodes: Vec<TreeNode>,
    /// Children of all nodes, contiguous for each node, largest first.
    children: Vec<u32>,
    /// Start of each node's part of `children`, and the end.
    starts: Vec<u32>,
}

const ROOT: TreeNode = TreeNode { parent: 0, function: None, own: 0, inclusive: 0 };

impl Tree {
    /// Builds the tree with callers above their callees. Each site is in exactly one path, so no
    /// value is counted twice.
    ///
    /// ```
    /// use heaptide_analysis::attribution::Functions;
    /// use heaptide_analysis::model::Measure;
    /// use heaptide_analysis::views::tree::{Recursion, Tree};
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let functions = Functions::of(&process);
    /// let tree = Tree::top_down(&process, &functions, Measure::LiveBytes, Recursion::Fold);
    /// assert_eq!(tree.nodes[0].inclusive, process.totals.live_bytes);
    /// ```
    pub fn top_down(
        process: &Process,
        functions: &Functions,
        measure: Measure,
        recursion: Recursion,
    ) -> Tree {
        let measure = measure.of_sites();
        let mut trie = Trie::with_room(process.tables.stacks.len());
        let mut of_stack: Vec<u32> = Vec::with_capacity(process.tables.stacks.len().max(1));
        of_stack.push(0);
        for stack in process.tables.stacks.iter().skip(1) {
            let function = functions.of_frame(stack.frame).0;
            let parent = of_stack[stack.parent.0 as usize];
            let folds = recursion == Recursion::Fold
                && parent != 0
                && trie.nodes()[parent as usize].key == function;
            of_stack.push(if folds { parent } else { trie.child(parent, function) });
        }
        let node = |node: TrieNode| TreeNode {
            parent: node.parent,
            function: Some(FunctionId(node.key)),
            ..ROOT
        };
        let mut nodes: Vec<TreeNode> = trie.into_nodes().into_iter().map(node).collect();
        nodes[0] = ROOT;
        for (StackId(stack), measures) in by_stack(process) {
            let node = &mut nodes[of_stack[stack as usize] as usize];
            node.own = measure.combine().of(node.own, measure.of(&measures));
        }
        Tree::finish(nodes, measure)
    }

    /// Builds the tree with owners of allocations at the top and their callers below. A node whose
    /// value is below `least` is omitted with all nodes below it, so that even hundreds of
    /// thousands of stacks give a small tree.
    pub fn bottom_up(
        process: &Process,
        owners: &Owners,
        measure: Measure,
        recursion: Recursion,
        least: u64,
    ) -> Tree {
        let down = Tree::top_down(process, &owners.functions, measure, recursion);
        let role = |node: &TreeNode| node.function.map_or(Role::Owner, |id| owners.role(id));
        let owner_of =
            owners_in_tree(down.nodes.iter().skip(1).map(|node| (node.parent, role(node))));
        let mut nodes = vec![ROOT];
        nodes[0].own = down.nodes[0].own;
        let leaves = down.nodes.iter().zip(owner_of).skip(1).filter(|(node, _)| node.own > 0);
        let mut ways: Vec<Way> = leaves.map(|(node, at)| Way { at, value: node.own }).collect();
        let mut todo = vec![(0, 0..ways.len())];
        while let Some((parent, range)) = todo.pop() {
            let ways = &mut ways[range.clone()];
            ways.sort_unstable_by_key(|way| down.nodes[way.at as usize].function);
            let mut start = range.start;
            let same = |a: &Way, b: &Way| {
                down.nodes[a.at as usize].function == down.nodes[b.at as usize].function
            };
            for group in ways.chunk_by_mut(same) {
                let end = start + group.len();
                if let Some(stay) = grow(&mut nodes, parent, group, &down, least) {
                    todo.push(((nodes.len() - 1) as u32, start..start + stay));
                }
                start = end;
            }
        }
        Tree::finish(nodes, down.measure)
    }

    /// Returns the children of a node, largest inclusive value first.
    pub fn children(&self, node: u32) -> &[u32] {
        let (start, end) = (self.starts[node as usize], self.starts[node as usize + 1]);
        &self.children[start as usize..end as usize]
    }

    /// Sums up, removes nodes of value 0, and orders children.
    fn finish(mut nodes: Vec<TreeNode>, measure: Measure) -> Tree {
        for index in (0..nodes.len()).rev() {
            let TreeNode { parent, own, inclusive, .. } = nodes[index];
            let inclusive = measure.combine().of(own, inclusive);
            nodes[index].inclusive = inclusive;
            if index > 0 {
                let above = &mut nodes[parent as usize].inclusive;
                *above = measure.combine().of(*above, inclusive);
            }
        }
        let nodes = without_zeros(nodes);
        let mut starts = vec![0u32; nodes.len() + 1];
        nodes.iter().skip(1).for_each(|node| starts[node.parent as usize + 1] += 1);
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut children: Vec<u32> = (1..nodes.len() as u32).collect();
        children.sort_by_key(|&child| {
            let TreeNode { parent, inclusive, .. } = nodes[child as usize];
            (parent, std::cmp::Reverse(inclusive), child)
        });
        Tree { measure, nodes, children, starts }
    }
}

/// A path upwards from an allocation: the current node of the top-down tree, and the value.
struct Way {
    at: u32,
    value: u64,
}

/// Adds the node of a group of paths with the same current function, and advances them to its
/// callers. Returns how many paths continue, which are moved to the front; `None` if the node is
/// too small to show.
fn grow(
    nodes: &mut Vec<TreeNode>,
    parent: u32,
    group: &mut [Way],
    down: &Tree,
    least: u64,
) -> Option<usize> {
    let combine = down.measure.combine();
    let value = group.iter().fold(0, |sum, way| combine.of(sum, way.value));
    if value < least {
        let above = &mut nodes[parent as usize];
        above.own = combine.of(above.own, value);
        return None;
    }
    let function = down.nodes[group[0].at as usize].function;
    let mut node = TreeNode { parent, function, ..ROOT };
    let mut stay = 0;
    for index in 0..group.len() {
        let up = down.nodes[group[index].at as usize].parent;
        if up == 0 {
            node.own = combine.of(node.own, group[index].value);
            continue;
        }
        group[index].at = up;
        group.swap(stay, index);
        stay += 1;
    }
    nodes.push(node);
    Some(stay)
}

/// Removes nodes without a value, except the root; the order does not change.
fn without_zeros(nodes: Vec<TreeNode>) -> Vec<TreeNode> {
    let mut moved = vec![0u32; nodes.len()];
    let mut kept: Vec<TreeNode> = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        if index == 0 || node.inclusive > 0 {
            moved[index] = kept.len() as u32;
            kept.push(TreeNode { parent: moved[node.parent as usize], ..node });
        }
    }
    kept
}
