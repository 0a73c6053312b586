//! The `heaptide` command: options in, one function a command, results to exit statuses.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // a failed write would end the command

mod completions;
mod control;
mod ctl;
mod diff;
mod export;
mod flamegraph;
mod growth;
mod histogram;
mod info;
mod launch;
mod leaks;
mod library;
mod man;
#[expect(clippy::print_stderr)]
mod merge;
mod monitors;
mod mover;
mod options;
mod peak;
mod private_dir;
mod query;
mod report;
#[expect(clippy::print_stderr)]
mod run;
mod sdk;
mod sql;
mod status;
mod timeline;
mod tree;
#[expect(clippy::print_stderr)]
mod watch;

use std::process::ExitCode;

use heaptide_reading::error::Error;
use heaptide_reading::{
    FAILED, NO, damage, entry, error, message, output, progress, source, values,
};

use options::{Command, Options};

fn main() -> ExitCode {
    entry::command(perform)
}

fn perform(options: Options) -> Result<ExitCode, Error> {
    match options.command {
        Command::Run(options) => run::run(&options),
        Command::Report(options) => report::report(&options),
        Command::Tree(options) => tree::tree(&options),
        Command::Flamegraph(options) => flamegraph::flamegraph(&options),
        Command::Peak(options) => peak::peak(&options),
        Command::Leaks(options) => leaks::leaks(&options),
        Command::Histogram(options) => histogram::histogram(&options),
        Command::Timeline(options) => timeline::timeline(&options),
        Command::Diff(options) => diff::diff(&options),
        Command::Query(options) => query::query(&options),
        Command::Sql(_) => sql::hand_over("heaptide sql").map(|never| match never {}),
        Command::Merge(options) => merge::merge(&options),
        Command::Export(options) => export::export(&options),
        Command::Info(options) => info::info(&options),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Sdk(options) => sdk::sdk(&options),
        Command::Library => library::print(),
        Command::Man(options) => man::man(&options),
        Command::Completions(options) => completions::completions(&options),
        Command::Launch(options) => launch::launch(&options.args),
    }
}
