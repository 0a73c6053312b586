//! The graph of blocks and roots: blocks come first, in order of address, then roots.

/// What a pointer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The start of a block, or that of the object in it.
    Start,
    /// The inside of a block.
    Inside,
    /// The link by which Python's garbage collector lists an object, which keeps nothing.
    Link,
}

/// An edge: the block that it leads to, and to what of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge(u32);

impl Edge {
    pub(crate) fn new(block: u32, target: Target) -> Edge {
        Edge(block << 2 | target as u32)
    }

    pub(crate) fn to(self) -> usize {
        (self.0 >> 2) as usize
    }

    pub(crate) fn is_to(self, target: Target) -> bool {
        self.0 & 3 == target as u32
    }
}

/// Edges by their source.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Where the edges of each node end.
    ends: Vec<u32>,
    edges: Vec<Edge>,
}

impl Graph {
    /// Returns a graph with room for the edges of `blocks` blocks.
    pub(crate) fn of_blocks(blocks: usize) -> Graph {
        Graph { ends: Vec::with_capacity(blocks + 1), edges: Vec::with_capacity(blocks) }
    }

    /// Adds an edge of the current node.
    #[inline]
    pub(crate) fn add(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    /// Ends the current node.
    #[inline]
    pub(crate) fn end_node(&mut self) {
        self.ends.push(self.edges.len() as u32);
    }

    /// Continues the last node.
    pub(crate) fn reopen_node(&mut self) {
        self.ends.pop();
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub(crate) fn edges(&self, node: usize) -> &[Edge] {
        let from = node.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.edges[from as usize..self.ends[node] as usize]
    }
}
