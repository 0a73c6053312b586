//! Signals that the command receives while the program runs: read without a handler, and
//! distinguished by whether the program received them, too.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use nix::unistd::Pid;

use crate::exec::{self, Origin};

/// The size of the kernel's `struct signalfd_siginfo`.
pub(crate) const RECORD_BYTES: usize = 128;
/// The most records to read at once.
const BATCH: usize = 32;
/// The kernel's first real-time signal: signals from it on are queued.
const FIRST_QUEUED: i32 = 32;
/// Signals that stop a process and can be blocked: those of a terminal.
pub(crate) const STOPPING: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// A signal, and its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) signal: i32,
    pub(crate) origin: Origin,
}

impl Received {
    /// Decodes the signal in a signalfd record; `None` if the record is all zeros.
    pub(crate) fn decode(record: &[u8; RECORD_BYTES]) -> Option<Received> {
        let half = |at: usize| record[at..].first_chunk().copied().map(u32::from_ne_bytes);
        let word = |at: usize| record[at..].first_chunk().copied().map(u64::from_ne_bytes);
        let signal = half(0)? as i32;
        let (code, process, user) = (half(8)? as i32, half(12)?, half(16)?);
        let origin = Origin { code, process, user, value: word(48)? };
        (signal != 0).then_some(Received { signal, origin })
    }

    /// Returns whether it is SIGCHLD from the kernel.
    pub(crate) fn is_of_child(&self) -> bool {
        self.signal == libc::SIGCHLD && self.origin.code > 0
    }

    /// Returns whether this signal cancels a pending one: stop and continue signals cancel each
    /// other.
    pub(crate) fn cancels(&self, pending: &Received) -> bool {
        let (news, old) = (self.signal, pending.signal);
        news == libc::SIGCONT && STOPPING.contains(&old)
            || STOPPING.contains(&news) && old == libc::SIGCONT
    }

    fn is_queued(&self) -> bool {
        self.signal >= FIRST_QUEUED
    }

    /// Sends it to the program, with its value if it has one.
    pub(crate) fn forward(&self, program: Pid) {
        // It fails if the program has ended or has changed its user, as it would for the original
        // sender.
        let _ = match self.origin.code {
            code if code < 0 => exec::queue(program, self.signal, self.origin),
            _ => exec::kill(program, self.signal),
        };
    }
}

/// All signals of this process, blocked and read from a descriptor.
pub struct Signals(File);

impl Signals {
    /// Blocks every signal in this thread and in threads that it starts. Changes only the
    /// dispositions that this process needs to stop itself and to wait.
    ///
    /// Errors: there is no free descriptor.
    pub fn block() -> io::Result<Signals> {
        Ok(Signals(exec::block_signals()?.into()))
    }

    /// Returns the signals that have arrived for the calling process.
    pub(crate) fn read(&self) -> Vec<Received> {
        self.records().iter().filter_map(Received::decode).collect()
    }

    /// Returns the signals as the kernel's records.
    pub(crate) fn records(&self) -> Vec<[u8; RECORD_BYTES]> {
        let mut found = Vec::new();
        let mut records = [[0; RECORD_BYTES]; BATCH];
        loop {
            let bytes = (&self.0).read(records.as_flattened_mut()).unwrap_or(0);
            let whole = &records[..bytes / RECORD_BYTES];
            found.extend_from_slice(whole);
            if whole.len() < BATCH {
                return found;
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the signals of the command that were sent only to it, in order. `seen` are those that
/// another process of its group received; unmatched ones stay in it.
///
/// For signals that are not queued, a second one from the same sender is merged with the first:
/// `timeout` signals the process and then its group, and the program has received one of them.
pub(crate) fn sent_to_us_alone(own: Vec<Received>, seen: &mut Vec<Received>) -> Vec<Received> {
    let is_same = |a: &Received, b: &Received| {
        if a.is_queued() {
            a == b
        } else {
            (a.signal, a.origin.process) == (b.signal, b.origin.process)
        }
    };
    let mut to_all: Vec<Received> = Vec::new();
    let mut alone = Vec::new();
    for signal in own {
        if let Some(place) = seen.iter().position(|other| is_same(&signal, other)) {
            to_all.push(seen.remove(place));
        } else if signal.is_queued() || !to_all.iter().any(|other| is_same(&signal, other)) {
            alone.push(signal);
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(process: u32, signal: i32) -> Received {
        Received { signal, origin: Origin { code: 0, process, user: 0, value: 0 } }
    }

    fn queued(value: u64) -> Received {
        Received { signal: 40, origin: Origin { code: -1, process: 7, user: 0, value } }
    }

    #[test]
    fn records_are_decoded() {
        let mut record = [0; RECORD_BYTES];
        assert_eq!(Received::decode(&record), None);
        for (at, value) in [(0, 40u32), (8, -1i32 as u32), (12, 7), (16, 1000), (48, 0x1234)] {
            record[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let origin = Origin { code: -1, process: 7, user: 1000, value: 0x1234 };
        assert_eq!(Received::decode(&record), Some(Received { signal: 40, origin }));
    }

    #[test]
    fn signals_to_the_group_are_not_forwarded() {
        let mut seen = vec![from(0, libc::SIGINT)];
        let own = vec![from(0, libc::SIGINT), from(5, libc::SIGTERM)];
        assert_eq!(sent_to_us_alone(own, &mut seen), [from(5, libc::SIGTERM)]);
        assert_eq!(seen, []);
    }

    #[test]
    fn a_signal_to_process_and_group_is_forwarded_once() {
        let mut seen = vec![from(5, libc::SIGTERM)];
        let own = vec![from(5, libc::SIGTERM), from(5, libc::SIGTERM), from(6, libc::SIGTERM)];
        assert_eq!(sent_to_us_alone(own, &mut seen), [from(6, libc::SIGTERM)]);
    }

    #[test]
    fn queued_signals_are_matched_one_by_one() {
        let mut seen = vec![queued(2), queued(2)];
        let own = vec![queued(1), queued(2), queued(2), queued(2), queued(3)];
        assert_eq!(sent_to_us_alone(own, &mut seen), [queued(1), queued(2), queued(3)]);
        assert_eq!(seen, []);
    }

    #[test]
    fn stop_and_continue_cancel_each_other() {
        let (stop, go_on, other) = (from(1, libc::SIGTSTP), from(2, libc::SIGCONT), from(1, 15));
        assert!(stop.cancels(&go_on) && go_on.cancels(&stop));
        assert!(!stop.cancels(&stop) && !go_on.cancels(&other) && !other.cancels(&stop));
    }

    #[test]
    fn unmatched_signals_are_kept() {
        let mut seen = vec![from(5, libc::SIGTERM)];
        assert_eq!(sent_to_us_alone(vec![], &mut seen), []);
        assert_eq!(sent_to_us_alone(vec![from(5, libc::SIGTERM)], &mut seen), []);
        assert_eq!(seen, []);
    }
}
