//! GROUP BY: merges records with equal keys into one.
//!
//! Each thread adds its batches to groups of its own. These are merged, and become records in the
//! order in which they first occurred.

use std::cmp::Reverse;

use crate::groups::Numbers;
use crate::query::Query;
use crate::sums::{Summing, Sums};
use crate::table::{Attribute, AttributeId, Column, Form, NodeId, Table};
use crate::value::{Bits, Kind};

/// The keys that distinguish groups.
struct Keys {
    /// By attribute: whether its nodes are keys.
    nodes: Vec<bool>,
    /// Attributes whose values are keys.
    columns: Vec<AttributeId>,
}

impl Keys {
    /// Without GROUP BY all nodes of hierarchies are keys, except stacks. `none` is no attribute.
    fn of(query: &Query, table: &Table) -> Keys {
        let Some(names) = &query.group_by else {
            let grouping = |form| matches!(form, Form::Nested | Form::Hierarchy);
            let nodes = table.attributes.iter().map(|of| grouping(of.form)).collect();
            return Keys { nodes, columns: Vec::new() };
        };
        let mut keys = Keys { nodes: vec![false; table.attributes.len()], columns: Vec::new() };
        for word in names {
            match (table.named(&word.text), &*word.text) {
                (Some(id), _) => {
                    keys.nodes[id.0 as usize] = true;
                    if !keys.columns.contains(&id) {
                        keys.columns.push(id);
                    }
                }
                (None, "path" | "prop:nested") => {
                    let attributes = table.attributes.iter().zip(&mut keys.nodes);
                    attributes.for_each(|(of, key)| *key |= of.form == Form::Nested);
                }
                (None, _) => {}
            }
        }
        keys
    }
}

/// The grouping of a query, prepared for a table and all tables that share its nodes and texts.
pub(crate) struct Grouping<'q> {
    query: &'q Query,
    keys: Keys,
    /// By node, its node in the result.
    kept: Vec<NodeId>,
    calls: Vec<Summing<'q>>,
    /// The result, without records.
    answer: Table,
    /// By key, an upper bound of its values, if known.
    widths: Vec<Option<usize>>,
}

/// Groups and their sums.
pub(crate) struct Groups {
    numbers: Numbers,
    /// By group, the number of its first record.
    first: Vec<u64>,
    /// By operator.
    sums: Vec<Sums>,
}

/// The keys of a group.
#[derive(Clone, Copy)]
struct Key {
    path: NodeId,
    /// The number of its keys other than the path.
    rest: u32,
}

/// The keys of groups other than the path.
struct Rest {
    other: NodeId,
    values: Vec<Option<Bits>>,
}

