//! Frames of CPython: finds the interpreter in the process, checks that its objects are where those
//! of its version are ([`heaptide_unwind::python`]), and reads the frames of the calling thread.
//!
//! No function of Python is called but two that return the thread's state: they neither allocate
//! nor lock. A thread reads its own chain of frames only, which nobody else changes, whether or not
//! it holds the interpreter's lock. Of a frame, the code object and the instruction are compared
//! with those of last time; names, file and line are read when such a pair is new.

use crate::event::python_codes;
use crate::store::ids::PythonLineId;
use crate::store::modules::modules;
use crate::store::python_lines;
use crate::store::shared::{Store, store};
use crate::sys::kernel::{self, Errno};
use crate::sys::loader::{self, LinkMap};
use crate::sys::locked::Guarded;
use crate::sys::memory::{self, InChild};
use crate::sys::range::Range;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, own_stack};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use heaptide_format::shared::Word;
use heaptide_format::{Loss, Mode, PYTHON_ENTRY, PYTHON_FRAME, PYTHON_ROOT, Python};
use heaptide_unwind::python::{
    DEBUG_OFFSETS, Entry, Innermost, Instruction, Layout, ON_C_STACK, line,
};

/// Python frames of a stack; outer ones beyond are cut.
const DEPTH_MAX: usize = 8192;
/// The same where address space is scarce.
const DEPTH_MAX_SCARCE: usize = 1024;
/// Frames beyond which a chain is taken for a circle.
const CIRCLE: usize = 1 << 22;
/// Places of instructions that a lane remembers the lines of; a power of two.
const PLACES: usize = 1024;
/// Bytes of a function's name, and of a file's.
const TEXT_MAX: usize = 4096;
/// Bytes of a line table that are looked at.
const TABLE_MAX: u64 = 1 << 24;
/// Frames that are looked at for one of Python code, to check the layout.
const CHECKED: usize = 64;

/// The recorder's knowledge of the interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    /// None is known.
    None = 0,
    /// One was found; its layout is to be checked.
    Found = 1,
    /// Frames are read.
    Checked = 2,
    /// One is being looked for.
    Looking = 3,
    /// Frames are not read.
    GivenUp = 4,
}

/// The interpreter in this process. Zero is: none.
struct Interpreter {
    phase: AtomicU32,
    /// What [`modules::Modules::loads`] was when it was last looked for.
    loads: AtomicU32,
    /// Set once, before `Found`.
    known: Guarded<MaybeUninit<Known>>,
}

/// What is known of it.
#[derive(Clone, Copy)]
struct Known {
    layout: Layout,
    /// Return the state of the calling thread, or null; 0 for no function.
    getters: [usize; 2],
    /// `PyCode_Type`, `PyUnicode_Type`, `PyBytes_Type`, `PyFrame_Type`.
    code_type: u64,
    str_type: u64,
    bytes_type: u64,
    frame_type: u64,
    /// The interpreter's loop.
    eval: Range,
}

// SAFETY: zero is a valid value of every field.
static INTERPRETER: Wiped<Interpreter> = unsafe { Wiped::new() };

/// Has a forked child find no interpreter.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    INTERPRETER.wipe_in_children()
}

/// Whether there is an interpreter whose frames are read.
#[inline(always)]
pub fn is_met() -> bool {
    let phase = INTERPRETER.get().phase.load(Relaxed);
    phase == Phase::Found as u32 || phase == Phase::Checked as u32
}

/// Looks for an interpreter again if objects were loaded since the last time, before the program
/// finds functions in them.
#[inline(always)]
pub fn look_again() {
    let interpreter = INTERPRETER.get();
    if interpreter.phase.load(Relaxed) == Phase::None as u32
        && interpreter.loads.load(Relaxed) != modules().loads.load(Relaxed)
        && let Some(header) = store().header_if_any()
        && header.mode.get() == Mode::Stacks as u32
    {
        look(store());
    }
}

