//! Graphs, tables and pages of the synthetic recording, with names that would be markup or
//! commands.

use std::sync::Arc;

use heaptide_analysis::model::{FrameId, Measure, Process};
use heaptide_render::export::dot::{Drawing, Tree};
use heaptide_render::export::{csv, dot, speedscope};
use heaptide_render::page::{self, Beside, Findings, SourceTexts};
use heaptide_render::shared::branches::Lanes;
use heaptide_render::shared::views::Idle;

use crate::fixtures::{annotated, process};
use crate::{expect, written};

const MARKUP: &str = "</script><img src=x onerror=alert(1)><!-- \"&lt;\\N\";,\n=1+1";

/// Returns the process with another name for one of its functions.
fn with_name(name: &str) -> Process {
    let mut process = process();
    process.tables.frames[3].function = Some(Arc::from(name));
    process
}

fn drawing(measure: Measure, tree: Tree) -> Drawing {
    Drawing { measure, tree, lanes: Lanes::Merged, min_percent: None, idle: Idle::Shown }
}

/// Returns the page of a process without further data.
fn page_of(process: &Process, measure: Measure) -> String {
    let beside = Beside {
        traced: None,
        findings: &Findings::default(),
        subject: None,
        sources: &SourceTexts::new(),
    };
    written(|out| page::write(out, process, measure, &beside))
}

#[test]
fn graphs_of_calls_and_scopes() {
    let draw = |process: &Process, measure, tree, lanes| {
        let drawing = Drawing { lanes, ..drawing(measure, tree) };
        written(|out| dot::write(out, process, &drawing))
    };
    let calls = draw(&process(), Measure::AtPeakBytes, Tree::Calls, Lanes::Merged);
    expect("calls.dot", &calls);
    let scopes =
        |levels| draw(&annotated(), Measure::UsableBytes, Tree::Scopes { levels }, Lanes::Apart);
    expect("scopes_lanes.dot", &scopes(usize::MAX));
    let cut = Tree::Scopes { levels: usize::MAX };
    let cut = Drawing { min_percent: Some(80.0), ..drawing(Measure::UsableBytes, cut) };
    let cut = written(|out| dot::write(out, &annotated(), &cut));
    assert!(cut.contains("below 80.0%: 1 scope in dashed boxes"), "{cut}");
    assert!(cut.contains("label=\"… 1 more scope\\n"), "{cut}");
    let outer = scopes(1);
    assert!(!outer.contains("step=2") && outer.contains("own 5.16 MiB"), "{outer}");
}

#[test]
fn a_table_of_sites() {
    expect("sites.csv", &written(|out| csv::write(out, &annotated())));
}

#[test]
fn profiles_for_speedscope() {
    let write =
        |lanes| written(|out| speedscope::write(out, &process(), Measure::RequestedBytes, lanes));
    expect("speedscope.json", &write(Lanes::Merged));
    let lanes: serde_json::Value = serde_json::from_str(&write(Lanes::Apart)).expect("JSON");
    let profiles = lanes["profiles"].as_array().expect("profiles");
    let sum: u64 = profiles.iter().filter_map(|profile| profile["endValue"].as_u64()).sum();
    assert_eq!((profiles.len(), sum), (2, process().totals.requested_bytes));
}

#[test]
fn a_name_is_never_markup() {
    let mut of = with_name(MARKUP);
    of.identity.command = vec!["app".to_owned(), MARKUP.to_owned()];
    let page = page_of(&of, Measure::LiveBytes);
    assert_eq!(page.matches("</script").count(), 3, "the ends of head, columns and script");
    assert!(!page.contains("<img") && page.contains(r"\u003cimg src=x onerror"));
    assert!(page.contains("&lt;img src=x onerror"), "the title");
    assert!(page.contains("\"first\":\"live_bytes\""));
    let graph = written(|out| dot::write(out, &of, &drawing(Measure::LiveBytes, Tree::Calls)));
    // Quotes come in pairs on each line, whatever a name contains.
    for line in graph.lines() {
        let plain = line.replace(r"\\", "").replace("\\\"", "");
        assert!(plain.matches('"').count().is_multiple_of(2), "{line}");
    }
    assert!(graph.contains(r#"&amp;lt;\\N\""#), "{graph}");
    let table = written(|out| csv::write(out, &of));
    assert_eq!(table.lines().count(), of.tables.sites.len() + 1, "a row is a line");
}

#[test]
fn names_of_thirty_thousand_letters_do_not_fill_the_page() {
    let of = with_name(&format!("f<{}>", "std::vector<int>, ".repeat(1700)));
    let page = page_of(&of, Measure::AtPeakBytes);
    let plain = page_of(&process(), Measure::AtPeakBytes);
    assert!(page.len() < plain.len() + 4000, "{} after {}", page.len(), plain.len());
    let graph = written(|out| dot::write(out, &of, &drawing(Measure::AtPeakBytes, Tree::Calls)));
    assert!(graph.len() < 20_000, "{}", graph.len());
}

/// Recursion thousands of calls deep is cut off, and its value is not lost.
#[test]
fn recursion_without_end_has_an_end() {
    let mut of = process();
    let last = of.tables.sites[0].stack;
    let mut parent = last;
    for _ in 0..3000 {
        of.tables.stacks.push(heaptide_analysis::model::StackNode { parent, frame: FrameId(3) });
        parent = heaptide_analysis::model::StackId((of.tables.stacks.len() - 1) as u32);
        of.tables
            .sites
            .push(heaptide_analysis::model::Site { stack: parent, ..of.tables.sites[0] });
    }
    let graph = written(|out| dot::write(out, &of, &drawing(Measure::AtPeakBytes, Tree::Calls)));
    assert!(graph.len() < 400_000, "{}", graph.len());
    let page = page_of(&of, Measure::AtPeakBytes);
    assert!(page.len() < 1_000_000, "{}", page.len());
    let json = written(|out| speedscope::write(out, &of, Measure::AtPeakBytes, Lanes::Merged));
    assert!(json.len() < 5_000_000, "{}", json.len());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let peak = of.tables.sites.iter().map(|site| site.measures.at_peak_bytes).sum::<u64>();
    assert_eq!(json["profiles"][0]["endValue"].as_u64(), Some(peak));
}
