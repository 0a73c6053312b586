//! Memory of devices: GPUs and other accelerators. It is recorded apart from that of the host, with
//! totals, a peak and sites of its own.

use std::fmt;

use super::measure::Measures;

/// Properties of device memory other than its stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceMemory {
    /// Where it is.
    pub device: Device,
    /// How it was allocated.
    pub class: DeviceClass,
}

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Device {
    /// The interface by which its memory was allocated.
    pub api: DeviceApi,
    /// Its number there; `None` if it is not known.
    pub number: Option<u16>,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{} device {number}", self.api.name()),
            None => write!(f, "unknown {} device", self.api.name()),
        }
    }
}

/// The interface of a device driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DeviceApi {
    /// The driver interface of CUDA.
    Cuda,
    /// HIP.
    Hip,
    /// Level Zero.
    LevelZero,
    /// A runtime above a driver of which nothing is recorded.
    Offload,
    /// One that this version does not know.
    Other,
}

impl DeviceApi {
    /// Returns the name in reports, queries and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceApi::Cuda => "CUDA",
            DeviceApi::Hip => "HIP",
            DeviceApi::LevelZero => "Level Zero",
            DeviceApi::Offload => "offload",
            DeviceApi::Other => "other",
        }
    }
}

/// How device memory was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DeviceClass {
    /// Memory with an address, allocated and freed at the call.
    Memory,
    /// Memory that is allocated and freed in the order of a stream, but counted at the calls.
    Stream,
    /// An array for textures and surfaces.
    Array,
    /// Memory without an address of its own, for mapping into reserved addresses.
    Physical,
    /// Memory that the program announced, of a driver of which nothing is recorded.
    Announced,
    /// Blocks that a library hands out from chunks. Their live bytes were subtracted from those of
    /// the chunks.
    PoolBlock,
    /// Chunks from which a library hands out blocks; live bytes of these are not handed out.
    PoolChunk,
    /// One that this version does not know.
    Other,
}

impl DeviceClass {
    /// Returns the name in reports, queries and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceClass::Memory => "memory",
            DeviceClass::Stream => "stream",
            DeviceClass::Array => "array",
            DeviceClass::Physical => "physical",
            DeviceClass::Announced => "announced",
            DeviceClass::PoolBlock => "pool_block",
            DeviceClass::PoolChunk => "pool_chunk",
            DeviceClass::Other => "other",
        }
    }
}

/// Sums over all device memory of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceTotals {
    /// Sums over all sites of device memory, with the peak of all devices together; of joined
    /// processes, the sum of their peaks.
    pub totals: Measures,
    /// When that peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// Sums by device.
    pub devices: Vec<DeviceSum>,
    /// Bytes of pools, which are part of the totals; `None` if there are no pools.
    pub pools: Option<PoolBytes>,
    /// Number of process images with device memory: of several, peaks need not be at one time.
    pub images: u32,
}

/// Bytes of memory from which libraries hand out blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolBytes {
    /// Handed out at the peak of all devices together.
    pub in_use_at_peak: u64,
    /// Not handed out at that time.
    pub idle_at_peak: u64,
    /// Handed out at the end.
    pub in_use: u64,
    /// Not handed out at the end.
    pub idle: u64,
}

impl PoolBytes {
    /// Adds those of other sites or processes.
    pub fn add(&mut self, more: &PoolBytes) {
        let sum = u64::saturating_add;
        *self = PoolBytes {
            in_use_at_peak: sum(self.in_use_at_peak, more.in_use_at_peak),
            idle_at_peak: sum(self.idle_at_peak, more.idle_at_peak),
            in_use: sum(self.in_use, more.in_use),
            idle: sum(self.idle, more.idle),
        };
    }
}

/// Sums over the memory of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSum {
    /// The device.
    pub device: Device,
    /// Sums over its sites.
    pub measures: Measures,
    /// The device's own peak; `None` if it is not known, because there were too many changes.
    pub peak_bytes: Option<u64>,
}
