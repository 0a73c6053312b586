//! Sends metrics and profiles to an OpenTelemetry collector, by OTLP over HTTP.

mod client;
mod endpoint;
mod metrics;
mod push;
mod resource;

pub use endpoint::Endpoint;
pub(crate) use push::Pusher;
pub use push::{Otlp, Report};
