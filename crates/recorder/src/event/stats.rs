//! The process's own figures, summed up when somebody asks: by a window, a sample, the program.

use crate::event::lane::{self, LaneState};
use crate::event::process::Process;
use crate::store::{scopes, sites};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use heaptide_format::{
    EXTENT_HEADER, ExtentHeader, KEY_BIT, KEY_OUTSIDE, KEY_POOL_BLOCK, Key, Kind, PAGE, Site, Sums,
};

/// What a program is told, as the C interface has it.
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

/// The three histograms.
#[repr(C)]
pub struct Histograms {
    pub requested: [u64; heaptide_format::SIZE_CLASSES],
    pub usable: [u64; heaptide_format::SIZE_CLASSES],
    pub freed: [u64; heaptide_format::SIZE_CLASSES],
}

impl Figures {
    /// Of sums that are differences: live is the net change.
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

/// Sums of all lanes at this moment, each of a slightly different one.
pub fn sums(p: &Process) -> Sums {
    let mut all = Sums::default();
    for &lane in lane::all(p) {
        // SAFETY: lanes and their records stay mapped.
        add(&mut all, &unsafe { of_lane(lane) });
    }
    all.frees += p.nested_frees.load(Relaxed);
    all.freed_bytes += p.nested_bytes.load(Relaxed);
    all
}

/// A lane's sums since it was made.
///
/// # Safety
/// `lane` is a lane of this process.
pub unsafe fn of_lane(lane: *const LaneState) -> Sums {
    // SAFETY: as promised; words that its thread may be writing, a torn sum is of two moments.
    unsafe {
        let record = &*(*lane).record;
        let usable_bytes = record.usable_bytes;
        Sums {
            allocations: record.requested_classes.iter().sum(),
            frees: record.freed_classes.iter().sum(),
            reallocations: record.reallocations,
            failed: record.failed,
            requested_bytes: record.requested_bytes,
            usable_bytes,
            freed_bytes: usable_bytes.wrapping_sub((*lane).live.own() as u64),
        }
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

/// What came between two moments.
pub fn between(before: &Sums, now: &Sums) -> Sums {
    let mut change = *now;
    each(&mut change, before, u64::wrapping_sub);
    change
}

/// The process since its start or its last reset. Live is all that is live.
pub fn totals(p: &Process) -> Figures {
    let now = sums(p);
    // SAFETY: written under the moments' lock; a torn reading is of a reset just made.
    let before = unsafe { *p.moments.sums_at_reset.0.get() };
    let mut figures = Figures::of(&between(&before, &now));
    let all = Figures::of(&now);
    (figures.live_blocks, figures.live_bytes) = (all.live_blocks, all.live_bytes);
    // SAFETY: the header is mapped.
    figures.peak_bytes = unsafe { (*p.header()).peak_bytes }.max(all.live_bytes.max(0) as u64);
    figures.largest_bytes = largest(p);
    figures
}

fn largest(p: &Process) -> u64 {
    let mut largest = 0;
    // SAFETY: records of lanes stay mapped.
    let in_lanes = lane::all(p).iter().map(|&lane| unsafe { (*(*lane).record).largest_bytes });
    largest = in_lanes.fold(largest, u64::max);
    each_record(p, Kind::Sites, |site: *const Site| {
        // SAFETY: committed records stay mapped.
        largest = largest.max(unsafe { (*site).largest_bytes });
    });
    largest
}

/// The calling thread since it began.
pub fn thread(lane: &LaneState) -> Figures {
    // SAFETY: the thread's own lane.
    let now = unsafe { of_lane(lane) };
    Figures::of(&between(&lane.before, &now))
}

/// A scope path over all lanes: what was allocated in it, with `inclusive` also in those inside it.
pub fn scope(p: &Process, path: u32, inclusive: bool) -> Figures {
    let mut figures = Figures::default();
    let (mut last, mut last_is) = (0, false);
    each_record(p, Kind::Sites, |site: *const Site| {
        // SAFETY: committed records stay mapped; words may be of slightly different moments.
        let (site, key) = unsafe { (&*site, site_key(site)) };
        let Some(key) = key else {
            return;
        };
        if key.scope != last {
            (last, last_is) = (key.scope, key.scope != 0 && is_path(key.scope, path, inclusive));
        }
        if last_is && key.flags & (KEY_OUTSIDE | KEY_POOL_BLOCK) == 0 {
            add_site(&mut figures, site, key);
        }
    });
    figures
}

fn add_site(figures: &mut Figures, site: &Site, key: &Key) {
    let frees = site.frees.wrapping_add(site.remote_frees);
    let freed = site.freed_bytes.wrapping_add(site.remote_freed_bytes);
    figures.allocations += site.allocations.wrapping_sub(key.moved_blocks);
    figures.frees = figures.frees.wrapping_add(frees.wrapping_sub(key.moved_blocks));
    figures.reallocations += site.reallocations;
    figures.failed += site.failed as u64;
    figures.requested_bytes += site.requested_bytes.wrapping_sub(key.moved_requested_bytes);
    figures.usable_bytes += site.usable_bytes.wrapping_sub(key.moved_bytes);
    let told = freed.wrapping_sub(key.lent_bytes).wrapping_sub(key.moved_bytes);
    figures.freed_bytes = figures.freed_bytes.wrapping_add(told);
    figures.live_blocks += site.allocations.wrapping_sub(frees) as i64;
    figures.live_bytes += site.usable_bytes.wrapping_sub(freed) as i64;
    figures.largest_bytes = figures.largest_bytes.max(site.largest_bytes);
}

/// The key of a site, if it has one.
unsafe fn site_key<'a>(site: *const Site) -> Option<&'a Key> {
    // SAFETY: as the caller promises, a committed site; its key stays mapped.
    unsafe { ((*site).key & KEY_BIT != 0).then(|| &*sites::key_at((*site).key)) }
}

/// Whether two lanes' paths are equal, or, `inclusive`, one is inside the other.
fn is_path(mut scope: u32, path: u32, inclusive: bool) -> bool {
    let (deep, wanted) = (scopes::depth(scope), scopes::depth(path));
    if deep < wanted || (deep > wanted && !inclusive) {
        return false;
    }
    let mut path = path;
    // SAFETY: scopes stay mapped, and parents lead to a root.
    unsafe {
        for _ in wanted..deep {
            scope = (*scopes::at(scope)).parent;
        }
        while scope != path && (*scopes::at(scope)).name == (*scopes::at(path)).name {
            (scope, path) = ((*scopes::at(scope)).parent, (*scopes::at(path)).parent);
            if scope == 0 || path == 0 {
                return scope == path;
            }
        }
    }
    scope == path
}

pub fn histograms(p: &Process, out: &mut Histograms) {
    for &lane in lane::all(p) {
        // SAFETY: records of lanes stay mapped.
        let record = unsafe { &*(*lane).record };
        for class in 0..heaptide_format::SIZE_CLASSES {
            out.requested[class] += record.requested_classes[class];
            out.usable[class] += record.usable_classes[class];
            out.freed[class] += record.freed_classes[class];
        }
    }
}

/// Bytes that no live block is longer than.
pub fn longest_block(p: &Process) -> u64 {
    let mut classes = [0u64; heaptide_format::SIZE_CLASSES];
    for &lane in lane::all(p) {
        // SAFETY: records of lanes stay mapped.
        let record = unsafe { &*(*lane).record };
        classes.iter_mut().zip(&record.usable_classes).for_each(|(sum, n)| *sum += n);
    }
    let class = classes.iter().rposition(|&n| n > 0).unwrap_or(0);
    heaptide_format::class_bounds(class).1
}

/// Visits the committed records of a kind, by the file's own extents.
pub fn each_record<T>(p: &Process, kind: Kind, mut visit: impl FnMut(*const T)) {
    let base = p.base.load(Relaxed);
    // SAFETY: the header and all extents below `file_end` are mapped; `length` and `kind` are
    // written before `magic`, records before `committed`.
    unsafe {
        let end = AtomicU64::from_ptr(&raw mut (*p.header()).file_end).load(Acquire);
        let mut at = PAGE;
        while at < end {
            let extent = base.add(at as usize) as *mut ExtentHeader;
            if (*extent).magic != heaptide_format::EXTENT_MAGIC || (*extent).length == 0 {
                at += PAGE;
                continue;
            }
            if (*extent).kind == kind as u16 {
                let committed = AtomicU64::from_ptr(&raw mut (*extent).committed).load(Acquire);
                let first = (extent as *const u8).add(EXTENT_HEADER as usize) as *const T;
                for i in 0..committed as usize / size_of::<T>() {
                    visit(first.add(i));
                }
            }
            at += (*extent).length;
        }
    }
}
