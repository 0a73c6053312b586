//! Stacks as text: a line for each function, with its source place.

use std::io::{self, Write};

use heaptide_analysis::model::{Frame, StackId};

use crate::shared::distinct_names::Labels;
use crate::shared::printed_stack::{self, Line};
use crate::text::screen::{Screen, Style, visible};

/// Maximum lines of a stack.
const LINES: usize = 24;
/// Maximum characters of a name.
const NAME: usize = 64;
/// Characters before a place.
const LABEL: usize = 60;

/// Writes a stack, innermost function first.
///
/// Errors: those of `out`.
pub(crate) fn stack(out: &mut Screen, labels: &Labels, stack: StackId) -> io::Result<()> {
    if stack == StackId(0) {
        writeln!(out, "      (no stack)")?;
    }
    let process = labels.process;
    let frames = process.frames_of(stack).map(|id| &process.tables.frames[id.0 as usize]);
    lines(out, labels, &frames.collect::<Vec<_>>())
}

/// Writes frames, innermost first.
///
/// Errors: those of `out`.
pub(crate) fn lines(out: &mut Screen, labels: &Labels, frames: &[&Frame]) -> io::Result<()> {
    for line in printed_stack::lines_of(labels, frames, LINES, out.fit(NAME)) {
        write(out, "      ", &line, LABEL.min(out.fit(LABEL)))?;
    }
    Ok(())
}

/// Writes a line after `before`, with its label padded to `width` characters.
///
/// Errors: those of `out`.
pub(crate) fn write(out: &mut Screen, before: &str, line: &Line, width: usize) -> io::Result<()> {
    let label = match (line.is_own, line.is_left_out()) {
        (true, _) => Style::Own.of(&line.label),
        (_, true) => Style::Minor.of(&line.label),
        _ => line.label.clone(),
    };
    if line.place.is_empty() {
        return writeln!(out, "{before}{label}");
    }
    let [used, label_width, place_width] = [before, &label, &line.place].map(visible);
    let mut padding = width.saturating_sub(label_width);
    if out.is_limited() {
        // A misaligned place is better than a wrapped line.
        padding = padding.min(out.columns().saturating_sub(used + label_width + 2 + place_width));
    }
    let padding = " ".repeat(padding);
    writeln!(out, "{before}{label}{padding}  {}", Style::Minor.of(&line.place))
}
