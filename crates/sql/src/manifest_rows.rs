//! The rows of a manifest: what is known about a file from its path, its metadata, and the files of
//! the tables `processes` and `modules` of the same process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Builder, ListBuilder, RecordBatch, StringBuilder, StructBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use datafusion::parquet::file::statistics::Statistics;

use crate::layout::Place;

/// The name of the table; the first column.
pub const TABLE: &str = "table";
/// The path below the dataset.
pub const FILE: &str = "file";
/// The size.
pub const SIZE: &str = "bytes";
/// The time of the last modification, in nanoseconds.
pub const MODIFIED: &str = "modified_ns";
/// The number of rows.
pub const ROWS: &str = "rows";
/// The least and the greatest value of columns.
pub const RANGES: &str = "ranges";
/// The number of the directory of the run in its file system.
pub const DIRECTORY: &str = "directory";

/// Texts that are longer have no range: readers compare them with conditions on exact values.
const TEXT_BYTES_MAX: usize = 64;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let number = |name: &str| Field::new(name, DataType::Int64, true);
    let range = Field::new_list_field(DataType::Struct(range_fields()), true);
    Arc::new(Schema::new(vec![
        text(TABLE),
        text(FILE),
        number(SIZE),
        number(MODIFIED),
        number(ROWS),
        text("run"),
        text("host"),
        number("rank"),
        number("process"),
        number("image"),
        text("program"),
        text("build_id"),
        number("start_ns"),
        number("end_ns"),
        Field::new(RANGES, DataType::List(Arc::new(range)), true),
        number(DIRECTORY),
    ]))
});

/// Returns the columns of the manifest.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

fn range_fields() -> Fields {
    Fields::from(vec![
        Field::new("column", DataType::Utf8, true),
        Field::new("min", DataType::Int64, true),
        Field::new("max", DataType::Int64, true),
        Field::new("min_text", DataType::Utf8, true),
        Field::new("max_text", DataType::Utf8, true),
    ])
}

/// Returns the least and the greatest value of a column in a row of [`RANGES`], as values of this
/// type; `None` if they are unknown.
pub fn range(ranges: &dyn Array, column: &str, of: &DataType) -> Option<[ScalarValue; 2]> {
    let ranges = ranges.as_struct_opt()?;
    let names = ranges.column_by_name("column")?.as_string_opt::<i32>()?;
    let row = (0..names.len()).find(|&row| names.value(row) == column)?;
    let values = if *of == DataType::Int64 { ["min", "max"] } else { ["min_text", "max_text"] };
    let value = |name| {
        let values = ranges.column_by_name(name)?;
        let value = ScalarValue::try_from_array(values, row).ok()?.cast_to(of).ok()?;
        (!value.is_null()).then_some(value)
    };
    Some([value(values[0])?, value(values[1])?])
}

/// What is known about a process from the files of other tables.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    process: Option<i64>,
    image: Option<i64>,
    program: Option<String>,
    start_ns: Option<i64>,
    duration_ns: Option<i64>,
    build_id: Option<String>,
}

/// Reads what the file of a process in the table `processes` contains.
///
/// Errors: it cannot be decoded.
pub fn process_facts(path: &Path) -> io::Result<ProcessFacts> {
    let mut facts = ProcessFacts::default();
    let columns = ["process", "image", "program", "start_ns", "duration_ns"];
    read(path, &columns, |batch| {
        if facts.process.is_none() && batch.num_rows() > 0 {
            let number = |name| {
                let values = batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
                values.is_valid(0).then(|| values.value(0))
            };
            facts.process = number("process");
            facts.image = number("image");
            facts.start_ns = number("start_ns");
            facts.duration_ns = number("duration_ns");
            facts.program = texts(batch, "program").and_then(|of| of.into_iter().next().flatten());
        }
    })?;
    Ok(facts)
}

/// Adds the build id of the program, which the table `modules` contains.
///
/// Errors: its file cannot be decoded.
pub fn add_build_id(facts: &mut ProcessFacts, modules: &Path) -> io::Result<()> {
    read(modules, &["program", "module", "build_id"], |batch| {
        let columns = ["program", "module", "build_id"].map(|name| texts(batch, name));
        if let [Some(programs), Some(modules), Some(ids)] = columns {
            let mut rows = programs.into_iter().zip(modules).zip(ids);
            let own = rows.find(|((program, module), _)| program.is_some() && program == module);
            if let Some((_, Some(id))) = own
                && !id.is_empty()
            {
                facts.build_id = Some(id);
            }
        }
    })
}

/// Returns the values of a column of texts.
fn texts(batch: &RecordBatch, name: &str) -> Option<Vec<Option<String>>> {
    let values = cast(batch.column_by_name(name)?, &DataType::Utf8).ok()?;
    let values = values.as_string_opt::<i32>()?;
    Some(values.iter().map(|value| value.map(str::to_owned)).collect())
}

/// Reads columns of a file; unknown ones are omitted.
fn read(path: &Path, columns: &[&str], mut take: impl FnMut(&RecordBatch)) -> io::Result<()> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?);
    let reader = reader.map_err(io::Error::other)?;
    let mask = ProjectionMask::columns(reader.parquet_schema(), columns.iter().copied());
    let reader = reader.with_projection(mask).build().map_err(io::Error::other)?;
    for batch in reader {
        take(&batch.map_err(io::Error::other)?);
    }
    Ok(())
}

/// Reads the metadata of a file.
///
/// Errors: they cannot be decoded.
pub fn metadata(path: &Path) -> io::Result<ParquetMetaData> {
    let reader = SerializedFileReader::new(File::open(path)?).map_err(io::Error::other)?;
    Ok(reader.metadata().clone())
}

