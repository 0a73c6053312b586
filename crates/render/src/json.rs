//! The JSON report: a contract for scripts, every site and every measure, streamed.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{
    End, Frame, Lane, Loss, Measure, Measures, Mode, Process, Rank, Recording, Run, Sample, Site,
    StackId,
};
use heaptide_analysis::trace::OnDisk;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json_named;
use crate::json_text;
use crate::quantity::{rfc3339, seconds};

/// Version of the contract; it changes when a key changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// Losses that are events missing from the figures or from their stack; others cut stacks short.
const LOST_EVENTS: [&str; 3] = ["no_lane", "no_shadow", "no_site"];

/// What the report holds.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Sites come in falling order of this measure.
    pub sort: Measure,
    /// At most this many sites a process, and the frames they use; all without.
    pub top: Option<usize>,
    /// Only the images of this process.
    pub process: Option<u32>,
}

/// Writes the report as one JSON object and a newline.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, recording: &Recording, choice: &Choice) -> io::Result<()> {
    json_text::write(out, &Report { recording, choice })?;
    out.write_all(b"\n")
}

/// Events missing from the figures, or charged to no stack.
pub fn lost_events(process: &Process) -> u64 {
    let lost = process.completeness.losses.iter().filter(|l| LOST_EVENTS.contains(&l.name));
    lost.map(|l| l.count).sum()
}

struct Report<'a> {
    recording: &'a Recording,
    choice: &'a Choice,
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { recording, choice } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry("recording", &recording.path.to_string_lossy())?;
        map.serialize_entry("heaptide", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("sealed", &recording.sealed)?;
        map.serialize_entry("ran_after_sealing", &recording.ran_after_sealing)?;
        let unrecorded = Some(&recording.unrecorded).filter(|reason| !reason.is_empty());
        map.serialize_entry("unrecorded", &unrecorded)?;
        let chosen = recording.processes.iter();
        let chosen = chosen.filter(|p| choice.process.is_none_or(|pid| pid == p.identity.pid));
        map.serialize_entry("processes", &seq(chosen.map(|process| Image { process, choice })))?;
        let damaged = recording
            .damaged
            .iter()
            .map(|file| Damaged { file: file.path.to_string_lossy(), reason: &file.reason });
        map.serialize_entry("damaged", &seq(damaged))?;
        map.end()
    }
}

/// Serializes the items of an iterator one after the other.
pub(crate) struct Seq<I>(I);

pub(crate) fn seq<I: Iterator + Clone>(items: I) -> Seq<I> {
    Seq(items)
}

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Seq<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

#[derive(serde::Serialize)]
struct Damaged<'a> {
    file: std::borrow::Cow<'a, str>,
    reason: &'a str,
}

struct Image<'a> {
    process: &'a Process,
    choice: &'a Choice,
}

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let process = self.process;
        let sites = chosen_sites(process, self.choice);
        let numbers = FrameNumbers::of(process, &sites, self.choice);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pid", &process.identity.pid)?;
        map.serialize_entry("ppid", &process.identity.ppid)?;
        map.serialize_entry("image", &process.identity.image)?;
        map.serialize_entry("program", &process.identity.program)?;
        map.serialize_entry("command", &process.identity.command)?;
        map.serialize_entry("start_time", &rfc3339(process.lifetime.start_realtime_ns))?;
        map.serialize_entry("duration_s", &seconds(process.lifetime.duration_ns))?;
        map.serialize_entry("duration_is_known", &process.lifetime.duration_is_known)?;
        map.serialize_entry("end", &EndEntry::of(process.lifetime.end))?;
        map.serialize_entry("totals", &Totals(process))?;
        map.serialize_entry("histogram", &seq(process.tables.histogram.iter().map(SizeClass)))?;
        let lanes = process.tables.lanes.iter().map(|lane| LaneEntry { lane, mode: process.mode });
        map.serialize_entry("lanes", &seq(lanes))?;
        map.serialize_entry("frames", &numbers.entries(process))?;
        let sites = sites.iter().map(|site| SiteEntry { process, site, numbers: &numbers });
        map.serialize_entry("sites", &seq(sites))?;
        json_named::serialize_lists(process, &mut map)?;
        serialize_details(process, &mut map)?;
        map.end()
    }
}

/// The name of a mode in options and JSON.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Counters => "counters",
        Mode::Stacks => "stacks",
        Mode::Scopes => "scopes",
    }
}

