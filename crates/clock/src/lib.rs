//! The clock of recordings: the system's monotonic clock or, in tests, a time that the test sets.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::time::Duration;

use heaptide_format::settings::Setting;
use nix::time::{ClockId, clock_gettime};

/// Longest wait while a test sets the time, which wakes no thread.
const POLL: Duration = Duration::from_millis(5);

static CLOCK: LazyLock<Clock> =
    LazyLock::new(|| Clock::new(std::env::var_os(Setting::Clock.variable())));

/// Returns the time since a fixed moment. Profiles contain times of this clock.
pub fn now() -> Duration {
    CLOCK.now()
}

/// Returns [`now`] in nanoseconds.
pub fn now_ns() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns for how long to wait at most to notice that this time has passed.
pub fn longest_wait(time: Duration) -> Duration {
    CLOCK.longest_wait(time)
}

/// The source of the time.
enum Clock {
    Monotonic,
    /// A file that begins with the time in nanoseconds, in the byte order of the machine.
    Set(File),
}

impl Clock {
    /// Returns the clock that a value of the variable names; that of the system without a value, or
    /// if the file cannot be opened.
    fn new(file: Option<OsString>) -> Clock {
        file.and_then(|path| File::open(path).ok()).map_or(Clock::Monotonic, Clock::Set)
    }

    fn now(&self) -> Duration {
        match self {
            Clock::Monotonic => {
                clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
            }
            Clock::Set(file) => {
                let mut time = [0; 8];
                let _ = file.read_exact_at(&mut time, 0); // a short file: zero
                Duration::from_nanos(u64::from_ne_bytes(time))
            }
        }
    }

    fn longest_wait(&self, time: Duration) -> Duration {
        match self {
            Clock::Monotonic => time,
            Clock::Set(_) => time.min(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_fixtures::Scratch;

    #[test]
    fn a_test_sets_the_time() {
        let place = Scratch::new("clock");
        let path = place.join("clock");
        std::fs::write(&path, 5_000_000_007_u64.to_ne_bytes()).expect("a file");
        let clock = Clock::new(Some(path.clone().into()));
        assert_eq!(clock.now(), Duration::new(5, 7));
        assert_eq!(clock.longest_wait(Duration::from_secs(3)), POLL);
        assert_eq!(clock.longest_wait(Duration::from_millis(1)), Duration::from_millis(1));
        std::fs::write(&path, 6_000_000_000_u64.to_ne_bytes()).expect("a file");
        assert_eq!(clock.now(), Duration::from_secs(6));
    }

    #[test]
    fn without_a_file_it_is_the_monotonic_clock() {
        for file in [None, Some("/does/not/exist".into())] {
            let clock = Clock::new(file);
            let before = clock.now();
            assert!(before > Duration::ZERO && before <= clock.now());
            assert_eq!(clock.longest_wait(Duration::from_secs(3)), Duration::from_secs(3));
        }
    }
}
