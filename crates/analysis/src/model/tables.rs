//! The tables of a process: sites, and the stacks, scopes, labels and lanes that each refers to.

use std::sync::Arc;

use heaptide_format::Call;

use super::ids::{FrameId, LabelId, LaneId, ModuleId, ScopeId, StackId};
use super::mapping::Mapping;
use super::measure::Measures;

/// The tables of a process: sites, what they refer to, and counts by size class.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The facts.
    pub sites: Vec<Site>,
    /// Lanes in order of creation.
    pub lanes: Vec<Lane>,
    /// Lanes that had threads at the same time, at most.
    pub lanes_at_once: u32,
    /// Distinct frames; inlined ones are frames of their own.
    pub frames: Vec<Frame>,
    /// The stack tree: parents come before children; entry 0 is the root and has no frame.
    pub stacks: Vec<StackNode>,
    /// Files that stacks go through.
    pub modules: Vec<Module>,
    /// Scope paths, merged over the lanes: parents come before children; entry 0 is no scope.
    pub scopes: Vec<Scope>,
    /// How often each lane entered each scope path.
    pub entered: Vec<Entered>,
    /// Distinct labels, and pools.
    pub labels: Vec<Label>,
    /// What labels say of the memory that has them, in order of first use.
    pub shapes: Vec<Shape>,
    /// Counts by size class; only classes that occur.
    pub histogram: Vec<SizeClass>,
}

/// The counters of one stack, scope path, label and lane. While tables are built, its stack is
/// known by another type `S`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site<S = StackId> {
    /// The stack's innermost frame.
    pub stack: S,
    /// The scope path.
    pub scope: ScopeId,
    /// The label, or the pool.
    pub label: Option<LabelId>,
    /// The allocating lane.
    pub lane: LaneId,
    /// Bytes requested for each block, where sizes were recorded as a dimension (`--by-size`).
    pub size: Option<u64>,
    /// The kind of function that allocated, where it was recorded as a dimension (`--by-call`).
    pub call: Option<Call>,
    /// What memory it is.
    pub kind: SiteKind,
    /// Its measures. A block that was labelled was freed in the site it was allocated at and
    /// allocated in the one with the label: `moved` says what sums are to leave out.
    pub measures: Measures,
    /// What came by labelling.
    pub moved: Moved,
    /// Of a pool's chunks: bytes lent to the pool's blocks now. Neither freed nor live here.
    pub lent_bytes: u64,
}

/// What came to a site by labelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Blocks.
    pub blocks: u64,
    /// Their usable bytes.
    pub usable_bytes: u64,
    /// What they were said to hold, which their site has as requested.
    pub requested_bytes: u64,
}

/// What memory a site counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum SiteKind {
    /// Blocks from the allocator.
    #[default]
    Heap,
    /// Labelled memory that is not from the allocator. In no total.
    Outside,
    /// Blocks of a pool whose chunks are from the allocator. Their live bytes are part of the
    /// totals, in the place of the chunk's; their events are in no total.
    PoolBlock,
    /// Blocks of a pool in memory that is not from the allocator. In no total.
    OutsidePoolBlock,
    /// Chunks of a pool, from the allocator; what is live here is idle pool space.
    PoolChunk,
    /// Chunks of a pool that are not from the allocator; likewise. In no total.
    OutsidePoolChunk,
    /// Mappings. Only where they were selected: then they are part of the totals.
    Mapped(Mapping),
}

impl SiteKind {
    /// What a mapping is; none of other memory.
    pub const fn mapping(self) -> Option<Mapping> {
        match self {
            SiteKind::Mapped(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// Whether its live bytes are part of the totals.
    pub const fn is_in_totals(self) -> bool {
        match self {
            SiteKind::Heap | SiteKind::Mapped(_) | SiteKind::PoolBlock | SiteKind::PoolChunk => {
                true
            }
            SiteKind::Outside | SiteKind::OutsidePoolBlock | SiteKind::OutsidePoolChunk => false,
        }
    }

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SiteKind::Heap => "heap",
            SiteKind::Outside => "outside",
            SiteKind::PoolBlock => "pool_block",
            SiteKind::OutsidePoolBlock => "outside_pool_block",
            SiteKind::PoolChunk => "pool_chunk",
            SiteKind::OutsidePoolChunk => "outside_pool_chunk",
            SiteKind::Mapped(_) => "mapped",
        }
    }
}

/// A lane and the sums over its sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Its threads' name.
    pub name: String,
    /// Threads that used it.
    pub threads: u32,
    /// Their numbers, as the system has them, in order, as far as they are known: of a lane that
    /// very many threads used, the last one may follow those that came first.
    pub tids: Vec<u32>,
    /// Sums over the lane's sites, with `frees_here` of the lane.
    pub measures: Measures,
}

impl Lane {
    /// The number of the last thread; 0 if it is not known.
    pub fn last_tid(&self) -> u32 {
        self.tids.last().copied().unwrap_or(0)
    }
}

