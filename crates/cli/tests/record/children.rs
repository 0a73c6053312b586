//! Child processes: each is recorded, or counted with the reason why it is not.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, NOBODY, check, clean, heaptide, library, preloaded, profiles, recorded, report, run,
    scratch, unknown_allocator, until,
};
use heaptide_fixtures::skips::{ROOT, is_root, may_make_namespaces, skip};
use heaptide_format::{FileHeader, IMAGE_OWN_MALLOC, NotIntercepted, Unrecorded, UnrecordedChild};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the header of a profile, compressed or not.
fn head(profile: &Path) -> FileHeader {
    let bytes = fs::read(profile).expect("a profile");
    let plain = zstd::stream::decode_all(&*bytes).unwrap_or(bytes);
    zerocopy::FromBytes::read_from_prefix(&plain).expect("a head").0
}

/// Returns how many children of all processes in a recording have no profile for a reason.
fn unrecorded(recording: &Path, why: UnrecordedChild) -> u64 {
    let of = |profile: &PathBuf| head(profile).unrecorded_children[why as usize];
    profiles(recording).iter().map(of).sum()
}

#[test]
fn rights_given_up_before_the_first_allocation() {
    if !is_root() {
        return skip(ROOT);
    }
    check("gives_up_rights.c");
    let place = scratch("rights-given-up");
    let program = Guest::read("gives_up_rights.c").build("gives_up_rights.c", &[]);
    let recording = place.join("a.heaptide");
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
    assert_eq!(unrecorded(&recording, UnrecordedChild::NoProfile), 1);
    // Which obstacle comes first depends on the location of the library.
    let ways = [UnrecordedChild::NoRight, UnrecordedChild::LibraryUnreachable];
    assert_eq!(ways.map(|why| unrecorded(&recording, why)).iter().sum::<u64>(), 1);
}

#[test]
fn children_keep_to_the_options_of_their_parent() {
    let place = scratch("options-of-parent");
    let program = Guest::read("titles.c").build("titles.c", &[]);
    let recording = place.join("one.heaptide");
    assert_eq!(run(recorded(&recording, &["--no-follow"]).arg(&program), &place).status, 0);
    assert_eq!(profiles(&recording).len(), 1, "--no-follow: one process");
    let recording = place.join("counters.heaptide");
    let options = ["--mode", "counters"];
    assert_eq!(run(recorded(&recording, &options).arg(&program), &place).status, 0);
    let modes = profiles(&recording).iter().map(|p| head(p).mode).collect::<Vec<_>>();
    assert_eq!(modes, [heaptide_format::Mode::Counters as u32; 3]);
    let mut command = clean(Command::new(&program));
    command.env("LD_PRELOAD", library()).env("HEAPTIDE_MODE", "off").current_dir(&place);
    assert_eq!(run(&mut command, &place).status, 0);
    let here = fs::read_dir(&place).expect("the directory").flatten();
    let names = here.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let mut made: Vec<_> = names.filter(|name| name.ends_with(".heaptide")).collect();
    made.sort();
    assert_eq!(made, ["counters.heaptide", "one.heaptide"], "HEAPTIDE_MODE=off records nothing");
}

#[test]
fn one_recording_without_a_name_for_all_processes() {
    let place = scratch("no-name");
    let program = Guest::read("executes.c").build("executes.c", &[]);
    let mut command = clean(Command::new(&program));
    let outcome = run(command.env("LD_PRELOAD", library()).current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stdout);
    let here = fs::read_dir(&place).expect("the directory").flatten().map(|entry| entry.path());
    let made: Vec<_> = here.filter(|p| p.extension().is_some_and(|e| e == "heaptide")).collect();
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(profiles(&made[0]).len(), 15);
    let marker = fs::read_to_string(made[0].join("recording.json")).expect("a marker");
    assert_eq!(marker, "{\"version\":1,\"root_pid\":0}\n");
}

