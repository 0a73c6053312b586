//! What sites are told apart by: stacks, frames, scopes, labels, lanes, processes, modules.

use heaptide_analysis::aggregate::{Sum, by_stack};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{End, FrameId, Mode, Process, ScopeId};
use heaptide_analysis::scopes;
use rustc_hash::FxHashMap;

use super::sites::{Places, stack_column, stack_nodes};
use super::{Filler, Info, Records, Source, measure, of_rows};
use crate::value::Kind;

pub(super) const STACKS: Source = Source {
    name: "stacks",
    says: "a stack, with what was allocated there over all scopes, labels and threads",
    columns: || {
        let mut all = vec![
            stack_column(),
            Info::text("frame", "the innermost function"),
            Info::uint("depth", "frames", "how many functions it has"),
        ];
        all.extend(of_rows().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let nodes = stack_nodes(filler, process);
        for (stack, sums) in by_stack(process) {
            let row = filler.row();
            filler.table.others[row] = nodes.get(stack.0 as usize).copied().unwrap_or_default();
            if let Some(frame) = process.frames_of(stack).next() {
                filler.text("frame", row, &process.label(frame));
            }
            filler.uint("depth", row, process.frames_of(stack).count() as u64);
            filler.measures(row, &sums);
        }
    }),
};

