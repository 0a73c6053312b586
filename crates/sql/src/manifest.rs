//! The manifest of a dataset, `manifest-N.parquet`: a row for each file of its tables, so that a
//! query finds its files without opening the directories of all runs.
//!
//! Each version is a complete file with a number of its own. A writer reads the newest version,
//! then looks at the dataset, and gives its file the next number, unless another writer has already
//! done so; then it starts again. The directories remain what counts: a row is used only while its
//! run has the same directory, and its file the same size and time.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, RecordBatchReader,
};
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{Int64Type, Schema};
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::arrow::{ArrowWriter, ProjectionMask};
use datafusion::parquet::file::statistics::Statistics;
use heaptide_analysis::files::draft::rename_new;
use heaptide_query::tables::Source;

use crate::manifest_rows::{self, DIRECTORY, FILE, MODIFIED, RANGES, ROWS, SIZE, TABLE};
use crate::moves;
use crate::parquet;

/// What precedes the version in the name of the file.
const PREFIX: &str = "manifest-";
/// What follows it.
const SUFFIX: &str = ".parquet";
/// The digits of the version, so that names are in the order of versions.
const DIGITS: usize = 12;
/// How often the newest version is looked for if writers replace it meanwhile.
const OPEN_ATTEMPTS: usize = 100;
/// How often a writer starts again because others were faster. More writers than this never wait
/// for each other: all but one of them find nothing left to do.
pub const WRITE_ATTEMPTS: usize = 1000;

/// A version of the manifest.
pub struct Manifest {
    /// The path of the file.
    pub path: PathBuf,
    version: u64,
    file: File,
    metadata: ArrowReaderMetadata,
    /// The ranges of values in the files of a table, by row, in the order of [`Source::all`].
    ranges: Vec<OnceLock<Option<ListArray>>>,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// What the manifest contains about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFile {
    /// The path below the directory of its run, or of its table if it has been compacted.
    pub path: String,
    pub bytes: u64,
    pub modified_ns: i64,
    pub rows: Option<u64>,
    pub row: RowAt,
}

/// A row of a version of the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowAt {
    version: u64,
    /// Its number among the rows of its table.
    number: usize,
}

/// What the manifest contains about a run in a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownRun {
    /// The number of its directory in the file system.
    pub directory: u64,
    pub files: Vec<KnownFile>,
}

/// Runs by the names of their directories; compacted files have an empty name.
pub type KnownRuns = BTreeMap<String, KnownRun>;

