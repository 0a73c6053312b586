//! `heaptide leaks`: what was never freed.

use std::path::Path;
use std::process::ExitCode;

use heaptide_analysis::files::input;
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_command::error::Error;
use heaptide_command::{NEGATIVE, source};
use heaptide_render::leaks;

use crate::options::{Format, LeaksOptions};

/// The largest file of suppressions that is read, in bytes.
const FILE_LIMIT: u64 = 16 << 20;

/// Prints live blocks; the status is negative if any of them is not suppressed.
pub fn leaks(options: &LeaksOptions) -> Result<ExitCode, Error> {
    let mut suppressions =
        if options.no_built_in { Suppressions::none() } else { Suppressions::built_in() };
    for path in &options.suppressions {
        let bad = |what: String| Error::new(format!("{}: {what}", path.display()));
        suppressions.add(&read(path)?).map_err(|line| bad(line.to_string()))?;
    }
    // Filters that match nothing mean no leaks.
    let recording = source::open_or_empty(&options.source, &options.selection)?;
    let process = options.selection.pid();
    if !source::has(&recording, process) {
        // Nothing was checked: success would claim that there are no leaks.
        return Ok(ExitCode::from(NEGATIVE));
    }
    let view = leaks::View { suppressions: &suppressions, top: options.top, process };
    let found = leaks::Found::of(&recording, &view);
    match options.format {
        Format::Json => source::print(|out| leaks::json(out, &recording, &view))?,
        Format::Text => source::print_page(|out| leaks::write(out, &found, &view))?,
    }
    Ok(if found.any() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

/// The text of a file of suppressions.
fn read(path: &Path) -> Result<String, Error> {
    let bytes = input::read(path, FILE_LIMIT);
    let bytes = bytes.map_err(|e| Error::file(path, "read suppressions", e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
