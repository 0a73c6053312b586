//! Export of the scopes of each thread in the formats of malloc-tag: its JSON, its graph for
//! Graphviz, its tree as text, and its map of statistics as lines.
//!
//! For a reallocation, malloc-tag counts the whole new block and no free; Heaptide counts a free of
//! the old block here, too. The formats cannot represent stacks, labels, live blocks and peaks.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heaptide_analysis::model::{Call, End, LaneId, Measure, Process, ScopeId, Site};
use heaptide_analysis::views::memory::{At, Memory};
use heaptide_analysis::views::scopes;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::shared::branches::{Branches, LEVELS, What};
use crate::shared::json_text;

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// JSON, for malloc-tag's own tools.
    Json,
    /// A graph for Graphviz.
    Dot,
    /// A tree as text.
    Tree,
    /// `KEY=NUMBER` lines, with the contents of malloc-tag's `MallocTagStatMap_t`.
    Map,
}

/// State that a program with malloc-tag's interface knows and a recording does not contain: words
/// `NAME=NUMBER,NUMBER,…`.
///
/// ```
/// use heaptide_render::export::malloc_tag::State;
/// assert!("start=1700000000 nodes=50 thread=7,3,1,2,8000".parse::<State>().is_ok());
/// assert!("nodes=many".parse::<State>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Start of profiling, in seconds since 1970; 0 for the start of the process.
    start: u64,
    /// Maximum number of nodes in a tree.
    nodes_max: u64,
    /// Counters of the main thread before profiling began: bytes allocated and freed, allocations,
    /// reallocations and frees.
    before: [u64; VALUES],
    /// Bytes that all threads had allocated before profiling began.
    bytes_before: u64,
    /// By thread id: nodes in use, levels, failures to enter a scope, virtual memory.
    threads: BTreeMap<u32, [u64; 4]>,
}

