//! Known functions and their moved code, as an assembler encodes both.

use super::*;
use crate::moved::MOVED_BYTES_MAX;
use heaptide_fixtures::Random;

const AT: u64 = 0x40_1000;
const TO: u64 = 0x40_0000;
const RET: u32 = 0xd65f_03c0;
const STP: u32 = 0xa9bf_7bfd; // stp x29, x30, [sp, #-16]!
const PACIASP: u32 = 0xd503_233f;
const AUTIASP: u32 = 0xd503_23bf;

fn code<const N: usize>(instructions: [u32; N]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (place, instruction) in bytes.chunks_exact_mut(4).zip(instructions) {
        place.copy_from_slice(&instruction.to_le_bytes());
    }
    bytes
}

/// Moves a function that consists of these instructions.
fn moved<const N: usize>(instructions: [u32; N]) -> Result<Moved, Unmovable> {
    relocate(&code(instructions), 4 * N, AT, TO)
}

/// Returns the instructions of a function that can be moved, and the word after them.
fn written<const N: usize>(instructions: [u32; N]) -> ([u32; 16], Moved) {
    let moved = moved(instructions).expect("it can be moved");
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(moved.code().chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    (words, moved)
}

fn jump_to(from: u64, to: u64) -> u32 {
    u32::from_le_bytes(jump(from, to).expect("near"))
}

#[test]
fn position_independent_instructions_are_copied() {
    let (words, moved) = written([STP, RET]);
    assert_eq!((&words[..2], moved.patch_at), (&[STP, jump_to(TO + 4, AT + 4)][..], 0));
    assert_eq!(moved.code().len(), 8);
    let (words, moved) = written([RET]);
    assert_eq!((words[0], moved.code().len()), (RET, 4), "nothing follows a return");
}

#[test]
fn targets_of_indirect_jumps_stay() {
    for landing in LANDINGS {
        let (words, moved) = written([landing, STP, RET]);
        assert_eq!(words[..2], [STP, jump_to(TO + 4, AT + 8)]);
        assert_eq!((moved.patch_at, moved.undo, moved.code().len()), (4, 0, 8));
        assert_eq!(self::moved([landing]), Err(Unmovable::TooShort));
    }
}

#[test]
fn signatures_are_reverted_for_the_stub_and_made_by_the_moved_code() {
    let (words, moved) = written([PACIASP, STP, RET]);
    assert_eq!(words[..3], [PACIASP, STP, jump_to(TO + 8, AT + 8)]);
    assert_eq!((moved.patch_at, moved.undo), (4, AUTIASP));
    // autiasp; ldr x16, …; br x16; nop
    let stub = jump_far(0x1122_3344_5566_7788, &moved);
    assert_eq!(stub[..4], AUTIASP.to_le_bytes());
    assert_eq!(stub[16..24], 0x1122_3344_5566_7788u64.to_le_bytes());
    // pacibsp
    assert_eq!(written([0xd503_237f, STP, RET]).1.undo, 0xd503_23ff);
    assert_eq!(self::moved([0xdac1_a3fe, STP, RET]), Err(Unmovable::Instruction), "paciasppc");
}

#[test]
fn stubs_load_words_after_them() {
    let moved = moved([STP, RET]).expect("it can be moved");
    // nop; ldr x16, .+12; br x16; nop
    let code = [0xd503_201fu32, 0x5800_0070, 0xd61f_0200, 0xd503_201f];
    let stub = jump_far(7, &moved);
    assert_eq!(stub[..16], bytes(code));
    assert_eq!(stub[16..24], 7u64.to_le_bytes());
    // nop; ldr x16, .+12; ldr x17, .+16; br x16
    let code = [0xd503_201fu32, 0x5800_0070, 0x5800_0091, 0xd61f_0200];
    let stub = pass(8, 9, &moved);
    assert_eq!(stub[..16], bytes(code));
    assert_eq!((&stub[16..24], &stub[24..]), (&9u64.to_le_bytes()[..], &8u64.to_le_bytes()[..]));
}

#[test]
fn addresses_are_relative_to_the_original_place() {
    // adr x3, .+0x104: ldr x3, .+8; b; the address
    let (words, moved) = written([0x1000_0823, RET]);
    assert_eq!(words[..2], [0x5800_0043, jump_to(TO + 4, AT + 4)]);
    assert_eq!(moved.code()[8..], (AT + 0x104).to_le_bytes());
    // adr x0, .-1
    let (_, moved) = written([0x70ff_ffe0, RET]);
    assert_eq!(moved.code()[8..], (AT - 1).to_le_bytes());
    // adrp x4, .+0x2000
    let (words, moved) = written([0xd000_0004, RET]);
    assert_eq!(words[0], 0x5800_0044);
    assert_eq!(moved.code()[8..], (AT + 0x2000).to_le_bytes());
    // bti c; adrp: the page is that of the adrp
    let (words, moved) = written([0xd503_245f, 0x9000_0004, RET]);
    assert_eq!(words[..2], [0x5800_0044, jump_to(TO + 4, AT + 8)]);
    assert_eq!(moved.code()[8..], AT.to_le_bytes());
    // paciasp; adrp: a word is at a multiple of eight
    let (words, moved) = written([PACIASP, 0x9000_0004, RET]);
    assert_eq!(words[..4], [PACIASP, 0x5800_0064, jump_to(TO + 8, AT + 8), 0]);
    assert_eq!(moved.code()[16..], AT.to_le_bytes());
}

#[test]
fn loads_are_relative_to_the_original_place() {
    // ldr w5, x6; ldrsw x7; ldr s1, d2, q3, each .+0x40
    let all = [
        (0x1800_0205, 0xb940_0225),
        (0x5800_0206, 0xf940_0226),
        (0x9800_0207, 0xb980_0227),
        (0x1c00_0201, 0xbd40_0221),
        (0x5c00_0202, 0xfd40_0222),
        (0x9c00_0203, 0x3dc0_0223),
    ];
    for (load, from_x17) in all {
        let (words, moved) = written([load, RET]);
        // ldr x17, .+16; the load; b; nothing; the address
        assert_eq!(words[..4], [0x5800_0091, from_x17, jump_to(TO + 8, AT + 4), 0]);
        assert_eq!(moved.code()[16..], (AT + 0x40).to_le_bytes());
    }
    assert_eq!(moved([0xd800_0200, RET]), Err(Unmovable::Unknown), "prfm");
}

#[test]
fn branches_jump_over_the_jump_back() {
    // b.eq, cbz x0, tbz x2 #33: each .+0x40; the same .+8
    for (branch, over, target) in [
        (0x5400_0200, 0x5400_0040, AT + 0x40),
        (0xb400_0200, 0xb400_0040, AT + 0x40),
        (0xb608_0202, 0xb608_0042, AT + 0x40),
        (0x35ff_fe01, 0x3500_0041, AT - 0x40), // cbnz w1, .-0x40
    ] {
        let (words, moved) = written([branch, RET]);
        assert_eq!(words[..3], [over, jump_to(TO + 4, AT + 4), jump_to(TO + 8, target)]);
        assert_eq!(moved.code().len(), 12);
    }
}

#[test]
fn a_jump_ends_the_moved_code() {
    // b .+0x100
    let (words, moved) = written([0x1400_0040]);
    assert_eq!((words[0], moved.code().len()), (jump_to(TO, AT + 0x100), 4));
    // br x1
    assert_eq!(written([0xd61f_0020]).1.code().len(), 4);
}

#[test]
fn position_dependent_instructions_are_rejected() {
    // bl; blr x1; blraa x1, x2; brk; hlt
    for instruction in [0x9400_0040, 0xd63f_0020, 0xd73f_0822, 0xd420_0000, 0xd440_0000] {
        assert_eq!(moved([instruction, RET]), Err(Unmovable::Instruction), "{instruction:x}");
    }
    assert_eq!(moved([0, RET]), Err(Unmovable::Unknown), "udf");
    assert_eq!(moved([]), Err(Unmovable::TooShort));
    assert!(moved([0xd400_0001, RET]).is_ok(), "svc");
}

#[test]
fn targets_out_of_reach_are_rejected() {
    let function = code([STP, RET]);
    assert_eq!(relocate(&function, 8, AT, AT + REACH + 8), Err(Unmovable::OutOfReach));
    assert!(relocate(&function, 8, AT, AT + REACH - 8).is_ok());
    assert_eq!((jump(AT, AT + REACH), jump(AT, AT + 2)), (None, None));
    assert_eq!(jump_to(AT + REACH, AT), 0x1600_0000);
}

#[test]
fn a_jump_back_to_the_start_is_rejected() {
    // cbz x0, .-4 as the second instruction
    assert_eq!(moved([STP, 0xb4ff_ffe0, RET]), Err(Unmovable::JumpInside));
    // the same, to itself
    assert!(moved([STP, 0xb400_0000, RET]).is_ok());
    // bti c; stp; b .-4
    assert_eq!(moved([0xd503_245f, STP, 0x17ff_ffff]), Err(Unmovable::JumpInside));
    // cbgt of ARMv9.6
    assert_eq!(moved([STP, 0x7400_3fe0, RET]), Err(Unmovable::JumpInside));
}

#[test]
fn any_bytes_are_moved_or_rejected() {
    let mut random = Random::new(7);
    let mut kept = 0;
    for _ in 0..100_000 {
        let mut bytes = [0u8; 24];
        bytes.iter_mut().for_each(|byte| *byte = random.byte());
        let size = random.index(bytes.len() + 1);
        if let Ok(moved) = relocate(&bytes, size, AT, TO) {
            assert!(moved.code().len() <= MOVED_BYTES_MAX && moved.patch_at <= 4);
            kept += 1;
        }
    }
    assert!(kept > 0);
}
