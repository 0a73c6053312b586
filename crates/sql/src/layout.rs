//! Paths of files in a dataset: `TABLE/run=…/host=…/rank=…/pid=…/image-N.parquet`, like in Hive, so
//! that readers of such directories know run, host, rank and pid of every record, and read only the
//! files they need. Compacted files are `TABLE/part-N.parquet`, with run, host and rank among their
//! columns. Both directories, `run=…` and `TABLE`, have a list of their files (see `file_list`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use heaptide_query::tables::Source;

use crate::recordings::Part;

/// The name of the recording.
pub const RUN: &str = "run";
/// The machine.
pub const HOST: &str = "host";
/// The rank in a parallel job.
pub const RANK: &str = "rank";
/// The process id.
const PID: &str = "pid";
/// Columns that are in paths instead of files.
pub const IN_PATHS: [&str; 3] = [RUN, HOST, RANK];

/// The end of the names of data files.
pub const SUFFIX: &str = ".parquet";

/// The key under which a compacted file lists its runs, one per value.
pub const RUN_KEY: &str = "heaptide.run";

/// Stands for a missing rank, because some readers cannot infer the type of a column without
/// values.
const NO_RANK: i64 = -1;
/// Stands for a missing name.
const NO_NAME: &str = "unknown";

/// The partition of a process image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The name of the recording.
    pub run: String,
    /// The machine.
    pub host: String,
    /// The rank in a parallel job.
    pub rank: Option<i64>,
    /// The process id; 0 for joined processes.
    pid: u32,
    image: u32,
}

impl Place {
    /// Returns the partition of a process image.
    pub fn new(part: &Part) -> Place {
        let run = part.run.clone();
        let Some(process) = part.process() else {
            return Place { run, ..Place::default() };
        };
        let rank = process.identity.rank.map(|rank| rank.number.into());
        Place {
            run,
            host: process.identity.host.clone(),
            rank,
            pid: process.identity.pid,
            image: process.identity.image,
        }
    }

    /// Returns the path below the table's directory; `version` distinguishes files that replace
    /// others, so that a query that reads the old ones fails instead of reading a mixture.
    pub fn path(&self, version: &str) -> PathBuf {
        let rank = self.rank.unwrap_or(NO_RANK).to_string();
        let parts = [
            part(RUN, &self.run),
            part(HOST, &self.host),
            part(RANK, &rank),
            part(PID, &self.pid.to_string()),
        ];
        parts.iter().collect::<PathBuf>().join(format!("image-{}{version}{SUFFIX}", self.image))
    }

    /// Returns the place of a file with this path below a table's directory.
    #[cfg(any(test, feature = "cluster"))]
    pub fn of_path(path: &str) -> Place {
        let mut place = Place::default();
        for part in path.split('/') {
            place.learn(part);
        }
        place
    }

    /// Returns whether the path contains no values: a compacted file, whose records have all
    /// columns.
    pub fn is_in_file(&self) -> bool {
        self.run.is_empty()
    }

    /// Reads a component of a path; returns which value it contains.
    pub fn learn(&mut self, part: &str) -> Known {
        let Some((key, value)) = part.split_once('=') else {
            return Known::default();
        };
        let value = unescaped(value);
        match key {
            RUN => self.run = value,
            HOST => self.host = value,
            RANK => self.rank = value.parse().ok().filter(|rank| *rank != NO_RANK),
            PID => self.pid = value.parse().unwrap_or(0),
            _ => {}
        }
        Known::default().with(key)
    }
}

/// A set of the values in a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known(u8);

impl Known {
    /// Returns the set of all values.
    pub fn all() -> Known {
        IN_PATHS.into_iter().fold(Known::default(), Known::with)
    }

    /// Adds the value of a column; other columns are ignored.
    pub fn with(self, column: &str) -> Known {
        let at = IN_PATHS.iter().position(|name| *name == column);
        Known(self.0 | at.map_or(0, |at| 1 << at))
    }

    /// Adds all values of another set.
    pub fn and(self, others: Known) -> Known {
        Known(self.0 | others.0)
    }

    /// Returns whether it contains all values of another set.
    pub fn has(self, others: Known) -> bool {
        self.0 & others.0 == others.0
    }
}

