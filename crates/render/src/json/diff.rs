//! A difference as JSON, streamed: totals in all metrics, and all rows that changed.

use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::diff::{
    Change, Changes, Difference, FunctionChange, Limits, Name, PathChange,
};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::annotations::SCOPES;
use crate::json::entries::{EndEntry, SamplingEntry};
use crate::shared::difference::{Rows, View};
use crate::shared::json_text;
use crate::shared::quantity::{rfc3339, seconds};
use crate::shared::sequence::seq;

/// Version of the schema; incremented when the meaning of a key changes or a key is removed.
const SCHEMA: u32 = 1;

/// Writes the difference as one JSON object and a newline.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, difference: &Difference, view: &View) -> io::Result<()> {
    json_text::write(out, &Whole { difference, view })?;
    out.write_all(b"\n")
}

struct Whole<'a> {
    difference: &'a Difference,
    view: &'a View<'a>,
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Whole { difference, view } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &SCHEMA)?;
        map.serialize_entry("heaptide", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("measure", difference.measure.name())?;
        map.serialize_entry("by", view.rows.name())?;
        map.serialize_entry("before", &Compared(view.before, &difference.before))?;
        map.serialize_entry("after", &Compared(view.after, &difference.after))?;
        map.serialize_entry("totals", &Totals(difference))?;
        let without_rows = view.without_rows(difference);
        map.serialize_entry("without_rows", &without_rows)?;
        let top = if without_rows.is_some() { 0 } else { view.top.unwrap_or(usize::MAX) };
        match view.rows {
            Rows::Functions | Rows::Lines => {
                let Changes { rows, uncertain } = difference.functions();
                serialize_uncertain(difference, uncertain, &mut map)?;
                let row = |&change: &FunctionChange| FunctionRow { difference, change };
                map.serialize_entry("rows", &seq(rows.iter().take(top).map(row)))?;
            }
            Rows::Stacks => {
                let names = difference.names.iter().map(FunctionEntry);
                map.serialize_entry("functions", &seq(names))?;
                let Changes { rows, uncertain } = difference.paths();
                serialize_uncertain(difference, uncertain, &mut map)?;
                let row = |&change: &PathChange| StackRow { difference, change };
                map.serialize_entry("rows", &seq(rows.iter().take(top).map(row)))?;
            }
            Rows::Scopes => {
                let Changes { rows, uncertain } = difference.paths();
                serialize_uncertain(difference, uncertain, &mut map)?;
                let row = |&change: &PathChange| ScopeRow { difference, change };
                map.serialize_entry("rows", &seq(rows.iter().take(top).map(row)))?;
            }
        }
        map.end()
    }
}

/// The name of a recording, and its process.
struct Compared<'a>(&'a str, &'a Process);

impl Serialize for Compared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Compared(recording, process) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("recording", recording)?;
        map.serialize_entry("pid", &process.identity.pid)?;
        map.serialize_entry("image", &process.identity.image)?;
        map.serialize_entry("images", &process.identity.images)?;
        map.serialize_entry("program", &process.identity.program)?;
        map.serialize_entry("command", &process.identity.command)?;
        map.serialize_entry("host", &process.identity.host)?;
        map.serialize_entry("start_time", &rfc3339(process.lifetime.start_realtime_ns))?;
        map.serialize_entry("duration_s", &seconds(process.lifetime.duration_ns))?;
        map.serialize_entry("duration_is_known", &process.lifetime.duration_is_known)?;
        map.serialize_entry("end", &EndEntry::of(process.lifetime.end))?;
        map.serialize_entry("mode", process.mode_name())?;
        if let Some(sampling) = SamplingEntry::of(process) {
            map.serialize_entry("sampling", &sampling)?;
        }
        map.serialize_entry("part", &process.completeness.part)?;
        map.serialize_entry("peak_bound_bytes", &process.completeness.peak_bound_bytes)?;
        map.serialize_entry("lost_events", &process.completeness.lost_events())?;
        map.end()
    }
}

struct Totals<'a>(&'a Difference);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for measure in Measure::all() {
            map.serialize_entry(measure.name(), &Values(self.0.total_of(*measure), None))?;
        }
        map.end()
    }
}

