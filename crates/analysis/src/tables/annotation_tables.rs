//! Builds the tables of scopes, labels, windows and marks. A profile has a scope tree for each
//! lane; the tables have a single one.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::Sums;
use rustc_hash::FxHashMap;

use crate::model::{
    Entered, Label, LabelId, LaneId, Mark, MarkKind, Off, Scope, ScopeId, Shape, Window,
};
use crate::profile::annotations::Name;
use crate::profile::parsed::Profile;

/// Addresses of the two texts of a name; equal texts of a profile have the same address.
type Identity = (*const u8, *const u8);

fn identity(name: &Name) -> Identity {
    (name.attribute.as_ptr(), name.value.as_ptr())
}

/// If more bytes than this were live in a scope, its live bytes when a thread left it do not fit in
/// the record.
const LEFT_LIMIT: u64 = 8 << 32;

/// Returns the scope tree over all lanes, and the scope of each path by the slot of its index.
pub(crate) fn scopes(profile: &Profile) -> (Vec<Scope>, Vec<ScopeId>) {
    let nameless = Name { attribute: Arc::from(""), value: Arc::from("") };
    let lost = Name { attribute: Arc::from("region"), value: Arc::from("[name lost]") };
    let mut scopes = vec![scope(ScopeId(0), &nameless)];
    let mut of_path = vec![ScopeId(0)];
    let mut ids: FxHashMap<(ScopeId, Identity), ScopeId> = FxHashMap::default();
    let named = &profile.named;
    for path in &named.scopes {
        let parent = of_path[path.parent.slot()];
        let is_root = path.parent.is_none() && path.counters.name == 0;
        let name = path.name.get().map_or(&lost, |index| &named.names[index as usize]);
        let id = if is_root {
            ScopeId(0)
        } else {
            *ids.entry((parent, identity(name))).or_insert_with(|| {
                scopes.push(scope(parent, name));
                ScopeId((scopes.len() - 1) as u32)
            })
        };
        of_path.push(id);
        let sums = &mut scopes[id.0 as usize];
        let record = &path.counters;
        sums.entered = sums.entered.saturating_add(record.entered);
        sums.frees_here = sums.frees_here.saturating_add(record.frees_here);
        sums.freed_here_bytes = sums.freed_here_bytes.saturating_add(record.freed_here_bytes);
        if !is_root && record.highest != 0 {
            let left = record.left.checked_sub(1).filter(|_| record.highest < LEFT_LIMIT);
            let active_bytes = left.map(|units| u64::from(units) * 8);
            let peak_bytes = Some(record.highest - 1);
            sums.live_as(&Scope { peak_bytes, active_bytes, ..scope(parent, name) });
        }
    }
    // A thread in a scope is also in the enclosing scopes.
    for index in (1..scopes.len()).rev() {
        let (peak_bytes, around) = (scopes[index].peak_bytes, scopes[index].parent.0 as usize);
        scopes[around].peak_bytes = scopes[around].peak_bytes.max(peak_bytes);
    }
    scopes[0].peak_bytes = None;
    (scopes, of_path)
}

/// Returns how often each lane entered each path.
pub(crate) fn entered(
    profile: &Profile,
    scope_of_path: &[ScopeId],
    lanes: &FxHashMap<u32, LaneId>,
) -> Vec<Entered> {
    let paths = profile.named.scopes.iter().zip(&scope_of_path[1..]);
    let entered = |(path, &scope): (&crate::profile::annotations::Scope, &ScopeId)| {
        let lane = *lanes.get(&path.counters.lane)?;
        let times = path.counters.entered;
        (times > 0).then_some(Entered { scope, lane, times })
    };
    paths.filter_map(entered).collect()
}

fn scope(parent: ScopeId, name: &Name) -> Scope {
    Scope::new(parent, name.attribute.clone(), name.value.clone())
}

/// Returns the labels and pools of sites, and the label of each name by the slot of its index.
pub(crate) fn labels(profile: &Profile) -> (Vec<Label>, Vec<Option<LabelId>>) {
    let names = &profile.named.names;
    let mut of_name = vec![None; names.len() + 1];
    let mut labels = Vec::new();
    let mut ids: FxHashMap<Identity, LabelId> = FxHashMap::default();
    // Those of the heap are first.
    let outside = [&profile.mapped, &profile.device].into_iter().flatten();
    for site in profile.sites.iter().chain(outside.flat_map(|memory| &memory.sites)) {
        let Some(index) = site.label.get() else {
            continue;
        };
        let name = &names[index as usize];
        let id = *ids.entry(identity(name)).or_insert_with(|| {
            let pool = &*name.attribute == "pool";
            labels.push(Label { name: name.value.clone(), pool });
            LabelId((labels.len() - 1) as u32)
        });
        of_name[site.label.slot()] = Some(id);
    }
    (labels, of_name)
}

