//! Where numbers come from: a process that runs, or a recording that is replayed.

pub(crate) mod live;
pub(crate) mod replay;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use heaptide_analysis::Error;
use heaptide_analysis::model::{Process, Sample};
use heaptide_analysis::recording::images;

use crate::model::app::Image;
use crate::model::numbers::Moment;
use crate::model::tables::Tables;
use replay::Replay;

/// Applies rules and filters of the command line to a process that was read.
pub type Prepare = Arc<dyn Fn(&mut Process) + Send + Sync>;

/// What a source has to report.
pub(crate) enum Update {
    /// What is being done before there is anything to show.
    Progress(String),
    Tables(Box<Tables>),
    Moment(Moment),
    Samples(Vec<Sample>),
    /// The process is over, and how.
    Ended(String),
    /// The process became another program.
    Replaced(Image),
    Replay(Box<Replay>),
    Images(Vec<Image>),
    /// What became of a request.
    Answer(String),
    /// Nothing can be shown.
    Failed(String),
}

/// Reports to the screen. Those of a source that is not shown any more are told by their number.
pub(crate) struct Reports<T> {
    sender: Sender<T>,
    wrap: fn(u32, Update) -> T,
    number: u32,
}

impl<T> Clone for Reports<T> {
    fn clone(&self) -> Reports<T> {
        Reports { sender: self.sender.clone(), ..*self }
    }
}

impl<T> Reports<T> {
    /// Reports of the source with this number.
    pub(crate) fn new(sender: Sender<T>, wrap: fn(u32, Update) -> T, number: u32) -> Reports<T> {
        Reports { sender, wrap, number }
    }

    /// Reports something; nothing if the screen is gone.
    pub(crate) fn send(&self, update: Update) {
        let _ = self.sender.send((self.wrap)(self.number, update));
    }
}

/// The images of a recording, those that run first.
pub(crate) fn list(recording: &Path) -> Result<Vec<Image>, Error> {
    let mut images: Vec<Image> = images::of_recording(recording)?
        .into_iter()
        .map(|image| Image {
            file: image.file,
            pid: image.pid,
            image: image.image,
            program: image.program,
            is_running: image.is_running,
            peak_bytes: image.peak_bytes,
        })
        .collect();
    images.sort_by_key(|image| !image.is_running);
    Ok(images)
}

/// Why a recording without sites cannot be shown.
pub(crate) fn no_rows(file: &Path) -> String {
    let file = heaptide_analysis::text::of_path(file);
    format!(
        "{file}: recorded with --mode counters, so there are no rows to show; \
         use `heaptide report --by thread`"
    )
}
