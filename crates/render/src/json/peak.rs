//! Memory live at peak, as JSON.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{FrameId, Measure, Measures, Process, Recording, ScopeId, Site};
use heaptide_analysis::views::highest;
use heaptide_analysis::views::peak::Moment;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::annotations::{MarkEntry, WindowEntry, serialize_scope};
use crate::json::document;
use crate::json::entries::serialize_interval;
use crate::json::sites::{FrameEntry, FrameNumbers, SiteEntry};
use crate::shared::frames;
use crate::shared::hotspots::{Charges, Hotspot};
use crate::shared::peak_rows::{Labelled, Row, by_label, by_lane, by_scope};
use crate::shared::quantity::seconds;

/// Writes the peaks of the selected processes as JSON, with at most `top` sites and functions each.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    top: Option<usize>,
) -> io::Result<()> {
    document::write(out, recording, pid, |process| PeakEntry { process, top })
}

struct PeakEntry<'a> {
    process: &'a Process,
    top: Option<usize>,
}

impl Serialize for PeakEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (process, t) = (self.process, &self.process.totals);
        let found = Moment::of(process);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("peak_time_s", &seconds(process.peak_time_ns))?;
        map.serialize_entry("peak_bytes", &t.peak_bytes)?;
        map.serialize_entry("peak_bound_bytes", &process.completeness.peak_bound_bytes)?;
        map.serialize_entry("at_peak_blocks", &t.at_peak_blocks)?;
        map.serialize_entry("at_peak_bytes", &t.at_peak_bytes)?;
        map.serialize_entry("live_bytes", &t.live_bytes)?;
        map.serialize_entry("resident_bytes", &found.resident.map(|resident| resident.0))?;
        map.serialize_entry("resident_time_s", &found.resident.map(|r| seconds(r.1)))?;
        let windows: Vec<_> = found.windows.iter().map(|w| WindowEntry::of(w)).collect();
        map.serialize_entry("windows", &windows)?;
        for (name, mark) in [("mark_before", found.before), ("mark_after", found.after)] {
            map.serialize_entry(name, &mark.map(|mark| MarkEntry::of(process, mark)))?;
        }
        map.serialize_entry("slack_bytes", &found.slack.bytes)?;
        map.serialize_entry("slack_known_bytes", &found.slack.known_bytes)?;
        let kinds =
            found.kinds.iter().map(|&(kind, n)| KindEntry { kind: kind.name(), at_peak_bytes: n });
        map.serialize_entry("kinds", &kinds.collect::<Vec<_>>())?;
        self.serialize_rows(&mut map)?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct KindEntry {
    kind: &'static str,
    at_peak_bytes: u64,
}

impl PeakEntry<'_> {
    /// Writes what held the memory: sites, functions, scopes, labels and lanes.
    fn serialize_rows<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (process, top) = (self.process, self.top.unwrap_or(usize::MAX));
        let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
        sites.retain(|site| site.measures.at_peak_bytes > 0 || site.measures.at_peak_blocks > 0);
        sites.sort_by_key(|s| {
            (Reverse(s.measures.at_peak_bytes), s.stack, s.scope, s.label, s.lane)
        });
        sites.truncate(top);
        let charges = Charges::of(process);
        let mut functions = charges.hotspots(Measure::AtPeakBytes);
        functions.truncate(top);
        let stacks = sites.iter().map(|site| site.stack);
        let of_functions = functions.iter().map(|hotspot| hotspot.stacks[0].0);
        let numbers = FrameNumbers::of_stacks(process, stacks.chain(of_functions));
        let function = |hotspot: &Hotspot| FunctionEntry::of(process, &charges, hotspot);
        map.serialize_entry("functions", &functions.iter().map(function).collect::<Vec<_>>())?;
        let scope = |row: Row<ScopeId>| ScopeEntry { process, row };
        let scopes: Vec<_> = by_scope(process).into_iter().map(scope).collect();
        map.serialize_entry("scopes", &scopes)?;
        let labels: Vec<_> =
            by_label(process).iter().map(|row| LabelEntry::of(process, row)).collect();
        map.serialize_entry("labels", &labels)?;
        let lanes: Vec<_> =
            by_lane(process).iter().map(|row| LaneEntry::of(process, row)).collect();
        map.serialize_entry("lanes", &lanes)?;
        let frames: Vec<FrameEntry> = numbers.entries(process);
        map.serialize_entry("frames", &frames)?;
        let site = |site| SiteEntry {
            process,
            site,
            numbers: &numbers,
            owners: &charges.owners,
            live_requested: highest::live_requested(site),
        };
        map.serialize_entry("sites", &sites.into_iter().map(site).collect::<Vec<_>>())
    }
}

