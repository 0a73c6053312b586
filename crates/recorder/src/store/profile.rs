//! The live profile: a file that is the recorder's memory.
//!
//! Its first bytes and all it may grow to are mapped at once, so a record is reached by base + id ×
//! granule. Nothing is touched before the disk has room for it: the file grows by fallocate, after
//! asking the file size limit, so neither SIGBUS nor SIGXFSZ can come of it. What does not fit is
//! counted and the guest goes on.

use crate::store::modules;
use crate::store::shared::{Store, store};
use crate::store::sites::LABELLED;
use crate::sys::kernel::{self, Fd, Path};
use crate::sys::memory::{self, InChild};
use crate::sys::options::{Options, PATH_MAX, Text, file_of};
use crate::sys::{confined, front, own_stack};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use heaptide_format::{
    EXTENT_HEADER, EXTENT_MAGIC, ExtentHeader, FileHeader, IMAGE_OWN_MALLOC, Kind, Loss, MAGIC,
    PAGE, PROFILE_SUFFIX, STRING_GRANULE, STRING_MAX, StringHeader, Unrecorded, VERSION,
};

/// Address space kept for a profile. 64 GiB hold some 400 million sites.
const RESERVE: u64 = 64 << 30;
/// The least that is tried.
const RESERVE_MIN: u64 = 256 << 10;
/// Under a limit of address space, this part of it is taken at most.
const SPACE_PART: u64 = 12;
/// Under a limit of data, so many times as much.
const DATA_TIMES: u64 = 16;
/// The file grows by an eighth of itself, within these bounds.
const GROW_MIN: u64 = 64 << 10;
const GROW_MAX: u64 = 8 << 20;
/// A cursor's extents double from one page to this.
const EXTENT_MAX: u64 = 1 << 20;
/// Extents from this size on are faulted in at once: one call for what would be a fault a page.
const POPULATE_MIN: u64 = 64 << 10;
/// A descriptor that is kept lies above those that programs count on.
const FD_LEAST: u64 = 900;
/// After failures growth is tried again every so many times.
const RETRY: u32 = 1024;

/// The header of this process's profile, or, in a forked child without one, of the nearest recorded
/// process that it descends from: its page is shared with children.
pub static FAMILY: AtomicPtr<FileHeader> = AtomicPtr::new(core::ptr::null_mut());

/// A place in an extent, of one kind and one owner, where the next record goes.
#[repr(C)]
pub struct Cursor {
    extent: *mut ExtentHeader,
    next: *mut u8,
    end: *mut u8,
    last_length: u64,
}

impl Cursor {
    /// Room for a record of `bytes`, zeroed and not yet visible to readers; null if there is none.
    #[inline(always)]
    pub fn take(&mut self, kind: Kind, lane: u32, bytes: usize) -> *mut u8 {
        if (self.end as usize).wrapping_sub(self.next as usize) < bytes {
            return self.take_slow(kind, lane, bytes);
        }
        self.next
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&mut self, kind: Kind, lane: u32, bytes: usize) -> *mut u8 {
        let least = (bytes as u64 + EXTENT_HEADER).next_multiple_of(PAGE);
        let length = (self.last_length * 2).clamp(PAGE, EXTENT_MAX).max(least);
        let extent = new_extent(store(), kind, lane, length);
        if extent.is_null() {
            return core::ptr::null_mut();
        }
        self.extent = extent;
        self.last_length = length;
        // SAFETY: both ends are within the new extent.
        unsafe {
            self.next = (extent as *mut u8).add(EXTENT_HEADER as usize);
            self.end = (extent as *mut u8).add(length as usize);
        }
        self.next
    }

    /// Takes the record last committed back.
    pub fn take_back(&mut self, bytes: usize) {
        // SAFETY: the record is the last of this extent.
        unsafe {
            self.next = self.next.sub(bytes);
            let committed = AtomicU64::from_ptr(&raw mut (*self.extent).committed);
            committed.fetch_sub(bytes as u64, Release);
        }
    }

    /// Makes the record last taken visible.
    #[inline(always)]
    pub fn commit(&mut self, bytes: usize) {
        // SAFETY: the record was taken from this extent, whose header is mapped and ours alone to
        // write.
        unsafe {
            self.next = self.next.add(bytes);
            let begin = (self.extent as *mut u8).add(EXTENT_HEADER as usize);
            let committed = self.next as u64 - begin as u64;
            AtomicU64::from_ptr(&raw mut (*self.extent).committed).store(committed, Release);
        }
    }
}

