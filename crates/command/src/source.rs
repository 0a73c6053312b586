//! Reads a recording, named or the newest here, and applies the selection.

use std::path::Path;

use heaptide_analysis::model::{ImageRole, Process, Recording};
use heaptide_analysis::recording::Choice;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::kind::MemoryKind;
use heaptide_analysis::selection::rules::Rules;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_render::shared::answer::Answer;
use heaptide_render::shared::heading::sampling_says;

use crate::chosen::Chosen;
use crate::damage::{self, Listed};
use crate::error::Error;
use crate::message::message;
use crate::outcome::Stop;
use crate::progress::{Goes, Progress};
use crate::select::Selected;
pub use crate::selection::Reader;
use crate::selection::{Selection, Source, Which};
use crate::target;
pub use crate::target::newest;

/// How the selected processes are prepared for a view, in addition to the selection.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// How joined processes are kept separate. Anything except [`Apart::Nowhere`] joins them.
    pub apart: Apart,
    /// Scopes to convert to frames, if any.
    pub inside: Option<Inside>,
    /// What `--depth` applies to.
    pub depth: Depth,
    /// The behaviour if filters leave nothing.
    pub empty: Empty,
    /// The reader that names and stacks are prepared for.
    pub reader: Reader,
    /// Whether the kind of memory is that for people, for any reader.
    pub usual_kind: bool,
    /// Whether the view shows events, which the kind of memory for people has only in part.
    pub events: bool,
    /// Whether numeric scope attributes are folded; for people they always are.
    pub values: Values,
    /// Whether several images of the subject are joined, if no process is selected.
    pub workers: Workers,
}

/// How sibling scopes of a numeric attribute are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Many of them are merged into one, unless the selection unfolds them.
    Folded,
    /// Each is a separate scope.
    Each,
}

/// What becomes of several images of the subject if no process is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    /// They are joined to one process.
    Joined,
    /// They stay as they are.
    Each,
}

/// What `--depth` applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// To stacks, which are truncated before the view gets them.
    Stacks,
    /// To the output; the view applies it itself.
    Output,
}

/// The behaviour if filters leave nothing of the selected processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Empty {
    /// The result of the command is negative.
    Negative,
    /// The view shows an empty process.
    Shown,
    /// The view shows an empty process, after a message.
    Reported,
}

impl Default for View {
    fn default() -> View {
        View {
            apart: Apart::Nowhere,
            inside: None,
            depth: Depth::Stacks,
            empty: Empty::Negative,
            reader: Reader::Program,
            usual_kind: false,
            events: false,
            values: Values::Each,
            workers: Workers::Joined,
        }
    }
}

/// Opens recordings, and takes the selected processes of them. Reports which are estimates.
pub fn open_all(sources: &[Source], selection: &Selection) -> Result<Vec<Recording>, Stop> {
    let mut all = Vec::new();
    for source in sources {
        let Selected { mut recording, pid } = open_each(source, selection)?;
        recording.processes.retain(|process| pid.is_none_or(|pid| pid == process.identity.pid));
        report_estimates(&recording);
        all.push(recording);
    }
    Ok(all)
}

/// Opens a recording and applies the selection. The result is negative if it has no selected
/// process, or if filters leave nothing of them.
pub fn open(source: &Source, selection: &Selection) -> Result<Selected, Stop> {
    open_view(source, selection, View::default())
}

/// Opens a recording and applies the selection; the images of the subject stay separate.
pub fn open_each(source: &Source, selection: &Selection) -> Result<Selected, Stop> {
    open_view(source, selection, View { workers: Workers::Each, ..View::default() })
}

/// Opens a recording and applies the selection, prepared for a view.
pub fn open_view(source: &Source, selection: &Selection, view: View) -> Result<Selected, Stop> {
    Selected::new(apply(source, selection, view)?, selection.pid())
}

/// Opens a recording and applies the selection; there may be no selected process.
pub fn apply(source: &Source, selection: &Selection, view: View) -> Result<Recording, Stop> {
    let mut recording = opened(source, selection, view)?;
    prepare(&mut recording, selection, view)?;
    Ok(recording)
}

/// Opens a recording and chooses its subject, if it will not be joined.
fn opened(source: &Source, selection: &Selection, view: View) -> Result<Recording, Stop> {
    let is_joined = is_joined(selection, view);
    if let Some(pid) = selection.pid().filter(|_| is_joined) {
        let what = "--by joins all processes";
        return Err(Error::new(format!("{what}; omit --by or --process {pid}")).into());
    }
    Chosen::new(selection, view.reader)?; // reports wrong options before reading
    let mut recording = read(source)?;
    if selection.process.is_none() && !is_joined {
        // Filters and kinds of memory do not change which process a view shows.
        recording.choose_subject();
    }
    Ok(recording)
}

/// Returns whether all images are joined to one process.
fn is_joined(selection: &Selection, view: View) -> bool {
    view.apart != Apart::Nowhere || selection.process == Some(Which::All)
}

/// Applies the selection to an opened recording, and prepares it for a view.
///
/// Errors: those of [`apply`].
pub fn prepare(recording: &mut Recording, selection: &Selection, view: View) -> Result<(), Stop> {
    let chosen = Chosen::new(selection, view.reader)?;
    let progress = Progress::start("applying filters");
    for process in &mut recording.processes {
        select_memory(process, selection, view);
    }
    recording.update_subject();
    if is_joined(selection, view) {
        recording.join(view.apart);
    } else if view.workers == Workers::Joined {
        recording.join_subject();
    }
    chosen.apply(recording);
    drop(progress);
    match view.empty {
        Empty::Negative => chosen.drop_empty(recording, selection.pid())?,
        Empty::Reported => {
            chosen.nothing(recording, selection.pid()).into_iter().for_each(message);
        }
        Empty::Shown => {}
    }
    for process in &mut recording.processes {
        show(process, selection, view);
    }
    Ok(())
}

