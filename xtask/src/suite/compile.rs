//! Compile time per crate, from the reports of `cargo build --timings`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::commands::{cargo_program, output, run, target};
use crate::runner::{Engine, Runner};

/// The target directory of the measured builds, in that of this workspace.
const PLACE: &str = "suite";
/// The report of the last build in a target directory.
const REPORT: &str = "cargo-timings/cargo-timing.html";
/// The beginning of the list of units in the report, a constant of its script.
const UNITS: &str = "const UNIT_DATA = ";

/// A build of all tests.
pub struct Build {
    /// What it compiles.
    pub name: &'static str,
    pub seconds: f64,
    pub crates: Crates,
    /// The sum for crates of other workspaces, and how many these are.
    pub dependencies: (f64, usize),
}

/// Seconds by the name of a crate of this workspace: the sum for its library, programs, tests and
/// build script.
pub type Crates = BTreeMap<String, f64>;

/// Compiles the tests of the fast tier in an empty target directory, and then what the SQL engine
/// adds.
pub fn measure(runner: &Runner<'_>) -> Result<Vec<Build>, String> {
    let place = target(runner.root).join(PLACE);
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    let own = workspace(runner.root)?;
    let builds = [
        ("tests without the SQL engine", Engine::Excluded),
        ("then, with the SQL engine", Engine::Included),
    ];
    let build = |(name, engine)| {
        let start = Instant::now();
        run(&mut runner.start_timed_build(engine, &place))?;
        let seconds = start.elapsed().as_secs_f64();
        let report = place.join(REPORT);
        let failed = |error| format!("{}: {error}", report.display());
        let html = std::fs::read_to_string(&report).map_err(|error| failed(error.to_string()))?;
        let units = units(&html).map_err(failed)?;
        let (crates, dependencies) = sums(&units, &own);
        Ok(Build { name, seconds, crates, dependencies })
    };
    builds.into_iter().map(build).collect()
}

/// Returns the names of the crates of this workspace.
fn workspace(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut cargo = Command::new(cargo_program());
    cargo.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]).current_dir(root);
    let data: Value = serde_json::from_str(&output(&mut cargo)?).map_err(|e| e.to_string())?;
    let packages = data["packages"].as_array().into_iter().flatten();
    Ok(packages.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect())
}

/// Returns names and seconds of the units in a report: each is a run of the compiler or of a build
/// script.
fn units(html: &str) -> Result<Vec<(String, f64)>, String> {
    let (_, list) = html.split_once(UNITS).ok_or_else(|| format!("expected `{UNITS}`"))?;
    let mut values = serde_json::Deserializer::from_str(list).into_iter::<Vec<Value>>();
    let list = values.next().ok_or("expected a list of units")?;
    let list = list.map_err(|error| error.to_string())?;
    let unit = |unit: &Value| {
        let found = unit["name"].as_str().zip(unit["duration"].as_f64());
        let (name, seconds) =
            found.ok_or_else(|| format!("`{unit}`: expected a name and a duration"))?;
        Ok((name.to_owned(), seconds))
    };
    list.iter().map(unit).collect()
}

/// Returns the sums by crate of the workspace, and that of all others with their number.
fn sums(units: &[(String, f64)], own: &BTreeSet<String>) -> (Crates, (f64, usize)) {
    let (mut crates, mut others) = (Crates::new(), Crates::new());
    for (name, seconds) in units {
        let sums = if own.contains(name) { &mut crates } else { &mut others };
        *sums.entry(name.clone()).or_default() += seconds;
    }
    (crates, (others.values().sum(), others.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = r#"<script>
const UNIT_DATA = [
  {"i": 0, "name": "heaptide-a", "target": " build script (run)", "duration": 0.5, "start": 0.0},
  {"i": 1, "name": "heaptide-a", "target": "", "duration": 1.25, "start": 0.5},
  {"i": 2, "name": "serde", "target": "", "duration": 3, "start": 0.5},
  {"i": 3, "name": "libc", "target": "", "duration": 1, "start": 0.5}
];
const CONCURRENCY_DATA = [];
</script>"#;

    #[test]
    fn units_are_added_by_crate() {
        let own = BTreeSet::from(["heaptide-a".to_owned(), "heaptide-b".to_owned()]);
        let (crates, dependencies) = sums(&units(HTML).unwrap(), &own);
        assert_eq!(crates, Crates::from([("heaptide-a".to_owned(), 1.75)]));
        assert_eq!(dependencies, (4.0, 2));
    }

    #[test]
    fn a_report_of_another_form_is_an_error() {
        assert!(units("<html>").unwrap_err().contains("UNIT_DATA"));
        assert!(units("const UNIT_DATA = [{}];").unwrap_err().contains("duration"));
        assert!(units("const UNIT_DATA = 7;").is_err());
    }
}
