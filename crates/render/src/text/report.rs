//! The report page: what ran, the totals, what held the peak, leaks, temporary blocks.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{End, ImageRole, Measure, Mode, Process, Recording};
use heaptide_analysis::text::of_path;

use crate::shared::accounts;
use crate::shared::answer::Answer;
use crate::shared::command_line::command_line;
use crate::shared::device::device_summary;
use crate::shared::heading::{ending, highest_says, live_name, place, ran, removed_says};
use crate::shared::losses::{meaning, of_unmatched};
use crate::shared::mapped::mapped_summary;
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{bytes, count, counted, date, duration, percent};
use crate::shared::runtime::runtime_says;
use crate::shared::sentence::sentence;
use crate::text::annotations;
use crate::text::caption::figures;
use crate::text::columns::{Columns, last, left, right};
use crate::text::missing;
use crate::text::screen::{Screen, Style, paragraph};
use crate::text::sections;

/// Maximum characters of a line.
const WIDTH: usize = 100;
/// Default number of process images in the table.
const TABLE_ROWS: usize = 20;
/// Default number of rows of a section.
const ROWS: usize = 5;
/// Of several processes, at most this many have a page, …
const PAGES: usize = 2;
/// … and only those whose peak is at least this fraction of the highest one.
const PAGE_PART: u64 = 4;

/// Losses that are missing from the totals.
const UNSEEN: [&str; 2] = ["no_lane", "no_shadow"];

/// Options of the page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Shows one section sorted by this metric instead of peak, leaks and temporary blocks.
    pub sort: Option<Measure>,
    /// Rows per section.
    pub top: Option<usize>,
    /// Restricts the page to the images of this process.
    pub process: Option<u32>,
    /// Which processes are shown if none is selected.
    pub shown: Shown,
}

/// Which processes are shown if none is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The subject of the recording, if it was chosen.
    Subject,
    /// All in a table, and the largest ones with a page.
    All,
}

/// Writes the page.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, recording: &Recording, page: &Page) -> io::Result<()> {
    let chosen = recording.subject_process().filter(|_| page.shown == Shown::Subject);
    match chosen.filter(|_| page.process.is_none()) {
        Some(process) => {
            process_page(out, process, &Answer::of(recording, process), page)?;
            other_processes(out, recording)?;
        }
        None => pages(out, recording, page)?,
    }
    if !recording.unrecorded.is_empty() {
        writeln!(
            out,
            "\nthe program itself was not recorded: {}",
            printable(&recording.unrecorded)
        )?;
    }
    if let Some(says) = removed_says(&recording.removed) {
        writeln!(out, "\nremoved: {says}")?;
    }
    for file in &recording.damaged {
        writeln!(out, "\nunreadable: {}", printable(&file.reason))?;
    }
    Ok(())
}

/// Writes the number of images besides the subject, a line for each program of weight among them,
/// and what is missing of all images.
fn other_processes(out: &mut Screen, recording: &Recording) -> io::Result<()> {
    let subject = recording.subject_process().map_or(0, |process| process.totals.peak_bytes);
    let is_other = |process: &&Process| process.identity.role != ImageRole::Subject;
    let others: Vec<&Process> = recording.processes.iter().filter(is_other).collect();
    if others.is_empty() {
        return Ok(());
    }
    let rest = counted(others.len() as u64, "other process image");
    writeln!(out, "\n{rest} not shown; `--all-processes` lists all, `--process PID` shows one")?;
    let mut large = others;
    large.retain(|process| process.identity.role == ImageRole::Other);
    large.retain(|process| process.totals.peak_bytes >= subject / PAGE_PART);
    large.sort_by_key(|process| Reverse(process.totals.peak_bytes));
    for process in large.iter().take(ROWS) {
        let (peak, command) = (out.bytes(process.totals.peak_bytes), command_line(process, 50));
        writeln!(out, "  {peak:>10}  {command} (--process {})", process.identity.pid)?;
    }
    for what in missing::lines(recording) {
        let line = format!("  missing  {}", printable(&what));
        writeln!(out, "{}", Style::Warning.of(line))?;
    }
    Ok(())
}

/// Writes a table of the processes, if there are several, and the pages of the largest.
fn pages(out: &mut Screen, recording: &Recording, page: &Page) -> io::Result<()> {
    let mut chosen: Vec<&Process> = recording.processes.iter().collect();
    if let Some(pid) = page.process {
        chosen.retain(|p| p.identity.pid == pid);
    }
    let several = chosen.len() > 1;
    if several {
        process_table(out, recording, &chosen, page.top.unwrap_or(TABLE_ROWS))?;
    }
    let requested = recording.subject_process().or(recording.requested());
    let is_requested = |p: &Process| requested.is_some_and(|q| std::ptr::eq(p, q));
    chosen.sort_by_key(|p| (!is_requested(p), Reverse(p.totals.peak_bytes)));
    let largest = chosen.iter().map(|p| p.totals.peak_bytes).max().unwrap_or(0);
    let small = |p: &&Process| !is_requested(p) && p.totals.peak_bytes < largest / PAGE_PART;
    let pages = match page.process {
        Some(_) => chosen.len(),
        None => chosen.iter().take(PAGES).take_while(|p| !small(p)).count(),
    };
    for (i, process) in chosen[..pages].iter().enumerate() {
        if several || i > 0 {
            writeln!(out, "\n{}", "─".repeat(out.columns().min(WIDTH)))?;
        }
        let answer = Answer { sentence: sentence(process), ..Answer::default() };
        process_page(out, process, &answer, page)?;
    }
    if pages < chosen.len() {
        let rest = counted((chosen.len() - pages) as u64, "process image");
        writeln!(
            out,
            "
{rest} not shown; `--process PID` shows one"
        )?;
    }
    Ok(())
}

