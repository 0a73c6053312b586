//! The tree of calls or of scopes for Graphviz: boxes shaded and sized by what they allocate
//! themselves, edges with the share that goes through them.

use std::fmt::Write as _;
use std::io::{self, Write};

use heaptide_analysis::attribution::Functions;
use heaptide_analysis::model::{LaneId, Measure, Process};

use crate::shared::branches::Lanes;
use crate::shared::branches::{Branch, Branches, What, lanes_by};
use crate::shared::command_line::command_line;
use crate::shared::frames;
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{amount, count, counted, percent};
use crate::shared::scope_path::scope_path;

/// A branch below this part of the whole is put together with its like.
const PARTS: u64 = 200;
/// Boxes of a picture that can still be read.
const BOXES: usize = 160;
/// Characters of a name in a box, and of that in its tooltip.
const NAME: usize = 44;
const TOOLTIP: usize = 2000;
/// Functions above a box that only call the next, of which this many are named in it.
const CHAIN: usize = 3;

/// What the boxes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tree {
    /// Functions below their callers.
    Calls,
    /// Scopes below those around them, so many levels.
    Scopes {
        /// Deeper ones count for the last of them.
        levels: usize,
    },
}

/// Writes the graph of a process. Scopes or functions of one name at different paths are boxes of
/// their own.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    tree: Tree,
    lanes: Lanes,
) -> io::Result<()> {
    let measure = measure.of_sites();
    let whole = measure.of(&process.totals);
    let trees = trees(process, measure, tree, lanes);
    let (least, trees) = legible(&trees, whole, tree);
    let (text, edges) = (String::new(), String::new());
    let mut graph = Graph { process, measure, whole, least, tree, boxes: 0, text, edges };
    graph.head();
    for (lane, branches) in trees.into_iter().filter(|(_, branches)| branches[0].inclusive[0] > 0) {
        let Some(id) = lane else {
            graph.branches(&branches, None);
            continue;
        };
        let lane = &process.tables.lanes[id.0 as usize];
        let threads = counted(lane.threads.into(), "thread");
        let title = quoted(&[format!("thread {}, {threads}", printable(&lane.name))]);
        let _ = writeln!(graph.text, "  subgraph cluster_{} {{\n    label={title};", id.0);
        graph.branches(&branches, Some(id));
        graph.text.push_str("  }\n");
    }
    writeln!(out, "{}{}}}", graph.text, graph.edges)
}

/// Something of a lane, or of all as one.
type OfLane<T> = (Option<LaneId>, T);

/// The whole trees of the lanes, or of all as one.
fn trees(
    process: &Process,
    measure: Measure,
    tree: Tree,
    lanes: Lanes,
) -> Vec<OfLane<Branches<2>>> {
    let functions = Functions::of(process);
    let measures = [measure, blocks_of(measure)];
    let of_lane = |lane| match tree {
        Tree::Calls => (lane, Branches::calls(process, &functions, lane, measures)),
        Tree::Scopes { levels } => (lane, Branches::scopes(process, lane, levels, measures)),
    };
    match lanes {
        Lanes::Merged => vec![of_lane(None)],
        Lanes::Apart => {
            let lanes = lanes_by(process, measure).into_iter();
            lanes.map(|(id, _)| of_lane(Some(id))).collect()
        }
    }
}

/// What of the trees can be read together, and the least value that a box then has.
fn legible(
    trees: &[OfLane<Branches<2>>],
    whole: u64,
    tree: Tree,
) -> (u64, Vec<OfLane<Vec<Branch<2>>>>) {
    let mut least = whole.div_ceil(PARTS).max(1);
    loop {
        let cut =
            |(lane, all): &OfLane<Branches<2>>| (*lane, all.cut_below(&[least, u64::MAX]).all);
        let cut: Vec<_> = trees.iter().map(cut).collect();
        let boxes = |(_, branches): &OfLane<Vec<Branch<2>>>| {
            let passed = passed(branches, tree, least).into_iter().zip(branches);
            passed.filter(|(passed, branch)| !passed && !is_crumb(branch, least)).count()
        };
        if cut.iter().map(boxes).sum::<usize>() <= BOXES || least >= whole {
            return (least, cut);
        }
        least = least.saturating_mul(3) / 2 + 1;
    }
}

