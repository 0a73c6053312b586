//! ORDER BY and LIMIT.

use std::cmp::Ordering;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::query::{First, Query};
use crate::table::{AttributeId, Form, Lookup, Reader, Table};
use crate::value::{Bits, Kind};

/// Sorts the records, and applies LIMIT.
pub(crate) fn order(query: &Query, table: &mut Table) {
    if !query.order.is_empty() || query.limit.is_some() {
        let paths = Paths::default();
        table.keep(&first(query, table, (0..table.rows()).collect(), &paths));
    }
}

/// The ranks of paths for the attributes of ORDER BY, computed once for all tables with the same
/// nodes.
#[derive(Default)]
pub(crate) struct Paths(OnceLock<Vec<(AttributeId, Vec<u32>)>>);

impl Paths {
    /// Returns the ranks for an attribute; `None` if no node has it.
    fn of(&self, query: &Query, table: &Table, id: AttributeId) -> Option<&[u32]> {
        let all = self.0.get_or_init(|| {
            let ids = query.order.iter().filter_map(|o| attribute(query, table, &o.attribute.text));
            let in_nodes =
                |id: &AttributeId| table.nodes.iter().skip(1).any(|node| node.attribute == *id);
            ids.filter(in_nodes).map(|id| (id, places_of_paths(table, id))).collect()
        });
        all.iter().find(|(of, _)| *of == id).map(|(_, places)| places.as_slice())
    }
}

/// A sort key of records.
enum Key<'a> {
    /// A value.
    Value(Kind, Lookup),
    /// The path of an attribute's values in a record, outermost first: by node, the rank of its
    /// path among all. 0 means no path.
    Path(AttributeId, &'a [u32]),
}

impl<'a> Key<'a> {
    fn of(table: &Table, id: AttributeId, rows: &[usize], places: Option<&'a [u32]>) -> Key<'a> {
        let of = table.of(id);
        let is_in_column =
            of.form != Form::Tree && rows.iter().any(|&row| of.column.get(row).is_some());
        match places {
            Some(places) if !is_in_column => Key::Path(id, places),
            _ => Key::Value(of.kind, table.lookup(id)),
        }
    }
}

/// Returns, by node, the rank of its values of an attribute, outermost first, among those of all
/// nodes; 0 if it has none. A path precedes its extensions.
fn places_of_paths(table: &Table, id: AttributeId) -> Vec<u32> {
    let kind = table.of(id).kind;
    let mut tree: Vec<(u32, Bits)> = vec![(0, Bits(0))];
    let mut ids: FxHashMap<(u32, Bits), u32> = FxHashMap::default();
    let mut of_node = vec![0u32; table.nodes.len()];
    for (index, node) in table.nodes.iter().enumerate().skip(1) {
        let above = of_node[node.parent.0 as usize];
        of_node[index] = if node.attribute == id {
            *ids.entry((above, node.value)).or_insert_with(|| {
                tree.push((above, node.value));
                tree.len() as u32 - 1
            })
        } else {
            above
        };
    }
    let mut order: Vec<u32> = (1..tree.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| {
        let ((above_a, a), (above_b, b)) = (tree[a as usize], tree[b as usize]);
        above_a.cmp(&above_b).then_with(|| a.compare(b, kind, &table.strings))
    });
    let mut starts = vec![0u32; tree.len() + 1];
    order.iter().for_each(|&at| starts[tree[at as usize].0 as usize + 1] += 1);
    (1..starts.len()).for_each(|index| starts[index] += starts[index - 1]);
    let below = |at: u32| &order[starts[at as usize] as usize..starts[at as usize + 1] as usize];
    let mut places = vec![0u32; tree.len()];
    let mut open: Vec<u32> = below(0).iter().rev().copied().collect();
    let mut next = 1;
    while let Some(at) = open.pop() {
        places[at as usize] = next;
        next += 1;
        open.extend(below(at).iter().rev());
    }
    of_node.into_iter().map(|at| places[at as usize]).collect()
}

/// Returns the first of some records, up to the limit, sorted by all keys. Records without a value
/// come first, and the sort is stable.
pub(crate) fn first(
    query: &Query,
    table: &Table,
    mut rows: Vec<usize>,
    paths: &Paths,
) -> Vec<usize> {
    let keys = query.order.iter().filter_map(|one| {
        let id = attribute(query, table, &one.attribute.text)?;
        Some((Key::of(table, id, &rows, paths.of(query, table, id)), one.first))
    });
    let keys: Vec<_> = keys.collect();
    let readers = keys.iter().map(|(key, first)| match key {
        Key::Value(kind, lookup) => (Reads::Value(*kind, lookup.reader(table)), first),
        Key::Path(id, places) => (Reads::Path(*id, places), first),
    });
    let readers: Vec<_> = readers.collect();
    let compare = |a: usize, b: usize| {
        let by_key = readers.iter().map(|(reads, first)| {
            let found = match reads {
                Reads::Value(kind, reader) => match (reader.get(a), reader.get(b)) {
                    (Some(a), Some(b)) => a.compare(b, *kind, &table.strings),
                    (a, b) => a.is_some().cmp(&b.is_some()),
                },
                Reads::Path(id, places) => {
                    let place = |row| {
                        let mut of = table.places(row, *id).map(|node| places[node.0 as usize]);
                        of.find(|&place| place > 0).unwrap_or(0)
                    };
                    place(a).cmp(&place(b))
                }
            };
            if **first == First::Least { found } else { found.reverse() }
        });
        by_key.into_iter().find(|found| found.is_ne()).unwrap_or(Ordering::Equal)
    };
    let compare = |a: &usize, b: &usize| compare(*a, *b).then(a.cmp(b));
    if let Some(limit) = query.limit.filter(|limit| *limit < rows.len()) {
        rows.select_nth_unstable_by(limit, compare);
        rows.truncate(limit);
    }
    rows.sort_unstable_by(compare);
    rows
}

/// How the key of a record is read.
enum Reads<'a> {
    Value(Kind, Reader<'a>),
    Path(AttributeId, &'a [u32]),
}

/// Returns the attribute with a name or a title.
pub(crate) fn attribute(query: &Query, table: &Table, name: &str) -> Option<AttributeId> {
    let titled = || query.aliases.iter().find(|(_, alias)| *alias == name);
    table.named(name).or_else(|| table.named(titled()?.0))
}
