//! Sites grouped by function, stack, module, scope, label, lane or size.

use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashMap;

use super::scopes::{self, ScopeSums};
use super::wrappers::is_wrapper;
use crate::model::{
    FrameId, LabelId, LaneId, Measure, Measures, ModuleId, Process, ScopeId, Site, SiteKind,
    SizeClass, StackId, Sum,
};

/// What a row of a report stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// A function.
    Function,
    /// A whole stack, over all lanes.
    Stack,
    /// A module.
    Module,
    /// A scope path, over all lanes.
    Scope,
    /// A label or a pool.
    Label,
    /// A lane.
    Lane,
    /// A class of usable sizes.
    Size,
}

impl GroupBy {
    /// Another name of [`GroupBy::Lane`], from before it was called `thread`.
    pub const FORMER_LANE: &str = "lane";

    /// Every way to group.
    pub const fn all() -> &'static [GroupBy] {
        use GroupBy::{Function, Label, Lane, Module, Scope, Size, Stack};
        &[Function, Stack, Module, Scope, Label, Lane, Size]
    }

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            GroupBy::Function => "function",
            GroupBy::Stack => "stack",
            GroupBy::Module => "module",
            GroupBy::Scope => "scope",
            GroupBy::Label => "label",
            GroupBy::Lane => "thread",
            GroupBy::Size => "size",
        }
    }
}

/// A name that is no way to group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownGroupBy(pub String);

impl fmt::Display for UnknownGroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown grouping `{}`; expected one of", self.0)?;
        GroupBy::all().iter().try_for_each(|by| write!(f, " {}", by.name()))
    }
}

impl std::error::Error for UnknownGroupBy {}

impl FromStr for GroupBy {
    type Err = UnknownGroupBy;

    fn from_str(name: &str) -> Result<GroupBy, UnknownGroupBy> {
        let current = if name == GroupBy::FORMER_LANE { GroupBy::Lane.name() } else { name };
        let found = GroupBy::all().iter().find(|by| by.name() == current);
        found.copied().ok_or_else(|| UnknownGroupBy(name.to_owned()))
    }
}

/// Index into a process's [`Functions`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FunctionId(pub u32);

/// The distinct functions of a process: frames of one name in one file are of one function; a frame
/// without a name is a function of its own.
#[derive(Debug)]
pub struct Functions {
    of_frame: Vec<FunctionId>,
    /// Of each function, the frame seen first.
    first_frame: Vec<FrameId>,
    /// Of each function, whether it only hands allocations on.
    wrappers: Vec<bool>,
}

impl Functions {
    /// Finds them.
    pub fn of(process: &Process) -> Functions {
        let mut ids = FxHashMap::default();
        let mut functions =
            Functions { of_frame: Vec::new(), first_frame: Vec::new(), wrappers: Vec::new() };
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let module = frame.module.map(|m| process.tables.modules[m.0 as usize].path.as_str());
            let offset = if frame.function.is_some() { 0 } else { frame.offset };
            let id = *ids.entry((frame.function.as_deref(), module, offset)).or_insert_with(|| {
                functions.first_frame.push(FrameId(index));
                functions.wrappers.push(frame.function.as_deref().is_some_and(is_wrapper));
                FunctionId((functions.first_frame.len() - 1) as u32)
            });
            functions.of_frame.push(id);
        }
        functions
    }

    /// The function of a frame.
    pub fn of_frame(&self, frame: FrameId) -> FunctionId {
        self.of_frame[frame.0 as usize]
    }

    /// A frame of a function, for its name, module and file.
    pub fn first_frame(&self, function: FunctionId) -> FrameId {
        self.first_frame[function.0 as usize]
    }

    /// The frame that a stack's allocations are put down to: the innermost of a function that does
    /// more than hand allocations on, or the innermost. None without a stack.
    pub fn allocator_of(&self, process: &Process, stack: StackId) -> Option<FrameId> {
        let more = |&frame: &FrameId| !self.wrappers[self.of_frame(frame).0 as usize];
        process.frames_of(stack).find(more).or_else(|| process.frames_of(stack).next())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.first_frame.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first_frame.is_empty()
    }
}

/// What one group is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// A function; none for allocations without a stack.
    Function(Option<FunctionId>),
    /// A stack; the root for allocations without one.
    Stack(StackId),
    /// A module; none for code without a file and allocations without a stack.
    Module(Option<ModuleId>),
    /// A scope path; the root for none.
    Scope(ScopeId),
    /// A label or a pool, and what memory it names.
    Label(Option<LabelId>, SiteKind),
    /// A lane.
    Lane(LaneId),
    /// Index into `Tables::histogram`.
    Size(u32),
}

/// Sites that have something in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// What that is.
    pub key: Key,
    /// Sums over the sites that allocate there: the innermost frame is the function's or module's,
    /// functions left out that only hand allocations on ([`Functions::allocator_of`]).
    pub own: Measures,
    /// Sums over the sites that go through it, each once however often it does.
    pub inclusive: Measures,
}

