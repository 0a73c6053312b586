//! aarch64, AAPCS64 on Linux.
//!
//! If a thread stops in a blocking system call, its registers are already set to repeat the call.
//! The number of the call that the kernel continues with, for the remaining time, is visible only
//! when the thread makes it. At system call stops x7 does not hold the thread's value, and is not
//! set.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::calls::{Before, Call, Known, NO_STACK_FLAGS, Places};
use crate::memory::Memory;
use crate::ptrace::{self, Event};

/// The general registers of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    flags: u64,
    thread_pointer: u64,
    /// Whether the instruction at `pc` is a system call.
    is_before_call: bool,
    /// The number of the call with which a blocked thread continues to wait.
    again: u64,
}

/// Number of registers that unwinding tracks, by their numbers in unwind tables: x0 to x30, the
/// stack pointer, and the instruction pointer.
pub const UNWOUND: usize = 33;
/// The number of the stack pointer.
pub const SP: usize = 31;
/// The number of the instruction pointer.
pub const PC: usize = 32;
/// The register whose value in the caller is the return address of its callee.
pub const RETURN: usize = 30;
/// Selects the vendor's instructions in unwind tables.
pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
/// The size of a jump.
pub const JUMP_BYTES: usize = 4;

/// The instructions to which a signal handler returns: `mov x8, #139; svc #0`, in the vDSO.
pub const SIGNAL_RETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// `svc #0; ret`
pub const SYSTEM_CALL_AND_RETURN: &[u8] = &[0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6];
/// `svc #0`
const SYSTEM_CALL: u32 = 0xd400_0001;

/// The machine's number in ELF headers.
pub const ELF: [u8; 2] = [183, 0];
/// `mmap`
pub const MMAP: u64 = 222;
/// `munmap`
pub const MUNMAP: u64 = 215;
/// `close`
pub const CLOSE: u64 = 57;
/// `recvmsg`
pub const RECVMSG: u64 = 212;
/// `socketpair`
pub const SOCKETPAIR: u64 = 199;
/// `clone`
pub const CLONE: u64 = 220;
/// `wait4`
pub const WAIT4: u64 = 260;
/// Bits of the addresses of programs.
pub const USER_ADDRESS_BITS: u32 = 48;
/// `fcntl`
pub const FCNTL: u64 = 25;
const RT_SIGRETURN: u64 = 139;

/// System calls that block while the thread holds no lock of the C library: read, write, ppoll,
/// pselect6, nanosleep, connect, accept, sendto, recvfrom, sendmsg, recvmsg, wait4,
/// rt_sigtimedwait, rt_sigsuspend, futex, waitid, clock_nanosleep, epoll_pwait, accept4, recvmmsg,
/// epoll_pwait2, io_getevents, flock, fcntl, semop, semtimedop, msgrcv, restart_syscall.
const WAITING: [u64; 28] = [
    63, 64, 73, 72, 101, 203, 202, 206, 207, 211, 212, 260, 137, 133, 98, 95, 115, 22, 242, 243,
    441, 4, 32, 25, 193, 192, 188, 128,
];
/// Those that the kernel continues for the remaining time: nanosleep, clock_nanosleep, ppoll,
/// futex, restart_syscall.
const TIMED: [u64; 5] = [101, 115, 73, 98, 128];

/// Register sets: general registers, floating-point and vector registers, the thread pointer, the
/// system call, scalable vectors of both kinds, and the shadow stack.
const GENERAL: i32 = 1;
const VECTORS: i32 = 2;
const THREAD_POINTER: i32 = 0x401;
const CALL_NUMBER: i32 = 0x404;
const LONG_VECTORS: i32 = 0x405;
const STREAMED_VECTORS: i32 = 0x40b;
const SHADOW_STACK: i32 = 0x410;

/// Removes the signature from a return address, which is in its upper bits.
pub fn code_address(address: u64) -> u64 {
    const ADDRESS_BITS: u32 = 48;
    address & ((1 << ADDRESS_BITS) - 1)
}

/// Returns the thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.thread_pointer
}

/// Returns the registers of the innermost frame.
pub fn known(registers: &Registers) -> Known<UNWOUND> {
    let mut values = [0; UNWOUND];
    values[..SP].copy_from_slice(&registers.x);
    (values[SP], values[PC]) = (registers.sp, registers.pc);
    Known { values }
}

/// Returns the registers of the function that a signal interrupted; `sp` is the stack pointer at
/// the handler's return to the kernel.
pub fn interrupted(memory: &Memory, sp: u64) -> Option<Known<UNWOUND>> {
    let mut bytes = [0u8; UNWOUND * 8];
    memory.read(sp + REGISTERS as u64, &mut bytes).ok()?;
    let mut values = [0; UNWOUND];
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    Some(Known { values })
}

