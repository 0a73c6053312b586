//! Frames of CPython: reads those of the calling thread, and finds the node of their stack.
//!
//! Of a frame, the code object and the instruction are compared with those of last time; names,
//! file and line are read when such a pair is new.

use crate::event::python_codes;
use crate::event::python_interpreter::{
    BYTES, CIRCLE, Known, LENGTH, TYPE, field, innermost, known, text, word,
};
use crate::store::ids::PythonLineId;
use crate::store::python_lines;
use crate::store::shared::{Store, store};
use crate::sys::memory::{self, InChild};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::{Loss, PYTHON_ENTRY, PYTHON_FRAME, PYTHON_ROOT};
use heaptide_unwind::python::{Entry, Instruction, Layout, ON_C_STACK, REFERENCE_BITS, line};

/// Python frames of a stack; outer ones beyond are cut.
const DEPTH_MAX: usize = 8192;
/// The same where address space is scarce.
const DEPTH_MAX_SCARCE: usize = 1024;
/// Places of instructions that a lane remembers the lines of; a power of two.
const PLACES: usize = 1024;
/// Bytes of a function's name, and of a file's.
const TEXT_MAX: usize = 4096;
/// Bytes of a line table that are read.
const TABLE_MAX: u64 = 1 << 24;

/// A frame as far as its node depends on it. The lowest bit of `at`: the interpreter was entered
/// with it; above it the address or number of the instruction.
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

/// A frame of the stack that a lane had last, and its node.
#[derive(Clone, Copy)]
#[repr(C)]
struct Kept {
    frame: Frame,
    node: u64,
}

/// The line of a place, while no code object was replaced.
#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    place: Place,
    generation: u32,
    line: PythonLineId,
}

/// The node of a place below another one, while no code object was replaced.
#[derive(Clone, Copy)]
#[repr(C)]
struct Child {
    place: Place,
    parent: u32,
    generation: u32,
    node: u64,
}

/// A stack with Python frames: the nodes of its native and of its Python frames, and its own.
#[derive(Clone, Copy)]
#[repr(C)]
struct Joint {
    native: u32,
    python: u32,
    node: u64,
}

/// The Python frames that a lane had last, outermost first, and what is remembered of places. Zero
/// is: nothing, and no memory for it.
#[repr(C)]
pub struct Chain {
    /// `room` of each.
    kept: *mut Kept,
    scratch: *mut Frame,
    /// [`PLACES`] of each.
    lines: *mut Line,
    children: *mut Child,
    joints: *mut Joint,
    /// 2 × [`TEXT_MAX`] bytes.
    text: *mut u8,
    room: usize,
    /// Frames in `kept`, and outer ones that were cut.
    depth: usize,
    cut: usize,
    /// [`python_codes::generation`] that all that is of.
    generation: u32,
    /// The node below which Python frames are; 0 if it is not known.
    root: u32,
}