/// Groups the sites of a process, in order of key.
///
/// ```
/// use heaptide_analysis::views::aggregate::{Functions, GroupBy, Order, group, top};
/// use heaptide_analysis::model::Measure;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let functions = Functions::of(&process);
/// let groups = group(&process, &functions, GroupBy::Function);
/// for row in top(groups, Measure::AtPeakBytes, Order::Own, 10) {
///     println!("{:?} {}", row.key, row.own.at_peak_bytes);
/// }
/// ```
pub fn group(process: &Process, functions: &Functions, by: GroupBy) -> Vec<Group> {
    match by {
        GroupBy::Function => {
            let of = |frame| functions.of_frame(frame).0;
            let key = |function: Option<u32>| Key::Function(function.map(FunctionId));
            through(process, functions, functions.len(), of, key)
        }
        GroupBy::Module => {
            let nowhere = process.tables.modules.len() as u32;
            let of = |frame: FrameId| {
                process.tables.frames[frame.0 as usize].module.map_or(nowhere, |module| module.0)
            };
            let key = |m: Option<u32>| Key::Module(m.filter(|&m| m != nowhere).map(ModuleId));
            through(process, functions, process.tables.modules.len() + 1, of, key)
        }
        GroupBy::Stack => stacks(process),
        GroupBy::Scope => {
            let of = |(sums, id): (ScopeSums, u32)| Group {
                key: Key::Scope(ScopeId(id)),
                own: sums.own,
                inclusive: sums.inclusive,
            };
            scopes::sums(process, None).into_iter().zip(0..).map(of).collect()
        }
        GroupBy::Label => labels(process),
        GroupBy::Lane => {
            let lane = |(lane, id): (&crate::model::Lane, u32)| Group {
                key: Key::Lane(LaneId(id)),
                own: lane.measures,
                inclusive: lane.measures,
            };
            process.tables.lanes.iter().zip(0..).map(lane).collect()
        }
        GroupBy::Size => process.tables.histogram.iter().zip(0..).map(size).collect(),
    }
}

/// The `count` groups with the highest inclusive (`Order::Inclusive`) or own value, those with 0
/// left out.
pub fn top(mut groups: Vec<Group>, measure: Measure, order: Order, count: usize) -> Vec<Group> {
    let value = |group: &Group| match order {
        Order::Own => measure.of_sites().of(&group.own),
        Order::Inclusive => measure.of_sites().of(&group.inclusive),
    };
    groups.retain(|group| value(group) > 0);
    groups.sort_by_key(|group| (std::cmp::Reverse(value(group)), group.key));
    groups.truncate(count);
    groups
}

/// Which of a group's values orders them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// [`Group::own`].
    Own,
    /// [`Group::inclusive`].
    Inclusive,
}

/// The size classes as groups: blocks by usable size, allocated and freed.
fn size((class, id): (&SizeClass, u32)) -> Group {
    let measures = Measures {
        allocations: class.usable,
        frees: class.freed,
        live_blocks: class.usable.saturating_sub(class.freed),
        ..Measures::default()
    };
    Group { key: Key::Size(id), own: measures, inclusive: measures }
}

/// What a label names, with the blocks that came by labelling: the row is one label. The row of no
/// label has them too, as freed.
fn labels(process: &Process) -> Vec<Group> {
    let key = |site: &Site| (site.label, site.kind);
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|site| key(site));
    let group = |sites: &[&Site]| {
        let mut own = Measures::default();
        sites.iter().for_each(|site| own.add(&site.measures));
        Group { key: Key::Label(sites[0].label, sites[0].kind), own, inclusive: own }
    };
    sites.chunk_by(|a, b| key(a) == key(b)).map(group).collect()
}

fn stacks(process: &Process) -> Vec<Group> {
    let group = |(stack, own)| Group { key: Key::Stack(stack), own, inclusive: own };
    by_stack(process).map(group).collect()
}

/// Sums over scopes, labels and lanes, in order of stack.
///
/// ```
/// use heaptide_analysis::views::aggregate::by_stack;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let live: u64 = by_stack(&process).map(|row| row.1.live_bytes).sum();
/// assert_eq!(live, process.totals.live_bytes);
/// ```
pub fn by_stack(process: &Process) -> impl Iterator<Item = (StackId, Measures)> {
    // Kept as they are made they would take twice the memory of the sites.
    let mut order: Vec<(StackId, u32)> =
        process.tables.sites.iter().zip(0..).map(|(site, index)| (site.stack, index)).collect();
    order.sort_unstable();
    let mut at = 0;
    std::iter::from_fn(move || {
        let stack = order.get(at)?.0;
        let same = order[at..].iter().take_while(|row| row.0 == stack);
        let sites = same.map(|&(_, index)| &process.tables.sites[index as usize]);
        let (count, sum) = sites.fold((0, Sum::default()), |(count, mut sum), site| {
            sum.add(site);
            (count + 1, sum)
        });
        at += count;
        Some((stack, sum.total()))
    })
}

/// Groups by a thing that frames have, numbered below `count`; sites without a stack are under
/// none.
fn through(
    process: &Process,
    functions: &Functions,
    count: usize,
    of: impl Fn(FrameId) -> u32,
    key: impl Fn(Option<u32>) -> Key,
) -> Vec<Group> {
    let mut sums = vec![(Measures::default(), Measures::default()); count];
    let mut seen_in = vec![usize::MAX; count];
    let mut without = None;
    for (index, (stack, measures)) in by_stack(process).enumerate() {
        if stack == StackId(0) {
            without = Some(measures);
        }
        if let Some(frame) = functions.allocator_of(process, stack) {
            sums[of(frame) as usize].0.add(&measures);
        }
        for frame in process.frames_of(stack) {
            let thing = of(frame) as usize;
            if seen_in[thing] != index {
                seen_in[thing] = index;
                sums[thing].1.add(&measures);
            }
        }
    }
    let without = without.map(|own| Group { key: key(None), own, inclusive: own });
    let group = |((own, inclusive), thing)| Group { key: key(Some(thing)), own, inclusive };
    let groups = without.into_iter().chain(sums.into_iter().zip(0..).map(group));
    groups.filter(|group| group.inclusive != Measures::default()).collect()
}
