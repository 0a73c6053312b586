//! `heaptide export`: converts a recording to the format of another tool.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::model::{Combine, Measure, Mode, Process, Recording};
use heaptide_analysis::trace::Replay;
use heaptide_analysis::views::highest::Highest;
use heaptide_analysis::views::lifetimes::Lifetimes;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::Content;
use heaptide_command::replayed::{for_page, replayed, replayed_of_lanes};
use heaptide_command::select::Selected;
use heaptide_command::selection::{Origins, Selection, Source};
use heaptide_command::snapshots::image_of;
use heaptide_command::source::{Reader, Values, View, Workers};
use heaptide_command::{output, source, values};
use heaptide_render::export::folded::{self, Notes};
use heaptide_render::export::heaptrack::Packing;
use heaptide_render::export::{
    callgrind, chrome, csv, dot, firefox, flamegraph, heaptrack, malloc_profiler, malloc_tag,
    massif, memray, pprof, speedscope, stacks,
};
use heaptide_render::json::report;
use heaptide_render::page::{self, Beside, Findings, SourceTexts};
use heaptide_render::shared::answer::Answer;
use heaptide_render::shared::branches::Lanes;
use heaptide_render::shared::subject::subject_says;
use heaptide_render::shared::views::Idle;

use crate::commands::{advise, lines, query};
use crate::options::{Frames, Picture, metric_parser, require_of_rows};
use crate::sql;

/// `heaptide export`.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_EXAMPLE)]
pub struct ExportOptions {
    #[command(flatten)]
    pub source: Source,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Metric to export, for single-metric formats [default: at_peak_bytes, with --scopes
    /// usable_bytes]
    #[arg(long, aliases = ["measure", "sort"], value_name = "METRIC")]
    #[arg(value_parser = metric_parser(), hide_possible_values = true)]
    pub metric: Option<Measure>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub frames: Frames,
    /// Write one tree or group for each thread (dot, folded, flamegraph, speedscope)
    #[arg(long, alias = "per-lane")]
    pub per_thread: bool,
    /// Merge boxes below this percentage of the total (dot, flamegraph) [default: 0.5 for dot, with
    /// --scopes 0; 0.1 for flamegraph]
    #[arg(long, value_name = "P", value_parser = values::percent)]
    pub min_percent: Option<f64>,
    /// Append the block count to each stack (folded)
    #[arg(long)]
    pub annotate: bool,
    /// How stacks are written (malloc-profiler)
    #[arg(long, value_name = "NAME=VALUE", hide = true)]
    pub malloc_profiler: Option<malloc_profiler::Choice>,
    // Headers of version 0.2 pass it.
    /// State of malloc-tag's trees in the program (malloc-tag)
    #[arg(long, value_name = "NAME=NUMBER,…", hide = true)]
    pub malloc_tag_state: Option<malloc_tag::State>,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub picture: Picture,
    #[command(flatten)]
    pub selection: Selection,
}

const EXPORT_EXAMPLE: &str = "\
Example:
  heaptide export app.heaptide --format pprof -o app.pb.gz && go tool pprof -top app.pb.gz
  heaptide export --format folded --metric live_bytes | flamegraph.pl > live.svg";

/// The formats of `export`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// Lines `outermost;…;innermost VALUE` for flamegraph.pl and speedscope
    Folded,
    /// SVG flame graph
    Flamegraph,
    /// All stacks with exact values of all metrics, function by function with file and line
    Stacks,
    /// JSON for speedscope.app, with one profile per metric
    Speedscope,
    /// For `go tool pprof`, Parca and Pyroscope
    Pprof,
    /// JSON for profiler.firefox.com, with native allocations
    Firefox,
    /// Call tree or scope tree for Graphviz
    Dot,
    /// For callgrind_annotate and KCachegrind
    Callgrind,
    /// Records with Caliper's attributes, for cali-query, caliper-reader and hatchet: each event of
    /// a trace, or else sums
    Cali,
    /// Trace events for Perfetto and chrome://tracing: timeline, windows, marks
    Chrome,
    /// All data, as `heaptide report --format json` prints it
    Json,
    /// Table of sites
    Csv,
    /// Self-contained web page
    Html,
    /// For ms_print and massif-visualizer
    Massif,
    /// For heaptrack_gui and heaptrack_print; compressed if FILE ends in .gz
    Heaptrack,
    /// For the reporters of memray 1.20: flamegraph, table, tree and others
    Memray,
    /// Output of MallocProfiler at exit: a line for each stack, with exact values
    MallocProfiler,
    /// The same without stacks
    #[value(hide = true)]
    MallocProfilerSummary,
    /// The same without summary and histograms
    #[value(hide = true)]
    MallocProfilerDump,
    /// The same function by function, with file and line
    #[value(hide = true)]
    MallocProfilerDetails,
    /// JSON of malloc-tag: the scopes of each thread, for its tools
    MallocTag,
    /// The same as its graph for Graphviz
    #[value(hide = true)]
    MallocTagDot,
    /// The same as its tree of text
    #[value(hide = true)]
    MallocTagTree,
    /// The same as its map of statistics
    #[value(hide = true)]
    MallocTagMap,
    /// Directory of Parquet files for DuckDB, pandas, polars and Spark (requires heaptide-sql)
    Parquet,
}

