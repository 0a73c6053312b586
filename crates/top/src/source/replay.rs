//! The replay of a recording: at stops in its trace, or else at its snapshots, its peak and its
//! end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heaptide_analysis::Error;
use heaptide_analysis::model::{Mode, Process, Sample, SiteKind};
use heaptide_analysis::recording::live::Counts;
use heaptide_analysis::recording::live_tables::{LiveTables, counts_now, counts_of};
use heaptide_analysis::recording::snapshot::{self, Snapshot};
use heaptide_analysis::trace::{Event, Operation};

use super::images::Prepare;
use crate::model::numbers::Moment;
use crate::model::tables::Tables;

/// Number of stops in a trace, like the columns of a chart.
const STOPS: u64 = 100;

/// A time at which a replay can stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    pub(crate) time_ns: u64,
    pub(crate) name: String,
    /// Whether total allocations are known at this time, which they are not at the peak.
    pub(crate) has_rates: bool,
}

/// The counters of a recording at its stops.
pub(crate) struct Replay {
    pub(crate) stops: Vec<Stop>,
    /// The changes before each stop.
    changes: Vec<Changes>,
    samples: Vec<Sample>,
    /// The tables, until the screen takes them.
    pub(crate) tables: Option<Box<Tables>>,
    /// The counters at the end.
    last: Vec<Counts>,
    peak_bytes: u64,
    file: PathBuf,
    /// Whether sites were recorded, not only totals.
    pub(crate) has_rows: bool,
}

/// Rows whose counters differ from the previous stop, with these counters.
type Changes = Vec<(u32, Counts)>;

impl Replay {
    /// Reads the profile, and its trace or snapshots.
    ///
    /// Errors: a file cannot be read.
    pub(crate) fn read(
        file: &Path,
        prepare: &Prepare,
        progress: &dyn Fn(String),
    ) -> Result<Replay, Error> {
        let mut process = LiveTables::new(file).read(&mut |done, total| {
            progress(format!("looking up names {done}/{total}"));
        })?;
        prepare(&mut process);
        let has_rows = process.mode != Mode::Counters;
        let mut last = counts_now(&process);
        let (stops, changes) = if process.has_trace() {
            progress("reading the trace".to_owned());
            for counts in &mut last {
                if counts.kind == SiteKind::PoolBlock {
                    // The bytes stay with the chunk from which they are lent.
                    counts.kind = SiteKind::OutsidePoolBlock;
                }
            }
            of_trace(&process, &last)?
        } else {
            progress("reading snapshots".to_owned());
            of_snapshots(file, &process, &last)?
        };
        let peak_bytes = process.totals.peak_bytes;
        let samples = process.time.samples.clone();
        let mut tables = Tables::new(process);
        tables.set_slots_to_rows();
        Ok(Replay {
            stops,
            changes,
            samples,
            tables: Some(Box::new(tables)),
            last,
            peak_bytes,
            file: file.to_owned(),
            has_rows,
        })
    }

    /// Returns the path of the profile.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the counters at a stop, or at the last one if there are fewer.
    pub(crate) fn moment(&self, stop: usize) -> Moment {
        let stop = stop.min(self.stops.len().saturating_sub(1));
        let mut counts: Vec<Counts> = self.last.iter().map(at_start).collect();
        for changes in self.changes.iter().take(stop + 1) {
            changes.iter().for_each(|(row, then)| counts[*row as usize] = *then);
        }
        let counts = Arc::new(counts);
        let time_ns = self.stops.get(stop).map_or(0, |stop| stop.time_ns);
        let after = self.samples.partition_point(|sample| sample.time_ns <= time_ns);
        let sample = after.checked_sub(1).and_then(|index| self.samples.get(index));
        let resident_bytes = sample.map_or(0, |sample| sample.resident_bytes);
        Moment { time_ns, counts, peak_bytes: self.peak_bytes, resident_bytes, device_bytes: 0 }
    }

