//! Events and data that the recorder could not record.

/// The kind of a loss: the index into [`crate::FileHeader::losses`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Loss {
    /// Events of a thread for which there was no free lane; not part of any total.
    NoLane = 0,
    /// Allocations for which there was no shadow memory; not part of any total.
    NoShadow = 1,
    /// Allocations for which there was no site; charged to their lane without a stack.
    NoSite = 2,
    /// Stacks truncated because a node could not be stored.
    NoNode = 3,
    /// Stacks deeper than the limit, truncated at their outer end.
    TooDeep = 4,
    /// Modules that exceeded the size of the module table.
    NoModule = 5,
    /// Stacks that ended at code without usable unwind information.
    NoRule = 6,
    /// Stacks that ended at an address outside of the stack's memory.
    OutsideStack = 7,
    /// Failures to grow the file: disk full, size limit, or the file was not accessible.
    NoSpace = 8,
    /// Timeline samples, marks and windows that could not be stored.
    NoSample = 9,
    /// Scopes that could not be entered, because there was no space for their name or path. Their
    /// allocations are charged to the enclosing scope.
    NoScope = 10,
    /// Ends of scopes with a name that differs from the innermost scope's.
    ScopeMismatch = 11,
    /// Labels, shapes, and pool blocks that could not be stored, or that overlap another one.
    NoRegion = 12,
    /// Snapshots, resets and output of the program that could not be written.
    NoSnapshot = 13,
    /// Frees inside of the recorder that are missing in the trace, so that the end of their block
    /// is unknown there.
    NoEvent = 14,
    /// Mappings, or parts of them, that could not be stored: out of memory, or a signal handler
    /// mapped memory while its thread was changing shared state of the recorder.
    NoMapping = 15,
}

/// Number of entries of [`crate::FileHeader::losses`], one per kind.
pub const LOSSES: usize = 16;

/// A short name and an explanation for each [`Loss`], in order of number.
pub const LOSS_NAMES: [(&str, &str); 16] = [
    (
        "no_lane",
        "events of threads without a slot: too many threads at once, or no space in the profile (not \
         in the totals)",
    ),
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
