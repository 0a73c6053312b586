//! Reads the files of a recording: profiles, metadata and names.

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
use crate::profile::{baseline, held, lost, reader, retained};
use crate::symbols::{Lookup, ModuleKey, Sources, Symbols, Wanted};
use crate::tables::ending::{Ending, Lasted};
use crate::threads;
use crate::trace::file::{TraceFile, path_of};

/// Which part of a recording is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// Read the snapshots with this number or name instead of the profiles.
    pub snapshot: Option<Reference>,
    /// Count from the start of the program, even if counters were reset.
    pub from_start: bool,
    /// Which blocks count as live.
    pub live: Live,
}

/// Which blocks of a process that has ended count as live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Live {
    /// Those at its end.
    #[default]
    AtEnd,
    /// Of a Python program, also those that Python freed because it ended.
    BeforePythonEnded,
    /// Those at its end to which no pointer leads, as far as the process was searched then.
    Lost,
}

/// Metadata of a process that `heaptide run` started.
#[derive(Clone, Copy)]
struct Started<'a> {
    /// How it ended, if known.
    status: Option<Status>,
    /// See [`Metadata::in_part`].
    in_part: &'a str,
}

/// The files of a recording, read and not yet converted to tables.
pub(super) struct Parts {
    pub(super) directory: PathBuf,
    pub(super) metadata: Option<Metadata>,
    pub(super) symbols: Symbols,
    pub(super) sealed: bool,
    /// In order of start.
    pub(super) profiles: Vec<(PathBuf, Profile)>,
    pub(super) damaged: Vec<DamagedFile>,
    pub(super) removed: Removed,
    /// The place of each image of the recording among those of its process, including images whose
    /// profiles were not read here.
    pub(super) places: FxHashMap<Image, Place>,
}

impl Parts {
    pub(super) fn read(path: &Path, choice: &Choice) -> Result<Parts, Error> {
        Parts::read_wanted(path, choice, reader::Wanted::All)
    }

    /// Reads only the parts needed to look up names.
    pub(super) fn read_names(path: &Path) -> Result<Parts, Error> {
        Parts::read_part(path, reader::Wanted::Names)
    }

    /// Reads only the parts needed to know which processes have ended.
    pub(super) fn read_headers(path: &Path) -> Result<Parts, Error> {
        Parts::read_part(path, reader::Wanted::Header)
    }

    fn read_part(path: &Path, wanted: reader::Wanted) -> Result<Parts, Error> {
        Parts::read_wanted(path, &Choice { from_start: true, ..Choice::default() }, wanted)
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
            let all = profiles_in(&directory).unwrap_or_default(); // optional
            (directory, all, vec![path.to_owned()])
        };
        if let Some(reference) = &choice.snapshot {
            files = snapshot::referred(path, &directory, &files, reference)?;
        }
        let mut damaged = Vec::new();
        let symbols = || match wanted {
            reader::Wanted::Header => Ok(None),
            reader::Wanted::All | reader::Wanted::Names => Symbols::read(&directory),
        };
        let profiles = || read_profiles(path, files, wanted, &mut damaged);
        let (symbols, profiles) = threads::both(symbols, profiles);
        let mut profiles = profiles?;
        if wanted == reader::Wanted::All {
            let unread = profiles.iter_mut().map(|(file, profile)| retained::apply(file, profile));
            damaged.extend(unread.flatten());
        }
        if choice.live == Live::Lost {
            profiles.iter_mut().for_each(|(_, profile)| lost::apply(profile));
        }
        if wanted == reader::Wanted::All {
            let since = if choice.from_start { baseline::restore_peak } else { baseline::apply };
            damaged.extend(profiles.iter_mut().filter_map(|(file, profile)| since(file, profile)));
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
        let mut parts =
            Parts { directory, metadata, symbols, sealed, profiles, damaged, removed, places };
        if choice.live == Live::BeforePythonEnded {
            parts.add_held();
        }
        Ok(parts)
    }

    /// Stores in profiles of processes that have ended what was live when Python began to end.
    fn add_held(&mut self) {
        let end = |(file, profile): &(PathBuf, Profile)| self.end_when_read(file, profile);
        let ends: Vec<End> = self.profiles.iter().map(end).collect();
        let is_over = |end: &End| matches!(end, End::Exited(_) | End::Signaled(_));
        let over = self.profiles.iter_mut().zip(ends).filter(|(_, end)| is_over(end));
        let unread = over.filter_map(|((file, profile), _)| held::apply(file, profile));
        self.damaged.extend(unread);
    }

