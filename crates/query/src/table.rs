//! Records in columns. As in Caliper a record has values, and a path in a tree of nodes.
//!
//! A node is a value of an attribute below another node: `function=main` and below it
//! `function=solve`. Nested attributes share one path; the hierarchies that are not nested have a
//! tree place of their own.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::value::{Bits, Kind, Strings};

/// Index into [`Table::attributes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AttributeId(pub u32);

/// Index into [`Table::nodes`]; 0 is no node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct NodeId(pub u32);

/// A value of an attribute below another node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// The node above; smaller than this node's own id.
    pub parent: NodeId,
    /// The attribute.
    pub attribute: AttributeId,
    /// Its value.
    pub value: Bits,
}

/// Who sees an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Everybody.
    Always,
    /// Who names it.
    IfNamed,
}

/// How values of an attribute are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A value in each record.
    Value,
    /// Nodes of the path.
    Nested,
    /// Nodes of a tree of its own.
    Hierarchy,
    /// The same, which tells records apart only where it is named.
    Stack,
}

/// A column, and what is said of it.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its values.
    pub kind: Kind,
    /// How they are kept.
    pub form: Form,
    /// Who sees it.
    pub shown: Shown,
    /// Its title, if its file says one.
    pub alias: Option<Arc<str>>,
    /// Its unit, if its file says one.
    pub unit: Option<Arc<str>>,
    /// Its values by row.
    pub column: Column,
}

/// Values by row; rows may have none.
#[derive(Clone, Debug, Default)]
pub struct Column {
    bits: Vec<u64>,
    present: Vec<bool>,
}

impl Column {
    /// The value of a row.
    pub fn get(&self, row: usize) -> Option<Bits> {
        self.present.get(row).is_some_and(|present| *present).then(|| Bits(self.bits[row]))
    }

    /// Gives a row a value.
    pub fn set(&mut self, row: usize, value: Bits) {
        if row >= self.bits.len() {
            self.bits.resize(row + 1, 0);
            self.present.resize(row + 1, false);
        }
        self.bits[row] = value.0;
        self.present[row] = true;
    }

    /// Whether no row ever had a value.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }
}

/// Records in columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// The columns.
    pub attributes: Vec<Attribute>,
    /// Texts of all columns.
    pub strings: Strings,
    /// The trees; entry 0 is no node.
    pub nodes: Vec<Node>,
    /// Of each row, the node of its path.
    pub paths: Vec<NodeId>,
    /// Of each row, the node of what is not nested.
    pub others: Vec<NodeId>,
    /// Names and values that hold for all records.
    pub globals: Vec<(String, String)>,
    names: FxHashMap<Arc<str>, AttributeId>,
    node_ids: FxHashMap<Node, NodeId>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            attributes: Vec::new(),
            strings: Strings::default(),
            nodes: vec![Node {
                parent: NodeId(0),
                attribute: AttributeId(u32::MAX),
                value: Bits(0),
            }],
            paths: Vec::new(),
            others: Vec::new(),
            globals: Vec::new(),
            names: FxHashMap::default(),
            node_ids: FxHashMap::default(),
        }
    }
}

impl Table {
    /// The number of records.
    pub fn rows(&self) -> usize {
        self.paths.len()
    }

    /// Adds an empty record and says which it is.
    pub fn add_row(&mut self) -> usize {
        self.paths.push(NodeId(0));
        self.others.push(NodeId(0));
        self.paths.len() - 1
    }

    /// The attribute of a name, a new one if there is none.
    pub fn attribute(&mut self, name: &str, kind: Kind, form: Form) -> AttributeId {
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let id = AttributeId(self.attributes.len() as u32);
        let name: Arc<str> = name.into();
        self.names.insert(name.clone(), id);
        let (shown, column) = (Shown::Always, Column::default());
        let (alias, unit) = (None, None);
        self.attributes.push(Attribute { name, kind, form, shown, alias, unit, column });
        id
    }

    /// Another name for an attribute.
    pub fn also_called(&mut self, id: AttributeId, name: &str) {
        self.names.entry(name.into()).or_insert(id);
    }

    /// The attribute of a name.
    pub fn named(&self, name: &str) -> Option<AttributeId> {
        self.names.get(name).copied()
    }

    /// What is known of an attribute.
    pub fn of(&self, id: AttributeId) -> &Attribute {
        &self.attributes[id.0 as usize]
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, id: AttributeId) -> &mut Attribute {
        &mut self.attributes[id.0 as usize]
    }

