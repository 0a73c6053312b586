//! SIGKILL at any moment: the profile opens, is consistent, and misses at most the event in flight.

use crate::expectations::evaluate;
use crate::harness::{Guest, clean, heaptide, report, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Moments at which a program is killed.
const KILLS: u32 = 200;

/// The latest moment, from the start of the program; loading it takes the first part.
const LATEST: Duration = Duration::from_millis(60);

/// The program's words: allocations begun and done, frees begun and done.
fn counters(page: &Path) -> [i128; 4] {
    let bytes = fs::read(page).expect("the shared page");
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("a word"));
    [0, 1, 2, 3].map(|i| word(i).into())
}

/// The capture library, as `heaptide library` names it.
pub fn library() -> PathBuf {
    let output = heaptide().arg("library").output().expect("heaptide library");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end().into()
}

#[test]
fn killed_at_any_moment() {
    let program = Guest::read("looping.c").build("looping.c", &[]);
    let (library, place) = (library(), scratch("killed-at-any-moment"));
    let page = place.join("page");
    let mut random = u64::from(std::process::id()) | 1;
    let mut counted = 0;
    for round in 0..KILLS {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let moment = LATEST.mul_f64((random >> 40) as f64 / f64::from(1 << 24));
        fs::write(&page, [0; 4096]).expect("the shared page");
        let recording = place.join(format!("{round}.heaptide"));
        let mut command = clean(Command::new(&program));
        command.arg(&page).stdin(Stdio::null());
        command.env("LD_PRELOAD", &library).env("HEAPTIDE_OUTPUT", &recording);
        let mut child = command.spawn().expect("the looping program");
        let start = Instant::now();
        while start.elapsed() < moment {
            std::thread::yield_now();
        }
        child.kill().expect("kill the program");
        child.wait().expect("wait for the program");
        counted += assert_nothing_missing(&recording, &place, counters(&page), round);
        let _ = fs::remove_dir_all(&recording);
    }
    assert!(counted > KILLS / 2, "only {counted} kills came while the program allocated");
}

/// Holds a killed program's profile to the program's own counters; 1 if it had counted anything.
fn assert_nothing_missing(recording: &Path, place: &Path, known: [i128; 4], round: u32) -> u32 {
    let [begun, done, frees_begun, frees_done] = known;
    if begun == 0 {
        return 0; // killed while it was loading: there may be no profile yet
    }
    let report = report(recording, place);
    let found = |measure| evaluate(&report, "function:operation", measure);
    let (allocations, frees) = (found("allocations"), found("frees"));
    assert!(
        (done..=begun).contains(&allocations),
        "round {round}: {allocations} allocations recorded, {done} done of {begun} begun"
    );
    assert!(
        (frees_done..=frees_begun).contains(&frees),
        "round {round}: {frees} frees recorded, {frees_done} done of {frees_begun} begun"
    );
    1
}
