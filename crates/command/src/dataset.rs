//! The options of `heaptide dataset`, which the command and `heaptide-sql` both understand.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// How queries read a dataset.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadingOptions {
    /// Omit files of the dataset that are missing or damaged, and print how many; each file of a
    /// table is first read completely
    #[arg(long, requires = "dataset")]
    pub skip_damaged: bool,
    /// File with the token of the cluster, which `heaptide-sql scheduler` creates [default:
    /// $HEAPTIDE_CLUSTER_TOKEN, else heaptide/cluster-token in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub token_file: Option<PathBuf>,
}

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
    /// Write the manifest again, from all files in the directories
    Index(IndexOptions),
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

/// `heaptide dataset index`.
#[derive(Args, Debug)]
#[command(after_help = INDEX_EXAMPLE)]
pub struct IndexOptions {
    /// Dataset, for example one to which files were copied by hand
    #[arg(value_name = "DIR")]
    pub dataset: PathBuf,
}

const INDEX_EXAMPLE: &str = "\
Example:
  heaptide dataset index heap";

const EXAMPLE: &str = "\
Example:
  heaptide dataset compact heap";