/// The limits of the 95 % interval of bytes at peak; omitted if the bytes are exact.
#[derive(serde::Serialize)]
struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    at_peak_bytes_low: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_peak_bytes_high: Option<u64>,
}

impl Limits {
    fn of(process: &Process, row: &Measures) -> Limits {
        let found = process.interval(Measure::AtPeakBytes, row).map(|i| (i.low, i.high));
        let (at_peak_bytes_low, at_peak_bytes_high) = found.unzip();
        Limits { at_peak_bytes_low, at_peak_bytes_high }
    }
}

#[derive(serde::Serialize)]
struct FunctionEntry<'a> {
    function: Option<&'a str>,
    module: &'a str,
    file: Option<&'a str>,
    stacks: usize,
    at_peak_blocks: u64,
    at_peak_bytes: u64,
    lines: Vec<LineEntry<'a>>,
    #[serde(flatten)]
    limits: Limits,
}

/// A line of a function that allocates.
#[derive(serde::Serialize)]
struct LineEntry<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
    at_peak_bytes: u64,
}

impl FunctionEntry<'_> {
    fn of<'a>(process: &'a Process, charges: &Charges, hotspot: &Hotspot) -> FunctionEntry<'a> {
        let frame = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]);
        let lines = hotspot.lines(charges, Measure::AtPeakBytes);
        let line = |(id, at_peak_bytes): (FrameId, u64)| {
            let frame = &process.tables.frames[id.0 as usize];
            LineEntry { file: frame.file.as_deref(), line: frame.line, at_peak_bytes }
        };
        FunctionEntry {
            function: frame.and_then(|frame| frame.function.as_deref()),
            module: frame.map_or("", |frame| frames::module_name(process, frame)),
            file: frame.and_then(|frame| frame.file.as_deref()),
            stacks: hotspot.stacks.len(),
            at_peak_blocks: hotspot.measures.at_peak_blocks,
            at_peak_bytes: hotspot.measures.at_peak_bytes,
            lines: lines.into_iter().map(line).collect(),
            limits: Limits::of(process, &hotspot.measures),
        }
    }
}

struct ScopeEntry<'a> {
    process: &'a Process,
    row: Row<ScopeId>,
}

impl Serialize for ScopeEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_scope(self.process, self.row.key, &mut map)?;
        map.serialize_entry("at_peak_blocks", &self.row.measures.at_peak_blocks)?;
        map.serialize_entry("at_peak_bytes", &self.row.measures.at_peak_bytes)?;
        let (measure, row) = (Measure::AtPeakBytes, &self.row.measures);
        serialize_interval(measure, row, self.process, &mut map)?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct LabelEntry<'a> {
    label: Option<&'a str>,
    kind: &'static str,
    at_peak_blocks: u64,
    at_peak_bytes: u64,
    #[serde(flatten)]
    limits: Limits,
}

impl LabelEntry<'_> {
    fn of<'a>(process: &'a Process, row: &Row<Labelled>) -> LabelEntry<'a> {
        LabelEntry {
            label: row.key.0.map(|id| &*process.tables.labels[id.0 as usize].name),
            kind: row.key.1.name(),
            at_peak_blocks: row.measures.at_peak_blocks,
            at_peak_bytes: row.measures.at_peak_bytes,
            limits: Limits::of(process, &row.measures),
        }
    }
}

#[derive(serde::Serialize)]
struct LaneEntry<'a> {
    lane: &'a str,
    at_peak_blocks: u64,
    at_peak_bytes: u64,
    #[serde(flatten)]
    limits: Limits,
}

impl LaneEntry<'_> {
    fn of<'a>(process: &'a Process, row: &Row<usize>) -> LaneEntry<'a> {
        let lane = &process.tables.lanes[row.key].name;
        LaneEntry {
            lane,
            at_peak_blocks: row.measures.at_peak_blocks,
            at_peak_bytes: row.measures.at_peak_bytes,
            limits: Limits::of(process, &row.measures),
        }
    }
}
