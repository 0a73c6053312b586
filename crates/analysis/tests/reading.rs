//! Reads profiles with known numbers.

use heaptide_analysis::Error;
use heaptide_analysis::model::{
    CodeKind, Combine, Frame, LaneId, Loss, Measure, Measures, Mode, Process, Recording, Site,
    SizeClass,
};
use heaptide_analysis::profile::reader;
use heaptide_analysis::views::aggregate;
use heaptide_fixtures::{NO_NODE, ProfileBuilder, Scratch, site};
use heaptide_format as format;
use zerocopy::FromZeros;

const BASE: u64 = 0x7f00_0000_0000;

fn open(name: &str, profile: &ProfileBuilder) -> Process {
    let scratch = Scratch::new(name);
    let file = scratch.write("12-0.profile", &profile.finish());
    let mut recording = Recording::open(&file).unwrap();
    assert_eq!(recording.damaged, []);
    recording.processes.remove(0)
}

/// Checks that sums over sites equal the totals.
fn check_sums(process: &Process) {
    for measure in Measure::all().iter().filter(|&&m| m != Measure::PeakBytes) {
        let combine = measure.combine();
        let values = process.tables.sites.iter().map(|site| measure.of(&site.measures));
        let sum = values.fold(0, |a, b| combine.of(a, b));
        assert_eq!(sum, measure.of(&process.totals), "{measure} over sites");
        let lanes = process.tables.lanes.iter().map(|lane| measure.of(&lane.measures));
        assert_eq!(lanes.fold(0, |a, b| combine.of(a, b)), sum, "{measure} over lanes");
    }
}

/// Two lanes: main → work → two allocating places. In version 1, where lanes still had counters.
fn two_lanes() -> ProfileBuilder {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    p.header.version = 1;
    p.program("/bin/app", &["app", "", "a b"]);
    p.header.peak_bytes = 1000;
    p.header.peak_time_ns = 7;
    p.header.losses[format::Loss::TooDeep as usize] = 3;
    let app = p.module("/nowhere/app", BASE, &[1, 2, 3]);
    let main = p.node(0, app, BASE + 0x101, 0);
    let work = p.node(0, app, BASE + 0x201, main);
    let left = p.node(0, app, BASE + 0x301, work);
    let right = p.node(1, app, BASE + 0x401, work);
    p.site(0, site(0, 0, 2)); // lane 0's own row without a stack
    p.site(0, site(left, 4, 32));
    p.site(1, site(right, 2, 64));
    p.lane(0, "app", |lane| {
        lane.frees_here = 5;
        lane.freed_here_bytes = 50;
        lane.requested_classes[5] = 4;
        lane.usable_classes[6] = 4;
    });
    p.lane(1, "worker", |lane| {
        lane.frees_here = 1;
        lane.freed_here_bytes = 9;
        lane.usable_classes[6] = 1;
    });
    p
}

#[test]
fn every_field_is_read() {
    let process = open("fields", &two_lanes());
    assert_eq!(
        (process.identity.pid, process.identity.image, process.identity.program.as_str()),
        (12, 0, "/bin/app")
    );
    assert_eq!(process.identity.command, ["app", "", "a b"]);
    assert_eq!((process.identity.host.as_str(), process.mode), ("host", Mode::Stacks));
    assert_eq!((process.totals.peak_bytes, process.peak_time_ns), (1000, 7));
    let too_deep = Loss { name: "too_deep", meaning: format::LOSS_NAMES[4].1, count: 3 };
    assert_eq!(process.completeness.losses, [too_deep]);
    let totals = Measures {
        allocations: 6,
        requested_bytes: 4 * 30 + 2 * 62,
        usable_bytes: 256,
        live_blocks: 6,
        live_bytes: 256,
        peak_bytes: 1000,
        at_peak_blocks: 6,
        at_peak_bytes: 256,
        largest_bytes: 62,
        frees_here: 6,
        freed_here_bytes: 59,
        ..Measures::default()
    };
    assert_eq!(process.totals, totals);
    let names: Vec<_> =
        process.tables.lanes.iter().map(|l| (l.name.as_str(), l.measures.frees_here)).collect();
    assert_eq!(names, [("app", 5), ("worker", 1)]);
    let class = |size_min, size_max, requested, usable| SizeClass {
        size_min,
        size_max,
        requested,
        usable,
        freed: 0,
    };
    assert_eq!(process.tables.histogram, [class(16, 31, 4, 0), class(32, 63, 0, 5)]);
    check_sums(&process);
}

