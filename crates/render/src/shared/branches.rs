//! Trees of calls, callers and scopes with several metrics, for pictures. Branches too small to see
//! are merged.

use std::cmp::Reverse;

use heaptide_analysis::attribution::{Functions, Owners, Role, owners_in_tree};
use heaptide_analysis::collections::trie::Trie;
use heaptide_analysis::model::{FrameId, Lane, LaneId, Measure, Process, ScopeId, Site, Sum};

/// Levels of a picture; deeper branches are merged like small ones.
pub(crate) const LEVELS: usize = 300;

/// What a branch represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The whole process.
    Root,
    /// A function, by its first frame in the tree.
    Call(FrameId),
    /// A scope path.
    Scope(ScopeId),
    /// A number of merged branches, each too small to see.
    Smaller(u32),
}

/// One branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<const N: usize> {
    /// Index of the parent; the root is its own parent.
    pub(crate) parent: u32,
    /// What it represents.
    pub(crate) what: What,
    /// Values of the branch itself.
    pub(crate) own: [u64; N],
    /// Values including all descendants.
    pub(crate) inclusive: [u64; N],
}

/// A tree of branches. Parents precede their children; the first branch is the root.
#[derive(Debug)]
pub(crate) struct Branches<const N: usize> {
    /// The metrics of the values.
    pub(crate) measures: [Measure; N],
    /// The branches.
    pub(crate) all: Vec<Branch<N>>,
}

impl<const N: usize> Branches<N> {
    /// Builds a tree in which callers contain their callees, of one lane or all lanes.
    pub(crate) fn calls(
        process: &Process,
        functions: &Functions,
        lane: Option<LaneId>,
        measures: [Measure; N],
    ) -> Branches<N> {
        let mut tree = Branches::new(measures);
        let mut known = Trie::with_room(process.tables.stacks.len());
        tree.all.reserve(process.tables.stacks.len());
        let mut of_stack = Vec::with_capacity(process.tables.stacks.len());
        of_stack.push(0);
        for stack in process.tables.stacks.iter().skip(1) {
            let parent = of_stack[stack.parent.0 as usize];
            let branch = known.child(parent, functions.of_frame(stack.frame).0);
            if branch as usize == tree.all.len() {
                tree.all.push(Branch { parent, what: What::Call(stack.frame), ..tree.empty() });
            }
            of_stack.push(branch);
        }
        drop(known);
        tree.fill(process, of_lane(lane), |site| of_stack[site.stack.0 as usize]);
        tree
    }

    /// Builds a tree of nested scopes, of one lane or all lanes. Scopes below `levels` count for
    /// their ancestor at the last level.
    pub(crate) fn scopes(
        process: &Process,
        lane: Option<LaneId>,
        levels: usize,
        measures: [Measure; N],
    ) -> Branches<N> {
        Branches::scopes_of(process, of_lane(lane), levels, measures)
    }

    /// Like [`scopes`](Self::scopes), but of the given sites.
    pub(crate) fn scopes_of(
        process: &Process,
        is_wanted: impl Fn(&Site) -> bool,
        levels: usize,
        measures: [Measure; N],
    ) -> Branches<N> {
        let mut tree = Branches::new(measures);
        let mut of_scope = vec![(0u32, 0usize)];
        for (scope, id) in process.tables.scopes.iter().zip(0..).skip(1) {
            let (parent, level) = of_scope[scope.parent.0 as usize];
            if level == levels {
                of_scope.push((parent, level));
                continue;
            }
            tree.all.push(Branch { parent, what: What::Scope(ScopeId(id)), ..tree.all[0] });
            of_scope.push(((tree.all.len() - 1) as u32, level + 1));
        }
        tree.fill(process, is_wanted, |site| of_scope[site.scope.0 as usize].0);
        tree
    }

