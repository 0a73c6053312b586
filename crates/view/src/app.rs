//! The state that request handlers share.

use std::sync::Arc;

use heaptide_advise::Suppressions;

use crate::access::Access;
use crate::catalog::Catalog;
use crate::changes::Changes;
use crate::store::Store;

/// The state that request handlers share.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<Store>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) has_control: bool,
    pub(crate) suppressions: Suppressions,
    pub(crate) version: &'static str,
}
