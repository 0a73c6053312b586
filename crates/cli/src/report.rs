//! `heaptide report`: the page, one table, or everything as JSON.

use heaptide_analysis::model::Measure;
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::select::{self, Selected};
use heaptide_command::selection::Which;
use heaptide_command::source::View;
use heaptide_command::{output, source};
use heaptide_render::{json, origins, table, text};

use crate::options::{Format, ReportOptions, Rows};

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
    let source = match options.by {
        None => options.source.listing_damage(),
        Some(_) => options.source.clone(),
    };
    let recording = source::apply(&source, &options.selection, View::default())?;
    let (sort, top, process) = (options.sort, options.top, options.selection.pid());
    if options.format == Format::Json {
        let sort = sort.unwrap_or(Measure::AtPeakBytes);
        let choice = json::Choice { sort, top, process };
        output::print(|out| json::write(out, &recording, &choice))?;
        return select::absence(&recording, process).map_or(Ok(()), |why| Err(Stop::Negative(why)));
    }
    let selected = Selected::new(recording, process)?;
    match options.by {
        Some(Rows::Processes(by)) => {
            let table = origins::Table { by, sort, top, process };
            output::print_page(|out| origins::write(out, &selected.recording, &table))?;
        }
        Some(Rows::Sites(by)) => {
            let process = selected.largest(sort.unwrap_or(Measure::AtPeakBytes))?;
            match by {
                GroupBy::Lane | GroupBy::Size => {}
                GroupBy::Scope | GroupBy::Label => selected.require_scopes(process)?,
                _ => selected.require_stacks(process)?,
            }
            let table = table::Table { by, sort, top };
            output::print_page(|out| table::write(out, process, &table))?;
        }
        None => {
            let page = text::Page { sort, top, process };
            output::print_page(|out| text::write(out, &selected.recording, &page))?;
        }
    }
    Ok(())
}
