//! Options for attribution: which code is the program's own, and whether frames are shown
//! unchanged.

use regex::Regex;

/// How allocations are attributed to functions; the default is that of every view.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    /// Attribute each allocation to its innermost frame.
    pub is_raw: bool,
    /// Patterns of own code, in addition to what is detected.
    pub own: Vec<OwnPattern>,
}

/// A pattern that names own code.
#[derive(Clone, Debug)]
pub struct OwnPattern {
    /// The name of a frame to compare.
    pub of: OwnName,
    /// Matches anywhere in the name.
    pub regex: Regex,
}

/// The kinds of names of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnName {
    /// The full function name.
    Function,
    /// The path of its module.
    Module,
    /// The path of its source file.
    File,
}

impl Attribution {
    /// Returns whether a pattern matches a frame with this function, module and source file.
    pub fn names(&self, function: Option<&str>, module: Option<&str>, file: Option<&str>) -> bool {
        self.own.iter().any(|pattern| {
            let name = match pattern.of {
                OwnName::Function => function,
                OwnName::Module => module,
                OwnName::File => file,
            };
            name.is_some_and(|name| pattern.regex.is_match(name))
        })
    }
}
