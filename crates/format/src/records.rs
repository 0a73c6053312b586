//! The records that the recorder changes after they are written.
//!
//! Each is declared once and exists twice: as a reader copies it, and in [`shared`] as threads and
//! processes share it, with an atomic in the place of every number.

use crate::control::REQUEST_TEXT;
use crate::losses::LOSSES;
use crate::shapes::DIMENSIONS;
use crate::size_classes::SIZE_CLASSES;
use crate::unrecorded::{INTERCEPTION_NAMES, INTERCEPTIONS};
use crate::unrecorded::{UNRECORDED_CHILDREN, UNRECORDED_PATH, UNRECORDED_PROGRAMS};
use crate::word::Cell;
#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares records.
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

            // A record within another one goes by the name that it has there.
            impl Cell for shared::$record {
                type Shared = shared::$record;
            }

            const _: () = {
                assert!(size_of::<$record>() == size_of::<shared::$record>());
                assert!(align_of::<$record>() == align_of::<shared::$record>());
            };
        )*

        /// The same records as they are shared.
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
/// The head of the file: who wrote it, process-wide figures, and where the extents end.
pub struct FileHeader {
    /// [`crate::MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::VERSION`] of the writer.
    pub version: u32,
    /// A [`crate::Mode`].
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
    /// Bytes of the file in use; extents end here.
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
    /// An [`crate::End`].
    pub end_kind: u32,
    /// The exit status for [`crate::End::Exited`].
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
    /// Counts by [`crate::Loss`].
    pub losses: [u64; LOSSES],
    /// No longer written.
    pub stamped_peak: u64,
    /// Timeline: 1 while a thread writes a sample; writer's own.
    pub timeline_lock: u32,
    /// Resets so far: figures count from the newest baseline.
    pub resets: u32,
    /// What every event looks at, with the four bytes after it: 0, or some of the `CONTROL_` bits,
    /// and pauses by the program from [`crate::CONTROL_PAUSE`] up. Written by the recorder only.
    pub control: u32,
    /// 1: recording is off, by command. Written whole, the last wins: by commands, one at a time
    /// (they lock the file), and by a program that turns recording on.
    pub command_off: u8,
    /// 1: a request waits. Set by commands; cleared by the recorder, and by the command whose
    /// request is answered.
    pub command_request: u8,
    /// 0.
    pub command_unused: [u8; 2],
    /// Requests below this many bytes (from this many on, with [`crate::CONTROL_FEWER`]) get no
    /// stack.
    pub threshold_bytes: u64,
    /// The number of the last request from outside, raised once the fields below are set and before
    /// `command_request` is.
    pub request: u32,
    /// The number of the request last answered; written by the recorder.
    pub answered: u32,
    /// A [`crate::Request`].
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
    /// Why this image is not recorded, an [`crate::Unrecorded`]; 0: it is recorded.
    pub unrecorded: u32,
    /// Some of the `IMAGE_` flags.
    pub image_flags: u32,
    /// Children and exec'd images without a profile: counts by [`crate::UnrecordedChild`]. Atomic;
    /// a forked child adds itself to its parent's.
    pub unrecorded_children: [u64; UNRECORDED_CHILDREN],
    /// Which programs these were, as far as there is room: written by this process and its forked
    /// children at once.
    pub unrecorded_programs: [UnrecordedProgram; UNRECORDED_PROGRAMS],
    /// Bytes of mappings live now, in whole pages.
    pub mapped_bytes: u64,
    /// Highest `mapped_bytes`. Exact: mappings change under one lock.
    pub mapped_peak_bytes: u64,
    /// When that was reached, nanoseconds from the start.
    pub mapped_peak_time_ns: u64,
    /// The number of the current peak of mapped bytes: the epoch of sites of mappings.
    pub mapped_epoch: u32,
    /// Reserved, zero.
    pub mapped_reserved: u32,
    /// Allocators that the program brings, as far as there is room, and what was done about them.
    pub interceptions: [Interception; INTERCEPTIONS],
    /// Whether stacks have Python frames: a [`crate::Python`].
    pub python: u32,
    /// The minor number of the CPython 3 in the process; 0 if there is none, or it is not known.
    pub python_minor: u32,
    /// The highest number that a labelling has: they are numbered from 1.
    pub labellings: u64,
    /// [`crate::Mode::Sampled`]: a block of `n` usable bytes has a site with the probability
    /// `1 − exp(−n ÷ sample_mean_bytes)`; 0 in other modes.
    pub sample_mean_bytes: u64,
}

