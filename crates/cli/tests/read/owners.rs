//! Owners of allocations: every view names the same function, and the known types.

use crate::harness::{self, Guest, heaptide, recorded, run, scratch};
use crate::pictures::browse;
use crate::programs;
use heaptide_fixtures::skips::skip;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Records a program into a new directory.
fn recording(test: &str, program: &str) -> (PathBuf, PathBuf) {
    let place = scratch(&format!("owners-{test}"));
    let recording = place.join("a.heaptide");
    let program = Guest::read(program).build(&format!("owners-{test}"), &[]);
    let outcome = run(recorded(&recording, &[]).arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    (recording, place)
}

/// Returns the output of a command for a recording.
fn prints(words: &str, recording: &Path, place: &Path) -> String {
    let mut command = heaptide();
    command.current_dir(place).args(words.split_whitespace()).arg(recording);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{words}: {outcome:?}");
    outcome.stdout
}

/// Returns the result of a query, in columns.
fn asked(query: &str, recording: &Path, place: &Path) -> String {
    let mut command = heaptide();
    let outcome = run(command.args(["query", "--exact", query]).arg(recording), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{query}");
    outcome.stdout
}

/// Parses `key value` lines into a map.
fn sums(answer: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let (key, value) = line.trim().rsplit_once(' ')?;
        Some((key.trim().to_owned(), value.parse().ok()?))
    };
    answer.lines().filter_map(row).collect()
}

/// The runtime of gfortran has no symbols for the functions that allocate.
#[test]
fn what_the_runtime_of_fortran_allocates_is_its_callers() {
    if !programs::is_installed("gfortran") {
        return skip("gfortran");
    }
    let (recording, place) = recording("fortran", "owners.f90");
    let query = "SELECT owner,sum(requested_bytes) AS sum GROUP BY owner";
    let owners = sums(&asked(query, &recording, &place));
    assert_eq!(owners["solver::assemble"], 720_000, "{owners:?}");
    assert_eq!(owners["solver::step"], 2 * (720_000 + 524_288 + 80_000), "{owners:?}");
    let lines = prints("report --by line --exact --metric requested_bytes", &recording, &place);
    for (place, bytes) in [("owners.f90:19", " 2,488,576 "), ("owners.f90:21", " 160,000 ")] {
        let name = format!("{place} solver::step");
        let row = lines.lines().find(|row| row.contains(&name)).expect("a row");
        assert!(row.contains(bytes), "{lines}");
    }
}

const CACHE: &str = "Cache::get(int)";

#[test]
fn every_view_names_the_same_owner() {
    let (recording, place) = recording("views", "owners.cpp");
    let query = "SELECT owner,sum(requested_bytes) AS sum GROUP BY owner";
    let owners = sums(&asked(query, &recording, &place));
    assert_eq!(owners["load(int)"], 32_000, "{owners:?}");
    // Through `app_malloc`, recognized by name, and `take`, recognized by its seven callers and
    // their sizes.
    assert_eq!((owners["user0()"], owners["user6()"]), (100, 72_900), "{owners:?}");
    assert!(!owners.keys().any(|name| name.contains("take") || name.contains("malloc")));
    // 60 times a node of the map and a session with its counts.
    assert!((60 * 1056..60 * 1100).contains(&owners[CACHE]), "{owners:?}");

    let by_function = prints("report --by function --sort requested_bytes", &recording, &place);
    let rows: Vec<&str> = by_function.lines().skip(4).collect();
    let has_own = |name: &str| {
        let row = rows.iter().find(|row| row.contains(&format!("  {name}  ["))).expect("a row");
        row.split_whitespace().next() == row.split_whitespace().nth(3)
    };
    assert!(has_own("user6()") && has_own(CACHE), "{by_function}");
    assert!(!by_function.contains("_M_allocate"), "{by_function}");
    let report = prints("report --sort requested_bytes", &recording, &place);
    assert!(report.contains("Cache::get(int) via std::"), "{report}");
    assert!(report.contains("user6() via take"), "{report}");
    let tree = prints("tree --bottom-up --metric requested_bytes", &recording, &place);
    let roots = tree.lines().filter(|line| line.contains("├─") && !line.contains("│ ├─"));
    assert!(roots.clone().any(|line| line.contains("─Cache::get(int)")), "{tree}");
    assert!(!roots.clone().any(|line| line.contains("std::") || line.contains("malloc")), "{tree}");

    let mut command = heaptide();
    let table = place.join("a.csv");
    let outcome =
        run(command.args(["export", "--format", "csv", "-o"]).arg(&table).arg(&recording), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let table = fs::read_to_string(table).expect("a table");
    assert!(table.contains(",user6(),") && table.contains(",Cache::get(int),"), "{table}");

    let raw = prints("report --by function --raw --sort requested_bytes", &recording, &place);
    assert!(raw.lines().nth(4).expect("a row").contains("  app_malloc(unsigned long)  ["), "{raw}");
}

#[test]
fn types_of_containers_and_of_objects() {
    let (recording, place) = recording("types", "owners.cpp");
    let query = "SELECT type,sum(requested_bytes) AS sum GROUP BY type";
    let types = sums(&asked(query, &recording, &place));
    assert_eq!(types["std::vector<Order>"], 32_000, "{types:?}");
    assert!((60_000..66_000).contains(&types["Session"]), "{types:?}");
    assert!(types.contains_key("std::map<int, std::shared_ptr<Session>>"), "{types:?}");
    let page = prints("report --by type", &recording, &place);
    assert!(page.contains("  std::vector<Order>") && page.contains("(type not known)"), "{page}");
}

/// The page for browsers also shows the types, and marks the program's own functions.
#[test]
fn types_and_own_code_on_the_page() {
    let (recording, place) = recording("page", "owners.cpp");
    let page = place.join("page.html");
    fs::write(&page, prints("export --format html", &recording, &place)).expect("a page");
    let types = browse(&page, &place, "table=types", &["--dump-dom"]);
    for expected in [">std::vector&lt;Order&gt;<", ">Session<", ">(type not known)<"] {
        assert!(types.contains(expected), "{expected} is not among the types");
    }
    let functions = browse(&page, &place, "table=functions", &["--dump-dom"]);
    let own = functions.split("class=\"link own\"").skip(1);
    let own: Vec<&str> = own.filter_map(|rest| rest.split(['>', '<']).nth(1)).collect();
    assert!(own.contains(&"user6()") && own.contains(&"main"), "{own:?}");
    assert!(!own.iter().any(|name| name.starts_with("std::")), "{own:?}");
}

/// These views for people also omit internals of the language.
#[test]
fn internals_are_left_out_of_leaks_and_differences() {
    let (recording, place) = recording("internals", "owners.cpp");
    let leaks = |options: &str| {
        let words = format!("leaks --top 99 {options}");
        let mut command = heaptide();
        run(command.current_dir(&place).args(words.split_whitespace()).arg(&recording), &place)
    };
    let (page, raw) = (leaks(""), leaks("--raw"));
    assert_eq!((page.status, raw.status), (1, 1), "{page:?}");
    let lines_of = |page: &str, what: &str| page.lines().filter(|l| l.contains(what)).count();
    let total =
        |page: &str| page.lines().find(|line| line.contains("bytes in ")).map(str::to_owned);
    assert_eq!(total(&page.stdout), total(&raw.stdout));
    assert!(page.stdout.contains("user6()") && raw.stdout.contains("user6()"), "{page:?}");
    assert_eq!(lines_of(&page.stdout, "__allocate"), 0, "{page:?}");
    let mut command = heaptide();
    command.args(["diff", "--by", "stack", "--metric", "requested_bytes"]);
    let page = run(command.arg(place.join("none.heaptide")).arg(&recording), &place);
    assert_eq!(page.status, 2, "{page:?}");
    let other = place.join("b.heaptide");
    let outcome = run(recorded(&other, &[]).arg("true"), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let diff = |options: &[&str]| {
        let words = ["diff", "--by", "stack", "--metric", "requested_bytes", "--top", "99"];
        let mut command = heaptide();
        command.args(words).args(options).arg(&other).arg(&recording);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        outcome.stdout
    };
    let (page, raw) = (diff(&[]), diff(&["--raw"]));
    assert!(raw.contains("std::__new_allocator<") && page.contains("Cache::get(int)"), "{raw}");
    assert!(!page.contains("std::__new_allocator<"), "{page}");
}

#[test]
fn rules_of_a_project() {
    let (recording, place) = recording("rules", "owners.cpp");
    let rows = |options: &str| {
        let words = format!("report --by function --metric requested_bytes {options}");
        prints(&words, &recording, &place)
    };
    fs::write(place.join("ours.rules"), "shorten ^user.\\(\\)$ => Users\n").expect("rules");
    fs::write(place.join("heaptide.toml"), "rules = [\"ours.rules\"]\n").expect("a file");
    let page = rows("");
    assert!(page.contains("  Users  [") && !page.contains("user6()"), "{page}");
    // Internals of the language are still omitted.
    assert!(!page.contains("operator new"), "{page}");
    for other in ["--raw", "--rules std"] {
        assert!(rows(other).contains("user6()"), "{other}");
    }
    let json = prints("report --format json", &recording, &place);
    assert!(json.contains("user6()") && !json.contains("Users"));
    fs::write(place.join("heaptide.toml"), "rules = [\"missing.rules\"]\n").expect("a file");
    let mut command = heaptide();
    let wrong = run(command.current_dir(&place).arg("report").arg(&recording), &place);
    assert_eq!(wrong.status, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("heaptide.toml: rules "), "{wrong:?}");
    let expected = "missing.rules: no such file or built-in set; sets are std ";
    assert!(wrong.stderr.contains(expected) && wrong.stderr.lines().count() == 1, "{wrong:?}");
}

#[test]
fn rust_owners_and_types() {
    harness::check("owners.rs");
    let (recording, place) = recording("rust", "owners.rs");
    let owners =
        sums(&asked("SELECT owner,sum(live_bytes) AS sum GROUP BY owner", &recording, &place));
    let most = owners.iter().max_by_key(|row| row.1).expect("an owner");
    assert_eq!(most.0, "owners::Store::insert", "{owners:?}");
    let types =
        sums(&asked("SELECT type,sum(live_blocks) AS sum GROUP BY type", &recording, &place));
    assert_eq!(types["Box<owners::Session>"], 200, "{types:?}");
    assert_eq!(types["String"], 200, "{types:?}");
    assert_eq!(types["HashMap<u64, Box<owners::Session>>"], 1, "{types:?}");
    assert_eq!(types["Vec<String>"], 1, "{types:?}");
}

/// A shortened stack keeps the program's own functions.
#[test]
fn own_code_stays() {
    let (recording, place) = recording("stacks", "owners.rs");
    let page = prints("report --by stack --raw", &recording, &place);
    assert!(page.contains("owners::Store::insert") && page.contains(" library frames"), "{page}");
}

#[test]
fn what_a_project_file_says_is_own_code() {
    let (recording, place) = recording("project", "owners.cpp");
    let own = |place: &Path| {
        let outcome = run(
            heaptide().current_dir(place).args(["report", "--format", "json"]).arg(&recording),
            place,
        );
        (outcome.status, outcome.stdout.matches("\"own\":true").count(), outcome.stderr)
    };
    let (_, before, _) = own(&place);
    fs::write(place.join("heaptide.toml"), "own = [\"module:libc\"]\n").expect("a file");
    let (status, more, _) = own(&place);
    assert!(status == 0 && more > before && before > 0, "{before} {more}");
    fs::write(place.join("heaptide.toml"), "own = [\"thread:x\"]\n").expect("a file");
    let (status, _, wrong) = own(&place);
    let expected = "heaptide.toml: `thread:x`: own code has functions, modules and files; expected \
                    `function:REGEX`, `module:REGEX` or `file:REGEX`\n";
    assert!(status == 2 && wrong.ends_with(expected) && wrong.lines().count() == 1, "{wrong}");
}
