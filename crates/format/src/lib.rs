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

mod control;
mod events;
mod unrecorded;

pub use control::*;
pub use events::*;
pub use unrecorded::*;

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
/// Ids of [`Scope`] and [`Key`] records are file offsets divided by this.
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
/// Size classes of a histogram: class `b` counts sizes of `b` significant bits, class 0 the size 0.
pub const SIZE_CLASSES: usize = 65;
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
}

/// What was lost, and why: the index into [`FileHeader::losses`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Loss {
    /// Events of a thread that could get no lane; they are in no total.
    NoLane = 0,
    /// Allocations that could get no shadow memory; they are in no total.
    NoShadow = 1,
    /// Allocations that could get no site and were charged to their lane without a stack.
    NoSite = 2,
    /// Stacks cut because a node could not be stored.
    NoNode = 3,
    /// Stacks deeper than the limit, cut at their outer end.
    TooDeep = 4,
    /// Modules that could not be listed (more than the table holds).
    NoModule = 5,
    /// Stacks that ended at code without usable unwind information.
    NoRule = 6,
    /// Stacks that ended at a word outside the stack's memory.
    OutsideStack = 7,
    /// Times that the file could not grow: disk full, size limit, or the file was out of reach.
    NoSpace = 8,
    /// Timeline samples, marks and windows that could not be stored.
    NoSample = 9,
    /// Scopes that could not be entered: no room for their name or path. What is allocated in them
    /// is charged to the scope around.
    NoScope = 10,
    /// Ends of scopes with another name than the innermost one's.
    ScopeMismatch = 11,
    /// Labels and pool blocks that could not be stored, or lie on another one.
    NoRegion = 12,
    /// Snapshots and resets that could not be written.
    NoSnapshot = 13,
    /// Frees inside the recorder that are not in the trace: their block ends unseen there.
    NoEvent = 14,
}

/// Entries of [`FileHeader::losses`]; more than there are kinds, for later versions.
pub const LOSSES: usize = 16;

/// A short name and an explanation for each [`Loss`], in order of number.
pub const LOSS_NAMES: [(&str, &str); 15] = [
    ("no_lane", "events of threads without a slot, too many at once (not in the totals)"),
    ("no_shadow", "allocations without shadow memory (not in the totals)"),
    ("no_site", "allocations recorded without their stack: no space for a site"),
    ("no_node", "stacks truncated: no space for a frame"),
    ("too_deep", "stacks deeper than the limit, truncated at the outer end"),
    ("no_module", "modules not listed: table full"),
    ("no_rule", "stacks that end at code without unwind information"),
    ("outside_stack", "stacks that end at a word outside the stack"),
    (
        "no_space",
        "times the profile could not grow (disk full, file size limit, file inaccessible)",
    ),
    ("no_sample", "timeline samples, marks and windows not stored"),
    ("no_scope", "scopes not entered: no space for their path"),
    ("scope_mismatch", "ends of scopes other than the innermost one (repaired)"),
    ("no_region", "labels and pool blocks that could not be stored"),
    ("no_snapshot", "snapshots and resets that could not be written"),
    ("no_event", "frees counted but missing from the trace"),
];

