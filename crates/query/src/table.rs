//! Records in columns. As in Caliper, a record has values, and a path in a tree of nodes.
//!
//! A node is a value of an attribute below another node: `function=main`, and below it
//! `function=solve`. Nested attributes share one path; each hierarchy that is not nested has its
//! own tree.
//!
//! Names, texts and nodes are shared between tables. A batch is a table of some of the records, and
//! takes only the memory of its own columns.

use std::hash::BuildHasher;
use std::ops::{Deref, Range};
use std::sync::Arc;

use heaptide_analysis::quantity;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::value::{Bits, Kind, Strings};

/// Index into [`Table::attributes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AttributeId(pub u32);

/// Index into [`Table::nodes`]; 0 is no node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct NodeId(pub u32);

/// A value of an attribute below a parent node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// The parent; smaller than this node's own id.
    pub parent: NodeId,
    /// The attribute.
    pub attribute: AttributeId,
    /// Its value.
    pub value: Bits,
}

/// When an attribute is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Always.
    Always,
    /// If the query names it.
    IfNamed,
}

/// How values of an attribute are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A value in each record.
    Value,
    /// Nodes of the path.
    Nested,
    /// Nodes of a separate tree.
    Hierarchy,
    /// Like `Hierarchy`, but a key of groups only if it is named.
    Stack,
    /// A node in each record, of a separate tree: values are [`NodeId`]s of nodes with the
    /// attribute.
    Tree,
}

/// A column with its metadata.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its values.
    pub kind: Kind,
    /// How they are stored.
    pub form: Form,
    /// When it is shown.
    pub shown: Shown,
    /// Its title, if the file has one.
    pub alias: Option<Arc<str>>,
    /// Its unit, if the file has one.
    pub unit: Option<Arc<str>>,
    /// The quantity of its numbers, for formats for people.
    pub quantity: Quantity,
    /// Its values by row.
    pub column: Column,
}

/// The quantity of numbers, which determines how they are shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quantity {
    /// Anything else, such as blocks.
    #[default]
    Number,
    /// Bytes.
    Bytes,
    /// A time since a start, or between two events, in nanoseconds.
    Nanoseconds,
}

impl Quantity {
    /// Returns a value with its unit; `None` for a number without unit.
    pub fn text(self, kind: Kind, value: Bits) -> Option<String> {
        let show = match self {
            Quantity::Number => return None,
            Quantity::Bytes => quantity::bytes,
            Quantity::Nanoseconds => quantity::duration,
        };
        match kind {
            Kind::Uint => Some(show(value.0)),
            Kind::Int => {
                let number = value.0.cast_signed();
                let sign = if number < 0 { "-" } else { "" };
                Some(format!("{sign}{}", show(number.unsigned_abs())))
            }
            Kind::Double => {
                let number = value.to_double(kind).round();
                let sign = if number < 0.0 { "-" } else { "" };
                number.is_finite().then(|| format!("{sign}{}", show(number.abs() as u64)))
            }
            Kind::Text | Kind::Bool | Kind::Address => None,
        }
    }
}

/// Values by row; rows may lack one.
#[derive(Clone, Debug, Default)]
pub struct Column {
    bits: Vec<u64>,
    present: Vec<bool>,
}

