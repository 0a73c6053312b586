//! The process's recorder: its states, its start, and what all threads share.
//!
//! Everything here lies in pages that the kernel wipes in a forked child (MADV_WIPEONFORK). So
//! every kind of child, also of a raw clone, finds [`State::New`] and starts a recording of its
//! own, or none if it execs.

use crate::api::control;
use crate::event::lane::{self, LaneState};
use crate::event::trace;
use crate::store::profile;
use crate::store::shared::{self, Store, store};
use crate::store::sites;
use crate::sys::front::{self, Front, Platform};
use crate::sys::locked::{Guarded, Locked};
use crate::sys::options::Options;
use crate::sys::tls::tls;
use crate::sys::wiped::Wiped;
use crate::sys::{clock, confined, kernel, memory, own_stack};
use core::ops::Deref;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use heaptide_format::shared::Word;
use heaptide_format::{Mode, Unrecorded, UnrecordedChild};

/// The recorder's life in one process image.
///
/// New → Starting → Active → (Confined) ; Starting → Off. A fork leads back to New.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing happened yet. Zero, as wiped memory reads.
    New = 0,
    /// One thread sets things up; others forward.
    Starting = 1,
    /// Recording.
    Active = 2,
    /// Not recording: not wanted here, or no profile could be made.
    Off = 3,
}

/// What all threads share, the store's part apart. Zero is the state of a process that was not
/// started. What events read comes last, as in [`Store`].
#[repr(C)]
pub struct Process {
    pub state: AtomicU32,
    /// All lanes, by index.
    pub lanes: AtomicPtr<AtomicPtr<LaneState>>,
    pub lane_count: AtomicUsize,
    pub lanes_in_use: AtomicU32,
    /// Records of lanes and of their root scopes; the lock is for all of a lane's making.
    pub lane_records: Locked<lane::Records>,
    pub regions: crate::api::regions::Regions,
    pub windows: crate::api::windows::Windows,
    pub moments: crate::api::marks::Moments,
    pub watch: crate::api::monitors::Watch,
    /// Timeline: its extent and the bytes between samples.
    pub timeline: Guarded<profile::Cursor>,
    pub sample_interval: AtomicU64,
    pub sample_count: AtomicU32,
    /// Frees that no lane counts, for they happened inside the recorder, and their bytes.
    pub nested_frees: AtomicU64,
    pub nested_bytes: AtomicU64,
    /// The last request from outside that a thread took.
    pub requests_taken: AtomicU32,
    pub trace: crate::event::trace::Shared,
    /// More than one thread has been seen at once.
    pub threaded: AtomicBool,
    /// Verified reuse is off, for tests.
    pub no_reuse: AtomicBool,
    /// Links of the stack tree's root.
    pub root: Guarded<heaptide_unwind::tree::Links>,
}

// SAFETY: zero is a valid value of every field, and together they are a process that was not
// started.
static PROCESS: Wiped<Process> = unsafe { Wiped::new() };

/// The shared state.
#[inline(always)]
pub fn process() -> &'static Process {
    PROCESS.get()
}

/// What is the store's is reached through the process, too.
impl Deref for Process {
    type Target = Store;

    #[inline(always)]
    fn deref(&self) -> &Store {
        store()
    }
}

/// Set once in the life of the address space, so that a forked child can tell.
static EVER_STARTED: AtomicBool = AtomicBool::new(false);

impl Process {
    #[inline(always)]
    pub fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::New,
            1 => State::Starting,
            2 => State::Active,
            _ => State::Off,
        }
    }
}

/// Starts the recorder if that has not been tried, and says whether it is active. Runs before
/// anything of the guest may have run, in a constructor, in the first allocation, or in a forked
/// child. Needs some 60 KiB of stack: see [`own_stack`].
#[cold]
#[inline(never)]
pub fn start() -> bool {
    let p = process();
    if p.state.compare_exchange(State::New as u32, State::Starting as u32, AcqRel, Acquire).is_err()
    {
        return p.state() == State::Active;
    }
    let started = set_up(p, EVER_STARTED.swap(true, Relaxed));
    if started == Err(Refused::NoProfile) {
        count_unrecorded(UnrecordedChild::NoProfile);
    }
    let state = if started.is_ok() { State::Active } else { State::Off };
    p.state.store(state as u32, Release);
    started.is_ok()
}

/// Starts the recorder of a forked child that is about to lose the right or the way to the
/// recording, unless it was started before.
#[cold]
pub fn start_early<F: Front>() {
    front::install::<F>();
    let t = tls();
    // SAFETY: this thread's own block.
    unsafe {
        if process().state() == State::New && (*t).busy == 0 {
            (*t).busy = 1;
            own_stack::call(start);
            (*t).busy = 0;
        }
    }
}

