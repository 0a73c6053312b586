//! Pages of a sampled recording: which numbers are estimates, and their intervals.

use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_render::shared::views::{LeaksBy, LeaksView};

use super::*;

#[test]
fn pages_have_intervals() {
    let all = || recording(vec![sampled()]);
    expect("sampled.txt", &shown(|out| text::report::write(out, &all(), &PAGE)));
    expect("sampled_info.txt", &shown(|out| info::write(out, &all())));
    expect("sampled_peak.txt", &shown(|out| text::peak::write(out, &sampled(), None)));
    for by in [GroupBy::Scope, GroupBy::Label, GroupBy::Function] {
        let table = table::Table { by, sort: None, top: None };
        let page = shown(|out| table::write(out, &sampled(), &table, None));
        expect(&format!("sampled_by_{}.txt", by.name()), &page);
    }
    let known = Suppressions::default();
    let view = LeaksView {
        suppressions: &known,
        process: None,
        top: None,
        lost: false,
        by: LeaksBy::Stack,
    };
    let process = all();
    let found = text::leaks::Found::of(&process, &view);
    expect("sampled_leaks.txt", &shown(|out| text::leaks::write(out, &found, &view)));
}

#[test]
fn what_was_not_sampled_is_not_said_to_be_freed() {
    let mut process = sampled();
    for site in &mut process.tables.sites {
        (site.measures.live_bytes, site.measures.live_blocks) = (0, 0);
    }
    let page = shown(|out| text::report::write(out, &recording(vec![process]), &PAGE));
    assert!(page.contains("after 1.25 s), no sampled block of it live at exit."), "{page}");
}

#[test]
fn json_has_limits_of_bytes_alone() {
    let found = as_json(&recording(vec![sampled()]), &ALL);
    let process = &found["processes"][0];
    assert_eq!(
        (&process["mode"], &process["sampling"]["mean_bytes"]),
        (&"sampled".into(), &8192.into())
    );
    for site in process["sites"].as_array().expect("sites") {
        let ends = ["low", "", "high"].map(|end| match end {
            "" => site["at_peak_bytes"].as_u64(),
            end => site[&format!("at_peak_bytes_{end}")].as_u64(),
        });
        assert!(ends.is_sorted() && ends[0].is_some(), "{site}");
        assert!(site.get("at_peak_blocks_low").is_none(), "{site}");
    }
    // A complete recording has neither.
    let found = as_json(&recording(vec![annotated()]), &ALL);
    let process = &found["processes"][0];
    assert!(process.get("sampling").is_none());
    assert!(process["sites"][0].get("at_peak_bytes_low").is_none());
}