    /// Looks up the names of all addresses in files; returns a line for each file that is missing
    /// or has changed.
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

    /// Looks up the names of code that JIT compilers generated.
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
            let end = self.end_when_read(file, profile);
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

    /// Returns whether the program that replaced an image by exec has no profile and was not
    /// counted with the reason.
    fn became_unrecorded(&self, file: &Path, profile: &Profile, end: End) -> bool {
        let is_followed = self.place(file, profile).is_none_or(|place| place.is_followed);
        let is_counted = profile.header.unrecorded_children.iter().any(|&count| count > 0);
        end == End::Exec && !is_followed && !is_counted
    }

    /// Returns how long an image lasted, or the time that its counters cover, and a description of
    /// that part if it is not the whole run.
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

    /// Collects information about the end of an image from other files than its profile.
    fn outside(&self, file: &Path, profile: &Profile) -> Outside {
        let sealed_ns = self.metadata.as_ref().map_or(0, |metadata| metadata.sealed_realtime_ns);
        Outside {
            ended_ns: self.observed_end(file).map(|end| end.monotonic_ns),
            latest_ns: if sealed_ns == 0 { now_ns() } else { sealed_ns },
            next: self.place(file, profile).and_then(|place| place.next),
        }
    }

    /// Returns the end of an image that a command observed.
    fn observed_end(&self, file: &Path) -> Option<&ImageEnd> {
        let name = file_names::image_name(file);
        let (_, image) = file_names::split(&name);
        let (ends, members): (&[ImageEnd], &[Member]) = match (self.merged(file), &self.metadata) {
            (Some(run), _) => (&run.ends, &run.members),
            (None, Some(metadata)) => (&metadata.ends, &metadata.members),
            (None, None) => (&[], &[]),
        };
        let mut ends = ends.iter().chain(members.iter().flat_map(|member| &member.ends));
        ends.find(|end| end.image == image)
    }

    /// Returns the place of an image among those of its process; `None` if its file has another
    /// form of name.
    fn place(&self, file: &Path, profile: &Profile) -> Option<&Place> {
        self.places.get(&image_of(file, profile))
    }

    /// Returns the recording from which a file was merged.
    fn merged(&self, file: &Path) -> Option<&MergedRun> {
        let index = run_of(file).checked_sub(1)?;
        self.metadata.as_ref()?.runs.get(index as usize)
    }

    /// Returns when a merged profile was copied, if its process ran at that time.
    fn copied_running(&self, file: &Path) -> Option<u64> {
        let name = file_names::image_name(file);
        let (_, image) = file_names::split(&name);
        let run = self.merged(file)?;
        run.running.iter().any(|ran| ran == image).then_some(run.copied_realtime_ns)
    }

    /// Returns the metadata of the process of an image, if it was started directly in the run of
    /// its file; `None` for other processes.
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

    /// Returns the part of the started file that was not recorded, if this is its first image.
    fn in_part(&self, file: &Path, profile: &Profile) -> Option<String> {
        let place = self.place(file, profile);
        let is_first = place.is_none_or(|place| place.is_first_of_pid && place.execs == 0);
        let started = self.started(file, &profile.header).filter(|_| is_first)?;
        (!started.in_part.is_empty()).then(|| started.in_part.to_owned())
    }

    /// Returns whether an image belongs to the process that was started directly in its run.
    fn is_requested(&self, file: &Path, profile: &Profile) -> bool {
        let is_first = self.place(file, profile).is_none_or(|place| place.is_first_of_pid);
        is_first && self.started(file, &profile.header).is_some()
    }

    /// Returns how an image ended. If it noted its end after it was read, it ran: what was read is
    /// not its final state.
    fn end_when_read(&self, file: &Path, profile: &Profile) -> End {
        let end = self.end(file, profile);
        let may_be_later = ending::noted(&profile.header).is_none() && end != End::Running;
        let noted_since = || ending::noted(&reader::read_header(file).ok()?);
        if may_be_later && noted_since().is_some() { End::Running } else { end }
    }

