//! Runs the commands of each page of the book in order, and compares their output with the page.
//!
//! `UPDATE_EXPECT=1 cargo test -p heaptide-cli --test slow book` rewrites the outputs. `page.rs`
//! describes the format of pages, `masks.rs` what may differ.
//!
//! A command with a status other than 0 is followed by `echo $?`, so that the page shows the
//! status. Names of functions, lines and sizes depend on compiler and C library, so outputs are
//! only compared where these are [`TOOLS`]. Elsewhere only the statuses are compared.

mod masks;
mod page;

use crate::harness::{OF_OUTER_BUILD, Outcome, clean, heaptide, programs, run, scratch};
use crate::programs::{is_installed, python};
use heaptide_fixtures::skips::{reader, skip};
use masks::is_same;
use page::{Compared, Page, Step};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The versions that the outputs of the pages are from: the need of a page, a command, and the
/// beginning of its output.
const TOOLS: &[(&str, &[&str], &str)] = &[
    ("", &["getconf", "GNU_LIBC_VERSION"], "glibc 2.36"),
    ("cc", &["cc", "-dumpfullversion"], "12.2.0"),
    ("g++", &["g++", "-dumpfullversion"], "12.2.0"),
    ("mpirun", &["mpichversion"], "MPICH Version:    \t4.0.2"),
    ("mpirun", &["mpirun", "--version"], "HYDRA build details:"),
    ("python3", &["python3", "--version"], "Python 3.11.7"),
    ("rustc", &["rustc", "--version"], "rustc 1.95.0"),
];
/// The name under which the comparison of outputs is skipped if the versions differ.
const OUTPUTS: &str = "book-outputs";

/// The path that pages show for the directory of their commands.
const SHOWN_DIRECTORY: &str = "/src";

/// The beginning of the separator after the output of a command, followed by its status.
const MARK: &str = "=== exit status ";

fn root() -> PathBuf {
    programs().join("../..")
}

/// Returns the pages in the table of contents, relative to `docs`.
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
    let directory = place.join("src");
    fs::create_dir(&directory).expect("a directory");
    page.files.iter().for_each(|files| copy(&root().join(files), &directory));
    let outputs = outputs(&page, &place);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let same = |step: &Step, found: &str| difference(step, found).is_none();
        let updated = page.with_outputs(&outputs, same);
        let kept = path.with_extension("");
        if updated != text || page.writes.iter().any(|file| !kept.join(name_of(file)).exists()) {
            page.writes.iter().for_each(|file| keep(file, &page, &directory, &kept));
        }
        return fs::write(&path, updated).expect("the page");
    }
    for file in page.writes.iter().filter(|file| picture_of(file).is_none()) {
        let written = fs::metadata(directory.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(written.len() > 0, "{file} is empty");
    }
    if is_made_here(&page) {
        let differences: Vec<String> = page
            .steps()
            .zip(&outputs)
            .filter_map(|(step, found)| difference(step, found))
            .collect();
        let count = differences.len();
        assert!(differences.is_empty(), "docs/{name}: {count} outputs\n{}", differences.join("\n"));
    } else {
        skip(OUTPUTS);
    }
}

/// Returns the name of a written file, without the page that it is a picture of.
fn name_of(written: &str) -> &str {
    written.split(" of ").next().unwrap_or(written)
}

/// Returns the page that a written file is a picture of.
fn picture_of(written: &str) -> Option<&str> {
    written.split_once(" of ").map(|(_, page)| page)
}

/// Stores a file that the commands of a page wrote, or a picture of a stored one.
fn keep(written: &str, page: &Page, from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let kept = to.join(name_of(written));
    let Some(html) = picture_of(written) else {
        let text =
            fs::read_to_string(from.join(written)).unwrap_or_else(|e| panic!("{written}: {e}"));
        return fs::write(kept, neutral(&text, page, from)).expect("a file");
    };
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,1400"]);
    browser.arg(format!("--screenshot={}", kept.display())).arg(to.join(html));
    assert!(browser.output().expect("chromium").status.success(), "{written}");
}

/// Replaces the paths of this machine in a text: the directory of the commands, and prefixes of
/// Python.
fn neutral(text: &str, page: &Page, directory: &Path) -> String {
    let directory = fs::canonicalize(directory).expect("the directory");
    let text = text.replace(&*directory.to_string_lossy(), SHOWN_DIRECTORY);
    prefixes(page).iter().fold(text, |text, prefix| text.replace(prefix, "/usr"))
}

