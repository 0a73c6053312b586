//! Tables of the dimensions of sites: stacks, frames, scopes, labels, lanes, processes, modules.

use heaptide_analysis::model::{End, FrameId, LabelId, Measure, Process, ScopeId, Shape, Sum};
use heaptide_analysis::views::aggregate::by_stack;
use heaptide_analysis::views::scopes;
use rustc_hash::{FxHashMap, FxHashSet};

use super::info::{Info, measure};
use super::live::{self, Live};
use super::sites::{Places, stack_column, stack_nodes};
use super::source::{Filler, Records, Source};
use crate::value::Kind;

pub(super) const STACKS: Source = Source {
    name: "stacks",
    says: "call stacks, with metrics over all scopes, labels and threads",
    columns: || {
        let mut all = vec![
            stack_column(),
            Info::text("frame", "innermost function"),
            Info::uint("depth", "frames", "number of functions"),
        ];
        all.extend(Measure::of_parts().map(measure));
        all.push(live::requested());
        all.extend(live::highest());
        all
    },
    records: Records::Tables(|filler, process| {
        let nodes = stack_nodes(filler, process);
        let live = Live::of(filler, process);
        let requested = live.by_stack(process);
        for (stack, sums) in by_stack(process) {
            let row = filler.row();
            filler.table.others[row] = nodes.get(stack.0 as usize).copied().unwrap_or_default();
            if let Some(frame) = process.frames_of(stack).next() {
                filler.text("frame", row, &process.label(frame));
            }
            filler.uint("depth", row, process.frames_of(stack).count() as u64);
            filler.measures(row, &sums);
            let by_counters = requested.get(stack.0 as usize).copied().flatten();
            live.set_stack(filler, row, stack, by_counters, sums.live_bytes);
        }
    }),
};

