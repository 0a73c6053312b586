//! The stack that a thread had last, and its proof: the stack words that make it the current one.
//!
//! The proof of a frame is what the step into it read: its return address; rbp, where a frame
//! further out needs it and a word of the stack has it; and the word that a deref rule reads. All
//! frames' words lie in one sequence, 4 bytes for where a word is and 8 for what it was, so that
//! proving a stack is reading two arrays and the stack ([`crate::stack`] has the argument).

/// Words that are compared at once.
pub(crate) const AT_ONCE: usize = 8;
/// Words before the first frame's: its return address some times more, so that any number of words
/// can be compared so many at once.
const PADDING: usize = AT_ONCE - 1;

/// Words of a proof for so many frames: a frame has up to three.
pub const fn words_of(frames: usize) -> usize {
    PADDING + 3 * frames
}

/// In [`Frame::flags`]: a rule further out reads the rbp that the frame has.
pub(crate) const NEEDS_BP: u32 = 1;
/// The proof has the word that a deref rule read; with the addend in the upper half.
pub(crate) const DEREF: u32 = 2;
/// The proof has the word that rbp was read from.
pub(crate) const PROVES_BP: u32 = 4;

/// The low bits of a key hold the address.
pub(crate) const ADDRESS: u64 = (1 << 48) - 1;

/// The registers at the entry of the allocation function, as if it had just returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Registers {
    /// Return address.
    pub pc: u64,
    /// Stack pointer after the return.
    pub sp: u64,
    /// rbp.
    pub bp: u64,
}

/// A frame that is kept: its state, and its node.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Frame {
    /// Stack pointer when control returns into the frame.
    pub(crate) sp: u64,
    /// Return address, module index above it.
    pub(crate) key: u64,
    /// rbp when control returns into the frame; true only where `NEEDS_BP`.
    pub(crate) bp: u64,
    pub(crate) node: u32,
    /// The index of its first word in the proof.
    pub(crate) start: u32,
    /// The slot that its rbp was read from, whether or not that is to be proven; 0: it came through
    /// the callee unchanged.
    pub(crate) bp_slot: u32,
    pub(crate) flags: u32,
}

impl Frame {
    /// Whether this is the state of the frame. `pc` may have bits above the address.
    #[inline(always)]
    pub(crate) fn is(&self, sp: u64, pc: u64, bp: u64) -> bool {
        self.sp == sp && (self.key ^ pc) << 16 == 0 && (self.flags & NEEDS_BP == 0 || self.bp == bp)
    }
}

impl Frame {
    /// Whether the state in which a remembered frame was reached is this kept frame's.
    #[inline(always)]
    pub(crate) fn is_met_by(&self, met: &Frame) -> bool {
        let needs = self.flags & NEEDS_BP != 0;
        self.sp == met.sp
            && self.key == met.key
            && (!needs || (met.flags & NEEDS_BP != 0 && met.bp == self.bp))
    }
}

/// What of a kept stack is not in its arrays. Zero is: nothing is kept.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Extent {
    /// Frames that are kept.
    pub depth: usize,
    /// With this many frames or fewer nothing can be reused: of a stack that was cut, they do not
    /// tell how a stack of that depth would be cut.
    pub(crate) least: usize,
    /// Outer frames that are not kept, for the stack is deeper than there is room. A stack of D
    /// frames in room for R is cut by the least multiple of R/2 that makes it fit, so how it is cut
    /// depends on it alone.
    pub(crate) cut: usize,
    /// The address that slots count from, in words of 8 bytes.
    pub(crate) origin: u64,
}

impl Extent {
    /// Nothing is kept: rules or the stack's memory changed.
    pub fn forget(&mut self) {
        *self = Extent::default();
    }
}

/// What slots reach, in words: as far below the outermost frame as above it.
pub(crate) const REACH_WORDS: u64 = 1 << 31;

/// The kept stack of one thread: frames from the outermost to the innermost.
#[derive(Debug)]
pub struct Kept<'a> {
    /// As many as there is room for, and one place more.
    pub frames: &'a mut [Frame],
    /// Where the words of the proof are: [`words_of`] the frames. Those of the innermost frame are
    /// not part of the proof, for the registers have its state.
    pub slots: &'a mut [u32],
    /// What they were.
    pub words: &'a mut [u64],
    /// How much of them is kept.
    pub extent: Extent,
}

