//! The mapped bytes of chosen sites over time, from the changes of all mappings.

use crate::model::{Bounds, Mapped, Measures, Sample, Site};

/// Samples are stored for changes of the peak's part, as in profiles.
const SAMPLE_PART: u64 = 128;

/// A moment: after a number of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moment {
    changes: usize,
    pub(super) time_ns: u64,
    /// Mapped bytes of the chosen sites.
    pub(super) bytes: u64,
}

/// Mapped bytes of the chosen sites over time.
#[derive(Debug)]
pub(super) struct History {
    /// Their own peak.
    pub(super) peak: Moment,
    /// The peak of the heap; its time is that of the last change before it.
    pub(super) heap_peak: Moment,
    /// Their bytes over time, without small changes.
    pub(super) samples: Vec<Sample>,
    /// Time and bytes after each change.
    totals: Vec<(u64, u64)>,
}

impl History {
    /// Returns the history of the sites for which `is_chosen` holds; `None` if changes are missing:
    /// there were too many, the profile is damaged, or of a version without them.
    pub(super) fn of(mapped: &Mapped, is_chosen: impl Fn(&Site) -> bool) -> Option<History> {
        let is_chosen: Vec<bool> = mapped.sites.iter().map(is_chosen).collect();
        let mut live = vec![Live::default(); mapped.sites.len()];
        let (mut peak, mut heap_peak, mut bytes) = (Moment::default(), Moment::default(), 0u64);
        let mut totals = Vec::new();
        for (index, change) in mapped.changes.iter().enumerate() {
            let site = change.site as usize;
            live.get_mut(site)?.add(change.mappings, change.bytes)?;
            if is_chosen[site] {
                bytes = bytes.checked_add_signed(change.bytes)?;
            }
            let moment = Moment { changes: index + 1, time_ns: change.time_ns, bytes };
            if bytes > peak.bytes {
                peak = moment;
            }
            if change.is_before_heap_peak {
                heap_peak = moment;
            }
            totals.push((change.time_ns, bytes));
        }
        let is_whole = |(site, live): (&Site, &Live)| {
            let Measures { live_blocks, live_bytes, .. } = site.measures;
            (live.mappings, live.bytes) == (live_blocks, live_bytes)
        };
        let samples = samples(&totals, peak.bytes, &mapped.samples);
        let mut all = mapped.sites.iter().zip(&live);
        all.all(is_whole).then_some(History { peak, heap_peak, samples, totals })
    }

    /// Returns a bound of the bytes that these mappings and the heap had at one time, from bounds
    /// of the heap over time, of which there is at least one.
    pub(super) fn at_most(&self, heap: &[Bounds]) -> u64 {
        let mut from = 0; // the first change at or after the begin of the bounds
        let mut highest = 0;
        for (index, bounds) in heap.iter().enumerate() {
            // What the heap had before the first bounds was no more.
            let begin_ns = if index == 0 { 0 } else { bounds.time_ns };
            let end_ns = heap.get(index + 1).map_or(u64::MAX, |next| next.time_ns);
            from += self.totals[from..].partition_point(|(time_ns, _)| *time_ns < begin_ns);
            let before = from.checked_sub(1).map_or(0, |last| self.totals[last].1);
            let during = self.totals[from..].iter().take_while(|(time_ns, _)| *time_ns <= end_ns);
            let mapped = during.map(|(_, bytes)| *bytes).fold(before, u64::max);
            highest = highest.max(bounds.highest.saturating_add(mapped));
        }
        highest
    }

    /// Makes a moment the peak of all sites.
    pub(super) fn set_peak(mapped: &mut Mapped, at: Moment) {
        let mut live = vec![Live::default(); mapped.sites.len()];
        for change in mapped.changes.iter().take(at.changes) {
            let site = &mut live[change.site as usize];
            let _ = site.add(change.mappings, change.bytes); // `of` has checked them
        }
        for (site, live) in mapped.sites.iter_mut().zip(live) {
            site.measures.set_peak(live.mappings, live.bytes);
        }
    }
}

/// The live mappings of a site.
#[derive(Clone, Copy, Default)]
struct Live {
    mappings: u64,
    bytes: u64,
}

impl Live {
    /// Applies a change; `None` if more ends than there is.
    fn add(&mut self, mappings: i64, bytes: i64) -> Option<()> {
        self.mappings = self.mappings.checked_add_signed(mappings)?;
        self.bytes = self.bytes.checked_add_signed(bytes)?;
        Some(())
    }
}

