//! Other programs read a dataset: DuckDB, pandas, polars and Spark compute the same sums as CalQL
//! or SQL.

use crate::harness::{heaptide, output, recordings, scratch};
use heaptide_fixtures::skips::{PYSPARK, reader, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints `READER RUN RANK SUM ROWS INNERMOST` for each run, and rows of all tables.
const SCRIPT: &str = r#"
import glob, os, sys
import duckdb, pandas, polars
root = sys.argv[1]
def say(reader, rows):
    for row in sorted(rows):
        print(reader, *row)
files = f"'{root}/sites/**/*.parquet', hive_partitioning = true"
say("duckdb", duckdb.sql(f"""SELECT run, rank, sum(live_bytes), count(*),
    count(*) FILTER (frame = stack[-1]) FROM read_parquet({files}) GROUP BY ALL""").fetchall())
frame = pandas.read_parquet(f"{root}/sites")
ends = [stack is not None and stack[-1] == name for stack, name in zip(frame["stack"], frame["frame"])]
frame["ends"] = ends
sums = frame.astype({"run": str, "rank": int}).groupby(["run", "rank"], observed=True)
sums = sums.agg(bytes=("live_bytes", "sum"), rows=("live_bytes", "size"), ends=("ends", "sum"))
say("pandas", sums.reset_index().itertuples(index=False, name=None))
frame = polars.scan_parquet(f"{root}/sites/**/*.parquet", hive_partitioning=True)
ends = (polars.col("stack").list.last() == polars.col("frame")).sum()
sums = frame.group_by("run", "rank").agg(polars.col("live_bytes").sum(), polars.len(), ends.alias("e"))
say("polars", sums.collect().rows())
for table in sorted(name for name in os.listdir(root) if os.path.isdir(f"{root}/{name}")):
    all = glob.glob(f"{root}/{table}/**/*.parquet", recursive=True)
    count = f"SELECT count(*) FROM read_parquet('{root}/{table}/**/*.parquet')"
    rows = {duckdb.sql(count).fetchall()[0][0], len(pandas.read_parquet(f"{root}/{table}")),
        polars.scan_parquet(all).select(polars.len()).collect().item()}
    print("table", table, *rows)
"#;

/// Returns a Python interpreter with the readers. Without it the test is skipped.
fn python() -> Option<PathBuf> {
    let python = reader("python").join("bin/python");
    if !python.exists() {
        skip("python-readers");
        return None;
    }
    Some(python)
}

#[test]
fn duckdb_pandas_and_polars_agree_with_calql() {
    let Some(python) = python() else { return };
    let dataset = scratch("read by others");
    let mut expected = Vec::new();
    for (recording, run) in recordings().iter().zip(["steps", "compiler"]) {
        let mut export = heaptide();
        output(export.args(["export", "--format", "parquet", "-o"]).arg(&dataset).arg(recording));
        // One record per scope path.
        let sums = "SELECT sum(live_bytes) FORMAT format(%sum#live_bytes%)";
        let sums = output(heaptide().args(["query", sums]).arg(recording));
        let bytes: i64 = sums.lines().filter_map(|line| line.trim().parse::<i64>().ok()).sum();
        let of =
            |sql: &str| output(heaptide().args(["sql", "--format", "csv", sql]).arg(recording));
        let rows = of("SELECT count(*) FROM sites");
        let ends = of("SELECT count(*) FROM sites WHERE stack IS NOT NULL");
        let last = |text: &str| text.trim().lines().last().expect("a line").trim().to_owned();
        expected.push(format!("{run} -1 {bytes} {} {}", last(&rows), last(&ends)));
    }
    expected.sort();
    let said = output(Command::new(python).args(["-c", SCRIPT]).arg(&dataset));
    for reader in ["duckdb", "pandas", "polars"] {
        let start = format!("{reader} ");
        let own: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        assert_eq!(own, expected, "{said}");
    }
    // All readers count the same rows of each table.
    let tables: Vec<&str> = said.lines().filter(|line| line.starts_with("table ")).collect();
    assert_eq!(tables.len(), 13, "{said}");
    assert!(tables.iter().all(|line| line.split_whitespace().count() == 3), "{said}");
}

/// Returns the output of the scripts in `examples/datasets` for a dataset.
fn totals(dataset: &Path) -> String {
    let of = |sql: &str| {
        let text =
            output(heaptide().args(["sql", "--format", "csv", sql, "--dataset"]).arg(dataset));
        let rows = text.lines().skip(1).map(|line| line.replace(',', " "));
        rows.collect::<Vec<_>>()
    };
    let ranks = of("SELECT run, host, coalesce(rank, -1) AS rank, count(*), sum(allocations), \
                    sum(live_bytes) FROM sites GROUP BY 1, 2, 3 ORDER BY 1, 2, 3");
    // Replace commas, because names with commas would be quoted.
    let functions = "SELECT replace(f, ',', '¤') AS f, sum(allocations) AS n FROM \
                     (SELECT unnest(array_distinct(stack)) AS f, allocations FROM sites) \
                     GROUP BY 1 ORDER BY n DESC, 1 LIMIT 5";
    let functions = of(functions).into_iter().map(|line| line.replace('¤', ","));
    let lines = ranks.into_iter().map(|line| format!("rank {line}\n"));
    lines.chain(functions.map(|line| format!("function {line}\n"))).collect()
}

/// Creates a dataset with the recordings as ranks of a job.
fn ranks(name: &str) -> PathBuf {
    let dataset = scratch(name);
    for recording in recordings() {
        let mut export = heaptide();
        output(export.args(["export", "--format", "parquet", "-o"]).arg(&dataset).arg(recording));
    }
    dataset
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/datasets").join(name)
}

#[test]
fn the_duckdb_script_agrees_with_sql() {
    let Some(python) = python() else { return };
    let dataset = ranks("totals of duckdb");
    let said = || output(Command::new(&python).arg(example("duckdb_totals.py")).arg(&dataset));
    let expected = totals(&dataset);
    assert_eq!(said(), expected);
    output(heaptide().args(["dataset", "compact"]).arg(&dataset));
    assert_eq!(said(), expected);
}

#[test]
fn the_spark_script_agrees_with_sql() {
    let mut has_it = Command::new("python3");
    let has_it = has_it.args(["-c", "import pyspark"]).output().is_ok_and(|of| of.status.success());
    if !has_it || Command::new("java").arg("-version").output().is_err() {
        return skip(PYSPARK);
    }
    let dataset = ranks("totals of spark");
    let said = || output(Command::new("python3").arg(example("spark_totals.py")).arg(&dataset));
    let expected = totals(&dataset);
    assert_eq!(said(), expected);
    output(heaptide().args(["dataset", "compact"]).arg(&dataset));
    assert_eq!(said(), expected);
}
