//! The tables of recordings: what each has for columns, and how they are filled.

use std::fmt;

use heaptide_analysis::model::{Measure, Measures, Process, Recording};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lexer::Word;
use crate::query::{Aggregation, Format, Layout, Query};
use crate::stream::Stream;
use crate::table::{AttributeId, Form, Shown, Table};
use crate::value::{Bits, Kind};

mod dimensions;
mod moments;
mod sites;
mod traced;

/// A table that recordings have.
#[derive(Debug)]
pub struct Source {
    /// Its name in FROM.
    pub name: &'static str,
    /// What a record of it is.
    pub says: &'static str,
    columns: fn() -> Vec<Info>,
    records: Records,
}

/// Where records come from.
#[derive(Debug)]
enum Records {
    /// The tables of a process.
    Tables(fn(&mut Filler, &Process)),
    /// Its trace.
    Trace(traced::What),
}

/// What is said of a column.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// How they are kept.
    pub form: Form,
    /// Who sees it.
    pub shown: Shown,
    /// Another name for it.
    pub also: Option<&'static str>,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// What it is.
    pub says: &'static str,
}

impl Info {
    const fn new(name: &'static str, kind: Kind, unit: &'static str, says: &'static str) -> Info {
        let (form, shown, also) = (Form::Value, Shown::Always, None);
        Info { name, kind, form, shown, also, unit, says }
    }

    const fn text(name: &'static str, says: &'static str) -> Info {
        Info::new(name, Kind::Text, "", says)
    }

    const fn uint(name: &'static str, unit: &'static str, says: &'static str) -> Info {
        Info::new(name, Kind::Uint, unit, says)
    }

    /// Its names, with this between.
    fn names(&self, between: &str) -> String {
        [Some(self.name), self.also].into_iter().flatten().collect::<Vec<_>>().join(between)
    }

    /// The type of its values for a person.
    fn type_name(&self) -> &'static str {
        match (self.form, self.kind) {
            (Form::Value, Kind::Text) => "text",
            (Form::Value, Kind::Address) => "address",
            (Form::Value, kind) => kind.name(),
            _ => "path",
        }
    }

    const fn also(self, also: &'static str) -> Info {
        Info { also: Some(also), ..self }
    }

    const fn form(self, form: Form) -> Info {
        Info { form, ..self }
    }

    const fn if_named(self) -> Info {
        Info { shown: Shown::IfNamed, ..self }
    }
}

const SOURCES: [Source; 14] = [
    sites::SITES,
    traced::EVENTS,
    traced::LIFETIMES,
    dimensions::STACKS,
    dimensions::FRAMES,
    dimensions::SCOPES,
    dimensions::LABELS,
    dimensions::LANES,
    moments::WINDOWS,
    moments::SNAPSHOTS,
    moments::TIMELINE,
    moments::HISTOGRAM,
    dimensions::PROCESSES,
    dimensions::MODULES,
];

impl Source {
    /// Every table; the first is what FROM need not name.
    pub const fn all() -> &'static [Source] {
        &SOURCES
    }

    /// The table of a name.
    ///
    /// ```
    /// use heaptide_query::tables::Source;
    /// assert!(Source::named("marks").is_some_and(|table| table.name == "snapshots"));
    /// assert!(Source::named("threads").is_some_and(|table| table.name == "lanes"));
    /// ```
    pub fn named(name: &str) -> Option<&'static Source> {
        let name = name.to_ascii_lowercase();
        let name = match &*name {
            "marks" => "snapshots",
            "threads" => "lanes",
            name => name,
        };
        SOURCES.iter().find(|source| source.name == name)
    }

    /// Its columns, those first that say which process a record is of.
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

    /// Its columns for a person: names, type, unit, what they are.
    ///
    /// ```
    /// use heaptide_query::tables::Source;
    /// let page = Source::named("lanes").unwrap().described();
    /// let column = "  lane, thread       text            name of the threads";
    /// assert!(page.contains(column), "{page}");
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

    /// The same as a table in Markdown.
    pub fn markdown(&self) -> String {
        let mut page = "| Column | Type | Unit | What it is |\n|---|---|---|---|\n".to_owned();
        for info in self.columns() {
            let (names, kind) = (info.names("`, `"), info.type_name());
            page.push_str(&format!("| `{names}` | {kind} | {} | {} |\n", info.unit, info.says));
        }
        page
    }

    /// The table without records, whose first attributes are its columns; and, by what the program
    /// calls them, the attributes of these scopes, each given with a value.
    pub fn bare<'a>(
        &self,
        scopes: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> (Table, FxHashMap<String, AttributeId>) {
        let mut table = Table::default();
        let infos = self.columns();
        for info in &infos {
            let id = table.attribute(info.name, info.kind, info.form);
            table.of_mut(id).shown = info.shown;
        }
        let scopes = scope_attributes(&mut table, scopes);
        // A scope of that name is what the name stands for.
        for info in &infos {
            let id = table.named(info.name);
            id.zip(info.also).into_iter().for_each(|(id, also)| table.also_called(id, also));
        }
        (table, scopes)
    }

    /// The records of all processes of recordings. Only columns that are wanted are filled.
    ///
    /// Errors: what the table is made of was not recorded, or cannot be read.
    pub fn stream<'a>(
        &self,
        recordings: &'a [Recording],
        wanted: &Wanted,
    ) -> Result<Stream<'a>, Error> {
        let mut filler = Filler::of(self, recordings, wanted);
        let path = |recording: &Recording| recording.path.display().to_string();
        let command =
            |recording: &Recording| Some(recording.processes.first()?.identity.command.join(" "));
        filler.table.globals = vec![
            ("recording".to_owned(), joined(recordings.iter().map(path))),
            ("command".to_owned(), joined(recordings.iter().filter_map(command))),
        ];
        let processes = recordings.iter().flat_map(|recording| &recording.processes);
        let fill = match &self.records {
            Records::Tables(fill) => fill,
            Records::Trace(what) => return traced::stream(what, filler, processes.collect()),
        };
        for process in processes {
            filler.process = Origin::of(&mut filler.table, process);
            fill(&mut filler, process);
        }
        Ok(Stream::of(filler.table))
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

