//! All `unsafe` code of the command: what it was started with, fork, exec, and the few system calls
//! that no safe wrapper offers.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_long};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

/// The stack of the thread that runs the command, in bytes. The limit for the stack of the initial
/// thread is the program's: it may be too small for the command.
const STACK_BYTES: usize = 8 << 20;
/// It is at most this part of the address space, where that is limited, and at least so much.
const STACK_PART: u64 = 32;
const STACK_LEAST_BYTES: usize = 256 << 10;
/// The exit status of the command if nothing better is known.
const FAILED: u8 = 2;
/// The highest signal number of Linux.
const SIGNAL_MAX: c_int = 64;
/// The size of the kernel's signal set, in bytes.
const SIGNAL_SET_BYTES: usize = size_of::<u64>();
/// What runs a file that is neither a binary nor begins with `#!`, as in execvp.
pub(crate) const SHELL: &CStr = c"/bin/sh";

/// Defines the C function `main` of the program, which runs `fn() -> u8` and exits with its result.
///
/// Rust's own start-up code would change what the command was started with before that can be
/// noted: it ignores SIGPIPE and opens `/dev/null` for closed standard descriptors.
#[macro_export]
macro_rules! entry {
    ($command:path) => {
        // SAFETY: no other function of the program has this name; it is declared `no_main`.
        #[unsafe(no_mangle)]
        extern "C" fn main(
            count: ::std::ffi::c_int,
            words: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: these are the arguments of `main`, which runs once.
            unsafe { $crate::exec::enter(count, words, $command) }
        }
    };
}

/// What the command was started with, which exec would have handed on to the program.
pub struct Inherited {
    /// The arguments, the command's name first.
    pub arguments: Vec<OsString>,
    /// The environment: its entries in their order, whatever they look like.
    pub environment: Vec<OsString>,
    /// Ignored signals: bit n - 1 for signal n.
    ignored: u64,
    /// Blocked signals, likewise.
    mask: u64,
    /// The signal that is sent when the parent dies; 0 for none.
    death_signal: c_int,
    /// Whether orphaned descendants become children of the process.
    is_subreaper: bool,
    /// Where the kernel reads `/proc/PID/cmdline`: address and length.
    command_line: (usize, usize),
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// What the command was started with; none in a program that does not begin by [`entry!`].
pub fn inherited() -> Option<&'static Inherited> {
    INHERITED.get()
}

/// Notes what the command was started with, runs `command` on a stack of its own and exits with its
/// result.
///
/// # Safety
///
/// To be called from C's `main`, once, with its arguments.
pub unsafe fn enter(count: c_int, words: *const *const c_char, command: fn() -> u8) -> c_int {
    // SAFETY: the arguments of `main`; no other thread exists yet.
    let inherited = unsafe { Inherited::capture(count, words) };
    let _ = INHERITED.set(inherited); // cannot fail: this runs once
    occupy_standard_descriptors();
    // A reader that goes away is a failed write, not the end of the command.
    set_action(libc::SIGPIPE, libc::SIG_IGN);
    // This thread gets no signals from now on: they are the other's to take or to block.
    let mask = change_mask(Some(u64::MAX));
    let run = move || {
        change_mask(Some(mask));
        std::process::exit(command().into())
    };
    match std::thread::Builder::new().stack_size(stack_bytes()).spawn(run) {
        Ok(thread) => thread.join().map_or(FAILED.into(), |never| never),
        Err(_) => run(), // no room for a thread: the stack that there is may do
    }
}

fn stack_bytes() -> usize {
    let limit = |resource| getrlimit(resource).map_or(u64::MAX, |(soft, _)| soft);
    let room = limit(Resource::RLIMIT_AS).min(limit(Resource::RLIMIT_DATA)) / STACK_PART;
    usize::try_from(room).unwrap_or(usize::MAX).clamp(STACK_LEAST_BYTES, STACK_BYTES)
}

/// Has this process, which is not the program, use what memory it may: soft limits are for the
/// program.
pub fn lift_limits() {
    for resource in [Resource::RLIMIT_AS, Resource::RLIMIT_DATA] {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, hard, hard); // if not, there is as much as before
        }
    }
}

