//! The file of a profile: its name, its mapping, and its growth.
//!
//! The mapping covers all that the file may grow to. No page is touched before the disk has room
//! for it: the file grows by fallocate, after a check of the file size limit, so neither SIGBUS nor
//! SIGXFSZ can occur.

use crate::store::shared::Store;
use crate::store::{directory, limit};
use crate::sys::arch::PAGE_BYTES_MAX;
use crate::sys::kernel::{self, Errno, Fd, Path};
use crate::sys::memory::{self, InChild};
use crate::sys::options::{Options, PATH_MAX};
use crate::sys::text::{Text, file_of};
use crate::sys::{confined, front, own_stack};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::FileHeader;
use heaptide_format::{PAGE, PROFILE_SUFFIX};

/// Address space reserved for a profile. 64 GiB hold some 400 million sites.
const RESERVE: u64 = 64 << 30;
/// The smallest reservation that is tried.
const RESERVE_MIN: u64 = 256 << 10;
/// Under a limit of address space, at most the limit divided by this is reserved.
const SPACE_PART: u64 = 12;
/// Under a limit of data, at most the limit times this is reserved.
const DATA_TIMES: u64 = 16;
/// The file grows by an eighth of its size, within these bounds.
const GROW_MIN: u64 = 64 << 10;
const GROW_MAX: u64 = 8 << 20;
/// Descriptors that are kept open have at least this number, above those that programs rely on.
const FD_LEAST: u64 = 900;
/// After a failure, growth is tried again once in this many attempts.
const RETRY: u32 = 1024;
/// Maximum number of images of one pid in a recording.
const IMAGES_MAX: u32 = 100_000;

/// Creates the file, with room for the header and one extent at least, and maps it. Returns the
/// address of the mapping, its length in bytes and the number of the image. `family` is a mapped
/// profile of the same recording, by which its directory is found if it was renamed.
///
/// Errors: those of the kernel.
pub fn create(
    p: &Store,
    options: &Options,
    pid: u32,
    family: Option<&'static FileHeader>,
) -> Result<(*mut u8, u64, u32), Errno> {
    let mut path = Text::<PATH_MAX>::new();
    let opened = open_new(&mut path, directory::of(options, pid)?, pid);
    let (fd, image) = opened.or_else(|errno| {
        let renamed = family.and_then(directory::renamed).ok_or(errno)?;
        open_new(&mut path, renamed, pid)
    })?;
    let mapped = grow_and_map(p, fd, path.bytes());
    kernel::close(fd);
    p.fd.store(-1, Relaxed);
    mapped.map(|(base, length)| (base, length, image))
}

/// Makes a new file long enough for the header and one extent, and maps it.
///
/// Errors: those of the kernel.
fn grow_and_map(p: &Store, fd: Fd, path: &[u8]) -> Result<(*mut u8, u64), Errno> {
    let (device, inode) = kernel::identity(fd)?;
    p.fd.store(fd.0, Relaxed);
    p.device.store(device, Relaxed);
    p.inode.store(inode, Relaxed);
    keep_path(p, path)?;
    // The header and one extent at least record that there is no room for more.
    grow(p, GROW_MIN).or_else(|_| grow(p, 2 * PAGE))?;
    map(fd)
}

