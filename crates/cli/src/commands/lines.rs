//! `heaptide lines`: a source file, with the memory of each line beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use clap::Args;
use heaptide_analysis::attribution::Owners;
use heaptide_analysis::files::input;
use heaptide_analysis::model::{Measures, Process};
use heaptide_analysis::views::lines::{self, SourceFile, selects};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output;
use heaptide_command::select::Selected;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::source::{self, View};
use heaptide_render::page::SourceTexts;
use heaptide_render::shared::names::{elide_middle, printable};
use heaptide_render::shared::quantity::date;
use heaptide_render::shared::source_text::SourceText;
use heaptide_render::{json, text};

use crate::options::Format;

/// `heaptide lines`.
#[derive(Args, Debug)]
#[command(after_help = LINES_EXAMPLE)]
pub struct LinesOptions {
    /// Source file: its name, or the end of its path
    #[arg(value_name = "FILE")]
    pub file: String,
    #[command(flatten)]
    pub source: Source,
    /// Show only lines with memory, and N lines around each [default: the whole file]
    #[arg(long, value_name = "N")]
    pub context: Option<u32>,
    /// Output format: text for reading, json with all metrics of each line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub selection: Selection,
}

const LINES_EXAMPLE: &str = "\
Example:
  heaptide lines cache.py app.heaptide
  heaptide lines src/parse.c app.heaptide --context 3

The columns are bytes live at peak usage and at the end, and temporary blocks, that the line itself
allocates; `with callees` are bytes at peak including the functions that the line calls.";

/// The most source files in a message.
const LISTED: usize = 8;
/// The maximum size of a source file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most source files to read for a page, those with most memory, …
const FILES_MAX: usize = 50;
/// … the most lines of them in the page …
const TEXTS_MAX: usize = 2000;
/// … which own at least this fraction of the bytes at peak or in all, …
const TEXT_PART: u64 = 1000;
/// … and the most characters of such a line.
const TEXT_MAX: usize = 120;

/// Prints the lines of the file.
pub fn lines(options: &LinesOptions) -> Outcome {
    let view = View { reader: options.format.reader(), ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    if let Some(process) = selected.images().next()
        && selected.images().count() == 1
    {
        selected.require_stacks(process)?;
    }
    let all: Vec<Found> = selected.images().map(Found::of).collect();
    let path = choose(&options.file, &all, &selected)?;
    if options.format == Format::Json {
        output::print(|out| json::lines::write(out, &selected.recording, selected.pid, &path))?;
        return Ok(());
    }
    let (found, file) = largest(&all, &path)?;
    let text = read(&path, &options.file, found.process);
    let lines = lines::of_file(found.process, &found.owners, &path);
    let view = text::lines::View { context: options.context };
    output::print_page(|out| {
        text::lines::write(out, found.process, file, &lines, &text, view) //
    })?;
    Ok(())
}

/// Returns the texts of the lines that own memory of a process, as far as their files are here and
/// unchanged.
pub fn texts(process: &Process) -> SourceTexts {
    let found = Found::of(process);
    let mut texts = SourceTexts::new();
    let mut rest = TEXTS_MAX;
    for file in found.files.iter().filter(|file| file.own.usable_bytes > 0).take(FILES_MAX) {
        let path = Path::new(&*file.path);
        let text = read(&file.path, &file.path, process);
        if !path.is_absolute() || text.lines.is_none() || text.doubt.is_some() {
            continue;
        }
        let lines = lines::of_file(process, &found.owners, &file.path);
        let owned = lines.iter().filter(|(_, line)| is_large(&line.own, process));
        let shown = owned.filter_map(|(number, _)| {
            let line = text.line((*number)?).trim();
            (!line.is_empty()).then(|| (number.unwrap_or(0), elide_middle(line, TEXT_MAX)))
        });
        let shown: BTreeMap<u32, String> = shown.take(rest).collect();
        rest -= shown.len();
        if !shown.is_empty() {
            texts.insert(file.path.to_string(), shown);
        }
    }
    texts
}

/// Returns whether a line owns enough to be shown with its text.
fn is_large(own: &Measures, process: &Process) -> bool {
    let is_part = |part: u64, whole: u64| part > 0 && part >= whole / TEXT_PART;
    let totals = &process.totals;
    is_part(own.at_peak_bytes, totals.at_peak_bytes)
        || is_part(own.usable_bytes, totals.usable_bytes)
}

/// The source files of a process.
struct Found<'a> {
    process: &'a Process,
    owners: Owners,
    files: Vec<SourceFile>,
}

