//! The properties of a mapping apart from its stack, packed into its key.

/// The properties of a mapping, stored in [`crate::Key::size`] with [`crate::KEY_MAPPING`].
///
/// ```text
/// 63            32 31   28 27        24 23                0
/// ┌───────────────┬───────┬────────────┬───────────────────┐
/// │ file (string) │ call  │ protection │ flags             │
/// └───────────────┴───────┴────────────┴───────────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingKey {
    /// A [`MappingCall`].
    pub call: u32,
    /// `PROT_` bits at its creation: 1 read, 2 write, 4 execute.
    pub protection: u32,
    /// `MAP_` bits at its creation, except those for the size of huge pages.
    pub flags: u32,
    /// String: path of the mapped file, `/memfd:NAME` or `/SYSVKEY`; 0 if it has none, or if its
    /// name could not be read.
    pub file: u32,
}

/// The call that created a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MappingCall {
    /// `mmap`, `mmap64`.
    Mmap = 0,
    /// `mremap`: protection, flags and file are those of the previous mapping.
    Mremap = 1,
    /// `brk`, `sbrk`.
    Break = 2,
    /// `shmat`.
    Shmat = 3,
    /// `mprotect`: memory that was reserved (`PROT_NONE`) became accessible, or
    /// was reserved again; flags and file are those of the previous mapping.
    Mprotect = 4,
    /// Host memory that a device driver allocated and locked in memory, so that devices can access
    /// it. Its range need not consist of whole pages.
    Pinned = 5,
    /// Memory that a device driver moves between host and devices. Likewise.
    Managed = 6,
}

/// [`MappingKey::flags`]: changes are shared with other processes.
pub const MAP_SHARED: u32 = 1;
/// [`MappingKey::flags`]: maps no file.
pub const MAP_ANONYMOUS: u32 = 0x20;
/// [`MappingKey::flags`]: grows downward, like a stack.
pub const MAP_GROWSDOWN: u32 = 0x100;
/// [`MappingKey::flags`]: intended for a thread's stack.
pub const MAP_STACK: u32 = 0x2_0000;
/// [`MappingKey::flags`]: consists of huge pages.
pub const MAP_HUGETLB: u32 = 0x4_0000;
/// [`MappingKey::protection`]: executable.
pub const PROT_EXEC: u32 = 4;

const FLAGS: u32 = 0x00ff_ffff;
const NIBBLE: u32 = 0xf;

impl MappingKey {
    /// Returns the packed form.
    pub fn pack(self) -> u64 {
        let low = (self.call & NIBBLE) << 28 | (self.protection & NIBBLE) << 24;
        (self.file as u64) << 32 | (low | self.flags & FLAGS) as u64
    }

    /// Unpacks the packed form.
    pub fn unpack(packed: u64) -> MappingKey {
        let low = packed as u32;
        MappingKey {
            call: low >> 28,
            protection: low >> 24 & NIBBLE,
            flags: low & FLAGS,
            file: (packed >> 32) as u32,
        }
    }
}