/// Opens `PID-IMAGE.profile` in the directory, with the first image number that is free.
///
/// Errors: those of the kernel.
fn open_new(
    path: &mut Text<PATH_MAX>,
    directory: &Text<PATH_MAX>,
    pid: u32,
) -> Result<(Fd, u32), Errno> {
    path.truncate(0);
    path.push(directory.bytes());
    path.push(b"/");
    let directory = path.bytes().len();
    for image in 0..IMAGES_MAX {
        path.truncate(directory);
        path.push_number(pid as u64);
        path.push(b"-");
        path.push_number(image as u64);
        path.push(PROFILE_SUFFIX.as_bytes());
        let name = path.path().ok_or(kernel::ENAMETOOLONG)?;
        match kernel::create(name) {
            Ok(fd) => return Ok((fd, image)),
            Err(kernel::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(kernel::EEXIST)
}

fn keep_path(p: &Store, path: &[u8]) -> Result<(), Errno> {
    let memory = memory::take(PATH_MAX, InChild::Nothing);
    if memory.is_null() {
        return Err(kernel::ENOMEM);
    }
    // SAFETY: fresh zeroed memory; a `Text` is shorter than PATH_MAX, so a final zero remains.
    unsafe { core::ptr::copy_nonoverlapping(path.as_ptr(), memory, path.len()) };
    p.path.store(memory, Relaxed);
    Ok(())
}

/// Returns how much address space to reserve for the profile. The mapping counts towards the limit
/// of address space only; the table of its pages' owners, a thousandth of its size, counts towards
/// the limit of data as well.
fn reserve() -> u64 {
    if front::is_under_valgrind() {
        return RESERVE_MIN; // enough for the reason why nothing is recorded
    }
    let [space, data] = [kernel::RLIMIT_AS, kernel::RLIMIT_DATA].map(kernel::limit);
    let space = if space == u64::MAX { RESERVE } else { space / SPACE_PART };
    let data = if data == u64::MAX { RESERVE } else { data.saturating_mul(DATA_TIMES) };
    RESERVE.min(space).min(data).max(RESERVE_MIN) & !(PAGE_BYTES_MAX - 1)
}

fn map(fd: Fd) -> Result<(*mut u8, u64), Errno> {
    let mut length = reserve();
    while length >= RESERVE_MIN {
        let base = kernel::map_shared(fd, length as usize);
        if !base.is_null() {
            return Ok((base, length));
        }
        length = (length / 2) & !(PAGE_BYTES_MAX - 1);
    }
    Err(kernel::ENOMEM)
}

/// Grows the file to `end` and somewhat beyond, backed by the disk; returns whether that succeeded.
pub fn make_room(p: &Store, end: u64) -> bool {
    if end > p.reserved.load(Relaxed) || !confined::may_call() {
        return false;
    }
    let failures = p.growth_failures.load(Relaxed);
    if !failures.is_multiple_of(RETRY) {
        p.growth_failures.store(failures + 1, Relaxed);
        return false;
    }
    let generous = (end + (end / 8).clamp(GROW_MIN, GROW_MAX)).min(p.reserved.load(Relaxed));
    let generous = limit::within(p, generous).max(end);
    let grown = grow(p, generous).or_else(|_| grow(p, end));
    p.growth_failures.store(if grown.is_ok() { 0 } else { failures + 1 }, Relaxed);
    grown.is_ok()
}

fn grow(p: &Store, end: u64) -> Result<(), Errno> {
    let from = p.backed.load(Relaxed);
    if end > kernel::limit(kernel::RLIMIT_FSIZE) {
        return Err(kernel::EFBIG);
    }
    let (fd, kept) = match kept_fd(p) {
        Some(fd) => (fd, true),
        None => (open_again(p).ok_or(kernel::ENOENT)?, false),
    };
    let grown = match kernel::fallocate(fd, from, end - from) {
        Err(error) if error == kernel::EOPNOTSUPP || kernel::is_refused::<()>(Err(error)) => {
            write_zeros(fd, from, end)
        }
        other => other,
    };
    if grown.is_ok() {
        p.backed.store(end, Relaxed);
    }
    if !kept {
        kernel::close(fd);
    }
    grown
}

/// Grows the file on file systems and kernels without fallocate.
fn write_zeros(fd: Fd, from: u64, end: u64) -> Result<(), Errno> {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    let mut at = from;
    while at < end {
        let n = (end - at).min(PAGE) as usize;
        match kernel::write_at(fd, &ZEROS[..n], at)? {
            0 => return Err(kernel::ENOSPC),
            written => at += written as u64,
        }
    }
    Ok(())
}

/// Returns the profile's descriptor, if one is kept and still refers to the profile: the guest may
/// have closed it, or opened another file under its number.
#[inline(never)] // its part of the stack is free again when the file is opened
fn kept_fd(p: &Store) -> Option<Fd> {
    let fd = Fd(p.fd.load(Relaxed));
    (fd.0 >= 0 && is_profile(p, fd)).then_some(fd)
}

fn is_profile(p: &Store, fd: Fd) -> bool {
    kernel::identity(fd) == Ok((p.device.load(Relaxed), p.inode.load(Relaxed)))
}

/// Opens the profile by its name, if that still refers to the same file; otherwise by its current
/// name.
fn open_again(p: &Store) -> Option<Fd> {
    open_by_name(p).or_else(|| {
        rename(p)?;
        open_by_name(p)
    })
}

/// Stores the name that the profile has after its directory was renamed.
#[cold]
#[inline(never)]
fn rename(p: &Store) -> Option<()> {
    let directory = directory::renamed(p.header())?;
    own_stack::call(|| {
        let path = p.path.load(Relaxed);
        // SAFETY: PATH_MAX zero-terminated bytes, never released.
        let before = unsafe { core::slice::from_raw_parts(path, PATH_MAX) };
        let mut path = Text::<PATH_MAX>::new();
        path.push(directory.bytes());
        path.push(b"/");
        path.push(file_of(before.split(|&b| b == 0).next()?));
        keep_path(p, path.path().map(|_| path.bytes())?).ok()
    })?
}

#[inline(never)] // its part of the stack is free again when the name is looked for
fn open_by_name(p: &Store) -> Option<Fd> {
    let path = p.path.load(Relaxed);
    if path.is_null() {
        return None;
    }
    // SAFETY: PATH_MAX zero-terminated bytes, never released.
    let path = unsafe { core::slice::from_raw_parts(path, PATH_MAX) };
    let fd = kernel::open(Path::new(path)?, kernel::O_RDWR).ok()?;
    if is_profile(p, fd) {
        return Some(fd);
    }
    kernel::close(fd);
    None
}

/// Opens a descriptor of the profile and keeps it. Usually none is kept, since the guest or its
/// children may inspect their descriptors or rely on their numbers. This is called when the guest
/// is about to lose the permission or the path to open the file.
pub fn keep_descriptor(p: &Store) {
    if let Some(_held) = p.growth.acquire()
        && kept_fd(p).is_none()
        && let Some(fd) = open_again(p)
    {
        let high = FD_LEAST.min(kernel::limit(kernel::RLIMIT_NOFILE) / 2) as usize;
        p.fd.store(kernel::move_up(fd, high).0, Relaxed);
    }
}

/// Grows the file in advance, for a guest that will forbid system calls.
pub fn reserve_ahead(p: &Store, bytes: u64) {
    if let Some(_held) = p.growth.acquire() {
        let end = (p.backed.load(Relaxed) + bytes).min(p.reserved.load(Relaxed));
        let _ = grow(p, end);
    }
}