/// Compares paths so that numbers in them are in numeric order: rank 9 precedes rank 10.
pub fn in_order(a: &Path, b: &Path) -> Ordering {
    let [mut a, mut b] = [a, b].map(|path| path.as_os_str().as_bytes());
    loop {
        let number = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let order = match (number(a), number(b)) {
            (0, _) | (_, 0) => match (a.split_first(), b.split_first()) {
                (Some((x, rest_of_a)), Some((y, rest_of_b))) if x == y => {
                    (a, b) = (rest_of_a, rest_of_b);
                    continue;
                }
                (x, y) => return x.map(|(x, _)| x).cmp(&y.map(|(y, _)| y)),
            },
            (of_a, of_b) => {
                let ((x, rest_of_a), (y, rest_of_b)) = (a.split_at(of_a), b.split_at(of_b));
                (a, b) = (rest_of_a, rest_of_b);
                let [x_digits, y_digits] = [x, y].map(|digits| {
                    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
                    &digits[zeros..]
                });
                // Of equal numbers, the one with fewer zeros is first.
                let by_length = x_digits.len().cmp(&y_digits.len());
                by_length.then_with(|| x_digits.cmp(y_digits)).then(of_a.cmp(&of_b))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Compares files of a table by run, then by rank, so that those of close ranks are close to each
/// other on any number of hosts, then by path. Compacted files are first.
pub fn by_rank(a: (&Place, &Path), b: (&Place, &Path)) -> Ordering {
    in_order(Path::new(&a.0.run), Path::new(&b.0.run))
        .then(a.0.rank.cmp(&b.0.rank))
        .then_with(|| in_order(a.1, b.1))
}

/// Returns a component of a path: `key=value`.
pub fn part(key: &str, value: &str) -> String {
    let value = if value.is_empty() { NO_NAME } else { value };
    format!("{key}={}", escaped(value))
}

/// Escapes a value for a path: special characters become `%XX`.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| after.get(..2)).flatten();
        let code =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the directory in which a table is written before it replaces the old one.
pub fn new(dataset: &Path, source: &Source) -> PathBuf {
    dataset.join(format!(".new-{}", source.name))
}

/// Returns the directory to which the old table is renamed until it is removed.
pub fn old(dataset: &Path, source: &Source) -> PathBuf {
    dataset.join(format!(".old-{}", source.name))
}

/// Returns the directory of a table; `None` if it does not exist.
pub fn table(dataset: &Path, source: &Source) -> Option<PathBuf> {
    let places = [dataset.join(source.name), old(dataset, source)];
    places.into_iter().find(|place| place.is_dir())
}

/// Returns the runs with records in the compacted files of a table.
///
/// Errors: one of them cannot be read.
pub fn compacted_runs(table: &Path) -> io::Result<BTreeSet<String>> {
    let mut runs = BTreeSet::new();
    for path in compacted(table)? {
        let reader = SerializedFileReader::new(File::open(&path)?).map_err(io::Error::other)?;
        let pairs = reader.metadata().file_metadata().key_value_metadata();
        let of_runs = pairs.into_iter().flatten().filter(|pair| pair.key == RUN_KEY);
        runs.extend(of_runs.filter_map(|pair| pair.value.clone()));
    }
    Ok(runs)
}

/// Returns the compacted files of a table.
fn compacted(table: &Path) -> io::Result<Vec<PathBuf>> {
    if !table.is_dir() {
        return Ok(Vec::new());
    }
    Ok(entries(table)?.files.into_iter().map(|name| table.join(name)).collect())
}

/// Names in a directory, sorted.
#[derive(Debug, Default)]
pub struct Entries {
    /// Directories with their numbers in the file system.
    pub directories: Vec<(String, u64)>,
    /// Data files.
    pub files: Vec<String>,
}

/// Lists the directories and data files in a directory.
///
/// Errors: it cannot be read.
pub fn entries(directory: &Path) -> io::Result<Entries> {
    let mut found = Entries::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            found.directories.push((name, entry.ino()));
        } else if name.ends_with(SUFFIX) {
            found.files.push(name);
        }
    }
    found.directories.sort_unstable();
    found.files.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_parsed_from_paths() {
        let run = "a b/%ü=".to_owned();
        let place = Place { run, host: "n1".to_owned(), rank: None, pid: 17, image: 0 };
        let path = place.path("");
        let text = "run=a%20b%2F%25%C3%BC%3D/host=n1/rank=-1/pid=17";
        assert_eq!(path, Path::new(text).join("image-0.parquet"));
        assert_eq!(Place::of_path(path.to_str().expect("UTF-8")), place);
        assert_eq!(unescaped("%zz%4"), "%zz%4");
    }

    #[test]
    fn files_are_in_the_order_of_ranks_on_all_hosts() {
        let sorted = [
            "part-00000.parquet",
            "part-00001.parquet",
            "run=r9/host=b/rank=-1/pid=1/image-0.parquet",
            "run=r9/host=a/rank=1/pid=1/image-0.parquet",
            "run=r9/host=b/rank=2/pid=9/image-0.parquet",
            "run=r9/host=b/rank=2/pid=10/image-0.parquet",
            "run=r9/host=a/rank=10/pid=1/image-0.parquet",
            "run=r10/host=a/rank=0/pid=1/image-0.parquet",
        ];
        let mut all = sorted.map(|path| (Place::of_path(path), Path::new(path)));
        all.reverse();
        all.sort_by(|a, b| by_rank((&a.0, a.1), (&b.0, b.1)));
        assert_eq!(all.map(|(_, path)| path.to_str().expect("UTF-8")), sorted);
    }

    #[test]
    fn numbers_in_paths_are_in_numeric_order() {
        let sorted = [
            "a",
            "a1",
            "a2",
            "a2/b",
            "a02",
            "a10",
            "a10b9",
            "a10b10",
            "a99999999999999999999999",
            "a100000000000000000000000",
            "b",
            "rank=-1",
            "rank=0",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(
                    in_order(Path::new(one), Path::new(other)),
                    at.cmp(&other_at),
                    "{one} {other}"
                );
            }
        }
    }
}
