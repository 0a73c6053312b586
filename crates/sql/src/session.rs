//! The SQL engine with the tables and functions of this project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use heaptide_command::dataset::ReadingOptions;
use heaptide_command::error::Error;
use heaptide_command::output::check_path;
use heaptide_query::tables::{self, Source};
use tokio::runtime::Runtime;

use crate::catalog::{Catalog, Use};
use crate::cluster::{Cluster, StatementFiles, VERSION};
use crate::columns;
use crate::dataset::{Damaged, DatasetTable};
use crate::dataset_file;
use crate::explain::{explain, is_about_content, lost_executor, lost_file};
use crate::functions::FUNCTIONS;
use crate::pruning::PlaceFilter;
use crate::recordings::{Part, RecordedTable};

/// How often a statement is run again, before its first records, if an executor was lost with
/// results that had not been fetched, or a file was removed by an export that replaces a run.
const RETRIES_MAX: usize = 3;

/// The dataset of an engine.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub directory: PathBuf,
    /// The address of the scheduler of the cluster that reads it; `None` for this process.
    pub cluster: Option<String>,
    /// The file with the token of the cluster, if it is not the default one.
    pub token_file: Option<PathBuf>,
    pub damaged: Damaged,
    pub of: Use,
}

impl Dataset {
    /// Returns the dataset in a directory, all of whose files this process reads; damaged files are
    /// errors.
    pub fn local(directory: &Path) -> Dataset {
        let dataset = Dataset::new(directory, None, &ReadingOptions::default());
        Dataset { of: Use::Directories, ..dataset }
    }

    /// Returns the dataset that the options select.
    pub fn new(directory: &Path, cluster: Option<&str>, options: &ReadingOptions) -> Dataset {
        Dataset {
            directory: directory.to_owned(),
            cluster: cluster.map(str::to_owned),
            token_file: options.token_file.clone(),
            damaged: if options.skip_damaged { Damaged::Skip } else { Damaged::Refuse },
            of: Use::Manifest,
        }
    }
}

/// The engine.
pub struct Session {
    runtime: Runtime,
    context: SessionContext,
    /// The dataset with the tables; `None` for recordings.
    catalog: Option<Arc<Catalog>>,
    /// The tables of the dataset.
    tables: Vec<Arc<DatasetTable>>,
    /// The cluster that runs queries; `None` for this process.
    cluster: Option<Cluster>,
}

impl Session {
    /// Creates an engine without tables, in this process.
    ///
    /// Errors: its threads cannot be started.
    fn new() -> Result<Session, Error> {
        let runtime = runtime()?;
        let mut config = SessionConfig::new().with_information_schema(true);
        config.options_mut().sql_parser.collect_spans = true;
        let context = SessionContext::new_with_config(config);
        Ok(Session::with_context(runtime, context, None))
    }

    /// Creates an engine without tables, which runs queries on the cluster of this scheduler.
    ///
    /// Errors: the scheduler cannot be reached, or has another version.
    fn on_cluster(address: &str, token_file: Option<&Path>) -> Result<Session, Error> {
        let runtime = runtime()?;
        let (cluster, context) = runtime.block_on(async {
            let cluster = Cluster::connect_with(address, token_file).await?;
            let context = cluster.context(VERSION).await.map_err(|error| explain("", &error))?;
            Ok::<_, Error>((cluster, context))
        })?;
        Ok(Session::with_context(runtime, context, Some(cluster)))
    }

    fn with_context(
        runtime: Runtime,
        context: SessionContext,
        cluster: Option<Cluster>,
    ) -> Session {
        for function in FUNCTIONS {
            context.register_udf(function.udf());
        }
        Session { runtime, context, catalog: None, tables: Vec::new(), cluster }
    }

    /// Creates an engine with the tables of process images.
    pub fn from_parts(parts: Vec<Part>) -> Result<Session, Error> {
        let (session, parts) = (Session::new()?, Arc::new(parts));
        for source in Source::all() {
            let table = Arc::new(RecordedTable::new(source, parts.clone()));
            let added = session.context.register_table(source.name, table);
            added.map_err(|error| explain("", &error))?;
        }
        Ok(session)
    }

