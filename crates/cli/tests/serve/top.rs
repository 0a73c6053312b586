//! `heaptide top` in a terminal, which tmux emulates: known numbers of a program that tests
//! control, and a terminal that works again afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heaptide_fixtures::skips::skip;

use crate::harness::{Clock, Guest, clean, heaptide, recorded, run, scratch};
use crate::programs::is_installed;
use crate::steps::{Steps, program};

/// The maximum wait for a screen, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const HEAPTIDE: &str = env!("CARGO_BIN_EXE_heaptide");

/// A terminal.
struct Terminal {
    socket: String,
    place: PathBuf,
}

impl Terminal {
    /// Runs a shell script on a terminal of this size; none if tmux is not installed.
    fn start(place: &Path, size: (u16, u16), script: &str) -> Option<Terminal> {
        if !is_installed("tmux") {
            skip("tmux");
            return None;
        }
        let name = place.file_name().expect("a name").to_string_lossy();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = format!("heaptide-{name}-{}-{number}", std::process::id());
        let terminal = Terminal { socket, place: place.to_owned() };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        terminal.tmux(&[
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "bash",
            "--norc",
            "-c",
            script,
        ]);
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = clean(Command::new("tmux"));
        command.args(["-L", &self.socket, "-f", "/dev/null"]).args(words);
        command.current_dir(&self.place).env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color");
        command.env_remove("TMUX");
        let output = command.output().expect("tmux");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {words:?}: {problem}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until a condition holds for the lines of the screen, with single spaces between words.
    fn until(&self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines: Vec<String> = screen.lines().map(line).collect();
            if holds(&lines) {
                return lines;
            }
            assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}:\n{screen}");
            std::thread::sleep(POLL);
        }
    }

    /// Waits for the end with this status, after which the terminal echoes lines again.
    fn until_left(&self, status: &str) {
        self.until(status, |lines| has(lines, status) && has(lines, "echo icanon"));
    }

    /// Waits for a line that contains a text.
    fn until_line(&self, text: &str) -> Vec<String> {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-L", &self.socket, "kill-server"]).output();
    }
}

/// Returns a script that prints the state after the command: the status, and whether the terminal
/// echoes lines.
fn script(words: &str) -> String {
    format!(
        "(echo $BASHPID > pid; exec {HEAPTIDE} {words}); echo status $?; \
         stty -a | grep -o -E -e '-?(icanon|echo)\\b' | sort | tr '\\n' ' '; exec sleep 1000"
    )
}

fn has(lines: &[String], row: &str) -> bool {
    lines.iter().any(|line| line == row)
}

#[test]
fn a_running_program_is_watched_marked_and_left() {
    let mut guest = Steps::named("top-live", &[]);
    let place = guest.place.clone();
    guest.steps("ab");
    let Some(terminal) = Terminal::start(&place, (120, 40), &script("top a.heaptide")) else {
        return;
    };
    let large = "24.4 KiB 5 24.4 KiB large [ctl_steps-c]";
    let small = "1.02 KiB 10 1.02 KiB small [ctl_steps-c]";
    let lines = terminal.until("both rows", |lines| has(lines, large) && has(lines, small));
    assert!(
        lines[0].starts_with("ctl_steps-c pid ") && lines[0].contains(" running "),
        "{lines:?}"
    );
    terminal.keys(&["m"]);
    terminal.until_line("growth counts from now");
    guest.steps("ta");
    terminal.until_line("2.03 KiB 20 +1.02 KiB");
    terminal.keys(&["w"]);
    terminal.until_line("snapshot 1: ");
    let entries = fs::read_dir(place.join("a.heaptide")).expect("the recording").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.ends_with(".1.snapshot")).count(), 1);
    terminal.keys(&["3"]);
    terminal.until("the thread", |lines| {
        lines.iter().any(|line| line.contains("26.4 KiB 25") && line.contains("ctl_steps"))
    });
    terminal.keys(&["1", "/", "^large$", "Enter"]);
    terminal.until("the filter", |lines| {
        lines[1].starts_with("live 24.4 KiB in 5 blocks") && !lines.join("\n").contains("small")
    });
    terminal.keys(&["Enter"]);
    terminal.until("the callers", |lines| {
        lines.iter().any(|line| line.ends_with(" main [ctl_steps-c]"))
    });
    terminal.keys(&["BSpace", "Escape", "?"]);
    terminal.until_line("take a snapshot");
    terminal.keys(&["q", "p"]);
    terminal.until("the processes", |lines| {
        lines.iter().any(|line| line.contains("running peak 26.4 KiB ctl_steps-c"))
    });
    terminal.keys(&["Escape"]);
    guest.finish();
    let lines = terminal.until_line("exited with status 0");
    assert!(has(&lines, "24.4 KiB 5 0 24.4 KiB large [ctl_steps-c]"), "{lines:?}");
    terminal.keys(&["q"]);
    terminal.until_left("status 0");
    let marks = run(heaptide().arg("timeline").arg(place.join("a.heaptide")), &place).stdout;
    assert!(marks.contains("heaptide top"), "the mark is in the recording: {marks}");
}

