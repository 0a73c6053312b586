//! The current stack as a tree node: unwinding that reuses what it can prove to be unchanged.
//!
//! Per thread the last stack is kept, outermost frame first. A new stack is unwound from its top
//! only until its state (sp, return address, and rbp where a deeper rule needs it) equals a kept
//! frame's. From there on each deeper state is a function of stack words only: the return-address
//! slot, the rbp slot where a deeper rule needs rbp, and the word that a deref rule reads. Those
//! are compared with what was kept, one or two loads a frame. All equal: by induction the stacks
//! are equal. A mismatch at frame k: unwinding goes on from k + 1.
//!
//! Equality of state plus equality of words is the whole argument, so it does not matter what
//! happened in between: returns, exceptions, longjmp, another stack that used the same memory. Only
//! two things must be told: that the memory is another stack's, and that rules changed
//! ([`Stack::forget`]).

use crate::Rule;
use crate::rule::{Bp, Cfa, Step};

/// What the unwinder asks of its surroundings.
pub trait Machine {
    /// The stack word at an address that was computed by a rule; none if it is not in the current
    /// stack.
    fn word(&self, address: u64) -> Option<u64>;
    /// The stack word at an address that was read before in this same stack.
    fn known_word(&self, address: u64) -> u64;
    /// Goes on at this stack pointer, which may be in another stack: a signal handler has its own.
    /// False if it is in none.
    fn enter(&mut self, sp: u64) -> bool;
    /// The rule for a return address, or for an exact pc.
    fn rule(&mut self, pc: u64, exact: bool) -> Rule;
    /// The child of a stack-tree node, or `parent` itself if it could not be stored.
    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32;
    /// The node under which stacks are put whose outer frames were cut.
    fn too_deep(&mut self) -> u32;
    /// Told why a stack ended early.
    fn ended(&mut self, why: Early);
}

/// Why a stack was not followed to its outermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Early {
    /// Code without usable unwind information.
    NoRule,
    /// A rule led to a place outside the stack, or not outwards.
    OutsideStack,
}

/// The registers at the entry of the allocation function, as if it had just returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Return address.
    pub pc: u64,
    /// Stack pointer after the return.
    pub sp: u64,
    /// rbp.
    pub bp: u64,
}

/// A frame's state, how it came about, and its node.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Frame {
    /// Stack pointer when control returns into the frame; its return-address slot is just below.
    sp: u64,
    /// Return address, module index above it.
    key: u64,
    /// rbp when control returns into the frame; true only where `NEEDS_BP`.
    bp: u64,
    /// Where that rbp was read, or 0: it came through the callee unchanged.
    bp_slot: u64,
    /// With `DEREF`: the word that `sp` was computed from.
    cfa_slot: u64,
    node: u32,
    /// The flags below; with `DEREF` the addend in the upper half.
    flags: u32,
}

const NEEDS_BP: u32 = 1;
const DEREF: u32 = 2;
const EXACT: u32 = 4;
/// The stack ended here because of a word that no kept frame holds.
const UNPROVEN: u32 = 8;

/// Signals that may have interrupted each other in one stack; beyond it is a circle.
const SIGNALS_MAX: u32 = 32;

/// The low bits of a key hold the address.
const ADDRESS: u64 = (1 << 48) - 1;

impl Frame {
    #[inline(always)]
    fn pc(&self) -> u64 {
        self.key & ADDRESS
    }

