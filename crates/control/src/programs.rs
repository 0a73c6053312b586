//! The running programs of a recording, with the state of their snapshot triggers.

use std::fs;
use std::io::ErrorKind::PermissionDenied;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptide_analysis::recording::room::FAILURE;
use heaptide_analysis::recording::running::Running;
use heaptide_analysis::recording::snapshot::{self, Origin};
use heaptide_format::{End, FileHeader, PROFILE_SUFFIX};

use crate::control::{Control, Wait};
use crate::error::Error;
use crate::profiles::{Ends, Listing, Writer};
use crate::triggers::{Alarm, GroupId, Groups, Growth, Level, Trigger, When, is_pressing_on};

/// Interval of checks for ended programs.
const ENDS: Duration = Duration::from_millis(500);

/// The running programs of a recording.
#[derive(Debug)]
pub(crate) struct Programs {
    recording: PathBuf,
    /// Restricts it to programs of this process.
    only: Option<u32>,
    triggers: Vec<Trigger>,
    listing: Listing,
    running: Vec<Program>,
    ends: Ends,
    next_ends: Instant,
    /// Whether programs that ended before now are ignored, because other commands recorded them.
    ignores_ended: bool,
    /// Control groups, if a trigger needs them.
    groups: Option<Groups>,
    /// A process and whether it failed, as known by the command that started it.
    known_end: Option<(u32, bool)>,
    /// Number of snapshots taken.
    taken: u64,
}

/// A running program.
#[derive(Debug)]
struct Program {
    control: Control,
    writer: Writer,
    group: GroupId,
    /// For each trigger that compares values, its state.
    seen: Vec<Option<Seen>>,
    /// Whether the program may not yet have added its last snapshot to its timeline.
    is_asked: bool,
}

/// The processes that write to profiles of a recording, searched at most once.
enum Writers {
    NotSearched,
    /// `None` if it was too early for another search.
    Searched(Option<Vec<Running>>),
}

impl Writers {
    fn search(&mut self, ends: &mut Ends) -> Option<&[Running]> {
        if matches!(self, Writers::NotSearched) {
            *self = Writers::Searched(ends.search());
        }
        match self {
            Writers::Searched(Some(writers)) => Some(writers),
            _ => None,
        }
    }
}

/// The state of a trigger of a program.
#[derive(Debug)]
enum Seen {
    Live(Level),
    Resident(Level),
    Growth(Growth),
    Oom(Alarm),
}

/// Receives errors.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Error);

impl Programs {
    /// Creates the programs of a recording, or of one of its processes. `is_own`: this command has
    /// started the recording.
    pub(crate) fn new(
        recording: &Path,
        only: Option<u32>,
        is_own: bool,
        triggers: Vec<Trigger>,
    ) -> Programs {
        let has_oom = triggers.iter().any(|trigger| trigger.when == When::Oom);
        Programs {
            recording: recording.to_owned(),
            only,
            triggers,
            listing: Listing::new(recording),
            running: Vec::new(),
            ends: Ends::new(recording),
            next_ends: Instant::now(),
            ignores_ended: !is_own,
            groups: has_oom.then(Groups::new),
            known_end: None,
            taken: 0,
        }
    }

    /// Returns the number of snapshots taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether triggers compare values of running programs.
    pub(crate) fn are_watched(&self) -> bool {
        self.triggers.iter().any(|trigger| Seen::of(trigger).is_some())
    }

    /// Returns whether a trigger depends on failures of programs.
    pub(crate) fn has_failures(&self) -> bool {
        self.triggers.iter().any(|trigger| trigger.when == When::Failure)
    }

    /// Notes how a process ended that the command started.
    pub(crate) fn note_end(&mut self, pid: u32, has_failed: bool) {
        self.known_end = Some((pid, has_failed));
    }

    /// Makes the next checks run immediately, because the command ends.
    pub(crate) fn search_again(&mut self) {
        self.ends.search_again();
        self.next_ends = Instant::now();
    }

    /// Adds programs that are new in the recording.
    pub(crate) fn look_for_more(&mut self) {
        let Programs { triggers, running, ends, groups, only, ignores_ended, .. } = self;
        let mut writers = Writers::NotSearched;
        self.listing.look_for_more(|profile| {
            let pid = match pid_in(profile) {
                Ok(pid) => pid,
                Err(Error::Profile { source, .. }) if source.kind() != PermissionDenied => {
                    return None; // no free file descriptor, for example
                }
                // The header is not written yet, unless the file is old.
                Err(_) => return (!is_young(profile)).then_some(()),
            };
            let mut writer = Writer::of(profile, pid);
            if !writer.pid_is_known {
                // The pid in a container differs from the one here; an ended process has none.
                let found = writers.search(ends)?.iter().find(|other| other.file == profile);
                if found.is_none() && *ignores_ended {
                    return Some(());
                }
                writer.pid_is_known = true;
                writer.running = found.cloned().unwrap_or(writer.running);
            }
            if only.is_some_and(|only| only != writer.running.pid) {
                return Some(());
            }
            let control = Control::open(&writer.running).ok()?;
            let group = groups.as_mut().and_then(|groups| groups.of_process(writer.running.pid));
            let seen = triggers.iter().map(Seen::of).collect();
            running.push(Program { control, writer, group, seen, is_asked: false });
            Some(())
        });
        self.ignores_ended = false;
    }

