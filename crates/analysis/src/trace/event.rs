//! An event of a trace, paired with its block.

use std::num::NonZeroU32;

use crate::model::{LaneId, ScopeId, StackId};

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// A block was allocated, or other memory became known: a pool's block, labelled memory. A
    /// reallocation is an allocation and a free.
    Allocate,
    /// A block was freed, or other memory is no longer known.
    Free,
    /// An allocation failed: there is no block.
    Fail,
    /// A block got a label, or another one, and so another site. Sums over sites count a free at
    /// the old site and an allocation at the new one; sums over events that exclude relabelling
    /// count each block once.
    Relabel,
    /// The label of a block was removed: it returns to the site of its allocation, as if it had not
    /// left it.
    Unlabel,
    /// A thread entered a scope: there is no block.
    Begin,
    /// A thread left a scope: there is no block.
    End,
    /// The program put a mark on the timeline: there is no block.
    Mark,
}

impl Operation {
    /// Returns all operations.
    pub const fn all() -> &'static [Operation] {
        use Operation::{Allocate, Begin, End, Fail, Free, Mark, Relabel, Unlabel};
        &[Allocate, Free, Fail, Relabel, Unlabel, Begin, End, Mark]
    }

    /// Returns whether the event is that of a scope.
    pub const fn is_of_scope(self) -> bool {
        matches!(self, Operation::Begin | Operation::End)
    }

    /// Returns whether the event is that of a block.
    pub const fn is_of_block(self) -> bool {
        !matches!(self, Operation::Fail | Operation::Begin | Operation::End | Operation::Mark)
    }

    /// Returns the name in tables.
    ///
    /// ```
    /// use heaptide_analysis::trace::Operation;
    /// assert_eq!(Operation::Free.name(), "free");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Allocate => "allocate",
            Operation::Free => "free",
            Operation::Fail => "fail",
            Operation::Relabel => "relabel",
            Operation::Unlabel => "unlabel",
            Operation::Begin => "begin",
            Operation::End => "end",
            Operation::Mark => "mark",
        }
    }
}

/// An event. Times are nanoseconds from the start of the process, or of the first of several joined
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Number from 1, in order of time over all events of the process, including those that are not
    /// returned; 0 for scopes and marks.
    pub number: u64,
    /// Time of the event; not before the previous one.
    pub time_ns: u64,
    /// Its kind.
    pub operation: Operation,
    /// Whether it is part of a reallocation, which is a free of the old block and an allocation of
    /// the new one at the same time.
    pub reallocated: bool,
    /// For a free: whether the thread allocated nothing between the allocation of the block and its
    /// free.
    pub temporary: bool,
    /// The lane that performed it; `None` for a free inside the recorder.
    pub lane: Option<LaneId>,
    /// The thread id that performed it; 0 if unknown.
    pub thread: u32,
    /// The scope of the thread; for scope events the scope that it entered or left.
    pub scope: ScopeId,
    /// Index into [`crate::model::Tables::sites`]: the site that counts the block after the event.
    /// The number of sites if there is no block.
    pub site: u32,
    /// For a change of label, the previous site of the block, if that exists; else `site`.
    pub site_before: u32,
    /// Number of the block, from 1, in order of allocation over the process; 0 without a block.
    pub block: u64,
    /// For labelled memory, its number in the interface of the program (`heaptide_resolve`); for a
    /// change of label the new one, for `Unlabel` the one that ended. For other memory, a number
    /// derived from that of the block, above those of all labels of the process; 0 without a block.
    pub uid: u64,
    /// Index into [`crate::model::Tables::shapes`] of the shape that its label describes.
    pub shape: Option<u32>,
    /// For a block of `calloc`, bytes of an element, if there are several of more than a byte.
    pub element_bytes: Option<NonZeroU32>,
    /// For a mark, its index into [`crate::model::TimeTables::mark_names`].
    pub mark: Option<u32>,
    /// Its first address.
    pub address: u64,
    /// Requested bytes; for a change of label the bytes that it states.
    pub requested: u64,
    /// Requested bytes as `site_before` counted them: those that the label stated, if the block had
    /// one. For allocations the same as `requested`.
    pub requested_before: u64,
    /// Bytes requested at the allocation of the block, regardless of labels.
    pub allocated_requested: u64,
    /// Usable bytes.
    pub usable: u64,
    /// When the block was allocated; at its free, `time_ns` minus this is its lifetime.
    pub allocated_ns: u64,
    /// The number of the event that allocated it; 0 if that is not in the trace because its oldest
    /// part was dropped: then the time of the allocation and the requested bytes are unknown.
    pub allocated_number: u64,
    /// For a free, the stack that freed, if recorded (`--free-stacks`); else 0.
    pub free_stack: StackId,
    /// Live usable bytes of the process after the event: of blocks from the allocator, at all
    /// sites. For joined processes the sum over those that have not ended.
    pub live_bytes: u64,
    /// Live bytes of memory that has a label or is a pool's block, inside or outside the heap.
    pub labelled_bytes: u64,
}

/// A block that is live after the last event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBlock {
    /// Its number.
    pub block: u64,
    /// As in its events.
    pub uid: u64,
    /// As in its events.
    pub shape: Option<u32>,
    /// Its first address.
    pub address: u64,
    /// Index into [`crate::model::Tables::sites`].
    pub site: u32,
    /// Requested bytes.
    pub requested: u64,
    /// Requested bytes as its site counts them: those that its label states.
    pub counted: u64,
    /// Usable bytes.
    pub usable: u64,
    /// When it was allocated.
    pub allocated_ns: u64,
    /// The number of the event that allocated it.
    pub allocated_number: u64,
}
