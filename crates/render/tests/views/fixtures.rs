//! Fixtures: a recording with known numbers for the tests of views.

use std::path::PathBuf;
use std::sync::Arc;

use heaptide_analysis::model::*;

type Described = (Option<&'static str>, u32, Option<&'static str>, u32, bool);

/// The functions of the program as (name, module, file, line, inlined); frame 6 has no name.
const FRAMES: [Described; 9] = [
    (Some("_start"), 0, None, 0, false),
    (Some("__libc_start_main_impl"), 1, Some("../csu/libc-start.c"), 360, false),
    (Some("main"), 0, Some("/src/app.cc"), 40, false),
    (Some("Tree::build(int)"), 0, Some("/src/tree.cc"), 12, false),
    (
        Some("void std::vector<int, std::allocator<int> >::push_back(int const&)"),
        0,
        Some("/usr/include/c++/12/bits/stl_vector.h"),
        1280,
        true,
    ),
    (Some("read_all"), 0, Some("/src/read.cc"), 7, false),
    (None, 2, None, 0, false),
    (Some("work(void*)"), 0, Some("/src/work.cc"), 3, false),
    (Some("start_thread"), 1, None, 0, false),
];

fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    for (&(function, module, file, line, inlined), i) in FRAMES.iter().zip(0..) {
        frames.push(Frame {
            function: function.map(Arc::from),
            module: Some(ModuleId(module)),
            offset: 0x1000 + 0x10 * i,
            file: file.map(Arc::from),
            line: file.map(|_| line),
            inlined,
            code: CodeKind::Native,
        });
    }
    frames
}

/// 1 _start, 2 libc, 3 main, 4 build, 5 build, 6 build, 7 push_back below 6, 8 read_all below main,
/// 9 the nameless below read_all, 10 start_thread, 11 work, 12 push_back below 11.
fn stacks() -> Vec<StackNode> {
    let nodes = [
        (0, 0),
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 3),
        (5, 3),
        (6, 4),
        (3, 5),
        (8, 6),
        (0, 8),
        (10, 7),
        (11, 4),
    ];
    let node = |(parent, frame)| StackNode { parent: StackId(parent), frame: FrameId(frame) };
    nodes.map(node).to_vec()
}

/// Returns a row of `n` blocks of `size` usable bytes, some of them freed and some live at the
/// peak.
pub fn row(n: u64, size: u64, freed: u64, at_peak: u64, temporary: u64) -> Measures {
    Measures {
        allocations: n,
        frees: freed,
        requested_bytes: n * (size - 8),
        usable_bytes: n * size,
        freed_bytes: freed * size,
        live_blocks: n - freed,
        live_bytes: (n - freed) * size,
        at_peak_blocks: at_peak,
        at_peak_bytes: at_peak * size,
        temporary,
        largest_bytes: size - 8,
        frees_here: freed,
        freed_here_bytes: freed * size,
        ..Measures::default()
    }
}

pub fn site(stack: u32, scope: u32, lane: u32, measures: Measures) -> Site {
    Site {
        stack: StackId(stack),
        scope: ScopeId(scope),
        label: None,
        lane: LaneId(lane),
        size: None,
        call: None,
        kind: SiteKind::Heap,
        measures,
        moved: Moved::default(),
        lent_bytes: 0,
    }
}

fn sites() -> Vec<Site> {
    let site = |stack, lane, measures| site(stack, 0, lane, measures);
    vec![
        site(7, 0, row(1000, 4104, 900, 1000, 0)),
        site(8, 0, row(10, 131_080, 10, 4, 6)),
        site(9, 0, row(50_000, 24, 50_000, 0, 49_990)),
        site(12, 1, row(300, 1032, 0, 250, 0)),
        site(0, 1, row(2, 40, 1, 2, 0)),
    ]
}

fn lanes(sites: &[Site]) -> Vec<Lane> {
    let lane = |(name, threads, id): (&str, u32, u32)| {
        let mut measures = Measures::default();
        let own = sites.iter().filter(|s| s.lane == LaneId(id));
        own.for_each(|s| measures.add(&s.measures));
        Lane { name: name.to_owned(), threads, tids: Vec::new(), measures }
    };
    [("app", 1, 0), ("worker", 12, 1)].map(lane).to_vec()
}

