//! The SQL engine with the tables and functions of this project.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use heaptide_command::error::Error;
use heaptide_query::tables::Source;
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, VERSION};
use crate::dataset::DatasetTable;
use crate::dataset_file;
use crate::explain::{explain, lost_executor};
use crate::functions::FUNCTIONS;
use crate::recordings::{Part, RecordedTable};

/// How often a statement is sent to a cluster again if an executor was lost with results that had
/// not been fetched.
const RETRIES_MAX: usize = 3;

/// The engine.
pub struct Session {
    runtime: Runtime,
    context: SessionContext,
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
        Ok(Session { runtime, context, cluster: None }.with_functions())
    }

    /// Creates an engine without tables, which runs queries on the cluster of this scheduler.
    ///
    /// Errors: the scheduler cannot be reached, or has another version.
    fn on_cluster(address: &str) -> Result<Session, Error> {
        let runtime = runtime()?;
        let (cluster, context) = runtime.block_on(async {
            let cluster = Cluster::connect(address, VERSION).await?;
            let context = cluster.context(VERSION).await.map_err(|error| explain("", &error))?;
            Ok::<_, Error>((cluster, context))
        })?;
        Ok(Session { runtime, context, cluster: Some(cluster) }.with_functions())
    }

    fn with_functions(self) -> Session {
        for function in FUNCTIONS {
            self.context.register_udf(function.udf());
        }
        self
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
    /// this scheduler.
    ///
    /// Errors: it is no dataset, or cannot be read; the cluster cannot be used.
    pub fn from_dataset(directory: &Path, cluster: Option<&str>) -> Result<Session, Error> {
        dataset_file::check(directory)?;
        let mut tables = Vec::new();
        for source in Source::all() {
            tables.extend(DatasetTable::open(directory, source)?.map(|table| (source, table)));
        }
        if tables.is_empty() {
            let path = directory.display();
            return Err(Error::new(format!(
                "{path}: no dataset; `heaptide export --format parquet -o {path}` writes one"
            )));
        }
        let session = cluster.map_or_else(Session::new, Session::on_cluster)?;
        for (source, table) in tables {
            let added = session.context.register_table(source.name, Arc::new(table));
            added.map_err(|error| explain("", &error))?;
        }
        Ok(session)
    }

    /// Starts to run a statement. Statements that modify data are rejected.
    ///
    /// Errors: those of the statement, with their location in it.
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>, Error> {
        if let Some(cluster) = &self.cluster {
            self.runtime.block_on(cluster.ready())?;
        }
        let stream = self.stream(sql).map_err(|error| explain(sql, &error))?;
        let retries = if self.cluster.is_some() { RETRIES_MAX } else { 0 };
        Ok(Answer { session: self, sql: sql.to_owned(), stream, retries })
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
                Err(error) => Some(error),
                Ok(batch) => {
                    self.retries = 0;
                    return Ok(batch);
                }
            };
            if let Some(error) = failed {
                return Err(explain(&self.sql, &error));
            }
        }
    }
}
