//! Sends readings and profiles at an interval, and reports each kind of failure once.

use std::sync::Arc;
use std::time::Duration;

use super::client::{self, Failure};
use super::endpoint::Endpoint;
use super::metrics::{self, Times};
use super::resource;
use crate::app::App;
use crate::collector::Reading;
use crate::profiles::{Allocated, now_ns};

/// Maximum attempts to send a message; later messages include its counters, too.
const ATTEMPTS: u32 = 3;
/// Delay before the second attempt; it doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);
/// The path of metrics.
const METRICS: &str = "/v1/metrics";
/// The path of profiles, as currently specified.
const PROFILES: &str = "/v1development/profiles";

/// Prints a line on standard error.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of sending.
pub struct Otlp {
    /// The address of the collector.
    pub endpoint: Endpoint,
    /// The interval of sending.
    pub interval: Duration,
    /// Whether profiles are sent, too.
    pub has_profiles: bool,
    /// Prints failures.
    pub report: Report,
}

/// Sends to a collector until it is dropped.
pub(crate) struct Pusher {
    otlp: Otlp,
    app: Arc<App>,
    version: &'static str,
    start_ns: u64,
    /// The last failure of metrics and of profiles; `None` after a success.
    failures: [Option<Failure>; 2],
    allocated: Allocated,
}

impl Pusher {
    /// Creates a pusher that has not sent anything.
    pub(crate) fn new(otlp: Otlp, app: Arc<App>, version: &'static str) -> Pusher {
        let allocated = Allocated::default();
        Pusher { otlp, app, version, start_ns: now_ns(), failures: [None, None], allocated }
    }

    /// Sends repeatedly; never returns.
    pub(crate) async fn run(mut self) {
        // The first message is sent immediately, so that a wrong address is reported immediately.
        let mut interval = tokio::time::interval(self.otlp.interval);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            // Failed readings are reported in the state of the server.
            let Ok(reading) = self.app.readings.now().await else { continue };
            let times = Times { now_ns: now_ns(), server_start_ns: self.start_ns };
            let message = metrics::request(&reading, times, self.version);
            let result = self.send(METRICS, &message).await;
            self.note(0, "metrics", result);
            if self.otlp.has_profiles {
                self.send_profiles(&reading).await;
            }
        }
    }

    /// Sends profiles of all running processes. Allocations that could not be sent are included in
    /// the next profiles.
    async fn send_profiles(&mut self, reading: &Reading) {
        if reading.running.is_empty() {
            return;
        }
        let resources = reading.running.iter().map(resource::of_process).collect();
        let allocated = std::mem::take(&mut self.allocated);
        let made = self.app.profiles.otlp(&reading.running, resources, allocated, self.version);
        let Ok((message, next)) = made.await else { return };
        let result = self.send(PROFILES, &message).await;
        self.allocated = next.after(result.is_ok());
        self.note(1, "profiles", result);
    }

    /// Sends a message; retries temporary failures.
    async fn send(&self, path: &str, message: &[u8]) -> Result<(), Failure> {
        let mut wait = BACKOFF;
        for _ in 1..ATTEMPTS {
            match client::send(&self.otlp.endpoint, path, message, self.version).await {
                Err(failure) if failure.is_temporary() => {
                    let asked = match failure {
                        Failure::Status { after, .. } => after,
                        _ => None,
                    };
                    let longest = self.otlp.interval.max(BACKOFF);
                    tokio::time::sleep(asked.unwrap_or(wait).min(longest)).await;
                    wait *= 2;
                }
                result => return result,
            }
        }
        client::send(&self.otlp.endpoint, path, message, self.version).await
    }

    /// Reports a failure if it is of another kind than the last one, and the end of failures.
    fn note(&mut self, index: usize, what: &str, result: Result<(), Failure>) {
        let last = &mut self.failures[index];
        let endpoint = &self.otlp.endpoint;
        match (&result, &last) {
            (Err(failure), last) if last.as_ref().is_none_or(|last| !last.is_like(failure)) => {
                let line = format!("--otlp {endpoint}: cannot send {what}: {failure}");
                (self.otlp.report)(&line);
            }
            (Ok(()), Some(_)) => {
                (self.otlp.report)(&format!("--otlp {endpoint}: {what} are accepted again"));
            }
            _ => {}
        }
        *last = result.err();
    }
}
