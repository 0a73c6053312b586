//! The one table of options: flags, help, man pages and completions all come from here.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use heaptide_analysis::aggregate::GroupBy;
use heaptide_analysis::measure::Measure;
use heaptide_analysis::origin::Origin;

use crate::values;

mod query;
mod views;

pub use heaptide_reading::selection::{Origins, Selection, Source, Which};
pub use heaptide_reading::sql::SqlOptions;
pub use query::QueryOptions;
pub use views::{
    DiffBy, DiffFormat, DiffOptions, ExportFormat, ExportOptions, Frames, HistogramOptions,
    LeaksOptions, MergeOptions, PeakOptions, Picture, TimelineFormat, TimelineOptions, Widths,
};

/// Records every memory allocation of a program and says who allocates, what is live, and where.
#[derive(Parser, Debug)]
#[command(name = "heaptide", version, max_term_width = 100, after_help = EXAMPLE)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLE: &str = "\
Example:
  heaptide run -- python3 -c 'print(sum(range(10**6)))'
  heaptide report | less

Exit status: 0 done, 1 the answer is no (nothing recorded, no such process), 2 an error.
`heaptide run` exits with the status of the program, 128+n if signal n ended it.";

/// The commands, in the order of `--help`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program and record its allocations
    Run(RunOptions),
    /// Show where the memory went: totals, peak, leaks, temporaries, with stacks
    Report(ReportOptions),
    /// Show the call tree with inclusive and own values
    Tree(TreeOptions),
    /// Draw a flame graph
    Flamegraph(FlamegraphOptions),
    /// Show what was live when most was live
    Peak(PeakOptions),
    /// Show what was never freed; exit with status 1 if there is any
    Leaks(LeaksOptions),
    /// Show how many blocks of which sizes
    Histogram(HistogramOptions),
    /// Show live bytes and allocations over time
    Timeline(TimelineOptions),
    /// Compare two recordings, also of different builds
    Diff(DiffOptions),
    /// Ask anything: CalQL over the tables of recordings, and over .cali files
    Query(QueryOptions),
    /// Ask the tables in SQL, or from a prompt; by heaptide-sql, which is installed apart
    Sql(SqlOptions),
    /// Put recordings of several processes, ranks or runs together
    Merge(MergeOptions),
    /// Write a recording in the format of another tool
    Export(ExportOptions),
    /// Describe a recording: processes, modules, build-ids, losses, bounds
    Info(InfoOptions),
    /// Steer running programs: recording on and off, snapshots, marks, stack threshold, reset
    Ctl(CtlOptions),
    /// Write what programs are built with: headers, library, monitors, crate, Python package
    Sdk(SdkOptions),
    /// Print the path of libheaptide.so, for LD_PRELOAD without `heaptide run`
    #[command(after_help = LIBRARY_EXAMPLE)]
    Library,
    /// Write the man pages
    Man(ManOptions),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
}

const LIBRARY_EXAMPLE: &str = "\
Example:
  LD_PRELOAD=$(heaptide library) HEAPTIDE_OUTPUT=app.heaptide ./app";

/// How much `run` records.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals, threads and size histograms only
    Counters,
    /// And scopes, labels and pools; no stacks
    Scopes,
    /// And the exact stack of every allocation
    Stacks,
    /// And every single event, in order: lifetimes, who freed what
    Trace,
    /// Nothing: the program runs as without heaptide
    Off,
}

/// `heaptide run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLE)]
#[command(override_usage = "heaptide run [OPTIONS] [--] PROGRAM [ARG]...")]
pub struct RunOptions {
    /// Directory to record into [default: heaptide-PROGRAM-PID.heaptide]
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    pub output: Option<PathBuf>,
    /// How much to record [default: HEAPTIDE_MODE if it is set, else stacks]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Record the program itself only, not the processes it starts
    #[arg(long)]
    pub no_follow: bool,
    /// Load no library: the program has the recorder in it, round an allocator of its own
    #[arg(long, conflicts_with = "monitors")]
    pub no_preload: bool,
    /// Begin turned off, until the program or `heaptide ctl REC on` turns it on
    #[arg(long)]
    pub start_off: bool,
    /// Record stacks only of requests from this many bytes on, such as 4096, 4K or 1M
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub stacks_from: Option<u64>,
    /// Record stacks only of requests below this many bytes
    #[arg(long, value_name = "BYTES", value_parser = values::stacks_below)]
    #[arg(conflicts_with = "stacks_from")]
    pub stacks_below: Option<u64>,
    /// Tell the sizes of requests apart at each stack: exact sizes in every view, more to record
    #[arg(long)]
    pub by_size: bool,
    /// With --mode trace: record the stacks of frees too
    #[arg(long)]
    pub free_stacks: bool,
    /// With --mode trace: end the traces when they take this much disk, such as 500M or 2G
    #[arg(long, value_name = "BYTES", value_parser = values::bound)]
    pub max_size: Option<u64>,
    /// Take a snapshot at this interval, such as 500ms, 10s or 2m
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub snapshot_every: Option<Duration>,
    /// Take a snapshot when the program gets this signal, such as USR2
    #[arg(long, value_name = "SIGNAL", value_parser = values::signal)]
    pub snapshot_on: Option<i32>,
    /// Load this library too; it is called on each allocation. Can be given several times
    #[arg(long = "monitor", value_name = "LIB[:OPTIONS]")]
    pub monitors: Vec<OsString>,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Replace an existing recording
    #[arg(long)]
    pub force: bool,
    /// Unwind every stack from its top to its end, for tests
    #[arg(long = "no-reuse", hide = true)]
    pub no_reuse: bool,
    /// Program to run, looked up in PATH if it has no slash; everything after it is its own
    // One list, not two: else the options of the program would be taken for ours.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RunOptions {
    /// The program to run.
    pub fn program(&self) -> &OsStr {
        // The table requires one word at least.
        self.command.first().map_or(OsStr::new(""), |word| word)
    }

