//! Many processes: ranks of launchers, merged recordings, images that are joined or distinguished.

use crate::harness::{Outcome, heaptide, recorded, report, run, scratch, until};
use crate::programs::without_launchers;
use crate::recording::{assert_consistent, list, number};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first argument is a size in KiB to keep; twice as much is freed. With `child`, a child does
/// the same afterwards; with a path, the program waits until that exists.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *block(size_t bytes)
{
    void *made = malloc(bytes);
    __asm__ volatile("" : : "r"(made) : "memory");
    return made;
}
int main(int count, char **words)
{
    size_t bytes = strtoul(words[1], 0, 10) * 1024;
    block(bytes);
    free(block(2 * bytes));
    if (count > 2 && strcmp(words[2], "child") == 0) {
        if (fork() == 0)
            execl(words[0], words[0], words[1], (char *)0);
        wait(0);
    } else if (count > 2) {
        while (access(words[2], F_OK) != 0)
            usleep(1000);
    }
    return 0;
}
"#;

const KIB: i128 = 1024;

struct Guest {
    place: PathBuf,
    program: PathBuf,
}

impl Guest {
    fn new(name: &str) -> Guest {
        let place = scratch(name);
        let (source, program) = (place.join("ranked.c"), place.join("ranked"));
        fs::write(&source, PROGRAM).expect("a source");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-builtin", "-D_GNU_SOURCE", "-o"]);
        assert!(compiler.arg(&program).arg(&source).status().expect("a compiler").success());
        Guest { place, program }
    }

    /// Records the program as `name` with variables of a launcher.
    fn record(&self, name: &str, variables: &[(&str, &str)], words: &[&str]) -> PathBuf {
        let recording = self.place.join(name);
        let mut command = self.command(&recording, variables);
        let outcome = run(command.args(words), &self.place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        recording
    }

    fn command(&self, recording: &Path, variables: &[(&str, &str)]) -> Command {
        let mut command = recorded(recording, &[]);
        command.arg(&self.program);
        without_launchers(&mut command);
        command.envs(variables.iter().copied());
        command
    }

    fn heaptide(&self, words: &[&str]) -> Outcome {
        run(heaptide().args(words).current_dir(&self.place), &self.place)
    }

    /// Returns the output of a command, which must succeed.
    fn prints(&self, words: &[&str]) -> String {
        let Outcome { status, stdout, stderr } = self.heaptide(words);
        assert_eq!(status, 0, "{words:?}: {stderr}");
        stdout
    }

    fn joined(&self, recording: &str) -> Value {
        let text = self.prints(&["report", "--format", "json", "--process", "all", recording]);
        let report = serde_json::from_str(&text).expect("JSON");
        assert_consistent(&report);
        report
    }
}

/// Returns the cells of the row with this name.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.contains(&format!("  {name}  ")));
    line.unwrap_or_else(|| panic!("no {name} in {table}")).split_whitespace().collect()
}

/// Returns the metrics that add up, over all processes of a report.
fn sums(report: &Value) -> BTreeMap<String, i128> {
    let mut sums = BTreeMap::new();
    for process in list(report, "processes") {
        let totals = process["totals"].as_object().expect("totals");
        let whole =
            totals.keys().filter(|name| !["largest_bytes", "peak_time_s"].contains(&&***name));
        for name in whole {
            *sums.entry(name.clone()).or_default() += number(&process["totals"], name);
        }
    }
    sums
}

