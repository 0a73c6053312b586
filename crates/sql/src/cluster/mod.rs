//! Queries on several machines, with Ballista: a scheduler plans a client's query, executors run
//! it, and the client fetches the result from them. All three are this program.

mod client;
mod executor;
mod files;
mod logging;
mod scheduler;
mod server;
mod tables;
mod token;
mod version;

pub use client::{Cluster, StatementFiles};
pub use executor::{ExecutorOptions, executor};
pub use scheduler::{SchedulerOptions, scheduler};
pub use version::VERSION;
