//! Merges several recordings by copying their files, joining their names, and noting the origin of
//! each file.
//!
//! Profiles are not decoded. Files of the first run get the prefix `r1-`, those of the second
//! `r2-`, so that equal pids do not collide and snapshots and baselines keep the name of their
//! profile.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_format as format;
use rustc_hash::FxHashSet;

use super::directory::profiles_in;
use super::metadata::{self, MergedRun, Metadata};
use super::removed;
use super::running::maps_file;
use super::seal::names;
use super::snapshot;
use crate::error::Error;
use crate::files::file_names;
use crate::files::input;
use crate::model::Removed;
use crate::profile::header::FILE_LIMIT;
use crate::profile::{pack, reader, retained};
use crate::symbols::{Blazesym, Engine, Symbols};
use crate::trace;

/// The current step of merging, for progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Copying files.
    Copying,
    /// Looking up addresses of an unsealed recording.
    Naming,
}

/// The result of merging.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged {
    /// Number of runs in the merged recording; a recording that was merged before counts as its
    /// runs.
    pub runs: usize,
    /// Number of process images.
    pub images: usize,
    /// A line for each file that could not be read and was copied unchanged or omitted, and for
    /// each module without names.
    pub notes: Vec<String>,
}

/// Copies recordings into an existing empty directory. Names of unsealed recordings are looked up;
/// running processes are copied in their current state. The recordings are not changed. `progress`
/// receives the current step, the number of processed items and their total.
///
/// Errors: a recording does not exist, contains nothing readable or is given twice, or a file
/// cannot be copied. Files copied before an error stay in the directory.
///
/// ```
/// let mut quiet = |_, _, _| {};
/// let inputs = ["missing.heaptide".into()];
/// use heaptide_analysis::recording::merge::merge;
/// assert!(merge(&inputs, "all".as_ref(), &mut quiet).is_err());
/// ```
pub fn merge(
    recordings: &[PathBuf],
    directory: &Path,
    progress: &mut dyn FnMut(Doing, usize, usize),
) -> Result<Merged, Error> {
    merge_with(recordings, directory, &Blazesym, progress)
}

/// Merges with another engine for names.
pub fn merge_with(
    recordings: &[PathBuf],
    directory: &Path,
    engine: &dyn Engine,
    progress: &mut dyn FnMut(Doing, usize, usize),
) -> Result<Merged, Error> {
    let inputs = recordings.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
    let mut given = FxHashSet::default();
    let mut again = recordings.iter().filter(|path| {
        fs::canonicalize(path).is_ok_and(|whole| !given.insert(whole)) // missing paths fail later
    });
    if let Some(path) = again.next() {
        return Err(Error::Twice { path: path.clone() });
    }
    let mut merging = Merging::of(directory);
    merging.total = inputs.iter().map(|input| input.profiles.len() + input.copies.len()).sum();
    for input in inputs {
        merging.add(input, engine, progress)?;
    }
    merging.finish()
}

/// Its path as given.
struct Input {
    /// Its path as given.
    path: PathBuf,
    metadata: Option<Metadata>,
    profiles: Vec<PathBuf>,
    /// Snapshots and baselines.
    copies: Vec<PathBuf>,
    removed: Removed,
    notes: Vec<String>,
}

