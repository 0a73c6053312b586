//! `heaptide advise`: suggestions for the program, with what they would save.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_advise::{Advice, History, Suppression, Suppressions};
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::recording::retained::is_searched;
use heaptide_analysis::recording::snapshot::{Reference, Snapshot};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::{self, Content};
use heaptide_command::progress::Progress;
use heaptide_command::project::Project;
use heaptide_command::select::Selected;
use heaptide_command::selection::{Selection, Source, Which};
use heaptide_command::snapshots::{self, ImageId, image_of, image_of_snapshot};
use heaptide_command::source::{self, Depth, Empty, Reader, Values, View, Workers};
use heaptide_command::target;
use heaptide_render::page::Findings;
use heaptide_render::{export, json, text};

/// `heaptide advise`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct AdviseOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show at most N findings [default: 10 as text, all in json and sarif]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text for reading, json with all evidence, sarif for code review tools
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: AdviseFormat,
    /// Omit findings of this rule, or of `all`, on stacks with a matching function (or module,
    /// file); also `suppress` in heaptide.toml. Can be repeated
    #[arg(long, value_name = "RULE[:[KIND:]REGEX]")]
    pub suppress: Vec<String>,
    /// File to write to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub force: bool,
    #[command(flatten)]
    pub selection: Selection,
}

const EXAMPLE: &str = "\
Example:
  heaptide advise app.heaptide
  heaptide advise app.heaptide --suppress 'temporary:^parse_line$'
  heaptide advise app.heaptide --format sarif -o app.sarif";

/// Output formats of `advise`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdviseFormat {
    /// Human-readable text
    Text,
    /// All evidence, for scripts
    Json,
    /// For code review tools, which show findings next to the code
    Sarif,
}

/// Stacks as recorded, because rules recognize containers by their frames; iterations of a loop are
/// one scope.
const VIEW: View = View {
    apart: Apart::Nowhere,
    inside: None,
    depth: Depth::Stacks,
    empty: Empty::Negative,
    usual_kind: false,
    events: true,
    reader: Reader::Program,
    values: Values::Folded,
    workers: Workers::Joined,
};
/// The maximum number of snapshots to read, and of those that contain a search. More would not make
/// trends clearer.
const SNAPSHOTS_MAX: usize = 40;

/// Prints the findings.
pub fn advise(options: &AdviseOptions) -> Outcome {
    if let Some(path) = &options.output {
        output::may_write(path, options.force)?;
    }
    let suppressions = suppressions(&options.suppress)?;
    let source = target::resolve(&options.source)?;
    let selected = source::open_view(&source, &options.selection, VIEW)?;
    let process = selected.largest(Measure::PeakBytes)?;
    let history = history(&source, options, &selected, process)?;
    let progress = Progress::start("judging");
    let advice = Advice::of(process, &history, &suppressions);
    drop(progress);
    let (path, force, top) = (options.output.as_deref(), options.force, options.top);
    match options.format {
        AdviseFormat::Text => output::write_or_print_page(path, force, |out| {
            text::advise::write(out, process, &advice, &suppressions, top)
        })?,
        AdviseFormat::Json => output::write_or_print(path, force, Content::Data, |out| {
            json::advise::write(out, &selected.recording, process, &advice, &suppressions, top)
        })?,
        AdviseFormat::Sarif => {
            let here = std::env::current_dir().unwrap_or_default();
            output::write_or_print(path, force, Content::Data, |out| {
                export::sarif::write(out, process, &advice, &here, top)
            })?;
        }
    }
    Ok(())
}

/// Returns the findings for the page of a process. They are computed from the stacks as recorded,
/// which can differ from those of the page.
pub fn for_page(
    source: &Source,
    selection: &Selection,
    path: &Path,
    image: ImageId,
) -> Result<Findings, Stop> {
    let suppressions = suppressions(&[])?;
    let recording = source.recording.clone().unwrap_or_else(|| path.to_owned());
    let source = Source { recording: Some(recording), ..source.clone() };
    let recording = source::apply(&source, selection, VIEW)?;
    let process = recording.processes.iter().find(|process| image_of(process) == image);
    let findings =
        |process| Findings::of(process, &Advice::of(process, &History::default(), &suppressions));
    Ok(process.map(findings).unwrap_or_default())
}

/// Returns the suppressions of the options, followed by those of the project.
pub fn suppressions(options: &[String]) -> Result<Suppressions, Error> {
    let project = Project::here()?;
    let of_options = options.iter().map(|text| ("--suppress".to_owned(), text));
    let of_project = project.suppress.iter().map(|text| (project.name(), text));
    let parsed = of_options.chain(of_project).map(|(place, text)| {
        text.parse::<Suppression>().map_err(|error| Error::new(format!("{place}: {error}")))
    });
    Ok(Suppressions::new(parsed.collect::<Result<_, _>>()?))
}

/// Returns the states of a process at its snapshots; none for joined processes.
fn history(
    source: &Source,
    options: &AdviseOptions,
    selected: &Selected,
    process: &Process,
) -> Result<History, Stop> {
    let path = &selected.recording.path;
    if source.snapshot.is_some() || options.selection.process == Some(Which::All) || !path.is_dir()
    {
        return Ok(History::default());
    }
    let mut own: Vec<Snapshot> = snapshots::list(path, &selected.recording)?;
    own.retain(|s| s.damaged.is_none() && image_of_snapshot(s) == image_of(process));
    let mut history = History::default();
    if own.is_empty() {
        return Ok(history);
    }
    let progress = Progress::start("reading snapshots");
    let searched = (0..own.len()).filter(|&index| is_searched(&own[index].file));
    let read: BTreeSet<usize> =
        spread((0..own.len()).collect()).chain(spread(searched.collect())).collect();
    for index in read {
        let snapshot = &own[index];
        progress.at("reading snapshots", index, own.len());
        if let Some(then) = at(source, &options.selection, path, process, snapshot)? {
            history.times_ns.push(snapshot.time_ns);
            history.processes.push(then);
        }
    }
    Ok(history)
}

/// Returns at most [`SNAPSHOTS_MAX`] of these, at equal distances.
fn spread(all: Vec<usize>) -> impl Iterator<Item = usize> {
    let step = all.len().div_ceil(SNAPSHOTS_MAX).max(1);
    all.into_iter().step_by(step)
}

/// Returns a process at one of its snapshots; none if the snapshot does not contain it.
fn at(
    source: &Source,
    selection: &Selection,
    path: &Path,
    process: &Process,
    snapshot: &Snapshot,
) -> Result<Option<Process>, Stop> {
    let of = Source {
        recording: Some(path.to_owned()),
        snapshot: Some(Reference::Number(snapshot.number)),
        ..source.clone()
    };
    let view = View { empty: Empty::Shown, workers: Workers::Each, ..VIEW };
    let mut then = source::apply(&of, selection, view)?;
    let found = then.processes.iter().position(|of| image_of(of) == image_of(process));
    Ok(found.map(|index| then.processes.swap_remove(index)))
}
