//! The functions that start programs: each hands the environment over as [`crate::exec`]
//! completes it, and is otherwise the real one.

use crate::allocator::call_real;
use crate::exec::{Plan, Strings, Target};
use crate::limits;
use crate::next_symbol::{self, Real};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::exit;
use heaptide_recorder::sys::kernel::Fd;

static EXECVE: Real = Real::new(b"execve\0");

/// The program's environment, as libc has it.
fn environ() -> Strings {
    static ENVIRON: AtomicUsize = AtomicUsize::new(0);
    let mut address = ENVIRON.load(Relaxed);
    if address == 0 {
        address = next_symbol::find_first(b"environ\0").unwrap_or(0);
        ENVIRON.store(address, Relaxed);
    }
    // SAFETY: libc's variable.
    unsafe { (address as *const Strings).as_ref() }.map_or(core::ptr::null(), |&environ| environ)
}

/// The value of `PATH`.
fn search_path() -> Option<&'static [u8]> {
    let environment = environ();
    if environment.is_null() {
        return None;
    }
    let mut at = environment;
    // SAFETY: strings up to a null; they stay where they are until the program changes them.
    unsafe {
        while !(*at).is_null() {
            if let Some(value) = CStr::from_ptr(*at).to_bytes().strip_prefix(b"PATH=") {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Has `call` execute a target with the environment completed. Returns if it fails.
///
/// # Safety
/// `environment` is one as execve takes it.
unsafe fn execute(
    target: &Target<'_>,
    environment: Strings,
    call: impl FnOnce(Strings) -> i32,
) -> i32 {
    // SAFETY: as promised.
    let plan = unsafe { Plan::new(target, environment) };
    let noted = exit::note_exec();
    let limits = limits::before_exec();
    let status = call(plan.environment);
    limits::exec_failed(limits);
    exit::take_exec_back(noted);
    plan.failed();
    status
}

/// # Safety
/// `file` is null or a string.
unsafe fn by_path<'a>(file: *const c_char) -> Target<'a> {
    // SAFETY: as promised.
    if file.is_null() { Target::Unknown } else { Target::Path(unsafe { CStr::from_ptr(file) }) }
}

/// # Safety
/// `file` is null or a string.
unsafe fn by_name<'a>(file: *const c_char) -> Target<'a> {
    if file.is_null() {
        return Target::Unknown;
    }
    // SAFETY: as promised.
    Target::Name(unsafe { CStr::from_ptr(file) }, search_path())
}

type Execve = extern "C" fn(*const c_char, Strings, Strings) -> i32;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    // SAFETY: execve's contract.
    unsafe {
        execute(&by_path(file), environment, |environment| {
            call_real!(EXECVE, Execve, (file, argv, environment), -1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: execv's contract.
    unsafe { execve(file, argv, environ()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    static REAL: Real = Real::new(b"execvpe\0");
    // SAFETY: execvpe's contract.
    unsafe {
        execute(&by_name(file), environment, |environment| {
            call_real!(REAL, Execve, (file, argv, environment), -1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: execvp's contract.
    unsafe { execvpe(file, argv, environ()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: i32, argv: Strings, environment: Strings) -> i32 {
    static REAL: Real = Real::new(b"fexecve\0");
    type F = extern "C" fn(i32, Strings, Strings) -> i32;
    // SAFETY: fexecve's contract.
    unsafe {
        execute(&Target::Open(Fd(fd)), environment, |environment| {
            call_real!(REAL, F, (fd, argv, environment), -1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: i32,
    file: *const c_char,
    argv: Strings,
    environment: Strings,
    flags: i32,
) -> i32 {
    static REAL: Real = Real::new(b"execveat\0");
    type F = extern "C" fn(i32, *const c_char, Strings, Strings, i32) -> i32;
    // SAFETY: execveat's contract.
    unsafe {
        let is_absolute = !file.is_null() && *file as u8 == b'/';
        let target = if is_absolute { by_path(file) } else { Target::Unknown };
        execute(&target, environment, |environment| {
            call_real!(REAL, F, (directory, file, argv, environment, flags), -1)
        })
    }
}

/// What both forms of posix_spawn do.
macro_rules! spawn {
    ($name:ident, $target:path) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut i32,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Strings,
            environment: Strings,
        ) -> i32 {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0").as_bytes());
            // SAFETY: the function's contract.
            unsafe {
                let plan = Plan::new(&$target(file), environment);
                let given = (pid, file, actions, attributes, argv, plan.environment);
                let status = spawn_by(&REAL, given);
                if status == 0 {
                    plan.ended()
                } else {
                    plan.failed()
                }
                status
            }
        }
    };
}

type Spawned = (*mut i32, *const c_char, *const c_void, *const c_void, Strings, Strings);

/// # Safety
/// posix_spawn's contract.
unsafe fn spawn_by(real: &Real, (pid, file, actions, attributes, argv, envp): Spawned) -> i32 {
    type F = extern "C" fn(
        *mut i32,
        *const c_char,
        *const c_void,
        *const c_void,
        Strings,
        Strings,
    ) -> i32;
    const ENOSYS: i32 = 38;
    // SAFETY: as the caller promises.
    unsafe { call_real!(real, F, (pid, file, actions, attributes, argv, envp), ENOSYS) }
}

spawn!(posix_spawn, by_path);
spawn!(posix_spawnp, by_name);

/// Makes an array of arguments that come one by one: those in registers are put in front of those
/// on the stack, in the place of the return address.
macro_rules! listed {
    ($name:ident = $body:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
".cfi_startproc",
                "pop rax", ".cfi_adjust_cfa_offset -8", ".cfi_register rip, rax",
                "push r9", ".cfi_adjust_cfa_offset 8",
                "push r8", ".cfi_adjust_cfa_offset 8",
                "push rcx", ".cfi_adjust_cfa_offset 8",
                "push rdx", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rip, 0",
                "call {body}",
                "pop rcx", ".cfi_adjust_cfa_offset -8", ".cfi_register rip, rcx",
                "add rsp, 40", ".cfi_adjust_cfa_offset -40",
                "push rcx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rip, 0",
                "ret",
                ".cfi_endproc",
body = sym $body)
        }
    };
}

listed!(execl = execl_body);
listed!(execlp = execlp_body);
listed!(execle = execle_body);

unsafe extern "C" fn execl_body(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: execl's contract.
    unsafe { execv(file, argv) }
}

unsafe extern "C" fn execlp_body(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: execlp's contract.
    unsafe { execvp(file, argv) }
}

unsafe extern "C" fn execle_body(file: *const c_char, argv: Strings) -> i32 {
    let mut end = argv;
    // SAFETY: execle's contract: the environment follows the null.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(file, argv, *end.add(1) as Strings)
    }
}
