//! Directories: finds the profiles of a recording, and recordings in directories.

use std::fs;
use std::path::{Path, PathBuf};

use heaptide_format::PROFILE_SUFFIX;

use super::metadata::Metadata;
use crate::error::Error;
use crate::files::directory::list;
use crate::files::file_names::RECORDING_SUFFIX;

/// Returns the most recently modified recording in a directory; `None` if it contains none.
///
/// Errors: the directory cannot be read.
///
/// ```
/// assert!(heaptide_analysis::newest("src".as_ref()).unwrap().is_none());
/// ```
pub fn newest(directory: &Path) -> Result<Option<PathBuf>, Error> {
    let candidates = recordings_in(directory)?.into_iter().filter_map(|path| {
        let changed = fs::metadata(&path).and_then(|m| m.modified()).ok()?;
        Some((changed, path))
    });
    Ok(candidates.max().map(|(_, path)| path))
}

/// Returns the recordings directly in a directory, sorted by name.
///
/// Errors: the directory cannot be read.
///
/// ```
/// use heaptide_analysis::recording::recordings_in;
/// assert!(recordings_in("src".as_ref()).unwrap().is_empty());
/// ```
pub fn recordings_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_recording = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == &RECORDING_SUFFIX[1..]) && path.is_dir()
    };
    Ok(list(directory)?.into_iter().filter(is_recording).collect())
}

/// Depth of the search for recordings: job, node, rank, recording.
const LEVELS: u32 = 4;

/// Returns the recordings in a directory and its subdirectories, sorted; the path itself if it is a
/// recording or a profile.
///
/// Errors: a directory cannot be read.
///
/// ```
/// assert!(heaptide_analysis::recordings_below("src".as_ref()).unwrap().is_empty());
/// ```
pub fn recordings_below(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    search(path, LEVELS, &mut found)?;
    Ok(found)
}

fn search(path: &Path, levels: u32, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if !path.is_dir() || profiles_in(path).is_ok() {
        found.push(path.to_owned());
        return Ok(());
    }
    for below in list(path)? {
        if below.is_dir() && levels > 0 {
            search(&below, levels - 1, found)?;
        }
    }
    Ok(())
}

/// Returns the profiles of a recording, sorted.
///
/// Errors: the directory cannot be read, or contains no profile.
///
/// ```
/// assert!(heaptide_analysis::recording::profiles_in("src".as_ref()).is_err());
/// ```
pub fn profiles_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_profile = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(PROFILE_SUFFIX))
    };
    let profiles: Vec<_> = list(directory)?.into_iter().filter(is_profile).collect();
    if profiles.is_empty() {
        // Unreadable metadata cannot provide a reason.
        let metadata = Metadata::read(directory).ok().flatten().unwrap_or_default();
        Err(Error::NoProfiles { path: directory.to_owned(), reason: metadata.unrecorded })
    } else {
        Ok(profiles)
    }
}
