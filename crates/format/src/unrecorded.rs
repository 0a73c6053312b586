//! Why a process image, or a child of one, is not recorded.

/// Entries of [`crate::FileHeader::unrecorded_children`]; more than there are kinds, for later
/// versions.
pub const UNRECORDED_CHILDREN: usize = 8;

/// Entries of [`crate::FileHeader::unrecorded_programs`]: a program that starts more different ones
/// without the recorder is rare, and the counts by reason are of all.
pub const UNRECORDED_PROGRAMS: usize = 12;
/// Bytes of a path that [`crate::UnrecordedProgram`] keeps.
pub const UNRECORDED_PATH: usize = 112;
/// [`crate::UnrecordedProgram::state`] while an entry is written; 0 before.
pub const UNRECORDED_WRITING: u32 = 1;
/// [`crate::UnrecordedProgram::state`] of a whole entry: this and its [`UnrecordedChild`].
pub const UNRECORDED_WHOLE: u32 = 2;

/// [`crate::FileHeader::image_flags`]: the executable exports a `malloc` of its own. Calls that it
/// does not hand on do not reach the recorder.
pub const IMAGE_OWN_MALLOC: u32 = 1;

/// [`crate::FileHeader::image_flags`]: the executable exports a `malloc` of its own, which is
/// intercepted: its calls are recorded.
pub const IMAGE_INTERCEPTED: u32 = 2;

/// [`crate::FileHeader::image_flags`]: from this bit on, four bits hold why the executable's
/// `malloc` is not intercepted, a [`NotIntercepted`]; 0 without [`IMAGE_OWN_MALLOC`], or from an
/// older recorder.
pub const IMAGE_REASON_SHIFT: u32 = 4;

/// [`crate::FileHeader::image_flags`]: the executable or a library has an allocator under names of
/// its own, which is intercepted.
pub const IMAGE_FAMILY: u32 = 256;

/// [`crate::FileHeader::image_flags`]: the executable or a library has an allocator under names of
/// its own, whose calls do not reach the recorder. From bit [`IMAGE_FAMILY_REASON_SHIFT`] on, four
/// bits hold the last reason, a [`NotIntercepted`].
pub const IMAGE_FAMILY_LEFT: u32 = 512;

/// See [`IMAGE_FAMILY_LEFT`].
pub const IMAGE_FAMILY_REASON_SHIFT: u32 = 12;

/// [`crate::FileHeader::image_flags`]: a command attached to the process while it ran. What it had
/// allocated before is not known.
pub const IMAGE_ATTACHED: u32 = 1 << 16;

/// [`crate::FileHeader::image_flags`]: the functions of the C library could not be intercepted in
/// place, so that only calls through the imports of modules are recorded.
pub const IMAGE_IMPORTS_ONLY: u32 = 1 << 17;

/// Entries of [`crate::FileHeader::interceptions`].
pub const INTERCEPTIONS: usize = 6;
/// Bytes of names that [`crate::Interception`] keeps.
pub const INTERCEPTION_NAMES: usize = 176;
/// See [`crate::Interception::state`].
pub const INTERCEPTED: u32 = 1;

/// Why an allocator that the program brings is not intercepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum NotIntercepted {
    /// Interception is turned off.
    TurnedOff = 1,
    /// The allocator does not report the size of its blocks: it has no `malloc_usable_size`.
    NoUsableSize = 2,
    /// The kernel does not allow code to be changed, or there is no room near it.
    Refused = 3,
    /// The beginning of a function cannot be moved.
    Unmovable = 4,
    /// Other threads could be executing it.
    Threads = 5,
    /// The recorder does not move instructions of this processor: noted by older ones on aarch64.
    Processor = 6,
}

impl NotIntercepted {
    /// The reason with this number.
    pub fn from_number(number: u32) -> Option<NotIntercepted> {
        use NotIntercepted::{NoUsableSize, Processor, Refused, Threads, TurnedOff, Unmovable};
        let all = [TurnedOff, NoUsableSize, Refused, Unmovable, Threads, Processor];
        all.into_iter().find(|&reason| reason as u32 == number)
    }

    /// The reason of [`IMAGE_OWN_MALLOC`] in [`crate::FileHeader::image_flags`].
    pub fn from_flags(flags: u32) -> Option<NotIntercepted> {
        NotIntercepted::from_number(flags >> IMAGE_REASON_SHIFT & 15)
    }

    /// The reason of [`IMAGE_FAMILY_LEFT`] there.
    pub fn of_family(flags: u32) -> Option<NotIntercepted> {
        NotIntercepted::from_number(flags >> IMAGE_FAMILY_REASON_SHIFT & 15)
    }
}

/// The owner of the ELF note of programs that have the recorder in them, with the zero byte that
/// ends it.
pub const EMBEDDED_NOTE: &[u8; 18] = b"Heaptide-embedded\0";

/// Why an image with a profile is not recorded ([`crate::FileHeader::unrecorded`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Unrecorded {
    /// There is no memory or address space for the recorder's tables (a limit such as `ulimit -v`
    /// or `ulimit -d`).
    NoMemory = 1,
    /// The allocator does not report the size of its blocks: it has no `malloc_usable_size`.
    NoUsableSize = 2,
    /// The program runs under a valgrind tool that replaces the allocator.
    Valgrind = 3,
    /// The kernel cannot give forked children a recorder of their own (`MADV_WIPEONFORK`, Linux
    /// 4.14).
    OldKernel = 4,
}

/// Why a child process, or the program that it became by exec, has no profile: the index into
/// [`crate::FileHeader::unrecorded_children`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum UnrecordedChild {
    /// A forked child could not create its profile: it gave up its rights before, the directory is
    /// gone, or there is no room.
    NoProfile = 0,
    /// It executed a statically linked program.
    Static = 1,
    /// It executed a program built with a sanitizer that replaces the allocator.
    Sanitizer = 2,
    /// It executed a program of another architecture.
    OtherArchitecture = 3,
    /// It executed a program from where the recorder's library cannot be read: another root
    /// directory, or another user.
    LibraryUnreachable = 4,
    /// It executed a program without the right to write to the recording.
    NoRight = 5,
    /// It executed a set-user-id program.
    SetUserId = 6,
}

/// A short name and an explanation for each [`UnrecordedChild`], in order of number.
pub const UNRECORDED_CHILD_NAMES: [(&str, &str); 7] = [
    ("child_no_profile", "child processes that could not create a profile (no right, no room)"),
    ("child_static", "programs started by exec that are statically linked"),
    ("child_sanitizer", "programs started by exec that were built with a sanitizer"),
    ("child_architecture", "programs started by exec that are of another architecture"),
    ("child_library", "programs started by exec where the recorder's library cannot be read"),
    ("child_no_right", "programs started by exec without the right to write to the recording"),
    ("child_setuid", "set-user-id programs started by exec"),
];
