//! Restricts a process to a time span, using the events of its trace.

use std::ops::Range;

use heaptide_format as format;
use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::model::{
    LaneId, Measures, Moved, Process, ScopeId, Site, SiteKind, SizeClass, StackId, Sum,
};
use crate::quantity::duration;
use crate::trace::lending::{Change, Lending, signed};
use crate::trace::{Event, Operation};

impl Process {
    /// Returns the process with counters of the events in a time span, in nanoseconds from the
    /// start; live blocks are those at its end. The peak is the highest value within the span, at
    /// its start or after any event.
    ///
    /// Sums over sites equal the totals. Events before a reset are not counted. Samples, marks,
    /// windows and accounts remain those of the whole run, and so do the highest bytes of scopes. A
    /// label that is removed in the span moves its block back to the previous site, and counts like
    /// a label that is set.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(process.during(0, 1_000_000).is_err()); // recorded without a trace
    /// ```
    pub fn during(&self, from_ns: u64, to_ns: u64) -> Result<Process, Error> {
        let mut replay = self.replay_whole()?;
        let resets = self.time.traces.iter().filter(|trace| trace.since_ns > 0);
        let reset_ns = resets.map(|trace| trace.since_ns.saturating_add(trace.after_ns)).max();
        let from_ns = from_ns.max(reset_ns.unwrap_or(0));
        let mut pass = Pass::of(self);
        let mut batch = Vec::new();
        'events: while replay.fill(&mut batch) {
            for event in &batch {
                if event.time_ns >= to_ns {
                    break 'events;
                }
                if event.time_ns >= from_ns {
                    pass.begin(from_ns);
                }
                pass.event(event);
            }
        }
        pass.begin(from_ns);
        Ok(pass.into_process(from_ns..to_ns))
    }
}

/// Live blocks of a site.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    blocks: i64,
    bytes: i64,
    lent: i64,
    /// Blocks and bytes at the peak with number `peak`, if they have changed since.
    at_peak: (i64, i64),
    peak: u32,
}

/// The sums while events are added.
struct Pass<'a> {
    process: &'a Process,
    levels: Vec<Level>,
    lending: Lending,
    /// Whether the span has begun.
    is_inside: bool,
    measures: Vec<Measures>,
    moved: Vec<Moved>,
    /// Frees by lane and scope.
    freed_here: FxHashMap<(LaneId, ScopeId), (u64, u64)>,
    entered: FxHashMap<(LaneId, ScopeId), u64>,
    classes: Vec<(u64, u64, u64)>,
    live_bytes: i64,
    peak_bytes: i64,
    peak_ns: u64,
    /// Number of peaks so far.
    peak: u32,
}

