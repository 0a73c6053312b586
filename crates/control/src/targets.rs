//! The running programs to control: those of a recording, or one by its process id.

use std::io;
use std::path::Path;
use std::thread::{Builder, ScopedJoinHandle};

use heaptide_analysis::recording::running::{self, Running};

use crate::control::Control;
use crate::error::Error;

/// Finds the running programs of a target, which is a recording or a process id; returns at least
/// one. `pid` selects one process of a recording.
pub fn find(target: &Path, pid: Option<u32>) -> Result<Vec<Running>, Error> {
    if let Some(found) = running::by_id(target)? {
        return Ok(vec![found]);
    }
    let all = running::of_recording(target)?;
    let recording = || target.to_owned();
    if all.is_empty() {
        return Err(Error::NoneRunning { recording: recording() });
    }
    let Some(pid) = pid else {
        return Ok(all);
    };
    match all.iter().find(|running| running.pid == pid) {
        Some(found) => Ok(vec![found.clone()]),
        None => {
            let running = all.iter().map(|running| running.pid).collect();
            Err(Error::NotRunning { recording: recording(), pid, running })
        }
    }
}

/// Controls these programs concurrently, because each may take time to answer. The results are in
/// the order of the programs.
pub fn control_all<T: Send>(
    running: &[Running],
    act: impl Fn(&Control) -> Result<T, Error> + Sync,
) -> Vec<Result<T, Error>> {
    let act = &act;
    std::thread::scope(|scope| {
        let start =
            |running| Builder::new().spawn_scoped(scope, move || act(&Control::open(running)?));
        let threads: Vec<_> = running.iter().map(start).collect();
        let finish = |thread: io::Result<ScopedJoinHandle<_>>| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(Error::Panicked { which: "a worker thread" }))
            }
            Err(source) => Err(Error::NoThread { which: "a thread", source }),
        };
        threads.into_iter().map(finish).collect()
    })
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    #[test]
    fn a_target_that_no_program_records_is_an_error() {
        let scratch = Scratch::new("targets");
        let shown = |target: &Path, pid| find(target, pid).expect_err("nothing runs").to_string();
        let me = std::process::id().to_string();
        let expected =
            format!("pid {me}: not being recorded; start the program with `heaptide run`");
        assert_eq!(shown(Path::new(&me), None), expected);
        let none = shown(Path::new("4294967295"), None);
        assert_eq!(none, "4294967295: no such process, and no recording of this name");
        let recording = scratch.join("a.heaptide");
        std::fs::create_dir(&recording).expect("a directory");
        std::fs::write(recording.join("1-0.profile"), b"").expect("a file");
        let expected = format!("{}: no process is recording into it any more", recording.display());
        assert_eq!(shown(&recording, Some(1)), expected);
    }
}
