//! `heaptide ranks`: outlying ranks are listed with the owner that makes the difference.

use crate::harness::{Guest, Outcome, heaptide, recorded, run, scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Ranks of the job; `ranks.c` lists what each keeps.
const RANKS: u32 = 12;

/// Creates a recording of each rank, in a directory per node.
fn job(name: &str) -> PathBuf {
    let place = scratch(name);
    let program = Guest::read("ranks.c").build("ranks", &[]);
    for rank in 0..RANKS {
        let node = place.join(format!("job/node{}", rank % 2));
        std::fs::create_dir_all(&node).expect("a directory");
        let number = rank.to_string();
        let mut command = recorded(&node.join(format!("r{rank}.heaptide")), &[]);
        command.env("HEAPTIDE_RANK", &number).env("HEAPTIDE_JOB", "4711");
        let outcome = run(command.arg(&program).arg(&number), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
    place
}

fn ranks(place: &Path, words: &[&str]) -> Outcome {
    run(heaptide().current_dir(place).arg("ranks").args(words), place)
}

#[test]
fn ranks_that_stand_out_are_named_with_their_owners() {
    let place = job("ranks");
    let page = ranks(&place, &["job", "--metric", "requested_bytes"]);
    assert_eq!((page.status, &*page.stderr), (0, ""));
    assert!(page.stdout.starts_with("job: 12 ranks, 12 process images of 12 recordings\n"));
    for line in [
        "requested_bytes 1.14 MiB 1.14 MiB 1.23 MiB 1.14 MiB 2.00 MiB 1 rank 5",
        "2.00 MiB 1.75 - rank 5 mostly +879 KiB in cache",
        "879 KiB 0 B 879 KiB 1 cache, rank 5",
        "264 KiB 195 KiB 283 KiB 0 halo, rank 8",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.stdout.lines().any(|found| words(found) == line), "{line}\n{}", page.stdout);
    }
    let outcome = ranks(&place, &["job", "--metric", "requested_bytes", "--format", "json"]);
    let json: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let names: Vec<&str> = json["places"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| p["name"].as_str())
        .collect();
    let expected: Vec<String> = (0..RANKS).map(|rank| format!("rank {rank}")).collect();
    assert_eq!(names, expected);
    let halo: Vec<u64> = (0..RANKS).map(|r| if r % 4 == 0 { 290_000 } else { 200_000 }).collect();
    let owner = |name: &str| {
        let mut owners = json["owners"].as_array().into_iter().flatten();
        owners.find(|owner| owner["owner"] == name).expect("an owner").clone()
    };
    assert_eq!(owner("halo")["values"], serde_json::json!(halo));
    assert_eq!(owner("halo")["outlying"], serde_json::json!([]));
    assert_eq!(owner("cache")["above_median"], 900_000.0);
    assert_eq!(owner("mesh")["above_median"], 0.0);
    assert_eq!(json["spreads"][0]["outlying"], serde_json::json!(["rank 5"]));
}

#[test]
fn ranks_of_one_recording_and_none() {
    let place = job("ranks_of_one");
    let recordings = ["job/node0/r0.heaptide", "job/node1/r1.heaptide"];
    let mut merge = heaptide();
    merge.current_dir(&place).arg("merge").args(recordings).args(["-o", "all.heaptide"]);
    assert_eq!(run(&mut merge, &place).status, 0);
    let page = ranks(&place, &["all.heaptide"]).stdout;
    assert!(page.starts_with("all.heaptide: 2 ranks, 2 process images\n"), "{page}");
    assert!(page.contains("no rank stands out by peak_bytes"), "{page}");
    // The same rank twice: the names of both contain their recordings.
    let twice = ranks(&place, &["all.heaptide", "job/node1/r1.heaptide", "--format", "json"]);
    assert!(twice.stdout.contains("\"name\":\"r1 rank 1\""), "{}", twice.stdout);

    let program = Guest::read("ranks.c").build("ranks", &[]);
    let alone = recorded(&place.join("alone.heaptide"), &[]).arg(program).status();
    assert!(alone.expect("it runs").success());
    let none = ranks(&place, &["alone.heaptide"]);
    assert_eq!((none.status, none.stderr.lines().count()), (1, 1), "{}", none.stderr);
    assert!(none.stderr.contains("no process has a rank"), "{}", none.stderr);
    assert_eq!(ranks(&place, &["alone.heaptide", "--by", "process"]).status, 0);
    std::fs::create_dir(place.join("empty")).expect("a directory");
    let empty = ranks(&place, &["empty"]);
    assert_eq!((empty.status, empty.stderr.lines().count()), (2, 1), "{}", empty.stderr);
    assert!(empty.stderr.contains("expected recordings in this directory"), "{}", empty.stderr);
}

/// The appearance in a browser is not tested; the page must be complete and contain the data.
#[test]
fn the_heat_map_has_all_ranks_and_no_names_as_markup() {
    let place = job("ranks_map");
    let hostile = place.join("job/<b>&\u{7}.heaptide");
    std::fs::rename(place.join("job/node0/r0.heaptide"), hostile).expect("a recording");
    let outcome = ranks(&place, &["job", "--format", "html", "-o", "map.html"]);
    assert_eq!((outcome.status, &*outcome.stdout), (0, ""), "{}", outcome.stderr);
    let html = std::fs::read_to_string(place.join("map.html")).expect("a page");
    assert!(html.trim_end().ends_with("</html>") && !html.contains("<b>"));
    let data = html.split_once(r#"id="data">"#).and_then(|(_, rest)| rest.split_once("</script>"));
    let data: Value = serde_json::from_str(data.expect("data").0).expect("JSON");
    assert_eq!(data["places"].as_array().map(Vec::len), Some(RANKS as usize));
    let again = ranks(&place, &["job", "--format", "html", "-o", "map.html"]);
    assert_eq!((again.status, again.stderr.lines().count()), (2, 1), "{}", again.stderr);
}
