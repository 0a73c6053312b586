//! Tables of times and sizes: windows, marks and snapshots, the timeline, the histogram.

use heaptide_analysis::model::MarkKind;

use super::info::Info;
use super::source::{Records, Source};
use crate::value::Kind;

pub(super) const WINDOWS: Source = Source {
    name: "windows",
    says: "named intervals of the process, with metrics of the interval",
    columns: || {
        let change = |name, unit, says| Info::new(name, Kind::Int, unit, says);
        vec![
            Info::text("name", "name"),
            Info::new("open", Kind::Bool, "", "has not ended"),
            Info::uint("begin_ns", "ns", "begin, from the start of the process"),
            Info::uint("end_ns", "ns", "end, from the start of the process"),
            Info::uint("allocations", "blocks", "blocks allocated"),
            Info::uint("frees", "blocks", "blocks freed"),
            Info::uint("reallocations", "events", "blocks reallocated"),
            Info::uint("failed", "events", "failed allocations"),
            Info::uint("requested_bytes", "bytes", "requested bytes"),
            Info::uint("usable_bytes", "bytes", "usable bytes"),
            Info::uint("freed_bytes", "bytes", "usable bytes freed"),
            change("live_blocks", "blocks", "change of live blocks"),
            change("live_bytes", "bytes", "change of live bytes"),
            Info::uint("peak_bytes", "bytes", "peak of live bytes in the window")
                .also("alloc.region.highwatermark"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for window in &process.time.windows {
            let row = filler.row();
            filler.text("name", row, &window.name);
            filler.uint("open", row, window.open);
            filler.uint("begin_ns", row, window.begin_time_ns);
            if !window.open {
                filler.uint("end_ns", row, window.end_time_ns);
            }
            filler.uint("allocations", row, window.allocations);
            filler.uint("frees", row, window.frees);
            filler.uint("reallocations", row, window.reallocations);
            filler.uint("failed", row, window.failed);
            filler.uint("requested_bytes", row, window.requested_bytes);
            filler.uint("usable_bytes", row, window.usable_bytes);
            filler.uint("freed_bytes", row, window.freed_bytes);
            filler.int("live_blocks", row, window.live_blocks);
            filler.int("live_bytes", row, window.live_bytes);
            filler.uint("peak_bytes", row, window.peak_bytes);
        }
    }),
};

pub(super) const SNAPSHOTS: Source = Source {
    name: "snapshots",
    says: "marks, snapshots, resets, recording turned on or off (also `marks`)",
    columns: || {
        vec![
            Info::uint("time_ns", "ns", "time from the start of the process"),
            Info::text("kind", "kind: mark, snapshot, reset, on or off"),
            Info::text("name", "name"),
            Info::uint("number", "", "number of a snapshot or reset, from 1"),
            Info::text("lane", "thread that set it").also("thread"),
            Info::uint("live_bytes", "bytes", "live bytes").also("mem.active"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for mark in &process.time.marks {
            let row = filler.row();
            let kind = match mark.kind {
                MarkKind::Mark => "mark",
                MarkKind::Snapshot => "snapshot",
                MarkKind::Reset => "reset",
                MarkKind::On => "on",
                MarkKind::Off => "off",
            };
            filler.uint("time_ns", row, mark.time_ns);
            filler.text("kind", row, kind);
            if !mark.name.is_empty() {
                filler.text("name", row, &mark.name);
            }
            if matches!(mark.kind, MarkKind::Snapshot | MarkKind::Reset) {
                filler.uint("number", row, mark.number);
            }
            if let Some(lane) = mark.lane.and_then(|id| process.tables.lanes.get(id.0 as usize)) {
                filler.text("lane", row, &lane.name);
            }
            filler.uint("live_bytes", row, mark.live_bytes);
        }
    }),
};

pub(super) const TIMELINE: Source = Source {
    name: "timeline",
    says: "samples of the process over time",
    columns: || {
        vec![
            Info::uint("time_ns", "ns", "time from the start of the process"),
            Info::uint("live_bytes", "bytes", "live bytes").also("mem.active"),
            Info::uint("peak_bytes", "bytes", "peak of live bytes so far"),
            Info::uint("allocations", "blocks", "blocks allocated so far"),
            Info::uint("frees", "blocks", "blocks freed so far"),
            Info::uint("usable_bytes", "bytes", "usable bytes allocated so far"),
            Info::uint("resident_bytes", "bytes", "resident memory of the process"),
            Info::uint("virtual_bytes", "bytes", "virtual memory of the process"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for sample in &process.time.samples {
            let row = filler.row();
            filler.uint("time_ns", row, sample.time_ns);
            filler.uint("live_bytes", row, sample.live_bytes);
            filler.uint("peak_bytes", row, sample.peak_bytes);
            filler.uint("allocations", row, sample.allocations);
            filler.uint("frees", row, sample.frees);
            filler.uint("usable_bytes", row, sample.usable_bytes);
            if sample.resident_bytes > 0 {
                filler.uint("resident_bytes", row, sample.resident_bytes);
            }
            filler.uint("virtual_bytes", row, sample.virtual_bytes);
        }
    }),
};

pub(super) const HISTOGRAM: Source = Source {
    name: "histogram",
    says: "size classes",
    columns: || {
        vec![
            Info::uint("size_min", "bytes", "smallest size"),
            Info::uint("size_max", "bytes", "largest size"),
            Info::uint("requested", "blocks", "blocks with a requested size in the class"),
            Info::uint("usable", "blocks", "blocks with a usable size in the class"),
            Info::uint("freed", "blocks", "freed blocks with a usable size in the class"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for class in &process.tables.histogram {
            let row = filler.row();
            filler.uint("size_min", row, class.size_min);
            filler.uint("size_max", row, class.size_max);
            filler.uint("requested", row, class.requested);
            filler.uint("usable", row, class.usable);
            filler.uint("freed", row, class.freed);
        }
    }),
};
