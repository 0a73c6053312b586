//! `heaptide merge`: recordings of several processes, ranks or runs put together.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heaptide_analysis::merge::{Doing, merge as merge_recordings};

use crate::error::Error;
use crate::options::MergeOptions;
use crate::progress::Progress;
use crate::run::may_record;

/// Copies them and says what there is.
pub fn merge(options: &MergeOptions) -> Result<ExitCode, Error> {
    let output = &options.output;
    may_record(output, options.force)?;
    let draft = Draft::beside(output)?;
    let progress = Progress::start("copying profiles");
    let merged = merge_recordings(&options.recordings, &draft.0, &mut |doing, done, total| {
        let what = match doing {
            Doing::Copying => "copying profiles",
            Doing::Naming => "naming functions",
        };
        progress.at(what, done, total);
    });
    drop(progress);
    let merged = merged?;
    draft.become_recording(output)?;
    for note in &merged.notes {
        eprintln!("heaptide: {note}");
    }
    let (images, runs, path) = (merged.images, merged.runs, output.display());
    let images = if images == 1 { "1 process image" } else { &format!("{images} process images") };
    let runs = if runs == 1 { "1 recording" } else { &format!("{runs} recordings") };
    eprintln!("heaptide: {path}: {images} of {runs}");
    Ok(ExitCode::SUCCESS)
}

/// A directory that is taken away again unless it becomes the recording.
struct Draft(PathBuf);

impl Draft {
    fn beside(output: &Path) -> Result<Draft, Error> {
        let mut name = std::path::absolute(output)?.into_os_string();
        name.push(format!(".{}.new", std::process::id()));
        let draft = PathBuf::from(name);
        std::fs::create_dir(&draft).map_err(|e| Error::file(output, "write it", e))?;
        Ok(Draft(draft))
    }

    /// Takes the place of what is there; that it may was asked before.
    fn become_recording(self, output: &Path) -> Result<(), Error> {
        let error = |e| Error::file(output, "write it", e);
        if output.exists() {
            std::fs::remove_dir_all(output).map_err(error)?;
        }
        std::fs::rename(&self.0, output).map_err(error)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // it is gone if it has become the recording
    }
}
