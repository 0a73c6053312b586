//! Chooses the subject of a recording: the images of the program that the user meant, not the
//! shell, `make` or `mpirun` that started it.
//!
//! Programs are compared by their memory-time, the sum of live heap and own mappings over time,
//! multiplied by their highest peak, so that much memory for a short time outweighs little memory
//! for a long time.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::images::ImageSummary;
use super::roles::{self, Role};
use crate::model::{
    End, ImageRole, MappingClass, Process, Reason, Recording, Rest, Sample, Subject,
};

/// The started program stays the subject if it has at least this fraction of the memory-time and of
/// the peak of the largest program.
const STARTED_PART: f64 = 0.25;
/// Images of one program are joined if a second one has at least this fraction of the highest peak.
const WORKER_PART: u64 = 8;
/// Maximum number of names of other programs.
const NAMES: usize = 3;
/// Maximum number of ancestors of an image that are examined.
const ANCESTORS: usize = 64;

impl Recording {
    /// Chooses the subject and marks its images. Must be called before anything is selected, so
    /// that the selection does not change the choice.
    ///
    /// ```
    /// use heaptide_analysis::model::{Process, Reason, Recording};
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// let process = Process::from_bytes(&bytes, "12-0.profile".as_ref()).unwrap();
    /// let mut recording = Recording { processes: vec![process], ..Recording::default() };
    /// recording.choose_subject();
    /// assert_eq!(recording.subject.unwrap().reason, Reason::Only);
    /// ```
    pub fn choose_subject(&mut self) {
        let requested = self.requested().map(|process| process.identity.file.clone());
        let is_requested = |process: &Process| Some(&process.identity.file) == requested.as_ref();
        let images = self.processes.iter();
        let candidates: Vec<Candidate> =
            images.map(|process| Candidate::of(process, is_requested(process))).collect();
        let Some(choice) = Choice::among(&candidates) else {
            return;
        };
        let subject = choice.describe(&candidates);
        for (index, process) in self.processes.iter_mut().enumerate() {
            process.identity.role = if choice.images.contains(&index) {
                ImageRole::Subject
            } else if choice.is_launcher[index] {
                ImageRole::Launcher
            } else {
                ImageRole::Other
            };
        }
        self.subject = Some(subject);
    }

    /// Joins the images of the subject to one process, after kinds of memory were selected.
    ///
    /// ```
    /// let mut recording = heaptide_analysis::model::Recording::default();
    /// recording.choose_subject();
    /// recording.join_subject();
    /// assert!(recording.subject_process().is_none()); // nothing was recorded
    /// ```
    pub fn join_subject(&mut self) {
        let is_subject = |process: &Process| process.identity.role == ImageRole::Subject;
        let requested = self.requested().filter(|process| is_subject(process));
        let requested = requested.map(|process| process.identity.process_number);
        self.join_some(is_subject);
        let joined = self.processes.iter_mut().find(|process| is_subject(process));
        if let (Some(process), Some(subject)) = (joined, &self.subject)
            && process.identity.images > 1
        {
            process.identity.command = vec![subject.name.clone()];
            // What the process executed before is not the program that was requested.
            for other in self.processes.iter_mut().filter(|process| !is_subject(process)) {
                let is_earlier = Some(other.identity.process_number) == requested;
                other.identity.is_requested &= !is_earlier;
            }
        }
    }
}

/// Returns the index of the image to show first, by what headers of profiles contain: of several
/// images of the subject, the one with the highest peak. `None` if there are no images.
///
/// ```
/// assert_eq!(heaptide_analysis::recording::subject::first(&[]), None);
/// ```
pub fn first(images: &[ImageSummary]) -> Option<usize> {
    let candidates = Candidate::of_summaries(images);
    let choice = Choice::among(&candidates)?;
    choice.images.into_iter().rev().max_by_key(|&index| candidates[index].peak_bytes)
}

/// Describes the images that [`first`] chooses from. `None` if there are no images.
///
/// ```
/// assert_eq!(heaptide_analysis::recording::subject::of_summaries(&[]), None);
/// ```
pub fn of_summaries(images: &[ImageSummary]) -> Option<Subject> {
    let candidates = Candidate::of_summaries(images);
    let subject = Choice::among(&candidates)?.describe(&candidates);
    Some(Subject { share: None, ..subject })
}