impl<'q> Grouping<'q> {
    pub(crate) fn of(query: &'q Query, table: &Table) -> Grouping<'q> {
        let keys = Keys::of(query, table);
        let mut answer = table.bare();
        let kept = kept(&keys, table, &mut answer);
        answer.strings = table.strings.clone();
        answer.globals = table.globals.clone();
        let calls = query.aggregations.iter().map(|call| Summing::of(call, table)).collect();
        let width = |id: &AttributeId| match table.of(*id) {
            of if of.form == Form::Tree => Some(answer.nodes.len()),
            of if of.kind == Kind::Text => Some(table.strings.all().len()),
            of if of.kind == Kind::Bool => Some(2),
            _ => None,
        };
        let mut widths: Vec<_> = keys.columns.iter().map(width).collect();
        if !kept.is_empty() {
            widths.extend([Some(answer.nodes.len()); 2]);
        }
        Grouping { query, keys, kept, calls, answer, widths }
    }

    /// Returns an empty set of groups.
    pub(crate) fn none(&self) -> Groups {
        let sums = vec![Sums::default(); self.calls.len()];
        Groups { numbers: Numbers::new(self.widths.iter().copied()), first: Vec::new(), sums }
    }

    /// Adds the selected records of a batch, whose first record has the number `start`.
    pub(crate) fn add(&self, groups: &mut Groups, table: &Table, rows: &[usize], start: u64) {
        let mut numbers = vec![0; rows.len()];
        for (step, &id) in self.keys.columns.iter().enumerate() {
            let Attribute { form, ref column, .. } = *table.of(id);
            if form != Form::Tree {
                groups.numbers.take(step, &mut numbers, rows.iter().map(|&row| column.get(row)));
                continue;
            }
            let kept = |bits: Bits| Bits(self.kept[bits.0 as usize].0.into());
            let keys = rows.iter().map(|&row| column.get(row).map(kept));
            groups.numbers.take(step, &mut numbers, keys);
        }
        if !self.kept.is_empty() {
            for (step, nodes) in (self.keys.columns.len()..).zip([&table.paths, &table.others]) {
                let node = |row: &usize| self.kept[nodes[*row].0 as usize];
                let keys = rows.iter().map(|row| Some(Bits(node(row).0.into())));
                groups.numbers.take(step, &mut numbers, keys);
            }
        }
        for (&number, &row) in numbers.iter().zip(rows) {
            if number as usize == groups.first.len() {
                groups.first.push(start + row as u64);
            }
        }
        for (summing, sums) in self.calls.iter().zip(&mut groups.sums) {
            summing.resize(sums, groups.first.len());
            summing.add(sums, table, rows, &numbers, start);
        }
    }

    /// Adds the groups of another thread.
    pub(crate) fn merge(&self, groups: &mut Groups, other: Groups) {
        let mut here = groups.numbers.absorb(&other.numbers);
        // Without keys there is one group, but perhaps no record.
        here.truncate(other.first.len());
        for (&number, &first) in here.iter().zip(&other.first) {
            match groups.first.get_mut(number as usize) {
                Some(known) => *known = first.min(*known),
                None => groups.first.push(first),
            }
        }
        for ((summing, sums), other) in self.calls.iter().zip(&mut groups.sums).zip(&other.sums) {
            summing.resize(sums, groups.first.len());
            summing.merge_all(sums, other, &here);
        }
    }

    /// Creates a record for each group, with the results of all operators.
    pub(crate) fn finish(mut self, groups: Groups) -> Table {
        let mut order: Vec<u32> = (0..groups.first.len() as u32).collect();
        order.sort_unstable_by_key(|&group| groups.first[group as usize]);
        let (mut keys, rests) = self.keys_of(&groups.numbers, &order);
        let inclusive = self.query.aggregations.iter().map(|call| call.operator.is_inclusive());
        let inclusive: Vec<bool> = inclusive.collect();
        let of_calls = self.calls.iter().zip(&groups.sums);
        let mut own: Vec<Sums> =
            of_calls.map(|(summing, sums)| summing.ordered(sums, &order)).collect();
        drop(groups);
        let touched = |group: usize| {
            own.iter().zip(&inclusive).any(|(sums, inclusive)| *inclusive && sums.any(group))
        };
        let touched: Vec<bool> = (0..keys.len()).map(touched).collect();
        let above = if touched.contains(&true) {
            self.above(&mut keys, rests.len(), &touched)
        } else {
            Vec::new()
        };
        self.write_keys(&keys, &rests);
        for ((summing, inclusive), own) in self.calls.iter().zip(inclusive).zip(&mut own) {
            summing.resize(own, keys.len());
            if !inclusive {
                summing.finish(&mut self.answer, own, own);
                continue;
            }
            let mut all = own.clone();
            for &(_, group, up) in &above {
                summing.merge_below(&mut all, group, up);
            }
            summing.finish(&mut self.answer, own, &all);
        }
        self.answer
    }

    /// Returns the keys of groups, and their keys other than the path.
    fn keys_of(&self, numbers: &Numbers, groups: &[u32]) -> (Vec<Key>, Vec<Rest>) {
        let split = |group: u32| {
            let mut values = numbers.keys(group);
            let mut node = || {
                if self.kept.is_empty() {
                    NodeId(0)
                } else {
                    NodeId(values.pop().flatten().map_or(0, |bits| bits.0 as u32))
                }
            };
            let (other, path) = (node(), node());
            (path, Rest { other, values })
        };
        // Without nested attributes, the other hierarchies form the path.
        let is_nested = groups.iter().any(|&group| split(group).0 != NodeId(0));
        let values = self.widths.iter().take(self.keys.columns.len()).copied();
        let mut numbers = Numbers::new(values.chain([Some(self.answer.nodes.len())]));
        let (mut keys, mut rests) = (Vec::with_capacity(groups.len()), Vec::new());
        for &group in groups {
            let (mut path, mut rest) = split(group);
            if !is_nested {
                std::mem::swap(&mut path, &mut rest.other);
            }
            let other = Some(Bits(rest.other.0.into()));
            let number = numbers.of(rest.values.iter().copied().chain([other]));
            if number as usize == rests.len() {
                rests.push(rest);
            }
            keys.push(Key { path, rest: number });
        }
        (keys, rests)
    }

    /// Returns the groups to which inclusive operators contribute, inner ones first, each with its
    /// path, itself, and the group of the enclosing path, which is created if necessary.
    fn above(
        &self,
        keys: &mut Vec<Key>,
        rests: usize,
        touched: &[bool],
    ) -> Vec<(Reverse<NodeId>, u32, u32)> {
        let widths = [rests, self.answer.nodes.len()].map(Some);
        let mut numbers = Numbers::new(widths.into_iter());
        let mut number = |key: Key| {
            let key = [key.rest, key.path.0].map(|of| Some(Bits(of.into())));
            numbers.of(key.into_iter())
        };
        keys.iter().for_each(|key| {
            number(*key);
        });
        let mut open: Vec<u32> =
            (0..).zip(touched).filter(|(_, t)| **t).map(|(id, _)| id).collect();
        let mut seen = touched.to_vec();
        let mut above = Vec::new();
        while let Some(group) = open.pop() {
            let key = keys[group as usize];
            let up = self.answer.nodes[key.path.0 as usize].parent;
            if up == NodeId(0) {
                continue;
            }
            let of_up = Key { path: up, ..key };
            let number = number(of_up);
            if number as usize == keys.len() {
                keys.push(of_up);
                seen.push(false);
            }
            above.push((Reverse(key.path), group, number));
            if !std::mem::replace(&mut seen[number as usize], true) {
                open.push(number);
            }
        }
        // Parents have smaller numbers than their children, so everything below a group has been
        // added to it before the group itself is added to its parent.
        above.sort_unstable();
        above
    }

    /// Creates a record for each group, with its keys.
    fn write_keys(&mut self, keys: &[Key], rests: &[Rest]) {
        let rest = |key: &Key| &rests[key.rest as usize];
        self.answer.paths = keys.iter().map(|key| key.path).collect();
        self.answer.others = keys.iter().map(|key| rest(key).other).collect();
        for (at, &id) in self.keys.columns.iter().enumerate() {
            let values = keys.iter().map(|key| rest(key).values[at]);
            self.answer.of_mut(id).column = Column::of(values);
        }
    }
}

/// Returns, by node, its node in the result: the innermost node, from itself upwards, that is a
/// key. Empty if no node is a key.
fn kept(keys: &Keys, table: &Table, answer: &mut Table) -> Vec<NodeId> {
    let is_key = |id: NodeId| {
        let node = table.nodes[id.0 as usize];
        id != NodeId(0) && keys.nodes[node.attribute.0 as usize]
    };
    let ids = || (1..table.nodes.len() as u32).map(NodeId);
    if !ids().any(is_key) {
        return Vec::new();
    }
    // Trees that consist only of keys stay unchanged.
    let parent = |id: NodeId| table.nodes[id.0 as usize].parent;
    let whole = |id: NodeId| !is_key(id) || parent(id) == NodeId(0) || is_key(parent(id));
    let shared = ids().all(whole);
    if shared {
        answer.nodes = table.nodes.clone();
    }
    let mut kept = vec![NodeId(0); table.nodes.len()];
    for id in ids() {
        let node = table.nodes[id.0 as usize];
        let above = kept[node.parent.0 as usize];
        kept[id.0 as usize] = match is_key(id) {
            false => above,
            true if shared => id,
            true => answer.node(above, node.attribute, node.value),
        };
    }
    kept
}

#[cfg(test)]
mod tests {
    use crate::fixtures::table;
    use crate::stream::Stream;
    use crate::{parse, run};

