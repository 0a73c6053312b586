//! Libraries of other tools that the recorder replaces. `heaptide sdk` installs links with their
//! names to the recorder, so that command lines that preload these libraries work unchanged.

use crate::sys::kernel::{self, Path};
use crate::sys::maps;
use crate::sys::own_stack;
use crate::sys::text::{Text, file_of};

/// The longest path, with a zero byte.
const PATH_MAX: usize = 4096;

/// A library that the recorder replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replaced {
    /// Calls the monitors that the program registers.
    AllocMonitor = 1,
    /// Prints five totals at exit.
    MaxMemory = 2,
    /// Prints a dump of all stacks at exit.
    MallocProfiler = 4,
    /// The same, and starts without recording.
    MallocProfilerOff = 8,
}

const NAMES: [(&[u8], Replaced); 4] = [
    (b"libPerfToolsAllocMonitorPreload.so", Replaced::AllocMonitor),
    (b"libPerfToolsMaxMemoryPreload.so", Replaced::MaxMemory),
    (b"mallocProfiler.so", Replaced::MallocProfiler),
    (b"mallocProfilerOFF.so", Replaced::MallocProfilerOff),
];

/// The libraries whose names the recorder was preloaded with.
#[derive(Clone, Copy, Default)]
pub struct Libraries(u32);

impl Libraries {
    /// Returns those among the entries of `LD_PRELOAD` that are the recorder's file.
    pub fn of<'a>(entries: impl Iterator<Item = &'a [u8]>) -> Libraries {
        let mut bits = 0;
        for entry in entries {
            bits |= named(entry).filter(|_| is_own_file(entry)).map_or(0, |library| library as u32);
        }
        Libraries(bits)
    }

    pub fn has(self, library: Replaced) -> bool {
        self.0 & library as u32 != 0
    }

    /// Returns whether it replaces either form of MallocProfiler.
    pub fn profile_malloc(self) -> bool {
        self.has(Replaced::MallocProfiler) || self.has(Replaced::MallocProfilerOff)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the sum of the values of [`Replaced`].
    pub fn bits(self) -> u32 {
        self.0
    }
}

fn named(entry: &[u8]) -> Option<Replaced> {
    NAMES.iter().find(|(name, _)| *name == file_of(entry)).map(|&(_, library)| library)
}

/// Returns whether an entry of `LD_PRELOAD` is the recorder under the name of another library, and
/// not that library itself.
pub fn is_own(entry: &[u8]) -> bool {
    named(entry).is_some() && own_stack::call(|| is_own_file(entry)) == Some(true)
}

/// Returns whether an entry of `LD_PRELOAD` is the file that this code was loaded from. One without
/// a directory was found in the loader's search path; it is searched beside the recorder.
fn is_own_file(entry: &[u8]) -> bool {
    let mut own = Text::<PATH_MAX>::new();
    maps::own_file(&mut own);
    let Some(identity) = own.path().and_then(identity) else {
        return false;
    };
    let is_same = |directories: &[&[u8]]| {
        let mut path = Text::<PATH_MAX>::new();
        directories.iter().for_each(|part| path.push(part));
        path.push(entry);
        path.path().and_then(self::identity) == Some(identity)
    };
    if entry.contains(&b'/') {
        return is_same(&[]);
    }
    let end = own.bytes().iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let directory = own.bytes().get(..end).unwrap_or_default();
    is_same(&[directory]) || is_same(&[directory, b"compat/"])
}

fn identity(path: Path<'_>) -> Option<(u64, u64)> {
    let file = kernel::open(path, kernel::O_RDONLY).ok()?;
    let identity = kernel::identity(file).ok();
    kernel::close(file);
    identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_the_names_of_their_files() {
        assert_eq!(named(b"/a/mallocProfiler.so"), Some(Replaced::MallocProfiler));
        assert_eq!(named(b"mallocProfilerOFF.so"), Some(Replaced::MallocProfilerOff));
        assert_eq!(named(b"/a/libmallocProfiler.so"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore)] // has no system calls
    fn another_file_of_that_name_is_not_ours() {
        let others = Libraries::of([&b"/nonexistent/mallocProfiler.so"[..]].into_iter());
        assert!(others.is_empty() && !is_own(b"mallocProfiler.so"));
    }
}