/// The blocks that the bytes of a measure are of.
fn blocks_of(measure: Measure) -> Measure {
    match measure {
        Measure::AtPeakBytes => Measure::AtPeakBlocks,
        Measure::LiveBytes => Measure::LiveBlocks,
        Measure::FreedBytes => Measure::Frees,
        Measure::FreedHereBytes => Measure::FreesHere,
        _ => Measure::Allocations,
    }
}

struct Graph<'a> {
    process: &'a Process,
    measure: Measure,
    whole: u64,
    /// Of a box.
    least: u64,
    tree: Tree,
    /// How many boxes there are, of all lanes.
    boxes: usize,
    text: String,
    edges: String,
}

impl Graph<'_> {
    /// The title, the looks, and the box of the process.
    fn head(&mut self) {
        let (name, total) = (self.measure.name(), amount(self.measure, self.whole));
        let command = command_line(self.process, 70);
        let title = [
            format!("{command} ({}) · {name} {total}", self.process.who()),
            format!(
                "shade and size: own share; branches below {} are merged or omitted",
                percent(self.least, self.whole)
            ),
        ];
        let _ = write!(
            self.text,
            "digraph heaptide {{\n  \
             graph [label={}, labelloc=t, fontname=\"Helvetica\", fontsize=16, ranksep=0.4, \
             nodesep=0.2, style=rounded, color=\"#9a9a9a\"];\n  \
             node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", \
             color=\"#5a5a5a\"];\n  \
             edge [fontname=\"Helvetica\", fontsize=9, color=\"#7a7a7a\", fontcolor=\"#444444\"];\n",
            quoted(&title)
        );
        let lines = [command, format!("{}, {total}", self.process.who())];
        let _ = writeln!(
            self.text,
            "  process [label={}, shape=box, style=filled, fillcolor=\"#dfe7ef\", fontsize=14];",
            quoted(&lines)
        );
    }

    /// The boxes of a tree and the edges to them.
    fn branches(&mut self, branches: &[Branch<2>], lane: Option<LaneId>) {
        let entered = entered(self.process, lane);
        let least = self.least;
        let passed = passed(branches, self.tree, least);
        for (index, branch) in branches.iter().enumerate() {
            let without = branch.what == What::Root;
            let value = if without { branch.own[0] } else { branch.inclusive[0] };
            if passed[index] || value == 0 || is_crumb(branch, least) {
                continue;
            }
            let mut chain = Vec::new();
            let mut above = branch.parent as usize;
            while passed[above] {
                chain.push(branches[above].what);
                above = branches[above].parent as usize;
            }
            let label = self.label(branch, &chain, &entered);
            let id = format!("n{}", self.boxes + index);
            let tooltip = elide_middle(&self.full_name(branch.what), TOOLTIP);
            let (label, tooltip) = (quoted(&label), quoted(&[tooltip]));
            let looks = looks(branch, self.whole);
            let _ = writeln!(self.text, "  {id} [label={label}, tooltip={tooltip}, {looks}];");
            let from = match above {
                0 => "process".to_owned(),
                above => format!("n{}", self.boxes + above),
            };
            let share = value as f64 / self.whole.max(1) as f64;
            let (weight, width) = (share * 100.0, 0.6 + 5.0 * share);
            let weight = format!("label=\"w={weight:.2}%\", penwidth={width:.2}");
            // Out of the clusters, or the process would be in one of them.
            let _ = writeln!(self.edges, "  {from} -> {id} [{weight}];");
        }
        self.boxes += branches.len();
    }

    /// The lines in a box.
    fn label(&self, branch: &Branch<2>, chain: &[What], entered: &[u64]) -> Vec<String> {
        let value = |value: u64| {
            format!("{} ({})", amount(self.measure, value), percent(value, self.whole))
        };
        let mut lines: Vec<String> = Vec::new();
        let named = chain.len().min(CHAIN);
        if chain.len() > named {
            lines.push(format!("… {} →", counted((chain.len() - named) as u64, "frame")));
        }
        lines.extend(chain[..named].iter().rev().map(|&what| self.name(what) + " →"));
        lines.push(self.name(branch.what));
        let [own, blocks] = branch.own;
        match branch.what {
            What::Call(id) => {
                let frame = &self.process.tables.frames[id.0 as usize];
                let place = frames::place(self.process, frame);
                lines.extend((!place.is_empty()).then(|| elide_middle(&printable(&place), NAME)));
            }
            What::Scope(scope) if entered[scope.0 as usize] > 0 => {
                let times = entered[scope.0 as usize];
                let each = amount(self.measure, own / times);
                lines.push(format!("entered {}", times_in_words(times)));
                lines.extend((own > 0).then(|| format!("{each} own each time")));
            }
            _ => {}
        }
        if branch.own != branch.inclusive && branch.what != What::Root {
            lines.push(format!("total {}", value(branch.inclusive[0])));
        }
        if own > 0 {
            lines.push(format!("own {}", value(own)));
        }
        let counts_blocks = !self.measure.is_bytes();
        lines.extend((blocks > 0 && !counts_blocks).then(|| counted(blocks, "block")));
        lines
    }

    /// A name that fits a box.
    fn name(&self, what: What) -> String {
        match what {
            What::Call(frame) => {
                frames::label(self.process, &self.process.tables.frames[frame.0 as usize], NAME)
            }
            What::Scope(id) => {
                elide_middle(&self.process.tables.scopes[id.0 as usize].name(), NAME)
            }
            other => self.full_name(other),
        }
    }

    fn full_name(&self, what: What) -> String {
        match what {
            What::Root if self.tree == Tree::Calls => "(no stack)".to_owned(),
            What::Root => "(no scope)".to_owned(),
            What::Call(frame) => {
                let name = self.process.label(frame);
                let frame = &self.process.tables.frames[frame.0 as usize];
                format!("{name}{}", frames::in_module(self.process, frame))
            }
            What::Scope(scope) => scope_path(self.process, scope, TOOLTIP),
            What::Smaller(branches) => match branches {
                1 => "1 smaller branch".to_owned(),
                n => format!("{} smaller branches", count(n.into())),
            },
        }
    }
}

