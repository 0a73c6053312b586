//! The scope that a thread is in, and the cursors and indices of its records: the part of a lane
//! that the store changes.

use crate::store::ids::{NodeId, ScopeId, SiteId};
use crate::store::index::Index;
use crate::store::profile::Cursor;
use heaptide_format::shared::{Scope, Site};

/// The part of a lane's state that finds its scopes and sites. All zeros: neither exists, except
/// that [`crate::store::scopes::go`] has to set `scope` and `here_record`.
#[repr(C)]
pub struct Place {
    /// The scope path that the thread is in; the root outside of all scopes.
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
    /// The site for events that find no room for a site of their own: `base_site`, or with a limit
    /// of the profile a site whose stack names the limit.
    pub unstored_site: SiteId,
    pub root_scope: ScopeId,
    pub site_records: Cursor,
    pub labelled_records: Cursor,
    pub keys: Cursor,
    pub scopes: Cursor,
    pub index_of_sites: Index<7>,
    pub index_of_scopes: Index<2>,
    /// Scopes of other lanes, each with this lane's scope of the same path.
    pub translations: [[ScopeId; 2]; TRANSLATIONS],
    /// Number of open scopes for which there was no room.
    pub unplaced: u32,
    /// Number of scopes that were open in the parent when this process was forked.
    pub inherited: u32,
}

/// Number of paths of other lanes for which a lane remembers its own.
pub const TRANSLATIONS: usize = 64;
