//! The live profile: a file that is mapped and serves as the recorder's memory.
//!
//! The mapping covers all that the file may grow to, so the address of a record is base + id ×
//! granule. No page is touched before the disk has room for it: the file grows by fallocate, after
//! a check of the file size limit, so neither SIGBUS nor SIGXFSZ can occur. What does not fit is
//! counted and the guest continues.

use crate::store::ids::{Record, StringId};
use crate::store::limit;
use crate::store::shared::{LABELLED, Store, store};
use crate::sys::arch::PAGE_BYTES_MAX;
use crate::sys::kernel::{self, Errno, Fd, Path};
use crate::sys::locked::Locked;
use crate::sys::memory::{self, InChild};
use crate::sys::options::{Options, PATH_MAX, file_of};
use crate::sys::text::Text;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, executed, front, maps, own_stack};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use heaptide_format::shared::{ExtentHeader, FileHeader, Word};
use heaptide_format::{
    BASELINE_SUFFIX, EXTENT_HEADER, EXTENT_MAGIC, Kind, Loss, MAGIC, PAGE, PROFILE_SUFFIX,
    STRING_GRANULE, STRING_MAX, StringHeader, Unrecorded, VERSION,
};

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
/// A cursor's extents double in size from one page to this.
const EXTENT_MAX: u64 = 1 << 20;
/// Extents from this size on are populated at once: one call instead of a page fault per page.
const POPULATE_MIN: u64 = 64 << 10;
/// Descriptors that are kept open have at least this number, above those that programs rely on.
const FD_LEAST: u64 = 900;
/// After a failure, growth is tried again once in this many attempts.
const RETRY: u32 = 1024;

/// The header of this process's profile, or, in a forked child without one, of its nearest recorded
/// ancestor, whose page is shared with children.
static FAMILY: AtomicPtr<FileHeader> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the header in `FAMILY`; none before the first profile.
pub fn family() -> Option<&'static FileHeader> {
    // SAFETY: the page stays mapped, here and in children.
    unsafe { FAMILY.load(Acquire).as_ref() }
}

/// The position of the next record in an extent of one kind and one owner. All zeros: in no extent.
#[repr(C)]
pub struct Cursor {
    extent: Option<&'static ExtentHeader>,
    next: *mut u8,
    end: *mut u8,
    last_length: u64,
}

impl Cursor {
    /// A cursor in no extent.
    pub const NONE: Cursor = Cursor {
        extent: None,
        next: core::ptr::null_mut(),
        end: core::ptr::null_mut(),
        last_length: 0,
    };

    /// Returns room for a record, zeroed and not yet visible to readers; none if there is no more.
    #[inline(always)]
    pub fn record<R: Record>(&mut self, kind: Kind, owner: u32) -> Option<&'static R> {
        let room = self.take(kind, owner, size_of::<R>()) as *const R;
        // SAFETY: null, or zeroed room of that size, aligned as all records are.
        unsafe { room.as_ref() }
    }

    /// Makes the last record that was taken visible.
    #[inline(always)]
    pub fn commit_record<R: Record>(&mut self, _: &'static R) {
        self.commit(size_of::<R>());
    }

    /// Stores a record that does not change afterwards. Returns none if there is no room.
    pub fn write<R: Record>(&mut self, kind: Kind, owner: u32, record: R) -> Option<&'static R> {
        let room = self.take(kind, owner, size_of::<R>()) as *mut R;
        if room.is_null() {
            return None;
        }
        // SAFETY: room of that size that nothing else refers to.
        let written = unsafe {
            room.write(record);
            &*room
        };
        self.commit_record(written);
        Some(written)
    }

    /// Returns room for `bytes`, zeroed and not yet visible to readers; null if there is no more.
    #[inline(always)]
    pub fn take(&mut self, kind: Kind, owner: u32, bytes: usize) -> *mut u8 {
        if (self.end as usize).wrapping_sub(self.next as usize) < bytes {
            return self.take_slow(kind, owner, bytes);
        }
        self.next
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&mut self, kind: Kind, owner: u32, bytes: usize) -> *mut u8 {
        let least = (bytes as u64 + EXTENT_HEADER).next_multiple_of(PAGE);
        let length = (self.last_length * 2).clamp(PAGE, EXTENT_MAX);
        let length = length.min(limit::room(store())).max(least);
        let Some(extent) = new_extent(store(), kind, owner, length) else {
            return core::ptr::null_mut();
        };
        self.extent = Some(extent);
        self.last_length = length;
        self.next = first_record(extent);
        self.end = address_of(extent).wrapping_add(length as usize);
        self.next
    }

    /// Removes the record that was committed last.
    pub fn take_back(&mut self, bytes: usize) {
        if let Some(extent) = self.extent {
            self.next = self.next.wrapping_sub(bytes);
            extent.committed.fetch_sub(bytes as u64, Release);
        }
    }

    /// Makes the last room that was taken visible.
    #[inline(always)]
    pub fn commit(&mut self, bytes: usize) {
        self.next = self.next.wrapping_add(bytes);
        if let Some(extent) = self.extent {
            let committed = self.next as u64 - first_record(extent) as u64;
            extent.committed.store(committed, Release);
        }
    }
}

