//! Datasets as tables of the engine, which reads only the files, columns and row groups that a
//! query needs.

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
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::Expr;
use heaptide_command::error::Error;
use heaptide_query::tables::Source;

use crate::columns;
use crate::layout::{self, IN_PATHS, Place};

/// A table of a dataset.
#[derive(Debug)]
pub struct DatasetTable {
    #[cfg(feature = "cluster")]
    directory: PathBuf,
    #[cfg(feature = "cluster")]
    source: &'static Source,
    schema: SchemaRef,
    /// The files with some columns in their paths.
    files: Vec<PartitionedFile>,
    /// The files that contain all columns.
    compacted: Vec<PartitionedFile>,
}

impl DatasetTable {
    /// Opens the table with this name in a dataset; `None` if it does not exist.
    ///
    /// Errors: it cannot be read.
    pub fn open(dataset: &Path, source: &'static Source) -> Result<Option<DatasetTable>, Error> {
        let Some(directory) = layout::table(dataset, source) else {
            return Ok(None);
        };
        let failed = |error| Error::file(&directory, "read it", error);
        let files = layout::files(&directory).map_err(failed)?;
        let (compacted, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(_, place)| place.is_in_file());
        let [files, compacted] = [files, compacted].map(|files| {
            files.iter().map(|(path, place)| file(path, place)).collect::<Result<Vec<_>, _>>()
        });
        let (files, compacted) = (files?, compacted?);
        Ok(Some(DatasetTable {
            #[cfg(feature = "cluster")]
            directory: std::path::absolute(dataset)
                .map_err(|error| Error::file(dataset, "read it", error))?,
            #[cfg(feature = "cluster")]
            source,
            schema: columns::schema(source),
            files,
            compacted,
        }))
    }

    /// Returns the absolute path of its dataset.
    #[cfg(feature = "cluster")]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns which table it is.
    #[cfg(feature = "cluster")]
    pub fn source(&self) -> &'static Source {
        self.source
    }
}

/// Returns a file with the values in its path.
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
    let file = PartitionedFile::new_from_meta(meta);
    Ok(if place.is_in_file() { file } else { file.with_partition_values(values) })
}

impl DatasetTable {
    /// Plans a scan of these columns of these files; some columns may be in paths.
    fn scan_files(
        &self,
        state: &dyn Session,
        files: &[PartitionedFile],
        in_paths: &[&str],
        projection: &[usize],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let fields = self.schema.fields();
        let in_files = fields.iter().filter(|field| !in_paths.contains(&&**field.name()));
        let in_files: Vec<_> = in_files.cloned().collect();
        let named = |name: &&str| fields.iter().find(|field| field.name() == name).cloned();
        let in_paths: Vec<_> = in_paths.iter().filter_map(named).collect();
        let scanned = TableSchemaBuilder::new(Arc::new(Schema::new(in_files)))
            .with_table_partition_cols(in_paths)
            .build();
        let place = |&column: &usize| scanned.table_schema().index_of(fields[column].name());
        let places = projection.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let options = state.table_options().parquet.clone();
        let source = ParquetSource::new(scanned.clone()).with_table_parquet_options(options);
        let groups = FileGroup::new(files.to_vec()).split_files(state.config().target_partitions());
        let url = ObjectStoreUrl::local_filesystem();
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(Some(places))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
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
        let mut scans = Vec::new();
        for (files, in_paths) in [(&self.compacted, &[][..]), (&self.files, &IN_PATHS[..])] {
            if !files.is_empty() {
                scans.push(self.scan_files(state, files, in_paths, &projection, limit)?);
            }
        }
        match scans.pop() {
            None => Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(&projection)?)))),
            Some(scan) if scans.is_empty() => Ok(scan),
            Some(scan) => {
                scans.push(scan);
                UnionExec::try_new(scans)
            }
        }
    }
}