    /// Turns a tree of calls around: owners of allocations contain their callers. Branches below a
    /// fraction of the whole in every metric are merged during construction, so that the tree stays
    /// small.
    pub(crate) fn callers(&self, owners: &Owners, parts: u64) -> Self {
        let function = |at: u32| match self.all[at as usize].what {
            What::Call(frame) => owners.functions.of_frame(frame).0,
            _ => u32::MAX,
        };
        let role = |branch: &Branch<N>| match branch.what {
            What::Call(frame) => owners.role(owners.functions.of_frame(frame)),
            _ => Role::Owner,
        };
        let nodes = self.all.iter().skip(1).map(|branch| (branch.parent, role(branch)));
        let owner_of = owners_in_tree(nodes);
        let mut ways = Vec::new();
        for (branch, &at) in self.all.iter().zip(&owner_of).skip(1) {
            let way = Way { at, function: function(at), value: branch.own };
            ways.extend((branch.own != [0; N]).then_some(way));
        }
        let mut up = Branches::new(self.measures);
        up.all[0].own = self.all[0].own;
        let least = self.least(parts);
        let mut todo = vec![(0, 1, 0..ways.len())];
        while let Some((parent, level, range)) = todo.pop() {
            let ways = &mut ways[range.clone()];
            ways.sort_unstable_by_key(|way| way.function);
            let mut start = range.start;
            let mut smaller = Branch { parent, what: What::Smaller(0), ..up.empty() };
            for group in ways.chunk_by_mut(|a, b| a.function == b.function) {
                let next = start + group.len();
                match self.climb(group, level, &least, &function) {
                    Ok((branch, stay)) => {
                        up.all.push(Branch { parent, ..branch });
                        todo.push((up.all.len() as u32 - 1, level + 1, start..start + stay));
                    }
                    Err(value) => smaller.merge(&self.measures, 1, &value),
                }
                start = next;
            }
            up.all.extend((smaller.what != What::Smaller(0)).then_some(smaller));
        }
        up.sum_up();
        up
    }

    /// Returns the branch of a group of paths that are at one function, and how many of them have a
    /// caller. These are moved to the caller, and to the front of the group. Returns the group's
    /// value as an error if it is too small to show.
    fn climb(
        &self,
        group: &mut [Way<N>],
        level: usize,
        least: &[u64; N],
        function: &impl Fn(u32) -> u32,
    ) -> Result<(Branch<N>, usize), [u64; N]> {
        let mut value = [0; N];
        group.iter().for_each(|way| add(&self.measures, &mut value, &way.value));
        if level > LEVELS || !reaches(&value, least) {
            return Err(value);
        }
        let what = self.all[group[0].at as usize].what;
        let mut branch = Branch { what, ..self.empty() };
        let mut stay = 0;
        for index in 0..group.len() {
            let caller = self.all[group[index].at as usize].parent;
            if caller == 0 {
                add(&self.measures, &mut branch.own, &group[index].value);
                continue;
            }
            (group[index].at, group[index].function) = (caller, function(caller));
            group.swap(stay, index);
            stay += 1;
        }
        Ok((branch, stay))
    }

    /// Returns the tree with direct recursion folded: calls of a function by itself become part of
    /// the first call.
    pub(crate) fn without_recursion(&self, functions: &Functions) -> Branches<N> {
        let mut tree = Branches { measures: self.measures, all: vec![self.empty()] };
        let mut known = Trie::with_room(self.all.len());
        let mut kept: Vec<u32> = Vec::with_capacity(self.all.len());
        let function = |what| match what {
            What::Call(frame) => Some(functions.of_frame(frame).0),
            _ => None,
        };
        for (index, branch) in self.all.iter().enumerate() {
            let parent = if index == 0 { 0 } else { kept[branch.parent as usize] };
            let at = match function(branch.what) {
                None => 0,
                of if of == function(tree.all[parent as usize].what) => parent,
                Some(of) => known.child(parent, of),
            };
            if at as usize == tree.all.len() {
                tree.all.push(Branch { parent, what: branch.what, ..self.empty() });
            }
            add(&self.measures, &mut tree.all[at as usize].own, &branch.own);
            kept.push(at);
        }
        tree.sum_up();
        tree
    }

