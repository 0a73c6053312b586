//! The size classes of histograms.

/// The number of size classes: class `b` counts sizes of `b` significant bits, class 0 the size 0.
pub const SIZE_CLASSES: usize = 65;

/// Returns the class of a size: the number of its significant bits, 0 for 0.
///
/// ```
/// use heaptide_format::size_class;
/// assert_eq!([size_class(0), size_class(1), size_class(24), size_class(u64::MAX)], [0, 1, 5, 64]);
/// ```
#[inline(always)]
pub const fn size_class(bytes: u64) -> usize {
    64 - bytes.leading_zeros() as usize
}

/// Returns the smallest and largest size of a class.
///
/// ```
/// use heaptide_format::class_bounds;
/// assert_eq!(class_bounds(0), (0, 0));
/// assert_eq!(class_bounds(5), (16, 31));
/// ```
pub const fn class_bounds(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 0),
        c if c >= 64 => (1 << 63, u64::MAX),
        c => (1 << (c - 1), (1 << c) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_exactly_one_class() {
        for class in 0..SIZE_CLASSES {
            let (low, high) = class_bounds(class);
            assert_eq!([size_class(low), size_class(high)], [class; 2]);
            if class > 0 {
                assert_eq!(class_bounds(class - 1).1 + 1, low, "no size is between two classes");
            }
        }
        assert_eq!(class_bounds(SIZE_CLASSES - 1).1, u64::MAX);
    }
}
