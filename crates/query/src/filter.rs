//! WHERE, HAVING and IF: which records hold a condition.
//!
//! As in Caliper a condition on a hierarchy holds if any of its nodes does, NOT `a=v` also where
//! there is no `a`, and comparisons only where there is one.

use std::cmp::Ordering;

use crate::query::{Condition, Relation, Test};
use crate::table::{AttributeId, Form, Table};
use crate::value::{Bits, Kind, Strings};

/// Whether each record of a table holds a condition.
pub(crate) fn holds(condition: &Condition, table: &Table) -> Vec<bool> {
    match condition {
        Condition::All(parts) => join(parts, table, |a, b| a && b),
        Condition::Any(parts) => join(parts, table, |a, b| a || b),
        Condition::Not(part) => holds(part, table).into_iter().map(|held| !held).collect(),
        Condition::Test(test) => tested(test, table),
    }
}

/// The records of a table that hold all of these.
pub(crate) fn rows(conditions: &[Condition], table: &Table) -> Vec<usize> {
    let held = join(conditions, table, |a, b| a && b);
    match conditions.is_empty() {
        true => (0..table.rows()).collect(),
        false => (0..table.rows()).filter(|&row| held[row]).collect(),
    }
}

fn join(parts: &[Condition], table: &Table, of: fn(bool, bool) -> bool) -> Vec<bool> {
    let masks = parts.iter().map(|part| holds(part, table));
    let both = |a: Vec<bool>, b: Vec<bool>| a.into_iter().zip(b).map(|(a, b)| of(a, b)).collect();
    masks.reduce(both).unwrap_or_default()
}

fn tested(test: &Test, table: &Table) -> Vec<bool> {
    let attributes = match (table.named(&test.attribute.text), &*test.attribute.text) {
        (Some(attribute), _) => vec![attribute],
        (None, "path" | "prop:nested") => nested(table),
        (None, _) => Vec::new(),
    };
    // Those that ask for a value nowhere are the opposite of asking for one somewhere.
    let (relation, sought) = match test.relation.clone() {
        relation @ (Relation::Missing | Relation::NotEqual(_) | Relation::MatchesNot(_)) => {
            (relation.negated(), false)
        }
        relation => (relation, true),
    };
    let mut somewhere = vec![false; table.rows()];
    for attribute in attributes {
        let kind = table.of(attribute).kind;
        let wanted = predicate(&relation, kind, &table.strings);
        mark(&mut somewhere, table, attribute, &*wanted);
    }
    somewhere.into_iter().map(|found| found == sought).collect()
}

/// Every attribute of the path.
pub(crate) fn nested(table: &Table) -> Vec<AttributeId> {
    let all = table.attributes.iter().zip(0..);
    all.filter(|(of, _)| of.form == Form::Nested).map(|(_, id)| AttributeId(id)).collect()
}

/// Marks the records that have a wanted value.
fn mark(rows: &mut [bool], table: &Table, attribute: AttributeId, wanted: &dyn Fn(Bits) -> bool) {
    let mut hit = vec![false; table.nodes.len()];
    for (id, node) in table.nodes.iter().enumerate().skip(1) {
        let here = node.attribute == attribute && wanted(node.value);
        hit[id] = here || hit[node.parent.0 as usize];
    }
    let column = &table.of(attribute).column;
    for (row, found) in rows.iter_mut().enumerate() {
        let [path, other] = [&table.paths, &table.others].map(|nodes| nodes[row].0 as usize);
        *found |= hit[path] || hit[other] || column.get(row).is_some_and(wanted);
    }
}

/// What a value must be.
fn predicate<'a>(
    relation: &'a Relation,
    kind: Kind,
    strings: &'a Strings,
) -> Box<dyn Fn(Bits) -> bool + 'a> {
    let (text, accepted): (&str, fn(Ordering) -> bool) = match relation {
        Relation::Equal(text) => (text, Ordering::is_eq),
        Relation::Less(text) => (text, Ordering::is_lt),
        Relation::LessOrEqual(text) => (text, Ordering::is_le),
        Relation::Greater(text) => (text, Ordering::is_gt),
        Relation::GreaterOrEqual(text) => (text, Ordering::is_ge),
        Relation::Matches(regex) => {
            return Box::new(move |bits| match kind {
                Kind::Text => regex.is_match(strings.get(bits)),
                _ => regex.is_match(&bits.show(kind, strings)),
            });
        }
        _ => return Box::new(|_| true),
    };
    if kind == Kind::Text {
        return Box::new(move |bits| accepted(strings.get(bits).cmp(text)));
    }
    let mut none = Strings::default();
    if let Some(value) = none.parse(text, kind) {
        return Box::new(move |bits| accepted(bits.compare(value, kind, strings)));
    }
    // An integer is compared with a fraction as one.
    match text.trim().parse::<f64>() {
        Ok(value) => {
            Box::new(move |bits| bits.to_double(kind).partial_cmp(&value).is_some_and(accepted))
        }
        Err(_) => Box::new(|_| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::table;
    use crate::parse;

    /// Three records: `a=1 t=x`, `a=5 function=main/foo`, and an empty one.
    #[track_caller]
    fn check(conditions: &str, held: &[usize]) {
        let table = table(&["a=1,t=x", "a=5,function=main/foo", ""]);
        let query = parse(&format!("WHERE {conditions}")).expect(conditions);
        assert_eq!(rows(&query.filter, &table), held, "{conditions}");
    }

    #[test]
    fn caliper_s_conditions() {
        check("a", &[0, 1]);
        check("not a", &[2]);
        check("a=5", &[1]);
        check("NOT a=5", &[0, 2]);
        check("a<5", &[0]);
        check("not a<5", &[1]);
        check("a>1", &[1]);
        check("not a>1", &[0]);
        check("function=main", &[1]);
        check("function=foo, a=5", &[1]);
        check("function=bar", &[]);
        check("nowhere=1", &[]);
        check("not nowhere", &[0, 1, 2]);
    }

    #[test]
    fn conditions_beyond() {
        check("a=1 or function=foo", &[0, 1]);
        check("a!=1", &[1, 2]);
        check("a != 1, a", &[1]);
        check("a<=1", &[0]);
        check("a >= 1", &[0, 1]);
        check("a>0.5 and a<4.5", &[0]);
        check("t like X%", &[]);
        check("t like \"_\"", &[0]);
        check("function =~ ^f.o", &[1]);
        check("not function =~ ^f.o", &[0, 2]);
        check("path=~main", &[1]);
        check("not (a=1 or a=5)", &[2]);
        check("(a=1, t) or not a", &[0, 2]);
        check("a=x", &[]);
    }
}
