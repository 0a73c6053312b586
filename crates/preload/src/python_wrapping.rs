//! Finds the CPython interpreter of the process, and wraps its allocators of objects
//! ([`crate::python_allocator`]): before it is initialised, at the start of the program or once a
//! library with it was loaded. Nothing in the environment changes.
//!
//! CPython replaces its allocators if the environment or an option chooses others; it does so
//! before it allocates objects. Then the wrappers return at the first arena of pymalloc. From 3.12
//! on, the second `Py_Initialize` of a process resets them, too. An interpreter that already runs
//! is wrapped if it uses pymalloc, and its own allocators are put back after a detach.

use crate::attachment;
use crate::intercept::outcome;
use crate::python_allocator::{
    Raw, first_malloc, function, is_used, is_wrapper, wrapped_by, wrapper_of,
};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use heaptide_format::PythonObjects;
use heaptide_recorder::event::lane;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::event::python_interpreter::minor_of;
use heaptide_recorder::store::modules::modules;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::loader::{self, LinkMap, look_up, objects};
use heaptide_recorder::sys::options::Options;
use heaptide_recorder::sys::{confined, kernel, unloading};

/// Domains of `PyMem_GetAllocator`.
const RAW: i32 = 0;
const MEM: i32 = 1;
const OBJECTS: i32 = 2;

type AccessAllocator = extern "C" fn(i32, *mut Raw);
type AccessArenas = extern "C" fn(*mut Arenas);

/// An allocator of arenas as CPython stores it (`PyObjectArenaAllocator`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Arenas {
    context: usize,
    alloc: Option<extern "C" fn(usize, usize) -> usize>,
    free: Option<extern "C" fn(usize, usize, usize)>,
}

const NO_ARENAS: Arenas = Arenas { context: 0, alloc: None, free: None };

/// The functions of the interpreter with which its allocators are read and set.
#[derive(Clone, Copy)]
struct Interpreter {
    /// The address of its object's dynamic section.
    object: usize,
    get: AccessAllocator,
    set: AccessAllocator,
    /// The allocator of arenas that ours calls.
    arenas: Arenas,
    /// The addresses at which it keeps the allocators of both domains, if it can reset them; 0: not
    /// known.
    tables: [usize; 2],
    /// The word in which it notes that it ends; null: not known.
    ending: *mut AtomicUsize,
    /// The x of its version 3.x.
    minor: u8,
}

/// The x of the first version 3.x whose functions take a lock to read and set allocators.
const LOCKED: u8 = 12;

/// The most interpreters that are wrapped in a process.
const KNOWN_MAX: usize = 4;

/// The interpreters that are wrapped.
type Interpreters = [Option<Interpreter>; KNOWN_MAX];

struct Known(UnsafeCell<Interpreters>);

// SAFETY: read and written under the lock `IS_BUSY`.
unsafe impl Sync for Known {}

static KNOWN: Known = Known(UnsafeCell::new([None; KNOWN_MAX]));
/// Whether no further interpreter is wrapped. Children inherit it, like the interpreter's memory.
static IS_DECIDED: AtomicBool = AtomicBool::new(false);
/// Whether interpreters are searched for.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Held while allocators are wrapped.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// [`heaptide_recorder::store::modules::Modules::loads`] at the last search.
static LOADS: AtomicU32 = AtomicU32::new(0);
/// The function of the first table that a reset changes; null: not known.
static TABLE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

/// Wraps the interpreter when the recorder starts, if the program has one. `None` if out of memory.
pub fn start(scarce: bool) -> Option<()> {
    let p = store();
    if is_used() && !p.sizes.is_made() {
        p.sizes.create(scarce)?; // a forked child inherits the wrappers
    }
    IS_ON.store(true, Relaxed);
    if !look_if_consistent() {
        LOADS.store(!modules().loads.load(Relaxed), Relaxed); // a later call tries again
    }
    Some(())
}

/// Searches again if objects were loaded since the last search. Called before the program can look
/// up functions in them.
#[inline(always)]
pub fn look_again() {
    renew();
    if IS_ON.load(Relaxed)
        && !IS_DECIDED.load(Relaxed)
        && LOADS.load(Relaxed) != modules().loads.load(Relaxed)
    {
        look_at_new();
    }
}

