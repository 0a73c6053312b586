//! Source lines: `heaptide lines`, `--by line`, and functions with several allocating lines.

use crate::harness::{self, Guest, heaptide, programs, recorded, run, scratch};
use crate::pictures::browse;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Records `lines.c` into a new directory.
fn recording(test: &str, arguments: &[&str]) -> (PathBuf, PathBuf) {
    let place = scratch(&format!("lines-{test}"));
    let recording = place.join("a.heaptide");
    record(&recording, test, arguments, &place);
    (recording, place)
}

fn record(recording: &Path, test: &str, arguments: &[&str], place: &Path) {
    let program = Guest::read("lines.c").build(&format!("lines-{test}"), &[]);
    let outcome = run(recorded(recording, &[]).arg(program).args(arguments), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
}

/// Runs a command in a directory without source files.
fn command(words: &[&str], place: &Path) -> harness::Outcome {
    let mut command = heaptide();
    run(command.current_dir(place).args(words), place)
}

/// Returns the output of a successful command.
fn prints(words: &[&str], place: &Path) -> String {
    let outcome = command(words, place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words:?}: {outcome:?}");
    outcome.stdout
}

/// Returns the number of the line of `lines.c` with this comment.
fn line(comment: &str) -> usize {
    let source = fs::read_to_string(programs().join("lines.c")).expect("the program");
    let ending = format!(" // {comment}");
    1 + source.lines().position(|line| line.ends_with(&ending)).expect("a line")
}

/// Returns a metric of a line in the JSON of `lines`; 0 if the line is not there.
fn metric(file: &Value, number: usize, part: &str, metric: &str) -> u64 {
    let lines = file["lines"].as_array().expect("lines");
    let line = lines.iter().find(|line| line["line"] == number);
    line.map_or(0, |line| line[part][metric].as_u64().expect("a number"))
}

#[test]
fn lines_have_the_known_numbers_and_add_up_to_the_file() {
    let (recording, place) = recording("known", &[]);
    let recording = recording.to_str().expect("a path");
    let json = prints(&["lines", "lines.c", recording, "--format", "json"], &place);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let file = &json["processes"][0];
    for (comment, blocks, bytes) in
        [("first", 20, 20_000), ("second", 10, 20_080), ("third", 5, 2_520), ("fourth", 1, 40)]
    {
        let number = line(comment);
        assert_eq!(metric(file, number, "own", "at_peak_bytes"), bytes, "{comment}: {json}");
        assert_eq!(metric(file, number, "own", "live_bytes"), bytes, "{comment}");
        assert_eq!(metric(file, number, "own", "live_blocks"), blocks, "{comment}");
        assert_eq!(metric(file, number, "inclusive", "live_bytes"), bytes, "{comment}");
    }
    assert_eq!(metric(file, line("freed"), "own", "temporary"), 7);
    assert_eq!(metric(file, line("call"), "own", "live_bytes"), 0);
    assert_eq!(metric(file, line("call"), "inclusive", "live_bytes"), 42_640);
    let lines = file["lines"].as_array().expect("lines");
    for name in ["at_peak_bytes", "live_bytes", "temporary", "allocations", "requested_bytes"] {
        let sum: u64 = lines.iter().filter_map(|line| line["own"][name].as_u64()).sum();
        assert_eq!(Some(sum), file["own"][name].as_u64(), "{name}");
    }
    assert_eq!(file["own"]["live_bytes"], 42_640);
}

#[test]
fn the_source_is_beside_the_numbers() {
    let (recording, place) = recording("source", &[]);
    let recording = recording.to_str().expect("a path");
    let page = prints(&["lines", "programs/lines.c", recording], &place);
    assert!(page.contains("41.6 KiB live at exit, 7 temporary blocks\n"), "{page}");
    let row = |comment: &str| {
        let ending = format!(" // {comment}");
        page.lines().find(|row| row.ends_with(&ending)).expect("a row").split_whitespace()
    };
    let number = |comment| line(comment).to_string();
    let first: Vec<&str> = row("first").take(7).collect();
    assert_eq!(first, ["19.5", "KiB", "19.5", "KiB", "19.5", "KiB", &number("first")], "{page}");
    let freed: Vec<&str> = row("freed").take(6).collect();
    assert_eq!(freed, ["104", "B", "7", "104", "B", &number("freed")], "{page}");
    let call: Vec<&str> = row("call").take(3).collect();
    assert_eq!(call, ["41.7", "KiB", &number("call")], "{page}");
    // The whole file, and only the surroundings of lines with memory.
    assert!(page.contains("  #include <stdlib.h>\n"), "{page}");
    let part = prints(&["lines", "lines.c", recording, "--context", "1"], &place);
    assert!(!part.contains("#include") && part.contains("i < 20") && part.contains("…"), "{part}");
}

/// Copies the program, so that its source can change.
fn copied(place: &Path) -> (PathBuf, PathBuf) {
    let source = place.join("copy.c");
    fs::copy(programs().join("lines.c"), &source).expect("a copy");
    let program = place.join("copy");
    let mut compiler = std::process::Command::new("cc");
    let built = compiler.args(["-g", "-O1", "-o"]).arg(&program).arg(&source).status();
    assert!(built.expect("cc runs").success());
    (source, program)
}

#[test]
fn missing_and_changed_sources_are_reported_and_the_numbers_shown() {
    let place = scratch("lines-changed");
    let (source, program) = copied(&place);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let recording = recording.to_str().expect("a path");
    let page = prints(&["lines", "copy.c", recording], &place);
    assert!(!page.contains("newer"), "{page}");
    fs::write(&source, "int other;\n").expect("a change");
    let page = prints(&["lines", "copy.c", recording], &place);
    assert!(page.contains("the text is newer than the recording ("), "{page}");
    assert!(page.contains("19.5 KiB") && page.contains("int other;"), "{page}");
    fs::remove_file(&source).expect("the source");
    let page = prints(&["lines", "copy.c", recording], &place);
    assert!(page.contains("the source is not here: No such file or directory"), "{page}");
    assert!(page.contains("19.5 KiB"), "{page}");
}

#[test]
fn names_of_files_select_one_or_list_candidates() {
    let (recording, place) = recording("names", &[]);
    let recording = recording.to_str().expect("a path");
    let outcome = command(&["lines", "nowhere.c", recording], &place);
    assert_eq!((outcome.status, &*outcome.stdout), (1, ""), "{outcome:?}");
    let expected = "no stack with allocations has a line of `nowhere.c`; the files with most";
    assert!(outcome.stderr.contains(expected), "{outcome:?}");
    assert!(outcome.stderr.contains("tests/programs/lines.c"), "{outcome:?}");

    for directory in ["one", "two"] {
        fs::create_dir_all(place.join(directory)).expect("a directory");
        let text =
            format!("#include <stdlib.h>\nvoid *{directory}(void) {{ return malloc(64); }}\n");
        fs::write(place.join(directory).join("part.c"), text).expect("a source");
    }
    let main =
        "void *one(void), *two(void); void *volatile k;\nint main() { k = one(); k = two(); }\n";
    fs::write(place.join("main.c"), main).expect("a source");
    let sources = ["main.c", "one/part.c", "two/part.c"].map(|file| place.join(file));
    let mut compiler = std::process::Command::new("cc");
    let built = compiler.args(["-g", "-O0", "-o"]).arg(place.join("parts")).args(sources).status();
    assert!(built.expect("cc runs").success());
    let parts = place.join("parts.heaptide");
    let outcome = run(recorded(&parts, &[]).arg(place.join("parts")), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let parts = parts.to_str().expect("a path");
    let outcome = command(&["lines", "part.c", parts], &place);
    assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{outcome:?}");
    assert!(outcome.stderr.contains("`part.c` is ambiguous: "), "{outcome:?}");
    assert!(
        outcome.stderr.contains("/one/part.c, ") && outcome.stderr.contains("/two/part.c; name")
    );
    assert!(prints(&["lines", "two/part.c", parts], &place).contains("void *two(void)"));
}

#[test]
fn functions_show_the_lines_that_allocate() {
    let (recording, place) = recording("report", &[]);
    let recording = recording.to_str().expect("a path");
    let (first, second, third) = (line("first"), line("second"), line("third"));
    let places = format!("lines.c :{second} 19.6, :{first} 19.5, :{third} 2.46 KiB");
    let report = prints(&["report", recording], &place);
    let of_live = report.split("Live at exit").nth(1).expect("a section");
    assert!(of_live.contains(&format!("{places}, 1 more [")), "{report}");
    let peak = prints(&["peak", recording], &place);
    for page in [&report, &peak] {
        assert!(page.contains(&format!("{places}, 2 more [")), "{page}");
    }
    // One line is shown without a value.
    let page = prints(&["report", "--metric", "temporary", recording], &place);
    assert!(page.contains(&format!("lines.c:{} [", line("freed"))), "{page}");
    let json = prints(&["peak", "--format", "json", recording], &place);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let functions = json["processes"][0]["functions"].as_array().expect("functions");
    let grow = functions.iter().find(|row| row["function"] == "grow").expect("grow");
    let of_line = |row: &Value| (row["line"].as_u64(), row["at_peak_bytes"].as_u64());
    let lines: Vec<_> = grow["lines"].as_array().expect("lines").iter().map(of_line).collect();
    let small = [(line("freed"), 104), (line("fourth"), 40)];
    let known = [(second, 20_080), (first, 20_000), (third, 2_520), small[0], small[1]];
    assert_eq!(lines, known.map(|(line, bytes)| (Some(line as u64), Some(bytes))));
}

#[test]
fn the_page_has_a_table_of_lines() {
    let (recording, place) = recording("page", &[]);
    let page = place.join("page.html");
    let recording = recording.to_str().expect("a path");
    fs::write(&page, prints(&["export", "--format", "html", recording], &place)).expect("a page");
    let table = browse(&page, &place, "table=lines", &["--dump-dom"]);
    for (comment, size) in [("first", "19.5 KiB"), ("second", "19.6 KiB"), ("third", "2.46 KiB")] {
        let name = format!(">lines.c:{} grow<", line(comment));
        let row = table.split("<tr>").find(|row| row.contains(&name)).expect("a row");
        assert!(row.contains(size), "{comment}: {row}");
    }
}

#[test]
fn tables_trees_and_differences_by_line() {
    let (recording, place) = recording("by", &[]);
    let larger = place.join("b.heaptide");
    record(&larger, "by", &["more"], &place);
    let larger = larger.to_str().expect("a path");
    let recording = recording.to_str().expect("a path");
    let (first, second) = (line("first"), line("second"));
    let table = prints(&["report", "--by", "line", "--exact", recording], &place);
    let row = |page: &str, line: usize| {
        let name = format!("lines.c:{line} grow");
        page.lines().find(|row| row.contains(&name)).map(str::to_owned)
    };
    assert!(row(&table, first).expect("first").contains(" 20,000 "), "{table}");
    assert!(row(&table, second).expect("second").contains(" 20,080 "), "{table}");
    let tree = prints(&["tree", "--by", "line", recording], &place);
    assert!(row(&tree, first).expect("first").contains("19.5 KiB"), "{tree}");
    let tree = prints(&["tree", "--by", "line", "--bottom-up", recording], &place);
    assert!(row(&tree, second).expect("second").contains("19.6 KiB"), "{tree}");
    let outcome = command(&["tree", "--by", "line", "--scopes", recording], &place);
    assert_eq!(outcome.status, 2, "{outcome:?}");
    let leaks = command(&["leaks", "--by", "line", recording], &place);
    assert_eq!((leaks.status, &*leaks.stderr), (1, ""), "{leaks:?}");
    let of_second = row(&leaks.stdout, second).expect("second");
    assert!(of_second.contains("19.6 KiB") && of_second.contains(" 10  lines.c"), "{leaks:?}");
    let leaks = command(&["leaks", "--by", "function", recording], &place).stdout;
    let grow = leaks.lines().find(|row| row.contains("  grow  [")).expect("grow");
    assert!(grow.contains("41.6 KiB") && grow.contains(" 36  grow"), "{leaks}");
    let query = "SELECT owner_line,sum(live_bytes) AS sum WHERE owner=grow GROUP BY owner_line";
    let answer = prints(&["query", "--exact", query, recording], &place);
    let has = |line: usize, bytes: &str| {
        let expected = [line.to_string(), bytes.to_owned()];
        answer.lines().any(|row| row.split_whitespace().eq(expected.iter().map(String::as_str)))
    };
    assert!(has(first, "20000") && has(second, "20080"), "{answer}");
    let changes = prints(&["diff", "--by", "line", recording, larger], &place);
    assert!(row(&changes, second).expect("second").contains("+9.80 KiB"), "{changes}");
    assert!(row(&changes, first).is_none(), "{changes}");
    let changes = prints(&["diff", "--by", "line", "--format", "json", recording, larger], &place);
    let changes: Value = serde_json::from_str(&changes).expect("JSON");
    let change = &changes["rows"][0];
    assert_eq!(change["place"], format!("lines.c:{second}"), "{changes}");
    assert_eq!((&change["function"], &change["own"]["change"]), (&"grow".into(), &10_040.into()));
}
