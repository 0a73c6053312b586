//! The head of the page's data: facts about the process, its timeline, sizes, and the position of
//! each column.

use std::collections::BTreeMap;

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{Measure, Process, Sample, SizeClass};
use serde::Serialize;

use super::beside::{Beside, SourceTexts};
use super::columns::Column;
use super::findings::Findings;
use super::tables::MEASURES;
use heaptide_analysis::views::memory::{Memory, parts};
use heaptide_analysis::views::owners_over_time::OwnersOverTime;

use crate::shared::annotations::mark_kind;
use crate::shared::command_line::command_line;
use crate::shared::device::device_summary;
use crate::shared::distinct_names::Labels;
use crate::shared::heading::{ended, sampling_says};
use crate::shared::losses::is_significant;
use crate::shared::names::printable;
use crate::shared::quantity::date;
use crate::shared::sentence::sentence;

/// Maximum number of samples in the chart.
const SAMPLES: usize = 1500;
/// Characters of an owner's name in the chart.
const OWNER: usize = 60;
/// Maximum number of windows, and of marks, in the chart.
const MOMENTS: usize = 300;

/// The head as it is serialized.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    version: &'static str,
    title: String,
    /// What holds the memory, as sentences.
    sentence: Option<String>,
    /// Whether the program mapped memory for its own data that the numbers leave out.
    leaves_mappings: bool,
    facts: Vec<(&'static str, String)>,
    mode: &'static str,
    /// Whether the process has a trace.
    traced: bool,
    sampled: bool,
    /// Notes about incomplete data.
    warnings: Vec<String>,
    /// Losses that are an insignificant part of the data.
    small_losses: Vec<String>,
    totals: BTreeMap<&'static str, u64>,
    duration_ns: u64,
    peak_time_ns: u64,
    timeline: Timeline,
    memory: MemoryOverTime,
    windows: Vec<Window>,
    marks: Vec<Mark>,
    measures: Vec<Shown>,
    /// Name of the metric that is displayed first.
    first: &'static str,
    sizes: Vec<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<OwnersChart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a Findings>,
    /// Which process of the recording it is, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<&'a SourceTexts>,
    columns: Vec<Column>,
}

/// Live bytes over time by owner.
#[derive(Serialize)]
pub(super) struct OwnersChart {
    time_ns: Vec<u64>,
    owners: Vec<Owner>,
}

#[derive(Serialize)]
struct Owner {
    name: String,
    /// Index of the function in the tables; none for several functions.
    function: Option<u32>,
    /// Bytes at each time.
    values: Vec<u64>,
}

impl OwnersChart {
    pub(super) fn of(process: &Process, over_time: &OwnersOverTime) -> OwnersChart {
        let functions = Functions::of(process);
        let shown = over_time.owners.iter().filter_map(|(of, _)| *of);
        let labels = Labels::of_ids(process, shown.map(|of| functions.first_frame(of)));
        let name = |function: &Option<FunctionId>| match function {
            Some(function) => {
                let frame = functions.first_frame(*function);
                labels.label(&process.tables.frames[frame.0 as usize], OWNER)
            }
            None => "(no stack)".to_owned(),
        };
        let owners = over_time.owners.iter();
        let owners = owners.map(|(of, values)| Owner {
            name: name(of),
            function: of.map(|of| of.0),
            values: values.clone(),
        });
        let values = over_time.others.clone();
        let others = Owner { name: "all others".to_owned(), function: None, values };
        OwnersChart {
            time_ns: over_time.times_ns.clone(),
            owners: owners.chain([others]).collect(),
        }
    }
}

/// Blocks of a class of sizes.
#[derive(Serialize)]
struct Size {
    min: u64,
    max: u64,
    requested: u64,
    usable: u64,
    freed: u64,
}

impl Size {
    fn of(&SizeClass { size_min, size_max, requested, usable, freed }: &SizeClass) -> Size {
        Size { min: size_min, max: size_max, requested, usable, freed }
    }
}

/// A metric that can be selected.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    bytes: bool,
    total: u64,
    description: &'static str,
}

#[derive(Serialize, Default)]
struct Timeline {
    time_ns: Vec<u64>,
    live_bytes: Vec<u64>,
    resident_bytes: Vec<u64>,
    allocations: Vec<u64>,
}

/// Resident memory at each account, by part.
#[derive(Serialize)]
struct MemoryOverTime {
    time_ns: Vec<u64>,
    parts: Vec<MemoryPart>,
}

#[derive(Serialize)]
struct MemoryPart {
    name: &'static str,
    /// Resident bytes, by account.
    values: Vec<u64>,
}

#[derive(Serialize)]
struct Window {
    name: String,
    begin_ns: u64,
    end_ns: u64,
    allocations: u64,
    live_bytes: i64,
    peak_bytes: u64,
}

#[derive(Serialize)]
struct Mark {
    name: String,
    time_ns: u64,
    live_bytes: u64,
}

