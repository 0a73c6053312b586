//! Rows of unwind tables that are assembled here byte by byte: every supported instruction, and
//! truncated or random tables.

#![forbid(unsafe_code)]

use heaptide_fixtures::{Random, unwind_entry as entry};
use heaptide_unwind::rule::{Bp, Cfa, Ra, Step};
use heaptide_unwind::table::{Sections, frames_address, step_at};

/// The location of the return address on x86-64.
const BELOW: Ra = Ra::AtCfa(-8);

const HEADER: u64 = 0x1000;
const FRAMES: u64 = 0x2000;
/// The function that the table covers.
const START: u64 = 0x40_0000;
const LENGTH: u32 = 0x100;

const RBX: u8 = 3;
const RBP: u8 = 6;
const RSP: u8 = 7;
const RA: u8 = 16;

/// The start of every function: the CFA is rsp + 8, the return address right below it.
const USUAL: &[u8] = &[0x0c, RSP, 8, 0x80 | RA, 1];

/// `.eh_frame_hdr` and `.eh_frame` with one function.
struct Tables {
    header: Vec<u8>,
    frames: Vec<u8>,
}

impl Tables {
    fn new(augmentation: &[u8], preamble: &[u8], program: &[u8]) -> Tables {
        // CIE: id 0, version 1, augmentation, code factor 1, data factor -8, return address in
        // column 16, then the encoding of addresses: 8 bytes, absolute.
        let mut common = vec![0, 0, 0, 0, 1];
        common.extend(augmentation);
        common.extend([0, 1, 0x78, RA, 1, 0x04]);
        common.extend(preamble);
        let mut frames = entry(common);
        let function_at = frames.len() as u64;
        // FDE: distance back to the CIE, start, length, nothing more.
        let mut function = (function_at as u32 + 4).to_le_bytes().to_vec();
        function.extend(START.to_le_bytes());
        function.extend(u64::from(LENGTH).to_le_bytes());
        function.push(0);
        function.extend(program);
        frames.extend(entry(function));
        frames.extend([0; 4]);
        // Version 1; the address of the frames, the count, and pairs of addresses, all absolute.
        let mut header = vec![1, 0x04, 0x03, 0x04];
        header.extend(FRAMES.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        header.extend(START.to_le_bytes());
        header.extend((FRAMES + function_at).to_le_bytes());
        Tables { header, frames }
    }

    fn usual(program: &[u8]) -> Tables {
        Tables::new(b"zR", USUAL, program)
    }

    fn step(&self, offset: u64) -> Option<Step> {
        step_of(&self.header, &self.frames, START + offset)
    }
}

fn step_of(header: &[u8], frames: &[u8], pc: u64) -> Option<Step> {
    let sections = Sections { header, header_address: HEADER, frames, frames_address: FRAMES };
    step_at(&sections, pc)
}

/// Returns the step at the end of a function with these instructions.
fn after(program: &[u8]) -> Step {
    Tables::usual(program).step(u64::from(LENGTH) - 1).expect("a covered pc")
}

const ENTRY: Step = Step::Frame(Cfa::Sp(8), Bp::Same, BELOW);

#[test]
fn a_row_applies_from_its_location_to_the_next() {
    // Each way to advance, and one more row at the end: push, push, push, push.
    let program: [&[u8]; 4] = [
        &[0x40 | 1, 0x0e, 16],
        &[0x02, 0x0f, 0x0e, 24],
        &[0x03, 0x10, 0x00, 0x0e, 32],
        &[0x04, 0x20, 0x00, 0x00, 0x00, 0x0e, 40],
    ];
    let tables = Tables::usual(&program.concat());
    let rows = [(0, 8), (1, 16), (15, 16), (16, 24), (31, 24), (32, 32), (63, 32), (64, 40)];
    for (offset, n) in rows {
        let expected = Some(Step::Frame(Cfa::Sp(n), Bp::Same, BELOW));
        assert_eq!(tables.step(offset), expected, "at {offset}");
    }
    let mut set_location = vec![0x01];
    set_location.extend((START + 0x80).to_le_bytes());
    set_location.extend([0x0e, 48]);
    let tables = Tables::usual(&set_location);
    assert_eq!(tables.step(0x7f), Some(ENTRY));
    assert_eq!(tables.step(0x80), Some(Step::Frame(Cfa::Sp(48), Bp::Same, BELOW)));
}

#[test]
fn a_pc_that_is_not_covered_has_no_step() {
    let tables = Tables::usual(&[]);
    assert_eq!(tables.step(0), Some(ENTRY));
    assert_eq!(tables.step(u64::from(LENGTH)), None);
    assert_eq!(step_of(&tables.header, &tables.frames, START - 1), None);
    assert_eq!(step_of(&tables.header, &tables.frames, u64::MAX), None);
}

/// In the recorded program, each new address is looked up while a thread waits.
#[test]
fn endless_tables_have_no_step() {
    let nops = |count| [vec![0; count], vec![0x0e, 48]].concat();
    assert_eq!(after(&nops(200_000)), Step::Frame(Cfa::Sp(48), Bp::Same, BELOW));
    assert_eq!(after(&nops(300_000)), Step::Unknown);
    let preamble = Tables::new(b"zR", &[USUAL, &nops(300_000)].concat(), &[]);
    assert_eq!(preamble.step(0), Some(Step::Unknown));
    // An expression that jumps to its own start is not evaluated: breg rsp 8; skip -5.
    assert_eq!(after(&[0x0f, 5, 0x77, 0x08, 0x2f, 0xfb, 0xff]), Step::Unknown);
    assert_eq!(after(&[0x0a; 5]), Step::Unknown);
}

#[test]
fn every_form_of_a_cfa_rule() {
    let frame = |cfa| Step::Frame(cfa, Bp::Same, BELOW);
    // def_cfa, def_cfa_register, def_cfa_offset, and the two signed variants with the factor -8.
    assert_eq!(after(&[0x0c, RBP, 16]), frame(Cfa::Bp(16)));
    assert_eq!(after(&[0x0e, 16, 0x0d, RBP]), frame(Cfa::Bp(16)));
    assert_eq!(after(&[0x0e, 0x80, 0x02]), frame(Cfa::Sp(256)));
    assert_eq!(after(&[0x12, RBP, 0x7e]), frame(Cfa::Bp(16)));
    assert_eq!(after(&[0x13, 0x7c]), frame(Cfa::Sp(32)));
    // def_cfa_expression: breg n; deref; plus_uconst m.
    assert_eq!(after(&[0x0f, 3, 0x76, 0x78, 0x06]), frame(Cfa::BpDeref(-8, 0)));
    assert_eq!(after(&[0x0f, 3, 0x77, 0x08, 0x06]), frame(Cfa::SpDeref(8, 0)));
    assert_eq!(after(&[0x0f, 5, 0x77, 0x08, 0x06, 0x23, 16]), frame(Cfa::SpDeref(8, 16)));
    // Relative to rbx; an expression that does not read, one that continues, one that is truncated.
    assert_eq!(after(&[0x0c, RBX, 16]), Step::Unknown);
    assert_eq!(after(&[0x0f, 2, 0x77, 0x08]), Step::Unknown);
    assert_eq!(after(&[0x0f, 4, 0x77, 0x08, 0x06, 0x06]), Step::Unknown);
    assert_eq!(after(&[0x0f, 1, 0x77]), Step::Unknown);
    // An offset or a register without the other.
    assert_eq!(after(&[0x0f, 3, 0x76, 0x78, 0x06, 0x0e, 16]), Step::Unknown);
    assert_eq!(after(&[0x0f, 3, 0x76, 0x78, 0x06, 0x0d, RBP]), Step::Unknown);
}

#[test]
fn every_form_of_an_rbp_rule() {
    let frame = |bp| Step::Frame(Cfa::Sp(8), bp, BELOW);
    // offset, offset_extended, offset_extended_sf, expression breg rbp n.
    assert_eq!(after(&[0x80 | RBP, 2]), frame(Bp::AtCfa(-16)));
    assert_eq!(after(&[0x05, RBP, 3]), frame(Bp::AtCfa(-24)));
    assert_eq!(after(&[0x11, RBP, 0x7f]), frame(Bp::AtCfa(8)));
    assert_eq!(after(&[0x10, RBP, 2, 0x76, 0x70]), frame(Bp::AtBp(-16)));
    // same_value, undefined, and rules whose value is not in memory count as unchanged.
    assert_eq!(after(&[0x80 | RBP, 2, 0x08, RBP]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x07, RBP]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x14, RBP, 2]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x15, RBP, 0x7e]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x16, RBP, 2, 0x76, 0]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x09, RBP, RBX]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x10, RBP, 2, 0x77, 0]), frame(Bp::Same));
    // restore, restore_extended: back to the CIE's rule.
    assert_eq!(after(&[0x80 | RBP, 2, 0xc0 | RBP]), frame(Bp::Same));
    assert_eq!(after(&[0x80 | RBP, 2, 0x06, RBP]), frame(Bp::Same));
    // Other registers, GNU_args_size and nop change nothing.
    let others = [0x80 | RBX, 4, 0x2e, 16, 0x00, 0xc0 | RBX];
    assert_eq!(after(&others), ENTRY);
}

