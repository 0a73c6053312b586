//! Results of CalQL queries.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use heaptide_analysis::model;
use heaptide_query::table::Table;
use heaptide_query::tables::{self, Wanted};
use heaptide_query::{QueryError, format, hints, parse, parse_format, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::App;
use crate::store::{Chosen, Exact, For, Part};
use heaptide_http::Refusal;

/// The most rows of a result for the page.
const ROWS: usize = 10_000;

/// A query, and the part that it refers to.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    q: String,
    #[serde(default)]
    format: Form,
    snapshot: Option<u32>,
    from: Option<u64>,
    to: Option<u64>,
    #[serde(default)]
    filter: String,
}

/// The format of the result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// An object with the first rows.
    #[default]
    Json,
    /// A file with all rows.
    Csv,
}

/// A result for the page.
#[derive(Serialize)]
struct Answer {
    /// The number of all rows.
    total: usize,
    /// The number of omitted rows at the end.
    cut: usize,
    /// Notes for the user.
    notes: Vec<String>,
    /// The titles of the columns.
    columns: Vec<String>,
    /// The types of their values; `path` for tree nodes.
    types: Vec<String>,
    /// By row, its cells: numbers, texts, paths with `/` between components, or null.
    rows: Vec<Vec<Value>>,
}

/// A result of `FORMAT json-split`.
#[derive(Deserialize)]
struct Split {
    data: Vec<Vec<Value>>,
    columns: Vec<String>,
    column_metadata: Vec<Metadata>,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Metadata {
    is_value: bool,
    #[serde(rename = "attribute.type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Node {
    label: String,
    parent: Option<usize>,
}

impl Split {
    /// Returns the rows, with paths instead of node numbers, and the types of the columns.
    fn rows(&mut self) -> (Vec<Vec<Value>>, Vec<String>) {
        let mut paths: Vec<String> = Vec::with_capacity(self.nodes.len());
        for Node { label, parent } in &self.nodes {
            let above = parent.and_then(|parent| paths.get(parent));
            paths.push(above.map_or_else(|| label.clone(), |above| format!("{above}/{label}")));
        }
        for row in &mut self.data {
            for (cell, metadata) in row.iter_mut().zip(&self.column_metadata) {
                if let Some(node) = cell.as_u64().filter(|_| !metadata.is_value) {
                    let path = usize::try_from(node).ok().and_then(|node| paths.get(node));
                    *cell = path.map_or(Value::Null, |path| Value::String(path.clone()));
                }
            }
        }
        let kind = |of: &Metadata| of.kind.clone().unwrap_or_else(|| "path".to_owned());
        let kinds = self.column_metadata.iter().map(kind).collect();
        (std::mem::take(&mut self.data), kinds)
    }
}

/// Runs a query.
pub(crate) async fn query(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(asked) = asked.map_err(Refusal::bad)?;
    let span = match (asked.from, asked.to) {
        (None, None) => None,
        (from, to) => Some((from.unwrap_or(0), to.unwrap_or(u64::MAX))),
    };
    parse(&asked.q).map_err(|error| in_query(&error))?; // before anything is read
    let part = Part {
        process: asked.process,
        snapshot: asked.snapshot,
        span,
        filter: asked.filter.clone(),
    };
    let chosen = app.store.chosen(&part, For::Query).await?;
    let answer = move || answer(&chosen, &asked.q, asked.format);
    tokio::task::spawn_blocking(answer).await.map_err(Refusal::failed)?
}

/// Converts the error of a query, with its location.
fn in_query(error: &QueryError) -> Refusal {
    let line = format!("query: {}\n{}", error.message, error.excerpt());
    Refusal::bad(line.trim_end())
}

fn answer(chosen: &Chosen, text: &str, form: Form) -> Result<Response, Refusal> {
    let query = parse(text).map_err(|error| in_query(&error))?;
    let layout = match form {
        Form::Json => "json-split",
        Form::Csv => "csv",
    };
    let format = parse_format(layout).map_err(|error| in_query(&error))?;
    let source = match &query.from {
        Some(word) => table(&word.text)?,
        None => &tables::Source::all()[0],
    };
    let whole = &chosen.loaded.recording;
    let of_span = match (chosen.exact, chosen.span) {
        (Exact::Trace, Some((from, to))) => {
            let process = chosen.loaded.process()?.during(from, to)?;
            let path = whole.path.clone();
            Some(model::Recording { path, processes: vec![process], ..Default::default() })
        }
        _ => None,
    };
    let recordings = std::slice::from_ref(of_span.as_ref().unwrap_or(whole));
    let mut notes = hints::missing(&query, source, recordings);
    let wanted = Wanted::of(&query, &format);
    let stream = source.stream(recordings, &wanted).map_err(Refusal::bad)?;
    notes.extend(hints::unknown_columns(&query, source, &stream));
    let of_stream = stream.notes();
    let answer = run(&query, stream);
    notes.extend(of_stream.all());
    let total = answer.rows();
    let shown: Table =
        if form == Form::Json && total > ROWS { answer.slice(0..ROWS) } else { answer };
    let mut bytes = Vec::new();
    format::write(&mut bytes, &query, &format, &shown).map_err(Refusal::failed)?;
    match form {
        Form::Csv => {
            let headers = [
                (CONTENT_TYPE, "text/csv; charset=utf-8"),
                (CONTENT_DISPOSITION, "attachment; filename=\"heaptide.csv\""),
            ];
            Ok((headers, bytes).into_response())
        }
        Form::Json => {
            let mut split: Split = serde_json::from_slice(&bytes).map_err(Refusal::failed)?;
            let (rows, types) = split.rows();
            let (cut, columns) = (total - shown.rows(), split.columns);
            let answer = Answer { total, cut, notes, columns, types, rows };
            Ok(axum::Json(answer).into_response())
        }
    }
}

fn table(name: &str) -> Result<&'static tables::Source, Refusal> {
    tables::Source::named(name).ok_or_else(|| {
        let all: Vec<&str> = tables::Source::all().iter().map(|source| source.name).collect();
        Refusal::bad(format_args!("unknown table `{name}`; expected one of {}", all.join(" ")))
    })
}
