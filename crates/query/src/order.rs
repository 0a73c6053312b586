//! ORDER BY and LIMIT.

use std::cmp::Ordering;

use crate::query::{First, Query};
use crate::table::{AttributeId, Table};

/// Orders the records and keeps as many as are asked for.
pub(crate) fn order(query: &Query, table: &mut Table) {
    if !query.order.is_empty() || query.limit.is_some() {
        table.keep(&first(query, table, (0..table.rows()).collect()));
    }
}

/// Of some records, which are in order, as many as are asked for: by all keys, the first of them
/// first. Records without a value come before all others; those with the same keys stay in order.
pub(crate) fn first(query: &Query, table: &Table, mut rows: Vec<usize>) -> Vec<usize> {
    let keys = query.order.iter().filter_map(|one| {
        let id = attribute(query, table, &one.attribute.text)?;
        Some((table.of(id).kind, table.lookup(id), one.first))
    });
    let keys: Vec<_> = keys.collect();
    let readers = keys.iter().map(|(kind, lookup, first)| (kind, lookup.reader(table), first));
    let readers: Vec<_> = readers.collect();
    let compare = |a: usize, b: usize| {
        let by_key = readers.iter().map(|(kind, reader, first)| {
            let found = match (reader.get(a), reader.get(b)) {
                (Some(a), Some(b)) => a.compare(b, **kind, &table.strings),
                (a, b) => a.is_some().cmp(&b.is_some()),
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

/// The attribute of a name or of a title.
pub(crate) fn attribute(query: &Query, table: &Table, name: &str) -> Option<AttributeId> {
    let titled = || query.aliases.iter().find(|(_, alias)| *alias == name);
    table.named(name).or_else(|| table.named(titled()?.0))
}
