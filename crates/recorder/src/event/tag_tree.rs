//! What the statistics of malloc-tag consist of: the request of the program, and the scopes of each
//! thread.

use crate::event::tally::Counts;
use crate::store::ids::{NameId, ScopeId};
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// `struct heaptide_tag_thread`: what only the header knows of a thread. Threads are in a list that
/// only grows.
#[repr(C)]
pub struct Thread {
    pub next: AtomicPtr<Thread>,
    pub tid: AtomicU64,
    pub nodes: AtomicU64,
    pub levels: AtomicU64,
    pub failures: AtomicU64,
    pub virtual_bytes: AtomicU64,
}

/// `struct heaptide_tag_request`.
#[repr(C)]
pub struct Request {
    /// The size of the struct that the program was compiled with.
    pub size: u32,
    /// 0: JSON. 1: a graph for Graphviz. 2: a tree as text. 3: `KEY=NUMBER` lines.
    pub form: u32,
    /// Start of profiling, in seconds since 1970.
    pub start: u64,
    pub nodes_max: u64,
    /// Bytes that all threads allocated before that.
    pub bytes_before: u64,
    /// Virtual memory that a thread takes.
    pub thread_bytes: u64,
    /// The list of threads.
    pub threads: *const Thread,
    /// The path of a file without its suffix, or with it; null to write to `buffer`.
    pub path: *const u8,
    pub path_length: usize,
    pub buffer: *mut u8,
    pub buffer_size: usize,
    /// The number of a snapshot, part of the name of its file; -1: none.
    pub number: i64,
}

/// A scope of a thread. A tree's first node is the thread.
#[repr(C)]
pub struct Node {
    pub name: NameId,
    pub level: u32,
    pub parent: u32,
    /// Indices of nodes of the same tree; 0: none.
    pub first: u32,
    pub next: u32,
    /// Set if something happened in it or inside it.
    pub is_used: bool,
    pub entered: u64,
    pub own: Counts,
    /// Usable bytes allocated and freed, including inner scopes.
    pub total: [u64; 2],
    /// Its scope in the lane that was added last.
    pub scope: ScopeId,
    /// The next node whose children have to be added; 0: none.
    pub queued: u32,
}

/// The scopes of a thread.
#[repr(C)]
pub struct Tree {
    pub tid: u32,
    /// The index of its root.
    pub root: u32,
    pub name: [u8; 16],
    pub nodes: u64,
    pub levels: u64,
    pub failures: u64,
    pub virtual_bytes: u64,
}

/// All data of a report.
pub struct Snapshot<'a> {
    pub request: &'a Request,
    pub trees: &'a [Tree],
    pub nodes: &'a [Node],
    pub pid: u32,
    /// The current time, in seconds since 1970.
    pub now: u64,
    /// Sum over all trees.
    pub allocated: u64,
    pub virtual_bytes: u64,
    pub resident_bytes: u64,
    /// Bytes of memory that the recorder uses.
    pub own_bytes: u64,
}
