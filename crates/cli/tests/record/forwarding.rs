//! Signals with `heaptide run`: each arrives once, whether it was sent to the process or the group,
//! and program and command stop and continue together.

use crate::harness::{Guest, clean, recorded, run, scratch, until};
use crate::inheritance::is_running;
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that writes the signals it receives, started in its own process group.
struct Listener {
    command: Child,
    output: PathBuf,
    /// The pid of the program.
    pid: String,
}

impl Listener {
    /// Starts `run_signals` with these words; its path is appended to the command.
    fn start(mut command: Command, words: &[&str], place: &Path) -> Listener {
        let program = Guest::read("run_signals.c").build("run_signals.c", &[]);
        let output = place.join("signals");
        command.arg(program).args(words).stdin(Stdio::null()).process_group(0);
        let file = File::create(&output).expect("a file");
        let command = command.stdout(file).spawn().expect("the command");
        let mut listener = Listener { command, output, pid: String::new() };
        until("the program", || listener.text().contains('\n'));
        let text = listener.text();
        let first = text.lines().next().and_then(|line| line.strip_prefix("ready "));
        first.expect("a pid").clone_into(&mut listener.pid);
        listener
    }

    fn recorded(place: &Path, words: &[&str]) -> Listener {
        Listener::start(recorded(&place.join("a"), &["--force"]), words, place)
    }

    /// Returns the output of the program.
    fn text(&self) -> String {
        fs::read_to_string(&self.output).expect("the output")
    }

    fn signals(&self) -> Vec<String> {
        self.text().lines().filter_map(|l| Some(l.strip_prefix("got ")?.to_owned())).collect()
    }

    /// Sends a signal to the command alone.
    fn send(&self, signal: &str) {
        kill(signal, &self.command.id().to_string());
    }

    /// Sends a signal to the group of the command.
    fn send_to_group(&self, signal: &str) {
        kill(signal, &format!("-{}", self.command.id()));
    }

    /// Waits until the program has received `count` signals.
    fn until_got(&self, count: usize) {
        until("a signal", || self.signals().len() >= count);
    }

