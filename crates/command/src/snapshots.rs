//! The snapshots of a recording, with the names that its marks give them.

use std::path::Path;
use std::slice;

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::recording::snapshot::{self, Snapshot};

use crate::error::Error;

/// The process image that something belongs to: number of its run, process id, number of the image.
pub type ImageId = (u32, u32, u32);

/// The image that a process is.
pub fn image_of(process: &Process) -> ImageId {
    (
        process.identity.run.as_ref().map_or(0, |run| run.number),
        process.identity.pid,
        process.identity.image,
    )
}

/// The image that a snapshot is of.
pub fn image_of_snapshot(snapshot: &Snapshot) -> ImageId {
    (snapshot.run, snapshot.pid, snapshot.image)
}

/// The snapshots in a directory, by image, named by the marks of the recording.
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
