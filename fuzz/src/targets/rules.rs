//! Any text as rules, applied to a process.

use heaptide_analysis::selection::rules::Rules;

use super::profile_reader::check;

/// Rewrites the process, and checks that rules do not change its sums.
pub fn rules(input: &[u8]) -> bool {
    let Ok(rules) = Rules::parse(&String::from_utf8_lossy(input)) else {
        return false;
    };
    let mut process = crate::fixtures::process();
    let totals = process.totals;
    process.rewrite(&rules);
    check(&process);
    assert_eq!(process.totals, totals);
    !rules.is_empty()
}
