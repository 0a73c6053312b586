//! The options of `heaptide sql`, which the command and `heaptide-sql` both understand.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::output;
use crate::selection::{OF_RECORDINGS, Selection, Source};

/// `heaptide sql`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct SqlOptions {
    /// The query; several have `;` between. Without one, a prompt, or what standard input says
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    /// Recordings, or profiles in them. All processes are asked, unless --process chooses
    /// [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Ask what `heaptide export --format parquet` wrote to this directory, not recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_RECORDINGS)]
    pub dataset: Option<PathBuf>,
    /// Show the answer as [default: as the name of the file says, else table]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<SqlFormat>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE", requires = "query")]
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
    /// What of them counts.
    #[command(flatten)]
    pub selection: Selection,
}

const EXAMPLE: &str = "\
Example:
  heaptide sql 'SELECT allocator, sum(allocations) AS n FROM sites GROUP BY 1 ORDER BY n DESC'
  heaptide sql \"SELECT sum(live_bytes) FROM sites WHERE stack_contains(stack, '^parse')\" app.heaptide
  heaptide sql 'SELECT * FROM sites WHERE live_blocks > 0' app.heaptide -o live.parquet

`heaptide sql` and `heaptide sql app.heaptide` are a prompt; `\\d` there lists the tables, `\\d TABLE` its columns, `\\df` the
functions.";

/// How answers are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SqlFormat {
    /// Columns for a person
    Table,
    /// Comma-separated values
    Csv,
    /// A list of objects
    Json,
    /// A Parquet file
    Parquet,
}

impl SqlOptions {
    /// What is asked, unless the first argument is a recording that is there: `sql app.heaptide`
    /// is a prompt.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref().filter(|query| !Path::new(query).exists())
    }

    /// The file to write; none if the answer goes to standard output.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !output::is_stdout(path))
    }

    /// Each recording by itself; none stands for the newest.
    pub fn sources(&self) -> Vec<Source> {
        let first = self.query.as_ref().filter(|_| self.query().is_none()).map(PathBuf::from);
        let all: Vec<PathBuf> = first.into_iter().chain(self.recordings.iter().cloned()).collect();
        Source::each(&all, self.snapshot, self.from_start)
    }
}
