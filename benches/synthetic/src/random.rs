//! Numbers that look random and are the same for the same seed.

/// A generator: SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From 1 to `most`, each half, or so, as likely as the one before: of mean `mean` where `most`
    /// is far.
    pub(crate) fn geometric(&mut self, mean: u64, most: u64) -> u64 {
        let mut n = 1;
        while n < most && self.below(mean) != 0 {
            n += 1;
        }
        n
    }

    /// One of a list.
    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Bits of a number, stirred.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
