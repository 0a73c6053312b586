//! Highest live bytes of each stack, lane and scope, and the requested bytes that are live at each
//! site, computed from a trace in one pass over its events.
//!
//! Bytes are counted as in sums: labelled memory that is not from the allocator is excluded, and
//! the bytes of a block of a pool are subtracted from its chunk.

use crate::error::Error;
use crate::model::{LaneId, Process, Site, SiteKind};
use crate::trace::Event;
use crate::trace::lending::{Block, Lending, signed};

/// Usable and requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// Usable bytes.
    pub usable: u64,
    /// Requested bytes.
    pub requested: u64,
}

/// Live bytes of a part of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// The highest value since the last reset; `None` if the trace lacks events, and the value may
    /// be too low.
    pub highest: Option<Bytes>,
    /// At the end of the trace.
    pub last: Bytes,
}

/// Live bytes of the parts of a process.
#[derive(Clone, Debug, Default)]
pub struct Highest {
    /// The whole process.
    pub process: Live,
    /// By stack, over all scopes, labels and lanes.
    pub stacks: Vec<Live>,
    /// By allocating lane.
    pub lanes: Vec<Live>,
    /// By scope path, excluding nested scopes.
    pub scopes: Vec<Live>,
    /// Requested bytes live at the end of the trace, by site; for labelled blocks the bytes that
    /// the label states. `None` if the trace is inconsistent with the counters of the recorder.
    pub live_requested: Vec<Option<u64>>,
    /// Restrictions of completeness of the trace, for people.
    pub notes: Vec<String>,
}

impl Highest {
    /// Replays the trace of a process. Memory is bounded by its tables and the number of live
    /// blocks.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// use heaptide_analysis::views::highest::Highest;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(Highest::of(&process).is_err()); // it has no trace
    /// ```
    pub fn of(process: &Process) -> Result<Highest, Error> {
        Highest::of_lanes(process, |_| true)
    }

    /// Does the same for the allocations of some lanes. Live bytes by site are those of all lanes.
    ///
    /// Errors: the same as those of [`Process::replay`].
    pub fn of_lanes(process: &Process, counts: impl Fn(LaneId) -> bool) -> Result<Highest, Error> {
        let mut replay = process.replay_whole()?;
        let resets = process.time.traces.iter().filter(|trace| trace.since_ns > 0);
        let reset_ns = resets.map(|trace| trace.since_ns.saturating_add(trace.after_ns)).max();
        let counts = (0..process.tables.lanes.len()).map(|lane| counts(LaneId(lane as u32)));
        let mut pass = Pass::of(process, counts.collect());
        let (mut batch, mut reset_ns) = (Vec::new(), reset_ns.unwrap_or(0));
        while replay.fill(&mut batch) {
            for event in &batch {
                if reset_ns > 0 && event.time_ns >= reset_ns {
                    reset_ns = 0;
                    pass.reset();
                }
                pass.event(event);
            }
        }
        if reset_ns > 0 {
            pass.reset();
        }
        let live_requested = pass.live_requested();
        let notes = replay.notes();
        let live = |levels| live(levels, notes.is_empty());
        let process = live(pass.all);
        let [stacks, lanes, scopes] = pass.parts.map(|levels| levels.into_iter().map(live));
        Ok(Highest {
            process,
            stacks: stacks.collect(),
            lanes: lanes.collect(),
            scopes: scopes.collect(),
            live_requested,
            notes,
        })
    }
}

/// Returns the requested bytes of a site that are live, from its counters: exact if all of its
/// blocks have the same size or nothing was freed, else `None`.
///
/// ```
/// use heaptide_analysis::views::highest::live_requested;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// for site in &process.tables.sites {
///     println!("{:?}", live_requested(site));
/// }
/// ```
pub fn live_requested(site: &Site) -> Option<u64> {
    let Site { measures, size, lent_bytes, .. } = site;
    if measures.live_blocks == 0 {
        return Some(0);
    }
    // Chunks of a pool lend bytes, and the bytes requested by their blocks are unknown here.
    if *lent_bytes > 0 {
        return None;
    }
    if size.is_some() {
        return measures.live_blocks.checked_mul(one_size(site)?);
    }
    // After a reset, live blocks can be older and are not counted as allocated.
    if measures.live_blocks.checked_add(measures.frees) != Some(measures.allocations) {
        return None;
    }
    if measures.frees == 0 {
        return Some(measures.requested_bytes);
    }
    measures.live_blocks.checked_mul(one_size(site)?)
}

/// Returns the size of all blocks of a site; `None` if they have different sizes.
pub fn one_size(site: &Site) -> Option<u64> {
    let measures = &site.measures;
    let largest = measures.largest_bytes;
    let is_one = largest.checked_mul(measures.allocations) == Some(measures.requested_bytes);
    site.size.or(is_one.then_some(largest))
}

/// Returns the live requested bytes of every site of a process: from its counters, else from its
/// trace, if that was replayed.
pub fn live_requested_of_sites(process: &Process, highest: Option<&Highest>) -> Vec<Option<u64>> {
    let by_trace = |index: usize| *highest?.live_requested.get(index)?;
    let sites = process.tables.sites.iter().enumerate();
    sites.map(|(index, site)| live_requested(site).or_else(|| by_trace(index))).collect()
}

/// Returns the live requested bytes of every site, using the trace if the counters are not
/// sufficient; a trace that cannot be read is ignored.
pub fn live_requested_replayed(process: &Process) -> Vec<Option<u64>> {
    let highest = trace_knows_more(process).then(|| Highest::of(process).ok()).flatten();
    live_requested_of_sites(process, highest.as_ref())
}

