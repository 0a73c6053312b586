//! A table of processes, hosts or ranks: their sums, and how evenly these are distributed.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Measures, Process, Recording};
use heaptide_analysis::recording::join_timeline::{Most, most_at_once};
use heaptide_analysis::recording::origin::{Group, Origin, groups};
use heaptide_analysis::text::{of_path, printable};

use crate::shared::command_line::command_line;
use crate::shared::quantity::{amount, counted, duration, percent};
use crate::text::screen::Screen;

/// Default number of rows.
const ROWS: usize = 20;
/// Characters of the command in a row.
const COMMAND: usize = 32;

/// Options of the table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What a row represents.
    pub by: Origin,
    /// Metric by which rows are sorted; by default, in order of start, name or number.
    pub sort: Option<Measure>,
    /// Maximum number of rows.
    pub top: Option<usize>,
    /// Restricts the table to the images of this process.
    pub process: Option<u32>,
}

/// A note if the peak of a row is a bound.
const BOUND: &str = "The peak of several images is at most this: filters do not apply to the \
                     timeline, which contains what they had at the same time.";
/// The same for changes between samples.
const FAST: &str = "The peak of several images is at most this: changes of live bytes were faster \
                    than samples.";

/// A row.
struct Row {
    name: String,
    rank: Option<u32>,
    /// Sums over the images; the peak is the maximum that was live at the same time.
    sums: Measures,
    /// Whether that is unknown: then the peak is the sum of peaks, a bound.
    bound: Option<&'static str>,
    images: u32,
    start_ns: u64,
    end_ns: u64,
    command: String,
}

impl Row {
    /// Returns whether the row is a place of this kind, not the group of processes without a rank.
    fn is_place(&self, by: Origin) -> bool {
        by != Origin::Rank || self.rank.is_some()
    }
}

/// Writes the table of a recording.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, recording: &Recording, table: &Table) -> io::Result<()> {
    let chosen = |p: &&Process| table.process.is_none_or(|pid| pid == p.identity.pid);
    let processes: Vec<&Process> = recording.processes.iter().filter(chosen).collect();
    let mut rows = rows(&processes, table.by, out.fit(COMMAND));
    let kinds = match table.by {
        Origin::Process => String::new(),
        by => counted(rows.iter().filter(|row| row.is_place(by)).count() as u64, by.name()) + ", ",
    };
    let images: u32 = rows.iter().map(|row| row.images).sum();
    let images = counted(images.into(), "process image");
    writeln!(out, "{}: {kinds}{images}\n", of_path(&recording.path))?;
    let even = evenness(&rows, table);
    let missing = missing(&processes, &rows);
    let total = (rows.len() > 1).then(|| sum(&rows, &processes));
    let rest = rows.len().saturating_sub(table.top.unwrap_or(ROWS));
    choose(&mut rows, table);
    let extra = table.sort.filter(|measure| !in_columns(*measure));
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    heading(out, extra, table.by)?;
    for row in &rows {
        line(out, row, extra, width)?;
    }
    if rest > 0 {
        let measure = table.sort.unwrap_or(Measure::PeakBytes).name();
        writeln!(out, "  {rest} more with lower {measure}; --top {} shows all", rest + rows.len())?;
    }
    if let Some(total) = &total {
        line(out, total, extra, width)?;
    }
    let bound = rows.iter().chain(&total).find_map(|row| row.bound).map(str::to_owned);
    [missing, bound, even].into_iter().flatten().try_for_each(|said| writeln!(out, "\n{said}"))
}

/// Keeps the rows with the largest values, and sorts them if a metric was requested.
fn choose(rows: &mut Vec<Row>, table: &Table) {
    let measure = table.sort.unwrap_or(Measure::PeakBytes);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&at| Reverse(measure.of(&rows[at].sums)));
    order.truncate(table.top.unwrap_or(ROWS));
    if table.sort.is_none() {
        order.sort_unstable();
    }
    let mut chosen: Vec<Option<Row>> = rows.drain(..).map(Some).collect();
    rows.extend(order.into_iter().filter_map(|at| chosen[at].take()));
}

fn in_columns(measure: Measure) -> bool {
    use Measure::{Allocations, LiveBytes, PeakBytes, Temporary};
    [Allocations, LiveBytes, PeakBytes, Temporary].contains(&measure)
}

fn heading(out: &mut Screen, extra: Option<Measure>, by: Origin) -> io::Result<()> {
    let extra = extra.map_or(String::new(), |measure| format!("{:>18}  ", measure.name()));
    let [wide, narrow] = [10, 9].map(|characters| out.number_width(characters));
    writeln!(
        out,
        "  {extra}{:>wide$} {:>wide$} {:>narrow$} {:>9} {:>9} {:>7}  {}",
        "peak",
        "at the end",
        "allocs",
        "temporary",
        "time",
        "images",
        by.name()
    )
}

