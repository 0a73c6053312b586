//! Parquet files as every reader of the format understands them: zstd, texts in dictionaries, and
//! none of the types that only this engine's memory has.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

/// Rows that are compressed together, and that readers can take apart from others.
const GROUP: usize = 1 << 17;

/// How files are written.
pub fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP))
        .build()
}

/// A schema with texts as plain ones.
pub fn plain(schema: &SchemaRef) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(plain_field).collect::<Fields>()))
}

/// Records with texts as plain ones.
///
/// Errors: a batch with more than 2 GB of text.
pub fn plained(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = plain(&batch.schema());
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
}

fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), plain_type(field.data_type()), field.is_nullable()))
}

fn plain_type(data: &DataType) -> DataType {
    match data {
        DataType::Utf8View => DataType::Utf8,
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}
