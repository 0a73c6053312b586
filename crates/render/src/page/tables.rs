//! The tables of a process as columns: sites, and what they refer to. The page computes sums, trees
//! and differences from them.

use std::sync::Arc;

use heaptide_analysis::attribution::{FunctionId, Owners, Types, is_own};
use heaptide_analysis::collections::trie::Trie;
use heaptide_analysis::model::{
    Frame, FrameId, Lane, LaneId, Measure, Mode, Moved, Process, ScopeId, Site, SiteKind, StackId,
};
use heaptide_analysis::views::lifetimes::{Lifetimes, OfSite};
use rustc_hash::FxHashMap;

use super::columns::{Column, Columns, Texts};
use crate::shared::distinct_names::of_functions;
use crate::shared::frames;
use crate::shared::names::{elide_middle, printable};

/// The metrics of a site, in the order of the page's columns; the first five have buttons.
pub(super) const MEASURES: [Measure; 9] = [
    Measure::AtPeakBytes,
    Measure::LiveBytes,
    Measure::UsableBytes,
    Measure::Allocations,
    Measure::Temporary,
    Measure::AtPeakBlocks,
    Measure::LiveBlocks,
    Measure::RequestedBytes,
    Measure::CrossThreadFrees,
];
/// Maximum characters of a short name, and of a complete one.
const NAME: usize = 120;
const WHOLE_NAME: usize = 1500;

/// Flag of a function that is the program's own code.
const OWN: u64 = 1;
/// Flag of a frame that is inlined into its caller.
const INLINED: u64 = 1;

/// Adds the columns of lifetimes from a trace. By site: the number of its classes, the sum and the
/// maximum of lifetimes. Over all sites: the classes, as distances to the previous one of the same
/// site, and their blocks.
pub(super) fn lifetimes(columns: &mut Columns, lifetimes: &Lifetimes) {
    let sites = || lifetimes.sites.iter();
    columns.add("lifetime.classes", sites().map(|site| site.classes.len() as u64));
    columns.add("lifetime.sum_ns", sites().map(|site| site.sum_ns));
    columns.add("lifetime.max_ns", sites().map(|site| site.max_ns));
    let steps = |site: &OfSite| {
        let mut last = 0;
        let step = |&(class, _): &(u16, u64)| {
            let step = class - last;
            last = class;
            u64::from(step)
        };
        site.classes.iter().map(step).collect::<Vec<u64>>()
    };
    columns.add("lifetime.class", sites().flat_map(steps));
    let blocks = |site: &OfSite| site.classes.iter().map(|of| of.1).collect::<Vec<u64>>();
    columns.add("lifetime.blocks", sites().flat_map(blocks));
}

/// Returns the columns of a process. Indices start at 0; optional indices are one higher, with 0
/// for none. Parents and owners are stored as distances to them, which are small.
pub(super) fn columns(process: &Process, traced: Option<&Lifetimes>) -> (Vec<u8>, Vec<Column>) {
    let owners = Owners::of(process);
    let types = Types::of(process, &owners);
    let (mut columns, mut texts) = (Columns::default(), Texts::new());
    functions(process, &owners, &mut columns, &mut texts);
    frames_and_stacks(process, &owners, &types, &mut columns, &mut texts);
    names(process, &types, &mut columns, &mut texts);
    sites(process, &mut columns);
    if let Some(traced) = traced {
        lifetimes(&mut columns, traced);
    }
    columns.add_texts(&texts);
    columns.finish()
}

fn functions(process: &Process, owners: &Owners, columns: &mut Columns, texts: &mut Texts) {
    let mut rows = Vec::with_capacity(owners.functions.len());
    let short = of_functions(process, &owners.functions, NAME);
    for function in (0..owners.functions.len() as u32).map(FunctionId) {
        let id = owners.functions.first_frame(function);
        let frame = &process.tables.frames[id.0 as usize];
        let whole = elide_middle(&process.label(id), WHOLE_NAME);
        let module = elide_middle(frames::module_path(process, frame), WHOLE_NAME);
        let own = if is_own(process, frame) { OWN } else { 0 };
        rows.push([
            texts.number(&short[function.0 as usize]).into(),
            texts.number(&whole).into(),
            texts.number(&module).into(),
            own,
        ]);
    }
    let column = |column: usize| rows.iter().map(move |row: &[u64; 4]| row[column]);
    columns.add("function.short", column(0));
    columns.add("function.name", column(1));
    columns.add("function.module", column(2));
    columns.add("function.flags", column(3));
}

