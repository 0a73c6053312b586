//! Interception: in real programs, how it is listed, and where the kernel prevents it.

use crate::harness::{
    Guest, OF_OUTER_BUILD, Outcome, check_with, clean, heaptide, recorded, report, run, scratch,
};
use crate::programs::is_installed;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The status of `starts_confined.c` if the kernel does not have the restriction.
const NOT_HERE: i32 = 77;

/// Records a program with `heaptide run`, started by `starts_confined.c` in this mode.
fn confined(mode: &str, options: &[&str], program: &Path, place: &Path) -> Outcome {
    let start = Guest::read("starts_confined.c").build("starts_confined.c", &[]);
    let heaptide = heaptide();
    let mut command = Command::new(start);
    command.arg(mode).arg(heaptide.get_program()).args(["run", "--force", "-o"]);
    command.arg(place.join("a.heaptide")).args(options).arg("--").arg(program);
    run(&mut clean(command), place)
}

fn program(name: &str) -> std::path::PathBuf {
    Guest::read(name).build(name, &[])
}

#[test]
fn code_that_may_not_be_changed_is_left_alone() {
    let place = scratch("interception-refused");
    let program = program("intercepted.c");
    for mode in ["mdwe", "errno"] {
        let outcome = confined(mode, &[], &program, &place);
        if outcome.status == NOT_HERE {
            skip(mode);
            continue;
        }
        assert_eq!((outcome.status, &*outcome.stdout), (0, "1\n"), "{mode}: {}", outcome.stderr);
        let missing = outcome.stderr.lines().filter(|line| line.contains("missing"));
        let missing: Vec<&str> = missing.collect();
        assert!(missing.len() == 1 && missing[0].contains("defines malloc"), "{mode}: {missing:?}");
        let info = run(heaptide().arg("info").arg(place.join("a.heaptide")), &place);
        assert!(info.stdout.contains("does not allow its code to be changed"), "{}", info.stdout);
    }
}

/// Functions begin with `bti` or `paciasp`, as in all packages of Debian 13.
#[test]
#[cfg_attr(not(target_arch = "aarch64"), ignore = "the compiler has no such option")]
fn entries_that_sign_the_return_address_stay() {
    check_with("intercepted.c", "intercepted-signed", &["-mbranch-protection=standard"], &[]);
}

