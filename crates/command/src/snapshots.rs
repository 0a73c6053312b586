//! Lists the snapshots of a recording, with the names of their marks.

use std::path::Path;
use std::slice;

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::recording::snapshot::{self, Snapshot};

use crate::error::Error;

/// Identifies a process image: number of its run, process id, number of the image.
pub type ImageId = (u32, u32, u32);

/// Returns the image of a process.
pub fn image_of(process: &Process) -> ImageId {
    (
        process.identity.run.as_ref().map_or(0, |run| run.number),
        process.identity.pid,
        process.identity.image,
    )
}

/// Returns the image that a snapshot belongs to.
pub fn image_of_snapshot(snapshot: &Snapshot) -> ImageId {
    (snapshot.run, snapshot.pid, snapshot.image)
}

/// Returns the snapshots in a directory by image, with names from the marks of the recording.
pub fn list(directory: &Path, recording: &Recording) -> Result<Vec<Snapshot>, Error> {
    let mut all = snapshot::all(directory)?;
    for process in &recording.processes {
        let marks = process.time.marks.iter().map(|m| (m.kind, m.number, &*m.name, m.time_ns));
        let is_its = |snapshot: &&mut Snapshot| image_of_snapshot(snapshot) == image_of(process);
        for snapshot in all.iter_mut().filter(is_its) {
            snapshot::name_by_marks(slice::from_mut(snapshot), marks.clone());
        }
    }
    Ok(all)
}
