//! Finds allocators with their own function names in executables and libraries, and intercepts
//! them.

use super::island::Island;
use super::kept;
use super::outcome::{self, Note};
use super::patch::{self, Patch, Refusal, write_all};
use super::symbol_table::each_function;
use crate::family::{self, FAMILIES, Family, Function, Moved, Shape};
use crate::next_symbol;
use crate::statistics::{self, Statistics};
use core::mem::transmute;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use heaptide_format::NotIntercepted;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::store::modules::modules;
use heaptide_recorder::sys::confined;
use heaptide_recorder::sys::kernel::Path;
use heaptide_recorder::sys::loader::{LinkMap, defines, objects};
use heaptide_recorder::sys::maps::each_mapping;
use heaptide_recorder::sys::options::Options;
use heaptide_recorder::sys::own_stack;

/// The most objects to remember as checked; later ones are not checked.
const OBJECTS_MAX: usize = 1024;
/// The most families in an object.
const FAMILIES_MAX: usize = 4;
/// The most functions of one family in an object.
const FUNCTIONS_MAX: usize = 48;

/// Checked objects, by address of their dynamic section; 0 is none.
static LOOKED: [AtomicUsize; OBJECTS_MAX] = [const { AtomicUsize::new(0) }; OBJECTS_MAX];
/// Held during a check, of which only one runs at a time.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);
/// Whether families are intercepted in this process.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// [`heaptide_recorder::store::modules::Modules::loads`] at the last check that found an object.
static LOADS: AtomicU32 = AtomicU32::new(0);
/// Whether loaded objects could not be checked in time, so that they may be in use.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);

/// Which functions of an [`Instance`] are intercepted.
type Which = [bool; FUNCTIONS_MAX];

/// Returns whether families are intercepted in this process, or in the one from which it was
/// forked.
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Checks loaded objects when the recorder starts. Needs a large stack. `None` if out of memory.
pub fn start(scarce: bool) -> Option<()> {
    if !kept::is_empty() {
        return process().sizes.create(scarce); // a forked child inherits the changed code
    }
    if !IS_ON.load(Relaxed) {
        IS_ON.store(true, Relaxed);
        look_at_all(patch::may_change_code());
    }
    Some(())
}

/// Checks objects that the loader has just mapped: none of their code has run.
pub fn look_at_mapped() {
    if !IS_ON.load(Relaxed) {
        return;
    }
    if !confined::may_call() || process().state() != State::Active {
        HAS_MISSED.store(true, Relaxed);
        return;
    }
    own_stack::call(|| {
        forget_unloaded();
        look_at_all(!HAS_MISSED.swap(false, Relaxed) || patch::may_change_code());
    });
}

/// Checks objects that were loaded since the last check, before the program looks up functions in
/// them; for loaders without notification.
#[inline(always)]
pub fn look_at_new() {
    if IS_ON.load(Relaxed) && LOADS.load(Relaxed) != modules().loads.load(Relaxed) {
        look_again();
    }
}

#[cold]
fn look_again() {
    if confined::may_call() && process().state() == State::Active {
        own_stack::call(|| look_at_all(patch::may_change_code()));
    }
}

/// Removes unloaded objects, because others may be loaded at their addresses.
pub fn forget_unloaded() {
    alone(|| {
        for looked in &LOOKED {
            let dynamic = looked.load(Relaxed);
            if dynamic != 0 && !objects().any(|map| map.dynamic_address() == dynamic) {
                looked.store(0, Relaxed);
                kept::forget(dynamic);
            }
        }
    });
}

/// Runs `work` unless another thread is doing so.
fn alone(work: impl FnOnce()) {
    if IS_LOOKING.compare_exchange(false, true, Acquire, Relaxed).is_err() {
        HAS_MISSED.store(true, Relaxed);
        return;
    }
    work();
    IS_LOOKING.store(false, Release);
}

/// `is_safe`: no other thread executes code of unchecked objects.
fn look_at_all(is_safe: bool) {
    alone(|| look_at_others(is_safe));
}

