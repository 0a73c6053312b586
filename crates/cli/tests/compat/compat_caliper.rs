//! Programs written for Caliper, built with the headers of `include/compat`: annotations, tracked
//! memory, and the reports at exit that Caliper's variables request.

use crate::harness::{clean, heaptide, library, preloaded, programs, recorded, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `tests/compat` with strict warnings.
fn build(source: &str, standard: &str, place: &Path, flags: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".c") { "cc" } else { "c++" };
    let target = place.join(source.replace('.', "-"));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.arg(format!("-std={standard}")).args(["-I", "include/compat"]);
    command.arg(format!("tests/compat/{source}")).arg("-o").arg(&target).args(flags);
    let output = command.current_dir(programs().join("../..")).output().expect("a compiler");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source} {standard}: {errors}");
    target
}

/// Returns the output of a query.
fn query(query: &str, recording: &Path, place: &Path) -> String {
    let outcome = run(heaptide().args(["query", query]).arg(recording), place);
    assert_eq!(outcome.status, 0, "{query}: {}", outcome.stderr);
    outcome.stdout
}

/// The queries in Caliper's documentation of memory tracking, verbatim, and their output for
/// `caliper_lulesh.cpp`. There can be a block of the C++ library besides those of the program.
const BY_FUNCTION: &str = "SELECT function,count() GROUP BY function WHERE mem.alloc FORMAT tree";
const BY_LABEL: &str = "SELECT mem.alloc,count() GROUP BY mem.alloc WHERE mem.alloc FORMAT table";
const BY_SIZE: &str = "SELECT mem.alloc,alloc.total_size,count() \
                       GROUP BY mem.alloc,alloc.total_size WHERE mem.alloc FORMAT table";

const FUNCTIONS: &str = "\
main                            6
  LagrangeNodal
    CalcVolumeForceForElems    30
  LagrangeElements             40
    EvalEOSForElems           220
";
const LABELS: [&str; 5] =
    ["x             1", "fx            1", "nodelist      1", "dxx          10", "delv_xi      10"];
const SIZES: [&str; 9] = [
    "malloc                 512     2",
    "malloc                 864     1",
    "malloc                1728    30",
    "malloc                 216   240",
    "x                      512     1",
    "fx                     512     1",
    "nodelist               864     1",
    "dxx                    216    10",
    "delv_xi                216    10",
];

/// Returns whether each row is a line of the output.
fn has_rows(output: &str, rows: &[&str]) -> bool {
    rows.iter().all(|row| output.lines().any(|line| line == *row))
}

fn answers(output: &str, query: &str) -> bool {
    match query {
        BY_FUNCTION => output.ends_with(FUNCTIONS),
        BY_LABEL => {
            let malloc = output.lines().find_map(|line| line.strip_prefix("malloc"));
            let count = malloc.and_then(|count| count.trim().parse::<u32>().ok());
            count.is_some_and(|count| (273..=274).contains(&count)) && has_rows(output, &LABELS)
        }
        _ => has_rows(output, &SIZES),
    }
}

/// Sets the variables from Caliper's documentation.
fn configured(command: &mut Command, services: &str, query: &str) {
    command.env("CALI_SERVICES_ENABLE", services).env("CALI_REPORT_CONFIG", query);
    command.env("HEAPTIDE_COMMAND", env!("CARGO_BIN_EXE_heaptide"));
}

#[test]
fn queries_of_the_page() {
    let place = scratch("compat-caliper-page");
    let program = build("caliper_lulesh.cpp", "c++17", &place, &[]);
    let recording = place.join("a.heaptide");
    for services in ["alloc,sysalloc,trace,report", "alloc,sysalloc,aggregate,report"] {
        for query in [BY_FUNCTION, BY_LABEL, BY_SIZE] {
            let mut under_run = recorded(&recording, &["--force"]);
            under_run.arg(&program);
            let _ = fs::remove_dir_all(place.join("b.heaptide"));
            let preload = preloaded(&program, place.join("b.heaptide"));
            for mut command in [under_run, preload] {
                configured(&mut command, services, query);
                let outcome = run(&mut command, &place);
                assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{services}");
                assert!(outcome.stdout.starts_with("cycles 10\n"), "{}", outcome.stdout);
                assert!(answers(&outcome.stdout, query), "{services}: {}", outcome.stdout);
            }
        }
    }
    // Without the recorder the variables have no effect.
    let mut bare = clean(Command::new(&program));
    configured(&mut bare, "alloc,sysalloc,trace,report", BY_LABEL);
    let outcome = run(&mut bare, &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "cycles 10\n", ""));
}

