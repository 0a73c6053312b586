//! What the recorder could not record.

/// What was lost, and why: the index into [`crate::FileHeader::losses`].
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
    /// Labels, dimensions of labels, and pool blocks that could not be stored, or lie on another
    /// one.
    NoRegion = 12,
    /// Snapshots, resets and output of the program that could not be written.
    NoSnapshot = 13,
    /// Frees inside the recorder that are not in the trace: their block ends unseen there.
    NoEvent = 14,
    /// Mappings, or parts of them, that could not be stored: no memory, or a signal handler mapped
    /// memory while its thread was changing what the recorder shares.
    NoMapping = 15,
}

/// Entries of [`crate::FileHeader::losses`]; as many as there are kinds.
pub const LOSSES: usize = 16;

/// A short name and an explanation for each [`Loss`], in order of number.
pub const LOSS_NAMES: [(&str, &str); 16] = [
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
    ("no_region", "labels, their dimensions, and pool blocks that could not be stored"),
    ("no_snapshot", "snapshots, resets and output that could not be written"),
    ("no_event", "frees counted but missing from the trace"),
    ("no_mapping", "mappings that could not be stored (not in the mapped totals)"),
];