impl Inherited {
    /// # Safety
    ///
    /// The arguments must be those of C's `main`, and no other thread may exist.
    unsafe fn capture(count: c_int, words: *const *const c_char) -> Inherited {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: `main` gets an array of `count` strings.
        let arguments = unsafe { strings(words, count) };
        // SAFETY: libc's `environ` is null or an array that ends with a null pointer; nobody
        // changes it.
        let environment = unsafe { strings(environ.cast(), usize::MAX) };
        let bytes = arguments.iter().map(|word| word.len() + 1).sum();
        // SAFETY: the array has a first entry if `count` is not 0.
        let begin = if count > 0 { unsafe { words.read() as usize } } else { 0 };
        let (mut death_signal, mut is_subreaper): (c_int, c_int) = (0, 0);
        // SAFETY: each stores an integer at the address that it is given.
        unsafe {
            libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut death_signal);
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_subreaper);
        }
        let ignored = (1..=SIGNAL_MAX).filter(|&signal| action(signal) == libc::SIG_IGN);
        Inherited {
            arguments,
            environment,
            ignored: ignored.map(bit).sum(),
            mask: change_mask(None),
            death_signal,
            is_subreaper: is_subreaper != 0,
            command_line: (begin, bytes),
        }
    }

    /// Makes signals and attributes what they were at the start. The death signal is about `parent`
    /// from now on.
    fn restore(&self, parent: Pid) {
        for signal in (1..=SIGNAL_MAX).filter(|s| ![libc::SIGKILL, libc::SIGSTOP].contains(s)) {
            let is_ignored = self.ignored & bit(signal) != 0;
            set_action(signal, if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        // SAFETY: both take an integer and change an attribute of this process only.
        unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, c_long::from(self.is_subreaper));
            libc::prctl(libc::PR_SET_PDEATHSIG, c_long::from(self.death_signal));
        }
        if self.death_signal != 0 && nix::unistd::getppid() != parent {
            let _ = kill(nix::unistd::getpid(), self.death_signal); // it died before
        }
        change_mask(Some(self.mask));
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The strings of an array, up to a null pointer and `most` at most.
///
/// # Safety
///
/// The array is null, or holds strings and ends as described.
unsafe fn strings(array: *const *const c_char, most: usize) -> Vec<OsString> {
    let mut found = Vec::new();
    while found.len() < most && !array.is_null() {
        // SAFETY: entries before the last are strings; `found.len()` have been passed.
        let entry = unsafe { array.add(found.len()).read() };
        if entry.is_null() {
            break;
        }
        // SAFETY: a string of the array.
        found.push(OsString::from_vec(unsafe { CStr::from_ptr(entry) }.to_bytes().to_vec()));
    }
    found
}

/// Opens something harmless as each closed standard descriptor, else a file that is opened later
/// gets the number and the messages. It is closed again by exec.
fn occupy_standard_descriptors() {
    for descriptor in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        // SAFETY: asks about a number; each call opens the lowest number that is free, which is
        // this one, and nothing owns it.
        unsafe {
            if libc::fcntl(descriptor, libc::F_GETFD) == -1
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) == -1
            {
                // By its number: glibc has the function since 2.27 only.
                libc::syscall(libc::SYS_memfd_create, c"null".as_ptr(), libc::MFD_CLOEXEC);
            }
        }
    }
}

/// A signal in a set.
fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The kernel's `struct sigaction`. libc's functions refuse the signals that it uses itself.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// The handler of a signal.
fn action(signal: c_int) -> libc::sighandler_t {
    let mut old = Action::default();
    // SAFETY: stores an `Action`, of the kernel's layout.
    unsafe {
        let new = null::<Action>();
        libc::syscall(libc::SYS_rt_sigaction, signal, new, &raw mut old, SIGNAL_SET_BYTES);
    }
    old.handler
}

/// Makes a signal ignored or its action the default.
fn set_action(signal: c_int, handler: libc::sighandler_t) {
    let new = Action { handler, ..Action::default() };
    // SAFETY: reads an `Action`, of the kernel's layout; no handler function is installed.
    unsafe {
        let old = null_mut::<Action>();
        libc::syscall(libc::SYS_rt_sigaction, signal, &raw const new, old, SIGNAL_SET_BYTES);
    }
}

