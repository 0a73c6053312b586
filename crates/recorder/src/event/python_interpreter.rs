//! The CPython interpreter of the process: finds it, checks that its objects have the layout of its
//! version ([`heaptide_unwind::python`]), and returns the state of the calling thread.
//!
//! Only four functions of Python are called: two return the thread's state, two whether the
//! interpreter is ending or has ended. They neither allocate nor lock. A thread reads only its own
//! chain of frames, whether or not it holds the interpreter's lock. No other thread changes that
//! chain until the interpreter ends and frees the states of threads that still run.

use crate::store::modules::modules;
use crate::store::shared::{Store, store};
use crate::sys::kernel;
use crate::sys::loader::{self, LinkMap};
use crate::sys::locked::Guarded;
use crate::sys::range::Range;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, own_stack, unloading};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, fence};
use heaptide_format::shared::Word;
use heaptide_format::{Mode, Python};
use heaptide_unwind::python::{
    DEBUG_OFFSETS, Entry, Innermost, Instruction, Layout, ON_C_STACK, REFERENCE_BITS,
};

/// Number of frames from which on a chain counts as circular.
pub const CIRCLE: usize = 1 << 22;
/// Number of frames that are searched for one of Python code, to check the layout.
const CHECKED_FRAMES: usize = 64;
/// The function that contains the interpreter's loop.
const EVAL: &[u8] = b"_PyEval_EvalFrameDefault\0";
/// How often the thread that ends the interpreter yields to threads that read their frames.
const PATIENCE: u32 = 20_000;

/// What the recorder knows about the interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    /// No interpreter is known.
    None = 0,
    /// An interpreter was found; its layout has not been checked yet.
    Found = 1,
    /// The layout was checked; frames are read.
    Checked = 2,
    /// A thread is searching for an interpreter.
    Looking = 3,
    /// Frames are not read, since the interpreter is not supported.
    GivenUp = 4,
}

const FOUND: u32 = Phase::Found as u32;
const CHECKED: u32 = Phase::Checked as u32;

/// The interpreter in this process. All zeros: none.
struct Interpreter {
    phase: AtomicU32,
    /// The value of [`modules::Modules::loads`] at the last search.
    loads: AtomicU32,
    /// Number of threads without the interpreter's lock that are reading their frames.
    readers: AtomicU32,
    /// How often the thread that ends the interpreter has yielded to them.
    yields: AtomicU32,
    /// Written before `phase` becomes `Found`.
    known: Guarded<MaybeUninit<Known>>,
}