impl Column {
    /// Returns the value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<Bits> {
        self.present.get(row).is_some_and(|present| *present).then(|| Bits(self.bits[row]))
    }

    /// Sets the value of a row.
    pub fn set(&mut self, row: usize, value: Bits) {
        if row >= self.bits.len() {
            self.bits.resize(row + 1, 0);
            self.present.resize(row + 1, false);
        }
        self.bits[row] = value.0;
        self.present[row] = true;
    }

    /// Returns whether no row has a value.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Returns the bits of the first rows, with 0 for missing values; later rows have no value.
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// Returns which of these rows have a value.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// Creates a column of these values, starting with the first row.
    pub fn of(values: impl Iterator<Item = Option<Bits>>) -> Column {
        let (rows, _) = values.size_hint();
        let (mut bits, mut present) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        values.for_each(|value| {
            bits.push(value.map_or(0, |bits| bits.0));
            present.push(value.is_some());
        });
        let any = present.contains(&true);
        if any { Column { bits, present } } else { Column::default() }
    }

    /// Creates a column in which every row has a value.
    pub fn full(bits: Vec<u64>) -> Column {
        Column { present: vec![true; bits.len()], bits }
    }

    /// Returns the values of some rows, in their order.
    fn of_rows(&self, rows: impl Iterator<Item = usize>) -> Column {
        if self.is_empty() { Column::default() } else { Column::of(rows.map(|row| self.get(row))) }
    }

    fn slice(&self, rows: Range<usize>) -> Column {
        let rows = rows.start.min(self.bits.len())..rows.end.min(self.bits.len());
        if self.present[rows.clone()].contains(&true) {
            Column { bits: self.bits[rows.clone()].to_vec(), present: self.present[rows].to_vec() }
        } else {
            Column::default()
        }
    }

    /// Appends the values of another column, starting at row `from`.
    fn append(&mut self, from: usize, other: &Column) {
        if !other.is_empty() {
            self.bits.resize(from, 0);
            self.present.resize(from, false);
            self.bits.extend(&other.bits);
            self.present.extend(&other.present);
        }
    }
}

/// The trees of a table: each node comes after its parent, and entry 0 is no node. Clones share
/// them until one is modified.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<Tree>);

#[derive(Clone, Debug)]
struct Tree {
    all: Vec<Node>,
    /// By node, its children.
    families: Vec<Family>,
    /// A hash table of the nodes in large families, with linear probing; 0 is a free slot. It
    /// always has free slots.
    ids: Vec<u32>,
    /// The number of its entries.
    indexed: usize,
}

/// The children of a node. Small families, the majority, are searched linearly: their nodes are
/// close in memory, whereas a hash table of a large tree does not fit a cache.
#[derive(Clone, Copy, Debug, Default)]
struct Family {
    size: u32,
    /// The last child; 0 if there is none.
    youngest: u32,
    /// For this node, its previous sibling.
    older: u32,
}

/// The largest family that is searched linearly.
const SMALL_FAMILY: u32 = 4;

impl Default for Nodes {
    fn default() -> Nodes {
        let none = Node { parent: NodeId(0), attribute: AttributeId(u32::MAX), value: Bits(0) };
        let families = vec![Family::default()];
        Nodes(Arc::new(Tree { all: vec![none], families, ids: vec![0; 16], indexed: 0 }))
    }
}

impl Deref for Nodes {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.0.all
    }
}

impl Nodes {
    /// Returns the node of a value below another, creating it if necessary.
    pub fn id(&mut self, node: Node) -> NodeId {
        match self.0.find(&node) {
            0 => Arc::make_mut(&mut self.0).add(node),
            id => NodeId(id),
        }
    }
}

impl Tree {
    /// Returns the id of a node, or 0.
    fn find(&self, node: &Node) -> u32 {
        let family = self.families[node.parent.0 as usize];
        if family.size > SMALL_FAMILY {
            return self.ids[self.place(node)];
        }
        let is_it = |id: u32| id == 0 || self.all[id as usize] == *node;
        let mut id = family.youngest;
        while !is_it(id) {
            id = self.families[id as usize].older;
        }
        id
    }

    /// Returns the slot for a node of a large family.
    fn place(&self, node: &Node) -> usize {
        let last = self.ids.len() - 1;
        let mut place = FxBuildHasher.hash_one(node) as usize & last;
        while self.ids[place] != 0 && self.all[self.ids[place] as usize] != *node {
            place = (place + 1) & last;
        }
        place
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.all.len() as u32;
        self.all.push(node);
        let family = &mut self.families[node.parent.0 as usize];
        family.size += 1;
        let (size, older) = (family.size, std::mem::replace(&mut family.youngest, id));
        self.families.push(Family { older, ..Family::default() });
        if size > SMALL_FAMILY + 1 {
            self.index(id);
        } else if size > SMALL_FAMILY {
            let mut member = id;
            while member != 0 {
                self.index(member);
                member = self.families[member as usize].older;
            }
        }
        NodeId(id)
    }

