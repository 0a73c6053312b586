//! The manifest of a dataset: queries open only the files that it leaves, it is never older than
//! what they return, and other programs can read it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use heaptide_fixtures::skips::{reader, skip};

use crate::harness::{files, heaptide, job_and_dataset, output, recordings, refused, scratch};

/// Ranks of the job: rank 5 keeps 900,000 bytes more than the others.
const RANKS: usize = 12;

fn export(dataset: &Path, recording: &Path) -> Command {
    let mut command = heaptide();
    command.args(["export", "--format", "parquet", "-o"]).arg(dataset).arg(recording);
    command
}

fn asked(dataset: &Path, sql: &str) -> Command {
    let mut command = heaptide();
    command.args(["sql", "--format", "csv", sql, "--dataset"]).arg(dataset);
    command
}

fn ask(dataset: &Path, sql: &str) -> String {
    output(&mut asked(dataset, sql))
}

fn index(dataset: &Path) {
    output(heaptide().args(["dataset", "index"]).arg(dataset));
}

/// Returns the versions of the manifest.
fn manifests(dataset: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dataset).expect("a directory").flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| path.to_string_lossy().contains("/manifest-");
    names.filter(is_one).collect()
}

/// Returns the only version of the manifest.
fn manifest(dataset: &Path) -> PathBuf {
    let all = manifests(dataset);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// Returns the data files of a table.
fn data(dataset: &Path, table: &str) -> Vec<PathBuf> {
    let all = files(&dataset.join(table)).into_iter();
    all.filter(|path| path.extension().is_some_and(|of| of == "parquet")).collect()
}

/// Overwrites a file so that it cannot be read, but has the same size and time.
fn spoil(path: &Path) {
    let file = File::options().write(true).open(path).expect("a file");
    let metadata = file.metadata().expect("metadata");
    fs::write(path, vec![0; metadata.len().try_into().expect("a size")]).expect("to write it");
    file.set_modified(metadata.modified().expect("a time")).expect("to set the time");
}

#[test]
fn queries_open_only_files_with_matching_values() {
    let place = scratch("opened by value");
    let [_, dataset] = job_and_dataset(&place, RANKS);
    index(&dataset);
    let rows = ask(&dataset, "SELECT count(*) AS n FROM sites");
    let largest = "SELECT rank, live_blocks FROM processes WHERE peak_bytes > 2000000";
    let expected = ask(&dataset, largest);
    assert!(expected.starts_with("rank,live_blocks\n5,") && expected.lines().count() == 2);
    // No list of a run is read, and no other file.
    let lists = files(&dataset).into_iter().filter(|path| path.ends_with("_heaptide-files"));
    lists.for_each(|list| fs::write(list, "no list").expect("a file"));
    for path in data(&dataset, "processes") {
        if !path.to_string_lossy().contains("/rank=5/") {
            spoil(&path);
        }
    }
    data(&dataset, "sites").iter().for_each(|path| spoil(path));
    assert_eq!(ask(&dataset, largest), expected);
    assert_eq!(ask(&dataset, "SELECT count(*) AS n FROM sites"), rows);
    // A file that has to be read is an error, as is one whose size or time differs.
    let said = refused(&mut asked(&dataset, "SELECT sum(peak_bytes) FROM processes"));
    assert!(said.contains("is damaged") && said.lines().count() == 1, "{said}");
    fs::write(&data(&dataset, "sites")[3], "short").expect("a file");
    let said = refused(&mut asked(&dataset, "SELECT count(*) AS n FROM sites"));
    assert!(said.contains("/sites/") && said.lines().count() == 1, "{said}");
}

#[test]
fn calql_opens_only_the_files_of_its_ranks() {
    let place = scratch("opened by rank");
    let [job, dataset] = job_and_dataset(&place, RANKS);
    let query = |condition: &str, source: &[&Path]| {
        let calql = format!(
            "SELECT owner,sum(requested_bytes) WHERE {condition} GROUP BY owner ORDER BY owner FORMAT csv"
        );
        let mut command = heaptide();
        command.arg("query").arg(calql).args(source);
        command
    };
    let of_dataset = [Path::new("--dataset"), &dataset];
    let expected = output(&mut query("rank=5", &[&job.join("r5.heaptide")]));
    assert!(expected.contains("cache,900000\n"), "{expected}");
    for path in data(&dataset, "sites") {
        if !path.to_string_lossy().contains("/rank=5/") {
            spoil(&path);
        }
    }
    for condition in ["rank=5", "rank>4,rank<=5", "run=r5", "rank=5,run=r5,live_bytes>0"] {
        assert_eq!(output(&mut query(condition, &of_dataset)), expected, "{condition}");
    }
    let said = refused(&mut query("rank=6", &of_dataset));
    assert!(said.contains("rank=6") && said.lines().count() == 1, "{said}");
    for condition in ["not(rank=6)", "rank"] {
        assert!(refused(&mut query(condition, &of_dataset)).contains("is damaged"), "{condition}");
    }
}

#[test]
fn the_manifest_follows_exports_replacements_and_compactions() {
    let place = scratch("manifest over time");
    let dataset = place.join("heap");
    let [steps, compiler] = recordings();
    let rows = "SELECT run, count(*) AS n, sum(allocations) AS a FROM sites GROUP BY 1 ORDER BY 1";
    let mut before = PathBuf::new();
    let mut check = |dataset: &Path, runs: usize| {
        let now = manifest(dataset);
        assert!(now > before, "{}", now.display());
        before.clone_from(&now);
        let with = ask(dataset, rows);
        assert_eq!(with.lines().count(), runs + 1, "{with}");
        let away = place.join("away");
        fs::rename(&now, &away).expect("to move it");
        assert_eq!(ask(dataset, rows), with);
        fs::rename(&away, &now).expect("to move it");
        with
    };
    output(&mut export(&dataset, steps));
    check(&dataset, 1);
    output(&mut export(&dataset, compiler));
    let both = check(&dataset, 2);
    for _ in 0..3 {
        output(export(&dataset, steps).arg("--force"));
        assert_eq!(check(&dataset, 2), both);
    }
    // The same name, but another recording.
    let other = place.join("other/steps.heaptide");
    fs::create_dir_all(other.parent().expect("a directory")).expect("a directory");
    output(Command::new("cp").arg("-r").arg(compiler).arg(&other));
    output(export(&dataset, &other).arg("--force"));
    let replaced = check(&dataset, 2);
    let numbers: Vec<&str> =
        replaced.lines().skip(1).map(|line| line.split_once(',').expect("n").1).collect();
    assert_eq!(numbers[0], numbers[1], "{replaced}");
    // Removed by hand, then exported again with the names that its files had first.
    for table in fs::read_dir(&dataset).expect("a directory").flatten() {
        let _ = fs::remove_dir_all(table.path().join("run=steps"));
    }
    assert_eq!(ask(&dataset, rows).lines().count(), 2);
    output(&mut export(&dataset, steps));
    assert_eq!(check(&dataset, 2), both);
    output(heaptide().args(["dataset", "compact"]).arg(&dataset));
    assert_eq!(check(&dataset, 2), both);
    assert!(!dataset.join(".exports").exists());
}

#[test]
fn runs_copied_by_hand_are_read_at_once_and_files_after_index() {
    let place = scratch("copied by hand");
    let [_, dataset] = job_and_dataset(&place, 3);
    let ranks = "SELECT DISTINCT rank FROM sites ORDER BY 1";
    let copy = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| dataset.join(name));
        output(Command::new("cp").arg("-r").arg(from).arg(to));
    };
    copy("sites/run=r1", "sites/run=copy");
    let of_copy = ask(&dataset, "SELECT count(*) AS n FROM sites WHERE run = 'copy'");
    assert_eq!(of_copy, ask(&dataset, "SELECT count(*) AS n FROM sites WHERE run = 'r1'"));
    assert_ne!(of_copy, "n\n0\n");
    // A file in the directory of a run that the manifest has.
    let host = fs::read_dir(dataset.join("sites/run=r1")).expect("a directory").flatten();
    let host = host.into_iter().find(|entry| entry.path().is_dir()).expect("a host").path();
    output(Command::new("cp").arg("-r").arg(host.join("rank=1")).arg(host.join("rank=9")));
    assert_eq!(ask(&dataset, ranks), "rank\n0\n1\n2\n");
    index(&dataset);
    assert_eq!(ask(&dataset, ranks), "rank\n0\n1\n2\n9\n");
    // A run that is removed is not missing, a table of a run is.
    fs::remove_dir_all(dataset.join("sites/run=copy")).expect("to remove it");
    assert_eq!(ask(&dataset, ranks), "rank\n0\n1\n2\n9\n");
    fs::remove_dir_all(dataset.join("sites/run=r2")).expect("to remove it");
    let said = refused(&mut asked(&dataset, ranks));
    assert!(said.contains("sites/run=r2: is missing"), "{said}");
    assert_eq!(
        ask(&dataset, "SELECT count(*) AS n FROM sites WHERE run = 'r0'").lines().count(),
        2
    );
}

