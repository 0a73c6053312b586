//! Rebuilds stack trees: removes, inserts and folds frames, and updates the stacks of sites.

use rustc_hash::FxHashMap;

use crate::collections::trie::{Trie, TrieNode};
use crate::model::{Frame, FrameId, Process, Site, StackId, StackNode, Trace};

/// A stack tree under construction: equal frames below the same caller are merged.
pub(crate) struct Stacks {
    tree: Trie,
}

impl Stacks {
    /// Returns a tree with the empty stack and room for `nodes` more.
    pub(crate) fn with_capacity(nodes: usize) -> Stacks {
        Stacks { tree: Trie::with_room(nodes) }
    }

    /// Returns a stack extended by a frame.
    pub(crate) fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        StackId(self.tree.child(parent.0, frame.0))
    }

    /// Returns the innermost frame of a stack.
    pub(crate) fn frame(&self, stack: StackId) -> Option<FrameId> {
        let node = self.tree.nodes().get(stack.0 as usize).filter(|_| stack != StackId(0))?;
        Some(FrameId(node.key))
    }

    /// Returns the nodes; the first is the empty stack, parents precede children.
    pub(crate) fn into_nodes(self) -> Vec<StackNode> {
        let stack =
            |node: TrieNode| StackNode { parent: StackId(node.parent), frame: FrameId(node.key) };
        self.tree.into_nodes().into_iter().map(stack).collect()
    }
}

impl Process {
    /// Rebuilds the stack tree, visiting each node once after its parent: `step` receives the new
    /// stack and state of the caller and a frame, and returns the new stack and a state for its
    /// callees.
    pub(crate) fn restack<S: Copy>(
        &mut self,
        outermost: S,
        mut step: impl FnMut(&mut Stacks, (StackId, S), FrameId) -> (StackId, S),
    ) {
        let mut stacks = Stacks::with_capacity(self.tables.stacks.len());
        let mut new = Vec::with_capacity(self.tables.stacks.len());
        new.push((StackId(0), outermost));
        for node in self.tables.stacks.iter().skip(1) {
            new.push(step(&mut stacks, new[node.parent.0 as usize], node.frame));
        }
        for site in &mut self.tables.sites {
            site.stack = new[site.stack.0 as usize].0;
        }
        for trace in &mut self.time.traces {
            trace.move_stacks(|stack| new[stack.0 as usize].0);
        }
        self.tables.stacks = stacks.into_nodes();
    }

    /// Cuts stacks to their outermost `depth` frames; deeper frames count for the last of these.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// process.cut_stacks(3);
    /// assert!(process.tables.sites.iter().all(|site| process.path_of(site.stack).len() <= 3));
    /// ```
    pub fn cut_stacks(&mut self, depth: usize) {
        self.restack(0, |stacks, (caller, level), frame| {
            if level < depth { (stacks.child(caller, frame), level + 1) } else { (caller, level) }
        });
        self.settle();
    }

    /// Normalizes after changes of stacks or sites: merges sites that are equal in all dimensions,
    /// and removes unused stacks and frames.
    pub(crate) fn settle(&mut self) {
        self.join_sites();
        self.forget_stacks();
        self.forget_frames();
    }

    fn join_sites(&mut self) {
        let mut first = FxHashMap::default();
        first.reserve(self.tables.sites.len());
        let mut sites: Vec<Site> = Vec::with_capacity(self.tables.sites.len());
        let mut new = Vec::with_capacity(self.tables.sites.len());
        for site in self.tables.sites.drain(..) {
            let place = (site.stack, site.scope, site.label, site.lane);
            let key = (place, site.size, site.call, site.kind);
            let at = *first.entry(key).or_insert(sites.len());
            new.push(at as u32);
            match sites.get_mut(at) {
                Some(same) => same.join(&site),
                None => sites.push(site),
            }
        }
        self.tables.sites = sites;
        self.time.move_sites(|site| new.get(site as usize).copied());
    }

    fn forget_stacks(&mut self) {
        let mut used = vec![false; self.tables.stacks.len()];
        used[0] = true;
        self.tables.sites.iter().for_each(|site| used[site.stack.0 as usize] = true);
        let of_frees = self.time.traces.iter().flat_map(Trace::stacks);
        of_frees.for_each(|stack| used[stack.0 as usize] = true);
        for index in (1..self.tables.stacks.len()).rev() {
            used[self.tables.stacks[index].parent.0 as usize] |= used[index];
        }
        let mut new = vec![StackId(0); self.tables.stacks.len()];
        let mut kept = 0;
        for index in (0..self.tables.stacks.len()).filter(|&index| used[index]) {
            let StackNode { parent, frame } = self.tables.stacks[index];
            self.tables.stacks[kept] = StackNode { parent: new[parent.0 as usize], frame };
            new[index] = StackId(kept as u32);
            kept += 1;
        }
        self.tables.stacks.truncate(kept);
        self.tables.sites.iter_mut().for_each(|site| site.stack = new[site.stack.0 as usize]);
        for trace in &mut self.time.traces {
            trace.move_stacks(|stack| new[stack.0 as usize]);
        }
    }

    fn forget_frames(&mut self) {
        let mut used = vec![false; self.tables.frames.len()];
        self.tables.stacks.iter().skip(1).for_each(|node| used[node.frame.0 as usize] = true);
        let mut new = vec![FrameId(0); self.tables.frames.len()];
        let mut kept: Vec<Frame> = Vec::new();
        for (index, frame) in
            self.tables.frames.drain(..).enumerate().filter(|&(index, _)| used[index])
        {
            new[index] = FrameId(kept.len() as u32);
            kept.push(frame);
        }
        self.tables.frames = kept;
        self.tables
            .stacks
            .iter_mut()
            .skip(1)
            .for_each(|node| node.frame = new[node.frame.0 as usize]);
    }
}

impl Site {
    /// Adds the counters of another site.
    pub(crate) fn join(&mut self, other: &Site) {
        let sum = u64::saturating_add;
        self.measures.add(&other.measures);
        self.moved.blocks = sum(self.moved.blocks, other.moved.blocks);
        self.moved.usable_bytes = sum(self.moved.usable_bytes, other.moved.usable_bytes);
        self.moved.requested_bytes = sum(self.moved.requested_bytes, other.moved.requested_bytes);
        self.lent_bytes = sum(self.lent_bytes, other.lent_bytes);
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::{lines, with_stacks};

    #[test]
    fn what_is_deeper_counts_for_the_last_that_is_left() {
        let mut process = with_stacks(&["", "main", "main;a", "main;a;b", "main;a;c", "other;d;e"]);
        let totals = process.totals;
        process.cut_stacks(2);
        assert_eq!(lines(&process), [" 1", "main 2", "main;a 28", "other;d 32"]);
        assert_eq!((process.tables.stacks.len(), process.tables.frames.len()), (5, 4));
        assert_eq!(crate::model::Sum::over(&process.tables.sites).live_bytes, totals.live_bytes);
        process.cut_stacks(1);
        assert_eq!(lines(&process), [" 1", "main 30", "other 32"]);
    }
}
