//! aarch64: arguments in x0 to x7, the return address in x30. An entry creates a frame record,
//! whose address it passes as the stack pointer of the event, and removes it at its end.

use super::target::Target;
use crate::microtask::Microtask;
use core::arch::asm;

/// The number of the processor in ELF headers.
pub const ELF_MACHINE: u16 = 183;

/// Makes the processor execute modified code, because its instruction caches do not detect changes.
pub fn code_has_changed(start: u64, bytes: usize) {
    let sizes: u64;
    // SAFETY: reads a register that Linux lets every process read.
    unsafe { asm!("mrs {0}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags)) };
    let line = |shift: u32| 4u64 << (sizes >> shift & 15);
    let (data, code) = (line(16), line(0));
    let lines = |line: u64| (start & !(line - 1)..start + bytes as u64).step_by(line as usize);
    // SAFETY: the lines are mapped; their contents do not change.
    unsafe {
        lines(data).for_each(|at| asm!("dc cvau, {0}", in(reg) at, options(nostack)));
        asm!("dsb ish", options(nostack));
        lines(code).for_each(|at| asm!("ic ivau, {0}", in(reg) at, options(nostack)));
        asm!("dsb ish", "isb", options(nostack));
    }
}

/// Calls `visit` with the target of each direct call or jump in the code at `start`.
pub fn each_target(code: &[u8], start: u64, mut visit: impl FnMut(Target)) {
    for (index, word) in code.as_chunks::<4>().0.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        if word & 0x7c00_0000 == 0x1400_0000 {
            let offset = i64::from((word << 6) as i32 >> 4);
            let at = start.wrapping_add(index as u64 * 4);
            visit(Target::Code(at.wrapping_add_signed(offset)));
        }
    }
}

/// Returns the word from which the code at `start`, an entry of a procedure linkage table, takes
/// the address that it jumps to.
pub fn slot_of_linkage(code: &[u8; 16], start: u64) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let word = |at: usize| code.as_chunks::<4>().0.get(at).map(|word| u32::from_le_bytes(*word));
    let first = usize::from(word(0) == Some(BTI_C));
    // adrp x16, page; ldr x17, [x16, offset]
    let page = word(first).filter(|word| word & 0x9f00_001f == 0x9000_0010)?;
    let load = word(first + 1).filter(|word| word & 0xffc0_03ff == 0xf940_0211)?;
    let pages = i64::from(((page >> 5 & 0x7_ffff) << 13) as i32 >> 11) | i64::from(page >> 29 & 3);
    let place = start.wrapping_add(first as u64 * 4) & !4095;
    Some(place.wrapping_add_signed(pages << 12).wrapping_add(u64::from(load >> 10 & 0xfff) * 8))
}

/// The function for `rust_eh_personality`, which is never called.
#[cfg(panic = "abort")]
macro_rules! trap {
    () => {
        "brk #1"
    };
}
#[cfg(panic = "abort")]
pub(crate) use trap;

/// Loads the thread's lane.
macro_rules! load_lane {
    ($lane:literal) => {
        concat!(
            "adrp x9, :gottprel:heaptide_tls\n",
            "ldr x9, [x9, :gottprel_lo12:heaptide_tls]\n",
            "mrs x11, tpidr_el0\n",
            "ldr ",
            $lane,
            ", [x11, x9]\n",
        )
    };
}
pub(crate) use load_lane;

/// Finds the thread's lane, and jumps to `slow` if there is none with an open gate.
macro_rules! find_open_lane {
    ($lane:literal, $slow:literal) => {
        concat!(
            $crate::arch::load_lane!($lane),
            "cbz ",
            $lane,
            ", ",
            $slow,
            "\n",
            "ldr x11, [",
            $lane,
            ", #{gate}]\n",
            "cmp x11, #{open}\n",
            "b.ne ",
            $slow,
            "\n",
        )
    };
}
pub(crate) use find_open_lane;