    /// Creates an engine with the tables of a dataset, which this process reads, or the cluster of
    /// a scheduler.
    ///
    /// Errors: it is no dataset; the cluster cannot be used.
    pub fn from_dataset(dataset: &Dataset) -> Result<Session, Error> {
        let directory = &dataset.directory;
        check_path(directory)?;
        dataset_file::check(directory)?;
        let catalog = Catalog::new(directory, dataset.of);
        if !Source::all().iter().any(|source| catalog.has(source)) {
            return Err(no_dataset(directory));
        }
        let mut session = match &dataset.cluster {
            Some(address) => Session::on_cluster(address, dataset.token_file.as_deref())?,
            None => Session::new()?,
        };
        let catalog = Arc::new(catalog);
        for source in Source::all() {
            let table = Arc::new(DatasetTable::new(catalog.clone(), source, dataset.damaged));
            session.tables.push(table.clone());
            let added = session.context.register_table(source.name, table);
            added.map_err(|error| explain("", &error))?;
        }
        session.catalog = Some(catalog);
        Ok(session)
    }

    /// Checks the metadata of all files of the dataset.
    ///
    /// Errors: a file is damaged or missing.
    pub fn check_files(&self) -> Result<(), Error> {
        let names = Source::all().iter().map(|source| source.name).collect();
        self.catalog.as_ref().map_or(Ok(()), |catalog| catalog.prepare(&names))?;
        self.tables.iter().try_for_each(|table| table.check_metadata())
    }

    /// Makes sure that the tables that a statement names are those of one moment.
    ///
    /// Errors: they cannot be listed, or need a trace that no recording has.
    fn prepare(&self, sql: &str) -> Result<(), Error> {
        let Some(catalog) = &self.catalog else {
            return Ok(());
        };
        self.tables.iter().for_each(|table| table.begin_query());
        let plan = self.runtime.block_on(self.context.state().create_logical_plan(sql));
        // Errors of the statement are reported when it runs.
        let names = plan.and_then(|plan| names(&plan)).unwrap_or_default();
        catalog.prepare(&names)?;
        for table in self.tables.iter().filter(|table| names.contains(table.source().name)) {
            if columns::needs_trace(table.source()) && !catalog.has(table.source()) {
                let directory = catalog.directory().display();
                return Err(Error::new(format!("{directory}: {}", tables::Error::NoTrace)));
            }
            if self.cluster.is_some() {
                // Listed here, because errors of encoding the plan have another form.
                let checked = table.checked(&PlaceFilter::none());
                checked.map_err(|error| explain("", &error))?;
            }
        }
        Ok(())
    }

    /// Lists the dataset again.
    fn list_again(&self) -> Result<(), Error> {
        self.catalog.as_ref().map_or(Ok(()), |catalog| catalog.refresh())
    }

    /// Returns the error of a statement. If a file of the dataset is damaged, it names the file; if
    /// the scheduler is lost, its address.
    fn failure(&self, sql: &str, error: &DataFusionError) -> Error {
        let damage = if is_about_content(error) {
            self.tables.iter().find_map(|table| table.find_damage())
        } else {
            None
        };
        let lost = || self.runtime.block_on(self.cluster.as_ref()?.find_loss());
        damage.or_else(lost).unwrap_or_else(|| explain(sql, error))
    }

    /// Starts to run a statement. Statements that modify data are rejected.
    ///
    /// Errors: those of the statement, with their location in it.
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>, Error> {
        if let Some(cluster) = &self.cluster {
            let files = self.runtime.block_on(cluster.ready())?;
            if files == StatementFiles::Refused {
                self.check_names_no_file(sql)?;
            }
        }
        self.prepare(sql)?;
        let mut retries = if self.catalog.is_some() { RETRIES_MAX } else { 0 };
        let stream = loop {
            match self.stream(sql) {
                Err(error) if retries > 0 && lost_file(&error) => {
                    retries -= 1;
                    self.list_again()?;
                }
                stream => break stream.map_err(|error| self.failure(sql, &error))?,
            }
        };
        Ok(Answer { session: self, sql: sql.to_owned(), stream, retries })
    }

