//! The options of queries.

use std::path::PathBuf;

use clap::Args;
use heaptide_command::selection::{OF_RECORDINGS, Selection, Source};

/// `heaptide query`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct QueryOptions {
    /// Query in CalQL
    #[arg(value_name = "QUERY", required_unless_present_any = ["tables", "describe"])]
    pub query: Option<String>,
    /// Recordings, profiles in them or .cali files (- for standard input); all their processes
    /// are queried unless --process selects one [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Query the output of `heaptide export --format parquet` in DIR instead of recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_RECORDINGS)]
    pub dataset: Option<PathBuf>,
    /// List the tables
    #[arg(long, conflicts_with = "query")]
    pub tables: bool,
    /// List the columns of this table
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["query", "tables"])]
    pub describe: Option<String>,
    /// Output format, overriding the query: table, tree, json, json-split, expand, cali or
    /// format(TEXT)
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Read snapshot N instead of the end of the run; `heaptide info` lists snapshots
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot: Option<u32>,
    /// Count from the start of the program, ignoring resets
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
