//! x86-64: arguments in rdi, rsi, rdx, rcx, r8 and r9, the return address on the stack.

use super::target::Target;
use crate::microtask::Microtask;
use heaptide_format::attachment::MEMORY_FUNCTIONS;

/// The number of the processor in ELF headers.
pub const ELF_MACHINE: u16 = 62;

/// Makes the processor execute modified code; this one detects changes by itself.
pub fn code_has_changed(_: u64, _: usize) {}

/// Calls `visit` with the target of each direct call or jump in the code at `start`. Instructions
/// are not decoded, so some targets belong to none.
pub fn each_target(code: &[u8], start: u64, mut visit: impl FnMut(Target)) {
    let relative = |at: usize| {
        let bytes = code.get(at..)?.first_chunk::<4>()?;
        let end = start.wrapping_add(at as u64 + 4);
        Some(end.wrapping_add_signed(i32::from_le_bytes(*bytes).into()))
    };
    for (at, pair) in code.windows(2).enumerate() {
        let near = |distance: u8| {
            let end = start.wrapping_add(at as u64 + 2);
            Some(Target::Code(end.wrapping_add_signed((distance as i8).into())))
        };
        let target = match *pair {
            [0xeb | 0x70..=0x7f, distance] => near(distance),
            [0xe8 | 0xe9, _] => relative(at + 1).map(Target::Code),
            [0x0f, 0x80..=0x8f] => relative(at + 2).map(Target::Code),
            [0xff, 0x15 | 0x25] => relative(at + 2).map(Target::Slot),
            _ => None,
        };
        target.into_iter().for_each(&mut visit);
    }
}

/// Returns the word from which the code at `start`, an entry of a procedure linkage table, takes
/// the address that it jumps to.
pub fn slot_of_linkage(code: &[u8; 16], start: u64) -> Option<u64> {
    const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let skipped = if code.starts_with(ENDBR) { ENDBR.len() } else { 0 };
    let skipped = skipped + usize::from(code.get(skipped) == Some(&0xf2));
    let rest = code.get(skipped..)?.strip_prefix(&[0xff, 0x25])?;
    let end = start.wrapping_add(skipped as u64 + 6);
    Some(end.wrapping_add_signed(i32::from_le_bytes(*rest.first_chunk()?).into()))
}

/// The function for `rust_eh_personality`, which is never called.
#[cfg(panic = "abort")]
macro_rules! trap {
    () => {
        "ud2"
    };
}
#[cfg(panic = "abort")]
pub(crate) use trap;

core::arch::global_asm!(
    // Arguments as in C. The length of most copies is a few words, which these instructions copy in
    // some thirty cycles.
    ".pushsection .text.heaptide_memory,\"ax\",@progbits",
    "heaptide_memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "heaptide_memmove:",
    "mov rax, rdi",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "mov rcx, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2:", // the target begins inside of the source: from the end
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "heaptide_memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "heaptide_bcmp:",
    "xor eax, eax",
    "2:",
    "test rdx, rdx",
    "je 3f",
    "dec rdx",
    "mov cl, byte ptr [rdi + rdx]",
    "cmp cl, byte ptr [rsi + rdx]",
    "je 2b",
    "inc eax",
    "3:",
    "ret",
    "heaptide_strlen:",
    "xor eax, eax",
    "jmp 3f",
    "2:",
    "inc rax",
    "3:",
    "cmp byte ptr [rdi + rax], 0",
    "jne 2b",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn heaptide_memcpy();
    fn heaptide_memmove();
    fn heaptide_memset();
    fn heaptide_bcmp();
    fn heaptide_strlen();
}

/// The [`MEMORY_FUNCTIONS`], for programs that may lack them.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals, reason = "its name for the command")]
pub static heaptide_memory_functions: [unsafe extern "C" fn(); MEMORY_FUNCTIONS.len()] =
    [heaptide_memcpy, heaptide_memmove, heaptide_memset, heaptide_bcmp, heaptide_strlen];

