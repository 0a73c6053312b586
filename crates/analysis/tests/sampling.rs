//! Sampled processes: estimates of sites add up to the exact counters of threads.

use heaptide_analysis::model::{Measure, Measures, Process, Recording, Site, Sum};
use heaptide_analysis::recording::join::Apart;
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format as format;
use heaptide_format::{Mode, size_class};

/// Mean of allocated bytes per sampled block.
const MEAN: u64 = 1000;

/// Number and size of blocks.
type Blocks = (u64, u64);

/// Returns an exited process whose thread counted these blocks as allocated and freed. Each of the
/// functions `0`, `1`, … has the sampled blocks of the list, some of which were freed.
fn process(allocated: &[Blocks], freed: &[Blocks], sampled: &[(Blocks, u64)]) -> Process {
    process_with(MEAN, allocated, freed, sampled)
}

fn process_with(
    mean: u64,
    allocated: &[Blocks],
    freed: &[Blocks],
    sampled: &[(Blocks, u64)],
) -> Process {
    let mut p = ProfileBuilder::new(Mode::Sampled, 12, 0);
    p.program("/bin/app", &["app"]).exited();
    (p.header.sample_mean_bytes, p.header.lanes_at_once) = (mean, 1);
    let module = p.module("/bin/app", 0, &[7]);
    count(&mut p, allocated, freed);
    for (&((blocks, bytes), freed), number) in sampled.iter().zip(1..) {
        let stack = p.node(0, module, 0x100 * number, 0);
        let counters = format::Site {
            frees: freed,
            freed_bytes: freed * bytes,
            peak_blocks: blocks - freed,
            peak_bytes: (blocks - freed) * bytes,
            epoch: 1,
            ..site(stack, blocks, bytes)
        };
        p.site(0, counters);
    }
    let of = |all: &[Blocks]| all.iter().map(|(blocks, bytes)| blocks * bytes).sum::<u64>();
    p.header.peak_bytes = of(allocated).saturating_sub(of(freed));
    Process::from_bytes(&p.finish(), "12-0.profile".as_ref()).expect("a profile")
}

/// Adds the only thread, which counted these blocks.
fn count(p: &mut ProfileBuilder, allocated: &[Blocks], freed: &[Blocks]) {
    p.lane(0, "app", |lane| {
        for &(blocks, bytes) in allocated {
            lane.requested_classes[size_class(bytes - 2)] += blocks;
            lane.usable_classes[size_class(bytes)] += blocks;
            lane.requested_bytes += blocks * (bytes - 2);
            lane.usable_bytes += blocks * bytes;
        }
        for &(blocks, bytes) in freed {
            lane.freed_classes[size_class(bytes)] += blocks;
            lane.freed_here_bytes += blocks * bytes;
        }
    });
}

/// Checks that sites add up to the totals.
fn assert_sums(p: &Process) {
    let sum = Sum::over(&p.tables.sites);
    assert_eq!(sum, Measures { peak_bytes: 0, spread: sum.spread, ..p.totals });
    for site in &p.tables.sites {
        let m = &site.measures;
        assert_eq!(m.allocations, m.live_blocks + m.frees, "{m:?}");
        assert_eq!(m.usable_bytes, m.live_bytes + m.freed_bytes, "{m:?}");
        assert!(m.temporary <= m.frees && m.requested_bytes <= m.usable_bytes, "{m:?}");
    }
}

/// Returns the sites with a stack, and the row of bytes that were not sampled.
fn rows(p: &Process) -> (Vec<&Site>, Option<&Site>) {
    let is_unseen = |site: &&Site| {
        p.path_of(site.stack).into_iter().any(|frame| p.label(frame) == "[not sampled]")
    };
    let with_stack = p.tables.sites.iter().filter(|site| site.stack.0 != 0);
    let (unseen, sites) = with_stack.partition::<Vec<&Site>, _>(is_unseen);
    (sites, unseen.first().copied())
}

fn is_near(estimate: u64, expected: f64) -> bool {
    (estimate as f64 - expected).abs() <= 1.0
}

