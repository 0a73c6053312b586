//! Two searches compared: what keeps more or less memory than before, and what more is lost.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::diff::Change;
use super::retained::OfSites;
use crate::model::retained::{Declared, KEEPERS_MAX, Keeper, Kept, Node, RootKind, Search};
use crate::model::{FrameId, Process};

/// What keeps memory, in a form that can be compared between processes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeeperName {
    /// The kind of a root; `None` for blocks.
    pub kind: Option<RootKind>,
    /// The name of a root; for blocks, the function that allocated them.
    pub name: String,
    /// The file name of the module of a variable.
    pub module: Option<String>,
    /// Where a variable is declared.
    pub declared: Option<Declared>,
}

/// Blocks at two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptChange {
    /// In the older search. Of a keeper that this does not contain because it had too many, the
    /// most that it can have had.
    pub before: Kept,
    /// In the newer search, likewise.
    pub after: Kept,
}

impl KeptChange {
    /// Returns the change of bytes.
    pub fn bytes(&self) -> Change {
        Change { before: self.before.bytes, after: self.after.bytes }
    }

    /// Returns the change of the number of blocks.
    pub fn blocks(&self) -> Change {
        Change { before: self.before.blocks, after: self.after.blocks }
    }
}

/// The change of what keeps memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeeperChange {
    /// What keeps it; blocks that one function allocated are one keeper.
    pub name: KeeperName,
    /// The change.
    pub change: KeptChange,
    /// Whether the change is at least this large, because one search does not contain the keeper
    /// and had too many of them.
    pub is_bound: bool,
    /// The change by the function that allocated the blocks, the largest first.
    pub owners: Vec<(Option<String>, KeptChange)>,
}

/// A process that was searched.
#[derive(Clone, Copy, Debug)]
pub struct SearchedProcess<'a> {
    /// The process, with the rows of its sites.
    pub process: &'a Process,
    /// What was found.
    pub search: &'a Search,
}

/// The changes between two searches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeeperChanges {
    /// Keepers with a change, the largest first.
    pub keepers: Vec<KeeperChange>,
    /// All blocks.
    pub all: KeptChange,
    /// Blocks that several roots keep together.
    pub shared: KeptChange,
    /// Lost blocks.
    pub lost: KeptChange,
    /// Lost blocks by function, the largest change first.
    pub lost_owners: Vec<(Option<String>, KeptChange)>,
    /// The time between the two, if they are of the same process image; nanoseconds.
    pub between_ns: Option<u64>,
}

impl KeeperChanges {
    /// Compares two searches.
    pub fn between(older: SearchedProcess, newer: SearchedProcess) -> KeeperChanges {
        let sides = [older, newer].map(Side::of);
        let [before, after] = &sides;
        let mut names: Vec<&KeeperName> =
            before.keepers.keys().chain(after.keepers.keys()).collect();
        names.sort();
        names.dedup();
        let mut keepers: Vec<KeeperChange> =
            names.into_iter().filter_map(|name| change_of(name, before, after)).collect();
        keepers.sort_by_key(|keeper| Reverse(keeper.change.bytes().amount().unsigned_abs()));
        let of_both =
            |of: fn(&SearchedProcess) -> Kept| KeptChange { before: of(&older), after: of(&newer) };
        let identity = |of: &SearchedProcess| {
            let identity = &of.process.identity;
            (identity.pid, identity.image, of.process.lifetime.start_realtime_ns)
        };
        let times = [&older, &newer].map(|of| of.search.when.time_ns);
        KeeperChanges {
            keepers,
            all: of_both(|of| of.search.retained.all),
            shared: of_both(|of| of.search.retained.shared),
            lost: of_both(|of| of.search.retained.lost()),
            lost_owners: changes(&before.lost, &after.lost),
            between_ns: (identity(&older) == identity(&newer))
                .then(|| times[1].checked_sub(times[0]))
                .flatten(),
        }
    }
}

/// Blocks by the name of the function that allocated them.
type Owners = FxHashMap<Option<String>, Kept>;

