//! All `unsafe` code of the command: its initial state, fork, exec, and the few system calls
//! without a safe wrapper.

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

/// The stack of the thread that runs the command, in bytes. The stack limit of the initial thread
/// is meant for the program, and may be too small for the command.
const STACK_BYTES: usize = 8 << 20;
/// The stack is at most this fraction of a limited address space, but at least this large.
const STACK_PART: u64 = 32;
const STACK_LEAST_BYTES: usize = 256 << 10;
/// The exit status of the command if there is no better one.
const FAILED: u8 = 2;
/// The highest signal number of Linux.
const SIGNAL_MAX: c_int = 64;
/// The size of the kernel's signal set, in bytes.
const SIGNAL_SET_BYTES: usize = size_of::<u64>();
/// The shell that runs a file which is neither a binary nor starts with `#!`, as in execvp.
pub(crate) const SHELL: &CStr = c"/bin/sh";

/// Defines the C function `main` of the program, which runs `fn() -> u8` and exits with its result.
///
/// Rust's own start-up code would change the command's initial state before it can be saved: it
/// ignores SIGPIPE and opens `/dev/null` for closed standard descriptors.
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

/// The initial state of the command, which exec would have passed on to the program.
pub struct Inherited {
    /// The arguments, starting with the command's name.
    pub arguments: Vec<OsString>,
    /// The environment: its entries in order, in any form.
    pub environment: Vec<OsString>,
    /// Ignored signals: bit n - 1 for signal n.
    ignored: u64,
    /// Blocked signals, in the same form.
    mask: u64,
    /// The signal to receive when the parent dies; 0 for none.
    death_signal: c_int,
    /// Whether orphaned descendants become children of the process.
    is_subreaper: bool,
    /// Address and length of the memory that `/proc/PID/cmdline` shows.
    command_line: (usize, usize),
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Returns the initial state; `None` in a program that does not start with [`entry!`].
pub fn inherited() -> Option<&'static Inherited> {
    INHERITED.get()
}

/// Saves the initial state, runs `command` on a separate stack, and exits with its result.
///
/// # Safety
///
/// Must be called from C's `main`, once, with its arguments.
pub unsafe fn enter(count: c_int, words: *const *const c_char, command: fn() -> u8) -> c_int {
    // SAFETY: the arguments of `main`; no other thread exists yet.
    let inherited = unsafe { Inherited::capture(count, words) };
    let _ = INHERITED.set(inherited); // cannot fail: this runs once
    occupy_standard_descriptors();
    // A closed pipe must be a failed write, not the end of the command.
    set_action(libc::SIGPIPE, libc::SIG_IGN);
    // Signals go to the other thread from now on, which handles or blocks them.
    let mask = change_mask(Some(u64::MAX));
    let run = move || {
        change_mask(Some(mask));
        std::process::exit(command().into())
    };
    match std::thread::Builder::new().stack_size(stack_bytes()).spawn(run) {
        Ok(thread) => thread.join().map_or(FAILED.into(), |never| never),
        Err(_) => run(), // no space for a thread: the current stack may suffice
    }
}

fn stack_bytes() -> usize {
    let limit = |resource| getrlimit(resource).map_or(u64::MAX, |(soft, _)| soft);
    let room = limit(Resource::RLIMIT_AS).min(limit(Resource::RLIMIT_DATA)) / STACK_PART;
    usize::try_from(room).unwrap_or(usize::MAX).clamp(STACK_LEAST_BYTES, STACK_BYTES)
}

