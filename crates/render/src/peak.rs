//! What was live when most was live: the moment, and who held it by function, scope, label, lane.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{
    LabelId, Measure, Measures, Mode, Process, Recording, ScopeId, Site, SiteKind,
};
use heaptide_analysis::views::aggregate::{Functions, GroupBy, Key, group};
use heaptide_analysis::views::peak::Moment;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::frames;
use crate::hotspots::{Charges, Hotspot};
use crate::json::{FrameEntry, FrameNumbers, SiteEntry};
use crate::json_named::{MarkEntry, WindowEntry, serialize_scope};
use crate::json_view;
use crate::named::{in_totals, kind_name, mark_says};
use crate::names::elide_middle;
use crate::quantity::{bytes, count, counted, duration, percent, seconds, short_count};
use crate::scopes;
use crate::sections;
use crate::text::{caption, live_name};

/// Rows of a section unless another number is asked for.
const ROWS: usize = 10;
/// Characters of a name.
const NAME: usize = 64;

/// Writes the page of one process, `top` rows a section.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, top: Option<usize>) -> io::Result<()> {
    let (t, rows) = (&process.totals, top.unwrap_or(ROWS));
    caption(out, process)?;
    let exact = match process.completeness.peak_bound_bytes {
        0 => String::new(),
        bound => format!(", exact within {}", bytes(bound)),
    };
    let blocks = match t.at_peak_blocks {
        0 => String::new(),
        n => format!(" in {}", counted(n, "block")),
    };
    writeln!(out, "peak {}: {} bytes{blocks}{exact}", bytes(t.peak_bytes), count(t.peak_bytes))?;
    moment(out, process)?;
    if process.mode == Mode::Counters {
        return writeln!(out, "\nRecorded with --mode counters: no breakdown by function");
    }
    if process.mode == Mode::Stacks {
        writeln!(out, "\nBy function")?;
        let (measure, second) = (Measure::AtPeakBytes, Measure::AtPeakBlocks);
        sections::section(out, process, &Charges::of(process), measure, second, rows)?;
    }
    let whole = t.at_peak_bytes;
    if process.tables.scopes.len() > 1 {
        let name = |row: &Row<ScopeId>| scopes::path(process, row.key, NAME);
        table(out, "scope", &by_scope(process), whole, rows, name)?;
    }
    if !process.tables.labels.is_empty() {
        table(out, "label", &by_label(process), whole, rows, |row| label_name(process, row.key))?;
    }
    if process.tables.lanes.len() > 1 {
        let name = |row: &Row<usize>| elide_middle(&process.tables.lanes[row.key].name, NAME);
        table(out, "thread", &by_lane(process), whole, rows, name)?;
    }
    Ok(())
}

fn moment(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    let found = Moment::of(process);
    let mut row = |name: &str, value: String| writeln!(out, "  {name:<16} {value}");
    let (live, left) = (bytes(t.live_bytes), percent(t.live_bytes, t.peak_bytes));
    // The peaks of joined processes are not of one moment.
    for (name, value) in going_on(process, &found).iter().filter(|_| process.identity.images == 1) {
        row(name, value.clone())?;
    }
    row(live_name(process), format!("{live}, {left} of the peak"))?;
    if found.slack.known_bytes > 0 {
        let (slack, known) = (found.slack.bytes, found.slack.known_bytes);
        let (part, of) = (percent(slack, known), percent(known, t.at_peak_bytes));
        let slack = bytes(slack);
        row("slack", format!("{slack}, {part} of blocks of known size ({of} of the peak)"))?;
    }
    if found.kinds.iter().any(|(kind, _)| *kind != SiteKind::Heap) {
        let says = |(kind, n): &(SiteKind, u64)| format!("{} {}", bytes(*n), kind_name(*kind));
        let (inside, outside): (Vec<_>, Vec<_>) = found.kinds.iter().partition(|k| in_totals(k.0));
        let list = |kinds: Vec<&(SiteKind, u64)>| {
            kinds.into_iter().map(says).collect::<Vec<_>>().join(", ")
        };
        row("memory", list(inside))?;
        if !outside.is_empty() {
            row("besides", list(outside))?;
        }
    }
    Ok(())
}

/// When it was, and what was going on then: rows of name and text.
fn going_on(process: &Process, found: &Moment) -> Vec<(&'static str, String)> {
    let at = process.peak_time_ns;
    let (after, share) = (duration(at), percent(at, process.lifetime.duration_ns));
    let mut rows = vec![("when", format!("{after} after the start, {share} of the run"))];
    if let Some((resident, time)) = found.resident {
        let (resident, apart) = (bytes(resident), duration(time.abs_diff(at)));
        let side = if time <= at { "before" } else { "after" };
        rows.push(("resident", format!("{resident}, sampled {apart} {side}")));
    }
    for window in &found.windows {
        let (name, since) = (elide_middle(&window.name, NAME), at - window.begin_time_ns);
        rows.push(("window", format!("{name}, open for {}", duration(since))));
    }
    for (mark, side) in [(found.before, "before"), (found.after, "after")] {
        let Some(mark) = mark else { continue };
        let apart = duration(mark.time_ns.abs_diff(at));
        rows.push(("mark", format!("{}, {apart} {side}", mark_says(mark))));
    }
    rows
}

/// What something held at the peak.
struct Row<K> {
    key: K,
    bytes: u64,
    blocks: u64,
    /// Whether it is part of the peak.
    counts: bool,
}

impl<K> Row<K> {
    fn of(key: K, m: &Measures) -> Row<K> {
        Row { key, bytes: m.at_peak_bytes, blocks: m.at_peak_blocks, counts: true }
    }
}