/// An allocator that the program brings.
pub struct Interception {
    /// An address in the module that has it.
    pub address: u64,
    /// 0: not in use; [`crate::INTERCEPTED`]: its functions are intercepted; above: that and a
    /// [`crate::NotIntercepted`].
    pub state: u32,
    /// Bytes of `names` in use.
    pub length: u32,
    /// Separated by spaces: the prefix of its functions if they have one, and the names behind it
    /// of those that are intercepted, as far as there is room.
    pub names: [u8; INTERCEPTION_NAMES],
}

/// A program that was started without the recorder. An entry is never removed; a count of 0 is of a
/// program that could not be started.
pub struct UnrecordedProgram {
    /// How often it was started. Atomic.
    pub count: u64,
    /// 0: not in use; 1: being written; 2 and more: 2 and an [`crate::UnrecordedChild`].
    pub state: u32,
    /// Bytes of `path` in use.
    pub length: u32,
    /// The path of its file, as it was given; of a longer one the end.
    pub path: [u8; UNRECORDED_PATH],
}

/// The head of an extent.
pub struct ExtentHeader {
    /// [`crate::EXTENT_MAGIC`].
    pub magic: u32,
    /// A [`crate::Kind`].
    pub kind: u16,
    /// Reserved, zero.
    pub reserved: u16,
    /// The lane that writes it, by index.
    pub lane: u32,
    /// The number of this extent, counted over the file.
    pub sequence: u32,
    /// Bytes of the whole extent, header included; a multiple of [`crate::PAGE`].
    pub length: u64,
    /// Bytes of finished records behind the header.
    pub committed: u64,
    /// Reserved, zero.
    pub pad: [u64; 4],
}

/// A loaded file that some stack goes through. Record 0 of the first extent is module 1; index 0 is
/// "no module".
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
pub struct Node {
    /// Return address in the low [`crate::ADDRESS_BITS`], module index above. Without a module and
    /// below 4096: a [`crate::Gap`].
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
    /// Bit 0: `key` is an exact pc (interrupted by a signal), not a return address. Bits 4 to 29
    /// of code without a module: [`crate::node_made`].
    pub flags: u32,
}

/// A scope path as one lane entered it: a name below the path around it. A lane's first record is
/// its root, without a name. Lanes have records of their own for equal paths.
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
    /// Live bytes of the process when a thread last left it, in units of 8 bytes and one more, the
    /// low 32 bits of that; 0: it was not left. Known only with a `highest` below 32 GiB.
    pub left: u32,
    /// The lane's index.
    pub lane: u32,
    /// Highest live bytes of the process while a thread was just here, as the lane saw it, and one
    /// more; 0: not known. Of a root the largest signed number.
    pub highest: u64,
}

/// The key of sites that have more than a stack.
///
/// A block that gets a label moves from the site of its stack, scope and old label to the one with
/// the new label: one more free there, one more allocation here, and here also `moved_`. So sums
/// over labels of one stack are right less what was moved.
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
    /// Bytes requested for each block, with [`crate::KEY_SIZED`]; a packed [`crate::MappingKey`],
    /// with [`crate::KEY_MAPPING`]; else 0.
    pub size: u64,
    /// Blocks that came by labelling.
    pub moved_blocks: u64,
    /// Their usable bytes.
    pub moved_bytes: u64,
    /// What they were said to hold: elements times bytes of an element; counted in the site's
    /// `requested_bytes`.
    pub moved_requested_bytes: u64,
    /// Bytes of a pool's chunks that are lent to blocks of the pool now, counted as freed in this
    /// site until they come back. Signed.
    pub lent_bytes: u64,
}

