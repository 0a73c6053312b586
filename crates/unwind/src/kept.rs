//! The stack that a thread had last, and its proof: the stack words that make it the current one.
//!
//! The proof of a frame consists of the words that the step into it read: its return address; rbp,
//! if a frame further out needs it and it is stored on the stack; and the word that a deref rule
//! reads. The words of all frames form one sequence, with 4 bytes for the location of a word and 8
//! for its value, so that proving a stack means comparing two arrays with the stack
//! ([`crate::stack`] contains the argument).

/// The number of words compared at once.
pub(crate) const AT_ONCE: usize = 8;
/// Words before those of the first frame: copies of its return address, so that any number of words
/// can be compared in full groups.
const PADDING: usize = AT_ONCE - 1;

/// Returns the length of a proof for this many frames: a frame has up to three words.
pub const fn words_of(frames: usize) -> usize {
    PADDING + 3 * frames
}

/// In [`Frame::flags`]: a rule further out reads this frame's rbp.
pub(crate) const NEEDS_BP: u32 = 1;
/// The proof includes the word that a deref rule read. The upper half of the flags holds its
/// addend.
pub(crate) const DEREF: u32 = 2;
/// The proof includes the word from which rbp was read.
pub(crate) const PROVES_BP: u32 = 4;

/// The low bits of a key, which hold the address.
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

/// A kept frame: its state, and its node.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Frame {
    /// The stack pointer when control returns into the frame.
    pub(crate) sp: u64,
    /// The return address, with the module index in the upper bits.
    pub(crate) key: u64,
    /// rbp when control returns into the frame; valid only with `NEEDS_BP`.
    pub(crate) bp: u64,
    pub(crate) node: u32,
    /// The index of its first word in the proof.
    pub(crate) start: u32,
    /// The slot from which its rbp was read, whether or not the proof includes it; 0 if the callee
    /// left rbp unchanged.
    pub(crate) bp_slot: u32,
    pub(crate) flags: u32,
}

impl Frame {
    /// Returns whether this is the state of the frame. `pc` may have bits above the address.
    #[inline(always)]
    pub(crate) fn is(&self, sp: u64, pc: u64, bp: u64) -> bool {
        self.sp == sp && (self.key ^ pc) << 16 == 0 && (self.flags & NEEDS_BP == 0 || self.bp == bp)
    }
}

impl Frame {
    /// Returns whether the state in which a remembered frame was reached equals that of this kept
    /// frame.
    #[inline(always)]
    pub(crate) fn is_met_by(&self, met: &Frame) -> bool {
        let needs = self.flags & NEEDS_BP != 0;
        self.sp == met.sp
            && self.key == met.key
            && (!needs || (met.flags & NEEDS_BP != 0 && met.bp == self.bp))
    }
}

/// The part of a kept stack outside of its arrays. If all zero, nothing is kept.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Extent {
    /// The number of kept frames.
    pub depth: usize,
    /// With at most this many frames left, nothing can be reused: for a truncated stack, they do
    /// not determine how a stack of that depth is truncated.
    pub(crate) least: usize,
    /// The number of outer frames that are not kept because the stack exceeds the space. A stack of
    /// D frames is truncated by the smallest multiple of R/2 with which it fits into R frames, so
    /// the truncation depends only on the stack.
    pub(crate) cut: usize,
    /// The address that slots are relative to, in words of 8 bytes.
    pub(crate) origin: u64,
}

impl Extent {
    /// Discards the kept stack, because rules or the stack's memory changed.
    pub fn forget(&mut self) {
        *self = Extent::default();
    }
}

/// The range of slots, in words: half below the outermost frame, half above.
pub(crate) const REACH_WORDS: u64 = 1 << 31;

/// The kept stack of one thread: frames from the outermost to the innermost.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The maximal number of frames, plus one spare element.
    pub frames: &'a mut [Frame],
    /// The locations of the proof's words, [`words_of`] the frames. The words of the innermost
    /// frame are not part of the proof, because its state is in the registers.
    pub slots: &'a mut [u32],
    /// The values of these words.
    pub words: &'a mut [u64],
    /// The used part of the arrays.
    pub extent: Extent,
}

