//! The control words in the header of a live profile, by which a running program is controlled from
//! outside.
//!
//! They are written into the file, which the program has mapped; the program need not cooperate
//! except by running. A lock on the file serializes commands. A request is written in this order:
//! its fields, its number, the byte that makes the program check for it. So the program sees a
//! complete request or none, even if the command is killed. No word is modified by reading it and
//! writing it back, because the program may change it in between.

use std::fs::{File, TryLockError};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptide_analysis::files::input;
use heaptide_analysis::model::retained::Retained;
use heaptide_analysis::recording::retained::AtEnd;
use heaptide_analysis::recording::running::Running;
use heaptide_analysis::recording::snapshot::{self, Origin};
use heaptide_clock as clock;
use heaptide_format::{FileHeader, MAGIC, REQUEST_BELOW, REQUEST_TEXT, Request, VERSION};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Error;
use crate::file_user;

/// How long to wait for an answer. A program that allocates at all answers sooner.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for an answer that the command does not need. A busy program answers sooner.
const BRIEF_PATIENCE: Duration = Duration::from_millis(20);
/// How long to wait for another command, longer than that waits for its answer.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// Polling interval.
const POLL: Duration = Duration::from_millis(2);
/// The first version of the format with control words.
const FIRST_VERSION: u32 = 2;

/// A live profile.
#[derive(Debug)]
pub struct Control {
    file: File,
    running: Running,
    start_ns: u64,
}

/// How the program responded to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The request was handled.
    Done,
    /// The request will be handled at the program's next allocation.
    Waits,
    /// An earlier request is still pending, so this one was not made.
    Behind,
    /// The program ended before it handled the request.
    Ended,
}

/// Sizes of requests whose stacks are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// Requests of at least this many bytes.
    From(u64),
    /// Requests of fewer bytes than this.
    Below(u64),
}

impl Threshold {
    /// Encodes it as the value of a [`Request::Threshold`].
    pub fn to_value(self) -> u64 {
        match self {
            Threshold::From(bytes) => bytes,
            Threshold::Below(bytes) => bytes | REQUEST_BELOW,
        }
    }
}

/// How long to wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Some seconds.
    Patiently,
    /// As long as a busy program takes at most.
    Briefly,
    /// Not at all.
    No,
}

impl Wait {
    const fn patience(self) -> Duration {
        match self {
            Wait::Patiently => PATIENCE,
            Wait::Briefly => BRIEF_PATIENCE,
            Wait::No => Duration::ZERO,
        }
    }
}

/// A held lock on the file.
struct Locked<'a>(&'a Control);

impl Control {
    /// Opens the profile of a running process.
    pub fn open(running: &Running) -> Result<Control, Error> {
        let running = running.clone();
        let file = input::open_to_change(&running.file);
        let path = running.file.clone();
        let opened = file.map_err(|source| {
            let doing = "open it for writing";
            Error::Profile { path: path.clone(), doing, source }
        });
        let mut control = Control { file: opened?, running, start_ns: 0 };
        let header = control.header()?;
        let version = header.version;
        if header.magic != MAGIC {
            // The process writes the magic number last.
            return Err(Error::NoHeader { path });
        }
        if version < FIRST_VERSION {
            return Err(Error::Older { path, version, first: FIRST_VERSION });
        }
        if version > VERSION {
            return Err(Error::Newer { path, version, known: VERSION });
        }
        control.start_ns = header.start_monotonic_ns;
        Ok(control)
    }