#[test]
fn a_damaged_manifest_is_reported_and_not_used() {
    let place = scratch("damaged manifest");
    let [_, dataset] = job_and_dataset(&place, 3);
    let sql = "SELECT rank, count(*) AS n FROM sites GROUP BY 1 ORDER BY 1";
    let expected = ask(&dataset, sql);
    let path = manifest(&dataset);
    let bytes = fs::read(&path).expect("a file");
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).expect("a file");
        let done = asked(&dataset, sql).output().expect("heaptide");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.lines().count() == 1, "{said}");
        assert!(said.contains("manifest-") && said.contains("heaptide dataset index"), "{said}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
    }
    index(&dataset);
    assert!(manifest(&dataset) > path);
    let done = asked(&dataset, sql).output().expect("heaptide");
    assert_eq!((&*done.stdout, &*done.stderr), (expected.as_bytes(), &b""[..]));
    let said = refused(heaptide().args(["dataset", "index"]).arg(place.join("job")));
    assert!(said.contains("no dataset") && said.lines().count() == 1, "{said}");
}

/// Prints a line for each table: the files in the manifest and their rows, which have to be those
/// that the readers find, then facts about the processes.
const SCRIPT: &str = r#"
import glob, sys
import duckdb, pandas
root = sys.argv[1]
path, = glob.glob(f"{root}/manifest-*.parquet")
manifest = pandas.read_parquet(path)
assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(len(manifest),)]
found = {file[len(root) + 1:] for file in glob.glob(f"{root}/*/**/*.parquet", recursive=True)}
assert set(manifest["file"]) == found, set(manifest["file"]) ^ found
for table, of in manifest.groupby("table"):
    counted = duckdb.sql(f"SELECT count(*) FROM read_parquet('{root}/{table}/**/*.parquet')").fetchall()[0][0]
    assert counted == of["rows"].sum(), (table, counted, of["rows"].sum())