/// Sets the signals that this thread blocks, and returns those that it blocked.
fn change_mask(new: Option<u64>) -> u64 {
    let mut old = 0u64;
    let new = new.as_ref().map_or(null(), |mask| mask as *const u64);
    // SAFETY: reads and stores a set of the kernel's layout.
    unsafe {
        let (how, old) = (libc::SIG_SETMASK, &raw mut old);
        libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, SIGNAL_SET_BYTES);
    }
    old
}

/// Blocks every signal in this thread and those that it starts, and returns a descriptor from which
/// a process reads its own pending signals, without waiting for one. The default action of the
/// signals of job control and of SIGCHLD is restored, so that this process can stop and wait.
///
/// Errors: there are no descriptors left.
pub fn block_signals() -> io::Result<OwnedFd> {
    for signal in [libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        set_action(signal, libc::SIG_DFL);
    }
    let every = u64::MAX;
    change_mask(Some(every));
    // SAFETY: reads the set; the descriptor that it returns is new and has no other owner.
    unsafe {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let set = &raw const every;
        owned(libc::syscall(libc::SYS_signalfd4, -1, set, SIGNAL_SET_BYTES, flags))
    }
}

/// # Safety
///
/// A descriptor in the result of a system call must be new.
unsafe fn owned(result: c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(result) {
        // SAFETY: as the caller promises.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal, which may be a real-time one.
///
/// Errors: the process is gone or belongs to another user.
pub fn kill(process: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: takes two integers.
    check(unsafe { libc::kill(process.as_raw(), signal) }.into())
}

/// Where a signal came from, as its receiver sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// `si_code`: below 0 for signals that carry a value.
    pub code: c_int,
    /// The sender; 0 for the kernel and for processes of another pid namespace.
    pub process: u32,
    /// The sender's user.
    pub user: u32,
    /// The value sent along.
    pub value: u64,
}

/// Sends a signal with its value, and as if it came from its first sender.
///
/// Errors: as those of [`kill`]; the code is not one that programs may use.
pub fn queue(process: Pid, signal: c_int, origin: Origin) -> io::Result<()> {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    // `siginfo_t`: number and error, code, sender and user, value.
    let mut info = [0u64; 16];
    info[0] = pair(signal as u32, 0);
    info[1] = pair(origin.code as u32, 0);
    info[2] = pair(origin.process, origin.user);
    info[3] = origin.value;
    // SAFETY: reads a `siginfo_t`, which is 128 bytes long.
    check(unsafe {
        let (number, process) = (libc::SYS_rt_sigqueueinfo, process.as_raw());
        libc::syscall(number, process, signal, info.as_ptr())
    })
}

fn check(result: c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A descriptor that becomes readable when a process ends.
///
/// Errors: there is no such process, or no descriptor left, or the kernel has none (before 5.3).
pub fn pidfd(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers; the descriptor that it returns is new.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0)) }
}

/// Starts a process that runs `child` and exits with its result.
///
/// It begins with a copy of the calling thread alone, so no other thread may be running when this
/// is called but the initial one, which [`enter`] keeps waiting.
///
/// Errors: there is no memory, or the user has as many processes as are allowed.
pub fn fork(child: impl FnOnce() -> u8) -> io::Result<Pid> {
    // SAFETY: the other thread waits and holds no lock; libc leaves the child a heap that works.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = child();
            // SAFETY: ends the process. What the parent has to do at its end is not done twice.
            unsafe { libc::_exit(status.into()) }
        }
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// [`fork`] for a process that does something for the command: it has these descriptors alone.
///
/// Errors: as those of [`fork`].
pub fn fork_helper(kept: &[BorrowedFd], helper: impl FnOnce() -> u8) -> io::Result<Pid> {
    fork(|| {
        close_all_but(kept);
        helper()
    })
}

fn close_all_but(kept: &[BorrowedFd]) {
    let mut kept: Vec<RawFd> = kept.iter().map(|kept| kept.as_raw_fd()).collect();
    kept.sort_unstable();
    let mut from = 0;
    for last in kept.iter().map(|&kept| kept - 1).chain([RawFd::MAX]) {
        // SAFETY: takes integers. In this process, which runs one function of ours and exits
        // without running destructors, nothing uses the descriptors that are not kept.
        if from <= last && unsafe { libc::syscall(libc::SYS_close_range, from, last, 0) } == -1 {
            return close_listed_but(&kept); // Linux before 5.9
        }
        from = last.saturating_add(2);
    }
}

