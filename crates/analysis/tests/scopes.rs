//! Scopes, labels, pools, windows and marks of profiles with known numbers.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{MarkKind, Measure, Measures, Process, ScopeId, SiteKind, Sum};
use heaptide_analysis::views::aggregate::{GroupBy, Key, group};
use heaptide_analysis::views::scopes;
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format as format;
use zerocopy::{FromZeros, IntoBytes};

fn read(profile: &ProfileBuilder) -> Process {
    let process = Process::from_bytes(&profile.finish(), "12-0.profile".as_ref()).unwrap();
    check_sums(&process);
    process
}

/// Checks that lanes, scopes and sites add up to the totals.
fn check_sums(process: &Process) {
    let whole = Measures { peak_bytes: 0, ..process.totals };
    assert_eq!(Sum::over(&process.tables.sites), whole, "sites");
    let add = |rows: Vec<Measures>| {
        let mut sum = Measures::default();
        rows.iter().for_each(|row| sum.add(row));
        sum
    };
    assert_eq!(
        add(process.tables.lanes.iter().map(|lane| lane.measures).collect()),
        whole,
        "lanes"
    );
    let by_scope = scopes::sums(process, None);
    assert_eq!(add(by_scope.iter().map(|sums| sums.own).collect()), whole, "scopes");
    assert_eq!(by_scope[0].inclusive, whole, "all scopes");
}

fn path(process: &Process, scope: ScopeId) -> String {
    let path = process.scope_path(scope).into_iter();
    path.map(|s| format!("{}={}", s.attribute, s.value)).collect::<Vec<_>>().join(" ")
}

/// `main` on two lanes, `step=-7` inside it on the first, `main` again inside that.
fn two_lanes() -> ProfileBuilder {
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    let main = p.name("region", "main");
    let step = p.name_int("step", -7);
    for lane in 0..2 {
        let root = p.scope(lane, 0, 0, |s| (s.frees_here, s.freed_here_bytes) = (1, 10));
        let outer = p.scope(lane, root, main, |s| {
            (s.entered, s.frees_here, s.freed_here_bytes) = (3, 2, 20);
        });
        let key = p.key(lane, |key| key.scope = outer);
        p.site(lane, site(key, 4, 32));
        let inner = p.scope(lane, outer, step, |s| s.entered = 5);
        let key = p.key(lane, |key| key.scope = inner);
        p.site(lane, site(key, 1, 100));
        if lane == 0 {
            let again = p.scope(lane, inner, main, |s| s.entered = 11);
            let key = p.key(lane, |key| key.scope = again);
            p.site(lane, site(key, 1, 1000));
        }
        p.lane(lane, if lane == 0 { "app" } else { "worker" }, |lane| {
            lane.requested_classes[5] = 6;
            lane.freed_classes[4] = 5;
        });
    }
    p.exited();
    p
}

#[test]
fn scopes_are_merged_over_lanes_with_both_ledgers() {
    let process = read(&two_lanes());
    let paths: Vec<_> =
        (0..process.tables.scopes.len() as u32).map(|i| path(&process, ScopeId(i))).collect();
    let inner = "region=main step=-7";
    assert_eq!(paths, ["", "region=main", inner, "region=main step=-7 region=main"]);
    let entered: Vec<_> = process.tables.scopes.iter().map(|s| s.entered).collect();
    assert_eq!(entered, [0, 6, 10, 11]);
    let sums = scopes::sums(&process, None);
    let live: Vec<_> = sums.iter().map(|s| (s.own.live_bytes, s.inclusive.live_bytes)).collect();
    assert_eq!(live, [(0, 1456), (256, 1456), (200, 1200), (1000, 1000)]);
    let freed: Vec<_> = sums.iter().map(|s| (s.own.frees_here, s.own.freed_here_bytes)).collect();
    assert_eq!(freed, [(6, 20), (4, 40), (0, 0), (0, 0)], "two that no scope had are in none");
    let worker = scopes::sums(&process, Some(heaptide_analysis::model::LaneId(1)));
    assert_eq!((worker[0].inclusive.live_bytes, worker[1].own.frees_here), (228, 2));
    let lanes: Vec<_> = process.tables.lanes.iter().map(|l| l.measures.frees_here).collect();
    assert_eq!(lanes, [5, 5], "the sum of the classes");
    assert_eq!(process.totals.allocations, 11);
}

