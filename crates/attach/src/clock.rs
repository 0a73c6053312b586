//! The monotonic clock of a process, which is another one in a time namespace.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Returns the nanoseconds that a process reads from its monotonic clock now.
pub fn now_ns(pid: Pid) -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    let now = i128::try_from(now.as_nanos()).unwrap_or_default();
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/time")).ok();
    let other = pid.to_string();
    let is_same = namespace("self") == namespace(&other);
    let ahead = if is_same { 0 } else { offset_of(&other) - offset_of("self") };
    u64::try_from(now + ahead).unwrap_or_default()
}

/// Returns by how many nanoseconds the clock of a process is ahead of the machine's; 0 if that is
/// unknown.
fn offset_of(process: &str) -> i128 {
    fs::read_to_string(format!("/proc/{process}/timens_offsets")).map_or(0, |text| parse(&text))
}

/// Reads `monotonic SECONDS NANOSECONDS`, a line of `/proc/PID/timens_offsets`.
fn parse(text: &str) -> i128 {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(str::parse::<i128>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(nanoseconds))) => seconds * 1_000_000_000 + nanoseconds,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_namespace_is_read() {
        let text = "monotonic   -10000 500\nboottime   7 0\n";
        assert_eq!(parse(text), -9_999_999_999_500);
        assert_eq!([parse(""), parse("monotonic x y"), parse("boottime 7 0")], [0; 3]);
        let own = now_ns(Pid::this());
        assert!(own <= now_ns(Pid::this()) && own > 0);
    }
}
