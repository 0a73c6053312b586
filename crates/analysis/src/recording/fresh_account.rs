//! Takes a current account of a running process from its `/proc/PID/smaps`. The purposes of
//! mappings are those of its last stored account.

use std::fmt;
use std::fs;
use std::io;

use heaptide_format as format;

use super::running::{Running, start_ticks};
use crate::model::{Account, AccountCause, AccountRange, Process};

/// Maximum size in bytes of a guard mapping, which has no access rights, below a stack.
const GUARD_MAX: u64 = 256 << 10;
/// Prefix of file names of the recorder's library.
const LIBRARY: &str = "libheaptide";

/// Why a current account could not be taken.
#[derive(Debug)]
pub enum Error {
    /// The process has ended, or its pid belongs to another process.
    Gone,
    /// A file in `/proc` cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Gone => f.write_str("the process has ended"),
            Error::Unreadable(source) => write!(f, "/proc/PID/smaps: {source}"),
        }
    }
}

impl std::error::Error for Error {}

/// Takes an account of a process whose tables have just been read. Before and after reading, the
/// start time of the process must be the same and the profile mapped, so that the pid has not been
/// reused.
///
/// Errors: the process has ended, or may not be inspected.
pub fn take(process: &Process, running: &Running) -> Result<Account, Error> {
    let started = start_ticks(running.pid);
    if started.is_none() || !running.is_there() {
        return Err(Error::Gone);
    }
    let read = |name: &str| fs::read(format!("/proc/{}/{name}", running.pid));
    let smaps = read("smaps").map_err(Error::Unreadable)?;
    let status = read("status").map_err(Error::Unreadable)?;
    if start_ticks(running.pid) != started || !running.is_there() {
        return Err(Error::Gone);
    }
    let stored = process.time.accounts.iter().rfind(|account| account.missing.is_none());
    let mut account = counted(process, stored);
    let status = String::from_utf8_lossy(&status);
    account.page_table_bytes = kib_of(&status, "VmPTE:") << 10;
    account.most_resident_bytes = kib_of(&status, "VmHWM:") << 10;
    let known = stored.map_or(&[][..], |stored| &stored.ranges);
    let mut before = None;
    for line in lines(&String::from_utf8_lossy(&smaps)) {
        add(&mut account, &line, known, before);
        before = Some((line.range.end(), line.range.length, line.range.flags));
    }
    Ok(account)
}

/// Returns an account with the counters of the recorder.
fn counted(process: &Process, stored: Option<&Account>) -> Account {
    Account {
        time_ns: process.lifetime.duration_ns,
        cause: AccountCause::Now,
        live_bytes: process.totals.live_bytes,
        peak_bytes: process.totals.peak_bytes,
        mapped_bytes: process.mapped.as_ref().map_or(0, |mapped| mapped.totals.live_bytes),
        requested_bytes: process.totals.requested_bytes,
        usable_bytes: process.totals.usable_bytes,
        allocator: stored.and_then(|stored| stored.allocator),
        ..Account::default()
    }
}

/// A mapping in smaps.
#[derive(Default)]
struct Line {
    range: AccountRange,
    /// Whether it is excluded from core dumps and huge pages, as is all memory of the recorder.
    set_apart: bool,
}

fn lines(smaps: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for text in smaps.lines() {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        let value = || rest.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        let Some(key) = first.strip_suffix(':') else {
            lines.extend(first_line(first, rest));
            continue;
        };
        let Some(line) = lines.last_mut() else { continue };
        match key {
            "Rss" => line.range.resident_bytes = value().unwrap_or(0) << 10,
            "Swap" => line.range.swap_bytes = value().unwrap_or(0) << 10,
            "VmFlags" => {
                let has = |flag| rest.split_whitespace().any(|word| word == flag);
                line.set_apart = has("dd") && has("nh");
            }
            _ => {}
        }
    }
    lines
}