/// `info` lists which functions of which allocator are intercepted, and where.
#[test]
fn what_is_intercepted_is_listed() {
    let place = scratch("interception-listed");
    let recording = place.join("a.heaptide");
    let listed = |name: &str| {
        let guest = Guest::read(name);
        let program = guest.build(name, &[]);
        let mut command = heaptide();
        command.args(["run", "--force", "-o"]).arg(&recording).arg("--").arg(&program);
        let outcome = run(clean(command).args(guest.arguments()), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        run(heaptide().arg("info").arg(&recording), &place).stdout
    };
    let own = listed("intercepted.c");
    let line = own.lines().find(|line| line.contains("intercepted in ")).expect("a line");
    let words = ["intercepted-c: malloc free", " realloc ", " calloc "];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    let library = listed("family.c");
    let line = "family_plugin.so: _rjem_ ";
    assert!(library.lines().filter(|found| found.contains(line)).count() == 1, "{library}");
    assert!(!listed("leaks.c").contains("allocators"));
}

/// A child process tries whether a filter ends processes for making memory executable.
#[test]
fn a_filter_that_punishes_changes_of_code_is_not_provoked() {
    let place = scratch("interception-punished");
    let ordinary = confined("kill", &[], &program("plain.c"), &place);
    if ordinary.status == NOT_HERE {
        return skip("seccomp");
    }
    assert_eq!(ordinary.status, 5, "{}", ordinary.stderr);
    let totals = &report(&place.join("a.heaptide"), &place)["processes"][0]["totals"];
    assert!(totals["allocations"].as_u64() > Some(0), "{totals}");
    let intercepted = program("intercepted.c");
    for (options, lines) in [(&[][..], 1), (&["--no-intercept"], 0)] {
        let left_alone = confined("kill", options, &intercepted, &place);
        assert_eq!((left_alone.status, &*left_alone.stdout), (0, "1\n"), "{}", left_alone.stderr);
        let announced = left_alone.stderr.lines().filter(|line| line.contains("seccomp filter"));
        assert_eq!(announced.count(), lines, "{}", left_alone.stderr);
    }
}

/// Returns the maximum number of allocations of an image with this file name whose `functions` are
/// intercepted; 0 if there is none.
fn intercepted_allocations(recording: &Path, place: &Path, program: &str, functions: &str) -> i128 {
    let report = report(recording, place);
    let is_it = |process: &&serde_json::Value| {
        let file = process["program"].as_str().unwrap_or_default();
        let found = list(process, "interceptions").iter().any(|interception| {
            let listed = interception["functions"].as_str().unwrap_or_default();
            interception["is_intercepted"] == true && listed.starts_with(functions)
        });
        file.rsplit('/').next().is_some_and(|name| name.starts_with(program)) && found
    };
    let allocations = |process: &serde_json::Value| number(&process["totals"], "allocations");
    list(&report, "processes").iter().filter(is_it).map(allocations).max().unwrap_or(0)
}

/// An inlined fast path is detected when its slow path is entered. Without a symbol of the slow
/// path, it is not excluded.
#[test]
fn inlined_functions_are_reported() {
    let place = scratch("interception-inlined");
    let missing = |name: &str, arguments: &[String]| {
        let mut command = recorded(&place.join("a.heaptide"), &["--force"]);
        command.arg(program(name)).args(arguments);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let process = &list(&report(&place.join("a.heaptide"), &place), "processes")[0].clone();
        let notes = list(process, "notes").iter().filter_map(|note| note.as_str());
        notes.filter(|note| note.contains("inlined")).map(str::to_owned).collect::<Vec<_>>()
    };
    let inlined = Guest::read("inlined.c").arguments();
    let called = inlined[0].replace("inlined_plugin", "called_plugin");
    let found = missing("inlined.c", &inlined);
    assert!(found.len() == 1 && found[0].contains("the compiler inlined functions"), "{found:?}");
    assert_eq!(missing("inlined.c", &[called]), Vec::<String>::new());
    let found = missing("prefixed.c", &Guest::read("prefixed.c").arguments());
    assert!(found.len() == 1 && found[0].contains("if the compiler inlined"), "{found:?}");
}

/// An allocator that is only known by its names is reported; functions around `malloc` are not.
#[test]
fn allocators_of_unknown_families_are_announced() {
    let place = scratch("interception-unknown");
    let guest = Guest::read("unknown_family.c");
    let own = guest.arguments().remove(0);
    let others = Guest::read("prefixed.c").arguments();
    let notes = |library: &str| {
        let mut command = recorded(&place.join("a.heaptide"), &["--force"]);
        let outcome = run(command.arg(program("unknown_family.c")).arg(library), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let process = &list(&report(&place.join("a.heaptide"), &place), "processes")[0].clone();
        let notes = list(process, "notes").iter().filter_map(|note| note.as_str());
        notes.filter(|note| note.contains("not recorded")).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = "the program has its own allocator (zz_malloc, zz_free), whose functions are \
                    only known by their names: its allocations are not recorded";
    let named = |name: &str| own.replace("unknown_plugin.so", name);
    for library in ["unknown_plugin.so", "unknown_with_malloc.so", "unknown_stripped.so"] {
        assert_eq!(notes(&named(library)), [expected], "{library}");
    }
    // Every block of libsodium is a mapping, and few programs that link it allocate any.
    for library in ["unknown_wrapper.so", "unknown_pointers.so", "unknown_secrets.so"] {
        assert_eq!(notes(&named(library)), [""; 0], "{library}");
    }
    let wrapper = others.iter().find(|file| file.contains("wrapper")).expect("a library");
    program("prefixed.c");
    for library in [wrapper, &others[0]] {
        let notes: Vec<_> = notes(library);
        assert!(!notes.iter().any(|note| note.contains("by their names")), "{notes:?}");
    }
}

/// An audit library has a C library of its own, whose blocks are recorded.
#[test]
fn an_audit_library_is_recorded() {
    let audit = Guest::read("audited.c").build_plugins().join("audit.so");
    let audit = audit.to_str().expect("a path");
    check_with("audited.c", "audited-recorded", &[], &[("LD_AUDIT", audit)]);
}

/// Records a shell script, without stacks.
fn recorded_script(place: &Path, script: &str) -> Outcome {
    let mut command = recorded(&place.join("a.heaptide"), &["--mode", "scopes"]);
    command.args(["sh", "-c", script]).current_dir(place);
    OF_OUTER_BUILD.iter().for_each(|name| _ = command.env_remove(name));
    run(&mut command, place)
}

#[test]
fn rustc_compiles_a_crate() {
    if !is_installed("rustc") {
        return skip("rustc");
    }
    let place = scratch("interception-rustc");
    fs::write(place.join("a.rs"), "pub fn a() -> String { 1.to_string() }\n").expect("a source");
    let outcome = recorded_script(&place, "rustc --crate-type lib --emit metadata a.rs");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let found = intercepted_allocations(&place.join("a.heaptide"), &place, "rustc", "malloc free");
    assert!(found > 3_000, "{found} allocations");
}

#[test]
fn chromium_prints_a_page() {
    if !is_installed("chromium") {
        return eprintln!("no chromium here");
    }
    let place = scratch("interception-chromium");
    let script = "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/profile \
                  --print-to-pdf=$PWD/page.pdf about:blank 2>/dev/null";
    let outcome = recorded_script(&place, script);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(fs::read(place.join("page.pdf")).is_ok_and(|page| page.starts_with(b"%PDF")));
    let recording = place.join("a.heaptide");
    let found = intercepted_allocations(&recording, &place, "chromium", "malloc free");
    assert!(found > 100_000, "{found} allocations");
}

#[test]
fn polars_sorts_a_column() {
    let place = scratch("interception-polars");
    let script = "import polars; polars.DataFrame({'a': range(1_000_000)}).sort('a')";
    let mut bare = Command::new("python3");
    if !bare.args(["-c", script]).output().is_ok_and(|output| output.status.success()) {
        return eprintln!("no polars here");
    }
    let outcome = recorded_script(&place, &format!("exec python3 -c \"{script}\""));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let recording = place.join("a.heaptide");
    assert!(intercepted_allocations(&recording, &place, "python", "_rjem_") > 1_000);
    let report = report(&recording, &place);
    let requested = |process: &serde_json::Value| number(&process["totals"], "requested_bytes");
    let most = list(&report, "processes").iter().map(requested).max();
    assert!(most > Some(8_000_000), "{most:?}");
}

/// `libc_malloc_debug.so.0` of glibc.
const DEBUG_MALLOC: (&str, &str) = ("LD_PRELOAD", "libc_malloc_debug.so.0");

/// Its functions have versions that only references to them take.
#[test]
fn a_debugging_malloc_sees_the_calls_of_the_program() {
    check_with("debug_malloc.c", "debug-malloc", &[], &[DEBUG_MALLOC]);
}

#[test]
fn a_debugging_malloc_still_aborts_the_program() {
    let place = scratch("interception-malloc-check");
    let program = program("debug_malloc.c");
    let environment = [DEBUG_MALLOC, ("MALLOC_CHECK_", "3")];
    let status =
        |mut command: Command| run(command.envs(environment).arg("overrun"), &place).status;
    const SIGABRT: i32 = 6;
    assert_eq!(status(clean(Command::new(&program))), 128 + SIGABRT, "bare");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    command.arg(&program);
    assert_eq!(status(command), 128 + SIGABRT, "recorded");
    let library = crate::harness::library();
    let mut before = clean(Command::new(&program));
    before.env("HEAPTIDE_OUTPUT", place.join("b.heaptide")).args(["overrun"]);
    before.env("LD_PRELOAD", format!("{}:{}", DEBUG_MALLOC.1, library.display()));
    let outcome = run(before.env("MALLOC_CHECK_", "3"), &place);
    assert_eq!(outcome.status, 128 + SIGABRT, "preloaded before the recorder");
    let report = report(&place.join("b.heaptide"), &place);
    let found = &list(&list(&report, "processes")[0], "interceptions")[0];
    assert_eq!(found["is_intercepted"], true, "{found}");
}
