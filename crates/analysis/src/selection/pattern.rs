//! `[KIND:]REGEX`: patterns for functions, modules, files, scopes, labels and lanes.

use std::fmt;
use std::str::FromStr;

use regex::Regex;
use rustc_hash::FxHashMap;

use crate::model::{Frame, FrameId, OwnName, OwnPattern, Process, Scope};

/// The kind of names that a regex is matched against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Whole demangled names of functions.
    Function,
    /// Paths of files with code.
    Module,
    /// Paths of source files.
    File,
    /// Scopes, as `value` or `attribute=value`.
    Scope,
    /// Labels and pools.
    Label,
    /// Names of threads.
    Lane,
}

impl Kind {
    /// All kinds with their words in patterns.
    pub const ALL: [(&'static str, Kind); 6] = [
        ("function", Kind::Function),
        ("module", Kind::Module),
        ("file", Kind::File),
        ("scope", Kind::Scope),
        ("label", Kind::Label),
        ("thread", Kind::Lane),
    ];
}

/// Names to match if a site has none of the kind, the same as in tables.
const NO_STACK: &str = "(no stack)";
const NO_SCOPE: &str = "(no scope)";
const NO_LABEL: &str = "(no label)";

/// A regex on names of one kind. It matches anywhere in a name.
///
/// ```
/// use heaptide_analysis::selection::pattern::{Kind, Pattern};
/// let pattern: Pattern = "scope:^load".parse().unwrap();
/// assert_eq!(pattern.kind(), Kind::Scope);
/// let pattern: Pattern = "std::vector".parse().unwrap();
/// assert_eq!(pattern.kind(), Kind::Function);
/// let wrong = "file:(".parse::<Pattern>().unwrap_err();
/// assert_eq!(wrong.to_string(), "`(`: unclosed group, at character 1");
/// ```
#[derive(Clone, Debug)]
pub struct Pattern {
    kind: Kind,
    regex: Regex,
}

/// Error of an invalid pattern: the text, the problem and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPattern(String);

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPattern {}

/// Compiles a regex; the error is a single line.
pub(crate) fn regex(text: &str) -> Result<Regex, BadPattern> {
    if let Err(error) = regex_syntax::Parser::new().parse(text) {
        let (what, at) = match &error {
            regex_syntax::Error::Parse(e) => (e.kind().to_string(), e.span().start.column),
            regex_syntax::Error::Translate(e) => (e.kind().to_string(), e.span().start.column),
            _ => (error.to_string(), 1),
        };
        return Err(BadPattern(format!("`{text}`: {what}, at character {at}")));
    }
    Regex::new(text).map_err(|error| BadPattern(format!("`{text}`: {error}").replace('\n', " ")))
}

/// Returns the text of a pattern that matches exactly this function name.
///
/// ```
/// use heaptide_analysis::selection::pattern::exactly;
/// assert_eq!(exactly("f(int*)"), r"^f\(int\*\)$");
/// ```
pub fn exactly(function: &str) -> String {
    format!("^{}$", regex::escape(function))
}

impl FromStr for Pattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Pattern, BadPattern> {
        let (word, rest) = match text.split_once(':') {
            Some((word, rest)) if is_word(word) && !rest.starts_with(':') => (Some(word), rest),
            _ => (None, text),
        };
        let kind = match word {
            None => Some(Kind::Function),
            // The former word for threads.
            Some("lane") => Some(Kind::Lane),
            Some(word) => Kind::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, k)| k),
        };
        let Some(kind) = kind else {
            let kinds = Kind::ALL.map(|(name, _)| name).join(" ");
            let word = word.unwrap_or_default();
            let what = format!(
                "`{text}`: unknown kind `{word}`; expected one of {kinds}, or \
                 `function:{text}` to match functions against the whole text"
            );
            return Err(BadPattern(what));
        };
        Pattern::of(kind, rest)
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase())
}

impl Pattern {
    /// Returns a regex for names of a kind.
    ///
    /// Errors: the text is not a regex.
    pub fn of(kind: Kind, text: &str) -> Result<Pattern, BadPattern> {
        Ok(Pattern { kind, regex: regex(text)? })
    }

    /// Converts it to a pattern of own code; `None` if its kind is not functions, modules or source
    /// files.
    ///
    /// ```
    /// use heaptide_analysis::selection::pattern::Pattern;
    /// let own = |text: &str| text.parse::<Pattern>().unwrap().into_own();
    /// assert!(own("module:libapp").is_some() && own("thread:worker").is_none());
    /// ```
    pub fn into_own(self) -> Option<OwnPattern> {
        let of = match self.kind {
            Kind::Function => OwnName::Function,
            Kind::Module => OwnName::Module,
            Kind::File => OwnName::File,
            Kind::Scope | Kind::Label | Kind::Lane => return None,
        };
        Some(OwnPattern { of, regex: self.regex })
    }