fn line(out: &mut Screen, row: &Row, extra: Option<Measure>, width: usize) -> io::Result<()> {
    let m = &row.sums;
    let extra = extra
        .map_or(String::new(), |measure| format!("{:>18}  ", out.amount(measure, measure.of(m))));
    let [wide, narrow] = [10, 9].map(|characters| out.number_width(characters));
    let text = format!(
        "  {extra}{:>wide$} {:>wide$} {:>narrow$} {:>9} {:>9} {:>7}  {:<width$}  {}",
        out.bytes(m.peak_bytes),
        out.bytes(m.live_bytes),
        out.count(m.allocations),
        percent(m.temporary, m.allocations),
        duration(row.end_ns.saturating_sub(row.start_ns)),
        row.images,
        row.name,
        row.command
    );
    writeln!(out, "{}", text.trim_end())
}

fn rows(processes: &[&Process], by: Origin, width: usize) -> Vec<Row> {
    let row = |group: Group| {
        let members: Vec<&Process> = group.members.iter().map(|&m| processes[m]).collect();
        let (sums, bound) = sums(&members);
        let ended = members
            .iter()
            .map(|p| p.lifetime.start_realtime_ns.saturating_add(p.lifetime.duration_ns));
        Row {
            name: name(&group, &members, by),
            rank: group.rank,
            sums,
            bound,
            images: members.iter().map(|p| p.identity.images).sum(),
            start_ns: members.iter().map(|p| p.lifetime.start_realtime_ns).min().unwrap_or(0),
            end_ns: ended.max().unwrap_or(0),
            command: command(&members, width),
        }
    };
    groups(processes, by).into_iter().map(row).collect()
}

/// Returns the name of the place without the program, which the command shows.
fn name(group: &Group, members: &[&Process], by: Origin) -> String {
    let program = members.first().map_or("", |p| p.identity.name());
    let name = match by {
        Origin::Process => group.name.strip_suffix(program).unwrap_or(&group.name),
        Origin::Host | Origin::Rank => &group.name,
    };
    printable(name.trim_end()).into_owned()
}

/// Returns the command of the image with the highest peak.
fn command(members: &[&Process], width: usize) -> String {
    let most = members.iter().max_by_key(|p| p.totals.peak_bytes);
    most.map_or(String::new(), |p| command_line(p, width))
}

/// Returns the sums over processes, and why their peak is only a bound, if it is.
fn sums(processes: &[&Process]) -> (Measures, Option<&'static str>) {
    let mut sums = Measures::default();
    processes.iter().for_each(|p| sums.add(&p.totals));
    let most = most_at_once(processes);
    sums.peak_bytes = most.bytes();
    let bound = match most {
        Most::Known(_) => None,
        Most::Fast(_) => Some(FAST),
        Most::Sum(_) => Some(BOUND),
    };
    (sums, bound)
}

fn sum(rows: &[Row], processes: &[&Process]) -> Row {
    let (sums, bound) = sums(processes);
    Row {
        name: "all".to_owned(),
        rank: None,
        sums,
        bound,
        images: rows.iter().map(|row| row.images).sum(),
        start_ns: rows.iter().map(|row| row.start_ns).min().unwrap_or(0),
        end_ns: rows.iter().map(|row| row.end_ns).max().unwrap_or(0),
        command: String::new(),
    }
}

/// Compares the largest value of the hosts or ranks with their mean. Returns `None` for a single
/// one, and for processes, which are not expected to be equal.
fn evenness(rows: &[Row], table: &Table) -> Option<String> {
    let meant = |row: &&Row| table.by != Origin::Process && row.is_place(table.by);
    let rows: Vec<&Row> = rows.iter().filter(meant).collect();
    let measure = table.sort.unwrap_or(Measure::PeakBytes);
    let value = |row: &&&Row| measure.of(&row.sums);
    let (least, most) = (rows.iter().min_by_key(value)?, rows.iter().rev().max_by_key(value)?);
    let sum: u128 = rows.iter().map(|row| u128::from(measure.of(&row.sums))).sum();
    if rows.len() < 2 || sum == 0 {
        return None;
    }
    let mean = sum / rows.len() as u128;
    let ratio = value(&most) as f64 * rows.len() as f64 / sum as f64;
    let amount = |value: u64| amount(measure, value);
    Some(format!(
        "{}: mean {}, least {} ({}), most {} ({}), which is {ratio:.2} times the mean",
        measure.name(),
        amount(u64::try_from(mean).unwrap_or(u64::MAX)),
        amount(value(&least)),
        least.name,
        amount(value(&most)),
        most.name
    ))
}

/// Returns how many ranks of a job are in the recording, if some are missing and all are of one job
/// whose size is known.
fn missing(processes: &[&Process], rows: &[Row]) -> Option<String> {
    let ranked = || processes.iter().filter_map(|p| Some((&p.identity.job, p.identity.rank?.of)));
    let (job, of) = ranked().next()?;
    let here = rows.iter().filter(|row| row.rank.is_some()).count() as u64;
    let one_job = ranked().all(|other| other == (job, of));
    (one_job && here > 0 && here < u64::from(of))
        .then(|| format!("{here} of the job's {of} ranks are in this recording"))
}