/// What the choice needs to know about an image.
#[derive(Clone, Debug)]
struct Candidate<'a> {
    program: &'a str,
    command: &'a [String],
    run: u32,
    pid: u32,
    ppid: u32,
    /// Distinguishes processes with the same pid.
    process: u64,
    start_ns: u64,
    rank: Option<u32>,
    /// Whether it is the last image of the process that was started.
    is_requested: bool,
    /// Whether another program replaced it.
    is_replaced: bool,
    /// Whether it only copied its parent to execute another program, or tracks resources of a pool.
    is_helper: bool,
    /// Highest live bytes of the heap.
    heap_bytes: u64,
    /// The same with own mappings.
    peak_bytes: u64,
    /// Memory-time in byte-seconds.
    held: f64,
}

impl<'a> Candidate<'a> {
    fn of(process: &'a Process, is_requested: bool) -> Candidate<'a> {
        let identity = &process.identity;
        let own = OwnMappings::of(process);
        let heap_bytes = process.totals.peak_bytes;
        let is_replaced = process.lifetime.end == End::Exec;
        Candidate {
            program: &identity.program,
            command: &identity.command,
            run: identity.run.as_ref().map_or(0, |run| run.number),
            pid: identity.pid,
            ppid: identity.ppid,
            process: identity.process_number.into(),
            start_ns: process.lifetime.start_realtime_ns,
            rank: identity.rank.map(|rank| rank.number),
            is_requested,
            is_replaced,
            is_helper: is_replaced && identity.forked
                || roles::is_tracker(&identity.program, &identity.command),
            heap_bytes,
            peak_bytes: heap_bytes.saturating_add(own.peak_bytes),
            held: of_heap(process) + own.held,
        }
    }

    fn of_summaries(images: &'a [ImageSummary]) -> Vec<Candidate<'a>> {
        let is_last = |image: &ImageSummary| {
            let of_process = images.iter().filter(|other| other.pid == image.pid);
            of_process.map(|other| other.image).max() == Some(image.image)
        };
        let of = |image| Candidate::of_summary(image, image.is_requested && is_last(image));
        images.iter().map(of).collect()
    }

    fn of_summary(image: &'a ImageSummary, is_requested: bool) -> Candidate<'a> {
        Candidate {
            program: &image.program,
            command: &image.command,
            run: 0,
            pid: image.pid,
            ppid: image.ppid,
            process: image.process_start_ticks,
            start_ns: image.start_realtime_ns,
            rank: image.rank,
            is_requested,
            is_replaced: image.is_replaced,
            is_helper: image.is_replaced && image.forked
                || roles::is_tracker(&image.program, &image.command),
            heap_bytes: image.peak_bytes,
            peak_bytes: image.peak_bytes,
            // Headers do not contain the course over time: a rise and fall at constant rates.
            held: image.peak_bytes as f64 / 2.0 * image.duration_ns as f64 / 1e9,
        }
    }
}

/// Returns the memory-time of the heap of a process, in byte-seconds: between samples, the peak and
/// the end, live bytes change at constant rates.
fn of_heap(process: &Process) -> f64 {
    let (peak, totals) = (process.peak_time_ns, &process.totals);
    let samples = process.time.samples.iter().map(|sample| (sample.time_ns, sample.live_bytes));
    let mut points: Vec<(u64, u64)> = samples.collect();
    let at = points.partition_point(|(time_ns, _)| *time_ns <= peak);
    points.insert(at, (peak, totals.peak_bytes));
    points.push((process.lifetime.duration_ns, totals.live_bytes));
    area(points)
}

/// Returns the area below points in order of time, in byte-seconds.
fn area(points: impl IntoIterator<Item = (u64, u64)>) -> f64 {
    let mut last = (0, 0);
    let mut sum = 0.0;
    for (time_ns, bytes) in points {
        let seconds = time_ns.saturating_sub(last.0) as f64 / 1e9;
        sum += seconds * (last.1 as f64 + bytes as f64) / 2.0;
        last = (time_ns.max(last.0), bytes);
    }
    sum
}

/// Memory that a program mapped for its own use.
#[derive(Default)]
struct OwnMappings {
    peak_bytes: u64,
    held: f64,
}

impl OwnMappings {
    /// Returns the mappings of a process, as far as they hold neither blocks of its allocator nor
    /// code nor thread stacks, and are no reservations of addresses. Arenas of Python count as far
    /// as they exceed the heap, because their objects can be blocks.
    fn of(process: &Process) -> OwnMappings {
        let (Some(totals), Some(mapped)) = (&process.mapped, &process.mappings) else {
            return OwnMappings::default();
        };
        let (mut own, mut arenas, mut all) = (0u64, 0u64, 0u64);
        for site in &mapped.sites {
            let Some(mapping) = site.kind.mapping() else { continue };
            let bytes = site.measures.at_peak_bytes;
            all = all.saturating_add(bytes);
            match mapping.class {
                class if class.is_of_program() && mapping.protection != 0 => {
                    own = own.saturating_add(bytes);
                }
                MappingClass::PythonArena => arenas = arenas.saturating_add(bytes),
                _ => {}
            }
        }
        let own = own.saturating_add(arenas.saturating_sub(process.totals.peak_bytes));
        // Mappings that were never touched hold no memory.
        let resident = process.time.samples.iter().map(|sample| sample.resident_bytes).max();
        let own = own.min(resident.filter(|resident| *resident > 0).unwrap_or(own));
        if own == 0 {
            return OwnMappings::default();
        }
        let samples =
            mapped.samples.iter().map(|sample: &Sample| (sample.time_ns, sample.live_bytes));
        let end = (process.lifetime.duration_ns, totals.totals.live_bytes);
        let peak = (totals.peak_time_ns, totals.totals.peak_bytes);
        let points = if mapped.samples.is_empty() { vec![peak, end] } else { samples.collect() };
        OwnMappings { peak_bytes: own, held: area(points) * own as f64 / all.max(1) as f64 }
    }
}

/// Images of one program.
struct Program {
    /// An image that runs the script itself.
    main: usize,
    images: Vec<usize>,
    peak_bytes: u64,
    held: f64,
    is_requested: bool,
}

impl Program {
    fn score(&self) -> f64 {
        (self.held + f64::EPSILON) * self.peak_bytes as f64
    }
}

/// The chosen images.
#[derive(Debug)]
struct Choice {
    reason: Reason,
    /// Ascending; at least one.
    images: Vec<usize>,
    /// An image of the program that has its name.
    main: usize,
    /// Whether each image is a launcher, or a compiler that a launcher started.
    is_launcher: Vec<bool>,
}

impl Choice {
    fn among(candidates: &[Candidate]) -> Option<Choice> {
        let roles: Vec<Role> =
            candidates.iter().map(|image| roles::role(image.program, image.command)).collect();
        let parents = parents(candidates);
        let is_launcher = launchers(candidates, &roles, &parents);
        let programs = programs(candidates, &parents);
        let program = |index: &usize| !is_launcher[*index];
        let eligible = eligible(candidates, &roles, &programs, program);
        let best = eligible.iter().copied().max_by(|a, b| {
            let first = |program: &Program| Reverse(program.images.first().copied());
            a.score().total_cmp(&b.score()).then_with(|| first(a).cmp(&first(b)))
        })?;
        let has_much = |program: &&Program| {
            let least_bytes = best.peak_bytes as f64 * STARTED_PART;
            program.held >= best.held * STARTED_PART && program.peak_bytes as f64 >= least_bytes
        };
        let requested =
            eligible.iter().copied().filter(|program| program.is_requested).find(has_much);
        let chosen = requested.unwrap_or(best);
        let images = workers(candidates, &parents, chosen);
        let reason = match () {
            () if candidates.len() == images.len() => Reason::Only,
            () if !images.iter().any(program) && is_launcher.contains(&false) => Reason::Launcher,
            () if chosen.is_requested => Reason::Started,
            () => Reason::Most,
        };
        Some(Choice { reason, images, main: chosen.main, is_launcher })
    }

    fn describe(&self, candidates: &[Candidate]) -> Subject {
        let held = |images: &mut dyn Iterator<Item = &Candidate>| -> f64 {
            images.map(|image| image.held).sum()
        };
        let all = held(&mut candidates.iter());
        let own = held(&mut self.images.iter().map(|&index| &candidates[index]));
        let mut own_images: Vec<&Candidate> =
            self.images.iter().map(|&index| &candidates[index]).collect();
        own_images.sort_by_key(|image| image.start_ns);
        let mut pids: Vec<u32> = Vec::new();
        for image in &own_images {
            if !pids.contains(&image.pid) {
                pids.push(image.pid);
            }
        }
        let mut peaks: Vec<u64> = own_images.iter().map(|image| image.heap_bytes).collect();
        peaks.sort_unstable();
        let rest = |launchers: bool| {
            let is_one = |index: &usize| {
                !self.images.contains(index) && self.is_launcher[*index] == launchers
            };
            of_rest((0..candidates.len()).filter(is_one).map(|index| &candidates[index]))
        };
        let main = &candidates[self.main];
        let share = Some(if all > 0.0 { own / all } else { 1.0 });
        Subject {
            reason: self.reason,
            name: roles::title(main.program, main.command),
            share,
            pids,
            peaks,
            launchers: rest(true),
            others: rest(false),
        }
    }
}

/// Returns the images of a program that are the subject: the one with most memory, or all if a
/// second process of them has a part of its memory, or if they are ranks of a job.
fn workers(candidates: &[Candidate], parents: &[Option<usize>], program: &Program) -> Vec<usize> {
    let all = || program.images.iter().copied();
    let is_real = |index: &usize| !candidates[*index].is_helper;
    let has_real = all().any(|index| is_real(&index));
    // Of the images of one process, the one with most memory.
    let mut of_processes: FxHashMap<(u32, u64, u32), usize> = FxHashMap::default();
    for index in all().filter(|index| !has_real || is_real(index)) {
        let image = &candidates[index];
        let largest = of_processes.entry((image.run, image.process, image.pid)).or_insert(index);
        if candidates[*largest].peak_bytes <= image.peak_bytes {
            *largest = index;
        }
    }
    let mut images: Vec<usize> = of_processes.into_values().collect();
    images.sort_unstable();
    let Some(&largest) = images.iter().rev().max_by_key(|&&index| candidates[index].peak_bytes)
    else {
        return Vec::new();
    };
    let least = candidates[largest].peak_bytes / WORKER_PART;
    let large = images.iter().filter(|&&index| candidates[index].peak_bytes >= least).count();
    let first_rank = candidates[largest].rank;
    let are_ranks = images.iter().any(|&index| candidates[index].rank != first_rank);
    if large <= 1 && !are_ranks {
        return vec![largest];
    }
    // A parent that only starts the others is no worker.
    let is_parent = |index: usize| images.iter().any(|&child| parents[child] == Some(index));
    let is_worker =
        |index: usize| candidates[index].peak_bytes >= least || are_ranks || !is_parent(index);
    images.iter().copied().filter(|&index| is_worker(index)).collect()
}

/// Returns the parent of each image: the last image of its parent process that began before it.
fn parents(candidates: &[Candidate]) -> Vec<Option<usize>> {
    let mut of_pid: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    for (index, image) in candidates.iter().enumerate() {
        of_pid.entry((image.run, image.pid)).or_default().push(index);
    }
    let parent = |image: &Candidate| {
        let images = of_pid.get(&(image.run, image.ppid))?.iter().copied();
        let began_before = |&index: &usize| candidates[index].start_ns <= image.start_ns;
        images.filter(began_before).max_by_key(|&index| candidates[index].start_ns)
    };
    candidates.iter().map(parent).collect()
}

/// Returns whether each image is a launcher, or a compiler below a launcher that builds a program
/// and runs it.
fn launchers(candidates: &[Candidate], roles: &[Role], parents: &[Option<usize>]) -> Vec<bool> {
    let is_below = |index: usize| {
        let ancestors = std::iter::successors(parents[index], |&parent| parents[parent]);
        ancestors.take(ANCESTORS).any(|parent| roles[parent] == Role::BuildingLauncher)
    };
    let is_launcher = |index: usize| match roles[index] {
        Role::Program => false,
        Role::Launcher { .. } | Role::BuildingLauncher => true,
        Role::Compiler => is_below(index),
    };
    (0..candidates.len()).map(is_launcher).collect()
}

/// Groups images by program.
fn programs(candidates: &[Candidate], parents: &[Option<usize>]) -> Vec<Program> {
    let main = |index: usize| {
        let is_part =
            |at: &usize| roles::is_part_of_parent(candidates[*at].program, candidates[*at].command);
        let ancestors = std::iter::successors(Some(index), |&at| parents[at]).take(ANCESTORS);
        ancestors.into_iter().find(|at| !is_part(at)).unwrap_or(index)
    };
    let mut programs: Vec<Program> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for (index, image) in candidates.iter().enumerate() {
        let main = main(index);
        let key = roles::key(candidates[main].program, candidates[main].command);
        let place = *places.entry(key).or_insert(programs.len());
        if place == programs.len() {
            let images = Vec::new();
            programs.push(Program { main, images, peak_bytes: 0, held: 0.0, is_requested: false });
        }
        let program = &mut programs[place];
        program.images.push(index);
        program.peak_bytes = program.peak_bytes.max(image.peak_bytes);
        program.held += image.held;
        program.is_requested |= image.is_requested;
    }
    programs
}

/// Returns the programs that can be the subject: those that are no launchers, and launchers that
/// hold more than each of them and more than a launcher needs; if no program holds memory, all
/// compilers, or else everything.
fn eligible<'a>(
    candidates: &[Candidate],
    roles: &[Role],
    programs: &'a [Program],
    is_program: impl Fn(&usize) -> bool,
) -> Vec<&'a Program> {
    let are = |of: &dyn Fn(&usize) -> bool| -> Vec<&'a Program> {
        programs.iter().filter(|program| program.images.iter().any(of)).collect()
    };
    let mut found = are(&is_program);
    found.retain(|program| program.peak_bytes > 0);
    if found.is_empty() {
        found = are(&|&index| roles[index] == Role::Compiler);
    }
    if found.is_empty() {
        return programs.iter().collect();
    }
    let most = found.iter().map(|program| program.peak_bytes).max().unwrap_or(0);
    let does_more = |&index: &usize| match roles[index] {
        Role::Launcher { idle_bytes } if !candidates[index].is_replaced => {
            candidates[index].peak_bytes > idle_bytes.max(most)
        }
        _ => false,
    };
    found.extend(are(&does_more));
    found
}

