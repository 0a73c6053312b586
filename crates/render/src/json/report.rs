//! The JSON report, with a stable schema for scripts: all sites and all metrics, streamed.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{
    DeviceSum, DeviceTotals, Highest, Interception, Lane, Loss, MappedTotals, MappingClass,
    Measure, Measures, PoolBytes, Process, ProfileLimit, Rank, Recording, Run, Site,
    UnrecordedProgram,
};
use heaptide_analysis::trace::OnDisk;
use heaptide_analysis::views::highest::live_requested_replayed;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::annotations;
use crate::json::entries::{EndEntry, SCHEMA, SampleEntry, SamplingEntry, serialize_part, value};
use crate::json::sites::{FrameNumbers, SiteEntry};
use crate::shared::answer::Answer;
use crate::shared::hex::hex;
use crate::shared::json_text;
use crate::shared::quantity::{rfc3339, seconds};
use crate::shared::sequence::seq;

/// Options of the report.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Metric by which sites are sorted, largest first.
    pub sort: Measure,
    /// Maximum number of sites per process, with only the frames that these use; all by default.
    pub top: Option<usize>,
    /// Restricts the report to the images of this process.
    pub process: Option<u32>,
}

/// Writes the report as one JSON object and a newline, with the answer that views for people state.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    choice: &Choice,
    answer: &Answer,
) -> io::Result<()> {
    json_text::write(out, &Report { recording, choice, answer })?;
    out.write_all(b"\n")
}

struct Report<'a> {
    recording: &'a Recording,
    choice: &'a Choice,
    answer: &'a Answer,
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { recording, choice, answer } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry("recording", &recording.path.to_string_lossy())?;
        map.serialize_entry("heaptide", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("answer", &answer.sentence)?;
        map.serialize_entry("subject", &answer.subject)?;
        map.serialize_entry("sealed", &recording.sealed)?;
        map.serialize_entry("ran_after_sealing", &recording.ran_after_sealing)?;
        let unrecorded = Some(&recording.unrecorded).filter(|reason| !reason.is_empty());
        map.serialize_entry("unrecorded", &unrecorded)?;
        map.serialize_entry("out_of_memory", &recording.out_of_memory)?;
        map.serialize_entry("removed", &recording.removed)?;
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
        let numbers = frame_numbers(process, &sites, self.choice);
        let owners = Owners::of(process);
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
        map.serialize_entry("mapped", &process.mapped.as_ref().map(MappedEntry::of))?;
        map.serialize_entry("device", &process.device.as_ref().map(DeviceEntry::of))?;
        map.serialize_entry("histogram", &seq(process.tables.histogram.iter().map(SizeClass)))?;
        let visits = visits(process);
        let lanes = process.tables.lanes.iter().zip(&visits);
        let lanes = lanes.map(|(lane, visits)| LaneEntry { lane, visits, process });
        map.serialize_entry("lanes", &seq(lanes))?;
        map.serialize_entry("frames", &numbers.entries(process))?;
        let sites = sites.iter().map(|&(site, live_requested)| SiteEntry {
            process,
            site,
            numbers: &numbers,
            owners: &owners,
            live_requested,
        });
        map.serialize_entry("sites", &seq(sites))?;
        annotations::serialize_lists(process, &mut map)?;
        serialize_details(process, &mut map)?;
        map.end()
    }
}

/// Writes details that are not part of the stable schema.
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
    map.serialize_entry("requested", &process.identity.is_requested)?;
    map.serialize_entry("role", &process.identity.role.name())?;
    map.serialize_entry("forked", &process.identity.forked)?;
    map.serialize_entry("mode", process.mode_name())?;
    if let Some(sampling) = SamplingEntry::of(process) {
        map.serialize_entry("sampling", &sampling)?;
    }
    map.serialize_entry("trace", &process.trace_on_disk().map(TraceEntry::of))?;
    map.serialize_entry("unmatched_frees", &process.completeness.unmatched_frees)?;
    map.serialize_entry("unrecorded", &process.completeness.unrecorded)?;
    map.serialize_entry("in_part", &process.completeness.in_part)?;
    map.serialize_entry("has_own_malloc", &process.completeness.has_own_malloc)?;
    let losses = process.completeness.losses.iter().map(LossEntry::of);
    map.serialize_entry("losses", &seq(losses))?;
    let limit = process.completeness.profile_limit;
    map.serialize_entry("profile_limit", &limit.map(ProfileLimitEntry::of))?;
    let programs = process.completeness.unrecorded_programs.iter().map(|program| {
        let UnrecordedProgram { path, reason, count } = program;
        UnrecordedProgramEntry { path, reason, count: *count }
    });
    map.serialize_entry("unrecorded_programs", &seq(programs))?;
    let interceptions = process.completeness.interceptions.iter();
    let interceptions = interceptions.map(InterceptionEntry::of);
    map.serialize_entry("interceptions", &seq(interceptions))?;
    map.serialize_entry("part", &process.completeness.part)?;
    map.serialize_entry("notes", &process.completeness.notes)?;
    let modules = process.tables.modules.iter().map(|m| ModuleEntry {
        path: &m.path,
        build_id: hex(&m.build_id),
        unloaded: m.unloaded,
    });
    map.serialize_entry("modules", &seq(modules))?;
    map.serialize_entry("highest", &process.time.highest.as_ref().map(HighestEntry::of))?;
    map.serialize_entry("timeline", &seq(process.time.samples.iter().map(SampleEntry::of)))
}

