//! Ranges of addresses.

/// Addresses from `low` up to, but not including, `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Range {
    pub low: u64,
    pub high: u64,
}

impl Range {
    pub const EMPTY: Range = Range { low: 0, high: 0 };

    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.high.wrapping_sub(self.low)
    }

    /// Returns the stack of a thread that libc created: its control block lies above it in the same
    /// mapping. Only assumed near the top, where threads begin; empty if `sp` is elsewhere.
    pub fn of_thread(sp: u64, thread_pointer: u64) -> Range {
        const NEAR: u64 = 128 << 10;
        const BELOW: u64 = 8 << 10;
        if thread_pointer > sp && thread_pointer - sp < NEAR {
            Range { low: sp - BELOW, high: thread_pointer & !7 }
        } else {
            Range::EMPTY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_below_its_control_block() {
        let top = 0x7000_0000_0000;
        let range = Range::of_thread(top - 4096, top);
        assert_eq!(range, Range { low: top - 4096 - 8192, high: top });
        assert_eq!(Range::of_thread(top + 8, top), Range::EMPTY);
        assert_eq!(Range::of_thread(top - (1 << 20), top), Range::EMPTY);
    }
}
