//! How much of the program's limits and time the recorder uses, and what it reports about both.

use crate::expectations::evaluate;
use crate::harness::{Guest, clean, library, preloaded, recorded, report, run, scratch, set_clock};
use crate::recording::{list, number};
use std::process::Command;

/// Limits of data and of address space in kB, down to what the program itself needs.
const LIMITS: [(&str, [u32; 5]); 2] = [
    ("-d", [400_000, 200_000, 100_000, 20_000, 8_000]),
    ("-v", [400_000, 200_000, 100_000, 40_000, 20_000]),
];

#[test]
fn limits_of_data_and_address_space() {
    let place = scratch("footprint-limits");
    let program = Guest::read("counts.c").build("counts.c", &[]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    let recording = place.join("free.heaptide");
    let allocations = |recording: &std::path::Path| {
        let report = report(recording, &place);
        assert_eq!(evaluate(&report, "recording", "lost_events"), 0);
        evaluate(&report, "totals", "allocations")
    };
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, bare.status);
    let expected = allocations(&recording);
    for (which, limits) in LIMITS {
        for limit in limits {
            let recording = place.join(format!("limit{which}{limit}.heaptide"));
            let mut command = clean(Command::new("sh"));
            let words = format!("ulimit {which} {limit}; exec \"$0\"");
            command.args(["-c", &words]).arg(&program);
            // The shell itself has no limit yet, and is replaced by the program.
            command.env("LD_PRELOAD", library()).env("HEAPTIDE_OUTPUT", &recording);
            let outcome = run(&mut command, &place);
            assert_eq!(bare, outcome, "ulimit {which} {limit}");
            let found = allocations(&recording);
            assert!(found >= expected, "ulimit {which} {limit}: {found} of {expected}");
        }
    }
}

/// If the threads of a program nearly use up a limit, most of it is left to the program. What the
/// recorder has no room for is counted.
#[test]
fn a_limit_of_data_is_the_program_s() {
    let place = scratch("footprint-budget");
    let program = Guest::read("many_threads.c").build("many_threads.c", &["-pthread"]);
    let recording = place.join("a.heaptide");
    let limited = |mut command: Command| {
        command.args(["bash", "-c", "ulimit -S -d 200000; exec \"$0\""]).arg(&program);
        run(&mut command, &place)
    };
    let bare = limited(clean(Command::new("env")));
    assert_eq!(bare.stdout, "2000 threads\n");
    assert_eq!(bare, limited(recorded(&recording, &[])));
    let report = report(&recording, &place);
    let process = list(&report, "processes").last().expect("the program");
    let lost = evaluate(&report, "recording", "lost_events");
    let found = number(&process["totals"], "allocations");
    assert!(found >= 20_000 || lost > 0, "{found} allocations, {lost} lost");
}

#[test]
fn virtual_size_is_the_program_s() {
    let place = scratch("footprint-virtual");
    let program = Guest::read("counts.c").build("counts.c", &[]);
    let recording = place.join("a.heaptide");
    run(recorded(&recording, &[]).arg(&program), &place);
    let report = report(&recording, &place);
    let timeline = list(&list(&report, "processes")[0], "timeline");
    let largest = timeline.iter().map(|s| number(s, "virtual_bytes")).max().expect("a sample");
    let resident = timeline.iter().map(|s| number(s, "resident_bytes")).max().expect("a sample");
    assert!(largest > 0 && largest < 64 << 20, "{largest} bytes");
    assert!(largest + (16 << 20) >= resident, "{largest} virtual, {resident} resident");
}

/// Twenty allocations, each followed by 20 ms, none of them due to be sampled.
#[test]
fn times_of_a_program_that_allocates_seldom() {
    let place = scratch("footprint-times");
    let program = Guest::read("seldom.c").build("seldom.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = preloaded(&program, &recording);
    set_clock(&mut command, &place);
    assert_eq!(run(&mut command, &place).status, 134);
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    let seconds = |value: &serde_json::Value| value.as_f64().expect("seconds");
    let (duration, peak) =
        (seconds(&process["duration_s"]), seconds(&process["totals"]["peak_time_s"]));
    assert_eq!((duration, peak), (0.38, 0.38), "the last event, which is the peak");
}

#[test]
fn snapshots_at_an_interval_without_the_command() {
    let place = scratch("footprint-snapshots");
    let program = Guest::read("seldom.c").build("seldom.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = preloaded(&program, &recording);
    set_clock(&mut command, &place);
    run(command.env("HEAPTIDE_SNAPSHOT_EVERY", "0.1"), &place);
    let entries = std::fs::read_dir(&recording).expect("the recording").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let snapshots = names.filter(|name| name.ends_with(".snapshot")).count();
    assert_eq!(snapshots, 3, "after 0.1, 0.2 and 0.3 of 0.38 s");
}
