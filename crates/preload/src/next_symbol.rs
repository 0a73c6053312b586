//! The functions behind the hooks: the next definition of a symbol after this library, in load
//! order, or that of an allocator that is intercepted in place.

use crate::{attachment, own_allocator};
use core::marker::PhantomData;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use heaptide_format::attachment::LINK_IDLE;
use heaptide_recorder::address_of_symbol;
use heaptide_recorder::sys::kernel;
use heaptide_recorder::sys::loader::{Dynamic, LinkMap, file_name, look_up, objects};
use heaptide_recorder::sys::range::Range;

core::arch::global_asm!(".hidden _DYNAMIC", ".hidden __ehdr_start", ".hidden _end");

/// A function found, and whether the library that has it is a C++ runtime, whose operators call
/// malloc and free.
#[derive(Clone, Copy)]
pub struct Found {
    /// By which it is called.
    pub address: usize,
    /// Where its code is.
    pub body: usize,
    pub runtime: bool,
    pub object: *const LinkMap,
    /// Bytes of its code, 0 if the symbol does not say.
    pub size: usize,
}

/// Looks up what the hook of `name` (ended by a zero byte) stands for.
pub fn find(name: &[u8]) -> Option<Found> {
    let own = own_allocator::find(name).map(|(place, object)| Found {
        address: place.call,
        body: place.address,
        runtime: false,
        object,
        size: place.size,
    });
    own.or_else(|| find_behind(name))
}

/// Looks `name` (ended by a zero byte) up behind this library.
pub fn find_behind(name: &[u8]) -> Option<Found> {
    let me = own_dynamic();
    let found = |map: &'static LinkMap| {
        let (address, size) = look_up(map, name)?;
        Some(Found { address, body: address, runtime: is_runtime(map), object: map, size })
    };
    if attachment::is_attached() {
        // Loaded late, this library stands for what the loader found without it.
        return objects().filter(|map| !map.has_dynamic(me)).find_map(found);
    }
    let behind = objects().skip_while(|map| !map.has_dynamic(me)).skip(1);
    behind.into_iter().find_map(found)
}

/// Notes whether the program runs already, before anything else of this library does.
pub fn note_loading() {
    if is_late() {
        attachment::link().store(LINK_IDLE, Release);
    }
}

/// Whether this library was loaded after the C library: into a program that runs.
fn is_late() -> bool {
    let me = own_dynamic();
    let mut before = objects().take_while(|map| !map.has_dynamic(me));
    before.any(|map| {
        let file = file_name(map);
        file.starts_with(b"libc.so") || file.starts_with(b"ld-musl-")
    })
}

/// The address of the definition of `name` that the loader takes for all objects, this library's
/// and the executable's included.
pub fn find_first(name: &[u8]) -> Option<usize> {
    objects().find_map(|map| look_up(map, name)).map(|(address, _)| address)
}

/// The object whose definition of `name` the loader finds before ours: calls go there.
pub fn object_before(name: &[u8]) -> Option<&'static LinkMap> {
    let me = own_dynamic();
    let mut before = objects().take_while(|map| !map.has_dynamic(me));
    before.find(|map| look_up(map, name).is_some())
}

/// This library.
pub fn own_object() -> Option<&'static LinkMap> {
    let me = own_dynamic();
    objects().find(|map| map.has_dynamic(me))
}

fn own_dynamic() -> *const Dynamic {
    address_of_symbol!("_DYNAMIC") as *const Dynamic
}

