//! All that answers need.

use crate::access::Access;
use crate::profiles::Profiles;
use crate::readings::Readings;

/// All that answers need.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) readings: Readings,
    pub(crate) profiles: Profiles,
}
