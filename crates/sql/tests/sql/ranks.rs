//! `heaptide ranks` of a dataset returns the same numbers as of the recordings in it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{heaptide, output, recorded, refused, root, scratch};

#[test]
fn ranks_of_a_dataset_equal_those_of_its_recordings() {
    let place = scratch("ranks");
    let programs = root().join("tests/programs");
    let program = place.join("ranks");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-fno-builtin", "-I"]).arg(&programs);
    output(gcc.arg(programs.join("ranks.c")).arg("-o").arg(&program));
    let [job, dataset] = ["job", "dataset"].map(|name| place.join(name));
    fs::create_dir(&job).expect("a directory");
    for rank in 0..8 {
        let recording = job.join(format!("r{rank}.heaptide"));
        let rank = rank.to_string();
        output(recorded(&recording, &[]).arg(&program).arg(&rank).env("HEAPTIDE_RANK", &rank));
        let mut export = heaptide();
        export.args(["export", "--format", "parquet", "-o"]).arg(&dataset).arg(&recording);
        output(&mut export);
    }
    for by in ["rank", "host", "process"] {
        let of = |directory| {
            let mut command = heaptide();
            command.args(["ranks", "--by", by, "--metric", "requested_bytes"]).arg(directory);
            let text = output(command.args(["--format", "json"]));
            serde_json::from_str::<Value>(&text).expect("JSON")
        };
        let (recordings, dataset) = (of(&job), of(&dataset));
        assert_eq!(recordings["owners"], dataset["owners"], "{by}");
        assert_eq!(recordings["spreads"], dataset["spreads"], "{by}");
        let sums = |ranks: &Value| {
            let places = ranks["places"].as_array().cloned().unwrap_or_default();
            places.iter().map(|place| place["live_bytes"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(sums(&recordings), sums(&dataset), "{by}");
    }
    let filtered = refused(heaptide().args(["ranks", "--focus", "halo"]).arg(&dataset));
    assert_eq!(filtered.lines().count(), 1, "{filtered}");
    fs::write(dataset.join("processes/damaged.parquet"), "no Parquet").expect("a file");
    let damaged = refused(heaptide().arg("ranks").arg(&dataset));
    assert_eq!(damaged.lines().count(), 1, "{damaged}");
}
