//! What sources report to the screen.

use std::sync::mpsc::Sender;

use heaptide_analysis::model::Sample;

use super::replay::Replay;
use crate::model::app::Image;
use crate::model::numbers::Moment;
use crate::model::tables::Tables;

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

/// Reports to the screen. Those of a source that is no longer shown are recognised by their number.
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
