//! How an export adds runs to a dataset: it writes their files to `.exports/ID`, and when these are
//! complete, it moves the directories of each run to the tables. Meanwhile the run has a mark, and
//! readers ignore it; it appears, with all of its files, when the mark is removed.
//!
//! If an export is killed, the next command that writes to the dataset completes a move that has
//! begun, and removes everything else.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heaptide_analysis::files::draft::{exchange, rename_new};
use heaptide_command::error::Error;
use heaptide_query::tables::Source;

use crate::file_list::FileList;
use crate::manifest;
use crate::moves::{self, Kind, Mark};

/// What happens to a run that is already in the dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// The export fails.
    Keep,
    /// The new files replace the old ones.
    Replace,
}

/// The files of an export until they are moved; dropping it removes them.
pub struct Staging {
    dataset: PathBuf,
    /// The number of the export, in hexadecimal digits.
    pub id: String,
    directory: PathBuf,
}

impl Staging {
    /// Creates the directory.
    ///
    /// Errors: it cannot be created.
    pub fn new(dataset: &Path) -> Result<Staging, Error> {
        loop {
            let id = format!("{:016x}", RandomState::new().build_hasher().finish());
            let directory = moves::export(dataset, &id);
            let created = fs::create_dir_all(moves::directory(dataset))
                .and_then(|()| fs::create_dir(&directory));
            match created {
                Ok(()) => return Ok(Staging { dataset: dataset.to_owned(), id, directory }),
                // Another export has this number, or has removed the empty directory above.
                Err(error)
                    if [ErrorKind::AlreadyExists, ErrorKind::NotFound].contains(&error.kind())
                        && dataset.is_dir() => {}
                Err(error) => return Err(Error::file(&directory, "write it", error)),
            }
        }
    }

    /// Returns the directory for the files of a table.
    pub fn table(&self, source: &Source) -> PathBuf {
        self.directory.join(source.name)
    }

    /// Lists the files of a run in each table.
    ///
    /// Errors: they cannot be read, or the lists cannot be written.
    pub fn list(&self, run: &str) -> Result<(), Error> {
        let places = Source::all().iter().map(|source| (source, self.table(source).join(run)));
        let places: Vec<_> = places.filter(|(_, place)| place.is_dir()).collect();
        let tables: Vec<String> = places.iter().map(|(of, _)| of.name.to_owned()).collect();
        for (_, place) in places {
            let (id, tables) = (self.id.clone(), tables.clone());
            let mut list = FileList { id, tables, ..FileList::default() };
            let listed = list.add_files(&place).and_then(|()| list.write(&place));
            listed.map_err(|error| Error::file(&place, "list its files", error))?;
        }
        Ok(())
    }

    /// Moves a run, named by its directory, to the tables.
    ///
    /// Errors: it exists and is kept; the directories cannot be moved.
    pub fn publish(&self, run: &str, existing: Existing) -> Result<(), Error> {
        let path = moves::mark(&self.dataset, run);
        let failed = |error| Error::file(&path, "write it", error);
        let _locked = self.mark(run, existing)?;
        // On an error the mark stays, because the tables may have a part of the run.
        move_and_forget(&self.dataset, &self.id, run)?;
        fs::remove_file(&path).map_err(failed)
    }

    /// Creates the mark of a run; it is locked until the result is dropped.
    fn mark(&self, run: &str, existing: Existing) -> Result<File, Error> {
        let path = moves::mark(&self.dataset, run);
        let failed = |error| Error::file(&path, "write it", error);
        loop {
            if path.exists() {
                self.wait(run)?;
                continue;
            }
            let kind = self.kind(run, existing)?;
            let own = self.directory.join("mark");
            let mark = Mark { kind, id: self.id.clone() };
            let mut file = File::create(&own).map_err(failed)?;
            let _ = file.try_lock(); // without locks, marks of killed exports are not recognized
            file.write_all(mark.text().as_bytes()).map_err(failed)?;
            match rename_new(&own, &path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error)),
            }
            // Another export may have added the run before this one had the mark.
            match self.kind(run, existing) {
                Ok(now) if now == kind => return Ok(file),
                outcome => {
                    fs::remove_file(&path).map_err(failed)?;
                    outcome?;
                }
            }
        }
    }

    fn kind(&self, run: &str, existing: Existing) -> Result<Kind, Error> {
        match place_of(&self.dataset, run) {
            None => Ok(Kind::New),
            Some(_) if existing == Existing::Replace => Ok(Kind::Replacement),
            Some(place) => Err(exists(&place)),
        }
    }

    /// Waits until the mark of another export is removed; if that export was killed, completes its
    /// move.
    fn wait(&self, run: &str) -> Result<(), Error> {
        let path = moves::mark(&self.dataset, run);
        let Ok(file) = File::open(&path) else {
            return Ok(()); // removed meanwhile
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return file.lock().map_err(|error| Error::file(&path, "lock it", error));
            }
            Err(TryLockError::Error(_)) => {
                let what = "another export is moving this run";
                let advice = "if none is running, remove the file";
                return Err(Error::new(format!("{}: {what}; {advice}", path.display())));
            }
        }
        let number = |of: io::Result<fs::Metadata>| of.map(|of| of.ino()).ok();
        if number(file.metadata()) == number(path.metadata()) {
            complete(&self.dataset, run)?;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The next export removes what cannot be removed now.
        let marks = moves::marks(&self.dataset).unwrap_or_default();
        if marks.values().any(|mark| mark.id == self.id) {
            return; // a move failed, and needs these files to be completed
        }
        let _ = fs::remove_dir_all(&self.directory);
        let _ = fs::remove_dir(moves::directory(&self.dataset));
    }
}

