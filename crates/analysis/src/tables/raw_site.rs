//! Sites that refer to a node of the profile instead of a stack.

use crate::collections::optional_index::OptionalIndex;
use crate::model::Site;

/// A site with the index of its node; none without a stack.
pub(crate) type RawSite = Site<OptionalIndex>;
