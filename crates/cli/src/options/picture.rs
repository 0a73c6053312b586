//! Options for the frames of stacks, and for the layout of flame graphs.

use std::num::NonZeroUsize;

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_command::selection::{Origins, Selection};
use heaptide_render::export::flamegraph::{
    Drawing, LEAST_PERCENT, LEVELS, Order, Outermost, Recursion,
};
use heaptide_render::shared::branches::Lanes;

/// Whether stacks consist of functions, scopes or both.
#[derive(Args, Debug, Default)]
pub struct Frames {
    /// Show scopes instead of functions
    #[arg(long, conflicts_with = "scopes_and_stacks")]
    pub scopes: bool,
    /// Show scopes as outer frames of the functions that allocate in them
    #[arg(long)]
    pub scopes_and_stacks: bool,
}

impl Frames {
    /// Returns what to show inside scopes; none if scopes are not frames.
    pub fn in_scopes(&self) -> Option<Inside> {
        match (self.scopes, self.scopes_and_stacks) {
            (true, _) => Some(Inside::Nothing),
            (_, true) => Some(Inside::Functions),
            _ => None,
        }
    }

    /// Returns the default metric. For scopes it is bytes allocated in them, since many scopes free
    /// everything before the peak.
    pub fn metric(&self) -> Measure {
        if self.scopes { Measure::UsableBytes } else { Measure::AtPeakBytes }
    }

    /// Returns how to keep joined processes separate.
    pub fn apart(&self, origins: &Origins) -> Apart {
        match self.in_scopes() {
            Some(_) => origins.in_scopes(),
            None => origins.in_stacks(),
        }
    }
}

/// How to draw a flame graph.
#[derive(Args, Debug)]
pub struct Picture {
    /// Draw outermost functions at the bottom, not at the top
    #[arg(long, help_heading = FLAME_GRAPHS, conflicts_with = "icicle")]
    pub flames: bool,
    /// Draw outermost functions at the top (default)
    #[arg(long, help_heading = FLAME_GRAPHS, hide = true)]
    pub icicle: bool,
    /// Draw allocating functions at the root, and their callers next to them
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub bottom_up: bool,
    /// Draw each recursive call as a separate box (default)
    #[arg(long, help_heading = FLAME_GRAPHS, hide = true)]
    pub unfold_recursion: bool,
    /// Width of the image [default: the width of its window]
    #[arg(long, value_name = "PIXELS", help_heading = FLAME_GRAPHS,
        value_parser = clap::value_parser!(u32).range(300..=100_000))]
    pub width: Option<u32>,
    /// Title [default: command line and metric]
    #[arg(long, value_name = "TEXT", help_heading = FLAME_GRAPHS)]
    pub title: Option<String>,
}

/// The heading of options of flame graphs.
pub const FLAME_GRAPHS: &str = "Flame graphs";

impl Picture {
    /// Returns whether any of these options is given.
    pub fn is_asked_for(&self) -> bool {
        let switches = [self.flames, self.icicle, self.bottom_up, self.unfold_recursion];
        switches.contains(&true) || self.width.is_some() || self.title.is_some()
    }

    /// Returns the drawing of a selection, without boxes below `min_percent`.
    pub fn drawing(
        &self,
        measure: Measure,
        lanes: Lanes,
        selection: &Selection,
        min_percent: Option<f64>,
    ) -> Drawing {
        let is_folded = selection.fold_recursion && !self.unfold_recursion;
        let recursion = if is_folded { Recursion::Folded } else { Recursion::Drawn };
        Drawing {
            measure,
            order: if self.bottom_up { Order::Callers } else { Order::Calls },
            lanes,
            outermost: if self.flames { Outermost::Bottom } else { Outermost::Top },
            recursion,
            levels: selection.depth.map_or(LEVELS, NonZeroUsize::get),
            least_percent: min_percent.unwrap_or(LEAST_PERCENT),
            width: self.width,
            title: self.title.clone(),
        }
    }
}
