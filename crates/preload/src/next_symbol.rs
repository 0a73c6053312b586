//! The functions behind the hooks: the next definition of a symbol after this library, in load
//! order.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use heaptide_recorder::sys::loader::{Dynamic, LinkMap, file_name, look_up, objects};

global_asm!(".hidden _DYNAMIC");

/// A function found, and whether the library that has it is a C++ runtime, whose operators call
/// malloc and free.
#[derive(Clone, Copy)]
pub struct Found {
    pub address: usize,
    pub runtime: bool,
    pub object: *const LinkMap,
    /// Bytes of its code, 0 if the symbol does not say.
    pub size: usize,
}

/// Looks `name` (ended by a zero byte) up behind this library.
pub fn find(name: &[u8]) -> Option<Found> {
    let me = own_dynamic();
    let mut behind = false;
    for map in objects() {
        if behind && let Some((address, size)) = look_up(map, name) {
            return Some(Found { address, runtime: is_runtime(map), object: map, size });
        }
        behind |= map.has_dynamic(me);
    }
    None
}

/// The address of the definition of `name` that the loader takes for all objects, this library's
/// and the executable's included.
pub fn find_first(name: &[u8]) -> Option<usize> {
    objects().find_map(|map| look_up(map, name)).map(|(address, _)| address)
}

/// Whether the first definition of `name` that the loader finds is another object's than this
/// library: its calls do not come here.
pub fn is_bypassed(name: &[u8]) -> bool {
    let me = own_dynamic();
    let before = objects().take_while(|map| !map.has_dynamic(me));
    before.into_iter().any(|map| look_up(map, name).is_some())
}

fn own_dynamic() -> *const Dynamic {
    let p: *const Dynamic;
    // SAFETY: the address of this library's own dynamic section.
    unsafe { asm!("lea {0}, [rip + _DYNAMIC]", out(reg) p, options(pure, nomem, nostack)) };
    p
}

fn is_runtime(map: &LinkMap) -> bool {
    let file = file_name(map);
    file.starts_with(b"libstdc++.so") || file.starts_with(b"libc++.so")
}

impl Found {
    /// Whether the function is in the object of this file name.
    pub fn is_in(&self, file: &[u8]) -> bool {
        // SAFETY: an entry of the loader's list.
        unsafe { self.object.as_ref() }.is_some_and(|map| file_name(map) == file)
    }
}

/// A function to be found on first use; a later load may still bring it.
#[repr(C)]
pub struct Real {
    /// First, for entries jump through it.
    address: AtomicUsize,
    size: AtomicUsize,
    runtime: AtomicBool,
    name: &'static [u8],
}

impl Real {
    /// `name` ends with a zero byte.
    pub const fn new(name: &'static [u8]) -> Real {
        Real {
            address: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            runtime: AtomicBool::new(false),
            name,
        }
    }

    /// Its address; 0 if nothing loaded defines it.
    #[inline(always)]
    pub fn get(&self) -> usize {
        let address = self.address.load(Relaxed);
        if address != 0 { address } else { self.resolve() }
    }

    /// The same for one that was looked up before, as the allocator's are before the first event.
    #[inline(always)]
    pub fn known(&self) -> usize {
        self.address.load(Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn resolve(&self) -> usize {
        let Some(found) = find(self.name) else {
            return 0;
        };
        self.runtime.store(found.runtime, Relaxed);
        self.size.store(found.size, Relaxed);
        self.address.store(found.address, Relaxed);
        found.address
    }

    /// Whether a return address is inside the function.
    pub fn holds(&self, pc: u64) -> bool {
        let start = self.get();
        start != 0 && (pc as usize).wrapping_sub(start) <= self.size.load(Relaxed)
    }

    /// Whether it is a C++ runtime's own: its operators new and delete are malloc and free.
    #[inline(always)]
    pub fn is_runtime(&self) -> bool {
        self.get() != 0 && self.runtime.load(Relaxed)
    }
}
