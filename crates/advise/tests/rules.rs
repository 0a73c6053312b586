//! Findings for tables with known numbers, and for similar tables without the problem.

use heaptide_advise::{Advice, Finding, History, Suppressions};
use heaptide_analysis::model::{End, Measures, Process, Recording, Sample, SizeClass};
use heaptide_fixtures::{ProgramBuilder, Scratch};

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Returns a process with these stacks, each with the metrics of its sites; blocks are of the heap.
fn process(sites: &[(&str, Measures)]) -> Process {
    let stacks: Vec<&str> = sites.iter().map(|(stack, _)| *stack).collect();
    let scratch = Scratch::new("rules");
    let program = ProgramBuilder::with_stacks(&stacks);
    let mut recording = Recording::open(&program.write(&scratch)).expect("a recording");
    let mut process = recording.processes.remove(0);
    assert_eq!(process.tables.sites.len(), sites.len());
    process.totals = Measures::default();
    for (site, (_, measures)) in process.tables.sites.iter_mut().zip(sites) {
        site.measures = *measures;
        process.totals.add(measures);
    }
    process.totals.peak_bytes = process.totals.at_peak_bytes;
    process.lifetime.duration_ns = 100 * SECOND_NS;
    process.lifetime.end = End::Exited(0);
    process
}

/// Returns the metrics of `blocks` blocks of `size` bytes, of which some are live at peak, and none
/// at the end.
fn blocks(blocks: u64, size: u64, at_peak: u64) -> Measures {
    Measures {
        allocations: blocks,
        frees: blocks,
        requested_bytes: blocks * size,
        usable_bytes: blocks * size,
        freed_bytes: blocks * size,
        at_peak_blocks: at_peak,
        at_peak_bytes: at_peak * size,
        largest_bytes: size,
        ..Measures::default()
    }
}

fn findings(process: &Process) -> Vec<Finding> {
    Advice::of(process, &History::default(), &Suppressions::none()).findings
}

fn named<'a>(findings: &'a [Finding], rule: &str) -> Option<&'a Finding> {
    findings.iter().find(|finding| finding.rule == rule)
}

/// Returns a worker's allocations, all of which another thread frees.
fn of_worker(count: u64, at_peak: u64) -> Process {
    let freed = Measures { cross_thread_frees: count, ..blocks(count, 100, at_peak) };
    process(&[("worker;answer;@malloc", freed)])
}

/// Returns a sample of the process: time in seconds, blocks allocated and freed.
fn counted(second: u64, allocations: u64, frees: u64) -> Sample {
    Sample {
        time_ns: second * SECOND_NS,
        live_bytes: (allocations - frees) * 100,
        allocations,
        frees,
        ..Sample::default()
    }
}

#[test]
fn blocks_that_are_freed_at_the_end_are_no_cross_thread_traffic() {
    // The worker fills a cache for 90 seconds; main frees it at the end.
    let mut process = of_worker(1_000_000, 1_000_000);
    process.time.samples = (0..=90).map(|s| counted(s, s * 10_000, 0)).collect();
    assert_eq!(named(&findings(&process), "cross-thread"), None);
    // The same, with few samples.
    process.time.samples.truncate(1);
    assert_eq!(named(&findings(&process), "cross-thread"), None);
}

#[test]
fn blocks_that_are_freed_while_others_are_allocated_are_cross_thread_traffic() {
    let mut process = of_worker(1_000_000, 2000);
    process.time.samples =
        (0..=100).map(|s| counted(s, s * 10_000, (s * 10_000).saturating_sub(1000))).collect();
    let findings = findings(&process);
    let finding = named(&findings, "cross-thread").expect("a finding");
    // At a sample 1000 blocks are live, and 10,000 are allocated until the next one.
    assert_eq!(finding.saves.allocations, 1_000_000 - 11_000);
    assert!(finding.evidence[1].starts_with("at most 11,000 blocks"), "{}", finding.evidence[1]);
}

