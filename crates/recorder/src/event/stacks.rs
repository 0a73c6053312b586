//! The stack of an allocation: the interface of the unwinder to the guest's memory.

use crate::event::lane::{BUFFER, LaneState, MEMOS, Others, RANGES, RECALL};
use crate::event::process::{Process, process};
use crate::event::python::Chain;
use crate::event::python_interpreter::{self, ThreadState};
use crate::store::ids::NodeId;
use crate::store::modules::{self, Code};
use crate::store::profile::Cursor;
use crate::store::rules;
use crate::store::shared::{Store, store};
use crate::sys::arch;
use crate::sys::front;
use crate::sys::kernel;
use crate::sys::maps;
use crate::sys::range::Range;
use crate::sys::{confined, own_stack};
use core::mem::offset_of;
use core::slice;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_format::shared::{Node, Word};
use heaptide_format::{
    ADDRESS_BITS, Gap, Kind, Loss, NODE_EXACT_PC, NODE_INTERPRETER, NODE_PYTHON, NODE_PYTHON_STACK,
    PAGE, PYTHON_STACK, node_made,
};
use heaptide_unwind::Rule;
use heaptide_unwind::cache::{self, Slot};
pub use heaptide_unwind::kept::Same;
use heaptide_unwind::kept::{Kept, Registers};
use heaptide_unwind::memo::{self, Memo, Recalled};
use heaptide_unwind::rule::{Bp, Cfa, Ra, Step};
use heaptide_unwind::stack::{Bounds, Early, Machine, Stack};
use heaptide_unwind::table;
use heaptide_unwind::tree::{self, Links, Nodes};

/// Number of children that a search passes before a lane caches the one that it found.
const WIDE: usize = 8;
/// A bit of [`Node::flags`] that only the writer uses: some lane caches children of this node.
const NODE_WIDE: u32 = 1 << 31;
/// Likewise: the interpreter's frames on the path to this node are marked.
const NODE_MARKED: u32 = 1 << 30;
/// The bits of a node's key that hold the address.
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// A bit of the key of a rule: the pc is exact.
const EXACT_KEY: u64 = 1 << 63;
/// Likewise: the entry is one of these steps, or another one.
const CALL_KEY: u64 = 1 << 62;
/// The pc is behind a call.
const BEHIND_CALL: Step = Step::FramePointer;
/// The pc is behind a `nop`, which runtimes put before the code to which their outermost functions
/// return (`goexit` of Go).
const BEHIND_NOP: Step = Step::End;

/// Set once some thread ran on a stack that libc did not allocate. From then on unmapped memory may
/// have been a stack.
pub static OTHER_STACKS: AtomicBool = AtomicBool::new(false);

/// Returns the stack-tree node of the calling thread's stack.
#[inline(always)]
pub fn capture(lane: &mut LaneState, at: Registers) -> NodeId {
    let node = match same(lane, at) {
        Same::Node(node) => NodeId::new(node),
        seen => changed_elsewhere(lane, at, seen),
    };
    with_python(lane, node)
}

/// Returns the node of a stack with the Python frames that the thread executes, if any. `native` is
/// the node of its native frames.
#[inline(always)]
pub fn with_python(lane: &mut LaneState, native: NodeId) -> NodeId {
    if python_interpreter::is_met() { with_python_frames(lane, native) } else { native }
}

#[inline(never)]
fn with_python_frames(lane: &mut LaneState, native: NodeId) -> NodeId {
    let Some(state) = python_interpreter::thread_state() else {
        return native;
    };
    let followed = lane.python.follow(state.address());
    if followed == Some(lane.python.depth())
        && let Some(node) = lane.python.same_joint(native.number())
    {
        return NodeId::new(node);
    }
    with_new_frames(lane, native, &state, followed)
}

/// Does the same for a stack that differs from the thread's last one.
#[inline(never)]
fn with_new_frames(
    lane: &mut LaneState,
    native: NodeId,
    state: &ThreadState,
    followed: Option<usize>,
) -> NodeId {
    let p = store();
    if !lane.python.is_ready(p) {
        p.lost(Loss::NoNode);
        return native;
    }
    let (chain, kept, stack) = (&mut lane.python, &lane.unwinder.kept, lane.stack);
    let (others, nodes) = (&mut lane.others, &mut lane.nodes);
    let (own_stack, recall, index) = (lane.own_stack, lane.recall, lane.place.lane);
    let child = |parent: u32, key: u64, flags: u32| {
        let (bounds, rules) = (bounds_of(stack), [].as_slice());
        let (others, nodes) = (&mut *others, &mut *nodes);
        let mut guest =
            Guest { p: process(), bounds, rules, others, nodes, index, own_stack, recall, flags };
        guest.flagged(parent, key, flags)
    };
    joint(chain, kept, stack, native, (state, followed), child)
}

