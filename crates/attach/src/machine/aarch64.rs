//! aarch64, AAPCS64 on Linux.
//!
//! Where a thread stops in a system call that waits, its registers are already those of the
//! instruction that makes the call again; the number of the call that the kernel would make, with
//! the time that is left, is seen where the thread makes it. At stops in system calls x7 is not the
//! thread's, and is not set.

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
    /// Whether the instruction at `pc` makes a system call.
    is_before_call: bool,
    /// The call with which a thread that waited continues to wait.
    again: u64,
}

/// Registers that are followed from frame to frame, by their numbers in unwind tables: x0 to x30,
/// the stack pointer, and the instruction pointer.
pub const UNWOUND: usize = 33;
/// The stack pointer among them.
pub const SP: usize = 31;
/// The instruction pointer among them.
pub const PC: usize = 32;
/// The register whose value in a caller is the address that its function returns to.
pub const RETURN: usize = 30;
/// Whose instructions unwind tables may have.
pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
/// Bytes that a jump takes.
pub const JUMP_BYTES: usize = 4;

/// The instructions behind a signal handler: `mov x8, #139; svc #0`, of the kernel.
pub const SIGNAL_RETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// `svc #0; ret`
pub const SYSTEM_CALL_AND_RETURN: &[u8] = &[0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6];
/// `svc #0`
const SYSTEM_CALL: u32 = 0xd400_0001;

/// The number of the machine in the header of its files.
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
/// `fcntl`
pub const FCNTL: u64 = 25;
const RT_SIGRETURN: u64 = 139;

/// System calls that wait, and in which a thread holds no lock of the C library: read, write,
/// ppoll, pselect6, nanosleep, connect, accept, sendto, recvfrom, sendmsg, recvmsg, wait4,
/// rt_sigtimedwait, rt_sigsuspend, futex, waitid, clock_nanosleep, epoll_pwait, accept4, recvmmsg,
/// epoll_pwait2, io_getevents, flock, fcntl, semop, semtimedop, msgrcv, restart_syscall.
const WAITING: [u64; 28] = [
    63, 64, 73, 72, 101, 203, 202, 206, 207, 211, 212, 260, 137, 133, 98, 95, 115, 22, 242, 243,
    441, 4, 32, 25, 193, 192, 188, 128,
];
/// Those among them that the kernel continues with the time that is left: nanosleep,
/// clock_nanosleep, ppoll, futex, restart_syscall.
const TIMED: [u64; 5] = [101, 115, 73, 98, 128];

/// Sets of registers: general ones, those of floating-point numbers and vectors, the thread
/// pointer, the system call, long vectors of either kind, and the shadow stack.
const GENERAL: i32 = 1;
const VECTORS: i32 = 2;
const THREAD_POINTER: i32 = 0x401;
const CALL_NUMBER: i32 = 0x404;
const LONG_VECTORS: i32 = 0x405;
const STREAMED_VECTORS: i32 = 0x40b;
const SHADOW_STACK: i32 = 0x410;

/// The address that a return address has: bits above are its signature.
pub fn code_address(address: u64) -> u64 {
    const ADDRESS_BITS: u32 = 48;
    address & ((1 << ADDRESS_BITS) - 1)
}

/// The thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.thread_pointer
}

/// The registers of the innermost frame.
pub fn known(registers: &Registers) -> Known<UNWOUND> {
    let mut values = [0; UNWOUND];
    values[..SP].copy_from_slice(&registers.x);
    (values[SP], values[PC]) = (registers.sp, registers.pc);
    Known { values }
}

/// The registers of the function that a signal interrupted; `sp` is where its handler returns to
/// the kernel.
pub fn interrupted(memory: &Memory, sp: u64) -> Option<Known<UNWOUND>> {
    let mut bytes = [0u8; UNWOUND * 8];
    memory.read(sp + REGISTERS as u64, &mut bytes).ok()?;
    let mut values = [0; UNWOUND];
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    Some(Known { values })
}