/// A file to describe.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    pub place: &'a Place,
    pub bytes: u64,
    pub modified: SystemTime,
    pub metadata: &'a ParquetMetaData,
}

/// Collects rows.
pub struct Rows {
    texts: BTreeMap<&'static str, StringBuilder>,
    numbers: BTreeMap<&'static str, Int64Builder>,
    ranges: ListBuilder<StructBuilder>,
}

impl Rows {
    /// Creates an empty collection.
    pub fn new() -> Rows {
        let ranges = StructBuilder::from_fields(range_fields(), 0);
        Rows { texts: BTreeMap::new(), numbers: BTreeMap::new(), ranges: ListBuilder::new(ranges) }
    }

    /// Adds a file of a table; `path` is the one below the dataset, `directory` the number of the
    /// directory of its run.
    pub fn add(
        &mut self,
        table: &str,
        path: &str,
        file: Described<'_>,
        directory: u64,
        facts: &ProcessFacts,
    ) {
        let is_of_run = !file.place.is_in_file();
        let modified = file.modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.text(TABLE, Some(table));
        self.text(FILE, Some(path));
        self.text("run", is_of_run.then_some(&file.place.run));
        self.text("host", is_of_run.then_some(&file.place.host));
        self.text("program", facts.program.as_deref());
        self.text("build_id", facts.build_id.as_deref());
        let end = facts.start_ns.zip(facts.duration_ns).map(|(start, of)| start.saturating_add(of));
        for (name, value) in [
            (SIZE, i64::try_from(file.bytes).ok()),
            (MODIFIED, i64::try_from(modified).ok()),
            (ROWS, Some(file.metadata.file_metadata().num_rows())),
            ("rank", file.place.rank),
            ("process", facts.process),
            ("image", facts.image),
            ("start_ns", facts.start_ns),
            ("end_ns", end),
            (DIRECTORY, Some(directory.cast_signed())),
        ] {
            self.numbers.entry(name).or_default().append_option(value);
        }
        self.add_ranges(file.metadata);
    }

    fn text(&mut self, name: &'static str, value: Option<&str>) {
        self.texts.entry(name).or_default().append_option(value);
    }

    fn add_ranges(&mut self, metadata: &ParquetMetaData) {
        let columns = metadata.file_metadata().schema_descr().columns();
        for (at, column) in columns.iter().enumerate() {
            let Some(range) = range_of(metadata, at).filter(|_| column.path().parts().len() == 1)
            else {
                continue;
            };
            let of = self.ranges.values();
            let mut text = |at: usize, value: Option<&str>| {
                if let Some(column) = of.field_builder::<StringBuilder>(at) {
                    column.append_option(value);
                }
            };
            let (numbers, texts) = match &range {
                Range::Numbers(min, max) => ([Some(*min), Some(*max)], [None, None]),
                Range::Texts(min, max) => ([None, None], [Some(&**min), Some(&**max)]),
            };
            text(0, Some(column.name()));
            text(3, texts[0]);
            text(4, texts[1]);
            for (at, value) in (1..).zip(numbers) {
                if let Some(column) = of.field_builder::<Int64Builder>(at) {
                    column.append_option(value);
                }
            }
            of.append(true);
        }
        self.ranges.append(true);
    }

    /// Returns the rows.
    ///
    /// Errors: the rows do not fit into memory that one column can have.
    pub fn finish(mut self) -> io::Result<RecordBatch> {
        let columns = SCHEMA.fields().iter().map(|field| -> ArrayRef {
            let name = &**field.name();
            match field.data_type() {
                DataType::Utf8 => match self.texts.get_mut(name) {
                    Some(column) => Arc::new(column.finish()),
                    None => Arc::new(StringBuilder::new().finish()),
                },
                DataType::Int64 => match self.numbers.get_mut(name) {
                    Some(column) => Arc::new(column.finish()),
                    None => Arc::new(Int64Builder::new().finish()),
                },
                _ => Arc::new(self.ranges.finish()),
            }
        });
        let columns = columns.collect();
        RecordBatch::try_new(schema(), columns).map_err(io::Error::other)
    }
}

/// The least and the greatest value of a column in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Range {
    Numbers(i64, i64),
    Texts(String, String),
}

/// Returns the range of a column; `None` if it is not known exactly for each row group.
fn range_of(metadata: &ParquetMetaData, column: usize) -> Option<Range> {
    let mut whole: Option<Range> = None;
    for group in metadata.row_groups() {
        let column = group.column(column);
        let own = match column.statistics()? {
            of if of.null_count_opt() == Some(column.num_values().unsigned_abs()) => continue,
            Statistics::Int64(of) => Range::Numbers(*of.min_opt()?, *of.max_opt()?),
            Statistics::ByteArray(of) if of.min_is_exact() && of.max_is_exact() => {
                let text = |of: &datafusion::parquet::data_type::ByteArray| {
                    let text = of.as_utf8().ok()?;
                    (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
                };
                Range::Texts(text(of.min_opt()?)?, text(of.max_opt()?)?)
            }
            _ => return None,
        };
        whole = Some(match (whole, own) {
            (None, own) => own,
            (Some(Range::Numbers(a, b)), Range::Numbers(min, max)) => {
                Range::Numbers(a.min(min), b.max(max))
            }
            (Some(Range::Texts(a, b)), Range::Texts(min, max)) => {
                Range::Texts(a.min(min), b.max(max))
            }
            _ => return None,
        });
    }
    whole
}