/// A program that is linked with the recorder is recorded if Caliper's variables request a report,
/// into a temporary recording.
#[test]
fn linked_with_the_recorder() {
    let place = scratch("compat-caliper-linked");
    fs::copy(library(), place.join("libheaptide.so")).expect("the library");
    let beside = place.to_str().expect("a path in UTF-8");
    let (search, found) = (format!("-L{beside}"), format!("-Wl,-rpath,{beside}"));
    let flags = [&search, &found, "-Wl,--no-as-needed", "-lheaptide"];
    let program = build("caliper_lulesh.cpp", "c++11", &place, &flags);
    let start = |services: &str, variables: &[(&str, &str)]| {
        let mut command = clean(Command::new(&program));
        configured(&mut command, services, BY_SIZE);
        command.envs(variables.iter().copied()).current_dir(&place);
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{services}");
        outcome.stdout
    };
    assert!(answers(&start("alloc,sysalloc,trace,report", &[]), BY_SIZE));
    // Without `sysalloc`, only memory with a label is listed.
    let labelled = start("alloc,report", &[]);
    assert!(has_rows(&labelled, &SIZES[4..]) && !labelled.contains("malloc "), "{labelled}");
    // Into a file, which is replaced or appended to.
    let to_file = [("CALI_REPORT_FILENAME", "report.txt"), ("CALI_REPORT_APPEND", "true")];
    for runs in 1..=2 {
        assert_eq!(start("alloc,sysalloc,report", &to_file), "cycles 10\n");
        let report = fs::read_to_string(place.join("report.txt")).expect("a report");
        assert_eq!(report.matches("nodelist ").count(), runs, "{report}");
    }
    let recorder = [
        ("CALI_RECORDER_FILENAME", "a-%mpi.rank%.cali"),
        ("CALI_RECORDER_DIRECTORY", beside),
        ("PMI_RANK", "3"),
    ];
    assert_eq!(start("alloc,sysalloc,trace,recorder", &recorder), "cycles 10\n");
    let again = query(BY_LABEL, &place.join("a-3.cali"), &place);
    assert!(answers(&again, BY_LABEL), "{again}");
    let files = fs::read_dir(&place).expect("the directory").flatten();
    let mut recordings = files.map(|file| file.path()).filter(|path| path.is_dir());
    assert_eq!(recordings.next(), None, "a recording stayed");
}

/// Names of files have the rank by the variables that the recorder reads, in the same order.
#[test]
fn ranks_of_files_are_those_of_recordings() {
    let text = include_str!("../../../../include/compat/caliper/heaptide_output.h");
    let list = text.split("ranks[] = {").nth(1).and_then(|rest| rest.split('}').next());
    let names = list.expect("the names").split('"').skip(1).step_by(2);
    assert!(names.eq(heaptide_format::launchers::LAUNCHERS.map(|launcher| launcher.rank)));
}

