//! `heaptide report`: the report, a table, or everything as JSON.

use std::io::{self, Write};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::replayed::replayed;
use heaptide_command::select::{self, Selected};
use heaptide_command::selection::{Selection, Source, Which};
use heaptide_command::source::{View, Workers};
use heaptide_command::{missing_names, output, source};
use heaptide_render::json;
use heaptide_render::shared::names::printable;
use heaptide_render::text::report::Shown;
use heaptide_render::text::screen::Screen;
use heaptide_render::text::{self, origins, table};

use crate::options::{Format, HELP_COLUMNS, metric_parser, require_of_rows};

/// `heaptide report`.
#[derive(Args, Debug)]
#[command(after_help = report_help())]
pub struct ReportOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show one table with a row for each KIND instead of the report
    #[arg(long, value_name = "KIND", value_parser = by_parser())]
    pub by: Option<Rows>,
    /// Show and sort rows by this metric [default: at_peak_bytes, or usable_bytes for scopes]
    #[arg(long, visible_alias = "sort", alias = "measure", value_name = "METRIC",
        value_parser = metric_parser(), hide_possible_values = true)]
    pub metric: Option<Measure>,
    /// Show at most N rows [default: 5 per section, 20 in a table, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show sizes and counts in full, not rounded (`--by stack` always does)
    #[arg(long)]
    pub exact: bool,
    /// Show a table of all process images, and a page for the largest ones
    #[arg(long)]
    pub all_processes: bool,
    /// Output format: text for reading, json with all sites and metrics
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub selection: Selection,
}

const REPORT_EXAMPLE: &str = "\
Example:
  heaptide report app.heaptide --by function --metric temporary --top 20";

/// Returns the example and the list of metrics, wrapped to `HELP_COLUMNS`.
fn report_help() -> String {
    let mut help = format!("{REPORT_EXAMPLE}\n\nMetrics:\n ");
    let mut column = 1;
    for measure in Measure::all() {
        let width = 1 + measure.name().len();
        if column + width > HELP_COLUMNS {
            help.push_str("\n ");
            column = 1;
        }
        help.push_str(&format!(" {measure}"));
        column += width;
    }
    help
}

/// The kind of rows of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Groups of the sites of a process.
    Sites(GroupBy),
    /// Groups of the processes of a recording.
    Processes(Origin),
}

/// Parses a kind of rows.
fn by_parser() -> impl TypedValueParser<Value = Rows> {
    let sites = GroupBy::all().iter().map(|by| match by {
        GroupBy::Lane => PossibleValue::new(by.name()).alias(GroupBy::FORMER_LANE),
        by => PossibleValue::new(by.name()),
    });
    let processes = Origin::all().iter().map(|by| PossibleValue::new(by.name()));
    PossibleValuesParser::new(sites.chain(processes)).try_map(|name| {
        name.parse().map(Rows::Processes).or_else(|_| name.parse().map(Rows::Sites))
    })
}

/// Prints the report.
pub fn report(options: &ReportOptions) -> Outcome {
    if options.format == Format::Json && options.by.is_some() {
        return Err(Error::new("--by requires --format text; json contains all sites").into());
    }
    if let Some(Rows::Processes(by)) = options.by
        && options.selection.process == Some(Which::All)
    {
        let by = by.name();
        return Err(Error::new(format!("--by {by} shows all processes; omit --process all")).into());
    }
    if options.all_processes && (options.by.is_some() || options.selection.process.is_some()) {
        let what = "--all-processes shows the page of all processes; omit --by and --process";
        return Err(Error::new(what).into());
    }
    if let Some(metric) = options.metric
        && !matches!(options.by, Some(Rows::Processes(_)))
    {
        require_of_rows(metric)?;
    }
    let source = match options.by {
        None => options.source.listing_damage(),
        Some(_) => options.source.clone(),
    };
    let reader = options.format.reader();
    let workers = match (options.format, options.by) {
        _ if options.all_processes => Workers::Each,
        (Format::Json, _) | (_, Some(Rows::Processes(_))) => Workers::Each,
        (Format::Text, None | Some(Rows::Sites(_))) => Workers::Joined,
    };
    // Their highest live bytes are those of events.
    let events = matches!(options.by, Some(Rows::Sites(GroupBy::Lane | GroupBy::Stack)));
    let view = View { reader, workers, events, ..View::default() };
    let (sort, top, process) = (options.metric, options.top, options.selection.pid());
    if options.format == Format::Json {
        let (recording, answer) = source::apply_answered(&source, &options.selection, view)?;
        let sort = sort.unwrap_or(Measure::AtPeakBytes);
        let choice = json::report::Choice { sort, top, process };
        output::print(|out| json::report::write(out, &recording, &choice, &answer))?;
        return select::absence(&recording, process).map_or(Ok(()), |why| Err(Stop::Negative(why)));
    }
    let recording = source::apply(&source, &options.selection, view)?;
    let selected = Selected::new(recording, process)?;
    let page = |write: &dyn Fn(&mut Screen) -> io::Result<()>| {
        output::print_page(|out| {
            out.set_exact(options.exact);
            write(out)
        })
    };
    match options.by {
        Some(Rows::Processes(by)) => {
            let table = origins::Table { by, sort, top, process };
            page(&|out| origins::write(out, &selected.recording, &table))?;
        }
        Some(Rows::Sites(by)) => {
            let process = selected.largest(sort.unwrap_or(Measure::AtPeakBytes))?;
            match by {
                GroupBy::Lane | GroupBy::Size => {}
                GroupBy::Call => selected.require_calls(process)?,
                GroupBy::Scope | GroupBy::Label => selected.require_scopes(process)?,
                _ => selected.require_stacks(process)?,
            }
            let table = table::Table { by, sort, top };
            let highest = events.then(|| replayed(process)).flatten();
            page(&|out| table::write(out, process, &table, highest.as_ref()))?;
        }
        None => {
            let shown = if options.all_processes { Shown::All } else { Shown::Subject };
            let choice = text::report::Page { sort, top, process, shown };
            let recording = &selected.recording;
            let names = missing_names::line(recording, &recording.path);
            page(&|out| {
                text::report::write(out, recording, &choice)?;
                names.iter().try_for_each(|line| writeln!(out, "\n{}", printable(line)))
            })?;
        }
    }
    Ok(())
}
