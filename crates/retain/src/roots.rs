//! The roots: memory from which a program reaches its blocks.

use heaptide_analysis::model::retained::{Root, RootKind};
use heaptide_analysis::symbols::Demangler;
use heaptide_attach::Mapping;
use std::ops::Range;

use heaptide_attach::picture::{Picture, ThreadState};
use rustc_hash::FxHashMap;

use crate::blocks::{Blocks, IS_IN_ARENA, IS_MAPPED};
use crate::dynamic_tls::{DynamicTls, Table};
use crate::graph::{Edge, Graph, Target};
use crate::modules::{Module, Modules};
use crate::window::{Window, words};

/// Bytes behind the thread pointer on x86-64, and before it on aarch64, that belong to the C
/// library's description of the thread.
const THREAD_BYTES: u64 = 2304;
/// Bytes below the stack pointer that functions may use.
const RED_ZONE: u64 = 128;
/// The size to which glibc aligns the memory of an arena.
const ARENA_BYTES: u64 = 64 << 20;
/// The largest guard below a stack.
const GUARD_MAX: u64 = 64 << 10;
/// The end of a stack in which the description of its thread is searched for.
const DESCRIBED_IN: u64 = 64 << 10;
/// glibc's headers of a block.
const HEADER: u64 = 16;
const PAGE: u64 = 4096;

/// The names of threads by thread id.
pub(crate) type ThreadNames = std::collections::HashMap<i32, String>;

/// Finds roots, and the edges from them.
pub(crate) struct Finder<'a> {
    pub(crate) picture: &'a Picture,
    pub(crate) modules: &'a Modules,
    pub(crate) names: &'a ThreadNames,
    pub(crate) blocks: &'a Blocks,
    /// The thread-local variables of libraries that were loaded late, and the tables of threads
    /// that lead to them.
    pub(crate) dynamic_tls: DynamicTls<'a>,
    pub(crate) tables: Vec<Table>,
    /// Whether all live blocks are known.
    pub(crate) has_all_blocks: bool,
    /// The memory of the allocator.
    pub(crate) heap: Vec<(u64, u64)>,
    /// Ranges that are no roots, or are roots already.
    pub(crate) taken: Vec<(u64, u64)>,
    pub(crate) roots: Vec<Root>,
    /// Of roots that are variables with symbols, by their index: the path of the module, and the
    /// address.
    pub(crate) variables: FxHashMap<usize, (String, u64)>,
    pub(crate) demangler: Demangler,
    /// Bytes of roots that could not be read.
    pub(crate) unread: u64,
}

