//! The properties of device memory apart from its stack, packed into its key.

/// The properties of device memory, stored in [`crate::Key::size`] with [`crate::KEY_DEVICE`].
///
/// ```text
/// 63           32 31   24 23   16 15          0
/// ┌──────────────┬───────┬───────┬─────────────┐
/// │ 0            │ class │ api   │ device      │
/// └──────────────┴───────┴───────┴─────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceKey {
    /// A [`DeviceClass`].
    pub class: u8,
    /// A [`DeviceApi`].
    pub api: u8,
    /// The number of the device in its interface; [`DEVICE_UNKNOWN`] if it is not known.
    pub device: u16,
}

/// [`DeviceKey::device`] of memory of an unknown device.
pub const DEVICE_UNKNOWN: u16 = u16::MAX;

/// The interface by which device memory was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeviceApi {
    /// The driver interface of CUDA.
    Cuda = 1,
    /// HIP.
    Hip = 2,
    /// Level Zero.
    LevelZero = 3,
    /// A runtime above drivers (SYCL, OpenMP, OpenACC) of whose driver nothing is recorded: the
    /// program announced the memory.
    Offload = 4,
}

/// How device memory was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeviceClass {
    /// Memory with an address, allocated and freed at the call.
    Memory = 1,
    /// Memory that is allocated and freed in the order of a stream. It is counted at the calls.
    Stream = 2,
    /// An array for textures and surfaces; its size is that of its elements.
    Array = 3,
    /// Memory without an address of its own, for mapping into reserved addresses.
    Physical = 4,
    /// Memory that the program announced, of a driver of which nothing is recorded. Its size is
    /// what the program announced.
    Announced = 5,
    /// A block that a library hands out from memory that it took from the driver. Its site has
    /// [`crate::KEY_POOL_BLOCK`].
    PoolBlock = 6,
    /// Memory from which a library hands out blocks; its live bytes are what it has not handed out.
    /// Its site has [`crate::KEY_POOL_CHUNK`].
    PoolChunk = 7,
}

impl DeviceKey {
    /// Returns the packed form.
    pub fn pack(self) -> u64 {
        (self.class as u64) << 24 | (self.api as u64) << 16 | self.device as u64
    }

    /// Unpacks the packed form.
    pub fn unpack(packed: u64) -> DeviceKey {
        DeviceKey { class: (packed >> 24) as u8, api: (packed >> 16) as u8, device: packed as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_packed_without_loss() {
        let classes = [DeviceClass::Memory, DeviceClass::Physical].map(|class| class as u8);
        for (class, device) in classes.into_iter().zip([7, DEVICE_UNKNOWN]) {
            let key = DeviceKey { class, api: DeviceApi::LevelZero as u8, device };
            assert_eq!(DeviceKey::unpack(key.pack()), key);
        }
    }
}
