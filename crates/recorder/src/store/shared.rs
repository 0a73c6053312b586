//! The state of the store that all threads share.
//!
//! It lies in pages that the kernel wipes in a forked child: a child has no profile at first.

use crate::store::shadow;
use crate::sys::kernel::Errno;
use crate::sys::locked::Lock;
use crate::sys::wiped::Wiped;
use crate::sys::{clock, confined};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use heaptide_format::Loss;
use heaptide_format::shared::{FileHeader, Word};
use heaptide_unwind::cache::Slot;

/// The profile of this process image, and the tables beside it. Zero is: none yet.
#[repr(C)]
pub struct Store {
    /// Bytes of address space kept for it.
    pub reserved: AtomicU64,
    /// Bytes of the file that are backed by disk space.
    pub backed: AtomicU64,
    /// The profile's descriptor and identity.
    pub fd: AtomicI32,
    pub device: AtomicU64,
    pub inode: AtomicU64,
    /// Absolute path of the profile, ended by zero.
    pub path: AtomicPtr<u8>,
    /// Extents made.
    pub extents: AtomicU32,
    /// Growth failed this many times; it is not tried every time.
    pub growth_failures: AtomicU32,
    pub growth: Lock,
    /// Records in the making that the limit of the profile does not hold back.
    pub beyond_limit: AtomicU32,
    /// The node that stands for stacks that the limit holds back; 0 without a limit.
    pub unstored: AtomicU32,
    pub start_ns: AtomicU64,
    pub pid: AtomicU32,
    /// Address space is scarce: an RLIMIT_AS, or no overcommit.
    pub scarce: AtomicBool,
    pub rules_used: AtomicUsize,
    /// The profile, mapped; null before Active.
    pub base: AtomicPtr<u8>,
    /// The owner of every page of the profile that holds sites.
    pub owners: AtomicPtr<AtomicU32>,
    /// Pointer → site.
    pub shadow: shadow::Table,
    /// Pointer → usable size, of blocks whose allocator a front cannot ask; the front creates it.
    pub sizes: shadow::Table,
    /// Rules by pc: the newest table, and its entries in use.
    pub rules: AtomicPtr<Slot>,
    /// Counts every change of loaded code or of stack memory that kept state depends on.
    pub generation: AtomicU32,
}

// SAFETY: zero is a valid value of every field, and together they are a store without a profile.
static STORE: Wiped<Store, 1024> = unsafe { Wiped::new() };

/// The store of this process.
#[inline(always)]
pub fn store() -> &'static Store {
    STORE.get()
}

/// Makes a forked child begin without a profile.
///
/// Errors: the kernel's; one before 4.14 knows no such memory.
pub fn wipe_in_children() -> Result<(), Errno> {
    STORE.wipe_in_children()
}

/// In the word of an owner: blocks of its sites have a label, or are a pool's. Such sites lie on
/// pages of their own, so that a thread that frees need not look at the owner's half of a record.
pub const LABELLED: u32 = 1 << 31;

impl Store {
    /// The profile's header. Only while there is a profile ([`Store::has_profile`]).
    #[inline(always)]
    pub fn header(&self) -> &'static FileHeader {
        // SAFETY: the header is mapped as long as `base` is set, and any bytes are a value of it.
        unsafe { &*(self.base.load(Relaxed) as *const FileHeader) }
    }

    /// Whether there is a profile.
    pub fn has_profile(&self) -> bool {
        !self.base.load(Relaxed).is_null()
    }

    /// The header, if there is a profile.
    pub fn header_if_any(&self) -> Option<&'static FileHeader> {
        self.has_profile().then(|| self.header())
    }

    /// The word of the lane that owns a page of sites: its index, and [`LABELLED`] perhaps.
    #[inline(always)]
    pub fn owner_of_page(&self, page: u64) -> &'static AtomicU32 {
        // SAFETY: there is a word for every page of the reserved profile.
        unsafe { &*self.owners.load(Relaxed).wrapping_add(page as usize) }
    }

    /// Notes that the program was there at this time, in nanoseconds since the recording's start.
    pub fn note_time(&self, now_ns: u64) {
        if let Some(header) = self.header_if_any() {
            header.last_seen_ns.fetch_max(now_ns, Relaxed);
        }
    }

    /// Counts a loss, if there is a profile to count it in.
    #[cold]
    pub fn lost(&self, what: Loss) {
        if let Some(header) = self.header_if_any() {
            header.losses[what as usize].fetch_add(1, Relaxed);
        }
    }

    /// Nanoseconds since the recording's start. A confined guest may not be allowed to read a clock
    /// (not even the time stamp counter): then the last time known.
    pub fn now(&self) -> u64 {
        match self.header_if_any() {
            Some(header) if !confined::may_call() => header.last_seen_ns.get(),
            _ => clock::monotonic_ns().saturating_sub(self.start_ns.load(Relaxed)),
        }
    }
}
