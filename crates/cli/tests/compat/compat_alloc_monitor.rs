//! Programs written for CMS's AllocMonitor, built with the headers of `include/compat`: its
//! interface, the reports of its monitors, a Service of cmsRun.

use crate::expectations::evaluate;
use crate::harness::{Outcome, clean, preloaded, programs, recorded, report, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    programs().join("../..")
}

/// Compiles a file of the repository with strict warnings and the headers of `include/compat`.
fn build(compiler: &str, source: &str, target: &Path, flags: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-Wshadow"]);
    command.args(["-pthread", "-I", "include/compat"]).args(flags);
    command.arg(source).arg("-o").arg(target).current_dir(root());
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {compiler}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {source} {flags:?}: {errors}");
}

/// Builds the monitors of `monitors/cms` once per test.
fn monitors(place: &Path) -> String {
    let library = place.join("liballocmonitors.so");
    if !library.exists() {
        build("c++", "monitors/cms/alloc_monitors.cpp", &library, &["-shared", "-fPIC"]);
    }
    library.to_str().expect("a path in UTF-8").to_owned()
}

/// Runs `heaptide run --monitor liballocmonitors.so:OPTIONS -- PROGRAM`.
fn monitored(options: &str, program: &Path, place: &Path) -> Outcome {
    let library = monitors(place);
    let recording = place.join("a.heaptide");
    let _ = fs::remove_dir_all(&recording);
    let given = format!("{library}:{options}");
    run(recorded(&recording, &["--monitor", &given]).arg(program).current_dir(place), place)
}

#[test]
fn own_monitors() {
    let place = scratch("compat-own-monitors");
    let program = place.join("program");
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        build("c++", "tests/compat/alloc_monitor_registry.cpp", &program, &[standard]);
        let recording = place.join(format!("a{standard}.heaptide"));
        let outcome = run(recorded(&recording, &[]).arg(&program), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "registered\n"), "{outcome:?}");
        let mut command = preloaded(&program, place.join(format!("b{standard}.heaptide")));
        assert_eq!(run(&mut command, &place).status, 0, "{standard}");
        let bare = run(&mut clean(Command::new(&program)), &place);
        assert_eq!(bare.status, 3, "{bare:?}");
        let message = "NoAllocMonitorPreload\n\
                       An exception of category 'NoAllocMonitorPreload' occurred.\n\
                       Exception Message:\n\
                       The libPerfToolsAllocMonitorPreload.so was not LD_PRELOADed into the job";
        assert!(bare.stdout.starts_with(message), "{}", bare.stdout);
    }
}

#[test]
fn preload_functions_of_a_program() {
    let place = scratch("compat-own-preload");
    let program = place.join("program");
    build("c++", "tests/compat/alloc_monitor_own_preload.cpp", &program, &[]);
    let outcome = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "own preload\n"));
}

/// A program that is linked with the original library instead of being built with our headers.
#[test]
fn registry_of_the_original() {
    let place = scratch("compat-original-registry");
    let program = place.join("program");
    build("c++", "tests/compat/alloc_monitor_original.cpp", &program, &["-rdynamic", "-ldl"]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stdout), (3, "no preload\n"));
    let outcome = monitored("", &program, &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "1000 10 10\n"), "{outcome:?}");
}

const EVENT_PROCESSING: &str = "Event Processing Memory Report\n  \
    total additional memory requested: 4000\n  \
    max additional memory used: 2000\n  \
    total additional memory not deallocated: 1000\n  \
    # allocations calls:   4\n  \
    # deallocations calls: 4\n";

const SIMPLE: &str = "Memory Report\n  \
    [monitoring spans the lifetime of Services (first plugins made and last to be deleted)]\n  \
    total additional memory requested: 10000\n  \
    max additional memory used: 7000\n  \
    # allocations calls:   6\n  \
    # deallocations calls: 6\n";

const MAX_MEMORY: &str = "Memory Report: total memory requested: 10000\n\
    Memory Report:  max memory used: 7000\n\
    Memory Report:  presently used: 0\n\
    Memory Report:  # allocations calls:   6\n\
    Memory Report:  # deallocations calls: 6\n";

