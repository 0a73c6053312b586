//! Annotations by the program as text: tables of scopes, labels, windows, marks, pools.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{Mark, Measure, Process, ScopeId, Window};
use heaptide_analysis::views::aggregate::{Key, by_label, by_scope};

use crate::shared::annotations::{in_totals, kind_name, mark_says, shapes_say};
use crate::shared::names::elide_middle;
use crate::shared::quantity::{counted, duration, percent};
use crate::shared::scope_path::scope_path;
use crate::text::columns::{Columns, last, left, right};
use crate::text::estimates;
use crate::text::screen::{Screen, Style};

/// Characters of a path or a name.
const NAME: usize = 60;
/// Minimum characters of a name that is followed by other text.
const NAME_LEAST: usize = 20;

/// Writes scope paths sorted by a metric, largest first. Returns their number.
pub(crate) fn scope_rows(
    out: &mut Screen,
    process: &Process,
    measure: Measure,
    rows: usize,
) -> io::Result<usize> {
    let groups = by_scope(process);
    let whole = measure.of(&process.totals);
    let is_whole = process.completeness.part.is_none();
    let mut shown = groups;
    shown.retain(|g| match g.key {
        Key::Scope(ScopeId(0)) => measure.of(&g.own) > 0,
        // For a part of a recording, scopes without values in it are omitted.
        Key::Scope(id) if is_whole => {
            process.tables.scopes[id.0 as usize].entered > 0 || measure.of(&g.inclusive) > 0
        }
        _ => measure.of(&g.inclusive) > 0,
    });
    // The scope that allocates is more informative than its parents, so own values are compared
    // first.
    shown.sort_by_key(|g| Reverse((measure.of(&g.own), measure.of(&g.inclusive))));
    let columns = Columns([
        right(6, "share"),
        right(10, "itself"),
        estimates::column(process, measure),
        right(10, "inclusive"),
        right(9, "entered").optional(),
        right(9, "allocs"),
        right(10, "live").optional(),
        // In sampled recordings, frees are counted only per thread.
        right(10, "freed here").optional().if_known(process.sampling.is_none()),
        last("scope"),
    ]);
    columns.heading(out)?;
    for g in shown.iter().take(rows) {
        let Key::Scope(id) = g.key else { continue };
        let (own, inclusive) = (measure.of(&g.own), measure.of(&g.inclusive));
        let entered = process.tables.scopes[id.0 as usize].entered;
        // "No scope" has no number of entries, and its inclusive value would be everything.
        let (entered, inclusive) = match id {
            ScopeId(0) => (String::new(), String::new()),
            _ => (out.count(entered), out.amount(measure, inclusive)),
        };
        let cells = [
            percent(own, whole),
            out.amount(measure, own),
            estimates::cell(out, process, measure, &g.own),
            inclusive,
            entered,
            out.count(g.own.allocations),
            out.bytes(g.own.live_bytes),
            out.bytes(g.own.freed_here_bytes),
            scope_path(process, id, out.fit(NAME)),
        ];
        columns.row(out, cells)?;
    }
    Ok(shown.len())
}

/// Writes labels, and pools if requested, sorted by a metric, largest first. Returns their number.
pub(crate) fn label_rows(
    out: &mut Screen,
    process: &Process,
    measure: Measure,
    rows: usize,
    pools: bool,
) -> io::Result<usize> {
    let mut groups = by_label(process);
    groups.retain(|g| match g.key {
        Key::Label(Some(id), _) => pools || !process.tables.labels[id.0 as usize].pool,
        _ => false,
    });
    groups.sort_by_key(|g| (Reverse(measure.of(&g.own)), Reverse(g.own.allocations), g.key));
    let whole = measure.of(&process.totals);
    let columns = Columns([
        right(6, "share"),
        right(10, if measure.is_bytes() { "bytes" } else { "value" }),
        estimates::column(process, measure),
        right(9, "blocks"),
        right(9, "live").optional(),
        right(10, "live bytes"),
        right(10, "at peak").optional(),
        left(18, "kind").optional(),
        last("label"),
    ]);
    columns.heading(out)?;
    let shapes = process.shapes_by_label();
    for g in groups.iter().take(rows) {
        let Key::Label(Some(id), kind) = g.key else { continue };
        let value = measure.of(&g.own);
        let share = if in_totals(kind) { percent(value, whole) } else { "-".to_owned() };
        let shapes = shapes_say(&shapes[id.0 as usize]);
        let cells = [
            share,
            out.amount(measure, value),
            estimates::cell(out, process, measure, &g.own),
            out.count(g.own.allocations),
            out.count(g.own.live_blocks),
            out.bytes(g.own.live_bytes),
            out.bytes(g.own.at_peak_bytes),
            kind_name(kind).to_owned(),
            label_with_shapes(out, &process.tables.labels[id.0 as usize].name, &shapes),
        ];
        columns.row(out, cells)?;
    }
    Ok(groups.len())
}

