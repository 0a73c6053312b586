//! Builds the table of sites: a row for each site of a profile, and the sums of its lanes.

use heaptide_format as format;
use rustc_hash::FxHashMap;

use super::raw_site::RawSite;
use super::reconcile::{self, FreedHere};
use super::sampled::Estimates;
use super::site_counters::{LiveOfSite, gone, live_of_site, not_negative};
use super::weighted::{Weighted, unweighted_measures};
use crate::collections::optional_index::OptionalIndex;
use crate::model::{
    Call, LabelId, Lane, LaneId, Measures, Moved, Sampling, ScopeId, Site, SiteKind, Sum,
};
use crate::profile::parsed;
use crate::profile::parsed::Profile;
use crate::text;

/// Maps ids of a profile to ids of the tables.
pub(crate) struct Dimensions<'a> {
    /// Scopes by slot of the index of the scope path.
    pub(crate) scope_of_path: &'a [ScopeId],
    /// Labels by slot of the index of the name.
    pub(crate) label_of_name: &'a [Option<LabelId>],
}

/// Sites and lanes under construction.
pub(crate) struct SiteTable {
    pub(crate) sites: Vec<RawSite>,
    pub(crate) lanes: Vec<Lane>,
    /// Lanes by their index in the file.
    pub(crate) ids: FxHashMap<u32, LaneId>,
    /// The row of each site of the profile; `None` if all its counters are 0.
    pub(crate) of_site: Vec<Option<u32>>,
    /// Sampling parameters; `None` if all blocks were recorded.
    pub(crate) sampling: Option<Sampling>,
    /// Whether the last row is that of blocks that no sampled block represents.
    pub(crate) has_unseen: bool,
    /// Frees counted by lanes of blocks that were not recorded.
    pub(crate) unmatched_frees: u64,
    /// The highest recorded live bytes.
    pub(crate) peak_bytes: u64,
    /// Exact counters of lanes over all blocks, if sites are estimates.
    exact: Vec<(LaneId, Measures)>,
}

impl SiteTable {
    /// Builds the table; `with_rows`: also the row of each site of the profile.
    pub(crate) fn of(profile: &Profile, of: &Dimensions, with_rows: bool) -> SiteTable {
        let (sites, lanes, of_site) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = SiteTable {
            sites,
            lanes,
            ids: FxHashMap::default(),
            of_site,
            sampling: None,
            has_unseen: false,
            unmatched_frees: 0,
            peak_bytes: profile.header.peak_bytes,
            exact: Vec::new(),
        };
        for lane in &profile.lanes {
            let name = lane.name.split(|&b| b == 0).next().unwrap_or_default();
            let name = text::from_bytes(name);
            let id = table.lane(lane.index, || name);
            let own = &mut table.lanes[id.0 as usize];
            own.threads = lane.threads;
            let former = profile.former_threads.iter().filter(|former| former.lane == lane.index);
            own.tids = former.map(|former| former.tid).chain([lane.tid]).collect();
            own.tids.retain(|&tid| tid != 0);
        }
        match profile.mode {
            format::Mode::Counters => {
                let rows = table.lane_rows(profile);
                table.sites.extend(rows);
            }
            format::Mode::Sampled => table.add_estimates(profile, of),
            format::Mode::Stacks | format::Mode::Scopes => {
                table.add_sites(profile, of);
                if profile.may_be_reconciled() {
                    reconcile::lent(&mut table.sites);
                }
                table.add_frees_here(profile, of);
            }
        }
        if profile.is_followed {
            table.of_site = (0..profile.sites.len() as u32).map(Some).collect();
            return table.with_sums();
        }
        if with_rows {
            table.find_sites(profile.sites.len());
        }
        table.sites.retain(says_something);
        table.with_sums()
    }

