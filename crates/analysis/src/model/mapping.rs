//! Mappings: memory that a program, or its allocator, mapped itself. They are recorded separately
//! from the blocks of the heap, with totals, a peak and sites of their own.

use super::measure::Measures;

/// Properties of a mapping other than its stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Mapping {
    /// Its purpose.
    pub class: MappingClass,
    /// `PROT_` bits at its creation: 1 read, 2 write, 4 execute.
    pub protection: u8,
    /// `MAP_` bits at its creation.
    pub flags: u32,
}

/// The purpose of a mapping, derived from its flags, its file and its stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MappingClass {
    /// Memory that an allocator divides into blocks.
    Allocator,
    /// An arena of CPython's own allocator.
    PythonArena,
    /// A thread's stack.
    ThreadStack,
    /// A mapped file.
    File,
    /// A mapped file with executable code.
    Library,
    /// Memory shared between processes.
    Shared,
    /// Host memory that a device driver locked in memory, so that devices can access it.
    Pinned,
    /// Memory that a device driver moves between host and devices.
    Managed,
    /// Any other mapping.
    Other,
}

impl MappingClass {
    /// All classes, in the order of reports.
    pub const ALL: [MappingClass; 9] = [
        MappingClass::Allocator,
        MappingClass::PythonArena,
        MappingClass::ThreadStack,
        MappingClass::File,
        MappingClass::Library,
        MappingClass::Shared,
        MappingClass::Pinned,
        MappingClass::Managed,
        MappingClass::Other,
    ];

    /// Returns whether a program maps it for its own data.
    pub const fn is_of_program(self) -> bool {
        use MappingClass::{Managed, Other, Pinned, Shared};
        matches!(self, Other | Shared | Pinned | Managed)
    }

    /// Returns the name in reports, queries and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            MappingClass::Allocator => "allocator",
            MappingClass::PythonArena => "python arena",
            MappingClass::ThreadStack => "thread stack",
            MappingClass::File => "file",
            MappingClass::Library => "library",
            MappingClass::Shared => "shared",
            MappingClass::Pinned => "pinned",
            MappingClass::Managed => "managed",
            MappingClass::Other => "other",
        }
    }
}

/// Sums over all mappings of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MappedTotals {
    /// Sums over all sites of mappings, with the peak of mapped bytes; of joined processes, the sum
    /// of their peaks.
    pub totals: Measures,
    /// When the peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// Sums by class; only classes that occur.
    pub classes: Vec<(MappingClass, Measures)>,
    /// Number of process images with mappings: of several, peaks need not be at one time.
    pub images: u32,
}