    /// Takes a snapshot of each program for which a trigger is due, at a time since a fixed start.
    /// Returns whether any was taken.
    pub(crate) fn look(&mut self, now: Duration, report: Report<'_>) -> bool {
        let mut has_taken = false;
        let pressed = self.groups.as_mut().map_or(&[][..], |groups| groups.look(now));
        for program in &mut self.running {
            let Ok(header) = program.control.header() else { continue };
            let is_pressed = is_pressing_on(pressed, program.group);
            let due = program.due(&header, is_pressed, now);
            let names: Vec<&str> = due
                .zip(&self.triggers)
                .filter_map(|(due, trigger)| due.then_some(&*trigger.name))
                .collect();
            if !names.is_empty() {
                self.taken += u64::from(program.take(&names.join(", "), report));
                has_taken = true;
            }
        }
        has_taken
    }

    /// Takes a snapshot of each running program.
    pub(crate) fn take_all(&mut self, name: &str, report: Report<'_>) {
        for program in &mut self.running {
            self.taken += u64::from(program.take(name, report));
        }
    }

    /// Notifies programs that have added the last snapshot to their timeline that no request is
    /// left. Returns whether some have not added it yet.
    pub(crate) fn settle(&mut self) -> bool {
        let mut waiting = false;
        for program in self.running.iter_mut().filter(|program| program.is_asked) {
            program.is_asked = program.control.is_settled().is_ok_and(|settled| !settled);
            waiting |= program.is_asked;
        }
        waiting
    }

    /// Removes programs that have ended, and keeps the last state of those that failed.
    pub(crate) fn look_at_ends(&mut self, report: Report<'_>) {
        if self.next_ends > Instant::now() {
            return;
        }
        self.next_ends = Instant::now() + ENDS;
        let all = std::mem::take(&mut self.running);
        let (ended, running) = self.ends.divide(all, |program| &program.writer);
        self.running = running;
        if !self.has_failures() {
            return;
        }
        for program in ended {
            let profile = &program.writer.running.file;
            let Ok(header) = program.control.header() else { continue };
            if self.has_failed(&header) {
                let time_ns = header.end_time_ns.max(header.last_seen_ns);
                let taken = snapshot::take(profile, FAILURE, time_ns, Origin::Requested);
                match taken {
                    Ok(_) => self.taken += 1,
                    Err(error) => report(error.into()),
                }
            }
        }
    }

    /// Returns whether an ended program failed.
    fn has_failed(&self, header: &FileHeader) -> bool {
        // A program executed in its place has a profile of its own, or none.
        let next = format!("{}-{}{PROFILE_SUFFIX}", header.pid, header.image.saturating_add(1));
        let is_last = !self.recording.join(next).exists();
        if let Some((pid, has_failed)) = self.known_end
            && pid == header.pid
            && is_last
        {
            return has_failed;
        }
        let is_end = |end: End| header.end_kind == end as u32;
        let has_status = is_end(End::Exited) && header.end_code != 0;
        let was_killed = is_end(End::Unknown) && is_last && header.unrecorded == 0;
        has_status || was_killed
    }
}

impl Program {
    /// Returns for each trigger whether it is due.
    fn due(
        &mut self,
        header: &FileHeader,
        is_pressed: bool,
        now: Duration,
    ) -> impl Iterator<Item = bool> {
        let live = header.published_live.max(0) as u64;
        let pid = self.writer.running.pid;
        self.seen.iter_mut().map(move |seen| match seen {
            None => false,
            Some(Seen::Live(level)) => level.see(live, now),
            Some(Seen::Resident(level)) => resident(pid).is_some_and(|bytes| level.see(bytes, now)),
            Some(Seen::Growth(growth)) => growth.see(live, now),
            Some(Seen::Oom(alarm)) => is_pressed && alarm.sound(live, now),
        })
    }

    /// Takes a snapshot. Returns whether this succeeded.
    fn take(&mut self, name: &str, report: Report<'_>) -> bool {
        match self.control.snapshot(name, Wait::No, Origin::Automatic) {
            Ok(_) => self.is_asked = true,
            Err(error) if self.writer.running.is_there() => {
                report(error);
                return false;
            }
            Err(_) => return false, // it has ended meanwhile
        }
        true
    }
}

impl Seen {
    /// Returns `None` for a trigger that does not compare values.
    fn of(trigger: &Trigger) -> Option<Seen> {
        match trigger.when {
            When::Live(bytes) => Some(Seen::Live(Level::new(bytes))),
            When::Resident(bytes) => Some(Seen::Resident(Level::new(bytes))),
            When::Growth { bytes, span } => Some(Seen::Growth(Growth::new(bytes, span))),
            When::Oom => Some(Seen::Oom(Alarm::default())),
            When::Signal(_) | When::Failure => None,
        }
    }
}

/// Returns the resident bytes of a process.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes << 10)
}

/// Returns the id of the process that writes a profile, as seen by the process.
fn pid_in(profile: &Path) -> Result<u32, Error> {
    let running = Running { pid: 0, file: profile.to_owned() };
    Ok(Control::open(&running)?.header()?.pid)
}

/// Returns whether a file is so new that its header may not have been written yet.
fn is_young(file: &Path) -> bool {
    const YOUNG: Duration = Duration::from_secs(1);
    let modified = fs::metadata(file).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < YOUNG))
}
