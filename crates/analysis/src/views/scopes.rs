//! Sums of sites by scope path, over all lanes or for one lane.

use crate::model::{LaneId, Measures, Process, Sum};

/// The sums of a scope path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScopeSums {
    /// Sums over sites of exactly this path.
    pub own: Measures,
    /// Sums including nested paths.
    pub inclusive: Measures,
}

/// Returns the sums of every scope path, by its id, over all lanes or for one.
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

/// Returns how often each scope path was entered, by its id: by all lanes, or by one.
pub fn entered(process: &Process, lane: Option<LaneId>) -> Vec<u64> {
    let Some(lane) = lane else {
        return process.tables.scopes.iter().map(|scope| scope.entered).collect();
    };
    let mut entered = vec![0u64; process.tables.scopes.len()];
    for row in process.tables.entered.iter().filter(|row| row.lane == lane) {
        let times = &mut entered[row.scope.0 as usize];
        *times = times.saturating_add(row.times);
    }
    entered
}

/// Returns for every scope path whether it or a nested path has a value, or was entered according
/// to `entered`.
pub fn used(process: &Process, sums: &[ScopeSums], entered: Option<&[u64]>) -> Vec<bool> {
    let mut used: Vec<bool> = sums.iter().map(|sums| sums.own != Measures::default()).collect();
    if let Some(entered) = entered {
        used.iter_mut().zip(entered).for_each(|(used, &times)| *used |= times > 0);
    }
    for (index, scope) in process.tables.scopes.iter().enumerate().skip(1).rev() {
        used[scope.parent.0 as usize] |= used[index];
    }
    used
}
