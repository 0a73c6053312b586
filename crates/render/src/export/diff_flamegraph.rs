//! Export of a difference as a flame graph: widths show the values of one recording, colours the
//! change.

use std::io::{self, Write};

use heaptide_analysis::model::Combine;
use heaptide_analysis::views::diff::{Change, Difference, PathId, Paths, Side};

use crate::export::flame_style;
use crate::export::folded_lines::{LEAST_PARTS, NAME, plain};
use crate::shared::branches::LEVELS;
use crate::shared::change::{growth, signed};
use crate::shared::command_line::command_line;
use crate::shared::difference::{Rows, View, process};
use crate::shared::distinct_names::{add_modules, shorten_apart};
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::amount;

/// Up to this total, values are drawn unscaled; no sum of them overflows.
const TOTAL: u64 = 1 << 53;
/// If the total is larger, or values do not add up, each value is capped at this.
const MOST: u64 = 1 << 40;

/// Scaling of the first recording's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Values are compared unscaled.
    #[default]
    AsIs,
    /// Values are scaled to the total of the second recording, to show what grew more than the
    /// rest.
    Normalized,
}

/// How a difference is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawing {
    /// The side whose values determine the widths. Paths that only the other side has are
    /// invisible.
    pub widths: Side,
    /// Scaling of the first recording's values.
    pub scale: Scale,
}

