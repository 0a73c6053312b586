//! Finds processes whose memory hardly passed through the recorder, although no events were lost:
//! they use an allocator that it does not know.

use super::memory::Memory;
use crate::model::{End, Process};

/// Minimum of other resident memory for a warning, in bytes.
const RESIDENT_LEAST_BYTES: u64 = 16 << 20;
/// The heap is too small if it is less than this fraction of that memory.
const HEAP_PART: u64 = 20;

/// Minimum of anonymous memory for a warning if nothing was allocated, in bytes. Each program has a
/// few pages of the loader; programs such as `true` have no more.
const ANONYMOUS_LEAST_BYTES: u64 = 64 << 10;

/// The memory of such a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uncovered {
    /// Peak usage of the heap, as recorded.
    pub heap_bytes: u64,
    /// Highest resident memory that is neither heap nor belongs to a file, a stack, the recorder,
    /// or, if something was allocated, recorded mappings; 0 if unknown.
    pub other_bytes: u64,
    /// Whether nothing was allocated, and these are recorded mappings: the program can have mapped
    /// them itself, as well as an unknown allocator.
    pub is_mapped: bool,
}

/// Returns how much memory a process used without allocating it through the recorder.
///
/// `None` if that is little or expected: a forked child with its parent's memory, a part of a run,
/// a process that began before its recording, a program that called exec.
pub fn uncovered(process: &Process) -> Option<Uncovered> {
    let is_whole = process.completeness.part.is_none() && process.completeness.unrecorded.is_none();
    let is_whole = is_whole && !process.completeness.starts_in_middle;
    if process.identity.forked || !is_whole || process.lifetime.end == End::Exec {
        return None;
    }
    let heap_bytes = process.totals.peak_bytes;
    let other = Memory::over_time(process).map(|memory| memory.unrecorded_bytes);
    let unrecorded_bytes = other.max().unwrap_or(0);
    let other_bytes = unrecorded_bytes;
    let is_little = heap_bytes < other_bytes / HEAP_PART && other_bytes >= RESIDENT_LEAST_BYTES;
    if process.totals.allocations > 0 || process.totals.failed > 0 {
        return is_little.then_some(Uncovered { heap_bytes, other_bytes, is_mapped: false });
    }
    if process.completeness.uncounted_events() > 0 {
        return None; // it was seen, and not stored
    }
    // All anonymous memory, since an unknown allocator can use recorded mappings.
    let anonymous = Memory::over_time(process).map(|memory| anonymous_bytes(&memory)).max();
    let is_known_little = anonymous.is_some_and(|bytes| bytes < ANONYMOUS_LEAST_BYTES);
    let other_bytes = anonymous.unwrap_or(0);
    let is_mapped = other_bytes > 0 && unrecorded_bytes < ANONYMOUS_LEAST_BYTES;
    (is_little || !is_known_little).then_some(Uncovered { heap_bytes, other_bytes, is_mapped })
}

/// Returns the resident bytes of private mappings without a file.
fn anonymous_bytes(memory: &Memory) -> u64 {
    const OTHERS: [&str; 2] = ["files", "shared memory"];
    let parts = memory.row("mappings").into_iter().flat_map(|row| &row.children);
    let anonymous = parts.filter(|part| !OTHERS.contains(&part.name.as_str()));
    anonymous.fold(0, |sum, part| sum.saturating_add(part.resident_bytes))
}
