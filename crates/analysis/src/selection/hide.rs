//! Hides names in a process and keeps the counters below them.

use rustc_hash::FxHashMap;

use super::pattern::{Kind, Pattern};
use crate::model::{Lane, LaneId, Moved, Process, Scope, ScopeId, Site, SiteKind, Sum};

/// Threads that are merged.
#[derive(Clone, Debug)]
pub struct LaneGroup {
    /// Their new name.
    pub name: String,
    /// Matches their names.
    pub pattern: Pattern,
}

impl Process {
    /// Hides names and keeps the counters below them: removes frames from stacks, scopes from
    /// paths, labels from blocks; merges matching lanes.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let totals = process.totals;
    /// process.hide(&["^std::".parse().unwrap(), "lane:^worker".parse().unwrap()]);
    /// assert_eq!(process.totals, totals);
    /// ```
    pub fn hide(&mut self, patterns: &[Pattern]) {
        let of = |kinds: &[Kind]| -> Vec<&Pattern> {
            patterns.iter().filter(|pattern| kinds.contains(&pattern.kind())).collect()
        };
        let any = |patterns: Vec<&Pattern>, hits: &dyn Fn(&Pattern) -> Vec<bool>| {
            let all = patterns.into_iter().map(hits);
            all.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a | b).collect())
        };
        if let Some(hidden) =
            any(of(&[Kind::Function, Kind::Module, Kind::File]), &|p| p.frames(self))
        {
            self.restack((), |stacks, (caller, ()), frame| {
                if hidden[frame.0 as usize] {
                    (caller, ())
                } else {
                    (stacks.child(caller, frame), ())
                }
            });
        }
        if let Some(hidden) = any(of(&[Kind::Scope]), &|p| p.scopes(self)) {
            self.hide_scopes(&hidden);
        }
        if let Some(hidden) = any(of(&[Kind::Lane]), &|p| p.lanes(self)) {
            let set: Vec<_> = hidden.into_iter().map(|hidden| hidden.then_some(0)).collect();
            self.join_lanes(&set, common_name);
        }
        let labels = any(of(&[Kind::Label]), &|p| p.labels(self));
        if let Some(hidden) = &labels {
            let is_hidden = |site: &&mut Site| site.label.is_some_and(|id| hidden[id.0 as usize]);
            self.tables.sites.iter_mut().filter(is_hidden).for_each(|site| site.label = None);
        }
        self.settle();
        // A block whose label was removed is in a single site now, where it counts once.
        let both = |site: &&mut Site| site.label.is_none() && site.kind == SiteKind::Heap;
        for site in self.tables.sites.iter_mut().filter(both) {
            if site.moved != Moved::default() {
                site.measures = Sum::over([&*site]);
                site.moved = Moved::default();
            }
        }
    }

    /// Moves the contents of hidden scopes to their parents, and merges paths that become equal.
    fn hide_scopes(&mut self, hidden: &[bool]) {
        let mut ids = FxHashMap::default();
        let mut scopes: Vec<Scope> = self.tables.scopes.iter().take(1).cloned().collect();
        let mut new = vec![ScopeId(0)];
        for (scope, &hidden) in self.tables.scopes.iter().zip(hidden).skip(1) {
            let parent = new[scope.parent.0 as usize];
            if hidden {
                let around: &mut Scope = &mut scopes[parent.0 as usize];
                around.free_as(scope);
                new.push(parent);
                continue;
            }
            let key = (parent, scope.attribute.clone(), scope.value.clone());
            let id = *ids.entry(key).or_insert(ScopeId(scopes.len() as u32));
            new.push(id);
            match scopes.get_mut(id.0 as usize) {
                Some(same) => {
                    same.free_as(scope);
                    same.live_as(scope);
                    same.entered = same.entered.saturating_add(scope.entered);
                }
                None => scopes.push(Scope { parent, ..scope.clone() }),
            }
        }
        self.tables.scopes = scopes;
        self.tables.entered.retain(|row| !hidden[row.scope.0 as usize]);
        self.tables.entered.iter_mut().for_each(|row| row.scope = new[row.scope.0 as usize]);
        self.tables.sites.iter_mut().for_each(|site| site.scope = new[site.scope.0 as usize]);
        for trace in &mut self.time.traces {
            trace.move_scopes(|scope| new[scope.0 as usize]);
        }
    }

    /// Merges lanes into groups: a lane belongs to the first group whose pattern matches, and gets
    /// its name.
    pub fn group_lanes(&mut self, groups: &[LaneGroup]) {
        let mut of_lane = vec![None; self.tables.lanes.len()];
        for (index, group) in groups.iter().enumerate() {
            let hits = group.pattern.lanes(self);
            let free = of_lane.iter_mut().zip(hits).filter(|(of, hit)| *hit && of.is_none());
            free.for_each(|(of, _)| *of = Some(index));
        }
        let joined = self.join_lanes(&of_lane, |name, _| name.to_owned());
        for (index, lane) in joined {
            self.tables.lanes[lane.0 as usize].name.clone_from(&groups[index].name);
        }
        self.settle();
    }

    /// Merges the lanes of each group into its first one; `name` combines two names. Returns the
    /// lane of each group that has any.
    fn join_lanes(
        &mut self,
        group_of: &[Option<usize>],
        name: impl Fn(&str, &str) -> String,
    ) -> FxHashMap<usize, LaneId> {
        let mut new = Vec::new();
        let mut lanes: Vec<Lane> = Vec::new();
        let mut joined: FxHashMap<usize, LaneId> = FxHashMap::default();
        for (lane, &group) in self.tables.lanes.drain(..).zip(group_of) {
            match group.and_then(|group| joined.get(&group).copied()) {
                Some(id) => {
                    let one = &mut lanes[id.0 as usize];
                    one.name = name(&one.name, &lane.name);
                    one.threads = one.threads.saturating_add(lane.threads);
                    one.tids.extend(&lane.tids);
                    new.push(id);
                }
                None => {
                    let id = LaneId(lanes.len() as u32);
                    joined.extend(group.map(|group| (group, id)));
                    new.push(id);
                    lanes.push(lane);
                }
            }
        }
        self.tables.lanes = lanes;
        self.tables.sites.iter_mut().for_each(|site| site.lane = new[site.lane.0 as usize]);
        self.tables.entered.iter_mut().for_each(|row| row.lane = new[row.lane.0 as usize]);
        let lanes = self.time.marks.iter_mut().filter_map(|mark| mark.lane.as_mut());
        lanes.for_each(|lane| *lane = new[lane.0 as usize]);
        for trace in &mut self.time.traces {
            trace.move_lanes(|lane| new[lane.0 as usize]);
        }
        self.sum_up_lanes();
        joined
    }
}

impl Scope {
    /// Adds the frees of another scope.
    fn free_as(&mut self, other: &Scope) {
        self.frees_here = self.frees_here.saturating_add(other.frees_here);
        self.freed_here_bytes = self.freed_here_bytes.saturating_add(other.freed_here_bytes);
    }
}

/// Returns the common name of several lanes: `worker-1*` for `worker-1` and `worker-12`.
fn common_name(a: &str, b: &str) -> String {
    if a == b {
        return a.to_owned();
    }
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b && *a != '*');
    same.map(|(c, _)| c).chain(['*']).collect()
}