/// Returns whether a stopped thread blocked, or is about to block, in a system call during which it
/// holds no lock of the C library.
pub fn is_waiting(registers: &Registers) -> bool {
    registers.is_before_call && WAITING.contains(&registers.x[8])
}

/// Returns whether a stopped thread may wait with a timeout: if this command is killed during a
/// call by that thread, the thread waits for the whole time again.
pub fn is_timed(registers: &Registers) -> bool {
    registers.is_before_call && TIMED.contains(&registers.x[8])
}

/// Returns the registers that repeat a call which ends when its thread is stopped. Here they are
/// unknown, because the arguments are.
pub fn made_again(_: &Registers) -> Option<Registers> {
    None
}

/// The signal frame that the kernel reads when a handler returns: its size, and the locations of
/// the flags of the alternate signal stack, the blocked signals, the general registers and the
/// vector registers.
const FRAME_BYTES: usize = 4688;
const STACK_FLAGS: usize = 152;
const MASK: usize = 168;
const REGISTERS: usize = 312;
const EXTENDED: usize = 592;
/// The header of the vector registers: magic number and length.
const EXTENDED_MAGIC: u32 = 0x4650_8001;
const EXTENDED_BYTES: usize = 528;
/// Bytes of the vector registers, and of two control words after them. In the frame these words
/// come first.
const VECTOR_BYTES: usize = 512;
const CONTROL_BYTES: usize = 8;

/// Writes a signal frame on the stack, with which the kernel restores all registers after the call,
/// even if this command is killed. Returns the registers with which the thread starts the call.
///
/// `top` is the end of unused memory: the thread's own stack pointer, or another address.
///
/// Errors: the memory does not exist.
pub fn prepare(
    memory: &Memory,
    before: &Before<Registers>,
    top: u64,
    places: Places,
    call: Call,
) -> io::Result<Registers> {
    let frame_at = (top - FRAME_BYTES as u64) & !15;
    let mut frame = [0u8; FRAME_BYTES];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    let r = before.registers;
    put(STACK_FLAGS, &NO_STACK_FLAGS.to_ne_bytes());
    put(MASK, &before.mask.to_ne_bytes());
    let words = r.x.into_iter().chain([r.sp, r.pc, r.flags]);
    for (index, word) in words.enumerate() {
        put(REGISTERS + index * 8, &word.to_ne_bytes());
    }
    let [vectors, control] = parts_of(&before.extended)?;
    put(EXTENDED, &EXTENDED_MAGIC.to_ne_bytes());
    put(EXTENDED + 4, &(EXTENDED_BYTES as u32).to_ne_bytes());
    put(EXTENDED + 8, control);
    put(EXTENDED + 8 + CONTROL_BYTES, vectors);
    memory.write(frame_at, &frame)?;
    let mut x = r.x;
    x[..call.arguments.len()].copy_from_slice(&call.arguments);
    if call.number != 0 {
        x[8] = call.number;
    }
    x[RETURN] = places.signal_return;
    Ok(Registers { x, sp: frame_at, pc: call.function, flags: r.flags & !BRANCH_TYPE, ..r })
}

/// The bits that an indirect jump sets if the processor checks branch targets.
const BRANCH_TYPE: u64 = 3 << 10;

