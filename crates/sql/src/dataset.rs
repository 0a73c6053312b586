//! Datasets as tables of the engine, which reads only the files, columns and row groups that a
//! query needs.

use std::path::Path;
use std::sync::{Arc, OnceLock};

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
use heaptide_command::message::message;
use heaptide_query::tables::Source;

use crate::catalog::{Damage, DataFile, Listing};
use crate::columns;
use crate::damage::{check_content, check_ends, check_metadata};
use crate::explain::explain;
use crate::layout::IN_PATHS;

/// What happens to damaged and missing files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Damaged {
    /// A query of their table fails.
    #[default]
    Refuse,
    /// They are counted in a message and omitted.
    Skip,
}

/// A table of a dataset. Its files are checked when the first query reads the table.
#[derive(Debug)]
pub struct DatasetTable {
    source: &'static Source,
    /// The absolute path of the dataset.
    #[cfg(feature = "cluster")]
    directory: std::path::PathBuf,
    schema: SchemaRef,
    listing: Listing,
    damaged: Damaged,
    /// The files that queries read, after the check.
    checked: OnceLock<Result<Vec<DataFile>, String>>,
}

impl DatasetTable {
    /// Creates the table with these files of a dataset.
    ///
    /// Errors: the path of the dataset cannot be resolved.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "for clusters"))]
    pub fn new(
        dataset: &Path,
        source: &'static Source,
        listing: Listing,
        damaged: Damaged,
    ) -> Result<DatasetTable, Error> {
        Ok(DatasetTable {
            source,
            #[cfg(feature = "cluster")]
            directory: std::path::absolute(dataset)
                .map_err(|error| Error::file(dataset, "read it", error))?,
            schema: columns::schema(source),
            listing,
            damaged,
            checked: OnceLock::new(),
        })
    }

    /// Returns the absolute path of its dataset.
    #[cfg(feature = "cluster")]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns which table it is.
    pub fn source(&self) -> &'static Source {
        self.source
    }

    /// Returns the files to read, after a check.
    ///
    /// Errors: one is damaged or missing.
    pub fn checked(&self) -> Result<&[DataFile], DataFusionError> {
        let checked = self.checked.get_or_init(|| self.check().map_err(|error| error.to_string()));
        match checked {
            Ok(files) => Ok(files),
            Err(error) => Err(DataFusionError::External(Error::new(error.clone()).into())),
        }
    }

    fn check(&self) -> Result<Vec<DataFile>, Error> {
        let mut damages = self.listing.damages.clone();
        let mut files = Vec::new();
        for file in &self.listing.files {
            let checked = match self.damaged {
                Damaged::Refuse if file.is_listed => Ok(()), // its size is right
                Damaged::Refuse => check_ends(&file.path),
                Damaged::Skip => check_content(&file.path),
            };
            match checked {
                Ok(()) => files.push(file.clone()),
                Err(what) => damages.push(Damage { path: file.path.clone(), what }),
            }
        }
        match (damages.first(), self.damaged) {
            (None, _) => {}
            (Some(damage), Damaged::Refuse) => return Err(refusal(damage)),
            (Some(damage), Damaged::Skip) => message(format_args!(
                "{}: skipped {}; {damage}",
                self.source.name,
                Counted(damages.len())
            )),
        }
        Ok(files)
    }

    /// Checks the metadata of all files.
    ///
    /// Errors: a file is damaged or missing.
    pub fn check_metadata(&self) -> Result<(), Error> {
        for file in self.checked().map_err(|error| explain("", &error))? {
            let path = &file.path;
            check_metadata(path).map_err(|what| refusal(&Damage { path: path.clone(), what }))?;
        }
        Ok(())
    }

    /// Returns the error for the first file that cannot be decoded, after a query has failed.
    /// `None` if no query has read the table, or all files can be decoded.
    pub fn find_damage(&self) -> Option<Error> {
        let files = self.checked.get()?.as_ref().ok()?;
        files.iter().find_map(|file| {
            let what = check_content(&file.path).err()?;
            Some(refusal(&Damage { path: file.path.clone(), what }))
        })
    }
}

/// Returns the error for a damaged file.
fn refusal(damage: &Damage) -> Error {
    Error::new(format!(
        "{damage}; export the recording again with --force, or omit such files with --skip-damaged"
    ))
}

/// A number of files, in words.
struct Counted(usize);

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => f.write_str("a damaged or missing file"),
            number => write!(f, "{number} damaged or missing files, the first of them"),
        }
    }
}

/// Returns a file for the engine, with the values in its path.
fn partitioned(file: &DataFile) -> Result<PartitionedFile, DataFusionError> {
    let absolute = std::path::absolute(&file.path)?;
    let location = ObjectPath::from_absolute_path(absolute)
        .map_err(|error| DataFusionError::External(Box::new(error)))?;
    let meta = ObjectMeta {
        location,
        last_modified: file.modified.into(),
        size: file.bytes,
        e_tag: None,
        version: None,
    };
    let place = &file.place;
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
        let files = self.checked()?;
        for (is_compacted, in_paths) in [(true, &[][..]), (false, &IN_PATHS[..])] {
            let files = files.iter().filter(|file| file.place.is_in_file() == is_compacted);
            let files = files.map(partitioned).collect::<Result<Vec<_>, _>>()?;
            if !files.is_empty() {
                scans.push(self.scan_files(state, &files, in_paths, &projection, limit)?);
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
