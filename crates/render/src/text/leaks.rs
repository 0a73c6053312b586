//! Blocks that were never freed: stacks with live blocks, most bytes first, and what was
//! suppressed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Owners};
use heaptide_analysis::model::{
    End, ImageRole, Measure, Measures, Mode, Process, Recording, Searched, SearchedAt,
};
use heaptide_analysis::views::leaks::{Leak, Leaks, Origin, Used, counts};
use heaptide_analysis::views::memory::runtime_heap::RuntimeHeap;
use heaptide_analysis::views::suppressions::Suppressions;

use crate::shared::command_line::command_line;
use crate::shared::distinct_names::Labels;
use crate::shared::heading::{ending, live_name, removed_images};
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{bytes, count, counted, duration, percent};
use crate::shared::scope_path::scope_path;
use crate::shared::subject::subject_says;
use crate::shared::views::{LeaksBy, LeaksView};
use crate::text::caption::figures;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::{Screen, Style};
use crate::text::{estimates, stack_lines, table};

/// Default number of leaks of a process.
const ROWS: usize = 20;
/// Default number of leaks per process if there are several processes.
const ROWS_OF_SEVERAL: usize = 5;
/// Maximum number of processes whose leaks are shown.
const PAGES: usize = 5;
/// Maximum characters of a name.
const NAME: usize = 64;

/// Why objects of a Python program are not among its leaks, unless it ended by `os._exit`.
const FREED_BY_PYTHON: &str = "Objects that Python freed when it ended are not listed; `heaptide \
    peak`, or a snapshot before the end, shows them";
/// Which blocks are listed if it is known what Python freed when it ended.
const HELD_BEFORE: &str = "Python frees its objects when it ends; `--at-exit` lists only what is \
    left then";

/// The live blocks in the processes of a recording.
pub struct Found<'a> {
    /// Which process is the subject, if there are several.
    subject: Option<String>,
    /// Processes with leaks: the subject, then most bytes first.
    leaking: Vec<(&'a Process, Leaks)>,
    /// Processes without leaks, and processes whose live blocks do not count as leaks.
    others: Vec<(&'a Process, Leaks)>,
    /// Images that are no longer in the recording.
    removed: Option<String>,
}

impl<'a> Found<'a> {
    /// Finds the leaks of the selected processes.
    pub fn of(recording: &'a Recording, view: &LeaksView) -> Found<'a> {
        let found = recording.processes.iter().map(|p| (p, Leaks::of(p, view.suppressions)));
        Found::among(recording, found, view)
    }

    /// Finds the leaks of processes whose tables no longer contain suppressed blocks; `suppressed`
    /// holds what was removed from each.
    pub fn without_suppressed(
        recording: &'a Recording,
        suppressed: Vec<Vec<Used>>,
        view: &LeaksView,
    ) -> Found<'a> {
        let none = Suppressions::none();
        let leaks = |(p, used)| (p, Leaks { used, ..Leaks::of(p, &none) });
        Found::among(recording, recording.processes.iter().zip(suppressed).map(leaks), view)
    }

    fn among(
        recording: &Recording,
        found: impl Iterator<Item = (&'a Process, Leaks)>,
        view: &LeaksView,
    ) -> Found<'a> {
        let is_chosen = |p: &Process| view.process.is_none_or(|pid| pid == p.identity.pid);
        let found = found.filter(|(p, _)| is_chosen(p));
        let (mut leaking, others): (Vec<_>, Vec<_>) =
            found.partition(|(p, leaks)| counts(p) && !leaks.leaks.is_empty());
        let is_subject = |process: &Process| process.identity.role == ImageRole::Subject;
        leaking.sort_by_key(|(process, leaks)| (!is_subject(process), Reverse(leaks.bytes())));
        let of_all = || view.process.is_none();
        let subject = subject_says(recording).filter(|_| of_all());
        let removed = removed_images(&recording.removed).filter(|_| of_all());
        Found { subject, leaking, others, removed }
    }

    /// Returns whether there are leaks that are not suppressed, in a process that could have freed
    /// them.
    pub fn any(&self) -> bool {
        !self.leaking.is_empty()
    }
}

/// Writes the page.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, found: &Found, view: &LeaksView) -> io::Result<()> {
    processes(out, found, view)?;
    match &found.removed {
        Some(says) => writeln!(out, "\n{says}: their leaks are not listed"),
        None => Ok(()),
    }
}