/// Returns the error for a run that exists.
pub fn exists(place: &Path) -> Error {
    let what = "exists; replace it with --force, or choose another directory with -o";
    Error::new(format!("{}: {what}", place.display()))
}

/// Returns the directory of a run in one of the tables, if there is one.
pub fn place_of(dataset: &Path, run: &str) -> Option<PathBuf> {
    let mut places = Source::all().iter().map(|source| dataset.join(source.name).join(run));
    places.find(|place| place.symlink_metadata().is_ok())
}

/// Completes the moves of killed exports, and removes their other files. The caller has excluded
/// all other writers.
///
/// Errors: a directory cannot be moved or removed.
pub fn recover(dataset: &Path) -> Result<(), Error> {
    let marks = moves::marks(dataset);
    let marks = marks.map_err(|(path, error)| Error::file(&path, "read it", error))?;
    marks.keys().try_for_each(|run| complete(dataset, run))?;
    let directory = moves::directory(dataset);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file(&directory, "remove it", error))
        }
        _ => Ok(()),
    }
}

/// Completes the move of a run whose export was killed.
fn complete(dataset: &Path, run: &str) -> Result<(), Error> {
    let path = moves::mark(dataset, run);
    let read = Mark::read(&path).map_err(|error| Error::file(&path, "read it", error))?;
    let Some(mark) = read else {
        return Ok(());
    };
    move_and_forget(dataset, &mark.id, run)?;
    fs::remove_file(&path).map_err(|error| Error::file(&path, "remove it", error))
}

/// Moves a run to the tables, and removes what the manifest contains about an earlier run of its
/// name.
fn move_and_forget(dataset: &Path, id: &str, run: &str) -> Result<(), Error> {
    let moved = move_run(dataset, id, run, &mut || Ok(()));
    moved.map_err(|(place, error)| Error::file(&place, "move it to its table", error))?;
    let forgotten = manifest::forget(dataset, run);
    forgotten.map_err(|(path, error)| Error::file(&path, "write it", error))
}

/// Called before each change of the tables; in tests, an error simulates a killed process.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Moves the directories of a run from an export to the tables. A second call continues a move that
/// was interrupted.
fn move_run(
    dataset: &Path,
    id: &str,
    run: &str,
    step: Step<'_>,
) -> Result<(), (PathBuf, io::Error)> {
    let export = moves::export(dataset, id);
    for source in Source::all() {
        let table = dataset.join(source.name);
        let (staged, place) = (export.join(source.name).join(run), table.join(run));
        let old = export.join(format!("old-{}-{run}", source.name));
        let moved = if is_of(&staged, id) {
            fs::create_dir_all(&table).and_then(|()| replace(&staged, &place, &old, step))
        } else if place.exists() && !is_of(&place, id) {
            step().and_then(|()| fs::rename(&place, &old)) // the new run lacks this table
        } else {
            Ok(())
        };
        moved.map_err(|error| (staged, error))?;
    }
    Ok(())
}

/// Renames `new` to `place`; an old directory of that name is renamed to `new` or `old`.
fn replace(new: &Path, place: &Path, old: &Path, step: Step<'_>) -> io::Result<()> {
    step()?;
    if place.exists() {
        if exchange(new, place)? {
            return Ok(());
        }
        fs::rename(place, old)?;
        step()?;
    }
    fs::rename(new, place)
}