/// Returns the node of a stack with the native frames `kept` and the Python frames of the thread
/// with this state. `child` returns the child of a node, with flags.
pub fn joint(
    chain: &mut Chain,
    kept: &Kept<'_>,
    stack: Range,
    native: NodeId,
    (state, followed): (&ThreadState, Option<usize>),
    mut child: impl FnMut(u32, u64, u32) -> u32,
) -> NodeId {
    let frames =
        chain.node(state.address(), followed, |parent, key| child(parent, key, NODE_PYTHON));
    if frames == 0 {
        return native;
    }
    let node = chain.joint(native.number(), frames, || {
        mark_interpreter(native, state.address(), stack, kept);
        child(native.number(), PYTHON_STACK | u64::from(frames), NODE_PYTHON_STACK)
    });
    NodeId::new(node)
}

/// Marks the nodes of the native frames that execute Python frames.
#[cold]
#[inline(never)]
fn mark_interpreter(native: NodeId, state: u64, stack: Range, kept: &Kept<'_>) {
    let done = &native.record().flags;
    if native.is_none() || done.get() & NODE_MARKED != 0 {
        return;
    }
    let mark = |node: u32| {
        let flags = &NodeId::new(node).record().flags;
        if node != 0 && flags.get() & NODE_INTERPRETER == 0 {
            flags.fetch_or(NODE_INTERPRETER, Relaxed);
        }
    };
    let code = python_interpreter::entries(state, stack, |address| {
        kept.node_around(address).into_iter().for_each(mark);
    });
    if let Some(code) = code {
        kept.nodes_in(code.low..code.high).for_each(mark);
    }
    // The frames of a remembered inner end are not known here; they were marked when it was
    // unwound.
    if kept.innermost() == Some(native.number()) {
        done.fetch_or(NODE_MARKED, Relaxed);
    }
}

/// Returns whether the stack is the thread's last one.
#[inline(always)]
pub fn same(lane: &mut LaneState, at: Registers) -> Same {
    if lane.generation != store().generation.load(Relaxed) {
        return Same::No;
    }
    // SAFETY: the word was read before in this stack, whose memory exists as long as `generation`
    // is unchanged.
    lane.unwinder.kept.same(at, |address| unsafe { *(address as *const u64) })
}

/// Maximum number of frames of a stack; deeper stacks are cut at their outer end. Memory is only
/// used as far as stacks are deep.
const MAX_DEPTH: usize = 16_384;
/// The same where address space is scarce.
const MAX_DEPTH_SCARCE: usize = 1024;

/// Returns the unwinder's limit of frames per stack in this process.
pub fn max_depth(p: &Store) -> usize {
    if p.scarce.load(Relaxed) { MAX_DEPTH_SCARCE } else { MAX_DEPTH }
}

/// Returns the node that stands for stacks that are not recorded.
pub fn gap(lane: &mut LaneState, gap: Gap) -> NodeId {
    NodeId::new(Guest::of(lane, process()).1.child(0, gap as u64, true))
}

/// Stores the node for stacks that a limit of the profile holds back, if there is a limit.
pub fn prepare_limit(p: &Store) {
    if p.header().profile_limit.get() == 0 {
        return;
    }
    let mut nodes = Cursor::NONE;
    if let Some(node) = nodes.record::<Node>(Kind::Nodes, 0) {
        node.key.set(Gap::ProfileLimit as u64);
        node.flags.set(NODE_EXACT_PC);
        nodes.commit_record(node);
        p.unstored.store(NodeId::of(node).number(), Release);
    }
}

/// Credit for a recalled stack, in failed lookups of memos: a lookup and remembering touch as many
/// cache lines as recalling saves.
const RECALL_PAYS: i32 = 1;
/// Maximum credit of a lane.
const CREDIT_MAX: i32 = 1 << 14;
/// Without credit, one stack in this many is still looked up, since the behaviour of programs
/// changes.
const PROBE: u32 = 32;

