//! `heaptide timeline`: a process over time, or some of its sites over its snapshots.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::model::{DamagedFile, Measure, Process, Recording};
use heaptide_analysis::recording::snapshot::{Reference, Snapshot};
use heaptide_analysis::selection::filter::Filter;
use heaptide_analysis::selection::pattern::BadPattern;
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::Content;
use heaptide_command::progress::Progress;
use heaptide_command::select::Selected;
use heaptide_command::selection::{Selection, Source, Which};
use heaptide_command::snapshots::{self, image_of, image_of_snapshot};
use heaptide_command::source::{Empty, Reader, View, Workers};
use heaptide_command::{damage, output, source, target};
use heaptide_render::export::timeline_csv;
use heaptide_render::shared::views::{Moment, of_process};
use heaptide_render::{chart, json, text};

/// `heaptide timeline`.
#[derive(Args, Debug)]
#[command(after_help = TIMELINE_EXAMPLE)]
pub struct TimelineOptions {
    #[command(flatten)]
    pub source: Source,
    /// Output format: text with a chart, json or csv with the samples, svg or png with a picture
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TimelineFormat,
    /// File to write a picture to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub force: bool,
    /// With --format csv, write the accounts of resident memory instead of the samples
    #[arg(long, conflicts_with = "site")]
    pub accounts: bool,
    /// Plot live bytes of matching sites across snapshots
    #[arg(long, value_name = "[KIND:]REGEX")]
    pub site: Option<String>,
    /// Width: 32 to 1012 columns of text, 400 to 10000 pixels of a picture [default: width of the
    /// terminal, or 100; 1200 pixels]
    #[arg(long, value_name = "N")]
    pub width: Option<u32>,
    #[command(flatten)]
    pub selection: Selection,
}

const TIMELINE_EXAMPLE: &str = "\
Example:
  heaptide timeline app.heaptide
  heaptide timeline app.heaptide --format svg -o memory.svg
  heaptide run --snapshot-every 1s -o app.heaptide -- ./app
  heaptide timeline app.heaptide --site Cache::insert";

/// Output formats of `timeline`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimelineFormat {
    /// Chart
    Text,
    /// Samples, marks, windows and snapshots
    Json,
    /// Samples, one per line
    Csv,
    /// Chart as a vector image
    Svg,
    /// Chart as a raster image
    Png,
}

impl TimelineFormat {
    fn picture(self) -> Option<chart::Format> {
        match self {
            TimelineFormat::Svg => Some(chart::Format::Svg),
            TimelineFormat::Png => Some(chart::Format::Png),
            TimelineFormat::Text | TimelineFormat::Json | TimelineFormat::Csv => None,
        }
    }
}

/// The number of columns if the output is not a terminal.
const DEFAULT_COLUMNS: usize = 100;

/// The range of widths of a text chart, in columns.
const COLUMNS: (u32, u32) = (32, 1012);

/// Prints the charts or the numbers.
pub fn timeline(options: &TimelineOptions) -> Outcome {
    check(options)?;
    let site = Site::from_options(options)?;
    let source = target::resolve(&options.source)?;
    // Snapshots are those of one image, and JSON contains all of them.
    let is_joined = site.is_none() && options.format != TimelineFormat::Json;
    let workers = if is_joined { Workers::Joined } else { Workers::Each };
    let is_chart = options.format == TimelineFormat::Text || options.format.picture().is_some();
    let reader = if is_chart && site.is_none() { Reader::Person } else { Reader::Program };
    let view = View { workers, reader, ..View::default() };
    let selected = source::open_view(&source, &options.selection, view)?;
    let snapshots = readable_snapshots(&source, &selected.recording)?;
    if let Some(site) = site {
        return over_snapshots(options, &site, selected, &snapshots);
    }
    if options.format == TimelineFormat::Json {
        let (recording, pid) = (&selected.recording, selected.pid);
        output::print(|out| json::timeline::write(out, recording, pid, &snapshots))?;
        return Ok(());
    }
    let process = selected.largest(Measure::PeakBytes)?;
    if options.format == TimelineFormat::Csv {
        let write =
            if options.accounts { timeline_csv::write_accounts } else { timeline_csv::write };
        output::print(|out| write(out, process))?;
        return Ok(());
    }
    let own: Vec<Snapshot> = of_process(&snapshots, process).cloned().collect();
    if let Some(format) = options.format.picture() {
        let width = options.width.unwrap_or(chart::WIDTH);
        return picture(options, |out| chart::timeline::write(out, process, &own, format, width));
    }
    output::print_page(|out| text::timeline::write(out, process, &own, width(options)))?;
    Ok(())
}

/// Checks the options, before the recording is read.
fn check(options: &TimelineOptions) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::new(reason));
    if options.accounts && options.format != TimelineFormat::Csv {
        let reason = "--accounts requires --format csv; JSON always contains accounts";
        return refuse(reason.to_owned());
    }
    let is_picture = options.format.picture().is_some();
    if options.output.is_some() && !is_picture {
        return refuse("--output requires --format svg or png".to_owned());
    }
    let (least, most) = if is_picture { chart::WIDTHS } else { COLUMNS };
    match options.width {
        Some(width) if !(least..=most).contains(&width) => {
            refuse(format!("--width {width}: expected {least} to {most}"))
        }
        _ => {
            options.output.as_deref().map_or(Ok(()), |path| output::may_write(path, options.force))
        }
    }
}

