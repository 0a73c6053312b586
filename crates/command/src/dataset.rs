//! The options of `heaptide dataset`, which the command and `heaptide-sql` both understand.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `heaptide dataset`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct DatasetOptions {
    /// What to do with a dataset.
    #[command(subcommand)]
    pub action: DatasetAction,
}

/// What can be done with a dataset.
#[derive(Subcommand, Debug)]
pub enum DatasetAction {
    /// Merge the files of each table into a few large ones, which are faster to read
    Compact(CompactOptions),
}

/// `heaptide dataset compact`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct CompactOptions {
    /// Dataset, written by `heaptide export --format parquet`. Its rows stay the same, even if this
    /// command is killed
    #[arg(value_name = "DIR")]
    pub dataset: PathBuf,
}

const EXAMPLE: &str = "\
Example:
  heaptide dataset compact heap";
