//! Aggregation operators: what they read of records, add up and make of it.
//!
//! Next to its result an operator leaves what it added up, hidden; where records have that already,
//! being results themselves, it goes on from there.

use crate::query::{Aggregation, Call};
use crate::table::{AttributeId, Form, Reader, Shown, Table};
use crate::value::{Bits, Kind, Strings};

/// What a value adds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// The sum, least, largest or first, and the count.
    Value,
    /// The sum alone.
    Sum,
    /// The divisor.
    Divisor,
    /// The count.
    Count,
    /// The sum of squares.
    Squares,
}

/// What has been added up for a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    value: Option<Bits>,
    divisor: Option<Bits>,
    squares: f64,
    count: u64,
}

/// An operator at work.
pub(crate) struct Summing<'a> {
    call: &'a Call<Aggregation>,
    /// Type of the values, and of the divisor.
    kinds: [Kind; 2],
    inputs: Vec<(Role, Kind, Reader<'a>)>,
    strings: &'a Strings,
}

/// Hidden attributes of an operator: the prefix of their names, and what they hold.
fn partials(operator: Aggregation) -> &'static [(&'static str, Role)] {
    match operator {
        Aggregation::Sum => &[("sum#", Role::Value)],
        Aggregation::InclusiveSum => &[("inclusive#", Role::Value)],
        Aggregation::Min => &[("min#", Role::Value)],
        Aggregation::Max => &[("max#", Role::Value)],
        Aggregation::InclusiveMin => &[("imin#", Role::Value)],
        Aggregation::InclusiveMax => &[("imax#", Role::Value)],
        Aggregation::Any => &[("any#", Role::Value)],
        Aggregation::Avg => &[("avg.sum#", Role::Sum), ("avg.count#", Role::Count)],
        Aggregation::Variance => {
            &[("var.sum#", Role::Sum), ("var.sqsum#", Role::Squares), ("var.count#", Role::Count)]
        }
        Aggregation::PercentTotal => &[("pct.sum#", Role::Value)],
        Aggregation::InclusivePercentTotal => &[("ipct.sum#", Role::Value)],
        Aggregation::Scale => &[("scsum#", Role::Value)],
        Aggregation::InclusiveScale => &[("iscsum#", Role::Value)],
        Aggregation::Ratio => &[("sr.sum#", Role::Value)],
        Aggregation::InclusiveRatio => &[("isr.sum#", Role::Value)],
        Aggregation::Count | Aggregation::ScaleCount => &[],
    }
}

