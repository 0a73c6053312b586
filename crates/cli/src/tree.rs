//! `heaptide tree`: the call tree as text.

use std::process::ExitCode;

use heaptide_render::tree;

use crate::NO;
use crate::error::Error;
use crate::options::TreeOptions;
use crate::source;

/// Prints the tree.
pub fn tree(options: &TreeOptions) -> Result<ExitCode, Error> {
    if !(0.0..=100.0).contains(&options.min_percent) {
        let found = options.min_percent;
        return Err(Error::new(format!("--min-percent {found}: expected 0 to 100")));
    }
    let recording = source::open(&options.source)?;
    if !source::has(&recording, options.process) {
        return Ok(ExitCode::from(NO));
    }
    let view = tree::View {
        measure: options.measure,
        bottom_up: options.bottom_up,
        depth: options.depth.unwrap_or(usize::MAX),
        min_percent: options.min_percent,
    };
    let process = source::largest(&recording, options.process, options.measure);
    let Some(process) = process.filter(|p| source::has_stacks(&recording, p)) else {
        return Ok(ExitCode::from(NO));
    };
    source::print(|out| tree::write(out, process, &view))?;
    Ok(ExitCode::SUCCESS)
}