#[test]
fn estimates_add_up_to_what_threads_counted() {
    let all = [(200, 100), (5, 10_000)];
    let p = process(&all, &[(50, 100)], &[((20, 100), 5), ((5, 10_000), 0)]);
    assert_sums(&p);
    let t = &p.totals;
    assert_eq!((t.allocations, t.usable_bytes, t.requested_bytes), (205, 70_000, 69_590));
    assert_eq!((t.live_blocks, t.live_bytes, t.frees, t.freed_bytes), (155, 65_000, 50, 5_000));
    assert_eq!((t.peak_bytes, t.at_peak_bytes), (65_000, 65_000));
    let (sites, unseen) = rows(&p);
    assert!(unseen.is_none());
    // Large blocks are almost always sampled, so nearly all of the difference goes to the small
    // ones.
    let [small, large] = [&sites[0].measures, &sites[1].measures];
    assert!(is_near(large.live_bytes, 50_001.2), "{}", large.live_bytes);
    assert!(is_near(small.live_bytes, 14_998.8), "{}", small.live_bytes);
    assert_eq!(small.freed_bytes, 5_000);
    assert_eq!((p.mode_name(), p.sampling.map(|s| s.blocks)), ("sampled", Some(25)));
}

#[test]
fn what_is_certain_has_a_narrow_interval_and_the_rest_a_wide_one() {
    let p = process(&[(200, 100), (5, 10_000)], &[], &[((20, 100), 0), ((5, 10_000), 0)]);
    let (sites, _) = rows(&p);
    let interval = |row: &Site| p.interval(Measure::LiveBytes, &row.measures).expect("limits");
    let [small, large] = [interval(sites[0]), interval(sites[1])];
    assert!(small.contains(20_000) && large.contains(50_000), "{small:?} {large:?}");
    // All twenty sampled blocks are those of this row, which is unlikely if its share is below 83
    // %.
    assert!((16_000..17_000).contains(&small.low), "{small:?}");
    assert!(large.high - large.low < 8_000, "{large:?}");
    let whole = p.interval(Measure::UsableBytes, &p.totals).expect("limits");
    assert!(whole.contains(70_000));
}

#[test]
fn blocks_that_no_sampled_one_stands_for_have_a_row() {
    let p = process(&[(100_000, 16), (5, 10_000)], &[(60_000, 16)], &[((5, 10_000), 0)]);
    assert_sums(&p);
    let (sites, unseen) = rows(&p);
    let unseen = unseen.expect("a row").measures;
    assert!(sites[0].measures.usable_bytes.abs_diff(50_000) < 1000);
    assert!(unseen.usable_bytes.abs_diff(1_600_000) < 1000, "{}", unseen.usable_bytes);
    assert_eq!((unseen.frees, unseen.freed_bytes), (60_000, 960_000));
    let none = process(&[(3, 16)], &[(3, 16)], &[]);
    assert_sums(&none);
    assert_eq!((none.totals.allocations, none.totals.frees), (3, 3));
}

#[test]
fn sampled_blocks_disprove_frees_of_blocks_from_before_a_fork() {
    // All 158 blocks allocated here are live; the 100 frees are those of other blocks.
    let p = process(&[(158, 1000)], &[(100, 1000)], &[((100, 1000), 0)]);
    assert_sums(&p);
    let t = &p.totals;
    assert_eq!((t.allocations, t.frees, t.live_blocks, t.live_bytes), (158, 0, 158, 158_000));
    assert_eq!((p.completeness.unmatched_frees, t.frees_here), (100, 0));
    assert_eq!(t.peak_bytes, t.live_bytes);
}

#[test]
fn sampled_blocks_disprove_that_blocks_freed_while_off_are_live() {
    let p = process(&[(158, 1000)], &[], &[((100, 1000), 100)]);
    assert_sums(&p);
    let t = &p.totals;
    assert_eq!((t.allocations, t.frees, t.live_blocks, t.live_bytes), (158, 158, 0, 0));
    assert_eq!((p.completeness.unmatched_frees, t.frees_here), (0, 158));
}

/// A sampled function, all of whose blocks have `bytes`: of `blocks`, `labelled` were moved to a
/// label, and of either part some were freed.
struct Labelled {
    bytes: u64,
    blocks: u64,
    labelled: u64,
    freed: u64,
    labelled_freed: u64,
}

/// Returns a process whose thread counted these blocks. Labels moved blocks of the functions.
fn labelled_process(allocated: &[Blocks], freed: &[Blocks], functions: &[Labelled]) -> Process {
    let mut p = ProfileBuilder::new(Mode::Sampled, 12, 0);
    p.program("/bin/app", &["app"]).exited();
    (p.header.sample_mean_bytes, p.header.lanes_at_once) = (MEAN, 1);
    let module = p.module("/bin/app", 0, &[7]);
    count(&mut p, allocated, freed);
    let label = p.name("label", "rows");
    for (of, number) in functions.iter().zip(1..) {
        let stack = p.node(0, module, 0x100 * number, 0);
        let gone = of.labelled + of.freed;
        let (frees, freed_bytes) = (gone, gone * of.bytes);
        p.site(0, format::Site { frees, freed_bytes, ..site(stack, of.blocks, of.bytes) });
        let key = p.key(0, |key| {
            (key.stack, key.label) = (stack, label);
            key.moved_blocks = of.labelled;
            (key.moved_bytes, key.moved_requested_bytes) =
                (of.labelled * of.bytes, of.labelled * (of.bytes - 2));
        });
        let (frees, freed_bytes) = (of.labelled_freed, of.labelled_freed * of.bytes);
        p.site(0, format::Site { frees, freed_bytes, ..site(key, of.labelled, of.bytes) });
    }
    Process::from_bytes(&p.finish(), "12-0.profile".as_ref()).expect("a profile")
}

