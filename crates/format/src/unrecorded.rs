//! Reasons why a process image, or a child of one, is not recorded.

/// Entries of [`crate::FileHeader::unrecorded_children`]: more than there are kinds, for later
/// versions.
pub const UNRECORDED_CHILDREN: usize = 8;

/// Entries of [`crate::FileHeader::unrecorded_programs`]. Few programs start more different ones
/// without the recorder, and the counts by reason include all.
pub const UNRECORDED_PROGRAMS: usize = 12;
/// Bytes of the path in an [`crate::UnrecordedProgram`].
pub const UNRECORDED_PATH: usize = 112;
/// [`crate::UnrecordedProgram::state`] while an entry is written; 0 before.
pub const UNRECORDED_WRITING: u32 = 1;
/// [`crate::UnrecordedProgram::state`] of a complete entry: this plus its [`UnrecordedChild`].
pub const UNRECORDED_WHOLE: u32 = 2;

/// [`crate::FileHeader::image_flags`]: the executable exports its own `malloc`. Calls that it does
/// not forward do not reach the recorder.
pub const IMAGE_OWN_MALLOC: u32 = 1;

/// [`crate::FileHeader::image_flags`]: the executable exports its own `malloc`, which is
/// intercepted: its calls are recorded.
pub const IMAGE_INTERCEPTED: u32 = 2;

/// [`crate::FileHeader::image_flags`]: four bits, from this one on, hold the reason why the
/// executable's `malloc` is not intercepted, a [`NotIntercepted`]; 0 without [`IMAGE_OWN_MALLOC`],
/// or from an older recorder.
pub const IMAGE_REASON_SHIFT: u32 = 4;

/// [`crate::FileHeader::image_flags`]: the executable or a library has an allocator with its own
/// function names, which is intercepted.
pub const IMAGE_FAMILY: u32 = 256;

/// [`crate::FileHeader::image_flags`]: the executable or a library has an allocator with its own
/// function names, whose calls do not reach the recorder. Four bits from
/// [`IMAGE_FAMILY_REASON_SHIFT`] on hold the last reason, a [`NotIntercepted`].
pub const IMAGE_FAMILY_LEFT: u32 = 512;

/// See [`IMAGE_FAMILY_LEFT`].
pub const IMAGE_FAMILY_REASON_SHIFT: u32 = 12;

/// [`crate::FileHeader::image_flags`]: a command attached to the process while it ran. Earlier
/// allocations are unknown.
pub const IMAGE_ATTACHED: u32 = 1 << 16;

/// [`crate::FileHeader::image_flags`]: the functions of the C library could not be intercepted in
/// place, so only calls through the imports of modules are recorded.
pub const IMAGE_IMPORTS_ONLY: u32 = 1 << 17;

/// [`crate::FileHeader::image_flags`]: the compiler inlined functions of an intercepted allocator
/// into their callers: their slow path was entered without them. What their fast path allocates and
/// frees is not recorded.
pub const IMAGE_FAMILY_INLINED: u32 = 1 << 18;

/// [`crate::FileHeader::image_flags`]: functions of an intercepted allocator may be inlined, which
/// the recorder could not detect.
pub const IMAGE_FAMILY_UNCERTAIN: u32 = 1 << 19;

/// [`crate::FileHeader::image_flags`]: three bits, from this one on, hold how the objects of a
/// CPython interpreter are recorded, a [`PythonObjects`].
pub const IMAGE_PYTHON_SHIFT: u32 = 20;

/// How the objects of a CPython interpreter are recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PythonObjects {
    /// There is no interpreter, or the recorder is older.
    None = 0,
    /// Each object is a block.
    Blocks = 1,
    /// In arenas: the user chose that.
    TurnedOff = 2,
    /// In arenas: the interpreter is free-threaded.
    FreeThreaded = 3,
    /// In arenas: the interpreter was running before the recorder found it.
    Running = 4,
    /// In arenas: no memory for the sizes of blocks.
    NoMemory = 5,
}

impl PythonObjects {
    /// All values, in the order of their numbers.
    const ALL: [PythonObjects; 6] = [
        PythonObjects::None,
        PythonObjects::Blocks,
        PythonObjects::TurnedOff,
        PythonObjects::FreeThreaded,
        PythonObjects::Running,
        PythonObjects::NoMemory,
    ];

    /// Returns the choice in [`crate::FileHeader::image_flags`]; `None` if only a later version
    /// knows it.
    pub fn from_flags(flags: u32) -> Option<PythonObjects> {
        PythonObjects::ALL.get((flags >> IMAGE_PYTHON_SHIFT & 7) as usize).copied()
    }
}

/// Entries of [`crate::FileHeader::interceptions`].
pub const INTERCEPTIONS: usize = 6;
/// Bytes of names in a [`crate::Interception`].
pub const INTERCEPTION_NAMES: usize = 176;
/// See [`crate::Interception::state`].
pub const INTERCEPTED: u32 = 1;