/// Counts images that are not the subject.
fn of_rest<'a>(images: impl Iterator<Item = &'a Candidate<'a>>) -> Rest {
    let mut rest = Rest::default();
    let mut names: Vec<(String, usize)> = Vec::new();
    for image in images {
        rest.images += 1;
        if rest.pid == 0 || image.heap_bytes > rest.peak_bytes {
            (rest.peak_bytes, rest.pid) = (image.heap_bytes, image.pid);
        }
        let name = roles::short_title(image.program, image.command);
        match names.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 += 1,
            None => names.push((name, 1)),
        }
    }
    names.sort_by_key(|(_, images)| Reverse(*images));
    rest.programs = names.len();
    rest.names = names.into_iter().map(|(name, _)| name).take(NAMES).collect();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::with_stacks;
    use crate::model::Rank;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// A recording in which each process starts a millisecond after the one before.
    struct Run(Vec<Process>);

    impl Run {
        /// The first process, which was started by `heaptide run`.
        fn of(program: &str, line: &str, peak_bytes: u64, seconds: f64) -> Run {
            let run = Run(Vec::new()).and(0, program, line, peak_bytes, seconds);
            run.with(|process| process.identity.is_requested = true)
        }

        /// Adds a child of the process with this index.
        fn and(mut self, parent: u32, program: &str, line: &str, bytes: u64, seconds: f64) -> Run {
            let number = self.0.len() as u32;
            let mut process = match self.0.first() {
                Some(process) => process.clone(),
                None => with_stacks(&["main"]),
            };
            let identity = &mut process.identity;
            identity.file = format!("{number}").into();
            (identity.pid, identity.ppid) = (100 + number, 100 + parent);
            (identity.process_number, identity.is_requested) = (number, false);
            identity.program = program.to_owned();
            identity.command = line.split_whitespace().map(str::to_owned).collect();
            let duration_ns = (seconds * 1e9) as u64;
            process.lifetime.start_realtime_ns = u64::from(number) * 1_000_000;
            (process.lifetime.duration_ns, process.peak_time_ns) = (duration_ns, duration_ns / 2);
            process.totals.peak_bytes = bytes;
            self.0.push(process);
            self
        }

        /// Changes the last process.
        fn with(mut self, change: impl FnOnce(&mut Process)) -> Run {
            self.0.last_mut().map(change).expect("a process");
            self
        }

        /// Makes the last process the next image of the one before it.
        fn by_exec(mut self) -> Run {
            let last = self.0.len() - 1;
            let (before, after) = self.0.split_at_mut(last);
            let (before, after) = (&mut before[last - 1], &mut after[0]);
            before.lifetime.end = End::Exec;
            let identity = before.identity.clone();
            (after.identity.pid, after.identity.ppid) = (identity.pid, identity.ppid);
            after.identity.process_number = identity.process_number;
            after.identity.execs = identity.execs + 1;
            after.identity.is_requested = identity.is_requested;
            self
        }

        /// Returns the indices of the images of the subject, and its description.
        fn subject(&self) -> (Vec<usize>, Subject) {
            let processes = self.0.clone();
            let mut recording = Recording { processes, ..Recording::default() };
            recording.choose_subject();
            let is_subject =
                |index: &usize| recording.processes[*index].identity.role == ImageRole::Subject;
            let images = (0..recording.processes.len()).filter(is_subject).collect();
            (images, recording.subject.expect("a subject"))
        }

        fn images(&self) -> Vec<usize> {
            self.subject().0
        }
    }

    const SH: &str = "/usr/bin/dash";
    const BASH: &str = "/usr/bin/bash";
    const MAKE: &str = "/usr/bin/make";
    const PYTHON: &str = "/usr/bin/python3.11";
    const CC1PLUS: &str = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus";
    const APP: &str = "/srv/app";

    #[test]
    fn launchers_are_not_the_subject() {
        let run =
            Run::of(SH, "sh -c x", 3 * KIB, 1.0).and(0, PYTHON, "python3 a.py", 23 * MIB, 0.9);
        let (images, subject) = run.subject();
        assert_eq!((images, subject.reason, &*subject.pids), (vec![1], Reason::Most, &[101][..]));
        let launchers = Rest {
            images: 1,
            names: vec!["sh".to_owned()],
            programs: 1,
            peak_bytes: 3 * KIB,
            pid: 100,
        };
        assert_eq!((subject.launchers, subject.others), (launchers, Rest::default()));
        // Even if the launcher has more: both hold little.
        let make = Run::of(MAKE, "make", 200 * KIB, 1.0).and(0, APP, "app", KIB, 0.1);
        assert_eq!(make.images(), [1]);
        let nothing = Run::of(SH, "sh -c true", 3 * KIB, 1.0).and(0, "/bin/true", "true", 0, 0.1);
        assert_eq!(nothing.images(), [0], "a program without memory");
        let cargo = "/usr/bin/cargo";
        let test = Run::of(cargo, "cargo test", 40 * MIB, 9.0)
            .and(0, "/usr/bin/rustc", "rustc --crate-name a", 300 * MIB, 8.0)
            .and(0, "/t/debug/deps/a-12", "a-12", MIB, 0.1);
        assert_eq!(test.images(), [2]);
        assert_eq!(test.subject().1.launchers.images, 2);
        let build = Run::of(cargo, "cargo build", 40 * MIB, 9.0).and(
            0,
            "/usr/bin/rustc",
            "rustc --crate-name a",
            300 * MIB,
            8.0,
        );
        assert_eq!(build.images(), [1]);
        let cached = Run::of(cargo, "cargo test", 40 * MIB, 9.0).and(
            0,
            "/usr/bin/rustc",
            "rustc -vV",
            MIB,
            0.1,
        );
        assert_eq!(cached.images(), [1], "nothing else was recorded");
    }

    #[test]
    fn a_shim_becomes_the_program_by_exec() {
        let shim = Run::of(BASH, "bash ./shim a.py", 129 * KIB, 1.0)
            .and(0, PYTHON, "python3 a.py", 64 * KIB, 0.1)
            .by_exec();
        assert_eq!((shim.images(), shim.subject().1.reason), (vec![1], Reason::Started));
        let env = Run::of("/usr/bin/env", "env -i app", 13 * KIB, 1.0)
            .and(0, APP, "app", KIB, 0.1)
            .by_exec();
        assert_eq!(env.images(), [1]);
    }

    #[test]
    fn a_launcher_that_holds_more_than_its_children_is_the_subject() {
        let script = Run::of(BASH, "bash big.sh", 50 * MIB, 2.0).and(0, APP, "app", 5 * MIB, 0.1);
        assert_eq!((script.images(), script.subject().1.reason), (vec![0], Reason::Launcher));
        let script = Run::of(BASH, "bash big.sh", 5 * MIB, 2.0).and(0, APP, "app", 50 * MIB, 0.1);
        assert_eq!(script.images(), [1]);
        let only = Run::of(SH, "sh -c true", 3 * KIB, 0.1);
        assert_eq!((only.images(), only.subject().1.reason), (vec![0], Reason::Only));
        let nested = Run::of("/usr/bin/timeout", "timeout 9 bash a.sh", 2 * KIB, 0.1).and(
            0,
            BASH,
            "bash a.sh",
            200 * KIB,
            0.1,
        );
        assert_eq!(nested.images(), [1], "all are launchers");
    }

    #[test]
    fn compilers_below_make_are_workers_of_one_program() {
        let mut run = Run::of(MAKE, "make -j8", 700 * KIB, 30.0);
        for _ in 0..60 {
            run = run.and(0, "/usr/bin/x86_64-linux-gnu-g++-12", "g++ -c a.cc", 174 * KIB, 3.1);
            run = run.and(1, CC1PLUS, "cc1plus a.cc", 100 * MIB, 3.0);
        }
        let (images, subject) = run.and(0, "/usr/bin/ld", "ld a.o", 400 * MIB, 2.0).subject();
        assert_eq!((images.len(), &*subject.name), (60, "cc1plus"));
        assert_eq!(subject.launchers.names, ["g++", "make"]);
        assert_eq!((subject.others.images, &*subject.others.names), (1, &["ld".to_owned()][..]));
        assert_eq!(subject.images(), 122);
    }

    #[test]
    fn workers_of_a_server_are_one_subject() {
        let server = |peaks: &[u64]| {
            let mut run = Run::of(APP, "app serve", 8 * MIB, 60.0);
            for &peak in peaks {
                run = run.and(0, APP, "app serve", peak, 59.0);
                run = run.with(|process| process.identity.forked = true);
            }
            run
        };
        let (images, subject) = server(&[40 * MIB, 10 * MIB, 30 * MIB, 20 * MIB]).subject();
        assert_eq!(images, [0, 1, 2, 3, 4]);
        assert_eq!(subject.peaks, [8, 10, 20, 30, 40].map(|peak| peak * MIB));
        assert_eq!(subject.reason, Reason::Only);
        // The parent only starts the workers.
        assert_eq!(server(&[100 * MIB, 90 * MIB]).images(), [1, 2]);
        // A helper with little memory is no worker.
        assert_eq!(server(&[100 * KIB]).images(), [0]);
        // Neither is a copy that executes another program.
        let copy = server(&[6 * MIB]).with(|process| process.lifetime.end = End::Exec);
        assert_eq!(copy.images(), [0]);
    }

    #[test]
    fn processes_of_a_pool_belong_to_the_script() {
        let spawned = [
            "/usr/bin/python3",
            "-c",
            "from multiprocessing.spawn import spawn_main; spawn_main()",
            "--multiprocessing-fork",
        ];
        let as_spawned =
            |process: &mut Process| process.identity.command = spawned.map(str::to_owned).to_vec();
        let run = Run::of(PYTHON, "python3 pool.py", 9 * MIB, 9.0)
            .and(0, PYTHON, "", 20 * MIB, 8.0)
            .with(as_spawned)
            .and(0, PYTHON, "", 30 * MIB, 8.0)
            .with(as_spawned)
            .and(0, PYTHON, "python3 other.py", 10 * MIB, 8.0);
        let (images, subject) = run.subject();
        assert_eq!((images, &*subject.name), (vec![0, 1, 2], "python3 pool.py"));
    }

    #[test]
    fn ranks_are_one_subject_even_if_one_holds_all() {
        let mut run = Run::of("/usr/bin/orterun", "mpirun -n 3 app", 6 * MIB, 2.0);
        for rank in 0..3 {
            let peak = if rank == 0 { MIB } else { KIB };
            run = run.and(0, APP, "app", peak, 1.0).with(|process| {
                process.identity.rank = Some(Rank { number: rank, of: 3 });
            });
        }
        let (images, subject) = run.subject();
        assert_eq!((images, subject.peaks), (vec![1, 2, 3], vec![KIB, KIB, MIB]));
    }

    #[test]
    fn the_started_program_stays_unless_another_has_much_more() {
        let run = |peak: u64| {
            Run::of(PYTHON, "python3 a.py", 20 * MIB, 1.0).and(0, CC1PLUS, "cc1plus", peak, 1.0)
        };
        let found = |peak: u64| (run(peak).images(), run(peak).subject().1.reason);
        assert_eq!(found(60 * MIB), (vec![0], Reason::Started));
        assert_eq!(found(90 * MIB), (vec![1], Reason::Most));
    }

    #[test]
    fn much_memory_for_a_short_time_outweighs_little_for_a_long_time() {
        let run = Run::of(SH, "sh -c x", 3 * KIB, 3600.0)
            .and(0, "/opt/monitor", "monitor", 10 * MIB, 3600.0)
            .and(0, APP, "app", 1024 * MIB, 10.0);
        assert_eq!(run.images(), [2]);
        let equal = Run::of(SH, "sh -c x", 3 * KIB, 1.0)
            .and(0, "/opt/a", "a", MIB, 1.0)
            .and(0, "/opt/b", "b", MIB, 1.0);
        assert_eq!(equal.images(), [1], "the first of equal ones");
    }

    #[test]
    fn memory_time_is_the_area_below_samples_and_the_peak() {
        assert_eq!(area([(1_000_000_000, 10), (3_000_000_000, 20)]), 5.0 + 30.0);
        let mut process = Run::of(APP, "app", 100, 4.0).0.remove(0);
        (process.totals.live_bytes, process.peak_time_ns) = (0, 2_000_000_000);
        assert_eq!(of_heap(&process), 200.0);
        let sample = |second: u64, live_bytes| Sample {
            time_ns: second * 1_000_000_000,
            live_bytes,
            ..Sample::default()
        };
        process.time.samples = vec![sample(1, 0), sample(3, 100)];
        assert_eq!(of_heap(&process), 0.0 + 50.0 + 100.0 + 50.0);
    }

    /// The shell of a version shim was shown as the program that had been started.
    #[test]
    fn what_became_a_server_by_exec_is_not_what_was_requested() {
        let run = Run::of(BASH, "bash shim serve", 100 * KIB, 0.1)
            .and(0, APP, "app serve", 8 * MIB, 60.0)
            .by_exec()
            .and(1, APP, "app serve", 9 * MIB, 59.0);
        let mut recording = Recording { processes: run.0, ..Recording::default() };
        recording.processes[2].identity.ppid = recording.processes[1].identity.pid;
        assert!(recording.requested().is_some());
        recording.choose_subject();
        recording.join_subject();
        assert!(recording.requested().is_none(), "it is part of the subject");
    }

    #[test]
    fn workers_are_joined_in_their_place() {
        let run = Run::of(MAKE, "make", 700 * KIB, 30.0)
            .and(0, APP, "app 1", MIB, 1.0)
            .and(0, "/usr/bin/ld", "ld a.o", KIB, 2.0)
            .and(0, APP, "app 2", 2 * MIB, 1.0);
        let mut recording = Recording { processes: run.0, ..Recording::default() };
        recording.choose_subject();
        recording.join_subject();
        let of = |process: &Process| (process.identity.images, process.identity.role);
        let images: Vec<_> = recording.processes.iter().map(of).collect();
        let expected = [(1, ImageRole::Launcher), (2, ImageRole::Subject), (1, ImageRole::Other)];
        assert_eq!(images, expected);
        let joined = recording.subject_process().expect("the subject");
        assert_eq!(joined.totals.peak_bytes, 3 * MIB);
        assert_eq!(joined.totals.allocations, 2, "a block of each");
        assert_eq!(joined.identity.command, ["app"]);
    }
}
