//! Marks on the timeline, snapshots and resets.
//!
//! A snapshot is a copy of the profile beside it, which every tool reads like a profile. A reset is
//! a copy, too: numbers are counted from it, and the peak begins anew. No counter is set to zero,
//! so nothing is lost and live bytes stay right.

use crate::event::lane::LaneState;
use crate::event::process::process;
use crate::event::{stats, trace};
use crate::store::budgets::{self, MARKS_MAX};
use crate::store::profile::{self, Cursor};
use crate::store::shared::{Store, store};
use crate::sys::kernel::{self, Errno, Fd, Path};
use crate::sys::locked::{Guarded, Locked};
use crate::sys::options::PATH_MAX;
use crate::sys::text::Text;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, own_stack};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{
    BASELINE_SUFFIX, EXTENT_MAGIC, ExtentHeader, HELD_SUFFIX, Kind, Loss, Mark, MarkKind, PAGE,
    PROFILE_SUFFIX, Request, SNAPSHOT_SUFFIX, Sums,
};
use heaptide_trace::Record;

/// Maximum number of snapshots of an image.
const SNAPSHOTS_MAX: u32 = budgets::SNAPSHOTS_MAX as u32;
/// Maximum number of snapshots at an interval that the process itself keeps while it removes older
/// ones.
const KEPT_MAX: usize = 256;
/// Maximum size of a profile that is copied when the Python interpreter begins to end.
const HELD_BYTES_MAX: u64 = 128 << 20;
/// Bytes that are written at once.
const PIECE: u64 = 8 << 20;

/// The state of marks and snapshots that threads share.
struct Moments {
    marks: Locked<Cursor>,
    /// Number of marks, without those of snapshots and resets.
    count: AtomicU32,
    /// The number of the last mark of the program.
    numbered: AtomicU32,
    /// Number of the last snapshot of this image; the next number is searched from there.
    snapshots: AtomicU32,
    /// Nanoseconds between automatic snapshots, 0 for none, and the time of the next.
    every_ns: AtomicU64,
    next_ns: AtomicU64,
    /// Number of automatic snapshots that are kept, 0 for all, and their numbers in a ring. Used
    /// under the lock of marks.
    keep: AtomicU32,
    kept: Guarded<Kept>,
    /// The process's sums at the last reset.
    sums_at_reset: Guarded<Sums>,
}

/// A ring of the numbers of automatic snapshots that are kept.
struct Kept {
    turns: usize,
    numbers: [u32; KEPT_MAX],
}

impl Kept {
    /// Notes a snapshot where `keep` are kept. Returns the number of the one to be removed, if any.
    fn replace(&mut self, keep: usize, number: u32) -> Option<u32> {
        let place = &mut self.numbers[self.turns % keep.clamp(1, KEPT_MAX)];
        self.turns += 1;
        Some(core::mem::replace(place, number)).filter(|&old| old != 0)
    }
}

// SAFETY: all zeros is a valid value: no marks yet.
#[unsafe(link_section = ".bss.wiped")]
static MOMENTS: Wiped<Moments> = unsafe { Wiped::new() };

fn moments() -> &'static Moments {
    MOMENTS.get()
}

/// Makes forked children start without marks.
pub fn wipe_in_children() {
    MOMENTS.wipe_in_children();
}

/// Enables automatic snapshots every `ns` nanoseconds, of which the newest `keep` are kept, or all
/// if that is 0.
pub fn snapshot_every(ns: u64, keep: u32) {
    moments().every_ns.store(ns, Relaxed);
    moments().keep.store(keep.min(KEPT_MAX as u32), Relaxed);
}

/// Returns the process's sums at the last reset.
pub fn sums_at_reset() -> Sums {
    // SAFETY: written under the lock of marks; a torn read mixes in a reset that was just made.
    unsafe { *moments().sums_at_reset.0.get() }
}

/// Whether the caller may wait for a lock: a signal handler may have interrupted its holder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Waits,
    NeverWaits,
}

/// Puts a mark on the timeline. `lane` is `u32::MAX` if the mark belongs to no lane.
pub fn mark(name: &[u8], kind: MarkKind, lane: u32, number: u32) {
    let p = store();
    mark_at(p, p.now(), name, kind, lane, number);
}

