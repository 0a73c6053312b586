//! Tables of a dataset in a query sent to the scheduler: the table's name, the directory, and the
//! files, so that all tables of a query have the same runs while exports add others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ballista_core::serde::BallistaLogicalExtensionCodec;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use heaptide_query::tables::Source;

use crate::catalog::DataFile;
use crate::dataset::DatasetTable;
use crate::layout::Place;
use crate::pruning::PlaceFilter;

/// Encodes tables of datasets, and everything that Ballista encodes itself.
#[derive(Debug, Default)]
pub struct Tables {
    others: BallistaLogicalExtensionCodec,
}

impl LogicalExtensionCodec for Tables {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension, DataFusionError> {
        self.others.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, bytes: &mut Vec<u8>) -> Result<(), DataFusionError> {
        self.others.try_encode(node, bytes)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _name: &TableReference,
        _schema: SchemaRef,
        _context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        decode(bytes).map(|table| Arc::new(table) as Arc<dyn TableProvider>).ok_or_else(|| {
            DataFusionError::Plan("this table does not belong to a dataset".to_owned())
        })
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        node: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), DataFusionError> {
        let Some(table) = node.downcast_ref::<DatasetTable>() else {
            return self.others.try_encode_table_provider(name, node, bytes);
        };
        encode(table, bytes)
    }

    fn try_decode_file_format(
        &self,
        bytes: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn FileFormatFactory>, DataFusionError> {
        self.others.try_decode_file_format(bytes, context)
    }

    fn try_encode_file_format(
        &self,
        bytes: &mut Vec<u8>,
        node: Arc<dyn FileFormatFactory>,
    ) -> Result<(), DataFusionError> {
        self.others.try_encode_file_format(bytes, node)
    }
}

/// Encodes a table: its name, the absolute path of its directory, and a record for each file, each
/// of which ends with 0.
fn encode(table: &DatasetTable, bytes: &mut Vec<u8>) -> Result<(), DataFusionError> {
    let directory = std::path::absolute(table.directory())?;
    let mut add = |text: &[u8]| {
        bytes.extend(text);
        bytes.push(0);
    };
    add(table.source().name.as_bytes());
    add(directory.as_os_str().as_bytes());
    let place = directory.join(table.source().name);
    for file in table.checked(&PlaceFilter::none())?.iter() {
        let path = std::path::absolute(&file.path)?;
        let path = path.strip_prefix(&place).unwrap_or(&path);
        let modified = file.modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let rows = file.rows.map_or("-".to_owned(), |rows| rows.to_string());
        add(format!("{} {modified} {rows}", file.bytes).as_bytes());
        add(path.as_os_str().as_bytes());
    }
    Ok(())
}

/// Decodes a table; `None` for other bytes.
fn decode(bytes: &[u8]) -> Option<DatasetTable> {
    let mut texts = bytes.strip_suffix(&[0])?.split(|&byte| byte == 0);
    let source = Source::named(str::from_utf8(texts.next()?).ok()?)?;
    let directory = Path::new(OsStr::from_bytes(texts.next()?));
    let place = directory.join(source.name);
    let mut files = Vec::new();
    while let Some(numbers) = texts.next() {
        let path = Path::new(OsStr::from_bytes(texts.next()?));
        let mut numbers = str::from_utf8(numbers).ok()?.split(' ');
        let bytes = numbers.next()?.parse().ok()?;
        let modified = UNIX_EPOCH + Duration::from_nanos(numbers.next()?.parse().ok()?);
        files.push(DataFile {
            path: place.join(path),
            place: Place::of_path(path.to_str()?),
            bytes,
            modified,
            is_listed: true, // the client has checked it
            rows: numbers.next()?.parse().ok(),
            row: None,
        });
    }
    Some(DatasetTable::of_client(directory, source, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_decoded_as_it_was_encoded() {
        let path = Path::new("run=a%20b/host=n/rank=3/pid=1/image-0.parquet");
        let file = |path: &Path, bytes, rows| DataFile {
            path: Path::new("/heap/sites").join(path),
            place: Place::of_path(path.to_str().expect("UTF-8")),
            bytes,
            modified: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
            is_listed: true,
            rows,
            row: None,
        };
        let files = vec![file(path, 99, Some(7)), file(Path::new("part-00000.parquet"), 0, None)];
        let sites = Source::named("sites").expect("a table");
        let table = DatasetTable::of_client(Path::new("/heap"), sites, files.clone());
        let mut bytes = Vec::new();
        encode(&table, &mut bytes).expect("bytes");
        let read = |table: &DatasetTable| table.checked(&PlaceFilter::none()).expect("files");
        let decoded = decode(&bytes).expect("a table");
        assert_eq!(decoded.directory(), Path::new("/heap"));
        assert_eq!(*read(&decoded), files);
        for length in 0..bytes.len() - 1 {
            let part = decode(&bytes[..length]);
            assert!(part.is_none_or(|table| read(&table).len() < 2), "{length}");
        }
        assert!(decode(b"nothing\0/heap\0").is_none());
    }
}
