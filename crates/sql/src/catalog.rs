//! The files of a dataset at one moment: a run is listed with all of its files or not at all, while
//! exports and compactions change the dataset.
//!
//! A snapshot has the directories of the runs in the tables that a query names. Directories are
//! looked up again if they were renamed meanwhile, and runs that an export is moving are omitted
//! (see `moves`). The files in these directories are listed when a table is read, without those
//! that the query does not need. Directories that the manifest contains are not opened; only the
//! sizes of the files that the query needs are compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_analysis::threads::together;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_query::tables::Source;

use crate::file_list::{self, FileList, Listed};
use crate::layout::{self, Known, Place};
use crate::manifest::{KnownFile, KnownRun, KnownRuns, Manifest, RowAt};
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
    /// Whether a list contains its size, which is the same.
    pub is_listed: bool,
    /// The number of its rows, if a list contains it.
    pub rows: Option<u64>,
    /// The row of the manifest with the ranges of its values.
    pub row: Option<RowAt>,
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
    /// By run and rank, with numbers in numeric order.
    pub files: Vec<DataFile>,
    pub damages: Vec<Damage>,
}

/// Whether the manifest of a dataset is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Files are those of the manifest, as far as it contains their directories.
    Manifest,
    /// All directories are opened, and all files in them are found.
    Directories,
}

/// A dataset, with the last snapshot of it.
#[derive(Debug)]
pub struct Catalog {
    directory: PathBuf,
    of: Use,
    snapshot: Mutex<Arc<Snapshot>>,
}

impl Catalog {
    /// Creates a catalog with a snapshot that has no tables.
    pub fn new(directory: &Path, of: Use) -> Catalog {
        Catalog { directory: directory.to_owned(), of, snapshot: Mutex::default() }
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
            *snapshot = Arc::new(Snapshot::take(&self.directory, self.of, &names)?);
        }
        Ok(())
    }

    /// Takes the last snapshot again.
    ///
    /// Errors: as for [`Catalog::prepare`].
    pub fn refresh(&self) -> Result<(), Error> {
        let mut snapshot = self.last();
        let names = snapshot.tables.keys().copied().collect();
        *snapshot = Arc::new(Snapshot::take(&self.directory, self.of, &names)?);
        Ok(())
    }

    /// Returns the last snapshot, after making sure that it has a table.
    ///
    /// Errors: as for [`Catalog::prepare`].
    pub fn snapshot(&self, source: &Source) -> Result<Arc<Snapshot>, Error> {
        self.prepare(&BTreeSet::from([source.name]))?;
        Ok(self.last().clone())
    }

    /// Returns the manifest of the last snapshot.
    pub fn last_manifest(&self) -> Option<Arc<Manifest>> {
        self.last().manifest.clone()
    }

    fn last(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a run in a table.
#[derive(Debug)]
pub struct RunPlace {
    pub directory: PathBuf,
    /// The number of the directory in the file system.
    pub number: u64,
    pub listing: Listing,
}

/// The directories of some tables of a dataset at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    dataset: PathBuf,
    manifest: Option<Arc<Manifest>>,
    tables: BTreeMap<&'static str, Table>,
    /// The runs of the other tables, by the names of their directories, with the numbers of these.
    others: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Runs that an export is moving.
    hidden: BTreeSet<String>,
}

