//! The table of commands: name, purpose, options and function of each. Help, man pages and
//! completions are generated from it.

mod advise;
mod attach;
mod check;
mod completions;
mod ctl;
mod diff;
mod export;
mod flamegraph;
mod histogram;
mod info;
mod leaks;
mod lines;
mod man;
mod memory;
mod merge;
mod peak;
mod query;
mod ranks;
mod report;
mod retain;
mod sdk;
mod seal;
mod serve;
mod timeline;
mod top;
mod tree;
mod view;
mod watch;
mod write;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use heaptide_command::dataset::DatasetOptions;
use heaptide_command::message;
use heaptide_command::outcome::{FAILED, Outcome, Stop};
use heaptide_command::sql::SqlOptions;
use heaptide_command::terminal::TerminalOptions;

use crate::library;
use crate::options::{HELP_COLUMNS, RunOptions, flags_of_root, with_flags};
use crate::run;
use crate::sql;
pub use export::ExportFormat;

/// Record every memory allocation of a program; report peak usage, leaks, temporaries by stack.
#[derive(Parser, Debug)]
#[command(name = "heaptide", version, max_term_width = HELP_COLUMNS, after_help = EXAMPLE)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_flag = true, disable_version_flag = true, args = flags_of_root())]
#[command(mut_subcommands = with_flags)]
pub struct Options {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub terminal: TerminalOptions,
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
    #[command(aliases = ["record", "profile", "start"])]
    Run(RunOptions),
    /// Record a program that is already running
    Attach(attach::AttachOptions),
    /// End the recording of a program that `heaptide attach` records
    Detach(attach::DetachOptions),
    /// Show totals, peak usage, leaks and temporary allocations with their stacks
    #[command(aliases = ["summary", "stats", "stat", "show", "print"])]
    #[command(aliases = ["analyze", "analyse", "dump"])]
    Report(report::ReportOptions),
    /// Show a source file with the memory that each line allocates
    Lines(lines::LinesOptions),
    /// Show the call tree with inclusive and exclusive values
    Tree(tree::TreeOptions),
    /// Draw a flame graph
    #[command(alias = "flame")]
    Flamegraph(flamegraph::FlamegraphOptions),
    /// Show allocations live at peak memory usage
    Peak(peak::PeakOptions),
    /// Show what the resident memory of a process consists of
    Memory(memory::MemoryOptions),
    /// Show memory that was never freed; exit with status 1 if there is any
    #[command(alias = "leak")]
    Leaks(leaks::LeaksOptions),
    /// Show which live blocks of a running program are lost, and what keeps the others
    Retain(retain::RetainOptions),
    /// Suggest changes to the program and what each would save, with evidence
    Advise(advise::AdviseOptions),
    /// Show the distribution of allocation sizes
    Histogram(histogram::HistogramOptions),
    /// Show live bytes and allocations over time
    Timeline(timeline::TimelineOptions),
    /// Watch a running program: its memory by owner, growth, allocation rates
    #[command(alias = "live")]
    Top(top::TopOptions),
    /// Show recordings in the browser, live while programs run
    #[command(alias = "open")]
    View(view::ViewOptions),
    /// Serve metrics and profiles of running programs, for Prometheus, pprof and others
    Serve(serve::ServeOptions),
    /// Compare two recordings, of the same build or of different builds
    #[command(alias = "compare")]
    Diff(diff::DiffOptions),
    /// Check memory limits, also against a baseline; exit with status 1 if one is exceeded
    Check(check::CheckOptions),
    /// Compare the ranks of a parallel job: spread, outliers, owners that differ
    Ranks(ranks::RanksOptions),
    /// Run a CalQL query over recordings or .cali files
    Query(query::QueryOptions),
    /// Run SQL queries over recordings, or open a prompt (requires heaptide-sql)
    Sql(SqlOptions),
    /// Rearrange a directory of Parquet files (requires heaptide-sql)
    Dataset(DatasetOptions),
    /// Store the names of functions in a recording, so that it can be read on other machines
    Seal(seal::SealOptions),
    /// Merge recordings of several processes, ranks or runs into one
    Merge(merge::MergeOptions),
    /// Convert a recording to the format of another tool
    #[command(alias = "convert")]
    Export(export::ExportOptions),
    /// Describe a recording: processes, modules, build ids, losses, accuracy
    Info(info::InfoOptions),
    /// Take snapshots of recorded programs when memory grows or is short, and keep the newest
    Watch(watch::WatchOptions),
    /// Control a running recording: on, off, snapshot, mark, stack threshold, reset
    Ctl(ctl::CtlOptions),
    /// Install the SDK: headers, library, monitors, Rust crate, Python package
    Sdk(sdk::SdkOptions),
    /// Write the report that a program requests with `heaptide_write()`
    #[command(hide = true)]
    Write(write::WriteOptions),
    /// Print the path of libheaptide.so, for LD_PRELOAD without `heaptide run`
    #[command(after_help = LIBRARY_EXAMPLE)]
    Library,
    /// Write the man pages
    Man(man::ManOptions),
    /// Print a completion script for a shell
    Completions(completions::CompletionsOptions),
}

