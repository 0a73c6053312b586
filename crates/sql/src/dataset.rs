//! Datasets as tables of the engine: it reads only the files, the columns and the groups of rows
//! that an answer needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::{ObjectMeta, path::Path as ObjectPath};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::Expr;
use heaptide_command::error::Error;
use heaptide_query::tables::Source;

use crate::columns;
use crate::layout::{self, IN_PATHS, Place};

/// A table of a dataset.
#[derive(Debug)]
pub struct DatasetTable {
    schema: SchemaRef,
    files: Vec<PartitionedFile>,
}

impl DatasetTable {
    /// The table of this name in a dataset; none if it has no such table.
    ///
    /// Errors: it cannot be read.
    pub fn open(dataset: &Path, source: &Source) -> Result<Option<DatasetTable>, Error> {
        let directory = dataset.join(source.name);
        if !directory.is_dir() {
            return Ok(None);
        }
        let failed = |error| Error::file(&directory, "read it", error);
        let files = layout::files(&directory).map_err(failed)?;
        let files = files.into_iter().map(|(path, place)| file(&path, &place));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(DatasetTable { schema: columns::schema(source), files }))
    }
}

/// A file and the values that its path has.
fn file(path: &PathBuf, place: &Place) -> Result<PartitionedFile, Error> {
    let failed = |error| Error::file(path, "read it", error);
    let metadata = path.metadata().map_err(failed)?;
    let refused =
        |error: &dyn std::error::Error| Error::new(format!("{}: {error}", path.display()));
    let absolute = std::path::absolute(path).map_err(failed)?;
    let meta = ObjectMeta {
        location: ObjectPath::from_absolute_path(absolute).map_err(|error| refused(&error))?,
        last_modified: metadata.modified().map_err(failed)?.into(),
        size: metadata.len(),
        e_tag: None,
        version: None,
    };
    let text = |value: &String| ScalarValue::Utf8View(Some(value.clone()));
    let values = vec![text(&place.run), text(&place.host), ScalarValue::Int64(place.rank)];
    Ok(PartitionedFile::new_from_meta(meta).with_partition_values(values))
}

#[async_trait::async_trait]
impl TableProvider for DatasetTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        if self.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(&projection)?))));
        }
        let fields = self.schema.fields();
        let (in_paths, in_files): (Vec<_>, Vec<_>) =
            fields.iter().cloned().partition(|field| IN_PATHS.contains(&&**field.name()));
        let named = |name: &str| in_paths.iter().find(|field| field.name() == name).cloned();
        let in_paths: Vec<_> = IN_PATHS.into_iter().filter_map(named).collect();
        let scanned = TableSchemaBuilder::new(Arc::new(Schema::new(in_files)))
            .with_table_partition_cols(in_paths)
            .build();
        let place = |&column: &usize| scanned.table_schema().index_of(fields[column].name());
        let places = projection.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let options = state.table_options().parquet.clone();
        let source = ParquetSource::new(scanned.clone()).with_table_parquet_options(options);
        let groups =
            FileGroup::new(self.files.clone()).split_files(state.config().target_partitions());
        let url = ObjectStoreUrl::local_filesystem();
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(Some(places))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}