/// Puts a mark of the program on the timeline, and into the trace of its thread.
pub fn mark_here(name: &[u8], lane: u32) {
    let p = store();
    let number = mark_at(p, p.now(), name, MarkKind::Mark, lane, 0);
    if number != 0 {
        trace::write_for(lane, &Record::Mark { number });
    }
}

/// Puts a mark at an earlier time on the timeline. Returns its number, 0 if it was not stored.
pub fn mark_at(
    p: &Store,
    time_ns: u64,
    name: &[u8],
    kind: MarkKind,
    lane: u32,
    number: u32,
) -> u32 {
    match moments().marks.acquire() {
        Some(mut marks) => write_mark(p, &mut marks, time_ns, name, kind, lane, number),
        None => {
            p.lost(Loss::NoSample);
            0
        }
    }
}

fn write_mark(
    p: &Store,
    marks: &mut Cursor,
    time_ns: u64,
    name: &[u8],
    kind: MarkKind,
    lane: u32,
    number: u32,
) -> u32 {
    let has_budget = matches!(kind, MarkKind::Snapshot | MarkKind::Reset);
    if !has_budget && moments().count.fetch_add(1, Relaxed) as usize >= MARKS_MAX {
        moments().count.fetch_sub(1, Relaxed);
        p.lost(Loss::NoSample);
        return 0;
    }
    // Under the lock of marks, so numbers have no gaps.
    let number = match kind {
        MarkKind::Mark => moments().numbered.fetch_add(1, Relaxed) + 1,
        _ => number,
    };
    let name = if name.is_empty() { 0 } else { profile::string(name).number() };
    let live = stats::sums(process());
    let live_bytes = (live.usable_bytes.wrapping_sub(live.freed_bytes) as i64).max(0) as u64;
    let mark = Mark { time_ns, name, kind: kind as u32, lane, number, live_bytes };
    if marks.write(Kind::Marks, 0, mark).is_none() {
        p.lost(Loss::NoSample);
        if kind == MarkKind::Mark {
            moments().numbered.fetch_sub(1, Relaxed);
        }
        return 0;
    }
    p.note_time(time_ns);
    number
}

/// Notes a snapshot that a command took: adds its mark, and reserves its number.
pub fn note_snapshot(time_ns: u64, name: &[u8], number: u32) {
    moments().snapshots.fetch_max(number.min(SNAPSHOTS_MAX), Relaxed);
    mark_at(store(), time_ns, name, MarkKind::Snapshot, u32::MAX, number);
}

/// Takes a snapshot. Returns its number, or 0.
pub fn snapshot(name: &[u8], lane: u32, patience: Patience) -> u32 {
    take(name, lane, patience, Request::Snapshot)
}

fn take(name: &[u8], lane: u32, patience: Patience, why: Request) -> u32 {
    let p = store();
    let held = match patience {
        Patience::Waits => moments().marks.acquire(),
        Patience::NeverWaits => moments().marks.try_acquire(),
    };
    let Some(mut marks) = held.filter(|_| confined::may_call()) else {
        p.lost(Loss::NoSnapshot);
        return 0;
    };
    p.note_time(p.now());
    let number = own_stack::call(|| copy_to_next(p, why)).flatten().unwrap_or(0);
    if number == 0 {
        p.lost(Loss::NoSnapshot);
    } else if patience == Patience::Waits {
        write_mark(p, &mut marks, p.now(), name, MarkKind::Snapshot, lane, number);
    } else {
        // The interrupted thread may hold the lock of strings: no name.
        write_mark(p, &mut marks, p.now(), b"", MarkKind::Snapshot, lane, number);
    }
    number
}

fn copy_to_next(p: &Store, why: Request) -> Option<u32> {
    let mut path = stem(p)?;
    let length = path.bytes().len();
    for number in moments().snapshots.load(Relaxed) + 1..SNAPSHOTS_MAX {
        push_number(&mut path, length, number);
        // A requested snapshot has its name and time in a mark.
        let note = (why == Request::AutomaticSnapshot).then(|| Note::of(why, number, p.now()));
        match copy(p, path.path()?, note) {
            Err(kernel::EEXIST) => {}
            Err(_) => return None,
            Ok(()) => {
                moments().snapshots.store(number, Relaxed);
                if why == Request::AutomaticSnapshot {
                    remove_oldest(p, &mut path, length, number);
                }
                return Some(number);
            }
        }
    }
    None
}

