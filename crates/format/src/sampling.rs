//! Sampled recordings: how often a block is sampled, and the unit of what it represents.

/// Bytes that are allocated for each sampled block on average, unless the mode has another number.
pub const SAMPLE_MEAN_BYTES: u64 = 512 << 10;
/// The largest mean: more than any program allocates between two blocks worth knowing.
pub const SAMPLE_MEAN_MAX_BYTES: u64 = 1 << 40;
/// The mode's name, in front of `=` and the mean.
pub const SAMPLED: &str = "sampled";

/// Counters of blocks in a [`crate::SampledSite`] are in units of 1 ÷ this.
pub const SAMPLE_UNIT: u64 = 1 << 16;

/// Files of older recorders only, with a [`crate::Site`] for each class of usable sizes: the class,
/// in the flags of a key; 0 if it is no dimension.
pub const KEY_CLASS: u32 = 0xfff << KEY_CLASS_SHIFT;
/// The lowest bit of [`KEY_CLASS`].
pub const KEY_CLASS_SHIFT: u32 = 16;

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
