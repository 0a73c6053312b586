//! `ctl_steps.c`, recorded, which does a step when it is told to.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::harness::{Guest, recorded};

/// The program, recorded into `a.heaptide`.
pub struct Steps {
    child: Child,
    tell: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Steps {
    /// Starts it, recorded with these options.
    pub fn start(place: &Path, options: &[&str]) -> Steps {
        let program = Guest::read("ctl_steps.c").build("ctl_steps.c", &[]);
        let mut command = recorded(&place.join("a.heaptide"), options);
        command.arg(program).current_dir(place);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Steps::of(child.expect("heaptide"))
    }

    /// One that was started with pipes.
    pub fn of(mut child: Child) -> Steps {
        let tell = child.stdin.take();
        let answers = child.stdout.take().expect("its answers");
        Steps { child, tell, answers }
    }

    /// Has it do steps, and waits for each.
    pub fn steps(&mut self, letters: &str) {
        for letter in letters.bytes() {
            self.tell.as_mut().expect("its input").write_all(&[letter]).expect("tell a step");
            let mut answer = [0];
            self.answers.read_exact(&mut answer).expect("the step is done");
            assert_eq!(answer[0], letter);
        }
    }

    /// Ends it, and waits for its recording.
    pub fn end(&mut self) {
        self.tell.take();
        self.child.wait().expect("wait for heaptide");
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.end();
    }
}
