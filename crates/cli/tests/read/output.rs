//! Reports that programs write about themselves: `heaptide_write()`, `HEAPTIDE_REPORT`, `run
//! --report`; and that a program linked with the recorder writes nothing unless requested.

use crate::expectations::evaluate;
use crate::harness::{Guest, clean, heaptide, library, recorded, report, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets the path of the command, for a recorder that `heaptide run` did not start.
fn with_command(command: &mut Command) -> &mut Command {
    command.env("HEAPTIDE_COMMAND", env!("CARGO_BIN_EXE_heaptide"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&text(path)).expect("JSON")
}

/// Returns the names of the files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Builds a program that is linked with the recorder.
fn linked(name: &str, place: &Path) -> PathBuf {
    let beside = place.join("lib");
    fs::create_dir_all(&beside).expect("a directory");
    fs::copy(library(), beside.join("libheaptide.so")).expect("the library");
    let beside = beside.to_str().expect("a path in UTF-8");
    let (search, found) = (format!("-L{beside}"), format!("-Wl,-rpath,{beside}"));
    let flags = ["-Wl,--no-as-needed", &search, &found, "-lheaptide"];
    Guest::read(name).build(&format!("{name}-linked"), &flags)
}

#[test]
fn output_in_every_format() {
    let place = scratch("output-in-every-format");
    let program = Guest::read("api_output.c").build("api_output.c", &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "output\n"));
    assert_eq!(bare, outcome);
    let whole = report(&recording, &place);
    assert_eq!(evaluate(&whole, "leaf:block", "allocations"), 4);
    let written = json(&place.join("out.json"));
    for (name, known) in [("allocations", 3), ("requested_bytes", 600), ("frees", 1)] {
        assert_eq!(evaluate(&written, "leaf:block", name), known, "{name}");
    }
    assert_eq!(json(&place.join("out.query"))[0]["count"], 3);
    let folded = text(&place.join("out.folded"));
    let blocks = folded.lines().filter(|line| line.contains(";block"));
    let bytes = blocks.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert_eq!(bytes.sum::<u64>(), 600, "{folded}");
    assert!(text(&place.join("out.dot")).starts_with("digraph"));
    assert!(text(&place.join("out.stacks")).contains(" block "));
    assert!(text(&place.join("out.tree")).contains("grid"));
    assert!(text(&place.join("out.txt")).contains("load > grid"));
    // The copy is a complete recording.
    let copy = report(&place.join("copy.heaptide"), &place);
    assert_eq!(evaluate(&copy, "leaf:block", "requested_bytes"), 600);
    assert!(!names(&place).iter().any(|name| name.ends_with(".new")));
}

#[test]
fn output_of_cpp() {
    crate::harness::check("api_output.cpp");
}

/// Reports that cannot be written are counted, and the program continues.
#[test]
fn output_without_a_command() {
    let place = scratch("output-without-a-command");
    let program = Guest::read("api_output.cpp").build("api_output.cpp", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&program).env("HEAPTIDE_COMMAND", "/missing/heaptide").current_dir(&place);
    let outcome = run(&mut command, &place);
    assert_eq!(outcome.status, 99, "{}", outcome.stdout);
    let mut info = heaptide();
    let info = run(info.arg("info").arg(&recording), &place);
    assert!(info.stdout.contains("no_snapshot"), "{}", info.stdout);
}

/// Programs without any variable of their own: `env -i` removes `PATH`, too.
#[test]
fn reports_of_programs_with_an_empty_environment() {
    let place = scratch("output-empty-environment");
    let program = Guest::read("api_output.cpp").build("api_output.cpp", &[]);
    let preloaded = |command: &mut Command| {
        command.env("LD_PRELOAD", library()).env("HEAPTIDE_OUTPUT", place.join("a.heaptide"));
    };
    let mut inside = clean(Command::new("env"));
    preloaded(inside.arg("-i").arg(&program));
    let mut outside = clean(Command::new(&program));
    preloaded(outside.env_clear());
    let mut under_run = recorded(&place.join("b.heaptide"), &[]);
    under_run.args(["env", "-i"]).arg(&program);
    for mut command in [inside, outside, under_run] {
        let outcome = run(command.current_dir(&place), &place);
        assert_eq!(outcome.status, 0, "{command:?}: {}", outcome.stderr);
    }
}

/// With the variable alone, reports are written at exit and no recording is kept.
#[test]
fn report_at_exit_by_a_variable() {
    let place = scratch("report-at-exit");
    let (here, temporary) = (place.join("here"), place.join("tmp"));
    for linked_in in [false, true] {
        let _ = fs::remove_dir_all(&here);
        for directory in [&here, &temporary] {
            fs::create_dir_all(directory).expect("a directory");
        }
        let program = if linked_in {
            linked("timesteps.c", &place)
        } else {
            Guest::read("timesteps.c").build("timesteps.c", &[])
        };
        let mut command = clean(Command::new(program));
        if !linked_in {
            command.env("LD_PRELOAD", library());
        }
        with_command(&mut command).env("TMPDIR", &temporary).current_dir(&here);
        let query = "query:SELECT count() FORMAT json:%p.query";
        let list = format!("text:stderr; json:out.json;{query}");
        let outcome = run(command.env("HEAPTIDE_REPORT", list), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("timesteps"), "{}", outcome.stderr);
        let json = json(&here.join("out.json"));
        assert!(evaluate(&json, "totals", "allocations") > 0);
        assert!(names(&here).iter().any(|name| name.ends_with(".query")), "{:?}", names(&here));
        assert_eq!(names(&here).len(), 2, "{:?}", names(&here));
        assert_eq!(names(&temporary), [""; 0]);
    }
}

/// The first of several processes reports; with `%p` each does.
#[test]
fn report_at_exit_of_children() {
    let place = scratch("report-at-exit-of-children");
    let here = place.join("here");
    fs::create_dir_all(&here).expect("a directory");
    let mut command = clean(Command::new("/bin/bash"));
    with_command(&mut command).env("LD_PRELOAD", library()).current_dir(&here);
    command.env("TMPDIR", &place).env("HEAPTIDE_REPORT", "json:one.json;json:each.%p.json");
    let outcome = run(command.args(["-c", "/bin/echo a; (/bin/echo b); exit 3"]), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (3, "a\nb\n"));
    let command_of = |path: &Path| json(path)["processes"][0]["command"].clone();
    assert!(command_of(&here.join("one.json")).to_string().contains("bash"));
    let each = names(&here).iter().filter(|name| name.starts_with("each.")).count();
    assert!(each >= 3, "{:?}", names(&here));
    let left = names(&place).into_iter().filter(|name| name.contains("removed-at-exit"));
    assert_eq!(left.count(), 0);
}

/// Runs a program with a report at exit, and without the recorder: it ends in the same way, and
/// prints nothing else.
fn ends_as_bare(place: &Path, name: &str, reports: &str, change: impl Fn(&mut Command)) {
    let program = Guest::read(name).build(name, &[]);
    let outcome = |is_recorded: bool| {
        let here = place.join("here");
        let _ = fs::remove_dir_all(&here);
        fs::create_dir_all(&here).expect("a directory");
        let mut command = clean(Command::new(&program));
        if is_recorded {
            with_command(&mut command).env("LD_PRELOAD", library());
            command.env("TMPDIR", place).env("HEAPTIDE_REPORT", reports);
        }
        change(&mut command);
        run(command.current_dir(&here), place)
    };
    let bare = outcome(false);
    assert_eq!(outcome(true), bare, "{name} with {reports}");
}

#[test]
fn report_without_processes() {
    let place = scratch("report-without-processes");
    ends_as_bare(&place, "no_processes.c", "json:out.json;text:stderr", |_| ());
}

#[test]
fn report_to_a_full_device() {
    let place = scratch("report-to-a-full-device");
    for reports in ["json:/dev/full", "text:/dev/full;stacks:/dev/full"] {
        ends_as_bare(&place, "timesteps.c", reports, |_| ());
    }
}

#[test]
fn report_to_a_missing_directory() {
    let place = scratch("report-to-a-missing-directory");
    for reports in ["json:missing/out.json", "text:/missing/out", "snapshot:missing/a.heaptide"] {
        ends_as_bare(&place, "timesteps.c", reports, |_| ());
        assert_eq!(names(&place.join("here")), [""; 0]);
    }
}

#[test]
fn report_without_a_command() {
    let place = scratch("report-without-a-command");
    ends_as_bare(&place, "timesteps.c", "json:out.json;text:stderr", |command| {
        command.env("HEAPTIDE_COMMAND", "/missing/heaptide");
    });
    // A directory is not a command, and a file that is not a program cannot be started.
    for wrong in ["/", "/etc/hostname"] {
        ends_as_bare(&place, "timesteps.c", "json:out.json", |command| {
            command.env("HEAPTIDE_COMMAND", wrong);
        });
    }
}

/// An unknown format is not reported on the program's streams.
#[test]
fn report_in_an_unknown_format() {
    let place = scratch("report-in-an-unknown-format");
    for reports in ["nonsense:out.json", ":", "json:", "query:SELECT sum(:out"] {
        ends_as_bare(&place, "timesteps.c", reports, |_| ());
        assert_eq!(names(&place.join("here")), [""; 0], "{reports}");
    }
}

#[test]
fn report_under_limits() {
    let place = scratch("report-under-limits");
    ends_as_bare(&place, "rlimit_as.c", "json:out.json", |_| ());
    ends_as_bare(&place, "rlimit_fsize.c", "json:out.json;text:out.txt", |_| ());
}

/// The pipe has no reader: the report is lost, and no signal is raised.
#[test]
fn report_to_a_closed_pipe() {
    let place = scratch("report-to-a-closed-pipe");
    let program = Guest::read("timesteps.c").build("timesteps.c", &[]);
    // The other end is closed before the program starts. The shell prints its status.
    let script = "exec 3> >(exec true); sleep 0.3; \"$0\" 2>&3; echo status $?";
    let outcome = |reports: Option<&str>| {
        let mut command = clean(Command::new("/bin/bash"));
        with_command(&mut command).env("TMPDIR", &place);
        let script = match reports {
            Some(reports) => {
                command.env("REPORTS", reports).env("LIBRARY", library());
                script.replace("\"$0\"", "LD_PRELOAD=$LIBRARY HEAPTIDE_REPORT=$REPORTS \"$0\"")
            }
            None => script.to_owned(),
        };
        run(command.args(["-c", &script]).arg(&program), &place)
    };
    let bare = outcome(None);
    assert!(bare.stdout.ends_with("status 0\n"), "{bare:?}");
    for reports in ["text:stderr", "json:stderr;text:stderr"] {
        assert_eq!(outcome(Some(reports)), bare, "{reports}");
    }
}

#[test]
fn report_of_a_killed_program() {
    let place = scratch("report-of-a-killed-program");
    ends_as_bare(&place, "killed.c", "json:out.json;text:stderr", |_| ());
    assert_eq!(names(&place.join("here")), [""; 0]);
}

#[test]
fn report_of_programs_that_fork() {
    let place = scratch("report-of-programs-that-fork");
    for name in ["fork.c", "fork_threads.c", "vfork.c"] {
        ends_as_bare(&place, name, "json:out.json;folded:each.%p", |_| ());
        let json = json(&place.join("here").join("out.json"));
        assert!(evaluate(&json, "totals", "allocations") > 0, "{name}");
    }
}

/// `heaptide run` writes the reports when the program has ended, also by a signal.
#[test]
fn report_of_run() {
    let place = scratch("report-of-run");
    let program = Guest::read("killed.c").build("killed.c", &[]);
    let recording = place.join("a.heaptide");
    let options = ["--report", "json:out.json", "--report", "text:stderr;json:%p.json"];
    let mut command = recorded(&recording, &options);
    let outcome = run(command.arg(program).current_dir(&place), &place);
    assert_ne!(outcome.status, 0);
    assert!(outcome.stderr.contains("killed"), "{}", outcome.stderr);
    let whole = report(&recording, &place);
    let of_all = evaluate(&whole, "totals", "allocations");
    assert_eq!(evaluate(&json(&place.join("out.json")), "totals", "allocations"), of_all);
    let pid = whole["processes"][0]["pid"].to_string();
    let own = json(&place.join(format!("{pid}.json")));
    assert_eq!(evaluate(&own, "totals", "allocations"), of_all);
    let wrong = run(recorded(&recording, &["--report", "dot:"]).arg("true"), &place);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("`dot:`: expected FORMAT:TARGET"), "{}", wrong.stderr);
    // Before the program starts, not when it has ended.
    for (format, says) in [("jsonn:a", "`jsonn`: no such format"), ("query:SELECT sum(:a", "sum(")]
    {
        let recording = place.join("wrong.heaptide");
        let wrong = run(recorded(&recording, &["--report", format]).arg("true"), &place);
        assert_eq!(wrong.status, 2, "{}", wrong.stderr);
        assert!(wrong.stderr.contains(says), "{}", wrong.stderr);
        assert!(wrong.stderr.starts_with("heaptide: --report: "), "{}", wrong.stderr);
        assert!(!recording.exists());
    }
}