#[test]
fn ranks_are_those_that_launchers_tell() {
    let guest = Guest::new("merging_launchers");
    let step = [("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "5"), ("SLURM_STEP_NUM_TASKS", "4")];
    let with_step = |more: &[(&'static str, &'static str)]| [&step, more].concat();
    let rank = |number: u32, of: u32| json!({"number": number, "of": of});
    let cases = [
        // Open MPI in Slurm: its daemon is a task of a step.
        (
            with_step(&[
                ("OMPI_COMM_WORLD_RANK", "3"),
                ("OMPI_COMM_WORLD_SIZE", "8"),
                ("SLURM_PROCID", "1"),
            ]),
            (rank(3, 8), "77"),
        ),
        (vec![("PMIX_RANK", "6"), ("PMIX_NAMESPACE", "prterun-1@1")], (rank(6, 0), "prterun-1@1")),
        (vec![("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PBS_JOBID", "9.a")], (rank(1, 2), "9.a")),
        (vec![("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")], (rank(0, 2), "")),
        (with_step(&[("PMIX_RANK", "2"), ("SLURM_PROCID", "2")]), (rank(2, 4), "77")),
        (with_step(&[("SLURM_PROCID", "2"), ("SLURMD_NODENAME", "n9")]), (rank(2, 4), "77.5")),
        (vec![("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "77")], (Value::Null, "77")),
        (vec![("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "4294967291")], (Value::Null, "")),
        (
            vec![("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "3"), ("FLUX_JOB_ID", "ƒ2")],
            (rank(1, 3), "ƒ2"),
        ),
        (vec![("ALPS_APP_PE", "12")], (rank(12, 0), "")),
        (
            vec![
                ("HEAPTIDE_RANK", "1"),
                ("HEAPTIDE_JOB", "own"),
                ("PMI_RANK", "0"),
                ("PBS_JOBID", "9"),
            ],
            (rank(1, 0), "own"),
        ),
        (
            vec![("OMPI_COMM_WORLD_RANK", "x1"), ("PMI_RANK", ""), ("PALS_RANKID", "9999999999")],
            (Value::Null, ""),
        ),
    ];
    for (at, (variables, (rank, job))) in cases.into_iter().enumerate() {
        let recording = guest.record(&format!("{at}.heaptide"), &variables, &["1"]);
        let process = report(&recording, &guest.place)["processes"][0].clone();
        assert_eq!(
            (&process["rank"], process["job"].as_str()),
            (&rank, Some(job)),
            "{variables:?}"
        );
        let node = variables.iter().find(|(name, _)| *name == "SLURMD_NODENAME");
        if let Some((_, node)) = node {
            assert_eq!(process["host"].as_str(), Some(*node));
        }
    }
}

#[test]
fn ranks_are_merged_and_told_apart() {
    let guest = Guest::new("merging_ranks");
    let of_rank = |rank: &str, kib: &str| {
        let variables =
            [("PMI_RANK", rank), ("PMI_SIZE", "4"), ("PBS_JOBID", "9"), ("SLURMD_NODENAME", "n1")];
        guest.record(&format!("{rank}.heaptide"), &variables, &[kib, "child"])
    };
    let parts = [of_rank("0", "100"), of_rank("1", "100"), of_rank("2", "400")];
    let outcome =
        guest.heaptide(&["merge", "0.heaptide", "1.heaptide", "2.heaptide", "-o", "all.heaptide"]);
    assert_eq!((outcome.status, &*outcome.stdout), (0, ""));
    // Each rank has the program and its fork.
    assert_eq!(
        outcome.stderr,
        "heaptide: all.heaptide: merged 6 process images from 3 recordings\n"
    );
    let table = guest.prints(&["report", "--by", "rank", "all.heaptide"]);
    assert!(table.starts_with("all.heaptide: 3 ranks, 6 process images\n"), "{table}");
    assert_eq!(row(&table, "rank 2")[8], "2", "{table}");
    assert!(table.contains("3 of the job's 4 ranks are in this recording"), "{table}");
    let last = table.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("peak_bytes: mean ") && last.contains(" (rank 2), which is "),
        "{last}"
    );
    let by_host = guest.prints(&["report", "--by", "host", "all.heaptide"]);
    assert!(
        by_host.contains("  host n1  ") && by_host.contains("1 host, 6 process images"),
        "{by_host}"
    );

    let mut expected = BTreeMap::new();
    for part in &parts {
        for (name, value) in sums(&report(part, &guest.place)) {
            *expected.entry(name).or_default() += value;
        }
    }
    let merged = report(&guest.place.join("all.heaptide"), &guest.place);
    assert_eq!(sums(&merged), expected);
    let joined = guest.joined("all.heaptide");
    assert_eq!(sums(&joined), expected);
    let process = &list(&joined, "processes")[0];
    assert_eq!((number(process, "images"), number(process, "pid")), (6, 0));
    // The same line of the same program is one site.
    let live = |site: &&Value| number(site, "live_bytes") >= 2 * (100 + 100 + 400) * KIB;
    let sites = list(process, "sites").iter().filter(live).count();
    assert_eq!(sites, 1, "of 1200 KiB that one line keeps");

    let tree = guest.prints(&["tree", "--by", "rank", "--metric", "live_bytes", "all.heaptide"]);
    for (rank, share) in [("[rank 2]", "66."), ("[rank 0]", "16."), ("[rank 1]", "16.")] {
        let line =
            tree.lines().find(|line| line.contains(rank)).unwrap_or_else(|| panic!("{tree}"));
        assert!(line.trim_start().starts_with(share), "{line}");
    }
    let words = ["tree", "--by", "rank", "--process", "12", "all.heaptide"];
    assert_eq!(guest.heaptide(&words).status, 2);
    assert_eq!(
        guest.heaptide(&["report", "--by", "rank", "--process", "all", "all.heaptide"]).status,
        2
    );
}

#[test]
fn nothing_is_lost_or_overwritten() {
    let guest = Guest::new("merging_files");
    for name in ["a.heaptide", "b.heaptide"] {
        guest.record(name, &[], &["1"]);
    }
    let merge = |words: &str| {
        let words: Vec<&str> = ["merge"].into_iter().chain(words.split(' ')).collect();
        let Outcome { status, stdout, stderr } = guest.heaptide(&words);
        assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{stderr}");
        (status, stderr)
    };
    let files = || {
        let entries = fs::read_dir(&guest.place).expect("the place").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("heaptide")).collect::<Vec<_>>().len()
    };
    assert_eq!(merge("a.heaptide b.heaptide -o all.heaptide").0, 0);
    assert_eq!(files(), 3);
    let (status, said) = merge("a.heaptide -o all.heaptide");
    assert!(status == 2 && said.contains("exists"), "{said}");
    let (status, said) = merge("a.heaptide missing.heaptide -o other.heaptide");
    assert!(status == 2 && said.contains("missing.heaptide: no such recording"), "{said}");
    let (status, said) = merge("a.heaptide ./a.heaptide -o other.heaptide");
    assert!(status == 2 && said.contains("given twice"), "{said}");
    fs::create_dir(guest.place.join("mine")).expect("a directory");
    fs::write(guest.place.join("mine/notes.txt"), "mine").expect("a file");
    let (status, said) = merge("a.heaptide -o mine --force");
    assert!(status == 2 && said.contains("not a recording: `notes.txt` in it"), "{said}");
    assert_eq!(files(), 3);
    // The output is one of the inputs.
    let before = sums(&report(&guest.place.join("all.heaptide"), &guest.place));
    assert_eq!(merge("all.heaptide -o all.heaptide --force").0, 0);
    assert_eq!(sums(&report(&guest.place.join("all.heaptide"), &guest.place)), before);
    let names = |p: &Value| number(p, "images") == 1 && p["run"]["recording"].is_string();
    let merged = report(&guest.place.join("all.heaptide"), &guest.place);
    assert!(list(&merged, "processes").iter().all(names));
}

#[test]
fn running_programs_are_merged_as_they_are() {
    let guest = Guest::new("merging_live");
    let recording = guest.place.join("live.heaptide");
    let mut child =
        guest.command(&recording, &[]).args(["300", "go"]).current_dir(&guest.place).spawn();
    let child = child.as_mut().expect("a guest");
    let live = |name: &str| {
        let merged = report(&guest.place.join(name), &guest.place);
        let process = list(&merged, "processes")[0].clone();
        (
            number(&process["totals"], "live_bytes"),
            process["end"]["kind"].clone(),
            process["part"].clone(),
        )
    };
    until("the guest allocates", || {
        let merged = guest.heaptide(&["merge", "live.heaptide", "-o", "now.heaptide", "--force"]);
        merged.status == 0 && live("now.heaptide").0 >= 300 * KIB
    });
    fs::write(guest.place.join("go"), "").expect("a file");
    assert!(child.wait().expect("an end").success());
    let (bytes, end, part) = live("now.heaptide");
    assert!(bytes < 1000 * KIB && end == "running", "{bytes} {end}");
    assert!(part.as_str().is_some_and(|part| part.starts_with("when it was merged, ")), "{part}");
    guest.prints(&["merge", "live.heaptide", "-o", "then.heaptide"]);
    let (_, end, part) = live("then.heaptide");
    assert!(end == "exited" && part.is_null(), "{end} {part}");
}

#[test]
fn recordings_made_at_once_have_places_of_their_own() {
    let guest = Guest::new("merging_at_once");
    let start = |_| {
        let mut command = heaptide();
        command.args(["run", "--quiet", "--"]).arg(&guest.program).arg("1");
        command.current_dir(&guest.place).spawn().expect("a run")
    };
    let runs: Vec<_> = (0..4).map(start).collect();
    for mut run in runs {
        assert!(run.wait().expect("an end").success());
    }
    let entries = fs::read_dir(&guest.place).expect("the place").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut recordings: Vec<_> =
        names.filter(|name| name.starts_with("heaptide-ranked-")).collect();
    assert_eq!(recordings.len(), 4);
    recordings.insert(0, "merge".to_owned());
    recordings.extend(["-o".to_owned(), "all.heaptide".to_owned()]);
    let words: Vec<&str> = recordings.iter().map(String::as_str).collect();
    guest.prints(&words);
    assert_eq!(
        list(&report(&guest.place.join("all.heaptide"), &guest.place), "processes").len(),
        4
    );
}

#[test]
fn a_compiler_is_joined_of_its_parts() {
    let place = scratch("merging_compiler");
    let source = place.join("a.cc");
    fs::write(&source, "#include <string>\nstd::string f() { return \"a\"; }\n").expect("a source");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.args(["g++", "-c", "-o", "a.o"]).arg(&source).current_dir(&place);
    assert_eq!(run(&mut command, &place).status, 0);
    let guest = Guest { place, program: PathBuf::new() };
    let parts = report(&recording, &guest.place);
    let images = list(&parts, "processes").len();
    assert!(images >= 3, "driver, compiler and assembler");
    let joined = guest.joined("a.heaptide");
    assert_eq!(sums(&joined), sums(&parts));
    assert_eq!(number(&list(&joined, "processes")[0], "images"), images as i128);
    let timeline = list(&list(&joined, "processes")[0], "timeline");
    let last = timeline.last().expect("samples");
    let peaks: i128 =
        list(&parts, "processes").iter().map(|p| number(&p["totals"], "peak_bytes")).sum();
    assert_eq!(number(last, "peak_bytes"), peaks);
    let tree = guest.prints(&["tree", "--by", "process", "a.heaptide"]);
    assert!(
        tree.lines().any(|line| line.contains("─[pid ") && line.contains(" cc1plus]")),
        "{tree}"
    );
    let page = guest.prints(&["report", "--process", "all", "a.heaptide"]);
    assert!(page.lines().next().is_some_and(|line| line == "g++, cc1plus, as"), "{page}");
    assert!(page.contains(&format!("  program  several, {images} process images\n")), "{page}");
    let svg = guest.place.join("a.svg");
    guest.prints(&["flamegraph", "--by", "process", "-o", "a.svg", "a.heaptide"]);
    assert!(fs::read_to_string(svg).expect("a picture").contains("cc1plus]"));
}
