//! The files of a recording, read together: profiles, metadata and names.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::FileHeader;
use rustc_hash::{FxHashMap, FxHashSet};

use super::directory::profiles_in;
use super::ending::{self, Outside, now_ns, seen_ns};
use super::identity::{self, Begun, Place};
use super::jit_names;
use super::metadata::{ImageEnd, Member, MergedRun, Metadata, Status, StatusKind};
use super::removed;
use super::running::{anyone_maps_file, maps_file, other_roots};
use super::snapshot::{self, Reference};
use crate::error::Error;
use crate::files::file_names::{self, Image, METADATA_FILE, REMOVED_FILE, SYMBOLS_FILE};
use crate::model::{DamagedFile, End, Removed, Run};
use crate::profile::parsed::{self, Profile};
use crate::profile::{baseline, reader};
use crate::symbols::{Lookup, ModuleKey, Sources, Symbols, Wanted};
use crate::tables::ending::{Ending, Lasted};
use crate::threads;
use crate::trace::file::{TraceFile, path_of};

/// What of a recording is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The snapshots of this number or name, not the profiles.
    pub snapshot: Option<Reference>,
    /// Figures count from the start of the program, also where they were reset.
    pub from_start: bool,
}

/// What is noted of a process that `heaptide run` started.
#[derive(Clone, Copy)]
struct Started<'a> {
    /// How it ended, if that is known.
    status: Option<Status>,
    /// See [`Metadata::in_part`].
    in_part: &'a str,
}

/// The files of a recording, read and not yet put together.
pub(super) struct Parts {
    pub(super) directory: PathBuf,
    pub(super) metadata: Option<Metadata>,
    pub(super) symbols: Symbols,
    pub(super) sealed: bool,
    /// In order of start.
    pub(super) profiles: Vec<(PathBuf, Profile)>,
    pub(super) damaged: Vec<DamagedFile>,
    pub(super) removed: Removed,
    /// The images of the recording, also of profiles that are not read here, among those of their
    /// process.
    pub(super) places: FxHashMap<Image, Place>,
}

impl Parts {
    pub(super) fn read(path: &Path, choice: &Choice) -> Result<Parts, Error> {
        Parts::read_wanted(path, choice, reader::Wanted::All)
    }

    /// What is needed to look up names.
    pub(super) fn read_names(path: &Path) -> Result<Parts, Error> {
        let choice = Choice { snapshot: None, from_start: true };
        Parts::read_wanted(path, &choice, reader::Wanted::Names)
    }