/// The interpreter's layout, functions and types.
#[derive(Clone, Copy)]
pub struct Known {
    pub layout: Layout,
    /// Returns the state of the thread that holds the interpreter's lock, or null; from 3.12 on
    /// only if that is the calling thread.
    current_state: extern "C" fn() -> u64,
    /// Returns the state of the calling thread, or null.
    own_state: extern "C" fn() -> u64,
    /// Returns a number other than 0 if the interpreter is ending.
    is_finalizing: extern "C" fn() -> i32,
    /// Returns a number other than 0 if the interpreter was initialised and has not ended.
    is_initialized: extern "C" fn() -> i32,
    /// `PyCode_Type`, `PyUnicode_Type`, `PyBytes_Type`, `PyFrame_Type`.
    pub code_type: u64,
    str_type: u64,
    pub bytes_type: u64,
    frame_type: u64,
    /// The code of the interpreter's loop.
    eval: Range,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static INTERPRETER: Wiped<Interpreter> = unsafe { Wiped::new() };

/// Makes forked children start without an interpreter.
pub fn wipe_in_children() {
    INTERPRETER.wipe_in_children();
}

/// Returns whether there is an interpreter whose frames are read.
#[inline(always)]
pub fn is_met() -> bool {
    let phase = INTERPRETER.get().phase.load(Relaxed);
    phase == FOUND || phase == CHECKED
}

/// Searches for an interpreter again if objects were loaded since the last search. Called before
/// the program can look up functions in them.
#[inline(always)]
pub fn look_again() {
    let interpreter = INTERPRETER.get();
    if interpreter.phase.load(Relaxed) == Phase::None as u32
        && interpreter.loads.load(Relaxed) != modules().loads.load(Relaxed)
        && let Some(header) = store().header_if_any()
        && Mode::from_number(header.mode.get()).is_some_and(Mode::has_stacks)
    {
        look(store());
    }
}

/// Searches for an interpreter among the objects that are loaded, unless the list of these is being
/// changed: a forked child keeps the list as another thread of its parent had left it, with objects
/// that are no longer mapped.
#[cold]
pub fn look(p: &Store) {
    if loader::is_consistent() {
        unloading::walk(|| look_at_objects(p));
    }
}

fn look_at_objects(p: &Store) {
    let phase = &INTERPRETER.get().phase;
    let (none, looking) = (Phase::None as u32, Phase::Looking as u32);
    if phase.compare_exchange(none, looking, AcqRel, Relaxed).is_err() {
        return;
    }
    INTERPRETER.get().loads.store(modules().loads.load(Relaxed), Relaxed);
    let object = loader::objects().find(|map| loader::defines(map, EVAL));
    let Some(object) = object else {
        return phase.store(none, Release);
    };
    let minor = minor_of(object);
    p.header().python_minor.set(u32::from(minor));
    match known_of(object, minor) {
        Ok(known) => {
            // SAFETY: no other thread reads it before `Found`, and no other thread is searching.
            unsafe { (*INTERPRETER.get().known.0.get()).write(known) };
            phase.store(FOUND, Release);
        }
        Err(why) => give_up(p, why),
    }
}

fn give_up(p: &Store, why: Python) {
    p.header().python.set(why as u32);
    INTERPRETER.get().phase.store(Phase::GivenUp as u32, Release);
}

/// Returns the x of version 3.x; 0 if it is unknown.
pub fn minor_of(object: &LinkMap) -> u8 {
    let has = |name| loader::look_up(object, name).is_some();
    if let Some((version, _)) = loader::look_up(object, b"Py_Version\0") {
        // SAFETY: `const unsigned long Py_Version`, from 3.11 on.
        let version = unsafe { *(version as *const u64) };
        return if version >> 24 == 3 { (version >> 16) as u8 } else { 0 };
    }
    // Functions that each version introduced.
    match () {
        () if has(b"PyIter_Send\0") => 10,
        () if has(b"PyFrame_GetBack\0") => 9,
        () if has(b"PyCode_NewWithPosOnlyArgs\0") => 8,
        () => 0,
    }
}

/// Reads layout, functions and types from the symbols that an interpreter exports.
fn known_of(object: &LinkMap, minor: u8) -> Result<Known, Python> {
    let mut layout = Layout::of_version(minor).ok_or(Python::UnknownVersion)?;
    let find = |name| loader::look_up(object, name);
    let address = |name| find(name).map(|(address, _)| address as u64).ok_or(Python::OtherLayout);
    if minor >= 13 {
        let runtime = address(b"_PyRuntime\0")?;
        // SAFETY: the interpreter's state, which is longer than the words at its beginning.
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
    let (start, bytes) = find(EVAL).unwrap_or_default();
    // The names in 3.13, and those before.
    let either = |new, old| address(new).or_else(|_| address(old)).map(|address| address as usize);
    let current = either(b"PyThreadState_GetUnchecked\0", b"_PyThreadState_UncheckedGet\0")?;
    let own = address(b"PyGILState_GetThisThreadState\0")? as usize;
    let is_finalizing = either(b"Py_IsFinalizing\0", b"_Py_IsFinalizing\0")?;
    let is_initialized = address(b"Py_IsInitialized\0")? as usize;
    // SAFETY: functions without arguments that return a pointer.
    let state_by =
        |function| unsafe { core::mem::transmute::<usize, extern "C" fn() -> u64>(function) };
    // SAFETY: functions without arguments that return a C int.
    let truth_by =
        |function| unsafe { core::mem::transmute::<usize, extern "C" fn() -> i32>(function) };
    Ok(Known {
        layout,
        current_state: state_by(current),
        own_state: state_by(own),
        is_finalizing: truth_by(is_finalizing),
        is_initialized: truth_by(is_initialized),
        code_type,
        str_type: address(b"PyUnicode_Type\0")?,
        bytes_type: address(b"PyBytes_Type\0")?,
        frame_type,
        eval: Range { low: start as u64, high: (start + bytes) as u64 },
    })
}

/// Offset in a type object: the size of its instances in bytes.
const BASIC_SIZE: u64 = 32;
/// Offsets in an object: its type, and its length if it has one.
pub const TYPE: u64 = 8;
pub const LENGTH: u64 = 16;
/// Offset in a bytes object: the bytes. Offset in a str object: the bits of its form.
pub const BYTES: u64 = 32;
const STATE: u64 = 32;

/// Reads a word of the interpreter's memory.
#[inline(always)]
pub fn word(address: u64) -> u64 {
    // SAFETY: a field of an object whose type was compared, of a frame of the thread's own chain,
    // or of its state, at an offset of a layout that was checked.
    unsafe { *(address as *const u64) }
}

/// Returns the interpreter. May only be called if its frames are read.
#[inline(always)]
pub fn known() -> &'static Known {
    // SAFETY: written before `Found`, and changed only after an interpreter that had ended was
    // unloaded and another one was found: no thread reads frames in between.
    unsafe { (*INTERPRETER.get().known.0.get()).assume_init_ref() }
}

/// The state of a thread. It stays valid while this value exists.
pub struct ThreadState {
    address: u64,
    /// Set if the thread does not hold the interpreter's lock, and counts as a reader.
    is_detached: bool,
}

impl ThreadState {
    /// Returns the address of the state.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the state of the calling thread, if it has one that may be read.
    #[inline(always)]
    fn of_this_thread(known: &Known) -> Option<ThreadState> {
        let current = (known.current_state)();
        if current != 0 && known.layout.minor >= 12 {
            return Some(ThreadState { address: current, is_detached: false });
        }
        match (known.own_state)() {
            0 => None,
            own if own == current => Some(ThreadState { address: own, is_detached: false }),
            own => ThreadState::detached(known, own),
        }
    }

