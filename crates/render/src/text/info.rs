//! The contents of a recording: processes and how they ended, modules, losses, limits, the
//! unwinder.

use std::io::{self, Write};

use heaptide_analysis::model::{Interception, Off, Process, Recording};
use heaptide_analysis::text::{of_path, printable};
use heaptide_analysis::views::memory::{At, Memory};

use crate::shared::accounts::allocator_says;
use crate::shared::annotations::mark_says;
use crate::shared::command_line::command_line;
use crate::shared::heading::{ended, place, removed_says, sampling_says, trace_says};
use crate::shared::hex::hex;
use crate::shared::losses::{meaning, of_unmatched};
use crate::shared::quantity::{bytes, count, counted, date, duration};
use crate::text::screen::{Screen, Style};

/// Writes the description.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, recording: &Recording) -> io::Result<()> {
    writeln!(out, "{}", of_path(&recording.path))?;
    writeln!(out, "  {}", sealed(recording))?;
    if !recording.unrecorded.is_empty() {
        writeln!(
            out,
            "  the program itself was not recorded: {}",
            printable(&recording.unrecorded)
        )?;
    }
    let images = recording.processes.len() as u64;
    writeln!(out, "  {}", counted(images, "process image"))?;
    for process in &recording.processes {
        writeln!(out)?;
        image(out, process)?;
    }
    if let Some(says) = removed_says(&recording.removed) {
        writeln!(out, "\nremoved: {says}")?;
    }
    for file in &recording.damaged {
        writeln!(out, "\nunreadable: {}", printable(&file.reason))?;
    }
    Ok(())
}

fn sealed(recording: &Recording) -> String {
    match (recording.sealed, &*recording.ran_after_sealing) {
        (false, _) => "not sealed: symbols are looked up on this machine".to_owned(),
        (true, []) => {
            "sealed: symbols are stored; the recording can be read on other machines".to_owned()
        }
        (true, images) => format!(
            "sealed on {}; {} ran later ({}): functions first called then have names only on this machine",
            date(recording.sealed_realtime_ns),
            counted(images.len() as u64, "process image"),
            printable(&images.join(", "))
        ),
    }
}

fn image(out: &mut Screen, p: &Process) -> io::Result<()> {
    let command = command_line(p, out.fit(70));
    let image = format!("pid {} image {}: {command}", p.identity.pid, p.identity.image);
    writeln!(out, "{}", Style::Heading.of(image))?;
    let mut row = |name: &str, value: String| writeln!(out, "  {name:<10} {}", printable(&value));
    row("program", p.identity.name_and_file())?;
    row(
        "parent",
        format!("{}{}", p.identity.ppid, if p.identity.forked { ", forked from it" } else { "" }),
    )?;
    if !p.identity.host.is_empty() {
        row("host", p.identity.host.clone())?;
    }
    if let Some(place) = place(p) {
        row("rank", place)?;
    }
    if let Some(run) = &p.identity.run {
        row("from", format!("run {}: {}", run.number, run.recording))?;
    }
    row("started", date(p.lifetime.start_realtime_ns))?;
    row("ended", ended(p))?;
    if let Some(part) = &p.completeness.part {
        row("counts", part.clone())?;
    }
    row("mode", p.mode_name().to_owned())?;
    if let Some(says) = sampling_says(p) {
        row("sampled", says)?;
    }
    if let Some(says) = trace_says(p) {
        row("trace", says)?;
    }
    row("file", of_path(&p.identity.file))?;
    let bound = match p.completeness.peak_bound_bytes {
        0 if p.completeness.off == Off::Never => "exact".to_owned(),
        0 => "exact while recording was on".to_owned(),
        bound => format!("exact within {} ({})", bytes(bound), counted(bound, "byte")),
    };
    let of_heap = if p.completeness.leaves_mappings { " of the heap" } else { "" };
    row("peak", format!("{}{of_heap}, {bound}", counted(p.totals.peak_bytes, "byte")))?;
    let threads: u64 = p.tables.lanes.iter().map(|lane| u64::from(lane.threads)).sum();
    row("threads", format!("{}, at most {} at a time", count(threads), p.tables.lanes_at_once))?;
    let (nodes, frames) = (p.tables.stacks.len().saturating_sub(1), p.tables.frames.len());
    let tables = [(p.tables.sites.len(), "site"), (nodes, "stack node"), (frames, "frame")];
    let tables = tables.map(|(n, what)| counted(n as u64, what));
    row("tables", tables.join(", "))?;
    let tables = [
        (p.tables.scopes.len().saturating_sub(1), "scope path"),
        (p.tables.labels.len(), "label"),
        (p.time.windows.len(), "window"),
        (p.time.marks.len(), "mark"),
    ];
    if tables.iter().any(|(n, _)| *n > 0) {
        row("names", tables.map(|(n, what)| counted(n as u64, what)).join(", "))?;
    }
    row("timeline", counted(p.time.samples.len() as u64, "sample"))?;
    if let Some(memory) = Memory::of(p, At::End) {
        let [resident, after] =
            [bytes(memory.account.resident_bytes), duration(memory.account.time_ns)];
        let own = memory.row("recorder").map_or(0, |row| row.resident_bytes);
        row("memory", format!("resident {resident} after {after}, the recorder's {}", bytes(own)))?;
    }
    let accounts = p.time.accounts.iter().rev();
    if let Some(says) = accounts.filter_map(allocator_says).next() {
        row("allocator", says)?;
    }
    let stepped = counted(p.unwinder.frames_stepped, "frame");
    let evaluated = counted(p.unwinder.rules_evaluated, "rule");
    row("unwinder", format!("{stepped} stepped, {evaluated} evaluated"))?;
    marks(out, p)?;
    interceptions(out, p)?;
    losses(out, p)?;
    modules(out, p)
}

