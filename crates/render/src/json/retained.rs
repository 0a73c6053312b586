//! Which live blocks of a program are lost, and what keeps the others, as JSON.

use std::io::{self, Write};
use std::path::Path;

use heaptide_analysis::model::retained::{Keeper, Kept, Node, OfState, Retained, RootKind, State};
use heaptide_analysis::model::{FrameId, Process};
use heaptide_analysis::views::retained::OfSites;
use serde::Serialize;

use crate::json::document;
use crate::shared::moment::Moment;

/// Writes the blocks of a process, which must have the rows of its sites. `path` is its profile.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    path: &Path,
    process: &Process,
    retained: &Retained,
    moment: Moment,
) -> io::Result<()> {
    let names = Names { process, retained, sites: OfSites::of(process) };
    let states = State::ALL.into_iter().zip(retained.states);
    let view = RetainedEntry {
        stopped_ns: match moment {
            Moment::Running { stopped_ns } => Some(stopped_ns),
            Moment::Snapshot { .. } | Moment::End { .. } => None,
        },
        moment: match moment {
            Moment::Running { .. } => "running",
            Moment::Snapshot { .. } => "snapshot",
            Moment::End { before_python_ended: true, .. } => "python_ends",
            Moment::End { .. } => "exit",
        },
        time_ns: match moment {
            Moment::Running { .. } => None,
            Moment::Snapshot { time_ns, .. } | Moment::End { time_ns, .. } => Some(time_ns),
        },
        copied: retained.is_copy,
        busy_threads: retained.busy,
        estimated_sizes: retained.estimated,
        unread_bytes: retained.unread.blocks + retained.unread.roots,
        live_blocks: retained.all.blocks,
        live_bytes: retained.all.bytes,
        states: states.map(|(state, kept)| StateEntry::of(state, kept)).collect(),
        keepers: retained.keepers.iter().map(|keeper| names.keeper(keeper)).collect(),
        shared_blocks: retained.shared.blocks,
        shared_bytes: retained.shared.bytes,
        sites: retained.sites.iter().map(|row| names.site(row)).collect(),
    };
    document::write_running(out, path, process, view)
}

#[derive(Serialize)]
struct RetainedEntry {
    moment: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    copied: bool,
    busy_threads: usize,
    estimated_sizes: u64,
    unread_bytes: u64,
    live_blocks: u64,
    live_bytes: u64,
    states: Vec<StateEntry>,
    keepers: Vec<KeeperEntry>,
    shared_blocks: u64,
    shared_bytes: u64,
    sites: Vec<SiteEntry>,
}

#[derive(Serialize)]
struct StateEntry {
    state: &'static str,
    blocks: u64,
    bytes: u64,
}

impl StateEntry {
    fn of(state: State, kept: Kept) -> StateEntry {
        StateEntry { state: state.name(), blocks: kept.blocks, bytes: kept.bytes }
    }
}

/// The function that allocated blocks; all null without a stack.
#[derive(Serialize)]
struct OwnerEntry {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// A root, or blocks of one stack.
#[derive(Serialize)]
#[serde(untagged)]
enum NodeEntry {
    Root {
        kind: &'static str,
        name: String,
        module: Option<String>,
        file: Option<String>,
        line: Option<u32>,
    },
    Blocks {
        kind: &'static str,
        count: u64,
        owner: OwnerEntry,
    },
}

#[derive(Serialize)]
struct KeeperEntry {
    by: NodeEntry,
    blocks: u64,
    bytes: u64,
    also_from: Option<&'static str>,
    owners: Vec<OwnedEntry>,
}

#[derive(Serialize)]
struct OwnedEntry {
    owner: OwnerEntry,
    blocks: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct SiteEntry {
    owner: OwnerEntry,
    #[serde(flatten)]
    state: StateEntry,
    path: Vec<NodeEntry>,
}

struct Names<'a> {
    process: &'a Process,
    retained: &'a Retained,
    sites: OfSites<'a>,
}

impl Names<'_> {
    fn owner(&self, frame: Option<FrameId>) -> OwnerEntry {
        let frame = frame.map(|id| &self.process.tables.frames[id.0 as usize]);
        OwnerEntry {
            function: frame.and_then(|frame| frame.function.as_deref()).map(str::to_owned),
            file: frame.and_then(|frame| frame.file.as_deref()).map(str::to_owned),
            line: frame.and_then(|frame| frame.line),
        }
    }

    fn node(&self, node: Node) -> NodeEntry {
        match node {
            Node::Root(root) => {
                let root = &self.retained.roots[root];
                let (name, module) = (root.name.clone(), root.module.clone());
                let (file, line) = root.declared.clone().map(|at| (at.file, at.line)).unzip();
                NodeEntry::Root { kind: root.kind.name(), name, module, file, line }
            }
            Node::Blocks { site, count } => {
                let owner = self.owner(self.sites.frame(site));
                NodeEntry::Blocks { kind: "blocks", count, owner }
            }
        }
    }

    fn keeper(&self, keeper: &Keeper) -> KeeperEntry {
        let owners = self.sites.by_frame(keeper.sites.iter().copied()).into_iter();
        let owned = |(frame, kept): (Option<FrameId>, Kept)| OwnedEntry {
            owner: self.owner(frame),
            blocks: kept.blocks,
            bytes: kept.bytes,
        };
        KeeperEntry {
            by: self.node(keeper.node),
            blocks: keeper.kept.blocks,
            bytes: keeper.kept.bytes,
            also_from: keeper.also_from.map(RootKind::name),
            owners: owners.map(owned).collect(),
        }
    }

    fn site(&self, row: &OfState) -> SiteEntry {
        SiteEntry {
            owner: self.owner(self.sites.frame(row.site)),
            state: StateEntry::of(row.state, row.kept),
            path: row.path.iter().map(|node| self.node(*node)).collect(),
        }
    }
}
