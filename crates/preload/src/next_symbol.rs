//! Finds the real functions behind the hooks: the next definition of a symbol after this library,
//! in load order, or that of an allocator that is intercepted in place.
//!
//! A library may have several versions of a function, or one that `dlsym` does not find (those of
//! glibc's `libc_malloc_debug.so.0`). A hook takes the one that the loader would have given to the
//! first object that imports the function.

use crate::{attachment, own_allocator};
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use heaptide_format::attachment::LINK_IDLE;
use heaptide_recorder::address_of_symbol;
use heaptide_recorder::sys::kernel;
use heaptide_recorder::sys::loader::{
    Dynamic, LinkMap, Reference, count_definitions, file_name, look_up, look_up_for, objects,
    reference_to,
};
use heaptide_recorder::sys::range::Range;

core::arch::global_asm!(".hidden _DYNAMIC", ".hidden __ehdr_start", ".hidden _end");

/// A function that was found, and whether it belongs to a C++ runtime, whose operators call malloc
/// and free.
#[derive(Clone, Copy)]
pub struct Found {
    /// The address to call.
    pub address: usize,
    /// The address of its code.
    pub body: usize,
    pub runtime: bool,
    pub object: *const LinkMap,
    /// Bytes of its code, 0 if the symbol has no size.
    pub size: usize,
}

/// Looks up the real function for the hook of `name` (zero-terminated).
pub fn find(name: &[u8]) -> Option<Found> {
    let own = own_allocator::find(name).map(|(place, object)| Found {
        address: place.call,
        body: place.address,
        runtime: false,
        object,
        size: place.size,
    });
    own.or_else(|| find_inserted(name)).or_else(|| find_behind(name))
}

/// Looks up a function of a static program, all of whose objects precede this library.
fn find_inserted(name: &[u8]) -> Option<Found> {
    let program = objects().next().filter(|_| attachment::is_inserted())?;
    let (body, size) = look_up(program, name)?;
    let address = own_allocator::find_other(name).unwrap_or(body);
    Some(Found { address, body, runtime: false, object: program, size })
}

/// Looks up `name` (zero-terminated) after this library.
pub fn find_behind(name: &[u8]) -> Option<Found> {
    find_among(name, at_start).or_else(|| find_among(name, since_start))
}

fn find_among<I>(name: &[u8], objects: fn() -> I) -> Option<Found>
where
    I: Iterator<Item = &'static LinkMap>,
{
    let mut wanted = Wanted::new(name);
    // Most names have a single definition, which every reference takes.
    if objects().map(|map| count_definitions(map, name)).sum::<usize>() <= 1 {
        wanted.reference = Some(Reference::Newest);
    }
    objects().find_map(|map| {
        let (address, size) = wanted.look_up(map)?;
        Some(Found { address, body: address, runtime: is_runtime(map), object: map, size })
    })
}

/// The last object with which the program was started; null: not known. Those up to it stay loaded,
/// whereas another thread can unload a later one while its tables are read.
static LAST_AT_START: AtomicPtr<LinkMap> = AtomicPtr::new(ptr::null_mut());

/// Notes the objects with which the program was started; must be called before the first event.
pub fn note_objects() {
    let last = objects().last().map_or(ptr::null(), ptr::from_ref);
    if !attachment::is_attached() && LAST_AT_START.load(Acquire).is_null() {
        LAST_AT_START.store(last.cast_mut(), Release);
    }
}

/// Returns the objects after this library with which the program was started; all if these are not
/// known. Does not read an object after them.
fn at_start() -> impl Iterator<Item = &'static LinkMap> {
    let last = LAST_AT_START.load(Acquire);
    let (mut objects, mut is_over) = (behind(), false);
    core::iter::from_fn(move || {
        let map = if is_over { None } else { objects.next() }?;
        is_over = ptr::eq(map, last);
        Some(map)
    })
}

/// Returns the objects that were loaded later.
fn since_start() -> impl Iterator<Item = &'static LinkMap> {
    let last = LAST_AT_START.load(Acquire);
    behind().skip_while(move |map| !ptr::eq(*map, last)).skip(1)
}

/// Returns the objects after this library. If it was loaded late, it does not precede others, so
/// these are all others.
fn behind() -> impl Iterator<Item = &'static LinkMap> {
    let me = own_dynamic();
    let mut is_behind = attachment::is_attached();
    objects().filter(move |map| {
        let is_own = map.has_dynamic(me);
        is_behind |= is_own;
        is_behind && !is_own
    })
}

/// A name, and how the program refers to it, once that is needed.
struct Wanted<'a> {
    name: &'a [u8],
    reference: Option<Reference>,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a [u8]) -> Wanted<'a> {
        Wanted { name, reference: None }
    }

    fn look_up(&mut self, map: &LinkMap) -> Option<(usize, usize)> {
        let (name, reference) = (self.name, &mut self.reference);
        look_up_for(map, name, &mut || *reference.get_or_insert_with(|| reference_to(name)))
    }
}

