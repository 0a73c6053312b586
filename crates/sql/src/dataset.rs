//! Datasets as tables of the engine, which reads only the files, columns and row groups that a
//! query needs.

#[cfg(feature = "cluster")]
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::{TableSchema, TableSchemaBuilder};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::TableProviderFilterPushDown;
use datafusion::object_store::{ObjectMeta, path::Path as ObjectPath};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::Expr;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_query::tables::Source;

use crate::catalog::{Catalog, Damage, DataFile, Listing, Snapshot};
use crate::columns;
use crate::damage::{check_content, check_ends, check_metadata};
use crate::explain::explain;
use crate::layout::{IN_PATHS, Known, Place};
use crate::manifest::Manifest;
use crate::manifest_rows::range;
use crate::pruning::{PlaceFilter, is_about_paths};
use crate::stack_pruning::{Scanned, StackFilter, is_about_stacks};

/// Up to this many files are read without their ranges in the manifest.
const FILES_WITHOUT_RANGES: usize = 4;

/// What happens to damaged and missing files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Damaged {
    /// A query of their table fails.
    #[default]
    Refuse,
    /// They are counted in a message and omitted.
    Skip,
}

/// A table of a dataset. Its files are listed and checked when a query reads the table.
#[derive(Debug)]
pub struct DatasetTable {
    source: &'static Source,
    files: Files,
    schema: SchemaRef,
    damaged: Damaged,
    /// All of its files in a snapshot.
    whole: Mutex<Option<Whole>>,
    /// The files that queries have read.
    read: Mutex<Vec<Arc<Vec<DataFile>>>>,
}

/// All files of a table in a snapshot.
#[derive(Clone, Debug)]
struct Whole {
    snapshot: Arc<Snapshot>,
    files: Arc<Vec<DataFile>>,
}

/// Where the files of a table are known from.
#[derive(Debug)]
enum Files {
    Catalog(Arc<Catalog>),
    /// A client has listed those of a dataset in this directory.
    #[cfg(feature = "cluster")]
    Client(PathBuf, Vec<DataFile>),
}

impl DatasetTable {
    /// Creates a table of a dataset.
    pub fn new(catalog: Arc<Catalog>, source: &'static Source, damaged: Damaged) -> DatasetTable {
        DatasetTable::with(Files::Catalog(catalog), source, damaged)
    }

    /// Creates the table with files that a client has listed and checked.
    #[cfg(feature = "cluster")]
    pub fn of_client(
        directory: &Path,
        source: &'static Source,
        files: Vec<DataFile>,
    ) -> DatasetTable {
        let files = Files::Client(directory.to_owned(), files);
        DatasetTable::with(files, source, Damaged::Refuse)
    }

    fn with(files: Files, source: &'static Source, damaged: Damaged) -> DatasetTable {
        let (schema, whole, read) = (columns::schema(source), Mutex::default(), Mutex::default());
        DatasetTable { source, files, schema, damaged, whole, read }
    }

    /// Returns the directory of its dataset.
    #[cfg(feature = "cluster")]
    pub fn directory(&self) -> &Path {
        match &self.files {
            Files::Catalog(catalog) => catalog.directory(),
            Files::Client(directory, _) => directory,
        }
    }

