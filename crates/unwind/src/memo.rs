//! Inner ends of stacks that were seen before, to be recognised without unwinding.
//!
//! A program allocates from few places, and from each again and again at the same depth: then the
//! innermost frames, from the allocation to a frame that is kept anyway, are the same as some time
//! ago, though not as last time. They are remembered by stack pointer and caller, and proven by the
//! same induction as kept frames ([`crate::stack`]): the state at the top is equal, and every word
//! that the states below depend on is what it was, down to the state of a kept frame, from where
//! the kept frames' words continue.

use crate::kept::{AT_ONCE, Frame, Kept, NEEDS_BP, Registers, all_equal};

/// Frames that are remembered above the kept one.
const CHAIN: usize = 7;
/// Words that prove them.
const PROOF: usize = 2 * AT_ONCE;

/// One remembered end. Zero is empty.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memo {
    top: Registers,
    /// Of rules and stack memory; another one and nothing remembered holds.
    generation: u32,
    /// Frames above the kept one.
    length: u32,
    /// Index of the kept frame.
    junction: u32,
    /// Whether the frames need the rbp of the top.
    needs_bp: bool,
    /// Whether there are more than [`AT_ONCE`] words.
    is_long: bool,
    /// The node of the innermost frame.
    node: u32,
    /// What slots count from.
    origin: u64,
    /// The kept frame, as it was reached.
    met: Frame,
    /// The words of the frames from the kept one to the innermost but one, the first of them some
    /// times more.
    slots: [u32; PROOF],
    words: [u64; PROOF],
    /// Keys of the frames above, outermost first.
    keys: [u64; CHAIN],
}

/// What a look at a memo found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// The stack is this node's.
    Node(u32),
    /// Its inner end is the remembered one, its outer one another, whose node this is
    /// ([`Memo::rename`]).
    Below(u32),
    /// The inner end is another.
    No,
}

/// The place of a state in a table of `length` memos, a power of two.
#[inline(always)]
pub fn place(at: Registers, length: usize) -> usize {
    let mixed = (at.pc ^ at.sp << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (length - 1)
}

impl Memo {
    /// Whether the inner end of the current stack is this one, and the rest is kept. Then the kept
    /// stack ends at the frame where they meet.
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

    /// The node of the frame where the inner end meets the kept stack, if it does.
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
        // Of a stack that was cut, too few frames do not tell how this one is cut.
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

    /// Remembers the innermost `new` frames that are kept, which stand on the one before them: from
    /// the second time on that the same state asks, for most states of a program with ever-changing
    /// stacks never come again.
    pub fn remember(&mut self, kept: &Kept<'_>, new: usize, at: Registers, generation: u32) {
        if self.top.sp != at.sp || self.top.pc != at.pc {
            // Nothing to recall yet: 0 is no generation.
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

    /// The node of the inner end below another node. `child` gives the child of a node.
    pub fn rename(&mut self, outer: u32, mut child: impl FnMut(u32, u64) -> u32) -> u32 {
        self.met.node = outer;
        let keys = self.keys.iter().take(self.length as usize);
        self.node = keys.fold(outer, |node, &key| child(node, key));
        self.node
    }
}
