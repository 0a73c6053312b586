//! The tables of a recording and its processes: sites, and the stacks, scopes, labels and lanes
//! that each site refers to.
//!
//! Everything is plain data with typed ids; a view reads the tables and never the profile file.

use std::path::PathBuf;
use std::sync::Arc;

pub use heaptide_format::MarkKind;

use super::ids::{FrameId, LabelId, LaneId, ModuleId, ScopeId, StackId};
use super::measure::Measures;
use super::trace::Trace;

/// What `heaptide run` left: one profile per process image, in order of start.
#[derive(Debug, Default)]
pub struct Recording {
    /// Where it was read from.
    pub path: PathBuf,
    /// Whether symbols were stored with it.
    pub sealed: bool,
    /// When they were, nanoseconds since 1970-01-01 UTC; 0 if that is not known.
    pub sealed_realtime_ns: u64,
    /// Images that ran later, `PID-IMAGE`: functions that they reached then have no stored names.
    pub ran_after_sealing: Vec<String>,
    /// Why the program that was started is not among the processes; empty if it is, or if nobody
    /// noted why.
    pub unrecorded: String,
    /// The process images. An image whose profile could not be read is in `damaged`.
    pub processes: Vec<Process>,
    /// Files that could not be read.
    pub damaged: Vec<DamagedFile>,
}

/// A file of a recording that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Its path.
    pub path: PathBuf,
    /// A line that contains the path and the reason.
    pub reason: String,
}

/// One process image: from its start (or fork, or exec) to its end.
#[derive(Debug)]
pub struct Process {
    /// The profile file.
    pub file: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Parent's process id at the start.
    pub ppid: u32,
    /// The number in the name of its profile: images of one pid are counted, which may be of
    /// several processes.
    pub image: u32,
    /// A number that all images of this process have, and no other of the recording.
    pub process_number: u32,
    /// Programs that this process was before, by exec.
    pub execs: u32,
    /// Whether the image began as a fork of a recorded one.
    pub forked: bool,
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// Its place among the processes of a parallel job, as MPI or Slurm told it.
    pub rank: Option<Rank>,
    /// The parallel job, as MPI, Slurm or another batch system calls it; empty if none does.
    pub job: String,
    /// Where `heaptide merge` took it from; none if it was recorded here.
    pub run: Option<Run>,
    /// Process images in these tables: 1, or more where several were joined (see
    /// [`Recording::join`]). Joined ones have no pid, parent and numbers of image and process:
    /// those are 0.
    pub images: u32,
    /// Start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// From start to end, or to the last sign of life, nanoseconds.
    pub duration_ns: u64,
    /// Whether `duration_ns` is all of it; else the image is known to have lasted at least so long.
    pub duration_is_known: bool,
    /// How it ended.
    pub end: End,
    /// What was recorded.
    pub mode: Mode,
    /// Sums over the sites, each block once (see [`crate::model::Sum`]), with the
    /// process-wide peak.
    pub totals: Measures,
    /// When the peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// `peak_bytes` and at-peak figures are exact within this many bytes.
    pub peak_bound_bytes: u64,
    /// Frees of blocks never seen allocated.
    pub unmatched_frees: u64,
    /// Why nothing of the image is recorded; none if it is.
    pub unrecorded: Option<&'static str>,
    /// Whether the executable exports a `malloc` of its own: what that does not pass on to the C
    /// library is not recorded.
    pub has_own_malloc: bool,
    /// Losses that happened, and children without a profile. Empty when nothing was lost.
    pub losses: Vec<Loss>,
    /// Counts by size class; only classes that occur.
    pub histogram: Vec<SizeClass>,
    /// Lanes in order of creation.
    pub lanes: Vec<Lane>,
    /// Files that stacks go through.
    pub modules: Vec<Module>,
    /// Distinct frames; inlined ones are frames of their own.
    pub frames: Vec<Frame>,
    /// The stack tree: parents come before children; entry 0 is the root and has no frame.
    pub stacks: Vec<StackNode>,
    /// Scope paths, merged over the lanes: parents come before children; entry 0 is no scope.
    pub scopes: Vec<Scope>,
    /// How often each lane entered each scope path.
    pub entered: Vec<Entered>,
    /// Distinct labels, and pools.
    pub labels: Vec<Label>,
    /// The facts.
    pub sites: Vec<Site>,
    /// Windows in order of their begin.
    pub windows: Vec<Window>,
    /// Marks in order of time.
    pub marks: Vec<Mark>,
    /// Samples in order of time.
    pub timeline: Vec<heaptide_format::Sample>,
    /// Events, where they were recorded: a trace of each process image in these tables that has
    /// one. See [`Process::has_trace`].
    pub traces: Vec<Trace>,
    /// What the unwinder did.
    pub unwinder: UnwinderStats,
    /// Lanes that had threads at the same time, at most.
    pub lanes_at_once: u32,
    /// What the figures are of, where it is not the whole run: a snapshot, the time since a reset.
    pub part: Option<String>,
    /// What a person should know about how complete this is: a file cut short, a module that
    /// changed.
    pub notes: Vec<String>,
}

