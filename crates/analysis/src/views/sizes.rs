//! Block sizes: classes by powers of two with the bytes that they can hold, and exact sizes.
//!
//! A profile counts blocks by class and bytes by site. If all requests of a site are as large as
//! its largest one, all their sizes are known: `largest × allocations = requested`. Such sites, and
//! those of a recording with sizes as a dimension, give exact bytes; for other blocks, the class is
//! a lower and upper bound, and the sums over all classes give further bounds.

use rustc_hash::FxHashMap;

use crate::model::{LaneId, Measures, Process, ScopeId, Site, SizeClass, StackId, Sum};

/// Inclusive bounds of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The lower bound.
    pub least: u64,
    /// The upper bound.
    pub most: u64,
}

impl Bounds {
    /// Returns whether both bounds are equal.
    pub const fn is_exact(self) -> bool {
        self.least == self.most
    }
}

/// A size class and bounds of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// The class and its counts.
    pub counts: SizeClass,
    /// Bytes requested for its `requested` blocks.
    pub requested_bytes: Bounds,
    /// Bytes of its `usable` blocks.
    pub usable_bytes: Bounds,
    /// Live blocks of the class, by usable size, and their bytes. `None` after a reset, because
    /// frees of earlier allocations make the difference meaningless.
    pub live: Option<(u64, Bounds)>,
}

/// Blocks with the same requested size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exact {
    /// Requested bytes of each block.
    pub size: u64,
    /// Sums over the sites that allocate exactly this size.
    pub measures: Measures,
}

/// The sizes of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Occurring classes, smallest first.
    pub classes: Vec<Class>,
    /// Exact sizes, smallest first.
    pub exact: Vec<Exact>,
    /// Whether exact sizes were recorded, rather than derived for sites with a single size.
    pub recorded: bool,
}

impl Sizes {
    /// Computes the sizes of a process.
    ///
    /// ```
    /// use heaptide_analysis::views::sizes::Sizes;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let sizes = Sizes::of(&process);
    /// assert!(sizes.covered() <= process.totals.allocations);
    /// ```
    pub fn of(process: &Process) -> Sizes {
        let exact = exact(process.tables.sites.iter());
        let recorded = process.tables.sites.iter().any(|site| site.size.is_some());
        Sizes { classes: classes(process, &exact), exact, recorded }
    }

    /// Returns the number of allocations with known exact size.
    pub fn covered(&self) -> u64 {
        self.exact.iter().fold(0, |sum, row| sum.saturating_add(row.measures.allocations))
    }
}

/// Returns the exact sizes. A labelled block counts where it was allocated, so labels of the same
/// stack are merged.
pub(crate) fn exact<'a>(sites: impl Iterator<Item = &'a Site>) -> Vec<Exact> {
    type Place = (StackId, ScopeId, LaneId, Option<u64>);
    let mut places: FxHashMap<Place, Sum> = FxHashMap::default();
    for site in sites {
        let Site { stack, scope, lane, size, .. } = *site;
        places.entry((stack, scope, lane, size)).or_default().add(site);
    }
    let mut sizes: FxHashMap<u64, Measures> = FxHashMap::default();
    for ((.., size), sum) in places {
        let total = sum.total();
        if let Some(size) = size.or_else(|| only_size(&total)).filter(|_| total.allocations > 0) {
            sizes.entry(size).or_default().add(&total);
        }
    }
    let row = |(size, measures)| Exact { size, measures };
    let mut exact: Vec<Exact> = sizes.into_iter().map(row).collect();
    exact.sort_by_key(|row| row.size);
    exact
}

/// Returns the size of the blocks in these sums if all have the same: no block is larger than the
/// largest, so none is smaller if the sum is the number of blocks times the largest.
///
/// ```
/// use heaptide_analysis::model::Measures;
/// use heaptide_analysis::views::sizes::only_size;
/// let mut sums = Measures { allocations: 3, requested_bytes: 30, ..Measures::default() };
/// sums.largest_bytes = 10;
/// assert_eq!(only_size(&sums), Some(10));
/// sums.largest_bytes = 12;
/// assert_eq!(only_size(&sums), None);
/// ```
pub fn only_size(sums: &Measures) -> Option<u64> {
    let all = sums.largest_bytes.checked_mul(sums.allocations)?;
    (all == sums.requested_bytes).then_some(sums.largest_bytes)
}

