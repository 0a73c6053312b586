//! Ids of records: positions in the profile. Ids and addresses are converted into each other here
//! and nowhere else.

use crate::store::shared::store;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::{Key, Node, SampledSite, Scope, Shape, Site};
use heaptide_format::{
    KEY_GRANULE, NAME_GRANULE, NODE_GRANULE, Name, PYTHON_LINE_GRANULE, PythonLine, SITE_GRANULE,
    STRING_GRANULE, StringHeader,
};

/// A record of the profile. Fields that change after the commit are atomic.
///
/// # Safety
/// Any bytes are a valid value of the type, and no part of it is a pointer.
pub unsafe trait Record: 'static {}

// SAFETY: numbers that do not change.
unsafe impl Record for heaptide_format::Mark {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::Sample {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::FormerThread {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::MappedChange {}
// SAFETY: atomic numbers.
unsafe impl Record for heaptide_format::shared::Lane {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::shared::Module {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::shared::Span {}
// SAFETY: likewise.
unsafe impl Record for heaptide_format::shared::Window {}

macro_rules! ids {
    ($($(#[doc = $text:literal])* $id:ident = $record:ident / $granule:ident;)*) => {
        $(
            // SAFETY: numbers, atomic where they change.
            unsafe impl Record for $record {}

            $(#[doc = $text])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[repr(transparent)]
            pub struct $id(u32);

            impl $id {
                /// No record.
                pub const NONE: $id = $id(0);

                /// Returns the id with a number that came from [`Self::number`].
                #[inline(always)]
                pub const fn new(number: u32) -> $id {
                    $id(number)
                }

                /// Returns the number that stands for the record in the profile.
                #[inline(always)]
                pub const fn number(self) -> u32 {
                    self.0
                }

                /// Returns whether this is no record.
                #[inline(always)]
                pub const fn is_none(self) -> bool {
                    self.0 == 0
                }

                /// Returns the record, or the header of the file for no record. May only be called
                /// while there is a profile.
                #[inline(always)]
                pub fn record(self) -> &'static $record {
                    // SAFETY: `of` made the number from a record of this profile. Records stay
                    // mapped, and any bytes are a valid value.
                    unsafe { &*(self.address() as *const $record) }
                }

                #[inline(always)]
                fn address(self) -> *const u8 {
                    let base = store().base.load(Relaxed);
                    base.wrapping_add(self.0 as usize * $granule as usize)
                }

                /// Returns the id of a record.
                #[inline(always)]
                pub fn of(record: &'static $record) -> $id {
                    let base = store().base.load(Relaxed) as u64;
                    $id(((core::ptr::from_ref(record) as u64 - base) / $granule) as u32)
                }
            }
        )*
    };
}

ids! {
    /// A node of the stack tree.
    NodeId = Node / NODE_GRANULE;
    /// A site.
    SiteId = Site / SITE_GRANULE;
    /// A scope path of a lane.
    ScopeId = Scope / KEY_GRANULE;
    /// A key of sites.
    KeyId = Key / KEY_GRANULE;
    /// A shape of labelled memory.
    ShapeId = Shape / KEY_GRANULE;
    /// A name.
    NameId = Name / NAME_GRANULE;
    /// A string.
    StringId = StringHeader / STRING_GRANULE;
    /// A line of a Python function.
    PythonLineId = PythonLine / PYTHON_LINE_GRANULE;
}

impl SiteId {
    /// Returns the record of a site of sampled blocks. May only be called in mode sampled.
    pub fn sampled_record(self) -> &'static SampledSite {
        // SAFETY: as for `record`: a record of this size, of atomic numbers.
        unsafe { &*(self.address() as *const SampledSite) }
    }
}

impl StringId {
    /// Returns the bytes, which a zero byte follows. May only be called for a string of this
    /// profile.
    pub fn bytes(self) -> &'static [u8] {
        let length = self.record().length as usize;
        // SAFETY: that many bytes follow the header and do not change.
        unsafe {
            core::slice::from_raw_parts(
                self.address().wrapping_add(size_of::<StringHeader>()),
                length,
            )
        }
    }
}
