//! Significant gaps of a recording, for the summary of a run.

use heaptide_analysis::model::{DeviceApi, Loss, Off, Process, ProfileLimit, Recording};
use heaptide_analysis::views::coverage::{Uncovered, uncovered};
use heaptide_analysis::views::unstored::{cut_stacks, unstored_allocations};

use crate::shared::losses::{is_significant, meaning};
use crate::shared::quantity::{bytes, count, counted, duration, percent};

/// Maximum number of lines, including one for the rest.
const LINES: usize = 5;

/// Returns a line for each gap; none if the recording is complete.
pub(crate) fn lines(recording: &Recording) -> Vec<String> {
    let mut lines = unrecorded(recording);
    lines.extend(in_part(recording));
    lines.extend(own_malloc(recording));
    lines.extend(other_allocator(recording));
    lines.extend(from_before(recording));
    lines.extend(while_off(recording));
    lines.extend(device_memory(recording));
    lines.extend(nearly_all(recording));
    match recording.damaged.len() as u64 {
        0 => {}
        files => lines.push(format!("{} that cannot be read", counted(files, "file"))),
    }
    lines.extend(profile_limits(recording));
    lines.extend(losses(recording));
    let rest = lines.len().saturating_sub(LINES - 1);
    if rest > 1 {
        lines.truncate(LINES - 1);
        lines.push(format!("{rest} more; `heaptide info` lists them"));
    }
    lines
}

const OWN_MALLOC: &str = "the executable defines malloc; only allocations it forwards are recorded";

/// Returns a line for each kind of memory of a process that is not recorded.
pub fn of_process(process: &Process) -> Vec<String> {
    let completeness = &process.completeness;
    let everything = completeness.unrecorded.map(|why| format!("everything: {why}"));
    let in_part = completeness.in_part.as_ref().map(|why| format!("some memory: {why}"));
    let own_malloc = completeness.has_own_malloc.then(|| format!("some memory: {OWN_MALLOC}"));
    let other = completeness.other_allocator.map(|why| format!("some memory: {why}"));
    let nearly_all = unexplained(process).map(|uncovered| {
        let (what, why) = nearly_all_of(uncovered);
        format!("{what}: {why}")
    });
    let off = off(process).map(|time| format!("{WHILE_OFF}: {time}"));
    let device = unrecorded_device(process).map(|why| format!("{DEVICE}: {why}"));
    let all = [everything, in_part, own_malloc, other, off, device, nearly_all];
    all.into_iter().flatten().collect()
}

/// Returns a line about processes to which a command attached.
fn from_before(recording: &Recording) -> Option<String> {
    let began_late = |process: &&Process| process.completeness.starts_in_middle;
    let with = images(recording.processes.iter().filter(began_late));
    let why = "the recording began when heaptide attached";
    (with > 0).then(|| whose(recording, with, "older blocks", why))
}

const WHILE_OFF: &str = "everything while recording was off";

/// Returns for how long recording of a process was off, if it was.
fn off(process: &Process) -> Option<String> {
    let of = duration(process.lifetime.duration_ns);
    match process.completeness.off {
        Off::Never => None,
        Off::For(off_ns) => Some(format!("{} of {of}", duration(off_ns))),
        Off::Sometimes => Some(format!("unknown how much of {of}")),
    }
}

/// Returns a line about processes whose recording was off, with the longest time.
fn while_off(recording: &Recording) -> Option<String> {
    let is_off = |process: &&Process| process.completeness.off != Off::Never;
    let were_off = || recording.processes.iter().filter(is_off);
    let longest = were_off().max_by_key(|process| process.completeness.off)?;
    Some(whose(recording, images(were_off()), WHILE_OFF, &off(longest)?))
}

const DEVICE: &str = "device memory";

/// The libraries through which programs take memory of GPUs, without their version, and the
/// interface by which it is recorded: of CUDA, HIP and what it is built on, Level Zero and OpenCL.
const DRIVERS: [(&str, Option<DeviceApi>); 5] = [
    ("libcuda.so", Some(DeviceApi::Cuda)),
    ("libamdhip64.so", Some(DeviceApi::Hip)),
    ("libhsa-runtime64.so", Some(DeviceApi::Hip)),
    ("libze_loader.so", Some(DeviceApi::LevelZero)),
    ("libOpenCL.so", None),
];

