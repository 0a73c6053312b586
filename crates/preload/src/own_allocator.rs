//! The functions of the process's allocator, once they are intercepted in place: the locations of
//! their code, and the addresses to call.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use heaptide_recorder::sys::loader::{LinkMap, look_up_as_imported};

/// A function of the allocator that one of our hooks interposes.
#[derive(Clone, Copy)]
pub struct Name {
    /// Zero-terminated.
    pub symbol: &'static [u8],
    /// The consequence for the allocator's blocks if this function is not intercepted.
    pub duty: Duty,
}

/// The effect of a function on blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Allocates: if it is not intercepted, its blocks are not recorded, like older ones.
    Allocates,
    /// Frees or moves: if it is not intercepted, its blocks stay live in the recording.
    Frees,
}

macro_rules! names {
    ($($duty:ident: $($symbol:literal)*;)*) => {
        /// All of them. If two have one address, the first counts.
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

/// Functions that only query blocks, and need not be intercepted.
const QUERIES: [&[u8]; 2] = [b"malloc_usable_size\0", b"nallocx\0"];

impl Name {
    /// Returns the name without the zero byte.
    pub fn text(&self) -> &'static str {
        core::ffi::CStr::from_bytes_with_nul(self.symbol)
            .ok()
            .and_then(|symbol| symbol.to_str().ok())
            .unwrap_or_default()
    }

    /// Returns whether it is an operator of C++. That of a C++ runtime calls malloc and free.
    pub fn is_operator(&self) -> bool {
        self.symbol.starts_with(b"_Z")
    }
}

/// An intercepted function.
struct Intercepted {
    /// The address to call; 0: it is not intercepted.
    moved: AtomicUsize,
    address: AtomicUsize,
    size: AtomicUsize,
}

/// One per name in [`NAMES`].
static INTERCEPTED: [Intercepted; NAMES.len()] = [const {
    Intercepted {
        moved: AtomicUsize::new(0),
        address: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
    }
}; NAMES.len()];

/// The most functions of a static program other than those of its allocator.
pub const OTHERS_MAX: usize = 64;

/// The address and the name of such a function, and the address to call; 0: none.
struct Other {
    address: AtomicUsize,
    call: AtomicUsize,
    name: AtomicUsize,
}

static OTHERS: [Other; OTHERS_MAX] = [const {
    Other { address: AtomicUsize::new(0), call: AtomicUsize::new(0), name: AtomicUsize::new(0) }
}; OTHERS_MAX];

/// Sets the location of another intercepted function. Without space, it is not found.
pub fn note_other(name: &'static &'static [u8], place: Place) {
    if let Some(free) = OTHERS.iter().find(|other| other.call.load(Relaxed) == 0) {
        free.address.store(place.address, Relaxed);
        free.name.store(core::ptr::from_ref(name) as usize, Relaxed);
        free.call.store(place.call, Release);
    }
}

/// Forgets the other functions, which are not intercepted.
pub fn forget_others() {
    OTHERS.iter().for_each(|other| other.call.store(0, Release));
}

/// Returns whether the function at an address is intercepted, as another one or the allocator's.
pub fn is_known(address: usize) -> bool {
    is_intercepted(address as u64)
        || OTHERS
            .iter()
            .any(|other| other.call.load(Acquire) != 0 && other.address.load(Relaxed) == address)
}

/// Finds the address to call for another intercepted function by its zero-terminated name.
pub fn find_other(name: &[u8]) -> Option<usize> {
    let found = OTHERS.iter().find(|other| {
        let known = other.name.load(Relaxed) as *const &[u8];
        // SAFETY: null, or a static.
        other.call.load(Acquire) != 0 && unsafe { known.as_ref() }.is_some_and(|it| *it == name)
    });
    found.map(|other| other.call.load(Relaxed))
}

/// The object with the allocator; null: none is intercepted. It is never unloaded.
static OBJECT: AtomicPtr<LinkMap> = AtomicPtr::new(core::ptr::null_mut());

/// The location of a function.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address to call.
    pub call: usize,
    /// The address of its code.
    pub address: usize,
    /// Bytes of its code.
    pub size: usize,
}

/// Sets the location of the function with this index in [`NAMES`].
pub fn note(index: usize, place: Place) {
    if let Some(intercepted) = INTERCEPTED.get(index) {
        intercepted.address.store(place.address, Relaxed);
        intercepted.size.store(place.size, Relaxed);
        intercepted.moved.store(place.call, Release);
    }
}

/// Sets the object with the allocator of the process.
pub fn set_object(object: &'static LinkMap) {
    OBJECT.store(core::ptr::from_ref(object).cast_mut(), Release);
}

/// Returns the object with the intercepted allocator.
pub fn object() -> Option<&'static LinkMap> {
    // SAFETY: an entry of the loader's list, or null; the executable and objects loaded before this
    // library stay loaded.
    unsafe { OBJECT.load(Acquire).as_ref() }
}

/// Returns whether the function at an address is intercepted.
pub fn is_intercepted(address: u64) -> bool {
    INTERCEPTED.iter().any(|intercepted| {
        intercepted.moved.load(Acquire) != 0 && intercepted.address.load(Relaxed) as u64 == address
    })
}

/// Finds a function of the intercepted allocator by its zero-terminated name.
pub fn find(name: &[u8]) -> Option<(Place, &'static LinkMap)> {
    let object = object()?;
    if QUERIES.contains(&name) {
        let (address, size) = look_up_as_imported(object, name)?;
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
