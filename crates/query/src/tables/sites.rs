//! `sites`: counters by stack, scope, label and thread.

use heaptide_analysis::attribution::{Owners, Types};
use heaptide_analysis::model::{Frame, FrameId, Measure, Process, ScopeId, Site, Spread, StackId};

use super::info::{Info, measure};
use super::live::{self, Live};
use super::source::{Filler, Records, Source};
use crate::table::{AttributeId, Form, NodeId};
use crate::value::{Bits, Kind};

pub(super) const SITES: Source = Source {
    name: "sites",
    says: "metrics by stack, scope, label, kind and thread",
    columns,
    records: Records::Tables(fill),
};

/// Returns the columns that blocks inherit from their site, in every table of blocks.
pub(super) fn of_blocks() -> Vec<Info> {
    vec![
        Info::text("stack", "functions from the outermost to the allocating one")
            .form(Form::Stack)
            .also("function"),
        Info::text("frame", "innermost function"),
        Info::text("owner", "function that the allocation is attributed to").also("allocator"),
        Info::text("owner_file", "source file of the owner"),
        Info::uint("owner_line", "", "source line of the owner"),
        Info::text("type", "allocated type, if names of C++ or Rust functions contain it"),
        Info::text("module", "path of the file with the innermost function"),
        Info::text("file", "source file of the innermost function"),
        Info::uint("line", "", "source line of the innermost function"),
        Info::text("label", "label or pool of the blocks"),
        Info::text(
            "kind",
            "kind of memory: heap, mapped, device, outside, pool_block, pool_chunk, …",
        ),
        Info::text(
            "call",
            "function called: malloc, calloc, realloc, aligned, new or other, in recordings made \
             with --by-call",
        ),
    ]
}

/// How exact the bytes of a site are, where they are estimates.
const EFFECTIVE: [(&str, &str); 3] = [
    (
        "allocated_effective",
        "with --mode sampled: effective number of sampled blocks that usable_bytes is estimated \
         from; the standard error of a sum of bytes is sample_mean_bytes times the root of the sum \
         of these",
    ),
    ("live_effective", "the same for live_bytes"),
    ("at_peak_effective", "the same for at_peak_bytes"),
];

fn columns() -> Vec<Info> {
    let mut all = of_blocks();
    all.extend([
        Info::text(
            "class",
            "purpose of a mapping (allocator, file, …), or way in which device memory \
             was allocated (memory, stream, array, physical)",
        ),
        Info::text("device", "device with the memory, such as `CUDA device 0`"),
        Info::text("mem.alloc", "label, or `malloc`; only with allocations"),
        Info::text("lane", "name of the threads").also("thread"),
        Info::uint("size", "bytes", "request size, in recordings made with --by-size")
            .also("alloc.total_size"),
        Info::uint("count", "blocks", "allocations; the column that count() sums").if_named(),
    ]);
    all.extend(Measure::of_parts().map(measure));
    all.extend([
        Info::uint("slack_bytes", "bytes", "usable bytes beyond the requested ones"),
        Info::uint("moved_blocks", "blocks", "allocations moved here by labelling"),
        Info::uint("moved_usable_bytes", "bytes", "usable bytes moved here by labelling"),
        Info::uint("moved_requested_bytes", "bytes", "requested bytes moved here by labelling"),
        Info::uint("lent_bytes", "bytes", "bytes of pool chunks used by pool blocks"),
        live::requested(),
    ]);
    all.extend(EFFECTIVE.map(|(name, says)| Info::new(name, Kind::Double, "", says).if_named()));
    all
}

fn fill(filler: &mut Filler, process: &Process) {
    let places = Places::of(filler, process);
    let blocks = Blocks::new(filler, process);
    let of = Of::new(filler, process);
    let live = Live::of(filler, process);
    for (index, site) in process.tables.sites.iter().enumerate() {
        let row = filler.row();
        places.set(filler, row, site.scope);
        blocks.set(filler, process, row, site);
        of.set(filler, &blocks, row, site);
        live.set_site(filler, row, index);
    }
}

/// Returns nodes by stack; empty if not needed.
pub(super) fn stack_nodes(filler: &mut Filler, process: &Process) -> Vec<NodeId> {
    stack_tree(filler, process, "stack")
}

/// Like `stack_nodes`, for stacks in another column.
pub(super) fn stack_tree(filler: &mut Filler, process: &Process, column: &str) -> Vec<NodeId> {
    match filler.column(column) {
        Some(stack) => stack_tree_of(filler, process, stack),
        None => Vec::new(),
    }
}

