//! Control: whether and what is recorded.

use crate::interface::{self, Of};
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the recorder is in this process.
///
/// ```
/// if !heaptide::loaded() {
///     eprintln!("start this program with `heaptide run` to see what it allocates");
/// }
/// ```
pub fn loaded() -> bool {
    interface::loaded()
}

/// Whether this process is recorded: the recorder is there, in a mode that records, and could make
/// its profile.
pub fn recording() -> bool {
    interface::recording()
}

/// Whether allocations of the calling thread are recorded at this moment.
pub fn thread_active() -> bool {
    interface::active(Of::Thread)
}

/// Whether allocations of the process are recorded at this moment.
pub fn process_active() -> bool {
    interface::active(Of::Process)
}

/// Turns recording on, for the whole process: what `heaptide ctl on` does.
pub fn turn_on() {
    interface::turn(true);
}

/// Turns recording off, for the whole process: what is allocated meanwhile is not seen. Blocks
/// that are recorded are still noticed when they are freed.
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

/// The calling thread is not recorded until this is dropped.
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

/// The process is not recorded until this is dropped.
#[must_use = "recording goes on when the guard is dropped"]
#[derive(Debug)]
pub struct ProcessPaused(());

impl Drop for ProcessPaused {
    fn drop(&mut self) {
        interface::resume(Of::Process);
    }
}

/// For which requests stacks are recorded; the others share one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// For all.
    All,
    /// For requests of so many bytes and more.
    From(usize),
    /// For requests of fewer bytes than this.
    Below(usize),
}

/// Says for which requests stacks are recorded.
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

/// Begins anew: what was counted until now is left out of reports. What is live stays live.
/// Returns whether it could be done.
pub fn reset() -> bool {
    interface::reset()
}

/// Publishes what the calling thread counted and has not shown to readers yet.
pub fn flush() {
    interface::flush();
}

/// Starts recording in a program that is linked with the library and was started without a variable
/// that asks for a recording. The recording is temporary: [`write()`] writes from it, and it is
/// removed at exit. To be called first in `main`: not while there are several threads. Returns
/// whether this process is recorded.
pub fn start() -> bool {
    interface::start()
}

/// Writes what was recorded of this process so far to a file, which is replaced as a whole, or to
/// `stdout` or `stderr`. Returns whether that could be done.
///
/// Formats are `text` (the report), `json`, `dot` (the tree of scopes), `folded`, `stacks`,
/// `snapshot` (a recording, which the path names), `query:CALQL`, any other format of `heaptide
/// export`, and views of the command by their name; options of the command may follow. The
/// `heaptide` command writes it, in a child that the program does not notice, while the calling
/// thread waits.
///
/// ```
/// if heaptide::write("stderr", "text --by scope --top 5") {
///     eprintln!("that was the report");
/// }
/// ```
pub fn write(path: impl AsRef<Path>, format: &str) -> bool {
    let path = path.as_ref().as_os_str().as_bytes();
    // What the program has printed before comes first.
    if path == b"stdout" {
        let _ = std::io::stdout().flush();
    }
    interface::write(path, format)
}

/// The same to an open file, pipe or socket, where it stands.
pub fn write_to(file: impl AsFd, format: &str) -> bool {
    interface::write_to(file.as_fd(), format)
}

/// From now on each thread that begins has a row of its own, with its id; else threads of one name
/// that run one after the other share a row. Up to 2048 rows.
pub fn separate_threads() {
    interface::separate_threads();
}
