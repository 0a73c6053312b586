//! The functions of device drivers that allocate and free memory, and what they do.

use crate::arch;
use heaptide_format::{DeviceApi, DeviceClass, MappingCall};
use heaptide_recorder::store::device_table::By;

/// Where a function has the size of its memory.
#[derive(Clone, Copy)]
pub enum Size {
    /// An argument has the bytes.
    Bytes(usize),
    /// An argument points to the bytes of a row, which the function sets; another one has the rows.
    Pitch { pitch: usize, rows: usize },
    /// The second argument points to the description of an array.
    Array,
    /// Likewise of an array with a depth. `levels`: the third argument has the number of mipmaps.
    Deep { levels: bool },
    /// The second argument points to the bits of an element, the next ones have the width and the
    /// height.
    Flat,
    /// The second argument points to the bits of an element, the third is an [`extent`] by value.
    /// An argument has the number of mipmaps, `None` for an array without, and one has the flags.
    ///
    /// [`extent`]: crate::arch::extent_argument
    Block { levels: Option<usize>, flags: usize },
    /// The first argument points to an address and the bytes of a row, the second is an extent.
    Volume,
}

/// The effect of a function, with the positions of its arguments.
#[derive(Clone, Copy)]
pub enum Effect {
    /// Allocates memory; `out` points to its address or handle.
    Allocate { class: DeviceClass, by: By, out: usize, size: Size, on: On },
    /// Allocates memory that the host can access.
    AllocateHost { call: MappingCall, out: usize, size: usize },
    /// Frees memory of either kind by its address.
    Free(usize),
    /// Releases a handle.
    Release(By),
    /// `(address, bytes, offset, handle, …)`: maps memory without an address.
    Map,
    /// `(address, bytes)`
    Unmap,
    /// `(&handle, address)`
    Retain,
    /// `(context)`: ends a context.
    EndContext,
    /// `(&context, device)`: the first call creates the context of the device.
    RetainPrimary,
    /// `(device)`: the last call ends the context of the device.
    ReleasePrimary,
    /// `(device)`: ends the context of the device.
    ResetPrimary,
    /// Frees all memory of the current device.
    ResetDevice,
    /// `(name, &function, …)`: looks up a function.
    LookUp,
    /// `(driver, &count, &devices)`: lists devices.
    List,
}

/// How the device of an allocation is known.
#[derive(Clone, Copy)]
pub enum On {
    /// It is the thread's current device.
    Current,
    /// The third argument points to properties that contain it (`CUmemAllocationProp`).
    Properties,
    /// An argument is its handle.
    Handle(usize),
}

/// An intercepted function.
pub struct Row {
    pub api: DeviceApi,
    pub symbol: &'static [u8],
    pub effect: Effect,
}

macro_rules! rows {
    ($($api:ident $symbol:literal $effect:expr;)*) => {
        [$(Row {
            api: DeviceApi::$api,
            symbol: concat!($symbol, "\0").as_bytes(),
            effect: $effect,
        }),*]
    };
}

const fn memory(out: usize, size: usize) -> Effect {
    allocate(DeviceClass::Memory, out, Size::Bytes(size))
}

const fn stream(out: usize, size: usize) -> Effect {
    allocate(DeviceClass::Stream, out, Size::Bytes(size))
}

const fn allocate(class: DeviceClass, out: usize, size: Size) -> Effect {
    Effect::Allocate { class, by: By::Address, out, size, on: On::Current }
}

const fn array(size: Size) -> Effect {
    let (class, by) = (DeviceClass::Array, By::Handle);
    Effect::Allocate { class, by, out: 0, size, on: On::Current }
}

const fn pinned(out: usize, size: usize) -> Effect {
    Effect::AllocateHost { call: MappingCall::Pinned, out, size }
}

const fn managed(out: usize, size: usize) -> Effect {
    Effect::AllocateHost { call: MappingCall::Managed, out, size }
}

const PITCH: Effect = allocate(DeviceClass::Memory, 0, Size::Pitch { pitch: 1, rows: 3 });
/// Arguments of HIP behind an extent.
const BEHIND: usize = arch::BEHIND_EXTENT;
const PHYSICAL: Effect = Effect::Allocate {
    class: DeviceClass::Physical,
    by: By::Handle,
    out: 0,
    size: Size::Bytes(1),
    on: On::Properties,
};
const LEVEL_ZERO: Effect = Effect::Allocate {
    class: DeviceClass::Memory,
    by: By::Address,
    out: 5,
    size: Size::Bytes(2),
    on: On::Handle(4),
};

/// Number of intercepted functions.
pub const ROW_COUNT: usize = 72;