fn look_at_others(is_safe: bool) {
    let loads = modules().loads.load(Relaxed);
    let mut is_new = false;
    for map in objects() {
        if note_object(map.dynamic_address()) {
            is_new = true;
            look_at(map, is_safe);
        }
    }
    if is_new {
        LOADS.store(loads, Relaxed);
    }
}

/// Stores an object; returns false if it was stored before, or if there is no space.
fn note_object(dynamic: usize) -> bool {
    if LOOKED.iter().any(|looked| looked.load(Relaxed) == dynamic) {
        return false;
    }
    let free = LOOKED.iter().find(|looked| looked.load(Relaxed) == 0);
    free.inspect(|looked| looked.store(dynamic, Relaxed)).is_some()
}

/// A function that was found.
#[derive(Clone, Copy)]
struct Found {
    /// The name after the prefix.
    name: &'static str,
    code: patch::Function,
    shape: Shape,
}

/// A family in an object.
struct Instance {
    family: &'static Family,
    prefix: &'static str,
    functions: [Option<Found>; FUNCTIONS_MAX],
    usable: u64,
    statistics: Option<(Statistics, u64)>,
}

/// Checks one object. An object that exports `malloc` is intercepted through that.
fn look_at(map: &'static LinkMap, is_safe: bool) {
    let own = next_symbol::own_object();
    if own.is_some_and(|own| core::ptr::eq(own, map)) || defines(map, b"malloc\0") {
        return;
    }
    let mut found: [Option<Instance>; FAMILIES_MAX] = [const { None }; FAMILIES_MAX];
    let mut name = [0u8; 4096];
    let path = map.path();
    let path: &[u8] = if path.is_empty() { b"/proc/self/exe" } else { path };
    if !path.contains(&b'/') {
        return; // the kernel's vDSO
    }
    let Some(room) = name.get_mut(..path.len()) else { return };
    room.copy_from_slice(path);
    let Some(path) = Path::new(&name) else { return };
    let inode = each_function(path, |name, address, size| {
        let code = patch::Function { address: map.address().wrapping_add(address), size };
        note_function(&mut found, name, code);
    });
    for instance in found.iter().flatten() {
        let is_whole = instance.has(|shape| shape == Shape::Free)
            && instance.has(|shape| shape != Shape::Free);
        if is_whole && inode.is_some_and(|inode| instance.is_code_of(inode)) {
            let outcome = instance.intercept(map.dynamic_address(), is_safe);
            // A library may be unloaded while its function runs.
            if let (true, true, Some((which, at))) =
                (outcome.is_ok(), map.path().is_empty(), instance.statistics)
            {
                statistics::note(which, at);
            }
            instance.note(outcome);
        }
    }
}

/// Stores a function if it belongs to a known family.
fn note_function(found: &mut [Option<Instance>], name: &[u8], code: patch::Function) {
    let known = FAMILIES.iter().flat_map(|family| {
        family.prefixes.iter().filter_map(move |&prefix| {
            Some((family, prefix, name.strip_prefix(prefix.as_bytes())?))
        })
    });
    for (family, prefix, rest) in known {
        let row = family.functions.iter().find(|(name, _)| name.as_bytes() == rest);
        let is_usable = family.usable.iter().any(|name| name.as_bytes() == rest);
        let statistics = family.statistics.filter(|(name, _)| name.as_bytes() == rest);
        if row.is_none() && !is_usable && statistics.is_none() {
            continue;
        }
        let is_it = |slot: &&mut Option<Instance>| {
            slot.as_ref().is_none_or(|instance| instance.prefix == prefix)
        };
        let Some(slot) = found.iter_mut().find(is_it) else { return };
        let instance = slot.get_or_insert(Instance {
            family,
            prefix,
            functions: [None; FUNCTIONS_MAX],
            usable: 0,
            statistics: None,
        });
        match (row, statistics) {
            (Some(&(name, shape)), _) => instance.add(Found { name, code, shape }),
            (None, Some((_, which))) => instance.statistics = Some((which, code.address)),
            (None, None) => instance.usable = code.address,
        }
    }
}

impl Instance {
    fn has(&self, is_it: impl Fn(Shape) -> bool) -> bool {
        self.functions.iter().flatten().any(|found| is_it(found.shape))
    }