/// Returns the address of an extent, for writing.
#[inline(always)]
pub fn address_of(extent: &'static ExtentHeader) -> *mut u8 {
    let base = store().base.load(Relaxed);
    base.wrapping_add(core::ptr::from_ref(extent) as usize - base as usize)
}

/// Returns the address of an extent's first record.
#[inline(always)]
pub fn first_record(extent: &'static ExtentHeader) -> *mut u8 {
    address_of(extent).wrapping_add(EXTENT_HEADER as usize)
}

/// Creates the profile and its header; `prepare` writes a part of the header.
///
/// Errors: those of the kernel.
pub fn create(
    p: &Store,
    options: &Options,
    forked: bool,
    prepare: impl FnOnce(&FileHeader),
) -> Result<(), Errno> {
    let pid = kernel::getpid();
    let mut path = Text::<PATH_MAX>::new();
    let opened = open_new(&mut path, directory(options, pid)?, pid);
    // If the directory was renamed, a forked child finds it through the profile of its parent.
    let (fd, image) = opened.or_else(|errno| {
        let renamed = family().and_then(renamed).ok_or(errno)?;
        open_new(&mut path, renamed, pid)
    })?;
    let (device, inode) = kernel::identity(fd)?;
    p.fd.store(fd.0, Relaxed);
    p.device.store(device, Relaxed);
    p.inode.store(inode, Relaxed);
    keep_path(p, path.bytes())?;
    // The header and one extent at least record that there is no room for more.
    let grown = grow_file(p, GROW_MIN).or_else(|_| grow_file(p, 2 * PAGE));
    let mapped = grown.and_then(|()| map_file(fd));
    kernel::close(fd);
    p.fd.store(-1, Relaxed);
    let (base, reserved) = mapped?;
    p.reserved.store(reserved, Relaxed);
    p.base.store(base, Relaxed);
    let page = kernel::page_bytes();
    let rest = base.wrapping_add(page as usize);
    // SAFETY: a fresh mapping. Children must share no more than its first page.
    unsafe { kernel::advise(rest, (reserved - page) as usize, kernel::MADV_DONTFORK) }?;
    // SAFETY: the whole mapping; it only excludes the profile from core dumps.
    let _ = unsafe { kernel::advise(base, reserved as usize, kernel::MADV_DONTDUMP) };
    write_header(p, p.header(), options, (pid, image, forked), prepare);
    let inherited = FAMILY.swap(base as *mut FileHeader, AcqRel);
    if !inherited.is_null() {
        // SAFETY: the page of the process from which this one was forked; nothing here uses it now.
        unsafe { kernel::unmap(inherited as *mut u8, page as usize) };
    }
    Ok(())
}

/// Forgets a recording that has ended and whose memory was released: the next profile belongs to a
/// new one.
pub fn forget() {
    FAMILY.store(core::ptr::null_mut(), Release);
    DIRECTORY.store(core::ptr::null_mut(), Release);
}

