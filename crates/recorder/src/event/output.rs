//! Output that the program requests, in a call or by `HEAPTIDE_REPORT`. The `heaptide` command
//! writes it from the current profile; it runs as a child that the program does not notice.

use crate::event::lane::LaneState;
use crate::event::{marks, requests, stats};
use crate::store::directory;
use crate::store::shared::{Store, store};
use crate::sys::child::Command;
use crate::sys::kernel::{self, Fd};
use crate::sys::options::{self, Options, PATH_MAX};
use crate::sys::replaced::Replaced;
use crate::sys::text::Text;
use crate::sys::{confined, maps, own_stack};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use heaptide_format::report::Request;
use heaptide_format::settings::{PREFIX, Setting};
use heaptide_format::shared::Word;
use heaptide_format::{Loss, PROFILE_SUFFIX};

/// The destination of output.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// A path at which the command creates or replaces a file.
    File(&'a [u8]),
    /// An open file.
    Open(Fd),
}

/// Digits of a process id, and a zero byte.
const DIGITS_MAX: usize = 21;

const STDOUT: Fd = Fd(1);
const STDERR: Fd = Fd(2);

impl<'a> Target<'a> {
    /// Returns the target for a name: a path, `stdout` or `stderr`.
    pub fn named(name: &'a [u8]) -> Target<'a> {
        match name {
            b"stdout" => Target::Open(STDOUT),
            b"stderr" => Target::Open(STDERR),
            path => Target::File(path),
        }
    }

    fn is_open(self, fd: Fd) -> bool {
        matches!(self, Target::Open(open) if open.0 == fd.0)
    }
}

/// Runs the command on what was recorded so far, and waits for it. Returns whether it succeeded.
pub fn write(lane: &mut LaneState, target: Target<'_>, format: &[u8]) -> bool {
    requests::flush(lane);
    run(target, format)
}

/// Set if the program wants no stacks in the dump at exit of the kind that MallocProfiler writes.
static IS_DUMP_OMITTED: AtomicBool = AtomicBool::new(false);
/// The format of that dump without stacks.
const SUMMARY: &[u8] = b"malloc-profiler-summary";

/// Omits the stacks of MallocProfiler's dump at exit, which the program did not request by a
/// variable.
pub fn omit_dump() {
    IS_DUMP_OMITTED.store(true, Relaxed);
}

/// Writes the output that `HEAPTIDE_REPORT` or the name of the preloaded library requests, at the
/// exit of the process.
pub fn write_at_exit(p: &Store) {
    let Some(options) = Options::known().filter(|options| options.report.is_whole()) else {
        return;
    };
    if options.replaced.has(Replaced::MaxMemory) {
        print_max_memory();
    }
    let is_summary = options.is_report_of_replaced && IS_DUMP_OMITTED.load(Relaxed);
    let is_root = own_stack::call(|| is_root(p)).unwrap_or(false);
    for request in Request::each(options.report.bytes()).flatten() {
        // One file cannot hold the reports of all processes. Those of the replaced library, which
        // each process prints, go to a stream.
        if is_root || options.is_report_of_replaced || request.is_of_each_process() {
            own_stack::call(|| {
                let (mut pid, mut target) = (Text::<DIGITS_MAX>::new(), Text::<PATH_MAX>::new());
                pid.push_number(p.pid.load(Relaxed) as u64);
                request.expand(pid.bytes(), |piece| target.push(piece));
                let target = match Target::named(target.bytes()) {
                    Target::Open(fd) => Target::Open(kept(fd)),
                    file => file,
                };
                run_here(p, target, if is_summary { SUMMARY } else { request.format });
            });
        }
    }
}

/// Prints the totals of the process on standard error, as MaxMemoryPreload does.
fn print_max_memory() {
    const TEXT_MAX: usize = 512;
    let figures = stats::totals(store(), &marks::sums_at_reset());
    let lines: [(&[u8], u64); 5] = [
        (b"total memory requested: ", figures.requested_bytes),
        (b" max memory used: ", figures.peak_bytes),
        (b" presently used: ", figures.live_bytes.max(0) as u64),
        (b" # allocations calls:   ", figures.allocations),
        (b" # deallocations calls: ", figures.frees),
    ];
    let mut text = Text::<TEXT_MAX>::new();
    for (name, value) in lines {
        text.push(b"Memory Report: ");
        text.push(name);
        text.push_number(value);
        text.push(b"\n");
    }
    kernel::write_all(STDERR, text.bytes());
}

/// A copy of a stream of the program, and the identity of its file when it was copied.
struct Kept {
    copy: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Copies of standard output and error, which many programs close before they exit. Forked children
/// have them, too, as they have the descriptors.
static KEPT: [Kept; 2] = [const {
    Kept { copy: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
}; 2];

/// Copies the streams of the program that are to be written to at exit.
pub fn keep_streams(options: &Options) {
    /// Above the numbers that programs rely on.
    const LEAST: usize = 900;
    for (stream, kept) in [STDOUT, STDERR].into_iter().zip(&KEPT) {
        let wants = |request: Request<'_>| Target::named(request.target).is_open(stream);
        let is_wanted = Request::each(options.report.bytes()).flatten().any(wants);
        if !is_wanted || kept.copy.load(Relaxed) >= 0 {
            continue;
        }
        if let Ok((device, inode)) = kernel::identity(stream)
            && let Ok(copy) = kernel::copy_from(stream, LEAST)
        {
            kept.device.store(device, Relaxed);
            kept.inode.store(inode, Relaxed);
            kept.copy.store(copy.0, Relaxed);
        }
    }
}

/// Returns the copy of a stream, or the stream itself if the program has closed the copy as well.
fn kept(stream: Fd) -> Fd {
    let kept = &KEPT[(stream.0 == STDERR.0) as usize];
    let copy = Fd(kept.copy.load(Relaxed));
    let then = (kept.device.load(Relaxed), kept.inode.load(Relaxed));
    if copy.0 >= 0 && kernel::identity(copy) == Ok(then) { copy } else { stream }
}

/// Returns whether this process was not started by a recorded one.
fn is_root(p: &Store) -> bool {
    const EXISTS: usize = 0;
    let header = p.header();
    let Some(directory) = directory::known().filter(|_| header.forked.get() == 0) else {
        return false;
    };
    let mut path = Text::<PATH_MAX>::new();
    path.push(directory.bytes());
    path.push(b"/");
    path.push_number(header.ppid.get() as u64);
    path.push(b"-0");
    path.push(PROFILE_SUFFIX.as_bytes());
    path.path().is_some_and(|parent| !kernel::may_access(parent, EXISTS))
}

fn run(target: Target<'_>, format: &[u8]) -> bool {
    own_stack::call(|| run_here(store(), target, format)).unwrap_or(false)
}

/// Runs the command, on a stack with room for paths. Returns whether it succeeded.
fn run_here(p: &Store, target: Target<'_>, format: &[u8]) -> bool {
    let status = if confined::may_call() {
        options::with_environment(|environment| start(p, target, format, environment)).flatten()
    } else {
        None
    };
    if status != Some(0) {
        p.lost(Loss::NoSnapshot);
    }
    status == Some(0)
}

fn start(p: &Store, target: Target<'_>, format: &[u8], environment: &[u8]) -> Option<i32> {
    let mut program = Text::<PATH_MAX>::new();
    find_command(&mut program, environment)?;
    let path = p.path.load(Relaxed);
    if path.is_null() || target_is_too_long(target) {
        return None;
    }
    // SAFETY: PATH_MAX zero-terminated bytes, never released.
    let profile = unsafe { core::slice::from_raw_parts(path, PATH_MAX) };
    let profile = profile.split(|&b| b == 0).next()?;
    let (file, output) = match target {
        Target::File(path) => (path, None),
        Target::Open(fd) => (&b"-"[..], Some(fd)),
    };
    let arguments = [program.bytes(), b"write", b"--format", format, b"--output", file, profile];
    let entries = || environment.split_inclusive(|&b| b == 0).filter(|e| e.ends_with(b"\0"));
    let kept = entries().filter(|entry| is_kept(entry));
    let text: usize = arguments.iter().map(|argument| argument.len() + 1).sum();
    let mut lists = Lists::new(arguments.len() + entries().count() + 2, text)?;
    let list = lists.next_list();
    arguments.iter().for_each(|argument| lists.push_copy(argument));
    lists.finish_list();
    let variables = lists.next_list();
    kept.for_each(|entry| lists.push(entry.as_ptr()));
    lists.finish_list();
    let path = program.path()?;
    let command = Command { path, arguments: list, environment: variables, output };
    // SAFETY: complete lists, which live until this returns. The thread is on a stack of the
    // recorder's own, with its signals blocked.
    unsafe { command.run() }
}

fn target_is_too_long(target: Target<'_>) -> bool {
    matches!(target, Target::File(path) if path.is_empty() || path.len() >= PATH_MAX)
}

/// Returns whether the command inherits a variable of the program. Those that would make it load or
/// record something are removed.
fn is_kept(entry: &[u8]) -> bool {
    const LOADER: &[u8] = b"LD_";
    !entry.starts_with(PREFIX.as_bytes()) && !entry.starts_with(LOADER)
}

/// Finds the command: the one in `HEAPTIDE_COMMAND`, or one beside the library (of the same name,
/// or installed) or in `../bin` of its directory, or one in `PATH`.
fn find_command(program: &mut Text<PATH_MAX>, environment: &[u8]) -> Option<()> {
    const NAME: &[u8] = b"heaptide";
    const DEFAULT: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
    let options = Options::known()?;
    let named = options.handed_on.value(Setting::Command.variable().as_bytes());
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return is_program(program, &[named]).then_some(());
    }
    let mut library = Text::<PATH_MAX>::new();
    maps::own_file(&mut library);
    if let Some(end) = library.bytes().iter().rposition(|&b| b == b'/') {
        let (directory, file) = library.bytes().split_at(end + 1);
        let same = file.strip_prefix(b"lib").and_then(|name| name.strip_suffix(b".so"));
        if same.is_some_and(|same| is_program(program, &[directory, same]))
            || is_program(program, &[directory, NAME])
            || is_program(program, &[directory, b"../bin/", NAME])
        {
            return Some(());
        }
    }
    let mut variables = environment.split(|&b| b == 0);
    let search = variables.find_map(|entry| entry.strip_prefix(b"PATH="));
    let mut places = search.unwrap_or(DEFAULT).split(|&b| b == b':');
    let is_absolute = |place: &&[u8]| place.first() == Some(&b'/');
    places.by_ref().filter(is_absolute).find(|place| is_program(program, &[place, b"/", NAME]))?;
    Some(())
}

/// Joins the parts of a path. Returns whether it names a file that may be executed.
fn is_program(path: &mut Text<PATH_MAX>, parts: &[&[u8]]) -> bool {
    const MAY_EXECUTE: usize = 1;
    path.truncate(0);
    parts.iter().for_each(|part| path.push(part));
    path.path().is_some_and(|path| kernel::may_access(path, MAY_EXECUTE))
}

/// Lists of strings for exec, in memory of their own.
struct Lists {
    start: *mut *const u8,
    used: usize,
    text: *mut u8,
    bytes: usize,
}

impl Lists {
    /// Allocates room for `words` pointers, including the ends of the lists, and for `text` bytes
    /// of copied strings.
    fn new(words: usize, text: usize) -> Option<Lists> {
        let bytes = words * size_of::<usize>() + text;
        let start = kernel::map_private(bytes) as *mut *const u8;
        let text = start.wrapping_add(words) as *mut u8;
        (!start.is_null()).then_some(Lists { start, used: 0, text, bytes })
    }

