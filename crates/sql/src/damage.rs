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

/// Checks that all columns of a file can be decoded.
///
/// Errors: they cannot, or the file cannot be read.
pub fn check_content(path: &Path) -> Result<(), String> {
    check_ends(path)?;
    let damaged = |error: &dyn std::fmt::Display| format!("is damaged: {error}");
    let builder = ParquetRecordBatchReaderBuilder::try_new(opened(path)?);
    let reader = builder.and_then(ParquetRecordBatchReaderBuilder::build);
    for batch in reader.map_err(|error| damaged(&error))? {
        batch.map_err(|error| damaged(&error))?;
    }
    Ok(())
}

fn opened(path: &Path) -> Result<File, String> {
    input::open(path).map_err(|error| error.to_string())
}