    /// Returns the lane with this index; a lane that has sites but no record (its extent was lost)
    /// gets a synthetic name.
    fn lane(&mut self, index: u32, name: impl FnOnce() -> String) -> LaneId {
        *self.ids.entry(index).or_insert_with(|| {
            let measures = Measures::default();
            self.lanes.push(Lane { name: name(), threads: 0, tids: Vec::new(), measures });
            LaneId((self.lanes.len() - 1) as u32)
        })
    }

    /// Adds a row for each site.
    fn add_sites(&mut self, profile: &Profile, of: &Dimensions) {
        self.sites.reserve(profile.sites.len());
        for site in &profile.sites {
            let lane = self.lane(site.lane, || format!("thread {}", site.lane));
            let [blocks, usable_bytes, requested_bytes] = site.moved;
            let record = &site.counters;
            let mut moved = Moved {
                blocks: blocks.min(record.allocations),
                usable_bytes: usable_bytes.min(record.usable_bytes),
                requested_bytes: requested_bytes.min(record.requested_bytes),
            };
            let measures_at = |site: &parsed::Site, epoch| {
                if site.is_weighted {
                    unweighted_measures(&site.counters)
                } else {
                    site_measures(&site.counters, site.lent_bytes, epoch)
                }
            };
            let measures_of = |site: &parsed::Site| measures_at(site, profile.header.epoch);
            let mut measures = measures_of(site);
            if let Some(peak) = &profile.earlier_peak {
                let then = peak.sites.get(&site.id).map(|site| measures_at(site, peak.epoch));
                let then = then.unwrap_or_default();
                measures.at_peak_blocks = then.at_peak_blocks;
                measures.at_peak_bytes = then.at_peak_bytes;
            }
            if let Some(before) = &profile.before {
                before.take_off_site(site.id, &mut measures, &mut moved, measures_of);
            }
            if let Some(held) = &profile.held {
                held.add_to(site.id, &mut measures, measures_of);
            }
            if let Some(lost) = &profile.lost {
                lost.replace(site.id, &mut measures);
            }
            self.sites.push(Site {
                stack: site.node,
                scope: of.scope_of_path[site.scope.slot()],
                label: of.label_of_name[site.label.slot()],
                lane,
                size: has_size(site.flags).then_some(site.size),
                call: Call::from_flags(site.flags),
                kind: kind(site.flags),
                measures,
                moved,
                // Pools do not exist where blocks are sampled.
                lent_bytes: if site.is_weighted {
                    0
                } else {
                    lent(&site.counters, site.lent_bytes)
                },
            });
        }
    }

    /// Adds the frees performed in each lane and scope to the row of that lane and scope without
    /// stack and label, so that both kinds of frees add up by lane and by scope.
    fn add_frees_here(&mut self, profile: &Profile, of: &Dimensions) {
        let mut rows: FxHashMap<(LaneId, ScopeId), usize> = FxHashMap::default();
        for (site, index) in self.sites.iter().zip(0..) {
            let plain = site.stack.is_none() && site.label.is_none() && site.call.is_none();
            if plain && site.kind == SiteKind::Heap {
                rows.entry((site.lane, site.scope)).or_insert(index);
            }
        }
        let mut here = self.freed_here(profile, of);
        if profile.may_be_reconciled() {
            reconcile::freed_here(&mut here, &Sum::over(&self.sites));
        }
        here.into_iter().for_each(|freed| self.add_here(&mut rows, freed));
    }