fn processes(out: &mut Screen, found: &Found, view: &LeaksView) -> io::Result<()> {
    let Found { leaking, others, .. } = found;
    if let ([(process, leaks)], []) | ([], [(process, leaks)]) = (&leaking[..], &others[..]) {
        return page(out, process, leaks, view, view.top.unwrap_or(ROWS));
    }
    let images = |found: &[(&Process, Leaks)]| -> u64 {
        found.iter().map(|(process, _)| u64::from(process.identity.images)).sum()
    };
    let (of_leaking, of_others) = (images(leaking), images(others));
    let all = counted(of_leaking + of_others, "process image");
    // How many of joined images have live blocks is not known.
    let is_known = of_leaking == leaking.len() as u64;
    let with = if is_known { of_leaking.to_string() } else { "some".to_owned() };
    let blocks = if view.lost { "lost" } else { "live" };
    writeln!(out, "{all}, {with} with {blocks} blocks that are not suppressed, most first")?;
    if let Some(says) = found.subject.as_ref() {
        writeln!(out, "subject: {says}")?;
    }
    let (shown, rest) = leaking.split_at(leaking.len().min(PAGES));
    for (process, leaks) in shown {
        writeln!(out)?;
        page(out, process, leaks, view, view.top.unwrap_or(ROWS_OF_SEVERAL))?;
    }
    if !rest.is_empty() {
        writeln!(out, "\nAlso")?;
    }
    for (process, leaks) in rest {
        let (command, pid) = (command_line(process, 50), process.identity.pid);
        writeln!(out, "  {:>10}  {command} (--process {pid})", bytes(leaks.bytes()))?;
    }
    let uncounted = || others.iter().filter(|(p, leaks)| !counts(p) && !leaks.leaks.is_empty());
    let is_replaced = |process: &Process| process.lifetime.end == End::Exec;
    let replaced = uncounted().filter(|(process, _)| is_replaced(process)).count();
    let launchers = uncounted().filter(|(process, _)| !is_replaced(process)).count();
    let unsearched = others.iter().filter(|(p, _)| p.completeness.searched.is_none());
    let unsearched = if view.lost { unsearched.count() } else { 0 };
    if unsearched > 0 {
        let images = counted(unsearched as u64, "image");
        writeln!(
            out,
            "\n{images} not searched, such as those that were killed or executed another program"
        )?;
    }
    for (images, why) in [(replaced, "replaced by exec"), (launchers, "of launchers")] {
        if images > 0 {
            writeln!(out, "\n{} {why}: not counted", counted(images as u64, "image"))?;
        }
    }
    Ok(())
}

