//! The process that every view shows: the program that the user meant, not its launcher.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptide_fixtures::skips::skip;

use crate::harness::{Outcome, heaptide, recorded, run, scratch};
use crate::programs::{is_installed, python, without_launchers};

/// `hold KIB` keeps a block of this size; `serve KIB…` forks a worker for each size, which keeps a
/// block of it until the others have one, too; `free` frees what it allocated.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) void hold(const char *kib)
{
    kept = malloc(strtoul(kib, 0, 10) * 1024);
}
int main(int count, char **words)
{
    int held[2], all[2];
    char byte;
    if (strcmp(words[1], "serve") != 0) {
        hold(words[2]);
        if (strcmp(words[1], "free") == 0)
            free(kept);
        return 0;
    }
    if (pipe(held) != 0 || pipe(all) != 0)
        return 1;
    for (int i = 2; i < count; i++)
        if (fork() == 0) {
            close(all[1]);
            hold(words[i]);
            if (write(held[1], "", 1) != 1 || read(all[0], &byte, 1) != 0)
                _exit(1);
            return 0;
        }
    for (int i = 2; i < count; i++)
        if (read(held[0], &byte, 1) != 1)
            return 1;
    close(all[1]);
    while (wait(0) > 0)
        ;
    return 0;
}
"#;

/// A directory with the program `app`.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let place = scratch(name);
        fs::write(place.join("app.c"), PROGRAM).expect("a source");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-builtin", "-o", "app", "app.c"]).current_dir(&place);
        assert!(compiler.status().expect("a compiler").success());
        Place(place)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// Records a command as `r` and returns the lines of the summary.
    fn summary(&self, words: &[&str]) -> Vec<String> {
        let mut command = heaptide();
        without_launchers(&mut command);
        command.args(["run", "--force", "-o", "r", "--"]).args(words).current_dir(&self.0);
        // Open MPI refuses to run as root, or more ranks than cores, without these.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let outcome = run(&mut command, &self.0);
        assert_eq!(outcome.status, 0, "{words:?}: {}", outcome.stderr);
        let lines = outcome.stderr.lines().map(|line| line.trim_start_matches("heaptide: "));
        lines.map(str::to_owned).collect()
    }

    /// Records a command, and returns its subject and the line about the peak.
    fn subject(&self, words: &[&str]) -> (String, String) {
        let summary = self.summary(words);
        let line = |name: &str| {
            let found = summary.iter().find_map(|line| line.trim_start().strip_prefix(name));
            let found = found.unwrap_or_else(|| panic!("no {name} of {words:?}: {summary:?}"));
            found.trim_start().to_owned()
        };
        (line("subject "), line("peak "))
    }

    fn view(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        command.args(words.split_whitespace()).current_dir(&self.0);
        run(&mut command, &self.0)
    }
}

#[test]
fn programs_behind_launchers_are_the_subject() {
    let place = Place::new("subject_launchers");
    place.script("Makefile", "all:\n\t@./app hold 4096\n");
    place.script(
        "shim",
        "#!/bin/bash\nfor i in 1 2 3; do x=$(basename \"$0\"); done\nexec \"$@\"\n",
    );
    place.script("script", "#!/bin/sh\n./app hold 4096\ntrue\n");
    let by: [(&[&str], &str); 8] = [
        (&["sh", "-c", "./app hold 4096; true"], "sh"),
        (&["bash", "-c", "./app hold 4096; true"], "bash"),
        (&["make", "-s"], "make"),
        (&["env", "-i", "./app", "hold", "4096"], "env"),
        (&["nice", "timeout", "60", "./app", "hold", "4096"], "timeout"),
        (&["./shim", "./app", "hold", "4096"], "bash and basename"),
        (&["./script"], "sh"),
        (&["sh", "-c", "make -s; true"], "make"),
    ];
    for (words, launcher) in by {
        let (subject, peak) = place.subject(words);
        assert!(subject.starts_with("app hold 4096 (pid "), "{words:?}: {subject}");
        let (_, rest) = subject.split_once("% of memory over time; ").expect("others");
        assert!(rest.contains(launcher) && rest.contains(" held "), "{words:?}: {subject}");
        assert!(peak.starts_with("4.00 MiB "), "{words:?}: {peak}");
        let report = place.view("report r").stdout;
        let first: Vec<&str> = report.lines().take(24).collect();
        assert_eq!(first[0], "app hold 4096", "{words:?}");
        assert!(first[1].starts_with("`hold` (app.c:9) holds 4.00 MiB, "), "{report}");
        assert!(first.contains(&&*format!("  subject  {subject}")), "{report}");
    }
}

