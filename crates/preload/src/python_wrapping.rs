//! Finds the CPython interpreter of the process, and wraps its allocators of objects
//! ([`crate::python_allocator`]): before it is initialised, at the start of the program or once a
//! library with it was loaded. Nothing in the environment changes.
//!
//! CPython replaces its allocators if the environment or an option chooses others; it does so
//! before it allocates objects. Then the wrappers return at the first arena of pymalloc. From 3.12
//! on, the second `Py_Initialize` of a process resets them, too.

use crate::attachment;
use crate::intercept::outcome;
use crate::python_allocator::{Raw, first_malloc, function, is_used, is_wrapper, wrapper_of};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use heaptide_format::PythonObjects;
use heaptide_recorder::event::lane;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::store::modules::modules;
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
}

/// The interpreter that is wrapped.
struct Known(UnsafeCell<Option<Interpreter>>);

// SAFETY: read and written under the lock `IS_BUSY`.
unsafe impl Sync for Known {}

static KNOWN: Known = Known(UnsafeCell::new(None));
/// Whether an interpreter was found, and what to do decided. Children inherit it, like the
/// interpreter's memory.
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
    let p = process();
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

/// Forgets the interpreter if it was unloaded.
pub fn after_unloading() {
    alone(|known| {
        let Some(interpreter) = known else { return };
        if objects().any(|map| map.dynamic_address() == interpreter.object) {
            watch(interpreter);
        } else {
            IS_DECIDED.store(false, Release);
            *known = None;
        }
    });
}

/// Notes where the interpreter keeps its allocators.
fn watch(interpreter: &Interpreter) {
    let table = interpreter.tables[0] as *mut AtomicUsize;
    let malloc = if table.is_null() { table } else { table.wrapping_add(1) };
    TABLE.store(malloc, Release);
}

/// Runs `work` unless another thread does so.
fn alone(work: impl FnOnce(&mut Option<Interpreter>)) {
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

/// Wraps the interpreter if there is one. Objects are not relocated while the loader maps them.
fn look() {
    alone(|known| {
        let found = objects().find(|map| is_interpreter(map));
        let Some(map) = found.filter(|_| known.is_none()) else { return };
        let choice = match wrap(map) {
            Ok(interpreter) => {
                watch(&interpreter);
                *known = Some(interpreter);
                PythonObjects::Blocks
            }
            Err(why) => why,
        };
        IS_DECIDED.store(choice != PythonObjects::Running, Release);
        outcome::note_python(choice);
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

fn wrap(map: &'static LinkMap) -> Result<Interpreter, PythonObjects> {
    if Options::known().is_none_or(|options| options.python_arenas) {
        return Err(PythonObjects::TurnedOff);
    }
    if address(map, b"PyUnstable_Module_SetGIL\0") != 0 {
        return Err(PythonObjects::FreeThreaded);
    }
    if attachment::is_attached() || !is_relocated(map) || may_be_in_use(map) {
        return Err(PythonObjects::Running);
    }
    let p = process();
    if !p.sizes.is_made() {
        let created = confined::may_map().then(|| p.sizes.create(p.scarce.load(Relaxed))).flatten();
        created.ok_or(PythonObjects::NoMemory)?;
    }
    let accessors = [address(map, b"PyMem_GetAllocator\0"), address(map, b"PyMem_SetAllocator\0")];
    // SAFETY: functions of these types, by their names. The setter only reads the argument.
    let [get, set] = accessors.map(|accessor| unsafe { function::<AccessAllocator>(accessor) });
    let mut interpreter =
        Interpreter { object: map.dynamic_address(), get, set, arenas: NO_ARENAS, tables: [0; 2] };
    interpreter.wrap_domains();
    interpreter.wrap_arenas(map);
    interpreter.tables = tables(map);
    Ok(interpreter)
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
                && let Some(mut wrapper) = wrapper_of(now)
            {
                (self.set)(domain, &mut wrapper);
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

/// The function that allocates arenas, and its context.
static ARENAS_ALLOC: AtomicUsize = AtomicUsize::new(0);
static ARENAS_CONTEXT: AtomicUsize = AtomicUsize::new(0);

/// Allocates an arena of pymalloc, the one call that it always makes. If no wrapper called it, the
/// wrappers were displaced.
extern "C" fn allocate_arena(context: usize, bytes: usize) -> usize {
    let is_inside = lane::of_thread().is_some_and(|lane| !lane.gate.is_open());
    if !is_inside && process().state() == State::Active {
        alone(|known| {
            if let Some(interpreter) = known {
                interpreter.wrap_domains();
            }
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
            for table in known.iter().flat_map(|interpreter| interpreter.tables) {
                wrap_in_place(table);
            }
        });
    }
}

fn may_renew() -> bool {
    process().state() == State::Active
}

/// Wraps an allocator where the interpreter keeps it. Other threads may be reading it: a wrapper
/// that gets the former context, which is null, works, and pymalloc ignores its context.
fn wrap_in_place(table: usize) {
    // SAFETY: the address of an allocator in the interpreter's state, which is not unloaded now.
    let words = unsafe { &*(table as *const [AtomicUsize; 5]) };
    let now: Raw = [0, 1, 2, 3, 4].map(|index| words[index].load(Relaxed));
    let is_pymalloc = now[0] == 0 && now[1] == first_malloc();
    if let Some(wrapper) = wrapper_of(now).filter(|_| is_pymalloc) {
        words.iter().zip(wrapper).for_each(|(word, value)| word.store(value, Release));
    }
}
