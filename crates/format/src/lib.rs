//! The profile file, byte by byte: the single definition for the recorder, which writes it, and for
//! readers.
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
//! - The file is the recorder's memory, mapped shared, so it is complete at all times.
//! - Extents follow each other without gaps; their lengths are multiples of [`PAGE`]. An extent
//!   holds records of one [`Kind`] and is written by one lane. A record exists once `committed`
//!   covers it (release store).
//! - A process killed between reserving an extent and writing its header leaves zeros there: a
//!   reader continues at the next page that starts with [`EXTENT_MAGIC`].
//! - Records refer to each other by *granule ids*: the file offset divided by the granule of the
//!   record's kind ([`NODE_GRANULE`], [`SITE_GRANULE`], [`STRING_GRANULE`]). Id 0 is "none",
//!   because offset 0 is the header.
//! - Numbers are little-endian. A reader rejects a larger [`VERSION`] than its own. Version 1 had
//!   no scopes, labels, windows, marks and control: their kinds do not occur, and their fields are
//!   zero.

#![no_std]
#![forbid(unsafe_code)]

use core::mem::offset_of;
#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod accounts;
pub mod attachment;
pub mod caliper;
mod call;
mod control;
mod device;
mod events;
mod generated;
pub mod launchers;
pub mod live_blocks;
mod losses;
mod mappings;
mod python;
mod records;
pub mod report;
mod sampling;
pub mod settings;
mod shapes;
mod size_classes;
mod threads;
mod unrecorded;
mod word;

pub use accounts::*;
pub use call::*;
pub use control::*;
pub use device::*;
pub use events::*;
pub use generated::*;
pub use losses::*;
pub use mappings::*;
pub use python::*;
pub use records::{
    ExtentHeader, FileHeader, Interception, Key, Lane, Module, Node, SampledSite, Scope, Shape,
    Site, Span, Sums, TraceStart, UnrecordedProgram, Window,
};
pub use sampling::*;
pub use shapes::*;
pub use size_classes::*;
pub use threads::*;
pub use unrecorded::*;

/// Records that several threads or processes change. Each number is an atomic, so a shared
/// reference suffices.
pub mod shared {
    pub use crate::records::shared::*;
    pub use crate::word::Word;
}

/// The first eight bytes of every profile.
pub const MAGIC: [u8; 8] = *b"HEAPTIDE";
/// The version of the layout described here; readers reject larger ones.
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
/// In [`Site::key`]: the other bits are the id of a [`Key`] instead of a [`Node`].
pub const KEY_BIT: u32 = 1 << 31;
/// In [`Site::key`], with [`KEY_BIT`] and not part of the id: the key has a label or belongs to a
/// pool.
pub const KEY_LABELLED: u32 = 1 << 30;
/// String references are file offsets divided by this; strings start at multiples of it.
pub const STRING_GRANULE: u64 = 8;
/// The longest string that the recorder stores, in bytes; longer ones are truncated.
pub const STRING_MAX: usize = 64 * 1024;
/// The least limit of a profile, in bytes: less has no room for modules and threads.
pub const PROFILE_LIMIT_MIN: u64 = 1 << 20;
/// Number of bits of [`Node::key`] for the address; the module's index is above.
pub const ADDRESS_BITS: u32 = 48;
/// The suffix of a profile's file name.
pub const PROFILE_SUFFIX: &str = ".profile";
/// The suffix of a snapshot, a copy of the profile at one time: `PID-IMAGE.NUMBER` plus this.
pub const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// The suffix of the copy that counters are relative to after a reset: `PID-IMAGE` plus this.
pub const BASELINE_SUFFIX: &str = ".baseline";
/// Suffix of the copy of a profile that was written when its Python interpreter began to end.
pub const HELD_SUFFIX: &str = ".held";
/// Suffix of the file with what a search of the process at its end found: `PID-IMAGE` plus this.
pub const RETAINED_SUFFIX: &str = ".retained";

