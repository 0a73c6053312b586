//! Accounts of resident memory: what kernel, allocator and recorder know of it at a moment.

use std::sync::Arc;

use super::mapping::MappingClass;

/// The memory of a process at one moment. Bytes; what is not known is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// When it was taken.
    pub cause: AccountCause,
    /// Why it has no numbers.
    pub missing: Option<AccountMissing>,
    /// Resident memory, summed over all mappings.
    pub resident_bytes: u64,
    /// The part of it in mappings that are not in `ranges`, and how many these are.
    pub left_out_bytes: u64,
    /// See `left_out_bytes`.
    pub left_out_ranges: u32,
    /// In swap.
    pub swap_bytes: u64,
    /// Address space of mappings without resident pages.
    pub absent_bytes: u64,
    /// Page tables, which no resident memory includes.
    pub page_table_bytes: u64,
    /// Highest resident memory so far, whenever that was.
    pub most_resident_bytes: u64,
    /// Usable bytes live, as recorded.
    pub live_bytes: u64,
    /// Peak usage so far.
    pub peak_bytes: u64,
    /// Live bytes of recorded mappings, in whole pages.
    pub mapped_bytes: u64,
    /// Requested so far, in all.
    pub requested_bytes: u64,
    /// Usable bytes allocated so far, in all.
    pub usable_bytes: u64,
    /// The allocator's own numbers, where it has them.
    pub allocator: Option<AllocatorState>,
    /// Mappings with resident pages, in order of their addresses.
    pub ranges: Vec<AccountRange>,
}

/// When an account was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccountCause {
    /// At a sample of the timeline.
    #[default]
    Sample,
    /// At a new peak.
    Peak,
    /// At the end of the process.
    End,
    /// When a command looked at the process, which runs.
    Now,
}

/// Why an account has no numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountMissing {
    /// The program confined itself by seccomp.
    Confined,
    /// `/proc/self/smaps` could not be read.
    NoProc,
}

/// What an allocator returns about its memory, in bytes; what it does not know is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocatorState {
    /// Where the numbers are from.
    pub source: AllocatorSource,
    /// Arenas; of jemalloc resident memory, of mimalloc committed memory.
    pub arena_bytes: u64,
    /// In use of that, glibc's headers included.
    pub used_bytes: u64,
    /// Free of that. What is neither used nor free are tables of the allocator.
    pub free_bytes: u64,
    /// glibc's blocks that are mappings of their own.
    pub mapped_bytes: u64,
}

/// Where numbers of an allocator are from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AllocatorSource {
    /// glibc's `mallinfo2`.
    #[default]
    Glibc,
    /// jemalloc's `stats.*`.
    Jemalloc,
    /// mimalloc's `mi_process_info`.
    Mimalloc,
}

impl AllocatorSource {
    /// Its name in JSON and in texts.
    pub const fn name(self) -> &'static str {
        match self {
            AllocatorSource::Glibc => "mallinfo2",
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
    /// Some of the `RANGE_` bits of the format.
    pub flags: u32,
    /// Its file or the kernel's name of it; empty if it has none.
    pub name: Arc<str>,
    /// The name of the thread whose stack it is.
    pub thread: Option<Arc<str>>,
    /// The recorded mappings of one site that it consists of; none if they were not recorded.
    pub mapping: Option<RangeMapping>,
}

/// What is known of recorded mappings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeMapping {
    /// What they are for.
    pub class: MappingClass,
    /// The function that made them, allocators left out, with its module in brackets; without names
    /// the module alone. None without a stack.
    pub caller: Option<Arc<str>>,
}

impl Account {
    /// The numbers of glibc's allocator, if it is the one of the process.
    pub fn glibc(&self) -> Option<AllocatorState> {
        self.allocator.filter(|state| state.source == AllocatorSource::Glibc)
    }
}

impl AccountRange {
    /// Whether it has this flag.
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}
