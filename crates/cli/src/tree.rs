//! `heaptide tree`: the tree of calls or of scopes as text.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use heaptide_analysis::model::{Process, Recording};
use heaptide_command::error::Error;
use heaptide_command::{NEGATIVE, source};
use heaptide_render::{scopes, tree};

use crate::options::TreeOptions;

/// Prints the tree.
pub fn tree(options: &TreeOptions) -> Result<ExitCode, Error> {
    if !(0.0..=100.0).contains(&options.min_percent) {
        let found = options.min_percent;
        return Err(Error::new(format!("--min-percent {found}: expected 0 to 100")));
    }
    let apart =
        if options.scopes { options.origins.in_scopes() } else { options.origins.in_stacks() };
    let uncut = options.bottom_up || options.scopes;
    let open = if uncut { source::open_uncut } else { source::open_apart };
    let recording = open(&options.source, &options.selection, apart)?;
    if !source::has(&recording, options.selection.pid()) {
        return Ok(ExitCode::from(NEGATIVE));
    }
    let process = source::largest(&recording, options.selection.pid(), options.metric);
    if options.scopes {
        return of_scopes(options, &recording, process);
    }
    let view = tree::View {
        measure: options.metric,
        bottom_up: options.bottom_up,
        depth: options.selection.depth.map_or(usize::MAX, NonZeroUsize::get),
        min_percent: options.min_percent,
    };
    let Some(process) = process.filter(|p| source::has_stacks(&recording, p)) else {
        return Ok(ExitCode::from(NEGATIVE));
    };
    source::print_page(|out| tree::write(out, process, &view))?;
    Ok(ExitCode::SUCCESS)
}

fn of_scopes(
    options: &TreeOptions,
    recording: &Recording,
    process: Option<&Process>,
) -> Result<ExitCode, Error> {
    let view = scopes::View {
        measure: options.metric,
        depth: options.selection.depth.map_or(usize::MAX, NonZeroUsize::get),
        min_percent: options.min_percent,
        per_lane: options.per_thread,
    };
    let Some(process) = process.filter(|p| source::has_scopes(recording, p)) else {
        return Ok(ExitCode::from(NEGATIVE));
    };
    source::print_page(|out| scopes::write(out, process, &view))?;
    Ok(ExitCode::SUCCESS)
}