fn close_listed_but(kept: &[RawFd]) {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let open: Vec<RawFd> = numbers.filter(|number| !kept.contains(number)).collect();
    for number in open {
        // SAFETY: as in `close_all_but`.
        unsafe { libc::close(number) };
    }
}

/// Has the kernel kill this process when its parent dies.
pub fn die_with_parent() {
    // SAFETY: takes an integer and changes an attribute of this process only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_long::from(libc::SIGKILL)) };
}

/// Gives this process another name, and as its command line the last `words` arguments alone.
pub fn rename(name: &CStr, words: usize) {
    // SAFETY: reads a string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some(inherited) = inherited() else { return };
    let (begin, length) = inherited.command_line;
    let tail = inherited.arguments.iter().rev().take(words).map(|word| word.len() + 1).sum();
    if begin == 0 || tail > length {
        return;
    }
    let area = begin as *mut u8;
    // SAFETY: the arguments lie one behind the other in `length` bytes of writable memory, which
    // nobody reads here any more but the kernel: `inherited` has copies.
    unsafe {
        area.add(length - tail).copy_to(area, tail);
        area.add(tail).write_bytes(0, length - tail);
    }
}

/// Whether a file has an extended attribute of this name.
pub fn has_attribute(file: &Path, name: &CStr) -> bool {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: reads two strings and stores nothing: asks for the size alone.
    unsafe { libc::getxattr(file.as_ptr(), name.as_ptr(), null_mut(), 0) > 0 }
}

/// A child that ended, stopped or continued, if there is one.
pub fn changed_child() -> Option<(Pid, ExitStatus)> {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: stores an integer.
    match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
        pid if pid > 0 => Some((Pid::from_raw(pid), ExitStatus::from_raw(status))),
        _ => None,
    }
}

/// Waits for the end of a child; none if it is no child.
pub fn wait_for(child: Pid) -> Option<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: stores an integer.
        match unsafe { libc::waitpid(child.as_raw(), &raw mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(ExitStatus::from_raw(status)),
        }
    }
}

/// The interval timers of a process: `alarm` and its kin. Exec hands them on and fork does not.
pub struct Timers([libc::itimerval; 3]);

/// The kinds of interval timers.
const TIMERS: [c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

impl Timers {
    /// Stops the timers of this process.
    pub fn take() -> Timers {
        Timers(TIMERS.map(|which| {
            // SAFETY: zero is a valid value of these integers; reads and stores such a value.
            unsafe {
                let stop = MaybeUninit::<libc::itimerval>::zeroed().assume_init();
                let mut old = stop;
                libc::setitimer(which, &raw const stop, &raw mut old);
                old
            }
        }))
    }

    /// Starts them in this process.
    pub fn start(&self) {
        for (which, timer) in TIMERS.into_iter().zip(&self.0) {
            // SAFETY: reads a valid value.
            unsafe { libc::setitimer(which, timer, null_mut()) };
        }
    }
}

/// Becomes a program, as execve does: with signals and attributes of the process as the command was
/// started with. A file of an unknown format is run by the shell, as execvp does. `parent` is the
/// parent that this process had when it began.
///
/// Returns only if that is not possible, and why.
pub fn become_program(
    file: &CStr,
    words: &[CString],
    environment: &[CString],
    parent: Pid,
) -> io::Error {
    if let Some(inherited) = inherited() {
        inherited.restore(parent);
    }
    let environment = pointers(environment.iter().map(CString::as_c_str));
    let words = pointers(words.iter().map(CString::as_c_str));
    // SAFETY: a string and two arrays of strings that end with a null pointer.
    unsafe { libc::execve(file.as_ptr(), words.as_ptr(), environment.as_ptr()) };
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOEXEC) {
        let rest = words.get(1..).unwrap_or_default();
        let words: Vec<*const c_char> =
            [SHELL.as_ptr(), file.as_ptr()].iter().chain(rest).copied().collect();
        // SAFETY: as above; the rest ends with the null pointer.
        unsafe { libc::execve(SHELL.as_ptr(), words.as_ptr(), environment.as_ptr()) };
        return io::Error::last_os_error();
    }
    error
}

/// The addresses of strings, and a null pointer.
fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    strings.map(CStr::as_ptr).chain([null()]).collect()
}
