//! A process over time: charts of live bytes, resident memory and allocations, with marks,
//! snapshots and windows below.

use std::io::{self, Write};

use heaptide_analysis::model::{Mark, Process, Window};
use heaptide_analysis::recording::snapshot::Snapshot;
use heaptide_analysis::views::timeline::{Series, Timeline};

use crate::shared::annotations::{LETTERS, mark_says, marks, marks_shown, windows_shown};
use crate::shared::heading::live_name;
use crate::shared::names::elide_middle;
use crate::shared::quantity::{bytes, counted, duration, short_count};
use crate::shared::views::Moment;
use crate::text::caption::caption;
use crate::text::chart;
use crate::text::chart::Piece;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::Screen;

/// Width of the numbers beside a chart.
const LABEL: usize = 9;
/// Minimum and maximum columns of a chart.
const COLUMNS: (usize, usize) = (20, 1000);
/// Lines of the chart of live bytes.
const HIGH: usize = 12;
/// Lines of the other charts.
const LOW: usize = 5;
/// Characters of a name.
const NAME: usize = 60;

/// Writes the charts of one process with a width of `width` characters. `snapshots` are its own.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    snapshots: &[Snapshot],
    width: usize,
) -> io::Result<()> {
    let timeline = Timeline::of(process);
    let columns = width.saturating_sub(LABEL + 3).clamp(COLUMNS.0, COLUMNS.1);
    heading(out, process, &timeline)?;
    let page = Page { timeline: &timeline, columns };
    page.peak_mark(out)?;
    page.panel(out, &page.highest(&timeline.live), HIGH, &bytes)?;
    page.axis(out)?;
    page.lanes(out, process, snapshots)?;
    writeln!(out, "\nallocations a second")?;
    let rates: Vec<f64> =
        timeline.columns(columns).into_iter().map(|column| timeline.rate(column)).collect();
    page.panel(out, &rates, LOW, &short_count)?;
    page.axis(out)?;
    if !timeline.resident.is_empty() {
        writeln!(out, "\nresident memory of the process")?;
        page.panel(out, &page.highest(&timeline.resident), LOW, &bytes)?;
        page.axis(out)?;
    }
    legend(out, process, snapshots)
}

fn heading(out: &mut Screen, process: &Process, timeline: &Timeline) -> io::Result<()> {
    let t = &process.totals;
    caption(out, process)?;
    let (over, live) = (duration(timeline.duration_ns), bytes(t.live_bytes));
    let samples = match process.time.samples.len() {
        0 => "no samples: lines from start to peak to end".to_owned(),
        n => counted(n as u64, "sample"),
    };
    writeln!(out, "live bytes over {over}; {} {live}; {samples}\n", live_name(process))
}

/// Charts with a common width and time range.
struct Page<'a> {
    timeline: &'a Timeline,
    columns: usize,
}