    /// Returns the state of a thread without the interpreter's lock; none if the interpreter is
    /// ending. It then frees the states of such threads, which its functions still return.
    #[inline(never)]
    fn detached(known: &Known, address: u64) -> Option<ThreadState> {
        INTERPRETER.get().readers.fetch_add(1, SeqCst);
        let state = ThreadState { address, is_detached: true };
        ((known.is_finalizing)() == 0).then_some(state)
    }
}

impl Drop for ThreadState {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_detached {
            INTERPRETER.get().readers.fetch_sub(1, Release);
        }
    }
}

/// Waits for threads that read their frames, before an interpreter that ends has these overwritten
/// or unmapped. Called before memory is unmapped or returned to the program. The fast path of frees
/// does not call it: an allocator leaves nearly all of a free block unchanged.
#[inline(always)]
pub fn await_readers() {
    if INTERPRETER.get().readers.load(Relaxed) != 0 {
        await_readers_of_what_ends();
    }
}

#[cold]
#[inline(never)]
fn await_readers_of_what_ends() {
    let interpreter = INTERPRETER.get();
    if interpreter.phase.load(Acquire) != CHECKED || (known().is_finalizing)() == 0 {
        return;
    }
    // Threads that become readers later see that the interpreter is ending.
    fence(SeqCst);
    // A thread that left its signal handler by a jump stays a reader for ever.
    while interpreter.readers.load(Acquire) != 0
        && interpreter.yields.fetch_add(1, Relaxed) < PATIENCE
    {
        kernel::sched_yield();
    }
}

/// Forgets an interpreter that has ended. Called before an object is unloaded, which may be the
/// interpreter.
pub fn before_unloading() {
    if is_met() && (known().is_initialized)() == 0 {
        forget();
    }
}

/// Forgets an interpreter that was unloaded before it had ended, and searches again for one that
/// was forgotten and is still loaded.
pub fn after_unloading() {
    let is_of_loop = |map| {
        let place = loader::look_up(map, EVAL);
        place.is_some_and(|(start, _)| start as u64 == known().eval.low)
    };
    let is_unloaded = || !loader::objects().any(is_of_loop);
    if is_met() && unloading::walk(is_unloaded) == Some(true) {
        forget();
    }
    look_again();
}

fn forget() {
    INTERPRETER.get().phase.store(Phase::None as u32, Release);
}

/// Returns the state of the calling thread, if it has one and frames are read.
#[inline(always)]
pub fn thread_state() -> Option<ThreadState> {
    await_readers();
    match INTERPRETER.get().phase.load(Acquire) {
        CHECKED => ThreadState::of_this_thread(known()),
        FOUND => check(known()),
        _ => None,
    }
}

