//! An allocator that was found in an object, and the interception of its functions.

use super::island::Island;
use super::kept;
use super::outcome::{self, Note};
use super::patch::{self, Patch, Refusal, write_all};
use crate::attachment;
use crate::family::{Family, STANDARD, Shape, Statistics};
use crate::family_calls::{self, Function, Moved};
use crate::own_allocator;
use core::mem::transmute;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::NotIntercepted;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::maps::each_mapping;
use heaptide_recorder::sys::options::Options;

/// The most families in an object.
pub const FAMILIES_MAX: usize = 4;
/// The most functions of one family in an object.
const FUNCTIONS_MAX: usize = 80;
/// The longest prefix of names.
const PREFIX_BYTES: usize = 24;

/// Which functions of an [`Instance`] are intercepted.
pub type Which = [bool; FUNCTIONS_MAX];

/// The common part of the names of a family's functions.
#[derive(Clone, Copy)]
pub struct Prefix {
    bytes: [u8; PREFIX_BYTES],
    length: usize,
}

impl Prefix {
    /// Names without one.
    pub const NONE: Prefix = Prefix { bytes: [0; PREFIX_BYTES], length: 0 };

    /// Returns a prefix; `None` if it is too long, or not an identifier's.
    pub fn new(text: &[u8]) -> Option<Prefix> {
        let mut prefix = Prefix { length: text.len(), ..Prefix::NONE };
        prefix.bytes.get_mut(..text.len())?.copy_from_slice(text);
        text.iter().all(|&byte| byte == b'_' || byte.is_ascii_alphanumeric()).then_some(prefix)
    }

