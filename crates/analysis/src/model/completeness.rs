//! What is missing in the tables of a process, and how exact its numbers are.

/// What is missing in the tables, and how exact the numbers are.
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    /// What the figures are of, where it is not the whole run: a snapshot, the time since a reset.
    pub part: Option<String>,
    /// `peak_bytes` and at-peak figures are exact within this many bytes.
    pub peak_bound_bytes: u64,
    /// Frees of blocks never seen allocated.
    pub unmatched_frees: u64,
    /// Whether a command attached to the process while it ran: blocks from before are unknown.
    pub starts_in_middle: bool,
    /// Why nothing of the image is recorded; none if it is.
    pub unrecorded: Option<&'static str>,
    /// What of the program is not recorded, and why, as `heaptide run` saw in its file.
    pub in_part: Option<String>,
    /// Whether the executable exports a `malloc` of its own: what that does not pass on to the C
    /// library is not recorded.
    pub has_own_malloc: bool,
    /// Whether the executable or a library has an allocator under names of its own that is not
    /// intercepted: its allocations are not recorded.
    pub has_other_allocator: bool,
    /// Allocators that the program brings, and what the recorder did about them.
    pub interceptions: Vec<Interception>,
    /// Losses that happened, and children without a profile. Empty when nothing was lost.
    pub losses: Vec<Loss>,
    /// The limit of the profile, if it was reached.
    pub profile_limit: Option<ProfileLimit>,
    /// Which programs the children without a profile executed, as far as the recorder had room.
    pub unrecorded_programs: Vec<UnrecordedProgram>,
    /// What a person should know about how complete this is: a file cut short, a module that
    /// changed.
    pub notes: Vec<String>,
}

/// A limit that a profile has reached: stacks that were new then are not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileLimit {
    /// The bytes that it may take.
    pub bytes: u64,
    /// When it was reached, nanoseconds from the start of the process.
    pub reached_ns: u64,
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

/// An allocator that the program brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interception {
    /// The path of the executable or library that has it; empty if that is not known.
    pub module: String,
    /// The functions that are intercepted, as far as the recorder had room; of one that is left
    /// alone the prefix of its functions. Separated by spaces.
    pub functions: String,
    /// Why it is left alone, as the second part of a sentence; none if it is intercepted.
    pub left_alone: Option<&'static str>,
}

/// A program that was started without the recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnrecordedProgram {
    /// The path of its file, as it was given; of a long one `…` and the end.
    pub path: String,
    /// The [`Loss::name`] of the reason.
    pub reason: &'static str,
    /// How often it was started.
    pub count: u64,
}
