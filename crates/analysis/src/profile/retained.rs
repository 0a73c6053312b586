//! What a search of a process at its end found, in a file beside its profile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heaptide_format::{RETAINED_SUFFIX, SNAPSHOT_SUFFIX};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::parsed::Profile;
use crate::error::Error;
use crate::files::{file_names, json};
use crate::model::retained::{Retained, Search};
use crate::model::{DamagedFile, Searched, SearchedAt};

/// The version of its layout; later versions are rejected.
const VERSION: u32 = 1;
/// Maximum size in bytes.
const LIMIT: u64 = 1 << 30;

/// The content of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AtEnd {
    version: u32,
    /// The result, or why there is none.
    pub result: Result<Retained, String>,
    /// When the process was searched, nanoseconds from its start.
    pub time_ns: u64,
    /// Whether that was when its Python interpreter began to end, and not at its exit.
    pub before_python_ended: bool,
}

impl AtEnd {
    /// Makes the content.
    pub fn new(result: Result<Retained, String>, time_ns: u64, before_python_ended: bool) -> AtEnd {
        AtEnd { version: VERSION, result, time_ns, before_python_ended }
    }

    /// Reads the result for a profile; `None` if its process was not searched.
    ///
    /// Errors: the file cannot be read, or has a later version.
    ///
    /// ```
    /// use heaptide_analysis::profile::retained::AtEnd;
    /// assert!(AtEnd::read("missing.heaptide/12-0.profile".as_ref()).unwrap().is_none());
    /// ```
    pub fn read(profile: &Path) -> Result<Option<AtEnd>, Error> {
        let path = path_of(profile);
        let Some(bytes) = json::read_if_there(&path, LIMIT)? else { return Ok(None) };
        json::check_version(&path, &bytes, VERSION)?;
        let content = serde_json::from_slice(&bytes).and_then(|found: AtEnd| match &found.result {
            Ok(retained) if !retained.has_its_roots() => {
                Err(serde_json::Error::custom("it refers to a root that it does not contain"))
            }
            _ => Ok(found),
        });
        content.map(Some).map_err(|source| Error::Json { path, source })
    }

    /// Stores the result for a profile.
    ///
    /// Errors: the file cannot be written.
    pub fn write(&self, profile: &Path) -> Result<(), Error> {
        let path = path_of(profile);
        let text = serde_json::to_vec(self)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        json::replace(&path, &text)
    }
}

/// Stores in a profile what a search of its process found. Returns the file with that if it exists
/// and cannot be read.
pub(crate) fn apply(file: &Path, profile: &mut Profile) -> Option<DamagedFile> {
    match AtEnd::read(file) {
        Ok(found) => {
            profile.search = found.map(|AtEnd { result, time_ns, before_python_ended, .. }| {
                let at = match before_python_ended {
                    _ if file_names::snapshot(file).is_some() => SearchedAt::Running,
                    true => SearchedAt::PythonEnds,
                    false => SearchedAt::Exit,
                };
                let when = Searched { time_ns, at };
                result.map(|retained| Arc::new(Search { retained, when }))
            });
            None
        }
        Err(error) => Some(DamagedFile { path: path_of(file), reason: error.to_string() }),
    }
}

/// Returns the path of the file for a profile or snapshot.
pub(crate) fn path_of(profile: &Path) -> PathBuf {
    let name = file_names::image_name(profile);
    let name = name.strip_suffix(SNAPSHOT_SUFFIX).unwrap_or(&name);
    profile.with_file_name(format!("{name}{RETAINED_SUFFIX}"))
}
