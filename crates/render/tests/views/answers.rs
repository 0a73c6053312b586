//! Views of sizes, leaks, the process over time and its peak.

use std::path::PathBuf;

use heaptide_analysis::model::Measure;
use heaptide_analysis::model::*;
use heaptide_analysis::recording::snapshot::{Origin, Snapshot};
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_render::export::timeline_csv;
use heaptide_render::shared::views::{HistogramView, LeaksBy, LeaksView, Moment};
use heaptide_render::{json, text};
use serde_json::Value;

use crate::fixtures::{annotated, process, recording, row, small, with};
use crate::{expect, shown, written};

/// Each site of the process has a single size; then one site gets a second size, and finally sizes
/// are recorded, which separates them.
#[test]
fn sizes_exact_and_bounded() {
    let view = HistogramView::default();
    let mut mixed = process();
    let (size_min, size_max) = (131_072, 262_143);
    mixed.tables.histogram.push(SizeClass {
        size_min,
        size_max,
        requested: 10,
        usable: 10,
        freed: 10,
    });
    mixed.tables.sites[0].measures.requested_bytes += 100;
    mixed.tables.sites[0].measures.largest_bytes += 100;
    mixed.totals.requested_bytes += 100;
    expect("histogram.txt", &shown(|out| text::histogram::write(out, &mixed, &view)));
    let mut by_size = with(process(), |p| p.tables.histogram.clone_from(&mixed.tables.histogram));
    let whole = by_size.tables.sites[0];
    let part = |size, measures| Site { size: Some(size), measures, ..whole };
    by_size.tables.sites[0] = part(4096, row(900, 4104, 850, 900, 0));
    by_size.tables.sites.push(part(4000, row(100, 4008, 50, 100, 0)));
    by_size.totals.requested_bytes -= 9600;
    let view = HistogramView { sort: Measure::LiveBytes, top: Some(2) };
    expect("histogram_by_size.txt", &shown(|out| text::histogram::write(out, &by_size, &view)));
    let all = recording(vec![mixed]);
    let text = written(|out| json::histogram::write(out, &all, None, &HistogramView::default()));
    let found: Value = serde_json::from_str(&text).expect("valid JSON");
    let class = |i: usize| &found["processes"][0]["classes"][i]["requested_bytes"];
    assert_eq!(*class(0), serde_json::json!({"least": 800_000, "most": 800_000, "exact": true}));
    let large = serde_json::json!({"least": 4_096_100, "most": 4_096_100, "exact": true});
    assert_eq!(*class(3), large, "what the others leave");
    let exact = &found["processes"][0]["exact"];
    assert_eq!((&exact["recorded"], &exact["allocations"]), (&false.into(), &50_312.into()));
    assert_eq!(
        (&exact["sizes"][0]["size"], &exact["sizes"][0]["temporary"]),
        (&16.into(), &49_990.into())
    );
}

/// A process over time that rises in steps to its peak and falls, with a short window, an open one,
/// marks and snapshots.
fn over_time() -> Process {
    let mut process = annotated();
    let peak = process.totals.peak_bytes;
    let sample = |i: u64| heaptide_analysis::model::Sample {
        time_ns: i * 100_000_000,
        live_bytes: if i < 13 { peak / 13 * i } else { peak / 40 * (33 - i) },
        peak_bytes: peak,
        allocations: i * i * 100,
        frees: 0,
        usable_bytes: 0,
        resident_bytes: (10 + i) << 20,
        virtual_bytes: 1 << 30,
    };
    process.time.samples = (1..25).map(sample).collect();
    process
}

fn snapshot(number: u32, time_ns: u64) -> Snapshot {
    let (pid, image, name) = (4242, 0, String::new());
    let (run, origin, file, damaged) = (0, Origin::Requested, PathBuf::new(), None);
    Snapshot { run, pid, image, number, name, time_ns, origin, peak_bytes: 0, file, damaged }
}

#[test]
fn the_process_over_time() {
    let of = |process: &Process, snapshots: &[Snapshot], width| {
        shown(|out| text::timeline::write(out, process, snapshots, width))
    };
    let (process, snapshots) = (over_time(), [snapshot(1, 60_000_000), snapshot(2, 1_600_000_000)]);
    expect("timeline.txt", &of(&process, &snapshots, 100));
    assert!(of(&process, &snapshots, 100).lines().all(|line| line.chars().count() <= 100));
    expect("timeline_narrow.txt", &of(&process, &snapshots[..1], 0));
    expect("timeline_short.txt", &of(&self::process(), &[], 60));
    let all = recording(vec![over_time()]);
    let text = written(|out| json::timeline::write(out, &all, None, &snapshots));
    let found: Value = serde_json::from_str(&text).expect("valid JSON");
    let one = &found["processes"][0];
    assert_eq!((&one["peak_time_s"], &one["samples"][1]["time_s"]), (&1.25.into(), &0.2.into()));
    assert_eq!(
        (&one["snapshots"][1]["number"], &one["marks"][0]["name"]),
        (&2.into(), &"warm".into())
    );
    assert_eq!(written(|out| timeline_csv::write(out, &process)).lines().count(), 25);
}

