//! What keeps more or less memory than at an earlier search, as JSON.

use std::io::{self, Write};
use std::path::Path;

use heaptide_analysis::model::Process;
use heaptide_analysis::views::keeper_changes::{KeeperChange, KeeperChanges, KeptChange};
use serde::Serialize;

use crate::json::document;

/// Writes the changes; `process` is the newer one, and `path` its profile or snapshot.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    path: &Path,
    process: &Process,
    changes: &KeeperChanges,
) -> io::Result<()> {
    let view = ChangesEntry {
        between_ns: changes.between_ns,
        live: ChangeEntry::of(&changes.all),
        shared: ChangeEntry::of(&changes.shared),
        lost: ChangeEntry::of(&changes.lost),
        keepers: changes.keepers.iter().map(KeeperEntry::of).collect(),
        lost_owners: OwnerEntry::all(&changes.lost_owners),
    };
    document::write_running(out, path, process, view)
}

#[derive(Serialize)]
struct ChangesEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    between_ns: Option<u64>,
    live: ChangeEntry,
    shared: ChangeEntry,
    lost: ChangeEntry,
    keepers: Vec<KeeperEntry<'a>>,
    lost_owners: Vec<OwnerEntry<'a>>,
}

/// Blocks and bytes in both searches.
#[derive(Serialize)]
struct ChangeEntry {
    blocks_before: u64,
    blocks: u64,
    bytes_before: u64,
    bytes: u64,
}

impl ChangeEntry {
    fn of(change: &KeptChange) -> ChangeEntry {
        ChangeEntry {
            blocks_before: change.before.blocks,
            blocks: change.after.blocks,
            bytes_before: change.before.bytes,
            bytes: change.after.bytes,
        }
    }
}

#[derive(Serialize)]
struct KeeperEntry<'a> {
    kind: &'static str,
    name: &'a str,
    module: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    /// Whether the change is at least this large.
    is_bound: bool,
    #[serde(flatten)]
    change: ChangeEntry,
    owners: Vec<OwnerEntry<'a>>,
}

impl<'a> KeeperEntry<'a> {
    fn of(keeper: &'a KeeperChange) -> KeeperEntry<'a> {
        let (name, declared) = (&keeper.name, keeper.name.declared.as_ref());
        KeeperEntry {
            kind: name.kind.map_or("blocks", |kind| kind.name()),
            name: &name.name,
            module: name.module.as_deref(),
            file: declared.map(|declared| &*declared.file),
            line: declared.map(|declared| declared.line),
            is_bound: keeper.is_bound,
            change: ChangeEntry::of(&keeper.change),
            owners: OwnerEntry::all(&keeper.owners),
        }
    }
}

#[derive(Serialize)]
struct OwnerEntry<'a> {
    function: Option<&'a str>,
    #[serde(flatten)]
    change: ChangeEntry,
}

impl<'a> OwnerEntry<'a> {
    fn all(owners: &'a [(Option<String>, KeptChange)]) -> Vec<OwnerEntry<'a>> {
        let entry = |(function, change): &'a (Option<String>, KeptChange)| OwnerEntry {
            function: function.as_deref(),
            change: ChangeEntry::of(change),
        };
        owners.iter().map(entry).collect()
    }
}
