//! Flame graphs as SVG, drawn by inferno: widths are a measure, outermost functions or scopes at
//! the bottom.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptide_analysis::aggregate::{Functions, Sum};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{Process, Scope, ScopeId, Site, StackId};
use heaptide_analysis::scopes as paths;
use heaptide_analysis::tree::{Recursion, Tree};
use inferno::flamegraph;

use crate::names::{elide_middle, shorten};
use crate::quantity::{bytes, count, duration};
use crate::text::command_line;

/// Characters of a name; a box rarely has room for more, and its tooltip shows all of these.
const NAME: usize = 160;
/// Boxes narrower than a tenth of a pixel, this share of the whole, are merged into the one below.
const LEAST_PARTS: u64 = 12_000;

/// Scopes above each other, and functions; what is deeper is drawn as part of the last. A line of
/// text goes to the drawing for each box, so without a limit their sum would be the depth squared.
const LEVELS: usize = 300;

/// What boxes stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Boxes {
    /// Functions.
    #[default]
    Stacks,
    /// Scopes.
    Scopes,
    /// Scopes, and above them the functions that allocated in them.
    ScopesAndStacks,
}

/// Writes the flame graph of a process.
///
/// Errors: those of `out`; the process has no value of the measure (`InvalidInput`).
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    boxes: Boxes,
) -> io::Result<()> {
    let measure = measure.of_sites();
    let lines = match boxes {
        Boxes::Stacks => folded(process, measure),
        Boxes::Scopes => folded_scopes(process, measure, false),
        Boxes::ScopesAndStacks => folded_scopes(process, measure, true),
    };
    if lines.is_empty() {
        let (name, who) = (measure.name(), process.who());
        let why = format!("{name} of {who} is 0: nothing to draw");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = flamegraph::Options::default();
    options.title = format!("{} · {}", command_line(process, 70), measure.name());
    options.subtitle = Some(subtitle(process, measure));
    options.count_name = if measure.is_bytes() { "bytes" } else { measure.name() }.to_owned();
    let name_type = if boxes == Boxes::Scopes { "Scope:" } else { "Function:" };
    options.name_type = name_type.to_owned();
    options.colors = "mem".parse().unwrap_or_default();
    options.hash = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
        .map_err(io::Error::other)
}

/// Lines `outermost;…;innermost value`, sorted.
fn folded(process: &Process, measure: Measure) -> Vec<String> {
    let functions = Functions::of(process);
    let tree = Tree::top_down(process, &functions, measure, Recursion::Keep);
    let least = tree.nodes[0].inclusive / LEAST_PARTS;
    let names: Vec<String> = (0..functions.len() as u32)
        .map(|id| {
            let frame = functions.first_frame(heaptide_analysis::aggregate::FunctionId(id));
            plain(&shorten(&process.label(frame), NAME))
        })
        .collect();
    let mut own: Vec<u64> = tree.nodes.iter().map(|n| n.own).collect();
    let levels = levels(tree.nodes.iter().map(|node| node.parent));
    for (i, node) in tree.nodes.iter().enumerate().skip(1).rev() {
        if node.inclusive < least || levels[i] > LEVELS {
            let below = std::mem::take(&mut own[i]);
            let own = &mut own[node.parent as usize];
            *own = measure.combine().of(*own, below);
        }
    }
    let mut lines = Vec::new();
    for (i, value) in own.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        let mut path = Vec::new();
        let mut at = &tree.nodes[i];
        while let Some(function) = at.function {
            path.push(names[function.0 as usize].as_str());
            at = &tree.nodes[at.parent as usize];
        }
        path.reverse();
        let path = if path.is_empty() { "(no stack)".to_owned() } else { path.join(";") };
        lines.push(format!("{path} {value}"));
    }
    lines.sort_unstable();
    lines
}

/// How many are above each other up to each node; parents come first, the first is of no level.
fn levels(parents: impl Iterator<Item = u32>) -> Vec<usize> {
    let mut levels = vec![0];
    for parent in parents.skip(1) {
        levels.push(levels[parent as usize] + 1);
    }
    levels
}