/// What one search found.
struct Side {
    keepers: FxHashMap<KeeperName, (Kept, Owners)>,
    lost: Owners,
    /// The most that a keeper can have that is not among these.
    most_elsewhere: Kept,
}

impl Side {
    fn of(of: SearchedProcess) -> Side {
        let retained = &of.search.retained;
        let sites = OfSites::of(of.process);
        let named = |frame: Option<FrameId>| frame.map(|id| of.process.label(id).into_owned());
        let owners = |of: &mut Owners, blocks: &mut dyn Iterator<Item = (u32, Kept)>| {
            for (frame, kept) in sites.by_frame(blocks) {
                of.entry(named(frame)).or_default().plus(kept);
            }
        };
        let mut keepers: FxHashMap<KeeperName, (Kept, Owners)> = FxHashMap::default();
        for keeper in &retained.keepers {
            let name = name_of(keeper, of, |site| named(sites.frame(site)));
            let (kept, of_keeper) = keepers.entry(name).or_default();
            kept.plus(keeper.kept);
            owners(of_keeper, &mut keeper.sites.iter().copied());
        }
        let mut lost = Owners::default();
        let of_lost = retained.sites.iter().filter(|row| row.state.is_lost());
        owners(&mut lost, &mut of_lost.map(|row| (row.site, row.kept)));
        let is_full = retained.keepers.len() >= KEEPERS_MAX;
        let last = retained.keepers.last().filter(|_| is_full);
        // Every block has at least one byte.
        let most = last.map(|keeper| Kept { blocks: keeper.kept.bytes, bytes: keeper.kept.bytes });
        Side { keepers, lost, most_elsewhere: most.unwrap_or_default() }
    }
}

fn name_of(
    keeper: &Keeper,
    of: SearchedProcess,
    owner: impl Fn(u32) -> Option<String>,
) -> KeeperName {
    match keeper.node {
        Node::Root(root) => {
            let root = &of.search.retained.roots[root];
            KeeperName {
                kind: Some(root.kind),
                name: root.name.clone(),
                module: root.module.clone(),
                declared: root.declared.clone(),
            }
        }
        Node::Blocks { site, .. } => {
            let name = owner(site).unwrap_or_else(|| "code without a stack".to_owned());
            KeeperName { kind: None, name, module: None, declared: None }
        }
    }
}

/// Returns the change of a keeper, if there is one.
fn change_of(name: &KeeperName, before: &Side, after: &Side) -> Option<KeeperChange> {
    let nothing = Owners::default();
    let of_side = |side: &Side| side.keepers.get(name).map(|(kept, _)| *kept);
    let (old, new) = (of_side(before), of_side(after));
    let change = KeptChange {
        before: old.unwrap_or(before.most_elsewhere),
        after: new.unwrap_or(after.most_elsewhere),
    };
    let is_bound =
        change.before != old.unwrap_or_default() || change.after != new.unwrap_or_default();
    // With a bound, only a change in this direction is certain.
    let is_certain = match (old, new) {
        (None, _) => change.bytes().amount() > 0,
        (_, None) => change.bytes().amount() < 0,
        _ => change.before != change.after,
    };
    let of_before = before.keepers.get(name).map_or(&nothing, |(_, owners)| owners);
    let of_after = after.keepers.get(name).map_or(&nothing, |(_, owners)| owners);
    is_certain.then(|| KeeperChange {
        name: name.clone(),
        change,
        is_bound,
        owners: changes(of_before, of_after),
    })
}

/// Returns the changes by function, the largest first.
fn changes(before: &Owners, after: &Owners) -> Vec<(Option<String>, KeptChange)> {
    let mut names: Vec<&Option<String>> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let of = |owners: &Owners, name: &Option<String>| owners.get(name).copied().unwrap_or_default();
    let change =
        |name: &Option<String>| KeptChange { before: of(before, name), after: of(after, name) };
    let mut all: Vec<(Option<String>, KeptChange)> =
        names.into_iter().map(|name| (name.clone(), change(name))).collect();
    all.retain(|(_, change)| change.before != change.after);
    all.sort_by_key(|(_, change)| Reverse(change.bytes().amount().unsigned_abs()));
    all
}