/// Returns the shapes of labels of sites, and the index of each record's shape.
pub(crate) fn shapes(
    profile: &Profile,
    label_of_name: &[Option<LabelId>],
) -> (Vec<Shape>, Vec<Option<u32>>) {
    let mut shapes: Vec<Shape> = Vec::new();
    let mut known: FxHashMap<Shape, u32> = FxHashMap::default();
    let mut index = |shape: &crate::profile::annotations::Shape| {
        let record = &shape.record;
        let dimensions = record.dimensions.get(..record.dimension_count as usize)?;
        let key = Shape {
            label: label_of_name[shape.label.slot()]?,
            dimensions: dimensions.to_vec(),
            element_bytes: record.element_bytes,
            labelled: 0,
        };
        if key.dimensions.is_empty() {
            return None;
        }
        let index = *known.entry(key).or_insert_with_key(|key| {
            shapes.push(key.clone());
            (shapes.len() - 1) as u32
        });
        let labelled = &mut shapes[index as usize].labelled;
        *labelled = labelled.saturating_add(record.labelled);
        Some(index)
    };
    let indices = profile.named.shapes.iter().map(&mut index).collect();
    (shapes, indices)
}

/// Returns the windows; an open window ends with the current counters of lanes.
pub(crate) fn windows(profile: &Profile) -> Vec<Window> {
    let window = |window: &crate::profile::annotations::Window| {
        let record = &window.record;
        let open = record.open != 0;
        let end = if open { now(profile) } else { record.end };
        let begin = &record.begin;
        let net = |up: u64, down: u64| up.wrapping_sub(down) as i64;
        let blocks = |sums: &Sums| net(sums.allocations, sums.frees);
        let bytes = |sums: &Sums| net(sums.usable_bytes, sums.freed_bytes);
        let live = |sums: &Sums| u64::try_from(bytes(sums)).unwrap_or(0);
        Window {
            name: window.name.clone(),
            open,
            begin_time_ns: record.begin_time_ns,
            end_time_ns: if open { 0 } else { record.end_time_ns },
            allocations: end.allocations.saturating_sub(begin.allocations),
            frees: end.frees.saturating_sub(begin.frees),
            reallocations: end.reallocations.saturating_sub(begin.reallocations),
            failed: end.failed.saturating_sub(begin.failed),
            requested_bytes: end.requested_bytes.saturating_sub(begin.requested_bytes),
            usable_bytes: end.usable_bytes.saturating_sub(begin.usable_bytes),
            freed_bytes: end.freed_bytes.saturating_sub(begin.freed_bytes),
            live_blocks: blocks(&end).wrapping_sub(blocks(begin)),
            live_bytes: bytes(&end).wrapping_sub(bytes(begin)),
            // Live bytes at both ends are known even if no thread has published them.
            peak_bytes: record.peak_bytes.max(live(begin)).max(live(&end)),
            peak_bound_bytes: if open {
                record.peak_bound_bytes.max(profile.unpublished_bytes())
            } else {
                record.peak_bound_bytes
            },
        }
    };
    profile.named.windows.iter().map(window).collect()
}

/// Returns the sums of the process from its start to the reading of the profile.
fn now(profile: &Profile) -> Sums {
    let mut sums = Sums::default();
    let add = |sum: &mut u64, n| *sum = sum.wrapping_add(n);
    for lane in &profile.lanes {
        let classes = |classes: &[u64]| classes.iter().fold(0, |a: u64, &b| a.wrapping_add(b));
        add(&mut sums.allocations, classes(&lane.requested_classes));
        add(&mut sums.frees, classes(&lane.freed_classes));
        add(&mut sums.reallocations, lane.reallocations);
        add(&mut sums.failed, lane.failed);
        add(&mut sums.requested_bytes, lane.requested_bytes);
        add(&mut sums.usable_bytes, lane.usable_bytes);
        if profile.mode.is_by_lane() {
            add(&mut sums.freed_bytes, lane.freed_here_bytes);
        }
    }
    if profile.mode.is_by_lane() {
        return sums; // sites have only a part of the blocks
    }
    let uncounted = format::KEY_OUTSIDE | format::KEY_POOL_BLOCK;
    for site in profile.sites.iter().filter(|site| site.flags & uncounted == 0) {
        let freed = site.counters.freed_bytes.wrapping_add(site.counters.remote_freed_bytes);
        let taken_off = site.moved[1].wrapping_add(site.lent_bytes as u64);
        add(&mut sums.freed_bytes, freed.wrapping_sub(taken_off));
    }
    sums
}

