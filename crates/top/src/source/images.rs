//! The list of process images, and their preparation.

use std::path::Path;
use std::sync::Arc;

use heaptide_analysis::Error;
use heaptide_analysis::model::Process;
use heaptide_analysis::recording::images::{self, ImageSummary};
use heaptide_analysis::recording::subject;

use heaptide_render::shared::subject::subject_of_headers;

use crate::model::app::Image;

/// Applies rules and filters of the command line to a process after reading.
pub type Prepare = Arc<dyn Fn(&mut Process) + Send + Sync>;

/// Lists the images of a recording, running ones first.
pub(crate) fn list(recording: &Path) -> Result<Vec<Image>, Error> {
    let mut images: Vec<Image> = images::of_recording(recording)?.into_iter().map(image).collect();
    images.sort_by_key(|image| !image.is_running);
    Ok(images)
}

fn image(image: ImageSummary) -> Image {
    Image {
        file: image.file,
        pid: image.pid,
        image: image.image,
        program: image.program,
        is_running: image.is_running,
        peak_bytes: image.peak_bytes,
    }
}

/// Returns the image to show first, the subject of the images that `fits` accepts, and why it is
/// the subject, if there are several.
///
/// Errors: the recording cannot be read.
pub(crate) fn first(
    recording: &Path,
    fits: impl Fn(&Image) -> bool,
) -> Result<Option<(Image, Option<String>)>, Error> {
    let mut images = images::of_recording(recording)?;
    images.retain(|summary| fits(&image(summary.clone())));
    let chosen = subject::of_summaries(&images);
    Ok(subject::first(&images).map(|index| {
        let first = images.swap_remove(index);
        let says = chosen.and_then(|subject| subject_of_headers(&subject, &first));
        (image(first), says)
    }))
}

/// Explains why a recording without sites cannot be shown.
pub(crate) fn no_rows(file: &Path) -> String {
    let file = heaptide_analysis::text::of_path(file);
    format!(
        "{file}: recorded with --mode counters, so there are no rows to show; \
         use `heaptide report --by thread`"
    )
}
