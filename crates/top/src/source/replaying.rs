//! Reads a recording for its replay, in a separate thread.

use std::io;
use std::thread;

use super::images::{Prepare, no_rows};
use super::replay::Replay;
use super::update::{Reports, Update};
use crate::model::app::Image;

/// Reads a recording and sends it to `reports`.
///
/// Errors: the thread cannot be created.
pub(crate) fn start<T: Send + 'static>(
    image: &Image,
    prepare: &Prepare,
    reports: &Reports<T>,
) -> io::Result<()> {
    let (file, prepare, reports) = (image.file.clone(), prepare.clone(), reports.clone());
    let read = move || {
        let progress = |line: String| reports.send(Update::Progress(line));
        reports.send(match Replay::read(&file, &prepare, &progress) {
            Ok(replay) if !replay.has_rows => Update::Failed(no_rows(&file)),
            Ok(replay) => Update::Replay(Box::new(replay)),
            Err(error) => Update::Failed(error.to_string()),
        });
    };
    thread::Builder::new().spawn(read)?;
    Ok(())
}
