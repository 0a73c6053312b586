//! `heaptide query`: CalQL over recordings and Caliper's files.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::files::input;
use heaptide_analysis::model::Recording;
use heaptide_analysis::recording::snapshot::Reference;
use heaptide_command::dataset::ReadingOptions;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::Content;
use heaptide_command::selection::{OF_RECORDINGS, SELECTION, Selection, Source};
use heaptide_command::sql::no_dataset;
use heaptide_command::{output, source, target, values};
use heaptide_query::names::Names;
use heaptide_query::query::{EXACT, Format, Layout, Query};
use heaptide_query::stream::Stream;
use heaptide_query::table::Table;
use heaptide_query::tables::{self, Wanted};
use heaptide_query::{QueryError, cali, format, hints, parse, parse_format, run};

use crate::sql;

/// `heaptide query`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct QueryOptions {
    /// Query in CalQL
    #[arg(value_name = "QUERY", required_unless_present_any = ["tables", "describe"])]
    pub query: Option<String>,
    /// Recordings, profiles in them, process ids of running programs, or .cali files (- for
    /// standard input); REC@NAME is a snapshot. All their processes are queried unless --process
    /// selects one [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Query the output of `heaptide export --format parquet` in DIR instead of recordings
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_RECORDINGS)]
    pub dataset: Option<PathBuf>,
    /// Read the dataset on the executors of this scheduler; its path must be the same on all of
    /// them; `heaptide-sql scheduler` and `heaptide-sql executor` start them
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    pub cluster: Option<String>,
    /// How the dataset is read.
    #[command(flatten)]
    pub reading: ReadingOptions,
    /// List the tables
    #[arg(long, conflicts_with = "query")]
    pub tables: bool,
    /// List the columns of this table
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["query", "tables"])]
    pub describe: Option<String>,
    /// Output format, overriding the query: table, tree, json, json-split, csv, expand, cali or
    /// format(TEXT)
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Use another tool's names of columns, in the query and in its result
    #[arg(long, value_name = "TOOL", default_value = "heaptide", hide_default_value = true)]
    #[arg(conflicts_with = "dataset")]
    pub names: NamesOf,
    /// Show numbers in full in tables and trees, not sizes and durations with units
    #[arg(long, conflicts_with = "dataset")]
    pub exact: bool,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Read this snapshot instead of the end of the run; `heaptide info` lists snapshots
    #[arg(long, value_name = "N|NAME", help_heading = SELECTION)]
    pub snapshot: Option<Reference>,
    /// Count from the start of the program, ignoring resets
    #[arg(long, help_heading = SELECTION)]
    pub from_start: bool,
    #[command(flatten)]
    pub selection: Selection,
}

/// The tool whose names `--names` selects.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamesOf {
    /// The names of the tables
    Heaptide,
    /// Attributes of Caliper, from the table `caliper`
    Caliper,
    /// Keys of malloc-tag, from the table `scopes`
    MallocTag,
    /// Columns of MallocProfiler, from the table `stacks`
    Mallocprofiler,
}

impl NamesOf {
    const fn names(self) -> Names {
        match self {
            NamesOf::Heaptide => Names::Own,
            NamesOf::Caliper => Names::Caliper,
            NamesOf::MallocTag => Names::MallocTag,
            NamesOf::Mallocprofiler => Names::MallocProfiler,
        }
    }
}

const EXAMPLE: &str = "\
Example:
  heaptide query 'SELECT function,sum(live_bytes) GROUP BY function FORMAT tree' app.heaptide
  heaptide query 'SELECT mem.alloc,count() GROUP BY mem.alloc WHERE mem.alloc' app.heaptide
  heaptide query 'SELECT path,inclusive_sum(time) GROUP BY path FORMAT tree' profile.cali";

impl QueryOptions {
    /// Returns one source per recording; without any, one for the newest.
    pub fn sources(&self) -> Vec<Source> {
        Source::each(&self.recordings, self.snapshot.clone(), self.from_start)
    }
}

/// The error of a query for events of a snapshot.
const OF_SNAPSHOTS: &str =
    "snapshots contain no events; omit --snapshot to read the events of the whole run";

/// Prints the result, or the tables or columns.
pub fn query(options: &QueryOptions) -> Outcome {
    if options.dataset.is_some() {
        return sql::hand_over("query --dataset");
    }
    if options.cluster.is_some() {
        return Err(no_dataset().into());
    }
    match (&options.query, &options.describe) {
        (Some(query), _) => answer(options, query)?,
        (None, Some(name)) => {
            let page = table(name)?.described();
            output::print_page(|out| out.write_all(page.as_bytes()))?;
        }
        (None, None) => output::print_page(|out| list(out))?,
    }
    Ok(())
}

/// Lists the tables, one per line.
fn list(out: &mut dyn Write) -> io::Result<()> {
    for source in tables::Source::all().iter().chain(tables::Source::of_queries()) {
        writeln!(out, "{:11} {}", source.name, source.says)?;
    }
    Ok(())
}

fn table(name: &str) -> Result<&'static tables::Source, Error> {
    tables::Source::named(name).ok_or_else(|| {
        let all = tables::Source::all().iter().chain(tables::Source::of_queries());
        let all: Vec<&str> = all.map(|source| source.name).collect();
        Error::new(format!("unknown table `{name}`; expected one of {}", all.join(" ")))
    })
}

