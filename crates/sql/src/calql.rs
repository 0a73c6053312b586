//! `heaptide query --dataset`: CalQL over a dataset, with the same evaluator as for recordings.
//!
//! The columns that a query needs are read in batches, in two passes: first those with texts and
//! paths, which all batches share, then all of them. Only the distinct values of the first pass
//! stay in memory.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use heaptide_command::dataset::ReadingOptions;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_command::output::Content;
use heaptide_command::values;
use heaptide_query::query::{Condition, Format, Layout, Query, Relation};
use heaptide_query::stream::{Make, Stream};
use heaptide_query::table::{AttributeId, Form, NodeId, Table};
use heaptide_query::tables::{self, Info, Source, Wanted};
use heaptide_query::value::{Bits, Kind};
use heaptide_query::{format, parse, parse_format, run};
use rustc_hash::FxHashMap;

use crate::columns::{RUN, SCOPES};
use crate::explain::in_query;
use crate::layout;
use crate::session::{Dataset, Session};

/// `heaptide query --dataset`.
#[derive(Args, Debug)]
pub struct QueryOptions {
    /// Query in CalQL
    #[arg(value_name = "QUERY")]
    query: String,
    /// Dataset to query
    #[arg(long, value_name = "DIR")]
    dataset: PathBuf,
    /// Scheduler whose executors read the dataset
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    cluster: Option<String>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Output format, overriding the query
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// The operand of `count()`, and the column with the same values.
const COUNT: (&str, &str) = ("count", "allocations");

/// Runs the query.
pub fn query(options: &QueryOptions) -> Outcome {
    let query = parse(&options.query).map_err(|error| in_query("query", &error))?;
    let format = match (&options.format, &query.format) {
        (None, Some(format)) => format.clone(),
        (text, _) => parse_format(text.as_deref().unwrap_or("table"))
            .map_err(|error| in_query("--format", &error))?,
    };
    if let Some(path) = &options.output {
        output::may_write(path, options.force)?;
    }
    let cluster = options.cluster.as_deref();
    let session =
        Session::from_dataset(&Dataset::new(&options.dataset, cluster, &options.reading))?;
    let answer = answer(&session, &query, &format)?;
    let write = |out: &mut dyn Write| format::write(out, &query, &format, &answer);
    let content = match format.layout {
        Layout::Json | Layout::JsonSplit | Layout::Cali => Content::Data,
        _ => Content::Text,
    };
    output::write_or_print(options.output.as_deref(), options.force, content, write)?;
    Ok(())
}

fn answer(session: &Session, query: &Query, format: &Format) -> Result<Table, Error> {
    let source = match &query.from {
        Some(word) => Source::named(&word.text)
            .ok_or_else(|| Error::new(format!("unknown table `{}`", word.text)))?,
        None => &Source::all()[0],
    };
    let wanted = Wanted::of(query, format);
    let columns = Columns::new(source, &wanted, query);
    let reader = Arc::new(Reader::new(session, source, &columns, &wanted)?);
    for word in tables::unknown(query, &reader.template) {
        message(format_args!("query: unknown column `{}` in the dataset", word.text));
    }
    let mut batches = session.ask(&columns.select(source, |_| true))?;
    let wrong = Arc::new(Mutex::new(None));
    let said = wrong.clone();
    let template = reader.template.without_rows();
    let supply = move || match batches.next() {
        Ok(batch) => {
            let (batch, reader) = (batch?, reader.clone());
            Some((batch.num_rows(), Box::new(move || reader.table(&batch)) as Make<'_>))
        }
        Err(error) => {
            *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            None
        }
    };
    let answer = run(query, Stream::new(template, supply));
    let wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner).take();
    wrong.map_or(Ok(answer), Err)
}

/// The columns of a table that a query needs, and conditions that its records fulfil, in SQL.
struct Columns(Vec<&'static str>, Vec<String>);

impl Columns {
    fn new(source: &Source, wanted: &Wanted, query: &Query) -> Columns {
        let infos = source.columns();
        let is_wanted =
            |info: &&Info| wanted.has(info.name) || info.also.is_some_and(|also| wanted.has(also));
        let mut names: Vec<&'static str> = infos
            .iter()
            .filter(is_wanted)
            .map(|info| if info.name == COUNT.0 { COUNT.1 } else { info.name })
            .collect();
        // An unknown name may be a scope; paths consist of scopes.
        let known =
            |name: &str| infos.iter().any(|info| info.name == name || info.also == Some(name));
        let named = query.names();
        let scopes = named.is_none_or(|words| words.iter().any(|word| !known(&word.text)))
            || query.aggregations.iter().any(|call| call.operator.is_inclusive());
        if scopes && crate::columns::schema(source).index_of(SCOPES).is_ok() {
            names.push(SCOPES);
        }
        names.sort_unstable();
        names.dedup();
        // A scope can have the name of a column, and a condition then tests both.
        let is_plain = !names.contains(&SCOPES);
        let conditions = if is_plain { conditions(query) } else { Vec::new() };
        Columns(names, conditions)
    }

    /// Returns the statement that reads the columns of a table for which `fits` is true. Rows are
    /// counted even without columns.
    fn select(&self, source: &Source, fits: impl Fn(&str) -> bool) -> String {
        let mut columns: Vec<String> =
            self.0.iter().filter(|name| fits(name)).map(|name| format!("\"{name}\"")).collect();
        columns.push("1".to_owned());
        let mut statement = format!("SELECT {} FROM \"{}\"", columns.join(", "), source.name);
        if !self.1.is_empty() {
            statement += &format!(" WHERE {}", self.1.join(" AND "));
        }
        statement
    }
}

/// Returns conditions of a query on values that are in paths, so that other files are not opened.
/// Records that do not fulfil them do not fulfil those of the query, which are evaluated for the
/// others again.
fn conditions(query: &Query) -> Vec<String> {
    let derived = |name: &str| query.lets.iter().any(|derived| derived.target.text == name);
    let mut found = Vec::new();
    let mut open: Vec<&Condition> = query.filter.iter().collect();
    while let Some(condition) = open.pop() {
        let test = match condition {
            Condition::All(parts) => {
                open.extend(parts);
                continue;
            }
            Condition::Test(test) if !derived(&test.attribute.text) => test,
            _ => continue,
        };
        let (operator, value) = match &test.relation {
            Relation::Equal(value) => ("=", value),
            Relation::Less(value) => ("<", value),
            Relation::LessOrEqual(value) => ("<=", value),
            Relation::Greater(value) => (">", value),
            Relation::GreaterOrEqual(value) => (">=", value),
            _ => continue,
        };
        match &*test.attribute.text {
            name @ (layout::RUN | layout::HOST) if operator == "=" => {
                found.push(format!("{name} = '{}'", value.replace('\'', "''")));
            }
            // Other numbers are compared as fractions.
            name @ layout::RANK
                if value.parse::<u32>().is_ok_and(|of| of.to_string() == *value) =>
            {
                found.push(format!("{name} {operator} {value}"));
            }
            _ => {}
        }
    }
    found
}

/// Converts batches of a dataset to tables that share their texts and nodes.
struct Reader {
    template: Table,
    scopes: FxHashMap<String, AttributeId>,
    count: Option<AttributeId>,
}

impl Reader {
    /// Reads all texts and paths.
    fn new(
        session: &Session,
        source: &Source,
        columns: &Columns,
        wanted: &Wanted,
    ) -> Result<Reader, Error> {
        let schema = crate::columns::schema(source);
        let shared = |name: &str| {
            let field = schema.field_with_name(name);
            field.is_ok_and(|field| field.data_type().is_nested() || is_text(field.data_type()))
        };
        let mut found: Vec<(String, String)> = Vec::new();
        if columns.0.contains(&SCOPES) {
            let all = format!(
                "SELECT DISTINCT s['attribute'], s['value'] FROM \
                 (SELECT unnest({SCOPES}) AS s FROM \"{}\")",
                source.name
            );
            let mut batches = session.ask(&all)?;
            while let Some(batch) = batches.next()? {
                let [attributes, values] = [0, 1].map(|i| batch.column(i).as_string_view());
                let pairs = attributes.iter().flatten().zip(values.iter().flatten());
                found.extend(pairs.map(|(a, v)| (a.to_owned(), v.to_owned())));
            }
            found.sort();
        }
        let pairs = found.iter().map(|(attribute, value)| (&**attribute, &**value));
        let (mut template, scopes) = source.bare(pairs, wanted);
        if let Some(run) = template.named(RUN) {
            template.of_mut(run).kind = Kind::Text;
        }
        let count = template.named(COUNT.0);
        let mut reader = Reader { template, scopes, count };
        if columns.0.iter().any(|name| shared(name)) {
            let mut batches = session.ask(&columns.select(source, shared))?;
            while let Some(batch) = batches.next()? {
                reader.template = reader.table(&batch).without_rows();
            }
        }
        Ok(reader)
    }

    /// Converts a batch to a table. New texts and nodes exist only in that table.
    fn table(&self, batch: &RecordBatch) -> Table {
        let mut table = self.template.without_rows();
        table.paths = vec![NodeId(0); batch.num_rows()];
        table.others = table.paths.clone();
        let schema = batch.schema();
        let column = |name: &str| schema.index_of(name).ok().map(|at| batch.column(at));
        if let Some(lists) = column(SCOPES) {
            self.scopes(&mut table, lists);
        }
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let Some(id) = table.named(field.name()).filter(|_| field.name() != SCOPES) else {
                continue;
            };
            match table.of(id).form {
                Form::Value => values(&mut table, id, array),
                form => lists(&mut table, id, form, array),
            }
        }
        if let Some((count, array)) = self.count.zip(column(COUNT.1)) {
            values(&mut table, count, array);
        }
        table
    }

    /// Converts nested scopes to the path, and iterations to values.
    fn scopes(&self, table: &mut Table, array: &ArrayRef) {
        let all = array.as_list::<i32>();
        let parts = all.values().as_struct();
        let attributes = parts.column(0).as_string_view();
        let values = parts.column(1).as_string_view();
        let offsets = all.value_offsets();
        for row in (0..all.len()).filter(|&row| all.is_valid(row)) {
            let mut path = NodeId(0);
            for at in offsets[row] as usize..offsets[row + 1] as usize {
                let Some(&id) = self.scopes.get(attributes.value(at)) else {
                    continue;
                };
                let of = table.of(id);
                let (kind, form) = (of.kind, of.form);
                let Some(value) = table.strings.parse(values.value(at), kind) else {
                    continue;
                };
                match form {
                    Form::Value => table.of_mut(id).column.set(row, value),
                    _ => path = table.node(path, id, value),
                }
            }
            table.paths[row] = path;
        }
    }
}

fn is_text(data: &DataType) -> bool {
    matches!(data, DataType::Utf8View | DataType::Utf8)
}

/// Sets the values of a column.
fn values(table: &mut Table, id: AttributeId, array: &ArrayRef) {
    let kind = table.of(id).kind;
    for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
        let bits = match array.data_type() {
            DataType::Int64 if kind == Kind::Int => {
                Bits::int(array.as_primitive::<Int64Type>().value(row))
            }
            DataType::Int64 => Bits(array.as_primitive::<Int64Type>().value(row).unsigned_abs()),
            DataType::Float64 => Bits::double(array.as_primitive::<Float64Type>().value(row)),
            DataType::Boolean => Bits(array.as_boolean().value(row).into()),
            DataType::Utf8View => table.strings.bits(array.as_string_view().value(row)),
            _ => continue,
        };
        table.of_mut(id).column.set(row, bits);
    }
}

/// Sets the nodes of a hierarchy.
fn lists(table: &mut Table, id: AttributeId, form: Form, array: &ArrayRef) {
    let all = array.as_list::<i32>();
    let (names, offsets) = (all.values().as_string_view(), all.value_offsets());
    for row in (0..all.len()).filter(|&row| all.is_valid(row)) {
        let mut node = NodeId(0);
        for at in offsets[row] as usize..offsets[row + 1] as usize {
            let name = table.strings.bits(names.value(at));
            node = table.node(node, id, name);
        }
        match form {
            Form::Tree => table.of_mut(id).column.set(row, Bits(node.0.into())),
            _ => table.others[row] = node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let query = parse(query).expect("a query");
        let source = Source::all().iter().find(|source| source.name == "sites").expect("a table");
        let wanted = Wanted::of(&query, &parse_format("csv").expect("a format"));
        let statement = Columns::new(source, &wanted, &query).select(source, |_| false);
        let condition = statement.split_once(" WHERE ").map_or("", |(_, condition)| condition);
        assert_eq!(condition, expected);
    }

    #[test]
    fn conditions_on_paths_are_passed_to_the_engine_if_no_other_record_can_match() {
        let start = "SELECT owner,sum(live_bytes) GROUP BY owner WHERE ";
        let query = |conditions: &str| format!("{start}{conditions}");
        check(&query("rank=7"), "rank = 7");
        check(&query("rank>=7,rank<9,live_bytes>0"), "rank < 9 AND rank >= 7");
        check(&query("run=it's,host=n1"), "host = 'n1' AND run = 'it''s'");
        // A missing rank is not equal to any, and other numbers are fractions.
        for others in
            ["not(rank=7)", "rank", "not(rank)", "rank=07", "rank=7.5", "rank=-1", "rank=x"]
        {
            check(&query(others), "");
        }
        check(
            "LET rank=scale(live_bytes,2) SELECT owner,sum(live_bytes) GROUP BY owner WHERE rank=7",
            "",
        );
        // `region` may be a scope, and then `rank` may be one, too.
        check("SELECT region,sum(live_bytes) GROUP BY region WHERE rank=7", "");
    }
}
