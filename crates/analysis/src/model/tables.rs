//! The tables of a process: sites, and the stacks, scopes, labels and lanes that each refers to.

use std::sync::Arc;

use heaptide_format::Call;

use super::device::{DeviceClass, DeviceMemory};
use super::ids::{FrameId, LabelId, LaneId, ModuleId, ScopeId, StackId};
use super::mapping::Mapping;
use super::measure::Measures;

/// The tables of a process: sites, what they refer to, and counts by size class.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Counters of each stack, scope path, label and lane.
    pub sites: Vec<Site>,
    /// Lanes in order of creation.
    pub lanes: Vec<Lane>,
    /// Highest number of lanes that were in use at the same time.
    pub lanes_at_once: u32,
    /// Distinct frames; inlined functions have frames of their own.
    pub frames: Vec<Frame>,
    /// The stack tree: parents come before children; entry 0 is the root and has no frame.
    pub stacks: Vec<StackNode>,
    /// Files with code that occurs in stacks.
    pub modules: Vec<Module>,
    /// Scope paths, merged over the lanes: parents come before children; entry 0 is no scope.
    pub scopes: Vec<Scope>,
    /// How often each lane entered each scope path.
    pub entered: Vec<Entered>,
    /// Distinct labels, and pools.
    pub labels: Vec<Label>,
    /// Array shapes that labels describe, in order of first use.
    pub shapes: Vec<Shape>,
    /// Counts by size class; only classes that occur.
    pub histogram: Vec<SizeClass>,
}

/// The counters of one stack, scope path, label and lane. While tables are built, stacks have
/// another type `S`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site<S = StackId> {
    /// The stack.
    pub stack: S,
    /// The scope path.
    pub scope: ScopeId,
    /// The label, or the pool.
    pub label: Option<LabelId>,
    /// The allocating lane.
    pub lane: LaneId,
    /// Bytes requested for each block, if sizes were recorded as a dimension (`--by-size`).
    pub size: Option<u64>,
    /// The kind of allocating function, if it was recorded as a dimension (`--by-call`).
    pub call: Option<Call>,
    /// The kind of memory.
    pub kind: SiteKind,
    /// Its metrics. A labelled block counts as freed in the site of its allocation and as allocated
    /// in the site with the label; `moved` holds the part that sums subtract.
    pub measures: Measures,
    /// Blocks that labelling moved here.
    pub moved: Moved,
    /// For chunks of a pool: bytes currently lent to the pool's blocks. They are neither freed nor
    /// live here.
    pub lent_bytes: u64,
}

/// Blocks that labelling moved to a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Blocks.
    pub blocks: u64,
    /// Their usable bytes.
    pub usable_bytes: u64,
    /// Bytes that the labels stated, which the site counts as requested.
    pub requested_bytes: u64,
}

/// The kind of memory that a site counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum SiteKind {
    /// Blocks from the allocator.
    #[default]
    Heap,
    /// Labelled memory that is not from the allocator. Excluded from totals.
    Outside,
    /// Blocks of a pool whose chunks are from the allocator. Their live bytes are part of the
    /// totals and are subtracted from the chunks; their events are excluded from totals.
    PoolBlock,
    /// Blocks of a pool in memory that is not from the allocator. Excluded from totals.
    OutsidePoolBlock,
    /// Chunks of a pool, from the allocator; live bytes of these are unused pool space.
    PoolChunk,
    /// Likewise for chunks that are not from the allocator. Excluded from totals.
    OutsidePoolChunk,
    /// Mappings. They occur only if they are selected, and then they are part of the totals.
    Mapped(Mapping),
    /// Memory of a device. Likewise.
    Device(Option<DeviceMemory>),
}

/// What of a site is part of the totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// All counters.
    All,
    /// Only live bytes: events are those of the chunk that contains the blocks.
    LiveBytes,
    /// Nothing.
    Nothing,
}

impl SiteKind {
    /// Returns the properties of a mapping; `None` for other memory.
    pub const fn mapping(self) -> Option<Mapping> {
        match self {
            SiteKind::Mapped(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// Returns the properties of device memory; `None` for other memory, and for rows that count
    /// what a lane freed of any device.
    pub const fn device_memory(self) -> Option<DeviceMemory> {
        match self {
            SiteKind::Device(memory) => memory,
            _ => None,
        }
    }

    /// Returns whether its live bytes are part of the totals.
    pub const fn is_in_totals(self) -> bool {
        !matches!(self.counted(), Counted::Nothing)
    }

    /// Returns what of it is part of the totals.
    pub const fn counted(self) -> Counted {
        match self {
            SiteKind::Outside | SiteKind::OutsidePoolBlock | SiteKind::OutsidePoolChunk => {
                Counted::Nothing
            }
            _ if self.is_pool_block() => Counted::LiveBytes,
            _ => Counted::All,
        }
    }

    /// Returns whether it is memory that a pool hands out, of the host or of a device.
    pub const fn is_pool_block(self) -> bool {
        match self {
            SiteKind::Device(Some(memory)) => matches!(memory.class, DeviceClass::PoolBlock),
            kind => matches!(kind, SiteKind::PoolBlock | SiteKind::OutsidePoolBlock),
        }
    }

    /// Returns whether it is memory from which a pool hands out blocks.
    pub const fn is_pool_chunk(self) -> bool {
        match self {
            SiteKind::Device(Some(memory)) => matches!(memory.class, DeviceClass::PoolChunk),
            kind => matches!(kind, SiteKind::PoolChunk | SiteKind::OutsidePoolChunk),
        }
    }

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SiteKind::Heap => "heap",
            SiteKind::Outside => "outside",
            SiteKind::PoolBlock => "pool_block",
            SiteKind::OutsidePoolBlock => "outside_pool_block",
            SiteKind::PoolChunk => "pool_chunk",
            SiteKind::OutsidePoolChunk => "outside_pool_chunk",
            SiteKind::Mapped(_) => "mapped",
            SiteKind::Device(_) => "device",
        }
    }
}

/// A lane and the sums over its sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The name of its threads.
    pub name: String,
    /// Number of threads that used it.
    pub threads: u32,
    /// Known thread ids of the system, in order of use: for a lane with very many threads, only the
    /// first ones and the last one.
    pub tids: Vec<u32>,
    /// Sums over the lane's sites, with `frees_here` of the lane.
    pub measures: Measures,
}

