//! Updates from sources to the screen.

use std::sync::mpsc::Sender;

use heaptide_analysis::model::Sample;

use super::replay::Replay;
use crate::model::app::Image;
use crate::model::numbers::Moment;
use crate::model::tables::Tables;

/// An update from a source.
pub(crate) enum Update {
    /// The current activity, before there is anything to show.
    Progress(String),
    Tables(Box<Tables>),
    Moment(Moment),
    Samples(Vec<Sample>),
    /// The process has ended, and how.
    Ended(String),
    /// The process executed another program.
    Replaced(Image),
    Replay(Box<Replay>),
    Images(Vec<Image>),
    /// The result of a request.
    Answer(String),
    /// Nothing can be shown, and why.
    Failed(String),
}

/// Sends updates to the screen. Its number identifies updates of a source that is no longer shown.
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
    /// Creates it for the source with this number.
    pub(crate) fn new(sender: Sender<T>, wrap: fn(u32, Update) -> T, number: u32) -> Reports<T> {
        Reports { sender, wrap, number }
    }

    /// Sends an update; does nothing if the screen has ended.
    pub(crate) fn send(&self, update: Update) {
        let _ = self.sender.send((self.wrap)(self.number, update));
    }
}