#[test]
fn annotations_in_c() {
    let place = scratch("compat-caliper-annotations");
    for standard in ["gnu99", "gnu11", "gnu17"] {
        let program = build("caliper_annotations.c", standard, &place, &[]);
        let bare = run(&mut clean(Command::new(&program)), &place);
        assert_eq!((bare.status, &*bare.stdout), (0, "annotated\n"), "{bare:?}");
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, &["--force"]).arg(&program), &place);
        assert_eq!(outcome, bare, "{standard}");
        let paths = "SELECT path,count() GROUP BY path FORMAT format(\"%path% %count%\")";
        let rows = query(paths, &recording, &place);
        assert_eq!(
            rows.lines().collect::<Vec<_>>(),
            [
                "main 1",
                "main/annotate 1",
                "main/p 1",
                "main/c 1",
                "main/wrapped 1",
                "main/l 3",
                "main/7 1",
                "main/8 1",
                "main/2.5 1",
                "main/true 1",
                "main/text 1",
                "main/1/2 1",
                "main/2 1",
            ]
        );
        let attributes = "SELECT attribute,value,entered FROM scopes GROUP BY attribute,value \
                          WHERE attribute=comm.region OR attribute=iteration#l OR attribute=a \
                          FORMAT format(\"%attribute% %value%\")";
        let rows = query(attributes, &recording, &place);
        assert_eq!(
            rows.lines().collect::<Vec<_>>(),
            ["comm.region c", "iteration#l 0", "iteration#l 1", "iteration#l 2", "a 1"]
        );
        let info = run(heaptide().arg("info").arg(&recording), &place);
        assert!(!info.stdout.contains("scope_mismatch"), "{}", info.stdout);
        let marks = query("SELECT name FROM marks FORMAT format(\"%name%\")", &recording, &place);
        assert_eq!(marks, "ranks=4\n");
    }
}

#[test]
fn tracked_memory_and_classes() {
    let place = scratch("compat-caliper-tracking");
    for standard in ["c++11", "c++20"] {
        let program = build("caliper_tracking.cpp", standard, &place, &[]);
        let bare = run(&mut clean(Command::new(&program)), &place);
        assert_eq!((bare.status, &*bare.stdout), (0, ""), "{bare:?}");
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, &["--force"]).arg(&program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{outcome:?}");
        assert_eq!(outcome.stdout, "work 1\nwork/3 1\n");
        let labels = "SELECT label,kind,sum(allocations) GROUP BY label,kind FROM labels \
                      FORMAT format(\"%label% %kind% %sum#allocations%\")";
        let rows = query(labels, &recording, &place);
        assert_eq!(rows, "grid heap 1\ntable outside 1\nwhole heap 1\nthird heap 1\n");
        let shapes = "SELECT label,alloc.dims,element_bytes,labelled FROM shapes \
                      FORMAT format(\"%label% %dims% %element_bytes% %labelled%\")";
        let rows = query(shapes, &recording, &place);
        assert_eq!(rows, "grid 10x20 8 1\ntable 800 1 1\nwhole 300 1 1\nthird 2x3 4 1\n");
        let marks = query("SELECT name FROM marks FORMAT format(\"%name%\")", &recording, &place);
        assert!(marks.contains(",alloc.label#inside=\"grid\",alloc.uid#inside=1,"), "{marks}");
        assert!(marks.contains(",alloc.index#inside=41,"), "{marks}");
        assert!(!marks.contains("alloc.label#outside"), "{marks}");
    }
}

/// The end of a thread does not call code that was unloaded.
#[test]
fn unloaded_before_the_thread_ends() {
    let place = scratch("compat-caliper-unload");
    let flags = ["-DLIBRARY", "-shared", "-fPIC"];
    let built = build("caliper_unload.c", "gnu11", &place, &flags);
    let library = place.join("libannotated.so");
    fs::rename(built, &library).expect("the library");
    let program = build("caliper_unload.c", "gnu11", &place, &["-ldl"]);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program).arg(&library), &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "unloaded\n", ""));
    let paths = "SELECT path,count() GROUP BY path FORMAT format(\"%path% %count%\")";
    let rows = query(paths, &recording, &place);
    assert!(has_rows(&rows, &["text/region 3"]), "{rows}");
}

