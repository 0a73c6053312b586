//! The directory of a recording: its path, its marker, and its removal if it is temporary.

use crate::store::shared::Store;
use crate::sys::kernel::{self, Errno, Path};
use crate::sys::memory::{self, InChild};
use crate::sys::options::{Options, PATH_MAX};
use crate::sys::text::{Text, file_of};
use crate::sys::{executed, maps, own_stack};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{BASELINE_SUFFIX, HELD_SUFFIX, PROFILE_SUFFIX};

/// The recording's directory, absolute. Forked children inherit it, even if they change directory.
static DIRECTORY: AtomicPtr<Text<PATH_MAX>> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the recording's directory, if it is known.
pub fn known() -> Option<&'static Text<PATH_MAX>> {
    // SAFETY: complete when it was stored; never changed or released.
    unsafe { DIRECTORY.load(Acquire).as_ref() }
}

/// Forgets the directory: the next profile belongs to a new recording.
pub fn forget() {
    DIRECTORY.store(core::ptr::null_mut(), Release);
}

/// Returns the recording's directory, and creates it if it does not exist.
///
/// Errors: its path cannot be determined or stored, or the kernel's error for a temporary
/// directory.
pub fn of(options: &Options, pid: u32) -> Result<&'static Text<PATH_MAX>, Errno> {
    if let Some(known) = known() {
        return Ok(known);
    }
    const RIGHTS: usize = 0o755;
    let path = if options.is_temporary() {
        create_temporary(options, pid)?
    } else {
        let path = absolute(&options.output, pid).ok_or(kernel::ENAMETOOLONG)?;
        // It usually exists. If it cannot be created, opening a file in it fails.
        let _ = path.path().map(|path| kernel::mkdir(path, RIGHTS));
        path
    };
    let directory = keep(path).ok_or(kernel::ENOMEM)?;
    mark(directory);
    Ok(directory)
}

/// The suffix of a directory that is removed with the processes that are recorded in it. Programs
/// started by exec recognise it by this suffix.
const TEMPORARY_SUFFIX: &[u8] = b".removed-at-exit.heaptide";

/// Creates a new directory in that of temporary files.
///
/// Errors: those of the kernel.
fn create_temporary(options: &Options, pid: u32) -> Result<Text<PATH_MAX>, Errno> {
    const DEFAULT: &[u8] = b"/tmp";
    const RIGHTS: usize = 0o700;
    /// Maximum number of directories that dead processes with the same pid may have left.
    const TRIED_MAX: u64 = 100;
    let parent = options.temporary.bytes();
    for number in 0..TRIED_MAX {
        let mut path = Text::new();
        path.push(if parent.is_empty() { DEFAULT } else { parent });
        path.push(b"/");
        push_default_name(&mut path, pid);
        path.push(b"-");
        path.push_number(number);
        path.push(TEMPORARY_SUFFIX);
        match kernel::mkdir(path.path().ok_or(kernel::ENAMETOOLONG)?, RIGHTS) {
            Ok(()) => return Ok(path),
            Err(kernel::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(kernel::EEXIST)
}

fn absolute(output: &Text<PATH_MAX>, pid: u32) -> Option<Text<PATH_MAX>> {
    let mut path = Text::new();
    if output.bytes().first() != Some(&b'/') {
        let mut here = [0u8; PATH_MAX];
        let link = Path::new(b"/proc/self/cwd\0")?;
        path.push(kernel::readlink(link, &mut here).ok()?);
        path.push(b"/");
    }
    if output.is_empty() {
        push_default_name(&mut path, pid);
        path.push(b".heaptide");
    } else {
        path.push(output.bytes());
    }
    path.is_whole().then_some(path)
}

/// Appends the default name of a recording, without its suffix.
fn push_default_name(path: &mut Text<PATH_MAX>, pid: u32) {
    let mut program = [0u8; PATH_MAX];
    let program = executed::program(&mut program).unwrap_or(b"program");
    path.push(b"heaptide-");
    path.push(file_of(program));
    path.push(b"-");
    path.push_number(pid as u64);
}

fn keep(path: Text<PATH_MAX>) -> Option<&'static Text<PATH_MAX>> {
    let memory = memory::take(size_of::<Text<PATH_MAX>>(), InChild::Copy);
    let directory = memory as *mut Text<PATH_MAX>;
    if directory.is_null() {
        return None;
    }
    // SAFETY: fresh memory of that size.
    unsafe { directory.write(path) };
    DIRECTORY.store(directory, Release);
    known()
}

/// The file that marks a directory as a recording.
const MARKER: &[u8] = b"/recording.json";

/// Marks the directory as a recording, unless that was done before.
fn mark(directory: &Text<PATH_MAX>) {
    const CONTENT: &[u8] = b"{\"version\":1,\"root_pid\":0}\n";
    let mut path = Text::<PATH_MAX>::new();
    path.push(directory.bytes());
    path.push(MARKER);
    if let Some(Ok(fd)) = path.path().map(kernel::create) {
        let _ = kernel::write_at(fd, CONTENT, 0); // without it, a recording cannot be replaced
        kernel::close(fd);
    }
}

/// Removes the process's files from a temporary recording, and the recording itself if it contains
/// no files of other processes.
pub fn remove_temporary(p: &Store) {
    let is_temporary = |path: &&Text<PATH_MAX>| path.bytes().ends_with(TEMPORARY_SUFFIX);
    let Some(directory) = known().filter(is_temporary) else {
        return;
    };
    let header = p.header();
    own_stack::call(|| {
        let mut path = Text::<PATH_MAX>::new();
        path.push(directory.bytes());
        path.push(b"/");
        let length = path.bytes().len();
        for image in 0..=header.image.get() {
            for suffix in [PROFILE_SUFFIX, BASELINE_SUFFIX, HELD_SUFFIX] {
                path.truncate(length);
                path.push_number(header.pid.get() as u64);
                path.push(b"-");
                path.push_number(image as u64);
                path.push(suffix.as_bytes());
                path.path().into_iter().for_each(kernel::unlink);
            }
        }
        path.truncate(length - 1);
        path.push(MARKER);
        path.path().into_iter().for_each(kernel::unlink);
        path.truncate(length - 1);
        path.path().into_iter().for_each(kernel::rmdir);
    });
}

/// Returns the current name of the recording's directory, read from the mapping of a profile in it;
/// none if it was removed, or if its name has not changed.
pub fn renamed(profile: &'static FileHeader) -> Option<&'static Text<PATH_MAX>> {
    own_stack::call(|| {
        let mut buffer = [0u8; 16 << 10];
        let mut found = None;
        maps::each_mapping(&mut buffer, |mapping| {
            if mapping.range.holds(core::ptr::from_ref(profile) as u64)
                && mapping.path.ends_with(PROFILE_SUFFIX.as_bytes())
            {
                found = directory_of(mapping.path);
            }
            found.is_none()
        });
        let is_known =
            |path: &Text<PATH_MAX>| known().is_some_and(|known| known.bytes() == path.bytes());
        found.filter(|path| !is_known(path)).and_then(keep)
    })?
}

fn directory_of(file: &[u8]) -> Option<Text<PATH_MAX>> {
    let end = file.iter().rposition(|&b| b == b'/')?;
    let mut directory = Text::new();
    directory.push(&file[..end]);
    directory.is_whole().then_some(directory)
}
