//! What has a time, and sizes: windows, marks and snapshots, the timeline, the histogram.

use heaptide_analysis::model::MarkKind;

use super::{Info, Records, Source};
use crate::value::Kind;

pub(super) const WINDOWS: Source = Source {
    name: "windows",
    says: "a named interval of the process, with what happened in it",
    columns: || {
        let change = |name, unit, says| Info::new(name, Kind::Int, unit, says);
        vec![
            Info::text("name", "what it was called"),
            Info::new("open", Kind::Bool, "", "whether it has not ended"),
            Info::uint("begin_ns", "ns", "when it began, from the start of the process"),
            Info::uint("end_ns", "ns", "when it ended"),
            Info::uint("allocations", "blocks", "blocks allocated"),
            Info::uint("frees", "blocks", "blocks freed"),
            Info::uint("reallocations", "events", "blocks reallocated"),
            Info::uint("failed", "events", "allocations that failed"),
            Info::uint("requested_bytes", "bytes", "bytes asked for"),
            Info::uint("usable_bytes", "bytes", "bytes given"),
            Info::uint("freed_bytes", "bytes", "bytes freed"),
            change("live_blocks", "blocks", "change of live blocks"),
            change("live_bytes", "bytes", "change of live bytes"),
            Info::uint("peak_bytes", "bytes", "the most that was live in it"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for window in &process.windows {
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
    says: "a moment: a mark, a snapshot, a reset, recording turned on or off",
    columns: || {
        vec![
            Info::uint("time_ns", "ns", "when it was, from the start of the process"),
            Info::text("kind", "what it was: mark, snapshot, reset, on or off"),
            Info::text("name", "what it was called"),
            Info::uint("number", "", "of snapshots and resets, which it was, from 1"),
            Info::text("lane", "the thread it came from").also("thread"),
            Info::uint("live_bytes", "bytes", "bytes that were live").also("mem.active"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for mark in &process.marks {
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
            if let Some(lane) = mark.lane.and_then(|id| process.lanes.get(id.0 as usize)) {
                filler.text("lane", row, &lane.name);
            }
            filler.uint("live_bytes", row, mark.live_bytes);
        }
    }),
};

pub(super) const TIMELINE: Source = Source {
    name: "timeline",
    says: "the state of the process at a moment",
    columns: || {
        vec![
            Info::uint("time_ns", "ns", "when it was, from the start of the process"),
            Info::uint("live_bytes", "bytes", "bytes that were live").also("mem.active"),
            Info::uint("peak_bytes", "bytes", "the most that was live until then"),
            Info::uint("allocations", "blocks", "blocks allocated until then"),
            Info::uint("frees", "blocks", "blocks freed until then"),
            Info::uint("usable_bytes", "bytes", "bytes given until then"),
            Info::uint("resident_bytes", "bytes", "memory of the process"),
            Info::uint("virtual_bytes", "bytes", "its address space"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for sample in &process.timeline {
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
    says: "a class of sizes",
    columns: || {
        vec![
            Info::uint("size_min", "bytes", "its smallest size"),
            Info::uint("size_max", "bytes", "its largest size"),
            Info::uint("requested", "blocks", "blocks that were asked for with such a size"),
            Info::uint("usable", "blocks", "blocks that have such a size"),
            Info::uint("freed", "blocks", "those that were freed"),
        ]
    },
    records: Records::Tables(|filler, process| {
        for class in &process.histogram {
            let row = filler.row();
            filler.uint("size_min", row, class.size_min);
            filler.uint("size_max", row, class.size_max);
            filler.uint("requested", row, class.requested);
            filler.uint("usable", row, class.usable);
            filler.uint("freed", row, class.freed);
        }
    }),
};
