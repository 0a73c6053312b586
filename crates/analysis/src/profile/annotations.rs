//! Reads the annotations of a profile: scopes, keys of sites, windows and marks, with their names.
//!
//! All contents of a profile are untrusted: ids can refer to anything, parents can form cycles, and
//! strings can overlap. The stored texts together are no longer than the file.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::{FileHeader, Kind};

use super::extents::Walk;
use super::parents_first::parents_first;
use super::texts::Texts;
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// An attribute and its value, as text. Equal texts of a profile share one `Arc`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// `region`, `function`, `label`, `pool`, …
    pub attribute: Arc<str>,
    /// The value; an integer in decimal.
    pub value: Arc<str>,
}

/// A scope path of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The record's id in the file.
    pub id: u32,
    /// Index of the parent path, which is smaller than its own; none for a root.
    pub parent: OptionalIndex,
    /// Index into [`Named::names`]; none for a root.
    pub name: OptionalIndex,
    /// The record.
    pub counters: format::Scope,
}

/// The shape of labelled memory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The record's id in the file.
    pub id: u32,
    /// Index into [`Named::names`].
    pub label: OptionalIndex,
    /// The record.
    pub record: format::Shape,
}

/// A window and its name.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its name.
    pub name: Arc<str>,
    /// The record.
    pub record: format::Window,
}

/// A mark and its name.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Its name; empty if it has none.
    pub name: Arc<str>,
    /// The record.
    pub record: format::Mark,
}

/// All annotations of a profile.
#[derive(Debug, Default)]
pub struct Named {
    /// Names in order of the file.
    pub names: Vec<Name>,
    /// Scope paths of all lanes, parents first.
    pub scopes: Vec<Scope>,
    /// Shapes of labelled memory, in order of the file.
    pub shapes: Vec<Shape>,
    /// Windows in order of their begin.
    pub windows: Vec<Window>,
    /// Marks in order of time.
    pub marks: Vec<Mark>,
    /// The first scope that was ended out of order, and the scope that was open at that time.
    pub mismatch: Option<(String, String)>,
}

/// Maps ids in the file to indices into [`Named`], and to keys.
pub(crate) struct Ids {
    names: SparseArray,
    scopes: SparseArray,
    keys: SparseArray,
    key_records: Vec<format::Key>,
}

impl Ids {
    /// Returns the key of a site; `None` if the site has none, or it is not in the file.
    pub(crate) fn key(&self, site_key: u32) -> Option<&format::Key> {
        let id = site_key & !(format::KEY_BIT | format::KEY_LABELLED);
        let index = self.keys.get(id).get()?;
        self.key_records.get(index as usize)
    }

    /// Returns the index of a scope.
    pub(crate) fn scope(&self, id: u32) -> OptionalIndex {
        self.scopes.get(id)
    }

    /// Returns the index of a name.
    pub(crate) fn name(&self, id: u32) -> OptionalIndex {
        self.names.get(id)
    }
}

/// Reads the annotations.
pub(crate) fn read(walk: &Walk, texts: &mut Texts, header: &FileHeader) -> (Named, Ids) {
    let mut ids = Ids {
        names: SparseArray::default(),
        scopes: SparseArray::default(),
        keys: SparseArray::default(),
        key_records: Vec::new(),
    };
    let mut named = Named::default();
    for (_, name, offset) in walk.records::<format::Name>(Kind::Names) {
        let attribute = texts.get(name.attribute);
        let value = match name.kind {
            1 => texts.keep(&(name.value as i64).to_string()),
            _ => texts.get(u32::try_from(name.value).unwrap_or(0)),
        };
        named.names.push(Name { attribute, value });
        let index = OptionalIndex::from_slot(named.names.len() as u32);
        ids.names.set((offset / format::NAME_GRANULE) as u32, index);
    }
    for (_, key, offset) in walk.records::<format::Key>(Kind::Keys) {
        ids.key_records.push(key);
        let index = OptionalIndex::from_slot(ids.key_records.len() as u32);
        ids.keys.set((offset / format::KEY_GRANULE) as u32, index);
    }
    named.scopes = scopes(walk, &mut ids);
    named.shapes = walk
        .records::<format::Shape>(Kind::Shapes)
        .map(|(_, record, offset)| {
            let id = (offset / format::KEY_GRANULE) as u32;
            Shape { id, label: ids.name(record.label), record }
        })
        .collect();
    named.windows = walk
        .records::<format::Window>(Kind::Windows)
        .map(|(_, record, _)| Window { name: texts.get(record.name), record })
        .collect();
    named.windows.sort_by_key(|window| window.record.begin_time_ns);
    named.marks = walk
        .records::<format::Mark>(Kind::Marks)
        .map(|(_, record, _)| Mark { name: texts.get(record.name), record })
        .collect();
    named.marks.sort_by_key(|mark| mark.record.time_ns);
    named.mismatch = mismatch(&named, &ids, texts, header);
    (named, ids)
}

/// Returns the scope paths, parents first, and stores their indices in `ids`.
fn scopes(walk: &Walk, ids: &mut Ids) -> Vec<Scope> {
    let mut raw = Vec::new();
    let mut raw_ids = Vec::new();
    for (_, scope, offset) in walk.records::<format::Scope>(Kind::Scopes) {
        let id = (offset / format::KEY_GRANULE) as u32;
        raw.push(scope);
        raw_ids.push(id);
        ids.scopes.set(id, OptionalIndex::from_slot(raw.len() as u32));
    }
    let parents: Vec<u32> =
        raw.iter().map(|scope| ids.scopes.get(scope.parent).slot() as u32).collect();
    let mut position = vec![OptionalIndex::NONE; raw.len() + 1];
    let mut scopes = Vec::with_capacity(raw.len());
    for (index, parent) in parents_first(&parents) {
        let counters = raw[index as usize];
        let id = raw_ids[index as usize];
        let name = ids.name(counters.name);
        let parent = position[parent as usize];
        scopes.push(Scope { id, parent, name, counters });
        position[index as usize + 1] = OptionalIndex::from_slot(scopes.len() as u32);
    }
    ids.scopes.change(|index| position[index.slot()]);
    scopes
}

fn mismatch(
    named: &Named,
    ids: &Ids,
    texts: &mut Texts,
    header: &FileHeader,
) -> Option<(String, String)> {
    if header.losses[format::Loss::ScopeMismatch as usize] == 0 || header.mismatch_end == 0 {
        return None;
    }
    let open = ids.scope(header.mismatch_open).get();
    let name = open.and_then(|index| named.scopes[index as usize].name.get());
    let open = name.map_or("", |index| &named.names[index as usize].value);
    Some((texts.get(header.mismatch_end).to_string(), open.to_owned()))
}
