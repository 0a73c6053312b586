//! Targets on the command line: recordings, directories of recordings, processes.

use std::fs;
use std::path::{Path, PathBuf};

use heaptide_analysis::Error;
use heaptide_analysis::files::file_names::{METADATA_FILE, RECORDING_SUFFIX};
use heaptide_analysis::recording::{profiles_in, recordings_in, running};

/// Maximum number of recordings read from a directory; names that sort later are ignored.
const RECORDINGS_MAX: usize = 1000;

/// Programs whose metrics are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// All processes of a recording.
    Recording(PathBuf),
    /// The process image of a profile.
    Profile(PathBuf),
    /// A process, including the programs that it becomes by exec.
    Process {
        /// Its id in this pid namespace.
        pid: u32,
        /// The recording to which it writes.
        recording: PathBuf,
    },
    /// All recordings in a directory, including later ones.
    Directory(PathBuf),
}

impl Target {
    /// Parses a target on the command line: a path, or the id of a recorded process.
    ///
    /// Errors: it does not exist, or the process is not recorded.
    ///
    /// ```
    /// use heaptide_serve::Target;
    /// assert_eq!(Target::find("src".as_ref()).unwrap(), Target::Directory("src".into()));
    /// let error = Target::find("missing.heaptide".as_ref()).unwrap_err().to_string();
    /// assert!(error.starts_with("missing.heaptide: no such"), "{error}");
    /// ```
    pub fn find(given: &Path) -> Result<Target, Error> {
        if let Some(running) = running::by_id(given)? {
            let recording = running.file.parent().map(Path::to_owned).unwrap_or_default();
            return Ok(Target::Process { pid: running.pid, recording });
        }
        let kind = fs::metadata(given).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing { path: given.to_owned() },
            _ => Error::Io { path: given.to_owned(), doing: "read", source },
        })?;
        Ok(match kind.is_dir() {
            true if is_recording(given) => Target::Recording(given.to_owned()),
            true => Target::Directory(given.to_owned()),
            false => Target::Profile(given.to_owned()),
        })
    }

    /// Returns the recordings that contain its processes.
    ///
    /// Errors: the directory cannot be read.
    pub(crate) fn recordings(&self) -> Result<Vec<PathBuf>, Error> {
        match self {
            Target::Recording(path) | Target::Process { recording: path, .. } => {
                Ok(vec![path.clone()])
            }
            Target::Profile(file) => Ok(vec![directory_of(file).to_owned()]),
            Target::Directory(path) => {
                let mut recordings = recordings_in(path)?;
                recordings.truncate(RECORDINGS_MAX);
                Ok(recordings)
            }
        }
    }

    /// Returns whether it is one recording or part of one, which is expected to exist.
    pub(crate) fn is_one(&self) -> bool {
        !matches!(self, Target::Directory(_))
    }

    /// Returns whether a profile in one of its recordings belongs to it.
    pub(crate) fn has(&self, file: &Path, pid: u32) -> bool {
        match self {
            Target::Recording(path) => file.parent() == Some(path),
            Target::Profile(own) => file == own,
            Target::Process { pid: own, recording } => {
                pid == *own && file.parent() == Some(recording)
            }
            Target::Directory(path) => file.parent().and_then(Path::parent) == Some(path),
        }
    }
}

/// Returns whether a directory is a recording, which may not have profiles yet.
fn is_recording(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(RECORDING_SUFFIX)
        || directory.join(METADATA_FILE).exists()
        || profiles_in(directory).is_ok()
}

/// Returns the directory that contains a profile.
pub(crate) fn directory_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}