#[cold]
fn look_at_new() {
    if process().state() == State::Active && confined::may_call() {
        look_if_consistent();
    }
}

/// Searches, unless the loader's list is being changed, as in a child that was forked meanwhile.
/// Returns whether it searched.
fn look_if_consistent() -> bool {
    let loads = modules().loads.load(Relaxed);
    let may_look = loader::is_consistent() && unloading::walk(look).is_some();
    if may_look {
        LOADS.store(loads, Relaxed);
    }
    may_look
}

/// Forgets where the interpreter keeps its allocators, before an object is unloaded.
pub fn before_unloading() {
    TABLE.store(core::ptr::null_mut(), Release);
}

/// Forgets interpreters that were unloaded.
pub fn after_unloading() {
    alone(|known| {
        for place in known.iter_mut() {
            let Some(interpreter) = place else { continue };
            if objects().any(|map| map.dynamic_address() == interpreter.object) {
                watch(interpreter);
            } else {
                IS_DECIDED.store(false, Release);
                *place = None;
            }
        }
    });
}

/// Notes where the interpreter keeps its allocators.
fn watch(interpreter: &Interpreter) {
    let table = interpreter.tables[0] as *mut AtomicUsize;
    if !table.is_null() {
        TABLE.store(table.wrapping_add(1), Release);
    }
}

/// Runs `work` unless another thread does so.
fn alone(work: impl FnOnce(&mut Interpreters)) {
    if IS_BUSY.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
        // SAFETY: nothing else refers to it while the lock is held.
        work(unsafe { &mut *KNOWN.0.get() });
        IS_BUSY.store(false, Release);
    }
}

/// Returns whether an object has allocators that can be wrapped, with all four functions (from
/// CPython 3.5 on).
fn is_interpreter(map: &'static LinkMap) -> bool {
    const NAMES: [&[u8]; 3] =
        [b"PyMem_SetAllocator\0", b"PyMem_GetAllocator\0", b"PyObject_Calloc\0"];
    NAMES.iter().all(|name| loader::defines(map, name))
}

/// Wraps the interpreters that are not wrapped yet. Objects are not relocated while the loader maps
/// them.
fn look() {
    alone(|known| {
        for map in objects().filter(|map| is_interpreter(map)) {
            let object = map.dynamic_address();
            let is_known = known.iter().flatten().any(|known| known.object == object);
            let is_first = known.iter().all(Option::is_none);
            let place = known.iter_mut().find(|place| place.is_none());
            let Some(place) = place.filter(|_| !is_known) else { continue };
            let choice = match wrap(map, is_first) {
                Ok(interpreter) => {
                    watch(&interpreter);
                    *place = Some(interpreter);
                    PythonObjects::Blocks
                }
                Err(why) => why,
            };
            if !matches!(choice, PythonObjects::Blocks | PythonObjects::Running) {
                IS_DECIDED.store(true, Release);
            }
            outcome::note_python(choice);
        }
    });
}

/// Returns the address of a symbol of an object; 0 if it has none.
fn address(map: &LinkMap, name: &[u8]) -> usize {
    look_up(map, name).map_or(0, |(address, _)| address)
}

/// Returns whether an object is relocated: a word in its data refers to another object of its data.
fn is_relocated(map: &LinkMap) -> bool {
    /// Offset in a type object: its base type.
    const BASE: usize = 256;
    let (bool_type, int_type) = (address(map, b"PyBool_Type\0"), address(map, b"PyLong_Type\0"));
    // SAFETY: `PyTypeObject PyBool_Type`, of the layout of all 64-bit versions.
    bool_type != 0 && unsafe { *((bool_type + BASE) as *const usize) } == int_type
}

/// Returns whether the interpreter runs, and other threads could be using its allocators.
fn may_be_in_use(map: &LinkMap) -> bool {
    let is_initialized = address(map, b"Py_IsInitialized\0");
    if is_initialized == 0 {
        return true;
    }
    // SAFETY: `int Py_IsInitialized(void)`, which reads a word.
    let is_initialized: extern "C" fn() -> i32 = unsafe { function(is_initialized) };
    is_initialized() != 0 && !kernel::is_alone()
}