#[test]
fn stacks_have_callers_first_and_call_addresses() {
    let process = open("stacks", &two_lanes());
    assert_eq!(process.tables.stacks.len(), 5);
    for (node, index) in process.tables.stacks.iter().zip(0u32..).skip(1) {
        assert!(node.parent.0 < index);
    }
    let site = process.tables.sites.iter().find(|site| site.measures.usable_bytes == 128).unwrap();
    let offsets = |site: &Site| -> Vec<u64> {
        process
            .path_of(site.stack)
            .iter()
            .map(|f| process.tables.frames[f.0 as usize].offset)
            .collect()
    };
    assert_eq!(offsets(site), [0x100, 0x200, 0x300]);
    let innermost = process.frames_of(site.stack).next().unwrap();
    assert_eq!(process.label(innermost), "app+0x300");
    let frame = &process.tables.frames[innermost.0 as usize];
    let module = frame.module;
    let expected = Frame {
        function: None,
        module,
        offset: 0x300,
        file: None,
        line: None,
        inlined: false,
        code: CodeKind::Native,
    };
    assert_eq!(*frame, expected);
    assert_eq!(process.tables.modules[module.unwrap().0 as usize].build_id, [1, 2, 3]);
}

#[test]
fn a_site_belongs_to_the_lane_of_its_extent() {
    let mut p = two_lanes();
    p.site(9, site(0, 1, 8)); // a lane whose own record was lost
    let process = open("lanes", &p);
    let lane = process.tables.sites.iter().find(|s| s.measures.usable_bytes == 8).unwrap().lane;
    assert_eq!((lane, process.tables.lanes[2].name.as_str()), (LaneId(2), "thread 9"));
    check_sums(&process);
}

#[test]
fn live_at_the_peak_comes_from_both_halves() {
    let mut s = site(0, 10, 100);
    s.frees = 1;
    s.freed_bytes = 100;
    s.remote_frees = 2;
    s.remote_freed_bytes = 200;
    (s.peak_blocks, s.peak_bytes) = (8, 800);
    (s.remote_peak_frees, s.remote_peak_freed_bytes) = (1, 100);
    let at_peak = |epoch, remote_epoch| {
        let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
        (p.header.epoch, p.header.peak_bytes) = (5, 700);
        p.site(0, format::Site { epoch, remote_epoch, ..s });
        p.lane(0, "app", |_| {});
        let process = open("peak", &p);
        check_sums(&process);
        let m = process.totals;
        assert_eq!((m.live_blocks, m.live_bytes, m.frees, m.cross_thread_frees), (7, 700, 3, 2));
        (m.at_peak_blocks, m.at_peak_bytes)
    };
    assert_eq!(at_peak(4, 4), (7, 700), "nothing changed since the peak");
    assert_eq!(at_peak(5, 4), (6, 600), "the owner's half was kept: 8 − 2");
    assert_eq!(at_peak(4, 5), (8, 800), "the remote half was kept: 9 − 1");
    assert_eq!(at_peak(5, 5), (7, 700), "both were kept: 8 − 1");
}