impl Finder<'_> {
    /// Adds the nodes of all roots to the graph, which has those of blocks.
    pub(crate) fn find(&mut self, graph: &mut Graph) {
        let mut window = Window::new(self.picture);
        self.taken.extend(&self.heap);
        self.taken.extend(self.picture.own.iter().map(|range| (range.start, range.end)));
        self.taken.extend(self.tables.iter().map(|table| table.range));
        for thread in &self.picture.threads {
            self.thread(thread, graph, &mut window);
        }
        merge(&mut self.taken);
        let mut module: Option<(&str, &Module, u64)> = None;
        let mut guard: Option<(u64, u64)> = None;
        let mut own_end = 0;
        for mapping in &self.picture.mappings {
            if !mapping.is_accessible {
                guard = Some((mapping.low, mapping.high));
                continue;
            }
            let mut low = mapping.low;
            if mapping.path.starts_with('/') && !mapping.is_shared {
                let is_own = mapping.path == self.picture.recorder;
                let of = self.modules.get(&mapping.path);
                module = of.map(|of| (&*mapping.path, of, mapping.high));
                if is_own {
                    own_end = module.map_or(0, |(_, of, _)| of.end);
                    continue;
                }
                if let (Some(of), true) = (of, mapping.is_written) {
                    self.variables((&mapping.path, of), (low, mapping.high), graph, &mut window);
                }
                continue;
            }
            // Programs make memory read-only, too.
            if mapping.is_shared && !is_memory(&mapping.path) {
                continue;
            }
            if let Some((path, of, end)) = module
                && end == low
                && of.end > low
                && mapping.path.is_empty()
            {
                // The kernel can merge another mapping with that of the module's variables.
                let until = mapping.high.min(of.end.next_multiple_of(PAGE));
                if of.end != own_end {
                    self.variables((path, of), (low, until), graph, &mut window);
                }
                low = until;
            }
            // The heap is the allocator's, and stacks are roots of their threads.
            if !mapping.path.starts_with('[') || mapping.path.starts_with("[anon") {
                let is_guarded =
                    guard.is_some_and(|(from, to)| to == low && to - from <= GUARD_MAX);
                self.mapping(low, mapping.high, is_guarded, graph, &mut window);
            }
        }
        if !self.has_all_blocks {
            self.unrecorded(graph, &mut window);
        }
    }

    fn open(&mut self, kind: RootKind, name: String) {
        self.roots.push(Root { kind, name, module: None, declared: None });
    }

    fn thread(&mut self, thread: &ThreadState, graph: &mut Graph, window: &mut Window) {
        let name = match self.names.get(&thread.tid) {
            Some(name) => format!("thread {name} ({})", thread.tid),
            None => format!("thread {}", thread.tid),
        };
        self.open(RootKind::Registers, format!("registers of {name}"));
        for &word in &thread.registers {
            self.edge(word, graph);
        }
        graph.end_node();
        let end_of = |address: u64| {
            let holds = |m: &&Mapping| (m.low..m.high).contains(&address);
            self.picture.mappings.iter().find(holds).map(|m| (m.low, m.high))
        };
        let static_bytes = self.modules.thread_local_bytes();
        let (below, behind) = if cfg!(target_arch = "x86_64") {
            (static_bytes, THREAD_BYTES)
        } else {
            (THREAD_BYTES, HEADER + static_bytes)
        };
        let pointed = end_of(thread.pointer);
        let mut top = None;
        if let Some((low, high)) = pointed {
            let from = thread.pointer.saturating_sub(below).max(low) & !7;
            let to = thread.pointer.saturating_add(behind).min(high);
            self.thread_local(thread, &name, (from, to), graph, window);
            self.taken.push((from, to));
            top = Some((low, from));
        }
        if let Some((low, high)) = end_of(thread.sp) {
            let sp = thread.sp.saturating_sub(RED_ZONE).max(low) & !7;
            // The stack of a thread that the C library made ends where its variables begin.
            let high = top.filter(|&(same, from)| same == low && from > sp).map_or(high, |t| t.1);
            self.open(RootKind::Stack, format!("stack of {name}"));
            self.range(sp, high, graph, window);
            graph.end_node();
            self.taken.push((low, high));
        }
    }

    /// Adds the thread-local variables of a thread: those behind or before the thread pointer, in a
    /// range, and those of each library that was loaded late.
    fn thread_local(
        &mut self,
        thread: &ThreadState,
        name: &str,
        (from, to): (u64, u64),
        graph: &mut Graph,
        window: &mut Window,
    ) {
        let name = format!("thread-local variables of {name}");
        self.open(RootKind::ThreadLocal, name.clone());
        let table = self.dynamic_tls.table(thread.pointer);
        match &table {
            // It only leads to the other variables.
            Some(table) if (from..to).contains(&table.at) => {
                self.range(from, table.at, graph, window);
                self.range(table.at + 8, to, graph, window);
                self.whole(table.start, graph);
            }
            _ => self.range(from, to, graph, window),
        }
        graph.end_node();
        let locals = table.map_or_else(Vec::new, |table| self.dynamic_tls.locals(&table));
        for locals in locals {
            let (low, high) = locals.range;
            if low >= from && high <= to {
                continue; // loaded at the start
            }
            self.open(RootKind::ThreadLocal, name.clone());
            if let Some(root) = self.roots.last_mut() {
                root.module = Some(locals.file);
            }
            // Their memory may be a block, whose contents are read as those of all blocks.
            if !self.whole(low, graph) {
                self.range(low, high, graph, window);
                self.taken.push((low, high));
            }
            graph.end_node();
        }
    }

    /// Adds an edge to the start of the block that contains an address. Returns whether there is
    /// one.
    fn whole(&self, address: u64, graph: &mut Graph) -> bool {
        let found = self.blocks.find(address);
        if let Some((block, _)) = found {
            graph.add(Edge::new(block, Target::Start));
        }
        found.is_some()
    }

    /// Adds an edge to the block at an address.
    fn edge(&self, address: u64, graph: &mut Graph) {
        if let Some((block, target)) = self.blocks.find(address) {
            graph.add(Edge::new(block, target));
        }
    }

    /// Adds the edges of a range of words.
    fn range(&mut self, low: u64, high: u64, graph: &mut Graph, window: &mut Window) {
        let blocks = self.blocks;
        self.unread += window.each_word(low, high, |_, word| {
            if let Some((block, target)) = blocks.find(word) {
                graph.add(Edge::new(block, target));
            }
        });
    }

    /// Adds the variables of a module in a range that refer to blocks.
    fn variables(
        &mut self,
        (path, module): (&str, &Module),
        (low, high): (u64, u64),
        graph: &mut Graph,
        window: &mut Window,
    ) {
        let blocks = self.blocks;
        let Finder { roots, variables, demangler, tables, .. } = self;
        let is_of_table = |address: u64| {
            tables.iter().any(|table| (table.range.0..table.range.1).contains(&address))
        };
        let mut current: Option<u64> = None;
        let mut is_open = false;
        let free_lists = free_lists(blocks, (low, high), window);
        let mut free_lists = free_lists.iter().peekable();
        self.unread += window.each_word(low, high, |address, word| {
            while free_lists.next_if(|list| list.end <= address).is_some() {}
            let Some((block, target)) = blocks.find(word) else { return };
            let is_in_list = free_lists.peek().is_some_and(|list| list.contains(&address));
            if is_in_list && !blocks.is_freed(block) {
                return; // an old pointer
            }
            if module.is_libc && target == Target::Inside {
                // The allocator's lists refer to free blocks by their headers, which begin at the
                // end of the block before.
                return;
            }
            if is_of_table(address) {
                return; // that of the initial thread can be in memory of the loader
            }
            let variable = module.variable(address);
            let low = variable.map(|variable| variable.low);
            if !is_open || low != current {
                if is_open {
                    graph.end_node();
                }
                let name = match variable {
                    Some(variable) => demangler.readable(&variable.symbol),
                    None => "variables without names".to_owned(),
                };
                let module = Some(module.file.to_string());
                let root = Root { kind: RootKind::Variable, name, module, declared: None };
                let last = variables.get(&roots.len().wrapping_sub(1)).map(|(_, last)| *last);
                if roots.last() == Some(&root) && last == low {
                    graph.reopen_node(); // a variable in two mappings
                } else {
                    if let Some(low) = low {
                        variables.insert(roots.len(), (path.to_owned(), low));
                    }
                    roots.push(root);
                }
                (current, is_open) = (low, true);
            }
            graph.add(Edge::new(block, target));
        });
        if is_open {
            graph.end_node();
        }
    }

    /// Adds memory of the allocator in which no recorded block is, as one root: a block that was
    /// not recorded can be there, or a free one with old pointers.
    fn unrecorded(&mut self, graph: &mut Graph, window: &mut Window) {
        let is_heap = |mapping: &&Mapping| mapping.path == "[heap]" && mapping.is_accessible;
        let heap = self.picture.mappings.iter().filter(is_heap);
        let mut memory = self.heap.clone();
        memory.extend(heap.map(|mapping| (mapping.low, mapping.high)));
        merge(&mut memory);
        let blocks = self.blocks;
        self.open(RootKind::Unrecorded, "memory of blocks that were not recorded".to_owned());
        for (low, high) in blocks.gaps(&memory) {
            self.unread += window.each_word(low, high, |_, word| match blocks.find(word) {
                // A free block is listed by its header, which begins in the block before.
                Some((block, Target::Inside)) if word + 8 == blocks.end(block as usize) => {}
                Some((block, target)) => graph.add(Edge::new(block, target)),
                None => {}
            });
        }
        graph.end_node();
    }

    /// Adds what nothing else has taken of a mapping.
    fn mapping(
        &mut self,
        low: u64,
        high: u64,
        is_guarded: bool,
        graph: &mut Graph,
        window: &mut Window,
    ) {
        let first = self.taken.partition_point(|(_, end)| *end <= low);
        let taken: Vec<(u64, u64)> =
            self.taken[first..].iter().copied().take_while(|(start, _)| *start < high).collect();
        let is_whole = taken.is_empty();
        let mut at = low;
        for (start, end) in taken.into_iter().chain([(high, high)]) {
            let until = start.min(high);
            if until > at {
                let is_dead = is_guarded && is_whole && self.has_thread(at, until, window);
                let kind = if is_dead { RootKind::DeadStack } else { RootKind::Mapping };
                let what = if is_dead { "stack of an ended thread" } else { "mapping" };
                self.open(kind, format!("{what} at {at:#x}"));
                self.range(at, until, graph, window);
                graph.end_node();
            }
            at = at.max(end);
        }
    }

    /// Returns whether a range ends with the C library's description of a thread, which begins with
    /// its own address and has it again in its third word (on x86-64).
    fn has_thread(&self, low: u64, high: u64, window: &mut Window) -> bool {
        let from = high.saturating_sub(DESCRIBED_IN).max(low);
        let Some(read) = window.read(from, (high - from) & !7, high) else { return false };
        let words: Vec<u64> = words(read).collect();
        let own = |index: usize| from + index as u64 * 8;
        (0..words.len().saturating_sub(2))
            .any(|index| words[index] == own(index) && words[index + 2] == own(index))
    }
}

