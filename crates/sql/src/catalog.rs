//! The files of a dataset at one moment: a run is listed with all of its files or not at all, while
//! exports and compactions change the dataset.
//!
//! A snapshot has the directories of the runs in the tables that a query names. Directories are
//! looked up again if they were renamed meanwhile, and runs that an export is moving are omitted
//! (see `moves`). The files in these directories are listed when a table is read, without those
//! that the query does not need.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use heaptide_analysis::threads::together;
use heaptide_command::error::Error;
use heaptide_query::tables::Source;

use crate::layout::{self, Known, Place};
use crate::manifest::{self, Listed, Manifest};
use crate::moves::{self, Kind, Mark};
use crate::pruning::PlaceFilter;

/// How long to wait for a stable state: moving a run takes milliseconds.
const WAIT: Duration = Duration::from_secs(20);
/// The interval at which a replacement is polled.
const POLL: Duration = Duration::from_millis(5);
/// Threads that list directories, which takes time in file systems of a network.
const THREADS_PER_PROCESSOR: usize = 2;
/// An upper bound of these threads.
const THREADS_MAX: usize = 16;

/// The end of the error for a directory that was renamed after the snapshot. The next snapshot has
/// the directory that replaced it.
pub const CHANGED: &str = ": the dataset changed while it was read; run the query again";

/// A file of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataFile {
    pub path: PathBuf,
    pub place: Place,
    pub bytes: u64,
    pub modified: SystemTime,
    /// Whether a manifest contains its size, which is the same.
    pub is_listed: bool,
    /// The number of its rows, if a manifest contains it.
    pub rows: Option<u64>,
}

/// A file or directory that is missing or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub path: PathBuf,
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// The files of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// In the order of their paths, with numbers in numeric order.
    pub files: Vec<DataFile>,
    pub damages: Vec<Damage>,
}

/// A dataset, with the last snapshot of it.
#[derive(Debug)]
pub struct Catalog {
    directory: PathBuf,
    snapshot: Mutex<Arc<Snapshot>>,
}

