//! All views of a synthetic recording, compared with known numbers and the pages in `expected/`.
//!
//! `UPDATE_EXPECT=1 cargo test -p heaptide-render` rewrites the pages.

mod answers;
mod diff;
mod exports;
mod fixtures;
mod narrow;
mod origins;
mod pictures;
mod sampled;

use std::io::Write;
use std::path::{Path, PathBuf};

use heaptide_analysis::model::Measure;
use heaptide_analysis::model::*;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_render::export::flamegraph::{self, Drawing};
use heaptide_render::json;
use heaptide_render::shared::answer::Answer;
use heaptide_render::shared::views::{BranchOrder, Idle};
use heaptide_render::text::report::Shown;
use heaptide_render::text::screen::{Layout, Screen};
use heaptide_render::text::summary::{Separate, summary};
use heaptide_render::text::{self, info, scope_tree, table, tree};
use serde_json::Value;

use fixtures::*;

/// Compares the output of a view with the expected page of that name, which has `VERSION` for the
/// version.
fn expect(name: &str, found: &str) {
    let found = found.replace(concat!("heaptide ", env!("CARGO_PKG_VERSION")), "heaptide VERSION");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &found).expect("expected/ can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the expected page is there");
    assert!(found == expected, "{name}: expected\n{expected}\nfound\n{found}");
}

/// Returns a page without the limits of a terminal.
fn shown(write: impl FnOnce(&mut Screen) -> std::io::Result<()>) -> String {
    shown_in(Layout::default(), write)
}

fn shown_in(layout: Layout, write: impl FnOnce(&mut Screen) -> std::io::Result<()>) -> String {
    written(|out| {
        let mut screen = Screen::new(out, layout);
        write(&mut screen)?;
        screen.flush()
    })
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes everything");
    String::from_utf8(out).expect("views write UTF-8")
}

const PAGE: text::report::Page =
    text::report::Page { sort: None, top: None, process: None, shown: Shown::Subject };
const ALL: json::report::Choice =
    json::report::Choice { sort: Measure::AtPeakBytes, top: None, process: None };

fn as_json(recording: &Recording, choice: &json::report::Choice) -> Value {
    serde_json::from_str(&written(|out| {
        json::report::write(out, recording, choice, &Answer::default())
    }))
    .expect("valid JSON")
}

#[test]
fn the_page() {
    expect("page.txt", &shown(|out| text::report::write(out, &recording(vec![process()]), &PAGE)));
    let page = text::report::Page { sort: Some(Measure::Allocations), top: Some(2), ..PAGE };
    expect(
        "sorted.txt",
        &shown(|out| text::report::write(out, &recording(vec![process()]), &page)),
    );
}

/// Most of what `read_all` holds comes from stacks on which it has no caller, a little from `main`.
#[test]
fn callers_are_shown_where_most_comes_from_them() {
    let process = with(process(), |p| {
        p.tables.stacks.push(StackNode { parent: StackId(0), frame: FrameId(5) });
        p.tables.sites.push(site(13, 0, 0, row(1000, 131_080, 0, 1000, 0)));
        p.totals.at_peak_bytes += 1000 * 131_080;
    });
    let page = shown(|out| text::report::write(out, &recording(vec![process]), &PAGE));
    let mut lines = page.lines().skip_while(|line| !line.contains("  read_all"));
    assert!(lines.next().is_some_and(|line| line.contains("96.8%")), "{page}");
    let below = lines.next().unwrap_or_default();
    assert!(below.contains("(2 stacks"), "{page}");
}

#[test]
fn a_page_of_several_processes_has_a_table_and_the_large_ones() {
    let both = recording(vec![small(), process()]);
    expect("several.txt", &shown(|out| text::report::write(out, &both, &PAGE)));
    let page = text::report::Page { process: Some(4243), ..PAGE };
    expect("one_of_several.txt", &shown(|out| text::report::write(out, &both, &page)));
}