    /// Return address, module index above it.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// The stack-tree node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    pub(crate) fn set_node(&mut self, node: u32) {
        self.node = node;
    }

    /// Whether this remembered innermost frame has the state of the registers.
    #[inline(always)]
    pub(crate) fn is_top(&self, at: Registers) -> bool {
        self.sp == at.sp && (self.flags & NEEDS_BP == 0 || self.bp == at.bp)
    }

    /// Whether the state in which a remembered frame was reached is this kept frame's.
    #[inline(always)]
    pub(crate) fn is_met_by(&self, met: &Frame) -> bool {
        let needs = self.flags & NEEDS_BP != 0;
        self.sp == met.sp
            && self.key == met.key
            && (!needs || (met.flags & NEEDS_BP != 0 && met.bp == self.bp))
    }

    /// Takes over how a remembered frame of the same state was reached.
    #[inline(always)]
    pub(crate) fn reached_as(&mut self, met: &Frame) {
        let needs = self.flags & NEEDS_BP;
        self.bp = met.bp;
        self.bp_slot = met.bp_slot;
        self.cfa_slot = met.cfa_slot;
        self.flags = met.flags & !NEEDS_BP | needs;
    }

    /// Whether this kept frame's state is this one. What a signal interrupted never is.
    #[inline(always)]
    fn is(&self, sp: u64, pc: u64, bp: u64, flags: u32) -> bool {
        self.sp == sp
            && (self.key ^ pc) << 16 == 0
            && flags & EXACT == 0
            && (self.flags & NEEDS_BP == 0 || self.bp == bp)
    }

    /// Whether the words that this frame's state depends on still say what they said.
    #[inline(always)]
    pub(crate) fn unchanged(&self, word: &impl Fn(u64) -> u64) -> bool {
        if (word(self.sp - 8) ^ self.key) << 16 != 0 {
            return false;
        }
        self.flags == 0 || self.unchanged_rest(word)
    }

    #[inline(always)]
    fn unchanged_rest(&self, word: &impl Fn(u64) -> u64) -> bool {
        if self.flags & NEEDS_BP != 0 && self.bp_slot != 0 && word(self.bp_slot) != self.bp {
            return false;
        }
        if self.flags & DEREF != 0 {
            let addend = (self.flags as i32 >> 16) as i64;
            return word(self.cfa_slot).wrapping_add_signed(addend) == self.sp;
        }
        true
    }
}

/// What a look at the kept stack told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Same {
    /// It is the current stack, whose node this is.
    Node(u32),
    /// The innermost frame is the current one, but this one below it has changed.
    Changed(usize),
    /// The innermost frame is another.
    No,
}

/// The common case of [`Stack::capture`] in few instructions: the same caller at the same place,
/// and nothing below it changed. Frames below the stack pointer are dropped from `kept`. `word`
/// reads a stack word that was read before.
#[inline(always)]
pub fn same_stack(
    kept: &mut [Frame],
    depth: &mut usize,
    cut: usize,
    at: Registers,
    word: impl Fn(u64) -> u64,
) -> Same {
    let least = if cut == 0 { 0 } else { kept.len() / 2 };
    let Some(mut live) = kept.get_mut(..*depth) else {
        return Same::No;
    };
    while let [.., top] = live
        && top.sp < at.sp
    {
        let n = live.len() - 1;
        live = &mut live[..n];
    }
    *depth = live.len();
    if live.len() <= least {
        return Same::No;
    }
    let Some((top, below)) = live.split_last_mut() else {
        return Same::No;
    };
    let same = top.sp == at.sp
        && (top.key ^ at.pc) << 16 == 0
        && (top.flags & NEEDS_BP == 0 || top.bp == at.bp);
    if !same {
        return Same::No;
    }
    // Innermost now, if it was not before: its rbp is the register's.
    top.bp_slot = 0;
    top.flags &= NEEDS_BP;
    match innermost_changed(below, &word) {
        Some(k) => Same::Changed(k),
        None => Same::Node(top.node),
    }
}

/// The innermost of these frames whose words changed. Four frames at a time: nearly always all four
/// depend on their return addresses only, and none has changed.
#[inline(always)]
pub(crate) fn innermost_changed(frames: &[Frame], word: &impl Fn(u64) -> u64) -> Option<usize> {
    let mut end = frames.len();
    while let Some([a, b, c, d]) = frames[..end].last_chunk() {
        let difference = |f: &Frame| word(f.sp - 8) ^ f.key;
        let differences = difference(a) | difference(b) | difference(c) | difference(d);
        if differences << 16 != 0 || a.flags | b.flags | c.flags | d.flags != 0 {
            let changed = (end - 4..end).rev().find(|&k| !frames[k].unchanged(word));
            if changed.is_some() {
                return changed;
            }
        }
        end -= 4;
    }
    (0..end).rev().find(|&k| !frames[k].unchanged(word))
}

