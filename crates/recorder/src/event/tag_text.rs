//! The text of malloc-tag's statistics: its JSON, its graph for Graphviz, its tree as text, and
//! lines with its map of statistics.
//!
//! Unlike in malloc-tag, names are escaped, and scopes with one name at two paths are two boxes of
//! the graph.

use crate::event::tag_tree::{Node, Snapshot, Tree};
use crate::event::tally::{ALLOCATED, ALLOCATIONS, FREED, FREES, REALLOCATIONS, ZEROED};
use crate::store::ids::{NameId, StringId};
use crate::store::names;
use crate::sys::kernel::{self, Fd};
use crate::sys::text::Text;

pub const JSON: u32 = 0;
pub const DOT: u32 = 1;
pub const TREE: u32 = 2;
pub const FORM_LAST: u32 = 3;

/// Writes to a file through a buffer, or to memory.
pub struct Out<'a> {
    buffer: &'a mut [u8],
    used: usize,
    total: u64,
    file: Option<Fd>,
    has_failed: bool,
    escapes: Escapes,
}

/// How text is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    None,
    Json,
    Dot,
}

impl<'a> Out<'a> {
    pub fn to_file(file: Fd, buffer: &'a mut [u8]) -> Out<'a> {
        Out { file: Some(file), ..Out::to_memory(buffer) }
    }

    /// Writes as much as there is room for.
    pub fn to_memory(buffer: &'a mut [u8]) -> Out<'a> {
        let escapes = Escapes::None;
        Out { buffer, used: 0, total: 0, file: None, has_failed: false, escapes }
    }

    /// Closes the file. Returns the length of all text; none if writing failed.
    pub fn finish(mut self) -> Option<u64> {
        if let Some(file) = self.file {
            self.flush(file);
            kernel::close(file);
        }
        (!self.has_failed).then_some(self.total)
    }

    fn flush(&mut self, file: Fd) {
        if !self.has_failed && !kernel::write_all(file, &self.buffer[..self.used]) {
            self.has_failed = true;
        }
        self.used = 0;
    }

    fn text(&mut self, mut text: &[u8]) -> &mut Self {
        self.total += text.len() as u64;
        while !text.is_empty() {
            let room = self.buffer.len() - self.used;
            let (now, later) = text.split_at(text.len().min(room));
            self.buffer[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            text = later;
            match self.file {
                Some(file) if !text.is_empty() => self.flush(file),
                Some(_) => {}
                None => break,
            }
        }
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = Text::<24>::new();
        digits.push_number(number);
        self.text(digits.bytes())
    }

    /// Writes text of the program, of any bytes.
    fn escaped(&mut self, text: &[u8]) -> &mut Self {
        for chunk in text.utf8_chunks() {
            let is_special = |byte| matches!(byte, 0..0x20 | 0x7f | b'"' | b'\\');
            if chunk.valid().bytes().any(is_special) {
                chunk.valid().bytes().for_each(|byte| self.escaped_byte(byte));
            } else {
                self.text(chunk.valid().as_bytes());
            }
            if !chunk.invalid().is_empty() {
                self.text("\u{fffd}".as_bytes());
            }
        }
        self
    }

    fn escaped_byte(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b'"' | b'\\' if self.escapes != Escapes::None => self.text(&[b'\\', byte]),
            0..0x20 | 0x7f if self.escapes == Escapes::Json => {
                let [high, low] = [byte >> 4, byte & 15].map(|digit| HEX[digit as usize]);
                self.text(b"\\u00").text(&[high, low])
            }
            0..0x20 | 0x7f => self.text(b"?"),
            byte => self.text(&[byte]),
        };
    }

    /// Writes bytes in units of 1000, truncated.
    fn size(&mut self, bytes: u64) -> &mut Self {
        let (number, unit): (u64, &[u8]) = match bytes {
            0..1_000 => (bytes, b"B"),
            1_000..1_000_000 => (bytes / 1_000, b"kB"),
            1_000_000..1_000_000_000 => (bytes / 1_000_000, b"MB"),
            _ => (bytes / 1_000_000_000, b"GB"),
        };
        self.number(number).text(unit)
    }

    /// Writes hundredths of a percent with two decimal places.
    fn percent(&mut self, hundredths: u64) -> &mut Self {
        let part = hundredths % 100;
        self.number(hundredths / 100).text(b".").number(part / 10).number(part % 10)
    }

    /// Writes hundredths of a percent as JSON, without zeros at the end.
    fn json_percent(&mut self, hundredths: u64) -> &mut Self {
        let part = hundredths % 100;
        self.number(hundredths / 100);
        match (part / 10, part % 10) {
            (0, 0) => self,
            (tenth, 0) => self.text(b".").number(tenth),
            (tenth, last) => self.text(b".").number(tenth).number(last),
        }
    }

    /// Writes the name of a scope: its value, with its attribute if that is not the default one.
    fn scope(&mut self, name: NameId) -> &mut Self {
        let record = name.record();
        let attribute = StringId::new(record.attribute).bytes();
        if attribute != names::REGION {
            self.escaped(attribute).text(b"=");
        }
        if record.kind == 0 {
            return self.escaped(names::text_of(record));
        }
        let value = record.value as i64;
        if value < 0 {
            self.text(b"-");
        }
        self.number(value.unsigned_abs())
    }

    /// Writes the name of a node: a scope, or the thread at the root.
    fn name(&mut self, tree: &Tree, node: &Node) -> &mut Self {
        if !node.name.is_none() {
            return self.scope(node.name);
        }
        let length = tree.name.iter().position(|&byte| byte == 0).unwrap_or(tree.name.len());
        self.escaped(&tree.name[..length])
    }

    /// Writes a time as malloc-tag does, in UTC.
    fn date(&mut self, seconds: u64) -> &mut Self {
        let [year, month, day] = civil(seconds / 86_400);
        let second = seconds % 86_400;
        self.number(year).text(b"-").two(month).text(b"-").two(day).text(b" @ ");
        self.two(second / 3_600).text(b":").two(second / 60 % 60).text(b":").two(second % 60);
        self.text(b" UTC")
    }

    fn two(&mut self, number: u64) -> &mut Self {
        self.number(number / 10).number(number % 10)
    }

    /// Writes a number of JSON with its key, and a comma after it.
    fn field(&mut self, key: &[u8], value: u64) -> &mut Self {
        self.text(b"\"").text(key).text(b"\":").number(value).text(b",")
    }
}

/// Returns year, month and day of a number of days since 1970: Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> [u64; 3] {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day]
}

impl Node {
    /// Returns the calls of malloc, realloc, calloc and free.
    fn calls(&self) -> [(&'static [u8], u64); 4] {
        let own = &self.own;
        let others = own[REALLOCATIONS].saturating_add(own[ZEROED]);
        [
            (b"malloc", own[ALLOCATIONS].saturating_sub(others)),
            (b"realloc", own[REALLOCATIONS]),
            (b"calloc", own[ZEROED]),
            (b"free", own[FREES]),
        ]
    }

    fn self_per_visit(&self) -> u64 {
        self.own[ALLOCATED].checked_div(self.entered).unwrap_or(0)
    }
}

impl Snapshot<'_> {
    /// Returns the share of what all trees allocated, in hundredths of a percent, truncated.
    fn weight(&self, bytes: u64) -> u64 {
        const WHOLE: u64 = 10_000;
        match bytes.checked_mul(WHOLE) {
            Some(product) => product.checked_div(self.allocated).unwrap_or(0),
            None => bytes / (self.allocated / WHOLE).max(1),
        }
    }

