//! Frames of CPython: reads those of the calling thread, and finds the node of their stack.
//!
//! The code object and instruction of each frame are compared with those of the last time; names,
//! file and line are read only for new pairs.

use crate::event::python_codes;
use crate::event::python_interpreter::{
    BYTES, CIRCLE, Known, LENGTH, TYPE, field, innermost, known, text, word,
};
use crate::store::ids::PythonLineId;
use crate::store::python_lines;
use crate::store::shared::{Store, store};
use crate::sys::front;
use crate::sys::memory::{self, InChild};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::{Loss, PYTHON_ENTRY, PYTHON_FRAME, PYTHON_ROOT};
use heaptide_unwind::python::{Entry, Instruction, Layout, ON_C_STACK, REFERENCE_BITS, line};

/// Maximum number of Python frames of a stack; outer frames beyond are cut.
const DEPTH_MAX: usize = 8192;
/// The same where address space is scarce.
const DEPTH_MAX_SCARCE: usize = 1024;
/// Entries of each of a lane's tables, at first and at most; powers of two.
const ROOM_FIRST: usize = 1 << 10;
const ROOM_MAX: usize = 1 << 14;
/// Failed lookups per entry of a table after which the tables grow.
const MISSES: usize = 2;
/// Maximum number of inner frames of the kept stack that a new stack may lack, and of frames that
/// it may have instead. Within these, the new stack is joined to the kept one.
const LEFT_MAX: usize = 16;
const NEW_MAX: usize = 6;
/// Maximum size of a function's name, and of a file's, in bytes.
const TEXT_MAX: usize = 4096;
/// Maximum number of bytes of a line table that are read.
const TABLE_MAX: u64 = 1 << 24;

/// The parts of a frame that its node depends on. The lowest bit of `at` is set if the interpreter
/// was entered with the frame; the bits above it hold the address or number of the instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Place {
    code: u64,
    at: u64,
}

/// A frame and its place.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    address: u64,
    place: Place,
}

/// A frame of the stack that a lane had last, and its node. Valid until its code object is
/// replaced.
#[derive(Clone, Copy)]
#[repr(C)]
struct Kept {
    frame: Frame,
    node: u32,
    version: u32,
}

/// The line of a place. Valid until its code object is replaced.
#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    place: Place,
    version: u32,
    line: PythonLineId,
}

/// The node of a place below another node. Valid until its code object is replaced.
#[derive(Clone, Copy)]
#[repr(C)]
struct Child {
    place: Place,
    parent: u32,
    version: u32,
    node: u64,
}

/// A stack with Python frames: the node of its native frames, that of its Python frames, and its
/// own.
#[derive(Clone, Copy)]
#[repr(C)]
struct Joint {
    native: u32,
    python: u32,
    node: u64,
}

/// The Python frames that a lane had last, outermost first, and its tables of places. All zeros: no
/// frames and no memory.
#[repr(C)]
pub struct Chain {
    /// `room` entries each.
    kept: *mut Kept,
    scratch: *mut Frame,
    /// 2 × [`TEXT_MAX`] bytes.
    text: *mut u8,
    room: usize,
    /// `entries` entries each.
    lines: *mut Line,
    children: *mut Child,
    joints: *mut Joint,
    entries: usize,
    /// Failed lookups since the tables were last enlarged.
    misses: usize,
    /// Number of frames in `kept`, and number of outer frames that were cut.
    depth: usize,
    cut: usize,
    /// [`python_codes::generation`] at the last check whether code objects of kept frames were
    /// replaced.
    generation: u32,
    /// The node below which the Python frames are; 0 if unknown.
    root: u32,
}