/// Makes the profile and its header, of which `prepare` writes a part; none if that is not
/// possible.
pub fn create(
    p: &Store,
    options: &Options,
    forked: bool,
    prepare: impl FnOnce(*mut FileHeader),
) -> Option<()> {
    let pid = kernel::getpid();
    let mut path = Text::<PATH_MAX>::new();
    let opened = open_new(&mut path, directory(options, pid)?, pid);
    // A forked child finds a directory that was renamed by the profile of its parent.
    let (fd, image) = match opened {
        Some(opened) => opened,
        None => open_new(&mut path, renamed(FAMILY.load(Acquire))?, pid)?,
    };
    let (device, inode) = kernel::identity(fd).ok()?;
    p.fd.store(fd.0, Relaxed);
    p.device.store(device, Relaxed);
    p.inode.store(inode, Relaxed);
    keep_path(p, path.bytes())?;
    // The head and one extent say at least that there is no room for more.
    let grown = grow_file(p, GROW_MIN).or_else(|()| grow_file(p, 2 * PAGE));
    let mapped = grown.ok().and_then(|()| map_file(fd));
    kernel::close(fd);
    p.fd.store(-1, Relaxed);
    let (base, reserved) = mapped?;
    p.reserved.store(reserved, Relaxed);
    p.base.store(base, Relaxed);
    // SAFETY: a fresh mapping, its first page of an empty profile. A child must not share more
    // than that page.
    unsafe {
        let rest = base.add(PAGE as usize);
        kernel::advise(rest, (reserved - PAGE) as usize, kernel::MADV_DONTFORK).ok()?;
        let _ = kernel::advise(base, reserved as usize, kernel::MADV_DONTDUMP);
        write_header(p, base as *mut FileHeader, options, (pid, image, forked), prepare);
        let inherited = FAMILY.swap(base as *mut FileHeader, AcqRel);
        if !inherited.is_null() {
            kernel::unmap(inherited as *mut u8, PAGE as usize);
        }
    }
    Some(())
}

/// Leaves a profile that says why nothing is recorded.
pub fn abandon(p: &Store, why: Unrecorded) {
    let header = p.header();
    let reserved = p.reserved.load(Relaxed);
    // SAFETY: the header is mapped, and nobody else knows the profile. Its page stays, for
    // children to count themselves in; the rest is given back.
    unsafe {
        AtomicU32::from_ptr(&raw mut (*header).unrecorded).store(why as u32, Release);
        p.base.store(core::ptr::null_mut(), Relaxed);
        let rest = (header as *mut u8).add(PAGE as usize);
        kernel::unmap(rest, (reserved - PAGE) as usize);
    }
    p.reserved.store(0, Relaxed);
}

/// The recording's directory, absolute. Forked children inherit it, wherever they go.
static DIRECTORY: AtomicPtr<Text<PATH_MAX>> = AtomicPtr::new(core::ptr::null_mut());

/// The same, made if it is not there; none if it cannot be named.
fn directory(options: &Options, pid: u32) -> Option<&'static Text<PATH_MAX>> {
    if let Some(known) = known_directory() {
        return Some(known);
    }
    let directory = keep_directory(absolute(&options.output, pid)?)?;
    let _ = kernel::mkdir(directory.path()?); // it most often is there; opening a file tells
    mark_recording(directory);
    Some(directory)
}

fn keep_directory(path: Text<PATH_MAX>) -> Option<&'static Text<PATH_MAX>> {
    let memory = memory::take(size_of::<Text<PATH_MAX>>(), InChild::Copy);
    let directory = memory as *mut Text<PATH_MAX>;
    if directory.is_null() {
        return None;
    }
    // SAFETY: fresh memory of that size.
    unsafe { directory.write(path) };
    DIRECTORY.store(directory, Release);
    known_directory()
}

/// The recording's directory by the name that it has now, where a profile in it is mapped; none if
/// that was removed, or if it is what was known.
fn renamed(profile: *const FileHeader) -> Option<&'static Text<PATH_MAX>> {
    own_stack::call(|| {
        let mut buffer = [0u8; 16 << 10];
        let mut found = None;
        modules::each_mapping(&mut buffer, |mapping| {
            if mapping.range.holds(profile as u64)
                && mapping.path.ends_with(PROFILE_SUFFIX.as_bytes())
            {
                found = directory_of(mapping.path);
            }
            found.is_none()
        });
        let is_known = |path: &Text<PATH_MAX>| {
            known_directory().is_some_and(|known| known.bytes() == path.bytes())
        };
        found.filter(|path| !is_known(path)).and_then(keep_directory)
    })?
}

