//! The tables of a process, grouped for each view, and sums per group.

use std::cell::OnceCell;

use heaptide_analysis::attribution::{FunctionId, Functions, Owners};
use heaptide_analysis::model::{FrameId, LaneId, Mode, Process, ScopeId, SiteRow, StackId};
use heaptide_analysis::recording::live::Counts;
use heaptide_analysis::selection::pattern::Pattern;
use heaptide_analysis::views::memory::runtime_heap::RuntimeHeap;
use heaptide_render::shared::frames;
use heaptide_render::shared::names::{elide_middle, printable};
use heaptide_render::shared::scope_path::scope_path;
use heaptide_render::shared::sentence::{Holder, Owner, sentence_now};

use super::numbers::{Moments, Numbers};
use super::view::{Key, View};

/// Marks a missing row or group.
const NONE: u32 = u32::MAX;
/// The most characters of a row's name that comparisons include.
const NAME_MAX: usize = 4096;
/// The fewest characters of a function's name after its place.
const LABEL_MIN: usize = 8;

/// The tables of a process, with the owners of its stacks.
pub struct Tables {
    /// The process; counters of its sites are those from when the tables were read.
    pub(crate) process: Process,
    pub(crate) owners: Owners,
    /// The own heap of a language runtime, as last accounted.
    runtime: Option<RuntimeHeap>,
    /// The lines of functions, when a view has needed them.
    lines: OnceCell<Functions>,
    /// By slot, the row of its site.
    rows: Vec<SiteRow>,
    groups: [OnceCell<Groups>; View::ALL.len()],
}

/// The groups of a view.
struct Groups {
    keys: Vec<Key>,
    /// By row of the tables, its group. For functions by stack: the group of the innermost
    /// function, unless that also occurs further out in the stack.
    of: Vec<u32>,
}

/// A step of the walk through the stacks: entering a stack, or leaving an outermost occurrence of a
/// function.
enum Step {
    Enter(u32),
    Leave(u32),
}

/// The rows that count.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    /// By row of the tables.
    rows: Vec<bool>,
    /// Whether stacks newer than the tables count.
    has_new: bool,
}

impl Mask {
    /// Returns the intersection.
    pub(crate) fn and(mut self, other: &Mask) -> Mask {
        self.rows.iter_mut().zip(&other.rows).for_each(|(row, other)| *row &= other);
        self.has_new &= other.has_new;
        self
    }

    /// Returns whether a row counts.
    pub(crate) fn has(&self, row: u32) -> bool {
        self.rows[row as usize]
    }
}

impl Tables {
    /// Prepares the tables of a process. The slots of its counters are set later.
    pub(crate) fn new(process: Process) -> Tables {
        let owners = Owners::of(&process);
        let runtime = RuntimeHeap::of(&process);
        let (lines, groups) = Default::default();
        Tables { process, owners, runtime, lines, rows: Vec::new(), groups }
    }

    /// Maps each slot to the row of the site with its id.
    pub(crate) fn set_slots(&mut self, ids: impl Iterator<Item = u32>) {
        let rows = self.process.time.site_rows.as_ref();
        let row = |id| rows.map_or(SiteRow::Unknown, |rows| rows.row(id));
        self.rows = ids.map(row).collect();
    }

    /// Maps each slot to the row with the same index.
    pub(crate) fn set_slots_to_rows(&mut self) {
        self.rows = (0..self.process.tables.sites.len() as u32).map(SiteRow::At).collect();
    }

    /// Returns the view whose rows are the holders of memory: functions or, without stacks, scopes.
    pub(crate) fn holders(&self) -> View {
        if self.process.mode == Mode::Stacks { View::Owners } else { View::Scopes }
    }

    /// Returns whether a runtime has a heap of its own.
    pub(crate) fn has_runtime(&self) -> bool {
        self.runtime.is_some()
    }