/// Creates the frame record, enters the recorder and calls the real malloc for the bytes in x0.
/// Afterwards the block is in x0, the bytes in x1, the lane in x2.
macro_rules! enter_and_allocate {
    ($slow:literal) => {
        concat!(
            $crate::arch::find_open_lane!("x10", $slow),
            heaptide_recorder::push_record!(),
            "mov x11, sp\n",
            "str x11, [x10, #{gate}]\n",
            "str x29, [x10, #{gate_bp}]\n",
            "mov x29, sp\n",
            "str x0, [sp, #-16]!\n",
            ".cfi_adjust_cfa_offset 16\n",
            "adrp x16, {malloc}\n",
            "ldr x16, [x16, :lo12:{malloc}]\n",
            "blr x16\n",
            "ldr x1, [sp], #16\n",
            ".cfi_adjust_cfa_offset -16\n",
            $crate::arch::load_lane!("x2"),
        )
    };
}
pub(crate) use enter_and_allocate;

/// Continues with the lane's route, with the block in x0, the bytes in x1 and the lane in x2; then
/// returns.
macro_rules! allocated_by_route {
    () => {
        concat!(
            ".cfi_remember_state\n",
            "ldr x16, [x2, #{allocated}]\n",
            "blr x16\n",
            heaptide_recorder::pop_record!(),
            "ret\n",
            ".cfi_restore_state\n",
        )
    };
}
pub(crate) use allocated_by_route;

/// Continues with the lane's route, with the block in x0, outside of the recorder; then returns.
/// Passes the registers that unwinding starts from.
macro_rules! release_by_route {
    () => {
        concat!(
            $crate::arch::find_open_lane!("x1", "2f"),
            heaptide_recorder::push_record!(),
            "mov x2, sp\n",
            "mov x3, x29\n",
            "mov x29, sp\n",
            "ldr x16, [x1, #{free}]\n",
            "blr x16\n",
            heaptide_recorder::pop_record!(),
            "ret\n",
        )
    };
}
pub(crate) use release_by_route;

/// Calls the body with three arguments, the entry's registers and `real`; then returns.
macro_rules! body {
    () => {
        concat!(
            heaptide_recorder::push_record!(),
            "mov x3, sp\n",
            "mov x4, x29\n",
            "adrp x5, {real}\n",
            "add x5, x5, :lo12:{real}\n",
            "mov x29, sp\n",
            "bl {body}\n",
            heaptide_recorder::pop_record!(),
            "ret\n",
        )
    };
}
pub(crate) use body;

/// Jumps to the real function.
macro_rules! jump_to_real {
    () => {
        "adrp x16, {real}\nldr x16, [x16, :lo12:{real}]\nbr x16\n"
    };
}
pub(crate) use jump_to_real;

/// Calls the body; jumps to the real function if it returns null.
macro_rules! body_or_real {
    () => {
        concat!(
            heaptide_recorder::push_record!(),
            "mov x3, sp\n",
            "mov x4, x29\n",
            "adrp x5, {real}\n",
            "add x5, x5, :lo12:{real}\n",
            "mov x29, sp\n",
            "stp x0, x1, [sp, #-16]!\n",
            ".cfi_adjust_cfa_offset 16\n",
            "bl {body}\n",
            "ldp x9, x10, [sp], #16\n",
            ".cfi_adjust_cfa_offset -16\n",
            heaptide_recorder::pop_record!(),
            "cbz x0, 2f\n",
            "ret\n",
            "2: mov x0, x9\n",
            "mov x1, x10\n",
            $crate::arch::jump_to_real!(),
        )
    };
}
pub(crate) use body_or_real;

/// Jumps to `slow` unless the real function is that of a C++ runtime.
macro_rules! if_runtime {
    ($slow:literal) => {
        concat!(
            "adrp x9, {real}\n",
            "add x9, x9, :lo12:{real}\n",
            "ldrb w9, [x9, #{runtime}]\n",
            "cbz w9, ",
            $slow,
            "\n",
        )
    };
}
pub(crate) use if_runtime;

