//! `heaptide dataset compact`: merges the files of each table into few large ones, in a new
//! directory that replaces the old one when it is complete.
//!
//! If the command is killed, either the old directory or the new one is in place, and the next
//! command removes the other one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::metadata::KeyValue;
use heaptide_analysis::files::draft::exchange;
use heaptide_command::dataset::CompactOptions;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_query::tables::Source;

use crate::columns::{self, RUN};
use crate::dataset_file::{Purpose, lock};
use crate::layout::{self, RUN_KEY};
use crate::parquet;
use crate::session::Session;

/// The size at which a file is complete: readers split files, but have to open each.
const FILE_BYTES: usize = 256 << 20;

/// Compacts all tables of a dataset.
pub fn compact(options: &CompactOptions) -> Outcome {
    let dataset = &options.dataset;
    // Reports what is wrong with the directory before creating files in it.
    Session::from_dataset(dataset, None)?;
    let _lock = lock(dataset, Purpose::Compact)?;
    for source in Source::all() {
        let table = dataset.join(source.name);
        let failed = |error| Error::file(&table, "compact it", error);
        repair(dataset, source).map_err(failed)?;
        if table.is_dir() && !is_compact(&table).map_err(failed)? {
            write(dataset, source)?;
            replace(dataset, source).map_err(failed)?;
        }
    }
    Ok(())
}

/// Cleans up after a command that was killed: restores or removes directories.
fn repair(dataset: &Path, source: &Source) -> io::Result<()> {
    let (table, old) = (dataset.join(source.name), layout::old(dataset, source));
    if old.is_dir() && !table.is_dir() {
        fs::rename(&old, &table)?;
    }
    for left in [old, layout::new(dataset, source)] {
        if left.is_dir() {
            fs::remove_dir_all(left)?;
        }
    }
    Ok(())
}

/// Returns whether there is nothing to merge.
fn is_compact(table: &Path) -> io::Result<bool> {
    let files = layout::files(table)?;
    let mut bytes = 0;
    for (path, place) in &files {
        if !place.is_in_file() {
            return Ok(false);
        }
        bytes += path.metadata()?.len();
    }
    Ok(files.len() as u64 <= 1 + bytes / FILE_BYTES as u64)
}

/// Writes all records of a table, in the order of their files.
fn write(dataset: &Path, source: &'static Source) -> Result<(), Error> {
    let session = Session::from_dataset(dataset, None)?;
    while session.ask("SET datafusion.execution.target_partitions = 1")?.next()?.is_some() {}
    let mut answer = session.ask(&format!("SELECT * FROM \"{}\"", source.name))?;
    let directory = layout::new(dataset, source);
    fs::create_dir(&directory).map_err(|error| Error::file(&directory, "write it", error))?;
    let mut files = Files::new(directory, source);
    while let Some(batch) = answer.next()? {
        files.write(&batch)?;
    }
    files.close()
}

/// Renames the new directory to the name of the table, and removes the old one.
fn replace(dataset: &Path, source: &Source) -> io::Result<()> {
    let table = dataset.join(source.name);
    let (new, old) = (layout::new(dataset, source), layout::old(dataset, source));
    if exchange(&new, &table)? {
        fs::rename(&new, &old)?;
    } else {
        // Until the new directory is in place, readers use the old one.
        fs::rename(&table, &old)?;
        fs::rename(&new, &table)?;
    }
    File::open(dataset)?.sync_all()?;
    fs::remove_dir_all(old)
}

/// Writes the files of a table one after the other.
struct Files {
    directory: PathBuf,
    schema: SchemaRef,
    count: usize,
    writer: Option<ArrowWriter<File>>,
    /// Runs with records in the current file.
    runs: BTreeSet<String>,
}

impl Files {
    fn new(directory: PathBuf, source: &Source) -> Files {
        let schema = parquet::plain(&columns::schema(source));
        Files { directory, schema, count: 0, writer: None, runs: BTreeSet::new() }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let batch = parquet::plained(batch).map_err(|error| self.failed(&error))?;
        if let Some(runs) = batch.column_by_name(RUN) {
            let runs = runs.as_string::<i32>();
            let is_new = |at: &usize| *at == 0 || runs.value(*at) != runs.value(*at - 1);
            self.runs.extend((0..runs.len()).filter(is_new).map(|at| runs.value(at).to_owned()));
        }
        let mut writer = self.open()?;
        writer.write(&batch).map_err(|error| self.failed(&error))?;
        let bytes = writer.bytes_written() + writer.in_progress_size();
        self.writer = Some(writer);
        if bytes < FILE_BYTES { Ok(()) } else { self.finish() }
    }

    /// Returns the current file, or opens the next one.
    fn open(&mut self) -> Result<ArrowWriter<File>, Error> {
        if let Some(writer) = self.writer.take() {
            return Ok(writer);
        }
        let path = self.directory.join(format!("part-{:05}.parquet", self.count));
        self.count += 1;
        let file = File::create(&path).map_err(|error| Error::file(&path, "write it", error))?;
        let properties = Some(parquet::properties());
        let writer = ArrowWriter::try_new(file, self.schema.clone(), properties);
        writer.map_err(|error| self.failed(&error))
    }

    /// Completes the current file.
    fn finish(&mut self) -> Result<(), Error> {
        let mut writer = self.open()?;
        for run in std::mem::take(&mut self.runs) {
            writer.append_key_value_metadata(KeyValue::new(RUN_KEY.to_owned(), run));
        }
        let file = writer.into_inner().map_err(|error| self.failed(&error))?;
        file.sync_all().map_err(|error| Error::file(&self.directory, "write it", error))
    }

    /// Completes the last file. A table without records gets one empty file.
    fn close(mut self) -> Result<(), Error> {
        if self.writer.is_some() || self.count == 0 {
            self.finish()?;
        }
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::file(&self.directory, "write it", error))
    }

    fn failed(&self, error: &dyn std::error::Error) -> Error {
        Error::new(format!("{}: cannot write it: {error}", self.directory.display()))
    }
}
