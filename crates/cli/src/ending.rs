//! Signals that end a command that records or watches programs, or make it take a snapshot. They
//! are blocked and read, so that the command ends in an orderly way.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use heaptide_command::error::Error;
use heaptide_control::Snapshots;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::options::SnapshotOptions;

/// The interval of checks.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// The signals that end a command.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The signals, blocked and read from a descriptor.
pub struct Ending {
    signals: SignalFd,
    /// Signals that take a snapshot, each with the name of its snapshots.
    taking: Vec<(i32, String)>,
}

impl Ending {
    /// Blocks the signals in this thread and in the threads that it starts.
    ///
    /// Errors: `signalfd` does not support a signal (a real-time one), or no descriptor is left.
    pub fn block(options: &SnapshotOptions) -> Result<Ending, Error> {
        let taking: Vec<(i32, String)> =
            options.signals().map(|(signal, name)| (signal, name.to_owned())).collect();
        let mut set = SigSet::empty();
        ENDING.iter().for_each(|&signal| set.add(signal));
        for (signal, name) in &taking {
            let signal = Signal::try_from(*signal).map_err(|_| {
                Error::new(format!(
                    "--snapshot-when {name}: expected USR1 or USR2 for this command"
                ))
            })?;
            set.add(signal);
        }
        let opened = set.thread_block().and_then(|()| {
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        });
        let failed =
            |error| Error::new(format!("cannot wait for signals: {}", io::Error::from(error)));
        Ok(Ending { signals: opened.map_err(failed)?, taking })
    }

    /// Returns whether a signal that ends the command has arrived. `snapshots` takes a snapshot for
    /// each other signal.
    fn has_come(&self, snapshots: Option<&Snapshots>) -> bool {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo as i32;
            let Some((_, name)) = self.taking.iter().find(|(taking, _)| *taking == number) else {
                return true;
            };
            snapshots.inspect(|snapshots| snapshots.take(name));
        }
        false
    }

    /// Waits until `duration` has passed, `is_over` returns true, or an ending signal arrives.
    pub fn wait(
        &self,
        duration: Option<Duration>,
        snapshots: Option<&Snapshots>,
        is_over: impl Fn() -> bool,
    ) {
        let until = duration.map(|time| Instant::now() + time);
        while !is_over() && !self.has_come(snapshots) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            thread::sleep(left.map_or(LOOKS_EVERY, |left| left.min(LOOKS_EVERY)));
        }
    }
}