impl Default for State {
    fn default() -> State {
        const NODES_MAX: u64 = 256;
        State {
            start: 0,
            nodes_max: NODES_MAX,
            before: [0; VALUES],
            bytes_before: 0,
            threads: BTreeMap::new(),
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<State, String> {
        let mut state = State::default();
        for word in text.split_whitespace() {
            let unreadable = || format!("`{word}`: expected NAME=NUMBER,…");
            let (name, numbers) = word.split_once('=').ok_or_else(unreadable)?;
            let numbers: Result<Vec<u64>, _> = numbers.split(',').map(str::parse).collect();
            let numbers = numbers.map_err(|_| unreadable())?;
            match (name, &*numbers) {
                ("start", &[seconds]) => state.start = seconds,
                ("nodes", &[most]) => state.nodes_max = most,
                ("bytes", &[bytes]) => state.bytes_before = bytes,
                ("before", &[a, b, c, d, e]) => state.before = [a, b, c, d, e],
                ("thread", &[tid, nodes, levels, failures, memory]) => {
                    let tid = u32::try_from(tid).map_err(|_| unreadable())?;
                    state.threads.insert(tid, [nodes, levels, failures, memory]);
                }
                _ => return Err(unreadable()),
            }
        }
        Ok(state)
    }
}

/// Indices of the values of a node.
const ALLOCATED: usize = 0;
const FREED: usize = 1;
const ALLOCATIONS: usize = 2;
const REALLOCATIONS: usize = 3;
const FREES: usize = 4;
const VALUES: usize = 5;

const MEASURES: [Measure; VALUES] = [
    Measure::UsableBytes,
    Measure::FreedHereBytes,
    Measure::Allocations,
    Measure::Reallocations,
    Measure::FreesHere,
];

/// The scopes of a thread.
struct Tree {
    tid: u32,
    name: String,
    levels: u64,
    nodes_in_use: u64,
    failures: u64,
    virtual_bytes: u64,
    /// Scopes that were used, each after its parent; the first node is the thread itself.
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    level: u64,
    children: Vec<usize>,
    own: [u64; VALUES],
    /// Allocated and freed bytes, including descendants.
    total: [u64; 2],
    entered: u64,
    /// Calls of calloc and realloc; only in recordings by call.
    by_call: Option<[u64; 2]>,
}

impl Node {
    /// Returns the calls of malloc, realloc, calloc and free. Other allocations count as malloc,
    /// and so does calloc in recordings that are not by call.
    fn calls(&self) -> [(&'static str, u64); 4] {
        let reallocations = self.own[REALLOCATIONS];
        let [zeroed, resized] = self.by_call.unwrap_or([0, reallocations]);
        [
            ("malloc", self.own[ALLOCATIONS].saturating_sub(zeroed.saturating_add(resized))),
            ("realloc", resized),
            ("calloc", zeroed),
            ("free", self.own[FREES].saturating_sub(reallocations)),
        ]
    }

    fn self_per_visit(&self) -> u64 {
        self.own[ALLOCATED].checked_div(self.entered).unwrap_or(0)
    }
}

/// All data of the output.
struct Snapshot<'a> {
    process: &'a Process,
    trees: Vec<Tree>,
    allocated: u64,
    bytes_before: u64,
    nodes_max: u64,
    start: String,
    now: String,
    virtual_bytes: u64,
    resident_bytes: u64,
    own_bytes: u64,
}

/// Writes the scopes of a process.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, form: Form, state: &State) -> io::Result<()> {
    let snapshot = Snapshot::of(process, state);
    match form {
        Form::Json => {
            json_text::write(out, &snapshot)?;
            out.write_all(b"\n")
        }
        Form::Dot => dot(out, &snapshot),
        Form::Tree => tree(out, &snapshot),
        Form::Map => map(out, &snapshot),
    }
}

impl<'a> Snapshot<'a> {
    fn of(process: &'a Process, state: &State) -> Snapshot<'a> {
        const SECOND: u64 = 1_000_000_000;
        let trees = trees(process, state);
        let lifetime = &process.lifetime;
        let start = match state.start {
            0 => lifetime.start_realtime_ns,
            seconds => seconds.saturating_mul(SECOND),
        };
        let now = match lifetime.end {
            End::Running => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
            }
            _ => lifetime.start_realtime_ns.saturating_add(lifetime.duration_ns),
        };
        let sample = process.time.samples.last();
        let memory = Memory::of(process, At::End);
        let resident = memory.as_ref().map(|memory| memory.account.resident_bytes);
        let resident = resident.or(sample.map(|sample| sample.resident_bytes));
        let recorder = memory.as_ref().and_then(|memory| memory.row("recorder"));
        Snapshot {
            process,
            allocated: trees.iter().map(|tree| tree.nodes[0].total[ALLOCATED]).sum(),
            trees,
            bytes_before: state.bytes_before,
            nodes_max: state.nodes_max,
            start: date(start),
            now: date(now),
            virtual_bytes: sample.map_or(0, |sample| sample.virtual_bytes),
            resident_bytes: resident.unwrap_or(0),
            own_bytes: recorder.map_or(0, |row| row.resident_bytes),
        }
    }

    /// Returns a share of what all threads allocated, in percent.
    fn weight(&self, bytes: u64) -> f64 {
        if self.allocated == 0 { 0.0 } else { 100.0 * bytes as f64 / self.allocated as f64 }
    }

