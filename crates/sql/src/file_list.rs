//! `_heaptide-files`, the list of the files beside it with their sizes and numbers of rows: a
//! reader detects files that are missing or were truncated, and counts rows without opening the
//! files. Other readers ignore names that begin with `_`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use heaptide_analysis::files::input;

/// The name of the list.
pub const NAME: &str = "_heaptide-files";
/// The first line.
const FIRST: &str = "heaptide-files 1";
/// The last line, so that a truncated list is detected.
const LAST: &str = "end\n";
/// An upper bound of the size of a list: some 300 bytes for each of 200,000 processes.
const BYTES_MAX: u64 = 64 << 20;

/// The files of a run in a table, or those of a compacted table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileList {
    /// The export that wrote the files.
    pub id: String,
    /// For a run: the tables that have files of it.
    pub tables: Vec<String>,
    /// For a compacted table: the directories of the runs that it contains.
    pub runs: BTreeSet<String>,
    /// Files by path, relative to the directory of the list.
    pub files: BTreeMap<String, Listed>,
}

/// What the list contains about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub bytes: u64,
    /// The number of its rows; lists of version 0.2 do not contain it.
    pub rows: Option<u64>,
}

impl FileList {
    /// Reads the list of a directory; `None` if there is none.
    ///
    /// Errors: it cannot be read, or is incomplete.
    pub fn read(directory: &Path) -> io::Result<Option<FileList>> {
        let text = match input::read(&directory.join(NAME), BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => String::from_utf8(read?).unwrap_or_default(),
        };
        let parsed = FileList::parse(&text);
        let wrong = || io::Error::new(ErrorKind::InvalidData, "is truncated or no list of files");
        parsed.map(Some).ok_or_else(wrong)
    }

    /// Writes the list of a directory.
    ///
    /// Errors: it cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(NAME), self.text())
    }

    /// Lists the Parquet files of a directory.
    ///
    /// Errors: it cannot be read, or a name is not UTF-8.
    pub fn add_files(&mut self, directory: &Path) -> io::Result<()> {
        self.add_below(directory, "")
    }

    fn add_below(&mut self, directory: &Path, before: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().ok_or(ErrorKind::InvalidFilename)?;
            let path = format!("{before}{name}");
            if entry.file_type()?.is_dir() {
                self.add_below(&entry.path(), &format!("{path}/"))?;
            } else if name.ends_with(".parquet") {
                let bytes = entry.metadata()?.len();
                self.files.insert(path, Listed { bytes, rows: rows(&entry.path()) });
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST}\nid {}\n", self.id);
        self.tables.iter().for_each(|table| text.push_str(&format!("table {table}\n")));
        self.runs.iter().for_each(|run| text.push_str(&format!("run {run}\n")));
        for (path, Listed { bytes, rows }) in &self.files {
            text.push_str(&format!("file {bytes} {path}\n"));
            if let Some(rows) = rows {
                text.push_str(&format!("rows {rows} {path}\n"));
            }
        }
        text + LAST
    }

    fn parse(text: &str) -> Option<FileList> {
        let lines = text.strip_prefix(FIRST)?.strip_prefix('\n')?;
        let lines = lines.strip_suffix(LAST)?;
        let mut list = FileList::default();
        for line in lines.lines() {
            match line.split_once(' ')? {
                ("id", id) => id.clone_into(&mut list.id),
                ("table", table) => list.tables.push(table.to_owned()),
                ("run", run) => {
                    list.runs.insert(run.to_owned());
                }
                ("file", file) => {
                    let (bytes, path) = file.split_once(' ')?;
                    let bytes = bytes.parse().ok()?;
                    list.files.insert(path.to_owned(), Listed { bytes, rows: None });
                }
                ("rows", of_file) => {
                    let (rows, path) = of_file.split_once(' ')?;
                    list.files.get_mut(path)?.rows = Some(rows.parse().ok()?);
                }
                _ => {} // of a later version
            }
        }
        Some(list)
    }
}

/// Returns the number of rows of a file; `None` if its metadata cannot be read.
fn rows(path: &Path) -> Option<u64> {
    let reader = SerializedFileReader::new(File::open(path).ok()?).ok()?;
    reader.metadata().file_metadata().num_rows().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_a_truncated_one_is_rejected() {
        let list = FileList {
            id: "0a".to_owned(),
            tables: vec!["sites".to_owned(), "stacks".to_owned()],
            runs: ["run=a%20b".to_owned()].into(),
            files: [
                ("host=n/image-0.parquet".to_owned(), Listed { bytes: 17, rows: Some(3) }),
                ("host=n/image-1.parquet".to_owned(), Listed { bytes: 4, rows: None }),
            ]
            .into(),
        };
        let text = list.text();
        assert_eq!(FileList::parse(&text), Some(list));
        for length in 0..text.len() {
            assert_eq!(FileList::parse(&text[..length]), None, "{length}");
        }
    }
}
