//! `heaptide advise`: each rule finds the problem of a program, and nothing in a similar program
//! without it.

use crate::harness::{Guest, Outcome, heaptide, programs, recorded, run, scratch, set_clock};
use crate::programs::python;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Records a program of `tests/programs`, built as `variant` with the macro of that name.
pub fn recording(file: &str, variant: &str, options: &[&str]) -> PathBuf {
    recording_of(file, variant, options, 0)
}

/// Records such a program that exits with `status`.
fn recording_of(file: &str, variant: &str, options: &[&str], status: i32) -> PathBuf {
    let (name, _) = file.rsplit_once('.').expect("a file");
    let name = format!("{name}-{variant}");
    let place = scratch(&name);
    let guest = Guest::read(file);
    let program = guest.build(&name, &[&format!("-D{variant}")]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    if guest.says("clock: set") {
        set_clock(&mut command, &place);
    }
    let outcome = run(command.arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (status, ""), "{name}");
    recording
}

fn advise(recording: &Path, words: &[&str]) -> Outcome {
    let place = recording.parent().expect("a directory");
    let mut command = heaptide();
    run(command.current_dir(place).arg("advise").arg("a.heaptide").args(words), place)
}

fn json(recording: &Path, words: &[&str]) -> Value {
    let outcome = advise(recording, &[&["--format", "json"], words].concat());
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let json: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    json["processes"][0].clone()
}

/// Returns the findings of a recording, which has one process.
pub fn found_in(recording: &Path) -> Value {
    json(recording, &[])
}

/// Returns the findings as `rule subject what`.
fn found(advice: &Value) -> Vec<String> {
    let findings = advice["findings"].as_array().expect("a list");
    let text = |finding: &Value, key: &str| finding[key].as_str().expect("a text").to_owned();
    let line = |f: &Value| ["rule", "subject", "what"].map(|key| text(f, key)).join(" ");
    findings.iter().map(line).collect()
}

/// Checks the findings of a program with a problem, and that the similar variants have none.
fn check(file: &str, alike: &[&str], expected: &[&str]) -> Value {
    for variant in alike {
        let advice = json(&recording(file, variant, &[]), &[]);
        assert_eq!(found(&advice), [""; 0], "{file} {variant}: {:#}", advice["findings"]);
    }
    let advice = json(&recording(file, "FAULT", &[]), &[]);
    assert_eq!(found(&advice), expected, "{:#}", advice["findings"]);
    advice
}

#[test]
fn temporary_blocks() {
    let what = "allocates 20,000 blocks that it needs only for a moment";
    let advice =
        check("advise_temporary.c", &["ALIKE"], &[&format!("temporary parse_field {what}")]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["saves"]["allocations"], 20_000);
    assert_eq!(finding["certainty"], "certain");
    assert_eq!(finding["suppression"], "temporary:^parse_field$");
    assert_eq!(finding["place"]["sums"]["temporary"], 20_000);
    assert_eq!(finding["advice"], "Use a buffer of 64 B on the stack, or keep one and reuse it.");
}

#[test]
fn growth_by_reallocation() {
    let lines = "growth append lets 3,000 containers grow by 15,000 reallocations";
    let log = "growth log_to lets 1 container grow by 1,023 reallocations in equal steps";
    let advice = check("advise_growth.c", &["ALIKE"], &[lines, log]);
    let evidence = "1,023 reallocations, to 4.00 MiB at most";
    assert_eq!(advice["findings"][1]["evidence"][0], evidence);
}

#[test]
fn growth_of_a_vector_at_peak() {
    let what =
        "growth collect(std::vector<int>&, int) lets a container grow at peak usage, and copies it";
    let advice = check("advise_vector.cpp", &["ALIKE", "SEVERAL"], &[what]);
    let saves = advice["findings"][0]["saves"]["peak_bytes"].as_u64().expect("bytes");
    assert_eq!(saves >> 20, 16, "the block before the last, and its slack");
}

#[test]
fn the_same_blocks_in_each_iteration() {
    let what =
        "allocates the same 41 blocks anew in each of 100 passes through scope iteration=0…99";
    let expected = format!("per-iteration cells {what}");
    let advice = check("advise_per_iteration.c", &["ALIKE", "KEPT"], &[&expected]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["evidence"][0], "in each pass 40 of 4.00 KiB, 1 of 64.0 KiB: 224 KiB");
    assert_eq!(finding["saves"]["allocations"], 4100 - 41);
}

#[test]
fn tiny_blocks() {
    let expected = "tiny-blocks add_node holds 100,000 blocks of 16 bytes at peak";
    let advice = check("advise_tiny_blocks.c", &["ALIKE"], &[expected]);
    // 16 of 24 usable bytes are requested, and the allocator's header has 8 more.
    let saves = &advice["findings"][0]["saves"];
    assert_eq!(
        (&saves["peak_bytes"], &saves["resident_bytes"]),
        (&800_000.into(), &800_000.into())
    );
    let peak = advice["peak_bytes"].as_u64().expect("bytes");
    assert_eq!(peak - 800_000, 1_600_000, "what an array of the values has");
}

#[test]
fn slack_of_size_classes() {
    let expected = "slack add_entry gets 40 B where it requests 25 B";
    let advice = check("advise_slack.c", &["ALIKE"], &[expected]);
    assert_eq!(advice["findings"][0]["saves"]["peak_bytes"], 750_000);
}

#[test]
fn blocks_freed_by_another_thread() {
    let expected = "cross-thread new_message allocates 20,000 blocks that other threads free";
    let advice = check("advise_cross_thread.c", &["ALIKE"], &[expected]);
    // 100 blocks are live at a time, and more cannot be freed together at the end.
    let saves = advice["findings"][0]["saves"]["allocations"].as_u64().expect("a number");
    assert!((15_000..=19_900).contains(&saves), "{advice:#}");
}

#[test]
fn vectors_filled_element_by_element() {
    let expected = "growth fill(std::vector<int>&) lets vectors grow by 48,000 allocations";
    let advice = check("advise_fill.cpp", &["ALIKE", "SHORT"], &[expected]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["saves"]["allocations"], 45_000);
    let first = "at most 3,000 of them are the first block of a vector; the largest has 128 KiB";
    assert_eq!(finding["evidence"][0], first);
}

/// A label moves a block to another site, but is no further allocation.
#[test]
fn labelled_blocks_of_iterations_count_once() {
    let advice = json(&recording("timesteps.c", "TABLE", &[]), &[]);
    let what = "per-iteration block allocates the same 6 blocks anew in each of 50 passes through \
                scope iteration#mainloop=0…49";
    assert_eq!(found(&advice), [what]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["saves"]["allocations"], 6 * 49);
    assert_eq!(finding["evidence"][1], "300 of its 300 allocations, freed in it");
}

#[test]
fn fragmented_memory() {
    let advice = json(&recording("advise_fragmentation.c", "ALIKE", &[]), &[]);
    assert_eq!(found(&advice), [""; 0]);
    let advice = json(&recording("advise_fragmentation.c", "FAULT", &[]), &[]);
    let finding = &advice["findings"][0];
    assert_eq!((&finding["rule"], &finding["place"]), (&"fragmentation".into(), &Value::Null));
    // 1/64 of 32 MiB is live.
    let saves = finding["saves"]["resident_bytes"].as_u64().expect("bytes") >> 20;
    assert!((28..34).contains(&saves), "{advice:#}");
}

#[test]
fn growth_without_end() {
    let windows = "growing the process has 19.5 KiB more live after each window request";
    let alike = json(&recording("advise_growing.c", "ALIKE", &[]), &[]);
    assert_eq!(found(&alike), [""; 0]);
    let advice = json(&recording("advise_growing.c", "FAULT", &[]), &[]);
    let found = found(&advice);
    assert_eq!(found.len(), 2, "{advice:#}");
    assert!(found.iter().any(|finding| finding == windows), "{found:?}");
    let of_owner = |finding: &&Value| finding["subject"] == "remember";
    let findings = advice["findings"].as_array().expect("a list");
    let owner = findings.iter().find(of_owner).expect("its owner");
    let evidence = owner["evidence"][0].as_str().expect("a text");
    assert!(
        evidence.starts_with(
            "the last 15 of 20 snapshots: live bytes grow from 234 KiB to 782 KiB, by "
        ),
        "{evidence}"
    );
    assert!(evidence.ends_with(", until the end; freed after the last snapshot"), "{evidence}");
    assert_eq!(owner["saves"]["live_bytes"], 0, "it is freed in the end");
}

#[test]
fn blocks_that_are_never_freed() {
    let expected = "never-freed open_session allocates 1,000 blocks that are never freed";
    let advice = check("advise_never_freed.c", &["ALIKE"], &[expected]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["certainty"], "likely");
    let per_pass = "each of 1,000 passes through scope phase=request leaves 1";
    assert_eq!(finding["evidence"][1], per_pass);
}

#[test]
fn blocks_that_outlive_their_scope() {
    let killed = 128 + 9;
    let file = "advise_outlives_scope.c";
    assert_eq!(found(&json(&recording_of(file, "ALIKE", &[], killed), &[])), [""; 0]);
    let advice = json(&recording_of(file, "FAULT", &[], killed), &[]);
    let expected =
        "outlives-scope open_session leaves 1 block with each pass through scope phase=request";
    assert_eq!(found(&advice), [expected]);
    let evidence = &advice["findings"][0]["evidence"];
    assert_eq!(evidence[0], "1,000 passes left 1,000 blocks of 1.91 MiB, none of which is freed");
    assert_eq!(evidence[1], "of 1,000 other blocks of the scope, 1,000 are freed");
}

#[test]
fn requests_that_are_hardly_used() {
    let file = "advise_untouched.c";
    assert_eq!(found(&json(&recording(file, "ALIKE", &[]), &[])), [""; 0]);
    let advice = json(&recording(file, "FAULT", &[]), &[]);
    let found = found(&advice);
    // 3 pages of 64 buffers of 1 MiB each are used. 1.3 MiB of other memory may be unused.
    let expected = "untouched open_channel holds blocks of 64.2 MiB at peak, of which 62.";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    let saves = advice["findings"][0]["saves"]["peak_bytes"].as_u64().expect("bytes") >> 20;
    assert_eq!(saves, 62);
    let one = self::found(&json(&recording(file, "ONE", &[]), &[]));
    let expected = "untouched open_channel holds blocks of 64.0 MiB at peak, of which 62.";
    assert!(one.len() == 1 && one[0].starts_with(expected), "{one:?}");
}

#[test]
fn blocks_of_a_phase_that_is_over() {
    let file = "advise_past_phase.c";
    let trace = ["--mode", "trace"];
    assert_eq!(found(&json(&recording(file, "ALIKE", &trace), &[])), [""; 0]);
    let advice = json(&recording(file, "FAULT", &trace), &[]);
    let expected =
        "past-phase read_file has 1 block live at peak, although the scope load had ended";
    assert_eq!(found(&advice), [expected]);
    let finding = &advice["findings"][0];
    assert_eq!(finding["evidence"][1], "the peak is in scope solve, which does not free them");
    assert_eq!(finding["advice"], "Free them at the end of load if they are not needed later.");
    assert_eq!(finding["saves"]["peak_bytes"].as_u64().expect("bytes") >> 20, 32);
}

#[test]
fn a_short_peak() {
    let expected = "short-peak sort_all holds 32.0 MiB during a short peak";
    let advice = check("advise_short_peak.c", &["ALIKE"], &[expected]);
    let saves = advice["findings"][0]["saves"]["peak_bytes"].as_u64().expect("bytes");
    assert_eq!(saves >> 20, 32, "at most the blocks themselves");
    let text = advice["findings"][0]["advice"].as_str().expect("a text");
    assert!(
        text.ends_with("at the peak, the rest of the program has 1.00 MiB of 33.0 MiB."),
        "{text}"
    );
}

/// What is live on the way to the peak is not live before and after it.
#[test]
fn a_short_peak_that_rises_in_steps() {
    let advice = json(&recording("advise_short_peak.c", "STEPS", &[]), &[]);
    assert_eq!(found(&advice), ["short-peak sort_all holds 32.0 MiB during a short peak"]);
    let finding = &advice["findings"][0];
    let saves = finding["saves"]["peak_bytes"].as_u64().expect("bytes");
    assert!(saves >> 20 >= 31, "{finding:#}");
    let outside = finding["evidence"][1].as_str().expect("a text");
    assert!(outside.starts_with("before and after, at most 1."), "{outside}");
}

/// A level that rises in small steps after the peak is no cleanup.
#[test]
fn a_short_peak_before_slow_growth() {
    let advice = json(&recording("advise_short_peak.c", "SLOW", &[]), &[]);
    let found = found(&advice);
    let expected = "short-peak sort_all holds 32.0 MiB during a short peak".to_owned();
    assert!(found.contains(&expected), "{found:?}");
}

#[test]
fn concatenation_in_python() {
    for (argument, expected) in [
        ("alike", None),
        ("fault", Some("growth build adds to a value 3,999 times and copies it each time")),
    ] {
        let place = scratch(&format!("advise-concatenate-{argument}"));
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &[]);
        command
            .arg(python().expect("python3 is installed"))
            .arg(programs().join("advise_concatenate.py"))
            .arg(argument);
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "400000\n", ""));
        let advice = json(&recording, &[]);
        assert_eq!(found(&advice), expected.as_slice(), "{argument}");
        for finding in advice["findings"].as_array().expect("a list") {
            assert_eq!(finding["evidence"][1], "its copies have 763 MiB in total");
        }
    }
}

