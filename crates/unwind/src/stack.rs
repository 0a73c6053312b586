//! Captures the current stack as a tree node, by unwinding that reuses frames it can prove
//! unchanged.
//!
//! Each thread keeps its last stack, outermost frame first ([`crate::kept`]). A new stack is
//! unwound from its top only until its state (sp, return address, and rbp if a rule further out
//! needs it) equals that of a kept frame. From there on, each state further out is a function of
//! stack words only: the return-address slot, the slot of rbp if a rule further out needs rbp, and
//! the word that a deref rule reads. The locations of these words follow from the states further
//! in, by the same rules as last time; so if a word has not changed, the locations of the next ones
//! have not, either. The words are compared with their kept values from the inside to the outside.
//! If all are equal, all states are equal by induction, and so are the stacks. The first word that
//! differs belongs to the step into some frame k: the frames inside of k are proven, and unwinding
//! continues from the outermost of them, k + 1.
//!
//! The innermost kept frame has no words of its own: its state is compared with the registers. When
//! a stack joins the kept one at a frame, the step into that frame is from a new callee, and its
//! words replace those of the previous step.
//!
//! Equality of state and words is the whole argument, so it does not matter what happened in
//! between: returns, exceptions, longjmp, another stack in the same memory. Only two events need a
//! notification: a change of the stack that the memory belongs to, and a change of rules
//! ([`crate::kept::Extent::forget`]).

use crate::kept::{
    ADDRESS, DEREF, Frame, Kept, NEEDS_BP, PROVES_BP, REACH_WORDS, Registers, Same, slot_of,
};
use crate::rule::{Bp, Cfa, Ra, Step};
use crate::{Rule, arch};

/// The unwinder's access to its environment.
pub trait Machine {
    /// Returns the bounds of the current stack.
    fn bounds(&self) -> Bounds;
    /// Reads the stack word at an address within the bounds, or one that was read before in this
    /// stack.
    fn known_word(&self, address: u64) -> u64;
    /// Reads the stack word at an address that a rule computed; `None` if it is not in the current
    /// stack.
    fn word(&self, address: u64) -> Option<u64> {
        self.bounds().holds(address).then(|| self.known_word(address))
    }
    /// Continues at this stack pointer, which may be in another stack, such as that of a signal
    /// handler. Returns false if it is in none.
    fn enter(&mut self, sp: u64) -> bool;
    /// Returns the rule for a return address, or for an exact pc.
    fn rule(&mut self, pc: u64, exact: bool) -> Rule;
    /// Returns whether a call can return to this address, which code without a rule led to.
    /// `is_outermost`: the frame there has no frame pointer to follow.
    fn is_return_address(&mut self, pc: u64, is_outermost: bool) -> bool;
    /// Returns the child of a stack-tree node, or `parent` itself if it could not be stored.
    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32;
    /// Returns the node that is the parent of stacks with truncated outer frames.
    fn too_deep(&mut self) -> u32;
    /// Receives the reason if a stack ended early.
    fn ended(&mut self, why: Early);
}

/// The memory range of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The lowest address, a multiple of 8.
    pub low: u64,
    /// The number of words of 8 bytes.
    pub words: u64,
}

impl Bounds {
    /// Returns whether there is a word at an address. One comparison suffices, because the low bits
    /// of an unaligned address become high bits.
    #[inline(always)]
    pub fn holds(self, address: u64) -> bool {
        address.wrapping_sub(self.low).rotate_right(3) < self.words
    }
}

/// The reason why a stack was not followed to its outermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Early {
    /// Code without usable unwind information.
    NoRule,
    /// A rule led to an address outside of the stack, or not further out.
    OutsideStack,
}

/// A frame that a walk reached: its state, and the words that led to it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Walked {
    /// The stack pointer when control returns into the frame.
    sp: u64,
    /// The return address.
    word: u64,
    /// rbp when control returns into the frame. In `scratch`, it is valid only with `NEEDS_BP`.
    bp: u64,
    /// The address from which that rbp was read; 0 if the callee left it unchanged.
    bp_slot: u64,
    /// With `DEREF`: the address of the word from which `sp` was computed.
    cfa_slot: u64,
    /// The flags below and those of [`crate::kept`], except `PROVES_BP`.
    flags: u32,
    /// Its node, once it has one.
    node: u32,
    /// The key of the node: the address, with the module index in the upper bits. 0 at the end of
    /// the stack.
    key: u64,
    /// The address from which the return address was read, if that depends on the rule; for an
    /// exact frame, the link register. It also makes the size a power of two.
    link: u64,
}

