//! Hooks of the functions that start programs: each passes on the environment completed by
//! [`crate::exec`], and otherwise behaves like the real one.

use crate::exec::{Plan, Strings, Target};
use crate::insertion::Who;
use crate::limits;
use crate::next_symbol::{self, call_real, real};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::exit;
use heaptide_recorder::sys::kernel::Fd;

/// Returns libc's pointer to the program's environment.
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

/// Returns the value of `PATH`.
fn search_path() -> Option<&'static [u8]> {
    let environment = environ();
    if environment.is_null() {
        return None;
    }
    let mut at = environment;
    // SAFETY: strings up to a null; they stay valid until the program changes them.
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

/// Calls `call` to execute a target with the completed environment. Returns if it fails.
/// `environment` must be valid for execve.
fn execute(target: &Target<'_>, environment: Strings, call: impl FnOnce(Strings) -> i32) -> i32 {
    // SAFETY: execve's contract, which the program fulfils.
    let plan = unsafe { Plan::new(target, environment, Who::Own) };
    let noted = exit::note_exec();
    let limits = limits::before_exec();
    let status = call(plan.environment);
    limits::exec_failed(limits);
    exit::take_exec_back(noted);
    plan.failed();
    status
}

/// Returns a file's name as a string; `None` for null.
fn name_of<'a>(file: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the contract of every function here: null or a string.
    (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) })
}

fn by_path<'a>(file: *const c_char) -> Target<'a> {
    name_of(file).map_or(Target::Unknown, Target::Path)
}

fn by_name<'a>(file: *const c_char) -> Target<'a> {
    name_of(file).map_or(Target::Unknown, |file| Target::Name(file, search_path()))
}

type Execve = extern "C" fn(*const c_char, Strings, Strings) -> i32;

real! {
    static REAL_EXECVE = "execve", Execve;
    static REAL_EXECVPE = "execvpe", Execve;
    static REAL_FEXECVE = "fexecve", extern "C" fn(i32, Strings, Strings) -> i32;
    static REAL_EXECVEAT = "execveat",
        extern "C" fn(i32, *const c_char, Strings, Strings, i32) -> i32;
}

// If this library was loaded into a running program, a hook that called another one by its symbol
// would reach the C library's function.

fn execute_path(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    let call = |environment| call_real!(REAL_EXECVE, (file, argv, environment), -1);
    execute(&by_path(file), environment, call)
}

fn execute_name(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    let call = |environment| call_real!(REAL_EXECVPE, (file, argv, environment), -1);
    execute(&by_name(file), environment, call)
}

#[unsafe(no_mangle)]
pub extern "C" fn execve(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    execute_path(file, argv, environment)
}

#[unsafe(no_mangle)]
pub extern "C" fn execv(file: *const c_char, argv: Strings) -> i32 {
    execute_path(file, argv, environ())
}

#[unsafe(no_mangle)]
pub extern "C" fn execvpe(file: *const c_char, argv: Strings, environment: Strings) -> i32 {
    execute_name(file, argv, environment)
}

#[unsafe(no_mangle)]
pub extern "C" fn execvp(file: *const c_char, argv: Strings) -> i32 {
    execute_name(file, argv, environ())
}

#[unsafe(no_mangle)]
pub extern "C" fn fexecve(fd: i32, argv: Strings, environment: Strings) -> i32 {
    let call = |environment| call_real!(REAL_FEXECVE, (fd, argv, environment), -1);
    execute(&Target::Open(Fd(fd)), environment, call)
}

#[unsafe(no_mangle)]
pub extern "C" fn execveat(
    directory: i32,
    file: *const c_char,
    argv: Strings,
    environment: Strings,
    flags: i32,
) -> i32 {
    let is_absolute = name_of(file).is_some_and(|file| file.to_bytes().starts_with(b"/"));
    let target = if is_absolute { by_path(file) } else { Target::Unknown };
    let call =
        |environment| call_real!(REAL_EXECVEAT, (directory, file, argv, environment, flags), -1);
    execute(&target, environment, call)
}

/// posix_spawn in both forms: a path or a name, and the actions.
type Spawn =
    extern "C" fn(*mut i32, *const c_char, *const c_void, *const c_void, Strings, Strings) -> i32;

real! {
    pub static REAL_POSIX_SPAWN = "posix_spawn", Spawn;
    static REAL_POSIX_SPAWNP = "posix_spawnp", Spawn;
}

/// The implementation of both forms of posix_spawn.
macro_rules! spawn {
    ($name:ident, $real:ident, $target:path) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            pid: *mut i32,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Strings,
            environment: Strings,
        ) -> i32 {
            // SAFETY: the function's contract, which the program fulfils.
            let plan = unsafe { Plan::new(&$target(file), environment, Who::New) };
            let given = plan.environment;
            let status = call_real!($real, (pid, file, actions, attributes, argv, given), ENOSYS);
            if status == 0 {
                plan.ended();
            } else {
                plan.failed();
            }
            status
        }
    };
}

const ENOSYS: i32 = 38;

spawn!(posix_spawn, REAL_POSIX_SPAWN, by_path);
spawn!(posix_spawnp, REAL_POSIX_SPAWNP, by_name);

/// Defines a function whose body gets the arguments from the second one on as an array.
macro_rules! listed {
    ($name:ident = $body:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            $crate::arch::list_arguments!($body)
        }
    };
}

listed!(execl = execl_body);
listed!(execlp = execlp_body);
listed!(execle = execle_body);

extern "C" fn execl_body(file: *const c_char, argv: Strings) -> i32 {
    execute_path(file, argv, environ())
}

extern "C" fn execlp_body(file: *const c_char, argv: Strings) -> i32 {
    execute_name(file, argv, environ())
}

extern "C" fn execle_body(file: *const c_char, argv: Strings) -> i32 {
    // SAFETY: execle's contract: the arguments end with a null, and the environment follows.
    let environment = unsafe {
        let mut end = argv;
        while !(*end).is_null() {
            end = end.add(1);
        }
        *end.add(1) as Strings
    };
    execute_path(file, argv, environment)
}
