//! What searches of the processes of a recording at their end found.

use std::path::{Path, PathBuf};

use super::directory::profiles_in;
use crate::error::Error;
use crate::files::file_names;
pub use crate::profile::retained::AtEnd;

/// Returns the profiles of a recording, a directory or a single profile, whose process was
/// searched, and what was found.
///
/// Errors: the recording or one of the files cannot be read.
///
/// ```
/// use heaptide_analysis::recording::retained::of_recording;
/// assert!(of_recording("missing.heaptide".as_ref()).is_err());
/// ```
pub fn of_recording(path: &Path) -> Result<Vec<(PathBuf, AtEnd)>, Error> {
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let profiles = if is_file { vec![path.to_owned()] } else { profiles_in(path)? };
    let mut found = Vec::new();
    for profile in profiles {
        let at_end = AtEnd::read(&profile)?;
        found.extend(at_end.map(|at_end| (profile, at_end)));
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