    /// Returns the sum over all trees of what is not freed yet.
    fn net(&self) -> u64 {
        let net = |tree: &Tree| {
            let [allocated, freed] = self.nodes[tree.root as usize].total;
            allocated.saturating_sub(freed)
        };
        self.trees.iter().map(net).sum()
    }
}

/// A step of a walk over the nodes of a tree.
enum Step<'a> {
    Enter(&'a Node, u32),
    Leave,
}

/// Visits the used nodes of a tree, depth first, without recursion.
fn walk(snapshot: &Snapshot<'_>, tree: &Tree, mut visit: impl FnMut(Step<'_>) -> bool) {
    let node = |index: u32| &snapshot.nodes[index as usize];
    let mut at = tree.root;
    loop {
        let goes_inside = node(at).is_used || at == tree.root;
        let first =
            if goes_inside && visit(Step::Enter(node(at), at)) { node(at).first } else { 0 };
        if first != 0 {
            at = first;
            continue;
        }
        if goes_inside {
            visit(Step::Leave);
        }
        while node(at).next == 0 || at == tree.root {
            if at == tree.root {
                return;
            }
            at = node(at).parent;
            visit(Step::Leave);
        }
        at = node(at).next;
    }
}

/// Writes a report in a form.
pub fn write(out: &mut Out<'_>, form: u32, snapshot: &Snapshot<'_>) {
    match form {
        JSON => json(out, snapshot),
        DOT => dot(out, snapshot),
        TREE => text(out, snapshot),
        _ => map(out, snapshot),
    }
}