/// Those that held something, most first.
fn ordered<K>(rows: impl Iterator<Item = Row<K>>) -> Vec<Row<K>> {
    let mut rows: Vec<Row<K>> = rows.filter(|row| row.bytes > 0 || row.blocks > 0).collect();
    rows.sort_by_key(|row| Reverse((row.bytes, row.blocks)));
    rows
}

fn by_scope(process: &Process) -> Vec<Row<ScopeId>> {
    let groups = group(process, &Functions::of(process), GroupBy::Scope).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Scope(id) => Some(Row::of(id, &g.own)),
        _ => None,
    }))
}

type Labelled = (Option<LabelId>, SiteKind);

fn by_label(process: &Process) -> Vec<Row<Labelled>> {
    let groups = group(process, &Functions::of(process), GroupBy::Label).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Label(label, kind) => {
            Some(Row { counts: in_totals(kind), ..Row::of((label, kind), &g.own) })
        }
        _ => None,
    }))
}

fn label_name(process: &Process, (label, kind): Labelled) -> String {
    let name = label.map_or("(no label)", |id| &process.tables.labels[id.0 as usize].name);
    match kind {
        SiteKind::Heap => elide_middle(name, NAME),
        kind => format!("{}  ({})", elide_middle(name, NAME), kind_name(kind)),
    }
}

fn by_lane(process: &Process) -> Vec<Row<usize>> {
    ordered(process.tables.lanes.iter().enumerate().map(|(i, lane)| Row::of(i, &lane.measures)))
}

fn table<K>(
    out: &mut dyn Write,
    what: &str,
    found: &[Row<K>],
    whole: u64,
    rows: usize,
    name: impl Fn(&Row<K>) -> String,
) -> io::Result<()> {
    writeln!(out, "\nBy {what}")?;
    writeln!(out, "  {:>6} {:>10} {:>10}  {what}", "share", "bytes", "blocks")?;
    for row in found.iter().take(rows) {
        let share = if row.counts { percent(row.bytes, whole) } else { "-".to_owned() };
        let (held, blocks) = (bytes(row.bytes), short_count(row.blocks));
        writeln!(out, "  {share:>6} {held:>10} {blocks:>10}  {}", name(row))?;
    }
    match found.len().saturating_sub(rows) {
        0 => Ok(()),
        n => writeln!(out, "  {n} more; --top {} shows all", found.len()),
    }
}

/// Writes the peaks of the chosen processes as JSON; of each at most `top` sites and functions.
///
/// Errors: those of `out`.
pub fn json(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    top: Option<usize>,
) -> io::Result<()> {
    json_view::write(out, recording, pid, |process| PeakEntry { process, top })
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
    /// Who held it.
    fn serialize_rows<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (process, top) = (self.process, self.top.unwrap_or(usize::MAX));
        let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
        sites.retain(|site| site.measures.at_peak_bytes > 0 || site.measures.at_peak_blocks > 0);
        sites.sort_by_key(|s| {
            (Reverse(s.measures.at_peak_bytes), s.stack, s.scope, s.label, s.lane)
        });
        sites.truncate(top);
        let mut functions = Charges::of(process).hotspots(Measure::AtPeakBytes);
        functions.truncate(top);
        let stacks = sites.iter().map(|site| site.stack);
        let of_functions = functions.iter().map(|hotspot| hotspot.stacks[0].0);
        let numbers = FrameNumbers::of_stacks(process, stacks.chain(of_functions));
        let function = |hotspot: &Hotspot| FunctionEntry::of(process, hotspot);
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
        let site = |site| SiteEntry { process, site, numbers: &numbers };
        map.serialize_entry("sites", &sites.into_iter().map(site).collect::<Vec<_>>())
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
}

impl FunctionEntry<'_> {
    fn of<'a>(process: &'a Process, hotspot: &Hotspot) -> FunctionEntry<'a> {
        let frame = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]);
        FunctionEntry {
            function: frame.and_then(|frame| frame.function.as_deref()),
            module: frame.map_or("", |frame| frames::module_name(process, frame)),
            file: frame.and_then(|frame| frame.file.as_deref()),
            stacks: hotspot.stacks.len(),
            at_peak_blocks: hotspot.measures.at_peak_blocks,
            at_peak_bytes: hotspot.measures.at_peak_bytes,
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
        map.serialize_entry("at_peak_blocks", &self.row.blocks)?;
        map.serialize_entry("at_peak_bytes", &self.row.bytes)?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct LabelEntry<'a> {
    label: Option<&'a str>,
    kind: &'static str,
    at_peak_blocks: u64,
    at_peak_bytes: u64,
}

impl LabelEntry<'_> {
    fn of<'a>(process: &'a Process, row: &Row<Labelled>) -> LabelEntry<'a> {
        LabelEntry {
            label: row.key.0.map(|id| &*process.tables.labels[id.0 as usize].name),
            kind: row.key.1.name(),
            at_peak_blocks: row.blocks,
            at_peak_bytes: row.bytes,
        }
    }
}

#[derive(serde::Serialize)]
struct LaneEntry<'a> {
    lane: &'a str,
    at_peak_blocks: u64,
    at_peak_bytes: u64,
}

impl LaneEntry<'_> {
    fn of<'a>(process: &'a Process, row: &Row<usize>) -> LaneEntry<'a> {
        let lane = &process.tables.lanes[row.key].name;
        LaneEntry { lane, at_peak_blocks: row.blocks, at_peak_bytes: row.bytes }
    }
}