    /// Returns the frees performed by each lane in each scope, and outside of scopes.
    fn freed_here(&mut self, profile: &Profile, of: &Dimensions) -> Vec<FreedHere> {
        let mut here = Vec::new();
        let mut left = FxHashMap::default();
        let lanes = match &profile.before {
            Some(before) => before.counts(&profile.lanes),
            None => profile.lanes.clone(),
        };
        for record in &lanes {
            let lane = self.lane(record.index, String::new);
            left.insert(lane, lane_frees(record, profile.header.version));
        }
        for (path, &scope) in profile.named.scopes.iter().zip(&of.scope_of_path[1..]) {
            let index = path.counters.lane;
            let lane = self.lane(index, || format!("thread {index}"));
            let (frees, bytes) = (path.counters.frees_here, path.counters.freed_here_bytes);
            here.push(FreedHere { lane, scope, frees, bytes });
            if let Some(left) = left.get_mut(&lane) {
                *left = (left.0.saturating_sub(frees), left.1.saturating_sub(bytes));
            }
        }
        // All frees in version 1, which had no scopes; else frees in scopes that could not be
        // stored.
        for record in &profile.lanes {
            let lane = self.lane(record.index, String::new);
            let (frees, bytes) = left.remove(&lane).unwrap_or_default();
            here.push(FreedHere { lane, scope: ScopeId(0), frees, bytes });
        }
        here
    }

    fn add_here(
        &mut self,
        rows: &mut FxHashMap<(LaneId, ScopeId), usize>,
        FreedHere { lane, scope, frees: frees_here, bytes: freed_here_bytes }: FreedHere,
    ) {
        if frees_here == 0 && freed_here_bytes == 0 {
            return;
        }
        let row = *rows.entry((lane, scope)).or_insert_with(|| {
            self.sites.push(Site { scope, ..row(lane, Measures::default()) });
            self.sites.len() - 1
        });
        let here = Measures { frees_here, freed_here_bytes, ..Measures::default() };
        self.sites[row].measures.add(&here);
    }

    /// Returns a row for each lane, if lanes count all blocks. Frees are known by freeing lane, not
    /// by allocating lane: if a lane freed more than it allocated, the excess is subtracted from
    /// the live blocks of other lanes, in order.
    fn lane_rows(&mut self, profile: &Profile) -> Vec<RawSite> {
        let mut rows = Vec::with_capacity(profile.lanes.len());
        let (mut blocks, mut bytes) = (0, 0);
        for record in &profile.lanes {
            let lane = self.lane(record.index, String::new);
            let version = profile.header.version;
            let measures_of = |lane: &format::Lane| lane_measures(lane, version);
            let mut measures = measures_of(record);
            if let Some(before) = &profile.before {
                before.take_off_lane(record.index, &mut measures, measures_of);
            }
            let all = measures_of(record);
            blocks += i128::from(all.frees.saturating_sub(all.allocations));
            bytes += i128::from(all.freed_bytes.saturating_sub(all.usable_bytes));
            rows.push(row(lane, measures));
        }
        for Site { measures, .. } in &mut rows {
            take(&mut measures.live_blocks, &mut blocks);
            take(&mut measures.live_bytes, &mut bytes);
        }
        rows
    }

    /// Adds the sites of a sampled profile, with estimates that add up to the counters of lanes,
    /// and rows of lanes for counters that sites do not have.
    fn add_estimates(&mut self, profile: &Profile, of: &Dimensions) {
        let mut lanes = self.lane_rows(profile);
        for Site { measures: m, .. } in &mut lanes {
            // A killed process may have counted only the requested bytes of its last event.
            m.requested_bytes = m.requested_bytes.min(m.usable_bytes);
        }
        let mut totals = Sum::over(&lanes);
        self.add_sites(profile, of);
        let mean = profile.header.sample_mean_bytes;
        let rows = profile.sites.iter().map(|site| weighted(profile, site, mean)).collect();
        let mut estimates = Estimates::new(rows, mean, profile.before.is_some());
        self.unmatched_frees = estimates.correct(&mut totals);
        reconcile::freed_in_lanes(&mut lanes, &totals);
        let mut unseen = estimates.estimate(&mut self.sites, &totals);
        self.peak_bytes = estimates.peak_bytes(&totals, self.peak_bytes);
        if totals.live_bytes > self.peak_bytes {
            estimates.peak_is_live();
        } else {
            unseen.at_peak_bytes = estimates.estimate_peak(&mut self.sites, self.peak_bytes);
        }
        self.sampling = Some(estimates.sampling);
        (unseen.frees_here, unseen.freed_here_bytes) = (0, 0);
        let lane = self.lane_that_lacks_most(&lanes);
        for Site { lane, measures: m, .. } in lanes {
            self.sites.push(row(lane, only_of_lanes(&m)));
            self.exact.push((lane, m));
        }
        if let Some(lane) = lane.filter(|_| unseen != Measures::default()) {
            self.sites.push(row(lane, unseen));
            self.has_unseen = true;
        }
    }

