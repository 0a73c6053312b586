//! Plain structs of counters.

/// Counters of allocations, and sums of their bytes.
///
/// All are zero in a process without the recorder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Figures {
    /// Successful allocations; each realloc counts as one.
    pub allocations: u64,
    /// Freed blocks; each realloc counts as one.
    pub frees: u64,
    /// Successful reallocs.
    pub reallocations: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Usable bytes of these allocations.
    pub usable_bytes: u64,
    /// Usable bytes freed.
    pub freed_bytes: u64,
    /// Live blocks; for a window or measurement the change, which may be negative.
    pub live_blocks: i64,
    /// Live usable bytes; for a window or measurement the change, which may be negative.
    pub live_bytes: i64,
    /// Highest live bytes of the process, in a window while it was open. For a measurement, the
    /// largest rise of this thread over the start. 0 for a scope.
    pub peak_bytes: u64,
    /// The largest request in bytes; 0 if unknown (windows).
    pub largest_bytes: u64,
}

/// Number of size classes: one per number of significant bits from 0 to 64.
pub const SIZE_CLASSES: usize = 65;

/// Numbers of blocks by size: class `b` counts sizes of `b` significant bits (0, 1, 2 to 3, 4 to 7,
/// …).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Histograms {
    /// Allocations by requested bytes.
    pub requested: [u64; SIZE_CLASSES],
    /// Allocations by usable bytes.
    pub usable: [u64; SIZE_CLASSES],
    /// Frees by usable bytes.
    pub freed: [u64; SIZE_CLASSES],
}

impl Default for Histograms {
    fn default() -> Self {
        let none = [0; SIZE_CLASSES];
        Histograms { requested: none, usable: none, freed: none }
    }
}

impl Histograms {
    /// Returns the class that counts blocks of this size, which is its number of significant bits.
    ///
    /// ```
    /// assert_eq!(heaptide::Histograms::class_of(0), 0);
    /// assert_eq!(heaptide::Histograms::class_of(1000), 10);
    /// ```
    pub const fn class_of(bytes: usize) -> usize {
        (usize::BITS - bytes.leading_zeros()) as usize
    }
}

/// Memory of the process as reported by the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Bytes in RAM.
    pub resident_bytes: u64,
    /// Bytes of address space, without those reserved by the recorder.
    pub virtual_bytes: u64,
}
