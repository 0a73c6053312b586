//! What a search of a process at its end found, in a file beside its profile.

use std::path::{Path, PathBuf};

use heaptide_format::RETAINED_SUFFIX;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::{file_names, json};
use crate::model::retained::Retained;

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
        let content = serde_json::from_slice(&bytes);
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

/// Returns the path of the file for a profile.
pub(crate) fn path_of(profile: &Path) -> PathBuf {
    profile.with_file_name(format!("{}{RETAINED_SUFFIX}", file_names::image_name(profile)))
}
