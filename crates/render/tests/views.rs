//! Every view of a recording made by hand, against known numbers and the pages in `expected/`.
//!
//! `UPDATE_EXPECT=1 cargo test -p heaptide-render` writes the pages anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heaptide_analysis::aggregate::GroupBy;
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::*;
use heaptide_analysis::scope_frames::Inside;
use heaptide_analysis::snapshot::Snapshot;
use heaptide_analysis::suppressions::Suppressions;
use heaptide_render::flamegraph::Drawing;
use heaptide_render::{
    flamegraph, histogram, info, json, leaks, peak, scopes, summary, table, text, timeline, tree,
};
use serde_json::Value;

#[path = "views/diff.rs"]
mod diff;

type Described = (Option<&'static str>, u32, Option<&'static str>, u32, bool);

/// The functions of the program, as (name, module, file, line, inlined); frame 6 has no name.
const FRAMES: [Described; 9] = [
    (Some("_start"), 0, None, 0, false),
    (Some("__libc_start_main_impl"), 1, Some("../csu/libc-start.c"), 360, false),
    (Some("main"), 0, Some("/src/app.cc"), 40, false),
    (Some("Tree::build(int)"), 0, Some("/src/tree.cc"), 12, false),
    (
        Some("void std::vector<int, std::allocator<int> >::push_back(int const&)"),
        0,
        Some("/usr/include/c++/12/bits/stl_vector.h"),
        1280,
        true,
    ),
    (Some("read_all"), 0, Some("/src/read.cc"), 7, false),
    (None, 2, None, 0, false),
    (Some("work(void*)"), 0, Some("/src/work.cc"), 3, false),
    (Some("start_thread"), 1, None, 0, false),
];

fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    for (&(function, module, file, line, inlined), i) in FRAMES.iter().zip(0..) {
        frames.push(Frame {
            function: function.map(Arc::from),
            module: Some(ModuleId(module)),
            offset: 0x1000 + 0x10 * i,
            file: file.map(Arc::from),
            line: file.map(|_| line),
            inlined,
        });
    }
    frames
}

/// 1 _start, 2 libc, 3 main, 4 build, 5 build, 6 build, 7 push_back below 6, 8 read_all below main,
/// 9 the nameless below read_all, 10 start_thread, 11 work, 12 push_back below 11.
fn stacks() -> Vec<StackNode> {
    let nodes = [
        (0, 0),
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 3),
        (5, 3),
        (6, 4),
        (3, 5),
        (8, 6),
        (0, 8),
        (10, 7),
        (11, 4),
    ];
    let node = |(parent, frame)| StackNode { parent: StackId(parent), frame: FrameId(frame) };
    nodes.map(node).to_vec()
}

/// A row of `n` blocks of `size` usable bytes, some freed and some there at the peak.
fn row(n: u64, size: u64, freed: u64, at_peak: u64, temporary: u64) -> Measures {
    Measures {
        allocations: n,
        frees: freed,
        requested_bytes: n * (size - 8),
        usable_bytes: n * size,
        freed_bytes: freed * size,
        live_blocks: n - freed,
        live_bytes: (n - freed) * size,
        at_peak_blocks: at_peak,
        at_peak_bytes: at_peak * size,
        temporary,
        largest_bytes: size - 8,
        frees_here: freed,
        freed_here_bytes: freed * size,
        ..Measures::default()
    }
}

fn site(stack: u32, scope: u32, lane: u32, measures: Measures) -> Site {
    Site {
        stack: StackId(stack),
        scope: ScopeId(scope),
        label: None,
        lane: LaneId(lane),
        size: None,
        kind: SiteKind::Heap,
        measures,
        moved: Moved::default(),
        lent_bytes: 0,
    }
}

fn sites() -> Vec<Site> {
    let site = |stack, lane, measures| site(stack, 0, lane, measures);
    vec![
        site(7, 0, row(1000, 4104, 900, 1000, 0)),
        site(8, 0, row(10, 131_080, 10, 4, 6)),
        site(9, 0, row(50_000, 24, 50_000, 0, 49_990)),
        site(12, 1, row(300, 1032, 0, 250, 0)),
        site(0, 1, row(2, 40, 1, 2, 0)),
    ]
}

