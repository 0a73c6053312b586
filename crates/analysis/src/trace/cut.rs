//! Limits the traces of programs that run for months: drops the oldest chunks of a trace file.
//!
//! Each chunk belongs to one lane, and chunks overlap in time: a dropped chunk of one lane can
//! cover the same time as a kept chunk of another. So the file stores the last time in any dropped
//! chunk: readers begin there, and nothing is missing after it.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use heaptide_format::{TRACE_MAGIC, TRACE_VERSION, TraceCut, TraceHead};
use zerocopy::IntoBytes;

use super::file::{Appender, CHUNK, CUT_HEAD, Place, TraceFile, Unpacker, belongs_to, start};
use crate::error::Error;
use crate::files::draft::{self, Draft};

/// Chunks beyond the age limit are dropped once they take this fraction of the file, a half, so
/// that each byte is copied once on average.
const DROPPED_PART: u64 = 2;

/// Limits of a trace; `None` if a limit is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepTrace {
    /// Maximum size of the file in bytes; at least half of it is kept.
    pub bytes: Option<u64>,
    /// Time whose events are kept; events of at most twice this time stay.
    pub age: Option<Duration>,
}

impl KeepTrace {
    /// Returns whether any limit is set.
    pub fn is_limited(&self) -> bool {
        *self != KeepTrace::default()
    }
}

/// Two points of a file with ticks and nanoseconds.
struct Moments {
    first: (u64, u64),
    last: (u64, u64),
}

impl Moments {
    /// Returns the ticks at a time; `None` if the two points are the same.
    fn ticks(&self, time_ns: u64) -> Option<u64> {
        let (ticks, ns) =
            (self.last.0.checked_sub(self.first.0)?, self.last.1.checked_sub(self.first.1)?);
        let since = time_ns.checked_sub(self.first.1)?;
        let away = (ns > 0).then(|| (since as f64 * (ticks as f64 / ns as f64)) as u64)?;
        self.first.0.checked_add(away)
    }
}

impl Appender {
    /// Drops the oldest chunks of the trace file of a profile that are beyond the limits at this
    /// time, in nanoseconds from the start of the process. Returns whether any were dropped.
    ///
    /// Errors: the file cannot be read or written; then it is unchanged.
    pub(super) fn drop_oldest(
        &mut self,
        profile: &Path,
        keep: &KeepTrace,
        now_ns: u64,
    ) -> Result<bool, Error> {
        if !keep.is_limited() {
            return Ok(false);
        }
        let is_large = keep.bytes.is_some_and(|bytes| self.length() > bytes);
        if !is_large && keep.age.is_none() {
            return Ok(false);
        }
        let Some(trace) = TraceFile::of(profile)? else { return Ok(false) };
        let places = trace.places();
        let by_size = keep.bytes.filter(|_| is_large).map_or(0, |bytes| beyond(places, bytes));
        let by_age = match keep.age {
            Some(age) => older(&trace, age, now_ns)?,
            None => 0,
        };
        let dropped = by_size.max(by_age);
        if dropped == 0 {
            return Ok(false);
        }
        let cut = cut(&trace, dropped)?;
        self.keep_from(profile, &trace, (dropped, cut))?;
        Ok(true)
    }

    /// Replaces the trace file by one without the first chunks.
    fn keep_from(
        &mut self,
        profile: &Path,
        trace: &TraceFile,
        (dropped, cut): (usize, TraceCut),
    ) -> Result<(), Error> {
        let path = trace.path();
        let io = |source| Error::Io { path: path.to_owned(), doing: "write", source };
        let from = trace.places()[dropped].at - CHUNK;
        let length = trace.length() - from;
        let owner = fs::metadata(profile).map_err(io)?;
        let write = || {
            let draft = Draft::of(path, draft::PRIVATE)?;
            let head = TraceHead { magic: TRACE_MAGIC, version: TRACE_VERSION, reserved: 0 };
            let mut file = draft.file();
            file.write_all(head.as_bytes())?;
            file.write_all(cut.as_bytes())?;
            let mut old = trace.file();
            old.seek(SeekFrom::Start(from))?;
            let copied = std::io::copy(&mut old.take(length), &mut file)?;
            if copied < length {
                return Err(std::io::Error::other("the file was truncated meanwhile"));
            }
            let kept = file.try_clone()?;
            draft.replace()?;
            belongs_to(&kept, &owner)?;
            Ok(kept)
        };
        let kept = write().map_err(io)?;
        let numbers = trace.places()[dropped..].iter().map(|place| place.chunk.number).collect();
        self.go_on_in(kept, CUT_HEAD + length, numbers);
        Ok(())
    }
}

/// Returns how many chunks to drop so that the rest takes at most half of these bytes. The last
/// chunk is kept.
fn beyond(places: &[Place], bytes: u64) -> usize {
    let end = places.last().map_or(0, |last| last.at + u64::from(last.chunk.packed_length));
    let rest = |place: &Place| end - (place.at - CHUNK) + CUT_HEAD;
    let first = places.iter().position(|place| rest(place) <= bytes / 2);
    first.unwrap_or(places.len()).min(places.len().saturating_sub(1))
}

/// Returns how many chunks are older than `age`, or 0 if they take too small a part of the file.
fn older(trace: &TraceFile, age: Duration, now_ns: u64) -> Result<usize, Error> {
    let places = trace.places();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(0) };
    let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    let Some(until_ns) = now_ns.checked_sub(age_ns) else { return Ok(0) };
    let moments = Moments { first: moment(trace, first)?, last: moment(trace, last)? };
    let Some(until) = moments.ticks(until_ns) else { return Ok(0) };
    let is_older = |place: &&Place| last_ticks(place) < until;
    let count = places.iter().take_while(is_older).count().min(places.len() - 1);
    let is_worth_it = (places[count].at - CHUNK) >= trace.length() / DROPPED_PART;
    Ok(if is_worth_it { count } else { 0 })
}

