//! What scopes are called, and frames that stand for a scope.

use super::tables::{Frame, Scope};

/// The attribute that needs no mention.
const PLAIN: &str = "region";
/// The address of frames that are scopes, where no code is.
const NOWHERE: u64 = u64::MAX;

impl Scope {
    /// What it is called: `load`, `phase=2`; `""` if its name is empty.
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

/// What a scope of this attribute and value is called.
pub(crate) fn scope_name(attribute: &str, value: &str) -> String {
    match (attribute, value) {
        (PLAIN, "") => "\"\"".to_owned(),
        (PLAIN, _) => value.to_owned(),
        _ => format!("{attribute}={value}"),
    }
}

/// Innermost scopes of a path that are in its name, in which few have room.
const PATH_MAX: usize = 100;

/// What a scope path is called: `load > parse`. `names` are those of its scopes, innermost first;
/// of a deep one the outer ones are left out.
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
    /// A frame that stands for a scope; its function is the scope's name.
    pub fn of_scope(name: &str) -> Frame {
        Frame { offset: NOWHERE, ..Frame::named(name) }
    }

    /// Whether it stands for a scope: its name is no function's, and has nothing to be taken off.
    ///
    /// ```
    /// use heaptide_analysis::model::Frame;
    /// assert!(Frame::of_scope("step 7").is_scope());
    /// ```
    pub fn is_scope(&self) -> bool {
        self.module.is_none() && self.offset == NOWHERE
    }
}
