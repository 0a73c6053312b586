//! `heaptide check`: limits on the memory of a program, for tests and continuous integration.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches, ValueEnum};
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::recording::{Live, NOT_SEARCHED};
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_check::baseline::Baseline;
use heaptide_check::formats::{github, json, junit, markdown, text};
use heaptide_check::limit::{Bound, Limit, Quantity};
use heaptide_check::links::Sources;
use heaptide_check::part::Part;
use heaptide_check::result::{self, Findings, Rule};
use heaptide_check::values::Measured;
use heaptide_command::chosen::Chosen;
use heaptide_command::error::Error;
use heaptide_command::message::{self, message};
use heaptide_command::outcome::{self, NEGATIVE, Outcome, SUCCESS, Stop};
use heaptide_command::project::Project;
use heaptide_command::select::Selected;
use heaptide_command::selection::{Reader, Selection, Source};
use heaptide_command::source::{self, Empty, View, Workers};
use heaptide_command::{output, target, values};
use heaptide_render::shared::answer::Answer;
use heaptide_render::shared::heading::{removed_images, sampling_says};
use heaptide_render::shared::quantity::{bytes, count, counted};
use heaptide_render::text::missing;
use nix::sys::signal::Signal;
use nix::unistd::mkdtemp;

use super::leaks;
use super::write;
use crate::options::RunOptions;
use crate::run::run;

/// The exit status with which `git bisect run` skips a commit.
const CANNOT_BE_JUDGED: u8 = 125;
const LIMITS: &str = "Limits";
const OUTPUT: &str = "Output";

/// `heaptide check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
#[command(override_usage = "heaptide check [OPTIONS] [REC]\n       \
                            heaptide check [OPTIONS] -- PROGRAM [ARG]...")]
pub struct CheckOptions {
    /// Recording to check: NAME.heaptide or a profile in it; REC@NAME is a snapshot of REC
    /// [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recording: Option<PathBuf>,
    /// Exit with status 1 if METRIC is more than VALUE: peak=200M, allocations=1.5M, leaked=0,
    /// lost=0, resident=300M, temporary=20%, or compared with the baseline, peak=+2%. Can be
    /// repeated
    /// [default: the limits in heaptide.toml]
    #[arg(long, value_name = "METRIC=VALUE", help_heading = LIMITS)]
    pub max: Vec<Limit>,
    /// Check allocations in matching scopes only
    #[arg(long, value_name = "REGEX", requires = "max", help_heading = LIMITS)]
    pub scope: Option<String>,
    /// Check allocations of matching functions only
    #[arg(long, value_name = "REGEX", requires = "max", help_heading = LIMITS)]
    pub owner: Option<String>,
    /// Check allocations of matching threads only
    #[arg(long, value_name = "REGEX", requires = "max", help_heading = LIMITS)]
    pub thread: Option<String>,
    /// Compare with this: a file that --update wrote, or a recording
    #[arg(long, value_name = "FILE|REC", help_heading = LIMITS)]
    pub baseline: Option<PathBuf>,
    /// Write the values of this run to the baseline file
    #[arg(long, help_heading = LIMITS)]
    pub update: bool,
    /// File of suppressions for `leaked`, in the format of LeakSanitizer (`leak:PATTERN`). Can be
    /// repeated
    #[arg(long, value_name = "FILE", help_heading = LIMITS)]
    pub suppressions: Vec<PathBuf>,
    /// Disable the built-in suppressions for the C and C++ libraries and the dynamic linker
    #[arg(long, help_heading = LIMITS)]
    pub no_built_in: bool,
    /// Check PROGRAM even if its exit status is not 0
    #[arg(long, requires = "command", help_heading = LIMITS)]
    pub ignore_status: bool,
    /// Exit with status 125 if the limits cannot be checked, so that `git bisect run` skips the
    /// commit
    #[arg(long, help_heading = LIMITS)]
    pub bisect: bool,
    /// Keep the recording of PROGRAM as REC [default: remove it]
    #[arg(short, long, value_name = "REC", requires = "command")]
    #[arg(value_parser = values::directory(), help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Replace an existing recording
    #[arg(long, requires = "output", help_heading = OUTPUT)]
    pub force: bool,
    /// Format of the output, on standard output, or with PROGRAM on standard error: text for
    /// reading, json for scripts, junit for test reports, markdown for a comment on a pull request,
    /// github for annotations
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = OUTPUT)]
    pub format: CheckFormat,
    /// Also write a file in another format, such as markdown=comment.md; an existing one is
    /// replaced. Can be repeated
    #[arg(long, value_name = "FORMAT=FILE", value_parser = file, help_heading = OUTPUT)]
    pub write: Vec<(CheckFormat, PathBuf)>,
    /// URL of a source line, with {file} and {line} [default: on GitHub and GitLab, the URL for the
    /// commit]
    #[arg(long, value_name = "TEMPLATE", help_heading = OUTPUT)]
    pub link: Option<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Program to run and check, and its arguments
    #[arg(value_name = "PROGRAM", last = true, conflicts_with = "recording")]
    command: Vec<OsString>,
}