/// Finds the thread's lane, and jumps to `slow` if there is none with an open gate.
macro_rules! find_open_lane {
    ($lane:literal, $slow:literal) => {
        concat!(
            "mov rax, qword ptr [rip + heaptide_tls@GOTTPOFF]\n",
            "mov ",
            $lane,
            ", qword ptr fs:[rax]\n",
            "test ",
            $lane,
            ", ",
            $lane,
            "\n",
            "je ",
            $slow,
            "\n",
            "cmp qword ptr [",
            $lane,
            " + {gate}], {open}\n",
            "jne ",
            $slow,
            "\n",
        )
    };
}
pub(crate) use find_open_lane;

/// Enters the recorder and calls the real malloc for the bytes in rdi. Afterwards the block is in
/// rax, the bytes in rsi.
macro_rules! enter_and_allocate {
    ($slow:literal) => {
        concat!(
            $crate::arch::find_open_lane!("rdx", $slow),
            "mov qword ptr [rdx + {gate}], rsp\n",
            "mov qword ptr [rdx + {gate_bp}], rbp\n",
            "push rdi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call qword ptr [rip + {malloc}]\n",
            "pop rsi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "mov rdx, qword ptr [rip + heaptide_tls@GOTTPOFF]\n",
            "mov rdx, qword ptr fs:[rdx]\n",
        )
    };
}
pub(crate) use enter_and_allocate;

/// Continues with the lane's route, with the block in rdi, outside of the recorder. Passes the
/// registers that unwinding starts from.
macro_rules! release_by_route {
    () => {
        concat!(
            $crate::arch::find_open_lane!("rsi", "2f"),
            "mov rdx, rsp\n",
            "mov rcx, rbp\n",
            "jmp qword ptr [rsi + {free}]\n",
        )
    };
}
pub(crate) use release_by_route;

/// Calls the body; jumps to the real function if it returns null.
macro_rules! body_or_real {
    () => {
        concat!(
            "mov rcx, rsp\n",
            "mov r8, rbp\n",
            "lea r9, [rip + {real}]\n",
            "push rdi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rsi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "sub rsp, 8\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call {body}\n",
            "add rsp, 8\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rsi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rdi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "test rax, rax\n",
            "je 2f\n",
            "ret\n",
            "2: jmp qword ptr [rip + {real}]\n",
        )
    };
}
pub(crate) use body_or_real;

/// Defines the function of a hook, from its kind, symbol and body ([`crate::hooks`] lists the
/// kinds).
macro_rules! hook {
    (allocate $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [
            "mov rcx, rsp", "mov r8, rbp", "lea r9, [rip + {real}]", "jmp {body}",
        ] [body = sym $body] }
    };
    (malloc $symbol:ident $body:path) => {
        $crate::hooks::entry! { $symbol [
            $crate::arch::enter_and_allocate!("2f"),
            "mov rdi, rax", "jmp qword ptr [rdx + {allocated}]",
            "2:", "mov rcx, rsp", "mov r8, rbp", "lea r9, [rip + {real}]", "jmp {body}",
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
            "test rdi, rdi", "je 4f",
            "cmp byte ptr [rip + {real} + {runtime}], 0", "je 4f",
            $crate::arch::enter_and_allocate!("4f"),
            "mov byte ptr [rdx + {call}], {new}",
            "test rax, rax", "je 3f",
            "mov rdi, rax", "jmp qword ptr [rdx + {allocated}]",
            "3:", "push rsi", ".cfi_adjust_cfa_offset 8",
            "mov rdi, rdx", "call {failed}",
            "pop rdi", ".cfi_adjust_cfa_offset -8",
            "jmp qword ptr [rip + {real}]",
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
            "cmp byte ptr [rip + {real} + {runtime}], 0", "je 2f",
            $crate::arch::release_by_route!(),
            "2:", "mov rcx, rsp", "mov r8, rbp", "lea r9, [rip + {real}]", "jmp {body}",
        ] [
            body = sym $body, runtime = const Real::<()>::RUNTIME_AT, gate = const GATE,
            open = const Gate::OPEN, free = const FREE
        ] }
    };
}
pub(crate) use hook;

/// Calls the body with six register arguments, and the entry's registers.
macro_rules! call_with_registers {
    ($body:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, rsp",
            "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
            "push rbp", ".cfi_adjust_cfa_offset 8",
            "push rax", ".cfi_adjust_cfa_offset 8",
            "call {body}",
            "add rsp, 24", ".cfi_adjust_cfa_offset -24",
            "ret",
            ".cfi_endproc",
            body = sym $body)
    };
}
pub(crate) use call_with_registers;