fn modules() -> Vec<Module> {
    let module = |(path, build_id): (&str, &[u8])| Module {
        path: path.to_owned(),
        start: 0x40_0000,
        end: 0x50_0000,
        bias: 0x40_0000,
        build_id: build_id.to_vec(),
        unloaded: build_id.is_empty(),
    };
    let app: (&str, &[u8]) = ("/usr/bin/app", &[0xab, 0xcd, 0x01]);
    [app, ("/lib/libc.so.6", &[0x12]), ("/opt/libstripped.so", &[])].map(module).to_vec()
}

pub fn process() -> Process {
    let sites = sites();
    let mut totals = Measures::default();
    sites.iter().for_each(|s| totals.add(&s.measures));
    totals.peak_bytes = totals.at_peak_bytes;
    Process {
        mapped: None,
        mappings: None,
        device: None,
        device_memory: None,
        identity: identity(),
        lifetime: Lifetime {
            start_realtime_ns: 1_700_000_000_123_456_789,
            duration_ns: 2_500_000_000,
            duration_is_known: true,
            end: End::Exited(0),
        },
        mode: Mode::Stacks,
        sampling: None,
        totals,
        peak_time_ns: 1_250_000_000,
        tables: Tables {
            lanes: lanes(&sites),
            sites,
            lanes_at_once: 2,
            frames: frames(),
            stacks: stacks(),
            modules: modules(),
            scopes: vec![scope(0, "", "", 0)],
            entered: Vec::new(),
            labels: Vec::new(),
            shapes: Vec::new(),
            histogram: histogram(),
        },
        time: TimeTables::default(),
        search: None,
        completeness: Completeness {
            peak_bound_bytes: 4096,
            unmatched_frees: 3,
            losses: losses(),
            notes: vec!["libstripped.so has changed since: its frames have no names".to_owned()],
            ..Completeness::default()
        },
        attribution: Attribution::default(),
        unwinder: UnwinderStats { frames_stepped: 12_345, rules_evaluated: 67 },
    }
}

/// Returns the process after a change.
pub fn with(mut process: Process, change: impl FnOnce(&mut Process)) -> Process {
    change(&mut process);
    process
}

fn identity() -> Identity {
    Identity {
        file: PathBuf::from("app.heaptide/4242-0.profile"),
        pid: 4242,
        ppid: 4200,
        image: 0,
        process_number: 0,
        execs: 0,
        is_requested: false,
        role: ImageRole::Unknown,
        forked: false,
        program: "/usr/bin/app".to_owned(),
        command: ["app", "--input", "a file.txt"].map(str::to_owned).to_vec(),
        host: "box".to_owned(),
        rank: None,
        job: String::new(),
        run: None,
        images: 1,
    }
}

fn losses() -> Vec<Loss> {
    vec![
        Loss {
            name: "no_site",
            meaning: "allocations recorded without their stack: no space for a site",
            count: 2,
        },
        Loss {
            name: "too_deep",
            meaning: "stacks deeper than the limit, truncated at the outer end",
            count: 7,
        },
    ]
}

fn histogram() -> Vec<SizeClass> {
    vec![
        SizeClass { size_min: 16, size_max: 31, requested: 50_000, usable: 50_000, freed: 50_000 },
        SizeClass { size_min: 32, size_max: 63, requested: 2, usable: 2, freed: 1 },
        SizeClass { size_min: 1024, size_max: 2047, requested: 300, usable: 300, freed: 0 },
        SizeClass { size_min: 4096, size_max: 8191, requested: 1000, usable: 1000, freed: 900 },
    ]
}

fn scope(parent: u32, attribute: &str, value: &str, entered: u64) -> Scope {
    Scope {
        parent: ScopeId(parent),
        attribute: attribute.into(),
        value: value.into(),
        entered,
        frees_here: 0,
        freed_here_bytes: 0,
        peak_bytes: None,
        active_bytes: None,
    }
}

