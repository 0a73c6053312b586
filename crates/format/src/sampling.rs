//! Sampled recordings: how often a block is sampled, and by which size its site is kept.

/// Bytes that are allocated for each sampled block on average, unless the mode has another number.
pub const SAMPLE_MEAN_BYTES: u64 = 512 << 10;
/// The largest mean: more than any program allocates between two blocks worth knowing.
pub const SAMPLE_MEAN_MAX_BYTES: u64 = 1 << 40;
/// The mode's name, in front of `=` and the mean.
pub const SAMPLED: &str = "sampled";

/// A flag of a key: the class of usable sizes of the blocks ([`sample_class`]); 0 if it is no
/// dimension. Only keys of [`crate::Mode::Sampled`] have it.
pub const KEY_CLASS: u32 = 0xfff << KEY_CLASS_SHIFT;
/// The lowest bit of [`KEY_CLASS`].
pub const KEY_CLASS_SHIFT: u32 = 16;

/// Sizes below this have a class for each 16 bytes, as allocators have: so a class is one size.
const EXACT_BELOW: u64 = 1 << EXACT_BITS;
const EXACT_BITS: u32 = 10;
const EXACT_CLASSES: u64 = EXACT_BELOW / 16;
/// Larger sizes have `1 << PER_DOUBLING_BITS` classes per power of two, so that sizes of a class
/// differ by at most 3 %.
const PER_DOUBLING_BITS: u32 = 5;

/// Returns the class of a block of `usable` bytes, from 1 to 4095. All blocks of a class are
/// sampled with nearly the same probability, so that of a site follows from its mean size.
pub fn sample_class(usable: u64) -> u32 {
    if usable < EXACT_BELOW {
        return 1 + (usable / 16) as u32;
    }
    let doubling = usable.ilog2();
    let part = usable >> (doubling - PER_DOUBLING_BITS) & ((1 << PER_DOUBLING_BITS) - 1);
    let doublings = u64::from(doubling - EXACT_BITS) << PER_DOUBLING_BITS;
    1 + (EXACT_CLASSES + doublings + part) as u32
}

/// Returns the mean in bytes that a mode requests, `sampled` or `sampled=BYTES`, with K, M or G for
/// powers of 1024; none if it is another mode, or the number is not from 1 to
/// [`SAMPLE_MEAN_MAX_BYTES`].
///
/// ```
/// use heaptide_format::sample_mean;
/// assert_eq!(sample_mean(b"sampled"), Some(512 << 10));
/// assert_eq!(sample_mean(b"sampled=64K"), Some(64 << 10));
/// assert_eq!(sample_mean(b"sampled=0"), None);
/// ```
pub fn sample_mean(mode: &[u8]) -> Option<u64> {
    let value = match mode.strip_prefix(SAMPLED.as_bytes())? {
        b"" => return Some(SAMPLE_MEAN_BYTES),
        rest => rest.strip_prefix(b"=")?,
    };
    let (digits, shift) = match value.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (value, 0),
    };
    let digit = |sum: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    let number = digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty())?;
    let bytes = number.checked_mul(1 << shift)?;
    (1..=SAMPLE_MEAN_MAX_BYTES).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_have_a_class_each_and_large_ones_differ_little() {
        assert_eq!([8, 24, 40, 1023].map(sample_class), [1, 2, 3, 64]);
        assert_eq!([1024, 1055, 1056, 2047, 2048].map(sample_class), [65, 65, 66, 96, 97]);
        assert!(sample_class(u64::MAX) <= KEY_CLASS >> KEY_CLASS_SHIFT);
        let sizes = (0..4096).map(|n| n * 8).chain((15..64).map(|bits| 1 << bits));
        assert!(sizes.map(sample_class).is_sorted());
    }

    #[test]
    fn a_mean_is_a_number_within_bounds() {
        let good = [("sampled=1", 1), ("sampled=3M", 3 << 20), ("sampled=1024G", 1 << 40)];
        assert!(good.iter().all(|&(mode, mean)| sample_mean(mode.as_bytes()) == Some(mean)));
        let bad = [
            "sampled=",
            "sampled=K",
            "sampled=0K",
            "sampled=-1",
            "sampled=1.5M",
            "sampled512K",
            "sampled=1025G",
            "sampled=99999999999999999999",
            "stacks",
            "",
        ];
        assert!(bad.iter().all(|mode| sample_mean(mode.as_bytes()).is_none()));
    }
}