/// Returns whether there is a trace, and the counters are not sufficient for live requested bytes.
pub fn trace_knows_more(process: &Process) -> bool {
    let is_known =
        |site| live_requested(site).is_some() && live_requested_of_allocator(site).is_some();
    process.has_trace() && !process.tables.sites.iter().all(is_known)
}

/// Returns the live requested bytes of all stacks, from the counters of their sites; `None` if
/// these are not sufficient.
pub fn live_requested_of_stacks(process: &Process) -> Vec<Option<u64>> {
    let mut sums = vec![Some(0u64); process.tables.stacks.len()];
    for site in &process.tables.sites {
        let sum = &mut sums[site.stack.0 as usize];
        *sum = sum.zip(live_requested_of_allocator(site)).map(|(sum, n)| sum.saturating_add(n));
    }
    sums
}

impl Live {
    /// Returns the live requested bytes, if the trace is consistent with the live bytes of the
    /// counters.
    pub fn requested_of(&self, live_bytes: u64) -> Option<u64> {
        (self.last.usable == live_bytes).then_some(self.last.requested)
    }
}

/// Returns the live requested bytes of a site as counted in sums over sites.
pub fn live_requested_of_allocator(site: &Site) -> Option<u64> {
    // For labelled blocks, the counters have the bytes that the label states.
    let is_known = site.moved.blocks == 0 || site.measures.live_blocks == 0;
    if !is_in_sums(site.kind) {
        return Some(0);
    }
    live_requested(site).filter(|_| is_known)
}

fn live([usable, requested]: Levels, is_complete: bool) -> Live {
    let highest = [usable, requested].map(|level| not_negative(level.highest));
    let last = [usable, requested].map(|level| not_negative(level.live));
    let bytes = |[usable, requested]: [u64; 2]| Bytes { usable, requested };
    Live { highest: is_complete.then(|| bytes(highest)), last: bytes(last) }
}

fn not_negative(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

/// Returns whether a site's live bytes are part of the sums of stacks, lanes and scopes.
pub const fn is_in_sums(kind: SiteKind) -> bool {
    kind.is_in_totals()
}

/// Current and highest live bytes. Negative only for a short time, if a free precedes its
/// allocation according to the clocks of two cores.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    live: i64,
    highest: i64,
}

impl Level {
    fn add(&mut self, bytes: i64) {
        self.live = self.live.saturating_add(bytes);
        self.highest = self.highest.max(self.live);
    }
}

/// Usable and requested bytes.
type Levels = [Level; 2];

/// The sums while events are added.
struct Pass<'a> {
    process: &'a Process,
    /// Whether the parts contain the allocations of a lane, by lane.
    counts: Vec<bool>,
    all: Levels,
    /// Levels of stacks, lanes and scopes.
    parts: [Vec<Levels>; 3],
    /// Live bytes of each site: usable, and requested as the site counts them.
    sites: Vec<[i64; 2]>,
    /// Bytes lent by chunks of pools.
    lending: Lending,
}

impl Pass<'_> {
    fn of(process: &Process, counts: Vec<bool>) -> Pass<'_> {
        let tables = &process.tables;
        let lengths = [tables.stacks.len(), tables.lanes.len(), tables.scopes.len()];
        let parts = lengths.map(|length| vec![Levels::default(); length]);
        Pass {
            process,
            counts,
            all: Levels::default(),
            parts,
            sites: vec![[0; 2]; tables.sites.len()],
            lending: Lending::default(),
        }
    }

    /// Restarts the highest values at the current ones.
    fn reset(&mut self) {
        for level in self.parts.iter_mut().flatten().chain([&mut self.all]).flatten() {
            level.highest = level.live;
        }
    }

    fn event(&mut self, event: &Event) {
        let mut lending = std::mem::take(&mut self.lending);
        let sites = &self.process.tables.sites;
        lending.event(sites, event, &mut |change| {
            self.add(change.site, change.block, change.sign);
        });
        self.lending = lending;
    }

    /// Adds a block to a site and to all parts that contain the site, or subtracts it.
    fn add(&mut self, site: u32, block: Block, sign: i64) {
        let Some(of) = self.process.tables.sites.get(site as usize) else {
            return;
        };
        let [usable, asked, counted] =
            [block.usable, block.asked, block.counted].map(|bytes| sign * signed(bytes));
        for (live, bytes) in self.sites[site as usize].iter_mut().zip([usable, counted]) {
            *live = live.saturating_add(bytes);
        }
        if !is_in_sums(of.kind) || !self.counts[of.lane.0 as usize] {
            return;
        }
        let places = [of.stack.0, of.lane.0, of.scope.0];
        let parts = self.parts.iter_mut().zip(places);
        let parts = parts.filter_map(|(part, place)| part.get_mut(place as usize));
        for levels in parts.chain([&mut self.all]) {
            levels.iter_mut().zip([usable, asked]).for_each(|(level, bytes)| level.add(bytes));
        }
    }

    /// Returns the live requested bytes of sites whose usable bytes are consistent.
    fn live_requested(&self) -> Vec<Option<u64>> {
        let sites = self.process.tables.sites.iter().zip(&self.sites);
        sites
            .map(|(site, &[usable, requested])| {
                let adds_up = u64::try_from(usable) == Ok(site.measures.live_bytes);
                u64::try_from(requested).ok().filter(|_| adds_up)
            })
            .collect()
    }
}
