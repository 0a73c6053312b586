//! How many blocks a sampled block represents: the reciprocal of the probability of sampling a
//! block of its size, 1 ÷ (1 − exp(−bytes ÷ mean)).
//!
//! The weight depends on the size alone, so that a free subtracts exactly what the allocation
//! added. It is computed with integers: the program may have enabled traps of the floating-point
//! unit, and may read its flags.

use heaptide_format::SAMPLE_UNIT;

/// Fraction bits of intermediate numbers, and of [`SAMPLE_UNIT`].
const BITS: u32 = 32;
const UNIT_BITS: u32 = SAMPLE_UNIT.trailing_zeros();
const ONE: u64 = 1 << BITS;
/// 1 ÷ e, times [`ONE`].
const PER_E: u64 = 1_580_030_169;
/// From this many means on, the weight is 1 within the precision of [`ONE`].
const CERTAIN_MEANS: u64 = 23;

/// What a sampled block represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Blocks, in units of 1 ÷ [`SAMPLE_UNIT`].
    pub blocks: u64,
    /// Usable bytes.
    pub bytes: u64,
    /// Usable bytes of the sampled block itself.
    usable: u64,
}

impl Weight {
    /// Returns the weight of a block of `usable` bytes; `mean` is the average of bytes allocated
    /// per sampled block, at most [`heaptide_format::SAMPLE_MEAN_MAX_BYTES`].
    pub fn of(usable: u64, mean: u64) -> Weight {
        let (size, mean) = (usable.max(1), mean.max(1));
        if size >= mean { Weight::of_large(size, mean) } else { Weight::of_small(size, mean) }
    }

    /// Returns the requested bytes of the represented blocks, if the sampled one was requested with
    /// this many.
    pub fn requested(&self, requested: u64) -> u64 {
        let scaled = |bytes: u64| product(bytes, self.blocks, UNIT_BITS);
        if requested <= self.usable {
            self.bytes.saturating_sub(scaled(self.usable - requested))
        } else {
            self.bytes.saturating_add(scaled(requested - self.usable))
        }
    }

    /// The weight is 1 + r with r = exp(−x) ÷ (1 − exp(−x)), where x = size ÷ mean.
    fn of_large(size: u64, mean: u64) -> Weight {
        let rest = if size / mean < CERTAIN_MEANS {
            let missed = exp_minus(size / mean, ratio(size % mean, mean));
            (missed << BITS) / (ONE - missed)
        } else {
            0
        };
        let blocks = SAMPLE_UNIT + rounded(rest, BITS - UNIT_BITS);
        Weight { blocks, bytes: size + product(size, rest, BITS), usable: size }
    }

    /// The weight is 1 ÷ x + 1 ÷ 2 + t with t = x ÷ 12 − x³ ÷ 720 + x⁵ ÷ 30240 − …
    fn of_small(size: u64, mean: u64) -> Weight {
        let x = ratio(size, mean);
        let square = product(x, x, BITS);
        let bracket = ONE / 30240 - square / 1_209_600;
        let bracket = ONE / 720 - product(square, bracket, BITS);
        let t = product(x, ONE / 12 - product(square, bracket, BITS), BITS);
        let whole = ((mean << UNIT_BITS) + size / 2) / size;
        let blocks = whole + SAMPLE_UNIT / 2 + rounded(t, BITS - UNIT_BITS);
        Weight { blocks, bytes: mean + size / 2 + product(size, t, BITS), usable: size }
    }
}

/// Returns a ÷ b times [`ONE`], for a < b ≤ 2⁴⁰.
fn ratio(a: u64, b: u64) -> u64 {
    const FIRST: u32 = 23; // a shift that a has room for
    ((a << FIRST) / b) << (BITS - FIRST)
}

/// Returns exp(−(whole + part ÷ [`ONE`])) times [`ONE`].
fn exp_minus(whole: u64, part: u64) -> u64 {
    /// Terms of the series, of which the last is below 2⁻³².
    const TERMS: u64 = 12;
    let series = (1..=TERMS).rev().fold(ONE, |sum, n| ONE - product(part, sum, BITS) / n);
    (0..whole).fold(series, |power, _| product(power, PER_E, BITS))
}

/// Returns a × b ÷ 2ᵇⁱᵗˢ, rounded.
fn product(a: u64, b: u64, bits: u32) -> u64 {
    ((u128::from(a) * u128::from(b) + (1 << (bits - 1))) >> bits) as u64
}

/// Returns n ÷ 2ᵇⁱᵗˢ, rounded.
fn rounded(n: u64, bits: u32) -> u64 {
    (n + (1 << (bits - 1))) >> bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_reciprocals_of_probabilities() {
        for mean in [1, 100, 4096, 64 << 10, 512 << 10, 3 << 30, 1 << 40] {
            for size in [1, 8, 24, 100, 1000, 4097, 65_552, 524_288, 1 << 22, 1 << 33, 1 << 41] {
                let weight = Weight::of(size, mean);
                let exact = -1.0 / (-(size as f64) / mean as f64).exp_m1();
                let blocks = weight.blocks as f64 / SAMPLE_UNIT as f64;
                // The unit, and the precision of size ÷ mean.
                let error = 1.0 / SAMPLE_UNIT as f64 + exact * 1e-9;
                assert!((blocks - exact).abs() < error, "{size} of {mean}: {blocks}, {exact}");
                let bytes = exact * size as f64;
                let near = (weight.bytes as f64 - bytes).abs() < 2.0 + bytes * 2e-7;
                assert!(near, "{size} of {mean}: {} {bytes}", weight.bytes);
            }
        }
    }

    #[test]
    fn blocks_that_are_always_sampled_represent_themselves() {
        for size in [24, 1000, 1 << 45] {
            let weight = Weight::of(size, 1);
            assert_eq!((weight.blocks, weight.bytes), (SAMPLE_UNIT, size));
            assert_eq!(
                [weight.requested(size - 3), weight.requested(size + 9)],
                [size - 3, size + 9]
            );
        }
    }

    #[test]
    fn what_is_requested_keeps_its_share() {
        let weight = Weight::of(1000, 1 << 20);
        let share = weight.requested(900) as f64 / weight.bytes as f64;
        assert!((share - 0.9).abs() < 1e-5, "{share}");
        assert!(weight.requested(0) <= weight.bytes / 1000);
    }
}
