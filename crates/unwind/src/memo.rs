//! A memo of inner ends of stacks, which are recognised without unwinding.
//!
//! A program allocates from few places, repeatedly and at the same depth. Then the innermost
//! frames, from the allocation to a frame that is kept anyway, often equal those of an earlier
//! capture, though not the last one. They are stored by stack pointer and caller, and proven by the
//! same induction as kept frames ([`crate::stack`]): the state at the top is equal, and every word
//! that the following states depend on is unchanged, down to the state of a kept frame, where the
//! kept frames' words continue.

use crate::kept::{AT_ONCE, Frame, Kept, NEEDS_BP, Registers, all_equal};

/// The most frames stored above the kept one.
const CHAIN: usize = 7;
/// The number of words that prove them.
const PROOF: usize = 2 * AT_ONCE;

/// One stored inner end. All zeros is empty.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memo {
    top: Registers,
    /// The generation of rules and stack memory; a memo of another generation is invalid.
    generation: u32,
    /// The number of frames above the kept one.
    length: u32,
    /// The index of the kept frame.
    junction: u32,
    /// Whether the frames depend on rbp at the top.
    needs_bp: bool,
    /// Whether there are more than [`AT_ONCE`] words.
    is_long: bool,
    /// The node of the innermost frame.
    node: u32,
    /// The address that slots are relative to.
    origin: u64,
    /// The kept frame, in the state in which it was reached.
    met: Frame,
    /// The words of the frames from the kept one to the innermost but one, padded with copies of
    /// the first.
    slots: [u32; PROOF],
    words: [u64; PROOF],
    /// Keys of the frames above the kept one, outermost first.
    keys: [u64; CHAIN],
}

/// The result of a lookup in a memo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// The node of the whole stack.
    Node(u32),
    /// The inner end matches, but is now below this other node ([`Memo::rename`]).
    Below(u32),
    /// The inner end does not match.
    No,
}

/// Returns the index of a state in a table of `length` memos, a power of two.
#[inline(always)]
pub fn place(at: Registers, length: usize) -> usize {
    let mixed = (at.pc ^ at.sp << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (length - 1)
}

impl Memo {
    /// Checks whether the inner end of the current stack matches, and the rest is kept. If so,
    /// truncates the kept stack to the frame where they meet.
    #[inline(always)]
    pub fn recall(
        &mut self,
        kept: &mut Kept<'_>,
        at: Registers,
        generation: u32,
        word: impl Fn(u64) -> u64,
    ) -> Recalled {
        self.junction_of(kept, at, generation, word).map_or(Recalled::No, |node| {
            if node == self.met.node { Recalled::Node(self.node) } else { Recalled::Below(node) }
        })
    }

    /// Returns the node of the kept frame at which the inner end starts, if it matches.
    #[inline(always)]
    fn junction_of(
        &self,
        kept: &mut Kept<'_>,
        at: Registers,
        generation: u32,
        word: impl Fn(u64) -> u64,
    ) -> Option<u32> {
        let is_top = self.top.sp == at.sp
            && self.top.pc == at.pc
            && self.generation == generation
            && self.origin == kept.extent.origin
            && (!self.needs_bp || self.top.bp == at.bp);
        let junction = self.junction as usize;
        // For a truncated stack, too few frames do not determine how this one is truncated.
        if !is_top || junction >= kept.extent.depth || kept.extent.cut != 0 {
            return None;
        }
        let here = kept.frames.get(junction)?;
        let (start, node) = (here.start, here.node);
        let (slots, words) = (self.slots.as_chunks().0, self.words.as_chunks().0);
        let is_proven = here.is_met_by(&self.met)
            && all_equal(slots.first()?, words.first()?, self.origin, &word)
            && (!self.is_long || all_equal(slots.get(1)?, words.get(1)?, self.origin, &word))
            && kept.changed(start, &word).is_none();
        if !is_proven {
            return None;
        }
        kept.extent.depth = junction + 1;
        Some(node)
    }

    /// Stores the innermost `new` kept frames, which are above a kept frame. It does so only when a
    /// state is seen for the second time, because most states of a program with ever-changing
    /// stacks never recur.
    pub fn remember(&mut self, kept: &Kept<'_>, new: usize, at: Registers, generation: u32) {
        if self.top.sp != at.sp || self.top.pc != at.pc {
            // Stores only the state: generation 0 matches nothing.
            (self.top, self.generation) = (at, 0);
            return;
        }
        self.try_remember(kept, new, at, generation);
    }

    fn try_remember(
        &mut self,
        kept: &Kept<'_>,
        new: usize,
        at: Registers,
        generation: u32,
    ) -> Option<()> {
        let depth = kept.extent.depth;
        let (met, above) =
            kept.frames.get(..depth)?.get(depth.checked_sub(new + 1)?..)?.split_first()?;
        let top = above.last()?;
        let proof = met.start as usize..top.start as usize;
        let (slots, words) = (kept.slots.get(proof.clone())?, kept.words.get(proof)?);
        if above.len() > CHAIN || slots.len() > PROOF {
            return None;
        }
        self.slots = [*slots.first()?; PROOF];
        self.words = [*words.first()?; PROOF];
        self.slots.iter_mut().zip(slots).for_each(|(to, slot)| *to = *slot);
        self.words.iter_mut().zip(words).for_each(|(to, word)| *to = *word);
        self.keys.iter_mut().zip(above).for_each(|(to, frame)| *to = frame.key);
        self.top = at;
        self.length = new as u32;
        self.junction = (depth - new - 1) as u32;
        self.needs_bp = top.flags & NEEDS_BP != 0;
        self.is_long = slots.len() > AT_ONCE;
        (self.node, self.origin, self.met) = (top.node, kept.extent.origin, *met);
        self.generation = generation;
        Some(())
    }

    /// Moves the inner end below another node, and returns its innermost node. `child` returns the
    /// child of a node.
    pub fn rename(&mut self, outer: u32, mut child: impl FnMut(u32, u64) -> u32) -> u32 {
        self.met.node = outer;
        let keys = self.keys.iter().take(self.length as usize);
        self.node = keys.fold(outer, |node, &key| child(node, key));
        self.node
    }
}
