//! The rules, one per file.

mod cross_thread;
mod fills;
mod fragmentation;
mod growing;
mod growing_container;
mod growth;
mod lost;
mod never_freed;
mod outlives_scope;
mod past_phase;
mod per_iteration;
mod python_cache;
mod python_copies;
mod python_exceptions;
mod short_peak;
mod slack;
mod temporary;
mod tiny_blocks;
mod unbounded;
mod untouched;

use crate::rule::Rule;

/// All rules, in the order of the documentation and of findings with equal savings.
pub const RULES: &[Rule] = &[
    growth::RULE,
    temporary::RULE,
    per_iteration::RULE,
    tiny_blocks::RULE,
    slack::RULE,
    untouched::RULE,
    cross_thread::RULE,
    fragmentation::RULE,
    growing::RULE,
    growing_container::RULE,
    unbounded::RULE,
    lost::RULE,
    never_freed::RULE,
    outlives_scope::RULE,
    short_peak::RULE,
    past_phase::RULE,
    python_copies::RULE,
    python_cache::RULE,
    python_exceptions::RULE,
];

/// Rules about memory that grows with the length of the run. Their findings come first, because
/// what all others find is limited.
pub(crate) const FIRST: [&str; 4] = [
    growing::RULE.name,
    growing_container::RULE.name,
    unbounded::RULE.name,
    python_cache::RULE.name,
];