#[test]
fn every_view_shows_the_subject_and_names_it_alike() {
    let place = Place::new("subject_views");
    let (subject, _) = place.subject(&["sh", "-c", "./app free 4096; true"]);
    let showing = format!("heaptide: showing {subject}; `--process PID` selects another\n");
    for view in [
        "peak r",
        "tree r",
        "histogram r",
        "timeline r",
        "memory r",
        "advise r",
        "flamegraph r --metric requested_bytes -o -",
        "report r --by function",
        "check r --max peak_bytes=5M",
        "export r --format folded",
    ] {
        let outcome = place.view(view);
        assert_eq!((outcome.status, &*outcome.stderr), (0, &*showing), "{view}");
    }
    // dash frees nothing at its end, but it is a launcher.
    let leaks = place.view("leaks r");
    assert_eq!(leaks.status, 0, "{}", leaks.stdout);
    assert!(leaks.stdout.contains("1 image of launchers: not counted\n"), "{}", leaks.stdout);
    let table = place.view("report r --all-processes").stdout;
    assert!(table.contains(": 2 process images, "), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&place.view("report r --format json").stdout).expect("JSON");
    let roles: Vec<&str> = json["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .map(|process| process["role"].as_str().expect("a role"))
        .collect();
    assert_eq!(roles, ["launcher", "subject"]);
    let bad = place.view("report r --all-processes --by function");
    assert_eq!(bad.status, 2);
}

#[test]
fn a_launcher_that_holds_more_than_its_child_is_the_subject() {
    let place = Place::new("subject_script");
    place.script("big.sh", "x=$(printf %04000000d 1)\n./app hold 64\n: $x\n");
    let (subject, _) = place.subject(&["bash", "big.sh"]);
    assert!(subject.starts_with("bash big.sh (pid "), "{subject}");
    assert!(subject.contains(", more than what it started"), "{subject}");
    assert!(subject.ends_with(" of bash and app held 64.0 KiB at most"), "{subject}");
}

/// What a program that was not recorded held is not known to be less.
#[test]
fn a_launcher_is_not_compared_with_what_was_not_recorded() {
    let place = Place::new("subject_unrecorded");
    // An allocator that does not know the sizes of its blocks.
    let source = "#include <stddef.h>\nvoid *__libc_malloc(size_t);\n\
        void *malloc(size_t size) { return __libc_malloc(size + 16); }\n";
    fs::write(place.0.join("sizeless.c"), source).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "sizeless.so", "sizeless.c"]).current_dir(&place.0);
    assert!(compiler.status().expect("a compiler").success());
    let script = "x=$(printf %04000000d 1)\nLD_PRELOAD=./sizeless.so ./app hold 64000\n: $x\n";
    place.script("big.sh", script);
    let (subject, _) = place.subject(&["bash", "big.sh"]);
    assert!(subject.starts_with("bash big.sh (pid "), "{subject}");
    assert!(subject.contains(" of the recorded memory over time"), "{subject}");
}

#[test]
fn the_compiler_is_the_subject_of_its_driver() {
    let place = Place::new("subject_compiler");
    let source = "#include <map>\n#include <string>\nstd::map<std::string, int> all;\n\
                  int count(const char *name) { return ++all[name]; }\n";
    fs::write(place.0.join("h.cpp"), source).expect("a source");
    let (subject, _) = place.subject(&["g++", "-c", "h.cpp"]);
    assert!(subject.starts_with("cc1plus "), "{subject}");
    let report = place.view("report r").stdout;
    assert!(report.starts_with("cc1plus "), "{report}");
}

#[test]
fn workers_are_one_subject_with_a_spread() {
    let place = Place::new("subject_workers");
    let words = ["./app", "serve", "1024", "2048", "3072", "4096"];
    let (subject, peak) = place.subject(&words);
    let spread = "4 images of app, peaks 1.00 MiB to 4.00 MiB, median 2.50 MiB, ";
    assert!(subject.starts_with(spread), "{subject}");
    // All four blocks were live at the same time.
    assert!(peak.contains(" at most 10.0 MiB,"), "{peak}");
    let page = place.view("peak r").stdout;
    assert!(page.contains("10.0 MiB") && page.contains("hold"), "{page}");
    let one = place.view("memory r").stderr;
    assert!(one.contains("of 4 images of app, peaks "), "one has the account: {one}");
    // Equal children of a launcher, one after the other.
    place.script("Makefile", "all:\n\t@./app hold 1024\n\t@./app hold 1024\n");
    let (subject, _) = place.subject(&["make", "-s"]);
    let spread = "2 images of app, peaks 1.00 MiB to 1.00 MiB, median 1.00 MiB, ";
    assert!(subject.starts_with(spread), "{subject}");
}