/// Events or children of one kind that are not in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The short name of the kind.
    pub name: &'static str,
    /// Its explanation.
    pub meaning: &'static str,
    /// How many there were.
    pub count: u64,
}

/// Counts of the unwinder's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnwinderStats {
    /// Frames stepped by rule.
    pub frames_stepped: u64,
    /// Rules evaluated.
    pub rules_evaluated: u64,
}

/// The place of a process in a parallel job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// Its number, from 0.
    pub number: u32,
    /// How many processes the job has; 0 if it was not told.
    pub of: u32,
}

/// A recording that was merged into another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Run {
    /// Its number among them, from 1.
    pub number: u32,
    /// What it was called.
    pub recording: String,
}

/// How a process image ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// Another program took its place.
    Exec,
    /// It has not.
    Running,
    /// Nobody noted it.
    Unknown,
}

/// How much was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals, lanes, histograms.
    Counters,
    /// And a site for every stack, scope path and label.
    Stacks,
    /// The same without stacks.
    Scopes,
}

/// One size class of the histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClass {
    /// Smallest size of the class.
    pub size_min: u64,
    /// Largest size of the class.
    pub size_max: u64,
    /// Blocks whose requested size is in it.
    pub requested: u64,
    /// Blocks whose usable size is in it.
    pub usable: u64,
    /// Freed blocks whose usable size is in it.
    pub freed: u64,
}

/// A lane and the sums over its sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Its threads' name.
    pub name: String,
    /// Threads that used it.
    pub threads: u32,
    /// Sums over the lane's sites, with `frees_here` of the lane.
    pub measures: Measures,
}

/// A file that stacks go through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus the file's own address.
    pub bias: u64,
    /// GNU build-id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Whether it was unloaded before the end.
    pub unloaded: bool,
}

/// A frame as a person reads it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Demangled name, whole; none if nothing names it.
    pub function: Option<Arc<str>>,
    /// The file it is in; none for code without a file.
    pub module: Option<ModuleId>,
    /// Address in the module (link-time), of the call itself.
    pub offset: u64,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
    /// Whether it was inlined into the frame before it.
    pub inlined: bool,
}

/// A frame below its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackNode {
    /// The caller.
    pub parent: StackId,
    /// The frame; unused for the root.
    pub frame: FrameId,
}

/// A scope path, and the sums over its lanes that no site has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The path around it.
    pub parent: ScopeId,
    /// The attribute of its name, such as `region`; empty for no scope.
    pub attribute: Arc<str>,
    /// The value of its name, an integer in decimal; empty for no scope.
    pub value: Arc<str>,
    /// How often it was entered.
    pub entered: u64,
    /// Frees made inside, but not in scopes inside it, of any block.
    pub frees_here: u64,
    /// Their bytes.
    pub freed_here_bytes: u64,
}