    /// Returns the tree with branches merged that are below 1/`parts` of the whole in every metric.
    /// If more than `most` branches remain, the fraction is increased.
    pub(crate) fn cut(&self, parts: u64, most: usize) -> Branches<N> {
        let mut parts = parts;
        loop {
            let cut = self.cut_below(&self.least(parts), LEVELS);
            if cut.all.len() <= most || parts < 2 {
                return cut;
            }
            parts = parts * 2 / 3;
        }
    }

    /// Returns the tree with branches merged that are below these values in every metric, or deeper
    /// than `levels`.
    pub(crate) fn cut_below(&self, least: &[u64; N], levels: usize) -> Branches<N> {
        let mut cut = Branches { measures: self.measures, all: vec![self.all[0]] };
        // For each branch: its new index and level, or `None` if it is not shown.
        let mut kept = vec![Some((0u32, 0usize))];
        let mut smaller: Vec<Option<Branch<N>>> = vec![None];
        for branch in &self.all[1..] {
            let at = kept[branch.parent as usize].and_then(|(parent, level)| {
                if level < levels && reaches(&branch.inclusive, least) {
                    cut.all.push(Branch { parent, ..*branch });
                    smaller.push(None);
                    return Some((cut.all.len() as u32 - 1, level + 1));
                }
                let none = Branch { parent, what: What::Smaller(0), ..self.empty() };
                let rest = smaller[parent as usize].get_or_insert(none);
                let branches = if let What::Smaller(branches) = branch.what { branches } else { 1 };
                rest.merge(&self.measures, branches, &branch.inclusive);
                None
            });
            kept.push(at);
        }
        let found = |rest: &Branch<N>| rest.what != What::Smaller(0);
        cut.all.extend(smaller.into_iter().flatten().filter(found));
        cut
    }

    /// Returns the least value in each metric; a branch is shown if it reaches one of them.
    fn least(&self, parts: u64) -> [u64; N] {
        self.all[0].inclusive.map(|whole| whole.div_ceil(parts.max(1)).max(1))
    }

    /// Returns the tree of a single metric.
    pub(crate) fn only(&self, measure: usize) -> Branches<1> {
        let mut only = Branches::new([self.measures[measure]]);
        let mut kept = vec![0u32];
        for &Branch { parent, what, own, inclusive } in &self.all {
            let (own, inclusive) = ([own[measure]], [inclusive[measure]]);
            let parent = kept[parent as usize];
            let branch = Branch { parent, what, own, inclusive };
            match what {
                What::Root => only.all[0] = branch,
                _ if inclusive == [0] => kept.push(0),
                _ => {
                    only.all.push(branch);
                    kept.push((only.all.len() - 1) as u32);
                }
            }
        }
        only
    }

    fn new(measures: [Measure; N]) -> Branches<N> {
        let root = Branch { parent: 0, what: What::Root, own: [0; N], inclusive: [0; N] };
        Branches { measures: measures.map(Measure::of_sites), all: vec![root] }
    }

    fn empty(&self) -> Branch<N> {
        Branch { parent: 0, what: What::Root, own: [0; N], inclusive: [0; N] }
    }

    fn fill(
        &mut self,
        process: &Process,
        is_wanted: impl Fn(&Site) -> bool,
        at: impl Fn(&Site) -> u32,
    ) {
        let wanted = process.tables.sites.iter().filter(|site| is_wanted(site));
        let mut sites: Vec<(u32, &Site)> = wanted.map(|site| (at(site), site)).collect();
        sites.sort_by_key(|site| site.0);
        for of_one in sites.chunk_by(|a, b| a.0 == b.0) {
            let sum = Sum::over(of_one.iter().map(|site| site.1));
            self.all[of_one[0].0 as usize].own = self.measures.map(|measure| measure.of(&sum));
        }
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.all.iter_mut().for_each(|branch| branch.inclusive = branch.own);
        for index in (1..self.all.len()).rev() {
            let Branch { parent, inclusive, .. } = self.all[index];
            add(&self.measures, &mut self.all[parent as usize].inclusive, &inclusive);
        }
    }
}

