//! Accounts of resident memory: the knowledge of the kernel, the allocator and the recorder about
//! the process's memory at one time.
//!
//! An extent of [`crate::Kind::Accounts`] holds one account: an [`Account`], then one
//! [`AccountRange`] per mapping with resident pages. When there are many accounts, extents are
//! reused. During that `committed` is 0; if an account is read meanwhile, its `number`,
//! `number_again` and the numbers in its ranges differ.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most ranges in an account; further ones are summed.
pub const ACCOUNT_RANGES: usize = 16 << 10;

/// [`Account::cause`]: a sample of the timeline.
pub const ACCOUNT_SAMPLE: u32 = 1;
/// Live bytes reached a new maximum, or became resident while they were about as high.
pub const ACCOUNT_PEAK: u32 = 2;
/// The process ended.
pub const ACCOUNT_END: u32 = 3;

/// Live and mapped bytes are about as high as the highest if they are lower by at most one part in
/// this. Of accounts about as high, the one with the most resident bytes shows the peak.
pub const ACCOUNT_HELD_PART: u64 = 32;

/// [`Account::missing`]: the program restricted its own system calls (seccomp), so there are no
/// accounts from then on.
pub const ACCOUNT_CONFINED: u32 = 1;
/// `/proc/self/smaps` could not be read.
pub const ACCOUNT_NO_PROC: u32 = 2;

/// [`AccountRange::flags`]: pages may be read.
pub const RANGE_READ: u32 = 1;
/// Pages may be written.
pub const RANGE_WRITE: u32 = 2;
/// Pages may be executed.
pub const RANGE_EXECUTE: u32 = 4;
/// The mapping is shared.
pub const RANGE_SHARED: u32 = 8;
/// The recorder's own memory, including the mapped profile and its library.
pub const RANGE_RECORDER: u32 = 16;
/// The stack of a thread that has a lane, with index `lane`.
pub const RANGE_STACK: u32 = 32;
/// A short mapping without permissions is directly below, like the guard page of thread stacks.
pub const RANGE_GUARDED: u32 = 64;
/// A recorded block starts in it.
pub const RANGE_BLOCKS: u32 = 128;

/// [`Account::source`]: the arenas of glibc.
pub const HEAP_GLIBC: u32 = 1;
/// jemalloc's `stats.*`.
pub const HEAP_JEMALLOC: u32 = 2;
/// mimalloc's `mi_process_info`.
pub const HEAP_MIMALLOC: u32 = 3;

/// The process's memory at one time, followed by its ranges. Unknown values are 0.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Account {
    /// Number of the account, counted per process from 1.
    pub number: u64,
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// One of the `ACCOUNT_` causes.
    pub cause: u32,
    /// Why there are no numbers, `ACCOUNT_CONFINED` or `ACCOUNT_NO_PROC`; else 0.
    pub missing: u32,
    /// Number of ranges that follow.
    pub ranges: u32,
    /// Number of further ranges with resident pages, for which there was no space.
    pub ranges_left_out: u32,
    /// Resident bytes of the process, summed over all of its ranges.
    pub resident_bytes: u64,
    /// Bytes of those in the omitted ranges.
    pub left_out_bytes: u64,
    /// Bytes in swap, summed over all ranges.
    pub swap_bytes: u64,
    /// Bytes of address space of ranges without resident pages, except the recorder's.
    pub absent_bytes: u64,
    /// Resident bytes according to `/proc/self/statm`, which the kernel counts separately.
    pub statm_bytes: u64,
    /// Bytes of page tables (`VmPTE`), which are not part of resident bytes.
    pub page_table_bytes: u64,
    /// Highest resident bytes so far (`VmHWM`).
    pub most_resident_bytes: u64,
    /// Live usable bytes.
    pub live_bytes: u64,
    /// Peak usage so far, in usable bytes.
    pub peak_bytes: u64,
    /// Live bytes of recorded mappings, in whole pages.
    pub mapped_bytes: u64,
    /// Bytes requested so far.
    pub requested_bytes: u64,
    /// Usable bytes allocated so far.
    pub usable_bytes: u64,
    /// Bytes that the allocator took from the system: in glibc those of arenas (`arena`), in
    /// jemalloc resident bytes (`stats.resident`), in mimalloc committed bytes.
    pub arena_bytes: u64,
    /// Bytes of those in use: `uordblks`, including headers; `stats.allocated`; 0 for mimalloc.
    pub arena_used_bytes: u64,
    /// Free bytes of those: `fordblks`; in jemalloc the rest without `stats.metadata`; 0 for
    /// mimalloc.
    pub arena_free_bytes: u64,
    /// Bytes of glibc's blocks that are mappings of their own (`hblkhd`).
    pub mapped_block_bytes: u64,
    /// The allocator with these four values, one of the `HEAP_` constants; 0 if they are unknown.
    pub source: u32,
    /// 0.
    pub reserved: u32,
    /// Nanoseconds spent to take the account.
    pub cost_ns: u64,
    /// Copy of `number`.
    pub number_again: u64,
}

/// A mapping of the process with resident pages, from `/proc/self/smaps`.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct AccountRange {
    /// First address.
    pub start: u64,
    /// Bytes of address space.
    pub length: u64,
    /// KiB resident.
    pub resident_kib: u32,
    /// KiB of those that are private and modified.
    pub private_dirty_kib: u32,
    /// KiB in swap.
    pub swap_kib: u32,
    /// Some of the `RANGE_` bits.
    pub flags: u32,
    /// String: the file, or the kernel's name for the mapping; 0 if it has none.
    pub name: u32,
    /// With `RANGE_STACK`: the lane, by index.
    pub lane: u32,
    /// Site of the recorded mapping that contains it; 0 if there is none. With a site, `length` and
    /// the numbers are sums over all of its parts in one line of `smaps`.
    pub site: u32,
    /// The low 32 bits of its account's number.
    pub account: u32,
}

const _: () = assert!(size_of::<Account>() == 184);
const _: () = assert!(size_of::<AccountRange>() == 48);
