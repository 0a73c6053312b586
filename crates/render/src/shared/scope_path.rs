//! The name of a scope path in a line.

use heaptide_analysis::model::{Process, Scope, ScopeId};

use crate::shared::names::elide_middle;

/// Innermost scopes of a path that are looked at for its name, in which few have room.
const PATH: usize = 100;

/// A path in at most `width` characters, outermost first.
pub fn scope_path(process: &Process, scope: ScopeId, width: usize) -> String {
    let mut path: Vec<String> = process.scopes_of(scope).take(PATH + 1).map(Scope::name).collect();
    if path.len() > PATH {
        path[PATH] = "…".to_owned();
    }
    path.reverse();
    if path.is_empty() { "(no scope)".to_owned() } else { elide_middle(&path.join(" > "), width) }
}
