//! Mappings: memory that a program, or the allocator in it, mapped by itself. They are a kind apart
//! from the blocks of the heap, with totals, a peak and sites of their own.

use super::measure::Measures;

/// What a mapping is, apart from its stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Mapping {
    /// What it is for.
    pub class: MappingClass,
    /// `PROT_` bits when it was made: 1 read, 2 write, 4 execute.
    pub protection: u8,
    /// `MAP_` bits when it was made.
    pub flags: u32,
}

/// What a mapping is for, as its flags, its file and its stack show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MappingClass {
    /// Taken by an allocator, to give out blocks.
    Allocator,
    /// An arena of CPython's own allocator.
    PythonArena,
    /// A thread's stack.
    ThreadStack,
    /// A file.
    File,
    /// A file whose code may be executed.
    Library,
    /// Memory shared between processes.
    Shared,
    /// None of these.
    Other,
}

impl MappingClass {
    /// All classes, in the order of reports.
    pub const ALL: [MappingClass; 7] = [
        MappingClass::Allocator,
        MappingClass::PythonArena,
        MappingClass::ThreadStack,
        MappingClass::File,
        MappingClass::Library,
        MappingClass::Shared,
        MappingClass::Other,
    ];

    /// Its name in reports, queries and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            MappingClass::Allocator => "allocator",
            MappingClass::PythonArena => "python arena",
            MappingClass::ThreadStack => "thread stack",
            MappingClass::File => "file",
            MappingClass::Library => "library",
            MappingClass::Shared => "shared",
            MappingClass::Other => "other",
        }
    }
}

/// What a process mapped in all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MappedTotals {
    /// Sums over all sites of mappings, with the peak of mapped bytes.
    pub totals: Measures,
    /// When the peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// Sums by class; only classes that occur.
    pub classes: Vec<(MappingClass, Measures)>,
}