/// Evaluates `$body` with `$read`, which reads a frame of Python code: its place, and the next
/// outer one of Python code, or 0. Once for each way in which versions have their frames: a choice
/// for each frame costs as much as reading it.
macro_rules! by_version {
    ($layout:expr, |$read:ident| $body:expr) => {{
        let (caller, code) = ($layout.caller, $layout.code);
        match ($layout.entry, $layout.instruction) {
            (Entry::Shim(owner), Instruction::Address(at, _)) => {
                let $read = |frame: u64| {
                    // With a frame on the C stack round it, the interpreter was entered with it.
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
    /// One without memory.
    pub const EMPTY: Chain = Chain {
        kept: ptr::null_mut(),
        scratch: ptr::null_mut(),
        lines: ptr::null_mut(),
        children: ptr::null_mut(),
        joints: ptr::null_mut(),
        text: ptr::null_mut(),
        room: 0,
        depth: 0,
        cut: 0,
        generation: 0,
        root: 0,
    };

    /// Takes memory, if there is none yet. False if there is none to take.
    #[inline(always)]
    pub fn is_ready(&mut self, p: &Store) -> bool {
        !self.kept.is_null() || self.create(p)
    }

    #[cold]
    #[inline(never)]
    fn create(&mut self, p: &Store) -> bool {
        let room = if p.scarce.load(Relaxed) { DEPTH_MAX_SCARCE } else { DEPTH_MAX };
        let sizes = [
            room * size_of::<Kept>(),
            room * size_of::<Frame>(),
            PLACES * size_of::<Line>(),
            PLACES * size_of::<Child>(),
            PLACES * size_of::<Joint>(),
            2 * TEXT_MAX,
        ];
        let memory = memory::take(sizes.iter().sum(), InChild::Nothing);
        if memory.is_null() {
            return false;
        }
        let start = |part: usize| memory.wrapping_add(sizes.iter().take(part).sum());
        *self = Chain {
            kept: memory as *mut Kept,
            scratch: start(1) as *mut Frame,
            lines: start(2) as *mut Line,
            children: start(3) as *mut Child,
            joints: start(4) as *mut Joint,
            text: start(5),
            room,
            depth: 0,
            cut: 0,
            generation: python_codes::generation(),
            root: 0,
        };
        true
    }

    /// The node of the stack with this native node and the frames that are kept; none if it is not
    /// remembered.
    #[inline(always)]
    pub fn same_joint(&self, native: u32) -> Option<u32> {
        let python = self.kept().last()?.node as u32;
        let joint = self.joint_of(native, python);
        (joint.native == native && joint.python == python).then_some(joint.node as u32)
    }

    /// The node of the Python frames of the thread with this state; 0 if it executes none. Of the
    /// frames that are kept, `followed` are what [`Chain::follow`] returned. `child` returns the
    /// child of a node.
    #[inline(always)]
    pub fn node(
        &mut self,
        state: u64,
        followed: Option<usize>,
        mut child: impl FnMut(u32, u64) -> u32,
    ) -> u32 {
        let Some(same) = followed.or_else(|| self.renew(state, &mut child)) else {
            return 0;
        };
        let kept = self.kept();
        let mut node = same.checked_sub(1).map_or(self.root, |last| kept[last].node as u32);
        for kept in &mut kept[same..] {
            node = self.child(node, kept.frame.place, &mut child);
            kept.node = u64::from(node);
        }
        node
    }

    /// How many frames are kept.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The frames that are kept, outermost first.
    #[inline(always)]
    fn kept<'a>(&self) -> &'a mut [Kept] {
        if self.depth == 0 {
            return &mut []; // there may be no memory yet
        }
        // SAFETY: so many in the lane's own memory, which nothing else refers to now.
        unsafe { core::slice::from_raw_parts_mut(self.kept, self.depth) }
    }

    /// Goes along the frames that are kept, from the innermost on, and takes their places as they
    /// are now. Returns how many outer ones have the place that they had; none if frames have come
    /// or gone.
    #[inline(always)]
    pub fn follow(&mut self, state: u64) -> Option<usize> {
        let layout = &known().layout;
        let innermost = innermost_of_python(layout, state);
        let is_last = self.kept().last()?.frame.address == innermost;
        if !is_last || self.generation != python_codes::generation() {
            return None;
        }
        by_version!(layout, |read| self.follow_by(innermost, read))
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
            self.depth = same; // of the others, the nodes are those of former places
            return None;
        }
        Some(same)
    }

    /// Keeps all frames anew. Returns how many outer ones have the place that they had; none if
    /// there are no frames.
    #[inline(never)]
    fn renew(&mut self, state: u64, child: &mut impl FnMut(u32, u64) -> u32) -> Option<usize> {
        let found = self.walk(&known().layout, state);
        if found == 0 {
            return None;
        }
        let cut = if found > self.room { self.cut_of(found) } else { 0 };
        if self.generation != python_codes::generation() || self.cut != cut || self.root == 0 {
            self.begin(cut, child);
        }
        let before = self.depth;
        self.depth = found - cut;
        // SAFETY: so many in the lane's own memory, which nothing else refers to now.
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

    /// The node of a place below another one.
    #[inline(always)]
    fn child(&self, parent: u32, place: Place, child: &mut impl FnMut(u32, u64) -> u32) -> u32 {
        let mixed = place.mixed() ^ (parent as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        // SAFETY: one of PLACES in the lane's own memory.
        let known =
            unsafe { &mut *self.children.wrapping_add(mixed as usize >> 40 & (PLACES - 1)) };
        let generation = self.generation;
        if known.place != place || known.parent != parent || known.generation != generation {
            let entry = if place.at & 1 != 0 { PYTHON_ENTRY } else { 0 };
            let line = u64::from(self.line(place).number());
            let node = u64::from(child(parent, PYTHON_FRAME | entry | line));
            *known = Child { place, parent, generation, node };
        }
        known.node as u32
    }

    /// The node of a stack with these native and Python frames, made by `make` unless it is
    /// remembered.
    #[inline(always)]
    pub fn joint(&self, native: u32, python: u32, make: impl FnOnce() -> u32) -> u32 {
        let known = self.joint_of(native, python);
        if known.native != native || known.python != python {
            *known = Joint { native, python, node: u64::from(make()) };
        }
        known.node as u32
    }

    /// What is remembered where the stack with these frames is.
    #[inline(always)]
    fn joint_of<'a>(&self, native: u32, python: u32) -> &'a mut Joint {
        let both = (native as u64) << 32 | python as u64;
        let mixed = both.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: one of PLACES in the lane's own memory, which nothing else refers to now.
        unsafe { &mut *self.joints.wrapping_add(mixed as usize >> 40 & (PLACES - 1)) }
    }

    /// How many of so many frames are cut, the outer ones: as with native frames, that depends on
    /// their number alone.
    #[cold]
    #[inline(never)]
    fn cut_of(&self, found: usize) -> usize {
        (found - self.room).next_multiple_of(self.room / 2)
    }

    /// Begins anew, with nothing kept.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, cut: usize, child: &mut impl FnMut(u32, u64) -> u32) {
        (self.depth, self.cut, self.generation) = (0, cut, python_codes::generation());
        self.root = child(0, PYTHON_ROOT);
        if cut > 0 {
            store().lost(Loss::TooDeep);
            let line = python_lines::id(b"[deeper Python frames cut]", b"", 0);
            self.root = child(self.root, PYTHON_FRAME | u64::from(line.number()));
        }
    }

    /// Puts the frames of a thread in `scratch`, innermost first, as far as there is room, and
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

    /// The record of a place's line.
    #[cold]
    #[inline(never)]
    fn line(&self, place: Place) -> PythonLineId {
        let slot = place.mixed() as usize >> 40 & (PLACES - 1);
        // SAFETY: one of PLACES in the lane's own memory.
        let known = unsafe { &mut *self.lines.wrapping_add(slot) };
        if known.place != place || known.generation != self.generation || known.line.is_none() {
            *known = Line { place, generation: self.generation, line: self.read(place) };
        }
        known.line
    }

    /// Reads name, file and line of a place.
    #[inline(never)]
    fn read(&self, place: Place) -> PythonLineId {
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
        // SAFETY: the bytes of a bytes object, as many as it has at least.
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
        // What prepares a call, such as cells of variables, has no line.
        line(layout.lines, table, i64::from(first), at).unwrap_or(first as u32)
    }
}

/// A frame, or the first one outwards that is not on the C stack; 0 if there is none.
#[inline(always)]
fn past_shims(mut frame: u64, owner: u16, caller: u16) -> u64 {
    while frame != 0 && field(frame, owner) as u8 >= ON_C_STACK {
        frame = field(frame, caller);
    }
    frame
}

/// The innermost frame of Python code of the thread with this state; 0 if there is none.
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

/// How many frames there are from one on, those of no Python code included.
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