/// Counts of what the unwinder did, for figures and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Frames stepped by a rule.
    pub stepped: u64,
    /// Frames proven unchanged by their words.
    pub verified: u64,
}

/// The kept stack of one thread.
#[derive(Debug)]
pub struct Stack<'a> {
    /// Outermost first; `kept[..depth]` is valid.
    pub kept: &'a mut [Frame],
    /// Room for the frames of one stack, innermost first; as long as `kept`.
    pub scratch: &'a mut [Frame],
    /// Valid frames in `kept`.
    pub depth: &'a mut usize,
    /// Outer frames that are not kept, for the stack is deeper than there is room. A stack of D
    /// frames in room for R is cut by the least multiple of R/2 that makes it fit, so how it is cut
    /// depends on it alone.
    pub cut: &'a mut usize,
    /// What was done.
    pub work: &'a mut Work,
    /// False: unwind every frame anew, for comparison in tests.
    pub reuse: bool,
}

/// Where the walk stands: in the frame that control returns to.
struct Walk {
    sp: u64,
    pc: u64,
    bp: u64,
    bp_slot: u64,
    cfa_slot: u64,
    flags: u32,
}

/// What came of meeting a kept frame.
enum Met {
    /// All below it is unchanged.
    Same,
    /// Something below it changed: the walk goes on from here, the outermost frame that is proven.
    Changed(Walk),
    /// There is no room for what is proven.
    Full,
}

/// How a walk ended.
enum Outer {
    /// It joined the kept stack: `kept[..n]` lies below.
    Kept(usize),
    /// At an outermost frame.
    Root,
    /// No room in `scratch`.
    TooDeep,
    /// Likewise; and this many more frames lie below.
    Beyond(usize),
}

