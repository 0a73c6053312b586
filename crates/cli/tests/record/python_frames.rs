//! Python frames, with each installed CPython: names, lines and counts match the header of
//! `python_frames.py` in every version.

use crate::harness::{Guest, heaptide, programs, recorded, run, scratch};
use crate::programs::python;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Blocks by innermost functions: size, functions with the outer one first, and count.
const KNOWN: [(i128, &str, i128); 17] = [
    (100_001, "nested inner", 2),
    (100_002, "comprehend element", 3),
    (100_003, "generate produce", 4),
    (100_004, "work", 5),
    (100_005, "main handle", 1),
    (100_006, "compiled made", 1),
    (100_007, "wrapper decorated", 2),
    (100_008, "collect __del__", 2),
    (100_009, "run in_thread", 3),
    (100_010, "by_key key_of", 3),
    (100_011, "recurse recurse", 1),
    (100_012, "main in_child", 1),
    (100_013, "methods area", 2),
    (100_014, "main größe", 1),
    (100_015, "body Body", 1),
    (100_017, "by_function <lambda>", 3),
    (100_018, "two_lines called", 6),
];
/// Options that select these blocks.
const OF_BLOCKS: [&str; 4] = ["--min-size", "100002", "--max-size", "100020"];
/// The size of blocks of the generated functions.
const GENERATED: i128 = 100_016;

/// A frame: the unqualified name of the function, file, line.
type Frame = (String, String, i128);

/// Returns the interpreters 3.8 to 3.14: the one in PATH, the system's and those of pyenv, sorted
/// by version.
pub fn pythons() -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let of_pyenv = versions.into_iter().flatten().flatten();
    let of_pyenv = of_pyenv.map(|entry| entry.path().join("bin/python3"));
    let others = python().map(PathBuf::from).into_iter().chain([PathBuf::from("/usr/bin/python3")]);
    let all: BTreeSet<(u32, PathBuf)> = others
        .chain(of_pyenv)
        .filter_map(|file| Some((minor_version(&file)?, file)))
        .filter(|(minor, _)| (8..=14).contains(minor))
        .collect();
    all.into_iter().map(|(_, file)| file).collect()
}