#[test]
fn the_terminal_works_again_after_signals() {
    let mut guest = Steps::named("top-signals", &[]);
    let place = guest.place.clone();
    guest.steps("a");
    for (signal, status) in [("-TERM", "status 143"), ("-HUP", "status 129")] {
        let Some(terminal) = Terminal::start(&place, (80, 24), &script("top a.heaptide")) else {
            return;
        };
        terminal.until_line("small");
        let pid = fs::read_to_string(place.join("pid")).expect("its pid");
        let kill = Command::new("kill").args([signal, pid.trim()]).status().expect("kill");
        assert!(kill.success());
        terminal.until_left(status);
    }
}

#[test]
fn it_stops_and_continues_as_shells_want_it() {
    let mut guest = Steps::named("top-stops", &[]);
    let place = guest.place.clone();
    guest.steps("a");
    let shell = "PS1='ready> ' exec bash --norc --noprofile -i";
    let Some(terminal) = Terminal::start(&place, (80, 24), shell) else { return };
    terminal.until_line("ready>");
    terminal.keys(&[&format!("{HEAPTIDE} top a.heaptide"), "Enter"]);
    terminal.until_line("small");
    terminal.keys(&["C-z"]);
    terminal.until_line("Stopped");
    // A program that leaves the terminal discards what was typed before.
    let is_at_prompt = |lines: &[String]| {
        lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| line == "ready>")
    };
    terminal.until("the prompt", is_at_prompt);
    terminal.keys(&["echo six$((2 + 4))", "Enter"]);
    terminal.until("the shell", |lines| has(lines, "six6"));
    guest.steps("a");
    terminal.keys(&["fg", "Enter"]);
    terminal.until("the screen again", |lines| {
        lines.iter().any(|line| line.starts_with("2.03 KiB 20") && line.contains("small"))
    });
    terminal.keys(&["C-c"]);
    terminal.until("the prompt after it", is_at_prompt);
    terminal.keys(&["echo seven$((3 + 4)) $?", "Enter"]);
    terminal.until("the shell after it", |lines| has(lines, "seven7 0"));
}

#[test]
fn small_terminals_and_other_sizes_are_no_trouble() {
    let mut guest = Steps::named("top-sizes", &[]);
    let place = guest.place.clone();
    guest.steps("ab");
    let Some(terminal) = Terminal::start(&place, (40, 10), &script("top a.heaptide")) else {
        return;
    };
    let lines = terminal.until_line("large");
    assert_eq!(lines[3], "▼live growth owner");
    assert!(lines[4].starts_with("24.4 KiB") && lines[5].starts_with("1.02 KiB"), "{lines:?}");
    for (width, height) in [(10, 3), (200, 50), (2, 2), (90, 30)] {
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&["resize-window", "-x", &width, "-y", &height]);
        std::thread::sleep(POLL);
    }
    let lines = terminal.until_line("at peak owner");
    assert!(has(&lines, "24.4 KiB 5 24.4 KiB large [ctl_steps-c]"), "{lines:?}");
    terminal.keys(&["q"]);
    terminal.until_line("status 0");
}

#[test]
fn processes_of_a_recording_are_listed_and_switched() {
    let place = scratch("top-processes");
    let program = program();
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let script_of_shell = format!("'{}'; true", program.display());
    command.args(["sh", "-c", &script_of_shell]);
    let mut guest = Steps::spawn(command, place.join("a.heaptide"), place.clone());
    guest.steps("b");
    let Some(terminal) = Terminal::start(&place, (120, 30), &script("top a.heaptide")) else {
        return;
    };
    let lines = terminal.until_line("large");
    assert!(lines.iter().any(|line| line.starts_with("subject ctl_steps-c (pid ")), "{lines:?}");
    assert!(lines[2].starts_with("`large` (ctl_steps.c) holds 24.4 KiB, "), "{lines:?}");
    terminal.keys(&["p"]);
    let is_listed = |line: &&String| line.contains("running peak");
    let lines =
        terminal.until("two processes", |lines| lines.iter().filter(is_listed).count() == 2);
    let listed: Vec<&String> = lines.iter().filter(is_listed).collect();
    let shell = listed.iter().position(|line| !line.contains("ctl_steps-c")).expect("the shell");
    let way = if shell == 0 { "Up" } else { "Down" };
    terminal.keys(&[way, "Enter"]);
    let lines = terminal.until("the shell", |lines| lines[0].starts_with("sh "));
    assert!(!lines.join("\n").contains("large"), "{lines:?}");
    assert!(!lines.join("\n").contains("subject"), "the user chose it: {lines:?}");
}