/// Returns what the file stores about its dropped chunks.
fn cut(trace: &TraceFile, dropped: usize) -> Result<TraceCut, Error> {
    let (gone, before) = (&trace.places()[..dropped], trace.cut());
    let latest = gone.iter().max_by_key(|place| last_ticks(place));
    let (ticks, time_ns) = match latest {
        Some(latest) => moment(trace, latest)?,
        None => (0, 0),
    };
    let bytes = gone.iter().map(|place| CHUNK + u64::from(place.chunk.packed_length));
    Ok(TraceCut {
        ticks: ticks.max(before.ticks),
        time_ns: time_ns.max(before.time_ns),
        chunks: before.chunks.saturating_add(dropped as u64),
        bytes: bytes.fold(before.bytes, u64::saturating_add),
    })
}

/// Returns the time of the last record of a chunk, as far as its header has that.
fn last_ticks(place: &Place) -> u64 {
    place.chunk.last_ticks.max(place.chunk.first_ticks)
}

/// Returns the last point of a chunk with ticks and nanoseconds.
fn moment(trace: &TraceFile, place: &Place) -> Result<(u64, u64), Error> {
    let io = |source| Error::Io { path: trace.path().to_owned(), doing: "read", source };
    let (mut unpacker, mut contents) = (Unpacker::new().map_err(io)?, Vec::new());
    trace.read(place, &mut unpacker, &mut contents)?;
    let start = start(&contents).unwrap_or_default();
    Ok(if start.last_ticks >= start.ticks && start.last_ticks != 0 {
        (start.last_ticks, start.last_time_ns)
    } else {
        (start.ticks, start.time_ns)
    })
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;
    use heaptide_format::TraceStart;

    use super::*;

    /// Returns the contents of an extent that covers a microsecond, with a tick per nanosecond.
    fn contents(number: u32) -> Vec<u8> {
        let at = u64::from(number) * 1000;
        let start = TraceStart {
            number,
            ticks: at,
            time_ns: at,
            last_ticks: at + 999,
            last_time_ns: at + 999,
            ..TraceStart::default()
        };
        // It does not compress.
        let mut random = u64::from(number) + 1;
        let noise = (0..10_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        });
        start.as_bytes().iter().copied().chain(noise).collect()
    }

    fn made(name: &str, chunks: u32) -> (Scratch, std::path::PathBuf, Appender) {
        let scratch = Scratch::new(&format!("cut-{name}"));
        let profile = scratch.write("12-0.profile", b"not read here");
        let mut appender = Appender::of(&profile).expect("a file");
        for number in 1..=chunks {
            appender.append(number % 3, &contents(number)).expect("a chunk");
        }
        (scratch, profile, appender)
    }

    fn numbers(profile: &Path) -> Vec<u32> {
        let trace = TraceFile::of(profile).expect("readable").expect("a file");
        let mut unpacker = Unpacker::new().expect("memory");
        let mut read = Vec::new();
        for place in trace.places() {
            trace.read(place, &mut unpacker, &mut read).expect("whole");
            assert_eq!(read, contents(place.chunk.number));
        }
        trace.places().iter().map(|place| place.chunk.number).collect()
    }

    #[test]
    fn the_newest_half_of_the_bytes_is_kept() {
        let (_scratch, profile, mut appender) = made("bytes", 10);
        let keep = KeepTrace { bytes: Some(102_000), age: None };
        assert!(!appender.drop_oldest(&profile, &keep, 0).expect("room"));
        appender.append(0, &contents(11)).expect("a chunk");
        assert!(appender.drop_oldest(&profile, &keep, 0).expect("room"));
        assert_eq!(numbers(&profile), [7, 8, 9, 10, 11]);
        let file = TraceFile::of(&profile).expect("readable").expect("a file");
        let cut = file.cut();
        assert_eq!((cut.ticks, cut.time_ns, cut.chunks), (6999, 6999, 6));
        assert!(cut.bytes > 60_000 && file.length() == appender.length());
        // Appending continues in the new file, also for another command.
        appender.append(1, &contents(12)).expect("a chunk");
        assert!(appender.has(12) && appender.has(7) && !appender.has(6));
        let mut appender = Appender::of(&profile).expect("a file");
        (13..=18).for_each(|number| appender.append(2, &contents(number)).expect("a chunk"));
        assert!(appender.drop_oldest(&profile, &keep, 0).expect("room"));
        assert_eq!(numbers(&profile), [14, 15, 16, 17, 18]);
        let cut = TraceFile::of(&profile).expect("readable").expect("a file").cut();
        assert_eq!((cut.ticks, cut.chunks), (13_999, 13));
    }

    #[test]
    fn what_is_older_goes_when_it_is_half_of_the_file() {
        let (_scratch, profile, mut appender) = made("age", 10);
        let keep = KeepTrace { bytes: None, age: Some(Duration::from_nanos(4000)) };
        assert!(!appender.drop_oldest(&profile, &keep, 8000).expect("room"), "four of ten");
        assert!(appender.drop_oldest(&profile, &keep, 11_000).expect("room"));
        assert_eq!(numbers(&profile), [7, 8, 9, 10]);
        let cut = TraceFile::of(&profile).expect("readable").expect("a file").cut();
        assert_eq!((cut.time_ns, cut.chunks), (6999, 6));
        // The last chunk is kept regardless of its age.
        assert!(appender.drop_oldest(&profile, &keep, 1_000_000).expect("room"));
        assert_eq!(numbers(&profile), [10]);
    }
}
