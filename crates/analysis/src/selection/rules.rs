//! Rules that rewrite names and stacks: parses lines of files, and provides the built-in sets.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use regex::Regex;
use rustc_hash::FxHashSet;

use super::brackets;
pub use super::builtin_sets::SETS;
use super::pattern::{self, Pattern};
use crate::attribution::names::qualified;
use crate::model::Process;

/// Default sets of rules, with prefixes of the functions that make them apply.
const LANGUAGES: [(&str, &[&str]); 7] = [
    ("std", &["std::__", "std::vector<", "std::basic_", "__gnu_cxx::", "operator new"]),
    ("boost", &["boost::"]),
    ("tbb", &["tbb::"]),
    ("tokio", &["tokio::runtime::"]),
    ("rust", &["core::ops::", "core::ptr::", "alloc::vec::", "alloc::raw_vec::", "std::rt::"]),
    ("qt", &["QMetaObject::", "QCoreApplication::", "QObject::"]),
    ("cpython", &["_PyEval_", "Py_BytesMain", "pymain_"]),
];

/// Rules in order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) rules: Vec<Rule>,
    /// Patterns of stacks to exclude.
    pub(crate) ignore: Vec<Pattern>,
    /// Whether these are rules about internals of languages, which do not apply to Python
    /// functions.
    pub(crate) of_internals: bool,
}

/// An action with its restriction to a place.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) action: Action,
    pub(crate) place: Place,
}

/// The functions that a rule applies to.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// All functions; for rules of internals, all except Python functions.
    Any,
    /// Functions in executables and libraries whose path matches.
    Module(Regex),
    /// Functions whose source file matches.
    File(Regex),
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Replaces all matches.
    Shorten(Regex, String),
    /// Removes arguments and return type.
    Signature(Option<Match>),
    /// Removes template arguments of this type.
    RemoveArgument(String),
    /// Removes the frame.
    Drop(Match),
    /// Merges adjacent frames that get the same name.
    Fold(Match, String),
    /// Merges all frames from one to another below it.
    FoldRange(Match, Match, String),
    /// Removes frames below it.
    CutBelow(Match, Option<String>),
    /// Removes its callers.
    CutAbove(Match),
}

/// A regex for names of functions.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    /// Whether it is matched against the bare name.
    bare: bool,
    regex: Regex,
}

impl Match {
    /// Returns whether the name of a function matches.
    pub(crate) fn is_match(&self, name: &Name) -> bool {
        self.regex.is_match(self.held(name))
    }

    /// Returns the text with matched groups inserted, if the name matches; never empty.
    pub(crate) fn renamed(&self, name: &Name, text: &str) -> Option<String> {
        // Check first, because groups are allocated even without a match, and most names do not
        // match.
        let held = Some(self.held(name)).filter(|held| self.regex.is_match(held))?;
        let groups = self.regex.captures(held)?;
        let mut new = String::new();
        groups.expand(text, &mut new);
        Some(if new.trim().is_empty() { name.whole().to_owned() } else { new })
    }

    fn held<'n>(&self, name: &'n Name) -> &'n str {
        if self.bare { name.bare() } else { name.whole() }
    }
}

/// The name of a function while rules are applied.
pub(crate) struct Name<'a> {
    whole: Cow<'a, str>,
    /// Computed on demand.
    bare: OnceCell<String>,
}

