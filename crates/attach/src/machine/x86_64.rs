//! x86-64, System V.

use std::io;

use nix::unistd::Pid;

use super::calls::{Before, Call, Known, NO_STACK_FLAGS, Places};
use crate::memory::Memory;
use crate::ptrace;

/// The general registers of a thread.
pub type Registers = nix::libc::user_regs_struct;

/// Registers that are followed from frame to frame, by their numbers in unwind tables.
pub const UNWOUND: usize = 17;
/// The stack pointer among them.
pub const SP: usize = 7;
/// The instruction pointer among them.
pub const PC: usize = 16;
/// The register whose value in a caller is the address that its function returns to.
pub const RETURN: usize = PC;
/// Whose instructions unwind tables may have.
pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
/// Bytes that a jump takes.
pub const JUMP_BYTES: usize = 5;

/// The instructions behind a signal handler: `mov $15, %rax; syscall`, of glibc and musl.
pub const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `syscall; ret`
pub const SYSTEM_CALL_AND_RETURN: &[u8] = &[0x0f, 0x05, 0xc3];

/// The number of the register set that has the vector registers.
const EXTENDED_STATE: i32 = 0x202;
/// What a function of the program may use below its stack pointer.
const RED_ZONE: u64 = 128;
/// No system call.
const NO_CALL: u64 = u64::MAX;
/// Bytes of the instruction.
const SYSTEM_CALL_BYTES: u64 = 2;
const EINTR: u64 = 4;
/// Results of system calls that the kernel will make again. The program never sees them.
const ERESTARTSYS: u64 = 512;
const ERESTARTNOINTR: u64 = 513;
const ERESTARTNOHAND: u64 = 514;
/// The same with the time that is left.
const ERESTART_RESTARTBLOCK: u64 = 516;
const RESTART_SYSCALL: u64 = 219;
/// The number of the machine in the header of its files.
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
/// `fcntl`
pub const FCNTL: u64 = 72;
const RT_SIGRETURN: u64 = 15;

/// System calls that wait, and in which a thread holds no lock of the C library: read, write, poll,
/// pause, nanosleep, connect, accept, sendto, recvfrom, sendmsg, recvmsg, select, wait4,
/// rt_sigtimedwait, rt_sigsuspend, futex, epoll_wait, waitid, clock_nanosleep, pselect6, ppoll,
/// epoll_pwait, accept4, recvmmsg, epoll_pwait2, io_getevents, flock, fcntl, semop, semtimedop,
/// msgrcv.
const WAITING: [u64; 31] = [
    0, 1, 7, 34, 35, 42, 43, 44, 45, 46, 47, 23, 61, 128, 130, 202, 232, 247, 230, 270, 271, 281,
    288, 299, 441, 208, 73, 72, 65, 220, 70,
];
/// Those that end when their thread is stopped, although no signal arrived: epoll_wait,
/// epoll_pwait, epoll_pwait2, semop, semtimedop, rt_sigtimedwait, io_getevents, recvfrom, recvmsg,
/// accept, accept4; those of sockets only with a timeout.
const ENDED_BY_STOPS: [u64; 11] = [232, 281, 441, 65, 220, 128, 208, 45, 47, 43, 288];

/// The address that a return address has.
pub fn code_address(address: u64) -> u64 {
    address
}

/// The thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.fs_base
}

/// The registers of the innermost frame.
pub fn known(registers: &Registers) -> Known<UNWOUND> {
    let r = registers;
    Known {
        values: [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15, r.rip,
        ],
    }
}

/// The registers of the function that a signal interrupted; `sp` is where its handler returns to
/// the kernel.
pub fn interrupted(memory: &Memory, sp: u64) -> Option<Known<UNWOUND>> {
    let mut words = [0u8; 17 * 8];
    memory.read(sp + CONTEXT, &mut words).ok()?;
    let word =
        |index: usize| words[index * 8..index * 8 + 8].try_into().map_or(0, u64::from_ne_bytes);
    // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip
    let order = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16];
    Some(Known { values: order.map(word) })
}

/// The error number of the system call that a thread is in, and that call.
fn call_of(registers: &Registers) -> Option<(u64, u64)> {
    let is_call = registers.orig_rax as i64 >= 0;
    is_call.then(|| (registers.orig_rax, registers.rax.wrapping_neg()))
}

/// The system call that a stopped thread waited in, and will make again; none if it did not wait.
fn waited_in(registers: &Registers) -> Option<u64> {
    let (call, error) = call_of(registers)?;
    let is_made_again = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK];
    let is_ended = error == EINTR && ENDED_BY_STOPS.contains(&call);
    (is_made_again.contains(&error) || is_ended).then_some(call)
}

/// Whether a stopped thread waited in a system call in which it holds no lock of the C library.
pub fn is_waiting(registers: &Registers) -> bool {
    waited_in(registers).is_some_and(|call| WAITING.contains(&call))
}

/// Whether a stopped thread waits for a time: if this command is killed while it has that thread
/// make a call, it waits for the whole time again, or its call ends by EINTR.
pub fn is_timed(registers: &Registers) -> bool {
    call_of(registers).is_some_and(|(_, error)| error == ERESTART_RESTARTBLOCK)
}