const EXAMPLE: &str = "\
Example:
  heaptide check --max peak=200M --max leaked=0 -- ./app input.dat
  heaptide check --max allocations=+2% --baseline memory.json app.heaptide
  heaptide check --max allocations=+2% --baseline memory.json --update app.heaptide
  git bisect run heaptide check --bisect --max peak=200M -- ./app input.dat";

/// Output formats of `check`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckFormat {
    /// A line for each limit
    Text,
    /// All data
    Json,
    /// A test for each limit
    Junit,
    /// Tables
    Markdown,
    /// Workflow commands
    Github,
}

/// Parses `FORMAT=FILE`.
fn file(text: &str) -> Result<(CheckFormat, PathBuf), String> {
    let (format, path) = text.split_once('=').unwrap_or((text, ""));
    let format = CheckFormat::from_str(format, false);
    match format {
        Ok(format) if !path.is_empty() => Ok((format, PathBuf::from(path))),
        _ => Err("expected text, json, junit, markdown or github, and `=FILE`".to_owned()),
    }
}

/// Checks limits; the result is negative if one is exceeded.
pub fn check(options: &CheckOptions) -> Outcome {
    match checked(options) {
        Err(Stop::Failed(error)) if options.bisect && !error.is_broken_pipe() => {
            message::report(&error);
            Err(Stop::Status(CANNOT_BE_JUDGED))
        }
        other => other,
    }
}

fn checked(options: &CheckOptions) -> Outcome {
    let Wanted { rules, baseline } = Wanted::of(options)?;
    let baseline = baseline.map(|path| Earlier::read(path, options.update)).transpose()?;
    let suppressions = leaks::suppressions(!options.no_built_in, &options.suppressions)?;
    let subject = Subject::of(&rules, options)?;
    let subject = subject.path.as_deref().or(options.recording.as_deref());
    let (mut findings, values) = measure(subject, &rules, &suppressions, options)?;
    let before = match baseline {
        Some(Earlier::File { path, values: mut there }) if options.update => {
            there.extend(values.clone());
            there.write(&path)?;
            let count = counted(rules.len() as u64, "limit");
            message(format_args!("{}: wrote the values of {count}", path.display()));
            Some(there)
        }
        Some(Earlier::File { values, .. }) => Some(values),
        Some(Earlier::Recording(path)) => {
            Some(measure(Some(&path), &rules, &suppressions, options)?.1)
        }
        None => None,
    };
    findings.all = result::check(&rules, &values, before.as_ref()).map_err(Error::new)?;
    write_all(&findings, options)?;
    outcome::exit(if findings.exceeded() > 0 { NEGATIVE } else { SUCCESS })
}

/// The limits to check, and the baseline.
struct Wanted {
    rules: Vec<Rule>,
    baseline: Option<PathBuf>,
}

