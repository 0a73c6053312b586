//! `heaptide leaks`: what was never freed.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use heaptide_analysis::suppressions::Suppressions;
use heaptide_render::leaks;

use crate::NO;
use crate::error::Error;
use crate::options::{Format, LeaksOptions};
use crate::source;

/// Bytes that a file of suppressions may have.
const FILE_LIMIT: u64 = 16 << 20;

/// Prints what is live; the status says whether anything is that is not suppressed.
pub fn leaks(options: &LeaksOptions) -> Result<ExitCode, Error> {
    let mut suppressions = match options.no_built_in {
        true => Suppressions::none(),
        false => Suppressions::built_in(),
    };
    for path in &options.suppressions {
        let bad = |what: String| Error::new(format!("{}: {what}", path.display()));
        suppressions.add(&read(path)?).map_err(|line| bad(line.to_string()))?;
    }
    // That filters leave nothing means that there are no leaks of it.
    let recording = source::open_or_empty(&options.source, &options.selection)?;
    let process = options.selection.pid();
    if !source::has(&recording, process) {
        // No leaks were looked for, so the answer is not that there are none.
        return Ok(ExitCode::from(NO));
    }
    let view = leaks::View { suppressions: &suppressions, top: options.top, process };
    let found = leaks::Found::of(&recording, &view);
    match options.format {
        Format::Json => source::print(|out| leaks::json(out, &recording, &view))?,
        Format::Text => source::print_page(|out| leaks::write(out, &found, &view))?,
    }
    Ok(if found.any() { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}

/// The text of a file of suppressions.
fn read(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Error::file(path, "read it", e))?;
    let read = file.take(FILE_LIMIT + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::file(path, "read it", e))?;
    if bytes.len() as u64 > FILE_LIMIT {
        let what = "more than 16 MiB, expected lines of leak:PATTERN; name another file";
        return Err(Error::new(format!("{}: {what}", path.display())));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
