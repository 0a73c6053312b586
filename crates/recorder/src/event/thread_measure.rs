//! Measurements: the events of one thread between two points of its program. They nest.
//!
//! They are kept in a stack of the thread; the program only holds its depth. So a measurement that
//! was left by a jump or an exception is closed by the next outer one.

use crate::event::lane::{FLAG_MEASURED, LaneState};
use crate::event::stats::Figures;
use crate::sys::memory::{self, InChild};
use crate::sys::tls::tls;

/// Size of a thread's stack of measurements.
const STACK_BYTES: usize = 64 << 10;
/// Maximum depth; deeper measurements measure nothing.
const DEPTH_MAX: usize = (STACK_BYTES - 64) / size_of::<Measure>();

/// A running measurement, without the sums of those inside it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Measure {
    figures: Figures,
    /// Distinguishes it from others at the same depth.
    number: u64,
}

/// A thread's stack of measurements.
#[repr(C)]
pub struct Measures {
    depth: usize,
    begun: u64,
    stack: [Measure; DEPTH_MAX],
}

/// The program's handle of a measurement.
#[repr(C)]
pub struct Measurement {
    depth: u64,
    number: u64,
    reserved: [u64; 14],
}

pub fn begin(lane: &mut LaneState, out: &mut Measurement) {
    (out.depth, out.number) = (0, 0);
    let Some(measures) = own() else {
        return;
    };
    if measures.depth == DEPTH_MAX {
        return;
    }
    measures.begun += 1;
    let number = measures.begun;
    measures.stack[measures.depth] = Measure { figures: Figures::default(), number };
    measures.depth += 1;
    (out.depth, out.number) = (measures.depth as u64, number);
    lane.flag(FLAG_MEASURED, true);
}

/// Ends a measurement and the unfinished ones inside it. Returns none if it is not running.
pub fn end(lane: &mut LaneState, which: &mut Measurement) -> Option<Figures> {
    let measures = own()?;
    let depth = which.depth as usize;
    let is_open =
        (1..=measures.depth).contains(&depth) && measures.stack[depth - 1].number == which.number;
    if !is_open {
        return None;
    }
    let mut figures = Figures::default();
    while measures.depth >= depth {
        measures.depth -= 1;
        figures = measures.stack[measures.depth].figures;
        if measures.depth > 0 {
            add(&mut measures.stack[measures.depth - 1].figures, &figures);
        }
    }
    if measures.depth == 0 {
        lane.flag(FLAG_MEASURED, false);
    }
    Some(figures)
}

/// Adds an inner measurement. Its peak is relative to its start, when the outer one had its current
/// net.
fn add(outer: &mut Figures, inner: &Figures) {
    let rise = outer.live_bytes + inner.peak_bytes as i64;
    outer.peak_bytes = outer.peak_bytes.max(rise.max(0) as u64);
    outer.allocations += inner.allocations;
    outer.frees += inner.frees;
    outer.reallocations += inner.reallocations;
    outer.failed += inner.failed;
    outer.requested_bytes += inner.requested_bytes;
    outer.usable_bytes += inner.usable_bytes;
    outer.freed_bytes += inner.freed_bytes;
    outer.live_blocks += inner.live_blocks;
    outer.live_bytes += inner.live_bytes;
    outer.largest_bytes = outer.largest_bytes.max(inner.largest_bytes);
}

/// Returns the innermost measurement, if one is running.
fn innermost() -> Option<&'static mut Figures> {
    // SAFETY: the thread's own stack; one reference at a time.
    let measures = unsafe { (tls().measures.get() as *mut Measures).as_mut()? };
    let top = measures.depth.checked_sub(1)?;
    Some(&mut measures.stack[top].figures)
}

pub fn add_alloc(requested: u64, usable: u64) {
    if let Some(f) = innermost() {
        f.allocations += 1;
        f.requested_bytes += requested;
        f.usable_bytes += usable;
        f.live_blocks += 1;
        f.live_bytes += usable as i64;
        f.peak_bytes = f.peak_bytes.max(f.live_bytes.max(0) as u64);
        f.largest_bytes = f.largest_bytes.max(requested);
    }
}

pub fn add_free(usable: u64) {
    if let Some(f) = innermost() {
        f.frees += 1;
        f.freed_bytes += usable;
        f.live_blocks -= 1;
        f.live_bytes -= usable as i64;
    }
}

/// Counts a reallocation. In place it is one event, so the state in between makes no peak.
pub fn add_realloc(in_place: bool, before: u64, requested: u64, usable: u64) {
    if in_place {
        add_free(before);
    }
    add_alloc(requested, usable);
    if !in_place && before > 0 {
        add_free(before);
    }
    if let Some(f) = innermost() {
        f.reallocations += 1;
    }
}

pub fn add_failure() {
    if let Some(f) = innermost() {
        f.failed += 1;
    }
}

/// Returns whether a new lane of this thread has to measure.
pub fn is_measuring() -> bool {
    innermost().is_some()
}

fn own() -> Option<&'static mut Measures> {
    let measures = &tls().measures;
    if measures.get().is_null() {
        measures.set(memory::take_apart(size_of::<Measures>(), InChild::Copy));
    }
    // SAFETY: the thread's own memory; all zeros is a valid, empty stack. One reference at a time.
    unsafe { (measures.get() as *mut Measures).as_mut() }
}

/// Releases the measurements of a thread that exits.
pub fn give_back() {
    let measures = tls().measures.replace(core::ptr::null_mut());
    if !measures.is_null() {
        // SAFETY: the thread's own stack, which is no longer used.
        unsafe { memory::release(measures, size_of::<Measures>(), InChild::Copy) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_inside_is_part_of_what_is_around() {
        let outer = Figures { live_bytes: 100, peak_bytes: 120, ..Figures::default() };
        let inner = Figures {
            allocations: 3,
            frees: 1,
            live_bytes: 20,
            peak_bytes: 50,
            largest_bytes: 40,
            ..Figures::default()
        };
        let mut sum = outer;
        add(&mut sum, &inner);
        assert_eq!((sum.allocations, sum.frees, sum.live_bytes), (3, 1, 120));
        assert_eq!((sum.peak_bytes, sum.largest_bytes), (150, 40));
        let mut freed = Figures { live_bytes: -100, ..Figures::default() };
        add(&mut freed, &inner);
        assert_eq!((freed.peak_bytes, freed.live_bytes), (0, -80), "below what was live at first");
    }
}
