//! The words by which the recorder of a running program is controlled, by the program and from
//! outside.
//!
//! `control` is the recorder's; the four bytes after it are stored one by one, by commands and by
//! the recorder, and never read, changed and written back. Every event looks at the eight as one.

/// Bytes of a name in a request from outside.
pub const REQUEST_TEXT: usize = 256;

/// [`crate::FileHeader::control`]: the program turned recording off.
pub const CONTROL_OFF: u32 = 1;
/// There are monitors.
pub const CONTROL_MONITORS: u32 = 2;
/// A stack threshold is set.
pub const CONTROL_THRESHOLD: u32 = 4;
/// With a threshold: stacks are for the requests below it.
pub const CONTROL_FEWER: u32 = 8;
/// Sites are told apart by the size requested.
pub const CONTROL_BY_SIZE: u32 = 16;
/// Snapshots are taken at an interval, so each event looks at the clock.
pub const CONTROL_TIMED: u32 = 32;
/// Each kind of function called has sites of its own.
pub const CONTROL_BY_CALL: u32 = 64;
/// One pause of the whole process by the program; they nest.
pub const CONTROL_PAUSE: u32 = 1 << 16;
/// [`crate::FileHeader::command_off`], in the four bytes after `control` read as one word.
pub const COMMAND_OFF: u32 = 1;
/// [`crate::FileHeader::command_request`], in the same word.
pub const COMMAND_REQUEST: u32 = 1 << 8;

/// In [`crate::FileHeader::request_value`] of a threshold: stacks are for requests below it.
pub const REQUEST_BELOW: u64 = 1 << 63;

/// What a command asks a running program for; it is answered at the next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Request {
    /// Put a mark on the timeline.
    Mark = 1,
    /// Note a snapshot that the command took.
    Snapshot = 2,
    /// Count from here.
    Reset = 3,
    /// Publish what threads hold back, and take a sample.
    Flush = 4,
    /// Set the stack threshold; 0 for none.
    Threshold = 5,
    /// Only in the head of a snapshot: nobody asked for this one, it was due at an interval or by a
    /// trigger.
    AutomaticSnapshot = 6,
}