/// Defines the function of a hook, from its kind, symbol and body ([`crate::hooks`] lists the
/// kinds).
macro_rules! hook {
    (allocate $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [$crate::arch::body!()] [body = sym $body] }
    };
    (malloc $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [
            $crate::arch::enter_and_allocate!("2f"),
            $crate::arch::allocated_by_route!(),
            ".cfi_def_cfa sp, 0", ".cfi_restore x29", ".cfi_restore x30",
            "2:", $crate::arch::body!(),
        ] [
            body = sym $body, malloc = sym REAL_MALLOC, gate = const GATE, gate_bp = const GATE_BP,
            open = const Gate::OPEN, allocated = const ALLOCATED
        ] }
    };
    (throwing $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [$crate::arch::body_or_real!()] [body = sym $body] }
    };
    (new $symbol:ident $body:path, $failed:path) => {
        $crate::hooks::entry! { $symbol [
            "cbz x0, 4f",
            $crate::arch::if_runtime!("4f"),
            $crate::arch::enter_and_allocate!("4f"),
            "mov w9, #{new}", "strb w9, [x2, #{call}]",
            "cbz x0, 3f",
            $crate::arch::allocated_by_route!(),
            "3:", "str x1, [sp, #-16]!", ".cfi_adjust_cfa_offset 16",
            "mov x0, x2", "bl {failed}",
            "ldr x0, [sp], #16", ".cfi_adjust_cfa_offset -16",
            heaptide_recorder::pop_record!(),
            $crate::arch::jump_to_real!(),
            "4:", $crate::arch::body_or_real!(),
        ] [
            body = sym $body, failed = sym $failed, runtime = const Real::<()>::RUNTIME_AT,
            call = const CALL, new = const Call::New as u8,
            malloc = sym REAL_MALLOC, gate = const GATE, gate_bp = const GATE_BP,
            open = const Gate::OPEN, allocated = const ALLOCATED
        ] }
    };
    (free $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol {} [
            $crate::arch::release_by_route!(),
            "2:", heaptide_recorder::pass_registers!(1),
        ] [body = sym $body, gate = const GATE, open = const Gate::OPEN, free = const FREE] }
    };
    (delete $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [
            $crate::arch::if_runtime!("2f"),
            $crate::arch::release_by_route!(),
            "2:", $crate::arch::body!(),
        ] [
            body = sym $body, runtime = const Real::<()>::RUNTIME_AT, gate = const GATE,
            open = const Gate::OPEN, free = const FREE
        ] }
    };
}
pub(crate) use hook;

/// Calls the body with six register arguments, and the entry's registers. The seventh argument is
/// stored below the frame record ([`seventh_argument`]).
macro_rules! call_with_registers {
    ($body:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            heaptide_recorder::push_record!(),
            "stp x6, xzr, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            "add x6, sp, #16",
            "mov x7, x29",
            "mov x29, x6",
            "bl {body}",
            "add sp, sp, #16",
            ".cfi_adjust_cfa_offset -16",
            heaptide_recorder::pop_record!(),
            "ret",
            ".cfi_endproc",
            body = sym $body)
    };
}
pub(crate) use call_with_registers;

/// Returns the seventh argument of the function whose entry passed `sp`.
///
/// # Safety
/// The function has not returned, and was entered through [`call_with_registers`].
pub unsafe fn seventh_argument(sp: u64) -> usize {
    // SAFETY: the entry stores it below its frame record.
    unsafe { *((sp - 16) as *const usize) }
}

/// Defines a hook with two arguments that calls `before` and jumps to the address that it returns,
/// because the loader identifies the caller by the return address.
macro_rules! jump_after {
    ($before:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            heaptide_recorder::push_record!(),
            "mov x29, sp",
            "stp x0, x1, [sp, #-32]!",
            ".cfi_adjust_cfa_offset 32",
            "str x2, [sp, #16]",
            "bl {before}",
            "mov x16, x0",
            "ldr x2, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            ".cfi_adjust_cfa_offset -32",
            heaptide_recorder::pop_record!(),
            "br x16",
            ".cfi_endproc",
            before = sym $before)
    };
}
pub(crate) use jump_after;