/// The moment at which joined processes had most live bytes together.
#[derive(serde::Serialize)]
struct HighestEntry<'a> {
    time_s: f64,
    live_bytes: u64,
    at_most_bytes: Option<u64>,
    holders: Vec<HolderEntry<'a>>,
}

/// What a process held at that moment.
#[derive(serde::Serialize)]
struct HolderEntry<'a> {
    name: &'a str,
    live_bytes: u64,
}

impl HighestEntry<'_> {
    fn of(highest: &Highest) -> HighestEntry<'_> {
        let held = highest.holders.iter();
        HighestEntry {
            time_s: seconds(highest.time_ns),
            live_bytes: highest.live_bytes,
            at_most_bytes: highest.at_most_bytes,
            holders: held.map(|(name, n)| HolderEntry { name, live_bytes: *n }).collect(),
        }
    }
}

/// A limit of the profile that was reached.
#[derive(serde::Serialize)]
struct ProfileLimitEntry {
    bytes: u64,
    reached_s: f64,
}

impl ProfileLimitEntry {
    fn of(limit: ProfileLimit) -> ProfileLimitEntry {
        ProfileLimitEntry { bytes: limit.bytes, reached_s: seconds(limit.reached_ns) }
    }
}

/// All mappings of a process, regardless of the selection.
#[derive(serde::Serialize)]
struct MappedEntry {
    peak_bytes: u64,
    peak_time_s: f64,
    mappings: u64,
    unmapped: u64,
    mapped_bytes: u64,
    unmapped_bytes: u64,
    live_bytes: u64,
    live_mappings: u64,
    classes: Vec<ClassEntry>,
}

/// The mappings of one class.
#[derive(serde::Serialize)]
struct ClassEntry {
    class: &'static str,
    mappings: u64,
    mapped_bytes: u64,
    at_peak_bytes: u64,
    live_bytes: u64,
    live_mappings: u64,
}

impl MappedEntry {
    fn of(mapped: &MappedTotals) -> MappedEntry {
        let t = &mapped.totals;
        let class = |(class, sums): &(MappingClass, Measures)| ClassEntry {
            class: class.name(),
            mappings: sums.allocations,
            mapped_bytes: sums.usable_bytes,
            at_peak_bytes: sums.at_peak_bytes,
            live_bytes: sums.live_bytes,
            live_mappings: sums.live_blocks,
        };
        MappedEntry {
            peak_bytes: t.peak_bytes,
            peak_time_s: seconds(mapped.peak_time_ns),
            mappings: t.allocations,
            unmapped: t.frees,
            mapped_bytes: t.usable_bytes,
            unmapped_bytes: t.freed_bytes,
            live_bytes: t.live_bytes,
            live_mappings: t.live_blocks,
            classes: mapped.classes.iter().map(class).collect(),
        }
    }
}

/// All device memory of a process, regardless of the selection.
#[derive(serde::Serialize)]
struct DeviceEntry {
    peak_bytes: u64,
    peak_time_s: f64,
    allocations: u64,
    frees: u64,
    allocated_bytes: u64,
    freed_bytes: u64,
    live_bytes: u64,
    live_blocks: u64,
    devices: Vec<DeviceSumEntry>,
    /// Null without pools.
    pools: Option<PoolBytesEntry>,
}

/// Bytes of memory from which libraries hand out blocks.
#[derive(serde::Serialize)]
struct PoolBytesEntry {
    in_use_at_peak_bytes: u64,
    idle_at_peak_bytes: u64,
    in_use_bytes: u64,
    idle_bytes: u64,
}

impl PoolBytesEntry {
    fn of(of: &PoolBytes) -> PoolBytesEntry {
        PoolBytesEntry {
            in_use_at_peak_bytes: of.in_use_at_peak,
            idle_at_peak_bytes: of.idle_at_peak,
            in_use_bytes: of.in_use,
            idle_bytes: of.idle,
        }
    }
}

/// The memory of one device.
#[derive(serde::Serialize)]
struct DeviceSumEntry {
    api: &'static str,
    device: Option<u16>,
    /// Null if it is not known.
    peak_bytes: Option<u64>,
    at_peak_bytes: u64,
    allocations: u64,
    allocated_bytes: u64,
    live_bytes: u64,
    live_blocks: u64,
}

