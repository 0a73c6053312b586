//! Reads Caliper's files into tables.
//!
//! A file consists of lines `__rec=node,id=…,attr=…,data=…,parent=…`,
//! `__rec=ctx,ref=…,attr=…,data=…` and `__rec=globals,…`. A node is a value of an attribute. An
//! attribute is a node, too: with `attr=8`, below its properties (`attr=10`) and its type (nodes 0
//! to 7, and 11).

use std::borrow::Cow;
use std::io::{self, BufRead};

use rustc_hash::FxHashMap;

use crate::table::{AttributeId, Form, NodeId, Shown, Table};
use crate::value::Kind;

/// Number of predefined node ids.
pub(crate) const BUILT_IN: u64 = 12;
/// The node of the attribute that holds the names of attributes.
pub(crate) const NAME: u64 = 8;
/// The node of the attribute that holds the properties of attributes.
pub(crate) const PROPERTIES: u64 = 10;
/// Property: stored as values in records instead of nodes.
pub(crate) const AS_VALUE: u64 = 1;
/// Property: not shown unless named.
pub(crate) const HIDDEN: u64 = 128;
/// Property: part of the path.
pub(crate) const NESTED: u64 = 256;
/// Property: applies to all records.
const GLOBAL: u64 = 512;

/// The longest line; longer ones are rejected.
const LONGEST: usize = 1 << 24;
/// The largest file to read, in bytes; its table takes a few times as much memory.
pub const FILE_LIMIT: u64 = 16 << 30;

/// The most properties above an attribute, including its type; Caliper writes up to ten.
const PROPERTIES_MAX: usize = 64;
/// The most values that apply to all records.
const GLOBALS_MAX: usize = 4096;

/// The most paths, nodes and cells of a file: a start for small files, and more per byte. Records
/// refer to paths and columns that were described once, so a short file can describe a huge table.
struct Budget {
    /// Index in [`Reader::spent`].
    index: usize,
    start: u64,
    per_byte: u64,
    what: &'static str,
}

/// Nodes of the paths of all records: 67 million, or 1600 nodes for a record of 25 bytes.
const FRAMES: Budget =
    Budget { index: 0, start: 1 << 26, per_byte: 64, what: "too long paths in all" };
/// Nodes that are copied below others, because a record refers to several: a record of 25 bytes can
/// have 100.
const COPIES: Budget =
    Budget { index: 1, start: 1 << 20, per_byte: 4, what: "too many combined paths" };
/// Values and gaps of all columns: 4 million, or 400 attributes that most records of 25 bytes lack.
const CELLS: Budget = Budget { index: 2, start: 1 << 22, per_byte: 16, what: MANY_ATTRIBUTES };
const MANY_ATTRIBUTES: &str = "too many attributes for this many records";

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// An I/O error.
    Io(io::Error),
    /// An invalid line: its number from 1, and the expected contents.
    Line(u64, &'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => write!(f, "cannot read it: {error}"),
            Error::Line(line, what) => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Adds the records of a file to a table.
///
/// Errors: the file cannot be read, or a line is not valid in a `.cali` file. Earlier records are
/// in the table.
pub fn read(mut file: impl BufRead, table: &mut Table) -> Result<(), Error> {
    let (nodes, attributes) = (FxHashMap::default(), FxHashMap::default());
    let mut reader = Reader { table, nodes, attributes, bytes: 0, spent: [0; 3] };
    let (mut line, mut length) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let mut limited = io::Read::take(&mut file, LONGEST as u64);
        if limited.read_until(b'\n', &mut line).map_err(Error::Io)? == 0 {
            break;
        }
        if line.len() >= LONGEST {
            return Err(Error::Line(number, "line too long for a .cali file"));
        }
        length += line.len() as u64;
        if length > FILE_LIMIT {
            return Err(Error::Line(number, "beyond the limit of 16 GiB"));
        }
        reader.bytes = length;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if !text.is_empty() {
            reader.record(text).map_err(|what| Error::Line(number, what))?;
        }
    }
    Ok(())
}

/// A node of the file.
struct FileNode {
    attribute: u64,
    data: String,
    parent: Option<u64>,
    /// Number of nodes from the root to this one.
    depth: u64,
    /// Its nodes in the table, once it was used: in the path, and in the other hierarchies.
    place: Option<(NodeId, NodeId)>,
}