pub(super) const FRAMES: Source = Source {
    name: "frames",
    says: "places in functions on stacks",
    columns: || {
        vec![
            Info::text("function", "function, or module and offset without a name"),
            Info::text("module", "path of the file with its code"),
            Info::new("offset", Kind::Address, "", "address in that file"),
            Info::text("file", "source file"),
            Info::uint("line", "", "line of the call"),
            Info::new("inlined", Kind::Bool, "", "inlined into its caller"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for (frame, id) in process.tables.frames.iter().zip(0..) {
            let row = filler.row();
            filler.text("function", row, &process.label(FrameId(id)));
            if let Some(module) = frame.module {
                filler.text("module", row, &process.tables.modules[module.0 as usize].path);
            }
            filler.uint("offset", row, frame.offset);
            if let Some(file) = &frame.file {
                filler.text("file", row, file);
            }
            frame.line.into_iter().for_each(|line| filler.uint("line", row, line));
            filler.uint("inlined", row, frame.inlined);
        }
    }),
};

pub(super) const SCOPES: Source = Source {
    name: "scopes",
    says: "scope paths, with metrics of the scope itself",
    columns: || {
        let mut all = vec![
            Info::text("attribute", "attribute of the scope, such as region"),
            Info::text("value", "name"),
            Info::uint("entered", "times", "number of times entered"),
            Info::uint(
                "peak_bytes",
                "bytes",
                "highest live bytes of the process while a thread was in the scope",
            )
            .also("alloc.region.highwatermark"),
            Info::uint(
                "active_bytes",
                "bytes",
                "live bytes of the process when a thread last left the scope",
            )
            .also("mem.active"),
        ];
        all.extend(Measure::of_parts().map(measure));
        all.extend(live::highest());
        all
    },
    records: Records::Tables(|filler, process| {
        let live = Live::of(filler, process);
        let places = Places::of(filler, process);
        let sums = scopes::sums(process, None);
        for ((scope, id), sums) in process.tables.scopes.iter().zip(0..).zip(sums).skip(1) {
            let row = filler.row();
            places.set(filler, row, ScopeId(id));
            filler.text("attribute", row, &scope.attribute);
            filler.text("value", row, &scope.value);
            filler.uint("entered", row, scope.entered);
            if let Some(bytes) = scope.peak_bytes {
                filler.uint("peak_bytes", row, bytes);
            }
            if let Some(bytes) = scope.active_bytes {
                filler.uint("active_bytes", row, bytes);
            }
            filler.measures(row, &sums.own);
            let highest = live.highest.as_ref().and_then(|of| of.scopes.get(id as usize));
            live::set_highest(filler, row, highest);
        }
    }),
};

pub(super) const LABELS: Source = Source {
    name: "labels",
    says: "labels and pools, with metrics of their memory",
    columns: || {
        let mut all = vec![
            Info::text("label", "name"),
            Info::new("pool", Kind::Bool, "", "is a pool"),
            Info::text("kind", "kind of memory: heap, outside, pool_block, pool_chunk, …"),
            Info::text(
                "dims",
                "dimensions that the label gives, such as 3x4; if they differ, up to 16 with \
                 spaces between",
            )
            .also("alloc.dims"),
            Info::uint("element_bytes", "bytes", "bytes of an element, if they are all the same"),
        ];
        all.extend(Measure::of_parts().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let mut rows = FxHashMap::default();
        for site in &process.tables.sites {
            if let Some(label) = site.label {
                let sums: &mut heaptide_analysis::model::Measures =
                    rows.entry((label, site.kind)).or_default();
                sums.add(&site.measures);
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|row| row.0);
        let shapes = process.shapes_by_label();
        for ((id, kind), sums) in rows {
            let row = filler.row();
            let label = &process.tables.labels[id.0 as usize];
            filler.text("label", row, &label.name);
            filler.uint("pool", row, label.pool);
            filler.text("kind", row, kind.name());
            set_dims(filler, row, &shapes[id.0 as usize]);
            filler.measures(row, &sums);
        }
    }),
};

/// The most shapes to list in a row of a label.
const DIMS_LISTED: usize = 16;

fn set_dims(filler: &mut Filler, row: usize, shapes: &[&Shape]) {
    let Some(first) = shapes.first() else {
        return;
    };
    let mut dims: Vec<String> = Vec::new();
    for of in shapes.iter().map(|shape| shape.dims()) {
        if dims.len() == DIMS_LISTED {
            dims.push("…".to_owned());
            break;
        }
        if !dims.contains(&of) {
            dims.push(of);
        }
    }
    filler.text("dims", row, &dims.join(" "));
    if shapes.iter().all(|shape| shape.element_bytes == first.element_bytes) {
        filler.uint("element_bytes", row, first.element_bytes);
    }
}

pub(super) const SHAPES: Source = Source {
    name: "shapes",
    says: "dimensions of labelled memory, a row for each of a label",
    columns: || {
        vec![
            Info::text("label", "name"),
            Info::text("dims", "dimensions, such as 3x4").also("alloc.dims"),
            Info::uint("element_bytes", "bytes", "bytes of an element"),
            Info::uint("elements", "", "number of elements"),
            Info::uint("size", "bytes", "bytes of all elements").also("alloc.total_size"),
            Info::uint("labelled", "times", "number of times that memory got this label"),
        ]
    },
    records: Records::Tables(|filler, process| {
        let of_sites: FxHashSet<LabelId> =
            process.tables.sites.iter().filter_map(|site| site.label).collect();
        let shown = |shape: &&Shape| of_sites.contains(&shape.label);
        for shape in process.tables.shapes.iter().filter(shown) {
            let row = filler.row();
            let label = &process.tables.labels[shape.label.0 as usize];
            filler.text("label", row, &label.name);
            filler.text("dims", row, &shape.dims());
            filler.uint("element_bytes", row, shape.element_bytes);
            filler.uint("elements", row, shape.elements());
            filler.uint("size", row, shape.bytes());
            filler.uint("labelled", row, shape.labelled);
        }
    }),
};

pub(super) const LANES: Source = Source {
    name: "lanes",
    says: "threads, a row for threads with one name that never overlap (also `threads`)",
    columns: || {
        let mut all = vec![
            Info::text("lane", "name of the threads").also("thread"),
            Info::uint("threads", "threads", "number of threads"),
            Info::uint("tid", "", "number of the last thread"),
            Info::text("tids", "numbers of all threads, in order, separated by spaces"),
        ];
        all.extend(Measure::of_parts().map(measure));
        all.extend(live::highest());
        all
    },
    records: Records::Tables(|filler, process| {
        let live = Live::of(filler, process);
        for (index, lane) in process.tables.lanes.iter().enumerate() {
            let row = filler.row();
            filler.text("lane", row, &lane.name);
            filler.uint("threads", row, lane.threads);
            if let Some(&tid) = lane.tids.last() {
                filler.uint("tid", row, tid);
                let tids: Vec<String> = lane.tids.iter().map(u32::to_string).collect();
                filler.text("tids", row, &tids.join(" "));
            }
            filler.measures(row, &lane.measures);
            let highest = live.highest.as_ref().and_then(|of| of.lanes.get(index));
            live::set_highest(filler, row, highest);
        }
    }),
};

pub(super) const PROCESSES: Source = Source {
    name: "processes",
    says: "programs in processes, from the start, fork or exec to the end",
    columns: || {
        let mut all = vec![
            Info::uint("parent", "", "process id of the parent"),
            Info::new("forked", Kind::Bool, "", "forked from a recorded process"),
            Info::text("command", "command line"),
            Info::uint("ranks", "", "number of ranks in the parallel job"),
            Info::text("job", "parallel job"),
            Info::text("mode", "recording mode: counters, scopes, stacks or sampled"),
            Info::uint(
                "sample_mean_bytes",
                "bytes",
                "with --mode sampled: bytes allocated for each sampled block on average",
            )
            .if_named(),
            Info::uint("sampled_blocks", "blocks", "with --mode sampled: sampled blocks")
                .if_named(),
            Info::text("end", "end: exited, signaled, exec, running or unknown"),
            Info::new("status", Kind::Int, "", "exit status or signal number"),
            Info::uint("start_ns", "ns UTC", "start, from 1970-01-01 UTC"),
            Info::uint(
                "duration_ns",
                "ns",
                "time from the start to the end, or to the last sample",
            ),
            Info::uint("peak_time_ns", "ns", "time of the peak, from the start"),
            Info::uint(
                "unmatched_frees",
                "blocks",
                "frees of blocks whose allocation was not recorded",
            ),
        ];
        all.extend(Measure::all().iter().copied().map(measure));
        all
    },
    records: Records::Tables(process),
};

fn process(filler: &mut Filler, process: &Process) {
    let row = filler.row();
    if process.identity.images == 1 {
        filler.uint("parent", row, process.identity.ppid);
    }
    filler.uint("forked", row, process.identity.forked);
    filler.text("command", row, &process.identity.command.join(" "));
    if let Some(rank) = process.identity.rank.filter(|rank| rank.of > 0) {
        filler.uint("ranks", row, rank.of);
    }
    if !process.identity.job.is_empty() {
        filler.text("job", row, &process.identity.job);
    }
    filler.text("mode", row, process.mode_name());
    if let Some(sampling) = process.sampling {
        filler.uint("sample_mean_bytes", row, sampling.mean_bytes);
        filler.uint("sampled_blocks", row, sampling.blocks);
    }
    let (end, status) = match process.lifetime.end {
        End::Exited(status) => ("exited", Some(status)),
        End::Signaled(signal) => ("signaled", Some(signal)),
        End::Exec => ("exec", None),
        End::Detached => ("detached", None),
        End::Running => ("running", None),
        End::Unknown => ("unknown", None),
    };
    filler.text("end", row, end);
    status.into_iter().for_each(|status| filler.int("status", row, status.into()));
    filler.uint("start_ns", row, process.lifetime.start_realtime_ns);
    filler.uint("duration_ns", row, process.lifetime.duration_ns);
    filler.uint("peak_time_ns", row, process.peak_time_ns);
    filler.uint("unmatched_frees", row, process.completeness.unmatched_frees);
    filler.measures(row, &process.totals);
    filler.uint("peak_bytes", row, process.totals.peak_bytes);
}

pub(super) const MODULES: Source = Source {
    name: "modules",
    says: "files with code on stacks",
    columns: || {
        let mut all = vec![
            Info::text("module", "path"),
            Info::text("build_id", "GNU build id"),
            Info::new("start", Kind::Address, "", "first address"),
            Info::new("end", Kind::Address, "", "one past the last address"),
            Info::new("unloaded", Kind::Bool, "", "unloaded before the end"),
        ];
        all.extend(Measure::of_parts().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let mut sums = vec![Sum::default(); process.tables.modules.len()];
        for site in &process.tables.sites {
            let frame = process.frames_of(site.stack).next();
            if let Some(module) = frame.and_then(|id| process.tables.frames[id.0 as usize].module) {
                sums[module.0 as usize].add(site);
            }
        }
        for (module, sums) in process.tables.modules.iter().zip(sums) {
            let row = filler.row();
            filler.text("module", row, &module.path);
            let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
            if !build_id.is_empty() {
                filler.text("build_id", row, &build_id);
            }
            filler.uint("start", row, module.start);
            filler.uint("end", row, module.end);
            filler.uint("unloaded", row, module.unloaded);
            filler.measures(row, &sums.total());
        }
    }),
};
