//! The name of a scope path in one line.

use heaptide_analysis::model::{Process, Scope, ScopeId, scope_path as joined};

use crate::shared::names::elide_middle;

/// Returns a path in at most `width` characters, outermost first.
pub fn scope_path(process: &Process, scope: ScopeId, width: usize) -> String {
    let path = joined(process.scopes_of(scope).map(Scope::name));
    if path.is_empty() { "(no scope)".to_owned() } else { elide_middle(&path, width) }
}
