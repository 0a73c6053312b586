//! Readings of all processes, shared by all requests within a short time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heaptide_http::Refusal;
use heaptide_http::cache::{Cache, Room, Weight};

use crate::collector::{Collector, Reading};

/// One reading is cached.
const READINGS: Room = Room { most: 1, least: 1, bytes: usize::MAX };
/// Minimum age of a reading before the next one, as a multiple of its processor time: at most 2 %
/// of a core, regardless of the number of requests.
const REST: u32 = 50;
/// Lower bound of this age.
const REST_MIN: Duration = Duration::from_millis(100);
/// Upper bound of this age.
const REST_MAX: Duration = Duration::from_secs(10);

impl Reading {
    fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < (self.cost * REST).clamp(REST_MIN, REST_MAX)
    }
}

impl Weight for Reading {
    fn bytes(&self) -> usize {
        0 // limited by the number of series
    }
}

/// Provides readings on request.
pub(crate) struct Readings {
    collector: Arc<Mutex<Collector>>,
    cache: Cache<(), Reading>,
}

impl Readings {
    pub(crate) fn new(collector: Collector) -> Readings {
        Readings { collector: Arc::new(Mutex::new(collector)), cache: Cache::new(READINGS) }
    }

    /// Returns a reading that is new or a short time old.
    ///
    /// Errors: an internal error of the server.
    pub(crate) async fn now(&self) -> Result<Arc<Reading>, Refusal> {
        let collector = self.collector.clone();
        let read = move || Ok(collector.lock().unwrap_or_else(PoisonError::into_inner).read());
        self.cache.get((), Reading::is_fresh, read).await
    }
}