/// The kind of records in an extent.
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
    /// [`Key`] records; the extent's owner created them.
    Keys = 9,
    /// [`Window`] records.
    Windows = 10,
    /// [`Mark`] records.
    Marks = 11,
    /// A [`TraceStart`] and packed events; the extent's owner is their lane.
    Events = 12,
    /// An [`Account`] and its [`AccountRange`]s.
    Accounts = 13,
    /// [`Site`] records of mappings. A separate kind, so that readers that do not know mappings
    /// skip them, and no counter of the heap includes them.
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
    /// [`SampledSite`] records; the extent's owner is their lane. A separate kind, so that readers
    /// that do not know its weighted counters skip them instead of weighting them again.
    SampledSites = 20,
    /// [`Span`] records. A separate kind, so that readers that do not know them see the samples.
    Spans = 21,
    /// [`MappedChange`] records. A separate kind, so that readers that do not know them see the
    /// counters and samples of mappings.
    MappedChanges = 22,
    /// [`Site`] records of device memory.
    DeviceSites = 23,
    /// [`Lane`] records that count the device memory of the lane with the same index.
    DeviceLanes = 24,
    /// [`Sample`] records of bytes of device memory.
    DeviceTimeline = 25,
    /// [`MappedChange`] records of device memory.
    DeviceChanges = 26,
}

impl Kind {
    /// Returns the kind with this number, if this version knows it. Readers skip extents of unknown
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
            20 => Kind::SampledSites,
            21 => Kind::Spans,
            22 => Kind::MappedChanges,
            23 => Kind::DeviceSites,
            24 => Kind::DeviceLanes,
            25 => Kind::DeviceTimeline,
            26 => Kind::DeviceChanges,
            _ => return None,
        })
    }
}

/// The level of detail of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mode {
    /// Totals, lanes and histograms; no stacks, no shadow of live blocks.
    Counters = 1,
    /// A site for each distinct stack, scope path, label and lane.
    Stacks = 2,
    /// Like `Stacks`, without stacks: a site for each distinct scope path, label and lane.
    Scopes = 3,
    /// What counters have, exactly; and sites of blocks that are chosen at random, each byte with
    /// the same probability, by stack, scope path, label and lane
    /// ([`FileHeader::sample_mean_bytes`]).
    Sampled = 4,
}

impl Mode {
    /// The mode with this number, if this version knows it.
    pub fn from_number(n: u32) -> Option<Mode> {
        [Mode::Counters, Mode::Stacks, Mode::Scopes, Mode::Sampled]
            .into_iter()
            .find(|&mode| mode as u32 == n)
    }

    /// Whether stacks are recorded.
    pub const fn has_stacks(self) -> bool {
        matches!(self, Mode::Stacks | Mode::Sampled)
    }

    /// Whether there are sites, of all blocks or of some.
    pub const fn has_sites(self) -> bool {
        !matches!(self, Mode::Counters)
    }

    /// Whether lanes alone count all blocks: sites have none of them, or some.
    pub const fn is_by_lane(self) -> bool {
        matches!(self, Mode::Counters | Mode::Sampled)
    }
}

/// How the process image ended, as far as the image itself could record it
/// ([`FileHeader::end_kind`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum End {
    /// Nothing was recorded: still running, killed, or replaced by exec.
    Unknown = 0,
    /// `exit`, `_exit`, `quick_exit` or a return from `main`; `end_code` is the status.
    Exited = 1,
    /// An exec call was made. Written before the call, and reverted if it returns.
    Exec = 2,
    /// A command that had attached to the process detached; the process continued unrecorded.
    Detached = 3,
}

/// Bytes that a thread may allocate before it publishes them. With several threads the peak is
/// exact within this many bytes per thread.
pub const PEAK_BATCH: u64 = 32 << 10;

/// The header of a stored string, followed by `length` bytes, padded with zeros to
/// [`STRING_GRANULE`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct StringHeader {
    /// Bytes of the string.
    pub length: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// A user-defined name: an attribute and its value.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Name {
    /// String: the attribute; `region` if none was given, `label` for labels, `pool` for pools.
    pub attribute: u32,
    /// 0: `value` is a string; 1: it is a signed integer.
    pub kind: u32,
    /// String, or the integer's bits.
    pub value: u64,
    /// Used by the writer only: the hash of the fields above.
    pub hash: u64,
    /// Used by the writer only.
    pub reserved: u64,
}

