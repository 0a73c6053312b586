//! Reads `report --format json`, and checks what must hold in every recording.

use serde_json::Value;
use std::collections::BTreeMap;

/// The metrics that add up over sites and over lanes.
const SUMMABLE: [&str; 13] = [
    "allocations",
    "frees",
    "reallocations",
    "failed",
    "requested_bytes",
    "usable_bytes",
    "freed_bytes",
    "live_blocks",
    "live_bytes",
    "at_peak_blocks",
    "at_peak_bytes",
    "temporary",
    "cross_thread_frees",
];

/// Returns a number of a JSON object, which must exist.
pub fn number(object: &Value, name: &str) -> i128 {
    match object[name].as_number() {
        Some(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => i.into(),
            (_, Some(u)) => u.into(),
            _ => panic!("{name} is not a whole number: {n}"),
        },
        None => panic!("{name} is missing: {object}"),
    }
}

/// Returns the elements of a JSON array, which must exist.
pub fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().unwrap_or_else(|| panic!("{name} is not a list"))
}

/// Returns the frames of a site, outermost first.
pub fn frames<'a>(process: &'a Value, site: &Value) -> Vec<&'a Value> {
    let all = list(process, "frames");
    let index = |i: &Value| i.as_u64().expect("a frame index") as usize;
    list(site, "stack").iter().map(|i| &all[index(i)]).collect()
}

/// Returns the name of a frame's function without its parameters, or "?".
pub fn function(frame: &Value) -> &str {
    let name = frame["function"].as_str().unwrap_or("?");
    let end = name.find('(').filter(|&at| at > 0).unwrap_or(name.len());
    &name[..end]
}

