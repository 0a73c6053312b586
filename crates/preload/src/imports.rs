//! Rebinds the imports of a program that a command attached to: an import that is bound to an
//! interposed function is bound to the hook instead.
//!
//! An import is one word, which changes atomically. Calls within the C library and other allocators
//! do not use imports, so their allocating functions are intercepted in place.

use crate::attachment;
use crate::next_symbol::{self, find};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use heaptide_recorder::store::modules::modules;
use heaptide_recorder::sys::loader::{Import, LinkMap, each_import, look_up, objects};
use heaptide_recorder::sys::maps::each_mapping;
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::{confined, kernel, own_stack, unloading};

/// `mprotect`: readable.
const PROT_READ: usize = 1;
/// `mprotect`: readable and writable.
const PROT_RW: usize = 3;

/// [`heaptide_recorder::store::modules::Modules::loads`] at the last check.
static LOADS: AtomicU32 = AtomicU32::new(0);

/// An interposed function.
#[derive(Clone, Copy)]
struct Taken {
    /// The function's code; 0 if no loaded object has it.
    body: u64,
    hook: u64,
}

/// The names of interposed functions.
type Names = &'static [&'static [u8]];
/// The most names.
const NAMES_MAX: usize = 128;

/// The names, once a command has attached.
static NAMES: AtomicPtr<Names> = AtomicPtr::new(core::ptr::null_mut());

/// Rebinds the imports of all modules with one of these names, each followed by a zero byte.
pub fn take_over(names: &'static Names) {
    NAMES.store(core::ptr::from_ref(names).cast_mut(), Release);
    own_stack::call(|| take_over_all(names));
}

/// Rebinds the imports of modules loaded since the last check. Only if a command attached.
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
        unloading::walk(|| take_over(names));
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
    let mut mapped = None;
    for map in objects().filter(|map| !core::ptr::eq(*map, own)) {
        take_over_imports(map, names, &taken, &mut mapped);
    }
}

fn take_over_imports(
    map: &'static LinkMap,
    names: Names,
    taken: &[Taken],
    mapped: &mut Option<Mapped>,
) {
    let mut page = Page { start: 0, is_protected: false, mapped };
    each_import(map, |import: Import<'_>| {
        let position = names.iter().position(|name| import.is_of(name));
        let Some(Taken { body, hook }) = position.and_then(|at| taken.get(at)).copied() else {
            return;
        };
        if body == 0 || hook == 0 {
            return;
        }
        // SAFETY: an aligned word of a loaded module's import table.
        let slot = unsafe { AtomicU64::from_ptr(import.slot as *mut u64) };
        let bound = slot.load(Relaxed);
        // A lazy import that was not used yet refers to code in its own module.
        let is_unbound = import.is_lazy && is_near(map, bound, import.slot);
        let is_ours = bound == body || is_unbound;
        if is_ours && !attachment::collect_import(import.slot, hook) && page.prepare(import.slot) {
            slot.store(hook, Release);
        }
    });
    page.finish();
}

/// The mappings of the process at one time, by address. Reading them once for all modules matters:
/// a program with 100 libraries has 500 mappings and 200 pages with imports.
struct Mapped {
    /// Memory for [`MAPPINGS_MAX`] mappings, of which only the used pages exist; null without it.
    all: *mut Protected,
    count: usize,
}

/// A mapping.
#[derive(Clone, Copy)]
struct Protected {
    range: Range,
    is_writable: bool,
}

/// The most mappings that are listed: the kernel's default for a process.
const MAPPINGS_MAX: usize = 65536;

impl Mapped {
    /// Lists the mappings.
    fn read() -> Mapped {
        let all = kernel::map_private(MAPPINGS_MAX * size_of::<Protected>()).cast::<Protected>();
        let mut mapped = Mapped { all, count: 0 };
        if !all.is_null() {
            each_mapping(&mut [0u8; 8192], |mapping| {
                let entry = Protected { range: mapping.range, is_writable: mapping.writable };
                // SAFETY: within the memory above, since the count is below the maximum.
                unsafe { all.add(mapped.count).write(entry) };
                mapped.count += 1;
                mapped.count < MAPPINGS_MAX
            });
        }
        mapped
    }

    /// Returns whether the page at an address is writable; `None` if nothing is mapped there. A
    /// module that was loaded after the list was read is looked for in the current mappings.
    fn is_writable(&self, start: u64) -> Option<bool> {
        self.listed(start).or_else(|| {
            let mut writable = None;
            each_mapping(&mut [0u8; 8192], |mapping| {
                if mapping.range.holds(start) {
                    writable = Some(mapping.writable);
                }
                mapping.range.low <= start
            });
            writable
        })
    }

    fn listed(&self, start: u64) -> Option<bool> {
        if self.all.is_null() {
            return None;
        }
        // SAFETY: the entries below the count are written.
        let all = unsafe { core::slice::from_raw_parts(self.all, self.count) };
        let above = all.partition_point(|entry| entry.range.low <= start);
        let entry = all.get(above.checked_sub(1)?)?;
        entry.range.holds(start).then_some(entry.is_writable)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if !self.all.is_null() {
            // SAFETY: mapped above, and nothing refers to it any more.
            unsafe { kernel::unmap(self.all.cast(), MAPPINGS_MAX * size_of::<Protected>()) };
        }
    }
}

/// The page to write. Most import tables are made read-only once they are complete.
struct Page<'a> {
    start: u64,
    is_protected: bool,
    /// Read when it is needed.
    mapped: &'a mut Option<Mapped>,
}

impl Page<'_> {
    /// Makes the page of a word writable. Returns false if that fails.
    fn prepare(&mut self, at: u64) -> bool {
        let start = at & !(kernel::page_bytes() - 1);
        if start == self.start {
            return true;
        }
        self.finish();
        match self.mapped.get_or_insert_with(Mapped::read).is_writable(start) {
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

    /// Restores the protection of the last page.
    fn finish(&mut self) {
        if self.is_protected {
            // SAFETY: a page of imports, which was read-only before.
            unsafe { kernel::protect(self.start, kernel::page_bytes() as usize, PROT_READ) };
        }
        self.is_protected = false;
        self.start = 0;
    }
}

/// The most bytes between an import and the code of its module.
const REACH: u64 = 1 << 31;

/// Returns whether an address can be in the code of the module with this import.
fn is_near(map: &LinkMap, address: u64, slot: u64) -> bool {
    (map.address()..slot).contains(&address) && slot - address < REACH
}
