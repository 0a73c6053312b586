//! The composition of a process's resident memory at one time.

use std::io::{self, Write};

use heaptide_analysis::model::{Account, AccountCause, Process};
use heaptide_analysis::views::memory::{Memory, Row};

use crate::shared::accounts::{allocator_says, free_from, highest, missing_says};
use crate::shared::names::elide_middle;
use crate::shared::quantity::{bytes, counted, duration, percent};
use crate::text::caption::caption;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::Screen;

/// Characters of a name.
const NAME: usize = 64;

/// Writes the page of one process.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, process: &Process, memory: &Memory) -> io::Result<()> {
    let account = memory.account;
    caption(out, process)?;
    let (resident, time) = (bytes(account.resident_bytes), duration(account.time_ns));
    writeln!(out, "resident {resident} after {time}, {}\n", moment(process, account))?;
    if account.swap_bytes > 0 {
        with_swap(out, memory)?
    } else {
        without_swap(out, memory)?
    }
    let (accounted, resident) = (memory.accounted_bytes(), account.resident_bytes);
    let part = percent(accounted, resident);
    writeln!(out, "\naccounted for {} of {} ({part})", bytes(accounted), bytes(resident))?;
    if account.left_out_ranges > 0 {
        let mappings = counted(account.left_out_ranges.into(), "mapping");
        writeln!(
            out,
            "not recorded: {} in {mappings}, because there were too many",
            bytes(account.left_out_bytes)
        )?;
    }
    let (tables, absent) = (bytes(account.page_table_bytes), bytes(account.absent_bytes));
    writeln!(out, "mappings without a resident page: {absent}; page tables take {tables}")?;
    writeln!(out, "free memory of the heap: {}", free_from(account))?;
    let before = match (process.completeness.starts_in_middle, process.identity.forked) {
        (true, _) => Some("the recording began"),
        (false, true) => Some("the process was forked"),
        (false, false) => None,
    };
    if let Some(before) = before {
        writeln!(
            out,
            "blocks from before {before} are not recorded: they are part of the overhead"
        )?;
    }
    if let Some(says) = allocator_says(account) {
        writeln!(out, "allocator's own numbers by {says}")?;
    }
    let highest = highest(process);
    if highest > account.resident_bytes {
        writeln!(out, "highest resident memory of the process: {}", bytes(highest))?;
    }
    let missing = process.time.accounts.iter().find_map(|account| account.missing);
    missing.map_or(Ok(()), |missing| writeln!(out, "no later accounts: {}", missing_says(missing)))
}

/// Describes when an account was taken, as a continuation of its time.
fn moment(process: &Process, account: &Account) -> String {
    let end = match account.cause {
        AccountCause::End => "at the end",
        AccountCause::Now => "now",
        AccountCause::Sample | AccountCause::Peak => "",
    };
    let (peak, live) = (process.totals.peak_bytes, account.live_bytes);
    if live >= peak {
        return if end.is_empty() { "at peak usage".to_owned() } else { format!("{end} and peak") };
    }
    let (at, peak_at) = (account.time_ns, process.peak_time_ns);
    let away = match duration(at.abs_diff(peak_at)) {
        away if at < peak_at => format!("{away} before peak usage"),
        away => format!("{away} after peak usage"),
    };
    let below = bytes(peak - live);
    let end = if end.is_empty() { String::new() } else { format!("{end}, ") };
    format!("{end}{away} with {below} less live")
}

fn without_swap(out: &mut Screen, memory: &Memory) -> io::Result<()> {
    let columns =
        Columns([right(10, "resident"), right(7, "share"), right(10, "size"), last("memory")]);
    columns.heading(out)?;
    let width = out.fit(NAME);
    each_row(memory, |row, depth| {
        let [resident, share, size, _, name] = cells(memory, row, depth, width);
        columns.row(out, [resident, share, size, name])
    })
}

fn with_swap(out: &mut Screen, memory: &Memory) -> io::Result<()> {
    let columns = Columns([
        right(10, "resident"),
        right(7, "share"),
        right(10, "size"),
        right(10, "swap"),
        last("memory"),
    ]);
    columns.heading(out)?;
    let width = out.fit(NAME);
    each_row(memory, |row, depth| columns.row(out, cells(memory, row, depth, width)))
}

/// Calls a function for all rows, each before its children, with their depth.
fn each_row(
    memory: &Memory,
    mut write: impl FnMut(&Row, usize) -> io::Result<()>,
) -> io::Result<()> {
    fn visit(
        row: &Row,
        depth: usize,
        write: &mut dyn FnMut(&Row, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        write(row, depth)?;
        row.children.iter().try_for_each(|child| visit(child, depth + 1, write))
    }
    memory.rows.iter().try_for_each(|row| visit(row, 0, &mut write))?;
    let unexplained = Row {
        name: "unexplained".to_owned(),
        resident_bytes: memory.unexplained_bytes,
        size_bytes: memory.unexplained_bytes,
        ..Row::default()
    };
    write(&unexplained, 0)
}

fn cells(memory: &Memory, row: &Row, depth: usize, width: usize) -> [String; 5] {
    let indent = " ".repeat(2 * depth);
    [
        bytes(row.resident_bytes),
        percent(row.resident_bytes, memory.account.resident_bytes),
        bytes(row.size_bytes),
        bytes(row.swap_bytes),
        format!("{indent}{}", elide_middle(&row.name, width)),
    ]
}
