//! Every command, query and format of exports.

use crate::harness::heaptide;

/// Commands for pages, tables and JSON, with the statuses that are acceptable.
pub const QUESTIONS: &[(&str, &[i32])] = &[
    ("info", &[0]),
    ("report", &[0]),
    ("report --kind heap", &[0]),
    ("report --format json", &[0]),
    ("report --by function --sort temporary", &[0]),
    ("report --by stack --top 3", &[0]),
    ("report --by module", &[0]),
    ("report --by scope", &[0]),
    ("report --by label", &[0]),
    ("report --by thread", &[0]),
    ("report --by size", &[0]),
    ("report --by size --kind heap", &[0]),
    ("report --by process", &[0]),
    ("report --by host", &[0]),
    ("report --by rank", &[0]),
    ("report --process all", &[0]),
    ("report --rules std,cpython", &[0]),
    ("report --focus a --ignore file:nowhere --hide module:nothing", &[0]),
    ("tree", &[0]),
    ("tree --bottom-up --depth 4 --metric allocations", &[0]),
    ("tree --scopes", &[0]),
    ("tree --process all --by process", &[0]),
    ("peak", &[0]),
    ("peak --kind heap", &[0]),
    ("peak --format json", &[0]),
    ("leaks", &[0, 1]),
    ("leaks --format json --top 3", &[0, 1]),
    ("histogram", &[0]),
    ("histogram --kind heap", &[0]),
    ("histogram --format json", &[0]),
    ("timeline", &[0]),
    ("timeline --format json", &[0]),
];

/// Queries for all recordings.
pub const QUERIES: &[&str] = &[
    "SELECT owner,count(),sum(live_bytes) GROUP BY owner ORDER BY count DESC LIMIT 5",
    "SELECT stack,inclusive_sum(at_peak_bytes) GROUP BY stack FORMAT tree",
    "SELECT * FROM timeline FORMAT json",
    "SELECT * FROM processes FORMAT expand",
];

/// Queries for recordings with every event.
pub const OF_EVENTS: &[&str] = &[
    "SELECT operation,count() FROM events GROUP BY operation FORMAT table",
    "SELECT function,count() FROM events WHERE mem.alloc GROUP BY function FORMAT tree",
    "SELECT * FROM events LIMIT 20 FORMAT json",
    "SELECT * FROM lifetimes ORDER BY lifetime_ns DESC LIMIT 20 FORMAT expand",
    "SELECT owner,count(),avg(lifetime_ns) FROM lifetimes GROUP BY owner",
];

/// Returns the formats that the help of `export` lists, except that of heaptide-sql, which has its
/// own tests.
pub fn formats() -> Vec<String> {
    let help = heaptide().args(["export", "--help-all"]).output().expect("help").stdout;
    let help = String::from_utf8(help).expect("UTF-8");
    let lines = help.lines().skip_while(|line| !line.starts_with("      --format <")).skip(1);
    let values = lines.take_while(|line| !line.trim_start().starts_with("--"));
    let names = values.filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next());
    names.filter(|name| *name != "parquet").map(str::to_owned).collect()
}

/// Returns the messages, except those about which of several processes is shown.
pub fn complaints(stderr: &str) -> Vec<&str> {
    let said =
        |line: &&str| line.contains(": comparing ") || line.starts_with("heaptide: showing ");
    stderr.lines().filter(|line| !said(line)).collect()
}
