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

    /// Sets the peaks in the description of the subject, after kinds of memory were selected, to
    /// those that the images have now.
    pub fn update_subject(&mut self) {
        let Some(subject) = &mut self.subject else { return };
        let peaks_of = |role: ImageRole| {
            let of_role = self.processes.iter().filter(move |of| of.identity.role == role);
            of_role.map(|process| (process.totals.peak_bytes, process.identity.pid))
        };
        let mut peaks: Vec<u64> = peaks_of(ImageRole::Subject).map(|(peak, _)| peak).collect();
        if peaks.len() == subject.peaks.len() {
            peaks.sort_unstable();
            subject.peaks = peaks;
        }
        let rests = [
            (ImageRole::Launcher, &mut subject.launchers),
            (ImageRole::Other, &mut subject.others),
        ];
        for (role, rest) in rests {
            if peaks_of(role).count() == rest.images
                && let Some((peak, pid)) = peaks_of(role).max_by_key(|(peak, _)| *peak)
            {
                (rest.peak_bytes, rest.pid) = (peak, pid);
            }
        }
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
            // Headers do not contain the course over time.
            held: image.peak_bytes as f64 * image.duration_ns as f64 / 1e9,
        }
    }
}

/// Returns the memory-time of the heap of a process, in byte-seconds, from samples, peak and end.
fn of_heap(process: &Process) -> f64 {
    let (peak, totals) = (process.peak_time_ns, &process.totals);
    let samples = process.time.samples.iter().map(|sample| (sample.time_ns, sample.live_bytes));
    let mut points: Vec<(u64, u64)> = samples.collect();
    let at = points.partition_point(|(time_ns, _)| *time_ns <= peak);
    points.insert(at, (peak, totals.peak_bytes));
    points.push((process.lifetime.duration_ns, totals.live_bytes));
    area(points)
}

/// Returns the area below points in order of time, in byte-seconds. Samples are steps: a change of
/// live bytes has a sample of its own.
fn area(points: impl IntoIterator<Item = (u64, u64)>) -> f64 {
    let mut last = (0, 0);
    let mut sum = 0.0;
    for (time_ns, bytes) in points {
        let seconds = time_ns.saturating_sub(last.0) as f64 / 1e9;
        sum += seconds * last.1 as f64;
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
mod tests;