/// Returns the name of a label with the shapes of its memory.
fn label_with_shapes(out: &Screen, name: &str, shapes: &str) -> String {
    let room = out.fit(NAME).saturating_sub(shapes.len()).max(NAME_LEAST);
    let name = elide_middle(name, room);
    if shapes.is_empty() { name } else { format!("{name}  {shapes}") }
}

/// Writes the short sections of the page that are not empty.
pub(crate) fn sections(
    out: &mut Screen,
    process: &Process,
    sort: Option<Measure>,
    rows: usize,
) -> io::Result<()> {
    let measure = sort.unwrap_or(Measure::AtPeakBytes).of_sites();
    if process.tables.scopes.len() > 1 {
        // Many scopes free all that they allocate before the peak, so peak values would be 0.
        let measure = sort.map_or(Measure::UsableBytes, Measure::of_sites);
        writeln!(out, "\n{}", Style::Heading.of(format!("Scopes: {}", measure.name())))?;
        let found = scope_rows(out, process, measure, rows)?;
        more(out, found, rows, "--by scope, or heaptide tree --scopes, shows all")?;
    }
    let pools = pools(process);
    if process.tables.labels.iter().any(|label| !label.pool) {
        writeln!(out, "\n{}", Style::Heading.of(format!("Labels: {}", measure.name())))?;
        let found = label_rows(out, process, measure, rows, false)?;
        more(out, found, rows, "--by label shows all")?;
    }
    if !pools.is_empty() {
        writeln!(out, "\n{}", Style::Heading.of("Pools"))?;
        pool_rows(out, &pools, rows)?;
        more(out, pools.len(), rows, "--by label shows all")?;
    }
    if !process.time.windows.is_empty() {
        writeln!(out, "\n{}", Style::Heading.of("Windows"))?;
        windows(out, &process.time.windows, rows)?;
    }
    if !process.time.marks.is_empty() {
        writeln!(out, "\n{}", Style::Heading.of("Marks"))?;
        marks(out, &process.time.marks, 2 * rows)?;
    }
    Ok(())
}

fn more(out: &mut Screen, found: usize, shown: usize, how: &str) -> io::Result<()> {
    match found.saturating_sub(shown) {
        0 => Ok(()),
        n => writeln!(out, "  {n} more; {how}"),
    }
}

/// A pool: its name, its bytes at peak and at the end, and its blocks at the end.
struct Pool<'a> {
    name: &'a str,
    at_peak: InUse,
    at_end: InUse,
    blocks: u64,
}

/// Bytes that a pool hands out, and those of its chunks that it does not.
#[derive(Clone, Copy, Default)]
struct InUse {
    in_use: u64,
    idle: u64,
}

impl InUse {
    fn whole(self) -> u64 {
        self.in_use.saturating_add(self.idle)
    }
}

