//! `heaptide diff`: compares two recordings, or two snapshots of one.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heaptide_analysis::model::{Measure, Mode, Process};
use heaptide_analysis::recording::Live;
use heaptide_analysis::selection::kind::MemoryKind;
use heaptide_analysis::views::diff::{Change, Comparison, Difference, Side};
use heaptide_command::damage::Listed;
use heaptide_command::error::Error;
use heaptide_command::growth::Limit;
use heaptide_command::message::message;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::Content;
use heaptide_command::selection::{SELECTION, Selection, Source, Which};
use heaptide_command::source::{Empty, Reader, View};
use heaptide_command::{output, source, target};
use heaptide_render::export::diff_flamegraph::{self, Drawing, Scale};
use heaptide_render::shared::change::{growth, signed};
use heaptide_render::shared::difference::{self, Rows};
use heaptide_render::shared::quantity::amount;
use heaptide_render::{json, text};

use crate::options::{FLAME_GRAPHS, metric_parser};

/// `heaptide diff`.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLE)]
pub struct DiffOptions {
    /// Baseline: a recording, a profile in it, or the process id of a running program; REC@N and
    /// REC@NAME are snapshots of REC, @N one of the newest recording
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// Recording to compare with it, in the same form
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Show one row for each KIND [default: function, or scope without stacks]
    #[arg(long, value_name = "KIND")]
    pub by: Option<DiffBy>,
    /// Metric to compare [default: live_bytes for snapshots of one run, otherwise at_peak_bytes]
    #[arg(long, aliases = ["measure", "sort"], value_name = "METRIC")]
    #[arg(value_parser = metric_parser(), hide_possible_values = true)]
    pub metric: Option<Measure>,
    /// Show at most N rows [default: 20, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if the total grew by more than LIMIT, such as 5%, 4096, 64K or 1M
    #[arg(long, value_name = "LIMIT")]
    pub fail_above: Option<Limit>,
    /// Output format: text for reading, json with all changed rows, svg as a flame graph
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: DiffFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Recording whose values are the widths of boxes [default: after]
    #[arg(long, value_name = "SIDE", help_heading = FLAME_GRAPHS)]
    pub widths: Option<Widths>,
    /// Scale the values of A to the total of B, to show changes in proportion
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub normalize: bool,
    /// Count from the start of the program, ignoring resets
    #[arg(long, help_heading = SELECTION)]
    pub from_start: bool,
    #[command(flatten)]
    pub selection: Selection,
}

impl DiffOptions {
    /// Returns the two sources to compare.
    fn sources(&self) -> Result<[Source; 2], Error> {
        let given = [self.before.clone(), self.after.clone()];
        let [before, after] = given.map(|given| {
            target::resolve(&Source {
                recording: Some(given),
                snapshot: None,
                from_start: self.from_start,
                listed: Listed::Nowhere,
                live: Live::AtEnd,
            })
        });
        Ok([before?, after?])
    }

    /// Returns the metric to compare, and the reason for it if it was not given.
    fn measure(&self, [before, after]: &[Source; 2]) -> (Measure, Option<&'static str>) {
        match self.metric {
            Some(measure) => (measure, None),
            None if before.recording == after.recording => {
                (Measure::LiveBytes, Some("two snapshots of one run; --metric selects another"))
            }
            None => (Measure::AtPeakBytes, Some("--metric selects another")),
        }
    }
}

const DIFF_EXAMPLE: &str = "\
Example:
  heaptide diff before.heaptide after.heaptide --metric live_bytes
  heaptide diff main.heaptide branch.heaptide --fail-above 5%
  heaptide diff app.heaptide@1 app.heaptide@2 --by stack --metric live_bytes
  heaptide diff before.heaptide after.heaptide --format svg -o change.svg";

/// The kind of rows of a difference.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffBy {
    /// A function
    Function,
    /// A source line of a function
    Line,
    /// A whole stack
    Stack,
    /// A scope path
    Scope,
}

/// Output formats of `diff`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffFormat {
    /// Human-readable text
    Text,
    /// All changed rows, for scripts
    Json,
    /// Differential flame graph
    Svg,
}

/// The side whose values are the widths of boxes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widths {
    /// Values of A: shows memory that is gone
    Before,
    /// Values of B: shows memory that is new
    After,
}

