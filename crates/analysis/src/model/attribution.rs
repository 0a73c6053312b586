//! What a reader says about attribution: whose code is the program's own, and whether frames are to
//! be shown as they are.

use regex::Regex;

/// How allocations are put down to functions; the default is that of every view.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    /// Each allocation is put down to its innermost frame.
    pub is_raw: bool,
    /// What is the program's own beside what is known to be.
    pub own: Vec<OwnPattern>,
}

/// A name of own code.
#[derive(Clone, Debug)]
pub struct OwnPattern {
    /// Which name of a frame is compared.
    pub of: OwnName,
    /// It matches anywhere in the name.
    pub regex: Regex,
}

/// The names of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnName {
    /// Its function, whole.
    Function,
    /// The path of the file with its code.
    Module,
    /// The path of its source.
    File,
}

impl Attribution {
    /// Whether a pattern names a frame with this function, module and source file.
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
