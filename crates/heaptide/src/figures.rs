//! Figures by value: of the process, a thread, a scope, a window, a measurement.

use crate::interface;

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

/// Figures of the whole process since it began, or since the last [reset](crate::reset).
///
/// ```
/// let before = heaptide::totals();
/// let block = vec![0u8; 1000];
/// let after = heaptide::totals();
/// if heaptide::recording() {
///     assert!(after.requested_bytes >= before.requested_bytes + 1000);
/// } else {
///     assert_eq!(after, heaptide::Figures::default());
/// }
/// # drop(block);
/// ```
pub fn totals() -> Figures {
    interface::totals()
}

/// Figures of the calling thread.
///
/// ```
/// let before = heaptide::thread_figures();
/// drop(vec![0u8; 1000]);
/// let frees = heaptide::thread_figures().frees - before.frees;
/// assert_eq!(frees, if heaptide::recording() { 1 } else { 0 });
/// ```
pub fn thread_figures() -> Figures {
    interface::thread()
}

/// Blocks of the whole process by size.
///
/// ```
/// let sizes = heaptide::histograms();
/// assert!(heaptide::recording() || sizes == heaptide::Histograms::default());
/// ```
pub fn histograms() -> Histograms {
    interface::histograms()
}

/// Runs a closure and tells what it allocated and freed on this thread.
///
/// Measurements may be nested; the outer one includes the inner. What other threads do meanwhile
/// is not in it: for that there are [windows](crate::Window).
///
/// ```
/// let (text, figures) = heaptide::measure(|| String::from("a text of its own"));
/// if heaptide::recording() {
///     assert_eq!((figures.allocations, figures.frees), (1, 0));
///     assert_eq!(figures.requested_bytes, text.len() as u64);
/// }
/// ```
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Figures) {
    interface::measure(work)
}
