//! Converts errors of the engine to the style of the other commands: one line, and, if the location
//! is known, the line of the statement with a caret.

use datafusion::common::{DataFusionError, SchemaError};
use heaptide_command::error::Error;
use heaptide_query::QueryError;
use heaptide_query::tables::Source;

use crate::catalog::CHANGED;

/// The beginning and the end of the error for a file that queries of a cluster cannot read. The
/// error arrives within other texts.
pub const REFUSED_FILE: &str = "cannot read ";
/// The end.
pub const REFUSED_FILE_END: &str = ": it is neither part of a dataset nor below a directory that \
    the scheduler and the executors allow with --allow-files";

/// Converts the error of a statement.
pub fn explain(sql: &str, error: &DataFusionError) -> Error {
    if let DataFusionError::External(own) = error.find_root()
        && let Some(own) = own.downcast_ref::<Error>()
    {
        return Error::new(own.to_string());
    }
    let (message, place) = said(error);
    match place {
        Some((line, column)) => {
            in_query("query", &QueryError::at(sql, byte(sql, line, column), message))
        }
        None => Error::new(format!("query: {message}")),
    }
}

/// Returns whether results of a query on a cluster could not be fetched because the executor that
/// had them is lost.
pub fn lost_executor(error: &DataFusionError) -> bool {
    let text = error.to_string();
    ["GrpcConnectionError", "FetchFailed", "transport error"].iter().any(|of| text.contains(of))
}

/// Returns whether a file or directory of a dataset does not exist any more.
pub fn lost_file(error: &DataFusionError) -> bool {
    let text = error.to_string();
    text.contains(CHANGED) || text.contains("Object at location") && text.contains(" not found")
}

/// Returns whether the content of a file cannot be read.
pub fn is_about_content(error: &DataFusionError) -> bool {
    let text = error.to_string();
    ["Parquet error", "ParquetError", "Arrow error", "ArrowError", "Object Store error", "External"]
        .iter()
        .any(|of| text.contains(of))
}

/// Converts the error of a query or a part of it.
pub fn in_query(what: &str, error: &QueryError) -> Error {
    Error::Text { what: format!("{what}: {}", error.message), excerpt: error.excerpt() }
}

/// Returns the message and its location: line and column, from 1.
fn said(error: &DataFusionError) -> (String, Option<(u64, u64)>) {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    let place = span.map(|span| (span.start.line, span.start.column));
    match error.find_root() {
        DataFusionError::SQL(error, _) => {
            let text = error.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            let (message, at) = text.rsplit_once(" at Line: ").unwrap_or((text, ""));
            let place = at.split_once(", Column: ").and_then(|(line, column)| {
                Some((line.parse().ok()?, column.trim_end().parse().ok()?))
            });
            (lower(message), place)
        }
        DataFusionError::SchemaError(schema, _) => match &**schema {
            SchemaError::FieldNotFound { field, valid_fields } => {
                let mut names: Vec<&str> =
                    valid_fields.iter().map(|column| column.name.as_str()).collect();
                names.dedup();
                let known = if names.is_empty() {
                    String::new()
                } else {
                    format!("; available: {}", names.join(" "))
                };
                (format!("unknown column `{}`{known}", field.name), place)
            }
            other => (lower(&other.to_string()), place),
        },
        other => {
            let text = error.diagnostic().map(|diagnostic| diagnostic.message.clone());
            let text = text.unwrap_or_else(|| plain(other));
            (unknown_table(&text).unwrap_or_else(|| lower(&text)), place)
        }
    }
}

/// Returns the text about a file that queries of a cluster cannot read.
fn refused_file(text: &str) -> Option<String> {
    let end = text.find(REFUSED_FILE_END)?;
    let start = text[..end].rfind(REFUSED_FILE)?;
    Some(text[start..end + REFUSED_FILE_END.len()].to_owned())
}

/// Returns the first line of a message, without the engine's prefixes.
fn plain(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    if let Some(refused) = refused_file(&text) {
        return refused;
    }
    let text = of_executor(&text).unwrap_or(text);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("").trim();
    let prefixes = ["Error during planning: ", "Execution error: ", "External error: "];
    let line = prefixes.iter().fold(line, |line, prefix| line.strip_prefix(prefix).unwrap_or(line));
    line.replace("table 'datafusion.public.", "table '")
}

/// Returns the message for a statement that names an unknown table.
fn unknown_table(text: &str) -> Option<String> {
    let name = text.strip_prefix("table '")?.strip_suffix("' not found")?;
    let names = Source::all().iter().map(|source| source.name).collect::<Vec<_>>().join(" ");
    Some(format!("unknown table `{name}`; available: {names}"))
}

/// Extracts an executor's message from the error of a query on a cluster, where it is quoted within
/// the names of the parts that forwarded it.
fn of_executor(text: &str) -> Option<String> {
    text.contains("Job ").then_some(())?;
    let quoted = text.split_once(" failed: ")?.1.rsplit_once("(\"")?.1;
    let said = quoted.rsplit_once('"')?.0;
    Some(said.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Changes a message to this project's style: lower case, no full stop.
fn lower(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut characters = text.chars();
    let first = characters.next();
    let is_word = characters.clone().next().is_some_and(char::is_lowercase);
    match first {
        Some(first) if is_word => first.to_lowercase().chain(characters).collect(),
        _ => text.to_owned(),
    }
}

/// Returns the byte offset of a line and a column, both from 1.
fn byte(text: &str, line: u64, column: u64) -> usize {
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let before = usize::try_from(column).unwrap_or(1).max(1) - 1;
    let inside = text[start..].char_indices().nth(before).map_or(text.len() - start, |(at, _)| at);
    start + inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_executors_are_extracted_from_forwarded_errors() {
        let passed = "Execution error: Job 038 failed: Job failed due to stage 0 failed: Task failed \
                      due to runtime execution error: DataFusionError(Shared(External(\
                      DataFusionError(Execution(\"stack_contains: regex `(\\\"`: unclosed\")))))";
        let said = "stack_contains: regex `(\"`: unclosed";
        assert_eq!(of_executor(passed).as_deref(), Some(said));
        assert_eq!(of_executor("no function matches"), None);
        let refused = format!("{REFUSED_FILE}/a \\\"b{REFUSED_FILE_END}");
        let passed = format!("Job 7 failed: cannot read it: (\"{refused}\") at 3");
        assert_eq!(refused_file(&passed), Some(refused));
    }

    #[test]
    fn locations_on_later_lines_are_found() {
        let text = "select\nä b\nc";
        assert_eq!(byte(text, 1, 1), 0);
        assert_eq!(&text[byte(text, 2, 3)..], "b\nc");
        assert_eq!(&text[byte(text, 3, 1)..], "c");
        assert_eq!(byte(text, 9, 9), text.len());
    }
}
