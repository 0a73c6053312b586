//! Which live blocks of a program are lost, and what keeps the others.

use std::io::{self, Write};

use heaptide_analysis::model::retained::{Declared, Kept, Node, Retained, Root, RootKind, State};
use heaptide_analysis::model::{FrameId, Process};
use heaptide_analysis::views::retained::OfSites;

use crate::shared::command_line::command_line;
use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::moment::Moment;
use crate::shared::names::elide_middle;
use crate::shared::quantity::{count, counted, duration, percent};
use crate::shared::sentence::capitalised;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::{Screen, Style};

/// Default number of rows of each table.
const ROWS: usize = 10;
/// Owners that are shown for each keeper.
const OWNERS: usize = 3;
/// Maximum characters of a name.
const NAME: usize = 60;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The number of rows of each table, if given.
    pub top: Option<usize>,
    /// When the program was searched.
    pub moment: Moment,
}

/// Returns a line with the name of its file.
pub(super) fn place_of(Declared { file, line }: &Declared) -> String {
    format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
}

/// Describes roots that lead to blocks that another one keeps.
fn also(kind: RootKind) -> &'static str {
    match kind {
        RootKind::Variable | RootKind::ThreadLocal => "; variables lead to it, too",
        RootKind::Mapping => "; mapped memory leads to it, too",
        RootKind::Stack => "; a stack leads to it, too",
        RootKind::Registers => "; registers lead to it, too",
        RootKind::Unrecorded => "; memory of the allocator leads to it, too",
        RootKind::DeadStack => "; the stack of an ended thread leads to it, too",
    }
}

/// Describes a state in the table of states.
fn says(state: State) -> &'static str {
    match state {
        State::Reachable => "reachable",
        State::OnlyFromStack => "reachable only from a stack",
        State::OnlyFromMapping => "reachable only from memory that the program mapped",
        State::OnlyFromUnrecorded => {
            "reachable only from blocks that were not recorded, or free ones"
        }
        State::OnlyByInterior => "reachable only by pointers to the inside of blocks",
        State::OnlyFromDeadStack => "reachable only from the stack of a thread that has ended",
        State::OnlyByCollector => "Python objects that only their garbage collector lists",
        State::Lost => "lost",
        State::LostIndirectly => "lost, reachable only from lost blocks",
    }
}

/// Writes the page. The process must have the rows of its sites.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    retained: &Retained,
    view: View,
) -> io::Result<()> {
    let sites = OfSites::of(process);
    let page = Page { process, retained, sites, rows: view.top.unwrap_or(ROWS) };
    page.sentences(out)?;
    page.heading(out, view)?;
    page.states(out)?;
    page.keepers(out)?;
    page.lost(out)?;
    page.paths(out)
}

/// Returns whether the name of a keeper is in the plural.
fn is_plural(retained: &Retained, node: Node) -> bool {
    match node {
        Node::Root(root) => {
            let root = &retained.roots[root];
            let is_named = root.kind == RootKind::Variable && !root.name.starts_with("variables ");
            !is_named && root.name.split(' ').any(|word| matches!(word, "variables" | "registers"))
        }
        Node::Blocks { .. } => false,
    }
}

/// Returns whether a part is at least half of the whole.
pub(super) fn is_most(part: u64, whole: u64) -> bool {
    part >= whole - whole / 2
}

struct Page<'a> {
    process: &'a Process,
    retained: &'a Retained,
    sites: OfSites<'a>,
    rows: usize,
}

/// The columns of all tables.
fn columns(title: &'static str) -> Columns<4> {
    Columns([right(7, "share"), right(10, "bytes"), right(10, "blocks"), last(title)])
}

