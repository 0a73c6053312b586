//! The state that request handlers share.

use crate::access::Access;
use crate::profiles::Profiles;
use crate::readings::Readings;

/// The state that request handlers share.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) readings: Readings,
    pub(crate) profiles: Profiles,
}
