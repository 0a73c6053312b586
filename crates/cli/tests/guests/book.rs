//! The commands of each page of the book run in their order, and print what the page shows.
//!
//! `UPDATE_EXPECT=1 cargo test -p heaptide-cli --test guests book` writes the outputs anew.
//! `page.rs` explains how pages are written, `masks.rs` what may differ.
//!
//! A command whose status is not 0 is followed by `echo $?`, so that the page shows the status.
//! Names of functions, lines and sizes depend on compiler and C library: outputs are compared
//! where these are [`TOOLS`]. Elsewhere all commands have to have the statuses of the page.

mod masks;
mod page;

use crate::harness::{OF_OUTER_BUILD, Outcome, clean, programs, run, scratch};
use heaptide_fixtures::skips::{reader, skip};
use masks::is_same;
use page::{Page, Step};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What made the outputs of the pages: what a page needs, commands, and how what they print begins.
const TOOLS: &[(&str, &[&str], &str)] = &[
    ("", &["getconf", "GNU_LIBC_VERSION"], "glibc 2.36"),
    ("cc", &["cc", "-dumpfullversion"], "12.2.0"),
    ("g++", &["g++", "-dumpfullversion"], "12.2.0"),
    ("mpirun", &["mpichversion"], "MPICH Version:    \t4.0.2"),
    ("python3", &["python3", "--version"], "Python 3.11.7"),
    ("rustc", &["rustc", "--version"], "rustc 1.95.0"),
];
/// The name that leaves out the comparison of outputs where the tools are others.
const OUTPUTS: &str = "book-outputs";

/// What the pages show in place of the directory in which their commands run.
const SHOWN_DIRECTORY: &str = "/src";

/// Begins the line before each output, which has the number of its command and the status of the
/// one before.
const MARK: &str = "=== command ";

fn root() -> PathBuf {
    programs().join("../..")
}

/// The pages that the table of contents lists, from `docs`.
fn listed() -> Vec<String> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("SUMMARY.md");
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Runs the commands of a page, and compares or rewrites their outputs.
fn check(name: &str) {
    let path = root().join("docs").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let page = Page::parse(&text);
    if let Some(missing) = page.needs.iter().find(|need| !is_here(need)) {
        return skip(missing);
    }
    let place = scratch(&format!("book-{}", name.replace(['/', '.'], "-")));
    page.files.iter().for_each(|files| copy(&root().join(files), &place));
    let outputs = outputs(&page, &place);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let same = |step: &Step, found: &str| difference(step, found).is_none();
        return fs::write(&path, page.with_outputs(&outputs, same)).expect("the page");
    }
    if is_made_here(&page) {
        let differences: Vec<String> =
            page.steps().zip(&outputs).filter_map(|(step, found)| difference(step, found)).collect();
        let count = differences.len();
        assert!(differences.is_empty(), "docs/{name}: {count} outputs\n{}", differences.join("\n"));
    } else {
        skip(OUTPUTS);
    }
}

/// Runs all commands of a page in one shell; their outputs.
fn outputs(page: &Page, place: &Path) -> Vec<String> {
    let script = place.join("../").join(format!("{}.sh", place.file_name().expect("a name").display()));
    fs::write(&script, script_of(page)).expect("the script");
    let mut shell = clean(Command::new("bash"));
    crate::merging::without_launchers(&mut shell);
    shell.arg(&script).current_dir(place).env("PATH", path_of(page)).env("LC_ALL", "C.UTF-8");
    shell.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    shell.env_remove("PYTHONMALLOC").env("PYTHONHASHSEED", "0").env("HEAPTIDE_PAGER", "");
    OF_OUTER_BUILD.iter().for_each(|name| _ = shell.env_remove(name));
    let Outcome { status, stdout, stderr } = run(&mut shell, &place.join(".."));
    assert_eq!((status, &*stderr), (0, ""), "{stdout}");
    let place = fs::canonicalize(place).expect("the directory");
    let mut stdout = stdout.replace(&*place.to_string_lossy(), SHOWN_DIRECTORY);
    for prefix in prefixes(page) {
        stdout = stdout.replace(&prefix, "/usr");
    }
    let mut parts = stdout.split(MARK).skip(1).map(|part| part.split_once('\n').expect("a line"));
    let mut outputs = Vec::new();
    let mut before = "0";
    for (number, step) in page.steps().enumerate() {
        let (head, output) = parts.next().unwrap_or_else(|| panic!("{}: not run", step.command));
        let (found, status) = head.split_once(' ').expect("a number and a status");
        assert_eq!(found, number.to_string(), "the output of another command");
        let shows_status = step.command.starts_with("echo $?");
        let failed = status != "0" && !shows_status;
        assert!(!failed, "exit status {status} before `{}`:\n{before}", step.command);
        outputs.push(output.strip_suffix('\n').unwrap_or(output).to_owned());
        before = output;
    }
    outputs
}

/// All commands, with a mark before the output of each. The status of a command stays for the next.
fn script_of(page: &Page) -> String {
    let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\ntrue\n".to_owned();
    let mark = |number: usize| {
        format!("status=$?; printf '{MARK}{number} %s\\n' $status; (exit $status)\n")
    };
    for (number, step) in page.steps().enumerate() {
        script += &format!("{}{}\n", mark(number), step.command);
        script += "status=$?; echo; (exit $status)\n";
    }
    let end = page.steps().count();
    script + "status=$?; [ $status = 0 ] || echo \"exit status $status at the end\" >&2; " + 
        &format!("printf '{MARK}{end} %s\\n' $status\n")
}