/// Raises the soft limits of this process, because they are meant for the program.
pub fn lift_limits() {
    for resource in [Resource::RLIMIT_AS, Resource::RLIMIT_DATA] {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, hard, hard); // on failure the limit stays the same
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
        // SAFETY: libc's `environ` is null or an array that ends with a null pointer; nothing
        // changes it.
        let environment = unsafe { strings(environ.cast(), usize::MAX) };
        let bytes = arguments.iter().map(|word| word.len() + 1).sum();
        // SAFETY: the array has a first entry if `count` is not 0.
        let begin = if count > 0 { unsafe { words.read() as usize } } else { 0 };
        let (mut death_signal, mut is_subreaper): (c_int, c_int) = (0, 0);
        // SAFETY: each stores an integer at the given address.
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

    /// Restores the initial signal state and attributes. The death signal refers to `parent` from
    /// now on.
    fn restore(&self, parent: Pid) {
        for signal in (1..=SIGNAL_MAX).filter(|s| ![libc::SIGKILL, libc::SIGSTOP].contains(s)) {
            let is_ignored = self.ignored & bit(signal) != 0;
            set_action(signal, if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        // SAFETY: both take an integer and change only an attribute of this process.
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

/// Returns the strings of an array, up to a null pointer, and at most `most`.
///
/// # Safety
///
/// The array is null, or contains strings and ends as described.
unsafe fn strings(array: *const *const c_char, most: usize) -> Vec<OsString> {
    let mut found = Vec::new();
    while found.len() < most && !array.is_null() {
        // SAFETY: entries before the last are strings; `found.len()` have been read.
        let entry = unsafe { array.add(found.len()).read() };
        if entry.is_null() {
            break;
        }
        // SAFETY: a string of the array.
        found.push(OsString::from_vec(unsafe { CStr::from_ptr(entry) }.to_bytes().to_vec()));
    }
    found
}

/// Opens a placeholder for each closed standard descriptor; otherwise a file opened later would get
/// its number, and receive messages. Exec closes it.
fn occupy_standard_descriptors() {
    for descriptor in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        // SAFETY: queries a number; each call opens the lowest free number, which is this one, and
        // which nothing owns.
        unsafe {
            if libc::fcntl(descriptor, libc::F_GETFD) == -1
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) == -1
            {
                // Called by number, because glibc has the function only since 2.27.
                libc::syscall(libc::SYS_memfd_create, c"null".as_ptr(), libc::MFD_CLOEXEC);
            }
        }
    }
}

/// Returns the bit of a signal in a set.
fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The kernel's `struct sigaction`. libc's functions reject the signals that it uses itself.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Returns the handler of a signal.
fn action(signal: c_int) -> libc::sighandler_t {
    let mut old = Action::default();
    // SAFETY: stores an `Action`, which has the kernel's layout.
    unsafe {
        let new = null::<Action>();
        libc::syscall(libc::SYS_rt_sigaction, signal, new, &raw mut old, SIGNAL_SET_BYTES);
    }
    old.handler
}

/// Sets a signal to be ignored, or to its default action.
fn set_action(signal: c_int, handler: libc::sighandler_t) {
    let new = Action { handler, ..Action::default() };
    // SAFETY: reads an `Action`, which has the kernel's layout; no handler function is installed.
    unsafe {
        let old = null_mut::<Action>();
        libc::syscall(libc::SYS_rt_sigaction, signal, &raw const new, old, SIGNAL_SET_BYTES);
    }
}

/// Sets the signals that this thread blocks, and returns the previous ones.
fn change_mask(new: Option<u64>) -> u64 {
    let mut old = 0u64;
    let new = new.as_ref().map_or(null(), |mask| mask as *const u64);
    // SAFETY: reads and stores a set with the kernel's layout.
    unsafe {
        let (how, old) = (libc::SIG_SETMASK, &raw mut old);
        libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, SIGNAL_SET_BYTES);
    }
    old
}

/// Blocks every signal in this thread and in threads that it starts. Returns a descriptor from
/// which a process reads its own pending signals, without blocking. Restores the default action of
/// SIGCHLD and of job control signals, so that this process can stop and wait.
///
/// Errors: there is no free descriptor.
pub fn block_signals() -> io::Result<OwnedFd> {
    for signal in [libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        set_action(signal, libc::SIG_DFL);
    }
    let every = u64::MAX;
    change_mask(Some(every));
    // SAFETY: reads the set; the returned descriptor is new and has no other owner.
    unsafe {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let set = &raw const every;
        owned(libc::syscall(libc::SYS_signalfd4, -1, set, SIGNAL_SET_BYTES, flags))
    }
}

/// # Safety
///
/// If the result of a system call is a descriptor, it must be new.
unsafe fn owned(result: c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(result) {
        // SAFETY: the caller's contract.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal, possibly a real-time signal.
///
/// Errors: the process has ended or belongs to another user.
pub fn kill(process: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: takes two integers.
    check(unsafe { libc::kill(process.as_raw(), signal) }.into())
}

/// The origin of a signal, as its receiver sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// `si_code`: below 0 for signals that carry a value.
    pub code: c_int,
    /// The sender; 0 for the kernel and for processes in another pid namespace.
    pub process: u32,
    /// The sender's user id.
    pub user: u32,
    /// The value sent with it.
    pub value: u64,
}

/// Sends a signal with its value and with the original sender.
///
/// Errors: those of [`kill`]; or programs may not use the code.
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

/// Returns a descriptor that becomes readable when a process ends.
///
/// Errors: there is no such process, or no free descriptor, or the kernel lacks it (before 5.3).
pub fn pidfd(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers; the returned descriptor is new.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0)) }
}

