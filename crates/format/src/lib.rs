//! The profile file, byte by byte: the one definition that the recorder writes by and the reader
//! reads by.
//!
//! ```text
//! offset 0        4096              4096+a            4096+a+b
//! ┌───────────────┬─────────────────┬─────────────────┬──────────
//! │ FileHeader    │ extent (lane 0) │ extent (lane 1) │ …          ← FileHeader.file_end
//! └───────────────┴─────────────────┴─────────────────┴──────────
//!                 │ ExtentHeader 64 │ record │ record │ zeros …
//!                                   └── ExtentHeader.committed ─┘
//! ```
//!
//! - The file is the recorder's memory, mapped shared: it is complete at every instant.
//! - Extents follow each other without gaps, each a multiple of [`PAGE`] long. An extent holds
//!   records of one [`Kind`] and is written by one lane. A record exists once `committed` covers it
//!   (release store).
//! - A process killed between reserving an extent and writing its header leaves zeros there: a
//!   reader goes on at the next page that starts with [`EXTENT_MAGIC`].
//! - Records point at each other by *granule ids*: the file offset divided by the granule of the
//!   record's kind ([`NODE_GRANULE`], [`SITE_GRANULE`], [`STRING_GRANULE`]). Id 0 is "none", for
//!   offset 0 holds the header.
//! - Numbers are little-endian. A larger [`VERSION`] than the reader's is refused. Version 1 had no
//!   scopes, labels, windows, marks and control: their kinds do not occur, their fields are zero.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod accounts;
pub mod attachment;
pub mod caliper;
mod call;
mod control;
mod events;
mod generated;
pub mod launchers;
mod losses;
mod mappings;
mod python;
mod records;
pub mod report;
pub mod settings;
mod shapes;
mod size_classes;
mod threads;
mod unrecorded;
mod word;

pub use accounts::*;
pub use call::*;
pub use control::*;
pub use events::*;
pub use generated::*;
pub use losses::*;
pub use mappings::*;
pub use python::*;
pub use records::{
    ExtentHeader, FileHeader, Interception, Key, Lane, Module, Node, Scope, Shape, Site, Sums,
    TraceStart, UnrecordedProgram, Window,
};
pub use shapes::*;
pub use size_classes::*;
pub use threads::*;
pub use unrecorded::*;

/// Records that several threads or processes change, with an atomic in the place of every number:
/// a shared reference to one is enough.
pub mod shared {
    pub use crate::records::shared::*;
    pub use crate::word::Word;
}

/// The first eight bytes of every profile.
pub const MAGIC: [u8; 8] = *b"HEAPTIDE";
/// The version of the layout described here; a reader refuses larger ones.
pub const VERSION: u32 = 2;
/// Extents start and end at multiples of this, in bytes; also the length reserved for the header.
pub const PAGE: u64 = 4096;
/// The first four bytes of every extent: "HTEX".
pub const EXTENT_MAGIC: u32 = u32::from_le_bytes(*b"HTEX");
/// Bytes of an extent before its first record.
pub const EXTENT_HEADER: u64 = 64;
/// Node ids are file offsets divided by this.
pub const NODE_GRANULE: u64 = 32;
/// Site ids are file offsets divided by this.
pub const SITE_GRANULE: u64 = 64;
/// Ids of [`Scope`], [`Key`] and [`Shape`] records are file offsets divided by this.
pub const KEY_GRANULE: u64 = 64;
/// Ids of [`Name`] records are file offsets divided by this.
pub const NAME_GRANULE: u64 = 32;
/// In [`Site::key`]: the rest is the id of a [`Key`] and not of a [`Node`].
pub const KEY_BIT: u32 = 1 << 31;
/// In [`Site::key`], with [`KEY_BIT`] and not part of the id: the key has a label or is a pool's.
pub const KEY_LABELLED: u32 = 1 << 30;
/// String references are file offsets divided by this; strings start at multiples of it.
pub const STRING_GRANULE: u64 = 8;
/// The longest string the recorder stores, in bytes; longer ones are cut.
pub const STRING_MAX: usize = 64 * 1024;
/// The least limit of a profile, in bytes: less has no room for modules and threads.
pub const PROFILE_LIMIT_MIN: u64 = 1 << 20;
/// Bits of [`Node::key`] that hold the address; the module's index is above.
pub const ADDRESS_BITS: u32 = 48;
/// The file name of a profile ends with this.
pub const PROFILE_SUFFIX: &str = ".profile";
/// A snapshot, a copy of the profile at some moment, is `PID-IMAGE.NUMBER` with this.
pub const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// The copy that figures are counted from after a reset is `PID-IMAGE` with this.
pub const BASELINE_SUFFIX: &str = ".baseline";

