//! Export in the processed format of the Firefox Profiler, for profiler.firefox.com: lanes are
//! threads, their allocations are native allocations.
//!
//! Tables that do not belong to a thread are shared by all threads, and correspond to Heaptide's
//! tables column by column. Version 63 is the newest one that is fully documented; the profiler
//! upgrades it when it opens the file. See docs-developer/CHANGELOG-formats.md of its sources.

use std::borrow::Cow;
use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{
    Frame, LaneId, Measure, Measures, Module, Process, Site, StackId, Sum,
};
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::export::firefox_tracks as tracks;
use crate::shared::annotations::mark_says;
use crate::shared::command_line::command_line;
use crate::shared::heading::sampling_says;
use crate::shared::hex::hex;
use crate::shared::json_text;
use crate::shared::sequence::seq;

/// The version of the format.
const VERSION: u32 = 63;
/// Type of a resource that is a library.
const LIBRARY: u32 = 1;
/// Number of threads that are initially visible.
const SHOWN: usize = 12;

/// Writes the profile of a process. The call tree shows `measure` as samples. Native allocations
/// always contain allocated, retained and freed bytes.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, measure: Measure) -> io::Result<()> {
    let tables = Tables::of(process);
    let profile = Profile { process, measure: measure.of_sites(), tables: &tables };
    json_text::write(out, &profile)?;
    out.write_all(b"\n")
}

/// Interned strings.
#[derive(Default)]
struct Strings<'a> {
    ids: FxHashMap<Cow<'a, str>, u32>,
    all: Vec<Cow<'a, str>>,
}

impl<'a> Strings<'a> {
    fn id(&mut self, text: impl Into<Cow<'a, str>>) -> u32 {
        let text = text.into();
        let Strings { ids, all } = self;
        *ids.entry(text).or_insert_with_key(|text| {
            all.push(text.clone());
            (all.len() - 1) as u32
        })
    }
}

/// A row of the profiler's table of functions.
struct Function {
    name: u32,
    resource: i64,
    source: Option<u32>,
}

/// The contents of the shared tables, which refer to each other by index.
struct Tables<'a> {
    strings: Strings<'a>,
    functions: Functions,
    function_rows: Vec<Function>,
    /// Names of source files.
    sources: Vec<u32>,
    /// Names of modules.
    modules: Vec<u32>,
    /// Names of windows and marks.
    windows: Vec<u32>,
    marks: Vec<u32>,
}

impl<'a> Tables<'a> {
    fn of(process: &'a Process) -> Tables<'a> {
        let mut strings = Strings::default();
        let functions = Functions::of(process);
        let mut of_file: FxHashMap<&str, u32> = FxHashMap::default();
        let mut sources = Vec::new();
        let mut function_rows = Vec::with_capacity(functions.len());
        for id in 0..functions.len() as u32 {
            let frame_id = functions.first_frame(FunctionId(id));
            let frame = &process.tables.frames[frame_id.0 as usize];
            let source = frame.file.as_deref().map(|file| {
                *of_file.entry(file).or_insert_with(|| {
                    sources.push(strings.id(file));
                    (sources.len() - 1) as u32
                })
            });
            let name = strings.id(process.label(frame_id));
            let resource = frame.module.map_or(-1, |module| i64::from(module.0));
            function_rows.push(Function { name, resource, source });
        }
        let modules = process.tables.modules.iter().map(|m| strings.id(m.file_name())).collect();
        let windows = process.time.windows.iter().map(|w| strings.id(&*w.name)).collect();
        let marks = process.time.marks.iter().map(|m| strings.id(mark_says(m))).collect();
        Tables { strings, functions, function_rows, sources, modules, windows, marks }
    }
}

struct Profile<'a> {
    process: &'a Process,
    measure: Measure,
    tables: &'a Tables<'a>,
}

impl Serialize for Profile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Profile { process, tables, .. } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("meta", &self.meta())?;
        map.serialize_entry("libs", &seq(process.tables.modules.iter().map(library)))?;
        map.serialize_entry("pages", &[(); 0])?;
        map.serialize_entry("counters", &tracks::counters(process))?;
        map.serialize_entry("shared", &Shared { process, tables })?;
        let rows = rows_of_lanes(process, self.measure);
        let lanes = rows.iter().zip(0..);
        let threads = lanes.map(|(rows, id)| Thread { profile: self, id: LaneId(id), rows });
        map.serialize_entry("threads", &seq(threads))?;
        map.end()
    }
}

