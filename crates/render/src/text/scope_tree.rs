//! Scopes as text: one tree over all lanes, or a tree per lane.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{LaneId, Measure, Measures, Mode, Process};
use heaptide_analysis::views::scopes::{self, ScopeSums};

use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{amount, counted, percent, short_count};
use crate::shared::threads::threads;
use crate::shared::views::{BranchOrder, Idle};
use crate::text::caption::caption;
use crate::text::screen::Screen;

/// Characters of a name.
const NAME: usize = 60;
/// Maximum levels of indentation; deeper scopes stay in the last column.
const INDENT_MAX: usize = 20;

/// Trees with at most this many scopes are shown completely by default.
const WHOLE: usize = 50;
/// Default limit in larger trees, in percent of the whole.
const LIMIT: f64 = 1.0;

/// Options of the tree.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Metric of the values.
    pub measure: Measure,
    /// Order of sibling scopes.
    pub order: BranchOrder,
    /// Maximum number of levels.
    pub depth: usize,
    /// Scopes below this share of the whole, in percent, are merged into one row; the default
    /// depends on the number of scopes.
    pub min_percent: Option<f64>,
    /// Whether scopes that were entered without an allocation or free are shown, too.
    pub idle: Idle,
    /// A tree for each lane.
    pub per_lane: bool,
}

/// Writes the tree of one process.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, process: &Process, view: &View) -> io::Result<()> {
    caption(out, process)?;
    if process.mode == Mode::Counters {
        return writeln!(out, "  recorded with --mode counters: no scopes");
    }
    let measure = view.measure.of_sites();
    let whole = measure.of(&process.totals);
    writeln!(out, "{} of {} by scope", measure.name(), amount(measure, whole))?;
    let scopes = &process.tables.scopes;
    let rows = if view.per_lane { process.tables.entered.len() } else { scopes.len() };
    let limit = view.min_percent.unwrap_or(if rows > WHOLE { LIMIT } else { 0.0 });
    let least = (whole as f64 * limit / 100.0).ceil() as u64;
    let printer = |lane: Option<LaneId>| {
        let sums = scopes::sums(process, lane);
        let entered = scopes::entered(process, lane);
        let visited = (view.idle == Idle::Shown).then_some(&*entered);
        let is_used = scopes::used(process, &sums, visited);
        Printer { process, view, measure, whole, least, sums, entered, is_used }
    };
    if !view.per_lane {
        return printer(None).print(out);
    }
    let mut lanes: Vec<_> = process.tables.lanes.iter().zip(0..).collect();
    lanes.sort_by_key(|(lane, _)| Reverse(measure.of(&lane.measures)));
    let small = lanes.partition_point(|(lane, _)| measure.of(&lane.measures) >= least);
    for (lane, id) in &lanes[..small] {
        writeln!(out, "\nthread {}, {}", printable(&lane.name), threads(lane))?;
        printer(Some(LaneId(*id))).print(out)?;
    }
    match lanes[small..] {
        [] => Ok(()),
        ref small => {
            let threads = small.iter().map(|(lane, _)| u64::from(lane.threads)).sum();
            let value = small.iter().map(|(lane, _)| measure.of(&lane.measures));
            let value = value.fold(0, |a, b| measure.combine().of(a, b));
            let threads = counted(threads, "more thread");
            writeln!(out, "\n… {threads}: {}", amount(measure, value))
        }
    }
}

struct Printer<'a> {
    process: &'a Process,
    view: &'a View,
    measure: Measure,
    whole: u64,
    least: u64,
    sums: Vec<ScopeSums>,
    entered: Vec<u64>,
    /// For each scope, whether it or a descendant has something to show.
    is_used: Vec<bool>,
}

/// A line still to print.
enum Line {
    Scope(u32),
    Smaller(Box<Smaller>),
}

/// Merged scopes below the limit, including their descendants.
struct Smaller {
    /// Number of scopes.
    scopes: u64,
    sums: Measures,
    entered: u64,
}

