//! Records in batches: what a query is evaluated on, and what other engines can read.

use std::sync::{Arc, Mutex, PoisonError};

use crate::table::Table;

/// Rows of a batch: few enough for a processor's cache.
const ROWS: usize = 1 << 14;

/// Makes a batch's table, on any thread.
pub type Make<'a> = Box<dyn FnOnce() -> Table + Send + 'a>;

/// Records in batches, in order.
///
/// One thread at a time takes the next batch; what it takes can be made a table on any thread, and
/// that is where most of the work is. All batches have the attributes of [`Stream::template`], and
/// share its nodes and texts, so that what is made of those once holds for every batch.
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

/// What turns out while a stream is read: how complete its records are. It can be asked when the
/// stream is gone.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, notes: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
    }

    /// The notes so far, a line each.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Some records, one after the other.
pub struct Batch<'a> {
    /// The number of the first of them, from 0.
    pub first: u64,
    make: Make<'a>,
}

impl Batch<'_> {
    /// The records as a table.
    pub fn table(self) -> Table {
        (self.make)()
    }
}

impl<'a> Stream<'a> {
    /// The records of a table.
    pub fn of(table: Table) -> Stream<'a> {
        Stream::in_batches(table, ROWS)
    }

    /// The same with so many rows in each batch.
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

    /// Batches as they are supplied: how many rows, and what makes their table.
    pub fn new(
        template: Table,
        supply: impl FnMut() -> Option<(usize, Make<'a>)> + Send + 'a,
    ) -> Stream<'a> {
        Stream { template, supply: Box::new(supply), rows: 0, notes: Notes::default() }
    }

    pub(crate) fn with_notes(self, notes: Notes) -> Stream<'a> {
        Stream { notes, ..self }
    }

    /// What a person should know of the records, once they are read.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// What the tables of all batches are like: their attributes, nodes and texts, and what holds
    /// for all records. It has no records.
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