fn json(out: &mut Out<'_>, snapshot: &Snapshot<'_>) {
    out.escapes = Escapes::Json;
    out.text(b"{").field(b"PID", snapshot.pid as u64);
    out.text(b"\"tmStartProfiling\":\"").date(snapshot.request.start).text(b"\",");
    out.text(b"\"tmCurrentSnapshot\":\"").date(snapshot.now).text(b"\",");
    for tree in snapshot.trees {
        json_tree(out, snapshot, tree);
        out.text(b",");
    }
    out.field(b"nBytesAllocBeforeInit", snapshot.request.bytes_before);
    out.field(b"nBytesMallocTagSelfUsage", snapshot.own_bytes);
    out.field(b"vmSizeNowBytes", snapshot.virtual_bytes);
    out.field(b"vmRSSNowBytes", snapshot.resident_bytes);
    out.text(b"\"nTotalNetTrackedBytes\":").number(snapshot.net()).text(b"}\n");
}

fn json_tree(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree) {
    out.text(b"\"tree_for_TID").number(tree.tid as u64).text(b"\":{");
    out.field(b"TID", tree.tid as u64);
    out.text(b"\"ThreadName\":\"").name(tree, &snapshot.nodes[tree.root as usize]).text(b"\",");
    out.field(b"nTreeLevels", tree.levels);
    out.field(b"nTreeNodesInUse", tree.nodes);
    out.field(b"nMaxTreeNodes", snapshot.request.nodes_max);
    out.field(b"nPushNodeFailures", tree.failures);
    out.field(b"nFreeTrackingFailed", 0);
    out.field(b"nVmSizeAtCreation", tree.virtual_bytes);
    let mut is_first = true;
    walk(snapshot, tree, |step| {
        match step {
            Step::Enter(node, _) => {
                out.text(if is_first { b"" } else { b"," });
                json_node(out, snapshot, tree, node);
                is_first = true;
            }
            Step::Leave => {
                out.text(b"}}");
                is_first = false;
            }
        }
        true
    });
    out.text(b"}");
}

/// Writes a node up to the opening of its inner scopes.
fn json_node(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree, node: &Node) {
    out.text(b"\"scope_").name(tree, node).text(b"\":{");
    out.field(b"nBytesTotalAllocated", node.total[0]);
    out.field(b"nBytesTotalFreed", node.total[1]);
    out.field(b"nBytesSelfAllocated", node.own[ALLOCATED]);
    out.field(b"nBytesSelfFreed", node.own[FREED]);
    out.field(b"nTimesEnteredAndExited", node.entered);
    out.text(b"\"nWeightPercentage\":").json_percent(snapshot.weight(node.total[0])).text(b",");
    for (name, calls) in node.calls() {
        out.text(b"\"nCallsTo_").text(name).text(b"\":").number(calls).text(b",");
    }
    out.text(b"\"nestedScopes\":{");
}

fn map(out: &mut Out<'_>, snapshot: &Snapshot<'_>) {
    out.text(b".nTrees=").number(snapshot.trees.len() as u64).text(b"\n");
    for tree in snapshot.trees {
        walk(snapshot, tree, |step| {
            if let Step::Enter(node, index) = step {
                map_node(out, snapshot, tree, node, index);
            }
            true
        });
        let attributes: [(&[u8], u64); 4] = [
            (b"nTreeNodesInUse", tree.nodes),
            (b"nMaxTreeNodes", snapshot.request.nodes_max),
            (b"nPushNodeFailures", tree.failures),
            (b"nFreeTrackingFailed", 0),
        ];
        for (name, value) in attributes {
            out.text(b"tid").number(tree.tid as u64).text(b":.").text(name);
            out.text(b"=").number(value).text(b"\n");
        }
    }
}

