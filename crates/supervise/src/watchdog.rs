//! Notices when all threads of a process wait inside the recorder with all signals blocked: then
//! only SIGKILL would end the process. The recorder must not cause that; a plug-in that it calls
//! may.
//!
//! Everything is read from outside, in `/proc`, so the program itself takes no part. A second
//! passes between two looks, each of which usually reads one file per process: the first thread
//! that can receive a signal ends it.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time between two looks.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// How long all threads of a process must have waited.
const PATIENCE: Duration = Duration::from_secs(5);
/// Signals 32 and 33, which a C library leaves unblocked for itself: only the recorder, which makes
/// the system call itself, blocks them for longer than a moment.
const ALL_SIGNALS: u64 = 0b11 << 31;
/// The most bytes of a stack to search for code of the recorder.
const STACK_BYTES: usize = 64 << 10;
/// The most places to name in a message.
const PLACES_MAX: usize = 3;

/// Looks at processes from time to time.
#[derive(Default)]
pub(crate) struct Watchdog {
    processes: HashMap<u32, Wait>,
}

/// A process all of whose threads wait.
struct Wait {
    since: Instant,
    threads: Vec<Thread>,
    is_reported: bool,
}

/// A thread that sleeps with all signals blocked.
#[derive(PartialEq, Eq)]
struct Thread {
    tid: u32,
    /// Number of times that it has slept: one that runs in between is not stuck.
    sleeps: u64,
}

/// A process all of whose threads have waited inside the recorder for 5 s.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// Its pid as seen from here.
    pub pid: u32,
    /// Number of its threads.
    pub threads: usize,
    /// Where they wait; several threads can be at one place.
    places: Vec<Place>,
}

/// Where a thread waits.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    /// The innermost address of the recorder on its stack, as `FILE+0xOFFSET`.
    recorder: String,
    /// The address of the system call that sleeps.
    call: String,
}

impl Display for Stuck {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let threads = match self.threads {
            1 => "the only thread".to_owned(),
            n => format!("all {n} threads"),
        };
        write!(f, "{threads} of process {} waited in the recorder for 5 s: ", self.pid)?;
        for (number, Place { recorder, call }) in self.places.iter().take(PLACES_MAX).enumerate() {
            let comma = if number > 0 { "; " } else { "" };
            write!(f, "{comma}at {recorder}, in a system call at {call}")?;
        }
        Ok(())
    }
}

impl Watchdog {
    /// Looks at the processes with these pids, and returns each that is stuck, once.
    pub(crate) fn look(&mut self, pids: impl Iterator<Item = u32>, now: Instant) -> Vec<Stuck> {
        let mut before = std::mem::take(&mut self.processes);
        let mut stuck = Vec::new();
        for pid in pids {
            let Some(threads) = waiting_threads(pid) else { continue };
            let wait = before.remove(&pid).filter(|wait| wait.threads == threads);
            let mut wait = wait.unwrap_or(Wait { since: now, threads, is_reported: false });
            if !wait.is_reported && now.saturating_duration_since(wait.since) >= PATIENCE {
                wait.is_reported = true; // a place that is not found now will not be found later
                stuck.extend(in_recorder(pid, &wait.threads));
            }
            self.processes.insert(pid, wait);
        }
        stuck
    }
}

/// Returns the threads of a process if all of them sleep with all signals blocked.
fn waiting_threads(pid: u32) -> Option<Vec<Thread>> {
    let mut threads = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let task = task.ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        if value(&status, "State:")?.starts_with('Z') {
            continue; // a first thread that has ended
        }
        let tid = task.file_name().to_str()?.parse().ok()?;
        threads.push(waiting_thread(tid, &status)?);
    }
    threads.sort_by_key(|thread| thread.tid);
    Some(threads).filter(|threads| !threads.is_empty())
}

/// Returns the thread with this `status` file if it sleeps with all signals blocked. A wait for a
/// disk or for a debugger is no sleep.
fn waiting_thread(tid: u32, status: &str) -> Option<Thread> {
    let blocked = u64::from_str_radix(value(status, "SigBlk:")?, 16).ok()?;
    let sleeps = value(status, "voluntary_ctxt_switches:")?.parse().ok()?;
    let is_asleep = value(status, "State:")?.starts_with('S');
    (is_asleep && blocked & ALL_SIGNALS == ALL_SIGNALS).then_some(Thread { tid, sleeps })
}