    /// Returns where the next list begins.
    fn next_list(&self) -> *const *const u8 {
        self.start.wrapping_add(self.used)
    }

    fn push(&mut self, string: *const u8) {
        // SAFETY: `new` allocated room for all pointers.
        unsafe { self.start.add(self.used).write(string) };
        self.used += 1;
    }

    fn push_copy(&mut self, string: &[u8]) {
        let copy = self.text;
        // SAFETY: `new` allocated room for all strings; a zero follows in fresh memory.
        unsafe {
            core::ptr::copy_nonoverlapping(string.as_ptr(), copy, string.len());
            self.text = copy.add(string.len() + 1);
        }
        self.push(copy);
    }

    fn finish_list(&mut self) {
        self.push(core::ptr::null());
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; the command that used it has ended.
        unsafe { kernel::unmap(self.start as *mut u8, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_recorder_and_the_loader_stay_behind() {
        let kept: [&[u8]; 3] = [b"PATH=/bin\0", b"HOME=/\0", b"XLD_=1\0"];
        let left: [&[u8]; 3] = [b"LD_PRELOAD=x\0", b"HEAPTIDE_OUTPUT=x\0", b"LD_AUDIT=x\0"];
        assert!(kept.iter().all(|e| is_kept(e)) && !left.iter().any(|e| is_kept(e)));
    }
}