/// What an extent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Kind {
    /// [`StringHeader`] and bytes, padded to [`STRING_GRANULE`].
    Strings = 1,
    /// [`Module`] records.
    Modules = 2,
    /// [`Node`] records.
    Nodes = 3,
    /// [`Site`] records; the extent's owner is their lane.
    Sites = 4,
    /// [`Lane`] records.
    Lanes = 5,
    /// [`Sample`] records.
    Timeline = 6,
    /// [`Name`] records.
    Names = 7,
    /// [`Scope`] records; the extent's owner is their lane.
    Scopes = 8,
    /// [`Key`] records; the extent's owner made them.
    Keys = 9,
    /// [`Window`] records.
    Windows = 10,
    /// [`Mark`] records.
    Marks = 11,
    /// A [`TraceStart`] and packed events; the extent's owner is their lane.
    Events = 12,
    /// An [`Account`] and its [`AccountRange`]s.
    Accounts = 13,
    /// [`Site`] records of mappings. They have a kind of their own: readers that do not know
    /// mappings skip them, and no figure of the heap contains them.
    MappedSites = 14,
    /// [`Lane`] records that count the mappings of the lane with the same index.
    MappedLanes = 15,
    /// [`Sample`] records of mapped bytes.
    MappedTimeline = 16,
    /// [`PythonLine`] records.
    PythonLines = 17,
    /// [`FormerThread`] records.
    FormerThreads = 18,
    /// [`Shape`] records.
    Shapes = 19,
}

impl Kind {
    /// The kind with this number, if this version knows it. A reader skips extents of unknown
    /// kinds.
    pub fn from_number(n: u16) -> Option<Kind> {
        Some(match n {
            1 => Kind::Strings,
            2 => Kind::Modules,
            3 => Kind::Nodes,
            4 => Kind::Sites,
            5 => Kind::Lanes,
            6 => Kind::Timeline,
            7 => Kind::Names,
            8 => Kind::Scopes,
            9 => Kind::Keys,
            10 => Kind::Windows,
            11 => Kind::Marks,
            12 => Kind::Events,
            13 => Kind::Accounts,
            14 => Kind::MappedSites,
            15 => Kind::MappedLanes,
            16 => Kind::MappedTimeline,
            17 => Kind::PythonLines,
            18 => Kind::FormerThreads,
            19 => Kind::Shapes,
            _ => return None,
        })
    }
}

/// How much is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mode {
    /// Totals, lanes and histograms; no stacks, no shadow of live blocks.
    Counters = 1,
    /// A site for each distinct stack, scope path, label and lane.
    Stacks = 2,
    /// The same without stacks: a site for each distinct scope path, label and lane.
    Scopes = 3,
}

/// How the process image ended, as far as the image itself could tell ([`FileHeader::end_kind`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum End {
    /// Nothing was noted: still running, killed, or replaced by exec.
    Unknown = 0,
    /// `exit`, `_exit`, `quick_exit` or a return from `main`; `end_code` is the status.
    Exited = 1,
    /// An exec call was made. Written before the call, taken back if it returns.
    Exec = 2,
    /// A command that had attached to the process detached; the process continued unrecorded.
    Detached = 3,
}

/// Bytes that one thread allocates before it publishes them: with several threads the peak is exact
/// within as many of these as threads ran at once.
pub const PEAK_BATCH: u64 = 32 << 10;

