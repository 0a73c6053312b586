//! `heaptide timeline`: the process over time, or one function over the snapshots taken of it.

use std::path::Path;
use std::process::ExitCode;

use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::snapshot::{self, Snapshot};
use heaptide_render::timeline::{self, Moment};

use crate::NO;
use crate::error::Error;
use crate::options::{Selection, Source, TimelineFormat, TimelineOptions, Which};
use crate::source;

/// Columns where there is no terminal to ask.
const WIDTH: usize = 100;

/// Prints the charts or the numbers.
pub fn timeline(options: &TimelineOptions) -> Result<ExitCode, Error> {
    let pid = options.selection.pid();
    let recording = source::open(&options.source, &chosen(options))?;
    if !source::has(&recording, pid) {
        return Ok(ExitCode::from(NO));
    }
    let snapshots = snapshots(&options.source, &recording)?;
    if options.site.is_some() || options.selection.filters() {
        return over_snapshots(options, &recording, &snapshots);
    }
    if options.format == TimelineFormat::Json {
        source::print(|out| timeline::json(out, &recording, pid, &snapshots))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(process) = source::largest(&recording, pid, Measure::PeakBytes) else {
        return Ok(ExitCode::from(NO));
    };
    match options.format {
        TimelineFormat::Csv => source::print(|out| timeline::csv(out, process))?,
        _ => {
            let own: Vec<Snapshot> = timeline::of_process(&snapshots, process).cloned().collect();
            source::print_page(|out| timeline::write(out, process, &own, width(options)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The selection with what `--site` names.
fn chosen(options: &TimelineOptions) -> Selection {
    let mut selection = options.selection.clone();
    selection.focus.extend(options.site.clone());
    selection
}

fn width(options: &TimelineOptions) -> usize {
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    options.width.or_else(terminal).map_or(WIDTH, usize::from)
}

/// The snapshots beside the profiles of a recording, with their names; none of a snapshot.
fn snapshots(source: &Source, recording: &Recording) -> Result<Vec<Snapshot>, Error> {
    if source.snapshot.is_some() {
        return Ok(Vec::new());
    }
    let directory = match recording.path.is_dir() {
        true => &recording.path,
        false => recording.path.parent().unwrap_or(Path::new(".")),
    };
    let mut all = snapshot::all(directory)?;
    for process in &recording.processes {
        let marks = process.marks.iter().map(|m| (m.kind, m.number, &*m.name, m.time_ns));
        let is_its = |s: &&mut Snapshot| (s.pid, s.image) == (process.pid, process.image);
        for snapshot in all.iter_mut().filter(is_its) {
            snapshot::name_by_marks(std::slice::from_mut(snapshot), marks.clone());
        }
    }
    all.retain(|snapshot| snapshot.damaged.is_none());
    Ok(all)
}

/// What is selected of the process, at each of its snapshots and at the end.
fn over_snapshots(
    options: &TimelineOptions,
    recording: &Recording,
    snapshots: &[Snapshot],
) -> Result<ExitCode, Error> {
    let pid = options.selection.pid();
    let Some(process) = source::largest(recording, pid, Measure::UsableBytes) else {
        return Ok(ExitCode::from(NO));
    };
    let joined = options.selection.process == Some(Which::All);
    let own =
        snapshots.iter().filter(|s| joined || (s.pid, s.image) == (process.pid, process.image));
    let mut own: Vec<&Snapshot> = own.collect();
    own.sort_by_key(|snapshot| snapshot.number);
    own.dedup_by_key(|snapshot| snapshot.number);
    let (path, pid) = (recording.path.display(), process.pid);
    if own.is_empty() {
        eprintln!(
            "heaptide: {path}: no snapshots of pid {pid}, and only they tell functions apart over \
             time; take some with `heaptide run --snapshot-every 1s`"
        );
        return Ok(ExitCode::from(NO));
    }
    let mut moments = Vec::with_capacity(own.len() + 1);
    for snapshot in own {
        moments.extend(at(options, recording, process, snapshot)?);
    }
    moments.push(moment(process, None, ""));
    let site = options.site.as_deref().unwrap_or("the filters");
    if moments.iter().all(|moment| moment.allocations == 0) {
        eprintln!("heaptide: {path}: nothing of pid {pid} matches {site}");
        return Ok(ExitCode::from(NO));
    }
    match options.format {
        TimelineFormat::Json => {
            source::print(|out| timeline::json_site(out, recording, process, site, &moments))?
        }
        TimelineFormat::Csv => source::print(|out| timeline::csv_site(out, &moments))?,
        TimelineFormat::Text => source::print_page(|out| {
            timeline::write_site(out, process, site, &moments, width(options))
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is selected of the process at a snapshot; none if that has nothing of the process.
fn at(
    options: &TimelineOptions,
    recording: &Recording,
    process: &Process,
    snapshot: &Snapshot,
) -> Result<Option<Moment>, Error> {
    let (path, number) = (recording.path.clone(), snapshot.number);
    let of = Source { recording: Some(path), snapshot: Some(number), ..options.source.clone() };
    let then = source::open(&of, &chosen(options))?;
    let joined = options.selection.process == Some(Which::All);
    let is_it = |p: &&Process| joined || (p.pid, p.image) == (process.pid, process.image);
    let process = then.processes.iter().find(is_it);
    Ok(process.map(|process| moment(process, Some(number), &snapshot.name)))
}

fn moment(process: &Process, snapshot: Option<u32>, name: &str) -> Moment {
    let totals = &process.totals;
    Moment {
        snapshot,
        name: name.to_owned(),
        time_ns: process.duration_ns,
        live_blocks: totals.live_blocks,
        live_bytes: totals.live_bytes,
        allocations: totals.allocations,
    }
}