/// Runs all commands of a page in one shell, in the directory `src` of `place`, and returns their
/// outputs.
fn outputs(page: &Page, place: &Path) -> Vec<String> {
    let (script, directory) = (place.join("page.sh"), place.join("src"));
    fs::write(&script, script_of(page)).expect("the script");
    let mut shell = clean(Command::new("bash"));
    crate::programs::without_launchers(&mut shell);
    shell.arg(&script).current_dir(&directory).env("PATH", path_of(page)).env("LC_ALL", "C.UTF-8");
    shell.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    shell.env_remove("PYTHONMALLOC").env("PYTHONHASHSEED", "0").env("HEAPTIDE_PAGER", "");
    // Open MPI refuses to run as root, or more ranks than cores, without these.
    shell.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    shell.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    OF_OUTER_BUILD.iter().for_each(|name| _ = shell.env_remove(name));
    let Outcome { status, stdout, stderr } = run(&mut shell, place);
    assert_eq!((status, &*stderr), (0, ""), "{stdout}");
    let stdout = neutral(&stdout, page, &directory);
    // The first part is before the first command. Each other part has the status of the previous
    // command and the output of the next.
    let mut parts = stdout.split(MARK);
    let mut output = parts.next().and_then(|_| parts.next()).map(output_of);
    let mut outputs = Vec::new();
    for (step, next) in page.steps().zip(page.steps().skip(1).map(Some).chain([None])) {
        let Some((_, text)) = output else { panic!("`{}` was not run", step.command) };
        let (status, after) = parts.next().map(output_of).unwrap_or(("unknown", ""));
        let is_shown = next.is_some_and(|next| next.command.starts_with("echo $?"));
        assert!(status == "0" || is_shown, "`{}`: exit status {status}\n{text}", step.command);
        outputs.push(if is_run(step) { without_notices(text) } else { step.output.join("\n") });
        output = Some((status, after));
    }
    outputs
}

/// Splits a part into the status of the previous command and the output of the next.
fn output_of(part: &str) -> (&str, &str) {
    part.split_once('\n').expect("a status")
}

/// Removes the line in which the shell of a script reports a killed job, because interactive shells
/// print it at another time.
fn without_notices(output: &str) -> String {
    let output = output.strip_suffix('\n').unwrap_or(output);
    let is_notice = |line: &&str| line.contains("page.sh: line ") && line.contains(" Killed ");
    output.lines().filter(|line| !is_notice(line)).map(|line| format!("{line}\n")).collect()
}

/// Returns a script with all commands, and separators around their outputs. `$?` of a command is
/// kept for the next.
fn script_of(page: &Page) -> String {
    let mark = format!("status=$?; printf '{MARK}%s\\n' $status; (exit $status)\n");
    let mut script = format!("exec 2>&1\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\ntrue\n{mark}");
    for step in page.steps() {
        let command = if is_run(step) { &step.command } else { "true" };
        script += &format!("{command}\nstatus=$?; echo; (exit $status)\n{mark}");
    }
    script + "true\n"
}

/// Returns the `PATH` for a page: the command under test first, then programs of `cargo xtask
/// setup` that the page needs.
fn path_of(page: &Page) -> std::ffi::OsString {
    let own = Path::new(env!("CARGO_BIN_EXE_heaptide")).parent().expect("a directory");
    let mut paths = vec![own.to_owned()];
    let needs = |name: &str| page.needs.iter().any(|need| need == name);
    if needs("python-readers") {
        paths.push(reader("python").join("bin"));
    } else if needs("python3") {
        paths.extend(python().and_then(|path| Some(Path::new(&path).parent()?.to_owned())));
    }
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    paths.extend(std::env::split_paths(&inherited));
    std::env::join_paths(paths).expect("a path")
}

/// Returns the directories of the page's Python, which pages show as `/usr`.
fn prefixes(page: &Page) -> Vec<String> {
    if page.needs.iter().any(|need| need == "python-readers") {
        asked(&reader("python").join("bin/python"), "sys.prefix, sys.base_prefix")
    } else {
        asked(Path::new("python3"), "sys.prefix")
    }
}

