//! What searches of the processes of a recording found.

use std::path::{Path, PathBuf};

use super::directory::profiles_in;
use super::snapshot::{Reference, referred};
use crate::error::Error;
use crate::files::file_names;
pub use crate::profile::retained::AtEnd;
use crate::profile::retained::path_of;

/// Which processes are searched at their end, for messages that one was not.
pub const SEARCHED: &str = "`heaptide run --retain` searches processes that exit by themselves and do not only start \
     others";

/// Returns the profiles of a recording, a directory or a single profile, whose process was
/// searched, and what was found; or the snapshots that `snapshot` refers to.
///
/// Errors: the recording or one of the files cannot be read, or there is no such snapshot.
///
/// ```
/// use heaptide_analysis::recording::retained::of_recording;
/// assert!(of_recording("missing.heaptide".as_ref(), None).is_err());
/// ```
pub fn of_recording(
    path: &Path,
    snapshot: Option<&Reference>,
) -> Result<Vec<(PathBuf, AtEnd)>, Error> {
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut files = if is_file { vec![path.to_owned()] } else { profiles_in(path)? };
    if let Some(reference) = snapshot {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = if is_file { parent.unwrap_or(Path::new(".")) } else { path };
        files = referred(path, directory, &files, reference)?;
    }
    let mut found = Vec::new();
    for file in files {
        let at_end = AtEnd::read(&file)?;
        found.extend(at_end.map(|at_end| (file, at_end)));
    }
    Ok(found)
}

/// Returns the process id in the name of a profile.
///
/// ```
/// use heaptide_analysis::recording::retained::pid_of;
/// assert_eq!(pid_of("a/r2-12-0.profile".as_ref()), Some(12));
/// ```
pub fn pid_of(profile: &Path) -> Option<u32> {
    file_names::Image::of(profile).map(|image| image.pid)
}

/// Returns the number in the name of a snapshot; `None` for other files.
///
/// ```
/// use heaptide_analysis::recording::retained::snapshot_of;
/// assert_eq!(snapshot_of("a/12-0.3.snapshot".as_ref()), Some(3));
/// ```
pub fn snapshot_of(file: &Path) -> Option<u32> {
    file_names::snapshot(file).map(|(_, number)| number)
}

/// Returns whether a profile or snapshot has a search.
///
/// ```
/// use heaptide_analysis::recording::retained::is_searched;
/// assert!(!is_searched("missing.heaptide/12-0.3.snapshot".as_ref()));
/// ```
pub fn is_searched(file: &Path) -> bool {
    path_of(file).exists()
}
