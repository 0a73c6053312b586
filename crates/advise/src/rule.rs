//! What a rule is, and what several of them need.

use heaptide_analysis::model::Scope;

use crate::finding::Finding;
use crate::material::Material;

/// A rule: a fault that a recording can show.
#[derive(Debug)]
pub struct Rule {
    /// Its name, in texts, JSON and suppressions.
    pub name: &'static str,
    /// The fault in a few words, which begin a sentence.
    pub title: &'static str,
    /// The fault and its remedy in a few sentences.
    pub about: &'static str,
    pub(crate) judge: fn(&Material) -> Judged,
}

/// The judgement of a rule.
#[derive(Debug)]
pub(crate) enum Judged {
    /// What it found.
    Found(Vec<Finding>),
    /// What a recording needs for it to judge, in words that follow "needs".
    Needs(&'static str),
}

/// What a rule needs that looks at stacks.
pub(crate) const NEEDS_STACKS: &str = "stacks: record with `--mode stacks`, the default";

/// What a scope is called in a sentence: its value, and the attribute unless that is the usual one.
pub(crate) fn scope_name(scope: &Scope) -> String {
    // Of several values that became one, their number follows.
    let folded = scope.value.rsplit_once(", ").filter(|(_, rest)| rest.ends_with(" values"));
    let value = folded.map_or(&*scope.value, |(range, _)| range);
    match &*scope.attribute {
        "" | "region" => value.to_owned(),
        attribute => format!("{attribute}={value}"),
    }
}