fn page(
    out: &mut Screen,
    process: &Process,
    leaks: &Leaks,
    view: &LeaksView,
    rows: usize,
) -> io::Result<()> {
    let (command, who) = (command_line(process, out.fit(60)), process.who());
    writeln!(out, "{} ({who}), {}", Style::Heading.of(command), ending(process))?;
    figures(out, process)?;
    let (origin, no_stacks) = match process.mode {
        Mode::Stacks => ("stack", ""),
        Mode::Scopes => ("scope path", "Recorded without stacks: by scope\n"),
        Mode::Counters if process.tables.lanes.len() == 1 => {
            ("thread", "Recorded with --mode counters: by thread, not by stack\n")
        }
        Mode::Counters => {
            ("process", "Recorded with --mode counters of several threads: only the sum is known\n")
        }
    };
    let held_ns = process.completeness.held_ns;
    let has_exited = matches!(process.lifetime.end, End::Exited(_));
    let live = match (process.completeness.searched, held_ns) {
        (None, _) if view.lost => return writeln!(out, "not searched when it ended"),
        (Some(Searched { time_ns, at }), _) => {
            let when = match at {
                SearchedAt::Exit => " at exit",
                SearchedAt::PythonEnds => " when Python began to end",
                SearchedAt::Running => "",
            };
            format!("lost{when}, after {}", duration(time_ns))
        }
        (None, None) => live_name(process).to_owned(),
        (None, Some(ns)) => {
            let end = if has_exited { "at exit" } else { "at the end" };
            format!("live when Python began to end, after {}, or {end}", duration(ns))
        }
    };
    let lost = process.completeness.uncounted_events();
    match leaks.leaks.len() as u64 {
        0 if lost > 0 => {
            writeln!(out, "{live}: nothing of what was recorded{}", suppressed_too(leaks))?;
        }
        0 => writeln!(out, "{live}: nothing{}", suppressed_too(leaks))?,
        n => {
            let [blocks, from] =
                [(leaks.blocks(), "block"), (n, origin)].map(|(n, w)| counted(n, w));
            let total = counted(leaks.bytes(), "byte");
            writeln!(
                out,
                "{}",
                Style::Heading.of(format!("{live}: {total} in {blocks} from {from}"))
            )?;
            out.write_all(no_stacks.as_bytes())?;
        }
    }
    if lost > 0 {
        let events = counted(lost, "event");
        writeln!(
            out,
            "{events} not recorded: more blocks can be live, or fewer (`heaptide info`)"
        )?;
    }
    if let Some(why) = no_leak_yet(process).filter(|_| !view.lost && held_ns.is_none()) {
        writeln!(out, "{}", Style::Warning.of(why))?;
    }
    if let Some(mapped) = mapped_by_program(process).filter(|_| !view.lost) {
        let says = format!(
            "{} that the program mapped and did not unmap are not listed; `heaptide report --kind mapped` \
             shows them",
            bytes(mapped)
        );
        writeln!(out, "{}", Style::Warning.of(says))?;
    }
    if !view.lost && process.has_python() && (has_exited || held_ns.is_some()) {
        let why = if held_ns.is_some() { HELD_BEFORE } else { FREED_BY_PYTHON };
        writeln!(out, "{}", Style::Warning.of(why))?;
    }
    if view.by != LeaksBy::Stack && process.mode == Mode::Stacks {
        by_owner(out, process, leaks, view.by, rows)?;
        return suppressions(out, leaks, view.suppressions);
    }
    let stacks = leaks.leaks.iter().take(rows).filter_map(|leak| match leak.origin {
        Origin::Stack(stack) => Some(stack),
        Origin::Scope(_) | Origin::Lane(_) | Origin::Process => None,
    });
    let labels = Labels::of_stacks(process, stacks);
    for leak in leaks.leaks.iter().take(rows) {
        writeln!(out)?;
        leak_rows(out, &labels, leak, leaks.bytes())?;
    }
    if leaks.leaks.len() > rows {
        let rest =
            leaks.leaks[rows..].iter().fold(0, |n, l| l.measures.live_bytes.saturating_add(n));
        let (more, all) = ((leaks.leaks.len() - rows) as u64, leaks.leaks.len());
        writeln!(out, "\n  {} in {} more; --top {all} shows all", bytes(rest), count(more))?;
    }
    suppressions(out, leaks, view.suppressions)
}

/// Writes leaks by the function that allocated, or by its line.
fn by_owner(
    out: &mut Screen,
    process: &Process,
    leaks: &Leaks,
    by: LeaksBy,
    rows: usize,
) -> io::Result<()> {
    let owners = Owners::of(process);
    let (owners, name) = match by {
        LeaksBy::Line => (owners.by_line(process), "line"),
        LeaksBy::Stack | LeaksBy::Function => (owners, "function"),
    };
    let mut sums: BTreeMap<Option<FunctionId>, Measures> = BTreeMap::new();
    for leak in &leaks.leaks {
        let Origin::Stack(stack) = leak.origin else { continue };
        let owner = owners.frame(process, stack).map(|frame| owners.functions.of_frame(frame));
        sums.entry(owner).or_default().add(&leak.measures);
    }
    let mut sums: Vec<(Option<FunctionId>, Measures)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, m)| Reverse((m.live_bytes, m.live_blocks)));
    let columns = Columns([
        right(6, "share"),
        right(10, "bytes"),
        estimates::column(process, Measure::LiveBytes),
        right(10, "blocks"),
        last(name),
    ]);
    writeln!(out)?;
    columns.heading(out)?;
    let frame = |owner: Option<FunctionId>| owner.map(|id| owners.functions.first_frame(id));
    let shown = &sums[..rows.min(sums.len())];
    let labels = Labels::of_ids(process, shown.iter().filter_map(|(owner, _)| frame(*owner)));
    for (owner, m) in shown {
        let name = match (frame(*owner), by) {
            (None, _) => "(no stack)".to_owned(),
            (Some(frame), LeaksBy::Line) => table::line_name(&labels, frame, out.fit(NAME)),
            (Some(frame), _) => table::function_name(&labels, frame, "", out.fit(NAME)),
        };
        let share = percent(m.live_bytes, leaks.bytes());
        let limits = estimates::cell(out, process, Measure::LiveBytes, m);
        let (size, blocks) = (out.bytes(m.live_bytes), out.count(m.live_blocks));
        columns.row(out, [share, size, limits, blocks, name])?;
    }
    match sums.len().saturating_sub(rows) {
        0 => Ok(()),
        more => writeln!(out, "\n  {more} more; --top {} shows all", sums.len()),
    }
}