/// The scope that each is drawn as: one around it if it is too narrow for a box, or too deep.
fn drawn_scopes(process: &Process, measure: Measure, least: u64) -> Vec<ScopeId> {
    let sums = paths::sums(process, None);
    let levels = levels(process.scopes.iter().map(|scope| scope.parent.0));
    let mut drawn = vec![ScopeId(0)];
    for (i, scope) in process.scopes.iter().enumerate().skip(1) {
        let fits = levels[i] <= LEVELS && measure.of(&sums[i].inclusive) >= least;
        drawn.push(if fits { ScopeId(i as u32) } else { drawn[scope.parent.0 as usize] });
    }
    drawn
}

/// The stack that each is drawn as: its outer part if it is too deep.
fn drawn_stacks(process: &Process) -> Vec<StackId> {
    let levels = levels(process.stacks.iter().map(|node| node.parent.0));
    let mut drawn = vec![StackId(0)];
    for (i, node) in process.stacks.iter().enumerate().skip(1) {
        let fits = levels[i] <= LEVELS;
        drawn.push(if fits { StackId(i as u32) } else { drawn[node.parent.0 as usize] });
    }
    drawn
}

/// Lines of scopes, with `stacks` also of the functions in them, and their values, sorted. What is
/// narrower than a box is merged into its scope.
fn folded_scopes(process: &Process, measure: Measure, stacks: bool) -> Vec<String> {
    let least = measure.of(&process.totals) / LEAST_PARTS;
    let scope_of = drawn_scopes(process, measure, least);
    let stack_of = drawn_stacks(process);
    let key = |site: &Site| {
        let stack = if stacks { stack_of[site.stack.0 as usize] } else { StackId(0) };
        (scope_of[site.scope.0 as usize], stack)
    };
    let mut sites: Vec<&Site> = process.sites.iter().collect();
    sites.sort_by_key(|site| key(site));
    let mut sums: BTreeMap<(ScopeId, StackId), u64> = BTreeMap::new();
    for of_one in sites.chunk_by(|a, b| key(a) == key(b)) {
        let (scope, stack) = key(of_one[0]);
        let value = measure.of(&Sum::over(of_one.iter().copied()));
        let stack = if value < least { StackId(0) } else { stack };
        let sum = sums.entry((scope, stack)).or_default();
        *sum = measure.combine().of(*sum, value);
    }
    let line = |((scope, stack), value): ((ScopeId, StackId), u64)| {
        let scopes = process.scope_path(scope).into_iter().map(scope_name);
        let frames =
            process.path_of(stack).into_iter().map(|frame| shorten(&process.label(frame), NAME));
        let path: Vec<String> = scopes.chain(frames).map(|name| plain(&name)).collect();
        let without = if scope == ScopeId(0) { "(no scope)" } else { "" };
        let between = if without.is_empty() || path.is_empty() { "" } else { ";" };
        format!("{without}{between}{} {value}", path.join(";"))
    };
    let mut lines: Vec<_> = sums.into_iter().filter(|sum| sum.1 > 0).map(line).collect();
    lines.sort_unstable();
    lines
}

/// Of a scope, whose name is no function's and has nothing to be taken off.
fn scope_name(scope: &Scope) -> String {
    elide_middle(&scope.name(), NAME)
}

/// A name that can be part of a line: a semicolon separates frames, and a number after a space is
/// a value, also one before the last.
fn plain(name: &str) -> String {
    let name = name.trim().replace(';', ":");
    match name.rsplit_once(' ') {
        Some((words, last)) if last.parse::<f64>().is_ok() => format!("{words}\u{a0}{last}"),
        _ => name,
    }
}

fn subtitle(process: &Process, measure: Measure) -> String {
    let value = measure.of(&process.totals);
    let value = match measure.is_bytes() {
        true => format!("{} ({} bytes)", bytes(value), count(value)),
        false => count(value),
    };
    let who = process.who();
    match measure {
        Measure::AtPeakBytes | Measure::AtPeakBlocks => {
            let when = duration(process.peak_time_ns);
            format!("{who}: {value} live at the peak, {when} after the start")
        }
        Measure::LiveBytes | Measure::LiveBlocks => format!("{who}: {value} live at the end"),
        _ => format!("{who}: {value}"),
    }
}
