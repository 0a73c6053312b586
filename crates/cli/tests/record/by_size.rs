//! `--by-size`: the known numbers of guests do not change, and each size has a separate site per
//! stack.

use crate::harness::{Guest, check_all_with, heaptide, recorded, report, run, scratch};
use crate::recording::{frames, function, list, number};
use std::collections::BTreeMap;

#[test]
fn known_numbers_stay() {
    let guests = [
        "by_size.c",
        "counts.c",
        "cross_thread.c",
        "peak.c",
        "threads_peak.c",
        "api_labels.c",
        "api_pools.c",
        "api_peak.c",
        "api_scopes.c",
        "api_full.c",
        "fork_threads.c",
        "rlimit_as.c",
        "rlimit_fsize.c",
    ];
    check_all_with(&guests, "by-size", "HEAPTIDE_BY_SIZE");
}

#[test]
fn each_size_is_a_site() {
    for mode in ["stacks", "scopes"] {
        let place = scratch(&format!("by-size-{mode}"));
        let recording = place.join("a.heaptide");
        let program = Guest::read("by_size.c").build("by_size-sites", &[]);
        let outcome =
            run(recorded(&recording, &["--mode", mode, "--by-size"]).arg(program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        let report = report(&recording, &place);
        let process = &list(&report, "processes")[0];
        let mut sizes = BTreeMap::<i128, [i128; 3]>::new();
        for site in list(process, "sites").iter().filter(|site| site["size"].is_u64()) {
            let ours = frames(process, site).iter().any(|f| function(f) == "main");
            let size = number(site, "size");
            if mode == "stacks" && !ours {
                continue; // a block of the C library
            }
            let of = ["largest_bytes", "requested_bytes"].map(|measure| number(site, measure));
            assert_eq!(of, [size, size * number(site, "allocations")], "{site}");
            let row = sizes.entry(size).or_default();
            for (sum, measure) in row.iter_mut().zip(["allocations", "live_blocks", "temporary"]) {
                *sum += number(site, measure);
            }
        }
        // The labelled size counts two allocations: the block was allocated, then moved to the site
        // of the label.
        let known = [
            (0, [1, 0, 1]),
            (10, [5, 0, 5]),
            (100, [1, 0, 0]),
            (500, [1, 1, 0]),
            (800, [2, 1, 0]),
            (1000, [3, 0, 3]),
            (1600, [2, 1, 0]),
            (2000, [1, 0, 0]),
            (4000, [1, 0, 1]),
        ];
        for (size, row) in known {
            assert_eq!(sizes.get(&size), Some(&row), "{mode}, {size}");
        }
    }
}

#[test]
fn counters_have_no_sizes() {
    let place = scratch("by-size-counters");
    let mut command = heaptide();
    let outcome =
        run(command.args(["run", "--mode", "counters", "--by-size", "--", "true"]), &place);
    assert_eq!(outcome.status, 2);
    assert_eq!(
        outcome.stderr,
        "heaptide: --by-size requires --mode stacks, scopes, trace or sampled\n"
    );
}
