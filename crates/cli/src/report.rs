//! `heaptide report`: the page, one table, or everything as JSON.

use std::process::ExitCode;

use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_command::error::Error;
use heaptide_command::selection::Which;
use heaptide_command::{NEGATIVE, source};
use heaptide_render::{json, origins, table, text};

use crate::options::{Format, ReportOptions, Rows};

/// Prints the report.
pub fn report(options: &ReportOptions) -> Result<ExitCode, Error> {
    if options.format == Format::Json && options.by.is_some() {
        return Err(Error::new("--by requires --format text; json contains all sites"));
    }
    if let Some(Rows::Processes(by)) = options.by
        && options.selection.process == Some(Which::All)
    {
        let by = by.name();
        return Err(Error::new(format!("--by {by} shows all processes; omit --process all")));
    }
    let source = match options.by {
        None => options.source.listing_damage(),
        Some(_) => options.source.clone(),
    };
    let recording = source::open(&source, &options.selection)?;
    if !source::has(&recording, options.selection.pid()) && options.format == Format::Text {
        return Ok(ExitCode::from(NEGATIVE));
    }
    let (sort, top, process) = (options.sort, options.top, options.selection.pid());
    match (options.format, options.by) {
        (Format::Json, _) => {
            let sort = sort.unwrap_or(Measure::AtPeakBytes);
            let choice = json::Choice { sort, top, process };
            source::print(|out| json::write(out, &recording, &choice))?;
            let found = recording.processes.iter().any(|p| process.is_none_or(|pid| pid == p.pid));
            if !found {
                return Ok(ExitCode::from(NEGATIVE));
            }
        }
        (Format::Text, Some(Rows::Processes(by))) => {
            let table = origins::Table { by, sort, top, process };
            source::print_page(|out| origins::write(out, &recording, &table))?;
        }
        (Format::Text, Some(Rows::Sites(by))) => {
            let measure = sort.unwrap_or(Measure::AtPeakBytes);
            let table = table::Table { by, sort, top };
            let process = source::largest(&recording, process, measure);
            let fits = |p: &&Process| match by {
                GroupBy::Lane | GroupBy::Size => true,
                GroupBy::Scope | GroupBy::Label => source::has_scopes(&recording, p),
                _ => source::has_stacks(&recording, p),
            };
            let Some(process) = process.filter(fits) else {
                return Ok(ExitCode::from(NEGATIVE));
            };
            source::print_page(|out| table::write(out, process, &table))?;
        }
        (Format::Text, None) => {
            let page = text::Page { sort, top, process };
            source::print_page(|out| text::write(out, &recording, &page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