impl Snapshot {
    /// Takes a snapshot of these tables.
    fn take(dataset: &Path, of: Use, names: &BTreeSet<&'static str>) -> Result<Snapshot, Error> {
        let mut hidden = new_runs(&marks(dataset)?);
        // Read before the directories: a writer of the manifest relies on it.
        let manifest = if of == Use::Manifest { newest_manifest(dataset) } else { None };
        let others = other_runs(dataset, names)?;
        let named = Source::all().iter().filter(|source| names.contains(source.name));
        let mut tables: Vec<Table> =
            named.map(|source| Table::new(source, dataset, manifest.as_deref())).collect();
        for table in &mut tables {
            table.refresh(dataset, &hidden)?;
        }
        let deadline = Instant::now() + WAIT;
        loop {
            let mut is_changed = false;
            for table in &mut tables {
                is_changed |= table.refresh(dataset, &hidden)?;
            }
            let marks = marks(dataset)?;
            hidden.extend(new_runs(&marks));
            let mut replaced = marks.iter().filter(|(_, mark)| mark.kind == Kind::Replacement);
            if let Some((run, _)) = replaced.next() {
                check_replacement(dataset, run, deadline)?;
                thread::sleep(POLL);
            } else if !is_changed {
                let tables = tables.into_iter().map(|table| (table.source.name, table)).collect();
                let dataset = dataset.to_owned();
                return Ok(Snapshot { dataset, manifest, tables, others, hidden });
            } else if Instant::now() > deadline {
                let path = dataset.display();
                return Err(Error::new(format!(
                    "{path}: its directories change too often; try again when exports have ended"
                )));
            }
        }
    }

