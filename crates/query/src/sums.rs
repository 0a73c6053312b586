//! Aggregation operators: their inputs, accumulators and results.
//!
//! In addition to its result, an operator stores its accumulators in hidden attributes. If records
//! have these already, because they are results themselves, aggregation continues from them.

use crate::query::{Aggregation, Call};
use crate::table::{AttributeId, Column, Form, Lookup, Quantity, Shown, Table};
use crate::value::{Bits, Kind, Strings};

/// The accumulator that a value is added to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// The sum, minimum, maximum or first value, and the count.
    Value,
    /// Only the sum.
    Sum,
    /// The divisor.
    Divisor,
    /// The count.
    Count,
    /// The sum of squares.
    Squares,
}

/// A sum of fractions that does not depend on their order, because it also keeps the rounding
/// errors.
#[derive(Clone, Copy, Debug, Default)]
struct Fraction {
    high: f64,
    low: f64,
}

impl Fraction {
    /// Knuth's two-sum.
    fn add(&mut self, value: f64) {
        let sum = self.high + value;
        let part = sum - self.high;
        let lost = (self.high - (sum - part)) + (value - part);
        self.high = sum;
        if lost.is_finite() {
            self.low += lost;
        }
    }

    fn merge(&mut self, other: Fraction) {
        self.add(other.high);
        self.low += other.low;
    }

    fn value(self) -> f64 {
        self.high + self.low
    }
}

/// The accumulators of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    value: Total,
    divisor: Total,
    squares: Fraction,
    count: u64,
    /// The record number of the first value.
    place: u64,
}

/// A total, if any value was added.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    any: bool,
    bits: u64,
    /// For fractions, used instead of the bits.
    fraction: Fraction,
}

impl Total {
    fn bits(self, kind: Kind) -> Option<Bits> {
        let bits = if kind == Kind::Double { self.fraction.value().to_bits() } else { self.bits };
        self.any.then_some(Bits(bits))
    }

    fn set(&mut self, kind: Kind, bits: Bits) {
        self.any = true;
        match kind {
            Kind::Double => self.fraction = Fraction { high: f64::from_bits(bits.0), low: 0.0 },
            _ => self.bits = bits.0,
        }
    }

    fn plus(&mut self, into: Kind, kind: Kind, bits: Bits) {
        self.any = true;
        let int = |bits: u64, more: i64| bits.cast_signed().saturating_add(more).cast_unsigned();
        match (into, kind) {
            (Kind::Int, Kind::Int) => self.bits = int(self.bits, bits.0.cast_signed()),
            (Kind::Int, _) => self.bits = int(self.bits, bits.to_double(kind) as i64),
            (Kind::Uint, Kind::Uint) => self.bits = self.bits.saturating_add(bits.0),
            (Kind::Uint, _) => self.bits = self.bits.saturating_add(bits.to_double(kind) as u64),
            _ => self.fraction.add(bits.to_double(kind)),
        }
    }

    fn merge(&mut self, kind: Kind, other: &Total) {
        match kind {
            _ if !other.any => {}
            Kind::Double => {
                self.any = true;
                self.fraction.merge(other.fraction);
            }
            _ => self.plus(kind, kind, Bits(other.bits)),
        }
    }
}

/// The accumulators of all groups. Each array has an element per group, or is empty if the operator
/// does not use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    values: Totals,
    divisors: Totals,
    squares: Vec<Fraction>,
    counts: Vec<u64>,
    places: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    any: Vec<bool>,
    /// For fractions, the bits of the high part.
    bits: Vec<u64>,
    low: Vec<f64>,
}

fn part<T: Copy + Default>(parts: &[T], group: usize) -> T {
    parts.get(group).copied().unwrap_or_default()
}

fn put<T: Copy>(parts: &mut [T], group: usize, part: T) {
    parts.get_mut(group).into_iter().for_each(|of| *of = part);
}

impl Totals {
    fn get(&self, group: usize) -> Total {
        let bits = part(&self.bits, group);
        let fraction = Fraction { high: f64::from_bits(bits), low: part(&self.low, group) };
        Total { any: part(&self.any, group), bits, fraction }
    }