const LIBRARY_EXAMPLE: &str = "\
Example:
  LD_PRELOAD=$(heaptide library) HEAPTIDE_OUTPUT=app.heaptide ./app";

/// Runs the command that the options select.
pub fn perform(options: Options) -> Outcome {
    options.terminal.apply();
    match options.command {
        Command::Run(options) => run::run(&options, write::check),
        Command::Attach(options) => attach::attach(&options),
        Command::Detach(options) => attach::detach(&options),
        Command::Report(options) => report::report(&options),
        Command::Lines(options) => lines::lines(&options),
        Command::Retain(options) => retain::retain(&options),
        Command::Tree(options) => tree::tree(&options),
        Command::Flamegraph(options) => flamegraph::flamegraph(&options),
        Command::Peak(options) => peak::peak(&options),
        Command::Memory(options) => memory::memory(&options),
        Command::Leaks(options) => leaks::leaks(&options),
        Command::Advise(options) => advise::advise(&options),
        Command::Histogram(options) => histogram::histogram(&options),
        Command::Timeline(options) => timeline::timeline(&options),
        Command::Top(options) => top::top(&options),
        Command::View(options) => view::view(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Diff(options) => diff::diff(&options),
        Command::Check(options) => check::check(&options),
        Command::Ranks(options) => ranks::ranks(&options),
        Command::Query(options) => query::query(&options),
        Command::Sql(_) => sql::hand_over("heaptide sql"),
        Command::Dataset(_) => sql::hand_over("heaptide dataset"),
        Command::Seal(options) => seal::seal(&options),
        Command::Merge(options) => merge::merge(&options),
        Command::Export(options) => export::export(&options),
        Command::Info(options) => info::info(&options),
        Command::Watch(options) => watch::watch(&options),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Sdk(options) => sdk::sdk(&options),
        Command::Write(options) => write::write(&options, perform_words),
        Command::Library => library::print(),
        Command::Man(options) => man::man(&options, Options::command()),
        Command::Completions(options) => completions::completions(&options, Options::command()),
    }
}

/// Parses and runs a command line without the name of the program.
fn perform_words(words: Vec<OsString>) -> Outcome {
    let words = [OsString::from("heaptide")].into_iter().chain(words);
    match Options::try_parse_from(words) {
        Ok(options) => perform(options),
        Err(error) => {
            message::usage(&error);
            Err(Stop::Status(FAILED))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use heaptide_analysis::model::Measure;
    use heaptide_analysis::views::aggregate::GroupBy;

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
        assert!(matches!(ctl.action, ctl::Action::Threshold { bytes: 4096, below: true }));
        assert!(Options::try_parse_from(["heaptide", "ctl", "a.heaptide"]).is_err());
        assert!(Options::try_parse_from(["heaptide", "ctl", "a.heaptide", "mark"]).is_err());
    }

    #[test]
    fn metrics_go_by_their_names() {
        // --measure is the former name of --metric.
        for flag in ["--metric", "--measure"] {
            let options = Options::try_parse_from(["heaptide", "tree", flag, "live_bytes"]);
            let command = options.expect("a metric").command;
            assert!(matches!(command, Command::Tree(t) if t.metric == Some(Measure::LiveBytes)));
            assert!(Options::try_parse_from(["heaptide", "tree", flag, "life"]).is_err());
        }
        for (word, expected) in [
            ("peak", Measure::AtPeakBytes),
            ("leaked", Measure::LiveBytes),
            ("at-peak-blocks", Measure::AtPeakBlocks),
            ("inuse_space", Measure::LiveBytes),
            ("peak-bytes", Measure::PeakBytes),
        ] {
            let options = Options::try_parse_from(["heaptide", "report", "--sort", word]);
            let command = options.expect("a metric").command;
            assert!(matches!(command, Command::Report(r) if r.metric == Some(expected)), "{word}");
        }
        for command in ["tree", "flamegraph", "histogram", "ranks", "export --format csv"] {
            let line = format!("heaptide {command} --sort peak");
            assert!(Options::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn former_names_are_accepted_and_hidden() {
        let accepted = [
            "tree --scopes --per-lane --measure frees",
            "flamegraph --per-lane --measure frees",
            "export --format dot --per-lane --measure frees",
            "diff a b --measure frees",
            "report --by lane --measure frees",
            "report --sort frees",
            "histogram --sort frees",
            "histogram --measure frees",
            "run --mode trace --max-size 1M ls",
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
            assert_eq!(options.by, Some(report::Rows::Sites(GroupBy::Lane)));
        }
        let mut command = Options::command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(!help.contains("measure") && !help.contains("lane"), "{help}");
        }
    }
}
