//! Groups sites by function, line, stack, module, scope, label, type, lane, size or call.

use std::fmt;
use std::str::FromStr;

use super::scopes::{self, ScopeSums};
use crate::attribution::{FunctionId, Owners, TypeId, Types};
use crate::model::{
    Call, FrameId, LabelId, LaneId, Measure, Measures, ModuleId, Process, ScopeId, Site, SiteKind,
    SizeClass, StackId, Sum,
};

/// The property that rows of a report are grouped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// A function.
    Function,
    /// A source line of a function.
    Line,
    /// A whole stack, over all lanes.
    Stack,
    /// A module.
    Module,
    /// A scope path, over all lanes.
    Scope,
    /// A label or a pool.
    Label,
    /// An allocated type.
    Type,
    /// A lane.
    Lane,
    /// A class of usable sizes.
    Size,
    /// A kind of function that allocates.
    Call,
}

impl GroupBy {
    /// The former name of `thread`, the name of [`GroupBy::Lane`].
    pub const FORMER_LANE: &str = "lane";

    /// Returns all groupings.
    pub const fn all() -> &'static [GroupBy] {
        use GroupBy::{Call, Function, Label, Lane, Line, Module, Scope, Size, Stack, Type};
        &[Function, Line, Stack, Module, Scope, Label, Type, Lane, Size, Call]
    }

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            GroupBy::Function => "function",
            GroupBy::Line => "line",
            GroupBy::Stack => "stack",
            GroupBy::Module => "module",
            GroupBy::Scope => "scope",
            GroupBy::Label => "label",
            GroupBy::Type => "type",
            GroupBy::Lane => "thread",
            GroupBy::Size => "size",
            GroupBy::Call => "call",
        }
    }
}

/// Error of a name that is not a grouping.
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

/// The value that the sites of a group have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// A function; `None` for allocations without a stack.
    Function(Option<FunctionId>),
    /// One of the frames with a source line of a function; `None` for allocations without a stack.
    Line(Option<FrameId>),
    /// A stack; the root for allocations without one.
    Stack(StackId),
    /// A module; `None` for code without a file and allocations without a stack.
    Module(Option<ModuleId>),
    /// A scope path; the root for no scope.
    Scope(ScopeId),
    /// A label or a pool, and the kind of its memory.
    Label(Option<LabelId>, SiteKind),
    /// A type found by [`Types`]; `None` if unknown.
    Type(Option<TypeId>),
    /// A lane.
    Lane(LaneId),
    /// Index into `Tables::histogram`.
    Size(u32),
    /// A kind of function; `None` if it was not recorded, and for memory not from the allocator.
    Call(Option<Call>),
}

/// Sums over sites with the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Their common value.
    pub key: Key,
    /// Sums over the sites whose owner is the function, at the line or in the module.
    pub own: Measures,
    /// Sums over the sites whose stack contains it, counting each site once.
    pub inclusive: Measures,
}