    /// The node of a value below another; a new one if there is none.
    pub fn node(&mut self, parent: NodeId, attribute: AttributeId, value: Bits) -> NodeId {
        let node = Node { parent, attribute, value };
        if let Some(&id) = self.node_ids.get(&node) {
            return id;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        self.node_ids.insert(node, id);
        id
    }

    /// A node and those above it, innermost first.
    pub fn chain(&self, node: NodeId) -> impl Iterator<Item = &Node> {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at.0 as usize).filter(|_| at != NodeId(0))?;
            at = node.parent;
            Some(node)
        })
    }

    /// A table of the same attributes without records, nodes and texts.
    pub fn bare(&self) -> Table {
        let bare = |attribute: &Attribute| Attribute {
            column: Column::default(),
            name: attribute.name.clone(),
            alias: attribute.alias.clone(),
            unit: attribute.unit.clone(),
            ..*attribute
        };
        Table {
            attributes: self.attributes.iter().map(bare).collect(),
            names: self.names.clone(),
            ..Table::default()
        }
    }

    /// The innermost value that each node has of an attribute, itself or above it.
    pub fn innermost(&self, attribute: AttributeId) -> Vec<Option<Bits>> {
        let mut found: Vec<Option<Bits>> = vec![None; self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().skip(1) {
            found[id] = match node.attribute == attribute {
                true => Some(node.value),
                false => found[node.parent.0 as usize],
            };
        }
        found
    }

    /// Looks values of an attribute up by row.
    pub fn reader(&self, attribute: AttributeId) -> Reader<'_> {
        let in_nodes = self.nodes.iter().skip(1).any(|node| node.attribute == attribute);
        let innermost = if in_nodes { self.innermost(attribute) } else { Vec::new() };
        Reader { table: self, column: &self.of(attribute).column, innermost }
    }

    /// The values of an attribute in a record as text, outermost first with `/` between; none if it
    /// has none.
    pub fn text(&self, row: usize, attribute: AttributeId) -> Option<String> {
        let kind = self.of(attribute).kind;
        if let Some(value) = self.of(attribute).column.get(row) {
            return Some(value.show(kind, &self.strings));
        }
        let in_chain = |node: NodeId| {
            let of = self.chain(node).filter(|node| node.attribute == attribute);
            let mut parts: Vec<String> =
                of.map(|node| node.value.show(kind, &self.strings)).collect();
            parts.reverse();
            (!parts.is_empty()).then(|| parts.join("/"))
        };
        in_chain(self.paths[row]).or_else(|| in_chain(self.others[row]))
    }

    /// The path of a record as text.
    pub fn path_text(&self, row: usize) -> Option<String> {
        let show = |node: &Node| node.value.show(self.of(node.attribute).kind, &self.strings);
        let mut parts: Vec<String> = self.chain(self.paths[row]).map(show).collect();
        parts.reverse();
        (!parts.is_empty()).then(|| parts.join("/"))
    }

    /// Where no record has a path, the other hierarchies are it.
    pub fn settle_paths(&mut self) {
        if self.paths.iter().all(|path| *path == NodeId(0)) {
            std::mem::swap(&mut self.paths, &mut self.others);
        }
    }

    /// Keeps these rows, in this order.
    pub fn keep(&mut self, rows: &[usize]) {
        self.paths = rows.iter().map(|&row| self.paths[row]).collect();
        self.others = rows.iter().map(|&row| self.others[row]).collect();
        for attribute in self.attributes.iter_mut().filter(|a| !a.column.is_empty()) {
            let mut kept = Column::default();
            for (new, &row) in rows.iter().enumerate() {
                attribute.column.get(row).into_iter().for_each(|value| kept.set(new, value));
            }
            attribute.column = kept;
        }
    }
}

/// Values of one attribute by row.
pub struct Reader<'a> {
    table: &'a Table,
    column: &'a Column,
    /// By node; empty if no node has the attribute.
    innermost: Vec<Option<Bits>>,
}

impl Reader<'_> {
    /// The value in a row, of a hierarchy the innermost.
    pub fn get(&self, row: usize) -> Option<Bits> {
        let value = self.column.get(row);
        if value.is_some() || self.innermost.is_empty() {
            return value;
        }
        let of = |node: NodeId| self.innermost[node.0 as usize];
        of(self.table.paths[row]).or_else(|| of(self.table.others[row]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_values_and_paths() {
        let mut table = Table::default();
        let function = table.attribute("function", Kind::Text, Form::Nested);
        let size = table.attribute("size", Kind::Uint, Form::Value);
        let [main, foo] = ["main", "foo"].map(|name| table.strings.bits(name));
        let outer = table.node(NodeId(0), function, main);
        let inner = table.node(outer, function, foo);
        assert_eq!(table.node(outer, function, foo), inner);
        table.add_row();
        let row = table.add_row();
        table.paths[row] = inner;
        table.of_mut(size).column.set(row, Bits(42));
        assert_eq!(table.text(row, function).as_deref(), Some("main/foo"));
        assert_eq!(table.text(row, size).as_deref(), Some("42"));
        assert_eq!((table.text(0, function), table.path_text(0)), (None, None));
        assert_eq!(table.reader(function).get(row), Some(foo));
        table.keep(&[row]);
        assert_eq!((table.rows(), table.reader(size).get(0)), (1, Some(Bits(42))));
    }
}