/// The result of comparing the kept stack with the current one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Same {
    /// They are equal; this is the node.
    Node(u32),
    /// The innermost frame is the same, but one of the first words of the proof, this many, has
    /// changed.
    Changed(u32),
    /// The innermost frame is different.
    No,
}

impl Kept<'_> {
    /// The common case of [`crate::stack::Stack::capture`] in few instructions: the same caller at
    /// the same stack pointer, with everything below it unchanged. `word` reads a stack word that
    /// was read before.
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

    /// Compares the proof's first `count` words. If one has changed, returns an upper bound of the
    /// number of words up to the last changed one; the others are unchanged.
    #[inline(always)]
    pub(crate) fn changed(&self, count: u32, word: &impl Fn(u64) -> u64) -> Option<u32> {
        let origin = self.extent.origin;
        let (Some(slots), Some(words)) =
            (self.slots.get(..count as usize), self.words.get(..count as usize))
        else {
            return Some(count);
        };
        // The remainder is padding.
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

    /// Returns the node of the innermost kept frame.
    pub fn innermost(&self) -> Option<u32> {
        let last = self.extent.depth.checked_sub(1)?;
        self.frames.get(last).map(|frame| frame.node)
    }

    /// Returns the node of the frame whose stack memory contains an address; `None` if there is
    /// none.
    pub fn node_around(&self, address: u64) -> Option<u32> {
        let frames = self.frames.get(..self.extent.depth)?;
        let inner = frames.partition_point(|frame| frame.sp > address);
        frames.get(inner).filter(|frame| frame.key & ADDRESS != 0).map(|frame| frame.node)
    }

    /// Returns the nodes of frames whose return address is in this range.
    pub fn nodes_in(&self, code: core::ops::Range<u64>) -> impl Iterator<Item = u32> {
        let frames = self.frames.get(..self.extent.depth).unwrap_or_default();
        frames
            .iter()
            .filter(move |frame| code.contains(&(frame.key & ADDRESS)))
            .map(|frame| frame.node)
    }

    /// Returns the index of the last changed word among the proof's first `count`; 0 if none has
    /// changed.
    pub(crate) fn last_changed(&self, count: u32, word: &impl Fn(u64) -> u64) -> usize {
        let is_changed = |index: &usize| match (self.slots.get(*index), self.words.get(*index)) {
            (Some(&slot), Some(&was)) => word(address(self.extent.origin, slot)) != was,
            _ => false,
        };
        (0..count as usize).rev().find(is_changed).unwrap_or(0)
    }

    /// Returns the index of the frame, among the first `count`, whose proof includes this word.
    pub(crate) fn frame_of(&self, index: usize, count: usize) -> usize {
        let frames = self.frames.get(..count).unwrap_or_default();
        frames.partition_point(|frame| frame.start as usize <= index).saturating_sub(1)
    }

    /// Returns the address of a slot; 0 for no slot.
    pub(crate) fn address(&self, slot: u32) -> u64 {
        if slot == 0 { 0 } else { address(self.extent.origin, slot) }
    }

    /// Starts the proof of a stack with this outermost frame, whose return address is `word`, at
    /// `ra`. Returns the index for its words.
    pub(crate) fn begin(&mut self, sp: u64, ra: u64, word: u64) -> usize {
        self.extent.origin = sp.wrapping_sub(REACH_WORDS * 8);
        self.pad(ra, word)
    }

    /// Writes the padding before the first frame's words.
    pub(crate) fn pad(&mut self, ra: u64, word: u64) -> usize {
        let slot = slot_of(self.extent.origin, ra);
        for (to, was) in self.slots.iter_mut().zip(self.words.iter_mut()).take(PADDING) {
            (*to, *was) = (slot, word);
        }
        PADDING
    }
}

/// Returns whether these words have their kept values.
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

/// Returns the slot of a word, which must be in range.
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

    /// Builds a kept stack of `frames` frames of 32 bytes, and the words of the stack below `TOP`.
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
    fn the_innermost_changed_word_is_found_for_any_number_of_words() {
        for frames in 1..40 {
            let (kept, mut memory) = stack(frames);
            let count = kept.frames[frames - 1].start;
            assert_eq!(kept.changed(count, &read(&memory)), None, "{frames} frames");
            // The innermost frame's own word is not compared.
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
