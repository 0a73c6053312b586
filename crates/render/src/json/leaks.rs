//! Blocks that were never freed, as JSON.

use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Process, Recording, StackId};
use heaptide_analysis::views::leaks::{Leak, Leaks, Origin, counts};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::annotations::serialize_scope;
use crate::json::document;
use crate::json::entries::serialize_interval;
use crate::json::sites::FrameNumbers;
use crate::shared::sequence::seq;
use crate::shared::views::LeaksView;

/// Writes the leaks of the selected processes as JSON.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, recording: &Recording, view: &LeaksView) -> io::Result<()> {
    document::write(out, recording, view.process, |process| LeaksEntry { process, view })
}

struct LeaksEntry<'a> {
    process: &'a Process,
    view: &'a LeaksView<'a>,
}

#[derive(serde::Serialize)]
struct SuppressionEntry<'a> {
    pattern: &'a str,
    built_in: bool,
    blocks: u64,
    bytes: u64,
}

impl Serialize for LeaksEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LeaksEntry { process, view } = self;
        let found = Leaks::of(process, view.suppressions);
        let shown = &found.leaks[..view.top.unwrap_or(usize::MAX).min(found.leaks.len())];
        let numbers = FrameNumbers::of_stacks(process, shown.iter().filter_map(stack));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("mode", process.mode_name())?;
        map.serialize_entry("counts", &counts(process))?;
        if view.lost {
            let searched = process.completeness.searched;
            map.serialize_entry("searched_ns", &searched.map(|searched| searched.time_ns))?;
        }
        map.serialize_entry("live_blocks", &process.totals.live_blocks)?;
        map.serialize_entry("live_bytes", &process.totals.live_bytes)?;
        map.serialize_entry("leaked_blocks", &found.blocks())?;
        map.serialize_entry("leaked_bytes", &found.bytes())?;
        map.serialize_entry("frames", &numbers.entries(process))?;
        let leaks = shown.iter().map(|leak| LeakEntry { process, numbers: &numbers, leak });
        map.serialize_entry("leaks", &seq(leaks))?;
        let names = view.suppressions.names().into_iter().zip(&found.used).enumerate();
        let suppressions = names.map(|(i, (pattern, used))| SuppressionEntry {
            pattern,
            built_in: i >= view.suppressions.written(),
            blocks: used.blocks,
            bytes: used.bytes,
        });
        map.serialize_entry("suppressions", &seq(suppressions))?;
        map.end()
    }
}

fn stack(leak: &Leak) -> Option<StackId> {
    match leak.origin {
        Origin::Stack(stack) => Some(stack),
        Origin::Scope(_) | Origin::Lane(_) | Origin::Process => None,
    }
}

struct LeakEntry<'a> {
    process: &'a Process,
    numbers: &'a FrameNumbers,
    leak: &'a Leak,
}

impl Serialize for LeakEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LeakEntry { process, numbers, leak } = self;
        let mut map = serializer.serialize_map(None)?;
        let m = &leak.measures;
        map.serialize_entry("live_blocks", &m.live_blocks)?;
        map.serialize_entry("live_bytes", &m.live_bytes)?;
        serialize_interval(Measure::LiveBytes, m, process, &mut map)?;
        map.serialize_entry("allocations", &m.allocations)?;
        map.serialize_entry("usable_bytes", &m.usable_bytes)?;
        match leak.origin {
            Origin::Stack(stack) => {
                map.serialize_entry("stack", &numbers.stack(process, stack))?;
            }
            Origin::Scope(scope) => serialize_scope(process, scope, &mut map)?,
            Origin::Lane(id) => {
                let lane = process.tables.lanes.get(id.0 as usize);
                map.serialize_entry("lane", lane.map_or("", |lane| &lane.name))?;
            }
            Origin::Process => {}
        }
        map.end()
    }
}
