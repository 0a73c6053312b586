//! The order of rows in compacted files: blocks of consecutive ranks, in each of which the rows are
//! sorted by owner, so that a condition on a rank skips the other blocks, and one on an owner most
//! row groups of each block.

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch, new_null_array};
use datafusion::arrow::compute::{concat_batches, interleave_record_batch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use heaptide_query::tables::Source;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::columns;
use crate::parquet::ROWS_PER_GROUP;

/// The column that blocks are sorted by.
const OWNER: &str = "owner";
/// Tables whose rows are in the order of events, which stays.
const IN_ORDER_OF_EVENTS: [&str; 2] = ["events", "lifetimes"];

/// Row groups of a block. More of them make a condition on an owner cheaper, and one on a rank more
/// expensive: each of the latter reads a block.
const GROUPS: usize = 4;
/// An upper bound of the memory that the rows of all blocks need that are sorted at the same time.
/// 400,000 rows of `sites` with stacks of 30 functions need about so much.
const BYTES: usize = 512 << 20;
/// The rows that are written at a time; smaller batches are merged.
const BATCH_ROWS: usize = 1 << 13;

/// Collects the rows of a block.
pub struct Blocks {
    bytes_max: usize,
    /// Complete batches.
    batches: Vec<RecordBatch>,
    /// Batches to be merged.
    small: Vec<RecordBatch>,
    small_rows: usize,
    rows: usize,
    bytes: usize,
    /// The addresses of buffers of `batches`: those of a file share texts.
    counted: FxHashSet<usize>,
    /// Columns without values, by type.
    nulls: FxHashMap<DataType, ArrayRef>,
}

impl Blocks {
    /// Returns an empty block for a table; `None` if the order of its rows stays. Up to `tables`
    /// tables are sorted at the same time.
    pub fn of_table(source: &Source, tables: usize) -> Option<Blocks> {
        is_sorted(source).then(|| Blocks::new(BYTES / tables.max(1)))
    }

    fn new(bytes_max: usize) -> Blocks {
        Blocks {
            bytes_max,
            batches: Vec::new(),
            small: Vec::new(),
            small_rows: 0,
            rows: 0,
            bytes: 0,
            counted: FxHashSet::default(),
            nulls: FxHashMap::default(),
        }
    }

    /// Adds the first rows of a batch, and returns the others if the block is full.
    ///
    /// Errors: those of Arrow, for columns with other types than before.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
        let room = (GROUPS * ROWS_PER_GROUP - self.rows).min(batch.num_rows());
        self.small.push(batch.slice(0, room));
        self.rows += room;
        self.small_rows += room;
        if self.small_rows >= BATCH_ROWS {
            self.merge()?;
        }
        let is_full = self.rows == GROUPS * ROWS_PER_GROUP || self.bytes >= self.bytes_max;
        Ok(is_full.then(|| batch.slice(room, batch.num_rows() - room)))
    }

    fn merge(&mut self) -> Result<(), ArrowError> {
        let Some(first) = self.small.first() else {
            return Ok(());
        };
        let merged = concat_batches(&first.schema(), &self.small)?;
        let rows = merged.num_rows();
        let columns = merged.columns().iter().map(|column| {
            if column.null_count() < rows {
                return column.clone();
            }
            // Many columns have no values; their rows share one array.
            let nulls = self.nulls.entry(column.data_type().clone());
            let nulls = nulls.or_insert_with(|| new_null_array(column.data_type(), rows));
            if nulls.len() < rows {
                *nulls = new_null_array(column.data_type(), rows);
            }
            nulls.slice(0, rows)
        });
        let merged = RecordBatch::try_new(merged.schema(), columns.collect())?;
        // Counted only now, because other batches can get the memory of small ones.
        for column in merged.columns() {
            self.bytes += new_bytes(&column.to_data(), &mut self.counted);
        }
        self.batches.push(merged);
        self.small.clear();
        self.small_rows = 0;
        Ok(())
    }

    /// Empties the block and returns its rows, sorted by owner; rows of one owner stay in order.
    ///
    /// Errors: as for [`Blocks::add`].
    pub fn sorted(
        &mut self,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>>, ArrowError> {
        self.merge()?;
        let Blocks { batches, .. } = std::mem::replace(self, Blocks::new(self.bytes_max));
        let mut places: BTreeMap<Option<&str>, Vec<(usize, usize)>> = BTreeMap::new();
        for (number, batch) in batches.iter().enumerate() {
            let owners = batch.column_by_name(OWNER).map(|column| column.as_string_view());
            for row in 0..batch.num_rows() {
                let owner = owners.filter(|of| of.is_valid(row)).map(|of| of.value(row));
                places.entry(owner).or_default().push((number, row));
            }
        }
        let places: Vec<(usize, usize)> = places.into_values().flatten().collect();
        let count = places.len().div_ceil(BATCH_ROWS);
        Ok((0..count).map(move |at| {
            let end = places.len().min((at + 1) * BATCH_ROWS);
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            interleave_record_batch(&batches, &places[at * BATCH_ROWS..end])
        }))
    }
}

/// Returns whether a table is sorted by owner.
pub fn is_sorted(source: &Source) -> bool {
    let has_owner = columns::schema(source).index_of(OWNER).is_ok();
    has_owner && !IN_ORDER_OF_EVENTS.contains(&source.name)
}

/// Returns the size of the buffers of a column that are not counted yet.
fn new_bytes(data: &ArrayData, counted: &mut FxHashSet<usize>) -> usize {
    let mut bytes = 0;
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    for buffer in data.buffers().iter().chain(nulls) {
        if counted.insert(buffer.data_ptr().as_ptr().addr()) {
            bytes += buffer.capacity();
        }
    }
    bytes + data.child_data().iter().map(|child| new_bytes(child, counted)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, StringViewArray, UInt32Array};
    use datafusion::arrow::compute::take;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn batch(rows: &[(Option<&str>, i64)]) -> RecordBatch {
        let owners: StringViewArray = rows.iter().map(|(owner, _)| *owner).collect();
        let ranks: Int64Array = rows.iter().map(|(_, rank)| *rank).collect();
        let columns = [(OWNER, Arc::new(owners) as ArrayRef), ("rank", Arc::new(ranks))];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    fn rows(batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>) -> Vec<String> {
        let mut rows = Vec::new();
        for batch in batches {
            let batch = batch.expect("a batch");
            let (owners, ranks) = (batch.column(0).as_string_view(), batch.column(1));
            let ranks = ranks.as_primitive::<Int64Type>();
            let row =
                |(owner, rank): (Option<&str>, &i64)| format!("{}{rank}", owner.unwrap_or("-"));
            rows.extend(owners.iter().zip(ranks.values()).map(row));
        }
        rows
    }

    #[test]
    fn rows_of_a_block_are_sorted_by_owner_and_ranks_stay_in_order() {
        let mut block = Blocks::new(BYTES);
        let long = "an owner whose name does not fit into a view";
        for part in [
            batch(&[(Some("b"), 1), (None, 1), (Some(long), 1)]),
            batch(&[(Some("b"), 2), (Some("a"), 2)]),
            batch(&[(Some(long), 10), (None, 10), (Some("a"), 10)]),
        ] {
            assert_eq!(block.add(&part).expect("to add it"), None);
        }
        let sorted = rows(block.sorted().expect("rows"));
        let of_long = [1, 10].map(|rank| format!("{long}{rank}"));
        assert_eq!(sorted, ["-1", "-10", "a2", "a10", &of_long[0], &of_long[1], "b1", "b2"]);
        assert_eq!(rows(block.sorted().expect("no rows")), [""; 0]);
    }

    #[test]
    fn a_block_has_four_row_groups() {
        let all: Vec<(Option<&str>, i64)> =
            (0..3 * ROWS_PER_GROUP).map(|row| (Some("a"), row as i64)).collect();
        let (part, mut block) = (batch(&all), Blocks::new(BYTES));
        assert_eq!(block.add(&part).expect("to add it"), None);
        let rest = block.add(&part).expect("to add it").expect("other rows");
        assert_eq!(rest.num_rows(), 2 * ROWS_PER_GROUP);
        assert_eq!(rows(block.sorted().expect("rows")).len(), 4 * ROWS_PER_GROUP);
    }

    /// Returns how many batches of `BATCH_ROWS` a block of this size gets.
    fn filled(bytes_max: usize, of: impl Fn() -> RecordBatch) -> usize {
        let mut block = Blocks::new(bytes_max);
        let is_full = |_: &usize| block.add(&of()).expect("to add it").is_some();
        (1..).find(is_full).expect("a full block")
    }

    #[test]
    fn the_memory_of_a_block_is_limited_although_batches_are_merged() {
        const ROW_BYTES: usize = 24; // a view and a number
        let rows = [(Some("a"), 1); BATCH_ROWS];
        assert_eq!(filled(10 * BATCH_ROWS * ROW_BYTES, || batch(&rows)), 10);
        // The memory of small batches is free again when they are merged.
        let small = || batch(&rows[..BATCH_ROWS / 8]);
        assert_eq!(filled(10 * BATCH_ROWS * ROW_BYTES, small), 80);
    }

    #[test]
    fn texts_that_rows_share_and_columns_without_values_need_memory_once() {
        let long = StringViewArray::from(vec!["o".repeat(1 << 20)]);
        let places = UInt32Array::from(vec![0; BATCH_ROWS]);
        let owners = take(&long, &places, None).expect("texts");
        let nulls = Arc::new(Int64Array::new_null(BATCH_ROWS)) as ArrayRef;
        let columns = [(OWNER, owners), ("line", nulls.clone()), ("size", nulls)];
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        // 1 MiB of text, 65 KiB without values, and 128 KiB of views for two halves.
        assert_eq!(filled(2 << 20, || batch.slice(0, BATCH_ROWS / 2)), 16);
    }
}
