//! Where a thread is, and the records that it makes: the part of a lane that the store changes.

use crate::store::ids::{NodeId, ScopeId, SiteId};
use crate::store::index::Index;
use crate::store::profile::Cursor;
use heaptide_format::shared::{Scope, Site};

/// The part of a lane's state by which its scopes and sites are found. Zero is none of either, but
/// for `scope` and `here_record`, which [`crate::store::scopes::go`] sets.
#[repr(C)]
pub struct Place {
    /// The scope path that the thread is in; the root's outside of all scopes.
    pub scope: &'static Scope,
    /// The site of `scope` without a stack, and its record; none if it has none yet.
    pub here_record: &'static Site,
    pub here: SiteId,
    /// The lane's index.
    pub lane: u32,
    /// The node that was looked up last, and its site.
    pub last_node: NodeId,
    pub last_site: SiteId,
    /// The lane's site without a stack.
    pub base_site: SiteId,
    /// The site of what finds no room for a site of its own: `base_site`, or with a limit of the
    /// profile one whose stack names that.
    pub unstored_site: SiteId,
    pub root_scope: ScopeId,
    pub site_records: Cursor,
    pub labelled_records: Cursor,
    pub keys: Cursor,
    pub scopes: Cursor,
    pub index_of_sites: Index<7>,
    pub index_of_scopes: Index<2>,
    /// Scopes of other lanes and the lane's own of the same path.
    pub translations: [[ScopeId; 2]; TRANSLATIONS],
    /// Scopes that were entered but found no place.
    pub unplaced: u32,
    /// Scopes that were open in the process that this one is a fork of.
    pub inherited: u32,
}

/// Paths of other lanes that a lane remembers its own for.
pub const TRANSLATIONS: usize = 64;
