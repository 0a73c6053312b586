//! File systems that are read-only or full: the guest is not affected, and the loss is reported.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, NOBODY, Outcome, clean, heaptide, preloaded, profiles, recorded, report, run, scratch,
};
use heaptide_fixtures::skips::{ROOT, is_root, may_make_namespaces, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, os::unix::fs::chown};

/// A file system in memory, unmounted when this is dropped.
pub struct Mount(pub PathBuf);

impl Mount {
    /// Mounts a tmpfs with these options, which requires root.
    pub fn new(place: &Path, options: &str) -> Mount {
        fs::create_dir_all(place).expect("a mount point");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "heaptide-test"]).arg(place);
        let mounted = command.output().expect("mount");
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        Mount(place.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// The number of allocations of `hungry.c`.
const HUNGRY_ALLOCATIONS: i128 = 100_000;

/// Builds a program that needs far more space than there is: it has 65 536 stacks.
fn hungry(place: &Path) -> (PathBuf, Outcome) {
    let program = Guest::read("hungry.c").build("hungry.c", &[]);
    let bare = run(clean(Command::new(&program)).current_dir(place), place);
    assert_eq!(bare.status, 3, "{}", bare.stdout);
    (program, bare)
}

#[test]
fn full_disk() {
    if !may_make_namespaces("limits::full_disk") {
        return;
    }
    let place = scratch("full-disk");
    for size in ["64k", "256k", "1m", "3m"] {
        let mount = Mount::new(&place.join("disk"), &format!("size={size}"));
        let (program, bare) = hungry(&place);
        let recording = mount.0.join("a.heaptide");
        let mut command = preloaded(&program, &recording);
        let outcome = run(command.current_dir(&place), &place);
        assert_eq!(bare, outcome, "on a disk of {size}");
        // Each allocation is counted with its stack, or as a reported loss.
        let report = report(&recording, &place);
        let with_stack = evaluate(&report, "function:branch", "allocations");
        let lost = evaluate(&report, "recording", "lost_events");
        assert_eq!(evaluate(&report, "totals", "allocations"), HUNGRY_ALLOCATIONS, "{size}");
        assert_eq!(with_stack + lost, HUNGRY_ALLOCATIONS, "{with_stack} with stacks on {size}");
        assert!(with_stack > 0 && lost > 0, "{with_stack} with stacks, {lost} lost on {size}");
        let info = run(heaptide().arg("info").arg(&recording), &place);
        let told = info.stdout.contains("no space") || info.stdout.contains("could not grow");
        assert!(told, "info does not say what was lost:\n{}", info.stdout);
    }
}

#[test]
fn full_disk_under_run() {
    if !may_make_namespaces("limits::full_disk_under_run") {
        return;
    }
    let place = scratch("full-disk-under-run");
    let mount = Mount::new(&place.join("disk"), "size=1m");
    let (program, bare) = hungry(&place);
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(mount.0.join("a.heaptide")).arg("--").arg(&program);
    let outcome = run(clean(command).current_dir(&place), &place);
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    let missing = outcome.stderr.lines().filter(|line| line.starts_with("heaptide:   missing "));
    let of_stacks =
        missing.filter(|line| line.contains("allocations recorded without their stack"));
    assert_eq!(of_stacks.count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_summary_is_printed_although_nothing_more_can_be_stored() {
    if !may_make_namespaces("limits::a_summary_is_printed_although_nothing_more_can_be_stored") {
        return;
    }
    let place = scratch("full-disk-at-end");
    let mount = Mount::new(&place.join("disk"), "size=4m");
    let (program, bare) = hungry(&place);
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(mount.0.join("a.heaptide")).arg("--").arg(&program);
    command.arg(mount.0.join("filler"));
    let outcome = run(clean(command).current_dir(&place), &place);
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    let lines = |text: &str| outcome.stderr.lines().filter(|line| line.contains(text)).count();
    let unstored = lines("recording.json") + lines("symbols.json");
    assert!(unstored >= 1 && lines("No space left on device") == unstored, "{}", outcome.stderr);
    assert_eq!(lines("heaptide:   allocated  100,000 blocks"), 1, "{}", outcome.stderr);
    assert_eq!(lines("allocations recorded without their stack"), 1, "{}", outcome.stderr);
}

#[test]
fn read_only_place() {
    let place = scratch("read-only-place");
    let (program, bare) = hungry(&place);
    let nowhere = "/proc/sys/no-recording-here.heaptide";
    let mut command = preloaded(&program, nowhere);
    let outcome = run(command.current_dir(&place), &place);
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    let mut command = recorded(Path::new(nowhere), &[]);
    let refused = run(command.arg(&program).current_dir(&place), &place);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(refused.stderr.starts_with("heaptide: "), "{}", refused.stderr);
    assert!(refused.stderr.contains(nowhere), "{}", refused.stderr);
}

#[test]
fn set_user_id_program() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("set-user-id");
    let program = Guest::read("leaks.c").build("leaks.c-suid", &[]);
    let own = Path::new("/tmp").join(format!("heaptide-suid-{}", std::process::id()));
    fs::copy(&program, &own).expect("copy the program");
    chown(&own, Some(NOBODY), Some(NOBODY)).expect("give the program away");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).expect("set the bit");
    let bare = run(&mut clean(Command::new(&own)), &place);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&own), &place);
    fs::remove_file(&own).expect("remove the program");
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    assert!(profiles(&recording).is_empty(), "a set-user-id program was recorded");
}

