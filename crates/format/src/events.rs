//! Traces: every event of a process, in extents of its profile and in a separate file next to it.
//!
//! ```text
//! extent of Kind::Events, one lane's:   ExtentHeader 64 │ TraceStart 64 │ packed records …
//! PID-IMAGE.trace, extents moved out:   TraceHead 16 │ TraceChunk 40 │ zstd │ TraceChunk 40 │ …
//! ```
//!
//! A file whose oldest chunks were dropped has version 2 and a [`TraceCut`] behind its head.
//!
//! - What is behind the extent's header, `committed` bytes of it, decodes without any other extent:
//!   the crate `heaptide-trace` has the form of the records.
//! - The supervisor of the process moves full extents to the file. `state` of such an extent then
//!   shows this, and a lane reuses the extent under another number.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The suffix of the file with the moved extents of a profile: `PID-IMAGE` plus this.
pub const TRACE_SUFFIX: &str = ".trace";
/// The first eight bytes of such a file.
pub const TRACE_MAGIC: [u8; 8] = *b"HEAPTRCE";
/// The version of the file's layout: 1, or of one with a [`TraceCut`] this.
pub const TRACE_VERSION: u32 = 2;
/// The first four bytes of every chunk of that file: "HTCH".
pub const TRACE_CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"HTCH");

/// [`crate::FileHeader::trace`]: every event is recorded.
pub const TRACE_ON: u32 = 1;
/// Events of frees have stacks.
pub const TRACE_FREE_STACKS: u32 = 2;
/// Each start and end of a scope has a record, at the time when it happens.
pub const TRACE_SCOPES: u32 = 4;
/// Frees have the site and the usable size of their block: those of blocks whose allocation was
/// dropped count all the same.
pub const TRACE_ENDS: u32 = 8;

/// [`crate::TraceStart::state`]: the lane writes to it.
pub const TRACE_WRITING: u32 = 0;
/// It is full, and the lane writes to another extent.
pub const TRACE_FULL: u32 = 1;
/// Its contents were moved out, so it may be reused.
pub const TRACE_MOVED: u32 = 2;

/// The lane of an extent with frees that no lane counts: those inside of the recorder.
pub const TRACE_NOBODY: u32 = 0x7fff_ffff;

/// The longest extent of events, including its header.
pub const TRACE_EXTENT_MAX: u64 = 256 << 10;

/// The header of a file of moved extents.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct TraceHead {
    /// [`TRACE_MAGIC`].
    pub magic: [u8; 8],
    /// 1, or [`TRACE_VERSION`].
    pub version: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// What follows the head of a file whose oldest chunks were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct TraceCut {
    /// Events before this moment are not whole, on the clock of records: those of some lanes were
    /// dropped.
    pub ticks: u64,
    /// The same in nanoseconds from the start of the process.
    pub time_ns: u64,
    /// Chunks that were dropped.
    pub chunks: u64,
    /// Bytes that they took.
    pub bytes: u64,
}

/// The header of a chunk: the compressed contents of one extent.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct TraceChunk {
    /// [`TRACE_CHUNK_MAGIC`].
    pub magic: u32,
    /// The lane that wrote it, by index.
    pub lane: u32,
    /// [`crate::TraceStart::number`].
    pub number: u32,
    /// Bytes of the uncompressed contents.
    pub raw_length: u32,
    /// Bytes that follow: a zstd frame.
    pub packed_length: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// [`crate::TraceStart::ticks`].
    pub first_ticks: u64,
    /// [`crate::TraceStart::last_ticks`].
    pub last_ticks: u64,
}

const _: () = assert!(size_of::<TraceHead>() == 16);
const _: () = assert!(size_of::<TraceCut>() == 32);
const _: () = assert!(size_of::<TraceChunk>() == 40);
