//! Sums of the events of a trace: they equal the recorder's counters, to the byte.

use heaptide_analysis::model::{
    LaneId, Measures, Moved, Process, Recording, Site, SiteKind, SizeClass, Sum,
};
use heaptide_analysis::trace::{Event, Operation};
use std::path::Path;

/// Compares the traces of all processes of a recording with their counters; returns the number of
/// events.
pub fn assert_add_up(recording: &Path) -> u64 {
    let recording = Recording::open(recording).expect("a recording");
    assert!(recording.damaged.is_empty(), "{:?}", recording.damaged);
    recording.processes.iter().map(of_process).sum()
}

/// The sums of a site's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Row {
    measures: Measures,
    moved: Moved,
}

impl Row {
    /// Returns the counters of a site, without those that do not follow from events.
    fn counted(site: &Site) -> Row {
        let measures = Measures {
            at_peak_blocks: 0,
            at_peak_bytes: 0,
            frees_here: 0,
            freed_here_bytes: 0,
            // The blocks of a pool borrow live bytes from their chunk; events count both.
            live_bytes: site.measures.live_bytes + site.lent_bytes,
            ..site.measures
        };
        Row { measures, moved: site.moved }
    }

    fn allocated(&mut self, event: &Event) {
        let row = &mut self.measures;
        row.allocations += 1;
        row.live_blocks += 1;
        row.requested_bytes += event.requested;
        row.usable_bytes += event.usable;
        row.live_bytes += event.usable;
        row.largest_bytes = row.largest_bytes.max(event.requested);
    }

    fn freed(&mut self, event: &Event) {
        let row = &mut self.measures;
        row.frees += 1;
        row.live_blocks -= 1;
        row.freed_bytes += event.usable;
        row.live_bytes -= event.usable;
    }

    /// Reverts a free.
    fn is_back(&mut self, event: &Event) {
        let row = &mut self.measures;
        row.frees -= 1;
        row.live_blocks += 1;
        row.freed_bytes -= event.usable;
        row.live_bytes += event.usable;
    }
}

/// The sums of a process.
struct Sums {
    sites: Vec<Row>,
    /// Frees by other lanes per site, minus reverted ones.
    remote: Vec<i64>,
    /// Frees made in each scope, and their bytes.
    scopes: Vec<(u64, u64)>,
    /// The same for each lane.
    lanes: Vec<(u64, u64)>,
    histogram: Vec<SizeClass>,
    events: u64,
}

impl Sums {
    fn of(process: &Process) -> Sums {
        let mut sums = Sums {
            sites: vec![Row::default(); process.tables.sites.len()],
            remote: vec![0; process.tables.sites.len()],
            scopes: vec![(0, 0); process.tables.scopes.len()],
            lanes: vec![(0, 0); process.tables.lanes.len()],
            histogram: process.tables.histogram.iter().map(empty).collect(),
            events: 0,
        };
        for event in process.replay().expect("a trace") {
            sums.add(process, &event);
            sums.events += 1;
        }
        for (row, &remote) in sums.sites.iter_mut().zip(&sums.remote) {
            row.measures.cross_thread_frees = remote.max(0) as u64;
        }
        sums
    }

    fn add(&mut self, process: &Process, event: &Event) {
        self.count_size(process, event);
        let (at, before) = (event.site as usize, event.site_before as usize);
        match event.operation {
            Operation::Allocate => {
                self.sites[at].allocated(event);
                self.sites[at].measures.reallocations += u64::from(event.reallocated);
            }
            Operation::Free => {
                self.sites[at].freed(event);
                self.sites[at].measures.temporary += u64::from(event.temporary);
                self.leaves(process, at, event.lane);
                self.free_here(process, event);
            }
            Operation::Fail => self.sites[at].measures.failed += 1,
            Operation::Relabel => {
                self.sites[before].freed(event);
                self.leaves(process, before, event.lane);
                self.sites[at].allocated(event);
                let moved = &mut self.sites[at].moved;
                moved.blocks += 1;
                moved.usable_bytes += event.usable;
                moved.requested_bytes += event.requested;
            }
            Operation::Unlabel => {
                self.sites[before].freed(event);
                self.leaves(process, before, event.lane);
                self.sites[at].is_back(event);
                self.remote[at] -= 1;
            }
            Operation::Begin | Operation::End | Operation::Mark => {}
        }
    }

    fn count_size(&mut self, process: &Process, event: &Event) {
        let is_new = event.operation == Operation::Allocate;
        if !is_counted(process, event) || !(is_new || event.operation == Operation::Free) {
            return;
        }
        if is_new {
            self.class(event.requested).requested += 1;
            self.class(event.usable).usable += 1;
        } else if event.lane.is_some() {
            self.class(event.usable).freed += 1; // the recorder does not count sizes of frees
        }
    }