    /// Returns the manifest that was read before the directories.
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.manifest.as_ref()
    }

    /// Returns the runs of a table that the manifest does not contain, or with other directories.
    pub fn unknown_runs(&self, source: &Source) -> Vec<String> {
        let runs = self.tables.get(source.name).into_iter().flat_map(|table| &table.runs);
        let runs = runs.filter(|(run, found)| found.identity.is_some() && !self.is_hidden(run));
        runs.map(|(run, _)| run.clone()).collect()
    }

    /// Returns whether a run of a table has the directory that the manifest contains.
    pub fn is_known(&self, table: &str, run: &str, directory: u64) -> bool {
        let found = self.tables.get(table).and_then(|table| table.runs.get(run));
        found.is_some_and(|of| of.identity.is_none() && of.number == directory)
            && !self.is_hidden(run)
    }

    /// Returns the compacted files of a table.
    pub fn compacted(&self, source: &Source) -> Option<&Listing> {
        let table = self.tables.get(source.name)?;
        table.compacted.as_ref().map(|entry| &entry.listing)
    }

    /// Returns the number of runs of a table whose files are those of the manifest.
    pub fn known_count(&self, source: &Source) -> usize {
        let runs = self.tables.get(source.name).into_iter().flat_map(|table| table.runs.values());
        runs.filter(|found| found.identity.is_none()).count()
    }

    /// Lists a run of a table by opening its directories; `None` if the snapshot does not have it.
    ///
    /// Errors: as for [`Snapshot::listing`].
    pub fn run(&self, source: &Source, run: &str) -> Result<Option<RunPlace>, Error> {
        let table = self.tables.get(source.name);
        let found = table.and_then(|table| Some((table.directory.as_ref()?, table.runs.get(run)?)));
        let Some(((path, _), found)) = found else {
            return Ok(None);
        };
        let directory = path.join(run);
        let listing = entry(&directory, run, found.identity, &PlaceFilter::none())?;
        Ok(Some(RunPlace { directory, number: found.number, listing }))
    }

    fn is_hidden(&self, run: &str) -> bool {
        self.hidden.contains(run)
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
            let runs = table.runs.iter().filter(|(run, _)| !self.is_hidden(run));
            let (mut known, mut unknown) = (Vec::new(), Vec::new());
            for (run, found) in kept(filter, runs, |(run, _)| run) {
                match table.known.get(run).filter(|_| found.identity.is_none()) {
                    Some(of) => known.push((run, of)),
                    None => unknown.push((run, found.identity)),
                }
            }
            let (files, changed) = known_files(path, &known, filter)?;
            listing.files.extend(files);
            unknown.extend(changed.into_iter().map(|run| (run, None)));
            for entry in entries(path, &unknown, filter)? {
                listing.files.extend(entry.files);
                listing.damages.extend(entry.damages);
            }
        }
        listing.damages.extend(self.missing(table, filter)?);
        listing.files.sort_by(|a, b| layout::by_rank((&a.place, &a.path), (&b.place, &b.path)));
        Ok(listing)
    }

    /// Returns the directories that runs should have in a table according to their lists in
    /// other tables.
    ///
    /// Errors: one of them exists now.
    fn missing(&self, table: &Table, filter: &PlaceFilter) -> Result<Vec<Damage>, Error> {
        let of_tables = self.tables.iter().map(|(name, of)| {
            let runs = of.runs.iter().map(|(run, found)| (run, found.number));
            (*name, runs.collect::<Vec<_>>())
        });
        let of_others = self.others.iter().map(|(name, of)| {
            (*name, of.iter().map(|(run, number)| (run, *number)).collect::<Vec<_>>())
        });
        let mut elsewhere: BTreeMap<&String, (&str, u64)> = BTreeMap::new();
        for (name, runs) in of_tables.chain(of_others) {
            for (run, number) in runs {
                let is_here = table.runs.contains_key(run) || table.has_compacted(run);
                if !is_here && !self.is_hidden(run) {
                    elsewhere.entry(run).or_insert((name, number));
                }
            }
        }
        if elsewhere.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.manifest.as_ref().and_then(|manifest| manifest.directories().ok());
        let known = known.unwrap_or_default();
        let mut damages = Vec::new();
        for (run, (other, number)) in kept(filter, elsewhere.into_iter(), |(run, _)| run) {
            let has_it = if known.get(other).and_then(|runs| runs.get(run)) == Some(&number) {
                known.get(table.source.name).is_some_and(|runs| runs.contains_key(run))
            } else {
                // A damaged list is reported by queries of its table.
                let list = FileList::read(&self.dataset.join(other).join(run)).ok().flatten();
                list.is_some_and(|of| of.tables.iter().any(|name| name == table.source.name))
            };
            if has_it {
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

/// Opens the manifest; without one that can be read, `None`.
fn newest_manifest(dataset: &Path) -> Option<Arc<Manifest>> {
    match Manifest::newest(dataset) {
        Ok(manifest) => manifest.map(Arc::new),
        Err((path, error)) => {
            report_unread(dataset, &path, &error);
            None
        }
    }
}

/// Reports a manifest that cannot be read.
fn report_unread(dataset: &Path, path: &Path, error: &io::Error) {
    let (path, dataset) = (path.display(), dataset.display());
    message(format_args!(
        "{path}: cannot read it: {error}; all directories are opened instead, until \
         `heaptide dataset index {dataset}` writes it again"
    ));
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
) -> Result<BTreeMap<&'static str, BTreeMap<String, u64>>, Error> {
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

/// Lists the directories of runs by opening them, on several threads.
fn entries(
    table: &Path,
    runs: &[(&String, Option<Identity>)],
    filter: &PlaceFilter,
) -> Result<Vec<Listing>, Error> {
    for_each(runs, |(run, identity)| entry(&table.join(run), run, *identity, filter))
}

/// Returns the results of a function for items, in no particular order, on several threads.
///
/// Errors: those of the function.
pub fn for_each<T: Sync, R: Send>(
    items: &[T],
    of: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (processors * THREADS_PER_PROCESSOR).min(THREADS_MAX).min(items.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(of(item)?);
        }
        Ok(done)
    };
    let done: Result<Vec<Vec<R>>, Error> = together(threads.max(1), work).into_iter().collect();
    Ok(done?.into_iter().flatten().collect())
}

/// Returns the files of runs in a table that the manifest contains and a filter keeps, and the runs
/// with a file that has another size or time than in the manifest.
///
/// Errors: the directory of such a run was renamed since the snapshot.
fn known_files<'a>(
    table: &Path,
    runs: &[(&'a String, &KnownRun)],
    filter: &PlaceFilter,
) -> Result<(Vec<DataFile>, BTreeSet<&'a String>), Error> {
    let files = runs.iter().flat_map(|(run, of)| of.files.iter().map(move |file| (*run, file)));
    let mut files: Vec<(&String, &KnownFile)> = files.collect();
    let places: Vec<_> = files.iter().map(|(run, file)| place_below(run, &file.path)).collect();
    let mut kept = filter.keeps(&places, Known::default()).into_iter();
    files.retain(|_| kept.next() == Some(true));
    let found = for_each(&files, |(run, file)| Ok((*run, known_file(table, run, file))))?;
    let changed: BTreeSet<&String> =
        found.iter().filter(|(_, file)| file.is_none()).map(|(run, _)| *run).collect();
    if !changed.is_empty() {
        // If the run was replaced, the next snapshot has its new directory; else it is damaged.
        let now = layout::entries(table).map_err(|error| Error::file(table, "read it", error))?;
        let now: BTreeMap<String, u64> = now.directories.into_iter().collect();
        let is_same = |run: &String, of: &KnownRun| now.get(run) == Some(&of.directory);
        let mut replaced = runs.iter().filter(|(run, _)| changed.contains(run));
        if let Some((run, _)) = replaced.find(|(run, of)| !is_same(run, of)) {
            return Err(self::changed(&table.join(run)));
        }
    }
    let files = found.into_iter().filter(|(run, _)| !changed.contains(run));
    Ok((files.filter_map(|(_, file)| file).collect(), changed))
}

/// Returns a file that the manifest contains, if it still has the same size and time.
fn known_file(table: &Path, run: &str, known: &KnownFile) -> Option<DataFile> {
    let (place, _) = place_below(run, &known.path);
    let path = table.join(run).join(&known.path);
    let listed = Listed { bytes: known.bytes, rows: known.rows };
    let file = data_file(&path, place, Some(listed)).ok()?;
    is_of_time(&file, known).then_some(DataFile { row: Some(known.row), ..file })
}

/// Returns whether a file was modified at the time that the manifest contains.
fn is_of_time(file: &DataFile, known: &KnownFile) -> bool {
    let modified = file.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(modified.as_nanos()) == Ok(known.modified_ns)
}

/// Returns the place of a file in the directory of a run.
fn place_below(run: &str, path: &str) -> (Place, Known) {
    let (mut place, mut known) = placed(run);
    path.split('/').for_each(|part| known = known.and(place.learn(part)));
    (place, known)
}

/// Lists the directory of a run in a table. If the snapshot has its identity, the directory must
/// have the same.
fn entry(
    path: &Path,
    run: &str,
    expected: Option<Identity>,
    filter: &PlaceFilter,
) -> Result<Listing, Error> {
    let expected = expected.or_else(|| identity(path));
    let (place, known) = placed(run);
    let mut files = Vec::new();
    let walked = collect(path, &place, known, filter, &mut files);
    let listing = walked.map(|()| Entry::new(path, files, run, filter).listing);
    // If the directory was replaced, the files are those of both.
    if expected.is_none() || identity(path) != expected {
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
    let inside = |(name, _): &(String, u64)| {
        let mut inside = place.clone();
        let learned = inside.learn(name);
        (inside, known.and(learned))
    };
    let places: Vec<_> = entries.directories.iter().map(inside).collect();
    let kept = filter.keeps(&places, known);
    let below = entries.directories.iter().zip(places).zip(kept).filter(|(_, is_kept)| *is_kept);
    for (((name, _), (place, known)), _) in below {
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

/// The directory of a run in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    /// Its number in the list of the names in the table.
    number: u64,
    /// What identifies it; `None` if the manifest contains its files.
    identity: Option<Identity>,
}

/// The directories of a table.
#[derive(Debug)]
struct Table {
    source: &'static Source,
    /// What the manifest contains.
    known: KnownRuns,
    directory: Option<(PathBuf, Identity)>,
    /// The files that are in the directory itself.
    compacted: Option<Entry>,
    /// The directories in it, by name.
    runs: BTreeMap<String, Found>,
}

/// The files of a directory.
#[derive(Debug)]
struct Entry {
    list: Option<FileList>,
    listing: Listing,
}

impl Table {
    fn new(source: &'static Source, dataset: &Path, manifest: Option<&Manifest>) -> Table {
        let known = manifest.and_then(|manifest| {
            let report = |error: &io::Error| report_unread(dataset, &manifest.path, error);
            manifest.files(source).inspect_err(report).ok()
        });
        let known = known.unwrap_or_default();
        Table { source, known, directory: None, compacted: None, runs: BTreeMap::new() }
    }

    /// Looks up all directories that are not hidden; returns whether one has changed.
    fn refresh(&mut self, dataset: &Path, hidden: &BTreeSet<String>) -> Result<bool, Error> {
        let directory = layout::table(dataset, self.source);
        let directory = directory.and_then(|path| identity(&path).map(|id| (path, id)));
        let is_new = self.directory != directory;
        self.directory = directory;
        if is_new {
            self.runs.clear();
            self.compacted = None;
        }
        let Some((path, _)) = &self.directory else {
            return Ok(is_new);
        };
        let found = match layout::entries(path) {
            // It was renamed meanwhile, which the next check notices.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.directory = None;
                return Ok(true);
            }
            found => found.map_err(|error| Error::file(path, "read it", error))?,
        };
        if is_new {
            let files = found.files.iter().map(|name| (path.join(name), Place::default()));
            let mut entry = Entry::new(path, files.collect(), "", &PlaceFilter::none());
            entry.learn_rows(self.known.get(""));
            self.compacted = Some(entry);
        }
        let mut runs = BTreeMap::new();
        for (name, number) in found.directories {
            let is_known = self.known.get(&name).is_some_and(|of| of.directory == number);
            if is_known {
                runs.insert(name, Found { number, identity: None });
            } else if let Some(identity) = identity(&path.join(&name)) {
                runs.insert(name, Found { number, identity: Some(identity) });
            }
        }
        runs.retain(|name, _| !hidden.contains(name));
        self.runs.retain(|name, _| !hidden.contains(name));
        let is_changed = is_new || self.runs != runs;
        self.runs = runs;
        Ok(is_changed)
    }

    /// Returns whether compacted files contain a run, by the name of its directory.
    fn has_compacted(&self, run: &str) -> bool {
        let Some(entry) = &self.compacted else {
            return false;
        };
        match &entry.list {
            Some(list) => list.runs.contains(run),
            None => !entry.listing.files.is_empty(), // version 0.2 wrote no lists
        }
    }
}

impl Entry {
    /// Returns the files of a directory with this name in a table, after a comparison with its
    /// list, of which only the files that a filter keeps are expected.
    fn new(
        directory: &Path,
        files: Vec<(PathBuf, Place)>,
        name: &str,
        filter: &PlaceFilter,
    ) -> Entry {
        let mut listing = Listing::default();
        let list = FileList::read(directory).unwrap_or_else(|error| {
            let path = directory.join(file_list::NAME);
            listing.damages.push(Damage { path, what: error.to_string() });
            None
        });
        let mut expected = list.as_ref().map(|of| of.files.clone()).unwrap_or_default();
        for (path, place) in files {
            let relative = path.strip_prefix(directory).ok().and_then(Path::to_str);
            let listed = relative.and_then(|relative| expected.remove(relative));
            match data_file(&path, place, listed) {
                Ok(file) => listing.files.push(file),
                Err(what) => listing.damages.push(Damage { path, what }),
            }
        }
        let places: Vec<_> = expected.keys().map(|path| place_below(name, path)).collect();
        let kept = filter.keeps(&places, Known::default());
        let missing = expected.keys().zip(kept).filter(|(_, is_kept)| *is_kept);
        let missing = missing.map(|(name, _)| directory.join(name));
        listing.damages.extend(missing.map(|path| Damage { path, what: "is missing".to_owned() }));
        Entry { list, listing }
    }

    /// Looks up the rows of compacted files in the manifest.
    fn learn_rows(&mut self, known: Option<&KnownRun>) {
        let files = known.into_iter().flat_map(|known| &known.files);
        let known: BTreeMap<&str, &KnownFile> = files.map(|of| (&*of.path, of)).collect();
        for file in &mut self.listing.files {
            let name = file.path.file_name().and_then(|name| name.to_str());
            let same = name.and_then(|name| known.get(name)).filter(|of| is_of_time(file, of));
            file.row = same.filter(|of| of.bytes == file.bytes).map(|of| of.row);
        }
    }
}

/// Returns a file with its size, which has to be the one of its list.
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
            row: None,
        }),
    }
}