    /// Ends the program by a last signal to the command, and returns the received signals and the
    /// status.
    fn end(mut self) -> (Vec<String>, i32) {
        self.send("RTMAX");
        let status = self.command.wait().expect("the status");
        (self.signals(), status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }
}

fn kill(signal: &str, target: &str) {
    let sent = Command::new("bash").args(["-c", &format!("kill -{signal} -- {target}")]).status();
    assert!(sent.expect("bash").success(), "kill -{signal} {target}");
}

/// Signals that a program can handle, and their numbers.
const SIGNALS: [(&str, &str); 14] = [
    ("HUP", "1"),
    ("INT", "2"),
    ("QUIT", "3"),
    ("ABRT", "6"),
    ("USR1", "10"),
    ("USR2", "12"),
    ("PIPE", "13"),
    ("ALRM", "14"),
    ("TERM", "15"),
    ("CHLD", "17"),
    ("CONT", "18"),
    ("WINCH", "28"),
    ("RTMIN", "34"),
    ("RTMIN+5", "39"),
];

#[test]
fn a_signal_arrives_once() {
    let place = scratch("signal-once");
    for bare in [true, false] {
        let listener = if bare {
            Listener::start(clean(Command::new("env")), &[], &place)
        } else {
            Listener::recorded(&place, &[])
        };
        let mut count = 0;
        for (name, _) in SIGNALS {
            for send in [Listener::send, Listener::send_to_group] {
                send(&listener, name);
                count += 1;
                listener.until_got(count);
            }
        }
        let expected: Vec<&str> = SIGNALS.iter().flat_map(|(_, number)| [*number; 2]).collect();
        assert_eq!(listener.end(), (expected.iter().map(ToString::to_string).collect(), 7));
    }
}

#[test]
fn stop_signals_of_a_terminal_arrive_once() {
    let place = scratch("stop-signals");
    let listener = Listener::recorded(&place, &[]);
    for (count, signal) in ["TSTP", "TTIN", "TTOU"].into_iter().enumerate() {
        listener.send(signal);
        listener.until_got(2 * count + 1);
        listener.send_to_group(signal);
        listener.until_got(2 * count + 2);
    }
    assert_eq!(listener.end(), (["20", "20", "21", "21", "22", "22"].map(String::from).into(), 7));
}

/// Signals that arrive within 5 ms count as one. The sender can take longer on a busy machine, so
/// the time is measured and the test repeated with another command if it was too long.
#[test]
fn a_process_and_then_its_group_is_one_signal() {
    const AT_ONCE_US: u64 = 2_000;
    const TRIES: usize = 50;
    let sent_at_once = (0..TRIES).any(|number| {
        let listener = Listener::recorded(&scratch(&format!("process-and-group-{number}")), &[]);
        let id = listener.command.id();
        let both = format!(
            "from=${{EPOCHREALTIME/./}}; kill -TERM {id}; kill -TERM -- -{id}; \
             echo $((${{EPOCHREALTIME/./}} - from))"
        );
        let sender = Command::new("bash").args(["-c", &both]).output().expect("bash");
        assert!(sender.status.success());
        let took = String::from_utf8_lossy(&sender.stdout).trim().parse::<u64>();
        listener.until_got(1);
        let (got, status) = listener.end();
        assert_eq!(status, 7);
        let at_once = took.expect("microseconds") < AT_ONCE_US;
        assert!(!at_once || got == ["15"], "{got:?}");
        at_once
    });
    assert!(sent_at_once, "the sender was never fast enough: the machine is too busy");
}

#[test]
fn timeout_signals_once() {
    let place = scratch("timeout");
    let mut command = clean(Command::new("timeout"));
    command.args(["-s", "INT", "1h", env!("CARGO_BIN_EXE_heaptide"), "run", "-q", "-o"]);
    command.arg(place.join("a")).arg("--");
    let mut listener = Listener::start(command, &[], &place);
    listener.send("ALRM"); // as its timer does
    listener.until_got(2); // the signal and the SIGCONT
    // The command forwards in order: more would arrive before this.
    let command = fs::read_to_string(format!("/proc/{}/stat", listener.pid)).expect("it runs");
    let command = command.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
    kill("RTMIN", command.expect("the parent"));
    listener.until_got(3);
    kill("RTMAX", &listener.pid);
    assert_eq!(listener.command.wait().expect("timeout").code(), Some(124));
    assert_eq!(listener.signals(), ["2", "18", "34"]);
}

#[test]
fn queued_signals_keep_number_sender_and_value() {
    let place = scratch("queued");
    let listener = Listener::recorded(&place, &[]);
    let program = Guest::read("run_signals.c").build("run_signals.c", &[]);
    let id = listener.command.id().to_string();
    let mut expected = Vec::new();
    for (count, (signal, value)) in
        [("45", "0x1"), ("45", "0x123456789a"), ("45", "0x1"), ("10", "0x7")].iter().enumerate()
    {
        let mut send =
            Command::new(&program).args(["send", &id, signal, value]).spawn().expect("it");
        expected.push(format!("{signal} from {} with {value}", send.id()));
        assert!(send.wait().expect("its end").success());
        listener.until_got(count + 1);
    }
    // Three to the command and one to the group: four.
    let four = format!("for i in 1 2 3; do kill -40 {id}; done; kill -40 -- -{id}");
    assert!(Command::new("bash").args(["-c", &four]).status().expect("bash").success());
    expected.extend(vec!["40".to_owned(); 4]);
    listener.until_got(expected.len());
    assert_eq!(listener.end(), (expected, 7));
}

#[test]
fn a_program_that_left_the_group_gets_what_the_command_gets() {
    let place = scratch("left-group");
    let mut command = recorded(&place.join("a"), &[]);
    command.arg("setsid");
    let listener = Listener::start(command, &[], &place);
    listener.send("USR1");
    listener.until_got(1);
    listener.send_to_group("TERM");
    listener.until_got(2);
    assert_eq!(listener.end(), (vec!["10".to_owned(), "15".to_owned()], 7));
}

#[test]
fn deadly_signals_end_both() {
    let place = scratch("deadly");
    for (signal, status) in [("TERM", 143), ("SEGV", 139), ("RTMIN", 162), ("ALRM", 142)] {
        for send in [Listener::send, Listener::send_to_group] {
            let mut listener = Listener::recorded(&place, &["pause"]);
            send(&listener, signal);
            assert_eq!(listener.command.wait().expect("its end").code(), Some(status), "{signal}");
            assert!(!is_running(&listener.pid));
        }
    }
}

#[test]
fn the_program_outlives_a_killed_command() {
    let place = scratch("killed-command");
    let mut listener = Listener::recorded(&place, &["pause"]);
    listener.send("KILL");
    listener.command.wait().expect("its end");
    assert!(is_running(&listener.pid));
    until("the witness to go", || !has_witness(&listener.pid));
    kill("RTMAX", &listener.pid);
    until("the program to end", || !is_running(&listener.pid));
}

/// Returns whether a witness runs in the process group of this program.
fn has_witness(pid: &str) -> bool {
    let group = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split(' ').nth(2).map(str::to_owned)
    };
    let own = group(pid);
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let others = entries.filter_map(|entry| entry.file_name().into_string().ok());
    others.filter(|other| group(other) == own).any(|other| {
        let name = fs::read_to_string(format!("/proc/{other}/comm")).unwrap_or_default();
        name == "signal-witness\n" && is_running(&other)
    })
}