    /// Returns the same share, rounded to two decimal places.
    fn rounded_weight(&self, bytes: u64) -> f64 {
        (self.weight(bytes) * 100.0).round() / 100.0
    }
}

fn date(nanoseconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    format!("{} UTC", text.trim_end_matches('Z').replace('T', " @ "))
}

/// Returns a tree for each thread. Rows of a thread that had several names form one tree with the
/// last name.
fn trees(process: &Process, state: &State) -> Vec<Tree> {
    let mut rows: Vec<(u32, Vec<LaneId>)> = Vec::new();
    for (lane, id) in process.tables.lanes.iter().zip(0..) {
        // Old recordings lack the ids of threads that have ended.
        let known = lane.last_tid();
        let tid = if known == 0 { id } else { known };
        match rows.iter_mut().find(|(of, _)| *of == tid && known != 0) {
            Some((_, lanes)) => lanes.push(LaneId(id)),
            None => rows.push((tid, vec![LaneId(id)])),
        }
    }
    let trees = rows.into_iter().map(|(tid, lanes)| Tree::of(process, tid, &lanes, state));
    trees.collect()
}

impl Tree {
    fn of(process: &Process, tid: u32, lanes: &[LaneId], state: &State) -> Tree {
        let mut branches = Branches::<VALUES>::scopes(process, None, LEVELS, MEASURES);
        branches.all.iter_mut().for_each(|branch| branch.own = [0; VALUES]);
        let mut entered = vec![0u64; process.tables.scopes.len()];
        for &lane in lanes {
            let of_lane = Branches::<VALUES>::scopes(process, Some(lane), LEVELS, MEASURES);
            for (sum, branch) in branches.all.iter_mut().zip(of_lane.all) {
                sum.own.iter_mut().zip(branch.own).for_each(|(sum, own)| *sum += own);
            }
            let of_lane = scopes::entered(process, Some(lane));
            entered.iter_mut().zip(of_lane).for_each(|(sum, times)| *sum += times);
        }
        if tid == process.identity.pid {
            let before = state.before;
            let own = &mut branches.all[0].own;
            own.iter_mut().zip(before).for_each(|(own, before)| *own = own.saturating_sub(before));
        }
        let name = lanes.last().map(|lane| process.tables.lanes[lane.0 as usize].name.clone());
        let mut tree = Tree {
            tid,
            name: name.unwrap_or_default(),
            levels: 0,
            nodes_in_use: 0,
            failures: 0,
            virtual_bytes: 0,
            nodes: Vec::new(),
        };
        tree.add_nodes(process, &branches, &entered, &by_call(process, lanes));
        tree.levels = tree.nodes.iter().map(|node| node.level).max().unwrap_or(0);
        tree.nodes_in_use = tree.nodes.len() as u64;
        if let Some(&[nodes, levels, failures, memory]) = state.threads.get(&tid) {
            (tree.nodes_in_use, tree.levels) = (nodes, levels);
            (tree.failures, tree.virtual_bytes) = (failures, memory);
        }
        tree
    }

    /// Adds the nodes that were used or have a used descendant.
    fn add_nodes(
        &mut self,
        process: &Process,
        branches: &Branches<VALUES>,
        entered: &[u64],
        by_call: &[[u64; 2]],
    ) {
        let times = |what: What| match what {
            What::Scope(ScopeId(id)) => entered[id as usize],
            _ => 0,
        };
        let all = &branches.all;
        let mut total: Vec<[u64; 2]> =
            all.iter().map(|branch| [branch.own[ALLOCATED], branch.own[FREED]]).collect();
        let mut used: Vec<bool> =
            all.iter().map(|branch| branch.own != [0; VALUES] || times(branch.what) > 0).collect();
        for (index, branch) in all.iter().enumerate().skip(1).rev() {
            let (inner, parent) = (total[index], branch.parent as usize);
            total[parent].iter_mut().zip(inner).for_each(|(sum, inner)| *sum += inner);
            used[parent] |= used[index];
        }
        let mut node_of = vec![0usize; all.len()];
        for (index, branch) in all.iter().enumerate() {
            if index > 0 && !used[index] {
                continue;
            }
            let parent = node_of[branch.parent as usize];
            let (name, level) = match branch.what {
                What::Scope(scope) => (scope_name(process, scope), self.nodes[parent].level + 1),
                _ => (self.name.clone(), 1),
            };
            node_of[index] = self.nodes.len();
            if index > 0 {
                let child = self.nodes.len();
                self.nodes[parent].children.push(child);
            }
            self.nodes.push(Node {
                name,
                level,
                children: Vec::new(),
                own: branch.own,
                total: total[index],
                entered: times(branch.what),
                by_call: by_call.get(index).copied(),
            });
        }
    }
}

/// Returns, for each branch of scopes, how often these lanes called calloc and realloc in it; empty
/// if the process was not recorded by call.
fn by_call(process: &Process, lanes: &[LaneId]) -> Vec<[u64; 2]> {
    if process.tables.sites.iter().all(|site| site.call.is_none()) {
        return Vec::new();
    }
    let [zeroed, resized] = [Call::Calloc, Call::Realloc].map(|call| {
        let is_one = |site: &Site| site.call == Some(call) && lanes.contains(&site.lane);
        Branches::scopes_of(process, is_one, LEVELS, [Measure::Allocations]).all
    });
    zeroed.iter().zip(resized).map(|(zeroed, resized)| [zeroed.own[0], resized.own[0]]).collect()
}

/// Returns the value of a scope, with its attribute if that is not the default one.
fn scope_name(process: &Process, ScopeId(id): ScopeId) -> String {
    let scope = &process.tables.scopes[id as usize];
    match &*scope.attribute {
        "region" => scope.value.to_string(),
        attribute => format!("{attribute}={}", scope.value),
    }
}

impl Serialize for Snapshot<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("PID", &self.process.identity.pid)?;
        map.serialize_entry("tmStartProfiling", &self.start)?;
        map.serialize_entry("tmCurrentSnapshot", &self.now)?;
        for tree in &self.trees {
            let key = format!("tree_for_TID{}", tree.tid);
            map.serialize_entry(&key, &TreeEntry { snapshot: self, tree })?;
        }
        let net = |tree: &Tree| {
            let [allocated, freed] = tree.nodes[0].total;
            allocated.saturating_sub(freed)
        };
        map.serialize_entry("nBytesAllocBeforeInit", &self.bytes_before)?;
        map.serialize_entry("nBytesMallocTagSelfUsage", &self.own_bytes)?;
        map.serialize_entry("vmSizeNowBytes", &self.virtual_bytes)?;
        map.serialize_entry("vmRSSNowBytes", &self.resident_bytes)?;
        let net: u64 = self.trees.iter().map(net).sum();
        map.serialize_entry("nTotalNetTrackedBytes", &net)?;
        map.end()
    }
}