impl Input {
    fn open(path: &Path) -> Result<Input, Error> {
        let kind = fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), doing: "read", source },
        })?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (directory, mut profiles) = if kind.is_dir() {
            (path, profiles_in(path)?)
        } else {
            (parent, vec![path.to_owned()])
        };
        let all = profiles.len();
        let mut notes = Vec::new();
        let mut first = None;
        profiles.retain(|file| match uncopied(file) {
            Some(error) => {
                notes.push(left_out(&error));
                first.get_or_insert(error);
                false
            }
            None => true,
        });
        let heads = profiles.iter().map(|file| reader::read_header(file));
        for error in heads.filter_map(Result::err) {
            notes.push(format!("{error}; copied as is"));
            first.get_or_insert(error);
        }
        match first {
            Some(first) if notes.len() == all => {
                let (path, first) = (path.to_owned(), Box::new(first));
                return Err(Error::NothingReadable { path, profiles: all, first });
            }
            _ => {}
        }
        let metadata = Metadata::read(directory).unwrap_or_else(|error| {
            notes.push(format!("{error}; the exit statuses of its processes are unknown"));
            None
        });
        let removed = removed::read(directory).unwrap_or_else(|error| {
            notes.push(format!("{error}; the totals of removed data are unknown"));
            Removed::default()
        });
        let copies = snapshot::copies(directory).into_iter();
        let of_one = |name: &str| profiles.iter().any(|p| file_names::image_name(p) == name);
        let mut copies: Vec<PathBuf> = copies
            .filter(|(name, _)| kind.is_dir() || of_one(name))
            .flat_map(|(_, copies)| copies)
            .collect();
        copies.retain(|file| {
            let error = uncopied(file);
            notes.extend(error.as_ref().map(left_out));
            error.is_none()
        });
        copies.sort();
        Ok(Input { path: path.to_owned(), metadata, profiles, copies, removed, notes })
    }

    /// Returns its runs: those that were merged into it, or itself.
    fn runs(&self) -> Vec<MergedRun> {
        let metadata = self.metadata.as_ref();
        match metadata.filter(|m| !m.runs.is_empty()) {
            Some(merged) => merged.runs.clone(),
            None => vec![MergedRun {
                recording: self.path.to_string_lossy().into_owned(),
                command: metadata.map_or_else(Vec::new, |m| m.command.clone()),
                root_pid: metadata.map_or(0, |m| m.root_pid),
                status: metadata.and_then(|m| m.status),
                ends: metadata.map_or_else(Vec::new, |m| m.ends.clone()),
                members: metadata.map_or_else(Vec::new, |m| m.members.clone()),
                in_part: metadata.map_or_else(String::new, |m| m.in_part.clone()),
                ..MergedRun::default()
            }],
        }
    }

    fn sealed_symbols(&mut self) -> Option<Symbols> {
        let sealed = self.metadata.as_ref().is_none_or(|m| m.sealed);
        let directory = if self.path.is_dir() {
            &*self.path
        } else {
            self.path.parent().unwrap_or(Path::new("."))
        };
        let symbols = Symbols::read(directory).unwrap_or_else(|error| {
            self.notes.push(format!("{error}; looking up symbols again"));
            None
        });
        symbols.filter(|_| sealed)
    }
}

/// The merged recording while inputs are added.
struct Merging<'a> {
    directory: &'a Path,
    symbols: Symbols,
    runs: Vec<MergedRun>,
    commands: Vec<Vec<String>>,
    images: usize,
    copied: usize,
    total: usize,
    removed: Removed,
    notes: Vec<String>,
}

impl<'a> Merging<'a> {
    fn of(directory: &'a Path) -> Merging<'a> {
        Merging {
            directory,
            symbols: Symbols::default(),
            runs: Vec::new(),
            commands: Vec::new(),
            images: 0,
            copied: 0,
            total: 0,
            removed: Removed::default(),
            notes: Vec::new(),
        }
    }

    fn add(
        &mut self,
        mut input: Input,
        engine: &dyn Engine,
        progress: &mut dyn FnMut(Doing, usize, usize),
    ) -> Result<(), Error> {
        match input.sealed_symbols() {
            Some(symbols) => self.symbols.absorb(symbols),
            None => {
                let naming = &mut |done, total| progress(Doing::Naming, done, total);
                let (symbols, refused) = names(&input.path, engine, naming)?;
                self.symbols.absorb(symbols);
                self.notes.extend(refused);
            }
        }
        let before = self.runs.len();
        self.runs.append(&mut input.runs());
        for profile in &input.profiles {
            let (run, name) = self.named(&input, profile, before);
            let to = self.directory.join(&name);
            let copied = copy(profile, &to)?;
            if copied.is_some_and(|copied| copied.runs) {
                let run = &mut self.runs[run - 1];
                run.copied_realtime_ns = now_ns();
                let image = file_names::image_name(profile);
                run.running.push(file_names::split(&image).1.to_owned());
            }
            // Copied after the profile, so that events moved meanwhile are in at least one of the
            // copies.
            let trace = trace::file::path_of(profile);
            match trace::file::TraceFile::of(profile) {
                Err(error) => self.notes.push(left_out(&error)),
                Ok(Some(there)) => {
                    let (_, name) = self.named(&input, &trace, before);
                    // A torn end is not copied.
                    copy_whole(&trace, &self.directory.join(name), there.length())?;
                }
                Ok(None) => {}
            }
            self.copy_search(&input, profile, before)?;
            copied.into_iter().for_each(|copied| copied.finish(&to));
            self.step(progress);
        }
        for file in &input.copies {
            let (_, name) = self.named(&input, file, before);
            let to = self.directory.join(name);
            copy(file, &to)?.into_iter().for_each(|copied| copied.pack(&to));
            self.copy_search(&input, file, before)?;
            self.step(progress);
        }
        self.removed.add(&input.removed);
        self.images += input.profiles.len();
        self.notes.append(&mut input.notes);
        self.commands.extend(input.metadata.map(|m| m.command).filter(|c| !c.is_empty()));
        Ok(())
    }

    /// Copies what a search found that belongs to a profile or snapshot, if there is one.
    fn copy_search(&self, input: &Input, of: &Path, before: usize) -> Result<(), Error> {
        let retained = retained::path_of(of);
        if retained.exists() {
            let (_, name) = self.named(input, &retained, before);
            copy_whole(&retained, &self.directory.join(name), FILE_LIMIT)?;
        }
        Ok(())
    }

    /// Returns the run of a file of the input whose runs were added last, from 1, and the name of
    /// the file in the merged recording; the first `before` runs belong to other inputs.
    fn named(&self, input: &Input, file: &Path, before: usize) -> (usize, String) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let merged = input.metadata.as_ref().is_some_and(|m| !m.runs.is_empty());
        // Only files of a merged recording have a run; other files can have any name.
        let (run, rest) = match file_names::split(&name) {
            (run, rest) if merged && (1..=self.runs.len() - before).contains(&(run as usize)) => {
                (run, rest)
            }
            _ => (1, &*name),
        };
        let run = before + run as usize;
        (run, format!("r{run}-{rest}"))
    }