    fn read_wanted(path: &Path, choice: &Choice, wanted: reader::Wanted) -> Result<Parts, Error> {
        let kind = fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), doing: "read", source },
        })?;
        let (directory, all, mut files) = if kind.is_dir() {
            let all = profiles_in(path)?;
            (path.to_owned(), all.clone(), all)
        } else {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let directory = parent.unwrap_or(Path::new(".")).to_owned();
            let all = profiles_in(&directory).unwrap_or_default(); // a help, no need
            (directory, all, vec![path.to_owned()])
        };
        if let Some(reference) = &choice.snapshot {
            files = snapshot::referred(path, &directory, &files, reference)?;
        }
        let mut damaged = Vec::new();
        let symbols = || Symbols::read(&directory);
        let profiles = || read_profiles(path, files, wanted, &mut damaged);
        let (symbols, profiles) = threads::both(symbols, profiles);
        let mut profiles = profiles?;
        if !choice.from_start {
            let unread = profiles.iter_mut().map(|(file, profile)| baseline::apply(file, profile));
            damaged.extend(unread.flatten());
        }
        damaged.extend(profiles.iter().filter_map(|(file, profile)| unread_trace(file, profile)));
        let mut note = |error: Error, file: &str| {
            damaged.push(DamagedFile { path: directory.join(file), reason: error.to_string() });
        };
        let metadata = Metadata::read(&directory).unwrap_or_else(|error| {
            note(error, METADATA_FILE);
            None
        });
        let symbols = symbols.unwrap_or_else(|error| {
            note(error, SYMBOLS_FILE);
            None
        });
        let mut removed = removed::read(&directory).unwrap_or_else(|error| {
            note(error, REMOVED_FILE);
            Removed::default()
        });
        for (_, profile) in &profiles {
            let snapshots = profile.header.snapshots_removed;
            removed.add(&Removed { snapshots, ..Removed::default() });
        }
        let sealed = symbols.is_some() && metadata.as_ref().is_none_or(|m| m.sealed);
        let symbols = symbols.unwrap_or_default();
        let places = identity::places(begun(&all, &profiles));
        Ok(Parts { directory, metadata, symbols, sealed, profiles, damaged, removed, places })
    }

    /// Looks up the names of all addresses in files; returns a line for each file that is missing
    /// or is another one.
    pub(super) fn look_up(
        &mut self,
        lookup: &Lookup<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Vec<(ModuleKey, String)> {
        let known = OnceCell::new();
        let directory = &self.directory;
        let roots = || known.get_or_init(|| other_roots(directory)).clone();
        self.symbols.complete(wanted(&self.profiles), lookup, &roots, progress)
    }

    /// Looks up the names of code that JIT compilers made.
    pub(super) fn look_up_jit(&mut self, sources: &Sources) {
        let known: OnceCell<Vec<PathBuf>> = OnceCell::new();
        let directory = &self.directory;
        let others = || sources.sysroot.iter().cloned().chain(other_roots(directory)).collect();
        let roots = || known.get_or_init(others).clone();
        jit_names::complete(&mut self.symbols, &self.profiles, &roots);
    }

    pub(super) fn endings(&self, changed: &[(ModuleKey, String)]) -> Vec<Ending> {
        let mut numbers: FxHashMap<usize, u32> = FxHashMap::default();
        let ending = |(file, profile): &(PathBuf, Profile)| {
            let place = self.place(file, profile);
            let next_number = numbers.len() as u32;
            let process = place.map_or(usize::MAX, |place| place.process);
            let process_number = *numbers.entry(process).or_insert(next_number);
            let execs = place.map_or(0, |place| place.execs);
            let end = self.end(file, profile);
            let mut notes = profile.notes.clone();
            notes.extend(changed.iter().filter(|c| uses(profile, &c.0)).map(|c| c.1.clone()));
            let (lasted, part) = self.moment(file, profile, end);
            let run = self
                .merged(file)
                .map(|run| Run { number: run_of(file), recording: run.recording.clone() });
            Ending {
                file: file.clone(),
                run,
                end,
                is_requested: self.is_requested(file, profile),
                became_unrecorded: self.became_unrecorded(file, profile, end),
                lasted,
                process_number,
                execs,
                part,
                in_part: self.in_part(file, profile),
                notes,
            }
        };
        self.profiles.iter().map(ending).collect()
    }

    /// Whether the program that an image became by exec has no profile, and was not counted with
    /// the reason.
    fn became_unrecorded(&self, file: &Path, profile: &Profile, end: End) -> bool {
        let is_followed = self.place(file, profile).is_none_or(|place| place.is_followed);
        let is_counted = profile.header.unrecorded_children.iter().any(|&count| count > 0);
        end == End::Exec && !is_followed && !is_counted
    }

    /// Returns how long an image lasted, or up to when its counts are, and the part that they cover
    /// if that is not the whole run.
    fn moment(&self, file: &Path, profile: &Profile, end: End) -> (Lasted, Option<String>) {
        let taken = snapshot::taken(file, &profile.header, seen_ns(profile));
        let reset = profile.before.as_ref().map(|before| before.says());
        let copied_ns = self.copied_running(file).filter(|_| taken.is_none());
        let after_ns = copied_ns.map(|ns| ns.saturating_sub(profile.header.start_realtime_ns));
        let copied = after_ns
            .map(|ns| format!("when it was merged, {:.3} s after the start", ns as f64 / 1e9));
        let lasted = match (&taken, after_ns) {
            (Some(taken), _) => Lasted { ns: taken.time_ns, is_known: taken.is_noted },
            (None, Some(ns)) => Lasted { ns: ns.max(seen_ns(profile)), is_known: true },
            (None, None) => ending::lasted(profile, end, &self.outside(file, profile)),
        };
        let parts: Vec<String> =
            taken.map(|t| t.says).into_iter().chain(copied).chain(reset).collect();
        (lasted, (!parts.is_empty()).then(|| parts.join(", ")))
    }

    /// What is known of the end of an image beside its profile.
    fn outside(&self, file: &Path, profile: &Profile) -> Outside {
        let name = file_names::image_name(file);
        let (_, image) = file_names::split(&name);
        let (ends, members): (&[ImageEnd], &[Member]) = match (self.merged(file), &self.metadata) {
            (Some(run), _) => (&run.ends, &run.members),
            (None, Some(metadata)) => (&metadata.ends, &metadata.members),
            (None, None) => (&[], &[]),
        };
        let mut ends = ends.iter().chain(members.iter().flat_map(|member| &member.ends));
        let sealed_ns = self.metadata.as_ref().map_or(0, |metadata| metadata.sealed_realtime_ns);
        Outside {
            ended_ns: ends.find(|end| end.image == image).map(|end| end.monotonic_ns),
            latest_ns: if sealed_ns == 0 { now_ns() } else { sealed_ns },
            next: self.place(file, profile).and_then(|place| place.next),
        }
    }

    /// An image among those of its process; none of a file that is called otherwise.
    fn place(&self, file: &Path, profile: &Profile) -> Option<&Place> {
        self.places.get(&image_of(file, profile))
    }

    /// The recording that a file was merged from.
    fn merged(&self, file: &Path) -> Option<&MergedRun> {
        let index = run_of(file).checked_sub(1)?;
        self.metadata.as_ref()?.runs.get(index as usize)
    }

    /// When a merged profile was copied, if its process ran then.
    fn copied_running(&self, file: &Path) -> Option<u64> {
        let name = file_names::image_name(file);
        let (_, image) = file_names::split(&name);
        let run = self.merged(file)?;
        run.running.iter().any(|ran| ran == image).then_some(run.copied_realtime_ns)
    }

    /// What is noted of the process of an image, if it was started in the run of its file; none of
    /// other processes.
    fn started(&self, file: &Path, header: &FileHeader) -> Option<Started<'_>> {
        let members = match self.merged(file) {
            Some(run) => &run.members,
            None => &self.metadata.as_ref()?.members,
        };
        if let Some(member) = member_of(members, header) {
            return Some(Started { status: member.status, in_part: &member.in_part });
        }
        let (root_pid, status, in_part) = match self.merged(file) {
            Some(run) => (run.root_pid, run.status, &*run.in_part),
            None => self.metadata.as_ref().map(|m| (m.root_pid, m.status, &*m.in_part))?,
        };
        let is_it = members.is_empty() && root_pid == header.pid;
        is_it.then_some(Started { status, in_part })
    }

    /// What is missing of the file that was started, of which this is the first image.
    fn in_part(&self, file: &Path, profile: &Profile) -> Option<String> {
        let place = self.place(file, profile);
        let is_first = place.is_none_or(|place| place.is_first_of_pid && place.execs == 0);
        let started = self.started(file, &profile.header).filter(|_| is_first)?;
        (!started.in_part.is_empty()).then(|| started.in_part.to_owned())
    }

    /// Whether an image is of the process that was started in its run.
    fn is_requested(&self, file: &Path, profile: &Profile) -> bool {
        let is_first = self.place(file, profile).is_none_or(|place| place.is_first_of_pid);
        is_first && self.started(file, &profile.header).is_some()
    }

    fn end(&self, file: &Path, profile: &Profile) -> End {
        let header = &profile.header;
        if file_names::snapshot(file).is_some() || self.copied_running(file).is_some() {
            return End::Running; // it was, then
        }
        let place = self.place(file, profile);
        if ending::is_exec(header, place) {
            return End::Exec;
        }
        let is_first = place.is_none_or(|place| place.is_first_of_pid);
        let started = self.started(file, header).filter(|_| is_first);
        let status = started.and_then(|started| started.status);
        match (status, ending::noted(header)) {
            (Some(Status { kind: StatusKind::Exited, code }), _) => End::Exited(code),
            (Some(Status { kind: StatusKind::Signaled, code }), _) => End::Signaled(code),
            (None, Some(end)) => end,
            (None, None) if maps_file(header.pid, file) => End::Running,
            (None, None) => End::Unknown,
        }
    }

    /// The images that ran when names were stored, or began later.
    pub(super) fn ran_after_sealing(&self) -> Vec<String> {
        let Some(metadata) = self.metadata.as_ref().filter(|m| m.sealed_realtime_ns != 0) else {
            return Vec::new();
        };
        let mut images = metadata.running_when_sealed.clone();
        let began_later =
            |profile: &Profile| profile.header.start_realtime_ns > metadata.sealed_realtime_ns;
        let later = self.profiles.iter().filter(|(_, profile)| began_later(profile));
        images.extend(later.map(|(file, _)| file_names::image_name(file)));
        images.sort();
        images.dedup();
        images
    }

    /// The images that still run, as their profiles are called.
    pub(super) fn running(&self) -> Vec<String> {
        let running = self.profiles.iter().filter(|(file, profile)| !self.is_over(file, profile));
        running.map(|(file, _)| file_names::image_name(file)).collect()
    }

    /// Whether no process writes to the profile any more. An end that only the image noted is not
    /// enough: handlers run after `exit`, and an exec may fail.
    pub(super) fn is_over(&self, file: &Path, profile: &Profile) -> bool {
        let header = &profile.header;
        if self.started(file, header).is_some_and(|started| started.status.is_some()) {
            return true;
        }
        match self.end(file, profile) {
            End::Running => false,
            // its pid may be one of another pid namespace
            End::Unknown => !anyone_maps_file(file),
            _ => !maps_file(header.pid, file),
        }
    }
}

