//! Hooks of functions that allocate nothing but affect the recorder: loading and unloading code,
//! names of threads, and processes that confine themselves, change their privileges, or end.

use crate::Preload;
use crate::allocator::{Address, NULL};
use crate::arch;
use crate::intercept::{deep, families, notice};
use crate::next_symbol::{call_real, real};
use crate::{confinement, imports, mappings, mlock, python_wrapping};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::api::{interface, monitors};
use heaptide_recorder::event::inside::{Inside, here};
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::event::start::start_early;
use heaptide_recorder::event::{exit, process, python_interpreter, threads, trace_extents};
use heaptide_recorder::store::shared::store;
use heaptide_recorder::store::{file, modules};
use heaptide_recorder::sys::arch::numbers;
use heaptide_recorder::sys::confined::{self, NO_COUNTER};
use heaptide_recorder::sys::kernel;
use heaptide_recorder::sys::unloading::{self, Unloading};

/// The caller's RUNPATH applies.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    arch::jump_after!(before_dlopen)
}

extern "C" fn before_dlopen(_: *const u8, mode: i32) -> usize {
    real! {
        static REAL = "dlopen", ();
    }
    notice::before_loading();
    deep::note_mode(mode);
    modules::modules().loads.fetch_add(1, Relaxed);
    match REAL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

/// The library is loaded in the namespace of the caller, or another one.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen() {
    arch::jump_after!(before_dlmopen)
}

extern "C" fn before_dlmopen(namespace: isize, _: *const u8, mode: i32) -> usize {
    real! {
        static REAL = "dlmopen", ();
    }
    const LM_ID_BASE: isize = 0;
    notice::before_loading();
    if namespace == LM_ID_BASE {
        deep::note_mode(mode);
    } else if !families::sees_namespaces() {
        families::note_unseen_namespace();
    }
    modules::modules().loads.fetch_add(1, Relaxed);
    match REAL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

/// With `RTLD_NEXT` the result depends on the caller.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym() {
    arch::jump_after!(before_dlsym)
}