impl Stack<'_> {
    /// Forgets the kept stack: rules or the stack's memory changed.
    pub fn forget(&mut self) {
        (*self.depth, *self.cut) = (0, 0);
    }

    /// The tree node of the current stack, and how many of the frames that are now kept are new and
    /// may be remembered. `seen` is what [`same_stack`] said, if it was asked.
    pub fn capture<M: Machine>(
        &mut self,
        at: Registers,
        seen: Same,
        machine: &mut M,
    ) -> (u32, usize) {
        let room = self.room();
        // A cut stack with no more frames than this would have been cut by less.
        let least = room - room / 2;
        let usable = self.reuse && (*self.cut == 0 || *self.depth > least);
        let candidates = if usable { *self.depth } else { 0 };
        let (new, outer) = self.walk(at, candidates, seen, machine);
        match outer {
            Outer::Root => return (self.keep(0, new, 0, None, machine), 0),
            Outer::Kept(n) => {
                let depth = n + new;
                if depth <= room && (*self.cut == 0 || depth > least) {
                    let node = self.kept[n - 1].node;
                    let node = self.keep(n, new, *self.cut, Some(node), machine);
                    // With outer frames cut, or a signal's frames among them, they are not.
                    let whole = *self.cut == 0 && *self.depth == depth;
                    return (node, if whole { new } else { 0 });
                }
            }
            _ => {}
        }
        (self.capture_deep(at, machine), 0)
    }

    /// A stack that may be deeper than there is room, from its top to its end.
    #[inline(never)]
    fn capture_deep<M: Machine>(&mut self, at: Registers, machine: &mut M) -> u32 {
        let (room, half) = (self.room(), self.room() / 2);
        let (new, outer) = self.walk(at, 0, Same::No, machine);
        let beyond = match outer {
            Outer::Beyond(frames) => frames,
            _ => 0,
        };
        if beyond == 0 {
            return self.keep(0, new, 0, None, machine);
        }
        let cut = beyond.div_ceil(half) * half;
        let root = machine.too_deep();
        self.keep(0, room + beyond - cut, cut, Some(root), machine)
    }

    /// Frames that can be kept; one place of `scratch` is for those that cannot.
    fn room(&self) -> usize {
        self.kept.len() - 1
    }

    /// The innermost of `kept[..n]` whose words changed.
    #[inline(never)]
    fn first_changed<M: Machine>(&mut self, n: usize, machine: &M) -> Option<usize> {
        let changed = innermost_changed(&self.kept[..n], &|a| machine.known_word(a));
        self.work.verified += (n - changed.map_or(0, |k| k + 1)) as u64;
        changed
    }

    /// Unwinds from `at` into `scratch`, trying `kept[..candidates]`; returns the new frames and
    /// what is below.
    fn walk<M: Machine>(
        &mut self,
        at: Registers,
        mut candidates: usize,
        seen: Same,
        machine: &mut M,
    ) -> (usize, Outer) {
        let limit = self.room();
        let mut beyond = 0;
        let mut new = 0;
        // The state, in registers: sp, return address, rbp, where rbp was read; and what only deref
        // rules and signal frames have.
        let Registers { mut sp, mut pc, mut bp } = at;
        let (mut bp_slot, mut cfa_slot, mut flags) = (0, 0, 0);
        let mut signals = 0;
        let mut known = match seen {
            Same::Changed(changed) if candidates > 0 => Some(changed),
            _ => None,
        };
        loop {
            while candidates > 0 && self.kept[candidates - 1].sp < sp {
                candidates -= 1;
            }
            let joins = candidates > 0 && self.kept[candidates - 1].is(sp, pc, bp, flags);
            if joins {
                let w = Walk { sp, pc, bp, bp_slot, cfa_slot, flags };
                match self.meet(&mut candidates, &mut new, known.take(), &w, at.bp, machine) {
                    Met::Same => return (new, Outer::Kept(candidates)),
                    Met::Full => return (new, Outer::TooDeep),
                    Met::Changed(next) => {
                        (sp, pc, bp, flags) = (next.sp, next.pc, next.bp, next.flags)
                    }
                }
            } else {
                if new > limit {
                    if candidates > 0 {
                        return (new, Outer::TooDeep);
                    }
                    // Counted on, in the one place that is left.
                    beyond += 1;
                    new -= 1;
                }
                self.scratch[new] = Frame { sp, key: pc, bp, bp_slot, cfa_slot, node: 0, flags };
                new += 1;
            }
            // The end of the stack, kept as a frame without a node: that the word is 0 must be
            // proven like any other.
            if pc == 0 {
                return at_root(new, beyond, limit);
            }
            let rule = machine.rule(pc, flags & EXACT != 0);
            self.work.stepped += 1;
            self.scratch[new - 1].key = pc | (rule.module() as u64) << 48;
            let Some(usual) = rule.usual() else {
                let w = Walk { sp, pc, bp, bp_slot, cfa_slot, flags };
                let Some(next) = self.step_unusual(new, rule, &w, machine) else {
                    return at_root(new, beyond, limit);
                };
                // A signal's frame may lead anywhere, also back: everything else leads outwards.
                signals += (next.flags & EXACT) / EXACT;
                if signals > SIGNALS_MAX {
                    return at_root(new, beyond, limit);
                }
                (sp, pc, bp) = (next.sp, next.pc, next.bp);
                (bp_slot, cfa_slot, flags) = (next.bp_slot, next.cfa_slot, next.flags);
                continue;
            };
            // Nearly always: the CFA is a register and an offset.
            let base = if usual.by_bp { bp } else { sp };
            let cfa = base.wrapping_add_signed(usual.cfa);
            if usual.by_bp {
                self.need_bp(new, bp);
            }
            let word = if cfa > sp { machine.word(cfa.wrapping_sub(8)) } else { None };
            let slot = cfa.wrapping_add_signed(usual.bp);
            let saved = if usual.bp_saved { machine.word(slot) } else { Some(bp) };
            let (Some(word), Some(saved)) = (word, saved) else {
                machine.ended(Early::OutsideStack);
                return at_root(new, beyond, limit);
            };
            (sp, pc, bp) = (cfa, word & ADDRESS, saved);
            bp_slot = if usual.bp_saved { slot } else { 0 };
            (cfa_slot, flags) = (0, 0);
        }
    }

    /// The walk's state is that of `kept[candidates - 1]`. `known` is the frame below it that was
    /// seen to have changed, if that was looked at already.
    #[inline(always)]
    fn meet<M: Machine>(
        &mut self,
        candidates: &mut usize,
        new: &mut usize,
        known: Option<usize>,
        w: &Walk,
        register: u64,
        machine: &M,
    ) -> Met {
        let changed = known.or_else(|| {
            self.join(*candidates - 1, *new, w);
            self.first_changed(*candidates - 1, machine)
        });
        let Some(changed) = changed else {
            return Met::Same;
        };
        let limit = self.room();
        match self.revise(candidates, changed, new, limit, register, machine) {
            Some(next) => Met::Changed(next),
            None => Met::Full,
        }
    }

    /// Moves the frames that are proven, those inside the changed one, to `scratch`, and takes up
    /// the walk at the outermost of them; none if there is no room.
    #[inline(never)]
    fn revise<M: Machine>(
        &mut self,
        candidates: &mut usize,
        changed: usize,
        new: &mut usize,
        limit: usize,
        register: u64,
        machine: &M,
    ) -> Option<Walk> {
        let proven = changed + 1..*candidates;
        let room = self.scratch.get_mut(*new..limit)?.get_mut(..proven.len())?;
        for (to, from) in room.iter_mut().zip(self.kept[proven.clone()].iter().rev()) {
            *to = *from;
        }
        *new += proven.len();
        *candidates = changed + 1;
        Some(self.resume(*new, register, machine))
    }

    /// Makes kept frame `k` the caller of `scratch[new - 1]`: it now got its rbp and sp by that
    /// frame's rule.
    #[inline(never)]
    fn join(&mut self, k: usize, new: usize, w: &Walk) {
        let frame = &mut self.kept[k];
        let needs = frame.flags & NEEDS_BP;
        frame.bp = w.bp;
        frame.bp_slot = w.bp_slot;
        frame.cfa_slot = w.cfa_slot;
        frame.flags = w.flags | needs;
        if needs != 0 && w.bp_slot == 0 {
            self.need_bp(new, w.bp);
        }
    }

    /// Marks the frames that hand rbp through to the caller of `scratch[new - 1]`, up to the one
    /// where it is read.
    #[inline(never)]
    fn need_bp(&mut self, new: usize, bp: u64) {
        for frame in self.scratch[..new].iter_mut().rev() {
            frame.flags |= NEEDS_BP;
            frame.bp = bp;
            if frame.bp_slot != 0 {
                break;
            }
        }
    }

    /// The state of `scratch[new - 1]`, a frame that was proven unchanged. Its rbp is known only if
    /// it was needed; otherwise the nearest inner frame that read it tells, else the register has
    /// it still.
    fn resume<M: Machine>(&self, new: usize, register: u64, machine: &M) -> Walk {
        let frame = &self.scratch[new - 1];
        let bp = if frame.flags & NEEDS_BP != 0 {
            frame.bp
        } else {
            let read = self.scratch[..new].iter().rev().find(|f| f.bp_slot != 0);
            read.map_or(register, |f| machine.known_word(f.bp_slot))
        };
        Walk {
            sp: frame.sp,
            pc: frame.pc(),
            bp,
            bp_slot: frame.bp_slot,
            cfa_slot: frame.cfa_slot,
            flags: frame.flags & !NEEDS_BP,
        }
    }

    /// From `w`, which is `scratch[new - 1]`, to its caller; none at the end of the stack.
    #[inline(never)]
    fn step_unusual<M: Machine>(
        &mut self,
        new: usize,
        rule: Rule,
        w: &Walk,
        machine: &mut M,
    ) -> Option<Walk> {
        let step = rule.step();
        if step == Step::FramePointer {
            self.need_bp(new, w.bp);
        }
        let (cfa, bp) = match step {
            Step::Frame(cfa, bp) => (cfa, bp),
            Step::End => return None,
            Step::Unknown => {
                machine.ended(Early::NoRule);
                return None;
            }
            Step::Signal => return self.leave_signal(new, w, machine),
            Step::FramePointer if w.bp > w.sp && w.bp & 7 == 0 => (Cfa::Bp(16), Bp::AtCfa(-16)),
            // The ABI's mark of the outermost frame.
            Step::FramePointer if w.bp == 0 => return None,
            Step::FramePointer => {
                machine.ended(Early::NoRule);
                return None;
            }
        };
        if matches!(cfa, Cfa::Bp(_) | Cfa::BpDeref(..)) || matches!(bp, Bp::AtBp(_)) {
            self.need_bp(new, w.bp);
        }
        let next = follow(cfa, bp, w, machine);
        if next.is_none() {
            machine.ended(Early::OutsideStack);
            if matches!(cfa, Cfa::SpDeref(..) | Cfa::BpDeref(..)) {
                self.scratch[new - 1].flags |= UNPROVEN;
            }
        }
        next
    }

    /// Over the kernel's signal frame: sp points at the `ucontext`, whose `gregs` start at byte 40
    /// (Linux x86-64: rbp is the 11th, rsp the 16th, rip the 17th).
    fn leave_signal<M: Machine>(&mut self, new: usize, w: &Walk, machine: &mut M) -> Option<Walk> {
        self.scratch[new - 1].flags |= EXACT;
        let slot = |index: u64| w.sp.wrapping_add(40 + 8 * index);
        let register = |index: u64| machine.word(slot(index));
        let (bp, sp, pc) = (register(10)?, register(15)?, register(16)?);
        (machine.enter(sp) && pc != 0).then_some(Walk {
            sp,
            pc,
            bp,
            bp_slot: slot(10),
            cfa_slot: 0,
            flags: EXACT,
        })
    }

    /// Gives the innermost `new` frames of `scratch` their nodes below `root` and keeps them behind
    /// `base` others.
    fn keep<M: Machine>(
        &mut self,
        base: usize,
        new: usize,
        cut: usize,
        root: Option<u32>,
        machine: &mut M,
    ) -> u32 {
        let mut node = root.unwrap_or(0);
        let mut depth = base;
        let mut keepable = true;
        for i in (0..new).rev() {
            let mut frame = self.scratch[i];
            let exact = frame.flags & EXACT != 0;
            // What a signal interrupted resumes in its own time: nothing from there inwards is
            // kept.
            keepable &= !exact && frame.flags & UNPROVEN == 0;
            if frame.key != 0 {
                node = machine.child(node, frame.key, exact);
            }
            frame.node = node;
            if keepable {
                self.kept[depth] = frame;
                depth += 1;
            }
        }
        (*self.depth, *self.cut) = (depth, cut);
        node
    }
}

