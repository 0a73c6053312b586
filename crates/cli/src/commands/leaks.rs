//! `heaptide leaks`: blocks that were never freed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::files::input;
use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::recording::retained::SEARCHED;
use heaptide_analysis::recording::{Live, NOT_SEARCHED};
use heaptide_analysis::selection::kind::MemoryKind;
use heaptide_analysis::views::leaks::{Leaks, Used};
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_command::error::Error;
use heaptide_command::outcome::{self, NEGATIVE, Outcome, SUCCESS};
use heaptide_command::selection::{Selection, Source};
use heaptide_command::source::{Depth, Empty, View};
use heaptide_command::{output, source};
use heaptide_render::shared::views::{LeaksBy, LeaksView};
use heaptide_render::text::leaks::Found;
use heaptide_render::{json, text};

use crate::options::Format;

/// `heaptide leaks`.
#[derive(Args, Debug)]
#[command(after_help = LEAKS_EXAMPLE)]
pub struct LeaksOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show at most N leaks
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show one row for each KIND [default: stack]
    #[arg(long, value_name = "KIND")]
    pub by: Option<By>,
    /// Output format: text for reading, json with all leaks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// File of suppressions in the format of LeakSanitizer (`leak:PATTERN`). Can be repeated
    #[arg(long, value_name = "FILE")]
    pub suppressions: Vec<PathBuf>,
    /// Show only what is left at exit, also of Python programs, whose objects Python frees when it
    /// ends
    #[arg(long)]
    pub at_exit: bool,
    /// Show only blocks to which no pointer led when the process ended; requires a recording by
    /// `heaptide run --retain`
    #[arg(long, conflicts_with = "at_exit")]
    pub lost: bool,
    /// Disable the built-in suppressions for the C and C++ libraries and the dynamic linker
    #[arg(long)]
    pub no_built_in: bool,
    #[command(flatten)]
    pub selection: Selection,
}

/// The kind of rows of leaks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A whole stack
    Stack,
    /// The function that allocated
    Function,
    /// A source line of that function
    Line,
}

impl By {
    const fn rows(self) -> LeaksBy {
        match self {
            By::Stack => LeaksBy::Stack,
            By::Function => LeaksBy::Function,
            By::Line => LeaksBy::Line,
        }
    }
}

const LEAKS_EXAMPLE: &str = "\
Example:
  heaptide leaks app.heaptide --suppressions known-leaks.txt || echo \"new leaks\"";

/// The maximum size of a suppression file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Prints live blocks; the result is negative if any of them is not suppressed.
pub fn leaks(options: &LeaksOptions) -> Outcome {
    if options.format == Format::Json && options.by.is_some() {
        return Err(Error::new("--by requires --format text; json contains all stacks").into());
    }
    let suppressions = suppressions(!options.no_built_in, &options.suppressions)?;
    // If filters match nothing, there are no leaks, which a misspelled name must not suggest.
    let depth = match options.format {
        Format::Text => Depth::Output, // suppressions need whole stacks
        Format::Json => Depth::Stacks,
    };
    let workers = options.format.workers();
    let view = View { empty: Empty::Reported, depth, workers, ..View::default() };
    let live = match (options.lost, options.at_exit) {
        (true, _) => Live::Lost,
        (false, true) => Live::AtEnd,
        (false, false) => Live::BeforePythonEnded,
    };
    let source = Source { live, ..options.source.clone() };
    if options.lost && !matches!(options.selection.kind, None | Some(MemoryKind::Heap)) {
        return Err(Error::new("--lost requires --kind heap: only its blocks can be lost").into());
    }
    let mut selected = source::open_view(&source, &options.selection, view)?;
    if options.lost {
        check_searched(&selected.recording)?;
    }
    let view = LeaksView {
        lost: options.lost,
        suppressions: &suppressions,
        top: options.top,
        process: selected.pid,
        by: options.by.map_or(LeaksBy::Stack, By::rows),
    };
    let found = match options.format {
        Format::Json => Found::of(&selected.recording, &view),
        Format::Text => {
            let processes = selected.recording.processes.iter_mut();
            let suppressed = processes.map(|p| for_people(p, &options.selection, &suppressions));
            let suppressed = suppressed.collect();
            Found::without_suppressed(&selected.recording, suppressed, &view)
        }
    };
    match options.format {
        Format::Json => output::print(|out| json::leaks::write(out, &selected.recording, &view))?,
        Format::Text => output::print_page(|out| text::leaks::write(out, &found, &view))?,
    }
    outcome::exit(if found.any() { NEGATIVE } else { SUCCESS })
}

/// Checks that a process of a recording was searched when it ended.
///
/// Errors: none was.
fn check_searched(recording: &Recording) -> Result<(), Error> {
    let mut processes = recording.processes.iter();
    if processes.any(|process| process.completeness.searched.is_some()) {
        return Ok(());
    }
    let notes = recording.processes.iter().flat_map(|process| &process.completeness.notes);
    let why = notes.clone().find(|note| note.starts_with(NOT_SEARCHED));
    let why = why.map_or_else(
        || format!("no process was searched when it ended; {SEARCHED}"),
        String::clone,
    );
    Err(Error::new(format!("{}: {why}", recording.path.display())))
}

/// Returns the suppressions of files, and on request the built-in ones.
///
/// Errors: a file cannot be read, or has another format.
pub fn suppressions(with_built_in: bool, files: &[PathBuf]) -> Result<Suppressions, Error> {
    let mut all = if with_built_in { Suppressions::built_in() } else { Suppressions::none() };
    for path in files {
        let bad = |what: String| Error::new(format!("{}: {what}", path.display()));
        all.add(&read(path)?).map_err(|line| bad(line.to_string()))?;
    }
    Ok(all)
}

/// Removes suppressed blocks from a process and shortens the stacks of the others. Returns the
/// suppressions that were used.
fn for_people(
    process: &mut Process,
    selection: &Selection,
    suppressions: &Suppressions,
) -> Vec<Used> {
    let suppressed = Leaks::set_aside(process, suppressions);
    source::rewrite_languages(process, selection);
    if let Some(depth) = selection.depth {
        process.cut_stacks(depth.get());
    }
    suppressed
}

/// Returns the text of a suppression file.
fn read(path: &Path) -> Result<String, Error> {
    let bytes = input::read(path, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|e| Error::file(path, "read suppressions", e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
