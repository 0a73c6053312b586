//! Export of the tree of calls or scopes for Graphviz: boxes are shaded and sized by their own
//! allocations, edges show the share that passes through them.

use std::fmt::Write as _;
use std::io::{self, Write};

use heaptide_analysis::attribution::Functions;
use heaptide_analysis::model::{LaneId, Measure, Process};
use heaptide_analysis::views::memory::{At, Memory};
use heaptide_analysis::views::scopes;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::shared::branches::{Branch, Branches, LEVELS, Lanes, What, lanes_by};
use crate::shared::command_line::command_line;
use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::heading::{counts_say, ending, ran};
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{amount, bytes, count, counted, date, percent};
use crate::shared::scope_path::scope_path;
use crate::shared::threads::threads;
use crate::shared::views::Idle;

/// Without an explicit limit, branches of calls below the whole divided by this are merged. Scopes
/// are merged only if there are too many to draw, at first those below a tenth of that share.
const PARTS: u64 = 200;
/// Boxes of calls that are still legible in a picture.
const BOXES: usize = 160;
/// Scopes in a picture; Graphviz takes about a second for this many.
const SCOPES: usize = 500;
/// Characters of a name in a box, and in its tooltip.
const NAME: usize = 44;
const TOOLTIP: usize = 2000;
/// A box names at most this many of the callers above it that only call the next function.
const CHAIN: usize = 3;

/// Options of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Drawing {
    /// The metric of shares, shades and sizes.
    pub measure: Measure,
    /// The kind of boxes.
    pub tree: Tree,
    /// A tree for each lane, or one for all.
    pub lanes: Lanes,
    /// Boxes below this share of the whole, in percent, are merged; without it, the limit depends
    /// on the tree.
    pub min_percent: Option<f64>,
    /// Whether scopes that allocate and free nothing have boxes.
    pub idle: Idle,
}

/// The kind of boxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tree {
    /// Functions below their callers.
    Calls,
    /// Scopes below their parents.
    Scopes {
        /// Maximum depth; deeper scopes count for their ancestor at this level.
        levels: usize,
    },
}

/// Indices of the metrics of a box.
const VALUE: usize = 0;
const BLOCKS: usize = 1;
const ALLOCATED: usize = 2;
const ALLOCATIONS: usize = 3;
const REALLOCATIONS: usize = 4;
const FREED: usize = 5;
const FREES: usize = 6;
const MEASURES: usize = 7;

type Node = Branch<MEASURES>;

/// A value of a lane, or of all lanes if `None`.
type OfLane<T> = (Option<LaneId>, T);

/// Writes the graph of a process. Functions or scopes with the same name at different paths are
/// separate boxes.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, drawing: &Drawing) -> io::Result<()> {
    let measure = drawing.measure.of_sites();
    let whole = measure.of(&process.totals);
    let trees = trees(process, measure, drawing);
    let (least, trees) = legible(&trees, whole, drawing);
    let (text, edges, tree) = (String::new(), String::new(), drawing.tree);
    let drawn =
        trees.iter().flat_map(|(_, branches)| branches).filter_map(|branch| match branch.what {
            What::Call(frame) => Some(frame),
            _ => None,
        });
    let labels = Labels::of_ids(process, drawn.collect::<FxHashSet<_>>());
    let mut graph = Graph { process, labels, measure, whole, least, tree, boxes: 0, text, edges };
    graph.head(&trees);
    for (lane, branches) in trees {
        let Some(id) = lane else {
            graph.branches(&branches, None);
            continue;
        };
        let lane = &process.tables.lanes[id.0 as usize];
        let name = format!("thread {} ({}), {}", id.0, printable(&lane.name), threads(lane));
        let title = quoted(&[name]);
        let _ = writeln!(graph.text, "  subgraph cluster_{} {{\n    label={title};", id.0);
        graph.branches(&branches, Some(id));
        graph.text.push_str("  }\n");
    }
    writeln!(out, "{}{}}}", graph.text, graph.edges)
}

/// A tree before small branches are merged. For scopes, `used` marks those to show.
struct Whole {
    branches: Branches<MEASURES>,
    used: Vec<bool>,
}

