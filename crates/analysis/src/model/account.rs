//! Accounts of resident memory: measurements of kernel, allocator and recorder at one time.

use std::sync::Arc;

use super::mapping::MappingClass;

/// The memory of a process at one time. Sizes are in bytes; unknown ones are 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Why it was taken.
    pub cause: AccountCause,
    /// Why it has no numbers; `None` if it has them.
    pub missing: Option<AccountMissing>,
    /// Resident memory, summed over all mappings.
    pub resident_bytes: u64,
    /// Resident memory in mappings that are not in `ranges`.
    pub left_out_bytes: u64,
    /// Number of these mappings.
    pub left_out_ranges: u32,
    /// In swap.
    pub swap_bytes: u64,
    /// Address space of mappings without resident pages.
    pub absent_bytes: u64,
    /// Page tables, which are not part of resident memory.
    pub page_table_bytes: u64,
    /// Highest resident memory since the start.
    pub most_resident_bytes: u64,
    /// Usable bytes live, as recorded.
    pub live_bytes: u64,
    /// Peak usage so far.
    pub peak_bytes: u64,
    /// Live bytes of recorded mappings, in whole pages.
    pub mapped_bytes: u64,
    /// Bytes requested so far.
    pub requested_bytes: u64,
    /// Usable bytes allocated so far.
    pub usable_bytes: u64,
    /// The allocator's own numbers, if it provides them.
    pub allocator: Option<AllocatorState>,
    /// Mappings with resident pages, in order of their addresses.
    pub ranges: Vec<AccountRange>,
}

/// Why an account was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccountCause {
    /// At a sample of the timeline.
    #[default]
    Sample,
    /// At a new peak.
    Peak,
    /// At the end of the process.
    End,
    /// Taken by a command while the process runs.
    Now,
}

/// Why an account has no numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountMissing {
    /// The program restricted its system calls with seccomp.
    Confined,
    /// `/proc/self/smaps` could not be read.
    NoProc,
}

/// Numbers of an allocator about its memory, in bytes; unknown ones are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocatorState {
    /// The function that returned the numbers.
    pub source: AllocatorSource,
    /// Memory in arenas; for jemalloc resident memory, for mimalloc committed memory.
    pub arena_bytes: u64,
    /// The used part of it, including headers of glibc.
    pub used_bytes: u64,
    /// The free part of it. The rest are tables of the allocator.
    pub free_bytes: u64,
    /// glibc's blocks that are mappings of their own.
    pub mapped_bytes: u64,
}

/// Source of the numbers of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AllocatorSource {
    /// The arenas of glibc; before version 0.3 `mallinfo2`.
    #[default]
    Glibc,
    /// jemalloc's `stats.*`.
    Jemalloc,
    /// mimalloc's `mi_process_info`.
    Mimalloc,
}

impl AllocatorSource {
    /// Returns the name in JSON and texts.
    pub const fn name(self) -> &'static str {
        match self {
            AllocatorSource::Glibc => "glibc",
            AllocatorSource::Jemalloc => "jemalloc",
            AllocatorSource::Mimalloc => "mimalloc",
        }
    }
}

/// A mapping with resident pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountRange {
    /// First address.
    pub start: u64,
    /// Bytes of address space.
    pub length: u64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// `RANGE_` bits of the format.
    pub flags: u32,
    /// The file, or the kernel's name of the mapping; empty if it has none.
    pub name: Arc<str>,
    /// Name of the thread whose stack it is.
    pub thread: Option<Arc<str>>,
    /// Class and caller of the recorded mappings of one site that the range consists of; `None` if
    /// they were not recorded.
    pub mapping: Option<RangeMapping>,
}

/// Class and caller of recorded mappings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeMapping {
    /// Their purpose.
    pub class: MappingClass,
    /// The function that made them, excluding allocators, with its module in brackets; without
    /// names only the module. `None` without a stack.
    pub caller: Option<Arc<str>>,
}

impl Account {
    /// Returns the numbers of glibc's allocator if the process uses that.
    pub fn glibc(&self) -> Option<AllocatorState> {
        self.allocator.filter(|state| state.source == AllocatorSource::Glibc)
    }
}

impl AccountRange {
    /// Returns whether the range has this flag.
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the address after the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}