/// Looks for an interpreter among the objects that are loaded.
#[cold]
pub fn look(p: &Store) {
    let phase = &INTERPRETER.get().phase;
    let (none, looking) = (Phase::None as u32, Phase::Looking as u32);
    if phase.compare_exchange(none, looking, AcqRel, Relaxed).is_err() {
        return;
    }
    INTERPRETER.get().loads.store(modules().loads.load(Relaxed), Relaxed);
    let object = loader::objects().find(|map| loader::defines(map, b"_PyEval_EvalFrameDefault\0"));
    let Some(object) = object else {
        return phase.store(none, Release);
    };
    let minor = minor_of(object);
    p.header().python_minor.set(u32::from(minor));
    match known_of(object, minor) {
        Ok(known) => {
            // SAFETY: nobody reads it before `Found`, and nobody else is looking.
            unsafe { (*INTERPRETER.get().known.0.get()).write(known) };
            phase.store(Phase::Found as u32, Release);
        }
        Err(why) => give_up(p, why),
    }
}

fn give_up(p: &Store, why: Python) {
    p.header().python.set(why as u32);
    INTERPRETER.get().phase.store(Phase::GivenUp as u32, Release);
}

/// The x of the version 3.x; 0 if it is not known.
fn minor_of(object: &LinkMap) -> u8 {
    let has = |name| loader::look_up(object, name).is_some();
    if let Some((version, _)) = loader::look_up(object, b"Py_Version\0") {
        // SAFETY: `const unsigned long Py_Version`, from 3.11 on.
        let version = unsafe { *(version as *const u64) };
        return if version >> 24 == 3 { (version >> 16) as u8 } else { 0 };
    }
    // Functions that a version was the first to have.
    match () {
        () if has(b"PyIter_Send\0") => 10,
        () if has(b"PyFrame_GetBack\0") => 9,
        () if has(b"PyCode_NewWithPosOnlyArgs\0") => 8,
        () => 0,
    }
}

/// What the objects that an interpreter exports show of it.
fn known_of(object: &LinkMap, minor: u8) -> Result<Known, Python> {
    let mut layout = Layout::of_version(minor).ok_or(Python::UnknownVersion)?;
    let find = |name| loader::look_up(object, name);
    let address = |name| find(name).map(|(address, _)| address as u64).ok_or(Python::OtherLayout);
    if minor >= 13 {
        let runtime = address(b"_PyRuntime\0")?;
        // SAFETY: the interpreter's state, which is longer than the words at its begin.
        let words = unsafe { &*(runtime as *const [u64; DEBUG_OFFSETS]) };
        layout = Layout::from_debug_offsets(words).ok_or(Python::OtherLayout)?;
    }
    let (code_type, frame_type) = (address(b"PyCode_Type\0")?, address(b"PyFrame_Type\0")?);
    let is_as_known = word(code_type + BASIC_SIZE) == u64::from(layout.code_bytes)
        && (layout.frame_bytes == 0
            || word(frame_type + BASIC_SIZE) == u64::from(layout.frame_bytes));
    if !is_as_known {
        return Err(Python::OtherLayout);
    }
    let (start, bytes) = find(b"_PyEval_EvalFrameDefault\0").unwrap_or_default();
    // Before 3.12 the former returns the state of the thread that holds the interpreter's lock.
    let current = find(b"PyThreadState_GetUnchecked\0")
        .or_else(|| find(b"_PyThreadState_UncheckedGet\0"))
        .filter(|_| minor >= 12);
    Ok(Known {
        layout,
        getters: [
            current.map_or(0, |(address, _)| address),
            address(b"PyGILState_GetThisThreadState\0")? as usize,
        ],
        code_type,
        str_type: address(b"PyUnicode_Type\0")?,
        bytes_type: address(b"PyBytes_Type\0")?,
        frame_type,
        eval: Range { low: start as u64, high: (start + bytes) as u64 },
    })
}

/// In a type object: bytes of its instances.
const BASIC_SIZE: u64 = 32;
/// In an object: its type. In one with a length: the length.
const TYPE: u64 = 8;
const LENGTH: u64 = 16;
/// In a bytes object: the bytes. In a str object: the bits of its form.
const BYTES: u64 = 32;
const STATE: u64 = 32;

/// A word of the interpreter's memory.
#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: a field of an object whose type was compared, of a frame of the thread's own chain,
    // or of its state, at an offset of a layout that was checked.
    unsafe { *(address as *const u64) }
}

/// The interpreter, if its frames are read.
#[inline(always)]
fn known() -> &'static Known {
    // SAFETY: set before `Found`, and not changed after.
    unsafe { (*INTERPRETER.get().known.0.get()).assume_init_ref() }
}