impl DeviceEntry {
    fn of(of: &DeviceTotals) -> DeviceEntry {
        let t = &of.totals;
        let sum = |sum: &DeviceSum| DeviceSumEntry {
            api: sum.device.api.name(),
            device: sum.device.number,
            peak_bytes: sum.peak_bytes,
            at_peak_bytes: sum.measures.at_peak_bytes,
            allocations: sum.measures.allocations,
            allocated_bytes: sum.measures.usable_bytes,
            live_bytes: sum.measures.live_bytes,
            live_blocks: sum.measures.live_blocks,
        };
        DeviceEntry {
            peak_bytes: t.peak_bytes,
            peak_time_s: seconds(of.peak_time_ns),
            allocations: t.allocations,
            frees: t.frees,
            allocated_bytes: t.usable_bytes,
            freed_bytes: t.freed_bytes,
            live_bytes: t.live_bytes,
            live_blocks: t.live_blocks,
            devices: of.devices.iter().map(sum).collect(),
            pools: of.pools.as_ref().map(PoolBytesEntry::of),
        }
    }
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
    begin_s: Option<f64>,
    dropped_bytes: u64,
}

impl TraceEntry {
    fn of(trace: OnDisk) -> TraceEntry {
        TraceEntry {
            bytes: trace.bytes,
            stopped_s: trace.stopped_ns.map(seconds),
            limit_bytes: trace.limit_bytes,
            begin_s: trace.begin_ns.map(seconds),
            dropped_bytes: trace.dropped_bytes,
        }
    }
}

#[derive(serde::Serialize)]
struct UnrecordedProgramEntry<'a> {
    path: &'a str,
    reason: &'static str,
    count: u64,
}

#[derive(serde::Serialize)]
struct InterceptionEntry<'a> {
    module: &'a str,
    functions: &'a str,
    is_intercepted: bool,
}

impl InterceptionEntry<'_> {
    fn of(interception: &Interception) -> InterceptionEntry<'_> {
        let Interception { module, functions, left_alone } = interception;
        InterceptionEntry { module, functions, is_intercepted: left_alone.is_none() }
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

struct Totals<'a>(&'a Process);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let process = self.0;
        let mut map = serializer.serialize_map(None)?;
        for measure in Measure::all() {
            map.serialize_entry(measure.name(), &value(*measure, &process.totals, process.mode))?;
        }
        map.serialize_entry("peak_time_s", &seconds(process.peak_time_ns))?;
        map.serialize_entry("lost_events", &process.completeness.lost_events())?;
        map.serialize_entry("peak_bound_bytes", &process.completeness.peak_bound_bytes)?;
        map.end()
    }
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
    visits: &'a [Visits],
    process: &'a Process,
}

/// How often a lane entered a scope path.
#[derive(serde::Serialize)]
struct Visits {
    scope_index: u32,
    entered: u64,
}

/// For each lane, returns the scope paths it entered and how often, in order of the paths.
fn visits(process: &Process) -> Vec<Vec<Visits>> {
    let mut visits: Vec<Vec<Visits>> = Vec::new();
    visits.resize_with(process.tables.lanes.len(), Vec::new);
    let mut rows: Vec<_> = process.tables.entered.iter().collect();
    rows.sort_by_key(|row| (row.lane, row.scope));
    for same in rows.chunk_by(|a, b| (a.lane, a.scope) == (b.lane, b.scope)) {
        let entered = same.iter().fold(0u64, |sum, row| sum.saturating_add(row.times));
        let row = Visits { scope_index: same[0].scope.0, entered };
        visits[same[0].lane.0 as usize].push(row);
    }
    visits
}

impl Serialize for LaneEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.lane.name)?;
        map.serialize_entry("threads", &self.lane.threads)?;
        map.serialize_entry("tids", &self.lane.tids)?;
        map.serialize_entry("scopes", self.visits)?;
        serialize_part(&self.lane.measures, self.process, &mut map)?;
        map.end()
    }
}

fn chosen_sites<'a>(process: &'a Process, choice: &Choice) -> Vec<(&'a Site, Option<u64>)> {
    let live_requested = live_requested_replayed(process);
    let mut sites: Vec<_> = process.tables.sites.iter().zip(live_requested).collect();
    sites.sort_by_key(|(s, _)| {
        let value = choice.sort.of_sites().of(&s.measures);
        (Reverse(value), s.stack, s.scope, s.label, s.lane)
    });
    sites.truncate(choice.top.unwrap_or(usize::MAX));
    sites
}

/// Returns the numbers of all frames, or, if the sites are limited, of the frames they use.
fn frame_numbers(
    process: &Process,
    sites: &[(&Site, Option<u64>)],
    choice: &Choice,
) -> FrameNumbers {
    if choice.top.is_none() {
        FrameNumbers::of_all(process)
    } else {
        FrameNumbers::of_stacks(process, sites.iter().map(|(site, _)| site.stack))
    }
}