/// Evaluates `$body` with `$read`, which reads a frame of Python code: its place, and the next
/// outer frame of Python code, or 0. Expanded once for each layout of versions: a decision for each
/// frame would cost as much as reading it.
macro_rules! by_version {
    ($layout:expr, |$read:ident| $body:expr) => {{
        let (caller, code) = ($layout.caller, $layout.code);
        match ($layout.entry, $layout.instruction) {
            (Entry::Shim(owner), Instruction::Address(at, _)) => {
                let $read = |frame: u64| {
                    // With a frame on the C stack around it, the interpreter was entered with it.
                    let around = field(frame, caller);
                    let next = past_shims(around, owner, caller);
                    let at = field(frame, at) & !1 | u64::from(next != around);
                    (Place { code: field(frame, code) & !REFERENCE_BITS, at }, next)
                };
                $body
            }
            (Entry::Flagged { flag, .. }, Instruction::Address(at, _)) => {
                let $read = |frame: u64| {
                    let at = field(frame, at) & !1 | u64::from(field(frame, flag) as u8 != 0);
                    (Place { code: field(frame, code), at }, field(frame, caller))
                };
                $body
            }
            (_, Instruction::Number(at, _) | Instruction::Address(at, _)) => {
                let $read = |frame: u64| {
                    let at = (field(frame, at) as u32 as u64) << 1 | 1;
                    (Place { code: field(frame, code), at }, field(frame, caller))
                };
                $body
            }
        }
    }};
}

impl Chain {
    /// A chain without memory.
    pub const EMPTY: Chain = Chain {
        kept: ptr::null_mut(),
        scratch: ptr::null_mut(),
        text: ptr::null_mut(),
        room: 0,
        lines: ptr::null_mut(),
        children: ptr::null_mut(),
        joints: ptr::null_mut(),
        entries: 0,
        misses: 0,
        depth: 0,
        cut: 0,
        generation: 0,
        root: 0,
    };

    /// Allocates memory, if there is none yet. Returns false if there is none.
    #[inline(always)]
    pub fn is_ready(&mut self, p: &Store) -> bool {
        !self.kept.is_null() || self.create(p)
    }

    #[cold]
    #[inline(never)]
    fn create(&mut self, p: &Store) -> bool {
        let room = if p.scarce.load(Relaxed) { DEPTH_MAX_SCARCE } else { DEPTH_MAX };
        let sizes = [room * size_of::<Kept>(), room * size_of::<Frame>(), 2 * TEXT_MAX];
        if self.entries == 0 && !self.remember(ROOM_FIRST) {
            return false;
        }
        let memory = memory::take(sizes.iter().sum(), InChild::Nothing);
        if memory.is_null() {
            return false;
        }
        let start = |part: usize| memory.wrapping_add(sizes.iter().take(part).sum());
        self.kept = memory as *mut Kept;
        self.scratch = start(1) as *mut Frame;
        self.text = start(2);
        (self.room, self.generation) = (room, python_codes::generation());
        true
    }

    /// Allocates memory for `entries` of each table. Returns false if there is none.
    fn remember(&mut self, entries: usize) -> bool {
        let (lines, children) = (entries * size_of::<Line>(), entries * size_of::<Child>());
        let all = lines + children + entries * size_of::<Joint>();
        let memory = memory::take(all, InChild::Nothing);
        self.misses = 0;
        if memory.is_null() {
            return false;
        }
        self.children = memory as *mut Child;
        self.lines = memory.wrapping_add(children) as *mut Line;
        self.joints = memory.wrapping_add(children + lines) as *mut Joint;
        self.entries = entries;
        true
    }

    /// Counts a failed lookup, and enlarges the tables if they are too small for the program.
    #[inline(always)]
    fn missed(&mut self) {
        self.misses += 1;
        if self.misses > self.entries * MISSES && self.entries < ROOM_MAX {
            self.enlarge();
        }
    }

    #[cold]
    #[inline(never)]
    fn enlarge(&mut self) {
        // The former tables stay: those of a lane take at most a third of the size of the last
        // ones.
        if store().scarce.load(Relaxed) || !self.remember(self.entries * 4) {
            self.misses = 0;
        }
    }

    /// Returns the node of the stack with this native node and the kept frames; none if it is not
    /// known.
    #[inline(always)]
    pub fn same_joint(&self, native: u32) -> Option<u32> {
        let python = self.kept().last()?.node;
        let joint = self.joint_of(native, python);
        (joint.native == native && joint.python == python).then_some(joint.node as u32)
    }