/// Returns the names of the marks that a trace refers to, by number from 1; of older profiles none.
pub(crate) fn mark_names(profile: &Profile) -> Vec<Arc<str>> {
    let marks = profile.named.marks.iter().filter(|of| of.record.kind == MarkKind::Mark as u32);
    let mut names: Vec<Arc<str>> = Vec::new();
    let count = marks.clone().count();
    for mark in marks {
        let number = mark.record.number as usize;
        // Numbers have no gaps, except of marks that were being written.
        if (1..=count + 1).contains(&number) {
            names.resize_with(names.len().max(number), || Arc::from(""));
            names[number - 1] = mark.name.clone();
        }
    }
    names
}

/// Returns for how long recording was off, from the marks of its changes, in a process that lasted
/// `lasted_ns`. `is_off`: whether it was off last; `is_recorded_before`: whether allocations from
/// before a time were recorded. A request that was not handled in time has no mark.
pub(crate) fn off(
    marks: &[Mark],
    is_off: bool,
    lasted_ns: u64,
    is_recorded_before: impl Fn(u64) -> bool,
) -> Off {
    let changes = marks.iter().filter_map(|mark| match mark.kind {
        MarkKind::On => Some((mark.time_ns.min(lasted_ns), true)),
        MarkKind::Off => Some((mark.time_ns.min(lasted_ns), false)),
        MarkKind::Mark | MarkKind::Snapshot | MarkKind::Reset => None,
    });
    let mut changes: Vec<(u64, bool)> = changes.collect();
    changes.sort_by_key(|change| change.0);
    let alternate = changes.windows(2).all(|two| two[0].1 != two[1].1);
    let ends_right = changes.last().is_none_or(|&(_, on)| on != is_off);
    let (first_ns, began_off) = match changes.first() {
        Some(&(time_ns, on)) => (time_ns, on),
        None => (lasted_ns, is_off),
    };
    if !alternate || !ends_right || began_off && is_recorded_before(first_ns) {
        return Off::Sometimes;
    }
    let begins = began_off.then_some(0);
    let begins = begins.into_iter().chain(changes.iter().filter(|c| !c.1).map(|c| c.0));
    let ends = changes.iter().filter(|c| c.1).map(|c| c.0).chain([lasted_ns]);
    match begins.zip(ends).map(|(begin, end)| end - begin).sum() {
        0 => Off::Never,
        ns => Off::For(ns),
    }
}

/// Returns the marks of the kinds that this version knows.
pub(crate) fn marks(profile: &Profile, lanes: &FxHashMap<u32, LaneId>) -> Vec<Mark> {
    let mark = |mark: &crate::profile::annotations::Mark| {
        let record = &mark.record;
        let kinds =
            [MarkKind::Mark, MarkKind::Snapshot, MarkKind::Reset, MarkKind::On, MarkKind::Off];
        let kind = kinds.into_iter().find(|&kind| kind as u32 == record.kind)?;
        Some(Mark {
            time_ns: record.time_ns,
            name: mark.name.clone(),
            kind,
            lane: lanes.get(&record.lane).copied(),
            number: record.number,
            live_bytes: record.live_bytes,
        })
    };
    profile.named.marks.iter().filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_while_recording_was_off() {
        let mark = |(time_ns, kind): (u64, MarkKind)| Mark {
            time_ns,
            name: "".into(),
            kind,
            lane: None,
            number: 0,
            live_bytes: 0,
        };
        let off_at = |changes: &[(u64, MarkKind)], is_off: bool, recorded: bool| {
            let marks: Vec<Mark> = changes.iter().copied().map(mark).collect();
            off(&marks, is_off, 100, |_| recorded)
        };
        use MarkKind::{Mark as Other, Off as Down, On as Up};
        assert_eq!(off_at(&[], false, true), Off::Never);
        assert_eq!(off_at(&[], true, false), Off::For(100));
        assert_eq!(off_at(&[(30, Down)], true, true), Off::For(70));
        assert_eq!(off_at(&[(30, Up)], false, false), Off::For(30), "off at the start");
        let several = [(20, Down), (25, Other), (30, Up), (90, Down)];
        assert_eq!(off_at(&several, true, true), Off::For(20));
        assert_eq!(off_at(&[(120, Down)], true, true), Off::Never, "after the end");
        // Requests without a mark.
        assert_eq!(off_at(&[(30, Up)], false, true), Off::Sometimes);
        assert_eq!(off_at(&[(20, Down), (30, Down)], true, true), Off::Sometimes);
        assert_eq!(off_at(&[(20, Down)], false, true), Off::Sometimes);
    }
}
