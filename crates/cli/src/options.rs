//! The one table of options: flags, help, man pages and completions all come from here.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_command::selection::{Origins, Selection, Source};
use heaptide_command::sql::SqlOptions;
use heaptide_command::values;

mod format;
mod query;
mod run;
mod views;

pub use format::Format;
use format::metric_parser;
pub use query::QueryOptions;
pub use run::{Mode, RunOptions};
pub use views::{
    DiffBy, DiffFormat, DiffOptions, ExportFormat, ExportOptions, Frames, HistogramOptions,
    LeaksOptions, MergeOptions, PeakOptions, Picture, TimelineFormat, TimelineOptions, Widths,
};

/// The width of help texts.
const HELP_COLUMNS: usize = 100;

/// Record every memory allocation of a program; report peak usage, leaks, temporaries by stack.
#[derive(Parser, Debug)]
#[command(name = "heaptide", version, max_term_width = HELP_COLUMNS, after_help = EXAMPLE)]
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

Exit status: 0 success; 1 check failed or nothing found (leaks, a limit exceeded, nothing recorded);
2 error. `heaptide run` exits with the status of the program, or 128+n if signal n ended it.";

/// The commands, in the order of `--help`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program and record its allocations
    Run(RunOptions),
    /// Show totals, peak usage, leaks and temporary allocations with their stacks
    Report(ReportOptions),
    /// Show the call tree with inclusive and exclusive values
    Tree(TreeOptions),
    /// Draw a flame graph
    Flamegraph(FlamegraphOptions),
    /// Show allocations live at peak memory usage
    Peak(PeakOptions),
    /// Show memory that was never freed; exit with status 1 if there is any
    Leaks(LeaksOptions),
    /// Show the distribution of allocation sizes
    Histogram(HistogramOptions),
    /// Show live bytes and allocations over time
    Timeline(TimelineOptions),
    /// Compare two recordings, of the same build or of different builds
    Diff(DiffOptions),
    /// Run a CalQL query over recordings or .cali files
    Query(QueryOptions),
    /// Run SQL queries over recordings, or open a prompt (requires heaptide-sql)
    Sql(SqlOptions),
    /// Merge recordings of several processes, ranks or runs into one
    Merge(MergeOptions),
    /// Convert a recording to the format of another tool
    Export(ExportOptions),
    /// Describe a recording: processes, modules, build ids, losses, accuracy
    Info(InfoOptions),
    /// Control a running recording: on, off, snapshot, mark, stack threshold, reset
    Ctl(CtlOptions),
    /// Install the SDK: headers, library, monitors, Rust crate, Python package
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

/// `heaptide report`.
#[derive(Args, Debug)]
#[command(after_help = report_help())]
pub struct ReportOptions {
    #[command(flatten)]
    pub source: Source,
    /// Output format: text for reading, json with all sites and metrics
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Sort rows by this metric [default: at_peak_bytes]
    #[arg(long, value_name = "METRIC", value_parser = metric_parser(), hide_possible_values = true)]
    pub sort: Option<Measure>,
    /// Show at most N rows [default: 5 per section, 20 in a table, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show one table with a row for each KIND instead of the report
    #[arg(long, value_name = "KIND", value_parser = by_parser())]
    pub by: Option<Rows>,
    #[command(flatten)]
    pub selection: Selection,
}

const REPORT_EXAMPLE: &str = "\
Example:
  heaptide report app.heaptide --by function --sort temporary --top 20";

/// The example, and the metrics in lines that fit.
fn report_help() -> String {
    let mut help = format!("{REPORT_EXAMPLE}\n\nMetrics:\n ");
    let mut column = 1;
    for measure in Measure::all() {
        let width = 1 + measure.name().len();
        if column + width > HELP_COLUMNS {
            help.push_str("\n ");
            column = 1;
        }
        help.push_str(&format!(" {measure}"));
        column += width;
    }
    help
}

/// `heaptide tree`.
#[derive(Args, Debug)]
#[command(after_help = TREE_EXAMPLE)]
pub struct TreeOptions {
    #[command(flatten)]
    pub source: Source,
    /// Metric to show
    #[arg(long, alias = "measure", value_name = "METRIC", value_parser = metric_parser(),
        hide_possible_values = true, default_value = "at_peak_bytes")]
    pub metric: Measure,
    /// Show allocating functions first, with their callers below them
    #[arg(long, conflicts_with = "scopes")]
    pub bottom_up: bool,
    /// Show the tree of scopes instead of functions
    #[arg(long)]
    pub scopes: bool,
    /// Show one tree for each thread
    #[arg(long, alias = "per-lane", requires = "scopes")]
    pub per_thread: bool,
    /// Omit branches below this percentage of the total
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub min_percent: f64,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub selection: Selection,
}