fn classes(process: &Process, exact: &[Exact]) -> Vec<Class> {
    let (counts, totals) = (&process.tables.histogram, &process.totals);
    let known = |class: &SizeClass| {
        let inside = exact.iter().filter(|e| (class.size_min..=class.size_max).contains(&e.size));
        inside.fold((0u64, 0u64), |(blocks, bytes), e| {
            let n = e.measures.allocations;
            (blocks.saturating_add(n), bytes.saturating_add(n.saturating_mul(e.size)))
        })
    };
    let requested =
        bounds(counts, |c| c.requested, known, (totals.allocations, totals.requested_bytes));
    let usable =
        bounds(counts, |c| c.usable, |_| (0, 0), (totals.allocations, totals.usable_bytes));
    let live_of = |c: &SizeClass| c.usable.saturating_sub(c.freed);
    let live = bounds(counts, live_of, |_| (0, 0), (totals.live_blocks, totals.live_bytes));
    let is_live = adds_up(counts.iter().map(live_of), totals.live_blocks);
    let class = |(i, counts): (usize, &SizeClass)| Class {
        counts: *counts,
        requested_bytes: requested[i],
        usable_bytes: usable[i],
        live: is_live.then(|| (live_of(counts), live[i])),
    };
    counts.iter().enumerate().map(class).collect()
}

/// Returns whether counts of classes match the total; in a running program they can differ
/// slightly.
fn adds_up(counts: impl Iterator<Item = u64>, whole: u64) -> bool {
    let sum: u128 = counts.map(u128::from).sum();
    sum.abs_diff(whole.into()) <= u128::from(whole / 64)
}

/// Returns bounds for the bytes of each class with `count` blocks, of which `known` blocks and
/// bytes are exact; `whole` are the blocks and bytes of all classes.
fn bounds(
    classes: &[SizeClass],
    count: impl Fn(&SizeClass) -> u64,
    known: impl Fn(&SizeClass) -> (u64, u64),
    (blocks, whole): (u64, u64),
) -> Vec<Bounds> {
    let wide: Vec<(u128, u128)> = classes
        .iter()
        .map(|class| {
            let (blocks, bytes) =
                Some(known(class)).filter(|k| k.0 <= count(class)).unwrap_or((0, 0));
            let rest = u128::from(count(class) - blocks);
            let all = |size: u64| rest * u128::from(size) + u128::from(bytes);
            (all(class.size_min), all(class.size_max))
        })
        .collect();
    let whole = u128::from(whole);
    let sums = wide
        .iter()
        .fold((0u128, 0u128), |sum, w| (sum.0.saturating_add(w.0), sum.1.saturating_add(w.1)));
    let counted: u128 = classes.iter().map(|class| u128::from(count(class))).sum();
    let consistent = counted == blocks.into() && sums.0 <= whole && whole <= sums.1;
    let narrow = |&(least, most): &(u128, u128)| {
        if consistent {
            // The minimum and maximum that all other classes leave for this one.
            let (others_least, others_most) = (sums.0 - least, sums.1 - most);
            (least.max(whole.saturating_sub(others_most)), most.min(whole - others_least))
        } else {
            (least, most)
        }
    };
    let fit = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    wide.iter()
        .map(narrow)
        .map(|(least, most)| Bounds { least: fit(least), most: fit(most) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(size_min: u64, size_max: u64, n: u64) -> SizeClass {
        SizeClass { size_min, size_max, requested: n, usable: n, freed: 0 }
    }

    #[test]
    fn one_size_is_known_by_its_sums() {
        let sums = |allocations, requested_bytes, largest_bytes| Measures {
            allocations,
            requested_bytes,
            largest_bytes,
            ..Measures::default()
        };
        assert_eq!(only_size(&sums(3, 72, 24)), Some(24));
        assert_eq!(only_size(&sums(3, 71, 24)), None);
        assert_eq!(only_size(&sums(5, 0, 0)), Some(0), "blocks of no bytes");
        assert_eq!(only_size(&sums(u64::MAX, 2, 2)), None, "more than fits");
    }

    #[test]
    fn bytes_are_bounded_by_the_class_by_what_is_known_and_by_the_sum() {
        let of = |classes: &[SizeClass], known: (u64, u64), whole| {
            let blocks = classes.iter().map(|c| c.requested).sum();
            let known = |class: &SizeClass| if class.size_min == 16 { known } else { (0, 0) };
            let found = bounds(classes, |c| c.requested, known, (blocks, whole));
            found.iter().map(|b| (b.least, b.most)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[class(16, 31, 10)], (0, 0), 200), [(200, 200)], "all there is");
        let two = [class(16, 31, 10), class(64, 127, 1)];
        assert_eq!(of(&two, (0, 0), 400), [(273, 310), (90, 127)]);
        assert_eq!(of(&two, (10, 240), 340), [(240, 240), (100, 100)]);
        assert_eq!(of(&two, (0, 0), 5), [(160, 310), (64, 127)], "sums that do not fit");
        assert_eq!(of(&two, (99, 1), 400), [(273, 310), (90, 127)], "more than there are");
        let many = [class(1 << 63, u64::MAX, u64::MAX)];
        assert_eq!(of(&many, (0, 0), 7), [(u64::MAX, u64::MAX)]);
    }

    #[test]
    fn counts_may_miss_a_little() {
        assert!(adds_up([40, 60].into_iter(), 100) && adds_up([1000, 5].into_iter(), 1000));
        assert!(!adds_up([50].into_iter(), 100) && !adds_up([1].into_iter(), 0));
    }
}
