//! Parquet files that every reader of the format supports: zstd, dictionaries for texts, and no
//! types that are specific to this engine.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use datafusion::parquet::schema::types::ColumnPath;

/// Rows per row group, the unit of compression that readers can read separately.
pub const ROWS_PER_GROUP: usize = 1 << 17;

/// Columns with bloom filters in compacted files: each row group has few of the names in a dataset.
const WITH_BLOOM_FILTER: [&str; 4] = ["owner", "label", "frame", "function"];

/// Returns the settings of the writer.
pub fn properties() -> WriterProperties {
    builder().build()
}

/// Returns the settings of the writer of compacted files with these columns.
pub fn compacted_properties(schema: &Schema) -> WriterProperties {
    let of_schema = WITH_BLOOM_FILTER.iter().filter(|name| schema.index_of(name).is_ok());
    let filtered = of_schema.fold(builder(), |builder, name| {
        // The writer shrinks a filter to the names that it has.
        builder
            .set_column_bloom_filter_enabled(ColumnPath::from(*name), true)
            .set_column_bloom_filter_max_ndv(ColumnPath::from(*name), ROWS_PER_GROUP as u64)
    });
    filtered.build()
}

fn builder() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
}

/// Returns a schema in which texts have the plain string type.
pub fn plain(schema: &SchemaRef) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(plain_field).collect::<Fields>()))
}

/// Converts texts in records to the plain string type.
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
