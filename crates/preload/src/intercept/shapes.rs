//! Recognises allocators of no known family by the names of their functions: `zz_malloc` with
//! `zz_free`, or `zzmallocx` with `zzdallocx`. What their other functions do is unknown, so they
//! are not intercepted, and the profile names them.

use super::instance::Prefix;
use super::outcome::Note;
use super::reach::Reached;
use heaptide_recorder::sys::loader::{LinkMap, each_import, each_unbound_import};

/// The most prefixes of an object that are examined.
const PREFIXES_MAX: usize = 16;

const MALLOC: u8 = 1;
const FREE: u8 = 2;
const MALLOCX: u8 = 4;
const DALLOCX: u8 = 8;

/// Names after the prefix. Those of one letter more or less, such as `xmalloc`, are usual for
/// functions that check the result of `malloc`.
const NAMES: [(&[u8], u8); 4] =
    [(b"_malloc", MALLOC), (b"_free", FREE), (b"mallocx", MALLOCX), (b"dallocx", DALLOCX)];

/// An object with an allocator of its own takes memory from the kernel with one of these.
const SYSTEM: [&[u8]; 5] = [b"mmap\0", b"mmap64\0", b"sbrk\0", b"brk\0", b"syscall\0"];

/// Those of them that do nothing else.
const KERNEL: [&[u8]; 4] = [b"mmap\0", b"mmap64\0", b"sbrk\0", b"brk\0"];

/// An object whose functions may only pass on calls to the recorded allocator imports one of these.
const RECORDED: [&[u8]; 12] = [
    b"malloc\0",
    b"calloc\0",
    b"realloc\0",
    b"free\0",
    b"posix_memalign\0",
    b"aligned_alloc\0",
    b"memalign\0",
    b"reallocarray\0",
    b"_Znwm\0",
    b"_Znam\0",
    b"_ZdlPv\0",
    b"_ZdlPvm\0",
];

/// Prefixes of functions for secrets: each block has mappings of its own, which are recorded.
/// Programs that only link the library, such as `ffmpeg` and `php`, have none.
const SECRETS: [&str; 1] = ["sodium_"];

/// The names of one prefix.
#[derive(Clone, Copy)]
struct Shape {
    /// Includes a `_` at the end that belongs to the names.
    prefix: Prefix,
    /// A bit per name that was found.
    names: u8,
    /// The address of the function that allocates, in the file.
    address: u64,
    /// That of the function that frees; 0 without one.
    free: u64,
}

impl Shape {
    fn is_whole(&self) -> bool {
        let has = |names| self.names & names == names;
        let is_for_secrets = SECRETS.contains(&self.prefix.text());
        !is_for_secrets && (has(MALLOC | FREE) || has(MALLOCX | DALLOCX))
    }

    /// Returns whether the function that allocates reaches one that takes memory from the kernel,
    /// and neither it nor the one that frees reaches the recorded allocator.
    fn is_own(&self, map: &LinkMap) -> bool {
        let at = |address: u64| Reached::from(map, map.address().wrapping_add(address));
        let (Some(allocate), Some(free)) = (at(self.address), at(self.free)) else {
            return false;
        };
        allocate.has_any(map, &KERNEL)
            && !allocate.has_any(map, &RECORDED)
            && !free.has_any(map, &RECORDED)
    }

    /// Returns a note with the names that were found.
    fn note(&self, map: &LinkMap) -> Note {
        let mut note = Note::new(map.address().wrapping_add(self.address));
        for (end, _) in NAMES.iter().filter(|(_, bit)| self.names & bit != 0) {
            let rest = end.strip_prefix(b"_").unwrap_or(end);
            let mut name = [0u8; 48];
            let parts = self.prefix.text().bytes().chain(rest.iter().copied());
            let length = name.iter_mut().zip(parts).map(|(to, byte)| *to = byte).count();
            note.add(core::str::from_utf8(name.get(..length).unwrap_or_default()).unwrap_or(""));
        }
        note
    }
}

/// The prefixes of an object.
pub struct Shapes([Option<Shape>; PREFIXES_MAX]);

impl Shapes {
    pub const NONE: Shapes = Shapes([None; PREFIXES_MAX]);

    /// Adds a function of the object's file.
    pub fn note(&mut self, name: &[u8], address: u64) {
        for (end, bit) in NAMES {
            let Some(start) = name.strip_suffix(end).filter(|start| !start.is_empty()) else {
                continue;
            };
            let length = start.len() + usize::from(end[0] == b'_');
            let Some(prefix) = Prefix::new(&name[..length]) else { continue };
            let is_it = |place: &&mut Option<Shape>| {
                place.as_ref().is_none_or(|other| other.prefix.text() == prefix.text())
            };
            if let Some(place) = self.0.iter_mut().find(is_it) {
                let shape = place.get_or_insert(Shape { prefix, names: 0, address, free: 0 });
                shape.names |= bit;
                if bit & (MALLOC | MALLOCX) != 0 {
                    shape.address = address;
                } else {
                    shape.free = address;
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.0.iter().flatten().any(Shape::is_whole)
    }

    /// Calls `visit` with the prefix of each allocator and a note of its names, if it takes its
    /// memory from the kernel, and none from the recorded allocator.
    pub fn each_own(&self, map: &LinkMap, mut visit: impl FnMut(Prefix, Note)) {
        if self.is_empty() {
            return;
        }
        let (mut is_own, mut may_wrap) = (false, false);
        each_import(map, |import| {
            is_own |= SYSTEM.iter().any(|name| import.is_of(name));
        });
        // Pointers to functions in data are no imports of code.
        each_unbound_import(map, |import| {
            may_wrap |= RECORDED.iter().any(|name| import.is_of(name));
        });
        if is_own {
            let whole = self.0.iter().flatten().filter(|shape| shape.is_whole());
            let own = whole.filter(|shape| !may_wrap || shape.is_own(map));
            own.for_each(|shape| visit(shape.prefix, shape.note(map)));
        }
    }
}