impl Wanted {
    /// Returns the limits of the command line, or those of the project.
    fn of(options: &CheckOptions) -> Result<Wanted, Error> {
        let project = Project::here()?;
        let baseline = options.baseline.clone().or_else(|| project.baseline());
        let rules = if options.max.is_empty() {
            of_project(&project)?
        } else {
            let name = |name: &Option<String>| name.clone();
            let names = [&options.scope, &options.owner, &options.thread].map(name);
            rules(&options.max, names).map_err(|error| Error::new(format!("--{error}")))?
        };
        let is_growth = |rule: &&Rule| matches!(rule.limit.bound, Bound::Growth(_));
        match rules.iter().find(is_growth) {
            Some(rule) if baseline.is_none() => {
                let name = rule.name();
                Err(Error::new(format!(
                    "{name}: a growth limit requires a baseline; add --baseline"
                )))
            }
            _ if options.update && baseline.is_none() => {
                Err(Error::new("--update requires --baseline FILE, the file to write"))
            }
            _ => Ok(Wanted { rules, baseline }),
        }
    }
}

fn of_project(project: &Project) -> Result<Vec<Rule>, Error> {
    let mut all = Vec::new();
    for limits in &project.check.limits {
        let wrong = |what: String| Error::new(format!("{}: check.limits: {what}", project.name()));
        let parsed: Result<Vec<Limit>, String> = limits.max.iter().map(|m| m.parse()).collect();
        let names = [limits.scope.clone(), limits.owner.clone(), limits.thread.clone()];
        all.extend(rules(&parsed.map_err(wrong)?, names).map_err(wrong)?);
    }
    if all.is_empty() {
        return Err(Error::new(
            "no limits; set them with --max, such as --max peak=200M, or in heaptide.toml",
        ));
    }
    Ok(all)
}

fn rules(limits: &[Limit], names: [Option<String>; 3]) -> Result<Vec<Rule>, String> {
    let [scope, owner, thread] = names.each_ref().map(Option::as_deref);
    let part = Part::new(scope, owner, thread)?;
    Ok(limits.iter().map(|&limit| Rule { part: part.clone(), limit }).collect())
}

/// An earlier run to compare with.
enum Earlier {
    /// Values, and the file they are from.
    File { path: PathBuf, values: Baseline },
    /// The path of its recording.
    Recording(PathBuf),
}

impl Earlier {
    fn read(path: PathBuf, is_new: bool) -> Result<Earlier, Error> {
        let is_profile = path.extension().is_some_and(|extension| extension == "profile");
        let is_recording = path.is_dir() || is_profile || !path.exists() && target::exists(&path);
        let shown = path.display();
        if is_recording && is_new {
            return Err(Error::new(format!("{shown}: a recording; --update writes a file")));
        }
        if is_recording {
            return Ok(Earlier::Recording(path));
        }
        match Baseline::read(&path)? {
            Some(values) => Ok(Earlier::File { path, values }),
            None if is_new => Ok(Earlier::File { path, values: Baseline::default() }),
            None => Err(Error::new(format!("{shown}: no such baseline; write it with --update"))),
        }
    }
}

/// The recording of PROGRAM, if one was run.
struct Subject {
    path: Option<PathBuf>,
    /// The directory of the recording, if it is to be removed.
    _scratch: Option<Scratch>,
}

/// A directory that is removed with its contents when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the result of the check is valid regardless
    }
}

impl Subject {
    /// Runs and records PROGRAM, if there is one.
    fn of(rules: &[Rule], options: &CheckOptions) -> Result<Subject, Stop> {
        let Some(program) = options.command.first() else {
            return Ok(Subject { path: None, _scratch: None });
        };
        let (path, scratch) = match &options.output {
            Some(path) => (path.clone(), None),
            None => {
                let template = env::temp_dir().join("heaptide-check-XXXXXX");
                let made = mkdtemp(&template)
                    .map_err(|e| Error::file(&template, "make a directory", e.into()))?;
                let name = Path::new(program).file_name().unwrap_or_default();
                (made.join(name).with_extension("heaptide"), Some(Scratch(made)))
            }
        };
        match run(&words(&path, rules, options)?, write::check) {
            Err(Stop::Status(status)) if !options.ignore_status => {
                let program = program.to_string_lossy();
                let signal = Signal::try_from(i32::from(status) - 128);
                let end = match signal {
                    Ok(signal) => format!(
                        "was killed by signal {} ({}), or ended with exit status {status}",
                        signal as i32,
                        signal.as_str()
                    ),
                    Err(_) => format!("ended with exit status {status}"),
                };
                return Err(Error::new(format!(
                    "{program} {end}, so its memory was not checked; use --ignore-status to check it"
                ))
                .into());
            }
            Ok(()) | Err(Stop::Status(_)) => {}
            Err(other) => return Err(other),
        }
        Ok(Subject { path: Some(path), _scratch: scratch })
    }
}