impl Catalog {
    /// Creates a catalog with a snapshot that has no tables.
    pub fn new(directory: &Path) -> Catalog {
        Catalog { directory: directory.to_owned(), snapshot: Mutex::default() }
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether the dataset has a table now.
    pub fn has(&self, source: &Source) -> bool {
        layout::table(&self.directory, source).is_some()
    }

    /// Takes a snapshot of these tables and of those of the last one, unless it has them all.
    ///
    /// Errors: a directory cannot be read; a run was being replaced when its export was killed.
    pub fn prepare(&self, names: &BTreeSet<&'static str>) -> Result<(), Error> {
        let mut snapshot = self.last();
        if !names.iter().all(|name| snapshot.tables.contains_key(name)) {
            let names = names.iter().chain(snapshot.tables.keys()).copied().collect();
            *snapshot = Arc::new(Snapshot::take(&self.directory, &names)?);
        }
        Ok(())
    }

    /// Takes the last snapshot again.
    ///
    /// Errors: as for [`Catalog::prepare`].
    pub fn refresh(&self) -> Result<(), Error> {
        let mut snapshot = self.last();
        let names = snapshot.tables.keys().copied().collect();
        *snapshot = Arc::new(Snapshot::take(&self.directory, &names)?);
        Ok(())
    }

    /// Returns the last snapshot, after making sure that it has a table.
    ///
    /// Errors: as for [`Catalog::prepare`].
    pub fn snapshot(&self, source: &Source) -> Result<Arc<Snapshot>, Error> {
        self.prepare(&BTreeSet::from([source.name]))?;
        Ok(self.last().clone())
    }

    fn last(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directories of some tables of a dataset at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    dataset: PathBuf,
    tables: BTreeMap<&'static str, Table>,
    /// The runs of the other tables, by the names of their directories.
    others: BTreeMap<&'static str, BTreeSet<String>>,
    /// Runs that an export is moving.
    hidden: BTreeSet<String>,
}

impl Snapshot {
    /// Takes a snapshot of these tables.
    fn take(dataset: &Path, names: &BTreeSet<&'static str>) -> Result<Snapshot, Error> {
        let mut hidden = new_runs(&marks(dataset)?);
        let others = other_runs(dataset, names)?;
        let named = Source::all().iter().filter(|source| names.contains(source.name));
        let mut tables: Vec<Table> = named.map(Table::new).collect();
        for table in &mut tables {
            table.refresh(dataset, &BTreeSet::new(), &hidden)?;
        }
        let deadline = Instant::now() + WAIT;
        loop {
            let known = tables.iter().flat_map(|table| table.runs.keys());
            let known: BTreeSet<String> = known.chain(others.values().flatten()).cloned().collect();
            let mut is_changed = false;
            for table in &mut tables {
                is_changed |= table.refresh(dataset, &known, &hidden)?;
            }
            let marks = marks(dataset)?;
            hidden.extend(new_runs(&marks));
            let mut replaced = marks.iter().filter(|(_, mark)| mark.kind == Kind::Replacement);
            if let Some((run, _)) = replaced.next() {
                check_replacement(dataset, run, deadline)?;
                thread::sleep(POLL);
            } else if !is_changed {
                let tables = tables.into_iter().map(|table| (table.source.name, table)).collect();
                return Ok(Snapshot { dataset: dataset.to_owned(), tables, others, hidden });
            } else if Instant::now() > deadline {
                let path = dataset.display();
                return Err(Error::new(format!(
                    "{path}: its directories change too often; try again when exports have ended"
                )));
            }
        }
    }

    /// Lists the files of a table whose places a filter keeps. Compacted files are always kept.
    ///
    /// Errors: the directory of a run cannot be read, or was renamed since the snapshot; then the
    /// message contains [`CHANGED`].
    pub fn listing(&self, source: &Source, filter: &PlaceFilter) -> Result<Listing, Error> {
        let Some(table) = self.tables.get(source.name) else {
            return Ok(Listing::default());
        };
        let mut listing = table.compacted.as_ref().map(|of| of.listing.clone()).unwrap_or_default();
        if let Some((path, _)) = &table.directory {
            let runs = table.runs.iter().filter(|(run, _)| !self.hidden.contains(*run));
            let runs = kept(filter, runs, |(run, _)| run);
            for entry in entries(path, &runs, filter)? {
                listing.files.extend(entry.files);
                listing.damages.extend(entry.damages);
            }
        }
        listing.damages.extend(self.missing(table, filter)?);
        listing.files.sort_by(|a, b| layout::in_order(&a.path, &b.path));
        Ok(listing)
    }

    /// Returns the directories that runs should have in a table according to their manifests in
    /// other tables.
    ///
    /// Errors: one of them exists now.
    fn missing(&self, table: &Table, filter: &PlaceFilter) -> Result<Vec<Damage>, Error> {
        let of_tables = self.tables.iter().map(|(name, of)| (*name, of.runs.keys().collect()));
        let of_others = self.others.iter().map(|(name, of)| (*name, of.iter().collect()));
        let mut elsewhere: BTreeMap<&String, &str> = BTreeMap::new();
        for (name, runs) in of_tables.chain(of_others) {
            let runs: Vec<&String> = runs;
            for run in runs {
                let is_here = table.runs.contains_key(run) || table.has_compacted(run);
                if !is_here && !self.hidden.contains(run) {
                    elsewhere.entry(run).or_insert(name);
                }
            }
        }
        let mut damages = Vec::new();
        for (run, other) in kept(filter, elsewhere.into_iter(), |(run, _)| run) {
            // A damaged list is reported by queries of its table.
            let manifest = Manifest::read(&self.dataset.join(other).join(run)).ok().flatten();
            if manifest.is_some_and(|of| of.tables.iter().any(|name| name == table.source.name)) {
                let path = self.dataset.join(table.source.name).join(run);
                if path.is_dir() {
                    return Err(changed(&path)); // the run was replaced by one with more tables
                }
                damages.push(Damage { path, what: "is missing".to_owned() });
            }
        }
        Ok(damages)
    }
}

/// Returns the items whose runs a filter keeps.
fn kept<T>(
    filter: &PlaceFilter,
    items: impl Iterator<Item = T>,
    run: impl Fn(&T) -> &String,
) -> Vec<T> {
    let items: Vec<T> = items.collect();
    let places: Vec<_> = items.iter().map(|item| placed(run(item))).collect();
    let kept = filter.keeps(&places, Known::default());
    items.into_iter().zip(kept).filter(|(_, is_kept)| *is_kept).map(|(item, _)| item).collect()
}

/// Returns the place of files in the directory of a run.
fn placed(run: &str) -> (Place, Known) {
    let mut place = Place::default();
    let known = place.learn(run);
    (place, known)
}

/// Returns the runs of the tables that are not named.
fn other_runs(
    dataset: &Path,
    names: &BTreeSet<&'static str>,
) -> Result<BTreeMap<&'static str, BTreeSet<String>>, Error> {
    let mut others = BTreeMap::new();
    for source in Source::all().iter().filter(|source| !names.contains(source.name)) {
        if let Some(path) = layout::table(dataset, source) {
            let entries = match layout::entries(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| Error::file(&path, "read it", error))?,
            };
            others.insert(source.name, entries.directories.into_iter().collect());
        }
    }
    Ok(others)
}

