//! The analysis: from a picture to what is lost, and what keeps the rest.

use heaptide_analysis::model::retained::{
    KEEPERS_MAX, Keeper, Kept, Node, OfState, Retained, Root, RootKind, State, Unread,
};
use heaptide_analysis::symbols::Demangler;
use heaptide_attach::picture::Picture;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;

use crate::blocks::{Blocks, Facts};
use crate::dominators::Dominators;
use crate::dynamic_tls::{DynamicTls, Table};
use crate::graph::Graph;
use crate::modules::Modules;
use crate::reach::{NONE, Reached};
use crate::roots::{Finder, ThreadNames};
use crate::scan;
use crate::tiers::Tiers;

/// Steps of a path that are returned.
const STEPS: usize = 32;

/// Which blocks of a process were recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// All live ones. Otherwise pointers in all memory of the allocator count.
    pub all: bool,
    /// Also objects of CPython.
    pub python: bool,
}

/// Analyses a picture of a process. `facts` returns what the profile knows about a site.
pub fn retained(
    pid: Pid,
    picture: &Picture,
    recorded: Recorded,
    facts: impl Fn(u32) -> Facts,
) -> Retained {
    let blocks = Blocks::of(picture, recorded.python, &facts);
    let modules = Modules::of(pid, &picture.mappings);
    let dynamic_tls = DynamicTls::of(picture, &modules);
    let tables = picture.threads.iter().filter_map(|thread| dynamic_tls.table(thread.pointer));
    let tables: Vec<Table> = tables.collect();
    // What the tables lead to are roots of their own, and freed objects lead to nothing.
    let of_tables = tables.iter().filter_map(|table| Some(blocks.find(table.start)?.0));
    let mut omitted: Vec<u32> = of_tables.chain(blocks.freed.iter().copied()).collect();
    omitted.sort_unstable();
    omitted.dedup();
    let scanned = scan::blocks(picture, &blocks, &omitted);
    let mut graph = scanned.graph;
    let names = thread_names(pid, picture);
    let mut finder = Finder {
        picture,
        modules: &modules,
        names: &names,
        blocks: &blocks,
        dynamic_tls,
        tables,
        has_all_blocks: recorded.all,
        heap: scanned.heap,
        taken: Vec::new(),
        roots: Vec::new(),
        variables: FxHashMap::default(),
        demangler: Demangler::default(),
        unread: 0,
    };
    finder.find(&mut graph);
    let (mut roots, variables, unread) = (finder.roots, finder.variables, finder.unread);
    let reached = Reached::of(&graph, blocks.len(), &roots);
    let bytes = |block: usize| {
        if blocks.is_estimated(block) {
            facts(blocks.site(block)).mean_bytes
        } else {
            blocks.extent(block)
        }
    };
    let mut all = Kept::default();
    let mut states = [Kept::default(); State::ALL.len()];
    for block in 0..blocks.len() {
        all.add(bytes(block));
        if let Some(state) = reached.states[block] {
            states[state as usize].add(bytes(block));
        }
    }
    let sites = by_site(&blocks, &reached, &bytes);
    drop(reached);
    let (keepers, shared) = keepers(&graph, &blocks, &roots, &bytes);
    let shown = keepers.iter().map(|keeper| keeper.node);
    let shown = shown.chain(sites.iter().filter_map(|row| row.path.first().copied()));
    declare(&mut roots, shown, &variables, &modules);
    Retained {
        all,
        states,
        sites,
        roots,
        keepers,
        shared,
        estimated: blocks.estimated as u64,
        unread: Unread { blocks: scanned.unread, roots: unread },
        is_copy: picture.is_copy,
        busy: picture.busy,
    }
}

/// Sets where the variables of these nodes are declared.
fn declare(
    roots: &mut [Root],
    nodes: impl Iterator<Item = Node>,
    variables: &FxHashMap<usize, (String, u64)>,
    modules: &Modules,
) {
    let mut of_module: FxHashMap<&str, FxHashMap<u64, usize>> = FxHashMap::default();
    for node in nodes {
        if let Node::Root(root) = node
            && let Some((path, address)) = variables.get(&root)
        {
            of_module.entry(path).or_default().insert(*address, root);
        }
    }
    for (path, wanted) in of_module {
        let Some(module) = modules.get(path) else { continue };
        let addresses: Vec<u64> = wanted.keys().copied().collect();
        for (address, place) in module.declared(&addresses) {
            roots[wanted[&address]].declared = Some(place);
        }
    }
}

fn thread_names(pid: Pid, picture: &Picture) -> ThreadNames {
    let named = picture.threads.iter().filter_map(|thread| {
        let path = format!("/proc/{pid}/task/{}/comm", thread.tid);
        let name = std::fs::read_to_string(path).ok()?;
        Some((thread.tid, name.trim_end().to_owned()))
    });
    named.collect()
}

