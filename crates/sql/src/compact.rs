//! `heaptide dataset compact`: merges the files of each table into few large ones, in a new
//! directory that replaces the old one when it is complete; several tables at a time.
//!
//! If the command is killed, either the old directory or the new one is in place, and the next
//! command removes the other one. A damaged file stops the command before it replaces anything.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::metadata::KeyValue;
use heaptide_analysis::files::draft::exchange;
use heaptide_analysis::threads::together;
use heaptide_command::dataset::CompactOptions;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output::check_path;
use heaptide_query::tables::Source;

use crate::blocks::{Blocks, is_sorted};
use crate::columns::{self, RUN};
use crate::dataset_file::{self, Purpose, lock};
use crate::file_list::FileList;
use crate::indexing;
use crate::layout::{self, RUN_KEY};
use crate::parquet;
use crate::session::{Dataset, Session, no_dataset};
use crate::staging;

/// The size at which a file is complete: readers split files, but have to open each.
const FILE_BYTES: usize = 256 << 20;

/// Compacts all tables of a dataset.
pub fn compact(options: &CompactOptions) -> Outcome {
    let dataset = &options.dataset;
    check_path(dataset)?;
    // Reports what is wrong with the directory before creating files in it.
    dataset_file::check(dataset)?;
    if Source::all().iter().all(|source| layout::table(dataset, source).is_none()) {
        return Err(no_dataset(dataset).into());
    }
    let _lock = lock(dataset, Purpose::Compact)?;
    staging::recover(dataset)?;
    let compaction = format!("{:016x}", RandomState::new().build_hasher().finish());
    for source in Source::all() {
        let failed = |error| Error::file(&dataset.join(source.name), "compact it", error);
        repair(dataset, source).map_err(failed)?;
    }
    let session = Session::from_dataset(&Dataset::local(dataset))?;
    session.check_files()?;
    while session.ask("SET datafusion.execution.target_partitions = 1")?.next()?.is_some() {}
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let has = |source: &&Source| layout::table(dataset, source).is_some();
    let sorted = Source::all().iter().filter(has).filter(|source| is_sorted(source)).count();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut is_replaced = false;
        while let Some(source) = Source::all().get(next.fetch_add(1, Ordering::Relaxed)) {
            let blocks = Blocks::of_table(source, sorted.min(threads));
            is_replaced |= compact_table(&session, dataset, source, &compaction, blocks)?;
        }
        Ok(is_replaced)
    };
    let done: Result<Vec<bool>, Error> = together(threads, work).into_iter().collect();
    // A command that was killed may have replaced tables without writing the manifest.
    if done?.contains(&true) || !indexing::is_current(dataset)? {
        indexing::rewrite(dataset)?;
    }
    Ok(())
}

/// Compacts a table, unless there is nothing to merge. Returns whether it has replaced the table.
fn compact_table(
    session: &Session,
    dataset: &Path,
    source: &'static Source,
    compaction: &str,
    blocks: Option<Blocks>,
) -> Result<bool, Error> {
    let table = dataset.join(source.name);
    let failed = |error| Error::file(&table, "compact it", error);
    if !table.is_dir() || is_compact(&table).map_err(failed)? {
        return Ok(false);
    }
    write(session, dataset, source, compaction, blocks).inspect_err(|_| {
        // else the next one does it
        let _ = fs::remove_dir_all(layout::new(dataset, source));
    })?;
    replace(dataset, source).map_err(failed)?;
    Ok(true)
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
    let found = layout::entries(table)?;
    let mut bytes = 0;
    for name in &found.files {
        bytes += table.join(name).metadata()?.len();
    }
    let few = found.files.len() as u64 <= 1 + bytes / FILE_BYTES as u64;
    Ok(found.directories.is_empty() && few)
}

