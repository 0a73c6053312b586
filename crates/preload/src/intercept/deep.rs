//! Libraries that are opened with `RTLD_DEEPBIND`. Their imports are bound to the libraries that
//! they need first, so to the C library, past the hooks.
//!
//! The loader notifies the recorder of a mapped library before it binds the imports. An import that
//! would be bound to the function that our hook calls is changed to refer to the hook itself. Those
//! that the library or its dependencies define otherwise, such as a `malloc` of their own, stay.

use super::outcome::{self, Note};
use crate::attachment;
use crate::next_symbol::{self, is_libc, object_before};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use heaptide_format::NotIntercepted;
use heaptide_recorder::sys::kernel;
use heaptide_recorder::sys::loader::{
    LinkMap, UnboundImport, defines, each_unbound_import, look_up, needs, objects,
};
use heaptide_recorder::sys::maps::each_mapping;

/// The most objects that a library and its dependencies consist of; later ones are not examined,
/// and the library's imports are not changed.
const OBJECTS_MAX: usize = 512;
const RTLD_DEEPBIND: i32 = 8;

/// Whether the program has used the flag. A library that is opened without it at the same time
/// is bound to the same hooks by the loader.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The names of interposed functions, each followed by a zero byte.
type Names = &'static [&'static [u8]];

/// The names, once the library is loaded.
static NAMES: AtomicPtr<Names> = AtomicPtr::new(ptr::null_mut());

/// Sets the names of interposed functions.
pub fn set_names(names: &'static Names) {
    NAMES.store(ptr::from_ref(names).cast_mut(), Release);
}

/// Returns the names of interposed functions; none before the library is loaded.
pub fn names() -> Names {
    // SAFETY: null, or a static.
    unsafe { NAMES.load(Acquire).as_ref() }.map_or(&[], |names| names)
}

/// Notes how the program is about to open a library.
pub fn note_mode(mode: i32) {
    if mode & RTLD_DEEPBIND != 0 {
        IS_USED.store(true, Relaxed);
    }
}

/// Returns whether imports of opened libraries have to be changed. If a command attached, the C
/// library itself is intercepted.
pub fn is_used() -> bool {
    IS_USED.load(Relaxed) && !attachment::is_attached()
}

/// A library and its dependencies, in the order in which the loader searches them.
pub struct Scope {
    objects: [Option<&'static LinkMap>; OBJECTS_MAX],
    count: usize,
}

impl Scope {
    /// Returns the scope of an opened library; `None` if it is too large.
    pub fn of(library: &'static LinkMap) -> Option<Scope> {
        let mut scope = Scope { objects: [None; OBJECTS_MAX], count: 0 };
        scope.add(library)?;
        let mut at = 0;
        while let Some(object) = scope.objects.get(at).copied().flatten() {
            for needed in objects().filter(|other| needs(object, other)) {
                scope.add(needed)?;
            }
            at += 1;
        }
        Some(scope)
    }

    fn add(&mut self, object: &'static LinkMap) -> Option<()> {
        if self.all().any(|known| ptr::eq(known, object)) {
            return Some(());
        }
        *self.objects.get_mut(self.count)? = Some(object);
        self.count += 1;
        Some(())
    }

    fn all(&self) -> impl Iterator<Item = &'static LinkMap> {
        self.objects.iter().copied().flatten()
    }
}

/// Lets the imports of a new object refer to our hooks, where the loader would bind them to the
/// functions that the hooks call. `scope` is that of the library that was opened.
pub fn bind(map: &'static LinkMap, scope: &Scope) {
    let Some(own) = next_symbol::own_object() else { return };
    let names = names();
    let mut pages = Pages::of(map);
    let mut is_left = false;
    each_unbound_import(map, |import| {
        let Some(name) = names.iter().find(|name| import.is_of(name)) else { return };
        let Some(definer) = scope.all().find(|object| defines(object, name)) else { return };
        let real = next_symbol::find(name).map_or(ptr::null(), |found| found.object);
        let Some((hook, _)) = look_up(own, name) else { return };
        if ptr::eq(definer, own) || object_before(name).is_some() {
            return;
        }
        let is_malloc = name.starts_with(b"malloc\0");
        if ptr::eq(definer, real) {
            is_left |= !pages.write(&import, hook as u64) && is_malloc;
        } else {
            // An allocator other than the C library's is intercepted itself.
            is_left |= is_malloc && is_libc(definer);
        }
    });
    if is_left {
        outcome::note_family(Err(NotIntercepted::DeepBound), Note::new(map.address()));
    }
}

/// The pages of an object's symbols.
struct Pages {
    /// Whether they contain code, too.
    are_executable: bool,
}

impl Pages {
    fn of(map: &LinkMap) -> Pages {
        let mut are_executable = false;
        let mut buffer = [0u8; 8192];
        let symbols = map.symbols_address();
        each_mapping(&mut buffer, |mapping| {
            are_executable |= mapping.range.holds(symbols) && mapping.executable;
            mapping.range.low <= symbols
        });
        Pages { are_executable }
    }

    /// Changes an import. Returns false if the kernel does not allow it.
    fn write(&mut self, import: &UnboundImport, address: u64) -> bool {
        const PROT_READ: usize = 1;
        const PROT_RW: usize = 3;
        let page = kernel::page_bytes();
        let (low, high) = import.symbol();
        let first = low & !(page - 1);
        let length = (high.next_multiple_of(page) - first) as usize;
        let before = if self.are_executable { kernel::PROT_RX } else { PROT_READ };
        // SAFETY: pages of an object whose code does not run yet; they stay readable, and get their
        // protection back.
        unsafe {
            if !kernel::protect(first, length, PROT_RW) {
                return false;
            }
            import.bind(address);
            kernel::protect(first, length, before);
        }
        true
    }
}
