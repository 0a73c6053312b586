//! How and when a process image ended, from the observations of `heaptide run`, the end that the
//! image noted, and its last known activity.

use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_format as format;
use heaptide_format::FileHeader;

use super::identity::{Place, Start};
use crate::model::End;
use crate::profile::parsed::Profile;
use crate::tables::ending::Lasted;

/// Maximum difference between the clocks of the recorder and of the command, in nanoseconds.
const CLOCKS_APART_NS: u64 = 1_000_000;
/// Maximum adjustment of the wall clock while a program runs, in nanoseconds.
const CLOCK_SET_NS: u64 = 60_000_000_000;

/// Information about the end of an image from other sources than its profile.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outside {
    /// When `heaptide run` observed the end of the process, on the monotonic clock.
    pub(crate) ended_ns: Option<u64>,
    /// A wall clock time at which all processes of the recording had ended, or the current time.
    pub(crate) latest_ns: u64,
    /// When the next image of the process began.
    pub(crate) next: Option<Start>,
}

/// Returns the end that the image noted itself.
pub(crate) fn noted(header: &FileHeader) -> Option<End> {
    match header.end_kind {
        kind if kind == format::End::Exited as u32 => Some(End::Exited(header.end_code)),
        kind if kind == format::End::Exec as u32 => Some(End::Exec),
        kind if kind == format::End::Detached as u32 => Some(End::Detached),
        _ => None,
    }
}

/// Returns whether another program replaced the image by exec.
pub(crate) fn is_exec(header: &FileHeader, place: Option<&Place>) -> bool {
    place.is_some_and(|place| place.is_followed) || noted(header) == Some(End::Exec)
}

/// Returns the time from start to end. If no end was observed or noted, the end is the start of the
/// next image of the process, or now if it runs, else its last known activity.
pub(crate) fn lasted(profile: &Profile, end: End, outside: &Outside) -> Lasted {
    let header = &profile.header;
    let seen_ns = seen_ns(profile);
    let known = |ns: u64| Lasted { ns: ns.max(seen_ns), is_known: true };
    let since_start = |realtime_ns: u64| realtime_ns.saturating_sub(header.start_realtime_ns);
    if let Some(ns) = seen_to_end(header, seen_ns, outside) {
        return known(ns);
    }
    match outside.next {
        _ if header.end_time_ns != 0 => known(header.end_time_ns),
        _ if end == End::Running => known(since_start(now_ns())),
        Some(next) => known(until(header, next)),
        None => Lasted { ns: seen_ns, is_known: false },
    }
}

/// Returns when `heaptide run` observed the end, if that is plausible: not before the last known
/// activity, and not long after the end of the recording. The process can have a different clock
/// (time namespace). An image that was searched at its end waited for that.
fn seen_to_end(header: &FileHeader, seen_ns: u64, outside: &Outside) -> Option<u64> {
    if header.search != 0 && header.end_time_ns != 0 {
        return None;
    }
    let ns = outside.ended_ns?.checked_sub(header.start_monotonic_ns)?;
    let ended_ns = header.start_realtime_ns.checked_add(ns)?;
    let is_late = ended_ns > outside.latest_ns.saturating_add(CLOCK_SET_NS);
    (!is_late && ns.saturating_add(CLOCKS_APART_NS) >= seen_ns).then_some(ns)
}

/// Returns the time from the start of an image to that of the next, by the monotonic clock if both
/// noted it.
fn until(header: &FileHeader, next: Start) -> u64 {
    let own = Start::of(header);
    match (own.monotonic_ns, next.monotonic_ns) {
        (0, _) | (_, 0) => next.realtime_ns.saturating_sub(own.realtime_ns),
        (own, next) => next.saturating_sub(own),
    }
}

/// Returns the last known activity, in nanoseconds from the start.
pub(crate) fn seen_ns(profile: &Profile) -> u64 {
    let header = &profile.header;
    let named = &profile.named;
    let sample = profile.timeline.last().map(|sample| sample.time_ns);
    let mark = named.marks.last().map(|mark| mark.record.time_ns);
    let windows = named.windows.iter().map(|w| w.record.begin_time_ns.max(w.record.end_time_ns));
    let events = profile.events.iter().map(|e| e.start.time_ns.max(e.start.last_time_ns));
    let own = [header.last_seen_ns, header.peak_time_ns, header.end_time_ns, header.reset_time_ns];
    own.into_iter().chain(sample).chain(mark).chain(windows).chain(events).fold(0, u64::max)
}

/// Returns the wall clock time in nanoseconds since 1970-01-01 UTC.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
