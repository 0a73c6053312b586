//! Tables of a dataset in a query sent to the scheduler: the directory, and the table's name. The
//! scheduler lists the files itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ballista_core::serde::BallistaLogicalExtensionCodec;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use heaptide_query::tables::Source;

use crate::dataset::DatasetTable;

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
        let unknown =
            || DataFusionError::Plan("this table does not belong to a dataset".to_owned());
        let end = bytes.iter().position(|&byte| byte == 0).ok_or_else(unknown)?;
        let (name, directory) = (&bytes[..end], &bytes[end + 1..]);
        let source = str::from_utf8(name).ok().and_then(Source::named).ok_or_else(unknown)?;
        let directory = Path::new(OsStr::from_bytes(directory));
        let failed = |error: &dyn std::fmt::Display| {
            DataFusionError::Plan(format!(
                "{error}; the scheduler must also be able to read the dataset"
            ))
        };
        match DatasetTable::open(directory, source) {
            Ok(Some(table)) => Ok(Arc::new(table)),
            Ok(None) => Err(failed(&format!("{}: no such dataset", directory.display()))),
            Err(error) => Err(failed(&error)),
        }
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
        bytes.extend(table.source().name.as_bytes());
        bytes.push(0);
        bytes.extend(table.directory().as_os_str().as_bytes());
        Ok(())
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