#[test]
fn processes_of_a_pool_belong_to_their_script() {
    let Some(python) = python() else {
        skip("python3");
        return;
    };
    let place = Place::new("subject_pool");
    let script = "import multiprocessing, sys\n\
                  def hold(kib):\n    return len(bytearray(kib * 1024))\n\
                  if __name__ == '__main__':\n    \
                  context = multiprocessing.get_context(sys.argv[1])\n    \
                  with context.Pool(4) as pool:\n        \
                  print(sum(pool.map(hold, [30000] * 4, 1)))\n";
    place.script("pool.py", script);
    for method in ["fork", "spawn"] {
        let (subject, _) = place.subject(&[&python, "pool.py", method]);
        let name = Path::new(&python).file_name().expect("a name").to_string_lossy().into_owned();
        assert!(subject.contains(&format!(" of {name} pool.py")), "{method}: {subject}");
    }
}

#[test]
fn ranks_are_one_subject() {
    if !is_installed("mpirun") {
        skip("mpirun");
        return;
    }
    let place = Place::new("subject_ranks");
    // Its input never ends: mpirun passes the end on, and SIGPIPE kills it if all ranks have ended
    // by then, in one of some hundred runs without the recorder.
    let line = "mkfifo input; exec mpirun -n 4 ./app hold 1024 <>input";
    let (subject, peak) = place.subject(&["sh", "-c", line]);
    let spread = "4 images of app, peaks 1.00 MiB to 1.00 MiB, median 1.00 MiB, ";
    assert!(subject.starts_with(spread) && subject.contains("mpi"), "{subject}");
    assert!(peak.contains(" at most 4.0"), "{peak}");
}

#[test]
fn a_selected_process_is_shown_whatever_it_is() {
    let place = Place::new("subject_selected");
    let recording = place.0.join("r");
    let words = ["sh", "-c", "echo $$; ./app hold 4096; true"];
    let outcome = run(recorded(&recording, &[]).args(words).current_dir(&place.0), &place.0);
    let pid = outcome.stdout.trim();
    let report = place.view(&format!("report r --process {pid}"));
    assert!(report.stdout.starts_with("sh -c "), "{}", report.stdout);
    assert!(!report.stdout.contains("  subject  "), "{}", report.stdout);
    let filtered = place.view("peak r --ignore hold");
    assert_eq!(filtered.status, 0, "{}", filtered.stderr);
}

/// The exported page and JSON state the same choice as the report.
#[test]
fn the_page_and_json_state_the_choice() {
    let place = Place::new("subject_page");
    let (subject, _) = place.subject(&["sh", "-c", "./app hold 4096; true"]);
    let page = place.view("export r --format html").stdout;
    let text = serde_json::to_string(&subject).expect("JSON");
    assert!(page.contains(&format!("\"subject\":{text}")), "{subject}");
    let json = place.view("report r --format json").stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["subject"], *subject);
    let sentence = json["answer"].as_str().expect("a sentence");
    assert!(sentence.starts_with("`hold` (app.c:"), "{sentence}");
    let check = place.view("check r --max peak=1G --format markdown").stdout;
    assert!(check.starts_with(sentence), "{check}");
    assert!(check.contains("\nSubject: app hold 4096 (pid"), "{check}");
}

/// A recording of one process, compared with one of several workers, had as many more blocks as
/// there were workers.
#[test]
fn one_process_is_compared_with_workers_and_their_parent() {
    let place = Place::new("subject_diff");
    place.summary(&["./app", "hold", "4096"]);
    fs::rename(place.0.join("r"), place.0.join("one")).expect("a recording");
    place.summary(&["./app", "serve", "1024", "1024", "1024", "1024"]);
    let Outcome { status, stdout, stderr } = place.view("diff one r --metric live_bytes");
    let says = "heaptide: comparing all process images joined: on one side, several are workers\n";
    assert_eq!((status, &*stderr), (0, says), "{stdout}");
    assert!(stdout.contains("\n        5 process images, "), "{stdout}");
    let same = place.view("diff r r --metric live_bytes");
    assert!(same.stdout.contains("\n        4 process images, "), "{}", same.stdout);
    assert!(!same.stderr.contains("joined"), "{}", same.stderr);
}
