//! The process's own statistics, which are summed up on request: of a window, a sample or the
//! program.

use crate::event::lane::{self, LaneState};
use crate::event::process::{Process, process};
use crate::store::ids::{Record, ScopeId};
use crate::store::profile;
use crate::store::shared::{Store, store};
use crate::store::{scopes, sites};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use heaptide_format::shared::{ExtentHeader, Key, Site, Word};
use heaptide_format::{EXTENT_MAGIC, KEY_OUTSIDE, KEY_POOL_BLOCK, Kind, PAGE, Sums};

/// The statistics for programs, as in the C interface.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Figures {
    pub allocations: u64,
    pub frees: u64,
    pub reallocations: u64,
    pub failed: u64,
    pub requested_bytes: u64,
    pub usable_bytes: u64,
    pub freed_bytes: u64,
    pub live_blocks: i64,
    pub live_bytes: i64,
    pub peak_bytes: u64,
    pub largest_bytes: u64,
}

/// The three histograms of sizes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Histograms {
    pub requested: [u64; heaptide_format::SIZE_CLASSES],
    pub usable: [u64; heaptide_format::SIZE_CLASSES],
    pub freed: [u64; heaptide_format::SIZE_CLASSES],
}

impl Default for Histograms {
    fn default() -> Histograms {
        const NONE: [u64; heaptide_format::SIZE_CLASSES] = [0; heaptide_format::SIZE_CLASSES];
        Histograms { requested: NONE, usable: NONE, freed: NONE }
    }
}

impl Figures {
    /// Returns the statistics for sums that are differences: live bytes are the net change.
    pub fn of(sums: &Sums) -> Figures {
        Figures {
            allocations: sums.allocations,
            frees: sums.frees,
            reallocations: sums.reallocations,
            failed: sums.failed,
            requested_bytes: sums.requested_bytes,
            usable_bytes: sums.usable_bytes,
            freed_bytes: sums.freed_bytes,
            live_blocks: sums.allocations.wrapping_sub(sums.frees) as i64,
            live_bytes: sums.usable_bytes.wrapping_sub(sums.freed_bytes) as i64,
            peak_bytes: 0,
            largest_bytes: 0,
        }
    }
}

/// Returns the sums of all lanes, each read at a slightly different time.
pub fn sums(p: &Process) -> Sums {
    let mut all = Sums::default();
    for &lane in lane::all() {
        // SAFETY: lanes stay mapped. Words of another thread's lane are read while it may write
        // them.
        add(&mut all, &of_lane(unsafe { &*lane }));
    }
    all.frees += p.nested_frees.load(Relaxed);
    all.freed_bytes += p.nested_bytes.load(Relaxed);
    all
}

/// Returns a lane's sums since it was created. While its thread runs, they may be of different
/// times, but the bytes allocated and freed are of the same time.
pub fn of_lane(lane: &LaneState) -> Sums {
    let record = lane.record;
    let (usable_bytes, freed_bytes) = lane.live.moment(&record.usable_bytes);
    Sums {
        allocations: record.requested_classes.iter().map(Word::get).sum(),
        frees: record.freed_classes.iter().map(Word::get).sum(),
        reallocations: record.reallocations.get(),
        failed: record.failed.get(),
        requested_bytes: record.requested_bytes.get(),
        usable_bytes,
        freed_bytes,
    }
}

fn each(a: &mut Sums, b: &Sums, f: impl Fn(u64, u64) -> u64) {
    a.allocations = f(a.allocations, b.allocations);
    a.frees = f(a.frees, b.frees);
    a.reallocations = f(a.reallocations, b.reallocations);
    a.failed = f(a.failed, b.failed);
    a.requested_bytes = f(a.requested_bytes, b.requested_bytes);
    a.usable_bytes = f(a.usable_bytes, b.usable_bytes);
    a.freed_bytes = f(a.freed_bytes, b.freed_bytes);
}

fn add(a: &mut Sums, b: &Sums) {
    each(a, b, u64::wrapping_add);
}

/// Returns the changes between two sums.
pub fn between(before: &Sums, now: &Sums) -> Sums {
    let mut change = *now;
    each(&mut change, before, u64::wrapping_sub);
    change
}

/// Returns the statistics of the process since its start or its last reset, at which it had the
/// sums `at_reset`. Live blocks and bytes are all that are live.
pub fn totals(p: &Store, at_reset: &Sums) -> Figures {
    let now = sums(process());
    let mut figures = Figures::of(&between(at_reset, &now));
    let all = Figures::of(&now);
    (figures.live_blocks, figures.live_bytes) = (all.live_blocks, all.live_bytes);
    figures.peak_bytes = p.header().peak_bytes.get().max(all.live_bytes.max(0) as u64);
    figures.largest_bytes = largest();
    figures
}

fn largest() -> u64 {
    let mut largest = lane::records().map(|lane| lane.largest_bytes.get()).max().unwrap_or(0);
    each_record(store(), Kind::Sites, |site: &'static Site| {
        largest = largest.max(site.largest_bytes.get());
    });
    largest
}

