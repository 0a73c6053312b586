//! What differs between two runs of a page, masked on both sides of a comparison.
//!
//! ```text
//! times                  a number before a unit of time; a day, and a time of day
//! processes              the number after `pid`, `process`, `detach`; file names that begin with one
//! addresses              0x…
//! resident memory        all numbers of a line with the word `resident` or `resident,`
//! widths of columns      any number of spaces is one
//! ```

use super::page::Compared;

/// Units of durations.
const TIMES: [&str; 7] = ["ns", "us", "µs", "ms", "s", "min", "h"];
/// Lines with one of these words have numbers that the kernel counts, or that depend on when it
/// was asked.
const OF_THE_KERNEL: [&str; 3] = ["resident", "virtual", "recorder"];
/// Files of a recording that begin with a process id.
const FILES: [&str; 4] = [".profile", ".snapshot", ".trace", ".baseline"];

/// The line with masks.
pub fn masked(line: &str, compared: Compared) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let of_the_kernel = words.iter().any(|word| OF_THE_KERNEL.contains(&letters(word)));
    let masks_all = of_the_kernel || compared == Compared::Shape;
    let mask = |(at, word): (usize, &&str)| {
        let next = words.get(at + 1).map_or("", |word| letters(word));
        let before = at.checked_sub(1).map_or("", |at| letters(words[at]));
        let is_masked = masks_all
            || is_number(word) && TIMES.contains(&next)
            || matches!(before, "pid" | "process" | "detach")
            || is_day(word)
            || FILES.iter().any(|file| word.contains(file))
            || word.contains("0x");
        if is_masked { without_digits(word) } else { (*word).to_owned() }
    };
    words.iter().enumerate().map(mask).collect::<Vec<_>>().join(" ")
}

/// A word without punctuation around it.
fn letters(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.')
}

/// A day or a time of day: digits and their separators.
fn is_day(word: &str) -> bool {
    let separators = |mark: char| word.matches(mark).count() == 2;
    word.starts_with(|c: char| c.is_ascii_digit())
        && (separators('-') || separators(':'))
        && word.chars().all(|c| c.is_ascii_digit() || "-:,.TZ".contains(c))
}

/// Each run of digits, with what separates them, as one mark.
fn without_digits(word: &str) -> String {
    let mut masked = String::new();
    let mut chars = word.chars().peekable();
    let is_hex = word.contains("0x");
    while let Some(c) = chars.next() {
        if !c.is_ascii_digit() {
            masked.push(c);
            continue;
        }
        masked.push('#');
        let of_number = |c: &char| {
            c.is_ascii_digit() || matches!(c, ',' | '.') || is_hex && "xabcdef".contains(*c)
        };
        while chars.next_if(of_number).is_some() {}
    }
    masked
}

#[test]
fn what_differs_between_runs_is_masked() {
    let same = |a: &str, b: &str| {
        assert_eq!(masked(a, Compared::Exactly), masked(b, Compared::Exactly), "{a}");
    };
    same("app (pid 4711), ran  1.2 s", "app (pid 12), ran 1,030 s");
    same("started 2026-11-25 03:02:25 UTC", "started 2027-01-02 23:59:59 UTC");
    same("snapshot 1: a.heaptide/4711-0.1.snapshot", "snapshot 1: a.heaptide/12-0.1.snapshot");
    same("at 0x7f12ab", "at 0x55de00");
    same("resident  4.01 MiB  after 73 ms: heap 32.0 KiB", "resident 3.99 MiB after 7 ms: heap 4 KiB");
    let differ = |a: &str, b: &str| {
        assert_ne!(masked(a, Compared::Exactly), masked(b, Compared::Exactly), "{a}");
        assert_eq!(masked(a, Compared::Shape), masked(b, Compared::Shape), "{a}");
    };
    differ("100 blocks of 4.00 KiB", "101 blocks of 4.00 KiB");
    differ("main  service.cpp:5", "main  service.cpp:6");
}