    /// Returns the sentences about the largest holder among the rows of that view; `None` if
    /// nothing is live.
    pub(crate) fn sentence(&self, rows: &[(Key, Numbers)], moments: &Moments) -> Option<String> {
        let owner = |key: &Key| match key {
            Key::Owner(None) => Some(Owner::Function(None)),
            Key::Owner(Some(id)) => {
                Some(Owner::Function(Some(self.owners.functions.first_frame(*id))))
            }
            Key::Scope(scope) => Some(Owner::Scope(*scope)),
            _ => None,
        };
        let named = rows.iter().filter_map(|(key, numbers)| Some((owner(key)?, numbers)));
        let (owner, numbers) = named.max_by_key(|(_, numbers)| numbers.live_bytes)?;
        let live = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.1.live_bytes));
        let time_ns = moments.now.time_ns;
        let since = moments.mark.map(|mark| time_ns.saturating_sub(mark.time_ns));
        let holder = Holder {
            owner,
            held_bytes: numbers.live_bytes,
            live_bytes: live,
            time_ns,
            change: since.map(|ns| (numbers.growth_bytes, ns)),
        };
        let sentence = || sentence_now(&self.process, self.runtime.as_ref(), &holder);
        (holder.held_bytes > 0).then(sentence)
    }

    /// Returns a mask of all rows.
    pub(crate) fn everything(&self) -> Mask {
        Mask { rows: vec![true; self.process.tables.sites.len()], has_new: true }
    }

    /// Returns a mask of the sites that match a pattern, or that do not.
    pub(crate) fn matching(&self, pattern: &Pattern, is_wanted: bool) -> Mask {
        let hits = pattern.hits(&self.process);
        Mask { rows: hits.into_iter().map(|hit| hit == is_wanted).collect(), has_new: false }
    }

    /// Returns a mask of the sites in a group; for a function, all sites with it in their stacks.
    pub(crate) fn within(&self, key: Key) -> Mask {
        let sites = self.process.tables.sites.iter();
        let rows = match key {
            Key::Function(Some(function)) => {
                let mut has = vec![false; self.process.tables.stacks.len()];
                for (index, node) in self.process.tables.stacks.iter().enumerate().skip(1) {
                    has[index] = has[node.parent.0 as usize]
                        || self.owners.functions.of_frame(node.frame) == function;
                }
                sites.map(|site| has[site.stack.0 as usize]).collect()
            }
            Key::Function(None) => sites.map(|site| site.stack == StackId(0)).collect(),
            Key::Scope(scope) => {
                let mut is_inside = vec![false; self.process.tables.scopes.len()];
                for (index, row) in self.process.tables.scopes.iter().enumerate() {
                    let outer = index > 0 && is_inside[row.parent.0 as usize];
                    is_inside[index] = outer && scope != ScopeId(0) || index == scope.0 as usize;
                }
                sites.map(|site| is_inside[site.scope.0 as usize]).collect()
            }
            _ => {
                let groups = self.groups(key.view());
                let group = groups.keys.iter().position(|other| *other == key);
                groups.of.iter().map(|of| Some(*of as usize) == group).collect()
            }
        };
        Mask { rows, has_new: key == Key::New }
    }

    /// Returns the sums per group of a view over the rows that count, without empty groups, and the
    /// total.
    pub(crate) fn sums(
        &self,
        view: View,
        moments: &Moments,
        mask: &Mask,
    ) -> (Vec<(Key, Numbers)>, Numbers) {
        let groups = self.groups(view);
        let count = match view {
            View::Functions => self.process.tables.stacks.len(),
            _ => groups.keys.len(),
        };
        let mut sums = vec![Numbers::default(); count];
        let (mut new, mut all) = (Numbers::default(), Numbers::default());
        self.each_slot(moments, mask, |slot, row| {
            let numbers = moments.of_slot(slot, Counts::add);
            all.add(&numbers);
            match row {
                None => new.add(&numbers),
                Some(row) if view == View::Labels => {
                    let numbers = moments.of_slot(slot, Counts::add_label);
                    sums[groups.of[row as usize] as usize].add(&numbers);
                }
                Some(row) if view == View::Functions => {
                    let stack = self.process.tables.sites[row as usize].stack;
                    sums[stack.0 as usize].add(&numbers);
                }
                Some(row) => sums[groups.of[row as usize] as usize].add(&numbers),
            }
        });
        match view {
            View::Functions => sums = self.by_function(groups, sums),
            View::Scopes => self.add_to_outer_scopes(&mut sums),
            _ => {}
        }
        let rows = groups.keys.iter().copied().zip(sums).chain([(Key::New, new)]);
        (rows.filter(|(_, numbers)| !numbers.is_nothing()).collect(), all)
    }

    /// Calls `each` with every used slot that counts and its row, which is missing for stacks newer
    /// than the tables.
    pub(crate) fn each_slot(
        &self,
        moments: &Moments,
        mask: &Mask,
        mut each: impl FnMut(usize, Option<u32>),
    ) {
        for (slot, counts) in moments.now.counts.iter().enumerate() {
            if counts.allocations == 0 {
                continue;
            }
            match self.rows.get(slot) {
                Some(&SiteRow::At(row)) if mask.has(row) => each(slot, Some(row)),
                None | Some(SiteRow::Unknown) if mask.has_new => each(slot, None),
                _ => {}
            }
        }
    }

    /// Converts sums by stack to sums by function, including callees.
    fn by_function(&self, groups: &Groups, mut stacks: Vec<Numbers>) -> Vec<Numbers> {
        let mut sums = vec![Numbers::default(); groups.keys.len()];
        for index in (0..stacks.len()).rev() {
            let numbers = stacks[index];
            if numbers.is_nothing() {
                continue;
            }
            if groups.of[index] != NONE {
                sums[groups.of[index] as usize].add(&numbers);
            }
            let parent = self.process.tables.stacks[index].parent;
            if index > 0 && parent != StackId(0) {
                stacks[parent.0 as usize].add(&numbers);
            }
        }
        sums
    }

    fn add_to_outer_scopes(&self, sums: &mut [Numbers]) {
        for index in (1..sums.len()).rev() {
            let parent = self.process.tables.scopes[index].parent;
            if parent != ScopeId(0) {
                let numbers = sums[index];
                sums[parent.0 as usize].add(&numbers);
            }
        }
    }

    fn groups(&self, view: View) -> &Groups {
        self.groups[view.index()].get_or_init(|| match view {
            View::Owners => self.grouped(|site| Key::Owner(self.owner(site.stack))),
            View::Threads => self.grouped(|site| Key::Thread(site.lane)),
            View::Labels => self.grouped(|site| Key::Label(site.label, site.kind)),
            View::Stacks => self.grouped(|site| Key::Stack(site.stack)),
            View::Lines => self.grouped(|site| Key::Line(self.line(site.stack))),
            View::Scopes => {
                let scopes = 0..self.process.tables.scopes.len() as u32;
                Groups {
                    keys: scopes.map(|scope| Key::Scope(ScopeId(scope))).collect(),
                    of: self.process.tables.sites.iter().map(|site| site.scope.0).collect(),
                }
            }
            View::Functions => self.functions(),
        })
    }

    fn grouped(&self, key: impl Fn(&heaptide_analysis::model::Site) -> Key) -> Groups {
        let mut keys: Vec<Key> = self.process.tables.sites.iter().map(&key).collect();
        let of_row = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let of = |key: &Key| keys.binary_search(key).map_or(NONE, |index| index as u32);
        let of = of_row.iter().map(of).collect();
        Groups { keys, of }
    }

    /// Assigns each stack to its innermost function, unless that also occurs further out in the
    /// stack.
    fn functions(&self) -> Groups {
        let stacks = &self.process.tables.stacks;
        let functions = &self.owners.functions;
        let count = functions.len() as u32;
        let mut of = vec![NONE; stacks.len()];
        of[0] = count; // no stack
        // Depth first, tracking the functions on the current path.
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); stacks.len()];
        for (index, node) in stacks.iter().enumerate().skip(1) {
            children[node.parent.0 as usize].push(index as u32);
        }
        let mut open = vec![false; functions.len()];
        let mut way = children[0].iter().map(|&child| Step::Enter(child)).collect::<Vec<_>>();
        while let Some(step) = way.pop() {
            let index = match step {
                Step::Leave(function) => {
                    open[function as usize] = false;
                    continue;
                }
                Step::Enter(index) => index as usize,
            };
            let function = functions.of_frame(stacks[index].frame).0;
            if !open[function as usize] {
                open[function as usize] = true;
                of[index] = function;
                way.push(Step::Leave(function));
            }
            way.extend(children[index].iter().map(|&child| Step::Enter(child)));
        }
        let some = (0..count).map(|function| Key::Function(Some(FunctionId(function))));
        Groups { keys: some.chain([Key::Function(None)]).collect(), of }
    }

    /// Returns the owner of a stack.
    pub(crate) fn owner(&self, stack: StackId) -> Option<FunctionId> {
        let frame = self.owners.frame(&self.process, stack)?;
        Some(self.owners.functions.of_frame(frame))
    }

    /// Returns the first frame with the source line of a stack's owner.
    pub(crate) fn line(&self, stack: StackId) -> Option<FrameId> {
        let lines = self.lines.get_or_init(|| self.owners.functions.by_line(&self.process));
        let frame = self.owners.frame(&self.process, stack)?;
        Some(lines.first_frame(lines.of_frame(frame)))
    }

    /// Returns the name of a row, in at most `width` characters.
    pub(crate) fn name(&self, key: Key, width: usize) -> String {
        match key {
            Key::Owner(function) | Key::Function(function) => self.function(function, width),
            Key::Thread(lane) => self.thread(lane, width),
            Key::Scope(scope) => scope_path(&self.process, scope, width),
            Key::Label(label, kind) => {
                let label = label.map(|id| &self.process.tables.labels[id.0 as usize]);
                let name = label.map_or("(no label)", |label| &label.name);
                let kind = match (label.is_some_and(|label| label.pool), kind.name()) {
                    (false, "heap") => String::new(),
                    (_, kind) => format!("  ({})", kind.replace('_', " ")),
                };
                elide_middle(&format!("{}{kind}", printable(name)), width)
            }
            Key::Stack(stack) => self.stack(stack, width),
            Key::Line(frame) => self.source_line(frame, width),
            Key::New => elide_middle("(new stacks, names follow)", width),
        }
    }

    /// Returns a name of a row that is stable across updates of the tables.
    pub(crate) fn lasting_name(&self, key: Key) -> String {
        match key {
            Key::Stack(stack) => {
                let label = |frame| self.process.label(frame).into_owned();
                self.process.frames_of(stack).map(label).collect::<Vec<_>>().join("\n")
            }
            key => self.name(key, NAME_MAX),
        }
    }

    /// Returns the row of a view with such a name.
    pub(crate) fn find(&self, view: View, lasting_name: &str) -> Option<Key> {
        let keys = &self.groups(view).keys;
        keys.iter().copied().find(|key| self.lasting_name(*key) == lasting_name)
    }

    /// Formats a function: its name, and its file if there is space.
    pub(crate) fn function(&self, function: Option<FunctionId>, width: usize) -> String {
        let Some(function) = function else {
            return elide_middle("(no stack)", width);
        };
        let frame = self.owners.functions.first_frame(function);
        let frame = &self.process.tables.frames[frame.0 as usize];
        let name = frames::label(&self.process, frame, width);
        let file = frames::in_module(&self.process, frame);
        let used = name.chars().count();
        if used + file.chars().count() <= width { name + &file } else { name }
    }

    /// Formats a line: its place and its function.
    fn source_line(&self, frame: Option<FrameId>, width: usize) -> String {
        let function = frame.map(|frame| self.owners.functions.of_frame(frame));
        let frame = frame.map(|frame| &self.process.tables.frames[frame.0 as usize]);
        let Some(frame) = frame.filter(|frame| frame.file.is_some()) else {
            return self.function(function, width);
        };
        let place = frames::place(&self.process, frame);
        let room = width.saturating_sub(place.chars().count() + 1);
        if room < LABEL_MIN {
            return elide_middle(&place, width);
        }
        format!("{place} {}", frames::label(&self.process, frame, room))
    }

    fn thread(&self, lane: LaneId, width: usize) -> String {
        let lane = &self.process.tables.lanes[lane.0 as usize];
        let name = printable(&lane.name);
        let name = match (lane.threads, lane.last_tid()) {
            (0 | 1, 0) => name.into_owned(),
            (0 | 1, tid) => format!("{name}  (tid {tid})"),
            (threads, _) => format!("{name}  ({threads} threads)"),
        };
        elide_middle(&name, width)
    }

    /// Formats a stack: its owner, and as many callers as fit.
    fn stack(&self, stack: StackId, width: usize) -> String {
        if stack == StackId(0) {
            return self.function(None, width);
        }
        let mut name = String::new();
        let mut used = 0;
        for frame in self.process.frames_of(self.owners.stack(stack)) {
            let frame = &self.process.tables.frames[frame.0 as usize];
            let arrow = if name.is_empty() { "" } else { " ← " };
            let part = frames::label(&self.process, frame, width);
            let needs = part.chars().count() + arrow.chars().count();
            if used + needs > width {
                break;
            }
            (used, name) = (used + needs, name + arrow + &part);
        }
        name
    }
}
