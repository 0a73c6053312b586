//! `heaptide info`: what a recording is made of.

use std::io::{self, Write};

use heaptide_analysis::model::Process;
use heaptide_analysis::recording::snapshot::{self, Snapshot};
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, source};
use heaptide_render::info;

use crate::options::InfoOptions;
use crate::status;

/// Prints the description.
pub fn info(options: &InfoOptions) -> Outcome {
    let recording = source::read(&options.source.listing_damage())?;
    let mut snapshots = if recording.path.is_dir() && options.source.snapshot.is_none() {
        snapshot::all(&recording.path)?
    } else {
        Vec::new()
    };
    for of_one in snapshots.chunk_by_mut(|a, b| whose(a) == whose(b)) {
        let run = |p: &Process| p.run.as_ref().map_or(0, |run| run.number);
        let is_its = |p: &&Process| (run(p), p.pid, p.image) == whose(&of_one[0]);
        let process = recording.processes.iter().find(is_its);
        let marks = process.into_iter().flat_map(|p| &p.marks);
        snapshot::name_by_marks(of_one, marks.map(|m| (m.kind, m.number, &*m.name, m.time_ns)));
    }
    output::print_page(|out| {
        info::write(out, &recording)?;
        list(out, &snapshots)
    })?;
    Ok(())
}

/// Run, pid and image.
fn whose(snapshot: &Snapshot) -> (u32, u32, u32) {
    (snapshot.run, snapshot.pid, snapshot.image)
}

/// The snapshots of a recording, by process.
fn list(out: &mut dyn Write, snapshots: &[Snapshot]) -> io::Result<()> {
    for of_one in snapshots.chunk_by(|a, b| whose(a) == whose(b)) {
        let (run, pid, image) = whose(&of_one[0]);
        let run = if run == 0 { String::new() } else { format!("run {run} ") };
        writeln!(out, "\nsnapshots of {run}pid {pid} image {image}")?;
        of_one.iter().try_for_each(|snapshot| writeln!(out, "  {}", status::line(snapshot)))?;
    }
    Ok(())
}
