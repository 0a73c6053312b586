//! The statistics of malloc-tag: the scopes of each thread, collected from the counters in this
//! process and written to a file or to memory.
//!
//! All of it is safe in a signal handler: it takes no lock of the program or of the recorder, uses
//! memory of its own and little stack, and only reads counters.

use crate::event::lane::{self, LaneState};
use crate::event::tag_text::{self, Out};
use crate::event::tag_tree::{Node, Request, Snapshot, Tree};
use crate::event::tallies;
use crate::event::tally::{ALLOCATED, COUNTERS, FREED};
use crate::store::ids::{NameId, ScopeId};
use crate::store::shared::{Store, store};
use crate::sys::kernel::{self, Fd, Path};
use crate::sys::memory::{self, InChild};
use crate::sys::options::PATH_MAX;
use crate::sys::text::Text;
use core::mem::size_of;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;

/// Size of the buffer for writing to a file.
const BUFFER: usize = 64 << 10;

/// Writes a report. Returns its length in bytes; none if there is no memory, or if the file cannot
/// be written.
pub fn write(request: &Request) -> Option<u64> {
    if (request.size as usize) < size_of::<Request>() || request.form > tag_text::FORM_LAST {
        return None;
    }
    let own_bytes = own_bytes(store());
    let mut workspace = Workspace::new()?;
    let length = workspace.write(request, own_bytes);
    workspace.release();
    length
}

/// Memory for a report: nodes, trees, a table from scopes to nodes, and a buffer.
struct Workspace {
    memory: *mut u8,
    bytes: usize,
    nodes: *mut Node,
    nodes_max: usize,
    nodes_used: usize,
    trees: *mut Tree,
    trees_max: usize,
    trees_used: usize,
    /// Entries (scope, node) of a hash table; scope 0 is free. Its size is a power of two.
    table: *mut [u32; 2],
    slots: usize,
    buffer: *mut u8,
}

impl Workspace {
    fn new() -> Option<Workspace> {
        /// Lanes and scopes that are made meanwhile.
        const SPARE: usize = 64;
        let lanes = lane::all().len() + SPARE;
        let scopes = store().scopes.load(Relaxed) + lanes + SPARE;
        let slots = (scopes * 2).next_power_of_two();
        let trees_at = (scopes * size_of::<Node>()).next_multiple_of(64);
        let table_at = (trees_at + lanes * size_of::<Tree>()).next_multiple_of(64);
        let buffer_at = table_at + slots * size_of::<[u32; 2]>();
        let bytes = buffer_at + BUFFER + PATH_MAX;
        let memory = memory::take_apart(bytes, InChild::Nothing);
        (!memory.is_null()).then(|| Workspace {
            memory,
            bytes,
            nodes: memory as *mut Node,
            nodes_max: scopes,
            nodes_used: 0,
            trees: memory.wrapping_add(trees_at) as *mut Tree,
            trees_max: lanes,
            trees_used: 0,
            table: memory.wrapping_add(table_at) as *mut [u32; 2],
            slots,
            buffer: memory.wrapping_add(buffer_at),
        })
    }

    fn release(self) {
        // SAFETY: `new` took it; nothing refers to it any more.
        unsafe { memory::release(self.memory, self.bytes, InChild::Nothing) };
    }

    fn nodes(&mut self) -> &mut [Node] {
        // SAFETY: that many nodes were written; all zeros is a valid value.
        unsafe { core::slice::from_raw_parts_mut(self.nodes, self.nodes_used) }
    }