/// Like `stack_nodes`, of nodes with this attribute.
pub(super) fn stack_tree_of(
    filler: &mut Filler,
    process: &Process,
    stack: AttributeId,
) -> Vec<NodeId> {
    let names: Vec<Bits> = (0..process.tables.frames.len() as u32)
        .map(|frame| filler.table.strings.bits(&process.label(FrameId(frame))))
        .collect();
    let mut nodes = vec![NodeId(0); process.tables.stacks.len()];
    for (id, node) in process.tables.stacks.iter().enumerate().skip(1) {
        let (parent, name) = (nodes[node.parent.0 as usize], names[node.frame.0 as usize]);
        nodes[id] = filler.table.node(parent, stack, name);
    }
    nodes
}

/// The nodes and iteration values of scopes, by scope path.
pub(super) struct Places {
    pub(super) nodes: Vec<NodeId>,
    pub(super) iterations: Vec<(AttributeId, Vec<Option<Bits>>)>,
}

impl Places {
    pub(super) fn of(filler: &mut Filler, process: &Process) -> Places {
        let nodes = vec![NodeId(0); process.tables.scopes.len()];
        let mut places = Places { nodes, iterations: Vec::new() };
        for (id, scope) in process.tables.scopes.iter().enumerate().skip(1) {
            let above = scope.parent.0 as usize;
            places.nodes[id] = places.nodes[above];
            places.iterations.iter_mut().for_each(|(_, values)| values[id] = values[above]);
            let Some(&attribute) = filler.scopes.get(&*scope.attribute) else {
                continue;
            };
            let kind = filler.table.of(attribute).kind;
            let Some(value) = filler.table.strings.parse(&scope.value, kind) else {
                continue;
            };
            match filler.table.of(attribute).form {
                Form::Nested => {
                    let above = places.nodes[above];
                    places.nodes[id] = filler.table.node(above, attribute, value);
                }
                _ => places.values(attribute)[id] = Some(value),
            }
        }
        places
    }

    /// Returns the values of a loop's iterations by scope path.
    fn values(&mut self, attribute: AttributeId) -> &mut [Option<Bits>] {
        let known = self.iterations.iter().position(|(id, _)| *id == attribute);
        let at = known.unwrap_or_else(|| {
            self.iterations.push((attribute, vec![None; self.nodes.len()]));
            self.iterations.len() - 1
        });
        &mut self.iterations[at].1
    }

    pub(super) fn set(&self, filler: &mut Filler, row: usize, scope: ScopeId) {
        let scope = scope.0 as usize;
        filler.table.paths[row] = self.nodes[scope];
        for (id, values) in &self.iterations {
            filler.set(Some(*id), row, values[scope]);
        }
    }
}

type Column = Option<AttributeId>;

/// The columns that blocks inherit from their site, with their texts.
pub(super) struct Blocks {
    owners: Option<Owners>,
    types: Types,
    stacks: Vec<NodeId>,
    frame: Column,
    owner: Column,
    owner_file: Column,
    owner_line: Column,
    of_type: Column,
    module: Column,
    file: Column,
    line: Column,
    label: Column,
    kind: Column,
    call: Column,
    class: Column,
    device: Column,
    pub(super) labels: Vec<Bits>,
}

impl Blocks {
    pub(super) fn new(filler: &mut Filler, process: &Process) -> Blocks {
        let stacks = stack_nodes(filler, process);
        let strings = &mut filler.table.strings;
        let labels = process.tables.labels.iter().map(|label| strings.bits(&label.name)).collect();
        let column = |name| filler.column(name);
        let (owner, of_type) = (column("owner"), column("type"));
        let (owner_file, owner_line) = (column("owner_file"), column("owner_line"));
        let owners = owner.or(owner_file).or(owner_line).or(of_type).map(|_| Owners::of(process));
        let types = owners.as_ref().filter(|_| of_type.is_some());
        let types = types.map_or(Types::default(), |owners| Types::of(process, owners));
        Blocks {
            owners,
            types,
            stacks,
            frame: column("frame"),
            owner,
            owner_file,
            owner_line,
            of_type,
            module: column("module"),
            file: column("file"),
            line: column("line"),
            label: column("label"),
            kind: column("kind"),
            call: column("call"),
            class: column("class"),
            device: column("device"),
            labels,
        }
    }

    /// Returns the label of a site's blocks.
    pub(super) fn label(&self, site: &Site) -> Option<Bits> {
        site.label.map(|id| self.labels[id.0 as usize])
    }