impl Profile<'_> {
    fn meta(&self) -> Value {
        let Profile { process, measure, .. } = self;
        let mut lanes: Vec<usize> = (0..process.tables.lanes.len()).collect();
        let value = |lane: usize| measure.of(&process.tables.lanes[lane].measures);
        lanes.sort_by_key(|&lane| std::cmp::Reverse(value(lane)));
        lanes.truncate(SHOWN);
        let largest = lanes.iter().take(1);
        json!({
            "product": process.identity.name(),
            "importedFrom": format!("heaptide {}", env!("CARGO_PKG_VERSION")),
            "arguments": command_line(process, usize::MAX),
            "interval": 1.0,
            "startTime": process.lifetime.start_realtime_ns as f64 / 1e6,
            "profilingStartTime": 0.0,
            "profilingEndTime": process.lifetime.duration_ns as f64 / 1e6,
            "version": 30,
            "preprocessedProfileVersion": VERSION,
            "processType": 0,
            "stackwalk": 1,
            "symbolicated": true,
            "platform": "Linux",
            "categories": [
                {"name": "Function", "color": "grey", "subcategories": ["Other"]},
                {"name": "Scope", "color": "green", "subcategories": ["Other"]},
            ],
            "markerSchema": tracks::schemas(),
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "keepProfileThreadOrder": true,
            "initialSelectedThreads": seq(largest),
            "initialVisibleThreads": lanes,
            "extra": [self.extra()],
        })
    }

    /// Returns the description of the profile as a whole.
    fn extra(&self) -> Value {
        let process = self.process;
        let entry = |label: &str, format: &str, value: Value| json!({"label": label, "format": format, "value": value});
        let mut entries = vec![
            entry("samples", "string", self.measure.name().into()),
            entry("processes", "string", process.who().into()),
            entry("host", "string", (&*process.identity.host).into()),
        ];
        entries.extend(
            process.completeness.part.as_deref().map(|part| entry("part", "string", part.into())),
        );
        entries.extend(sampling_says(process).map(|s| entry("sampled", "string", s.into())));
        for measure in Measure::all() {
            let format = if measure.is_bytes() { "bytes" } else { "integer" };
            entries.push(entry(measure.name(), format, measure.of(&process.totals).into()));
        }
        json!({"label": "Heaptide", "entries": entries})
    }
}

fn library(module: &Module) -> Value {
    let name = module.file_name();
    json!({
        "arch": "x86_64", "name": name, "path": module.path,
        "debugName": name, "debugPath": module.path,
        "breakpadId": breakpad_id(&module.build_id),
        "codeId": (!module.build_id.is_empty()).then(|| hex(&module.build_id)),
    })
}

/// Returns the first half of a build-id as the GUID under which symbol servers store a file. The
/// numbers in it are little-endian.
fn breakpad_id(build_id: &[u8]) -> String {
    let mut guid = [0u8; 16];
    guid.iter_mut().zip(build_id).for_each(|(to, &from)| *to = from);
    [0..4, 4..6, 6..8].into_iter().for_each(|number| guid[number].reverse());
    hex(&guid).to_uppercase() + "0"
}

/// The tables that threads share, serialized.
struct Shared<'a> {
    process: &'a Process,
    tables: &'a Tables<'a>,
}