/// What a look at the kept stack found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Same {
    /// It is the current stack, whose node this is.
    Node(u32),
    /// The innermost frame is the current one, but one of so many words of the proof has changed.
    Changed(u32),
    /// The innermost frame is another.
    No,
}

impl Kept<'_> {
    /// The common case of [`crate::stack::Stack::capture`] in few instructions: the same caller at
    /// the same place, and nothing below it changed. `word` reads a stack word that was read
    /// before.
    #[inline(always)]
    pub fn same(&self, at: Registers, word: impl Fn(u64) -> u64) -> Same {
        let depth = self.extent.depth;
        match self.frames.get(depth.wrapping_sub(1)) {
            Some(top) if top.is(at.sp, at.pc, at.bp) && depth > self.extent.least => {
                match self.changed(top.start, &word) {
                    None => Same::Node(top.node),
                    Some(count) => Same::Changed(count),
                }
            }
            _ => Same::No,
        }
    }

    /// Whether any of the proof's first `count` words has changed: then how many of them may have,
    /// for the others have not.
    #[inline(always)]
    pub(crate) fn changed(&self, count: u32, word: &impl Fn(u64) -> u64) -> Option<u32> {
        let origin = self.extent.origin;
        let (Some(slots), Some(words)) =
            (self.slots.get(..count as usize), self.words.get(..count as usize))
        else {
            return Some(count);
        };
        // What is left over is padding.
        let (left, mut slots) = slots.as_rchunks::<AT_ONCE>();
        let (_, mut words) = words.as_rchunks::<AT_ONCE>();
        while let ([outer_slots @ .., slot], [outer_words @ .., was]) = (slots, words) {
            if !all_equal(slot, was, origin, word) {
                return Some((left.len() + slots.len() * AT_ONCE) as u32);
            }
            (slots, words) = (outer_slots, outer_words);
        }
        None
    }

    /// The node of the innermost frame that is kept.
    pub fn innermost(&self) -> Option<u32> {
        let last = self.extent.depth.checked_sub(1)?;
        self.frames.get(last).map(|frame| frame.node)
    }

    /// The node of the frame that an address of its stack belongs to; none if it is in none.
    pub fn node_around(&self, address: u64) -> Option<u32> {
        let frames = self.frames.get(..self.extent.depth)?;
        let inner = frames.partition_point(|frame| frame.sp > address);
        frames.get(inner).filter(|frame| frame.key & ADDRESS != 0).map(|frame| frame.node)
    }

    /// The nodes of frames whose return address is in this range.
    pub fn nodes_in(&self, code: core::ops::Range<u64>) -> impl Iterator<Item = u32> {
        let frames = self.frames.get(..self.extent.depth).unwrap_or_default();
        frames
            .iter()
            .filter(move |frame| code.contains(&(frame.key & ADDRESS)))
            .map(|frame| frame.node)
    }

    /// The index of the last of the proof's first `count` words that has changed; 0 if none has.
    pub(crate) fn last_changed(&self, count: u32, word: &impl Fn(u64) -> u64) -> usize {
        let is_changed = |index: &usize| match (self.slots.get(*index), self.words.get(*index)) {
            (Some(&slot), Some(&was)) => word(address(self.extent.origin, slot)) != was,
            _ => false,
        };
        (0..count as usize).rev().find(is_changed).unwrap_or(0)
    }

    /// The index of the frame, among the first `count`, whose proof has this word.
    pub(crate) fn frame_of(&self, index: usize, count: usize) -> usize {
        let frames = self.frames.get(..count).unwrap_or_default();
        frames.partition_point(|frame| frame.start as usize <= index).saturating_sub(1)
    }

    /// The address of a slot, which is 0 for no slot.
    pub(crate) fn address(&self, slot: u32) -> u64 {
        if slot == 0 { 0 } else { address(self.extent.origin, slot) }
    }

    /// Begins the proof of a stack with this outermost frame, whose return address is `word`, at
    /// `ra`; returns where its words go.
    pub(crate) fn begin(&mut self, sp: u64, ra: u64, word: u64) -> usize {
        self.extent.origin = sp.wrapping_sub(REACH_WORDS * 8);
        self.pad(ra, word)
    }

    /// Writes the words before the first frame's.
    pub(crate) fn pad(&mut self, ra: u64, word: u64) -> usize {
        let slot = slot_of(self.extent.origin, ra);
        for (to, was) in self.slots.iter_mut().zip(self.words.iter_mut()).take(PADDING) {
            (*to, *was) = (slot, word);
        }
        PADDING
    }
}