fn lanes(sites: &[Site]) -> Vec<Lane> {
    let lane = |(name, threads, id): (&str, u32, u32)| {
        let mut measures = Measures::default();
        let own = sites.iter().filter(|s| s.lane == LaneId(id));
        own.for_each(|s| measures.add(&s.measures));
        Lane { name: name.to_owned(), threads, measures }
    };
    [("app", 1, 0), ("worker", 12, 1)].map(lane).to_vec()
}

fn modules() -> Vec<Module> {
    let module = |(path, build_id): (&str, &[u8])| Module {
        path: path.to_owned(),
        start: 0x40_0000,
        end: 0x50_0000,
        bias: 0x40_0000,
        build_id: build_id.to_vec(),
        unloaded: build_id.is_empty(),
    };
    let app: (&str, &[u8]) = ("/usr/bin/app", &[0xab, 0xcd, 0x01]);
    [app, ("/lib/libc.so.6", &[0x12]), ("/opt/libstripped.so", &[])].map(module).to_vec()
}

fn process() -> Process {
    let sites = sites();
    let mut totals = Measures::default();
    sites.iter().for_each(|s| totals.add(&s.measures));
    totals.peak_bytes = totals.at_peak_bytes;
    Process {
        file: PathBuf::from("app.heaptide/4242-0.profile"),
        pid: 4242,
        ppid: 4200,
        image: 0,
        forked: false,
        program: "/usr/bin/app".to_owned(),
        command: ["app", "--input", "a file.txt"].map(str::to_owned).to_vec(),
        host: "box".to_owned(),
        rank: None,
        job: String::new(),
        run: None,
        images: 1,
        start_realtime_ns: 1_700_000_000_123_456_789,
        duration_ns: 2_500_000_000,
        end: End::Exited(0),
        mode: Mode::Stacks,
        totals,
        peak_time_ns: 1_250_000_000,
        peak_bound_bytes: 4096,
        unmatched_frees: 3,
        losses: vec![
            ("no_site", "allocations recorded without their stack: no room for a site", 2),
            ("too_deep", "stacks deeper than the limit, cut at the outer end", 7),
        ],
        histogram: vec![
            SizeClass {
                size_min: 16,
                size_max: 31,
                requested: 50_000,
                usable: 50_000,
                freed: 50_000,
            },
            SizeClass { size_min: 32, size_max: 63, requested: 2, usable: 2, freed: 1 },
            SizeClass { size_min: 1024, size_max: 2047, requested: 300, usable: 300, freed: 0 },
            SizeClass { size_min: 4096, size_max: 8191, requested: 1000, usable: 1000, freed: 900 },
        ],
        lanes: lanes(&sites),
        modules: modules(),
        frames: frames(),
        stacks: stacks(),
        scopes: vec![scope(0, "", "", 0)],
        entered: Vec::new(),
        labels: Vec::new(),
        sites,
        windows: Vec::new(),
        marks: Vec::new(),
        timeline: Vec::new(),
        unwinder: (12_345, 67),
        lanes_at_once: 2,
        part: None,
        notes: vec!["libstripped.so has changed since: its frames have no names".to_owned()],
    }
}

fn scope(parent: u32, attribute: &str, value: &str, entered: u64) -> Scope {
    Scope {
        parent: ScopeId(parent),
        attribute: attribute.into(),
        value: value.into(),
        entered,
        frees_here: 0,
        freed_here_bytes: 0,
    }
}

