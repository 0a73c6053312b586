//! Events that the totals or their stacks lack.

use heaptide_analysis::model::Process;

/// Losses that are events missing from the figures or from their stack; others cut stacks short.
const LOST_EVENTS: [&str; 3] = ["no_lane", "no_shadow", "no_site"];

/// Events missing from the figures, or charged to no stack.
pub(crate) fn lost_events(process: &Process) -> u64 {
    let lost = process.completeness.losses.iter().filter(|l| LOST_EVENTS.contains(&l.name));
    lost.map(|l| l.count).sum()
}