impl Pass<'_> {
    fn of(process: &Process) -> Pass<'_> {
        let sites = process.tables.sites.len();
        Pass {
            process,
            levels: vec![Level::default(); sites],
            lending: Lending::default(),
            is_inside: false,
            measures: vec![Measures::default(); sites],
            moved: vec![Moved::default(); sites],
            freed_here: FxHashMap::default(),
            entered: FxHashMap::default(),
            classes: vec![(0, 0, 0); format::SIZE_CLASSES],
            live_bytes: 0,
            peak_bytes: 0,
            peak_ns: 0,
            peak: 0,
        }
    }

    /// Begins the span, if it has not begun, with the current live bytes as its first peak.
    fn begin(&mut self, from_ns: u64) {
        if !self.is_inside {
            self.is_inside = true;
            (self.peak_bytes, self.peak_ns) = (self.live_bytes, from_ns);
            self.peak = self.peak.wrapping_add(1);
        }
    }

    fn event(&mut self, event: &Event) {
        let mut lending = std::mem::take(&mut self.lending);
        let sites = &self.process.tables.sites;
        lending.event(sites, event, &mut |change| self.change(&change));
        self.lending = lending;
        if !self.is_inside {
            return;
        }
        self.count(event);
        // As in the recorder, a block that gets a label at the peak has it there.
        let names = event.operation == Operation::Relabel && event.lane == self.lane_before(event);
        if self.live_bytes > self.peak_bytes || (names && self.live_bytes == self.peak_bytes) {
            (self.peak_bytes, self.peak_ns) = (self.live_bytes, event.time_ns);
            self.peak = self.peak.wrapping_add(1);
        }
    }

    /// Returns the lane of the site that a block left.
    fn lane_before(&self, event: &Event) -> Option<LaneId> {
        Some(self.process.tables.sites.get(event.site_before as usize)?.lane)
    }

    /// Changes the live blocks of a site.
    fn change(&mut self, change: &Change) {
        let index = change.site as usize;
        let Some(site) = self.process.tables.sites.get(index) else { return };
        let level = &mut self.levels[index];
        if level.peak != self.peak {
            (level.at_peak, level.peak) = ((level.blocks, level.bytes), self.peak);
        }
        let bytes = change.sign * signed(change.block.usable);
        level.bytes = level.bytes.saturating_add(bytes);
        if change.is_lent {
            level.lent = level.lent.saturating_sub(bytes);
        } else {
            level.blocks += change.sign;
        }
        if site.kind.is_in_totals() {
            self.live_bytes = self.live_bytes.saturating_add(bytes);
        }
    }

    /// Counts an event in the span.
    fn count(&mut self, event: &Event) {
        let Event { site, site_before, requested, usable, .. } = *event;
        match event.operation {
            Operation::Allocate => {
                self.allocated(event);
                self.class(site, |class| {
                    class[format::size_class(requested)].0 += 1;
                    class[format::size_class(usable)].1 += 1;
                });
            }
            Operation::Free => {
                self.freed(site, event);
                if let Some(of) = self.process.tables.sites.get(site as usize) {
                    self.measures[site as usize].temporary += u64::from(event.temporary);
                    self.freed_by(event, of.kind);
                }
                // Frees inside the recorder have no lane, and their sizes are not counted.
                if event.lane.is_some() {
                    self.class(site, |class| class[format::size_class(usable)].2 += 1);
                }
            }
            Operation::Fail => {
                if let Some(measures) = self.measures.get_mut(site as usize) {
                    measures.failed += 1;
                }
            }
            Operation::Relabel | Operation::Unlabel => {
                self.freed(site_before, event);
                self.allocated(event);
                let was_there = (site_before as usize) < self.measures.len();
                if let Some(moved) = self.moved.get_mut(site as usize).filter(|_| was_there) {
                    moved.blocks += 1;
                    moved.usable_bytes = moved.usable_bytes.saturating_add(usable);
                    moved.requested_bytes = moved.requested_bytes.saturating_add(requested);
                }
            }
            Operation::Begin => {
                if let Some(lane) = event.lane {
                    *self.entered.entry((lane, event.scope)).or_default() += 1;
                }
            }
            Operation::End | Operation::Mark => {}
        }
    }

    fn allocated(&mut self, event: &Event) {
        let Some(measures) = self.measures.get_mut(event.site as usize) else { return };
        measures.add(&Measures {
            allocations: 1,
            reallocations: u64::from(event.reallocated),
            requested_bytes: event.requested,
            usable_bytes: event.usable,
            largest_bytes: event.requested,
            ..Measures::default()
        });
    }

    fn freed(&mut self, site: u32, event: &Event) {
        let Some(of) = self.process.tables.sites.get(site as usize) else { return };
        self.measures[site as usize].add(&Measures {
            frees: 1,
            freed_bytes: event.usable,
            cross_thread_frees: u64::from(event.lane != Some(of.lane)),
            ..Measures::default()
        });
    }

    /// Counts a free in the lane and scope that performed it.
    fn freed_by(&mut self, event: &Event, kind: SiteKind) {
        if let Some(lane) = event.lane.filter(|_| is_allocator(kind)) {
            let here = self.freed_here.entry((lane, event.scope)).or_default();
            *here = (here.0 + 1, here.1.saturating_add(event.usable));
        }
    }

    /// Counts a size, for blocks from the allocator.
    fn class(&mut self, site: u32, count: impl FnOnce(&mut [(u64, u64, u64)])) {
        let site = self.process.tables.sites.get(site as usize);
        if site.is_some_and(|site| is_allocator(site.kind)) {
            count(&mut self.classes);
        }
    }

    fn into_process(self, span: Range<u64>) -> Process {
        let mut process = self.process.clone();
        process.complete_samples();
        let rows = process.tables.sites.iter_mut().zip(self.measures);
        for (((site, measures), moved), level) in rows.zip(self.moved).zip(&self.levels) {
            let at_peak =
                if level.peak == self.peak { level.at_peak } else { (level.blocks, level.bytes) };
            site.measures = Measures {
                live_blocks: not_negative(level.blocks),
                live_bytes: not_negative(level.bytes),
                at_peak_blocks: not_negative(at_peak.0),
                at_peak_bytes: not_negative(at_peak.1),
                ..measures
            };
            (site.moved, site.lent_bytes) = (moved, not_negative(level.lent));
        }
        enter(&mut process, &self.entered);
        freed_here(&mut process, &self.freed_here);
        process.tables.histogram = histogram(&self.classes);
        leave_empty(&mut process);
        let totals = Sum::over(&process.tables.sites);
        process.totals = Measures { peak_bytes: not_negative(self.peak_bytes), ..totals };
        process.peak_time_ns = self.peak_ns;
        process.time.highest = None;
        process.sum_up_lanes();
        let span_text = format!("from {} to {}", duration(span.start), duration(span.end));
        process.completeness.part = Some(match process.completeness.part.take() {
            Some(part) => format!("{part}; {span_text}"),
            None => span_text,
        });
        process
    }
}

