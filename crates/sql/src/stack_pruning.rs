//! Conditions on stacks, so that row groups without a matching function are not read: the functions
//! of a row group are the dictionary of its column, which is small.

use std::fs::File;
use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::parquet::basic::{Encoding, Type};
use datafusion::parquet::column::page::Page;
use datafusion::parquet::file::metadata::ColumnChunkMetaData;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use datafusion::prelude::Expr;
use regex::Regex;

use crate::catalog::{DataFile, for_each};
use crate::functions::stack_condition;

/// Files with fewer rows are decoded about as fast as their dictionaries.
const ROWS_MIN: u64 = 1 << 11;

/// Returns whether a condition is `stack_contains` of a column.
pub fn is_about_stacks(condition: &Expr) -> bool {
    stack_condition(condition).is_some()
}

/// A file with the row groups to read.
#[derive(Debug)]
pub struct Scanned<'a> {
    pub file: &'a DataFile,
    /// `None` for all of them.
    pub groups: Option<ParquetAccessPlan>,
}

impl Scanned<'_> {
    /// Returns a file all of whose row groups are read.
    pub fn whole(file: &DataFile) -> Scanned<'_> {
        Scanned { file, groups: None }
    }

    /// Returns the files that can have matching rows, in the same order.
    ///
    /// Errors: threads cannot be started.
    pub fn of_stacks<'a>(
        files: &'a [DataFile],
        filter: &StackFilter,
    ) -> Result<Vec<Scanned<'a>>, DataFusionError> {
        let files: Vec<(usize, &DataFile)> = files.iter().enumerate().collect();
        let scanned = for_each(&files, |&(number, file)| {
            let is_small = file.rows.is_some_and(|rows| rows < ROWS_MIN);
            // A damaged file is reported when it is read.
            let groups = if is_small { None } else { filter.groups(&file.path) };
            Ok((number, Scanned { file, groups }))
        });
        let mut scanned = scanned.map_err(|error| DataFusionError::External(error.into()))?;
        scanned.sort_by_key(|(number, _)| *number);
        let is_read = |of: &Scanned<'_>| {
            of.groups.as_ref().is_none_or(|groups| groups.row_group_index_iter().next().is_some())
        };
        Ok(scanned.into_iter().map(|(_, of)| of).filter(is_read).collect())
    }
}

/// Conditions on stacks, all of which the rows of a query fulfil.
#[derive(Debug)]
pub struct StackFilter(Vec<(String, Regex)>);

impl StackFilter {
    /// Returns the filter for those of the conditions that are about stacks; `None` without such.
    pub fn new(conditions: &[Expr]) -> Option<StackFilter> {
        let conditions = conditions.iter().filter_map(stack_condition);
        let conditions = conditions.map(|(column, regex)| (column.to_owned(), regex));
        let conditions: Vec<_> = conditions.collect();
        (!conditions.is_empty()).then_some(StackFilter(conditions))
    }

    /// Returns the row groups of a file that can have matching rows; `None` for all, or if it
    /// cannot be read.
    fn groups(&self, path: &Path) -> Option<ParquetAccessPlan> {
        let reader = SerializedFileReader::new(File::open(path).ok()?).ok()?;
        let mut groups = ParquetAccessPlan::new_all(reader.num_row_groups());
        let mut is_whole = true;
        for (column, regex) in &self.0 {
            let leaves = reader.metadata().file_metadata().schema_descr().columns();
            let is_own = |&leaf: &usize| leaves[leaf].path().parts().first() == Some(column);
            let Some(leaf) = (0..leaves.len()).find(is_own) else {
                continue; // NULL in all rows
            };
            for group in 0..reader.num_row_groups() {
                if groups.should_scan(group) && !can_match(&reader, group, leaf, regex) {
                    groups.skip(group);
                    is_whole = false;
                }
            }
        }
        (!is_whole).then_some(groups)
    }
}