/// Builds the path of a snapshot: the profile's path without its suffix, which is `length` bytes
/// long, and the number.
fn push_number(path: &mut Text<PATH_MAX>, length: usize, number: u32) {
    path.truncate(length);
    path.push(b".");
    path.push_number(number as u64);
    path.push(SNAPSHOT_SUFFIX.as_bytes());
}

/// Removes the oldest automatic snapshot if there is now one more than are kept.
fn remove_oldest(p: &Store, path: &mut Text<PATH_MAX>, length: usize, newest: u32) {
    let keep = moments().keep.load(Relaxed) as usize;
    // SAFETY: under the lock of marks.
    let kept = unsafe { &mut *moments().kept.0.get() };
    let oldest = if keep == 0 { None } else { kept.replace(keep, newest) };
    if let Some(oldest) = oldest {
        push_number(path, length, oldest);
        p.header().snapshots_removed.fetch_add(1, Relaxed);
        path.path().into_iter().for_each(kernel::unlink);
    }
}

/// The note in the header of a snapshot: the fields of a request.
#[repr(C)]
struct Note {
    kind: u32,
    length: u32,
    time_ns: u64,
    value: u64,
}

impl Note {
    fn of(why: Request, number: u32, time_ns: u64) -> Note {
        Note { kind: why as u32, length: 0, time_ns, value: number as u64 }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers without padding.
        unsafe { core::slice::from_raw_parts((self as *const Note).cast(), size_of::<Note>()) }
    }
}

const _: () = assert!(
    offset_of!(FileHeader, request_length) == offset_of!(FileHeader, request_kind) + 4
        && offset_of!(FileHeader, request_time_ns) == offset_of!(FileHeader, request_kind) + 8
        && offset_of!(FileHeader, request_value) == offset_of!(FileHeader, request_kind) + 16
);

/// Returns the profile's path without its suffix.
fn stem(p: &Store) -> Option<Text<PATH_MAX>> {
    let path = p.path.load(Relaxed);
    if path.is_null() {
        return None;
    }
    // SAFETY: PATH_MAX zero-terminated bytes, never released.
    let path = unsafe { core::slice::from_raw_parts(path, PATH_MAX) };
    let path = path.split(|&b| b == 0).next()?;
    let mut stem = Text::new();
    stem.push(path.strip_suffix(PROFILE_SUFFIX.as_bytes())?);
    Some(stem)
}

/// Writes a copy of the profile, with a note in its header. Removes the copy if it cannot be
/// completed.
fn copy(p: &Store, path: Path<'_>, note: Option<Note>) -> Result<(), Errno> {
    let base = p.base.load(Relaxed);
    let end = p.header().file_end.load(Acquire);
    if end > kernel::limit(kernel::RLIMIT_FSIZE) {
        return Err(kernel::EFBIG);
    }
    let fd = kernel::create(path)?;
    let done = write_extents(fd, base, end).and_then(|()| match note {
        Some(note) => {
            let at = offset_of!(FileHeader, request_kind) as u64;
            kernel::write_at(fd, note.bytes(), at).map(|_| ())
        }
        None => Ok(()),
    });
    kernel::close(fd);
    if done.is_err() {
        kernel::unlink(path);
    }
    done
}

/// Writes all extents except events, which do not belong to a point in time: their extents are
/// holes.
fn write_extents(fd: Fd, base: *const u8, end: u64) -> Result<(), Errno> {
    let (mut at, mut whole) = (PAGE, 0);
    while at < end {
        // SAFETY: below `file_end`, at the start of a page; all zeros is a valid header, too.
        let extent = unsafe { *(base.wrapping_add(at as usize) as *const ExtentHeader) };
        if extent.magic != EXTENT_MAGIC {
            at += PAGE;
            continue;
        }
        let next = (at + extent.length.max(PAGE)).min(end);
        if extent.kind == Kind::Events as u16 {
            write_all(fd, base, whole..at)?;
            let empty = ExtentHeader { committed: 0, ..extent };
            // SAFETY: a header is plain bytes.
            let head = unsafe {
                let head = &raw const empty as *const u8;
                core::slice::from_raw_parts(head, size_of::<ExtentHeader>())
            };
            kernel::write_at(fd, head, at)?;
            kernel::write_at(fd, &[0], next - 1)?;
            whole = next;
        }
        at = next;
    }
    write_all(fd, base, whole..end)
}