#[test]
fn restore_uses_the_rule_of_the_cie() {
    let preamble = [USUAL, &[0x80 | RBP, 2]].concat();
    let tables = Tables::new(b"zR", &preamble, &[0x08, RBP, 0x40 | 8, 0xc0 | RBP]);
    assert_eq!(tables.step(0), Some(ENTRY));
    assert_eq!(tables.step(8), Some(Step::Frame(Cfa::Sp(8), Bp::AtCfa(-16), BELOW)));
}

#[test]
fn remembered_states_are_restored() {
    let program = [0x0a, 0x0e, 16, 0x80 | RBP, 2, 0x40 | 8, 0x0b, 0x40 | 8, 0x0e, 24];
    let tables = Tables::usual(&program);
    assert_eq!(tables.step(7), Some(Step::Frame(Cfa::Sp(16), Bp::AtCfa(-16), BELOW)));
    assert_eq!(tables.step(8), Some(ENTRY));
    assert_eq!(tables.step(16), Some(Step::Frame(Cfa::Sp(24), Bp::Same, BELOW)));
    // Four levels, but not five; and nothing to restore.
    assert_eq!(after(&[0x0a, 0x0a, 0x0a, 0x0a, 0x0e, 64, 0x0b]), ENTRY);
    assert_eq!(after(&[0x0a; 5]), Step::Unknown);
    assert_eq!(after(&[0x0b]), Step::Unknown);
}