impl<'a> Summing<'a> {
    /// Finds what an operator reads of a table.
    pub(crate) fn of(call: &'a Call<Aggregation>, table: &'a Table) -> Summing<'a> {
        let mut summing =
            Summing { call, kinds: [Kind::Uint; 2], inputs: Vec::new(), strings: &table.strings };
        if summing.counts() {
            summing.read(table, "count", Role::Count);
        }
        for (place, word) in call.arguments.iter().enumerate().take(2) {
            if let Some(id) = table.named(&word.text) {
                let variance = call.operator == Aggregation::Variance;
                let kind = if variance { Kind::Double } else { table.of(id).kind };
                summing.kinds[place] = kind;
            }
            let role = if place == 0 { Role::Value } else { Role::Divisor };
            summing.read(table, &word.text, role);
            for (prefix, of) in partials(call.operator) {
                let role = if place == 0 { *of } else { Role::Divisor };
                summing.read(table, &format!("{prefix}{}", word.text), role);
            }
        }
        summing
    }

    fn counts(&self) -> bool {
        matches!(self.call.operator, Aggregation::Count | Aggregation::ScaleCount)
    }

    fn read(&mut self, table: &'a Table, name: &str, role: Role) {
        if let Some(id) = table.named(name) {
            self.inputs.push((role, table.of(id).kind, table.reader(id)));
        }
    }

    /// Whether it adds up; else it picks.
    fn picks(&self) -> bool {
        use Aggregation::{Any, InclusiveMax, InclusiveMin, Max, Min};
        matches!(self.call.operator, Any | Min | Max | InclusiveMin | InclusiveMax)
    }

    /// Adds a record. Whether it had anything to add.
    pub(crate) fn add(&self, sum: &mut Sum, row: usize) -> bool {
        if self.counts() {
            let there = self.inputs.first().and_then(|(_, _, reader)| reader.get(row));
            sum.count = sum.count.saturating_add(there.map_or(1, |bits| bits.0));
            return true;
        }
        let mut any = false;
        for (role, kind, reader) in &self.inputs {
            let Some(bits) = reader.get(row).filter(|_| self.picks() || kind.is_number()) else {
                continue;
            };
            any = true;
            match role {
                Role::Value | Role::Sum => {
                    self.add_value(&mut sum.value, *kind, bits);
                    if *role == Role::Value {
                        let value = bits.to_double(*kind);
                        sum.squares += value * value;
                        sum.count += 1;
                    }
                }
                Role::Divisor => plus(&mut sum.divisor, self.kinds[1], *kind, bits),
                Role::Count => sum.count = sum.count.saturating_add(bits.0),
                Role::Squares => sum.squares += bits.to_double(*kind),
            }
        }
        any
    }

    fn add_value(&self, value: &mut Option<Bits>, kind: Kind, bits: Bits) {
        use Aggregation::{Any, InclusiveMax, InclusiveMin, Max, Min};
        let before = value.filter(|_| kind == self.kinds[0]);
        match (self.call.operator, before) {
            (Any, _) => *value = value.or(Some(bits)),
            (Min | InclusiveMin, Some(before)) => {
                let less = bits.compare(before, kind, self.strings).is_lt();
                *value = Some(if less { bits } else { before });
            }
            (Max | InclusiveMax, Some(before)) => {
                let more = bits.compare(before, kind, self.strings).is_gt();
                *value = Some(if more { bits } else { before });
            }
            (Min | Max | InclusiveMin | InclusiveMax, None) => *value = value.or(Some(bits)),
            _ => plus(value, self.kinds[0], kind, bits),
        }
    }

    /// Adds what another group added up.
    pub(crate) fn merge(&self, sum: &mut Sum, other: &Sum) {
        let [kind, below] = self.kinds;
        other.value.into_iter().for_each(|bits| self.add_value(&mut sum.value, kind, bits));
        other.divisor.into_iter().for_each(|bits| plus(&mut sum.divisor, below, below, bits));
        sum.squares += other.squares;
        sum.count = sum.count.saturating_add(other.count);
    }

    /// The columns of the results in another table: of each group what is its own, and with what is
    /// below it.
    pub(crate) fn finish(&self, table: &mut Table, own: &[Sum], all: &[Sum]) {
        let total: f64 = own.iter().map(|sum| self.value(sum)).sum();
        let result = attribute(table, &self.call.result(), self.result_kind(), Shown::Always);
        let mut hidden = Vec::new();
        for (place, word) in self.call.arguments.iter().enumerate() {
            for (prefix, role) in partials(self.call.operator) {
                let name = format!("{prefix}{}", word.text);
                if name != self.call.result() {
                    let role = if place == 0 { *role } else { Role::Divisor };
                    hidden.push((role, attribute(table, &name, self.kind(role), Shown::IfNamed)));
                }
            }
        }
        for (row, (own, all)) in own.iter().zip(all).enumerate() {
            if let Some(bits) = self.result(all, total) {
                table.of_mut(result).column.set(row, bits);
            }
            for (role, id) in &hidden {
                let bits = self.partial(*role, own);
                bits.into_iter().for_each(|bits| table.of_mut(*id).column.set(row, bits));
            }
        }
    }

    fn value(&self, sum: &Sum) -> f64 {
        sum.value.map_or(0.0, |bits| bits.to_double(self.kinds[0]))
    }

    fn kind(&self, role: Role) -> Kind {
        match role {
            Role::Value | Role::Sum => self.kinds[0],
            Role::Divisor => self.kinds[1],
            Role::Count => Kind::Uint,
            Role::Squares => Kind::Double,
        }
    }

    fn result_kind(&self) -> Kind {
        match self.call.operator {
            Aggregation::Count => Kind::Uint,
            Aggregation::Variance
            | Aggregation::PercentTotal
            | Aggregation::Ratio
            | Aggregation::Scale
            | Aggregation::ScaleCount
            | Aggregation::InclusiveScale
            | Aggregation::InclusiveRatio
            | Aggregation::InclusivePercentTotal => Kind::Double,
            _ => self.kinds[0],
        }
    }

    fn partial(&self, role: Role, sum: &Sum) -> Option<Bits> {
        match role {
            Role::Value | Role::Sum => sum.value,
            Role::Divisor => sum.divisor,
            Role::Count => (sum.count > 0).then_some(Bits(sum.count)),
            Role::Squares => (sum.count > 0).then(|| Bits::double(sum.squares)),
        }
    }

    fn result(&self, sum: &Sum, total: f64) -> Option<Bits> {
        let scale = self.call.scale;
        let count = Some(sum.count).filter(|count| *count > 0);
        let value = || sum.value.map(|_| self.value(sum));
        match self.call.operator {
            Aggregation::Count => count.map(Bits),
            Aggregation::ScaleCount => count.map(|count| Bits::double(scale * count as f64)),
            Aggregation::Avg => divide(sum.value?, self.kinds[0], count?),
            Aggregation::Variance => {
                let mean = value()? / count? as f64;
                Some(Bits::double(sum.squares / count? as f64 - mean * mean))
            }
            Aggregation::PercentTotal | Aggregation::InclusivePercentTotal => {
                (total > 0.0).then(value)?.map(|value| Bits::double(100.0 * value / total))
            }
            Aggregation::Ratio | Aggregation::InclusiveRatio => {
                let below = sum.divisor?.to_double(self.kinds[1]);
                Some(Bits::double(scale * value()? / below))
            }
            Aggregation::Scale | Aggregation::InclusiveScale => {
                value().map(|value| Bits::double(scale * value))
            }
            _ => sum.value,
        }
    }
}

