//! Windows, marks and snapshots: moments and stretches of the whole process.

use crate::figures::Figures;
use crate::interface;

/// A named stretch of the whole process, all threads, with a peak of its own. It ends when it is
/// dropped, on any thread. Windows may overlap; up to 64 can be open.
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
    /// 0: there is none.
    number: u32,
}

impl Window {
    /// Opens a window.
    pub fn begin(name: &str) -> Window {
        Window { number: interface::window_begin(name) }
    }

    /// Its number in the profile, from 1; 0 if it could not be opened.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its figures so far; none if it could not be opened.
    pub fn figures(&self) -> Option<Figures> {
        interface::window_figures(self.number)
    }

    /// Ends it, and tells its figures; none if it could not be opened.
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

/// Puts a mark on the timeline.
///
/// ```
/// heaptide::mark("configuration read");
/// ```
pub fn mark(name: &str) {
    interface::mark(name);
}

/// Writes a copy of the profile beside it, as it is now, and marks the timeline. The snapshot's
/// number, from 1; none if it could not be written.
///
/// ```
/// if let Some(number) = heaptide::snapshot("after loading") {
///     println!("snapshot {number} was written");
/// }
/// ```
pub fn snapshot(name: &str) -> Option<u32> {
    Some(interface::snapshot(name)).filter(|number| *number != 0)
}