    fn trees(&mut self) -> &mut [Tree] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.trees, self.trees_used) }
    }

    fn write(&mut self, request: &Request, own_bytes: u64) -> Option<u64> {
        // Node 0 is none.
        self.add_node(NameId::NONE, 0, 0, ScopeId::NONE)?;
        lane::all().iter().for_each(|&lane| {
            // SAFETY: lanes stay mapped; only words that other threads may read are read.
            self.add_lane(unsafe { &*lane });
        });
        let allocated = self.sum_up();
        self.trees().iter_mut().for_each(|tree| describe(tree, request));
        let (resident_bytes, virtual_bytes) = store().memory_of_process();
        let (buffer, path) = (self.buffer, self.buffer.wrapping_add(BUFFER));
        // SAFETY: parts of the memory that nothing else refers to.
        let (buffer, path) = unsafe {
            (
                core::slice::from_raw_parts_mut(buffer, BUFFER),
                core::slice::from_raw_parts_mut(path, PATH_MAX),
            )
        };
        let target = Target::of(request, path)?;
        let snapshot = Snapshot {
            request,
            // SAFETY: as in `nodes` and `trees`; they do not change any more.
            trees: unsafe { core::slice::from_raw_parts(self.trees, self.trees_used) },
            // SAFETY: likewise.
            nodes: unsafe { core::slice::from_raw_parts(self.nodes, self.nodes_used) },
            pid: store().pid.load(Relaxed),
            now: kernel::clock_ns(kernel::CLOCK_REALTIME) / 1_000_000_000,
            allocated,
            virtual_bytes,
            resident_bytes,
            own_bytes,
        };
        target.write(request, buffer, &snapshot)
    }

    /// Adds a node; none if there is no room for it.
    fn add_node(&mut self, name: NameId, parent: u32, entered: u64, scope: ScopeId) -> Option<u32> {
        let index = self.nodes_used;
        if index >= self.nodes_max {
            return None;
        }
        self.nodes_used += 1;
        let level = if index == 0 { 0 } else { self.nodes()[parent as usize].level + 1 };
        let node = &mut self.nodes()[index];
        *node = Node {
            name,
            level,
            parent,
            first: 0,
            next: 0,
            is_used: entered > 0,
            entered,
            own: [0; COUNTERS],
            total: [0; 2],
            scope,
            queued: 0,
        };
        Some(index as u32)
    }

    /// Adds the scopes and counters of a lane to the tree of its thread. A thread that was renamed
    /// had several lanes.
    fn add_lane(&mut self, lane: &LaneState) {
        let tid = match lane.record.tid.get() {
            0 => lane.tid.load(Relaxed),
            tid => tid,
        };
        let known = self.trees().iter().position(|tree| tree.tid == tid && tid != 0);
        let root_scope = lane.place.root_scope;
        let root = match known {
            Some(tree) => self.trees()[tree].root,
            None => match self.add_tree(tid, root_scope) {
                Some(root) => root,
                None => return,
            },
        };
        let tree = known.unwrap_or(self.trees_used - 1);
        let tree = &mut self.trees()[tree];
        tree.name.iter_mut().zip(&lane.record.name).for_each(|(to, from)| *to = from.get());
        if !root_scope.is_none() {
            self.insert(root_scope, root);
            self.add_scopes(root_scope, root, known.is_some());
        }
        tallies::read(lane, |scope, counts| {
            let node = if scope.is_none() { root } else { self.find(scope).unwrap_or(root) };
            let node = &mut self.nodes()[node as usize];
            node.own = counts;
        });
    }

    fn add_tree(&mut self, tid: u32, root_scope: ScopeId) -> Option<u32> {
        if self.trees_used >= self.trees_max {
            return None;
        }
        let root = self.add_node(NameId::NONE, 0, 0, root_scope)?;
        let index = self.trees_used;
        self.trees_used += 1;
        let tree = &mut self.trees()[index];
        (tree.tid, tree.root) = (tid, root);
        Some(root)
    }

    /// Adds all scopes inside a root, parents first. `joins`: the tree may have them already.
    fn add_scopes(&mut self, root_scope: ScopeId, root: u32, joins: bool) {
        self.nodes()[root as usize].scope = root_scope;
        let (mut at, mut last) = (root, root);
        while at != 0 {
            self.add_children(at, joins, &mut last);
            at = core::mem::take(&mut self.nodes()[at as usize].queued);
        }
    }

    /// Adds the scopes directly inside that of a node, and appends their nodes to the queue.
    fn add_children(&mut self, parent: u32, joins: bool, last: &mut u32) {
        let scope = self.nodes()[parent as usize].scope;
        let mut next = ScopeId::new(scope.record().first.get());
        while !next.is_none() {
            let record = next.record();
            let (name, entered) = (NameId::new(record.name.get()), record.entered.get());
            let same = if joins { self.child_named(parent, name) } else { None };
            let node = match same {
                Some(node) => {
                    let known = &mut self.nodes()[node as usize];
                    known.entered += entered;
                    known.is_used |= entered > 0;
                    known.scope = next;
                    node
                }
                None => {
                    let Some(node) = self.add_node(name, parent, entered, next) else {
                        return;
                    };
                    // The newest is first in the lane, and last in the report.
                    let nodes = self.nodes();
                    nodes[node as usize].next = nodes[parent as usize].first;
                    nodes[parent as usize].first = node;
                    node
                }
            };
            self.insert(next, node);
            self.nodes()[*last as usize].queued = node;
            *last = node;
            next = ScopeId::new(record.next.get());
        }
    }

    fn child_named(&mut self, parent: u32, name: NameId) -> Option<u32> {
        let nodes = self.nodes();
        let mut child = nodes[parent as usize].first;
        while child != 0 {
            if nodes[child as usize].name == name {
                return Some(child);
            }
            child = nodes[child as usize].next;
        }
        None
    }

    /// Returns the entry of a scope, or a free one.
    fn slot(&self, scope: ScopeId) -> *mut [u32; 2] {
        let mut i = scope.number().wrapping_mul(0x9e37_79b1) as usize;
        loop {
            let entry = self.table.wrapping_add(i & (self.slots - 1));
            // SAFETY: masked to the size; there are fewer scopes than half of the entries.
            let [known, _] = unsafe { *entry };
            if known == scope.number() || known == 0 {
                return entry;
            }
            i += 1;
        }
    }

    fn insert(&mut self, scope: ScopeId, node: u32) {
        // SAFETY: an entry of the table.
        unsafe { *self.slot(scope) = [scope.number(), node] };
    }

    fn find(&self, scope: ScopeId) -> Option<u32> {
        // SAFETY: as above.
        let [known, node] = unsafe { *self.slot(scope) };
        (known != 0).then_some(node)
    }

    /// Computes the totals of all nodes. Returns the bytes that all trees allocated.
    fn sum_up(&mut self) -> u64 {
        let nodes = self.nodes();
        // Parents come before their children.
        for index in (1..nodes.len()).rev() {
            let node = &mut nodes[index];
            node.total[0] += node.own[ALLOCATED];
            node.total[1] += node.own[FREED];
            node.is_used |= node.own != [0; COUNTERS];
            let (total, is_used, parent) = (node.total, node.is_used, node.parent as usize);
            if parent != 0 {
                let parent = &mut nodes[parent];
                parent.total[0] += total[0];
                parent.total[1] += total[1];
                parent.is_used |= is_used;
            }
        }
        nodes.iter().filter(|node| node.parent == 0).map(|node| node.total[0]).sum()
    }
}

