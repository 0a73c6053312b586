//! The start of the recorder: in a constructor, in the first allocation, or in a forked child.

use crate::event::marks::{self, Patience};
use crate::event::process::{self, Process, State, count_unrecorded, process};
use crate::event::requests::{self, threshold};
use crate::event::{
    accounts, device_state, lane, live_mappings, monitors, output, python_codes,
    python_interpreter, regions, search, stacks, timeline, trace, trace_extents, windows,
};
use crate::store::control_words::set;
use crate::store::shared::{Store, store};
use crate::store::{modules, names, profile, python_lines, sampled_blocks, shared, sites, spans};
use crate::sys::front::{self, Front, Platform};
use crate::sys::kernel::Errno;
use crate::sys::libc::Function;
use crate::sys::options::{self, Options};
use crate::sys::tls::tls;
use crate::sys::{clock, confined, kernel, memory, own_stack, unloading, wiped};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use heaptide_format::shared::Word;
use heaptide_format::{
    CONTROL_BY_CALL, CONTROL_BY_SIZE, CONTROL_TIMED, Mode, Unrecorded, UnrecordedChild,
};

/// Set once the recorder has started in this address space, so that a forked child recognises
/// itself.
static EVER_STARTED: AtomicBool = AtomicBool::new(false);

/// Starts the recorder if that has not been tried, and returns whether it is active. Runs in a
/// constructor, in the first allocation or in a forked child, possibly before any code of the
/// guest. Needs some 60 KiB of stack: see [`own_stack`].
#[cold]
#[inline(never)]
pub fn start() -> bool {
    let p = process();
    if p.state.compare_exchange(State::New as u32, State::Starting as u32, AcqRel, Acquire).is_err()
    {
        return p.state() == State::Active;
    }
    let started = set_up(p);
    if matches!(started, Err(Refused::NoProfile(_))) {
        count_unrecorded(UnrecordedChild::NoProfile, b"");
    }
    let state = if started.is_ok() { State::Active } else { State::Off };
    p.state.store(state as u32, Release);
    started.is_ok()
}

/// The result of preparing a recording, for a command that attaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// All is prepared, but nothing is recorded until the state is [`State::Active`].
    Ready,
    /// There is no profile. Holds the kernel's error, or 0 for another reason.
    NoProfile(i32),
    /// The profile contains the reason.
    Noted,
}

/// Prepares a recording in a running process, with these settings. Nothing is recorded yet, and the
/// state is [`State::Off`]. Other threads continue to run.
#[cold]
pub fn prepare_attached<F: Front>(settings: &[u8]) -> Prepared {
    front::install::<F>();
    let (p, t) = (process(), tls());
    EVER_STARTED.store(false, Relaxed);
    profile::forget();
    memory::forget_zeros();
    let busy = t.busy.replace(1);
    p.state.store(State::Starting as u32, Release);
    let started = own_stack::call(|| {
        if options::replace(settings) { set_up(p) } else { Err(Refused::NoProfile(kernel::E2BIG)) }
    });
    p.state.store(State::Off as u32, Release);
    t.busy.set(busy);
    match started {
        Some(Ok(())) => Prepared::Ready,
        Some(Err(Refused::Noted)) => Prepared::Noted,
        Some(Err(Refused::NoProfile(errno))) => Prepared::NoProfile(errno.0),
        Some(Err(Refused::Unwanted)) => Prepared::NoProfile(0),
        None => Prepared::NoProfile(kernel::ENOMEM.0),
    }
}

/// Starts the recorder of a forked child that is about to lose the permission or the path to the
/// recording, unless it was started before.
#[cold]
pub fn start_early<F: Front>() {
    front::install::<F>();
    let t = tls();
    if process().state() == State::New && t.busy.get() == 0 {
        t.busy.set(1);
        own_stack::call(start);
        t.busy.set(0);
    }
}