impl Serialize for Shared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Shared { process, tables } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("stringArray", &tables.strings.all)?;
        map.serialize_entry("stackTable", &StackTable(process))?;
        map.serialize_entry("frameTable", &FrameTable(self))?;
        map.serialize_entry("funcTable", &FunctionTable(&tables.function_rows))?;
        let none = |length: usize| vec![Value::Null; length];
        let modules = tables.modules.len();
        map.serialize_entry(
            "resourceTable",
            &json!({
                "length": modules, "lib": seq(0..modules), "name": tables.modules,
                "host": none(modules), "type": vec![LIBRARY; modules],
            }),
        )?;
        map.serialize_entry(
            "nativeSymbols",
            &json!({"length": 0, "libIndex": [], "address": [], "name": [], "functionSize": []}),
        )?;
        let sources = tables.sources.len();
        map.serialize_entry(
            "sources",
            &json!({
                "length": sources, "id": none(sources), "filename": tables.sources,
                "startLine": vec![1; sources], "startColumn": vec![1; sources],
                "sourceMapURL": none(sources),
            }),
        )?;
        map.end()
    }
}

/// Heaptide's stacks without their root.
struct StackTable<'a>(&'a Process);

impl Serialize for StackTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nodes = || self.0.tables.stacks.iter().skip(1);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("length", &nodes().count())?;
        map.serialize_entry("frame", &seq(nodes().map(|node| node.frame.0)))?;
        map.serialize_entry("prefix", &seq(nodes().map(|node| stack_index(node.parent))))?;
        map.end()
    }
}

/// Returns the index of a stack in the profiler's table, which has no root.
fn stack_index(stack: StackId) -> Option<u32> {
    stack.0.checked_sub(1)
}

struct FrameTable<'a>(&'a Shared<'a>);

impl Serialize for FrameTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Shared { process, tables } = self.0;
        let frames = || process.tables.frames.iter();
        let address = |frame: &Frame| frame.module.map_or(-1.0, |_| frame.offset as f64);
        let ids = (0..process.tables.frames.len() as u32).map(heaptide_analysis::model::FrameId);
        let none = || seq(frames().map(|_| Value::Null));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("length", &process.tables.frames.len())?;
        map.serialize_entry("address", &seq(frames().map(address)))?;
        map.serialize_entry("inlineDepth", &seq(frames().map(|f| u32::from(f.inlined))))?;
        map.serialize_entry("category", &seq(frames().map(|f| u32::from(f.is_scope()))))?;
        map.serialize_entry("subcategory", &seq(frames().map(|_| 0)))?;
        map.serialize_entry("func", &seq(ids.map(|id| tables.functions.of_frame(id).0)))?;
        map.serialize_entry("nativeSymbol", &none())?;
        map.serialize_entry("innerWindowID", &none())?;
        map.serialize_entry("line", &seq(frames().map(|f| f.line)))?;
        map.serialize_entry("column", &none())?;
        map.end()
    }
}

struct FunctionTable<'a>(&'a [Function]);

impl Serialize for FunctionTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = || self.0.iter();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("length", &self.0.len())?;
        map.serialize_entry("name", &seq(rows().map(|row| row.name)))?;
        map.serialize_entry("isJS", &seq(rows().map(|_| false)))?;
        map.serialize_entry("relevantForJS", &seq(rows().map(|_| false)))?;
        map.serialize_entry("resource", &seq(rows().map(|row| row.resource)))?;
        map.serialize_entry("source", &seq(rows().map(|row| row.source)))?;
        map.serialize_entry("lineNumber", &seq(rows().map(|_| Value::Null)))?;
        map.serialize_entry("columnNumber", &seq(rows().map(|_| Value::Null)))?;
        map.end()
    }
}

/// The allocations of a lane on one stack, summed over scopes and labels.
struct Row {
    stack: StackId,
    /// Value of the metric.
    value: u64,
    usable_bytes: u64,
    live_bytes: u64,
}

/// Returns the rows of each lane, ordered by stack.
fn rows_of_lanes(process: &Process, measure: Measure) -> Vec<Vec<Row>> {
    let mut rows: Vec<Vec<Row>> = process.tables.lanes.iter().map(|_| Vec::new()).collect();
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|site| (site.lane, site.stack));
    for of_one in sites.chunk_by(|a, b| (a.lane, a.stack) == (b.lane, b.stack)) {
        let sum = Sum::over(of_one.iter().copied());
        let Measures { usable_bytes, live_bytes, .. } = sum;
        let Site { lane, stack, .. } = *of_one[0];
        let row = Row { stack, value: measure.of(&sum), usable_bytes, live_bytes };
        rows[lane.0 as usize].push(row);
    }
    rows
}