fn directory_of(file: &[u8]) -> Option<Text<PATH_MAX>> {
    let end = file.iter().rposition(|&b| b == b'/')?;
    let mut directory = Text::new();
    directory.push(&file[..end]);
    directory.is_whole().then_some(directory)
}

/// Marks the directory as a recording, unless that was done.
fn mark_recording(directory: &Text<PATH_MAX>) {
    const MARKER: &[u8] = b"/recording.json";
    const CONTENT: &[u8] = b"{\"version\":1,\"root_pid\":0}\n";
    let mut path = Text::<PATH_MAX>::new();
    path.push(directory.bytes());
    path.push(MARKER);
    let flags = kernel::O_RDWR | kernel::O_CREAT | kernel::O_EXCL;
    if let Some(Ok(fd)) = path.path().map(|path| kernel::open(path, flags)) {
        let _ = kernel::write_at(fd, CONTENT, 0); // without it the recording only is not replaced
        kernel::close(fd);
    }
}

/// The recording's directory, if it is known.
pub fn known_directory() -> Option<&'static Text<PATH_MAX>> {
    // SAFETY: complete when it was stored, never changed, never released.
    unsafe { DIRECTORY.load(Acquire).as_ref() }
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
        let mut program = [0u8; PATH_MAX];
        let link = Path::new(b"/proc/self/exe\0")?;
        let program = kernel::readlink(link, &mut program).unwrap_or(b"program");
        path.push(b"heaptide-");
        path.push(file_of(program));
        path.push(b"-");
        path.push_number(pid as u64);
        path.push(b".heaptide");
    } else {
        path.push(output.bytes());
    }
    path.is_whole().then_some(path)
}

/// Images one pid may have in a recording.
const IMAGES_MAX: u32 = 100_000;

/// Opens `PID-IMAGE.profile` in the directory, for the first image number that is free.
fn open_new(path: &mut Text<PATH_MAX>, directory: &Text<PATH_MAX>, pid: u32) -> Option<(Fd, u32)> {
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
        match kernel::open(path.path()?, kernel::O_RDWR | kernel::O_CREAT | kernel::O_EXCL) {
            Ok(fd) => return Some((fd, image)),
            Err(kernel::EEXIST) => {}
            Err(_) => return None,
        }
    }
    None
}

fn keep_path(p: &Store, path: &[u8]) -> Option<()> {
    let memory = memory::take(PATH_MAX, InChild::Nothing);
    if memory.is_null() {
        return None;
    }
    // SAFETY: fresh zeroed memory; a `Text` is shorter than PATH_MAX, so the last zero stays.
    unsafe { core::ptr::copy_nonoverlapping(path.as_ptr(), memory, path.len()) };
    p.path.store(memory, Relaxed);
    Some(())
}

/// Bytes of address space for the profile. Its mapping counts for the limit of address space only;
/// the table of its pages' owners, a thousandth of it, for that of data too.
fn reserve() -> u64 {
    if front::is_under_valgrind() {
        return RESERVE_MIN; // for the reason why nothing is recorded
    }
    let [space, data] = [kernel::RLIMIT_AS, kernel::RLIMIT_DATA].map(kernel::limit);
    let space = if space == u64::MAX { RESERVE } else { space / SPACE_PART };
    let data = if data == u64::MAX { RESERVE } else { data.saturating_mul(DATA_TIMES) };
    RESERVE.min(space).min(data).max(RESERVE_MIN) & !(PAGE - 1)
}

fn map_file(fd: Fd) -> Option<(*mut u8, u64)> {
    let mut length = reserve();
    while length >= RESERVE_MIN {
        let base = kernel::map_shared(fd, length as usize);
        if !base.is_null() {
            return Some((base, length));
        }
        length = (length / 2) & !(PAGE - 1);
    }
    None
}