/// Returns why memory of a GPU is not recorded, if a process loaded such a library.
fn unrecorded_device(process: &Process) -> Option<String> {
    let names = process.tables.modules.iter().filter_map(|module| module.path.rsplit('/').next());
    let names: Vec<&str> = names.collect();
    let drivers = &process.completeness.drivers;
    let loaded = DRIVERS.into_iter().filter(|(name, _)| names.iter().any(|n| n.starts_with(name)));
    let mut unrecorded =
        loaded.filter_map(|(name, by)| match drivers.iter().find(|(api, _)| Some(*api) == by) {
            Some((_, None)) => None,
            Some((_, Some(why))) => Some((name, *why)),
            None => Some((name, "")),
        });
    let (driver, why) = unrecorded.next()?;
    let why = if why.is_empty() { ";".to_owned() } else { format!("{why}:") };
    Some(format!("the program loaded {driver}{why} what it allocates on a GPU is not recorded"))
}

fn device_memory(recording: &Recording) -> Option<String> {
    let with = || recording.processes.iter().filter(|process| unrecorded_device(process).is_some());
    let of = with().find_map(unrecorded_device)?;
    Some(whose(recording, images(with()), DEVICE, &of))
}

/// Returns the processes of which nothing is recorded, by reason.
fn unrecorded(recording: &Recording) -> Vec<String> {
    let lines = grouped(recording, |process| process.completeness.unrecorded)
        .map(|(reason, n)| whose(recording, n, "everything", reason));
    let started = Some(&recording.unrecorded).filter(|why| !why.is_empty());
    let started = started.map(|why| format!("everything of the started program: {why}"));
    started.into_iter().chain(lines).collect()
}

fn in_part(recording: &Recording) -> Vec<String> {
    let reasons = grouped(recording, |process| process.completeness.in_part.as_deref());
    reasons.map(|(reason, n)| whose(recording, n, "some memory", reason)).collect()
}

fn own_malloc(recording: &Recording) -> Option<String> {
    let has_own = |process: &&Process| process.completeness.has_own_malloc;
    let with = images(recording.processes.iter().filter(has_own));
    (with > 0).then(|| whose(recording, with, "some memory", OWN_MALLOC))
}

fn other_allocator(recording: &Recording) -> Vec<String> {
    let reasons = grouped(recording, |process| process.completeness.other_allocator);
    reasons.map(|(reason, n)| whose(recording, n, "some memory", reason)).collect()
}

/// Returns a line about processes that hardly allocated through the recorder, with the numbers of
/// the process with most memory.
fn nearly_all(recording: &Recording) -> Option<String> {
    let found: Vec<Uncovered> = recording.processes.iter().filter_map(unexplained).collect();
    let most = *found.iter().max_by_key(|uncovered| uncovered.other_bytes)?;
    let (what, why) = nearly_all_of(most);
    Some(whose(recording, found.len() as u64, what, &why))
}

/// Returns the memory of a process outside of the recorder, unless another line explains it.
fn unexplained(process: &Process) -> Option<Uncovered> {
    let completeness = &process.completeness;
    let is_explained = completeness.in_part.is_some()
        || completeness.has_own_malloc
        || completeness.other_allocator.is_some();
    uncovered(process).filter(|_| !is_explained)
}

/// Returns what is missing, and why.
fn nearly_all_of(uncovered: Uncovered) -> (&'static str, String) {
    let Uncovered { heap_bytes, other_bytes, is_mapped } = uncovered;
    if is_mapped {
        let why = format!(
            "none was made through the recorder; {} of anonymous memory are recorded mappings \
             (see --kind mapped), of the program itself or of an allocator that the recorder \
             cannot find",
            bytes(other_bytes)
        );
        return ("allocations, if there were any", why);
    }
    let resident = match other_bytes {
        0 => String::new(),
        most => format!(", while {} of anonymous memory were resident", bytes(most)),
    };
    let (what, heap) = match heap_bytes {
        0 => ("all allocations", "none was made through the recorder".to_owned()),
        peak => ("most memory", format!("{} were allocated through the recorder", bytes(peak))),
    };
    let why = "the program allocates with functions that the recorder cannot find (keep its symbol \
               table), or from the kernel (see --kind mapped), or not at all";
    (what, format!("{heap}{resident}; {why}"))
}