fn map_node(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree, node: &Node, index: u32) {
    let fields: [(&[u8], u64); 5] = [
        (b"nBytesTotalAllocated", node.total[0]),
        (b"nBytesTotalFreed", node.total[1]),
        (b"nBytesSelfAllocated", node.own[ALLOCATED]),
        (b"nBytesSelfFreed", node.own[FREED]),
        (b"nTimesEnteredAndExited", node.entered),
    ];
    for (name, value) in fields {
        map_key(out, snapshot, tree, index);
        out.text(b".").text(name).text(b"=").number(value).text(b"\n");
    }
    for (name, value) in node.calls() {
        map_key(out, snapshot, tree, index);
        out.text(b".nCallsTo_").text(name).text(b"=").number(value).text(b"\n");
    }
}

/// Writes a thread and the path of a node.
fn map_key(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree, index: u32) {
    let node = |index: u32| &snapshot.nodes[index as usize];
    out.text(b"tid").number(tree.tid as u64).text(b":").name(tree, node(tree.root));
    // Nodes link upwards, so each level is looked up from the node.
    let root_level = node(tree.root).level;
    for level in root_level + 1..=node(index).level {
        let mut up = index;
        while node(up).level > level {
            up = node(up).parent;
        }
        out.text(b".").name(tree, node(up));
    }
}

/// Writes the tree as text.
fn text(out: &mut Out<'_>, snapshot: &Snapshot<'_>) {
    out.text(b"Started profiling on ").date(snapshot.request.start);
    out.text(b"\nThis snapshot done on ").date(snapshot.now);
    out.text(b"\nProcess VmSize=").size(snapshot.virtual_bytes);
    out.text(b"\nProcess VmRSS=").size(snapshot.resident_bytes).text(b"\n");
    for tree in snapshot.trees {
        out.text(b"** Thread [").name(tree, &snapshot.nodes[tree.root as usize]);
        out.text(b"] with TID=").number(tree.tid as u64).text(b"\n");
        if tree.failures > 0 {
            out.text(b"  WARNING: ").number(tree.failures);
            out.text(b" scopes did not fit, TreeNodesInUse/Max=").number(tree.nodes);
            out.text(b"/").number(snapshot.request.nodes_max).text(b"\n");
        }
        walk(snapshot, tree, |step| match step {
            Step::Enter(node, _) => text_node(out, snapshot, tree, node),
            Step::Leave => true,
        });
    }
}

/// Writes a node. Returns whether it is large enough for those inside it to be written.
fn text_node(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree, node: &Node) -> bool {
    const LEAST_BYTES: u64 = 1024;
    const LEAST_WEIGHT: u64 = 100;
    const HOT_WEIGHT: u64 = 7_000;
    let ([allocated, _], own) = (node.total, node.own[ALLOCATED]);
    let weight = snapshot.weight(allocated);
    indent(out, node.level).text(b"scope_").name(tree, node).text(b"\n");
    indent(out, node.level + 1);
    if allocated < LEAST_BYTES || weight < LEAST_WEIGHT {
        out.text(b"[hidden: below threshold of ").number(LEAST_BYTES).text(b"bytes (total)]\n");
        return false;
    }
    out.text(b"nBytesTotalAlloc/SelfNet=").size(allocated).text(b"/");
    out.size(own.saturating_sub(node.own[FREED])).text(b"\t[SelfAllocated/SelfFreed=");
    out.size(own).text(b"/").size(node.own[FREED]).text(b"]\n");
    indent(out, node.level + 1).text(b"nTimesEnteredAndExited=").number(node.entered);
    indent(out.text(b"\n"), node.level + 1).text(b"nBytesSelfAllocatedPerVisit=");
    indent(out.size(node.self_per_visit()).text(b"\n"), node.level + 1);
    out.text(b"nWeightPercentage=").percent(weight);
    out.text(match (weight >= HOT_WEIGHT, allocated == own) {
        (false, _) => b"\n",
        (true, false) => b"\t\t\t<<<- hot path\n",
        (true, true) => b"\t\t\t<<<- hot leaf\n",
    });
    true
}

