//! Axes in readable units. A round number of MiB is not a round number of bytes.

/// A unit for the values of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Unit {
    /// Its size in the smallest unit.
    pub(super) size: f64,
    name: &'static str,
}

impl Unit {
    /// Returns the unit for bytes.
    pub(super) fn of_bytes(most: f64) -> Unit {
        let names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let sizes = (0..).map(|power| 1024f64.powi(power));
        Unit::largest(most, sizes.zip(names))
    }

    /// Returns the unit for nanoseconds.
    pub(super) fn of_time(most: f64) -> Unit {
        const SECOND: f64 = 1e9;
        let units = [
            (1.0, "ns"),
            (1e3, "µs"),
            (1e6, "ms"),
            (SECOND, "s"),
            (60.0 * SECOND, "min"),
            (3600.0 * SECOND, "h"),
            (86400.0 * SECOND, "d"),
        ];
        // A unit is used from two of it on: 90 s, not 1.5 min.
        Unit::largest(most / 2.0, units.into_iter())
    }

    /// Returns the unit for counts.
    pub(super) fn of_count(most: f64) -> Unit {
        Unit::largest(most, [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")].into_iter())
    }

    fn largest(most: f64, units: impl Iterator<Item = (f64, &'static str)>) -> Unit {
        let fits = units.enumerate().filter(|&(index, (size, _))| index == 0 || size <= most);
        let (size, name) = fits.last().map_or((1.0, ""), |(_, unit)| unit);
        Unit { size, name }
    }

    /// Formats a number in this unit as a label of an axis.
    pub(super) fn label(self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        let digits = if value.fract().abs() < 1e-6 { 0 } else { 1 };
        let digits = if (value * 10.0).fract().abs() < 1e-6 { digits } else { 2 };
        format!("{value:.digits$} {}", self.name).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_units_that_fit() {
        let bytes = |most: f64| Unit::of_bytes(most).label(2.0);
        assert_eq!([0.0, 1023.0, 1024.0, 5e9].map(bytes), ["2 B", "2 B", "2 KiB", "2 GiB"]);
        let time = |most: f64| Unit::of_time(most).label(0.5);
        assert_eq!([0.0, 1e9, 90e9, 130e9].map(time), ["0.5 ns", "0.5 ms", "0.5 s", "0.5 min"]);
        let count = |most: f64| Unit::of_count(most).label(0.25);
        assert_eq!([0.0, 1e4, 3e6].map(count), ["0.25", "0.25 k", "0.25 M"]);
    }
}