impl Manifest {
    /// Opens the newest version; `None` if there is none.
    ///
    /// Errors: the path that cannot be read, or is no manifest of this program, and why.
    pub fn newest(dataset: &Path) -> Result<Option<Manifest>, (PathBuf, io::Error)> {
        for _ in 0..OPEN_ATTEMPTS {
            let Some(version) = newest_version(dataset)? else {
                return Ok(None);
            };
            let path = dataset.join(name(version));
            match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {} // replaced meanwhile
                Err(error) => return Err((path, error)),
                Ok(file) => {
                    let opened = Manifest::open(&path, version, file);
                    return opened.map(Some).map_err(|error| (path, error));
                }
            }
        }
        let what = io::Error::other("its versions change too often");
        Err((dataset.join(PREFIX.to_owned() + "*" + SUFFIX), what))
    }

    fn open(path: &Path, version: u64, file: File) -> io::Result<Manifest> {
        let options = ArrowReaderOptions::new();
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(io::Error::other)?;
        let names = |of: &Schema| -> Vec<String> {
            of.fields().iter().map(|field| field.name().clone()).collect()
        };
        if names(metadata.schema()) != names(&manifest_rows::schema()) {
            let what = "has the columns of another version of heaptide";
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let ranges = Source::all().iter().map(|_| OnceLock::new()).collect();
        Ok(Manifest { path: path.to_owned(), version, file, metadata, ranges })
    }

    /// Returns the files of a table.
    ///
    /// Errors: the manifest cannot be decoded.
    pub fn files(&self, source: &Source) -> io::Result<KnownRuns> {
        let columns = [FILE, SIZE, MODIFIED, ROWS, DIRECTORY];
        let batch = self.read(Some(source.name), &columns)?;
        let paths = text(&batch, FILE)?;
        let numbers = |name| column(&batch, name).map(|of| of.as_primitive::<Int64Type>().clone());
        let [bytes, modified] = [numbers(SIZE)?, numbers(MODIFIED)?];
        let [rows, directories] = [numbers(ROWS)?, numbers(DIRECTORY)?];
        let mut runs = KnownRuns::new();
        for row in 0..batch.num_rows() {
            let Some((_, run, path)) = parts(paths.value(row)) else {
                continue; // never written
            };
            if !runs.contains_key(run) {
                let directory = directories.value(row).cast_unsigned();
                runs.insert(run.to_owned(), KnownRun { directory, files: Vec::new() });
            }
            let known = KnownFile {
                path: path.to_owned(),
                bytes: bytes.value(row).unsigned_abs(),
                modified_ns: modified.value(row),
                rows: rows.is_valid(row).then(|| rows.value(row).unsigned_abs()),
                row: RowAt { version: self.version, number: row },
            };
            runs.entry(run.to_owned()).or_default().files.push(known);
        }
        Ok(runs)
    }

    /// Returns the number of the directory of each run in each table: by name of the table, then by
    /// name of the directory.
    ///
    /// Errors: the manifest cannot be decoded.
    pub fn directories(&self) -> io::Result<BTreeMap<String, BTreeMap<String, u64>>> {
        let batch = self.read(None, &[FILE, DIRECTORY])?;
        let paths = text(&batch, FILE)?;
        let numbers = column(&batch, DIRECTORY)?.as_primitive::<Int64Type>();
        let mut tables: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            if let Some((table, run, _)) = parts(paths.value(row)) {
                let runs = match tables.get_mut(table) {
                    Some(runs) => runs,
                    None => tables.entry(table.to_owned()).or_default(),
                };
                if !runs.contains_key(run) {
                    runs.insert(run.to_owned(), numbers.value(row).cast_unsigned());
                }
            }
        }
        Ok(tables)
    }

    /// Returns the ranges of values in a file of a table. The ranges of all files of the table are
    /// read once. `None` if the row is one of another version, or cannot be decoded.
    pub fn ranges(&self, source: &Source, row: RowAt) -> Option<ArrayRef> {
        let at = Source::all().iter().position(|of| of.name == source.name)?;
        let read = || {
            let batch = self.read(Some(source.name), &[RANGES]).ok()?;
            column(&batch, RANGES).ok()?.as_list_opt::<i32>().cloned()
        };
        let ranges = self.ranges.get(at)?.get_or_init(read).as_ref()?;
        let is_own = row.version == self.version && row.number < ranges.len();
        is_own.then(|| ranges.value(row.number))
    }

    /// Returns the rows for which `is_kept` returns true for the table, the directory of the run
    /// and the number of that directory, and whether these are all.
    ///
    /// Errors: the manifest cannot be decoded.
    pub fn kept(
        &self,
        is_kept: impl Fn(&str, &str, u64) -> bool,
    ) -> io::Result<(RecordBatch, bool)> {
        let batch = self.read(None, &[])?;
        let paths = text(&batch, FILE)?;
        let numbers = column(&batch, DIRECTORY)?.as_primitive::<Int64Type>();
        let kept = (0..batch.num_rows()).map(|row| {
            let parts = parts(paths.value(row));
            parts.is_some_and(|(of, run, _)| is_kept(of, run, numbers.value(row).cast_unsigned()))
        });
        let kept: BooleanArray = kept.map(Some).collect();
        let is_whole = kept.true_count() == kept.len();
        let batch = filter_record_batch(&batch, &kept).map_err(io::Error::other)?;
        Ok((batch, is_whole))
    }

    /// Reads columns, or all columns if none are named, of a table or all tables.
    fn read(&self, table: Option<&str>, columns: &[&str]) -> io::Result<RecordBatch> {
        let file = self.file.try_clone()?;
        let metadata = self.metadata.clone();
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        let groups = groups.filter(|(_, group)| {
            // Each table has row groups of its own.
            let Some(Statistics::ByteArray(of)) = group.column(0).statistics() else {
                return true;
            };
            let first = of.min_opt().and_then(|first| first.as_utf8().ok());
            table.is_none() || first.is_none() || first == table
        });
        let groups = groups.map(|(at, _)| at).collect();
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_row_groups(groups);
        if !columns.is_empty() {
            let mask = ProjectionMask::columns(reader.parquet_schema(), columns.iter().copied());
            reader = reader.with_projection(mask);
        }
        let reader = reader.build().map_err(io::Error::other)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        concat_batches(&schema, &batches).map_err(io::Error::other)
    }
}

/// Splits a path below a dataset into the table, the directory of the run, and the rest.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let (table, rest) = path.split_once('/')?;
    match rest.split_once('/') {
        Some((run, rest)) => Some((table, run, rest)),
        None => Some((table, "", rest)),
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> io::Result<&'a Arc<dyn Array>> {
    let missing = || io::Error::new(ErrorKind::InvalidData, format!("has no column {name}"));
    batch.column_by_name(name).ok_or_else(missing)
}