fn frames_and_stacks(
    process: &Process,
    owners: &Owners,
    types: &Types,
    columns: &mut Columns,
    texts: &mut Texts,
) {
    let tables = &process.tables;
    let frames = || tables.frames.iter().zip(0..);
    let mut files = FxHashMap::default();
    let mut file = |frame: &Frame| match frame.file.as_ref() {
        // Frames of a file share its name, so the pointer identifies it.
        Some(file) => *files
            .entry(Arc::as_ptr(file))
            .or_insert_with(|| texts.number(&elide_middle(file, WHOLE_NAME))),
        None => 0,
    };
    let function = |frame| owners.functions.of_frame(FrameId(frame)).0.into();
    columns.add("frame.function", frames().map(|(_, frame)| function(frame)));
    columns.add("frame.file", frames().map(|(frame, _)| file(frame).into()));
    columns.add("frame.line", frames().map(|(frame, _)| frame.line.unwrap_or(0).into()));
    columns.add("frame.flags", frames().map(|(f, _)| if f.inlined { INLINED } else { 0 }));
    // A branch is a stack by function, regardless of lines.
    let mut known = Trie::with_room(tables.stacks.len());
    let (mut branches, mut of_stack) = (1, vec![0]);
    for stack in tables.stacks.iter().skip(1) {
        let parent = of_stack[stack.parent.0 as usize];
        let branch = known.child(parent, owners.functions.of_frame(stack.frame).0);
        branches = branches.max(branch + 1);
        of_stack.push(branch);
    }
    drop(known);
    let mut next = 0;
    let branch = of_stack.iter().map(|&branch| {
        // 0 marks a new branch.
        let is_new = branch == next;
        next += u32::from(is_new);
        if is_new { 0 } else { u64::from(next - branch) }
    });
    columns.add("stack.branch", branch);
    let stacks = || tables.stacks.iter().zip(0u32..);
    columns.add("stack.parent", stacks().map(|(stack, i)| u64::from(i - stack.parent.0)));
    columns.add("stack.frame", stacks().map(|(stack, _)| stack.frame.0.into()));
    columns.add("stack.owner", stacks().map(|(_, i)| u64::from(i - owners.stack(StackId(i)).0)));
    let type_of = |i| types.of_stack(StackId(i)).map_or(0, |id| u64::from(id.0) + 1);
    columns.add("stack.type", stacks().map(|(_, i)| type_of(i)));
}

/// Adds the columns of scopes, labels, types and lanes.
fn names(process: &Process, types: &Types, columns: &mut Columns, texts: &mut Texts) {
    let tables = &process.tables;
    let mut text = |name: &str| u64::from(texts.number(&elide_middle(name, WHOLE_NAME)));
    let scopes = || tables.scopes.iter().zip(0u32..);
    columns.add("scope.parent", scopes().map(|(scope, i)| u64::from(i - scope.parent.0)));
    columns.add("scope.name", scopes().map(|(scope, _)| text(&scope.name())));
    columns.add("scope.entered", scopes().map(|(scope, _)| scope.entered));
    let peak = |peak: Option<u64>| peak.map_or(0, |bytes| bytes.saturating_add(1));
    columns.add("scope.peak_bytes", scopes().map(|(scope, _)| peak(scope.peak_bytes)));
    columns.add("label.name", tables.labels.iter().map(|label| text(&label.name)));
    columns.add("label.pool", tables.labels.iter().map(|label| label.pool.into()));
    columns.add("type.name", types.names.iter().map(|name| text(name)));
    columns.add("lane.name", tables.lanes.iter().map(|lane| text(&printable(&lane.name))));
    columns.add("lane.threads", tables.lanes.iter().map(|lane| lane.threads.into()));
}

/// Adds the columns of sites. In mode `counters`, each lane has one site with its sums.
fn sites(process: &Process, columns: &mut Columns) {
    let of_lane = |(lane, id): (&Lane, u32)| Site {
        stack: StackId(0),
        scope: ScopeId(0),
        label: None,
        lane: LaneId(id),
        size: None,
        call: None,
        kind: SiteKind::Heap,
        measures: lane.measures,
        moved: Moved::default(),
        lent_bytes: 0,
    };
    let of_lanes: Vec<Site> = match process.mode {
        Mode::Counters => process.tables.lanes.iter().zip(0..).map(of_lane).collect(),
        Mode::Stacks | Mode::Scopes => Vec::new(),
    };
    let sites = || process.tables.sites.iter().chain(&of_lanes);
    columns.add("site.stack", sites().map(|site| site.stack.0.into()));
    columns.add("site.scope", sites().map(|site| site.scope.0.into()));
    let label = |site: &Site| site.label.map_or(0, |label| u64::from(label.0) + 1);
    columns.add("site.label", sites().map(label));
    columns.add("site.lane", sites().map(|site| site.lane.0.into()));
    columns.add("site.kind", sites().map(|site| kind(site.kind)));
    columns.add("site.moved_blocks", sites().map(|site| site.moved.blocks));
    columns.add("site.moved_usable_bytes", sites().map(|site| site.moved.usable_bytes));
    columns.add("site.moved_requested_bytes", sites().map(|site| site.moved.requested_bytes));
    for measure in MEASURES {
        columns.add(measure.name(), sites().map(|site| measure.of(&site.measures)));
    }
}

/// Returns the number of a kind of memory.
fn kind(kind: SiteKind) -> u64 {
    match kind {
        SiteKind::Heap => 0,
        SiteKind::PoolChunk => 1,
        SiteKind::Mapped(_) => 2,
        SiteKind::PoolBlock => 3,
        SiteKind::Outside => 4,
        SiteKind::OutsidePoolBlock => 5,
        SiteKind::OutsidePoolChunk => 6,
        SiteKind::Device(_) => 7,
    }
}