/// The head of the file: who wrote it, process-wide figures, and where the extents end.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// A [`Mode`].
    pub mode: u32,
    /// The process.
    pub pid: u32,
    /// Its parent at the start of the recording.
    pub ppid: u32,
    /// The number of this image among those of the same pid in the recording, from 0. They may be
    /// of several processes: see `process_start_ticks`.
    pub image: u32,
    /// 1 if the image began as a fork of a recorded one (and not by exec).
    pub forked: u32,
    /// Wall clock at the start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// Monotonic clock at the start, nanoseconds; all other times count from it.
    pub start_monotonic_ns: u64,
    /// String: the program's file, absolute.
    pub program: u32,
    /// String: the arguments, each ended by a zero byte.
    pub command: u32,
    /// String: the host's name.
    pub host: u32,
    /// The unwinder's limit of frames a stack.
    pub max_depth: u32,
    /// Bytes of the file in use; extents end here. Atomic.
    pub file_end: u64,
    /// Highest live usable bytes, process-wide, within `peak_bound_bytes`.
    pub peak_bytes: u64,
    /// When that was reached, nanoseconds from the start, to a millisecond.
    pub peak_time_ns: u64,
    /// `peak_bytes` and `at_peak` figures are this exact: 0 with one thread, threads × batch
    /// otherwise.
    pub peak_bound_bytes: u64,
    /// The number of the current peak: see [`Site`].
    pub epoch: u32,
    /// An [`End`].
    pub end_kind: u32,
    /// The exit status for [`End::Exited`].
    pub end_code: i32,
    /// Lanes that had a thread at the same time, at most.
    pub lanes_at_once: u32,
    /// When the end was noted, nanoseconds from the start; 0 if it was not.
    pub end_time_ns: u64,
    /// The last moment at which the recorder looked at the clock, nanoseconds from the start: at
    /// each new peak, sample, snapshot and end of a thread. A lower bound of the duration of an
    /// image whose end was not noted.
    pub last_seen_ns: u64,
    /// Usable bytes allocated minus freed, published by threads in batches; readers sum lanes
    /// instead.
    pub published_live: i64,
    /// Frees of blocks the recorder never saw allocated (before it was loaded, before a fork,
    /// foreign, double).
    pub unmatched_frees: u64,
    /// Unwinder: frames stepped by a rule.
    pub frames_stepped: u64,
    /// Unwinder: rules evaluated from unwind tables.
    pub rules_evaluated: u64,
    /// Counts by [`Loss`].
    pub losses: [u64; LOSSES],
    /// No longer written.
    pub stamped_peak: u64,
    /// Timeline: 1 while a thread writes a sample; writer's own.
    pub timeline_lock: u32,
    /// Resets so far: figures count from the newest baseline.
    pub resets: u32,
    /// What every event looks at, with the four bytes after it: 0, or some of the `CONTROL_` bits,
    /// and pauses by the program from [`CONTROL_PAUSE`] up. Written by the recorder only. Atomic.
    pub control: u32,
    /// 1: recording is off, by command. Written whole, the last wins: by commands, one at a time
    /// (they lock the file), and by a program that turns recording on.
    pub command_off: u8,
    /// 1: a request waits. Set by commands; cleared by the recorder, and by the command whose
    /// request is answered.
    pub command_request: u8,
    /// 0.
    pub command_unused: [u8; 2],
    /// Requests below this many bytes (from this many on, with [`CONTROL_FEWER`]) get no stack.
    pub threshold_bytes: u64,
    /// The number of the last request from outside, raised once the fields below are set and before
    /// `command_request` is.
    pub request: u32,
    /// The number of the request last answered; written by the recorder.
    pub answered: u32,
    /// A [`Request`].
    pub request_kind: u32,
    /// Bytes of `request_text`.
    pub request_length: u32,
    /// When it was made, nanoseconds from the start.
    pub request_time_ns: u64,
    /// A threshold in bytes (and 1 in the top bit for "below"), the number of a snapshot.
    pub request_value: u64,
    /// The mark's or snapshot's name.
    pub request_text: [u8; REQUEST_TEXT],
    /// String: the name of the first scope ended out of turn; 0 if none was.
    pub mismatch_end: u32,
    /// Scope: the path that was open then.
    pub mismatch_open: u32,
    /// When the last reset was, nanoseconds from the start.
    pub reset_time_ns: u64,
    /// The process's number among those of a parallel job, plus one; 0 if nobody told one.
    pub rank: u32,
    /// How many processes the job has; 0 if nobody told.
    pub ranks: u32,
    /// String: the job's name; 0 if nobody told one.
    pub job: u32,
    /// Some of the `TRACE_` bits; 0 without a trace.
    pub trace: u32,
    /// The bytes that a trace may take, `trace_elsewhere` included; 0 for no bound.
    pub trace_limit: u64,
    /// Bytes of the recording's traces that are not in this file; written by who moves them.
    pub trace_elsewhere: u64,
    /// Bytes of this file's extents of events.
    pub trace_bytes: u64,
    /// When the trace ended for want of room, nanoseconds from the start; 0 if it did not.
    pub trace_stopped_ns: u64,
    /// When the process began, in clock ticks since boot (`/proc/PID/stat`, field 22); 0: unknown.
    /// With `pid` and `pid_namespace` it identifies a process across its execs.
    pub process_start_ticks: u64,
    /// Inode of the process's pid namespace; 0: unknown.
    pub pid_namespace: u64,
    /// Why this image is not recorded, an [`Unrecorded`]; 0: it is recorded.
    pub unrecorded: u32,
    /// Some of the `IMAGE_` flags.
    pub image_flags: u32,
    /// Children and exec'd images without a profile: counts by [`UnrecordedChild`]. Atomic; a
    /// forked child adds itself to its parent's.
    pub unrecorded_children: [u64; UNRECORDED_CHILDREN],
}

/// Bytes that one thread allocates before it publishes them: with several threads the peak is exact
/// within as many of these as threads ran at once.
pub const PEAK_BATCH: u64 = 32 << 10;