/// Returns the seventh argument of the function whose entry passed `sp`.
///
/// # Safety
/// The function has not returned, and has at least seven arguments.
pub unsafe fn seventh_argument(sp: u64) -> usize {
    // SAFETY: at the entry of a function, the word above the return address belongs to the caller.
    unsafe { *((sp + 8) as *const usize) }
}

/// Defines a hook with up to three arguments that calls `before` and jumps to the address that it
/// returns, because the loader identifies the caller by the return address.
macro_rules! jump_after {
    ($before:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi", ".cfi_adjust_cfa_offset 8",
            "push rsi", ".cfi_adjust_cfa_offset 8",
            "push rdx", ".cfi_adjust_cfa_offset 8",
            "call {before}",
            "pop rdx", ".cfi_adjust_cfa_offset -8",
            "pop rsi", ".cfi_adjust_cfa_offset -8",
            "pop rdi", ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            before = sym $before)
    };
}
pub(crate) use jump_after;

/// Jumps to the real function if its first argument has no bit among the first `numbers` of
/// `watched`, otherwise to the address that `before` returns, with six arguments.
macro_rules! look_and_jump {
    ($numbers:expr, $watched:path, $real:path, $before:path) => {
        core::arch::naked_asm!(
".cfi_startproc",
        "cmp rdi, {numbers}", "jae 2f",
        "bt qword ptr [rip + {watched}], rdi", "jc 3f",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax", "je 3f", "jmp rax",
        "3:",
        "push rdi", ".cfi_adjust_cfa_offset 8",
        "push rsi", ".cfi_adjust_cfa_offset 8",
        "push rdx", ".cfi_adjust_cfa_offset 8",
        "push rcx", ".cfi_adjust_cfa_offset 8",
        "push r8", ".cfi_adjust_cfa_offset 8",
        "push r9", ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8", ".cfi_adjust_cfa_offset -8",
        "pop r9", ".cfi_adjust_cfa_offset -8",
        "pop r8", ".cfi_adjust_cfa_offset -8",
        "pop rcx", ".cfi_adjust_cfa_offset -8",
        "pop rdx", ".cfi_adjust_cfa_offset -8",
        "pop rsi", ".cfi_adjust_cfa_offset -8",
        "pop rdi", ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
numbers = const $numbers, watched = sym $watched, real = sym $real, before = sym $before)
    };
}
pub(crate) use look_and_jump;

/// Builds an array of variadic arguments: those in registers are stored in front of those on the
/// stack, replacing the return address.
macro_rules! list_arguments {
    ($body:path) => {
            core::arch::naked_asm!(
".cfi_startproc",
                "pop rax", ".cfi_adjust_cfa_offset -8", ".cfi_register rip, rax",
                "push r9", ".cfi_adjust_cfa_offset 8",
                "push r8", ".cfi_adjust_cfa_offset 8",
                "push rcx", ".cfi_adjust_cfa_offset 8",
                "push rdx", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rip, 0",
                "call {body}",
                "pop rcx", ".cfi_adjust_cfa_offset -8", ".cfi_register rip, rcx",
                "add rsp, 40", ".cfi_adjust_cfa_offset -40",
                "push rcx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rip, 0",
                "ret",
                ".cfi_endproc",
body = sym $body)
    };
}
pub(crate) use list_arguments;

