//! Functions of a static program other than those of its allocator: the ones whose hooks a dynamic
//! program calls because the loader finds them first, and one that every ending thread calls.
//!
//! Each is changed by itself; those whose code cannot be moved stay as they are. Functions that map
//! memory are called by those of the C library itself, too, which a dynamic program does not show:
//! [`own_calls`] are not recorded.
//!
//! A program that uses the interface has a variable for the address of the recorder's table.

use super::deep;
use super::island::Island;
use super::patch::{Function, Patch, may_change_code, write_all};
use super::symbol_table::section;
use crate::next_symbol;
use crate::own_allocator::{self, Place};
use crate::own_calls;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use heaptide_recorder::event::threads;
use heaptide_recorder::sys::kernel::Path;
use heaptide_recorder::sys::loader::{LinkMap, each_listed_function, look_up};
use heaptide_recorder::sys::options::Options;

/// Functions that stay as they are: those that load libraries, and one whose hook needs them.
const LEFT: [&[u8]; 5] =
    [b"dlopen\0", b"dlmopen\0", b"dlsym\0", b"dlclose\0", b"pthread_setname_np\0"];

/// The file of the program.
const PROGRAM: &[u8] = b"/proc/self/exe\0";

/// Changes the functions of a program. Some have several names.
pub fn intercept(program: &LinkMap) {
    let is_off = Options::known().is_some_and(|options| !options.intercept);
    let Some(own) = next_symbol::own_object().filter(|_| !is_off && may_change_code()) else {
        return;
    };
    let is_other = |name: &[u8]| {
        let is_allocators = own_allocator::NAMES.iter().any(|known| known.symbol == name);
        !is_allocators && !LEFT.contains(&name)
    };
    each_listed_function(program, own_calls::note);
    let near = [&b"main\0"[..], b"_init\0", b"malloc\0"];
    let Some((first, _)) = near.into_iter().find_map(|name| look_up(program, name)) else { return };
    let Some(mut island) = Island::near(first as u64) else { return };
    let mut patches = [None; PATCHES_MAX];
    let mut count = 0;
    let mut add = |patch: Patch| {
        if let Some(place) = patches.get_mut(count) {
            *place = Some(patch);
            count += 1;
        }
    };
    for name in deep::names().iter().filter(|name| is_other(name)) {
        let (theirs, hook) = (look_up(program, name), look_up(own, name));
        if let (Some((address, size)), Some((hook, _))) = (theirs, hook)
            && size > 0
            && !own_allocator::is_known(address)
            && let Ok(patch) = plan(address, size, hook, &mut island)
        {
            let call = patch.moved as usize;
            own_allocator::note_other(name, Place { call, address, size });
            add(patch);
        }
    }
    if let Some(patch) = end_of_threads(program, &mut island) {
        add(patch);
    }
    if !(island.seal() && write_all(patches.iter().flatten())) {
        own_allocator::forget_others();
        // SAFETY: no jump to it is left.
        unsafe { island.release() };
    }
}

/// The most functions that are changed.
const PATCHES_MAX: usize = own_allocator::OTHERS_MAX + 1;

fn plan(address: usize, size: usize, target: usize, island: &mut Island) -> Result<Patch, ()> {
    let function = Function { address: address as u64, size };
    Patch::plan(function, target as u64, island).map_err(|_| ())
}

/// The start of the function below, callable.
static AFTER_KEYS: AtomicUsize = AtomicUsize::new(0);
static PTHREAD_EXIT: AtomicUsize = AtomicUsize::new(0);

/// Plans the change of the function that each ending thread calls: in glibc, after the destructors
/// of the program, the one for thread-specific data; in musl, `pthread_exit`, unless the recorder
/// can have a destructor itself.
fn end_of_threads(program: &LinkMap, island: &mut Island) -> Option<Patch> {
    if let Some((address, size)) = look_up(program, b"__nptl_deallocate_tsd\0") {
        let patch = plan(address, size, after_keys as *const () as usize, island).ok()?;
        AFTER_KEYS.store(patch.moved as usize, Relaxed);
        return Some(patch);
    }
    if threads::can_have_destructor() {
        return None;
    }
    let (address, size) = look_up(program, b"pthread_exit\0")?;
    let patch = plan(address, size, pthread_exit as *const () as usize, island).ok()?;
    PTHREAD_EXIT.store(patch.moved as usize, Relaxed);
    Some(patch)
}

extern "C" fn after_keys() {
    // SAFETY: the function of glibc, which has no arguments.
    unsafe {
        let real: extern "C" fn() = core::mem::transmute(AFTER_KEYS.load(Relaxed));
        real();
    }
    // What is freed from here on, by glibc, are free blocks that the thread has cached.
    threads::ends();
}

extern "C" fn pthread_exit(result: *mut u8) {
    threads::ends();
    // SAFETY: the function of musl.
    unsafe {
        let real: extern "C" fn(*mut u8) = core::mem::transmute(PTHREAD_EXIT.load(Relaxed));
        real(result);
    }
}

/// A variable of a program that uses the interface (`include/heaptide.h`).
#[repr(C)]
struct Link {
    /// The address of the recorder's table.
    table: AtomicPtr<u8>,
    /// Bytes of the table that the program needs.
    needed: usize,
}

/// Connects the interface of a program, in which nothing can look it up.
pub fn connect(program: &LinkMap) {
    let own = next_symbol::own_object().and_then(|own| look_up(own, b"heaptide_interface\0"));
    let section = Path::new(PROGRAM).and_then(|path| section(path, b"heaptide_link"));
    let (Some((table, provided)), Some((at, bytes))) = (own, section) else { return };
    let start = program.address().wrapping_add(at) as *const Link;
    for index in 0..bytes / size_of::<Link>() {
        // SAFETY: the program's variables, which have this layout, and which it reads atomically.
        let link = unsafe { &*start.add(index) };
        if link.needed <= provided {
            link.table.store(table as *mut u8, Release);
        }
    }
}