/// An attribute of the file.
#[derive(Clone, Copy)]
struct Known {
    id: AttributeId,
    kind: Kind,
    form: Form,
    global: bool,
}

struct Reader<'a> {
    table: &'a mut Table,
    nodes: FxHashMap<u64, FileNode>,
    attributes: FxHashMap<u64, Known>,
    /// Number of bytes read.
    bytes: u64,
    /// What was spent of each budget: [`FRAMES`], [`COPIES`], [`CELLS`].
    spent: [u64; 3],
}

type Done<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn record(&mut self, line: &str) -> Done<()> {
        let line = Line::of(line);
        match line.kind.map(unescaped).as_deref() {
            Some("node") => self.node(&line),
            Some(kind @ ("ctx" | "globals")) => {
                if words(line.attributes).count() != words(line.data).count() {
                    return Err("expected as many values as attributes in a record");
                }
                match kind {
                    "ctx" => self.snapshot(&line),
                    _ => self.globals(&line),
                }
            }
            _ => Err("expected a record of a .cali file, `__rec=node,…`, `ctx` or `globals`"),
        }
    }

    fn node(&mut self, line: &Line) -> Done<()> {
        let first = |field| words(field).next();
        let (Some(id), Some(attribute)) = (first(line.id), first(line.attributes)) else {
            return Err("expected an id and an attribute in a node");
        };
        let (id, attribute) = (number(id)?, number(attribute)?);
        let parent = first(line.parent).map(number).transpose()?;
        if id < BUILT_IN || self.nodes.contains_key(&id) {
            return Ok(());
        }
        if parent.is_some_and(|parent| parent >= BUILT_IN && !self.nodes.contains_key(&parent)) {
            return Err("expected the parent of a node before the node");
        }
        let data = first(line.data).map(|data| unescaped(data).into_owned()).unwrap_or_default();
        let above = parent.and_then(|parent| self.nodes.get(&parent));
        let depth = 1 + above.map_or(0, |above| above.depth);
        self.nodes.insert(id, FileNode { attribute, data, parent, depth, place: None });
        Ok(())
    }

    /// Adds to what was spent of a budget.
    ///
    /// Errors: it is exceeded.
    fn spend(&mut self, budget: &Budget, amount: u64) -> Done<()> {
        let spent = &mut self.spent[budget.index];
        *spent = spent.saturating_add(amount);
        let most = budget.start + budget.per_byte * self.bytes;
        if *spent <= most { Ok(()) } else { Err(budget.what) }
    }

    /// Returns the attribute of a node of the file.
    fn attribute(&mut self, id: u64) -> Done<Known> {
        if let Some(&known) = self.attributes.get(&id) {
            return Ok(known);
        }
        let node = self.nodes.get(&id).filter(|node| node.attribute == NAME);
        let Some(node) = node else {
            return Err("undefined attribute");
        };
        let (mut properties, mut kind) = (0, Kind::Text);
        let [mut alias, mut unit] = [None, None];
        if node.depth > PROPERTIES_MAX as u64 {
            return Err("too many properties of an attribute");
        }
        let mut above = node.parent;
        while let Some(id) = above {
            let Some(node) = self.nodes.get(&id) else {
                kind = built_in(id);
                break;
            };
            let name = self.nodes.get(&node.attribute).map_or("", |of| &of.data);
            match (node.attribute, name) {
                (PROPERTIES, _) => properties = node.data.parse().unwrap_or(0),
                (_, "attribute.alias") => alias = Some(node.data.as_str().into()),
                (_, "attribute.unit") => unit = Some(node.data.as_str().into()),
                _ => {}
            }
            above = node.parent;
        }
        let is = |property| properties & property != 0;
        let form = match (is(AS_VALUE), is(NESTED)) {
            (true, _) => Form::Value,
            (_, true) => Form::Nested,
            _ => Form::Hierarchy,
        };
        let table_id = self.table.attribute(&node.data, kind, form);
        let of = self.table.of_mut(table_id);
        of.shown = if is(HIDDEN) { Shown::IfNamed } else { of.shown };
        (of.alias, of.unit) = (of.alias.take().or(alias), of.unit.take().or(unit));
        let (kind, form) = (of.kind, of.form);
        let known = Known { id: table_id, kind, form, global: is(GLOBAL) };
        self.attributes.insert(id, known);
        Ok(known)
    }

    /// Returns the nodes in the table for a node with its parents.
    fn place(&mut self, id: u64) -> Done<(NodeId, NodeId)> {
        let mut open = Vec::new();
        let mut at = Some(id).filter(|id| *id >= BUILT_IN);
        let mut place = (NodeId(0), NodeId(0));
        while let Some(id) = at {
            let node = self.nodes.get(&id).ok_or("undefined node in a record")?;
            if let Some(known) = node.place {
                place = known;
                break;
            }
            open.push(id);
            at = node.parent.filter(|id| *id >= BUILT_IN);
        }
        for id in open.into_iter().rev() {
            place = self.below(place, id)?;
            self.nodes.get_mut(&id).into_iter().for_each(|node| node.place = Some(place));
        }
        Ok(place)
    }

    /// Returns the nodes in the table for a node below other nodes.
    fn below(&mut self, (path, other): (NodeId, NodeId), id: u64) -> Done<(NodeId, NodeId)> {
        let Some((attribute, data)) = self.nodes.get(&id).map(|n| (n.attribute, n.data.clone()))
        else {
            return Ok((path, other));
        };
        if attribute < BUILT_IN {
            return Ok((path, other));
        }
        let known = self.attribute(attribute)?;
        let value = self.table.strings.parse(&data, known.kind);
        Ok(match (value, known.form) {
            _ if known.global => (path, other),
            (None, _) => (path, other),
            (Some(value), Form::Nested) => (self.table.node(path, known.id, value), other),
            (Some(value), _) => (path, self.table.node(other, known.id, value)),
        })
    }

    fn snapshot(&mut self, line: &Line) -> Done<()> {
        let mut place = (NodeId(0), NodeId(0));
        for (index, id) in words(line.refs).enumerate() {
            let id = number(id)?;
            self.spend(&FRAMES, self.depth(id))?;
            place = match index {
                0 => self.place(id)?,
                _ => self.appended(place, id)?,
            };
        }
        let row = self.table.add_row();
        (self.table.paths[row], self.table.others[row]) = place;
        for (attribute, text) in words(line.attributes).zip(words(line.data)) {
            let known = self.attribute(number(attribute)?)?;
            if let Some(value) = self.table.strings.parse(&unescaped(text), known.kind) {
                let gap = (row + 1).saturating_sub(self.table.of(known.id).column.bits().len());
                self.spend(&CELLS, gap as u64)?;
                self.table.of_mut(known.id).column.set(row, value);
            }
        }
        Ok(())
    }

    /// Returns the nodes in the table for a node of a record that already has others.
    fn appended(&mut self, (path, other): (NodeId, NodeId), id: u64) -> Done<(NodeId, NodeId)> {
        let next = self.place(id)?;
        if path != NodeId(0) || other != NodeId(0) {
            self.spend(&COPIES, self.depth(id))?;
        }
        Ok((self.joined(path, next.0), self.joined(other, next.1)))
    }

    /// Returns the number of nodes from the root to a node.
    fn depth(&self, id: u64) -> u64 {
        self.nodes.get(&id).map_or(0, |node| node.depth)
    }

    fn joined(&mut self, first: NodeId, second: NodeId) -> NodeId {
        if first == NodeId(0) || second == NodeId(0) {
            return NodeId(first.0.max(second.0));
        }
        let mut nodes: Vec<_> = self.table.chain(second).copied().collect();
        nodes.reverse();
        let below = |at, node: crate::table::Node| self.table.node(at, node.attribute, node.value);
        nodes.into_iter().fold(first, below)
    }

    fn globals(&mut self, line: &Line) -> Done<()> {
        for id in words(line.refs) {
            let mut found: Vec<(String, String)> = Vec::new();
            let mut at = Some(number(id)?);
            self.spend(&COPIES, at.map_or(0, |id| self.depth(id)))?;
            while let Some(node) = at.and_then(|id| self.nodes.get(&id)) {
                if let Some(of) = self.nodes.get(&node.attribute) {
                    found.push((of.data.clone(), node.data.clone()));
                }
                at = node.parent;
            }
            found.into_iter().rev().try_for_each(|(name, value)| self.global(name, value))?;
        }
        for (id, value) in words(line.attributes).zip(words(line.data)) {
            let name = self.nodes.get(&number(id)?).map(|node| node.data.clone());
            if let Some(name) = name {
                self.global(name, unescaped(value).into_owned())?;
            }
        }
        Ok(())
    }

    fn global(&mut self, name: String, value: String) -> Done<()> {
        let globals = &mut self.table.globals;
        if globals.iter().any(|known| known.0 == name) {
            return Ok(());
        }
        if globals.len() >= GLOBALS_MAX {
            return Err("too many values that apply to all records");
        }
        globals.push((name, value));
        Ok(())
    }
}