    /// Returns how an image has ended by now.
    fn end(&self, file: &Path, profile: &Profile) -> End {
        let header = &profile.header;
        if file_names::snapshot(file).is_some() || self.copied_running(file).is_some() {
            return End::Running; // it ran at that time
        }
        let place = self.place(file, profile);
        if ending::is_exec(header, place) {
            return End::Exec;
        }
        let is_first = place.is_none_or(|place| place.is_first_of_pid);
        let started = self.started(file, header).filter(|_| is_first);
        let observed = || self.observed_end(file)?.status;
        let noted = ending::noted(header);
        let status = started.and_then(|started| started.status);
        match (status.or_else(|| observed().filter(|_| noted.is_none())), noted) {
            (Some(Status { kind: StatusKind::Exited, code }), _) => End::Exited(code),
            (Some(Status { kind: StatusKind::Signaled, code }), _) => End::Signaled(code),
            (None, Some(end)) => end,
            (None, None) if maps_file(header.pid, file) => End::Running,
            (None, None) => End::Unknown,
        }
    }

    /// Returns the images that ran at the time of sealing, or began later.
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

    /// Returns the profiles to which no process writes any more.
    pub(super) fn over(&self) -> FxHashSet<PathBuf> {
        let over = self.profiles.iter().filter(|(file, profile)| self.is_over(file, profile));
        over.map(|(file, _)| file.clone()).collect()
    }

    /// Returns whether no process writes to the profile any more. An end that only the image noted
    /// is not sufficient: handlers run after `exit`, and an exec can fail.
    fn is_over(&self, file: &Path, profile: &Profile) -> bool {
        let header = &profile.header;
        if self.started(file, header).is_some_and(|started| started.status.is_some()) {
            return true;
        }
        match self.end(file, profile) {
            End::Running => false,
            // its pid can belong to another pid namespace
            End::Unknown => !anyone_maps_file(file),
            _ => !maps_file(header.pid, file),
        }
    }
}

/// Returns the member that started the process of an image: the last one that began before the
/// image and whose program had its pid.
fn member_of<'a>(members: &'a [Member], header: &FileHeader) -> Option<&'a Member> {
    let began = |member: &&Member| member.started_realtime_ns <= header.start_realtime_ns;
    members.iter().filter(|member| member.root_pid == header.pid).rfind(began)
}

/// Reads the profiles that can be read, in order of start; fails if there is none.
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
            // Removed to make room since the listing.
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

/// Returns the trace of a profile if it exists and cannot be read.
fn unread_trace(file: &Path, profile: &Profile) -> Option<DamagedFile> {
    let traced =
        profile.header.trace & format::TRACE_ON != 0 && file_names::snapshot(file).is_none();
    let error = traced.then(|| TraceFile::check(file).err()).flatten()?;
    Some(DamagedFile { path: path_of(file), reason: error.to_string() })
}

/// Returns the images of a recording: those that were read, and others with the same pids, from
/// their file names and headers.
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

/// Returns the image of a profile or snapshot, from its header.
fn image_of(file: &Path, profile: &Profile) -> Image {
    Image { run: run_of(file), pid: profile.header.pid, image: profile.header.image }
}

/// Returns the run of a file of a merged recording; 0 if it was recorded here.
fn run_of(file: &Path) -> u32 {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file_names::split(&name).0
}

/// Returns the addresses of all profiles that can have names, by module.
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

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProfileBuilder, Scratch};

    use super::*;

    #[test]
    fn an_image_that_ends_after_it_was_read_ran() {
        let scratch = Scratch::new("ended-later");
        let mut profile = ProfileBuilder::new(format::Mode::Counters, u32::MAX, 0);
        let name = "4294967295-0.profile";
        scratch.write(name, &profile.finish());
        let parts = Parts::read(&scratch, &Choice::default()).expect("the parts");
        let end = |parts: &Parts| parts.endings(&[])[0].end;
        assert_eq!(end(&parts), End::Unknown);
        profile.header.end_kind = format::End::Exited as u32;
        scratch.write(name, &profile.finish());
        assert_eq!(end(&parts), End::Running);
        let parts = Parts::read(&scratch, &Choice::default()).expect("the parts");
        assert_eq!(end(&parts), End::Exited(0));
    }
}