    /// Returns the node of the Python frames of the thread with this state; 0 if it executes none.
    /// `followed` is the result of [`Chain::follow`] for the kept frames. `child` returns the child
    /// of a node.
    #[inline(always)]
    pub fn node(
        &mut self,
        state: u64,
        followed: Option<usize>,
        mut child: impl FnMut(u32, u64) -> u32,
    ) -> u32 {
        let followed = followed.or_else(|| self.join(state));
        let Some(same) = followed.or_else(|| self.begin_anew(state, &mut child)) else {
            return 0;
        };
        let kept = self.kept();
        let mut node = same.checked_sub(1).map_or(self.root, |last| kept[last].node);
        for kept in &mut kept[same..] {
            kept.version = python_codes::version(kept.frame.place.code);
            node = self.child(node, (kept.frame.place, kept.version), &mut child);
            kept.node = node;
        }
        node
    }

    /// Returns the number of frames that are kept.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the frames that are kept, outermost first.
    #[inline(always)]
    fn kept<'a>(&self) -> &'a mut [Kept] {
        if self.depth == 0 {
            return &mut []; // there may be no memory yet
        }
        // SAFETY: that many in the lane's own memory, which nothing else refers to now.
        unsafe { core::slice::from_raw_parts_mut(self.kept, self.depth) }
    }

    /// Walks the kept frames from the innermost on, and updates their places. Returns how many
    /// outer frames still have the same place; none if frames were added or removed.
    #[inline(always)]
    pub fn follow(&mut self, state: u64) -> Option<usize> {
        let layout = &known().layout;
        let innermost = innermost_of_python(layout, state);
        self.look_for_replaced();
        if self.kept().last()?.frame.address != innermost {
            return None;
        }
        by_version!(layout, |read| self.follow_by(innermost, read))
    }

    #[inline(always)]
    fn look_for_replaced(&mut self) {
        if self.generation != python_codes::generation() {
            self.forget_replaced();
        }
    }

    /// Keeps only the frames outside of the first one whose code object was replaced.
    #[cold]
    #[inline(never)]
    fn forget_replaced(&mut self) {
        self.generation = python_codes::generation();
        let is_replaced =
            |kept: &Kept| kept.version != python_codes::version(kept.frame.place.code);
        self.depth = self.kept().iter().position(is_replaced).unwrap_or(self.depth);
    }

    #[inline(always)]
    fn follow_by(&mut self, innermost: u64, read: impl Fn(u64) -> (Place, u64)) -> Option<usize> {
        let kept = self.kept();
        let (mut same, mut left, mut next) = (kept.len(), kept.len(), innermost);
        for (index, Kept { frame, .. }) in kept.iter_mut().enumerate().rev() {
            if frame.address != next {
                break;
            }
            let place;
            (place, next) = read(next);
            if frame.place != place {
                (frame.place, same) = (place, index);
            }
            left = index;
        }
        if left > 0 || next != 0 {
            self.depth = same; // the nodes of the others are those of former places
            return None;
        }
        Some(same)
    }

    /// Joins a new stack to the kept one if they are similar. Returns how many outer frames still
    /// have the same place.
    #[inline(never)]
    fn join(&mut self, state: u64) -> Option<usize> {
        self.look_for_replaced();
        let layout = &known().layout;
        let innermost = innermost_of_python(layout, state);
        by_version!(layout, |read| self.join_by(innermost, read))
    }

    #[inline(always)]
    fn join_by(
        &mut self,
        innermost: u64,
        read: impl Fn(u64) -> (Place, u64) + Copy,
    ) -> Option<usize> {
        let kept = self.kept();
        let first = kept.len().saturating_sub(LEFT_MAX);
        // SAFETY: `room` frames of the lane's own memory.
        let frames = unsafe { core::slice::from_raw_parts_mut(self.scratch, NEW_MAX) };
        let mut next = innermost;
        let joins = |next: u64| kept[first..].iter().rposition(|k| k.frame.address == next);
        for count in 0..=NEW_MAX {
            if let Some(index) = joins(next) {
                let outer = first + index + 1;
                if outer + count > self.room {
                    return None;
                }
                self.depth = outer;
                let same = self.follow_by(next, read)?;
                self.depth = outer + count;
                let inner = &mut self.kept()[outer..];
                for (kept, &frame) in inner.iter_mut().zip(frames[..count].iter().rev()) {
                    kept.frame = frame;
                }
                return Some(same);
            }
            if next == 0 {
                return None;
            }
            let address = next;
            let place;
            (place, next) = read(address);
            *frames.get_mut(count)? = Frame { address, place };
        }
        None
    }

