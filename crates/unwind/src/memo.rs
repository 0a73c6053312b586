//! Inner ends of stacks that were seen before, to be recognised without unwinding.
//!
//! A program allocates from few places, and from each again and again at the same depth: then the
//! innermost frames, from the allocation to a frame that is kept anyway, are the same as some time
//! ago, though not as last time. They are remembered by stack pointer and caller, and proven by the
//! same induction as kept frames ([`crate::stack`]): the state at the top is equal, and every word
//! that the states below depend on still says what it said, down to a kept frame, from where the
//! kept frames' words go on.

use crate::stack::{Frame, Registers, innermost_changed};

/// Frames that are remembered above the kept one.
const CHAIN: usize = 7;

/// One remembered end. Zero is empty.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memo {
    sp: u64,
    pc: u64,
    /// Of rules and stack memory; another one and nothing remembered holds.
    generation: u32,
    /// Frames above the kept one; 0 if the entry is empty.
    length: u32,
    /// Index of the kept frame.
    junction: u32,
    reserved: u32,
    /// Innermost first; the last one is the kept frame, as it was reached.
    frames: [Frame; CHAIN + 1],
}

/// The place of a state in a table of `length` memos, a power of two.
#[inline(always)]
pub fn place(at: Registers, length: usize) -> usize {
    let mixed = (at.pc ^ at.sp << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (length - 1)
}

impl Memo {
    /// The node of the current stack, if its inner end is this one and the rest is kept. Then
    /// `kept` ends at the frame where they meet. `child` gives the child of a node.
    #[inline(always)]
    pub fn recall(
        &mut self,
        kept: &mut [Frame],
        depth: &mut usize,
        at: Registers,
        generation: u32,
        word: impl Fn(u64) -> u64,
        child: impl FnMut(u32, u64) -> u32,
    ) -> Option<u32> {
        if self.sp != at.sp || self.pc != at.pc || self.generation != generation {
            return None;
        }
        let (met, above) = self.frames.get_mut(..=self.length as usize)?.split_last_mut()?;
        let junction = self.junction as usize;
        let (here, below) = kept.get_mut(..*depth)?.get_mut(..=junction)?.split_last_mut()?;
        if !here.is_met_by(met) || !above.first()?.is_top(at) {
            return None;
        }
        let proven = above[1..].iter().all(|frame| frame.unchanged(&word))
            && met.unchanged(&word)
            && innermost_changed(below, &word).is_none();
        if !proven {
            return None;
        }
        here.reached_as(met);
        *depth = junction + 1;
        if met.node() != here.node() {
            met.set_node(here.node());
            rename(above, here.node(), child);
        }
        Some(above[0].node())
    }

    /// Remembers the innermost `new` frames of `kept`, which stand on the one before them: from the
    /// second time on that the same state asks, for most states of a program with ever-changing
    /// stacks never come again.
    pub fn remember(&mut self, kept: &[Frame], new: usize, at: Registers, generation: u32) {
        if self.sp != at.sp || self.pc != at.pc {
            (self.sp, self.pc, self.length) = (at.sp, at.pc, 0);
            // Nothing to recall yet: 0 is no generation.
            self.generation = 0;
            return;
        }
        if new == 0 || new > CHAIN || kept.len() <= new {
            return;
        }
        self.length = new as u32;
        self.junction = (kept.len() - new - 1) as u32;
        self.generation = generation;
        for (to, from) in self.frames.iter_mut().zip(kept.iter().rev().take(new + 1)) {
            *to = *from;
        }
    }
}

/// The outer part of the stack has another node: so have the frames above it.
#[inline(never)]
fn rename(above: &mut [Frame], outer: u32, mut child: impl FnMut(u32, u64) -> u32) {
    let mut node = outer;
    for frame in above.iter_mut().rev() {
        node = child(node, frame.key());
        frame.set_node(node);
    }
}