impl<'a> Head<'a> {
    /// Collects the head of a process with these columns.
    pub(super) fn of(
        process: &Process,
        measure: Measure,
        columns: Vec<Column>,
        beside: Option<&'a Beside<'a>>,
    ) -> Head<'a> {
        let over_time = beside.and_then(|beside| beside.traced).map(|traced| traced.over_time);
        let total = |measure: &Measure| (measure.name(), measure.of(&process.totals));
        let shown = MEASURES.map(|measure| Shown {
            name: measure.name(),
            bytes: measure.is_bytes(),
            total: measure.of(&process.totals),
            description: measure.description(),
        });
        Head {
            version: env!("CARGO_PKG_VERSION"),
            title: command_line(process, 160),
            sentence: sentence(process),
            leaves_mappings: process.completeness.leaves_mappings,
            facts: facts(process),
            mode: process.mode.name(),
            traced: process.has_trace(),
            sampled: process.sampling.is_some(),
            warnings: warnings(process),
            small_losses: losses(process, false).collect(),
            totals: Measure::all().iter().map(total).collect(),
            duration_ns: process.lifetime.duration_ns,
            peak_time_ns: process.peak_time_ns,
            timeline: Timeline::of(&process.time.samples),
            memory: MemoryOverTime::of(process),
            windows: windows(process),
            marks: marks(process),
            measures: shown.into(),
            first: measure.of_sites().name(),
            sizes: process.tables.histogram.iter().map(Size::of).collect(),
            owners: over_time.map(|over_time| OwnersChart::of(process, over_time)),
            findings: beside.map(|beside| beside.findings),
            subject: beside.and_then(|beside| beside.subject),
            sources: beside.map(|beside| beside.sources).filter(|sources| !sources.is_empty()),
            columns,
        }
    }
}

fn facts(process: &Process) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("program", printable(&process.identity.name_and_file()).into_owned()),
        ("process", process.who()),
        ("host", printable(&process.identity.host).into_owned()),
        ("started", date(process.lifetime.start_realtime_ns)),
        ("ended", ended(process)),
    ];
    facts.extend(
        process.completeness.part.iter().map(|part| ("counts", printable(part).into_owned())),
    );
    facts.extend(process.completeness.memory.iter().map(|memory| ("memory", memory.clone())));
    let device = device_summary(process);
    facts.extend(device.map(|(peak, says)| ("device", format!("{peak} {says}"))));
    facts.extend(sampling_says(process).map(|says| ("sampled", says)));
    facts
}

fn warnings(process: &Process) -> Vec<String> {
    let notes = process.completeness.notes.iter().map(|note| printable(note).into_owned());
    notes.chain(losses(process, true)).collect()
}

fn losses(process: &Process, significant: bool) -> impl Iterator<Item = String> {
    let allocations = process.totals.allocations;
    let losses = process.completeness.losses.iter().filter(|loss| loss.count > 0);
    losses
        .filter(move |loss| is_significant(loss, allocations) == significant)
        .map(|loss| format!("{}: {}", loss.meaning, loss.count))
}

impl Timeline {
    /// Reduces samples to the resolution of the chart. Of samples that share a column, the one with
    /// the most live bytes is kept.
    fn of(samples: &[Sample]) -> Timeline {
        let mut timeline = Timeline::default();
        for of_column in samples.chunks(samples.len().div_ceil(SAMPLES).max(1)) {
            let highest = of_column.iter().max_by_key(|sample| sample.live_bytes);
            let ends = (samples.len() > SAMPLES).then(|| of_column.last()).flatten();
            let last = ends.filter(|last| highest.is_some_and(|h| h.time_ns < last.time_ns));
            for sample in highest.into_iter().chain(last) {
                timeline.time_ns.push(sample.time_ns);
                timeline.live_bytes.push(sample.live_bytes);
                timeline.resident_bytes.push(sample.resident_bytes);
                timeline.allocations.push(sample.allocations);
            }
        }
        timeline
    }
}

impl MemoryOverTime {
    fn of(process: &Process) -> MemoryOverTime {
        let part = |name| MemoryPart { name, values: Vec::new() };
        let mut memory =
            MemoryOverTime { time_ns: Vec::new(), parts: parts::names().map(part).collect() };
        for moment in Memory::over_time(process) {
            memory.time_ns.push(moment.account.time_ns);
            for (part, bytes) in memory.parts.iter_mut().zip(moment.parts()) {
                part.values.push(bytes);
            }
        }
        // The areas end with the chart, at the end of the process.
        let end_ns = process.lifetime.duration_ns;
        if memory.time_ns.last().is_some_and(|&last| last < end_ns) {
            memory.time_ns.push(end_ns);
            for part in &mut memory.parts {
                part.values.extend(part.values.last().copied());
            }
        }
        memory
    }
}

fn windows(process: &Process) -> Vec<Window> {
    let window = |window: &heaptide_analysis::model::Window| Window {
        name: printable(&window.name).into_owned(),
        begin_ns: window.begin_time_ns,
        end_ns: if window.open { process.lifetime.duration_ns } else { window.end_time_ns },
        allocations: window.allocations,
        live_bytes: window.live_bytes,
        peak_bytes: window.peak_bytes,
    };
    process.time.windows.iter().take(MOMENTS).map(window).collect()
}

fn marks(process: &Process) -> Vec<Mark> {
    let mark = |mark: &heaptide_analysis::model::Mark| Mark {
        name: match (mark_kind(mark.kind), mark.number, &*mark.name) {
            (kind, 0, "") => kind.to_owned(),
            (kind, number, "") => format!("{kind} {number}"),
            (_, _, name) => printable(name).into_owned(),
        },
        time_ns: mark.time_ns,
        live_bytes: mark.live_bytes,
    };
    process.time.marks.iter().take(MOMENTS).map(mark).collect()
}
