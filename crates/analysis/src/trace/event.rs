//! An event as it comes out of a trace: paired with the block it is of.

use crate::model::{LaneId, ScopeId, StackId};

/// What happened to a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// It was allocated, or became known: a pool's block, labelled memory. A reallocation is an
    /// allocation and a free.
    Allocate,
    /// It was freed, or is no longer known.
    Free,
    /// A request failed: there is no block.
    Fail,
    /// It got a label, or another one, and so another site. Sums over sites count a free at the one
    /// and an allocation at the other; sums over events that leave relabelling out count each block
    /// once.
    Relabel,
    /// Its label was taken off: it is at the site again that it was allocated at, as if it had not
    /// left it.
    Unlabel,
    /// A thread entered a scope: there is no block.
    Begin,
    /// A thread left a scope: there is no block.
    End,
}

impl Operation {
    /// Every operation.
    pub const fn all() -> &'static [Operation] {
        use Operation::{Allocate, Begin, End, Fail, Free, Relabel, Unlabel};
        &[Allocate, Free, Fail, Relabel, Unlabel, Begin, End]
    }

    /// Whether it is of a scope, and not of a block.
    pub const fn is_of_scope(self) -> bool {
        matches!(self, Operation::Begin | Operation::End)
    }

    /// Its name in tables.
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
        }
    }
}

/// One event. Times are nanoseconds from the start of the process, or of the first of joined ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// From 1, in order of time over all events of the process, also those that are not given; 0 of
    /// scopes.
    pub number: u64,
    /// When; never less than of the event before.
    pub time_ns: u64,
    /// What happened.
    pub operation: Operation,
    /// Whether it is part of a reallocation, which is a free of the old block and an allocation of
    /// the new one at one and the same time.
    pub reallocated: bool,
    /// Of a free: whether the thread had allocated nothing since it allocated the block.
    pub temporary: bool,
    /// The lane that did it; none for a free inside the recorder.
    pub lane: Option<LaneId>,
    /// The thread that did it, as the system numbers it; 0 if that is not known.
    pub thread: u32,
    /// The scope that the thread was in; the one that it entered or left.
    pub scope: ScopeId,
    /// Index into [`crate::model::Tables::sites`]: where the block is counted, after the event.
    /// Their number, where no block is concerned.
    pub site: u32,
    /// Of a change of label the site that the block was at before, if that is there, else `site`.
    pub site_before: u32,
    /// The number of the block: from 1, in order of allocation over the process; 0 without one.
    pub block: u64,
    /// The number that the interface of the program gives memory with a label
    /// (`heaptide_resolve`), of a change of label the new one, of `Unlabel` the one that ended. Of
    /// other memory that of the block, behind those of all labels of the process; 0 without one.
    pub uid: u64,
    /// The shape that its label describes: index into [`crate::model::Tables::shapes`].
    pub shape: Option<u32>,
    /// Where it begins.
    pub address: u64,
    /// Bytes asked for; of a change of label those it was said to hold.
    pub requested: u64,
    /// Bytes asked for as `site_before` counted them, which are those that a label said, if the
    /// block had one. Of allocations those of `site`.
    pub requested_before: u64,
    /// Bytes asked for when the block was allocated, whatever labels said.
    pub allocated_requested: u64,
    /// Bytes given.
    pub usable: u64,
    /// When the block was allocated; its lifetime is `time_ns` less this at its free.
    pub allocated_ns: u64,
    /// The number of the event that allocated it; 0 if that is not in the trace, whose oldest part
    /// was dropped: then when, and how many bytes were asked for, is not known.
    pub allocated_number: u64,
    /// Of a free the stack that freed, where it was recorded (`--free-stacks`); else 0.
    pub free_stack: StackId,
    /// Usable bytes of the process that are live after it: of blocks from the allocator, of all
    /// sites. Of joined processes those that have not ended.
    pub live_bytes: u64,
    /// The same of memory that has a label or is a pool's block, in the heap or outside it.
    pub labelled_bytes: u64,
}

/// A block that was never freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBlock {
    /// Its number.
    pub block: u64,
    /// As of its events.
    pub uid: u64,
    /// As of its events.
    pub shape: Option<u32>,
    /// Where it begins.
    pub address: u64,
    /// Index into [`crate::model::Tables::sites`].
    pub site: u32,
    /// Bytes asked for.
    pub requested: u64,
    /// The same as its site counts them: those that its label said.
    pub counted: u64,
    /// Bytes given.
    pub usable: u64,
    /// When it was allocated.
    pub allocated_ns: u64,
    /// The number of the event that allocated it.
    pub allocated_number: u64,
}
