//! Bounds of the shapes of labelled memory.

/// Dimensions of a [`crate::Shape`]; further ones are multiplied into the last.
pub const DIMENSIONS: usize = 4;
/// A process has so many shapes at most.
pub const SHAPES_MAX: u32 = 1 << 16;
