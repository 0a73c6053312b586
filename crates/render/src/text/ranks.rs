//! A comparison of ranks, hosts or processes: the distribution of values, the outliers, and the
//! owners that cause them.

use std::io::{self, Write};

use heaptide_analysis::views::ranks::{OwnerSpread, Place, Spread};

use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{self, counted};
use crate::shared::ranks::Ranks;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::Screen;

/// Default number of rows of a table.
const ROWS: usize = 10;
/// Maximum characters of an owner's name.
const NAME: usize = 52;
/// Maximum characters of a rank's name.
const PLACE: usize = 24;

/// Writes the page.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, ranks: &Ranks, top: Option<usize>) -> io::Result<()> {
    let rows = top.unwrap_or(ROWS);
    heading(out, ranks)?;
    spreads(out, ranks)?;
    outlying(out, ranks, rows)?;
    owners(out, ranks, rows)
}

fn heading(out: &mut Screen, ranks: &Ranks) -> io::Result<()> {
    let compared = match ranks.places.len() {
        1 => format!("1 {}", ranks.by.name()),
        count => format!("{} {}", quantity::count(count as u64), ranks.by.plural()),
    };
    let images: u32 = ranks.places.iter().map(|place| place.images).sum();
    let images = counted(images.into(), "process image");
    let recordings = match ranks.recordings {
        1 => String::new(),
        count => format!(" of {}", counted(count as u64, "recording")),
    };
    writeln!(out, "{}: {compared}, {images}{recordings}", printable(&ranks.title))?;
    if ranks.left_out > 0 {
        let left_out = counted(ranks.left_out.into(), "process image");
        writeln!(out, "  {left_out} without a rank omitted")?;
    }
    writeln!(out)
}

/// Writes the metrics of whole places, one per row.
fn spreads(out: &mut Screen, ranks: &Ranks) -> io::Result<()> {
    let columns = Columns([
        right(20, ""),
        right(11, "median").apart(),
        right(11, "lower qu."),
        right(11, "upper qu."),
        right(11, "least").apart(),
        right(11, "most").apart(),
        right(8, "outlying").apart(),
        last("most in"),
    ]);
    columns.heading(out)?;
    for metric in ranks.metrics() {
        let Some(spread) = ranks.spread(|place| metric.of(&place.sums) as f64) else { continue };
        let shown = |value: f64| out.amount(metric, value.round() as u64);
        let value = |at: usize| shown(metric.of(&ranks.places[at].sums) as f64);
        let cells = row(metric.name(), &spread, shown, value, |at| &ranks.places[at]);
        columns.row(out, cells)?;
    }
    let growing: Vec<&Place> = ranks.places.iter().filter(|place| place.growth.is_some()).collect();
    let values: Vec<f64> = growing.iter().filter_map(|place| place.growth).collect();
    if let Some(spread) = Spread::of(&values) {
        let shown = |value: f64| growth(out, value);
        let cells =
            row("growth a minute", &spread, shown, |at| shown(values[at]), |at| growing[at]);
        columns.row(out, cells)?;
    }
    Ok(())
}

/// Returns a row; `value` and `place` map an index to its value and place.
fn row<'a>(
    name: &str,
    spread: &Spread,
    shown: impl Fn(f64) -> String,
    value: impl Fn(usize) -> String,
    place: impl Fn(usize) -> &'a Place,
) -> [String; 8] {
    let [lower, upper] = spread.quartiles.map(&shown);
    let [least, most] = spread.extremes.map(&value);
    let (median, outlying) = (shown(spread.median), spread.outlying.len().to_string());
    let most_in = if least == most {
        "-".to_owned()
    } else {
        elide_middle(&place(spread.extremes[1]).name, PLACE)
    };
    [name.to_owned(), median, lower, upper, least, most, outlying, most_in]
}