impl Walked {
    /// Returns the address from which the return address was read. The frame must not be exact.
    #[inline(always)]
    fn ra_slot(&self) -> u64 {
        if arch::RA_IS_BELOW_CFA { self.sp.wrapping_sub(8) } else { self.link }
    }

    /// Returns whether it cannot be proven unchanged.
    #[inline(always)]
    fn is_unproven(&self) -> bool {
        self.flags & (EXACT | UNPROVEN) != 0
    }
}

/// A signal interrupted the frame.
const EXACT: u32 = 8;
/// The stack ended here because of a word that no kept frame covers; or the frame was reached
/// through the link register, which is not on the stack.
const UNPROVEN: u32 = 16;

/// The most signal frames in one stack; more of them indicate a cycle.
const SIGNALS_MAX: u32 = 32;

/// The working memory of a thread's unwinder.
#[derive(Debug)]
pub struct Stack<'a> {
    /// The last kept stack. One element of its frames is for frames that cannot be kept.
    pub kept: Kept<'a>,
    /// Space for the frames of one stack, innermost first; as long as that of `kept`.
    pub scratch: &'a mut [Walked],
    /// The total number of frames that were stepped by a rule.
    pub stepped: u64,
    /// False: unwind every frame again, for comparison in tests.
    pub reuse: bool,
}

/// How a walk ended.
#[derive(Clone, Copy)]
enum Outer {
    /// It joined the kept stack at the innermost remaining candidate; everything below is
    /// unchanged.
    Kept,
    /// At an outermost frame.
    Root,
    /// `scratch` is full.
    TooDeep,
    /// `scratch` is full, and this many more frames follow.
    Beyond(usize),
}

/// Why a run of frames with usual rules ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// At the state of the innermost remaining candidate.
    Kept,
    /// There is no space for another frame.
    Full,
    /// The rule of the last frame in `scratch` is not a usual one.
    Unusual,
    /// The last frame in `scratch` is the end of the stack.
    End,
}

/// The position of a walk.
struct Walk {
    /// The current state.
    at: Walked,
    /// The number of frames in `scratch`.
    new: usize,
    /// The number of kept frames that it may still meet.
    candidates: usize,
    /// rbp at the top of the stack.
    register: u64,
}

impl Walk {
    fn new(at: Registers, candidates: usize) -> Walk {
        let register = at.bp;
        // As at a function's entry on this processor: the return address is below the caller's
        // stack pointer.
        let link = if arch::RA_IS_BELOW_CFA { 0 } else { at.sp.wrapping_sub(8) };
        let at = Walked { sp: at.sp, word: at.pc, bp: at.bp, link, ..Walked::default() };
        Walk { at, new: 0, candidates, register }
    }
}

