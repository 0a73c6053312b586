//! Recordings as tables of the engine: reads one process at a time, only the needed columns, in
//! batches.

use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::Expr;
use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::threads;
use heaptide_command::error::Error;
use heaptide_query::tables::{self, Source, Wanted};

use crate::arrays;
use crate::columns;

/// The most batches waiting for the engine.
const WAITING: usize = 4;

/// One process image.
#[derive(Debug)]
pub struct Part {
    /// The name of its recording.
    pub run: String,
    /// A recording that contains only this image.
    recording: [Recording; 1],
}

impl Part {
    /// Passes the records of a table to `take`, in order, until it stops. All processors create
    /// batches.
    ///
    /// Errors: the data was not recorded; those of Arrow, and of `take`.
    pub fn read(
        &self,
        source: &Source,
        schema: &SchemaRef,
        take: impl FnMut(RecordBatch) -> Result<Go, DataFusionError> + Send,
    ) -> Result<Go, DataFusionError> {
        let stream = source.stream(&self.recording, &self.wanted(schema));
        let stream = stream
            .map_err(|error| DataFusionError::Execution(format!("{}: {error}", source.name)))?;
        let supply = Mutex::new((0..).zip(stream));
        let turns =
            Turns { turn: Mutex::new(Turn { next: 0, take, ended: None }), next: Condvar::new() };
        let work = || {
            while let Some((number, batch)) = locked(&supply).next() {
                let table = batch.table();
                let made = arrays::batch(&table, &self.run, schema, 0..table.rows());
                if turns.hand_on(number, made) == Go::Stop {
                    break;
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        threads::together(threads, work);
        let turn = turns.turn.into_inner().unwrap_or_else(PoisonError::into_inner);
        turn.ended.map_or(Ok(Go::On), |ended| ended.map(|()| Go::Stop))
    }
}

impl Part {
    /// Returns its tables.
    pub fn process(&self) -> Option<&Process> {
        self.recording[0].processes.first()
    }

    /// Returns whether the table exists for it: some need a trace.
    pub fn has(&self, source: &Source) -> bool {
        let traced = || self.process().is_some_and(Process::has_trace);
        !columns::needs_trace(source) || traced()
    }

    /// Returns the columns to fill for a schema.
    fn wanted(&self, schema: &SchemaRef) -> Wanted {
        let mut names: Vec<String> =
            schema.fields().iter().map(|field| field.name().clone()).collect();
        if names.iter().any(|name| name == columns::SCOPES) {
            let scopes = self.process().into_iter().flat_map(|process| &process.tables.scopes);
            let iterations = scopes.filter(|of| of.attribute.starts_with(columns::ITERATION));
            names.extend(iterations.map(|scope| scope.attribute.to_string()));
        }
        Wanted::of_names(names)
    }
}

/// Passes batches on in the order of their numbers, regardless of the threads that created them.
struct Turns<F> {
    turn: Mutex<Turn<F>>,
    next: Condvar,
}

struct Turn<F> {
    /// The number of the next batch.
    next: usize,
    take: F,
    /// The reason to stop.
    ended: Option<Result<(), DataFusionError>>,
}

impl<F: FnMut(RecordBatch) -> Result<Go, DataFusionError>> Turns<F> {
    fn hand_on(&self, number: usize, batch: Result<RecordBatch, ArrowError>) -> Go {
        let mut turn = locked(&self.turn);
        while turn.next != number {
            turn = self.next.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        if turn.ended.is_none() {
            turn.ended = match batch.map_err(DataFusionError::from).and_then(|b| (turn.take)(b)) {
                Ok(Go::On) => None,
                Ok(Go::Stop) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
        }
        turn.next += 1;
        self.next.notify_all();
        if turn.ended.is_some() { Go::Stop } else { Go::On }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Continue.
    On,
    /// Stop.
    Stop,
}

/// Returns the process images of recordings. Merged recordings have the names of their parts; equal
/// names get a number.
pub fn parts(recordings: Vec<Recording>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (number, recording) in (1..).zip(recordings) {
        let Recording { path, sealed, processes, .. } = recording;
        for process in processes {
            let of = process.identity.run.as_ref();
            let name = of.map_or_else(|| stem(&path), |run| stem(Path::new(&run.recording)));
            let key = (number, of.map_or(0, |run| run.number));
            let recording = Recording {
                path: path.clone(),
                sealed,
                processes: vec![process],
                ..Recording::default()
            };
            parts.push((key, Part { run: name, recording: [recording] }));
        }
    }
    let keys: Vec<_> = parts.iter().map(|(key, part)| (*key, part.run.clone())).collect();
    let shared = |name: &str, key| keys.iter().any(|(other, of)| of == name && *other != key);
    let numbered = |(key, part): (_, Part)| {
        if shared(&part.run, key) {
            Part { run: format!("{}-{}", part.run, number_of(key)), ..part }
        } else {
            part
        }
    };
    parts.into_iter().map(numbered).collect()
}

/// Returns the number that distinguishes a recording from others with its name.
fn number_of((number, merged): (u32, u32)) -> String {
    if merged == 0 { number.to_string() } else { format!("{number}.{merged}") }
}

/// Returns the name of a recording without `.heaptide`.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.strip_suffix(".heaptide").unwrap_or(&name);
    if name.is_empty() { "recording".to_owned() } else { name.to_owned() }
}

/// A table of process images.
#[derive(Debug)]
pub struct RecordedTable {
    source: &'static Source,
    parts: Arc<Vec<Part>>,
    schema: SchemaRef,
}

impl RecordedTable {
    /// Creates the table of these images.
    pub fn new(source: &'static Source, parts: Arc<Vec<Part>>) -> RecordedTable {
        RecordedTable { source, parts, schema: columns::schema(source) }
    }
}

#[async_trait::async_trait]
impl TableProvider for RecordedTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let (source, parts) = (self.source, self.parts.clone());
        if let Some(first) = parts.first().filter(|_| !parts.iter().any(|part| part.has(source))) {
            let path = first.recording[0].path.display();
            let error = Error::new(format!("{path}: {}", tables::Error::NoTrace));
            return Err(DataFusionError::External(error.into()));
        }
        let scan = Scan { source, parts, schema: schema.clone() };
        let scan: Arc<dyn PartitionStream> = Arc::new(scan);
        let exec = StreamingTableExec::try_new(schema, vec![scan], None, None, false, limit)?;
        Ok(Arc::new(exec))
    }
}

/// A scan of some columns of a table.
#[derive(Debug)]
struct Scan {
    source: &'static Source,
    parts: Arc<Vec<Part>>,
    schema: SchemaRef,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), WAITING);
        let (source, parts, schema) = (self.source, self.parts.clone(), self.schema.clone());
        let batches = stream.tx();
        stream.spawn_blocking(move || {
            for part in parts.iter() {
                // The receiver closes the channel when it needs no more.
                let take = |batch| match batches.blocking_send(Ok(batch)) {
                    Ok(()) => Ok(Go::On),
                    Err(_) => Ok(Go::Stop),
                };
                if part.read(source, &schema, take)? == Go::Stop {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_the_name_of_its_directory() {
        assert_eq!(stem(Path::new("a/app.heaptide")), "app");
        assert_eq!(stem(Path::new("app.7.heaptide/")), "app.7");
        assert_eq!(stem(Path::new(".heaptide")), "recording");
    }
}
