//! Readings of all processes, one for all requests that come within a short time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heaptide_http::Refusal;
use heaptide_http::cache::{Cache, Room, Weight};

use crate::collector::{Collector, Reading};

/// One reading is kept.
const READINGS: Room = Room { most: 1, least: 1, bytes: usize::MAX };
/// All is read again after this many times the processor time that it took: at most 2 % of a core,
/// however many ask.
const REST: u32 = 50;
/// It is read again no sooner than this.
const REST_MIN: Duration = Duration::from_millis(100);
/// It is read again at the latest after this.
const REST_MAX: Duration = Duration::from_secs(10);

impl Reading {
    fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < (self.cost * REST).clamp(REST_MIN, REST_MAX)
    }
}

impl Weight for Reading {
    fn bytes(&self) -> usize {
        0 // bounded by the number of series
    }
}

/// Readings, as they are asked for.
pub(crate) struct Readings {
    collector: Arc<Mutex<Collector>>,
    cache: Cache<(), Reading>,
}

impl Readings {
    pub(crate) fn new(collector: Collector) -> Readings {
        Readings { collector: Arc::new(Mutex::new(collector)), cache: Cache::new(READINGS) }
    }

    /// A reading that is new or a short time old.
    ///
    /// Errors: the server has a fault.
    pub(crate) async fn now(&self) -> Result<Arc<Reading>, Refusal> {
        let collector = self.collector.clone();
        let read = move || Ok(collector.lock().unwrap_or_else(PoisonError::into_inner).read());
        self.cache.get((), Reading::is_fresh, read).await
    }
}
