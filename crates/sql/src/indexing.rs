//! Writes the manifest of a dataset: after exports, after a compaction, and for `heaptide dataset
//! index`.
//!
//! An export writes it only if there are enough new runs, because each version is a complete file:
//! for ten thousand exports, some 360 versions. Until then readers open the directories of
//! the new runs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::array::RecordBatch;
use datafusion::parquet::file::metadata::ParquetMetaData;
use heaptide_command::dataset::IndexOptions;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::output::check_path;
use heaptide_query::tables::Source;

use crate::catalog::{CHANGED, Catalog, DataFile, RunPlace, Snapshot, Use, for_each};
use crate::dataset_file::{self, Purpose, lock};
use crate::layout;
use crate::manifest::{self, WRITE_ATTEMPTS};
use crate::manifest_rows::{Described, ProcessFacts, Rows, add_build_id, metadata, process_facts};
use crate::session::no_dataset;

/// An export writes the manifest if the new runs are more than this share of those in it.
const NEW_RUNS_SHARE: usize = 64;
/// Tables with facts about processes.
const PROCESSES: &str = "processes";
const MODULES: &str = "modules";

/// Writes the manifest of a dataset, from all of its files.
pub fn index(options: &IndexOptions) -> Outcome {
    let dataset = &options.dataset;
    check_path(dataset)?;
    dataset_file::check(dataset)?;
    if Source::all().iter().all(|source| layout::table(dataset, source).is_none()) {
        return Err(no_dataset(dataset).into());
    }
    let _lock = lock(dataset, Purpose::Export)?;
    rewrite(dataset)?;
    Ok(())
}

/// Adds new runs to the manifest if there are many. A failure is only reported: the runs are
/// readable without it.
pub fn add_new_runs(dataset: &Path) {
    if let Err(error) = try_add(dataset) {
        message(format_args!("the manifest was not updated: {error}"));
    }
}

fn try_add(dataset: &Path) -> Result<(), Error> {
    for _ in 0..WRITE_ATTEMPTS {
        if !is_due(dataset)? || write(dataset, Use::Manifest)? {
            break;
        }
    }
    Ok(())
}

/// Returns whether there are many new runs.
fn is_due(dataset: &Path) -> Result<bool, Error> {
    let processes = Source::named(PROCESSES).unwrap_or(&Source::all()[0]);
    let catalog = Catalog::new(dataset, Use::Manifest);
    let snapshot = catalog.snapshot(processes)?;
    let new = snapshot.unknown_runs(processes).len();
    Ok(new > snapshot.known_count(processes) / NEW_RUNS_SHARE)
}

/// Returns whether the manifest contains all compacted files.
///
/// Errors: a directory cannot be read.
pub fn is_current(dataset: &Path) -> Result<bool, Error> {
    let catalog = Catalog::new(dataset, Use::Manifest);
    catalog.prepare(&Source::all().iter().map(|source| source.name).collect())?;
    let snapshot = catalog.snapshot(&Source::all()[0])?;
    let files = Source::all().iter().filter_map(|source| snapshot.compacted(source));
    let mut files = files.flat_map(|listing| &listing.files);
    Ok(snapshot.manifest().is_some() && files.all(|file| file.row.is_some()))
}

/// Writes the manifest from all files.
///
/// Errors: a directory cannot be read, or the manifest cannot be written.
pub fn rewrite(dataset: &Path) -> Result<(), Error> {
    for _ in 0..WRITE_ATTEMPTS {
        if write(dataset, Use::Directories)? {
            return Ok(());
        }
    }
    let path = dataset.display();
    Err(Error::new(format!("{path}: other commands write its manifest all the time; try again")))
}