/// Adds what the program's header knows of a thread.
fn describe(tree: &mut Tree, request: &Request) {
    (tree.nodes, tree.levels) = (1, 1);
    tree.virtual_bytes = request.thread_bytes;
    let mut next = request.threads;
    // SAFETY: the interface's contract: a list of threads that ends with null.
    while let Some(thread) = unsafe { next.as_ref() } {
        if thread.tid.load(Relaxed) == tree.tid as u64 {
            tree.nodes = thread.nodes.load(Relaxed);
            tree.levels = thread.levels.load(Relaxed);
            tree.failures = thread.failures.load(Relaxed);
            tree.virtual_bytes = thread.virtual_bytes.load(Relaxed);
            return;
        }
        next = thread.next.load(Relaxed);
    }
}

/// Returns the bytes of memory that the recorder uses: resident pages of its own memory, and of the
/// profile.
fn own_bytes(p: &Store) -> u64 {
    let ranges = memory::used_ranges();
    let profile = p.base.load(Relaxed) as u64;
    let mut bytes = resident(profile, p.header().file_end.load(Relaxed));
    for range in ranges {
        bytes += resident(range.low, range.high - range.low);
    }
    bytes + memory::apart()
}

/// Returns the resident bytes of a range that starts at a page.
fn resident(start: u64, bytes: u64) -> u64 {
    /// A few KiB of stack.
    const PAGES_AT_ONCE: usize = 2048;
    let page = kernel::page_bytes();
    let mut buffer = [0u8; PAGES_AT_ONCE];
    let (mut at, end) = (start, start + bytes.next_multiple_of(page));
    let mut pages = 0;
    while at < end {
        let present = kernel::present_pages(at, end - at, &mut buffer);
        if present.is_empty() {
            break;
        }
        pages += present.iter().filter(|&&page| page & 1 != 0).count() as u64;
        at += present.len() as u64 * page;
    }
    pages * page
}