/// Returns the type of a predefined node.
fn built_in(id: u64) -> Kind {
    match id {
        1 => Kind::Int,
        2 => Kind::Uint,
        4 => Kind::Address,
        5 => Kind::Double,
        6 => Kind::Bool,
        _ => Kind::Text,
    }
}

fn number(text: &str) -> Done<u64> {
    text.parse().map_err(|_| "expected the number of a node")
}

/// Iterates over the fields of a line, `name=value=value,name=…`: `\` escapes the next character,
/// and `\n` is a newline.
#[derive(Default)]
struct Line<'a> {
    kind: Option<&'a str>,
    id: Option<&'a str>,
    parent: Option<&'a str>,
    refs: Option<&'a str>,
    attributes: Option<&'a str>,
    data: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(text: &'a str) -> Line<'a> {
        let mut line = Line::default();
        for field in split(text, b',') {
            let Some((name, values)) = field.split_once('=') else {
                continue;
            };
            let place = match name {
                "__rec" => &mut line.kind,
                "id" => &mut line.id,
                "parent" => &mut line.parent,
                "ref" => &mut line.refs,
                "attr" => &mut line.attributes,
                "data" => &mut line.data,
                _ => continue,
            };
            *place = place.or(Some(values));
        }
        line
    }
}

/// Returns the values of a field.
fn words(field: Option<&str>) -> impl Iterator<Item = &str> {
    field.into_iter().flat_map(|values| split(values, b'='))
}