/// Writes a version of the manifest. Returns false if another command was faster.
fn write(dataset: &Path, of: Use) -> Result<bool, Error> {
    let failed = |(path, error): (PathBuf, io::Error)| Error::file(&path, "write it", error);
    // Read first: what other commands change after this makes the commit fail.
    let base = manifest::newest_version(dataset).map_err(failed)?;
    let catalog = Catalog::new(dataset, of);
    catalog.prepare(&Source::all().iter().map(|source| source.name).collect())?;
    let snapshot = catalog.snapshot(&Source::all()[0])?;
    let invalid = |error| failed((dataset.to_owned(), error));
    let mut batches = Vec::new();
    if let Some(manifest) = snapshot.manifest() {
        let kept = manifest.kept(|table, run, directory| snapshot.is_known(table, run, directory));
        batches.push(kept.map_err(|error| failed((manifest.path.clone(), error)))?.0);
    }
    batches.extend(unknown_runs(&snapshot)?);
    batches.push(compacted(&snapshot).finish().map_err(invalid)?);
    manifest::commit(dataset, base, &batches).map_err(failed)
}

/// Returns the rows of compacted files.
fn compacted(snapshot: &Snapshot) -> Rows {
    let mut rows = Rows::new();
    for source in Source::all() {
        let files = snapshot.compacted(source).into_iter().flat_map(|listing| &listing.files);
        for file in files {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            // A damaged file is reported by queries that read it.
            if let Ok(metadata) = metadata(&file.path) {
                let path = format!("{}/{name}", source.name);
                rows.add(
                    source.name,
                    &path,
                    described(file, &metadata),
                    0,
                    &ProcessFacts::default(),
                );
            }
        }
    }
    rows
}

fn described<'a>(file: &'a DataFile, metadata: &'a ParquetMetaData) -> Described<'a> {
    Described { place: &file.place, bytes: file.bytes, modified: file.modified, metadata }
}

/// Returns the rows of runs that the manifest does not contain. Runs with damaged files, and runs
/// that are replaced meanwhile, are omitted: readers open their directories.
fn unknown_runs(snapshot: &Snapshot) -> Result<Vec<RecordBatch>, Error> {
    let mut runs: BTreeMap<String, Vec<&'static Source>> = BTreeMap::new();
    for source in Source::all() {
        let of = snapshot.unknown_runs(source).into_iter();
        of.for_each(|run| runs.entry(run).or_default().push(source));
    }
    let runs: Vec<_> = runs.into_iter().enumerate().collect();
    let mut batches = for_each(&runs, |(number, (run, tables))| {
        let mut places = Vec::new();
        for source in tables {
            match snapshot.run(source, run) {
                Ok(Some(place)) if place.listing.damages.is_empty() => {
                    places.push((*source, place))
                }
                Ok(_) => {}
                Err(error) if error.to_string().contains(CHANGED) => {}
                Err(error) => return Err(error),
            }
        }
        let rows = rows_of_run(run, &places).finish();
        let rows = rows.map_err(|error| Error::new(format!("{run}: {error}")))?;
        Ok((*number, rows))
    })?;
    batches.sort_by_key(|(number, _)| *number);
    Ok(batches.into_iter().map(|(_, batch)| batch).collect())
}

/// Returns the rows of the files of a run.
fn rows_of_run(run: &str, places: &[(&'static Source, RunPlace)]) -> Rows {
    // The files of a process have the same path in all tables.
    let key = |of: &RunPlace, file: &DataFile| {
        let path = file.path.strip_prefix(&of.directory).unwrap_or(&file.path);
        path.to_string_lossy().into_owned()
    };
    let mut facts = BTreeMap::new();
    for table in [PROCESSES, MODULES] {
        for (_, place) in places.iter().filter(|(source, _)| source.name == table) {
            for file in &place.listing.files {
                if table == PROCESSES {
                    let of = process_facts(&file.path).unwrap_or_default();
                    facts.insert(key(place, file), of);
                } else if let Some(facts) = facts.get_mut(&key(place, file)) {
                    let _ = add_build_id(facts, &file.path); // else it is unknown
                }
            }
        }
    }
    let (mut rows, none) = (Rows::new(), ProcessFacts::default());
    for (source, place) in places {
        let files = &place.listing.files;
        let read: io::Result<Vec<_>> = files.iter().map(|file| metadata(&file.path)).collect();
        let Ok(read) = read else {
            continue; // damaged
        };
        for (file, metadata) in files.iter().zip(read) {
            let key = key(place, file);
            let path = format!("{}/{run}/{key}", source.name);
            let facts = facts.get(&key).unwrap_or(&none);
            rows.add(source.name, &path, described(file, &metadata), place.number, facts);
        }
    }
    rows
}
