//! The graph of blocks and roots: blocks come first, in order of address, then roots.

/// An edge: the block that it leads to, and whether it leads to the inside of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge(u32);

impl Edge {
    pub(crate) fn new(block: u32, is_interior: bool) -> Edge {
        Edge(block << 1 | u32::from(is_interior))
    }

    pub(crate) fn to(self) -> usize {
        (self.0 >> 1) as usize
    }

    pub(crate) fn is_interior(self) -> bool {
        self.0 & 1 != 0
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