/// Returns the node of a stack that differs from the last one: one that a memo remembers, or by
/// unwinding the frames that are not kept. Where stacks hardly ever recur, memos are no longer
/// looked up. `seen` is the result of [`same`].
#[inline(always)]
pub fn changed(lane: &mut LaneState, at: Registers, seen: Same) -> NodeId {
    let p = store();
    if lane.generation != p.generation.load(Relaxed) || !lane.stack.holds(at.sp) {
        find_stack(lane, p, at.sp);
    }
    lane.probe = lane.probe.wrapping_add(1);
    if lane.credit <= 0 && !lane.probe.is_multiple_of(PROBE) {
        return unwound(lane, process(), at, seen).0;
    }
    if let Some(node) = recall(lane, process(), at) {
        lane.credit = (lane.credit + RECALL_PAYS).min(CREDIT_MAX);
        return node;
    }
    lane.credit -= (lane.credit > 0) as i32;
    let (node, new) = unwound(lane, process(), at, seen);
    memo(lane, at).remember(&lane.unwinder.kept, new, at, lane.generation);
    node
}

/// Does the same for events that need not be as fast.
#[inline(never)]
fn changed_elsewhere(lane: &mut LaneState, at: Registers, seen: Same) -> NodeId {
    changed(lane, at, seen)
}

/// Returns the lane's memo for a state.
#[inline(always)]
fn memo(lane: &LaneState, at: Registers) -> &'static mut Memo {
    // SAFETY: the lane's table has MEMOS entries, which only its thread uses, one at a time.
    unsafe { &mut *lane.memos.wrapping_add(memo::place(at, MEMOS)) }
}

/// Returns the node of a stack whose inner end is remembered.
#[inline(always)]
fn recall(lane: &mut LaneState, p: &'static Process, at: Registers) -> Option<NodeId> {
    let (memo, generation) = (memo(lane, at), lane.generation);
    // SAFETY: as in `same`.
    let word = |address| unsafe { *(address as *const u64) };
    match memo.recall(&mut lane.unwinder.kept, at, generation, word) {
        Recalled::Node(node) => Some(NodeId::new(node)),
        Recalled::Below(node) => Some(renamed(lane, p, memo, node)),
        Recalled::No => None,
    }
}

/// Returns the node of a remembered inner end below another node.
#[inline(never)]
fn renamed(lane: &mut LaneState, p: &'static Process, memo: &mut Memo, outer: u32) -> NodeId {
    let (_, mut guest) = Guest::of(lane, p);
    NodeId::new(memo.rename(outer, |parent, key| guest.child(parent, key, false)))
}

/// Returns the node of the stack, by unwinding, and how many of the frames now kept are new and may
/// be remembered.
#[inline(never)]
fn unwound(
    lane: &mut LaneState,
    p: &'static Process,
    at: Registers,
    seen: Same,
) -> (NodeId, usize) {
    let (unwinder, mut guest) = Guest::of(lane, p);
    let (node, new) = unwinder.capture(at, seen, &mut guest);
    (NodeId::new(node), new)
}

/// Finds the range of the stack, after the thread has switched stacks or known ranges may be stale.
#[cold]
#[inline(never)]
pub fn find_stack(lane: &mut LaneState, p: &Store, sp: u64) {
    let generation = p.generation.load(Acquire);
    if lane.generation != generation {
        lane.generation = generation;
        lane.others.ranges = [Range::EMPTY; RANGES];
        if OTHER_STACKS.load(Relaxed) {
            lane.stack = Range::EMPTY;
        }
        lane.unwinder.kept.extent.forget();
    }
    if lane.stack.holds(sp) {
        return;
    }
    let known = lane.stack;
    if front::platform().is_some_and(|platform| !platform.sees_unmapping) {
        // A stack that the thread has left may be unmapped without being noticed, so nothing of it
        // may be read again.
        lane.others.ranges = [Range::EMPTY; RANGES];
        // SAFETY: the lane's table has MEMOS entries, which only its thread uses; all zeros is an
        // empty one.
        unsafe { core::ptr::write_bytes(lane.memos, 0, MEMOS) };
    }
    let range = range_of(&mut lane.others, sp);
    // If it is the same stack, further down than was assumed, the kept frames stay valid.
    let grown = known != Range::EMPTY && range.holds(known.high - 1);
    if !grown {
        lane.unwinder.kept.extent.forget();
        if known != Range::EMPTY {
            OTHER_STACKS.store(true, Relaxed);
        }
    }
    lane.stack = range;
}