/// The process with scopes `load` and `load > step=2`, labels, a pool, windows and marks.
fn annotated() -> Process {
    let mut p = process();
    p.scopes.push(scope(0, "region", "load", 3));
    p.scopes.push(scope(1, "step", "2", 1500));
    let entered = |scope, lane, times| Entered { scope: ScopeId(scope), lane: LaneId(lane), times };
    p.entered = vec![entered(1, 0, 2), entered(1, 1, 1), entered(2, 0, 1500)];
    (p.sites[0].scope, p.sites[1].scope, p.sites[3].scope) = (ScopeId(2), ScopeId(1), ScopeId(1));
    let label = |name: &str, pool| Label { name: name.into(), pool };
    p.labels = vec![label("matrix", false), label("arena", true), label("table", false)];
    let named = |label, kind, measures, lent_bytes| Site {
        label: Some(LabelId(label)),
        kind,
        lent_bytes,
        ..site(7, 2, 0, measures)
    };
    let chunk = Measures { live_bytes: 6000, live_blocks: 1, ..row(1, 16_384, 0, 1, 0) };
    // Forty blocks of the first site got a label, ten of them were freed.
    let here = row(890, 4104, 890, 0, 0);
    p.sites[0].measures = Measures {
        frees_here: here.frees_here,
        freed_here_bytes: here.freed_here_bytes,
        ..row(1000, 4104, 930, 960, 0)
    };
    p.sites.push(Site {
        moved: Moved { blocks: 40, usable_bytes: 40 * 4104, requested_bytes: 40 * 4096 },
        ..named(0, SiteKind::Heap, row(40, 4104, 10, 40, 0), 0)
    });
    p.sites.push(named(1, SiteKind::OutsidePoolChunk, chunk, 10_384));
    p.sites.push(named(1, SiteKind::OutsidePoolBlock, row(12, 5192, 10, 2, 0), 0));
    p.sites.push(named(2, SiteKind::Outside, row(1, 65_536, 0, 1, 0), 0));
    let window = |name: &str, open, begin_time_ns, live_bytes: i64, peak_bytes| Window {
        name: name.into(),
        open,
        begin_time_ns,
        end_time_ns: if open { 0 } else { 900_000_000 },
        allocations: 1200,
        frees: 300,
        reallocations: 2,
        failed: 0,
        requested_bytes: 5_000_000,
        usable_bytes: 5_100_000,
        freed_bytes: 5_100_000u64.saturating_add_signed(-live_bytes),
        live_blocks: 900,
        live_bytes,
        peak_bytes,
        peak_bound_bytes: 0,
    };
    p.windows = vec![
        window("event 1", false, 100_000_000, -4096, 3_000_000),
        window("event 2", true, 950_000_000, 70_000, 4_000_000),
    ];
    let mark = |time_ns, name: &str, kind, number| Mark {
        time_ns,
        name: name.into(),
        kind,
        lane: None,
        number,
        live_bytes: 2_000_000,
    };
    p.marks = vec![
        mark(50_000_000, "warm", MarkKind::Mark, 0),
        mark(60_000_000, "before", MarkKind::Snapshot, 1),
        mark(70_000_000, "", MarkKind::Off, 0),
    ];
    p
}

/// A second image that did little.
fn small() -> Process {
    let totals = Measures {
        allocations: 1,
        usable_bytes: 24,
        live_blocks: 1,
        live_bytes: 24,
        ..Measures::default()
    };
    Process {
        pid: 4243,
        command: vec!["sh".to_owned()],
        end: End::Exec,
        totals: Measures { peak_bytes: 24, at_peak_bytes: 24, at_peak_blocks: 1, ..totals },
        sites: vec![site(3, 0, 0, totals)],
        losses: Vec::new(),
        part: None,
        notes: Vec::new(),
        unmatched_frees: 0,
        ..process()
    }
}

fn recording(processes: Vec<Process>) -> Recording {
    Recording { path: PathBuf::from("app.heaptide"), sealed: true, processes, damaged: Vec::new() }
}

/// Holds what a view wrote against the page of that name.
fn expect(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, found).expect("expected/ can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the expected page is there");
    assert!(found == expected, "{name}: expected\n{expected}\nfound\n{found}");
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes everything");
    String::from_utf8(out).expect("views write UTF-8")
}

const PAGE: text::Page = text::Page { sort: None, top: None, process: None };
const ALL: json::Choice = json::Choice { sort: Measure::AtPeakBytes, top: None, process: None };

fn as_json(recording: &Recording, choice: &json::Choice) -> Value {
    serde_json::from_str(&written(|out| json::write(out, recording, choice))).expect("valid JSON")
}

#[test]
fn the_page() {
    expect("page.txt", &written(|out| text::write(out, &recording(vec![process()]), &PAGE)));
    let page = text::Page { sort: Some(Measure::Allocations), top: Some(2), process: None };
    expect("sorted.txt", &written(|out| text::write(out, &recording(vec![process()]), &page)));
}

#[test]
fn a_page_of_several_processes_has_a_table_and_the_large_ones() {
    let both = recording(vec![small(), process()]);
    expect("several.txt", &written(|out| text::write(out, &both, &PAGE)));
    let page = text::Page { process: Some(4243), ..PAGE };
    expect("one_of_several.txt", &written(|out| text::write(out, &both, &page)));
}

#[test]
fn counters_have_totals_and_no_stacks() {
    let counters = Process { mode: Mode::Counters, sites: Vec::new(), ..process() };
    expect("counters.txt", &written(|out| text::write(out, &recording(vec![counters]), &PAGE)));
}

