//! Where CPython keeps its frames, and which line an instruction is of: data about the versions
//! 3.8 to 3.13, and the formats of their line tables.
//!
//! Offsets are those of the headers of each version. From 3.13 on the interpreter itself holds them
//! ([`DEBUG_OFFSETS`]), and [`Layout::from_debug_offsets`] takes them from there.

/// Offsets in bytes within the objects of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The version 3.`minor`.
    pub minor: u8,
    /// How the innermost frame is found in the thread state.
    pub innermost: Innermost,
    /// In a frame: its caller.
    pub caller: u16,
    /// In a frame: its code object.
    pub code: u16,
    /// In a frame: the instruction that it executes.
    pub instruction: Instruction,
    /// Which frames the interpreter's loop was entered with.
    pub entry: Entry,
    /// In a code object: its file, a str.
    pub code_file: u16,
    /// Its qualified name, or before 3.11 its name, a str.
    pub code_name: u16,
    /// Its line table, a bytes object.
    pub code_lines: u16,
    /// Its first line, a C int.
    pub code_first_line: u16,
    /// Format of the line table.
    pub lines: Lines,
    /// Bytes of a code object, as its type states them.
    pub code_bytes: u16,
    /// Bytes of a frame, if it is an object; else 0.
    pub frame_bytes: u16,
    /// In a str object: its text, if it is ASCII.
    pub ascii: u16,
    /// In a str object: its text, if it is not.
    pub other: u16,
}

/// Where the innermost frame of a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Innermost {
    /// At this offset of the thread state.
    Direct(u16),
    /// In a structure on the C stack.
    Indirect {
        /// In the thread state: the address of the structure.
        chain: u16,
        /// In the structure: the frame.
        frame: u16,
    },
}

/// How a frame refers to its instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// Its number at this offset, a C int, in units of so many bytes.
    Number(u16, u8),
    /// Its address at the first offset; the second is that of the instructions in a code object.
    Address(u16, u16),
}

/// How frames tell with which of them the interpreter's loop was entered. Where a structure of the
/// C stack belongs to the entry, its address is in the native frame of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// With each.
    All,
    /// With each, which has an element of the chain at this offset of the thread state; the next
    /// outer one is at the other.
    AllChained(u16, u16),
    /// With those whose byte at this offset is not 0; each has an element of the chain.
    Flagged {
        /// In a frame: the byte.
        flag: u16,
        /// In the thread state: the innermost element.
        chain: u16,
        /// In an element: the next outer one.
        outer: u16,
    },
    /// With those whose caller is a frame on the C stack, which has 3 at this offset.
    Shim(u16),
}

/// The format of a line table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// Pairs of increments, up to 3.9.
    Increments,
    /// Pairs of range and increment, 3.10.
    Ranges,
    /// Location entries, from 3.11 on.
    Locations,
}

/// [`Entry::Shim`]: the value of `owner` in a frame on the C stack.
pub const ON_C_STACK: u8 = 3;

const V38: Layout = Layout {
    minor: 8,
    innermost: Innermost::Direct(24),
    caller: 24,
    code: 32,
    instruction: Instruction::Number(104, 1),
    entry: Entry::All,
    code_file: 104,
    code_name: 112,
    code_lines: 120,
    code_first_line: 40,
    lines: Lines::Increments,
    code_bytes: 176,
    frame_bytes: 368,
    ascii: 48,
    other: 72,
};

const V310: Layout = Layout {
    minor: 10,
    instruction: Instruction::Number(96, 2),
    entry: Entry::AllChained(48, 8),
    lines: Lines::Ranges,
    frame_bytes: 360,
    ..V38
};

const V311: Layout = Layout {
    minor: 11,
    innermost: Innermost::Indirect { chain: 56, frame: 8 },
    caller: 48,
    code: 32,
    instruction: Instruction::Address(56, 184),
    entry: Entry::Flagged { flag: 68, chain: 56, outer: 16 },
    code_file: 112,
    code_name: 128,
    code_lines: 136,
    code_first_line: 72,
    lines: Lines::Locations,
    code_bytes: 184,
    frame_bytes: 0,
    ascii: 48,
    other: 72,
};