#[test]
fn configurations_by_name() {
    let place = scratch("compat-caliper-manager");
    let program = build("caliper_manager.cpp", "c++17", &place, &[]);
    let start = |options: &[&str], config: &str| {
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &[&["--force"], options].concat());
        let outcome = run(command.arg(&program).arg(config).current_dir(&place), &place);
        (outcome.status, outcome.stdout, outcome.stderr)
    };
    let (status, report, errors) =
        start(&["--mode", "trace"], "runtime-report(alloc.stats),output=stdout");
    assert_eq!((status, &*errors), (0, ""));
    assert!(report.starts_with("Path "), "{report}");
    let row = report.lines().find(|line| line.starts_with("solve ")).expect("a row");
    // After four times: the most live bytes of the process, and of the region, and its allocations.
    let values: Vec<&str> = row.split_whitespace().skip(5).collect();
    assert_eq!(values, ["2000", "2000", "4", "1000", "1000"], "{report}");
    // The default output of a report is standard error.
    let (status, output, report) = start(&[], "runtime-report,mem.pages");
    assert_eq!((status, &*output), (0, ""));
    assert!(report.contains("Max Bytes/alloc") && report.contains("VmRSS"), "{report}");
    let trace = "event-trace(output=a.cali)";
    assert_eq!(start(&[], trace), (0, String::new(), String::new()));
    assert!(fs::read_to_string(place.join("a.cali")).expect("a file").starts_with("__rec="));
    // Set by a variable: the report is printed once, at exit, even if the program forks.
    let recording = place.join("b.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&program).env("CALI_CONFIG", "runtime-report(alloc.stats,output=stdout)");
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(outcome.stdout.matches("Alloc count").count(), 1, "{}", outcome.stdout);
    let unknown = "runtime-report(nonsense)";
    let message = "runtime-report: unknown option or configuration: nonsense\n";
    assert_eq!(start(&[], unknown), (1, String::new(), message.to_owned()));
}

/// Snapshots are records of `.cali` files, with the blocks at their addresses.
#[test]
fn pushed_snapshots() {
    let place = scratch("compat-caliper-snapshots");
    let program = build("caliper_snapshots.c", "gnu11", &place, &[]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, ""), "{bare:?}");
    let start = |services: &str| {
        let mut command = recorded(&place.join("a.heaptide"), &["--force"]);
        configured(command.arg(&program), services, "");
        command.env("CALI_RECORDER_FILENAME", place.join("a.cali"));
        command.env("CALI_ALLOC_RESOLVE_ADDRESSES", "true");
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "", ""));
        let of = "SELECT step,alloc.label#at AS l,alloc.uid#at AS u,alloc.index#at AS i WHERE step \
                  FORMAT format(\"%step% %alloc.label#at% %alloc.uid#at% %alloc.index#at%\")";
        let rows = query(of, &place.join("a.cali"), &place);
        rows.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let all = start("alloc,sysalloc,trace,recorder,event");
    assert_eq!((all[0].as_str(), all[1].split(' ').nth(1)), ("0 grid 1 11", Some("calloc")));
    assert!(all[1].ends_with(" 4"), "the element of the zeroed block: {all:?}");
    assert_eq!(all[2..], ["2", "3"]);
    // Without `sysalloc`, only labelled memory is tracked.
    assert_eq!(start("alloc,trace,recorder,event"), ["0 grid 1 11", "1", "2", "3"]);
}

