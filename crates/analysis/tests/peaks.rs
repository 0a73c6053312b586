//! Tables of processes that were killed during an event: the peak is not below the live bytes, and
//! size classes and counts of frees add up to the totals.

use std::mem::offset_of;

use heaptide_analysis::model::{End, Process};
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format as format;
use heaptide_format::{FileHeader, Lane, PEAK_BATCH, size_class};
use zerocopy::FromZeros;

fn read(p: &ProfileBuilder) -> Process {
    Process::from_bytes(&p.finish(), "12-0.profile".as_ref()).expect("a profile")
}

/// Returns a killed process with 20 live blocks of 1000 bytes, on two lanes.
fn killed(peak_bytes: u64, lanes_at_once: u32) -> ProfileBuilder {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    (p.header.peak_bytes, p.header.peak_time_ns) = (peak_bytes, 3);
    (p.header.last_seen_ns, p.header.lanes_at_once) = (9, lanes_at_once);
    for lane in 0..2 {
        p.site(lane, site(0, 10, 1000));
        p.lane(lane, "app", |lane| counted(lane, 10, 1000));
    }
    p
}

fn counted(lane: &mut Lane, blocks: u64, size: u64) {
    lane.requested_classes[size_class(size)] = blocks;
    lane.usable_classes[size_class(size)] = blocks;
    (lane.requested_bytes, lane.usable_bytes) = (blocks * size, blocks * size);
}

/// Returns the peak, the bytes of sites at peak, its time, and its error bound.
fn peak(process: &Process) -> (u64, u64, u64, u64) {
    let t = &process.totals;
    let of_lanes: u64 = process.tables.lanes.iter().map(|lane| lane.measures.at_peak_bytes).sum();
    assert_eq!(of_lanes, t.at_peak_bytes);
    (t.peak_bytes, t.at_peak_bytes, process.peak_time_ns, process.completeness.peak_bound_bytes)
}

#[test]
fn a_peak_is_never_below_what_is_live() {
    let process = read(&killed(400, 2));
    assert_eq!(process.lifetime.end, End::Unknown);
    assert_eq!(peak(&process), (20_000, 20_000, 9, 2 * PEAK_BATCH));
    assert_eq!(process.totals.at_peak_blocks, 20);
}

#[test]
fn a_peak_that_threads_noted_stays() {
    let bound = 3 * PEAK_BATCH;
    assert_eq!(peak(&read(&killed(25_000, 3))), (25_000, 20_000, 3, bound));
    let mut p = killed(20_000, 2);
    p.header.peak_bound_bytes = 7 * PEAK_BATCH;
    assert_eq!(peak(&read(&p)).3, 7 * PEAK_BATCH);
}

#[test]
fn a_peak_of_one_thread_is_exact() {
    assert_eq!(peak(&read(&killed(20_000, 1))), (20_000, 20_000, 3, 0));
    // The interrupted event is in the peak but not yet at its site.
    assert_eq!(peak(&read(&killed(20_024, 1))), (20_024, 20_000, 3, 24));
}

#[test]
fn counters_have_no_peak_below_live_either() {
    let mut p = ProfileBuilder::new(format::Mode::Counters, 12, 0);
    (p.header.peak_bytes, p.header.lanes_at_once) = (400, 2);
    p.lane(0, "app", |lane| counted(lane, 20, 1000));
    assert_eq!(peak(&read(&p)), (20_000, 0, 0, 2 * PEAK_BATCH));
}

#[test]
fn a_window_has_no_peak_below_what_was_live_at_its_ends() {
    let mut p = killed(20_000, 2);
    let live = |bytes| format::Sums { usable_bytes: bytes, ..FromZeros::new_zeroed() };
    p.window("closed", |w| {
        (w.end_time_ns, w.begin, w.end) = (1, live(900), live(700));
        w.peak_bytes = 400;
    });
    p.window("open", |w| (w.begin_time_ns, w.open, w.peak_bytes) = (2, 1, 400));
    let process = read(&p);
    let peaks: Vec<_> =
        process.time.windows.iter().map(|w| (&*w.name, w.peak_bytes, w.peak_bound_bytes)).collect();
    assert_eq!(peaks, [("closed", 900, 0), ("open", 20_000, 2 * PEAK_BATCH)]);
}

/// Returns counts of size classes: requested, usable, freed.
fn histogram(process: &Process) -> Vec<(u64, u64, u64, u64)> {
    process.tables.histogram.iter().map(|c| (c.size_min, c.requested, c.usable, c.freed)).collect()
}

#[test]
fn classes_get_the_event_that_only_its_site_has() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let mut allocated = site(0, 11, 1000);
    (allocated.requested_bytes, allocated.usable_bytes) = (10_040, 10_056);
    (allocated.frees, allocated.freed_bytes) = (3, 2056);
    p.site(0, allocated);
    p.scope(0, 0, 0, |s| (s.frees_here, s.freed_here_bytes) = (2, 2000));
    p.lane(0, "app", |lane| {
        counted(lane, 10, 1000);
        lane.freed_classes[size_class(1000)] = 2;
    });
    let process = read(&p);
    assert_eq!(histogram(&process), [(32, 1, 1, 1), (512, 10, 10, 2)]);
    assert_eq!((process.totals.frees_here, process.totals.freed_here_bytes), (3, 2056));
    // A reserved extent that is not in use is not damage; a missing part is.
    let mut bytes = p.finish();
    let end = bytes.len() as u64 + format::PAGE;
    bytes[offset_of!(FileHeader, file_end)..][..8].copy_from_slice(&end.to_le_bytes());
    let cut = Process::from_bytes(&bytes, "12-0.profile".as_ref()).expect("a profile");
    assert_eq!(histogram(&cut), [(512, 10, 10, 2)]);
    bytes.resize(end as usize, 0);
    let whole = Process::from_bytes(&bytes, "12-0.profile".as_ref()).expect("a profile");
    assert_eq!((cut.completeness.notes.len(), whole.completeness.notes.len()), (1, 1));
    assert_eq!(histogram(&whole), histogram(&process));
    // If a process has exited, its tables are not changed.
    p.header.lanes_at_once = 1;
    let process = read(p.exited());
    assert_eq!(histogram(&process), [(512, 10, 10, 2)]);
    assert_eq!((process.totals.frees_here, process.totals.frees), (2, 3));
}
