//! The elements of the paths of a comparison: functions, calls and scopes.

use std::borrow::Cow;
use std::sync::Arc;

use crate::attribution::{Role, known};
use crate::model;

/// The elements of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Functions: paths are stacks.
    Stacks,
    /// Source lines of functions: paths are stacks.
    Lines,
    /// Scopes: paths are scope paths.
    Scopes,
}

/// An element of a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// A function, with the shortest of its names in the builds.
    Function {
        /// Its demangled name.
        name: Arc<str>,
        /// The file name of its module; empty for code without a file.
        module: Arc<str>,
    },
    /// A source line of a function.
    Line {
        /// The demangled name of the function.
        name: Arc<str>,
        /// The file name of its module; empty for code without a file.
        module: Arc<str>,
        /// The name of the source file, and the line: `parse.c:12`.
        place: Arc<str>,
    },
    /// All functions without names of a module with several or unknown builds; the module's file
    /// name, empty for code without a file.
    Nameless(Arc<str>),
    /// A call in a function without a name, of a module with a single build.
    Place {
        /// The file name of the module.
        module: Arc<str>,
        /// The address of the call in the module.
        offset: u64,
    },
    /// A scope.
    Scope {
        /// The attribute of its name.
        attribute: Arc<str>,
        /// The value.
        value: Arc<str>,
    },
}

impl Name {
    /// Returns the full display name; for functions without names a description.
    ///
    /// ```
    /// use heaptide_analysis::views::diff::Name;
    /// let (attribute, value) = ("phase".into(), "2".into());
    /// assert_eq!(Name::Scope { attribute, value }.called(), "phase=2");
    /// let nameless = Name::Nameless("libz.so".into());
    /// assert_eq!(nameless.called(), "[libz.so: functions without names]");
    /// ```
    pub fn called(&self) -> Cow<'_, str> {
        match self {
            Name::Function { name, .. } => Cow::Borrowed(name),
            Name::Line { name, place, .. } => Cow::Owned(format!("{place} {name}")),
            Name::Nameless(file) if file.is_empty() => Cow::Borrowed("[code without a file]"),
            Name::Nameless(file) => Cow::Owned(format!("[{file}: functions without names]")),
            Name::Place { module, offset } => Cow::Owned(format!("{module}+{offset:#x}")),
            Name::Scope { attribute, value } => Cow::Owned(model::scope_name(attribute, value)),
        }
    }

    /// Returns the file name of the module; empty for code without a file, and for scopes.
    pub fn module(&self) -> &str {
        match self {
            Name::Function { module, .. }
            | Name::Line { module, .. }
            | Name::Nameless(module)
            | Name::Place { module, .. } => module,
            Name::Scope { .. } => "",
        }
    }

    /// Returns the role according to its name and its file.
    pub(super) fn role(&self) -> Role {
        let in_runtime = known().is_runtime(self.module());
        match self {
            Name::Function { name, .. } | Name::Line { name, .. } => {
                known().role(name).in_runtime(in_runtime)
            }
            Name::Scope { .. } => Role::Owner,
            Name::Nameless(_) | Name::Place { .. } if self.module().is_empty() => Role::Container,
            Name::Nameless(_) | Name::Place { .. } => Role::Owner.in_runtime(in_runtime),
        }
    }
}
