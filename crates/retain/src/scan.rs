//! Finds the pointers between blocks, in one pass in the order of addresses.

use std::ops::Range;

use heaptide_attach::picture::Picture;

use crate::blocks::{Batch, Blocks};
use crate::graph::{Edge, Graph};
use crate::roots::{glibc_memory, pages_of};
use crate::window::{WINDOW, Window, words};

/// The result of the pass over blocks.
pub(crate) struct Scanned {
    pub(crate) graph: Graph,
    /// The memory of the allocator.
    pub(crate) heap: Vec<(u64, u64)>,
    /// Bytes of blocks that could not be read.
    pub(crate) unread: u64,
}

/// Blocks of at least this many bytes can have pages that were never written.
const LARGE: u64 = WINDOW;
/// Words that are looked up together.
const BATCH: usize = 1024;

/// Adds the edges of the blocks whose words are in a batch, in order.
fn add(batch: &mut Batch, blocks: &Blocks, graph: &mut Graph) {
    blocks.find_all(batch, |block, (to, target)| {
        while graph.nodes() < block as usize {
            graph.end_node();
        }
        if to != block {
            graph.add(Edge::new(to, target));
        }
    });
}

/// Reads all blocks, except those whose contents are something else than pointers of the program:
/// `omitted`, by number in ascending order.
pub(crate) fn blocks(picture: &Picture, blocks: &Blocks, omitted: &[u32]) -> Scanned {
    let mut window = Window::new(picture);
    let mut graph = Graph::of_blocks(blocks.len());
    let mut batch = Batch::default();
    let mut heap: Vec<(u64, u64)> = Vec::new();
    let mut unread = 0;
    let mut mappings = picture.mappings.iter().peekable();
    let mut omitted = omitted.iter().peekable();
    for block in 0..blocks.len() {
        let (start, bytes) = (blocks.start(block), blocks.extent(block));
        while mappings.next_if(|mapping| mapping.high <= start).is_some() {}
        let Some(mapping) = mappings.peek() else { break };
        let header = blocks.header(block, &mut window, mapping.high);
        let memory = match header {
            Some(header) => glibc_memory(start, header, (mapping.low, mapping.high)),
            None => pages_of(start, bytes),
        };
        if heap.last() != Some(&memory) {
            heap.push(memory);
        }
        if omitted.next_if(|omitted| **omitted as usize == block).is_some() {
            continue;
        }
        let extent = start..start + bytes;
        let is_large = bytes >= LARGE;
        let existing = if is_large { picture.existing(extent) } else { vec![extent] };
        for Range { start, end } in existing {
            let mut done = 0;
            while start + done + 8 <= end {
                let part = (end - start - done).min(WINDOW / 2) & !7;
                // Behind a part of a large block, pages may not exist.
                let last = if is_large { end } else { mapping.high.max(end) };
                let Some(read) = window.read(start + done, part, last) else {
                    unread += end - start - done;
                    break;
                };
                let near = words(read).filter(|word| blocks.is_near(*word));
                batch.words.extend(near.map(|word| (block as u32, word)));
                done += part;
            }
        }
        if batch.words.len() >= BATCH {
            add(&mut batch, blocks, &mut graph);
        }
    }
    add(&mut batch, blocks, &mut graph);
    while graph.nodes() < blocks.len() {
        graph.end_node();
    }
    Scanned { graph, heap, unread }
}