/// Lists the directories of runs, on several threads.
fn entries(
    table: &Path,
    runs: &[(&String, &Identity)],
    filter: &PlaceFilter,
) -> Result<Vec<Listing>, Error> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (processors * THREADS_PER_PROCESSOR).min(THREADS_MAX).min(runs.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((run, identity)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(entry(&table.join(run), run, **identity, filter)?);
        }
        Ok(done)
    };
    let done: Result<Vec<Vec<Listing>>, Error> =
        together(threads.max(1), work).into_iter().collect();
    Ok(done?.into_iter().flatten().collect())
}

/// Lists the directory of a run in a table.
fn entry(
    path: &Path,
    run: &str,
    expected: Identity,
    filter: &PlaceFilter,
) -> Result<Listing, Error> {
    let (place, known) = placed(run);
    let mut files = Vec::new();
    let walked = collect(path, &place, known, filter, &mut files);
    let listing = walked.map(|()| Entry::new(path, files, run, filter).listing);
    // If the directory was replaced, the files are those of both.
    if identity(path) != Some(expected) {
        return Err(changed(path));
    }
    listing.map_err(|error| Error::file(path, "read it", error))
}

/// Returns the error for a directory that is not the one of the snapshot.
fn changed(path: &Path) -> Error {
    Error::new(format!("{}{CHANGED}", path.display()))
}

/// Adds the data files in and below a directory whose places a filter keeps.
fn collect(
    directory: &Path,
    place: &Place,
    known: Known,
    filter: &PlaceFilter,
    files: &mut Vec<(PathBuf, Place)>,
) -> io::Result<()> {
    let entries = layout::entries(directory)?;
    files.extend(entries.files.iter().map(|name| (directory.join(name), place.clone())));
    let inside = |name: &String| {
        let mut inside = place.clone();
        let learned = inside.learn(name);
        (inside, known.and(learned))
    };
    let places: Vec<_> = entries.directories.iter().map(inside).collect();
    let kept = filter.keeps(&places, known);
    let below = entries.directories.iter().zip(places).zip(kept).filter(|(_, is_kept)| *is_kept);
    for ((name, (place, known)), _) in below {
        collect(&directory.join(name), &place, known, filter, files)?;
    }
    Ok(())
}

fn marks(dataset: &Path) -> Result<BTreeMap<String, Mark>, Error> {
    moves::marks(dataset).map_err(|(path, error)| Error::file(&path, "read it", error))
}

/// Returns the runs that are not completely there yet.
fn new_runs(marks: &BTreeMap<String, Mark>) -> BTreeSet<String> {
    marks.iter().filter(|(_, mark)| mark.kind == Kind::New).map(|(name, _)| name.clone()).collect()
}

/// Checks that the export that replaces a run is still running.
fn check_replacement(dataset: &Path, run: &str, deadline: Instant) -> Result<(), Error> {
    let mark = moves::mark(dataset, run);
    if !moves::is_abandoned(&mark) && Instant::now() < deadline {
        return Ok(());
    }
    let path = dataset.display();
    Err(Error::new(format!(
        "{path}: `{run}` is only partly replaced, because its export was killed; \
         `heaptide dataset compact {path}` or the next export completes the replacement"
    )))
}

/// What identifies a directory.
type Identity = (u64, u64);

/// Returns the identity of a directory; `None` if it does not exist.
fn identity(directory: &Path) -> Option<Identity> {
    let found = directory.symlink_metadata().ok()?;
    found.is_dir().then(|| (found.dev(), found.ino()))
}

/// The directories of a table.
#[derive(Debug)]
struct Table {
    source: &'static Source,
    directory: Option<(PathBuf, Identity)>,
    /// The files that are in the directory itself.
    compacted: Option<Entry>,
    /// The directories in it, by name.
    runs: BTreeMap<String, Identity>,
}

/// The files of a directory.
#[derive(Debug)]
struct Entry {
    manifest: Option<Manifest>,
    listing: Listing,
}