/// Sums blocks by site and state, with a path to one block of each.
fn by_site(blocks: &Blocks, reached: &Reached, bytes: &impl Fn(usize) -> u64) -> Vec<OfState> {
    let mut sums: FxHashMap<(u32, State), (Kept, usize)> = FxHashMap::default();
    for block in 0..blocks.len() {
        let Some(state) = reached.states[block] else { continue };
        let sum = sums.entry((blocks.site(block), state)).or_insert((Kept::default(), block));
        sum.0.add(bytes(block));
    }
    let path = |block: usize| path(blocks, reached, block);
    let mut sites: Vec<OfState> = sums
        .into_iter()
        .map(|((site, state), (kept, block))| OfState { site, state, kept, path: path(block) })
        .collect();
    sites.sort_by(|a, b| b.kept.bytes.cmp(&a.kept.bytes).then(a.site.cmp(&b.site)));
    sites
}

/// Returns what leads to a block, from the root on.
fn path(blocks: &Blocks, reached: &Reached, block: usize) -> Vec<Node> {
    let mut steps: Vec<Node> = Vec::new();
    let mut at = reached.from[block];
    while at != NONE {
        let Some(root) = (at as usize).checked_sub(blocks.len()) else {
            let site = blocks.site(at as usize);
            match steps.last_mut() {
                Some(Node::Blocks { site: same, count }) if *same == site => *count += 1,
                _ => steps.push(Node::Blocks { site, count: 1 }),
            }
            at = reached.from[at as usize];
            continue;
        };
        steps.push(Node::Root(root));
        break;
    }
    if !matches!(steps.last(), Some(Node::Root(_))) {
        return Vec::new(); // lost
    }
    steps.reverse();
    steps.truncate(STEPS);
    steps
}

/// What a keeper keeps, while it is added up.
#[derive(Default)]
struct KeeperSum {
    kept: Kept,
    sites: FxHashMap<u32, Kept>,
    also_from: Option<RootKind>,
}

/// Returns what keeps most, and the sum of the blocks that several roots keep together.
fn keepers(
    graph: &Graph,
    blocks: &Blocks,
    roots: &[Root],
    bytes: &impl Fn(usize) -> u64,
) -> (Vec<Keeper>, Kept) {
    let count = blocks.len();
    let tiers = Tiers::of(graph, count, roots);
    let dominators = Dominators::of(graph, count, |node, edge| tiers.keeps(node, edge));
    let of_node = |node: u32| if (node as usize) < count { bytes(node as usize) } else { 0 };
    let sums = dominators.sums(of_node);
    let is_root = |node: u32| (count..count + roots.len()).contains(&(node as usize));
    // The number of what keeps each node alone: the node below the first one on its path.
    let mut tops = vec![0u32; sums.len()];
    let mut highest = Vec::new();
    for (number, &dominator) in (0u32..).zip(&dominators.of).skip(1) {
        let is_top = dominator == 0;
        tops[number as usize] = if is_top { number } else { tops[dominator as usize] };
        if is_top && sums[number as usize] > 0 {
            highest.push(number);
        }
    }
    let mut shared = Kept::default();
    highest.sort_unstable_by_key(|&number| {
        let of_block = !is_root(dominators.nodes[number as usize]);
        (std::cmp::Reverse(sums[number as usize]), of_block, number)
    });
    let mut of_keeper: FxHashMap<u32, KeeperSum> =
        highest.iter().take(KEEPERS_MAX).map(|&number| (number, Default::default())).collect();
    let numbered = dominators.nodes.iter().zip(&tops).skip(1);
    for (node, top) in numbered.map(|(&node, top)| (node as usize, top)) {
        if node >= count {
            continue;
        }
        let size = bytes(node);
        match of_keeper.get_mut(top) {
            Some(KeeperSum { kept, sites, also_from }) => {
                kept.add(size);
                *also_from = also_from.or(tiers.also(node));
                sites.entry(blocks.site(node)).or_default().add(size);
            }
            None if !is_root(dominators.nodes[*top as usize]) => shared.add(size),
            None => {}
        }
    }
    let keeper = |number: &u32| {
        let KeeperSum { kept, sites, also_from } = of_keeper.remove(number)?;
        let node = dominators.nodes[*number as usize] as usize;
        let node = match node.checked_sub(count) {
            Some(root) => Node::Root(root),
            None => Node::Blocks { site: blocks.site(node), count: 1 },
        };
        let mut sites: Vec<(u32, Kept)> = sites.into_iter().collect();
        sites.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(&b.0)));
        Some(Keeper { node, kept, sites, also_from })
    };
    let keepers = highest.iter().take(KEEPERS_MAX).filter_map(keeper).collect();
    (keepers, shared)
}
