//! Snapshots that a program pushed, as marks of the form `snapshot,NAME=VALUE,…`: texts are quoted,
//! `0x…` is an address, and `@0x…` one whose block is wanted.

use heaptide_analysis::model::Process;

use crate::table::{AttributeId, Form, Table};
use crate::value::{Bits, Kind};

/// The word with which such a mark begins.
const WORD: &str = "snapshot";

/// The values of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) values: Vec<(AttributeId, Value)>,
}

/// A value of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    /// Any value.
    Plain(Bits),
    /// An address, and the attributes of its block: label, number, and index of the element.
    Address { at: u64, results: [AttributeId; 3] },
}

impl Value {
    pub(super) fn bits(self) -> Bits {
        match self {
            Value::Plain(bits) => bits,
            Value::Address { at, .. } => Bits(at),
        }
    }

    pub(super) fn is_address(self) -> bool {
        matches!(self, Value::Address { .. })
    }
}

/// Returns the snapshots of a process by mark, and adds their attributes to the table.
pub(super) fn of_process(table: &mut Table, process: &Process) -> Vec<Option<Snapshot>> {
    process.time.mark_names.iter().map(|name| of_mark(table, name)).collect()
}

fn of_mark(table: &mut Table, name: &str) -> Option<Snapshot> {
    let rest = name.strip_prefix(WORD)?;
    if !rest.is_empty() && !rest.starts_with(',') {
        return None;
    }
    let fields = split(rest);
    let values = fields.iter().filter_map(|field| {
        let (name, text) = field.split_once('=')?;
        // The table itself finds blocks; the mark has them for recordings without a trace.
        let is_result = ["alloc.label#", "alloc.uid#", "alloc.index#"];
        if is_result.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        value(table, name, text)
    });
    Some(Snapshot { values: values.collect() })
}

/// Splits at commas outside of quotes.
fn split(text: &str) -> Vec<String> {
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut quoted, mut characters) = (false, text.chars());
    while let Some(c) = characters.next() {
        match c {
            '\\' if quoted => {
                field.push(c);
                field.extend(characters.next());
            }
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            _ => {
                quoted ^= c == '"';
                field.push(c);
            }
        }
    }
    fields.push(field);
    fields.retain(|field| !field.is_empty());
    fields
}

/// Returns a value with its attribute; `None` if another column has the name or it is no value.
fn value(table: &mut Table, name: &str, text: &str) -> Option<(AttributeId, Value)> {
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    if let Some(at) = text.strip_prefix('@').and_then(hex) {
        let id = attribute(table, name, Kind::Address)?;
        let results = [
            attribute(table, &format!("alloc.label#{name}"), Kind::Text)?,
            attribute(table, &format!("alloc.uid#{name}"), Kind::Uint)?,
            attribute(table, &format!("alloc.index#{name}"), Kind::Uint)?,
        ];
        return Some((id, Value::Address { at, results }));
    }
    let (kind, bits) = if let Some(text) = text.strip_prefix('"') {
        let text = unescaped(text.strip_suffix('"').unwrap_or(text));
        (Kind::Text, table.strings.bits(&text))
    } else if let Some(address) = hex(text) {
        (Kind::Address, Bits(address))
    } else if let Ok(flag) = text.parse::<bool>() {
        (Kind::Bool, Bits(flag.into()))
    } else if let Ok(number) = text.parse::<i64>() {
        (Kind::Int, Bits::int(number))
    } else {
        (Kind::Double, Bits::double(text.parse().ok()?))
    };
    let id = attribute(table, name, kind)?;
    let bits = converted(table, bits, kind, table.of(id).kind)?;
    Some((id, Value::Plain(bits)))
}

/// Returns the attribute of a name. Integers among doubles are doubles.
fn attribute(table: &mut Table, name: &str, kind: Kind) -> Option<AttributeId> {
    let id = table.attribute(name, kind, Form::Value);
    let of = table.of(id);
    let fits = of.kind == kind || (of.kind.is_number() && kind.is_number());
    (of.form == Form::Value && fits).then_some(id)
}

fn converted(_: &Table, bits: Bits, from: Kind, to: Kind) -> Option<Bits> {
    match (from, to) {
        _ if from == to => Some(bits),
        (_, Kind::Double) => Some(Bits::double(bits.to_double(from))),
        (Kind::Double, Kind::Int) => Some(Bits::int(bits.to_double(from) as i64)),
        (Kind::Int | Kind::Uint, Kind::Int | Kind::Uint) => Some(bits),
        _ => None,
    }
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut characters) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = characters.next() {
        match c {
            '\\' => plain.extend(characters.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_split_at_commas_outside_of_quotes() {
        let fields = split(r#",a="x,\"y",b=@0x10,c=-1"#);
        assert_eq!(fields, [r#"a="x,\"y""#, "b=@0x10", "c=-1"]);
    }

    #[test]
    fn values_have_the_types_that_they_show() {
        let mut table = Table::default();
        let text = r#"snapshot,t="a\"b",n=-3,d=2.5,f=true,p=@0xff,q=0x10"#;
        let snapshot = of_mark(&mut table, text).unwrap();
        let shown: Vec<String> = snapshot
            .values
            .iter()
            .map(|(id, value)| value.bits().show(table.of(*id).kind, &table.strings))
            .collect();
        assert_eq!(shown, ["a\"b", "-3", "2.500000", "true", "ff", "10"]);
        assert!(snapshot.values[4].1.is_address() && !snapshot.values[5].1.is_address());
        assert!(of_mark(&mut table, "snapshots").is_none());
        assert!(of_mark(&mut table, "snapshot").unwrap().values.is_empty());
    }
}
