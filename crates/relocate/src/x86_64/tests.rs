//! Known functions and their moved code.

use super::*;
use crate::moved::MOVED_BYTES_MAX;
use heaptide_fixtures::Random;

const AT: u64 = 0x40_1000;
const TO: u64 = 0x40_0000;

/// Moves a function that consists of these bytes.
fn moved(code: &[u8]) -> Result<Moved, Unmovable> {
    relocate(code, code.len(), AT, TO)
}

/// Returns the moved code, its length, and the offset of the patch.
fn code(code: &[u8]) -> ([u8; MOVED_BYTES_MAX], usize, usize) {
    let moved = moved(code).expect("it can be moved");
    let mut bytes = [0; MOVED_BYTES_MAX];
    bytes[..moved.code().len()].copy_from_slice(moved.code());
    (bytes, moved.code().len(), moved.patch_at)
}

/// Checks the moved bytes, excluding the jump back, which must lead to `resumes`.
fn assert_moved(function: &[u8], expected: &[u8], patch_at: usize, resumes: usize) {
    let (bytes, length, at) = code(function);
    assert_eq!((&bytes[..length - JUMP_BYTES], at), (expected, patch_at));
    let back = jump(TO + expected.len() as u64, AT + resumes as u64).expect("near");
    assert_eq!(bytes[length - JUMP_BYTES..length], back);
}

#[test]
fn pushes_are_copied() {
    // push r15; push r14; push rbx; ret
    assert_moved(&[0x41, 0x57, 0x41, 0x56, 0x53, 0xc3], &[0x41, 0x57, 0x41, 0x56, 0x53], 0, 5);
}

#[test]
fn whole_instructions_are_copied() {
    // push rbp; mov rbp, rsp; sub rsp, 16; ret
    let function = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3];
    assert_moved(&function, &function[..8], 0, 8);
}

#[test]
fn endbr_stays() {
    // endbr64; mov rax, rdi; ret; with padding
    let function = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, 0x48, 0x01, 0xc0, 0xc3];
    assert_moved(&function, &function[4..10], 4, 10);
}

#[test]
fn a_relative_load_is_adapted() {
    // mov rax, qword ptr [rip + 0x100]; ret
    let function = [0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3];
    assert_moved(&function, &[0x48, 0x8b, 0x05, 0, 0x11, 0, 0], 0, 7);
}

#[test]
fn a_relative_operand_before_an_immediate_is_adapted() {
    // cmp dword ptr [rip + 0x100], 0x100; ret: the immediate with the same bytes stays
    let function = [0x81, 0x3d, 0, 1, 0, 0, 0, 1, 0, 0, 0xc3];
    assert_moved(&function, &[0x81, 0x3d, 0, 0x11, 0, 0, 0, 1, 0, 0], 0, 10);
    // cmp byte ptr [rip], 0; ret
    let function = [0x80, 0x3d, 0, 0, 0, 0, 0, 0xc3];
    assert_moved(&function, &[0x80, 0x3d, 0, 0x10, 0, 0, 0], 0, 7);
}

#[test]
fn targets_out_of_reach_are_rejected() {
    let function = [0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3];
    let far = relocate(&function, function.len(), AT, AT + (3 << 30));
    assert_eq!(far, Err(Unmovable::OutOfReach));
}

#[test]
fn short_branches_become_long() {
    // test rdi, rdi; je +0x10; ret; ...
    let mut function = [0x90u8; 32];
    function[..6].copy_from_slice(&[0x48, 0x85, 0xff, 0x74, 0x10, 0xc3]);
    let by = (0x1000 + 5 + 0x10i32 - 9).to_le_bytes();
    let expected = [0x48, 0x85, 0xff, 0x0f, 0x84, by[0], by[1], by[2], by[3]];
    assert_moved(&function, &expected, 0, 5);
}

