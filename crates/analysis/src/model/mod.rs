//! The tables that every view is made of, and sums over them. Plain data with typed ids: a view
//! reads the tables and never the profile file.

mod ids;
mod measure;
mod process;
mod scope_name;
mod sum;
mod trace;
mod walk;

pub use ids::{FrameId, LabelId, LaneId, ModuleId, ScopeId, StackId};
pub use measure::{Combine, Measure, Measures, UnknownMeasure};
pub use process::{
    DamagedFile, End, Entered, Frame, Label, Lane, Loss, Mark, MarkKind, Mode, Module, Moved,
    Process, Rank, Recording, Run, Scope, Site, SiteKind, SizeClass, StackNode, UnwinderStats,
    Window,
};
pub(crate) use scope_name::scope_name;
pub use sum::Sum;
pub(crate) use trace::EventExtent;
pub use trace::Trace;
