//! The report page: what ran, the totals, who held the peak, what leaks, what is temporary.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{End, Measure, Mode, Process, Recording};
use heaptide_analysis::text::of_path;
use heaptide_analysis::trace::OnDisk;

use crate::frames::file_name;
use crate::named;
use crate::names::{elide_middle, printable};
use crate::quantity::{bytes, count, counted, date, duration, percent, short_count};
use crate::sections;

/// Characters a line may have.
const WIDTH: usize = 100;
/// Process images in the table unless another number is asked for.
const TABLE_ROWS: usize = 20;
/// Rows of a section unless another number is asked for.
const ROWS: usize = 5;
/// Of several processes at most this many get a page each, …
const PAGES: usize = 2;
/// … and only those whose peak is at least this part of the largest one's.
const PAGE_PART: u64 = 4;

/// Losses that are in no total.
const UNSEEN: [&str; 2] = ["no_lane", "no_shadow"];

/// What the page shows.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// One section ordered by this measure in place of peak, leaks and temporaries.
    pub sort: Option<Measure>,
    /// Rows a section.
    pub top: Option<usize>,
    /// Only the images of this process.
    pub process: Option<u32>,
}

/// Writes the page.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, recording: &Recording, page: &Page) -> io::Result<()> {
    let mut chosen: Vec<&Process> = recording.processes.iter().collect();
    if let Some(pid) = page.process {
        chosen.retain(|p| p.identity.pid == pid);
    }
    let several = chosen.len() > 1;
    if several {
        process_table(out, recording, &chosen, page.top.unwrap_or(TABLE_ROWS))?;
    }
    chosen.sort_by_key(|p| Reverse(p.totals.peak_bytes));
    let largest = chosen.first().map_or(0, |p| p.totals.peak_bytes);
    let small = |p: &&Process| p.totals.peak_bytes < largest / PAGE_PART;
    let pages = match page.process {
        Some(_) => chosen.len(),
        None => chosen.iter().take(PAGES).take_while(|p| !small(p)).count(),
    };
    for (i, process) in chosen[..pages].iter().enumerate() {
        if several || i > 0 {
            writeln!(out, "\n{}", "─".repeat(WIDTH))?;
        }
        process_page(out, process, page)?;
    }
    if pages < chosen.len() {
        let rest = counted((chosen.len() - pages) as u64, "process image");
        writeln!(
            out,
            "
{rest} not shown; `--process PID` shows one"
        )?;
    }
    if !recording.unrecorded.is_empty() {
        writeln!(
            out,
            "\nthe program itself was not recorded: {}",
            printable(&recording.unrecorded)
        )?;
    }
    for file in &recording.damaged {
        writeln!(out, "\nunreadable: {}", printable(&file.reason))?;
    }
    Ok(())
}

/// What a trace holds and takes on disk; none without one.
pub(crate) fn trace_says(p: &Process) -> Option<String> {
    let OnDisk { bytes: size, stopped_ns, limit_bytes } = p.trace_on_disk()?;
    let Some(stopped_ns) = stopped_ns else {
        let t = &p.totals;
        let events = t.allocations.saturating_add(t.frees).saturating_add(t.failed);
        // After a reset the totals are of a part.
        return Some(if p.completeness.part.is_none() && events > 0 {
            let each = size as f64 / events as f64;
            let events = count(events);
            format!("{events} allocations and frees in {}, {each:.1} bytes each", bytes(size))
        } else {
            bytes(size)
        });
    };
    let why = match limit_bytes {
        Some(limit) => format!("--max-size of {} was reached", bytes(limit)),
        None => "out of space".to_owned(),
    };
    Some(format!("{}, ended after {}: {why}", bytes(size), duration(stopped_ns)))
}

/// How an image ended, in words that follow "it".
pub(crate) fn ending(end: End) -> String {
    match end {
        End::Exited(code) => format!("exited with status {code}"),
        End::Signaled(signal) => format!("killed by signal {signal}{}", signal_name(signal)),
        End::Exec => "became another program by exec".to_owned(),
        End::Running => "still running".to_owned(),
        End::Unknown => "end not seen".to_owned(),
    }
}

