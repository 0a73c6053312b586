//! What a trace records.

/// What happened. Ids are those of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A block was allocated; told after the allocator gave it.
    Allocated(Block),
    /// A block is about to be freed.
    Freed {
        /// Where it begins.
        address: u64,
    },
    /// A block is about to be reallocated: what comes of it is the next of `Allocated`,
    /// `StillThere` and `Released` in the lane. If none of them comes the program ended meanwhile.
    Moving {
        /// Where it begins.
        address: u64,
    },
    /// The same as `Freed`, or as `Moving`, with what the allocation of the block held.
    Ended {
        /// Where it begins.
        address: u64,
        /// The site that it counts for.
        site: u32,
        /// Bytes given.
        usable: u64,
        /// Whether it is about to be reallocated.
        moving: bool,
    },
    /// The reallocation failed.
    StillThere,
    /// The reallocation was a free.
    Released,
    /// An allocation failed.
    Failed {
        /// What it would have counted for.
        site: u32,
    },
    /// A block goes to another site, by getting a name.
    Relabelled(Block),
    /// A block goes back to the site that it was allocated at.
    Unlabelled {
        /// Where it begins.
        address: u64,
        /// That site.
        site: u32,
    },
    /// Memory that is no block of the allocator's is known from here on: a pool's block, something
    /// with a name.
    Opened(Block),
    /// The next of `Relabelled` and `Opened` in the lane is by a label with this number.
    Labelled {
        /// The number of the labelling.
        uid: u64,
        /// Its shape; 0 for none.
        shape: u32,
    },
    /// It is no longer.
    Closed {
        /// Where it begins.
        address: u64,
        /// Its site: memory of several sites may begin there.
        site: u32,
    },
    /// The scope that the thread is in from here on.
    Scope(u32),
    /// The thread that has the lane from here on.
    Thread(u32),
    /// The node of the stack of frees from here on.
    Node(u32),
}

/// Memory that a site counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its site.
    pub site: u32,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes given.
    pub usable: u64,
    /// Whether by a reallocation.
    pub reallocated: bool,
}
