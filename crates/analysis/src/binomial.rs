//! Confidence limits of a share, from a count.
//!
//! The interval is that of Clopper and Pearson (Biometrika 26, 1934). It contains all shares for
//! which the probability of a count at least as extreme as the observed one is 2.5 % or more on
//! either side. So it contains the true share in at least 95 % of all cases, even for small counts.
//! Counts need not be whole numbers: like those of Korn and Graubard (Survey Methodology 24, 1998),
//! they are effective ones, with the same variance.

/// The probability beyond each limit.
const TAIL: f64 = 0.025;
/// The 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;
/// If both counts are larger, the limits are those of the normal approximation, which differ by a
/// thousandth of the interval.
const MANY: f64 = 20_000.0;
/// Maximum steps of a search: enough for a bisection to reach the resolution of a number.
const STEPS: usize = 60;

/// Returns the 95 % limits of a share, given that `count` of `all` were found.
///
/// ```
/// use heaptide_analysis::binomial::limits;
/// let (low, high) = limits(3.0, 10.0);
/// assert!((low - 0.0667).abs() < 1e-4 && (high - 0.6525).abs() < 1e-4);
/// ```
pub fn limits(count: f64, all: f64) -> (f64, f64) {
    let count = count.clamp(0.0, all.max(0.0));
    let others = all - count;
    if count > MANY && others > MANY {
        return score(count, all);
    }
    let low = if count > 0.0 { beta_quantile(TAIL, count, others + 1.0) } else { 0.0 };
    let high = if others > 0.0 { beta_quantile(1.0 - TAIL, count + 1.0, others) } else { 1.0 };
    (low, high)
}

/// Returns Wilson's limits (1927), a normal approximation.
fn score(count: f64, all: f64) -> (f64, f64) {
    let square = NORMAL * NORMAL;
    let middle = (count + square / 2.0) / (all + square);
    let variance = count * (all - count) / all + square / 4.0;
    let half = NORMAL * variance.sqrt() / (all + square);
    (middle - half, middle + half)
}

/// Returns the value at which the distribution function of a beta distribution reaches `part`.
fn beta_quantile(part: f64, a: f64, b: f64) -> f64 {
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    let (mut low, mut high) = (0.0, 1.0);
    let mut at: f64 = a / (a + b);
    for _ in 0..STEPS {
        let off = beta_part(at, a, b, front) - part;
        if off < 0.0 {
            low = at
        } else {
            high = at
        }
        let density = (front + (a - 1.0) * at.ln() + (b - 1.0) * (-at).ln_1p()).exp();
        let newton = at - off / density;
        let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
        if (next - at).abs() <= 1e-14 * at {
            return next;
        }
        at = next;
    }
    at
}

/// Returns the distribution function of a beta distribution, the regularized incomplete beta
/// function. `front` is −ln B(a, b).
fn beta_part(at: f64, a: f64, b: f64, front: f64) -> f64 {
    if at <= 0.0 || at >= 1.0 {
        return if at <= 0.0 { 0.0 } else { 1.0 };
    }
    let scale = (front + a * at.ln() + b * (-at).ln_1p()).exp();
    if at < (a + 1.0) / (a + b + 2.0) {
        scale * fraction(at, a, b) / a
    } else {
        1.0 - scale * fraction(1.0 - at, b, a) / b
    }
}

/// Returns the continued fraction of that function (DLMF 8.17.22), by Lentz's method.
fn fraction(at: f64, a: f64, b: f64) -> f64 {
    const TERMS: usize = 10_000;
    const TINY: f64 = 1e-300;
    let not_zero = |n: f64| if n.abs() < TINY { TINY } else { n };
    let mut upper = 1.0;
    let mut lower = 1.0 / not_zero(1.0 - (a + b) * at / (a + 1.0));
    let mut result = lower;
    for term in 1..TERMS {
        let m = term as f64;
        let even = m * (b - m) * at / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * at / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for part in [even, odd] {
            lower = 1.0 / not_zero(1.0 + part * lower);
            upper = not_zero(1.0 + part / upper);
            change = upper * lower;
            result *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Returns the logarithm of the gamma function for n > 0, by Lanczos's approximation (g = 7, 9
/// terms).
fn ln_gamma(n: f64) -> f64 {
    const G: f64 = 7.0;
    const FIRST: f64 = 0.999_999_999_999_809_9;
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if n < 0.5 {
        return ln_gamma(n + 1.0) - n.ln();
    }
    let n = n - 1.0;
    let terms = TERMS.iter().zip(1..).map(|(term, place)| term / (n + f64::from(place)));
    let sum = FIRST + terms.sum::<f64>();
    let base = n + G + 0.5;
    0.5 * std::f64::consts::TAU.ln() + (n + 0.5) * base.ln() - base + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_limits(count: f64, all: f64, low: f64, high: f64) {
        let found = limits(count, all);
        let near = |a: f64, b: f64| (a - b).abs() <= 2e-9 * b.max(1e-3);
        assert!(near(found.0, low) && near(found.1, high), "{count} of {all}: {found:?}");
    }

    /// Expected values are from `beta.ppf` of scipy 1.17.
    #[test]
    fn limits_are_those_of_other_programs() {
        assert_limits(0.0, 10.0, 0.0, 0.308497107819);
        assert_limits(1.0, 1.0, 0.025, 1.0);
        assert_limits(3.0, 10.0, 0.0667395111777, 0.65245285006);
        assert_limits(10.0, 10.0, 0.691502892181, 1.0);
        assert_limits(1.0, 1000.0, 2.53174874913e-05, 0.00555892427983);
        assert_limits(500.0, 1000.0, 0.468549172972, 0.531450827028);
        assert_limits(7.25, 31.5, 0.0997836579322, 0.414046891215);
        assert_limits(0.4, 0.9, 5.97283071587e-05, 0.999582183924);
        assert_limits(12345.0, 40000.0, 0.304099731489, 0.313178063754);
        assert_limits(2.0, 1000000.0, 2.42209370316e-07, 7.22466879445e-06);
    }

    #[test]
    fn extreme_counts_have_limits() {
        assert_eq!(limits(0.0, 0.0), (0.0, 1.0));
        assert_eq!((limits(0.0, 50.0).0, limits(50.0, 50.0).1), (0.0, 1.0));
        assert_eq!(limits(9.0, 4.0), limits(4.0, 4.0), "no more than all");
        let (low, high) = limits(1e-6, 1e-6);
        assert!((0.0..1e-9).contains(&low) && high == 1.0);
        for all in [1e3, 1e5, 1e9] {
            let (low, high) = limits(3.0, all);
            assert!(low > 0.0 && low < 3.0 / all && high > 3.0 / all && high < 10.0 / all);
        }
    }

    #[test]
    fn the_approximation_for_many_joins_the_exact_limits() {
        let (exact, near) = (limits(19_999.0, 50_000.0), score(19_999.0, 50_000.0));
        let width = exact.1 - exact.0;
        assert!((exact.0 - near.0).abs() < width / 100.0);
        assert!((exact.1 - near.1).abs() < width / 100.0);
    }

    #[test]
    fn the_gamma_function_has_factorials() {
        let mut factorial: f64 = 1.0;
        for n in 1..20 {
            assert!((ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-12);
            factorial *= f64::from(n);
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-13);
        assert!((ln_gamma(0.25) - 1.288_022_524_698_077_5).abs() < 1e-13);
    }
}