/// Writes all records of a table, in the order of runs and ranks, to a new directory; those of a
/// block are sorted.
fn write(
    session: &Session,
    dataset: &Path,
    source: &'static Source,
    compaction: &str,
    blocks: Option<Blocks>,
) -> Result<(), Error> {
    let table = dataset.join(source.name);
    let failed = |error| Error::file(&table, "read it", error);
    let runs = runs(&table).map_err(failed)?;
    let mut answer = session.read_in_order(source)?;
    let directory = layout::new(dataset, source);
    fs::create_dir(&directory).map_err(|error| Error::file(&directory, "write it", error))?;
    // Queries that read files of an earlier compaction must not find others under their names.
    let first = table.join(Files::name(0, ""));
    let version = if first.exists() { format!("-{compaction}") } else { String::new() };
    let mut files = Files::new(directory.clone(), source, version);
    match blocks {
        Some(mut blocks) => {
            while let Some(batch) = answer.next()? {
                files.write_in(&mut blocks, batch)?;
            }
            files.write_block(&mut blocks)?;
        }
        None => {
            while let Some(batch) = answer.next()? {
                files.write(&batch)?;
            }
        }
    }
    files.close()?;
    let mut list = FileList { id: compaction.to_owned(), runs, ..FileList::default() };
    let listed = list.add_files(&directory).and_then(|()| list.write(&directory));
    listed.map_err(|error| Error::file(&directory, "list its files", error))
}

/// Returns the names of the directories of all runs of a table, compacted or not.
fn runs(table: &Path) -> io::Result<BTreeSet<String>> {
    let compacted = layout::compacted_runs(table)?;
    let compacted = compacted.iter().map(|run| layout::part(RUN, run));
    let directories = layout::entries(table)?.directories.into_iter().map(|(name, _)| name);
    Ok(compacted.chain(directories).collect())
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
    /// Distinguishes the names of the files from those of other compactions.
    version: String,
    schema: SchemaRef,
    count: usize,
    writer: Option<ArrowWriter<File>>,
    /// Runs with records in the current file.
    runs: BTreeSet<String>,
}

impl Files {
    fn new(directory: PathBuf, source: &Source, version: String) -> Files {
        let schema = parquet::plain(&columns::schema(source));
        Files { directory, version, schema, count: 0, writer: None, runs: BTreeSet::new() }
    }

    /// Returns the name of a file.
    fn name(number: usize, version: &str) -> String {
        format!("part-{number:05}{version}{}", layout::SUFFIX)
    }

    /// Adds records to a block, and writes the block each time it is full.
    fn write_in(&mut self, blocks: &mut Blocks, batch: RecordBatch) -> Result<(), Error> {
        let mut rest = Some(batch);
        while let Some(batch) = rest {
            rest = blocks.add(&batch).map_err(|error| self.failed(&error))?;
            if rest.is_some() {
                self.write_block(blocks)?;
            }
            rest = rest.filter(|rest| rest.num_rows() > 0);
        }
        Ok(())
    }

    /// Writes the records of a block to row groups of their own.
    fn write_block(&mut self, blocks: &mut Blocks) -> Result<(), Error> {
        let sorted = blocks.sorted().map_err(|error| self.failed(&error))?;
        for batch in sorted {
            self.write(&batch.map_err(|error| self.failed(&error))?)?;
        }
        let flushed = self.writer.as_mut().map_or(Ok(()), ArrowWriter::flush);
        flushed.map_err(|error| self.failed(&error))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let batch = parquet::plained(batch).map_err(|error| self.failed(&error))?;
        if let Some(runs) = batch.column_by_name(RUN) {
            let runs = runs.as_string::<i32>();
            for run in runs.iter().flatten() {
                if !self.runs.contains(run) {
                    self.runs.insert(run.to_owned());
                }
            }
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
        let path = self.directory.join(Files::name(self.count, &self.version));
        self.count += 1;
        let file = File::create(&path).map_err(|error| Error::file(&path, "write it", error))?;
        let properties = Some(parquet::compacted_properties(&self.schema));
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
