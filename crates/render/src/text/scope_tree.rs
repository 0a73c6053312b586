//! Scopes as text: the tree, over all lanes or one a lane; and the names of paths.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{LaneId, Measure, Mode, Process};
use heaptide_analysis::views::scopes::{self, ScopeSums};

use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{amount, counted, percent, short_count};
use crate::text::caption::caption;
use crate::text::screen::Screen;

/// Characters of a name.
const NAME: usize = 60;
/// Levels that are indented; what is deeper stays in that column.
const INDENT_MAX: usize = 20;

/// What the tree shows.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The measure of the values.
    pub measure: Measure,
    /// Levels at most.
    pub depth: usize,
    /// Branches below this share of the whole, in percent, are left out.
    pub min_percent: f64,
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
    let least = ((whole as f64 * view.min_percent / 100.0).ceil() as u64).max(1);
    let mut entered = vec![0u64; process.tables.scopes.len()];
    if !view.per_lane {
        process.tables.scopes.iter().zip(&mut entered).for_each(|(scope, n)| *n = scope.entered);
        let sums = scopes::sums(process, None);
        return Printer { process, view, measure, whole, least, sums, entered }.print(out);
    }
    let mut lanes: Vec<_> = process.tables.lanes.iter().zip(0..).collect();
    lanes.sort_by_key(|(lane, _)| Reverse(measure.of(&lane.measures)));
    for (lane, id) in lanes {
        let lane_id = LaneId(id);
        if measure.of(&lane.measures) < least {
            continue;
        }
        writeln!(
            out,
            "\nthread {}, {}",
            printable(&lane.name),
            counted(lane.threads.into(), "thread")
        )?;
        let mut entered = vec![0u64; process.tables.scopes.len()];
        for row in process.tables.entered.iter().filter(|row| row.lane == lane_id) {
            let times = &mut entered[row.scope.0 as usize];
            *times = times.saturating_add(row.times);
        }
        let sums = scopes::sums(process, Some(lane_id));
        Printer { process, view, measure, whole, least, sums, entered }.print(out)?;
    }
    Ok(())
}

struct Printer<'a> {
    process: &'a Process,
    view: &'a View,
    measure: Measure,
    whole: u64,
    least: u64,
    sums: Vec<ScopeSums>,
    entered: Vec<u64>,
}

impl Printer<'_> {
    fn print(&self, out: &mut Screen) -> io::Result<()> {
        writeln!(out, "\n  inclusive          own                  entered    allocs  scope")?;
        let children = self.children();
        let mut todo: Vec<(u32, usize)> = Vec::new();
        let push = |todo: &mut Vec<(u32, usize)>, of: u32, depth: usize| {
            todo.extend(children[of as usize].iter().map(|&child| (child, depth)));
        };
        push(&mut todo, 0, 0);
        let mut shown = 0;
        while let Some((id, depth)) = todo.pop() {
            let indent = "  ".repeat(depth.min(INDENT_MAX));
            let name = elide_middle(&self.process.tables.scopes[id as usize].name(), out.fit(NAME));
            self.row(out, id, &format!("{indent}{name}"))?;
            shown += 1;
            if depth + 1 < self.view.depth {
                push(&mut todo, id, depth + 1);
            }
        }
        let without = self.measure.of(&self.sums[0].own);
        if without >= self.least {
            let own = ScopeSums { own: self.sums[0].own, inclusive: self.sums[0].own };
            return self.cells(out, &own, 0, "(no scope)");
        }
        if shown == 0 { writeln!(out, "  nothing") } else { Ok(()) }
    }

    /// Of every scope, those below it that are large enough, smallest first.
    fn children(&self) -> Vec<Vec<u32>> {
        let value = |id: u32| self.measure.of(&self.sums[id as usize].inclusive);
        let mut children = vec![Vec::new(); self.process.tables.scopes.len()];
        for (scope, id) in self.process.tables.scopes.iter().zip(0..).skip(1) {
            if value(id) >= self.least {
                children[scope.parent.0 as usize].push(id);
            }
        }
        children.iter_mut().for_each(|ids| ids.sort_by_key(|&id| (value(id), Reverse(id))));
        children
    }

    fn row(&self, out: &mut Screen, id: u32, name: &str) -> io::Result<()> {
        self.cells(out, &self.sums[id as usize], self.entered[id as usize], name)
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