/// A program that is linked with the recorder writes nothing unless requested.
#[test]
fn linked_and_unasked() {
    let place = scratch("linked-and-unasked");
    let program = linked("api_start.c", &place);
    let start = |arguments: &[&str]| {
        let (here, temporary) = (place.join("here"), place.join("tmp"));
        for directory in [&here, &temporary] {
            let _ = fs::remove_dir_all(directory);
            fs::create_dir_all(directory).expect("a directory");
        }
        let mut command = clean(Command::new(&program));
        with_command(&mut command).env("TMPDIR", &temporary).current_dir(&here);
        let outcome = run(command.args(arguments), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{}", outcome.stdout);
        assert_eq!(names(&temporary), [""; 0]);
        (outcome.stdout, here)
    };
    let (printed, here) = start(&[]);
    assert_eq!((&*printed, names(&here)), ("start\n", Vec::new()));
    let (printed, here) = start(&["start"]);
    assert!(printed.starts_with("start\n") && printed.contains("count"), "{printed}");
    assert_eq!(names(&here), ["out.json"]);
    let written = json(&here.join("out.json"));
    assert_eq!(evaluate(&written, "leaf:block", "allocations"), 2);
    assert_eq!(evaluate(&written, "leaf:block", "requested_bytes"), 30);
    // It is not a child of a recorded process, although the recorder was called before recording
    // began.
    assert_eq!(written["processes"][0]["forked"], false);
}