pub(super) const FRAMES: Source = Source {
    name: "frames",
    says: "a place in a function that stacks go through",
    columns: || {
        vec![
            Info::text("function", "the function; module and offset if nothing names it"),
            Info::text("module", "path of the file with its code"),
            Info::new("offset", Kind::Address, "", "address in that file"),
            Info::text("file", "source file"),
            Info::uint("line", "", "line of the call"),
            Info::new("inlined", Kind::Bool, "", "whether it is inlined into its caller"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for (frame, id) in process.frames.iter().zip(0..) {
            let row = filler.row();
            filler.text("function", row, &process.label(FrameId(id)));
            if let Some(module) = frame.module {
                filler.text("module", row, &process.modules[module.0 as usize].path);
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
    says: "a scope inside the scopes round it, with what was allocated just there",
    columns: || {
        let mut all = vec![
            Info::text("attribute", "what kind of scope it is, such as region"),
            Info::text("value", "its name"),
            Info::uint("entered", "times", "how often it was entered"),
        ];
        all.extend(of_rows().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let places = Places::of(filler, process);
        let sums = scopes::sums(process, None);
        for ((scope, id), sums) in process.scopes.iter().zip(0..).zip(sums).skip(1) {
            let row = filler.row();
            places.set(filler, row, ScopeId(id));
            filler.text("attribute", row, &scope.attribute);
            filler.text("value", row, &scope.value);
            filler.uint("entered", row, scope.entered);
            filler.measures(row, &sums.own);
        }
    }),
};

pub(super) const LABELS: Source = Source {
    name: "labels",
    says: "a label or a pool, with what it names",
    columns: || {
        let mut all = vec![
            Info::text("label", "its name"),
            Info::new("pool", Kind::Bool, "", "whether it is a pool"),
            Info::text("kind", "whose memory it names: heap, outside, pool_block, pool_chunk, …"),
        ];
        all.extend(of_rows().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let mut rows = FxHashMap::default();
        for site in &process.sites {
            if let Some(label) = site.label {
                let sums: &mut heaptide_analysis::model::Measures =
                    rows.entry((label, site.kind)).or_default();
                sums.add(&site.measures);
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|row| row.0);
        for ((label, kind), sums) in rows {
            let row = filler.row();
            let label = &process.labels[label.0 as usize];
            filler.text("label", row, &label.name);
            filler.uint("pool", row, label.pool);
            filler.text("kind", row, kind.name());
            filler.measures(row, &sums);
        }
    }),
};

pub(super) const LANES: Source = Source {
    name: "lanes",
    says: "threads of one name that were there one after the other",
    columns: || {
        let mut all = vec![
            Info::text("lane", "their name").also("thread"),
            Info::uint("threads", "threads", "how many they were"),
        ];
        all.extend(of_rows().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        for lane in &process.lanes {
            let row = filler.row();
            filler.text("lane", row, &lane.name);
            filler.uint("threads", row, lane.threads);
            filler.measures(row, &lane.measures);
        }
    }),
};

pub(super) const PROCESSES: Source = Source {
    name: "processes",
    says: "a program in a process, from its start (or fork, or exec) to its end",
    columns: || {
        let mut all = vec![
            Info::uint("parent", "", "process id of the parent"),
            Info::new("forked", Kind::Bool, "", "whether it began as a fork of a recorded one"),
            Info::text("command", "program and arguments"),
            Info::uint("ranks", "", "processes of the parallel job"),
            Info::text("job", "the parallel job"),
            Info::text("mode", "what was recorded: counters, scopes or stacks"),
            Info::text("end", "how it ended: exited, signaled, exec, running or unknown"),
            Info::new("status", Kind::Int, "", "exit status, or number of the signal"),
            Info::uint("start_ns", "ns", "start, from 1970-01-01 UTC"),
            Info::uint("duration_ns", "ns", "from start to end, or to the last sign of life"),
            Info::uint("peak_time_ns", "ns", "when most was live, from the start"),
            Info::uint("unmatched_frees", "blocks", "frees of blocks never seen allocated"),
        ];
        all.extend(Measure::all().iter().copied().map(measure));
        all
    },
    records: Records::Tables(process),
};

fn process(filler: &mut Filler, process: &Process) {
    let row = filler.row();
    if process.images == 1 {
        filler.uint("parent", row, process.ppid);
    }
    filler.uint("forked", row, process.forked);
    filler.text("command", row, &process.command.join(" "));
    if let Some(rank) = process.rank.filter(|rank| rank.of > 0) {
        filler.uint("ranks", row, rank.of);
    }
    if !process.job.is_empty() {
        filler.text("job", row, &process.job);
    }
    let mode = match process.mode {
        Mode::Counters => "counters",
        Mode::Scopes => "scopes",
        Mode::Stacks => "stacks",
    };
    filler.text("mode", row, mode);
    let (end, status) = match process.end {
        End::Exited(status) => ("exited", Some(status)),
        End::Signaled(signal) => ("signaled", Some(signal)),
        End::Exec => ("exec", None),
        End::Running => ("running", None),
        End::Unknown => ("unknown", None),
    };
    filler.text("end", row, end);
    status.into_iter().for_each(|status| filler.int("status", row, status.into()));
    filler.uint("start_ns", row, process.start_realtime_ns);
    filler.uint("duration_ns", row, process.duration_ns);
    filler.uint("peak_time_ns", row, process.peak_time_ns);
    filler.uint("unmatched_frees", row, process.unmatched_frees);
    filler.measures(row, &process.totals);
    filler.uint("peak_bytes", row, process.totals.peak_bytes);
}

pub(super) const MODULES: Source = Source {
    name: "modules",
    says: "a file with code that stacks go through",
    columns: || {
        let mut all = vec![
            Info::text("module", "its path"),
            Info::text("build_id", "its GNU build-id"),
            Info::new("start", Kind::Address, "", "first address"),
            Info::new("end", Kind::Address, "", "one past the last address"),
            Info::new("unloaded", Kind::Bool, "", "whether it was unloaded before the end"),
        ];
        all.extend(of_rows().map(measure));
        all
    },
    records: Records::Tables(|filler, process| {
        let mut sums = vec![Sum::default(); process.modules.len()];
        for site in &process.sites {
            let frame = process.frames_of(site.stack).next();
            if let Some(module) = frame.and_then(|id| process.frames[id.0 as usize].module) {
                sums[module.0 as usize].add(site);
            }
        }
        for (module, sums) in process.modules.iter().zip(sums) {
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
