//! The live profile: a mapped file that serves as the recorder's memory.
//!
//! The address of a record is base + id × granule. What does not fit into the file is counted and
//! the guest continues.

use crate::store::ids::{Record, StringId};
use crate::store::shared::{LABELLED, Store, store};
use crate::store::{directory, file, limit};
use crate::sys::kernel::{self, Errno, Path};
use crate::sys::locked::Locked;
use crate::sys::options::{Options, PATH_MAX};
use crate::sys::text::file_of;
use crate::sys::wiped::Wiped;
use crate::sys::{clock, confined, executed};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use heaptide_format::shared::{ExtentHeader, FileHeader, Word};
use heaptide_format::{
    EXTENT_HEADER, EXTENT_MAGIC, Kind, Loss, MAGIC, PAGE, STRING_GRANULE, STRING_MAX, StringHeader,
    Unrecorded, VERSION,
};

/// A cursor's extents double in size from one page to this.
const EXTENT_MAX: u64 = 1 << 20;
/// Extents from this size on are populated at once: one call instead of a page fault per page.
const POPULATE_MIN: u64 = 64 << 10;

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
    let (base, reserved, image) = file::create(p, options, pid, family())?;
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
    directory::forget();
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
    header.start_realtime_ns.set(clock::realtime_ns());
    header.start_monotonic_ns.set(p.start_ns.load(Relaxed));
    header.epoch.set(1);
    header.profile_limit.set(options.max_profile);
    header.file_end.set(PAGE);
    header.process_start_ticks.set(kernel::start_ticks());
    header.pid_namespace.set(kernel::pid_namespace());
    prepare(header);
    publish(header);
    header.program.set(string(executed::program(&mut buffer).unwrap_or(b"")).number());
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

/// Stores the magic number, which makes the header visible to readers, after everything else and as
/// a whole: a process that is killed leaves no part of it.
fn publish(header: &FileHeader) {
    // SAFETY: eight bytes at the beginning of a page; all accesses of this process are atomic.
    let magic = unsafe { &*(header.magic.as_ptr() as *const AtomicU64) };
    magic.store(u64::from_ne_bytes(MAGIC), Release);
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
#[unsafe(link_section = ".bss.wiped")]
static STRINGS: Wiped<Locked<Cursor>> = unsafe { Wiped::new() };

/// Makes forked children start without a cursor for strings.
pub fn wipe_in_children() {
    STRINGS.wipe_in_children();
}

/// Stores a string; none if there is no room.
pub fn string(text: &[u8]) -> StringId {
    let text = &text[..text.len().min(STRING_MAX)];
    // One byte more, so that a zero always follows.
    let bytes = size_of::<StringHeader>() + text.len() + 1;
    let bytes = bytes.next_multiple_of(STRING_GRANULE as usize);
    let Some(mut cursor) = STRINGS.get().acquire_patiently() else {
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
    let _held = p.growth.acquire_patiently().ok_or(NoExtent::Turn)?;
    let header = p.header();
    let start = header.file_end.get(); // changes under the lock only
    let end = start + length;
    if end > p.backed.load(Relaxed) && !file::make_room(p, end) {
        return Err(NoExtent::Room);
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
    if matches!(kind, Kind::Sites | Kind::SampledSites) {
        for page in start / PAGE..end / PAGE {
            p.owner_of_page(page).set(owner);
        }
    }
    Ok(extent)
}