#[test]
fn a_jump_ends_the_moved_code() {
    // jmp +0x100
    let (bytes, length, _) = code(&[0xe9, 0, 1, 0, 0]);
    assert_eq!(bytes[..length], [0xe9, 0, 0x11, 0, 0]);
    // jmp short +0x40, int3 as padding
    let short = [0xeb, 0x40, 0xcc, 0xcc, 0xcc];
    let moved = relocate(&short, 2, AT, TO).expect("padding follows");
    assert_eq!(moved.code(), jump(TO, AT + 0x42).expect("near"));
    assert_eq!(relocate(&short[..3], 2, AT, TO), Err(Unmovable::TooShort));
}

#[test]
fn a_call_returns_to_its_original_address() {
    // push rax; call +0x100; ret
    let function = [0x50, 0xe8, 0, 1, 0, 0, 0xc3];
    let moved = moved(&function).expect("it can be moved");
    let jump = jump(TO + 7, AT + 6 + 0x100).expect("near");
    let mut expected = [0u8; 20];
    expected[..7].copy_from_slice(&[0x50, 0xff, 0x35, 5, 0, 0, 0]);
    expected[7..12].copy_from_slice(&jump);
    expected[12..].copy_from_slice(&(AT + 6).to_le_bytes());
    assert_eq!((moved.code(), moved.pushes_return), (&expected[..], true));
}

#[test]
fn position_dependent_instructions_are_rejected() {
    for function in [
        &[0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3][..], // call rax
        &[0xff, 0x15, 0, 0, 0, 0, 0xc3],           // call [rip]
        &[0xe3, 0x10, 0x90, 0x90, 0x90, 0xc3],     // jrcxz
        &[0xe2, 0x10, 0x90, 0x90, 0x90, 0xc3],     // loop
    ] {
        assert_eq!(moved(function), Err(Unmovable::Instruction), "{function:x?}");
    }
    // lea eax, [eip + 0x100]
    let narrow = [0x67, 0x8d, 0x05, 0, 1, 0, 0, 0xc3];
    assert_eq!(moved(&narrow), Err(Unmovable::Instruction));
}

#[test]
fn short_functions_are_rejected() {
    assert_eq!(moved(&[0xc3]), Err(Unmovable::TooShort));
    assert_eq!(moved(&[0x31, 0xc0, 0xc3]), Err(Unmovable::TooShort));
    assert_eq!(moved(&[]), Err(Unmovable::TooShort));
    // xor eax, eax; ret; followed by another function
    let followed = [0x31, 0xc0, 0xc3, 0x50, 0x58, 0xc3];
    assert_eq!(relocate(&followed, 3, AT, TO), Err(Unmovable::TooShort));
    // xor eax, eax; ret; nop word ptr [rax + rax]: padding up to the next function
    let padded = [0x31, 0xc0, 0xc3, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
    assert_eq!(relocate(&padded, 3, AT, TO).expect("padded").code(), &padded[..3]);
}

#[test]
fn a_jump_back_to_the_start_is_rejected() {
    // dec rdi; jne to byte -2 of itself, into the moved bytes; ret
    let inside = [0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3];
    assert_eq!(moved(&inside), Err(Unmovable::JumpInside));
    // push rax ×5; pop rax; jmp to the third push
    let later = [0x50, 0x50, 0x50, 0x50, 0x50, 0x58, 0xeb, 0xfa];
    assert_eq!(moved(&later), Err(Unmovable::JumpInside));
    // the same to the pop, which is not moved
    let behind = [0x50, 0x50, 0x50, 0x50, 0x50, 0x58, 0xeb, 0xfd];
    assert_moved(&behind, &behind[..5], 0, 5);
}

#[test]
fn unknown_instructions_are_rejected() {
    assert_eq!(moved(&[0x06; 8]), Err(Unmovable::Unknown)); // push es
    assert_eq!(moved(&[0x50, 0x50, 0x50, 0x50, 0x50, 0x06]), Err(Unmovable::Unknown));
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