impl<const N: usize> Branch<N> {
    /// Adds branches that are too small to see; ignores those without a value.
    fn merge(&mut self, measures: &[Measure; N], branches: u32, value: &[u64; N]) {
        if let (What::Smaller(count), true) = (&mut self.what, *value != [0; N]) {
            *count += branches;
            add(measures, &mut self.own, value);
            self.inclusive = self.own;
        }
    }
}

/// Returns a predicate for sites of one lane, or of any lane.
fn of_lane(lane: Option<LaneId>) -> impl Fn(&Site) -> bool {
    move |site| lane.is_none_or(|lane| lane == site.lane)
}

/// A path from an allocation up to its callers: the branch it has reached, and its value.
struct Way<const N: usize> {
    at: u32,
    /// Function of the branch, cached for sorting.
    function: u32,
    value: [u64; N],
}

fn add<const N: usize>(measures: &[Measure; N], sum: &mut [u64; N], value: &[u64; N]) {
    for (index, measure) in measures.iter().enumerate() {
        sum[index] = measure.combine().of(sum[index], value[index]);
    }
}

fn reaches<const N: usize>(value: &[u64; N], least: &[u64; N]) -> bool {
    value.iter().zip(least).any(|(value, least)| value >= least)
}

impl Branches<1> {
    /// Returns the own value of each branch, with that of merged branches added to their parent,
    /// for formats in which each branch is a function.
    pub(crate) fn own_values(&self) -> Vec<u64> {
        let mut own: Vec<u64> = self.all.iter().map(|branch| branch.own[0]).collect();
        for (index, branch) in self.all.iter().enumerate() {
            if let What::Smaller(_) = branch.what {
                let value = std::mem::take(&mut own[index]);
                let above = &mut own[branch.parent as usize];
                *above = self.measures[0].combine().of(*above, value);
            }
        }
        own
    }
}

/// Whether the lanes of a process are drawn together or separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lanes {
    /// One picture of all lanes.
    #[default]
    Merged,
    /// One picture for each lane.
    Apart,
}

/// Returns the lanes, sorted by a metric, largest first.
pub(crate) fn lanes_by(process: &Process, measure: Measure) -> Vec<(LaneId, &Lane)> {
    let lanes = process.tables.lanes.iter().zip(0..).map(|(lane, id)| (LaneId(id), lane));
    let mut lanes: Vec<_> = lanes.collect();
    lanes.sort_by_key(|(_, lane)| Reverse(measure.of_sites().of(&lane.measures)));
    lanes
}

#[cfg(test)]
mod tests {
    use heaptide_analysis::model::{Measures, Moved, SiteKind, StackId, StackNode};

    use super::*;

    const NAMES: [&str; 5] = ["main", "work", "operator new(unsigned long)", "tiny", "other"];

    /// `main` calls `work`, which allocates by `new`, and `tiny`; `other` also calls `work`.
    fn process() -> Process {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"HEAPTIDE");
        (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
        let mut process = Process::from_bytes(&bytes, "x".as_ref()).expect("an empty profile");
        process.tables.frames = NAMES.map(frame).to_vec();
        let nodes = [(0, 0), (0, 0), (1, 1), (2, 2), (1, 3), (0, 4), (5, 1), (6, 2)];
        let node = |(parent, frame)| StackNode { parent: StackId(parent), frame: FrameId(frame) };
        process.tables.stacks = nodes.map(node).to_vec();
        process.tables.sites = vec![site(3, 700), site(4, 1), site(7, 298), site(0, 1)];
        process
    }

    fn frame(name: &str) -> heaptide_analysis::model::Frame {
        let function = Some(name.into());
        let nowhere = heaptide_analysis::model::Frame::of_scope("");
        heaptide_analysis::model::Frame { function, offset: 0, ..nowhere }
    }

    fn site(stack: u32, live_bytes: u64) -> Site {
        Site {
            stack: StackId(stack),
            scope: ScopeId(0),
            label: None,
            lane: LaneId(0),
            size: None,
            call: None,
            kind: SiteKind::Heap,
            measures: Measures { live_bytes, ..Measures::default() },
            moved: Moved::default(),
            lent_bytes: 0,
        }
    }