#[test]
fn an_undefined_return_address_marks_the_end() {
    assert_eq!(after(&[0x07, RA]), Step::End);
    // Not right below the CFA, or in a register: no compiled code does that.
    assert_eq!(after(&[0x80 | RA, 2]), Step::Unknown);
    assert_eq!(after(&[0x09, RA, RBX]), Step::Unknown);
    assert_eq!(after(&[0x07, RA, 0xc0 | RA]), ENTRY);
}

#[test]
fn a_signal_frame_is_recognised_by_its_augmentation() {
    assert_eq!(Tables::new(b"zRS", USUAL, &[]).step(0), Some(Step::Signal));
}

#[test]
fn the_header_has_the_address_of_the_frames() {
    let tables = Tables::usual(&[]);
    assert_eq!(frames_address(&tables.header, HEADER), Some(FRAMES));
    assert_eq!(frames_address(&tables.header[..6], HEADER), None);
    assert_eq!(frames_address(&[], HEADER), None);
    // Without a search table, the lookup walks the entries.
    let mut header = vec![1, 0x04, 0xff, 0xff];
    header.extend(FRAMES.to_le_bytes());
    assert_eq!(step_of(&header, &tables.frames, START), Some(ENTRY));
}

#[test]
fn a_truncated_table_has_a_step_or_none() {
    let program =
        [0x0a, 0x40 | 1, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, RBP, 2, 0x76, 0, 0x40 | 9, 0x0b];
    let tables = Tables::usual(&program);
    let whole = tables.step(5);
    assert_eq!(whole, Some(Step::Frame(Cfa::BpDeref(-8, 0), Bp::AtBp(0), BELOW)));
    for end in 0..tables.header.len() {
        assert_eq!(step_of(&tables.header[..end], &tables.frames, START + 5), None, "{end}");
    }
    // The last four bytes are the end marker, which is never read.
    for end in 0..tables.frames.len() - 4 {
        assert_eq!(step_of(&tables.header, &tables.frames[..end], START + 5), None, "{end}");
    }
}

#[test]
fn random_changes_leave_a_step_or_none() {
    let mut random = Random::new(0x5eed);
    let mut steps = 0;
    for _ in 0..20_000 {
        // Random instructions in a valid table, then random changed bytes.
        let program = random.bytes(39);
        let mut tables = Tables::usual(&program);
        for offset in [0, 7, 100, 255] {
            assert!(tables.step(offset).is_some(), "{program:x?} at {offset}");
        }
        for _ in 0..=random.below(4) {
            let at = random.index(tables.frames.len());
            tables.frames[at] = random.byte();
            if random.below(2) == 0 {
                let at = random.index(tables.header.len());
                tables.header[at] = random.byte();
            }
        }
        frames_address(&tables.header, HEADER);
        steps += usize::from(tables.step(random.below(256)).is_some());
    }
    // Most tables still lead to the function's instructions.
    assert!(steps > 2000, "{steps} steps");
}

#[test]
fn random_sections_do_not_panic() {
    let mut random = Random::new(0xbad);
    for _ in 0..20_000 {
        let (mut header, frames) = (random.bytes(63), random.bytes(255));
        if let Some(version) = header.first_mut() {
            *version = 1;
        }
        step_of(&header, &frames, START);
    }
}
