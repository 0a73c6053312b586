//! Text in memory of a fixed size.

use crate::sys::kernel::Path;

/// Parses a decimal number; none if it is not a number or too large.
pub fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add((b - b'0') as u64),
        _ => None,
    })
}

/// Returns the file name of a path.
pub fn file_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Bytes in a fixed buffer that always ends with a zero. If something does not fit, only that fact
/// is stored.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0, cut: false }
    }

    pub fn push(&mut self, more: &[u8]) {
        let room = N - 1 - self.length;
        let n = more.len().min(room);
        self.bytes[self.length..self.length + n].copy_from_slice(&more[..n]);
        self.length += n;
        self.cut |= n < more.len();
    }

    pub fn push_number(&mut self, mut n: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    pub fn truncate(&mut self, length: usize) {
        self.bytes[length..].fill(0);
        self.length = length;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns whether everything fitted.
    pub fn is_whole(&self) -> bool {
        !self.cut
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns it as a path; none if something did not fit.
    pub fn path(&self) -> Option<Path<'_>> {
        if self.cut { None } else { Path::new(&self.bytes) }
    }
}

/// Returns the position of the first line end. Eight bytes at once: of a process's mappings, the
/// kernel lists far more than is needed.
pub fn end_of_line(bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, &word) in words.iter().enumerate() {
        // Bytes that are line ends become 0, and the highest bit of the first 0 becomes 1.
        let word = u64::from_le_bytes(word) ^ (EACH * u64::from(b'\n'));
        let ends = word.wrapping_sub(EACH) & !word & (EACH << 7);
        if ends != 0 {
            return Some(8 * index + ends.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|&byte| byte == b'\n')?;
    Some(8 * words.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_no_path() {
        let mut text = Text::<8>::new();
        text.push(b"abc");
        text.push_number(40);
        assert!(text.is_whole() && text.path().is_some());
        text.push(b"def");
        assert_eq!((text.bytes(), text.is_whole()), (&b"abc40de"[..], false));
        assert!(text.path().is_none());
        text.truncate(3);
        assert_eq!(text.bytes(), b"abc");
    }
}