impl Page<'_> {
    /// Writes what keeps most, and what is lost.
    fn sentences(&self, out: &mut Screen) -> io::Result<()> {
        if self.retained.all.blocks == 0 {
            return Ok(());
        }
        if let Some(keeper) = self.retained.keepers.first() {
            let owners = self.sites.by_frame(keeper.sites.iter().copied());
            let most = owners.first().map_or_else(String::new, |(frame, kept)| {
                let blocks = counted(kept.blocks, "block");
                let part = match (owners.len(), is_most(kept.bytes, keeper.kept.bytes)) {
                    (1, _) => "",
                    (_, true) => "mostly ",
                    (_, false) => "partly ",
                };
                format!(": {part}{blocks} by {}", self.named(*frame))
            });
            let (size, share) =
                (out.bytes(keeper.kept.bytes), percent(keeper.kept.bytes, self.retained.all.bytes));
            let by = match keeper.node {
                Node::Root(root) => self.root_named(&self.retained.roots[root]),
                Node::Blocks { site, .. } => {
                    format!("A block by {}", self.named(self.sites.frame(site)))
                }
            };
            let keep = if is_plural(self.retained, keeper.node) { "keep" } else { "keeps" };
            writeln!(out, "{by} {keep} {size}, {share} of live memory{most}.")?;
        }
        let lost = self.of_states(&[State::Lost, State::LostIndirectly]);
        let is_partial = self.retained.states[State::OnlyFromUnrecorded as usize].blocks > 0;
        if lost.is_empty() && !is_partial {
            writeln!(out, "No block is lost.")?;
        }
        if let Some((frame, first)) = lost.first() {
            let all = self.retained.lost();
            let (size, blocks) = (out.bytes(all.bytes), counted(all.blocks, "block"));
            let most = if is_most(first.bytes, all.bytes) { "most" } else { "partly" };
            writeln!(out, "{size} in {blocks} are lost, {most} by {}.", self.named(*frame))?;
        }
        let cycles = self.of_state(State::OnlyByCollector);
        if let Some((frame, first)) = cycles.first() {
            let all = self.retained.states[State::OnlyByCollector as usize];
            let (size, objects) = (out.bytes(all.bytes), counted(all.blocks, "Python object"));
            let most = if is_most(first.bytes, all.bytes) { "most" } else { "partly" };
            let by = self.named(*frame);
            writeln!(
                out,
                "{size} in {objects} are kept only by reference cycles, {most} by {by}."
            )?;
        }
        writeln!(out)
    }

    fn of_state(&self, state: State) -> Vec<(Option<FrameId>, Kept)> {
        self.of_states(&[state])
    }

    fn of_states(&self, states: &[State]) -> Vec<(Option<FrameId>, Kept)> {
        let of_state = self.retained.sites.iter().filter(|row| states.contains(&row.state));
        self.sites.by_frame(of_state.map(|row| (row.site, row.kept)))
    }

    /// Names a root at the start of a sentence.
    fn root_named(&self, root: &Root) -> String {
        let name = elide_middle(&root.name, NAME);
        match (&root.declared, &root.module) {
            (Some(declared), _) => format!("`{name}` ({})", place_of(declared)),
            (None, Some(module)) if root.kind == RootKind::Variable => {
                format!("`{name}` [{module}]")
            }
            (None, Some(module)) => format!("{} [{module}]", capitalised(root.name.clone())),
            (None, None) => capitalised(root.name.clone()),
        }
    }

    /// Names a function within a sentence.
    fn named(&self, frame: Option<FrameId>) -> String {
        let Some(frame) = frame else { return "code without a stack".to_owned() };
        let labels = Labels::of_ids(self.process, [frame]);
        let frame = &self.process.tables.frames[frame.0 as usize];
        let place = frames::place(self.process, frame);
        let name = labels.label(frame, NAME);
        if place.is_empty() { format!("`{name}`") } else { format!("`{name}` ({place})") }
    }

    fn heading(&self, out: &mut Screen, view: View) -> io::Result<()> {
        let Retained { all, unread, .. } = self.retained;
        let how = if self.retained.is_copy { "to copy them" } else { "while they were read" };
        let when = match view.moment {
            Moment::Running { stopped_ns } => {
                format!("; its threads were stopped for {} {how}", duration(stopped_ns))
            }
            Moment::Snapshot { number, time_ns } => {
                format!(" in snapshot {number}, after {}", duration(time_ns))
            }
            Moment::End { time_ns, before_python_ended: true, .. } => {
                format!(" when Python began to end, after {}", duration(time_ns))
            }
            // The search itself is not part of the program's time.
            Moment::End { time_ns, .. } => {
                let end_ns = time_ns.min(self.process.lifetime.duration_ns);
                format!(" at exit, after {}", duration(end_ns))
            }
        };
        writeln!(
            out,
            "{}: {} in {} live{when}",
            command_line(self.process, out.fit(NAME)),
            out.bytes(all.bytes),
            counted(all.blocks, "block"),
        )?;
        if let Moment::End { others: others @ 1.., .. } = view.moment {
            let others = counted(others, "other process image");
            writeln!(out, "  note     {others} also searched; --process PID shows another one")?;
        }
        if self.retained.estimated > 0 {
            let blocks = counted(self.retained.estimated, "block");
            writeln!(out, "  sizes    {blocks} with the average size of their stack")?;
        }
        if self.retained.busy > 0 {
            let threads = counted(self.retained.busy as u64, "thread");
            let blocks = if self.retained.busy == 1 { "its block" } else { "their blocks" };
            writeln!(
                out,
                "  note     {threads} allocated at that moment; {blocks} may be missing"
            )?;
        }
        if !self.process.knows_all_blocks() {
            writeln!(
                out,
                "  missing  blocks from before the recording, from before a fork, or from a time when \
                 it was off: they are in no state"
            )?;
        }
        let missing = unread.blocks + unread.roots;
        if missing > 0 {
            let bytes = out.bytes(missing);
            writeln!(
                out,
                "  missing  {bytes} of memory could not be read; what only they refer to counts as lost"
            )?;
        }
        Ok(())
    }

    fn row(&self, out: &mut Screen, kept: Kept, what: String) -> io::Result<()> {
        let share = percent(kept.bytes, self.retained.all.bytes);
        let cells = [share, out.bytes(kept.bytes), count(kept.blocks), what];
        columns("").row(out, cells)
    }

    fn states(&self, out: &mut Screen) -> io::Result<()> {
        if self.retained.all.blocks == 0 {
            return Ok(());
        }
        writeln!(out)?;
        columns("state").heading(out)?;
        let each = State::ALL.into_iter().zip(self.retained.states);
        for (state, kept) in each.filter(|(_, kept)| kept.blocks > 0) {
            self.row(out, kept, says(state).to_owned())?;
        }
        Ok(())
    }

    fn keepers(&self, out: &mut Screen) -> io::Result<()> {
        let keepers = &self.retained.keepers;
        if keepers.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nKept: what would be free without it")?;
        columns("kept by, with the functions that allocated most of it").heading(out)?;
        for keeper in keepers.iter().take(self.rows) {
            let also = keeper.also_from.map_or(String::new(), |kind| Style::Minor.of(also(kind)));
            let what = format!("{}{also}", self.node(out, keeper.node));
            self.row(out, keeper.kept, what)?;
            let owners = self.sites.by_frame(keeper.sites.iter().copied());
            for (frame, kept) in owners.iter().take(OWNERS) {
                let what =
                    format!("  {} by {}", counted(kept.blocks, "block"), self.owner(out, *frame));
                let cells = [String::new(), out.bytes(kept.bytes), String::new(), what];
                columns("").row(out, cells)?;
            }
        }
        if let Some(rest) = keepers.get(self.rows..).filter(|rest| !rest.is_empty()) {
            let mut sum = Kept::default();
            rest.iter().for_each(|keeper| sum.plus(keeper.kept));
            let what = format!("{} more, which `--top` shows", count(rest.len() as u64));
            self.row(out, sum, what)?;
        }
        if self.retained.shared.blocks > 0 {
            self.row(out, self.retained.shared, "several of these together".to_owned())?;
        }
        Ok(())
    }

    fn lost(&self, out: &mut Screen) -> io::Result<()> {
        for (state, title) in [
            (State::Lost, "Lost: no pointer leads to these blocks"),
            (State::LostIndirectly, "Lost with them: only lost blocks lead to these"),
        ] {
            let rows = self.of_state(state);
            if rows.is_empty() {
                continue;
            }
            writeln!(out, "\n{title}")?;
            columns("function").heading(out)?;
            for (frame, kept) in rows.iter().take(self.rows) {
                self.row(out, *kept, self.owner(out, *frame))?;
            }
        }
        Ok(())
    }

    /// Writes a path to blocks of the functions with the most bytes that can be reached by way of
    /// other blocks.
    fn paths(&self, out: &mut Screen) -> io::Result<()> {
        let mut seen = Vec::new();
        for row in self.retained.sites.iter().filter(|row| row.path.len() > 1) {
            let frame = self.sites.frame(row.site);
            if seen.len() == self.rows || seen.contains(&frame) {
                continue;
            }
            if seen.is_empty() {
                writeln!(out, "\nPaths: a shortest one to a block of each of these functions")?;
                columns("block, and what leads to it").heading(out)?;
            }
            seen.push(frame);
            self.row(out, row.kept, self.owner(out, frame))?;
            for node in row.path.iter().rev() {
                let what = format!("  ← {}", self.node(out, *node));
                columns("").row(out, [String::new(), String::new(), String::new(), what])?;
            }
        }
        Ok(())
    }

    fn node(&self, out: &Screen, node: Node) -> String {
        match node {
            Node::Root(root) => self.root(out, &self.retained.roots[root]),
            Node::Blocks { site, count: 1 } => {
                format!("a block by {}", self.owner(out, self.sites.frame(site)))
            }
            Node::Blocks { site, count: n } => {
                format!("{} by {}", counted(n, "block"), self.owner(out, self.sites.frame(site)))
            }
        }
    }

    fn root(&self, out: &Screen, root: &Root) -> String {
        let name = elide_middle(&root.name, out.fit(NAME));
        let is_named = root.kind == RootKind::Variable;
        let name = if is_named { Style::Own.of(name) } else { name };
        let place = match (&root.declared, &root.module) {
            (Some(declared), _) => place_of(declared),
            (None, Some(module)) => format!("[{module}]"),
            (None, None) => return name,
        };
        format!("{name}  {}", Style::Minor.of(place))
    }

    fn owner(&self, out: &Screen, frame: Option<FrameId>) -> String {
        let Some(frame) = frame else { return "code without a stack".to_owned() };
        let labels = Labels::of_ids(self.process, [frame]);
        let frame = &self.process.tables.frames[frame.0 as usize];
        let place = frames::place(self.process, frame);
        let name = labels.label(frame, out.fit(NAME));
        if place.is_empty() { name } else { format!("{name}  {}", Style::Minor.of(place)) }
    }
}
