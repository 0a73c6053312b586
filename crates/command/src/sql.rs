//! The options of `heaptide sql`, which the command and `heaptide-sql` both understand.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::recording::snapshot::Reference;

use crate::dataset::ReadingOptions;
use crate::error::Error;
use crate::output;
use crate::selection::{OF_RECORDINGS, SELECTION, Selection, Source};
use crate::target;
use crate::values;

/// `heaptide sql`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct SqlOptions {
    /// SQL query, or several separated by `;` [default: read standard input, or open a prompt]
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    /// Recordings, profiles in them, or process ids of running programs; REC@NAME is a snapshot.
    /// All their processes are queried unless --process selects one [default: the newest
    /// *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Query the output of `heaptide export --format parquet` in DIR instead of recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_RECORDINGS)]
    pub dataset: Option<PathBuf>,
    /// Query the dataset on the executors of this scheduler; its path must be the same on all of
    /// them; `heaptide-sql scheduler` and `heaptide-sql executor` start them
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    pub cluster: Option<String>,
    /// How the dataset is read.
    #[command(flatten)]
    pub reading: ReadingOptions,
    /// Output format [default: by the extension of the output file, or table]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<SqlFormat>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE", requires = "query")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Read this snapshot instead of the end of the run; `heaptide info` lists snapshots
    #[arg(long, value_name = "N|NAME", help_heading = SELECTION)]
    pub snapshot: Option<Reference>,
    /// Count from the start of the program, ignoring resets
    #[arg(long, help_heading = SELECTION)]
    pub from_start: bool,
    /// Processes, sites and frames to select.
    #[command(flatten)]
    pub selection: Selection,
}

const EXAMPLE: &str = "\
Example:
  heaptide sql 'SELECT owner, sum(allocations) AS n FROM sites GROUP BY 1 ORDER BY n DESC'
  heaptide sql \"SELECT sum(live_bytes) FROM sites WHERE stack_contains(stack, '^parse')\" app.heaptide
  heaptide sql 'SELECT * FROM sites WHERE live_blocks > 0' app.heaptide -o live.parquet

`heaptide sql` and `heaptide sql app.heaptide` open a prompt: `\\d` lists the tables, `\\d TABLE` the columns of a table, `\\df`
the functions.";

/// How answers are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SqlFormat {
    /// Aligned columns
    Table,
    /// Comma-separated values
    Csv,
    /// A list of objects
    Json,
    /// A Parquet file
    Parquet,
}

/// Returns the error for `--cluster` without `--dataset`.
pub fn no_dataset() -> Error {
    Error::new(
        "--cluster queries a dataset, not recordings; write one with \
         `heaptide export --format parquet -o DIR` and add --dataset DIR",
    )
}

impl SqlOptions {
    /// Returns the query, unless the first argument is a recording: `sql app.heaptide` opens a
    /// prompt.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref().filter(|query| !target::exists(Path::new(query)))
    }

    /// Returns the file to write; `None` for standard output.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !output::is_stdout(path))
    }

    /// Returns a source per recording; without any, one for the newest.
    pub fn sources(&self) -> Vec<Source> {
        let first = self.query.as_ref().filter(|_| self.query().is_none()).map(PathBuf::from);
        let all: Vec<PathBuf> = first.into_iter().chain(self.recordings.iter().cloned()).collect();
        Source::each(&all, self.snapshot.clone(), self.from_start)
    }
}
