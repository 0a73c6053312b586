//! The random points of a lane: gaps between them are exponential.

use core::sync::atomic::AtomicU8;

/// The part of a lane that selects blocks. All zeros: none is selected.
#[repr(C)]
pub struct Sampler {
    /// The process's [`SampledBlocks::filter`](crate::store::sampled_blocks::SampledBlocks).
    pub filter: *const AtomicU8,
    /// Average number of bytes between two points; 0 if nothing is sampled.
    pub mean: u64,
    /// The state of the random number generator.
    pub random: u64,
}

impl Sampler {
    /// Returns the bytes to the next point, rounded up: more than `n` with the probability exp(−n ÷
    /// mean).
    pub fn gap(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        gap(mix(self.random), self.mean)
    }
}

/// Returns the result of splitmix64's finalizer (Steele, Lea, Flood 2014): each bit depends on all
/// bits of `n`. Applied to a counter, it generates random numbers.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Returns the smallest integer above −ln(u) × mean, where u is the uniform number `random` ÷ 2⁶⁴.
fn gap(random: u64, mean: u64) -> u64 {
    /// ln 2, times 2³².
    const LN_2: u128 = 2_977_044_472;
    let nats = (minus_log2(random | 1) as u128 * LN_2) >> 32;
    ((nats * mean as u128) >> 32) as u64 + 1
}

/// Returns −log₂(n ÷ 2⁶⁴) times 2³², for n > 0. The bits of the logarithm are found one at a time
/// by squaring.
fn minus_log2(n: u64) -> u64 {
    const BITS: u32 = 32;
    let zeros = n.leading_zeros();
    let mut mantissa = n << zeros; // from 1 to 2, times 2⁶³
    let mut part = 0;
    for _ in 0..BITS {
        let square = mantissa as u128 * mantissa as u128; // times 2¹²⁶
        let carry = (square >> 127) as u64;
        mantissa = (square >> (63 + carry)) as u64;
        part = part << 1 | carry;
    }
    (u64::from(zeros + 1) << BITS) - part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_exact_to_32_bits() {
        const ONE: u64 = 1 << 32;
        assert_eq!([1, 1 << 32, 1 << 63].map(minus_log2), [64 * ONE, 32 * ONE, ONE]);
        for n in [3, 12_345_678_901_234_567, u64::MAX / 3, u64::MAX / 2 + 12345, u64::MAX] {
            let exact = (64.0 - (n as f64).log2()) * ONE as f64;
            assert!((minus_log2(n) as f64 - exact).abs() < 2.0, "{n}");
        }
    }

    /// Checks the mean of `COUNT` gaps within 3 parts in a thousand, three standard errors, and the
    /// share of those above the mean.
    #[test]
    fn gaps_are_exponential() {
        const COUNT: u64 = 1 << 20;
        for mean in [1, 100, 512 << 10, 1 << 40] {
            let (filter, random) = (core::ptr::null(), 7);
            let mut sampler = Sampler { filter, mean, random };
            let (mut sum, mut beyond) = (0.0, 0u64);
            for _ in 0..COUNT {
                let gap = sampler.gap();
                sum += gap as f64;
                beyond += u64::from(gap > mean);
            }
            // The mean of a geometric distribution, which is an exponential one rounded up.
            let expected = 1.0 / (1.0 - (-1.0 / mean as f64).exp());
            assert!((sum / COUNT as f64 / expected - 1.0).abs() < 0.003, "{mean}");
            let share = beyond as f64 / COUNT as f64;
            assert!((share - (-1.0f64).exp()).abs() < 0.0015, "{mean}: {share}");
        }
    }

    #[test]
    fn a_gap_has_a_lower_bound_and_does_not_overflow() {
        assert_eq!(gap(u64::MAX, 512 << 10), 1);
        let longest = gap(0, heaptide_format::SAMPLE_MEAN_MAX_BYTES);
        assert!(longest > 44 << 40 && longest < 45 << 40);
    }
}
