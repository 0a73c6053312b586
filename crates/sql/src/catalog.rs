//! The files of a dataset at one moment: a run is listed with all of its files or not at all, while
//! exports and compactions change the dataset.
//!
//! Directories are listed again if they were renamed meanwhile, and runs that an export is moving
//! are omitted (see `moves`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use heaptide_command::error::Error;
use heaptide_query::tables::Source;

use crate::layout::{self, Place};
use crate::manifest::{self, Manifest};
use crate::moves::{self, Kind, Mark};

/// How long to wait for a stable state: moving a run takes milliseconds.
const WAIT: Duration = Duration::from_secs(20);
/// The interval at which a replacement is polled.
const POLL: Duration = Duration::from_millis(5);
/// The name of the entry for files that are in the directory of a table itself.
const TABLE_ITSELF: &str = "";

/// A file of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataFile {
    pub path: PathBuf,
    pub place: Place,
    pub bytes: u64,
    pub modified: SystemTime,
    /// Whether a manifest contains its size, which is the same.
    pub is_listed: bool,
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
    /// Sorted by path.
    pub files: Vec<DataFile>,
    pub damages: Vec<Damage>,
}

/// Lists the tables of a dataset; those without a directory are omitted.
///
/// Errors: a directory cannot be read; a run was being replaced when its export was killed.
pub fn tables(dataset: &Path) -> Result<BTreeMap<&'static str, Listing>, Error> {
    let deadline = Instant::now() + WAIT;
    let mut hidden = new_runs(&marks(dataset)?);
    let mut again = BTreeSet::new();
    let mut tables: Vec<Table> = Source::all().iter().map(Table::new).collect();
    loop {
        let names: BTreeSet<String> =
            tables.iter().flat_map(|table| table.entries.keys().cloned()).collect();
        let mut is_changed = false;
        for table in &mut tables {
            is_changed |= table.refresh(dataset, &names, &again, &hidden)?;
        }
        let marks = marks(dataset)?;
        hidden.extend(new_runs(&marks));
        let replaced =
            |(name, mark): (&String, &Mark)| (mark.kind == Kind::Replacement).then(|| name.clone());
        let replaced: BTreeSet<String> = marks.iter().filter_map(replaced).collect();
        if !is_changed && again.is_empty() && replaced.is_empty() {
            return Ok(listings(tables, &hidden));
        }
        if let Some(run) = replaced.first() {
            check_replacement(dataset, run, deadline)?;
            thread::sleep(POLL);
        } else if Instant::now() > deadline {
            let path = dataset.display();
            return Err(Error::new(format!(
                "{path}: its directories change too often; try again when exports have ended"
            )));
        }
        again = replaced;
    }
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

/// The entries of a table while the dataset is listed.
struct Table {
    source: &'static Source,
    directory: Option<(PathBuf, Identity)>,
    /// Directories, usually of runs, by name.
    entries: BTreeMap<String, Entry>,
}

/// A directory in a table.
struct Entry {
    identity: Identity,
    manifest: Option<Manifest>,
    listing: Listing,
}

impl Table {
    fn new(source: &'static Source) -> Table {
        Table { source, directory: None, entries: BTreeMap::new() }
    }

    /// Lists the directories that have changed and those that `again` contains; returns whether
    /// one that is not hidden has changed. `names` are those of all tables.
    fn refresh(
        &mut self,
        dataset: &Path,
        names: &BTreeSet<String>,
        again: &BTreeSet<String>,
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
        for name in names.iter().filter(|name| *name != TABLE_ITSELF && !hidden.contains(*name)) {
            let now = identity(&path.join(name));
            let differs = self.entries.get(name).map(|entry| entry.identity) != now;
            if differs || again.contains(name) {
                self.list_entry(&path, name)?;
            }
            is_changed |= differs;
        }
        Ok(is_changed)
    }