/// Returns whether blocks of this kind are from the allocator.
const fn is_allocator(kind: SiteKind) -> bool {
    matches!(kind, SiteKind::Heap | SiteKind::PoolChunk)
}

/// Sets how often scopes were entered; 0 for a trace without scope records.
fn enter(process: &mut Process, entered: &FxHashMap<(LaneId, ScopeId), u64>) {
    process.tables.scopes.iter_mut().for_each(|scope| scope.entered = 0);
    for row in &mut process.tables.entered {
        row.times = entered.get(&(row.lane, row.scope)).copied().unwrap_or(0);
    }
    process.tables.entered.retain(|row| row.times > 0);
    for row in &process.tables.entered {
        let scope = &mut process.tables.scopes[row.scope.0 as usize];
        scope.entered = scope.entered.saturating_add(row.times);
    }
}

/// Adds the frees in each lane and scope to their row without stack and label.
fn freed_here(process: &mut Process, freed: &FxHashMap<(LaneId, ScopeId), (u64, u64)>) {
    for scope in &mut process.tables.scopes {
        (scope.frees_here, scope.freed_here_bytes) = (0, 0);
    }
    for (&(_, scope), &(frees, bytes)) in freed {
        if let Some(scope) = process.tables.scopes.get_mut(scope.0 as usize) {
            scope.frees_here = scope.frees_here.saturating_add(frees);
            scope.freed_here_bytes = scope.freed_here_bytes.saturating_add(bytes);
        }
    }
    let mut rows: FxHashMap<(LaneId, ScopeId), usize> = FxHashMap::default();
    for (index, site) in process.tables.sites.iter().enumerate() {
        let is_plain = site.stack == StackId(0) && site.label.is_none() && site.call.is_none();
        if is_plain && site.kind == SiteKind::Heap {
            rows.entry((site.lane, site.scope)).or_insert(index);
        }
    }
    for (place, &(frees_here, freed_here_bytes)) in freed {
        let new = Site {
            stack: StackId(0),
            scope: place.1,
            label: None,
            lane: place.0,
            size: None,
            call: None,
            kind: SiteKind::Heap,
            measures: Measures::default(),
            moved: Moved::default(),
            lent_bytes: 0,
        };
        let sites = &mut process.tables.sites;
        let row = *rows.entry(*place).or_insert_with(|| {
            sites.push(new);
            sites.len() - 1
        });
        let here = Measures { frees_here, freed_here_bytes, ..Measures::default() };
        process.tables.sites[row].measures.add(&here);
    }
}

fn histogram(classes: &[(u64, u64, u64)]) -> Vec<SizeClass> {
    let class = |(class, &(requested, usable, freed)): (usize, &(u64, u64, u64))| {
        let (size_min, size_max) = format::class_bounds(class);
        SizeClass { size_min, size_max, requested, usable, freed }
    };
    let occurs = |class: &SizeClass| class.requested | class.usable | class.freed != 0;
    classes.iter().enumerate().map(class).filter(occurs).collect()
}

/// Removes sites without counters.
fn leave_empty(process: &mut Process) {
    let has = |site: &Site| site.measures != Measures::default() || site.lent_bytes > 0;
    let mut kept = 0..;
    let keep: Vec<Option<u32>> =
        process.tables.sites.iter().map(|site| has(site).then(|| kept.next())?).collect();
    process.time.move_sites(|site| keep.get(site as usize).copied().flatten());
    process.tables.sites.retain(has);
}

fn not_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
