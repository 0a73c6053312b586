//! Reports files of recordings that cannot be read, each once per command.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use heaptide_analysis::model::DamagedFile;
use heaptide_analysis::quantity::counted;

use crate::message::message;

/// The most files of a recording that get a line each.
const SHOWN: usize = 5;

/// Files reported so far, because some commands read a recording several times.
static REPORTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Where the output of a command lists unreadable files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Listed {
    /// Not in the output: they are reported.
    #[default]
    Nowhere,
    /// In the output: they are reported unless both go to the terminal.
    InOutput,
}

/// Reports the unreadable files of a recording, each with the reason, which contains the path.
pub fn report(recording: &Path, damaged: &[DamagedFile]) {
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = |file: &PathBuf| file.canonicalize().unwrap_or_else(|_| file.clone());
    let new = damaged.iter().filter(|file| reported.insert(whole(&file.path)));
    let new: Vec<&String> = new.map(|file| &file.reason).collect();
    for reason in new.iter().take(SHOWN) {
        message(format_args!("skipped: {reason}"));
    }
    let recording = recording.display();
    match new.len().saturating_sub(SHOWN) {
        0 => {}
        more => message(format_args!(
            "{recording}: skipped {}; `heaptide info {recording}` lists them",
            counted(more as u64, "more unreadable file")
        )),
    }
}