impl Found<'_> {
    fn of(process: &Process) -> Found<'_> {
        let owners = Owners::of(process);
        let files = lines::files(process, &owners);
        Found { process, owners, files }
    }
}

/// Returns the path of the file with this name.
///
/// Errors: no file has it, or several.
fn choose(name: &str, all: &[Found], selected: &Selected) -> Result<String, Stop> {
    let files = || all.iter().flat_map(|found| &found.files).map(|file| &*file.path);
    let whole = Path::new(name).canonicalize().ok();
    let is_whole = |path: &&str| *path == name || whole.as_deref() == Some(Path::new(*path));
    if let Some(path) = files().find(is_whole) {
        return Ok(path.to_owned());
    }
    let mut candidates: Vec<&str> = files().filter(|path| selects(name, path)).collect();
    candidates.sort_unstable();
    candidates.dedup();
    match candidates[..] {
        [path] => Ok(path.to_owned()),
        [] => Err(nothing(name, files(), &selected.recording.path)),
        _ => {
            let listed = listed(candidates.iter().copied());
            let what = format!("`{name}` is ambiguous: {listed}; name more of the path");
            Err(Error::new(what).into())
        }
    }
}

/// Returns the negative result for a file that no stack contains.
fn nothing<'a>(name: &str, files: impl Iterator<Item = &'a str>, recording: &Path) -> Stop {
    let recording = recording.display();
    let known = listed(files);
    if known.is_empty() {
        return Stop::negative(format_args!(
            "{recording}: no function of a stack has a source line; compile with -g"
        ));
    }
    Stop::negative(format_args!(
        "{recording}: no stack with allocations has a line of `{name}`; the files with most \
         memory are {known}"
    ))
}

fn listed<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut more = 0;
    for path in paths {
        let path = printable(path);
        match () {
            () if shown.iter().any(|other| *other == path) => {}
            () if shown.len() < LISTED => shown.push(path.into_owned()),
            () => more += 1,
        }
    }
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Returns the process in which the file has most memory, and reports which it is if there are
/// several.
fn largest<'a>(all: &'a [Found<'a>], path: &str) -> Result<(&'a Found<'a>, &'a SourceFile), Stop> {
    let of_file = |found: &'a Found<'a>| {
        let file = found.files.iter().find(|file| &*file.path == path)?;
        Some((found, file))
    };
    let with_file: Vec<_> = all.iter().filter_map(of_file).collect();
    let size = |file: &SourceFile| {
        [&file.own, &file.inclusive].map(|sums| (sums.at_peak_bytes, sums.usable_bytes))
    };
    let Some(&(found, file)) = with_file.iter().max_by_key(|(_, file)| size(file)) else {
        return Err(Stop::negative(format_args!("no process has lines of `{path}`")));
    };
    if with_file.len() > 1 {
        let (count, who) = (with_file.len(), found.process.who());
        message(format_args!(
            "showing {who}, the one with most memory of the file of {count} process images; \
             `--process PID` selects another"
        ));
    }
    Ok((found, file))
}

/// Reads the text of a source file: at its recorded path, or at the path that the user named.
fn read(path: &str, name: &str, process: &Process) -> SourceText {
    let mut reason = None;
    for place in [PathBuf::from(path), PathBuf::from(name)] {
        match input::read(&place, FILE_BYTES_MAX) {
            Ok(bytes) => return SourceText::of(&bytes, newer(&place, process)),
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    let reason = reason.map_or(String::new(), |error| format!(": {error}"));
    let doubt = format!("the source is not here{reason}; the numbers are by line");
    SourceText { lines: None, doubt: Some(doubt) }
}

/// Returns a warning if a file was changed after the program started.
fn newer(place: &Path, process: &Process) -> Option<String> {
    let changed = place.metadata().and_then(|file| file.modified()).ok()?;
    let changed_ns = u64::try_from(changed.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
    (changed_ns > process.lifetime.start_realtime_ns).then(|| {
        let when = date(changed_ns);
        format!("the text is newer than the recording ({when}): its lines may have moved")
    })
}
