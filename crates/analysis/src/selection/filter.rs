//! Filters: keep the matching part of a process and recompute all sums.

use heaptide_format as format;
use rustc_hash::FxHashSet;

use super::pattern::{Kind, Pattern};
use crate::model::{
    LaneId, Measures, Mode, Moved, Process, Scope, ScopeId, Site, SiteKind, SizeClass, Sum,
};

/// Which sites of a process are kept.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Keep sites that match all of these.
    pub focus: Vec<Pattern>,
    /// Remove sites that match any of these.
    pub ignore: Vec<Pattern>,
    /// Keep sites of requests of at least this many bytes.
    pub min_size: Option<u64>,
    /// Keep sites of requests of at most this many bytes.
    pub max_size: Option<u64>,
    /// Keep sites with a value in all of these.
    pub only: Vec<Only>,
}

/// The blocks that a site must have to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// Live blocks.
    Live,
    /// Temporary blocks.
    Temporary,
}

impl Filter {
    /// Returns whether it keeps everything.
    pub fn is_empty(&self) -> bool {
        let names = self.focus.is_empty() && self.ignore.is_empty();
        names && !self.has_sizes() && self.only.is_empty()
    }

    fn has_sizes(&self) -> bool {
        self.min_size.is_some() || self.max_size.is_some()
    }

    /// Removes excluded sites from a process. Totals, lanes and scopes become the sums over the
    /// remaining sites, and the peak their bytes at the peak of the process.
    ///
    /// A site is kept or removed as a whole: its size is that of its blocks if sizes were recorded,
    /// else the average of its requests, also in size classes. `words` describes the filter for
    /// people; it is added to `part` of the process, with the data that cannot be filtered by site:
    /// the timeline, windows and frees of unknown blocks; for a process recorded with counters
    /// only, also size classes. If all sites match, nothing is changed.
    ///
    /// Linear in sites, stacks and names; each name is matched once per pattern.
    ///
    /// ```
    /// use heaptide_analysis::selection::filter::Filter;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let filter = Filter { focus: vec!["scope:load".parse().unwrap()], ..Filter::default() };
    /// filter.apply(&mut process, "--focus scope:load");
    /// let live: u64 = process.tables.sites.iter().map(|site| site.measures.live_bytes).sum();
    /// assert_eq!(live, process.totals.live_bytes);
    /// ```
    pub fn apply(&self, process: &mut Process, words: &str) {
        let sized = process.tables.sites.iter().any(|site| site.size.is_some());
        let keep = self.keeps(process, sized);
        if keep.iter().all(|&keep| keep) {
            return;
        }
        process.complete_samples();
        let mut kept = 0..;
        let new: Vec<Option<u32>> =
            keep.iter().map(|&keep| if keep { kept.next() } else { None }).collect();
        process.time.move_sites(|site| new[site as usize]);
        let mut keep = keep.into_iter();
        process.tables.sites.retain(|_| keep.next() == Some(true));
        process.count_labelled_once();
        self.leave_entries(process);
        process.sum_up();
        process.totals.peak_bytes = process.totals.at_peak_bytes;
        process.time.highest = None;
        let whole = process.mode == Mode::Counters;
        if !whole {
            process.tables.histogram = histogram(&process.tables.sites);
        }
        process.settle();
        let mean = if sized || whole { "" } else { ", sizes by mean request size of each stack" };
        let classes = if whole { "size classes, " } else { "" };
        let rest = "timeline, windows and unmatched frees are not filtered";
        let said = format!("only {words}{mean}; {classes}{rest}");
        process.completeness.part = Some(match process.completeness.part.take() {
            Some(part) => format!("{part}; {said}"),
            None => said,
        });
    }

    /// Returns for each site whether it is kept.
    fn keeps(&self, process: &Process, sized: bool) -> Vec<bool> {
        let fits = |site: &Site| self.fits(site, sized);
        let mut keep: Vec<bool> = process.tables.sites.iter().map(fits).collect();
        let mut leave = |pattern: &Pattern, counts: bool| {
            let hits = pattern.hits(process);
            keep.iter_mut().zip(hits).for_each(|(keep, hit)| *keep &= hit == counts);
        };
        self.focus.iter().for_each(|pattern| leave(pattern, true));
        self.ignore.iter().for_each(|pattern| leave(pattern, false));
        keep
    }