impl<'a> Name<'a> {
    pub(crate) fn new(whole: &'a str) -> Name<'a> {
        Name { whole: Cow::Borrowed(whole), bare: OnceCell::new() }
    }

    pub(crate) fn whole(&self) -> &str {
        &self.whole
    }

    pub(crate) fn into_whole(self) -> String {
        self.whole.into_owned()
    }

    fn bare(&self) -> &str {
        self.bare.get_or_init(|| brackets::bare(&self.whole).into_owned())
    }

    /// Replaces the name.
    pub(crate) fn set(&mut self, new: String) {
        if new != self.whole {
            *self = Name { whole: Cow::Owned(new), bare: OnceCell::new() };
        }
    }
}

/// Error of a line that is not a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRule {
    /// The number of the line, from 1.
    pub line: usize,
    /// The expected and the actual text.
    pub what: String,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

impl std::error::Error for BadRule {}

/// The actions, for the error about an unknown one.
const ACTIONS: &str =
    "shorten, signature, remove-argument, drop, fold, cut-below, cut-above or ignore";

impl Rules {
    /// Parses lines: an action and its arguments. Empty lines and lines that begin with `#` are
    /// skipped.
    ///
    /// ```
    /// use heaptide_analysis::selection::rules::Rules;
    /// let text = "# wrappers\ndrop ^xmalloc$\nshorten ^std:: =>\nfold ^main$ .. ^run => start\n";
    /// assert_eq!(Rules::parse(text).unwrap().len(), 3);
    /// let error = Rules::parse("\nfold ^main").unwrap_err();
    /// assert_eq!(error.line, 2);
    /// ```
    pub fn parse(text: &str) -> Result<Rules, BadRule> {
        let mut rules = Rules::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            rules.add(line).map_err(|what| BadRule { line: number, what })?;
        }
        Ok(rules)
    }

    /// Returns a built-in set by its name.
    ///
    /// ```
    /// use heaptide_analysis::selection::rules::Rules;
    /// assert!(Rules::built_in("std").is_some_and(|rules| !rules.is_empty()));
    /// assert!(Rules::built_in("./std").is_none());
    /// ```
    pub fn built_in(name: &str) -> Option<Rules> {
        let (_, text) = SETS.into_iter().find(|(set, _)| *set == name)?;
        // A test parses all of them.
        Rules::parse(text).ok()
    }

    /// Returns the built-in sets for the languages and libraries that a process uses.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// use heaptide_analysis::selection::rules::Rules;
    /// assert!(Rules::of_languages(&process).is_empty()); // no frames at all
    /// ```
    pub fn of_languages(process: &Process) -> Rules {
        let mut all = Rules { of_internals: true, ..Rules::default() };
        let has_python = process.has_python();
        let mut is_there = [false; LANGUAGES.len()];
        let functions = process.tables.frames.iter().filter_map(|frame| frame.function.as_ref());
        // Frames share the texts of their names, which can be long.
        let mut seen = FxHashSet::default();
        for function in functions.filter(|function| seen.insert(function.as_ptr())) {
            let name = qualified(function);
            let name = name.strip_prefix('<').unwrap_or(name);
            for (is_there, (_, parts)) in is_there.iter_mut().zip(&LANGUAGES) {
                *is_there = *is_there || parts.iter().any(|part| name.starts_with(part));
            }
        }
        for ((set, _), is_there) in LANGUAGES.iter().zip(is_there) {
            // If there are Python frames, those of the interpreter add no information.
            let set = if *set == "cpython" && has_python { "python" } else { *set };
            if is_there || set == "python" {
                Rules::built_in(set).into_iter().for_each(|rules| all.append(rules));
            }
        }
        all
    }

    /// Appends rules.
    pub fn append(&mut self, rules: Rules) {
        self.rules.extend(rules.rules);
        self.ignore.extend(rules.ignore);
    }

    /// Returns the patterns of stacks to exclude after rewriting.
    pub fn ignored(&self) -> &[Pattern] {
        &self.ignore
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len() + self.ignore.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (rest, place) = Place::of(rest)?;
        let rest = rest.trim();
        let action = match word {
            "ignore" if matches!(place, Place::Any) => {
                let pattern = expect(rest, "ignore [KIND:]REGEX")?;
                self.ignore.push(pattern.parse().map_err(|error| format!("{error}"))?);
                return Ok(());
            }
            _ => action(word, rest)?,
        };
        self.rules.push(Rule { action, place });
        Ok(())
    }
}

impl Place {
    /// Parses the place at the end of a rule, and returns the rest.
    fn of(rule: &str) -> Result<(&str, Place), String> {
        if let Some((rest, module)) = rule.rsplit_once(" in module:") {
            return Ok((rest, Place::Module(regex(module)?)));
        }
        if let Some((rest, file)) = rule.rsplit_once(" in file:") {
            return Ok((rest, Place::File(regex(file)?)));
        }
        let has_no_regex = ["in module:", "in file:"].iter().any(|start| rule.starts_with(start));
        Ok((if has_no_regex { "" } else { rule }, Place::Any))
    }
}