    /// Compares records, written as `name=value,…` with the named attributes.
    #[track_caller]
    fn check(records: &[&str], query: &str, names: &[&str], expected: &[&str]) {
        let answer = run(&parse(query).expect(query), Stream::of(table(records)));
        let value = |row: usize, name: &&str| {
            let text = match *name {
                "path" => answer.path_text(row),
                name => answer.named(name).and_then(|id| answer.text(row, id)),
            };
            text.unwrap_or_else(|| "-".to_owned())
        };
        let lines: Vec<String> = (0..answer.rows())
            .map(|row| names.iter().map(|name| value(row, name)).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines, expected, "{query}");
    }

    /// Results from Caliper's own tests.
    #[test]
    fn known_results() {
        let numbers = ["x=-4", "x=9", "x=25", "x=36"];
        let query = "SELECT min(x),max(x),avg(x),variance(x),any(x),sum(x)";
        let names = ["min#x", "max#x", "avg#x", "variance#x", "any#x", "sum#x"];
        check(&numbers, query, &names, &["-4 36 16 232.250000 -4 66"]);
        let two = ["a=100,b=5", "a=20,b=1", "a=1"];
        let query = "SELECT ratio(a,b),scale(b,2.5),scale_count(2),count()";
        let names = ["ratio#a/b", "scale#b", "scount", "count"];
        check(&two, query, &names, &["20.166667 15.000000 6.000000 3"]);
        check(&["count=3", "count=4", ""], "SELECT count()", &["count"], &["8"]);
        check(&["x=a"], "SELECT sum(x),avg(x),any(x)", &["sum#x", "avg#x", "any#x"], &["- - a"]);
    }