/// Writes to the file or to standard output.
pub fn export(options: &ExportOptions) -> Outcome {
    let metric = options.metric.unwrap_or(options.frames.metric());
    check(options, metric)?;
    if options.format == ExportFormat::Parquet {
        return sql::hand_over("--format parquet");
    }
    if options.format == ExportFormat::Cali {
        return cali(options);
    }
    let (frames, apart) = (&options.frames, options.frames.apart(&options.origins));
    // The tree of scopes has more details than scopes as frames.
    let tree = options.format == ExportFormat::Dot && frames.scopes;
    let inside = frames.in_scopes().filter(|_| !tree);
    let reader = match options.format {
        ExportFormat::Html | ExportFormat::Flamegraph => Reader::Person,
        _ => Reader::Program,
    };
    // A graph is for people, so numeric values of scopes are folded, but its functions are
    // unchanged.
    let values = if options.format == ExportFormat::Dot { Values::Folded } else { Values::Each };
    let workers = if is_of_all(options.format) { Workers::Each } else { Workers::Joined };
    let events = options.format == ExportFormat::Html;
    let view = View { inside, apart, reader, values, workers, events, ..View::default() };
    let (recording, mut answer) = match options.format {
        ExportFormat::Json => source::apply_answered(&options.source, &options.selection, view)?,
        _ => (source::apply(&options.source, &options.selection, view)?, Answer::default()),
    };
    let selected = Selected::new(recording, options.selection.pid())?;
    if reader == Reader::Program {
        source::report_estimates(&selected.recording);
    }
    let process =
        if is_of_all(options.format) { selected.first() } else { selected.largest(metric) };
    let process = process?;
    let is_tree_of_scopes = options.format == ExportFormat::Dot && process.mode == Mode::Scopes;
    let metric = match options.metric {
        None if is_tree_of_scopes => Measure::UsableBytes,
        _ => metric,
    };
    require(options, metric, &selected, process)?;
    let highest = match &options.malloc_profiler {
        _ if !has_highest(options.format) => None,
        Some(choice) => replayed_of_lanes(process, |lane| choice.counts(process, lane)),
        None => replayed(process),
    };
    let of_page = if options.format == ExportFormat::Html { for_page(process) } else { None };
    let findings = match options.format {
        ExportFormat::Html => {
            let (path, image) = (&selected.recording.path, image_of(process));
            advise::for_page(&options.source, &options.selection, path, image)?
        }
        _ => Findings::default(),
    };
    let is_page = options.format == ExportFormat::Html;
    if is_page && selected.pid.is_none() {
        answer.subject = subject_says(&selected.recording);
    }
    let sources = if is_page { lines::texts(process) } else { SourceTexts::new() };
    let has_events = options.format == ExportFormat::Heaptrack && process.has_trace();
    let replay = if has_events { Some(process.replay()?) } else { None };
    let replay = Cell::new(replay);
    let traced = Traced { answer, highest, of_page, findings, sources, replay };
    let write =
        |out: &mut dyn Write| write(out, options, metric, &selected.recording, process, &traced);
    output::write_or_print(options.output.as_deref(), options.force, Content::Data, write)?;
    Ok(())
}

/// Writes all processes in Caliper's format.
fn cali(options: &ExportOptions) -> Outcome {
    let recordings = source::open_all(std::slice::from_ref(&options.source), &options.selection)?;
    let failed = |error: heaptide_query::tables::Error| Error::new(error.to_string());
    let answer = query::in_calipers_format(&recordings).map_err(failed)?;
    let write = |out: &mut dyn Write| answer.write(out);
    output::write_or_print(options.output.as_deref(), options.force, Content::Data, write)?;
    Ok(())
}