fn value<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Returns where the threads wait, if each of them has code of the recorder on its stack.
fn in_recorder(pid: u32, threads: &[Thread]) -> Option<Stuck> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let code: Vec<Code> = maps.lines().filter_map(Code::parse).collect();
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut places = Vec::new();
    for thread in threads {
        let call = fs::read_to_string(format!("/proc/{pid}/task/{}/syscall", thread.tid)).ok()?;
        let place = place(&call, &code, &memory)?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Some(Stuck { pid, threads: threads.len(), places })
}

/// Returns the place of a thread with this `syscall` file.
fn place(call: &str, code: &[Code], memory: &File) -> Option<Place> {
    let mut fields = call.split_whitespace().rev().map(hexadecimal);
    let (pc, sp) = (fields.next()??, fields.next()??);
    let mut stack = vec![0; STACK_BYTES];
    let read = memory.read_at(&mut stack, sp).ok()?;
    let words = stack[..read].as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word));
    let of_recorder =
        |&address: &u64| code.iter().any(|code| code.is_of_recorder() && code.contains(address));
    let recorder = std::iter::once(pc).chain(words).find(of_recorder)?;
    Some(Place { recorder: shown(recorder, code), call: shown(pc, code) })
}

fn hexadecimal(number: &str) -> Option<u64> {
    u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()
}

fn shown(address: u64, code: &[Code]) -> String {
    match code.iter().find(|code| code.contains(address)) {
        Some(code) => format!("{}+{:#x}", code.file, address - code.start + code.offset),
        None => format!("{address:#x}"),
    }
}

/// A range of code that is mapped from a file.
#[derive(PartialEq, Eq, Debug)]
struct Code<'a> {
    start: u64,
    end: u64,
    /// Offset in the file.
    offset: u64,
    /// The file's name, without directories.
    file: &'a str,
}

impl Code<'_> {
    /// Parses a line of `maps`; `None` if it is not code of a file.
    fn parse(line: &str) -> Option<Code<'_>> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_code = fields.next()?.contains('x');
        let offset = number(fields.next()?)?;
        let file = fields.nth(2)?.trim_start().rsplit('/').next()?;
        let range = Code { start: number(start)?, end: number(end)?, offset, file };
        (is_code && !file.is_empty()).then_some(range)
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn is_of_recorder(&self) -> bool {
        self.file.starts_with("libheaptide")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_sleep_with_all_signals_blocked_wait() {
        let status = |state: &str, blocked: &str| {
            let rest = "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
            format!("Name:\tx\nState:\t{state}\nSigBlk:\t{blocked}\n{rest}")
        };
        let (all, of_program) = ("fffffffffffbfeff", "fffffffe7ffbfeff");
        let waiting = |state, blocked| waiting_thread(1, &status(state, blocked));
        assert!(waiting("S (sleeping)", all) == Some(Thread { tid: 1, sleeps: 7 }));
        assert!(waiting("S (sleeping)", of_program).is_none());
        for other in ["R (running)", "D (disk sleep)", "T (stopped)", "t (tracing stop)"] {
            assert!(waiting(other, all).is_none(), "{other}");
        }
    }

    #[test]
    fn code_is_named_by_its_file() {
        let code = Code::parse("7f10-7f20 r-xp 00001000 08:01 42    /usr/lib/libheaptide.so");
        let expected = Code { start: 0x7f10, end: 0x7f20, offset: 0x1000, file: "libheaptide.so" };
        assert_eq!(code, Some(expected));
        let all = [code.expect("code")];
        assert!(all[0].is_of_recorder());
        assert_eq!(shown(0x7f14, &all), "libheaptide.so+0x1004");
        assert_eq!(shown(0x7f20, &all), "0x7f20");
        assert_eq!(Code::parse("7f10-7f20 rw-p 00001000 08:01 42 /usr/lib/libheaptide.so"), None);
        assert_eq!(Code::parse("7f10-7f20 r-xp 00000000 00:00 0 "), None);
    }

    #[test]
    fn a_process_that_can_be_signalled_is_not_watched_further() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut watchdog = Watchdog::default();
        let (now, pids) = (Instant::now(), || [child.id(), u32::MAX].into_iter());
        assert_eq!(watchdog.look(pids(), now), []);
        assert_eq!(watchdog.look(pids(), now + 2 * PATIENCE), []);
        assert!(watchdog.processes.is_empty());
        child.kill().and_then(|()| child.wait()).expect("its end");
    }
}
