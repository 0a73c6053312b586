//! Copies of pandas tables that are live at peak usage.
//!
//! The saving is the size of the copies, an upper bound: a smaller copy may be needed.

use heaptide_analysis::model::{CodeKind, Frame, Mode};
use heaptide_analysis::quantity::{bytes, counted};

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "python-copies",
    title: "Copies of DataFrames at peak",
    about: "A line of Python copies a table of pandas, and the copy is live at peak usage together \
            with the table that it was copied from. Select columns and rows before the copy, work \
            in place, or delete the table that is no longer needed.",
    judge,
};

/// Functions of pandas that copy the data of a table, by the last part of their names.
const COPIES: [&str; 3] = ["copy", "__deepcopy__", "__copy__"];
/// The minimal fraction of peak usage for a copy.
const PART_OF_PEAK: u64 = 10;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    let python = material.groups.iter().filter(|group| material.is_python(group));
    Judged::Found(python.filter_map(|group| finding(material, group)).collect())
}

/// Returns whether a function of pandas copies a table.
fn copies(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let is_of_pandas = frame.file.as_deref().is_some_and(|file| file.contains("/pandas/core/"));
    let last = name.rsplit('.').next().unwrap_or_default();
    frame.code == CodeKind::Python && is_of_pandas && COPIES.contains(&last)
}

fn finding(material: &Material, group: &Group) -> Option<Finding> {
    let is_copy =
        |row: &&Row| row.measures.at_peak_bytes > 0 && material.inside(row.stack).any(copies);
    let rows: Vec<Row> = group.rows.iter().filter(is_copy).copied().collect();
    let place = material.place(&rows, |m| m.at_peak_bytes)?;
    let m = place.measures;
    if m.at_peak_bytes < material.process.totals.peak_bytes / PART_OF_PEAK
        || !material.is_much(m.at_peak_bytes)
    {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("holds copies of a table at peak: {}", bytes(m.at_peak_bytes)),
        evidence: vec![format!(
            "{} of copies by pandas are live at peak",
            counted(m.at_peak_blocks, "block")
        )],
        advice: "Copy only the columns and rows that change, or delete the table that is no \
                 longer needed before the copy."
            .to_owned(),
        saves: Saves { peak_bytes: m.at_peak_bytes, ..Saves::default() },
        certainty: Certainty::Possible,
    })
}
