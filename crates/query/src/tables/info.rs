//! Columns of tables: name, type, unit, description.

use heaptide_analysis::model::Measure;

use crate::table::{Form, Quantity, Shown};
use crate::value::Kind;

/// The description of a column.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// How they are stored.
    pub form: Form,
    /// When it is shown.
    pub shown: Shown,
    /// An alias.
    pub also: Option<&'static str>,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// A description of its values.
    pub says: &'static str,
}

impl Info {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        says: &'static str,
    ) -> Info {
        let (form, shown, also) = (Form::Value, Shown::Always, None);
        Info { name, kind, form, shown, also, unit, says }
    }

    pub(super) const fn text(name: &'static str, says: &'static str) -> Info {
        Info::new(name, Kind::Text, "", says)
    }

    pub(super) const fn uint(name: &'static str, unit: &'static str, says: &'static str) -> Info {
        Info::new(name, Kind::Uint, unit, says)
    }

    /// Returns the quantity of its numbers.
    pub(super) fn quantity(&self) -> Quantity {
        match self.unit {
            "bytes" => Quantity::Bytes,
            "ns" => Quantity::Nanoseconds,
            _ => Quantity::Number,
        }
    }

    /// Returns its names, separated by `between`.
    pub(super) fn names(&self, between: &str) -> String {
        [Some(self.name), self.also].into_iter().flatten().collect::<Vec<_>>().join(between)
    }

    /// Returns the name of its type, for people.
    pub(super) fn type_name(&self) -> &'static str {
        match (self.form, self.kind) {
            (Form::Value, Kind::Text) => "text",
            (Form::Value, Kind::Address) => "address",
            (Form::Value, kind) => kind.name(),
            _ => "path",
        }
    }

    pub(super) const fn also(self, also: &'static str) -> Info {
        Info { also: Some(also), ..self }
    }

    pub(super) const fn form(self, form: Form) -> Info {
        Info { form, ..self }
    }

    pub(super) const fn if_named(self) -> Info {
        Info { shown: Shown::IfNamed, ..self }
    }
}

/// Returns the column of a metric.
pub(super) fn measure(measure: Measure) -> Info {
    Info::uint(measure.name(), measure.unit().name(), measure.description())
}
