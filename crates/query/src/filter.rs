//! WHERE, HAVING and IF: finds the records that satisfy a condition.
//!
//! As in Caliper, a condition on a hierarchy holds if it holds for any of its nodes; NOT `a=v`
//! holds if there is no `a`; and comparisons hold only if there is one.

use std::cmp::Ordering;

use crate::query::{Condition, Relation, Test};
use crate::table::{AttributeId, Form, Table};
use crate::value::{Bits, Kind, Strings};

/// A condition, prepared for the records of a table and of all tables that share its nodes and
/// texts.
pub(crate) enum Filter<'q> {
    All(Vec<Filter<'q>>),
    Any(Vec<Filter<'q>>),
    Not(Box<Filter<'q>>),
    /// Holds if one of the attributes has a matching value; with `false`, if none has.
    Test(Vec<Wanted<'q>>, bool),
}

/// The matching values of an attribute.
pub(crate) struct Wanted<'q> {
    attribute: AttributeId,
    /// By node, if any node has the attribute: whether the node or a parent has a matching value.
    nodes: Vec<bool>,
    is: Predicate<'q>,
}

type Predicate<'q> = Box<dyn Fn(Bits) -> bool + Send + Sync + 'q>;

impl<'q> Filter<'q> {
    pub(crate) fn of(condition: &'q Condition, table: &Table) -> Filter<'q> {
        match condition {
            Condition::All(parts) => Filter::all(parts, table),
            Condition::Any(parts) => {
                Filter::Any(parts.iter().map(|part| Filter::of(part, table)).collect())
            }
            Condition::Not(part) => Filter::Not(Box::new(Filter::of(part, table))),
            Condition::Test(test) => tested(test, table),
        }
    }

    /// Requires all of these conditions.
    pub(crate) fn all(conditions: &'q [Condition], table: &Table) -> Filter<'q> {
        Filter::All(conditions.iter().map(|one| Filter::of(one, table)).collect())
    }

    /// Returns whether each record satisfies it.
    pub(crate) fn holds(&self, table: &Table) -> Vec<bool> {
        match self {
            Filter::All(parts) => join(parts, table, true, |a, b| a && b),
            Filter::Any(parts) => join(parts, table, false, |a, b| a || b),
            Filter::Not(part) => part.holds(table).into_iter().map(|held| !held).collect(),
            Filter::Test(wanted, sought) => {
                let mut somewhere = vec![false; table.rows()];
                wanted.iter().for_each(|wanted| wanted.mark(&mut somewhere, table));
                somewhere.into_iter().map(|found| found == *sought).collect()
            }
        }
    }

    /// Returns the records that satisfy it.
    pub(crate) fn rows(&self, table: &Table) -> Vec<usize> {
        if matches!(self, Filter::All(parts) if parts.is_empty()) {
            return (0..table.rows()).collect();
        }
        let held = self.holds(table);
        (0..table.rows()).filter(|&row| held[row]).collect()
    }
}

fn join(parts: &[Filter], table: &Table, otherwise: bool, of: fn(bool, bool) -> bool) -> Vec<bool> {
    let masks = parts.iter().map(|part| part.holds(table));
    let both = |a: Vec<bool>, b: Vec<bool>| a.into_iter().zip(b).map(|(a, b)| of(a, b)).collect();
    masks.reduce(both).unwrap_or_else(|| vec![otherwise; table.rows()])
}

fn tested<'q>(test: &'q Test, table: &Table) -> Filter<'q> {
    let attributes = match (table.named(&test.attribute.text), &*test.attribute.text) {
        (Some(attribute), _) => vec![attribute],
        (None, "path" | "prop:nested") => nested(table),
        (None, _) => Vec::new(),
    };
    let (is, sought) = asked(&test.relation);
    let wanted = attributes.into_iter().map(|attribute| Wanted::of(attribute, is, table));
    Filter::Test(wanted.collect(), sought)
}

/// The required value.
#[derive(Clone, Copy)]
enum Asked<'q> {
    Anything,
    Compared(&'q str, fn(Ordering) -> bool),
    Matched(&'q regex::Regex),
}

/// Returns the condition on a value, and whether some value must satisfy it; with `false`, none
/// may.
fn asked(relation: &Relation) -> (Asked<'_>, bool) {
    match relation {
        Relation::Exists => (Asked::Anything, true),
        Relation::Missing => (Asked::Anything, false),
        Relation::Equal(text) => (Asked::Compared(text, Ordering::is_eq), true),
        Relation::NotEqual(text) => (Asked::Compared(text, Ordering::is_eq), false),
        Relation::Less(text) => (Asked::Compared(text, Ordering::is_lt), true),
        Relation::LessOrEqual(text) => (Asked::Compared(text, Ordering::is_le), true),
        Relation::Greater(text) => (Asked::Compared(text, Ordering::is_gt), true),
        Relation::GreaterOrEqual(text) => (Asked::Compared(text, Ordering::is_ge), true),
        Relation::Matches(regex) => (Asked::Matched(regex), true),
        Relation::MatchesNot(regex) => (Asked::Matched(regex), false),
    }
}

/// Returns all attributes of the path.
pub(crate) fn nested(table: &Table) -> Vec<AttributeId> {
    let all = table.attributes.iter().zip(0..);
    all.filter(|(of, _)| of.form == Form::Nested).map(|(_, id)| AttributeId(id)).collect()
}

impl<'q> Wanted<'q> {
    fn of(attribute: AttributeId, asked: Asked<'q>, table: &Table) -> Wanted<'q> {
        let is = predicate(asked, table.of(attribute).kind, &table.strings);
        let mut nodes = Vec::new();
        if table.nodes.iter().skip(1).any(|node| node.attribute == attribute) {
            nodes = vec![false; table.nodes.len()];
            for (id, node) in table.nodes.iter().enumerate().skip(1) {
                let here = node.attribute == attribute && is(node.value);
                nodes[id] = here || nodes[node.parent.0 as usize];
            }
        }
        Wanted { attribute, nodes, is }
    }

    /// Marks the records with a matching value.
    fn mark(&self, rows: &mut [bool], table: &Table) {
        let of = table.of(self.attribute);
        let in_tree = of.form == Form::Tree;
        let values = of.column.bits().iter().zip(of.column.present());
        for (found, (value, there)) in rows.iter_mut().zip(values) {
            *found |= *there
                && if in_tree { self.nodes[*value as usize] } else { (self.is)(Bits(*value)) };
        }
        if !self.nodes.is_empty() {
            let of = |node: &crate::table::NodeId| self.nodes[node.0 as usize];
            let places = table.paths.iter().zip(&table.others);
            for (found, (path, other)) in rows.iter_mut().zip(places) {
                *found |= of(path) || of(other);
            }
        }
    }
}

/// Each distinct text is tested only once, not per record.
fn predicate<'q>(asked: Asked<'q>, kind: Kind, strings: &Strings) -> Predicate<'q> {
    if kind == Kind::Text {
        let holds = |text: &str| match asked {
            Asked::Anything => true,
            Asked::Compared(other, accepted) => accepted(text.cmp(other)),
            Asked::Matched(regex) => regex.is_match(text),
        };
        let held: Vec<bool> = strings.all().iter().map(|text| holds(text)).collect();
        return Box::new(move |bits| held.get(bits.0 as usize).is_some_and(|held| *held));
    }
    let none = Strings::default();
    let (text, accepted) = match asked {
        Asked::Anything => return Box::new(|_| true),
        Asked::Matched(regex) => return Box::new(move |b| regex.is_match(&b.show(kind, &none))),
        Asked::Compared(text, accepted) => (text, accepted),
    };
    if let Some(value) = none.clone().parse(text, kind) {
        return Box::new(move |bits| accepted(bits.compare(value, kind, &none)));
    }
    // Comparing an integer with a fraction compares fractions.
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
    use crate::fixtures::table;
    use crate::parse;

    /// Tests three records: `a=1 t=x`, `a=5 function=main/foo`, and an empty one.
    #[track_caller]
    fn check(conditions: &str, held: &[usize]) {
        let table = table(&["a=1,t=x", "a=5,function=main/foo", ""]);
        let query = parse(&format!("WHERE {conditions}")).expect(conditions);
        assert_eq!(Filter::all(&query.filter, &table).rows(&table), held, "{conditions}");
    }

    #[test]
    fn calipers_conditions_are_supported() {
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
    fn conditions_beyond_calql_are_supported() {
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