/// Returns the options of `heaptide run` for recording PROGRAM.
fn words(path: &Path, rules: &[Rule], options: &CheckOptions) -> Result<RunOptions, Error> {
    let mut words: Vec<OsString> = vec!["run".into(), "--quiet".into(), "--output".into()];
    // The path is not a pattern here.
    words.push(path.to_string_lossy().replace('%', "%%").into());
    words.extend(wants_lost(rules).then(|| "--retain".into()));
    words.extend(options.force.then(|| "--force".into()));
    words.push("--".into());
    words.extend(options.command.iter().cloned());
    let command = RunOptions::augment_args(clap::Command::new("run"));
    let matches = command.try_get_matches_from(words).map_err(Error::library)?;
    RunOptions::from_arg_matches(&matches).map_err(Error::library)
}

/// Returns the metrics of the subject of a recording that the rules check, with notes on what is
/// missing.
fn measure(
    recording: Option<&Path>,
    rules: &[Rule],
    suppressions: &Suppressions,
    options: &CheckOptions,
) -> Result<(Findings, Baseline), Stop> {
    let [source] = &Source::each(recording.map(Path::to_owned).as_slice(), None, false)[..] else {
        return Err(Error::new("expected one recording").into());
    };
    // The peak of joined images would be the sum of their peaks.
    let view = View { empty: Empty::Shown, workers: Workers::Each, ..View::default() };
    // An empty recording is an error, not an exceeded limit.
    let opened = source::apply_answered(source, &options.selection, view);
    let (recording, answer) = opened.map_err(unless_negative)?;
    let opened = Selected::new(recording, options.selection.pid()).map_err(unless_negative)?;
    let process = opened.largest(Measure::PeakBytes).map_err(unless_negative)?;
    let path = opened.recording.path.display();
    let subject = match &*options.command {
        [] => format!("{path}: {}, {}", process.identity.name(), process.who()),
        words => words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
    };
    if let Some(why) = process.completeness.unrecorded {
        return Err(Error::new(format!("{subject}: nothing was recorded: {why}")).into());
    }
    if let Some(why) = too_many_lost(process) {
        return Err(Error::new(format!("{subject}: cannot be checked: {why}")).into());
    }
    let lost = if wants_lost(rules) { lost(source, process, options)? } else { None };
    let measured = Measured::new(process, suppressions);
    let measured = match &lost {
        Some(lost) => measured.with_lost(lost, suppressions),
        None => measured,
    };
    let values =
        result::measure(&measured, rules).map_err(|what| Error::new(format!("{path}: {what}")))?;
    let of_kind = heap_only(process, &answer).filter(|_| options.selection.kind.is_none());
    let chosen = Chosen::new(&options.selection, Reader::Program)?;
    let nothing = chosen.nothing(&opened.recording, options.selection.pid());
    let empty = rules.iter().map(|rule| &rule.part).filter(|part| !measured.has_any(part));
    let mut empty: Vec<String> = empty.map(|part| format!("no allocations match {part}")).collect();
    empty.dedup();
    let empty = nothing.map_or(empty, |nothing| vec![nothing]);
    let removed = removed_images(&opened.recording.removed);
    let removed = removed.map(|says| format!("{says}: not checked"));
    let notes = empty.into_iter().chain(of_kind).chain(notes(process)).chain(removed).collect();
    Ok((Findings { answer, subject, all: Vec::new(), notes }, values))
}