fn indent<'b, 'a>(out: &'b mut Out<'a>, level: u32) -> &'b mut Out<'a> {
    (0..level).for_each(|_| {
        out.text(b"  ");
    });
    out
}

/// The end of a line in a label.
const LINE: &[u8] = b"\\n";

/// Writes a graph with a cluster for each thread.
fn dot(out: &mut Out<'_>, snapshot: &Snapshot<'_>) {
    out.escapes = Escapes::Dot;
    out.text(b"digraph AllMallocTrees {\n node [colorscheme=reds9 style=filled]\n");
    out.text(b"  \"Process ").number(snapshot.pid as u64).text(b"\" [label=\"Whole process stats");
    out.text(LINE).text(b"allocated_mem_before_malloctag_init=");
    out.size(snapshot.request.bytes_before).text(LINE).text(b"allocated_mem_by_malloctag_itself=");
    out.size(snapshot.own_bytes).text(LINE).text(b"allocated_mem=").size(snapshot.allocated);
    out.text(LINE).text(b"vm_size_now=").size(snapshot.virtual_bytes).text(LINE);
    out.text(b"vm_rss_now=").size(snapshot.resident_bytes).text(LINE);
    out.text(b"malloctag_start_ts=").date(snapshot.request.start).text(LINE);
    out.text(b"this_snapshot_ts=").date(snapshot.now).text(LINE).text(b"\"]\n");
    for tree in snapshot.trees {
        dot_cluster(out, snapshot, tree);
        let root = &snapshot.nodes[tree.root as usize];
        out.text(b"\n  \"Process ").number(snapshot.pid as u64).text(b"\" -> ");
        dot_id(out, tree, root, tree.root).text(b" [label=\"w=");
        out.percent(snapshot.weight(root.total[0])).text(b"%\"]\n");
    }
    out.text(b" labelloc=\"b\"\n label=\"Legend:").text(LINE);
    out.text(b"'w' is the share of a scope, with those inside, of all bytes allocated").text(LINE);
    out.text(b"square boxes are threads; boxes with a high share of their own are larger and ");
    out.text(b"darker").text(LINE).text(b"\"\n}\n");
}

fn dot_cluster(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree) {
    out.text(b" subgraph cluster_TID").number(tree.tid as u64);
    out.text(b" {\n  node [colorscheme=reds9 style=filled]\n  labelloc=\"b\"\n  label=\"TID=");
    out.number(tree.tid as u64).text(LINE).text(b"nPushNodeFailures=").number(tree.failures);
    out.text(LINE).text(b"nTreeNodesInUse/Max=").number(tree.nodes).text(b"/");
    out.number(snapshot.request.nodes_max).text(LINE).text(b"\"\n");
    walk(snapshot, tree, |step| {
        if let Step::Enter(node, index) = step {
            dot_node(out, snapshot, tree, node, index);
        }
        true
    });
    out.text(b" }\n");
}

fn dot_node(out: &mut Out<'_>, snapshot: &Snapshot<'_>, tree: &Tree, node: &Node, index: u32) {
    let (own, [total, _]) = (node.own[ALLOCATED], node.total);
    dot_id(out.text(b"  "), tree, node, index).text(b" [label=\"");
    if node.name.is_none() {
        out.text(b"thread=").name(tree, node).text(LINE);
        out.text(b"TID=").number(tree.tid as u64).text(LINE);
    } else {
        out.text(b"scope=").name(tree, node).text(LINE);
    }
    out.text(if own == total { b"total_alloc=self_alloc=" } else { b"total_alloc=" });
    dot_share(out, snapshot, total);
    if own != total {
        dot_share(out.text(b"self_alloc="), snapshot, own);
    }
    out.text(b"self_freed=").size(node.own[FREED]).text(LINE);
    out.text(b"visited_times=").number(node.entered).text(LINE);
    out.text(b"self_alloc_per_visit=").size(node.self_per_visit()).text(LINE);
    for (name, calls) in node.calls().into_iter().filter(|(_, calls)| *calls > 0) {
        out.text(b"num_").text(name).text(b"_self=").number(calls).text(LINE);
    }
    let (colour, points) = emphasis(snapshot.weight(own));
    out.text(if node.name.is_none() { b"\" shape=box" } else { b"\"" });
    out.text(b" fillcolor=").number(colour).text(b" fontsize=").number(points).text(b"]\n");
    let mut child = node.first;
    while child != 0 {
        let inner = &snapshot.nodes[child as usize];
        if inner.is_used {
            dot_id(out.text(b"  "), tree, node, index).text(b" -> ");
            dot_id(out, tree, inner, child).text(b" [label=\"w=");
            out.percent(snapshot.weight(inner.total[0])).text(b"%\"]\n");
        }
        child = inner.next;
    }
}