fn wrap(map: &'static LinkMap, is_first: bool) -> Result<Interpreter, PythonObjects> {
    if Options::known().is_none_or(|options| options.python_arenas) {
        return Err(PythonObjects::TurnedOff);
    }
    if address(map, b"PyUnstable_Module_SetGIL\0") != 0 {
        return Err(PythonObjects::FreeThreaded);
    }
    let is_running = attachment::is_attached() || may_be_in_use(map);
    if !is_relocated(map) || (is_running && !is_first) {
        return Err(PythonObjects::Running);
    }
    let p = store();
    if !p.sizes.is_made() {
        let created = confined::may_map().then(|| p.sizes.create(p.scarce.load(Relaxed))).flatten();
        created.ok_or(PythonObjects::NoMemory)?;
    }
    let accessors = [address(map, b"PyMem_GetAllocator\0"), address(map, b"PyMem_SetAllocator\0")];
    // SAFETY: functions of these types, by their names. The setter only reads the argument.
    let [get, set] = accessors.map(|accessor| unsafe { function::<AccessAllocator>(accessor) });
    let mut interpreter = Interpreter {
        object: map.dynamic_address(),
        get,
        set,
        arenas: NO_ARENAS,
        tables: [0; 2],
        ending: ending(map),
        minor: minor_of(map),
    };
    if is_running {
        return interpreter.wrap_running(map).then_some(interpreter).ok_or(PythonObjects::Running);
    }
    interpreter.wrap_domains();
    if is_first {
        interpreter.wrap_arenas(map);
        interpreter.tables = tables(map);
    }
    Ok(interpreter)
}

/// Returns the word in which an interpreter notes that it ends (`_PyRuntime._finalizing`), if it
/// does not end now; null if it is not known.
fn ending(map: &LinkMap) -> *mut AtomicUsize {
    const NONE: *mut AtomicUsize = core::ptr::null_mut();
    /// Words of `_PyRuntime` from 3.13 on (`struct _Py_DebugOffsets`): a magic number, and the
    /// offset.
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    const OFFSET_AT: usize = 4;
    let Some((runtime, bytes)) = look_up(map, b"_PyRuntime\0") else { return NONE };
    let word = |index: usize| {
        // SAFETY: the beginning of the interpreter's state.
        unsafe { *(runtime as *const u64).add(index) }
    };
    let offset = match minor_of(map) {
        8..=10 => 16,
        11 | 12 => 24,
        13.. if word(0) == COOKIE => word(OFFSET_AT) as usize,
        _ => return NONE,
    };
    if offset % size_of::<usize>() != 0 || offset + size_of::<usize>() > bytes {
        return NONE;
    }
    let place = (runtime + offset) as *mut AtomicUsize;
    // SAFETY: an aligned word of the interpreter's state.
    if unsafe { (*place).load(Relaxed) } == 0 { place } else { NONE }
}

/// Puts the allocators of interpreters back where nothing was put above the wrappers, when nothing
/// is recorded any more.
pub fn put_back() {
    alone(|known| {
        for interpreter in known.iter_mut().filter_map(Option::take) {
            interpreter.put_back();
        }
    });
    TABLE.store(core::ptr::null_mut(), Release);
    IS_DECIDED.store(false, Release);
}

impl Interpreter {
    /// Wraps the allocators of both domains, unless they are malloc, whose hooks record everything.
    fn wrap_domains(&self) {
        for domain in [MEM, OBJECTS] {
            let [mut raw, mut now] = [[0; 5]; 2];
            (self.get)(RAW, &mut raw);
            (self.get)(domain, &mut now);
            if now[1] != raw[1]
                && !is_wrapper(&now)
                && let Some(mut wrapper) = wrapper_of(now, self.ending)
            {
                (self.set)(domain, &mut wrapper);
            }
        }
    }