/// # Safety
/// `header` is the fresh profile's first page.
unsafe fn write_header(
    p: &Store,
    header: *mut FileHeader,
    options: &Options,
    (pid, image, forked): (u32, u32, bool),
    prepare: impl FnOnce(*mut FileHeader),
) {
    let mut buffer = [0u8; PATH_MAX];
    // SAFETY: the page is mapped and nobody else knows it yet.
    unsafe {
        (*header).version = VERSION;
        (*header).mode = options.mode as u32;
        (*header).pid = pid;
        (*header).ppid = kernel::getppid();
        (*header).image = image;
        (*header).forked = forked as u32;
        (*header).start_realtime_ns = kernel::clock_ns(kernel::CLOCK_REALTIME);
        (*header).start_monotonic_ns = p.start_ns.load(Relaxed);
        (*header).epoch = 1;
        (*header).file_end = PAGE;
        (*header).process_start_ticks = kernel::start_ticks();
        (*header).pid_namespace = kernel::pid_namespace();
        (*header).image_flags =
            if front::platform().is_some_and(|platform| (platform.is_bypassed)()) {
                IMAGE_OWN_MALLOC
            } else {
                0
            };
        prepare(header);
        (*header).magic = MAGIC;
        let exe =
            Path::new(b"/proc/self/exe\0").and_then(|l| kernel::readlink(l, &mut buffer).ok());
        (*header).program = string(p, exe.unwrap_or(b""));
        (*header).command = command(p);
        let host = kernel::host_name();
        let end = host.iter().position(|&b| b == 0).unwrap_or(host.len());
        let node = options.place.node();
        (*header).host = string(p, if node.is_empty() { &host[..end] } else { node });
        if let Some((rank, of)) = options.place.rank() {
            (*header).rank = rank.saturating_add(1);
            (*header).ranks = of;
        }
        let job = options.place.job();
        if !job.is_empty() {
            (*header).job = string(p, job.bytes());
        }
    }
}

/// The arguments, as the kernel has them.
fn command(p: &Store) -> u32 {
    let memory = kernel::map_private(STRING_MAX);
    if memory.is_null() {
        return 0;
    }
    // SAFETY: fresh zeroed memory, released below.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, STRING_MAX) };
    let path = Path::new(b"/proc/self/cmdline\0");
    let id = match path.map(|path| kernel::read_file(path, buffer)) {
        Some(Ok(arguments)) => string(p, arguments),
        _ => 0,
    };
    // SAFETY: nothing refers to it any more.
    unsafe { kernel::unmap(memory, STRING_MAX) };
    id
}

/// Stores a string; its reference, or 0 if there is no room.
pub fn string(p: &Store, text: &[u8]) -> u32 {
    let text = &text[..text.len().min(STRING_MAX)];
    // One more, so that a zero always follows.
    let bytes = size_of::<StringHeader>() + text.len() + 1;
    let bytes = bytes.next_multiple_of(STRING_GRANULE as usize);
    let Some(mut cursor) = p.strings.acquire() else {
        return 0;
    };
    let at = cursor.take(Kind::Strings, 0, bytes);
    if at.is_null() {
        return 0;
    }
    // SAFETY: `take` gave room for header and text.
    unsafe {
        (*(at as *mut StringHeader)).length = text.len() as u32;
        let body = at.add(size_of::<StringHeader>());
        core::ptr::copy_nonoverlapping(text.as_ptr(), body, text.len());
        cursor.commit(bytes);
        (at.offset_from(p.base.load(Relaxed)) as u64 / STRING_GRANULE) as u32
    }
}

/// A new extent, with its header written; null if the file cannot grow.
fn new_extent(p: &Store, kind: Kind, lane: u32, length: u64) -> *mut ExtentHeader {
    let extent = try_extent(p, kind, lane, length);
    extent.unwrap_or_else(|_| {
        p.lost(Loss::NoSpace);
        core::ptr::null_mut()
    })
}

/// Why there is no extent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum No {
    /// The file cannot grow.
    Room,
    /// Others have been making it grow for a long time.
    Turn,
}

/// The same, saying why not.
pub fn try_extent(p: &Store, kind: Kind, lane: u32, length: u64) -> Result<*mut ExtentHeader, No> {
    let _held = p.growth.acquire().ok_or(No::Turn)?;
    let header = p.header();
    // SAFETY: the header is mapped; `file_end` changes under the lock only.
    let start = unsafe { (*header).file_end };
    let end = start + length;
    if end > p.backed.load(Relaxed) {
        make_room(p, end).map_err(|()| No::Room)?;
    }
    // SAFETY: start..end is mapped and backed, and nobody else's.
    unsafe {
        let extent = p.base.load(Relaxed).add(start as usize) as *mut ExtentHeader;
        if length >= POPULATE_MIN && confined::may_call() {
            let _ = kernel::advise(extent as *mut u8, length as usize, kernel::MADV_POPULATE_WRITE);
        }
        (*extent).kind = kind as u16;
        (*extent).lane = lane & !LABELLED;
        (*extent).sequence = p.extents.fetch_add(1, Relaxed);
        (*extent).length = length;
        AtomicU32::from_ptr(&raw mut (*extent).magic).store(EXTENT_MAGIC, Release);
        AtomicU64::from_ptr(&raw mut (*header).file_end).store(end, Release);
        if kind == Kind::Sites {
            let owners = p.owners.load(Relaxed);
            for page in start / PAGE..end / PAGE {
                *owners.add(page as usize) = lane;
            }
        }
        Ok(extent)
    }
}

