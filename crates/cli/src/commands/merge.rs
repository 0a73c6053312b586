//! `heaptide merge`: merges recordings of several processes, ranks or runs.

use std::path::PathBuf;

use clap::Args;
use heaptide_analysis::recording::merge::{Doing, merge as merge_recordings};
use heaptide_analysis::recording::metadata::{self, Metadata};
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::progress::Progress;
use heaptide_command::target;
use heaptide_command::values;

use crate::guardian::guard;
use crate::place::Place;

/// `heaptide merge`.
#[derive(Args, Debug)]
#[command(after_help = MERGE_EXAMPLE)]
pub struct MergeOptions {
    /// Recordings to merge, or process ids of running programs
    #[arg(value_name = "REC", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Recording to write, a directory
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    pub output: PathBuf,
    /// Replace an existing recording
    #[arg(long)]
    pub force: bool,
}

const MERGE_EXAMPLE: &str = "\
Example:
  heaptide merge node*/app.heaptide -o all.heaptide && heaptide report all.heaptide --by rank";

/// Merges the recordings and prints how many images and recordings were merged.
pub fn merge(options: &MergeOptions) -> Outcome {
    let recordings = options.recordings.iter().map(|given| target::place_of(given));
    let recordings = recordings.collect::<Result<Vec<_>, _>>()?;
    let place = Place::new(&options.output, options.force)?;
    // Started before any other thread. If this fails and the merge is killed, its copies remain
    // until the next command for this path.
    let _guardian = guard(place.path());
    let mut draft = place.draft(&Metadata { version: metadata::VERSION, ..Metadata::default() })?;
    let progress = Progress::start("copying profiles");
    let merged = merge_recordings(&recordings, draft.path(), &mut |doing, done, total| {
        let what = match doing {
            Doing::Copying => "copying profiles",
            Doing::Naming => "looking up symbols",
        };
        progress.at(what, done, total);
    });
    drop(progress);
    let merged = merged?;
    draft.publish()?;
    draft.keep();
    for note in &merged.notes {
        message(note);
    }
    let (images, runs, path) = (merged.images, merged.runs, options.output.display());
    let images = if images == 1 { "1 process image" } else { &format!("{images} process images") };
    let runs = if runs == 1 { "1 recording" } else { &format!("{runs} recordings") };
    message(format_args!("{path}: merged {images} from {runs}"));
    Ok(())
}