/// Returns an addition to a message about no leaks, if some were suppressed.
fn suppressed_too(leaks: &Leaks) -> &'static str {
    if leaks.used.iter().any(|used| used.blocks > 0 || used.bytes > 0) {
        " that is not suppressed"
    } else {
        ""
    }
}

/// Returns the bytes of mappings for the data of the program that were live at its end, if they are
/// many and not address space that a runtime reserves.
fn mapped_by_program(process: &Process) -> Option<u64> {
    const STATED_MIN: u64 = 1 << 20;
    let is_left = process.completeness.leaves_mappings && RuntimeHeap::of(process).is_none();
    let mapped = process.mapped.as_ref().filter(|_| is_left)?;
    let own = mapped.classes.iter().filter(|(class, _)| class.is_of_program());
    let live = own.fold(0u64, |sum, (_, sums)| sum.saturating_add(sums.live_bytes));
    (live >= STATED_MIN).then_some(live)
}

/// Returns why live blocks of a process need not be leaks, if it did not exit.
fn no_leak_yet(process: &Process) -> Option<&'static str> {
    match process.lifetime.end {
        End::Exited(_) => None,
        End::Running => Some("Still running: these blocks are live and may be freed later"),
        End::Signaled(_) => Some("Killed: these blocks were live when the program was killed"),
        End::Exec => Some("Replaced by exec: these blocks do not count as leaks"),
        End::Detached => {
            Some("Detached: these blocks were live when the recording ended and may be freed later")
        }
        End::Unknown if process.identity.images > 1 => Some(
            "Ends differ or were not seen (`heaptide report --all-processes`): these blocks were \
             live when their process was last seen",
        ),
        End::Unknown => Some("End not seen: these blocks were live when the process was last seen"),
    }
}

fn leak_rows(out: &mut Screen, labels: &Labels, leak: &Leak, whole: u64) -> io::Result<()> {
    let (process, m) = (labels.process, &leak.measures);
    let of = match m.allocations {
        // After a reset, older blocks are live, too.
        n if n <= m.live_blocks => String::new(),
        n => format!(" of {}", count(n)),
    };
    let (share, size) = (percent(m.live_bytes, whole), counted(m.live_bytes, "byte"));
    let blocks = match m.live_blocks {
        0 if process.sampling.is_some() => "blocks that were not sampled".to_owned(),
        0 => "pool blocks".to_owned(),
        1 if of.is_empty() => "1 block".to_owned(),
        n => format!("{}{of} blocks", count(n)),
    };
    let limits = process.interval(Measure::LiveBytes, m);
    let limits = limits
        .map_or_else(String::new, |i| format!(" (95% interval {})", estimates::limits(out, i)));
    writeln!(out, "  {share:>6}  {size} in {blocks}{limits}")?;
    let stack = match leak.origin {
        Origin::Stack(stack) => stack,
        Origin::Scope(scope) => {
            return writeln!(out, "      {}", scope_path(process, scope, out.fit(NAME)));
        }
        Origin::Lane(lane) => {
            let lane = process.tables.lanes.get(lane.0 as usize).map_or("", |lane| &lane.name);
            return writeln!(out, "      thread {}", printable(lane));
        }
        Origin::Process => return writeln!(out, "      all threads"),
    };
    stack_lines::stack(out, labels, stack)
}

/// Writes what each suppression matched, in the format of LeakSanitizer, and which matched nothing.
fn suppressions(out: &mut Screen, leaks: &Leaks, by: &Suppressions) -> io::Result<()> {
    let names = by.names();
    let rows = || names.iter().zip(&leaks.used).enumerate();
    let is_used = |used: &Used| used.blocks > 0 || used.bytes > 0;
    let columns = Columns([right(9, "blocks"), right(13, "bytes"), last("pattern")]);
    if leaks.used.iter().any(is_used) {
        writeln!(out, "\nSuppressions used (--no-built-in disables the built-in ones)")?;
        columns.heading(out)?;
    }
    for (i, (name, used)) in rows().filter(|(_, (_, used))| is_used(used)) {
        let name = if i < by.written() {
            elide_middle(name, out.fit(NAME))
        } else {
            format!("built in: {name}")
        };
        columns.row(out, [count(used.blocks), count(used.bytes), name])?;
    }
    let idle = rows().filter(|(i, (_, used))| *i < by.written() && !is_used(used));
    let idle: Vec<&str> = idle.map(|(_, (name, _))| *name).collect();
    if idle.is_empty() {
        Ok(())
    } else {
        writeln!(out, "\nSuppressions not used: {}", elide_middle(&idle.join(", "), 200))
    }
}