/// A shell that executes another program: its pid then has another image.
#[test]
fn the_screen_follows_an_exec() {
    let place = scratch("top-exec");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    command.args(["sh", "-c", &format!("read go; exec '{}'", program().display())]);
    let mut guest = Steps::spawn(command, place.join("a.heaptide"), place.clone());
    crate::harness::until("the shell", || crate::harness::profiles(&guest.recording).len() == 1);
    let Some(terminal) = Terminal::start(&place, (120, 30), &script("top a.heaptide")) else {
        return;
    };
    let shell = terminal.until("the shell", |lines| lines[0].starts_with("sh "));
    guest.tell("\n");
    guest.steps("b");
    // The block is growth if the screen has shown the program before.
    let is_large = |line: &String| {
        line.starts_with("24.4 KiB 5 ") && line.ends_with("24.4 KiB large [ctl_steps-c]")
    };
    let lines = terminal.until("the program", |lines| lines.iter().any(is_large));
    assert!(lines[0].starts_with("ctl_steps-c ") && lines[0].contains(" running "), "{lines:?}");
    let pid = |line: &str| line.split(" pid ").nth(1)?.split(' ').next().map(str::to_owned);
    assert!(pid(&lines[0]).is_some() && pid(&lines[0]) == pid(&shell[0]), "{lines:?}");
}

/// `over_time.c`: snapshots of 50 blocks of 10,000 bytes, of 100 and of 20.
#[test]
fn finished_recordings_are_replayed() {
    let program = Guest::read("over_time.c").build("over_time.c", &[]);
    for (name, options) in [("snapshots", &[][..]), ("trace", &["--mode", "trace"])] {
        let place = scratch(&format!("top-replay-{name}"));
        let mut command = recorded(&place.join("a.heaptide"), options);
        let outcome = run(command.arg(&program).current_dir(&place), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let clock = Clock::new(&place);
        let timed = format!("export HEAPTIDE_CLOCK=clock; {}", script("top --replay"));
        let Some(terminal) = Terminal::start(&place, (120, 30), &timed) else {
            return;
        };
        let held = |blocks: &str| {
            let start = format!("{blocks} ");
            terminal.until(&start, |lines| {
                let rows = lines.iter().filter(|line| line.contains(" held ["));
                rows.clone().count() == 1 && rows.clone().all(|row| row.starts_with(&start))
            })
        };
        let end = held("195 KiB 20");
        let stops = if options.is_empty() { 5 } else { 100 };
        assert!(end[0].contains(&format!("replay {stops}/{stops}")), "{end:?}");
        terminal.keys(&["g"]);
        if options.is_empty() {
            let first = held("489 KiB 50");
            assert!(first[0].contains("replay 1/5 snapshot 1 half"), "{first:?}");
            terminal.keys(&["m", "Right"]);
            let full = terminal.until("the growth", |lines| {
                lines.iter().any(|line| line.starts_with("977 KiB 100 +489 KiB"))
            });
            assert!(full[0].contains("2/5"), "{full:?}");
        } else {
            terminal.until_line("replay 1/100");
            terminal.keys(&["Space"]);
            terminal.until_line("playing 1/100");
            clock.pass(Duration::from_secs(2));
            terminal.until_line("playing 11/100");
            clock.pass(Duration::from_secs(3600));
            held("195 KiB 20");
        }
        terminal.keys(&["q"]);
        terminal.until_line("status 0");
    }
}

#[test]
fn without_a_terminal_or_a_program_there_is_one_line() {
    let place = scratch("top-errors");
    let refused = |words: &[&str], says: &str| {
        let outcome = run(heaptide().arg("top").args(words).current_dir(&place), &place);
        assert_eq!(outcome.status, 2, "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "`{says}` is not in: {}", outcome.stderr);
    };
    refused(&[], "no program is recording into a *.heaptide in the current directory");
    refused(&["--replay"], "no *.heaptide in the current directory");
    refused(&["missing.heaptide"], "missing.heaptide: no such recording");
    refused(&["4294967295"], "4294967295: no such process, and no recording of this name");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    refused(&[], "top needs a terminal to write to and to read keys from; use `heaptide report`");
    refused(&["a.heaptide", "--process", "1"], "a.heaptide: no process 1; available: ");
    refused(&["--focus", "("], "--focus `(`: unclosed group, at character 1");
    guest.finish();
    refused(&["a.heaptide"], "a.heaptide: no process is recording into it any more");
}
