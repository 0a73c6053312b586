//! Accounts of resident memory: programs with memory of one kind, in a known amount.

use crate::allocators::library;
use crate::harness::{Guest, heaptide, recorded, report, run, scratch, set_clock};
use crate::recording::{list, number};
use heaptide_fixtures::skips::{is_root, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: i128 = 1 << 20;

/// The maximum unexplained part of an account, or a twentieth of the resident memory if that is
/// more.
const SLACK: i128 = 2 * MIB;

/// Runs `resident.c` with an argument and returns the processes of `heaptide memory`, that of the
/// program first. Its account must match the resident memory that the program printed.
fn processes(kind: &str, options: &[&str]) -> Vec<Value> {
    let place = scratch(&format!("memory-{kind}-{}", options.len()));
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    command.arg(program).arg(kind).arg(place.join("mapped"));
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{kind}");
    let printed: Vec<i128> =
        outcome.stdout.lines().map(|line| line.parse().expect("a number")).collect();
    let processes = memory(&recording, &place, "end");
    let found = number(&processes[0]["account"], "resident_bytes");
    let last = *printed.last().expect("one line at least");
    assert!((found - last).abs() < SLACK, "{kind}: {found} resident, {last} printed");
    processes
}

/// Returns the processes in the JSON of `heaptide memory --at`, in order of their start.
fn memory(recording: &Path, place: &Path, at: &str) -> Vec<Value> {
    let mut command = heaptide();
    command.args(["memory", "--format", "json", "--at", at]).arg(recording);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let document: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    list(&document, "processes").to_vec()
}

/// Returns the account of a process, after checking that little is unexplained.
fn closed(process: &Value) -> &Value {
    let account = &process["account"];
    let (resident, unexplained) =
        (number(account, "resident_bytes"), number(account, "unexplained_bytes"));
    assert!(unexplained <= SLACK.max(resident / 20), "{unexplained} of {resident} unexplained");
    let rows: i128 = list(account, "rows").iter().map(|row| number(row, "resident_bytes")).sum();
    assert_eq!(rows + unexplained, resident, "the rows add up");
    account
}

/// Returns the row with this path of names.
fn row<'a>(account: &'a Value, path: &[&str]) -> &'a Value {
    let (first, rest) = path.split_first().expect("a name");
    let find = |rows: &'a Value, key, name: &str| {
        list(rows, key).iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
    };
    rest.iter().fold(find(account, "rows", first), |row, name| find(row, "children", name))
}

/// Asserts that a row has at least `least` resident bytes, and at most `more` more.
fn assert_resident(account: &Value, path: &[&str], least: i128, more: i128) {
    let row = row(account, path);
    assert!(!row.is_null(), "no row {path:?}: {account:#}");
    let found = number(row, "resident_bytes");
    assert!((least..=least + more).contains(&found), "{path:?}: {found}, expected {least}");
}

#[test]
fn a_heap_that_is_touched() {
    let processes = processes("touched", &[]);
    let account = closed(&processes[0]);
    let bytes = 32768 * 1001;
    assert_resident(account, &["heap", "live requested"], bytes - MIB / 4, MIB / 2);
    assert_resident(account, &["heap", "live slack"], 32768 * 15 - MIB / 16, MIB / 8);
}

#[test]
fn a_heap_of_which_most_is_free() {
    let processes = processes("fragmented", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["heap", "free"], 31 * 1024 * 2000 - MIB, 3 * MIB);
    assert_resident(account, &["heap", "live requested"], 1024 * 2000 - MIB / 4, MIB / 2);
}

#[test]
fn a_large_block_that_is_not_touched() {
    let processes = processes("untouched", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["heap"], 0, MIB);
    let size = number(row(account, &["heap", "live requested"]), "size_bytes");
    assert!((size - 256 * MIB).abs() < MIB, "{size}");
}