struct TreeEntry<'a> {
    snapshot: &'a Snapshot<'a>,
    tree: &'a Tree,
}

impl Serialize for TreeEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TreeEntry { snapshot, tree } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("TID", &tree.tid)?;
        map.serialize_entry("ThreadName", &tree.name)?;
        map.serialize_entry("nTreeLevels", &tree.levels)?;
        map.serialize_entry("nTreeNodesInUse", &tree.nodes_in_use)?;
        map.serialize_entry("nMaxTreeNodes", &snapshot.nodes_max)?;
        map.serialize_entry("nPushNodeFailures", &tree.failures)?;
        map.serialize_entry("nFreeTrackingFailed", &0)?;
        map.serialize_entry("nVmSizeAtCreation", &tree.virtual_bytes)?;
        let node = NodeEntry { snapshot, tree, at: 0 };
        map.serialize_entry(&format!("scope_{}", tree.name), &node)?;
        map.end()
    }
}

struct NodeEntry<'a> {
    snapshot: &'a Snapshot<'a>,
    tree: &'a Tree,
    at: usize,
}

impl Serialize for NodeEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = &self.tree.nodes[self.at];
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in statistics(node) {
            map.serialize_entry(name, &value)?;
        }
        let weight = self.snapshot.rounded_weight(node.total[ALLOCATED]);
        map.serialize_entry("nWeightPercentage", &weight)?;
        for (name, calls) in node.calls() {
            map.serialize_entry(&format!("nCallsTo_{name}"), &calls)?;
        }
        map.serialize_entry("nestedScopes", &Nested(self))?;
        map.end()
    }
}

struct Nested<'a>(&'a NodeEntry<'a>);

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NodeEntry { snapshot, tree, at } = *self.0;
        let mut map = serializer.serialize_map(None)?;
        for &at in &tree.nodes[at].children {
            let key = format!("scope_{}", tree.nodes[at].name);
            map.serialize_entry(&key, &NodeEntry { snapshot, tree, at })?;
        }
        map.end()
    }
}