    /// Adds a node's id to the hash table.
    fn index(&mut self, id: u32) {
        let place = self.place(&self.all[id as usize]);
        self.ids[place] = id;
        self.indexed += 1;
        if self.indexed * 4 > self.ids.len() * 3 {
            let double = vec![0; self.ids.len() * 2];
            let old = std::mem::replace(&mut self.ids, double);
            for id in old.into_iter().filter(|&id| id != 0) {
                let place = self.place(&self.all[id as usize]);
                self.ids[place] = id;
            }
        }
    }
}

/// Records in columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The columns.
    pub attributes: Vec<Attribute>,
    /// Texts of all columns.
    pub strings: Strings,
    /// The trees.
    pub nodes: Nodes,
    /// By row, the node of its path.
    pub paths: Vec<NodeId>,
    /// By row, the node of its hierarchies that are not nested.
    pub others: Vec<NodeId>,
    /// Names and values that apply to all records.
    pub globals: Vec<(String, String)>,
    names: Arc<FxHashMap<Arc<str>, AttributeId>>,
}

impl Table {
    /// Returns the number of records.
    pub fn rows(&self) -> usize {
        self.paths.len()
    }

    /// Adds an empty record and returns its row.
    pub fn add_row(&mut self) -> usize {
        self.paths.push(NodeId(0));
        self.others.push(NodeId(0));
        self.paths.len() - 1
    }

    /// Returns the attribute with a name, creating it if necessary.
    pub fn attribute(&mut self, name: &str, kind: Kind, form: Form) -> AttributeId {
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let id = AttributeId(self.attributes.len() as u32);
        let name: Arc<str> = name.into();
        Arc::make_mut(&mut self.names).insert(name.clone(), id);
        let (shown, column) = (Shown::Always, Column::default());
        let (alias, unit, quantity) = (None, None, Quantity::Number);
        let of = Attribute { name, kind, form, shown, alias, unit, quantity, column };
        self.attributes.push(of);
        id
    }

    /// Adds another name for an attribute.
    pub fn also_called(&mut self, id: AttributeId, name: &str) {
        Arc::make_mut(&mut self.names).entry(name.into()).or_insert(id);
    }

    /// Returns the attribute with a name.
    pub fn named(&self, name: &str) -> Option<AttributeId> {
        self.names.get(name).copied()
    }

    /// Returns the metadata of an attribute.
    pub fn of(&self, id: AttributeId) -> &Attribute {
        &self.attributes[id.0 as usize]
    }

    /// Like `of`, for modification.
    pub fn of_mut(&mut self, id: AttributeId) -> &mut Attribute {
        &mut self.attributes[id.0 as usize]
    }

    /// Returns the node of a value below another, creating it if necessary.
    pub fn node(&mut self, parent: NodeId, attribute: AttributeId, value: Bits) -> NodeId {
        self.nodes.id(Node { parent, attribute, value })
    }