    /// Returns the lane whose counted bytes exceed those of its sites by the most.
    fn lane_that_lacks_most(&self, lanes: &[RawSite]) -> Option<LaneId> {
        let mut has = vec![0u64; self.lanes.len()];
        for site in &self.sites {
            let sum = &mut has[site.lane.0 as usize];
            *sum = sum.saturating_add(site.measures.usable_bytes);
        }
        let lacks = |row: &&RawSite| {
            let all = i128::from(row.measures.usable_bytes);
            all - i128::from(has[row.lane.0 as usize])
        };
        lanes.iter().max_by_key(lacks).map(|row| row.lane)
    }

    /// Stores the new rows of the first `count` rows, which are the profile's sites in order.
    fn find_sites(&mut self, count: usize) {
        let mut kept = 0;
        self.of_site.extend(self.sites.iter().take(count).map(|site| {
            let index = kept;
            let says = says_something(site);
            kept += u32::from(says);
            says.then_some(index)
        }));
    }

    /// Computes the sums of lanes.
    fn with_sums(mut self) -> SiteTable {
        let mut sums = vec![Sum::default(); self.lanes.len()];
        self.sites.iter().for_each(|site| sums[site.lane.0 as usize].add(site));
        for (lane, sum) in self.lanes.iter_mut().zip(sums) {
            lane.measures = sum.total();
        }
        for &(lane, exact) in &self.exact {
            let measures = &mut self.lanes[lane.0 as usize].measures;
            take_exact(measures, &exact);
        }
        self
    }
}

/// Returns what a site represents, since the reset if there was one.
fn weighted(profile: &Profile, site: &parsed::Site, mean: u64) -> Weighted {
    let epoch = profile.header.epoch;
    let mut weighted = Weighted::of_site(site, mean, epoch);
    if let Some(before) = profile.before.as_ref().and_then(|before| before.site(site.id)) {
        weighted.take_off(&Weighted::of_site(before, mean, epoch));
    }
    if let Some(peak) = &profile.earlier_peak {
        let then = peak.sites.get(&site.id).map(|site| Weighted::of_site(site, mean, peak.epoch));
        weighted.at_peak = then.unwrap_or_default().at_peak;
    }
    weighted
}

/// Returns the counters that only lanes have if blocks are sampled: frees by freeing lane, and the
/// largest request.
fn only_of_lanes(lane: &Measures) -> Measures {
    Measures {
        frees_here: lane.frees_here,
        freed_here_bytes: lane.freed_here_bytes,
        largest_bytes: lane.largest_bytes,
        ..Measures::default()
    }
}

/// Replaces estimates by a lane's exact counters of the blocks that it allocated.
fn take_exact(measures: &mut Measures, exact: &Measures) {
    measures.spread.allocated = 0.0;
    *measures = Measures {
        allocations: exact.allocations,
        reallocations: exact.reallocations,
        requested_bytes: exact.requested_bytes,
        usable_bytes: exact.usable_bytes,
        temporary: exact.temporary,
        ..*measures
    };
}

fn says_something(site: &RawSite) -> bool {
    site.measures != Measures::default()
}

