//! The interface of the recorder for programs.

pub mod control;
pub mod inheritance;
pub mod interface;
pub mod kokkos;
pub mod monitors;
pub mod regions;
pub mod windows;