/// Returns the file name of a frame's module.
pub fn module(frame: &Value) -> &str {
    let path = frame["module"].as_str().unwrap_or("?");
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns all sites of all processes.
pub fn sites(report: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let processes = list(report, "processes").iter();
    processes.flat_map(|p| list(p, "sites").iter().map(move |s| (p, s)))
}

/// Checks what holds for every recording.
pub fn assert_consistent(report: &Value) {
    assert_eq!(number(report, "schema"), 1);
    for process in list(report, "processes") {
        assert_sums(process);
        assert_balance(process);
        assert_histogram(process);
    }
}

/// Returns what a site adds to sums: a block that was moved by labelling was counted at its origin,
/// memory outside the allocator is in no sum, and blocks of a pool only contribute live bytes,
/// which the chunk lends them.
pub fn counted(site: &Value, measure: &str) -> i128 {
    let value = number(site, measure);
    let moved = |name| if site[name].is_null() { 0 } else { number(site, name) };
    let is_pool_block = [&site["kind"], &site["class"]].iter().any(|of| **of == "pool_block");
    match (site["kind"].as_str(), measure) {
        _ if is_pool_block => match measure {
            "live_bytes" | "at_peak_bytes" => value,
            _ => 0,
        },
        (Some("heap" | "pool_chunk" | "mapped" | "device"), _) => match measure {
            "allocations" | "frees" => value - moved("moved_blocks"),
            "usable_bytes" | "freed_bytes" => value - moved("moved_usable_bytes"),
            "requested_bytes" => value - moved("moved_requested_bytes"),
            "largest_bytes" if is_said(site) => 0,
            _ => value,
        },
        _ => 0,
    }
}

/// Returns whether all requests of a site come from labels. A block that is being labelled may
/// already be counted as allocated but not yet as moved.
fn is_said(site: &Value) -> bool {
    let is_only_moved = || {
        let moved = number(site, "moved_blocks");
        moved > 0 && moved >= number(site, "allocations")
    };
    !site["label"].is_null() && is_only_moved()
}

/// Checks that sites, scopes and lanes add up to the totals, for each metric.
fn assert_sums(process: &Value) {
    let totals = &process["totals"];
    let name = process["program"].as_str().unwrap_or("?");
    let sum = |rows: &str, measure: &str| -> i128 {
        list(process, rows).iter().map(|row| number(row, measure)).sum()
    };
    let sites = list(process, "sites");
    let measures = SUMMABLE.iter().chain(&["frees_here", "freed_here_bytes"]);
    for measure in measures.filter(|measure| !totals[**measure].is_null()) {
        let total = number(totals, measure);
        let of_sites: i128 = sites.iter().map(|site| counted(site, measure)).sum();
        assert_eq!(of_sites, total, "{name}: {measure}: sites against totals");
        assert_eq!(sum("lanes", measure), total, "{name}: {measure}: lanes against totals");
        assert_eq!(sum("scopes", measure), total, "{name}: {measure}: scopes against totals");
        let all = number(&process["scopes"][0]["inclusive"], measure);
        assert_eq!(all, total, "{name}: {measure}: all scopes against totals");
    }
    let largest = sites.iter().map(|site| counted(site, "largest_bytes")).max();
    assert_eq!(largest.unwrap_or(0), number(totals, "largest_bytes"), "{name}: largest_bytes");
}

/// Returns how many events a killed or running process may have counted partially: one per lane.
fn in_flight(process: &Value) -> i128 {
    match process["end"]["kind"].as_str() {
        Some("exited" | "exec") => 0,
        _ => list(process, "lanes").len() as i128,
    }
}

/// Checks that live is allocated minus freed, in totals and in every site, and that the peak is not
/// lower.
fn assert_balance(process: &Value) {
    let partial = in_flight(process) * number(&process["totals"], "largest_bytes");
    // Counters record frees in the lane that makes them, regardless of the block.
    let sites = if process["mode"] == "counters" { &[] } else { list(process, "sites") };
    for row in sites.iter().chain([&process["totals"]]) {
        let of = |measure| number(row, measure);
        assert_eq!(of("live_blocks"), of("allocations") - of("frees"), "{row}");
        let lent = if row["label"].is_string() { of("lent_bytes") } else { 0 };
        assert_eq!(of("live_bytes"), of("usable_bytes") - of("freed_bytes") - lent, "{row}");
        let known = SUMMABLE.iter().filter(|m| !row[**m].is_null());
        assert!(known.copied().all(|m| of(m) >= 0), "a measure below zero: {row}");
        let given = of("usable_bytes") + partial;
        assert!(row["label"].is_string() || given >= of("requested_bytes"), "{row}");
    }
    let totals = &process["totals"];
    let (peak, bound) = (number(totals, "peak_bytes"), number(totals, "peak_bound_bytes"));
    assert!(peak >= number(totals, "live_bytes"), "the peak is below the end: {totals}");
    if process["mode"] != "counters" {
        let off = (number(totals, "at_peak_bytes") - peak).abs();
        assert!(off <= bound, "sites at the peak are {off} bytes off the peak, bound {bound}");
    }
}

/// Checks that the histogram counts every block once for each of its sizes.
fn assert_histogram(process: &Value) {
    let totals = &process["totals"];
    let sum = |column: &str| -> i128 {
        list(process, "histogram").iter().map(|class| number(class, column)).sum()
    };
    let (allocations, frees) = (number(totals, "allocations"), number(totals, "frees_here"));
    // Lanes of a sampled process also count freed blocks from before a fork.
    let inherited = match process["mode"].as_str() {
        Some("sampled") => number(process, "unmatched_frees"),
        _ => 0,
    };
    assert_eq!(sum("requested"), allocations, "histogram of requested sizes");
    assert_eq!(sum("usable"), allocations, "histogram of usable sizes");
    let freed = sum("freed");
    assert!(
        (frees..=frees + inherited).contains(&freed),
        "histogram of freed sizes: {freed}, expected {frees}, or up to {inherited} more"
    );
}

/// Returns a recording as a multiset: the sums of counters for each path of frames.
pub fn stack_tree(report: &Value) -> BTreeMap<String, [i128; 7]> {
    const KEPT: [&str; 7] = [
        "allocations",
        "frees",
        "reallocations",
        "failed",
        "requested_bytes",
        "temporary",
        "live_blocks",
    ];
    let mut tree = BTreeMap::new();
    for (process, site) in sites(report) {
        let text = |frame: &&Value| {
            format!("{}!{}+{:x}", module(frame), function(frame), number(frame, "offset"))
        };
        let path: Vec<String> = frames(process, site).iter().map(text).collect();
        let row: &mut [i128; 7] = tree.entry(path.join(";")).or_default();
        for (sum, measure) in row.iter_mut().zip(KEPT) {
            *sum += number(site, measure);
        }
    }
    tree
}