#[test]
fn reports_without_the_framework() {
    let place = scratch("compat-reports");
    let program = place.join("program");
    build("cc", "tests/compat/event_loop.c", &program, &[]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stderr), (0, ""));
    let prints = |options: &str| {
        let outcome = monitored(options, &program, &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, ""), "{outcome:?}");
        outcome.stderr
    };
    assert_eq!(prints(""), MAX_MEMORY);
    assert_eq!(prints("monitor=simple"), SIMPLE);
    let both = prints("monitor=event-processing,monitor=simple");
    assert_eq!(both, format!("{EVENT_PROCESSING}{SIMPLE}"));
    let histogram = prints("monitor=histogramming");
    let rows: Vec<&str> = histogram.lines().skip(3).collect();
    assert_eq!(rows.len(), 40, "{histogram}");
    assert_eq!(rows[10], "         512            5            5            5");
    assert_eq!(rows[13], "        4096            1            1            1");
    assert_eq!(prints("monitor=periodic,file=heap-"), "");
    let written = fs::read_dir(&place).expect("the directory").flatten();
    let csv =
        written.map(|entry| entry.path()).find(|path| path.extension() == Some("csv".as_ref()));
    let csv = fs::read_to_string(csv.expect("a CSV file")).expect("CSV");
    assert!(csv.starts_with("timestamp, total-requested, max-actual, present-actual, "), "{csv}");
    assert!(csv.ends_with(", 10000, 7000, 0, 5000, 6, 6\n"), "{csv}");
    for wrong in ["monitor=x", "interval=0", "simple"] {
        let line = prints(wrong);
        assert!(line.starts_with("alloc_monitors: ") && line.lines().count() == 1, "{line}");
    }
}

/// Guards of IntrusiveAllocMonitor without the framework, and the pauses of MaxMemoryPreload.
#[test]
fn guards_and_pauses() {
    let place = scratch("compat-guards");
    let program = place.join("program");
    build("c++", "tests/compat/alloc_monitor_guards.cpp", &program, &["-std=c++17"]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, "NoAllocMonitorPreload\n", ""));
    let outcome = monitored("monitor=max-memory", &program, &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, ""));
    let guards = "%MSG-s IntrusiveAllocMonitor:\n\
        inner: requested 4 added 24 max alloc 4 peak 24 nAlloc 1 nDealloc 0\n%MSG\n\
        %MSG-s IntrusiveAllocMonitor:\n\
        outer: requested 3000 added 1000 max alloc 2000 peak 3008 nAlloc 2 nDealloc 1\n%MSG\n";
    assert!(outcome.stderr.starts_with(guards), "{}", outcome.stderr);
    let report = &outcome.stderr[guards.len()..];
    assert!(report.starts_with("Memory Report: total memory requested: "), "{report}");
    // The largest allocation is made during a pause.
    let most = report.lines().nth(1).and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(most.is_some_and(|most| most < 1_000_000), "{report}");
}

/// The headers of the framework that the Service includes.
const FRAMEWORK: [&str; 10] = [
    "DataFormats/Provenance/interface/ModuleDescription.h",
    "FWCore/AbstractServices/interface/IntrusiveMonitorBase.h",
    "FWCore/MessageLogger/interface/MessageLogger.h",
    "FWCore/ParameterSet/interface/ConfigurationDescriptions.h",
    "FWCore/ParameterSet/interface/ParameterSet.h",
    "FWCore/ParameterSet/interface/ParameterSetDescription.h",
    "FWCore/ServiceRegistry/interface/ActivityRegistry.h",
    "FWCore/ServiceRegistry/interface/ModuleCallingContext.h",
    "FWCore/ServiceRegistry/interface/ServiceMaker.h",
    "FWCore/Utilities/interface/Exception.h",
];

/// Builds a job with the Service, with stand-ins for the headers of the framework.
fn job(place: &Path) -> PathBuf {
    for header in FRAMEWORK {
        let path = place.join("framework").join(header);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, "#include \"framework.h\"\n").expect("a header");
    }
    let program = place.join("job");
    let framework = place.join("framework");
    let framework = framework.to_str().expect("a path in UTF-8");
    let flags = ["-std=c++17", "-I", framework, "-I", "tests/compat", "-I", "."];
    build("c++", "tests/compat/cmsrun_job.cpp", &program, &flags);
    program
}