fn marks(out: &mut Screen, p: &Process) -> io::Result<()> {
    if p.time.marks.is_empty() {
        return Ok(());
    }
    writeln!(out, "  marks")?;
    for mark in &p.time.marks {
        writeln!(out, "    {:>12} {}", duration(mark.time_ns), mark_says(mark))?;
    }
    Ok(())
}

fn losses(out: &mut Screen, p: &Process) -> io::Result<()> {
    if p.completeness.losses.is_empty()
        && p.completeness.unmatched_frees == 0
        && p.completeness.notes.is_empty()
        && p.completeness.in_part.is_none()
    {
        return writeln!(out, "  losses     none");
    }
    writeln!(out, "  losses")?;
    for loss in &p.completeness.losses {
        let meaning = meaning(std::iter::once(p), loss);
        writeln!(out, "    {:>12} {:<14} {meaning}", count(loss.count), loss.name)?;
    }
    if p.completeness.unmatched_frees > 0 {
        let (n, of) = (count(p.completeness.unmatched_frees), of_unmatched(p));
        writeln!(out, "    {n:>12} {:<14} frees of blocks {of}", "unmatched")?;
    }
    for note in p.completeness.in_part.iter().chain(&p.completeness.notes) {
        writeln!(out, "    {}", printable(note))?;
    }
    Ok(())
}

/// Writes the intercepted allocators of the program.
fn interceptions(out: &mut Screen, p: &Process) -> io::Result<()> {
    if p.completeness.interceptions.is_empty() {
        return Ok(());
    }
    writeln!(out, "  allocators")?;
    for Interception { module, functions, left_alone } in &p.completeness.interceptions {
        let module = if module.is_empty() { "a module without stacks" } else { module };
        // An allocator that replaces the C library's has no prefix.
        let functions = if functions.is_empty() { "malloc" } else { functions };
        let what = match left_alone {
            None => format!("intercepted in {module}: {functions}"),
            Some(why) => format!("not intercepted in {module}: {functions}{why}"),
        };
        writeln!(out, "    {}", printable(&what))?;
    }
    Ok(())
}

fn modules(out: &mut Screen, p: &Process) -> io::Result<()> {
    writeln!(out, "  modules    {}", p.tables.modules.len())?;
    for module in &p.tables.modules {
        let build_id = if module.build_id.is_empty() {
            "no build id".to_owned()
        } else {
            hex(&module.build_id)
        };
        let unloaded = if module.unloaded { " (unloaded)" } else { "" };
        let path = printable(&module.path);
        writeln!(out, "    {build_id:<40}  {path}{unloaded}")?;
    }
    Ok(())
}