/// Returns the second number of the version of Python 3; `None` for other programs.
fn minor_version(python: &Path) -> Option<u32> {
    let script = "import sys; print('%s.%s' % sys.version_info[:2])";
    let output = Command::new(python).args(["-S", "-c", script]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().strip_prefix("3.")?.parse().ok()
}

/// Returns the report of a recording with Python frames only.
fn report(recording: &Path, options: &[&str]) -> Value {
    let mut command = heaptide();
    command.args(["report", "--python", "only", "--format", "json"]).args(options).arg(recording);
    let output = command.output().expect("heaptide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the stacks of blocks, outermost frame first, and their counts, by the size requested for
/// the bytearray. Comprehensions have separate frames before 3.12.
fn stacks(report: &Value) -> BTreeMap<i128, BTreeMap<Vec<Frame>, i128>> {
    let mut all: BTreeMap<i128, BTreeMap<Vec<Frame>, i128>> = BTreeMap::new();
    for process in list(report, "processes") {
        let frame = |index: &Value| {
            let frame = &list(process, "frames")[index.as_u64().expect("an index") as usize];
            let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
            let name = text("function");
            let last = name.rsplit('.').next().filter(|_| !name.starts_with("<module"));
            (last.unwrap_or(&name).to_owned(), text("file"), number(frame, "line"))
        };
        for site in list(process, "sites") {
            let size = site["size"].as_i64().unwrap_or_default() as i128 - 1;
            if (100_001..=100_019).contains(&size) && !list(site, "stack").is_empty() {
                let frames = list(site, "stack").iter().map(frame);
                let frames = frames.filter(|(name, ..)| name != "<listcomp>").collect();
                let count = all.entry(size).or_default().entry(frames).or_default();
                *count += number(site, "allocations");
            }
        }
    }
    all
}

/// Returns the line of the program with this text.
fn line_of(text: &str) -> i128 {
    let source = fs::read_to_string(programs().join("python_frames.py")).expect("the program");
    let line = source.lines().position(|line| line.contains(text)).expect("a line");
    line as i128 + 1
}

fn record(python: &Path, place: &Path, arguments: &[&str], options: &[&str]) -> (PathBuf, i32) {
    let recording = place.join("x.heaptide");
    let _ = fs::remove_dir_all(&recording);
    let mut command = recorded(&recording, options);
    command.arg(python).arg(programs().join("python_frames.py")).args(arguments);
    let outcome = run(&mut command, place);
    (recording, outcome.status)
}

#[test]
fn functions_and_lines_are_those_of_the_program_in_every_version() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("python3");
    }
    let place = scratch("python-frames");
    for python in pythons {
        let shown = python.display();
        let (recording, status) = record(&python, &place, &[], &["--by-size"]);
        assert_eq!(status, 0, "{shown}");
        let report = report(&recording, &OF_BLOCKS);
        let stacks = stacks(&report);
        for (size, functions, count) in KNOWN {
            let found = stacks.get(&size).unwrap_or_else(|| panic!("{shown}: {size}: no stack"));
            assert_eq!(found.values().sum::<i128>(), count, "{shown}: {size}: {found:?}");
            for frames in found.keys() {
                let names: Vec<&str> = frames.iter().map(|(name, ..)| &**name).collect();
                let words: Vec<&str> = functions.split(' ').collect();
                assert!(names.ends_with(&words), "{shown}: {size}: {names:?}");
                let (_, file, line) = frames.last().expect("a frame");
                let made = size == 100_006;
                let expected = if made { 2 } else { line_of(&format!("bytearray({size})")) };
                assert_eq!(*line, expected, "{shown}: {size}");
                let name = if made { "made.py" } else { "python_frames.py" };
                assert!(file.ends_with(name), "{shown}: {size}: {file}");
                let callers = frames.iter().filter(|(name, ..)| name == "main").count();
                assert_eq!(callers, usize::from(size != 100_009), "{shown}: {size}: {names:?}");
                let depth = names.iter().filter(|name| **name == "recurse").count();
                assert_eq!(depth, if size == 100_011 { 1501 } else { 0 }, "{shown}: {size}");
            }
        }
        // The same frames at the same addresses, and only the line of the outer one differs.
        for comment in ["first", "second"] {
            let line = line_of(&format!("called()  # {comment}"));
            let from = |frames: &&Vec<Frame>| frames[frames.len() - 2].2 == line;
            let found: Vec<_> = stacks[&100_018].keys().filter(from).collect();
            assert_eq!((found.len(), stacks[&100_018][found[0]]), (1, 3), "{shown}: {comment}");
        }
        // The same frame at the same address, with or without another frame between it and the
        // outer one.
        for (callers, count) in [("main either resumed", 2), ("main either by_loop resumed", 2)] {
            let names = |frames: &Vec<Frame>| -> String {
                let names: Vec<&str> = frames.iter().map(|(name, ..)| &**name).collect();
                names.join(" ")
            };
            let found =
                stacks[&100_019].iter().filter(|(frames, _)| names(frames).ends_with(callers));
            assert_eq!(found.map(|(_, count)| count).sum::<i128>(), count, "{shown}: {callers}");
        }
        // Each code object is freed before the next one is created, usually at the same address.
        let generated = &stacks[&GENERATED];
        let expected: BTreeSet<String> = (0..300).map(|number| format!("f{number}")).collect();
        let names = generated.keys().filter_map(|frames| Some(frames.last()?.0.clone()));
        assert_eq!(names.collect::<BTreeSet<_>>(), expected, "{shown}");
        assert!(generated.values().all(|&count| count == 1), "{shown}");
    }
}

#[test]
fn python_frames_survive_sigkill() {
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-frames-killed");
    let (recording, status) = record(Path::new(&python), &place, &["kill"], &["--by-size"]);
    assert_eq!(status, 128 + 9);
    let found = &stacks(&report(&recording, &OF_BLOCKS))[&100_001];
    let frames: Vec<_> = found.keys().flat_map(|frames| frames.last()).collect();
    assert_eq!((frames[0].0.as_str(), frames[0].2), ("inner", line_of("bytearray(100001)")));
}

/// Returns the folded stacks of sorting.
fn folded(recording: &Path, python: &str) -> String {
    let mut command = heaptide();
    command.args(["export", "--format", "folded", "--metric", "allocations"]);
    command.args(["--python", python, "--focus", "key_of|list_sort|sorted"]).arg(recording);
    String::from_utf8(command.output().expect("heaptide runs").stdout).expect("text")
}

#[test]
fn python_and_native_frames_are_in_one_stack_in_their_order() {
    let script = "import functools\n\
        def key_of(number):\n    bytearray(100010)\n    return number\n\
        def by_key(): return sorted([3, 1, 2], key=key_of)\n\
        by_key()\n";
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-frames-mixed");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&python).args(["-c", script]);
    assert_eq!(run(&mut command, &place).status, 0);
    let mixed = folded(&recording, "mixed");
    let stack = mixed.lines().find(|line| line.contains(";key_of;")).expect("a mixed stack");
    let at = |name: &str| stack.find(name).unwrap_or_else(|| panic!("no {name}: {stack}"));
    assert!(at("<module <string>>") < at(";by_key;"), "{stack}");
    // Between the two is the interpreter's function that sorts, with or without a name.
    let between = &stack[at(";by_key;") + ";by_key;".len()..at(";key_of;")];
    assert!(!between.is_empty() && !between.contains("_PyEval_EvalFrameDefault"), "{stack}");
    let only = folded(&recording, "only");
    assert!(only.lines().any(|line| line.contains("<module <string>>;by_key;key_of ")), "{only}");
    let native = folded(&recording, "native");
    assert!(!native.contains("key_of"), "{native}");
}

/// The cell for a variable of an inner function is allocated before the first line is executed.
#[test]
fn what_prepares_a_call_is_of_the_first_line() {
    let script = "def outer():\n    held = 1\n    def inner():\n        return held\n\
        for _ in range(1000):\n    outer()\n";
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-first-line");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &[]);
    assert_eq!(run(command.arg(&python).args(["-c", script]), &place).status, 0);
    let report = report(&recording, &[]);
    let process = &list(&report, "processes")[0];
    let frames = list(process, "frames");
    let without_line: Vec<_> = frames.iter().filter(|frame| frame["line"].is_null()).collect();
    assert!(without_line.is_empty(), "{without_line:?}");
    let is_prepared = |site: &&Value| {
        let last = list(site, "stack").last().and_then(Value::as_u64);
        last.is_some_and(|last| {
            let frame = &frames[last as usize];
            frame["function"] == "outer" && number(frame, "line") == 1
        })
    };
    let prepared = list(process, "sites").iter().filter(is_prepared);
    let cells: i128 = prepared.map(|site| number(site, "allocations")).sum();
    assert!(cells >= 1000, "{cells}");
}

#[test]
fn mappings_have_python_frames() {
    let script = "import mmap\n\
        def maps():\n    return mmap.mmap(-1, 3 << 20)\n\
        kept = [maps() for _ in range(2)]\n";
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-mappings");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &[]);
    assert_eq!(run(command.arg(&python).args(["-c", script]), &place).status, 0);
    let report = report(&recording, &["--kind", "mapped"]);
    let process = &list(&report, "processes")[0];
    let is_mapped = |site: &&Value| number(site, "largest_bytes") == 3 << 20;
    let found: Vec<_> = list(process, "sites").iter().filter(is_mapped).collect();
    assert_eq!((found.len(), number(found[0], "allocations")), (1, 2), "{found:?}");
    let last = list(found[0], "stack").last().and_then(Value::as_u64).expect("a Python frame");
    let frame = &list(process, "frames")[last as usize];
    assert_eq!((frame["function"].as_str(), number(frame, "line")), (Some("maps"), 3));
}

/// Returns the library of an interpreter, if it has one, and its installation directory.
pub fn library_of(python: &Path) -> Option<(PathBuf, String)> {
    let script = "import sys, sysconfig as s\n\
        print(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME'), sys.base_prefix, sep='\\n')";
    let output = Command::new(python).args(["-c", script]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let file = Path::new(lines.next()?).join(lines.next()?);
    (file.exists() && file.to_string_lossy().contains(".so")).then_some(())?;
    Some((file, lines.next()?.to_owned()))
}

#[test]
fn an_interpreter_that_a_program_loads_later_has_its_frames() {
    let libraries: Vec<_> = pythons().iter().filter_map(|python| library_of(python)).collect();
    if libraries.is_empty() {
        return skip("libpython");
    }
    let program = Guest::read("python_embedded.c").build("python_embedded", &["-ldl"]);
    let leaves = Guest::read("leaves_plugin.c").build("leaves_plugin.so", &["-shared", "-fPIC"]);
    let place = scratch("python-embedded");
    for (library, home) in libraries {
        // Also a library that the program unloads, with and without finalizing the interpreter, and
        // after a destructor has left `dlclose`.
        for then in [None, Some("end"), Some("unload"), Some("leave")] {
            let shown = format!("{} {then:?}", library.display());
            let recording = place.join("x.heaptide");
            let _ = fs::remove_dir_all(&recording);
            let mut command = recorded(&recording, &["--by-size"]);
            command.arg(&program).arg(&library).args(then).env("PYTHONHOME", &home);
            command.args(then.filter(|then| *then == "leave").map(|_| &leaves));
            let outcome = run(&mut command, &place);
            assert_eq!(outcome.status, 0, "{shown}: {outcome:?}");
            let report = report(&recording, &OF_BLOCKS);
            let stacks = stacks(&report);
            let found: Vec<_> = stacks[&100_001].iter().collect();
            let frame = found[0].0.last().expect("a frame");
            assert_eq!((found.len(), *found[0].1), (1, 1), "{shown}: {found:?}");
            assert_eq!((&*frame.0, &*frame.1, frame.2), ("embedded", "<string>", 2), "{shown}");
            let sites =
                list(&report, "processes").iter().flat_map(|process| list(process, "sites"));
            let after = sites.filter(|site| site["size"].as_i64() == Some(100_003));
            assert_eq!(after.map(|site| number(site, "allocations")).sum::<i128>(), 1, "{shown}");
        }
    }
}

/// When an interpreter ends, it frees the states of running threads.
#[test]
fn threads_may_allocate_while_the_interpreter_ends() {
    let library = Guest::read("python_exit.c").build("python_exit.so", &["-shared", "-fPIC"]);
    let place = scratch("python-exit");
    for python in pythons() {
        let recording = place.join("x.heaptide");
        let _ = fs::remove_dir_all(&recording);
        let mut command = recorded(&recording, &[]);
        command.arg(&python).arg(programs().join("python_exit.py")).arg(&library);
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "end\n"), "{}", python.display());
    }
}

/// In 3.10, a thread state contains a pointer that is never initialized.
#[test]
fn memory_that_the_interpreter_never_set_is_not_followed() {
    let place = scratch("python-frames-perturbed");
    for python in pythons() {
        let recording = place.join("x.heaptide");
        let _ = fs::remove_dir_all(&recording);
        let mut command = recorded(&recording, &[]);
        command.arg(&python).arg(programs().join("python_frames.py"));
        command.env("MALLOC_PERTURB_", "165");
        assert_eq!(run(&mut command, &place).status, 0, "{}", python.display());
    }
}
