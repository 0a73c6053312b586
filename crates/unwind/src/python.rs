//! Offsets of CPython's frames and related objects in versions 3.8 to 3.14, and decoding of their
//! line tables.
//!
//! Offsets are from the headers of each version. From 3.13 on, the interpreter itself contains them
//! ([`DEBUG_OFFSETS`]), and [`Layout::from_debug_offsets`] reads them.

/// Offsets in bytes within the objects of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The version 3.`minor`.
    pub minor: u8,
    /// The location of the innermost frame, starting from the thread state.
    pub innermost: Innermost,
    /// In a frame: its caller.
    pub caller: u16,
    /// In a frame: its code object.
    pub code: u16,
    /// In a frame: the instruction that it executes.
    pub instruction: Instruction,
    /// The frames with which the interpreter's loop was entered.
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
    /// Bytes of a code object, according to its type.
    pub code_bytes: u16,
    /// Bytes of a frame if it is an object; else 0.
    pub frame_bytes: u16,
    /// In a str object: its text, if that is ASCII.
    pub ascii: u16,
    /// In a str object: its text, if that is not ASCII.
    pub other: u16,
}

/// The location of a thread's innermost frame.
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

/// How a frame refers to its current instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// Its number at this offset, a C int, in units of this many bytes.
    Number(u16, u8),
    /// Its address at the first offset. The second is the offset of the instructions in a code
    /// object.
    Address(u16, u16),
}

/// Identifies the frames with which the interpreter's loop was entered. If an entry has a structure
/// on the C stack, the address of the structure is within the loop's native frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Every frame enters the loop.
    All,
    /// Every frame enters the loop, and has an element of the chain at the first offset of the
    /// thread state. The second offset leads to the next outer element.
    AllChained(u16, u16),
    /// Frames whose byte at this offset is not 0; each has an element of the chain.
    Flagged {
        /// In a frame: the byte.
        flag: u16,
        /// In the thread state: the innermost element.
        chain: u16,
        /// In an element: the next outer one.
        outer: u16,
    },
    /// Frames whose caller is a frame on the C stack, which has 3 at this offset.
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

/// [`Entry::Shim`]: the value of `owner` in a frame on the C stack. Frames without Python code have
/// this or a larger value.
pub const ON_C_STACK: u8 = 3;

/// Tag bits of object references, which are not part of the address. From 3.14 on, the reference
/// from a frame to its code object has them.
pub const REFERENCE_BITS: u64 = 3;

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

const V314: Layout = Layout {
    minor: 14,
    instruction: Instruction::Address(56, 208),
    entry: Entry::Shim(74),
    code_bytes: 208,
    ..V313
};

const LAYOUTS: [Layout; 7] = [V38, Layout { minor: 9, ..V38 }, V310, V311, V312, V313, V314];

/// The number of words at the start of `_PyRuntime`, from 3.13 on, that
/// [`Layout::from_debug_offsets`] reads.
pub const DEBUG_OFFSETS: usize = 81;

/// Locations of offsets in `_PyRuntime` (`struct _Py_DebugOffsets`), in bytes from its start.
struct DebugOffsets {
    version: Layout,
    current_frame: usize,
    previous: usize,
    executable: usize,
    instruction: usize,
    owner: usize,
    file_name: usize,
    qualified_name: usize,
    line_table: usize,
    first_line: usize,
    bytecode: usize,
    ascii_size: usize,
    /// Offsets in objects, with their values in supported builds: type, length and bytes of a bytes
    /// object, state and length of a str object.
    objects: [(usize, u16); 5],
}

const DEBUG_OFFSETS_OF: [DebugOffsets; 2] = [
    DebugOffsets {
        version: V313,
        current_frame: 184,
        previous: 232,
        executable: 240,
        instruction: 248,
        owner: 264,
        file_name: 280,
        qualified_name: 296,
        line_table: 304,
        first_line: 312,
        bytecode: 344,
        ascii_size: 560,
        objects: [(360, 8), (520, 16), (528, 32), (544, 32), (552, 16)],
    },
    DebugOffsets {
        version: V314,
        current_frame: 208,
        previous: 256,
        executable: 264,
        instruction: 272,
        owner: 288,
        file_name: 320,
        qualified_name: 336,
        line_table: 344,
        first_line: 352,
        bytecode: 384,
        ascii_size: 640,
        objects: [(408, 8), (600, 16), (608, 32), (624, 32), (632, 16)],
    },
];