    /// Returns the recorder's samples.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

/// Returns the counters of a row before its first allocation.
fn at_start(counts: &Counts) -> Counts {
    Counts { at_peak_bytes: counts.at_peak_bytes, kind: counts.kind, ..Counts::default() }
}

/// Returns stops at equal intervals of a trace, with the changes before each.
fn of_trace(process: &Process, last: &[Counts]) -> Result<(Vec<Stop>, Vec<Changes>), Error> {
    let end_ns = process.lifetime.duration_ns.max(1);
    let time_of = |stop: u64| (u128::from(end_ns) * u128::from(stop) / u128::from(STOPS)) as u64;
    let mut rows = Changing {
        counts: last.iter().map(at_start).collect(),
        is_changed: vec![false; last.len()],
        changed: Vec::new(),
    };
    let (mut stops, mut known) = (Vec::new(), Vec::new());
    let mut replay = process.replay()?;
    let mut batch = Vec::new();
    let mut next = 1;
    let mut stop_at = |stop: u64, rows: &mut Changing| {
        let name = name_of(process, time_of(stop.saturating_sub(1)), time_of(stop));
        stops.push(Stop { time_ns: time_of(stop), name, has_rates: true });
        known.push(rows.take());
    };
    while replay.fill(&mut batch) {
        for event in &batch {
            while next < STOPS && event.time_ns > time_of(next) {
                stop_at(next, &mut rows);
                next += 1;
            }
            rows.event(event);
        }
    }
    (next..=STOPS).for_each(|stop| stop_at(stop, &mut rows));
    Ok((stops, known))
}

/// Returns the name of the last mark between two times.
fn name_of(process: &Process, from_ns: u64, to_ns: u64) -> String {
    let marks = process.time.marks.iter().filter(|mark| !mark.name.is_empty());
    let mut between = marks.filter(|mark| (from_ns..to_ns).contains(&mark.time_ns));
    between.next_back().map(|mark| mark.name.to_string()).unwrap_or_default()
}

/// Updates the counters of rows by events.
struct Changing {
    counts: Vec<Counts>,
    is_changed: Vec<bool>,
    changed: Vec<u32>,
}

impl Changing {
    fn event(&mut self, event: &Event) {
        match event.operation {
            Operation::Allocate => self.enter(event.site, event.usable),
            Operation::Free => self.leave(event.site, event.usable),
            Operation::Relabel | Operation::Unlabel => {
                self.leave(event.site_before, event.usable);
                self.enter(event.site, event.usable);
                if event.operation == Operation::Relabel {
                    if let Some(counts) = self.at(event.site) {
                        counts.moved_blocks += 1;
                        counts.moved_bytes = counts.moved_bytes.saturating_add(event.usable);
                    }
                } else if let Some(counts) = self.at(event.site) {
                    // The block stays counted as if it had not moved.
                    counts.allocations -= 1;
                    counts.allocated_bytes = counts.allocated_bytes.saturating_sub(event.usable);
                }
            }
            Operation::Fail | Operation::Begin | Operation::End | Operation::Mark => {}
        }
    }

    fn enter(&mut self, site: u32, bytes: u64) {
        if let Some(counts) = self.at(site) {
            counts.live_blocks += 1;
            counts.allocations += 1;
            counts.live_bytes = counts.live_bytes.saturating_add(bytes);
            counts.allocated_bytes = counts.allocated_bytes.saturating_add(bytes);
        }
    }

    fn leave(&mut self, site: u32, bytes: u64) {
        if let Some(counts) = self.at(site) {
            counts.live_blocks = counts.live_blocks.saturating_sub(1);
            counts.live_bytes = counts.live_bytes.saturating_sub(bytes);
        }
    }

    /// Returns the counters of a row for modification, and records the change.
    fn at(&mut self, site: u32) -> Option<&mut Counts> {
        let counts = self.counts.get_mut(site as usize)?;
        if !std::mem::replace(&mut self.is_changed[site as usize], true) {
            self.changed.push(site);
        }
        Some(counts)
    }

