//! `cali`: records in Caliper's own format.

use std::io::{self, Write};

use heaptide_analysis::text::is_unprintable;
use rustc_hash::FxHashMap;

use crate::cali::{AS_VALUE, BUILT_IN, HIDDEN, NAME, NESTED, PROPERTIES};
use crate::query::Query;
use crate::table::{AttributeId, Form, Node, NodeId, Shown, Table};
use crate::value::{Bits, Kind};

/// Property: values belong to a thread.
const OF_THREAD: u64 = 20;

/// Writes all records, including hidden attributes, so that further queries can aggregate them.
pub(super) fn write(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    let is_nested = |node: &Node| answer.of(node.attribute).form == Form::Nested;
    let mut writer = Writer {
        out,
        query,
        answer,
        next: BUILT_IN,
        attributes: FxHashMap::default(),
        nodes: FxHashMap::default(),
        has_paths: answer.nodes[1..].iter().any(is_nested),
        described: FxHashMap::default(),
    };
    (0..answer.rows()).try_for_each(|row| writer.record(row))?;
    writer.globals()
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    query: &'a Query,
    answer: &'a Table,
    /// The id of the next node.
    next: u64,
    attributes: FxHashMap<AttributeId, u64>,
    nodes: FxHashMap<NodeId, u64>,
    /// Whether any record has a path. Otherwise stacks are paths, for readers of call trees.
    has_paths: bool,
    /// The attributes that describe attributes, by name: a reader knows one of each name.
    described: FxHashMap<&'static str, u64>,
}

impl Writer<'_> {
    /// Writes a node and returns its id.
    fn node(&mut self, attribute: u64, data: &str, parent: Option<u64>) -> io::Result<u64> {
        let id = self.next;
        self.next += 1;
        let data = escaped(data);
        write!(self.out, "__rec=node,id={id},attr={attribute},data={data}")?;
        match parent {
            Some(parent) => writeln!(self.out, ",parent={parent}")?,
            None => writeln!(self.out)?,
        }
        Ok(id)
    }

    /// Writes an attribute of texts that describes attributes.
    fn named(&mut self, name: &str, properties: u64) -> io::Result<u64> {
        let parent = self.node(PROPERTIES, &properties.to_string(), Some(3))?;
        self.node(NAME, name, Some(parent))
    }

    fn attribute(&mut self, id: AttributeId) -> io::Result<u64> {
        if let Some(&known) = self.attributes.get(&id) {
            return Ok(known);
        }
        let of = self.answer.of(id);
        let mut above = match of.kind {
            Kind::Int => 1,
            Kind::Uint => 2,
            Kind::Text => 3,
            Kind::Address => 4,
            Kind::Double => 5,
            Kind::Bool => 6,
        };
        let said = [
            ("attribute.unit", self.query.units.get(&*of.name).map(String::as_str), &of.unit),
            ("attribute.alias", self.query.aliases.get(&*of.name).map(String::as_str), &of.alias),
        ];
        for (name, of_query, of_file) in said {
            if let Some(value) = of_query.or(of_file.as_deref()) {
                let attribute = match self.described.get(name) {
                    Some(&known) => known,
                    None => self.named(name, OF_THREAD)?,
                };
                self.described.insert(name, attribute);
                above = self.node(attribute, value, Some(above))?;
            }
        }
        let form = match of.form {
            Form::Value => AS_VALUE,
            Form::Nested => NESTED,
            Form::Stack if !self.has_paths => NESTED,
            Form::Hierarchy | Form::Stack | Form::Tree => 0,
        };
        let hidden = if of.shown == Shown::IfNamed { HIDDEN } else { 0 };
        let properties = (OF_THREAD | form | hidden).to_string();
        above = self.node(PROPERTIES, &properties, Some(above))?;
        let number = self.node(NAME, &of.name, Some(above))?;
        self.attributes.insert(id, number);
        Ok(number)
    }

    /// Returns the id of a node, writing it and its parents if necessary.
    fn place(&mut self, node: NodeId) -> io::Result<Option<u64>> {
        let mut open = Vec::new();
        let mut at = node;
        while at != NodeId(0) && !self.nodes.contains_key(&at) {
            open.push(at);
            at = self.answer.nodes[at.0 as usize].parent;
        }
        let mut above = self.nodes.get(&at).copied();
        for id in open.into_iter().rev() {
            let node = self.answer.nodes[id.0 as usize];
            let attribute = self.attribute(node.attribute)?;
            let number = self.node(attribute, &self.data(node.attribute, node.value), above)?;
            self.nodes.insert(id, number);
            above = Some(number);
        }
        Ok(above)
    }

    fn data(&self, id: AttributeId, value: Bits) -> String {
        match self.answer.of(id).kind {
            Kind::Double => f64::from_bits(value.0).to_string(),
            kind => value.show(kind, &self.answer.strings),
        }
    }

    fn record(&mut self, row: usize) -> io::Result<()> {
        let mut line = "__rec=ctx".to_owned();
        let mut sign = ",ref=";
        let trees = self.answer.attributes.iter().filter(|of| of.form == Form::Tree);
        let trees = trees.filter_map(|of| of.column.get(row)).map(|bits| NodeId(bits.0 as u32));
        let trees: Vec<NodeId> = trees.collect();
        for node in [self.answer.paths[row], self.answer.others[row]].into_iter().chain(trees) {
            if let Some(number) = self.place(node)? {
                line.push_str(&format!("{sign}{number}"));
                sign = "=";
            }
        }
        let (mut attributes, mut values) = (String::new(), String::new());
        for (of, id) in self.answer.attributes.iter().zip(0..) {
            if let Some(value) = of.column.get(row).filter(|_| of.form != Form::Tree) {
                let number = self.attribute(AttributeId(id))?;
                attributes.push_str(&format!("={number}"));
                values.push_str(&format!("={}", escaped(&self.data(AttributeId(id), value))));
            }
        }
        if !attributes.is_empty() {
            line.push_str(&format!(",attr{attributes},data{values}"));
        }
        if line.contains(',') { writeln!(self.out, "{line}") } else { Ok(()) }
    }

    fn globals(&mut self) -> io::Result<()> {
        const GLOBAL: u64 = 512 | AS_VALUE | OF_THREAD;
        let (mut attributes, mut values) = (String::new(), String::new());
        for (name, value) in &self.answer.globals {
            let number = self.named(name, GLOBAL)?;
            attributes.push_str(&format!("={number}"));
            values.push_str(&format!("={}", escaped(value)));
        }
        if attributes.is_empty() {
            Ok(())
        } else {
            writeln!(self.out, "__rec=globals,attr{attributes},data{values}")
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ',' | '=' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            // The format has no escape for this: it is written as text with a backslash.
            c if is_unprintable(c) => escaped.push_str(&format!("\\\\x{:02x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
