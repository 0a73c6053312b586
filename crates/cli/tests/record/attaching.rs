//! Attaching to running programs: counts, and that the programs continue.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, NOBODY, Outcome, clean, heaptide, library, preloaded, profiles, report, run, scratch,
    until,
};
use crate::recording::{list, number};
use heaptide_attach::{Request, attach, detach};
use heaptide_fixtures::Random;
use heaptide_fixtures::skips::{NAMESPACES, ROOT, is_root, may_make_namespaces, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Whether attaching interrupts a call of `epoll_wait`.
const ENDS_CALLS: bool = cfg!(target_arch = "aarch64");
/// The number of attachments in tests that attach repeatedly, unless `HEAPTIDE_ATTACH_ROUNDS` is
/// set.
const ROUNDS: u64 = 15;

/// A running program, and a directory for its recordings.
pub struct Target {
    pub child: Child,
    pub place: PathBuf,
}

impl Target {
    /// Starts the program, and waits until it is ready.
    pub fn start(name: &str, mut command: Command) -> Target {
        let place = scratch(name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("the program");
        let mut target = Target { child, place };
        assert_eq!(target.answer(), b'r');
        target
    }

    pub fn waiting(name: &str) -> Target {
        Target::start(name, Command::new(program("attached.c")))
    }

    pub fn answer(&mut self) -> u8 {
        let mut byte = [0];
        self.child.stdout.as_mut().expect("its output").read_exact(&mut byte).expect("an answer");
        byte[0]
    }

    pub fn steps(&mut self, steps: &str) {
        for step in steps.bytes() {
            self.tell(step);
            assert_eq!(self.answer(), step);
        }
    }

    /// Writes a byte to the program.
    pub fn tell(&mut self, byte: u8) {
        self.child.stdin.as_mut().expect("its input").write_all(&[byte]).expect("it reads");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn recording(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Runs `heaptide WORDS PID`.
    pub fn command(&self, words: &[&str]) -> Outcome {
        self.command_on(&self.pid().to_string(), words)
    }

    pub fn command_on(&self, pid: &str, words: &[&str]) -> Outcome {
        let mut command = heaptide();
        command.current_dir(&self.place).args(words).arg(pid);
        run(&mut command, &self.place)
    }

    pub fn attach(&self, name: &str, options: &[&str]) {
        let words = [&["attach", "--background", "-o", name], options].concat();
        let outcome = self.command(&words);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }

    /// Starts `heaptide attach` in the foreground, and waits until it records. Returns it and the
    /// file with its messages.
    pub fn attach_in_front(&self, name: &str) -> (Child, PathBuf) {
        let said = self.recording("said");
        let mut command = heaptide();
        command.args(["attach", "-o"]).arg(self.recording(name)).arg(self.pid().to_string());
        command.stderr(fs::File::create(&said).expect("a file"));
        let attached = command.spawn().expect("heaptide");
        crate::harness::until("the recording", || {
            fs::read_to_string(&said).is_ok_and(|text| text.contains("recording process"))
        });
        (attached, said)
    }

    pub fn detach(&self) {
        let outcome = self.command(&["detach", "-q"]);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    }

    pub fn process(&self, name: &str) -> Value {
        let report = report(&self.recording(name), &self.place);
        let [process] = list(&report, "processes") else { panic!("one process") };
        process.clone()
    }

    /// Ends the program by SIGTERM, and returns its status.
    pub fn end(mut self) -> Option<i32> {
        kill(self.pid(), Signal::SIGTERM).expect("it runs");
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}

pub fn program(name: &str) -> PathBuf {
    Guest::read(name).build(name, &["-pthread"])
}

/// Checks the counts of the steps `amp` of `attached.c` after a first attach.
fn assert_known(process: &Value) {
    let totals = &process["totals"];
    let found = ["allocations", "frees", "requested_bytes", "live_blocks", "at_peak_blocks"]
        .map(|name| number(totals, name));
    assert_eq!(found, [1203, 1190, 1000 * 100 + 3 * 300 + 100 * 5000 + 100 * 48, 13, 1000]);
    assert_eq!(number(process, "unmatched_frees"), 13);
}

#[test]
fn what_a_program_does_between_attach_and_detach_is_counted() {
    let mut target = Target::waiting("attach_counts");
    target.steps("m");
    target.attach("a.heaptide", &[]);
    target.steps("amp");
    target.detach();
    target.steps("mp");
    let process = target.process("a.heaptide");
    assert_known(&process);
    assert_eq!(process["end"]["kind"], "detached");
    let text = heaptide().arg("report").arg(target.recording("a.heaptide")).output().expect("it");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("the recording starts in a running process, "), "{text}");
    assert!(text.contains("live at detach"), "{text}");
}

/// Of 20 MB resident, the recording shows 0.1 MB: the report states the rest, as a bound.
#[test]
fn a_report_states_the_blocks_from_before() {
    let mut target = Target::waiting("attach_older");
    target.steps("o");
    target.attach("a.heaptide", &[]);
    let recording = target.recording("a.heaptide");
    let page =
        |target: &Target| run(heaptide().arg("report").arg(&recording), &target.place).stdout;
    until("an account of resident memory", || {
        target.steps("m");
        page(&target).contains("resident")
    });
    target.detach();
    let page = page(&target);
    let head = page.split("\n\n").next().expect("sentences");
    let sentence = head.lines().skip(1).collect::<Vec<_>>().join(" ");
    let sentence = sentence.as_str();
    let (_, older) = sentence.split_once(" At most ").expect(sentence);
    let (older, rest) = older.split_once(" MiB of ").expect(sentence);
    let older: f64 = older.parse().expect(sentence);
    assert!((19.0..21.0).contains(&older), "{sentence}");
    let says = "resident were blocks from before the recording began, not shown.";
    assert!(rest.ends_with(says), "{sentence}");
}

#[test]
fn threads_of_openmp_inherit_scopes_in_an_attached_program() {
    let mut target = Target::start("attach_openmp", Command::new(program("attached_openmp.c")));
    target.steps("o");
    target.attach("a.heaptide", &[]);
    target.steps("i");
    target.detach(); // within the region
    target.steps("eo");
    target.attach("b.heaptide", &[]);
    target.steps("ie");
    target.detach();
    for name in ["a.heaptide", "b.heaptide"] {
        let report = report(&target.recording(name), &target.place);
        let found = ["allocations", "frees", "requested_bytes"]
            .map(|metric| evaluate(&report, "scope:loop", metric));
        assert_eq!(found, [4, 4, 4000], "{name}");
    }
}

#[test]
fn limits_that_an_attached_program_sets_are_its_own() {
    let mut target = Target::waiting("attach_limits");
    target.attach("a.heaptide", &[]);
    target.steps("l");
    target.detach();
    assert_eq!(number(&target.process("a.heaptide")["totals"], "allocations"), 1);
}

/// Debian's redis-server is such a link.
#[test]
fn a_program_is_named_by_the_link_that_it_was_executed_by() {
    let link = scratch("attach_link").join("linked");
    symlink(program("attached.c"), &link).expect("a link");
    let mut target = Target::start("attach_title", Command::new(&link));
    target.steps("t");
    let outcome = target.command(&["attach", "-q", "--for", "10ms"]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let name = format!("heaptide-linked-{}.heaptide", target.pid());
    let process = target.process(&name);
    assert_eq!(process["command"], serde_json::json!(["linked", "*:1"]));
    let text = heaptide().arg("report").arg(target.recording(&name)).output().expect("it");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let named = format!("linked ({})", program("attached.c").display());
    assert!(text.contains(&named), "{text}");
}

#[test]
fn each_attachment_has_a_recording_of_its_own() {
    let mut target = Target::waiting("attach_again");
    target.attach("first.heaptide", &["--mode", "scopes"]);
    target.steps("a");
    target.detach();
    target.steps("p");
    for (name, mode) in [("second", "stacks"), ("third", "trace"), ("fourth", "stacks")] {
        target.attach(name, &["--mode", mode]);
        target.steps("mp");
        target.detach();
        let process = target.process(name);
        assert_eq!(number(&process["totals"], "allocations"), 200, "{name}");
        assert_eq!(number(&process["totals"], "live_blocks"), 0, "{name}");
        assert_eq!(number(&process, "unmatched_frees"), 0, "{name}");
    }
    assert_eq!(number(&target.process("first.heaptide")["totals"], "allocations"), 1003);
}

#[test]
fn a_program_that_ends_while_it_is_recorded_is_sealed() {
    let mut target = Target::waiting("attach_end");
    let (mut attached, _) = target.attach_in_front("a.heaptide");
    target.steps("amp");
    target.child.stdin.as_mut().expect("its input").write_all(b"e").expect("a step");
    assert_eq!(target.child.wait().expect("its end").code(), Some(7));
    assert_eq!(attached.wait().expect("the command").code(), Some(0));
    let process = target.process("a.heaptide");
    assert_known(&process);
    assert_eq!((&process["end"]["kind"], number(&process["end"], "code")), (&"exited".into(), 7));
}

#[test]
fn a_command_ends_when_another_one_detaches() {
    let mut target = Target::waiting("attach_detached");
    let (mut attached, said) = target.attach_in_front("a.heaptide");
    target.steps("amp");
    target.detach();
    assert_eq!(attached.wait().expect("the command").code(), Some(0));
    let said = fs::read_to_string(said).expect("what it said");
    assert!(said.contains("another command detached from process"), "{said}");
    assert_known(&target.process("a.heaptide"));
    // The next recording is not ended by the first command.
    target.attach("b.heaptide", &[]);
    target.steps("mp");
    target.detach();
    assert_eq!(number(&target.process("b.heaptide")["totals"], "allocations"), 200);
}

#[test]
fn a_time_ends_the_recording() {
    let target = Target::waiting("attach_time");
    let outcome = target.command(&["attach", "--for", "50ms", "-o", "a.heaptide"]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("into") && outcome.stderr.contains("for 50ms"));
    assert_eq!(target.process("a.heaptide")["end"]["kind"], "detached");
}

#[test]
fn what_cannot_be_attached_to_is_refused_in_one_line() {
    let target = Target::waiting("attach_refused");
    let refused = |outcome: Outcome, why: &str| {
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    };
    let counters = target.command(&["attach", "--mode", "counters"]);
    refused(counters, "cannot distinguish blocks allocated before");
    refused(target.command(&["detach"]), "is not recorded by `heaptide attach`");
    target.attach("a.heaptide", &[]);
    let again = target.command(&["attach", "-o", "b.heaptide"]);
    refused(again, "is being recorded into");
    assert!(!target.recording("b.heaptide").exists());
    refused(target.command(&["attach", "-o", "a.heaptide"]), "exists");
    target.detach();

    let mut started = preloaded(program("attached.c"), target.recording("started"));
    started.env("HEAPTIDE_MODE", "stacks");
    let started = Target::start("attach_preloaded", started);
    refused(started.command(&["attach"]), "was started with the recorder");

    let source = Guest::read("attached.c").build("attached_static", &["-static"]);
    let fixed = Target::start("attach_static", Command::new(source));
    refused(fixed.command(&["attach"]), "is statically linked");

    let mut none = heaptide();
    none.current_dir(&target.place).args(["attach", "2000000000"]);
    refused(run(&mut none, &target.place), "there is no process 2000000000");

    let mut ended = Command::new("true").spawn().expect("true");
    let id = nix::sys::wait::Id::Pid(Pid::from_raw(ended.id() as i32));
    let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
    nix::sys::wait::waitid(id, flags).expect("its end");
    let ended_pid = ended.id().to_string();
    let outcome = target.command_on(&ended_pid, &["attach"]);
    refused(outcome, &format!("process {ended_pid} has ended"));
    ended.wait().expect("its status");
}

/// Returns how often the first thread of a program has waited; a stop by a tracer counts.
fn waits(target: &Target) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("its waits").trim().parse().expect("a number")
}

/// The preparation makes hundreds of system calls. A stop at each of them made it take 40 times as
/// long.
#[test]
fn a_thread_is_not_stopped_at_the_system_calls_of_the_preparation() {
    let target = Target::waiting("attach_waits");
    let before = waits(&target);
    target.attach("a.heaptide", &[]);
    let attached = waits(&target);
    target.detach();
    assert!(attached - before < 500, "stopped {} times", attached - before);
    assert_eq!(target.end(), None);
}

/// Starts `attached_starts.c` with a command to run.
fn starting(name: &str, given: &str) -> Target {
    let mut command = Command::new(program("attached_starts.c"));
    command.arg(given);
    Target::start(name, clean(command))
}

/// Returns how often child processes called `started`, in all processes of a recording.
pub fn started(target: &Target, name: &str) -> i128 {
    let report = report(&target.recording(name), &target.place);
    evaluate(&report, "function:started", "allocations")
}

#[test]
fn programs_started_by_an_attached_one_are_recorded() {
    let mut target = starting("attach_starts", "");
    target.steps("soep");
    target.attach("a.heaptide", &["--mode", "scopes"]);
    target.detach();
    target.attach("b.heaptide", &[]);
    target.steps("soep");
    target.detach();
    target.steps("soep");
    assert_eq!(started(&target, "b.heaptide"), 4);
    assert_eq!(profiles(&target.recording("a.heaptide")).len(), 1);
    target.attach("alone.heaptide", &["--no-follow"]);
    target.steps("soep");
    target.detach();
    assert_eq!(profiles(&target.recording("alone.heaptide")).len(), 1);
}

/// Of children, the report shows 5 MB: it states the 20 MB of the program that started them.
#[test]
fn a_report_of_children_states_the_blocks_from_before() {
    let keeps = format!("{} -keeps", program("attached_starts.c").display());
    let mut target = starting("attach_older_parent", &keeps);
    target.steps("b");
    target.attach("a.heaptide", &[]);
    target.steps("c");
    let recording = target.recording("a.heaptide");
    let place = target.place.clone();
    let page = || {
        let page = run(heaptide().arg("report").arg(&recording), &place).stdout;
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    until("an account of resident memory", || {
        target.steps("m");
        page().contains("not shown.")
    });
    target.detach();
    let page = page();
    let pid = target.child.id();
    assert!(page.contains("`main` (attached_starts.c"), "{page}");
    let says = format!("resident in pid {pid} were blocks from before the recording began, not");
    let (before, _) = page.split_once(&says).expect(&page);
    let (_, older) = before.rsplit_once("At most ").expect(&page);
    let (older, _) = older.split_once(" MiB of ").expect(&page);
    assert!((19.0..21.0).contains(&older.parse().expect(&page)), "{page}");
}

#[test]
fn a_run_in_an_attached_program_has_its_own_settings() {
    let inner = scratch("attach_inner_run").join("inner.heaptide");
    let words = [env!("CARGO_BIN_EXE_heaptide"), "run", "-q", "-o"].join(" ");
    let program = program("attached_starts.c");
    let given = format!("{words} {} -- {} -started || true", inner.display(), program.display());
    let mut target = starting("attach_run", &given);
    target.attach("a.heaptide", &["--mode", "scopes"]);
    target.steps("c");
    target.detach();
    let report = report(&inner, &target.place);
    assert_eq!(evaluate(&report, "function:started", "allocations"), 1, "with stacks");
}

#[test]
fn a_program_that_executes_another_file_is_recorded_on() {
    let mut target = starting("attach_executes", "");
    target.attach("a.heaptide", &[]);
    target.child.stdin.as_mut().expect("its input").write_all(b"x").expect("a step");
    assert_eq!(target.answer(), b'r');
    target.steps("s");
    let outcome = target.command(&["detach"]);
    assert_eq!(outcome.status, 2);
    assert!(outcome.stderr.contains("has executed another program"), "{}", outcome.stderr);
    let recording = target.recording("a.heaptide");
    assert_eq!(target.end(), None);
    let report = report(&recording, recording.parent().expect("its place"));
    assert_eq!(evaluate(&report, "function:started", "allocations"), 1);
}

fn rounds() -> u64 {
    let set = std::env::var("HEAPTIDE_ATTACH_ROUNDS").ok();
    set.and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

/// Attaches to a program and detaches, `rounds` times, at random times.
fn attach_often(target: &Target, rounds: u64) {
    let mut random = Random::new(7);
    for round in 0..rounds {
        let recording = target.recording("a.heaptide");
        let _ = fs::remove_dir_all(&recording);
        fs::create_dir(&recording).expect("a recording");
        let mode = ["stacks", "scopes", "trace"][random.below(3) as usize];
        let request = Request {
            recorder: library(),
            settings: format!("HEAPTIDE_MODE={mode}\0").into_bytes(),
            handed_on: Vec::new(),
            directory: fs::File::open(&recording).expect("it is there"),
            recording,
            patience: Duration::from_secs(30),
        };
        attach(target.pid(), request).unwrap_or_else(|error| panic!("round {round}: {error}"));
        thread::sleep(Duration::from_micros(random.below(20_000)));
        let detached = detach(target.pid(), Duration::from_secs(30));
        detached.unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 10 == 0 {
            target.process("a.heaptide"); // checks consistency
        }
    }
}

#[test]
fn threads_that_allocate_bear_attaching_at_any_moment() {
    let mut command = Command::new(program("attached_threads.c"));
    command.arg("8").args(ENDS_CALLS.then_some("killed"));
    let target = Target::start("attach_threads", command);
    attach_often(&target, rounds());
    assert_eq!(target.end(), Some(0));
}

#[test]
#[cfg_attr(target_arch = "aarch64", ignore = "epoll_wait ends when its thread is stopped")]
fn the_call_that_a_thread_waits_in_does_not_end() {
    let mut command = Command::new(program("attached_threads.c"));
    command.args(["1", "waits"]);
    let target = Target::start("attach_waits", command);
    attach_often(&target, rounds());
    assert_eq!(target.end(), Some(0));
}

#[test]
fn a_command_that_is_killed_leaves_a_program_that_runs() {
    let mut command = Command::new(program("attached_threads.c"));
    command.args(["4", "killed"]);
    let target = Target::start("attach_killed", command);
    let mut random = Random::new(11);
    for round in 0..rounds() * 2 {
        let name = format!("{round}.heaptide");
        let words: &[&str] = match round % 3 {
            2 => &["detach", "-q"],
            _ => &["attach", "--background", "-o", &name],
        };
        let mut command = heaptide();
        command.current_dir(&target.place).args(words).arg(target.pid().to_string());
        let mut killed = command.stderr(Stdio::null()).spawn().expect("heaptide");
        thread::sleep(Duration::from_micros(random.below(150_000)));
        let _ = killed.kill(); // may have ended
        killed.wait().expect("its end");
    }
    let _ = target.command(&["detach", "-q"]); // may not be attached
    let outcome = target.command(&["attach", "-q", "--for", "50ms", "-o", "last.heaptide"]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let process = target.process("last.heaptide");
    assert!(number(&process["totals"], "allocations") > 0);
    assert_eq!(target.end(), Some(0));
}

#[test]
fn a_process_of_another_user_is_given_the_library_and_the_recording() {
    if !is_root() {
        return skip(ROOT);
    }
    let (mut target, copied) = of_another_user("attach_user", "attached.c");
    target.attach("a.heaptide", &[]);
    target.steps("amp");
    target.detach();
    assert_known(&target.process("a.heaptide"));
    let _ = fs::remove_dir_all(copied);
}

/// Its child processes cannot load the library, which is in a directory of another user.
#[test]
fn programs_out_of_reach_of_the_library_are_counted() {
    if !is_root() {
        return skip(ROOT);
    }
    let (mut target, copied) = of_another_user("attach_counted", "attached_starts.c");
    target.attach("a.heaptide", &[]);
    target.steps("soep");
    target.detach();
    target.steps("soep");
    let process = target.process("a.heaptide");
    let started = list(&process, "unrecorded_programs");
    let of = |program: &str| {
        let counts = started.iter().filter(|one| one["path"].as_str() == Some(program));
        counts.map(|one| number(one, "count")).sum::<i128>()
    };
    let itself = copied.join("attached").display().to_string();
    assert_eq!([of("/bin/sh"), of(&itself)], [2, 2], "{started:?}");
    assert!(started.iter().all(|one| one["reason"] == "child_library"), "{started:?}");
    let _ = fs::remove_dir_all(copied);
}

/// Starts a program as another user, in a directory of its own, since that user may not have access
/// to those of the tests.
pub fn of_another_user(name: &str, source: &str) -> (Target, PathBuf) {
    let copied = open_to_all(name, source);
    let mut command = Command::new(copied.join("attached"));
    command.uid(NOBODY).gid(NOBODY);
    let mut target = Target::start(name, command);
    target.place = copied.join("recordings");
    fs::create_dir(&target.place).expect("a directory");
    (target, copied)
}

#[test]
fn a_process_in_a_container_is_given_the_library_and_the_recording() {
    if !is_root() {
        return skip(ROOT);
    }
    if !may_make_namespaces("attach_container") {
        return skip(NAMESPACES);
    }
    let copied = open_to_all("attach_container", "attached.c");
    // Other mounts, another pid namespace, and the directory of the recording hidden in it.
    let script = format!(
        "mount -t tmpfs none {} && mount -t proc none /proc && exec {}",
        Path::new(env!("CARGO_TARGET_TMPDIR")).display(),
        copied.join("attached").display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]).arg(script);
    let mut target = Target::start("attach_container", command);
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let child = fs::read_to_string(children).expect("the processes in the container");
    let inner = child.trim().to_owned();
    let open = || fs::read_dir(format!("/proc/{inner}/fd")).expect("its descriptors").count();
    let before = open();
    let attached = target.command_on(&inner, &["attach", "--background", "-o", "a.heaptide"]);
    assert_eq!(attached.status, 0, "{}", attached.stderr);
    target.steps("amp");
    let detached = target.command_on(&inner, &["detach", "-q"]);
    assert_eq!(detached.status, 0, "{}", detached.stderr);
    assert_known(&target.process("a.heaptide"));
    assert_eq!(open(), before, "the descriptors that it was given are closed");
    let _ = fs::remove_dir_all(copied);
}

/// The clock of the process is far ahead of that of the command.
#[test]
fn a_process_of_another_time_namespace_is_recorded_by_its_own_clock() {
    if !is_root() {
        return skip(ROOT);
    }
    let mut command = Command::new("unshare");
    command.args(["--time", "--monotonic", "1000000", "--fork", "--kill-child"]);
    command.arg(program("attached.c"));
    let target = Target::start("attach_clock", command);
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let child = fs::read_to_string(children).expect("the process in the namespace");
    let inner = child.trim().to_owned();
    for words in [&["attach", "--background", "-o", "a.heaptide"][..], &["detach", "-q"]] {
        let outcome = target.command_on(&inner, words);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
    let process = target.process("a.heaptide");
    assert_eq!(process["duration_is_known"], true);
    assert!(process["duration_s"].as_f64() > Some(0.0), "{}", process["duration_s"]);
}

/// Creates a directory that all users can search, with the program.
fn open_to_all(name: &str, source: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("heaptide-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).expect("a directory");
    fs::copy(program(source), place.join("attached")).expect("the program");
    place
}