/// Compares the recordings; the result is negative if the metric grew by more than the limit.
pub fn diff(options: &DiffOptions) -> Outcome {
    check(options)?;
    let sources = options.sources()?;
    let (measure, chosen) = options.measure(&sources);
    let mut compared = compare(options, &options.selection, &sources, measure)?;
    if options.selection.process.is_none() && compared.joins_one_side() {
        // One process and several workers are no versions of the same.
        let process = Some(Which::All);
        let selection = Selection { process, ..options.selection.clone() };
        compared = compare(options, &selection, &sources, measure)?;
        message("comparing all process images joined: on one side, several are workers");
    }
    if options.selection.kind.is_none() && compared.has_mappings_on_one_side() {
        // What people see of each alone; both sides need the same kind of memory, and a trace has
        // the heap only.
        for kind in [MemoryKind::Program, MemoryKind::Heap] {
            let selection = Selection { kind: Some(kind), ..options.selection.clone() };
            compared = compare(options, &selection, &sources, measure)?;
            if !compared.has_mappings_on_one_side() {
                break;
            }
            message("comparing the heap: mapped memory is not part of a recording with a trace");
        }
    }
    let Compared { mut difference, rows, says, .. } = compared;
    says.iter().for_each(message);
    suit_counters(options, &mut difference)?;
    let names = [&options.before, &options.after].map(|path| path.display().to_string());
    let (before, after) = (names[0].as_str(), names[1].as_str());
    let view = difference::View { before, after, rows, top: options.top, chosen };
    if options.format == DiffFormat::Svg {
        require_drawable(options, &difference, &view)?;
    }
    let (file, force) = (options.output.as_deref(), options.force);
    match options.format {
        DiffFormat::Text => output::write_or_print_page(file, force, |out| {
            text::diff::write(out, &difference, &view)
        })?,
        DiffFormat::Json => output::write_or_print(file, force, Content::Data, |out| {
            json::diff::write(out, &difference, &view)
        })?,
        DiffFormat::Svg => output::write_or_print(file, force, Content::Data, |out| {
            diff_flamegraph::write(out, &difference, &view, options.drawing())
        })?,
    }
    match options.fail_above.filter(|limit| limit.is_exceeded(certain_growth(&difference))) {
        Some(limit) => Err(Stop::Negative(too_much(&difference, limit))),
        None => Ok(()),
    }
}

/// Two compared processes.
struct Compared {
    difference: Difference,
    rows: Rows,
    /// Which processes were chosen from several.
    says: Vec<String>,
    /// Whether memory that the program mapped is a part of each side.
    adds_mappings: [bool; 2],
}

impl Compared {
    /// Returns whether several process images were joined on one side, and not on the other.
    fn joins_one_side(&self) -> bool {
        let is_joined = |process: &Process| process.identity.images > 1;
        is_joined(&self.difference.before) != is_joined(&self.difference.after)
    }

    /// Returns whether memory that the program mapped is a part of one side only, although both
    /// have some.
    fn has_mappings_on_one_side(&self) -> bool {
        let (before, after) = (&self.difference.before, &self.difference.after);
        before.completeness.leaves_mappings && self.adds_mappings[1]
            || after.completeness.leaves_mappings && self.adds_mappings[0]
    }
}

/// Returns whether memory that the program mapped is a part of the sites.
fn has_mappings(process: &Process) -> bool {
    process.tables.sites.iter().any(|site| site.kind.mapping().is_some())
}

fn compare(
    options: &DiffOptions,
    selection: &Selection,
    sources: &[Source; 2],
    measure: Measure,
) -> Result<Compared, Stop> {
    let (before, before_says) = open(options, selection, &sources[0], measure, None)?;
    let rows = match (options.by, before.mode) {
        (Some(DiffBy::Function), _) | (None, Mode::Stacks | Mode::Counters) => Rows::Functions,
        (Some(DiffBy::Line), _) => Rows::Lines,
        (Some(DiffBy::Stack), _) => Rows::Stacks,
        (Some(DiffBy::Scope), _) | (None, Mode::Scopes) => Rows::Scopes,
    };
    let program = before.identity.name().to_owned();
    let has_before = has_mappings(&before);
    // The first is reduced to the compared rows before the second is read, since both can be large.
    let half = Comparison::new(measure, rows.by()).before(before);
    let (after, after_says) = open(options, selection, &sources[1], measure, Some(&program))?;
    let says = before_says.into_iter().chain(after_says).collect();
    let adds_mappings = [has_before, has_mappings(&after)];
    Ok(Compared { difference: half.after(after), rows, says, adds_mappings })
}

/// Checks the options before anything is read.
fn check(options: &DiffOptions) -> Result<(), Error> {
    let drawn = options.format == DiffFormat::Svg;
    if !drawn && (options.normalize || options.widths.is_some()) {
        return Err(Error::new("--normalize and --widths require --format svg"));
    }
    match &options.output {
        Some(path) => output::may_write(path, options.force),
        None => Ok(()),
    }
}