/// Returns samples of totals at the given times, with the memory of the process from the nearest of
/// those of all mappings. Of totals at one time, and of small changes, only the last is kept.
fn samples(totals: &[(u64, u64)], peak_bytes: u64, of_all: &[Sample]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let (mut peak, mut others) = (0, of_all.iter().peekable());
    let mut process = Sample::default();
    for (index, &(time_ns, live_bytes)) in totals.iter().enumerate() {
        peak = peak.max(live_bytes);
        let last = samples.last().map_or(0, |sample| sample.live_bytes);
        let is_small = live_bytes.abs_diff(last) < peak_bytes / SAMPLE_PART;
        let is_replaced = totals.get(index + 1).is_some_and(|next| next.0 == time_ns);
        let is_last = index + 1 == totals.len();
        if (is_replaced && live_bytes < peak_bytes) || (is_small && !is_last) {
            continue;
        }
        while let Some(other) = others.next_if(|other| other.time_ns <= time_ns) {
            process = *other;
        }
        let is_nearer = |next: &&&Sample| next.time_ns - time_ns < time_ns - process.time_ns;
        let nearest = others.peek().filter(is_nearer).map_or(process, |next| **next);
        let Sample { resident_bytes, virtual_bytes, .. } = nearest;
        samples.push(Sample {
            time_ns,
            live_bytes,
            peak_bytes: peak,
            resident_bytes,
            virtual_bytes,
            ..Sample::default()
        });
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LaneId, MappedChange, Mapping, MappingClass, ScopeId, SiteKind, StackId};

    const MIB: i64 = 1 << 20;

    /// Returns mappings with two sites and these changes: time, site, mappings, MiB.
    fn mapped(changes: &[(u64, u32, i64, i64)]) -> Mapped {
        let mapping = Mapping { class: MappingClass::Other, protection: 3, flags: 0 };
        let site = Site {
            stack: StackId(0),
            scope: ScopeId(0),
            label: None,
            lane: LaneId(0),
            size: None,
            call: None,
            kind: SiteKind::Mapped(mapping),
            measures: Measures::default(),
            moved: Default::default(),
            lent_bytes: 0,
        };
        let mut sites = vec![site; 2];
        let change = |&(time_ns, site, mappings, mib): &(u64, u32, i64, i64)| {
            let measures = &mut sites[site as usize].measures;
            measures.live_blocks = measures.live_blocks.wrapping_add_signed(mappings);
            measures.live_bytes = measures.live_bytes.wrapping_add_signed(mib * MIB);
            let is_before_heap_peak = time_ns < 25;
            MappedChange { time_ns, is_before_heap_peak, site, mappings, bytes: mib * MIB }
        };
        let changes = changes.iter().map(change).collect();
        Mapped {
            sites,
            files: vec![None; 2],
            lanes: Vec::new(),
            histogram: Vec::new(),
            samples: Vec::new(),
            changes,
        }
    }

    fn at_peak(mapped: &Mapped) -> Vec<(u64, u64)> {
        let measures = mapped.sites.iter().map(|site| site.measures);
        measures.map(|m| (m.at_peak_blocks, m.at_peak_bytes >> 20)).collect()
    }

    #[test]
    fn both_moments_have_the_rows_of_that_time() {
        let changes =
            [(10, 0, 1, 3), (20, 1, 1, 4), (30, 0, 1, 2), (30, 1, -1, -4), (40, 0, 0, -1)];
        let mut mapped = mapped(&changes);
        let history = History::of(&mapped, |_| true).expect("a history");
        assert_eq!((history.peak.time_ns, history.peak.bytes >> 20), (30, 9));
        assert_eq!((history.heap_peak.time_ns, history.heap_peak.bytes >> 20), (20, 7));
        let samples = history.samples.iter().map(|s| (s.time_ns, s.live_bytes >> 20));
        assert_eq!(samples.collect::<Vec<_>>(), [(10, 3), (20, 7), (30, 9), (30, 5), (40, 4)]);
        History::set_peak(&mut mapped, history.peak);
        assert_eq!(at_peak(&mapped), [(2, 5), (1, 4)]);
        History::set_peak(&mut mapped, history.heap_peak);
        assert_eq!(at_peak(&mapped), [(1, 3), (1, 4)]);
    }

    #[test]
    fn bounds_of_the_heap_bound_the_sum() {
        let mapped = mapped(&[(10, 0, 1, 3), (20, 1, 1, 4), (40, 0, -1, -3)]);
        let history = History::of(&mapped, |_| true).expect("a history");
        let heap = |bounds: &[(u64, u64)]| -> u64 {
            let bounds = bounds.iter().map(|&(time_ns, mib)| Bounds {
                time_ns,
                lowest: 0,
                highest: mib << 20,
            });
            history.at_most(&bounds.collect::<Vec<_>>()) >> 20
        };
        assert_eq!(heap(&[(5, 1)]), 8);
        assert_eq!(heap(&[(5, 9), (15, 1)]), 12, "until the second");
        assert_eq!(heap(&[(5, 9), (20, 1)]), 16, "at one time with the change");
        assert_eq!(heap(&[(5, 1), (30, 9), (35, 1)]), 16, "between two changes");
        assert_eq!(heap(&[(50, 9)]), 16, "before the first bounds");
        assert_eq!(heap(&[(5, 1), (50, 9)]), 13);
    }

    #[test]
    fn only_chosen_sites_count() {
        let mut mapped = mapped(&[(10, 0, 1, 64), (20, 1, 1, 4), (30, 0, -1, -64)]);
        mapped.sites[0].measures.allocations = 1;
        let history = History::of(&mapped, |site| site.measures.allocations == 0);
        let history = history.expect("a history");
        assert_eq!((history.peak.time_ns, history.peak.bytes >> 20), (20, 4));
    }

    #[test]
    fn without_all_changes_there_is_none() {
        let mut some = mapped(&[(10, 0, 1, 3), (20, 1, 1, 4)]);
        some.changes.pop();
        assert!(History::of(&some, |_| true).is_none());
        let mut wrong = mapped(&[(10, 0, 1, 3)]);
        wrong.changes[0].site = 2;
        assert!(History::of(&wrong, |_| true).is_none());
        wrong.changes[0] = MappedChange { site: 0, bytes: -1, ..wrong.changes[0] };
        assert!(History::of(&wrong, |_| true).is_none());
    }
}
