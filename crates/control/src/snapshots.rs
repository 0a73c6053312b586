//! `heaptide run --snapshot-every`: copies the live profiles of a recording at an interval.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use heaptide_analysis::recording::running;

use crate::control::{Control, Wait};
use crate::error::Error;
use crate::lead::Lead;

/// Programs are looked after first so soon, and last so seldom: an idle one may never answer.
const SETTLE_FIRST: Duration = Duration::from_millis(5);
const SETTLE_LAST: Duration = Duration::from_secs(5);

/// Takes snapshots until it is dropped.
#[derive(Debug)]
pub struct Snapshots {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Starts a thread that takes a snapshot of every process of the recording at each interval, if
    /// this command has the lead then.
    /// The first snapshot that cannot be taken is reported.
    ///
    /// Errors: there can be no thread.
    pub fn start(
        recording: &Path,
        every: Duration,
        lead: Arc<Lead>,
        report: impl Fn(Error) + Send + 'static,
    ) -> Result<Snapshots, Error> {
        let recording = recording.to_owned();
        let (stop, stopped) = channel();
        let thread = Builder::new().spawn(move || take(&recording, every, &lead, &stopped, report));
        let which = "the thread that takes snapshots";
        let thread = thread.map_err(|source| Error::NoThread { which, source })?;
        Ok(Snapshots { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Intervals count from the start: one whose time is past by the end of a copy is left out.
fn take(
    recording: &Path,
    every: Duration,
    lead: &Lead,
    stopped: &Receiver<()>,
    report: impl Fn(Error),
) {
    let mut next = Instant::now() + every;
    let mut is_reported = false;
    let mut asked = Vec::new();
    while settle(&mut asked, next, stopped) {
        // Without a profile yet, or with none left, there is nothing to copy.
        let all = lead.is_ours().then(|| running::of_recording(recording).unwrap_or_default());
        for running in all.into_iter().flatten() {
            let taken = Control::open(&running).and_then(|control| {
                control.snapshot("", Wait::No)?;
                Ok(control)
            });
            match taken {
                Ok(control) => asked.push(control),
                Err(Error::NoHeader { .. }) => {} // its process just starts
                Err(error) if running.is_there() && !is_reported => {
                    report(error);
                    is_reported = true; // once: the output is the program's
                }
                Err(_) => {} // it ended meanwhile
            }
        }
        while next <= Instant::now() {
            next += every;
        }
    }
}

/// Waits until it is time, and meanwhile lets programs that have put the snapshot on their timeline
/// know that this was all. False: it is over.
fn settle(asked: &mut Vec<Control>, next: Instant, stopped: &Receiver<()>) -> bool {
    let mut pause = SETTLE_FIRST;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let rest = if asked.is_empty() { left } else { left.min(pause) };
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
        asked.retain(|control| control.is_settled().is_ok_and(|settled| !settled));
        if Instant::now() >= next {
            asked.clear();
            return true;
        }
        pause = (pause * 2).min(SETTLE_LAST);
    }
}
