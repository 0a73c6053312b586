//! The thread-local segment of a program, extended for the block of the recorder.
//!
//! On x86-64, a C library puts the segment below the thread pointer: its start is at the distance
//! of its size, rounded up to its alignment. So a segment that is extended at its start leaves the
//! program's variables at their places. (ELF Handling For Thread-Local Storage, variant II.)

/// The thread-local segment of a file (`PT_TLS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its address in the file.
    pub address: u64,
    /// Bytes of its initial values.
    pub file_bytes: u64,
    /// Bytes that each thread has.
    pub memory_bytes: u64,
    /// A power of two.
    pub alignment: u64,
}

/// A program without thread-local variables.
pub const NONE: Segment = Segment { address: 0, file_bytes: 0, memory_bytes: 0, alignment: 1 };

/// A segment with space at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    /// Bytes at its start, all zero, before the initial values of the program.
    pub added: u64,
    /// The whole segment, at address 0.
    pub segment: Segment,
}

impl Segment {
    /// Returns the distance of its start from the thread pointer.
    fn distance(&self) -> u64 {
        let end = self.address.wrapping_add(self.memory_bytes);
        self.memory_bytes + (end.wrapping_neg() & (self.alignment - 1))
    }

    /// Returns the segment with at least `bytes` more at its start, which have this alignment.
    pub fn extended(&self, bytes: u64, alignment: u64) -> Extended {
        let alignment = alignment.max(self.alignment);
        let distance = self.distance();
        let memory_bytes = (distance + bytes).next_multiple_of(alignment);
        let added = memory_bytes - distance;
        let file_bytes = added + self.file_bytes;
        Extended { added, segment: Segment { address: 0, file_bytes, memory_bytes, alignment } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where a variable of the program is, from the thread pointer.
    fn place(segment: &Segment, offset: u64) -> i64 {
        offset as i64 - segment.distance() as i64
    }

    #[test]
    fn the_variables_of_the_program_keep_their_places() {
        for (address, memory_bytes, alignment) in
            [(0, 0, 1), (0x1000, 24, 8), (0x4c9f78, 0x68, 8), (64, 1, 64), (0x1038, 0x90, 64)]
        {
            let before = Segment { address, file_bytes: memory_bytes / 2, memory_bytes, alignment };
            let Extended { added, segment } = before.extended(128, 64);
            assert!(added >= 128);
            assert_eq!(segment.alignment, 64);
            assert_eq!(segment.distance() % 64, 0);
            assert_eq!(segment.file_bytes, added + memory_bytes / 2);
            for offset in [0, memory_bytes] {
                assert_eq!(place(&segment, added + offset), place(&before, offset), "{before:?}");
            }
        }
    }

    #[test]
    fn an_alignment_above_that_of_the_block_is_kept() {
        let before = Segment { address: 0, file_bytes: 0, memory_bytes: 8, alignment: 256 };
        let Extended { added, segment } = before.extended(128, 64);
        assert_eq!((segment.alignment, segment.memory_bytes, added), (256, 512, 256));
    }
}
