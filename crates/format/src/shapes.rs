//! Limits of the shapes of labelled memory.

/// The most dimensions of a [`crate::Shape`]; further ones are multiplied into the last.
pub const DIMENSIONS: usize = 4;
/// The most shapes of a process.
pub const SHAPES_MAX: u32 = 1 << 16;
