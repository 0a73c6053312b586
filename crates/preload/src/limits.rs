//! Resource limits that the program sets itself. The kernel counts address space that the recorder
//! has reserved, but the program must not notice: its limits are raised by that amount, and reading
//! them returns its own values.

use crate::next_symbol::{call_real, real};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::process;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::kernel::{self, Limit};
use heaptide_recorder::sys::{confined, memory};

/// The limits that the recorder's reservations count towards.
const COUNTED: [usize; 2] = [kernel::RLIMIT_AS, kernel::RLIMIT_DATA];

/// The difference between the kernel's limit and the program's.
struct Raise {
    soft: AtomicU64,
    hard: AtomicU64,
}

/// One per element of [`COUNTED`]. Children inherit them, like limits.
static RAISES: [Raise; 2] =
    [const { Raise { soft: AtomicU64::new(0), hard: AtomicU64::new(0) } }; 2];

fn raise_of(resource: i32) -> Option<&'static Raise> {
    let at = COUNTED.iter().position(|&counted| counted as i32 == resource)?;
    RAISES.get(at)
}

impl Raise {
    /// Converts a limit of the program to the kernel's. If that would raise a hard limit that the
    /// program does not raise, which may not be permitted, it stays the same.
    fn raised(&self, resource: i32, given: Limit) -> Limit {
        let by = reserved(resource);
        let now = kernel::limits(resource as usize);
        let hard = raise(given.hard, by);
        let hard = if given.hard <= self.lowered(now).hard { hard.min(now.hard) } else { hard };
        Limit { soft: raise(given.soft, by).min(hard), hard }
    }

    fn note(&self, given: Limit, set: Limit) {
        self.soft.store(set.soft - given.soft.min(set.soft), Relaxed);
        self.hard.store(set.hard - given.hard.min(set.hard), Relaxed);
    }

    /// Converts the kernel's limit to the program's.
    fn lowered(&self, set: Limit) -> Limit {
        let lower = |limit: u64, by: &AtomicU64| match limit {
            kernel::UNLIMITED => limit,
            _ => limit.saturating_sub(by.load(Relaxed)),
        };
        Limit { soft: lower(set.soft, &self.soft), hard: lower(set.hard, &self.hard) }
    }
}

fn raise(limit: u64, by: u64) -> u64 {
    if limit == kernel::UNLIMITED { limit } else { limit.saturating_add(by) }
}

/// Returns the bytes of a resource that the recorder has reserved.
fn reserved(resource: i32) -> u64 {
    let p = store();
    let is_space = resource == kernel::RLIMIT_AS as i32;
    memory::reserved() + if is_space { p.reserved.load(Relaxed) } else { 0 }
}

/// Sets a limit of the calling process with `set`, which returns 0 on success.
fn set(resource: i32, given: Option<&Limit>, set: impl FnOnce(*const Limit) -> i32) -> i32 {
    let raise = raise_of(resource).filter(|_| process::is_own() && confined::may_call());
    let (Some(raise), Some(&given)) = (raise, given) else {
        return set(given.map_or(core::ptr::null(), core::ptr::from_ref));
    };
    let raised = raise.raised(resource, given);
    let status = set(&raised);
    if status == 0 {
        raise.note(given, raised);
    }
    status
}

/// Restores the program's own limits before an exec. Returns the kernel's previous limits that had
/// been raised.
pub fn before_exec() -> [Option<Limit>; 2] {
    let lower = |(&resource, raise): (&usize, &Raise)| {
        let is_raised = raise.soft.load(Relaxed) > 0 || raise.hard.load(Relaxed) > 0;
        let now = is_raised.then(|| kernel::limits(resource))?;
        kernel::set_limits(resource, &raise.lowered(now));
        Some(now)
    };
    let mut all = COUNTED.iter().zip(&RAISES).map(lower);
    [all.next().flatten(), all.next().flatten()]
}

/// Reverts that after a failed exec. Without permission to raise hard limits, soft limits can only
/// be raised up to them.
pub fn exec_failed(before: [Option<Limit>; 2]) {
    for ((&resource, raise), limits) in COUNTED.iter().zip(&RAISES).zip(before) {
        let Some(limits) = limits else {
            continue;
        };
        let given = raise.lowered(limits);
        if kernel::set_limits(resource, &limits) {
            continue;
        }
        let soft = limits.soft.min(given.hard);
        kernel::set_limits(resource, &Limit { soft, hard: given.hard });
        // A child that shares this memory has its own limits.
        if process::is_own() {
            raise.note(given, kernel::limits(resource));
        }
    }
}

real! {
    static REAL_SETRLIMIT = "setrlimit", extern "C" fn(i32, *const Limit) -> i32;
    static REAL_GETRLIMIT = "getrlimit", extern "C" fn(i32, *mut Limit) -> i32;
    static REAL_PRLIMIT = "prlimit", extern "C" fn(i32, i32, *const Limit, *mut Limit) -> i32;
}

// Both names of each function have their own hook: if this library was loaded into a running
// program, a call by symbol would reach the C library's function.

fn set_own(resource: i32, given: *const Limit) -> i32 {
    let call = |given| call_real!(REAL_SETRLIMIT, (resource, given), -1);
    // SAFETY: setrlimit's contract: null or a limit.
    set(resource, unsafe { given.as_ref() }, call)
}

#[unsafe(no_mangle)]
pub extern "C" fn setrlimit(resource: i32, given: *const Limit) -> i32 {
    set_own(resource, given)
}

/// The same as setrlimit on this architecture.
#[unsafe(no_mangle)]
pub extern "C" fn setrlimit64(resource: i32, given: *const Limit) -> i32 {
    set_own(resource, given)
}

fn read_own(resource: i32, read: *mut Limit) -> i32 {
    let status = call_real!(REAL_GETRLIMIT, (resource, read), -1);
    // SAFETY: getrlimit's contract: null or a limit.
    if let (0, Some(raise), Some(read)) = (status, raise_of(resource), unsafe { read.as_mut() }) {
        *read = raise.lowered(*read);
    }
    status
}

#[unsafe(no_mangle)]
pub extern "C" fn getrlimit(resource: i32, read: *mut Limit) -> i32 {
    read_own(resource, read)
}

/// The same as getrlimit on this architecture.
#[unsafe(no_mangle)]
pub extern "C" fn getrlimit64(resource: i32, read: *mut Limit) -> i32 {
    read_own(resource, read)
}

/// `read` receives the previous limit.
fn set_of(pid: i32, resource: i32, given: *const Limit, read: *mut Limit) -> i32 {
    let call = |given| call_real!(REAL_PRLIMIT, (pid, resource, given, read), -1);
    if pid != 0 && pid as u32 != store().pid.load(Relaxed) {
        return call(given);
    }
    let before = raise_of(resource).map(|raise| raise.lowered(kernel::limits(resource as usize)));
    // SAFETY: prlimit's contract: null or a limit.
    let status = set(resource, unsafe { given.as_ref() }, call);
    // SAFETY: as above.
    if let (0, Some(before), Some(read)) = (status, before, unsafe { read.as_mut() }) {
        *read = before;
    }
    status
}

#[unsafe(no_mangle)]
pub extern "C" fn prlimit(pid: i32, resource: i32, given: *const Limit, read: *mut Limit) -> i32 {
    set_of(pid, resource, given, read)
}

/// The same as prlimit on this architecture.
#[unsafe(no_mangle)]
pub extern "C" fn prlimit64(pid: i32, resource: i32, given: *const Limit, read: *mut Limit) -> i32 {
    set_of(pid, resource, given, read)
}
