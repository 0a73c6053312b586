//! GROUP BY: records that have their keys in common become one.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::query::Query;
use crate::sums::{Sum, Summing};
use crate::table::{AttributeId, Form, NodeId, Table};
use crate::value::Bits;

/// What tells records apart.
struct Keys {
    /// By attribute: whether its nodes do.
    nodes: Vec<bool>,
    /// Attributes whose values do.
    columns: Vec<AttributeId>,
}

impl Keys {
    /// Without GROUP BY all nodes of hierarchies count, but for stacks. `none` is no attribute.
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

/// Things by number, in the order they were first met.
struct Numbers<T> {
    ids: FxHashMap<T, u32>,
    all: Vec<T>,
}

impl<T: Copy + Eq + Hash> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { ids: FxHashMap::default(), all: Vec::new() }
    }

    fn of(&mut self, thing: T) -> u32 {
        *self.ids.entry(thing).or_insert_with(|| {
            self.all.push(thing);
            (self.all.len() - 1) as u32
        })
    }
}

/// The records of a table by groups.
struct Groups {
    /// Of each record, its group.
    of_row: Vec<u32>,
    /// Each group: what it has beside the path, by number, and the path.
    all: Numbers<(u32, NodeId)>,
    /// Of what groups have beside the path, a record and the node of the result.
    rests: Vec<(usize, NodeId)>,
}

/// Joins the given records of a table by groups, with the results of all operators.
pub(crate) fn aggregate(query: &Query, mut table: Table, rows: &[usize]) -> Table {
    let mut answer = table.bare();
    let keys = Keys::of(query, &table);
    let mut groups = group(&keys, &table, rows, &mut answer);
    let calls: Vec<Summing> =
        query.aggregations.iter().map(|call| Summing::of(call, &table)).collect();
    let mut own: Vec<Vec<Sum>> = Vec::new();
    let mut touched = vec![false; groups.all.all.len()];
    for (summing, call) in calls.iter().zip(&query.aggregations) {
        let mut sums = vec![Sum::default(); groups.all.all.len()];
        for (&row, &group) in rows.iter().zip(&groups.of_row) {
            let added = summing.add(&mut sums[group as usize], row);
            touched[group as usize] |= added && call.operator.is_inclusive();
        }
        own.push(sums);
    }
    let above = above(&mut groups, &touched, &answer);
    write_keys(&keys, &table, &groups, &mut answer);
    for ((summing, call), mut own) in calls.iter().zip(&query.aggregations).zip(own) {
        own.resize(groups.all.all.len(), Sum::default());
        if !call.operator.is_inclusive() {
            summing.finish(&mut answer, &own, &own);
            continue;
        }
        let mut all = own.clone();
        for &(group, up) in &above {
            let below = all[group as usize];
            summing.merge(&mut all[up as usize], &below);
        }
        summing.finish(&mut answer, &own, &all);
    }
    drop(calls);
    answer.strings = std::mem::take(&mut table.strings);
    answer.globals = table.globals;
    answer
}

/// Sorts records into groups; key nodes get their place in the answer's trees.
fn group(keys: &Keys, table: &Table, rows: &[usize], answer: &mut Table) -> Groups {
    let mut kept = vec![NodeId(0); table.nodes.len()];
    for (id, node) in table.nodes.iter().enumerate().skip(1) {
        let parent = kept[node.parent.0 as usize];
        kept[id] = match keys.nodes[node.attribute.0 as usize] {
            true => answer.node(parent, node.attribute, node.value),
            false => parent,
        };
    }
    let [mut paths, mut others] = [&table.paths, &table.others]
        .map(|nodes| rows.iter().map(|&row| kept[nodes[row].0 as usize]).collect::<Vec<_>>());
    // Where nothing is nested the other hierarchies are the path.
    if paths.iter().all(|path| *path == NodeId(0)) {
        std::mem::swap(&mut paths, &mut others);
    }
    let mut numbers = Numbers::new();
    let mut rest: Vec<u32> =
        others.iter().map(|other| numbers.of((other.0, None::<Bits>))).collect();
    for &id in &keys.columns {
        let column = &table.of(id).column;
        numbers = Numbers::new();
        for (rest, &row) in rest.iter_mut().zip(rows) {
            *rest = numbers.of((*rest, column.get(row)));
        }
    }
    let mut rests = vec![(usize::MAX, NodeId(0)); numbers.all.len()];
    for ((&rest, &row), &other) in rest.iter().zip(rows).zip(&others) {
        if rests[rest as usize].0 == usize::MAX {
            rests[rest as usize] = (row, other);
        }
    }
    let mut all = Numbers::new();
    let of_row = rest.into_iter().zip(paths).map(|key| all.of(key)).collect();
    Groups { of_row, all, rests }
}

/// Groups that inclusive operators have something of, each with the group of the path above, which
/// is made if it is not there; inner ones first.
fn above(groups: &mut Groups, touched: &[bool], answer: &Table) -> Vec<(u32, u32)> {
    let mut open: Vec<u32> = (0..).zip(touched).filter(|(_, t)| **t).map(|(id, _)| id).collect();
    let mut seen = touched.to_vec();
    let mut above = Vec::new();
    while let Some(group) = open.pop() {
        let (rest, path) = groups.all.all[group as usize];
        let up = answer.nodes[path.0 as usize].parent;
        if up == NodeId(0) {
            continue;
        }
        let up = groups.all.of((rest, up));
        above.push((group, up));
        seen.resize(groups.all.all.len(), false);
        if !std::mem::replace(&mut seen[up as usize], true) {
            open.push(up);
        }
    }
    // Nodes come after those above them.
    above.sort_unstable_by_key(|&(group, _)| {
        let (rest, path) = groups.all.all[group as usize];
        (Reverse(path), rest)
    });
    above
}

/// A record for each group, with its keys.
fn write_keys(keys: &Keys, table: &Table, groups: &Groups, answer: &mut Table) {
    for &(rest, path) in &groups.all.all {
        let (from, other) = groups.rests[rest as usize];
        let row = answer.add_row();
        (answer.paths[row], answer.others[row]) = (path, other);
        for &id in &keys.columns {
            let value = table.of(id).column.get(from);
            value.into_iter().for_each(|value| answer.of_mut(id).column.set(row, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::made::table;
    use crate::{parse, run};

    /// Records as `name=value,…`, of the named attributes.
    #[track_caller]
    fn check(records: &[&str], query: &str, names: &[&str], expected: &[&str]) {
        let answer = run(&parse(query).expect(query), table(records));
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

    /// What Caliper's own tests say of these numbers.
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
        // A path that has no record of its own is there too.
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
        let (direct, again) = (run(&second, whole.clone()), run(&second, run(&first, whole)));
        for name in ["avg#x", "variance#x", "percent_total#x", "scale#x"] {
            let value = |of: &crate::table::Table| of.text(0, of.named(name).expect(name));
            assert_eq!(value(&again), value(&direct), "{name}");
        }
    }
}
