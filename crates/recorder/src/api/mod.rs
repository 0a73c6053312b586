//! What programs, monitors and commands ask of the recorder.

pub mod control;
pub mod interface;
pub mod marks;
pub mod monitors;
pub mod regions;
pub mod relabel;
pub mod thread_measure;
pub mod windows;