/// Jumps to the real function if its first argument has no bit among the first `numbers` of
/// `watched`, otherwise to the address that `before` returns, with seven arguments.
macro_rules! look_and_jump {
    ($numbers:expr, $watched:path, $real:path, $before:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp x0, #{numbers}",
            "b.hs 2f",
            "adrp x9, {watched}",
            "add x9, x9, :lo12:{watched}",
            "lsr x10, x0, #6",
            "ldr x9, [x9, x10, lsl #3]",
            "lsr x9, x9, x0",
            "tbnz x9, #0, 3f",
            "2:",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 3f",
            "br x16",
            "3:",
            heaptide_recorder::push_record!(),
            "mov x29, sp",
            "stp x0, x1, [sp, #-64]!",
            ".cfi_adjust_cfa_offset 64",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "str x6, [sp, #48]",
            "bl {before}",
            "mov x16, x0",
            "ldr x6, [sp, #48]",
            "ldp x4, x5, [sp, #32]",
            "ldp x2, x3, [sp, #16]",
            "ldp x0, x1, [sp], #64",
            ".cfi_adjust_cfa_offset -64",
            heaptide_recorder::pop_record!(),
            "br x16",
            ".cfi_endproc",
            numbers = const $numbers, watched = sym $watched, real = sym $real,
            before = sym $before)
    };
}
pub(crate) use look_and_jump;

/// Builds an array of variadic arguments: those in registers are stored in front of those on the
/// stack.
macro_rules! list_arguments {
    ($body:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #64",
            ".cfi_adjust_cfa_offset 64",
            "str x1, [sp, #8]",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "stp x6, x7, [sp, #48]",
            "add x1, sp, #8",
            heaptide_recorder::push_record!(),
            "mov x29, sp",
            "bl {body}",
            heaptide_recorder::pop_record!(),
            "add sp, sp, #64",
            ".cfi_adjust_cfa_offset -64",
            "ret",
            ".cfi_endproc",
            body = sym $body)
    };
}
pub(crate) use list_arguments;

/// Defines the target of the stubs of intercepted functions.
macro_rules! family_entry {
    () => {{
        /// Entered with the function's record in x17. Preserves the general registers except the
        /// result's, because callers in the same file know which registers the function changes
        /// (`-fipa-ra` of GCC); x16 and x17 may change, because linkers' veneers change them.
        #[unsafe(naked)]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                heaptide_recorder::push_record!(),
                "sub sp, sp, #144",
                ".cfi_adjust_cfa_offset 144",
                "stp x0, x1, [sp]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x0, x6, [sp, #48]",
                "stp x7, x8, [sp, #64]",
                "stp x9, x10, [sp, #80]",
                "stp x11, x12, [sp, #96]",
                "stp x13, x14, [sp, #112]",
                "stp x15, x18, [sp, #128]",
                "mov x0, sp",
                "add x1, sp, #144",
                "mov x2, x29",
                "mov x3, x17",
                "mov x29, x1",
                "ldr x16, [x17]",
                "blr x16",
                "ldr x1, [sp, #8]",
                "ldp x2, x3, [sp, #16]",
                "ldp x4, x5, [sp, #32]",
                "ldr x6, [sp, #56]",
                "ldp x7, x8, [sp, #64]",
                "ldp x9, x10, [sp, #80]",
                "ldp x11, x12, [sp, #96]",
                "ldp x13, x14, [sp, #112]",
                "ldp x15, x18, [sp, #128]",
                "add sp, sp, #144",
                ".cfi_adjust_cfa_offset -144",
                heaptide_recorder::pop_record!(),
                "ret",
                ".cfi_endproc",
            )
        }
        entered as *const () as u64
    }};
}
pub(crate) use family_entry;