    /// Wraps the allocators of an interpreter that may be using them: a thread can have read the
    /// context and not yet the function, or the other way round. Pymalloc's context is null and
    /// unused, so both mixtures work ([`crate::python_allocator`]), and other allocators are left
    /// alone. From 3.12 on, the interpreter's functions take a lock that a stopped thread can hold,
    /// so the allocators are replaced in its state. Returns whether its objects are blocks.
    fn wrap_running(&mut self, map: &LinkMap) -> bool {
        if self.minor >= LOCKED {
            return self.wrap_in_state(map);
        }
        let [mut raw, mut mem, mut objects] = [[0; 5]; 3];
        (self.get)(RAW, &mut raw);
        (self.get)(MEM, &mut mem);
        (self.get)(OBJECTS, &mut objects);
        if is_wrapper(&mem) || mem[1] == raw[1] {
            return mem == objects;
        }
        let is_pymalloc = mem == objects && mem[0] == 0 && is_first(mem[1]);
        let wrapper = if is_pymalloc { wrapper_of(mem, self.ending) } else { None };
        let Some(mut wrapper) = wrapper else { return false };
        (self.set)(MEM, &mut wrapper);
        (self.set)(OBJECTS, &mut wrapper);
        true
    }

    fn wrap_in_state(&mut self, map: &LinkMap) -> bool {
        let Some(place) = standard_tables(map) else { return false };
        let table = |index: usize| place + index * size_of::<Raw>();
        // SAFETY: three allocators in the interpreter's state.
        let [raw, mem, objects] = [0, 1, 2].map(|index| unsafe { *(table(index) as *const Raw) });
        if is_wrapper(&mem) || mem[1] == raw[1] {
            return mem == objects;
        }
        if mem != objects || mem[0] != 0 || !is_first(mem[1]) {
            return false;
        }
        let Some(wrapper) = wrapper_of(mem, self.ending) else { return false };
        self.tables = [table(1), table(2)];
        self.tables.iter().for_each(|&table| write(table, wrapper));
        true
    }

    /// Puts back the allocators that the wrappers call, where these are in use.
    fn put_back(&self) {
        for (domain, table) in [MEM, OBJECTS].into_iter().zip(self.tables) {
            if table != 0 {
                // SAFETY: an allocator in the interpreter's state.
                let now = unsafe { *(table as *const Raw) };
                wrapped_by(&now).into_iter().for_each(|below| write(table, below));
            } else if self.minor < LOCKED {
                let mut now = [0; 5];
                (self.get)(domain, &mut now);
                let below = wrapped_by(&now);
                below.into_iter().for_each(|mut below| (self.set)(domain, &mut below));
            }
        }
    }

    fn wrap_arenas(&mut self, map: &LinkMap) {
        let accessors = [
            address(map, b"PyObject_GetArenaAllocator\0"),
            address(map, b"PyObject_SetArenaAllocator\0"),
        ];
        if accessors.contains(&0) {
            return;
        }
        // SAFETY: functions of these types, by their names.
        let [get, set] = accessors.map(|accessor| unsafe { function::<AccessArenas>(accessor) });
        get(&mut self.arenas);
        if self.arenas.alloc.is_some() && self.arenas.free.is_some() {
            ARENAS_CONTEXT.store(self.arenas.context, Relaxed);
            ARENAS_ALLOC
                .store(self.arenas.alloc.map_or(0, |alloc| alloc as *const () as usize), Release);
            let free = self.arenas.free;
            set(&mut Arenas { context: self.arenas.context, alloc: Some(allocate_arena), free });
        }
    }
}

/// Returns whether an allocator with this function would be the first one, or is.
fn is_first(malloc: usize) -> bool {
    !is_used() || first_malloc() == malloc
}

/// Returns the address of the allocators of the three domains in the state of an interpreter from
/// 3.12 on: those of the last two are equal and have no context, and their functions are code of
/// the interpreter.
fn standard_tables(map: &LinkMap) -> Option<usize> {
    let (runtime, bytes) = look_up(map, b"_PyRuntime\0")?;
    let own = address(map, b"PyMem_SetAllocator\0");
    let words = bytes / size_of::<usize>();
    let is_code = |&function: &usize| function.abs_diff(own) < CODE_BYTES_MAX;
    let is_table = |&word: &usize| {
        let place = runtime + word * size_of::<usize>();
        // SAFETY: within the interpreter's state.
        let [raw, mem, objects] = unsafe { *(place as *const [Raw; 3]) };
        let has_code = |table: &Raw| table[0] == 0 && table[1..].iter().all(is_code);
        let is_wrapped = |table: &Raw| wrapped_by(table).is_some();
        mem == objects && has_code(&raw) && (has_code(&mem) || is_wrapped(&mem))
    };
    let place = (0..words.saturating_sub(15)).find(is_table)?;
    Some(runtime + place * size_of::<usize>())
}