    fn step(&mut self, progress: &mut dyn FnMut(Doing, usize, usize)) {
        self.copied += 1;
        progress(Doing::Copying, self.copied, self.total);
    }

    fn finish(mut self) -> Result<Merged, Error> {
        let mut said = FxHashSet::default();
        self.notes.retain(|note| said.insert(note.clone())); // runs can share a module
        self.symbols.write(self.directory)?;
        let first = self.commands.first().cloned().unwrap_or_default();
        let same = self.commands.iter().all(|command| *command == first);
        let runs = self.runs.len();
        let metadata = Metadata {
            version: metadata::VERSION,
            heaptide: env!("CARGO_PKG_VERSION").to_owned(),
            command: if same { first } else { Vec::new() },
            sealed: true,
            sealed_realtime_ns: now_ns(),
            runs: self.runs,
            ..Metadata::default()
        };
        metadata.write(self.directory)?;
        if !self.removed.is_empty() {
            removed::write(self.directory, self.removed)?;
        }
        Ok(Merged { runs, images: self.images, notes: self.notes })
    }
}

/// A copied file that is not packed.
#[derive(Clone, Copy)]
struct Copied {
    /// Whether its process runs.
    runs: bool,
    /// Bytes in use.
    file_end: u64,
}

impl Copied {
    /// Packs the copy of a profile. Remaining events of an ended process are moved to its trace.
    fn finish(self, copy: &Path) {
        // If that fails, as on a full disk, the copy stays unpacked.
        if self.runs || trace::live::finish(copy).is_ok() {
            self.pack(copy);
        }
    }

    /// Packs the copy.
    fn pack(self, copy: &Path) {
        let _ = pack::pack(copy, self.file_end); // as in `finish`
    }
}

/// Copies a profile, snapshot or baseline; that of a running process in its current state. A packed
/// file or another file is copied unchanged, and `None` is returned.
fn copy(from: &Path, to: &Path) -> Result<Option<Copied>, Error> {
    let read = |source| Error::Io { path: from.to_owned(), doing: "read", source };
    let head = if first_word(from).map_err(read)? == format::MAGIC {
        reader::read_header(from).ok()
    } else {
        None
    };
    let Some(head) = head else {
        copy_whole(from, to, FILE_LIMIT)?;
        return Ok(None);
    };
    let runs = head.end_kind == format::End::Unknown as u32 && maps_file(head.pid, from);
    let file_end = snapshot::copy_now(from, to)?;
    Ok(Some(Copied { runs, file_end }))
}

/// Returns why a profile, snapshot or baseline is not copied: it is not a regular file, or it is
/// too large and has no header that limits the bytes to copy.
fn uncopied(path: &Path) -> Option<Error> {
    if first_word(path).is_ok_and(|word| word == format::MAGIC) {
        return None;
    }
    let source = input::open_up_to(path, FILE_LIMIT).err()?;
    // Errors of system calls are reported by the copy.
    let is_refused = source.kind() == io::ErrorKind::Other;
    is_refused.then(|| Error::Io { path: path.to_owned(), doing: "read", source })
}

/// Returns the first bytes of a file, enough for the magic number.
fn first_word(path: &Path) -> io::Result<Vec<u8>> {
    let mut magic = Vec::new();
    input::open(path)?.take(format::MAGIC.len() as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

fn left_out(error: &Error) -> String {
    format!("{error}; omitted from the merged recording")
}

/// Copies the first `length` bytes of a file, and its mode.
fn copy_whole(from: &Path, to: &Path, length: u64) -> Result<(), Error> {
    let read = |source| Error::Io { path: from.to_owned(), doing: "read", source };
    let write = |source| Error::Io { path: to.to_owned(), doing: "write", source };
    let file = input::open(from).map_err(read)?;
    let rights = file.metadata().map_err(read)?.permissions();
    let mut copy = File::create(to).map_err(write)?;
    io::copy(&mut file.take(length), &mut copy).map_err(write)?;
    copy.set_permissions(rights).map_err(write)
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