fn dot_share(out: &mut Out<'_>, snapshot: &Snapshot<'_>, bytes: u64) {
    out.size(bytes).text(b" (").percent(snapshot.weight(bytes)).text(b"%)").text(LINE);
}

/// Writes the id of a box, unique for each path.
fn dot_id<'b, 'a>(out: &'b mut Out<'a>, tree: &Tree, node: &Node, index: u32) -> &'b mut Out<'a> {
    out.text(b"\"").number(tree.tid as u64).text(b"_").number((index - tree.root) as u64);
    out.text(b"_").name(tree, node).text(b"\"")
}

/// Returns the shade and font size of a box by its own share, in hundredths of a percent.
fn emphasis(weight: u64) -> (u64, u64) {
    const STEPS: [(u64, u64, u64); 6] = [
        (500, 1, 9),
        (1_000, 2, 10),
        (2_000, 3, 12),
        (4_000, 4, 14),
        (6_000, 5, 16),
        (8_000, 6, 18),
    ];
    let step = STEPS.iter().find(|(below, ..)| weight < *below);
    step.map_or((7, 20), |&(_, colour, points)| (colour, points))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(act: impl FnOnce(&mut Out<'_>)) -> std::string::String {
        let mut memory = [0; 256];
        let mut out = Out::to_memory(&mut memory);
        act(&mut out);
        let length = out.finish().expect("memory") as usize;
        std::string::String::from_utf8_lossy(&memory[..length]).into_owned()
    }

    fn dated(seconds: u64) -> std::string::String {
        written(|out| {
            out.date(seconds);
        })
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(dated(0), "1970-01-01 @ 00:00:00 UTC");
        assert_eq!(dated(951_782_400), "2000-02-29 @ 00:00:00 UTC");
        assert_eq!(dated(1_700_000_000), "2023-11-14 @ 22:13:20 UTC");
        assert_eq!(dated(4_107_542_399), "2100-02-28 @ 23:59:59 UTC");
        assert_eq!(dated(4_107_542_400), "2100-03-01 @ 00:00:00 UTC");
    }

    #[test]
    fn names_are_escaped() {
        let escaped = |escapes, text: &[u8]| {
            written(|out| {
                out.escapes = escapes;
                out.escaped(text);
            })
        };
        assert_eq!(escaped(Escapes::Json, b"a\"\\\n\xff"), "a\\\"\\\\\\u000a\u{fffd}");
        assert_eq!(escaped(Escapes::Dot, "é\"\n".as_bytes()), "é\\\"?");
        assert_eq!(escaped(Escapes::None, b"\"\t"), "\"?");
    }

    #[test]
    fn percentages_have_two_decimal_places() {
        let percent = |hundredths| {
            written(|out| {
                out.percent(hundredths);
            })
        };
        assert_eq!([0, 5, 9_381, 10_000].map(percent), ["0.00", "0.05", "93.81", "100.00"]);
        let json = |hundredths| {
            written(|out| {
                out.json_percent(hundredths);
            })
        };
        assert_eq!([0, 5, 9_380, 10_000].map(json), ["0", "0.05", "93.8", "100"]);
    }

    #[test]
    fn text_beyond_the_memory_is_only_counted() {
        let mut memory = [0; 4];
        let mut out = Out::to_memory(&mut memory);
        out.text(b"abc").number(123);
        assert_eq!(out.finish(), Some(6));
        assert_eq!(&memory, b"abc1");
    }
}