impl Stack<'_> {
    /// Returns the tree node of the current stack, and how many of the frames that are now kept are
    /// new and may be remembered. `seen` is the result of [`Kept::same`], if it was called.
    pub fn capture<M: Machine>(
        &mut self,
        at: Registers,
        seen: Same,
        machine: &mut M,
    ) -> (u32, usize) {
        let (depth, least) = (self.kept.extent.depth, self.kept.extent.least);
        let candidates = if self.reuse && depth > least { depth } else { 0 };
        let mut walk = Walk::new(at, candidates);
        let known = match seen {
            Same::Changed(count) if candidates > 0 => Some(count),
            _ => None,
        };
        let outer = self.walk(&mut walk, known, machine);
        let depth = walk.candidates + walk.new;
        let mut new = 0;
        let node = match outer {
            Outer::Root => self.keep_all(walk.new, 0, 0, machine),
            Outer::Kept if depth <= self.room() && depth > least => {
                let node = self.keep_above(&mut walk, machine);
                // With truncated outer frames or unproven signal frames, the kept frames are not
                // the whole stack.
                if self.kept.extent.cut == 0 && self.kept.extent.depth == depth {
                    new = walk.new;
                }
                node
            }
            _ => self.capture_deep(at, machine),
        };
        if !self.reuse {
            self.kept.extent.forget();
        }
        (node, new)
    }

    /// Captures a stack that may exceed the space, from its top to its end.
    #[inline(never)]
    fn capture_deep<M: Machine>(&mut self, at: Registers, machine: &mut M) -> u32 {
        let (room, half) = (self.room(), self.room() / 2);
        let mut walk = Walk::new(at, 0);
        let Outer::Beyond(beyond) = self.walk(&mut walk, None, machine) else {
            return self.keep_all(walk.new, 0, 0, machine);
        };
        let cut = beyond.div_ceil(half) * half;
        let root = machine.too_deep();
        self.keep_all(room + beyond - cut, cut, root, machine)
    }

    /// Returns how many frames can be kept.
    fn room(&self) -> usize {
        self.kept.frames.len() - 1
    }

    /// Unwinds into `scratch` until the rest is known. `known` is the result of [`Kept::changed`]
    /// for the state at the top, if that is the state of a kept frame.
    #[inline(always)]
    fn walk<M: Machine>(&mut self, walk: &mut Walk, known: Option<u32>, machine: &mut M) -> Outer {
        let stop = self.go(walk, machine);
        match self.is_unchanged(walk, stop, known, machine) {
            Ok(()) => Outer::Kept,
            Err(count) => self.walk_on(walk, stop, count, machine),
        }
    }

    /// Continues after the end of a run. If that was at a kept frame, the first `count` words of
    /// the candidates' proof may have changed.
    #[inline(never)]
    fn walk_on<M: Machine>(
        &mut self,
        walk: &mut Walk,
        mut stop: Stop,
        mut count: u32,
        machine: &mut M,
    ) -> Outer {
        let mut signals = 0;
        loop {
            match stop {
                Stop::Kept if self.revise(walk, count, machine) => {}
                Stop::Kept => return Outer::TooDeep,
                Stop::Full if walk.candidates > 0 => return Outer::TooDeep,
                Stop::Full => return Outer::Beyond(self.count(walk.at, machine)),
                Stop::End => return Outer::Root,
                Stop::Unusual => {}
            }
            // Only a signal frame may lead inwards; all other rules lead outwards.
            match self.advance(walk.new, walk.at, machine) {
                Some(next) if signals < SIGNALS_MAX => walk.at = next,
                _ => return Outer::Root,
            }
            signals += (walk.at.flags & EXACT) / EXACT;
            stop = self.go(walk, machine);
            match self.is_unchanged(walk, stop, None, machine) {
                Ok(()) => return Outer::Kept,
                Err(changed) => count = changed,
            }
        }
    }

    /// Advances by one frame, or to the end of a run of frames with usual rules.
    #[inline(always)]
    fn go<M: Machine>(&mut self, walk: &mut Walk, machine: &mut M) -> Stop {
        let room = self.room();
        let candidates = self.kept.frames.get(..walk.candidates).unwrap_or_default();
        let scratch = self.scratch.get_mut(..room).unwrap_or_default();
        let first = walk.new;
        let is_usual = walk.at.flags == 0;
        let run = if is_usual { run::<M, false> } else { run::<M, true> };
        let stop = run(candidates, scratch, walk, machine);
        self.stepped += (walk.new - first) as u64;
        stop
    }

    /// Counts the frames from this state to the end of the stack. They share one element of
    /// `scratch`.
    #[inline(never)]
    fn count<M: Machine>(&mut self, mut at: Walked, machine: &mut M) -> usize {
        let last = self.room();
        let (mut frames, mut signals) = (0, 0);
        loop {
            frames += 1;
            self.scratch[last] = at;
            if at.word & ADDRESS == 0 {
                return frames;
            }
            self.stepped += 1;
            match self.advance(last + 1, at, machine) {
                Some(next) if signals < SIGNALS_MAX => at = next,
                _ => return frames,
            }
            signals += (at.flags & EXACT) / EXACT;
        }
    }

    /// Steps from this state, which is that of `scratch[new - 1]`, to its caller's; `None` at the
    /// end of the stack.
    #[inline(never)]
    fn advance<M: Machine>(&mut self, new: usize, at: Walked, machine: &mut M) -> Option<Walked> {
        let rule = machine.rule(at.word & ADDRESS, at.flags & EXACT != 0);
        self.scratch[new - 1].key = key_of(at.word & ADDRESS, rule);
        self.step(new, rule, at, machine)
    }

    /// Returns whether the run ended at the state of a candidate below which no word has changed;
    /// otherwise how many of its words may have changed. `known` is the result of
    /// [`Kept::changed`], if it was called.
    #[inline(always)]
    fn is_unchanged<M: Machine>(
        &mut self,
        walk: &Walk,
        stop: Stop,
        known: Option<u32>,
        machine: &M,
    ) -> Result<(), u32> {
        let met = self.kept.frames.get(walk.candidates.wrapping_sub(1));
        let Some(frame) = met.filter(|_| stop == Stop::Kept) else {
            return Err(0);
        };
        if frame.flags & NEEDS_BP != 0 && walk.at.bp_slot == 0 {
            need_bp(&mut self.scratch[..walk.new], walk.at.bp);
        }
        let changed = match known {
            None => self.kept.changed(frame.start, &|a| machine.known_word(a)),
            known => known,
        };
        changed.map_or(Ok(()), Err)
    }

    /// Moves the proven frames, those inside of the frame whose word has changed, to `scratch`, and
    /// resumes the walk at the outermost of them. The first `count` words may have changed. Returns
    /// false if there is no space.
    #[inline(never)]
    fn revise<M: Machine>(&mut self, walk: &mut Walk, count: u32, machine: &M) -> bool {
        let room = self.room();
        let met = walk.candidates - 1;
        let changed = self.kept.last_changed(count, &|a| machine.known_word(a));
        let proven = self.kept.frame_of(changed, met) + 1..walk.candidates;
        let places = self.scratch.get_mut(walk.new..room);
        let Some(places) = places.and_then(|places| places.get_mut(..proven.len())) else {
            return false;
        };
        for (to, index) in places.iter_mut().zip(proven.clone().rev()) {
            let frame = &self.kept.frames[index];
            *to = if index == met {
                let flags = walk.at.flags | frame.flags & NEEDS_BP;
                Walked { key: frame.key, flags, ..walk.at }
            } else {
                walked(&self.kept, frame)
            };
        }
        walk.new += proven.len();
        walk.candidates = proven.start;
        walk.at = self.resume(walk.new, walk.register, machine);
        self.stepped += 1;
        true
    }

    /// Returns the state of `scratch[new - 1]`, a frame that was proven unchanged. Its rbp is
    /// stored only if it was needed; otherwise it is that of the nearest inner frame that read it,
    /// or else the register's.
    fn resume<M: Machine>(&self, new: usize, register: u64, machine: &M) -> Walked {
        let frame = &self.scratch[new - 1];
        let bp = if frame.flags & NEEDS_BP != 0 {
            frame.bp
        } else {
            let read = self.scratch[..new].iter().rev().find(|f| f.bp_slot != 0);
            read.map_or(register, |f| machine.known_word(f.bp_slot))
        };
        Walked { bp, flags: frame.flags & !NEEDS_BP, ..*frame }
    }

    /// Steps by any rule from `w`, which is `scratch[new - 1]`, to its caller; `None` at the end of
    /// the stack.
    fn step<M: Machine>(
        &mut self,
        new: usize,
        rule: Rule,
        w: Walked,
        machine: &mut M,
    ) -> Option<Walked> {
        let step = rule.step();
        if step == Step::FramePointer {
            need_bp(&mut self.scratch[..new], w.bp);
        }
        let (cfa, bp, ra) = match step {
            Step::Frame(cfa, bp, ra) => (cfa, bp, ra),
            Step::End => return None,
            Step::Unknown => {
                machine.ended(Early::NoRule);
                return None;
            }
            Step::Signal => return self.leave_signal(new, &w, machine),
            Step::FramePointer if w.bp >= w.sp && w.bp & 7 == 0 => {
                (Cfa::Bp(16), Bp::AtCfa(-16), Ra::AtCfa(-8))
            }
            // The ABI marks the outermost frame with 0.
            Step::FramePointer if w.bp == 0 => return None,
            Step::FramePointer => {
                machine.ended(Early::NoRule);
                return None;
            }
        };
        if matches!(cfa, Cfa::Bp(_) | Cfa::BpDeref(..)) || matches!(bp, Bp::AtBp(_)) {
            need_bp(&mut self.scratch[..new], w.bp);
        }
        let next = follow(cfa, bp, ra, &w, machine);
        if next.is_none() {
            machine.ended(Early::OutsideStack);
            if matches!(cfa, Cfa::SpDeref(..) | Cfa::BpDeref(..)) {
                self.scratch[new - 1].flags |= UNPROVEN;
            }
        }
        // rbp may be anything in code without a rule. The ABI marks the outermost frame with 0.
        let (word, bp) = next.as_ref().map_or((0, 0), |next| (next.word & ADDRESS, next.bp));
        let mut is_plausible = || match word {
            0 => bp == 0,
            _ => machine.is_return_address(word, bp == 0),
        };
        if step == Step::FramePointer && !is_plausible() {
            machine.ended(Early::NoRule);
            self.scratch[new - 1].flags |= UNPROVEN;
            return None;
        }
        next
    }

    /// Steps over the kernel's signal frame.
    fn leave_signal<M: Machine>(
        &mut self,
        new: usize,
        w: &Walked,
        machine: &mut M,
    ) -> Option<Walked> {
        self.scratch[new - 1].flags |= EXACT;
        let slot = |offset: u64| w.sp.wrapping_add(offset);
        let register = |offset: u64| machine.word(slot(offset));
        let places = arch::SIGNAL_FRAME;
        let (bp, sp, word) = (register(places.bp)?, register(places.sp)?, register(places.pc)?);
        let link = places.link.map_or(Some(0), register)?;
        let bp_slot = slot(places.bp);
        let next = Walked { sp, word, bp, bp_slot, link, flags: EXACT, ..Walked::default() };
        (machine.enter(sp) && word & ADDRESS != 0).then_some(next)
    }

    /// Replaces the kept stack by the innermost `new` frames of `scratch`, below this node.
    #[inline(never)]
    fn keep_all<M: Machine>(&mut self, new: usize, cut: usize, root: u32, machine: &mut M) -> u32 {
        self.kept.extent.cut = cut;
        self.kept.extent.least = if cut == 0 { 0 } else { self.room() - self.room() / 2 };
        let outermost = new.checked_sub(1).map(|last| self.scratch[last]).unwrap_or_default();
        let start = self.kept.begin(outermost.sp, outermost.ra_slot(), outermost.word);
        self.push(0, start, new, root, machine)
    }

    /// Keeps the new frames above the candidates that the walk has joined.
    #[inline(always)]
    fn keep_above<M: Machine>(&mut self, walk: &mut Walk, machine: &mut M) -> u32 {
        let (base, new) = (walk.candidates, walk.new);
        let frame = &self.kept.frames[base - 1];
        let (node, start, flags) = (frame.node, frame.start, frame.flags);
        self.kept.extent.depth = base;
        if new == 0 {
            return node;
        }
        let Kept { frames, slots, words, extent } = &mut self.kept;
        let (frame, start) = (&mut frames[base - 1], start as usize);
        let end = if arch::RA_IS_BELOW_CFA && walk.at.flags | flags == 0 {
            // Its return address and all other words to prove are the same as before.
            let slot = walk.at.bp_slot;
            frame.bp_slot = if slot == 0 { 0 } else { slot_of(extent.origin, slot) };
            start + 1
        } else {
            walk.at.flags |= flags & NEEDS_BP;
            prove((slots, words), extent.origin, start, &walk.at, frame).unwrap_or(usize::MAX)
        };
        if !arch::RA_IS_BELOW_CFA && base == 1 {
            self.kept.pad(walk.at.ra_slot(), walk.at.word);
        }
        self.push(base, end, new, node, machine)
    }

    /// Assigns nodes below `node` to the innermost `new` frames of `scratch`, and keeps them above
    /// `depth` other frames, whose proof ends at `start`. Returns the innermost node.
    #[inline(always)]
    fn push<M: Machine>(
        &mut self,
        mut depth: usize,
        mut start: usize,
        new: usize,
        node: u32,
        machine: &mut M,
    ) -> u32 {
        let node = self.name(new, node, machine);
        let Kept { frames, slots, words, extent } = &mut self.kept;
        // Slots are relative to the outermost stack. If not all of it is in their range, nothing is
        // kept.
        let reachable = if machine.bounds().words < REACH_WORDS { new } else { 0 };
        for walked in self.scratch[..reachable].iter().rev() {
            // A signal can interrupt code at any state, so frames from the interrupted one inwards
            // are not kept.
            let Some(frame) = frames.get_mut(depth).filter(|_| !walked.is_unproven()) else {
                break;
            };
            let Some(end) = prove((slots, words), extent.origin, start, walked, frame) else {
                break;
            };
            (frame.sp, frame.key, frame.bp) = (walked.sp, walked.key, walked.bp);
            (frame.node, frame.start) = (walked.node, start as u32);
            depth += 1;
            start = end;
        }
        extent.depth = depth;
        node
    }

    /// Returns the node of the innermost `new` frames of `scratch` below `node`.
    #[inline(always)]
    fn name<M: Machine>(&mut self, new: usize, mut node: u32, machine: &mut M) -> u32 {
        for walked in self.scratch[..new].iter_mut().rev() {
            if walked.key != 0 {
                node = machine.child(node, walked.key, walked.flags & EXACT != 0);
            }
            walked.node = node;
        }
        node
    }
}

