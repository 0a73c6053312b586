//! Records the calls of functions of device drivers that allocate and free memory: CUDA's driver
//! interface, HIP and Level Zero. The functions are intercepted in place
//! ([`crate::intercept::drivers`]), whether a program reaches them by linking, by `dlsym` or by a
//! function of the driver that looks up others.
//!
//! Drivers call their own functions, and HIP lies above a driver. Only the outermost call of a
//! thread counts.

use crate::driver_lookup::{self, Function};
use crate::driver_table::{Effect, ROWS, Row, Size};
use crate::{Preload, arch, driver_state};
use core::mem::transmute;
use heaptide_format::{DeviceApi, DeviceClass, MappingCall};
use heaptide_recorder::event::device::{self, Ended, Freeing, Made};
use heaptide_recorder::event::inside::Entry;
use heaptide_recorder::event::mappings::{self, Unmapping, What};
use heaptide_recorder::store::device_table::{By, Key};
use heaptide_recorder::sys::tls::tls;

/// The argument registers in order, followed by the result register.
type Registers = [usize; 7];

/// Arguments by position; those that a function does not have are undefined. The last three are
/// those behind the registers: a seventh argument, or a structure of three words.
type Arguments = [usize; 9];

/// A function with such arguments; additional ones are ignored.
type Moved = extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize) -> usize;

/// The call of a function.
struct Call<'a> {
    function: &'a Function,
    row: &'a Row,
    arguments: Arguments,
    entry: Entry,
}

impl Call<'_> {
    /// Calls the function. Its arguments on the stack are not part of the caller's frame, which
    /// lives while the call is recorded.
    #[inline(never)]
    fn make(&self) -> usize {
        // SAFETY: the moved start of a function that takes such arguments.
        let moved = unsafe { transmute::<usize, Moved>(self.function.moved()) };
        let [a, b, c, d, e, f, g, h, i] = self.arguments;
        moved(a, b, c, d, e, f, g, h, i)
    }

    /// Returns the key of memory by a value, on the current device.
    fn key(&self, by: By, value: usize) -> Key {
        let device = driver_state::current_device(self.function.queries());
        Key { by, api: self.row.api as u8, device, value: value as u64 }
    }
}

/// The body of all intercepted functions, which return 0 for success. The functions that it calls
/// are not inlined, so that their data are not on the stack at the same time.
pub extern "C" fn body(registers: &Registers, sp: u64, bp: u64, function: &Function) -> usize {
    // SAFETY: the registers and the stack pointer of the entry.
    let [g, h, i] = unsafe { arch::stacked_of_family(registers.as_ptr(), sp) };
    let &[a, b, c, d, e, f, _] = registers;
    let Some(row) = ROWS.get(function.row()) else {
        return 1; // never: an error
    };
    let entry = Entry { sp, bp };
    let call = Call { function, row, arguments: [a, b, c, d, e, f, g, h, i], entry };
    let calls = &tls().driver_calls;
    if calls.get() > 0 {
        return call.make();
    }
    calls.set(1);
    let result = match row.effect {
        Effect::Free(at) => free(&call, call.key(By::Address, call.arguments[at])),
        Effect::Release(by) => free(&call, call.key(by, a)),
        _ => call.make(),
    };
    if result as i32 == 0 {
        succeeded(&call);
    }
    calls.set(0);
    result
}

/// Records the effect of a successful call.
#[inline(never)]
fn succeeded(call: &Call) {
    let Call { row, arguments, entry, .. } = call;
    let (api, entry) = (row.api, *entry);
    let &[first, second, third, ..] = arguments;
    match row.effect {
        Effect::Free(_) | Effect::Release(_) => {}
        Effect::Allocate { .. } => allocated(call),
        Effect::AllocateHost { call, out, size } => {
            of_host(call, arguments[out], arguments[size], entry);
        }
        Effect::Map => {
            let handle = call.key(By::Handle, arguments[3]);
            device::mapped::<Preload>(entry, handle, (first as u64, second as u64));
        }
        Effect::Unmap => {
            device::unmapped::<Preload>(entry, call.key(By::View, first), second as u64);
        }
        Effect::Retain => device::retained::<Preload>(entry, call.key(By::View, second)),
        Effect::EndContext => ended(entry, api, Some(first)),
        Effect::RetainPrimary => driver_state::retained(second, pointed(first)),
        Effect::ReleasePrimary => ended(entry, api, driver_state::released(first)),
        Effect::ResetPrimary if api == DeviceApi::Cuda => {
            ended(entry, api, driver_state::reset(first));
        }
        Effect::ResetPrimary => {
            let what = Ended::Device { api: api as u8, device: first as u16 };
            device::ended::<Preload>(entry, what);
        }
        Effect::ResetDevice => {
            let Key { api, device, .. } = call.key(By::Address, 0);
            device::ended::<Preload>(entry, Ended::Device { api, device });
        }
        Effect::LookUp => {
            driver_lookup::replace(first, second, third as i32, call.function.queries());
        }
        Effect::List => driver_state::list(second, third),
    }
}