/// How and when an image ended, in words that follow "it".
pub(crate) fn ended(process: &Process) -> String {
    let seen = if process.lifetime.duration_is_known { "" } else { ", last seen" };
    format!(
        "{}{seen} after {}",
        ending(process.lifetime.end),
        duration(process.lifetime.duration_ns)
    )
}

/// How long an image ran, in words that follow "it".
pub(crate) fn ran(process: &Process) -> String {
    let verb = if process.lifetime.duration_is_known { "ran" } else { "ran at least" };
    format!("{verb} {}", duration(process.lifetime.duration_ns))
}

/// The place in a parallel job: `3 of 8, job 4711`; none outside of one.
pub(crate) fn place(process: &Process) -> Option<String> {
    let rank = process.identity.rank?;
    let of = if rank.of == 0 { String::new() } else { format!(" of {}", rank.of) };
    let job = if process.identity.job.is_empty() { "" } else { ", job " };
    Some(format!("{}{of}{job}{}", rank.number, process.identity.job))
}

/// The name of a signal on Linux, in brackets after a space; empty for those without a common one.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

/// The first lines of a table: whose it is, and of what part.
pub(crate) fn caption(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    writeln!(out, "{} ({})", command_line(process, 80), process.who())?;
    figures(out, process)
}

/// Writes which part of the recording the counts are of, unless they are of all of it.
pub(crate) fn figures(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    match &process.completeness.part {
        Some(part) => writeln!(out, "  counts   {}", printable(part)),
        None => Ok(()),
    }
}

/// The command as one would type it, as far as it fits.
pub(crate) fn command_line(process: &Process, width: usize) -> String {
    let joined = process.identity.images > 1;
    let plain = |c: char| c.is_alphanumeric() || "_-+./=:,@%^".contains(c);
    let quoted = process.identity.command.iter().enumerate().map(|(i, word)| {
        let word = if i == 0 { file_name(word) } else { word };
        if joined || !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''").replace('\n', "⏎"))
        }
    });
    let line = quoted.collect::<Vec<_>>().join(" ");
    let line = if line.is_empty() { file_name(&process.identity.program).to_owned() } else { line };
    let line = printable(&line);
    if line.chars().count() > width {
        line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    } else {
        line.into_owned()
    }
}

/// The processes with the highest peaks, in order of start.
fn process_table(
    out: &mut dyn Write,
    recording: &Recording,
    all: &[&Process],
    rows: usize,
) -> io::Result<()> {
    writeln!(out, "{}: {} process images\n", of_path(&recording.path), all.len())?;
    let mut largest = all.to_vec();
    largest.sort_by_key(|p| Reverse(p.totals.peak_bytes));
    let (shown, rest) = largest.split_at(rows.min(all.len()));
    let is_shown = |p: &&&Process| shown.iter().any(|q| std::ptr::eq(**p, *q));
    writeln!(out, "     pid       peak  at the end  allocations       time  end        command")?;
    for p in all.iter().filter(is_shown) {
        writeln!(
            out,
            "{:>8} {:>10}  {:>10} {:>12} {:>10}  {:<10} {}",
            p.identity.pid,
            bytes(p.totals.peak_bytes),
            bytes(p.totals.live_bytes),
            short_count(p.totals.allocations),
            short_duration(p),
            short_ending(p.lifetime.end),
            command_line(p, WIDTH - 69)
        )?;
    }
    if let Some(largest) = rest.first() {
        let peak = bytes(largest.totals.peak_bytes);
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
        End::Running => "running".to_owned(),
        End::Unknown => "unknown".to_owned(),
    }
}

fn process_page(out: &mut dyn Write, process: &Process, page: &Page) -> io::Result<()> {
    heading(out, process)?;
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
            writeln!(out, "\nRecorded with --mode scopes: no stacks")?;
        }
        (Mode::Stacks, Some(measure)) => sections::sorted(out, process, measure, rows)?,
        (Mode::Stacks, None) => sections::usual(out, process, rows)?,
    }
    let measure = page.sort.unwrap_or(Measure::AtPeakBytes).of_sites();
    named::sections(out, process, measure, rows)?;
    losses(out, process)
}

