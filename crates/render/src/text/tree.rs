//! The call tree as text: inclusive and own value of each function.

use std::io::{self, Write};

use heaptide_analysis::attribution::{Functions, Owners, is_own};
use heaptide_analysis::model::{Measure, Mode, Process};
use heaptide_analysis::quantity::count;
use heaptide_analysis::views::tree::{Recursion, Tree, TreeNode};

use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::quantity::{amount, percent};
use crate::shared::views::BranchOrder;
use crate::text::caption::caption;
use crate::text::screen::{Screen, Style, visible};

/// Width of the name column, including indentation.
const WIDTH: usize = 100;
/// Minimum characters of a name, regardless of depth.
const NAME_MIN: usize = 30;
/// The same minimum on a terminal.
const NAME_NARROW: usize = 16;
/// Characters before the guides of a line.
const VALUES: usize = 40;
/// Maximum indentation in characters; deeper forks are not indented further.
const INDENT_MAX: usize = 40;

/// Options of the tree.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Metric of the values.
    pub measure: Measure,
    /// Whether nodes are lines of functions, not whole functions.
    pub by_line: bool,
    /// Whether the tree starts at allocating functions, with their callers below.
    pub bottom_up: bool,
    /// Order of sibling branches.
    pub order: BranchOrder,
    /// Maximum number of levels.
    pub depth: usize,
    /// Branches below this share of the whole, in percent, are omitted.
    pub min_percent: f64,
}

/// Writes the tree of one process.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, process: &Process, view: &View) -> io::Result<()> {
    caption(out, process)?;
    if process.mode == Mode::Counters {
        return writeln!(out, "  recorded with --mode counters: no stacks, so no tree");
    }
    let owners = Owners::of(process);
    let owners = if view.by_line { owners.by_line(process) } else { owners };
    let functions = &owners.functions;
    let measure = view.measure.of_sites();
    let whole = measure.of(&process.totals);
    let least = ((whole as f64 * view.min_percent / 100.0).ceil() as u64).max(1);
    let tree = if !view.bottom_up {
        Tree::top_down(process, functions, measure, Recursion::Fold)
    } else {
        Tree::bottom_up(process, &owners, measure, Recursion::Fold, least)
    };
    let way = if view.bottom_up {
        "allocating functions first, callers below"
    } else {
        "callers above callees"
    };
    writeln!(out, "{} of {}, {way}\n", measure.name(), amount(measure, whole))?;
    let nodes = if view.by_line { "line" } else { "function" };
    let own = if view.bottom_up { "   " } else { "own" };
    let heading = format!("  inclusive               {own}               {nodes}");
    writeln!(out, "{}", Style::Heading.of(heading))?;
    let shown = tree.nodes.iter().filter(|node| node.inclusive >= least);
    let shown = shown.filter_map(|node| node.function).map(|id| functions.first_frame(id));
    let labels = Labels::of_ids(process, shown);
    let printer = Printer { process, labels, functions, tree: &tree, view, whole, least };
    printer.print(out)
}

struct Printer<'a> {
    process: &'a Process,
    labels: Labels<'a>,
    functions: &'a Functions,
    tree: &'a Tree,
    view: &'a View,
    whole: u64,
    least: u64,
}

/// A node still to print, with the guides before it.
struct Todo {
    node: u32,
    depth: usize,
    guides: String,
    branch: Branch,
}

/// Number and value of branches below the limit, excluding their descendants.
#[derive(Clone, Copy, Default)]
struct Smaller {
    branches: u64,
    value: u64,
}

/// The relation of a node to its siblings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branch {
    /// An only child, which is not indented further.
    Only,
    /// A child with further siblings below it.
    Fork,
    /// The last of several children.
    Last,
}