    /// Reads the current header.
    pub fn header(&self) -> Result<FileHeader, Error> {
        let mut bytes = [0; size_of::<FileHeader>()];
        let none = || Error::NoHeader { path: self.running.file.clone() };
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => none(),
            _ => self.error("read its header", error),
        })?;
        FileHeader::read_from_bytes(&bytes).map_err(|_| none())
    }

    /// Returns the process that writes the profile.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Enables or disables recording, effective at the program's next allocation, and requests a
    /// mark of that. Returns the answer to this request.
    pub fn turn(&self, on: bool) -> Result<Answer, Error> {
        let (locked, now_ns) = (self.lock()?, self.now_ns());
        let was_on = self.header()?.command_off == 0;
        locked.set(offset_of!(FileHeader, command_off), !on)?;
        if was_on == on {
            return Ok(Answer::Done);
        }
        locked.request(Request::Turned, on.into(), "", now_ns, Wait::Briefly)
    }

    /// Has the program take no more accounts of memory.
    pub fn give_up_accounts(&self) -> Result<(), Error> {
        let locked = self.lock()?;
        locked.write(offset_of!(FileHeader, accounts_off), &1u32.to_le_bytes())
    }

    /// Stores a word that only one command writes.
    pub(crate) fn store(&self, at: usize, value: u32) -> Result<(), Error> {
        let stored = self.file.write_all_at(&value.to_le_bytes(), at as u64);
        stored.map_err(|e| self.error("control it", e))
    }

    /// Sends a request to the program.
    pub fn request(
        &self,
        kind: Request,
        value: u64,
        text: &str,
        wait: Wait,
    ) -> Result<Answer, Error> {
        self.lock()?.request(kind, value, text, self.now_ns(), wait)
    }

    /// Takes a snapshot, and requests the program to add it to its timeline. Returns its number,
    /// its file and the answer.
    pub fn snapshot(
        &self,
        name: &str,
        wait: Wait,
        origin: Origin,
    ) -> Result<(u32, PathBuf, Answer), Error> {
        let now_ns = self.now_ns();
        let take = |profile: &Path| snapshot::take(profile, name, now_ns, origin);
        let taken = file_user::as_owner(&self.running.file, take);
        let (number, file) =
            taken.map_err(|error| self.error("take a snapshot of it", error))??;
        let file = self.running.file.with_file_name(file.file_name().unwrap_or_default());
        let request = Request::Snapshot;
        let answer = self.lock()?.request(request, number.into(), name, now_ns, wait)?;
        Ok((number, file, answer))
    }

    /// Takes a snapshot like [`Control::snapshot`], on request, after a search of the process at
    /// `time_ns` ([`Control::now_ns`]), and stores beside it what that found. Returns the number
    /// and file of the snapshot.
    pub fn searched_snapshot(
        &self,
        name: &str,
        (retained, time_ns): (Retained, u64),
    ) -> Result<(u32, PathBuf), Error> {
        let (number, file, _) = self.snapshot(name, Wait::Briefly, Origin::Requested)?;
        let found = AtEnd::new(Ok(retained), time_ns, false);
        let stored = file_user::as_owner(&file, |file| found.write(file));
        stored.map_err(|error| self.error("store what a search of it found", error))??;
        Ok((number, file))
    }

    /// Returns whether the program has answered all requests. If so, clears the byte that makes it
    /// check for one at each allocation.
    pub fn is_settled(&self) -> Result<bool, Error> {
        let locked = self.lock()?;
        let number = locked.word(offset_of!(FileHeader, request))?;
        Ok(locked.answer(number, Wait::No)? != Answer::Waits)
    }

    /// Returns the nanoseconds since the start of the recording.
    pub fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.start_ns)
    }

    fn lock(&self) -> Result<Locked<'_>, Error> {
        let start = Instant::now();
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(Locked(self)),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(POLL);
                }
                Err(TryLockError::WouldBlock) => {
                    let held = io::Error::other("locked by another heaptide process; try again");
                    return Err(self.error("control it", held));
                }
                Err(TryLockError::Error(e)) => return Err(self.error("lock it", e)),
            }
        }
    }

    fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Profile { path: self.running.file.clone(), doing, source }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = self.0.file.unlock();
    }
}

