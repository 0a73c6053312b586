//! `heaptide run --snapshot-every`: copies the live profiles of a recording at an interval.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heaptide_analysis::running;

use crate::control::{Control, Wait};
use crate::error::Error;

/// Takes snapshots until it is dropped.
pub struct Watch {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts a thread that takes a snapshot of every process of the recording at each interval.
    pub fn start(recording: &Path, every: Duration) -> Watch {
        let recording = recording.to_owned();
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || watch(recording, every, &stopped));
        Watch { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Intervals count from the start: one whose time is past by the end of a copy is left out.
fn watch(recording: PathBuf, every: Duration, stopped: &Receiver<()>) {
    let mut next = Instant::now() + every;
    let mut told = false;
    while stopped.recv_timeout(next.saturating_duration_since(Instant::now()))
        == Err(RecvTimeoutError::Timeout)
    {
        // Without a profile yet, or with none left, there is nothing to copy.
        let found = running::of_recording(&recording).unwrap_or_default();
        for running in found {
            let taken = Control::open(&running).and_then(|c| c.snapshot("", Wait::No));
            if let Some(error) = failure(taken.err(), &running).filter(|_| !told) {
                eprintln!("heaptide: {error}; later ones may be missing, too");
                told = true; // once: the output is the program's
            }
        }
        while next <= Instant::now() {
            next += every;
        }
    }
}

/// The error to tell: none if the process ended meanwhile.
fn failure(error: Option<Error>, running: &running::Running) -> Option<Error> {
    error.filter(|_| running.is_there())
}
