//! Malicious names of programs, functions, files, scopes and everything else that a program
//! chooses: they try to control the terminal, to break lines, columns and markup, and to run as a
//! formula. No output is broken by them.

use crate::harness::{Looping, Outcome, heaptide, run, scratch};
use crate::questions::{QUESTIONS, formats};
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format::{KEY_POOL_CHUNK, Mark, Mode, Request, Sample};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that could do harm. A line break is followed by `INJECTED`.
const EVIL: &str =
    "'</script><b>HTML\u{1b}[31m\u{7}\nINJECTED 7\r\tx;y\"z&\\\u{9b}5m\u{202e}\u{7f}";

/// Returns a malicious name, which a spreadsheet could take for a formula.
fn name(of: &str) -> String {
    format!("={of}{EVIL}")
}

/// Returns such a name for a part of a path.
fn file_name(of: &str) -> String {
    name(of).replace('/', "|")
}

/// Builds a profile in which all texts are such names, with invalid UTF-8 in some.
fn profile(pid: u32) -> ProfileBuilder {
    let mut p = ProfileBuilder::new(Mode::Stacks, pid, 0);
    p.program(&format!("/{}", name("program")), &[&name("command"), &name("argument")]);
    p.header.host = p.string(&name("host"));
    p.header.job = p.bytes(&[name("job").as_bytes(), b"\xff\x1b"].concat());
    let module = p.module_at(name("module").as_bytes(), 0x1000_0000, &[1]);
    let outer = p.node(0, module, 0x1000_0011, 0);
    let inner = p.node(0, module, 0x1000_0021, outer);
    let nameless = p.node(0, module, 0x1000_0031, outer);
    let scope = p.name(&name("attribute"), &name("value"));
    let label = p.name("label", &name("label"));
    let pool = p.name("pool", &name("pool"));
    let root = p.scope(0, 0, 0, |_| {});
    let scope = p.scope(0, root, scope, |s| s.entered = 3);
    let key = p.key(0, |key| (key.stack, key.scope) = (inner, scope));
    p.site(0, site(key, 10, 1000));
    p.site(0, site(nameless, 5, 500));
    let key = p.key(0, |key| {
        (key.stack, key.scope, key.label) = (inner, scope, label);
        (key.moved_blocks, key.moved_bytes, key.moved_requested_bytes) = (4, 4000, 3992);
    });
    p.site(0, site(key, 4, 1000));
    let key = p.key(0, |key| {
        (key.stack, key.label, key.flags) = (inner, pool, KEY_POOL_CHUNK);
        (key.moved_blocks, key.moved_bytes, key.moved_requested_bytes) = (1, 4096, 4094);
    });
    p.site(0, site(key, 1, 4096));
    p.lane(0, "=\x1b[3m\nINJECT", |lane| lane.requested_classes[9] = 15);
    p.lane(1, "-\x1b[3m\nINJECT", |_| {});
    p.site(1, site(inner, 1, 100));
    p.window(&name("window"), |window| (window.open, window.peak_bytes) = (1, 900));
    let mark = p.string(&name("mark"));
    for (kind, time_ns) in [(1, 5_000), (2, 7_000)] {
        p.mark(Mark { time_ns, name: mark, kind, lane: 0, number: 1, live_bytes: 9 });
    }
    for time_ns in [1_000, 9_000] {
        let mut sample: Sample = zerocopy::FromZeros::new_zeroed();
        (sample.time_ns, sample.live_bytes, sample.peak_bytes) = (time_ns, 9_000, 9_000);
        p.sample(sample);
    }
    (p.header.peak_bytes, p.header.peak_time_ns, p.header.last_seen_ns) = (19_000, 6_000, 10_000);
    p
}