    /// Its name and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.command
    }
}

const RUN_EXAMPLE: &str = "\
Example:
  heaptide run -o build.heaptide -- g++ -O2 -c big.cc
  heaptide run --mode scopes --snapshot-every 10s -- ./server
  heaptide run --monitor ./libtotals.so:verbose -- ./app";

/// `heaptide report`.
#[derive(Args, Debug)]
#[command(after_help = REPORT_EXAMPLE)]
pub struct ReportOptions {
    #[command(flatten)]
    pub source: Source,
    /// text is a page to read; json has every site and every measure
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Order rows by this measure [default: at_peak_bytes]
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true)]
    pub sort: Option<Measure>,
    /// Show this many rows [default: 5 on the page, 20 in a table, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show one table of rows of this kind instead of the page
    #[arg(long, value_name = "KIND", value_parser = by_parser())]
    pub by: Option<Rows>,
    #[command(flatten)]
    pub selection: Selection,
}

const REPORT_EXAMPLE: &str = "\
Example:
  heaptide report app.heaptide --by function --sort temporary --top 20

Measures:
  allocations frees reallocations failed requested_bytes usable_bytes freed_bytes live_blocks
  live_bytes peak_bytes at_peak_blocks at_peak_bytes temporary cross_thread_frees largest_bytes
  frees_here freed_here_bytes";

/// Output formats of `report`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A page to read
    Text,
    /// Everything, for scripts
    Json,
}

/// `heaptide tree`.
#[derive(Args, Debug)]
#[command(after_help = TREE_EXAMPLE)]
pub struct TreeOptions {
    #[command(flatten)]
    pub source: Source,
    /// The measure to show
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true,
        default_value = "at_peak_bytes")]
    pub measure: Measure,
    /// Start at the functions that allocate and show their callers below them
    #[arg(long, conflicts_with = "scopes")]
    pub bottom_up: bool,
    /// Show the tree of scopes, not that of functions
    #[arg(long)]
    pub scopes: bool,
    /// Show a tree of scopes for each lane
    #[arg(long, requires = "scopes")]
    pub per_lane: bool,
    /// Leave out branches below this share of the whole
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub min_percent: f64,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub selection: Selection,
}

const TREE_EXAMPLE: &str = "\
Example:
  heaptide tree app.heaptide --bottom-up --measure live_bytes --min-percent 2
  heaptide tree app.heaptide --scopes --per-lane";

/// `heaptide flamegraph`.
#[derive(Args, Debug)]
#[command(after_help = FLAMEGRAPH_EXAMPLE)]
pub struct FlamegraphOptions {
    #[command(flatten)]
    pub source: Source,
    /// File to write, - for standard output [default: REC-name.svg beside the recording]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
    /// The measure that gives the boxes their width
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true,
        default_value = "at_peak_bytes")]
    pub measure: Measure,
    #[command(flatten)]
    pub frames: Frames,
    /// Draw a box for each lane, and on it what is of that lane
    #[arg(long)]
    pub per_lane: bool,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub picture: Picture,
    #[command(flatten)]
    pub selection: Selection,
}

const FLAMEGRAPH_EXAMPLE: &str = "\
Example:
  heaptide flamegraph app.heaptide -o leaks.svg --measure live_bytes
  heaptide flamegraph app.heaptide --bottom-up --icicle --width 2400 --title \"Who allocates\"";

/// `heaptide info`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide info app.heaptide")]
pub struct InfoOptions {
    #[command(flatten)]
    pub source: Source,
}

/// `heaptide ctl`.
#[derive(Args, Debug)]
#[command(after_help = CTL_EXAMPLE, disable_help_subcommand = true)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
#[command(override_usage = "heaptide ctl [OPTIONS] <REC|PID> <ACTION>")]
pub struct CtlOptions {
    /// Recording, for all programs that run in it, or the process id of one
    #[arg(value_name = "REC|PID")]
    pub target: PathBuf,
    /// Of the recording, this process only
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// What is to be done.
    #[command(subcommand)]
    pub action: Action,
}