const TREE_EXAMPLE: &str = "\
Example:
  heaptide tree app.heaptide --bottom-up --metric live_bytes --min-percent 2
  heaptide tree app.heaptide --scopes --per-thread";

/// `heaptide flamegraph`.
#[derive(Args, Debug)]
#[command(after_help = FLAMEGRAPH_EXAMPLE)]
pub struct FlamegraphOptions {
    #[command(flatten)]
    pub source: Source,
    /// File to write, - for standard output [default: REC-name.svg beside the recording]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
    /// Metric shown as the width of boxes
    #[arg(long, alias = "measure", value_name = "METRIC", value_parser = metric_parser(),
        hide_possible_values = true, default_value = "at_peak_bytes")]
    pub metric: Measure,
    #[command(flatten)]
    pub frames: Frames,
    /// Draw one graph for each thread, on a box with its name
    #[arg(long, alias = "per-lane")]
    pub per_thread: bool,
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
  heaptide flamegraph app.heaptide -o leaks.svg --metric live_bytes
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
    /// Recording (controls all its running processes), or a process id
    #[arg(value_name = "REC|PID")]
    pub target: PathBuf,
    /// Control only this process of the recording
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

const CTL_EXAMPLE: &str = "\
Example:
  heaptide ctl app.heaptide snapshot \"before the load\"
  heaptide ctl 4711 off

The program handles a request at its next allocation; snapshot, on and off do not wait for that.";

/// What `ctl` does.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Enable recording
    On,
    /// Disable recording; frees of recorded blocks are still counted
    Off,
    /// Take a snapshot, even if the program is stopped or idle
    Snapshot {
        /// Name of the snapshot
        name: Option<String>,
    },
    /// Add a mark to the timeline
    Mark {
        /// Name of the mark
        name: String,
    },
    /// Record stacks only for requests of at least this many bytes; 0 for all
    Threshold {
        /// Bytes, such as 4096, 4K or 1M
        #[arg(value_parser = values::bytes)]
        bytes: u64,
        /// Record stacks for requests below BYTES instead
        #[arg(long)]
        below: bool,
    },
    /// Reset the counters: reports count from now on
    Reset,
    /// Publish the counters that threads hold back, and add a timeline sample
    Flush,
    /// Show the recording state, stack threshold, snapshots and marks
    Status,
}

/// `heaptide sdk`.
#[derive(Args, Debug)]
#[command(after_help = SDK_EXAMPLE)]
pub struct SdkOptions {
    /// Directory to install to, created if missing [default: list the files]
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
    /// Directory for one page per command [default: print the main page]
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

/// `heaptide completions`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  heaptide completions bash > ~/.local/share/bash-completion/completions/heaptide"
)]
pub struct CompletionsOptions {
    /// Shell to print the script for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// What a row of a report stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Groups of a process's sites.
    Sites(GroupBy),
    /// Groups of a recording's processes.
    Processes(Origin),
}

/// A kind of rows by its name.
fn by_parser() -> impl TypedValueParser<Value = Rows> {
    let sites = GroupBy::all().iter().map(|by| match by {
        GroupBy::Lane => PossibleValue::new(by.name()).alias(GroupBy::FORMER_LANE),
        by => PossibleValue::new(by.name()),
    });
    let processes = Origin::all().iter().map(|by| PossibleValue::new(by.name()));
    PossibleValuesParser::new(sites.chain(processes)).try_map(|name| {
        name.parse().map(Rows::Processes).or_else(|_| name.parse().map(Rows::Sites))
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
    fn metrics_go_by_their_names() {
        // --measure is the former name of --metric.
        for flag in ["--metric", "--measure"] {
            let options = Options::try_parse_from(["heaptide", "tree", flag, "live_bytes"]);
            let command = options.expect("a metric").command;
            assert!(matches!(command, Command::Tree(t) if t.metric == Measure::LiveBytes));
            assert!(Options::try_parse_from(["heaptide", "tree", flag, "life"]).is_err());
        }
    }

    #[test]
    fn former_names_are_accepted_and_hidden() {
        let accepted = [
            "tree --scopes --per-lane --measure frees",
            "flamegraph --per-lane --measure frees",
            "export --format dot --per-lane --measure frees",
            "diff a b --measure frees",
            "report --by lane",
        ];
        for line in accepted {
            let words = ["heaptide"].into_iter().chain(line.split(' '));
            assert!(Options::try_parse_from(words).is_ok(), "{line}");
        }
        let by = |kind| Options::try_parse_from(["heaptide", "report", "--by", kind]);
        for kind in ["thread", "lane"] {
            let Command::Report(options) = by(kind).expect("a kind of rows").command else {
                panic!("another command");
            };
            assert_eq!(options.by, Some(Rows::Sites(GroupBy::Lane)));
        }
        let mut command = Options::command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(!help.contains("measure") && !help.contains("lane"), "{help}");
        }
    }
}
