//! Windows, marks and snapshots of the whole process.

use crate::figures::Figures;
use crate::interface;

/// A named interval of the whole process, with a peak of its own. Dropping it on any thread ends
/// it. Windows may overlap; up to 64 can be open.
///
/// ```
/// let window = heaptide::Window::begin("event loop");
/// let events: Vec<String> = (0..10).map(|i| format!("event {i}")).collect();
/// drop(events);
/// if let Some(figures) = window.end() {
///     assert!(figures.allocations >= 11);
/// }
/// ```
#[must_use = "the window ends when it is dropped"]
#[derive(Debug)]
pub struct Window {
    /// 0 if it could not be opened.
    number: u32,
}

impl Window {
    /// Opens a window.
    pub fn begin(name: &str) -> Window {
        Window { number: interface::window_begin(name) }
    }

    /// Returns its number in the profile, from 1; 0 if it could not be opened.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns its counters so far; `None` if it could not be opened.
    pub fn figures(&self) -> Option<Figures> {
        interface::window_figures(self.number)
    }

    /// Ends the window and returns its counters; `None` if it could not be opened.
    pub fn end(mut self) -> Option<Figures> {
        interface::window_end(std::mem::take(&mut self.number))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.number != 0 {
            interface::window_end(self.number);
        }
    }
}

/// Records a mark: a named point in time.
///
/// ```
/// heaptide::mark("configuration read");
/// ```
pub fn mark(name: &str) {
    interface::mark(name);
}

/// Writes a copy of the current profile next to it, and records the time. Returns the number of the
/// snapshot, from 1; `None` if it could not be written.
///
/// ```
/// if let Some(number) = heaptide::snapshot("after loading") {
///     println!("snapshot {number} was written");
/// }
/// ```
pub fn snapshot(name: &str) -> Option<u32> {
    Some(interface::snapshot(name)).filter(|number| *number != 0)
}