    pub fn text(&self) -> &str {
        core::str::from_utf8(self.bytes.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

/// A function that was found.
#[derive(Clone, Copy)]
pub struct Found {
    /// The name after the prefix.
    pub name: &'static str,
    pub code: patch::Function,
    pub shape: Shape,
}

/// A family in an object.
pub struct Instance {
    pub family: &'static Family,
    pub prefix: Prefix,
    functions: [Option<Found>; FUNCTIONS_MAX],
    pub usable: u64,
    pub visit: u64,
    pub statistics: Option<(Statistics, u64)>,
    /// Whether its functions are those of the process's allocator, some of which are intercepted by
    /// the names of the C library.
    pub is_of_process: bool,
    /// Which functions the program may call.
    pub needed: Which,
}

impl Instance {
    pub fn new(family: &'static Family, prefix: Prefix) -> Instance {
        let functions = [None; FUNCTIONS_MAX];
        let (usable, visit, statistics, is_of_process) = (0, 0, None, false);
        let needed = [true; FUNCTIONS_MAX];
        Instance { family, prefix, functions, usable, visit, statistics, is_of_process, needed }
    }

    /// Returns whether blocks can be allocated and freed.
    pub fn is_whole(&self) -> bool {
        if self.is_of_process {
            return self.has(|shape| !shape.is_slow_path());
        }
        let allocates =
            |shape: Shape| !matches!(shape, Shape::Free | Shape::FreeHeap) && !shape.is_slow_path();
        // Of the C library, only what a static program uses is linked: one that frees nothing has
        // no `free`.
        let is_part = attachment::is_inserted() && core::ptr::eq(self.family, &STANDARD);
        (is_part || self.has(|shape| shape == Shape::Free)) && self.has(allocates)
    }

    fn has(&self, is_it: impl Fn(Shape) -> bool) -> bool {
        self.functions.iter().flatten().any(|found| is_it(found.shape))
    }

    /// Returns whether all functions are in code of this file; its path may refer to another file
    /// by now.
    pub fn is_code_of(&self, inode: u64) -> bool {
        let functions = || self.functions.iter().flatten();
        let mut buffer = [0u8; 16 << 10];
        let mut found = 0;
        each_mapping(&mut buffer, |mapping| {
            if mapping.executable && mapping.inode == inode {
                let end = |code: patch::Function| code.address + code.size as u64;
                let within = functions().filter(|found| {
                    mapping.range.holds(found.code.address) && end(found.code) <= mapping.range.high
                });
                found += within.count();
            }
            true
        });
        found == functions().count()
    }

    /// Two names of one function share a jump, to the body of the first.
    pub fn add(&mut self, found: Found) {
        if own_allocator::is_intercepted(found.code.address) {
            self.is_of_process = true;
            return;
        }
        let same = |other: &Found| other.code.address == found.code.address;
        if self.functions.iter().flatten().any(same) {
            return;
        }
        if let Some(free) = self.functions.iter_mut().find(|place| place.is_none()) {
            *free = Some(found);
        }
    }

    /// Notes that the program calls the function at an address.
    pub fn need(&mut self, address: u64) {
        for (place, needed) in self.functions.iter().zip(&mut self.needed) {
            *needed |= place.is_some_and(|found| found.code.address == address);
        }
    }

    /// Writes jumps to all entries, or none.
    ///
    /// Returns which of the functions are intercepted.
    pub fn intercept(&self, object: usize, is_safe: bool) -> Result<Which, NotIntercepted> {
        if Options::known().is_none_or(|options| !options.intercept) {
            return Err(NotIntercepted::TurnedOff);
        }
        let entry = family_calls::entry();
        if !is_safe {
            return Err(NotIntercepted::Threads);
        }
        let first = self.functions.iter().flatten().next().ok_or(NotIntercepted::Unmovable)?;
        let p = store();
        if !self.is_of_process && !p.sizes.is_made() {
            p.sizes.create(p.scarce.load(Relaxed)).ok_or(NotIntercepted::Refused)?;
        }
        let mut island = Island::near(first.code.address).ok_or(NotIntercepted::Refused)?;
        let mut patches = [None; FUNCTIONS_MAX];
        let outcome = match self.plan(entry, &mut island, &mut patches) {
            None => Err(NotIntercepted::Unmovable),
            Some(()) if !kept::keep_island(&island, object) => Err(NotIntercepted::Refused),
            Some(()) if island.seal() && write_all(patches.iter().flatten()) => {
                Ok(patches.map(|patch| patch.is_some()))
            }
            Some(()) => Err(NotIntercepted::Refused),
        };
        if outcome.is_err() {
            // SAFETY: no jump to it was written.
            unsafe { kept::release(island) };
        }
        let renamed = |reason| if self.is_of_process { NotIntercepted::Renamed } else { reason };
        outcome.map_err(renamed)
    }

    /// Records the outcome for the profile.
    pub fn note(&self, outcome: Result<Which, NotIntercepted>) {
        let first = self.functions.iter().flatten().next();
        let mut note = Note::new(first.map_or(0, |first| first.code.address));
        note.add(self.prefix.text());
        if let Ok(which) = outcome {
            let done = || {
                let all = self.functions.iter().zip(which);
                all.filter_map(|(found, is_done)| found.filter(|_| is_done))
            };
            done().for_each(|found| note.add(found.name));
            if !self.is_complete(done().any(|found| found.shape == Shape::AllocateSlow)) {
                outcome::note_uncertain();
            }
        }
        outcome::note_family(outcome.map(|_| ()), note);
    }

    /// Returns whether no function can be inlined unnoticed. With a known prefix, the allocator is
    /// usually compiled for itself; another one belongs to its library, and may be compiled with
    /// it.
    fn is_complete(&self, sees_slow_path: bool) -> bool {
        let is_known = self.family.is_known(self.prefix.text());
        is_known || sees_slow_path || self.family.inlining.is_none()
    }

    /// Plans the jumps; `None` if a function that frees or resizes cannot be moved.
    fn plan(&self, entry: u64, island: &mut Island, patches: &mut [Option<Patch>]) -> Option<()> {
        // SAFETY: a function of this type, by its name.
        let usable = (self.usable != 0).then(|| unsafe {
            transmute::<u64, extern "C" fn(*mut u8, usize) -> usize>(self.usable)
        });
        // SAFETY: likewise.
        let visit =
            (self.visit != 0).then(|| unsafe { transmute::<u64, family_calls::Visit>(self.visit) });
        for ((found, &is_needed), place) in self.functions.iter().zip(&self.needed).zip(patches) {
            let Some(found) = found else { continue };
            if self.is_of_process && found.shape.is_slow_path() {
                continue; // all callers are in the object, and pass our hooks
            }
            if found.shape == Shape::FreeHeap && visit.is_none() {
                continue; // its blocks are not known
            }
            let patch = match Patch::plan(found.code, 0, island) {
                Ok(patch) => patch,
                Err(Refusal::Unmovable) if !is_needed || found.shape.can_be_omitted() => continue,
                Err(_) => return None,
            };
            // SAFETY: as above; additional arguments are ignored.
            let moved = unsafe { transmute::<u64, Moved>(patch.moved) };
            let sizes = self.family.sizes;
            let function = if self.is_of_process {
                Function::of_process(found.name, moved, found.shape)
            } else {
                Function::new(found.name, moved, usable, sizes, found.shape)
            }
            .visiting(visit);
            let function = kept::keep(function, island)?;
            let record = core::ptr::from_ref(function) as u64;
            patch.pass(record, entry);
            *place = Some(patch);
        }
        Some(())
    }
}