/// Writes a recording of two such profiles, merged, with a snapshot and with unreadable files.
fn recording(place: &Path) -> PathBuf {
    let directory = place.join(file_name("recording") + ".heaptide");
    fs::create_dir_all(&directory).expect("a directory");
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).expect(name);
    write("r1-12-0.profile", &profile(12).finish());
    write("r2-13-0.profile", &profile(13).finish());
    let mut snapshot = profile(12);
    let text = &name("snapshot")[..60];
    let header = &mut snapshot.header;
    (header.request_kind, header.request_value) = (Request::Snapshot as u32, 1);
    header.request_length = text.len() as u32;
    header.request_text[..text.len()].copy_from_slice(text.as_bytes());
    write("r1-12-0.1.snapshot", &snapshot.finish());
    write(&format!("{}.profile", file_name("damaged")), b"rubbish");
    let places = [[0x10, 1, 2, 7], [0x20, 3, 4, 9]];
    let texts = ["outer", "outer file", "inner", "inner file"].map(name);
    let module = json!({"path": name("module"), "build_id": "01", "strings": texts,
        "places": places});
    let symbols = json!({"version": 1, "modules": [module]});
    write("symbols.json", symbols.to_string().as_bytes());
    let run = json!({"recording": name("run"), "root_pid": 12, "command": [name("command")]});
    let metadata = json!({"version": 1, "root_pid": 0, "sealed": true, "runs": [run, run],
        "command": [name("command")], "unrecorded": name("reason")});
    write("recording.json", metadata.to_string().as_bytes());
    directory
}

/// Returns whether no output may contain a character: control characters except line ends, and
/// those that change the direction of text.
fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && c != '\n'
}

/// Lists the problems of an output.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    // JSON is indented with tabs.
    let text =
        text.lines().map(|line| line.trim_start_matches('\t')).collect::<Vec<_>>().join("\n");
    if let Some(c) = text.chars().find(|c| steers(*c)) {
        let at = text.find(c).unwrap_or(0);
        let around = text[..at].lines().last().unwrap_or("").to_owned();
        faults.push(format!("{c:?} after {around:?}"));
    }
    if let Some(line) = text.lines().find(|line| line.starts_with("INJECTED")) {
        faults.push(format!("the line {line:?}"));
    }
    if text.contains("<b>HTML") && text.starts_with('<') {
        faults.push("markup".to_owned());
    }
    faults
}

/// Fails with a list of all problems.
fn assert_none(found: Vec<(String, Vec<String>)>) {
    let found: Vec<_> = found.into_iter().filter(|(_, faults)| !faults.is_empty()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Tables of queries.
const TABLES: &[&str] = &[
    "sites",
    "stacks",
    "frames",
    "scopes",
    "labels",
    "lanes",
    "windows",
    "snapshots",
    "timeline",
    "processes",
    "modules",
];

/// Formats of queries.
const LAYOUTS: &[&str] = &[
    "table",
    "tree",
    "expand",
    "json",
    "json(pretty,split)",
    "json(object)",
    "json-split",
    "csv",
    "cali",
];

/// Returns command lines without the recording.
fn lines() -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut lines: Vec<Vec<String>> = QUESTIONS.iter().map(|(line, _)| words(line)).collect();
    let more = [
        "timeline --format csv",
        "timeline --site inner --process all",
        "timeline --site inner --process all --format csv",
        "timeline --site inner --process all --format json",
        "tree --scopes --per-thread",
        "report --snapshot 1",
        "info --snapshot 1",
        "leaks --process all",
        "peak --process all --top 50",
        "histogram --process all",
    ];
    lines.extend(more.map(words));
    for format in formats() {
        for more in ["", "--process all", "--per-thread", "--scopes", "--snapshot 1"] {
            lines.push(words(&format!("export --format {format} {more}")));
        }
    }
    for (table, layout) in
        TABLES.iter().flat_map(|table| LAYOUTS.iter().map(move |layout| (table, layout)))
    {
        let mut query = words("query --process all --format");
        query.extend([(*layout).to_owned(), format!("SELECT * FROM {table}")]);
        lines.push(query);
    }
    lines
}

fn ask(words: &[String], recordings: &[&Path], place: &Path) -> Outcome {
    run(heaptide().args(words).args(recordings), place)
}

#[test]
fn no_output_is_broken() {
    let place = scratch("hostile-output");
    let recording = recording(&place);
    let (mut found, mut shown) = (Vec::new(), 0);
    for words in lines() {
        let outcome = ask(&words, &[&recording], &place);
        let line = words.join(" ");
        // Options that are invalid for the format have status 2.
        if outcome.status == 2 && outcome.stderr.contains("--format") {
            continue;
        }
        assert!(matches!(outcome.status, 0 | 1), "{line}: {outcome:?}");
        found.push((format!("{line}: standard error"), faults(&outcome.stderr)));
        if ["pprof", "memray"].iter().any(|format| line.contains(format)) {
            continue; // not text: names in pprof's are tested below
        }
        let of_json = ["json", "speedscope", "firefox", "chrome"].iter().any(|f| line.contains(f));
        if of_json && !line.contains("pretty,split") {
            let wrong = serde_json::from_str::<Value>(&outcome.stdout).err();
            found.push((line.clone(), wrong.iter().map(|e| e.to_string()).collect()));
        }
        shown += usize::from(outcome.stdout.contains("INJECTED"));
        found.push((line, faults(&outcome.stdout)));
    }
    assert_none(found);
    assert!(shown > 100, "only {shown} outputs have names in them");
}

#[test]
fn no_difference_is_broken() {
    let place = scratch("hostile-diff");
    let recording = recording(&place);
    let mut found = Vec::new();
    for line in ["diff", "diff --by stack", "diff --by scope", "diff --format json"] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for (before, after) in [("", ""), ("", "@1")] {
            let [before, after] = [before, after].map(|end| {
                let mut path = recording.clone().into_os_string();
                path.push(end);
                PathBuf::from(path)
            });
            let outcome = ask(&words, &[&before, &after], &place);
            assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
            found.push((line.to_owned(), faults(&outcome.stdout)));
            found.push((format!("{line}: standard error"), faults(&outcome.stderr)));
        }
    }
    let words = ["diff", "--format", "svg"].map(str::to_owned);
    found.push(("svg".into(), faults(&ask(&words, &[&recording, &recording], &place).stdout)));
    assert_none(found);
}

