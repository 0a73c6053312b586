//! The options of exports, views, differences and merging.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heaptide_analysis::join::Apart;
use heaptide_analysis::measure::Measure;
use heaptide_analysis::scope_frames::Inside;
use heaptide_render::flamegraph::{Drawing, Lanes, Order, Outermost};

use crate::growth::Limit;
use crate::values;

use super::{Format, Origins, Selection, Source, measure_parser};

/// `heaptide export`.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_EXAMPLE)]
pub struct ExportOptions {
    #[command(flatten)]
    pub source: Source,
    /// The format to write
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// The measure to write, where the format has but one
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true,
        default_value = "at_peak_bytes")]
    pub measure: Measure,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub frames: Frames,
    /// A tree or group for each lane (dot, folded, flamegraph, speedscope)
    #[arg(long)]
    pub per_lane: bool,
    /// Say at each stack how many blocks (folded)
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
  heaptide export --format folded --measure live_bytes | flamegraph.pl > live.svg";

/// What stacks are of.
#[derive(Args, Debug, Default)]
pub struct Frames {
    /// Show scopes in the place of functions
    #[arg(long, conflicts_with = "scopes_and_stacks")]
    pub scopes: bool,
    /// Show scopes, and inside them the functions that allocate there
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
    /// Draw the outermost functions at the top
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub icicle: bool,
    /// Start at the functions that allocate, and draw their callers above them
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub bottom_up: bool,
    /// Width of the picture [default: that of its window]
    #[arg(long, value_name = "PIXELS", help_heading = FLAME_GRAPHS,
        value_parser = clap::value_parser!(u32).range(300..=100_000))]
    pub width: Option<u32>,
    /// The line above it [default: command and measure]
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
    /// Lines `outermost;…;innermost VALUE`, as flamegraph.pl and speedscope read them
    Folded,
    /// A flame graph as SVG
    Flamegraph,
    /// JSON for speedscope.app, a profile for each measure
    Speedscope,
    /// For `go tool pprof`, Parca and Pyroscope
    Pprof,
    /// JSON for profiler.firefox.com, with native allocations
    Firefox,
    /// A tree of scopes or calls for Graphviz
    Dot,
    /// For callgrind_annotate and KCachegrind
    Callgrind,
    /// Trace events for Perfetto and chrome://tracing: timeline, windows, marks
    Chrome,
    /// Everything, as `heaptide report --format json`
    Json,
    /// A table of sites
    Csv,
    /// A page for a browser, in one file
    Html,
    /// For ms_print and massif-visualizer
    Massif,
    /// A directory of Parquet files for DuckDB, pandas, polars and Spark, by heaptide-sql
    Parquet,
}

/// `heaptide histogram`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide histogram app.heaptide")]
pub struct HistogramOptions {
    #[command(flatten)]
    pub source: Source,
    /// text has bars, json the numbers
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show this many exact sizes [default: 20 as text, all as json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Order exact sizes by this measure
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true,
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
    /// text is a chart, json and csv are the samples
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TimelineFormat,
    /// Show the function, scope or label that matches over the snapshots that were taken
    #[arg(long, value_name = "[KIND:]REGEX")]
    pub site: Option<String>,
    /// Draw in this many columns [default: those of the terminal, else 100]
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
    /// A chart
    Text,
    /// Samples, marks, windows and snapshots
    Json,
    /// Samples, one a line
    Csv,
}

/// `heaptide leaks`.
#[derive(Args, Debug)]
#[command(after_help = LEAKS_EXAMPLE)]
pub struct LeaksOptions {
    #[command(flatten)]
    pub source: Source,
    /// File of lines `leak:PATTERN`, as LeakSanitizer reads them. Can be given several times
    #[arg(long, value_name = "FILE")]
    pub suppressions: Vec<PathBuf>,
    /// Show also what the C and C++ libraries and the dynamic linker keep for as long as they live
    #[arg(long)]
    pub no_built_in: bool,
    /// text is a page to read, json has every leak
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show this many leaks
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
    /// text is a page to read, json has every site
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show this many rows
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    #[command(flatten)]
    pub selection: Selection,
}

/// `heaptide diff`.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLE)]
pub struct DiffOptions {
    /// The recording before, or a profile in it; REC@N is snapshot N of REC
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The recording after, likewise
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// The measure to compare [default: at_peak_bytes]
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true)]
    pub measure: Option<Measure>,
    /// What a row stands for [default: function, or scope where there are no stacks]
    #[arg(long, value_name = "KIND")]
    pub by: Option<DiffBy>,
    /// text is a page to read; json has every row that changed; svg is a differential flame graph
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DiffFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Show this many rows [default: 20, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if the total grew by more than this: 5%, 4096, 64K or 1M
    #[arg(long, value_name = "LIMIT")]
    pub fail_above: Option<Limit>,
    /// Draw boxes as wide as the values of this recording [default: after]
    #[arg(long, value_name = "SIDE")]
    pub widths: Option<Widths>,
    /// Draw what grew more than the whole did: A's values are scaled to the total of B
    #[arg(long)]
    pub normalize: bool,
    /// Count from the start of the program, also where figures were reset
    #[arg(long)]
    pub from_start: bool,
    #[command(flatten)]
    pub selection: Selection,
}

const DIFF_EXAMPLE: &str = "\
Example:
  heaptide diff before.heaptide after.heaptide --measure live_bytes
  heaptide diff main.heaptide branch.heaptide --fail-above 5%
  heaptide diff app.heaptide@1 app.heaptide@2 --by stack --measure live_bytes
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
    /// A page to read
    Text,
    /// Every row that changed, for scripts
    Json,
    /// A differential flame graph
    Svg,
}

/// Whose values are the widths of boxes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widths {
    /// Those of A: what is gone is seen
    Before,
    /// Those of B: what is new is seen
    After,
}

/// `heaptide merge`.
#[derive(Args, Debug)]
#[command(after_help = MERGE_EXAMPLE)]
pub struct MergeOptions {
    /// The recordings to put together
    #[arg(value_name = "REC", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Directory to write
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    pub output: PathBuf,
    /// Replace an existing recording
    #[arg(long)]
    pub force: bool,
}

const MERGE_EXAMPLE: &str = "\
Example:
  heaptide merge node*/app.heaptide -o all.heaptide && heaptide report all.heaptide --by rank";