    fn put(&mut self, group: usize, total: Total) {
        put(&mut self.any, group, total.any);
        let is_fraction = !self.low.is_empty();
        let bits = if is_fraction { total.fraction.high.to_bits() } else { total.bits };
        put(&mut self.bits, group, bits);
        put(&mut self.low, group, total.fraction.low);
    }

    fn resize(&mut self, groups: usize, kind: Kind) {
        self.any.resize(groups, false);
        self.bits.resize(groups, 0);
        self.low.resize(if kind == Kind::Double { groups } else { 0 }, 0.0);
    }
}

impl Sums {
    /// Returns whether any values were added.
    pub(crate) fn any(&self, group: usize) -> bool {
        part(&self.values.any, group) || part(&self.divisors.any, group)
    }

    fn get(&self, group: usize) -> Sum {
        Sum {
            value: self.values.get(group),
            divisor: self.divisors.get(group),
            squares: part(&self.squares, group),
            count: part(&self.counts, group),
            place: part(&self.places, group),
        }
    }

    fn put(&mut self, group: usize, sum: Sum) {
        self.values.put(group, sum.value);
        self.divisors.put(group, sum.divisor);
        put(&mut self.squares, group, sum.squares);
        put(&mut self.counts, group, sum.count);
        put(&mut self.places, group, sum.place);
    }
}

/// An operator, prepared for a table and all tables that share its nodes and texts.
pub(crate) struct Summing<'q> {
    call: &'q Call<Aggregation>,
    /// Types of the value and of the divisor.
    kinds: [Kind; 2],
    inputs: Vec<(Role, Kind, Lookup)>,
    strings: Strings,
}

/// Returns the hidden attributes of an operator: the prefixes of their names, and their
/// accumulators.
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

