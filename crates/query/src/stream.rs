//! Records in batches, the input of queries and of other engines.

use std::sync::{Arc, Mutex, PoisonError};

use crate::table::Table;

/// Rows of a batch: few enough for a processor's cache.
const ROWS: usize = 1 << 14;

/// Creates a batch's table, on any thread.
pub type Make<'a> = Box<dyn FnOnce() -> Table + Send + 'a>;

/// Records in batches, in order.
///
/// One thread at a time takes the next batch. Any thread can convert a batch to a table, which is
/// most of the work. All batches have the attributes of [`Stream::template`], and share its nodes
/// and texts, so that data derived from those is valid for every batch.
///
/// ```
/// use heaptide_query::stream::Stream;
/// use heaptide_query::table::Table;
/// let mut table = Table::default();
/// (0..3).for_each(|_| { table.add_row(); });
/// let mut stream = Stream::of(table);
/// let batch = stream.next().unwrap();
/// assert_eq!((batch.first, batch.table().rows()), (0, 3));
/// assert!(stream.next().is_none());
/// ```
pub struct Stream<'a> {
    template: Table,
    supply: Box<dyn FnMut() -> Option<(usize, Make<'a>)> + Send + 'a>,
    rows: u64,
    notes: Notes,
}

/// Notes that arise while a stream is read, about the completeness of its records. They outlive the
/// stream.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, notes: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
    }

    /// Returns the notes so far, one line each.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Consecutive records.
pub struct Batch<'a> {
    /// The number of the first record, from 0.
    pub first: u64,
    make: Make<'a>,
}

impl Batch<'_> {
    /// Returns the records as a table.
    pub fn table(self) -> Table {
        (self.make)()
    }
}

impl<'a> Stream<'a> {
    /// Streams the records of a table.
    pub fn of(table: Table) -> Stream<'a> {
        Stream::in_batches(table, ROWS)
    }

    /// Streams the records of a table in batches of `rows` rows.
    pub fn in_batches(table: Table, rows: usize) -> Stream<'a> {
        let mut template = table.without_rows();
        template.globals.clone_from(&table.globals);
        let (table, mut at) = (Arc::new(table), 0usize);
        let supply = move || {
            let part = at..table.rows().min(at.saturating_add(rows.max(1)));
            at = part.end;
            let table = table.clone();
            (!part.is_empty())
                .then(|| (part.len(), Box::new(move || table.slice(part)) as Make<'a>))
        };
        Stream::new(template, supply)
    }

    /// Creates a stream from an iterator of batches: the number of rows, and the function that
    /// creates the table.
    pub fn new(
        template: Table,
        supply: impl FnMut() -> Option<(usize, Make<'a>)> + Send + 'a,
    ) -> Stream<'a> {
        Stream { template, supply: Box::new(supply), rows: 0, notes: Notes::default() }
    }

    pub(crate) fn with_notes(self, notes: Notes) -> Stream<'a> {
        Stream { notes, ..self }
    }

    /// Returns notes about the records, for the user, after they were read.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Returns a table without records that has the attributes, nodes, texts and global values of
    /// all batches.
    pub fn template(&self) -> &Table {
        &self.template
    }
}

impl<'a> Iterator for Stream<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let (rows, make) = (self.supply)()?;
        let first = self.rows;
        self.rows += rows as u64;
        Some(Batch { first, make })
    }
}