    fn fits(&self, site: &Site, sized: bool) -> bool {
        let m = &site.measures;
        let size = if sized { site.size } else { mean_request(site).or_else(|| mean_live(site)) };
        let in_range = |size: u64| {
            self.min_size.is_none_or(|min| min <= size)
                && self.max_size.is_none_or(|max| size <= max)
        };
        let has = |only: &Only| match only {
            Only::Live => m.live_blocks > 0,
            Only::Temporary => m.temporary > 0,
        };
        (!self.has_sizes() || size.is_some_and(in_range)) && self.only.iter().all(has)
    }

    /// Recomputes how often scopes were entered, for the matching lanes and scopes.
    fn leave_entries(&self, process: &mut Process) {
        let mut lanes = vec![true; process.tables.lanes.len()];
        let mut scopes = vec![true; process.tables.scopes.len()];
        let focus = self.focus.iter().map(|pattern| (pattern, true));
        for (pattern, counts) in focus.chain(self.ignore.iter().map(|p| (p, false))) {
            let (keep, hits) = match pattern.kind() {
                Kind::Lane => (&mut lanes, pattern.lanes(process)),
                Kind::Scope => (&mut scopes, pattern.scope_paths(process)),
                _ => continue,
            };
            keep.iter_mut().zip(hits).for_each(|(keep, hit)| *keep &= hit == counts);
        }
        if lanes.iter().chain(&scopes).all(|&keep| keep) {
            return;
        }
        let counts =
            |lane: LaneId, scope: ScopeId| lanes[lane.0 as usize] && scopes[scope.0 as usize];
        process.tables.entered.retain(|row| counts(row.lane, row.scope));
        process.tables.scopes.iter_mut().for_each(|scope| scope.entered = 0);
        for row in &process.tables.entered {
            let entered = &mut process.tables.scopes[row.scope.0 as usize].entered;
            *entered = entered.saturating_add(row.times);
        }
    }
}

impl Process {
    /// Recomputes totals, lanes and frees of scopes from the sites.
    fn sum_up(&mut self) {
        let peak_bytes = self.totals.peak_bytes;
        self.totals = Measures { peak_bytes, ..Sum::over(&self.tables.sites) };
        self.sum_up_lanes();
        let ledger = |scope: &mut Scope| (scope.frees_here, scope.freed_here_bytes) = (0, 0);
        self.tables.scopes.iter_mut().for_each(ledger);
        for Site { scope, measures, .. } in &self.tables.sites {
            let scope = &mut self.tables.scopes[scope.0 as usize];
            scope.frees_here = scope.frees_here.saturating_add(measures.frees_here);
            let bytes = measures.freed_here_bytes;
            scope.freed_here_bytes = scope.freed_here_bytes.saturating_add(bytes);
        }
    }

    pub(crate) fn sum_up_lanes(&mut self) {
        let mut sums = vec![Sum::default(); self.tables.lanes.len()];
        self.tables.sites.iter().for_each(|site| sums[site.lane.0 as usize].add(site));
        for (lane, sum) in self.tables.lanes.iter_mut().zip(sums) {
            lane.measures = sum.total();
        }
    }

    /// A labelled block is in two sites. If only the site with the label is left, nothing must be
    /// subtracted from sums.
    fn count_labelled_once(&mut self) {
        if self.tables.sites.iter().all(|site| site.moved == Moved::default()) {
            return;
        }
        let key = |site: &Site| (site.stack, site.scope, site.lane);
        let plain = self.tables.sites.iter().filter(|site| site.label.is_none());
        let plain: FxHashSet<_> = plain.map(key).collect();
        for site in self.tables.sites.iter_mut().filter(|site| site.label.is_some()) {
            if !plain.contains(&key(site)) {
                site.moved = Moved::default();
            }
        }
    }
}