/// The process with scopes `load` and `load > step=2`, labels, a pool, windows and marks.
pub fn annotated() -> Process {
    let mut p = process();
    p.tables.scopes.push(scope(0, "region", "load", 3));
    p.tables.scopes.push(scope(1, "step", "2", 1500));
    let entered = |scope, lane, times| Entered { scope: ScopeId(scope), lane: LaneId(lane), times };
    p.tables.entered = vec![entered(1, 0, 2), entered(1, 1, 1), entered(2, 0, 1500)];
    (p.tables.sites[0].scope, p.tables.sites[1].scope, p.tables.sites[3].scope) =
        (ScopeId(2), ScopeId(1), ScopeId(1));
    let label = |name: &str, pool| Label { name: name.into(), pool };
    p.tables.labels = vec![label("matrix", false), label("arena", true), label("table", false)];
    let shape = |label, dimensions: &[u64], labelled| Shape {
        label: LabelId(label),
        dimensions: dimensions.to_vec(),
        element_bytes: 8,
        labelled,
    };
    p.tables.shapes = vec![shape(0, &[3, 4], 30), shape(2, &[512], 1), shape(0, &[12], 10)];
    let named = |label, kind, measures, lent_bytes| Site {
        label: Some(LabelId(label)),
        kind,
        lent_bytes,
        ..site(7, 2, 0, measures)
    };
    let chunk = Measures { live_bytes: 6000, live_blocks: 1, ..row(1, 16_384, 0, 1, 0) };
    // Forty blocks of the first site were labelled, ten of them were freed.
    let here = row(890, 4104, 890, 0, 0);
    p.tables.sites[0].measures = Measures {
        frees_here: here.frees_here,
        freed_here_bytes: here.freed_here_bytes,
        ..row(1000, 4104, 930, 960, 0)
    };
    p.tables.sites.push(Site {
        moved: Moved { blocks: 40, usable_bytes: 40 * 4104, requested_bytes: 40 * 4096 },
        ..named(0, SiteKind::Heap, row(40, 4104, 10, 40, 0), 0)
    });
    p.tables.sites.push(named(1, SiteKind::OutsidePoolChunk, chunk, 10_384));
    p.tables.sites.push(named(1, SiteKind::OutsidePoolBlock, row(12, 5192, 10, 2, 0), 0));
    p.tables.sites.push(named(2, SiteKind::Outside, row(1, 65_536, 0, 1, 0), 0));
    let window = |name: &str, open, begin_time_ns, live_bytes: i64, peak_bytes| Window {
        name: name.into(),
        open,
        begin_time_ns,
        end_time_ns: if open { 0 } else { 900_000_000 },
        allocations: 1200,
        frees: 300,
        reallocations: 2,
        failed: 0,
        requested_bytes: 5_000_000,
        usable_bytes: 5_100_000,
        freed_bytes: 5_100_000u64.saturating_add_signed(-live_bytes),
        live_blocks: 900,
        live_bytes,
        peak_bytes,
        peak_bound_bytes: 0,
    };
    p.time.windows = vec![
        window("event 1", false, 100_000_000, -4096, 3_000_000),
        window("event 2", true, 950_000_000, 70_000, 4_000_000),
    ];
    let mark = |time_ns, name: &str, kind, number| Mark {
        time_ns,
        name: name.into(),
        kind,
        lane: None,
        number,
        live_bytes: 2_000_000,
    };
    p.time.marks = vec![
        mark(50_000_000, "warm", MarkKind::Mark, 0),
        mark(60_000_000, "before", MarkKind::Snapshot, 1),
        mark(70_000_000, "", MarkKind::Off, 0),
    ];
    p
}

/// The same process with a sample of its blocks, one per 8 KiB; no block is larger.
pub fn sampled() -> Process {
    const MEAN: f32 = 8192.0;
    with(annotated(), |p| {
        let mut whole = Spread::default();
        for site in &mut p.tables.sites {
            let m = &mut site.measures;
            let [allocated, live, at_peak] =
                [m.usable_bytes, m.live_bytes, m.at_peak_bytes].map(|bytes| bytes as f32 / MEAN);
            m.spread = Spread { allocated, live, at_peak };
            whole.add(&m.spread);
        }
        p.totals.spread = whole;
        let blocks = whole.allocated as u64;
        p.sampling =
            Some(Sampling { mean_bytes: MEAN as u64, blocks, whole, rest: [0; 3], raised: [0; 3] });
    })
}

/// A second image with little activity.
pub fn small() -> Process {
    let totals = Measures {
        allocations: 1,
        usable_bytes: 24,
        live_blocks: 1,
        live_bytes: 24,
        ..Measures::default()
    };
    with(process(), |p| {
        p.identity.pid = 4243;
        p.identity.command = vec!["sh".to_owned()];
        p.lifetime.end = End::Exec;
        p.totals = Measures { peak_bytes: 24, at_peak_bytes: 24, at_peak_blocks: 1, ..totals };
        p.tables.sites = vec![site(3, 0, 0, totals)];
        p.completeness.losses.clear();
        p.completeness.notes.clear();
        p.completeness.unmatched_frees = 0;
    })
}

pub fn recording(processes: Vec<Process>) -> Recording {
    Recording {
        path: PathBuf::from("app.heaptide"),
        sealed: true,
        processes,
        ..Recording::default()
    }
}