/// The addresses of this library, its zeroed data included.
pub fn own_code() -> Range {
    let low = address_of_symbol!("__ehdr_start") as u64;
    let high = address_of_symbol!("_end") as u64;
    Range { low, high: high.next_multiple_of(kernel::page_bytes()) }
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

/// A function to be found on first use; a later load may still bring it. `F` is the type of a
/// pointer to it, or `()` where it is only jumped to.
#[repr(C)]
pub struct Real<F> {
    /// First, for entries jump through it.
    address: AtomicUsize,
    body: AtomicUsize,
    size: AtomicUsize,
    runtime: AtomicBool,
    name: &'static [u8],
    kind: PhantomData<F>,
}

/// Declares functions by their types in C, under the names of their symbols.
macro_rules! real {
    ($($visible:vis static $real:ident = $symbol:expr, $type:ty;)*) => {
        $(
            // SAFETY: the type is that of the function with this name.
            $visible static $real: $crate::next_symbol::Real<$type> = unsafe {
                $crate::next_symbol::Real::new(concat!($symbol, "\0").as_bytes())
            };
        )*
    };
}
pub(crate) use real;

/// Calls a real function; the value for "there is none" otherwise.
macro_rules! call_real {
    ($real:expr, ($($argument:expr),*), $none:expr) => {
        match $real.function() {
            Some(function) => function($($argument),*),
            None => $none,
        }
    };
}
pub(crate) use call_real;

impl<F> Real<F> {
    /// Byte offset of the answer of [`Real::is_runtime`], once the function was found, for entries,
    /// whose first instructions are not Rust.
    pub const RUNTIME_AT: usize = offset_of!(Real<F>, runtime);

    /// `name` ends with a zero byte.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of this name, or `()`.
    pub const unsafe fn new(name: &'static [u8]) -> Real<F> {
        Real {
            address: AtomicUsize::new(0),
            body: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            runtime: AtomicBool::new(false),
            name,
            kind: PhantomData,
        }
    }

    /// Returns its address, or 0 if nothing loaded defines it.
    #[inline(always)]
    pub fn get(&self) -> usize {
        let address = self.address.load(Relaxed);
        if address != 0 { address } else { self.resolve() }
    }

    #[cold]
    #[inline(never)]
    fn resolve(&self) -> usize {
        let Some(found) = find(self.name) else {
            return 0;
        };
        self.runtime.store(found.runtime, Relaxed);
        self.size.store(found.size, Relaxed);
        self.body.store(found.body, Relaxed);
        self.address.store(found.address, Relaxed);
        found.address
    }

    /// Has it called by another address from now on: a jump to its hook stands at its beginning.
    pub fn move_to(&self, address: usize) {
        self.address.store(address, Relaxed);
    }

    /// Whether a return address is inside the function.
    pub fn holds(&self, pc: u64) -> bool {
        let found = self.get() != 0;
        found && (pc as usize).wrapping_sub(self.body.load(Relaxed)) <= self.size.load(Relaxed)
    }

    /// Whether it is a C++ runtime's own: its operators new and delete are malloc and free.
    #[inline(always)]
    pub fn is_runtime(&self) -> bool {
        self.get() != 0 && self.runtime.load(Relaxed)
    }
}

/// A pointer to a function.
///
/// # Safety
/// It is one: as large as an address, and not null.
pub unsafe trait Pointer: Copy {}

macro_rules! pointers {
    ($(($($argument:ident)*))*) => {
        $(
            // SAFETY: a pointer to a function.
            unsafe impl<R, $($argument),*> Pointer for extern "C" fn($($argument),*) -> R {}
        )*
    };
}

pointers! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E G) (A B C D E G H) }

impl<F: Pointer> Real<F> {
    /// Returns the function; none if nothing loaded defines it.
    #[inline(always)]
    pub fn function(&self) -> Option<F> {
        let address = self.get();
        // SAFETY: an address of the function, whose type this is (`new`).
        (address != 0).then(|| unsafe { core::mem::transmute_copy(&address) })
    }

    /// Returns one that was looked up before, as the allocator's are before the first event.
    ///
    /// # Safety
    /// It was found.
    #[inline(always)]
    pub unsafe fn known(&self) -> F {
        // SAFETY: as the caller promises: an address that changes no more.
        unsafe { *self.address.as_ptr().cast::<F>() }
    }
}