/// Why a process image is not recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// It is not to be recorded.
    Unwanted,
    /// Its profile could not be made.
    NoProfile,
    /// The reason is in its profile.
    Noted,
}

fn set_up(p: &'static Process, forked: bool) -> Result<(), Refused> {
    if !confined::may_call() {
        return Err(Refused::NoProfile); // a filter may forbid what making one takes
    }
    let platform = front::platform().ok_or(Refused::Unwanted)?;
    let wanted = Options::get().filter(|options| options.is_wanted());
    let options = wanted.filter(|_| (platform.is_wanted)()).ok_or(Refused::Unwanted)?;
    let wiped = PROCESS.wipe_in_children();
    let wiped = wiped.and_then(|()| shared::wipe_in_children());
    let wiped = wiped.and_then(|()| memory::wipe_in_children());
    p.start_ns.store(clock::monotonic_ns(), Relaxed);
    p.pid.store(kernel::getpid(), Relaxed);
    p.generation.store(1, Relaxed);
    p.no_reuse.store(!options.reuse, Relaxed);
    p.scarce.store(address_space_is_scarce(), Relaxed);
    memory::set_budget(budget());
    if forked {
        memory::begin_as_child();
    }
    profile::create(p, options, forked, |header| {
        header.max_depth.set(lane::max_depth(p) as u32);
        trace::prepare(p, header, options);
    })
    .ok_or(Refused::NoProfile)?;
    // A kernel before 4.14: a child would go on in its parent's profile.
    let prepared =
        wiped.map_err(|_| Unrecorded::OldKernel).and_then(|()| prepare(p, platform, options));
    prepared.map_err(|reason| {
        profile::abandon(p, reason);
        Refused::Noted
    })
}

/// All but the profile.
fn prepare(p: &'static Process, platform: &Platform, options: &Options) -> Result<(), Unrecorded> {
    if (platform.is_under_valgrind)() {
        return Err(Unrecorded::Valgrind);
    }
    (platform.find_allocator)()?;
    let scarce = p.scarce.load(Relaxed);
    memory::prepare(scarce);
    create_tables(p).ok_or(Unrecorded::NoMemory)?;
    (platform.create_tables)(scarce).ok_or(Unrecorded::NoMemory)?;
    lane::create_key();
    control::prepare(p, options);
    if options.mode == Mode::Stacks {
        // Now, while `/proc` is in reach: a guest may change its root.
        p.modules.list_all(p);
    }
    Ok(())
}

fn create_tables(p: &Process) -> Option<()> {
    sites::create_owners(p)?;
    let scarce = p.scarce.load(Relaxed);
    p.shadow.create(scarce)?;
    lane::create_table(p)
}

/// Counts a process or a program started by exec that has no profile.
pub fn count_unrecorded(why: UnrecordedChild) {
    change_unrecorded(why, 1);
}

/// Takes such a count back.
pub fn discount_unrecorded(why: UnrecordedChild) {
    change_unrecorded(why, u64::MAX);
}

fn change_unrecorded(why: UnrecordedChild, by: u64) {
    if let Some(header) = profile::family() {
        header.unrecorded_children[why as usize].fetch_add(by, Relaxed);
    }
}

/// Whether the recorder has to do with little address space: there is a limit, or the kernel counts
/// what is only reserved.
fn address_space_is_scarce() -> bool {
    let mut mode = [0u8; 2];
    let path = kernel::Path::new(b"/proc/sys/vm/overcommit_memory\0");
    let strict =
        path.is_some_and(|path| kernel::read_file(path, &mut mode).is_ok()) && mode[0] == b'2';
    strict || [kernel::RLIMIT_AS, kernel::RLIMIT_DATA].map(kernel::limit) != [u64::MAX; 2]
}

/// The part of a limit that is the recorder's: the program has to get on with the rest.
fn budget() -> u64 {
    const PART: u64 = 4;
    const LEAST: u64 = 8 << 20;
    let limit = kernel::limit(kernel::RLIMIT_AS).min(kernel::limit(kernel::RLIMIT_DATA));
    if limit == kernel::UNLIMITED { limit } else { (limit / PART).max(LEAST) }
}

/// The state of a process in which nothing happened yet.
#[cfg(test)]
pub fn unstarted() -> std::boxed::Box<Process> {
    // SAFETY: zero is a valid value of every field.
    unsafe { std::boxed::Box::<Process>::new_zeroed().assume_init() }
}