/// Without `sysalloc`, records are those of labelled memory: its allocations, its frees, and its
/// active bytes at the begin and end of every region. An allocation shows the bytes before it.
#[test]
fn records_of_labelled_memory() {
    let place = scratch("compat-caliper-labelled");
    let program = build("caliper_snapshots.c", "gnu11", &place, &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let shown = "SELECT mem.alloc,mem.free,alloc.total_size,mem.active,event.begin#region,\
                 event.end#region WHERE NOT step FORMAT expand";
    configured(command.arg(&program), "alloc,trace,event,report", shown);
    command.env("CALI_ALLOC_RECORD_ACTIVE_MEM", "true");
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(
        outcome.stdout.lines().collect::<Vec<_>>(),
        [
            "mem.active=0",
            "mem.alloc=grid,alloc.total_size=96,mem.active=0",
            "mem.free=grid,alloc.total_size=-96,mem.active=96",
            "mem.active=0,event.begin#region=quiet",
            "mem.active=0,event.begin#region=inner",
            "mem.active=0,event.end#region=inner",
            "mem.active=0,event.end#region=quiet",
            "mem.active=0,event.begin#region=after",
            "mem.active=0,event.end#region=after",
            "mem.active=0",
        ]
    );
}

/// A report has rows of regions that allocate nothing, and times.
#[test]
fn reports_of_all_regions() {
    let place = scratch("compat-caliper-regions");
    let program = build("caliper_snapshots.c", "gnu11", &place, &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let config = "runtime-report(alloc.stats,mem.highwatermark,output=stdout)";
    command.arg(&program).env("CALI_CONFIG", config);
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let rows: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["Path", "main", "quiet", "inner", "after"]);
    // 96 + 80 bytes, and the label once more.
    assert_eq!(rows[1][5..], ["0.000272", "272", "272", "3", "90", "96"], "{}", outcome.stdout);
    assert_eq!(rows[2][5..], ["0.000080", "80"], "{}", outcome.stdout);
}

/// Queries use the names of another tool, and files have Caliper's records, with or without a
/// trace.
#[test]
fn names_of_other_tools() {
    let place = scratch("compat-names");
    let program = build("caliper_snapshots.c", "gnu11", &place, &[]);
    for mode in ["trace", "stacks"] {
        let recording = place.join(format!("{mode}.heaptide"));
        let outcome = run(recorded(&recording, &["--mode", mode]).arg(&program), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let named = |tool: &str, text: &str| {
            let mut command = heaptide();
            command.args(["query", "--exact", "--names", tool, text]).arg(&recording);
            let outcome = run(&mut command, &place);
            // Without a trace, a line explains the empty column max-memlive.
            assert_eq!(outcome.status, 0, "{tool}: {}", outcome.stderr);
            outcome.stdout
        };
        let labels = "SELECT mem.alloc,count() GROUP BY mem.alloc WHERE mem.alloc \
                      FORMAT format(\"%mem.alloc% %count%\")";
        assert!(has_rows(&named("caliper", labels), &["grid 1"]));
        let stacks = named("mallocprofiler", "SELECT * FORMAT csv");
        assert!(stacks.starts_with("stacktrace,ncalls,memtot,memlive,max-memlive\n"), "{stacks}");
        let scopes = named("malloc-tag", "SELECT scope,nTimesEnteredAndExited FORMAT csv");
        assert!(scopes.starts_with("scope,nTimesEnteredAndExited\n"), "{scopes}");
        assert!(scopes.contains("main/quiet/inner,1\n"), "{scopes}");
        let file = place.join(format!("{mode}.cali"));
        let export = ["export", "--format", "cali", "-o"];
        let outcome = run(heaptide().args(export).arg(&file).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        assert!(has_rows(&query(labels, &file, &place), &["grid 1"]), "{mode}");
    }
}

/// Compiles the headers with strict warnings, each compiler and standard, in any order and twice.
#[test]
fn headers_without_a_warning() {
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"];
    let check = |compiler: &str, standard: &str, language: &str, headers: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(strict).args(["-fsyntax-only", "-I", "include/compat", "-x", language]);
        command.arg(format!("-std={standard}"));
        headers.iter().for_each(|header| _ = command.args(["-include", header]));
        let output = command.arg("/dev/null").current_dir(programs().join("../..")).output();
        let Ok(output) = output else { return }; // compiler not installed
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {standard} {headers:?}: {errors}");
    };
    let c = ["caliper/cali.h", "caliper/cali-manager.h", "caliper/cali_datatracker.h"];
    for (compiler, standard) in [("gcc", "c99"), ("gcc", "c17"), ("clang", "c99"), ("clang", "c11")]
    {
        check(compiler, standard, "c", &c);
    }
    let registry = "PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h";
    let reports = "PerfTools/AllocMonitor/interface/AllocMonitorReports.h";
    for (compiler, standard, first) in [
        ("g++", "c++11", "caliper/cali_macros.h"),
        ("g++", "c++20", registry),
        ("clang++", "c++11", registry),
        ("clang++", "c++20", "caliper/Annotation.h"),
    ] {
        let manager = "caliper/cali-manager.h";
        let times = "caliper/RegionProfile.h";
        let headers = [first, manager, "caliper/DataTracker.h", times, reports, first];
        check(compiler, standard, "c++", &headers);
    }
}

#[test]
fn installed_by_the_sdk() {
    let place = scratch("compat-sdk");
    let outcome = run(heaptide().args(["sdk", "it"]).current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let flags = Command::new("pkg-config")
        .args(["--cflags", "heaptide-compat"])
        .env("PKG_CONFIG_PATH", place.join("it/lib/pkgconfig"))
        .output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        return heaptide_fixtures::skips::skip("pkg-config");
    };
    let flags = String::from_utf8(flags.stdout).expect("UTF-8");
    for header in
        ["caliper/cali-manager.h", "PerfTools/AllocMonitor/interface/AllocMonitorReports.h"]
    {
        let mut compiler = Command::new("c++");
        compiler.args(flags.split_whitespace()).args(["-fsyntax-only", "-include", header]);
        let status = compiler.args(["-x", "c++", "/dev/null"]).status().expect("c++");
        assert!(status.success(), "{header}: {flags}");
    }
    assert!(place.join("it/share/heaptide/monitors/cms/alloc_monitors.cpp").exists());
    // The original build line: the library with Caliper's name refers to the recorder.
    let library = place.join("it/lib");
    let library = library.to_str().expect("a path in UTF-8");
    let (compat, own) = (format!("-L{library}/compat"), format!("-L{library}"));
    let found = format!("-Wl,-rpath,{library}");
    let flags = [&*compat, &own, &found, "-Wl,--no-as-needed", "-lcaliper"];
    let program = build("caliper_lulesh.cpp", "c++17", &place, &flags);
    let mut command = clean(Command::new(&program));
    configured(&mut command, "alloc,sysalloc,trace,report", BY_FUNCTION);
    let outcome = run(command.current_dir(&place), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert!(answers(&outcome.stdout, BY_FUNCTION), "{}", outcome.stdout);
}

#[test]
fn scopes_of_several_tools() {
    let place = scratch("compat-several-tools");
    let program = build("several_tools.cpp", "c++17", &place, &["-I", "include"]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, "", ""));
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "done\n"), "{}", outcome.stderr);
    let paths = "SELECT path,count() GROUP BY path FORMAT format(\"%path% %count%\")";
    let rows = query(paths, &recording, &place);
    let nested: Vec<&str> = rows.lines().filter(|row| row.contains("tag")).collect();
    let expected = [
        "tag 1",
        "tag/main 1",
        "tag/main/inner 1",
        "tag/main/inner/own 1",
        "tag/main/inner/own/a 1",
    ];
    assert_eq!(nested, expected, "{rows}");
    let info = run(heaptide().arg("info").arg(&recording), &place);
    assert!(!info.stdout.contains("scope_mismatch"), "{}", info.stdout);
}