impl Page<'_> {
    fn highest(&self, series: &Series) -> Vec<f64> {
        let columns = self.timeline.columns(self.columns).into_iter();
        columns.map(|(from, to)| series.highest(from, to)).collect()
    }

    /// Writes an arrow above the peak, with its value and time.
    fn peak_mark(&self, out: &mut Screen) -> io::Result<()> {
        let (time, peak) = self.timeline.live.top();
        let column = self.timeline.column(time, self.columns);
        let says = format!("peak {} after {}", bytes(peak), duration(time));
        let length = says.chars().count();
        let line = if column > length {
            format!("{}{says} ▼", " ".repeat(column - length - 1))
        } else {
            format!("{}▼ {says}", " ".repeat(column))
        };
        writeln!(out, "{:>LABEL$}   {line}", "")
    }

    /// Writes a chart with numbers at its top, middle and bottom.
    fn panel(
        &self,
        out: &mut Screen,
        values: &[f64],
        height: usize,
        says: &dyn Fn(u64) -> String,
    ) -> io::Result<()> {
        let most = values.iter().copied().fold(0.0, f64::max);
        for (i, line) in chart::area(values, height, most).iter().enumerate() {
            let label = match i {
                0 => says(most.round() as u64),
                i if i == height / 2 && height > LOW => {
                    says((most * (height - i) as f64 / height as f64).round() as u64)
                }
                _ => String::new(),
            };
            let edge = if label.is_empty() { '│' } else { '┤' };
            writeln!(out, "{label:>LABEL$} {edge} {}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes the time axis below a chart, with labels at equal distances.
    fn axis(&self, out: &mut Screen) -> io::Result<()> {
        let parts = (self.columns / 16).clamp(1, 8);
        let at = |i: usize| (self.columns * i / parts).min(self.columns - 1);
        let mut line: Vec<char> = vec!['─'; self.columns];
        (0..=parts).for_each(|i| line[at(i)] = '┴');
        writeln!(out, "{:>LABEL$} └─{}", "0", line.into_iter().collect::<String>())?;
        let time =
            |i: usize| (u128::from(self.timeline.duration_ns) * i as u128 / parts as u128) as u64;
        let ticks: Vec<_> = (0..=parts).map(|i| (at(i), duration(time(i)))).collect();
        writeln!(out, "{:>LABEL$}   {}", "", chart::ticks(&ticks, self.columns))
    }

    /// Writes windows, marks and snapshots below their times.
    fn lanes(&self, out: &mut Screen, process: &Process, snapshots: &[Snapshot]) -> io::Result<()> {
        let at = |time| self.timeline.column(time, self.columns);
        let window = |(letter, window): (char, &Window)| self.window(letter, window);
        let mark =
            |(letter, mark): (char, &Mark)| Piece { column: at(mark.time_ns), text: vec![letter] };
        let windows = windows_shown(process).map(window).collect();
        let marks = marks_shown(process).map(mark).collect();
        let mut columns: Vec<usize> = snapshots.iter().map(|s| at(s.time_ns)).collect();
        columns.dedup();
        let snapshots = columns.into_iter().map(|column| Piece { column, text: vec!['▴'] });
        let lanes = [("windows", windows), ("marks", marks), ("snapshots", snapshots.collect())];
        for (name, pieces) in lanes {
            for (i, line) in chart::lanes(pieces, self.columns).iter().enumerate() {
                let name = if i == 0 { name } else { "" };
                writeln!(out, "{name:>LABEL$}   {line}")?;
            }
        }
        Ok(())
    }

    /// Draws a window as `A───┤` over the time that it was open: `A` if that is one column, `A──▸`
    /// if it is still open.
    fn window(&self, letter: char, window: &Window) -> Piece {
        let at = |time| self.timeline.column(time, self.columns);
        let column = at(window.begin_time_ns);
        let end = if window.open { self.columns - 1 } else { at(window.end_time_ns).max(column) };
        let mut text = vec!['─'; end - column + 1];
        *text.last_mut().expect("one column at least") = if window.open { '▸' } else { '┤' };
        text[0] = letter;
        Piece { column, text }
    }
}

/// Writes what the letters represent.
fn legend(out: &mut Screen, process: &Process, snapshots: &[Snapshot]) -> io::Result<()> {
    let (windows, marks) = (process.time.windows.len(), marks(process).count());
    if windows + marks + snapshots.len() > 0 {
        writeln!(out)?;
    }
    for (letter, window) in windows_shown(process) {
        let (begin, peak) = (duration(window.begin_time_ns), bytes(window.peak_bytes));
        let lasted = if window.open {
            "open".to_owned()
        } else {
            duration(window.end_time_ns.saturating_sub(window.begin_time_ns))
        };
        let name = elide_middle(&window.name, out.fit(NAME));
        writeln!(out, "  {letter}  {begin:>10}  {lasted:>10}  peak {peak:>9}  window {name}")?;
    }
    more(out, windows, "window", "with lower peaks")?;
    for (letter, mark) in marks_shown(process) {
        let (time, live) = (duration(mark.time_ns), bytes(mark.live_bytes));
        writeln!(out, "  {letter}  {time:>10}  {:>10}  live {live:>9}  {}", "", mark_says(mark))?;
    }
    more(out, marks, "mark", "later")?;
    match snapshots {
        [] => Ok(()),
        [first, .., last] => {
            let (n, a, b) =
                (counted(snapshots.len() as u64, "snapshot"), first.number, last.number);
            writeln!(out, "  ▴  {n}, {a} to {b}; --site plots one function across them")
        }
        [one] => {
            let line =
                format!("  ▴  snapshot {} {}", one.number, elide_middle(&one.name, out.fit(NAME)));
            writeln!(out, "{}", line.trim_end())
        }
    }
}

fn more(out: &mut Screen, all: usize, what: &str, which: &str) -> io::Result<()> {
    match all.saturating_sub(LETTERS) {
        0 => Ok(()),
        n => writeln!(out, "     {} more {which}; --format json has all", counted(n as u64, what)),
    }
}

/// Writes the chart of what matches `site`, over all times at which its values are known.
///
/// Errors: those of `out`.
pub fn write_site(
    out: &mut Screen,
    process: &Process,
    site: &str,
    moments: &[Moment],
    width: usize,
) -> io::Result<()> {
    let points = moments.iter().map(|m| (m.time_ns, m.live_bytes));
    let live = Series::of(points.chain([(0, 0)]).collect());
    let duration_ns = moments.iter().map(|m| m.time_ns).max().unwrap_or(0).max(1);
    let allocations = Series::default();
    let resident = Series::default();
    let timeline = Timeline { duration_ns, live, resident, allocations, undated_allocations: 0 };
    let columns = width.saturating_sub(LABEL + 3).clamp(COLUMNS.0, COLUMNS.1);
    caption(out, process)?;
    let (n, site) = (counted(moments.len() as u64, "point"), elide_middle(site, out.fit(NAME)));
    writeln!(out, "live bytes of sites matching {site} at {n}: snapshots and the end\n")?;
    let page = Page { timeline: &timeline, columns };
    page.panel(out, &page.highest(&timeline.live), HIGH, &bytes)?;
    page.axis(out)?;
    let at = |m: &Moment| Piece { column: timeline.column(m.time_ns, columns), text: vec!['▴'] };
    let mut pieces: Vec<Piece> = moments.iter().map(at).collect();
    pieces.dedup_by_key(|piece| piece.column);
    for line in chart::lanes(pieces, columns) {
        writeln!(out, "{:>LABEL$}   {line}", "known")?;
    }
    let columns = Columns([
        right(8, "snapshot"),
        right(10, "time"),
        right(10, "live"),
        right(9, "blocks"),
        right(9, "allocs"),
        last("name"),
    ]);
    writeln!(out)?;
    columns.heading(out)?;
    for m in moments {
        let number = m.snapshot.map_or("end".to_owned(), |number| number.to_string());
        let cells = [
            number,
            duration(m.time_ns),
            bytes(m.live_bytes),
            short_count(m.live_blocks),
            short_count(m.allocations),
            elide_middle(&m.name, out.fit(NAME)),
        ];
        columns.short_row(out, cells)?;
    }
    Ok(())
}
