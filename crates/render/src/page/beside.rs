//! Data besides the tables that a page in a file contains.

use std::collections::BTreeMap;

use heaptide_analysis::views::lifetimes::Lifetimes;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;

use super::findings::Findings;

/// Data from a trace for a page in a file.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Live bytes over time by owner.
    pub over_time: &'a OwnersOverTime,
    /// Lifetimes of blocks.
    pub lifetimes: &'a Lifetimes,
}

/// Data besides the tables for a page in a file.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Data from a trace, if there is one.
    pub traced: Option<Traced<'a>>,
    /// The findings of `advise`.
    pub findings: &'a Findings,
    /// Which process of the recording it is, and why; `None` if there is only one.
    pub subject: Option<&'a str>,
    /// Texts of source lines that own memory.
    pub sources: &'a SourceTexts,
}

/// Texts of source lines: by the path of the file, and by number.
pub type SourceTexts = BTreeMap<String, BTreeMap<u32, String>>;