/// Stores whether the program is already running; must be called before anything else in this
/// library.
pub fn note_loading() {
    if is_late() {
        attachment::link().store(LINK_IDLE, Release);
    }
}

/// Returns whether this library was loaded after the C library, which means into a running program.
fn is_late() -> bool {
    let me = own_dynamic();
    let mut before = objects().take_while(|map| !map.has_dynamic(me));
    before.any(|map| {
        let file = file_name(map);
        file.starts_with(b"libc.so") || file.starts_with(b"ld-musl-")
    })
}

/// Returns the address of the definition of `name` that the loader uses for all objects, including
/// this library's and the executable's.
pub fn find_first(name: &[u8]) -> Option<usize> {
    let mut wanted = Wanted::new(name);
    objects().find_map(|map| wanted.look_up(map)).map(|(address, _)| address)
}

/// Returns the object whose definition of `name` the loader finds before ours, so that calls go
/// there.
pub fn object_before(name: &[u8]) -> Option<&'static LinkMap> {
    let me = own_dynamic();
    let mut before = objects().take_while(|map| !map.has_dynamic(me));
    let mut wanted = Wanted::new(name);
    before.find(|map| wanted.look_up(map).is_some())
}

/// Returns whether an object is the C library.
pub fn is_libc(object: &LinkMap) -> bool {
    let file = file_name(object);
    file.starts_with(b"libc.so") || file.starts_with(b"ld-musl-") || file.starts_with(b"libc.musl-")
}

/// Returns this library.
pub fn own_object() -> Option<&'static LinkMap> {
    let me = own_dynamic();
    objects().find(|map| map.has_dynamic(me))
}

fn own_dynamic() -> *const Dynamic {
    address_of_symbol!("_DYNAMIC") as *const Dynamic
}

/// Returns the addresses of this library, including its zeroed data.
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
    /// Returns whether the function is in the object with this file name.
    pub fn is_in(&self, file: &[u8]) -> bool {
        // SAFETY: an entry of the loader's list.
        unsafe { self.object.as_ref() }.is_some_and(|map| file_name(map) == file)
    }
}

/// A function that is looked up on first use, because a later load may still bring it. `F` is its
/// function pointer type, or `()` if it is only jumped to.
#[repr(C)]
pub struct Real<F> {
    /// The first field, because entries jump through it.
    address: AtomicUsize,
    body: AtomicUsize,
    size: AtomicUsize,
    runtime: AtomicBool,
    name: &'static [u8],
    kind: PhantomData<F>,
}

/// Declares functions with their C types, by symbol.
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

/// Calls a real function; evaluates to the given value if there is none.
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
    /// Byte offset of the result of [`Real::is_runtime`], after the function was found, for the
    /// assembly of entries.
    pub const RUNTIME_AT: usize = offset_of!(Real<F>, runtime);

    /// `name` is zero-terminated.
    ///
    /// # Safety
    /// `F` is the pointer type of the function with this name, or `()`.
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

    /// Returns its address, or 0 if no loaded object defines it.
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

    /// Changes the address to call, because a jump to its hook replaces its start.
    pub fn move_to(&self, address: usize) {
        self.address.store(address, Relaxed);
    }

    /// Returns whether a return address is inside the function.
    pub fn holds(&self, pc: u64) -> bool {
        let found = self.get() != 0;
        found && (pc as usize).wrapping_sub(self.body.load(Relaxed)) <= self.size.load(Relaxed)
    }

    /// Returns whether it belongs to a C++ runtime, whose operators new and delete use malloc and
    /// free.
    #[inline(always)]
    pub fn is_runtime(&self) -> bool {
        self.get() != 0 && self.runtime.load(Relaxed)
    }
}

/// A function pointer type.
///
/// # Safety
/// It has the size of an address, and is not null.
pub unsafe trait Pointer: Copy {}

macro_rules! pointers {
    ($(($($argument:ident)*))*) => {
        $(
            // SAFETY: a function pointer.
            unsafe impl<R, $($argument),*> Pointer for extern "C" fn($($argument),*) -> R {}
        )*
    };
}

pointers! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E G) (A B C D E G H) }

impl<F: Pointer> Real<F> {
    /// Returns the function; `None` if no loaded object defines it.
    #[inline(always)]
    pub fn function(&self) -> Option<F> {
        let address = self.get();
        // SAFETY: an address of the function, which has this type (`new`).
        (address != 0).then(|| unsafe { core::mem::transmute_copy(&address) })
    }

    /// Returns a function that was looked up before, like the allocator's before the first event.
    ///
    /// # Safety
    /// It was found.
    #[inline(always)]
    pub unsafe fn known(&self) -> F {
        // SAFETY: the caller's contract; the address no longer changes.
        unsafe { *self.address.as_ptr().cast::<F>() }
    }
}