/// A program measures the time in its regions, including those of a part in C, with and without
/// the recorder.
#[test]
fn times_of_regions() {
    let place = scratch("compat-caliper-times");
    let part = place.join("part.o");
    let mut compiler = Command::new("cc");
    compiler.args(["-x", "c", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-DPART"]);
    compiler.args(["-I", "include/compat", "-c", "tests/compat/caliper_region_profile.cpp", "-o"]);
    let output = compiler.arg(&part).current_dir(programs().join("../..")).output();
    let output = output.expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let part = part.to_str().expect("a path in UTF-8");
    for standard in ["c++11", "c++20"] {
        let program = build("caliper_region_profile.cpp", standard, &place, &[part]);
        let bare = run(&mut clean(Command::new(&program)), &place);
        assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, "done\n", ""));
        let recording = place.join(format!("{standard}.heaptide"));
        let outcome = run(recorded(&recording, &[]).arg(&program), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "done\n"), "{}", outcome.stderr);
        let paths = "SELECT path,count() GROUP BY path FORMAT format(\"%path% %count%\")";
        let rows = query(paths, &recording, &place);
        let part = ["main/outer/solve/part 1", "main/outer/solve/part/steps 3"];
        assert!(has_rows(&rows, &part), "{rows}");
        assert!(!rows.contains("common"), "{rows}");
        let info = run(heaptide().arg("info").arg(&recording), &place);
        assert!(!info.stdout.contains("scope_mismatch"), "{}", info.stdout);
    }
}
