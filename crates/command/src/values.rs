//! Parses values of options: bytes, times, signals, directories to write.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use heaptide_format::PROFILE_LIMIT_MIN;
use nix::sys::signal::Signal;

/// The shortest interval between snapshots, because copying takes time.
const SHORTEST: Duration = Duration::from_millis(10);
/// The first signal that programs may use freely; libc reserves the two before.
const REAL_TIME_FIRST: i32 = 34;
/// The last signal.
const REAL_TIME_LAST: i32 = 64;

/// The least that is kept of a trace: a part of it may have a quarter of this.
const KEPT_TRACE_MIN: u64 = 1 << 20;

/// The error for `-` where a directory is written.
pub const NO_DIRECTORY: &str =
    "the output is a directory, not standard output; use `./-` for a directory named -";

/// Parses a directory to write; `-` and URLs are errors.
pub fn directory() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match url_refusal(&path) {
        _ if path == Path::new("-") => Err(NO_DIRECTORY.to_owned()),
        Some(refusal) => Err(refusal),
        None => Ok(path),
    })
}

/// Returns why a URL is rejected where a path is expected; `None` for a path.
///
/// ```
/// use heaptide_command::values::url_refusal;
/// assert!(url_refusal("s3://bucket/heap".as_ref()).is_some_and(|text| text.contains("`s3://`")));
/// assert_eq!(url_refusal("./s3://heap".as_ref()), None);
/// ```
pub fn url_refusal(path: &Path) -> Option<String> {
    let (scheme, _) = path.to_str()?.split_once("://")?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_scheme && scheme.chars().all(is_letter)).then(|| {
        format!(
            "found a URL with `{scheme}://`, expected a local path; mount the storage, or write \
             ./ before the name of a local file"
        )
    })
}

/// Parses the address of a scheduler: `HOST:PORT`.
pub fn address(text: &str) -> Result<String, &'static str> {
    let parts = text.rsplit_once(':');
    // An IPv6 address contains colons, in brackets.
    let is_host = |host: &str| !host.is_empty() && (!host.contains(':') || host.starts_with('['));
    let is_port = |port: &str| port.parse().is_ok_and(|port: u16| port > 0);
    let is_address = parts.is_some_and(|(host, port)| is_host(host) && is_port(port));
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte));
    if is_address && is_plain {
        return Ok(text.to_owned());
    }
    Err("expected HOST:PORT, such as node1:50050 or [::1]:50050")
}

/// Parses a number of levels.
pub fn levels(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a number of levels, at least 1")
}

/// Parses a percentage.
pub fn percent(text: &str) -> Result<f64, &'static str> {
    let percent = text.parse().ok().filter(|found| (0.0..=100.0).contains(found));
    percent.ok_or("expected 0 to 100")
}

/// Parses the most bytes of traces.
pub fn bound(text: &str) -> Result<u64, String> {
    some_bytes(text, "omit --max-trace-size for no limit")
}

/// Parses the size below which requests have stacks.
pub fn stacks_below(text: &str) -> Result<u64, String> {
    some_bytes(text, "use --mode scopes to record no stacks")
}

/// Bytes that a trace whose oldest part is dropped may take.
pub fn kept_trace(text: &str) -> Result<u64, String> {
    let bytes = some_bytes(text, "use --mode stacks to keep no events")?;
    if bytes < KEPT_TRACE_MIN {
        return Err("expected at least 1M, a few of the parts that are dropped".to_owned());
    }
    Ok(bytes)
}

/// The most bytes of a profile.
pub fn profile_limit(text: &str) -> Result<u64, String> {
    let bytes = some_bytes(text, "omit --max-profile for no limit")?;
    if bytes < PROFILE_LIMIT_MIN {
        return Err("expected at least 1M, which threads and modules take".to_owned());
    }
    Ok(bytes)
}

/// Parses a positive number of bytes; `otherwise` is the alternative to 0.
pub fn some_bytes(text: &str, otherwise: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err(format!("expected at least 1 byte; {otherwise}")),
        some => Ok(some),
    }
}

/// Parses bytes: `4096`, `4K`, `1.5G` and `10MiB` in powers of 1024, `10MB` in powers of 1000, as
/// GNU commands do.
///
/// ```
/// use heaptide_command::values::bytes;
/// assert_eq!(bytes("10M"), bytes("10MiB"));
/// assert_eq!(bytes("10MB"), Ok(10_000_000));
/// ```
pub fn bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, such as 4096, 4K or 1M".to_owned();
    let (number, unit) = text.split_at(unit_in(text));
    let factor = factor(unit).ok_or_else(expected)?;
    let bytes = match whole(number) {
        Some(number) => number.checked_mul(factor),
        // Parts of bytes do not exist.
        None if factor == 1 => None,
        None => decimal(number).map(|number| (number * factor as f64).round() as u64),
    };
    // The top bit of a threshold is a flag.
    bytes.filter(|&bytes| bytes < 1 << 63).ok_or_else(expected)
}