/// Returns the arrays of CPython, in a range of variables, with the objects that it keeps for
/// reuse. Behind those that are kept, they have old pointers to objects that are in use. An array
/// is a run of pointers to blocks, of which most lead to a list, dictionary or tuple: arrays with
/// such pointers that belong to a program are blocks, not variables.
fn free_lists(blocks: &Blocks, (low, high): (u64, u64), window: &mut Window) -> Vec<Range<u64>> {
    /// The arrays have 80 elements.
    const LEAST: usize = 16;
    let mut found: Vec<Range<u64>> = Vec::new();
    if !blocks.has_reused() {
        return found;
    }
    let (mut run, mut pointers, mut reused) = (low..low, 0usize, 0usize);
    let mut end = |run: &Range<u64>, pointers: usize, reused: usize| {
        if pointers >= LEAST && reused * 2 > pointers {
            found.push(run.clone());
        }
    };
    window.each_word(low, high, |address, word| {
        let block = blocks.find(word).map(|(block, _)| block);
        if address != run.end || block.is_none() {
            end(&run, pointers, reused);
            (run, pointers, reused) = (address..address, 0, 0);
        }
        match block {
            Some(block) => {
                run.end = address + 8;
                pointers += 1;
                reused += usize::from(blocks.is_reused(block));
            }
            None => run = address + 8..address + 8,
        }
    });
    end(&run, pointers, reused);
    found
}