/// Memory that is about to be freed.
enum Begun {
    Unknown,
    OfDevice(Freeing),
    /// Memory that the host can access.
    OfHost(Unmapping),
}

/// Frees memory by its address, or releases a handle.
#[inline(never)]
fn free(call: &Call, key: Key) -> usize {
    let mut begun = begin(call.entry, key);
    if matches!(begun, Begun::Unknown) && key.by == By::Address {
        begun = begin_on_host(call.entry, key.value);
    }
    let result = call.make();
    end(begun, result as i32 == 0);
    result
}

#[inline(never)]
fn begin(entry: Entry, key: Key) -> Begun {
    Freeing::begin::<Preload>(entry, key).map_or(Begun::Unknown, Begun::OfDevice)
}

#[inline(never)]
fn begin_on_host(entry: Entry, start: u64) -> Begun {
    let begun = Unmapping::begin_release::<Preload>(entry, start);
    begun.map_or(Begun::Unknown, Begun::OfHost)
}

#[inline(never)]
fn end(begun: Begun, done: bool) {
    match begun {
        Begun::OfDevice(freeing) if !done => freeing.revert::<Preload>(),
        Begun::OfHost(unmapping) => unmapping.end::<Preload>(done),
        Begun::Unknown | Begun::OfDevice(_) => {}
    }
}

/// Records new memory of a device.
#[inline(never)]
fn allocated(call: &Call) {
    let Call { row, arguments, entry, .. } = call;
    let Effect::Allocate { class, by, out, size, on } = row.effect else { return };
    let (api, queries) = (row.api, call.function.queries());
    let Some(value) = pointed(arguments[out]) else { return };
    let Some(device) = driver_state::device_of(queries, on, arguments) else { return };
    let Some((requested, bytes)) = bytes(size, arguments) else { return mappings::lost() };
    let context = match class {
        DeviceClass::Physical => 0, // it outlives contexts
        _ if api == DeviceApi::LevelZero => arguments[0] as u64,
        _ => driver_state::current_context(queries),
    };
    let key = Key { by, api: api as u8, device, value: value as u64 };
    device::allocated::<Preload>(*entry, &Made { key, class, requested, bytes, context });
}

/// Records new memory that the host can access, whose address is at `out`.
#[inline(never)]
fn of_host(call: MappingCall, out: usize, requested: usize, entry: Entry) {
    if let Some(start) = pointed(out) {
        let (start, requested, what) = (start as u64, requested as u64, What::Driver(call));
        mappings::mapped::<Preload>(entry, mappings::Made { start, requested, what });
    }
}

#[inline(never)]
fn ended(entry: Entry, api: DeviceApi, context: Option<usize>) {
    if let Some(context) = context.filter(|&context| context != 0) {
        let what = Ended::Context { api: api as u8, context: context as u64 };
        device::ended::<Preload>(entry, what);
    }
}

/// Returns the word at an address that a function has written to; `None` if either is 0.
fn pointed(at: usize) -> Option<usize> {
    // SAFETY: the function succeeded, so the address is 0 or that of a word.
    let word = unsafe { (at as *const usize).as_ref() };
    word.copied().filter(|&value| value != 0)
}