impl Lane {
    /// Returns the id of the last thread; 0 if unknown.
    pub fn last_tid(&self) -> u32 {
        self.tids.last().copied().unwrap_or(0)
    }
}

/// A resolved frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Demangled full name; `None` if it has no name.
    pub function: Option<Arc<str>>,
    /// The file that contains it; `None` for code without a file.
    pub module: Option<ModuleId>,
    /// Link-time address of the call itself, relative to the module.
    pub offset: u64,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
    /// Whether it was inlined into the next outer frame.
    pub inlined: bool,
    /// The kind of code.
    pub code: CodeKind,
}

/// The name of the only frame of allocations that have no stack because they are below the stack
/// threshold.
pub const BELOW_THRESHOLD: &str = "[below the stack threshold]";
/// The name of the only frame of allocations that have no stack because only those below the stack
/// threshold have one.
pub const NOT_BELOW_THRESHOLD: &str = "[not below the stack threshold]";

/// The name of the outermost frame of a stack that was deeper than the limit.
pub const DEEPER_FRAMES_CUT: &str = "[deeper frames cut]";

impl Frame {
    /// Returns a frame with this name and without an address, for an entry that is not a function.
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

/// The kind of code of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum CodeKind {
    /// Machine code, or an entry that is not a function.
    #[default]
    Native,
    /// Machine code of an interpreter that executes the frames below it.
    Interpreter,
    /// A Python function.
    Python,
}

/// A node of the stack tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackNode {
    /// The caller.
    pub parent: StackId,
    /// The frame; unused for the root.
    pub frame: FrameId,
}

/// A file with code that occurs in stacks.
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

/// A scope path, with its own sums over lanes, which sites do not contain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The enclosing path.
    pub parent: ScopeId,
    /// The attribute of its name, such as `region`; empty for the entry without a scope.
    pub attribute: Arc<str>,
    /// The value of its name, an integer in decimal; empty for the entry without a scope.
    pub value: Arc<str>,
    /// Number of times it was entered.
    pub entered: u64,
    /// Frees inside, excluding nested scopes, of any block.
    pub frees_here: u64,
    /// Bytes of these frees.
    pub freed_here_bytes: u64,
    /// Highest live bytes of the process while a thread was in this or a nested scope, within the
    /// error bound of the peak; `None` if not recorded. For joined processes the highest value of a
    /// single process.
    pub peak_bytes: Option<u64>,
    /// Live bytes of the process when a thread last left the scope, the highest of several threads;
    /// `None` if no thread left it, or if not recorded.
    pub active_bytes: Option<u64>,
}

impl Scope {
    /// Returns a scope with counters of 0.
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

    /// Returns the same scope with counters of 0.
    pub(crate) fn without_counts(&self) -> Scope {
        Scope::new(self.parent, self.attribute.clone(), self.value.clone())
    }

    /// Sets the live bytes to the maximum of both paths.
    pub(crate) fn live_as(&mut self, other: &Scope) {
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.active_bytes = self.active_bytes.max(other.active_bytes);
    }
}

/// Number of times a lane entered a scope path; a lane can have several rows for one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The path.
    pub scope: ScopeId,
    /// The lane.
    pub lane: LaneId,
    /// Number of times.
    pub times: u64,
}

/// The label of blocks, or a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    /// The name.
    pub name: Arc<str>,
    /// Whether it is a pool.
    pub pool: bool,
}

/// The shape of an array, as stated for a label. A label can have any number of shapes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The label.
    pub label: LabelId,
    /// Number of elements in each dimension, outermost first; at least one dimension.
    pub dimensions: Vec<u64>,
    /// Size of an element in bytes.
    pub element_bytes: u64,
    /// Number of times that memory of this shape was labelled.
    pub labelled: u64,
}

impl Shape {
    /// Returns the dimensions as text.
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

    /// Returns the number of elements, saturating.
    pub fn elements(&self) -> u64 {
        self.dimensions.iter().fold(1, |elements: u64, &of| elements.saturating_mul(of))
    }

    /// Returns the size of all elements in bytes, saturating.
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
    /// Number of blocks whose requested size is in it.
    pub requested: u64,
    /// Number of blocks whose usable size is in it.
    pub usable: u64,
    /// Number of freed blocks whose usable size is in it.
    pub freed: u64,
}

impl<S> Site<S> {
    /// Replaces the stack.
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
