//! Accounts of resident memory: what the kernel, the allocator and the recorder know about the
//! process's memory at one moment.
//!
//! An extent of [`crate::Kind::Accounts`] holds one account: an [`Account`], then one
//! [`AccountRange`] for each mapping with resident pages. Extents are written anew when there are
//! many accounts. While that happens `committed` is 0; an account read across such a moment has
//! numbers that differ.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ranges that an account holds at most; the others are summed up.
pub const ACCOUNT_RANGES: usize = 16 << 10;

/// [`Account::cause`]: a sample of the timeline.
pub const ACCOUNT_SAMPLE: u32 = 1;
/// Live bytes were at a new high.
pub const ACCOUNT_PEAK: u32 = 2;
/// The process ended.
pub const ACCOUNT_END: u32 = 3;

/// [`Account::missing`]: the program forbade itself system calls, so there are no accounts from
/// then on.
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
/// The recorder's own memory, the mapped profile and its library included.
pub const RANGE_RECORDER: u32 = 16;
/// The stack of a thread that has a lane: `lane` is its index.
pub const RANGE_STACK: u32 = 32;
/// A short mapping without any right lies directly below, as it does below thread stacks.
pub const RANGE_GUARDED: u32 = 64;
/// A recorded block begins in it.
pub const RANGE_BLOCKS: u32 = 128;

/// [`Account::source`]: glibc's `mallinfo2`.
pub const HEAP_GLIBC: u32 = 1;
/// jemalloc's `stats.*`.
pub const HEAP_JEMALLOC: u32 = 2;
/// mimalloc's `mi_process_info`.
pub const HEAP_MIMALLOC: u32 = 3;

/// The process's memory at one moment; its ranges follow. Values that are not known are 0.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Account {
    /// Number of the account, counted over the process from 1.
    pub number: u64,
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// One of the `ACCOUNT_` causes.
    pub cause: u32,
    /// Why there are no numbers, `ACCOUNT_CONFINED` or `ACCOUNT_NO_PROC`; else 0.
    pub missing: u32,
    /// Ranges that follow.
    pub ranges: u32,
    /// Further ranges with resident pages, which had no room.
    pub ranges_left_out: u32,
    /// Resident bytes of the process, summed over all of its ranges.
    pub resident_bytes: u64,
    /// Bytes of it in the ranges left out.
    pub left_out_bytes: u64,
    /// Bytes in swap, summed over all ranges.
    pub swap_bytes: u64,
    /// Bytes of address space of ranges without resident pages, the recorder's left out.
    pub absent_bytes: u64,
    /// Resident bytes by `/proc/self/statm`, which the kernel counts apart.
    pub statm_bytes: u64,
    /// Bytes of page tables (`VmPTE`), which no resident bytes include.
    pub page_table_bytes: u64,
    /// Highest resident bytes so far (`VmHWM`).
    pub most_resident_bytes: u64,
    /// Usable bytes live.
    pub live_bytes: u64,
    /// Peak usage so far, in usable bytes.
    pub peak_bytes: u64,
    /// Bytes of recorded mappings that are live, in whole pages.
    pub mapped_bytes: u64,
    /// Bytes requested so far.
    pub requested_bytes: u64,
    /// Usable bytes allocated so far.
    pub usable_bytes: u64,
    /// Bytes taken from the system: of glibc those of arenas (`arena`), of jemalloc resident ones
    /// (`stats.resident`), of mimalloc committed ones.
    pub arena_bytes: u64,
    /// Bytes of that in use: `uordblks`, headers included; `stats.allocated`; 0 of mimalloc.
    pub arena_used_bytes: u64,
    /// Free bytes of that: `fordblks`; of jemalloc the rest without `stats.metadata`; 0 of
    /// mimalloc.
    pub arena_free_bytes: u64,
    /// Bytes of glibc's blocks that are mappings of their own (`hblkhd`).
    pub mapped_block_bytes: u64,
    /// Which allocator's these four are, one of the `HEAP_` values; 0 if they are not known.
    pub source: u32,
    /// 0.
    pub reserved: u32,
    /// Nanoseconds that the account took.
    pub cost_ns: u64,
    /// `number` once more.
    pub number_again: u64,
}

/// A mapping of the process with resident pages, as `/proc/self/smaps` lists it.
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
    /// KiB of it that are private and changed.
    pub private_dirty_kib: u32,
    /// KiB in swap.
    pub swap_kib: u32,
    /// Some of the `RANGE_` bits.
    pub flags: u32,
    /// String: the file or the kernel's name of it; 0 if it has none.
    pub name: u32,
    /// With `RANGE_STACK`: the lane, by index.
    pub lane: u32,
    /// Site of the recorded mapping that it belongs to; 0 if there is none. With a site, `length`
    /// and the numbers are those of all parts that it has of one line of `smaps`.
    pub site: u32,
    /// The low 32 bits of its account's number.
    pub account: u32,
}

const _: () = assert!(size_of::<Account>() == 184);
const _: () = assert!(size_of::<AccountRange>() == 48);
