//! Sites of which the node in the profile is known, and not yet the stack.

use crate::collections::optional_index::OptionalIndex;
use crate::model::Site;

/// A site with the index of its node; none without a stack.
pub(crate) type RawSite = Site<OptionalIndex>;