/// Does the same where the layout cannot be checked, for lack of a stack.
pub fn thread_state_if_checked() -> Option<ThreadState> {
    let is_checked = INTERPRETER.get().phase.load(Acquire) == CHECKED;
    if is_checked { ThreadState::of_this_thread(known()) } else { None }
}

/// Checks the layout with the first frame of Python code; returns none until there is one.
#[cold]
#[inline(never)]
fn check(known: &Known) -> Option<ThreadState> {
    let state = ThreadState::of_this_thread(known)?;
    let p = store();
    let checked = own_stack::call(|| match is_right(known, state.address) {
        _ if !confined::may_call() => Some(Python::Unchecked),
        Err(_) => Some(Python::Unchecked),
        Ok(None) => None,
        Ok(Some(true)) => Some(Python::Recorded),
        Ok(Some(false)) => Some(Python::OtherLayout),
    });
    match checked.flatten()? {
        Python::Recorded => {
            p.header().python.set(Python::Recorded as u32);
            INTERPRETER.get().phase.store(CHECKED, Release);
            Some(state)
        }
        why => {
            give_up(p, why);
            None
        }
    }
}

/// The reason why memory could not be read.
enum Unread {
    /// The kernel does not allow it.
    Refused,
}

/// Returns whether the innermost frame of Python code and its code object match the layout; none if
/// there is no such frame yet. Memory is read through the kernel only, which fails for memory that
/// is not mapped.
fn is_right(known: &Known, state: u64) -> Result<Option<bool>, Unread> {
    let layout = &known.layout;
    // A read of memory that is mapped shows whether reading is allowed.
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
        for _ in 0..CHECKED_FRAMES {
            if frame == 0 {
                return Some(None);
            }
            if layout.frame_bytes != 0 && word(frame.wrapping_add(TYPE))? != known.frame_type {
                return None;
            }
            let is_shim = match layout.entry {
                Entry::Shim(owner) => at(frame, owner)? as u8 >= ON_C_STACK,
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

/// Returns whether a frame has a code object with texts, a line table and the frame's instruction.
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
    let code = at(frame, layout.code).map(|reference| reference & !REFERENCE_BITS);
    let Some(code) = code.filter(|&code| is_of(code, known.code_type)) else {
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

/// The representation of a str object's text.
#[derive(Clone, Copy)]
struct Form {
    /// Bytes per character.
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

/// Reads a word at an offset in the interpreter's memory.
#[inline(always)]
pub fn field(base: u64, offset: u16) -> u64 {
    word(base.wrapping_add(u64::from(offset)))
}

/// Returns the innermost frame of the thread with this state.
#[inline(always)]
pub fn innermost(layout: &Layout, state: u64) -> u64 {
    match layout.innermost {
        Innermost::Direct(offset) => field(state, offset),
        Innermost::Indirect { chain, frame } => field(field(state, chain), frame),
    }
}

/// Returns the text of a str object as UTF-8, as far as `buffer` has room.
pub fn text<'a>(known: &Known, object: u64, buffer: &'a mut [u8]) -> &'a [u8] {
    if object == 0 || word(object + TYPE) != known.str_type {
        return b"?";
    }
    let form = Form::of(word(object + STATE) as u32);
    if !form.is_readable() {
        return b"?";
    }
    let length = word(object + LENGTH).min(buffer.len() as u64) as usize;
    let layout = &known.layout;
    let start = object + u64::from(if form.is_ascii { layout.ascii } else { layout.other });
    if form.is_ascii && form.kind == 1 {
        // SAFETY: the characters of a compact text of at least this length.
        return unsafe { core::slice::from_raw_parts(start as *const u8, length) };
    }
    let mut used = 0;
    for index in 0..length {
        // SAFETY: a character of a compact text of at least this length.
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
            // Python's representation of a byte in a file name that is not UTF-8.
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

/// Passes `each` the addresses on the C stack `stack` that entries of the interpreter's loop left
/// there, for the thread with this state. If its version leaves none, returns the range of the
/// loop's code.
pub fn entries(state: u64, stack: Range, mut each: impl FnMut(u64)) -> Option<Range> {
    let known = known();
    let layout = &known.layout;
    let mut along = |chain: u16, outer: u16| {
        let mut element = field(state, chain);
        for _ in 0..CIRCLE {
            // The last element is in the state itself; in 3.10, what it refers to was never set.
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
