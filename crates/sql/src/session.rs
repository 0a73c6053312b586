//! The engine with the tables and functions of this project in it.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use heaptide_command::error::Error;
use heaptide_query::tables::Source;
use tokio::runtime::Runtime;

use crate::dataset::DatasetTable;
use crate::explain::explain;
use crate::functions::FUNCTIONS;
use crate::recordings::{Part, RecordedTable};

/// The engine.
pub struct Session {
    runtime: Runtime,
    context: SessionContext,
}

impl Session {
    /// An engine without tables.
    ///
    /// Errors: its threads cannot be started.
    pub fn new() -> Result<Session, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().build();
        let failed = |e| Error::new(format!("cannot start threads: {e}"));
        let runtime = runtime.map_err(failed)?;
        let mut config = SessionConfig::new().with_information_schema(true);
        config.options_mut().sql_parser.collect_spans = true;
        let context = SessionContext::new_with_config(config);
        for function in FUNCTIONS {
            context.register_udf(function.udf());
        }
        Ok(Session { runtime, context })
    }

    /// The same with the tables of process images.
    pub fn from_parts(parts: Vec<Part>) -> Result<Session, Error> {
        let (session, parts) = (Session::new()?, Arc::new(parts));
        for source in Source::all() {
            let table = Arc::new(RecordedTable::new(source, parts.clone()));
            let added = session.context.register_table(source.name, table);
            added.map_err(|error| explain("", &error))?;
        }
        Ok(session)
    }

    /// The same with the tables of a dataset.
    ///
    /// Errors: it is none, or cannot be read.
    pub fn from_dataset(directory: &Path) -> Result<Session, Error> {
        let (session, mut any) = (Session::new()?, false);
        for source in Source::all() {
            if let Some(table) = DatasetTable::open(directory, source)? {
                let added = session.context.register_table(source.name, Arc::new(table));
                added.map_err(|error| explain("", &error))?;
                any = true;
            }
        }
        let path = directory.display();
        if any {
            return Ok(session);
        }
        Err(Error::new(format!(
            "{path}: no dataset; `heaptide export --format parquet -o {path}` writes one"
        )))
    }

    /// Begins to answer a statement. What changes files is refused.
    ///
    /// Errors: those of the statement, with their place in it.
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>, Error> {
        let allowed = SQLOptions::new().with_allow_dml(false);
        let plan = async {
            let frame = self.context.sql_with_options(sql, allowed).await?;
            frame.execute_stream().await
        };
        let stream = self.runtime.block_on(plan).map_err(|error| explain(sql, &error))?;
        Ok(Answer { session: self, sql: sql.to_owned(), stream })
    }
}

/// An answer as it comes.
pub struct Answer<'a> {
    session: &'a Session,
    sql: String,
    stream: SendableRecordBatchStream,
}

impl Answer<'_> {
    /// Its columns.
    pub fn schema(&self) -> datafusion::arrow::datatypes::SchemaRef {
        self.stream.schema()
    }

    /// The next records.
    ///
    /// Errors: those of the statement that only its execution meets.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        let next = self.session.runtime.block_on(futures::StreamExt::next(&mut self.stream));
        next.transpose().map_err(|error| explain(&self.sql, &error))
    }
}