#[test]
fn counters_have_totals_and_no_stacks() {
    let counters = with(process(), |p| (p.mode, p.tables.sites) = (Mode::Counters, Vec::new()));
    expect(
        "counters.txt",
        &shown(|out| text::report::write(out, &recording(vec![counters]), &PAGE)),
    );
}

#[test]
fn tables() {
    for by in GroupBy::all() {
        let table = table::Table { by: *by, sort: None, top: None };
        let found = shown(|out| table::write(out, &process(), &table, None));
        expect(&format!("by_{}.txt", by.name()), &found);
    }
}

#[test]
fn exact_tables_have_numbers_in_full() {
    for by in GroupBy::all() {
        let table = table::Table { by: *by, sort: None, top: None };
        let found = shown(|out| {
            out.set_exact(true);
            table::write(out, &annotated(), &table, None)
        });
        // The heading of sizes contains their range, and sums above the table are rounded.
        let rows = found.lines().filter(|line| !line.contains(" to ") && !line.contains(": "));
        for row in rows {
            let rounded = ["KiB", "MiB", " k ", " M "].iter().any(|unit| row.contains(unit));
            assert!(!rounded, "{}: {row}", by.name());
        }
        if *by == GroupBy::Function {
            expect("by_function_exact.txt", &found);
        }
    }
}

#[test]
fn tables_of_scopes_and_labels() {
    let process = annotated();
    for by in [GroupBy::Scope, GroupBy::Label] {
        let table = table::Table { by, sort: None, top: None };
        let found = shown(|out| table::write(out, &process, &table, None));
        expect(&format!("named_by_{}.txt", by.name()), &found);
    }
}

#[test]
fn what_a_program_said_is_on_its_page() {
    let all = recording(vec![annotated()]);
    expect("named_page.txt", &shown(|out| text::report::write(out, &all, &PAGE)));
    expect("named_info.txt", &shown(|out| info::write(out, &all)));
    let without_stacks = recording(vec![with(annotated(), |p| p.mode = Mode::Scopes)]);
    expect("scopes_page.txt", &shown(|out| text::report::write(out, &without_stacks, &PAGE)));
    let five = summary(&without_stacks, &Separate::default(), Path::new("app.heaptide"));
    assert!(five.contains("Scope `load > step=2` holds 3.91 MiB, 84.0% of peak usage"), "{five}");
    let table = table::Table { by: GroupBy::Function, sort: None, top: None };
    let found = shown(|out| table::write(out, &without_stacks.processes[0], &table, None));
    assert!(
        found.ends_with("recorded with --mode scopes: no stacks; see --by scope and --by label\n")
    );
}

