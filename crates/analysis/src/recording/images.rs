//! Summaries of the process images of a recording, from the headers of their profiles, for
//! selecting images.

use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::StringHeader;
use zerocopy::FromBytes;

use super::directory::{profiles_in, recordings_in};
use super::metadata::Metadata;
use super::running;
use crate::error::Error;
use crate::files::input;
use crate::model::Mode;
use crate::profile::header::header;
use crate::profile::pack;
use crate::text;

/// The name of the program is among the first strings, within this many bytes.
const NAME_WITHIN: u64 = 64 << 10;

/// A process image, as described by its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSummary {
    /// Its profile.
    pub file: PathBuf,
    /// The pid, as seen from here if the process runs, else as in the recording.
    pub pid: u32,
    /// The number of the image among those with its pid.
    pub image: u32,
    /// The path of the program; empty if unknown.
    pub program: String,
    /// Its arguments, if they are stored close to the header; else empty.
    pub command: Vec<String>,
    /// How much was recorded.
    pub mode: Mode,
    /// Whether only sampled blocks were recorded.
    pub is_sampled: bool,
    /// Whether its events were recorded.
    pub has_trace: bool,
    /// Whether a process writes to the profile.
    pub is_running: bool,
    /// Whether the image noted its end: an exit or an exec.
    pub has_noted_end: bool,
    /// Start of the process in clock ticks since boot; 0 if unknown.
    pub process_start_ticks: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// Start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// Time from start to end, or to the last activity that the header contains, in nanoseconds.
    pub duration_ns: u64,
    /// Parent's process id at the start.
    pub ppid: u32,
    /// Whether the image began as a fork of a recorded process.
    pub forked: bool,
    /// Whether another program replaced it.
    pub is_replaced: bool,
    /// Its rank in a parallel job.
    pub rank: Option<u32>,
    /// Whether `heaptide run` started its process; `false` if the recording was not read.
    pub is_requested: bool,
}

impl ImageSummary {
    /// Returns the name of the mode, as used in options.
    pub fn mode_name(&self) -> &'static str {
        if self.is_sampled { format::SAMPLED } else { self.mode.name() }
    }
}

/// Returns the images of a recording, or of a single profile, in order of start. Unreadable files
/// are omitted.
///
/// Errors: there is no such recording, or it has no profile.
///
/// ```
/// use heaptide_analysis::recording::images;
/// assert!(images::of_recording("missing.heaptide".as_ref()).is_err());
/// ```
pub fn of_recording(path: &Path) -> Result<Vec<ImageSummary>, Error> {
    let running = running::of_recording(path)?;
    let files = if path.is_dir() { profiles_in(path)? } else { vec![path.to_owned()] };
    let started = if path.is_dir() { started(path) } else { Vec::new() };
    let summary = |file: PathBuf| {
        let mut summary = of_profile(file)?;
        summary.is_requested = started.contains(&summary.pid);
        if let Some(found) = running.iter().find(|running| running.file == summary.file) {
            (summary.is_running, summary.pid) = (true, found.pid);
        }
        Some(summary)
    };
    let mut images: Vec<ImageSummary> = files.into_iter().filter_map(summary).collect();
    images.sort_by_key(|image| (image.start_realtime_ns, image.pid, image.image));
    Ok(images)
}

/// Returns the process ids of the programs that were started directly.
fn started(recording: &Path) -> Vec<u32> {
    let Ok(Some(metadata)) = Metadata::read(recording) else {
        return Vec::new();
    };
    match &metadata.members[..] {
        [] => vec![metadata.root_pid],
        members => members.iter().map(|member| member.root_pid).collect(),
    }
}

/// Returns the most recently modified recording in a directory that a process writes to; `None` if
/// there is none.
///
/// Errors: the directory cannot be read.
///
/// ```
/// use heaptide_analysis::recording::images::newest_running;
/// assert!(newest_running("src".as_ref()).unwrap().is_none());
/// ```
pub fn newest_running(directory: &Path) -> Result<Option<PathBuf>, Error> {
    let mut recordings = recordings_in(directory)?;
    let changed = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    recordings.sort_by_key(|path| std::cmp::Reverse(changed(path)));
    let runs = |path: &PathBuf| running::of_recording(path).is_ok_and(|found| !found.is_empty());
    Ok(recordings.into_iter().find(runs))
}

/// Returns the image with this profile; `None` if it cannot be read or its header has not been
/// written yet. Does not check whether a process writes to it.
///
/// ```
/// use heaptide_analysis::recording::images;
/// assert!(images::of_profile("missing.heaptide/12-0.profile".into()).is_none());
/// ```
pub fn of_profile(file: PathBuf) -> Option<ImageSummary> {
    let bytes = pack::first(input::open(&file).ok()?, NAME_WITHIN).ok()?;
    let header = header(&bytes, &file).ok()?;
    Some(ImageSummary {
        pid: header.pid,
        image: header.image,
        program: string(&bytes, header.program).unwrap_or_default(),
        command: arguments(&bytes, header.command),
        mode: match header.mode {
            mode if mode == format::Mode::Counters as u32 => Mode::Counters,
            mode if mode == format::Mode::Scopes as u32 => Mode::Scopes,
            _ => Mode::Stacks,
        },
        is_sampled: header.mode == format::Mode::Sampled as u32,
        has_trace: header.trace != 0,
        is_running: false,
        has_noted_end: header.end_kind != format::End::Unknown as u32,
        process_start_ticks: header.process_start_ticks,
        peak_bytes: header.peak_bytes,
        start_realtime_ns: header.start_realtime_ns,
        duration_ns: header.end_time_ns.max(header.last_seen_ns).max(header.peak_time_ns),
        ppid: header.ppid,
        forked: header.forked != 0,
        is_replaced: header.end_kind == format::End::Exec as u32,
        rank: header.rank.checked_sub(1),
        is_requested: false,
        file,
    })
}

/// Returns a referenced string if it lies within these first bytes of a profile.
fn string(bytes: &[u8], reference: u32) -> Option<String> {
    let at = usize::try_from(u64::from(reference) * format::STRING_GRANULE).ok()?;
    let (head, rest) = StringHeader::read_from_prefix(bytes.get(at..)?).ok()?;
    let length = usize::try_from(head.length).ok().filter(|&l| l <= format::STRING_MAX)?;
    (reference != 0).then(|| rest.get(..length).map(text::from_bytes))?
}

/// Splits a string of words that each end with a zero byte.
fn arguments(bytes: &[u8], reference: u32) -> Vec<String> {
    let joined = string(bytes, reference).unwrap_or_default();
    let words = joined.strip_suffix('\0').unwrap_or(&joined);
    if words.is_empty() { Vec::new() } else { words.split('\0').map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch};

    use super::*;

    #[test]
    fn images_are_described_by_their_headers() {
        let scratch = Scratch::new("images");
        let file = ProgramBuilder::with_stacks(&["main"]).write(&scratch);
        std::fs::write(scratch.join("9-0.profile"), b"no profile").expect("a file");
        let directory = file.parent().expect("a directory");
        let images = of_recording(directory).expect("a recording");
        let [image] = &images[..] else { panic!("{images:?}") };
        assert_eq!((&image.file, image.image, image.is_running), (&file, 0, false));
        assert_eq!((&*image.program, image.mode, image.has_trace), ("app", Mode::Stacks, false));
        assert!(newest_running(directory).expect("readable").is_none());
    }
}
