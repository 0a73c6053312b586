//! Live bytes over time: right at every moment, up and down, also while a program sleeps.

use crate::harness::{Trial, heaptide, report, run};
use crate::recording::{list, number};
use std::path::Path;

/// Records a program, and returns the recording.
macro_rules! recording {
    ($trial:ident) => {
        $trial.recording(&[]).expect("a recording")
    };
}

/// Returns the samples of a recording as milliseconds and MiB, rounded.
fn samples(recording: &Path, scratch: &Path) -> Vec<(f64, u64)> {
    let csv = run(heaptide().args(["timeline", "--format", "csv"]).arg(recording), scratch).stdout;
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let fields = csv.lines().skip(1).map(|line| line.split(',').map(number).collect::<Vec<_>>());
    fields.map(|f| (f[0] * 1e3, (f[1] / f64::from(1 << 20)).round() as u64)).collect()
}

/// Time passes only between the steps.
#[test]
fn live_bytes_are_steps() {
    let trial = Trial::new("timeline_steps.c", "timeline-steps", &[], &[]);
    let samples = samples(&recording!(trial), &trial.scratch);
    let at = |ms| samples.iter().rfind(|sample| sample.0 <= ms).map_or(0, |sample| sample.1);
    let steps = [1.0, 61.0, 121.0, 181.0, 241.0, 301.0].map(at);
    assert_eq!(steps, [0, 8, 0, 6, 3, 0], "{samples:?}");
}

/// Four ranks that hold 8 MiB in turns hold 8 MiB together, to two percent.
#[test]
fn memory_in_turns_is_counted_once() {
    let trial = Trial::new("turns.c", "timeline-turns", &[], &[]);
    let recording = recording!(trial);
    let mut command = heaptide();
    let text = run(command.args(["report", "--process", "all"]).arg(&recording), &trial.scratch);
    let peak = text.stdout.lines().find_map(|line| line.trim_start().strip_prefix("peak "));
    let (bytes, rest) = peak.and_then(|peak| peak.split_once(" MiB ")).expect("MiB");
    let bytes: f64 = bytes.trim().parse().expect("a number");
    assert!((8.0..8.17).contains(&bytes), "{bytes} {rest}");
    let (when, holders) = rest.split_once(": ").expect("who held them");
    assert!(when.contains(" bytes at one time by samples, after "), "{when}");
    assert!(holders.ends_with("8.00 MiB"), "{holders}");
}

/// What threads hold without having published it is part of the peak: a sample sums it.
#[test]
fn the_peak_includes_what_many_threads_hold() {
    let trial = Trial::new("threads_hold.c", "threads-hold", &[], &[]);
    let recording = recording!(trial);
    let report = report(&recording, &trial.scratch);
    let peak = number(&list(&report, "processes")[0]["totals"], "peak_bytes");
    // Without what the last thread may not have published, and with the C library's blocks.
    let live = 64 * 300 * 104;
    let known = (live - 32768)..=(live + 64 * 1024);
    assert!(known.contains(&peak), "{peak}, expected {known:?}");
    let mut command = heaptide();
    command.args(["timeline", "--format", "csv"]).arg(recording);
    let csv = run(&mut command, &trial.scratch).stdout;
    let samples = csv.lines().skip(1).map(|line| line.split(',').nth(1).expect("live"));
    let highest = samples.map(|live| live.parse::<i128>().expect("a number")).max();
    assert!(peak >= highest.expect("samples"), "{peak}, and a sample of {highest:?}");
}

/// What threads hold after a burst is in the samples to one percent of the peak, though they do
/// nothing afterwards.
#[test]
fn samples_include_what_waiting_threads_hold() {
    let trial = Trial::new("threads_wait.c", "threads-wait", &[], &[]);
    let report = report(&recording!(trial), &trial.scratch);
    let process = &list(&report, "processes")[0];
    let [live, peak] = ["live_bytes", "peak_bytes"].map(|name| number(&process["totals"], name));
    let last = number(list(process, "timeline").last().expect("a sample"), "live_bytes");
    assert!((live - last).abs() <= peak / 100, "{last} at the end, expected {live} of {peak}");
}

/// Two processes whose changes are faster than samples: the peak is right to two percent, or a
/// bound that it does not exceed.
#[test]
fn bursts_between_samples_are_in_the_peak_of_processes() {
    let trial = Trial::new("bursts.c", "timeline-bursts", &[], &[]);
    let recording = recording!(trial);
    let mut command = heaptide();
    let text = run(command.args(["report", "--process", "all"]).arg(&recording), &trial.scratch);
    let peak = text.stdout.lines().find_map(|line| line.trim_start().strip_prefix("peak "));
    let peak = peak.expect("a peak").trim_start();
    let bytes = peak.strip_prefix("at most ").unwrap_or(peak);
    let bytes = bytes.trim_start().split_once(" MiB").expect("MiB").0;
    let bytes: f64 = bytes.trim().parse().expect("a number");
    assert!((9.06..9.25).contains(&bytes), "{peak}");
    assert_eq!(peak.starts_with("at most "), peak.contains("at least "), "{peak}");
    let report = report(&recording, &trial.scratch);
    assert_eq!(list(&report, "processes").len(), 2);
}