#[test]
fn recursion_is_folded() {
    let mut process = read(&two_lanes());
    process.fold_scopes();
    check_sums(&process);
    let entered: Vec<_> = process.tables.scopes.iter().map(|s| (&*s.value, s.entered)).collect();
    assert_eq!(entered, [("", 0), ("main", 17), ("-7", 10)]);
    let live: Vec<_> = scopes::sums(&process, None).iter().map(|s| s.own.live_bytes).collect();
    assert_eq!(live, [0, 1256, 200]);
    let of_worker =
        process.tables.entered.iter().filter(|e| e.lane.0 == 1 && e.scope == ScopeId(1));
    assert_eq!(of_worker.map(|e| e.times).sum::<u64>(), 3);
}

#[test]
fn the_same_name_at_two_paths_is_two_scopes_and_equal_texts_are_one() {
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    let root = p.scope(0, 0, 0, |_| {});
    let names =
        [p.name("region", "dummy1"), p.name("region", "dummy10"), p.name("region", "dummy1")];
    let first = p.scope(0, root, names[0], |s| s.entered = 1);
    p.scope(0, root, names[1], |s| s.entered = 2);
    p.scope(0, root, names[2], |s| s.entered = 4);
    p.scope(0, first, names[0], |s| s.entered = 8);
    p.scope(0, first, 77, |s| s.entered = 16); // its name was lost
    let process = read(&p);
    let rows: Vec<_> =
        process.tables.scopes.iter().map(|s| (&*s.value, s.parent.0, s.entered)).collect();
    let lost = ("[name lost]", 1, 16);
    assert_eq!(rows, [("", 0, 0), ("dummy1", 0, 5), ("dummy10", 0, 2), ("dummy1", 1, 8), lost]);
}

#[test]
fn a_labelled_block_is_one_block() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let app = p.module("/nowhere/app", 0x1000_0000, &[1]);
    let node = p.node(0, app, 0x1000_0010, 0);
    let label = p.name("label", "matrix");
    // Three blocks of 48 bytes; the second lane labels two of them, of which one is freed.
    let mut plain = site(node, 3, 48);
    (plain.remote_frees, plain.remote_freed_bytes) = (2, 96);
    p.site(0, plain);
    let key = p.key(1, |key| {
        (key.stack, key.label, key.lane) = (node, label, 0);
        (key.moved_blocks, key.moved_bytes, key.moved_requested_bytes) = (2, 96, 80);
    });
    let mut named = site(key, 2, 48);
    (named.requested_bytes, named.largest_bytes) = (80, 400);
    (named.remote_frees, named.remote_freed_bytes) = (1, 48);
    p.site(1, named);
    p.lane(0, "app", |lane| (lane.requested_classes[6], lane.freed_classes[6]) = (3, 1));
    p.lane(1, "other", |_| {});
    let process = read(&p);
    let t = &process.totals;
    assert_eq!((t.allocations, t.frees, t.live_blocks), (3, 1, 2));
    assert_eq!((t.requested_bytes, t.usable_bytes, t.freed_bytes), (3 * 46, 144, 48));
    assert_eq!((t.live_bytes, t.largest_bytes), (96, 46), "what a label says is no request");
    assert_eq!(process.tables.lanes[0].measures.allocations, 3, "they are the first lane's");
    assert_eq!(process.tables.labels.len(), 1);
    let groups = group(&process, &Owners::of(&process), GroupBy::Label);
    let rows: Vec<_> =
        groups.iter().map(|g| (g.key, g.own.allocations, g.own.frees, g.own.live_bytes)).collect();
    let label = process.tables.sites.iter().find_map(|s| s.label);
    let none = Key::Label(None, SiteKind::Heap);
    assert_eq!(rows, [(none, 3, 2, 48), (Key::Label(label, SiteKind::Heap), 2, 1, 48)]);
    let stacks = group(&process, &Owners::of(&process), GroupBy::Stack);
    let with_stack = stacks.iter().find(|g| g.key != Key::Stack(Default::default())).unwrap();
    assert_eq!((with_stack.own.allocations, with_stack.own.frees), (3, 1));
}