/// Formats `WHAT: WHY`, with the number of processes if the recording has several.
fn whose(recording: &Recording, n: u64, what: &str, why: &str) -> String {
    match images(recording.processes.iter()) {
        1 => format!("{what}: {why}"),
        all => format!("{what} of {n} of {all} process images: {why}"),
    }
}

/// Returns a line about profiles that reached their limit, and what was not recorded because of it.
fn profile_limits(recording: &Recording) -> Option<String> {
    let reached = |process: &&Process| process.completeness.profile_limit.is_some();
    let limited: Vec<&Process> = recording.processes.iter().filter(reached).collect();
    let earliest = limited.iter().filter_map(|process| process.completeness.profile_limit);
    let ProfileLimit { bytes: limit, reached_ns } =
        earliest.min_by_key(|limit| limit.reached_ns)?;
    let sum = |of: fn(&Process) -> u64| limited.iter().map(|p| of(p)).fold(0, u64::saturating_add);
    let (unstored, all) = (sum(unstored_allocations), sum(|process| process.totals.allocations));
    let what = match unstored {
        0 => "new names, marks and modules".to_owned(), // growth with few stacks
        _ => format!("the stacks of {} of the allocations", percent(unstored, all)),
    };
    let (limit, after) = (bytes(limit), duration(reached_ns));
    let why = format!("the profile reached its limit of {limit} (--max-profile) after {after}");
    Some(whose(recording, limited.len() as u64, &what, &why))
}

/// Losses that are caused by a limit of the profile, and covered by its line.
const OF_LIMIT: [&str; 6] =
    ["no_site", "no_node", "no_module", "no_sample", "no_scope", "no_region"];

/// The loss of stacks that are deeper than the limit.
const TOO_DEEP: &str = "too_deep";

fn losses(recording: &Recording) -> Vec<String> {
    let all = &recording.processes;
    let sum = |of: fn(&Process) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let allocations = sum(|process| process.totals.allocations);
    let mut found: Vec<Loss> = Vec::new();
    let stands_alone = |process: &Process, loss: &Loss| {
        process.completeness.profile_limit.is_none() || !OF_LIMIT.contains(&loss.name)
    };
    let each = all
        .iter()
        .flat_map(|process| process.completeness.losses.iter().map(move |l| (process, l)));
    for (_, loss) in each.filter(|(process, loss)| stands_alone(process, loss)) {
        match found.iter_mut().find(|known| known.name == loss.name) {
            Some(known) => known.count = known.count.saturating_add(loss.count),
            None => found.push(*loss),
        }
    }
    // The unwinder cuts many stacks of a thread at once.
    let cut = sum(cut_stacks);
    for loss in found.iter_mut().filter(|loss| loss.name == TOO_DEEP && cut > 0) {
        loss.count = cut;
    }
    let line = |loss: &Loss| {
        let (n, meaning) = (loss.count, meaning(all.iter(), loss));
        if loss.is_of_events() && allocations > 0 {
            format!("{} ({}) {meaning}", count(n), percent(n, allocations))
        } else {
            format!("{} {meaning}", count(n))
        }
    };
    found.iter().filter(|loss| is_significant(loss, allocations)).map(line).collect()
}

/// Groups equal texts and returns each with its count, in order of first occurrence.
fn grouped<'a>(
    recording: &'a Recording,
    text: impl Fn(&'a Process) -> Option<&'a str>,
) -> impl Iterator<Item = (&'a str, u64)> {
    let mut groups: Vec<(&str, u64)> = Vec::new();
    for process in &recording.processes {
        let Some(text) = text(process) else { continue };
        let images = u64::from(process.identity.images);
        match groups.iter_mut().find(|group| group.0 == text) {
            Some(group) => group.1 += images,
            None => groups.push((text, images)),
        }
    }
    groups.into_iter()
}

/// Returns the number of images, of which some can be joined.
fn images<'a>(processes: impl Iterator<Item = &'a Process>) -> u64 {
    processes.map(|process| u64::from(process.identity.images)).sum()
}