/// Returns the cells of CSV lines, as defined by RFC 4180.
fn cells(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut quoted) = (vec![vec![String::new()]], false);
    for c in text.chars() {
        let row = rows.last_mut().expect("one row");
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\n' if !quoted => rows.push(vec![String::new()]),
            c => row.last_mut().expect("one cell").push(c),
        }
    }
    rows
}

#[test]
fn a_spreadsheet_runs_no_formula() {
    let place = scratch("hostile-csv");
    let outcome =
        ask(&["export", "--format", "csv"].map(str::to_owned), &[&recording(&place)], &place);
    let rows = cells(&outcome.stdout);
    assert!(rows.len() > 4, "{rows:?}");
    let columns = rows[0].len();
    for row in &rows[1..rows.len() - 1] {
        assert_eq!(row.len(), columns, "{row:?}");
        for cell in row {
            let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
            assert!(!is_formula || cell.parse::<i64>().is_ok(), "{cell:?}");
        }
    }
    assert!(outcome.stdout.contains("'=label"), "{}", outcome.stdout);
}

#[test]
fn frames_of_folded_stacks_are_parts() {
    let place = scratch("hostile-folded");
    let words = ["export", "--format", "folded", "--per-thread"].map(str::to_owned);
    let outcome = ask(&words, &[&recording(&place)], &place);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines.len() >= 3, "{outcome:?}");
    for line in lines {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<u64>().is_ok() && stack.split(';').count() <= 3, "{line}");
    }
}

/// Names in a pprof file are for people: `go tool pprof` prints them unchanged.
#[test]
fn pprof_has_no_controls() {
    let place = scratch("hostile-pprof");
    let file = place.join("a.pb.gz");
    let mut words = ["export", "--format", "pprof", "-o"].map(str::to_owned).to_vec();
    words.push(file.display().to_string());
    assert_eq!(ask(&words, &[&recording(&place)], &place).status, 0);
    let unpacked = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip").stdout;
    let text = String::from_utf8_lossy(&unpacked);
    assert!(
        text.contains("INJECTED") && !text.contains("\u{1b}[31m") && !text.contains("\u{9b}5m")
    );
}