/// Programs that the recorder would break or cannot enter, started by a recorded shell: they behave
/// as bare, and are counted.
#[test]
fn programs_that_cannot_be_recorded() {
    let place = scratch("not-recordable");
    let guest = Guest::read("plain.c");
    let unknown = unknown_allocator("-static");
    let unknown = unknown.each_ref().map(String::as_str);
    let builds = [
        ("plain.c-static", &unknown[..], UnrecordedChild::Static),
        ("plain.c-asan", &["-fsanitize=address"], UnrecordedChild::Sanitizer),
        ("plain.c-tsan", &["-fsanitize=thread"], UnrecordedChild::Sanitizer),
        ("plain.c-lsan", &["-fsanitize=leak"], UnrecordedChild::Sanitizer),
    ];
    for (variant, flags, why) in builds {
        let program = guest.build(variant, flags);
        for words in [format!("{}; exit $?", program.display()), format!("env -i {program:?}")] {
            let bare = run(clean(Command::new("sh")).args(["-c", &words]), &place);
            assert_eq!(bare.status, 5, "{variant}: {}", bare.stderr);
            let recording = place.join(format!("{variant}.heaptide"));
            let mut command = recorded(&recording, &["--force"]);
            assert_eq!(bare, run(command.args(["sh", "-c", &words]), &place), "{variant}");
            assert_eq!(unrecorded(&recording, why), 1, "{variant}: {words}");
        }
    }
    let program = guest.build("plain.c-ubsan", &["-fsanitize=undefined"]);
    let recording = place.join("ubsan.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!(outcome.status, 5, "{}", outcome.stderr);
    let found = evaluate(&report(&recording, &place), "function:one_block", "allocations");
    assert_eq!(found, 1, "UBSan has no allocator of its own");
}

/// Programs of another user cannot read the library; the loader does not report it.
#[test]
fn library_out_of_reach() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("library-out-of-reach");
    let own = place.join("libheaptide-own.so");
    fs::copy(library(), &own).expect("copy the library");
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("mode");
    let words = format!("setpriv --reuid {NOBODY} --clear-groups /bin/echo out of reach");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    let outcome = run(command.args(["sh", "-c", &words]).env("HEAPTIDE_LIBRARY", &own), &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "out of reach\n", ""));
    assert_eq!(unrecorded(&recording, UnrecordedChild::LibraryUnreachable), 1);
    // The sentence was about setpriv, which started the program, as if nothing were missing.
    let mut command = clean(heaptide());
    command.args(["run", "-o"]).arg(place.join("b.heaptide")).args(["--", "setpriv", "--reuid"]);
    command
        .arg(NOBODY.to_string())
        .args(["--clear-groups", "/bin/echo"])
        .env("HEAPTIDE_LIBRARY", &own);
    let outcome = run(&mut command, &place);
    let first = "heaptide: `/bin/echo`, which setpriv became by exec, was not recorded: ";
    assert!(outcome.stderr.starts_with(first), "{}", outcome.stderr);
}

#[test]
fn an_allocator_inside_the_program() {
    let place = scratch("allocator-inside");
    let program = Guest::read("allocator_inside.c").build("allocator_inside.c", &[]);
    let recording = place.join("a.heaptide");
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
    let profile = &profiles(&recording)[0];
    let flags = head(profile).image_flags;
    assert_eq!(flags & IMAGE_OWN_MALLOC, IMAGE_OWN_MALLOC);
    assert_eq!(NotIntercepted::from_flags(flags), Some(NotIntercepted::NoUsableSize));
    assert_eq!(evaluate(&report(&recording, &place), "totals", "allocations"), 0);
}