#[test]
fn the_witness_goes_by_the_name_of_the_program() {
    let place = scratch("witness-name");
    let listener = Listener::recorded(&place, &["one two", "three"]);
    until("the witness", || has_witness(&listener.pid));
    let of = |pattern: &str| {
        let group = listener.command.id().to_string();
        let found = Command::new("pgrep").args(["-g", &group, "-f", pattern]).output();
        String::from_utf8(found.expect("pgrep").stdout).expect("UTF-8").lines().count()
    };
    // The command, the program and the witness; then the command alone.
    assert_eq!(of("run_signals-c one two three"), 3);
    assert_eq!(of("heaptide run"), 1);
    let found = Command::new("pidof").arg("run_signals-c").output().expect("pidof");
    let pids = String::from_utf8(found.stdout).expect("UTF-8");
    assert!(pids.split_whitespace().any(|pid| pid == listener.pid), "{pids}");
    let is_witness = |pid: &str| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm == "signal-witness\n"
    };
    assert!(!pids.split_whitespace().any(is_witness), "{pids}");
    listener.end();
}

#[test]
fn without_room_for_a_witness_signals_of_processes_arrive() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("no-witness");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&place, open).expect("a directory for all");
    let mut command = clean(Command::new("setpriv"));
    command.args(["--reuid=64321", "--clear-groups", "prlimit", "--nproc=3:3"]);
    command.args([env!("CARGO_BIN_EXE_heaptide"), "run", "-q", "--no-preload", "-o"]);
    command.arg(place.join("a")).arg("--").env("HOME", "/nonexistent").stderr(Stdio::null());
    let mut listener = Listener::start(command, &["pause"], &place);
    assert!(!has_witness(&listener.pid));
    listener.send("TERM");
    assert_eq!(listener.command.wait().expect("its end").code(), Some(143));
}

/// Runs `terminal.py` with a command that runs `run_signals pause`, and returns the output.
fn in_terminal(what: &str, recording: Option<&Path>, place: &Path) -> String {
    let program = Guest::read("run_signals.c").build("run_signals.c", &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/terminal.py");
    let mut command = clean(Command::new("python3"));
    command.arg(script).arg(what);
    if let Some(recording) = recording {
        command.args([env!("CARGO_BIN_EXE_heaptide"), "run", "-q", "--force", "-o"]);
        command.arg(recording).arg("--");
    }
    let outcome = run(command.arg(program).arg("pause"), place);
    assert_eq!(outcome.status, 0, "{what}: {}", outcome.stderr);
    outcome.stdout
}

#[test]
fn a_terminal_interrupts_suspends_and_hangs_up() {
    let place = scratch("terminal");
    for what in ["interrupt", "hangup", "suspend", "stops"] {
        let bare = in_terminal(what, None, &place);
        let recorded = in_terminal(what, Some(&place.join("a")), &place);
        let without_pid = |text: &str| {
            text.lines()
                .filter(|l| l.parse::<u32>().is_err())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(without_pid(&bare), without_pid(&recorded), "{what}");
    }
}

#[test]
fn a_program_that_is_continued_alone_continues_the_command() {
    let place = scratch("continued-alone");
    let said = in_terminal("alone", Some(&place.join("a")), &place);
    assert_eq!(said, "status 7\n");
}
