//! x86-64, System V.

use std::io;

use nix::unistd::Pid;

use super::calls::{Before, Call, Known, NO_STACK_FLAGS, Places};
use crate::memory::Memory;
use crate::ptrace;

/// The general registers of a thread.
pub type Registers = nix::libc::user_regs_struct;

/// Number of registers that unwinding tracks, by their numbers in unwind tables.
pub const UNWOUND: usize = 17;
/// The number of the stack pointer.
pub const SP: usize = 7;
/// The number of the instruction pointer.
pub const PC: usize = 16;
/// The register whose value in the caller is the return address of its callee.
pub const RETURN: usize = PC;
/// Selects the vendor's instructions in unwind tables.
pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
/// The size of a jump.
pub const JUMP_BYTES: usize = 5;

/// The instructions to which a signal handler returns: `mov $15, %rax; syscall`, in glibc and musl.
pub const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `syscall; ret`
pub const SYSTEM_CALL_AND_RETURN: &[u8] = &[0x0f, 0x05, 0xc3];

/// The number of the register set with the vector registers.
const EXTENDED_STATE: i32 = 0x202;
/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// No system call.
const NO_CALL: u64 = u64::MAX;
/// Bytes of the system call instruction.
const SYSTEM_CALL_BYTES: u64 = 2;
const EINTR: u64 = 4;
/// Results of system calls that the kernel will restart. The program never sees them.
const ERESTARTSYS: u64 = 512;
const ERESTARTNOINTR: u64 = 513;
const ERESTARTNOHAND: u64 = 514;
/// Restarted with the remaining time.
const ERESTART_RESTARTBLOCK: u64 = 516;
const RESTART_SYSCALL: u64 = 219;
/// The machine's number in ELF headers.
pub const ELF: [u8; 2] = [62, 0];
/// `mmap`
pub const MMAP: u64 = 9;
/// `munmap`
pub const MUNMAP: u64 = 11;
/// `close`
pub const CLOSE: u64 = 3;
/// `recvmsg`
pub const RECVMSG: u64 = 47;
/// `socketpair`
pub const SOCKETPAIR: u64 = 53;
/// `clone`
pub const CLONE: u64 = 56;
/// `wait4`
pub const WAIT4: u64 = 61;
/// Bits of the addresses of programs.
pub const USER_ADDRESS_BITS: u32 = 47;
/// `fcntl`
pub const FCNTL: u64 = 72;
const RT_SIGRETURN: u64 = 15;

/// System calls that block while the thread holds no lock of the C library: read, write, poll,
/// pause, nanosleep, connect, accept, sendto, recvfrom, sendmsg, recvmsg, select, wait4,
/// rt_sigtimedwait, rt_sigsuspend, futex, epoll_wait, waitid, clock_nanosleep, pselect6, ppoll,
/// epoll_pwait, accept4, recvmmsg, epoll_pwait2, io_getevents, flock, fcntl, semop, semtimedop,
/// msgrcv.
const WAITING: [u64; 31] = [
    0, 1, 7, 34, 35, 42, 43, 44, 45, 46, 47, 23, 61, 128, 130, 202, 232, 247, 230, 270, 271, 281,
    288, 299, 441, 208, 73, 72, 65, 220, 70,
];
/// Those that end when their thread is stopped, even without a signal: epoll_wait, epoll_pwait,
/// epoll_pwait2, semop, semtimedop, rt_sigtimedwait, io_getevents, recvfrom, recvmsg, accept,
/// accept4; those of sockets only with a timeout.
const ENDED_BY_STOPS: [u64; 11] = [232, 281, 441, 65, 220, 128, 208, 45, 47, 43, 288];

/// Returns the address in a return address, which has no signature here.
pub fn code_address(address: u64) -> u64 {
    address
}

/// Returns the thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.fs_base
}

/// Returns the registers of the innermost frame.
pub fn known(registers: &Registers) -> Known<UNWOUND> {
    let r = registers;
    Known {
        values: [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15, r.rip,
        ],
    }
}

/// Returns the registers of the function that a signal interrupted; `sp` is the stack pointer at
/// the handler's return to the kernel.
pub fn interrupted(memory: &Memory, sp: u64) -> Option<Known<UNWOUND>> {
    let mut words = [0u8; 17 * 8];
    memory.read(sp + CONTEXT, &mut words).ok()?;
    let word =
        |index: usize| words[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_ne_bytes);
    // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip
    let order = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16];
    Some(Known { values: order.map(word) })
}

/// Returns the error number of the system call that a thread is in, and the number of the call.
fn call_of(registers: &Registers) -> Option<(u64, u64)> {
    let is_call = registers.orig_rax as i64 >= 0;
    is_call.then(|| (registers.orig_rax, registers.rax.wrapping_neg()))
}

