//! Exports compared with their expected files, and exports of processes with no data or with
//! extreme values.

use heaptide_analysis::model::Measure;
use heaptide_analysis::model::*;
use heaptide_render::export::heaptrack::Packing;
use heaptide_render::export::{
    callgrind, chrome, firefox, heaptrack, malloc_profiler, massif, pprof,
};
use serde_json::Value;

use crate::fixtures::*;
use crate::{expect, written};

/// The process with all annotations, and a timeline.
fn timed() -> Process {
    let sample = |time_ns, live_bytes, allocations| Sample {
        time_ns,
        live_bytes,
        peak_bytes: live_bytes,
        allocations,
        frees: 0,
        usable_bytes: live_bytes,
        resident_bytes: 2 * live_bytes,
        virtual_bytes: 0,
    };
    let at = 1_000_000_000;
    let mut process = annotated();
    process.time.samples =
        vec![sample(1000, 64, 1), sample(at, 900_000, 20_001), sample(at + 1000, 850_000, 20_101)];
    process
}

/// Compares an export with its expected file, which contains no version.
fn expect_export(name: &str, found: &str) {
    expect(name, &found.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn costs_of_calls() {
    let measure = Measure::AtPeakBytes;
    expect_export("callgrind.txt", &written(|out| callgrind::write(out, &timed(), measure)));
}

#[test]
fn snapshots_with_trees() {
    expect_export("massif.txt", &written(|out| massif::write(out, &timed())));
}

#[test]
fn events_of_all_images() {
    let later = with(small(), |p| p.lifetime.start_realtime_ns += 1_000_000);
    let all = recording(vec![timed(), later]);
    let text = written(|out| chrome::write(out, &all, None));
    expect_export("trace_events.json", &text);
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let pids = |trace: &Value, pid: u32| {
        let events = trace["traceEvents"].as_array().expect("events").iter();
        events.filter(|event| event["pid"] == pid).count()
    };
    assert!(pids(&trace, 4242) > 10 && pids(&trace, 4243) > 3, "{text}");
    let text = written(|out| chrome::write(out, &all, Some(4243)));
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(pids(&trace, 4242), 0);
}

/// Writes the process in all formats that are JSON or text, and in the binary one.
fn all_formats(process: Process) {
    for measure in [Measure::AtPeakBytes, Measure::Temporary, Measure::FreedBytes] {
        written(|out| callgrind::write(out, &process, measure));
        let text = written(|out| firefox::write(out, &process, measure));
        let profile: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(profile["threads"].as_array().map(Vec::len), Some(process.tables.lanes.len()));
        pprof::write(&mut Vec::new(), &process, measure).expect("memory takes everything");
    }
    written(|out| massif::write(out, &process));
    let text = written(|out| chrome::write(out, &recording(vec![process]), None));
    let _: Value = serde_json::from_str(&text).expect("JSON");
}

#[test]
fn nothing_and_too_much_of_everything() {
    all_formats(timed());
    all_formats(with(process(), |p| {
        p.totals = Measures::default();
        let histogram = std::mem::take(&mut p.tables.histogram);
        p.tables = Tables { histogram, lanes_at_once: p.tables.lanes_at_once, ..Tables::default() };
        p.time = TimeTables::default();
        p.lifetime.duration_ns = 0;
    }));
    let mut full = timed();
    let most = Measures { live_bytes: u64::MAX, usable_bytes: u64::MAX, ..Measures::default() };
    full.totals = Measures { peak_bytes: u64::MAX, at_peak_bytes: u64::MAX, ..most };
    full.tables.sites.iter_mut().for_each(|site| site.measures = full.totals);
    (full.lifetime.start_realtime_ns, full.lifetime.duration_ns, full.peak_time_ns) =
        (u64::MAX, u64::MAX, u64::MAX);
    full.time.samples.iter_mut().for_each(|sample| sample.live_bytes = u64::MAX);
    for frame in &mut full.tables.frames {
        frame.function = Some("\u{1b}[31m\n#;(1) \u{202e}".into());
        (frame.inlined, frame.offset, frame.line) = (true, u64::MAX, Some(u32::MAX));
    }
    all_formats(full);
}

/// A pool handed out 900 bytes of its chunk of 1,000 bytes on another stack.
#[test]
fn what_pools_handed_out_is_live_in_files_without_pools() {
    let chunk = Measures {
        allocations: 1,
        requested_bytes: 1000,
        usable_bytes: 1000,
        live_blocks: 1,
        live_bytes: 100,
        at_peak_blocks: 1,
        at_peak_bytes: 100,
        ..Measures::default()
    };
    let handed_out = Measures { live_bytes: 900, at_peak_bytes: 900, ..chunk };
    let process = with(process(), |p| {
        let lent = Site { kind: SiteKind::PoolChunk, lent_bytes: 900, ..site(7, 0, 0, chunk) };
        let pool = Site { kind: SiteKind::PoolBlock, ..site(3, 0, 0, handed_out) };
        p.tables.sites = vec![lent, pool];
    });
    let file = written(|out| {
        heaptrack::write(out, &process, None, Packing::None).map(|notes| assert!(notes.is_empty()))
    });
    let sizes: Vec<u64> = file
        .lines()
        .filter_map(|line| line.strip_prefix("a ")?.split(' ').next())
        .map(|size| u64::from_str_radix(size, 16).expect("a size"))
        .collect();
    let of = |sign: &str| -> u64 {
        let numbers = file.lines().filter_map(|line| line.strip_prefix(sign));
        numbers.map(|n| sizes[usize::from_str_radix(n, 16).expect("a number")]).sum()
    };
    assert_eq!((of("+ "), of("- ")), (1000, 0), "{file}");
    let (form, choice) = (malloc_profiler::Form::Dump, malloc_profiler::Choice::default());
    let lines = written(|out| malloc_profiler::write(out, &process, form, &choice, None));
    let live = lines.lines().map(|line| line.rsplit('$').nth(1).expect("live bytes"));
    let live: u64 = live.map(|bytes| bytes.parse::<u64>().expect("a number")).sum();
    assert_eq!(live, 1000, "{lines}");
}
