//! Formats sizes, counts and durations for people, each in a suitable unit.

/// Formats bytes with a binary unit and three significant digits: `512 B`, `1.50 KiB`, `23.4 MiB`.
///
/// ```
/// use heaptide_analysis::quantity::bytes;
/// assert_eq!(bytes(1536), "1.50 KiB");
/// ```
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    // 999.5 would print as "1000", so the next unit begins there.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// Formats a count with thousands separators: `1,234,567`.
///
/// ```
/// use heaptide_analysis::quantity::count;
/// assert_eq!(count(1_234_567), "1,234,567");
/// ```
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a count and its noun: `1 stack`, `1,234 stacks`.
///
/// ```
/// use heaptide_analysis::quantity::counted;
/// assert_eq!(counted(1, "stack"), "1 stack");
/// assert_eq!(counted(2000, "stack"), "2,000 stacks");
/// ```
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

/// Formats a duration in a suitable unit: `850 µs`, `12.3 ms`, `4.56 s`, `3 min 05 s`, `2 h 07
/// min`.
///
/// ```
/// use heaptide_analysis::quantity::duration;
/// assert_eq!(duration(1_500_000), "1.50 ms");
/// assert_eq!(duration(185_000_000_000), "3 min 05 s");
/// ```
pub fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0 => "0 s".to_owned(),
        1..=999 => format!("{nanoseconds} ns"),
        1_000..=999_499 => format!("{} µs", three_digits(value / 1e3)),
        999_500..=999_499_999 => format!("{} ms", three_digits(value / 1e6)),
        999_500_000..=59_949_999_999 => format!("{} s", three_digits(value / 1e9)),
        _ => {
            let seconds = (value / 1e9).round() as u64;
            match seconds {
                0..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
                _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
            }
        }
    }
}

/// Formats a value below 1000 with three significant digits; larger values without decimals.
pub fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