/// Returns the finding of a rule.
fn of_rule<'a>(advice: &'a Value, rule: &str) -> &'a Value {
    let mut findings = advice["findings"].as_array().expect("a list").iter();
    findings.find(|finding| finding["rule"] == rule).unwrap_or_else(|| panic!("{advice:#}"))
}

#[test]
fn lost_blocks() {
    let (file, retain) = ("advise_lost.c", &["--retain"]);
    assert_eq!(found(&json(&recording(file, "ALIKE", retain), &[])), [""; 0]);
    let searched = recording(file, "FAULT", retain);
    let advice = json(&searched, &[]);
    let what = "allocates 499 blocks that are lost: no pointer leads to them";
    assert_eq!(found(&advice), [format!("lost open_session {what}")]);
    let finding = &advice["findings"][0];
    let line_of = |text: &str| {
        let guest = Guest::read(file);
        guest.text().lines().position(|line| line.contains(text)).expect("a line") + 1
    };
    let names = line_of("malloc(200)");
    let evidence = [
        "when the program exited, nothing led to 499 blocks of 152 KiB".to_owned(),
        "the process lost 998 blocks of 250 KiB in all".to_owned(),
        format!(
            "499 blocks of 97.5 KiB of other lines are lost with such blocks, most by new_name \
             (advise_lost.c:{names})"
        ),
    ];
    assert_eq!(finding["evidence"], Value::from(evidence.to_vec()));
    assert_eq!(finding["certainty"], "certain");
    assert_eq!(finding["saves"]["live_bytes"], 499 * (312 + 200));
    assert_eq!(finding["suppression"], "lost:^open_session$");
    let sessions = line_of("calloc(1, sizeof *current)") as u64;
    let frames = advice["frames"].as_array().expect("frames");
    let owner = finding["place"]["owner"].as_u64().expect("a frame") as usize;
    assert_eq!(frames[owner]["line"], sessions);
    let text = advise(&searched, &[]).stdout;
    assert!(text.contains(&format!("advise_lost.c:{sessions}")), "{text}");
    assert!(text.contains("; lost, certain\n"), "{text}");
    let suppressed = advise(&searched, &["--suppress", "lost:^open_session$"]).stdout;
    assert!(suppressed.contains("suppressed 1 finding: lost:^open_session$\n"), "{suppressed}");
    let log = advise(&searched, &["--format", "sarif"]).stdout;
    let log: Value = serde_json::from_str(&log).expect("JSON");
    let result = &log["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    let found = (&result["ruleId"], &result["level"], &place["region"]["startLine"]);
    assert_eq!(found, (&"lost".into(), &"warning".into(), &sessions.into()));
    let page = searched.with_file_name("a.html");
    let mut export = heaptide();
    export.args(["export", "--format", "html", "-o"]).arg(&page).arg(&searched);
    assert_eq!(run(&mut export, searched.parent().expect("a place")).status, 0);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains(what), "the panel of findings");
}