/// Starts recording at the program's request, unless it was requested before. Returns whether the
/// process is recorded then. Starts only if there is one thread, since it may change code that
/// others run.
#[cold]
pub fn start_on_request<F: Front>(settings: &[u8]) -> bool {
    let p = process();
    start_early::<F>();
    let is_unasked = |options: &Options| {
        options.is_wanted() && !options.is_asked_for_or_preloaded() && kernel::is_alone()
    };
    let may_start = p.state() == State::Off
        && confined::may_call()
        && own_stack::call(|| Options::get().is_some_and(is_unasked)) == Some(true);
    if may_start {
        options::ask(settings);
        let state = &p.state;
        let _ = state.compare_exchange(State::Off as u32, State::New as u32, AcqRel, Acquire);
        start_early::<F>();
    }
    p.state() == State::Active
}

/// The reason why a process image is not recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// It is not supposed to be recorded.
    Unwanted,
    /// Its profile could not be created.
    NoProfile(Errno),
    /// The reason is in its profile.
    Noted,
}

fn set_up(p: &'static Process) -> Result<(), Refused> {
    if !confined::may_call() {
        return Err(Refused::NoProfile(kernel::EPERM)); // a filter may forbid the necessary calls
    }
    let platform = front::platform().ok_or(Refused::Unwanted)?;
    let wanted = Options::get().filter(|options| options.is_wanted());
    let options = wanted.filter(|_| (platform.is_wanted)()).ok_or(Refused::Unwanted)?;
    // A process that was not wanted may still request a recording, and is no child then.
    let forked = EVER_STARTED.swap(true, Relaxed);
    let wiped = wipe_in_children();
    clock::find();
    if let Some(file) = options.clock.path().filter(|_| !options.clock.is_empty()) {
        clock::take_time_from(file);
    }
    store().start_ns.store(clock::monotonic_ns(), Relaxed);
    store().pid.store(kernel::getpid(), Relaxed);
    store().generation.store(1, Relaxed);
    p.no_reuse.store(!options.reuse, Relaxed);
    store().scarce.store(address_space_is_scarce(), Relaxed);
    memory::set_budget(budget());
    if forked {
        memory::begin_as_child();
    }
    profile::create(store(), options, forked, |header| {
        header.max_depth.set(stacks::max_depth(store()) as u32);
        header.sample_mean_bytes.set(options.sample_mean_bytes);
        trace::prepare(header, options);
    })
    .map_err(Refused::NoProfile)?;
    // With a kernel before 4.14, a child would continue in its parent's profile.
    let prepared =
        wiped.map_err(|_| Unrecorded::OldKernel).and_then(|()| prepare(store(), platform, options));
    prepared.map_err(|reason| {
        profile::abandon(store(), reason);
        Refused::Noted
    })
}

/// Makes forked children start as processes that were not started.
fn wipe_in_children() -> Result<(), Errno> {
    const STATES: [fn(); 24] = [
        process::wipe_in_children,
        shared::wipe_in_children,
        profile::wipe_in_children,
        names::wipe_in_children,
        modules::wipe_in_children,
        memory::wipe_in_children,
        lane::wipe_in_children,
        windows::wipe_in_children,
        live_mappings::wipe_in_children,
        device_state::wipe_in_children,
        marks::wipe_in_children,
        timeline::wipe_in_children,
        spans::wipe_in_children,
        trace_extents::wipe_in_children,
        regions::wipe_in_children,
        monitors::wipe_in_children,
        requests::wipe_in_children,
        search::wipe_in_children,
        accounts::wipe_in_children,
        python_interpreter::wipe_in_children,
        python_codes::wipe_in_children,
        python_lines::wipe_in_children,
        sampled_blocks::wipe_in_children,
        unloading::wipe_in_children,
    ];
    STATES.iter().for_each(|wipe| wipe());
    wiped::apply()
}

