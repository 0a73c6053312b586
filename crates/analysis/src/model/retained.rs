//! Which live blocks of a program are lost, and what keeps the others.
//!
//! Sites are those of the profile, by number: [`super::SiteRows`] has their rows.

use serde::{Deserialize, Serialize};

use super::completeness::Searched;

/// Blocks and their usable bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Number of blocks.
    pub blocks: u64,
    /// Their usable bytes.
    pub bytes: u64,
}

impl Kept {
    /// Adds a block of this size.
    pub fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }

    /// Adds other blocks.
    pub fn plus(&mut self, other: Kept) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// The blocks of a site in one state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OfState {
    /// The number of the site.
    pub site: u32,
    /// The state.
    pub state: State,
    /// The blocks.
    pub kept: Kept,
    /// A shortest path from a root to one of them: what comes before the block, from the root on.
    /// Empty for lost blocks.
    pub path: Vec<Node>,
}

/// A step of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Node {
    /// A root, by its index.
    Root(usize),
    /// Consecutive blocks of a site: its number, and how many they are.
    Blocks {
        /// The number of the site.
        site: u32,
        /// The number of blocks.
        count: u64,
    },
}

/// Maximum number of keepers of a search: those that keep most.
pub const KEEPERS_MAX: usize = 1024;

/// A root, or a block that several roots keep, without which memory would be free. Roots of the
/// first of these kinds count that leads to a block: variables, memory that the program mapped,
/// stacks, registers, others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keeper {
    /// The root, or the block by its site.
    pub node: Node,
    /// What would be free without it.
    pub kept: Kept,
    /// That by site, the most bytes first.
    pub sites: Vec<(u32, Kept)>,
    /// The first of the later kinds of roots that lead to some of it, too.
    pub also_from: Option<RootKind>,
}

/// Memory that could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unread {
    /// Bytes of blocks.
    pub blocks: u64,
    /// Bytes of other memory.
    pub roots: u64,
}

/// What is lost in a program, and what keeps the rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Retained {
    /// All blocks.
    pub all: Kept,
    /// The blocks in each state, in the order of [`State::ALL`].
    pub states: [Kept; State::ALL.len()],
    /// The same by site, the most bytes first.
    pub sites: Vec<OfState>,
    /// The roots.
    pub roots: Vec<Root>,
    /// What keeps most, the most bytes first.
    pub keepers: Vec<Keeper>,
    /// Blocks that several roots keep together, of which no keeper has a part.
    pub shared: Kept,
    /// Number of blocks whose size is the average of their site.
    pub estimated: u64,
    /// Memory that could not be read.
    pub unread: Unread,
    /// Whether the program ran while its memory was read.
    pub is_copy: bool,
    /// Number of threads that were in the middle of an allocation.
    pub busy: usize,
}

/// A search of a process for what keeps its blocks.
#[derive(Clone, Debug)]
pub struct Search {
    /// What it found.
    pub retained: Retained,
    /// When it was.
    pub when: Searched,
}

impl Retained {
    /// Returns whether it contains all roots that it refers to.
    pub(crate) fn has_its_roots(&self) -> bool {
        let keepers = self.keepers.iter().map(|keeper| &keeper.node);
        let mut nodes = keepers.chain(self.sites.iter().flat_map(|row| &row.path));
        nodes.all(|node| !matches!(node, Node::Root(root) if *root >= self.roots.len()))
    }

    /// Returns the blocks that are lost.
    pub fn lost(&self) -> Kept {
        let mut lost = self.states[State::Lost as usize];
        lost.plus(self.states[State::LostIndirectly as usize]);
        lost
    }
}

/// How a block can be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum State {
    /// By pointers to the starts of blocks, from variables, thread-local variables or registers.
    Reachable,
    /// Likewise, only from the stack of a thread.
    OnlyFromStack,
    /// Likewise, only from memory that the program mapped itself.
    OnlyFromMapping,
    /// Likewise, only from memory of the allocator in which blocks can be that were not recorded.
    OnlyFromUnrecorded,
    /// Only by way of a pointer to the inside of a block.
    OnlyByInterior,
    /// Only from the stack of a thread that has ended.
    OnlyFromDeadStack,
    /// Only by the list of Python's garbage collector, which keeps nothing: a cycle of objects that
    /// it has not freed yet.
    OnlyByCollector,
    /// Not at all, and no other lost block leads to it, except in a cycle that begins with it.
    Lost,
    /// Only from lost blocks.
    LostIndirectly,
}

impl State {
    /// All states, from the most to the least certain.
    pub const ALL: [State; 9] = [
        State::Reachable,
        State::OnlyFromStack,
        State::OnlyFromMapping,
        State::OnlyFromUnrecorded,
        State::OnlyByInterior,
        State::OnlyFromDeadStack,
        State::OnlyByCollector,
        State::Lost,
        State::LostIndirectly,
    ];

    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            State::Reachable => "reachable",
            State::OnlyFromStack => "only_from_stack",
            State::OnlyFromMapping => "only_from_mapping",
            State::OnlyFromUnrecorded => "only_from_unrecorded",
            State::OnlyByInterior => "only_by_interior",
            State::OnlyFromDeadStack => "only_from_dead_stack",
            State::OnlyByCollector => "only_by_collector",
            State::Lost => "lost",
            State::LostIndirectly => "lost_indirectly",
        }
    }

    /// Returns whether no pointer leads to such a block from outside of lost blocks.
    pub const fn is_lost(self) -> bool {
        matches!(self, State::Lost | State::LostIndirectly)
    }
}

/// The kind of a root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum RootKind {
    /// A variable of a module.
    Variable,
    /// The thread-local variables of a thread, and what the C library keeps for it.
    ThreadLocal,
    /// The registers of a thread.
    Registers,
    /// The stack of a thread.
    Stack,
    /// Memory that the program mapped, and that contains no blocks.
    Mapping,
    /// Memory of the allocator in which blocks can be that were not recorded.
    Unrecorded,
    /// The stack of a thread that has ended, which the C library keeps for the next one.
    DeadStack,
}

impl RootKind {
    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            RootKind::Variable => "variable",
            RootKind::ThreadLocal => "thread_local",
            RootKind::Registers => "registers",
            RootKind::Stack => "stack",
            RootKind::Mapping => "mapping",
            RootKind::Unrecorded => "unrecorded",
            RootKind::DeadStack => "dead_stack",
        }
    }

    /// Returns whether all words of such roots are in use.
    pub const fn is_certain(self) -> bool {
        matches!(self, RootKind::Variable | RootKind::ThreadLocal | RootKind::Registers)
    }
}

/// A root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Root {
    /// Its kind.
    pub kind: RootKind,
    /// The name of a variable, else a description.
    pub name: String,
    /// The name of the file of its module, of variables.
    pub module: Option<String>,
    /// Where it is declared, of the variables of [`Retained::keepers`] and paths, if debug
    /// information states it.
    pub declared: Option<Declared>,
}

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Declared {
    /// The name of the file, as the compiler stored it.
    pub file: String,
    /// The line.
    pub line: u32,
}