fn action(word: &str, rest: &str) -> Result<Action, String> {
    Ok(match word {
        "shorten" => {
            let (from, to) = arrow(rest, "shorten REGEX => TEXT")?;
            Action::Shorten(regex(from)?, to.to_owned())
        }
        "signature" if rest.is_empty() => Action::Signature(None),
        "signature" => Action::Signature(Some(matching(rest)?)),
        "remove-argument" => {
            Action::RemoveArgument(expect(rest, "remove-argument TYPE")?.to_owned())
        }
        "drop" => Action::Drop(matching(expect(rest, "drop REGEX")?)?),
        "fold" => {
            let form = "fold REGEX => NAME or fold REGEX .. REGEX => NAME";
            let (from, name) = arrow(rest, form)?;
            let name = expect(name, form)?.to_owned();
            match from.split_once(" .. ") {
                Some((from, to)) => Action::FoldRange(matching(from)?, matching(to)?, name),
                None => Action::Fold(matching(from)?, name),
            }
        }
        "cut-below" => {
            let form = "cut-below REGEX [=> NAME]";
            if rest.contains("=>") {
                let (from, name) = arrow(rest, form)?;
                Action::CutBelow(matching(from)?, Some(expect(name, form)?.to_owned()))
            } else {
                Action::CutBelow(matching(expect(rest, form)?)?, None)
            }
        }
        "cut-above" => Action::CutAbove(matching(expect(rest, "cut-above REGEX")?)?),
        _ => return Err(format!("expected {ACTIONS}, found `{word}`")),
    })
}

/// Returns both sides of the last arrow.
fn arrow<'a>(rest: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    let sides = rest.rsplit_once("=>").filter(|(from, _)| !from.trim().is_empty());
    let (from, to) = sides.ok_or_else(|| format!("expected `{form}`, found `{rest}`"))?;
    Ok((from.trim(), to.trim()))
}

fn expect<'a>(text: &'a str, form: &str) -> Result<&'a str, String> {
    if text.is_empty() {
        Err(format!("expected `{form}`, found the end of the line"))
    } else {
        Ok(text)
    }
}

/// Parses `REGEX` or `bare:REGEX`.
fn matching(text: &str) -> Result<Match, String> {
    let text = text.trim();
    let (bare, text) = match text.strip_prefix("bare:") {
        Some(text) => (true, text),
        None => (false, text),
    };
    Ok(Match { bare, regex: regex(text)? })
}

fn regex(text: &str) -> Result<Regex, String> {
    pattern::regex(text.trim()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, told) in [
            ("\n# x\nshorten a", "3: expected `shorten REGEX => TEXT`, found `a`"),
            ("shorten", "1: expected `shorten REGEX => TEXT`, found ``"),
            ("shorten => b", "1: expected `shorten REGEX => TEXT`, found `=> b`"),
            ("drop ", "1: expected `drop REGEX`, found the end of the line"),
            ("drop a(", "1: `a(`: unclosed group, at character 2"),
            ("drop a in module:[", "1: `[`: unclosed character class, at character 1"),
            (
                "fold a =>",
                "1: expected `fold REGEX => NAME or fold REGEX .. REGEX => NAME`, found the end of \
                 the line",
            ),
            (
                "cut-below a =>",
                "1: expected `cut-below REGEX [=> NAME]`, found the end of the line",
            ),
            ("cut-above", "1: expected `cut-above REGEX`, found the end of the line"),
            ("remove-argument", "1: expected `remove-argument TYPE`, found the end of the line"),
            (
                "ignore colour:x",
                "1: `colour:x`: unknown kind `colour`; expected one of function module file scope \
                 label thread, or `function:colour:x` to match functions against the whole text",
            ),
            (
                "Drop a",
                "1: expected shorten, signature, remove-argument, drop, fold, cut-below, cut-above \
                 or ignore, found `Drop`",
            ),
        ] {
            assert_eq!(Rules::parse(text).unwrap_err().to_string(), told, "{text}");
        }
    }
}