/// The state of the calling thread, if it has one and frames are read.
#[inline(always)]
pub fn thread_state() -> Option<u64> {
    let phase = INTERPRETER.get().phase.load(Acquire);
    if phase == Phase::Checked as u32 {
        return state_of_thread(known());
    }
    if phase == Phase::Found as u32 { check(known()) } else { None }
}

#[inline(always)]
fn state_of_thread(known: &Known) -> Option<u64> {
    known.getters.iter().filter(|&&getter| getter != 0).find_map(|&getter| {
        // SAFETY: a function of the interpreter without arguments that returns a pointer, or null.
        let state = unsafe {
            let getter: extern "C" fn() -> u64 = core::mem::transmute(getter);
            getter()
        };
        (state != 0).then_some(state)
    })
}

/// Checks the layout by the first frame of Python code that is met; none until then.
#[cold]
#[inline(never)]
fn check(known: &Known) -> Option<u64> {
    let state = state_of_thread(known)?;
    let p = store();
    let checked = own_stack::call(|| match is_right(known, state) {
        _ if !confined::may_call() => Some(Python::Unchecked),
        Err(_) => Some(Python::Unchecked),
        Ok(None) => None,
        Ok(Some(true)) => Some(Python::Recorded),
        Ok(Some(false)) => Some(Python::OtherLayout),
    });
    match checked.flatten()? {
        Python::Recorded => {
            p.header().python.set(Python::Recorded as u32);
            INTERPRETER.get().phase.store(Phase::Checked as u32, Release);
            Some(state)
        }
        why => {
            give_up(p, why);
            None
        }
    }
}

/// Why memory could not be read.
enum Unread {
    /// The kernel does not allow it.
    Refused,
}