/// Returns the system call in which a stopped thread blocked, and which it will repeat; `None` if
/// it did not block.
fn waited_in(registers: &Registers) -> Option<u64> {
    let (call, error) = call_of(registers)?;
    let is_made_again = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK];
    let is_ended = error == EINTR && ENDED_BY_STOPS.contains(&call);
    (is_made_again.contains(&error) || is_ended).then_some(call)
}

/// Returns whether a stopped thread blocked in a system call during which it holds no lock of the C
/// library.
pub fn is_waiting(registers: &Registers) -> bool {
    waited_in(registers).is_some_and(|call| WAITING.contains(&call))
}

/// Returns whether a stopped thread waits with a timeout: if this command is killed during a call
/// by that thread, the thread waits for the whole time again, or its call fails with EINTR.
pub fn is_timed(registers: &Registers) -> bool {
    call_of(registers).is_some_and(|(_, error)| error == ERESTART_RESTARTBLOCK)
}

/// Returns the registers that repeat a call which ended because its thread was stopped, unless a
/// signal arrived; `None` for all other calls.
pub fn made_again(registers: &Registers) -> Option<Registers> {
    let (call, error) = call_of(registers)?;
    let is_ended = error == EINTR && ENDED_BY_STOPS.contains(&call);
    is_ended.then(|| Registers { rax: ERESTARTNOHAND.wrapping_neg(), ..*registers })
}

/// The offset of the registers in the frame that the kernel reads when a handler returns.
const CONTEXT: u64 = 40;
/// The offset of the pointer to the vector registers.
const EXTENDED_POINTER: usize = 224;
/// The offset of the blocked signals.
const MASK: usize = 296;
const FRAME_BYTES: usize = 304;
/// Flags: vector registers are present, and the stack segment is valid.
const FLAGS: u64 = 7;
/// The offset of the description in the vector registers: magic number, total length, features
/// present, length.
const DESCRIPTION: usize = 464;
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// The offset of the set of vector registers that are not in their initial state.
const PRESENT: usize = 512;
/// The registers of AMX, which a program has to request.
const ASKED_FOR: u64 = 1 << 18;
/// Bytes of the registers that all processors have, and of the header after them.
const LEGACY_BYTES: usize = 576;

