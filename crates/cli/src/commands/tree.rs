//! `heaptide tree`: the tree of calls or of scopes as text.

use std::num::NonZeroUsize;

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::{Origins, Selection, Source};
use heaptide_command::source::{Depth, Reader, View};
use heaptide_command::{output, source};
use heaptide_render::text::{scope_tree, tree};

use crate::options::{metric_parser, require_of_rows};

/// `heaptide tree`.
#[derive(Args, Debug)]
#[command(after_help = TREE_EXAMPLE)]
pub struct TreeOptions {
    #[command(flatten)]
    pub source: Source,
    /// Metric to show
    #[arg(long, alias = "measure", value_name = "METRIC", value_parser = metric_parser(),
        hide_possible_values = true, default_value = "at_peak_bytes")]
    pub metric: Measure,
    /// Show allocating functions first, with their callers below them
    #[arg(long, conflicts_with = "scopes")]
    pub bottom_up: bool,
    /// Show the tree of scopes instead of functions
    #[arg(long)]
    pub scopes: bool,
    /// Show one tree for each thread
    #[arg(long, alias = "per-lane", requires = "scopes")]
    pub per_thread: bool,
    /// Omit branches below this percentage of the total
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub min_percent: f64,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub selection: Selection,
}

const TREE_EXAMPLE: &str = "\
Example:
  heaptide tree app.heaptide --bottom-up --metric live_bytes --min-percent 2
  heaptide tree app.heaptide --scopes --per-thread";

/// Prints the tree.
pub fn tree(options: &TreeOptions) -> Outcome {
    if !(0.0..=100.0).contains(&options.min_percent) {
        let found = options.min_percent;
        return Err(Error::new(format!("--min-percent {found}: expected 0 to 100")).into());
    }
    require_of_rows(options.metric)?;
    let apart =
        if options.scopes { options.origins.in_scopes() } else { options.origins.in_stacks() };
    let cuts_itself = options.bottom_up || options.scopes;
    let depth = if cuts_itself { Depth::Output } else { Depth::Stacks };
    let view = View { apart, depth, reader: Reader::Person, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    let process = selected.largest(options.metric)?;
    let depth = options.selection.depth.map_or(usize::MAX, NonZeroUsize::get);
    if options.scopes {
        selected.require_scopes(process)?;
        let view = scope_tree::View {
            measure: options.metric,
            depth,
            min_percent: options.min_percent,
            per_lane: options.per_thread,
        };
        output::print_page(|out| scope_tree::write(out, process, &view))?;
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