const V312: Layout = Layout {
    minor: 12,
    innermost: Innermost::Indirect { chain: 56, frame: 0 },
    caller: 8,
    code: 0,
    instruction: Instruction::Address(56, 192),
    entry: Entry::Shim(70),
    code_first_line: 68,
    code_bytes: 192,
    ascii: 40,
    other: 56,
    ..V311
};

const V313: Layout = Layout {
    minor: 13,
    innermost: Innermost::Direct(72),
    instruction: Instruction::Address(56, 200),
    code_bytes: 200,
    ..V312
};

const LAYOUTS: [Layout; 6] = [V38, Layout { minor: 9, ..V38 }, V310, V311, V312, V313];

/// The words at the begin of `_PyRuntime` from 3.13 on that [`Layout::from_debug_offsets`] reads.
pub const DEBUG_OFFSETS: usize = 71;

impl Layout {
    /// The layout of 3.`minor`; none of a version that is not known.
    pub fn of_version(minor: u8) -> Option<Layout> {
        LAYOUTS.iter().find(|layout| layout.minor == minor).copied()
    }

    /// The layout of 3.13 with the offsets that the interpreter has of itself
    /// (`struct _Py_DebugOffsets` of 3.13); none if they are of another version, or of a build
    /// whose objects begin with other fields.
    pub fn from_debug_offsets(words: &[u64; DEBUG_OFFSETS]) -> Option<Layout> {
        let at = |byte: usize| words.get(byte / 8).and_then(|&word| u16::try_from(word).ok());
        let is_known = words[0] == u64::from_le_bytes(*b"xdebugpy")
            && words[1] >> 16 == 0x030d
            && at(360)? == 8
            && (at(520)?, at(528)?, at(544)?, at(552)?) == (16, 32, 32, 16);
        if !is_known {
            return None;
        }
        Some(Layout {
            innermost: Innermost::Direct(at(184)?),
            caller: at(232)?,
            code: at(240)?,
            instruction: Instruction::Address(at(248)?, at(344)?),
            entry: Entry::Shim(at(264)?),
            code_bytes: at(344)?,
            code_file: at(280)?,
            code_name: at(296)?,
            code_lines: at(304)?,
            code_first_line: at(312)?,
            ascii: at(560)?,
            ..V313
        })
    }
}

/// The line of the instruction at byte `at` of a code object that begins at line `first`; none if
/// the instruction has none.
pub fn line(format: Lines, table: &[u8], first: i64, at: i64) -> Option<u32> {
    let line = if at < 0 { Some(first) } else { line_in(format, table, first, at) };
    line.and_then(|line| u32::try_from(line).ok())
}

fn line_in(format: Lines, table: &[u8], first: i64, at: i64) -> Option<i64> {
    match format {
        Lines::Increments => {
            let mut address = 0;
            let pairs = table.as_chunks::<2>().0.iter();
            let reached = pairs.take_while(|pair| {
                address += i64::from(pair[0]);
                address <= at
            });
            Some(reached.fold(first, |line, pair| line + i64::from(pair[1] as i8)))
        }
        Lines::Ranges => {
            const NO_LINE: u8 = 0x80;
            let (mut end, mut line) = (0, first);
            for [length, change] in table.as_chunks::<2>().0 {
                end += i64::from(*length);
                if *change != NO_LINE {
                    line += i64::from(*change as i8);
                }
                if at < end {
                    return (*change != NO_LINE).then_some(line);
                }
            }
            None
        }
        Lines::Locations => {
            let (mut rest, mut end, mut line) = (table, 0, first);
            while let Some((&head, tail)) = rest.split_first() {
                let kind = head >> 3 & 15;
                end += 2 * (i64::from(head & 7) + 1);
                line += match kind {
                    13 | 14 => signed(tail),
                    10..=12 => i64::from(kind - 10),
                    _ => 0,
                };
                if at < end {
                    return (kind != 15).then_some(line);
                }
                let next = tail.iter().position(|&byte| byte & 0x80 != 0);
                rest = tail.get(next.unwrap_or(tail.len())..).unwrap_or_default();
            }
            None
        }
    }
}