/// The program is about to look up functions in what it has loaded: allocators are intercepted
/// before that.
extern "C" fn before_dlsym() -> usize {
    real! {
        static REAL = "dlsym", ();
    }
    families::look_at_new();
    imports::look_at_new();
    python_interpreter::look_again();
    python_wrapping::look_again();
    match REAL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

extern "C" fn nothing_opened() -> Address {
    NULL
}

#[unsafe(no_mangle)]
pub extern "C" fn dlclose(handle: Address) -> i32 {
    real! {
        static REAL = "dlclose", extern "C" fn(Address) -> i32;
    }
    let p = process();
    let may = p.state() == State::Active && confined::may_call();
    if may && let Some(mut inside) = Inside::enter::<Preload>(here()) {
        monitors::before_unloading(inside.lane());
        python_interpreter::before_unloading();
    }
    python_wrapping::before_unloading();
    let unloading = (may && !notice::is_watched()).then(Unloading::begin);
    let status = call_real!(REAL, (handle), -1);
    drop(unloading);
    unloading::walk(python_wrapping::after_unloading);
    if may && let Some(mut inside) = Inside::enter::<Preload>(here()) {
        monitors::after_unloading(inside.lane());
        modules::modules().loads.fetch_add(1, Relaxed);
        unloading::walk(families::forget_unloaded);
        python_interpreter::after_unloading();
        modules::modules().drop_unmapped(store(), inside.lane().buffer());
    }
    status
}

/// Programs define these two functions of MaxMemoryPreload with empty bodies and call them; those
/// of the preloaded library pause and resume the recording. If the recorder does not replace that
/// library, they are only forwarded.
#[unsafe(no_mangle)]
pub extern "C" fn _Z21pauseMaxMemoryPreloadv() {
    real! {
        static REAL = "_Z21pauseMaxMemoryPreloadv", extern "C" fn();
    }
    if !interface::pause_max_memory::<Preload>(true) {
        call_real!(REAL, (), ())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn _Z23unpauseMaxMemoryPreloadv() {
    real! {
        static REAL = "_Z23unpauseMaxMemoryPreloadv", extern "C" fn();
    }
    if !interface::pause_max_memory::<Preload>(false) {
        call_real!(REAL, (), ())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pthread_setname_np(thread: u64, name: Address) -> i32 {
    real! {
        static REAL = "pthread_setname_np", extern "C" fn(u64, Address) -> i32;
    }
    const ENOSYS: i32 = 38;
    let status = call_real!(REAL, (thread, name), ENOSYS);
    if status == 0 && process().state() == State::Active {
        if thread == heaptide_recorder::sys::tls::thread_pointer() {
            threads::renamed_self();
        } else {
            threads::renamed_other(thread);
        }
    }
    status
}

const PR_SET_NAME: i32 = 15;
const PR_SET_SECCOMP: i32 = 22;
const PR_SET_TSC: i32 = 26;
const PR_TSC_SIGSEGV: usize = 2;
const SECCOMP_MODE_STRICT: usize = 1;

#[unsafe(no_mangle)]
pub extern "C" fn prctl(operation: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    real! {
        static REAL = "prctl", extern "C" fn(i32, usize, usize, usize, usize) -> i32;
    }
    if operation == PR_SET_TSC && a == PR_TSC_SIGSEGV {
        NO_COUNTER.store(true, Relaxed);
        trace_extents::stop_clock();
    }
    let status = confine(operation == PR_SET_SECCOMP, a == SECCOMP_MODE_STRICT, || {
        // The number of arguments depends on the operation.
        call_real!(REAL, (operation, a, b, c, d), -1)
    });
    if operation == PR_SET_NAME && status == 0 && process().state() == State::Active {
        threads::renamed_self();
    }
    status
}

/// Checks for relevant calls, and jumps.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    arch::look_and_jump!(SYSCALLS, WATCHED, REAL_SYSCALL, before_syscall)
}

real! {
    static REAL_SYSCALL = "syscall", extern "C" fn(usize, usize, usize, usize) -> isize;
}

/// Calls with which a process loses privileges or access to files.
const DEPARTING: [usize; 15] = [
    numbers::SETUID,
    numbers::SETGID,
    numbers::SETREUID,
    numbers::SETREGID,
    numbers::SETGROUPS,
    numbers::SETRESUID,
    numbers::SETRESGID,
    numbers::SETFSUID,
    numbers::SETFSGID,
    numbers::CAPSET,
    numbers::PIVOT_ROOT,
    numbers::CHROOT,
    numbers::UNSHARE,
    numbers::SETNS,
    numbers::LANDLOCK_RESTRICT_SELF,
];
/// Calls with larger numbers are irrelevant.
const SYSCALLS: usize = 448;

/// A bit for each relevant call.
static WATCHED: [u64; SYSCALLS / 64] = {
    let mut bits = [0u64; SYSCALLS / 64];
    let mut at = 0;
    while at < DEPARTING.len() {
        bits[DEPARTING[at] / 64] |= 1 << (DEPARTING[at] % 64);
        at += 1;
    }
    let others = [
        numbers::MMAP,
        numbers::MUNMAP,
        numbers::MREMAP,
        numbers::MPROTECT,
        numbers::MLOCKALL,
        numbers::SECCOMP,
    ];
    let mut at = 0;
    while at < others.len() {
        bits[others[at] / 64] |= 1 << (others[at] % 64);
        at += 1;
    }
    bits
};

/// Returns the address to jump to for a call, with its arguments.
extern "C" fn before_syscall(number: usize) -> usize {
    match number {
        numbers::SECCOMP => return seccomp_by_syscall as *const () as usize,
        numbers::MMAP => return mappings::mmap_by_syscall as *const () as usize,
        numbers::MUNMAP => return mappings::munmap_by_syscall as *const () as usize,
        numbers::MREMAP => return mappings::mremap_by_syscall as *const () as usize,
        numbers::MPROTECT => return mappings::mprotect_by_syscall as *const () as usize,
        numbers::MLOCKALL => return mlockall_by_syscall as *const () as usize,
        number if DEPARTING.contains(&number) => departs(),
        _ => {}
    }
    match REAL_SYSCALL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

extern "C" fn mlockall_by_syscall(_: usize, flags: i32) -> isize {
    mlock::mlockall(flags) as isize
}

extern "C" fn seccomp_by_syscall(number: usize, mode: usize, flags: usize, with: usize) -> isize {
    const SECCOMP_SET_MODE_STRICT: usize = 0;
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    let strict = mode == SECCOMP_SET_MODE_STRICT;
    let confines = strict || mode == SECCOMP_SET_MODE_FILTER;
    confine(confines, strict, || call_real!(REAL_SYSCALL, (number, mode, flags, with), -1))
}

/// Makes a call that confines the process, and reverts the preparation if it fails: programs try
/// whether they could.
fn confine<T: PartialOrd + From<i8>>(confines: bool, strict: bool, call: impl FnOnce() -> T) -> T {
    let before = confines.then(|| confinement::begin(strict));
    let status = call();
    if let Some(before) = before.filter(|_| status < T::from(0)) {
        before.take_back();
    }
    status
}

macro_rules! ending {
    ($name:ident, $ends:path) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(status: i32) {
            real! {
                static REAL = stringify!($name), extern "C" fn(i32);
            }
            $ends(status);
            call_real!(REAL, (status), ()); // does not return
            kernel::exit_group(status);
        }
    };
}

ending!(_exit, exit::end_at_once);
ending!(_Exit, exit::end_at_once);
ending!(quick_exit, exit::end_after_handlers);

/// The process is about to lose permission for or access to its recording: a forked child creates
/// its profile before that, and a process with a profile opens it.
fn departs() {
    start_early::<Preload>();
    if confined::may_call() && process::is_own() {
        file::keep_descriptor(store());
    }
}

/// Calls after which the profile may be inaccessible.
macro_rules! departing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(a: usize, b: usize, c: usize) -> i32 {
                real! {
                    static REAL = stringify!($name), extern "C" fn(usize, usize, usize) -> i32;
                }
                departs();
                // Additional arguments are ignored.
                call_real!(REAL, (a, b, c), -1)
            }
        )*
    };
}

departing! {
    setuid seteuid setreuid setresuid setfsuid
    setgid setegid setregid setresgid setfsgid setgroups initgroups
    capset chroot pivot_root unshare setns
}