/// Whether the innermost frame of Python code, and its code object, are what the layout has them
/// be; none if there is no such frame yet. Reads nothing but by the kernel, which refuses what is
/// not mapped.
fn is_right(known: &Known, state: u64) -> Result<Option<bool>, Unread> {
    let layout = &known.layout;
    // A first look at memory that is there tells whether it may be looked at.
    if !kernel::read_own(state, &mut [0; 8]) {
        return Err(Unread::Refused);
    }
    let word = |address: u64| {
        let mut bytes = [0; 8];
        kernel::read_own(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let at = |base: u64, offset: u16| word(base.wrapping_add(u64::from(offset)));
    let found = || {
        let mut frame = match layout.innermost {
            Innermost::Direct(offset) => at(state, offset)?,
            Innermost::Indirect { chain, frame } => at(at(state, chain)?, frame)?,
        };
        for _ in 0..CHECKED {
            if frame == 0 {
                return Some(None);
            }
            if layout.frame_bytes != 0 && word(frame.wrapping_add(TYPE))? != known.frame_type {
                return None;
            }
            let is_shim = match layout.entry {
                Entry::Shim(owner) => at(frame, owner)? as u8 == ON_C_STACK,
                _ => false,
            };
            if !is_shim {
                return is_code(known, &word, frame).then_some(Some(()));
            }
            frame = at(frame, layout.caller)?;
        }
        Some(None)
    };
    Ok(match found() {
        None => Some(false),
        Some(None) => None,
        Some(Some(())) => Some(true),
    })
}

/// Whether a frame has a code object with texts, a line table and the frame's instruction in it.
fn is_code(known: &Known, word: &dyn Fn(u64) -> Option<u64>, frame: u64) -> bool {
    let layout = &known.layout;
    let at = |base: u64, offset: u16| word(base.wrapping_add(u64::from(offset)));
    let is_of = |object: u64, of: u64| word(object.wrapping_add(TYPE)) == Some(of);
    let is_text = |offset: u16, code: u64| {
        at(code, offset).is_some_and(|text| {
            let form = word(text.wrapping_add(STATE)).map(|bits| Form::of(bits as u32));
            let length = word(text.wrapping_add(LENGTH));
            is_of(text, known.str_type)
                && form.is_some_and(|form| form.is_readable())
                && length.is_some_and(|length| length < 1 << 20)
        })
    };
    let Some(code) = at(frame, layout.code).filter(|&code| is_of(code, known.code_type)) else {
        return false;
    };
    let is_inside = match layout.instruction {
        Instruction::Number(offset, _) => {
            at(frame, offset).is_some_and(|number| (-1..1 << 24).contains(&(number as i32)))
        }
        Instruction::Address(offset, first) => {
            let first = code.wrapping_add(u64::from(first));
            let end = word(code.wrapping_add(LENGTH)).map(|units| first.wrapping_add(2 * units));
            let address = at(frame, offset);
            address.zip(end).is_some_and(|(at, end)| (first.wrapping_sub(2)..end).contains(&at))
        }
    };
    let lines = at(code, layout.code_lines);
    is_inside
        && is_text(layout.code_name, code)
        && is_text(layout.code_file, code)
        && lines.is_some_and(|lines| is_of(lines, known.bytes_type))
        && at(code, layout.code_first_line).is_some_and(|first| first as i32 >= 0)
}

/// The form of a str object's text.
#[derive(Clone, Copy)]
struct Form {
    /// Bytes a character.
    kind: u32,
    is_compact: bool,
    is_ascii: bool,
}

impl Form {
    fn of(bits: u32) -> Form {
        Form { kind: bits >> 2 & 7, is_compact: bits >> 5 & 1 != 0, is_ascii: bits >> 6 & 1 != 0 }
    }

    fn is_readable(self) -> bool {
        self.is_compact && matches!(self.kind, 1 | 2 | 4)
    }
}

/// A frame as far as its node depends on it. The lowest bit of `at`: the interpreter was entered
/// with it; above it the address or number of the instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Place {
    code: u64,
    at: u64,
}

/// A frame of the stack that a lane had last, and its node.
#[derive(Clone, Copy)]
#[repr(C)]
struct Kept {
    place: Place,
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
    scratch: *mut Place,
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

impl Chain {
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
            room * size_of::<Place>(),
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
            scratch: start(1) as *mut Place,
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

    /// The node of the Python frames of the thread with this state; 0 if it executes none. `child`
    /// returns the child of a node.
    #[inline(always)]
    pub fn node(&mut self, state: u64, mut child: impl FnMut(u32, u64) -> u32) -> u32 {
        let found = self.walk(&known().layout, state);
        if found == 0 {
            return 0;
        }
        let cut = if found > self.room { self.cut_of(found) } else { 0 };
        let count = found - cut;
        if self.generation != python_codes::generation() || self.cut != cut || self.root == 0 {
            self.begin(cut, &mut child);
        }
        // SAFETY: `room` of each in the lane's own memory, which nothing else refers to now.
        let (kept, places) = unsafe {
            (
                core::slice::from_raw_parts_mut(self.kept, count),
                core::slice::from_raw_parts(self.scratch, count),
            )
        };
        let both = self.depth.min(count);
        let mut pairs = kept[..both].iter().zip(places[count - both..].iter().rev());
        let same = pairs.position(|(kept, place)| kept.place != *place).unwrap_or(both);
        let mut node = same.checked_sub(1).map_or(self.root, |last| kept[last].node as u32);
        for (kept, &place) in kept[same..].iter_mut().zip(places[..count - same].iter().rev()) {
            node = self.child(node, place, &mut child);
            *kept = Kept { place, node: u64::from(node) };
        }
        self.depth = count;
        node
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
        let both = (native as u64) << 32 | python as u64;
        let mixed = both.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: one of PLACES in the lane's own memory.
        let known = unsafe { &mut *self.joints.wrapping_add(mixed as usize >> 40 & (PLACES - 1)) };
        if known.native != native || known.python != python {
            *known = Joint { native, python, node: u64::from(make()) };
        }
        known.node as u32
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
        let fields = (layout.code, layout.caller);
        let frame = innermost(layout, state);
        match (layout.entry, layout.instruction) {
            (Entry::Shim(owner), Instruction::Address(at, _)) => {
                self.walk_from(frame, fields, |frame, outer| {
                    let is_shim = field(frame, owner) as u8 == ON_C_STACK;
                    // The frame inside of it is the one that the interpreter was entered with.
                    if is_shim && let Some(place) = outer {
                        place.at |= 1;
                    }
                    (!is_shim).then(|| field(frame, at) & !1)
                })
            }
            (Entry::Flagged { flag, .. }, Instruction::Address(at, _)) => {
                self.walk_from(frame, fields, |frame, _| {
                    let is_entry = field(frame, flag) as u8 != 0;
                    Some(field(frame, at) & !1 | u64::from(is_entry))
                })
            }
            (_, Instruction::Number(at, _) | Instruction::Address(at, _)) => {
                self.walk_from(frame, fields, |frame, _| {
                    Some((field(frame, at) as u32 as u64) << 1 | 1)
                })
            }
        }
    }

    /// The same from a frame on. `at` returns the instruction of a frame with its lowest bit, or
    /// none of one that is no Python code's; it gets the place of the frame inside.
    #[inline(always)]
    fn walk_from(
        &mut self,
        mut frame: u64,
        (code, caller): (u16, u16),
        at: impl Fn(u64, Option<&mut Place>) -> Option<u64>,
    ) -> usize {
        // SAFETY: `room` places of the lane's own memory.
        let places = unsafe { core::slice::from_raw_parts_mut(self.scratch, self.room) };
        let mut inside = None;
        let mut count = 0;
        let mut free = places.iter_mut();
        while frame != 0 {
            if let Some(at) = at(frame, inside.as_deref_mut()) {
                let Some(place) = free.next() else {
                    return count + beyond(frame, caller);
                };
                *place = Place { code: field(frame, code), at };
                inside = Some(place);
                count += 1;
            }
            frame = field(frame, caller);
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
        line(layout.lines, table, i64::from(first), at).unwrap_or(0)
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

/// A word at an offset of the interpreter's memory.
#[inline(always)]
fn field(base: u64, offset: u16) -> u64 {
    word(base.wrapping_add(u64::from(offset)))
}

/// The innermost frame of the thread with this state.
#[inline(always)]
fn innermost(layout: &Layout, state: u64) -> u64 {
    match layout.innermost {
        Innermost::Direct(offset) => field(state, offset),
        Innermost::Indirect { chain, frame } => field(field(state, chain), frame),
    }
}

/// The text of a str object as UTF-8, cut where `buffer` ends.
fn text<'a>(known: &Known, object: u64, buffer: &'a mut [u8]) -> &'a [u8] {
    if object == 0 || word(object + TYPE) != known.str_type {
        return b"?";
    }
    let form = Form::of(word(object + STATE) as u32);
    if !form.is_readable() {
        return b"?";
    }
    let length = word(object + LENGTH).min(TEXT_MAX as u64) as usize;
    let layout = &known.layout;
    let start = object + u64::from(if form.is_ascii { layout.ascii } else { layout.other });
    if form.is_ascii && form.kind == 1 {
        // SAFETY: the characters of a compact text of this length at least.
        return unsafe { core::slice::from_raw_parts(start as *const u8, length) };
    }
    let mut used = 0;
    for index in 0..length {
        // SAFETY: a character of a compact text of this length at least.
        let number = unsafe {
            match form.kind {
                1 => u32::from(*(start as *const u8).add(index)),
                2 => u32::from(*(start as *const u16).add(index)),
                _ => *(start as *const u32).add(index),
            }
        };
        let mut encoded = [0; 4];
        let bytes = match char::from_u32(number) {
            Some(character) => character.encode_utf8(&mut encoded).as_bytes(),
            // A byte of a file name that is not UTF-8, as Python keeps it.
            None => {
                encoded[0] = number as u8;
                &encoded[..1]
            }
        };
        let Some(place) = buffer.get_mut(used..used + bytes.len()) else { break };
        place.copy_from_slice(bytes);
        used += bytes.len();
    }
    &buffer[..used]
}

/// The addresses on the C stack that the entries of the interpreter's loop left there, of the
/// thread with this state that runs on `stack`; where its version leaves none, the range of the
/// loop's code.
pub fn entries(state: u64, stack: Range, mut each: impl FnMut(u64)) -> Option<Range> {
    let known = known();
    let layout = &known.layout;
    let mut along = |chain: u16, outer: u16| {
        let mut element = field(state, chain);
        for _ in 0..CIRCLE {
            // The last one is in the state itself, and in 3.10 what it refers to was never set.
            if !stack.holds(element) {
                break;
            }
            each(element);
            element = field(element, outer);
        }
    };
    match layout.entry {
        Entry::All => return Some(known.eval),
        Entry::AllChained(chain, outer) | Entry::Flagged { chain, outer, .. } => {
            along(chain, outer);
        }
        Entry::Shim(owner) => {
            let mut frame = innermost(layout, state);
            for _ in 0..CIRCLE {
                if frame == 0 {
                    break;
                }
                if field(frame, owner) as u8 == ON_C_STACK && stack.holds(frame) {
                    each(frame);
                }
                frame = field(frame, layout.caller);
            }
        }
    }
    None
}