    /// Returns a node and its ancestors, innermost first.
    pub fn chain(&self, node: NodeId) -> impl Iterator<Item = &Node> {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at.0 as usize).filter(|_| at != NodeId(0))?;
            at = node.parent;
            Some(node)
        })
    }

    /// Returns a table with the same attributes, without records, nodes and texts.
    pub fn bare(&self) -> Table {
        let attributes = self.attributes.iter().map(Attribute::bare).collect();
        Table { attributes, names: self.names.clone(), ..Table::default() }
    }

    /// Returns a table with the same attributes, nodes and texts, without records. Shared parts do
    /// not count as memory of the new table.
    pub fn without_rows(&self) -> Table {
        Table { strings: self.strings.clone(), nodes: self.nodes.clone(), ..self.bare() }
    }

    /// Returns some of the records as a table.
    pub fn slice(&self, rows: Range<usize>) -> Table {
        let mut part = self.without_rows();
        for (new, of) in part.attributes.iter_mut().zip(&self.attributes) {
            new.column = of.column.slice(rows.clone());
        }
        part.paths = self.paths[rows.clone()].to_vec();
        part.others = self.others[rows].to_vec();
        part
    }

    /// Takes over the texts and additional attributes of a table that was like this one.
    pub(crate) fn adopt(&mut self, template: &Table) {
        let more = template.attributes.iter().skip(self.attributes.len());
        self.attributes.extend(more.map(Attribute::bare));
        (self.names, self.strings) = (template.names.clone(), template.strings.clone());
    }

    /// Appends the records of a table that has the same attributes, nodes and texts.
    pub fn append(&mut self, other: &Table) {
        let from = self.rows();
        for (of, new) in self.attributes.iter_mut().zip(&other.attributes) {
            of.column.append(from, &new.column);
        }
        self.paths.extend(&other.paths);
        self.others.extend(&other.others);
    }

    /// Returns, by node, the innermost value of an attribute in the node or its ancestors.
    pub fn innermost(&self, attribute: AttributeId) -> Vec<Option<Bits>> {
        let mut found: Vec<Option<Bits>> = vec![None; self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().skip(1) {
            found[id] = if node.attribute == attribute {
                Some(node.value)
            } else {
                found[node.parent.0 as usize]
            };
        }
        found
    }

    /// Prepares reading an attribute of this table and of all tables that share its nodes.
    pub fn lookup(&self, attribute: AttributeId) -> Lookup {
        let in_nodes = self.nodes.iter().skip(1).any(|node| node.attribute == attribute);
        let in_column = self.of(attribute).form != Form::Tree;
        Lookup { attribute, in_column, innermost: in_nodes.then(|| self.innermost(attribute)) }
    }

    /// Returns the values of an attribute in a record as text, outermost first, separated by `/`;
    /// `None` if it has none.
    pub fn text(&self, row: usize, attribute: AttributeId) -> Option<String> {
        let Attribute { kind, form, ref column, .. } = *self.of(attribute);
        if let Some(value) = column.get(row).filter(|_| form != Form::Tree) {
            return Some(value.show(kind, &self.strings));
        }
        let in_chain = |node: NodeId| {
            let of = self.chain(node).filter(|node| node.attribute == attribute);
            let mut parts: Vec<String> =
                of.map(|node| node.value.show(kind, &self.strings)).collect();
            parts.reverse();
            (!parts.is_empty()).then(|| parts.join("/"))
        };
        self.places(row, attribute).find_map(in_chain)
    }

    /// Returns the value of an attribute in a record with its unit, if it is a number with a unit.
    pub(crate) fn with_unit(&self, row: usize, attribute: AttributeId) -> Option<String> {
        let Attribute { kind, form, quantity, ref column, .. } = *self.of(attribute);
        column.get(row).filter(|_| form != Form::Tree).and_then(|bits| quantity.text(kind, bits))
    }

    /// Returns the value of an attribute in a record, if it is a non-negative number in a column.
    pub(crate) fn uint(&self, row: usize, attribute: AttributeId) -> Option<u64> {
        let Attribute { kind, form, ref column, .. } = *self.of(attribute);
        let is_number = kind == Kind::Uint && form != Form::Tree;
        column.get(row).filter(|_| is_number).map(|bits| bits.0)
    }

    /// Returns the nodes of a record whose chains may have values of an attribute.
    pub fn places(&self, row: usize, attribute: AttributeId) -> impl Iterator<Item = NodeId> {
        let of = self.of(attribute);
        let own = of.column.get(row).filter(|_| of.form == Form::Tree);
        own.map(|bits| NodeId(bits.0 as u32)).into_iter().chain([self.paths[row], self.others[row]])
    }

    /// Returns the path of a record as text.
    pub fn path_text(&self, row: usize) -> Option<String> {
        self.chain_text(self.paths[row])
    }

    /// Returns a node and its ancestors as text, outermost first, separated by `/`; `None` for no
    /// node.
    pub fn chain_text(&self, node: NodeId) -> Option<String> {
        let show = |node: &Node| node.value.show(self.of(node.attribute).kind, &self.strings);
        let mut parts: Vec<String> = self.chain(node).map(show).collect();
        parts.reverse();
        (!parts.is_empty()).then(|| parts.join("/"))
    }

    /// If no record has a path, turns the other hierarchies into the path.
    pub fn settle_paths(&mut self) {
        if self.paths.iter().all(|path| *path == NodeId(0)) {
            std::mem::swap(&mut self.paths, &mut self.others);
        }
    }

    /// Keeps these rows, in this order.
    pub fn keep(&mut self, rows: &[usize]) {
        self.paths = rows.iter().map(|&row| self.paths[row]).collect();
        self.others = rows.iter().map(|&row| self.others[row]).collect();
        for attribute in &mut self.attributes {
            attribute.column = attribute.column.of_rows(rows.iter().copied());
        }
    }
}