/// Unwinds while rules are usual (the CFA is a register plus an offset), which nearly always
/// completes the walk. If the state has flags, it steps only one frame.
#[inline(never)]
fn run<M: Machine, const FLAGS: bool>(
    candidates: &[Frame],
    scratch: &mut [Walked],
    walk: &mut Walk,
    machine: &mut M,
) -> Stop {
    let bounds = machine.bounds();
    let mut outer = candidates.iter().rev();
    let mut next = outer.next();
    let Walked { mut sp, mut word, mut bp, mut bp_slot, mut link, .. } = walk.at;
    let is_unproven = FLAGS && walk.at.is_unproven();
    let mut new = walk.new;
    let stop = loop {
        while let Some(frame) = next
            && frame.sp < sp
        {
            next = outer.next();
        }
        if let Some(frame) = next
            && frame.is(sp, word, bp)
            && !is_unproven
        {
            break Stop::Kept;
        }
        let Some(place) = scratch.get_mut(new) else {
            break Stop::Full;
        };
        new += 1;
        (place.sp, place.word, place.bp, place.bp_slot, place.flags) = (sp, word, bp, bp_slot, 0);
        if !arch::RA_IS_BELOW_CFA {
            place.link = link;
        }
        if FLAGS {
            *place = walk.at;
        }
        let pc = word & ADDRESS;
        if pc == 0 {
            // Kept as a frame without a node, because the word 0 must be proven like any other.
            place.key = 0;
            break Stop::End;
        }
        if FLAGS {
            break Stop::Unusual;
        }
        let rule = machine.rule(pc, false);
        place.key = key_of(pc, rule);
        let Some(usual) = rule.usual() else {
            break Stop::Unusual;
        };
        if usual.by_bp {
            need_bp(&mut scratch[..new], bp);
        }
        let cfa = if usual.by_bp { bp } else { sp }.wrapping_add_signed(usual.cfa);
        let saved = if usual.bp_saved { cfa.wrapping_add_signed(usual.bp) } else { 0 };
        let ra = cfa.wrapping_add_signed(usual.ra);
        let is_inside = bounds.holds(ra) && cfa > sp;
        if !is_inside || (usual.bp_saved && !bounds.holds(saved)) {
            break Stop::Unusual;
        }
        (sp, word, bp_slot, link) = (cfa, machine.known_word(ra), saved, ra);
        if usual.bp_saved {
            bp = machine.known_word(saved);
        }
    };
    if !FLAGS {
        (walk.at.sp, walk.at.word, walk.at.bp, walk.at.bp_slot) = (sp, word, bp, bp_slot);
        if !arch::RA_IS_BELOW_CFA {
            walk.at.link = link;
        }
    }
    (walk.new, walk.candidates) = (new, outer.len() + usize::from(next.is_some()));
    stop
}