/// Prepares everything except the profile.
fn prepare(p: &'static Store, platform: &Platform, options: &Options) -> Result<(), Unrecorded> {
    if (platform.is_under_valgrind)() {
        return Err(Unrecorded::Valgrind);
    }
    let found = (platform.find_allocator)();
    (platform.describe_image)(p.header());
    found?;
    let scarce = p.scarce.load(Relaxed);
    memory::prepare(scarce);
    create_tables(p, options).ok_or(Unrecorded::NoMemory)?;
    (platform.create_tables)(scarce).ok_or(Unrecorded::NoMemory)?;
    prepare_control(p, options);
    if options.mode.has_stacks() {
        stacks::prepare_limit(p);
        // Done now, while `/proc` is accessible: a guest may change its root.
        modules::modules().list_all(p);
        python_interpreter::look(p);
    }
    Ok(())
}

fn create_tables(p: &Store, options: &Options) -> Option<()> {
    sites::create_owners(p)?;
    let scarce = p.scarce.load(Relaxed);
    p.shadow.create(scarce)?;
    if options.mode == Mode::Sampled {
        sampled_blocks::sampled_blocks().create()?;
    }
    lane::create_table()
}

/// Applies settings of the environment before the first event.
fn prepare_control(p: &Store, options: &Options) {
    if !options.accounts {
        accounts::turn_off();
    }
    if options.start_off {
        p.header().command_off.store(1, Release);
    }
    if let Some((bytes, below)) = options.threshold {
        threshold(bytes, below);
    }
    if options.by_size && options.mode != Mode::Counters {
        set(CONTROL_BY_SIZE);
    }
    if options.by_call && options.mode != Mode::Counters {
        set(CONTROL_BY_CALL);
    }
    monitors::resume();
    output::keep_streams(options);
    if options.snapshot_every_ns != 0 {
        marks::snapshot_every(options.snapshot_every_ns, options.keep_snapshots);
        set(CONTROL_TIMED);
    }
    if options.snapshot_signal != 0 {
        snapshot_on(options.snapshot_signal);
    }
}

static SIGACTION: Function = Function::new(b"sigaction\0");

/// The struct of libc: the handler, a mask, flags, and a word that libc fills.
#[repr(C)]
struct SigAction {
    handler: extern "C" fn(i32),
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// Installs a signal handler that takes a snapshot.
fn snapshot_on(signal: u32) {
    const SA_RESTART: i32 = 0x1000_0000;
    if SIGACTION.get() == 0 {
        return;
    }
    let action = SigAction { handler: snapshot_now, mask: [0; 16], flags: SA_RESTART, restorer: 0 };
    // SAFETY: libc's sigaction, with a struct of the layout in glibc and musl.
    unsafe {
        let sigaction: extern "C" fn(i32, *const SigAction, *mut SigAction) -> i32 =
            core::mem::transmute(SIGACTION.get());
        sigaction(signal as i32, &action, core::ptr::null_mut());
    }
}

extern "C" fn snapshot_now(_: i32) {
    let p = process();
    if p.state() == crate::event::process::State::Active {
        marks::snapshot(b"", u32::MAX, Patience::NeverWaits);
    }
}

/// Returns whether the recorder has little address space: there is a limit, or the kernel counts
/// memory that is only reserved.
fn address_space_is_scarce() -> bool {
    let mut mode = [0u8; 2];
    let path = kernel::Path::new(b"/proc/sys/vm/overcommit_memory\0");
    let strict =
        path.is_some_and(|path| kernel::read_file(path, &mut mode).is_ok()) && mode[0] == b'2';
    strict || [kernel::RLIMIT_AS, kernel::RLIMIT_DATA].map(kernel::limit) != [u64::MAX; 2]
}

/// Returns how much of a limit the recorder may use; the rest is left to the program.
fn budget() -> u64 {
    const PART: u64 = 4;
    const LEAST: u64 = 8 << 20;
    let limit = kernel::limit(kernel::RLIMIT_AS).min(kernel::limit(kernel::RLIMIT_DATA));
    if limit == kernel::UNLIMITED { limit } else { (limit / PART).max(LEAST) }
}
