//! The columns of the tables in SQL.
//!
//! They are those of CalQL, with these differences: numbers are signed 64-bit integers, because
//! differences of counters may be negative; stacks are lists; and the scopes, each of which is an
//! attribute in CalQL, are two columns, so that tables of all recordings have the same columns.

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
/// The prefix of attributes of iterations.
pub const ITERATION: &str = "iteration#";

/// The description of a column.
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub data: DataType,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// A description of its values.
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

    /// Returns its type, for people.
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

/// The type of texts: views of the distinct ones.
pub const TEXT: DataType = DataType::Utf8View;

/// Returns the type of lists of this type.
pub fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// Returns the two fields of a scope.
pub fn scope_fields() -> Fields {
    Fields::from(vec![Field::new("attribute", TEXT, false), Field::new("value", TEXT, false)])
}

/// Returns the columns of a table.
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

/// Returns the columns of a table as a schema.
pub fn schema(source: &Source) -> SchemaRef {
    let field = |column: Column| Field::new(column.name, column.data, true);
    Arc::new(Schema::new(of(source).into_iter().map(field).collect::<Vec<_>>()))
}

/// Returns whether records of a table have scopes.
fn has_scopes(source: &Source) -> bool {
    const WITH_SCOPES: [&str; 6] =
        ["sites", "events", "lifetimes", "scopes", "retained", "keepers"];
    WITH_SCOPES.contains(&source.name)
}

/// Returns whether a table has records only for processes with a trace.
pub fn needs_trace(source: &Source) -> bool {
    matches!(source.name, "events" | "lifetimes")
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

/// Describes the columns of a table, for people.
pub fn described(source: &Source) -> String {
    let mut page = format!("{}: {}\n\n", source.name, source.says);
    for column in of(source) {
        let (name, kind) = (column.name, column.type_name());
        let quoted = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
        page.push_str(&format!("  {quoted:20} {kind:9} {:6} {}\n", column.unit, column.says));
    }
    page
}
