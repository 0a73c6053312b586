//! Ids: indices into the tables of a process, each of a type of its own.

/// Index into [`Tables::stacks`](super::Tables::stacks); 0 is the empty stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StackId(pub u32);

/// Index into [`Tables::frames`](super::Tables::frames).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub u32);

/// Index into [`Tables::lanes`](super::Tables::lanes).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LaneId(pub u32);

/// Index into [`Tables::scopes`](super::Tables::scopes); 0 is no scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ScopeId(pub u32);

/// Index into [`Tables::labels`](super::Tables::labels).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LabelId(pub u32);

/// Index into [`Tables::modules`](super::Tables::modules).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub u32);