impl Table {
    fn new(source: &'static Source) -> Table {
        Table { source, directory: None, compacted: None, runs: BTreeMap::new() }
    }

    /// Looks up the directories that have changed, and those with `names`; returns whether one that
    /// is not hidden has changed.
    fn refresh(
        &mut self,
        dataset: &Path,
        names: &BTreeSet<String>,
        hidden: &BTreeSet<String>,
    ) -> Result<bool, Error> {
        let directory = layout::table(dataset, self.source);
        let directory = directory.and_then(|path| identity(&path).map(|id| (path, id)));
        if self.directory != directory {
            self.directory = directory;
            self.list_all()?;
            return Ok(true);
        }
        let Some((path, _)) = directory else {
            return Ok(false);
        };
        let mut is_changed = false;
        for name in names.iter().filter(|name| !hidden.contains(*name)) {
            let now = identity(&path.join(name));
            if self.runs.get(name).copied() != now {
                is_changed = true;
                self.runs.remove(name);
                self.runs.extend(now.map(|now| (name.clone(), now)));
            }
        }
        Ok(is_changed)
    }

    fn list_all(&mut self) -> Result<(), Error> {
        self.runs.clear();
        self.compacted = None;
        let Some((path, _)) = self.directory.clone() else {
            return Ok(());
        };
        let found = match layout::entries(&path) {
            // It was renamed meanwhile, which the next check notices.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| Error::file(&path, "read it", error))?,
        };
        let files = found.files.iter().map(|name| (path.join(name), Place::default())).collect();
        self.compacted = Some(Entry::new(&path, files, "", &PlaceFilter::none()));
        for name in found.directories {
            if let Some(identity) = identity(&path.join(&name)) {
                self.runs.insert(name, identity);
            }
        }
        Ok(())
    }

    /// Returns whether compacted files contain a run, by the name of its directory.
    fn has_compacted(&self, run: &str) -> bool {
        let Some(entry) = &self.compacted else {
            return false;
        };
        match &entry.manifest {
            Some(manifest) => manifest.runs.contains(run),
            None => !entry.listing.files.is_empty(), // version 0.2 wrote no lists
        }
    }
}

impl Entry {
    /// Returns the files of a directory with this name in a table, after a comparison with its
    /// manifest, of which only the files that a filter keeps are expected.
    fn new(
        directory: &Path,
        files: Vec<(PathBuf, Place)>,
        name: &str,
        filter: &PlaceFilter,
    ) -> Entry {
        let mut listing = Listing::default();
        let manifest = Manifest::read(directory).unwrap_or_else(|error| {
            let path = directory.join(manifest::NAME);
            listing.damages.push(Damage { path, what: error.to_string() });
            None
        });
        let mut expected = manifest.as_ref().map(|of| of.files.clone()).unwrap_or_default();
        for (path, place) in files {
            let relative = path.strip_prefix(directory).ok().and_then(Path::to_str);
            let listed = relative.and_then(|relative| expected.remove(relative));
            match data_file(&path, place, listed) {
                Ok(file) => listing.files.push(file),
                Err(what) => listing.damages.push(Damage { path, what }),
            }
        }
        let of_path = |path: &String| {
            let (mut place, mut known) = placed(name);
            path.split('/').for_each(|part| known = known.and(place.learn(part)));
            (place, known)
        };
        let places: Vec<_> = expected.keys().map(of_path).collect();
        let kept = filter.keeps(&places, Known::default());
        let missing = expected.keys().zip(kept).filter(|(_, is_kept)| *is_kept);
        let missing = missing.map(|(name, _)| directory.join(name));
        listing.damages.extend(missing.map(|path| Damage { path, what: "is missing".to_owned() }));
        Entry { manifest, listing }
    }
}

/// Returns a file with its size, which has to be the one of its manifest.
fn data_file(path: &Path, place: Place, listed: Option<Listed>) -> Result<DataFile, String> {
    let failed = |error: io::Error| error.to_string();
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let (bytes, modified) = (metadata.len(), metadata.modified().map_err(failed)?);
    match listed {
        Some(expected) if expected.bytes != bytes => {
            Err(format!("is damaged: {bytes} bytes, expected {}", expected.bytes))
        }
        _ => Ok(DataFile {
            path: path.to_owned(),
            place,
            bytes,
            modified,
            is_listed: listed.is_some(),
            rows: listed.and_then(|listed| listed.rows),
        }),
    }
}