/// Returns the status of a process that was reaped, by a descriptor from [`pidfd`]; `None` if it
/// was not, or if the kernel does not keep it (before 6.15).
pub fn status_after_reaping(process: BorrowedFd<'_>) -> Option<ExitStatus> {
    /// `struct pidfd_info` up to the status (linux/pidfd.h).
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        group: u64,
        ids: [u32; 11],
        status: i32,
    }
    const WITH_STATUS: u64 = 1 << 3;
    const GET_INFO: libc::c_ulong = 0xc000_ff0b | (size_of::<Info>() as libc::c_ulong) << 16;
    let mut info = Info { mask: WITH_STATUS, ..Info::default() };
    // SAFETY: the kernel reads and writes a structure of this size, which the request contains.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (done == 0 && info.mask & WITH_STATUS != 0).then(|| ExitStatus::from_raw(info.status))
}

/// Starts a process that runs `child` and exits with its result.
///
/// It starts with a copy of only the calling thread, so no other thread may be running, except the
/// initial one, which [`enter`] keeps waiting.
///
/// Errors: out of memory, or the user's process limit is reached.
pub fn fork(child: impl FnOnce() -> u8) -> io::Result<Pid> {
    // SAFETY: the other thread waits and holds no lock; libc leaves the child a usable heap.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = child();
            // SAFETY: ends the process, without running the parent's exit handlers again.
            unsafe { libc::_exit(status.into()) }
        }
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Returns whether an inherited seccomp filter ends a process that changes its code. If there is a
/// filter, a child process tries. Like [`fork`], needs the calling thread to be alone.
pub fn is_ended_for_changes_of_code() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line == "Seccomp:\t2") {
        return false;
    }
    let tried = fork(|| {
        const BYTES: usize = 4096;
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new page, which nothing uses; the limit is read.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
            let page = libc::mmap(std::ptr::null_mut(), BYTES, read_write, private, -1, 0);
            libc::mprotect(page, BYTES, read_write | libc::PROT_EXEC);
            libc::mprotect(page, BYTES, libc::PROT_READ | libc::PROT_EXEC);
        }
        0 // also if the kernel denies it
    });
    tried.ok().and_then(wait_for).is_some_and(|status| !status.success())
}

/// Like [`fork`], for a helper process of the command, which has only these descriptors.
///
/// Errors: those of [`fork`].
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
        // SAFETY: takes integers. This process runs one function of ours and exits without running
        // destructors, so nothing uses the closed descriptors.
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

/// Makes the kernel kill this process when its parent dies.
pub fn die_with_parent() {
    // SAFETY: takes an integer and changes only an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_long::from(libc::SIGKILL)) };
}

/// Changes the name of this process, and reduces its command line to the last `words` arguments,
/// which become one: tools that search the text of a command line find it, and those that search
/// the name of a program do not.
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
    // SAFETY: the arguments are contiguous in `length` bytes of writable memory, which only the
    // kernel still reads: `inherited` has copies.
    unsafe {
        area.add(length - tail).copy_to(area, tail);
        area.add(tail).write_bytes(0, length - tail);
        // A single argument gets a space behind it, if there is room for the zero.
        let ends = if words == 1 && tail < length { tail } else { tail.saturating_sub(1) };
        for at in 0..ends {
            if *area.add(at) == 0 {
                *area.add(at) = b' ';
            }
        }
    }
}

/// Returns whether a file has an extended attribute with this name.
pub fn has_attribute(file: &Path, name: &CStr) -> bool {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: reads two strings and stores nothing, because it queries only the size.
    unsafe { libc::getxattr(file.as_ptr(), name.as_ptr(), null_mut(), 0) > 0 }
}

/// Returns a child that ended, stopped or continued, if there is one.
pub fn changed_child() -> Option<(Pid, ExitStatus)> {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: stores an integer.
    match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
        pid if pid > 0 => Some((Pid::from_raw(pid), ExitStatus::from_raw(status))),
        _ => None,
    }
}

/// Waits for the end of a child; `None` if it is no child.
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

/// The interval timers of a process, such as `alarm`. Exec preserves them, fork does not.
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

    /// Starts the timers in this process.
    pub fn start(&self) {
        for (which, timer) in TIMERS.into_iter().zip(&self.0) {
            // SAFETY: reads a valid value.
            unsafe { libc::setitimer(which, timer, null_mut()) };
        }
    }
}

/// Executes a program in this process, like execve, with the command's initial signal state and
/// attributes. The shell runs a file of unknown format, as in execvp. `parent` is the parent that
/// this process had at its start.
///
/// Returns only on failure, with the reason.
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

/// Returns the addresses of strings, and a null pointer.
fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    strings.map(CStr::as_ptr).chain([null()]).collect()
}