/// The estimated blocks of a label and of its origin are calibrated apart, but a moved block counts
/// once.
#[test]
fn labels_leave_totals_exact() {
    let every = |labelled, labelled_freed| Labelled {
        bytes: 100,
        blocks: 20,
        labelled,
        freed: 20 - labelled,
        labelled_freed,
    };
    for (name, functions) in [
        ("all freed", vec![every(9, 9), every(3, 3)]),
        ("labels live", vec![every(9, 0), every(3, 1)]),
        ("all labelled", vec![every(20, 20), every(20, 20)]),
        ("all labelled and live", vec![every(20, 0), every(20, 0)]),
        ("large blocks", vec![Labelled { bytes: 90_000, ..every(5, 4) }, every(7, 2)]),
        ("none sampled", vec![]),
    ] {
        let small = functions.iter().filter(|of| of.bytes == 100);
        let live: u64 = small.map(|of| of.labelled - of.labelled_freed).sum();
        for percent in [70, 95, 100, 105, 140] {
            let large = functions.iter().any(|of| of.bytes > 100);
            let mut all = vec![(4 * percent, 100)];
            all.extend(large.then_some((20, 90_000)));
            let mut freed = vec![(4 * percent - live * percent / 10, 100)];
            freed.extend(large.then_some((19, 90_000)));
            let p = labelled_process(&all, &freed, &functions);
            let of = |all: &[Blocks], less: u64| {
                all.iter().map(|(n, bytes)| n * (bytes - less)).sum::<u64>()
            };
            let t = &p.totals;
            let what = format!("{name}, {percent} %");
            assert_eq!((t.usable_bytes, t.requested_bytes), (of(&all, 0), of(&all, 2)), "{what}");
            assert_eq!(t.allocations, all.iter().map(|of| of.0).sum::<u64>(), "{what}");
            assert_eq!((t.freed_bytes, t.live_bytes), (of(&freed, 0), of(&all, 0) - of(&freed, 0)));
            let sum = Sum::over(&p.tables.sites);
            assert_eq!(sum, Measures { peak_bytes: 0, spread: sum.spread, ..p.totals }, "{what}");
            let lanes = &p.tables.lanes[0].measures;
            assert_eq!(lanes.requested_bytes, t.requested_bytes, "{what}");
            for site in &p.tables.sites {
                let m = &site.measures;
                assert!(m.requested_bytes <= m.usable_bytes, "{what}: {m:?}");
                assert!(site.moved.usable_bytes <= m.usable_bytes, "{what}: {site:?}");
                assert!(site.moved.blocks <= m.allocations, "{what}: {site:?}");
            }
        }
    }
}

/// Four standard errors are not sufficient, because such errors occur.
#[test]
fn exact_totals_stand_where_there_is_a_doubt() {
    let p = process(&[(250, 1000)], &[(130, 1000)], &[((158, 1000), 60)]);
    assert_sums(&p);
    assert_eq!((p.totals.live_bytes, p.totals.frees), (120_000, 130));
    assert_eq!(p.completeness.unmatched_frees, 0);
}

#[test]
fn joined_processes_have_limits_in_the_units_of_the_larger_mean() {
    let one = process(&[(200, 100)], &[], &[((20, 100), 0)]);
    let other = process_with(2 * MEAN, &[(200, 100)], &[], &[((10, 100), 0)]);
    let processes = vec![one, other];
    let mut recording = Recording { processes, ..Recording::default() };
    recording.join(Apart::Nowhere);
    let p = recording.processes.pop().expect("one");
    assert_sums(&p);
    let sampling = p.sampling.expect("sampled");
    assert_eq!((sampling.mean_bytes, sampling.blocks), (2 * MEAN, 30));
    // A sampled block of the first represents 1000 bytes, of the second 2000: in units of 2000
    // bytes the first counts as a quarter.
    let effective = p.totals.spread.live;
    assert!((effective - (20.0 / 4.0 + 10.0)).abs() < 0.05, "{effective}");
    assert_eq!(p.totals.live_bytes, 40_000);
}