fn text<'a>(
    batch: &'a RecordBatch,
    name: &str,
) -> io::Result<&'a datafusion::arrow::array::StringArray> {
    let wrong = || io::Error::new(ErrorKind::InvalidData, format!("{name} is no text"));
    column(batch, name)?.as_string_opt::<i32>().ok_or_else(wrong)
}

/// Returns the name of a version.
fn name(version: u64) -> String {
    format!("{PREFIX}{version:0DIGITS$}{SUFFIX}")
}

/// Returns the version in the name of a file.
fn version(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns all versions.
fn versions(dataset: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dataset)? {
        found.extend(entry?.file_name().to_str().and_then(version));
    }
    Ok(found)
}

/// Returns the newest version.
///
/// Errors: the directory cannot be read.
pub fn newest_version(dataset: &Path) -> Result<Option<u64>, (PathBuf, io::Error)> {
    let versions = versions(dataset).map_err(|error| (dataset.to_owned(), error))?;
    Ok(versions.into_iter().max())
}

/// Writes the version that follows `base`. Returns false, and writes nothing, if another writer has
/// already written it or a later one.
///
/// Errors: it cannot be written.
pub fn commit(
    dataset: &Path,
    base: Option<u64>,
    rows: &[RecordBatch],
) -> Result<bool, (PathBuf, io::Error)> {
    let version = base.map_or(1, |base| base + 1);
    let path = dataset.join(name(version));
    let failed = |error| (path.clone(), error);
    let draft = draft(dataset, rows).map_err(failed)?;
    let placed = place(&draft, &path);
    let _ = fs::remove_file(&draft); // the next export or compaction removes it
    let _ = fs::remove_dir(moves::directory(dataset)); // unless it contains anything
    match placed {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        placed => placed.map_err(failed)?,
    }
    let all = versions(dataset).map_err(failed)?;
    // If later versions have replaced the file that had this number, this version is not read.
    if all.iter().any(|other| *other > version) {
        let _ = fs::remove_file(&path);
        return Ok(false);
    }
    for old in all.into_iter().filter(|other| *other < version) {
        let _ = fs::remove_file(dataset.join(name(old))); // else the next version does it
    }
    Ok(true)
}

/// Writes a file that has no version yet, in the directory of unfinished exports.
fn draft(dataset: &Path, rows: &[RecordBatch]) -> io::Result<PathBuf> {
    let number = RandomState::new().build_hasher().finish();
    let path = moves::directory(dataset).join(format!("manifest-{number:016x}"));
    let file = loop {
        fs::create_dir_all(moves::directory(dataset))?;
        match File::create_new(&path) {
            // Another command has removed the empty directory.
            Err(error) if error.kind() == ErrorKind::NotFound && dataset.is_dir() => {}
            file => break file?,
        }
    };
    write(file, rows).inspect_err(|_| {
        let _ = fs::remove_file(&path);
    })?;
    Ok(path)
}

fn write(file: File, rows: &[RecordBatch]) -> io::Result<()> {
    let schema = manifest_rows::schema();
    let rows = concat_batches(&schema, rows).map_err(io::Error::other)?;
    let tables = text(&rows, TABLE)?;
    let properties = Some(parquet::properties());
    let mut writer = ArrowWriter::try_new(file, schema, properties).map_err(io::Error::other)?;
    for source in Source::all() {
        let of_table = tables.iter().map(|table| Some(table == Some(source.name)));
        let of_table: BooleanArray = of_table.collect();
        let rows = filter_record_batch(&rows, &of_table).map_err(io::Error::other)?;
        writer.write(&rows).and_then(|()| writer.flush()).map_err(io::Error::other)?;
    }
    writer.into_inner().map_err(io::Error::other)?.sync_all()
}

/// Gives a file its name, unless the name exists.
fn place(draft: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(draft, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => rename_new(draft, path), // the file system has no links
    }
}

