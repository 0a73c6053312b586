//! When and how images ended, from the observations of `heaptide run`, their own notes, and the
//! last known activity; and which images belong to the same process.

use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::recording::merge::merge;
use heaptide_analysis::recording::metadata::{ImageEnd, Metadata, Status, StatusKind};
use heaptide_analysis::recording::origin::{self, Origin};
use heaptide_analysis::views::leaks;
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;
use heaptide_format::{FileHeader, Sample};
use zerocopy::FromZeros;

const S: u64 = 1_000_000_000;
/// Monotonic clock at the start of the images of these tests.
const BEGAN: u64 = 5 * S;

fn profile(pid: u32, image: u32, change: impl FnOnce(&mut FileHeader)) -> Vec<u8> {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, pid, image);
    p.site(0, site(0, 1, 16));
    p.lane(0, "app", |_| {});
    p.header.peak_bytes = 16;
    p.header.start_monotonic_ns = BEGAN + u64::from(image) * S;
    p.header.start_realtime_ns = 1_000_000 * S + u64::from(image) * S;
    change(&mut p.header);
    p.finish()
}

fn ended(image: &str, after_ns: u64) -> ImageEnd {
    ImageEnd { image: image.to_owned(), monotonic_ns: BEGAN + after_ns, status: None }
}

fn metadata(root_pid: u32, ends: Vec<ImageEnd>) -> Metadata {
    let sealed_realtime_ns = 1_000_000 * S + 10 * S;
    let status = Some(Status { kind: StatusKind::Signaled, code: 6 });
    Metadata { version: 1, root_pid, status, ends, sealed_realtime_ns, ..Metadata::default() }
}

fn open(scratch: &Scratch) -> Vec<Process> {
    Recording::open(scratch).unwrap().processes
}

/// Returns the duration of the image, and whether it is exact.
fn lasted(process: &Process) -> (u64, bool) {
    (process.lifetime.duration_ns, process.lifetime.duration_is_known)
}

#[test]
fn the_command_knows_when_a_killed_process_ended() {
    let scratch = Scratch::new("ends-known");
    scratch.write("12-0.profile", &profile(12, 0, |h| h.last_seen_ns = 998_000));
    metadata(12, vec![ended("12-0", 3 * S)]).write(&scratch).unwrap();
    let process = open(&scratch).remove(0);
    assert_eq!((lasted(&process), process.lifetime.end), ((3 * S, true), End::Signaled(6)));
}

#[test]
fn the_command_knows_the_status_of_a_child_that_was_killed() {
    let scratch = Scratch::new("ends-child");
    scratch.write("12-0.profile", &profile(12, 0, |_| {}));
    scratch.write("13-0.profile", &profile(13, 0, |_| {}));
    let killed = Some(Status { kind: StatusKind::Signaled, code: 9 });
    let end = ImageEnd { status: killed, ..ended("13-0", 3 * S) };
    metadata(12, vec![end]).write(&scratch).unwrap();
    let ends: Vec<End> = open(&scratch).iter().map(|process| process.lifetime.end).collect();
    assert_eq!(ends, [End::Signaled(6), End::Signaled(9)]);
}

#[test]
fn an_end_that_cannot_be_is_not_believed() {
    let scratch = Scratch::new("ends-absurd");
    scratch.write("12-0.profile", &profile(12, 0, |h| h.last_seen_ns = 2 * S));
    let with = |ends: Vec<ImageEnd>| {
        metadata(12, ends).write(&scratch).unwrap();
        lasted(&open(&scratch)[0])
    };
    assert_eq!(with(vec![]), (2 * S, false));
    assert_eq!(with(vec![ended("12-0", S)]), (2 * S, false), "it was seen after that");
    assert_eq!(with(vec![ended("12-0", 400 * S)]), (2 * S, false), "the recording was sealed then");
    assert_eq!(with(vec![ended("12-1", 3 * S)]), (2 * S, false), "of another image");
    let before_start = ImageEnd { monotonic_ns: S, ..ended("12-0", 0) };
    assert_eq!(with(vec![before_start]), (2 * S, false));
    assert_eq!(with(vec![ended("12-0", 2 * S - 1000)]), (2 * S, true), "clocks differ by a little");
    assert_eq!(with(vec![ended("12-0", 70 * S)]), (70 * S, true), "wall clocks are set");
}

#[test]
fn without_the_command_an_image_lasted_until_the_last_sign_of_it() {
    let scratch = Scratch::new("ends-unknown");
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    p.site(0, site(0, 1, 16));
    let mut sample = Sample::new_zeroed();
    (sample.time_ns, sample.live_bytes) = (30, 16);
    p.sample(sample);
    p.window("load", |w| (w.begin_time_ns, w.end_time_ns) = (40, 50));
    p.mark(format::Mark { time_ns: 60, kind: 1, ..format::Mark::new_zeroed() });
    (p.header.last_seen_ns, p.header.peak_time_ns) = (20, 10);
    let lasts = |p: &ProfileBuilder| {
        scratch.write("12-0.profile", &p.finish());
        lasted(&open(&scratch)[0])
    };
    assert_eq!(lasts(&p), (60, false));
    p.header.reset_time_ns = 70;
    assert_eq!(lasts(&p), (70, false));
    (p.header.end_kind, p.header.end_time_ns) = (format::End::Exited as u32, 99);
    assert_eq!(lasts(&p), (99, true));
}