/// Returns the statistics of the calling thread since it began.
pub fn thread(lane: &LaneState) -> Figures {
    let now = of_lane(lane);
    Figures::of(&between(&lane.before, &now))
}

/// Returns the statistics of a scope path over all lanes: of allocations in it and, if `inclusive`,
/// in those inside it.
pub fn scope(path: ScopeId, inclusive: bool) -> Figures {
    let mut figures = Figures::default();
    let (mut last, mut last_is) = (ScopeId::NONE, false);
    // Words may be of slightly different times.
    each_record(store(), Kind::Sites, |site: &'static Site| {
        let Some(key) = sites::key_of(site) else {
            return;
        };
        let scope = ScopeId::new(key.scope.get());
        if scope != last {
            (last, last_is) = (scope, !scope.is_none() && is_path(scope, path, inclusive));
        }
        if last_is && key.flags.get() & (KEY_OUTSIDE | KEY_POOL_BLOCK) == 0 {
            add_site(&mut figures, site, key);
        }
    });
    figures
}

fn add_site(figures: &mut Figures, site: &Site, key: &Key) {
    let allocations = site.allocations.get();
    let frees = site.frees.get().wrapping_add(site.remote_frees.get());
    let usable = site.usable_bytes.get();
    let freed = site.freed_bytes.get().wrapping_add(site.remote_freed_bytes.get());
    let (moved, moved_bytes) = (key.moved_blocks.get(), key.moved_bytes.get());
    let requested = site.requested_bytes.get().wrapping_sub(key.moved_requested_bytes.get());
    let told = freed.wrapping_sub(key.lent_bytes.get()).wrapping_sub(moved_bytes);
    figures.allocations += allocations.wrapping_sub(moved);
    figures.frees = figures.frees.wrapping_add(frees.wrapping_sub(moved));
    figures.reallocations += site.reallocations.get();
    figures.failed += site.failed.get() as u64;
    figures.requested_bytes += requested;
    figures.usable_bytes += usable.wrapping_sub(moved_bytes);
    figures.freed_bytes = figures.freed_bytes.wrapping_add(told);
    figures.live_blocks += allocations.wrapping_sub(frees) as i64;
    figures.live_bytes += usable.wrapping_sub(freed) as i64;
    figures.largest_bytes = figures.largest_bytes.max(site.largest_bytes.get());
}

/// Returns whether two lanes' paths are equal, or, if `inclusive`, `scope` is inside `path`.
fn is_path(scope: ScopeId, path: ScopeId, inclusive: bool) -> bool {
    let parent = |scope: ScopeId| ScopeId::new(scope.record().parent.get());
    let (deep, wanted) = (scopes::depth(scope), scopes::depth(path));
    if deep < wanted || (deep > wanted && !inclusive) {
        return false;
    }
    let (mut scope, mut path) = (scope, path);
    for _ in wanted..deep {
        scope = parent(scope);
    }
    while scope != path && scope.record().name.get() == path.record().name.get() {
        (scope, path) = (parent(scope), parent(path));
        if scope.is_none() || path.is_none() {
            return scope == path;
        }
    }
    scope == path
}

pub fn histograms(out: &mut Histograms) {
    for record in lane::records() {
        for class in 0..heaptide_format::SIZE_CLASSES {
            out.requested[class] += record.requested_classes[class].get();
            out.usable[class] += record.usable_classes[class].get();
            out.freed[class] += record.freed_classes[class].get();
        }
    }
}

/// Returns an upper bound of the size of live blocks.
pub fn longest_block() -> u64 {
    let mut classes = [0u64; heaptide_format::SIZE_CLASSES];
    for record in lane::records() {
        for (sum, count) in classes.iter_mut().zip(&record.usable_classes) {
            *sum += count.get();
        }
    }
    let class = classes.iter().rposition(|&n| n > 0).unwrap_or(0);
    heaptide_format::class_bounds(class).1
}

/// Visits the committed records of a kind in all extents of the file.
pub fn each_record<R: Record>(p: &Store, kind: Kind, mut visit: impl FnMut(&'static R)) {
    let base = p.base.load(Relaxed);
    let end = p.header().file_end.load(Acquire);
    let mut at = PAGE;
    while at < end {
        // SAFETY: all below `file_end` is mapped; all zeros is a valid header, too.
        let extent = unsafe { &*(base.wrapping_add(at as usize) as *const ExtentHeader) };
        let length = extent.length.get(); // written before `magic`, like `kind`
        if extent.magic.get() != EXTENT_MAGIC || length == 0 {
            at += PAGE;
            continue;
        }
        if extent.kind.get() == kind as u16 {
            let count = extent.committed.load(Acquire) as usize / size_of::<R>();
            let first = profile::first_record(extent) as *const R;
            // SAFETY: records were written before `committed`, and stay mapped.
            let records = unsafe { core::slice::from_raw_parts(first, count) };
            for record in records {
                visit(record);
            }
        }
        at += length;
    }
}
