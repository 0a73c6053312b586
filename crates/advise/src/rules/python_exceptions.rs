//! Exceptions of Python that are kept with their tracebacks.
//!
//! CPython creates a traceback for each function that an exception passes through; it refers to the
//! function's local variables and is freed with the exception. How many of them are live at peak is
//! exact. The blocks that these functions allocate and that are live at peak are an upper bound of
//! what the tracebacks keep, and so is the saving.

use std::cmp::Reverse;

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::model::{Mode, StackId};
use heaptide_analysis::quantity::{bytes, count};
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "python-exceptions",
    title: "Exceptions kept with their tracebacks",
    about: "Many exceptions are live together, each with a traceback, which keeps the local \
            variables of all functions that the exception passed through. Keep the text of an \
            exception instead, or clear its traceback.",
    judge,
};

/// CPython's function that adds a function to the traceback of an exception.
const ADDS: &str = "PyTraceBack_Here";
/// The minimal number of tracebacks of one stack that are live at peak. Deep recursion creates many
/// for one exception, but each has a stack of its own.
const TRACEBACKS_MIN: u64 = 100;
/// The minimal part of a function's tracebacks that is live at peak, in percent: a program that
/// handles its exceptions frees nearly all.
const KEPT_PERCENT_MIN: u64 = 50;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    Judged::Found(finding(material, &passed(material)).into_iter().collect())
}

/// A function that exceptions pass through.
#[derive(Default)]
struct Passed {
    /// Stacks that create tracebacks.
    rows: Vec<Row>,
    live: u64,
    created: u64,
    /// The most live tracebacks of one stack.
    most: u64,
    /// The number of functions on its stack.
    depth: usize,
}

/// Returns the functions with many tracebacks that are live at peak, the outermost first.
fn passed(material: &Material) -> Vec<(FunctionId, Passed)> {
    let mut all: FxHashMap<FunctionId, Passed> = FxHashMap::default();
    for group in material.groups.iter().filter(|group| material.is_python(group)) {
        for row in group.rows.iter().filter(|row| adds_traceback(material, row.stack)) {
            let of = all.entry(group.function).or_default();
            let m = &row.measures;
            of.live = of.live.saturating_add(m.at_peak_blocks);
            of.created = of.created.saturating_add(m.allocations);
            of.most = of.most.max(m.at_peak_blocks);
            let owner = material.owners.stack(row.stack);
            of.depth = of.depth.max(material.process.frames_of(owner).count());
            of.rows.push(*row);
        }
    }
    let is_kept =
        |of: &Passed| of.most >= TRACEBACKS_MIN && of.live >= of.created / 100 * KEPT_PERCENT_MIN;
    let mut kept: Vec<_> = all.into_iter().filter(|(_, of)| is_kept(of)).collect();
    kept.sort_by_key(|(id, of)| (of.depth, id.0));
    kept
}

fn adds_traceback(material: &Material, stack: StackId) -> bool {
    material.inside(stack).any(|frame| frame.function.as_deref() == Some(ADDS))
}

/// Reports the innermost of the functions that exceptions pass through.
fn finding(material: &Material, passed: &[(FunctionId, Passed)]) -> Option<Finding> {
    let (_, innermost) = passed.last()?;
    // The outermost function catches the exceptions: its variables exist once, and it runs.
    let functions: Vec<FunctionId> = passed.iter().skip(1).map(|(id, _)| *id).collect();
    let own = material.groups.iter().filter(|group| functions.contains(&group.function));
    let tracebacks = passed.iter().take(1).flat_map(|(_, of)| &of.rows);
    let held = own
        .map(|group| group.measures.at_peak_bytes)
        .chain(tracebacks.map(|row| row.measures.at_peak_bytes))
        .fold(0, u64::saturating_add);
    if !material.is_much(held) {
        return None;
    }
    let mut rows = innermost.rows.clone();
    rows.sort_by_key(|row| (Reverse(row.measures.at_peak_blocks), row.stack));
    Some(Finding {
        rule: RULE.name,
        place: material.place(&rows, |m| m.at_peak_blocks),
        what: format!(
            "raises exceptions that are kept: {} tracebacks at peak",
            count(innermost.live)
        ),
        evidence: vec![
            format!(
                "{} of the {} tracebacks created in this function are live at peak",
                count(innermost.live),
                count(innermost.created)
            ),
            format!(
                "each keeps the local variables of its functions, whose blocks at peak and \
                 tracebacks have {}",
                bytes(held)
            ),
        ],
        advice: "Keep the text of an exception instead, or call `traceback.clear_frames` and set \
                 its `__traceback__` to None."
            .to_owned(),
        saves: Saves { peak_bytes: held, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
