//! `heaptide leaks`: what was never freed.

use std::path::Path;

use heaptide_analysis::files::input;
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_command::error::Error;
use heaptide_command::outcome::{self, NEGATIVE, Outcome, SUCCESS};
use heaptide_command::source::{Empty, View};
use heaptide_command::{output, source};
use heaptide_render::leaks;

use crate::options::{Format, LeaksOptions};

/// The largest file of suppressions that is read, in bytes.
const FILE_LIMIT: u64 = 16 << 20;

/// Prints live blocks; the status is negative if any of them is not suppressed.
pub fn leaks(options: &LeaksOptions) -> Outcome {
    let mut suppressions =
        if options.no_built_in { Suppressions::none() } else { Suppressions::built_in() };
    for path in &options.suppressions {
        let bad = |what: String| Error::new(format!("{}: {what}", path.display()));
        suppressions.add(&read(path)?).map_err(|line| bad(line.to_string()))?;
    }
    // Filters that match nothing mean no leaks.
    let view = View { empty: Empty::Shown, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    let (recording, process) = (&selected.recording, selected.pid);
    let view = leaks::View { suppressions: &suppressions, top: options.top, process };
    let found = leaks::Found::of(recording, &view);
    match options.format {
        Format::Json => output::print(|out| leaks::json(out, recording, &view))?,
        Format::Text => output::print_page(|out| leaks::write(out, &found, &view))?,
    }
    outcome::exit(if found.any() { NEGATIVE } else { SUCCESS })
}

/// The text of a file of suppressions.
fn read(path: &Path) -> Result<String, Error> {
    let bytes = input::read(path, FILE_LIMIT);
    let bytes = bytes.map_err(|e| Error::file(path, "read suppressions", e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
