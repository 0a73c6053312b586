//! Datasets with damaged and missing files: a query fails in one line, or omits the files and
//! counts them. Paths that are URLs are rejected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{files, heaptide, output, recordings, refused, scratch};

/// The list of files that exports write.
const LIST: &str = "_heaptide-files";

fn dataset(name: &str) -> PathBuf {
    let dataset = scratch(name);
    for recording in recordings() {
        let mut export = heaptide();
        output(export.args(["export", "--format", "parquet", "-o"]).arg(&dataset).arg(recording));
    }
    dataset
}

fn ask(dataset: &Path, sql: &str, options: &[&str]) -> Command {
    let mut command = heaptide();
    command.args(["sql", "--format", "csv", sql, "--dataset"]).arg(dataset).args(options);
    command
}

/// Returns the number of rows of a table by run.
fn rows(table: &str) -> String {
    format!("SELECT run, count(*) AS n FROM {table} GROUP BY run ORDER BY run")
}

/// Returns the file of the first recording in a table.
fn file_of_steps(dataset: &Path, table: &str) -> PathBuf {
    let files = files(&dataset.join(table).join("run=steps"));
    files.into_iter().find(|path| path.extension().is_some_and(|of| of == "parquet")).expect("one")
}

/// A function that damages a file, and the beginning of the message about it.
type Damage = (fn(&Path), &'static str);

const DAMAGES: [Damage; 4] = [
    (|path| fs::write(path, "").expect("a file"), "is damaged: 0 bytes"),
    (
        |path| {
            let bytes = fs::read(path).expect("a file");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("a file");
        },
        "is damaged",
    ),
    (
        |path| {
            let mut bytes = fs::read(path).expect("a file");
            let end = bytes.len();
            bytes[end - 300..end - 8].fill(0xff); // the metadata, before its length
            fs::write(path, bytes).expect("a file");
        },
        "is damaged",
    ),
    (|path| fs::remove_file(path).expect("a file"), "is missing"),
];

fn check_damage(dataset: &Path, (damage, what): Damage, table: &str, whole: &str) {
    let path = file_of_steps(dataset, table);
    let bytes = fs::read(&path).expect("a file");
    let others = output(&mut ask(dataset, &rows("modules"), &[]));
    damage(&path);
    let said = refused(&mut ask(dataset, &rows(table), &[]));
    let start = format!("heaptide: {}: {what}", path.display());
    assert!(said.starts_with(&start) && said.lines().count() == 1, "{said}");
    assert!(said.contains("--force") && said.contains("--skip-damaged"), "{said}");
    let mut calql = heaptide();
    calql.args(["query", &format!("SELECT count() FROM {table}"), "--dataset"]).arg(dataset);
    assert_eq!(refused(&mut calql), said);
    // Other tables are not affected.
    assert_eq!(output(&mut ask(dataset, &rows("modules"), &[])), others);
    // Nothing is compacted, because the rows would be lost.
    let before = files(dataset);
    assert!(refused(heaptide().args(["dataset", "compact"]).arg(dataset)).contains(what));
    assert_eq!(files(dataset), before);
    // Without the file, the rows of its run are missing, and a message counts it.
    let Output { status, stdout, stderr } =
        ask(dataset, &rows(table), &["--skip-damaged"]).output().expect("heaptide");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let counted =
        format!("heaptide: {table}: skipped a damaged or missing file; {}", path.display());
    assert!(status.success() && stderr.starts_with(&counted), "{stderr}");
    let left: Vec<&str> = whole.lines().filter(|line| !line.starts_with("steps,")).collect();
    assert_eq!(stdout.lines().collect::<Vec<_>>(), left);
    fs::write(&path, bytes).expect("a file");
    assert_eq!(output(&mut ask(dataset, &rows(table), &[])), whole);
}

#[test]
fn a_damaged_or_missing_file_is_one_line_or_counted() {
    let dataset = dataset("damaged");
    for table in ["sites", "timeline"] {
        let whole = output(&mut ask(&dataset, &rows(table), &[]));
        assert!(whole.lines().count() == 3, "{whole}");
        for damage in DAMAGES {
            check_damage(&dataset, damage, table, &whole);
        }
    }
    // The directory of a run in a table.
    let [from, to] = ["sites/run=steps", "away"].map(|name| dataset.join(name));
    fs::rename(&from, &to).expect("to move it");
    let said = refused(&mut ask(&dataset, &rows("sites"), &[]));
    assert!(said.starts_with(&format!("heaptide: {}: is missing", from.display())), "{said}");
    fs::rename(&to, &from).expect("to move it");
    // The list itself.
    let list = from.join(LIST);
    let text = fs::read_to_string(&list).expect("a list");
    fs::write(&list, &text[..text.len() / 2]).expect("a list");
    let said = refused(&mut ask(&dataset, &rows("sites"), &[]));
    assert!(said.starts_with(&format!("heaptide: {}: is truncated", list.display())), "{said}");
    fs::write(&list, &text).expect("a list");
    // A compacted table.
    output(heaptide().args(["dataset", "compact"]).arg(&dataset));
    let part = dataset.join("sites/part-00000.parquet");
    for (damage, what) in [DAMAGES[0], DAMAGES[3]] {
        let bytes = fs::read(&part).expect("a file");
        damage(&part);
        let said = refused(&mut ask(&dataset, &rows("sites"), &[]));
        assert!(said.starts_with(&format!("heaptide: {}: {what}", part.display())), "{said}");
        fs::write(&part, bytes).expect("a file");
    }
}

#[test]
fn a_dataset_without_lists_is_read_and_its_files_are_checked() {
    let dataset = dataset("of version 0.2");
    let whole = output(&mut ask(&dataset, &rows("sites"), &[]));
    for path in files(&dataset).iter().filter(|path| path.ends_with(LIST)) {
        fs::remove_file(path).expect("a list");
    }
    assert_eq!(output(&mut ask(&dataset, &rows("sites"), &[])), whole);
    // A missing file is unknown, but all others are detected.
    for damage in &DAMAGES[..3] {
        check_damage(&dataset, *damage, "sites", &whole);
    }
    // What a killed export of version 0.2 leaves.
    let killed = dataset.join("sites/run=killed/host=h/rank=-1/pid=1");
    fs::create_dir_all(&killed).expect("a directory");
    let path = killed.join("image-0.parquet");
    for bytes in [&b""[..], b"PAR1"] {
        fs::write(&path, bytes).expect("a file");
        let said = refused(&mut ask(&dataset, &rows("sites"), &[]));
        let start = format!("heaptide: {}: is damaged: {} bytes", path.display(), bytes.len());
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn urls_are_rejected_where_files_are_written() {
    let place = scratch("urls");
    let [steps, _] = recordings();
    let steps = steps.to_str().expect("UTF-8");
    let url = "s3://bucket/heap";
    let commands: [&[&str]; 9] = [
        &["export", "--format", "parquet", steps, "-o", url],
        &["export", "--format", "parquet", steps, "--force", "-o", "gs://bucket/heap"],
        &["export", "--format", "folded", steps, "-o", url],
        &["flamegraph", steps, "-o", "https://example.org/a.svg"],
        &["sql", "SELECT 1", steps, "-o", "hdfs://node/a.csv"],
        &["sql", "SELECT 1", "--dataset", url],
        &["query", "SELECT count()", steps, "-o", url],
        &["dataset", "compact", url],
        &["merge", steps, steps, "-o", url],
    ];
    for arguments in commands {
        let said = refused(heaptide().args(arguments).current_dir(&place));
        let scheme = arguments.iter().rev().find_map(|word| word.split_once("://")).expect("one").0;
        let what = format!("found a URL with `{scheme}://`, expected a local path");
        assert!(said.contains(&what), "{arguments:?}: {said}");
    }
    let said = refused(heaptide().args(["run", "-o", url, "--", "true"]).current_dir(&place));
    assert!(said.contains("found a URL with `s3://`"), "{said}");
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 0);
}