/// Marks the frames that pass rbp unchanged to the caller of the last of these, up to the frame
/// that read it.
#[inline(always)]
fn need_bp(frames: &mut [Walked], bp: u64) {
    for frame in frames.iter_mut().rev() {
        frame.flags |= NEEDS_BP;
        frame.bp = bp;
        if frame.bp_slot != 0 {
            break;
        }
    }
}

/// Appends the words that led to a frame to the proof at `start`. Returns the end of the words, or
/// `None` if there is no space. Sets the flags of the kept frame that describe its words.
#[inline(always)]
fn prove(
    (slots, words): (&mut [u32], &mut [u64]),
    origin: u64,
    start: usize,
    walked: &Walked,
    frame: &mut Frame,
) -> Option<usize> {
    let mut end = start;
    let mut put = |slot: u32, word: u64| {
        (*slots.get_mut(end)?, *words.get_mut(end)?) = (slot, word);
        end += 1;
        Some(())
    };
    put(slot_of(origin, walked.ra_slot()), walked.word)?;
    (frame.bp_slot, frame.flags) = (0, walked.flags & NEEDS_BP);
    if walked.bp_slot != 0 {
        frame.bp_slot = slot_of(origin, walked.bp_slot);
        if walked.flags & NEEDS_BP != 0 {
            put(frame.bp_slot, walked.bp)?;
            frame.flags |= PROVES_BP;
        }
    }
    if walked.flags & DEREF != 0 {
        let addend = (walked.flags as i32 >> 16) as i64;
        put(slot_of(origin, walked.cfa_slot), walked.sp.wrapping_sub_signed(addend))?;
        frame.flags |= walked.flags & (DEREF | 0xffff << 16);
    }
    Some(end)
}