#[test]
fn trees_of_scopes() {
    let view = scope_tree::View {
        measure: Measure::AtPeakBytes,
        order: BranchOrder::First,
        depth: usize::MAX,
        min_percent: None,
        idle: Idle::Shown,
        per_lane: false,
    };
    expect("tree_scopes.txt", &shown(|out| scope_tree::write(out, &annotated(), &view)));
    let lanes = scope_tree::View { per_lane: true, ..view };
    expect("tree_scopes_lanes.txt", &shown(|out| scope_tree::write(out, &annotated(), &lanes)));
    let cut = scope_tree::View { min_percent: Some(90.0), ..view };
    expect("tree_scopes_cut.txt", &shown(|out| scope_tree::write(out, &annotated(), &cut)));
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

/// Two instances of a template, whose names differ only in the middle.
#[test]
fn functions_with_long_names_are_not_one_function() {
    let keys = "std::map<std::string, std::vector<std::map<int, std::string> > >, ".repeat(12);
    let name = |last: &str| {
        let function = "insert_all_rows_of_the_file_that_was_opened_last(std::string const&, int)";
        format!("void storage::TableOfTheImporter<{keys}{last}>::{function}")
    };
    let process = with(process(), |process| {
        process.tables.frames[3].function = Some(name("int").into());
        process.tables.frames[5].function = Some(name("char").into());
    });
    let recursion = flamegraph::Recursion::Folded;
    let drawing = Drawing { least_percent: 0.0, recursion, ..Drawing::of(Measure::AtPeakBytes) };
    let svg = written(|out| flamegraph::write(out, &process, &drawing));
    let titles = svg.split("<title>").skip(1).filter(|title| title.contains("insert_all"));
    let titles: Vec<&str> = titles.filter_map(|title| title.split("</title>").next()).collect();
    assert_eq!(titles.len(), 2, "{titles:?}");
    assert!(titles.iter().any(|title| title.contains("(4,104,000 bytes")), "{titles:?}");
    assert!(titles.iter().any(|title| title.contains("(524,320 bytes")), "{titles:?}");
    let by = |by| table::Table { by, sort: Some(Measure::AtPeakBytes), top: None };
    let calls = tree::View {
        by_line: false,
        measure: Measure::AtPeakBytes,
        bottom_up: false,
        order: BranchOrder::Value,
        depth: 9,
        min_percent: 0.0,
    };
    for page in [
        shown(|out| table::write(out, &process, &by(GroupBy::Function), None)),
        shown(|out| table::write(out, &process, &by(GroupBy::Stack), None)),
        shown(|out| tree::write(out, &process, &calls)),
    ] {
        let name = |line: &str| Some(line[line.find("TableOf")?..].split("  ").next()?.to_owned());
        let mut names: Vec<String> = page.lines().filter_map(name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2, "{page}");
    }
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
    let shapes = &process["labels"][0]["shapes"];
    assert_eq!(
        shapes[0],
        serde_json::json!({"dimensions": [3, 4], "element_bytes": 8, "labelled": 30})
    );
    assert_eq!((&shapes[1]["dimensions"][0], &shapes[1]["labelled"]), (&12.into(), &10.into()));
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
        by_line: false,
        measure: Measure::AtPeakBytes,
        bottom_up: false,
        order: BranchOrder::Value,
        depth: usize::MAX,
        min_percent: 0.0,
    };
    expect("tree.txt", &shown(|out| tree::write(out, &process(), &view)));
    let up = tree::View { bottom_up: true, ..view };
    expect("tree_bottom_up.txt", &shown(|out| tree::write(out, &process(), &up)));
    let first = tree::View { order: BranchOrder::First, ..view };
    expect("tree_first.txt", &shown(|out| tree::write(out, &process(), &first)));
    let cut = tree::View { depth: 2, min_percent: 10.0, ..view };
    expect("tree_cut.txt", &shown(|out| tree::write(out, &process(), &cut)));
}

#[test]
fn description() {
    expect("info.txt", &shown(|out| info::write(out, &recording(vec![process()]))));
}

#[test]
fn a_summary_is_a_sentence_and_five_lines() {
    let path = Path::new("my recording.heaptide");
    let page = summary(&recording(vec![small(), process()]), &Separate::default(), path);
    assert_eq!(page.lines().count(), 6);
    assert!(page.lines().all(|line| line.starts_with("heaptide: ")), "{page}");
    expect("summary.txt", &page);
}