/// Returns the stack memory that contains `sp`, cached or looked up; if that fails, the rest of its
/// page.
fn range_of(others: &mut Others, sp: u64) -> Range {
    if let Some(&range) = others.ranges.iter().find(|r| r.holds(sp)) {
        return range;
    }
    // SAFETY: the lane's own buffer.
    let buffer = unsafe { slice::from_raw_parts_mut(others.buffer, BUFFER) };
    let Some(range) = maps::mapping_of(sp, buffer) else {
        return Range { low: sp, high: (sp | 4095) + 1 };
    };
    others.ranges[others.next as usize % RANGES] = range;
    others.next = others.next.wrapping_add(1);
    range
}

/// The guest's memory for the unwinder, and the stack tree for a lane.
pub struct Guest<'a> {
    p: &'static Process,
    bounds: Bounds,
    /// The newest table of rules at the last lookup.
    rules: &'static [Slot],
    others: &'a mut Others,
    nodes: &'a mut Cursor,
    /// The lane's index.
    index: u32,
    own_stack: *mut u8,
    recall: *mut [u64; 2],
    /// Flags of the next node that is created.
    flags: u32,
}

impl Guest<'_> {
    /// Returns the unwinder of a lane, and its guest.
    #[inline(always)]
    fn of<'a>(lane: &'a mut LaneState, p: &'static Process) -> (&'a mut Stack<'static>, Guest<'a>) {
        let guest = Guest {
            p,
            bounds: bounds_of(lane.stack),
            rules: rules::newest(store()),
            others: &mut lane.others,
            nodes: &mut lane.nodes,
            index: lane.place.lane,
            own_stack: lane.own_stack,
            recall: lane.recall,
            flags: 0,
        };
        (&mut lane.unwinder, guest)
    }

    /// Returns the guest of an unwinder that belongs to no lane, for a stack that is unwound from
    /// `sp`. `stack` is the known range of that stack's memory. Nodes are created as those of the
    /// lane with index 0.
    pub fn apart<'a>(
        p: &'static Process,
        (sp, stack): (u64, Range),
        others: &'a mut Others,
        nodes: &'a mut Cursor,
        (own_stack, recall): (*mut u8, *mut [u64; 2]),
    ) -> Guest<'a> {
        others.ranges = [Range::EMPTY; RANGES];
        others.ranges[0] = stack;
        others.next = 1;
        Guest {
            p,
            bounds: bounds_of(range_of(others, sp)),
            rules: rules::newest(store()),
            others,
            nodes,
            index: 0,
            own_stack,
            recall,
            flags: 0,
        }
    }
}

/// Returns whether a node with this key stands for code without a file, not for a gap.
fn is_generated(key: u64) -> bool {
    (PAGE..1 << ADDRESS_BITS).contains(&key)
}

#[inline(always)]
fn bounds_of(range: Range) -> Bounds {
    let low = range.low.next_multiple_of(8);
    Bounds { low, words: range.high.saturating_sub(low) / 8 }
}

impl Machine for Guest<'_> {
    #[inline(always)]
    fn bounds(&self) -> Bounds {
        self.bounds
    }

    #[inline(always)]
    fn known_word(&self, address: u64) -> u64 {
        // SAFETY: read before in this stack, whose memory exists as long as `generation` is
        // unchanged.
        unsafe { *(address as *const u64) }
    }

    fn enter(&mut self, sp: u64) -> bool {
        if !self.bounds.holds(sp) {
            self.bounds = bounds_of(range_of(self.others, sp));
        }
        sp & 7 == 0
    }

    #[inline(always)]
    fn rule(&mut self, pc: u64, exact: bool) -> Rule {
        let key = if exact { pc | EXACT_KEY } else { pc };
        match cache::get(self.rules, key) {
            Some(rule) => rule,
            None => self.new_rule(pc, exact),
        }
    }

    /// Generated code may have return addresses that are not behind a call.
    fn is_return_address(&mut self, pc: u64, is_outermost: bool) -> bool {
        let rule = self.rule(pc, false);
        if rule.module() == 0 || rule.step() == Step::Signal {
            return rule.step() != Step::Unknown;
        }
        let known = cache::get(self.rules, pc | CALL_KEY);
        match known.map_or_else(|| before(pc, rule.module()), Rule::step) {
            BEHIND_CALL => true,
            BEHIND_NOP => is_outermost,
            _ => false,
        }
    }

    #[inline(always)]
    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32 {
        self.flagged(parent, key, if exact { NODE_EXACT_PC } else { 0 })
    }

    fn too_deep(&mut self) -> u32 {
        store().lost(Loss::TooDeep);
        self.child(0, Gap::TooDeep as u64, true)
    }

    #[cold]
    fn ended(&mut self, why: Early) {
        store().lost(match why {
            Early::NoRule => Loss::NoRule,
            Early::OutsideStack => Loss::OutsideStack,
        });
    }
}