/// The reason why an allocator of the program's own is not intercepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum NotIntercepted {
    /// Interception is turned off.
    TurnedOff = 1,
    /// The allocator does not report the size of its blocks: it has no `malloc_usable_size`.
    NoUsableSize = 2,
    /// The kernel does not allow code changes, or there is no space near the code.
    Refused = 3,
    /// The start of a function cannot be moved.
    Unmovable = 4,
    /// Other threads could be executing the code.
    Threads = 5,
    /// The recorder could not move instructions of this processor: set by older versions on
    /// aarch64.
    Processor = 6,
    /// A library that was opened with `RTLD_DEEPBIND` uses the C library beside another allocator,
    /// or its imports could not be changed.
    DeepBound = 7,
    /// It is in a namespace (`dlmopen`) that the loader does not list: glibc before 2.35.
    Namespace = 8,
    /// Only the names of its functions show that it is one: what they do is unknown.
    Unknown = 9,
    /// It is the process's allocator, which the program also calls by other names than those of the
    /// C library (`mi_malloc`): the functions with these names could not be intercepted.
    Renamed = 10,
}

impl NotIntercepted {
    /// Returns the reason with this number.
    pub fn from_number(number: u32) -> Option<NotIntercepted> {
        use NotIntercepted::{DeepBound, Namespace, NoUsableSize, Processor};
        use NotIntercepted::{Refused, Renamed, Threads, TurnedOff, Unknown, Unmovable};
        let all = [
            TurnedOff,
            NoUsableSize,
            Refused,
            Unmovable,
            Threads,
            Processor,
            DeepBound,
            Namespace,
            Unknown,
            Renamed,
        ];
        all.into_iter().find(|&reason| reason as u32 == number)
    }

    /// Returns the reason of [`IMAGE_OWN_MALLOC`] in [`crate::FileHeader::image_flags`].
    pub fn from_flags(flags: u32) -> Option<NotIntercepted> {
        NotIntercepted::from_number(flags >> IMAGE_REASON_SHIFT & 15)
    }

    /// Returns the reason of [`IMAGE_FAMILY_LEFT`] in [`crate::FileHeader::image_flags`].
    pub fn of_family(flags: u32) -> Option<NotIntercepted> {
        NotIntercepted::from_number(flags >> IMAGE_FAMILY_REASON_SHIFT & 15)
    }
}

/// The owner of the ELF note of programs that embed the recorder, with the terminating zero.
pub const EMBEDDED_NOTE: &[u8; 18] = b"Heaptide-embedded\0";

/// The reason why an image with a profile is not recorded ([`crate::FileHeader::unrecorded`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Unrecorded {
    /// There was no memory or address space for the recorder's tables (a limit such as `ulimit -v`
    /// or `ulimit -d`).
    NoMemory = 1,
    /// The allocator does not report the size of its blocks: it has no `malloc_usable_size`.
    NoUsableSize = 2,
    /// The program runs under a valgrind tool that replaces the allocator.
    Valgrind = 3,
    /// The kernel lacks `MADV_WIPEONFORK` (Linux 4.14), which forked children need for a recorder
    /// of their own.
    OldKernel = 4,
}

/// The reason why a child process, or the program that it executed, has no profile: the index into
/// [`crate::FileHeader::unrecorded_children`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum UnrecordedChild {
    /// A forked child could not create its profile: it had dropped its privileges before, the
    /// directory no longer exists, or there was no space.
    NoProfile = 0,
    /// It executed a statically linked program that could not be given the recorder.
    Static = 1,
    /// It executed a program built with a sanitizer that replaces the allocator.
    Sanitizer = 2,
    /// It executed a program of another architecture.
    OtherArchitecture = 3,
    /// It executed a program that cannot read the recorder's library, because it has another root
    /// directory or user.
    LibraryUnreachable = 4,
    /// It executed a program without permission to write to the recording.
    NoRight = 5,
    /// It executed a set-user-id program.
    SetUserId = 6,
}

/// A short name and an explanation for each [`UnrecordedChild`], in order of number.
pub const UNRECORDED_CHILD_NAMES: [(&str, &str); 7] = [
    (
        "child_no_profile",
        "child processes that could not create a profile (no permission or space, or another root \
         directory)",
    ),
    (
        "child_static",
        "statically linked programs started by exec that could not be given the recorder",
    ),
    ("child_sanitizer", "programs started by exec that were built with a sanitizer"),
    ("child_architecture", "programs started by exec that are of another architecture"),
    ("child_library", "programs started by exec where the recorder's library cannot be read"),
    ("child_no_right", "programs started by exec that may not write to the recording"),
    ("child_setuid", "set-user-id or set-group-id programs started by exec"),
];