    fn class(&mut self, size: u64) -> &mut SizeClass {
        let class = self.histogram.iter_mut().find(|c| (c.size_min..=c.size_max).contains(&size));
        class.unwrap_or_else(|| panic!("no size class of {size}"))
    }

    fn leaves(&mut self, process: &Process, site: usize, lane: Option<LaneId>) {
        self.remote[site] += i64::from(lane != Some(process.tables.sites[site].lane));
    }

    fn free_here(&mut self, process: &Process, event: &Event) {
        if !is_counted(process, event) {
            return;
        }
        let lane = event.lane.map(|lane| &mut self.lanes[lane.0 as usize]);
        let scope = event.lane.map(|_| &mut self.scopes[event.scope.0 as usize]);
        for (frees, bytes) in lane.into_iter().chain(scope) {
            *frees += 1;
            *bytes += event.usable;
        }
    }
}

/// Returns whether a block belongs to the allocator, so that its event is in the totals.
fn is_counted(process: &Process, event: &Event) -> bool {
    let site = process.tables.sites.get(event.site as usize);
    site.is_some_and(|site| matches!(site.kind, SiteKind::Heap | SiteKind::PoolChunk))
}

fn empty(class: &SizeClass) -> SizeClass {
    SizeClass { requested: 0, usable: 0, freed: 0, ..*class }
}

/// Removes from a row of a labelled site what events do not determine: the site belongs to the
/// allocating lane, but the labelling lane counts there. Memory outside the allocator is reported
/// as new with each label.
fn of_labelled(mut row: Row, kind: SiteKind) -> Row {
    row.measures.cross_thread_frees = 0;
    if !matches!(kind, SiteKind::Heap | SiteKind::PoolChunk) {
        row.moved = Moved::default();
    }
    row
}

fn of_process(process: &Process) -> u64 {
    let (sums, program) = (Sums::of(process), &process.identity.program);
    for (number, (row, site)) in sums.sites.iter().zip(&process.tables.sites).enumerate() {
        let (mut row, mut counted) = (*row, Row::counted(site));
        if site.label.is_some() {
            (row, counted) = (of_labelled(row, site.kind), of_labelled(counted, site.kind));
        }
        assert_eq!(row, counted, "{program}: site {number}, {site:?}");
    }
    let counted =
        process.tables.scopes.iter().map(|scope| (scope.frees_here, scope.freed_here_bytes));
    assert_eq!(sums.scopes, counted.collect::<Vec<_>>(), "{program}: frees by scope");
    let counted = process.tables.lanes.iter().map(|lane| &lane.measures);
    let counted: Vec<_> = counted.map(|of| (of.frees_here, of.freed_here_bytes)).collect();
    assert_eq!(sums.lanes, counted, "{program}: frees by lane");
    assert_eq!(sums.histogram, process.tables.histogram, "{program}: sizes");
    assert_spans(process);
    sums.events
}

/// Checks that the whole run as a span of time has the totals of the process, and so do two halves
/// of it.
fn assert_spans(process: &Process) {
    let program = &process.identity.program;
    let during = |from, to| {
        let part = process.during(from, to).expect("a trace");
        let sums = Measures { peak_bytes: part.totals.peak_bytes, ..Sum::over(&part.tables.sites) };
        assert_eq!(part.totals, sums, "{program}: {from} to {to}");
        assert!(part.totals.peak_bytes >= part.totals.live_bytes, "{program}: {from} to {to}");
        let lanes = part.tables.lanes.iter().map(|lane| lane.measures.allocations).sum::<u64>();
        assert_eq!(lanes, part.totals.allocations, "{program}: {from} to {to}");
        part
    };
    // A block that is moved to a label counts once more as freed by another lane than it is
    // reverted.
    let counted = |totals: &Measures| Measures {
        peak_bytes: 0,
        at_peak_blocks: 0,
        at_peak_bytes: 0,
        cross_thread_frees: 0,
        ..*totals
    };
    let whole = during(0, u64::MAX);
    assert_eq!(counted(&whole.totals), counted(&process.totals), "{program}: the whole span");
    assert_eq!(whole.tables.histogram, process.tables.histogram, "{program}: sizes");
    let middle = process.lifetime.duration_ns / 2;
    let (first, second) = (during(0, middle), during(middle, u64::MAX));
    let mut both = first.totals;
    both.add(&second.totals);
    let Measures { live_blocks, live_bytes, .. } = second.totals;
    let both = counted(&Measures { live_blocks, live_bytes, ..both });
    assert_eq!(both, counted(&process.totals), "{program}: halves");
    let peak = first.totals.peak_bytes.max(second.totals.peak_bytes);
    assert_eq!(peak, whole.totals.peak_bytes, "{program}: the peak of halves");
}
