//! The state of the store that all threads share. It lies in pages that the kernel wipes in a
//! forked child, so a child starts without a profile.

use crate::store::shadow;
use crate::sys::locked::Lock;
use crate::sys::wiped::Wiped;
use crate::sys::{clock, confined, kernel, memory};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use heaptide_format::Loss;
use heaptide_format::shared::{FileHeader, Word};
use heaptide_unwind::cache::Slot;

/// The profile of this process image, and its tables. All zeros: none yet.
#[repr(C)]
pub struct Store {
    /// Address space reserved for the profile, in bytes.
    pub reserved: AtomicU64,
    /// Bytes of the file that are backed by disk space.
    pub backed: AtomicU64,
    /// The profile's descriptor and identity.
    pub fd: AtomicI32,
    pub device: AtomicU64,
    pub inode: AtomicU64,
    /// Absolute path of the profile, ended by zero.
    pub path: AtomicPtr<u8>,
    /// Number of extents created.
    pub extents: AtomicU32,
    /// Number of attempts to grow the file since the last success; most are not carried out.
    pub growth_failures: AtomicU32,
    pub growth: Lock,
    /// Number of records being created that the limit of the profile does not hold back.
    pub beyond_limit: AtomicU32,
    /// The node for stacks that the limit holds back; 0 without a limit.
    pub unstored: AtomicU32,
    /// Number of scope paths of all lanes.
    pub scopes: AtomicUsize,
    pub start_ns: AtomicU64,
    pub pid: AtomicU32,
    /// Set if address space is scarce: there is an RLIMIT_AS, or no overcommit.
    pub scarce: AtomicBool,
    pub rules_used: AtomicUsize,
    /// The profile, mapped; null before Active.
    pub base: AtomicPtr<u8>,
    /// The owner of each page of the profile that holds sites.
    pub owners: AtomicPtr<AtomicU32>,
    /// Maps pointers to sites.
    pub shadow: shadow::Table,
    /// Maps pointers to usable sizes, of blocks for which the front cannot ask an allocator. The
    /// front creates it.
    pub sizes: shadow::Table,
    /// Rules by pc: the newest table, and the number of its entries in use.
    pub rules: AtomicPtr<Slot>,
    /// Counts changes of loaded code and stack memory that kept state depends on.
    pub generation: AtomicU32,
}

// SAFETY: all zeros is a valid value: a store without a profile.
#[unsafe(link_section = ".bss.wiped")]
static STORE: Wiped<Store, 1024> = unsafe { Wiped::new() };

/// Returns the store of this process.
#[inline(always)]
pub fn store() -> &'static Store {
    STORE.get()
}

/// Makes forked children start without a profile.
///
/// Errors: those of the kernel; kernels before 4.14 do not support such memory.
pub fn wipe_in_children() {
    STORE.wipe_in_children();
}

/// A bit of an owner word: blocks of the sites have a label, or belong to a pool. Such sites lie on
/// pages of their own, so that a thread that frees a block need not read the owner's half of a
/// record.
pub const LABELLED: u32 = 1 << 31;

impl Store {
    /// Returns resident bytes of the process, and virtual bytes without those that the recorder has
    /// reserved; 0 if unknown.
    pub fn memory_of_process(&self) -> (u64, u64) {
        let size = if confined::may_call() { kernel::memory_size() } else { None };
        let own = memory::reserved() + self.reserved.load(Relaxed);
        size.map_or((0, 0), |size| (size.resident, size.all.saturating_sub(own)))
    }

    /// Returns the profile's header. May only be called while there is a profile
    /// ([`Store::has_profile`]).
    #[inline(always)]
    pub fn header(&self) -> &'static FileHeader {
        // SAFETY: the header is mapped as long as `base` is set, and any bytes are a valid value.
        unsafe { &*(self.base.load(Relaxed) as *const FileHeader) }
    }

    /// Returns whether there is a profile.
    pub fn has_profile(&self) -> bool {
        !self.base.load(Relaxed).is_null()
    }

    /// Returns the header, if there is a profile.
    pub fn header_if_any(&self) -> Option<&'static FileHeader> {
        self.has_profile().then(|| self.header())
    }

    /// Returns the owner word of a page of sites: the lane's index, perhaps with [`LABELLED`].
    #[inline(always)]
    pub fn owner_of_page(&self, page: u64) -> &'static AtomicU32 {
        // SAFETY: there is a word for each page of the reserved profile.
        unsafe { &*self.owners.load(Relaxed).wrapping_add(page as usize) }
    }

    /// Notes that the program was alive at a time, in nanoseconds since the recording's start.
    pub fn note_time(&self, now_ns: u64) {
        if let Some(header) = self.header_if_any() {
            header.last_seen_ns.fetch_max(now_ns, Relaxed);
        }
    }

    /// Counts a loss, if there is a profile.
    #[cold]
    pub fn lost(&self, what: Loss) {
        if let Some(header) = self.header_if_any() {
            header.losses[what as usize].fetch_add(1, Relaxed);
        }
    }

    /// Returns the nanoseconds since the recording's start. A confined guest may not be allowed to
    /// read a clock (not even the time stamp counter); then it is the last time known.
    pub fn now(&self) -> u64 {
        match self.header_if_any() {
            Some(header) if !confined::may_call() => header.last_seen_ns.get(),
            _ => clock::monotonic_ns().saturating_sub(self.start_ns.load(Relaxed)),
        }
    }
}
