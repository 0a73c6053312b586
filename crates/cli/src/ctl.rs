//! `heaptide ctl`: steers running programs through the heads of their live profiles.

use std::path::Path;
use std::process::ExitCode;

use heaptide_analysis::running::{self, Running};
use heaptide_format::Request;

use crate::control::{Answer, Control, Wait};
use crate::error::Error;
use crate::options::{Action, CtlOptions};
use crate::{FAILED, status};

/// A threshold's value says by this bit that stacks are for requests below it.
const BELOW: u64 = 1 << 63;

/// Does it with each process asked for.
pub fn ctl(options: &CtlOptions) -> Result<ExitCode, Error> {
    let found = find(&options.target, options.pid)?;
    let mut all_done = true;
    for running in &found {
        let done = Control::open(running).and_then(|control| act(&control, &options.action));
        if let Err(error) = done {
            eprintln!("heaptide: {error}");
            all_done = false;
        }
    }
    Ok(if all_done { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The processes asked for that run and are recorded; one at least.
fn find(target: &Path, chosen: Option<u32>) -> Result<Vec<Running>, Error> {
    let number = target.to_str().and_then(|name| name.parse::<u32>().ok());
    if let Some(pid) = number.filter(|_| !target.exists()) {
        let found = running::of_process(pid).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(format!("{pid}: no such process, and no recording of this name"))
            }
            _ => Error::new(format!("pid {pid}: cannot look at it: {e}")),
        })?;
        let none = || {
            Error::new(format!(
                "pid {pid}: is not being recorded; `heaptide run` starts a program so that it is"
            ))
        };
        return Ok(vec![found.ok_or_else(none)?]);
    }
    let mut found = running::of_recording(target)?;
    let shown = target.display();
    if found.is_empty() {
        return Err(Error::new(format!(
            "{shown}: no program runs in it any more; ctl steers running ones"
        )));
    }
    if let Some(pid) = chosen {
        let pids: Vec<String> = found.iter().map(|r| r.pid.to_string()).collect();
        found.retain(|r| r.pid == pid);
        if found.is_empty() {
            let pids = pids.join(", ");
            return Err(Error::new(format!("{shown}: no process {pid} runs in it; it has {pids}")));
        }
    }
    Ok(found)
}

fn act(control: &Control, action: &Action) -> Result<(), Error> {
    let pid = control.running().pid;
    let ask = |kind, value, text: &str, what: &str, done: &str| {
        let answer = control.request(kind, value, text, Wait::Patiently)?;
        tell(pid, answer, what, done)
    };
    match action {
        Action::On | Action::Off => {
            let on = matches!(action, Action::On);
            control.turn(on)?;
            println!("pid {pid}: recording {}", status::on_or_off(&control.header()?));
            Ok(())
        }
        Action::Snapshot { name } => {
            let name = name.as_deref().unwrap_or_default();
            let (number, file, answer) = control.snapshot(name, Wait::Patiently)?;
            println!("pid {pid}: snapshot {number}: {}", file.display());
            match answer {
                // It is there, with its name and time in it; only the timeline does not show it.
                Answer::Behind | Answer::Ended => Ok(()),
                answer => tell(pid, answer, "its mark", ""),
            }
        }
        Action::Mark { name } => ask(Request::Mark, 0, name, "the mark", "marked"),
        Action::Threshold { bytes, below } => {
            let value = bytes | if *below { BELOW } else { 0 };
            ask(Request::Threshold, value, "", "the threshold", "stack threshold set")
        }
        Action::Reset => ask(Request::Reset, 0, "", "the reset", "figures count from here"),
        Action::Flush => ask(Request::Flush, 0, "", "the flush", "flushed"),
        Action::Status => status::print(control),
    }
}

/// Says what became of a request; nothing if there is nothing to say.
fn tell(pid: u32, answer: Answer, what: &str, done: &str) -> Result<(), Error> {
    match answer {
        Answer::Done if done.is_empty() => {}
        Answer::Done => println!("pid {pid}: {done}"),
        Answer::Waits => eprintln!(
            "heaptide: pid {pid}: the program has not allocated since; {what} comes when it next does"
        ),
        Answer::Behind => {
            return Err(Error::new(format!(
                "pid {pid}: an earlier request still waits for the program's next allocation; \
                 try {what} again after that"
            )));
        }
        Answer::Ended => {
            return Err(Error::new(format!("pid {pid}: the program ended before {what}")));
        }
    }
    Ok(())
}
