//! `heaptide info`: the contents of a recording.

use std::io::{self, Write};

use clap::Args;
use heaptide_analysis::recording::snapshot::Snapshot;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::Source;
use heaptide_command::snapshots::image_of_snapshot;
use heaptide_command::{output, snapshots, source, target};
use heaptide_control::status;
use heaptide_render::text;

/// `heaptide info`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide info app.heaptide")]
pub struct InfoOptions {
    #[command(flatten)]
    pub source: Source,
}

/// Prints the description.
pub fn info(options: &InfoOptions) -> Outcome {
    let source = target::resolve(&options.source.listing_damage())?;
    let recording = source::read(&source)?;
    let snapshots = if recording.path.is_dir() && source.snapshot.is_none() {
        snapshots::list(&recording.path, &recording)?
    } else {
        Vec::new()
    };
    output::print_page(|out| {
        text::info::write(out, &recording)?;
        list(out, &snapshots)
    })?;
    Ok(())
}

/// Lists the snapshots of a recording by process.
fn list(out: &mut dyn Write, snapshots: &[Snapshot]) -> io::Result<()> {
    for of_one in snapshots.chunk_by(|a, b| image_of_snapshot(a) == image_of_snapshot(b)) {
        let (run, pid, image) = image_of_snapshot(&of_one[0]);
        let run = if run == 0 { String::new() } else { format!("run {run} ") };
        writeln!(out, "\nsnapshots of {run}pid {pid} image {image}")?;
        for snapshot in of_one {
            writeln!(out, "  {}", status::line(snapshot))?;
        }
    }
    Ok(())
}
