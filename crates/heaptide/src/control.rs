//! Control of the recorder: recording on or off, pauses, thresholds, output.

use crate::interface::{self, Of};
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns whether the recorder is loaded into this process.
///
/// ```
/// if !heaptide::loaded() {
///     eprintln!("start this program with `heaptide run` to see what it allocates");
/// }
/// ```
pub fn loaded() -> bool {
    interface::loaded()
}

/// Returns whether this process is recorded: the recorder is loaded, its mode records, and it could
/// create the profile.
pub fn recording() -> bool {
    interface::recording()
}

/// Returns whether allocations of the calling thread are being recorded.
pub fn thread_active() -> bool {
    interface::active(Of::Thread)
}

/// Returns whether allocations of the process are being recorded.
pub fn process_active() -> bool {
    interface::active(Of::Process)
}

/// Turns recording on for the whole process, like `heaptide ctl on`.
pub fn turn_on() {
    interface::turn(true);
}

/// Turns recording off for the whole process. Allocations made while it is off are not recorded,
/// but frees of recorded blocks are.
///
/// ```
/// heaptide::turn_off();
/// assert!(!heaptide::process_active());
/// heaptide::turn_on();
/// assert_eq!(heaptide::process_active(), heaptide::recording());
/// ```
pub fn turn_off() {
    interface::turn(false);
}

/// Pauses recording of the calling thread until the guard is dropped. Pauses may be nested.
///
/// ```
/// let before = heaptide::totals();
/// {
///     let _paused = heaptide::pause();
///     drop(vec![0u8; 1000]);
/// }
/// assert_eq!(heaptide::totals().allocations, before.allocations);
/// ```
pub fn pause() -> Paused {
    interface::pause(Of::Thread);
    Paused(PhantomData)
}

/// Pauses recording of the calling thread until it is dropped.
#[must_use = "recording goes on when the guard is dropped"]
#[derive(Debug)]
pub struct Paused(crate::scope::OnThisThread);

impl Drop for Paused {
    fn drop(&mut self) {
        interface::resume(Of::Thread);
    }
}

/// Pauses recording of the whole process until the guard is dropped, on any thread.
pub fn pause_process() -> ProcessPaused {
    interface::pause(Of::Process);
    ProcessPaused(())
}

/// Pauses recording of the whole process until it is dropped.
#[must_use = "recording goes on when the guard is dropped"]
#[derive(Debug)]
pub struct ProcessPaused(());

impl Drop for ProcessPaused {
    fn drop(&mut self) {
        interface::resume(Of::Process);
    }
}

/// The requests whose stacks are recorded. All other requests share one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// All requests.
    All,
    /// Requests of at least this many bytes.
    From(usize),
    /// Requests of less than this many bytes.
    Below(usize),
}

/// Sets for which requests stacks are recorded.
///
/// ```
/// heaptide::threshold(heaptide::Threshold::From(4096));
/// # heaptide::threshold(heaptide::Threshold::All);
/// ```
pub fn threshold(threshold: Threshold) {
    match threshold {
        Threshold::All => interface::threshold(0, false),
        Threshold::From(bytes) => interface::threshold(bytes, false),
        Threshold::Below(bytes) => interface::threshold(bytes, true),
    }
}

/// Resets the counters: reports exclude what was counted so far. Live blocks stay live. Returns
/// whether it succeeded.
pub fn reset() -> bool {
    interface::reset()
}

/// Writes the calling thread's buffered counts, so that readers see them.
pub fn flush() {
    interface::flush();
}

/// Starts recording in a program that is linked with the library and was started without a variable
/// that requests a recording. The recording is temporary: [`write()`] reads it, and it is removed
/// at exit. Call this first in `main`, before other threads exist. Returns whether this process is
/// recorded.
pub fn start() -> bool {
    interface::start()
}

/// Like [`start`], with settings of the recording: variables such as `HEAPTIDE_MODE=trace`,
/// separated by spaces. Variables of the environment take precedence.
pub fn start_with(settings: &str) -> bool {
    interface::start_with(settings)
}

/// Writes the recording of this process so far to a file, which is replaced atomically, or to
/// `stdout` or `stderr`. Returns whether it succeeded.
///
/// Formats are `text` (the report), `json`, `dot` (the tree of scopes), `folded`, `stacks`,
/// `snapshot` (a recording at `path`), `query:CALQL`, any other format of `heaptide export`, and
/// the name of any view of the command. Options of the command may follow. The `heaptide` command
/// does the work, in a child process invisible to the program, while the calling thread waits.
///
/// ```
/// if heaptide::write("stderr", "text --by scope --top 5") {
///     eprintln!("that was the report");
/// }
/// ```
pub fn write(path: impl AsRef<Path>, format: &str) -> bool {
    let path = path.as_ref().as_os_str().as_bytes();
    // Keeps the order of the output: earlier output of the program comes first.
    if path == b"stdout" {
        let _ = std::io::stdout().flush();
    }
    interface::write(path, format)
}

/// Writes to an open file, pipe or socket, at its current position; see [`write()`].
pub fn write_to(file: impl AsFd, format: &str) -> bool {
    interface::write_to(file.as_fd(), format)
}

/// Gives each thread that starts from now on a row of its own, with its id, for up to 2048 rows. By
/// default, threads with one name that never overlap share a row.
pub fn separate_threads() {
    interface::separate_threads();
}