    /// Returns the kind of names that it matches.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns for each site whether any of its names matches: a frame of its stack, a scope of its
    /// path, its label or its lane. Missing names are `(no stack)`, `(no scope)` and `(no label)`.
    ///
    /// Each name, stack and scope path is processed once; linear in them and the sites.
    pub fn hits(&self, process: &Process) -> Vec<bool> {
        let sites = process.tables.sites.iter();
        match self.kind {
            Kind::Function | Kind::Module | Kind::File => {
                let frames = self.frames(process);
                let stacks = process.tables.stacks.iter().skip(1);
                let own = stacks.map(|node| (node.parent.0, frames[node.frame.0 as usize]));
                let hits = inherited(self.regex.is_match(NO_STACK), own);
                sites.map(|site| hits[site.stack.0 as usize]).collect()
            }
            Kind::Scope => {
                let hits = self.scope_paths(process);
                sites.map(|site| hits[site.scope.0 as usize]).collect()
            }
            Kind::Label => {
                let (hits, none) = (self.labels(process), self.regex.is_match(NO_LABEL));
                sites.map(|site| site.label.map_or(none, |id| hits[id.0 as usize])).collect()
            }
            Kind::Lane => {
                let hits = self.lanes(process);
                sites.map(|site| hits[site.lane.0 as usize]).collect()
            }
        }
    }

    /// Returns for each frame whether its function, module or file matches.
    pub fn frames(&self, process: &Process) -> Vec<bool> {
        let mut names = Names { regex: &self.regex, known: FxHashMap::default() };
        let modules: Vec<bool> = match self.kind {
            Kind::Module => {
                process.tables.modules.iter().map(|m| self.regex.is_match(&m.path)).collect()
            }
            _ => Vec::new(),
        };
        let hit = |(frame, id): (&Frame, u32)| match self.kind {
            Kind::Function => match &frame.function {
                Some(function) => names.hit(function),
                None => self.regex.is_match(&process.label(FrameId(id))),
            },
            Kind::File => frame.file.as_ref().is_some_and(|file| names.hit(file)),
            _ => frame.module.is_some_and(|id| modules.get(id.0 as usize) == Some(&true)),
        };
        process.tables.frames.iter().zip(0..).map(hit).collect()
    }

    /// Returns for each scope whether its own name matches; false for the entry without a scope.
    pub(crate) fn scopes(&self, process: &Process) -> Vec<bool> {
        let own = |scope: &Scope| {
            let whole = || format!("{}={}", scope.attribute, scope.value);
            self.regex.is_match(&scope.value) || self.regex.is_match(&whole())
        };
        let none = process.tables.scopes.iter().take(1).map(|_| false);
        none.chain(process.tables.scopes.iter().skip(1).map(own)).collect()
    }

    /// Returns for each scope path whether any of its scopes matches.
    pub(crate) fn scope_paths(&self, process: &Process) -> Vec<bool> {
        let own = self.scopes(process);
        let own =
            process.tables.scopes.iter().zip(own).skip(1).map(|(scope, hit)| (scope.parent.0, hit));
        inherited(self.regex.is_match(NO_SCOPE), own)
    }

    /// Returns for each label whether it matches.
    pub(crate) fn labels(&self, process: &Process) -> Vec<bool> {
        process.tables.labels.iter().map(|label| self.regex.is_match(&label.name)).collect()
    }

    /// Returns for each lane whether its name matches.
    pub fn lanes(&self, process: &Process) -> Vec<bool> {
        process.tables.lanes.iter().map(|lane| self.regex.is_match(&lane.name)).collect()
    }
}

/// Returns, for a tree whose parents come first, whether each node or any ancestor except the root
/// matches; the root has the value `root`.
fn inherited(root: bool, nodes: impl Iterator<Item = (u32, bool)>) -> Vec<bool> {
    let mut hits = vec![false];
    for (parent, own) in nodes {
        hits.push(own || hits[parent as usize]);
    }
    hits[0] = root;
    hits
}

/// Results by address of the name: a name shared by many frames is matched once.
struct Names<'a> {
    regex: &'a Regex,
    known: FxHashMap<*const u8, bool>,
}

impl Names<'_> {
    fn hit(&mut self, name: &str) -> bool {
        *self.known.entry(name.as_ptr()).or_insert_with(|| self.regex.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_one_colon_is_a_kind() {
        let kind = |text: &str| text.parse::<Pattern>().map(|pattern| pattern.kind());
        assert_eq!(kind("label:x"), Ok(Kind::Label));
        assert_eq!(kind("thread:"), Ok(Kind::Lane));
        assert_eq!(kind("lane:"), Ok(Kind::Lane));
        for text in ["std::x", "label::x", "(?i:x)", "A:b", "x", "", "^module:"] {
            assert_eq!(kind(text), Ok(Kind::Function), "{text}");
        }
        assert_eq!(
            kind("modul:libc").unwrap_err().to_string(),
            "`modul:libc`: unknown kind `modul`; expected one of function module file scope label \
             thread, or `function:modul:libc` to match functions against the whole text"
        );
    }

    #[test]
    fn a_bad_regex_is_told_on_one_line_with_its_place() {
        for (text, told) in [
            ("a(b", "`a(b`: unclosed group, at character 2"),
            ("label:größe[", "`größe[`: unclosed character class, at character 6"),
            (
                "x{5,2}",
                "`x{5,2}`: invalid repetition count range, the start must be <= the end, at character 2",
            ),
            (r"\p{Nothing}", r"`\p{Nothing}`: Unicode property not found, at character 1"),
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap_err().to_string(), told);
        }
        let told = "(x{1000}){1000}".parse::<Pattern>().unwrap_err().to_string();
        assert!(told.contains("size limit") && !told.contains('\n'), "{told}");
    }
}
