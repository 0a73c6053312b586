//! The peak, size classes and samples of a profile.

use heaptide_format as format;

use super::reconcile;
use crate::model::{Bounds, Measures, Sample, SizeClass};
use crate::profile::parsed::Profile;

pub(crate) fn sample(record: &format::Sample) -> Sample {
    Sample {
        time_ns: record.time_ns,
        live_bytes: record.live_bytes,
        peak_bytes: record.peak_bytes,
        allocations: record.allocations,
        frees: record.frees,
        usable_bytes: record.usable_bytes,
        resident_bytes: record.resident_bytes,
        virtual_bytes: record.virtual_bytes,
    }
}

/// Returns the bounds of live bytes over time.
pub(super) fn bounds(spans: &[format::Span]) -> Vec<Bounds> {
    let of = |span: &format::Span| {
        let fast = (span.fast_lowest, span.fast_highest);
        let settled_ns = span.settled_ns.max(span.begin_ns);
        [(span.begin_ns, fast), (settled_ns, (span.lowest, span.highest))]
    };
    let all = spans.iter().flat_map(of);
    let mut all: Vec<Bounds> = all
        .map(|(time_ns, (a, b))| Bounds { time_ns, lowest: a.min(b), highest: a.max(b) })
        .collect();
    all.sort_by_key(|bounds| bounds.time_ns);
    all
}

/// The highest live bytes.
pub(super) struct Peak {
    pub(super) bytes: u64,
    pub(super) time_ns: u64,
    /// Error bound of the peak, and of the bytes of sites at peak.
    pub(super) bound_bytes: u64,
    /// Whether it is the live bytes at the end, which the recorder had not recorded as a peak.
    pub(super) is_now: bool,
}

impl Peak {
    /// Returns the peak of a profile, where `bytes` is the recorded peak. Bytes that threads had
    /// not published at the end are not part of a recorded peak.
    pub(super) fn of(profile: &Profile, bytes: u64, totals: &Measures, now_ns: u64) -> Peak {
        let header = &profile.header;
        let bound_bytes = header.peak_bound_bytes.max(profile.unpublished_bytes());
        if totals.live_bytes > bytes {
            return Peak { bytes: totals.live_bytes, time_ns: now_ns, bound_bytes, is_now: true };
        }
        // If a kill interrupted an event, the peak can include it while the site does not.
        let off = if !profile.mode.is_by_lane() && profile.may_be_reconciled() {
            totals.at_peak_bytes.abs_diff(bytes)
        } else {
            0
        };
        Peak {
            bytes,
            time_ns: header.peak_time_ns,
            bound_bytes: bound_bytes.max(off),
            is_now: false,
        }
    }
}

/// Returns the size classes of all lanes.
pub(super) fn histogram(profile: &Profile, totals: &Measures) -> Vec<SizeClass> {
    let lanes = match &profile.before {
        Some(before) => &before.counts(&profile.lanes),
        None => &profile.lanes,
    };
    let [mut requested, mut usable, mut freed] = [[0u64; format::SIZE_CLASSES]; 3];
    let mut bytes = [0u64; 2];
    for lane in lanes {
        add(&mut requested, &lane.requested_classes);
        add(&mut usable, &lane.usable_classes);
        add(&mut freed, &lane.freed_classes);
        add(&mut bytes, &[lane.requested_bytes, lane.usable_bytes]);
    }
    if profile.may_be_reconciled() {
        let average = totals.usable_bytes / totals.allocations.max(1);
        let fit = |classes, blocks, bytes: u64, has: u64| {
            let lacking = i128::from(bytes) - i128::from(has);
            reconcile::classes(classes, blocks, lacking, average);
        };
        fit(&mut requested, totals.allocations, totals.requested_bytes, bytes[0]);
        fit(&mut usable, totals.allocations, totals.usable_bytes, bytes[1]);
        let scopes = profile.named.scopes.iter().map(|scope| scope.counters.freed_here_bytes);
        let freed_bytes = scopes.fold(0, u64::saturating_add);
        fit(&mut freed, totals.frees, totals.freed_bytes, freed_bytes);
    }
    let class = |class| {
        let (size_min, size_max) = format::class_bounds(class);
        let (requested, usable) = (requested[class], usable[class]);
        SizeClass { size_min, size_max, requested, usable, freed: freed[class] }
    };
    let occurs = |c: &SizeClass| c.requested | c.usable | c.freed != 0;
    (0..format::SIZE_CLASSES).map(class).filter(occurs).collect()
}

fn add<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}