#[test]
fn counters_have_a_row_for_each_lane_and_exact_sums() {
    let mut p = ProfileBuilder::new(format::Mode::Counters, 12, 0);
    p.header.peak_bytes = 90;
    p.lane(0, "maker", |lane| {
        (lane.allocations, lane.usable_bytes, lane.requested_bytes) = (10, 100, 80);
        lane.largest_bytes = 20;
    });
    p.lane(1, "breaker", |lane| {
        (lane.allocations, lane.usable_bytes) = (1, 10);
        (lane.frees_here, lane.freed_here_bytes) = (7, 70);
    });
    p.header.version = 1;
    check_counters(&open("counters-1", &p));
    // Since version 2 the sums of the classes are the counts.
    let mut p = ProfileBuilder::new(format::Mode::Counters, 12, 0);
    p.header.peak_bytes = 90;
    p.lane(0, "maker", |lane| {
        (lane.requested_classes[3], lane.requested_classes[4]) = (9, 1);
        (lane.usable_bytes, lane.requested_bytes) = (100, 80);
        lane.largest_bytes = 20;
    });
    p.lane(1, "breaker", |lane| {
        (lane.requested_classes[4], lane.usable_bytes) = (1, 10);
        (lane.freed_classes[4], lane.freed_here_bytes) = (7, 70);
    });
    check_counters(&open("counters", &p));
}

fn check_counters(process: &Process) {
    assert_eq!(process.mode, Mode::Counters);
    let live: Vec<_> = process.tables.sites.iter().map(|s| s.measures.live_bytes).collect();
    assert_eq!(live, [40, 0], "the second freed 60 bytes of the first");
    let m = process.totals;
    assert_eq!((m.live_blocks, m.live_bytes, m.frees, m.frees_here), (4, 40, 7, 7));
    assert_eq!((m.peak_bytes, m.at_peak_bytes, m.largest_bytes), (90, 0, 20));
    check_sums(process);
}

#[test]
fn a_torn_last_record_does_not_exist() {
    let mut p = two_lanes();
    p.change_extent(format::Kind::Sites, 1, |head| head.committed -= 1);
    let process = open("torn", &p);
    assert_eq!(process.totals.allocations, 4);
    check_sums(&process);
}

#[test]
fn gaps_and_unknown_kinds_are_skipped() {
    let mut p = two_lanes();
    p.gap();
    p.foreign_extent();
    p.site(0, site(0, 1, 10));
    let process = open("gap", &p);
    assert_eq!(process.totals.allocations, 7);
    assert_eq!(process.completeness.notes[0], "4096 bytes were reserved but not in use yet");
    check_sums(&process);
}

#[test]
fn a_parent_may_come_later_in_the_file() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let app = p.module("/nowhere/app", BASE, &[]);
    let first = p.node(0, app, BASE + 0x11, 0);
    // a cycle of three, a parent beyond the file, and a child before its parent
    let key = u64::from(app) << format::ADDRESS_BITS | (BASE + 0x21);
    for parent in [first + 3, first + 1, first + 2, 0xffff_fff0, first + 6] {
        p.node_of(0, format::Node { key: key + u64::from(parent), parent, ..NO_NODE });
    }
    let late = p.node(0, app, BASE + 0x31, first);
    assert_eq!(late, first + 6);
    p.site(0, site(first + 5, 1, 8));
    p.site(0, site(first + 1, 1, 16));
    p.site(0, site(0xffff_ffff, 1, 24));
    p.lane(0, "app", |_| {});
    let process = open("circle", &p);
    for (node, index) in process.tables.stacks.iter().zip(0u32..).skip(1) {
        assert!(node.parent.0 < index);
    }
    let depth = |bytes| {
        let site = process.tables.sites.iter().find(|s| s.measures.usable_bytes == bytes).unwrap();
        process.frames_of(site.stack).count()
    };
    assert_eq!((depth(8), depth(24)), (3, 0));
    assert!(depth(16) <= 3, "the circle is cut");
    assert_eq!(process.totals.allocations, 3);
}

#[test]
fn marks_and_exact_addresses() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let app = p.module("/nowhere/app", BASE, &[]);
    let deep = p.node(0, 0, format::Gap::TooDeep as u64, 0);
    let key = u64::from(app) << format::ADDRESS_BITS | (BASE + 0x50);
    let flags = format::NODE_EXACT_PC;
    let signal = p.node_of(0, format::Node { key, parent: deep, flags, ..NO_NODE });
    let jit = p.node(0, 0, 0x1234_5679, signal);
    let cut = p.node(0, 0, format::Gap::NoRoom as u64, jit);
    p.site(0, site(cut, 1, 8));
    let process = open("marks", &p);
    let labels: Vec<_> = process
        .path_of(process.tables.sites[0].stack)
        .into_iter()
        .map(|f| process.label(f))
        .collect();
    assert_eq!(labels, ["[deeper frames cut]", "app+0x50", "0x12345678", "[frames not stored]"]);
}