/// Leaves a profile that contains only the reason why nothing is recorded.
pub fn abandon(p: &Store, why: Unrecorded) {
    let header = p.header();
    let reserved = p.reserved.load(Relaxed);
    header.unrecorded.store(why as u32, Release);
    let base = p.base.swap(core::ptr::null_mut(), Relaxed);
    let page = kernel::page_bytes();
    let rest = base.wrapping_add(page as usize);
    // SAFETY: nothing else refers to the profile. Its header stays, so that children can count
    // themselves in it.
    unsafe { kernel::unmap(rest, (reserved - page) as usize) };
    p.reserved.store(0, Relaxed);
}

/// The recording's directory, absolute. Forked children inherit it, even if they change directory.
static DIRECTORY: AtomicPtr<Text<PATH_MAX>> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the recording's directory, and creates it if it does not exist.
///
/// Errors: its path cannot be determined or stored, or the kernel's error for a temporary
/// directory.
fn directory(options: &Options, pid: u32) -> Result<&'static Text<PATH_MAX>, Errno> {
    if let Some(known) = known_directory() {
        return Ok(known);
    }
    const RIGHTS: usize = 0o755;
    let path = if options.is_temporary() {
        make_temporary(options, pid)?
    } else {
        let path = absolute(&options.output, pid).ok_or(kernel::ENAMETOOLONG)?;
        // It usually exists. If it cannot be created, opening a file in it fails.
        let _ = path.path().map(|path| kernel::mkdir(path, RIGHTS));
        path
    };
    let directory = keep_directory(path).ok_or(kernel::ENOMEM)?;
    mark_recording(directory);
    Ok(directory)
}

/// The suffix of a directory that is removed with the processes that are recorded in it. Programs
/// started by exec recognise it by this suffix.
const TEMPORARY_SUFFIX: &[u8] = b".removed-at-exit.heaptide";