/// Returns the trees of the lanes that have something to show, or one tree of all lanes.
fn trees(process: &Process, measure: Measure, drawing: &Drawing) -> Vec<OfLane<Whole>> {
    let functions = Functions::of(process);
    let [freed, frees] = match drawing.tree {
        Tree::Calls => [Measure::FreedBytes, Measure::Frees],
        Tree::Scopes { .. } => [Measure::FreedHereBytes, Measure::FreesHere],
    };
    let mut measures = [measure; MEASURES];
    measures[BLOCKS] = blocks_of(measure);
    measures[ALLOCATED] = Measure::UsableBytes;
    measures[ALLOCATIONS] = Measure::Allocations;
    measures[REALLOCATIONS] = Measure::Reallocations;
    (measures[FREED], measures[FREES]) = (freed, frees);
    let of_lane = |lane| {
        let branches = match drawing.tree {
            Tree::Calls => Branches::calls(process, &functions, lane, measures),
            Tree::Scopes { levels } => Branches::scopes(process, lane, levels, measures),
        };
        let used = match drawing.tree {
            Tree::Calls => Vec::new(),
            Tree::Scopes { .. } => {
                let entered = scopes::entered(process, lane);
                let entered = (drawing.idle == Idle::Shown).then_some(&*entered);
                scopes::used(process, &scopes::sums(process, lane), entered)
            }
        };
        (lane, Whole { branches, used })
    };
    let mut trees: Vec<OfLane<Whole>> = match drawing.lanes {
        Lanes::Merged => vec![of_lane(None)],
        Lanes::Apart => {
            let lanes = lanes_by(process, measure).into_iter();
            lanes.map(|(id, _)| of_lane(Some(id))).collect()
        }
    };
    trees.retain(|(_, tree)| {
        tree.branches.all[0].inclusive[VALUE] > 0 || tree.used.first() == Some(&true)
    });
    trees
}

/// Merges small branches until the picture is legible. Returns the smallest value of a box, and the
/// trees.
fn legible(
    trees: &[OfLane<Whole>],
    whole: u64,
    drawing: &Drawing,
) -> (u64, Vec<OfLane<Vec<Node>>>) {
    let (mut least, most) = match (drawing.min_percent, drawing.tree) {
        (Some(percent), _) => ((whole as f64 * percent / 100.0).ceil() as u64, usize::MAX),
        (None, Tree::Calls) => (whole.div_ceil(PARTS), BOXES),
        (None, Tree::Scopes { .. }) => (0, SCOPES),
    };
    loop {
        let cut = |(lane, tree): &OfLane<Whole>| match drawing.tree {
            Tree::Calls => {
                let mut of_value = [u64::MAX; MEASURES];
                of_value[VALUE] = least.max(1);
                (*lane, tree.branches.cut_below(&of_value, LEVELS).all)
            }
            Tree::Scopes { .. } => (*lane, cut_scopes(tree, least)),
        };
        let cut: Vec<_> = trees.iter().map(cut).collect();
        let boxes = |(_, branches): &OfLane<Vec<Node>>| {
            let passed = passed(branches, drawing.tree, least).into_iter().zip(branches);
            passed.filter(|(passed, branch)| !passed && !is_crumb(branch, least)).count()
        };
        if cut.iter().map(boxes).sum::<usize>() <= most || least >= whole {
            return (least, cut);
        }
        least = match least {
            0 => whole.div_ceil(10 * PARTS),
            least => least.saturating_mul(3) / 2 + 1,
        };
    }
}

/// Returns the scopes to show; those below `least` are merged, with their descendants.
fn cut_scopes(tree: &Whole, least: u64) -> Vec<Node> {
    let Branches { all, measures } = &tree.branches;
    let mut cut = vec![all[0]];
    // For each scope: its new index, or that of its nearest kept ancestor, and whether it was kept.
    let mut kept = vec![(0u32, true)];
    let mut smaller: Vec<(u32, Node)> = Vec::new();
    let mut smaller_of: FxHashMap<u32, usize> = FxHashMap::default();
    for branch in &all[1..] {
        let (parent, is_kept) = kept[branch.parent as usize];
        let is_used = match branch.what {
            What::Scope(scope) => tree.used[scope.0 as usize],
            _ => true,
        };
        if is_kept && is_used && branch.inclusive[VALUE] >= least {
            cut.push(Branch { parent, ..*branch });
            kept.push((cut.len() as u32 - 1, true));
            continue;
        }
        kept.push((parent, false));
        if !is_used {
            continue;
        }
        let place = *smaller_of.entry(parent).or_insert_with(|| {
            let none = [0; MEASURES];
            let (own, inclusive, what) = (none, none, What::Smaller(0));
            smaller.push((parent, Branch { parent, what, own, inclusive }));
            smaller.len() - 1
        });
        let rest = &mut smaller[place].1;
        if let What::Smaller(count) = &mut rest.what {
            *count += 1;
        }
        for (index, measure) in measures.iter().enumerate() {
            rest.own[index] = measure.combine().of(rest.own[index], branch.own[index]);
        }
        rest.inclusive = rest.own;
    }
    cut.extend(smaller.into_iter().map(|(_, rest)| rest));
    cut
}