fn write_all(fd: Fd, base: *const u8, bytes: Range<u64>) -> Result<(), Errno> {
    let (mut at, end) = (bytes.start, bytes.end);
    while at < end {
        let length = (end - at).min(PIECE) as usize;
        // SAFETY: below `file_end`.
        let piece = unsafe { core::slice::from_raw_parts(base.wrapping_add(at as usize), length) };
        match kernel::write_at(fd, piece, at)? {
            0 => return Err(kernel::EFBIG),
            n => at += n as u64,
        }
    }
    Ok(())
}

/// Makes numbers count from now. Returns false if the copy that this needs could not be written.
pub fn reset(lane: &mut LaneState) -> bool {
    let p = store();
    lane.publish_live();
    let live = lane.live.seen(lane.allocated()).max(0) as u64;
    let Some(mut marks) = moments().marks.acquire() else {
        return false;
    };
    let write = || write_over(BASELINE_SUFFIX, None);
    let done = confined::may_call() && own_stack::call(write).flatten().is_some();
    if !done {
        p.lost(Loss::NoSnapshot);
        return false;
    }
    let now = p.now();
    let header = lane.header;
    // SAFETY: under the lock of marks.
    unsafe { *moments().sums_at_reset.0.get() = stats::sums(process()) };
    let resets = header.resets.get() + 1;
    header.resets.set(resets);
    header.reset_time_ns.set(now);
    let earlier = header.earlier_peak_bytes.get().max(header.peak_bytes.get());
    header.earlier_peak_bytes.set(earlier);
    header.peak_time_ns.set(now);
    header.peak_bytes.store(live, Release);
    header.epoch.fetch_add(1, AcqRel);
    write_mark(p, &mut marks, now, b"", MarkKind::Reset, lane.index(), resets);
    lane.renew_bounds();
    true
}

/// Copies the profile because the Python interpreter begins to end, which then frees what the
/// program held. Does nothing if another thread takes a snapshot, or if the profile is large. A
/// copy that could not be written is not counted: it was not requested.
pub fn keep_held() {
    let p = store();
    let held = moments().marks.try_acquire().filter(|_| confined::may_call());
    if held.is_some() && p.header().file_end.load(Acquire) <= HELD_BYTES_MAX {
        let note = Note::of(Request::Snapshot, 0, p.now());
        own_stack::call(|| write_over(HELD_SUFFIX, Some(note)));
    }
}

/// Replaces the last copy with this suffix by a new one in one step.
fn write_over(suffix: &str, note: Option<Note>) -> Option<()> {
    let mut path = stem(store())?;
    path.push(suffix.as_bytes());
    let mut new = Text::<PATH_MAX>::new();
    new.push(path.bytes());
    new.push(b".new");
    kernel::unlink(new.path()?);
    copy(store(), new.path()?, note).ok()?;
    kernel::rename(new.path()?, path.path()?).ok()
}

/// Takes a snapshot if one is due.
pub fn snapshot_if_due(now: u64, lane: u32) {
    let every = moments().every_ns.load(Relaxed);
    if every == 0 {
        return;
    }
    let next = moments().next_ns.load(Relaxed);
    let due = next.max(every);
    if now < due {
        return;
    }
    let mine = moments().next_ns.compare_exchange(next, now + every, AcqRel, Relaxed);
    if mine.is_ok() {
        take(b"", lane, Patience::Waits, Request::AutomaticSnapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_number_goes_when_there_are_too_many() {
        let mut kept = Kept { turns: 0, numbers: [0; KEPT_MAX] };
        let gone = [1, 2, 4, 5, 9].map(|number| kept.replace(3, number));
        assert_eq!(gone, [None, None, None, Some(1), Some(2)]);
        assert_eq!(kept.replace(3, 10), Some(4));
    }
}
