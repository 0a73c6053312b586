//! Checks of Parquet files: a file that was truncated, or is something else, is reported with its
//! path.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use heaptide_analysis::files::input;

/// What a file begins and ends with.
const MAGIC: [u8; 4] = *b"PAR1";
/// The magic, a length, and the magic again.
const BYTES_MIN: u64 = 12;

/// Checks that a file has the beginning and the end of a Parquet file.
///
/// Errors: it has not, or cannot be read.
pub fn check_ends(path: &Path) -> Result<(), String> {
    let mut file = opened(path)?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    if bytes < BYTES_MIN {
        return Err(format!("is damaged: {bytes} bytes, expected a Parquet file"));
    }
    let (mut first, mut last) = ([0; 4], [0; 4]);
    let read = file.read_exact(&mut first).and_then(|()| {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut last)
    });
    read.map_err(|error| error.to_string())?;
    if first == MAGIC && last == MAGIC {
        return Ok(());
    }
    Err("is damaged: expected a Parquet file, which begins and ends with PAR1".to_owned())
}

/// Checks the metadata of a file.
///
/// Errors: they cannot be decoded, or the file cannot be read.
pub fn check_metadata(path: &Path) -> Result<(), String> {
    metadata(path).map(drop)
}

/// Checks that all columns of a file can be decoded.
///
/// Errors: they cannot, or the file cannot be read.
pub fn check_content(path: &Path) -> Result<(), String> {
    let reader = metadata(path)?.build().map_err(|error| format!("is damaged: {error}"))?;
    for batch in reader {
        batch.map_err(|error| format!("is damaged: {error}"))?;
    }
    Ok(())
}

fn metadata(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, String> {
    check_ends(path)?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(opened(path)?);
    reader.map_err(|error| format!("is damaged: {error}"))
}

fn opened(path: &Path) -> Result<File, String> {
    input::open(path).map_err(|error| error.to_string())
}