/// The registers of a thread that stopped in a call which ends when its thread is stopped, so that
/// the call is made again unless a signal has arrived; none for all others.
pub fn made_again(registers: &Registers) -> Option<Registers> {
    let (call, error) = call_of(registers)?;
    let is_ended = error == EINTR && ENDED_BY_STOPS.contains(&call);
    is_ended.then(|| Registers { rax: ERESTARTNOHAND.wrapping_neg(), ..*registers })
}

/// Where the registers are in what the kernel reads when a handler returns.
const CONTEXT: u64 = 40;
/// Where the pointer to the vector registers is.
const EXTENDED_POINTER: usize = 224;
/// Where the blocked signals are.
const MASK: usize = 296;
const FRAME_BYTES: usize = 304;
/// Flags: vector registers are there, and the stack segment counts.
const FLAGS: u64 = 7;
/// Where the vector registers have their description: magic number, length with the one behind
/// them, which are there, length.
const DESCRIPTION: usize = 464;
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// Where the vector registers have the set of those that are not at rest.
const PRESENT: usize = 512;
/// The registers of AMX, for which a program has to ask.
const ASKED_FOR: u64 = 1 << 18;
/// Bytes of the registers that all processors have, and the header behind them.
const LEGACY_BYTES: usize = 576;

/// Writes on the stack what has the kernel put all registers back once the call returns, whether or
/// not this command still lives, and returns the registers that the thread begins the call with.
///
/// `top` is the end of unused memory: below the red zone of the thread's own stack, or elsewhere.
///
/// Errors: there is no such memory.
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
        // It returns to a call of which there is none: its result is that one's number.
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

/// The flag that has strings copied backwards: functions expect it clear.
const DIRECTION: u64 = 1 << 10;

/// The end of the unused memory of a thread's own stack.
pub fn below_red_zone(registers: &Registers) -> u64 {
    registers.rsp - RED_ZONE
}

/// The registers as the kernel would make them before it runs a handler that lets calls be made
/// again: the call begins anew.
fn begun_anew(registers: &Registers) -> Registers {
    match waited_in(registers) {
        None => *registers,
        Some(call) => Registers { rax: call, rip: registers.rip - SYSTEM_CALL_BYTES, ..*registers },
    }
}

/// The vector registers as the kernel expects them from a handler.
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

/// Bytes of vector registers with these features.
fn length_of(features: u64) -> usize {
    const LEAF: u32 = 0xd;
    let end = |feature: u32| {
        let found = core::arch::x86_64::__cpuid_count(LEAF, feature);
        (found.eax + found.ebx) as usize
    };
    let extended = (2..63).filter(|feature| features >> feature & 1 != 0);
    extended.map(end).fold(LEGACY_BYTES, usize::max)
}

/// Whether a thread is about to make the call that puts all registers back.
pub fn is_returning(registers: &Registers, places: Places) -> bool {
    let behind = places.signal_return + SIGNAL_RETURN.len() as u64;
    registers.orig_rax == RT_SIGRETURN && registers.rip == behind
}

/// The registers by which a thread, which is about to make the call that puts all registers back,
/// continues where it was instead: without that call, and at the instruction of the call that it
/// waited in, with the time that was left. Not in that call at once: the end of tracing looks like
/// a signal to it.
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

/// What a call has returned, if that is to be seen where the thread stopped: of a system call its
/// result, of a function what it passes on as the number of a call.
pub fn returned_by(registers: &Registers, places: Places, call: Call) -> Option<u64> {
    let is_seen = registers.rip == places.system_call + SYSTEM_CALL_BYTES;
    let value = if call.number != 0 { registers.rax } else { registers.orig_rax };
    is_seen.then_some(value)
}

/// The registers of a thread that is to make calls: those that it stopped with.
///
/// Errors: none.
pub fn settled(_: Pid, registers: Registers) -> io::Result<Registers> {
    Ok(registers)
}

/// Has a thread that is about to make the call that puts all registers back stop outside of system
/// calls: here it need not.
///
/// Errors: none.
pub fn leave_call(_: Pid, _: Places) -> io::Result<()> {
    Ok(())
}

/// The vector registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn extended_state(tid: Pid) -> io::Result<Vec<u8>> {
    ptrace::register_set(tid, EXTENDED_STATE)
}

/// Sets them.
///
/// Errors: the kernel's.
pub fn set_extended_state(tid: Pid, state: &[u8]) -> io::Result<()> {
    ptrace::set_register_set(tid, EXTENDED_STATE, state)
}

/// Registers that are in no system call.
pub fn without_call(registers: &Registers) -> Registers {
    Registers { orig_rax: NO_CALL, ..*registers }
}

/// The general registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn registers(tid: Pid) -> io::Result<Registers> {
    Ok(nix::sys::ptrace::getregs(tid)?)
}

/// Sets them.
///
/// Errors: the kernel's.
pub fn set_registers(tid: Pid, registers: Registers) -> io::Result<()> {
    Ok(nix::sys::ptrace::setregs(tid, registers)?)
}
