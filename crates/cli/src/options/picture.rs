//! What stacks consist of, and how flame graphs are drawn.

use std::num::NonZeroUsize;

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_command::selection::Origins;
use heaptide_render::export::flamegraph::{
    Drawing, LEAST_PERCENT, LEVELS, Order, Outermost, Recursion,
};
use heaptide_render::shared::branches::Lanes;

/// What stacks are of.
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
    /// What is inside the scopes; none where scopes are no frames.
    pub fn in_scopes(&self) -> Option<Inside> {
        match (self.scopes, self.scopes_and_stacks) {
            (true, _) => Some(Inside::Nothing),
            (_, true) => Some(Inside::Functions),
            _ => None,
        }
    }

    /// The metric unless another is chosen. Of scopes it is what was allocated in them, since many
    /// free all of it before the peak.
    pub fn metric(&self) -> Measure {
        if self.scopes { Measure::UsableBytes } else { Measure::AtPeakBytes }
    }

    /// Where joined processes are kept apart.
    pub fn apart(&self, origins: &Origins) -> Apart {
        match self.in_scopes() {
            Some(_) => origins.in_scopes(),
            None => origins.in_stacks(),
        }
    }
}

/// How a flame graph is drawn.
#[derive(Args, Debug)]
pub struct Picture {
    /// Draw outermost functions at the bottom, not at the top
    #[arg(long, help_heading = FLAME_GRAPHS, conflicts_with = "icicle")]
    pub flames: bool,
    /// Draw outermost functions at the top, as by default
    #[arg(long, help_heading = FLAME_GRAPHS, hide = true)]
    pub icicle: bool,
    /// Draw allocating functions at the root, and their callers next to them
    #[arg(long, help_heading = FLAME_GRAPHS)]
    pub bottom_up: bool,
    /// Draw each call of a function by itself as a box of its own
    #[arg(long, help_heading = FLAME_GRAPHS)]
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
    /// Whether anything of it is asked for.
    pub fn is_asked_for(&self) -> bool {
        let switches = [self.flames, self.icicle, self.bottom_up, self.unfold_recursion];
        switches.contains(&true) || self.width.is_some() || self.title.is_some()
    }

    /// The drawing it describes, of so many levels and without boxes below so many percent.
    pub fn drawing(
        &self,
        measure: Measure,
        lanes: Lanes,
        levels: Option<NonZeroUsize>,
        min_percent: Option<f64>,
    ) -> Drawing {
        let recursion = if self.unfold_recursion { Recursion::Drawn } else { Recursion::Folded };
        Drawing {
            measure,
            order: if self.bottom_up { Order::Callers } else { Order::Calls },
            lanes,
            outermost: if self.flames { Outermost::Bottom } else { Outermost::Top },
            recursion,
            levels: levels.map_or(LEVELS, NonZeroUsize::get),
            least_percent: min_percent.unwrap_or(LEAST_PERCENT),
            width: self.width,
            title: self.title.clone(),
        }
    }
}
