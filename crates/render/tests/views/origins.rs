//! Tables of ranks, hosts and processes, and pages of a process in a parallel job.

use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::recording::origin::Origin;
use heaptide_render::text::origins::{self, Table};

use super::*;

/// Ranks 0 and 1 of three on two hosts, merged from two recordings, and the process that started
/// the first.
fn job() -> Recording {
    let of_rank = |number, host: &str, mut process: Process| {
        process.identity = Identity {
            pid: 4243 + number,
            host: host.to_owned(),
            rank: Some(Rank { number, of: 3 }),
            job: "77.0".to_owned(),
            run: Some(Run { number: number + 1, recording: format!("{host}/app.heaptide") }),
            ..process.identity
        };
        process
    };
    let mut large = process();
    large.totals.peak_bytes *= 3;
    let mut launcher = with(process(), |p| p.tables.sites.clear());
    launcher.identity.command = vec!["mpirun".to_owned()];
    launcher.totals = Measures { allocations: 5, peak_bytes: 2048, ..Measures::default() };
    recording(vec![launcher, of_rank(1, "box", process()), of_rank(0, "far", large)])
}

fn table(by: Origin, sort: Option<Measure>, top: Option<usize>) -> String {
    let table = Table { by, sort, top, process: None };
    shown(|out| origins::write(out, &job(), &table))
}

#[test]
fn a_row_for_each_rank_host_and_process() {
    expect("by_rank.txt", &table(Origin::Rank, None, None));
    expect("by_rank_sorted.txt", &table(Origin::Rank, Some(Measure::FreedBytes), None));
    expect("by_host.txt", &table(Origin::Host, None, None));
    expect("by_process.txt", &table(Origin::Process, None, Some(2)));
}

#[test]
fn one_process_has_no_total_and_is_even_with_itself() {
    let table = Table { by: Origin::Host, sort: None, top: None, process: Some(4242) };
    let page = shown(|out| origins::write(out, &job(), &table));
    assert!(!page.contains("all\n") && !page.contains("mean"), "{page}");
    assert!(page.starts_with("app.heaptide: 1 host, 1 process image\n"), "{page}");
}

#[test]
fn pages_say_rank_job_and_run() {
    let mut job = job();
    let page = shown(|out| info::write(out, &job));
    assert!(page.contains("\n  rank       1 of 3, job 77.0\n"), "{page}");
    assert!(page.contains("\n  from       run 2: box/app.heaptide\n"), "{page}");
    let page = text::report::Page { process: Some(4243), ..PAGE };
    let page = shown(|out| text::report::write(out, &job, &page));
    assert!(page.contains("\n  rank     0 of 3, job 77.0, on far\n"), "{page}");
    let report: Value = serde_json::from_str(&written(|out| {
        json::report::write(out, &job, &ALL, &Answer::default())
    }))
    .unwrap();
    let ranked = &report["processes"][1];
    assert_eq!(ranked["rank"], serde_json::json!({"number": 1, "of": 3}));
    assert_eq!(ranked["run"]["recording"], "box/app.heaptide");
    assert_eq!((&ranked["job"], &ranked["images"]), (&"77.0".into(), &1.into()));
    assert!(report["processes"][0]["rank"].is_null() && report["processes"][0]["run"].is_null());
    job.join(Apart::Nowhere);
    let page = shown(|out| text::report::write(out, &job, &PAGE));
    assert!(
        page.starts_with("mpirun, app\n`Tree::build(int)` (tree.cc:12) holds 7.83 MiB"),
        "{page}"
    );
    assert!(page.contains("\n\n  program  /usr/bin/app, 3 process images\n"), "{page}");
}
