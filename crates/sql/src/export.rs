//! `heaptide export --format parquet`: adds a recording to a dataset, a directory of Parquet files
//! for any number of recordings.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output::check_path;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::source;
use heaptide_query::tables::Source as Table;

use crate::columns;
use crate::dataset_file::{Purpose, lock, try_lock_alone};
use crate::explain::explain;
use crate::indexing;
use crate::layout::{self, Place};
use crate::moves;
use crate::parquet;
use crate::recordings::{self, Go, Part};
use crate::staging::{self, Existing, Staging};

/// The table that has records for every run.
const PROCESSES: &str = "processes";

/// `heaptide export`, as far as it is for this program.
#[derive(Args, Debug)]
pub struct ExportOptions {
    #[command(flatten)]
    source: Source,
    /// Format to write
    #[arg(long, value_name = "FORMAT", value_parser = ["parquet"])]
    format: String,
    /// Directory to write
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Replace an existing recording of this name in the dataset
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    selection: Selection,
}

/// Adds the recording to the dataset. If it fails, nothing of the recording remains there.
pub fn export(options: &ExportOptions) -> Outcome {
    let directory = &options.output;
    check_path(directory)?;
    let sources = std::slice::from_ref(&options.source);
    let parts = recordings::parts(source::open_all(sources, &options.selection)?);
    let runs: BTreeSet<&str> = parts.iter().map(|part| &*part.run).collect();
    fs::create_dir_all(directory).map_err(|error| Error::file(directory, "write it", error))?;
    let existing = if options.force { Existing::Replace } else { Existing::Keep };
    let _lock = lock_for_export(directory)?;
    refuse_compacted(directory, &runs)?;
    let runs: Vec<String> = runs.iter().map(|run| layout::part(layout::RUN, run)).collect();
    if existing == Existing::Keep {
        // Report it before the work is done, unless another export is just adding the run.
        let mut moved = runs.iter().filter(|run| !moves::mark(directory, run).exists());
        if let Some(place) = moved.find_map(|run| staging::place_of(directory, run)) {
            return Err(staging::exists(&place).into());
        }
    }
    let staging = Staging::new(directory)?;
    write(&staging, &parts, existing)?;
    for run in &runs {
        staging.list(run)?;
    }
    runs.iter().try_for_each(|run| staging.publish(run, existing))?;
    indexing::add_new_runs(directory);
    Ok(())
}

/// Locks a dataset for an export. If no other command writes to it, removes what killed exports
/// have left.
fn lock_for_export(dataset: &Path) -> Result<File, Error> {
    if let Some(lock) = try_lock_alone(dataset)? {
        staging::recover(dataset)?;
        drop(lock);
    }
    lock(dataset, Purpose::Export)
}

/// Rejects a run that is already in the dataset, in files that also contain other runs.
fn refuse_compacted(dataset: &Path, runs: &BTreeSet<&str>) -> Result<(), Error> {
    let table = dataset.join(PROCESSES);
    let compacted = layout::compacted_runs(&table);
    let compacted = compacted.map_err(|error| Error::file(&table, "read it", error))?;
    match runs.iter().find(|run| compacted.contains(**run)) {
        None => Ok(()),
        Some(run) => Err(Error::new(format!(
            "{}: `{run}` is in compacted files and cannot be replaced; \
             choose another directory with -o",
            dataset.display()
        ))),
    }
}

fn write(staging: &Staging, parts: &[Part], existing: Existing) -> Result<(), Error> {
    let version = match existing {
        Existing::Keep => String::new(),
        Existing::Replace => format!("-{}", staging.id),
    };
    for table in Table::all() {
        for part in parts.iter().filter(|part| part.has(table)) {
            TableFile::new(staging, table, part, &version).fill(part)?;
        }
    }
    Ok(())
}

/// The file of one table of one process image, created when there are records.
struct TableFile<'a> {
    table: &'static Table,
    path: PathBuf,
    schema: SchemaRef,
    writer: Option<ArrowWriter<File>>,
    part: &'a Part,
}

impl<'a> TableFile<'a> {
    fn new(
        staging: &Staging,
        table: &'static Table,
        part: &'a Part,
        version: &str,
    ) -> TableFile<'a> {
        let all = columns::schema(table);
        let inside =
            all.fields().iter().filter(|field| !layout::IN_PATHS.contains(&&**field.name()));
        let schema = Arc::new(Schema::new(inside.cloned().collect::<Vec<_>>()));
        let path = staging.table(table).join(Place::new(part).path(version));
        TableFile { table, path, schema, writer: None, part }
    }

    /// Creates the file if it does not exist yet.
    fn open(&mut self) -> Result<&mut ArrowWriter<File>, Error> {
        let failed = |error| Error::file(&self.path, "write it", error);
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                self.path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
                let file = File::create(&self.path).map_err(failed)?;
                let schema = parquet::plain(&self.schema);
                let writer = ArrowWriter::try_new(file, schema, Some(parquet::properties()));
                writer.map_err(|error| self.failed(&error))?
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Writes all records. Without records there is no file.
    fn fill(mut self, part: &Part) -> Result<(), Error> {
        let (table, schema, mut wrong) = (self.table, self.schema.clone(), None);
        let take = |batch: RecordBatch| {
            let written = self.add(&batch);
            let go = if written.is_ok() { Go::On } else { Go::Stop };
            wrong = written.err();
            Ok(go)
        };
        part.read(table, &schema, take).map_err(|error| explain("", &error))?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let closed = self.writer.take().map_or(Ok(()), |writer| writer.close().map(drop));
        closed.map_err(|error| self.failed(&error))
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let batch = parquet::plained(batch).map_err(|error| self.failed(&error))?;
        let written = self.open()?.write(&batch);
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::error::Error) -> Error {
        let (path, run) = (self.path.display(), &self.part.run);
        Error::new(format!("{path}: cannot write {} of {run}: {error}", self.table.name))
    }
}