/// Data besides the tables, as far as the format contains it.
struct Traced {
    /// What a view for people states first; of a page only the subject, since it contains the rest.
    answer: Answer,
    /// The findings of `advise`.
    findings: Findings,
    sources: SourceTexts,
    highest: Option<Highest>,
    of_page: Option<(OwnersOverTime, Lifetimes)>,
    /// The events, for the one format that has them all.
    replay: Cell<Option<Replay>>,
}

/// Returns whether the format contains the highest live bytes of stacks.
fn has_highest(format: ExportFormat) -> bool {
    use ExportFormat::{
        MallocProfiler, MallocProfilerDetails, MallocProfilerDump, MallocProfilerSummary, Stacks,
    };
    let of_tool =
        [MallocProfiler, MallocProfilerDetails, MallocProfilerDump, MallocProfilerSummary];
    format == Stacks || of_tool.contains(&format)
}

/// Returns whether a file of the format contains all process images.
fn is_of_all(format: ExportFormat) -> bool {
    matches!(format, ExportFormat::Chrome | ExportFormat::Json)
}

/// Checks the options before the recording is read.
fn check(options: &ExportOptions, measure: Measure) -> Result<(), Error> {
    use ExportFormat::{Callgrind, Dot, Firefox, Flamegraph, Folded, Pprof, Speedscope};
    let format = options.format;
    require_of_rows(measure)?;
    let refuse = |what: &str| Err(Error::new(format!("--format {}: {what}", name(format))));
    if options.annotate && format != Folded {
        return refuse("--annotate requires --format folded");
    }
    if options.min_percent.is_some() && ![Dot, Flamegraph].contains(&format) {
        return refuse("--min-percent requires --format dot or flamegraph");
    }
    if options.per_thread && ![Dot, Folded, Flamegraph, Speedscope].contains(&format) {
        return refuse("--per-thread requires dot, folded, flamegraph or speedscope");
    }
    if options.picture.is_asked_for() && format != Flamegraph {
        return refuse(
            "--flames, --bottom-up, --width and --title require \
             --format flamegraph",
        );
    }
    if [Callgrind, Firefox, Pprof].contains(&format) && measure.combine() == Combine::Max {
        return refuse(&format!(
            "{measure} cannot be summed over stacks; choose another metric with --metric"
        ));
    }
    if format == ExportFormat::Heaptrack && has_suffix(options, "zst") {
        return refuse("readers take FILE.zst for compressed by zstd; end its name in .gz or not");
    }
    let parquet = format == ExportFormat::Parquet;
    match options.output.as_deref() {
        None if parquet => refuse("output is a directory; name it with -o DIR"),
        Some(path) if parquet && output::is_stdout(path) => refuse(values::NO_DIRECTORY),
        Some(_) if parquet => Ok(()), // a directory, to which files are added
        Some(path) if !output::is_stdout(path) => output::may_write(path, options.force),
        _ if (format == Pprof || format == ExportFormat::Memray) && io::stdout().is_terminal() => {
            refuse("binary output to a terminal; write it to a file with -o FILE")
        }
        _ => Ok(()),
    }
}

/// Checks that the process has the stacks, scopes and metric that the format needs.
fn require(
    options: &ExportOptions,
    metric: Measure,
    selected: &Selected,
    process: &Process,
) -> Result<(), Stop> {
    use ExportFormat::{
        Callgrind, Dot, Firefox, Flamegraph, Folded, Heaptrack, Memray, Pprof, Speedscope, Stacks,
    };
    let format = options.format;
    let of_stacks =
        [Callgrind, Dot, Firefox, Flamegraph, Folded, Heaptrack, Memray, Pprof, Speedscope, Stacks];
    let scopes_only = format == Dot && process.mode == Mode::Scopes;
    if of_stacks.contains(&format) {
        match options.frames.in_scopes() {
            None if !scopes_only => selected.require_stacks(process)?,
            _ => selected.require_scopes(process)?,
        }
    }
    let allocations = process.totals.allocations;
    if format == Heaptrack && !process.has_trace() && allocations > heaptrack::ALLOCATIONS_MAX {
        let most = heaptrack::ALLOCATIONS_MAX;
        return Err(Error::new(format!(
            "--format heaptrack: {allocations} allocations, of which each is a line; at most \
             {most} are written; select fewer with --focus or --process"
        ))
        .into());
    }
    if [Dot, Flamegraph, Folded, Stacks].contains(&format) {
        selected.require_value(process, metric, "export")?;
    }
    Ok(())
}

