//! Creation times of nodes of generated code.
//!
//! A JIT compiler reuses addresses, so the name of a function at such an address depends on the
//! time. [`crate::Node::flags`] has 26 bits for it: an exponent of 5 bits above a mantissa of 21,
//! in units of 64 ns. It is exact to the unit within 0.1 s, and to 33 us after a minute.

/// The lowest bit, in [`crate::Node::flags`], of the creation time of a node without a module.
pub const NODE_MADE_SHIFT: u32 = 4;
/// The number of its bits; the value 0 means unknown.
pub const NODE_MADE_BITS: u32 = 26;

/// Nanoseconds of a unit, as a power of two.
const UNIT: u32 = 6;
const MANTISSA_BITS: u32 = 21;
const EXPONENT_MAX: u32 = (1 << (NODE_MADE_BITS - MANTISSA_BITS)) - 1;

/// Encodes a time, in nanoseconds from the start, for [`crate::Node::flags`].
pub fn node_made(time_ns: u64) -> u32 {
    let units = (time_ns >> UNIT).max(1);
    let exponent = (u64::BITS - units.leading_zeros()).saturating_sub(MANTISSA_BITS);
    if exponent > EXPONENT_MAX {
        return ((1 << NODE_MADE_BITS) - 1) << NODE_MADE_SHIFT;
    }
    (exponent << MANTISSA_BITS | (units >> exponent) as u32) << NODE_MADE_SHIFT
}

/// Returns the end of the interval in which a node with these flags was created, in nanoseconds
/// from the start; `None` if it is unknown.
pub fn node_made_ns(flags: u32) -> Option<u64> {
    let bits = flags >> NODE_MADE_SHIFT & ((1 << NODE_MADE_BITS) - 1);
    let mantissa = u64::from(bits & ((1 << MANTISSA_BITS) - 1));
    let exponent = bits >> MANTISSA_BITS;
    (bits != 0).then(|| ((mantissa + 1) << (exponent + UNIT)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creation_times_are_upper_bounds() {
        for time_ns in [0, 1, 63, 64, 2_000_000_000, 3_600_000_000_000, 1 << 50, 1 << 57] {
            for flags in [0, 0b1111, 0b11 << 30] {
                let made_ns = node_made_ns(node_made(time_ns) | flags).expect("a time");
                let exact_to = 128.max(time_ns >> 20);
                assert!(time_ns <= made_ns && made_ns - time_ns < exact_to, "{time_ns} {made_ns}");
            }
        }
        assert_eq!((node_made_ns(0), node_made_ns(0b1111 | 0b11 << 30)), (None, None));
        assert_eq!(node_made(u64::MAX) & (0b11 << 30 | 0b1111), 0);
        assert!(node_made_ns(node_made(u64::MAX)).is_some());
    }
}