/// Whether a stopped thread waited in a system call in which it holds no lock of the C library, or
/// is about to.
pub fn is_waiting(registers: &Registers) -> bool {
    registers.is_before_call && WAITING.contains(&registers.x[8])
}

/// Whether a stopped thread may wait for a time: if this command is killed while it has that thread
/// make a call, it waits for the whole time again.
pub fn is_timed(registers: &Registers) -> bool {
    registers.is_before_call && TIMED.contains(&registers.x[8])
}

/// The registers of a thread that stopped in a call which ends when its thread is stopped, so that
/// the call is made again: its arguments are not known here.
pub fn made_again(_: &Registers) -> Option<Registers> {
    None
}

/// The frame of a signal, which the kernel reads when its handler returns: where the alternate
/// signal stack has its flags, where the blocked signals, the general registers and those of
/// vectors are.
const FRAME_BYTES: usize = 4688;
const STACK_FLAGS: usize = 152;
const MASK: usize = 168;
const REGISTERS: usize = 312;
const EXTENDED: usize = 592;
/// What the description of the vectors begins with: its number, and its length.
const EXTENDED_MAGIC: u32 = 0x4650_8001;
const EXTENDED_BYTES: usize = 528;
/// Bytes of the vectors themselves, and of two words of control behind them. In the frame these
/// words come first.
const VECTOR_BYTES: usize = 512;
const CONTROL_BYTES: usize = 8;

/// Writes on the stack what has the kernel put all registers back once the call returns, whether or
/// not this command still lives, and returns the registers that the thread begins the call with.
///
/// `top` is the end of unused memory: the thread's own stack pointer, or elsewhere.
///
/// Errors: there is no such memory.
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

/// The flags that an indirect jump sets where the processor checks what it reaches.
const BRANCH_TYPE: u64 = 3 << 10;

/// The vectors, and the words of control.
fn parts_of(extended: &[u8]) -> io::Result<[&[u8]; 2]> {
    let parts = extended.split_at_checked(VECTOR_BYTES);
    let parts = parts.and_then(|(vectors, rest)| Some([vectors, rest.get(..CONTROL_BYTES)?]));
    parts.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// The end of the unused memory of a thread's own stack.
pub fn below_red_zone(registers: &Registers) -> u64 {
    registers.sp
}

/// Whether a thread is about to make the call that puts all registers back.
pub fn is_returning(registers: &Registers, places: Places) -> bool {
    let behind = places.signal_return + SIGNAL_RETURN.len() as u64;
    registers.x[8] == RT_SIGRETURN && registers.pc == behind
}

/// What a call has returned, if that is to be seen where the thread stopped.
pub fn returned_by(registers: &Registers, places: Places, _: Call) -> Option<u64> {
    is_returning(registers, places).then_some(registers.x[0])
}

/// The registers of a thread that is to make calls. One that waited is at the beginning of the
/// system call by which it would continue to wait.
///
/// Errors: it got a signal first, and runs; or it does not stop in time.
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
/// Time between looks at it.
const LOOKS_EVERY: Duration = Duration::from_micros(20);

/// Has a thread that is about to make the call that puts all registers back stop outside of system
/// calls, where all its registers can be set. If this command is killed meanwhile, it makes that
/// call.
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

/// The registers by which a thread continues where it was. One that waited makes its call again,
/// with the time that was left.
pub fn continued(registers: &Registers) -> Registers {
    let mut x = registers.x;
    if registers.is_before_call {
        x[8] = registers.again;
    }
    Registers { x, ..*registers }
}

/// The general registers of a stopped thread.
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

/// Sets them; the thread is in no system call then.
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

/// The vector registers of a stopped thread.
///
/// Errors: it uses long ones, or has a shadow stack: it makes no calls then.
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

/// Sets them.
///
/// Errors: the kernel's.
pub fn set_extended_state(tid: Pid, state: &[u8]) -> io::Result<()> {
    ptrace::set_register_set(tid, VECTORS, state)
}
