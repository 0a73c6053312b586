//! Marks of runs that an export is moving into the tables of a dataset: files `.exports/run=NAME`,
//! each locked by its export. A run with a mark is not read.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use heaptide_analysis::files::input;

/// The directory of a dataset with marks and unfinished exports. Other readers do not look outside
/// of the directories of the tables.
const DIRECTORY: &str = ".exports";
/// An upper bound of the size of a mark.
const BYTES_MAX: u64 = 128;

/// Whether a run existed before the export that moves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It did not: without the mark, nothing of it is readable.
    New,
    /// It did.
    Replacement,
}

/// The content of a mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub kind: Kind,
    /// The export.
    pub id: String,
}

impl Mark {
    /// Returns the content of the file.
    pub fn text(&self) -> String {
        let kind = match self.kind {
            Kind::New => "new",
            Kind::Replacement => "replacement",
        };
        format!("{kind} {}\n", self.id)
    }

    fn parse(text: &str) -> Option<Mark> {
        let (kind, id) = text.strip_suffix('\n')?.split_once(' ')?;
        let kind = match kind {
            "new" => Kind::New,
            "replacement" => Kind::Replacement,
            _ => return None,
        };
        // The id is the name of a directory.
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Mark { kind, id: id.to_owned() })
    }

    /// Reads a mark; `None` if the file does not exist.
    ///
    /// Errors: it cannot be read, or is no mark.
    pub fn read(path: &Path) -> io::Result<Option<Mark>> {
        let bytes = match input::read(path, BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let mark = str::from_utf8(&bytes).ok().and_then(Mark::parse);
        let expected = "expected `new ID` or `replacement ID`; remove the file and export again";
        mark.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, expected))
    }
}

/// Returns the directory of marks and unfinished exports of a dataset.
pub fn directory(dataset: &Path) -> PathBuf {
    dataset.join(DIRECTORY)
}

/// Returns the directory with the files of an unfinished export.
pub fn export(dataset: &Path, id: &str) -> PathBuf {
    directory(dataset).join(id)
}

/// Returns the path of the mark of a run, by the name of its directory.
pub fn mark(dataset: &Path, run: &str) -> PathBuf {
    directory(dataset).join(run)
}

/// Returns all marks by the names of the directories of their runs.
///
/// Errors: the path that cannot be read, and why.
pub fn marks(dataset: &Path) -> Result<BTreeMap<String, Mark>, (PathBuf, io::Error)> {
    let directory = directory(dataset);
    let mut marks = BTreeMap::new();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(marks),
        entries => entries.map_err(|error| (directory.clone(), error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| (directory.clone(), error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.contains('=') {
            continue; // the files of an export
        }
        if let Some(mark) = Mark::read(&entry.path()).map_err(|error| (entry.path(), error))? {
            marks.insert(name, mark);
        }
    }
    Ok(marks)
}

/// Returns whether the export that created a mark has ended without removing it. Without locks
/// this is unknown, and the result is false.
pub fn is_abandoned(mark: &Path) -> bool {
    match File::open(mark).map(|file| file.try_lock_shared()) {
        Ok(Ok(())) => mark.exists(),
        Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_never_names_a_path() {
        for kind in [Kind::New, Kind::Replacement] {
            let mark = Mark { kind, id: "00ff".to_owned() };
            assert_eq!(Mark::parse(&mark.text()), Some(mark));
        }
        for wrong in ["", "new 00ff", "new ../..\n", "new \n", "old 00ff\n"] {
            assert_eq!(Mark::parse(wrong), None, "{wrong:?}");
        }
    }
}