/// Defines the target of the stub of a function that only notifies: it calls the body, which is at
/// the beginning of the function's record, and continues in the moved start, which is behind it.
macro_rules! notified_entry {
    () => {{
        /// Entered with the function's record in x17. Callers are in other libraries, so it may
        /// change the registers that functions may change.
        #[unsafe(naked)]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                heaptide_recorder::push_record!(),
                "sub sp, sp, #80",
                ".cfi_adjust_cfa_offset 80",
                "stp x0, x1, [sp]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "stp x8, x17, [sp, #64]",
                "mov x0, sp",
                "add x1, sp, #80",
                "mov x2, x29",
                "mov x29, x1",
                "ldr x16, [x17]",
                "blr x16",
                "ldp x0, x1, [sp]",
                "ldp x2, x3, [sp, #16]",
                "ldp x4, x5, [sp, #32]",
                "ldp x6, x7, [sp, #48]",
                "ldp x8, x17, [sp, #64]",
                "add sp, sp, #80",
                ".cfi_adjust_cfa_offset -80",
                heaptide_recorder::pop_record!(),
                "ldr x16, [x17, #8]",
                "br x16",
                ".cfi_endproc",
            )
        }
        entered as *const () as u64
    }};
}
pub(crate) use notified_entry;

/// Returns three words: the seventh argument of a function of a family, whose entry passed its
/// registers, and two that are not defined.
///
/// # Safety
/// The function has not returned.
pub unsafe fn stacked_of_family(registers: *const usize, _: u64) -> [usize; 3] {
    // SAFETY: the entry stores it behind the first six and the first again.
    [unsafe { *registers.add(7) }, 0, 0]
}

/// Returns a structure of three words that is an argument by value: the argument at its position is
/// its address.
///
/// # Safety
/// The function has such an argument there.
pub unsafe fn extent_argument(arguments: &[usize; 9], position: usize) -> [usize; 3] {
    // SAFETY: the caller has put it there.
    unsafe { *(arguments[position] as *const [usize; 3]) }
}

/// The position of the argument behind a structure at position 2.
pub const BEHIND_EXTENT: usize = 3;

/// The number of argument registers.
pub const REGISTERS: usize = 8;

/// Defines the target of the stubs of OpenMP's functions. Outside of all scopes, the function
/// continues in its moved start. The arguments are the offsets of the number of scopes in the
/// thread's block, and of the body and the moved start in the function's record.
macro_rules! openmp_entry {
    ($depth:expr, $body:expr, $moved:expr) => {{
        /// Entered with the function's record in x17. Callers in the same file know only that the
        /// function calls others, so it may change the registers that functions may change.
        #[unsafe(naked)]
        #[unsafe(link_section = "heaptide_openmp")]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "adrp x9, :gottprel:heaptide_tls",
                "ldr x9, [x9, :gottprel_lo12:heaptide_tls]",
                "mrs x11, tpidr_el0",
                "add x9, x9, x11",
                "ldr w10, [x9, #{depth}]",
                "cbnz w10, 2f",
                "ldr x16, [x17, #{moved}]",
                "br x16",
                "2:",
                heaptide_recorder::push_record!(),
                "mov x29, sp",
                "sub sp, sp, #64",
                ".cfi_adjust_cfa_offset 64",
                "stp x0, x1, [sp]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "mov x0, sp",
                "add x1, sp, #80",
                "mov x2, x17",
                "ldr x16, [x17, #{body}]",
                "blr x16",
                "add sp, sp, #64",
                ".cfi_adjust_cfa_offset -64",
                heaptide_recorder::pop_record!(),
                "ret",
                ".cfi_endproc",
                depth = const $depth,
                body = const $body,
                moved = const $moved,
            )
        }
        entered as *const () as u64
    }};
}
pub(crate) use openmp_entry;

