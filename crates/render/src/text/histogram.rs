//! Blocks by size: classes of powers of two with bars, then exact sizes as far as known.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::sizes::{Bounds, Class, Exact, Sizes};

use crate::shared::quantity::{bytes, count, counted, percent, size_range};
use crate::shared::views::HistogramView;
use crate::text::caption::caption;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::Screen;

/// Default number of exact sizes.
const ROWS: usize = 20;
/// Length of the longest bar in characters.
const BAR: u64 = 14;

/// Writes the page of one process.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, process: &Process, view: &HistogramView) -> io::Result<()> {
    caption(out, process)?;
    let t = &process.totals;
    let blocks = counted(t.allocations, "block");
    let (requested, given, live) = (t.requested_bytes, t.usable_bytes, t.live_bytes);
    let [requested, given, live] = [requested, given, live].map(bytes);
    writeln!(out, "{blocks}: {requested} requested, {given} given, {live} live\n")?;
    let sizes = Sizes::of(process);
    classes(out, &sizes.classes)?;
    if t.allocations > 0 {
        writeln!(out)?;
        exact(out, process, &sizes, view)?;
    }
    Ok(())
}

/// Writes the classes with a bar for the requested blocks. Counts are exact. Bytes are a range if a
/// class has blocks of unknown size.
fn classes(out: &mut Screen, classes: &[Class]) -> io::Result<()> {
    let most = classes.iter().map(|c| c.counts.requested).max().unwrap_or(0);
    let whole = classes.iter().fold(0u64, |sum, c| sum.saturating_add(c.counts.requested));
    let columns = Columns([
        right(15, "size"),
        right(9, "requested"),
        right(6, "share"),
        right(9, "given").optional(),
        right(9, "freed").optional(),
        right(9, "live"),
        right(19, "bytes requested").optional(),
        last(""),
    ]);
    columns.heading(out)?;
    for class in classes {
        let counts = &class.counts;
        let cells = [
            size_range(counts.size_min, counts.size_max),
            out.count(counts.requested),
            percent(counts.requested, whole),
            out.count(counts.usable),
            out.count(counts.freed),
            class.live.map_or("-".to_owned(), |(blocks, _)| out.count(blocks)),
            between(out, class.requested_bytes),
            bar(counts.requested, most),
        ];
        columns.short_row(out, cells)?;
    }
    Ok(())
}

fn exact(
    out: &mut Screen,
    process: &Process,
    sizes: &Sizes,
    view: &HistogramView,
) -> io::Result<()> {
    let (all, measure) = (process.totals.allocations, view.sort.of_sites());
    let (found, share) = (sizes.exact.len() as u64, percent(sizes.covered(), all));
    let found = format!("{}, most {} first", counted(found, "exact size"), measure.name());
    if sizes.recorded {
        writeln!(out, "{found}: recorded for {share} of the allocations")?
    } else {
        writeln!(out, "{found}: from sites with a single size, {share} of the allocations")?
    }
    let mut rows: Vec<&Exact> = sizes.exact.iter().collect();
    rows.sort_by_key(|row| (Reverse(measure.of(&row.measures)), row.size));
    let shown = view.top.unwrap_or(ROWS).min(rows.len());
    if shown > 0 {
        exact_rows(out, &rows[..shown], measure, all)?;
    }
    if rows.len() > shown {
        writeln!(out, "  {} more; --top {} shows all", rows.len() - shown, rows.len())?;
    }
    if sizes.recorded || sizes.covered() >= all {
        Ok(())
    } else {
        writeln!(out, "  `heaptide run --by-size` records the size of every block")
    }
}

fn exact_rows(out: &mut Screen, rows: &[&Exact], measure: Measure, all: u64) -> io::Result<()> {
    let columns = Columns([
        right(15, "bytes each"),
        right(9, "blocks"),
        right(6, "share"),
        right(9, "bytes"),
        right(9, "freed").optional(),
        right(9, "temporary").optional(),
        right(9, "live").optional(),
        right(9, "live"),
        last(""),
    ]);
    columns.heading(out)?;
    let most = rows.iter().map(|row| measure.of(&row.measures)).max().unwrap_or(0);
    for Exact { size, measures: m } in rows {
        let cells = [
            count(*size),
            out.count(m.allocations),
            percent(m.allocations, all),
            out.bytes(m.requested_bytes),
            out.count(m.frees),
            out.count(m.temporary),
            out.count(m.live_blocks),
            out.bytes(m.live_bytes),
            bar(measure.of(m), most),
        ];
        columns.short_row(out, cells)?;
    }
    Ok(())
}

fn bar(value: u64, most: u64) -> String {
    let length = match value {
        0 => 0,
        n => (u128::from(n) * u128::from(BAR)).div_ceil(u128::from(most.max(1))) as usize,
    };
    "█".repeat(length)
}

/// Formats an exact value as `1.50 MiB`, a range as `1.20 to 1.50 MiB`.
fn between(out: &Screen, bounds: Bounds) -> String {
    let (least, most) = (out.bytes(bounds.least), out.bytes(bounds.most));
    if least == most {
        return most;
    }
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {most}"),
        _ => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::screen::Layout;

    #[test]
    fn what_is_bounded_says_so() {
        let mut out = Vec::new();
        let screen = Screen::new(&mut out, Layout::default());
        let of = |least, most| between(&screen, Bounds { least, most });
        assert_eq!(of(1536, 1536), "1.50 KiB");
        assert_eq!(of(1536, 2048), "1.50 to 2.00 KiB");
        assert_eq!(of(1000, 2048), "1000 B to 2.00 KiB");
        assert_eq!(of(3 << 40, (3 << 40) + 9), "3.00 TiB", "the same to three digits");
    }
}