impl Guest<'_> {
    /// Returns the child of a node, created with these flags if it is new. If there is no room,
    /// returns `parent`, or with a limit of the profile the node for stacks that it holds back.
    #[inline(always)]
    pub fn flagged(&mut self, parent: u32, key: u64, flags: u32) -> u32 {
        self.flags = flags;
        match tree::child(self, parent, key) {
            Some(node) => node,
            None if self.is_own(key) => parent,
            None => {
                store().lost(Loss::NoNode);
                match store().unstored.load(Relaxed) {
                    0 => parent,
                    unstored => unstored,
                }
            }
        }
    }

    /// Returns whether a return address is in the recorder, whose frames are between those of the
    /// program if it calls back ([`crate::api::inheritance`]). They get no node of their own.
    fn is_own(&self, key: u64) -> bool {
        let own = || front::platform().is_some_and(|p| (p.own_code)().holds(key & ADDRESS));
        self.flags == 0 && own()
    }

    /// Evaluates the rule of a code address, on a stack with enough room.
    #[cold]
    #[inline(never)]
    fn new_rule(&mut self, pc: u64, exact: bool) -> Rule {
        let buffer = self.others.buffer;
        // SAFETY: the lane's own stack, which only its thread uses, and only for this.
        let rule =
            unsafe { own_stack::call_at(self.own_stack, || evaluate(store(), buffer, pc, exact)) };
        self.rules = rules::newest(store());
        rule.unwrap_or(Rule::new(Step::Unknown, 0))
    }
}

#[inline(never)]
fn evaluate(p: &Store, buffer: *mut u8, pc: u64, exact: bool) -> Rule {
    // SAFETY: the lane's own buffer.
    let buffer = unsafe { core::slice::from_raw_parts_mut(buffer, BUFFER) };
    let at = if exact { pc } else { pc - 1 };
    let (step, module) = match modules::modules().code_at(at, buffer) {
        Code::Module(index, sections) => {
            let step = table::step_at(&sections, at);
            (step.unwrap_or_else(|| without_mapped_table(index, pc, at, buffer)), index)
        }
        Code::Bare(index) => (without_mapped_table(index, pc, at, buffer), index),
        Code::Generated => (generated(pc), 0),
        Code::Nothing => (Step::Unknown, 0),
    };
    let rule = Rule::new(step, module);
    p.header().rules_evaluated.fetch_add(1, Relaxed);
    if confined::may_call() || module != 0 {
        rules::keep_rule(p, if exact { pc | EXACT_KEY } else { pc }, rule);
    }
    rule
}

/// Returns the step of code in a module that its mapped tables do not cover.
fn without_mapped_table(module: u16, pc: u64, at: u64, buffer: &mut [u8]) -> Step {
    let in_file = modules::modules().step_in_file(module, at, buffer);
    in_file.unwrap_or_else(|| without_table(pc))
}

/// Returns the step of code in a module that its tables do not cover: a signal trampoline as in
/// musl, or hand-written code.
fn without_table(pc: u64) -> Step {
    let on_page = pc & 4095 <= 4096 - arch::CODE_BEHIND as u64;
    // SAFETY: `pc` is in executable code, which is readable here; only bytes of its page are read.
    let code = on_page.then(|| unsafe { *(pc as *const [u8; arch::CODE_BEHIND]) });
    if code.is_some_and(|code| arch::is_signal_return(&code)) {
        return Step::Signal;
    }
    Step::FramePointer
}

