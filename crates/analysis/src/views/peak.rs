//! The time of the peak: open windows, marks, resident memory, slack and kinds of memory.

use super::sizes;
use crate::model::{Mark, Process, SiteKind, Window};

/// Data about the time of the peak.
#[derive(Clone, PartialEq, Debug)]
pub struct Moment<'a> {
    /// Open windows.
    pub windows: Vec<&'a Window>,
    /// The last mark at or before the peak.
    pub before: Option<&'a Mark>,
    /// The first mark after the peak.
    pub after: Option<&'a Mark>,
    /// Resident bytes of the process, and the time in nanoseconds from the start, of the sample
    /// nearest to the peak.
    pub resident: Option<(u64, u64)>,
    /// Slack of blocks live at peak, as far as their sizes are known.
    pub slack: Slack,
    /// Bytes live at peak by kind of memory, without kinds that have none.
    pub kinds: Vec<(SiteKind, u64)>,
}

/// Usable bytes that were not requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slack {
    /// Slack of blocks with known size.
    pub bytes: u64,
    /// Usable bytes of these blocks.
    pub known_bytes: u64,
}

impl Moment<'_> {
    /// Returns the data of a process.
    ///
    /// ```
    /// use heaptide_analysis::views::peak::Moment;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let peak = Moment::of(&process);
    /// assert!(peak.slack.known_bytes <= process.totals.at_peak_bytes);
    /// ```
    pub fn of(process: &Process) -> Moment<'_> {
        let at = process.peak_time_ns;
        let is_open = |w: &&Window| w.begin_time_ns <= at && (w.open || w.end_time_ns >= at);
        let samples = process.time.samples.iter().filter(|sample| sample.resident_bytes > 0);
        let nearest = samples.min_by_key(|sample| sample.time_ns.abs_diff(at));
        let marks = || process.time.marks.iter();
        Moment {
            windows: process.time.windows.iter().filter(is_open).collect(),
            before: marks().filter(|mark| mark.time_ns <= at).max_by_key(|mark| mark.time_ns),
            after: marks().filter(|mark| mark.time_ns > at).min_by_key(|mark| mark.time_ns),
            resident: nearest.map(|sample| (sample.resident_bytes, sample.time_ns)),
            slack: slack(process),
            kinds: kinds(process),
        }
    }
}

/// Returns the slack of blocks with known requested size. Pools are excluded, because their chunks
/// have any size.
fn slack(process: &Process) -> Slack {
    let heap = process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap);
    sizes::exact(heap).iter().fold(Slack::default(), |sum, row| {
        let m = &row.measures;
        let requested = row.size.saturating_mul(m.at_peak_blocks);
        Slack {
            bytes: sum.bytes.saturating_add(m.at_peak_bytes.saturating_sub(requested)),
            known_bytes: sum.known_bytes.saturating_add(m.at_peak_bytes),
        }
    })
}

fn kinds(process: &Process) -> Vec<(SiteKind, u64)> {
    use SiteKind::{Heap, Outside, OutsidePoolBlock, OutsidePoolChunk, PoolBlock, PoolChunk};
    let all = [Heap, PoolBlock, PoolChunk, Outside, OutsidePoolBlock, OutsidePoolChunk];
    let sum = |kind| {
        let sites = process.tables.sites.iter().filter(|site| site.kind == kind);
        let bytes = sites.fold(0u64, |sum, site| sum.saturating_add(site.measures.at_peak_bytes));
        (kind, bytes)
    };
    all.map(sum).into_iter().filter(|kind| kind.1 > 0).collect()
}
