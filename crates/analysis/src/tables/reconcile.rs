//! Makes the tables of one profile consistent.
//!
//! The recorder counts an event in several tables, one after the other and without a lock: at the
//! site, in the size classes of the lane, and a free in the scope that performed it. If a process
//! is killed, or read while it runs, some tables include events that others do not. Sites are
//! authoritative, since all sums are over them. Missing events are added to the other tables and
//! excess ones removed: a single event at its own size, the difference of the bytes of both tables,
//! several events at their average size.

use std::cmp::{Ordering, Reverse};

use heaptide_format::{SIZE_CLASSES, size_class};

use super::raw_site::RawSite;
use crate::model::{LaneId, Measures, ScopeId, SiteKind};

/// Adjusts a histogram so that it counts `blocks`. `lacking` are the bytes of the missing blocks,
/// negative for excess blocks; `average` is the size to use if these do not give one.
pub(crate) fn classes(classes: &mut [u64; SIZE_CLASSES], blocks: u64, lacking: i128, average: u64) {
    let has = classes.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
    let difference = i128::from(blocks) - i128::from(has);
    let size = match difference {
        0 => return,
        _ => u64::try_from(lacking / difference).ok().filter(|&size| size > 0).unwrap_or(average),
    };
    let likely = size_class(size);
    if difference > 0 {
        classes[likely] = classes[likely].saturating_add(blocks - has);
        return;
    }
    let mut excess = has - blocks;
    let mut order: Vec<usize> = (0..SIZE_CLASSES).collect();
    order.sort_by_key(|&class| (class != likely, Reverse(classes[class])));
    for class in order {
        let part = classes[class].min(excess);
        classes[class] -= part;
        excess -= part;
    }
}

/// Adjusts the bytes lent by chunks of pools to the live bytes of the pools' blocks.
pub(crate) fn lent(sites: &mut [RawSite]) {
    let bytes =
        |site: &RawSite| (site.kind == SiteKind::PoolBlock).then_some(site.measures.live_bytes);
    let of_blocks = sites.iter().filter_map(bytes).fold(0, u64::saturating_add);
    let mut chunks: Vec<&mut RawSite> =
        sites.iter_mut().filter(|site| site.kind == SiteKind::PoolChunk).collect();
    let lent = chunks.iter().fold(0u64, |sum, chunk| sum.saturating_add(chunk.lent_bytes));
    let (mut more, mut less) = (of_blocks.saturating_sub(lent), lent.saturating_sub(of_blocks));
    for chunk in &mut chunks {
        let live = &mut chunk.measures.live_bytes;
        let part = more.min(*live);
        (more, *live, chunk.lent_bytes) = (more - part, *live - part, chunk.lent_bytes + part);
        let part = less.min(chunk.lent_bytes);
        (less, *live, chunk.lent_bytes) = (less - part, *live + part, chunk.lent_bytes - part);
    }
}

/// Frees performed in a lane and scope, of any block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreedHere {
    pub(crate) lane: LaneId,
    pub(crate) scope: ScopeId,
    pub(crate) frees: u64,
    pub(crate) bytes: u64,
}

/// Adjusts frees by lane and scope so that they add up to the frees in `totals`.
pub(crate) fn freed_here(rows: &mut [FreedHere], totals: &Measures) {
    rows.sort_by_key(|row| Reverse(row.frees));
    settle(rows, totals.frees, |row| &mut row.frees);
    settle(rows, totals.freed_bytes, |row| &mut row.bytes);
}

/// Adjusts the frees counted by lanes in the same way.
pub(crate) fn freed_in_lanes(lanes: &mut [RawSite], totals: &Measures) {
    settle(lanes, totals.frees, |row| &mut row.measures.frees_here);
    settle(lanes, totals.freed_bytes, |row| &mut row.measures.freed_here_bytes);
}

/// Adjusts a column so that its sum is `sum`: a deficit is added to the first row, an excess is
/// subtracted from the first rows.
fn settle<Row>(rows: &mut [Row], sum: u64, column: impl Fn(&mut Row) -> &mut u64) {
    let has = rows.iter_mut().fold(0u64, |has, row| has.saturating_add(*column(row)));
    match (has.cmp(&sum), rows) {
        (Ordering::Less, [first, ..]) => *column(first) += sum - has,
        (Ordering::Greater, rows) => {
            let mut excess = has - sum;
            for row in rows {
                let part = excess.min(*column(row));
                *column(row) -= part;
                excess -= part;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: &[(u64, u64)]) -> [u64; SIZE_CLASSES] {
        let mut classes = [0; SIZE_CLASSES];
        counts.iter().for_each(|&(size, count)| classes[size_class(size)] = count);
        classes
    }

    fn fitted(counts: &[(u64, u64)], blocks: u64, lacking: i128) -> [u64; SIZE_CLASSES] {
        let mut found = histogram(counts);
        classes(&mut found, blocks, lacking, 16);
        found
    }

    #[test]
    fn an_event_that_a_class_lacks_has_its_own_size() {
        let counts = [(16, 5), (100, 2)];
        assert_eq!(fitted(&counts, 7, 0), histogram(&counts));
        assert_eq!(fitted(&counts, 7, 90), histogram(&counts)); // bytes not counted yet
        assert_eq!(fitted(&counts, 8, 100), histogram(&[(16, 5), (100, 3)]));
        assert_eq!(fitted(&counts, 8, 5000), histogram(&[(16, 5), (100, 2), (5000, 1)]));
        assert_eq!(fitted(&counts, 9, 200), histogram(&[(16, 5), (100, 4)]));
        assert_eq!(fitted(&counts, 8, 0), histogram(&[(16, 6), (100, 2)]));
    }

    #[test]
    fn what_classes_have_too_many_is_taken_off() {
        let counts = [(16, 5), (100, 2)];
        assert_eq!(fitted(&counts, 6, -100), histogram(&[(16, 5), (100, 1)]));
        assert_eq!(fitted(&counts, 4, -300), histogram(&[(16, 4)]));
        assert_eq!(fitted(&counts, 6, -5000), histogram(&[(16, 4), (100, 2)]));
        assert_eq!(fitted(&counts, 0, -1), histogram(&[]));
    }

    #[test]
    fn frees_add_up_to_the_totals() {
        let row =
            |lane, frees, bytes| FreedHere { lane: LaneId(lane), scope: ScopeId(0), frees, bytes };
        let settled = |frees, freed_bytes| {
            let mut rows = [row(0, 2, 20), row(1, 9, 90)];
            freed_here(&mut rows, &Measures { frees, freed_bytes, ..Measures::default() });
            rows
        };
        assert_eq!(settled(11, 110), [row(1, 9, 90), row(0, 2, 20)]);
        assert_eq!(settled(12, 118), [row(1, 10, 98), row(0, 2, 20)]);
        assert_eq!(settled(1, 15), [row(1, 0, 0), row(0, 1, 15)]);
        freed_here(&mut [], &Measures { frees: 1, ..Measures::default() });
    }
}