#[test]
fn recordings_are_not_overwritten() {
    let place = scratch("not-overwritten");
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    let recording = place.join("a.heaptide");
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
    let second = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!(second.status, 2, "{}", second.stderr);
    assert!(second.stderr.contains("--force"), "{}", second.stderr);
    assert_eq!(run(recorded(&recording, &["--force"]).arg(&program), &place).status, 0);
    report(&recording, &place);
}

#[test]
fn program_that_is_not_there() {
    let place = scratch("not-there");
    let outcome = run(recorded(&place.join("a.heaptide"), &[]).arg("/no/such/program"), &place);
    assert!(outcome.status == 2 || outcome.status == 127, "{outcome:?}");
    assert!(outcome.stderr.starts_with("heaptide: "), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn children_not_followed() {
    let place = scratch("not-followed");
    let program = Guest::read("fork_exec.c").build("fork_exec.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--no-follow"]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    let report = report(&recording, &place);
    assert_eq!(evaluate(&report, "recording", "processes"), 1);
    assert_eq!(evaluate(&report, "function:first_image", "allocations"), 10);
}

/// Programs that behave the same with counters only, and whose totals are the same. (A child that
/// frees inherited blocks is excluded: without the table of live blocks those frees count.)
const COUNTED: [&str; 7] = [
    "leaks.c",
    "proxies.cpp",
    "temporary.c",
    "fork_exec.c",
    "exceptions.cpp",
    "cross_thread.c",
    "thread_end.cpp",
];

#[test]
fn counters_only() {
    let place = scratch("counters-only");
    for name in COUNTED {
        let program = Guest::read(name).build(name, &["-pthread"]);
        let outcome = |options: &[&str], recording: &Path| {
            run(recorded(recording, options).arg(&program), &place)
        };
        let (counters, stacks) = (place.join(format!("{name}.1")), place.join(format!("{name}.2")));
        let counted = outcome(&["--mode", "counters"], &counters);
        assert_eq!(counted, outcome(&[], &stacks), "{name}");
        let (counters, stacks) = (json(&counters, &place), report(&stacks, &place));
        for measure in ["allocations", "frees", "reallocations", "requested_bytes", "temporary"] {
            let of = |report| evaluate(report, "totals", measure);
            assert_eq!(of(&counters), of(&stacks), "{name}: {measure}");
        }
    }
}

/// Returns a report of totals without sites, for which sums are not checked.
fn json(recording: &Path, place: &Path) -> serde_json::Value {
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--format", "json"]).arg(recording), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}