/// Writes the number of rows that are omitted as uncertain, if estimates are compared.
fn serialize_uncertain<M: SerializeMap>(
    difference: &Difference,
    rows: usize,
    map: &mut M,
) -> Result<(), M::Error> {
    let processes = [&difference.before, &difference.after];
    if processes.iter().all(|process| process.sampling.is_none()) {
        return Ok(());
    }
    map.serialize_entry("uncertain_rows", &rows)
}

/// A change: both values and their difference; for estimates also its 95 % limits.
struct Values(Change, Option<Limits>);

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("before", &self.0.before)?;
        map.serialize_entry("after", &self.0.after)?;
        map.serialize_entry("change", &self.0.amount())?;
        if let Some(Limits { low, high }) = self.1 {
            map.serialize_entry("change_low", &low)?;
            map.serialize_entry("change_high", &high)?;
        }
        map.end()
    }
}

/// A function, or a line of it: name, module and place. Instead of a name it has the address of a
/// call in the module of one build, or null for all nameless functions of a module.
struct FunctionEntry<'a>(&'a Name);

impl FunctionEntry<'_> {
    fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let function = match self.0 {
            Name::Function { name, .. } | Name::Line { name, .. } => Some(&**name),
            Name::Nameless(_) | Name::Place { .. } | Name::Scope { .. } => None,
        };
        let offset = match self.0 {
            Name::Place { offset, .. } => Some(offset),
            Name::Function { .. } | Name::Line { .. } | Name::Nameless(_) | Name::Scope { .. } => {
                None
            }
        };
        map.serialize_entry("function", &function)?;
        if let Name::Line { place, .. } = self.0 {
            map.serialize_entry("place", &**place)?;
        }
        map.serialize_entry("module", self.0.module())?;
        map.serialize_entry("offset", &offset)
    }
}

impl Serialize for FunctionEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        self.serialize_into(&mut map)?;
        map.end()
    }
}

struct FunctionRow<'a> {
    difference: &'a Difference,
    change: FunctionChange,
}

impl Serialize for FunctionRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FunctionRow { difference, change } = self;
        let mut map = serializer.serialize_map(Some(5))?;
        match change.name {
            Some(id) => FunctionEntry(&difference.names[id as usize]).serialize_into(&mut map)?,
            None => {
                map.serialize_entry("function", &None::<&str>)?;
                map.serialize_entry("module", &None::<&str>)?;
                map.serialize_entry("offset", &None::<u64>)?;
            }
        }
        map.serialize_entry("own", &Values(change.own, change.limits.map(|limits| limits[0])))?;
        map.serialize_entry(
            "inclusive",
            &Values(change.inclusive, change.limits.map(|limits| limits[1])),
        )?;
        map.end()
    }
}

struct StackRow<'a> {
    difference: &'a Difference,
    change: PathChange,
}

impl Serialize for StackRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StackRow { difference, change } = self;
        let mut stack: Vec<u32> = difference.paths.names_of(change.path).collect();
        stack.reverse();
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("stack", &stack)?;
        map.serialize_entry("own", &Values(change.own, change.limits.map(|limits| limits[0])))?;
        map.end()
    }
}

struct ScopeRow<'a> {
    difference: &'a Difference,
    change: PathChange,
}

#[derive(serde::Serialize)]
struct ScopeEntry<'a> {
    attribute: &'a str,
    value: &'a str,
}

impl Serialize for ScopeRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ScopeRow { difference, change } = self;
        let entry = |name: u32| match &difference.names[name as usize] {
            Name::Scope { attribute, value } => Some(ScopeEntry { attribute, value }),
            Name::Function { .. } | Name::Line { .. } | Name::Nameless(_) | Name::Place { .. } => {
                None
            }
        };
        let names = difference.paths.names_of(change.path).take(SCOPES + 1);
        let mut path: Vec<_> = names.filter_map(entry).collect();
        let is_cut = path.len() > SCOPES;
        path.truncate(SCOPES);
        path.reverse();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("scope", &path)?;
        if is_cut {
            map.serialize_entry("scope_cut", &true)?;
        }
        map.serialize_entry("own", &Values(change.own, change.limits.map(|limits| limits[0])))?;
        map.serialize_entry(
            "inclusive",
            &Values(change.inclusive, change.limits.map(|limits| limits[1])),
        )?;
        map.end()
    }
}