/// A frame as a person reads it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Demangled name, whole; none if nothing names it.
    pub function: Option<Arc<str>>,
    /// The file it is in; none for code without a file.
    pub module: Option<ModuleId>,
    /// Address in the module (link-time), of the call itself.
    pub offset: u64,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
    /// Whether it was inlined into the frame before it.
    pub inlined: bool,
    /// What code it is of.
    pub code: CodeKind,
}

impl Frame {
    /// A frame with this name and without an address, for what is no function.
    pub fn named(function: impl Into<Arc<str>>) -> Frame {
        Frame {
            function: Some(function.into()),
            module: None,
            offset: 0,
            file: None,
            line: None,
            inlined: false,
            code: CodeKind::Native,
        }
    }
}

/// What code a frame is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum CodeKind {
    /// Machine code, or what stands for frames.
    #[default]
    Native,
    /// Machine code of an interpreter that executes the frames that follow.
    Interpreter,
    /// A function of Python.
    Python,
}

/// A frame below its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackNode {
    /// The caller.
    pub parent: StackId,
    /// The frame; unused for the root.
    pub frame: FrameId,
}

/// A file that stacks go through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus the file's own address.
    pub bias: u64,
    /// GNU build-id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Whether it was unloaded before the end.
    pub unloaded: bool,
}

/// A scope path, and the sums over its lanes that no site has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The path around it.
    pub parent: ScopeId,
    /// The attribute of its name, such as `region`; empty for no scope.
    pub attribute: Arc<str>,
    /// The value of its name, an integer in decimal; empty for no scope.
    pub value: Arc<str>,
    /// How often it was entered.
    pub entered: u64,
    /// Frees made inside, but not in scopes inside it, of any block.
    pub frees_here: u64,
    /// Their bytes.
    pub freed_here_bytes: u64,
    /// Highest live bytes of the process while a thread was in it or in one inside it, within the
    /// bound of the peak; none if that was not recorded. Of joined processes the highest of one.
    pub peak_bytes: Option<u64>,
    /// Live bytes of the process when a thread last left it, the highest of several threads; none
    /// if none did, or that was not recorded.
    pub active_bytes: Option<u64>,
}

impl Scope {
    /// One that has counted nothing.
    pub fn new(parent: ScopeId, attribute: Arc<str>, value: Arc<str>) -> Scope {
        Scope {
            parent,
            attribute,
            value,
            entered: 0,
            frees_here: 0,
            freed_here_bytes: 0,
            peak_bytes: None,
            active_bytes: None,
        }
    }

    /// The same, without what it has counted.
    pub(crate) fn without_counts(&self) -> Scope {
        Scope::new(self.parent, self.attribute.clone(), self.value.clone())
    }

    /// Takes over the live bytes of another path, where they are higher.
    pub(crate) fn live_as(&mut self, other: &Scope) {
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.active_bytes = self.active_bytes.max(other.active_bytes);
    }
}

/// How often a lane entered a scope path; a lane may have several rows of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The path.
    pub scope: ScopeId,
    /// The lane.
    pub lane: LaneId,
    /// How often.
    pub times: u64,
}

/// The name of blocks, or of a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    /// What it is.
    pub name: Arc<str>,
    /// Whether it names a pool.
    pub pool: bool,
}

/// An array, as described by a label: a label may have several, one or none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The label.
    pub label: LabelId,
    /// Elements in each dimension, the outermost first; at least one dimension.
    pub dimensions: Vec<u64>,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// How often memory of this shape was labelled.
    pub labelled: u64,
}

impl Shape {
    /// The dimensions as text.
    ///
    /// ```
    /// use heaptide_analysis::model::{LabelId, Shape};
    /// let label = LabelId(0);
    /// let shape = Shape { label, dimensions: vec![3, 4], element_bytes: 8, labelled: 1 };
    /// assert_eq!((shape.dims(), shape.bytes()), ("3x4".to_owned(), 96));
    /// ```
    pub fn dims(&self) -> String {
        let dimensions: Vec<String> = self.dimensions.iter().map(u64::to_string).collect();
        dimensions.join("x")
    }

    /// Number of elements; the largest number there is, if they are more.
    pub fn elements(&self) -> u64 {
        self.dimensions.iter().fold(1, |elements: u64, &of| elements.saturating_mul(of))
    }

    /// Bytes of all elements; likewise.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element_bytes)
    }
}

/// One size class of the histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClass {
    /// Smallest size of the class.
    pub size_min: u64,
    /// Largest size of the class.
    pub size_max: u64,
    /// Blocks whose requested size is in it.
    pub requested: u64,
    /// Blocks whose usable size is in it.
    pub usable: u64,
    /// Freed blocks whose usable size is in it.
    pub freed: u64,
}

impl<S> Site<S> {
    /// The site with this stack.
    pub(crate) fn with_stack<T>(self, stack: impl FnOnce(S) -> T) -> Site<T> {
        Site {
            stack: stack(self.stack),
            scope: self.scope,
            label: self.label,
            lane: self.lane,
            size: self.size,
            call: self.call,
            kind: self.kind,
            measures: self.measures,
            moved: self.moved,
            lent_bytes: self.lent_bytes,
        }
    }
}
