//! LET: attributes made of others, one after the other.

use crate::filter::{holds, nested};
use crate::query::{Derivation, Let};
use crate::table::{Form, Reader, Table};
use crate::value::{Bits, Kind};

/// Gives the records of a table a derived attribute, where what it is made of is there.
pub(crate) fn derive(table: &mut Table, derived: &Let) {
    let held = derived.condition.as_ref().map(|condition| holds(condition, table));
    let (kind, values) = match derived.call.operator {
        Derivation::Leaf => leaf(table, derived),
        _ => combined(table, derived),
    };
    let target = table.attribute(&derived.target.text, kind, Form::Value);
    // A target that was there keeps its type.
    if table.of(target).kind != kind {
        return;
    }
    for (row, value) in values.into_iter().enumerate() {
        if held.as_ref().is_none_or(|held| held[row])
            && let Some(value) = value
        {
            table.of_mut(target).column.set(row, value);
        }
    }
}

type Values = (Kind, Vec<Option<Bits>>);

fn combined(table: &Table, derived: &Let) -> Values {
    let (operator, scale) = (derived.call.operator, derived.call.scale);
    let ids = derived.call.arguments.iter().map(|word| table.named(&word.text));
    let inputs: Vec<Option<(Kind, Reader)>> =
        ids.map(|id| id.map(|id| (table.of(id).kind, table.reader(id)))).collect();
    let first = inputs.iter().flatten().map(|(kind, _)| *kind).next().unwrap_or(Kind::Double);
    let kind = match operator {
        Derivation::Ratio | Derivation::Scale => Kind::Double,
        Derivation::Sum if !first.is_number() => Kind::Double,
        _ => first,
    };
    let of_row = |row: usize| {
        let value = |at: usize| {
            let (kind, reader) = inputs.get(at)?.as_ref()?;
            reader.get(row).map(|bits| (*kind, bits))
        };
        let number = |at: usize| value(at).map(|(kind, bits)| bits.to_double(kind));
        match operator {
            Derivation::Ratio => {
                let below = number(1).filter(|below| below.abs() > 0.0)?;
                Some(Bits::double(scale * (number(0)? / below)))
            }
            Derivation::Scale => Some(Bits::double(scale * number(0)?)),
            Derivation::Truncate => value(0).and_then(|(kind, bits)| truncate(kind, bits, scale)),
            Derivation::First => {
                let (of, bits) = (0..inputs.len()).find_map(value)?;
                same_kind(of, kind, bits)
            }
            Derivation::Sum => sum((0..inputs.len()).filter_map(value), kind),
            Derivation::Leaf => None,
        }
    };
    (kind, (0..table.rows()).map(of_row).collect())
}

/// A value as one of another type, if it can be.
fn same_kind(of: Kind, kind: Kind, bits: Bits) -> Option<Bits> {
    match kind {
        _ if of == kind => Some(bits),
        Kind::Double if of.is_number() => Some(Bits::double(bits.to_double(of))),
        _ => None,
    }
}

/// A number less what is left when it is divided by another; integers stay integers.
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

/// The innermost value of a hierarchy, or of the path as text.
fn leaf(table: &mut Table, derived: &Let) -> Values {
    if let Some(word) = derived.call.arguments.first() {
        let Some(id) = table.named(&word.text) else {
            return (Kind::Text, Vec::new());
        };
        let reader = table.reader(id);
        return (table.of(id).kind, (0..table.rows()).map(|row| reader.get(row)).collect());
    }
    let of_path = nested(table);
    let in_path = |row: usize| {
        let mut chain = table.chain(table.paths[row]);
        chain.find(|node| of_path.contains(&node.attribute)).copied()
    };
    let found: Vec<_> = (0..table.rows()).map(in_path).collect();
    let mut text = |node: crate::table::Node| match table.of(node.attribute).kind {
        Kind::Text => node.value,
        kind => {
            let shown = node.value.show(kind, &table.strings);
            table.strings.bits(&shown)
        }
    };
    (Kind::Text, found.into_iter().map(|node| node.map(&mut text)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::table;
    use crate::parse;

    /// The last of the derived attributes, in the first record.
    #[track_caller]
    fn check(lets: &str, expected: Option<&str>) {
        let mut table = table(&["n=18,d=3,zero=0,f=7.5,annotation=a,function=main/foo", "n=1"]);
        let query = parse(&format!("LET {lets}")).expect(lets);
        query.lets.iter().for_each(|one| derive(&mut table, one));
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
    fn later_ones_see_earlier_ones_and_conditions_hold() {
        check("a=scale(n,2),b=ratio(a,d)", Some("12.000000"));
        check("a=scale(n,2) IF n>20", None);
        check("a=scale(n,2) if function=main", Some("36.000000"));
    }
}