/// Writes a table of the processes with the highest peaks, in order of start.
fn process_table(
    out: &mut Screen,
    recording: &Recording,
    all: &[&Process],
    rows: usize,
) -> io::Result<()> {
    let (path, span) = (of_path(&recording.path), duration(recording.span_ns()));
    writeln!(
        out,
        "{path}: {} process images, {span} from the first start to the last end\n",
        all.len()
    )?;
    let requested = recording.subject_process().or(recording.requested());
    let mut largest = all.to_vec();
    let is_requested = |p: &Process| requested.is_some_and(|q| std::ptr::eq(p, q));
    largest.sort_by_key(|p| (!is_requested(p), Reverse(p.totals.peak_bytes)));
    let (shown, rest) = largest.split_at(rows.min(all.len()));
    let is_shown = |p: &&&Process| shown.iter().any(|q| std::ptr::eq(**p, *q));
    let columns = Columns([
        right(6, "pid"),
        right(10, "peak"),
        right(10, "at the end").apart(),
        right(12, "allocations").optional(),
        right(10, "time").optional(),
        left(10, "end").optional(),
        last("command").close(),
    ]);
    columns.heading(out)?;
    for p in all.iter().filter(is_shown) {
        let cells = [
            p.identity.pid.to_string(),
            out.bytes(p.totals.peak_bytes),
            out.bytes(p.totals.live_bytes),
            out.count(p.totals.allocations),
            short_duration(p),
            short_ending(p.lifetime.end),
            command_line(p, out.fit(WIDTH - 69)),
        ];
        columns.row(out, cells)?;
    }
    if let Some(largest) = rest.first() {
        let peak = out.bytes(largest.totals.peak_bytes);
        writeln!(out, "         {} more, none above {peak}", counted(rest.len() as u64, "image"))?;
    }
    Ok(())
}

fn short_duration(process: &Process) -> String {
    let at_least = if process.lifetime.duration_is_known { "" } else { "≥ " };
    format!("{at_least}{}", duration(process.lifetime.duration_ns))
}

fn short_ending(end: End) -> String {
    match end {
        End::Exited(code) => format!("exit {code}"),
        End::Signaled(signal) => format!("signal {signal}"),
        End::Exec => "exec".to_owned(),
        End::Detached => "detached".to_owned(),
        End::Running => "running".to_owned(),
        End::Unknown => "unknown".to_owned(),
    }
}

fn process_page(
    out: &mut Screen,
    process: &Process,
    answer: &Answer,
    page: &Page,
) -> io::Result<()> {
    heading(out, process, answer)?;
    totals(out, process)?;
    let rows = page.top.unwrap_or(ROWS);
    match (process.mode, page.sort) {
        (Mode::Counters, _) => {
            writeln!(
                out,
                "\nRecorded with --mode counters: no stacks; see --by thread and --by size"
            )?;
        }
        (Mode::Scopes, _) => {
            writeln!(out, "\nRecorded without stacks; see --by scope and --by thread")?;
        }
        (Mode::Stacks, Some(measure)) => sections::sorted(out, process, measure, rows)?,
        (Mode::Stacks, None) => sections::usual(out, process, rows)?,
    }
    annotations::sections(out, process, page.sort, rows)?;
    losses(out, process)
}

fn heading(out: &mut Screen, process: &Process, answer: &Answer) -> io::Result<()> {
    let command = command_line(process, out.fit(WIDTH));
    writeln!(out, "{}", Style::Heading.of(command))?;
    if let Some(sentence) = &answer.sentence {
        writeln!(out, "{}\n", paragraph(sentence, out.columns().min(WIDTH)))?;
    }
    let image = match process.identity.image {
        0 => String::new(),
        n => format!(", image {n} after exec"),
    };
    let forked = if process.identity.forked { ", forked" } else { "" };
    let program = match &*process.identity.name_and_file() {
        "" => "several".to_owned(),
        program => printable(program).into_owned(),
    };
    writeln!(out, "  program  {program}, {}{image}{forked}", process.who())?;
    if let Some(subject) = &answer.subject {
        writeln!(out, "  subject  {subject}")?;
    }
    let (started, ended) = (date(process.lifetime.start_realtime_ns), ending(process));
    writeln!(out, "  started  {started}, {}, {ended}", ran(process))?;
    if let Some(place) = place(process) {
        let place = format!("{place}, on {}", process.identity.host);
        writeln!(out, "  rank     {}", printable(&place))?;
    }
    for what in missing::of_process(process) {
        let line = format!("  missing  {}", printable(&what));
        writeln!(out, "{}", Style::Warning.of(line))?;
    }
    figures(out, process)
}

