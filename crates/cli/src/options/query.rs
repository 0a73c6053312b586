//! The options of queries.

use std::path::PathBuf;

use clap::Args;
use heaptide_reading::selection::OF_RECORDINGS;

use super::{Selection, Source};

/// `heaptide query`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct QueryOptions {
    /// The query, in CalQL
    #[arg(value_name = "QUERY", required_unless_present_any = ["tables", "describe"])]
    pub query: Option<String>,
    /// Recordings, profiles in them or .cali files; - is a .cali file on standard input. All
    /// processes are asked, unless --process chooses [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Ask what `heaptide export --format parquet` wrote to this directory, not recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_RECORDINGS)]
    pub dataset: Option<PathBuf>,
    /// List the tables
    #[arg(long, conflicts_with = "query")]
    pub tables: bool,
    /// List the columns of this table
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["query", "tables"])]
    pub describe: Option<String>,
    /// Show the answer as table, tree, json, json-split, expand, cali or format(TEXT), whatever the
    /// query says
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Read the snapshots of this number; `heaptide info` lists them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot: Option<u32>,
    /// Count from the start of the program, also where figures were reset
    #[arg(long)]
    pub from_start: bool,
    #[command(flatten)]
    pub selection: Selection,
}

const EXAMPLE: &str = "\
Example:
  heaptide query 'SELECT function,sum(live_bytes) GROUP BY function FORMAT tree' app.heaptide
  heaptide query 'SELECT mem.alloc,count() GROUP BY mem.alloc WHERE mem.alloc' app.heaptide
  heaptide query 'SELECT path,inclusive_sum(time) GROUP BY path FORMAT tree' profile.cali";

impl QueryOptions {
    /// Each recording by itself; none stands for the newest.
    pub fn sources(&self) -> Vec<Source> {
        Source::each(&self.recordings, self.snapshot, self.from_start)
    }
}