#[test]
fn a_label_taken_away_leaves_no_trace() {
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    let label = p.name("label", "short");
    // One block, labelled by its own lane and unlabelled again, which subtracts a free.
    let mut plain = site(0, 1, 64);
    (plain.frees, plain.freed_bytes) = (1, 64);
    (plain.remote_frees, plain.remote_freed_bytes) = (u64::MAX, 64u64.wrapping_neg());
    p.site(0, plain);
    let key = p.key(0, |key| {
        key.label = label;
        (key.moved_blocks, key.moved_bytes, key.moved_requested_bytes) = (1, 64, 62);
    });
    let mut named = site(key, 1, 64);
    (named.frees, named.freed_bytes) = (1, 64);
    p.site(0, named);
    let t = read(&p).totals;
    assert_eq!((t.allocations, t.frees, t.live_blocks, t.live_bytes), (1, 0, 1, 64));
    assert_eq!((t.at_peak_bytes, t.cross_thread_frees), (64, 0));
}

#[test]
fn pool_space_is_counted_once() {
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    let pool = p.name("pool", "arena");
    // A heap block of 4096 is a chunk; two slices of 1000 are in use, one of three was returned.
    let mut plain = site(0, 1, 4096);
    (plain.frees, plain.freed_bytes) = (1, 4096);
    p.site(0, plain);
    let key = p.key(0, |key| {
        (key.label, key.flags) = (pool, format::KEY_POOL_CHUNK);
        (key.moved_blocks, key.moved_bytes, key.moved_requested_bytes) = (1, 4096, 4094);
        key.lent_bytes = 2000;
    });
    let mut chunk = site(key, 1, 4096);
    chunk.remote_freed_bytes = 2000;
    p.site(0, chunk);
    let key = p.key(0, |key| (key.label, key.flags) = (pool, format::KEY_POOL_BLOCK));
    let mut blocks = site(key, 3, 1000);
    (blocks.frees, blocks.freed_bytes) = (1, 1000);
    p.site(0, blocks);
    p.lane(0, "app", |lane| lane.requested_classes[12] = 1);
    let process = read(&p);
    let t = &process.totals;
    assert_eq!((t.allocations, t.frees, t.live_blocks), (1, 0, 1));
    assert_eq!((t.usable_bytes, t.freed_bytes, t.live_bytes), (4096, 0, 4096));
    assert_eq!((t.at_peak_bytes, t.largest_bytes), (4096, 4094));
    let of = |kind| process.tables.sites.iter().find(|s| s.kind == kind).unwrap();
    let chunk = of(SiteKind::PoolChunk);
    assert_eq!((chunk.measures.live_bytes, chunk.lent_bytes), (2096, 2000), "idle and in use");
    assert_eq!(chunk.measures.freed_bytes, 0, "lent is not freed");
    let blocks = of(SiteKind::PoolBlock);
    assert_eq!((blocks.measures.live_blocks, blocks.measures.live_bytes), (2, 2000));
    assert!(process.tables.labels.iter().all(|label| label.pool && &*label.name == "arena"));
}

