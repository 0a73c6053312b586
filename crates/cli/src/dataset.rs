//! Ranks of a dataset (the output of `heaptide export --format parquet`). `heaptide-sql` computes
//! the sums, so that thousands of ranks need not be read here.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use heaptide_analysis::model::{Measure, Measures};
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::ranks::{GROWTH_FROM, GROWTH_OVER_NS, Place, owners_of};
use heaptide_command::error::Error;
use heaptide_command::outcome::{FAILED, Stop};
use heaptide_command::progress::Progress;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use crate::sql;

/// A row of a result.
type Row = Map<String, Value>;

/// The columns that identify a process image.
const IMAGE: &str = "run, host, rank, process, image";

/// The file that exports create in a dataset; copies of tables may be without it.
const MARK: &str = "heaptide-dataset";

/// Returns whether a directory is a dataset.
pub fn is_one(directory: &Path) -> bool {
    let has_tables = || ["processes", "timeline"].iter().all(|of| directory.join(of).is_dir());
    directory.join(MARK).is_file() || has_tables()
}

/// Returns the ranks, hosts or processes of a dataset, each with its run. Peaks of several process
/// images of a rank are added.
///
/// Errors: `heaptide-sql` is not installed, or cannot read the dataset.
pub fn places(dataset: &Path, by: Origin, metric: Measure) -> Result<Vec<(String, Place)>, Stop> {
    let _progress = Progress::start(format!("reading {}", dataset.display()));
    let mut all = Vec::new();
    let mut known = FxHashMap::default();
    for row in ask(dataset, "SELECT * FROM processes ORDER BY run, host, rank, process, image")? {
        let at = *known.entry(key(&row, by)).or_insert_with(|| {
            all.push((text(&row, "run"), place(&row, by)));
            all.len() - 1
        });
        add(&mut all[at].1, &row);
    }
    let of_row = |row: &Row| known.get(&key(row, by)).copied();
    for row in ask(dataset, &growth())? {
        if let Some(at) = of_row(&row) {
            all[at].1.growth = row.get("growth").and_then(Value::as_f64);
        }
    }
    for row in ask(dataset, &owners(metric.of_sites(), owners_of(all.len())))? {
        if let Some(at) = of_row(&row) {
            let owners = &mut all[at].1.owners;
            *owners.entry(Arc::from(text(&row, "owner"))).or_default() += number(&row, "value");
        }
    }
    Ok(all)
}

/// Returns the query for the growth of each process image, those with the highest peak last.
fn growth() -> String {
    format!(
        "SELECT {IMAGE}, max(peak_bytes) AS peak, regr_slope(CAST(live_bytes AS DOUBLE), \
         CAST(time_ns AS DOUBLE) / 1e9) AS growth FROM (SELECT *, max(time_ns) OVER (PARTITION BY \
         {IMAGE}) AS end_ns FROM timeline) WHERE time_ns >= end_ns / 2 AND end_ns / 2 >= \
         {GROWTH_OVER_NS} GROUP BY {IMAGE} HAVING count(*) >= {GROWTH_FROM} ORDER BY peak"
    )
}

/// Returns the query for a metric per process image and owner, for the `count` largest owners.
fn owners(metric: Measure, count: usize) -> String {
    format!(
        "SELECT {IMAGE}, owner, sum({metric}) AS value FROM sites WHERE owner IN (SELECT owner FROM \
         sites WHERE owner IS NOT NULL GROUP BY owner ORDER BY sum({metric}) DESC, owner LIMIT \
         {count}) GROUP BY {IMAGE}, owner HAVING sum({metric}) > 0"
    )
}

/// Returns what identifies the place that a row belongs to.
fn key(row: &Row, by: Origin) -> [String; 3] {
    let rank = row.get("rank").map(Value::to_string).unwrap_or_default();
    match by {
        Origin::Host => [text(row, "host"), String::new(), String::new()],
        Origin::Rank => [text(row, "run"), rank, String::new()],
        Origin::Process => {
            let image = [number(row, "process"), number(row, "image")];
            [text(row, "run"), format!("{} {rank}", text(row, "host")), format!("{image:?}")]
        }
    }
}

fn place(row: &Row, by: Origin) -> Place {
    let rank = row.get("rank").and_then(Value::as_u64).and_then(|rank| u32::try_from(rank).ok());
    let number = rank.filter(|_| by == Origin::Rank);
    let name = match (by, rank) {
        (Origin::Host, _) => format!("host {}", text(row, "host")),
        (Origin::Rank, Some(rank)) => format!("rank {rank}"),
        (Origin::Rank, None) => "no rank".to_owned(),
        (Origin::Process, _) => {
            let program = text(row, "program");
            let file = program.rsplit('/').next().unwrap_or_default();
            format!("pid {} {file}", self::number(row, "process"))
        }
    };
    Place {
        name: name.into(),
        number,
        host: text(row, "host"),
        is_compared: by != Origin::Rank || rank.is_some(),
        images: 0,
        sums: Measures::default(),
        growth: None,
        owners: FxHashMap::default(),
    }
}

fn add(place: &mut Place, row: &Row) {
    let mut measures = Measures::default();
    for measure in Measure::all() {
        measure.set(&mut measures, number(row, measure.name()));
    }
    let peak_bytes = place.sums.peak_bytes.saturating_add(measures.peak_bytes);
    place.sums.add(&measures);
    place.sums.peak_bytes = peak_bytes;
    place.images += 1;
}

fn text(row: &Row, column: &str) -> String {
    row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(row: &Row, column: &str) -> u64 {
    row.get(column).and_then(Value::as_u64).unwrap_or(0)
}

/// Runs a query with `heaptide-sql`, which prints its own errors.
fn ask(dataset: &Path, query: &str) -> Result<Vec<Row>, Stop> {
    let program = sql::program("heaptide ranks of a dataset")?;
    let mut command = Command::new(&program);
    command.args(["sql", "--format", "json", "--dataset"]).arg(dataset).arg(query);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Error::file(&program, "start it", error))?;
    if !output.status.success() {
        return Err(Stop::Status(FAILED));
    }
    let rows = serde_json::from_slice(&output.stdout);
    rows.map_err(|error| Error::new(format!("{}: {error}", program.display())).into())
}
