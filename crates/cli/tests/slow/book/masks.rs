//! Masks parts of lines that differ between two runs of a page, on both sides of a comparison.
//!
//! ```text
//! times                  a number with a unit of time; a day, and a time of day
//! processes              the number after `pid`, `tid`, `process`, `detach`; file names that begin
//!                        with one
//! addresses              0x…
//! resident memory        a line that begins with `resident`, because the account that it shows
//!                        depends on time; all numbers of a line with `resident`, `virtual` or
//!                        `recorder`
//! mappings               a line that begins with `mapped`: threads that wait for each other get
//!                        more arenas of malloc
//! parts of the run       all numbers of a line with `of the run`
//! widths of columns      any number of spaces equals one
//! ```

use super::page::Compared;

/// Units of durations.
const TIMES: [&str; 7] = ["ns", "us", "µs", "ms", "s", "min", "h"];
/// Lines with one of these words contain numbers from the kernel, or numbers that depend on time.
const OF_THE_KERNEL: [&str; 3] = ["resident", "virtual", "recorder"];
/// Rows that depend on time or load.
const OF_TIME: [&str; 2] = ["resident", "mapped"];
/// Suffixes of files in a recording whose names begin with a process id.
const FILES: [&str; 4] = [".profile", ".snapshot", ".trace", ".baseline"];

/// The maximum difference of numbers with [`Compared::About`], relative to the larger one.
const ABOUT: f64 = 0.05;

/// Returns whether two lines are considered equal.
pub fn is_same(expected: &str, found: &str, compared: Compared) -> bool {
    if compared == Compared::Varies {
        return true;
    }
    let (expected, found) = (masked(expected, compared), masked(found, compared));
    if compared != Compared::About {
        return expected == found;
    }
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (expected, found) = (words(&expected), words(&found));
    expected.len() == found.len()
        && expected.iter().zip(&found).all(|(a, b)| a == b || is_near(a, b))
}

/// Returns whether two words are nearly equal numbers followed by the same text, also at the
/// beginning of a parenthesis.
fn is_near(a: &str, b: &str) -> bool {
    if let Some((a, b)) = a.strip_prefix('(').zip(b.strip_prefix('(')) {
        return is_near(a, b);
    }
    let (a, b) = (number(a), number(b));
    a.zip(b).is_some_and(|((a, after_a), (b, after_b))| {
        after_a == after_b && (a - b).abs() <= ABOUT * a.max(b)
    })
}

/// Splits a word into the number at its beginning and the rest.
fn number(word: &str) -> Option<(f64, &str)> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.');
    let (digits, rest) = word.split_at(end.unwrap_or(word.len()));
    Some((digits.replace(',', "").parse().ok()?, rest))
}

/// Returns the line with masks.
fn masked(line: &str, compared: Compared) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if let Some(at) = words.iter().take(2).position(|word| OF_TIME.contains(word)) {
        words.truncate(at + 1);
    }
    if compared == Compared::About {
        remove_differences(&mut words);
    }
    let of_the_kernel = words.iter().any(|word| OF_THE_KERNEL.contains(&letters(word)));
    let masks_all = of_the_kernel || compared == Compared::Shape || line.contains("% of the run");
    let mask = |(at, word): (usize, &&str)| {
        let next = words.get(at + 1).map_or("", |word| letters(word));
        let before = at.checked_sub(1).map_or("", |at| letters(words[at]));
        let is_masked = masks_all
            || is_number(word) && TIMES.contains(&next)
            || next == "stacks" && compared == Compared::About
            || matches!(before, "pid" | "tid" | "process" | "detach")
            || is_day(word)
            || FILES.iter().any(|file| word.contains(file))
            || word.contains("0x")
            || is_build_id(word);
        let after_number = at.checked_sub(1).is_some_and(|at| is_number(words[at]));
        if after_number && TIMES.contains(&letters(word)) {
            return word.replace(letters(word), "TIME");
        }
        if is_masked { without_digits(word) } else { (*word).to_owned() }
    };
    words.iter().enumerate().map(mask).collect::<Vec<_>>().join(" ")
}

/// Removes numbers with a sign, and their units, because differences of nearly equal numbers vary
/// strongly.
fn remove_differences(words: &mut Vec<&str>) {
    let mut is_unit = false;
    words.retain(|word| {
        let is_difference = word.starts_with(['+', '-']);
        let is_removed =
            is_difference || is_unit && ["B", "KiB", "MiB", "GiB", "k", "M"].contains(word);
        is_unit = is_difference;
        !is_removed
    });
}

/// Returns a word without punctuation around it.
fn letters(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.')
}

/// Returns whether a word has at least as many hexadecimal digits as a short build id.
fn is_build_id(word: &str) -> bool {
    word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns whether a word is a day or a time of day: digits and separators.
fn is_day(word: &str) -> bool {
    let separators = |mark: char| word.matches(mark).count() == 2;
    word.starts_with(|c: char| c.is_ascii_digit())
        && (separators('-') || separators(':'))
        && word.chars().all(|c| c.is_ascii_digit() || "-:,.TZ".contains(c))
}

/// Replaces each run of digits and their separators by a mark.
fn without_digits(word: &str) -> String {
    let mut masked = String::new();
    let mut chars = word.chars().peekable();
    let is_hex = word.contains("0x") || is_build_id(word);
    while let Some(c) = chars.next() {
        if !c.is_ascii_digit() {
            masked.push(c);
            continue;
        }
        masked.push('#');
        let of_number = |c: &char| {
            c.is_ascii_digit() || matches!(c, ',' | '.') || is_hex && "xabcdefABCDEF".contains(*c)
        };
        while chars.next_if(of_number).is_some() {}
    }
    masked
}

#[test]
fn what_differs_between_runs_is_masked() {
    let same = |a: &str, b: &str| assert!(is_same(a, b, Compared::Exactly), "{a}");
    same("app (pid 4711), ran  1.2 s", "app (pid 12), ran 1,030 s");
    same("started 2026-11-25 03:02:25 UTC", "started 2027-01-02 23:59:59 UTC");
    same("snapshot 1: a.heaptide/4711-0.1.snapshot", "snapshot 1: a.heaptide/12-0.1.snapshot");
    same("at 0x7f12ab: 0x7FA0", "at 0x55de00: 0x1234");
    same("  resident  4.01 MiB  after 73 ms: heap 32.0 KiB", "resident 3.99 MiB at the end");
    same("1.2 s, 4.01 MiB resident", "3 ms, 3.99 MiB resident");
    let differ = |a: &str, b: &str| {
        assert!(!is_same(a, b, Compared::Exactly), "{a}");
        assert!(is_same(a, b, Compared::Shape), "{a}");
    };
    differ("100 blocks of 4.00 KiB", "101 blocks of 4.00 KiB");
    differ("main  service.cpp:5", "main  service.cpp:6");
}

#[test]
fn numbers_that_are_about_the_same() {
    let about = |a: &str, b: &str| is_same(a, b, Compared::About);
    assert!(about("91.0% of peak usage (630 KiB", "91.5% of peak usage (627 KiB"));
    assert!(!about("usage (630 KiB", "usage (430 KiB"));
    assert!(about("1,000 blocks  +3  -1.2 KiB", "1,040 blocks  +400  -9 KiB"));
    assert!(about("live 61.5 KiB -32 B -0.1%", "live 61.5 KiB"));
    assert!(!about("1,000 blocks", "1,100 blocks") && !about("1.00 KiB", "1.00 MiB"));
    assert!(!about("main.rs:24", "main.rs:25") && !about("1 2", "1"));
}