impl Layout {
    /// Returns the layout of 3.`minor`; `None` if the version is unknown.
    pub fn of_version(minor: u8) -> Option<Layout> {
        LAYOUTS.iter().find(|layout| layout.minor == minor).copied()
    }

    /// Returns the layout of 3.13 or 3.14 with the interpreter's own offsets (`struct
    /// _Py_DebugOffsets`). `None` for other versions, and for builds whose objects start with other
    /// fields, such as free-threaded builds.
    pub fn from_debug_offsets(words: &[u64; DEBUG_OFFSETS]) -> Option<Layout> {
        let at = |byte: usize| words.get(byte / 8).and_then(|&word| u16::try_from(word).ok());
        let [cookie, version, free_threaded, ..] = *words;
        let minor = u8::try_from(version >> 16 & 0xff).ok().filter(|_| version >> 24 == 3)?;
        let of = DEBUG_OFFSETS_OF.iter().find(|of| of.version.minor == minor)?;
        let is_known = cookie == u64::from_le_bytes(*b"xdebugpy")
            && free_threaded == 0
            && of.objects.iter().all(|&(byte, known)| at(byte) == Some(known));
        if !is_known {
            return None;
        }
        Some(Layout {
            innermost: Innermost::Direct(at(of.current_frame)?),
            caller: at(of.previous)?,
            code: at(of.executable)?,
            instruction: Instruction::Address(at(of.instruction)?, at(of.bytecode)?),
            entry: Entry::Shim(at(of.owner)?),
            code_bytes: at(of.bytecode)?,
            code_file: at(of.file_name)?,
            code_name: at(of.qualified_name)?,
            code_lines: at(of.line_table)?,
            code_first_line: at(of.first_line)?,
            ascii: at(of.ascii_size)?,
            ..of.version
        })
    }
}

/// Returns the line of the instruction at byte `at` of a code object that starts at line `first`;
/// `None` if the instruction has none.
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
        Lines::Locations => line_of_locations(table, first, at),
    }
}

/// Returns the line of an instruction by location entries. The kinds below 13, which are nearly all
/// entries, are decoded without branches: columns in one byte with no change of the line, or in two
/// bytes with a change of 0 to 2.
fn line_of_locations(table: &[u8], first: i64, at: i64) -> Option<i64> {
    let (mut index, mut end, mut line) = (0, 0, first);
    loop {
        let head = *table.get(index)?;
        let kind = head >> 3 & 15;
        end += 2 * (i64::from(head & 7) + 1);
        if kind < 13 {
            line += i64::from(kind.saturating_sub(10));
            index += 2 + usize::from(kind >= 10);
        } else {
            let tail = table.get(index + 1..)?;
            line += if kind == 15 { 0 } else { signed(tail) };
            let next = tail.iter().position(|&byte| byte & 0x80 != 0);
            index += 1 + next.unwrap_or(tail.len());
        }
        if at < end {
            return (kind != 15).then_some(line);
        }
    }
}

/// Decodes the signed number at the start of a location entry: six bits per byte, lowest first.
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

    /// Start offsets of ranges and their lines (0 for none) of one function, as compiled by the
    /// versions.
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
    fn lines_match_those_of_each_version() {
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
    fn the_interpreters_offsets_are_used_only_for_supported_builds() {
        // The values of 3.13.0 and Debian's 3.14.8, starting with the thread state.
        let of_313: &[u64] = &[
            304, 0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136,
            68, 52, 96, 104, 200, 16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24,
            16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
        ];
        let of_314: &[u64] = &[
            832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128,
            136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24, 16, 200, 24,
            40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
        ];
        for (version, begin, fields, object) in
            [(0x030d_00f0, 19, of_313, 360), (0x030e_08f0, 22, of_314, 408)]
        {
            let mut words = [0; DEBUG_OFFSETS];
            (words[0], words[1]) = (u64::from_le_bytes(*b"xdebugpy"), version);
            words[begin..begin + fields.len()].copy_from_slice(fields);
            let layout = Layout::from_debug_offsets(&words);
            assert_eq!(layout, Layout::of_version((version >> 16) as u8));
            let wrong =
                [(0, 1), (8, 0x030c_00f0), (16, 1), (object, 16), (begin * 8 + 32, 1 << 40)];
            for (byte, value) in wrong {
                let mut other = words;
                other[byte / 8] = value;
                assert_eq!(Layout::from_debug_offsets(&other), None, "{version:x}: {byte}");
            }
        }
        assert!((8..=14).all(|minor| Layout::of_version(minor).is_some()));
        assert_eq!([7, 15].map(Layout::of_version), [None; 2]);
    }
}
