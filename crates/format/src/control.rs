//! The words with which the program and commands control the recorder of a running program.
//!
//! Only the recorder writes `control`. The four bytes after it are stored individually, by commands
//! and by the recorder, and never by read-modify-write. Every event reads the eight bytes as one
//! word.

/// The most bytes of a name in a request.
pub const REQUEST_TEXT: usize = 256;

/// [`crate::FileHeader::control`]: the program turned recording off.
pub const CONTROL_OFF: u32 = 1;
/// Monitors are registered.
pub const CONTROL_MONITORS: u32 = 2;
/// A stack threshold is set.
pub const CONTROL_THRESHOLD: u32 = 4;
/// With a threshold: only requests below it have stacks.
pub const CONTROL_FEWER: u32 = 8;
/// Each requested size has sites of its own.
pub const CONTROL_BY_SIZE: u32 = 16;
/// Snapshots are taken at an interval, so each event reads the clock.
pub const CONTROL_TIMED: u32 = 32;
/// Each kind of function called has sites of its own.
pub const CONTROL_BY_CALL: u32 = 64;
/// One pause of the whole process by the program; pauses nest, so this is a counter.
pub const CONTROL_PAUSE: u32 = 1 << 16;
/// [`crate::FileHeader::command_off`], in the four bytes after `control` read as one word.
pub const COMMAND_OFF: u32 = 1;
/// [`crate::FileHeader::command_request`], in the same word.
pub const COMMAND_REQUEST: u32 = 1 << 8;

/// [`crate::FileHeader::search`]: the image waits.
pub const SEARCH_AWAITED: u32 = 1;
/// [`crate::FileHeader::search`]: the command has read the memory.
pub const SEARCH_DONE: u32 = 2;
/// How long an image waits for a sign of life of the command, in nanoseconds.
pub const SEARCH_PATIENCE_NS: u64 = 5_000_000_000;

/// In [`crate::FileHeader::request_value`] of a threshold: only requests below it have stacks.
pub const REQUEST_BELOW: u64 = 1 << 63;

/// A command's request to a running program; it is handled at the next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Request {
    /// Record a mark.
    Mark = 1,
    /// Record a snapshot that the command took.
    Snapshot = 2,
    /// Reset the counters.
    Reset = 3,
    /// Publish the buffered counts of threads, and take a sample.
    Flush = 4,
    /// Set the stack threshold; 0 for none.
    Threshold = 5,
    /// Only in the header of a snapshot: it was not requested, but taken at an interval or by a
    /// trigger.
    AutomaticSnapshot = 6,
    /// Record that a command turned recording on (1) or off (0).
    Turned = 7,
}
