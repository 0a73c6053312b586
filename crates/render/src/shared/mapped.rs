//! A summary of the mappings of a process in one line.

use std::cmp::Reverse;

use heaptide_analysis::model::{MappedTotals, Process};

use crate::shared::quantity::bytes;

/// Number of classes named in the line, largest first.
const NAMED: usize = 4;

/// Returns the words for the time of a peak, which is the sum of those of several process images.
pub(crate) fn when_of_peak(images: u32) -> String {
    match images {
        0 | 1 => "at peak".to_owned(),
        images => format!("at most, the peaks of {images} process images added up"),
    }
}

/// Returns the peak of mapped memory, and a text with its largest classes and the bytes still live;
/// `None` if nothing was mapped.
pub(crate) fn mapped_summary(process: &Process) -> Option<(String, String)> {
    let MappedTotals { totals, classes, images, .. } = process.mapped.as_ref()?;
    let mut at_peak: Vec<_> = classes
        .iter()
        .map(|(class, sums)| (class.name(), sums.at_peak_bytes))
        .filter(|(_, at_peak)| *at_peak > 0)
        .collect();
    at_peak.sort_by_key(|(_, at_peak)| Reverse(*at_peak));
    let mut named: Vec<String> =
        at_peak.iter().take(NAMED).map(|(name, n)| format!("{name} {}", bytes(*n))).collect();
    let rest = at_peak.iter().skip(NAMED).fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    if rest > 0 {
        named.push(format!("more {}", bytes(rest)));
    }
    let live = bytes(totals.live_bytes);
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let says = format!("{}{named}, {live} live at the end", when_of_peak(*images));
    Some((bytes(totals.peak_bytes), says))
}