/// How often a lane entered a scope path; a lane may have several rows of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The path.
    pub scope: ScopeId,
    /// The lane.
    pub lane: LaneId,
    /// How often.
    pub times: u64,
}

/// The name of blocks, or of a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    /// What it is.
    pub name: Arc<str>,
    /// Whether it names a pool.
    pub pool: bool,
}

/// A named interval of the whole process. Counts are what happened between its begin and its end,
/// or until the profile was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// What it was called.
    pub name: Arc<str>,
    /// Whether it has not ended.
    pub open: bool,
    /// When it began, nanoseconds from the start.
    pub begin_time_ns: u64,
    /// When it ended; of an open one, 0.
    pub end_time_ns: u64,
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
    /// Net change of live blocks.
    pub live_blocks: i64,
    /// Net change of live bytes.
    pub live_bytes: i64,
    /// Highest live bytes of the process while it was open.
    pub peak_bytes: u64,
    /// `peak_bytes` is exact within this many bytes.
    pub peak_bound_bytes: u64,
}

/// Something that was said or done at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Its name; empty if it has none.
    pub name: Arc<str>,
    /// What it stands for.
    pub kind: MarkKind,
    /// The lane it was set on; none if from outside.
    pub lane: Option<LaneId>,
    /// Of snapshots and resets, their number from 1.
    pub number: u32,
    /// Usable bytes live.
    pub live_bytes: u64,
}

/// What memory a site counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum SiteKind {
    /// Blocks from the allocator.
    #[default]
    Heap,
    /// Labelled memory that is not from the allocator. In no total.
    Outside,
    /// Blocks of a pool whose chunks are from the allocator. Their live bytes are part of the
    /// totals, in the place of the chunk's; their events are in no total.
    PoolBlock,
    /// Blocks of a pool in memory that is not from the allocator. In no total.
    OutsidePoolBlock,
    /// Chunks of a pool, from the allocator; what is live here is idle pool space.
    PoolChunk,
    /// Chunks of a pool that are not from the allocator; likewise. In no total.
    OutsidePoolChunk,
}

impl SiteKind {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SiteKind::Heap => "heap",
            SiteKind::Outside => "outside",
            SiteKind::PoolBlock => "pool_block",
            SiteKind::OutsidePoolBlock => "outside_pool_block",
            SiteKind::PoolChunk => "pool_chunk",
            SiteKind::OutsidePoolChunk => "outside_pool_chunk",
        }
    }
}

/// The counters of one stack, scope path, label and lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The stack's innermost frame.
    pub stack: StackId,
    /// The scope path.
    pub scope: ScopeId,
    /// The label, or the pool.
    pub label: Option<LabelId>,
    /// The allocating lane.
    pub lane: LaneId,
    /// Bytes requested for each block, where sizes were recorded as a dimension (`--by-size`).
    pub size: Option<u64>,
    /// What memory it is.
    pub kind: SiteKind,
    /// Its measures. A block that was labelled was freed in the site it was allocated at and
    /// allocated in the one with the label: `moved` says what sums are to leave out.
    pub measures: Measures,
    /// What came by labelling.
    pub moved: Moved,
    /// Of a pool's chunks: bytes lent to the pool's blocks now. Neither freed nor live here.
    pub lent_bytes: u64,
}

/// What came to a site by labelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Blocks.
    pub blocks: u64,
    /// Their usable bytes.
    pub usable_bytes: u64,
    /// What they were said to hold, which their site has as requested.
    pub requested_bytes: u64,
}

impl Process {
    /// Whether its events were recorded, so that they can be replayed.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(!process.has_trace()); // recorded with --mode stacks
    /// ```
    pub fn has_trace(&self) -> bool {
        !self.traces.is_empty()
    }
}