    /// Returns whether all functions are in code of this file; its path may refer to another file
    /// by now.
    fn is_code_of(&self, inode: u64) -> bool {
        let functions = || self.functions.iter().flatten();
        let mut buffer = [0u8; 16 << 10];
        let mut found = 0;
        each_mapping(&mut buffer, |mapping| {
            if mapping.executable && mapping.inode == inode {
                let end = |code: patch::Function| code.address + code.size as u64;
                let within = functions().filter(|found| {
                    mapping.range.holds(found.code.address) && end(found.code) <= mapping.range.high
                });
                found += within.count();
            }
            true
        });
        found == functions().count()
    }

    /// Two names of one function share a jump, to the body of the first.
    fn add(&mut self, found: Found) {
        let same = |other: &Found| other.code.address == found.code.address;
        if self.functions.iter().flatten().any(same) {
            return;
        }
        if let Some(free) = self.functions.iter_mut().find(|place| place.is_none()) {
            *free = Some(found);
        }
    }

    /// Writes jumps to all entries, or none.
    ///
    /// Returns which of the functions are intercepted.
    fn intercept(&self, object: usize, is_safe: bool) -> Result<Which, NotIntercepted> {
        if Options::known().is_none_or(|options| !options.intercept) {
            return Err(NotIntercepted::TurnedOff);
        }
        let entry = family::entry();
        if !is_safe {
            return Err(NotIntercepted::Threads);
        }
        let first = self.functions.iter().flatten().next().ok_or(NotIntercepted::Unmovable)?;
        let p = process();
        if !p.sizes.is_made() {
            p.sizes.create(p.scarce.load(Relaxed)).ok_or(NotIntercepted::Refused)?;
        }
        let mut island = Island::near(first.code.address).ok_or(NotIntercepted::Refused)?;
        let mut patches = [None; FUNCTIONS_MAX];
        let outcome = match self.plan(entry, &mut island, &mut patches) {
            None => Err(NotIntercepted::Unmovable),
            Some(()) if !kept::keep_island(&island, object) => Err(NotIntercepted::Refused),
            Some(()) if island.seal() && write_all(patches.iter().flatten()) => {
                Ok(patches.map(|patch| patch.is_some()))
            }
            Some(()) => Err(NotIntercepted::Refused),
        };
        if outcome.is_err() {
            // SAFETY: no jump to it was written.
            unsafe { kept::release(island) };
        }
        outcome
    }

    /// Records the outcome for the profile.
    fn note(&self, outcome: Result<Which, NotIntercepted>) {
        let mut note = Note::new(self.functions[0].map_or(0, |first| first.code.address));
        note.add(self.prefix);
        if let Ok(which) = outcome {
            let all = self.functions.iter().flatten().zip(which);
            all.filter(|(_, is_done)| *is_done).for_each(|(found, _)| note.add(found.name));
        }
        outcome::note_family(outcome.map(|_| ()), note);
    }

    /// Plans the jumps; `None` if a function that frees or resizes cannot be moved.
    fn plan(&self, entry: u64, island: &mut Island, patches: &mut [Option<Patch>]) -> Option<()> {
        // SAFETY: a function of this type, by its name.
        let usable = (self.usable != 0).then(|| unsafe {
            transmute::<u64, extern "C" fn(*mut u8, usize) -> usize>(self.usable)
        });
        for (found, place) in self.functions.iter().flatten().zip(patches) {
            let patch = match Patch::plan(found.code, 0, island) {
                Ok(patch) => patch,
                Err(Refusal::Unmovable) if found.shape.only_allocates() => continue,
                Err(_) => return None,
            };
            // SAFETY: as above; additional arguments are ignored.
            let moved = unsafe { transmute::<u64, Moved>(patch.moved) };
            let sizes = self.family.sizes;
            let function = Function::new(found.name, moved, usable, sizes, found.shape);
            let function = kept::keep(function, island)?;
            let record = core::ptr::from_ref(function) as u64;
            patch.pass(record, entry);
            *place = Some(patch);
        }
        Some(())
    }
}