/// The signed number that a location entry has at its begin: six bits a byte, the lowest first.
fn signed(bytes: &[u8]) -> i64 {
    let mut number = 0u64;
    for (&byte, shift) in bytes.iter().zip((0..60).step_by(6)) {
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            break;
        }
    }
    let size = (number >> 1) as i64;
    if number & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    /// Starts of ranges and their lines, 0 for none, of one function whose tables the versions
    /// made.
    type Ranges<'a> = &'a [(i64, u32)];

    fn check(format: Lines, table: &str, expected: Ranges<'_>, end: i64) {
        let byte = |at: usize| u8::from_str_radix(&table[at..at + 2], 16).expect("digits");
        let bytes: Vec<u8> = (0..table.len()).step_by(2).map(byte).collect();
        for (&(start, number), next) in
            expected.iter().zip(expected.iter().skip(1).map(|&(start, _)| start).chain([end]))
        {
            for at in start..next {
                let found = line(format, &bytes, 2, at).unwrap_or(0);
                assert_eq!(found, number, "instruction {at} of {table}");
            }
        }
        assert_eq!(line(format, &bytes, 2, -2), Some(2), "not begun yet");
        for cut in 0..bytes.len() {
            for at in 0..end {
                line(format, &bytes[..cut], 2, at);
            }
        }
    }

    #[test]
    fn lines_are_those_that_the_versions_report() {
        check(
            Lines::Increments,
            "00010e020402020106fe0407020110010e010a01",
            &[
                (0, 3),
                (14, 5),
                (18, 7),
                (20, 8),
                (26, 6),
                (30, 13),
                (32, 14),
                (48, 15),
                (62, 16),
                (72, 17),
            ],
            76,
        );
        check(
            Lines::Ranges,
            "0e0104020202060104fe02070e0104030cfe0601040102fe",
            &[
                (0, 3),
                (14, 5),
                (18, 7),
                (20, 8),
                (26, 6),
                (30, 13),
                (32, 14),
                (46, 17),
                (50, 15),
                (62, 16),
                (68, 17),
                (72, 15),
            ],
            74,
        );
        check(
            Lines::Locations,
            "8000d80816880e9041880e890e8c0e8041e00708f00004050ae00c0ddd0c11902189488c48f00503\
             100af00003090af00e03050ed80c0d88618c449031894888018801f8dd0b15f00001050ef0000105\
             0ef00001050ed80c0d880188018801f00301050ef8f8f8e00b0c8048",
            &[
                (0, 2),
                (2, 3),
                (26, 5),
                (30, 7),
                (32, 8),
                (60, 6),
                (64, 13),
                (66, 14),
                (90, 0),
                (92, 15),
                (110, 16),
                (118, 15),
                (120, 0),
                (126, 17),
            ],
            130,
        );
        check(
            Lines::Locations,
            "8000d914158b0e914188718a1191418041880ee60708e00c0ddc0c1190218b48f00503100af00003\
             090af00e03050ed80c0d88618944903189488801f006000c0d8048f9f21d000917f8f418000c16f3\
             0001050ed80c0d8901d80b0c8048f00501050efa",
            &[
                (0, 2),
                (2, 3),
                (34, 5),
                (48, 7),
                (50, 8),
                (70, 6),
                (74, 13),
                (76, 14),
                (92, 17),
                (96, 0),
                (100, 3),
                (106, 0),
                (108, 15),
                (126, 16),
                (132, 17),
                (136, 15),
                (138, 0),
            ],
            144,
        );
    }

    #[test]
    fn the_interpreter_s_own_offsets_are_taken_only_from_a_build_that_is_known() {
        let mut words = [0; DEBUG_OFFSETS];
        let fields = [
            (8, 0x030d_00f0),
            (184, 72),
            (232, 8),
            (240, 0),
            (248, 56),
            (264, 70),
            (272, 208),
            (280, 112),
            (296, 128),
            (304, 136),
            (312, 68),
            (344, 200),
            (360, 8),
            (520, 16),
            (528, 32),
            (544, 32),
            (552, 16),
            (560, 40),
        ];
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        fields.iter().for_each(|&(byte, value)| words[byte / 8] = value);
        let layout = Layout::from_debug_offsets(&words);
        assert_eq!(layout, Layout::of_version(13), "3.13.0");
        for (byte, value) in [(0, 1), (8, 0x030e_00f0), (360, 16), (184, 1 << 40)] {
            let mut other = words;
            other[byte / 8] = value;
            assert_eq!(Layout::from_debug_offsets(&other), None);
        }
        assert!((8..=13).all(|minor| Layout::of_version(minor).is_some()));
        assert_eq!([7, 14].map(Layout::of_version), [None; 2]);
    }
}