/// Whether branches are too small to see even together.
fn is_crumb(branch: &Branch<2>, least: u64) -> bool {
    matches!(branch.what, What::Smaller(_)) && branch.inclusive[0] < least
}

/// Of each branch, whether it is a function that allocates nothing itself and calls but one other,
/// in whose box it is named.
fn passed(branches: &[Branch<2>], tree: Tree, least: u64) -> Vec<bool> {
    if tree != Tree::Calls {
        return vec![false; branches.len()];
    }
    let mut children = vec![(0, false); branches.len()];
    for branch in branches.iter().skip(1).filter(|branch| !is_crumb(branch, least)) {
        let (count, calls) = &mut children[branch.parent as usize];
        *count += 1;
        *calls = matches!(branch.what, What::Call(_));
    }
    let only = |(branch, children): (&Branch<2>, (u32, bool))| {
        matches!(branch.what, What::Call(_)) && branch.own[0] == 0 && children == (1, true)
    };
    branches.iter().zip(children).map(only).collect()
}

/// How often each scope path was entered, by all lanes or by one.
fn entered(process: &Process, lane: Option<LaneId>) -> Vec<u64> {
    let Some(lane) = lane else {
        return process.tables.scopes.iter().map(|scope| scope.entered).collect();
    };
    let mut entered = vec![0u64; process.tables.scopes.len()];
    for row in process.tables.entered.iter().filter(|row| row.lane == lane) {
        let times = &mut entered[row.scope.0 as usize];
        *times = times.saturating_add(row.times);
    }
    entered
}

fn times_in_words(times: u64) -> String {
    match times {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{} times", count(n)),
    }
}

/// Shade and size of a box by its own share: from white to dark red, from small to large.
fn looks(branch: &Branch<2>, whole: u64) -> String {
    if let What::Smaller(_) = branch.what {
        return "style=\"rounded,dashed\", color=\"#9a9a9a\", fontcolor=\"#555555\", fontsize=9"
            .to_owned();
    }
    let share = (branch.own[0] as f64 / whole.max(1) as f64).sqrt();
    let mix = |light: f64, dark: f64| (light + (dark - light) * share).round() as u8;
    let (red, green, blue) = (mix(255.0, 178.0), mix(252.0, 18.0), mix(247.0, 28.0));
    let text = if share > 0.6 { "white" } else { "#1a1a1a" };
    let size = 9.0 + 13.0 * share;
    format!(
        "fillcolor=\"#{red:02x}{green:02x}{blue:02x}\", fontcolor=\"{text}\", fontsize={size:.0}"
    )
}

/// Lines as a string of the language; whatever is in them, they stay text.
fn quoted(lines: &[String]) -> String {
    let line = |line: &String| {
        let line = printable(line).replace('&', "&amp;");
        line.replace('\\', r"\\").replace('"', "\\\"")
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    format!("\"{}\"", lines.join("\\n"))
}