/// Splits a text at separators that are not escaped by `\`.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut escaped = false;
        let end = text.bytes().position(|byte| {
            let found = byte == separator && !escaped;
            escaped = byte == b'\\' && !escaped;
            found
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

fn unescaped(word: &str) -> Cow<'_, str> {
    if !word.contains('\\') {
        return Cow::Borrowed(word);
    }
    let mut plain = String::with_capacity(word.len());
    let mut characters = word.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => plain.extend(characters.next().map(|c| if c == 'n' { '\n' } else { c })),
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
__rec=node,id=12,attr=10,data=268,parent=3
__rec=node,id=13,attr=8,data=function,parent=12
__rec=node,id=14,attr=13,data=main
__rec=node,id=15,attr=13,data=a\\,b\\=\\\\\\n,parent=14
__rec=node,id=16,attr=10,data=1,parent=1
__rec=node,id=17,attr=8,data=x,parent=16
__rec=node,id=18,attr=10,data=524,parent=3
__rec=node,id=19,attr=8,data=host,parent=18
__rec=node,id=20,attr=19,data=here
__rec=ctx,ref=15,attr=17,data=-4
__rec=ctx,ref=14=20,attr=17,data=9
__rec=globals,ref=20
";

    #[test]
    fn records_paths_and_globals() {
        let mut table = Table::default();
        read(FILE.as_bytes(), &mut table).expect("a file");
        let text = |row, name| table.text(row, table.named(name).expect(name));
        assert_eq!(text(0, "function").as_deref(), Some("main/a,b=\\\n"));
        assert_eq!((text(0, "x").as_deref(), text(1, "x").as_deref()), (Some("-4"), Some("9")));
        assert_eq!(text(1, "function").as_deref(), Some("main"));
        assert_eq!(table.globals, [("host".to_owned(), "here".to_owned())]);
        // A second file has its own ids.
        read(FILE.as_bytes(), &mut table).expect("a file");
        assert_eq!((table.rows(), table.paths[0]), (4, table.paths[2]));
    }

    #[test]
    fn errors_have_a_line_number() {
        let error = |text: &str| {
            let whole = format!("{FILE}{text}");
            read(whole.as_bytes(), &mut Table::default()).expect_err(text).to_string()
        };
        assert!(error("HEAPTIDE").starts_with("line 13: expected a record of a .cali file"));
        assert_eq!(
            error("__rec=ctx,attr=17"),
            "line 13: expected as many values as attributes in a record"
        );
        assert!(error("__rec=ctx,ref=99").contains("undefined node in a record"));
        assert!(error("__rec=ctx,attr=99,data=1").contains("undefined attribute"));
        assert!(error("__rec=node,id=x,attr=8").contains("number of a node"));
        assert!(error("__rec=node,id=30,attr=8,parent=31").contains("parent of a node before"));
    }

    /// Returns the error of a file with a chain of functions, nodes 100, 101, …, and more lines.
    fn after_a_path(functions: u64, more: impl Iterator<Item = String>) -> String {
        let node = |id| format!("__rec=node,id={id},attr=13,data=f,parent={}\n", id - 1);
        let path = "__rec=node,id=100,attr=13,data=f\n".to_owned();
        let path = path + &(101..100 + functions).map(node).collect::<String>();
        let whole = format!("{FILE}{path}{}", more.collect::<String>());
        match read(whole.as_bytes(), &mut Table::default()) {
            Ok(()) => "read".to_owned(),
            Err(error) => error.to_string().split_once(": ").expect("a line").1.to_owned(),
        }
    }

    #[test]
    fn short_files_describe_no_huge_tables() {
        // 3000 records below a path of 3000 functions: 9 million copies.
        let joined = |functions| {
            let record = move |n| {
                let last = 99 + functions;
                format!("__rec=node,id={n},attr=13,data=g{n}\n__rec=ctx,ref={n}={last}\n")
            };
            after_a_path(functions, (10_000..13_000).map(record))
        };
        assert_eq!((&*joined(100), &*joined(3000)), ("read", "too many combined paths"));
        let repeated = |functions| {
            let record = format!("__rec=ctx,ref={}\n", 99 + functions);
            after_a_path(functions, std::iter::repeat_n(record, 20_000))
        };
        assert_eq!((&*repeated(1000), &*repeated(9000)), ("read", "too long paths in all"));
        let wide = |attributes| {
            let rows = std::iter::repeat_n("__rec=ctx,attr=17,data=1\n".to_owned(), 20_000);
            let attribute = |n| {
                format!("__rec=node,id={n},attr=8,data=a{n},parent=16\n__rec=ctx,attr={n},data=1\n")
            };
            after_a_path(1, rows.chain((10_000..10_000 + attributes).map(attribute)))
        };
        assert_eq!((&*wide(500), &*wide(3000)), ("read", MANY_ATTRIBUTES));
    }

    #[test]
    fn attributes_and_globals_are_bounded() {
        let property = |n| format!("__rec=node,id={n},attr=10,data=1,parent={}\n", n - 1);
        let properties = |count| {
            let first = "__rec=node,id=10000,attr=10,data=1,parent=1\n".to_owned();
            let above = 9999 + count;
            let last = format!(
                "__rec=node,id=9999,attr=8,data=y,parent={above}\n__rec=ctx,attr=9999,data=1\n"
            );
            let between = (10_001..10_000 + count).map(property);
            after_a_path(1, std::iter::once(first).chain(between).chain([last]))
        };
        let many = "too many properties of an attribute";
        assert_eq!((&*properties(60), &*properties(64)), ("read", many));
        let globals = |count| {
            let global =
                |n| format!("__rec=node,id={n},attr=8,data=g{n}\n__rec=globals,attr={n},data=1\n");
            after_a_path(1, (10_000..10_000 + count).map(global))
        };
        let many = "too many values that apply to all records";
        assert_eq!((&*globals(4000), &*globals(4100)), ("read", many));
    }

    #[test]
    fn it_does_not_panic_on_any_bytes() {
        let mut state = 1u64;
        for _ in 0..3000 {
            let mut bytes = FILE.as_bytes().to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = b"0123456789=,\\\n_refctx\xff"[(state >> 20) as usize % 21];
            }
            let _ = read(&bytes[..], &mut Table::default());
        }
    }
}
