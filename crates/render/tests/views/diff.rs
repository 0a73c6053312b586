//! Differences between a process and a modified version of it, its next build.

use heaptide_analysis::model::Sum;
use heaptide_analysis::views::diff::{Comparison, Difference, Side};
use heaptide_render::export::diff_flamegraph::{self, Drawing, Scale};
use heaptide_render::shared::difference::{Rows, View};
use heaptide_render::{json, text};

use super::*;

/// The next build: other addresses, a function in parts, `read_all` replaced by `read_parts`, twice
/// as much kept by `work`, one stack unchanged.
fn next_build() -> Process {
    let mut p = annotated();
    p.identity.pid = 5151;
    p.identity.program = "/opt/new/app-2".to_owned();
    p.identity.command = ["app-2", "--input", "a file.txt"].map(str::to_owned).to_vec();
    p.tables.modules[0].path.clone_from(&p.identity.program);
    p.tables.modules[2].path = "/opt/new/libstripped.so.2".to_owned();
    p.lifetime.start_realtime_ns += 86_400_000_000_000;
    for frame in &mut p.tables.frames {
        frame.offset += 0x700;
        frame.line = frame.line.map(|line| line + 3);
    }
    p.tables.frames[3].function = Some("Tree::build(int) [clone .isra.0]".into());
    p.tables.frames[5].function = Some("read_parts".into());
    p.tables.sites[3].measures = row(600, 1032, 0, 500, 0);
    p.tables.scopes[2].value = "3".into();
    p.completeness.losses.clear();
    p.totals = Sum::over(&p.tables.sites);
    p.totals.peak_bytes = p.totals.at_peak_bytes;
    p
}

fn difference(rows: Rows, measure: Measure, before: Process, after: Process) -> Difference {
    Comparison::new(measure, rows.by()).before(before).after(after)
}

fn view(rows: Rows) -> View<'static> {
    View { before: "old.heaptide", after: "new.heaptide", rows, top: None, chosen: None }
}

fn page(rows: Rows, measure: Measure, before: Process, after: Process) -> String {
    let difference = difference(rows, measure, before, after);
    shown(|out| text::diff::write(out, &difference, &view(rows)))
}

#[test]
fn pages_of_what_changed() {
    for rows in [Rows::Functions, Rows::Stacks, Rows::Scopes] {
        let found = page(rows, Measure::AtPeakBytes, annotated(), next_build());
        expect(&format!("diff_by_{}.txt", rows.name()), &found);
    }
    let found = page(Rows::Functions, Measure::Allocations, next_build(), annotated());
    expect("diff_of_allocations.txt", &found);
}

#[test]
fn nothing_changed_is_one_line() {
    for rows in [Rows::Functions, Rows::Stacks, Rows::Scopes] {
        let found = page(rows, Measure::LiveBytes, annotated(), annotated());
        let (_, last) = found.rsplit_once("\n\n").expect("parts");
        let name = rows.name();
        let says = format!("nothing changed: live_bytes is the same in every {name}\n");
        assert_eq!(last, says);
    }
}

#[test]
fn without_stacks_there_are_totals() {
    let counters = || with(annotated(), |p| p.mode = Mode::Counters);
    let found = page(Rows::Functions, Measure::PeakBytes, counters(), next_build());
    let says = "\n\nold.heaptide: recorded with --mode counters, so there are no stacks\n";
    assert!(found.contains("\n  peak_bytes ") && found.ends_with(says), "{found}");
    let scopes = with(next_build(), |p| p.mode = Mode::Scopes);
    let difference = difference(Rows::Stacks, Measure::AtPeakBytes, annotated(), scopes);
    let found = written(|out| json::diff::write(out, &difference, &view(Rows::Stacks)));
    let found: Value = serde_json::from_str(&found).expect("valid JSON");
    let why = found["without_rows"].as_str().expect("a reason");
    assert!(why.starts_with("new.heaptide: recorded with --mode scopes"), "{why}");
    assert_eq!(found["rows"], serde_json::json!([]));
}

