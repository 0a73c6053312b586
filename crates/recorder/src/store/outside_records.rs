//! Records of memory outside the heap: a site for each combination of stack, scope, thread and
//! kind of memory, counters for each lane, and the names of mapped files. One lock guards those of
//! a kind.

use crate::store::budgets::{CHANGES_MAX, MAPPED_FILES_MAX};
use crate::store::ids::{KeyId, NameId, NodeId, ScopeId, SiteId, StringId};
use crate::store::index::Index;
use crate::store::profile::{Cursor, string};
use crate::store::samples::Samples;
use crate::store::shared::Store;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::shared::{FileHeader, Key, Lane, Site, Word};
use heaptide_format::{
    DeviceClass, DeviceKey, KEY_BIT, KEY_DEVICE, KEY_LABELLED, KEY_MAPPING, KEY_POOL_BLOCK,
    KEY_POOL_CHUNK, Kind, MappedChange, MappingKey,
};

/// The name of all files beyond the budget; reports put names of files in brackets.
const OTHER_FILES: &[u8] = b"other files";

/// A kind of memory outside the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Space {
    Mapped = 0,
    Device = 1,
}

/// The words of a profile's header for a kind of memory.
pub struct Words<'a> {
    pub bytes: &'a AtomicU64,
    pub peak_bytes: &'a AtomicU64,
    pub peak_time_ns: &'a AtomicU64,
    pub epoch: &'a AtomicU32,
}

impl Space {
    pub fn words(self, header: &FileHeader) -> Words<'_> {
        match self {
            Space::Mapped => Words {
                bytes: &header.mapped_bytes,
                peak_bytes: &header.mapped_peak_bytes,
                peak_time_ns: &header.mapped_peak_time_ns,
                epoch: &header.mapped_epoch,
            },
            Space::Device => Words {
                bytes: &header.device_bytes,
                peak_bytes: &header.device_peak_bytes,
                peak_time_ns: &header.device_peak_time_ns,
                epoch: &header.device_epoch,
            },
        }
    }

    /// Returns the kind of its samples.
    pub fn timeline(self) -> Kind {
        self.of(Kind::MappedTimeline, Kind::DeviceTimeline)
    }

    fn of<T>(self, mapped: T, device: T) -> T {
        match self {
            Space::Mapped => mapped,
            Space::Device => device,
        }
    }
}

/// Memory that ends, or whose end is reverted.
#[derive(Clone, Copy)]
pub struct Gone {
    pub site: SiteId,
    pub bytes: u64,
    /// Size of the whole when it was allocated.
    pub whole_bytes: u64,
    /// Set if nothing of it is left.
    pub is_last: bool,
}

/// Cursors for records, and the indices that find them again. All zeros: none of mappings yet.
#[repr(C)]
pub struct Records {
    pub space: Space,
    sites: Cursor,
    keys: Cursor,
    lanes: Cursor,
    pub samples: Samples,
    changes: Cursor,
    /// Number of changes.
    changes_used: usize,
    index: Index<6>,
    /// Hashes of file names, and the strings of these names.
    files: Index<2>,
    /// Number of these names.
    files_used: usize,
    /// The counters of each lane, by index of the lane.
    by_lane: *mut Option<&'static Lane>,
}

/// The dimensions that distinguish a site.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    pub stack: NodeId,
    pub scope: ScopeId,
    pub lane: u32,
    pub label: NameId,
    /// A packed [`MappingKey`], or [`heaptide_format::DeviceKey`].
    pub key: u64,
}

impl Dimensions {
    /// Returns those of a site; none if it has no key.
    pub fn of_site(site: SiteId) -> Option<Dimensions> {
        let key = site.key()?;
        Some(Dimensions {
            stack: NodeId::new(key.stack.get()),
            scope: ScopeId::new(key.scope.get()),
            lane: key.lane.get(),
            label: NameId::new(key.label.get()),
            key: key.size.get(),
        })
    }
}

impl Records {
    /// Returns the site for these dimensions; none if it cannot be created.
    pub fn site(&mut self, of: Dimensions) -> SiteId {
        let [stack, scope, label] = [of.stack.number(), of.scope.number(), of.label.number()];
        let words = [stack, scope, of.lane, label, of.key as u32, (of.key >> 32) as u32];
        let known = self.index.get(words);
        if known != 0 {
            return SiteId::new(known);
        }
        let Some(site) = self.create(of) else {
            return SiteId::NONE;
        };
        // Without an index entry the site would be created again for each event.
        if !self.index.insert(words, site.number()) {
            return SiteId::NONE;
        }
        site
    }