    /// Starts to read all rows of a table, in the order of its files, compacted ones first.
    ///
    /// Errors: the files cannot be read.
    pub fn read_in_order(&self, source: &Source) -> Result<Answer<'_>, Error> {
        let sql = format!("SELECT * FROM \"{}\"", source.name);
        self.prepare(&sql)?;
        let stream = self.runtime.block_on(async {
            let frame = self.context.sql(&sql).await?;
            let schema = Arc::clone(frame.schema().inner());
            // Compacted and other files are parts of a union, which would run at the same time.
            let parts = frame.execute_stream_partitioned().await?;
            let rows = futures::StreamExt::flatten(futures::stream::iter(parts));
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)) as SendableRecordBatchStream)
        });
        let stream = stream.map_err(|error| self.failure(&sql, &error))?;
        Ok(Answer { session: self, sql, stream, retries: 0 })
    }

    /// Checks that a statement names no file. Scheduler and executors refuse to read such files,
    /// but a statement that only names them would succeed.
    fn check_names_no_file(&self, sql: &str) -> Result<(), Error> {
        let plan = self.runtime.block_on(self.context.state().create_logical_plan(sql));
        if let Ok(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(_))) = plan {
            return Err(Error::new(
                "query: statements that name files are off in this cluster; start its scheduler and \
                 executors with --allow-files DIR, or run the statement without --cluster",
            ));
        }
        Ok(()) // errors of the statement are reported when it runs
    }

    fn stream(&self, sql: &str) -> Result<SendableRecordBatchStream, DataFusionError> {
        let allowed = SQLOptions::new().with_allow_dml(false);
        self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, allowed).await?;
            if self.cluster.is_some() && has_union(frame.logical_plan())? {
                let what = "clusters do not support UNION; run its parts as separate queries";
                return Err(DataFusionError::Plan(what.to_owned()));
            }
            frame.execute_stream().await
        })
    }
}

/// Returns the names of the tables that a plan reads.
fn names(plan: &LogicalPlan) -> Result<BTreeSet<&'static str>, DataFusionError> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.extend(Source::named(scan.table_name.table()).map(|source| source.name));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

/// Returns the error for a directory that is no dataset.
pub fn no_dataset(directory: &Path) -> Error {
    let path = directory.display();
    Error::new(format!(
        "{path}: no dataset; `heaptide export --format parquet -o {path}` writes one"
    ))
}

/// Returns whether a plan has a union: in Ballista 55 the stages of a union deadlock.
fn has_union(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Union(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Creates the threads of the engine.
fn runtime() -> Result<Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|e| Error::new(format!("cannot start threads: {e}")))
}

/// A result that is streamed.
pub struct Answer<'a> {
    session: &'a Session,
    sql: String,
    stream: SendableRecordBatchStream,
    /// Remaining retries; none after its first records.
    retries: usize,
}

impl Answer<'_> {
    /// Returns its columns.
    pub fn schema(&self) -> datafusion::arrow::datatypes::SchemaRef {
        self.stream.schema()
    }

    /// Returns the next records.
    ///
    /// Errors: those of the statement that occur only during execution.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            let next = futures::StreamExt::next(&mut self.stream);
            let next = self.session.runtime.block_on(next).transpose();
            let failed = match next {
                Err(error) if self.retries > 0 && lost_executor(&error) => {
                    self.retries -= 1;
                    self.session.stream(&self.sql).map(|again| self.stream = again).err()
                }
                // The run was replaced, or the dataset compacted.
                Err(error) if self.retries > 0 && lost_file(&error) => {
                    self.retries -= 1;
                    self.session.list_again()?;
                    self.session.stream(&self.sql).map(|again| self.stream = again).err()
                }
                Err(error) => Some(error),
                Ok(batch) => {
                    self.retries = 0;
                    return Ok(batch);
                }
            };
            if let Some(error) = failed {
                return Err(self.session.failure(&self.sql, &error));
            }
        }
    }
}