/// The head of an extent.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct ExtentHeader {
    /// [`EXTENT_MAGIC`].
    pub magic: u32,
    /// A [`Kind`].
    pub kind: u16,
    /// Reserved, zero.
    pub reserved: u16,
    /// The lane that writes it, by index.
    pub lane: u32,
    /// The number of this extent, counted over the file.
    pub sequence: u32,
    /// Bytes of the whole extent, header included; a multiple of [`PAGE`].
    pub length: u64,
    /// Bytes of finished records behind the header.
    pub committed: u64,
    /// Reserved, zero.
    pub pad: [u64; 4],
}

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

/// A loaded file that some stack goes through. Record 0 of the first extent is module 1; index 0 is
/// "no module".
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Module {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus the file's own (link-time) address.
    pub bias: u64,
    /// String: its path.
    pub path: u32,
    /// Its index, from 1: the upper bits of [`Node::key`].
    pub index: u32,
    /// 1 once it was unloaded: its range may by now belong to another module.
    pub unloaded: u32,
    /// Bytes of `build_id` in use; 0 if it has none.
    pub build_id_length: u32,
    /// The GNU build-id.
    pub build_id: [u8; 24],
}

/// One frame below its callers: a path from the root to here is a stack.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Node {
    /// Return address in the low [`ADDRESS_BITS`], module index above. Without a module and below
    /// 4096: a [`Gap`].
    pub key: u64,
    /// The caller's node; 0 for an outermost frame.
    pub parent: u32,
    /// Writer's own: the first child.
    pub first: u32,
    /// Writer's own: the next child of the same parent.
    pub next: u32,
    /// Writer's own: the child used last.
    pub last: u32,
    /// Writer's own: the first site with this stack.
    pub site: u32,
    /// Bit 0: `key` is an exact pc (interrupted by a signal), not a return address.
    pub flags: u32,
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

/// A scope path as one lane entered it: a name below the path around it. A lane's first record is
/// its root, without a name. Lanes have records of their own for equal paths.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Scope {
    /// The path around it; 0 for a lane's root.
    pub parent: u32,
    /// Its name; 0 for a lane's root.
    pub name: u32,
    /// How often it was entered.
    pub entered: u64,
    /// Frees performed inside, of any block.
    pub frees_here: u64,
    /// Bytes of those frees.
    pub freed_here_bytes: u64,
    /// Writer's own: the site with this path, no stack and no label.
    pub site: u32,
    /// Writer's own: the first child.
    pub first: u32,
    /// Writer's own: the next child of the same parent.
    pub next: u32,
    /// Writer's own: the child used last.
    pub last: u32,
    /// Writer's own: children so far.
    pub children: u32,
    /// The lane's index.
    pub lane: u32,
    /// Reserved, zero.
    pub reserved: u64,
}

/// The key of sites that have more than a stack.
///
/// A block that gets a label moves from the site of its stack, scope and old label to the one with
/// the new label: one more free there, one more allocation here, and here also `moved_`. So sums
/// over labels of one stack are right less what was moved.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Key {
    /// Node of the innermost frame, or 0.
    pub stack: u32,
    /// Scope, or 0.
    pub scope: u32,
    /// Name of the label or pool, or 0.
    pub label: u32,
    /// Lane that allocated; not always the one that owns the site, for another thread may label.
    pub lane: u32,
    /// The `KEY_` flags.
    pub flags: u32,
    /// Writer's own: the site.
    pub site: u32,
    /// Bytes requested for each block, with [`KEY_SIZED`]; else 0.
    pub size: u64,
    /// Blocks that came by labelling.
    pub moved_blocks: u64,
    /// Their usable bytes.
    pub moved_bytes: u64,
    /// What they were said to hold: elements times bytes of an element; counted in the site's
    /// `requested_bytes`.
    pub moved_requested_bytes: u64,
    /// Bytes of a pool's chunks that are lent to blocks of the pool now, counted as freed in this
    /// site until they come back. Signed, atomic.
    pub lent_bytes: u64,
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

/// A named interval of the whole process. While it is open the `end_` fields are zero.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Window {
    /// String: its name.
    pub name: u32,
    /// 1 while it is open.
    pub open: u32,
    /// When it began, nanoseconds from the start.
    pub begin_time_ns: u64,
    /// When it ended.
    pub end_time_ns: u64,
    /// The process's sums when it began.
    pub begin: Sums,
    /// The process's sums when it ended.
    pub end: Sums,
    /// Highest live bytes of the process while it was open, within `peak_bound_bytes`. Atomic.
    pub peak_bytes: u64,
    /// See `peak_bytes`.
    pub peak_bound_bytes: u64,
    /// Reserved, zero.
    pub reserved: [u64; 5],
}

