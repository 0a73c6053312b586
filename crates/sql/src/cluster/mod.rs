//! Queries on several machines, by Ballista: a scheduler plans what a client asks, executors answer
//! it, and the client fetches the result from them. All three are this program.

mod client;
mod executor;
mod logging;
mod scheduler;
mod server;
mod tables;
mod version;

pub use client::Cluster;
pub use executor::{ExecutorOptions, executor};
pub use scheduler::{SchedulerOptions, scheduler};
pub use version::VERSION;
