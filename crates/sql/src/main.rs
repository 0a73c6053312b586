//! `heaptide-sql`: SQL over the tables of recordings and of datasets in Parquet. `heaptide sql`
//! and others run it with their own arguments.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would panic

mod answer;
mod arrays;
mod blocks;
mod calql;
mod catalog;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "no_cluster.rs"]
mod cluster;
mod columns;
mod compact;
mod damage;
mod dataset;
mod dataset_file;
mod explain;
mod export;
mod file_list;
mod functions;
mod indexing;
mod layout;
mod manifest;
mod manifest_rows;
mod moves;
mod parquet;
mod prompt;
mod pruning;
mod recordings;
mod session;
mod shown;
mod sql_command;
mod stack_pruning;
mod staging;
mod statements;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use heaptide_command::dataset::{DatasetAction, DatasetOptions};
use heaptide_command::entry;
use heaptide_command::sql::SqlOptions;
use heaptide_command::terminal::TerminalOptions;

use calql::QueryOptions;
use export::ExportOptions;

/// The commands that `heaptide` forwards to the SQL engine, with unchanged arguments.
#[derive(Parser, Debug)]
#[command(name = "heaptide-sql", version, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    terminal: TerminalOptions,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run SQL queries over recordings
    Sql(SqlOptions),
    /// Write a dataset in Parquet
    Export(ExportOptions),
    /// Run a CalQL query over a dataset
    Query(QueryOptions),
    /// Rearrange the files of a dataset
    Dataset(DatasetOptions),
    /// Serve queries from other machines: plan them and distribute their parts to executors
    #[cfg(feature = "cluster")]
    Scheduler(cluster::SchedulerOptions),
    /// Execute parts of queries for a scheduler
    #[cfg(feature = "cluster")]
    Executor(cluster::ExecutorOptions),
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let status = entry::command(&arguments, |options: Options| {
        options.terminal.apply();
        match options.command {
            Command::Sql(options) => sql_command::sql(&options),
            Command::Export(options) => export::export(&options),
            Command::Query(options) => calql::query(&options),
            Command::Dataset(DatasetOptions { action }) => match action {
                DatasetAction::Compact(options) => compact::compact(&options),
                DatasetAction::Index(options) => indexing::index(&options),
            },
            #[cfg(feature = "cluster")]
            Command::Scheduler(options) => cluster::scheduler(&options),
            #[cfg(feature = "cluster")]
            Command::Executor(options) => cluster::executor(&options),
        }
    });
    ExitCode::from(status)
}