/// Formats a growth in bytes per second as bytes per minute.
fn growth(out: &Screen, per_second: f64) -> String {
    let bytes = out.bytes((per_second.abs() * 60.0).round() as u64);
    if per_second.abs() * 60.0 < 0.5 {
        return bytes;
    }
    format!("{}{bytes}", if per_second < 0.0 { '-' } else { '+' })
}

/// Writes the places that are outliers in the metric.
fn outlying(out: &mut Screen, ranks: &Ranks, rows: usize) -> io::Result<()> {
    let (metric, by) = (ranks.metric, ranks.by.name());
    let Some(spread) = ranks.spread(|place| metric.of(&place.sums) as f64) else { return Ok(()) };
    let name = metric.name();
    if spread.outlying.is_empty() {
        return writeln!(out, "\nno {by} stands out by {name}");
    }
    writeln!(out, "\n{} that stand out by {name}\n", ranks.by.plural())?;
    let columns = Columns([
        right(name.len().max(11), name),
        right(9, "of median").apart(),
        right(12, "growth/min").optional(),
        last(by),
    ]);
    columns.heading(out)?;
    for &at in spread.outlying.iter().take(rows) {
        let place = &ranks.places[at];
        let value = metric.of(&place.sums);
        let ratio = ratio(value as f64, spread.median);
        let growth = place.growth.map_or("-".to_owned(), |growth_of| growth(out, growth_of));
        let because = ranks.largest_difference(at).map_or(String::new(), |(owner, difference)| {
            let sign = if difference < 0.0 { '-' } else { '+' };
            let amount = out.amount(metric, difference.abs().round() as u64);
            let owner = elide_middle(&printable(owner), out.fit(NAME) / 2);
            format!("  mostly {sign}{amount} in {owner}")
        });
        let host = if ranks.has_several_hosts() {
            format!(" on {}", printable(&place.host))
        } else {
            String::new()
        };
        let what = format!("{}{host}{because}", printable(&place.name));
        columns.row(out, [out.amount(metric, value), ratio, growth, what])?;
    }
    more(out, spread.outlying.len(), rows)
}

/// Formats the ratio of a value to the median, such as `1.45`; `-` if the median is 0.
fn ratio(value: f64, median: f64) -> String {
    if median > 0.0 { format!("{:.2}", value / median) } else { "-".to_owned() }
}

/// Writes the owners in which places differ.
fn owners(out: &mut Screen, ranks: &Ranks, rows: usize) -> io::Result<()> {
    let metric = ranks.metric.of_sites();
    let differ: Vec<&OwnerSpread> =
        ranks.owners.iter().filter(|owner| owner.above_median > 0.0).collect();
    let name = metric.name();
    if ranks.owners.is_empty() {
        return writeln!(out, "\nno stacks were recorded: owners are not known");
    }
    if differ.is_empty() {
        return writeln!(out, "\nall owners have the same {name} everywhere");
    }
    let all = ranks.by.plural();
    writeln!(out, "\nowners by {name} above the median of {all}\n")?;
    let columns = Columns([
        right(12, "above median"),
        right(11, "median").apart(),
        right(11, "most").apart(),
        right(8, "outlying").apart().optional(),
        last("owner, and where most"),
    ]);
    columns.heading(out)?;
    for owner in differ.iter().take(rows) {
        let shown = |value: f64| out.amount(metric, value.round() as u64);
        let [_, most] = owner.spread.extremes;
        let place = printable(&ranks.places[most].name).into_owned();
        let name = elide_middle(&printable(&owner.name), out.fit(NAME));
        let cells = [
            shown(owner.above_median),
            shown(owner.spread.median),
            out.amount(metric, owner.values[most]),
            owner.spread.outlying.len().to_string(),
            format!("{name}, {place}"),
        ];
        columns.row(out, cells)?;
    }
    more(out, differ.len(), rows)
}

fn more(out: &mut Screen, found: usize, rows: usize) -> io::Result<()> {
    match found.saturating_sub(rows) {
        0 => Ok(()),
        rest => writeln!(out, "  {rest} more; --top {found} shows all"),
    }
}