/// Has the disk back the file up to `end` and some more.
fn make_room(p: &Store, end: u64) -> Result<(), ()> {
    if end > p.reserved.load(Relaxed) || !confined::may_call() {
        return Err(());
    }
    let failures = p.growth_failures.load(Relaxed);
    if !failures.is_multiple_of(RETRY) {
        p.growth_failures.store(failures + 1, Relaxed);
        return Err(());
    }
    let generous = (end + (end / 8).clamp(GROW_MIN, GROW_MAX)).min(p.reserved.load(Relaxed));
    let grown = grow_file(p, generous).or_else(|()| grow_file(p, end));
    p.growth_failures.store(if grown.is_ok() { 0 } else { failures + 1 }, Relaxed);
    grown
}

fn grow_file(p: &Store, end: u64) -> Result<(), ()> {
    let from = p.backed.load(Relaxed);
    if end > kernel::limit(kernel::RLIMIT_FSIZE) {
        return Err(());
    }
    let (fd, kept) = match kept_fd(p) {
        Some(fd) => (fd, true),
        None => (open_again(p).ok_or(())?, false),
    };
    match kernel::fallocate(fd, from, end - from) {
        Ok(()) => p.backed.store(end, Relaxed),
        Err(kernel::EOPNOTSUPP) if write_zeros(fd, from, end).is_ok() => {
            p.backed.store(end, Relaxed)
        }
        Err(_) => {}
    }
    if !kept {
        kernel::close(fd);
    }
    if p.backed.load(Relaxed) == end { Ok(()) } else { Err(()) }
}

/// For file systems without fallocate.
fn write_zeros(fd: Fd, from: u64, end: u64) -> Result<(), ()> {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    let mut at = from;
    while at < end {
        let n = (end - at).min(PAGE) as usize;
        match kernel::write_at(fd, &ZEROS[..n], at) {
            Ok(written) if written > 0 => at += written as u64,
            _ => return Err(()),
        }
    }
    Ok(())
}

/// The profile's descriptor, if one is kept and still is the profile's: the guest may have closed
/// it, or opened something else in its place.
fn kept_fd(p: &Store) -> Option<Fd> {
    let fd = Fd(p.fd.load(Relaxed));
    (fd.0 >= 0 && is_profile(p, fd)).then_some(fd)
}

fn is_profile(p: &Store, fd: Fd) -> bool {
    kernel::identity(fd) == Ok((p.device.load(Relaxed), p.inode.load(Relaxed)))
}

/// Opens the profile by name, if that still is the same file; else by the name that it has now.
fn open_again(p: &Store) -> Option<Fd> {
    open_by_name(p).or_else(|| {
        rename(p)?;
        open_by_name(p)
    })
}

/// Notes the name that the profile has after its directory was renamed.
#[cold]
#[inline(never)]
fn rename(p: &Store) -> Option<()> {
    let directory = renamed(p.header())?;
    own_stack::call(|| {
        let path = p.path.load(Relaxed);
        // SAFETY: PATH_MAX zero-terminated bytes, never released.
        let before = unsafe { core::slice::from_raw_parts(path, PATH_MAX) };
        let mut path = Text::<PATH_MAX>::new();
        path.push(directory.bytes());
        path.push(b"/");
        path.push(file_of(before.split(|&b| b == 0).next()?));
        keep_path(p, path.path().map(|_| path.bytes())?)
    })?
}

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

/// No descriptor is kept: the guest, or a child of it, may look at its own or count on their
/// numbers. But when the guest is about to lose the right or the way to the file, one is opened
/// before.
pub fn keep_descriptor(p: &Store) {
    if let Some(_held) = p.growth.acquire()
        && kept_fd(p).is_none()
        && let Some(fd) = open_again(p)
    {
        let high = FD_LEAST.min(kernel::limit(kernel::RLIMIT_NOFILE) / 2) as usize;
        p.fd.store(kernel::move_up(fd, high).0, Relaxed);
    }
}

/// Prepares for a guest that will forbid system calls: room for a while, taken now.
pub fn reserve_ahead(p: &Store, bytes: u64) {
    if let Some(_held) = p.growth.acquire() {
        let end = (p.backed.load(Relaxed) + bytes).min(p.reserved.load(Relaxed));
        let _ = grow_file(p, end);
    }
}