/// Changes the header to that of a process that began at `ticks` in pid namespace 7.
fn began(ticks: u64) -> impl FnOnce(&mut FileHeader) {
    move |header| (header.process_start_ticks, header.pid_namespace) = (ticks, 7)
}

/// Returns pid, image, number of exec calls, process number and end of each image.
fn images(scratch: &Scratch) -> Vec<(u32, u32, u32, u32, End)> {
    let image = |p: &Process| {
        (
            p.identity.pid,
            p.identity.image,
            p.identity.execs,
            p.identity.process_number,
            p.lifetime.end,
        )
    };
    open(scratch).iter().map(image).collect()
}

fn exited(header: &mut FileHeader) {
    (header.end_kind, header.end_time_ns) = (format::End::Exited as u32, S / 2);
}

#[test]
fn a_reused_pid_is_another_process() {
    let scratch = Scratch::new("ends-reused");
    for (image, ticks) in [(0, 100), (1, 200), (2, 200), (3, 300)] {
        let bytes = profile(12, image, |h| {
            began(ticks)(h);
            if image != 1 {
                exited(h);
            }
        });
        scratch.write(&format!("12-{image}.profile"), &bytes);
    }
    metadata(12, vec![]).write(&scratch).unwrap();
    let expected = [
        (12, 0, 0, 0, End::Signaled(6)), // the first with this pid was started directly
        (12, 1, 0, 1, End::Exec),
        (12, 2, 1, 1, End::Exited(0)),
        (12, 3, 0, 2, End::Exited(0)),
    ];
    assert_eq!(images(&scratch), expected);
    let processes = open(&scratch);
    assert_eq!(lasted(&processes[1]), (S, true), "until its next image");
    let leaked = processes.iter().filter(|p| leaks::counts(p)).count();
    assert_eq!(leaked, 3);
}

#[test]
fn processes_of_one_pid_have_names_of_their_own() {
    let scratch = Scratch::new("ends-names");
    for (image, ticks) in [(0, 100), (1, 200)] {
        scratch.write(&format!("12-{image}.profile"), &profile(12, image, began(ticks)));
    }
    let processes = open(&scratch);
    let groups = origin::groups(&processes, Origin::Process);
    let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["pid 12", "pid 12 image 1"]);
    let alone = origin::groups(&processes[1..], Origin::Process);
    assert_eq!(&*alone[0].name, "pid 12");
}

#[test]
fn pids_of_two_namespaces_do_not_mix() {
    let scratch = Scratch::new("ends-namespaces");
    for (image, namespace) in [(0, 7), (1, 8), (2, 7)] {
        let bytes = profile(12, image, |h| {
            (h.process_start_ticks, h.pid_namespace) = (100, namespace);
        });
        scratch.write(&format!("12-{image}.profile"), &bytes);
    }
    let expected =
        [(12, 0, 0, 0, End::Exec), (12, 1, 0, 1, End::Unknown), (12, 2, 1, 0, End::Unknown)];
    assert_eq!(images(&scratch), expected);
    assert_eq!(lasted(&open(&scratch)[0]), (2 * S, true));
}

#[test]
fn of_older_recordings_images_of_one_pid_are_of_one_process() {
    let scratch = Scratch::new("ends-older");
    scratch.write("12-0.profile", &profile(12, 0, |_| {}));
    scratch.write("12-1.profile", &profile(12, 1, exited));
    scratch.write("12-2.profile", &profile(12, 2, |_| {}));
    let expected = [
        (12, 0, 0, 0, End::Exec),
        (12, 1, 1, 0, End::Exited(0)), // as it noted itself, regardless of later events
        (12, 2, 0, 1, End::Unknown),   // so this is another process
    ];
    assert_eq!(images(&scratch), expected);
}

#[test]
fn a_profile_that_cannot_be_read_may_be_the_next_image() {
    let scratch = Scratch::new("ends-damaged");
    scratch.write("12-0.profile", &profile(12, 0, |_| {}));
    scratch.write("12-1.profile", b"rubbish!");
    scratch.write("13-0.profile", &profile(13, 0, began(100)));
    scratch.write("13-1.profile", b"rubbish!");
    let ends: Vec<_> = images(&scratch).into_iter().map(|image| (image.0, image.4)).collect();
    assert_eq!(ends, [(12, End::Exec), (13, End::Exec)]);
}

#[test]
fn merged_recordings_keep_ends_and_processes() {
    let scratch = Scratch::new("ends-merged");
    let inputs = ["first", "second"].map(|name| scratch.join(name));
    for (input, ticks) in inputs.iter().zip([100, 200]) {
        std::fs::create_dir(input).unwrap();
        std::fs::write(input.join("12-0.profile"), profile(12, 0, began(ticks))).unwrap();
        metadata(12, vec![ended("12-0", 3 * S)]).write(input).unwrap();
    }
    let merged = scratch.join("merged");
    std::fs::create_dir(&merged).unwrap();
    merge(&inputs, &merged, &mut |_, _, _| {}).unwrap();
    let processes = Recording::open(&merged).unwrap().processes;
    let found: Vec<_> = processes.iter().map(|p| (lasted(p), p.identity.process_number)).collect();
    assert_eq!(found, [((3 * S, true), 0), ((3 * S, true), 1)]);
}
