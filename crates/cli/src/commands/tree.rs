//! `heaptide tree`: the call tree or scope tree as text.

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::aggregate::GroupBy;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::source::{Depth, Reader, View};
use heaptide_command::{output, source, values};
use heaptide_render::shared::views::{BranchOrder, Idle};
use heaptide_render::text::{scope_tree, tree};

use crate::options::{metric_parser, require_of_rows};

/// `heaptide tree`.
#[derive(Args, Debug)]
#[command(after_help = TREE_EXAMPLE)]
pub struct TreeOptions {
    #[command(flatten)]
    pub source: Source,
    /// Metric to show [default: at_peak_bytes, with --scopes usable_bytes]
    #[arg(long, aliases = ["measure", "sort"], value_name = "METRIC")]
    #[arg(value_parser = metric_parser(), hide_possible_values = true)]
    pub metric: Option<Measure>,
    /// Show allocating functions first, with their callers below them
    #[arg(long, conflicts_with = "scopes")]
    pub bottom_up: bool,
    /// Show the tree of scopes instead of functions
    #[arg(long)]
    pub scopes: bool,
    /// Show one tree for each thread
    #[arg(long, alias = "per-lane", requires = "scopes")]
    pub per_thread: bool,
    /// Order of branches: first (called or entered first) or value (largest first) [default: value,
    /// with --scopes first]
    #[arg(long, value_name = "first|value", hide_possible_values = true)]
    pub order: Option<Branches>,
    /// Omit smaller branches; the number is a percentage of the total, with --scopes they become
    /// one row [default: 1, or 0 for up to 50 scopes]
    #[arg(long, value_name = "P", value_parser = values::percent)]
    pub min_percent: Option<f64>,
    /// Show a node for each function or line; or join all processes, with an outermost frame for
    /// each process, host or rank [default: function]
    #[arg(long, value_name = "function|line|process|host|rank", value_parser = by_parser(),
        hide_possible_values = true)]
    pub by: Option<By>,
    #[command(flatten)]
    pub selection: Selection,
}

/// What nodes represent, or the outermost frames of joined processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Functions.
    Function,
    /// Lines of functions.
    Line,
    /// Functions, below a frame for each process, host or rank.
    Origin(Origin),
}

/// Parses the kind of nodes or outermost frames.
fn by_parser() -> impl TypedValueParser<Value = By> {
    let nodes = [(GroupBy::Function.name(), By::Function), (GroupBy::Line.name(), By::Line)];
    let names = nodes.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let origins = Origin::all().iter().map(|by| by.name());
    PossibleValuesParser::new(names.into_iter().chain(origins)).try_map(move |name| {
        let node = nodes.iter().find(|(of, _)| *of == name).map(|(_, by)| *by);
        node.map_or_else(|| name.parse().map(By::Origin), Ok)
    })
}

/// The order of branches.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Branches {
    /// Called or entered first
    First,
    /// Largest value first
    Value,
}

impl Branches {
    fn order(self) -> BranchOrder {
        match self {
            Branches::First => BranchOrder::First,
            Branches::Value => BranchOrder::Value,
        }
    }
}

/// The percentage below which branches of functions are omitted.
const MIN_PERCENT: f64 = 1.0;

const TREE_EXAMPLE: &str = "\
Example:
  heaptide tree app.heaptide --bottom-up --metric live_bytes --min-percent 2
  heaptide tree app.heaptide --scopes --per-thread";

/// Prints the tree.
pub fn tree(options: &TreeOptions) -> Outcome {
    let is_first = options.order == Some(Branches::First);
    if options.bottom_up && is_first {
        return Err(Error::new("--order first requires a tree with callers above callees").into());
    }
    let (metric, order) = if options.scopes {
        (Measure::UsableBytes, BranchOrder::First)
    } else {
        (Measure::AtPeakBytes, BranchOrder::Value)
    };
    let metric = options.metric.unwrap_or(metric);
    let order = options.order.map_or(order, Branches::order);
    require_of_rows(metric)?;
    let apart = match options.by {
        Some(By::Function | By::Line) if options.scopes => {
            let what = "--by function and --by line require a tree of functions; omit --scopes";
            return Err(Error::new(what).into());
        }
        Some(By::Origin(by)) if options.scopes => Apart::InScopes(by),
        Some(By::Origin(by)) => Apart::InStacks(by),
        _ => Apart::Nowhere,
    };
    let cuts_itself = options.bottom_up || options.scopes;
    let depth = if cuts_itself { Depth::Output } else { Depth::Stacks };
    let view = View { apart, depth, reader: Reader::Person, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    let process = selected.largest(metric)?;
    let depth = options.selection.depth.map_or(usize::MAX, NonZeroUsize::get);
    if options.scopes {
        selected.require_scopes(process)?;
        let is_filtered = options.selection.filters();
        let view = scope_tree::View {
            measure: metric,
            order,
            depth,
            min_percent: options.min_percent,
            idle: if is_filtered { Idle::Omitted } else { Idle::Shown },
            per_lane: options.per_thread,
        };
        output::print_page(|out| scope_tree::write(out, process, &view))?;
        return Ok(());
    }
    selected.require_stacks(process)?;
    let view = tree::View {
        measure: metric,
        by_line: options.by == Some(By::Line),
        bottom_up: options.bottom_up,
        order,
        depth,
        min_percent: options.min_percent.unwrap_or(MIN_PERCENT),
    };
    output::print_page(|out| tree::write(out, process, &view))?;
    Ok(())
}
