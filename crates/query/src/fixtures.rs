//! Tables for tests, written as lines of `name=value`; `/` separates the nodes of a path.

use crate::table::{Form, NodeId, Table};
use crate::value::Kind;

/// Creates a table of these records. Numeric values give their attribute a numeric type; `function`
/// and `annotation` are nested.
pub(crate) fn table(records: &[&str]) -> Table {
    let mut table = Table::default();
    for record in records {
        let row = table.add_row();
        for (name, value) in record.split(',').filter_map(|part| part.split_once('=')) {
            let kind = match value.parse::<f64>() {
                Ok(_) if value.contains('.') => Kind::Double,
                Ok(_) => Kind::Int,
                Err(_) => Kind::Text,
            };
            if !matches!(name, "function" | "annotation") {
                let id = table.attribute(name, kind, Form::Value);
                let kind = table.of(id).kind;
                let bits = table.strings.parse(value, kind).expect(value);
                table.of_mut(id).column.set(row, bits);
                continue;
            }
            let id = table.attribute(name, Kind::Text, Form::Nested);
            for part in value.split('/') {
                let bits = table.strings.bits(part);
                table.paths[row] = table.node(table.paths[row], id, bits);
            }
        }
    }
    assert!(table.nodes[0].parent == NodeId(0));
    table
}