/// Creates a new directory in that of temporary files.
///
/// Errors: those of the kernel.
fn make_temporary(options: &Options, pid: u32) -> Result<Text<PATH_MAX>, Errno> {
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

/// Removes the process's files from a temporary recording, and the recording itself if it contains
/// no files of other processes.
pub fn remove_temporary(p: &Store) {
    let is_temporary = |path: &&Text<PATH_MAX>| path.bytes().ends_with(TEMPORARY_SUFFIX);
    let Some(directory) = known_directory().filter(is_temporary) else {
        return;
    };
    let header = p.header();
    own_stack::call(|| {
        let mut path = Text::<PATH_MAX>::new();
        path.push(directory.bytes());
        path.push(b"/");
        let length = path.bytes().len();
        for image in 0..=header.image.get() {
            for suffix in [PROFILE_SUFFIX, BASELINE_SUFFIX] {
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

/// The file that marks a directory as a recording.
const MARKER: &[u8] = b"/recording.json";

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

/// Returns the current name of the recording's directory, read from the mapping of a profile in it;
/// none if it was removed, or if its name has not changed.
fn renamed(profile: &'static FileHeader) -> Option<&'static Text<PATH_MAX>> {
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

/// Marks the directory as a recording, unless that was done before.
fn mark_recording(directory: &Text<PATH_MAX>) {
    const CONTENT: &[u8] = b"{\"version\":1,\"root_pid\":0}\n";
    let mut path = Text::<PATH_MAX>::new();
    path.push(directory.bytes());
    path.push(MARKER);
    let flags = kernel::O_RDWR | kernel::O_CREAT | kernel::O_EXCL;
    if let Some(Ok(fd)) = path.path().map(|path| kernel::open(path, flags)) {
        let _ = kernel::write_at(fd, CONTENT, 0); // without it, a recording cannot be replaced
        kernel::close(fd);
    }
}

/// Returns the recording's directory, if it is known.
pub fn known_directory() -> Option<&'static Text<PATH_MAX>> {
    // SAFETY: complete when it was stored; never changed or released.
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
    let link = Path::new(b"/proc/self/exe\0").map(|link| kernel::readlink(link, &mut program));
    let program = match link {
        Some(Ok(program)) => program,
        _ => b"program",
    };
    path.push(b"heaptide-");
    path.push(file_of(program));
    path.push(b"-");
    path.push_number(pid as u64);
}

/// Maximum number of images of one pid in a recording.
const IMAGES_MAX: u32 = 100_000;

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
        match kernel::open(name, kernel::O_RDWR | kernel::O_CREAT | kernel::O_EXCL) {
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

fn map_file(fd: Fd) -> Result<(*mut u8, u64), Errno> {
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

fn write_header(
    p: &Store,
    header: &FileHeader,
    options: &Options,
    (pid, image, forked): (u32, u32, bool),
    prepare: impl FnOnce(&FileHeader),
) {
    let mut buffer = [0u8; PATH_MAX];
    header.version.set(VERSION);
    header.mode.set(options.mode as u32);
    header.pid.set(pid);
    header.ppid.set(kernel::getppid());
    header.image.set(image);
    header.forked.set(forked as u32);
    header.start_realtime_ns.set(kernel::clock_ns(kernel::CLOCK_REALTIME));
    header.start_monotonic_ns.set(p.start_ns.load(Relaxed));
    header.epoch.set(1);
    header.profile_limit.set(options.max_profile);
    header.file_end.set(PAGE);
    header.process_start_ticks.set(kernel::start_ticks());
    header.pid_namespace.set(kernel::pid_namespace());
    prepare(header);
    for (byte, value) in header.magic.iter().zip(MAGIC) {
        byte.set(value);
    }
    let exe = Path::new(b"/proc/self/exe\0").and_then(|l| kernel::readlink(l, &mut buffer).ok());
    header.program.set(string(exe.unwrap_or(b"")).number());
    header.command.set(command().number());
    let host = kernel::host_name();
    let end = host.iter().position(|&b| b == 0).unwrap_or(host.len());
    let node = options.place.node();
    let host = if node.is_empty() { &host[..end] } else { node };
    header.host.set(string(host).number());
    if let Some((rank, of)) = options.place.rank() {
        header.rank.set(rank.saturating_add(1));
        header.ranks.set(of);
    }
    let job = options.place.job();
    if !job.is_empty() {
        header.job.set(string(job.bytes()).number());
    }
}

/// Stores the arguments as the kernel has them. A title (`redis-server *:6379`) is split after its
/// first word if that is the name by which the program was executed: the name may be that of a
/// link, and a program is named by its first argument.
fn command() -> StringId {
    let memory = kernel::map_private(STRING_MAX);
    if memory.is_null() {
        return StringId::NONE;
    }
    // SAFETY: fresh zeroed memory, released below.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, STRING_MAX) };
    let path = Path::new(b"/proc/self/cmdline\0");
    let id = match path.map(|path| kernel::read_file(path, buffer)) {
        // A program that overwrote the arguments with a title leaves zeros behind it.
        Some(Ok(arguments)) => {
            let end = arguments.iter().rposition(|&b| b != 0).map_or(0, |last| last + 2);
            let bytes = end.min(arguments.len());
            let arguments = &mut buffer[..bytes];
            split_title(arguments);
            string(arguments)
        }
        _ => StringId::NONE,
    };
    // SAFETY: nothing refers to it any more.
    unsafe { kernel::unmap(memory, STRING_MAX) };
    id
}

fn split_title(arguments: &mut [u8]) {
    let Some(space) = arguments.iter().position(|&b| b == b' ' || b == 0) else { return };
    let mut path = [0; PATH_MAX];
    if arguments[space] == b' ' && executed::name(&mut path) == Some(file_of(&arguments[..space])) {
        arguments[space] = 0;
    }
}

/// The cursor of all strings; they are few.
// SAFETY: zero is a free lock and a cursor that is in no extent.
static STRINGS: Wiped<Locked<Cursor>> = unsafe { Wiped::new() };

/// Makes forked children start without a cursor for strings.
///
/// Errors: those of the kernel.
pub fn wipe_in_children() -> Result<(), Errno> {
    STRINGS.wipe_in_children()
}

/// Stores a string; none if there is no room.
pub fn string(text: &[u8]) -> StringId {
    let text = &text[..text.len().min(STRING_MAX)];
    // One byte more, so that a zero always follows.
    let bytes = size_of::<StringHeader>() + text.len() + 1;
    let bytes = bytes.next_multiple_of(STRING_GRANULE as usize);
    let Some(mut cursor) = STRINGS.get().acquire() else {
        return StringId::NONE;
    };
    let room = cursor.take(Kind::Strings, 0, bytes);
    if room.is_null() {
        return StringId::NONE;
    }
    let header = StringHeader { length: text.len() as u32, reserved: 0 };
    // SAFETY: zeroed room for header and text, which nothing else refers to.
    let stored = unsafe {
        let stored = room as *mut StringHeader;
        stored.write(header);
        core::ptr::copy_nonoverlapping(text.as_ptr(), stored.add(1) as *mut u8, text.len());
        &*stored
    };
    cursor.commit(bytes);
    StringId::of(stored)
}

/// Returns a new extent with its header written, or none if the file cannot grow. A failure counts
/// as a loss.
fn new_extent(p: &Store, kind: Kind, owner: u32, length: u64) -> Option<&'static ExtentHeader> {
    let extent = try_extent(p, kind, owner, length);
    if matches!(extent, Err(NoExtent::Room | NoExtent::Turn)) {
        p.lost(Loss::NoSpace);
    }
    extent.ok()
}

/// The reason why there is no new extent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NoExtent {
    /// The file cannot grow.
    Room,
    /// Other threads held the lock for too long.
    Turn,
    /// The profile has reached its limit.
    Limit,
}

/// Returns a new extent with its header written, or the reason why there is none. `owner` is a
/// lane, or the owner word of sites ([`crate::store::ids::SiteId::owner_word`]).
pub fn try_extent(
    p: &Store,
    kind: Kind,
    owner: u32,
    length: u64,
) -> Result<&'static ExtentHeader, NoExtent> {
    if limit::holds_back(p, kind, length) {
        return Err(NoExtent::Limit);
    }
    let _held = p.growth.acquire().ok_or(NoExtent::Turn)?;
    let header = p.header();
    let start = header.file_end.get(); // changes under the lock only
    let end = start + length;
    if end > p.backed.load(Relaxed) {
        make_room(p, end).map_err(|()| NoExtent::Room)?;
    }
    let memory = p.base.load(Relaxed).wrapping_add(start as usize);
    if length >= POPULATE_MIN && confined::may_call() {
        // SAFETY: start..end is mapped and backed; populating the pages changes no contents.
        let _ = unsafe { kernel::advise(memory, length as usize, kernel::MADV_POPULATE_WRITE) };
    }
    // SAFETY: the beginning of mapped, zeroed pages that nothing else refers to.
    let extent = unsafe { &*(memory as *const ExtentHeader) };
    extent.kind.set(kind as u16);
    extent.lane.set(owner & !LABELLED);
    extent.sequence.set(p.extents.fetch_add(1, Relaxed));
    extent.length.set(length);
    extent.magic.store(EXTENT_MAGIC, Release);
    header.file_end.store(end, Release);
    if kind == Kind::Sites {
        for page in start / PAGE..end / PAGE {
            p.owner_of_page(page).set(owner);
        }
    }
    Ok(extent)
}

/// Grows the file to `end` and somewhat beyond, backed by the disk.
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
    let generous = limit::within(p, generous).max(end);
    let grown = grow_file(p, generous).or_else(|_| grow_file(p, end));
    p.growth_failures.store(if grown.is_ok() { 0 } else { failures + 1 }, Relaxed);
    grown.map_err(drop)
}

fn grow_file(p: &Store, end: u64) -> Result<(), Errno> {
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
    let directory = renamed(p.header())?;
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
        let _ = grow_file(p, end);
    }
}