/// What the contract does not promise but a script may use.
fn serialize_details<M: SerializeMap>(process: &Process, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry("file", &process.identity.file.to_string_lossy())?;
    map.serialize_entry("host", &process.identity.host)?;
    map.serialize_entry(
        "rank",
        &process.identity.rank.map(|Rank { number, of }| RankEntry { number, of }),
    )?;
    map.serialize_entry("job", &process.identity.job)?;
    let run = process.identity.run.as_ref();
    map.serialize_entry(
        "run",
        &run.map(|Run { number, recording }| RunEntry { number, recording }),
    )?;
    map.serialize_entry("images", &process.identity.images)?;
    map.serialize_entry("forked", &process.identity.forked)?;
    map.serialize_entry("mode", mode_name(process.mode))?;
    map.serialize_entry("trace", &process.trace_on_disk().map(TraceEntry::of))?;
    map.serialize_entry("unmatched_frees", &process.completeness.unmatched_frees)?;
    map.serialize_entry("unrecorded", &process.completeness.unrecorded)?;
    map.serialize_entry("has_own_malloc", &process.completeness.has_own_malloc)?;
    let losses = process.completeness.losses.iter().map(LossEntry::of);
    map.serialize_entry("losses", &seq(losses))?;
    map.serialize_entry("part", &process.completeness.part)?;
    map.serialize_entry("notes", &process.completeness.notes)?;
    let modules = process.tables.modules.iter().map(|m| ModuleEntry {
        path: &m.path,
        build_id: hex(&m.build_id),
        unloaded: m.unloaded,
    });
    map.serialize_entry("modules", &seq(modules))?;
    map.serialize_entry("timeline", &seq(process.time.samples.iter().map(SampleEntry::of)))
}

#[derive(serde::Serialize)]
struct RankEntry {
    number: u32,
    of: u32,
}

#[derive(serde::Serialize)]
struct RunEntry<'a> {
    number: &'a u32,
    recording: &'a str,
}

#[derive(serde::Serialize)]
struct TraceEntry {
    bytes: u64,
    stopped_s: Option<f64>,
    limit_bytes: Option<u64>,
}

impl TraceEntry {
    fn of(OnDisk { bytes, stopped_ns, limit_bytes }: OnDisk) -> TraceEntry {
        TraceEntry { bytes, stopped_s: stopped_ns.map(seconds), limit_bytes }
    }
}

#[derive(serde::Serialize)]
struct LossEntry {
    name: &'static str,
    meaning: &'static str,
    count: u64,
}

impl LossEntry {
    fn of(&Loss { name, meaning, count }: &Loss) -> LossEntry {
        LossEntry { name, meaning, count }
    }
}

#[derive(serde::Serialize)]
struct ModuleEntry<'a> {
    path: &'a str,
    build_id: String,
    unloaded: bool,
}

#[derive(serde::Serialize)]
pub(crate) struct SampleEntry {
    time_s: f64,
    live_bytes: u64,
    peak_bytes: u64,
    allocations: u64,
    frees: u64,
    usable_bytes: u64,
    resident_bytes: u64,
    virtual_bytes: u64,
}

impl SampleEntry {
    pub(crate) fn of(s: &Sample) -> SampleEntry {
        SampleEntry {
            time_s: seconds(s.time_ns),
            live_bytes: s.live_bytes,
            peak_bytes: s.peak_bytes,
            allocations: s.allocations,
            frees: s.frees,
            usable_bytes: s.usable_bytes,
            resident_bytes: s.resident_bytes,
            virtual_bytes: s.virtual_bytes,
        }
    }
}

#[derive(serde::Serialize)]
pub(crate) struct EndEntry {
    kind: &'static str,
    code: Option<i32>,
}

impl EndEntry {
    pub(crate) fn of(end: End) -> EndEntry {
        let (kind, code) = match end {
            End::Exited(code) => ("exited", Some(code)),
            End::Signaled(code) => ("signaled", Some(code)),
            End::Exec => ("exec", None),
            End::Running => ("running", None),
            End::Unknown => ("unknown", None),
        };
        EndEntry { kind, code }
    }
}

struct Totals<'a>(&'a Process);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let process = self.0;
        let mut map = serializer.serialize_map(None)?;
        for measure in Measure::all() {
            map.serialize_entry(measure.name(), &value(*measure, &process.totals, process.mode))?;
        }
        map.serialize_entry("peak_time_s", &seconds(process.peak_time_ns))?;
        map.serialize_entry("lost_events", &lost_events(process))?;
        map.serialize_entry("peak_bound_bytes", &process.completeness.peak_bound_bytes)?;
        map.end()
    }
}

/// The value of a measure; none if it is not recorded. Counters cannot tell the blocks at the peak.
fn value(measure: Measure, measures: &Measures, mode: Mode) -> Option<u64> {
    let is_at_peak = matches!(measure, Measure::AtPeakBlocks | Measure::AtPeakBytes);
    (mode != Mode::Counters || !is_at_peak).then(|| measure.of(measures))
}

