//! The events in a trace.

/// An event. Ids are those of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A block was allocated; recorded after the allocator returned it.
    Allocated(Block),
    /// A block is about to be freed.
    Freed {
        /// The address of the block.
        address: u64,
    },
    /// A block is about to be reallocated. Its result is the next `Allocated`, `StillThere` or
    /// `Released` of the lane; if there is none, the program ended meanwhile.
    Moving {
        /// The address of the block.
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
        /// The site that the allocation would have counted for.
        site: u32,
    },
    /// A block moves to another site, because it got a label.
    Relabelled(Block),
    /// A block moves back to the site at which it was allocated.
    Unlabelled {
        /// The address of the block.
        address: u64,
        /// That site.
        site: u32,
    },
    /// Memory that is no block of the allocator exists from here on: a pool's block, or labelled
    /// memory.
    Opened(Block),
    /// The next `Relabelled` or `Opened` of the lane comes from the labelling with this number.
    Labelled {
        /// The number of the labelling.
        uid: u64,
        /// The id of its shape; 0 if it has none.
        shape: u32,
    },
    /// The elements of the lane's next `Allocated` have this many bytes: it was zeroed memory of
    /// several elements.
    Element(u32),
    /// The program put a mark on the timeline.
    Mark {
        /// The number of the mark.
        number: u32,
    },
    /// Memory that is no block of the allocator no longer exists.
    Closed {
        /// The address of the memory.
        address: u64,
        /// Its site; memory of several sites may start at one address.
        site: u32,
    },
    /// The scope of the thread from here on.
    Scope(u32),
    /// The thread that uses the lane from here on.
    Thread(u32),
    /// The stack node of frees from here on.
    Node(u32),
}

/// Memory that is counted for a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// The address of the memory.
    pub address: u64,
    /// Its site.
    pub site: u32,
    /// Requested bytes.
    pub requested: u64,
    /// Usable bytes.
    pub usable: u64,
    /// Whether a reallocation returned it.
    pub reallocated: bool,
    /// Whether that moved the pages of the old block instead of copying them: the two blocks were
    /// never live at the same time.
    pub remapped: bool,
}
