//! `heaptide ranks` of a dataset returns the same numbers as of the recordings in it.

use std::fs;

use serde_json::Value;

use crate::harness::{heaptide, job_and_dataset, output, refused, scratch};

#[test]
fn ranks_of_a_dataset_equal_those_of_its_recordings() {
    let place = scratch("ranks");
    let [job, dataset] = job_and_dataset(&place, 8);
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
