//! `ctl_steps.c`, a program that does one step for each letter of its input, recorded while tests
//! observe it.

use crate::harness::{
    Clock, Guest, Outcome, clean, heaptide, library, profiles, recorded, run, scratch,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The running program, which does one step for each letter of its input.
pub struct Steps {
    /// The process.
    pub child: Child,
    tell: Option<ChildStdin>,
    answers: ChildStdout,
    /// The recording, `a.heaptide` in `place`.
    pub recording: PathBuf,
    /// The working directory.
    pub place: PathBuf,
}

impl Steps {
    /// Starts it with `heaptide run OPTIONS`, in a new directory.
    pub fn named(name: &str, options: &[&str]) -> Steps {
        Steps::start(&scratch(name), options)
    }

    /// Starts it in an existing directory.
    pub fn start(place: &Path, options: &[&str]) -> Steps {
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, options);
        command.arg(program());
        Steps::spawn(command, recording, place.to_owned())
    }

    /// Starts it in an existing directory, with a clock.
    pub fn timed(place: &Path, clock: &Clock, options: &[&str]) -> Steps {
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, options);
        clock.set(command.arg(program()));
        Steps::spawn(command, recording, place.to_owned())
    }

    /// Starts it without the command, with these variables.
    pub fn preload(place: &Path, variables: &[(&str, &str)]) -> Steps {
        let mut command = clean(Command::new(program()));
        let recording = place.join("a.heaptide");
        command.env("LD_PRELOAD", library()).env("HEAPTIDE_OUTPUT", &recording);
        command.envs(variables.iter().copied());
        Steps::spawn(command, recording, place.to_owned())
    }

    /// Starts a command that records it.
    pub fn spawn(mut command: Command, recording: PathBuf, place: PathBuf) -> Steps {
        command.current_dir(&place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("heaptide");
        let tell = child.stdin.take();
        let answers = child.stdout.take().expect("its answers");
        Steps { child, tell, answers, recording, place }
    }

    /// Writes to the program's input.
    pub fn tell(&mut self, text: &str) {
        let tell = self.tell.as_mut().expect("its input");
        tell.write_all(text.as_bytes()).expect("tell a step");
    }

    /// Makes the program do these steps, and waits for each.
    pub fn steps(&mut self, letters: &str) {
        for letter in letters.chars() {
            self.tell(letter.encode_utf8(&mut [0; 4]));
            self.answer(letter);
        }
    }

    /// Waits for the reply to a step.
    pub fn answer(&mut self, letter: char) {
        let mut answer = [0];
        self.answers.read_exact(&mut answer).expect("the step is done");
        assert_eq!(char::from(answer[0]), letter);
    }

    /// Returns the program's pid. It must have done a step.
    pub fn pid(&self) -> String {
        let found = profiles(&self.recording);
        let name = found[0].file_name().expect("a name").to_string_lossy().into_owned();
        name.split('-').next().expect("a pid").to_owned()
    }

    /// Runs `heaptide ctl RECORDING WORDS`.
    pub fn ctl(&self, words: &[&str]) -> Outcome {
        run(heaptide().arg("ctl").arg(&self.recording).args(words), &self.place)
    }

    /// Runs `heaptide ctl` while the program allocates, for actions that it performs at its next
    /// allocation.
    pub fn ctl_while_it_allocates(&mut self, words: &[&str]) {
        let mut command = heaptide();
        command.arg("ctl").arg(&self.recording).args(words);
        let mut child = command.stdout(Stdio::null()).spawn().expect("heaptide ctl");
        let status = loop {
            self.steps("t");
            if let Some(status) = child.try_wait().expect("wait for heaptide ctl") {
                break status;
            }
        };
        assert!(status.success(), "ctl {words:?}: {status}");
    }

    /// Ends the program, and reads the whole recording.
    pub fn end(mut self) -> Value {
        self.finish();
        self.report(&[])
    }

    /// Ends the program.
    pub fn finish(&mut self) {
        self.tell.take();
        assert_eq!(self.child.wait().expect("wait for heaptide").into_raw(), 0);
    }

    /// Returns the JSON of `heaptide report OPTIONS` for the recording.
    pub fn report(&self, options: &[&str]) -> Value {
        read(&self.recording, options, &self.place)
    }
}

impl Drop for Steps {
    /// Ends the program also if a test failed.
    fn drop(&mut self) {
        self.tell.take();
        let _ = self.child.wait();
    }
}

/// Builds the program.
pub fn program() -> PathBuf {
    Guest::read("ctl_steps.c").build("ctl_steps.c", &[])
}

/// Returns the JSON of `heaptide report` for a recording.
pub fn read(path: &Path, options: &[&str], place: &Path) -> Value {
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--format", "json"]).args(options).arg(path), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}
