//! The outcome of interceptions, for the profile. Children inherit it, like the code.

use crate::inlined;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use heaptide_format::shared::{self, Word};
use heaptide_format::{
    DeviceApi, IMAGE_ATTACHED, IMAGE_FAMILY, IMAGE_FAMILY_LEFT, IMAGE_FAMILY_REASON_SHIFT,
    IMAGE_FAMILY_UNCERTAIN, IMAGE_IMPORTS_ONLY, IMAGE_INTERCEPTED, IMAGE_OWN_MALLOC,
    IMAGE_PYTHON_SHIFT, IMAGE_REASON_SHIFT, INTERCEPTED, INTERCEPTION_NAMES, INTERCEPTIONS,
    NotIntercepted, PythonObjects,
};
use heaptide_recorder::store::shared::store;

static FLAGS: AtomicU32 = AtomicU32::new(0);
/// [`shared::FileHeader::drivers`].
static DRIVERS: AtomicU32 = AtomicU32::new(0);

/// An allocator that was found, and its functions.
#[derive(Clone, Copy)]
pub struct Note {
    /// An address in the code of its object.
    address: u64,
    state: u32,
    length: usize,
    names: [u8; INTERCEPTION_NAMES],
}

/// Written by one check at a time; those below [`NOTED`] may be read.
struct Notes(UnsafeCell<[Note; INTERCEPTIONS]>);

// SAFETY: a note is written before it is counted, and does not change afterwards.
unsafe impl Sync for Notes {}

static NOTES: Notes = Notes(UnsafeCell::new([const { Note::new(0) }; INTERCEPTIONS]));
static NOTED: AtomicUsize = AtomicUsize::new(0);

impl Note {
    pub const fn new(address: u64) -> Note {
        Note { address, state: 0, length: 0, names: [0; INTERCEPTION_NAMES] }
    }

    /// Adds a name; names without space are omitted.
    pub fn add(&mut self, name: &str) {
        let start = if self.length > 0 { self.length + 1 } else { 0 };
        let end = start + name.len();
        if let Some(room) = self.names.get_mut(start..end) {
            room.copy_from_slice(name.as_bytes());
            if start > 0 {
                self.names[start - 1] = b' ';
            }
            self.length = end;
        }
    }

    fn is_like(&self, other: &Note) -> bool {
        (self.state, self.names) == (other.state, other.names)
    }

    fn write(&self, entry: &shared::Interception) {
        entry.address.set(self.address);
        entry.length.set(self.length as u32);
        entry.names.iter().zip(self.names).for_each(|(to, byte)| to.set(byte));
        entry.state.store(self.state, Release);
    }
}

/// Writes the outcome to the header of a profile.
pub fn describe(header: &shared::FileHeader) {
    header.image_flags.store(FLAGS.load(Relaxed) | inlined::image_flags(), Relaxed);
    header.drivers.store(DRIVERS.load(Relaxed), Relaxed);
    let noted = NOTED.load(Acquire);
    // SAFETY: counted notes do not change.
    let notes = (0..noted).map(|index| unsafe { *NOTES.0.get().cast::<Note>().add(index) });
    notes.zip(&header.interceptions).for_each(|(note, entry)| note.write(entry));
}

/// Records the interception of an allocator that precedes ours.
pub fn note_malloc(outcome: Result<(), NotIntercepted>, note: Note) {
    let flags = match outcome {
        Ok(()) => IMAGE_INTERCEPTED,
        Err(reason) => IMAGE_OWN_MALLOC | (reason as u32) << IMAGE_REASON_SHIFT,
    };
    FLAGS.fetch_or(flags, Relaxed);
    keep(outcome, note);
}

/// Records that a command attached, and the interception of the C library's allocator.
pub fn note_libc(outcome: Result<(), NotIntercepted>) {
    if outcome.is_err() {
        FLAGS.fetch_or(IMAGE_IMPORTS_ONLY, Relaxed);
    }
}

/// Records that a command attached.
pub fn note_attached() {
    FLAGS.fetch_or(IMAGE_ATTACHED, Relaxed);
}

/// Records how the objects of a Python interpreter are recorded. The process has a profile.
pub fn note_python(choice: PythonObjects) {
    FLAGS.fetch_and(!(7 << IMAGE_PYTHON_SHIFT), Relaxed);
    FLAGS.fetch_or((choice as u32) << IMAGE_PYTHON_SHIFT, Relaxed);
    describe(store().header());
}

/// Records the interception of a device driver. The process has a profile.
pub fn note_driver(api: DeviceApi, outcome: Result<(), NotIntercepted>) {
    let state = outcome.map_or_else(|reason| INTERCEPTED + reason as u32, |()| INTERCEPTED);
    let shift = 8 * (api as u32 - 1);
    let others = DRIVERS.load(Relaxed) & !(0xff << shift);
    DRIVERS.store(others | state << shift, Relaxed); // one check at a time
    describe(store().header());
}

/// Returns whether memory of a driver is recorded, at least by some of its functions.
pub fn is_driver_recorded(api: DeviceApi) -> bool {
    let state = DRIVERS.load(Relaxed) >> (8 * (api as u32 - 1)) & 0xff;
    [INTERCEPTED, INTERCEPTED + NotIntercepted::Unmovable as u32].contains(&state)
}

/// Records that functions of an intercepted allocator may be inlined unnoticed.
pub fn note_uncertain() {
    FLAGS.fetch_or(IMAGE_FAMILY_UNCERTAIN, Relaxed);
}

/// Records the interception of an allocator with its own function names. The process has a profile.
pub fn note_family(outcome: Result<(), NotIntercepted>, note: Note) {
    match outcome {
        Ok(()) => {
            FLAGS.fetch_or(IMAGE_FAMILY, Relaxed);
            keep(outcome, note);
        }
        Err(reason) => note_left(reason, note),
    }
    describe(store().header());
}

/// Records that functions of an allocator are not intercepted.
pub fn note_left(reason: NotIntercepted, note: Note) {
    FLAGS.fetch_and(!(15 << IMAGE_FAMILY_REASON_SHIFT), Relaxed);
    let flags = IMAGE_FAMILY_LEFT | (reason as u32) << IMAGE_FAMILY_REASON_SHIFT;
    FLAGS.fetch_or(flags, Relaxed);
    keep(Err(reason), note);
}

/// Keeps a note, unless there is no space or an equal one, as for a library that is loaded again.
fn keep(outcome: Result<(), NotIntercepted>, note: Note) {
    let state = outcome.map_or_else(|reason| INTERCEPTED + reason as u32, |()| INTERCEPTED);
    let note = Note { state, ..note };
    let noted = NOTED.load(Relaxed);
    let notes = NOTES.0.get().cast::<Note>();
    // SAFETY: counted notes do not change.
    let is_known = (0..noted).any(|index| unsafe { (*notes.add(index)).is_like(&note) });
    if noted < INTERCEPTIONS && !is_known {
        // SAFETY: an uncounted slot; one check at a time gets here.
        unsafe { notes.add(noted).write(note) };
        NOTED.store(noted + 1, Release);
    }
}