fn answer(options: &QueryOptions, text: &str) -> Outcome {
    let mut query = parse(text).map_err(|error| in_query("query", &error))?;
    options.names.names().apply(&mut query);
    let format = shown(options, &query)?;
    if let Some(path) = &options.output {
        output::may_write(path, options.force)?;
    }
    let mut recordings = Vec::new();
    let stream = read(options, &query, &format, &mut recordings)?;
    let notes = stream.notes();
    let answer = run(&query, stream);
    report(&notes.all());
    let write = |out: &mut dyn Write| format::write(out, &query, &format, &answer);
    let content = match format.layout {
        Layout::Json | Layout::JsonSplit | Layout::Cali => Content::Data,
        _ => Content::Text,
    };
    output::write_or_print(options.output.as_deref(), options.force, content, write)?;
    Ok(())
}

/// Returns the records of recordings in Caliper's format, with its attributes.
///
/// Errors: a trace cannot be read.
pub fn in_calipers_format(recordings: &[Recording]) -> Result<Answer, tables::Error> {
    let mut query = Query { all: true, ..Query::default() };
    Names::Caliper.apply(&mut query);
    let format = Format { layout: Layout::Cali, arguments: BTreeMap::new() };
    let source = query.from.as_ref().and_then(|from| tables::Source::named(&from.text));
    let source = source.unwrap_or(&tables::Source::all()[0]);
    let stream = source.stream(recordings, &Wanted::of(&query, &format))?;
    let table = run(&query, stream);
    Ok(Answer { query, format, table })
}

/// The result of a query.
pub struct Answer {
    query: Query,
    format: Format,
    table: Table,
}

impl Answer {
    /// Writes it in its format.
    ///
    /// Errors: those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        format::write(out, &self.query, &self.format, &self.table)
    }
}

/// Returns the error of a query or a part of it.
fn in_query(what: &str, error: &QueryError) -> Error {
    Error::Text { what: format!("{what}: {}", error.message), excerpt: error.excerpt() }
}

/// Returns the output format: that of the option, that of the query, or a table.
fn shown(options: &QueryOptions, query: &Query) -> Result<Format, Error> {
    let mut format = match (&options.format, &query.format) {
        (None, Some(format)) => format.clone(),
        (text, _) => parse_format(text.as_deref().unwrap_or("table"))
            .map_err(|error| in_query("--format", &error))?,
    };
    if options.exact {
        format.arguments.insert(EXACT, "true".to_owned());
    }
    Ok(format)
}

/// Reads recordings or files, and returns the records that a query uses.
fn read<'a>(
    options: &QueryOptions,
    query: &Query,
    format: &Format,
    recordings: &'a mut Vec<Recording>,
) -> Result<Stream<'a>, Stop> {
    let files: Vec<&Path> =
        options.recordings.iter().map(|path| path.as_path()).filter(|path| is_cali(path)).collect();
    let from = query.from.as_ref();
    if files.is_empty() {
        let source = match from {
            Some(word) => table(&word.text)?,
            None => &tables::Source::all()[0],
        };
        *recordings = source::open_all(&options.sources(), &options.selection)?;
        report(&hints::missing(query, source, recordings));
        let wanted = Wanted::of(query, format);
        if let Some(stream) = source.filled(recordings, &wanted) {
            recordings.clear(); // can free a gigabyte
            report(&hints::unknown_columns(query, source, &stream));
            return Ok(stream);
        }
        let stream = match source.stream(recordings, &wanted) {
            Ok(stream) => stream,
            Err(error @ tables::Error::NoTrace) => {
                let paths = recordings.iter().map(|one| one.path.display().to_string());
                let paths = paths.collect::<Vec<_>>().join(", ");
                let sources = options.sources().iter().map(target::resolve).collect::<Vec<_>>();
                let is_snapshot = |source: &Source| source.snapshot.is_some();
                let of_snapshots = sources.iter().flatten().any(is_snapshot);
                let why = if of_snapshots { OF_SNAPSHOTS } else { &error.to_string() };
                return Err(Stop::negative(format_args!("{paths}: {why}")));
            }
            Err(error) => return Err(Error::new(error.to_string()).into()),
        };
        report(&hints::unknown_columns(query, source, &stream));
        return Ok(stream);
    }
    if let Some(other) = options.recordings.iter().find(|path| !is_cali(path)) {
        let what = "cannot query recordings and .cali files together";
        return Err(Error::new(format!("{}: {what}", other.display())).into());
    }
    if let Some(word) = from {
        let what = format!("FROM {}: .cali files have no tables; omit FROM", word.text);
        return Err(Error::new(what).into());
    }
    let mut table = Table::default();
    for path in files {
        read_cali(path, &mut table)?;
    }
    report(&hints::unknown(query, &table, "`SELECT * FORMAT expand` shows the columns"));
    Ok(Stream::of(table))
}

/// Prints hints about a query.
fn report(hints: &[String]) {
    hints.iter().for_each(|hint| message(format_args!("query: {hint}")));
}

/// Returns whether a file is one of Caliper's, according to its name or first bytes.
fn is_cali(path: &Path) -> bool {
    if path == Path::new("-") || path.extension().is_some_and(|extension| extension == "cali") {
        return true;
    }
    let mut first = [0; 6];
    let mut read = || input::open(path).and_then(|mut file| file.read_exact(&mut first));
    read().is_ok() && first == *b"__rec="
}

fn read_cali(path: &Path, table: &mut Table) -> Result<(), Error> {
    let failed = |error: cali::Error| Error::new(format!("{}: {error}", path.display()));
    if path == Path::new("-") {
        return cali::read(io::stdin().lock(), table).map_err(failed);
    }
    let file = input::open_up_to(path, cali::FILE_LIMIT);
    let file = file.map_err(|error| Error::file(path, "read it", error))?;
    cali::read(BufReader::with_capacity(1 << 18, file), table).map_err(failed)
}