impl Locked<'_> {
    fn request(
        &self,
        kind: Request,
        value: u64,
        text: &str,
        time_ns: u64,
        wait: Wait,
    ) -> Result<Answer, Error> {
        let before = self.word(offset_of!(FileHeader, request))?;
        if before != self.word(offset_of!(FileHeader, answered))? {
            // The earlier command may have been killed before it set the byte.
            self.set_waiting(true)?;
        }
        match self.answer(before, wait)? {
            Answer::Done => {}
            Answer::Waits => return Ok(Answer::Behind),
            other => return Ok(other),
        }
        let text = snapshot::cut(text, REQUEST_TEXT);
        // The fields from the kind to the end of the text are contiguous.
        let mut fields = Vec::with_capacity(24 + REQUEST_TEXT);
        fields.extend((kind as u32).to_le_bytes());
        fields.extend((text.len() as u32).to_le_bytes());
        fields.extend(time_ns.to_le_bytes());
        fields.extend(value.to_le_bytes());
        fields.extend(text.as_bytes());
        let number = before.wrapping_add(1);
        self.write(offset_of!(FileHeader, request_kind), &fields)?;
        self.write(offset_of!(FileHeader, request), &number.to_le_bytes())?;
        self.set_waiting(true)?;
        self.answer(number, wait)
    }

    /// Waits for the answer to the request with this number. If it is answered or can no longer be,
    /// clears the byte that makes the program check for requests.
    fn answer(&self, number: u32, wait: Wait) -> Result<Answer, Error> {
        let start = Instant::now();
        let answered = || Ok::<_, Error>(self.word(offset_of!(FileHeader, answered))? == number);
        let running = &self.0.running;
        let answer = loop {
            if answered()? {
                break Answer::Done;
            }
            if !running.is_there() {
                break if answered()? { Answer::Done } else { Answer::Ended };
            }
            if start.elapsed() >= wait.patience() || running.is_stopped() {
                return Ok(Answer::Waits);
            }
            std::thread::sleep(POLL);
        };
        self.set_waiting(false)?;
        Ok(answer)
    }

    /// Sets whether the program checks for a request.
    fn set_waiting(&self, waiting: bool) -> Result<(), Error> {
        self.set(offset_of!(FileHeader, command_request), waiting)
    }

    /// Stores a byte.
    fn set(&self, at: usize, on: bool) -> Result<(), Error> {
        self.write(at, &[u8::from(on)])
    }

    fn word(&self, at: usize) -> Result<u32, Error> {
        let mut word = 0u32;
        let read = self.0.file.read_exact_at(word.as_mut_bytes(), at as u64);
        read.map_err(|e| self.0.error("read its header", e))?;
        Ok(u32::from_le(word))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.0.file.write_all_at(bytes, at as u64).map_err(|e| self.0.error("control it", e))
    }
}

// `request` writes these fields with one call, so they have to be contiguous.
const _: () = assert!(
    offset_of!(FileHeader, request_length) == offset_of!(FileHeader, request_kind) + 4
        && offset_of!(FileHeader, request_time_ns) == offset_of!(FileHeader, request_kind) + 8
        && offset_of!(FileHeader, request_value) == offset_of!(FileHeader, request_kind) + 16
        && offset_of!(FileHeader, request_text) == offset_of!(FileHeader, request_kind) + 24
);

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProfileBuilder, Scratch};
    use heaptide_format::Mode;

    use super::*;

    #[test]
    fn a_profile_that_its_process_just_begins_is_no_older_one() {
        let scratch = Scratch::new("control-start");
        let file = scratch.join("1-0.profile");
        let running = Running { pid: 1, file: file.clone() };
        let open = |bytes: &[u8]| {
            std::fs::write(&file, bytes).expect("a profile");
            Control::open(&running).map(|_| ())
        };
        let mut bytes = ProfileBuilder::new(Mode::Stacks, 1, 0).finish();
        assert!(open(&bytes).is_ok());
        bytes[..4].fill(0);
        for beginning in [&bytes[..], &bytes[..100], &[]] {
            let error = open(beginning).expect_err("no header");
            assert!(matches!(error, Error::NoHeader { .. }), "{error}");
        }
    }
}