/// The head of a stored string; `length` bytes follow, padded with zeros to [`STRING_GRANULE`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct StringHeader {
    /// Bytes of the string.
    pub length: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// What a person called a place or a thing: an attribute and its value.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Name {
    /// String: the attribute, `region` if none was given, `label` and `pool` for those.
    pub attribute: u32,
    /// 0: `value` is a string; 1: it is a signed integer.
    pub kind: u32,
    /// String, or the integer's bits.
    pub value: u64,
    /// Writer's own: the hash of all that.
    pub hash: u64,
    /// Writer's own.
    pub reserved: u64,
}

/// [`Node::flags`]: the address is the instruction itself and not the one after a call.
pub const NODE_EXACT_PC: u32 = 1;

/// Pseudo addresses of frames that stand for frames left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Gap {
    /// Outer frames were cut: the stack was deeper than the limit.
    TooDeep = 1,
    /// Inner frames were cut: no room to store them.
    NoRoom = 2,
    /// The request was below the stack threshold.
    BelowThreshold = 3,
    /// The request was not below the stack threshold, and stacks are for those that are.
    AboveThreshold = 4,
    /// The stack was not stored: the profile had reached its limit.
    ProfileLimit = 5,
}

/// [`Key::flags`]: memory that is not from the allocator: a mapping, a static array. In no total.
pub const KEY_OUTSIDE: u32 = 1;
/// Blocks of a pool. Their bytes are taken off the site of the chunk they lie in, so live bytes are
/// counted once; their events are in no total and no histogram.
pub const KEY_POOL_BLOCK: u32 = 2;
/// Chunks of a pool; `label` is the pool's name, what is live here is idle pool space.
pub const KEY_POOL_CHUNK: u32 = 4;
/// `size` is a dimension.
pub const KEY_SIZED: u32 = 8;
/// A mapping: `size` is a packed [`MappingKey`]. Only keys of [`Kind::MappedSites`] have it.
pub const KEY_MAPPING: u32 = 16;

/// Something that was said or done at a moment.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Mark {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// String: its name, or 0.
    pub name: u32,
    /// A [`MarkKind`].
    pub kind: u32,
    /// The lane it was set on, or `u32::MAX`.
    pub lane: u32,
    /// Snapshots and resets: their number, from 1.
    pub number: u32,
    /// Usable bytes live.
    pub live_bytes: u64,
}

/// What a [`Mark`] stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MarkKind {
    /// A name that somebody put there.
    Mark = 1,
    /// A snapshot was taken.
    Snapshot = 2,
    /// Figures count from here.
    Reset = 3,
    /// Recording went on, by the program.
    On = 4,
    /// Recording was turned off, by the program.
    Off = 5,
}

/// The process at one moment.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Sample {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Usable bytes live.
    pub live_bytes: u64,
    /// The peak so far.
    pub peak_bytes: u64,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Usable bytes allocated so far.
    pub usable_bytes: u64,
    /// Resident bytes of the process (`/proc/self/statm`), 0 if it could not be read.
    pub resident_bytes: u64,
    /// Virtual bytes of the process, the recorder's own reservation taken off.
    pub virtual_bytes: u64,
}

// A record's size is part of the format: a change here is a new VERSION.
const _: () = assert!(size_of::<FileHeader>() <= PAGE as usize);
const _: () = assert!(size_of::<ExtentHeader>() == EXTENT_HEADER as usize);
const _: () = assert!(size_of::<Node>() == 32);
const _: () = assert!(size_of::<Site>() == 128);
const _: () = assert!(size_of::<Module>() == 64);
const _: () = assert!(size_of::<Lane>() == 1920);
const _: () = assert!(size_of::<Sample>() == 64);
const _: () = assert!(size_of::<Name>() == NAME_GRANULE as usize);
const _: () = assert!(size_of::<Scope>() == KEY_GRANULE as usize);
const _: () = assert!(size_of::<Key>() == KEY_GRANULE as usize);
const _: () = assert!(size_of::<Shape>() == KEY_GRANULE as usize);
const _: () = assert!(size_of::<Window>() == 192);
const _: () = assert!(size_of::<Mark>() == 32);
const _: () = assert!(size_of::<TraceStart>() == 64);
const _: () = assert!(size_of::<UnrecordedProgram>() == 128);
const _: () = assert!(size_of::<Interception>() == 192);
const _: () = assert!(size_of::<PythonLine>() == PYTHON_LINE_GRANULE as usize);
