//! Trace events, for Perfetto and chrome://tracing: live and resident bytes and the rate of
//! allocations over time, windows, marks, and when each process image ran.
//!
//! Times are microseconds from the start of the first process image. The pid is the id of a process
//! and of its own row; its lanes are threads with the ids after it.

use std::io::{self, Write};

use heaptide_analysis::model::{LaneId, Mark, Process, Recording, Sample, Window};
use serde_json::{Value, json};

use crate::shared::annotations::mark_says;
use crate::shared::command_line::command_line;
use crate::shared::heading::sampling_says;
use crate::shared::json_text;
use crate::shared::live_over_time;

/// Writes the events of all process images, or of those of one process, as a JSON object.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, recording: &Recording, pid: Option<u32>) -> io::Result<()> {
    let chosen =
        || recording.processes.iter().filter(|p| pid.is_none_or(|pid| pid == p.identity.pid));
    let start = chosen().map(|process| process.lifetime.start_realtime_ns).min().unwrap_or(0);
    let made_by = format!("heaptide {}", env!("CARGO_PKG_VERSION"));
    let head = json!({"made by": made_by, "recording": recording.path.to_string_lossy()});
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"metadata\":")?;
    json_text::write(out, &head)?;
    out.write_all(b",\"traceEvents\":[")?;
    let mut events = Events { out, written: 0 };
    for process in chosen() {
        let origin = (process.lifetime.start_realtime_ns - start) as i128;
        // Joined images have no pid, and Perfetto treats pid 0 as the idle process.
        let pid = u64::from(process.identity.pid.max(1));
        Image { process, pid, origin }.write(&mut events)?;
    }
    events.out.write_all(b"\n]}\n")
}

/// The JSON list of events, written incrementally.
struct Events<'o> {
    out: &'o mut dyn Write,
    written: u64,
}

impl Events<'_> {
    fn add(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.written == 0 { b"\n" } else { b",\n" })?;
        self.written += 1;
        json_text::write(&mut *self.out, event)
    }
}

struct Image<'a> {
    process: &'a Process,
    /// Also the thread id of the process's own row.
    pid: u64,
    /// Start of this image, in nanoseconds after the start of the first image.
    origin: i128,
}

impl Image<'_> {
    fn write(&self, events: &mut Events) -> io::Result<()> {
        self.metadata(events)?;
        self.run(events)?;
        self.counters(events)?;
        for (window, index) in self.process.time.windows.iter().zip(0u64..) {
            self.window(events, window, index)?;
        }
        self.process.time.marks.iter().try_for_each(|mark| events.add(&self.mark(mark)))
    }

    /// Converts nanoseconds from the start of the image to microseconds of the output.
    fn time(&self, ns: u64) -> f64 {
        (self.origin + i128::from(ns)) as f64 / 1000.0
    }

    fn row(&self, lane: LaneId) -> u64 {
        self.pid + 1 + u64::from(lane.0)
    }

    fn metadata(&self, events: &mut Events) -> io::Result<()> {
        let name = self.process.identity.name();
        let named = |what: &str, tid: u64, name: &str| json!({"ph": "M", "name": what, "pid": self.pid, "tid": tid, "args": {"name": name}});
        events.add(&named("process_name", self.pid, name))?;
        events.add(&named("thread_name", self.pid, "process"))?;
        let lanes = self.process.tables.lanes.iter().zip(0..);
        lanes.into_iter().try_for_each(|(lane, id)| {
            events.add(&named("thread_name", self.row(LaneId(id)), &lane.name))
        })
    }

    /// Adds the interval in which the image ran, with its totals.
    fn run(&self, events: &mut Events) -> io::Result<()> {
        let Process { totals, .. } = self.process;
        events.add(&json!({
            "ph": "X", "cat": "process", "name": command_line(self.process, 200),
            "pid": self.pid, "tid": self.pid,
            "ts": self.time(0), "dur": self.process.lifetime.duration_ns as f64 / 1000.0,
            "args": {
                "image": self.process.identity.image,
                "allocations": totals.allocations, "usable_bytes": totals.usable_bytes,
                "peak_bytes": totals.peak_bytes, "live_bytes": totals.live_bytes,
                "part": self.process.completeness.part,
                "sampled": sampling_says(self.process),
            },
        }))
    }

    fn counters(&self, events: &mut Events) -> io::Result<()> {
        let samples = &self.process.time.samples;
        let mut counter = |name: &str, ns: u64, unit: &str, value: f64| {
            events.add(&json!({
                "ph": "C", "name": name, "pid": self.pid, "tid": self.pid, "ts": self.time(ns),
                "args": {unit: value},
            }))
        };
        for (ns, bytes) in live_over_time::points(self.process) {
            counter("live", ns, "bytes", bytes as f64)?;
        }
        for sample in samples.iter().filter(|sample| sample.resident_bytes > 0) {
            counter("resident", sample.time_ns, "bytes", sample.resident_bytes as f64)?;
        }
        for (from, until) in samples.iter().zip(samples.iter().skip(1)) {
            if let Some(rate) = rate(from, until) {
                counter("allocations", from.time_ns, "per second", rate)?;
            }
        }
        match samples.last() {
            Some(last) => counter("allocations", last.time_ns, "per second", 0.0),
            None => Ok(()),
        }
    }

    /// Adds a window. Windows can overlap without nesting, which only asynchronous begin and end
    /// events can express.
    fn window(&self, events: &mut Events, window: &Window, index: u64) -> io::Result<()> {
        let end = if window.open { self.process.lifetime.duration_ns } else { window.end_time_ns };
        let id = format!("{}-{}-{index}", self.pid, self.process.identity.image);
        let event = |phase: &str, ns: u64, args: Value| {
            json!({
                "ph": phase, "cat": "window", "name": &*window.name, "id": id,
                "pid": self.pid, "tid": self.pid, "ts": self.time(ns), "args": args,
            })
        };
        let args = json!({
            "allocations": window.allocations, "frees": window.frees,
            "usable_bytes": window.usable_bytes, "freed_bytes": window.freed_bytes,
            "live_bytes": window.live_bytes, "peak_bytes": window.peak_bytes,
            "open": window.open,
        });
        events.add(&event("b", window.begin_time_ns, args))?;
        events.add(&event("e", end.max(window.begin_time_ns), json!({})))
    }

    fn mark(&self, mark: &Mark) -> Value {
        let (scope, tid) = mark.lane.map_or(("p", self.pid), |lane| ("t", self.row(lane)));
        json!({
            "ph": "i", "s": scope, "cat": "mark", "name": mark_says(mark), "pid": self.pid, "tid": tid,
            "ts": self.time(mark.time_ns), "args": {"live_bytes": mark.live_bytes},
        })
    }
}

/// Returns the allocations per second between two samples, or `None` if no time passed.
fn rate(from: &Sample, until: &Sample) -> Option<f64> {
    let ns = until.time_ns.checked_sub(from.time_ns).filter(|&ns| ns > 0)?;
    let made = until.allocations.saturating_sub(from.allocations);
    Some((made as f64 / ns as f64 * 1e9).round())
}