fn row(lane: LaneId, measures: Measures) -> RawSite {
    RawSite {
        stack: OptionalIndex::NONE,
        scope: ScopeId(0),
        label: None,
        lane,
        size: None,
        call: None,
        kind: SiteKind::Heap,
        measures,
        moved: Moved::default(),
        lent_bytes: 0,
    }
}

/// Returns whether the size of a site is a dimension or, for a mapping, its packed key.
fn has_size(flags: u32) -> bool {
    flags & (format::KEY_SIZED | format::KEY_MAPPING | format::KEY_DEVICE) != 0
}

pub(crate) fn kind(flags: u32) -> SiteKind {
    let has = |flag| flags & flag != 0;
    match has(format::KEY_OUTSIDE) {
        _ if has(format::KEY_POOL_BLOCK) && has(format::KEY_OUTSIDE) => SiteKind::OutsidePoolBlock,
        _ if has(format::KEY_POOL_BLOCK) => SiteKind::PoolBlock,
        true if has(format::KEY_POOL_CHUNK) => SiteKind::OutsidePoolChunk,
        false if has(format::KEY_POOL_CHUNK) => SiteKind::PoolChunk,
        true => SiteKind::Outside,
        false => SiteKind::Heap,
    }
}

fn take(from: &mut u64, excess: &mut i128) {
    let part = i128::from(*from).min(*excess);
    *from -= part as u64;
    *excess -= part;
}

/// Returns the bytes lent to blocks of a pool, which are part of the bytes that left the site.
fn lent(record: &format::Site, lent_bytes: i64) -> u64 {
    (lent_bytes.max(0) as u64).min(gone(record).1)
}

/// Returns the metrics of a site: `lent_bytes` is that of its key, `epoch` the number of the
/// current peak.
pub(crate) fn site_measures(record: &format::Site, lent_bytes: i64, epoch: u32) -> Measures {
    let (frees, gone_bytes) = gone(record);
    let LiveOfSite { live, at_peak } = live_of_site(record, epoch);
    Measures {
        allocations: record.allocations,
        frees,
        reallocations: record.reallocations,
        failed: record.failed.into(),
        requested_bytes: record.requested_bytes,
        usable_bytes: record.usable_bytes,
        freed_bytes: gone_bytes - lent(record, lent_bytes),
        live_blocks: live.0,
        live_bytes: live.1,
        at_peak_blocks: at_peak.0,
        at_peak_bytes: at_peak.1,
        temporary: record.temporary,
        cross_thread_frees: not_negative(record.remote_frees),
        largest_bytes: record.largest_bytes,
        ..Measures::default()
    }
}

/// Returns the number of frees performed by a lane, and their bytes as far as the lane counts them.
fn lane_frees(lane: &format::Lane, version: u32) -> (u64, u64) {
    match version {
        1 => (lane.frees_here, lane.freed_here_bytes),
        _ => (sum(&lane.freed_classes), lane.freed_here_bytes),
    }
}

fn sum(classes: &[u64]) -> u64 {
    classes.iter().fold(0, |a, &b| a.saturating_add(b))
}

/// Returns the metrics of a lane, as far as the lane itself counts them, for a profile of this
/// version.
pub(crate) fn lane_measures(lane: &format::Lane, version: u32) -> Measures {
    let (frees_here, freed_here_bytes) = lane_frees(lane, version);
    let allocations = match version {
        1 => lane.allocations,
        _ => sum(&lane.requested_classes),
    };
    Measures {
        allocations,
        frees: frees_here,
        reallocations: lane.reallocations,
        failed: lane.failed,
        requested_bytes: lane.requested_bytes,
        usable_bytes: lane.usable_bytes,
        freed_bytes: freed_here_bytes,
        live_blocks: allocations.saturating_sub(frees_here),
        live_bytes: lane.usable_bytes.saturating_sub(freed_here_bytes),
        temporary: lane.temporary,
        largest_bytes: lane.largest_bytes,
        frees_here,
        freed_here_bytes,
        ..Measures::default()
    }
}