/// The shape of labelled memory: an array of elements. Labels without dimensions have none.
pub struct Shape {
    /// Name of the label.
    pub label: u32,
    /// How many of `dimensions` there are.
    pub dimension_count: u32,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Elements in each dimension.
    pub dimensions: [u64; DIMENSIONS],
    /// How often memory of this shape was labelled.
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
    /// When it began, nanoseconds from the start.
    pub begin_time_ns: u64,
    /// When it ended.
    pub end_time_ns: u64,
    /// The process's sums when it began.
    pub begin: Sums,
    /// The process's sums when it ended.
    pub end: Sums,
    /// Highest live bytes of the process while it was open, within `peak_bound_bytes`.
    pub peak_bytes: u64,
    /// See `peak_bytes`.
    pub peak_bound_bytes: u64,
    /// Reserved, zero.
    pub reserved: [u64; 5],
}

/// Sums of the process, or of a lane, at one moment.
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
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
}

/// The counters of one (stack, scope path, label, lane). Bytes are usable bytes unless named
/// otherwise. In [`crate::Mode::Sampled`] they are of the sampled blocks alone, but for `failed`,
/// which is of all.
///
/// The lane that owns the extent writes the first ten fields with plain stores; other threads that
/// free the site's blocks add to the `remote_` fields atomically. Live is `usable_bytes −
/// freed_bytes − remote_freed_bytes`.
///
/// Live at the peak: each half keeps its state from before its first change after the current peak
/// (`FileHeader::epoch`). So at the peak the owner's half was `peak_*` if `epoch` is current, else
/// what it is now; likewise the remote half.
pub struct Site {
    /// Node of the innermost frame; 0: allocations without a stack. With [`crate::KEY_BIT`]: a
    /// [`Key`].
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
    /// Blocks freed by other lanes.
    pub remote_frees: u64,
    /// Their bytes.
    pub remote_freed_bytes: u64,
    /// Remote half at the peak: blocks.
    pub remote_peak_frees: u64,
    /// Remote half at the peak: bytes.
    pub remote_peak_freed_bytes: u64,
}

/// A slot for threads of one name that never ran at the same time, and what they did.
pub struct Lane {
    /// The threads' name, ended by a zero byte.
    pub name: [u8; 16],
    /// Index, from 0; also in the extents that the lane owns.
    pub index: u32,
    /// Threads that used the lane so far.
    pub threads: u32,
    /// The thread that has it, or had it last.
    pub tid: u32,
    /// Its site without a stack; 0 in [`crate::Mode::Counters`].
    pub base_site: u32,
    /// Version 1: successful allocations by these threads. Now the sum of `requested_classes`.
    pub allocations: u64,
    /// Version 1: frees made by these threads. Now the sum of `freed_classes`.
    pub frees_here: u64,
    /// [`crate::Mode::Counters`], [`crate::Mode::Sampled`] and version 1 only: bytes of these
    /// threads' frees. Elsewhere the sum over the lane's [`Scope`]s.
    pub freed_here_bytes: u64,
    /// Usable bytes allocated by these threads.
    pub usable_bytes: u64,
    /// Bytes asked for.
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
    /// Blocks by class of requested size.
    pub requested_classes: [u64; SIZE_CLASSES],
    /// Blocks by class of usable size.
    pub usable_classes: [u64; SIZE_CLASSES],
    /// Blocks freed by these threads, by class of usable size.
    pub freed_classes: [u64; SIZE_CLASSES],
    /// Reserved, zero.
    pub reserved: [u64; 32],
}

/// What an extent of events begins with: the clock, and what holds for the first record.
#[derive(Default)]
pub struct TraceStart {
    /// The clock of records when this was begun.
    pub ticks: u64,
    /// Nanoseconds from the process's start at that moment.
    pub time_ns: u64,
    /// The clock and the time once more, when they were last compared; both 0 before that.
    pub last_ticks: u64,
    /// See `last_ticks`.
    pub last_time_ns: u64,
    /// Scope that the lane's thread is in.
    pub scope: u32,
    /// The lane's thread.
    pub tid: u32,
    /// Node of the stack of the next free, where frees have stacks; else 0.
    pub node: u32,
    /// One of `TRACE_WRITING`, `TRACE_FULL`, `TRACE_MOVED`.
    pub state: u32,
    /// Number of these contents, counted over the process from 1, also of those moved out.
    pub number: u32,
    /// Reserved, zero.
    pub reserved: [u32; 3],
}
}
