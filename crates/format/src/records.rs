//! The records that the recorder modifies after it has written them.
//!
//! Each is declared once and exists in two forms: as a plain copy for readers, and in [`shared`] as
//! shared by threads and processes, with an atomic for every number.

use crate::control::REQUEST_TEXT;
use crate::losses::LOSSES;
use crate::shapes::DIMENSIONS;
use crate::size_classes::SIZE_CLASSES;
use crate::unrecorded::{INTERCEPTION_NAMES, INTERCEPTIONS};
use crate::unrecorded::{UNRECORDED_CHILDREN, UNRECORDED_PATH, UNRECORDED_PROGRAMS};
use crate::word::Cell;
#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares both forms of records.
macro_rules! records {
    ($(
        $(#[doc = $text:literal])*
        $(#[derive($derived:ident)])?
        pub struct $record:ident {
            $($(#[doc = $field_text:literal])* pub $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[doc = $text])*
            #[derive(Clone, Copy, Debug $(, $derived)?)]
            #[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
            #[repr(C)]
            pub struct $record {
                $($(#[doc = $field_text])* pub $field: $type,)*
            }

            impl Cell for $record {
                type Shared = shared::$record;
            }

            // A nested record keeps its name.
            impl Cell for shared::$record {
                type Shared = shared::$record;
            }

            const _: () = {
                assert!(size_of::<$record>() == size_of::<shared::$record>());
                assert!(align_of::<$record>() == align_of::<shared::$record>());
            };
        )*

        /// The shared form of the records.
        pub(crate) mod shared {
            use super::*;

            $(
                $(#[doc = $text])*
                #[derive(Debug)]
                #[repr(C)]
                pub struct $record {
                    $($(#[doc = $field_text])* pub $field: <$type as Cell>::Shared,)*
                }
            )*
        }
    };
}

records! {
/// The header of the file: its writer, counters of the process, and the end of the extents.
pub struct FileHeader {
    /// [`crate::MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::VERSION`] of the writer.
    pub version: u32,
    /// A [`crate::Mode`].
    pub mode: u32,
    /// The process id.
    pub pid: u32,
    /// The parent's process id at the start of the recording.
    pub ppid: u32,
    /// The number of this image among those with the same pid in the recording, from 0. They may
    /// belong to several processes: see `process_start_ticks`.
    pub image: u32,
    /// 1 if the image started as a fork of a recorded one, and not by exec.
    pub forked: u32,
    /// Wall clock at the start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// Monotonic clock at the start, nanoseconds; all other times are relative to it.
    pub start_monotonic_ns: u64,
    /// String: the absolute path of the program.
    pub program: u32,
    /// String: the arguments, each followed by a zero byte.
    pub command: u32,
    /// String: the host's name.
    pub host: u32,
    /// The unwinder's limit of frames per stack.
    pub max_depth: u32,
    /// Bytes of the file in use; extents end here.
    pub file_end: u64,
    /// Highest live usable bytes, process-wide, within `peak_bound_bytes`.
    pub peak_bytes: u64,
    /// Time of that peak, nanoseconds from the start, exact to a millisecond.
    pub peak_time_ns: u64,
    /// The precision of `peak_bytes` and values at peak: 0 with one thread, threads × batch
    /// otherwise.
    pub peak_bound_bytes: u64,
    /// The number of the current peak: see [`Site`].
    pub epoch: u32,
    /// An [`crate::End`].
    pub end_kind: u32,
    /// The exit status for [`crate::End::Exited`].
    pub end_code: i32,
    /// The most lanes that had a thread at the same time.
    pub lanes_at_once: u32,
    /// Time of the end, nanoseconds from the start; 0 if it was not recorded.
    pub end_time_ns: u64,
    /// Time at which the recorder last read the clock, nanoseconds from the start: it does so at
    /// each new peak, sample, snapshot and end of a thread. A lower bound of the duration of an
    /// image whose end was not recorded.
    pub last_seen_ns: u64,
    /// Usable bytes allocated minus freed, published by threads in batches; readers sum over lanes
    /// instead.
    pub published_live: i64,
    /// Frees of blocks whose allocation was not recorded (before the recorder was loaded, before a
    /// fork, foreign, double).
    pub unmatched_frees: u64,
    /// Unwinder: frames stepped by a rule.
    pub frames_stepped: u64,
    /// Unwinder: rules evaluated from unwind tables.
    pub rules_evaluated: u64,
    /// Counts by [`crate::Loss`].
    pub losses: [u64; LOSSES],
    /// The highest `peak_bytes` before the last reset; 0 if there was none.
    pub earlier_peak_bytes: u64,
    /// Timeline: 1 while a thread writes a sample; used by the writer only.
    pub timeline_lock: u32,
    /// Number of resets: counters are relative to the newest baseline.
    pub resets: u32,
    /// Read by every event, with the four bytes after it: 0, or some of the `CONTROL_` bits, and
    /// the number of pauses by the program from [`crate::CONTROL_PAUSE`] up. Written by the
    /// recorder only.
    pub control: u32,
    /// 1: a command turned recording off. Stored whole, so the last store wins: by commands, one at
    /// a time (they lock the file), and by a program that turns recording on.
    pub command_off: u8,
    /// 1: a request is pending. Set by commands; cleared by the recorder, and by the command after
    /// its request was answered.
    pub command_request: u8,
    /// 0.
    pub command_unused: [u8; 2],
    /// Requests below this many bytes (from this many on, with [`crate::CONTROL_FEWER`]) have no
    /// stack.
    pub threshold_bytes: u64,
    /// The number of the last request from a command, incremented after the fields below are set
    /// and before `command_request` is.
    pub request: u32,
    /// The number of the last answered request; written by the recorder.
    pub answered: u32,
    /// A [`crate::Request`].
    pub request_kind: u32,
    /// Bytes of `request_text`.
    pub request_length: u32,
    /// Time of the request, nanoseconds from the start.
    pub request_time_ns: u64,
    /// A threshold in bytes (with the top bit set for "below"), or the number of a snapshot.
    pub request_value: u64,
    /// The mark's or snapshot's name.
    pub request_text: [u8; REQUEST_TEXT],
    /// String: the name of the first scope that ended out of order; 0 if there was none.
    pub mismatch_end: u32,
    /// Scope: the path that was open at that time.
    pub mismatch_open: u32,
    /// Time of the last reset, nanoseconds from the start.
    pub reset_time_ns: u64,
    /// The process's rank in a parallel job plus one; 0 if unknown.
    pub rank: u32,
    /// The number of processes of the job; 0 if unknown.
    pub ranks: u32,
    /// String: the job's name; 0 if unknown.
    pub job: u32,
    /// Some of the `TRACE_` bits; 0 without a trace.
    pub trace: u32,
    /// The most bytes of a trace, including `trace_elsewhere`; 0 for no limit.
    pub trace_limit: u64,
    /// Bytes of the recording's traces that are not in this file; written by the process that moves
    /// them.
    pub trace_elsewhere: u64,
    /// Bytes of this file's extents of events.
    pub trace_bytes: u64,
    /// Time at which the trace ended for lack of space, nanoseconds from the start; 0 if it did
    /// not.
    pub trace_stopped_ns: u64,
    /// Start time of the process, in clock ticks since boot (`/proc/PID/stat`, field 22); 0:
    /// unknown. With `pid` and `pid_namespace` it identifies a process across its execs.
    pub process_start_ticks: u64,
    /// Inode of the process's pid namespace; 0: unknown.
    pub pid_namespace: u64,
    /// The reason why this image is not recorded, an [`crate::Unrecorded`]; 0: it is recorded.
    pub unrecorded: u32,
    /// Some of the `IMAGE_` flags.
    pub image_flags: u32,
    /// Children and exec'd images without a profile: counts by [`crate::UnrecordedChild`]. Atomic;
    /// a forked child increments its parent's.
    pub unrecorded_children: [u64; UNRECORDED_CHILDREN],
    /// Their programs, as far as there is space: written concurrently by this process and its
    /// forked children.
    pub unrecorded_programs: [UnrecordedProgram; UNRECORDED_PROGRAMS],
    /// Live bytes of mappings, in whole pages.
    pub mapped_bytes: u64,
    /// Highest `mapped_bytes`. Exact, because mappings change under one lock.
    pub mapped_peak_bytes: u64,
    /// Time of that peak, nanoseconds from the start.
    pub mapped_peak_time_ns: u64,
    /// The number of the current peak of mapped bytes: the epoch of sites of mappings.
    pub mapped_epoch: u32,
    /// 1: no more accounts of memory are taken. Set by a command that found the process stuck.
    pub accounts_off: u32,
    /// Allocators of the program's own, as far as there is space, and how they were handled.
    pub interceptions: [Interception; INTERCEPTIONS],
    /// Whether stacks have Python frames: a [`crate::Python`].
    pub python: u32,
    /// The minor version of the CPython 3 in the process; 0 if there is none, or if unknown.
    pub python_minor: u32,
    /// The highest number of a labelling; they are numbered from 1.
    pub labellings: u64,
    /// The maximum size of the file in bytes, excluding `trace_bytes`; 0 for no limit. Records that
    /// exact totals need are stored beyond it.
    pub profile_limit: u64,
    /// When the file was first kept from growing by that limit, nanoseconds from the start; 0 if it
    /// was not.
    pub profile_full_ns: u64,
    /// Snapshots at an interval that the process took and removed, to keep the newest.
    pub snapshots_removed: u64,
    /// [`crate::Mode::Sampled`]: a block of `n` usable bytes has a site with the probability
    /// `1 − exp(−n ÷ sample_mean_bytes)`; 0 in other modes.
    pub sample_mean_bytes: u64,
    /// [`crate::SEARCH_AWAITED`] while the image waits at its end for a command that searches its
    /// memory for what keeps its blocks; then [`crate::SEARCH_DONE`], stored by the command.
    pub search: u32,
    /// The thread that waits, by the number that the program sees.
    pub search_thread: u32,
    /// Incremented by the command now and then while it searches. If it stays the same for
    /// [`crate::SEARCH_PATIENCE_NS`], the image continues.
    pub search_beats: u32,
    /// The number of the current peak of device memory: the epoch of its sites.
    pub device_epoch: u32,
    /// Live bytes of device memory, of all devices.
    pub device_bytes: u64,
    /// Highest `device_bytes`. Exact, because device memory changes under one lock.
    pub device_peak_bytes: u64,
    /// Time of that peak, nanoseconds from the start.
    pub device_peak_time_ns: u64,
    /// A byte for the driver of each [`crate::DeviceApi`], in their order: 0 if none was loaded;
    /// [`crate::INTERCEPTED`] if its functions are intercepted; larger: that plus a
    /// [`crate::NotIntercepted`].
    pub drivers: u32,
    /// 0.
    pub drivers_unused: u32,
}

/// An allocator of the program's own.
pub struct Interception {
    /// An address in the module that contains it.
    pub address: u64,
    /// 0: unused; [`crate::INTERCEPTED`]: its functions are intercepted; larger: that plus a
    /// [`crate::NotIntercepted`].
    pub state: u32,
    /// Bytes of `names` in use.
    pub length: u32,
    /// Separated by spaces: the prefix of its functions, if any, and the names, without the prefix,
    /// of those that are intercepted, as far as there is space.
    pub names: [u8; INTERCEPTION_NAMES],
}

/// A program that was started without the recorder. Entries are never removed; a count of 0 belongs
/// to a program that failed to start.
pub struct UnrecordedProgram {
    /// Number of starts. Atomic.
    pub count: u64,
    /// 0: unused; 1: being written; 2 and more: 2 plus an [`crate::UnrecordedChild`].
    pub state: u32,
    /// Bytes of `path` in use.
    pub length: u32,
    /// The path of its file, as passed to exec; the end of a longer one.
    pub path: [u8; UNRECORDED_PATH],
}

/// The header of an extent.
pub struct ExtentHeader {
    /// [`crate::EXTENT_MAGIC`].
    pub magic: u32,
    /// A [`crate::Kind`].
    pub kind: u16,
    /// Reserved, zero.
    pub reserved: u16,
    /// The lane that writes it, by index.
    pub lane: u32,
    /// The number of this extent, counted per file.
    pub sequence: u32,
    /// Bytes of the whole extent, including the header; a multiple of [`crate::PAGE`].
    pub length: u64,
    /// Bytes of finished records after the header.
    pub committed: u64,
    /// Reserved, zero.
    pub pad: [u64; 4],
}

/// A loaded file that occurs in a stack. Record 0 of the first extent is module 1; index 0 is "no
/// module".
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
    /// 1 once it was unloaded: its range may belong to another module by now.
    pub unloaded: u32,
    /// Bytes of `build_id` in use; 0 if it has none.
    pub build_id_length: u32,
    /// The GNU build-id.
    pub build_id: [u8; 24],
}

/// One frame below its callers: a path from the root to a node is a stack.
pub struct Node {
    /// Return address in the low [`crate::ADDRESS_BITS`], module index above. A value below 4096
    /// without a module is a [`crate::Gap`].
    pub key: u64,
    /// The caller's node; 0 for an outermost frame.
    pub parent: u32,
    /// Used by the writer only: the first child.
    pub first: u32,
    /// Used by the writer only: the next child of the same parent.
    pub next: u32,
    /// Used by the writer only: the child used last.
    pub last: u32,
    /// Used by the writer only: the first site with this stack.
    pub site: u32,
    /// Bit 0: `key` is an exact pc (interrupted by a signal), not a return address. Bits 4 to 29,
    /// for code without a module: [`crate::node_made`].
    pub flags: u32,
}

/// A scope path as one lane entered it: a name below the enclosing path. A lane's first record is
/// its root, without a name. Each lane has its own record of an equal path.
pub struct Scope {
    /// The enclosing path; 0 for a lane's root.
    pub parent: u32,
    /// Its name; 0 for a lane's root.
    pub name: u32,
    /// Number of times that it was entered.
    pub entered: u64,
    /// Frees inside it, of any block.
    pub frees_here: u64,
    /// Bytes of those frees.
    pub freed_here_bytes: u64,
    /// Used by the writer only: the site with this path, no stack and no label.
    pub site: u32,
    /// Used by the writer only: the first child.
    pub first: u32,
    /// Used by the writer only: the next child of the same parent.
    pub next: u32,
    /// Used by the writer only: the child used last.
    pub last: u32,
    /// Live bytes of the process when a thread last left it, in units of 8 bytes plus one, the low
    /// 32 bits; 0: it was not left. Known only with a `highest` below 32 GiB.
    pub left: u32,
    /// The lane's index.
    pub lane: u32,
    /// Highest live bytes of the process while a thread was directly in this scope, as seen by the
    /// lane, plus one; 0: unknown. For a root, the largest signed number.
    pub highest: u64,
}

/// The key of sites that have more than a stack.
///
/// A block that gets a label moves from the site of its stack, scope and old label to the site with
/// the new label. This counts as one more free there, and as one more allocation here, which the
/// `moved_` fields count, too. So sums over labels of one stack are exact after subtracting the
/// `moved_` fields.
pub struct Key {
    /// Node of the innermost frame, or 0.
    pub stack: u32,
    /// Scope, or 0.
    pub scope: u32,
    /// Name of the label or pool, or 0.
    pub label: u32,
    /// Lane that allocated. Another lane may own the site, because another thread may set the
    /// label.
    pub lane: u32,
    /// The `KEY_` flags.
    pub flags: u32,
    /// Used by the writer only: the site.
    pub site: u32,
    /// Requested bytes of each block, with [`crate::KEY_SIZED`]; a packed [`crate::MappingKey`],
    /// with [`crate::KEY_MAPPING`]; else 0.
    pub size: u64,
    /// Blocks that moved here by labelling. Of a [`SampledSite`], this and the next two fields are
    /// weighted like its counters.
    pub moved_blocks: u64,
    /// Their usable bytes.
    pub moved_bytes: u64,
    /// Their size according to the label: elements times bytes of an element; included in the
    /// site's `requested_bytes`.
    pub moved_requested_bytes: u64,
    /// Bytes of a pool's chunks that are currently lent to blocks of the pool. In this site they
    /// count as freed until they are returned. Signed. Of a [`SampledSite`], which is of no pool:
    /// the number of sampled blocks that moved here by labelling.
    pub lent_bytes: u64,
}

/// The shape of labelled memory: an array of elements. Labels without dimensions have none.
pub struct Shape {
    /// Name of the label.
    pub label: u32,
    /// Number of valid `dimensions`.
    pub dimension_count: u32,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Elements in each dimension.
    pub dimensions: [u64; DIMENSIONS],
    /// Number of times that memory of this shape was labelled.
    pub labelled: u64,
    /// Reserved, zero.
    pub reserved: u64,
}

/// A named interval of the whole process. While it is open the `end_` fields are zero.
pub struct Window {
    /// String: its name.
    pub name: u32,
    /// 1 while it is open.
    pub open: u32,
    /// Time of its start, nanoseconds from the start of the recording.
    pub begin_time_ns: u64,
    /// Time of its end.
    pub end_time_ns: u64,
    /// The process's sums at its start.
    pub begin: Sums,
    /// The process's sums at its end.
    pub end: Sums,
    /// Highest live bytes of the process while it was open, within `peak_bound_bytes`.
    pub peak_bytes: u64,
    /// See `peak_bytes`.
    pub peak_bound_bytes: u64,
    /// Reserved, zero.
    pub reserved: [u64; 5],
}

/// Sums of the process, or of a lane, at one time.
#[derive(Default)]
pub struct Sums {
    /// Successful allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Usable bytes.
    pub usable_bytes: u64,
    /// Usable bytes freed.
    pub freed_bytes: u64,
}

/// The counters of one (stack, scope path, label, lane). Bytes are usable bytes unless named
/// otherwise. In [`crate::Mode::Sampled`] a site is a [`SampledSite`].
///
/// The lane that owns the extent writes the first ten fields with plain stores; other threads that
/// free the site's blocks add to the `remote_` fields atomically. Live is `usable_bytes −
/// freed_bytes − remote_freed_bytes`.
///
/// Live at peak: each half saves its state before its first change after the current peak
/// (`FileHeader::epoch`). So at the peak the owner's half was `peak_*` if `epoch` is current, and
/// otherwise equals its current state; likewise the remote half.
pub struct Site {
    /// Node of the innermost frame; 0: allocations without a stack. With [`crate::KEY_BIT`]: a
    /// [`Key`].
    pub key: u32,
    /// Peak number for which `peak_blocks` and `peak_bytes` were saved.
    pub epoch: u32,
    /// Successful allocations, including those by realloc.
    pub allocations: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Usable bytes.
    pub usable_bytes: u64,
    /// Blocks freed by the lane itself.
    pub frees: u64,
    /// Their bytes.
    pub freed_bytes: u64,
    /// The largest request.
    pub largest_bytes: u64,
    /// Blocks freed by the allocating thread with no allocation of that thread between.
    pub temporary: u64,
    /// Owner's half at the peak: allocations − frees.
    pub peak_blocks: u64,
    /// Owner's half at the peak: usable − freed bytes.
    pub peak_bytes: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations; saturates.
    pub failed: u32,
    /// Peak number for which the `remote_peak_` fields were saved.
    pub remote_epoch: u32,
    /// Blocks freed by other lanes.
    pub remote_frees: u64,
    /// Their bytes.
    pub remote_freed_bytes: u64,
    /// Remote half at the peak: blocks.
    pub remote_peak_frees: u64,
    /// Remote half at the peak: bytes.
    pub remote_peak_freed_bytes: u64,
}

/// The counters of one (stack, scope path, label, lane) in [`crate::Mode::Sampled`]. Any thread
/// changes them, atomically.
///
/// Each sampled block counts as the blocks and bytes that it represents: the reciprocal of the
/// probability of sampling a block of its usable size. So one site has blocks of all sizes, and
/// sums are unbiased. Numbers of blocks are in units of 1 ÷ [`crate::SAMPLE_UNIT`]. `failed` counts
/// all requests that failed.
///
/// Before its first change after the current peak, a site saves its state in the `peak_` fields.
pub struct SampledSite {
    /// As in [`Site`].
    pub key: u32,
    /// Peak number for which the `peak_` fields were saved.
    pub epoch: u32,
    /// Represented blocks.
    pub blocks: u64,
    /// Their requested bytes.
    pub requested_bytes: u64,
    /// Their usable bytes.
    pub usable_bytes: u64,
    /// Those that were freed, by any thread.
    pub freed_blocks: u64,
    /// Their usable bytes.
    pub freed_bytes: u64,
    /// The largest sampled request.
    pub largest_bytes: u64,
    /// Those freed by the allocating thread with no allocation of that thread between.
    pub temporary: u64,
    /// Live at the peak: blocks.
    pub peak_blocks: u64,
    /// Live at the peak: usable bytes.
    pub peak_bytes: u64,
    /// Those that a reallocation returned.
    pub reallocations: u64,
    /// Failed allocations; saturates.
    pub failed: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Those freed by other lanes.
    pub remote_frees: u64,
    /// Number of sampled blocks.
    pub sampled: u64,
    /// Sampled blocks that were freed.
    pub sampled_freed: u64,
    /// Sampled blocks that were live at the peak.
    pub sampled_at_peak: u64,
}

/// A slot for threads of one name that never ran at the same time, and what they did.
pub struct Lane {
    /// The threads' name, zero-terminated.
    pub name: [u8; 16],
    /// Index, from 0; also in the extents that the lane owns.
    pub index: u32,
    /// Number of threads that have used the lane.
    pub threads: u32,
    /// The thread that uses it, or used it last.
    pub tid: u32,
    /// Its site without a stack; 0 in [`crate::Mode::Counters`].
    pub base_site: u32,
    /// Version 1: successful allocations by these threads. Replaced by the sum of
    /// `requested_classes`.
    pub allocations: u64,
    /// Version 1: frees made by these threads. Replaced by the sum of `freed_classes`.
    pub frees_here: u64,
    /// [`crate::Mode::Counters`], [`crate::Mode::Sampled`] and version 1 only: bytes of these
    /// threads' frees. Elsewhere the sum over the lane's [`Scope`]s.
    pub freed_here_bytes: u64,
    /// Usable bytes allocated by these threads.
    pub usable_bytes: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// [`crate::Mode::Counters`] and [`crate::Mode::Sampled`] only: the largest request.
    pub largest_bytes: u64,
    /// [`crate::Mode::Counters`] and [`crate::Mode::Sampled`] only: blocks freed with no allocation
    /// by the thread between.
    pub temporary: u64,
    /// Blocks by size class of the requested size.
    pub requested_classes: [u64; SIZE_CLASSES],
    /// Blocks by size class of the usable size.
    pub usable_classes: [u64; SIZE_CLASSES],
    /// Blocks freed by these threads, by size class of the usable size.
    pub freed_classes: [u64; SIZE_CLASSES],
    /// Reserved, zero.
    pub reserved: [u64; 32],
}

/// Bounds of live usable bytes, as threads published them, from the begin of a [`crate::Sample`] to
/// the begin of the next one.
pub struct Span {
    /// The time at which the sample was first stored, nanoseconds from the start.
    pub begin_ns: u64,
    /// The last time at which the sample was stored again, because changes were too fast for
    /// samples of their own; else `begin_ns`.
    pub settled_ns: u64,
    /// The lowest live bytes between these times.
    pub fast_lowest: u64,
    /// The highest live bytes between these times.
    pub fast_highest: u64,
    /// The lowest live bytes afterwards.
    pub lowest: u64,
    /// The highest live bytes afterwards.
    pub highest: u64,
}

/// The start of an extent of events: the clock, and the state before the first record.
#[derive(Default)]
pub struct TraceStart {
    /// The records' clock at the start.
    pub ticks: u64,
    /// Nanoseconds from the process's start at that time.
    pub time_ns: u64,
    /// Clock and time when they were last compared; both 0 before that.
    pub last_ticks: u64,
    /// See `last_ticks`.
    pub last_time_ns: u64,
    /// Scope of the lane's thread.
    pub scope: u32,
    /// The lane's thread.
    pub tid: u32,
    /// Node of the stack of the next free, if frees have stacks; else 0.
    pub node: u32,
    /// One of `TRACE_WRITING`, `TRACE_FULL`, `TRACE_MOVED`.
    pub state: u32,
    /// Number of these contents, counted per process from 1, including those moved out.
    pub number: u32,
    /// Reserved, zero.
    pub reserved: [u32; 3],
}
}
