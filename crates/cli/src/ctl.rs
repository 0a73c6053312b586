//! `heaptide ctl`: controls running programs through the headers of their live profiles.

use std::io;
use std::path::Path;
use std::thread::{Builder, ScopedJoinHandle};

use heaptide_analysis::recording::running::{self, Running};
use heaptide_analysis::text::of_path;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{FAILED, Outcome, Stop};
use heaptide_command::output;
use heaptide_format::Request;

use crate::control::{Answer, Control, Wait};
use crate::options::{Action, CtlOptions};
use crate::status;

/// A threshold's value says by this bit that stacks are for requests below it.
const BELOW: u64 = 1 << 63;

/// Processes that are asked at the same time: each may take its time to answer.
const AT_ONCE: usize = 64;

/// What is to be printed.
#[derive(Default)]
struct Said {
    /// On standard output.
    done: String,
    /// What is still to come, on standard error.
    later: Option<String>,
}

/// Does it with each process asked for.
pub fn ctl(options: &CtlOptions) -> Outcome {
    let found = find(&options.target, options.pid)?;
    let (mut all_done, mut printed) = (true, Ok(()));
    for some in found.chunks(AT_ONCE) {
        for said in all_of(some, &options.action) {
            match said {
                Ok(said) => {
                    // The other processes are asked, too, if nobody reads the answers.
                    let done = output::print_page(|out| out.write_all(said.done.as_bytes()));
                    printed = printed.and(done);
                    said.later.iter().for_each(message);
                }
                Err(error) => {
                    message(error);
                    all_done = false;
                }
            }
        }
    }
    if !all_done {
        return Err(Stop::Status(FAILED));
    }
    printed.map_err(Stop::from)
}

/// Does it with these processes at the same time; the results are in their order.
fn all_of(some: &[Running], action: &Action) -> Vec<Result<Said, Error>> {
    std::thread::scope(|scope| {
        let one = |running| {
            let act = move || Control::open(running).and_then(|c| act(&c, action));
            Builder::new().spawn_scoped(scope, act)
        };
        let threads: Vec<_> = some.iter().map(one).collect();
        let died = |_| Err(Error::new("internal error: a worker thread panicked"));
        let said = |thread: io::Result<ScopedJoinHandle<_>>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(died),
            Err(error) => Err(Error::new(format!("cannot start a thread: {error}"))),
        };
        threads.into_iter().map(said).collect()
    })
}

/// The processes asked for that run and are recorded; one at least.
fn find(target: &Path, chosen: Option<u32>) -> Result<Vec<Running>, Error> {
    let number = target.to_str().and_then(|name| name.parse::<u32>().ok());
    if let Some(pid) = number.filter(|_| !target.exists()) {
        let found = running::of_process(pid).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(format!("{pid}: no such process, and no recording of this name"))
            }
            _ => Error::new(format!("pid {pid}: cannot inspect the process: {e}")),
        })?;
        let none = || {
            Error::new(format!(
                "pid {pid}: not being recorded; start the program with `heaptide run`"
            ))
        };
        return Ok(vec![found.ok_or_else(none)?]);
    }
    let mut found = running::of_recording(target)?;
    let shown = target.display();
    if found.is_empty() {
        return Err(Error::new(format!("{shown}: no process is recording into it any more")));
    }
    if let Some(pid) = chosen {
        let pids: Vec<String> = found.iter().map(|r| r.pid.to_string()).collect();
        found.retain(|r| r.pid == pid);
        if found.is_empty() {
            let pids = pids.join(", ");
            return Err(Error::new(format!("{shown}: no running process {pid}; running: {pids}")));
        }
    }
    Ok(found)
}

fn act(control: &Control, action: &Action) -> Result<Said, Error> {
    let pid = control.running().pid;
    let ask = |kind, value, text: &str, what: &str, done: &str| {
        let answer = control.request(kind, value, text, Wait::Patiently)?;
        told(pid, answer, what, format!("pid {pid}: {done}\n"))
    };
    match action {
        Action::On | Action::Off => {
            control.turn(matches!(action, Action::On))?;
            let is = status::on_or_off(&control.header()?);
            Ok(Said { done: format!("pid {pid}: recording {is}\n"), later: None })
        }
        Action::Snapshot { name } => {
            let name = name.as_deref().unwrap_or_default();
            let (number, file, answer) = control.snapshot(name, Wait::Patiently)?;
            let done = format!("pid {pid}: snapshot {number}: {}\n", of_path(&file));
            // It is there, with its name and time in it: at worst the timeline does not show it.
            let later = told(pid, answer, "its mark", String::new()).ok().and_then(|s| s.later);
            Ok(Said { done, later })
        }
        Action::Mark { name } => ask(Request::Mark, 0, name, "the mark", "marked"),
        Action::Threshold { bytes, below } => {
            let value = bytes | if *below { BELOW } else { 0 };
            ask(Request::Threshold, value, "", "the threshold", "stack threshold set")
        }
        Action::Reset => ask(Request::Reset, 0, "", "the reset", "counters reset"),
        Action::Flush => ask(Request::Flush, 0, "", "the flush", "flushed"),
        Action::Status => Ok(Said { done: status::of(control)?, later: None }),
    }
}

/// What became of a request.
fn told(pid: u32, answer: Answer, what: &str, done: String) -> Result<Said, Error> {
    match answer {
        Answer::Done => Ok(Said { done, later: None }),
        Answer::Waits => {
            let later = format!(
                "pid {pid}: no allocation since the request; {what} is pending until the next one"
            );
            Ok(Said { done: String::new(), later: Some(later) })
        }
        Answer::Behind => Err(Error::new(format!(
            "pid {pid}: an earlier request is pending until the program's next allocation; \
             retry {what} after that"
        ))),
        Answer::Ended => Err(Error::new(format!("pid {pid}: the program ended before {what}"))),
    }
}