/// Writes a signal frame on the stack, with which the kernel restores all registers after the call,
/// even if this command is killed. Returns the registers with which the thread starts the call.
///
/// `top` is the end of unused memory: below the red zone of the thread's own stack, or another
/// address.
///
/// Errors: the memory does not exist.
pub fn prepare(
    memory: &Memory,
    before: &Before<Registers>,
    top: u64,
    places: Places,
    call: Call,
) -> io::Result<Registers> {
    let extended = described(&before.extended);
    let room = extended.len() as u64;
    let extended_at = (top - room) & !63;
    let mut frame_at = (extended_at - FRAME_BYTES as u64) & !15;
    let mut rsp = frame_at - 8;
    if call.is_asked {
        // The function returns to a system call instruction, so its result becomes the number of an
        // invalid call.
        frame_at -= 8;
        rsp = frame_at - 16;
        memory.write(rsp, &places.system_call.to_ne_bytes())?;
    }
    let mut frame = [0u8; FRAME_BYTES];
    let mut put = |at: usize, value: u64| frame[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    put(0, FLAGS);
    put(24, u64::from(NO_STACK_FLAGS));
    let r = begun_anew(&before.registers);
    let words = [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ];
    for (index, word) in words.into_iter().enumerate() {
        put(CONTEXT as usize + index * 8, word);
    }
    put(CONTEXT as usize + 18 * 8, r.cs & 0xffff | (r.ss & 0xffff) << 48);
    put(EXTENDED_POINTER, extended_at);
    put(MASK, before.mask);
    memory.write(extended_at, &extended)?;
    memory.write(frame_at, &frame)?;
    memory.write(frame_at - 8, &places.signal_return.to_ne_bytes())?;
    let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
    let rcx = if call.number == 0 { r10 } else { r.rcx };
    Ok(Registers {
        rip: call.function,
        rsp,
        rax: call.number,
        orig_rax: NO_CALL,
        rdi,
        rsi,
        rdx,
        rcx,
        r10,
        r8,
        r9,
        eflags: r.eflags & !DIRECTION,
        ..r
    })
}

/// The flag that reverses string copies; functions expect it to be clear.
const DIRECTION: u64 = 1 << 10;

/// Returns the end of the unused memory of a thread's own stack.
pub fn below_red_zone(registers: &Registers) -> u64 {
    registers.rsp - RED_ZONE
}

/// Returns the registers that restart the system call, as the kernel sets them before it runs a
/// handler with SA_RESTART.
fn begun_anew(registers: &Registers) -> Registers {
    match waited_in(registers) {
        None => *registers,
        Some(call) => Registers { rax: call, rip: registers.rip - SYSTEM_CALL_BYTES, ..*registers },
    }
}

/// Returns the vector registers in the form in which the kernel reads them from a signal frame.
fn described(extended: &[u8]) -> Vec<u8> {
    let mut state = extended.to_vec();
    let has_all = state.len() > LEGACY_BYTES;
    if !has_all {
        return state;
    }
    let word = |at: usize| state[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    let present = word(PRESENT);
    let features = word(DESCRIPTION) & !(ASKED_FOR & !present);
    let length = length_of(features).min(state.len());
    state.truncate(length);
    let mut put = |at: usize, bytes: &[u8]| state[at..at + bytes.len()].copy_from_slice(bytes);
    put(DESCRIPTION, &MAGIC_1.to_ne_bytes());
    put(DESCRIPTION + 4, &(length as u32 + 4).to_ne_bytes());
    put(DESCRIPTION + 8, &features.to_ne_bytes());
    put(DESCRIPTION + 16, &(length as u32).to_ne_bytes());
    state.extend_from_slice(&MAGIC_2.to_ne_bytes());
    state
}

/// Returns the bytes of vector registers with these features.
fn length_of(features: u64) -> usize {
    const LEAF: u32 = 0xd;
    let end = |feature: u32| {
        let found = core::arch::x86_64::__cpuid_count(LEAF, feature);
        (found.eax + found.ebx) as usize
    };
    let extended = (2..63).filter(|feature| features >> feature & 1 != 0);
    extended.map(end).fold(LEGACY_BYTES, usize::max)
}

/// Returns whether a thread is about to make the call that restores all registers.
pub fn is_returning(registers: &Registers, places: Places) -> bool {
    let behind = places.signal_return + SIGNAL_RETURN.len() as u64;
    registers.orig_rax == RT_SIGRETURN && registers.rip == behind
}

/// Whether a thread makes the call that restores all registers before it makes the next call or
/// continues. A seccomp filter also judges a call that a tracer cancels, as one with number -1:
/// that of a container would replace the register that has the number of the next call by an error.
pub const MAKES_LAST_CALL: bool = true;

/// Returns the registers with which a thread that has made the call that restores all registers
/// continues at its previous state: at the instruction of the call in which it blocked, with the
/// remaining time. It must not be inside that call yet, because the end of tracing acts like a
/// signal.
pub fn continued(registers: &Registers) -> Registers {
    let error = registers.rax.wrapping_neg();
    match waited_in(registers) {
        None => without_call(registers),
        Some(call) => {
            let again = if error == ERESTART_RESTARTBLOCK { RESTART_SYSCALL } else { call };
            let rip = registers.rip - SYSTEM_CALL_BYTES;
            Registers { orig_rax: NO_CALL, rax: again, rip, ..*registers }
        }
    }
}

/// Returns the result of a call, if the thread stopped where it is visible: that of a system call,
/// or that of a function, which is then the number of a system call.
pub fn returned_by(registers: &Registers, places: Places, call: Call) -> Option<u64> {
    let is_seen = registers.rip == places.system_call + SYSTEM_CALL_BYTES;
    let value = if call.number != 0 { registers.rax } else { registers.orig_rax };
    is_seen.then_some(value)
}

/// Returns the registers of a thread that is to make calls: those with which it stopped.
///
/// Errors: none.
pub fn settled(_: Pid, registers: Registers) -> io::Result<Registers> {
    Ok(registers)
}

/// Stops a thread that is about to make the call that restores all registers outside of system
/// calls. Not necessary on this processor.
///
/// Errors: none.
pub fn leave_call(_: Pid, _: Places) -> io::Result<()> {
    Ok(())
}

/// Returns the vector registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn extended_state(tid: Pid) -> io::Result<Vec<u8>> {
    ptrace::register_set(tid, EXTENDED_STATE)
}

/// Sets the vector registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn set_extended_state(tid: Pid, state: &[u8]) -> io::Result<()> {
    ptrace::set_register_set(tid, EXTENDED_STATE, state)
}

/// Returns the registers outside of any system call.
pub fn without_call(registers: &Registers) -> Registers {
    Registers { orig_rax: NO_CALL, ..*registers }
}

/// Returns the general registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn registers(tid: Pid) -> io::Result<Registers> {
    Ok(nix::sys::ptrace::getregs(tid)?)
}

/// Sets the general registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn set_registers(tid: Pid, registers: Registers) -> io::Result<()> {
    Ok(nix::sys::ptrace::setregs(tid, registers)?)
}