/// The end of a walk that found `new` frames, those in the last place of `scratch` counted
/// together.
fn at_root(new: usize, beyond: usize, limit: usize) -> (usize, Outer) {
    if new > limit { (limit, Outer::Beyond(beyond + 1)) } else { (new, Outer::Root) }
}

/// The caller's state by a rule; none if it leads outside the stack or not outwards.
#[inline(always)]
fn follow<M: Machine>(cfa: Cfa, bp: Bp, w: &Walk, machine: &M) -> Option<Walk> {
    let at = |base: u64, n: i64| base.wrapping_add_signed(n);
    let (sp, cfa_slot, flags) = match cfa {
        Cfa::Sp(n) => (at(w.sp, n as i64), 0, 0),
        Cfa::Bp(n) => (at(w.bp, n as i64), 0, 0),
        Cfa::SpDeref(n, m) => through(at(w.sp, n as i64), m, machine)?,
        Cfa::BpDeref(n, m) => through(at(w.bp, n as i64), m, machine)?,
    };
    if sp <= w.sp || sp & 7 != 0 {
        return None;
    }
    let pc = machine.word(sp - 8)? & ADDRESS;
    let bp_slot = match bp {
        Bp::Same => 0,
        Bp::AtCfa(n) => at(sp, n as i64),
        Bp::AtBp(n) => at(w.bp, n as i64),
    };
    let bp = if bp_slot == 0 { w.bp } else { machine.word(bp_slot)? };
    Some(Walk { sp, pc, bp, bp_slot, cfa_slot, flags })
}

#[inline(never)]
fn through<M: Machine>(slot: u64, m: i16, machine: &M) -> Option<(u64, u64, u32)> {
    let sp = machine.word(slot)?.wrapping_add_signed(m as i64);
    Some((sp, slot, DEREF | (m as u16 as u32) << 16))
}