/// The measures of a row that is a part of a process with this mode: a part has no peak of its own.
pub(crate) fn serialize_part<M: SerializeMap>(
    measures: &Measures,
    mode: Mode,
    map: &mut M,
) -> Result<(), M::Error> {
    for measure in Measure::of_parts() {
        map.serialize_entry(measure.name(), &value(measure, measures, mode))?;
    }
    Ok(())
}

struct SizeClass<'a>(&'a heaptide_analysis::model::SizeClass);

impl Serialize for SizeClass<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let class = self.0;
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("size_min", &class.size_min)?;
        map.serialize_entry("size_max", &class.size_max)?;
        map.serialize_entry("requested", &class.requested)?;
        map.serialize_entry("usable", &class.usable)?;
        map.serialize_entry("freed", &class.freed)?;
        map.end()
    }
}

struct LaneEntry<'a> {
    lane: &'a Lane,
    mode: Mode,
}

impl Serialize for LaneEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.lane.name)?;
        map.serialize_entry("threads", &self.lane.threads)?;
        serialize_part(&self.lane.measures, self.mode, &mut map)?;
        map.end()
    }
}

pub(crate) struct FrameEntry<'a> {
    process: &'a Process,
    frame: &'a Frame,
}

impl Serialize for FrameEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FrameEntry { process, frame } = self;
        let module = frame.module.map_or("", |id| &process.tables.modules[id.0 as usize].path);
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("function", &frame.function.as_deref())?;
        map.serialize_entry("module", module)?;
        map.serialize_entry("offset", &frame.offset)?;
        map.serialize_entry("file", &frame.file.as_deref())?;
        map.serialize_entry("line", &frame.line)?;
        map.serialize_entry("inlined", &frame.inlined)?;
        map.end()
    }
}

pub(crate) struct SiteEntry<'a> {
    pub(crate) process: &'a Process,
    pub(crate) site: &'a Site,
    pub(crate) numbers: &'a FrameNumbers,
}

impl Serialize for SiteEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let SiteEntry { process, site, numbers } = self;
        let lane = process.tables.lanes.get(site.lane.0 as usize).map_or("", |lane| &lane.name);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("stack", &numbers.stack(process, site.stack))?;
        json_named::serialize_site(process, site, &mut map)?;
        map.serialize_entry("lane", lane)?;
        serialize_part(&site.measures, process.mode, &mut map)?;
        map.end()
    }
}

fn chosen_sites<'a>(process: &'a Process, choice: &Choice) -> Vec<&'a Site> {
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|s| {
        let value = choice.sort.of_sites().of(&s.measures);
        (Reverse(value), s.stack, s.scope, s.label, s.lane)
    });
    sites.truncate(choice.top.unwrap_or(usize::MAX));
    sites
}

/// Which frames are written, and the number each gets by being written.
pub(crate) struct FrameNumbers {
    shown: Vec<u32>,
    number: Vec<u32>,
}

impl FrameNumbers {
    /// All frames as they are; those of the sites only if the sites were cut.
    fn of(process: &Process, sites: &[&Site], choice: &Choice) -> FrameNumbers {
        let all = process.tables.frames.len() as u32;
        if choice.top.is_none() {
            return FrameNumbers { shown: (0..all).collect(), number: (0..all).collect() };
        }
        FrameNumbers::of_stacks(process, sites.iter().map(|site| site.stack))
    }

    /// Those that stacks use.
    pub(crate) fn of_stacks(
        process: &Process,
        stacks: impl Iterator<Item = StackId>,
    ) -> FrameNumbers {
        let number = vec![u32::MAX; process.tables.frames.len()];
        let mut numbers = FrameNumbers { shown: Vec::new(), number };
        for frame in stacks.flat_map(|stack| process.frames_of(stack)) {
            let number = &mut numbers.number[frame.0 as usize];
            if *number == u32::MAX {
                *number = numbers.shown.len() as u32;
                numbers.shown.push(frame.0);
            }
        }
        numbers
    }

    /// The frames as they are written.
    pub(crate) fn entries<'a>(&self, process: &'a Process) -> Vec<FrameEntry<'a>> {
        let entry = |&i: &u32| FrameEntry { process, frame: &process.tables.frames[i as usize] };
        self.shown.iter().map(entry).collect()
    }

    /// The numbers of a stack's frames, outermost first.
    pub(crate) fn stack(&self, process: &Process, stack: StackId) -> Vec<u32> {
        let path = process.path_of(stack);
        path.into_iter().map(|frame| self.number[frame.0 as usize]).collect()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