/// Returns the bytes that a successful call with these arguments requested and allocated; `None` if
/// they are not known.
#[inline(never)]
fn bytes(size: Size, arguments: &Arguments) -> Option<(u64, u64)> {
    match size {
        Size::Bytes(at) => {
            let bytes = arguments[at] as u64;
            Some((bytes, bytes))
        }
        Size::Pitch { pitch, rows } => {
            let (width, rows) = (arguments[pitch + 1], arguments[rows]);
            let product = |width: usize| Some(width.checked_mul(rows)? as u64);
            Some((product(width)?, product(pointed(arguments[pitch])?)?))
        }
        Size::Array => {
            // SAFETY: the function read the description.
            let array = unsafe { &*(arguments[1] as *const Array) };
            let &Array { width, height, format, channels } = array;
            let bytes = texels([width, height, 1], element(format, channels)?, 1, false)?;
            Some((bytes, bytes))
        }
        Size::Deep { levels } => {
            // SAFETY: as above.
            let array = unsafe { &*(arguments[1] as *const DeepArray) };
            let &DeepArray { extent, format, channels, flags } = array;
            let levels = if levels { arguments[2] as u32 } else { 1 };
            let is_layered = flags & LAYERED != 0;
            let bytes = texels(extent, element(format, channels)?, levels, is_layered)?;
            Some((bytes, bytes))
        }
        Size::Flat => {
            let extent = [arguments[2], arguments[3], 1];
            let bytes = texels(extent, element_at(arguments[1]), 1, false)?;
            Some((bytes, bytes))
        }
        Size::Block { levels, flags } => {
            let levels = levels.map_or(1, |at| arguments[at] as u32);
            let is_layered = arguments[flags] as u32 & LAYERED != 0;
            // SAFETY: the arguments of a function with an extent, which has read it.
            let extent = unsafe { arch::extent_argument(arguments, 2) };
            let bytes = texels(extent, element_at(arguments[1]), levels, is_layered)?;
            Some((bytes, bytes))
        }
        Size::Volume => {
            // SAFETY: as above.
            let [width, height, depth] = unsafe { arch::extent_argument(arguments, 1) };
            let rows = height.checked_mul(depth)?;
            let product = |width: usize| Some(width.checked_mul(rows)? as u64);
            let pitch = arguments[0].checked_add(size_of::<usize>())?;
            Some((product(width)?, product(pointed(pitch)?)?))
        }
    }
}

/// The flags of arrays whose depth is a number of layers, or of sides of a cube.
const LAYERED: u32 = 1 | 4;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
struct Array {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
struct DeepArray {
    extent: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// Returns the bytes of an element of an array (`CUarray_format`); `None` if the format is unknown.
fn element(format: u32, channels: u32) -> Option<u64> {
    let bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    Some(bytes * channels as u64)
}

/// Returns the bytes of an element of an array, of which a function has read the bits of each of
/// the four channels (`hipChannelFormatDesc`).
fn element_at(description: usize) -> u64 {
    // SAFETY: the function read the description.
    let bits = unsafe { *(description as *const [u32; 4]) };
    bits.iter().map(|&bits| u64::from(bits)).sum::<u64>() / 8
}

/// Returns the bytes of an array with mipmap levels, each with half the extent of the one before,
/// without the padding that a driver adds.
fn texels(extent: [usize; 3], element: u64, levels: u32, is_layered: bool) -> Option<u64> {
    let mut sum = 0u64;
    for level in 0..levels.clamp(1, usize::BITS - 1) {
        let half = |n: usize| (n >> level).max(1) as u64;
        let [width, height, depth] = extent;
        let depth = if is_layered { depth as u64 } else { half(depth) };
        let bytes = half(width).checked_mul(half(height))?.checked_mul(depth)?;
        sum = sum.checked_add(bytes.checked_mul(element)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_the_bytes_of_their_elements() {
        assert_eq!(texels([64, 32, 1], element(0x20, 4).expect("float"), 1, false), Some(32768));
        assert_eq!(texels([64, 0, 0], 2, 1, false), Some(128), "without height and depth");
        // 16×16 + 8×8 + 4×4 + 2×2 + 1 = 341
        assert_eq!(texels([16, 16, 1], 1, 5, false), Some(341));
        assert_eq!(texels([4, 4, 6], 1, 3, true), Some(6 * 21), "layers stay");
        assert_eq!(texels([4, 4, 4], 1, 3, false), Some(64 + 8 + 1));
        assert_eq!(element(0xb0, 3), None);
        assert_eq!(texels([usize::MAX, 2, 1], 4, 1, false), None);
    }
}
