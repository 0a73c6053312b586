//! Datasets over time: compaction by commands that are killed, and files of other versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::harness::{files, heaptide, job_and_dataset, output, recordings, refused, scratch};

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
    // One file per table that has records, each with a list, that of the dataset, and the manifest;
    // nothing remains of the killed commands.
    let after = files(&dataset);
    assert!(before > 50 && after.len() == 28, "{before}: {after:?}");
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
    // Compacted rows are in the order of owners, so the order of siblings has to be stated.
    let calql = "SELECT function,count(),inclusive_sum(usable_bytes) GROUP BY function \
                 ORDER BY function FORMAT tree";
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

/// Returns the output of a statement as CSV.
fn ask(dataset: &Path, sql: &str) -> String {
    output(heaptide().args(["sql", "--format", "csv", sql, "--dataset"]).arg(dataset))
}

/// Returns the paths of the data files in the plan of a statement.
fn read_by(dataset: &Path, sql: &str) -> Vec<String> {
    let plan = ask(dataset, &format!("EXPLAIN FORMAT INDENT {sql}"));
    let paths =
        plan.split(['[', ']', ' ', ',', '{', '}']).filter(|word| word.ends_with(".parquet"));
    paths.map(str::to_owned).collect()
}

#[test]
fn queries_read_only_files_that_they_need() {
    let place = scratch("pruned");
    let [_, dataset] = job_and_dataset(&place, 12);
    let all = "SELECT rank, count(*) FROM processes GROUP BY rank ORDER BY rank";
    let ranks = |of: std::ops::Range<i64>| of.map(|rank| format!("{rank},1\n")).collect::<String>();
    assert!(ask(&dataset, all).ends_with(&ranks(0..12)));
    let check = |condition: &str, expected: &[i64]| {
        let sql = format!("SELECT rank FROM sites WHERE {condition}");
        let mut read = read_by(&dataset, &sql);
        read.sort();
        let ranks = expected.iter().map(|rank| format!("/rank={rank}/"));
        assert_eq!(read.len(), expected.len(), "{condition}: {read:?}");
        for rank in ranks {
            assert!(read.iter().any(|path| path.contains(&rank)), "{condition}: {read:?}");
        }
        let sql = format!("SELECT DISTINCT rank FROM sites WHERE {condition} ORDER BY rank");
        let lines: Vec<i64> =
            ask(&dataset, &sql).lines().skip(1).map(|rank| rank.parse().expect("a rank")).collect();
        assert_eq!(lines, expected, "{condition}");
    };
    check("rank = 10", &[10]);
    check("10 = rank AND live_bytes >= 0", &[10]);
    check("run = 'r3'", &[3]);
    check("run LIKE 'r1%' AND rank <> 10", &[1, 11]);
    check("rank IN (2, 99) OR run = 'r7'", &[2, 7]);
    check("rank % 4 = 1", &[1, 5, 9]);
    check("rank IS NULL", &[]);
    let last = "SELECT DISTINCT rank FROM sites WHERE rank = (SELECT max(rank) FROM processes)";
    assert_eq!(ask(&dataset, last), "rank\n11\n");
    check("host = 'elsewhere'", &[]);
    // The numbers of rows are in the lists.
    assert_eq!(read_by(&dataset, "SELECT count(*) FROM sites"), [""; 0]);
    let counted = ask(&dataset, "SELECT count(*) AS n FROM sites");
    assert_eq!(
        counted,
        ask(&dataset, "SELECT count(*) AS n FROM (SELECT run FROM sites OFFSET 0)")
    );
    let by_rank = "SELECT sum(n) AS n FROM (SELECT rank, count(*) AS n FROM sites GROUP BY rank)";
    assert_eq!(counted, ask(&dataset, by_rank));
    // A file that is missing is an error only for queries that would read it.
    let lost = files(&dataset.join("sites/run=r4"));
    let lost = lost.iter().find(|path| path.ends_with("image-0.parquet")).expect("a file");
    fs::remove_dir_all(lost.parent().expect("a directory")).expect("to remove it");
    for condition in ["rank = 4", "rank > 2", "host <> 'elsewhere'"] {
        let sql = format!("SELECT count(*) FROM sites WHERE {condition}");
        let said = refused(heaptide().args(["sql", &sql, "--dataset"]).arg(&dataset));
        assert!(said.starts_with(&format!("heaptide: {}: is missing", lost.display())), "{said}");
    }
    check("rank = 10", &[10]);
}

#[test]
fn ranks_are_compacted_in_numeric_order() {
    let place = scratch("numeric order");
    let [_, dataset] = job_and_dataset(&place, 12);
    output(&mut compact(&dataset));
    let ranks = ask(&dataset, "SELECT rank FROM processes");
    let expected: String = (0..12).map(|rank| format!("{rank}\n")).collect();
    assert_eq!(ranks, format!("rank\n{expected}"));
}

#[test]
fn tables_without_records_are_empty_but_not_written() {
    let place = scratch("tables without records");
    let [job, dataset] = job_and_dataset(&place, 1);
    let tables = ask(
        &dataset,
        "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'",
    );
    let tables: Vec<&str> = tables.lines().skip(1).collect();
    assert!(tables.len() > 12 && tables.contains(&"labels"), "{tables:?}");
    let mut written = 0;
    for table in tables {
        let count = format!("SELECT count(*) AS n FROM {table}");
        if ["events", "lifetimes"].contains(&table) {
            for (source, option) in [(&dataset, "--dataset"), (&job.join("r0.heaptide"), "--")] {
                let said = refused(heaptide().args(["sql", &count, option]).arg(source));
                let why = "recorded without a trace, which the tables events and lifetimes require; \
                           record one with `heaptide run --mode trace`";
                assert_eq!(said, format!("heaptide: {}: {why}\n", source.display()));
            }
            continue;
        }
        let counted = ask(&dataset, &count);
        assert_eq!(
            counted,
            output(
                heaptide().args(["sql", "--format", "csv", &count]).arg(job.join("r0.heaptide"))
            )
        );
        assert_eq!(counted != "n\n0\n", dataset.join(table).exists(), "{table}");
        written += usize::from(dataset.join(table).exists());
    }
    assert!(written > 5, "{written}");
    let said =
        refused(heaptide().args(["sql", "SELECT 1 FROM nothing", "--dataset"]).arg(&dataset));
    assert!(
        said.starts_with("heaptide: query: unknown table `nothing`; available: sites "),
        "{said}"
    );
    // Compaction has nothing to do for tables that do not exist.
    output(&mut compact(&dataset));
    assert_eq!(ask(&dataset, "SELECT count(*) AS n FROM labels"), "n\n0\n");
}
