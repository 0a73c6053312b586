//! What the tables of a process lack, and how exact its numbers are.

use heaptide_format::PythonObjects;

use super::device::DeviceApi;

/// What the tables lack, and how exact the numbers are.
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    /// What the numbers cover if not the whole run: a snapshot, the time since a reset.
    pub part: Option<String>,
    /// The kinds of memory that the numbers cover, with their peaks, if mappings of the program
    /// were added to the heap.
    pub memory: Option<String>,
    /// The interfaces of the device drivers that were loaded, and why functions of them were not
    /// recorded, as part of a sentence; `None` if all were.
    pub drivers: Vec<(DeviceApi, Option<&'static str>)>,
    /// Whether the program mapped memory for its own data that the numbers leave out.
    pub leaves_mappings: bool,
    /// Whether peak usage can be higher: mappings of the program had most at an unknown time.
    pub peak_is_least: bool,
    /// Error bound of `peak_bytes` and of numbers at peak, in bytes.
    pub peak_bound_bytes: u64,
    /// Frees of blocks whose allocation was not recorded.
    pub unmatched_frees: u64,
    /// Whether a command attached to the running process, so that earlier blocks are unknown.
    pub starts_in_middle: bool,
    /// Why nothing of the image was recorded; `None` if it was recorded.
    pub unrecorded: Option<&'static str>,
    /// Which part of the program is not recorded, and why, as `heaptide run` determined from its
    /// file.
    pub in_part: Option<String>,
    /// Whether the executable exports a `malloc` of its own. Its allocations are recorded only as
    /// far as it forwards them to the C library.
    pub has_own_malloc: bool,
    /// Why allocations are missing, if the executable or a library contains an allocator with
    /// function names of its own that is not intercepted, or not everywhere.
    pub other_allocator: Option<&'static str>,
    /// Allocators that the program contains, and whether they are intercepted.
    pub interceptions: Vec<Interception>,
    /// How the objects of Python are recorded; `None` if there is no interpreter.
    pub python_objects: Option<PythonObjects>,
    /// When Python began to end, in nanoseconds from the start, if live blocks are those of that
    /// time: Python then frees nearly all of them.
    pub held_ns: Option<u64>,
    /// When its memory was searched, if live blocks are those that were lost then.
    pub searched: Option<Searched>,
    /// Kinds of lost events, and children without a profile. Empty if nothing was lost.
    pub losses: Vec<Loss>,
    /// For how long recording of the process was off.
    pub off: Off,
    /// The limit of the profile, if it was reached.
    pub profile_limit: Option<ProfileLimit>,
    /// Programs that the children without a profile executed, as far as the recorder had room to
    /// store them.
    pub unrecorded_programs: Vec<UnrecordedProgram>,
    /// Further restrictions, for people: a truncated file, a module that changed.
    pub notes: Vec<String>,
}

/// For how long recording of a process was off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Off {
    /// Never.
    #[default]
    Never,
    /// For this many nanoseconds.
    For(u64),
    /// For an unknown time: not all changes are on the timeline.
    Sometimes,
}

/// A limit that a profile has reached: after that, new stacks were not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// Time at which it was reached, nanoseconds from the start of the process.
    pub reached_ns: u64,
}

/// Events or children of one kind that are not in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The short name of the kind.
    pub name: &'static str,
    /// Its explanation.
    pub meaning: &'static str,
    /// Number of events or children.
    pub count: u64,
}

/// Losses of events that are missing from the counters, and of events that are charged to no stack.
const UNCOUNTED: [&str; 2] = ["no_lane", "no_shadow"];
const WITHOUT_STACK: &str = "no_site";

impl Loss {
    /// Returns whether events are missing from the counters.
    pub fn is_uncounted(&self) -> bool {
        UNCOUNTED.contains(&self.name)
    }

    /// Returns whether whole events were lost, rather than parts of their stacks.
    pub fn is_of_events(&self) -> bool {
        self.is_uncounted() || self.name == WITHOUT_STACK
    }
}

impl Completeness {
    /// Returns the number of events that are missing from the counters or charged to no stack.
    pub fn lost_events(&self) -> u64 {
        self.losses.iter().filter(|loss| loss.is_of_events()).map(|loss| loss.count).sum()
    }

    /// Returns the number of events that are missing from the counters.
    pub fn uncounted_events(&self) -> u64 {
        self.losses.iter().filter(|loss| loss.is_uncounted()).map(|loss| loss.count).sum()
    }
}

/// An allocator that the program contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interception {
    /// The path of the executable or library that contains it; empty if unknown.
    pub module: String,
    /// The intercepted functions, as far as the recorder had room; for an allocator that is not
    /// intercepted, the prefix of its function names. Separated by spaces.
    pub functions: String,
    /// Why it is not intercepted, as the second part of a sentence; `None` if it is.
    pub left_alone: Option<&'static str>,
}

/// A program that was started without the recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnrecordedProgram {
    /// The path of its file as passed to exec; of a long path, `…` and its end.
    pub path: String,
    /// The [`Loss::name`] of the reason.
    pub reason: &'static str,
    /// Number of starts.
    pub count: u64,
}

/// A search of the memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Searched {
    /// The time, nanoseconds from its start.
    pub time_ns: u64,
    /// When that was in its life.
    pub at: SearchedAt,
}

/// When in its life a process was searched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SearchedAt {
    /// At its exit.
    Exit,
    /// When its Python interpreter began to end.
    PythonEnds,
    /// While it ran, with a snapshot or on request.
    Running,
}
