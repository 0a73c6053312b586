//! Blocks of device memory that PyTorch's caching allocators hand out. They report each block to
//! PyTorch's profiler when it is handed out and when it comes back. The function that they call for
//! that is intercepted in place ([`crate::intercept::pytorch`]), with no profiler needed.

use crate::{Preload, arch};
use core::mem::offset_of;
use heaptide_format::DEVICE_UNKNOWN;
use heaptide_recorder::event::device_pools::{self, HandedOut};
use heaptide_recorder::event::inside::Entry;
use heaptide_recorder::store::names;

/// `c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)`; before version
/// 1.12, the third and the fourth argument were `int64_t`.
pub const REPORTS: [&[u8]; 2] = [
    b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE\0",
    b"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE\0",
];

/// The argument registers of the function.
type Registers = [usize; 6];

/// An intercepted function.
#[repr(C)]
pub struct Function {
    /// The first field, because the entry calls it.
    body: extern "C" fn(&Registers, sp: u64, bp: u64),
    /// The moved start, at which the entry continues.
    moved: u64,
}

impl Function {
    pub fn new(moved: u64) -> Function {
        Function { body: reported, moved }
    }
}

/// Returns the target of the stub.
pub fn entry() -> u64 {
    const { assert!(offset_of!(Function, body) == 0 && offset_of!(Function, moved) == 8) };
    arch::notified_entry!()
}

/// `c10::Device`: the type and the number, -1 if it is not known.
struct Device {
    is_host: bool,
    number: u16,
}

impl Device {
    fn of(argument: usize) -> Device {
        let [kind, number, ..] = argument.to_le_bytes();
        let known = u16::try_from(number.cast_signed());
        Device { is_host: kind == 0, number: known.unwrap_or(DEVICE_UNKNOWN) }
    }
}

/// Records that a block was handed out, or came back if its bytes are negative. Memory that no
/// recorded driver allocated counts nothing.
extern "C" fn reported(&[address, bytes, _, _, device, _]: &Registers, sp: u64, bp: u64) {
    let Device { is_host, number: device } = Device::of(device);
    let (address, bytes, entry) = (address as u64, bytes as i64, Entry { sp, bp });
    if is_host {
        return;
    }
    if bytes < 0 {
        device_pools::came_back::<Preload>(entry, address, device);
        return;
    }
    let bytes = bytes.cast_unsigned();
    let block = HandedOut { address, requested: bytes, bytes, device };
    device_pools::handed_out::<Preload>(entry, &block, || names::pool(b"PyTorch"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_in_the_lowest_two_bytes() {
        let device = |argument| {
            let Device { is_host, number } = Device::of(argument);
            (is_host, number)
        };
        assert_eq!(device(0xdead_0000), (true, 0), "the processor");
        assert_eq!(device(0xdead_0301), (false, 3), "CUDA");
        assert_eq!(device(0xff06), (false, DEVICE_UNKNOWN), "HIP");
    }
}
