//! The imports of the modules of a program that a command attached to: where one is bound to a
//! function that a hook stands for, it is bound to the hook.
//!
//! An import is one word, which is changed at once, whatever other threads do. Which functions the
//! C library and other allocators call inside of themselves is not changed by it: those that
//! allocate are intercepted in place.

use crate::attachment;
use crate::next_symbol::{self, find};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use heaptide_recorder::store::modules::modules;
use heaptide_recorder::sys::loader::{Import, LinkMap, each_import, look_up, objects};
use heaptide_recorder::sys::maps::each_mapping;
use heaptide_recorder::sys::{confined, kernel, own_stack};

/// `mprotect`: readable.
const PROT_READ: usize = 1;
/// `mprotect`: readable and writable.
const PROT_RW: usize = 3;

/// [`heaptide_recorder::store::modules::Modules::loads`] of the last look.
static LOADS: AtomicU32 = AtomicU32::new(0);

/// A function that a hook stands for.
#[derive(Clone, Copy)]
struct Taken {
    /// The function's code; 0: nothing loaded has it.
    body: u64,
    hook: u64,
}

/// The names of the functions that hooks stand for.
type Names = &'static [&'static [u8]];
/// Of so many functions.
const NAMES_MAX: usize = 128;

/// The names, once a command has attached.
static NAMES: AtomicPtr<Names> = AtomicPtr::new(core::ptr::null_mut());

/// Takes over the imports of all modules that have one of these names, each ended by a zero byte.
pub fn take_over(names: &'static Names) {
    NAMES.store(core::ptr::from_ref(names).cast_mut(), Release);
    own_stack::call(|| take_over_all(names));
}

/// Takes over those of modules that were loaded since the last look. Only where a command attached.
#[inline(always)]
pub fn look_at_new() {
    if attachment::is_attached() && LOADS.load(Relaxed) != modules().loads.load(Relaxed) {
        look_again();
    }
}

#[cold]
fn look_again() {
    // SAFETY: null, or a static.
    let names = unsafe { NAMES.load(Acquire).as_ref() };
    if attachment::is_wanted() == Some(true)
        && confined::may_call()
        && let Some(names) = names
    {
        take_over(names);
    }
}

fn take_over_all(names: Names) {
    LOADS.store(modules().loads.load(Relaxed), Relaxed);
    let Some(own) = next_symbol::own_object() else { return };
    let mut taken = [Taken { body: 0, hook: 0 }; NAMES_MAX];
    for (place, name) in taken.iter_mut().zip(names) {
        let hook = look_up(own, name).map_or(0, |(address, _)| address as u64);
        let body = find(name).map_or(0, |found| found.body as u64);
        *place = Taken { body, hook };
    }
    for map in objects().filter(|map| !core::ptr::eq(*map, own)) {
        take_over_imports(map, names, &taken);
    }
}

fn take_over_imports(map: &'static LinkMap, names: Names, taken: &[Taken]) {
    let mut page = Page { start: 0, is_protected: false };
    each_import(map, |import: Import<'_>| {
        let position = names.iter().position(|name| import.is_of(name));
        let Some(Taken { body, hook }) = position.and_then(|at| taken.get(at)).copied() else {
            return;
        };
        if body == 0 || hook == 0 || !page.prepare(import.slot) {
            return;
        }
        // SAFETY: a word of a loaded module's table of imports, aligned, which may be written.
        let slot = unsafe { AtomicU64::from_ptr(import.slot as *mut u64) };
        let bound = slot.load(Relaxed);
        // A lazy import that was not used leads back into its own module.
        let is_unbound = import.is_lazy && is_near(map, bound, import.slot);
        if bound == body || is_unbound {
            slot.store(hook, Release);
        }
    });
    page.finish();
}

/// The page that is written to. Most tables of imports are made read-only once they are complete.
struct Page {
    start: u64,
    is_protected: bool,
}

impl Page {
    /// Makes the page of a word writable. Returns false if it cannot be.
    fn prepare(&mut self, at: u64) -> bool {
        let start = at & !(kernel::page_bytes() - 1);
        if start == self.start {
            return true;
        }
        self.finish();
        let mut buffer = [0u8; 8192];
        let mut writable = None;
        each_mapping(&mut buffer, |mapping| {
            if mapping.range.holds(start) {
                writable = Some(mapping.writable);
            }
            mapping.range.low <= start
        });
        match writable {
            None => return false,
            Some(true) => {}
            // SAFETY: a page of data, which stays readable.
            Some(false) => unsafe {
                if !kernel::protect(start, kernel::page_bytes() as usize, PROT_RW) {
                    return false;
                }
                self.is_protected = true;
            },
        }
        self.start = start;
        true
    }

    /// Makes the last page what it was.
    fn finish(&mut self) {
        if self.is_protected {
            // SAFETY: a page of imports, which was like that.
            unsafe { kernel::protect(self.start, kernel::page_bytes() as usize, PROT_READ) };
        }
        self.is_protected = false;
        self.start = 0;
    }
}

/// Bytes of a module at most, as far as an import that is not bound leads back.
const REACH: u64 = 1 << 31;

/// Whether an address can be in the code of the module that has this import.
fn is_near(map: &LinkMap, address: u64, slot: u64) -> bool {
    (map.address()..slot).contains(&address) && slot - address < REACH
}