/// Returns the statistics of a node other than calls.
fn statistics(node: &Node) -> [(&'static str, u64); 5] {
    [
        ("nBytesTotalAllocated", node.total[ALLOCATED]),
        ("nBytesTotalFreed", node.total[FREED]),
        ("nBytesSelfAllocated", node.own[ALLOCATED]),
        ("nBytesSelfFreed", node.own[FREED]),
        ("nTimesEnteredAndExited", node.entered),
    ]
}

/// Writes `KEY=NUMBER` lines.
fn map(out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
    writeln!(out, ".nTrees={}", snapshot.trees.len())?;
    for tree in &snapshot.trees {
        let mut paths = vec![format!("tid{}:{}", tree.tid, tree.name)];
        for (at, node) in tree.nodes.iter().enumerate() {
            // Parents precede their children, so the path of a parent is known.
            paths.resize(tree.nodes.len(), String::new());
            for &child in &node.children {
                paths[child] = format!("{}.{}", paths[at], tree.nodes[child].name);
            }
            // A line break in a name would end the line.
            let path = paths[at].replace(['\n', '\r'], " ");
            for (name, value) in statistics(node) {
                writeln!(out, "{path}.{name}={value}")?;
            }
            for (name, calls) in node.calls() {
                writeln!(out, "{path}.nCallsTo_{name}={calls}")?;
            }
        }
        let attributes = [
            ("nTreeNodesInUse", tree.nodes_in_use),
            ("nMaxTreeNodes", snapshot.nodes_max),
            ("nPushNodeFailures", tree.failures),
            ("nFreeTrackingFailed", 0),
        ];
        for (name, value) in attributes {
            writeln!(out, "tid{}:.{name}={value}", tree.tid)?;
        }
    }
    Ok(())
}

/// Formats bytes in units of 1000, truncated.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes}B"),
        1_000..1_000_000 => format!("{}kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}GB", bytes / 1_000_000_000),
    }
}

/// Writes the tree as text.
fn tree(out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
    writeln!(out, "Started profiling on {}", snapshot.start)?;
    writeln!(out, "This snapshot done on {}", snapshot.now)?;
    writeln!(out, "Process VmSize={}", size(snapshot.virtual_bytes))?;
    writeln!(out, "Process VmRSS={}", size(snapshot.resident_bytes))?;
    for tree in &snapshot.trees {
        writeln!(out, "** Thread [{}] with TID={}", tree.name, tree.tid)?;
        if tree.failures > 0 {
            let (used, most) = (tree.nodes_in_use, snapshot.nodes_max);
            writeln!(
                out,
                "  WARNING: {} scopes did not fit, TreeNodesInUse/Max={used}/{most}",
                tree.failures
            )?;
        }
        branch(out, snapshot, tree, 0)?;
    }
    Ok(())
}

/// Writes a node and its descendants, in order of their first use.
fn branch(out: &mut dyn Write, snapshot: &Snapshot, tree: &Tree, at: usize) -> io::Result<()> {
    /// Only the names of smaller nodes are written.
    const LEAST_BYTES: u64 = 1024;
    const LEAST_WEIGHT: f64 = 1.0;
    const HOT_WEIGHT: f64 = 70.0;
    let node = &tree.nodes[at];
    let [allocated, _] = node.total;
    let (own, freed) = (node.own[ALLOCATED], node.own[FREED]);
    let weight = snapshot.weight(allocated);
    let indent = " ".repeat(2 * node.level as usize);
    writeln!(out, "{indent}scope_{}", node.name)?;
    if allocated < LEAST_BYTES || weight < LEAST_WEIGHT {
        return writeln!(out, "{indent}  [hidden: below threshold of {LEAST_BYTES}bytes (total)]");
    }
    let net = own.saturating_sub(freed);
    writeln!(
        out,
        "{indent}  nBytesTotalAlloc/SelfNet={}/{}\t[SelfAllocated/SelfFreed={}/{}]",
        size(allocated),
        size(net),
        size(own),
        size(freed)
    )?;
    writeln!(out, "{indent}  nTimesEnteredAndExited={}", node.entered)?;
    writeln!(out, "{indent}  nBytesSelfAllocatedPerVisit={}", size(node.self_per_visit()))?;
    let hot = match (weight >= HOT_WEIGHT, allocated == own) {
        (false, _) => "",
        (true, false) => "\t\t\t<<<- hot path",
        (true, true) => "\t\t\t<<<- hot leaf",
    };
    writeln!(out, "{indent}  nWeightPercentage={weight:.2}{hot}")?;
    node.children.iter().try_for_each(|&child| branch(out, snapshot, tree, child))
}