    /// Returns which table it is.
    pub fn source(&self) -> &'static Source {
        self.source
    }

    /// Returns the files to read, after a check.
    ///
    /// Errors: one is damaged or missing, or directories were renamed meanwhile.
    pub fn checked(&self, filter: &PlaceFilter) -> Result<Arc<Vec<DataFile>>, DataFusionError> {
        let own = |error: Error| DataFusionError::External(error.into());
        let files = match &self.files {
            #[cfg(feature = "cluster")]
            Files::Client(_, files) => Arc::new(only(filter, files)),
            Files::Catalog(catalog) => {
                let snapshot = catalog.snapshot(self.source).map_err(own)?;
                self.listed(&snapshot, filter).map_err(own)?
            }
        };
        locked(&self.read).push(files.clone());
        Ok(files)
    }

    /// Returns the files of a snapshot.
    fn listed(
        &self,
        snapshot: &Arc<Snapshot>,
        filter: &PlaceFilter,
    ) -> Result<Arc<Vec<DataFile>>, Error> {
        let whole = locked(&self.whole).clone();
        if let Some(whole) = whole.filter(|whole| Arc::ptr_eq(&whole.snapshot, snapshot)) {
            let files = whole.files;
            return Ok(if filter.is_none() { files } else { Arc::new(only(filter, &files)) });
        }
        let files = Arc::new(self.check(snapshot.listing(self.source, filter)?)?);
        if filter.is_none() {
            let (snapshot, files) = (snapshot.clone(), files.clone());
            *locked(&self.whole) = Some(Whole { snapshot, files });
        }
        Ok(files)
    }

    fn check(&self, listing: Listing) -> Result<Vec<DataFile>, Error> {
        let mut damages = listing.damages;
        let mut files = Vec::new();
        for file in listing.files {
            let checked = match self.damaged {
                Damaged::Refuse if file.is_listed => Ok(()), // its size is right
                Damaged::Refuse => check_ends(&file.path),
                Damaged::Skip => check_content(&file.path),
            };
            match checked {
                Ok(()) => files.push(file),
                Err(what) => damages.push(Damage { path: file.path, what }),
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
        let files = self.checked(&PlaceFilter::none()).map_err(|error| explain("", &error))?;
        for file in files.iter() {
            let path = &file.path;
            check_metadata(path).map_err(|what| refusal(&Damage { path: path.clone(), what }))?;
        }
        Ok(())
    }

    /// Forgets which files were read.
    pub fn begin_query(&self) {
        locked(&self.read).clear();
    }

    /// Returns the error for the first file that cannot be decoded, after a query has failed.
    /// `None` if the query has not read the table, or the files that it has read can be decoded.
    pub fn find_damage(&self) -> Option<Error> {
        let read = locked(&self.read).clone();
        read.iter().flat_map(|files| files.iter()).find_map(|file| {
            let what = check_content(&file.path).err()?;
            Some(refusal(&Damage { path: file.path.clone(), what }))
        })
    }
}

impl DatasetTable {
    /// Returns whether this process has listed the files. Those that a client has listed are opened
    /// only by executors, which check that they may.
    fn has_catalog(&self) -> bool {
        match &self.files {
            Files::Catalog(_) => true,
            #[cfg(feature = "cluster")]
            Files::Client(..) => false,
        }
    }

    /// Returns the manifest that the files were listed with.
    fn manifest(&self) -> Option<Arc<Manifest>> {
        match &self.files {
            Files::Catalog(catalog) => catalog.last_manifest(),
            #[cfg(feature = "cluster")]
            Files::Client(..) => None,
        }
    }
}

/// Returns the files that a filter keeps.
fn only(filter: &PlaceFilter, files: &[DataFile]) -> Vec<DataFile> {
    let known = |file: &DataFile| {
        if file.place.is_in_file() { Known::default() } else { Known::all() }
    };
    let places: Vec<_> = files.iter().map(|file| (file.place.clone(), known(file))).collect();
    let kept = filter.keeps(&places, Known::default());
    files.iter().zip(kept).filter(|(_, is_kept)| *is_kept).map(|(file, _)| file.clone()).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Returns a file for the engine, with the values in its path and the ranges of others.
fn partitioned(
    scanned: &Scanned<'_>,
    table: &TableSchema,
    ranges: Option<ArrayRef>,
) -> Result<PartitionedFile, DataFusionError> {
    let file = scanned.file;
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
    let mut partitioned = PartitionedFile::new_from_meta(meta);
    if !file.place.is_in_file() {
        partitioned.partition_values = partition_values(&file.place);
    }
    if !file.place.is_in_file() || ranges.is_some() {
        partitioned.statistics = Some(Arc::new(statistics_of(scanned, table, ranges)));
    }
    if let Some(groups) = &scanned.groups {
        partitioned = partitioned.with_extension(groups.clone());
    }
    Ok(partitioned)
}

/// Returns what is known about the rows of a file, for the engine, which then skips files that a
/// condition or a join does not need: the values of columns in paths, and the ranges of others.
fn statistics_of(
    scanned: &Scanned<'_>,
    table: &TableSchema,
    ranges: Option<ArrayRef>,
) -> Statistics {
    let (file, rows) = (scanned.file, rows_of(&[scanned]));
    let mut known = Statistics { num_rows: rows, ..Statistics::new_unknown(table.table_schema()) };
    let first = table.file_schema().fields().len();
    if let Some(ranges) = &ranges {
        let columns = known.column_statistics.iter_mut().zip(table.file_schema().fields());
        for (column, field) in columns {
            if let Some([min, max]) = range(ranges, field.name(), field.data_type()) {
                column.min_value = Precision::Exact(min);
                column.max_value = Precision::Exact(max);
            }
        }
    }
    if file.place.is_in_file() {
        return known;
    }
    let values = partition_values(&file.place);
    for (column, value) in known.column_statistics.iter_mut().skip(first).zip(values) {
        if value.is_null() {
            column.null_count = rows;
        } else {
            column.null_count = Precision::Exact(0);
            column.min_value = Precision::Exact(value.clone());
            column.max_value = Precision::Exact(value);
        }
    }
    known
}

/// Returns the number of rows of files, if it is known of each of them.
fn rows_of(files: &[&Scanned<'_>]) -> Precision<usize> {
    let rows = files.iter().map(|of| if of.groups.is_none() { of.file.rows } else { None });
    let rows: Option<u64> = rows.sum();
    rows.and_then(|rows| rows.try_into().ok()).map_or(Precision::Absent, Precision::Exact)
}

/// Returns the values of the columns in paths.
fn partition_values(place: &Place) -> Vec<ScalarValue> {
    let text = |value: &String| ScalarValue::Utf8View(Some(value.clone()));
    vec![text(&place.run), text(&place.host), ScalarValue::Int64(place.rank)]
}

impl DatasetTable {
    /// Plans a scan of these columns of these files; some columns may be in paths.
    fn scan_files(
        &self,
        state: &dyn Session,
        files: &[&Scanned<'_>],
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
        let unknown = Statistics::new_unknown(scanned.table_schema());
        let statistics = Statistics { num_rows: rows_of(files), ..unknown };
        // Few files are opened as fast as their ranges are read.
        let is_worth_it = files.len() > FILES_WITHOUT_RANGES && !projection.is_empty();
        let manifest = if is_worth_it { self.manifest() } else { None };
        let files = files.iter().map(|of| {
            let row = manifest.as_ref().zip(of.file.row);
            let ranges = row.and_then(|(manifest, row)| manifest.ranges(self.source, row));
            partitioned(of, &scanned, ranges)
        });
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let most = files.len().div_ceil(state.config().target_partitions());
        let groups = files.chunks(most.max(1)).map(|of| FileGroup::new(of.to_vec())).collect();
        let url = ObjectStoreUrl::local_filesystem();
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
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

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        let support = |filter: &&Expr| {
            // Compacted files have rows of all places, and row groups other stacks.
            if is_about_paths(filter) || self.has_catalog() && is_about_stacks(filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let mut scans = Vec::new();
        let files = self.checked(&PlaceFilter::new(state, filters))?;
        let searched = self.has_catalog().then(|| StackFilter::new(filters)).flatten();
        let files = match searched {
            Some(filter) => Scanned::of_stacks(&files, &filter)?,
            None => files.iter().map(Scanned::whole).collect(),
        };
        for (is_compacted, in_paths) in [(true, &[][..]), (false, &IN_PATHS[..])] {
            let files = files.iter().filter(|of| of.file.place.is_in_file() == is_compacted);
            let files: Vec<&Scanned<'_>> = files.collect();
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
