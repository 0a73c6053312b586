//! Metrics of the server itself.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heaptide_analysis::recording::running::{self, Running};
use nix::time::{ClockId, clock_gettime};

use crate::family::{Definition, Family, Point, Value};

const BUILD: Definition = Definition::info("heaptide_build", "The version of this server.");
const RECORDINGS: Definition =
    Definition::gauge("heaptide_recordings", "", "Recordings that are read.");
const PROCESSES: Definition =
    Definition::gauge("heaptide_processes", "", "Running recorded processes.");
const OTHER_PROCESSES: Definition = Definition::gauge(
    "heaptide_other_processes",
    "",
    "Processes without their own series, which are counted in (other).",
);
const OTHER_GROUPS: Definition = Definition::gauge(
    "heaptide_other_groups",
    "",
    "Scopes and labels without their own series, which are counted in (other).",
);
const UNREAD_PROCESSES: Definition = Definition::gauge(
    "heaptide_unread_processes",
    "",
    "Running recorded processes that are not read: too many processes, or too few descriptors.",
);
const READ_ERRORS: Definition =
    Definition::counter("heaptide_read_errors", "", "Profiles that could not be read.");
const READ_SECONDS: Definition = Definition::gauge(
    "heaptide_read_duration_seconds",
    "seconds",
    "Processor time spent on the last reading of all profiles.",
);
const CPU: Definition = Definition::counter(
    "process_cpu_seconds",
    "seconds",
    "User and system processor time of this server.",
);
const RESIDENT: Definition =
    Definition::gauge("process_resident_memory_bytes", "bytes", "Resident memory of this server.");
const VIRTUAL: Definition =
    Definition::gauge("process_virtual_memory_bytes", "bytes", "Virtual memory of this server.");
const OPEN_FILES: Definition =
    Definition::gauge("process_open_fds", "", "Open file descriptors of this server.");
const START: Definition = Definition::gauge(
    "process_start_time_seconds",
    "seconds",
    "Start of this server, in seconds since 1970-01-01 UTC.",
);

/// The state of the server at a reading.
pub(crate) struct State {
    pub(crate) version: &'static str,
    pub(crate) recordings: u64,
    pub(crate) processes: u64,
    pub(crate) other_processes: u64,
    pub(crate) unread_processes: u64,
    pub(crate) other_groups: u64,
    pub(crate) errors: u64,
    pub(crate) cost: Duration,
}

/// Returns the metric families of the server.
pub(crate) fn families(state: &State) -> Vec<Family> {
    let version = Point {
        process: None,
        labels: vec![("version", state.version.into())],
        value: Value::Whole(1),
    };
    let memory = Running { pid: std::process::id(), file: Default::default() }.memory();
    let files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64);
    let whole = |definition, value: u64| family(definition, Some(Value::Whole(value)));
    let real =
        |definition, value: Duration| family(definition, Some(Value::Real(value.as_secs_f64())));
    vec![
        Family { definition: &BUILD, points: vec![version] },
        whole(&RECORDINGS, state.recordings),
        whole(&PROCESSES, state.processes),
        whole(&OTHER_PROCESSES, state.other_processes),
        whole(&UNREAD_PROCESSES, state.unread_processes),
        whole(&OTHER_GROUPS, state.other_groups),
        whole(&READ_ERRORS, state.errors),
        real(&READ_SECONDS, state.cost),
        real(&CPU, processor_time()),
        family(&RESIDENT, memory.map(|(resident, _)| Value::Whole(resident))),
        family(&VIRTUAL, memory.map(|(_, all)| Value::Whole(all))),
        family(&OPEN_FILES, files.map(Value::Whole)),
        family(&START, start_time().map(Value::Real)),
    ]
}

fn family(definition: &'static Definition, value: Option<Value>) -> Family {
    Family { definition, points: value.map(Point::plain).into_iter().collect() }
}

/// Returns the processor time of the whole server, because several threads look up names.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Returns when the server started, in seconds since 1970-01-01 UTC.
fn start_time() -> Option<f64> {
    let ticks = running::start_ticks(std::process::id())? as f64;
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some((now.as_secs_f64() - since_boot.as_secs_f64() + ticks / TICKS_PER_SECOND).round())
}

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