/// Groups the sites of a process, ordered by key.
///
/// ```
/// use heaptide_analysis::views::aggregate::{GroupBy, Order, group, top};
/// use heaptide_analysis::attribution::Owners;
/// use heaptide_analysis::model::Measure;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let owners = Owners::of(&process);
/// let groups = group(&process, &owners, GroupBy::Function);
/// for row in top(groups, Measure::AtPeakBytes, Order::Own, 10) {
///     println!("{:?} {}", row.key, row.own.at_peak_bytes);
/// }
/// ```
pub fn group(process: &Process, owners: &Owners, by: GroupBy) -> Vec<Group> {
    match by {
        GroupBy::Function => {
            let of = |frame| owners.functions.of_frame(frame).0;
            let key = |function: Option<u32>| Key::Function(function.map(FunctionId));
            through(process, owners, owners.functions.len(), of, key)
        }
        GroupBy::Line => {
            let lines = owners.functions.by_line(process);
            let of = |frame| lines.of_frame(frame).0;
            let key = |line: Option<u32>| {
                Key::Line(line.map(|id| lines.first_frame(FunctionId(id)))) //
            };
            through(process, owners, lines.len(), of, key)
        }
        GroupBy::Module => {
            let nowhere = process.tables.modules.len() as u32;
            let of = |frame: FrameId| {
                process.tables.frames[frame.0 as usize].module.map_or(nowhere, |module| module.0)
            };
            let key = |m: Option<u32>| Key::Module(m.filter(|&m| m != nowhere).map(ModuleId));
            through(process, owners, process.tables.modules.len() + 1, of, key)
        }
        GroupBy::Stack => stacks(process),
        GroupBy::Scope => by_scope(process),
        GroupBy::Label => by_label(process),
        GroupBy::Type => by_type(process, &Types::of(process, owners)),
        GroupBy::Lane => {
            let lane = |(lane, id): (&crate::model::Lane, u32)| Group {
                key: Key::Lane(LaneId(id)),
                own: lane.measures,
                inclusive: lane.measures,
            };
            process.tables.lanes.iter().zip(0..).map(lane).collect()
        }
        GroupBy::Size => process.tables.histogram.iter().zip(0..).map(size).collect(),
        GroupBy::Call => by_call(process),
    }
}

/// Returns the `count` groups with the highest inclusive (`Order::Inclusive`) or own value, without
/// groups whose value is 0.
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

/// The value by which groups are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// [`Group::own`].
    Own,
    /// [`Group::inclusive`].
    Inclusive,
}

/// Returns a size class as a group: blocks by usable size, allocated and freed.
fn size((class, id): (&SizeClass, u32)) -> Group {
    let measures = Measures {
        allocations: class.usable,
        frees: class.freed,
        live_blocks: class.usable.saturating_sub(class.freed),
        ..Measures::default()
    };
    Group { key: Key::Size(id), own: measures, inclusive: measures }
}

/// Returns groups by label. Blocks moved by labelling count in the row of their label, and also, as
/// freed, in the row without a label.
pub fn by_label(process: &Process) -> Vec<Group> {
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

/// Returns groups by scope path, in order of their ids.
pub fn by_scope(process: &Process) -> Vec<Group> {
    let of = |(sums, id): (ScopeSums, u32)| Group {
        key: Key::Scope(ScopeId(id)),
        own: sums.own,
        inclusive: sums.inclusive,
    };
    scopes::sums(process, None).into_iter().zip(0..).map(of).collect()
}

/// Returns groups by allocated type.
pub fn by_type(process: &Process, types: &Types) -> Vec<Group> {
    let mut sums = vec![Measures::default(); types.names.len() + 1];
    for (stack, measures) in by_stack(process) {
        let place = types.of_stack(stack).map_or(0, |id| id.0 as usize + 1);
        sums[place].add(&measures);
    }
    let of = |(own, place): (Measures, u32)| {
        let key = Key::Type(place.checked_sub(1).map(TypeId));
        Group { key, own, inclusive: own }
    };
    let groups = sums.into_iter().zip(0..).map(of);
    groups.filter(|group| group.own != Measures::default()).collect()
}

/// Returns groups by kind of allocating function.
pub fn by_call(process: &Process) -> Vec<Group> {
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|site| site.call);
    let group = |sites: &[&Site]| {
        let own = Sum::over(sites.iter().copied());
        Group { key: Key::Call(sites[0].call), own, inclusive: own }
    };
    sites.chunk_by(|a, b| a.call == b.call).map(group).collect()
}

/// Returns groups by stack, in order of their ids.
pub fn stacks(process: &Process) -> Vec<Group> {
    let group = |(stack, own)| Group { key: Key::Stack(stack), own, inclusive: own };
    by_stack(process).map(group).collect()
}

/// Returns sums over scopes, labels and lanes for each stack, in order of stack.
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
    // Sums are computed on the fly, because stored they would take twice the memory of the sites.
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

/// Groups by a property of frames, numbered below `count`; sites without a stack are in a group
/// without a value.
fn through(
    process: &Process,
    owners: &Owners,
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
        if let Some(frame) = owners.frame(process, stack) {
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