    pub(super) fn set(&self, filler: &mut Filler, process: &Process, row: usize, site: &Site) {
        let stack = self.stacks.get(site.stack.0 as usize);
        filler.table.others[row] = stack.copied().unwrap_or_default();
        filler.set(self.label, row, self.label(site));
        if self.kind.is_some() {
            let kind = filler.table.strings.bits(site.kind.name());
            filler.set(self.kind, row, Some(kind));
        }
        if let (Some(_), Some(call)) = (self.call, site.call) {
            let call = filler.table.strings.bits(call.name());
            filler.set(self.call, row, Some(call));
        }
        let device = site.kind.device_memory();
        let mapping = site.kind.mapping().map(|mapping| mapping.class.name());
        let class = mapping.or_else(|| device.map(|memory| memory.class.name()));
        if let (Some(_), Some(class)) = (self.class, class) {
            let class = filler.table.strings.bits(class);
            filler.set(self.class, row, Some(class));
        }
        if let (Some(_), Some(memory)) = (self.device, device) {
            let device = filler.table.strings.bits(&memory.device.to_string());
            filler.set(self.device, row, Some(device));
        }
        self.place(filler, process, row, site.stack);
    }

    /// Sets the location of the innermost function.
    fn place(&self, filler: &mut Filler, process: &Process, row: usize, stack: StackId) {
        let Some(id) = process.frames_of(stack).next() else {
            return;
        };
        let frame = &process.tables.frames[id.0 as usize];
        let mut text = |column: Column, text: Option<&str>| {
            if let (Some(_), Some(text)) = (column, text) {
                let bits = filler.table.strings.bits(text);
                filler.set(column, row, Some(bits));
            }
        };
        if self.frame.is_some() {
            text(self.frame, Some(&process.label(id)));
        }
        if let (Some(_), Some(owners)) = (self.owner, &self.owners) {
            let owner = owners.frame(process, stack);
            text(self.owner, owner.map(|id| process.label(id)).as_deref());
        }
        let owner = self.owners.as_ref().and_then(|owners| owners.frame(process, stack));
        let owner = owner.map(|id| &process.tables.frames[id.0 as usize]);
        text(self.owner_file, owner.and_then(|owner| owner.file.as_deref()));
        text(self.of_type, self.types.of_stack(stack).map(|id| self.types.name(id)));
        let module = frame.module.map(|id| process.tables.modules[id.0 as usize].path.as_str());
        text(self.module, module);
        text(self.file, frame.file.as_deref());
        let line = |frame: &Frame| frame.line.map(|line| Bits(line.into()));
        filler.set(self.line, row, line(frame));
        filler.set(self.owner_line, row, owner.and_then(line));
    }
}

/// The columns that only sites have.
struct Of {
    alloc: Column,
    lane: Column,
    size: Column,
    count: Column,
    measures: Vec<(Measure, AttributeId)>,
    others: [Column; 5],
    effective: [Column; 3],
    lanes: Vec<Bits>,
    malloc: Bits,
}

impl Of {
    fn new(filler: &mut Filler, process: &Process) -> Of {
        let strings = &mut filler.table.strings;
        let lanes = process.tables.lanes.iter().map(|lane| strings.bits(&lane.name)).collect();
        let malloc = strings.bits("malloc");
        let column = |name| filler.column(name);
        let measures = Measure::of_parts()
            .filter_map(|of| column(of.name()).map(|column| (of, column)))
            .collect();
        let others = [
            "slack_bytes",
            "moved_blocks",
            "moved_usable_bytes",
            "moved_requested_bytes",
            "lent_bytes",
        ];
        Of {
            alloc: column("mem.alloc"),
            lane: column("lane"),
            size: column("size"),
            count: column("count"),
            measures,
            others: others.map(column),
            effective: EFFECTIVE.map(|(name, _)| column(name)),
            lanes,
            malloc,
        }
    }

    fn set(&self, filler: &mut Filler, blocks: &Blocks, row: usize, site: &Site) {
        if site.measures.allocations > 0 {
            filler.set(self.alloc, row, blocks.label(site).or(Some(self.malloc)));
        }
        filler.set(self.lane, row, self.lanes.get(site.lane.0 as usize).copied());
        filler.set(self.size, row, site.size.map(Bits));
        filler.set(self.count, row, Some(Bits(site.measures.allocations)));
        for &(measure, column) in &self.measures {
            filler.set(Some(column), row, Some(Bits(measure.of(&site.measures))));
        }
        let moved = site.moved;
        let values = [
            site.measures.slack_bytes(),
            moved.blocks,
            moved.usable_bytes,
            moved.requested_bytes,
            site.lent_bytes,
        ];
        for (column, value) in self.others.into_iter().zip(values) {
            filler.set(column, row, Some(Bits(value)));
        }
        let Spread { allocated, live, at_peak } = site.measures.spread;
        for (column, number) in self.effective.into_iter().zip([allocated, live, at_peak]) {
            filler.set(column, row, Some(Bits::double(number.into())));
        }
    }
}

/// Returns the column of stacks, for other tables with this column.
pub(super) fn stack_column() -> Info {
    Info::new("stack", Kind::Text, "", "functions from the outermost to the innermost")
        .form(Form::Stack)
        .also("function")
}