/// Returns the lines that Python prints for an expression; none without Python.
fn asked(python: &Path, values: &str) -> Vec<String> {
    let code = format!("import os, sys; print({values}, sep='\\n')");
    let output = Command::new(python).args(["-c", &code]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Describes the difference between the page and the actual output.
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
    if step.compared == Compared::Varies && !shown.is_empty() {
        return None;
    }
    let line = |lines: &[&str]| lines.get(at).map_or("nothing", |line| line).to_owned();
    let (expected, found, number) = (line(&page), line(&shown), at + 1);
    Some(format!("`{}`, line {number}\n  page:  {expected}\n  found: {found}", step.command))
}

/// Returns whether to run the step: most builds have no `heaptide-sql`.
fn is_run(step: &Step) -> bool {
    !step.needs_sql || is_here("heaptide-sql")
}

/// Returns whether the machine has a program, or a tool of `cargo xtask setup`.
fn is_here(need: &str) -> bool {
    match need {
        "python-readers" => reader("python").join("bin/python").exists(),
        "heaptide-sql" => Path::new(env!("CARGO_BIN_EXE_heaptide")).with_file_name(need).exists(),
        program => is_installed(program),
    }
}

/// Returns whether the tools that the page needs have the versions that its outputs are from.
fn is_made_here(page: &Page) -> bool {
    let of_page = |need: &str| need.is_empty() || page.needs.iter().any(|own| own == need);
    TOOLS.iter().all(|(need, command, version)| !of_page(need) || prints(command, version))
}

fn prints(command: &[&str], beginning: &str) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(beginning))
}

/// Copies a file, or the contents of a directory, into a directory.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(contents(from)).arg(to).status();
    assert!(copied.expect("cp").success(), "{}", from.display());
}

/// Returns the argument of `cp` for the contents of a directory.
fn contents(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(".") } else { path.to_owned() }
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
    gallery: "gallery.md";
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
    findings: "advise.md";
    differences: "diff.md";
    limits: "check.md";
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

/// Documents besides the book whose commands must be accepted.
const DOCUMENTS: [&str; 2] = ["README.md", "python/README.md"];
/// Placeholders in documents, and a value for each.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("PID", "4711"), ("BYTES", "4096"), ("ACTION", "status"), ("process|host|rank", "rank")];

/// Returns the commands in a document, as words up to the program to run: those in blocks of the
/// shell, and those between backquotes.
fn commands(text: &str) -> Vec<Vec<String>> {
    let (mut commands, mut fence) = (Vec::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, Some("sh" | "")) => commands.push(line),
            (None, Some(_)) => {}
            (None, None) => commands.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    commands.into_iter().filter_map(words_of).collect()
}

/// Returns the words after `heaptide`, up to a program to run or the end of the command.
fn words_of(text: &str) -> Option<Vec<String>> {
    let text = text.replace("\\|", "|");
    let words = shlex::split(&text)?;
    let start = words.iter().position(|word| word == "heaptide")?;
    let is_setting = |word: &String| word.contains('=') && !word.starts_with('-');
    if !words[..start].iter().all(is_setting) {
        return None;
    }
    let ends = |word: &&String| {
        ["--", "|", "&&", "||", "&", ">", ";", "#"].contains(&word.as_str())
            || word.starts_with("./")
    };
    let words = words[start + 1..].iter().take_while(|word| !ends(word));
    let value = |word: &String| {
        let found = PLACEHOLDERS.iter().find(|(name, _)| name == word);
        found.map_or(word.clone(), |(_, value)| (*value).to_owned())
    };
    let mut words: Vec<String> = words.map(value).collect();
    // A text can mention an option without its value.
    words.pop_if(|word| word.starts_with('-'));
    let is_command = words.first()?.starts_with(|c: char| c.is_ascii_lowercase());
    is_command.then_some(words)
}

#[test]
fn every_command_of_the_documents_is_accepted() {
    // The other documents of the book are about the project, and the changelog mentions former
    // options.
    let pages =
        listed().into_iter().filter(|page| !page.starts_with("../") && page != "options.md");
    let pages = pages.map(|page| format!("docs/{page}")).chain(DOCUMENTS.map(str::to_owned));
    let mut count = 0;
    let mut refused = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root().join(&page)).expect(&page);
        for words in commands(&text) {
            count += 1;
            // `--help` succeeds only if the words before it are accepted.
            let output = heaptide().args(&words).arg("--help").output().expect("heaptide");
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                let error = error.lines().next().unwrap_or("").to_owned();
                refused.push(format!("{page}: heaptide {}: {error}", words.join(" ")));
            }
        }
    }
    assert!(count > 400, "found {count} commands only");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// YAML files that the book uses.
const YAML: [&str; 4] = [
    "examples/book/kubernetes/service.yaml",
    "examples/book/kubernetes/reader.yaml",
    "examples/ci/workflow.yml",
    "examples/ci/gitlab-ci.yml",
];

#[test]
fn files_for_other_systems_are_yaml() {
    if !prints(&["python3", "-c", "import yaml; print('here')"], "here") {
        return skip("yaml");
    }
    let code = "import sys, yaml\n\
                for path in sys.argv[1:]:\n\
                \x20   documents = list(yaml.safe_load_all(open(path)))\n\
                \x20   assert documents and all(isinstance(d, dict) for d in documents), path";
    let paths = YAML.map(|file| root().join(file));
    let output = Command::new("python3").args(["-c", code]).args(paths).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