#[test]
fn tables() {
    for by in GroupBy::all() {
        let table = table::Table { by: *by, sort: None, top: None };
        let found = written(|out| table::write(out, &process(), &table));
        expect(&format!("by_{}.txt", by.name()), &found);
    }
}

/// The sites of the process have but one size each; with a second one at a site, and with sizes
/// recorded, which tells them apart.
#[test]
fn sizes_exact_and_bounded() {
    let view = histogram::View::default();
    let mut mixed = process();
    let (size_min, size_max) = (131_072, 262_143);
    mixed.histogram.push(SizeClass { size_min, size_max, requested: 10, usable: 10, freed: 10 });
    mixed.sites[0].measures.requested_bytes += 100;
    mixed.sites[0].measures.largest_bytes += 100;
    mixed.totals.requested_bytes += 100;
    expect("histogram.txt", &written(|out| histogram::write(out, &mixed, &view)));
    let mut by_size = Process { histogram: mixed.histogram.clone(), ..process() };
    let whole = by_size.sites[0];
    let part = |size, measures| Site { size: Some(size), measures, ..whole };
    by_size.sites[0] = part(4096, row(900, 4104, 850, 900, 0));
    by_size.sites.push(part(4000, row(100, 4008, 50, 100, 0)));
    by_size.totals.requested_bytes -= 9600;
    let view = histogram::View { sort: Measure::LiveBytes, top: Some(2) };
    expect("histogram_by_size.txt", &written(|out| histogram::write(out, &by_size, &view)));
    let all = recording(vec![mixed]);
    let text = written(|out| histogram::json(out, &all, None, &histogram::View::default()));
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

/// The process over time: it rises in steps to its peak, and falls; a short window, one that is
/// open, marks and snapshots.
fn over_time() -> Process {
    let mut process = annotated();
    let peak = process.totals.peak_bytes;
    let sample = |i: u64| heaptide_format::Sample {
        time_ns: i * 100_000_000,
        live_bytes: if i < 13 { peak / 13 * i } else { peak / 40 * (33 - i) },
        peak_bytes: peak,
        allocations: i * i * 100,
        frees: 0,
        usable_bytes: 0,
        resident_bytes: (10 + i) << 20,
        virtual_bytes: 1 << 30,
    };
    process.timeline = (1..25).map(sample).collect();
    process
}

fn snapshot(number: u32, time_ns: u64) -> Snapshot {
    let (pid, image, name) = (4242, 0, String::new());
    Snapshot { pid, image, number, name, time_ns, file: PathBuf::new(), damaged: None }
}

#[test]
fn the_process_over_time() {
    let of = |process: &Process, snapshots: &[Snapshot], width| {
        written(|out| timeline::write(out, process, snapshots, width))
    };
    let (process, snapshots) = (over_time(), [snapshot(1, 60_000_000), snapshot(2, 1_600_000_000)]);
    expect("timeline.txt", &of(&process, &snapshots, 100));
    assert!(of(&process, &snapshots, 100).lines().all(|line| line.chars().count() <= 100));
    expect("timeline_narrow.txt", &of(&process, &snapshots[..1], 0));
    expect("timeline_short.txt", &of(&self::process(), &[], 60));
    let all = recording(vec![over_time()]);
    let text = written(|out| timeline::json(out, &all, None, &snapshots));
    let found: Value = serde_json::from_str(&text).expect("valid JSON");
    let one = &found["processes"][0];
    assert_eq!((&one["peak_time_s"], &one["samples"][1]["time_s"]), (&1.25.into(), &0.2.into()));
    assert_eq!(
        (&one["snapshots"][1]["number"], &one["marks"][0]["name"]),
        (&2.into(), &"warm".into())
    );
    assert_eq!(written(|out| timeline::csv(out, &process)).lines().count(), 25);
}

/// Of a site at two snapshots and the end.
#[test]
fn one_site_over_snapshots() {
    let moment = |snapshot, time_ns, live_bytes| timeline::Moment {
        snapshot,
        name: if snapshot == Some(2) { "loaded".to_owned() } else { String::new() },
        time_ns,
        live_blocks: live_bytes / 100,
        live_bytes,
        allocations: live_bytes / 50,
    };
    let (first, second) = (moment(Some(1), 500_000_000, 70_000), moment(Some(2), 1_000_000_000, 0));
    let moments = [first, second, moment(None, 2_500_000_000, 30_000)];
    let page = written(|out| timeline::write_site(out, &process(), "^build$", &moments, 80));
    expect("timeline_site.txt", &page);
    let csv = written(|out| timeline::csv_site(out, &moments));
    assert!(csv.ends_with("\n2,1,0,0,0\n,2.5,300,30000,600\n"), "{csv}");
}

#[test]
fn who_held_the_peak() {
    let mut process = over_time();
    process.peak_time_ns = 1_000_000_000;
    expect("peak.txt", &written(|out| peak::write(out, &process, None)));
    let counters = Process { mode: Mode::Counters, sites: Vec::new(), ..small() };
    expect("peak_counters.txt", &written(|out| peak::write(out, &counters, None)));
    let all = recording(vec![process]);
    let text = written(|out| peak::json(out, &all, None, None));
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

/// The page and whether it says that there are leaks.
fn leaks_of(recording: &Recording, suppressions: &Suppressions) -> (String, bool) {
    let view = leaks::View { suppressions, top: None, process: None };
    let found = leaks::Found::of(recording, &view);
    (written(|out| leaks::write(out, &found, &view)), found.any())
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
    let view = leaks::View { suppressions: &known, top: None, process: None };
    let text = written(|out| leaks::json(out, &all, &view));
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
    let (page, any) = of(Process { mode: Mode::Scopes, ..annotated() });
    expect("leaks_scopes.txt", &page);
    assert!(any);
    let (page, any) = of(Process { mode: Mode::Counters, end: End::Signaled(9), ..process() });
    expect("leaks_counters.txt", &page);
    assert!(any);
    let (page, any) = of(small());
    assert!(!any && page.contains("24 bytes in 1 block"), "{page}");
    let several = recording(vec![small(), process(), Process { end: End::Running, ..process() }]);
    expect("leaks_several.txt", &leaks_of(&several, &none).0);
    let clean = Process { sites: Vec::new(), ..process() };
    assert_eq!(
        leaks_of(&recording(vec![clean]), &none),
        (
            "app --input 'a file.txt' (pid 4242), exited with status 0\nlive at exit: nothing\n"
                .into(),
            false
        )
    );
}

#[test]
fn tables_of_scopes_and_labels() {
    let process = annotated();
    for by in [GroupBy::Scope, GroupBy::Label] {
        let table = table::Table { by, sort: None, top: None };
        let found = written(|out| table::write(out, &process, &table));
        expect(&format!("named_by_{}.txt", by.name()), &found);
    }
}

#[test]
fn what_a_program_said_is_on_its_page() {
    let all = recording(vec![annotated()]);
    expect("named_page.txt", &written(|out| text::write(out, &all, &PAGE)));
    expect("named_info.txt", &written(|out| info::write(out, &all)));
    let without_stacks = recording(vec![Process { mode: Mode::Scopes, ..annotated() }]);
    expect("scopes_page.txt", &written(|out| text::write(out, &without_stacks, &PAGE)));
    let five = summary(&without_stacks, Path::new("app.heaptide"));
    assert!(five.contains(", 84.0% of it in load > step=2\n"), "{five}");
    let table = table::Table { by: GroupBy::Function, sort: None, top: None };
    let found = written(|out| table::write(out, &without_stacks.processes[0], &table));
    assert!(
        found.ends_with("recorded with --mode scopes: no stacks; see --by scope and --by label\n")
    );
}

#[test]
fn trees_of_scopes() {
    let view = scopes::View {
        measure: Measure::AtPeakBytes,
        depth: usize::MAX,
        min_percent: 0.0,
        per_lane: false,
    };
    expect("tree_scopes.txt", &written(|out| scopes::write(out, &annotated(), &view)));
    let view = scopes::View { per_lane: true, ..view };
    expect("tree_scopes_lanes.txt", &written(|out| scopes::write(out, &annotated(), &view)));
}

#[test]
fn flame_graphs_of_scopes() {
    let draw = |inside| {
        let mut process = annotated();
        process.scopes_to_frames(inside);
        written(|out| flamegraph::write(out, &process, &Drawing::of(Measure::AtPeakBytes)))
    };
    let svg = draw(Inside::Nothing);
    assert!(svg.contains("<title>load (") && svg.contains("<title>step=2 ("), "{svg}");
    assert!(!svg.contains("read_all"), "{svg}");
    let svg = draw(Inside::Functions);
    assert!(svg.contains("<title>step=2 (") && svg.contains("<title>read_all ("), "{svg}");
}

#[test]
fn json_of_scopes_and_labels() {
    let report = as_json(&recording(vec![annotated()]), &ALL);
    let process = &report["processes"][0];
    let first = &process["sites"][0];
    let load = serde_json::json!({"attribute": "region", "value": "load"});
    let step = serde_json::json!({"attribute": "step", "value": "2"});
    assert_eq!(first["scope"], serde_json::json!([load, step]));
    assert_eq!((&first["label"], &first["kind"]), (&Value::Null, &"heap".into()));
    let scopes = &process["scopes"];
    assert_eq!((&scopes[0]["parent"], &scopes[2]["parent"]), (&Value::Null, &1.into()));
    assert_eq!((&scopes[2]["value"], &scopes[2]["entered"]), (&"2".into(), &1500.into()));
    for measure in Measure::all().iter().filter(|m| **m != Measure::PeakBytes) {
        let all = &scopes[0]["inclusive"][measure.name()];
        assert_eq!(all, &process["totals"][measure.name()], "{measure}");
    }
    assert_eq!(process["labels"][0]["label"], "matrix");
    assert_eq!(process["labels"][0]["allocations"], 40);
    assert_eq!(
        (&process["labels"][2]["kind"], &process["labels"][2]["lent_bytes"]),
        (&"outside_pool_chunk".into(), &10_384.into())
    );
    assert_eq!(
        (&process["windows"][0]["live_bytes"], &process["windows"][1]["end_s"]),
        (&(-4096).into(), &Value::Null)
    );
    let mark = &process["marks"][1];
    assert_eq!(
        (&mark["kind"], &mark["number"], &mark["name"]),
        (&"snapshot".into(), &1.into(), &"before".into())
    );
}

#[test]
fn trees() {
    let view = tree::View {
        measure: Measure::AtPeakBytes,
        bottom_up: false,
        depth: usize::MAX,
        min_percent: 0.0,
    };
    expect("tree.txt", &written(|out| tree::write(out, &process(), &view)));
    let up = tree::View { bottom_up: true, ..view };
    expect("tree_bottom_up.txt", &written(|out| tree::write(out, &process(), &up)));
    let cut = tree::View { depth: 2, min_percent: 10.0, ..view };
    expect("tree_cut.txt", &written(|out| tree::write(out, &process(), &cut)));
}

#[test]
fn description() {
    expect("info.txt", &written(|out| info::write(out, &recording(vec![process()]))));
}

#[test]
fn a_summary_is_five_lines() {
    let path = Path::new("my recording.heaptide");
    let page = summary(&recording(vec![small(), process()]), path);
    assert_eq!(page.lines().count(), 5);
    assert!(page.lines().all(|line| line.starts_with("heaptide: ")), "{page}");
    expect("summary.txt", &page);
    let nothing = summary(&recording(Vec::new()), path);
    assert_eq!(nothing.lines().count(), 5);
}

#[test]
fn json_holds_the_contract() {
    let report = as_json(&recording(vec![process()]), &ALL);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["recording"], "app.heaptide");
    let process = &report["processes"][0];
    assert_eq!(process["pid"], 4242);
    assert_eq!(process["command"][2], "a file.txt");
    assert_eq!(process["start_time"], "2023-11-14T22:13:20.123456Z");
    assert_eq!(process["duration_s"], 2.5);
    assert_eq!(process["end"], serde_json::json!({"kind": "exited", "code": 0}));
    assert_eq!(process["totals"]["peak_time_s"], 1.25);
    assert_eq!(process["totals"]["lost_events"], 2);
    assert_eq!(process["totals"]["peak_bound_bytes"], 4096);
    assert_eq!(process["histogram"][2]["size_max"], 2047);
    assert_eq!(process["lanes"][1]["name"], "worker");
    let vector = &process["frames"][4];
    let name = "void std::vector<int, std::allocator<int> >::push_back(int const&)";
    assert_eq!(vector["function"], name, "names are whole");
    assert_eq!(vector["inlined"], true);
    assert_eq!(process["frames"][6]["function"], Value::Null);
    assert_eq!(process["frames"][6]["module"], "/opt/libstripped.so");
    let first = &process["sites"][0];
    assert_eq!(first["stack"], serde_json::json!([0, 1, 2, 3, 3, 3, 4]), "outermost first");
    assert_eq!(first["scope"], serde_json::json!([]));
    assert_eq!(first["label"], Value::Null);
    assert_eq!(first["lane"], "app");
    assert_eq!(first.get("peak_bytes"), None, "only totals have a peak");
}

#[test]
fn json_sums_over_sites_and_over_lanes_are_the_totals() {
    let report = as_json(&recording(vec![process()]), &ALL);
    let process = &report["processes"][0];
    let number = |row: &Value, m: &Measure| row[m.name()].as_u64().expect("every measure is there");
    for rows in ["sites", "lanes"] {
        let rows = process[rows].as_array().expect("rows");
        for measure in Measure::all().iter().filter(|m| **m != Measure::PeakBytes) {
            let values = rows.iter().map(|row| number(row, measure));
            let sum = values.fold(0, |a, b| measure.combine().of(a, b));
            assert_eq!(sum, number(&process["totals"], measure), "{}", measure.name());
        }
    }
}

#[test]
fn json_of_the_top_sites_has_only_their_frames() {
    let choice = json::Choice { sort: Measure::Temporary, top: Some(1), process: None };
    let report = as_json(&recording(vec![process()]), &choice);
    let process = &report["processes"][0];
    let sites = process["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0]["temporary"], 49_990);
    let frames = process["frames"].as_array().expect("frames");
    let stack: Vec<usize> = sites[0]["stack"]
        .as_array()
        .expect("a stack")
        .iter()
        .map(|i| i.as_u64().expect("an index") as usize)
        .collect();
    let names: Vec<&Value> = stack.iter().map(|&i| &frames[i]["function"]).collect();
    assert_eq!(frames.len(), 5);
    assert_eq!(names[..4], ["_start", "__libc_start_main_impl", "main", "read_all"]);
    assert_eq!(*names[4], Value::Null);
}

#[test]
fn json_and_page_say_what_could_not_be_read() {
    use std::os::unix::ffi::OsStringExt;
    let name = std::ffi::OsString::from_vec(b"\xff-0.profile".to_vec());
    let damaged = vec![(PathBuf::from(name), "it is cut".to_owned())];
    let recording = Recording { damaged, ..recording(vec![process()]) };
    let report = as_json(&recording, &ALL);
    let told = serde_json::json!([{"file": "\u{fffd}-0.profile", "reason": "it is cut"}]);
    assert_eq!(report["damaged"], told);
    let page = written(|out| text::write(out, &recording, &PAGE));
    assert!(page.ends_with("unreadable: \u{fffd}-0.profile: it is cut\n"), "{page}");
}

#[test]
fn json_of_one_process() {
    let both = recording(vec![small(), process()]);
    let pids = |choice| {
        let report = as_json(&both, &choice);
        let processes = report["processes"].as_array().expect("processes").clone();
        processes.iter().map(|p| p["pid"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(pids(ALL), [Some(4243), Some(4242)]);
    assert_eq!(pids(json::Choice { process: Some(4243), ..ALL }), [Some(4243)]);
    assert_eq!(pids(json::Choice { process: Some(1), ..ALL }), []);
}

#[test]
fn a_flame_graph_has_every_function_and_the_units() {
    let drawing = Drawing::of(Measure::AtPeakBytes);
    let svg = written(|out| flamegraph::write(out, &process(), &drawing));
    for part in [
        "app --input 'a file.txt' · at_peak_bytes",
        "pid 4242: 4.66 MiB (4,886,400 bytes) live at the peak, 1.25 s after the start",
        "Tree::build(int)",
        "std::vector&lt;int&gt;::push_back(int const&amp;)",
        "read_all",
        "bytes, ",
    ] {
        assert!(svg.replace("&apos;", "'").contains(part), "{part} is missing");
    }
    // 1000 blocks of 4104 bytes of 4,886,400 in all.
    assert!(svg.contains("(4,104,000 bytes, 83.99%)"), "the share of Tree::build");
}

#[test]
fn nothing_is_not_drawn() {
    let nothing = Process { sites: Vec::new(), ..process() };
    let drawing = Drawing::of(Measure::AtPeakBytes);
    let error = flamegraph::write(&mut Vec::new(), &nothing, &drawing);
    assert_eq!(
        error.expect_err("no sites").to_string(),
        "at_peak_bytes of pid 4242 is 0: nothing to draw"
    );
}