impl Printer<'_> {
    fn print(&self, out: &mut Screen) -> io::Result<()> {
        let root = &self.tree.nodes[0];
        if root.inclusive == 0 {
            return writeln!(out, "  nothing");
        }
        let indent_max = if out.is_limited() {
            INDENT_MAX.min(out.columns().saturating_sub(VALUES + NAME_NARROW))
        } else {
            INDENT_MAX
        };
        let (mut todo, mut smaller) = (Vec::new(), Smaller::default());
        self.push_children(&mut todo, &mut smaller, (0, 0), String::new());
        while let Some(next) = todo.pop() {
            self.line(out, &next)?;
            let deep = next.guides.chars().count() >= indent_max;
            let under = match next.branch {
                Branch::Fork if !deep => next.guides + "│ ",
                Branch::Last if !deep => next.guides + "  ",
                _ => next.guides,
            };
            if next.depth < self.view.depth {
                self.push_children(&mut todo, &mut smaller, (next.node, next.depth), under);
            }
        }
        if smaller.branches > 0 {
            let plural = if smaller.branches == 1 { "" } else { "es" };
            let name = format!("… {} smaller branch{plural}", count(smaller.branches));
            self.row(out, smaller.value, 0, &name, "")?;
        }
        if root.own >= self.least {
            let name = if self.view.bottom_up { "(no stack, or too small)" } else { "(no stack)" };
            let own = if self.view.bottom_up { 0 } else { root.own };
            self.row(out, root.own, own, name, "")?;
        }
        Ok(())
    }

    /// Pushes the children in reverse order of output.
    fn push_children(
        &self,
        todo: &mut Vec<Todo>,
        smaller: &mut Smaller,
        (node, depth): (u32, usize),
        guides: String,
    ) {
        let value = |node: u32| self.tree.nodes[node as usize].inclusive;
        let (mut children, small): (Vec<u32>, Vec<u32>) =
            self.tree.children(node).iter().partition(|&&node| value(node) >= self.least);
        let combine = self.tree.measure.combine();
        for node in small.into_iter().filter(|&node| value(node) > 0) {
            smaller.branches += 1;
            smaller.value = combine.of(smaller.value, value(node));
        }
        if self.view.order == BranchOrder::First {
            children.sort_unstable(); // numbered by when stacks were first seen
        }
        let count = children.len();
        for (i, &node) in children.iter().enumerate().rev() {
            let branch = match i + 1 == count {
                _ if count == 1 => Branch::Only,
                true => Branch::Last,
                false => Branch::Fork,
            };
            todo.push(Todo { node, depth: depth + 1, guides: guides.clone(), branch });
        }
    }

    fn line(&self, out: &mut Screen, at: &Todo) -> io::Result<()> {
        let TreeNode { function, own, inclusive, .. } = self.tree.nodes[at.node as usize];
        let Some(function) = function else {
            return Ok(());
        };
        let frame = &self.process.tables.frames[self.functions.first_frame(function).0 as usize];
        let branch = match at.branch {
            Branch::Only => "",
            Branch::Fork => "├─",
            Branch::Last => "└─",
        };
        let used = at.guides.chars().count() + branch.chars().count();
        let least = if out.is_limited() { NAME_NARROW } else { NAME_MIN };
        let source = match frame.file {
            Some(_) if self.view.by_line => frames::place(self.process, frame) + " ",
            _ => String::new(),
        };
        let used = used + visible(&source);
        let width = out.fit(WIDTH).saturating_sub(used + VALUES).max(least);
        let label = self.labels.label(frame, width);
        let mut place = frames::in_module(self.process, frame);
        if !source.is_empty() && frame.module.is_none() {
            place.clear(); // the source file
        }
        if out.is_limited() && VALUES + used + visible(&label) + visible(&place) > out.columns() {
            place.clear();
        }
        let label = if is_own(self.process, frame) { Style::Own.of(label) } else { label };
        let place = Style::Minor.of(place);
        // Of a function that allocates, the values are its own; its callers have none.
        let own = if self.view.bottom_up { 0 } else { own };
        self.row(out, inclusive, own, &format!("{}{branch}{source}{label}", at.guides), &place)
    }

    fn row(
        &self,
        out: &mut Screen,
        incl: u64,
        own: u64,
        name: &str,
        place: &str,
    ) -> io::Result<()> {
        let show = |value: u64| match value {
            0 => (String::new(), String::new()),
            _ => (percent(value, self.whole), amount(self.tree.measure, value)),
        };
        let ((share, inclusive), (own_share, own)) = (show(incl), show(own));
        writeln!(out, "  {share:>6} {inclusive:>10}  {own_share:>6} {own:>10}  {name}{place}")
    }
}
