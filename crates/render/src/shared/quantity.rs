//! Numbers as text: bytes, counts, shares, durations, dates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heaptide_analysis::model::Measure;
use heaptide_analysis::quantity::three_digits;
pub use heaptide_analysis::quantity::{bytes, count, counted, duration};

/// Formats a count for a narrow column: exact below 100,000, then `123 k`, `4.56 M`.
pub fn short_count(n: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if n < 100_000 {
        return count(n);
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// Formats a value in the unit of its metric: bytes, or a count for a narrow column.
///
/// ```
/// use heaptide_analysis::model::Measure;
/// use heaptide_render::shared::quantity::amount;
/// assert_eq!(amount(Measure::LiveBytes, 1536), "1.50 KiB");
/// assert_eq!(amount(Measure::LiveBlocks, 1536), "1,536");
/// ```
pub fn amount(measure: Measure, value: u64) -> String {
    if measure.is_bytes() { bytes(value) } else { short_count(value) }
}

/// Formats values of a metric in the unit that suits the largest one. Returns them and the unit,
/// which is empty for numbers in full.
///
/// ```
/// use heaptide_analysis::model::Measure;
/// use heaptide_render::shared::quantity::amounts;
/// let (values, unit) = amounts(Measure::LiveBytes, &[20 << 20, 3 << 19, 1]);
/// assert_eq!((values.join(" "), unit), ("20.0 1.50 <0.01".to_owned(), "MiB"));
/// assert_eq!(amounts(Measure::LiveBlocks, &[1536, 7]).0, ["1,536", "7"]);
/// ```
pub fn amounts(measure: Measure, values: &[u64]) -> (Vec<String>, &'static str) {
    const BYTES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    const COUNTS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let largest = values.iter().copied().max().unwrap_or(0);
    let (units, step, in_full) =
        if measure.is_bytes() { (BYTES, 1024.0, 1024) } else { (COUNTS, 1000.0, 100_000) };
    let (mut unit, mut scale) = (0, 1.0);
    while largest >= in_full && largest as f64 / scale >= 999.5 && unit + 1 < units.len() {
        unit += 1;
        scale *= step;
    }
    let value = |&value: &u64| match value as f64 / scale {
        _ if unit == 0 || value == 0 => count(value),
        scaled if scaled < 0.005 => "<0.01".to_owned(),
        scaled => three_digits(scaled),
    };
    (values.iter().map(value).collect(), units[unit])
}

/// Formats a share of a whole: `12.3%`; `<0.1%` for small shares, `-` if the whole is 0.
///
/// ```
/// use heaptide_render::shared::quantity::percent;
/// assert_eq!(percent(1, 8), "12.5%");
/// assert_eq!(percent(0, 0), "-");
/// ```
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match part {
        0 => "0%".to_owned(),
        _ if part == whole => "100%".to_owned(),
        _ if share < 0.05 => "<0.1%".to_owned(),
        _ if share >= 99.95 && part < whole => ">99.9%".to_owned(),
        _ => format!("{share:.1}%"),
    }
}

/// Converts to seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Formats a time, given in nanoseconds since 1970-01-01 UTC, as RFC 3339 with microseconds.
///
/// ```
/// use heaptide_render::shared::quantity::rfc3339;
/// assert_eq!(rfc3339(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123456Z");
/// ```
pub fn rfc3339(nanoseconds: u64) -> String {
    humantime::format_rfc3339_micros(time(nanoseconds)).to_string()
}

/// Formats such a time as `2023-11-14 22:13:20 UTC`.
pub fn date(nanoseconds: u64) -> String {
    let text = humantime::format_rfc3339_seconds(time(nanoseconds)).to_string();
    format!("{} UTC", text.trim_end_matches('Z').replace('T', " "))
}

fn time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// Formats a range of sizes: `16 to 31 B`, `1 to 2 KiB`. For large classes, the actual upper end is
/// one byte below the written one.
pub(crate) fn size_range(min: u64, max: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if max < 1024 {
        return if min == max { format!("{min} B") } else { format!("{min} to {max} B") };
    }
    let unit = (min.max(1).ilog2() / 10) as usize;
    let scale = 1u64 << (10 * unit);
    let upper = max / scale + u64::from(max % scale == scale - 1);
    format!("{} to {upper} {}", min / scale, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_in_one_unit() {
        let cases = [
            ((0, 0), "0 B"),
            ((1, 1), "1 B"),
            ((16, 31), "16 to 31 B"),
            ((512, 1023), "512 to 1023 B"),
            ((1024, 2047), "1 to 2 KiB"),
            ((512 << 10, (1 << 20) - 1), "512 to 1024 KiB"),
            ((1 << 63, u64::MAX), "8 to 16 EiB"),
        ];
        for ((min, max), text) in cases {
            assert_eq!(size_range(min, max), text);
        }
    }

    #[test]
    fn bytes_have_three_digits_and_never_four() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10_235, "10.0 KiB"),
            (1_022_976, "999 KiB"),
            (1_023_999, "0.98 MiB"),
            (1_048_576, "1.00 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn counts_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_000_000, "1,000,000")];
        for (n, text) in cases {
            assert_eq!(count(n), text);
        }
        assert_eq!(short_count(99_999), "99,999");
        assert_eq!(short_count(100_000), "100 k");
        assert_eq!(short_count(2_100_000), "2.10 M");
        assert_eq!(short_count(999_600), "1.00 M");
    }

    #[test]
    fn shares_say_a_little_and_almost_all() {
        let cases = [
            (0, 5, "0%"),
            (5, 5, "100%"),
            (1, 3, "33.3%"),
            (1, 1_000_000, "<0.1%"),
            (999_999, 1_000_000, ">99.9%"),
            (3, 2, "150.0%"),
            (u64::MAX, u64::MAX, "100%"),
        ];
        for (part, whole, text) in cases {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn durations_change_units_without_a_gap() {
        let cases = [
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (59_949_999_999, "59.9 s"),
            (59_950_000_000, "1 min 00 s"),
            (7_620_000_000_000, "2 h 07 min"),
        ];
        for (n, text) in cases {
            assert_eq!(duration(n), text);
        }
    }

    #[test]
    fn dates_are_utc() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_700_000_000_999_999_999), "2023-11-14 22:13:20 UTC");
        assert_eq!(rfc3339(u64::MAX), "2554-07-21T23:34:33.709551Z");
    }
}