    fn list_all(&mut self) -> Result<(), Error> {
        self.entries.clear();
        let Some((path, id)) = self.directory.clone() else {
            return Ok(());
        };
        let failed = |error| Error::file(&path, "read it", error);
        let mut files = Vec::new();
        let mut names = Vec::new();
        for entry in path.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().map_err(failed)?.is_dir() {
                names.push(name);
            } else if name.ends_with(layout::SUFFIX) {
                files.push((entry.path(), Place::default()));
            }
        }
        self.entries.insert(TABLE_ITSELF.to_owned(), Entry::new(&path, id, files));
        names.iter().try_for_each(|name| self.list_entry(&path, name))
    }

    fn list_entry(&mut self, table: &Path, name: &str) -> Result<(), Error> {
        self.entries.remove(name);
        let path = table.join(name);
        let Some(identity) = identity(&path) else {
            return Ok(());
        };
        match layout::files(&path, &Place::of_directory(name)) {
            Ok(files) => {
                self.entries.insert(name.to_owned(), Entry::new(&path, identity, files));
                Ok(())
            }
            // It was renamed meanwhile, which the next check notices.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::file(&path, "read it", error)),
        }
    }

    /// Returns whether compacted files contain a run, by the name of its directory.
    fn has_compacted(&self, run: &str) -> bool {
        let Some(entry) = self.entries.get(TABLE_ITSELF) else {
            return false;
        };
        match &entry.manifest {
            Some(manifest) => manifest.runs.iter().any(|name| name == run),
            None => !entry.listing.files.is_empty(), // version 0.2 wrote no lists
        }
    }
}

impl Entry {
    fn new(directory: &Path, identity: Identity, files: Vec<(PathBuf, Place)>) -> Entry {
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
        let missing = expected.keys().map(|name| directory.join(name));
        listing.damages.extend(missing.map(|path| Damage { path, what: "is missing".to_owned() }));
        Entry { identity, manifest, listing }
    }
}

/// Returns a file with its size, which has to be the one of its manifest.
fn data_file(path: &Path, place: Place, listed: Option<u64>) -> Result<DataFile, String> {
    let failed = |error: io::Error| error.to_string();
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let (bytes, modified) = (metadata.len(), metadata.modified().map_err(failed)?);
    match listed {
        Some(expected) if expected != bytes => {
            Err(format!("is damaged: {bytes} bytes, expected {expected}"))
        }
        _ => Ok(DataFile {
            path: path.to_owned(),
            place,
            bytes,
            modified,
            is_listed: listed.is_some(),
        }),
    }
}

/// Returns the files of each table, without those of hidden runs.
fn listings(tables: Vec<Table>, hidden: &BTreeSet<String>) -> BTreeMap<&'static str, Listing> {
    let mut all = BTreeMap::new();
    for table in tables.iter().filter(|table| table.directory.is_some()) {
        let listing: &mut Listing = all.entry(table.source.name).or_default();
        for (_, entry) in table.entries.iter().filter(|(name, _)| !hidden.contains(*name)) {
            listing.files.extend(entry.listing.files.iter().cloned());
            listing.damages.extend(entry.listing.damages.iter().cloned());
        }
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
    }
    for (name, run, path) in missing(&tables) {
        if !hidden.contains(run) {
            let damage = Damage { path, what: "is missing".to_owned() };
            all.entry(name).or_default().damages.push(damage);
        }
    }
    all
}

/// Returns the directories that runs should have according to their manifests, with their tables
/// and runs.
fn missing<'a>(tables: &'a [Table]) -> BTreeSet<(&'static str, &'a str, PathBuf)> {
    let mut missing = BTreeSet::new();
    let runs = tables.iter().flat_map(|table| {
        let with_manifest = move |(run, entry): (&'a String, &'a Entry)| {
            Some((table, run, entry.manifest.as_ref()?))
        };
        table.entries.iter().filter_map(with_manifest)
    });
    for (known, run, manifest) in runs {
        let names = manifest.tables.iter();
        for other in tables.iter().filter(|table| names.clone().any(|of| of == table.source.name)) {
            if other.entries.contains_key(run) || other.has_compacted(run) {
                continue;
            }
            let dataset = known.directory.as_ref().and_then(|(path, _)| path.parent());
            let path = dataset.unwrap_or(Path::new("")).join(other.source.name).join(run);
            missing.insert((other.source.name, &**run, path));
        }
    }
    missing
}