/// Writes a graph with a cluster for each thread. Scopes with the same name at two paths are two
/// boxes.
fn dot(out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
    let pid = snapshot.process.identity.pid;
    writeln!(out, "digraph AllMallocTrees {{\n node [colorscheme=reds9 style=filled]")?;
    let labels = [
        "Whole process stats".to_owned(),
        format!("allocated_mem_before_malloctag_init={}", size(snapshot.bytes_before)),
        format!("allocated_mem_by_malloctag_itself={}", size(snapshot.own_bytes)),
        format!("allocated_mem={}", size(snapshot.allocated)),
        format!("vm_size_now={}", size(snapshot.virtual_bytes)),
        format!("vm_rss_now={}", size(snapshot.resident_bytes)),
        format!("malloctag_start_ts={}", snapshot.start),
        format!("this_snapshot_ts={}", snapshot.now),
    ];
    writeln!(out, "  \"Process {pid}\" [label={}]", quoted(&labels))?;
    for tree in &snapshot.trees {
        cluster(out, snapshot, tree)?;
        let weight = snapshot.weight(tree.nodes[0].total[ALLOCATED]);
        let root = id(tree, 0);
        writeln!(out, "\n  \"Process {pid}\" -> {root} [label=\"w={weight:.2}%\"]")?;
    }
    let legend = [
        "Legend:".to_owned(),
        "'w' is the share of a scope, with those inside, of all bytes allocated".to_owned(),
        "square boxes are threads; boxes with a high share of their own are larger and darker"
            .to_owned(),
    ];
    writeln!(out, " labelloc=\"b\"\n label={}\n}}", quoted(&legend))
}

fn cluster(out: &mut dyn Write, snapshot: &Snapshot, tree: &Tree) -> io::Result<()> {
    let (tid, used, most) = (tree.tid, tree.nodes_in_use, snapshot.nodes_max);
    writeln!(out, " subgraph cluster_TID{tid} {{")?;
    let labels = [
        format!("TID={tid}"),
        format!("nPushNodeFailures={}", tree.failures),
        format!("nTreeNodesInUse/Max={used}/{most}"),
    ];
    writeln!(out, "  node [colorscheme=reds9 style=filled]")?;
    writeln!(out, "  labelloc=\"b\"\n  label={}", quoted(&labels))?;
    for (at, node) in tree.nodes.iter().enumerate() {
        let (own, [total, _]) = (node.own[ALLOCATED], node.total);
        let share = |bytes| format!("{} ({:.2}%)", size(bytes), snapshot.weight(bytes));
        let mut labels = match at {
            0 => vec![format!("thread={}", node.name), format!("TID={tid}")],
            _ => vec![format!("scope={}", node.name)],
        };
        if own == total {
            labels.push(format!("total_alloc=self_alloc={}", share(total)));
        } else {
            labels.push(format!("total_alloc={}", share(total)));
            labels.push(format!("self_alloc={}", share(own)));
        }
        labels.push(format!("self_freed={}", size(node.own[FREED])));
        labels.push(format!("visited_times={}", node.entered));
        labels.push(format!("self_alloc_per_visit={}", size(node.self_per_visit())));
        for (name, calls) in node.calls().into_iter().filter(|(_, calls)| *calls > 0) {
            labels.push(format!("num_{name}_self={calls}"));
        }
        let shape = if at == 0 { " shape=box" } else { "" };
        let (colour, points) = emphasis(snapshot.weight(own));
        let (label, own_id) = (quoted(&labels), id(tree, at));
        writeln!(out, "  {own_id} [label={label}{shape} fillcolor={colour} fontsize={points}]")?;
        for &child in &node.children {
            let weight = snapshot.weight(tree.nodes[child].total[ALLOCATED]);
            writeln!(out, "  {own_id} -> {} [label=\"w={weight:.2}%\"]", id(tree, child))?;
        }
    }
    writeln!(out, " }}")
}

/// Returns the shade and font size of a box by its own share.
fn emphasis(weight: f64) -> (u32, u32) {
    const STEPS: [(f64, u32, u32); 6] =
        [(5.0, 1, 9), (10.0, 2, 10), (20.0, 3, 12), (40.0, 4, 14), (60.0, 5, 16), (80.0, 6, 18)];
    let step = STEPS.iter().find(|(below, ..)| weight < *below);
    step.map_or((7, 20), |&(_, colour, points)| (colour, points))
}

/// Returns the id of a box in the graph, unique for each path.
fn id(tree: &Tree, at: usize) -> String {
    format!("\"{}_{at}_{}\"", tree.tid, escaped(&tree.nodes[at].name))
}

fn quoted(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("{}\\n", escaped(line))).collect();
    format!("\"{lines}\"")
}

fn escaped(text: &str) -> String {
    let text = heaptide_analysis::text::printable(text);
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