#[test]
fn service_of_cmsrun() {
    let place = scratch("compat-cmsrun");
    let program = job(&place);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&program).args(["eventProcessing", "simple", "histogramming", "periodic"]);
    let outcome = run(command.current_dir(&place), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{outcome:?}");
    for expected in [
        "%MSG-s EventProcessingAllocMonitor:\nEvent Processing Memory Report\n  \
         total additional memory requested: 9000\n  \
         max additional memory used: 5008\n  \
         total additional memory not deallocated: 3000\n  \
         # allocations calls:   6\n  # deallocations calls: 3\n%MSG\n",
        "%MSG-s SimpleAllocMonitor:\nMemory Report\n",
        "%MSG-s HistogrammingAllocMonitor:\nMemory Histogram\n",
        "inner: requested 4 added 0 max alloc 4 peak 24 nAlloc 1 nDealloc 1\n",
        "outer: requested 100 added 0 max alloc 100 peak 104 nAlloc 1 nDealloc 1\n",
    ] {
        assert!(outcome.stdout.contains(expected), "{expected}: {}", outcome.stdout);
    }
    let csv = fs::read_to_string(place.join("timing.log")).expect("CSV");
    assert!(csv.starts_with("timestamp, runs-started, lumis-started, events-started, "), "{csv}");
    assert!(csv.lines().last().is_some_and(|line| line.contains(", 0, 0, 3, 3, ")), "{csv}");
    let report = report(&recording, &place);
    assert_eq!(evaluate(&report, "leaf:fill", "allocations"), 3);
    assert!(report.to_string().contains(r#""attribute":"module","value":"work""#), "{report}");
    // Without the recorder there are no monitors, and scopes are no-ops.
    let bare = |monitors: &[&str]| {
        let outcome = run(clean(Command::new(&program)).args(monitors), &place);
        (outcome.status, outcome.stdout)
    };
    assert_eq!(bare(&["simple"]), (1, "NoAllocMonitorPreload\n".to_owned()));
    assert_eq!(bare(&[]), (0, String::new()));
}

/// Installs the SDK, and returns its directory with the preload libraries of other tools.
fn preload_libraries(place: &Path) -> PathBuf {
    let sdk = place.join("sdk");
    assert_eq!(run(crate::harness::heaptide().arg("sdk").arg(&sdk), place).status, 0);
    sdk.join("lib/compat")
}

/// Services are created, told of the begin and the end of the job, and destroyed, in the order of
/// the framework; the command line is that of AllocMonitor.
#[test]
fn services_run_in_a_job() {
    let place = scratch("compat-cms-services");
    let program = place.join("job");
    let flags = ["-std=c++17", "-I", "tests/compat", "tests/compat/cms_own_services.cpp"];
    build("c++", "tests/compat/cms_services.cpp", &program, &flags);
    let libraries = preload_libraries(&place);
    // Found in the search path of the loader, as in the documents of AllocMonitor.
    let mut command = clean(Command::new(&program));
    command.env("LD_PRELOAD", "libPerfToolsAllocMonitorPreload.so");
    command.env("LD_LIBRARY_PATH", &libraries).env("TMPDIR", &place).current_dir(&place);
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(
        outcome.stdout,
        "job\n%MSG-s Events:\n9000 6 3 3000 5008\n%MSG\n\
         %MSG-s WholeJob:\n9600 8 8 0 5512\n%MSG\n"
    );
    let is_recording =
        |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".heaptide");
    let left = fs::read_dir(&place).expect("the directory").flatten();
    assert!(!left.into_iter().any(is_recording), "no recording is left");
}

/// MaxMemoryPreload prints its report at exit, without the command. The functions that pause it are
/// those of the preloaded library if the program defines its own in a library.
#[test]
fn max_memory_is_printed_at_exit() {
    let place = scratch("compat-max-memory");
    let program = place.join("job");
    let library = place.join("libpause.so");
    let found = format!("-Wl,-rpath,{}", place.display());
    build(
        "c++",
        "tests/compat/max_memory.cpp",
        &library,
        &["-shared", "-fPIC", "-Wl,--as-needed", "-DPAUSE"],
    );
    // Before the source, the library is needed by nothing yet; libstdc++ would allocate.
    let linked = "-Wl,--no-as-needed,-lpause,--as-needed";
    let flags = ["-L", place.to_str().expect("UTF-8"), &found, linked];
    build("c++", "tests/compat/max_memory.cpp", &program, &flags);
    let libraries = preload_libraries(&place);
    let names = ["libPerfToolsAllocMonitorPreload.so", "libPerfToolsMaxMemoryPreload.so"];
    let preload = names.map(|name| libraries.join(name).display().to_string()).join(":");
    let mut command = Command::new(&program);
    command.env_clear().env("LD_PRELOAD", preload).env("TMPDIR", &place).current_dir(&place);
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, ""));
    assert_eq!(
        outcome.stderr,
        "Memory Report: total memory requested: 105000\n\
         Memory Report:  max memory used: 100008\n\
         Memory Report:  presently used: 5000\n\
         Memory Report:  # allocations calls:   2\n\
         Memory Report:  # deallocations calls: 1\n"
    );
}