#[test]
fn memory_that_is_not_from_the_allocator_is_in_no_total() {
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    let table = p.name("label", "table");
    let pool = p.name("pool", "mapped");
    p.site(0, site(0, 1, 32));
    let flags = [
        (table, format::KEY_OUTSIDE),
        (pool, format::KEY_OUTSIDE | format::KEY_POOL_CHUNK),
        (pool, format::KEY_OUTSIDE | format::KEY_POOL_BLOCK),
    ];
    for (label, flags) in flags {
        let key = p.key(0, |key| (key.label, key.flags) = (label, flags));
        p.site(0, site(key, 1, 1 << 20));
    }
    let process = read(&p);
    assert_eq!((process.totals.allocations, process.totals.live_bytes), (1, 32));
    assert_eq!((process.totals.largest_bytes, process.totals.at_peak_bytes), (30, 32));
    let kinds: Vec<_> = process.tables.sites.iter().map(|s| s.kind.name()).collect();
    assert_eq!(kinds, ["heap", "outside", "outside_pool_chunk", "outside_pool_block"]);
    let groups = group(&process, &Owners::of(&process), GroupBy::Label);
    assert_eq!(groups.len(), 4, "but it has a row by label");
}

#[test]
fn windows_are_differences_and_an_open_one_goes_on_to_now() {
    let sums = |n: u64| format::Sums {
        allocations: 10 * n,
        frees: 4 * n,
        reallocations: n,
        failed: 0,
        requested_bytes: 100 * n,
        usable_bytes: 120 * n,
        freed_bytes: 50 * n,
    };
    let mut p = ProfileBuilder::new(format::Mode::Scopes, 12, 0);
    p.window("late", |w| (w.begin_time_ns, w.open, w.begin) = (9, 1, sums(1)));
    p.window("shrinks", |w| {
        (w.begin_time_ns, w.end_time_ns) = (5, 8);
        (w.begin, w.end) = (sums(2), sums(3));
        w.end.freed_bytes = 1000;
        (w.peak_bytes, w.peak_bound_bytes) = (700, 64);
    });
    let mut s = site(0, 1, 300);
    (s.frees, s.freed_bytes) = (1, 90);
    p.site(0, s);
    p.lane(0, "app", |lane| {
        (lane.requested_classes[3], lane.freed_classes[3]) = (12, 6);
        (lane.requested_bytes, lane.usable_bytes, lane.reallocations) = (250, 300, 3);
    });
    let process = read(&p);
    let [first, second] = process.time.windows.as_slice() else { panic!("two windows") };
    assert_eq!((&*first.name, first.open, first.end_time_ns), ("shrinks", false, 8));
    assert_eq!((first.allocations, first.frees, first.requested_bytes), (10, 4, 100));
    assert_eq!((first.live_blocks, first.live_bytes), (6, 120 - 900));
    assert_eq!((first.peak_bytes, first.peak_bound_bytes), (700, 64));
    assert_eq!((&*second.name, second.open, second.end_time_ns), ("late", true, 0));
    assert_eq!((second.allocations, second.frees, second.reallocations), (2, 2, 2));
    assert_eq!((second.requested_bytes, second.live_blocks), (150, 0));
    assert_eq!(second.live_bytes, (300 - 90) - (120 - 50));
}

