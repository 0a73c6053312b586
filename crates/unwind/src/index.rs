//! A search table for unwind sections that the loader does not map or that have none of their own:
//! `.debug_frame`, and `.eh_frame` of files that were linked without `.eh_frame_hdr`.
//!
//! All addresses are those of the file, as the linker assigned them.

use crate::arch;
use crate::step::Step;
use crate::table::{Bytes, step_of};
use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, DebugFrameOffset, EhFrame, EhFrameOffset, EndianSlice,
    NativeEndian, UnwindSection,
};

/// The sections of a file; empty if it has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSections<'a> {
    /// `.eh_frame`.
    pub eh_frame: &'a [u8],
    /// Its address.
    pub eh_frame_address: u64,
    /// `.debug_frame`.
    pub debug_frame: &'a [u8],
}

/// The start of a function, and where its entry is. All zeros is a valid value.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(C)]
pub struct Entry {
    start: u64,
    /// The offset in its section, with [`DEBUG`] in `.debug_frame`.
    at: u64,
}

/// Marks offsets in `.debug_frame`.
const DEBUG: u64 = 1 << 63;

/// Returns how many entries [`fill`] writes at most.
pub fn count(sections: &FileSections<'_>) -> usize {
    let mut all = 0;
    each_function(sections, |_| all += 1);
    all
}

/// Writes the sorted table to the start of `entries`. Returns how many entries it has; functions
/// for which there is no room are missing.
pub fn fill(sections: &FileSections<'_>, entries: &mut [Entry]) -> usize {
    let mut used = 0;
    each_function(sections, |entry| {
        if let Some(place) = entries.get_mut(used) {
            *place = entry;
            used += 1;
        }
    });
    sort(&mut entries[..used]);
    used
}

/// Returns the step to the caller of a frame at `pc`, as [`crate::table::step_at`] does, with the
/// table that [`fill`] wrote.
pub fn step_at(sections: &FileSections<'_>, entries: &[Entry], pc: u64) -> Option<Step> {
    let after = entries.partition_point(|entry| entry.start <= pc);
    let entry = entries.get(after.checked_sub(1)?)?;
    let bases = sections.bases();
    let at = (entry.at & !DEBUG) as usize;
    if entry.at & DEBUG == 0 {
        let frames = sections.eh_frame();
        let from = EhFrame::cie_from_offset;
        let fde = frames.fde_from_offset(&bases, EhFrameOffset(at), from).ok()?;
        step_of(&frames, &bases, &fde, pc)
    } else {
        let frames = sections.debug_frame();
        let from = DebugFrame::cie_from_offset;
        let fde = frames.fde_from_offset(&bases, DebugFrameOffset(at), from).ok()?;
        step_of(&frames, &bases, &fde, pc)
    }
}

impl<'a> FileSections<'a> {
    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.eh_frame_address)
    }

    fn eh_frame(&self) -> EhFrame<Bytes<'a>> {
        let mut frames = EhFrame::from(EndianSlice::new(self.eh_frame, NativeEndian));
        frames.set_vendor(arch::VENDOR);
        frames
    }

    fn debug_frame(&self) -> DebugFrame<Bytes<'a>> {
        let mut frames = DebugFrame::from(EndianSlice::new(self.debug_frame, NativeEndian));
        frames.set_address_size(8);
        frames.set_vendor(arch::VENDOR);
        frames
    }
}

/// Calls `visit` with each function. Linkers leave entries of functions that they removed, at
/// address 0.
fn each_function(sections: &FileSections<'_>, mut visit: impl FnMut(Entry)) {
    let bases = sections.bases();
    let mut add = |start, at| {
        if start != 0 {
            visit(Entry { start, at });
        }
    };
    if !sections.eh_frame.is_empty() {
        let mut frames = sections.eh_frame().entries(&bases);
        while let Ok(Some(entry)) = frames.next() {
            if let CieOrFde::Fde(entry) = entry
                && let Ok(fde) = entry.parse(EhFrame::cie_from_offset)
            {
                add(fde.initial_address(), fde.offset() as u64);
            }
        }
    }
    if !sections.debug_frame.is_empty() {
        let mut frames = sections.debug_frame().entries(&bases);
        while let Ok(Some(entry)) = frames.next() {
            if let CieOrFde::Fde(entry) = entry
                && let Ok(fde) = entry.parse(DebugFrame::cie_from_offset)
            {
                add(fde.initial_address(), fde.offset() as u64 | DEBUG);
            }
        }
    }
}

/// Sorts in place, with a constant amount of stack: the sort of `core` has recursion and buffers.
fn sort(entries: &mut [Entry]) {
    for root in (0..entries.len() / 2).rev() {
        sift(entries, root);
    }
    for end in (1..entries.len()).rev() {
        entries.swap(0, end);
        sift(&mut entries[..end], 0);
    }
}

/// Moves an entry down to where both children are smaller.
fn sift(entries: &mut [Entry], mut root: usize) {
    loop {
        let mut child = 2 * root + 1;
        if child >= entries.len() {
            return;
        }
        if child + 1 < entries.len() && entries[child] < entries[child + 1] {
            child += 1;
        }
        if entries[root] >= entries[child] {
            return;
        }
        entries.swap(root, child);
        root = child;
    }
}
