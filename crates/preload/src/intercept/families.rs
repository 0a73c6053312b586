//! Finds allocators other than the one that the program uses in executables and libraries, and
//! intercepts them; likewise the runtime libraries of OpenMP, device drivers, and PyTorch.

use super::outcome::{self, Note};
use super::search::Search;
use super::{aliases, deep, drivers, kept, openmp, patch, pytorch, search};
use crate::next_symbol::{self, is_libc};
use crate::{attachment, own_allocator, statistics};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use heaptide_format::NotIntercepted;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::store::modules::modules;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::confined;
use heaptide_recorder::sys::loader::{
    LinkMap, defines, namespaces, objects, objects_of_all_namespaces,
};
use heaptide_recorder::sys::{own_stack, unloading};

/// The most objects to remember as checked; later ones are not checked.
const OBJECTS_MAX: usize = 1024;

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

const MALLOC: &[u8] = b"malloc\0";

/// Returns whether families are intercepted in this process, or in the one from which it was
/// forked.
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Checks loaded objects when the recorder starts. Needs a large stack. `None` if out of memory.
pub fn start(scarce: bool) -> Option<()> {
    if !kept::is_empty() {
        return store().sizes.create(scarce); // a forked child inherits the changed code
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
        let look = || look_at_all(patch::may_change_code());
        own_stack::call(|| _ = unloading::walk(look));
    }
}

/// Removes unloaded objects, because others may be loaded at their addresses.
pub fn forget_unloaded() {
    alone(|| {
        for looked in &LOOKED {
            let dynamic = looked.load(Relaxed);
            if dynamic != 0 && !is_loaded(dynamic) {
                looked.store(0, Relaxed);
                kept::forget(dynamic);
            }
        }
    });
}

/// Returns whether an object is loaded. Those of a namespace that the loader changes count as
/// loaded.
fn is_loaded(dynamic: usize) -> bool {
    let is_complete = namespaces().all(|namespace| namespace.is_consistent());
    let is_it = |map: &LinkMap| map.dynamic_address() == dynamic;
    !is_complete || objects_of_all_namespaces().any(is_it)
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
    let mut scope = None;
    let ours = objects().map(|map| (map, true));
    let others = namespaces().flat_map(|namespace| namespace.objects()).map(|map| (map, false));
    for (map, is_ours) in ours.chain(others) {
        if note_object(map.dynamic_address()) {
            is_new = true;
            look_at(map, is_ours, is_safe);
            openmp::look_at(map, is_safe);
            drivers::look_at(map, is_safe);
            pytorch::look_at(map, is_safe);
            if is_ours && is_safe && deep::is_used() {
                // The first new object is the library that was opened.
                let scope = scope.get_or_insert_with(|| deep::Scope::of(map));
                scope.iter().for_each(|scope| deep::bind(map, scope));
            }
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

/// Returns whether the loader lists its namespaces (glibc 2.35, which has this function, too).
pub fn sees_namespaces() -> bool {
    objects().any(|map| defines(map, b"_dl_find_object\0"))
}

/// Notes that the program loads libraries with a C library that cannot be found.
#[cold]
pub fn note_unseen_namespace() {
    if IS_ON.load(Relaxed) && process().state() == State::Active {
        let note = || outcome::note_family(Err(NotIntercepted::Namespace), Note::new(0));
        alone(note);
    }
}

/// Checks one object of the program's namespace, or of another one.
fn look_at(map: &'static LinkMap, is_ours: bool, is_safe: bool) {
    let own = next_symbol::own_object();
    if own.is_some_and(|own| core::ptr::eq(own, map)) {
        return;
    }
    let is = |object: &LinkMap| core::ptr::eq(object, map);
    let search = if !defines(map, MALLOC) {
        if is_ours {
            aliases::note_late(map);
        }
        search::named(map)
    } else if own_allocator::object().is_some_and(is) {
        search::of_process(map)
    } else if !is_ours || is_apart(map) || attachment::is_inserted() {
        search::standard(map)
    } else {
        return;
    };
    for instance in search.found.iter().flatten() {
        let is_current = search.inode.is_none_or(|inode| instance.is_code_of(inode));
        if instance.is_whole() && is_current {
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
    note_unknown(map, &search);
}

/// Notes allocators of no known family, unless they are part of one that was found.
fn note_unknown(map: &LinkMap, search: &Search) {
    search.unknown.each_own(map, |prefix, note| {
        let mut found = search.found.iter().flatten();
        if !found.any(|instance| prefix.text().starts_with(instance.prefix.text())) {
            outcome::note_family(Err(NotIntercepted::Unknown), note);
        }
    });
}

/// Returns whether an object of the program's namespace that defines `malloc` is not the allocator
/// of the process: only code that does not use our hooks, if any, calls it.
fn is_apart(map: &LinkMap) -> bool {
    let is = |object: *const LinkMap| core::ptr::eq(object, map);
    let real = next_symbol::find(MALLOC).is_some_and(|found| is(found.object));
    let before = next_symbol::object_before(MALLOC).is_some_and(|object| is(object));
    !real && !before && !is_libc(map)
}
