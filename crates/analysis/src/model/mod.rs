//! The tables from which all views are computed, and sums over them. Plain data with typed ids: a
//! view reads these tables and never the profile file.

mod account;
mod attribution;
mod completeness;
mod device;
mod identity;
mod ids;
mod mapped;
mod mapping;
mod measure;
mod process;
mod recording;
pub mod retained;
mod sampling;
mod scope_name;
mod site_rows;
mod spread;
mod steps;
mod subject;
mod sum;
mod tables;
mod time;
mod trace;
mod walk;

pub use account::{
    Account, AccountCause, AccountMissing, AccountRange, AllocatorSource, AllocatorState,
    RangeMapping,
};
pub use attribution::{Attribution, OwnName, OwnPattern};
pub use completeness::{
    Completeness, Interception, Loss, Off, ProfileLimit, Searched, SearchedAt, UnrecordedProgram,
};
pub use device::{
    Device, DeviceApi, DeviceClass, DeviceMemory, DeviceSum, DeviceTotals, PoolBytes,
};
pub use heaptide_format::{Call, PythonObjects};
pub use identity::{End, Identity, Lifetime, Rank, Run};
pub use ids::{FrameId, LabelId, LaneId, ModuleId, ScopeId, StackId};
pub use mapped::{Mapped, MappedChange};
pub use mapping::{MappedTotals, Mapping, MappingClass};
pub use measure::{Combine, Measure, Measures, Unit, UnknownMeasure};
pub use process::{Mode, Process, UnwinderStats};
pub use recording::{DamagedFile, OutOfMemory, Recording, Removed};
pub use sampling::{Interval, Sampling};
pub(crate) use scope_name::scope_name;
pub use scope_name::scope_path;
pub use site_rows::{SiteRow, SiteRows};
pub use spread::Spread;
pub(crate) use steps::{NOTHING, steps};
pub use subject::{ImageRole, Reason, Rest, Subject};
pub use sum::Sum;
pub use tables::{
    BELOW_THRESHOLD, CodeKind, Counted, DEEPER_FRAMES_CUT, Entered, Frame, Label, Lane, Module,
    Moved, NOT_BELOW_THRESHOLD, Scope, Shape, Site, SiteKind, SizeClass, StackNode, Tables,
};
pub use time::{Bounds, Highest, Mark, MarkKind, Sample, TimeTables, Window};
pub(crate) use trace::EventExtent;
pub use trace::Trace;
