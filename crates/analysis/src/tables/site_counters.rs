//! What follows from the counters of a site's record, which can be read at slightly different
//! times.

use heaptide_format as format;

/// Returns blocks and bytes that left the site, limited to those that it had: these counters are
/// read later than the allocations and can be higher.
pub(crate) fn gone(record: &format::Site) -> (u64, u64) {
    let frees = not_negative(record.frees.wrapping_add(record.remote_frees));
    let bytes = not_negative(record.freed_bytes.wrapping_add(record.remote_freed_bytes));
    (frees.min(record.allocations), bytes.min(record.usable_bytes))
}

/// The live blocks of a site, and those live at peak, each as blocks and bytes.
pub(crate) struct LiveOfSite {
    pub(crate) live: (u64, u64),
    pub(crate) at_peak: (u64, u64),
}

/// Computes live blocks from the counters of a site; `epoch` is the number of the current peak.
/// Negative differences become 0.
pub(crate) fn live_of_site(record: &format::Site, epoch: u32) -> LiveOfSite {
    let (frees, gone_bytes) = gone(record);
    let (owner_blocks, owner_bytes) = if record.epoch >= epoch {
        (record.peak_blocks, record.peak_bytes)
    } else {
        (
            record.allocations.wrapping_sub(record.frees),
            record.usable_bytes.wrapping_sub(record.freed_bytes),
        )
    };
    let (remote_blocks, remote_bytes) = if record.remote_epoch >= epoch {
        (record.remote_peak_frees, record.remote_peak_freed_bytes)
    } else {
        (record.remote_frees, record.remote_freed_bytes)
    };
    LiveOfSite {
        live: (difference(record.allocations, frees), difference(record.usable_bytes, gone_bytes)),
        at_peak: (difference(owner_blocks, remote_blocks), difference(owner_bytes, remote_bytes)),
    }
}

/// Returns the difference of two counters that can be read at slightly different times, or 0 if it
/// is negative: a free is negative if another lane moved a block back to the site.
fn difference(up: u64, down: u64) -> u64 {
    not_negative(up.wrapping_sub(down))
}

/// Returns a difference, or 0 if it is negative.
pub(crate) fn not_negative(n: u64) -> u64 {
    if n > i64::MAX as u64 { 0 } else { n }
}
