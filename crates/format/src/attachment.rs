//! The state shared by a library that was loaded into a running program and the command that
//! attached to it: a static of the library, which the command reads and writes while it has stopped
//! the program's threads.

/// The layout of [`Attachment`]; a command rejects any other.
pub const ATTACHMENT_VERSION: u32 = 5;
/// Value of a lane's gate while its thread is outside of the recorder. It is greater while the
/// thread is inside, and less if the lane is not in use.
pub const GATE_OPEN: u64 = 1;
/// The library's symbol of the [`Attachment`].
pub const ATTACHMENT_SYMBOL: &str = "heaptide_attachment";
/// The library's function that prepares a recording:
/// `void heaptide_attach(const char *settings, size_t bytes)`.
pub const ATTACH_SYMBOL: &str = "heaptide_attach";
/// The library's function that frees the memory of a recording that has ended: `void
/// heaptide_release(void)`.
pub const RELEASE_SYMBOL: &str = "heaptide_release";

/// [`Attachment::link`]: the loader loaded the library before the program started.
pub const LINK_PRELOADED: u32 = 0;
/// [`Attachment::link`]: loaded into a running program, which is not recorded.
pub const LINK_IDLE: u32 = 1;
/// [`Attachment::link`]: the program is recorded, or will be soon.
pub const LINK_ATTACHED: u32 = 2;

/// [`Attachment::link`]: a command put the library into a static program, before its start.
pub const LINK_INSERTED: u32 = 3;

/// The start of the abstract address of a socket at which a command of a recording listens for
/// processes that are about to execute a static program. The device and the inode of the
/// recording's directory follow, as `DEVICE-INODE` in decimal. A process sends an
/// [`InsertionRequest`] when it is ready, and closes the connection when it has executed the
/// program, or has started it. The command closes it at once if it cannot record the program.
pub const INSERTION_ADDRESS: &str = "heaptide-insert-";
/// Size of [`InsertionRequest`].
pub const INSERTION_REQUEST_BYTES: usize = size_of::<InsertionRequest>();
/// [`InsertionRequest::executor`]: the thread itself.
pub const EXECUTOR_THREAD: u32 = 0;
/// [`InsertionRequest::executor`]: a process that the thread is about to make.
pub const EXECUTOR_NEW: u32 = 1;

/// What a process asks of the command: to trace the one that will execute a static program.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertionRequest {
    /// `EXECUTOR_*`.
    pub executor: u32,
    /// The number of the thread, as the process sees it.
    pub thread: u32,
    /// The descriptor at which the process has opened the program until it has the answer.
    pub program: u32,
}

