//! The rules, one per file.

mod cross_thread;
mod fills;
mod fragmentation;
mod growing;
mod growth;
mod never_freed;
mod outlives_scope;
mod past_phase;
mod per_iteration;
mod python_copies;
mod short_peak;
mod slack;
mod temporary;
mod tiny_blocks;
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
    never_freed::RULE,
    outlives_scope::RULE,
    short_peak::RULE,
    past_phase::RULE,
    python_copies::RULE,
];