/// Converts a kept frame to a walked one.
fn walked(kept: &Kept<'_>, frame: &Frame) -> Walked {
    let start = frame.start as usize;
    let cfa = start + 1 + usize::from(frame.flags & PROVES_BP != 0);
    let proves_cfa = frame.flags & DEREF != 0;
    Walked {
        sp: frame.sp,
        word: kept.words[start],
        bp: frame.bp,
        bp_slot: kept.address(frame.bp_slot),
        cfa_slot: if proves_cfa { kept.address(kept.slots[cfa]) } else { 0 },
        flags: frame.flags & !PROVES_BP,
        node: frame.node,
        key: frame.key,
        link: if arch::RA_IS_BELOW_CFA { 0 } else { kept.address(kept.slots[start]) },
    }
}

/// Returns the key of a frame's node.
#[inline(always)]
fn key_of(pc: u64, rule: Rule) -> u64 {
    pc | rule.bits() & !ADDRESS
}

/// Computes the caller's state by a rule; `None` if it is outside of the stack or not further out.
#[inline(always)]
fn follow<M: Machine>(cfa: Cfa, bp: Bp, ra: Ra, w: &Walked, machine: &M) -> Option<Walked> {
    let at = |base: u64, n: i64| base.wrapping_add_signed(n);
    let (sp, cfa_slot, flags) = match cfa {
        Cfa::Sp(n) => (at(w.sp, n as i64), 0, 0),
        Cfa::Bp(n) => (at(w.bp, n as i64), 0, 0),
        Cfa::SpDeref(n, m) => through(at(w.sp, n as i64), m, machine)?,
        Cfa::BpDeref(n, m) => through(at(w.bp, n as i64), m, machine)?,
    };
    if sp & 7 != 0 {
        return None;
    }
    let n = match ra {
        Ra::AtCfa(n) => n,
        Ra::Register => return by_link(sp, w),
    };
    let link = at(sp, n as i64);
    if sp <= w.sp {
        return None;
    }
    let word = machine.word(link)?;
    let bp_slot = match bp {
        Bp::Same => 0,
        Bp::AtCfa(n) => at(sp, n as i64),
        Bp::AtBp(n) => at(w.bp, n as i64),
    };
    let bp = if bp_slot == 0 { w.bp } else { machine.word(bp_slot)? };
    Some(Walked { sp, word, bp, bp_slot, cfa_slot, flags, link, ..Walked::default() })
}

/// Returns the state of the caller of a function that a signal interrupted before it saved its
/// return address. `None` for any other frame, because its link register belongs to the callee.
#[inline(never)]
fn by_link(sp: u64, w: &Walked) -> Option<Walked> {
    let is_known = arch::HAS_LINK_REGISTER && w.flags & EXACT != 0 && sp >= w.sp;
    let flags = UNPROVEN;
    is_known.then_some(Walked { sp, word: w.link, bp: w.bp, flags, ..Walked::default() })
}

#[inline(never)]
fn through<M: Machine>(slot: u64, m: i16, machine: &M) -> Option<(u64, u64, u32)> {
    let sp = machine.word(slot)?.wrapping_add_signed(m as i64);
    Some((sp, slot, DEREF | (m as u16 as u32) << 16))
}