fn mean_request(site: &Site) -> Option<u64> {
    site.measures.requested_bytes.checked_div(site.measures.allocations)
}

/// For blocks allocated before a reset: the average usable size.
fn mean_live(site: &Site) -> Option<u64> {
    site.measures.live_bytes.checked_div(site.measures.live_blocks)
}

/// Returns the size classes of sites, with all blocks of a site in the class of their size, or of
/// their average.
fn histogram(sites: &[Site]) -> Vec<SizeClass> {
    let mut classes = [(0i128, 0i128, 0i128); format::SIZE_CLASSES];
    let counted = [SiteKind::Heap, SiteKind::PoolChunk];
    for site in sites.iter().filter(|site| counted.contains(&site.kind)) {
        let Site { measures: m, moved, .. } = site;
        let given = m.usable_bytes.checked_div(m.allocations);
        let (Some(requested), Some(given)) = (site.size.or_else(|| mean_request(site)), given)
        else {
            continue;
        };
        // A labelled block is also counted in its previous site.
        let blocks = |n: u64| i128::from(n) - i128::from(moved.blocks);
        classes[format::size_class(requested)].0 += blocks(m.allocations);
        classes[format::size_class(given)].1 += blocks(m.allocations);
        classes[format::size_class(given)].2 += blocks(m.frees);
    }
    let count = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX);
    let class = |(class, (requested, usable, freed))| {
        let (size_min, size_max) = format::class_bounds(class);
        let (requested, usable, freed) = (count(requested), count(usable), count(freed));
        SizeClass { size_min, size_max, requested, usable, freed }
    };
    let occurs = |class: &SizeClass| class.requested | class.usable | class.freed != 0;
    classes.into_iter().enumerate().map(class).filter(occurs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, lines, with_stacks};
    use crate::model::{Entered, Label, LabelId, StackId};

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().expect("a pattern")).collect()
    }

    fn focus(texts: &[&str]) -> Filter {
        Filter { focus: patterns(texts), ..Filter::default() }
    }

    /// Applies a filter and checks that the result is consistent.
    fn applied(filter: &Filter, mut process: Process) -> Process {
        filter.apply(&mut process, "--words");
        let sums = Sum::over(&process.tables.sites);
        let peak_bytes = sums.at_peak_bytes;
        assert_eq!(process.totals, Measures { peak_bytes, ..sums });
        if process.completeness.part.is_some() {
            let lanes =
                process.tables.lanes.iter().map(|lane| lane.measures.live_bytes).sum::<u64>();
            assert_eq!(lanes, process.totals.live_bytes);
        }
        process
    }

    /// 1 without a stack, 2 main, 4 load, 8 parse in load, 16 parse in libc, 32 load in parse.
    fn stacks() -> Process {
        with_stacks(&["", "main", "main;load", "main;load;parse", "main;@parse", "main;parse;load"])
    }

    fn live(filter: &Filter) -> u64 {
        applied(filter, stacks()).totals.live_bytes
    }

    #[test]
    fn a_stack_matches_if_any_of_its_frames_does() {
        assert_eq!(live(&focus(&["parse"])), 8 + 16 + 32);
        assert_eq!(live(&focus(&["^parse$", "function:^loa"])), 8 + 32);
        assert_eq!(live(&focus(&["module:libc", "main"])), 16);
        assert_eq!(live(&focus(&["file:/src/load.c"])), 4 + 8 + 32);
        assert_eq!(live(&focus(&["no stack"])), 1);
        assert_eq!(live(&focus(&["thread:worker"])), 0);
        let ignore = |texts| Filter { ignore: patterns(texts), ..Filter::default() };
        assert_eq!(live(&ignore(&["parse"])), 1 + 2 + 4);
        assert_eq!(live(&ignore(&["parse", r"\(no stack\)"])), 2 + 4);
        let both = Filter { ignore: patterns(&["module:libc"]), ..focus(&["parse"]) };
        assert_eq!(live(&both), 8 + 32);
    }

    #[test]
    fn only_what_is_left_has_stacks_and_frames() {
        let process = applied(&focus(&["module:libc"]), stacks());
        assert_eq!(lines(&process), ["main;parse 16"]);
        assert_eq!((process.tables.stacks.len(), process.tables.frames.len()), (3, 2));
        let said = "only --words, sizes by mean request size of each stack; timeline, windows and \
                    unmatched frees are not filtered";
        let classes: Vec<_> =
            process.tables.histogram.iter().map(|c| (c.size_min, c.usable)).collect();
        assert_eq!(classes, [(16, 1)]);
        assert_eq!(process.completeness.part.as_deref(), Some(said));
    }

    #[test]
    fn sizes_are_the_mean_of_requests_or_exact() {
        let range = |min_size, max_size| Filter { min_size, max_size, ..Filter::default() };
        assert_eq!(live(&range(Some(4), Some(16))), 4 + 8 + 16);
        assert_eq!(live(&range(None, Some(2))), 1 + 2);
        let mut process = stacks();
        for (site, size) in process.tables.sites.iter_mut().zip([1u64, 2, 4, 100, 16, 100]) {
            site.size = Some(size);
        }
        process.tables.sites.push(Site { size: None, ..process.tables.sites[0] });
        let process = applied(&range(Some(16), None), process);
        assert_eq!(lines(&process), ["main;load;parse 8", "main;parse 16", "main;parse;load 32"]);
        let part = process.completeness.part.expect("said");
        assert!(!part.contains("mean") && !part.contains("size classes"), "{part}");
        // Two requests of 100 bytes, one of 16; their usable sizes are 8, 16 and 32 bytes.
        let requested: Vec<_> =
            process.tables.histogram.iter().map(|c| (c.size_min, c.requested, c.usable)).collect();
        assert_eq!(requested, [(8, 0, 1), (16, 1, 1), (32, 0, 1), (64, 2, 0)]);
    }

    /// They were allocated before the reset: only their usable size is known.
    #[test]
    fn blocks_that_outlived_a_reset_have_a_size() {
        let mut process = stacks();
        for site in &mut process.tables.sites[4..] {
            (site.measures.allocations, site.measures.requested_bytes) = (0, 0);
        }
        let large = Filter { min_size: Some(16), ..Filter::default() };
        let all = ["main;parse 16", "main;parse;load 32"];
        assert_eq!(lines(&applied(&large, process)), all);
        let mut process = stacks();
        let freed = &mut process.tables.sites[4].measures;
        (freed.allocations, freed.requested_bytes, freed.live_blocks) = (0, 0, 0);
        assert_eq!(lines(&applied(&large, process)), ["main;parse;load 32"]);
    }

    #[test]
    fn live_and_temporary_blocks() {
        let mut process = stacks();
        process.tables.sites[3].measures.live_blocks = 0;
        process.tables.sites[4].measures.temporary = 1;
        process.tables.sites[3].measures.temporary = 1;
        let only = |only: &[Only]| Filter { only: only.to_vec(), ..Filter::default() };
        let both = only(&[Only::Live, Only::Temporary]);
        assert_eq!(lines(&applied(&both, process)), ["main;parse 16"]);
    }

    /// 1 in load, 2 in load > parse=3, 4 in no scope, 8 on the other lane in load.
    fn scopes() -> Process {
        let mut process = fixtures::process();
        process.tables.sites = [(1, 1), (2, 2), (0, 4), (1, 8)]
            .map(|(scope, bytes)| fixtures::site(2, scope, bytes))
            .to_vec();
        process.tables.sites[3].lane = LaneId(1);
        process.tables.sites[3].measures.frees_here = 5;
        let entered =
            |scope, lane, times| Entered { scope: ScopeId(scope), lane: LaneId(lane), times };
        process.tables.entered = vec![entered(1, 0, 3), entered(2, 0, 4), entered(1, 1, 6)];
        process
    }

    #[test]
    fn scopes_match_with_what_is_inside_and_count_their_entries() {
        let entered = |p: &Process| p.tables.scopes.iter().map(|s| s.entered).collect::<Vec<_>>();
        let frees = |p: &Process| p.tables.scopes.iter().map(|s| s.frees_here).collect::<Vec<_>>();
        let process = applied(&focus(&["scope:load"]), scopes());
        assert_eq!((process.totals.live_bytes, entered(&process)), (11, vec![0, 9, 4]));
        assert_eq!(frees(&process), [0, 5, 0]);
        let process = applied(&focus(&["scope:^parse=3$", "thread:app"]), scopes());
        assert_eq!((process.totals.live_bytes, entered(&process)), (2, vec![0, 0, 4]));
        assert_eq!(frees(&process), [0, 0, 0]);
        let process = applied(&focus(&["thread:worker"]), scopes());
        assert_eq!((process.totals.live_bytes, entered(&process)), (8, vec![0, 6, 0]));
        assert_eq!(applied(&focus(&["scope:no scope"]), scopes()).totals.live_bytes, 4);
    }

    #[test]
    fn a_labelled_block_is_one_block_with_and_without_the_site_it_was_in() {
        let mut process = fixtures::process();
        process.tables.labels = vec![Label { name: "image".into(), pool: false }];
        let mut before = fixtures::site(2, 0, 100);
        (before.measures.frees, before.measures.freed_bytes) = (1, 100);
        (before.measures.live_blocks, before.measures.live_bytes) = (0, 0);
        let mut after = fixtures::site(2, 0, 100);
        after.label = Some(LabelId(0));
        after.moved = Moved { blocks: 1, usable_bytes: 100, requested_bytes: 100 };
        process.tables.sites = vec![before, after];
        process.totals = Sum::over(&process.tables.sites);
        process.totals.peak_bytes = process.totals.at_peak_bytes;
        let one = |process: &Process| {
            let t = &process.totals;
            (t.allocations, t.frees, t.usable_bytes, t.live_bytes)
        };
        let ones = (1, 0, 100, 100);
        assert_eq!(one(&applied(&focus(&["main"]), clone(&process))), ones);
        assert_eq!(one(&applied(&focus(&["label:image"]), clone(&process))), ones);
        assert_eq!(one(&applied(&focus(&["label:no label"]), clone(&process))), (1, 1, 100, 0));
        process.hide(&patterns(&["label:im"]));
        let site = process.tables.sites[0];
        assert_eq!(
            (process.tables.sites.len(), site.label, site.moved),
            (1, None, Moved::default())
        );
        assert_eq!((site.measures.allocations, site.measures.frees), (1, 0));
    }

    fn clone(process: &Process) -> Process {
        let mut copy = fixtures::process();
        copy.tables.labels.clone_from(&process.tables.labels);
        copy.tables.sites.clone_from(&process.tables.sites);
        copy.totals = process.totals;
        copy
    }

    #[test]
    fn hidden_names_go_and_their_memory_stays() {
        let mut process = stacks();
        process.hide(&patterns(&["^load$", "module:libc"]));
        let expected = [" 1", "main 22", "main;parse 40"];
        assert_eq!(lines(&process), expected);
        process.hide(&patterns(&["."]));
        assert_eq!(
            (lines(&process), process.tables.sites[0].stack),
            (vec![" 63".to_owned()], StackId(0))
        );
        let mut process = scopes();
        process.hide(&patterns(&["scope:load", "thread:."]));
        let paths: Vec<_> = process.tables.scopes.iter().skip(1).map(Scope::name).collect();
        assert_eq!(paths, ["parse=3"]);
        let rows: Vec<_> =
            process.tables.sites.iter().map(|s| (s.scope.0, s.measures.live_bytes)).collect();
        assert_eq!(rows, [(0, 13), (1, 2)]);
        assert_eq!(process.tables.lanes[0].name, "*");
        assert_eq!(
            (process.tables.lanes[0].threads, process.tables.lanes[0].measures.live_bytes),
            (2, 15)
        );
        assert_eq!(process.tables.entered.len(), 1);
    }
}