const CTL_EXAMPLE: &str = "\
Example:
  heaptide ctl app.heaptide snapshot \"before the load\"
  heaptide ctl 4711 off

A running program answers at its next allocation; snapshot, on and off need no answer.";

/// What `ctl` does.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Record
    On,
    /// Record no allocations; frees of recorded blocks go on being counted
    Off,
    /// Take a snapshot, also of a program that is stopped or idle
    Snapshot {
        /// A name for it
        name: Option<String>,
    },
    /// Put a mark on the timeline
    Mark {
        /// Its name
        name: String,
    },
    /// Record stacks only of requests from this many bytes on; 0 for all
    Threshold {
        /// Bytes, such as 4096, 4K or 1M
        #[arg(value_parser = values::bytes)]
        bytes: u64,
        /// Of requests below that instead
        #[arg(long)]
        below: bool,
    },
    /// Count from here
    Reset,
    /// Publish what threads hold back, and take a sample
    Flush,
    /// Show whether it records, its threshold, snapshots and marks
    Status,
}

/// `heaptide sdk`.
#[derive(Args, Debug)]
#[command(after_help = SDK_EXAMPLE)]
pub struct SdkOptions {
    /// Directory to write into, made if missing; without it the files are listed
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

const SDK_EXAMPLE: &str = "\
Example:
  heaptide sdk ~/heaptide && export PKG_CONFIG_PATH=~/heaptide/lib/pkgconfig
  cc app.c $(pkg-config --cflags --libs heaptide)";

/// `heaptide man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide man ~/.local/share/man/man1 && man heaptide-run")]
pub struct ManOptions {
    /// Directory for one page a command; without it the main page goes to standard output
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

/// `heaptide completions`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  heaptide completions bash > ~/.local/share/bash-completion/completions/heaptide"
)]
pub struct CompletionsOptions {
    /// Shell to print for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// A measure by its name.
fn measure_parser() -> impl TypedValueParser<Value = Measure> {
    let names = Measure::all().iter().map(|m| m.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Measure>())
}

/// What rows of a report stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Groups of a process's sites.
    Sites(GroupBy),
    /// Groups of a recording's processes.
    Processes(Origin),
}

/// A kind of rows by its name.
fn by_parser() -> impl TypedValueParser<Value = Rows> {
    let sites = GroupBy::all().iter().map(|&by| (by.name(), Rows::Sites(by)));
    let processes = Origin::all().iter().map(|&by| (by.name(), Rows::Processes(by)));
    let all: Vec<(&str, Rows)> = sites.chain(processes).collect();
    let names = PossibleValuesParser::new(all.iter().map(|(name, _)| *name));
    names.try_map(move |name| {
        let found = all.iter().find(|(known, _)| *known == name);
        found.map(|(_, rows)| *rows).ok_or("no kind of rows")
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_is_sound_and_every_command_has_an_example() {
        let mut command = Options::command();
        command.clone().debug_assert();
        command.build();
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
        {
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example:\n  "), "{}", sub.get_name());
        }
    }

    fn run(line: &str) -> RunOptions {
        let options = Options::try_parse_from(line.split(' ')).expect("a good line");
        match options.command {
            Command::Run(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_after_the_program_is_its_own() {
        let options = run("heaptide run -o r ls -o x --mode counters --help -- -l");
        assert_eq!(options.output, Some(PathBuf::from("r")));
        assert_eq!(options.mode, None);
        let words = ["ls", "-o", "x", "--mode", "counters", "--help", "--", "-l"];
        assert_eq!(options.words(), words);
        assert_eq!(options.program(), "ls");
    }

    #[test]
    fn a_double_dash_may_end_the_options() {
        let options = run("heaptide run --quiet -- -strange -- -x");
        assert!(options.quiet);
        assert_eq!(options.program(), "-strange");
        assert_eq!(options.words()[1..], ["--", "-x"]);
    }

    #[test]
    fn ctl_takes_its_target_before_what_is_to_be_done() {
        let line = ["heaptide", "ctl", "--pid", "7", "a.heaptide", "threshold", "--below", "4K"];
        let Command::Ctl(ctl) = Options::try_parse_from(line).expect("a good line").command else {
            panic!("another command");
        };
        assert_eq!((ctl.target, ctl.pid), (PathBuf::from("a.heaptide"), Some(7)));
        assert!(matches!(ctl.action, Action::Threshold { bytes: 4096, below: true }));
        assert!(Options::try_parse_from(["heaptide", "ctl", "a.heaptide"]).is_err());
        assert!(Options::try_parse_from(["heaptide", "ctl", "a.heaptide", "mark"]).is_err());
    }

    #[test]
    fn measures_go_by_their_names() {
        let line = ["heaptide", "tree", "--measure", "live_bytes"];
        let options = Options::try_parse_from(line).expect("a measure");
        assert!(matches!(options.command, Command::Tree(t) if t.measure == Measure::LiveBytes));
        assert!(Options::try_parse_from(["heaptide", "tree", "--measure", "life"]).is_err());
    }
}