/// The member that started the process of an image: the last one that began before it and whose
/// program had its pid.
fn member_of<'a>(members: &'a [Member], header: &FileHeader) -> Option<&'a Member> {
    let began = |member: &&Member| member.started_realtime_ns <= header.start_realtime_ns;
    members.iter().filter(|member| member.root_pid == header.pid).rfind(began)
}

/// Reads what can be read, in order of start; an error if that is nothing.
fn read_profiles(
    path: &Path,
    files: Vec<PathBuf>,
    wanted: reader::Wanted,
    damaged: &mut Vec<DamagedFile>,
) -> Result<Vec<(PathBuf, Profile)>, Error> {
    let count = files.len();
    let mut first = None;
    let mut profiles = Vec::with_capacity(count);
    for file in files {
        match reader::read_wanted(&file, wanted) {
            Ok(profile) => profiles.push((file, profile)),
            // Removed to make room since it was listed.
            Err(Error::Io { source, .. })
                if count > 1 && source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                damaged.push(DamagedFile { path: file, reason: error.to_string() });
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(first) if profiles.is_empty() && count == 1 => return Err(first),
        Some(first) if profiles.is_empty() => {
            let (path, first) = (path.to_owned(), Box::new(first));
            return Err(Error::NothingReadable { path, profiles: count, first });
        }
        _ => {}
    }
    profiles.sort_by_key(|(_, p)| (p.header.start_realtime_ns, p.header.pid, p.header.image));
    Ok(profiles)
}

/// The trace of a profile, if it is there and cannot be read.
fn unread_trace(file: &Path, profile: &Profile) -> Option<DamagedFile> {
    let traced =
        profile.header.trace & format::TRACE_ON != 0 && file_names::snapshot(file).is_none();
    let error = traced.then(|| TraceFile::check(file).err()).flatten()?;
    Some(DamagedFile { path: path_of(file), reason: error.to_string() })
}

/// The images of a recording: those that were read, and by their names those of its other profiles.
fn begun(all: &[PathBuf], read: &[(PathBuf, Profile)]) -> Vec<Begun> {
    let known = |(file, profile): &(PathBuf, Profile)| Begun {
        image: image_of(file, profile),
        header: Some(profile.header),
    };
    let mut begun: Vec<Begun> = read.iter().map(known).collect();
    let have: FxHashSet<Image> = begun.iter().map(|begun| begun.image).collect();
    let pids: FxHashSet<(u32, u32)> = have.iter().map(|image| (image.run, image.pid)).collect();
    let others = all.iter().filter_map(|file| Some((file, Image::of(file)?)));
    let others = others.filter(|(_, i)| !have.contains(i) && pids.contains(&(i.run, i.pid)));
    begun.extend(
        others.map(|(file, image)| Begun { image, header: reader::read_header(file).ok() }),
    );
    begun
}

/// The image that a profile or snapshot is of, by its head.
fn image_of(file: &Path, profile: &Profile) -> Image {
    Image { run: run_of(file), pid: profile.header.pid, image: profile.header.image }
}

/// The run that a file of a merged recording is of; 0 if it was recorded here.
fn run_of(file: &Path) -> u32 {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file_names::split(&name).0
}

/// The addresses of all profiles that could have names, by module.
pub(super) fn wanted(profiles: &[(PathBuf, Profile)]) -> Vec<Wanted> {
    let mut by_module: FxHashMap<ModuleKey, Wanted> = FxHashMap::default();
    for (_, profile) in profiles {
        let since_ns = profile.header.start_realtime_ns;
        let mut addresses = vec![Vec::new(); profile.modules.len()];
        for place in profile.places.iter().filter(|place| place.has_module()) {
            addresses[place.module as usize].push(place.offset);
        }
        for (module, addresses) in profile.modules.iter().zip(addresses) {
            let want = by_module.entry(key(module)).or_insert_with_key(|module| Wanted {
                module: module.clone(),
                since_ns,
                addresses: Vec::new(),
            });
            want.since_ns = want.since_ns.min(since_ns);
            want.addresses.extend(addresses);
        }
    }
    let mut wanted: Vec<_> = by_module.into_values().collect();
    for want in &mut wanted {
        want.addresses.sort_unstable();
        want.addresses.dedup();
    }
    wanted.sort_by(|a, b| a.module.cmp(&b.module));
    wanted
}

fn key(module: &parsed::Module) -> ModuleKey {
    ModuleKey { path: module.path.clone(), build_id: module.build_id.clone() }
}

fn uses(profile: &Profile, module: &ModuleKey) -> bool {
    profile.modules.iter().any(|m| m.path == module.path && m.build_id == module.build_id)
}
