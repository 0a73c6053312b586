//! The table of interposed functions.
//!
//! The entry of an allocating function is a few instructions that pass the caller's stack pointer
//! and frame pointer and jump. So the body returns directly to the caller, and the unwinder starts
//! in the caller's frame. The entries of malloc, free and the operators of C++ runtimes enter the
//! recorder themselves if the thread has a lane with an open gate, and continue with the lane's
//! route ([`crate::route`]): they do the work that every event needs, and save no register twice.

use crate::allocator::REAL_MALLOC;
use crate::next_symbol::Real;
use crate::{
    arch, auxiliary, exec_hooks, jemalloc, limits, malloc, mappings, mlock, operators, route,
};
use heaptide_format::Call;
use heaptide_recorder::event::gate::Gate;
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::sys::front::Route;

/// Defines an entry: its symbol, its instructions, and their operands; `real` is the real function,
/// if it is looked up.
macro_rules! entry {
    ($symbol:ident { $($function:item)? } [$($line:expr),+ $(,)?] [$($operands:tt)*]) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol() {
            $($function)?
            core::arch::naked_asm!(".cfi_startproc", $($line,)+ ".cfi_endproc", $($operands)*)
        }
    };
    ($symbol:ident [$($lines:tt)+] [$($operands:tt)*]) => {
        $crate::hooks::entry! { $symbol {
            $crate::next_symbol::real! {
                static REAL = stringify!($symbol), ();
            }
        } [$($lines)+] [real = sym REAL, $($operands)*] }
    };
}
pub(crate) use entry;

/// Offsets of the lane's fields that entries need.
const GATE: usize = LaneState::GATE_AT + Gate::STATE_AT;
const CALL: usize = LaneState::GATE_AT + Gate::CALL_AT;
const GATE_BP: usize = LaneState::GATE_AT + Gate::BP_AT;
const ALLOCATED: usize = LaneState::ROUTE_AT + Route::ALLOCATED_AT;
const FREE: usize = LaneState::ROUTE_AT + Route::FREE_AT;

/// The kinds of hooks: each has a symbol, an entry, and a body.
///
/// - `allocate`: passes three arguments and the entry's registers to the body.
/// - `malloc`: continues with the lane's route, or else like `allocate`.
/// - `throwing`: like `allocate`; if the body returns null, jumps to the real function, which then
///   acts (calls the new-handler, throws) without a frame of ours in between.
/// - `new`: continues with the lane's route if the real function is that of a C++ runtime, whose
///   memory comes from malloc; or else like `throwing`. The second function counts a failure.
/// - `free`: continues with the lane's route; or else passes the block and the entry's registers to
///   the body.
/// - `delete`: like `free` if the real function is that of a C++ runtime, or else like `allocate`.
/// - `mapping`: calls the body with the arguments and the entry's registers.
/// - `plain`: an ordinary function.
macro_rules! hooks {
    ($($kind:ident $symbol:ident = $($body:path),+;)*) => {
        $(hooks!(@ $kind $symbol $($body),+);)*

        /// The symbols of all hooks, each followed by a zero byte.
        pub static NAMES: &[&[u8]] = &[$(concat!(stringify!($symbol), "\0").as_bytes(),)*];
    };
    (@ mapping $symbol:ident $body:path) => {
        mappings::mapping_entry! { $symbol $body }
    };
    (@ plain $symbol:ident $body:path) => {
        const _: *const () = $body as *const ();
    };
    (@ $kind:ident $symbol:ident $($body:path),+) => {
        arch::hook! { $kind $symbol $($body),+ }
    };
}