/// Returns the count of blocks that corresponds to a metric of bytes.
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
    labels: Labels<'a>,
    measure: Measure,
    whole: u64,
    /// Smallest value of a box.
    least: u64,
    tree: Tree,
    /// Boxes so far, over all lanes.
    boxes: usize,
    text: String,
    edges: String,
}

impl Graph<'_> {
    /// Writes the title, the style, and the box of the process.
    fn head(&mut self, trees: &[OfLane<Vec<Node>>]) {
        let (name, total) = (self.measure.name(), amount(self.measure, self.whole));
        let command = command_line(self.process, 70);
        let mut title = vec![
            format!("{command} ({}) · {name} {total}", self.process.who()),
            "shade and size: own share".to_owned(),
        ];
        title.extend(self.left_out(trees));
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
        let mut lines = vec![command, format!("{}, {total}", self.process.who())];
        lines.extend(of_process(self.process));
        let _ = writeln!(
            self.text,
            "  process [label={}, shape=box, style=filled, fillcolor=\"#dfe7ef\", fontsize=14];",
            quoted(&lines)
        );
    }

    /// Describes the branches without a box of their own; `None` if each has one.
    fn left_out(&self, trees: &[OfLane<Vec<Node>>]) -> Option<String> {
        let (mut together, mut omitted, mut value) = (0u64, 0u64, 0u64);
        for branch in trees.iter().flat_map(|(_, branches)| branches) {
            let What::Smaller(count) = branch.what else { continue };
            if self.tree == Tree::Calls && is_crumb(branch, self.least) {
                omitted += u64::from(count);
                value = self.measure.combine().of(value, branch.inclusive[VALUE]);
            } else {
                together += u64::from(count);
            }
        }
        let noun = if self.tree == Tree::Calls { "branch" } else { "scope" };
        let many = |n: u64| match (n, noun) {
            (1, noun) => format!("1 {noun}"),
            (n, "branch") => format!("{} branches", count(n)),
            (n, noun) => counted(n, noun),
        };
        let mut parts = Vec::new();
        if together > 0 {
            parts.push(format!("{} in dashed boxes", many(together)));
        }
        if omitted > 0 {
            let share = percent(value, self.whole);
            parts.push(format!("{} omitted ({share} in all)", many(omitted)));
        }
        let least = percent(self.least, self.whole);
        (!parts.is_empty()).then(|| format!("below {least}: {}", parts.join(", ")))
    }

    /// Writes the boxes of a tree and collects the edges to them.
    fn branches(&mut self, branches: &[Node], lane: Option<LaneId>) {
        let entered = scopes::entered(self.process, lane);
        let least = self.least;
        let passed = passed(branches, self.tree, least);
        for (index, branch) in branches.iter().enumerate() {
            let without = branch.what == What::Root;
            let value = if without { branch.own[VALUE] } else { branch.inclusive[VALUE] };
            let is_empty = value == 0 && (without || self.tree == Tree::Calls);
            let is_omitted = self.tree == Tree::Calls && is_crumb(branch, least);
            if passed[index] || is_empty || is_omitted {
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
            // Edges are written outside of the clusters; otherwise the process would become part of
            // one.
            let _ = writeln!(self.edges, "  {from} -> {id} [{weight}];");
        }
        self.boxes += branches.len();
    }

    /// Returns the lines in a box.
    fn label(&self, branch: &Node, chain: &[What], entered: &[u64]) -> Vec<String> {
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
        let own = branch.own[VALUE];
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
        let total = branch.inclusive[VALUE];
        if own != total && branch.what != What::Root {
            lines.push(format!("total {}", value(total)));
        }
        if own > 0 {
            let blocks = match branch.own[BLOCKS] {
                n if n > 0 && self.measure.is_bytes() && !self.is_of_allocations() => {
                    format!(" in {}", counted(n, "block"))
                }
                _ => String::new(),
            };
            lines.push(format!("own {}{blocks}", value(own)));
        }
        lines.extend(events(branch));
        lines
    }

    /// Returns whether the metric is about all allocated blocks, which have a line of their own.
    fn is_of_allocations(&self) -> bool {
        blocks_of(self.measure) == Measure::Allocations
    }

    /// Returns a name that fits into a box.
    fn name(&self, what: What) -> String {
        match what {
            What::Call(frame) => {
                self.labels.label(&self.process.tables.frames[frame.0 as usize], NAME)
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
            What::Smaller(n) if self.tree != Tree::Calls => {
                format!("… {}", counted(n.into(), "more scope"))
            }
            What::Smaller(branches) => match branches {
                1 => "1 smaller branch".to_owned(),
                n => format!("{} smaller branches", count(n.into())),
            },
        }
    }
}

/// Returns the lines about the allocations and frees of a box itself.
fn events(branch: &Node) -> Vec<String> {
    let own = &branch.own;
    let mut lines = Vec::new();
    if own[ALLOCATIONS] > 0 {
        let (bytes, blocks) = (bytes(own[ALLOCATED]), counted(own[ALLOCATIONS], "block"));
        let by_realloc = match own[REALLOCATIONS] {
            0 => String::new(),
            n => format!(", {} by realloc", count(n)),
        };
        lines.push(format!("allocated {bytes} in {blocks}{by_realloc}"));
    }
    if own[FREES] > 0 {
        let (bytes, blocks) = (bytes(own[FREED]), counted(own[FREES], "block"));
        lines.push(format!("freed {bytes} in {blocks}"));
    }
    lines
}

/// Returns the lines about a process: when it ran, and its memory as far as known.
fn of_process(process: &Process) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(counts_say(process));
    let lifetime = &process.lifetime;
    if lifetime.start_realtime_ns > 0 {
        lines.push(format!("started {}", date(lifetime.start_realtime_ns)));
    }
    lines.push(format!("{}, {}", ran(process), ending(process)));
    let sample = process.time.samples.last();
    let memory = Memory::of(process, At::End);
    let resident = memory.as_ref().map(|memory| memory.account.resident_bytes);
    let resident = resident.or(sample.map(|sample| sample.resident_bytes)).filter(|n| *n > 0);
    let of_virtual = sample.map(|sample| sample.virtual_bytes).filter(|n| *n > 0);
    let parts = [("resident", resident), ("virtual", of_virtual)];
    let parts = parts.into_iter().filter_map(|(name, n)| Some(format!("{name} {}", bytes(n?))));
    let parts: Vec<String> = parts.collect();
    lines.extend((!parts.is_empty()).then(|| parts.join(", ")));
    let recorder = memory.as_ref().and_then(|memory| memory.row("recorder"));
    lines.extend(recorder.map(|row| format!("recorder {} resident", bytes(row.resident_bytes))));
    lines
}

