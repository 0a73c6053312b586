//! The `heaptide` command: options in, one function a command, results to exit statuses.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command
#![cfg_attr(not(test), no_main)]

mod completions;
mod ctl;
mod diff;
mod export;
mod flamegraph;
mod guardian;
mod histogram;
mod info;
mod leaks;
mod library;
mod man;
mod merge;
mod monitors;
mod options;
mod peak;
mod place;
mod private_dir;
mod query;
mod report;
mod run;
mod sdk;
mod settings;
mod sql;
mod timeline;
mod tree;

use heaptide_command::entry;
use heaptide_command::outcome::Outcome;
use heaptide_supervise::exec;

use options::{Command, Options};

#[cfg(not(test))]
heaptide_supervise::entry!(command);

/// The whole command; the result is its exit status.
#[cfg_attr(test, expect(dead_code))]
fn command() -> u8 {
    let arguments = exec::inherited().map(|inherited| &*inherited.arguments).unwrap_or_default();
    entry::command(arguments, perform)
}

fn perform(options: Options) -> Outcome {
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
        Command::Sql(_) => sql::hand_over("heaptide sql"),
        Command::Merge(options) => merge::merge(&options),
        Command::Export(options) => export::export(&options),
        Command::Info(options) => info::info(&options),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Sdk(options) => sdk::sdk(&options),
        Command::Library => library::print(),
        Command::Man(options) => man::man(&options),
        Command::Completions(options) => completions::completions(&options),
    }
}