#[test]
fn json_has_every_row_that_changed() {
    let json = |rows, top| {
        let difference = difference(rows, Measure::AtPeakBytes, annotated(), next_build());
        let view = View { top, ..view(rows) };
        let text = written(|out| json::diff::write(out, &difference, &view));
        serde_json::from_str::<Value>(&text).expect("valid JSON")
    };
    let values = |before: u64, after: u64| {
        serde_json::json!({
            "before": before, "after": after, "change": after as i64 - before as i64,
        })
    };
    let found = json(Rows::Functions, None);
    assert_eq!((&found["measure"], &found["by"]), (&"at_peak_bytes".into(), &"function".into()));
    assert_eq!(found["before"]["recording"], "old.heaptide");
    assert_eq!(found["after"]["program"], "/opt/new/app-2");
    let mut names = Measure::all().iter().map(|measure| measure.name());
    assert!(names.all(|name| found["totals"][name]["change"].is_i64()));
    let rows = found["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["function"] == name);
    assert_eq!(row("read_all").expect("gone")["own"], values(4 * 131_080, 0));
    assert_eq!(row("read_parts").expect("new")["own"], values(0, 4 * 131_080));
    assert_eq!(row("work(void*)").expect("grown")["inclusive"], values(258_000, 516_000));
    assert!(row("Tree::build(int)").is_none() && row("Tree::build(int) [clone .isra.0]").is_none());
    assert_eq!(json(Rows::Functions, Some(1))["rows"].as_array().expect("rows").len(), 1);
    let found = json(Rows::Stacks, None);
    let names = |row: &Value| -> Vec<String> {
        let stack = row["stack"].as_array().expect("a stack").iter();
        let name = |n: &Value| &found["functions"][n.as_u64().expect("a number") as usize];
        stack.map(|n| name(n)["function"].as_str().expect("a name").to_owned()).collect()
    };
    let first = &found["rows"][0];
    assert_eq!(names(first)[2..], ["main", "read_all"]);
    assert_eq!(first["own"], values(4 * 131_080, 0));
    let scope = &json(Rows::Scopes, None)["rows"][0]["scope"];
    assert_eq!(scope[0], serde_json::json!({"attribute": "region", "value": "load"}));
}

/// Returns name, value, change and colour of all boxes except those that start a program.
fn boxes(difference: &Difference, rows: Rows, drawing: Drawing) -> Vec<String> {
    let svg = written(|out| diff_flamegraph::write(out, difference, &view(rows), drawing));
    let part = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).expect("a start");
        rest.split_once(end).expect("an end").0.to_owned()
    };
    let boxes = svg.split("<g><title>").skip(1);
    let of_box = |text: &str| {
        let title = text.split_once("</title>").expect("a title").0;
        format!("{title} {} {}", part(text, "fg:w=\"", "\""), part(text, "fill=\"", "\""))
    };
    let mut boxes: Vec<String> = boxes.map(of_box).collect();
    boxes.retain(|line| {
        !line.contains("start") && !line.starts_with("all") && !line.starts_with("everything")
    });
    boxes.sort_unstable();
    boxes
}

#[test]
fn a_graph_is_red_where_it_grew_and_as_wide_as_after() {
    let by = Rows::Functions;
    let of = |drawing| {
        boxes(&difference(by, Measure::AtPeakBytes, process(), next_build()), by, drawing)
    };
    let (white, red) = ("rgb(250,250,250)", "rgb(255,100,100)");
    let after = of(Drawing { widths: Side::After, scale: Scale::AsIs });
    assert_eq!(after.len(), 8);
    assert_eq!(after[3], format!("main (4,628,320 bytes, 89.97%; 0.00%) 4628320 {white}"));
    assert_eq!(after[4], format!("read_parts (524,320 bytes, 10.19%; +10.19%) 524320 {red}"));
    assert!(after[6].ends_with("(516,000 bytes, 10.03%; +5.02%) 516000 rgb(255,176,176)"));
    let before = of(Drawing { widths: Side::Before, scale: Scale::AsIs });
    let gone = "read_all (524,320 bytes, 10.73%; -10.73%) 524320 rgb(100,100,255)";
    assert!(before.iter().any(|line| line == gone), "{before:?}");
    let scaled = of(Drawing { widths: Side::After, scale: Scale::Normalized });
    // 258 000 of 4 886 400 are 271 622 of 5 144 400.
    assert!(scaled[6].ends_with("(516,000 bytes, 10.03%; +4.75%) 516000 rgb(255,183,183)"));
}

#[test]
fn a_damaged_recording_with_huge_figures_is_drawn() {
    let huge = || {
        let mut p = process();
        for site in &mut p.tables.sites {
            let most = u64::MAX;
            site.measures = Measures { live_bytes: most, largest_bytes: most, ..site.measures };
        }
        p
    };
    for measure in [Measure::LiveBytes, Measure::LargestBytes] {
        for (before, after) in [(huge(), next_build()), (next_build(), huge()), (huge(), huge())] {
            let difference = difference(Rows::Functions, measure, before, after);
            let view = view(Rows::Functions);
            shown(|out| text::diff::write(out, &difference, &view));
            for (widths, scale) in [(Side::After, Scale::AsIs), (Side::Before, Scale::Normalized)] {
                let drawing = Drawing { widths, scale };
                written(|out| diff_flamegraph::write(out, &difference, &view, drawing));
            }
        }
    }
}