/// The command under test first, and programs of `cargo xtask setup` if the page needs them.
fn path_of(page: &Page) -> std::ffi::OsString {
    let own = Path::new(env!("CARGO_BIN_EXE_heaptide")).parent().expect("a directory");
    let mut paths = vec![own.to_owned()];
    let needs = |name: &str| page.needs.iter().any(|need| need == name);
    if needs("python-readers") {
        paths.push(reader("python").join("bin"));
    } else if needs("python3") {
        paths.extend(python());
    }
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    paths.extend(std::env::split_paths(&inherited));
    std::env::join_paths(paths).expect("a path")
}

/// Where the interpreter itself is: `python3` may be a script that looks for it.
fn python() -> Option<PathBuf> {
    asked(Path::new("python3"), "os.path.dirname(sys.executable)").pop().map(PathBuf::from)
}

/// Directories of the interpreter of a page, which pages show as `/usr`.
fn prefixes(page: &Page) -> Vec<String> {
    if page.needs.iter().any(|need| need == "python-readers") {
        asked(&reader("python").join("bin/python"), "sys.prefix, sys.base_prefix")
    } else {
        asked(Path::new("python3"), "sys.prefix")
    }
}

/// What an interpreter prints, by lines; nothing if there is none.
fn asked(python: &Path, values: &str) -> Vec<String> {
    let code = format!("import os, sys; print({values}, sep='\\n')");
    let output = Command::new(python).args(["-c", &code]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Where the page and what was printed differ.
fn difference(step: &Step, found: &str) -> Option<String> {
    let shown = step.shown(found);
    let page: Vec<&str> = step.output.iter().map(String::as_str).collect();
    let same = |at: &usize| {
        let line = page.get(*at).zip(shown.get(*at));
        line.is_some_and(|(expected, found)| is_same(expected, found, step.compared))
    };
    let at = (0..page.len()).take_while(same).count();
    if at == page.len() && at == shown.len() {
        return None;
    }
    let line = |lines: &[&str]| lines.get(at).map_or("nothing", |line| line).to_owned();
    let (expected, found, number) = (line(&page), line(&shown), at + 1);
    Some(format!("`{}`, line {number}\n  page:  {expected}\n  found: {found}", step.command))
}

/// Whether the machine has a program, or what `cargo xtask setup` calls by this name.
fn is_here(need: &str) -> bool {
    match need {
        "python-readers" => reader("python").join("bin/python").exists(),
        "heaptide-sql" => Path::new(env!("CARGO_BIN_EXE_heaptide")).with_file_name(need).exists(),
        program => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|directory| directory.join(program).exists())
        }
    }
}

/// Whether the tools that the page needs are those that made its outputs.
fn is_made_here(page: &Page) -> bool {
    let of_page = |need: &str| need.is_empty() || page.needs.iter().any(|own| own == need);
    TOOLS.iter().all(|(need, command, version)| !of_page(need) || prints(command, version))
}

fn prints(command: &[&str], beginning: &str) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(beginning))
}

/// Copies a file, or what a directory contains.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to.join(from.file_name().expect("a name"))).expect("a copy");
        return;
    }
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())) {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { copy(&entry.path(), to.parent().expect("a directory")) }
    }
}

macro_rules! pages {
    ($($test:ident: $page:literal;)*) => {
        /// Pages with commands.
        const PAGES: &[&str] = &[$($page),*];

        $(#[test]
        fn $test() {
            check($page);
        })*
    };
}

pages! {
    first_profile: "first-profile.md";
    leaking_service: "tasks/leaking-service.md";
    python_job: "tasks/python-job.md";
    rust_server: "tasks/rust-server.md";
    mpi_slurm: "tasks/mpi-slurm.md";
    kubernetes: "tasks/kubernetes.md";
    ci_budgets: "tasks/ci-budgets.md";
    jupyter: "tasks/jupyter.md";
    from_heaptrack: "from/heaptrack.md";
    from_memray: "from/memray.md";
    from_bytehound: "from/bytehound.md";
    from_massif_dhat: "from/massif-dhat.md";
    from_jemalloc_tcmalloc: "from/jemalloc-tcmalloc.md";
    from_dhat_rs: "from/dhat-rs.md";
    from_leak_sanitizer: "from/leak-sanitizer.md";
    from_perf: "from/perf.md";
    from_caliper: "from/caliper.md";
    from_malloc_tag: "from/malloc-tag.md";
    from_malloc_profiler: "from/malloc-profiler.md";
    from_alloc_monitor: "from/alloc-monitor.md";
}

#[test]
fn every_page_with_commands_is_run() {
    let has_commands = |page: &String| {
        let text = fs::read_to_string(root().join("docs").join(page)).expect(page);
        Page::parse(&text).steps().next().is_some()
    };
    let listed: Vec<String> = listed().into_iter().filter(has_commands).collect();
    assert_eq!(listed, PAGES);
}