impl Attribute {
    /// Returns a copy without values.
    fn bare(&self) -> Attribute {
        Attribute {
            column: Column::default(),
            name: self.name.clone(),
            alias: self.alias.clone(),
            unit: self.unit.clone(),
            ..*self
        }
    }
}

/// Finds the values of an attribute.
#[derive(Debug)]
pub struct Lookup {
    attribute: AttributeId,
    /// Whether the values are in the column, not in nodes.
    in_column: bool,
    /// By node, if any node has the attribute.
    innermost: Option<Vec<Option<Bits>>>,
}

impl Lookup {
    /// Prepares reading a table.
    pub fn reader<'a>(&'a self, table: &'a Table) -> Reader<'a> {
        Reader { table, column: &table.of(self.attribute).column, lookup: self }
    }
}

/// Values of one attribute by row.
pub struct Reader<'a> {
    table: &'a Table,
    column: &'a Column,
    lookup: &'a Lookup,
}

impl Reader<'_> {
    /// Returns the value in a row; for a hierarchy, the innermost one.
    #[inline]
    pub fn get(&self, row: usize) -> Option<Bits> {
        let value = if self.lookup.in_column { self.column.get(row) } else { None };
        let Some(innermost) = self.lookup.innermost.as_ref().filter(|_| value.is_none()) else {
            return value;
        };
        let of = |node: NodeId| innermost[node.0 as usize];
        self.table.places(row, self.lookup.attribute).find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units_and_signs() {
        let bytes = |kind, bits| Quantity::Bytes.text(kind, bits);
        assert_eq!(bytes(Kind::Uint, Bits(1536)).as_deref(), Some("1.50 KiB"));
        assert_eq!(bytes(Kind::Int, Bits::int(-1536)).as_deref(), Some("-1.50 KiB"));
        assert_eq!(bytes(Kind::Double, Bits::double(99.6)).as_deref(), Some("100 B"));
        assert_eq!(bytes(Kind::Double, Bits::double(f64::NAN)), None);
        assert_eq!(bytes(Kind::Bool, Bits(1)), None);
        let time = Quantity::Nanoseconds.text(Kind::Uint, Bits(1_500_000));
        assert_eq!(time.as_deref(), Some("1.50 ms"));
        assert_eq!(Quantity::Number.text(Kind::Uint, Bits(1536)), None);
    }

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
        assert_eq!(table.lookup(function).reader(&table).get(row), Some(foo));
        table.keep(&[row]);
        let size = table.lookup(size);
        assert_eq!((table.rows(), size.reader(&table).get(0)), (1, Some(Bits(42))));
    }

    #[test]
    fn equal_values_below_a_node_share_a_node() {
        let mut nodes = Nodes::default();
        let node = |parent, value| Node {
            parent: NodeId(parent),
            attribute: AttributeId(value as u32 % 2),
            value: Bits(value),
        };
        // The first node has many children, and each of those has one more than the previous one.
        let below = |at: u32| (0..u64::from(at) % 9).map(move |value| node(at, value));
        let all: Vec<Node> =
            (0..200).map(|value| node(0, value)).chain((1..=200).flat_map(below)).collect();
        let ids: Vec<NodeId> = all.iter().map(|&node| nodes.id(node)).collect();
        assert_eq!(ids, (1..=all.len() as u32).map(NodeId).collect::<Vec<_>>());
        let shared = nodes.clone();
        let again: Vec<NodeId> = all.iter().rev().map(|&node| nodes.id(node)).collect();
        assert_eq!(again, ids.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(nodes.id(node(9, 0)).0 as usize, all.len() + 1);
        assert_eq!((shared.len(), nodes.len()), (all.len() + 1, all.len() + 2));
    }
}
