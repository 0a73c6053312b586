//! `heaptide sql`: runs statements from the command line or standard input, or the prompt.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_command::source;
use heaptide_command::sql::{SqlFormat, SqlOptions, no_dataset};

use crate::answer::{print, written};
use crate::prompt;
use crate::recordings;
use crate::session::{Dataset, Session};
use crate::statements;

/// Upper bound of the bytes of statements read from standard input.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Runs the statements of the command line or standard input.
pub fn sql(options: &SqlOptions) -> Outcome {
    let format = format(options)?;
    if let Some(path) = options.output() {
        output::may_write(path, options.force)?;
    }
    let session = match &options.dataset {
        Some(directory) => {
            let cluster = options.cluster.as_deref();
            Session::from_dataset(&Dataset::new(directory, cluster, &options.reading))?
        }
        None if options.cluster.is_some() => return Err(no_dataset().into()),
        None => {
            let recordings = source::open_all(&options.sources(), &options.selection)?;
            Session::from_parts(recordings::parts(recordings))?
        }
    };
    let text = match options.query() {
        Some(query) => query.to_owned(),
        None if io::stdin().is_terminal() => {
            prompt::prompt(&session, format)?;
            return Ok(());
        }
        None => read(io::stdin().lock())?,
    };
    let statements = statements::split(&text);
    match (&*statements, options.output()) {
        ([], _) => Err(Error::new("empty query; pass one: `heaptide sql 'SELECT …'`")),
        ([one], Some(path)) => {
            written(|write| output::write(path, options.force, write), &session, one, format)
        }
        (_, Some(path)) => {
            let what = "only one statement can be written to a file";
            Err(Error::new(format!("{}: {what}", path.display())))
        }
        (all, None) => all.iter().try_for_each(|one| print(&session, one, format)),
    }?;
    Ok(())
}

/// Reads statements from a source other than the command line.
fn read(mut from: impl Read) -> Result<String, Error> {
    let mut text = String::new();
    let read = from.by_ref().take(TEXT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| Error::new(format!("cannot read standard input: {e}")))?;
    if text.len() as u64 == TEXT_BYTES_MAX {
        return Err(Error::new("more than 16 MiB of SQL on standard input"));
    }
    Ok(text)
}

/// Returns the format of results: that of the option, that of the file's suffix, or a table.
fn format(options: &SqlOptions) -> Result<SqlFormat, Error> {
    let extension = options.output().and_then(Path::extension);
    let by_name = match extension.and_then(|extension| extension.to_str()) {
        Some("csv") => SqlFormat::Csv,
        Some("json") => SqlFormat::Json,
        Some("parquet") => SqlFormat::Parquet,
        _ => SqlFormat::Table,
    };
    let format = options.format.unwrap_or(by_name);
    let to_terminal = options.output().is_none() && io::stdout().is_terminal();
    if format == SqlFormat::Parquet && to_terminal {
        let what = "--format parquet: binary output to a terminal; write it to a file with -o FILE";
        return Err(Error::new(what));
    }
    Ok(format)
}