fn heading(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    writeln!(out, "{}", command_line(process, WIDTH))?;
    let image = match process.identity.image {
        0 => String::new(),
        n => format!(", image {n} after exec"),
    };
    let forked = if process.identity.forked { ", forked" } else { "" };
    let program = match &*process.identity.program {
        "" => "several",
        program => &printable(program),
    };
    writeln!(out, "  program  {program}, {}{image}{forked}", process.who())?;
    let (started, ended) = (date(process.lifetime.start_realtime_ns), ending(process.lifetime.end));
    writeln!(out, "  started  {started}, {}, {ended}", ran(process))?;
    if let Some(place) = place(process) {
        let place = format!("{place}, on {}", process.identity.host);
        writeln!(out, "  rank     {}", printable(&place))?;
    }
    figures(out, process)
}

fn totals(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    writeln!(out, "\nTotals")?;
    let slack = percent(t.slack_bytes(), t.usable_bytes);
    let (requested, given) = (bytes(t.requested_bytes), bytes(t.usable_bytes));
    let largest = bytes(t.largest_bytes);
    let sizes = format!("{requested} requested, {given} given ({slack} slack), largest {largest}");
    row(out, "allocations", &count(t.allocations), &sizes)?;
    let share = percent(t.temporary, t.allocations);
    let meaning = format!("{share}, freed by their thread before it allocated again");
    row(out, "temporary", &count(t.temporary), &meaning)?;
    row(out, "reallocations", &count(t.reallocations), "")?;
    let across = match t.cross_thread_frees {
        0 => String::new(),
        n => format!(", {} by another thread", count(n)),
    };
    let freed = format!("{} freed{across}", bytes(t.freed_bytes));
    row(out, "frees", &count(t.frees), &freed)?;
    if t.failed > 0 {
        row(out, "failed", &count(t.failed), "failed allocations")?;
    }
    high_and_live(out, process)
}

fn high_and_live(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    let exact = match process.completeness.peak_bound_bytes {
        0 => String::new(),
        bound => format!(" (within {})", bytes(bound)),
    };
    // Counters cannot tell the blocks at the peak.
    let blocks = match t.at_peak_blocks {
        0 => String::new(),
        n => format!(" in {}", counted(n, "block")),
    };
    let when = duration(process.peak_time_ns);
    let note = format!("{} bytes{exact}{blocks}, after {when}", count(t.peak_bytes));
    row(out, "peak", &bytes(t.peak_bytes), &note)?;
    let note = format!("{} bytes in {}", count(t.live_bytes), counted(t.live_blocks, "block"));
    row(out, live_name(process), &bytes(t.live_bytes), &note)
}

fn row(out: &mut dyn Write, name: &str, value: &str, note: &str) -> io::Result<()> {
    let line = format!("  {name:<16} {value:>13}  {note}");
    writeln!(out, "{}", line.trim_end())
}

pub(crate) fn live_name(process: &Process) -> &'static str {
    match process.lifetime.end {
        End::Exited(_) => "live at exit",
        End::Running => "live now",
        End::Exec => "live at exec",
        End::Signaled(_) | End::Unknown => "live at the end",
    }
}

fn losses(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let said = process.completeness.losses.iter().filter(|loss| loss.count > 0);
    let mut said = said.peekable();
    if said.peek().is_some()
        || !process.completeness.notes.is_empty()
        || process.completeness.unmatched_frees > 0
    {
        writeln!(out, "\nMissing data")?;
    }
    for loss in said {
        writeln!(out, "  {:>10} {}", count(loss.count), loss.meaning)?;
    }
    if process.completeness.unmatched_frees > 0 {
        let n = count(process.completeness.unmatched_frees);
        writeln!(out, "  {n:>10} frees of blocks whose allocation was not recorded")?;
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