/// Returns a process with 3,000 vectors of int, each grown from one element to 32,768.
fn filled() -> Process {
    const ADD: &str = "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>";
    let (vectors, steps) = (3000u64, 16u32);
    let bytes = vectors * 4 * ((1u64 << steps) - 1);
    let growth = Measures {
        allocations: vectors * u64::from(steps),
        frees: vectors * u64::from(steps),
        requested_bytes: bytes,
        usable_bytes: bytes,
        freed_bytes: bytes,
        largest_bytes: 4 << 15,
        at_peak_blocks: 2,
        at_peak_bytes: 4 << 15,
        ..Measures::default()
    };
    let mut process = process(&[
        (&format!("main;fill;{ADD};@malloc"), growth),
        ("main;@malloc", blocks(1, 5, 1)),
    ]);
    let class = |power: u32| SizeClass {
        size_min: 1 << power,
        size_max: (2 << power) - 1,
        requested: vectors,
        usable: vectors,
        freed: vectors,
    };
    process.tables.histogram = (2..2 + steps).map(class).collect();
    process.tables.histogram[0].requested += 1;
    process
}

#[test]
fn vectors_filled_one_by_one_could_reserve() {
    let mut process = filled();
    let finding = findings(&process).remove(0);
    assert_eq!(finding.rule, "growth");
    assert_eq!(finding.what, "lets vectors grow by 48,000 allocations");
    assert_eq!(finding.saves.allocations, 45_000);
    // Any number of its blocks may be the first of a vector.
    process.tables.histogram[0].requested = 40_000;
    assert_eq!(findings(&process), []);
}

/// Returns a service in which `answer` keeps what it allocates, one MiB each second, and `main` has
/// `others` MiB at peak.
fn service(others: u64) -> Process {
    let mut process = process(&[
        ("main;answer;@malloc", blocks(100_000, 1048, 100_000)),
        ("main;@malloc", blocks(1000, 1048, others * 1000)),
    ]);
    process.time.samples = (0..100)
        .map(|s| Sample { time_ns: s * SECOND_NS, live_bytes: s * MIB, ..Sample::default() })
        .collect();
    process
}

#[test]
fn memory_that_grows_until_the_end_comes_first() {
    let findings = findings(&service(0));
    let finding = &findings[0];
    assert_eq!(finding.rule, "unbounded");
    let evidence = [
        "live bytes of the process grew from 9.00 MiB to 89.0 MiB in 1 min 20 s, at a similar rate \
         until the end; all of the growth up to the peak is held by blocks of this function",
        "100,000 of the 100,000 blocks that it allocated are live at peak; freed only at the end",
    ];
    assert_eq!(finding.evidence, evidence);
}

#[test]
fn growth_of_a_job_is_no_growth_of_a_service() {
    let has = |process: &Process| named(&findings(process), "unbounded").is_some();
    assert!(has(&service(0)));
    let mut short = service(0);
    short.lifetime.duration_ns /= 20;
    short.time.samples.iter_mut().for_each(|sample| sample.time_ns /= 20);
    assert!(!has(&short), "a short run may end with its result");
    let mut attached = service(0);
    attached.completeness.unmatched_frees = 50_000;
    assert!(!has(&attached), "new blocks take the place of those that it had before");
    let mut used = service(0);
    used.lifetime.duration_ns *= 2;
    assert!(!has(&used), "the data is used after it was built");
    let mut freed = service(0);
    freed.tables.sites[0].measures.at_peak_blocks /= 2;
    freed.tables.sites[0].measures.at_peak_bytes /= 2;
    assert!(!has(&freed), "half of the blocks had been freed");
    let mut spread = service(0);
    let half = spread.tables.sites[0].measures;
    spread.tables.sites[0].measures.at_peak_bytes = half.at_peak_bytes / 2;
    spread.tables.sites[0].measures.usable_bytes = half.usable_bytes / 2;
    assert!(!has(&spread), "half of it has other owners");
}
