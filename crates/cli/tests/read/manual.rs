//! The manual pages: each has all sections, and formatters accept it without a warning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptide_fixtures::skips::skip;

use crate::harness::{heaptide, run, scratch};
use crate::programs::is_installed;

/// The sections of every page, in order.
const SECTIONS: [&str; 7] =
    ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "FILES", "ENVIRONMENT"];

/// Returns all pages, as `heaptide man` writes them.
fn pages(place: &Path) -> Vec<PathBuf> {
    let outcome = run(heaptide().arg("man").arg(place.join("pages")), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let entries = fs::read_dir(place.join("pages")).expect("the pages").flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn every_page_has_all_sections() {
    let place = scratch("manual-sections");
    let pages = pages(&place);
    assert!(pages.len() > 35, "{} pages", pages.len());
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let headings = text.lines().filter_map(|line| line.strip_prefix(".SH "));
        let headings: Vec<&str> = headings.map(|heading| heading.trim_matches('"')).collect();
        let common: Vec<&str> =
            headings.iter().copied().filter(|heading| SECTIONS.contains(heading)).collect();
        assert_eq!(common, SECTIONS, "{}", page.display());
        for section in SECTIONS {
            let body = text.split(&format!(".SH {section}\n")).nth(1);
            let body = body.or_else(|| text.split(&format!(".SH \"{section}\"\n")).nth(1));
            let body = body.and_then(|body| body.split(".SH ").next()).unwrap_or("");
            assert!(body.trim().len() > 5, "{}: {section} is empty", page.display());
        }
    }
}

#[test]
fn examples_statuses_files_and_variables_are_those_of_the_command() {
    let place = scratch("manual-rows");
    pages(&place);
    let page = |name: &str| {
        let path = place.join("pages").join(format!("{name}.1"));
        fs::read_to_string(path).expect(name).replace("\\-", "-")
    };
    let (run, check, leaks) =
        (page("heaptide-run"), page("heaptide-check"), page("heaptide-leaks"));
    assert!(run.contains("128+N") && !leaks.contains("128+N"));
    assert!(check.contains("125") && !run.contains("\\fB125"));
    assert!(run.contains("HEAPTIDE_MODE") && !leaks.contains("HEAPTIDE_MODE"));
    assert!(leaks.contains("heaptide leaks app.heaptide --suppressions"));
    assert!(page("heaptide").contains("HEAPTIDE_MODE") && page("heaptide-sdk").contains("DIR/lib"));
    assert!(!page("heaptide-sdk").contains("NAME.heaptide"));
}

#[test]
fn formatters_have_no_warning() {
    let place = scratch("manual-formatters");
    let pages = pages(&place);
    let readers: [(&str, &[&str]); 2] =
        [("groff", &["-ww", "-man", "-z"]), ("mandoc", &["-T", "lint", "-W", "warning"])];
    for (reader, options) in readers {
        if !is_installed(reader) {
            skip(reader);
            continue;
        }
        for page in &pages {
            let output = Command::new(reader).args(options).arg(page).output().expect(reader);
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success() && said.is_empty(), "{reader}: {said}");
        }
    }
}
