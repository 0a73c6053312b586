//! Entries into the recorder: interposed functions of the C library, or the allocator of a Rust
//! program.

#[cfg(not(embedded))]
mod auxiliary;
#[cfg(not(embedded))]
mod confinement;
#[cfg(embedded)]
pub mod embedded;
#[cfg(not(embedded))]
pub mod exec;
#[cfg(not(embedded))]
mod exec_hooks;
#[cfg(not(embedded))]
mod exec_target;
#[cfg(not(embedded))]
mod jemalloc;
#[cfg(not(embedded))]
mod limits;
#[cfg(not(embedded))]
mod mlock;
#[cfg(not(embedded))]
mod operators;
#[cfg(not(embedded))]
mod table;