/// Whether these words are what they were.
#[inline(always)]
pub(crate) fn all_equal(
    slots: &[u32; AT_ONCE],
    was: &[u64; AT_ONCE],
    origin: u64,
    word: &impl Fn(u64) -> u64,
) -> bool {
    let difference = |i: usize| word(address(origin, slots[i])) ^ was[i];
    let few = difference(0) | difference(1) | difference(2) | difference(3);
    few | difference(4) | difference(5) | difference(6) | difference(7) == 0
}

#[inline(always)]
fn address(origin: u64, slot: u32) -> u64 {
    origin.wrapping_add(slot as u64 * 8)
}

/// The slot of a word, which is in reach.
#[inline(always)]
pub(crate) fn slot_of(origin: u64, address: u64) -> u32 {
    (address.wrapping_sub(origin) / 8) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;
    use std::{boxed::Box, vec};

    const TOP: u64 = 0x7fff_0000_0000;

    /// A kept stack of so many frames, each 32 bytes, and the words of the stack below `TOP`.
    fn stack(frames: usize) -> (Kept<'static>, Vec<u64>) {
        let words = words_of(frames);
        let mut kept = Kept {
            frames: Box::leak(vec![Frame::default(); frames].into()),
            slots: Box::leak(vec![0; words].into()),
            words: Box::leak(vec![0; words].into()),
            extent: Extent::default(),
        };
        let address = |frame: usize| TOP - 8 - 32 * frame as u64;
        let start = kept.begin(TOP, TOP - 8, 1000);
        for frame in 0..frames {
            let index = start + frame;
            kept.slots[index] = slot_of(kept.extent.origin, address(frame));
            kept.words[index] = 1000 + frame as u64;
            kept.frames[frame].start = index as u32;
        }
        kept.extent.depth = frames;
        (kept, (0..frames as u64).map(|frame| 1000 + frame).collect())
    }

    fn read(memory: &[u64]) -> impl Fn(u64) -> u64 {
        |address| memory[(TOP - 8 - address) as usize / 32]
    }

    #[test]
    fn the_innermost_changed_word_is_found_whatever_the_number_of_words() {
        for frames in 1..40 {
            let (kept, mut memory) = stack(frames);
            let count = kept.frames[frames - 1].start;
            assert_eq!(kept.changed(count, &read(&memory)), None, "{frames} frames");
            // The innermost frame's own word is not looked at.
            memory[frames - 1] = 0;
            assert_eq!(kept.changed(count, &read(&memory)), None, "{frames} frames");
            for changed in 0..frames - 1 {
                memory[changed] = 0;
                let read = read(&memory);
                let at_most = kept.changed(count, &read).expect("a change");
                assert!(at_most <= count && at_most as usize > changed);
                let index = kept.last_changed(at_most, &read);
                assert_eq!(kept.frame_of(index, frames), changed, "{frames} frames");
            }
        }
    }

    #[test]
    fn slots_reach_both_ways_from_the_outermost_frame() {
        let (kept, _) = stack(1);
        for address in [TOP, TOP - 8, TOP - REACH_WORDS * 8 + 8, TOP + REACH_WORDS * 8 - 8] {
            assert_eq!(kept.address(slot_of(kept.extent.origin, address)), address);
        }
        assert_eq!(kept.address(0), 0, "no slot");
    }

    #[test]
    fn the_same_stack_has_the_same_registers_and_words() {
        let (mut kept, mut memory) = stack(12);
        let top = Frame { sp: 77, key: 5 << 48 | 0x40, bp: 9, node: 4, ..kept.frames[11] };
        kept.frames[11] = top;
        let at = Registers { pc: 0x40, sp: 77, bp: 1 };
        assert_eq!(kept.same(at, read(&memory)), Same::Node(4));
        for other in [Registers { pc: 0x41, ..at }, Registers { sp: 78, ..at }] {
            assert_eq!(kept.same(other, read(&memory)), Same::No);
        }
        kept.frames[11].flags = NEEDS_BP;
        assert_eq!(kept.same(at, read(&memory)), Same::No);
        assert_eq!(kept.same(Registers { bp: 9, ..at }, read(&memory)), Same::Node(4));
        memory[3] = 0;
        kept.frames[11].flags = 0;
        assert!(matches!(kept.same(at, read(&memory)), Same::Changed(_)));
        kept.extent.forget();
        assert_eq!(kept.same(at, read(&memory)), Same::No);
    }
}