/// Returns the vector registers, and the control words.
fn parts_of(extended: &[u8]) -> io::Result<[&[u8]; 2]> {
    let parts = extended.split_at_checked(VECTOR_BYTES);
    let parts = parts.and_then(|(vectors, rest)| Some([vectors, rest.get(..CONTROL_BYTES)?]));
    parts.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Returns the end of the unused memory of a thread's own stack.
pub fn below_red_zone(registers: &Registers) -> u64 {
    registers.sp
}

/// Returns whether a thread is about to make the call that restores all registers.
pub fn is_returning(registers: &Registers, places: Places) -> bool {
    let behind = places.signal_return + SIGNAL_RETURN.len() as u64;
    registers.x[8] == RT_SIGRETURN && registers.pc == behind
}

/// Returns the result of a call, if the thread stopped where it is visible.
pub fn returned_by(registers: &Registers, places: Places, _: Call) -> Option<u64> {
    is_returning(registers, places).then_some(registers.x[0])
}

/// Returns the registers of a thread that is to make calls. A blocked thread is moved to the start
/// of the system call with which it would continue to wait.
///
/// Errors: it received a signal first, and runs; or it does not stop in time.
pub fn settled(tid: Pid, registers: Registers) -> io::Result<Registers> {
    if !registers.is_before_call {
        return Ok(registers);
    }
    ptrace::resume_to_call(tid, 0)?;
    let until = Instant::now() + STOPS_WITHIN;
    loop {
        match ptrace::event(tid)? {
            Event::Call => {
                let again = self::registers(tid)?.x[8];
                return Ok(Registers { again, ..registers });
            }
            Event::Stopped => ptrace::resume_to_call(tid, 0)?,
            Event::Signal(signal) => {
                ptrace::resume(tid, signal)?;
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            Event::Gone => return Err(io::Error::from_raw_os_error(nix::libc::ESRCH)),
            Event::Nothing if Instant::now() > until => {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            Event::Nothing => thread::sleep(LOOKS_EVERY),
        }
    }
}

/// How long a thread may take to stop.
const STOPS_WITHIN: Duration = Duration::from_millis(500);
/// The interval at which the thread is polled.
const LOOKS_EVERY: Duration = Duration::from_micros(20);

/// Whether a thread makes the call that restores all registers before it makes the next call or
/// continues. Its number is not in a register that is set here.
pub const MAKES_LAST_CALL: bool = false;

/// Stops a thread that is about to make the call that restores all registers outside of system
/// calls, where all its registers can be set. If this command is killed meanwhile, the thread makes
/// that call.
///
/// Errors: it does not stop in time.
pub fn leave_call(tid: Pid, places: Places) -> io::Result<()> {
    let registers = registers(tid)?;
    set_registers(tid, Registers { pc: places.signal_return, ..registers })?;
    nix::sys::ptrace::interrupt(tid)?;
    ptrace::resume(tid, 0)?;
    let until = Instant::now() + STOPS_WITHIN;
    loop {
        match ptrace::event(tid)? {
            Event::Stopped => return Ok(()),
            Event::Call => ptrace::resume(tid, 0)?,
            Event::Signal(signal) => ptrace::resume(tid, signal)?,
            Event::Gone => return Err(io::Error::from_raw_os_error(nix::libc::ESRCH)),
            Event::Nothing if Instant::now() > until => {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            Event::Nothing => thread::sleep(LOOKS_EVERY),
        }
    }
}

/// Returns the registers with which a thread continues at its previous state. A blocked thread
/// repeats its call for the remaining time.
pub fn continued(registers: &Registers) -> Registers {
    let mut x = registers.x;
    if registers.is_before_call {
        x[8] = registers.again;
    }
    Registers { x, ..*registers }
}

/// Returns the general registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn registers(tid: Pid) -> io::Result<Registers> {
    const WORDS: usize = 34;
    let set = ptrace::register_set(tid, GENERAL)?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(set.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    let mut x = [0; 31];
    x.copy_from_slice(&words[..31]);
    let pointer = ptrace::register_set(tid, THREAD_POINTER)?;
    let thread_pointer = pointer.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let [sp, pc, flags] = [words[31], words[32], words[33]];
    let code = nix::sys::ptrace::read(tid, pc as nix::sys::ptrace::AddressType);
    let is_before_call = code.is_ok_and(|code| code as u32 == SYSTEM_CALL);
    Ok(Registers { x, sp, pc, flags, thread_pointer, is_before_call, again: x[8] })
}

/// Sets the general registers; afterwards the thread is in no system call.
///
/// Errors: the kernel's.
pub fn set_registers(tid: Pid, registers: Registers) -> io::Result<()> {
    const NO_CALL: i32 = -1;
    let r = registers;
    let words = r.x.into_iter().chain([r.sp, r.pc, r.flags]);
    let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    ptrace::set_register_set(tid, GENERAL, &bytes)?;
    ptrace::set_register_set(tid, CALL_NUMBER, &NO_CALL.to_ne_bytes())
}

/// Returns the vector registers of a stopped thread.
///
/// Errors: it uses scalable vectors, or has a shadow stack; such threads cannot make calls.
pub fn extended_state(tid: Pid) -> io::Result<Vec<u8>> {
    const FLAGS: usize = 12;
    const ARE_LONG: u8 = 1;
    let is_set = |set: i32, at: usize, flag: u8| {
        let found = ptrace::register_set(tid, set).ok();
        found.and_then(|bytes| bytes.get(at).copied()).is_some_and(|byte| byte & flag != 0)
    };
    let uses_long =
        [LONG_VECTORS, STREAMED_VECTORS].into_iter().any(|s| is_set(s, FLAGS, ARE_LONG));
    if uses_long || is_set(SHADOW_STACK, 0, 1) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    ptrace::register_set(tid, VECTORS)
}

/// Sets the vector registers of a stopped thread.
///
/// Errors: the kernel's.
pub fn set_extended_state(tid: Pid, state: &[u8]) -> io::Result<()> {
    ptrace::set_register_set(tid, VECTORS, state)
}