/// Parses the first line of a mapping: its addresses, and the fields after them.
fn first_line(addresses: &str, rest: &str) -> Option<Line> {
    let (low, high) = addresses.split_once('-')?;
    let (start, end) = (hex(low)?, hex(high)?);
    let mut words = rest.splitn(5, ' ');
    let rights = words.next()?.as_bytes();
    let name = words.nth(3).unwrap_or_default();
    let bits = [
        (b'r', format::RANGE_READ),
        (b'w', format::RANGE_WRITE),
        (b'x', format::RANGE_EXECUTE),
        (b's', format::RANGE_SHARED),
    ];
    let has = |(right, bit): (u8, u32)| if rights.contains(&right) { bit } else { 0 };
    let flags = bits.into_iter().map(has).sum();
    let length = end.checked_sub(start)?;
    let range = AccountRange {
        start,
        length,
        flags,
        name: name.trim_start().into(),
        ..AccountRange::default()
    };
    Some(Line { range, set_apart: false })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn kib_of(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// Adds the numbers of a mapping, divided in proportion to the ranges of the stored account that
/// begin inside it. `before` is the end, the length and the flags of the previous mapping.
fn add(
    account: &mut Account,
    line: &Line,
    stored: &[AccountRange],
    before: Option<(u64, u64, u32)>,
) {
    let range = &line.range;
    account.resident_bytes += range.resident_bytes;
    account.swap_bytes += range.swap_bytes;
    let is_own = is_of_recorder(line);
    if range.resident_bytes == 0 {
        account.absent_bytes += if is_own { 0 } else { range.length };
        return;
    }
    let first = stored.partition_point(|known| known.start < range.start);
    let inside = stored[first..].iter().take_while(|known| known.start < range.end());
    // Memory of the recorder can have been replaced by other memory.
    let is_part = |known: &&AccountRange| {
        !is_own && known.name == range.name && !known.is(format::RANGE_RECORDER)
    };
    let parts: Vec<&AccountRange> = inside.filter(is_part).collect();
    let mut flags = range.flags | if is_own { format::RANGE_RECORDER } else { 0 };
    if before
        .is_some_and(|(end, length, flags)| flags == 0 && end == range.start && length <= GUARD_MAX)
    {
        flags |= format::RANGE_GUARDED;
    }
    if parts.is_empty() {
        account.ranges.push(AccountRange { flags, ..range.clone() });
        return;
    }
    let all: u128 = parts.iter().map(|part| u128::from(part.resident_bytes)).sum();
    let share = |bytes: u64, sum: u128| (u128::from(bytes) * sum / all.max(1)) as u64;
    let (mut sum, mut length_left) = (0, range.length);
    for (index, part) in parts.iter().enumerate() {
        let from = sum;
        sum += u128::from(part.resident_bytes);
        let is_last = index + 1 == parts.len();
        let length = if is_last { length_left } else { part.length.min(length_left) };
        length_left -= length;
        account.ranges.push(AccountRange {
            length,
            resident_bytes: share(range.resident_bytes, sum) - share(range.resident_bytes, from),
            swap_bytes: share(range.swap_bytes, sum) - share(range.swap_bytes, from),
            flags: part.flags,
            ..(*part).clone()
        });
    }
}

/// Returns whether a mapping belongs to the recorder: its memory, the mapped profile or its
/// library.
fn is_of_recorder(line: &Line) -> bool {
    let name = &*line.range.name;
    let is_private = !line.range.is(format::RANGE_SHARED);
    let file = name.rsplit('/').next().unwrap_or_default();
    name.is_empty() && line.set_apart && is_private
        || name.ends_with(format::PROFILE_SUFFIX)
        || file.starts_with(LIBRARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_smaps() {
        let text = "\
00400000-00500000 r-xp 00000000 fe:01 12                 /bin/a: b 7
Rss:                 100 kB
Swap:                  4 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000002000 rw-p 00000000 00:00 0
Rss:                   8 kB
VmFlags: rd wr mr nh dd
";
        let lines = lines(text);
        let told: Vec<_> = lines
            .iter()
            .map(|line| {
                let range = &line.range;
                let kib = [range.length, range.resident_bytes, range.swap_bytes].map(|n| n >> 10);
                (range.start, kib, range.flags, &*range.name, line.set_apart)
            })
            .collect();
        let code = format::RANGE_READ | format::RANGE_EXECUTE;
        let data = format::RANGE_READ | format::RANGE_WRITE;
        assert_eq!(
            told,
            [
                (0x40_0000, [1024, 100, 4], code, "/bin/a: b 7", false),
                (0x7f00_0000_0000, [8, 8, 0], data, "", true),
            ]
        );
        assert!(is_of_recorder(&lines[1]) && !is_of_recorder(&lines[0]));
    }

    /// Properties of the parts of a line in a stored account are applied to the current line.
    #[test]
    fn a_line_is_divided_as_it_was() {
        let stored = [(0x1000, 30), (0x9000, 10)].map(|(start, resident_bytes)| AccountRange {
            start,
            length: 0x8000,
            resident_bytes,
            ..AccountRange::default()
        });
        let range = AccountRange {
            start: 0x1000,
            length: 0x20000,
            resident_bytes: 101,
            ..AccountRange::default()
        };
        let mut account = Account::default();
        add(&mut account, &Line { range, set_apart: false }, &stored, None);
        let parts =
            |of: fn(&AccountRange) -> u64| account.ranges.iter().map(of).collect::<Vec<_>>();
        assert_eq!(parts(|range| range.resident_bytes), [75, 26]);
        assert_eq!(parts(|range| range.length), [0x8000, 0x18000]);
    }
}