hooks! {
    malloc malloc = malloc::malloc_body;
    allocate calloc = malloc::calloc_body;
    allocate realloc = malloc::realloc_body;
    allocate reallocarray = malloc::reallocarray_body;
    allocate memalign = malloc::memalign_body;
    allocate aligned_alloc = malloc::memalign_body;
    allocate posix_memalign = malloc::posix_memalign_body;
    allocate valloc = malloc::valloc_body;
    allocate pvalloc = malloc::valloc_body;
    free free = malloc::free_body;
    free cfree = malloc::free_body;
    new _Znwm = operators::new_body, route::new_failed;
    new _Znam = operators::new_array_body, route::new_array_failed;
    throwing _ZnwmSt11align_val_t = operators::new_aligned_body;
    throwing _ZnamSt11align_val_t = operators::new_aligned_array_body;
    allocate _ZnwmRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnamRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnwmSt11align_val_tRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnamSt11align_val_tRKSt9nothrow_t = operators::new_nothrow_body;
    delete _ZdlPv = operators::delete_body;
    delete _ZdaPv = operators::delete_body;
    delete _ZdlPvm = operators::delete_body;
    delete _ZdaPvm = operators::delete_body;
    delete _ZdlPvRKSt9nothrow_t = operators::delete_body;
    delete _ZdaPvRKSt9nothrow_t = operators::delete_body;
    delete _ZdlPvSt11align_val_t = operators::delete_body;
    delete _ZdaPvSt11align_val_t = operators::delete_body;
    delete _ZdlPvmSt11align_val_t = operators::delete_body;
    delete _ZdaPvmSt11align_val_t = operators::delete_body;
    delete _ZdlPvSt11align_val_tRKSt9nothrow_t = operators::delete_body;
    delete _ZdaPvSt11align_val_tRKSt9nothrow_t = operators::delete_body;
    allocate mallocx = jemalloc::mallocx_body;
    allocate rallocx = jemalloc::rallocx_body;
    plain xallocx = jemalloc::xallocx;
    plain sallocx = jemalloc::sallocx;
    allocate dallocx = jemalloc::dallocx_body;
    allocate sdallocx = jemalloc::dallocx_body;
    plain dlclose = auxiliary::dlclose;
    plain dlmopen = auxiliary::dlmopen;
    plain dlopen = auxiliary::dlopen;
    plain dlsym = auxiliary::dlsym;
    mapping mmap = mappings::mmap_body;
    mapping mmap64 = mappings::mmap64_body;
    mapping munmap = mappings::munmap_body;
    mapping mremap = mappings::mremap_body;
    mapping mprotect = mappings::mprotect_body;
    mapping brk = mappings::brk_body;
    mapping sbrk = mappings::sbrk_body;
    mapping shmat = mappings::shmat_body;
    mapping shmdt = mappings::shmdt_body;
    plain _Z21pauseMaxMemoryPreloadv = auxiliary::_Z21pauseMaxMemoryPreloadv;
    plain _Z23unpauseMaxMemoryPreloadv = auxiliary::_Z23unpauseMaxMemoryPreloadv;
    plain pthread_setname_np = auxiliary::pthread_setname_np;
    plain prctl = auxiliary::prctl;
    plain syscall = auxiliary::syscall;
    plain _exit = auxiliary::_exit;
    plain _Exit = auxiliary::_Exit;
    plain quick_exit = auxiliary::quick_exit;
    plain chroot = auxiliary::chroot;
    plain setuid = auxiliary::setuid;
    plain seteuid = auxiliary::seteuid;
    plain setreuid = auxiliary::setreuid;
    plain setresuid = auxiliary::setresuid;
    plain setgid = auxiliary::setgid;
    plain setegid = auxiliary::setegid;
    plain setregid = auxiliary::setregid;
    plain setresgid = auxiliary::setresgid;
    plain setfsuid = auxiliary::setfsuid;
    plain setfsgid = auxiliary::setfsgid;
    plain setgroups = auxiliary::setgroups;
    plain initgroups = auxiliary::initgroups;
    plain capset = auxiliary::capset;
    plain unshare = auxiliary::unshare;
    plain setns = auxiliary::setns;
    plain pivot_root = auxiliary::pivot_root;
    plain mlockall = mlock::mlockall;
    plain setrlimit = limits::setrlimit;
    plain setrlimit64 = limits::setrlimit64;
    plain getrlimit = limits::getrlimit;
    plain getrlimit64 = limits::getrlimit64;
    plain prlimit = limits::prlimit;
    plain prlimit64 = limits::prlimit64;
    plain execve = exec_hooks::execve;
    plain execv = exec_hooks::execv;
    plain execvp = exec_hooks::execvp;
    plain execvpe = exec_hooks::execvpe;
    plain execl = exec_hooks::execl;
    plain execlp = exec_hooks::execlp;
    plain execle = exec_hooks::execle;
    plain fexecve = exec_hooks::fexecve;
    plain execveat = exec_hooks::execveat;
    plain posix_spawn = exec_hooks::posix_spawn;
    plain posix_spawnp = exec_hooks::posix_spawnp;
}