#[test]
fn a_summary_and_a_report_name_the_subject() {
    let sh = with(small(), |sh| {
        sh.identity.program = "/usr/bin/dash".to_owned();
        sh.identity.file = "app.heaptide/4243-0.profile".into();
        sh.identity.is_requested = true;
        sh.lifetime.end = End::Exited(0);
    });
    let mut both = recording(vec![sh.clone(), process()]);
    both.choose_subject();
    let page = summary(&both, &Separate::default(), Path::new("a.heaptide"));
    let lines: Vec<&str> = page.lines().collect();
    let subject = "app --input 'a file.txt' (pid 4242), >99.9% of memory over time; sh held 24 B";
    let holder = "heaptide: `Tree::build(int)` (tree.cc:12) holds 3.91 MiB of `std::vector<int>`, \
                  84.0% of peak usage (4.66 MiB after 1.25 s), 401 KiB live at exit.";
    assert_eq!(lines[0], holder);
    assert_eq!(lines[1], "heaptide: sh exited with status 0 after 2.50 s");
    assert_eq!(lines[2], format!("heaptide:   subject    {subject}"));
    assert_eq!(lines[4], "heaptide:   peak       4.66 MiB after 1.25 s");
    assert_eq!(lines.len(), 7);
    let page = shown(|out| text::report::write(out, &both, &PAGE));
    assert!(page.starts_with("app --input 'a file.txt'\n"), "{page}");
    assert!(page.contains(&format!("\n  subject  {subject}\n")), "{page}");
    let rest =
        "1 other process image not shown; `--all-processes` lists all, `--process PID` shows one";
    assert_eq!(page.lines().last(), Some(rest));
    let all = text::report::Page { shown: Shown::All, ..PAGE };
    let page = shown(|out| text::report::write(out, &both, &all));
    assert!(page.starts_with("app.heaptide: 2 process images, "), "{page}");

    let worker = |pid: u32| {
        with(process(), |worker| {
            worker.identity.pid = pid;
            worker.identity.process_number = pid;
            worker.identity.file = format!("app.heaptide/{pid}-0.profile").into();
        })
    };
    let mut workers = recording(vec![sh, worker(7), worker(8), worker(9)]);
    workers.choose_subject();
    workers.join_subject();
    let page = summary(&workers, &Separate::default(), Path::new("a.heaptide"));
    let subject = "3 images of app, peaks 4.66 MiB to 4.66 MiB, median 4.66 MiB, >99.9% of memory \
                   over time; sh held 24 B";
    assert!(page.contains(subject), "{page}");
    assert!(page.contains(" at most 14.0 MiB, after "), "a bound: {page}");
}

/// One worker was killed, one ran out of time, one ended by itself, and the last was requested to
/// end. Views of all workers cannot state one end.
#[test]
fn a_summary_names_what_was_killed() {
    let worker = |pid: u32, end: End| {
        with(process(), |worker| {
            worker.identity.pid = pid;
            worker.identity.process_number = pid;
            worker.identity.file = format!("app.heaptide/{pid}-0.profile").into();
            worker.lifetime.end = end;
        })
    };
    let ends = [End::Signaled(9), End::Signaled(24), End::Exited(0), End::Signaled(15)];
    let mut workers =
        recording(ends.into_iter().zip(7..).map(|(end, pid)| worker(pid, end)).collect());
    let killed = Separate::of(&workers).killed.expect("two");
    let parts: Vec<&str> = killed.split("; ").collect();
    assert_eq!(parts.len(), 2, "{killed}");
    assert!(parts[0].contains("(pid 7), killed by signal 9 (SIGKILL) after "), "{killed}");
    assert!(parts[1].contains("(pid 8), killed by signal 24 (SIGXCPU) after "), "{killed}");
    workers.out_of_memory = Some(OutOfMemory { processes: 2, in_group: true });
    let with_kernel = Separate::of(&workers).killed.expect("three");
    let kernel = "; the kernel killed 2 processes of this control group because memory ran out";
    assert_eq!(with_kernel, killed.clone() + kernel);
    workers.choose_subject();
    workers.join_subject();
    let separate = Separate { ended: None, killed: Some(killed.clone()) };
    let page = summary(&workers, &separate, Path::new("a.heaptide"));
    assert!(page.contains(&format!("\nheaptide:   killed     {killed}\n")), "{page}");
    assert!(page.contains(" ends differ or were not seen after "), "{page}");
    // Workers that their parent kills, before it exits.
    let mut started = worker(7, End::Exited(0));
    started.identity.is_requested = true;
    let mut workers = recording(vec![started, worker(8, End::Signaled(15))]);
    let separate = Separate::of(&workers);
    workers.choose_subject();
    workers.join_subject();
    let page = summary(&workers, &separate, Path::new("a.heaptide"));
    assert!(page.contains(" exited with status 0 after "), "{page}");
    assert!(!page.contains(" ends differ"), "{page}");
}

