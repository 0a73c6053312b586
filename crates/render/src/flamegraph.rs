//! Flame graphs as SVG, drawn by inferno: widths are a measure, outermost functions or scopes at
//! the bottom.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptide_analysis::aggregate::{Functions, Sum};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{Process, ScopeId, Site, StackId};
use heaptide_analysis::tree::{Recursion, Tree};
use inferno::flamegraph;

use crate::names::shorten;
use crate::quantity::{bytes, count, duration};
use crate::scopes;
use crate::text::command_line;

/// Characters of a name; a box rarely has room for more, and its tooltip shows all of these.
const NAME: usize = 160;
/// Boxes narrower than a tenth of a pixel, this share of the whole, are merged into the one below.
const LEAST_PARTS: u64 = 12_000;

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
        let (name, pid) = (measure.name(), process.pid);
        let why = format!("{name} of pid {pid} is 0: nothing to draw");
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
            plain(&process.label(frame))
        })
        .collect();
    let mut own: Vec<u64> = tree.nodes.iter().map(|n| n.own).collect();
    for (i, node) in tree.nodes.iter().enumerate().skip(1).rev() {
        if node.inclusive < least {
            own[node.parent as usize] += std::mem::take(&mut own[i]);
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

/// Lines of scopes, with `stacks` also of the functions in them, and their values, sorted. What is
/// narrower than a box is merged into its scope.
fn folded_scopes(process: &Process, measure: Measure, stacks: bool) -> Vec<String> {
    let key = |site: &Site| (site.scope, if stacks { site.stack } else { StackId(0) });
    let mut sites: Vec<&Site> = process.sites.iter().collect();
    sites.sort_by_key(|site| key(site));
    let least = measure.of(&process.totals) / LEAST_PARTS;
    let mut sums: BTreeMap<(ScopeId, StackId), u64> = BTreeMap::new();
    for of_one in sites.chunk_by(|a, b| key(a) == key(b)) {
        let (scope, stack) = key(of_one[0]);
        let value = measure.of(&Sum::over(of_one.iter().copied()));
        let stack = if value < least { StackId(0) } else { stack };
        let sum = sums.entry((scope, stack)).or_default();
        *sum = measure.combine().of(*sum, value);
    }
    let line = |((scope, stack), value): ((ScopeId, StackId), u64)| {
        let scopes = process.scope_path(scope).into_iter().map(scopes::name);
        let frames = process.path_of(stack).into_iter().map(|frame| process.label(frame).into());
        let names = scopes.chain(frames);
        let path: Vec<String> = names.map(|name: String| plain(&name)).collect();
        match path.is_empty() {
            true => format!("(no scope) {value}"),
            false => format!("{} {value}", path.join(";")),
        }
    };
    let mut lines: Vec<_> = sums.into_iter().filter(|sum| sum.1 > 0).map(line).collect();
    lines.sort_unstable();
    lines
}

/// A name that can be part of a line: a semicolon separates frames, a space the value.
fn plain(name: &str) -> String {
    shorten(name, NAME).replace(';', ":").replace('\n', " ")
}

fn subtitle(process: &Process, measure: Measure) -> String {
    let value = measure.of(&process.totals);
    let value = match measure.is_bytes() {
        true => format!("{} ({} bytes)", bytes(value), count(value)),
        false => count(value),
    };
    let pid = process.pid;
    match measure {
        Measure::AtPeakBytes | Measure::AtPeakBlocks => {
            let when = duration(process.peak_time_ns);
            format!("pid {pid}: {value} live at the peak, {when} after the start")
        }
        Measure::LiveBytes | Measure::LiveBlocks => format!("pid {pid}: {value} live at the end"),
        _ => format!("pid {pid}: {value}"),
    }
}