/// Draws a difference by functions or scopes. A box is red if its own allocations grew, blue if
/// they shrank.
///
/// Errors: those of `out`; `InvalidInput` if the process that determines the widths has no value of
/// the metric.
pub fn write(
    out: &mut dyn Write,
    difference: &Difference,
    view: &View,
    drawing: Drawing,
) -> io::Result<()> {
    let measure = difference.measure.of_sites();
    let lines = lines(difference, drawing);
    if lines.is_empty() {
        let (side, name) = match drawing.widths {
            Side::Before => (view.before, measure.name()),
            Side::After => (view.after, measure.name()),
        };
        let why = format!("{side}: {name} is 0: nothing to draw");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = flame_style::options();
    let of_width = process(difference, drawing.widths);
    options.title = format!("{} · {}, change", command_line(of_width, 70), measure.name());
    options.subtitle = Some(subtitle(difference, view, drawing));
    options.count_name = if measure.is_bytes() { "bytes" } else { measure.name() }.to_owned();
    let name_type = if view.rows == Rows::Scopes { "Scope:" } else { "Function:" };
    options.name_type = name_type.to_owned();
    options.negate_differentials = drawing.widths == Side::Before;
    flame_style::draw(out, options, &lines)
}

fn subtitle(difference: &Difference, view: &View, drawing: Drawing) -> String {
    let measure = difference.measure.of_sites();
    let total = difference.total_of(measure);
    let value = |value| amount(measure, value);
    let (before, after) = (value(total.before), value(total.after));
    let change = match total.amount() {
        0 => "no change".to_owned(),
        _ => format!("{} {}", signed(measure, total), growth(total)).trim_end().to_owned(),
    };
    let widths = match drawing.widths {
        Side::Before => "before",
        Side::After => "after",
    };
    let scale = match drawing.scale {
        Scale::AsIs => "",
        Scale::Normalized => ", before scaled to the total after",
    };
    let names = [view.before, view.after].map(|name| elide_middle(name, 40));
    format!(
        "{}: {before}, {}: {after} ({change}); widths: {widths}; red grew, blue shrank{scale}",
        names[0], names[1]
    )
}

/// Returns lines `outermost;…;innermost OTHER WIDTH`, each path after its parent, so that the
/// colour of a box shows the change of its own value. Empty if there is nothing to draw.
fn lines(difference: &Difference, drawing: Drawing) -> Vec<String> {
    let combine = difference.measure.of_sites().combine();
    let paths = &difference.paths;
    let inclusive = paths.inclusive(combine);
    let mut own = paths.own.clone();
    let whole = inclusive[0];
    let least = whole.before.max(whole.after) / LEAST_PARTS;
    let levels = levels(paths);
    let is_drawn = |index: usize| {
        let Change { before, after } = inclusive[index];
        before.max(after) >= least.max(1) && levels[index] <= LEVELS
    };
    let mut effective = paths.effective.clone();
    for index in (1..own.len()).rev().filter(|&index| !is_drawn(index)) {
        let parent = paths.nodes[index].parent.0 as usize;
        let below = std::mem::take(&mut own[index]);
        own[parent].add(below, combine);
        if let Some(below) = effective.get_mut(index).map(std::mem::take) {
            effective[parent].add(below, Combine::Sum);
        }
    }
    let names = names(difference);
    let adds_up = combine == Combine::Sum && whole.before.max(whole.after) <= TOTAL;
    let most = if adds_up { TOTAL } else { MOST };
    let values = |change: Change| {
        let before = match drawing.scale {
            Scale::Normalized if whole.before > 0 => {
                let scaled = u128::from(change.before) * u128::from(whole.after);
                u64::try_from(scaled / u128::from(whole.before)).unwrap_or(most)
            }
            _ => change.before,
        };
        let (before, after) = (before.min(most), change.after.min(most));
        match drawing.widths {
            Side::Before => (after, before),
            Side::After => (before, after),
        }
    };
    let mut lines = Vec::new();
    let mut width = 0;
    for index in in_order(paths, &names, is_drawn) {
        let (other, of_width) = values(own[index]);
        let numbers = effective.get(index).copied().unwrap_or_default();
        // A change within the error of the estimates gets no colour.
        let is_certain = difference.is_certain(own[index], numbers);
        let other = if is_certain { other } else { of_width };
        if (other, of_width) != (0, 0) {
            width += of_width;
            let path = path(paths, &names, PathId(index as u32));
            lines.push(format!("{path} {other} {of_width}"));
        }
    }
    if width == 0 { Vec::new() } else { lines }
}

/// Returns the names of boxes, all different: boxes with one name would be drawn as one box.
fn names(difference: &Difference) -> Vec<String> {
    let called: Vec<_> = difference.names.iter().map(|name| name.called()).collect();
    let mut names = shorten_apart(&called, NAME);
    add_modules(&mut names, NAME, |row| match difference.names[row].module() {
        "" => String::new(),
        module => format!("  [{}]", printable(module)),
    });
    names.iter().map(|name| plain(name)).collect()
}

fn path(paths: &Paths, names: &[String], path: PathId) -> String {
    let mut path: Vec<&str> = paths.names_of(path).map(|name| &*names[name as usize]).collect();
    path.reverse();
    if path.is_empty() { "(no stack)".to_owned() } else { path.join(";") }
}

/// Returns the depth of each path.
fn levels(paths: &Paths) -> Vec<usize> {
    let mut levels = vec![0];
    for node in &paths.nodes[1..] {
        levels.push(levels[node.parent.0 as usize] + 1);
    }
    levels
}

/// Returns the drawn paths in depth-first order, siblings sorted by name.
fn in_order(paths: &Paths, names: &[String], is_drawn: impl Fn(usize) -> bool) -> Vec<usize> {
    let nodes = &paths.nodes;
    let name = |index: usize| names[nodes[index].name as usize].as_str();
    let mut drawn: Vec<usize> = (1..nodes.len()).filter(|&index| is_drawn(index)).collect();
    // In reverse order, because they are pushed onto a stack.
    drawn.sort_by(|&a, &b| (nodes[a].parent, name(b), b).cmp(&(nodes[b].parent, name(a), a)));
    let children = |parent: usize| {
        let start = drawn.partition_point(|&index| (nodes[index].parent.0 as usize) < parent);
        let end = drawn.partition_point(|&index| (nodes[index].parent.0 as usize) <= parent);
        &drawn[start..end]
    };
    let mut ordered = Vec::with_capacity(drawn.len() + 1);
    let mut todo = vec![0];
    while let Some(index) = todo.pop() {
        ordered.push(index);
        todo.extend(children(index));
    }
    ordered
}