impl InsertionRequest {
    /// Returns it as it is sent.
    pub fn bytes(self) -> [u8; INSERTION_REQUEST_BYTES] {
        let mut bytes = [0; INSERTION_REQUEST_BYTES];
        let words = [self.executor, self.thread, self.program];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns what was sent.
    pub fn of(bytes: [u8; INSERTION_REQUEST_BYTES]) -> InsertionRequest {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        InsertionRequest {
            executor: u32::from_le_bytes([a, b, c, d]),
            thread: u32::from_le_bytes([e, f, g, h]),
            program: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// The answer of a command that traces the process.
pub const INSERTION_BEGUN: u8 = b'+';
/// Sent by a process if the program was not started.
pub const INSERTION_CANCELLED: u8 = b'-';

/// The library's symbol of the addresses of its own [`MEMORY_FUNCTIONS`], 8 bytes each.
pub const MEMORY_FUNCTIONS_SYMBOL: &str = "heaptide_memory_functions";
/// Functions of a C library that compiled code calls, and that a static program may lack.
pub const MEMORY_FUNCTIONS: [&str; 5] = ["memcpy", "memmove", "memset", "bcmp", "strlen"];

/// [`Attachment::outcome`]: nothing was prepared yet.
pub const OUTCOME_NONE: u32 = 0;
/// [`Attachment::outcome`]: a recording is prepared.
pub const OUTCOME_PREPARED: u32 = 1;
/// [`Attachment::outcome`]: the profile could not be created.
pub const OUTCOME_NO_PROFILE: u32 = 2;
/// [`Attachment::outcome`]: the profile contains the reason.
pub const OUTCOME_NOTED: u32 = 3;

/// [`Attachment::progress`]: the command does not wait for the end of the preparation.
pub const PROGRESS_NONE: u32 = 0;
/// [`Attachment::progress`]: the command waits for the end of the preparation. Until then, it does
/// not stop the thread at system calls.
pub const PROGRESS_AWAITED: u32 = 1;
/// [`Attachment::progress`]: all is prepared. The thread waits for a moment for the command to stop
/// it.
pub const PROGRESS_DONE: u32 = 2;
/// [`Attachment::progress`]: the command has stopped the thread, which need not wait any longer.
pub const PROGRESS_SEEN: u32 = 3;

/// The state of the recorder while it does not record.
pub const STATE_OFF: u32 = 3;
/// The state of the recorder while it records.
pub const STATE_ACTIVE: u32 = 2;

/// The most ranges of state of one recording.
pub const WIPED_MAX: usize = 40;
/// The most ranges of memory of one recording.
pub const RELEASED_MAX: usize = 4;
/// The most code changes of one attachment.
pub const CHANGES_MAX: usize = 192;
/// The most imports that the command rebinds; the library rebinds the others itself.
pub const IMPORTS_MAX: usize = 1 << 20;

/// Arenas of the recorder's own memory.
pub const ARENAS: usize = 3;

/// A range of memory.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(zerocopy::FromBytes, zerocopy::Immutable))]
#[cfg_attr(feature = "views", derive(zerocopy::KnownLayout, zerocopy::IntoBytes))]
#[repr(C)]
pub struct Memory {
    /// Its start address.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// A jump that replaces the first instructions of a function.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(zerocopy::FromBytes, zerocopy::Immutable))]
#[cfg_attr(feature = "views", derive(zerocopy::KnownLayout, zerocopy::IntoBytes))]
#[repr(C)]
pub struct Change {
    /// The address.
    pub address: u64,
    /// The current bytes, as many as a jump has.
    pub before: [u8; 8],
    /// The bytes to write.
    pub after: [u8; 8],
}

/// A word of a module that holds the address of an interposed function.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(zerocopy::FromBytes, zerocopy::Immutable))]
#[cfg_attr(feature = "views", derive(zerocopy::KnownLayout, zerocopy::IntoBytes))]
#[repr(C)]
pub struct Rebinding {
    /// The address of the word.
    pub slot: u64,
    /// The address to write.
    pub hook: u64,
}

/// See the description of this module.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "views", derive(zerocopy::FromBytes, zerocopy::Immutable))]
#[cfg_attr(feature = "views", derive(zerocopy::KnownLayout, zerocopy::IntoBytes))]
#[repr(C)]
pub struct Attachment {
    /// [`ATTACHMENT_VERSION`].
    pub version: u32,
    /// A `LINK_` constant.
    pub link: u32,
    /// An `OUTCOME_` constant.
    pub outcome: u32,
    /// 1: the state is that of a recording, and is cleared before the next one.
    pub is_used: u32,
    /// With [`OUTCOME_NO_PROFILE`]: the errno of the failed call, or 0 for another reason.
    pub errno: u64,
    /// Address of the recorder's state, a `STATE_` constant.
    pub state_at: u64,
    /// Offset of a thread's block of the recorder from its thread pointer.
    pub thread_offset: u64,
    /// Bytes of that block: the address of the lane, then 4 bytes that are nonzero while the thread
    /// acquires a lane.
    pub thread_bytes: u64,
    /// Offset in that block of a 4-byte count of locks that the thread holds.
    pub thread_locks: u64,
    /// Offset in a lane of its gate: 8 bytes, greater than [`GATE_OPEN`] while its thread is inside
    /// the recorder.
    pub lane_gate: u64,
    /// The library's memory range.
    pub code: Memory,
    /// The part of it whose calls of other code leave the recorder: a thread that returns there is
    /// not inside.
    pub callers: Memory,
    /// Address of the profile's header; 0 before the first profile.
    pub header_at: u64,
    /// Entries of `wiped` in use.
    pub wiped_count: u32,
    /// Entries of `changes` in use.
    pub changes_count: u32,
    /// State to clear when a recording ends.
    pub wiped: [Memory; WIPED_MAX],
    /// Memory to free after that.
    pub released: [Memory; RELEASED_MAX],
    /// A `PROGRESS_` constant.
    pub progress: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of memory for [`IMPORTS_MAX`] entries of type [`Rebinding`]; 0 for none. The command
    /// frees it.
    pub imports_at: u64,
    /// Entries there in use.
    pub imports_count: u64,
    /// Address of the table of live blocks ([`crate::live_blocks`]), whose numbers are those of
    /// sites.
    pub blocks_at: u64,
    /// Address of the table of the usable sizes of some of them.
    pub sizes_at: u64,
    /// Addresses of the description of each arena of the recorder's own memory: its start address
    /// and length, 8 bytes each.
    pub arenas_at: [u64; ARENAS],
    /// Changes of code, which stay when a recording ends.
    pub changes: [Change; CHANGES_MAX],
}