impl Printer<'_> {
    fn print(&self, out: &mut Screen) -> io::Result<()> {
        writeln!(out, "\n  inclusive          own                  entered    allocs  scope")?;
        let children = self.children();
        let mut todo: Vec<(Line, usize)> = Vec::new();
        self.push(&mut todo, &children, 0, 0);
        let is_empty = todo.is_empty();
        while let Some((line, depth)) = todo.pop() {
            let indent = "  ".repeat(depth.min(INDENT_MAX));
            match line {
                Line::Scope(id) => {
                    let name = self.process.tables.scopes[id as usize].name();
                    let name = format!("{indent}{}", elide_middle(&name, out.fit(NAME)));
                    self.cells(out, &self.sums[id as usize], self.entered[id as usize], &name)?;
                    self.push(&mut todo, &children, id, depth + 1);
                }
                Line::Smaller(smaller) => {
                    let Smaller { scopes, sums, entered } = *smaller;
                    let name = format!("{indent}… {}", counted(scopes, "more scope"));
                    self.cells(out, &ScopeSums { own: sums, inclusive: sums }, entered, &name)?;
                }
            }
        }
        let without = self.sums[0].own;
        if self.measure.of(&without) > 0 {
            let own = ScopeSums { own: without, inclusive: without };
            return self.cells(out, &own, 0, "(no scope)");
        }
        if is_empty { writeln!(out, "  nothing") } else { Ok(()) }
    }

    /// Returns for each scope its children that have something to show, in order of their ids.
    fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.process.tables.scopes.len()];
        for (scope, id) in self.process.tables.scopes.iter().zip(0..).skip(1) {
            if self.is_used[id as usize] {
                children[scope.parent.0 as usize].push(id);
            }
        }
        children
    }

    /// Pushes the lines of a scope's children in reverse order of output.
    fn push(&self, todo: &mut Vec<(Line, usize)>, children: &[Vec<u32>], of: u32, depth: usize) {
        let value = |id: u32| self.measure.of(&self.sums[id as usize].inclusive);
        let is_shown = |id: u32| depth < self.view.depth && value(id) >= self.least;
        let inside = &children[of as usize];
        let (mut shown, small): (Vec<u32>, Vec<u32>) = inside.iter().partition(|&&id| is_shown(id));
        if self.view.order == BranchOrder::Value {
            shown.sort_by_key(|&id| Reverse(value(id)));
        }
        todo.extend((!small.is_empty()).then(|| (self.smaller(children, small), depth)));
        todo.extend(shown.into_iter().rev().map(|id| (Line::Scope(id), depth)));
    }

    /// Merges scopes below the limit into one line.
    fn smaller(&self, children: &[Vec<u32>], mut scopes: Vec<u32>) -> Line {
        let mut smaller = Smaller { scopes: 0, sums: Measures::default(), entered: 0 };
        while let Some(id) = scopes.pop() {
            smaller.scopes += 1;
            smaller.sums.add(&self.sums[id as usize].own);
            smaller.entered = smaller.entered.saturating_add(self.entered[id as usize]);
            scopes.extend(&children[id as usize]);
        }
        Line::Smaller(Box::new(smaller))
    }

    fn cells(
        &self,
        out: &mut Screen,
        sums: &ScopeSums,
        entered: u64,
        name: &str,
    ) -> io::Result<()> {
        let show = |value: u64| match value {
            0 => (String::new(), String::new()),
            _ => (percent(value, self.whole), amount(self.measure, value)),
        };
        let (share, inclusive) = show(self.measure.of(&sums.inclusive));
        let (own_share, own) = show(self.measure.of(&sums.own));
        let entered = if entered == 0 { String::new() } else { short_count(entered) };
        let allocations = short_count(sums.own.allocations);
        writeln!(
            out,
            "  {share:>6} {inclusive:>10}  {own_share:>6} {own:>10} {entered:>9} \
             {allocations:>9}  {name}"
        )
    }
}