/// Tools that replace the allocator find the same in a program with the recorder, which then
/// records nothing. Other tools are not affected.
#[test]
fn under_valgrind() {
    let place = scratch("under-valgrind");
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    let memcheck = |command: &mut Command| {
        let command = command.args(["valgrind", "--error-exitcode=77", "--leak-check=full"]);
        run(command.arg(&program), &place)
    };
    let bare = memcheck(&mut clean(Command::new("env")));
    let recording = place.join("memcheck.heaptide");
    let outcome = memcheck(&mut recorded(&recording, &[]));
    assert_eq!((bare.status, lost(&bare.stderr)), (outcome.status, lost(&outcome.stderr)));
    let complaints = ["Invalid", "uninitialised", "Warning"];
    assert!(!complaints.iter().any(|word| outcome.stderr.contains(word)), "{}", outcome.stderr);
    let reasons: Vec<u32> = profiles(&recording).iter().map(|p| head(p).unrecorded).collect();
    assert!(reasons.contains(&(Unrecorded::Valgrind as u32)), "{reasons:?}");
    let recording = place.join("none.heaptide");
    let mut command = recorded(&recording, &[]);
    let outcome = run(command.args(["valgrind", "-q", "--tool=none"]).arg(&program), &place);
    assert_eq!(outcome.status, run(&mut clean(Command::new(&program)), &place).status);
    let found = evaluate(&report(&recording, &place), "totals", "allocations");
    assert!(found > 0, "valgrind's none replaces nothing");
}

/// Returns the bytes that memcheck reports as lost. It guesses which of them are possibly reachable
/// from values that look like addresses.
fn lost(output: &str) -> u64 {
    let words = output.lines().filter_map(|line| line.split_once("lost: ")?.1.split(' ').next());
    words.map(|bytes| bytes.replace(',', "").parse::<u64>().expect("bytes")).sum()
}

/// Different processes with one pid are distinguished; an exec does not start another process.
#[test]
fn identity_of_processes() {
    let place = scratch("identity");
    let program = Guest::read("exec.c").build("exec.c", &[]);
    let recording = place.join("a.heaptide");
    run(recorded(&recording, &[]).arg(&program), &place);
    let heads: Vec<_> = profiles(&recording).iter().map(|p| head(p)).collect();
    let identity = |h: &FileHeader| (h.pid, h.pid_namespace, h.process_start_ticks);
    assert!(heads.len() > 1 && heads.iter().all(|h| identity(h) == identity(&heads[0])));
    assert!(heads[0].process_start_ticks > 0 && heads[0].pid_namespace > 0);
    if !may_make_namespaces("children::identity_of_processes") {
        return;
    }
    let recording = place.join("b.heaptide");
    let mut command = recorded(&recording, &[]);
    let words = "for i in 1 2 3; do unshare --fork --pid --mount-proc sh -c 'sleep .05'; done";
    assert_eq!(run(command.args(["sh", "-c", words]), &place).status, 0);
    let first: Vec<_> =
        profiles(&recording).iter().map(|p| head(p)).filter(|h| h.pid == 1).collect();
    let mut namespaces: Vec<_> = first.iter().map(identity).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    assert_eq!(namespaces.len(), 3, "three first processes of three namespaces: {namespaces:?}");
}

/// The recording is renamed while the program runs: profiles continue to grow there, and those of
/// children are created there.
#[test]
fn a_recording_that_is_renamed() {
    let place = scratch("renamed");
    let (before, after) = (place.join("before.heaptide"), place.join("after.heaptide"));
    let words = "read line; i=0; while [ $i -lt 3 ]; do (true); i=$((i+1)); done; read line";
    let mut command = preloaded("sh", &before);
    command.args(["-c", words]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("a shell");
    until("a profile", || !profiles(&before).is_empty());
    fs::rename(&before, &after).expect("rename the recording");
    let mut input = child.stdin.take().expect("its input");
    std::io::Write::write_all(&mut input, b"go\n").expect("write to the shell");
    until("profiles of children", || profiles(&after).len() == 4);
    drop(input);
    child.wait().expect("wait for the shell");
    assert!(!before.exists(), "nothing is made at the old place");
    let info = run(heaptide().arg("info").arg(&after), &place);
    assert_eq!(info.status, 0, "{}", info.stderr);
}
