//! Adjusts a column of estimates to a known total.
//!
//! The difference is divided among the rows by their variance: of all linear estimates that add up,
//! these have the least variance (the regression estimator of survey sampling; Särndal, Swensson,
//! Wretman: Model Assisted Survey Sampling, 1992, chapter 6). Each row stays within its own bounds.

/// A total may exceed the estimates by this many standard errors of their sum and is still
/// attributed to their error.
const ERRORS_MAX: f64 = 2.0;
/// Maximum number of passes. Each pass sets at least one row aside that reached a bound; more
/// passes do not occur in practice.
const PASSES: usize = 64;

/// The estimate of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) value: f64,
    pub(crate) variance: f64,
    /// Lower bound of the result, unless the total is less than the sum of all lower bounds.
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// How an excess of the total over the estimates is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lacking {
    /// The rows receive it, as far as their bounds allow.
    IsError,
    /// The rows receive the part that can be their error. The rest has no row.
    MayBeUnseen,
}

/// Calibrates the rows to whole numbers. Their sum is at most the total; the rest has no row.
pub(crate) fn calibrate(cells: &[Cell], total: u64, lacking: Lacking) -> Vec<u64> {
    let mut values: Vec<f64> = cells.iter().map(|cell| cell.value).collect();
    let lacks = total as f64 - values.iter().sum::<f64>();
    let error = ERRORS_MAX * cells.iter().map(|cell| cell.variance).sum::<f64>().sqrt();
    let part = match lacking {
        Lacking::IsError => lacks,
        Lacking::MayBeUnseen => lacks.min(error),
    };
    divide(cells, &mut values, part);
    let mut whole = rounded(cells, &values);
    // The sum can be off by one, and by more if the total is less than the sum of lower bounds.
    let wanted = if part < lacks { total as f64 - (lacks - part) } else { total as f64 };
    fit(cells, &mut whole, total.min(wanted.round() as u64), total);
    whole
}

/// Divides a difference among the rows.
fn divide(cells: &[Cell], values: &mut [f64], difference: f64) {
    let mut is_free: Vec<bool> = cells.iter().map(|cell| cell.variance > 0.0).collect();
    let mut left = difference;
    for _ in 0..PASSES {
        let free = || cells.iter().zip(&is_free).filter(|(_, free)| **free);
        let variance: f64 = free().map(|(cell, _)| cell.variance).sum();
        if variance <= 0.0 {
            return;
        }
        let step = left / variance;
        let mut is_within = true;
        for ((cell, value), free) in cells.iter().zip(values.iter_mut()).zip(&mut is_free) {
            let wanted = cell.value + step * cell.variance;
            let (least, most) = (cell.least as f64, cell.most as f64);
            if *free && (wanted < least || wanted > most) {
                *value = if wanted < least { least } else { most };
                left -= *value - cell.value;
                (*free, is_within) = (false, false);
            }
        }
        if is_within {
            for ((cell, value), _) in cells.iter().zip(values).zip(&is_free).filter(|row| *row.1) {
                *value = cell.value + step * cell.variance;
            }
            return;
        }
    }
}

/// Rounds values and carries each rounding error to the next row.
fn rounded(cells: &[Cell], values: &[f64]) -> Vec<u64> {
    let mut carry = 0.0;
    let round = |(cell, &value): (&Cell, &f64)| {
        if value <= 0.0 {
            return 0;
        }
        let wanted = value + carry;
        let whole = (wanted.round().max(0.0) as u64).max(cell.least).min(cell.most);
        carry = wanted - whole as f64;
        whole
    };
    cells.iter().zip(values).map(round).collect()
}

/// Changes the largest whole numbers so that the sum is `wanted`, and at most `total` in any case.
fn fit(cells: &[Cell], whole: &mut [u64], wanted: u64, total: u64) {
    let sum = |whole: &[u64]| whole.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
    let mut order: Vec<usize> = (0..whole.len()).filter(|&row| whole[row] > 0).collect();
    order.sort_unstable_by_key(|&row| std::cmp::Reverse(whole[row]));
    let mut less = sum(whole).saturating_sub(wanted.min(total));
    for floor in [Some(cells), None] {
        for &row in &order {
            let room = whole[row] - floor.map_or(0, |cells| cells[row].least.min(whole[row]));
            let part = room.min(less);
            (whole[row], less) = (whole[row] - part, less - part);
        }
        // A reduction to an estimate stops at the lower bounds.
        less = sum(whole).saturating_sub(total);
    }
    let mut more = wanted.min(total).saturating_sub(sum(whole));
    for &row in &order {
        let part = (cells[row].most.max(whole[row]) - whole[row]).min(more);
        (whole[row], more) = (whole[row] + part, more - part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: u64 = u64::MAX;

    fn cell(value: f64, variance: f64, least: u64, most: u64) -> Cell {
        Cell { value, variance, least, most }
    }

    fn errors(cells: &[Cell], total: u64) -> Vec<u64> {
        calibrate(cells, total, Lacking::IsError)
    }

    #[test]
    fn differences_are_divided_by_variance_and_what_is_certain_stays() {
        let cells =
            [cell(100.0, 0.0, 100, ANY), cell(50.0, 100.0, 1, ANY), cell(50.0, 300.0, 1, ANY)];
        assert_eq!(errors(&cells, 200), [100, 50, 50]);
        assert_eq!(errors(&cells, 220), [100, 55, 65]);
        assert_eq!(errors(&cells, 180), [100, 45, 35]);
    }

    #[test]
    fn rows_stay_within_their_bounds() {
        let cells =
            [cell(10.0, 100.0, 8, ANY), cell(10.0, 100.0, 1, 12), cell(10.0, 100.0, 1, ANY)];
        assert_eq!(errors(&cells, 18), [8, 5, 5]);
        assert_eq!(errors(&cells, 42), [15, 12, 15]);
        assert_eq!(errors(&cells, 10), [8, 1, 1], "no row has less than was found");
        assert_eq!(errors(&cells, 7), [5, 1, 1], "but the total is right");
        assert_eq!(errors(&[cell(10.0, 9.0, 1, 12)], 99), [12], "the rest has no row");
    }

    #[test]
    fn what_cannot_be_an_error_has_no_row() {
        let cells = [cell(100.0, 16.0, 1, ANY), cell(100.0, 9.0, 1, ANY)];
        let may_be = |total| calibrate(&cells, total, Lacking::MayBeUnseen);
        assert_eq!(may_be(205), [103, 102], "one standard error");
        assert_eq!(may_be(1000), [106, 104], "two of them");
        assert_eq!(may_be(100), [36, 64], "what is too much is an error in any case");
        assert_eq!(calibrate(&[cell(9.0, 0.0, 9, ANY)], 20, Lacking::MayBeUnseen), [9]);
        assert!(calibrate(&[], 20, Lacking::MayBeUnseen).is_empty());
    }

    #[test]
    fn whole_numbers_add_up() {
        let cells: Vec<Cell> = (1..1000u32)
            .map(|n| cell(f64::from(n) * 1.37, f64::from(n % 7), u64::from(n), ANY))
            .collect();
        for total in [600_000, 684_316, 700_001] {
            let whole = errors(&cells, total);
            assert_eq!(whole.iter().sum::<u64>(), total);
            assert!(whole.iter().zip(&cells).all(|(n, cell)| *n >= cell.least));
        }
        // A row with a value of 0 stays 0.
        let cells = [cell(0.4, 1.0, 0, ANY), cell(0.0, 0.0, 0, ANY), cell(0.4, 1.0, 0, ANY)];
        assert_eq!(errors(&cells, 1)[1], 0);
    }
}