/// Writes a picture to the file, or to standard output.
fn picture(
    options: &TimelineOptions,
    draw: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Outcome {
    output::write_or_print(options.output.as_deref(), options.force, Content::Data, draw)?;
    Ok(())
}

/// A part of the process, selected by `--site` or filters. The timeline itself covers the whole
/// process.
struct Site {
    /// The filter of `--site`, in addition to the filters of the selection; empty without `--site`.
    filter: Filter,
    says: String,
}

impl Site {
    /// Returns the selected part; none if everything is selected.
    fn from_options(options: &TimelineOptions) -> Result<Option<Site>, Error> {
        let Some(says) = options.site.clone() else {
            let says = "the filters".to_owned();
            let filters = options.selection.filters();
            return Ok(filters.then(|| Site { filter: Filter::default(), says }));
        };
        let pattern = says.parse().map_err(|e: BadPattern| Error::new(format!("--site {e}")))?;
        Ok(Some(Site { filter: Filter { focus: vec![pattern], ..Filter::default() }, says }))
    }

    fn apply(&self, process: &mut Process) {
        if !self.filter.is_empty() {
            self.filter.apply(process, &format!("--site {}", self.says));
        }
    }
}

fn width(options: &TimelineOptions) -> usize {
    let terminal = || terminal_size::terminal_size().map(|(width, _)| u32::from(width.0));
    options.width.or_else(terminal).map_or(DEFAULT_COLUMNS, |columns| columns as usize)
}

/// Returns the readable snapshots of a recording; none if the source is a snapshot. Unreadable ones
/// are reported.
fn readable_snapshots(source: &Source, recording: &Recording) -> Result<Vec<Snapshot>, Error> {
    if source.snapshot.is_some() {
        return Ok(Vec::new());
    }
    let directory = if recording.path.is_dir() {
        &recording.path
    } else {
        recording.path.parent().unwrap_or(Path::new("."))
    };
    let mut all = snapshots::list(directory, recording)?;
    let damaged = all.iter().filter_map(|snapshot| {
        let reason = snapshot.damaged.clone()?;
        Some(DamagedFile { path: snapshot.file.clone(), reason })
    });
    damage::report(&recording.path, &damaged.collect::<Vec<_>>());
    all.retain(|snapshot| snapshot.damaged.is_none());
    Ok(all)
}

/// Shows the selected part at each snapshot of the process and at the end.
fn over_snapshots(
    options: &TimelineOptions,
    site: &Site,
    mut selected: Selected,
    snapshots: &[Snapshot],
) -> Outcome {
    let which = image_of(selected.largest(Measure::PeakBytes)?);
    let processes = &mut selected.recording.processes;
    processes.retain(|process| image_of(process) == which);
    for process in processes {
        site.apply(process);
    }
    let process = selected.first()?;
    let recording = &selected.recording;
    let own = snapshots.iter().filter(|s| is_joined(options) || image_of_snapshot(s) == which);
    let mut own: Vec<&Snapshot> = own.collect();
    own.sort_by_key(|snapshot| snapshot.number);
    own.dedup_by_key(|snapshot| snapshot.number);
    let (path, who) = (recording.path.display(), process.who());
    if own.is_empty() {
        return Err(Stop::negative(format_args!(
            "{path}: no snapshots of {who}; --site and filters require them; \
             record some with `heaptide run --snapshot-every 1s`"
        )));
    }
    let progress = Progress::start("reading snapshots");
    let mut moments = Vec::with_capacity(own.len() + 1);
    for (done, snapshot) in own.iter().enumerate() {
        progress.at("reading snapshots", done, own.len());
        moments.extend(at(options, site, &recording.path, process, snapshot)?);
    }
    moments.push(moment(process, None, "", process.lifetime.duration_ns));
    drop(progress);
    if moments.iter().all(|moment| moment.allocations == 0) {
        return Err(Stop::negative(format_args!(
            "{path}: no allocation of {who} matches {}",
            site.says
        )));
    }
    let says = &site.says;
    match options.format {
        TimelineFormat::Json => output::print(|out| {
            json::timeline::write_site(out, recording, process, says, &moments)
        })?,
        TimelineFormat::Csv => output::print(|out| timeline_csv::write_site(out, &moments))?,
        TimelineFormat::Text => output::print_page(|out| {
            text::timeline::write_site(out, process, says, &moments, width(options))
        })?,
        TimelineFormat::Svg | TimelineFormat::Png => {
            let format = options.format.picture().unwrap_or(chart::Format::Svg);
            let width = options.width.unwrap_or(chart::WIDTH);
            return picture(options, |out| {
                chart::timeline::write_site(out, process, says, &moments, format, width)
            });
        }
    }
    Ok(())
}

fn is_joined(options: &TimelineOptions) -> bool {
    options.selection.process == Some(Which::All)
}

/// Returns that part at a snapshot; none if the snapshot does not contain the process.
fn at(
    options: &TimelineOptions,
    site: &Site,
    path: &Path,
    process: &Process,
    snapshot: &Snapshot,
) -> Result<Option<Moment>, Stop> {
    let (path, number, name) = (path.to_owned(), snapshot.number, &snapshot.name);
    let of = Source {
        recording: Some(path),
        snapshot: Some(Reference::Number(number)),
        ..options.source.clone()
    };
    let view = View { empty: Empty::Shown, workers: Workers::Each, ..View::default() };
    let mut then = source::apply(&of, &options.selection, view)?;
    let is_it = |p: &&mut Process| is_joined(options) || image_of(p) == image_of(process);
    let found = then.processes.iter_mut().find(is_it).map(|process| {
        site.apply(process);
        moment(process, Some(number), name, snapshot.time_ns)
    });
    Ok(found)
}

/// Returns what was live in a process.
fn moment(process: &Process, snapshot: Option<u32>, name: &str, time_ns: u64) -> Moment {
    let totals = &process.totals;
    Moment {
        snapshot,
        name: name.to_owned(),
        time_ns,
        live_blocks: totals.live_blocks,
        live_bytes: totals.live_bytes,
        allocations: totals.allocations,
    }
}
