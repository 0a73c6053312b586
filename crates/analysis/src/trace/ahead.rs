//! Reads the records of a trace ahead: a separate thread reads, decodes and merges them.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::lanes::{Lanes, Lost, Step};

/// Records in a batch.
const BATCH: usize = 4096;
/// Batches in the queue: enough for some milliseconds, during which the reading thread can be
/// preempted.
const WAITING: usize = 8;

/// The records of a trace in order, read by a separate thread. The thread ends when it has read all
/// records, or with the next batch after the receiver is dropped.
///
/// Memory is bounded by the batches in the queue, the one being filled and the one being consumed.
#[derive(Debug)]
pub(super) struct Ahead {
    batches: Receiver<Read>,
    /// Returns consumed batches for reuse.
    used: SyncSender<Vec<Step>>,
    now: Vec<Step>,
    /// The next step in `now`.
    at: usize,
    /// The unreadable parts, after the last step.
    end: Option<Lost>,
}

/// A message of the thread.
enum Read {
    Steps(Vec<Step>),
    /// The end of the records, with the unreadable parts.
    End(Lost),
}

impl Ahead {
    /// Starts to read lanes.
    ///
    /// Errors: no thread can be started.
    pub(super) fn of(lanes: Lanes) -> io::Result<Ahead> {
        Ahead::by(|to, again| read(lanes, &to, &again))
    }

    /// Starts a thread and returns the receiver of its messages.
    fn by(
        read: impl FnOnce(SyncSender<Read>, Receiver<Vec<Step>>) + Send + 'static,
    ) -> io::Result<Ahead> {
        let (to, batches) = sync_channel(WAITING);
        let (used, again) = sync_channel(WAITING + 2);
        thread::Builder::new().spawn(move || read(to, again))?;
        Ok(Ahead { batches, used, now: Vec::new(), at: 0, end: None })
    }

    /// Returns the next records that are available; none at the end.
    pub(super) fn steps(&mut self) -> &[Step] {
        if self.at == self.now.len() && self.end.is_none() {
            self.take();
        }
        &self.now[self.at..]
    }

    /// Skips this many of [`Ahead::steps`].
    pub(super) fn pass(&mut self, steps: usize) {
        self.at = self.now.len().min(self.at + steps);
    }

    /// Returns the unreadable parts, once all records were returned.
    pub(super) fn lost(&self) -> Option<&Lost> {
        self.end.as_ref()
    }

    #[cold]
    fn take(&mut self) {
        self.at = 0;
        let mut taken = std::mem::take(&mut self.now);
        taken.clear();
        let _ = self.used.try_send(taken); // the thread may have ended
        match self.batches.recv() {
            Ok(Read::Steps(steps)) => self.now = steps,
            Ok(Read::End(lost)) => self.end = Some(lost),
            Err(_) => {
                let why = Some("the reading thread ended early".to_owned());
                self.end = Some(Lost { chunks: 1, why, faults: 0 });
            }
        }
    }
}

/// Sends the records of lanes until the receiver is dropped.
fn read(mut lanes: Lanes, to: &SyncSender<Read>, again: &Receiver<Vec<Step>>) {
    loop {
        let mut steps = again.try_recv().unwrap_or_default();
        steps.reserve_exact(BATCH);
        lanes.gather(&mut steps);
        if steps.is_empty() {
            let _ = to.send(Read::End(lanes.into_lost())); // the receiver may have been dropped
            return;
        }
        if to.send(Read::Steps(steps)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::trace::lanes::{Kind, Who};

    fn step(time_ns: u64) -> Step {
        Step {
            time_ns,
            who: Who::default(),
            kind: Kind::StillThere,
            reallocated: false,
            remapped: false,
            site: 0,
            address: 0,
            requested: 0,
            usable: 0,
        }
    }

    #[test]
    fn records_come_in_order_and_what_is_lost_after_them() {
        let mut ahead = Ahead::by(|to, again| {
            for first in (0..300).step_by(3) {
                let mut steps = again.try_recv().unwrap_or_default();
                assert!(steps.is_empty());
                steps.extend((first..first + 3).map(step));
                to.send(Read::Steps(steps)).expect("somebody takes them");
            }
            let lost = Lost { chunks: 2, why: Some("damaged".to_owned()), faults: 1 };
            to.send(Read::End(lost)).expect("somebody takes it");
        })
        .expect("a thread");
        let mut seen = Vec::new();
        while let &[first, ..] = ahead.steps() {
            assert!(ahead.lost().is_none());
            let count = if first.time_ns % 2 == 0 { 1 } else { 5 };
            seen.extend(ahead.steps().iter().take(count).map(|step| step.time_ns));
            ahead.pass(count);
        }
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        assert_eq!(ahead.lost().map(|lost| (lost.chunks, lost.faults)), Some((2, 1)));
        assert!(ahead.steps().is_empty());
    }

    #[test]
    fn a_thread_that_ends_early_is_no_end() {
        let mut ahead = Ahead::by(|to, _| {
            let _ = to.send(Read::Steps(vec![step(1)]));
        })
        .expect("a thread");
        assert_eq!(ahead.steps().len(), 1);
        ahead.pass(1);
        assert!(ahead.steps().is_empty());
        let lost = ahead.lost().expect("what is lost");
        let why = lost.why.as_deref();
        assert_eq!((lost.chunks, why), (1, Some("the reading thread ended early")));
    }

    #[test]
    fn the_thread_ends_when_nobody_takes_more() {
        let (done, is_done) = channel();
        let mut ahead = Ahead::by(move |to, _| {
            while to.send(Read::Steps(vec![step(1)])).is_ok() {}
            let _ = done.send(());
        })
        .expect("a thread");
        assert_eq!(ahead.steps().len(), 1);
        drop(ahead);
        is_done.recv_timeout(Duration::from_secs(60)).expect("the end of the thread");
    }
}