    #[test]
    fn inclusive_results() {
        let records = ["function=a,x=20,n=2", "function=a/b,x=60,n=3", "function=a/b/c,n=0", "x=0"];
        let query = "SELECT percent_total(x),inclusive_percent_total(x),inclusive_sum(x),\
            inclusive_min(x),inclusive_max(x),inclusive_scale(x,2),inclusive_ratio(x,n) \
            GROUP BY path ORDER BY sum#x";
        let names = [
            "path",
            "percent_total#x",
            "ipercent_total#x",
            "inclusive#x",
            "imin#x",
            "imax#x",
            "iscale#x",
            "iratio#x/n",
        ];
        let expected = [
            "a 25.000000 100.000000 80 20 60 160.000000 16.000000",
            "a/b 75.000000 75.000000 60 60 60 120.000000 20.000000",
            "a/b/c - - - - - - -",
            "- 0.000000 0.000000 0 0 0 0.000000 -",
        ];
        check(&records, query, &names, &expected);
        // A path without records of its own is included, too.
        let query = "SELECT inclusive_sum(x) GROUP BY function ORDER BY inclusive#x";
        let expected = ["a/b 5", "a 5"];
        check(&["function=a/b,x=5"], query, &["function", "inclusive#x"], &expected);
    }

    #[test]
    fn keys() {
        let records = ["function=f,annotation=x,n=1,v=7", "function=f,n=2,v=7", "n=4,v=8"];
        let query = "SELECT sum(n) GROUP BY function";
        check(&records, query, &["function", "sum#n"], &["f 3", "- 4"]);
        let query = "SELECT sum(n) GROUP BY v,function";
        check(&records, query, &["v", "function", "sum#n"], &["7 f 3", "8 - 4"]);
        check(&records, "SELECT sum(n)", &["path", "sum#n"], &["f/x 1", "f 2", "- 4"]);
        check(&records, "SELECT sum(n) GROUP BY nowhere", &["sum#n"], &["7"]);
        let query = "SELECT sum(n) GROUP BY v HAVING sum#n<4 LIMIT 1";
        check(&records, query, &["v", "sum#n"], &["7 3"]);
    }

    #[test]
    fn results_are_joined_again() {
        let whole = table(&["g=1,x=2", "g=1,x=4", "g=2,x=12"]);
        let operators = "SELECT avg(x),variance(x),ratio(x,g),percent_total(x),scale(x,2)";
        let first = parse(&format!("{operators} GROUP BY g")).expect("a query");
        let second = parse(operators).expect("a query");
        let run = |query, table| run(query, Stream::of(table));
        let (direct, again) = (run(&second, whole.clone()), run(&second, run(&first, whole)));
        for name in ["avg#x", "variance#x", "percent_total#x", "scale#x"] {
            let value = |of: &crate::table::Table| of.text(0, of.named(name).expect(name));
            assert_eq!(value(&again), value(&direct), "{name}");
        }
    }
}