/// Opens a recording and applies the selection, as [`apply`] does, and returns the answer that a
/// view for people states about it.
///
/// Errors: those of [`apply`].
pub fn apply_answered(
    source: &Source,
    selection: &Selection,
    view: View,
) -> Result<(Recording, Answer), Stop> {
    let mut recording = opened(source, selection, view)?;
    let answer = answer(&recording, selection, view.events)?;
    prepare(&mut recording, selection, view)?;
    Ok((recording, answer))
}

/// Returns the answer that a view for people states about a recording to which no selection was
/// applied: about the subject, or the selected process.
fn answer(recording: &Recording, selection: &Selection, events: bool) -> Result<Answer, Stop> {
    let is_subject = |process: &&Process| process.identity.role == ImageRole::Subject;
    let has_subject = recording.processes.iter().any(|process| is_subject(&process));
    let is_shown = |process: &&Process| match (selection.pid(), has_subject) {
        (Some(pid), _) => process.identity.pid == pid,
        (None, true) => is_subject(process),
        (None, false) => true,
    };
    let processes = recording.processes.iter().filter(is_shown).cloned().collect();
    let subject = recording.subject.clone();
    let mut shown = Recording { processes, subject, ..Recording::default() };
    let view = View { reader: Reader::Person, empty: Empty::Shown, events, ..View::default() };
    prepare(&mut shown, selection, view)?;
    let largest = || shown.processes.iter().max_by_key(|process| process.totals.at_peak_bytes);
    let process = shown.subject_process().or_else(largest);
    let of_all = if selection.pid().is_some() { &shown } else { recording };
    Ok(process.map_or_else(Answer::default, |process| Answer::among(&shown, process, of_all)))
}

/// Reports on standard error that numbers are estimates, where their format has no place for it.
pub fn report_estimates(recording: &Recording) {
    let says = recording.processes.iter().find_map(sampling_says);
    if let Some(says) = says {
        message(format_args!("{}: sampled: {says}", recording.path.display()));
    }
}

/// Applies a selection to a single process, prepared for a view; the result may be empty.
pub fn apply_to(process: &mut Process, selection: &Selection, chosen: &Chosen, view: View) {
    select_memory(process, selection, view);
    chosen.apply_to(process);
    show(process, selection, view);
}

/// Selects the kinds of memory of a process.
fn select_memory(process: &mut Process, selection: &Selection, view: View) {
    let reader = if view.usual_kind { Reader::Person } else { view.reader };
    let kind = match selection.kind_for(reader, process) {
        MemoryKind::Program if view.events && process.has_trace() => MemoryKind::Heap,
        kind => kind,
    };
    process.select_kind(kind);
    process.select_python(selection.python);
    if selection.fold_recursion {
        process.fold_scopes();
    }
}

/// Applies the options on how the rest of a process is shown.
fn show(process: &mut Process, selection: &Selection, view: View) {
    if view.reader == Reader::Person {
        rewrite_languages(process, selection);
        name_known(process, selection);
    }
    if (view.reader == Reader::Person || view.values == Values::Folded) && !selection.unfold_values
    {
        let kept = match view.apart {
            Apart::InScopes(by) => Some(by.name()),
            Apart::InStacks(_) | Apart::Nowhere => None,
        };
        process.fold_values(kept);
    }
    if let Some(inside) = view.inside {
        process.scopes_to_frames(inside);
    }
    if let Some(depth) = selection.depth.filter(|_| view.depth == Depth::Stacks) {
        process.cut_stacks(depth.get());
    }
}

/// Removes frames of languages and their libraries that people do not need, unless the selection
/// has other rules or shows frames unchanged. Must be applied after filters, which refer to the
/// original functions.
pub fn rewrite_languages(process: &mut Process, selection: &Selection) {
    if !selection.rules.is_empty() || selection.raw {
        return;
    }
    let rules = Rules::of_languages(process);
    if !rules.is_empty() {
        process.rewrite(&rules);
    }
}

/// Names memory that people see as the owner of much, and whose code has no name. Must be applied
/// after filters.
pub fn name_known(process: &mut Process, selection: &Selection) {
    if !selection.raw {
        process.name_emergency_pool();
    }
}

/// Reads a recording: the named one, or the newest here.
pub fn read(source: &Source) -> Result<Recording, Error> {
    let source = target::resolve(source)?;
    let Source { snapshot, from_start, live, .. } = source;
    let choice = Choice { snapshot, from_start, live };
    if let Some(path) = &source.recording {
        return open_named(path, &choice, source.listed);
    }
    open_named(&newest()?, &choice, source.listed)
}

/// Reads a recording, shows progress if that takes long, and reports unreadable files.
fn open_named(path: &Path, choice: &Choice, listed: Listed) -> Result<Recording, Error> {
    let progress = Progress::start(format!("reading {}", path.display()));
    let names = &mut |done, total| progress.at("looking up symbols", done, total);
    let recording = Recording::open_telling(path, choice, names)?;
    drop(progress);
    if listed == Listed::Nowhere || Goes::by_stdout() == Goes::Elsewhere {
        damage::report(path, &recording.damaged);
    }
    Ok(recording)
}
