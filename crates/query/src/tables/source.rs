//! A table of recordings: its columns, and the functions that fill its records.

use std::fmt;

use heaptide_analysis::model::{Measure, Measures, Process, Recording, ScopeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::info::Info;
use crate::query::{Aggregation, Format, Layout, Query};
use crate::services::Services;
use crate::stream::{Notes, Stream};
use crate::table::{AttributeId, Column, Form, Shown, Table};
use crate::value::{Bits, Kind};

/// A table of recordings.
#[derive(Debug)]
pub struct Source {
    /// Its name in FROM.
    pub name: &'static str,
    /// A description of its records.
    pub says: &'static str,
    pub(super) columns: fn() -> Vec<Info>,
    pub(super) records: Records,
}

/// The source of records.
#[derive(Debug)]
pub(super) enum Records {
    /// The tables of a process.
    Tables(fn(&mut Filler, &Process)),
    /// Its trace.
    Trace(for<'a> fn(Filler, Vec<&'a Process>) -> Result<Stream<'a>, Error>),
}

impl Source {
    /// Returns its columns, starting with those that identify the process.
    pub fn columns(&self) -> Vec<Info> {
        let mut all = vec![
            Info::uint("process", "", "process id"),
            Info::uint("image", "", "number of the program in the process, 0 before any exec"),
            Info::text("program", "path of the program"),
            Info::text("host", "host name"),
            Info::uint("rank", "", "rank in a parallel job"),
            Info::uint("run", "", "number of the source recording, if merged"),
        ];
        all.extend((self.columns)());
        all
    }

    /// Returns whether its records are results of searches for what keeps blocks.
    pub fn is_of_searches(&self) -> bool {
        matches!(self.name, "retained" | "keepers")
    }

    /// Returns whether a column of this name is empty without a trace.
    pub fn needs_trace(&self, name: &str) -> bool {
        let is_it = |info: &Info| info.name == name;
        HIGHEST.contains(&name) && self.columns().iter().any(is_it)
    }

    /// Describes its columns for people: names, type, unit, description.
    ///
    /// ```
    /// use heaptide_query::tables::Source;
    /// let page = Source::named("lanes").unwrap().described();
    /// let row = page.lines().find(|line| line.contains("lane, thread")).unwrap();
    /// assert!(row.ends_with("name of the threads"), "{page}");
    /// ```
    pub fn described(&self) -> String {
        let mut page = format!("{}: {}\n\n", self.name, self.says);
        let columns = self.columns();
        let width = columns.iter().map(|info| info.names(", ").len()).max().unwrap_or(0);
        for info in columns {
            let (names, kind) = (info.names(", "), info.type_name());
            page.push_str(&format!("  {names:width$} {kind:8} {:6} {}\n", info.unit, info.says));
        }
        page
    }

    /// Like `described`, as a table in Markdown.
    pub fn markdown(&self) -> String {
        let mut page = "| Column | Type | Unit | What it is |\n|---|---|---|---|\n".to_owned();
        for info in self.columns() {
            let (names, kind) = (info.names("`, `"), info.type_name());
            page.push_str(&format!("| `{names}` | {kind} | {} | {} |\n", info.unit, info.says));
        }
        page
    }

    /// Returns the table without records, whose first attributes are its columns; and the
    /// attributes of these scopes, each passed with a value, by the program's names.
    pub fn bare<'a>(
        &self,
        scopes: impl Iterator<Item = (&'a str, &'a str)>,
        wanted: &Wanted,
    ) -> (Table, FxHashMap<String, AttributeId>) {
        let mut table = Table::default();
        let infos = self.columns();
        for info in &infos {
            let id = table.attribute(info.name, info.kind, info.form);
            let of = table.of_mut(id);
            (of.shown, of.quantity) = (info.shown, info.quantity());
        }
        let scopes = scope_attributes(&mut table, scopes);
        // If there is a scope attribute with that name, the name refers to it.
        let labelled = table.named(LABELLED).filter(|_| wanted.is_labelled);
        labelled.into_iter().for_each(|id| table.also_called(id, ACTIVE));
        if let Some(id) = labelled.or_else(|| table.named(LABELLED).and(table.named(LIVE))) {
            table.also_called(id, HIGH);
        }
        for info in &infos {
            let id = table.named(info.name);
            id.zip(info.also).into_iter().for_each(|(id, also)| table.also_called(id, also));
        }
        (table, scopes)
    }

    /// Streams the records of all processes of recordings. Only the wanted columns are filled.
    ///
    /// Errors: the data was not recorded, or cannot be read.
    pub fn stream<'a>(
        &self,
        recordings: &'a [Recording],
        wanted: &Wanted,
    ) -> Result<Stream<'a>, Error> {
        match &self.records {
            Records::Tables(fill) => Ok(self.filled_by(*fill, recordings, wanted)),
            Records::Trace(stream) => {
                let filler = self.filler(recordings, wanted);
                let processes = recordings.iter().flat_map(|recording| &recording.processes);
                stream(filler, processes.collect())
            }
        }
    }

    /// Like `stream`, if the records do not refer to the recordings while they are read; otherwise
    /// `None`.
    pub fn filled<'a>(&self, recordings: &[Recording], wanted: &Wanted) -> Option<Stream<'a>> {
        match &self.records {
            Records::Tables(fill) => Some(self.filled_by(*fill, recordings, wanted)),
            Records::Trace(_) => None,
        }
    }

    fn filled_by<'a>(
        &self,
        fill: fn(&mut Filler, &Process),
        recordings: &[Recording],
        wanted: &Wanted,
    ) -> Stream<'a> {
        let mut filler = self.filler(recordings, wanted);
        for process in recordings.iter().flat_map(|recording| &recording.processes) {
            filler.process = Origin::of(&mut filler.table, process);
            fill(&mut filler, process);
        }
        Stream::of(filler.table).with_notes(filler.notes)
    }

    fn filler(&self, recordings: &[Recording], wanted: &Wanted) -> Filler {
        let mut filler = Filler::of(self, recordings, wanted);
        let path = |recording: &Recording| recording.path.display().to_string();
        let command =
            |recording: &Recording| Some(recording.processes.first()?.identity.command.join(" "));
        filler.table.globals = vec![
            ("recording".to_owned(), joined(recordings.iter().map(path))),
            ("command".to_owned(), joined(recordings.iter().filter_map(command))),
        ];
        filler
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

/// Why a table has no records.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// It needs a trace, but there is none.
    NoTrace,
    /// A recording cannot be read.
    Unreadable(heaptide_analysis::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoTrace => f.write_str(
                "recorded without a trace, which the tables events and lifetimes require; \
                 record one with `heaptide run --mode trace`",
            ),
            Error::Unreadable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// Live bytes of the process, or of labelled memory if a query selects only that, as Caliper
/// reports them for annotated allocations.
const ACTIVE: &str = "mem.active";
/// The same value, under the name for its maximum in a region.
const HIGH: &str = "alloc.region.highwatermark";
/// The names of both columns.
const LIVE: &str = "live_bytes";
const LABELLED: &str = "labelled_bytes";
/// The columns that need a trace.
pub(super) const HIGHEST: [&str; 2] = ["max_live_bytes", "max_live_requested_bytes"];

/// The columns that a query needs.
pub struct Wanted {
    /// `None` for all.
    names: Option<FxHashSet<String>>,
    /// Whether only labelled memory is selected.
    is_labelled: bool,
    /// The services of the table `caliper`.
    services: Services,
}

impl Wanted {
    /// Returns the columns of a query and of its format.
    pub fn of(query: &Query, format: &Format) -> Wanted {
        let services = query.services.unwrap_or_default();
        let Some(words) = query.names().filter(|_| format.layout != Layout::Format) else {
            return Wanted { names: None, is_labelled: query.is_labelled(), services };
        };
        let mut names: FxHashSet<String> = words.iter().map(|word| word.text.clone()).collect();
        let counts = |operator| matches!(operator, Aggregation::Count | Aggregation::ScaleCount);
        if query.aggregations.iter().any(|call| counts(call.operator)) {
            names.insert("count".to_owned());
        }
        if let Some(path) = format.arguments.get("path-attributes") {
            names.extend(path.split(',').map(|name| name.trim().to_owned()));
        }
        if names.contains(HIGH) {
            names.insert(ACTIVE.to_owned());
        }
        let is_labelled = query.is_labelled();
        if is_labelled && names.contains(ACTIVE) {
            names.insert(LABELLED.to_owned());
        }
        Wanted { names: Some(names), is_labelled, services }
    }

    /// Returns the columns with these names.
    pub fn of_names(names: impl IntoIterator<Item = String>) -> Wanted {
        let (names, services) = (Some(names.into_iter().collect()), Services::default());
        Wanted { names, is_labelled: false, services }
    }

    /// Returns all columns.
    pub fn all() -> Wanted {
        Wanted { names: None, is_labelled: false, services: Services::default() }
    }

    /// Returns whether it contains a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// The process of the records.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin {
    pub(super) values: [Option<Bits>; 6],
}

impl Origin {
    pub(super) fn of(table: &mut Table, process: &Process) -> Origin {
        let one = process.identity.images == 1;
        let host =
            (!process.identity.host.is_empty()).then(|| table.strings.bits(&process.identity.host));
        let rank = process.identity.rank.map(|rank| Bits(rank.number.into()));
        let run = process.identity.run.as_ref().map(|run| Bits(run.number.into()));
        let program = Some(table.strings.bits(&process.identity.program));
        let pid = one.then(|| Bits(process.identity.pid.into()));
        let image = one.then(|| Bits(process.identity.image.into()));
        Origin { values: [pid, image, program, host, rank, run] }
    }

    /// Fills the columns of the process in all rows of a table.
    pub(super) fn fill(&self, ids: [Option<AttributeId>; 6], table: &mut Table, rows: usize) {
        for (id, value) in ids.into_iter().zip(self.values) {
            if let (Some(id), Some(value)) = (id, value) {
                table.of_mut(id).column = Column::full(vec![value.0; rows]);
            }
        }
    }
}

/// By scope, the columns of its begin and end, with their value.
pub(super) type Changes = Vec<Option<([AttributeId; 2], Bits)>>;

/// Which end of a scope a record is of.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Begin(ScopeId),
    End(ScopeId),
}

/// Sets the columns of begins and ends of scopes. `change` returns which of them a record is.
pub(super) fn set_changes<R>(
    table: &mut Table,
    columns: &[[AttributeId; 2]],
    (changes, rows): (&Changes, &[R]),
    change: impl Fn(&R) -> Option<Change>,
) {
    let changed = |row: &R| {
        let (end, scope) = match change(row)? {
            Change::Begin(scope) => (0, scope),
            Change::End(scope) => (1, scope),
        };
        let (ids, value) = (*changes.get(scope.0 as usize)?)?;
        Some((ids[end], value))
    };
    for &id in columns.iter().flatten() {
        let of_column = |row: &R| changed(row).filter(|&(of, _)| of == id).map(|(_, value)| value);
        table.of_mut(id).column = Column::of(rows.iter().map(of_column));
    }
}

/// A table under construction.
pub(super) struct Filler {
    pub(super) table: Table,
    /// Columns by name; unneeded ones are omitted.
    pub(super) columns: FxHashMap<&'static str, AttributeId>,
    pub(super) origin: [Option<AttributeId>; 6],
    pub(super) process: Origin,
    /// The scope attributes in the table; those of iterations only if needed.
    pub(super) scopes: FxHashMap<String, AttributeId>,
    /// By scope attribute, the columns of its begins and ends, if one is needed.
    pub(super) changes: FxHashMap<String, [AttributeId; 2]>,
    /// Notes from reading traces.
    pub(super) notes: Notes,
    /// The services of the table `caliper`.
    pub(super) services: Services,
    /// Whether all columns are needed because none is named.
    pub(super) is_of_all: bool,
}

impl Filler {
    pub(super) fn of(source: &Source, recordings: &[Recording], wanted: &Wanted) -> Filler {
        let processes = recordings.iter().flat_map(|recording| &recording.processes);
        let all = processes.flat_map(|process| process.tables.scopes.iter().skip(1));
        let (mut table, mut scopes) =
            source.bare(all.map(|of| (&*of.attribute, &*of.value)), wanted);
        let changes = match source.records {
            Records::Trace(_) => changes(&mut table, &scopes, wanted),
            Records::Tables(_) => FxHashMap::default(),
        };
        scopes.retain(|_, id| {
            let of = table.of(*id);
            of.form == Form::Nested || wanted.has(&of.name)
        });
        let mut columns = FxHashMap::default();
        let mut origin = [None; 6];
        for (place, info) in source.columns().iter().enumerate() {
            if wanted.has(info.name) || info.also.is_some_and(|also| wanted.has(also)) {
                let id = AttributeId(place as u32);
                columns.insert(info.name, id);
                origin.iter_mut().skip(place).take(1).for_each(|of| *of = Some(id));
            }
        }
        let (process, notes) = (Origin::default(), Notes::default());
        let (services, is_of_all) = (wanted.services, wanted.names.is_none());
        Filler { table, columns, origin, process, scopes, changes, notes, services, is_of_all }
    }

    /// Adds a record of the current process.
    pub(super) fn row(&mut self) -> usize {
        let row = self.table.add_row();
        for (id, value) in self.origin.into_iter().zip(self.process.values) {
            self.set(id, row, value);
        }
        row
    }

    pub(super) fn set(&mut self, id: Option<AttributeId>, row: usize, value: Option<Bits>) {
        if let (Some(id), Some(value)) = (id, value) {
            self.table.of_mut(id).column.set(row, value);
        }
    }

    /// Returns the column with a name, if it is needed.
    pub(super) fn column(&self, name: &str) -> Option<AttributeId> {
        self.columns.get(name).copied()
    }

    pub(super) fn uint(&mut self, name: &str, row: usize, value: impl Into<u64>) {
        self.set(self.column(name), row, Some(Bits(value.into())));
    }

    pub(super) fn int(&mut self, name: &str, row: usize, value: i64) {
        self.set(self.column(name), row, Some(Bits::int(value)));
    }

    pub(super) fn text(&mut self, name: &str, row: usize, value: &str) {
        if let Some(id) = self.column(name) {
            let bits = self.table.strings.bits(value);
            self.set(Some(id), row, Some(bits));
        }
    }

    pub(super) fn measures(&mut self, row: usize, measures: &Measures) {
        for measure in Measure::of_parts() {
            self.uint(measure.name(), row, measure.of(measures));
        }
    }
}

/// Returns the columns of the begins and ends of scopes, with Caliper's names: `event.begin#phase`.
fn changes(
    table: &mut Table,
    scopes: &FxHashMap<String, AttributeId>,
    wanted: &Wanted,
) -> FxHashMap<String, [AttributeId; 2]> {
    let mut names: Vec<_> = scopes.iter().collect();
    names.sort();
    let mut changes = FxHashMap::default();
    for (name, &scope) in names {
        let both = ["begin", "end"].map(|change| format!("event.{change}#{name}"));
        if !both.iter().any(|column| wanted.has(column)) {
            continue;
        }
        let kind = table.of(scope).kind;
        let ids = both.map(|column| {
            let id = table.attribute(&column, kind, Form::Value);
            table.of_mut(id).shown = Shown::IfNamed;
            id
        });
        changes.insert(name.clone(), ids);
    }
    changes
}

/// Returns the attributes of all scopes: nested, except the iterations of loops, which are values.
/// If a column has the same name, the attribute is called `scope.NAME`. An attribute is numeric if
/// all its values are numbers.
fn scope_attributes<'a>(
    table: &mut Table,
    scopes: impl Iterator<Item = (&'a str, &'a str)>,
) -> FxHashMap<String, AttributeId> {
    let mut kinds: Vec<(&str, Kind)> = Vec::new();
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    for (attribute, value) in scopes {
        let place = *places.entry(attribute).or_insert_with(|| {
            kinds.push((attribute, Kind::Int));
            kinds.len() - 1
        });
        if value.parse::<i64>().is_err() {
            kinds[place].1 = Kind::Text;
        }
    }
    let mut attributes = FxHashMap::default();
    for (name, kind) in kinds {
        let form = if name.starts_with("iteration#") { Form::Value } else { Form::Nested };
        let id = match table.named(name) {
            Some(_) => table.attribute(&format!("scope.{name}"), kind, form),
            None => table.attribute(name, kind, form),
        };
        attributes.insert(name.to_owned(), id);
    }
    attributes
}
