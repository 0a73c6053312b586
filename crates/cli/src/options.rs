//! The one table of options: flags, help, man pages and completions all come from here.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use heaptide_analysis::aggregate::GroupBy;
use heaptide_analysis::measure::Measure;

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
    /// Describe a recording: processes, modules, build-ids, losses, bounds
    Info(InfoOptions),
    /// Print the path of libheaptide.so, for LD_PRELOAD without `heaptide run`
    #[command(after_help = LIBRARY_EXAMPLE)]
    Library,
    /// Write the man pages
    Man(ManOptions),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
    /// Set up the recording in the child and become the program
    #[command(hide = true)]
    Launch(LaunchOptions),
}

const LIBRARY_EXAMPLE: &str = "\
Example:
  LD_PRELOAD=$(heaptide library) HEAPTIDE_OUTPUT=app.heaptide ./app";

/// How much `run` records.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals, threads and size histograms only
    Counters,
    /// And the exact stack of every allocation
    Stacks,
}

/// `heaptide run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLE)]
#[command(override_usage = "heaptide run [OPTIONS] [--] PROGRAM [ARG]...")]
pub struct RunOptions {
    /// Directory to record into [default: heaptide-PROGRAM-PID.heaptide]
    #[arg(short, long, value_name = "REC")]
    pub output: Option<PathBuf>,
    /// How much to record
    #[arg(long, value_name = "MODE", default_value = "stacks")]
    pub mode: Mode,
    /// Record the program itself only, not the processes it starts
    #[arg(long)]
    pub no_follow: bool,
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

    /// Its arguments.
    pub fn args(&self) -> &[OsString] {
        self.command.get(1..).unwrap_or(&[])
    }
}

const RUN_EXAMPLE: &str = "\
Example:
  heaptide run -o build.heaptide -- g++ -O2 -c big.cc";

/// The recording a command reads, and which process of it.
#[derive(Args, Debug)]
pub struct Source {
    /// Recording: NAME.heaptide or a profile in it [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recording: Option<PathBuf>,
}

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
    pub by: Option<GroupBy>,
    /// Show this process only
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
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
    #[arg(long)]
    pub bottom_up: bool,
    /// Show this many levels
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Leave out branches below this share of the whole
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub min_percent: f64,
    /// Show this process only
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
}

const TREE_EXAMPLE: &str = "\
Example:
  heaptide tree app.heaptide --bottom-up --measure live_bytes --min-percent 2";

/// `heaptide flamegraph`.
#[derive(Args, Debug)]
#[command(after_help = FLAMEGRAPH_EXAMPLE)]
pub struct FlamegraphOptions {
    #[command(flatten)]
    pub source: Source,
    /// File to write [default: REC-name.svg beside the recording]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
    /// The measure that gives the boxes their width
    #[arg(long, value_name = "MEASURE", value_parser = measure_parser(), hide_possible_values = true,
        default_value = "at_peak_bytes")]
    pub measure: Measure,
    /// Draw this process only
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

const FLAMEGRAPH_EXAMPLE: &str = "\
Example:
  heaptide flamegraph app.heaptide -o leaks.svg --measure live_bytes";

/// `heaptide info`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide info app.heaptide")]
pub struct InfoOptions {
    #[command(flatten)]
    pub source: Source,
}

/// `heaptide man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide man ~/.local/share/man/man1 && man heaptide-run")]
pub struct ManOptions {
    /// Directory for one page a command; without it the main page goes to standard output
    #[arg(value_name = "DIR")]
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

/// `heaptide launch`: internal to `run`.
#[derive(Args, Debug)]
pub struct LaunchOptions {
    /// What `run` hands over.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// A measure by its name.
fn measure_parser() -> impl TypedValueParser<Value = Measure> {
    let names = Measure::all().iter().map(|m| m.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Measure>())
}

/// A kind of rows by its name.
fn by_parser() -> impl TypedValueParser<Value = GroupBy> {
    let names = GroupBy::all().iter().map(|by| by.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<GroupBy>())
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
        assert_eq!(options.mode, Mode::Stacks);
        assert_eq!(options.program(), "ls");
        assert_eq!(options.args(), ["-o", "x", "--mode", "counters", "--help", "--", "-l"]);
    }

    #[test]
    fn a_double_dash_may_end_the_options() {
        let options = run("heaptide run --quiet -- -strange -- -x");
        assert!(options.quiet);
        assert_eq!(options.program(), "-strange");
        assert_eq!(options.args(), ["--", "-x"]);
    }

    #[test]
    fn measures_go_by_their_names() {
        let line = ["heaptide", "tree", "--measure", "live_bytes"];
        let options = Options::try_parse_from(line).expect("a measure");
        assert!(matches!(options.command, Command::Tree(t) if t.measure == Measure::LiveBytes));
        assert!(Options::try_parse_from(["heaptide", "tree", "--measure", "life"]).is_err());
    }
}
