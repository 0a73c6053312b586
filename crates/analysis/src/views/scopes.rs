//! Sums of sites by scope path, over all lanes or of one.

use crate::model::{LaneId, Measures, Process, Sum};

/// The sums of a scope path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScopeSums {
    /// Over sites of just this path.
    pub own: Measures,
    /// Of paths inside it too.
    pub inclusive: Measures,
}

/// The sums of every scope path, by its id: over all lanes, or of one.
///
/// ```
/// use heaptide_analysis::views::scopes;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (2, 3, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let all = scopes::sums(&process, None);
/// assert_eq!(all[0].inclusive.live_bytes, process.totals.live_bytes);
/// ```
pub fn sums(process: &Process, lane: Option<LaneId>) -> Vec<ScopeSums> {
    let mut own = vec![Sum::default(); process.tables.scopes.len()];
    for site in process.tables.sites.iter().filter(|site| lane.is_none_or(|lane| lane == site.lane))
    {
        own[site.scope.0 as usize].add(site);
    }
    let own = own.into_iter().map(|sum| sum.total());
    let mut sums: Vec<_> = own.map(|own| ScopeSums { own, inclusive: own }).collect();
    for index in (1..sums.len()).rev() {
        let inclusive = sums[index].inclusive;
        sums[process.tables.scopes[index].parent.0 as usize].inclusive.add(&inclusive);
    }
    sums
}