/// Returns the process of a recording to compare: of those that run `program`, if any does, or else
/// of all, the subject or else the largest. Second, which one it is, if it was chosen.
fn open(
    options: &DiffOptions,
    selection: &Selection,
    source: &Source,
    measure: Measure,
    program: Option<&str>,
) -> Result<(Process, Option<String>), Stop> {
    let reader = match options.format {
        DiffFormat::Text | DiffFormat::Svg => Reader::Person,
        DiffFormat::Json => Reader::Program,
    };
    // Limits apply to the same memory in all formats.
    let view = View { empty: Empty::Reported, reader, usual_kind: true, ..View::default() };
    let selected = source::open_view(source, selection, view)?;
    let (path, selected_pid) = (selected.recording.path.clone(), selected.pid);
    let is_same = |p: &Process| program.is_some_and(|program| p.identity.name() == program);
    let (process, all) = selected.into_largest(measure, is_same)?;
    let says = (all > 1 && selected_pid.is_none()).then(|| {
        let (path, identity) = (path.display(), &process.identity);
        // Each of the others is a single one.
        let of = all as u32 - 1 + identity.images;
        let which = match identity.images {
            1 => format!("pid {} image {} of {of} process images", identity.pid, identity.image),
            some => format!("{some} of {of} process images together"),
        };
        format!(
            "{path}: comparing {which}; `--process all` includes all, {path}/PID-IMAGE.profile \
             selects another"
        )
    });
    Ok((process, says))
}

/// Adapts the metric to `--mode counters`, which has the peak but not the bytes at peak of rows.
fn suit_counters(options: &DiffOptions, difference: &mut Difference) -> Result<(), Error> {
    let sides = [(&difference.before, &options.before), (&difference.after, &options.after)];
    let Some((_, path)) = sides.iter().find(|(process, _)| process.mode == Mode::Counters) else {
        return Ok(());
    };
    match options.metric {
        Some(measure @ (Measure::AtPeakBytes | Measure::AtPeakBlocks)) => {
            let path = path.display();
            Err(Error::new(format!(
                "{path}: recorded with --mode counters, without {measure}; use \
                 --metric peak_bytes"
            )))
        }
        Some(_) => Ok(()),
        None => {
            if difference.measure == Measure::AtPeakBytes {
                difference.measure = Measure::PeakBytes;
            }
            Ok(())
        }
    }
}

/// Checks that there is something to draw.
fn require_drawable(
    options: &DiffOptions,
    difference: &Difference,
    view: &difference::View,
) -> Result<(), Stop> {
    let total = difference.total_of(difference.measure.of_sites());
    let (width, name) = match options.drawing().widths {
        Side::Before => (total.before, view.before),
        Side::After => (total.after, view.after),
    };
    if let Some(why) = view.without_rows(difference) {
        return Err(Stop::negative(why));
    }
    if width == 0 {
        let measure = difference.measure.of_sites().name();
        return Err(Stop::negative(format_args!("{name}: {measure} is 0: nothing to draw")));
    }
    Ok(())
}

impl DiffOptions {
    fn drawing(&self) -> Drawing {
        let widths = match self.widths {
            Some(Widths::Before) => Side::Before,
            Some(Widths::After) | None => Side::After,
        };
        let scale = if self.normalize { Scale::Normalized } else { Scale::AsIs };
        Drawing { widths, scale }
    }
}

/// Returns the change of the total; for estimates and inexact peaks, only the growth that is
/// certain.
fn certain_growth(difference: &Difference) -> Change {
    let total = difference.total();
    if let Some(limits) = difference.limits_of_total() {
        let after = (i128::from(total.before) + limits.low).max(0);
        return Change { after: u64::try_from(after).unwrap_or(u64::MAX), ..total };
    }
    let is_of_peak = matches!(difference.measure, Measure::PeakBytes | Measure::AtPeakBytes);
    let bounds = [&difference.before, &difference.after].map(|p| p.completeness.peak_bound_bytes);
    let uncertain = if is_of_peak { bounds[0].saturating_add(bounds[1]) } else { 0 };
    let least = total.before.min(total.after);
    Change { after: total.after.saturating_sub(uncertain).max(least), ..total }
}

/// Describes the growth that exceeds the limit.
fn too_much(difference: &Difference, limit: Limit) -> String {
    let (measure, change) = (difference.measure, difference.total());
    let value = |value| amount(measure, value);
    let limit = match limit {
        Limit::Amount(most) => value(most),
        Limit::Percent(_) => limit.to_string(),
    };
    let share = growth(change);
    let share = if share.is_empty() { share } else { format!(", {share}") };
    format!(
        "{measure} grew from {} to {}: {}{share}, more than {limit}",
        value(change.before),
        value(change.after),
        signed(measure, change)
    )
}