/// [`Node::flags`]: the address is the instruction itself, not the one after a call.
pub const NODE_EXACT_PC: u32 = 1;

/// Pseudo addresses of frames that stand for omitted frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Gap {
    /// Outer frames were truncated: the stack was deeper than the limit.
    TooDeep = 1,
    /// Inner frames were truncated: there was no space to store them.
    NoRoom = 2,
    /// The request was below the stack threshold.
    BelowThreshold = 3,
    /// The request was not below the stack threshold, and only requests below it have stacks.
    AboveThreshold = 4,
    /// The stack was not stored: the profile had reached its limit.
    ProfileLimit = 5,
}

/// [`Key::flags`]: memory that is not from the allocator, such as a mapping or a static array. Not
/// part of any total.
pub const KEY_OUTSIDE: u32 = 1;
/// Blocks of a pool. Their bytes are subtracted from the site of the chunk that contains them, so
/// live bytes are counted once; their events are not part of any total or histogram.
pub const KEY_POOL_BLOCK: u32 = 2;
/// Chunks of a pool; `label` is the pool's name. Live bytes here are idle pool space.
pub const KEY_POOL_CHUNK: u32 = 4;
/// `size` is a dimension.
pub const KEY_SIZED: u32 = 8;
/// A mapping: `size` is a packed [`MappingKey`]. Only for keys of [`Kind::MappedSites`].
pub const KEY_MAPPING: u32 = 16;
/// Device memory: `size` is a packed [`DeviceKey`]. Only for keys of [`Kind::DeviceSites`], which
/// can have [`KEY_POOL_BLOCK`] or [`KEY_POOL_CHUNK`], too.
pub const KEY_DEVICE: u32 = 256;

/// A named event at a point in time.
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
    /// The number, from 1: of snapshots and resets, and of marks of [`MarkKind::Mark`], to which
    /// the trace refers.
    pub number: u32,
    /// Live usable bytes.
    pub live_bytes: u64,
}

/// The meaning of a [`Mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MarkKind {
    /// A mark set by the program or a command.
    Mark = 1,
    /// A snapshot was taken.
    Snapshot = 2,
    /// Counters are relative to this time.
    Reset = 3,
    /// The program turned recording on.
    On = 4,
    /// The program turned recording off.
    Off = 5,
}

/// The process at one time.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Sample {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Live usable bytes.
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
    /// Virtual bytes of the process, without the recorder's own reservation.
    pub virtual_bytes: u64,
}

/// A change of the mapped bytes of a site. Changes are stored in their order.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct MappedChange {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// [`FileHeader::peak_bytes`] at this time: lower than the final value if the change happened
    /// before the heap's peak.
    pub heap_peak_bytes: u64,
    /// Bytes that were mapped; minus those that were unmapped, in two's complement.
    pub bytes: u64,
    /// The site of the mapping, in an extent of [`Kind::MappedSites`].
    pub site: u32,
    /// Mappings that began; minus those of which the last part was unmapped, in two's complement.
    pub mappings: u32,
}

// A record's size is part of the format: a change here is a new VERSION.
const _: () = assert!(size_of::<FileHeader>() <= PAGE as usize);
const _: () = assert!(size_of::<ExtentHeader>() == EXTENT_HEADER as usize);
const _: () = assert!(size_of::<Node>() == 32);
const _: () = assert!(size_of::<Site>() == 128);
// A sampled site takes as much room as a site, and shares the fields that no weight applies to.
const _: () = assert!(size_of::<SampledSite>() == size_of::<Site>());
const _: () = assert!(offset_of!(SampledSite, key) == offset_of!(Site, key));
const _: () = assert!(offset_of!(SampledSite, failed) == offset_of!(Site, failed));
const _: () = assert!(size_of::<Module>() == 64);
const _: () = assert!(size_of::<Lane>() == 1920);
const _: () = assert!(size_of::<Sample>() == 64);
const _: () = assert!(size_of::<Span>() == 48);
const _: () = assert!(size_of::<MappedChange>() == 32);
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