#[test]
fn marks_come_in_order_of_time() {
    let mut p = ProfileBuilder::new(format::Mode::Counters, 12, 0);
    p.lane(3, "worker", |_| {});
    let name = p.string("loaded");
    let mark = |time_ns, name, kind, lane, number| format::Mark {
        time_ns,
        name,
        kind,
        lane,
        number,
        live_bytes: 77,
    };
    p.mark(mark(9, name, 2, u32::MAX, 4));
    p.mark(mark(5, name, 1, 3, 0));
    p.mark(mark(7, 0, 99, 3, 0)); // of an unknown kind
    let process = read(&p);
    let rows: Vec<_> =
        process.time.marks.iter().map(|m| (m.time_ns, &*m.name, m.kind, m.number)).collect();
    assert_eq!(rows, [(5, "loaded", MarkKind::Mark, 0), (9, "loaded", MarkKind::Snapshot, 4)]);
    assert_eq!(
        process.time.marks.iter().map(|m| m.lane.is_some()).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn the_first_scope_ended_out_of_turn_is_named() {
    let mut p = two_lanes();
    let name = p.name("region", "b");
    let root = p.scope(0, 0, 0, |_| {});
    p.header.mismatch_open = p.scope(0, root, name, |_| {});
    p.header.mismatch_end = p.string("a");
    p.header.losses[format::Loss::ScopeMismatch as usize] = 3;
    let note = "scope `a` was ended while `b` was open; 3 such ends were repaired";
    assert_eq!(read(&p).completeness.notes, [note]);
    p.header.mismatch_open = 0;
    p.header.losses[format::Loss::ScopeMismatch as usize] = 1;
    let note = "scope `a` was ended while no scope was open; 1 such end was repaired";
    assert_eq!(read(&p).completeness.notes, [note]);
}

#[test]
fn circles_and_ids_out_of_range_are_cut() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let name = p.name("region", "a");
    let first = p.scope(0, 0, name, |_| {});
    // The id of the next record is one more; each is the other's parent.
    let second = p.scope(0, first + 2, name, |s| s.entered = 1);
    let third = p.scope(0, second, name, |s| s.entered = 1);
    assert_eq!(third, first + 2);
    for (stack, scope, label) in [(0, second, 0), (u32::MAX, u32::MAX, u32::MAX), (0, 0, third)] {
        let key = p.key(5, |key| {
            (key.stack, key.scope, key.label, key.lane) = (stack, scope, label, u32::MAX);
            (key.moved_blocks, key.lent_bytes) = (u64::MAX, u64::MAX);
        });
        p.site(0, site(key, 1, 8));
    }
    p.site(0, site(u32::MAX, 1, 8));
    let mut process = Process::from_bytes(&p.finish(), "12-0.profile".as_ref()).unwrap();
    assert_eq!(process.tables.sites.len(), 4);
    assert!(process.tables.scopes.iter().zip(0..).skip(1).all(|(s, i)| s.parent.0 < i));
    process.fold_scopes();
    for &by in GroupBy::all() {
        group(&process, &Owners::of(&process), by);
    }
    assert!(Measure::Allocations.of(&process.totals) <= 4);
}

#[test]
fn version_1_has_stacks_and_nothing_else() {
    let mut p = two_lanes();
    p.header.version = 1;
    let process = read(&p);
    assert_eq!(
        process.tables.sites.iter().filter(|s| s.scope != ScopeId(0)).count(),
        2,
        "frees only"
    );
}

/// Shapes of labels of sites, without duplicates; invalid ones are skipped.
#[test]
fn shapes_of_labels() {
    let mut p = two_lanes();
    let grid = p.name("label", "grid");
    let key = p.key(0, |key| key.label = grid);
    p.site(0, site(key, 1, 32));
    p.shape(grid, 8, &[3, 4]);
    p.shape(grid, 8, &[12]);
    p.shape(grid, 8, &[3, 4]);
    for wrong in [p.name("label", "no site"), grid + 100, u32::MAX, 0] {
        p.shape(wrong, 8, &[1]);
    }
    p.shape(grid, 8, &[]);
    let mut record = format::Shape::new_zeroed();
    (record.label, record.dimension_count) = (grid, 5);
    p.record(format::Kind::Shapes, 0, record.as_bytes());
    let process = read(&p);
    let shapes = &process.shapes_by_label()[0];
    let shapes: Vec<_> = shapes.iter().map(|s| (s.dims(), s.labelled)).collect();
    assert_eq!(shapes, [("3x4".to_owned(), 2), ("12".to_owned(), 1)]);
    assert_eq!(process.tables.shapes.len(), 2);
}
