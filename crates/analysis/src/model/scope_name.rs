//! Names of scopes, and frames that represent a scope.

use super::tables::{Frame, Scope};

/// The default attribute, which names omit.
const PLAIN: &str = "region";
/// The address of frames that represent scopes; no code has it.
const NOWHERE: u64 = u64::MAX;

impl Scope {
    /// Returns the display name: `load`, `phase=2`; `""` if the name is empty.
    ///
    /// ```
    /// use heaptide_analysis::model::{Scope, ScopeId};
    /// let parent = ScopeId(0);
    /// let (attribute, value) = ("phase".into(), "2".into());
    /// let scope = Scope { entered: 1, ..Scope::new(parent, attribute, value) };
    /// assert_eq!(scope.name(), "phase=2");
    /// ```
    pub fn name(&self) -> String {
        scope_name(&self.attribute, &self.value)
    }
}

/// Returns the display name of a scope with this attribute and value.
pub(crate) fn scope_name(attribute: &str, value: &str) -> String {
    match (attribute, value) {
        (PLAIN, "") => "\"\"".to_owned(),
        (PLAIN, _) => value.to_owned(),
        _ => format!("{attribute}={value}"),
    }
}

/// Maximum number of innermost scopes in the name of a path.
const PATH_MAX: usize = 100;

/// Returns the display name of a scope path: `load > parse`. `names` are those of its scopes,
/// innermost first; the outer scopes of a deep path are omitted.
///
/// ```
/// use heaptide_analysis::model::scope_path;
/// assert_eq!(scope_path(["parse", "load"].map(str::to_owned)), "load > parse");
/// ```
pub fn scope_path(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().take(PATH_MAX + 1).collect();
    if names.len() > PATH_MAX {
        names.truncate(PATH_MAX);
        names.push("…".to_owned());
    }
    names.reverse();
    names.join(" > ")
}

impl Frame {
    /// Returns a frame that represents a scope and has its name as function.
    pub fn of_scope(name: &str) -> Frame {
        Frame { offset: NOWHERE, ..Frame::named(name) }
    }

    /// Returns whether the frame represents a scope, so that its name is not that of a function and
    /// must not be simplified.
    ///
    /// ```
    /// use heaptide_analysis::model::Frame;
    /// assert!(Frame::of_scope("step 7").is_scope());
    /// ```
    pub fn is_scope(&self) -> bool {
        self.module.is_none() && self.offset == NOWHERE
    }
}