/// Defines the target of the stubs of intercepted functions.
macro_rules! family_entry {
    () => {{
        /// Entered with the function's record on the stack, above the return address. Preserves the
        /// general registers except the result's, because callers in the same file know which
        /// registers the function changes (`-fipa-ra` of GCC).
        #[unsafe(naked)]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                ".cfi_def_cfa_offset 16",
                "push r11",
                "push r10",
                "push rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 80",
                "lea rdi, [rsp + 8]",
                "lea rsi, [rsp + 88]",
                "mov rdx, rbp",
                "mov rcx, [rsp + 80]",
                "call qword ptr [rcx]",
                "add rsp, 8",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop r8",
                "pop r9",
                "add rsp, 8",
                "pop r10",
                "pop r11",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -88",
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
        /// Entered with the function's record on the stack, above the return address. Callers are
        /// in other libraries, so it may change the registers that functions may change.
        #[unsafe(naked)]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                ".cfi_def_cfa_offset 16",
                "pop r11",
                ".cfi_adjust_cfa_offset -8",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "push r11",
                ".cfi_adjust_cfa_offset 56",
                "lea rdi, [rsp + 8]",
                "lea rsi, [rsp + 56]",
                "mov rdx, rbp",
                "call qword ptr [r11]",
                "pop r11",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop r8",
                "pop r9",
                ".cfi_adjust_cfa_offset -56",
                "jmp qword ptr [r11 + 8]",
                ".cfi_endproc",
            )
        }
        entered as *const () as u64
    }};
}
pub(crate) use notified_entry;

/// Returns three words of arguments behind the registers, of a function of a family whose entry
/// passed its registers and stack pointer. Arguments that it does not have are undefined.
///
/// # Safety
/// The function has not returned.
pub unsafe fn stacked_of_family(_: *const usize, sp: u64) -> [usize; 3] {
    // SAFETY: as in `seventh_argument`; above them is the frame of the caller.
    unsafe { *((sp + 8) as *const [usize; 3]) }
}

/// Returns a structure of three words that is an argument by value: it is on the stack, and takes
/// no register.
///
/// # Safety
/// The function has such an argument, which is the only one on the stack.
pub unsafe fn extent_argument(arguments: &[usize; 9], _: usize) -> [usize; 3] {
    let &[.., width, height, depth] = arguments;
    [width, height, depth]
}

/// The position of the argument behind a structure at position 2.
pub const BEHIND_EXTENT: usize = 2;

/// The number of argument registers.
pub const REGISTERS: usize = 6;

/// Defines the target of the stubs of OpenMP's functions. Outside of all scopes, the function
/// continues in its moved start. The arguments are the offsets of the number of scopes in the
/// thread's block, and of the body and the moved start in the function's record.
macro_rules! openmp_entry {
    ($depth:expr, $body:expr, $moved:expr) => {{
        /// Entered with the function's record on the stack, above the return address. Callers in
        /// the same file know only that the function calls others, so it may change the registers
        /// that functions may change.
        #[unsafe(naked)]
        #[unsafe(link_section = "heaptide_openmp")]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                ".cfi_def_cfa_offset 16",
                "pop r11",
                ".cfi_adjust_cfa_offset -8",
                "mov r10, qword ptr [rip + heaptide_tls@GOTTPOFF]",
                "cmp dword ptr fs:[r10 + {depth}], 0",
                "jne 2f",
                "jmp qword ptr [r11 + {moved}]",
                "2:",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "lea rsi, [rsp + 56]",
                "mov rdx, r11",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 56",
                "call qword ptr [r11 + {body}]",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
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
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov r11, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov r10, qword ptr [r11 + {rest}]",
        "mov rax, qword ptr [r11 + {count}]",
        "sub rax, 4",
        "jle 3f",
        "lea rcx, [rax + 1]",
        "and rcx, -2",
        "shl rcx, 3",
        "sub rsp, rcx",
        "2:",
        "mov rcx, qword ptr [r10 + 8 * rax]",
        "mov qword ptr [rsp + 8 * rax - 8], rcx",
        "dec rax",
        "jnz 2b",
        "3:",
        "mov rax, qword ptr [r11 + {first}]",
        "mov rdx, qword ptr [rax]",
        "mov rcx, qword ptr [rax + 8]",
        "mov r8, qword ptr [rax + 16]",
        "mov r9, qword ptr [r10]",
        "call qword ptr [r11 + {function}]",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
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
        /// registers except vector registers, because compilers know which registers functions of
        /// the same library change.
        #[unsafe(naked)]
        unsafe extern "C" fn noticed() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rax",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                ".cfi_adjust_cfa_offset 72",
                "call {look}",
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop rax",
                ".cfi_adjust_cfa_offset -72",
                "jmp qword ptr [rip + {own}]",
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
        core::arch::naked_asm!("jmp {body}", body = sym $body)
    };
}
pub(crate) use jump;
