//! The functions of an allocator that the executable brings, once they are intercepted: where
//! their code is, and by what they are called.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use heaptide_recorder::sys::loader::{LinkMap, look_up};

/// A function of the allocator that one of our hooks stands for.
#[derive(Clone, Copy)]
pub struct Name {
    /// Ends with a zero byte.
    pub symbol: &'static [u8],
    /// What becomes of the allocator's blocks if this is not intercepted.
    pub duty: Duty,
}

/// What a function does with blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Allocates: unless it is intercepted its blocks are not recorded, like those from before.
    Allocates,
    /// Frees or moves: unless it is intercepted its blocks stay live in the recording.
    Frees,
}

macro_rules! names {
    ($($duty:ident: $($symbol:literal)*;)*) => {
        /// All of them. Where two have one address the first counts.
        pub const NAMES: &[Name] = &[
            $($(Name { symbol: concat!($symbol, "\0").as_bytes(), duty: Duty::$duty },)*)*
        ];
    };
}

names! {
    Frees: "malloc" "free" "cfree" "realloc" "reallocarray";
    Allocates: "calloc" "memalign" "aligned_alloc" "posix_memalign" "valloc" "pvalloc";
    Allocates: "mallocx" "xallocx";
    Frees: "rallocx" "dallocx" "sdallocx";
    Frees: "_ZdlPv" "_ZdaPv" "_ZdlPvm" "_ZdaPvm" "_ZdlPvRKSt9nothrow_t" "_ZdaPvRKSt9nothrow_t";
    Frees: "_ZdlPvSt11align_val_t" "_ZdaPvSt11align_val_t" "_ZdlPvmSt11align_val_t";
    Frees: "_ZdaPvmSt11align_val_t" "_ZdlPvSt11align_val_tRKSt9nothrow_t";
    Frees: "_ZdaPvSt11align_val_tRKSt9nothrow_t";
    Allocates: "_Znwm" "_Znam" "_ZnwmRKSt9nothrow_t" "_ZnamRKSt9nothrow_t";
    Allocates: "_ZnwmSt11align_val_t" "_ZnamSt11align_val_t";
    Allocates: "_ZnwmSt11align_val_tRKSt9nothrow_t" "_ZnamSt11align_val_tRKSt9nothrow_t";
}

/// Functions that are asked about blocks, and need not be intercepted.
const QUERIES: [&[u8]; 2] = [b"malloc_usable_size\0", b"nallocx\0"];

impl Name {
    /// The name without the zero byte.
    pub fn text(&self) -> &'static str {
        core::ffi::CStr::from_bytes_with_nul(self.symbol)
            .ok()
            .and_then(|symbol| symbol.to_str().ok())
            .unwrap_or_default()
    }

    /// Whether it is an operator of C++. That of a C++ runtime calls malloc and free.
    pub fn is_operator(&self) -> bool {
        self.symbol.starts_with(b"_Z")
    }
}

/// An intercepted function.
struct Intercepted {
    /// How it is called now; 0: it is not intercepted.
    moved: AtomicUsize,
    address: AtomicUsize,
    size: AtomicUsize,
}

/// One for each of [`NAMES`].
static INTERCEPTED: [Intercepted; NAMES.len()] = [const {
    Intercepted {
        moved: AtomicUsize::new(0),
        address: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
    }
}; NAMES.len()];

/// The object that has the allocator; null: none is intercepted. It is never unloaded.
static OBJECT: AtomicPtr<LinkMap> = AtomicPtr::new(core::ptr::null_mut());

/// Where a function is.
#[derive(Clone, Copy)]
pub struct Place {
    /// By which it is called.
    pub call: usize,
    /// Of its code.
    pub address: usize,
    /// Bytes of its code.
    pub size: usize,
}

/// Notes how the function of [`NAMES`] with this index is called from now on.
pub fn note(index: usize, place: Place) {
    if let Some(intercepted) = INTERCEPTED.get(index) {
        intercepted.address.store(place.address, Relaxed);
        intercepted.size.store(place.size, Relaxed);
        intercepted.moved.store(place.call, Release);
    }
}

/// From now on the allocator of the process is the one in this object.
pub fn set_object(object: &'static LinkMap) {
    OBJECT.store(core::ptr::from_ref(object).cast_mut(), Release);
}

/// The object that has the intercepted allocator.
pub fn object() -> Option<&'static LinkMap> {
    // SAFETY: an entry of the loader's list, or null; the executable and what was loaded before
    // this library stays.
    unsafe { OBJECT.load(Acquire).as_ref() }
}

/// Finds a function of the intercepted allocator by its name, which ends with a zero byte.
pub fn find(name: &[u8]) -> Option<(Place, &'static LinkMap)> {
    let object = object()?;
    if QUERIES.contains(&name) {
        let (address, size) = look_up(object, name)?;
        return Some((Place { call: address, address, size }, object));
    }
    let index = NAMES.iter().position(|known| known.symbol == name)?;
    let intercepted = INTERCEPTED.get(index)?;
    let call = intercepted.moved.load(Acquire);
    let place = Place {
        call,
        address: intercepted.address.load(Relaxed),
        size: intercepted.size.load(Relaxed),
    };
    (call != 0).then_some((place, object))
}
