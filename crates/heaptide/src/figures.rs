//! Figures by value.

/// Counters of allocations and what they come to, by value.
///
/// All are zero in a process without the recorder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Figures {
    /// Successful allocations; a realloc is one.
    pub allocations: u64,
    /// Blocks freed; a realloc frees one.
    pub frees: u64,
    /// Successful reallocs.
    pub reallocations: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes that the allocator gave for them.
    pub usable_bytes: u64,
    /// Usable bytes freed.
    pub freed_bytes: u64,
    /// Blocks live now; of a window or measurement the change, which may be negative.
    pub live_blocks: i64,
    /// Usable bytes live now; of a window or measurement the change, which may be negative.
    pub live_bytes: i64,
    /// The highest live bytes: of the process, or while the window was open; of a measurement, how
    /// far this thread rose over the start. 0 for a scope.
    pub peak_bytes: u64,
    /// The largest request in bytes; 0 where it is not known (windows).
    pub largest_bytes: u64,
}

/// How many classes of sizes there are: 0 and one for each number of significant bits.
pub const SIZE_CLASSES: usize = 65;

/// Blocks by size: class `b` counts the sizes of `b` significant bits (0, 1, 2 to 3, 4 to 7, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Histograms {
    /// Allocations by the bytes asked for.
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
    /// The class that counts blocks of this size: its number of significant bits.
    ///
    /// ```
    /// assert_eq!(heaptide::Histograms::class_of(0), 0);
    /// assert_eq!(heaptide::Histograms::class_of(1000), 10);
    /// ```
    pub const fn class_of(bytes: usize) -> usize {
        (usize::BITS - bytes.leading_zeros()) as usize
    }
}

/// Memory of the process, as the kernel counts it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// In RAM.
    pub resident_bytes: u64,
    /// Of its address space, without what the recorder has reserved.
    pub virtual_bytes: u64,
}