/// All intercepted functions. The interfaces are those of CUDA 12, ROCm 6 and Level Zero 1.
pub static ROWS: [Row; ROW_COUNT] = rows! {
    Cuda "cuMemAlloc_v2" memory(0, 1);
    Cuda "cuMemAllocPitch_v2" PITCH;
    Cuda "cuMemAllocAsync" stream(0, 1);
    Cuda "cuMemAllocAsync_ptsz" stream(0, 1);
    Cuda "cuMemAllocFromPoolAsync" stream(0, 1);
    Cuda "cuMemAllocFromPoolAsync_ptsz" stream(0, 1);
    Cuda "cuArrayCreate_v2" array(Size::Array);
    Cuda "cuArray3DCreate_v2" array(Size::Deep { levels: false });
    Cuda "cuMipmappedArrayCreate" array(Size::Deep { levels: true });
    Cuda "cuMemCreate" PHYSICAL;
    Cuda "cuMemAllocHost_v2" pinned(0, 1);
    Cuda "cuMemHostAlloc" pinned(0, 1);
    Cuda "cuMemAllocManaged" managed(0, 1);
    Cuda "cuMemFree_v2" Effect::Free(0);
    Cuda "cuMemFreeAsync" Effect::Free(0);
    Cuda "cuMemFreeAsync_ptsz" Effect::Free(0);
    Cuda "cuMemFreeHost" Effect::Free(0);
    Cuda "cuArrayDestroy" Effect::Release(By::Handle);
    Cuda "cuMipmappedArrayDestroy" Effect::Release(By::Handle);
    Cuda "cuMemRelease" Effect::Release(By::Handle);
    Cuda "cuMemMap" Effect::Map;
    Cuda "cuMemUnmap" Effect::Unmap;
    Cuda "cuMemRetainAllocationHandle" Effect::Retain;
    Cuda "cuCtxDestroy_v2" Effect::EndContext;
    Cuda "cuDevicePrimaryCtxRetain" Effect::RetainPrimary;
    Cuda "cuDevicePrimaryCtxRelease_v2" Effect::ReleasePrimary;
    Cuda "cuDevicePrimaryCtxReset_v2" Effect::ResetPrimary;
    Cuda "cuGetProcAddress" Effect::LookUp;
    Cuda "cuGetProcAddress_v2" Effect::LookUp;
    Hip "hipMalloc" memory(0, 1);
    Hip "hipExtMallocWithFlags" memory(0, 1);
    Hip "hipMallocPitch" PITCH;
    Hip "hipMemAllocPitch" PITCH;
    Hip "hipMallocAsync" stream(0, 1);
    Hip "hipMallocAsync_spt" stream(0, 1);
    Hip "hipMallocFromPoolAsync" stream(0, 1);
    Hip "hipMallocFromPoolAsync_spt" stream(0, 1);
    Hip "hipMallocManaged" managed(0, 1);
    Hip "hipHostMalloc" pinned(0, 1);
    Hip "hipHostAlloc" pinned(0, 1);
    Hip "hipMallocHost" pinned(0, 1);
    Hip "hipMemAllocHost" pinned(0, 1);
    Hip "hipMalloc3D" allocate(DeviceClass::Memory, 0, Size::Volume);
    Hip "hipMallocArray" array(Size::Flat);
    Hip "hipMalloc3DArray" array(Size::Block { levels: None, flags: BEHIND });
    Hip "hipMallocMipmappedArray" array(Size::Block { levels: Some(BEHIND), flags: BEHIND + 1 });
    Hip "hipArrayCreate" array(Size::Array);
    Hip "hipArray3DCreate" array(Size::Deep { levels: false });
    Hip "hipMipmappedArrayCreate" array(Size::Deep { levels: true });
    Hip "hipFreeArray" Effect::Release(By::Handle);
    Hip "hipFreeMipmappedArray" Effect::Release(By::Handle);
    Hip "hipArrayDestroy" Effect::Release(By::Handle);
    Hip "hipMipmappedArrayDestroy" Effect::Release(By::Handle);
    Hip "hipMemCreate" PHYSICAL;
    Hip "hipMemRelease" Effect::Release(By::Handle);
    Hip "hipMemMap" Effect::Map;
    Hip "hipMemUnmap" Effect::Unmap;
    Hip "hipMemRetainAllocationHandle" Effect::Retain;
    Hip "hipFree" Effect::Free(0);
    Hip "hipFreeAsync" Effect::Free(0);
    Hip "hipFreeAsync_spt" Effect::Free(0);
    Hip "hipHostFree" Effect::Free(0);
    Hip "hipFreeHost" Effect::Free(0);
    Hip "hipDeviceReset" Effect::ResetDevice;
    Hip "hipDevicePrimaryCtxReset" Effect::ResetPrimary;
    LevelZero "zeDeviceGet" Effect::List;
    LevelZero "zeMemAllocDevice" LEVEL_ZERO;
    LevelZero "zeMemAllocHost" pinned(4, 2);
    LevelZero "zeMemAllocShared" managed(6, 3);
    LevelZero "zeMemFree" Effect::Free(1);
    LevelZero "zeMemFreeExt" Effect::Free(2);
    LevelZero "zeContextDestroy" Effect::EndContext;
};
