//! LET: attributes computed from other attributes, in order.

use crate::filter::{Filter, nested};
use crate::query::{Derivation, Let};
use crate::table::{AttributeId, Column, Form, Lookup, NodeId, Table};
use crate::value::{Bits, Kind};

/// A derivation, prepared for a table and all tables that share its nodes and texts.
pub(crate) struct Derived<'q> {
    of: &'q Let,
    condition: Option<Filter<'q>>,
    inputs: Vec<Option<(Kind, Lookup)>>,
    kind: Kind,
    target: AttributeId,
    /// For `leaf()`, by node: the innermost value of the path as text.
    leaves: Vec<Option<Bits>>,
}

impl<'q> Derived<'q> {
    /// Adds the attribute and its texts to the table.
    pub(crate) fn of(derived: &'q Let, table: &mut Table) -> Derived<'q> {
        let operator = derived.call.operator;
        let ids = derived.call.arguments.iter().map(|word| table.named(&word.text));
        let inputs: Vec<Option<(Kind, Lookup)>> =
            ids.map(|id| id.map(|id| (table.of(id).kind, table.lookup(id)))).collect();
        let first = inputs.iter().flatten().map(|(kind, _)| *kind).next();
        let kind = match operator {
            Derivation::Ratio | Derivation::Scale => Kind::Double,
            Derivation::Leaf => first.unwrap_or(Kind::Text),
            Derivation::Sum => first.filter(|kind| kind.is_number()).unwrap_or(Kind::Double),
            _ => first.unwrap_or(Kind::Double),
        };
        let condition = derived.condition.as_ref().map(|condition| Filter::of(condition, table));
        let of_path = operator == Derivation::Leaf && inputs.is_empty();
        let leaves = if of_path { leaves(table) } else { Vec::new() };
        let target = table.attribute(&derived.target.text, kind, Form::Value);
        Derived { of: derived, condition, inputs, kind, target, leaves }
    }

    /// Sets the attribute in each record of a table that has the operands.
    pub(crate) fn apply(&self, table: &mut Table) {
        // An existing attribute keeps its type.
        let target = table.of(self.target);
        if target.kind != self.kind || target.form == Form::Tree {
            return;
        }
        let held = self.condition.as_ref().map(|condition| condition.holds(table));
        let held = |row: usize| held.as_ref().is_none_or(|held| held[row]);
        let readers: Vec<_> = self
            .inputs
            .iter()
            .map(|input| input.as_ref().map(|(kind, lookup)| (*kind, lookup.reader(table))))
            .collect();
        let before = &table.of(self.target).column;
        let value = |row: usize| {
            let value = |at: usize| {
                let (kind, reader) = readers.get(at)?.as_ref()?;
                reader.get(row).map(|bits| (*kind, bits))
            };
            let made = if held(row) { self.value(value, table.paths[row]) } else { None };
            made.or_else(|| before.get(row))
        };
        let column = Column::of((0..table.rows()).map(value));
        drop(readers);
        table.of_mut(self.target).column = column;
    }

    /// Computes the value of a record from its operands and its path.
    fn value(&self, value: impl Fn(usize) -> Option<(Kind, Bits)>, path: NodeId) -> Option<Bits> {
        let (inputs, scale) = (self.inputs.len(), self.of.call.scale);
        let number = |at: usize| value(at).map(|(kind, bits)| bits.to_double(kind));
        match self.of.call.operator {
            Derivation::Ratio => {
                let below = number(1).filter(|below| below.abs() > 0.0)?;
                Some(Bits::double(scale * (number(0)? / below)))
            }
            Derivation::Scale => Some(Bits::double(scale * number(0)?)),
            Derivation::Truncate => value(0).and_then(|(kind, bits)| truncate(kind, bits, scale)),
            Derivation::First => {
                let (of, bits) = (0..inputs).find_map(value)?;
                same_kind(of, self.kind, bits)
            }
            Derivation::Sum => sum((0..inputs).filter_map(value), self.kind),
            Derivation::Leaf if self.leaves.is_empty() => value(0).map(|(_, bits)| bits),
            Derivation::Leaf => self.leaves[path.0 as usize],
        }
    }
}

/// Converts a value to another type, if possible.
fn same_kind(of: Kind, kind: Kind, bits: Bits) -> Option<Bits> {
    match kind {
        _ if of == kind => Some(bits),
        Kind::Double if of.is_number() => Some(Bits::double(bits.to_double(of))),
        _ => None,
    }
}

/// Rounds a number toward zero to a multiple of `step`; integers stay integers.
fn truncate(kind: Kind, bits: Bits, step: f64) -> Option<Bits> {
    if step == 0.0 || !kind.is_number() {
        return None;
    }
    Some(match kind {
        Kind::Double => {
            let value = f64::from_bits(bits.0);
            Bits::double(value - value % step)
        }
        Kind::Int => {
            let value = bits.0.cast_signed();
            Bits::int(value.saturating_sub((value as f64 % step) as i64))
        }
        _ => Bits(bits.0.saturating_sub((bits.0 as f64 % step) as u64)),
    })
}

fn sum(values: impl Iterator<Item = (Kind, Bits)>, kind: Kind) -> Option<Bits> {
    let add = |sum: Bits, (of, bits): (Kind, Bits)| match (kind, of) {
        (Kind::Int, Kind::Int) => {
            Bits::int(sum.0.cast_signed().saturating_add(bits.0.cast_signed()))
        }
        (Kind::Uint, Kind::Uint) => Bits(sum.0.saturating_add(bits.0)),
        (Kind::Int, _) => Bits::int(sum.0.cast_signed().saturating_add(bits.to_double(of) as i64)),
        (Kind::Uint, _) => Bits(sum.0.saturating_add(bits.to_double(of) as u64)),
        _ => Bits::double(f64::from_bits(sum.0) + bits.to_double(of)),
    };
    let mut values = values.filter(|(of, _)| of.is_number()).peekable();
    values.peek()?;
    Some(values.fold(Bits(0), add))
}

/// Returns, by node, the innermost value of the path as text.
fn leaves(table: &mut Table) -> Vec<Option<Bits>> {
    let of_path = nested(table);
    let nodes = table.nodes.clone();
    let mut leaves = vec![None; nodes.len()];
    for (id, node) in nodes.iter().enumerate().skip(1) {
        leaves[id] = match (of_path.contains(&node.attribute), table.of(node.attribute).kind) {
            (false, _) => leaves[node.parent.0 as usize],
            (true, Kind::Text) => Some(node.value),
            (true, kind) => {
                let shown = node.value.show(kind, &table.strings);
                Some(table.strings.bits(&shown))
            }
        };
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::table;
    use crate::parse;

    /// Compares the last derived attribute of the first record.
    #[track_caller]
    fn check(lets: &str, expected: Option<&str>) {
        let mut table = table(&["n=18,d=3,zero=0,f=7.5,annotation=a,function=main/foo", "n=1"]);
        let query = parse(&format!("LET {lets}")).expect(lets);
        query.lets.iter().for_each(|one| Derived::of(one, &mut table).apply(&mut table));
        let target = &query.lets.last().expect("one").target.text;
        let target = table.named(target).expect("an attribute");
        assert_eq!(table.text(0, target).as_deref(), expected, "{lets}");
    }

    #[test]
    fn operators() {
        check("r=ratio(n,d)", Some("6.000000"));
        check("r=ratio(n,d,2)", Some("12.000000"));
        check("r=ratio(n,zero)", None);
        check("r=ratio(n,nowhere)", None);
        check("s=scale(n,0.5)", Some("9.000000"));
        check("t=truncate(n,10)", Some("10"));
        check("t=truncate(f)", Some("7.000000"));
        check("x=first(nowhere,d,n)", Some("3"));
        check("x=sum(n,d,nowhere)", Some("21"));
        check("x=sum(nowhere)", None);
        check("l=leaf()", Some("foo"));
        check("l=leaf(annotation)", Some("a"));
        check("l=leaf(n)", Some("18"));
    }

    #[test]
    fn later_derivations_see_earlier_ones_and_conditions_apply() {
        check("a=scale(n,2),b=ratio(a,d)", Some("12.000000"));
        check("a=scale(n,2) IF n>20", None);
        check("a=scale(n,2) if function=main", Some("36.000000"));
    }
}