#[test]
fn a_summary_says_what_is_missing() {
    let missing = |recording: &Recording| {
        let page = summary(recording, &Separate::default(), Path::new("a.heaptide"));
        let lines = page.lines().filter_map(|line| line.strip_prefix("heaptide:   missing    "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let loss = |name, meaning, count| Loss { name, meaning, count };
    let mut lossy = process();
    lossy.completeness.losses = vec![
        loss("no_site", "without their stack", lossy.totals.allocations / 2),
        loss("no_shadow", "not in the totals", 2),
        loss("too_deep", "cut", 7),
        loss("child_static", "static programs", 1),
    ];
    let found = missing(&recording(vec![lossy]));
    assert_eq!(found, ["25,656 (50.0%) without their stack", "1 static programs"]);
    let mut none = small();
    none.completeness.unrecorded = Some("no memory");
    let everything = "everything: no memory";
    assert_eq!(missing(&recording(vec![none])), [everything]);
    let (mut none, mut own) = (small(), small());
    (none.completeness.unrecorded, own.completeness.has_own_malloc) = (Some("no memory"), true);
    let (path, reason) = ("12-0.profile".into(), "12-0.profile: is damaged".to_owned());
    let damaged = vec![DamagedFile { path, reason }];
    let found = missing(&Recording { damaged, ..recording(vec![none, own, small()]) });
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], "everything of 1 of 3 process images: no memory");
    assert!(found[1].starts_with("some memory of 1 of 3 process images: "), "{found:?}");
    assert_eq!(found[2], "1 file that cannot be read");
}

#[test]
fn a_summary_of_nothing_says_why() {
    let path = Path::new("a.heaptide");
    let unrecorded = "the program is static".to_owned();
    let nothing =
        summary(&Recording { unrecorded, ..recording(Vec::new()) }, &Separate::default(), path);
    assert_eq!(nothing, "heaptide: a.heaptide: nothing was recorded: the program is static\n");
    assert!(
        summary(&recording(Vec::new()), &Separate::default(), path)
            .contains("the recorder was not loaded")
    );
}

#[test]
fn an_end_that_is_not_known_is_when_it_was_last_seen() {
    let mut process = process();
    process.lifetime.duration_is_known = false;
    let page = summary(&recording(vec![process]), &Separate::default(), Path::new("a.heaptide"));
    assert!(page.contains(", last seen after 2.50 s\n"), "{page}");
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
    let choice = json::report::Choice { sort: Measure::Temporary, top: Some(1), process: None };
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
    let reason = "\u{fffd}-0.profile: it is cut".to_owned(); // the reason contains the file name
    let damaged = vec![DamagedFile { path: PathBuf::from(name), reason: reason.clone() }];
    let recording = Recording { damaged, ..recording(vec![process()]) };
    let report = as_json(&recording, &ALL);
    let told = serde_json::json!([{"file": "\u{fffd}-0.profile", "reason": reason}]);
    assert_eq!(report["damaged"], told);
    let page = shown(|out| text::report::write(out, &recording, &PAGE));
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
    assert_eq!(pids(json::report::Choice { process: Some(4243), ..ALL }), [Some(4243)]);
    assert_eq!(pids(json::report::Choice { process: Some(1), ..ALL }), []);
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
    let nothing = with(process(), |p| p.tables.sites.clear());
    let drawing = Drawing::of(Measure::AtPeakBytes);
    let error = flamegraph::write(&mut Vec::new(), &nothing, &drawing);
    assert_eq!(
        error.expect_err("no sites").to_string(),
        "at_peak_bytes of pid 4242 is 0: nothing to draw"
    );
}
