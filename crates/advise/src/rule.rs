//! Rules, and code that several of them share.

use heaptide_analysis::model::Scope;

use crate::finding::Finding;
use crate::material::Material;

/// A rule: a problem that a recording can show.
#[derive(Debug)]
pub struct Rule {
    /// Its name, in texts, JSON and suppressions.
    pub name: &'static str,
    /// The problem in a few words, which start a sentence.
    pub title: &'static str,
    /// The problem and its remedy in a few sentences.
    pub about: &'static str,
    pub(crate) judge: fn(&Material) -> Judged,
}

/// The result of a rule.
#[derive(Debug)]
pub(crate) enum Judged {
    /// Its findings.
    Found(Vec<Finding>),
    /// The data that a recording lacks, as words that follow "needs".
    Needs(&'static str),
    /// Likewise, of data that is recorded only on request.
    NeedsRequest(&'static str),
}

/// The data that rules about stacks need.
pub(crate) const NEEDS_STACKS: &str = "stacks: record with `--mode stacks`, the default";

/// The data that rules about searches need.
pub(crate) const NEEDS_SEARCH: &str =
    "a search for what keeps the blocks: record with `heaptide run --retain`";

/// Returns a scope's name for a sentence: its value, and its attribute unless that is the default.
pub(crate) fn scope_name(scope: &Scope) -> String {
    // Several values that were folded are followed by their number.
    let folded = scope.value.rsplit_once(", ").filter(|(_, rest)| rest.ends_with(" values"));
    let value = folded.map_or(&*scope.value, |(range, _)| range);
    match &*scope.attribute {
        "" | "region" => value.to_owned(),
        attribute => format!("{attribute}={value}"),
    }
}