    /// Returns lines `a;b own inclusive`; merged branches appear as that number of `+`.
    fn lines<const N: usize>(tree: &Branches<N>) -> Vec<String> {
        let path = |mut at: usize| {
            let mut path = Vec::new();
            while at != 0 {
                path.push(match tree.all[at].what {
                    What::Call(frame) => NAMES[frame.0 as usize].to_owned(),
                    What::Smaller(branches) => "+".repeat(branches as usize),
                    other => format!("{other:?}"),
                });
                at = tree.all[at].parent as usize;
            }
            path.reverse();
            path.join(";")
        };
        let line = |(at, branch): (usize, &Branch<N>)| {
            format!("{} {} {}", path(at), branch.own[0], branch.inclusive[0])
        };
        tree.all.iter().enumerate().map(line).collect()
    }

    #[test]
    fn callers_start_where_more_is_done_than_handing_on() {
        let process = process();
        let owners = Owners::of(&process);
        let calls = Branches::calls(&process, &owners.functions, None, [Measure::LiveBytes]);
        let callers = calls.callers(&owners, 1000);
        let mut found = lines(&callers);
        found.sort_unstable();
        let expected = [
            " 1 1000",
            "tiny 0 1",
            "tiny;main 1 1",
            "work 0 998",
            "work;main 700 700",
            "work;other 298 298",
        ];
        assert_eq!(found, expected);
        let few = lines(&calls.callers(&owners, 100));
        assert!(
            few.contains(&"+ 1 1".to_owned()) && !few.contains(&"tiny 0 1".to_owned()),
            "{few:?}"
        );
    }

    #[test]
    fn recursion_is_one_branch() {
        let mut process = process();
        // main, main;work, main;work;work, main;work;work;tiny, main;work;tiny, main;work;tiny;work
        let nodes = [(0, 0), (0, 0), (1, 1), (2, 1), (3, 3), (2, 3), (5, 1)];
        let node = |(parent, frame)| StackNode { parent: StackId(parent), frame: FrameId(frame) };
        process.tables.stacks = nodes.map(node).to_vec();
        process.tables.sites = vec![site(3, 5), site(4, 10), site(5, 20), site(6, 40), site(2, 80)];
        let functions = Functions::of(&process);
        let calls = Branches::calls(&process, &functions, None, [Measure::LiveBytes]);
        let mut found = lines(&calls.without_recursion(&functions));
        found.sort_unstable();
        let expected = [
            " 0 155",
            "main 0 155",
            "main;work 85 155",
            "main;work;tiny 30 70",
            "main;work;tiny;work 40 40",
        ];
        assert_eq!(found, expected);
        let two_levels = lines(&calls.cut_below(&[1], 2));
        assert_eq!(two_levels, [" 0 155", "main 0 155", "main;work 80 155", "main;work;++ 75 75"]);
    }

    #[test]
    fn small_branches_are_put_together_and_nothing_is_lost() {
        let process = process();
        let functions = Functions::of(&process);
        let both = [Measure::LiveBytes, Measure::Allocations];
        let calls = Branches::calls(&process, &functions, None, both);
        assert_eq!(calls.all[0].inclusive, [1000, 0]);
        let cut = calls.cut(2, 100);
        let new = "main;work;operator new(unsigned long) 700 700";
        let expected = [" 1 1000", "main 0 701", "main;work 0 700", new, "+ 298 298", "main;+ 1 1"];
        assert_eq!(lines(&cut), expected);
        let again = cut.cut(1, 100);
        assert_eq!(lines(&again), [" 1 1000", "++ 999 999"], "of those put together, each counts");
        assert_eq!(cut.only(0).own_values().iter().sum::<u64>(), 1000);
        assert_eq!(calls.only(1).all.len(), 1, "no branch has allocations");
        assert!(calls.cut(1000, 3).all.len() <= 3);
    }
}
