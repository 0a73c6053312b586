//! Datasets over time: compaction by commands that are killed, and files of other versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::harness::{files, heaptide, output, recordings, refused, scratch};

/// Sums over all tables, which change if a row is duplicated or missing.
const SUMS: [&str; 6] = [
    "SELECT run, host, rank, count(*) AS n, sum(allocations) AS a, sum(live_bytes) AS b FROM sites \
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT stack_text(stack) AS s, run, sum(allocations) AS n FROM stacks GROUP BY 1, 2 ORDER BY 2, 1",
    "SELECT operation, label, count(*) AS n, sum(size) AS b FROM events GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT label, count(*) AS n, sum(lifetime_ns) AS b FROM lifetimes GROUP BY 1 ORDER BY 1",
    "SELECT program, process, image, allocations, peak_bytes FROM processes ORDER BY 1, 2, 3",
    "SELECT count(*) AS n, sum(live_bytes) AS b FROM timeline",
];

fn sums(dataset: &Path) -> Vec<String> {
    let ask = |sql: &&str| {
        output(heaptide().args(["sql", "--format", "json", sql, "--dataset"]).arg(dataset))
    };
    SUMS.iter().map(ask).collect()
}

fn export(dataset: &Path, recording: &Path) -> Command {
    let mut command = heaptide();
    command.args(["export", "--format", "parquet", "-o"]).arg(dataset).arg(recording);
    command
}

fn compact(dataset: &Path) -> Command {
    let mut command = heaptide();
    command.args(["dataset", "compact"]).arg(dataset);
    command
}

#[test]
fn a_killed_compaction_loses_nothing() {
    let dataset = scratch("compacted");
    for recording in recordings() {
        output(&mut export(&dataset, recording));
    }
    let expected = sums(&dataset);
    let before = files(&dataset).len();
    let mut killed = 0;
    for wait in 0..12 {
        let mut running = compact(&dataset).stderr(Stdio::null()).spawn().expect("heaptide");
        thread::sleep(Duration::from_millis(40 * wait));
        let ended = running.try_wait().expect("a child").is_some();
        running.kill().expect("to kill it, if it has not ended");
        running.wait().expect("a child");
        killed += usize::from(!ended);
        if wait % 4 == 0 {
            assert_eq!(sums(&dataset), expected, "killed after {wait} times 40 ms");
        }
    }
    assert!(killed > 1, "none was killed in the middle");
    output(&mut compact(&dataset));
    assert_eq!(sums(&dataset), expected);
    // One file per table with a list, and that of the dataset; nothing remains of the killed
    // commands.
    let after = files(&dataset);
    assert!(before > 60 && after.len() == 31, "{before}: {after:?}");
    let names = fs::read_dir(&dataset).expect("a directory").flatten();
    assert!(names.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
    // A second compaction has nothing to do.
    let times = |all: &[PathBuf]| {
        all.iter().map(|path| path.metadata().and_then(|of| of.modified()).expect("a time")).max()
    };
    let then = times(&after);
    output(&mut compact(&dataset));
    assert_eq!(times(&files(&dataset)), then);
    // A compacted run cannot be distinguished from a new one with its name, so adding it fails.
    let [steps, _] = recordings();
    let said = refused(export(&dataset, steps).arg("--force"));
    assert!(said.contains("`steps` is in compacted files and cannot be replaced"), "{said}");
    assert_eq!(sums(&dataset), expected);
}

#[test]
fn compacted_and_new_files_are_one_table() {
    let (dataset, apart) = (scratch("half compacted"), scratch("not compacted"));
    let [steps, compiler] = recordings();
    output(&mut export(&dataset, steps));
    output(&mut compact(&dataset));
    output(&mut export(&dataset, compiler));
    for recording in [steps, compiler] {
        output(&mut export(&apart, recording));
    }
    assert_eq!(sums(&dataset), sums(&apart));
    let calql = "SELECT function,count(),inclusive_sum(usable_bytes) GROUP BY function FORMAT tree";
    let of = |path: &Path| output(heaptide().args(["query", calql, "--dataset"]).arg(path));
    assert_eq!(of(&dataset), of(&apart));
}

#[test]
fn columns_of_other_versions_are_null_or_omitted() {
    let dataset = scratch("two versions");
    let [steps, _] = recordings();
    output(&mut export(&dataset, steps));
    let row = |sql: &str| {
        output(heaptide().args(["sql", "--format", "csv", sql, "--dataset"]).arg(&dataset))
    };
    let own = row("SELECT sum(allocations), count(line) FROM sites");
    // A file of a version without `line`, and with an unknown column.
    let place = dataset.join("sites/run=other/host=h/rank=3/pid=1");
    fs::create_dir_all(&place).expect("a directory");
    let other = "SELECT * EXCLUDE (run, host, rank, line), 'new' AS novelty FROM sites";
    output(heaptide().args(["sql", other]).arg(steps).arg("-o").arg(place.join("image-0.parquet")));
    assert_eq!(row("SELECT sum(allocations), count(line) FROM sites WHERE run = 'steps'"), own);
    let all = row(
        "SELECT run, sum(allocations) > 0 AS a, count(line) > 0 AS l FROM sites GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(all, "run,a,l\nother,true,false\nsteps,true,true\n");
    let said =
        refused(heaptide().args(["sql", "SELECT novelty FROM sites", "--dataset"]).arg(&dataset));
    assert!(said.contains("unknown column `novelty`"), "{said}");
    // Tables whose columns have another meaning are rejected.
    let mark = dataset.join("heaptide-dataset");
    assert_eq!(fs::read_to_string(&mark).expect("a mark"), "schema 1\n");
    fs::write(&mark, "schema 2\n").expect("a mark");
    let line = "unsupported schema version 2 (this build reads 1); update heaptide\n";
    let query = ["sql", "SELECT 1", "--dataset"];
    for command in
        [heaptide().args(query).arg(&dataset), &mut export(&dataset, steps), &mut compact(&dataset)]
    {
        assert_eq!(refused(command), format!("heaptide: {}: {line}", dataset.display()));
    }
    fs::write(&mark, "something\n").expect("a mark");
    let said = refused(heaptide().args(query).arg(&dataset));
    assert!(
        said.ends_with("expected `schema 1` in heaptide-dataset, found `something`\n"),
        "{said}"
    );
}
