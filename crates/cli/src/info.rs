//! `heaptide info`: what a recording is made of.

use std::io::{self, Write};
use std::process::ExitCode;

use heaptide_analysis::snapshot::{self, Snapshot};
use heaptide_render::info;

use crate::error::Error;
use crate::options::InfoOptions;
use crate::{source, status};

/// Prints the description.
pub fn info(options: &InfoOptions) -> Result<ExitCode, Error> {
    let recording = source::read(&options.source)?;
    let mut snapshots = match recording.path.is_dir() && options.source.snapshot.is_none() {
        true => snapshot::all(&recording.path)?,
        false => Vec::new(),
    };
    for of_one in snapshots.chunk_by_mut(|a, b| (a.pid, a.image) == (b.pid, b.image)) {
        let of = (of_one[0].pid, of_one[0].image);
        let process = recording.processes.iter().find(|p| (p.pid, p.image) == of);
        let marks = process.into_iter().flat_map(|p| &p.marks);
        snapshot::name_by_marks(of_one, marks.map(|m| (m.kind, m.number, &*m.name, m.time_ns)));
    }
    source::print_page(|out| {
        info::write(out, &recording)?;
        list(out, &snapshots)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The snapshots of a recording, by process.
fn list(out: &mut dyn Write, snapshots: &[Snapshot]) -> io::Result<()> {
    for of_one in snapshots.chunk_by(|a, b| (a.pid, a.image) == (b.pid, b.image)) {
        let Snapshot { pid, image, .. } = of_one[0];
        writeln!(out, "\nsnapshots of pid {pid} image {image}")?;
        of_one.iter().try_for_each(|snapshot| writeln!(out, "  {}", status::line(snapshot)))?;
    }
    Ok(())
}