/// Sums of the process, or of a lane, at one moment.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Sums {
    /// Successful allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
}

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

/// The counters of one (stack, scope path, label, lane). Bytes are usable bytes unless named
/// otherwise.
///
/// The lane that owns the extent writes the first ten fields with plain stores; other threads that
/// free the site's blocks add to the `remote_` fields atomically. Live is `usable_bytes −
/// freed_bytes − remote_freed_bytes`.
///
/// Live at the peak: each half keeps its state from before its first change after the current peak
/// (`FileHeader::epoch`). So at the peak the owner's half was `peak_*` if `epoch` is current, else
/// what it is now; likewise the remote half.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Site {
    /// Node of the innermost frame; 0: allocations without a stack. With [`KEY_BIT`]: a [`Key`].
    pub key: u32,
    /// Peak number at which `peak_blocks` and `peak_bytes` were kept.
    pub epoch: u32,
    /// Successful allocations, those by realloc included.
    pub allocations: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Blocks freed by the lane itself.
    pub frees: u64,
    /// Their bytes.
    pub freed_bytes: u64,
    /// The largest request.
    pub largest_bytes: u64,
    /// Blocks freed by the allocating thread with no allocation between.
    pub temporary: u64,
    /// Owner's half at the peak: allocations − frees.
    pub peak_blocks: u64,
    /// Owner's half at the peak: usable − freed bytes.
    pub peak_bytes: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations; stays at the largest number it can hold.
    pub failed: u32,
    /// Peak number at which the `remote_peak_` fields were kept.
    pub remote_epoch: u32,
    /// Blocks freed by other lanes. Atomic.
    pub remote_frees: u64,
    /// Their bytes. Atomic.
    pub remote_freed_bytes: u64,
    /// Remote half at the peak: blocks.
    pub remote_peak_frees: u64,
    /// Remote half at the peak: bytes.
    pub remote_peak_freed_bytes: u64,
}

/// A slot for threads of one name that never ran at the same time, and what they did.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Lane {
    /// The threads' name, ended by a zero byte.
    pub name: [u8; 16],
    /// Index, from 0; also in the extents that the lane owns.
    pub index: u32,
    /// Threads that used the lane so far.
    pub threads: u32,
    /// The thread that has it now, or 0.
    pub tid: u32,
    /// Its site without a stack; 0 in [`Mode::Counters`].
    pub base_site: u32,
    /// Version 1: successful allocations by these threads. Now the sum of `requested_classes`.
    pub allocations: u64,
    /// Version 1: frees made by these threads. Now the sum of `freed_classes`.
    pub frees_here: u64,
    /// [`Mode::Counters`] and version 1 only: bytes of these threads' frees. Elsewhere the sum over
    /// the lane's [`Scope`]s.
    pub freed_here_bytes: u64,
    /// Usable bytes allocated by these threads.
    pub usable_bytes: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// [`Mode::Counters`] only: the largest request.
    pub largest_bytes: u64,
    /// [`Mode::Counters`] only: blocks freed with no allocation by the thread between.
    pub temporary: u64,
    /// Blocks by class of requested size.
    pub requested_classes: [u64; SIZE_CLASSES],
    /// Blocks by class of usable size.
    pub usable_classes: [u64; SIZE_CLASSES],
    /// Blocks freed by these threads, by class of usable size.
    pub freed_classes: [u64; SIZE_CLASSES],
    /// Reserved, zero.
    pub reserved: [u64; 32],
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

/// The class of a size: the number of its significant bits, 0 for 0.
///
/// ```
/// use heaptide_format::size_class;
/// assert_eq!([size_class(0), size_class(1), size_class(24), size_class(u64::MAX)], [0, 1, 5, 64]);
/// ```
#[inline(always)]
pub const fn size_class(bytes: u64) -> usize {
    64 - bytes.leading_zeros() as usize
}

/// The smallest and largest size of a class.
///
/// ```
/// use heaptide_format::class_bounds;
/// assert_eq!(class_bounds(0), (0, 0));
/// assert_eq!(class_bounds(5), (16, 31));
/// ```
pub const fn class_bounds(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 0),
        c if c >= 64 => (1 << 63, u64::MAX),
        c => (1 << (c - 1), (1 << c) - 1),
    }
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
const _: () = assert!(size_of::<Window>() == 192);
const _: () = assert!(size_of::<Mark>() == 32);