#[test]
fn samples_are_in_order_of_time() {
    let mut p = two_lanes();
    for time_ns in [30, 10, 20] {
        p.sample(format::Sample { time_ns, ..format::Sample::new_zeroed() });
    }
    let times: Vec<_> = open("time", &p).time.samples.iter().map(|s| s.time_ns).collect();
    assert_eq!(times, [10, 20, 30]);
}

#[test]
fn numbers_stay_at_the_largest_they_can_hold() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let mut s = site(0, 1, 8);
    (s.allocations, s.usable_bytes, s.remote_frees, s.frees) =
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    p.site(0, s);
    p.site(0, s);
    p.lane(0, "app", |lane| lane.frees_here = u64::MAX);
    p.lane(0, "again", |lane| lane.frees_here = u64::MAX);
    let process = open("large", &p);
    assert_eq!((process.totals.allocations, process.totals.live_blocks), (u64::MAX, 0));
    check_sums(&process);
}

#[test]
fn measures_have_one_name_each() {
    for &measure in Measure::all() {
        assert_eq!(measure.name().parse(), Ok(measure));
        assert_eq!(measure.is_bytes(), measure.name().ends_with("_bytes"));
    }
    assert_eq!(Measure::LargestBytes.combine(), Combine::Max);
    let error = "size".parse::<Measure>().unwrap_err().to_string();
    assert!(error.starts_with("unknown metric `size`; expected one of allocations "), "{error}");
    let error = "file".parse::<aggregate::GroupBy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown grouping `file`; expected one of function line stack module scope label type \
         thread size call"
    );
}

#[test]
fn foreign_and_newer_files_are_refused_with_a_reason() {
    let says = |bytes: &[u8]| reader::parse(bytes, "x.profile".as_ref()).unwrap_err().to_string();
    assert!(says(b"").starts_with(
        "x.profile: the file is empty (process still starting, died during startup, or had no room \
         on the disk), expected"
    ));
    assert!(says(b"HEAP").contains("shorter than the magic number"));
    assert!(says(b"\x7fELF and so on").contains("not a profile"));
    assert!(says(&[0; 8192]).contains("the header has not been written yet"));
    let whole = two_lanes().finish();
    assert!(says(&whole[..100]).contains("truncated to 100 bytes"));
    let mut p = two_lanes();
    p.header.version = 9;
    assert_eq!(
        says(&p.finish()),
        "x.profile: unsupported format version 9 (this build reads up to 2); update heaptide"
    );
    p.header.version = 0;
    assert!(says(&p.finish()).contains("version 0"));
    let mut p = two_lanes();
    p.header.mode = 7;
    assert!(says(&p.finish()).contains("mode 7 in the header, expected 1 to 4"));
}

#[test]
fn extents_that_contradict_the_format_are_damage() {
    let says = |change: fn(&mut format::ExtentHeader)| {
        let mut p = two_lanes();
        p.change_extent(format::Kind::Strings, 0, change);
        match reader::parse(&p.finish(), "x.profile".as_ref()).unwrap_err() {
            Error::Damaged { what, .. } => what,
            other => panic!("{other}"),
        }
    };
    assert_eq!(
        says(|head| head.length = 7),
        "extent at byte 4096 has length 7, expected a multiple of 4096"
    );
    assert!(says(|head| head.length = 0).contains("has length 0"));
    assert!(
        says(|head| head.length = u64::MAX - 4095).contains("expected an end at or before byte")
    );
    assert!(says(|head| head.length = 1 << 40).contains("expected an end at or before byte"));
    assert!(says(|head| head.committed = u64::MAX).contains("expected at most 4032"));
}
