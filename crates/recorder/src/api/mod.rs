//! What programs ask of the recorder.

pub mod control;
pub mod interface;
pub mod monitors;
pub mod regions;
pub mod windows;
