//! The columns of the tables as SQL sees them.
//!
//! They are those of CalQL, but for what the two languages see differently: numbers are 64-bit
//! integers with a sign, since differences of counters may be negative; stacks are lists; the
//! scopes, of which CalQL has an attribute each, are two columns, so that tables of all recordings
//! have the same columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use heaptide_query::table::{Form, Shown};
use heaptide_query::tables::{Info, Source};
use heaptide_query::value::Kind;

/// The name of the recording.
pub const RUN: &str = "run";
/// Values of the nested scopes, outermost first.
pub const PATH: &str = "path";
/// All scopes with their attributes, iterations of loops included.
pub const SCOPES: &str = "scopes";
/// What attributes of iterations begin with.
pub const ITERATION: &str = "iteration#";

/// What there is of a column to know.
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub data: DataType,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// What it is.
    pub says: &'static str,
}

impl Column {
    fn new(info: &Info) -> Column {
        let (name, data) = (info.name, data_type(info));
        match name {
            RUN => Column { name, data: TEXT, unit: "", says: "name of the recording" },
            _ => Column { name, data, unit: info.unit, says: info.says },
        }
    }

    /// Its type for a person.
    pub fn type_name(&self) -> &'static str {
        match &self.data {
            DataType::Boolean => "BOOLEAN",
            DataType::Float64 => "DOUBLE",
            DataType::Int64 => "BIGINT",
            DataType::List(item) if item.data_type() == &TEXT => "VARCHAR[]",
            DataType::List(_) => "STRUCT[]",
            _ => "VARCHAR",
        }
    }
}

/// How texts are kept: views of the distinct ones.
pub const TEXT: DataType = DataType::Utf8View;

/// A list of these.
pub fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The two parts of a scope.
pub fn scope_fields() -> Fields {
    Fields::from(vec![Field::new("attribute", TEXT, false), Field::new("value", TEXT, false)])
}

/// The columns of a table.
pub fn of(source: &Source) -> Vec<Column> {
    let infos = source.columns();
    let shown = infos.iter().filter(|info| info.shown == Shown::Always);
    let mut all: Vec<Column> = shown.map(Column::new).collect();
    if has_scopes(source) {
        let (data, says) = (list(TEXT), "values of the enclosing scopes, outermost first");
        all.push(Column { name: PATH, data, unit: "", says });
        let data = list(DataType::Struct(scope_fields()));
        let says = "attributes and values of those scopes, including loop iterations";
        all.push(Column { name: SCOPES, data, unit: "", says });
    }
    all
}

/// The same as a schema.
pub fn schema(source: &Source) -> SchemaRef {
    let field = |column: Column| Field::new(column.name, column.data, true);
    Arc::new(Schema::new(of(source).into_iter().map(field).collect::<Vec<_>>()))
}

/// Whether records of a table are made in scopes.
fn has_scopes(source: &Source) -> bool {
    matches!(source.name, "sites" | "events" | "lifetimes" | "scopes")
}

fn data_type(info: &Info) -> DataType {
    match (info.form, info.kind) {
        (Form::Value, Kind::Text) => TEXT,
        (Form::Value, Kind::Bool) => DataType::Boolean,
        (Form::Value, Kind::Double) => DataType::Float64,
        (Form::Value, Kind::Int | Kind::Uint | Kind::Address) => DataType::Int64,
        _ => list(TEXT),
    }
}

/// The columns of a table for a person.
pub fn described(source: &Source) -> String {
    let mut page = format!("{}: {}\n\n", source.name, source.says);
    for column in of(source) {
        let (name, kind) = (column.name, column.type_name());
        let quoted = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
        page.push_str(&format!("  {quoted:20} {kind:9} {:6} {}\n", column.unit, column.says));
    }
    page
}