/// Runs `filled_late.c`, and returns its account at the peak and its report.
fn filled_late(how: &str) -> (Value, String) {
    let place = scratch(&format!("memory-late-{how}"));
    let program = Guest::read("filled_late.c").build("filled_late.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    set_clock(&mut command, &place);
    let outcome = run(command.arg(program).arg(how), &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{how}");
    let account = closed(&memory(&recording, &place, "peak")[0]).clone();
    let outcome = run(heaptide().arg("report").arg(&recording), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    (account, outcome.stdout)
}

/// Returns the sentence of a report, in one line.
fn sentence(report: &str) -> String {
    let lines = report.lines().skip(1).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// The account of the moment at which it was allocated has none of its pages.
#[test]
fn a_block_that_is_written_to_later() {
    let (account, report) = filled_late("heap");
    let sentence = sentence(&report);
    assert_resident(&account, &["heap", "live requested"], 64 * MIB - MIB / 4, MIB / 2);
    assert!(sentence.starts_with("`get_block` (filled_late.c:15) holds 64.0 MiB, "), "{sentence}");
    assert!(sentence.ends_with(", freed before exit."), "{sentence}");
}

#[test]
fn blocks_that_are_written_to_later() {
    let (account, report) = filled_late("blocks");
    let sentence = sentence(&report);
    let bytes = number(row(&account, &["heap", "live requested"]), "resident_bytes");
    assert!((60 * MIB..=65 * MIB).contains(&bytes), "{bytes}");
    assert!(sentence.ends_with(", freed before exit."), "{sentence}");
}

#[test]
fn a_mapping_that_is_written_to_later() {
    let (account, report) = filled_late("mapped");
    let sentence = sentence(&report);
    assert_resident(&account, &["mappings", "other"], 64 * MIB, 0);
    assert!(sentence.starts_with("`get_mapping` (filled_late.c:26) holds 64.0 MiB"), "{sentence}");
}

/// The block was freed before the mapping was made, so both are never added up.
#[test]
fn peak_usage_of_kinds_that_take_turns() {
    let (account, report) = filled_late("turns");
    let sentence = sentence(&report);
    assert_resident(&account, &["mappings", "other"], 64 * MIB, 0);
    let holds = "holds 64.0 MiB of mapped memory, 100% of peak usage (64.0 MiB after ";
    assert!(sentence.contains(holds), "{sentence}");
    let memory = "memory   kinds at different times: heap 32.0 MiB after ";
    assert!(report.contains(memory), "{report}");
}

/// Runs `kinds_overlap.c`, and returns the report.
fn kinds_overlap(how: &str, options: &[&str]) -> String {
    let place = scratch(&format!("memory-kinds-{how}"));
    let program = Guest::read("kinds_overlap.c").build("kinds_overlap.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    set_clock(&mut command, &place);
    let outcome = run(command.arg(program).arg(how), &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{how}");
    let outcome = run(heaptide().arg("report").arg(&recording), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    outcome.stdout
}

/// Without an account, resident memory in samples shows that a mapping is address space.
#[test]
fn mappings_without_contents() {
    for options in [&[][..], &["--no-accounts"]] {
        let report = kinds_overlap("unused", options);
        let holds = "`hold` (kinds_overlap.c:20) holds 8.00 MiB, 100% of peak usage (8.00 MiB after 1.00 ms)";
        assert!(sentence(&report).starts_with(holds), "{options:?}: {report}");
    }
}

/// Checks the beginning of the sentence about a run, and its line about kinds of memory.
fn assert_peak(how: &str, holds: &str, memory: &str) -> String {
    let report = kinds_overlap(how, &[]);
    assert!(sentence(&report).starts_with(holds), "{report}");
    assert!(report.contains(&format!("  memory   {memory}\n")), "{report}");
    report
}

/// Who held what at the peak of the sum, which is that of the heap.
#[test]
fn peak_usage_of_both_kinds() {
    let report = assert_peak(
        "heap",
        "`hold` (kinds_overlap.c:20) holds 32.0 MiB, 66.7% of peak usage (48.0 MiB after 4.00 ms)",
        "at one time: heap 32.0 MiB, mapped by the program 16.0 MiB after 4.00 ms",
    );
    assert!(report.contains("33.3%   16.0 MiB          1  mapped  get_mapping"), "{report}");
}

/// The peak of the sum is that of the mappings, when nothing is in the heap.
#[test]
fn peak_usage_of_mappings_after_a_heap() {
    assert_peak(
        "mapped",
        "`get_mapping` (kinds_overlap.c:26) holds 64.0 MiB of mapped memory, 100% of peak usage \
         (64.0 MiB after 3.00 ms)",
        "kinds at different times: heap 32.0 MiB after 1.00 ms, mapped by the program 64.0 MiB \
         after 3.00 ms",
    );
}

/// What the heap had at the peak of the mappings is not known by stack.
#[test]
fn peak_usage_of_mappings_beside_a_heap() {
    let report = assert_peak(
        "both",
        "`get_mapping` (kinds_overlap.c:26) holds 64.0 MiB of mapped memory, 66.7% of 96.0 MiB, \
         the peaks of heap and mappings added up",
        "at the peak of each kind: heap 32.0 MiB after 1.00 ms, mapped by the program 64.0 MiB \
         after 4.00 ms",
    );
    assert!(report.contains("96.0 MiB  100,667,376 bytes (within 16.0 MiB)"), "{report}");
}

/// The peak of all mappings is that of the addresses, at which there is no data yet. If not all
/// changes are known, the peak of the data is at least what there is at the end.
#[test]
fn data_in_reserved_addresses() {
    let place = scratch("memory-reserved");
    let program = Guest::read("reserved_heap.c").build("reserved_heap.c", &[]);
    for (argument, least) in [(None, ""), (Some("many"), "at least ")] {
        let recording = place.join(format!("{}.heaptide", argument.unwrap_or("a")));
        let mut command = recorded(&recording, &[]);
        let outcome = run(command.arg(&program).args(argument), &place);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
        let outcome = run(heaptide().arg("report").arg(&recording), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let sentence = sentence(&outcome.stdout);
        let holds =
            format!("holds 32.0 MiB of mapped memory, 100% of peak usage ({least}32.0 MiB after ");
        assert!(sentence.starts_with("`commit` (reserved_heap.c:12) "), "{sentence}");
        assert!(sentence.contains(&holds), "{sentence}");
        let mapped = format!(", mapped by the program {least}32.0 MiB after ");
        assert!(outcome.stdout.contains(&mapped), "{}", outcome.stdout);
    }
}

/// A block that is a thousandth of the peak was said to have been at another time.
#[test]
fn a_small_kind_beside_a_large_one_keeps_its_row() {
    let (_, report) = filled_late("beside");
    assert!(report.contains("memory   at the peak of each kind: heap 64.0 KiB"), "{report}");
    assert!(report.contains("64.0 KiB          1  heap    get_block"), "{report}");
}

#[test]
fn stacks_of_threads() {
    let processes = processes("stacks", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["stacks"], 32 * MIB, MIB);
    assert_resident(account, &["stacks", "other threads"], 16 * MIB, MIB / 2);
}

#[test]
fn a_mapped_file() {
    let processes = processes("file", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "files"], 16 * MIB, MIB / 2);
}

#[test]
fn a_large_bss() {
    let processes = processes("bss", &[]);
    let account = closed(&processes[0]);
    let program = list(row(account, &["modules"]), "children")[0].clone();
    assert!(program["name"].as_str().is_some_and(|name| name.ends_with("resident-c")), "{program}");
    let found = number(&program, "resident_bytes");
    assert!((24 * MIB..25 * MIB).contains(&found), "{found}");
}

/// A line of smaps is divided at the ends of recorded mappings, by the pages that are resident.
#[test]
fn a_mapping_between_blocks_that_are_not_touched() {
    let processes = processes("neighbours", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "other"], 16 * MIB, 0);
    let site = &list(row(account, &["mappings", "other"]), "children")[0];
    assert_eq!(site["name"], "map [resident-c]");
    assert_resident(account, &["heap"], 0, MIB);
    let size = number(row(account, &["heap", "live requested"]), "size_bytes");
    assert!((size - 320 * MIB).abs() < MIB, "{size}");
}

/// The kernel can merge memory of the recorder with that of the program. Found with jemalloc: half
/// of its memory counted as the recorder's.
#[test]
fn memory_in_which_accounts_are_gathered_is_apart_from_that_of_the_program() {
    let processes = processes("reserved", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "other"], 32 * MIB, 0);
    assert_resident(account, &["recorder"], 0, 8 * MIB);
}

#[test]
fn a_mapping_behind_a_bss_is_none() {
    let processes = processes("behind", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "other"], 16 * MIB, 0);
    assert_resident(account, &["modules"], 0, 8 * MIB);
}

/// Python objects are in mapped arenas: heap and arenas explain the growth of RSS.
/// Its 64 MiB of address space would mislead.
#[test]
fn the_heap_of_a_runtime_is_resident_memory() {
    let place = scratch("memory-runtime");
    let recording = place.join("a.heaptide");
    let program = Guest::read("runtime_heap.c").build("memory-runtime", &[]);
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).arg("--").arg(program);
    let outcome = run(&mut command, &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let says = "LuaJIT's heap is not the malloc heap: 5.00 MiB resident in mappings of ";
    assert!(
        outcome.stderr.contains(&format!("  runtime    {says}memory-runtime; ")),
        "{outcome:?}"
    );
    assert!(!outcome.stderr.contains("64.0 MiB"), "{outcome:?}");
    let account = &memory(&recording, &place, "end")[0]["account"];
    let heap = row(account, &["mappings", "LuaJIT runtime"]);
    assert_eq!(number(heap, "resident_bytes"), 5 * MIB, "{account}");
    assert_eq!(number(heap, "size_bytes"), 64 * MIB, "{account}");
    let mut command = heaptide();
    let page = run(command.arg("report").arg(&recording), &place);
    assert!(page.stdout.contains(says), "{page:?}");
    // More of it is resident than malloc holds, so it comes first.
    let (sentence, _) = outcome.stderr.split_once('\n').expect("a line");
    let begin = "heaptide: LuaJIT's own heap holds 5.00 MiB, ";
    assert!(sentence.starts_with(begin), "{sentence}");
    let second = "it uses malloc. `main` (runtime_heap.c:22) holds 97.7 KiB, 100% of peak usage";
    assert!(sentence.contains(second), "{sentence}");
}

/// The first sentence about memory inside and outside of a runtime's own heap. Recordings of Go,
/// GCC, R, OCaml and Ruby had functions of the runtime as owners, or only one of both parts.
#[test]
fn memory_in_and_beside_the_heap_of_a_runtime() {
    let place = scratch("memory-runtime-parts");
    let program = Guest::read("runtime_parts.c").build("runtime_parts.c", &[]);
    for (kind, parts) in [
        (
            "go",
            &[
                "Go's own heap holds 8.00 MiB, ",
                "shows it. `image` (runtime_parts.c:",
                ") holds 4.00 MiB, >99.9% of 4.00 MiB outside of it, all live at exit.",
            ][..],
        ),
        (
            "gcc",
            &[
                "GCC's own heap holds 8.00 MiB, ",
                "shows it. `make_node` (runtime_parts.c:",
                ") holds 8.00 MiB in GCC's own heap, 100% of peak usage (8.00 MiB after ",
                "), all live at exit.",
            ],
        ),
        (
            "r",
            &[
                "`main` (runtime_parts.c:",
                ") holds 4.00 MiB in R's own heap, 100% of peak usage",
                "; `Rprofmem()` shows",
            ],
        ),
        (
            "ocaml",
            &[
                "`fill` (runtime_parts.c:",
                ") holds 4.00 MiB in OCaml's own heap, 100% of peak usage",
                ", all live at exit; `OCAMLRUNPARAM=",
            ],
        ),
        (
            "beside",
            &[
                "`rows` (runtime_parts.c:",
                ") holds 16.0 MiB, ",
                ", all live at exit. LuaJIT's own heap holds 8.00 MiB, ",
                "it uses malloc.\n",
            ],
        ),
    ] {
        let recording = place.join(kind);
        let mut command = heaptide();
        command.args(["run", "-o"]).arg(&recording).arg("--").arg(&program).arg(kind);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{kind}: {outcome:?}");
        let mut rest = &*outcome.stderr;
        for part in parts {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{kind}: no {part:?} in: {}", outcome.stderr));
            rest = &rest[at + part.len()..];
        }
    }
}

#[test]
fn dictionaries_of_python() {
    const SCRIPT: &str = "import os\n\
        rss = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n\
        before = rss()\n\
        kept = [{'a': i} for i in range(300000)]\n\
        print(rss() - before, flush=True)\n\
        os._exit(0)";
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skip("python3");
    }
    let place = scratch("memory-python");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--python-memory", "arenas"]);
    let outcome = run(command.arg(python).args(["-S", "-c", SCRIPT]), &place);
    let grown: i128 = outcome.stdout.trim().parse().expect("bytes");
    let processes = memory(&recording, &place, "peak");
    let account = closed(&processes[0]);
    let resident = |path: &[&str]| number(row(account, path), "resident_bytes");
    let arenas = resident(&["mappings", "python arena"]);
    let known = arenas + resident(&["heap", "live requested"]);
    assert!((known - grown).abs() < grown / 20 + 2 * MIB, "{known} of {grown}: {account:#}");
    assert!(arenas > grown / 2, "{arenas} of {grown}");
    let sites = list(row(account, &["mappings", "python arena"]), "children");
    let of_sites: i128 = sites.iter().map(|site| number(site, "resident_bytes")).sum();
    assert_eq!(of_sites, arenas, "the sites add up");
}

#[test]
fn shared_memory() {
    let processes = processes("shared", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "shared memory"], 16 * MIB, MIB / 4);
}

/// The child has the heap of its parent, and as much of its own; it has a separate account.
#[test]
fn a_fork() {
    let processes = processes("fork", &[]);
    assert_resident(closed(&processes[0]), &["heap"], 8 * MIB, MIB);
    assert_resident(closed(&processes[1]), &["heap"], 16 * MIB, MIB);
}

/// Without stacks the positions of blocks are unknown; the account is still complete.
#[test]
fn counters_alone() {
    let processes = processes("touched", &["--mode", "counters"]);
    let bytes = 32768 * 1001;
    assert_resident(closed(&processes[0]), &["heap", "live requested"], bytes - MIB / 4, MIB / 2);
}

/// Statistics of other allocators than glibc's: what is known, and the source.
#[test]
fn other_allocators() {
    let known = [
        ("libjemalloc", "", "mapped by the allocator minus live"),
        ("libmimalloc", "mimalloc", "committed by mimalloc minus live"),
        ("libtcmalloc_minimal", "", "mapped by the allocator minus live"),
    ];
    for (name, source, free_from) in known {
        let Some(allocator) = library(name) else { continue };
        let place = scratch(&format!("memory-{name}"));
        let program = Guest::read("resident.c").build("resident.c", &[]);
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &[]);
        command.arg(program).arg("fragmented").env("LD_PRELOAD", &allocator);
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{name}");
        let processes = memory(&recording, &place, "end");
        let account = closed(&processes[0]);
        assert_eq!(account["allocator"]["source"].as_str().unwrap_or_default(), source, "{name}");
        assert_eq!(account["free_from"], free_from);
        assert_resident(account, &["heap", "live requested"], 1024 * 2000 - MIB / 4, MIB / 2);
        // Some of the free memory may have been returned to the kernel.
        let size = number(row(account, &["heap", "free"]), "size_bytes");
        assert!((20 * MIB..110 * MIB).contains(&size), "{name}: {size} free");
        let losses = list(&report(&recording, &place)["processes"][0], "losses").len();
        assert_eq!(losses, 0, "{name}");
    }
}

/// Every account is a line: the parts add up to the resident memory, which grows.
#[test]
fn over_time_as_csv() {
    let place = scratch("memory-csv");
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    set_clock(&mut command, &place);
    run(command.arg(program).arg("growing"), &place);
    let timeline = |options: &[&str]| {
        let mut command = heaptide();
        run(command.arg("timeline").args(options).arg(&recording), &place)
    };
    let csv = timeline(&["--format", "csv", "--accounts"]).stdout;
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let (names, accounts) = lines.split_first().expect("a line of names");
    let number = |text: &&str| text.parse::<i128>().expect("bytes");
    let mut resident = Vec::new();
    for account in accounts {
        let (all, parts) = (number(&account[1]), account[2..].iter().map(number));
        assert_eq!(parts.sum::<i128>(), all, "{account:?}");
        resident.push(all);
    }
    assert!(accounts.len() >= 2 && resident.is_sorted(), "{resident:?}");
    let last = |name: &str| {
        let at = names.iter().position(|&other| other == name).expect(name);
        number(&accounts[accounts.len() - 1][at])
    };
    assert!((last("live_requested_bytes") - 40 * MIB).abs() < MIB, "{csv}");
    assert!((last("other_mappings_bytes") - 20 * MIB).abs() < MIB, "{csv}");
    let refused = timeline(&["--accounts"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("--format csv"), "{}", refused.stderr);
}

/// The account of a running process is current: it contains what the last recorded one does not.
#[test]
fn a_process_that_runs() {
    let place = scratch("memory-runs");
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    set_clock(&mut command, &place);
    command.arg(program).arg("waits").stdout(Stdio::piped());
    let mut running = command.spawn().expect("a process");
    let output = running.stdout.take().expect("its output");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "waits\n");
    let look = |options: &[&str]| {
        let mut command = heaptide();
        command.args(["memory", "--format", "json"]).args(options).arg(&recording);
        let outcome = run(&mut command, &place);
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        (document["processes"][0].clone(), outcome.stderr)
    };
    let (last, stderr) = look(&[]);
    assert!(!stderr.contains("cannot inspect"), "{stderr}");
    let text = run(heaptide().arg("memory").arg(&recording), &place);
    let (recorded, _) = look(&["--at", "0s"]);
    let pid = last["pid"].as_u64().expect("a pid").to_string();
    run(Command::new("kill").arg(pid), &place);
    running.wait().expect("it ends");
    let account = closed(&last);
    assert_eq!(account["cause"], "now");
    assert_resident(account, &["heap", "live requested"], 40 * MIB - MIB, 2 * MIB);
    let mapped = number(row(account, &["mappings"]), "resident_bytes");
    assert!((35 * MIB..39 * MIB).contains(&mapped), "{mapped}: {account:#}");
    assert!(text.stdout.contains(", now and peak\n"), "{}", text.stdout);
    assert_ne!(recorded["account"]["cause"], "now", "that is the first recorded one");
}

/// Returns the account nearest to the end, for a process without one of its end, and the text
/// output.
fn account_of_what_ends(how: &str) -> (Value, String) {
    let place = scratch(&format!("memory-{how}"));
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    set_clock(&mut command, &place);
    run(command.arg(program).args(["ends", how]).arg(&place), &place);
    let text = run(heaptide().args(["memory", "--at", "end"]).arg(&recording), &place);
    assert_eq!(text.status, 0, "{how}: {}", text.stderr);
    let account = closed(&memory(&recording, &place, "end")[0]).clone();
    assert_ne!(account["cause"], "end", "{how}");
    // An account of the first 200 ms, in which 60 MiB are mapped and allocated.
    let resident = number(&account, "resident_bytes");
    assert!((10 * MIB..80 * MIB).contains(&resident), "{how}: {resident}");
    (account, text.stdout)
}

#[test]
fn killed_it_has_the_accounts_up_to_then() {
    let (account, _) = account_of_what_ends("killed");
    let mapped = number(row(&account, &["mappings", "other"]), "resident_bytes");
    assert!(mapped >= 3 * MIB && mapped % MIB == 0, "{mapped}");
}

#[test]
fn before_an_exec_it_has_the_accounts_up_to_then() {
    account_of_what_ends("execs");
}

/// A filter forbids `open`: the recorder makes no further system calls.
#[test]
fn confined_by_seccomp_it_has_the_accounts_up_to_then() {
    let (_, text) = account_of_what_ends("confined");
    assert!(text.contains("no later accounts: the program confined itself with seccomp"), "{text}");
}

#[test]
fn without_proc_it_has_the_accounts_up_to_then() {
    if !is_root() {
        return skip("chroot");
    }
    let (_, text) = account_of_what_ends("rooted");
    assert!(text.contains("no later accounts: the recorder could not read"), "{text}");
}

#[test]
fn without_accounts_the_reason_is_given() {
    let place = scratch("memory-off");
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &["--no-accounts"]).arg(program), &place);
    assert_eq!(outcome.status, 0);
    let outcome = run(heaptide().arg("memory").arg(&recording), &place);
    assert_eq!(outcome.status, 1);
    assert!(outcome.stderr.contains("--no-accounts"), "{}", outcome.stderr);
    let processes = memory(&recording, &place, "peak");
    assert!(processes[0]["account"].is_null() && processes[0]["missing"].is_string());
}