/// Returns the bytes of a unit.
fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (power, rest) = match unit.as_bytes() {
        [] | [b'b'] => return Some(1),
        [b'k', rest @ ..] => (1, rest),
        [b'm', rest @ ..] => (2, rest),
        [b'g', rest @ ..] => (3, rest),
        [b't', rest @ ..] => (4, rest),
        _ => return None,
    };
    match rest {
        b"" | b"ib" => Some(1024_u64.pow(power)),
        b"b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Returns the index of the unit after a number.
fn unit_in(text: &str) -> usize {
    text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len())
}

/// Parses a time: `500ms`, `10s`, `1.5s`, `2m`, `1h`, `7d`; a number without a unit is in seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time of at least 10ms, such as 500ms, 10s or 2m".to_owned();
    let (number, unit) = text.split_at(unit_in(text));
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected()),
    };
    let seconds = decimal(number).ok_or_else(expected)? * scale;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| expected())?;
    if time < SHORTEST { Err(expected()) } else { Ok(time) }
}

/// Parses a signal, by name (`USR2`, `SIGUSR2`, `RTMIN+1`) or number; returns its number.
pub fn signal(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let number = match (whole(text), name.strip_prefix("RTMIN")) {
        (Some(number), _) => i32::try_from(number).ok(),
        (None, Some("")) => Some(REAL_TIME_FIRST),
        (None, Some(more)) => {
            let above = more.strip_prefix('+').and_then(whole);
            above.and_then(|above| i32::try_from(above).ok()?.checked_add(REAL_TIME_FIRST))
        }
        (None, None) => format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32),
    };
    let known =
        |&n: &i32| Signal::try_from(n).is_ok() || (REAL_TIME_FIRST..=REAL_TIME_LAST).contains(&n);
    let number =
        number.filter(known).ok_or("expected a signal name or number, such as USR2 or RTMIN+1")?;
    match Signal::try_from(number) {
        Ok(signal @ (Signal::SIGKILL | Signal::SIGSTOP)) => {
            Err(format!("{signal} cannot be caught; choose another signal"))
        }
        _ => Ok(number),
    }
}

/// Parses digits only: no sign, no spaces.
fn whole(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Parses a number without a sign or an exponent.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse::<f64>().ok().filter(|value| is_plain && value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_have_a_unit() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("4k", 4096),
            ("4kB", 4000),
            ("3M", 3 << 20),
            ("10MiB", 10 << 20),
            ("10mib", 10 << 20),
            ("10MB", 10_000_000),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("2TiB", 2 << 40),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "K",
            "-1",
            "+1",
            "1.5",
            "1.5B",
            "1..5K",
            "1e3K",
            "infK",
            "1KK",
            "1Ki",
            "1KBB",
            "4 K",
            "9223372036854775808",
            "9999999999G",
            "99999999999999.5G",
        ] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn size_limits_must_be_positive() {
        assert_eq!(bound("2G"), Ok(2 << 30));
        let says = "expected at least 1 byte; omit --max-trace-size for no limit";
        assert_eq!(bound("0"), Err(says.to_owned()));
        assert_eq!(bound("0K"), Err(says.to_owned()));
        assert_eq!(bound("x"), bytes("x"));
        assert!(stacks_below("0").is_err() && stacks_below("1") == Ok(1));
        assert_eq!(profile_limit("1M"), Ok(1 << 20));
        assert!(profile_limit("0").is_err() && profile_limit("1023K").is_err());
    }

    #[test]
    fn times_may_have_a_unit() {
        assert_eq!(time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for bad in [
            "",
            "0",
            "s",
            "-1s",
            "1 s",
            "1S",
            "1e3s",
            "infs",
            "9ms",
            "0s",
            "1w",
            "99999999999999999999h",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(signal("USR2"), Ok(12));
        assert_eq!(signal("sigusr1"), Ok(10));
        assert_eq!(signal("10"), Ok(10));
        assert_eq!(signal("RTMIN+2"), Ok(36));
        for bad in ["", "0", "KILL", "19", "33", "65", "-1", "RTMIN+31", "RTMIN-1", "NOPE"] {
            assert!(signal(bad).is_err(), "{bad}");
        }
    }
}