fn write(
    out: &mut dyn Write,
    options: &ExportOptions,
    measure: Measure,
    recording: &Recording,
    process: &Process,
    traced: &Traced,
) -> io::Result<()> {
    let highest = traced.highest.as_ref();
    let lanes = if options.per_thread { Lanes::Apart } else { Lanes::Merged };
    match options.format {
        ExportFormat::Callgrind => callgrind::write(out, process, measure),
        ExportFormat::Chrome => chrome::write(out, recording, options.selection.pid()),
        ExportFormat::Csv => csv::write(out, process),
        ExportFormat::Dot => {
            let scopes = options.frames.scopes || process.mode == Mode::Scopes;
            let levels = options.selection.depth.map_or(usize::MAX, NonZeroUsize::get);
            let tree = if scopes { dot::Tree::Scopes { levels } } else { dot::Tree::Calls };
            let min_percent = options.min_percent;
            let is_filtered = options.selection.filters();
            let idle = if is_filtered { Idle::Omitted } else { Idle::Shown };
            dot::write(out, process, &dot::Drawing { measure, tree, lanes, min_percent, idle })
        }
        ExportFormat::Firefox => firefox::write(out, process, measure),
        ExportFormat::Flamegraph => {
            let (selection, least) = (&options.selection, options.min_percent);
            let drawing = options.picture.drawing(measure, lanes, selection, least);
            flamegraph::write(out, process, &drawing)
        }
        ExportFormat::Folded => {
            let notes = if options.annotate { Notes::Counts } else { Notes::None };
            folded::write(out, process, measure, lanes, notes)
        }
        ExportFormat::Massif => massif::write(out, process),
        ExportFormat::Memray => memray::write(out, process),
        ExportFormat::Heaptrack => {
            let packing = if has_suffix(options, "gz") { Packing::Gzip } else { Packing::None };
            let notes = heaptrack::write(out, process, traced.replay.take(), packing)?;
            notes.iter().for_each(|note| message(format_args!("{note}")));
            Ok(())
        }
        ExportFormat::MallocProfiler
        | ExportFormat::MallocProfilerSummary
        | ExportFormat::MallocProfilerDump
        | ExportFormat::MallocProfilerDetails => {
            let form = malloc_profiler_form(options.format);
            let choice = options.malloc_profiler.clone().unwrap_or_default();
            malloc_profiler::write(out, process, form, &choice, highest)
        }
        ExportFormat::MallocTag
        | ExportFormat::MallocTagDot
        | ExportFormat::MallocTagTree
        | ExportFormat::MallocTagMap => {
            let form = malloc_tag_form(options.format);
            let state = options.malloc_tag_state.clone().unwrap_or_default();
            malloc_tag::write(out, process, form, &state)
        }
        ExportFormat::Html => {
            let of_page = traced.of_page.as_ref();
            let beside = Beside {
                traced: of_page.map(|(over_time, lifetimes)| page::Traced { over_time, lifetimes }),
                findings: &traced.findings,
                subject: traced.answer.subject.as_deref(),
                sources: &traced.sources,
            };
            page::write(out, process, measure, &beside)
        }
        ExportFormat::Cali | ExportFormat::Parquet => {
            Err(io::Error::other("written without tables of one process"))
        }
        ExportFormat::Pprof => pprof::write(out, process, measure),
        ExportFormat::Stacks => stacks::write(out, process, measure, highest),
        ExportFormat::Speedscope => speedscope::write(out, process, measure, lanes),
        ExportFormat::Json => {
            let choice =
                report::Choice { sort: measure, top: None, process: options.selection.pid() };
            report::write(out, recording, &choice, &traced.answer)
        }
    }
}

fn malloc_profiler_form(format: ExportFormat) -> malloc_profiler::Form {
    match format {
        ExportFormat::MallocProfilerSummary => malloc_profiler::Form::Summary,
        ExportFormat::MallocProfilerDump => malloc_profiler::Form::Dump,
        ExportFormat::MallocProfilerDetails => malloc_profiler::Form::Details,
        _ => malloc_profiler::Form::Final,
    }
}

fn malloc_tag_form(format: ExportFormat) -> malloc_tag::Form {
    match format {
        ExportFormat::MallocTagDot => malloc_tag::Form::Dot,
        ExportFormat::MallocTagTree => malloc_tag::Form::Tree,
        ExportFormat::MallocTagMap => malloc_tag::Form::Map,
        _ => malloc_tag::Form::Json,
    }
}

/// Returns whether the name of the file to write ends in this suffix.
fn has_suffix(options: &ExportOptions, suffix: &str) -> bool {
    let extension = options.output.as_deref().and_then(Path::extension);
    extension.is_some_and(|extension| extension == suffix)
}

/// Returns the name of the format in options.
fn name(format: ExportFormat) -> String {
    let value = format.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
