//! `heaptide tree`: the tree of calls or of scopes as text.

use std::num::NonZeroUsize;

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::source::{Depth, View};
use heaptide_command::{output, source};
use heaptide_render::{scopes, tree};

use crate::options::TreeOptions;

/// Prints the tree.
pub fn tree(options: &TreeOptions) -> Outcome {
    if !(0.0..=100.0).contains(&options.min_percent) {
        let found = options.min_percent;
        return Err(Error::new(format!("--min-percent {found}: expected 0 to 100")).into());
    }
    let apart =
        if options.scopes { options.origins.in_scopes() } else { options.origins.in_stacks() };
    let cuts_itself = options.bottom_up || options.scopes;
    let depth = if cuts_itself { Depth::Output } else { Depth::Stacks };
    let view = View { apart, depth, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    let process = selected.largest(options.metric)?;
    let depth = options.selection.depth.map_or(usize::MAX, NonZeroUsize::get);
    if options.scopes {
        selected.require_scopes(process)?;
        let view = scopes::View {
            measure: options.metric,
            depth,
            min_percent: options.min_percent,
            per_lane: options.per_thread,
        };
        output::print_page(|out| scopes::write(out, process, &view))?;
        return Ok(());
    }
    selected.require_stacks(process)?;
    let view = tree::View {
        measure: options.metric,
        bottom_up: options.bottom_up,
        depth,
        min_percent: options.min_percent,
    };
    output::print_page(|out| tree::write(out, process, &view))?;
    Ok(())
}