/// No code of an interpreter is larger.
const CODE_BYTES_MAX: usize = 64 << 20;

/// Writes an allocator where an interpreter keeps it.
fn write(table: usize, allocator: Raw) {
    // SAFETY: the address of an allocator in the interpreter's state, which is not unloaded now.
    let words = unsafe { &*(table as *const [AtomicUsize; 5]) };
    words.iter().zip(allocator).for_each(|(word, value)| word.store(value, Release));
}

/// The function that allocates arenas, and its context.
static ARENAS_ALLOC: AtomicUsize = AtomicUsize::new(0);
static ARENAS_CONTEXT: AtomicUsize = AtomicUsize::new(0);

/// Allocates an arena of pymalloc, the one call that it always makes. If no wrapper called it, the
/// wrappers were displaced.
extern "C" fn allocate_arena(context: usize, bytes: usize) -> usize {
    let is_inside = lane::of_thread().is_some_and(|lane| !lane.gate.is_open());
    if !is_inside && process().state() == State::Active {
        alone(|known| {
            let with_arenas = known.iter().flatten().find(|known| known.arenas.alloc.is_some());
            with_arenas.into_iter().for_each(Interpreter::wrap_domains);
        });
    }
    // SAFETY: the interpreter's function, which was replaced by this one.
    let alloc: extern "C" fn(usize, usize) -> usize =
        unsafe { function(ARENAS_ALLOC.load(Acquire)) };
    alloc(context, bytes)
}

/// Returns where the interpreter's state holds the allocators of both domains, if that can be reset
/// (from 3.12 on), after they were wrapped.
fn tables(map: &LinkMap) -> [usize; 2] {
    let mut found = [0; 2];
    let Some((runtime, bytes)) = look_up(map, b"_PyRuntime\0") else { return found };
    let words = bytes / size_of::<usize>();
    let mut places = (0..words.saturating_sub(5)).map(|word| runtime + word * size_of::<usize>());
    for place in &mut found {
        // SAFETY: within the interpreter's state.
        let is_wrapped = |&at: &usize| is_wrapper(unsafe { &*(at as *const Raw) });
        *place = places.find(is_wrapped).unwrap_or(0);
    }
    if found.contains(&0) { [0; 2] } else { found }
}

/// Wraps the allocators again if the interpreter has reset them. Called now and then.
#[inline(always)]
pub fn renew() {
    if !TABLE.load(Relaxed).is_null() {
        unloading::walk(renew_tables);
    }
}

#[inline(never)]
fn renew_tables() {
    let table = TABLE.load(Acquire);
    // SAFETY: null, or the second word of an allocator in the interpreter's state, which is not
    // unloaded now.
    let is_reset = unsafe { table.as_ref() }
        .is_some_and(|malloc| malloc.load(Relaxed) == first_malloc() && may_renew());
    if is_reset {
        alone(|known| {
            for interpreter in known.iter().flatten().filter(|known| known.tables[0] != 0) {
                interpreter.tables.iter().for_each(|&table| wrap_in_place(table, interpreter));
            }
        });
    }
}

fn may_renew() -> bool {
    process().state() == State::Active
}

/// Wraps an allocator where the interpreter keeps it. Other threads may be reading it: a wrapper
/// that gets the former context, which is null, works, and pymalloc ignores its context.
fn wrap_in_place(table: usize, interpreter: &Interpreter) {
    // SAFETY: the address of an allocator in the interpreter's state, which is not unloaded now.
    let now = unsafe { *(table as *const Raw) };
    let is_pymalloc = now[0] == 0 && now[1] == first_malloc();
    if is_pymalloc && let Some(wrapper) = wrapper_of(now, interpreter.ending) {
        write(table, wrapper);
    }
}