/// A recording that was not searched has neither these findings nor lines about them.
#[test]
fn without_a_search_nothing_is_said_of_lost_blocks() {
    let recording = recording("advise_lost.c", "UNSEARCHED", &[]);
    let text = advise(&recording, &[]).stdout;
    for words in [" lost", "growing-container", "--retain", "ctl REC retain"] {
        assert!(!text.contains(words), "{words}: {text}");
    }
    let advice = json(&recording, &[]);
    for (name, needs) in [("lost", "--retain"), ("growing-container", "heaptide ctl REC retain")] {
        let rules = advice["rules"].as_array().expect("rules");
        let rule = rules.iter().find(|rule| rule["name"] == name).expect("the rule");
        assert!(rule["needs"].as_str().is_some_and(|text| text.contains(needs)), "{rule}");
    }
}

/// Records `advise_container.cpp`, which is searched after each of some rounds.
fn searched_in_rounds(variant: &str, options: &[&str], rounds: usize) -> PathBuf {
    let place = scratch(&format!("advise-container-{variant}-{rounds}{}", options.concat()));
    let name = format!("advise-container-{variant}");
    let program = Guest::read("advise_container.cpp").build(&name, &[&format!("-D{variant}")]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    command.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("heaptide");
    let (mut input, output) = (child.stdin.take(), child.stdout.take());
    let mut lines = BufReader::new(output.expect("its output")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "ready");
    for _ in 0..rounds {
        input.as_mut().expect("its input").write_all(b"x\n").expect("it reads");
        assert_eq!(next(), "done");
        let mut search = heaptide();
        let search = search.args(["ctl", "a.heaptide", "retain"]).current_dir(&place);
        let outcome = run(search, &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    }
    drop(input.take());
    assert!(child.wait().expect("its status").success());
    recording
}

#[test]
fn containers_that_only_grow() {
    assert_eq!(found(&json(&searched_in_rounds("ALIKE", &[], 4), &[])), [""; 0]);
    // With the option it is also searched at its end, when the map is destroyed or unchanged.
    let retain = &["--retain"][..];
    for (variant, options, rounds) in
        [("FAULT", &[][..], 2), ("FAULT", retain, 3), ("LASTING", retain, 2)]
    {
        let recording = searched_in_rounds(variant, options, rounds);
        let advice = json(&recording, &[]);
        let finding = of_rule(&advice, "growing-container");
        assert_eq!(found(&advice).len(), 1, "{advice:#}");
        let source = Guest::read("advise_container.cpp");
        let start = match variant {
            "LASTING" => "static std::map<int, std::string> &",
            _ => "static std::map<int, std::string> cache",
        };
        let line = source.text().lines().position(|line| line.starts_with(start));
        let what = format!(
            "adds blocks to what `cache` (advise_container.cpp:{}) keeps, which only grows",
            line.expect("its declaration") + 1
        );
        let found = (&finding["subject"], &finding["what"], &finding["certainty"]);
        assert_eq!(found, (&"fill(int)".into(), &what.into(), &"likely".into()));
        let evidence = finding["evidence"].as_array().expect("a list");
        let sizes = evidence[0].as_str().expect("a text");
        assert!(sizes.starts_with(&format!("{rounds} searches within ")), "{sizes}");
        let own = usize::from(variant == "LASTING"); // the map
        assert!(sizes.contains(&format!(" in {} blocks, then ", 200 + own)), "{sizes}");
        let now = format!(" in {} blocks", 200 * rounds + own);
        assert!(sizes.trim_end_matches(", more each time").ends_with(&now), "{sizes}");
        let added = 200 * (rounds - 1);
        let turnover = format!(
            "the code that fills it allocated {added} blocks meanwhile and freed none of them"
        );
        assert_eq!(evidence[1], turnover);
        let grown = finding["saves"]["live_bytes"].as_u64().expect("bytes");
        let entries = 100 * (rounds as u64 - 1);
        assert!((entries * 1016..entries * 1200).contains(&grown), "{grown}");
    }
}

/// A stand-in for pandas, which the rule recognizes by the names of files and functions.
const PANDAS: &str = "
class DataFrame:
    def __init__(self, size=0):
        self.values = bytearray(size)

    def copy(self):
        other = DataFrame()
        other.values = bytearray(self.values)
        return other
";

#[test]
fn copies_of_tables() {
    for (argument, is_copied) in [("alike", false), ("copied", true)] {
        let place = scratch(&format!("advise-copies-{argument}"));
        let package = place.join("site-packages/pandas/core");
        std::fs::create_dir_all(&package).expect("a package");
        for file in ["__init__.py", "core/__init__.py"] {
            std::fs::write(place.join("site-packages/pandas").join(file), "").expect("a module");
        }
        std::fs::write(package.join("frame.py"), PANDAS).expect("a module");
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &[]);
        command
            .arg(python().expect("python3 is installed"))
            .arg(programs().join("advise_copies.py"))
            .arg(argument);
        let outcome = run(command.env("PYTHONPATH", place.join("site-packages")), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        let found = found(&json(&recording, &[]));
        let expected = "python-copies clean holds copies of a table at peak: 3.8";
        assert_eq!(found.len(), usize::from(is_copied), "{argument}: {found:?}");
        assert!(found.iter().all(|finding| finding.starts_with(expected)), "{found:?}");
    }
}

#[test]
fn the_page_has_evidence_and_the_suppression_that_works() {
    let recording = recording("advise_temporary.c", "PAGE", &[]);
    let page = advise(&recording, &[]);
    assert_eq!((page.status, &*page.stderr), (0, ""));
    let lines: Vec<&str> = page.stdout.lines().map(str::trim).collect();
    for line in [
        "1. parse_field allocates 20,000 blocks that it needs only for a moment",
        "- 20,000 of its 20,000 blocks are freed before their thread allocates again; each of 64 B",
        "Use a buffer of 64 B on the stack, or keep one and reuse it.",
        "--suppress 'temporary:^parse_field$'",
        "not judged: per-iteration needs scopes: mark the loops of the program with the interface, \
         such as `heaptide_begin_int`",
    ] {
        assert!(lines.contains(&line), "{line}\n{}", page.stdout);
    }
    assert!(page.stdout.contains("advise_temporary.c:"), "{}", page.stdout);

    let suppressed = advise(&recording, &["--suppress", "temporary:^parse_field$"]);
    assert!(suppressed.stdout.contains(": no findings\n"), "{}", suppressed.stdout);
    assert!(suppressed.stdout.contains("suppressed 1 finding: temporary:^parse_field$\n"));
    let other = advise(&recording, &["--suppress", "temporary:^other$"]);
    assert!(other.stdout.contains("suppressions not used: temporary:^other$\n"));
    assert!(other.stdout.contains("1 finding, "));

    let file = recording.with_file_name("heaptide.toml");
    std::fs::write(&file, "suppress = ['all:file:advise_temporary']").expect("a project");
    assert!(advise(&recording, &[]).stdout.contains(": no findings\n"));
    std::fs::write(&file, "suppress = ['temp']").expect("a project");
    for (outcome, place) in [
        (advise(&recording, &[]), "heaptide.toml: unknown rule `temp`; expected one of all growth"),
        (advise(&recording, &["--suppress", "slack:("]), "--suppress: `(`: unclosed group"),
        (advise(&recording, &["--suppress", "slack:scope:a"]), "--suppress: `slack:scope:a`: a"),
    ] {
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(place), "{}", outcome.stderr);
    }
}

#[test]
fn findings_as_sarif() {
    let recording = recording("advise_temporary.c", "SARIF", &[]);
    let outcome = advise(&recording, &["--format", "sarif"]);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let log: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "heaptide");
    let result = &run["results"][0];
    let index = result["ruleIndex"].as_u64().expect("an index") as usize;
    assert_eq!(
        (&result["ruleId"], &driver["rules"][index]["id"]),
        (&"temporary".into(), &"temporary".into())
    );
    assert_eq!(result["level"], "warning");
    let text = result["message"]["text"].as_str().expect("a text");
    assert!(text.starts_with("parse_field allocates 20,000 blocks"), "{text}");
    let place = &result["locations"][0]["physicalLocation"];
    let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
    assert!(uri.ends_with("/advise_temporary.c"), "{uri}");
    let line = place["region"]["startLine"].as_u64().expect("a line");
    let source = Guest::read("advise_temporary.c");
    let text = source.text().lines().nth(line as usize - 1).expect("that line");
    assert!(text.contains("parse_field(void)"), "{line}: {text}");
    let frames = result["stacks"][0]["frames"].as_array().expect("frames");
    let name = &frames[1]["location"]["logicalLocations"][0]["fullyQualifiedName"];
    assert_eq!(name, "main");
}

#[test]
fn rules_that_cannot_be_judged_are_named() {
    let recording = recording("advise_temporary.c", "COUNTERS", &["--mode", "counters"]);
    let advice = json(&recording, &[]);
    let rules = advice["rules"].as_array().expect("rules");
    let judged = rules.iter().filter(|rule| rule["needs"].is_null()).map(|rule| &rule["name"]);
    // Accounts and samples do not need stacks.
    assert!(judged.clone().all(|name| name == "fragmentation"), "{:?}", judged.collect::<Vec<_>>());
    assert!(rules.len() > 10, "{rules:?}");
    assert_eq!(found(&advice), [""; 0]);
}