impl<'q> Summing<'q> {
    /// Finds the inputs of an operator in a table.
    pub(crate) fn of(call: &'q Call<Aggregation>, table: &Table) -> Summing<'q> {
        let strings = table.strings.clone();
        let mut summing = Summing { call, kinds: [Kind::Uint; 2], inputs: Vec::new(), strings };
        if summing.counts() {
            summing.read(table, "count", Role::Count);
        }
        for (place, word) in call.arguments.iter().enumerate().take(2) {
            let parts = partials(call.operator).iter();
            let parts = parts.map(|(prefix, _)| format!("{prefix}{}", word.text));
            let id =
                table.named(&word.text).or_else(|| parts.filter_map(|p| table.named(&p)).next());
            if let Some(id) = id {
                let variance = call.operator == Aggregation::Variance;
                summing.kinds[place] = if variance { Kind::Double } else { table.of(id).kind };
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

    fn read(&mut self, table: &Table, name: &str, role: Role) {
        if let Some(id) = table.named(name) {
            self.inputs.push((role, table.of(id).kind, table.lookup(id)));
        }
    }

    /// Returns whether it selects a value instead of adding values.
    fn picks(&self) -> bool {
        use Aggregation::{Any, InclusiveMax, InclusiveMin, Max, Min};
        matches!(self.call.operator, Any | Min | Max | InclusiveMin | InclusiveMax)
    }

    /// Allocates accumulators for `groups` groups.
    pub(crate) fn resize(&self, sums: &mut Sums, groups: usize) {
        use Aggregation::{Avg, InclusiveRatio, Ratio, Variance};
        let of = self.call.operator;
        let room = |needed: bool| if needed { groups } else { 0 };
        sums.values.resize(room(!self.counts()), self.kinds[0]);
        sums.divisors.resize(room(matches!(of, Ratio | InclusiveRatio)), self.kinds[1]);
        sums.squares.resize(room(of == Variance), Fraction::default());
        sums.counts.resize(room(self.counts() || matches!(of, Avg | Variance)), 0);
        sums.places.resize(room(self.picks()), 0);
    }

    /// Returns the accumulators of some groups, in their order.
    pub(crate) fn ordered(&self, sums: &Sums, groups: &[u32]) -> Sums {
        let mut ordered = Sums::default();
        self.resize(&mut ordered, groups.len());
        for (new, &group) in groups.iter().enumerate() {
            ordered.put(new, sums.get(group as usize));
        }
        ordered
    }

    /// Adds the selected records of a table to the accumulators of their groups. The table's first
    /// record has the number `start`.
    pub(crate) fn add(
        &self,
        sums: &mut Sums,
        table: &Table,
        rows: &[usize],
        groups: &[u32],
        start: u64,
    ) {
        let of_rows = || rows.iter().zip(groups).map(|(&row, &group)| (row, group as usize));
        if self.counts() {
            match self.inputs.first().map(|(_, _, lookup)| lookup.reader(table)) {
                None => of_rows().for_each(|(_, group)| sums.counts[group] += 1),
                Some(reader) => of_rows().for_each(|(row, group)| {
                    let count = reader.get(row).map_or(1, |bits| bits.0);
                    sums.counts[group] = sums.counts[group].saturating_add(count);
                }),
            }
            return;
        }
        for (role, kind, lookup) in &self.inputs {
            if !self.picks() && !kind.is_number() {
                continue;
            }
            let reader = lookup.reader(table);
            let there = of_rows().filter_map(|(row, group)| Some((row, group, reader.get(row)?)));
            if self.only_adds(*role, *kind) {
                there.for_each(|(_, group, bits)| {
                    sums.values.any[group] = true;
                    let value = &mut sums.values.bits[group];
                    *value = value.saturating_add(bits.0);
                });
                continue;
            }
            for (row, group, bits) in there {
                let mut sum = sums.get(group);
                self.add_value(&mut sum, *role, *kind, bits, start + row as u64);
                sums.put(group, sum);
            }
        }
    }

    /// Returns whether it only adds non-negative values, the most frequent case.
    fn only_adds(&self, role: Role, kind: Kind) -> bool {
        let counts = matches!(self.call.operator, Aggregation::Avg | Aggregation::Variance);
        role == Role::Value
            && kind == Kind::Uint
            && self.kinds[0] == kind
            && !counts
            && !self.picks()
    }

    #[inline]
    fn add_value(&self, sum: &mut Sum, role: Role, kind: Kind, bits: Bits, place: u64) {
        match role {
            Role::Value | Role::Sum if self.picks() => self.pick(sum, kind, bits, place),
            Role::Value | Role::Sum => {
                sum.value.plus(self.kinds[0], kind, bits);
                if role == Role::Value {
                    sum.count += 1;
                    if self.call.operator == Aggregation::Variance {
                        let value = bits.to_double(kind);
                        sum.squares.add(value * value);
                    }
                }
            }
            Role::Divisor => sum.divisor.plus(self.kinds[1], kind, bits),
            Role::Count => sum.count = sum.count.saturating_add(bits.0),
            Role::Squares => sum.squares.add(bits.to_double(kind)),
        }
    }

    /// Replaces the selected value if this one takes precedence.
    fn pick(&self, sum: &mut Sum, kind: Kind, bits: Bits, place: u64) {
        use Aggregation::{InclusiveMax, InclusiveMin, Max, Min};
        let before = sum.value.bits(kind).filter(|_| kind == self.kinds[0]);
        let better = match (self.call.operator, before) {
            _ if !sum.value.any => true,
            (_, None) => false,
            (Min | InclusiveMin, Some(before)) => bits.compare(before, kind, &self.strings).is_lt(),
            (Max | InclusiveMax, Some(before)) => bits.compare(before, kind, &self.strings).is_gt(),
            _ => place < sum.place,
        };
        if better && kind == self.kinds[0] {
            sum.value.set(kind, bits);
            sum.place = place;
        }
    }

    /// Adds the accumulators of a group to another group of the same sums.
    pub(crate) fn merge_below(&self, sums: &mut Sums, group: u32, up: u32) {
        let below = sums.get(group as usize);
        let mut sum = sums.get(up as usize);
        self.merge(&mut sum, &below);
        sums.put(up as usize, sum);
    }

    /// Adds the accumulators of another thread's groups; `here` has, for each, its group.
    pub(crate) fn merge_all(&self, sums: &mut Sums, other: &Sums, here: &[u32]) {
        for (from, &group) in here.iter().enumerate() {
            let mut sum = sums.get(group as usize);
            self.merge(&mut sum, &other.get(from));
            sums.put(group as usize, sum);
        }
    }

    /// Adds the accumulators of another group.
    fn merge(&self, sum: &mut Sum, other: &Sum) {
        let [kind, below] = self.kinds;
        if self.picks() {
            let bits = other.value.bits(kind);
            bits.into_iter().for_each(|bits| self.pick(sum, kind, bits, other.place));
        } else {
            sum.value.merge(kind, &other.value)
        }
        sum.divisor.merge(below, &other.divisor);
        sum.squares.merge(other.squares);
        sum.count = sum.count.saturating_add(other.count);
    }

    /// Writes the results to the columns of another table: for each group, its own values, and
    /// those including everything below it.
    pub(crate) fn finish(&self, table: &mut Table, own: &Sums, all: &Sums) {
        let rows = table.rows();
        let total: f64 = (0..rows).map(|row| self.value(&own.get(row))).sum();
        let result = attribute(table, &self.call.result(), self.result_kind(), Shown::Always);
        let measured = self.call.arguments.first().and_then(|word| table.named(&word.text));
        let quantity = measured.map(|id| table.of(id).quantity).unwrap_or_default();
        table.of_mut(result).quantity =
            if self.call.operator.keeps_unit() { quantity } else { Quantity::Number };
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
        let results = (0..rows).map(|row| self.result(&all.get(row), total));
        table.of_mut(result).column = Column::of(results);
        for (role, id) in hidden {
            let partials = (0..rows).map(|row| self.partial(role, &own.get(row)));
            table.of_mut(id).column = Column::of(partials);
        }
    }

    fn value(&self, sum: &Sum) -> f64 {
        sum.value.bits(self.kinds[0]).map_or(0.0, |bits| bits.to_double(self.kinds[0]))
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
            Role::Value | Role::Sum => sum.value.bits(self.kinds[0]),
            Role::Divisor => sum.divisor.bits(self.kinds[1]),
            Role::Count => (sum.count > 0).then_some(Bits(sum.count)),
            Role::Squares => (sum.count > 0).then(|| Bits::double(sum.squares.value())),
        }
    }

    fn result(&self, sum: &Sum, total: f64) -> Option<Bits> {
        let scale = self.call.scale;
        let count = Some(sum.count).filter(|count| *count > 0);
        let value = || sum.value.any.then(|| self.value(sum));
        match self.call.operator {
            Aggregation::Count => count.map(Bits),
            Aggregation::ScaleCount => count.map(|count| Bits::double(scale * count as f64)),
            Aggregation::Avg => divide(sum.value.bits(self.kinds[0])?, self.kinds[0], count?),
            Aggregation::Variance => {
                let mean = value()? / count? as f64;
                Some(Bits::double(sum.squares.value() / count? as f64 - mean * mean))
            }
            Aggregation::PercentTotal | Aggregation::InclusivePercentTotal => {
                (total > 0.0).then(value)?.map(|value| Bits::double(100.0 * value / total))
            }
            Aggregation::Ratio | Aggregation::InclusiveRatio => {
                let below = sum.divisor.bits(self.kinds[1])?.to_double(self.kinds[1]);
                Some(Bits::double(scale * value()? / below))
            }
            Aggregation::Scale | Aggregation::InclusiveScale => {
                value().map(|value| Bits::double(scale * value))
            }
            _ => sum.value.bits(self.kinds[0]),
        }
    }
}

fn attribute(table: &mut Table, name: &str, kind: Kind, shown: Shown) -> AttributeId {
    let id = table.attribute(name, kind, Form::Value);
    let of = table.of_mut(id);
    (of.kind, of.shown, of.form) = (kind, shown, Form::Value);
    id
}

/// Returns a mean; an integer for integers.
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