fn totals(out: &mut Screen, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    writeln!(out, "\n{}", Style::Heading.of("Totals"))?;
    let slack = percent(t.slack_bytes(), t.usable_bytes);
    let (requested, given) = (out.bytes(t.requested_bytes), out.bytes(t.usable_bytes));
    let largest = out.bytes(t.largest_bytes);
    let sizes = format!("{requested} requested, {given} given ({slack} slack), largest {largest}");
    row(out, "allocations", &count(t.allocations), &sizes)?;
    let share = percent(t.temporary, t.allocations);
    let meaning = format!("{share}, freed by their thread before it allocated again");
    row(out, "temporary", &count(t.temporary), &meaning)?;
    row(out, "reallocations", &count(t.reallocations), "")?;
    let across = match t.cross_thread_frees {
        0 => String::new(),
        n => format!(", {}{} by another thread", about(process), count(n)),
    };
    let freed = format!("{} freed{across}", out.bytes(t.freed_bytes));
    row(out, "frees", &count(t.frees), &freed)?;
    if t.failed > 0 {
        row(out, "failed", &count(t.failed), "failed allocations")?;
    }
    high_and_live(out, process)
}

/// Returns the prefix of numbers that are estimates in sampled recordings.
fn about(process: &Process) -> &'static str {
    if process.sampling.is_some() { "about " } else { "" }
}

fn high_and_live(out: &mut Screen, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    let exact = match process.completeness.peak_bound_bytes {
        0 => String::new(),
        bound => format!(" (within {})", bytes(bound)),
    };
    let about = about(process);
    // Mode `counters` does not record the blocks at peak.
    let blocks = match t.at_peak_blocks {
        _ if process.mode == Mode::Counters => String::new(),
        0 => String::new(),
        n => format!(" in {about}{}", counted(n, "block")),
    };
    let in_full = counted(t.peak_bytes, "byte");
    if let Some(highest) = &process.time.highest {
        let shown = match highest.at_most_bytes {
            Some(most) => format!("at most {}", bytes(most)),
            None => out.bytes(highest.live_bytes),
        };
        row(out, "peak", &shown, &highest_says(highest))?;
        let note = format!("{in_full}{exact}{blocks}, the sum of each image's own peak");
        row(out, "peaks added up", &out.bytes(t.peak_bytes), &note)?;
    } else {
        let when = duration(process.peak_time_ns);
        let note = format!("{in_full}{exact}{blocks}, after {when}");
        row(out, "peak", &out.bytes(t.peak_bytes), &note)?;
    }
    let [size, blocks] =
        [(t.live_bytes, "byte"), (t.live_blocks, "block")].map(|(n, of)| counted(n, of));
    let note = format!("{size} in {blocks}");
    row(out, live_name(process), &out.bytes(t.live_bytes), &note)?;
    let runtime = runtime_says(process);
    if let Some((peak, says)) = mapped_summary(process) {
        // Runtimes reserve much more than they use.
        let of = if runtime.is_some() { "of address space " } else { "" };
        row(out, "mapped", &peak, &format!("{of}{says}"))?;
    }
    if let Some((peak, says)) = device_summary(process) {
        row(out, "device", &peak, &says)?;
    }
    if let Some((resident, note)) = accounts::summary(process) {
        row(out, "resident", &bytes(resident), &note)?;
    }
    match runtime {
        Some(says) => row(out, "runtime", "", &says),
        None => Ok(()),
    }
}

fn row(out: &mut Screen, name: &str, value: &str, note: &str) -> io::Result<()> {
    let line = format!("  {name:<16} {value:>13}  {note}");
    writeln!(out, "{}", line.trim_end())
}

fn losses(out: &mut Screen, process: &Process) -> io::Result<()> {
    let said = process.completeness.losses.iter().filter(|loss| loss.count > 0);
    let mut said = said.peekable();
    if said.peek().is_some()
        || !process.completeness.notes.is_empty()
        || process.completeness.unmatched_frees > 0
    {
        writeln!(out, "\n{}", Style::Warning.of("Missing data"))?;
    }
    for loss in said {
        let meaning = meaning(std::iter::once(process), loss);
        writeln!(out, "  {:>10} {meaning}", count(loss.count))?;
    }
    if process.completeness.unmatched_frees > 0 {
        let what = match process.completeness.unmatched_frees {
            1 => "free of a block",
            _ => "frees of blocks",
        };
        let n = count(process.completeness.unmatched_frees);
        writeln!(out, "  {n:>10} {what} {}", of_unmatched(process))?;
    }
    for note in &process.completeness.notes {
        writeln!(out, "  {}", elide_middle(note, 2 * WIDTH))?;
    }
    let unseen = process.completeness.losses.iter().filter(|loss| UNSEEN.contains(&loss.name));
    if unseen.map(|loss| loss.count).sum::<u64>() > 0 {
        writeln!(out, "  The totals above do not include these events.")?;
    }
    Ok(())
}
