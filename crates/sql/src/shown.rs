//! Formats results: a table for people, CSV, JSON and Parquet.

use std::io::{self, Write};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder as JsonBuilder;
use datafusion::arrow::json::writer::JsonArray;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;
use heaptide_analysis::text::printable;
use heaptide_command::error::Error;
use heaptide_command::sql::SqlFormat;
use heaptide_render::export::csv::cell;
use heaptide_render::shared::json_text::PrintableJson;

use crate::parquet::{plain, plained, properties};
use crate::session::Answer;

/// The maximal width of a column in a table, in characters.
const WIDEST_COLUMNS: usize = 60;

/// Writes a result.
///
/// Errors: those of the result, and of `out`.
pub fn write(
    out: &mut dyn Write,
    format: SqlFormat,
    answer: &mut Answer<'_>,
) -> Result<(), Failed> {
    match format {
        SqlFormat::Table => table(out, answer),
        SqlFormat::Csv => csv(out, answer),
        SqlFormat::Json => json(out, answer),
        SqlFormat::Parquet => parquet(out, answer),
    }
}

/// Why a result was not written.
pub enum Failed {
    /// The result could not be computed.
    Answer(Error),
    /// It could not be written.
    Write(io::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Answer(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Write(error)
    }
}

impl From<ArrowError> for Failed {
    fn from(error: ArrowError) -> Failed {
        match error {
            ArrowError::IoError(_, error) => Failed::Write(error),
            other => Failed::Write(io::Error::other(other)),
        }
    }
}

impl From<datafusion::parquet::errors::ParquetError> for Failed {
    fn from(error: datafusion::parquet::errors::ParquetError) -> Failed {
        Failed::Write(io::Error::other(error))
    }
}

/// Writes titles and rows; widths are those of the first records.
fn table(out: &mut dyn Write, answer: &mut Answer<'_>) -> Result<(), Failed> {
    let schema = answer.schema();
    let titles: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
    if titles.is_empty() {
        while answer.next()?.is_some() {}
        return Ok(());
    }
    let numbers: Vec<bool> =
        schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
    let mut widths: Vec<usize> = titles.iter().map(|title| length(title)).collect();
    let mut titled = false;
    while let Some(batch) = answer.next()? {
        let columns = batch.columns().iter().map(printable_text).collect::<Result<Vec<_>, _>>()?;
        let cell = |column: usize, row: usize| {
            let column: &StringArray = columns[column].as_string();
            if column.is_null(row) { "" } else { column.value(row) }
        };
        for row in 0..batch.num_rows() {
            for (column, width) in widths.iter_mut().enumerate() {
                *width = length(cell(column, row)).min(WIDEST_COLUMNS).max(*width);
            }
        }
        if !std::mem::replace(&mut titled, true) {
            line(out, &widths, &numbers, titles.iter().copied())?;
        }
        for row in 0..batch.num_rows() {
            line(out, &widths, &numbers, (0..titles.len()).map(|column| cell(column, row)))?;
        }
    }
    if !titled {
        line(out, &widths, &numbers, titles.into_iter())?;
    }
    Ok(())
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Writes a row. Values wider than their column shift the rest; nothing is truncated.
fn line<'a>(
    out: &mut dyn Write,
    widths: &[usize],
    numbers: &[bool],
    texts: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    let mut line = String::new();
    for ((text, width), is_number) in texts.zip(widths).zip(numbers) {
        let space = " ".repeat(width.saturating_sub(length(text)));
        let (before, after) = if *is_number { (&*space, "") } else { ("", &*space) };
        line.extend([before, text, after, "  "]);
    }
    writeln!(out, "{}", line.trim_end())
}

fn csv(out: &mut dyn Write, answer: &mut Answer<'_>) -> Result<(), Failed> {
    let mut schema_of = flat(&answer.schema());
    let mut writer = WriterBuilder::new().with_header(true).build(out);
    let mut any = false;
    while let Some(batch) = answer.next()? {
        let columns = batch.columns().iter().map(|column| {
            if has_text(column.data_type()) {
                text(column).map(|texts| changed(&texts, cell))
            } else {
                Ok(column.clone())
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        if !columns.is_empty() {
            writer.write(&RecordBatch::try_new(schema_of.clone(), columns)?)?;
            any = true;
        }
    }
    if !any && !schema_of.fields().is_empty() {
        writer.write(&RecordBatch::new_empty(Arc::make_mut(&mut schema_of).clone().into()))?;
    }
    Ok(())
}

/// Formats a column for people.
fn printable_text(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(changed(&text(column)?, |text| printable(text).into_owned()))
}

/// Applies a function to each text of a column.
fn changed(column: &ArrayRef, change: impl Fn(&str) -> String) -> ArrayRef {
    let texts: &StringArray = column.as_string();
    Arc::new(texts.iter().map(|text| text.map(&change)).collect::<StringArray>())
}

/// Returns the schema with lists converted to texts.
fn flat(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        if has_text(field.data_type()) {
            Field::new(field.name(), DataType::Utf8, true)
        } else {
            (**field).clone()
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns whether a column of this type is shown as text.
fn has_text(data: &DataType) -> bool {
    data.is_nested() || data.is_string()
}

/// Converts a column to texts: items of a list are joined with `;`, and scopes with `=`.
fn text(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::default();
    let shown: StringArray = match column.data_type() {
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let items = text(lists.values())?;
            let items: &StringArray = items.as_string();
            let offsets = lists.value_offsets();
            let row = |row: usize| {
                let inside = offsets[row] as usize..offsets[row + 1] as usize;
                let items: Vec<&str> = inside
                    .map(|item| if items.is_null(item) { "" } else { items.value(item) })
                    .collect();
                lists.is_valid(row).then(|| items.join(";"))
            };
            (0..lists.len()).map(row).collect()
        }
        DataType::Struct(_) => {
            let parts = column.as_struct();
            let parts = parts.columns().iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let part = |part: &ArrayRef, row| {
                let part: &StringArray = part.as_string();
                if part.is_null(row) { String::new() } else { part.value(row).to_owned() }
            };
            let row = |row| parts.iter().map(|of| part(of, row)).collect::<Vec<_>>().join("=");
            (0..column.len()).map(|at| column.is_valid(at).then(|| row(at))).collect()
        }
        DataType::Utf8View => column.as_string_view().iter().collect(),
        _ => {
            let formatter = ArrayFormatter::try_new(column, &options)?;
            let row = |row| column.is_valid(row).then(|| formatter.value(row).to_string());
            (0..column.len()).map(row).collect()
        }
    };
    Ok(Arc::new(shown))
}

fn json(out: &mut dyn Write, answer: &mut Answer<'_>) -> Result<(), Failed> {
    let builder = JsonBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, JsonArray>(PrintableJson(&mut *out));
    while let Some(batch) = answer.next()? {
        writer.write(&batch)?;
    }
    writer.finish()?;
    writeln!(out)?;
    Ok(())
}

fn parquet(out: &mut dyn Write, answer: &mut Answer<'_>) -> Result<(), Failed> {
    let mut writer = ArrowWriter::try_new(Vec::new(), plain(&answer.schema()), Some(properties()))?;
    while let Some(batch) = answer.next()? {
        writer.write(&plained(&batch)?)?;
        out.write_all(writer.inner())?;
        writer.inner_mut().clear();
    }
    out.write_all(&writer.into_inner()?)?;
    Ok(())
}