/// Removes the rows of a run, named by its directory, because its files have been replaced.
///
/// Errors: the manifest cannot be written.
pub fn forget(dataset: &Path, run: &str) -> Result<(), (PathBuf, io::Error)> {
    for _ in 0..WRITE_ATTEMPTS {
        let Ok(Some(manifest)) = Manifest::newest(dataset) else {
            return Ok(()); // one that cannot be read is not used
        };
        let Ok((rows, is_whole)) = manifest.kept(|_, of, _| of != run) else {
            return Ok(());
        };
        if is_whole || commit(dataset, Some(manifest.version), &[rows])? {
            return Ok(());
        }
    }
    let what = io::Error::other("other commands write it all the time");
    Err((dataset.join(name(0)), what))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use datafusion::parquet::file::metadata::ParquetMetaData;
    use heaptide_fixtures::Scratch;

    use super::*;
    use crate::layout::Place;
    use crate::manifest_rows::{Described, ProcessFacts, Rows, metadata};

    /// Writes an empty Parquet file and returns its metadata.
    fn of_file(directory: &Path) -> ParquetMetaData {
        let path = directory.join("a.parquet");
        let schema = manifest_rows::schema();
        let file = File::create(&path).expect("a file");
        ArrowWriter::try_new(file, schema, None).and_then(ArrowWriter::close).expect("a file");
        metadata(&path).expect("metadata")
    }

    /// Returns a row for each of these runs in the table `sites`, in directories 7, 8, ….
    fn rows(metadata: &ParquetMetaData, runs: &[&str]) -> RecordBatch {
        let mut rows = Rows::new();
        for (number, run) in (7..).zip(runs) {
            let (place, modified) = (&Place::of_path(run), SystemTime::UNIX_EPOCH);
            let file = Described { place, bytes: 9, modified, metadata };
            let path = format!("sites/{run}/host=h/image-0.parquet");
            rows.add("sites", &path, file, number, &ProcessFacts::default());
        }
        rows.finish().expect("rows")
    }

    fn runs(dataset: &Path) -> Vec<(String, u64)> {
        let manifest = Manifest::newest(dataset).expect("to read it").expect("a manifest");
        let runs = manifest.files(Source::named("sites").expect("a table")).expect("runs");
        assert_eq!(
            manifest.files(Source::named("stacks").expect("a table")).expect("none").len(),
            0
        );
        runs.into_iter().map(|(name, run)| (name, run.directory)).collect()
    }

    #[test]
    fn of_writers_with_the_same_base_only_the_first_succeeds() {
        let place = Scratch::new("versions");
        let metadata = of_file(&place);
        let commit = |base, of: &[&str]| {
            let rows = [rows(&metadata, of)];
            super::commit(&place, base, &rows).expect("to write it")
        };
        assert!(commit(None, &["run=a"]));
        assert!(!commit(None, &["run=b"]));
        assert!(commit(Some(1), &["run=a", "run=b"]));
        assert_eq!(versions(&place).expect("versions"), [2]);
        // The number of a version that has been removed.
        assert!(!commit(None, &["run=c"]));
        assert_eq!(versions(&place).expect("versions"), [2]);
        assert_eq!(runs(&place), [("run=a".to_owned(), 7), ("run=b".to_owned(), 8)]);
        forget(&place, "run=none").expect("nothing to do");
        assert_eq!(versions(&place).expect("versions"), [2]);
        forget(&place, "run=a").expect("to write it");
        assert_eq!(versions(&place).expect("versions"), [3]);
        assert_eq!(runs(&place), [("run=b".to_owned(), 8)]);
        assert!(!moves::directory(&place).exists());
    }

    #[test]
    fn many_writers_lose_nothing() {
        let place = Scratch::new("writers");
        let all: Vec<String> = (0..8).map(|number| format!("run={number}")).collect();
        assert!(commit(&place, None, &[]).expect("to write it"));
        let metadata = of_file(&place);
        let add = |run: &String| loop {
            let manifest = Manifest::newest(&place).expect("to read it").expect("a manifest");
            let (kept, is_whole) = manifest.kept(|_, _, _| true).expect("rows");
            assert!(is_whole);
            let rows = [kept, rows(&metadata, &[run])];
            let base = Some(manifest.version);
            if commit(&place, base, &rows).expect("to write it") {
                return;
            }
        };
        std::thread::scope(|scope| all.iter().for_each(|run| drop(scope.spawn(|| add(run)))));
        let found: Vec<String> = runs(&place).into_iter().map(|(run, _)| run).collect();
        assert_eq!(found, all);
    }

    #[test]
    fn other_names_are_no_versions() {
        for name in ["manifest-.parquet", "manifest-1", "manifest-x1.parquet", "a-1.parquet"] {
            assert_eq!(version(name), None, "{name}");
        }
        assert_eq!(version(&name(17)), Some(17));
        assert_eq!(parts("sites/run=a/host=h/b"), Some(("sites", "run=a", "host=h/b")));
        assert_eq!(parts("sites/part-0.parquet"), Some(("sites", "", "part-0.parquet")));
    }
}
