//! Numbers in LEB128: seven bits in each byte, the lowest first.

/// Appends a number.
pub(crate) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends a number with its sign in the lowest bit, so that small ones of either sign are short.
pub(crate) fn push_signed(bytes: &mut Vec<u8>, number: i64) {
    push(bytes, (number << 1 ^ number >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_of_either_sign_are_short() {
        let signed = |number| {
            let mut bytes = Vec::new();
            push_signed(&mut bytes, number);
            bytes
        };
        let numbers = [0, -1, 1, -64, 64].map(signed);
        assert_eq!(numbers, [vec![0], vec![1], vec![2], vec![0x7f], vec![0x80, 1]]);
        assert_eq!(signed(i64::MIN), [[0xff; 9].as_slice(), &[1]].concat());
    }
}
