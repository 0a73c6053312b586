//! Processes that wait at their end until a command has searched their memory.

use std::mem::offset_of;
use std::path::Path;
use std::time::{Duration, Instant};

use heaptide_analysis::recording::running::Running;
use heaptide_format::{FileHeader, SEARCH_AWAITED, SEARCH_DONE};

use crate::control::Control;
use crate::error::Error;
use crate::profiles::{Ends, Listing, Writer};

/// Interval of checks for ended processes.
const ENDS: Duration = Duration::from_millis(500);

/// Notices which processes of a recording wait.
#[derive(Debug)]
pub struct Awaiting {
    listing: Listing,
    images: Vec<Image>,
    ends: Ends,
    next_ends: Instant,
}

#[derive(Debug)]
struct Image {
    control: Control,
    writer: Writer,
}

/// A process that waits.
#[derive(Debug)]
pub struct Waiting<'a> {
    control: &'a Control,
    /// The process.
    pub running: Running,
    /// The thread that waits, by the number that the program sees.
    pub thread: u32,
    /// Its highest live bytes.
    pub peak_bytes: u64,
    /// The time, nanoseconds from the start of the recording.
    pub now_ns: u64,
    /// Whether its exit handlers have not begun: its Python interpreter begins to end.
    pub is_before_exit: bool,
}

impl Awaiting {
    /// Begins with the processes of a recording.
    pub fn new(recording: &Path) -> Awaiting {
        Awaiting {
            listing: Listing::new(recording),
            images: Vec::new(),
            ends: Ends::new(recording),
            next_ends: Instant::now() + ENDS,
        }
    }

    /// Returns the processes that wait now.
    pub fn look(&mut self) -> impl Iterator<Item = Waiting<'_>> {
        let images = &mut self.images;
        self.listing.look_for_more(|profile| {
            let running = Running { pid: 0, file: profile.to_owned() };
            let control = Control::open(&running).ok()?;
            let pid = control.header().ok()?.pid;
            images.push(Image { control, writer: Writer::of(profile, pid) });
            Some(())
        });
        if Instant::now() >= self.next_ends {
            self.next_ends = Instant::now() + ENDS;
            let all = std::mem::take(&mut self.images);
            self.images = self.ends.divide(all, |image| &image.writer).1;
        }
        let ends = &mut self.ends;
        self.images.iter().filter_map(|image| {
            let header = image.control.header().ok()?;
            (header.search == SEARCH_AWAITED).then_some(())?;
            let mut running = image.writer.running.clone();
            if !image.writer.pid_is_known {
                ends.search_again();
                let found = ends.search()?.into_iter().find(|found| found.file == running.file)?;
                running.pid = found.pid;
            }
            Some(Waiting {
                control: &image.control,
                running,
                thread: header.search_thread,
                peak_bytes: header.peak_bytes,
                now_ns: image.control.now_ns(),
                is_before_exit: header.end_time_ns == 0,
            })
        })
    }
}

impl Drop for Awaiting {
    /// Lets all processes end without a search.
    fn drop(&mut self) {
        for image in &self.images {
            let _ = image.control.store(offset_of!(FileHeader, search), SEARCH_DONE);
        }
    }
}

impl Waiting<'_> {
    /// Shows the process that a command is there.
    ///
    /// Errors: the profile cannot be written.
    pub fn beat(&self) -> Result<(), Error> {
        let beats = self.control.header()?.search_beats.wrapping_add(1);
        self.control.store(offset_of!(FileHeader, search_beats), beats)
    }

    /// Lets the process end.
    ///
    /// Errors: the profile cannot be written.
    pub fn release(&self) -> Result<(), Error> {
        self.control.store(offset_of!(FileHeader, search), SEARCH_DONE)
    }
}