#[test]
fn json_keeps_names_as_they_are() {
    let place = scratch("hostile-json");
    let words = ["report", "--format", "json"].map(str::to_owned);
    let outcome = ask(&words, &[&recording(&place)], &place);
    let report: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let process = &report["processes"][0];
    assert_eq!(process["host"], name("host"));
    assert_eq!(process["job"], name("job") + "\\xff\u{1b}");
    assert_eq!(process["program"], format!("/{}", name("program")));
    assert_eq!(process["command"][1], name("argument"));
    assert_eq!(process["frames"][1]["function"], name("inner"));
}

/// Command lines that fail, each with such a name.
#[test]
fn no_error_is_broken() {
    let place = scratch("hostile-errors");
    let recording = recording(&place);
    let (evil, file) = (name("argument"), file_name("file"));
    let (there, is) = (place.join(&file), recording.to_str().expect("UTF-8"));
    fs::write(&there, format!("nonsense {evil}")).expect("a file");
    let there = there.to_str().expect("UTF-8");
    let lines: &[&[&str]] = &[
        &["report", &evil],
        &[&evil],
        &["report", there],
        &["report", is, "--by", &evil],
        &["report", is, "--process", &evil],
        &["report", is, "--process", "99"],
        &["report", is, "--snapshot", "99"],
        &["report", is, "--focus", &format!("({evil}")],
        &["report", is, "--focus", &evil],
        &["report", is, "--rules", &evil],
        &["report", is, "--rules", there],
        &["leaks", is, "--suppressions", &evil],
        &["leaks", is, "--suppressions", there],
        &["timeline", is, "--site", &evil],
        &["query", &evil, is],
        &["query", &format!("SELECT \"{evil}\""), is],
        &["query", "--describe", &evil],
        &["query", "SELECT count()", is, "--format", &evil],
        &["query", "SELECT * FROM events", is],
        &["export", is, "--format", &evil],
        &["export", is, "--format", "csv", "-o", there],
        &["flamegraph", is, "-o", there],
        &["diff", &evil, is],
        &["ctl", is, "status"],
        &["ctl", &evil, "status"],
        &["merge", &evil, "-o", "x"],
        &["sdk", there],
        &["man", there],
        &["run", "-q", "--monitor", &evil, "--", "true"],
        &["run", "--snapshot-on", &evil, "--", "true"],
    ];
    let mut found = Vec::new();
    for line in lines {
        let outcome = run(heaptide().args(*line).current_dir(&place), &place);
        assert!(matches!(outcome.status, 0..=2), "{line:?}: {outcome:?}");
        assert_ne!(outcome.stderr, "", "{line:?}: {outcome:?}");
        found.push((line.join(" "), faults(&outcome.stderr)));
    }
    assert_none(found);
}

#[test]
fn ctl_shows_names_of_marks_and_snapshots() {
    let place = scratch("hostile-ctl");
    let recording = place.join("a.heaptide");
    let program = Looping::start(&recording, &place);
    let ctl = |words: &[&str]| {
        run(heaptide().arg("ctl").arg(&recording).args(words).current_dir(&place), &place)
    };
    let outcomes = [ctl(&["mark", EVIL]), ctl(&["snapshot", EVIL]), ctl(&["status"])];
    drop(program);
    let found = outcomes.iter().map(|outcome| (format!("{outcome:?}"), faults(&outcome.stdout)));
    assert_none(found.collect());
    assert_eq!(outcomes.each_ref().map(|outcome| outcome.status), [0; 3], "{outcomes:?}");
    assert_eq!(outcomes[2].stdout.matches("INJECTED").count(), 2, "{}", outcomes[2].stdout);
}

/// The summary that `heaptide run` prints at the end.
#[test]
fn the_summary_is_not_broken() {
    let place = scratch("hostile-summary");
    let recording = recording(&place);
    let read = heaptide_analysis::model::Recording::open(&recording).expect("a recording");
    let summary = heaptide_render::text::summary::summary(&read, &Default::default(), &recording);
    assert!(summary.contains("INJECTED"), "{summary}");
    assert_none(vec![(summary.clone(), faults(&summary))]);
}