/// A lane. The first one also has the windows of the process, and marks from outside.
struct Thread<'a> {
    profile: &'a Profile<'a>,
    id: LaneId,
    rows: &'a [Row],
}

impl Serialize for Thread<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Profile { process, tables, .. } = self.profile;
        let lane = &process.tables.lanes[self.id.0 as usize];
        let end = process.lifetime.duration_ns as f64 / 1e6;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &lane.name)?;
        map.serialize_entry("processName", process.identity.name())?;
        map.serialize_entry("isMainThread", &(self.id == LaneId(0)))?;
        map.serialize_entry("processType", "default")?;
        map.serialize_entry("pid", &process.identity.pid.to_string())?;
        map.serialize_entry("tid", &(self.id.0 + 1))?;
        map.serialize_entry("processStartupTime", &0.0)?;
        map.serialize_entry("processShutdownTime", &end)?;
        map.serialize_entry("registerTime", &0.0)?;
        map.serialize_entry("unregisterTime", &end)?;
        map.serialize_entry("pausedRanges", &[(); 0])?;
        map.serialize_entry("showMarkersInTimeline", &true)?;
        map.serialize_entry("samples", &Samples(self))?;
        map.serialize_entry("nativeAllocations", &Allocations(self))?;
        let markers = tracks::markers(process, self.id, &tables.windows, &tables.marks);
        map.serialize_entry("markers", &markers)?;
        map.end()
    }
}

/// The metric as weighted samples, at the time to which it refers.
struct Samples<'a>(&'a Thread<'a>);

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Profile { process, measure, .. } = self.0.profile;
        let time = match measure {
            Measure::AtPeakBytes | Measure::AtPeakBlocks => process.peak_time_ns,
            Measure::LiveBytes | Measure::LiveBlocks => process.lifetime.duration_ns,
            _ => 0,
        };
        let rows = || self.0.rows.iter().filter(|row| row.value > 0);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("length", &rows().count())?;
        map.serialize_entry("stack", &seq(rows().map(|row| stack_index(row.stack))))?;
        map.serialize_entry("time", &seq(rows().map(|_| time as f64 / 1e6)))?;
        map.serialize_entry("weight", &seq(rows().map(|row| row.value)))?;
        let kind = if measure.is_bytes() { "bytes" } else { "samples" };
        map.serialize_entry("weightType", kind)?;
        map.end()
    }
}

/// Allocations and frees, all at time 0 because their times are unknown. Each row has two synthetic
/// addresses: one for its freed bytes, one for its live bytes.
struct Allocations<'a>(&'a Thread<'a>);

impl Serialize for Allocations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Thread { id, rows, .. } = self.0;
        let rows = || {
            let numbered = rows.iter().zip(1u64..);
            let freed = numbered.clone().map(|(row, number)| {
                let bytes = row.usable_bytes.saturating_sub(row.live_bytes);
                (row.stack, bytes as i64, 2 * number)
            });
            let kept =
                numbered.map(|(row, number)| (row.stack, row.live_bytes as i64, 2 * number + 1));
            let frees = freed.clone().map(|(stack, bytes, address)| (stack, -bytes, address));
            kept.chain(freed).chain(frees).filter(|row| row.1 != 0)
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("length", &rows().count())?;
        map.serialize_entry("stack", &seq(rows().map(|row| stack_index(row.0))))?;
        map.serialize_entry("time", &seq(rows().map(|_| 0.0)))?;
        map.serialize_entry("weight", &seq(rows().map(|row| row.1)))?;
        map.serialize_entry("weightType", "bytes")?;
        map.serialize_entry("memoryAddress", &seq(rows().map(|row| row.2)))?;
        map.serialize_entry("threadId", &seq(rows().map(|_| id.0 + 1)))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three numbers of a GUID are little-endian.
    #[test]
    fn a_build_id_as_symbol_servers_have_it() {
        let build_id: Vec<u8> = (0x01..=0x14).collect();
        assert_eq!(breakpad_id(&build_id), "0403020106050807090A0B0C0D0E0F100");
        assert_eq!(breakpad_id(&[]), "0".repeat(33));
    }
}
