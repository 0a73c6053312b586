//! The options of exports, views, differences and merging.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_command::growth::Limit;
use heaptide_command::selection::{Origins, Selection, Source};
use heaptide_command::values;
use heaptide_render::flamegraph::{Drawing, Lanes, Order, Outermost};

use super::format::{Format, metric_parser};

/// `heaptide export`.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_EXAMPLE)]
pub struct ExportOptions {
    #[command(flatten)]
    pub source: Source,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Metric to export, for single-metric formats
    #[arg(long, alias = "measure", value_name = "METRIC", value_parser = metric_parser(),
        hide_possible_values = true, default_value = "at_peak_bytes")]
    pub metric: Measure,
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
    /// Append the block count to each stack (folded)
    #[arg(long)]
    pub annotate: bool,
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

/// What stacks are of.
#[derive(Args, Debug, Default)]
pub struct Frames {
    /// Show scopes instead of functions
    #[arg(long, conflicts_with = "scopes_and_stacks")]
    pub scopes: bool,
    /// Show scopes as outer frames of the functions that allocate in them
    #[arg(long)]
    pub scopes_and_stacks: bool,
}

impl Frames {
    /// What is inside the scopes; none where scopes are no frames.
    pub fn in_scopes(&self) -> Option<Inside> {
        match (self.scopes, self.scopes_and_stacks) {
            (true, _) => Some(Inside::Nothing),
            (_, true) => Some(Inside::Functions),
            _ => None,
        }
    }

    /// Where joined processes are kept apart.
    pub fn apart(&self, origins: &Origins) -> Apart {
        match self.in_scopes() {
            Some(_) => origins.in_scopes(),
            None => origins.in_stacks(),
        }
    }
}

/// How a flame graph is drawn.
#[derive(Args, Debug)]
pub struct Picture {
    /// Draw outermost functions at the top
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub icicle: bool,
    /// Draw allocating functions at the root and their callers on top of them
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub bottom_up: bool,
    /// Width of the image [default: the width of its window]
    #[arg(long, value_name = "PIXELS", help_heading = FLAME_GRAPHS,
        value_parser = clap::value_parser!(u32).range(300..=100_000))]
    pub width: Option<u32>,
    /// Title [default: command line and metric]
    #[arg(long, value_name = "TEXT", help_heading = FLAME_GRAPHS)]
    pub title: Option<String>,
}

const FLAME_GRAPHS: &str = "Flame graphs";

impl Picture {
    /// Whether anything of it is asked for.
    pub fn is_asked_for(&self) -> bool {
        self.icicle || self.bottom_up || self.width.is_some() || self.title.is_some()
    }

    /// The drawing it describes.
    pub fn drawing(&self, measure: Measure, lanes: Lanes) -> Drawing {
        Drawing {
            measure,
            order: if self.bottom_up { Order::Callers } else { Order::Calls },
            lanes,
            outermost: if self.icicle { Outermost::Top } else { Outermost::Bottom },
            width: self.width,
            title: self.title.clone(),
        }
    }
}

/// What `export` writes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// Lines `outermost;…;innermost VALUE` for flamegraph.pl and speedscope
    Folded,
    /// SVG flame graph
    Flamegraph,
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
    /// Directory of Parquet files for DuckDB, pandas, polars and Spark (requires heaptide-sql)
    Parquet,
}

/// `heaptide histogram`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide histogram app.heaptide")]
pub struct HistogramOptions {
    #[command(flatten)]
    pub source: Source,
    /// Output format: text with bars, json with the numbers
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show at most N exact sizes [default: 20 as text, all as json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Sort exact sizes by this metric
    #[arg(long, value_name = "METRIC", value_parser = metric_parser(), hide_possible_values = true,
        default_value = "allocations")]
    pub sort: Measure,
    #[command(flatten)]
    pub selection: Selection,
}

/// `heaptide timeline`.
#[derive(Args, Debug)]
#[command(after_help = TIMELINE_EXAMPLE)]
pub struct TimelineOptions {
    #[command(flatten)]
    pub source: Source,
    /// Output format: text with a chart, json or csv with the samples
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TimelineFormat,
    /// Plot live bytes of matching sites across snapshots
    #[arg(long, value_name = "[KIND:]REGEX")]
    pub site: Option<String>,
    /// Draw N columns wide [default: width of the terminal, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(32..=1012))]
    pub width: Option<u16>,
    #[command(flatten)]
    pub selection: Selection,
}

