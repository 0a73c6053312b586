//! Which blocks of a program were lost when it ended: what a search of its memory found then.

use std::path::Path;

use super::parsed::{Lost, Profile};
use super::retained::{AtEnd, path_of};
use crate::files::file_names;
use crate::model::{DamagedFile, Searched};

/// The beginning of the note on a process whose search failed.
pub const NOT_SEARCHED: &str = "its memory was not searched when it ended";

/// Stores in a profile which blocks were lost when the process ended, if it was searched then.
/// Returns the file with the result if that cannot be read.
pub(crate) fn apply(file: &Path, profile: &mut Profile) -> Option<DamagedFile> {
    let mut lost = Lost::default();
    let mut unread = None;
    let is_snapshot = file_names::snapshot(file).is_some();
    match if is_snapshot { Ok(None) } else { AtEnd::read(file) } {
        Ok(Some(AtEnd { result: Ok(retained), time_ns, before_python_ended, .. })) => {
            for row in retained.sites.iter().filter(|row| row.state.is_lost()) {
                lost.sites.entry(row.site).or_default().plus(row.kept);
            }
            lost.searched = Some(Searched { time_ns, before_python_ended });
        }
        Ok(Some(AtEnd { result: Err(why), .. })) => {
            profile.notes.push(format!("{NOT_SEARCHED}: {why}"));
        }
        Ok(None) => {}
        Err(error) => {
            unread = Some(DamagedFile { path: path_of(file), reason: error.to_string() });
        }
    }
    profile.lost = Some(Box::new(lost));
    unread
}