/// Returns what is before a pc in a module, see [`CALL_KEY`], and stores it; a call if the code
/// cannot be read.
#[cold]
#[inline(never)]
fn before(pc: u64, module: u16) -> Step {
    if !confined::may_call() {
        return BEHIND_CALL;
    }
    let mut code = [0; arch::CALL_BYTES];
    let step = match kernel::try_read_own(pc.wrapping_sub(code.len() as u64), &mut code) {
        Ok(bytes) if bytes < code.len() => Step::Unknown,
        Ok(_) if arch::ends_with_call(&code) => BEHIND_CALL,
        Ok(_) if code.ends_with(arch::NOP) => BEHIND_NOP,
        Ok(_) | Err(kernel::EFAULT) => Step::Unknown,
        Err(_) => BEHIND_CALL,
    };
    rules::keep_rule(store(), pc | CALL_KEY, Rule::new(step, module));
    step
}

/// Returns the step of generated code. Functions of CPython's `-X perf` keep no frame pointer; all
/// others are expected to.
fn generated(pc: u64) -> Step {
    let mut code = [0; arch::CODE_BEFORE + arch::CODE_BEHIND];
    let start = pc.wrapping_sub(arch::CODE_BEFORE as u64);
    let is_read = confined::may_call() && kernel::read_own(start, &mut code);
    let (before, behind) = code.split_at(arch::CODE_BEFORE);
    if is_read && arch::is_trampoline_of_python(before, behind) {
        return Step::Frame(Cfa::Sp(16), Bp::Same, Ra::AtCfa(-8));
    }
    Step::FramePointer
}

impl Guest<'_> {
    fn slot(&self, parent: u32, key: u64) -> *mut [u64; 2] {
        let mixed = (key ^ (parent as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.recall.wrapping_add(mixed as usize >> 32 & (RECALL - 1))
    }
}

impl Nodes for Guest<'_> {
    #[inline(always)]
    fn key(&self, node: u32) -> u64 {
        let key = &NodeId::new(node).record().key;
        // SAFETY: written before the node was linked, and not after. Unlike an atomic load, it can
        // be an operand of a comparison.
        unsafe { *key.as_ptr() }
    }

    #[inline(always)]
    fn links(&self, node: u32) -> &Links {
        if node == 0 {
            // SAFETY: atomics in a static.
            return unsafe { &*self.p.root.0.get() };
        }
        let node = core::ptr::from_ref(NodeId::new(node).record());
        // SAFETY: `first`, `next` and `last` of a node have the layout of `Links`, and are only
        // used as such.
        unsafe { &*node.byte_add(offset_of!(Node, first)).cast() }
    }

    fn create(&mut self, parent: u32, key: u64) -> Option<u32> {
        if self.is_own(key) {
            return None;
        }
        let nodes = &mut *self.nodes;
        let node = nodes.record::<Node>(Kind::Nodes, self.index)?;
        node.key.set(key);
        node.parent.set(parent);
        let made = if is_generated(key) { node_made(store().now()) } else { 0 };
        node.flags.set(self.flags | made);
        nodes.commit_record(node);
        Some(NodeId::of(node).number())
    }

    fn discard(&mut self, node: u32) {
        // Created last, by this lane, and never linked.
        let node = NodeId::new(node).record();
        node.key.set(0);
        for word in [&node.parent, &node.first, &node.next, &node.last, &node.site, &node.flags] {
            word.set(0);
        }
        self.nodes.take_back(size_of::<Node>());
    }

    #[inline(always)]
    fn hints(&self) -> bool {
        !self.p.threaded.load(Relaxed)
    }

    fn recall(&self, parent: u32, key: u64) -> Option<u32> {
        if parent == 0 || NodeId::new(parent).record().flags.get() & NODE_WIDE == 0 {
            return None;
        }
        // SAFETY: an entry of the lane's own table.
        let [known, child_and_parent] = unsafe { *self.slot(parent, key) };
        let (child, of) = (child_and_parent as u32, (child_and_parent >> 32) as u32);
        (known == key && of == parent && child != 0).then_some(child)
    }

    fn remember(&mut self, parent: u32, key: u64, child: u32, walked: usize) {
        if parent == 0 || (walked < WIDE && self.hints()) {
            return;
        }
        let flags = &NodeId::new(parent).record().flags;
        if flags.get() & NODE_WIDE == 0 {
            flags.fetch_or(NODE_WIDE, Relaxed);
        }
        // SAFETY: an entry of the lane's own table.
        unsafe { *self.slot(parent, key) = [key, (parent as u64) << 32 | child as u64] };
    }
}

const _: () = assert!(ADDRESS_BITS == 48 && size_of::<Links>() == 12);