processes = duckdb.sql(f"""SELECT r.column, min(r.min), max(r.max), min(r.min_text), max(r.max_text)
    FROM (SELECT unnest(ranges) AS r FROM '{path}' WHERE "table" = 'processes') GROUP BY 1""").fetchall()
ranges = {column: values for column, *values in processes}
all = f"read_parquet('{root}/processes/**/*.parquet', hive_partitioning = true)"
for column in ["process", "peak_bytes", "start_ns"]:
    assert tuple(ranges[column][:2]) == duckdb.sql(f"SELECT min({column}), max({column}) FROM {all}").fetchall()[0]
assert tuple(ranges["program"][2:]) == duckdb.sql(f"SELECT min(program), max(program) FROM {all}").fetchall()[0]
own = manifest[manifest["table"] == "processes"].sort_values("rank")
times = duckdb.sql(f"SELECT start_ns, start_ns + duration_ns FROM {all} ORDER BY rank").fetchall()
if own["run"].notna().all():
    assert list(zip(own["start_ns"], own["end_ns"])) == times
    ids = duckdb.sql(f"SELECT DISTINCT build_id FROM read_parquet('{root}/modules/**/*.parquet') WHERE module = program")
    assert set(own["build_id"]) == {id for (id,) in ids.fetchall()} and len(set(own["build_id"])) == 1
    print(",".join(map(str, own["rank"].astype(int))), own["host"].nunique(), own["program"].iloc[0])
else:
    print("compacted")
"#;

/// Checks a manifest with DuckDB and pandas.
fn read_by_others(dataset: &Path) -> Option<String> {
    let python = reader("python").join("bin/python");
    if !python.exists() {
        skip("python-readers");
        return None;
    }
    Some(output(Command::new(python).args(["-c", SCRIPT]).arg(dataset)))
}

#[test]
fn duckdb_and_pandas_find_the_same_files_rows_and_ranges() {
    let place = scratch("manifest for others");
    let [_, dataset] = job_and_dataset(&place, RANKS);
    let Some(said) = read_by_others(&dataset) else { return };
    let ranks: Vec<String> = (0..RANKS).map(|rank| rank.to_string()).collect();
    let program = place.join("ranks");
    assert_eq!(said, format!("{} 1 {}\n", ranks.join(","), program.display()));
    output(heaptide().args(["dataset", "compact"]).arg(&dataset));
    assert_eq!(read_by_others(&dataset).as_deref(), Some("compacted\n"));
}

#[test]
fn exports_at_the_same_time_are_all_in_the_manifest() {
    let place = scratch("manifest of many writers");
    let [_, compiler] = recordings();
    let dataset = place.join("heap");
    let copy = |number: usize| {
        let to = place.join(format!("copy{number}.heaptide"));
        output(Command::new("cp").arg("-r").arg(compiler).arg(&to));
        to
    };
    let copies: Vec<PathBuf> = (0..8).map(copy).collect();
    let spawn =
        |copy: &PathBuf| export(&dataset, copy).stderr(Stdio::null()).spawn().expect("heaptide");
    let wait = |mut child: Child| assert!(child.wait().expect("a child").success());
    let all: Vec<Child> = copies.iter().map(spawn).collect();
    all.into_iter().for_each(wait);
    manifest(&dataset);
    assert!(!dataset.join(".exports").exists());
    let runs = ask(&dataset, "SELECT count(DISTINCT run) AS n, count(*) % 8 AS m FROM sites");
    assert_eq!(runs, "n,m\n8,0\n");
    // No list is read, so the manifest has all runs.
    let lists = files(&dataset).into_iter().filter(|path| path.ends_with("_heaptide-files"));
    lists.for_each(|list| fs::write(list, "no list").expect("a file"));
    assert_eq!(
        ask(&dataset, "SELECT count(DISTINCT run) AS n, count(*) % 8 AS m FROM sites"),
        runs
    );
}
