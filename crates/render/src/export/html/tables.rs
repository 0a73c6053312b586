//! The tables of the page: functions, stacks, types, scopes, labels, lanes and sizes.

use std::cmp::Reverse;

use heaptide_analysis::attribution::{Owners, Types};
use heaptide_analysis::model::{LaneId, Measures, Process, SizeClass, StackId};
use heaptide_analysis::views::aggregate::{Group, GroupBy, Key, by_type, group};
use serde::Serialize;

use super::flames::{MEASURES, Names, Values};
use crate::shared::scope_path::scope_path;

/// Rows with most of each measure, of which a table has all.
const ROWS: usize = 250;
/// Frames of a stack, innermost ones first.
const FRAMES: usize = 120;
/// Characters of a scope path.
const PATH: usize = 300;

/// The rows of a table that have most by one of the measures.
#[derive(Serialize)]
struct Table {
    rows: Vec<Row>,
    left_out: usize,
}

#[derive(Serialize)]
struct Row {
    /// Index into the names.
    name: u32,
    own: Values,
    inclusive: Values,
    /// Of stacks: the names of its frames, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<u32>,
    /// How often it was entered, or by how many threads it was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    /// Of labels: what memory it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

/// All tables.
#[derive(Serialize)]
pub(super) struct Tables {
    functions: Table,
    stacks: Table,
    /// Without rows if no type is known.
    types: Table,
    scopes: Table,
    labels: Table,
    lanes: Table,
    sizes: Vec<Size>,
}

/// A class of sizes.
#[derive(Serialize)]
struct Size {
    min: u64,
    max: u64,
    requested: u64,
    usable: u64,
    freed: u64,
}

impl Tables {
    pub(super) fn of(process: &Process, owners: &Owners, names: &mut Names) -> Tables {
        let types = Types::of(process, owners);
        let mut of_groups = |groups| {
            let (groups, left_out) = largest(groups);
            let row = |group: &Group| row(process, owners, &types, names, group);
            Table { rows: groups.iter().map(row).collect(), left_out }
        };
        let known = if types.names.is_empty() { Vec::new() } else { by_type(process, &types) };
        let of_types = of_groups(known);
        let mut table = |by| of_groups(group(process, owners, by));
        let size = |&SizeClass { size_min, size_max, requested, usable, freed }: &SizeClass| Size {
            min: size_min,
            max: size_max,
            requested,
            usable,
            freed,
        };
        Tables {
            functions: table(GroupBy::Function),
            stacks: table(GroupBy::Stack),
            types: of_types,
            scopes: table(GroupBy::Scope),
            labels: table(GroupBy::Label),
            lanes: table(GroupBy::Lane),
            sizes: process.tables.histogram.iter().map(size).collect(),
        }
    }
}

/// Those with most by one of the measures, itself or inclusive, and how many others have any.
fn largest(mut groups: Vec<Group>) -> (Vec<Group>, usize) {
    groups.retain(|group| values(&group.inclusive) != Values::default());
    let mut shown = vec![false; groups.len()];
    let mut order: Vec<usize> = (0..groups.len()).collect();
    for measure in MEASURES {
        for of in [|group: &Group| group.own, |group: &Group| group.inclusive] {
            order.sort_by_key(|&index| Reverse(measure.of(&of(&groups[index]))));
            order.iter().take(ROWS).for_each(|&index| shown[index] = true);
        }
    }
    let all = groups.len();
    let kept: Vec<Group> = groups.into_iter().zip(shown).filter(|g| g.1).map(|g| g.0).collect();
    let left_out = all - kept.len();
    (kept, left_out)
}

fn values(measures: &Measures) -> Values {
    MEASURES.map(|measure| measure.of(measures))
}

fn row(process: &Process, owners: &Owners, types: &Types, names: &mut Names, group: &Group) -> Row {
    let mut row = Row {
        name: 0,
        own: values(&group.own),
        inclusive: values(&group.inclusive),
        frames: Vec::new(),
        times: None,
        kind: None,
    };
    row.name = match group.key {
        Key::Function(Some(function)) => names.function(owners.functions.first_frame(function)),
        Key::Stack(stack) if stack != StackId(0) => {
            row.frames =
                process.frames_of(stack).take(FRAMES).map(|frame| names.function(frame)).collect();
            let owner = owners.frame(process, stack);
            owner.map_or(row.frames[0], |frame| names.function(frame))
        }
        Key::Type(Some(id)) => names.plain(types.name(id)),
        Key::Type(None) => names.plain("(type not known)"),
        Key::Scope(scope) => {
            row.times = Some(process.tables.scopes[scope.0 as usize].entered);
            names.plain(&scope_path(process, scope, PATH))
        }
        Key::Label(label, kind) => {
            row.kind = Some(kind.name());
            let name = label.map(|label| &process.tables.labels[label.0 as usize].name);
            names.plain(name.map_or("(no label)", |name| name))
        }
        Key::Lane(LaneId(lane)) => {
            let lane = &process.tables.lanes[lane as usize];
            row.times = Some(lane.threads.into());
            names.plain(&lane.name)
        }
        _ => names.plain("(no stack)"),
    };
    row
}