fn pools(process: &Process) -> Vec<Pool<'_>> {
    let mut pools: Vec<Pool> = Vec::new();
    let groups = by_label(process);
    let of_pools = groups.iter().filter_map(|group| match group.key {
        Key::Label(Some(id), kind) => {
            Some((&*process.tables.labels[id.0 as usize].name, kind, &group.own))
        }
        _ => None,
    });
    let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
    for (name, _, own) in of_pools.clone().filter(|(_, kind, _)| kind.is_pool_chunk()) {
        let known = pools.iter().position(|pool| pool.name == name).unwrap_or_else(|| {
            let (at_peak, at_end) = (InUse::default(), InUse::default());
            pools.push(Pool { name, at_peak, at_end, blocks: 0 });
            pools.len() - 1
        });
        add(&mut pools[known].at_peak.idle, own.at_peak_bytes);
        add(&mut pools[known].at_end.idle, own.live_bytes);
    }
    for (name, _, own) in of_pools.filter(|(_, kind, _)| kind.is_pool_block()) {
        let Some(pool) = pools.iter_mut().find(|pool| pool.name == name) else { continue };
        add(&mut pool.at_peak.in_use, own.at_peak_bytes);
        add(&mut pool.at_end.in_use, own.live_bytes);
        add(&mut pool.blocks, own.live_blocks);
    }
    pools.sort_by_key(|pool| Reverse((pool.at_peak.whole(), pool.at_end.whole())));
    pools
}

fn pool_rows(out: &mut Screen, pools: &[Pool], rows: usize) -> io::Result<()> {
    let columns = Columns([
        right(10, "at peak"),
        right(10, "in use"),
        right(6, "idle"),
        right(10, "at end"),
        right(10, "in use"),
        right(6, "idle"),
        right(9, "blocks").optional(),
        last("pool"),
    ]);
    columns.heading(out)?;
    for Pool { name, at_peak, at_end, blocks } in pools.iter().take(rows) {
        let cells = [
            out.bytes(at_peak.whole()),
            out.bytes(at_peak.in_use),
            percent(at_peak.idle, at_peak.whole()),
            out.bytes(at_end.whole()),
            out.bytes(at_end.in_use),
            percent(at_end.idle, at_end.whole()),
            out.count(*blocks),
            elide_middle(name, out.fit(NAME)),
        ];
        columns.row(out, cells)?;
    }
    Ok(())
}

/// Writes the windows with the highest peaks, in order of time.
fn windows(out: &mut Screen, windows: &[Window], rows: usize) -> io::Result<()> {
    let columns = Columns([
        right(10, "begin"),
        right(10, "lasted"),
        right(10, "requested").optional(),
        right(11, "net").optional(),
        right(10, "peak"),
        right(9, "allocs").optional(),
        right(9, "frees").optional(),
        last("window"),
    ]);
    columns.heading(out)?;
    let mut order: Vec<_> = (0..windows.len()).collect();
    order.sort_by_key(|&i| Reverse(windows[i].peak_bytes));
    order.truncate(rows);
    order.sort_unstable();
    for window in order.iter().map(|&i| &windows[i]) {
        let lasted = if window.open {
            "open".to_owned()
        } else {
            duration(window.end_time_ns.saturating_sub(window.begin_time_ns))
        };
        let net = match window.live_bytes {
            n if n < 0 => format!("-{}", out.bytes(n.unsigned_abs())),
            n => format!("+{}", out.bytes(n.unsigned_abs())),
        };
        let cells = [
            duration(window.begin_time_ns),
            lasted,
            out.bytes(window.requested_bytes),
            net,
            out.bytes(window.peak_bytes),
            out.count(window.allocations),
            out.count(window.frees),
            elide_middle(&window.name, out.fit(NAME)),
        ];
        columns.row(out, cells)?;
    }
    match windows.len().saturating_sub(rows) {
        0 => Ok(()),
        n => writeln!(out, "  {n} more with lower peaks; --top {} shows all", windows.len()),
    }
}

/// Writes the first marks.
fn marks(out: &mut Screen, marks: &[Mark], rows: usize) -> io::Result<()> {
    for mark in marks.iter().take(rows) {
        let live = format!("{} live", out.bytes(mark.live_bytes));
        writeln!(out, "  {:>10} {live:>15}  {}", duration(mark.time_ns), mark_says(mark))?;
    }
    match marks.len().saturating_sub(rows) {
        0 => Ok(()),
        n => writeln!(out, "  {} more; heaptide info shows all", counted(n as u64, "mark")),
    }
}