/// Calls the function of a region with its words.
///
/// # Safety
/// It is a function with two pointers and as many words as the region has.
#[unsafe(naked)]
#[unsafe(link_section = "heaptide_openmp")]
pub unsafe extern "C" fn call_microtask(_: &Microtask, global: *const i32, bound: *const i32) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        heaptide_recorder::push_record!(),
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov x9, x0",
        "mov x0, x1",
        "mov x1, x2",
        "ldr x10, [x9, #{first}]",
        "ldr x11, [x9, #{rest}]",
        "ldr x12, [x9, #{count}]",
        "subs x12, x12, #6",
        "b.le 3f",
        "add x13, x12, #1",
        "and x13, x13, #-2",
        "sub sp, sp, x13, lsl #3",
        "2:",
        "ldr x14, [x11, x12, lsl #3]",
        "sub x12, x12, #1",
        "str x14, [sp, x12, lsl #3]",
        "cbnz x12, 2b",
        "3:",
        "ldp x2, x3, [x10]",
        "ldp x4, x5, [x10, #16]",
        "ldr x6, [x10, #32]",
        "ldr x7, [x11]",
        "ldr x16, [x9, #{function}]",
        "blr x16",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        heaptide_recorder::pop_record!(),
        "ret",
        ".cfi_endproc",
        function = const Microtask::FUNCTION_AT,
        count = const Microtask::COUNT_AT,
        first = const Microtask::FIRST_AT,
        rest = const Microtask::REST_AT,
    )
}

/// Defines the replacement of the loader's function, which calls `look` and continues in `own`.
macro_rules! notice_entry {
    ($look:path, $own:path) => {{
        /// Replaces the loader's function, which has no arguments and no result. Preserves all
        /// registers except x16 and x17, because compilers know which registers functions of the
        /// same library change.
        #[unsafe(naked)]
        unsafe extern "C" fn noticed() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                heaptide_recorder::push_record!(),
                "mov x29, sp",
                "sub sp, sp, #544",
                ".cfi_adjust_cfa_offset 544",
                "stp x0, x1, [sp]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "stp x8, x9, [sp, #64]",
                "stp x10, x11, [sp, #80]",
                "stp x12, x13, [sp, #96]",
                "stp x14, x15, [sp, #112]",
                "str x18, [sp, #128]",
                "stp q0, q1, [sp, #160]",
                "stp q2, q3, [sp, #192]",
                "stp q4, q5, [sp, #224]",
                "stp q6, q7, [sp, #256]",
                "stp q16, q17, [sp, #288]",
                "stp q18, q19, [sp, #320]",
                "stp q20, q21, [sp, #352]",
                "stp q22, q23, [sp, #384]",
                "stp q24, q25, [sp, #416]",
                "stp q26, q27, [sp, #448]",
                "stp q28, q29, [sp, #480]",
                "stp q30, q31, [sp, #512]",
                "bl {look}",
                "ldp q30, q31, [sp, #512]",
                "ldp q28, q29, [sp, #480]",
                "ldp q26, q27, [sp, #448]",
                "ldp q24, q25, [sp, #416]",
                "ldp q22, q23, [sp, #384]",
                "ldp q20, q21, [sp, #352]",
                "ldp q18, q19, [sp, #320]",
                "ldp q16, q17, [sp, #288]",
                "ldp q6, q7, [sp, #256]",
                "ldp q4, q5, [sp, #224]",
                "ldp q2, q3, [sp, #192]",
                "ldp q0, q1, [sp, #160]",
                "ldr x18, [sp, #128]",
                "ldp x14, x15, [sp, #112]",
                "ldp x12, x13, [sp, #96]",
                "ldp x10, x11, [sp, #80]",
                "ldp x8, x9, [sp, #64]",
                "ldp x6, x7, [sp, #48]",
                "ldp x4, x5, [sp, #32]",
                "ldp x2, x3, [sp, #16]",
                "ldp x0, x1, [sp]",
                "add sp, sp, #544",
                ".cfi_adjust_cfa_offset -544",
                heaptide_recorder::pop_record!(),
                "adrp x16, {own}",
                "ldr x16, [x16, :lo12:{own}]",
                "br x16",
                ".cfi_endproc",
                look = sym $look,
                own = sym $own,
            )
        }
        noticed as *const () as u64
    }};
}
pub(crate) use notice_entry;

/// Defines an export that jumps to a function of the recorder.
macro_rules! jump {
    ($body:path) => {
        core::arch::naked_asm!("b {body}", body = sym $body)
    };
}
pub(crate) use jump;
