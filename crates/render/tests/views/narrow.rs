//! Pages on terminals of several widths. No line is longer than the terminal, except for a single
//! long word, and the text of a page does not depend on colours.

use heaptide_analysis::views::diff::Comparison;
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_render::shared::difference::{self, Rows};
use heaptide_render::shared::views::{HistogramView, LeaksBy, LeaksView};

use super::*;

const WIDTHS: [usize; 4] = [50, 70, 100, 180];

/// Returns all kinds of pages.
fn pages(layout: Layout) -> Vec<(String, String)> {
    [annotated(), sampled()].into_iter().flat_map(|process| pages_of(process, layout)).collect()
}

fn pages_of(process: Process, layout: Layout) -> Vec<(String, String)> {
    let all = recording(vec![small(), process.clone()]);
    let mut pages = vec![
        ("report".to_owned(), shown_in(layout, |out| text::report::write(out, &all, &PAGE))),
        ("info".to_owned(), shown_in(layout, |out| info::write(out, &all))),
        ("peak".to_owned(), shown_in(layout, |out| text::peak::write(out, &process, None))),
    ];
    for by in GroupBy::all() {
        let table = table::Table { by: *by, sort: None, top: None };
        let page = shown_in(layout, |out| table::write(out, &process, &table, None));
        pages.push((format!("report --by {}", by.name()), page));
    }
    for bottom_up in [false, true] {
        let (measure, order) = (Measure::AtPeakBytes, BranchOrder::Value);
        let view = tree::View {
            measure,
            by_line: bottom_up,
            bottom_up,
            order,
            depth: usize::MAX,
            min_percent: 0.0,
        };
        let page = shown_in(layout, |out| tree::write(out, &process, &view));
        pages.push(("tree".to_owned(), page));
    }
    let histogram = HistogramView::default();
    let page = shown_in(layout, |out| text::histogram::write(out, &process, &histogram));
    pages.push(("histogram".to_owned(), page));
    let suppressions = Suppressions::default();
    let view = LeaksView {
        suppressions: &suppressions,
        process: None,
        top: None,
        lost: false,
        by: LeaksBy::Stack,
    };
    let found = text::leaks::Found::of(&all, &view);
    pages
        .push(("leaks".to_owned(), shown_in(layout, |out| text::leaks::write(out, &found, &view))));
    for rows in [Rows::Functions, Rows::Lines, Rows::Stacks, Rows::Scopes] {
        let after = with(process.clone(), |p| {
            p.tables.sites.iter_mut().for_each(|site| site.measures.at_peak_bytes *= 3);
        });
        let half = Comparison::new(Measure::AtPeakBytes, rows.by()).before(process.clone());
        let difference = half.after(after);
        let view = difference::View { before: "old", after: "new", rows, top: None, chosen: None };
        let page = shown_in(layout, |out| text::diff::write(out, &difference, &view));
        pages.push((format!("diff by {}", rows.name()), page));
    }
    pages
}

#[test]
fn pages_fit_the_terminal() {
    for columns in WIDTHS {
        for (name, page) in pages(Layout { columns: Some(columns), has_colours: false }) {
            for line in page.lines() {
                let is_word = !line.trim().contains(' ');
                let length = line.chars().count();
                assert!(length <= columns || is_word, "{name} at {columns}: {length}\n{page}");
            }
        }
    }
}

#[test]
fn colours_are_all_that_colours_change() {
    let coloured = pages(Layout { columns: Some(70), has_colours: true });
    let plain = pages(Layout { columns: Some(70), has_colours: false });
    for ((name, coloured), (_, plain)) in coloured.iter().zip(&plain) {
        assert!(coloured.contains("\x1b[1m"), "{name} has a heading");
        let mut without = coloured.clone();
        for code in ["0", "1", "2", "31", "32", "33", "36"] {
            without = without.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(without, *plain, "{name}");
    }
}