    /// Reads all frames anew. Returns how many outer frames still have the same place; none if
    /// there are no frames.
    #[inline(never)]
    fn begin_anew(&mut self, state: u64, child: &mut impl FnMut(u32, u64) -> u32) -> Option<usize> {
        let found = self.walk(&known().layout, state);
        if found == 0 {
            return None;
        }
        let cut = if found > self.room { self.cut_of(found) } else { 0 };
        if self.cut != cut || self.root == 0 {
            self.begin(cut, child);
        }
        let before = self.depth;
        self.depth = found - cut;
        // SAFETY: that many in the lane's own memory, which nothing else refers to now.
        let frames = unsafe { core::slice::from_raw_parts(self.scratch, self.depth) };
        let mut same = 0;
        for (index, (kept, &frame)) in self.kept().iter_mut().zip(frames.iter().rev()).enumerate() {
            if index == same && index < before && kept.frame.place == frame.place {
                same += 1;
            }
            kept.frame = frame;
        }
        Some(same)
    }

    /// Returns the node of a place below another node. `version` is that of the place's code
    /// object.
    #[inline(always)]
    fn child(
        &mut self,
        parent: u32,
        (place, version): (Place, u32),
        child: &mut impl FnMut(u32, u64) -> u32,
    ) -> u32 {
        let mixed = place.mixed() ^ (parent as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let at = self.entry(mixed);
        // SAFETY: an index below `entries` of the lane's own memory.
        let known = unsafe { &*self.children.wrapping_add(at) };
        if known.place == place && known.parent == parent && known.version == version {
            return known.node as u32;
        }
        let entry = if place.at & 1 != 0 { PYTHON_ENTRY } else { 0 };
        let line = u64::from(self.line(place, version).number());
        let node = child(parent, PYTHON_FRAME | entry | line);
        // SAFETY: as above.
        unsafe {
            *self.children.wrapping_add(at) = Child { place, parent, version, node: node.into() };
        }
        self.missed();
        node
    }

    /// Returns the node of a stack with these native and Python frames. If it is not known, `make`
    /// makes it.
    #[inline(always)]
    pub fn joint(&mut self, native: u32, python: u32, make: impl FnOnce() -> u32) -> u32 {
        let known = self.joint_of(native, python);
        if known.native == native && known.python == python {
            return known.node as u32;
        }
        let node = make();
        *known = Joint { native, python, node: u64::from(node) };
        self.missed();
        node
    }

    /// Returns the table entry for the stack with these frames.
    #[inline(always)]
    fn joint_of<'a>(&self, native: u32, python: u32) -> &'a mut Joint {
        let both = (native as u64) << 32 | python as u64;
        let at = self.entry(both.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // SAFETY: an index below `entries` of the lane's own memory, which nothing else refers to
        // now.
        unsafe { &mut *self.joints.wrapping_add(at) }
    }

    /// Returns the index of the table entry for these mixed bits.
    #[inline(always)]
    fn entry(&self, mixed: u64) -> usize {
        mixed as usize >> 40 & self.entries.wrapping_sub(1)
    }

    /// Returns how many of `found` frames are cut, from the outer end. As with native frames, this
    /// depends on their number alone.
    #[cold]
    #[inline(never)]
    fn cut_of(&self, found: usize) -> usize {
        (found - self.room).next_multiple_of(self.room / 2)
    }

    /// Starts without kept frames.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, cut: usize, child: &mut impl FnMut(u32, u64) -> u32) {
        (self.depth, self.cut) = (0, cut);
        self.root = child(0, PYTHON_ROOT);
        if cut > 0 {
            store().lost(Loss::TooDeep);
            let line = python_lines::id(b"[deeper Python frames cut]", b"", 0);
            self.root = child(self.root, PYTHON_FRAME | u64::from(line.number()));
        }
    }

    /// Stores the frames of a thread in `scratch`, innermost first, as long as there is room, and
    /// returns how many there are.
    #[inline(always)]
    fn walk(&mut self, layout: &Layout, state: u64) -> usize {
        let innermost = innermost_of_python(layout, state);
        by_version!(layout, |read| self.walk_by(layout.caller, innermost, read))
    }

    #[inline(always)]
    fn walk_by(
        &mut self,
        caller: u16,
        mut address: u64,
        read: impl Fn(u64) -> (Place, u64),
    ) -> usize {
        // SAFETY: `room` frames of the lane's own memory.
        let frames = unsafe { core::slice::from_raw_parts_mut(self.scratch, self.room) };
        let mut count = 0;
        while address != 0 {
            let Some(frame) = frames.get_mut(count) else {
                return count + beyond(address, caller);
            };
            let (place, next) = read(address);
            *frame = Frame { address, place };
            address = next;
            count += 1;
        }
        count
    }

    /// Returns the record of a place's line.
    #[cold]
    #[inline(never)]
    fn line(&self, place: Place, version: u32) -> PythonLineId {
        // SAFETY: an index below `entries` of the lane's own memory.
        let known = unsafe { &mut *self.lines.wrapping_add(self.entry(place.mixed())) };
        if known.place != place || known.version != version || known.line.is_none() {
            *known = Line { place, version, line: self.read(place) };
        }
        known.line
    }

    /// Reads name, file and line of a place.
    #[inline(never)]
    fn read(&self, place: Place) -> PythonLineId {
        front::python_runs();
        let (known, code) = (known(), place.code);
        let layout = &known.layout;
        let is_code = code != 0 && word(code + TYPE) == known.code_type;
        if !is_code {
            return python_lines::id(b"[unknown Python code]", b"", 0);
        }
        if !python_codes::insert(code) {
            store().lost(Loss::NoNode);
        }
        // SAFETY: the lane's own memory, a half for each.
        let (function, file) = unsafe {
            (
                core::slice::from_raw_parts_mut(self.text, TEXT_MAX),
                core::slice::from_raw_parts_mut(self.text.wrapping_add(TEXT_MAX), TEXT_MAX),
            )
        };
        let function = text(known, field(code, layout.code_name), function);
        let file = text(known, field(code, layout.code_file), file);
        python_lines::id(function, file, self.line_of(known, place))
    }

    fn line_of(&self, known: &Known, place: Place) -> u32 {
        let layout = &known.layout;
        let lines = field(place.code, layout.code_lines);
        if lines == 0 || word(lines + TYPE) != known.bytes_type {
            return 0;
        }
        let length = word(lines + LENGTH).min(TABLE_MAX) as usize;
        // SAFETY: the bytes of a bytes object, which has at least that many.
        let table = unsafe { core::slice::from_raw_parts((lines + BYTES) as *const u8, length) };
        let first = field(place.code, layout.code_first_line) as i32;
        let at = match layout.instruction {
            Instruction::Number(_, bytes) => {
                i64::from((place.at >> 1) as u32 as i32) * i64::from(bytes)
            }
            Instruction::Address(_, start) => {
                (place.at & !1).wrapping_sub(place.code + u64::from(start)) as i64
            }
        };
        // Instructions that prepare a call, such as those for cells of variables, have no line; the
        // first one of a module has line 0.
        let line = line(layout.lines, table, i64::from(first), at);
        line.filter(|&line| line > 0).unwrap_or(first as u32)
    }
}

/// Returns a frame, or the first outer one that is not on the C stack; 0 if there is none.
#[inline(always)]
fn past_shims(mut frame: u64, owner: u16, caller: u16) -> u64 {
    while frame != 0 && field(frame, owner) as u8 >= ON_C_STACK {
        frame = field(frame, caller);
    }
    frame
}

/// Returns the innermost frame of Python code of the thread with this state; 0 if there is none.
#[inline(always)]
fn innermost_of_python(layout: &Layout, state: u64) -> u64 {
    let frame = innermost(layout, state);
    match layout.entry {
        Entry::Shim(owner) => past_shims(frame, owner, layout.caller),
        _ => frame,
    }
}

impl Place {
    #[inline(always)]
    fn mixed(self) -> u64 {
        (self.code ^ self.at << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Returns how many frames there are from `frame` outwards, including those without Python code.
#[cold]
#[inline(never)]
fn beyond(mut frame: u64, caller: u16) -> usize {
    let mut count = 0;
    while frame != 0 && count < CIRCLE {
        count += 1;
        frame = field(frame, caller);
    }
    count
}