/// Returns whether a merged branch is too small to draw.
fn is_crumb(branch: &Node, least: u64) -> bool {
    matches!(branch.what, What::Smaller(_)) && branch.inclusive[VALUE] < least
}

/// For each branch, returns whether it is a function that allocates nothing itself and calls only
/// one other function. It is then named in the box of that function.
fn passed(branches: &[Node], tree: Tree, least: u64) -> Vec<bool> {
    if tree != Tree::Calls {
        return vec![false; branches.len()];
    }
    let mut children = vec![(0, false); branches.len()];
    for branch in branches.iter().skip(1).filter(|branch| !is_crumb(branch, least)) {
        let (count, calls) = &mut children[branch.parent as usize];
        *count += 1;
        *calls = matches!(branch.what, What::Call(_));
    }
    let only = |(branch, children): (&Node, (u32, bool))| {
        matches!(branch.what, What::Call(_)) && branch.own[VALUE] == 0 && children == (1, true)
    };
    branches.iter().zip(children).map(only).collect()
}

fn times_in_words(times: u64) -> String {
    match times {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{} times", count(n)),
    }
}

/// Returns the style of a box: shade from white to dark red, and font size, by its own share.
fn looks(branch: &Node, whole: u64) -> String {
    if let What::Smaller(_) = branch.what {
        return "style=\"rounded,dashed\", color=\"#9a9a9a\", fontcolor=\"#555555\", fontsize=9"
            .to_owned();
    }
    let share = (branch.own[VALUE] as f64 / whole.max(1) as f64).sqrt();
    let mix = |light: f64, dark: f64| (light + (dark - light) * share).round() as u8;
    let (red, green, blue) = (mix(255.0, 178.0), mix(252.0, 18.0), mix(247.0, 28.0));
    let text = if share > 0.6 { "white" } else { "#1a1a1a" };
    let size = 9.0 + 13.0 * share;
    format!(
        "fillcolor=\"#{red:02x}{green:02x}{blue:02x}\", fontcolor=\"{text}\", fontsize={size:.0}"
    )
}

/// Returns lines as a quoted string of the DOT language, with all special characters escaped.
fn quoted(lines: &[String]) -> String {
    let line = |line: &String| {
        let line = printable(line).replace('&', "&amp;");
        line.replace('\\', r"\\").replace('"', "\\\"")
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    format!("\"{}\"", lines.join("\\n"))
}