    fn create(&mut self, of: Dimensions) -> Option<SiteId> {
        let key = self.keys.record::<Key>(Kind::Keys, of.lane)?;
        key.stack.set(of.stack.number());
        key.scope.set(of.scope.number());
        key.lane.set(of.lane);
        key.label.set(of.label.number());
        key.flags.set(self.space.of(KEY_MAPPING, KEY_DEVICE | pool_flag(of.key)));
        key.size.set(of.key);
        let kind = self.space.of(Kind::MappedSites, Kind::DeviceSites);
        let site = self.sites.record::<Site>(kind, of.lane)?;
        site.key.set(KeyId::of(key).number() | KEY_BIT | KEY_LABELLED);
        key.site.set(SiteId::of(site).number());
        self.keys.commit_record(key);
        self.sites.commit_record(site);
        Some(SiteId::of(site))
    }

    /// Stores a change of the bytes and the number of a site's pieces, both in two's complement. At
    /// the end of the budget it does nothing: readers notice that changes are missing.
    pub fn change(&mut self, p: &Store, site: SiteId, bytes: u64, pieces: u64) {
        if self.changes_used == changes_max(p.header().profile_limit.get()) {
            return;
        }
        self.changes_used += 1;
        let change = MappedChange {
            time_ns: p.now(),
            heap_peak_bytes: p.header().peak_bytes.get(),
            bytes,
            site: site.number(),
            mappings: pieces as u32,
        };
        let kind = self.space.of(Kind::MappedChanges, Kind::DeviceChanges);
        let _ = self.changes.write(kind, 0, change);
    }

    /// Returns the string of a file's name; none if there is no room.
    pub fn file(&mut self, name: &[u8]) -> StringId {
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
        });
        let words = [hash as u32, (hash >> 32) as u32];
        let known = StringId::new(self.files.get(words));
        if !known.is_none() && known.bytes() == name {
            return known;
        }
        if self.files_used >= MAPPED_FILES_MAX && name != OTHER_FILES {
            return self.file(OTHER_FILES);
        }
        let stored = string(name);
        if !stored.is_none() && known.is_none() {
            self.files.insert(words, stored.number()); // without memory it is stored again
        }
        self.files_used += 1;
        stored
    }

    /// Returns the counters of a lane; none if there is no room. `lanes` is the maximum number of
    /// lanes.
    pub fn lane(&mut self, of: &Lane, lanes: usize) -> Option<&'static Lane> {
        if self.by_lane.is_null() {
            let bytes = lanes * size_of::<Option<&Lane>>();
            self.by_lane = memory::take(bytes, InChild::Nothing) as *mut Option<&'static Lane>;
        }
        let index = of.index.get();
        if self.by_lane.is_null() || index as usize >= lanes {
            return None;
        }
        // SAFETY: an entry of the table, which is borrowed with `self`; all zeros is `None`.
        let known = unsafe { &mut *self.by_lane.add(index as usize) };
        if known.is_none() {
            let record = self
                .lanes
                .record::<Lane>(self.space.of(Kind::MappedLanes, Kind::DeviceLanes), index)?;
            record.index.set(index);
            self.lanes.commit_record(record);
            *known = Some(record);
        }
        *known
    }
}

/// Returns the flag of device memory of a pool.
fn pool_flag(key: u64) -> u32 {
    match DeviceKey::unpack(key).class {
        class if class == DeviceClass::PoolBlock as u8 => KEY_POOL_BLOCK,
        class if class == DeviceClass::PoolChunk as u8 => KEY_POOL_CHUNK,
        _ => 0,
    }
}

/// Returns the maximum number of changes: a limited profile has room for stacks, too.
fn changes_max(profile_limit: u64) -> usize {
    const LIMIT_PART: u64 = 16;
    let within = profile_limit / LIMIT_PART / size_of::<MappedChange>() as u64;
    if profile_limit == 0 { CHANGES_MAX } else { CHANGES_MAX.min(within as usize) }
}

/// Returns the kind of mapping in the key of a site; none if the site is not one of mappings.
pub fn kind_of(site: SiteId) -> Option<MappingKey> {
    let key = site.key()?;
    (key.flags.get() & KEY_MAPPING != 0).then(|| MappingKey::unpack(key.size.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_take_a_part_of_a_limited_profile() {
        assert_eq!([0, 1 << 40].map(changes_max), [CHANGES_MAX; 2]);
        assert_eq!(changes_max(1 << 20), (64 << 10) / size_of::<MappedChange>());
    }
}
