//! What is known about device drivers besides their memory: the current device and context, which
//! the driver itself knows; the primary contexts of CUDA; and the numbers of Level Zero's devices.

use crate::driver_lookup::Queries;
use crate::driver_table::On;
use core::mem::transmute;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use heaptide_format::{DEVICE_UNKNOWN, DeviceApi};

/// The most devices whose contexts or handles are known.
const DEVICES_MAX: usize = 64;

/// The primary context of each device of CUDA, and how often the program has retained it.
static PRIMARY: [(AtomicUsize, AtomicU32); DEVICES_MAX] =
    [const { (AtomicUsize::new(0), AtomicU32::new(0)) }; DEVICES_MAX];

/// The handles of Level Zero's devices, in the order in which they were listed.
static HANDLES: [AtomicUsize; DEVICES_MAX] = [const { AtomicUsize::new(0) }; DEVICES_MAX];

/// A function that writes a value through its argument and returns 0 for success.
type Query<T> = extern "C" fn(&mut T) -> i32;

/// Returns the names of the functions that return the current device and context.
pub fn queries(api: DeviceApi) -> [Option<&'static [u8]>; 2] {
    match api {
        DeviceApi::Cuda => [Some(b"cuCtxGetDevice\0"), Some(b"cuCtxGetCurrent\0")],
        DeviceApi::Hip => [Some(b"hipGetDevice\0"), None],
        DeviceApi::LevelZero | DeviceApi::Offload => [None, None],
    }
}

/// Returns the thread's current device.
pub fn current_device(Queries([query, _]): Queries) -> u16 {
    if query == 0 {
        return DEVICE_UNKNOWN;
    }
    // SAFETY: the driver's function, which has this type.
    let query = unsafe { transmute::<usize, Query<i32>>(query) };
    let mut device = -1;
    if query(&mut device) == 0 { device as u16 } else { DEVICE_UNKNOWN }
}

/// Returns the thread's current context; 0 if there is none.
pub fn current_context(Queries([_, query]): Queries) -> u64 {
    if query == 0 {
        return 0;
    }
    // SAFETY: as above.
    let query = unsafe { transmute::<usize, Query<u64>>(query) };
    let mut context = 0;
    if query(&mut context) == 0 { context } else { 0 }
}

/// Returns the device of an allocation; `None` if the memory is not that of a device.
pub fn device_of(queries: Queries, on: On, arguments: &[usize]) -> Option<u16> {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: i32 = 1;
    match on {
        On::Current => Some(current_device(queries)),
        On::Properties => {
            // SAFETY: the driver has read these properties, whose third and fourth fields are the
            // kind and the number of the location.
            let [_, _, kind, device] = unsafe { *(arguments[2] as *const [i32; 4]) };
            (kind == DEVICE).then_some(device as u16)
        }
        On::Handle(at) => Some(number(arguments[at])),
    }
}

/// Returns the place for a device's number, which is an `int` in a register.
fn primary(device: usize) -> Option<&'static (AtomicUsize, AtomicU32)> {
    PRIMARY.get(device as u32 as usize)
}

/// Notes that the program has retained the primary context of a device.
pub fn retained(device: usize, context: Option<usize>) {
    if let (Some((known, count)), Some(context)) = (primary(device), context) {
        known.store(context, Relaxed);
        count.fetch_add(1, Relaxed);
    }
}

/// Notes that the program has released it. Returns the context if that was the last time.
pub fn released(device: usize) -> Option<usize> {
    let (context, count) = primary(device)?;
    let before = count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).ok()?;
    (before == 1).then(|| context.load(Relaxed))
}

/// Returns the primary context of a device whose state was reset.
pub fn reset(device: usize) -> Option<usize> {
    primary(device).map(|(context, _)| context.load(Relaxed))
}

/// Notes the devices that a function of Level Zero listed.
pub fn list(count: usize, devices: usize) {
    // SAFETY: the function succeeded, so the address is 0 or that of the number of devices.
    let count = unsafe { (count as *const u32).as_ref() }.map_or(0, |&count| count as usize);
    if devices != 0 {
        // SAFETY: it has written this many handles.
        let handles = unsafe { core::slice::from_raw_parts(devices as *const usize, count) };
        handles.iter().for_each(|&handle| _ = number(handle));
    }
}

/// Returns the number of a device of Level Zero: devices are numbered as they are met.
fn number(handle: usize) -> u16 {
    for (number, known) in HANDLES.iter().enumerate() {
        let taken = known.compare_exchange(0, handle, Relaxed, Relaxed);
        if taken.is_ok_and(|_| handle != 0) || taken == Err(handle) {
            return number as u16;
        }
    }
    DEVICE_UNKNOWN
}
