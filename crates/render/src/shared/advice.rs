//! Parts of findings as text: source line, names, savings.

use heaptide_advise::{Finding, Place, Saves};
use heaptide_analysis::model::{Frame, Process};

use crate::shared::distinct_names::Labels;
use crate::shared::quantity::{bytes, counted, percent};

/// Characters of an owner's name.
const OWNER: usize = 60;

/// Returns the labels of the functions in the stacks of findings.
pub(crate) fn labels<'a, 'f>(
    process: &'a Process,
    findings: impl IntoIterator<Item = &'f Finding>,
) -> Labels<'a> {
    let places = findings.into_iter().filter_map(|finding| finding.place.as_ref());
    Labels::of_stacks(process, places.map(|place| place.owner))
}

/// Returns the beginning of the sentence that [`Finding::what`] continues.
pub(crate) fn subject(labels: &Labels, finding: &Finding) -> String {
    match &finding.place {
        Some(place) => labels.label(frame(labels.process, place), OWNER),
        None => "the process".to_owned(),
    }
}

/// Returns the frame of an owner.
pub(crate) fn frame<'a>(process: &'a Process, place: &Place) -> &'a Frame {
    &process.tables.frames[place.frame.0 as usize]
}

/// Returns the frame with a source line that is nearest to the owner, outwards.
pub(crate) fn line<'a>(process: &'a Process, place: &Place) -> Option<&'a Frame> {
    let mut frames = process.frames_of(place.owner);
    let has_line = |frame: &&Frame| frame.file.is_some() && frame.line.is_some();
    frames.find_map(|id| Some(&process.tables.frames[id.0 as usize]).filter(has_line))
}

/// Describes what a change saves.
pub(crate) fn saves(process: &Process, saves: &Saves) -> String {
    let totals = &process.totals;
    let mut parts = Vec::new();
    if saves.peak_bytes > 0 {
        let share = percent(saves.peak_bytes, totals.peak_bytes);
        parts.push(format!("{} of peak usage ({share})", bytes(saves.peak_bytes)));
    }
    if saves.live_bytes > 0 {
        parts.push(format!("{} that stay live", bytes(saves.live_bytes)));
    }
    if saves.resident_bytes > 0 {
        parts.push(format!("{} of resident memory", bytes(saves.resident_bytes)));
    }
    if saves.allocations > 0 {
        let share = percent(saves.allocations, totals.allocations);
        parts.push(format!("{} ({share})", counted(saves.allocations, "allocation")));
    }
    parts.join(", ")
}