const TIMELINE_EXAMPLE: &str = "\
Example:
  heaptide timeline app.heaptide
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
}

/// `heaptide leaks`.
#[derive(Args, Debug)]
#[command(after_help = LEAKS_EXAMPLE)]
pub struct LeaksOptions {
    #[command(flatten)]
    pub source: Source,
    /// File of suppressions in the format of LeakSanitizer (`leak:PATTERN`). Can be repeated
    #[arg(long, value_name = "FILE")]
    pub suppressions: Vec<PathBuf>,
    /// Disable the built-in suppressions for the C and C++ libraries and the dynamic linker
    #[arg(long)]
    pub no_built_in: bool,
    /// Output format: text for reading, json with all leaks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show at most N leaks
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub selection: Selection,
}

const LEAKS_EXAMPLE: &str = "\
Example:
  heaptide leaks app.heaptide --suppressions known-leaks.txt || echo \"new leaks\"";

/// `heaptide peak`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide peak app.heaptide --top 20")]
pub struct PeakOptions {
    #[command(flatten)]
    pub source: Source,
    /// Output format: text for reading, json with all sites
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show at most N rows
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub selection: Selection,
}

/// `heaptide diff`.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLE)]
pub struct DiffOptions {
    /// Baseline recording, or a profile in it; REC@N is snapshot N of REC
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// Recording to compare with it, in the same form
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Metric to compare [default: at_peak_bytes]
    #[arg(long, alias = "measure", value_name = "METRIC", value_parser = metric_parser(),
        hide_possible_values = true)]
    pub metric: Option<Measure>,
    /// Show one row for each KIND [default: function, or scope without stacks]
    #[arg(long, value_name = "KIND")]
    pub by: Option<DiffBy>,
    /// Output format: text for reading, json with all changed rows, svg as a flame graph
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DiffFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Show at most N rows [default: 20, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if the total grew by more than LIMIT, such as 5%, 4096, 64K or 1M
    #[arg(long, value_name = "LIMIT")]
    pub fail_above: Option<Limit>,
    /// Recording whose values are the widths of boxes [default: after]
    #[arg(long, value_name = "SIDE")]
    pub widths: Option<Widths>,
    /// Scale the values of A to the total of B, to show changes in proportion
    #[arg(long)]
    pub normalize: bool,
    /// Count from the start of the program, ignoring resets
    #[arg(long)]
    pub from_start: bool,
    #[command(flatten)]
    pub selection: Selection,
}

const DIFF_EXAMPLE: &str = "\
Example:
  heaptide diff before.heaptide after.heaptide --metric live_bytes
  heaptide diff main.heaptide branch.heaptide --fail-above 5%
  heaptide diff app.heaptide@1 app.heaptide@2 --by stack --metric live_bytes
  heaptide diff before.heaptide after.heaptide --format svg -o change.svg";

/// What a row of a difference stands for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffBy {
    /// A function
    Function,
    /// A whole stack
    Stack,
    /// A scope path
    Scope,
}

/// Output formats of `diff`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffFormat {
    /// For reading
    Text,
    /// All changed rows, for scripts
    Json,
    /// Differential flame graph
    Svg,
}

/// Whose values are the widths of boxes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widths {
    /// Values of A: shows memory that is gone
    Before,
    /// Values of B: shows memory that is new
    After,
}

/// `heaptide merge`.
#[derive(Args, Debug)]
#[command(after_help = MERGE_EXAMPLE)]
pub struct MergeOptions {
    /// Recordings to merge
    #[arg(value_name = "REC", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Recording to write, a directory
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    pub output: PathBuf,
    /// Replace an existing recording
    #[arg(long)]
    pub force: bool,
}

const MERGE_EXAMPLE: &str = "\
Example:
  heaptide merge node*/app.heaptide -o all.heaptide && heaptide report all.heaptide --by rank";
