//! Hints about a query's result: unknown names, and how to record missing data.

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::recording::retained::SEARCHED;

use crate::query::Query;
use crate::stream::Stream;
use crate::table::Table;
use crate::tables;

/// Attributes of single events, which Caliper's users may expect elsewhere.
const OF_EVENTS: [&str; 3] = ["mem.free", "alloc.uid", "alloc.address"];

/// Those of them that scopes have, too.
const OF_SCOPES: [&str; 2] = ["mem.active", "alloc.region.highwatermark"];

/// The names of the column of exact sizes, which only some recordings have in `sites`.
const SIZES: [&str; 2] = ["size", "alloc.total_size"];

/// The column of called functions, which only some recordings have.
const CALL: &str = "call";

/// Returns hints if a query uses sizes, calls or trace columns that no recording has, with the
/// option that records them.
///
/// ```
/// use heaptide_query::{hints, parse, tables::Source};
/// let query = parse("SELECT size").unwrap();
/// let hints = hints::missing(&query, &Source::all()[0], &[]);
/// assert!(hints[0].starts_with("`size`: recorded without exact sizes"), "{hints:?}");
/// ```
pub fn missing(query: &Query, source: &tables::Source, recordings: &[Recording]) -> Vec<String> {
    let of_sites = missing_of_sites(query, source, recordings).into_iter();
    let of_search = missing_search(source, recordings);
    of_sites.chain(missing_trace(query, source, recordings)).chain(of_search).collect()
}

/// Returns a hint for the tables of searches, if no process of the recordings was searched.
fn missing_search(source: &tables::Source, recordings: &[Recording]) -> Option<String> {
    let mut processes = recordings.iter().flat_map(|recording| &recording.processes);
    let is_missing = source.is_of_searches() && processes.all(|process| process.search.is_none());
    is_missing.then(|| {
        format!(
            "no process was searched for what keeps its blocks; {SEARCHED}, and `heaptide ctl REC \
             retain` running ones"
        )
    })
}

/// Hints for columns that sites may lack.
fn missing_of_sites(
    query: &Query,
    source: &tables::Source,
    recordings: &[Recording],
) -> Vec<String> {
    let mut hints = Vec::new();
    let names = query.names().unwrap_or_else(|| query.read_names());
    let mut processes = recordings.iter().flat_map(|recording| &recording.processes);
    let mut sites = processes.clone().flat_map(|process| &process.tables.sites);
    let is_named = |word: &str| names.iter().any(|name| name.text == word);
    let has_calls = source.columns().iter().any(|info| info.name == CALL);
    if is_named(CALL) && has_calls && sites.clone().all(|site| site.call.is_none()) {
        hints.push(format!(
            "`{CALL}`: recorded without the functions called; record with `heaptide run --by-call`"
        ));
    }
    let Some(word) = SIZES.into_iter().find(|word| is_named(word)) else { return hints };
    if source.name != tables::Source::all()[0].name || sites.any(|site| site.size.is_some()) {
        return hints;
    }
    let how = if processes.any(Process::has_trace) {
        "`FROM events` has the size of each event, and recordings of `heaptide run --by-size` have \
         sizes without a trace"
    } else {
        "record with `heaptide run --by-size`, or with `--mode trace` and query `FROM events`"
    };
    hints.push(format!("`{word}`: recorded without exact sizes; {how}"));
    hints
}

/// Hints for tables and columns that need a trace, if recordings have none.
fn missing_trace(
    query: &Query,
    source: &tables::Source,
    recordings: &[Recording],
) -> Option<String> {
    let names = query.names().unwrap_or_else(|| query.read_names());
    let is_of_trace = |name: &str| source.needs_trace(name);
    let word = names.into_iter().find(|word| is_of_trace(&word.text))?;
    let mut processes = recordings.iter().flat_map(|recording| &recording.processes);
    let name = &word.text;
    (!processes.any(Process::has_trace)).then(|| {
        format!("`{name}`: recorded without a trace; record with `heaptide run --mode trace`")
    })
}

/// Returns hints for names in a query that a table does not have; the result treats them as missing
/// in every record. `hint` describes how to list the available names.
///
/// ```
/// use heaptide_query::{hints, parse, table::Table};
/// let query = parse("SELECT bytes").unwrap();
/// let hints = hints::unknown(&query, &Table::default(), "ask for help");
/// assert_eq!(hints, ["unknown column `bytes`; ask for help"]);
/// ```
pub fn unknown(query: &Query, table: &Table, hint: &str) -> Vec<String> {
    let mut hints = Vec::new();
    for word in tables::unknown(query, table) {
        let name = &word.text;
        hints.push(if OF_SCOPES.contains(&&**name) {
            format!(
                "`{name}` is a column of scopes, query them with `FROM scopes`, and of single \
                 events of a recording of `heaptide run --mode trace`, with `FROM events`"
            )
        } else if OF_EVENTS.contains(&&**name) {
            format!(
                "`{name}` is a column of single events; query a recording of \
                 `heaptide run --mode trace` with `FROM events`"
            )
        } else {
            format!("unknown column `{name}`; {hint}")
        });
    }
    hints
}

/// Like `unknown`, for a table of recordings.
pub fn unknown_columns(query: &Query, source: &tables::Source, stream: &Stream) -> Vec<String> {
    let hint = format!("`heaptide query --describe {}` lists the columns", source.name);
    unknown(query, stream.template(), &hint)
}