/// Why a table has no records.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// It is of a trace, and nothing was traced.
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

/// The columns that a query needs.
pub struct Wanted(Option<FxHashSet<String>>);

impl Wanted {
    /// Those of a query and of how it is shown.
    pub fn of(query: &Query, format: &Format) -> Wanted {
        let Some(words) = query.names().filter(|_| format.layout != Layout::Format) else {
            return Wanted(None);
        };
        let mut names: FxHashSet<String> = words.iter().map(|word| word.text.clone()).collect();
        let counts = |operator| matches!(operator, Aggregation::Count | Aggregation::ScaleCount);
        if query.aggregations.iter().any(|call| counts(call.operator)) {
            names.insert("count".to_owned());
        }
        if let Some(path) = format.arguments.get("path-attributes") {
            names.extend(path.split(',').map(|name| name.trim().to_owned()));
        }
        Wanted(Some(names))
    }

    /// Those of these names.
    pub fn of_names(names: impl IntoIterator<Item = String>) -> Wanted {
        Wanted(Some(names.into_iter().collect()))
    }

    /// All there are.
    pub const fn all() -> Wanted {
        Wanted(None)
    }

    /// Whether a column of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// The names in a query that a table knows nothing of.
pub fn unknown<'a>(query: &'a Query, table: &Table) -> Vec<&'a Word> {
    let results: Vec<String> = query.aggregations.iter().map(|call| call.result()).collect();
    let is_part = |name: &str| {
        let end = format!("#{name}");
        table.attributes.iter().any(|attribute| attribute.name.ends_with(&end))
    };
    let mut unknown = query.names().unwrap_or_else(|| query.read_names());
    unknown.retain(|word| {
        let name = &word.text;
        table.named(name).is_none()
            && !matches!(&**name, "path" | "prop:nested" | "none")
            && !results.contains(name)
            && !is_part(name)
            && !query.lets.iter().any(|derived| derived.target.text == *name)
            && !query.aliases.values().any(|alias| alias == name)
    });
    unknown.sort_by(|a, b| a.text.cmp(&b.text));
    unknown.dedup_by(|a, b| a.text == b.text);
    unknown
}

/// Which process records are of.
#[derive(Clone, Copy, Default)]
struct Origin {
    values: [Option<Bits>; 6],
}

impl Origin {
    fn of(table: &mut Table, process: &Process) -> Origin {
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
}

/// A table as it is filled.
struct Filler {
    table: Table,
    /// Columns by name; those that nobody wants are not there.
    columns: FxHashMap<&'static str, AttributeId>,
    origin: [Option<AttributeId>; 6],
    process: Origin,
    /// The attributes of scopes in the table; of iterations, those that are wanted.
    scopes: FxHashMap<String, AttributeId>,
}

impl Filler {
    fn of(source: &Source, recordings: &[Recording], wanted: &Wanted) -> Filler {
        let processes = recordings.iter().flat_map(|recording| &recording.processes);
        let all = processes.flat_map(|process| process.tables.scopes.iter().skip(1));
        let (table, mut scopes) = source.bare(all.map(|of| (&*of.attribute, &*of.value)));
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
        Filler { table, columns, origin, process: Origin::default(), scopes }
    }

    /// A new record of the process at hand.
    fn row(&mut self) -> usize {
        let row = self.table.add_row();
        for (id, value) in self.origin.into_iter().zip(self.process.values) {
            self.set(id, row, value);
        }
        row
    }

    fn set(&mut self, id: Option<AttributeId>, row: usize, value: Option<Bits>) {
        if let (Some(id), Some(value)) = (id, value) {
            self.table.of_mut(id).column.set(row, value);
        }
    }

    /// The column of a name, if it is wanted.
    fn column(&self, name: &str) -> Option<AttributeId> {
        self.columns.get(name).copied()
    }

    fn uint(&mut self, name: &str, row: usize, value: impl Into<u64>) {
        self.set(self.column(name), row, Some(Bits(value.into())));
    }

    fn int(&mut self, name: &str, row: usize, value: i64) {
        self.set(self.column(name), row, Some(Bits::int(value)));
    }

    fn text(&mut self, name: &str, row: usize, value: &str) {
        if let Some(id) = self.column(name) {
            let bits = self.table.strings.bits(value);
            self.set(Some(id), row, Some(bits));
        }
    }

    fn measures(&mut self, row: usize, measures: &Measures) {
        for measure in Measure::of_parts() {
            self.uint(measure.name(), row, measure.of(measures));
        }
    }
}

/// The attributes of all scopes: nested, but for the iterations of loops, which are values. One
/// that is called like a column is `scope.` and its name; numbers are numbers if all its values
/// are.
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

/// A measure as a column.
fn measure(measure: Measure) -> Info {
    Info::uint(measure.name(), measure.unit().name(), measure.description())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_names_of_their_own() {
        for source in Source::all() {
            let mut names = FxHashSet::default();
            for info in source.columns() {
                assert!(names.insert(info.name), "{} {}", source.name, info.name);
                assert!(info.also.is_none_or(|also| names.insert(also)), "{}", info.name);
            }
        }
    }
}