/// Returns whether a shared mapping with this path is memory, and not a file or a device.
fn is_memory(path: &str) -> bool {
    ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV"].iter().any(|start| path.starts_with(start))
}

/// Sorts ranges, and joins those that overlap.
fn merge(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let overlaps = next.0 <= before.1;
        before.1 = if overlaps { before.1.max(next.1) } else { before.1 };
        overlaps
    });
}

/// Returns the memory that glibc manages around a block with this header: a mapping of its own, the
/// arena, or the whole mapping.
pub(crate) fn glibc_memory(start: u64, header: u64, mapping: (u64, u64)) -> (u64, u64) {
    if header & IS_MAPPED != 0 {
        let from = (start - HEADER) & !(PAGE - 1);
        return (from, from.saturating_add(header & !7).min(mapping.1));
    }
    if header & IS_IN_ARENA != 0 {
        let from = start & !(ARENA_BYTES - 1);
        return (from, from + ARENA_BYTES);
    }
    mapping
}

/// Returns the pages of a block: what else another allocator manages is not known.
pub(crate) fn pages_of(start: u64, bytes: u64) -> (u64, u64) {
    let end = start.saturating_add(bytes.max(1));
    (start & !(PAGE - 1), end.saturating_add(PAGE - 1) & !(PAGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_are_joined() {
        let mut ranges = vec![(5, 7), (1, 9), (2, 3), (9, 10), (20, 30)];
        merge(&mut ranges);
        assert_eq!(ranges, [(1, 10), (20, 30)]);
    }

    #[test]
    fn memory_of_the_allocator_is_what_its_header_says() {
        let mapping = (0x7f00_0000_0000, 0x7f00_1000_0000);
        let start = 0x7f00_0401_0010;
        let of = |header| glibc_memory(start, header, mapping);
        assert_eq!(of(0x2002), (0x7f00_0401_0000, 0x7f00_0401_2000));
        assert_eq!(of(0x25), (0x7f00_0400_0000, 0x7f00_0800_0000));
        assert_eq!(of(0x21), mapping);
        assert_eq!(pages_of(start, 0x2000), (0x7f00_0401_0000, 0x7f00_0401_3000));
        assert_eq!(pages_of(0x1000, 0), (0x1000, 0x2000));
    }
}