/// Returns whether a text of a column in a row group matches, or the texts are not known.
fn can_match(
    reader: &SerializedFileReader<File>,
    group: usize,
    leaf: usize,
    regex: &Regex,
) -> bool {
    let column = reader.metadata().row_group(group).column(leaf);
    if column.column_type() != Type::BYTE_ARRAY || !is_all_in_dictionary(column) {
        return true;
    }
    let first = reader
        .get_row_group(group)
        .and_then(|group| group.get_column_page_reader(leaf))
        .and_then(|mut pages| pages.get_next_page());
    let Ok(Some(Page::DictionaryPage { buf, num_values, encoding, .. })) = first else {
        return true;
    };
    if ![Encoding::PLAIN, Encoding::PLAIN_DICTIONARY].contains(&encoding) {
        return true;
    }
    let mut rest = &*buf;
    for _ in 0..num_values {
        match first_text(&mut rest) {
            Some(text) if !regex.is_match(text) => {}
            _ => return true,
        }
    }
    false
}

/// Returns whether all texts of a column in a row group are in its dictionary. If they are too
/// many, the writer writes the last ones directly.
fn is_all_in_dictionary(column: &ColumnChunkMetaData) -> bool {
    let encodings = column.page_encoding_stats_mask();
    column.dictionary_page_offset().is_some()
        && encodings.is_some_and(|of| {
            of.is_only(Encoding::RLE_DICTIONARY) || of.is_only(Encoding::PLAIN_DICTIONARY)
        })
}

/// Takes the next text of a dictionary: four bytes with its length precede it.
fn first_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (text, after) = after.split_at_checked(length)?;
    *rest = after;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, ListBuilder, RecordBatch, StringBuilder};
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::parquet::file::properties::WriterProperties;
    use datafusion::prelude::{col, lit};
    use heaptide_fixtures::Scratch;

    use super::*;
    use crate::functions::FUNCTIONS;

    /// Returns the conditions that stacks have functions that match these regexes.
    fn conditions(regexes: &[&str]) -> Vec<Expr> {
        let function = FUNCTIONS.iter().find(|of| of.name() == "stack_contains");
        let function = function.expect("a function").udf();
        regexes.iter().map(|regex| function.call(vec![col("stack"), lit(*regex)])).collect()
    }

    /// Writes a file with row groups of two stacks each, and dictionaries of up to this size.
    fn file(path: &Path, stacks: &[Option<&[&str]>], dictionary_bytes_max: usize) {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for stack in stacks {
            match stack {
                Some(functions) => lists.append_value(functions.iter().map(Some)),
                None => lists.append_null(),
            }
        }
        let column = Arc::new(lists.finish()) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("stack", column)]).expect("a batch");
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(2))
            .set_write_batch_size(1)
            .set_data_page_row_count_limit(1)
            .set_dictionary_page_size_limit(dictionary_bytes_max)
            .build();
        let out = File::create(path).expect("a file");
        let writer = ArrowWriter::try_new(out, batch.schema(), Some(properties));
        let mut writer = writer.expect("a writer");
        writer.write(&batch).expect("rows");
        writer.close().expect("a file");
    }

    #[test]
    fn row_groups_without_a_matching_function_are_skipped() {
        let place = Scratch::new("functions of row groups");
        let path = place.join("a.parquet");
        let stacks: [Option<&[&str]>; 8] = [
            Some(&["main", "parse"]),
            None,
            Some(&["main", "lex"]),
            Some(&["main"]),
            None,
            None,
            Some(&[]),
            Some(&["a function whose name is long", "parse"]),
        ];
        let read = |regexes: &[&str]| -> Vec<usize> {
            let filter = StackFilter::new(&conditions(regexes)).expect("a filter");
            match filter.groups(&path) {
                Some(groups) => groups.row_group_indexes(),
                None => (0..4).collect(),
            }
        };
        file(&path, &stacks, 1 << 20);
        assert_eq!(read(&["^parse$"]), [0, 3]);
        assert_eq!(read(&["ain"]), [0, 1]);
        assert_eq!(read(&["LEX"]), [0; 0]);
        assert_eq!(read(&["(?i)LEX"]), [1]);
        assert_eq!(read(&["name is", "par"]), [3]);
        assert_eq!(read(&[""]), [0, 1, 3]); // the third group has no function
        // The first stack of a group fills the dictionary, so the second one is not in it.
        file(&path, &stacks, 1);
        assert_eq!(read(&["LEX"]), [0, 1]);
        std::fs::write(&path, "PAR1 damaged PAR1").expect("a file");
        assert_eq!(read(&["LEX"]), [0, 1, 2, 3]);
        assert!(StackFilter::new(&[]).is_none());
        assert!(StackFilter::new(&conditions(&["("])).is_none());
    }
}