/// The destination of a report.
enum Target<'a> {
    File(Fd),
    Memory(&'a mut [u8]),
}

impl<'a> Target<'a> {
    /// Opens the file of a request, or returns its buffer; none if the file cannot be opened.
    fn of(request: &Request, path: &'a mut [u8]) -> Option<Target<'a>> {
        if request.path.is_null() {
            let (start, size) = (request.buffer, request.buffer_size);
            if start.is_null() || size == 0 {
                return Some(Target::Memory(&mut path[..0]));
            }
            // SAFETY: the interface's contract: the program's memory, which nothing else uses.
            return Some(Target::Memory(unsafe { core::slice::from_raw_parts_mut(start, size) }));
        }
        // SAFETY: likewise, of that length.
        let given = unsafe { core::slice::from_raw_parts(request.path, request.path_length) };
        let path = full_path(given, request, path)?;
        kernel::replace(path).ok().map(Target::File)
    }

    /// Writes the report. Returns its length; none if not all of it was written.
    fn write(self, request: &Request, buffer: &mut [u8], snapshot: &Snapshot<'_>) -> Option<u64> {
        let mut out = match self {
            Target::File(fd) => Out::to_file(fd, buffer),
            Target::Memory(memory) => Out::to_memory(memory),
        };
        tag_text::write(&mut out, request.form, snapshot);
        out.finish()
    }
}

/// Writes the path of a report to `place`: with the number of a snapshot, and with the suffix of
/// the form if it is missing. None if that is too long.
fn full_path<'a>(given: &[u8], request: &Request, place: &'a mut [u8]) -> Option<Path<'a>> {
    const DIGITS_LEAST: usize = 4;
    let suffix: &[u8] = match request.form {
        tag_text::JSON => b".json",
        tag_text::DOT => b".dot",
        _ => b"",
    };
    let mut end = Text::<64>::new();
    if request.number >= 0 {
        end.push(b".");
        let digits = request.number.checked_ilog10().map_or(1, |digits| digits as usize + 1);
        (digits..DIGITS_LEAST).for_each(|_| end.push(b"0"));
        end.push_number(request.number as u64);
    }
    if request.number >= 0 || !given.ends_with(suffix) {
        end.push(suffix);
    }
    let (length, more) = (given.len(), end.bytes());
    if length == 0 || given.contains(&0) || length + more.len() >= place.len() {
        return None;
    }
    place[..length].copy_from_slice(given);
    place[length..length + more.len()].copy_from_slice(more);
    place[length + more.len()] = 0;
    Path::new(place)
}
