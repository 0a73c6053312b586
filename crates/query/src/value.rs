//! Values of attributes: six types, each in 64 bits.

use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// The type of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Text, as an index into [`Strings`].
    Text,
    /// An integer.
    Int,
    /// A non-negative number.
    Uint,
    /// A floating-point number.
    Double,
    /// True or false.
    Bool,
    /// An address, shown in hexadecimal.
    Address,
}

impl Kind {
    /// Returns Caliper's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Double => "double",
            Kind::Bool => "bool",
            Kind::Address => "addr",
        }
    }

    /// Returns whether values can be summed.
    pub const fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Uint | Kind::Double)
    }
}

/// The bits of a value; its attribute's [`Kind`] determines their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bits(pub u64);

impl Bits {
    /// Returns the bits of a floating-point number.
    pub fn double(value: f64) -> Bits {
        Bits(value.to_bits())
    }

    /// Returns the bits of an integer.
    pub const fn int(value: i64) -> Bits {
        Bits(value.cast_unsigned())
    }

    /// Converts the value to floating point; 0 for texts.
    pub fn to_double(self, kind: Kind) -> f64 {
        match kind {
            Kind::Text => 0.0,
            Kind::Int => self.0.cast_signed() as f64,
            Kind::Uint | Kind::Bool | Kind::Address => self.0 as f64,
            Kind::Double => f64::from_bits(self.0),
        }
    }

    /// Compares two values of one kind.
    pub fn compare(self, other: Bits, kind: Kind, strings: &Strings) -> Ordering {
        match kind {
            Kind::Text if self == other => Ordering::Equal,
            Kind::Text => strings.get(self).cmp(strings.get(other)),
            Kind::Int => self.0.cast_signed().cmp(&other.0.cast_signed()),
            Kind::Uint | Kind::Bool | Kind::Address => self.0.cmp(&other.0),
            Kind::Double => {
                let (a, b) = (f64::from_bits(self.0), f64::from_bits(other.0));
                a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))
            }
        }
    }

    /// Formats the value; floating-point numbers have six digits, as in Caliper.
    pub fn show(self, kind: Kind, strings: &Strings) -> String {
        match kind {
            Kind::Text => strings.get(self).to_owned(),
            Kind::Int => self.0.cast_signed().to_string(),
            Kind::Uint => self.0.to_string(),
            Kind::Double => format!("{:.6}", f64::from_bits(self.0)),
            Kind::Bool => (self.0 != 0).to_string(),
            Kind::Address => format!("{:x}", self.0),
        }
    }
}

/// Distinct texts. Clones share them until one adds another text.
#[derive(Clone, Debug, Default)]
pub struct Strings(Arc<Texts>);

#[derive(Clone, Debug, Default)]
struct Texts {
    all: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, u32>,
}

impl Strings {
    /// Returns the bits for a text, adding it if necessary.
    pub fn bits(&mut self, text: &str) -> Bits {
        if let Some(bits) = self.known(text) {
            return bits;
        }
        let texts = Arc::make_mut(&mut self.0);
        let text: Arc<str> = text.into();
        let id = texts.all.len() as u32;
        texts.all.push(text.clone());
        texts.ids.insert(text, id);
        Bits(id.into())
    }

    /// Returns the bits for an existing text.
    pub fn known(&self, text: &str) -> Option<Bits> {
        self.0.ids.get(text).map(|&id| Bits(id.into()))
    }

    /// Returns the text.
    pub fn get(&self, bits: Bits) -> &str {
        usize::try_from(bits.0).ok().and_then(|id| self.0.all.get(id)).map_or("", |text| text)
    }

    /// Returns all texts, in the order of their bits 0, 1, 2, …
    pub fn all(&self) -> &[Arc<str>] {
        &self.0.all
    }

    /// Parses a text as a value of a kind; `None` if it is invalid.
    pub fn parse(&mut self, text: &str, kind: Kind) -> Option<Bits> {
        match kind {
            Kind::Text => Some(self.bits(text)),
            Kind::Int => text.trim().parse().ok().map(Bits::int),
            Kind::Uint => text.trim().parse().ok().map(Bits),
            Kind::Double => text.trim().parse().ok().map(Bits::double),
            Kind::Bool => match text.trim() {
                "true" | "1" => Some(Bits(1)),
                "false" | "0" => Some(Bits(0)),
                _ => None,
            },
            Kind::Address => {
                let digits = text.trim();
                let digits = digits.strip_prefix("0x").unwrap_or(digits);
                u64::from_str_radix(digits, 16).ok().map(Bits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_compared_and_formatted() {
        let mut strings = Strings::default();
        let cases = [
            (Kind::Int, "-4", "25", "-4"),
            (Kind::Uint, "9", "10", "9"),
            (Kind::Double, "2.5", "1e3", "2.500000"),
            (Kind::Text, "a b", "b", "a b"),
            (Kind::Bool, "false", "true", "false"),
            (Kind::Address, "0xff", "1000", "ff"),
        ];
        for (kind, less, more, shown) in cases {
            let [a, b] = [less, more].map(|text| strings.parse(text, kind).expect(text));
            assert_eq!(a.compare(b, kind, &strings), Ordering::Less, "{less} {more}");
            assert_eq!(a.show(kind, &strings), shown);
        }
        assert_eq!(strings.parse("x", Kind::Uint), None);
        assert_eq!(strings.parse("-1", Kind::Uint), None);
    }
}