/// Returns why a process cannot be checked, if many of its events are missing from the counters: a
/// limit that it exceeds would pass.
fn too_many_lost(process: &Process) -> Option<String> {
    /// The most that may be missing: one event in this.
    const PART: u64 = 1000;
    let lost = process.completeness.uncounted_events();
    let totals = &process.totals;
    let counted = totals.allocations.saturating_add(totals.frees);
    (lost > counted / PART).then(|| {
        let of = count(counted.saturating_add(lost));
        let space = process.completeness.losses.iter().any(|loss| loss.name == "no_space");
        let why = if space {
            "the profile could not grow; is the disk full?"
        } else {
            "see `heaptide info`"
        };
        format!("{} of {of} events are not recorded: {why}", count(lost))
    })
}

fn wants_lost(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.limit.quantity == Quantity::Lost)
}

/// Reads a process with its lost blocks as live ones; `None` if it was not searched at its end.
///
/// Errors: the recording cannot be read, or the search failed.
fn lost(
    source: &Source,
    process: &Process,
    options: &CheckOptions,
) -> Result<Option<Process>, Stop> {
    let source = Source { live: Live::Lost, ..source.clone() };
    let view = View { empty: Empty::Shown, workers: Workers::Each, ..View::default() };
    let opened = source::apply_answered(&source, &options.selection, view);
    let (recording, _) = opened.map_err(unless_negative)?;
    let file = &process.identity.file;
    let is_it = |other: &Process| other.identity.file == *file;
    let Some(process) = recording.processes.into_iter().find(is_it) else { return Ok(None) };
    if let Some(why) = process.completeness.notes.iter().find(|n| n.starts_with(NOT_SEARCHED)) {
        return Err(Error::new(format!("{}: {why}", file.display())).into());
    }
    Ok(Some(process).filter(|process| process.completeness.searched.is_some()))
}

fn unless_negative(stop: Stop) -> Stop {
    match stop {
        Stop::Negative(reason) => Stop::Failed(Error::new(reason)),
        other => other,
    }
}

/// States that limits apply to the heap, if the program also mapped memory that raises its peak.
fn heap_only(process: &Process, answer: &Answer) -> Option<String> {
    let heap = process.totals.peak_bytes;
    let all = answer.peak_bytes.filter(|all| *all > heap + heap / 64)?;
    let with = bytes(all);
    Some(format!(
        "heap only; with the memory that the program maps itself (--kind program), peak is {with}"
    ))
}

/// Returns what is missing in a process, so that its values may be too small.
fn notes(process: &Process) -> Vec<String> {
    let lost = process.completeness.lost_events();
    let lost = (lost > 0).then(|| format!("{} are not recorded", counted(lost, "event")));
    let missing = missing::of_process(process).into_iter();
    let missing = missing.map(|what| format!("not recorded: {what}"));
    let sampled = sampling_says(process).map(|says| format!("sampled: {says}"));
    let notes = process.completeness.notes.iter().cloned();
    missing.chain(lost).chain(sampled).chain(notes).collect()
}

/// Writes all files, and then to standard output, or to standard error if standard output belongs
/// to PROGRAM.
fn write_all(findings: &Findings, options: &CheckOptions) -> Result<(), Error> {
    let sources = Sources::here(options.link.clone(), |name| env::var(name).ok());
    let write = |format: CheckFormat, out: &mut dyn Write| match format {
        CheckFormat::Text => text::write(out, findings),
        CheckFormat::Json => json::write(out, findings),
        CheckFormat::Junit => junit::write(out, findings),
        CheckFormat::Markdown => markdown::write(out, findings, &sources),
        CheckFormat::Github => github::write(out, findings, &sources),
    };
    for (format, path) in &options.write {
        output::write(path, true, |out| write(*format, out))?;
    }
    if options.command.is_empty() {
        return output::print(|out| write(options.format, out));
    }
    let mut text = Vec::new();
    write(options.format, &mut text)?;
    message::plain(&String::from_utf8_lossy(&text));
    Ok(())
}