fn attribute(table: &mut Table, name: &str, kind: Kind, shown: Shown) -> AttributeId {
    let id = table.attribute(name, kind, Form::Value);
    let of = table.of_mut(id);
    (of.kind, of.shown, of.form) = (kind, shown, Form::Value);
    id
}

fn plus(sum: &mut Option<Bits>, into: Kind, kind: Kind, bits: Bits) {
    let before = sum.unwrap_or(Bits(0));
    *sum = Some(match (into, kind) {
        (Kind::Int, Kind::Int) => {
            Bits::int(before.0.cast_signed().saturating_add(bits.0.cast_signed()))
        }
        (Kind::Uint, Kind::Uint) => Bits(before.0.saturating_add(bits.0)),
        (Kind::Int, _) => {
            Bits::int(before.0.cast_signed().saturating_add(bits.to_double(kind) as i64))
        }
        (Kind::Uint, _) => Bits(before.0.saturating_add(bits.to_double(kind) as u64)),
        _ => Bits::double(before.to_double(into) + bits.to_double(kind)),
    });
}

/// A mean; of integers an integer.
fn divide(sum: Bits, kind: Kind, count: u64) -> Option<Bits> {
    match kind {
        Kind::Int => {
            let count = i64::try_from(count).ok()?;
            Some(Bits::int(sum.0.cast_signed().checked_div(count)?))
        }
        Kind::Uint => sum.0.checked_div(count).map(Bits),
        Kind::Double => Some(Bits::double(f64::from_bits(sum.0) / count as f64)),
        _ => None,
    }
}