/// A site at two snapshots and the end.
#[test]
fn one_site_over_snapshots() {
    let moment = |snapshot, time_ns, live_bytes| Moment {
        snapshot,
        name: if snapshot == Some(2) { "loaded".to_owned() } else { String::new() },
        time_ns,
        live_blocks: live_bytes / 100,
        live_bytes,
        allocations: live_bytes / 50,
    };
    let (first, second) = (moment(Some(1), 500_000_000, 70_000), moment(Some(2), 1_000_000_000, 0));
    let moments = [first, second, moment(None, 2_500_000_000, 30_000)];
    let page = shown(|out| text::timeline::write_site(out, &process(), "^build$", &moments, 80));
    expect("timeline_site.txt", &page);
    let csv = written(|out| timeline_csv::write_site(out, &moments));
    assert!(csv.ends_with("\n2,1,0,0,0\n,2.5,300,30000,600\n"), "{csv}");
}

#[test]
fn who_held_the_peak() {
    let mut process = over_time();
    process.peak_time_ns = 1_000_000_000;
    expect("peak.txt", &shown(|out| text::peak::write(out, &process, None)));
    let counters = with(small(), |p| (p.mode, p.tables.sites) = (Mode::Counters, Vec::new()));
    expect("peak_counters.txt", &shown(|out| text::peak::write(out, &counters, None)));
    let all = recording(vec![process]);
    let text = written(|out| json::peak::write(out, &all, None, None));
    let found: Value = serde_json::from_str(&text).expect("valid JSON");
    let one = &found["processes"][0];
    assert_eq!(one["at_peak_bytes"], all.processes[0].totals.at_peak_bytes);
    let sum = |rows: &Value| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row["at_peak_bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&one["scopes"]), sum(&one["functions"]));
    assert_eq!(
        (&one["windows"][0]["name"], &one["mark_before"]["kind"]),
        (&"event 2".into(), &"off".into())
    );
    assert!(one["mark_after"].is_null() && one["sites"][0]["stack"].is_array());
}

/// Returns the page, and whether there are leaks.
fn leaks_of(recording: &Recording, suppressions: &Suppressions) -> (String, bool) {
    let view =
        LeaksView { suppressions, top: None, process: None, lost: false, by: LeaksBy::Stack };
    let found = text::leaks::Found::of(recording, &view);
    (shown(|out| text::leaks::write(out, &found, &view)), found.any())
}

#[test]
fn what_is_never_freed() {
    let mut known = Suppressions::built_in();
    let all = recording(vec![process()]);
    let (page, any) = leaks_of(&all, &known);
    expect("leaks.txt", &page);
    assert!(any);
    known.add("leak:^work(\nleak:nowhere\nleak:^/src/tree.cc$\nleak:/tree.cc$").unwrap();
    let (page, any) = leaks_of(&all, &known);
    expect("leaks_suppressed.txt", &page);
    assert!(any, "a block without a stack is left");
    let view = LeaksView {
        suppressions: &known,
        top: None,
        process: None,
        lost: false,
        by: LeaksBy::Stack,
    };
    let text = written(|out| json::leaks::write(out, &all, &view));
    let found: Value = serde_json::from_str(&text).expect("valid JSON");
    let one = &found["processes"][0];
    assert_eq!((&one["live_bytes"], &one["leaked_bytes"]), (&720_040.into(), &40.into()));
    assert_eq!((&one["leaks"][0]["stack"], &one["counts"]), (&Value::Array(vec![]), &true.into()));
    let used = |i: usize| one["suppressions"][i]["blocks"].as_u64().unwrap();
    assert_eq!([used(0), used(1), used(2), used(3)], [300, 0, 100, 0], "the first that matches");
}

#[test]
fn leaks_where_there_are_no_stacks_or_no_end() {
    let none = Suppressions::none();
    let of = |process: Process| leaks_of(&recording(vec![process]), &none);
    let (page, any) = of(with(annotated(), |p| p.mode = Mode::Scopes));
    expect("leaks_scopes.txt", &page);
    assert!(any);
    let (page, any) = of(with(process(), |p| {
        (p.mode, p.lifetime.end) = (Mode::Counters, End::Signaled(9));
    }));
    expect("leaks_counters.txt", &page);
    assert!(any);
    let (page, any) = of(small());
    assert!(!any && page.contains("24 bytes in 1 block"), "{page}");
    let running = with(process(), |p| p.lifetime.end = End::Running);
    let several = recording(vec![small(), process(), running]);
    expect("leaks_several.txt", &leaks_of(&several, &none).0);
    let clean = with(process(), |p| p.tables.sites.clear());
    assert_eq!(
        leaks_of(&recording(vec![clean]), &none),
        (
            "app --input 'a file.txt' (pid 4242), exited with status 0\nlive at exit: nothing\n"
                .into(),
            false
        )
    );
}