    /// Returns the changes since the last call.
    fn take(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().for_each(|&row| self.is_changed[row as usize] = false);
        changed.into_iter().map(|row| (row, self.counts[row as usize])).collect()
    }
}

/// Returns stops at the snapshots, at the peak and at the end.
fn of_snapshots(
    file: &Path,
    process: &Process,
    last: &[Counts],
) -> Result<(Vec<Stop>, Vec<Changes>), Error> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let identity = &process.identity;
    let mut own = snapshot::all(directory)?;
    own.retain(|s| (s.pid, s.image) == (identity.pid, identity.image) && s.damaged.is_none());
    let marks = process.time.marks.iter().map(|m| (m.kind, m.number, &*m.name, m.time_ns));
    snapshot::name_by_marks(&mut own, marks);
    let at_peak = process.tables.sites.iter().zip(last).map(|(site, counts)| Counts {
        live_bytes: counts.at_peak_bytes,
        live_blocks: site.measures.at_peak_blocks,
        ..*counts
    });
    // The time of the peak can be a millisecond early, also before that of an earlier snapshot.
    let is_before = |snapshot: &&Snapshot| snapshot.peak_bytes < process.totals.peak_bytes;
    let last_before = own.iter().filter(is_before).map(|snapshot| snapshot.time_ns).max();
    let time_ns = process.peak_time_ns.max(last_before.unwrap_or(0));
    let peak = Stop { time_ns, name: "peak usage".to_owned(), has_rates: false };
    let snapshots = own.into_iter().map(|snapshot| {
        let name = format!("snapshot {} {}", snapshot.number, snapshot.name);
        let (time_ns, name) = (snapshot.time_ns, name.trim_end().to_owned());
        let stop = Stop { time_ns, name, has_rates: true };
        (stop, Some(snapshot.file))
    });
    let mut stops: Vec<_> = snapshots.chain([(peak, None)]).collect();
    stops.sort_by_key(|(stop, _)| stop.time_ns);
    let mut before: Vec<Counts> = last.iter().map(at_start).collect();
    let mut known = Vec::with_capacity(stops.len() + 1);
    for (_, file) in &stops {
        let counts = match file {
            Some(file) => counts_of(file, process)?,
            None => at_peak.clone().collect(),
        };
        known.push(changes(&before, &counts));
        before = counts;
    }
    known.push(changes(&before, last));
    let (time_ns, name) = (process.lifetime.duration_ns, "end".to_owned());
    let end = Stop { time_ns, name, has_rates: true };
    Ok((stops.into_iter().map(|(stop, _)| stop).chain([end]).collect(), known))
}

/// Returns the rows that differ, with their later counters.
fn changes(before: &[Counts], then: &[Counts]) -> Changes {
    let rows = (0..).zip(before.iter().zip(then));
    rows.filter(|(_, (was, is))| was != is).map(|(row, (_, is))| (row, *is)).collect()
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch};

    use super::*;

    #[test]
    fn each_stop_has_its_counts_in_any_order() {
        let scratch = Scratch::new("top-replay");
        let mut program = ProgramBuilder::with_stacks(&["main", "main;load"]);
        let path = program.write(&scratch);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let snapshot = |number: u32| {
            let file = name.replace(".profile", &format!(".{number}.snapshot"));
            std::fs::copy(&path, path.with_file_name(file)).expect("a snapshot");
        };
        snapshot(1);
        program.block("main;parse", 100);
        program.write(&scratch);
        snapshot(2);
        program.block("main", 1000);
        program.write(&scratch);
        let prepare: Prepare = Arc::new(|_| {});
        let replay = Replay::read(&path, &prepare, &|_| {}).expect("a replay");
        let live = |stop: &str| {
            let at = replay.stops.iter().position(|other| other.name == stop).expect("the stop");
            replay.moment(at).counts.iter().map(|counts| counts.live_bytes).sum::<u64>()
        };
        let all = ["end", "snapshot 1", "snapshot 2", "peak usage", "end", "snapshot 1"];
        assert_eq!(all.map(live), [1103, 3, 103, 1103, 1103, 3]);
        assert_eq!(replay.stops.last().map(|stop| &*stop.name), Some("end"));
        assert!(replay.has_rows);
    }
}