/// Returns whether a directory has files of this export.
fn is_of(directory: &Path, id: &str) -> bool {
    FileList::read(directory).is_ok_and(|found| found.is_some_and(|found| found.id == id))
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;
    use crate::catalog::{CHANGED, Catalog, Listing, Use};
    use crate::pruning::PlaceFilter;

    const RUN: &str = "run=a";
    const TABLES: [&str; 3] = ["sites", "timeline", "processes"];

    /// Writes a run with files of this size in these tables, below an export.
    fn staged(dataset: &Path, tables: &[&str], bytes: usize) -> Staging {
        let staging = Staging::new(dataset).expect("a directory");
        for table in tables {
            let place = staging.table(Source::named(table).expect("a table")).join(RUN);
            fs::create_dir_all(&place).expect("a directory");
            fs::write(place.join("image-0.parquet"), vec![0; bytes]).expect("a file");
        }
        staging.list(RUN).expect("lists");
        staging
    }

    /// Returns the tables with their sizes, or the error of a reader.
    fn sizes(dataset: &Path) -> Result<Vec<(&'static str, u64)>, String> {
        let catalog = Catalog::new(dataset, Use::Manifest);
        let names = Source::all().iter().map(|source| source.name).collect();
        catalog.prepare(&names).map_err(|error| error.to_string())?;
        let mut sizes = Vec::new();
        for source in Source::all() {
            let snapshot = catalog.snapshot(source).expect("a snapshot");
            let listing = snapshot.listing(source, &PlaceFilter::none()).expect("files");
            assert_eq!(listing.damages, []);
            sizes.extend(listing.files.into_iter().map(|file| (source.name, file.bytes)));
        }
        sizes.sort_unstable();
        Ok(sizes)
    }

    /// Begins to move a run, and stops before step `steps`, as if the process were killed.
    fn move_until(staging: Staging, kind: Kind, steps: usize) -> bool {
        let (dataset, id) = (staging.dataset.clone(), staging.id.clone());
        std::mem::forget(staging); // nothing is cleaned up
        let mark = Mark { kind, id: id.clone() };
        fs::write(moves::mark(&dataset, RUN), mark.text()).expect("a mark");
        let mut left = steps;
        let mut step = || {
            left = left.checked_sub(1).ok_or(ErrorKind::Interrupted)?;
            Ok(())
        };
        move_run(&dataset, &id, RUN, &mut step).is_ok()
    }

    #[test]
    fn a_move_that_is_killed_at_any_step_is_completed() {
        let old: &[&str] = &["events", "processes", "sites"];
        for (kind, steps_of_all) in [(Kind::New, 3), (Kind::Replacement, 4)] {
            for steps in 0..=steps_of_all {
                let place = Scratch::new(&format!("killed move {steps}"));
                if kind == Kind::Replacement {
                    let staging = staged(&place, old, 1);
                    staging.publish(RUN, Existing::Keep).expect("a new run");
                    let before = [("events", 1), ("processes", 1), ("sites", 1)];
                    assert_eq!(sizes(&place), Ok(before.into()));
                }
                let is_whole = move_until(staged(&place, &TABLES, 2), kind, steps);
                assert_eq!(is_whole, steps == steps_of_all);
                // The run is not there, or an error names it.
                match kind {
                    Kind::New => assert_eq!(sizes(&place), Ok(Vec::new()), "{steps}"),
                    Kind::Replacement => {
                        let error = sizes(&place).expect_err("a part of a run");
                        assert!(error.contains("`run=a` is only partly replaced"), "{error}");
                    }
                }
                recover(&place).expect("to complete it");
                let after = [("processes", 2), ("sites", 2), ("timeline", 2)];
                assert_eq!(sizes(&place), Ok(after.into()), "{kind:?} {steps}");
                assert!(!moves::directory(&place).exists());
            }
        }
    }

    #[test]
    fn the_next_export_of_a_run_completes_a_killed_move_first() {
        let place = Scratch::new("killed move and export");
        move_until(staged(&place, &TABLES, 2), Kind::New, 1);
        let error = staged(&place, &TABLES, 3).publish(RUN, Existing::Keep);
        let error = error.expect_err("the run exists").to_string();
        assert!(error.contains("exists; replace it with --force"), "{error}");
        assert_eq!(sizes(&place).map(|all| all[0]), Ok(("processes", 2)));
        staged(&place, &TABLES, 3).publish(RUN, Existing::Replace).expect("to replace it");
        assert_eq!(sizes(&place).map(|all| all.len()), Ok(3));
        assert_eq!(sizes(&place).map(|all| all[0]), Ok(("processes", 3)));
    }

    #[test]
    fn a_run_that_is_replaced_after_a_snapshot_is_not_missing() {
        let place = Scratch::new("replaced after a snapshot");
        let small = staged(&place, &["processes", "sites"], 1);
        small.publish(RUN, Existing::Keep).expect("a new run");
        let catalog = Catalog::new(&place, Use::Manifest);
        let labels = Source::named("labels").expect("a table");
        let listed = || {
            let snapshot = catalog.snapshot(labels).expect("a snapshot");
            snapshot.listing(labels, &PlaceFilter::none()).map_err(|error| error.to_string())
        };
        assert_eq!(listed(), Ok(Listing::default()));
        let large = staged(&place, &["labels", "processes", "sites"], 2);
        large.publish(RUN, Existing::Replace).expect("to replace it");
        let error = listed().expect_err("the table has the run now");
        assert!(error.ends_with(CHANGED), "{error}");
        catalog.refresh().expect("a snapshot");
        assert_eq!(listed().map(|listing| listing.files.len()), Ok(1));
    }

    #[test]
    fn an_export_that_fails_leaves_nothing() {
        let place = Scratch::new("failed export");
        let staging = staged(&place, &TABLES, 2);
        assert!(moves::export(&place, &staging.id).is_dir());
        drop(staging);
        assert_eq!(fs::read_dir(&*place).expect("a directory").count(), 0);
    }
}
