//! Counters of the process, a thread and a measurement.

use crate::figures::{Figures, Histograms, ProcessMemory};
use crate::interface;

/// Returns the counters of the whole process since its start or last [reset](crate::reset).
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

/// Returns the counters of the calling thread.
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

/// Returns numbers of blocks of the whole process by size.
///
/// ```
/// let sizes = heaptide::histograms();
/// assert!(heaptide::recording() || sizes == heaptide::Histograms::default());
/// ```
pub fn histograms() -> Histograms {
    interface::histograms()
}

/// Runs a closure and returns the counters of its allocations and frees on this thread.
///
/// Measurements may be nested; the outer one includes the inner. Other threads are not included;
/// for these there are [windows](crate::Window).
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

/// Returns the memory of the process as reported by the kernel; zeros without the recorder.
pub fn process_memory() -> ProcessMemory {
    interface::process_memory()
}
